/* spillway fsck: healthy pools are never called damaged, however busy; each damage is named. */
#include "tests/process/actor.h"
#include "tests/process/proc.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tier/counters.h"
#include "tier/layout.h"
#include "tools/fsck.h"

TestSuite(process_fsck, .timeout = 60);

static struct proc_pool pool;
static char out[65536];
static struct spw_fsck_report report;

/* Chunks 1..count stored, and the client gone. */
static void store_some(uint32_t count)
{
    struct actor actor;
    struct actor_config who = {.name = "pool", .dir = pool.dir};
    cr_assert_eq(actor_open(&actor, &who), 0);
    cr_assert_eq(actor_store(&actor, 1, count), (int)count);
    actor_close(&actor);
}

static int fsck(bool json)
{
    return proc_spillway(&pool, "fsck", json, out, sizeof out);
}

/* A report by the code itself: many more looks a second than by the program. */
static void look(void)
{
    struct spw_error err = {0};
    cr_assert_eq(spw_fsck_run(&pool.seen->path, &report, &err), 0, "%s", err.text);
}

static bool found(const char *where, const char *words)
{
    for (uint32_t i = 0; i < report.findings; i++)
        if (strcmp(report.finding[i].where, where) == 0 && strstr(report.finding[i].text, words))
            return true;
    return false;
}

static const char *first_words(void)
{
    return report.findings ? report.finding[0].text : "nothing found";
}

Test(process_fsck, a_healthy_pool_is_0_a_dead_one_3_and_none_5)
{
    cr_assert(proc_start(&pool, &(struct proc_config){.workers = 2}));
    store_some(5);
    cr_assert_eq(fsck(true), 0, "%s", out);
    json_t *root = json_loads(out, 0, NULL);
    cr_assert_not_null(root, "%s", out);
    cr_expect_eq(json_integer_value(json_object_get(root, "judged")), 2);
    cr_expect_eq(json_integer_value(json_object_get(json_object_get(root, "entries"), "READY")), 5);
    cr_expect_eq(json_array_size(json_object_get(root, "findings")), 0, "%s", out);
    json_decref(root);
    proc_signal_worker(&pool, 0, SIGKILL);
    proc_signal_worker(&pool, 1, SIGSTOP);
    proc_kill_daemon(&pool);
    cr_expect_eq(fsck(false), 3, "%s", out);
    cr_expect(strstr(out, "no damage") && strstr(out, "5 ready"), "%s", out);
    proc_signal_worker(&pool, 1, SIGCONT);
    pool.config.name = "absent";
    cr_expect_eq(fsck(false), 5, "%s", out);
    pool.config.name = "pool";
    proc_close(&pool);
}

/* Many more looks at the shards alone: what changes is seen in the middle of it only now and then. */
static void look_at_feeds(uint32_t times)
{
    const struct spw_pool *seen = pool.seen;
    memset(&report, 0, sizeof report);
    for (uint32_t i = 0; i < times; i++)
        for (uint32_t k = 0; k < seen->geometry.workers; k++)
            spw_fsck_feed(&(struct spw_fsck_feed){seen->feed[k], &seen->geometry, seen->ctl, k,
                                                  seen->lock_fd},
                          &report);
}

Test(process_fsck, a_busy_pool_is_never_called_damaged_in_100_looks)
{
    int fd[3];
    pid_t peer[3];
    uint64_t moving = 0;
    cr_assert(proc_start(&pool, &(struct proc_config){.workers = 2, .capacity = 16}));
    for (int i = 0; i < 3; i++) {
        char seed[16];
        snprintf(seed, sizeof seed, "%d", i);
        peer[i] =
            proc_peer(&pool, &fd[i], (const char *const[]){"survive", seed, "60", "60000", NULL});
        cr_assert_gt(peer[i], 0);
    }
    for (uint32_t i = 0; i < 100; i++) {
        look();
        cr_expect_eq(report.damages, 0, "look %u: %s", i, first_words());
        moving += report.moving;
        look_at_feeds(200);
        cr_expect_eq(report.damages, 0, "looks %u: %s", i, first_words());
        if (i % 25 == 24) { /* and while a worker ends and the next one adopts its shard */
            uint64_t before = proc_incarnation(&pool, 1);
            proc_signal_worker(&pool, 1, SIGKILL);
            look();
            cr_expect_eq(report.damages, 0, "a worker died: %s", first_words());
            cr_expect(proc_await_successor(&pool, 1, before));
        }
    }
    cr_expect_lt(moving, 100, "some entries may change at each look, most don't");
    cr_expect_gt(proc_count(&pool, 0, SPW_WORKER_evicted), 1000, "it was busy");
    for (int i = 0; i < 3; i++) {
        support_kill(peer[i]);
        close(fd[i]);
    }
    proc_close(&pool);
}

