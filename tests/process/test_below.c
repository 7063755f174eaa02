/* What clients see of chunks that only the tier below has, with real workers: they are on their way at
 * the first lookup and read once, one that can't be read is a miss for all, what is nowhere is a miss at
 * once, and storage that fails is nobody's error. */
#include "tests/process/actor.h"
#include "tests/process/proc.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tier/counters.h"
#include "tier/layout.h"

TestSuite(process_below, .timeout = 60);

#define CAPACITY 16u
#define CLIENTS  4u
#define A        1u /* chunks A, B, C of one prompt */
#define B        2u
#define NOWHERE  9000u
#define CHUNK    4096u

static struct proc_pool pool;
static struct actor actor[CLIENTS];
static char below[SUPPORT_PATH_BYTES];

static uint64_t count(enum spw_worker_counter counter)
{
    return proc_count(&pool, 0, counter);
}

static uint64_t state_below(void)
{
    return spw_load_relaxed(&pool.seen->feed[0]->tier[SPW_TIER_NVME].state);
}

static bool is_up(void *ctx)
{
    (void)ctx;
    return state_below() == SPW_TIER_UP;
}

static bool is_down(void *ctx)
{
    (void)ctx;
    return state_below() == SPW_TIER_DOWN;
}

struct goal {
    enum spw_worker_counter counter;
    uint64_t least;
};

static bool has_counted(void *ctx)
{
    const struct goal *goal = ctx;
    return count(goal->counter) >= goal->least;
}

static void await_count(enum spw_worker_counter counter, uint64_t least)
{
    struct goal goal = {counter, least};
    cr_assert(proc_eventually(has_counted, &goal, 15000), "%s: %lu of %lu",
              spw_worker_counter_name(counter), (unsigned long)count(counter),
              (unsigned long)least);
}

static void start_pool(void)
{
    struct proc_config config = {.capacity = CAPACITY, .chunk_bytes = CHUNK, .on_stop = "remove"};
    cr_assert_eq(support_shm_dir(below), 0);
    const char *more[] = {"--nvme-dir",           below, "--nvme-bytes",        "8MiB",
                          "--nvme-promote-share", "100", "--nvme-promote-hold", "300ms"};
    memcpy(config.more, more, sizeof more);
    cr_assert(proc_start(&pool, &config));
    cr_assert(proc_eventually(is_up, NULL, 10000));
}

static void start(void)
{
    start_pool();
    for (uint32_t i = 0; i < CLIENTS; i++) {
        struct actor_config who = {.name = "pool", .dir = pool.dir};
        cr_assert_eq(actor_open(&actor[i], &who), 0, "%s", actor[i].text);
    }
}

static void finish(void)
{
    for (uint32_t i = 0; i < CLIENTS; i++)
        actor_close(&actor[i]);
    cr_expect_eq(proc_stop(&pool, SIGTERM), 0);
    proc_close(&pool);
}

/* ---- what is where --------------------------------------------------------------------------- */

/* Store keys one by one, and let each go down. */
static void store(uint64_t first, uint32_t chunks)
{
    for (uint64_t key = first; key < first + chunks; key++) {
        uint64_t written = count(SPW_WORKER_cold_written);
        cr_assert_eq(actor_store(&actor[0], key, 1), 1, "key %lu", (unsigned long)key);
        await_count(SPW_WORKER_cold_written, written + 1);
    }
}

/* A client's verdict on @key. */
static uint8_t verdict(struct actor *client, uint64_t key)
{
    uint8_t said = UINT8_MAX;
    struct spw_request *request = actor_request(client, key, 1, 0);
    cr_assert_not_null(request);
    cr_assert_geq(spw_step_begin(client->client), 0);
    cr_expect_eq(spw_request_probe(request, 0, 0, 1, &said), 0);
    cr_assert_eq(spw_step_end(client->client), 0);
    spw_request_finish(request);
    return said;
}

