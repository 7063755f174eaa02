/* See check.h. */
#include "bench/gpu/check.h"

#include <stdlib.h>
#include <string.h>

#include "bench/bench.h"

int check_driver(struct check *check, CUresult result, const char *what)
{
    if (result == CUDA_SUCCESS)
        return 0;
    return spw_fail(&check->err, spw_driver_errno(result), "%s: %s", what,
                    spw_driver_word(&check->gpu->driver, result));
}

int check_time(const struct check *check)
{
    return spw_monotonic_ns() < check->until_ns ? 0 : -ETIME;
}

void check_fill(uint8_t *bytes, uint64_t count, uint64_t seed)
{
    uint64_t word = seed * 0x9e3779b97f4a7c15u | 1;
    for (uint64_t i = 0; i < count; i += sizeof word) {
        spw_bench_random(&word);
        memcpy(bytes + i, &word, count - i < sizeof word ? count - i : sizeof word);
    }
}

int check_choose(struct check *check, uint32_t *ids, uint32_t count, uint32_t of)
{
    uint32_t *all = malloc(of * sizeof *all);
    if (!all)
        return spw_fail(&check->err, -ENOMEM, "no memory for %u block ids", of);
    for (uint32_t i = 0; i < of; i++)
        all[i] = i;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t j = i + (uint32_t)(spw_bench_random(&check->random) % (of - i));
        ids[i] = all[j];
        all[j] = all[i];
    }
    free(all);
    return 0;
}
