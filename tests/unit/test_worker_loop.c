/* The worker's loop: sleeping, being woken, stopping, going home. */
#include "tests/support/stub_cold.h"
#include "tests/support/worker_rig.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "shm/alive.h"
#include "shm/doorbell.h"

TestSuite(worker_loop, .timeout = 60);

static struct rig rig;
static struct rig_client one;

static uint64_t acked(uint32_t k, uint32_t c)
{
    return spw_load_acquire(&rig.daemon.feed[k]->acked[c]);
}

static spw_atomic32 stop;
static int run_status;

static void *run(void *arg)
{
    run_status = spw_worker_run(arg, &stop);
    return NULL;
}

static void sleep_ms(long ms)
{
    struct timespec span = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    nanosleep(&span, NULL);
}

static void ring_stop(void)
{
    spw_store_relaxed(&stop, 1);
    spw_store_relaxed(&rig.daemon.ctl->bell, 1);
    spw_doorbell_ring(&rig.daemon.ctl->bell, NULL);
}

/* Client @c as the running worker's: attach without passes of our own. */
static void attach_to_running(struct rig_client *client)
{
    struct spw_worker *worker = rig.worker[0];
    rig.worker[0] = NULL;
    rig_attach(&rig, client);
    rig.worker[0] = worker;
    for (int i = 0; i < 2000 && acked(0, client->c) != client->generation; i++)
        sleep_ms(1);
    cr_assert(acked(0, client->c) == client->generation);
}

static bool wait_done(struct rig_client *client, struct spw_done *done)
{
    for (int i = 0; i < 5000; i++) {
        if (rig_reap(client, 0, done))
            return true;
        sleep_ms(1);
    }
    return false;
}

static void ring(const struct rig_client *client)
{
    spw_doorbell_ring(spw_doorbell_low_half(&client->view->head->lane[0].command_tail),
                      &rig.daemon.feed[0]->asleep);
}

Test(worker_loop, a_sleeping_worker_is_woken_and_an_idle_one_costs_nothing)
{
    pthread_t thread;
    struct timespec cpu;
    struct spw_done done;
    clockid_t clock;
    rig_open(&rig, &(struct rig_config){.capacity = 8, .real_clock = true});
    cr_assert(pthread_create(&thread, NULL, run, rig.worker[0]) == 0);
    attach_to_running(&one);
    sleep_ms(50);
    cr_assert(pthread_getcpuclockid(thread, &clock) == 0);
    clock_gettime(clock, &cpu);
    int64_t before_ns = cpu.tv_sec * 1000000000ll + cpu.tv_nsec;
    const spw_atomic64 *sleeps = &rig.daemon.feed[0]->counter[SPW_WORKER_sleeps];
    uint64_t sleeps_before = spw_load_relaxed(sleeps);
    sleep_ms(2000);
    clock_gettime(clock, &cpu);
    int64_t used_ns = cpu.tv_sec * 1000000000ll + cpu.tv_nsec - before_ns;
    /* it wakes by its tick of 100 ms alone; what a busy host charges for that is another matter */
    cr_expect_leq(spw_load_relaxed(sleeps) - sleeps_before, 25);
    cr_expect(used_ns < 200000000, "idle: %d us in 2 s", (int)(used_ns / 1000));

    for (uint64_t i = 0; i < 20; i++) {
        sleep_ms(2);
        cr_assert(rig_reserve(&rig, &one, 0, i, 1));
        ring(&one);
        cr_assert(wait_done(&one, &done));
        cr_assert(rig_run(&rig, &one, 0, SPW_CMD_STORE, done.ticket, 1, 0));
        ring(&one);
        cr_assert(wait_done(&one, &done));
        cr_expect(done.status == 0);
    }
    ring_stop();
    pthread_join(thread, NULL);
    cr_expect(run_status == 0);
    cr_expect(rig_count(&rig, 0, SPW_WORKER_sleeps) > 20);
    rig_close(&rig);
}

static void store_one(uint64_t key)
{
    struct spw_done done;
    cr_assert(rig_reserve(&rig, &one, 0, key, 1));
    ring(&one);
    cr_assert(wait_done(&one, &done));
    cr_assert(rig_run(&rig, &one, 0, SPW_CMD_STORE, done.ticket, 1, 0));
    ring(&one);
    cr_assert(wait_done(&one, &done));
}

static void await_count(enum spw_worker_counter counter, uint64_t count)
{
    for (uint64_t until = rig_now(&rig) + 10 * RIG_SECOND;
         rig_count(&rig, 0, counter) < count && rig_now(&rig) < until;)
        sleep_ms(1);
    cr_assert_geq(rig_count(&rig, 0, counter), count);
}

static int by_size(const void *a, const void *b)
{
    return (*(const uint64_t *)a > *(const uint64_t *)b) -
           (*(const uint64_t *)a < *(const uint64_t *)b);
}

