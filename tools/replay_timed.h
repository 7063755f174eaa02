#ifndef SPW_TOOLS_REPLAY_TIMED_H
#define SPW_TOOLS_REPLAY_TIMED_H
/*
 * Timed replay, between its two halves: replay_timed.c has the clock, the scheduling steps and the
 * lookups; replay_moves.c the loads, the stores, and what comes of them. Private memory of one
 * engine process, one thread.
 */
#include "tools/engine.h"
#include "tools/gpu_cache.h"
#include "tools/replay.h"
#include "tools/replay_kv.h"

#define SPW_TIMED_JOBS 1024u /* under way at once, loads and stores together */

struct spw_timed_job {
    bool used;
    bool is_load;
    uint32_t request; /* index in timed.request */
    uint32_t count;
    uint64_t chunk[SPW_MAX_JOB_CHUNKS];
    uint32_t block[SPW_MAX_JOB_CHUNKS];
    uint64_t mask; /* store: chunks that are run */
};

struct spw_timed_request {
    const struct spw_trace_request *traced;
    struct spw_request *request;
    uint32_t loads;  /* jobs under way */
    uint32_t stores; /* likewise       */
    bool load_failed;
    uint64_t load_end; /* chunks that are on the GPU once its load has ended */
    bool offers;       /* prompt is computed, chunks from `next` on may be offered */
    uint64_t next;
    uint32_t tries;
    bool named;                /* by spw_woken(), while some of [pends, pends_end) still pend */
    uint64_t pends, pends_end; /* deferred: chunks that it waits for */
};

struct spw_timed {
    const struct spw_replay_seat *seat;
    struct spw_replay_sums *sums;
    struct spw_engine engine;
    struct spw_gpu_cache gpu;
    struct spw_replay_kv kv;
    struct spw_timed_request *request; /* by engine index */
    uint32_t requests;                 /* of this engine in the trace */
    uint32_t arrived;
    uint32_t offer_first; /* requests before it have nothing to offer any more */
    struct spw_timed_job job[SPW_TIMED_JOBS];
    uint32_t jobs;
    uint8_t *verdicts; /* of the longest prompt */
};

/** The ids of a request's chunks. */
static inline const uint64_t *spw_timed_ids(const struct spw_timed *timed,
                                            const struct spw_timed_request *request)
{
    return timed->seat->trace->ids + request->traced->ids_off;
}

/**
 * Begin one job of a load: chunks of @decision from number @from on. Inside the decision's step.
 * Returns the chunks taken, 0 when there is no room now, or a negative errno.
 */
int spw_timed_load(struct spw_timed *timed, uint32_t index, const struct spw_decision *decision,
                   uint64_t from);

/** Offer what finished prompts still have to offer, as far as there is room. Inside a step. 0 or
 * -errno. */
int spw_timed_offer(struct spw_timed *timed);

/** Take in completions: run what was begun, verify what was loaded. 0 or -errno. */
int spw_timed_reap(struct spw_timed *timed);

#endif