/* Memory forgets what was stored before, the tier below doesn't. */
static void forget(uint64_t keys)
{
    static uint64_t other = 1000;
    store(other, 2 * CAPACITY);
    other += 2 * CAPACITY;
    for (uint64_t key = A; key < A + keys; key++)
        cr_assert_eq(verdict(&actor[0], key), SPW_PENDING, "only below: key %lu",
                     (unsigned long)key);
}

/* Load a prompt however long that takes: chunks that were loaded and had their bytes. */
static int fetch(struct actor *client, uint64_t first, uint32_t chunks)
{
    uint64_t until = proc_now_ms() + 10000;
    int got;
    while ((got = actor_load(client, first, chunks)) == -EAGAIN && proc_now_ms() < until)
        usleep(500);
    return got;
}

static bool is_a_miss(void *client)
{
    return verdict(client, A) == SPW_MISS;
}

static struct spw_decision decide(struct actor *client, uint64_t first, uint32_t chunks)
{
    struct spw_decision decision;
    struct spw_request *request = actor_request(client, first, chunks, 0);
    cr_assert_not_null(request);
    cr_assert_eq(actor_decide(client, request, &decision), 0);
    spw_request_finish(request);
    return decision;
}

static uint64_t waits_of(struct actor *client)
{
    uint64_t all = 0;
    for (uint32_t outcome = 0; outcome < SPW_WAIT_OUTCOMES; outcome++) {
        struct spw_wait_histogram waits;
        cr_assert_eq(spw_waits(client->client, outcome, &waits), 0);
        all += waits.count;
    }
    return all;
}

/* ---- LK-3 ------------------------------------------------------------------------------------ */

/* Turn one byte of the @key's only copy below. */
static bool spoil_in(const char *path, const uint8_t *want)
{
    static uint8_t got[CHUNK];
    struct stat st;
    bool found = false;
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0)
        st.st_size = 0;
    for (off_t at = 0; !found && at + (off_t)CHUNK <= st.st_size; at += CHUNK) {
        found = pread(fd, got, CHUNK, at) == (ssize_t)CHUNK && memcmp(got, want, CHUNK) == 0;
        got[100] ^= 1;
        found = found && pwrite(fd, got, CHUNK, at) == (ssize_t)CHUNK && fsync(fd) == 0;
    }
    close(fd);
    return found;
}

static void spoil(uint64_t key)
{
    char shard[SUPPORT_PATH_BYTES + 16], path[SUPPORT_PATH_BYTES + 300];
    bool found = false;
    snprintf(shard, sizeof shard, "%s/shard-0", below);
    DIR *dir = opendir(shard);
    cr_assert_not_null(dir);
    actor_fill(&actor[0], 0, key, 0);
    for (struct dirent *entry; !found && (entry = readdir(dir));) {
        snprintf(path, sizeof path, "%s/%s", shard, entry->d_name);
        found = strncmp(entry->d_name, "segment-", 8) == 0 && spoil_in(path, actor[0].kv);
    }
    closedir(dir);
    cr_assert(found, "key %lu is nowhere below", (unsigned long)key);
}

static void lay_prompt_with_a_bad_chunk(void)
{
    start();
    store(A, 3);
    forget(3);
    spoil(B);
}

Test(process_below, LK_3_a_chunk_that_cant_be_read_is_read_once_and_a_miss_for_all)
{
    lay_prompt_with_a_bad_chunk();
    cr_expect_eq(fetch(&actor[0], A, 3), 1, "A, and no more");
    cr_expect_eq(count(SPW_WORKER_promote_failed), 1);
    cr_expect_eq(count(SPW_WORKER_cold_corrupt), 1);
    for (uint32_t round = 0; round < 20; round++) {
        struct actor *client = &actor[round % CLIENTS];
        cr_expect_eq(verdict(client, B), SPW_MISS, "client %u", round % CLIENTS);
        cr_expect_eq(fetch(client, A, 3), 1);
    }
    cr_expect_eq(count(SPW_WORKER_promote_failed), 1, "B was read once");
    cr_expect_eq(count(SPW_WORKER_promoted), 2, "A and C");
    cr_expect_eq(count(SPW_WORKER_promote_asked), 3);
    finish();
}

