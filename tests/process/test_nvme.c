/* The tier below on real files under real processes: chunks go down, come up with their bytes, over
 * restarts of everything, over deaths in the middle, and without anybody noticing when the directory
 * goes away. */
#include "tests/process/actor.h"
#include "tests/process/proc.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shm/crash_point.h"
#include "tier/counters.h"
#include "tier/layout.h"
#include "tier/nvme.h"

TestSuite(process_nvme, .timeout = 60);

#define CAPACITY 16u
#define KEYS     48u

static struct proc_pool pool;
static struct actor actor;
static char below[SUPPORT_PATH_BYTES], out[8192];

static struct proc_config config_of(uint32_t workers)
{
    struct proc_config config = {.workers = workers,
                                 .capacity = CAPACITY,
                                 .chunk_bytes = 4096,
                                 .on_stop = "keep",
                                 .listen = true};
    const char *more[] = {"--nvme-dir",           below, "--nvme-bytes",        "8MiB",
                          "--nvme-promote-share", "100", "--nvme-promote-hold", "300ms",
                          "--io-quarantine",      "1s"};
    memcpy(config.more, more, sizeof more);
    return config;
}

static void start(uint32_t workers)
{
    struct proc_config config;
    cr_assert_eq(support_shm_dir(below), 0);
    config = config_of(workers);
    cr_assert(proc_start(&pool, &config));
}

static void meet(void)
{
    struct actor_config who = {.name = "pool", .dir = pool.dir, .fingerprint = "model"};
    cr_assert_eq(actor_open(&actor, &who), 0, "%s", actor.text);
}

static bool all_below(void *ctx)
{
    const uint64_t *chunks = ctx;
    return spw_load_relaxed(&pool.seen->feed[0]->tier[SPW_TIER_NVME].entries) >= *chunks;
}

static bool is_up(void *ctx)
{
    uint64_t state = spw_load_relaxed(&pool.seen->feed[0]->tier[SPW_TIER_NVME].state);
    (void)ctx;
    return state == SPW_TIER_UP || state == SPW_TIER_FULL;
}

static bool is_down(void *ctx)
{
    (void)ctx;
    return spw_load_relaxed(&pool.seen->feed[0]->tier[SPW_TIER_NVME].state) == SPW_TIER_DOWN;
}

static void await_entries(uint64_t chunks)
{
    cr_assert(proc_eventually(all_below, &chunks, 10000), "%lu of %lu",
              (unsigned long)spw_load_relaxed(&pool.seen->feed[0]->tier[SPW_TIER_NVME].entries),
              (unsigned long)chunks);
}

/* No store evicts what is still to be written. */
static void store_slowly(uint64_t first, uint64_t count)
{
    for (uint64_t key = first; key < first + count; key++) {
        cr_assert_eq(actor_store(&actor, key, 1), 1, "key %lu", (unsigned long)key);
        cr_assert(proc_eventually(proc_settled_below, &pool, 10000), "key %lu", (unsigned long)key);
    }
}

/* Load one key however long it takes to come up: 1, 0 = a miss, or a negative errno. */
static int fetch(uint64_t key)
{
    uint64_t until = proc_now_ms() + 10000;
    int got;
    do {
        got = actor_load(&actor, key, 1);
        if (got == -EAGAIN)
            usleep(500);
    } while (got == -EAGAIN && proc_now_ms() < until);
    return got;
}

static uint32_t fetch_all(uint64_t first, uint64_t count)
{
    uint32_t hits = 0;
    for (uint64_t key = first; key < first + count; key++) {
        int got = fetch(key);
        cr_assert_geq(got, 0, "key %lu: %d", (unsigned long)key, got);
        hits += (uint32_t)got;
    }
    return hits;
}

static void finish(void)
{
    actor_close(&actor);
    cr_expect_eq(proc_stop(&pool, SIGTERM), 0);
    proc_close(&pool);
}

Test(process_nvme, what_was_evicted_comes_back_with_its_bytes)
{
    start(1);
    meet();
    cr_assert(proc_eventually(is_up, NULL, 10000));
    store_slowly(1, KEYS);
    await_entries(KEYS);
    cr_expect_eq(fetch_all(1, KEYS), KEYS);
    cr_expect_geq(proc_count(&pool, 0, SPW_WORKER_promoted), KEYS - CAPACITY);
    cr_expect_eq(proc_count(&pool, 0, SPW_WORKER_promote_failed), 0);
    cr_expect_eq(proc_count(&pool, 0, SPW_WORKER_cold_written), KEYS);
    finish();
}

static void restart(const char *more)
{
    actor_close(&actor);
    cr_assert_eq(proc_stop(&pool, SIGTERM), 0);
    pool.config.more[10] = more;
    proc_spawn(&pool);
    cr_assert_eq(proc_await(&pool), 0);
    meet();
}

