#ifndef SPW_TOOLS_WORKLOAD_H
#define SPW_TOOLS_WORKLOAD_H
/*
 * A made-up workload to replay where no trace is at hand: people in conversations.
 *
 * Everyone talks to one of a few assistants, each with a system prompt of its own that all its
 * conversations share. A conversation has several turns; each sends the whole context again, grown
 * by the last answer and a new message, after some time to think. Now and then a long document
 * comes up, and several people ask about it shortly after one another: that is where requests meet
 * chunks whose stores are still on their way.
 *
 * The same parameters give the same trace on every machine: whole numbers only, no libm.
 */
#include <stdint.h>

#include "tools/trace.h"

#define SPW_WORKLOAD_DURATION_NS_MIN  1000000000ull
#define SPW_WORKLOAD_DURATION_NS_MAX  86400000000000ull
#define SPW_WORKLOAD_TOKENS_PER_S_MAX 10000000ull

/**
 * What to make. The defaults fit 4 engines that prefill 8,000 tokens a second each, with 327,680
 * bytes of KV a token and 2 GB/s of store rate a worker: 93 % of what the store streams can take,
 * some 80 % of the engines' time. They last 15 minutes, so a minute when replayed 15 times as fast.
 */
struct spw_workload {
    uint64_t seed;
    uint64_t duration_ns;      /* of arrivals, a second to a day */
    uint64_t new_tokens_per_s; /* that no earlier request had, all engines together */
    uint32_t block_tokens;     /* at least 1 */
    uint32_t assistants;       /* system prompts, at least 1 */
    uint32_t document_percent; /* conversations about a document, 0..100 */
    uint32_t readers_max;      /* people who ask about one document, at least 1 */
    uint32_t turns_max;        /* of a conversation, at least 1 */
};

#define SPW_WORKLOAD_DEFAULT                                                                       \
    ((struct spw_workload){.seed = 1,                                                              \
                           .duration_ns = 900000000000ull,                                         \
                           .new_tokens_per_s = 22600,                                              \
                           .block_tokens = SPW_TRACE_BLOCK_TOKENS,                                 \
                           .assistants = 8,                                                        \
                           .document_percent = 20,                                                 \
                           .readers_max = 6,                                                       \
                           .turns_max = 10})

/**
 * Make the workload. @out_trace is filled by success only; end it with spw_trace_fini().
 *
 * Returns 0, -EINVAL if a parameter is out of range or no request came out, -ENOMEM.
 */
int spw_trace_generate(const struct spw_workload *workload, struct spw_trace *out_trace);

#endif