/* ---- damage ---------------------------------------------------------------------------------- */

static struct spw_feed_head *feed;

/* An object, writable, as none but its writer should have it. */
static void *open_object(enum spw_region_kind kind, uint64_t bytes)
{
    char name[SPW_PATH_BYTES];
    spw_region_name(&pool.seen->path, kind, 0, name);
    int fd = open(name, O_RDWR | O_CLOEXEC);
    cr_assert(fd >= 0);
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    cr_assert_neq(at, MAP_FAILED);
    close(fd);
    return at;
}

static void open_feed(void)
{
    feed = open_object(SPW_REGION_FEED, pool.seen->feed_map.size_bytes);
}

static void *at(uint64_t off)
{
    return (uint8_t *)feed + off;
}

static struct spw_entry *ready_entry(uint32_t nth)
{
    struct spw_entry *entry = at(pool.seen->feed_map.entry_off);
    for (uint32_t slot = 0; slot < pool.seen->geometry.slots; slot++)
        if (SPW_PACKED_STATE(spw_load_relaxed(&entry[slot].packed)) == SPW_READY && nth-- == 0)
            return &entry[slot];
    cr_assert(false, "nothing is READY");
    return NULL;
}

static uint32_t slot_of(const struct spw_entry *entry)
{
    const struct spw_entry *first = at(pool.seen->feed_map.entry_off);
    return (uint32_t)(entry - first);
}

static void expect_damage(const char *what, const char *where, const char *words)
{
    look();
    cr_expect_eq(report.damages, 1, "%s: %s", what, first_words());
    cr_expect(found(where, words), "%s: %s", what, first_words());
}

static void expect_word(spw_atomic64 *word, uint64_t with, const char *where, const char *words)
{
    uint64_t was = spw_load_relaxed(word);
    spw_store_relaxed(word, with);
    expect_damage(words, where, words);
    spw_store_relaxed(word, was);
}

/* Each kind of damage to an entry, alone, and whole again after it. */
static void expect_all_kinds(void)
{
    struct spw_entry *entry = ready_entry(1);
    struct spw_entry_key *keys = at(pool.seen->feed_map.key_off);
    uint64_t packed = spw_load_relaxed(&entry->packed);
    char where[40];
    snprintf(where, sizeof where, "feed.0 slot %u", slot_of(entry));
    expect_word(&entry->packed, packed | 0x80, where, "state or length");
    expect_word(&entry->packed, packed | 0xff0000, where, "state or length");
    expect_word(&entry->packed, packed | 63ull << 32, where, "its space");
    expect_word(&entry->packed, packed | 9 << 8, where, "group");
    expect_word(&entry->packed, packed | 9ull << 24, where, "rank");
    expect_word(&entry->version, 1ull << 40, where, "version");
    expect_word(&entry->fill, 1, where, "fill");
    expect_word(&entry->chunk_bytes, 77, where, "bytes");
    expect_word(&entry->digest[1], 77, where, "digest");
    expect_word(&keys[slot_of(entry)].word[2], 77, where, "digest");
}

Test(process_fsck, each_damage_of_a_living_pool_is_named)
{
    cr_assert(proc_start(&pool, &(struct proc_config){0}));
    store_some(3);
    open_feed();
    look();
    cr_assert_eq(report.damages, 0, "%s", first_words());
    expect_all_kinds();
    struct spw_entry *entry = ready_entry(0);
    char where[40];
    snprintf(where, sizeof where, "feed.0 slot %u", slot_of(entry));
    expect_word(&entry->seq, spw_load_relaxed(&entry->seq) | 1, where, "being changed");
    struct spw_index_bucket *bucket = at(pool.seen->feed_map.index_off);
    for (uint32_t b = 0; b < pool.seen->geometry.index_buckets; b++)
        for (uint32_t i = 0; i < 7; i++)
            if ((uint32_t)spw_load_relaxed(&bucket[b].cell[i]) == slot_of(entry) + 1)
                expect_word(&bucket[b].cell[i], 0, where, "index");
    struct spw_ring_slot *ring = at(pool.seen->feed_map.ring_off);
    expect_word(&ring[500].seq, 7, "feed.0", "no record of that number");
    expect_word(&ring[500].seq, 1024 * 1024 + 501, "feed.0", "beyond its gate");
    expect_word(at(pool.seen->feed_map.copying_off + 8), 1ull << 63, "feed.0", "copying bits");
    struct actor actor;
    cr_assert_eq(actor_open(&actor, &(struct actor_config){.name = "pool", .dir = pool.dir}), 0);
    struct spw_client_head *client =
        open_object(SPW_REGION_CLIENT, pool.seen->client_map.size_bytes);
    expect_word(&client->lane[0].completion_head,
                spw_load_relaxed(&client->lane[0].completion_head) + 9999, "client.0",
                "its answers from worker 0 can't be");
    actor_close(&actor);
    cr_expect_eq(fsck(false), 0, "whole again: %s", out);
    cr_expect_eq(proc_stop(&pool, SIGTERM), 0);
    proc_close(&pool);
}

