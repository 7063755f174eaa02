/* Workers that die while clients store, load and wait. */
#include "tests/process/actor.h"
#include "tests/process/proc.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tier/counters.h"
#include "tier/layout.h"

TestSuite(process_deaths, .timeout = 60);

#define NOTICE_MS 1000 /* the bound that is promised */

static struct proc_pool pool;
static struct actor actor;

static void start(const struct proc_config *config, uint32_t ranks)
{
    cr_assert(proc_start(&pool, config));
    struct actor_config who = {.dir = pool.dir, .name = "pool", .ranks = ranks, .worker = {0, 1}};
    cr_assert_eq(actor_open(&actor, &who), 0);
}

static void end(void)
{
    actor_close(&actor);
    cr_expect_eq(proc_stop(&pool, SIGTERM), 0);
    cr_expect_eq(proc_files(&pool), 0);
    proc_close(&pool);
}

static void kill_worker(uint32_t k)
{
    uint64_t before = proc_incarnation(&pool, k);
    proc_signal_worker(&pool, k, SIGKILL);
    cr_assert(proc_await_successor(&pool, k, before), "worker %u doesn't come back", k);
    cr_expect_eq(proc_incarnation(&pool, k), before + 1);
}

/* Jobs may be refused for a moment, until the client has been acknowledged anew. */
static bool hits_three(void *ctx)
{
    (void)ctx;
    return actor_hits(&actor, 1, 3) == 3;
}

Test(process_deaths, ready_chunks_outlive_their_worker_and_pending_ones_do_not)
{
    struct spw_completion done;
    start(&(struct proc_config){.workers = 2, .capacity = 16}, 2);
    cr_assert_eq(actor_store(&actor, 1, 3), 3);
    struct spw_request *request = actor_request(&actor, 50, 3, 0);
    cr_assert_eq(actor_reserve(&actor, request, 0, 0, 3, &done), 0);
    cr_expect_eq(proc_entries(&pool, 0, SPW_FILLING), 3);
    for (int round = 0; round < 3; round++) {
        uint32_t k = (uint32_t)round % 2;
        kill_worker(k);
        cr_expect(proc_eventually(hits_three, NULL, 2000), "round %d", round);
        cr_expect_eq(actor_load(&actor, 1, 3), 3, "round %d", round);
        cr_expect_eq(actor_hits(&actor, 50, 3), 0, "pending ones read MISS");
        cr_expect_eq(proc_entries(&pool, 0, SPW_FILLING), 0);
        cr_expect_eq(actor_store(&actor, 100 + (uint64_t)round * 10, 2), 2);
        cr_expect_eq(actor_load(&actor, 100 + (uint64_t)round * 10, 2), 2);
    }
    /* the ticket of the dead incarnation can't be run */
    cr_expect_eq(actor_run(&actor, &done.ticket, 0, 1), -EOWNERDEAD);
    spw_request_finish(request);
    cr_expect_eq(actor_store(&actor, 50, 3), 3);
    cr_expect_eq(actor_load(&actor, 50, 3), 3);
    cr_expect_eq(proc_claims(&pool), 0);
    end();
}

/* Its shard can't be mapped for a while. */
Test(process_deaths, a_worker_that_cannot_come_up_counts_as_dead_and_is_tried_ever_more_rarely)
{
    char feed[SPW_PATH_BYTES], aside[SPW_PATH_BYTES + 8];
    struct spw_completion done;
    start(&(struct proc_config){.capacity = 16, .store_rate = "4000"}, 1);
    cr_assert_eq(actor_store(&actor, 1, 3), 3);
    struct spw_request *request = actor_request(&actor, 50, 3, 0);
    cr_assert_eq(actor_reserve(&actor, request, 0, 0, 3, &done), 0);
    cr_assert_eq(actor_run(&actor, &done.ticket, 0, 7), 0);
    spw_region_name(&pool.seen->path, SPW_REGION_FEED, 0, feed);
    snprintf(aside, sizeof aside, "%s.aside", feed);
    cr_assert_eq(rename(feed, aside), 0);
    uint64_t before = proc_incarnation(&pool, 0);
    proc_signal_worker(&pool, 0, SIGKILL);
    cr_expect_eq(actor_next(&actor, &done, NOTICE_MS), 0, "it waits for a worker that isn't there");
    cr_expect_eq(done.status, -EOWNERDEAD);
    usleep(2000000);
    uint64_t deaths = spw_load_relaxed(&pool.seen->ctl->worker[0].restarts);
    cr_expect_geq(deaths, 3);
    cr_expect_leq(deaths, 6, "after 100 ms, then after twice as long each time");
    cr_assert_eq(rename(aside, feed), 0);
    cr_assert(proc_await_successor(&pool, 0, before));
    cr_expect(proc_eventually(hits_three, NULL, NOTICE_MS));
    cr_expect_eq(actor_load(&actor, 1, 3), 3);
    spw_request_finish(request);
    end();
}

