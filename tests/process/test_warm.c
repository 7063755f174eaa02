/* What a start finds of the pool before: chunks that are hits again, workers that still live, bytes
 * that make no sense. */
#include "tests/process/again.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shm/alive.h"
#include "shm/process.h"

TestSuite(process_warm, .timeout = 60);

#define CHUNKS 5

static struct actor actor;

static uint32_t spaces(void)
{
    uint32_t count = 0;
    for (uint32_t s = 0; s < SPW_SPACES_MAX; s++)
        count += spw_load_acquire(&again_pool.seen->ctl->space[s].ready) != 0;
    return count;
}

/* ---- hits again ------------------------------------------------------------------------------ */

static void fill_three_spaces(void)
{
    static const char *const models[] = {"model a", "model b", "a model of which nothing is there"};
    for (uint32_t i = 0; i < 3; i++) {
        again_open(&actor, models[i], i == 0 ? 2 : 1);
        if (i < 2)
            cr_assert_eq(actor_store(&actor, 100 * i, CHUNKS), CHUNKS);
        actor_close(&actor);
    }
    cr_assert_eq(spaces(), 3);
}

static void expect_two_spaces(const char *way)
{
    cr_expect_eq(spaces(), 2, "%s: a space that nothing is of isn't kept", way);
    cr_expect_eq(spw_load_relaxed(&again_pool.seen->ctl->space[0].rank_workers[0]), 1, "%s", way);
    cr_expect_eq(spw_load_relaxed(&again_pool.seen->ctl->space[0].rank_workers[1]), 2, "%s", way);
}

static void expect_hits(const char *way)
{
    for (uint32_t i = 0; i < 2; i++) {
        again_open(&actor, i == 0 ? "model a" : "model b", i == 0 ? 2 : 1);
        cr_expect_eq(actor_hits(&actor, 100 * i, CHUNKS), CHUNKS, "%s, space %u", way, i);
        cr_expect_eq(actor_load(&actor, 100 * i, CHUNKS), CHUNKS, "%s, space %u", way, i);
        actor_close(&actor);
    }
}

Test(process_warm, ready_chunks_are_hits_again_whatever_way_the_pool_ended)
{
    static const struct {
        const char *name;
        void (*end)(void);
    } ways[] = {{"daemon killed", again_kill_daemon},
                {"all killed", again_kill_all},
                {"stopped", again_stop}};
    again_start(&(struct proc_config){.workers = 2, .on_stop = "keep", .listen = true});
    uint32_t files = proc_files(&again_pool);
    fill_three_spaces();
    for (uint32_t round = 0; round < 6; round++) {
        uint64_t before = proc_incarnation(&again_pool, 1);
        ways[round % 3].end();
        uint64_t took = again_start_over();
        fprintf(stderr, "%s: serves again after %u ms\n", ways[round % 3].name, (unsigned)took);
        cr_expect(
            proc_said(&again_pool, "adopted 15 chunks of 2 spaces, 0 damaged entries dropped"),
            "%s", again_pool.words);
        cr_expect_eq(proc_incarnation(&again_pool, 1), before + 1);
        cr_expect_eq(proc_files(&again_pool), files);
        expect_two_spaces(ways[round % 3].name);
        expect_hits(ways[round % 3].name);
    }
    /* and new ones find their place beside the old */
    again_open(&actor, "model c", 1);
    cr_expect_eq(actor_store(&actor, 7, CHUNKS), CHUNKS);
    cr_expect_eq(actor_load(&actor, 7, CHUNKS), CHUNKS);
    cr_expect_eq(spaces(), 3);
    actor_close(&actor);
    expect_hits("beside a third");
    again_close();
}

Test(process_warm, a_client_is_told_once_and_finds_the_hits_when_it_attaches_again)
{
    again_start(&(struct proc_config){.workers = 2});
    again_open(&actor, "model", 2);
    cr_assert_eq(actor_store(&actor, 1, CHUNKS), CHUNKS);
    for (int round = 0; round < 3; round++) {
        again_kill_daemon();
        again_start_over();
        cr_expect_eq(spw_step_begin(actor.client), -ECONNRESET, "round %d", round);
        cr_expect_eq(spw_step_begin(actor.client), -ENOTCONN, "round %d", round);
        actor_close(&actor);
        again_open(&actor, "model", 2);
        cr_expect_eq(actor_load(&actor, 1, CHUNKS), CHUNKS, "round %d", round);
    }
    actor_close(&actor);
    again_close();
}