Test(process_nvme, all_is_found_again_after_a_warm_and_a_cold_start)
{
    start(1);
    meet();
    cr_assert(proc_eventually(is_up, NULL, 10000));
    store_slowly(1, KEYS);
    await_entries(KEYS);
    restart(NULL);
    await_entries(KEYS);
    usleep(300000);
    cr_expect_eq(fetch_all(1, KEYS), KEYS);
    restart("--cold");
    await_entries(KEYS);
    cr_expect(proc_said(&pool, "worker 0: 48 chunks found below, "));
    usleep(300000); /* the space was opened just now: what is below is taken for it */
    cr_expect_eq(fetch_all(1, KEYS), KEYS);
    finish();
}

Test(process_nvme, a_start_that_lists_fewer_leaves_the_others_to_the_next)
{
    start(1);
    meet();
    cr_assert(proc_eventually(is_up, NULL, 10000));
    store_slowly(1, KEYS);
    await_entries(KEYS);
    restart("--nvme-chunks=16");
    cr_assert(proc_eventually(is_up, NULL, 10000));
    await_entries(16);
    cr_expect_eq(proc_count(&pool, 0, SPW_WORKER_cold_unlisted), KEYS - 16);
    cr_expect_eq(proc_spillway(&pool, "ls", false, out, sizeof out), 0);
    cr_expect(strstr(out, "until their room is needed"), "%s", out);
    restart(NULL);
    await_entries(KEYS);
    usleep(300000);
    cr_expect_eq(fetch_all(1, KEYS), KEYS);
    finish();
}

Test(process_nvme, what_was_reset_stays_away_after_the_death_of_all_and_a_cold_start)
{
    const char *reset[] = {SPW_PROC_SPILLWAY, "reset",   "--pool", "pool", "--shm-dir",
                           pool.dir,          "--space", "model",  NULL};
    start(1);
    meet();
    cr_assert(proc_eventually(is_up, NULL, 10000));
    store_slowly(1, KEYS);
    await_entries(KEYS);
    cr_expect_eq(proc_run(reset, out, sizeof out, PROC_LIMIT_MS), 0, "%s", out);
    proc_kill_all(&pool);
    actor_close(&actor);
    pool.config.more[10] = "--cold";
    proc_spawn(&pool);
    cr_assert_eq(proc_await(&pool), 0);
    meet();
    cr_assert(proc_eventually(is_up, NULL, 10000));
    usleep(300000);
    cr_expect_eq(fetch_all(1, KEYS), 0);
    cr_expect_eq(actor_store(&actor, 1, 1), 1, "stored anew");
    await_entries(1);
    finish();
}

/* Its shards start with a pool that knows no space. */
static void start_anew(void)
{
    const char *rm[] = {SPW_PROC_SPILLWAY, "rm", "--shm-dir", pool.dir, "pool", NULL};
    cr_assert_eq(proc_stop(&pool, SIGTERM), 0);
    cr_assert_eq(proc_run(rm, out, sizeof out, PROC_LIMIT_MS), 0, "%s", out);
    proc_spawn(&pool);
    cr_assert_eq(proc_await(&pool), 0);
}

Test(process_nvme, a_reset_of_all_reaches_spaces_that_nobody_has_opened_yet)
{
    const char *reset[] = {SPW_PROC_SPILLWAY, "reset",  "--pool", "pool",
                           "--shm-dir",       pool.dir, "--all",  NULL};
    start(1);
    meet();
    cr_assert(proc_eventually(is_up, NULL, 10000));
    store_slowly(1, KEYS);
    await_entries(KEYS);
    actor_close(&actor);
    start_anew();
    await_entries(KEYS);
    cr_expect_eq(proc_run(reset, out, sizeof out, PROC_LIMIT_MS), 0, "%s", out);
    cr_expect(strstr(out, "spaces that are not open: reset on 1 worker, 48 chunks below"), "%s",
              out);
    proc_kill_all(&pool);
    pool.config.more[10] = "--cold";
    proc_spawn(&pool);
    cr_assert_eq(proc_await(&pool), 0);
    meet();
    cr_assert(proc_eventually(is_up, NULL, 10000));
    usleep(300000);
    cr_expect_eq(fetch_all(1, KEYS), 0);
    cr_expect_eq(actor_store(&actor, 1, 1), 1, "stored anew");
    await_entries(1);
    finish();
}