/* A tick is 100 ms: who is not woken is late by half of that in the middle. */
Test(worker_loop, a_tier_below_wakes_a_sleeping_worker)
{
    static struct spw_cold stub;
    enum { ROUNDS = 15 };
    uint64_t took_ns[ROUNDS];
    pthread_t thread;
    rig_open(&rig,
             &(struct rig_config){
                 .capacity = 40,
                 .cold_chunks = STUB_CHUNKS,
                 .below = &stub,
                 .cold_policy = {.admit_sightings = 1, .queue_chunks = 64, .promote_percent = 100},
                 .real_clock = true});
    cr_assert(pthread_create(&thread, NULL, run, rig.worker[0]) == 0);
    attach_to_running(&one);
    for (uint64_t i = 0; i < ROUNDS; i++) {
        spw_store_release(&stub.held_back, 1);
        store_one(i);
        await_count(SPW_WORKER_cold_wanted, i + 1);
        uint64_t sleeps = rig_count(&rig, 0, SPW_WORKER_sleeps);
        await_count(SPW_WORKER_sleeps, sleeps + 1);
        cr_assert_eq(rig_count(&rig, 0, SPW_WORKER_cold_written), i);
        uint64_t begin_ns = rig_now(&rig);
        spw_store_release(&stub.held_back, 0);
        stub.wake(stub.wake_ctx);
        while (rig_count(&rig, 0, SPW_WORKER_cold_written) == i &&
               rig_now(&rig) < begin_ns + RIG_SECOND)
            sched_yield();
        took_ns[i] = rig_now(&rig) - begin_ns;
    }
    qsort(took_ns, ROUNDS, sizeof *took_ns, by_size);
    cr_expect_lt(took_ns[ROUNDS / 2], 20000000, "%lu ns", (unsigned long)took_ns[ROUNDS / 2]);
    ring_stop();
    pthread_join(thread, NULL);
    rig_close(&rig);
}

Test(worker_loop, a_stop_cancels_what_waits_and_lets_copies_end)
{
    pthread_t thread;
    struct spw_done done, job;
    rig_open(&rig, &(struct rig_config){.capacity = 8,
                                        .real_clock = true,
                                        .copier = {.rate_bytes = {5000, 0}, .in_flight = {1, 1}}});
    cr_assert(pthread_create(&thread, NULL, run, rig.worker[0]) == 0);
    attach_to_running(&one);
    cr_assert(rig_reserve(&rig, &one, 0, 1, 3));
    ring(&one);
    cr_assert(wait_done(&one, &job));
    cr_assert(rig_run(&rig, &one, 0, SPW_CMD_STORE, job.ticket, 3, 0));
    cr_assert(rig_reserve(&rig, &one, 0, 10, 1));
    ring(&one);
    cr_assert(wait_done(&one, &done));
    ring_stop();
    pthread_join(thread, NULL);
    cr_expect(run_status == 0);
    cr_assert(rig_reap(&one, 0, &done));
    cr_expect(done.kind == SPW_DONE_STORE && done.mask == 6 && done.status == -ECANCELED);
    cr_expect(rig_state(&rig, 0, 1, NULL) == SPW_READY);
    cr_expect(rig_slots_in(&rig, 0, SPW_FILLING) == 0);
    cr_expect(rig_open_chunks(&rig, 0) == 0);
    rig_close(&rig);
}

Test(worker_loop, a_stop_gives_up_copies_that_never_end)
{
    pthread_t thread;
    struct spw_done job;
    rig_open(&rig, &(struct rig_config){
                       .capacity = 8, .real_clock = true, .copier.faults.stick_every = {1, 0}});
    cr_assert(pthread_create(&thread, NULL, run, rig.worker[0]) == 0);
    attach_to_running(&one);
    cr_assert(rig_reserve(&rig, &one, 0, 1, 1));
    ring(&one);
    cr_assert(wait_done(&one, &job));
    cr_assert(rig_run(&rig, &one, 0, SPW_CMD_STORE, job.ticket, 1, 0));
    ring(&one);
    sleep_ms(100);
    ring_stop();
    pthread_join(thread, NULL);
    cr_expect(run_status == -ETIMEDOUT);
    rig_close(&rig);
}

Test(worker_loop, a_worker_without_daemon_and_clients_goes_home)
{
    pthread_t thread;
    rig_open(&rig, &(struct rig_config){.capacity = 8, .real_clock = true});
    cr_assert(pthread_create(&thread, NULL, run, rig.worker[0]) == 0);
    attach_to_running(&one);
    spw_lock_drop(rig.daemon.lock_fd, SPW_LOCK_DAEMON);
    sleep_ms(1500);
    cr_assert(rig_reserve(&rig, &one, 0, 1, 1));
    ring(&one);
    struct spw_done done;
    cr_expect(wait_done(&one, &done), "it serves on while a client lives");
    rig_die(&one);
    uint64_t left = spw_monotonic_ns();
    pthread_join(thread, NULL);
    cr_expect(run_status == 0);
    cr_expect(spw_monotonic_ns() - left >= 9 * RIG_SECOND / 10,
              "its limit begins with being alone");
    rig_close(&rig);
}

Test(worker_loop, a_closed_pool_ends_its_workers)
{
    pthread_t thread;
    rig_open(&rig, &(struct rig_config){.capacity = 8, .real_clock = true});
    cr_assert(pthread_create(&thread, NULL, run, rig.worker[0]) == 0);
    sleep_ms(20);
    spw_store_relaxed(&rig.daemon.ctl->phase, SPW_POOL_CLOSED);
    pthread_join(thread, NULL);
    cr_expect(run_status == 0);
    rig_close(&rig);
}