Test(process_warm, chunks_that_were_pending_are_misses_and_can_be_stored_again)
{
    struct spw_completion done;
    again_start(&(struct proc_config){.capacity = 8});
    again_open(&actor, "model", 1);
    cr_assert_eq(actor_store(&actor, 1, 2), 2);
    struct spw_request *request = actor_request(&actor, 50, 3, 0);
    cr_assert_eq(actor_reserve(&actor, request, 0, 0, 3, &done), 0);
    again_kill_all();
    spw_request_finish(request);
    actor_close(&actor);
    again_start_over();
    again_open(&actor, "model", 1);
    cr_expect_eq(actor_hits(&actor, 50, 3), 0);
    cr_expect_eq(actor_load(&actor, 1, 2), 2);
    for (uint64_t first = 50; first < 80; first += 3) /* over the capacity: no slot is lost */
        cr_expect_eq(actor_store(&actor, first, 3), 3);
    cr_expect_eq(actor_load(&actor, 77, 3), 3);
    actor_close(&actor);
    again_close();
}

/* ---- not gone on with ------------------------------------------------------------------------ */

static void damage(const char *object, off_t at)
{
    char path[SUPPORT_PATH_BYTES + 64];
    uint64_t bytes;
    snprintf(path, sizeof path, "%s/spillway-%u-pool.%s", again_pool.dir, geteuid(), object);
    int fd = open(path, O_RDWR);
    cr_assert_geq(fd, 0, "%s", path);
    cr_assert_eq(pread(fd, &bytes, sizeof bytes, at), (ssize_t)sizeof bytes);
    bytes ^= 0x1010101010101010ull;
    cr_assert_eq(pwrite(fd, &bytes, sizeof bytes, at), (ssize_t)sizeof bytes);
    close(fd);
}

/* Ends the again_pool, lets @change do its part, starts again; that start must be cold and say @words. */
static void expect_cold(void (*change)(void), const char *words)
{
    again_stop();
    change();
    again_start_over();
    cr_expect(proc_said(&again_pool, words), "\"%s\" isn't in: %s", words, again_pool.words);
    cr_expect(!strstr(again_pool.words, "adopted"), "%s", again_pool.words);
    again_open(&actor, "model", 1);
    cr_expect_eq(actor_hits(&actor, 1, 3), 0, "%s", words);
    cr_expect_eq(actor_store(&actor, 1, 3), 3, "%s", words);
    actor_close(&actor);
}

static void more_chunks(void)
{
    again_pool.config.capacity = 65;
}

static void larger_chunks(void)
{
    again_pool.config.chunk_bytes = 2048;
}

static void damaged_ctl(void)
{
    damage("ctl", offsetof(struct spw_region_header, magic));
}

static void other_layout(void)
{
    damage("ctl", offsetof(struct spw_region_header, layout_hash));
}

static void other_version(void)
{
    damage("feed.0", 0);
}

static void ask(void)
{
    again_pool.config.more[0] = "--cold";
}

Test(process_warm, sm8_what_differs_or_is_damaged_is_made_anew_and_one_line_says_why)
{
    again_start(&(struct proc_config){.on_stop = "keep", .listen = true});
    expect_cold(more_chunks,
                "cold start, what was there is not gone on with: it was made with "
                "--capacity-chunks 64, this start has 65; what is in memory is kept if "
                "that stays");
    expect_cold(larger_chunks, "it was made with --chunk-bytes 1024, this start has 2048");
    expect_cold(damaged_ctl, "magic");
    expect_cold(other_layout, "layout hash");
    expect_cold(other_version, "layout version");
    expect_cold(ask, "asked for");
    again_pool.config.more[0] = NULL;
    again_stop();
    again_start_over();
    again_open(&actor, "model", 1);
    cr_expect_eq(actor_load(&actor, 1, 3), 3, "a cold start is a start like others");
    actor_close(&actor);
    again_close();
}

static char below[SUPPORT_PATH_BYTES];

static void use_below(void)
{
    cr_assert_eq(support_shm_dir(below), 0);
    const char *more[] = {"--nvme-dir", below, "--nvme-bytes", "8MiB"};
    memcpy(again_pool.config.more, more, sizeof more);
}

static void more_below(void)
{
    again_pool.config.more[3] = "16MiB";
}

static void smallest_chunks(void)
{
    again_pool.config.more[4] = "--smallest-chunk-bytes";
    again_pool.config.more[5] = "256";
}

Test(process_warm, sm8_another_tier_below_is_told_by_its_options)
{
    again_start(&(struct proc_config){.on_stop = "keep", .listen = true});
    expect_cold(use_below, "it was made without --nvme-dir, this start has one");
    expect_cold(more_below, "each worker listed 8192 chunks below (--nvme-chunks, by default from "
                            "--nvme-bytes and --chunk-bytes), now 16384; another --nvme-bytes goes "
                            "on with what is in memory if --nvme-chunks stays");
    expect_cold(smallest_chunks, "it was made with another --smallest-chunk-bytes");
    memset(again_pool.config.more, 0, sizeof again_pool.config.more);
    again_close();
    support_remove_dir(below);
}