Test(process_nvme, shards_of_workers_that_are_no_more_are_told)
{
    start(2);
    meet();
    cr_assert(proc_eventually(is_up, NULL, 10000));
    store_slowly(1, KEYS);
    await_entries(KEYS);
    cr_expect(!strstr(pool.words, "of workers that this"), "%s", pool.words);
    char from[SUPPORT_PATH_BYTES + 16], to[SUPPORT_PATH_BYTES + 16];
    snprintf(from, sizeof from, "%s/shard-0", below);
    snprintf(to, sizeof to, "%s/shard-7", below);
    actor_close(&actor);
    cr_expect_eq(proc_stop(&pool, SIGTERM), 0);
    cr_assert_eq(rename(from, to), 0);
    proc_spawn(&pool);
    cr_assert_eq(proc_await(&pool), 0);
    cr_expect(proc_said(&pool, "1 shard in ") &&
                  proc_said(&pool, "remove shard-2 and up there, or start with as many --workers"),
              "%s", pool.words);
    cr_expect_eq(proc_stop(&pool, SIGTERM), 0);
    proc_close(&pool);
}

Test(process_nvme, a_second_daemon_on_the_directory_is_refused)
{
    struct proc_pool other;
    start(1);
    struct proc_config config = config_of(1);
    config.name = "other";
    proc_open(&other, &config);
    proc_spawn(&other);
    cr_expect_eq(proc_await(&other), 1001);
    cr_expect(proc_said(&other, below), "names the directory");
    proc_close(&other);
    cr_expect_eq(proc_stop(&pool, SIGTERM), 0);
    proc_close(&pool);
}

static bool says_it_is_back(void *ctx)
{
    (void)ctx;
    return proc_said(&pool, "worker 0: the tier below is up again, ");
}

static bool is_locked(void *ctx)
{
    (void)ctx;
    return spw_nvme_held(below, true);
}

/* Our daemon's own lock is on a file that nobody finds any more. */
Test(process_nvme, a_second_daemon_is_refused_also_where_the_directory_was_made_anew)
{
    const char *check[] = {SPW_PROC_SPILLWAY, "check",  "--name",     "other",
                           "--shm-dir",       pool.dir, "--nvme-dir", below,
                           "--nvme-bytes",    "8MiB",   NULL};
    struct proc_pool other;
    start(1);
    cr_assert(proc_eventually(is_up, NULL, 10000));
    support_remove_dir(below);
    cr_assert_eq(mkdir(below, 0700), 0);
    cr_assert(proc_eventually(is_locked, NULL, 15000));
    cr_assert(proc_eventually(is_up, NULL, 10000));
    cr_expect_eq(proc_run(check, out, sizeof out, PROC_LIMIT_MS), 1, "%s", out);
    cr_expect(strstr(out, "is in use by a daemon"), "%s", out);
    struct proc_config config = config_of(1);
    config.name = "other";
    proc_open(&other, &config);
    proc_spawn(&other);
    cr_expect_eq(proc_await(&other), 1001);
    cr_expect(proc_said(&other, "in use by another daemon's worker"));
    cr_expect_eq(proc_files(&other), 0, "nothing of its pool is left");
    proc_close(&other);
    cr_expect_eq(proc_stop(&pool, SIGTERM), 0);
    proc_close(&pool);
}

Test(process_nvme, a_directory_that_goes_away_and_comes_back_is_nobodys_error) /* IO-12 */
{
    char away[SUPPORT_PATH_BYTES + 8];
    start(1);
    snprintf(away, sizeof away, "%s.away", below);
    meet();
    cr_assert(proc_eventually(is_up, NULL, 10000));
    store_slowly(1, KEYS);
    await_entries(KEYS);
    cr_assert_eq(rename(below, away), 0);
    uint64_t next = 1000;
    for (uint64_t until = proc_now_ms() + 10000; proc_now_ms() < until && !is_down(NULL);) {
        cr_assert_eq(actor_store(&actor, next, 1), 1);
        cr_assert_eq(fetch(next++), 1, "what is in memory is a hit");
        cr_assert_geq(fetch(1 + next % KEYS), 0, "a miss at worst");
    }
    cr_assert(is_down(NULL));
    cr_assert_eq(actor_store(&actor, 5000, 1), 1);
    cr_expect_eq(fetch(5000), 1);
    cr_expect(proc_said(&pool, "worker 0: the tier below is down, all there is a miss: "));
    cr_assert_eq(rename(away, below), 0);
    cr_assert(proc_eventually(is_up, NULL, 20000), "back without a restart");
    cr_expect(proc_eventually(says_it_is_back, NULL, 10000));
    uint32_t back = 0;
    for (uint64_t until = proc_now_ms() + 5000; proc_now_ms() < until && back < KEYS / 2;)
        back = fetch_all(1, KEYS);
    cr_expect_geq(back, KEYS / 2);
    finish();
}