Test(process_deaths, R_36_a_client_that_waits_learns_of_the_death_within_the_bound_and_once)
{
    struct spw_completion done[8];
    /* a second for each chunk: all of it is under way when the worker dies */
    start(&(struct proc_config){.store_rate = "1000", .load_rate = "1000"}, 1);
    struct spw_request *request = actor_request(&actor, 1, 6, 0);
    cr_assert_eq(actor_reserve(&actor, request, 0, 0, 3, &done[0]), 0);
    cr_assert_eq(actor_run(&actor, &done[0].ticket, 0, 1001), 0);
    cr_assert_eq(actor_reserve(&actor, request, 0, 3, 3, &done[0]), 0);
    cr_assert_eq(actor_run(&actor, &done[0].ticket, 3, 1002), 0);
    usleep(50000);
    uint64_t before = proc_incarnation(&pool, 0), killed = proc_now_ms();
    proc_signal_worker(&pool, 0, SIGKILL);
    for (int i = 0; i < 2; i++)
        cr_assert_eq(actor_next(&actor, &done[i], 5000), 0);
    cr_expect_lt(proc_now_ms() - killed, NOTICE_MS);
    cr_expect_eq(done[0].cookie + done[1].cookie, 1001 + 1002);
    for (int i = 0; i < 2; i++)
        cr_expect(done[i].status == -EOWNERDEAD && done[i].kind == SPW_COMPLETION_STORED, "%d",
                  done[i].status);
    cr_assert(proc_await_successor(&pool, 0, before));
    cr_expect_eq(actor_next(&actor, &done[0], 300), -ETIMEDOUT, "told twice");
    cr_expect_eq(actor_counter(&actor, "owner_dead"), 2);
    cr_expect_eq(actor_hits(&actor, 1, 6), 0);
    spw_request_finish(request);
    end();
}

Test(process_deaths, LC_6_an_answer_and_a_death_at_once_end_a_job_once)
{
    start(&(struct proc_config){.capacity = 16}, 1);
    cr_assert_eq(actor_store(&actor, 1, 8), 8);
    for (int round = 0; round < 4; round++) {
        struct spw_request *request = actor_request(&actor, 1, 8, 0);
        struct spw_completion done;
        uint64_t before = proc_incarnation(&pool, 0);
        cr_assert_eq(actor_begin(&actor, request, 0, false), 1);
        if (round % 2) /* answered and not reaped, or on its way */
            usleep(20000);
        proc_signal_worker(&pool, 0, SIGKILL);
        cr_assert(proc_await_successor(&pool, 0, before));
        cr_assert_eq(actor_next(&actor, &done, 5000), 0);
        cr_expect_eq(done.kind, SPW_COMPLETION_BEGUN);
        cr_expect_eq(done.cookie, actor.cookie);
        if (done.status == 0) { /* it had answered in time: the run is refused */
            cr_expect_eq(actor_run(&actor, &done.ticket, 0, 5), -EOWNERDEAD);
            cr_expect_eq(spw_cancel(actor.client, &done.ticket), 0);
        } else {
            cr_expect_eq(done.status, -EOWNERDEAD);
        }
        cr_expect_eq(actor_next(&actor, &done, 100), -ETIMEDOUT);
        cr_expect(proc_eventually(hits_three, NULL, 2000));
        cr_expect_eq(actor_load(&actor, 1, 8), 8, "round %d", round);
        spw_request_finish(request);
    }
    cr_expect_eq(proc_claims(&pool), 0);
    end();
}

