#ifndef SPW_TESTS_SUPPORT_EXPLAINED_H
#define SPW_TESTS_SUPPORT_EXPLAINED_H
/* A decision's record number @n, whose fields all differ from each other and from other records'. */
#include "sched/explain.h"
#include "sched/verdict.h"

static inline struct spw_explained explained_stamp(uint64_t n)
{
    uint64_t x = n * 0x9e3779b97f4a7c15ull + 1;
    return (struct spw_explained){
        .time_ns = x,
        .tag = x + 1,
        .request = x + 2,
        .step = x + 3,
        .computed_tokens = x + 4,
        .hit_tokens = x + 5,
        .recomputed_tokens = x + 6,
        .chunk = x + 7,
        .eta_ns = x + 8,
        .waited_ns = x + 9,
        .tail_boundary = x + 10,
        .budget_tokens = x + 11,
        .group = (uint32_t)(n % SPW_GROUP_COUNT_MAX),
        .space = (uint32_t)(n % SPW_SPACES_MAX),
        .action = (uint8_t)(n % 3),
        .reason = (uint8_t)(n % SPW_REASON_COUNT),
        .flags = (uint8_t)n,
    };
}

#endif
