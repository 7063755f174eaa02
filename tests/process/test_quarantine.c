/*
 * A worker's death does not end its transfers, for real: a process with reads from a slow disk in
 * flight (io_uring, O_DIRECT) into slots that it was filling is killed and reaped, and a successor
 * stores other chunks meanwhile. With the mark, late bytes land in quarantined slots alone and none
 * of those is used before its time is over. Without it, a late read overwrites a chunk: so much for
 * what this test can see.
 */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <liburing.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "shm/alive.h"
#include "shm/pool.h"
#include "tests/process/slow_disk.h"
#include "tests/support/env.h"
#include "tier/counters.h"
#include "tier/shard.h"

TestSuite(quarantine_io, .timeout = 60);

#define SECOND_NS 1000000000ull
#define CAPACITY  16u
#define SLOTS     20u
#define READY     4u
#define FILLING   8u
#define CHUNK     (256u * 1024)
#define RATE      (FILLING * CHUNK / 3) /* all reads take three seconds */
#define TIME_NS   (6 * SECOND_NS)
#define LATE      0xa5 /* bytes of the file   */
#define UNTOUCHED 0x11 /* of slots in filling */

static struct slow_disk disk;
static struct spw_pool daemon_side, worker_side;

/* ---- a pool and its shard -------------------------------------------------------------------- */

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * SECOND_NS + (uint64_t)now.tv_nsec;
}

static int make_pool(const char *dir)
{
    struct spw_pool_config config = {.mode = 0600, .gid = -1};
    config.geometry = (struct spw_geometry){.workers = 1,
                                            .clients = 2,
                                            .capacity_chunks = CAPACITY,
                                            .slots = SLOTS,
                                            .slot_bytes = CHUNK,
                                            .update_records = 1024,
                                            .gate_records = 128,
                                            .command_slots = 8,
                                            .completion_slots = 8,
                                            .index_buckets = spw_table_buckets(SLOTS)};
    int rc = spw_pool_path_init(&config.path, dir, "quarantine", geteuid(), NULL);
    if (rc == 0)
        rc = spw_pool_create(&config, &daemon_side, NULL);
    if (rc < 0)
        return rc;
    struct spw_space_slot *space = &daemon_side.ctl->space[0];
    space->record = (struct spw_space_record){.groups = 1, .ranks = 1};
    space->record.group[0].chunk_bytes = CHUNK;
    spw_store_release(&space->ready, 1); /* [SP-1] */
    return 0;
}

static struct spw_shard *adopt(bool lingers)
{
    struct spw_shard_config config = {.pool = &worker_side,
                                      .fence_limit_ns = SECOND_NS,
                                      .now_ns = now_ns(),
                                      .io_quarantine_ns = TIME_NS,
                                      .transfers_linger = lingers};
    struct spw_shard *shard = NULL;
    if (spw_pool_attach(&daemon_side.path, SPW_ROLE_WORKER, 0, &worker_side, NULL) < 0 ||
        spw_lock_take(worker_side.lock_fd, SPW_LOCK_WORKER(0)) < 0 ||
        spw_shard_open(&config, &shard, NULL) < 0)
        return NULL;
    return shard;
}

static uint8_t *bytes_of(uint32_t slot)
{
    return worker_side.data[0] + (uint64_t)slot * CHUNK;
}

static bool reserve(struct spw_shard *shard, uint64_t n, uint32_t *out_slot)
{
    uint64_t word[2] = {n, ~n};
    struct spw_chunk_key key = {.key_bytes = sizeof word, .key = word};
    spw_chunk_digest(0, 0, word, sizeof word, key.digest);
    return spw_shard_reserve(shard, &key, 0, CHUNK, NULL, out_slot) == SPW_RESERVED;
}

/* The payload of key n is a function of n; no byte of it is that of the file. */
static uint8_t byte_of(uint64_t n)
{
    return (uint8_t)(n % 100);
}