Test(process_below, LK_3_all_who_wait_for_it_go_on_with_what_is_before_it)
{
    struct spw_request *request[CLIENTS];
    struct spw_decision decision;
    lay_prompt_with_a_bad_chunk();
    proc_signal_worker(&pool, 0, SIGSTOP); /* so that nobody is served before all wait */
    for (uint32_t i = 0; i < CLIENTS; i++) {
        request[i] = actor_request(&actor[i], A, 3, 0);
        cr_assert_eq(actor_decide(&actor[i], request[i], &decision), 0);
        cr_expect_eq(decision.action, SPW_ACTION_DEFER);
    }
    proc_signal_worker(&pool, 0, SIGCONT);
    for (uint32_t i = 0; i < CLIENTS; i++) {
        uint64_t until = proc_now_ms() + 10000;
        struct spw_completion none;
        do {
            cr_assert_eq(spw_completions(actor[i].client, &none, 1), 0);
            cr_assert_eq(actor_decide(&actor[i], request[i], &decision), 0);
            usleep(500);
        } while (decision.action == SPW_ACTION_DEFER && proc_now_ms() < until);
        cr_expect_eq(decision.action, SPW_ACTION_LOAD, "client %u", i);
        cr_expect_eq(decision.hit_tokens, ACTOR_TOKENS);
        spw_request_finish(request[i]);
        cr_expect_eq(fetch(&actor[i], A, 3), 1);
    }
    cr_expect_eq(count(SPW_WORKER_promote_failed), 1);
    cr_expect_eq(count(SPW_WORKER_promoted), 2);
    finish();
}

Test(process_below, LK_3_stored_again_it_is_a_hit_and_comes_up_whole)
{
    lay_prompt_with_a_bad_chunk();
    cr_assert_eq(fetch(&actor[0], A, 3), 1);
    cr_assert_eq(verdict(&actor[0], B), SPW_MISS);
    store(B, 1);
    for (uint32_t i = 0; i < CLIENTS; i++) {
        cr_expect_eq(verdict(&actor[i], B), SPW_HIT);
        cr_expect_eq(fetch(&actor[i], A, 3), 3);
    }
    forget(3);
    cr_expect_eq(fetch(&actor[1], A, 3), 3, "from below, with their bytes");
    cr_expect_eq(count(SPW_WORKER_promote_failed), 1);
    cr_expect_eq(count(SPW_WORKER_cold_corrupt), 1);
    finish();
}

/* ---- LK-5 ------------------------------------------------------------------------------------ */

Test(process_below, LK_5_a_key_never_seen_is_a_miss_at_the_first_lookup)
{
    start();
    store(A, 3);
    forget(3);
    for (uint32_t i = 0; i < CLIENTS; i++) {
        cr_expect_eq(verdict(&actor[i], NOWHERE + i), SPW_MISS);
        struct spw_decision decision = decide(&actor[i], NOWHERE + i, 3);
        cr_expect_eq(decision.action, SPW_ACTION_MISS);
        cr_expect_eq(decision.waited_ns, 0);
        cr_expect_eq(actor_counter(&actor[i], "promotes"), 0);
        cr_expect_eq(waits_of(&actor[i]), 0);
    }
    cr_expect_eq(count(SPW_WORKER_promote_asked), 0, "the tier wasn't asked");
    finish();
}

Test(process_below, LK_5_what_was_never_seen_behind_a_prefix_below_is_not_waited_for)
{
    start();
    store(A, 3);
    forget(3);
    cr_expect_eq(decide(&actor[0], A, 8).action, SPW_ACTION_DEFER);
    cr_expect_eq(fetch(&actor[0], A, 8), 3);
    cr_expect_eq(count(SPW_WORKER_promote_asked),
                 count(SPW_WORKER_promoted) + count(SPW_WORKER_promote_joined));
    cr_expect_eq(count(SPW_WORKER_promoted), 3);
    cr_expect_eq(actor_counter(&actor[0], "defer_retry"), 0);
    finish();
}

