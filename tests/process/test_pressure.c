/* Many processes on a pool that is too small for them. */
#include "tests/process/actor.h"
#include "tests/process/proc.h"

#include <criterion/criterion.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tier/counters.h"
#include "tier/layout.h"

TestSuite(process_pressure, .timeout = 100);

#define LINE_BYTES 256
#define PEERS      4

static struct proc_pool pool;

struct peer {
    pid_t pid;
    int fd;
};

/* Wait for @count peers; each must end well. Their last lines go to standard error. */
static void all_end_well(struct peer *peer, int count)
{
    for (int i = 0; i < count; i++) {
        char line[LINE_BYTES] = "";
        support_read_line(peer[i].fd, line, sizeof line, 60000);
        cr_expect_eq(support_wait(peer[i].pid, 10000), 0, "peer %d: %s", i, line);
        fprintf(stderr, "peer %d: %s\n", i, line);
        close(peer[i].fd);
    }
}

static struct peer start_peer(const char *a, const char *b, const char *c, const char *d,
                              const char *e)
{
    const char *const args[] = {a, b, c, d, e, NULL};
    struct peer peer;
    peer.pid = proc_peer(&pool, &peer.fd, args);
    cr_assert_gt(peer.pid, 0);
    return peer;
}

Test(process_pressure, LK_7_what_a_lookup_promised_is_loaded_while_others_evict)
{
    cr_assert(proc_start(&pool, &(struct proc_config){.capacity = 4}));
    struct peer peer[3] = {
        start_peer("random", "1", "8", "0", "4000"),   /* looks up and loads */
        start_peer("random", "2", "8", "100", "4000"), /* stores in a tight loop */
        start_peer("random", "3", "8", "50", "4000"),
    };
    all_end_well(peer, 3);
    cr_expect_gt(proc_count(&pool, 0, SPW_WORKER_evicted), 1000);
    cr_expect_gt(proc_count(&pool, 0, SPW_WORKER_chunks_loaded), 200);
    cr_expect_eq(proc_count(&pool, 0, SPW_WORKER_loads_stale), 0);
    cr_expect_eq(proc_count(&pool, 0, SPW_WORKER_loads_failed), 0);
    cr_expect_eq(proc_claims(&pool), 0);
    cr_expect_eq(proc_stop(&pool, SIGTERM), 0);
    proc_close(&pool);
}

Test(process_pressure, CE_11_ten_thousand_requests_on_a_pool_of_one_slot)
{
    char seed[PEERS][16];
    struct peer peer[PEERS];
    cr_assert(proc_start(&pool, &(struct proc_config){.capacity = 1}));
    pid_t worker = (pid_t)spw_load_relaxed(&pool.seen->ctl->worker[0].pid);
    for (int i = 0; i < PEERS; i++) {
        snprintf(seed[i], sizeof seed[i], "%d", i);
        peer[i] = start_peer("storm", seed[i], "2500", NULL, NULL);
    }
    usleep(300000);
    uint64_t before = proc_rss_kib(worker), daemon_before = proc_rss_kib(pool.daemon);
    all_end_well(peer, PEERS);
    uint64_t after = proc_rss_kib(worker);
    cr_expect_leq(after, before + 512, "worker: %lu KiB, then %lu", (unsigned long)before,
                  (unsigned long)after);
    cr_expect_leq(proc_rss_kib(pool.daemon), daemon_before + 512);
    uint64_t offered = proc_count(&pool, 0, SPW_WORKER_chunks_offered);
    cr_expect_gt(offered, 10000);
    cr_expect_eq(offered, proc_count(&pool, 0, SPW_WORKER_chunks_stored) +
                              proc_count(&pool, 0, SPW_WORKER_chunks_present) +
                              proc_count(&pool, 0, SPW_WORKER_refused_no_slot));
    cr_expect_leq(proc_entries(&pool, 0, SPW_READY), 1);
    cr_expect_eq(proc_entries(&pool, 0, SPW_FILLING), 0);
    cr_expect_eq(proc_stop(&pool, SIGTERM), 0);
    proc_close(&pool);
}