static bool store(struct spw_shard *shard, uint64_t n, uint32_t *out_slot)
{
    if (!reserve(shard, n, out_slot))
        return false;
    memset(bytes_of(*out_slot), byte_of(n), CHUNK);
    spw_shard_ready(shard, *out_slot);
    spw_shard_flush(shard);
    return true;
}

static bool all_bytes_are(const uint8_t *bytes, uint8_t byte)
{
    return bytes[0] == byte && memcmp(bytes, bytes + 1, CHUNK - 1) == 0;
}

/* READY chunks whose bytes are not their own. */
static uint32_t wrong_chunks(const struct spw_shard *shard)
{
    uint32_t wrong = 0;
    for (uint32_t slot = 0; slot < SLOTS; slot++) {
        struct spw_entry_copy entry;
        uint64_t n;
        if (spw_shard_entry(shard, slot, &entry) < 0 || entry.state != SPW_READY)
            continue;
        memcpy(&n, entry.key, sizeof n);
        wrong += !all_bytes_are(bytes_of(slot), byte_of(n));
    }
    return wrong;
}

/* ---- the worker that dies -------------------------------------------------------------------- */

struct dying {
    bool lingers;
    int ready_fd; /* a byte when all is in flight */
};

static int begin_read(struct io_uring *uring, int fd, uint32_t slot, uint32_t i)
{
    struct io_uring_sqe *sqe = io_uring_get_sqe(uring);
    memset(bytes_of(slot), UNTOUCHED, CHUNK);
    io_uring_prep_read(sqe, fd, bytes_of(slot), CHUNK, (uint64_t)i * CHUNK);
    return io_uring_submit(uring) == 1 ? 0 : 1;
}

static int fill_until_killed(void *arg)
{
    const struct dying *dying = arg;
    struct io_uring uring;
    uint32_t slot;
    struct spw_shard *shard = adopt(dying->lingers);
    int fd = open(disk.file, O_RDONLY | O_DIRECT | O_CLOEXEC);
    if (fd < 0 || io_uring_queue_init(FILLING, &uring, 0) < 0 || slow_disk_enter(&disk) < 0)
        return SUPPORT_SKIP;
    if (!shard)
        return 1;
    for (uint64_t n = 0; n < READY; n++)
        if (!store(shard, n, &slot))
            return 1;
    for (uint32_t i = 0; i < FILLING; i++) {
        if (!reserve(shard, 1000 + i, &slot))
            return 1;
        spw_shard_copy_begin(shard, slot);
        if (begin_read(&uring, fd, slot, i))
            return 1;
    }
    spw_shard_flush(shard);
    if (write(dying->ready_fd, "r", 1) != 1)
        return 1;
    pause();
    return 1;
}

/* A pool whose worker has died with reads in flight; bits of the slots that they go to, which are
 * untouched so far but for *out_landed. 0: such a worker can't be had here. */
static uint64_t die_filling(bool lingers)
{
    int ready[2];
    char byte;
    cr_assert_eq(pipe2(ready, O_CLOEXEC), 0);
    struct dying dying = {lingers, ready[1]};
    pid_t pid = support_fork(fill_until_killed, &dying);
    cr_assert_gt(pid, 0);
    close(ready[1]);
    bool in_flight = read(ready[0], &byte, 1) == 1;
    close(ready[0]);
    if (!in_flight) {
        cr_assert_eq(support_wait(pid, 10000), SUPPORT_SKIP);
        return 0;
    }
    support_kill(pid); /* and reap: from here on its lock byte is free, its memory gone */
    const struct spw_entry *entry =
        spw_pool_feed_at(&daemon_side, 0, daemon_side.feed_map.entry_off);
    uint64_t filling = 0;
    for (uint32_t slot = 0; slot < SLOTS; slot++)
        if (SPW_PACKED_STATE(spw_load_relaxed(&entry[slot].packed)) == SPW_FILLING)
            filling |= 1ull << slot;
    cr_assert_eq(__builtin_popcountll(filling), FILLING);
    return filling;
}

