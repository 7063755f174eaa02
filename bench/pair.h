#ifndef SPW_BENCH_PAIR_H
#define SPW_BENCH_PAIR_H
/*
 * Two pinned threads, and the physics between them: the cache-line round trip, a cheap clock.
 */
#include <pthread.h>
#include <stdint.h>

#include "shm/atomic.h"
#include "shm/base.h"

/** The other thread of a measurement, on the second CPU. */
struct spw_bench_partner {
    pthread_t thread;
    void (*run)(void *ctx);
    void *ctx;
};

/** Pins the caller to the first CPU and starts @run on the second. -ENODEV with one CPU only. */
int spw_bench_partner_start(struct spw_bench_partner *partner, void (*run)(void *ctx), void *ctx);
void spw_bench_partner_join(struct spw_bench_partner *partner);

/** Median of one cache line's round trip between the two CPUs, ns. Negative: -errno. */
double spw_bench_round_trip_ns(uint32_t rounds);

/** Ticks of the time-stamp counter, ordered; and how many make a nanosecond. */
uint64_t spw_bench_ticks(void);
double spw_bench_ticks_per_ns(void);

#endif