Test(process_pressure, SM_5_R_9_a_client_that_was_lapped_learns_it_once_and_sees_what_is)
{
    struct actor actor;
    cr_assert(proc_start(&pool, &(struct proc_config){.capacity = 16}));
    cr_assert_eq(actor_open(&actor, &(struct actor_config){.dir = pool.dir, .name = "pool"}), 0);
    cr_assert_eq(actor_store(&actor, 1000000, 4), 4);
    cr_expect_eq(actor_hits(&actor, 1000000, 4), 4);
    struct peer peer = start_peer("random", "5", "100000", "100", "1500"); /* a ring holds 1024 */
    all_end_well(&peer, 1);
    uint64_t resyncs = actor_counter(&actor, "resyncs"); /* one was the attach */
    cr_expect_eq(actor_counter(&actor, "gaps"), 0);
    cr_expect_eq(actor_hits(&actor, 1000000, 4), 0, "long evicted");
    cr_expect_eq(actor_counter(&actor, "gaps"), 1);
    cr_expect_eq(actor_counter(&actor, "resyncs"), resyncs + 1);
    cr_expect_eq(actor_store(&actor, 2000000, 4), 4);
    cr_expect_eq(actor_load(&actor, 2000000, 4), 4);
    cr_expect_eq(actor_counter(&actor, "gaps"), 1);
    actor_close(&actor);
    cr_expect_eq(proc_stop(&pool, SIGTERM), 0);
    proc_close(&pool);
}

/* ---- everybody holds something and wants more ------------------------------------------------ */

static uint64_t draw(uint64_t *state)
{
    uint64_t x = *state += 0x9e3779b97f4a7c15ull;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
    return x ^ x >> 27;
}

/* Each of four holds claims on two of the pool's eight chunks, then all ask for one more. */
static void hold_and_want(struct actor *actor, uint64_t seed)
{
    uint64_t first = seed * 1000, state = seed;
    struct spw_request *held[PEERS];
    struct spw_completion done;
    for (int i = 0; i < PEERS; i++) {
        uint64_t key = first + 10 * (uint64_t)i;
        uint64_t until = proc_now_ms() + 5000;
        /* what the last seed held expires meanwhile */
        while (actor_store(&actor[i], key, 2) < 2 && proc_now_ms() < until)
            usleep(500);
        held[i] = actor_request(&actor[i], key, 2, 0);
        cr_assert_eq(actor_begin(&actor[i], held[i], 0, false), 1, "seed %d, client %d", (int)seed,
                     i);
        cr_assert_eq(actor_next(&actor[i], &done, 5000), 0);
        cr_assert_eq(done.kind, SPW_COMPLETION_BEGUN);
    }
    int proceeded = 0;
    for (uint64_t until = proc_now_ms() + 2000; !proceeded && proc_now_ms() < until;) {
        int i = (int)(draw(&state) % PEERS);
        proceeded = actor_store(&actor[i], first + 500 + (uint64_t)i, 1) == 1;
        if (!proceeded && draw(&state) % 8 == 0) /* some give back, others sit on it */
            cr_assert_eq(spw_request_cancel(held[draw(&state) % PEERS]), 0);
    }
    cr_expect(proceeded, "seed %d: nobody proceeds", (int)seed);
    for (int i = 0; i < PEERS; i++)
        spw_request_finish(held[i]);
}

Test(process_pressure, CE_12_claims_of_all_on_all_never_stop_everybody)
{
    struct actor actor[PEERS];
    cr_assert(proc_start(&pool, &(struct proc_config){.capacity = 8, .run_limit = "50ms"}));
    for (int i = 0; i < PEERS; i++)
        cr_assert_eq(actor_open(&actor[i], &(struct actor_config){.dir = pool.dir, .name = "pool"}),
                     0);
    for (uint64_t seed = 1; seed <= 1000; seed++)
        hold_and_want(actor, seed);
    for (int i = 0; i < PEERS; i++)
        actor_close(&actor[i]);
    cr_expect_eq(proc_stop(&pool, SIGTERM), 0);
    proc_close(&pool);
}

/* ---- one CPU --------------------------------------------------------------------------------- */

Test(process_pressure, R_37_all_on_one_cpu_make_progress)
{
    cpu_set_t one;
    char seed[PEERS][16];
    struct peer peer[PEERS];
    CPU_ZERO(&one);
    CPU_SET(0, &one);
    cr_assert_eq(sched_setaffinity(0, sizeof one, &one), 0); /* inherited by all below */
    cr_assert(proc_start(&pool, &(struct proc_config){.workers = 2, .capacity = 4}));
    for (int i = 0; i < PEERS; i++) {
        snprintf(seed[i], sizeof seed[i], "%d", i);
        peer[i] = start_peer("random", seed[i], "16", "50", "500");
    }
    all_end_well(peer, PEERS);
    cr_expect_gt(proc_count(&pool, 0, SPW_WORKER_chunks_loaded), 100);
    cr_expect_eq(proc_stop(&pool, SIGTERM), 0);
    proc_close(&pool);
}