static uint32_t untouched(uint64_t slots)
{
    uint32_t count = 0;
    for (uint32_t slot = 0; slot < SLOTS; slot++)
        count += slots >> slot & 1 && all_bytes_are(bytes_of(slot), UNTOUCHED);
    return count;
}

static void begin(void)
{
    static char dir[SUPPORT_PATH_BYTES];
    char why[160];
    if (!slow_disk_open(&disk, FILLING * CHUNK, LATE, RATE, why, sizeof why))
        cr_skip("%s", why);
    cr_assert_eq(support_shm_dir(dir), 0);
    cr_assert_eq(make_pool(dir), 0);
}

static void end(struct spw_shard *shard)
{
    spw_shard_close(shard);
    spw_pool_detach(&worker_side);
    spw_pool_unlink(&daemon_side, NULL);
    spw_pool_detach(&daemon_side);
    slow_disk_close(&disk);
}

static void nap(void)
{
    const struct timespec little = {.tv_nsec = 20000000};
    nanosleep(&little, NULL);
}

/* ---- the tests ------------------------------------------------------------------------------- */

Test(quarantine_io, late_reads_of_a_dead_worker_land_in_quarantined_slots_alone)
{
    begin();
    uint64_t filling = die_filling(true), used = 0, n = 2000;
    struct spw_shard *shard = filling ? adopt(false) : NULL;
    if (!filling) {
        end(shard);
        cr_skip("no reads by io_uring and O_DIRECT here");
    }
    cr_assert_not_null(shard);
    uint64_t adopted_ns = now_ns();
    uint32_t before = untouched(filling), wrong = 0, slot;
    cr_assert_geq(before, 2, "reads were still in flight after the death");
    while (now_ns() < adopted_ns + 5 * SECOND_NS) {
        spw_shard_reclaim(shard, now_ns());
        cr_assert(store(shard, ++n, &slot));
        cr_assert_not(filling >> slot & 1, "slot %u is used in its quarantine", slot);
        wrong += wrong_chunks(shard);
        nap();
    }
    cr_assert_eq(wrong, 0);
    cr_assert_eq(untouched(filling), 0, "%u reads landed after the death", before);
    struct spw_shard_stats stats;
    spw_shard_stats(shard, &stats);
    cr_assert_eq(stats.quarantined, FILLING);
    while (now_ns() < adopted_ns + TIME_NS + SECOND_NS / 2)
        nap();
    for (uint32_t i = 0; i < 3 * SLOTS; i++) { /* all slots serve again, nothing is late any more */
        spw_shard_reclaim(shard, now_ns());
        cr_assert(store(shard, ++n, &slot));
        used |= 1ull << slot;
    }
    cr_assert_eq(used & filling, filling);
    cr_assert_eq(wrong_chunks(shard), 0);
    end(shard);
}

Test(quarantine_io, without_the_mark_a_late_read_overwrites_a_chunk)
{
    begin();
    uint64_t filling = die_filling(false), n = 2000;
    struct spw_shard *shard = filling ? adopt(false) : NULL;
    if (!filling) {
        end(shard);
        cr_skip("no reads by io_uring and O_DIRECT here");
    }
    cr_assert_not_null(shard);
    uint64_t adopted_ns = now_ns();
    uint32_t wrong = 0, slot;
    for (uint32_t i = 0; i < SLOTS; i++) {
        spw_shard_reclaim(shard, now_ns());
        cr_assert(store(shard, ++n, &slot));
    }
    while (wrong == 0 && now_ns() < adopted_ns + 5 * SECOND_NS) {
        nap();
        wrong = wrong_chunks(shard);
    }
    cr_assert_geq(wrong, 1);
    while (now_ns() <
           adopted_ns + 5 * SECOND_NS) /* the memory is ours until the reads have ended */
        nap();
    end(shard);
}