Test(process_warm, sm8_a_damaged_space_is_dropped_and_named_and_the_others_stay)
{
    again_start(&(struct proc_config){.on_stop = "keep", .listen = true});
    for (uint32_t i = 0; i < 2; i++) {
        again_open(&actor, i == 0 ? "model a" : "model b", 1);
        cr_assert_eq(actor_store(&actor, 10 * i, 4), 4);
        actor_close(&actor);
    }
    again_stop();
    /* another model's name: a client of that one would find hits with bytes that aren't its own */
    damage("ctl", (off_t)(offsetof(struct spw_ctl, space) +
                          offsetof(struct spw_space_slot, record.fingerprint)));
    again_start_over();
    cr_expect(proc_said(&again_pool, "space 0 is damaged and its 4 chunks are dropped"), "%s",
              again_pool.words);
    cr_expect(proc_said(&again_pool, "adopted 4 chunks of 1 space, 4 damaged entries dropped"),
              "%s", again_pool.words);
    again_open(&actor, "model b", 1);
    cr_expect_eq(actor_load(&actor, 10, 4), 4);
    actor_close(&actor);
    again_open(&actor, "model a", 1);
    cr_expect_eq(actor_hits(&actor, 0, 4), 0);
    cr_expect_eq(actor_store(&actor, 0, 4), 4);
    cr_expect_eq(actor_load(&actor, 0, 4), 4);
    actor_close(&actor);
    again_close();
}

Test(process_warm, remove_leaves_nothing_and_the_next_start_has_nothing_to_say)
{
    again_start(&(struct proc_config){.on_stop = "remove", .listen = true});
    again_open(&actor, "model", 1);
    cr_assert_eq(actor_store(&actor, 1, 3), 3);
    actor_close(&actor);
    again_stop();
    cr_expect_eq(proc_files(&again_pool), 0);
    again_start_over();
    cr_expect(proc_said(&again_pool, "is ready"));
    cr_expect(!strstr(again_pool.words, "cold start") && !strstr(again_pool.words, "adopted"), "%s",
              again_pool.words);
    again_close();
}

/* ---- workers of a dead daemon ---------------------------------------------------------------- */

static bool workers_gone(void *ctx)
{
    return !spw_lock_held(again_pool.seen->lock_fd, SPW_LOCK_WORKER(0)) &&
           !spw_lock_held(again_pool.seen->lock_fd, SPW_LOCK_WORKER(1));
}

Test(process_warm, workers_outlive_a_daemon_while_a_client_lives_and_no_longer)
{
    again_start(&(struct proc_config){.workers = 2});
    again_open(&actor, "model", 2);
    cr_assert_eq(actor_store(&actor, 1, CHUNKS), CHUNKS);
    proc_kill_daemon(&again_pool);
    usleep(1800000); /* their limit without clients is a second */
    cr_expect_eq(actor_load(&actor, 1, CHUNKS), CHUNKS);
    cr_expect_eq(actor_store(&actor, 20, CHUNKS), CHUNKS);
    cr_expect_eq(actor_load(&actor, 20, CHUNKS), CHUNKS);
    actor_close(&actor);
    usleep(200000);
    cr_expect(!workers_gone(NULL), "they wait for a new client or daemon");
    cr_expect(proc_eventually(workers_gone, NULL, 3000));
    again_look_away();
    again_start_over();
    again_open(&actor, "model", 2);
    cr_expect_eq(actor_load(&actor, 1, CHUNKS), CHUNKS);
    cr_expect_eq(actor_load(&actor, 20, CHUNKS), CHUNKS, "stored while there was no daemon");
    actor_close(&actor);
    again_close();
}

Test(process_warm, a_worker_that_is_stopped_is_ended_by_the_next_start)
{
    again_start(&(struct proc_config){.workers = 2});
    again_open(&actor, "model", 2);
    cr_assert_eq(actor_store(&actor, 1, CHUNKS), CHUNKS);
    const struct spw_worker_state *state = &again_pool.seen->ctl->worker[1];
    cr_expect_eq(spw_load_relaxed(&state->start_ticks),
                 spw_process_start_ticks((pid_t)spw_load_relaxed(&state->pid)));
    int old_lock = spw_lock_open(&again_pool.seen->path, false, 0, -1, NULL); /* of its own */
    proc_signal_worker(&again_pool, 1, SIGSTOP);
    again_kill_daemon();
    uint64_t took = again_start_over();
    fprintf(stderr, "over a stopped worker: serves again after %u ms\n", (unsigned)took);
    cr_expect_eq(spw_lock_held(old_lock, SPW_LOCK_WORKER(1)), 0, "it is gone");
    cr_expect(!spw_lock_current(old_lock, &again_pool.seen->path),
              "its client holds on to that one");
    spw_lock_close(old_lock);
    actor_close(&actor);
    again_open(&actor, "model", 2);
    cr_expect_eq(actor_load(&actor, 1, CHUNKS), CHUNKS);
    actor_close(&actor);
    again_close();
}