Test(process_deaths, a_new_request_takes_no_answer_meant_for_the_old_one_of_a_dead_worker)
{
    start(&(struct proc_config){.capacity = 16}, 1);
    cr_assert_eq(actor_store(&actor, 1, 4), 4);
    struct spw_request *request = actor_request(&actor, 1, 4, 0);
    struct spw_completion done;
    uint64_t before = proc_incarnation(&pool, 0);
    proc_signal_worker(&pool, 0, SIGSTOP);
    cr_assert_eq(actor_begin(&actor, request, 0, false), 1);
    cr_expect_eq(spw_request_cancel(request), 0);
    proc_signal_worker(&pool, 0, SIGKILL);
    cr_assert(proc_await_successor(&pool, 0, before));
    cr_expect_eq(actor_next(&actor, &done, 200), -ETIMEDOUT, "a cancelled begin is never told");
    cr_expect(proc_eventually(hits_three, NULL, 2000));
    spw_request_finish(request);
    cr_expect_eq(actor_load(&actor, 1, 4), 4);
    end();
}

Test(process_deaths, the_daemon_goes_on_when_all_workers_die_at_once_again_and_again)
{
    start(&(struct proc_config){.workers = 2, .capacity = 16}, 2);
    cr_assert_eq(actor_store(&actor, 1, 3), 3);
    for (int round = 0; round < 2; round++) {
        uint64_t a = proc_incarnation(&pool, 0), b = proc_incarnation(&pool, 1);
        proc_signal_worker(&pool, 0, SIGKILL);
        proc_signal_worker(&pool, 1, SIGKILL);
        cr_assert(proc_await_successor(&pool, 0, a) && proc_await_successor(&pool, 1, b));
        cr_expect(proc_eventually(hits_three, NULL, 2000));
        cr_expect_eq(actor_load(&actor, 1, 3), 3);
    }
    end();
}

/* ---- the daemon too -------------------------------------------------------------------------- */

static void run_three_slowly(void)
{
    struct spw_completion done;
    struct spw_request *request = actor_request(&actor, 1, 3, 0);
    cr_assert_eq(actor_reserve(&actor, request, 0, 0, 3, &done), 0);
    cr_assert_eq(actor_run(&actor, &done.ticket, 0, 1001), 0);
    usleep(50000); /* the run is taken: no command waits */
}

Test(process_deaths, R_36_a_run_ends_when_its_worker_dies_after_the_daemon)
{
    struct spw_completion done;
    start(&(struct proc_config){.workers = 2, .store_rate = "1000"}, 1);
    run_three_slowly();
    proc_kill_daemon(&pool);
    proc_signal_worker(&pool, 0, SIGKILL);
    cr_assert_eq(actor_next(&actor, &done, 5000), 0);
    cr_expect_eq(done.status, -EOWNERDEAD);
    cr_expect_eq(done.cookie, 1001);
    cr_expect_eq(actor_store(&actor, 50, 1), -EOWNERDEAD, "nobody will start it again");
    cr_expect_eq(actor_hits(&actor, 1, 3), 0);
    actor_close(&actor);
    proc_close(&pool);
}

Test(process_deaths, R_36_a_client_that_waits_is_told_when_daemon_and_workers_are_all_dead)
{
    struct spw_completion done;
    start(&(struct proc_config){.store_rate = "1000"}, 1);
    run_three_slowly();
    proc_kill_daemon(&pool);
    proc_signal_worker(&pool, 0, SIGKILL);
    cr_expect_eq(actor_next(&actor, &done, 5000), -ECONNRESET);
    cr_expect_eq(actor_next(&actor, &done, 5000), -ENOTCONN);
    actor_close(&actor);
    proc_close(&pool);
}

/* ---- all of it at once ----------------------------------------------------------------------- */

static bool is_settled(void *ctx)
{
    (void)ctx;
    for (uint32_t k = 0; k < 2; k++)
        if (proc_entries(&pool, k, SPW_FILLING) || proc_entries(&pool, k, SPW_RETIRED))
            return false;
    return proc_claims(&pool) == 0;
}