Test(process_below, LK_5_neither_waits_for_a_tier_that_is_out_of_service)
{
    char away[SUPPORT_PATH_BYTES + 8];
    start();
    store(A, 3);
    forget(3);
    snprintf(away, sizeof away, "%s.away", below);
    cr_assert_eq(rename(below, away), 0);
    cr_assert(proc_eventually(is_down, NULL, 15000));
    for (uint32_t i = 0; i < CLIENTS; i++) {
        /* The news of what went away comes a moment after the state. */
        cr_assert(proc_eventually(is_a_miss, &actor[i], 5000));
        cr_expect_eq(decide(&actor[i], A, 3).action, SPW_ACTION_MISS);
        cr_expect_eq(decide(&actor[i], NOWHERE, 3).action, SPW_ACTION_MISS);
        cr_expect_eq(waits_of(&actor[i]), 0);
    }
    cr_expect_eq(count(SPW_WORKER_promote_asked), 0);
    cr_assert_eq(rename(away, below), 0);
    await_count(SPW_WORKER_cold_found, 3 + 2 * CAPACITY);
    cr_expect_eq(fetch(&actor[0], A, 3), 3, "back, with their bytes");
    finish();
}

/* ---- LK-12 ----------------------------------------------------------------------------------- */

Test(process_below, LK_12_a_chunk_that_is_only_below_is_pending_at_the_first_lookup)
{
    start();
    store(A, 1);
    forget(1);
    struct spw_decision decision = decide(&actor[0], A, 1);
    cr_expect_eq(decision.action, SPW_ACTION_DEFER);
    cr_expect_eq(decision.reason, SPW_REASON_PENDING, "not as what isn't known");
    await_count(SPW_WORKER_promoted, 1);
    cr_expect_eq(count(SPW_WORKER_promote_asked), 1, "one read");
    cr_expect_eq(fetch(&actor[0], A, 1), 1);
    cr_expect_eq(count(SPW_WORKER_promoted), 1);
    cr_expect_eq(actor_counter(&actor[0], "defer_retry"), 0);
    finish();
}

Test(process_below, LK_12_however_many_look_up_one_read_is_in_flight)
{
    struct spw_decision decision;
    struct spw_request *request[CLIENTS];
    start();
    store(A, 1);
    forget(1);
    proc_signal_worker(&pool, 0, SIGSTOP);
    for (uint32_t i = 0; i < CLIENTS; i++) {
        request[i] = actor_request(&actor[i], A, 1, 0);
        cr_assert_eq(actor_decide(&actor[i], request[i], &decision), 0);
        cr_expect_eq(decision.action, SPW_ACTION_DEFER);
        cr_expect_eq(decision.reason, SPW_REASON_PENDING);
        cr_expect_eq(verdict(&actor[i], A), SPW_PENDING);
    }
    proc_signal_worker(&pool, 0, SIGCONT);
    await_count(SPW_WORKER_promote_asked, CLIENTS);
    await_count(SPW_WORKER_promoted, 1);
    for (uint32_t i = 0; i < CLIENTS; i++) {
        cr_expect_eq(fetch(&actor[i], A, 1), 1);
        spw_request_finish(request[i]);
    }
    cr_expect_eq(count(SPW_WORKER_promoted), 1);
    cr_expect_eq(count(SPW_WORKER_promote_joined), CLIENTS - 1);
    cr_expect_eq(count(SPW_WORKER_promote_failed), 0);
    finish();
}

/* ---- IO-12 ----------------------------------------------------------------------------------- */

static struct {
    pid_t pid;
    int fd;
} peer[CLIENTS];
static char lost[SUPPORT_PATH_BYTES + 16], away[SUPPORT_PATH_BYTES + 24];