Test(process_fsck, each_damage_of_a_dead_pool_is_named_and_what_a_death_leaves_is_none)
{
    cr_assert(proc_start(&pool, &(struct proc_config){.on_stop = "keep"}));
    store_some(3);
    open_feed();
    proc_signal_worker(&pool, 0, SIGSTOP); /* it doesn't end by itself with the daemon */
    proc_kill_daemon(&pool);
    proc_signal_worker(&pool, 0, SIGKILL);
    for (int i = 0; i < 1000 && (look(), report.daemon_alive); i++)
        usleep(1000);
    expect_all_kinds();
    struct spw_entry *entry = ready_entry(0);
    spw_store_relaxed(&entry->seq, spw_load_relaxed(&entry->seq) | 1);
    memset(at(pool.seen->feed_map.index_off), 0, 64ull * pool.seen->geometry.index_buckets);
    look();
    cr_expect_eq(report.damages, 0, "%s", first_words());
    cr_expect(found("feed.0", "the index doesn't lead to 2 live chunks"), "%s", first_words());
    cr_expect_eq(fsck(false), 3, "%s", out);
    spw_store_relaxed(&entry->seq, spw_load_relaxed(&entry->seq) + 1);
    expect_word(&entry->chunk_bytes, 77,
                (snprintf(out, sizeof out, "feed.0 slot %u", slot_of(entry)), out), "bytes");
    spw_store_relaxed(&entry->chunk_bytes, 77);
    cr_expect_eq(fsck(false), 6, "%s", out);
    cr_expect(strstr(out, "damage: feed.0 slot"), "%s", out);
    proc_close(&pool);
}

/* What a dead pool's client and daemon wrote, and what can't be of a shard as a whole. */
Test(process_fsck, damage_to_ctl_to_a_client_and_to_a_shard_as_a_whole_is_named)
{
    cr_assert(proc_start(&pool, &(struct proc_config){.on_stop = "keep", .capacity = 8}));
    store_some(8);
    cr_expect_eq(kill(pool.daemon, SIGTERM), 0);
    cr_expect_eq(support_wait(pool.daemon, PROC_LIMIT_MS), 0);
    pool.daemon = 0;
    open_feed();
    struct spw_ctl *ctl = open_object(SPW_REGION_CTL, sizeof *ctl);
    struct spw_client_view client;
    spw_client_view_init(&client, open_object(SPW_REGION_CLIENT, pool.seen->client_map.size_bytes),
                         &pool.seen->geometry);
    look();
    cr_assert_eq(report.damages, 0, "%s", first_words());
    expect_word(&ctl->space[0].rank_workers[1], 2, "ctl space 0", "workers that there aren't");
    expect_word(&ctl->space[5].ready, 2, "ctl space 5", "neither ready nor not");
    expect_word(client.pin, 1ull << 63, "client.0", "pin bits");
    expect_word(client.awaited, 1ull << 63, "client.0", "awaited bits");
    uint32_t was = spw_load_relaxed(&ctl->phase);
    spw_store_relaxed(&ctl->phase, 77);
    expect_damage("phase", "ctl", "the pool's phase is 77");
    spw_store_relaxed(&ctl->phase, was);
    was = spw_load_relaxed(&ctl->worker[0].phase);
    spw_store_relaxed(&ctl->worker[0].phase, 78);
    expect_damage("phase", "ctl", "worker 0's phase is 78");
    spw_store_relaxed(&ctl->worker[0].phase, was);
    ctl->geometry.capacity_chunks = 7;
    expect_damage("capacity", "feed.0", "8 chunks are resident, more than the capacity of 7");
    ctl->geometry.capacity_chunks = 8;
    /* one chunk twice: the index leads to the other one only */
    struct spw_entry *first = ready_entry(0), *second = ready_entry(1);
    struct spw_entry_key *keys = at(pool.seen->feed_map.key_off);
    struct spw_entry_key key = keys[slot_of(second)];
    const uint64_t digest[2] = {spw_load_relaxed(&second->digest[0]),
                                spw_load_relaxed(&second->digest[1])};
    for (int i = 0; i < 2; i++)
        spw_store_relaxed(&second->digest[i], spw_load_relaxed(&first->digest[i]));
    keys[slot_of(second)] = keys[slot_of(first)];
    char where[40];
    snprintf(where, sizeof where, "feed.0 slot %u", slot_of(second));
    expect_damage("twin", where, "has the same key");
    for (int i = 0; i < 2; i++)
        spw_store_relaxed(&second->digest[i], digest[i]);
    keys[slot_of(second)] = key;
    look();
    cr_expect_eq(report.damages, 0, "whole again: %s", first_words());
    proc_close(&pool);
}