Test(process_deaths, R_43_random_deaths_of_workers_and_clients_lose_no_answer_and_no_byte)
{
    enum { PEERS = 3, ROUNDS = 6 };
    char seed[PEERS][16], line[256];
    struct {
        pid_t pid;
        int fd;
    } peer[PEERS];
    start(&(struct proc_config){.workers = 2, .capacity = 8}, 1);
    for (int i = 0; i < PEERS; i++) {
        snprintf(seed[i], sizeof seed[i], "%d", i + 1);
        const char *const args[] = {"survive", seed[i], "24", "4000", NULL};
        peer[i].pid = proc_peer(&pool, &peer[i].fd, args);
    }
    for (int round = 0; round < ROUNDS; round++) {
        usleep(150000 + 37000 * ((unsigned)round % 5));
        uint32_t k = (uint32_t)round % 2;
        uint64_t before = proc_incarnation(&pool, k);
        proc_signal_worker(&pool, k, SIGKILL);
        if (round == ROUNDS / 2)
            support_kill(peer[0].pid);
        cr_assert(proc_await_successor(&pool, k, before), "round %d", round);
    }
    for (int i = 1; i < PEERS; i++) {
        line[0] = 0;
        support_read_line(peer[i].fd, line, sizeof line, 15000);
        cr_expect_eq(support_wait(peer[i].pid, 10000), 0, "peer %d: %s", i, line);
        fprintf(stderr, "peer %d: %s\n", i, line);
    }
    for (int i = 0; i < PEERS; i++)
        close(peer[i].fd);
    cr_expect(proc_eventually(is_settled, NULL, 3000), "%u claims, %u and %u filling",
              proc_claims(&pool), proc_entries(&pool, 0, SPW_FILLING),
              proc_entries(&pool, 1, SPW_FILLING));
    cr_expect_eq(actor_store(&actor, 1000, 8), 8);
    cr_expect_eq(actor_load(&actor, 1000, 8), 8);
    end();
}

/* ---- a shard that is damaged when its worker dies -------------------------------------------- */

/* What only worker 0 may write, in reach of the test. */
static struct spw_feed_head *feed_of_worker_0(void)
{
    char path[SPW_PATH_BYTES];
    spw_region_name(&pool.seen->path, SPW_REGION_FEED, 0, path);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    cr_assert_geq(fd, 0);
    void *feed =
        mmap(NULL, pool.seen->feed_map.size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    cr_assert_neq(feed, MAP_FAILED);
    close(fd);
    return feed;
}

static bool hits_none(void *ctx)
{
    (void)ctx;
    return actor_hits(&actor, 1, 8) == 0;
}

/* A client that stays attached sees an empty shard and goes on, and nothing of it is wrong later. */
Test(process_deaths, a_damaged_update_ring_costs_its_shard_the_chunks_and_nobody_else_anything)
{
    start(&(struct proc_config){.workers = 2, .capacity = 16}, 1);
    struct spw_feed_head *feed = feed_of_worker_0();
    for (uint32_t round = 0; round < 3; round++) {
        uint8_t *ring = (uint8_t *)feed + pool.seen->feed_map.ring_off;
        spw_atomic64 *const numbers[] = {&feed->gate, &feed->tail, (void *)ring};
        cr_assert_eq(actor_store(&actor, 1, 8), 8);
        cr_assert_eq(actor_load(&actor, 1, 8), 8);
        uint64_t tail = spw_load_relaxed(&feed->tail);
        proc_signal_worker(&pool, 0, SIGSTOP);
        usleep(20000);
        spw_store_relaxed(numbers[round], tail + 123456789);
        kill_worker(0);
        cr_expect_eq(proc_count(&pool, 0, SPW_WORKER_afresh), round + 1);
        cr_expect(spw_pos_before(tail, spw_load_relaxed(&feed->tail)));
        cr_expect(proc_eventually(hits_none, NULL, 2000), "what is gone reads MISS");
    }
    cr_assert_eq(actor_store(&actor, 1, 8), 8);
    cr_expect_eq(actor_load(&actor, 1, 8), 8);
    munmap(feed, pool.seen->feed_map.size_bytes);
    end();
}

Test(process_deaths, a_damaged_entry_costs_one_chunk)
{
    start(&(struct proc_config){.workers = 1, .capacity = 16}, 1);
    struct spw_feed_head *feed = feed_of_worker_0();
    cr_assert_eq(actor_store(&actor, 1, 8), 8);
    struct spw_entry *entry = (void *)((uint8_t *)feed + pool.seen->feed_map.entry_off);
    uint32_t slot = 0;
    while (SPW_PACKED_STATE(spw_load_relaxed(&entry[slot].packed)) != SPW_READY)
        slot++;
    spw_add_own(&entry[slot].chunk_bytes, 64);
    kill_worker(0);
    cr_expect_eq(proc_count(&pool, 0, SPW_WORKER_dropped), 1);
    cr_expect_eq(proc_count(&pool, 0, SPW_WORKER_adopted), 7);
    cr_expect_eq(proc_entries(&pool, 0, SPW_READY), 7);
    munmap(feed, pool.seen->feed_map.size_bytes);
    end();
}