/* Clients that store and load until they are told to end; any error ends them at once. */
static void start_peers(void)
{
    for (uint32_t i = 0; i < CLIENTS; i++) {
        char seed[8], line[64];
        const char *const args[] = {"steady", seed, "48", NULL};
        snprintf(seed, sizeof seed, "%u", i);
        peer[i].pid = proc_peer(&pool, &peer[i].fd, args);
        cr_assert_gt(peer[i].pid, 0);
        cr_assert_gt(support_read_line(peer[i].fd, line, sizeof line, 10000), 0);
        cr_assert_eq(strncmp(line, "ready ", 6), 0, "%s", line);
    }
}

static void end_peers(void)
{
    for (uint32_t i = 0; i < CLIENTS; i++) {
        char line[128] = "";
        kill(peer[i].pid, SIGUSR1);
        support_read_line(peer[i].fd, line, sizeof line, 30000);
        cr_expect_eq(support_wait(peer[i].pid, 10000), 0, "client %u: %s", i, line);
        close(peer[i].fd);
    }
}

static void await_more(enum spw_worker_counter counter, uint64_t more)
{
    await_count(counter, count(counter) + more);
}

/* Four clients are busy as @name, below or in the directory below, goes; a file may take its place. */
static void lose(const char *name, bool to_a_file)
{
    start_pool();
    start_peers();
    await_more(SPW_WORKER_promoted, 50);
    snprintf(lost, sizeof lost, "%s%s", below, name);
    snprintf(away, sizeof away, "%s.away", name[0] ? lost : below);
    cr_assert_eq(rename(lost, away), 0);
    if (to_a_file)
        cr_assert_eq(mknod(lost, S_IFREG | 0600, 0), 0);
    await_count(SPW_WORKER_tier_down, 1);
}

static void all_goes_on(void)
{
    await_more(SPW_WORKER_chunks_stored, 100);
    await_more(SPW_WORKER_chunks_loaded, 100);
}

static void return_and_end(void)
{
    uint64_t found = count(SPW_WORKER_cold_found);
    unlink(lost);
    cr_assert_eq(rename(away, lost), 0);
    await_count(SPW_WORKER_tier_up, 1);
    await_count(SPW_WORKER_cold_found, found + 1);
    await_more(SPW_WORKER_promoted, 50);
    all_goes_on();
    end_peers();
    cr_expect_eq(count(SPW_WORKER_cold_corrupt), 0);
    cr_expect_eq(count(SPW_WORKER_loads_failed), 0);
    cr_expect_eq(count(SPW_WORKER_stores_failed), 0);
    cr_expect_eq(proc_stop(&pool, SIGTERM), 0);
    proc_close(&pool);
}

Test(process_below, IO_12_the_directory_goes_under_four_clients_and_comes_back)
{
    lose("", false);
    all_goes_on();
    cr_expect_eq(count(SPW_WORKER_tier_up), 0);
    return_and_end();
}

Test(process_below, IO_12_a_file_stands_where_the_directory_was)
{
    lose("", true);
    all_goes_on();
    cr_expect_eq(count(SPW_WORKER_tier_up), 0);
    return_and_end();
}

Test(process_below, IO_12_a_file_stands_where_the_shards_folder_was)
{
    lose("/shard-0", true);
    all_goes_on();
    cr_expect_eq(count(SPW_WORKER_tier_up), 0);
    return_and_end();
}

Test(process_below, IO_12_a_shards_folder_that_is_gone_is_made_anew)
{
    lose("/shard-0", false);
    all_goes_on();
    await_count(SPW_WORKER_tier_up, 1);
    await_more(SPW_WORKER_cold_written, 1);
    await_more(SPW_WORKER_promoted, 50);
    end_peers();
    cr_expect_eq(count(SPW_WORKER_cold_corrupt), 0);
    cr_expect_eq(proc_stop(&pool, SIGTERM), 0);
    proc_close(&pool);
}