/* Whoever has the lock object's name decides; those of the removed one can't be asked who they are. */
Test(process_warm, SM_12_a_lock_object_removed_under_a_living_pool_never_makes_two_writers)
{
    again_start(&(struct proc_config){.workers = 2, .on_stop = "remove"});
    again_open(&actor, "model", 1);
    cr_assert_eq(actor_store(&actor, 1, CHUNKS), CHUNKS);
    actor_close(&actor);
    char name[SPW_PATH_BYTES];
    spw_lock_name(&again_pool.seen->path, name);
    proc_signal_worker(&again_pool, 0, SIGSTOP);
    cr_assert_eq(unlink(name), 0);
    struct proc_pool second = again_pool;
    second.config.on_stop = "keep";
    second.seen = NULL;
    proc_spawn(&second);
    cr_assert_eq(proc_await(&second), 0);
    again_open(&actor, "model", 1);
    cr_expect_eq(actor_hits(&actor, 1, CHUNKS), 0, "a worker of the first still has that shard");
    cr_expect_eq(actor_store(&actor, 1, CHUNKS), CHUNKS);
    proc_signal_worker(&again_pool, 0, SIGCONT);
    cr_expect_eq(support_wait(again_pool.daemon, 10000), 1, "the first one ends by itself");
    usleep(2500000); /* by then the second has looked at the names of its objects */
    cr_expect_eq(actor_load(&actor, 1, CHUNKS), CHUNKS);
    actor_close(&actor);
    again_look_away();
    again_pool.daemon = second.daemon;
    again_pool.config.on_stop = "keep";
    again_pool.seen = second.seen;
    again_stop();
    again_start_over();
    again_open(&actor, "model", 1);
    cr_expect_eq(actor_load(&actor, 1, CHUNKS), CHUNKS);
    actor_close(&actor);
    again_close();
}

Test(process_warm, what_a_daemon_says_of_itself_moves_and_is_true)
{
    again_start(&(struct proc_config){0});
    const struct spw_ctl *ctl = again_pool.seen->ctl;
    uint64_t rounds = spw_load_relaxed(&ctl->rounds), updated = spw_load_relaxed(&ctl->updated_ns);
    usleep(700000);
    cr_expect_gt(spw_load_relaxed(&ctl->rounds), rounds);
    cr_expect_gt(spw_load_relaxed(&ctl->updated_ns), updated);
    cr_expect_eq(spw_load_relaxed(&ctl->pid_namespace), spw_process_namespace());
    again_close();
}

/* ---- SM-10: a daemon that dies while it goes on with a pool ----------------------------------- */

static const char *const warm_points[] = {
    "pool.name_taken:1",     "pool.old_closed:1",       "pool.workers_gone:1",
    "pool.old_removed:2",    "pool.clients_removed:1",  "region.filled:2",
    "pool.object_created:3", "pool.shard_relabelled:1", "pool.shard_relabelled:2",
    "pool.ctl_filled:1",     "region.published:2",      "pool.ctl_renamed:1",
    "pool.published:1",
};

Test(process_warm, SM_10_a_daemon_killed_at_any_step_of_a_warm_start_loses_nothing)
{
#ifndef SPW_CRASH_POINTS
    cr_skip("built without crash points");
#endif
    again_start(&(struct proc_config){.workers = 2, .on_stop = "keep"});
    again_open(&actor, "model", 2);
    cr_assert_eq(actor_store(&actor, 1, CHUNKS), CHUNKS);
    actor_close(&actor);
    for (size_t i = 0; i < sizeof warm_points / sizeof warm_points[0]; i++) {
        if (i % 2) /* with workers that live, and without */
            again_stop();
        else
            again_kill_daemon();
        setenv("SPW_CRASH_DAEMON", warm_points[i], 1);
        proc_spawn(&again_pool);
        unsetenv("SPW_CRASH_DAEMON");
        cr_expect_eq(proc_await(&again_pool), 1000 + SUPPORT_SIGNALLED + SIGKILL, "%s",
                     warm_points[i]);
        again_start_over();
        again_open(&actor, "model", 2);
        cr_expect_eq(actor_load(&actor, 1, CHUNKS), CHUNKS, "%s", warm_points[i]);
        actor_close(&actor);
    }
    again_close();
}
