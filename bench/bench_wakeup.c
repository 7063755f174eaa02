/*
 * Wake-ups: what a record costs that none of ten thousand deferred requests watches, when each of
 * them watches as much as it can. bench_deferred.c has whole steps.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "bench/bench.h"
#include "sched/wakeup.h"

#define DEFERRED 10000u
#define FAR_NS   (1ull << 62)

struct crowd {
    struct spw_wakeup wakeup, empty;
    struct spw_waiter *waiter;
    uint32_t deferred;
    uint64_t seed;
};

static void wait_for_any(struct crowd *crowd, struct spw_waiter *waiter)
{
    uint64_t tag[SPW_DECIDE_WAITS_MAX];
    for (uint32_t t = 0; t < SPW_DECIDE_WAITS_MAX; t++)
        tag[t] = spw_bench_random(&crowd->seed);
    spw_wakeup_wait(&crowd->wakeup, waiter, tag, SPW_DECIDE_WAITS_MAX,
                    FAR_NS + spw_bench_random(&crowd->seed) % FAR_NS);
}

static void crowd_close(struct crowd *crowd)
{
    spw_wakeup_fini(&crowd->wakeup);
    spw_wakeup_fini(&crowd->empty);
    free(crowd->waiter);
}

static int crowd_open(struct spw_bench_run *run, struct crowd *crowd)
{
    *crowd = (struct crowd){.seed = 88172645463325252ull};
    crowd->deferred = (uint32_t)spw_bench_size(run, DEFERRED, 200);
    crowd->waiter = calloc(crowd->deferred, sizeof *crowd->waiter);
    int rc = crowd->waiter ? 0 : -ENOMEM;
    if (rc == 0)
        rc = spw_wakeup_init(&crowd->wakeup);
    if (rc == 0)
        rc = spw_wakeup_init(&crowd->empty);
    if (rc == 0)
        rc = spw_wakeup_room(&crowd->wakeup, crowd->deferred);
    for (uint32_t i = 0; rc == 0 && i < crowd->deferred; i++)
        wait_for_any(crowd, &crowd->waiter[i]);
    return rc;
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
    if (!spw_bench_wants(run, "wakeup", "record_unwatched"))
        return 0;
    int rc = crowd_open(run, &crowd);
    if (rc == 0)
        rc = bench_unwatched(run, &crowd);
    if (rc < 0)
        fprintf(stderr, "spw-bench: wakeup: failed (%d)\n", rc);
    crowd_close(&crowd);
    return rc;
}
