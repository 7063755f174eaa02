/*
 * Wake-ups: what a step's news cost with ten thousand requests deferred, beside the same step with
 * none. A step here is its part that news drive: records go into the replica and are told to the
 * watch table, deadlines are looked at, and whoever wakes waits anew.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "bench/bench.h"
#include "sched/replica.h"
#include "sched/wakeup.h"

#define DEFERRED 10000u
#define NEWS     64u /* records a step, half of them watched */
#define CHUNKS   (1u << 20)
#define FAR_NS   (1ull << 62)

struct crowd {
    struct spw_replica replica;
    struct spw_wakeup wakeup, empty;
    struct spw_waiter *waiter;
    uint64_t (*tag)[SPW_DECIDE_WAITS_MAX]; /* what each waits for */
    uint32_t deferred;
    uint64_t seed;
    uint64_t woken;
};

static void wait_again(struct crowd *crowd, struct spw_waiter *waiter)
{
    spw_wakeup_wait(&crowd->wakeup, waiter, crowd->tag[waiter - crowd->waiter],
                    SPW_DECIDE_WAITS_MAX, FAR_NS + spw_bench_random(&crowd->seed) % FAR_NS);
}

static void crowd_close(struct crowd *crowd)
{
    spw_wakeup_fini(&crowd->wakeup);
    spw_wakeup_fini(&crowd->empty);
    spw_replica_fini(&crowd->replica);
    free(crowd->waiter);
    free(crowd->tag);
}

static int crowd_open(struct spw_bench_run *run, struct crowd *crowd)
{
    uint64_t chunks = spw_bench_size(run, CHUNKS, 4096);
    *crowd = (struct crowd){.seed = 88172645463325252ull};
    crowd->deferred = (uint32_t)spw_bench_size(run, DEFERRED, 200);
    crowd->waiter = calloc(crowd->deferred, sizeof *crowd->waiter);
    crowd->tag = calloc(crowd->deferred, sizeof *crowd->tag);
    int rc = crowd->waiter && crowd->tag ? 0 : -ENOMEM;
    if (rc == 0)
        rc = spw_replica_init(&crowd->replica, chunks, -1);
    if (rc == 0)
        rc = spw_wakeup_init(&crowd->wakeup);
    if (rc == 0)
        rc = spw_wakeup_init(&crowd->empty);
    if (rc == 0)
        rc = spw_wakeup_room(&crowd->wakeup, crowd->deferred);
    for (uint64_t i = 0; rc == 0 && i < chunks / 2; i++)
        rc = spw_replica_put(&crowd->replica, spw_bench_random(&crowd->seed), SPW_REPLICA_READY);
    for (uint32_t i = 0; rc == 0 && i < crowd->deferred; i++) {
        for (uint32_t t = 0; t < SPW_DECIDE_WAITS_MAX; t++)
            crowd->tag[i][t] = spw_bench_random(&crowd->seed);
        wait_again(crowd, &crowd->waiter[i]);
    }
    return rc;
}

/* Half of them watched, by waiters far apart from each other. */
static void make_news(struct crowd *crowd, uint64_t *news)
{
    uint32_t first = (uint32_t)(spw_bench_random(&crowd->seed) % crowd->deferred);
    for (uint32_t n = 0; n < NEWS; n++)
        news[n] = n % 2 ? crowd->tag[(first + n * 151) % crowd->deferred][n % SPW_DECIDE_WAITS_MAX]
                        : spw_bench_random(&crowd->seed);
}

