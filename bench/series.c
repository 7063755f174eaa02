/* Samples and random numbers: see bench.h. Apart from the harness, for programs that print otherwise. */
#include "bench/bench.h"

#include <math.h>
#include <stdlib.h>

void spw_bench_add(struct spw_bench_series *series, double value)
{
    if (series->count < SPW_BENCH_SAMPLES_MAX)
        series->value[series->count++] = value;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double spw_bench_percentile(struct spw_bench_series *series, double share)
{
    if (!series->count)
        return 0;
    qsort(series->value, series->count, sizeof series->value[0], by_value);
    uint32_t rank = (uint32_t)ceil(share * series->count);
    return series->value[rank ? rank - 1 : 0];
}

uint64_t spw_bench_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}
