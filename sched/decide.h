#ifndef SPW_SCHED_DECIDE_H
#define SPW_SCHED_DECIDE_H
/*
 * Decision: what a waiting request should do now - load, compute, or be asked again - and why.
 *
 * Pure, as sched/lookup.h: the vectors, the fuzzers, the simulation, the benches and the service
 * all call this one function. What it answers holds for what the source told; keeping that true
 * until the load is taken is the step's and the pins' business.
 */
#include "sched/lookup.h"

#define SPW_DECIDE_WAITS_MAX 8

struct spw_decide_input {
    struct spw_lookup_input lookup;
    uint8_t scope;  /* enum spw_recompute_scope: whose loss budget_tokens bounds       */
    bool skip;      /* the request doesn't read cached prefixes                        */
    bool inflight;  /* a transfer of this request, load or store, is still in flight   */
    bool priced;    /* budget_tokens isn't used: what an unlimited budget would give up is
                      waited for only while that costs at most what computing it does, by
                      these two, both at least 1; scope is the request                */
    uint64_t price; /* of a second of prefill, in seconds of waiting                   */
    uint64_t prefill_tokens_per_s;
};

/** A chunk, or the object of a partial tail. */
struct spw_decide_wait {
    uint32_t group;
    uint64_t chunk;    /* its index in the group                                    */
    uint64_t boundary; /* 0; or the token at which the group's tail object ends     */
};

struct spw_decision_core {
    uint8_t action;             /* enum spw_action                                                */
    uint8_t reason;             /* enum spw_reason                                                */
    uint64_t hit_tokens;        /* load: tokens to load beyond the computed ones; else 0          */
    uint64_t tail_boundary;     /* load: the partial tail's end; 0 if none                        */
    uint64_t tokens_recomputed; /* load, miss: what the budget gave up, counted from the end of
                                   the result to where it would be had all writes ended; 0
                                   where that isn't known for a RETRY                         */
    int32_t group;  /* the group that decided, -1 if none did: ended the hit, was cut, missed, is
                       waited for                                                             */
    uint64_t chunk; /* and its chunk: not used any more, cut away, missing, waited for        */
    struct spw_chunk_range need[SPW_GROUPS_MAX]; /* load: chunks that must stay readable until
                       it ends, by group; with a tail each last one stands for its tail object;
                       else empty                                                             */
    uint64_t eta_ns;     /* until what is waited for is ready (defer for PENDING, TAIL_PENDING), or
                       what was given up (if tokens_recomputed); UINT64_MAX: not known; else 0 */
    uint32_t wait_count; /* defer for RETRY or PENDING: what is waited for, in wait[]; news about
                            any of these can change the answer                                */
    bool wait_more;      /* there are more than those listed                                  */
    struct spw_decide_wait wait[SPW_DECIDE_WAITS_MAX];
    struct spw_chunk_range await[SPW_GROUPS_MAX]; /* defer for RETRY or PENDING: all chunks that
                       read PENDING in here are waited for; begins and ends at such a one, empty
                       where there is none                                                    */
    uint64_t await_boundary; /* defer for TAIL_RETRY or TAIL_PENDING: those of the objects ending
                                here that read PENDING are waited for; 0: there is none       */
};

/**
 * Decide one request.
 *
 * @in            the caller's; its verdict bytes are working memory, written
 * @source        asked at most once a chunk and boundary; not at all if @in->skip or @in->inflight
 * @out_decision  untouched on failure
 *
 * Any thread; doesn't block, allocate or enter the kernel (if @source doesn't). Returns 0;
 * -EINVAL if counts contradict each other or exceed SPW_TOKENS_MAX, the scope is unknown, or
 * @in->priced comes with a price or rate of 0 or another scope than the request.
 */
int spw_decide(const struct spw_decide_input *in, struct spw_lookup_source *source,
               struct spw_decision_core *out_decision);

/** Names as metrics and vectors spell them; NULL for what is none. */
const char *spw_action_name(uint8_t action);
const char *spw_reason_name(uint8_t reason);

#endif