/* Nanoseconds of one step; -1: no room in the replica. */
static double time_step(struct crowd *crowd, struct spw_wakeup *wakeup, const uint64_t *news,
                        uint32_t count)
{
    struct spw_waiter *waiter;
    int old = 0;
    uint64_t begin = spw_bench_now_ns();
    for (uint32_t n = 0; n < count; n++)
        spw_replica_prefetch(&crowd->replica, news[n]);
    for (uint32_t n = 0; n < count && old >= 0; n++) {
        old = spw_replica_set(&crowd->replica, news[n], 0, SPW_REPLICA_PENDING);
        spw_wakeup_record(wakeup, news[n]);
    }
    spw_wakeup_due(wakeup, begin);
    while ((waiter = spw_wakeup_next(wakeup))) {
        wait_again(crowd, waiter);
        crowd->woken++;
    }
    double ns = (double)(spw_bench_now_ns() - begin);
    for (uint32_t n = 0; n < count; n++)
        spw_replica_set(&crowd->replica, news[n], 0, SPW_REPLICA_ABSENT);
    return old < 0 ? -1 : ns;
}

static int bench_steps(struct spw_bench_run *run, struct crowd *crowd, const char *name,
                       uint32_t count)
{
    static struct spw_bench_series ours, theirs;
    uint64_t news[NEWS], steps = spw_bench_size(run, 2000, 20);
    ours.count = theirs.count = 0;
    crowd->woken = 0;
    if (!spw_bench_wants(run, "wakeup", name))
        return 0;
    for (uint64_t i = 0; i < steps; i++) {
        make_news(crowd, news);
        double without = time_step(crowd, &crowd->empty, news, count);
        double with = time_step(crowd, &crowd->wakeup, news, count);
        if (without < 0 || with < 0)
            return -ENOSPC;
        spw_bench_add(&theirs, without);
        spw_bench_add(&ours, with);
    }
    if (crowd->woken != steps * count / 2)
        return -EBADMSG;
    spw_bench_report(
        run, &(struct spw_bench_line){"wakeup", name, "ns", &ours, "none deferred", &theirs});
    return 0;
}

/* Records that nobody watches, told to @wakeup: ns each. */
static double time_records(struct spw_wakeup *wakeup, const uint64_t *tag, uint32_t count)
{
    uint64_t begin = spw_bench_now_ns();
    for (uint32_t i = 0; i < count; i++)
        spw_wakeup_record(wakeup, tag[i]);
    return (double)(spw_bench_now_ns() - begin) / count;
}

static int bench_unwatched(struct spw_bench_run *run, struct crowd *crowd)
{
    static struct spw_bench_series ours, theirs;
    static uint64_t tag[4096];
    const uint32_t count = sizeof tag / sizeof tag[0];
    ours.count = theirs.count = 0;
    if (!spw_bench_wants(run, "wakeup", "record_unwatched"))
        return 0;
    for (uint64_t i = 0; i < spw_bench_size(run, 500, 5); i++) {
        for (uint32_t t = 0; t < count; t++)
            tag[t] = spw_bench_random(&crowd->seed);
        spw_bench_add(&theirs, time_records(&crowd->empty, tag, count));
        spw_bench_add(&ours, time_records(&crowd->wakeup, tag, count));
    }
    if (spw_wakeup_next(&crowd->wakeup) || spw_wakeup_next(&crowd->empty))
        return -EBADMSG;
    spw_bench_report(run, &(struct spw_bench_line){"wakeup", "record_unwatched", "ns", &ours,
                                                   "none deferred", &theirs});
    return 0;
}

int spw_bench_wakeup(struct spw_bench_run *run)
{
    struct crowd crowd;
    if (!spw_bench_wants(run, "wakeup", "10000_deferred") &&
        !spw_bench_wants(run, "wakeup", "10000_deferred_no_news") &&
        !spw_bench_wants(run, "wakeup", "record_unwatched"))
        return 0;
    int rc = crowd_open(run, &crowd);
    if (rc == 0)
        rc = bench_steps(run, &crowd, "10000_deferred", NEWS);
    if (rc == 0)
        rc = bench_steps(run, &crowd, "10000_deferred_no_news", 0);
    if (rc == 0)
        rc = bench_unwatched(run, &crowd);
    if (rc < 0)
        fprintf(stderr, "spw-bench: wakeup: failed (%d)\n", rc);
    crowd_close(&crowd);
    return rc;
}
