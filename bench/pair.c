/* See pair.h. */
#include "bench/pair.h"

#include <stdlib.h>

#include "bench/bench.h"

static void *start(void *arg)
{
    struct spw_bench_partner *partner = arg;
    if (!spw_bench_pin(1))
        abort(); /* checked before the thread was made */
    partner->run(partner->ctx);
    return NULL;
}

int spw_bench_partner_start(struct spw_bench_partner *partner, void (*run)(void *ctx), void *ctx)
{
    if (!spw_bench_pin(1))
        return -ENODEV;
    spw_bench_pin(0);
    partner->run = run;
    partner->ctx = ctx;
    return -pthread_create(&partner->thread, NULL, start, partner);
}

void spw_bench_partner_join(struct spw_bench_partner *partner)
{
    pthread_join(partner->thread, NULL);
}

struct line {
    alignas(64) spw_atomic64 word;
    uint8_t gap[56];
    uint32_t rounds;
};

static void echo(void *ctx)
{
    struct line *line = ctx;
    for (uint64_t i = 1; i <= line->rounds; i++) {
        while (spw_load_acquire(&line->word) != 2 * i - 1)
            ;
        spw_store_release(&line->word, 2 * i);
    }
}

double spw_bench_round_trip_ns(uint32_t rounds)
{
    static struct line line;
    static struct spw_bench_series trips;
    struct spw_bench_partner partner;
    const uint32_t group = 16; /* round trips a sample: the clock's own cost fades */
    rounds = rounds / group * group;
    trips.count = 0;
    line.rounds = rounds;
    spw_store_relaxed(&line.word, 0); /* before the partner starts */
    int status = spw_bench_partner_start(&partner, echo, &line);
    if (status)
        return status;
    for (uint64_t i = 1; i <= rounds;) {
        uint64_t begin = spw_bench_now_ns();
        for (uint32_t j = 0; j < group; j++, i++) {
            spw_store_release(&line.word, 2 * i - 1);
            while (spw_load_acquire(&line.word) != 2 * i)
                ;
        }
        spw_bench_add(&trips, (double)(spw_bench_now_ns() - begin) / group);
    }
    spw_bench_partner_join(&partner);
    return spw_bench_percentile(&trips, 0.5);
}

uint64_t spw_bench_ticks(void)
{
#if defined(__x86_64__)
    __builtin_ia32_lfence();
    uint64_t ticks = __builtin_ia32_rdtsc();
    __builtin_ia32_lfence();
    return ticks;
#else
    return spw_bench_now_ns();
#endif
}

double spw_bench_ticks_per_ns(void)
{
    static double known;
    if (known == 0) {
        uint64_t ns = spw_bench_now_ns(), ticks = spw_bench_ticks();
        while (spw_bench_now_ns() - ns < 50000000)
            ;
        known = (double)(spw_bench_ticks() - ticks) / (double)(spw_bench_now_ns() - ns);
    }
    return known;
}