Test(process_nvme, a_worker_that_starts_while_the_directory_is_away_serves_without_it)
{
    char away[SUPPORT_PATH_BYTES + 8];
    start(1);
    snprintf(away, sizeof away, "%s.away", below);
    cr_assert(proc_eventually(is_up, NULL, 10000));
    cr_assert_eq(rename(below, away), 0);
    uint64_t before = proc_incarnation(&pool, 0);
    proc_signal_worker(&pool, 0, SIGKILL);
    cr_assert(proc_await_successor(&pool, 0, before));
    meet();
    cr_expect_eq(actor_store(&actor, 1, 1), 1);
    cr_expect_eq(fetch(1), 1);
    cr_assert_eq(rename(away, below), 0);
    cr_expect(proc_eventually(is_up, NULL, 20000), "back without a restart");
    finish();
}

#ifdef SPW_CRASH_POINTS
static uint64_t restarts(void)
{
    return spw_load_relaxed(&pool.seen->ctl->worker[0].restarts);
}

/* The worker's successor dies at @point. */
static void arm(const char *point)
{
    char path[SUPPORT_PATH_BYTES + 24];
    uint64_t before = proc_incarnation(&pool, 0);
    snprintf(path, sizeof path, "%s/.crash.0", pool.dir);
    FILE *file = fopen(path, "w");
    cr_assert(file && fprintf(file, "%s:2", point) > 0 && fclose(file) == 0);
    proc_signal_worker(&pool, 0, SIGKILL);
    cr_assert(proc_await_successor(&pool, 0, before));
}

static void use_all(uint32_t round)
{
    const char *reset[] = {SPW_PROC_SPILLWAY, "reset",   "--pool", "pool", "--shm-dir",
                           pool.dir,          "--space", "other",  NULL};
    actor_store(&actor, 100 + round, 1);
    actor_load(&actor, 1 + round % KEYS, 1);
    if (round % 16 == 15)
        proc_run(reset, out, sizeof out, PROC_LIMIT_MS);
}

Test(process_nvme, a_worker_dead_at_any_step_leaves_what_is_right)
{
    static const char *const points[] = {"down.put_begun",  "down.put_ended", "up.slot_given",
                                         "up.read_begun",   "up.read_ended",  "up.ready",
                                         "cold.reset_begun"};
    struct actor other;
    cr_assert_eq(support_shm_dir(below), 0);
    struct proc_config config = config_of(1);
    config.more[9] = "200ms"; /* each successor waits so long */
    proc_open(&pool, &config);
    setenv("SPW_CRASH_WORKERS", pool.dir, 1);
    proc_spawn(&pool);
    cr_assert_eq(proc_await(&pool), 0);
    meet();
    struct actor_config who = {.name = "pool", .dir = pool.dir, .fingerprint = "other"};
    cr_assert_eq(actor_open(&other, &who), 0);
    cr_assert(proc_eventually(is_up, NULL, 10000));
    store_slowly(1, KEYS);
    await_entries(KEYS);
    uint32_t hits = 0;
    for (size_t i = 0; i < sizeof points / sizeof *points; i++) {
        arm(points[i]);
        uint64_t before = restarts(), until = proc_now_ms() + 10000;
        for (uint32_t round = 0; restarts() == before && proc_now_ms() < until; round++)
            use_all(round);
        cr_expect_gt(restarts(), before, "nobody died at %s", points[i]);
        cr_assert(proc_eventually(is_up, NULL, 10000));
        hits += fetch_all(1, 16); /* misses, or their bytes */
    }
    cr_expect_gt(hits, 0, "the deaths cost all there was");
    cr_expect_eq(proc_count(&pool, 0, SPW_WORKER_cold_corrupt), 0);
    actor_close(&other);
    finish();
}
#endif

Test(process_nvme, deaths_in_the_middle_of_reads_and_writes_give_no_wrong_bytes)
{
    start(1);
    meet();
    cr_assert(proc_eventually(is_up, NULL, 10000));
    uint32_t hits = 0;
    for (uint32_t round = 0; round < 6; round++) {
        uint64_t before = proc_incarnation(&pool, 0), until = proc_now_ms() + 10 + round * 7;
        for (uint64_t key = 1; proc_now_ms() < until; key++) {
            int stored = actor_store(&actor, 1 + key * 7 % KEYS, 1);
            int got = actor_load(&actor, 1 + key * 5 % KEYS, 1);
            cr_assert(stored >= 0 && (got >= 0 || got == -EAGAIN), "%d %d", stored, got);
        }
        proc_signal_worker(&pool, 0, SIGKILL);
        cr_assert(proc_await_successor(&pool, 0, before));
        hits += fetch_all(1, 8); /* misses, or their bytes */
    }
    cr_expect_gt(hits, 0, "the deaths cost all there was");
    cr_expect_eq(proc_count(&pool, 0, SPW_WORKER_cold_corrupt), 0);
    finish();
}