Test(process_fsck, a_shard_whose_worker_stands_still_is_not_judged)
{
    cr_assert(proc_start(&pool, &(struct proc_config){0}));
    store_some(2);
    open_feed();
    proc_signal_worker(&pool, 0, SIGSTOP);
    look();
    cr_expect_eq(report.damages + report.notes, 0, "nothing looks wrong: %s", first_words());
    struct spw_entry *entry = ready_entry(0);
    uint64_t seq = spw_load_relaxed(&entry->seq);
    spw_store_relaxed(&entry->seq, seq | 1); /* as if it had been stopped in a change */
    look();
    cr_expect_eq(report.damages, 0, "%s", first_words());
    cr_expect(found("feed.0", "stands still"), "%s", first_words());
    spw_store_relaxed(&entry->seq, seq);
    proc_signal_worker(&pool, 0, SIGCONT);
    cr_expect_eq(proc_stop(&pool, SIGTERM), 0);
    proc_close(&pool);
}

Test(process_fsck, missing_and_cut_objects_and_damaged_headers_are_named)
{
    char name[SPW_PATH_BYTES];
    cr_assert(proc_start(&pool, &(struct proc_config){.on_stop = "keep"}));
    cr_expect_eq(kill(pool.daemon, SIGTERM), 0);
    cr_expect_eq(support_wait(pool.daemon, PROC_LIMIT_MS), 0);
    pool.daemon = 0;
    spw_region_name(&pool.seen->path, SPW_REGION_CLIENT, 3, name);
    unlink(name);
    spw_region_name(&pool.seen->path, SPW_REGION_KV, 2, name);
    cr_assert_eq(truncate(name, 4096), 0);
    spw_region_name(&pool.seen->path, SPW_REGION_DATA, 0, name);
    int fd = open(name, O_RDWR | O_CLOEXEC);
    cr_assert(fd >= 0 && pwrite(fd, "x", 1, offsetof(struct spw_region_header, pool_id)) == 1);
    close(fd);
    look();
    cr_expect_eq(report.damages, 3, "%s", first_words());
    cr_expect(found("client.3", "no such object"));
    cr_expect(found("kv.2", "size in bytes"));
    cr_expect(found("data.0", "another pool"));
    spw_region_name(&pool.seen->path, SPW_REGION_CTL, 0, name);
    cr_assert_eq(truncate(name, 100), 0);
    look();
    cr_expect(found("ctl", "not ready"), "%s", first_words());
    cr_expect_eq(report.damages, 0);
    proc_close(&pool);
}

Test(process_fsck, any_bytes_end_in_a_report)
{
    uint64_t seed = 1;
    cr_assert(proc_start(&pool, &(struct proc_config){.on_stop = "keep"}));
    store_some(40);
    cr_expect_eq(kill(pool.daemon, SIGTERM), 0);
    cr_expect_eq(support_wait(pool.daemon, PROC_LIMIT_MS), 0);
    pool.daemon = 0;
    open_feed();
    uint64_t bytes = pool.seen->feed_map.size_bytes;
    uint8_t *whole = malloc(bytes);
    memcpy(whole, feed, bytes);
    for (uint32_t i = 0; i < 500; i++) {
        for (uint32_t n = 0; n < 8; n++) {
            seed = seed * 6364136223846793005ull + 1442695040888963407ull;
            uint64_t where = 128 + (seed >> 20) % (bytes - 192);
            for (uint32_t b = 0; b < 64; b++)
                ((uint8_t *)feed)[where + b] = (uint8_t)(seed >> (b % 8 * 8)) ^ (uint8_t)b;
        }
        look();
        if (i % 4 == 3)
            memcpy((uint8_t *)feed + 128, whole + 128, bytes - 128);
    }
    cr_expect_gt(report.damages, 0);
    free(whole);
    proc_close(&pool);
}
