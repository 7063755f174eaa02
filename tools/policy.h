#ifndef SPW_TOOLS_POLICY_H
#define SPW_TOOLS_POLICY_H
/*
 * Policies that a replay compares: what a request does about chunks that are still being stored.
 *
 *   always-wait            wait for them, whatever it costs
 *   budget:N               compute up to N tokens rather than wait
 *   auto                   wait while that is worth it: at most `price` nanoseconds for each one of
 *                          prefill that it saves
 *   awaited, awaited+...   and what somebody waits for is stored first
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sched/spillway.h"

#define SPW_POLICY_NAME_BYTES 48
#define SPW_POLICY_PRICE      4u /* of auto, unless told otherwise */
#define SPW_POLICIES_COMPARED 8

struct spw_policy {
    int64_t budget_tokens; /* 0 always waits; SPW_RECOMPUTE_AUTO */
    uint32_t price;        /* of auto; SPW_PRICE_QUEUE */
    bool awaited;
    char name[SPW_POLICY_NAME_BYTES];
};

/** Fill in the name of @policy from its other fields. */
void spw_policy_name(struct spw_policy *policy);

/** The policies that --compare runs, in its order; budgets are chunks of @chunk_tokens. */
void spw_policy_list(uint32_t chunk_tokens, struct spw_policy out_policies[SPW_POLICIES_COMPARED]);

#endif
