#ifndef SPW_TOOLS_ENGINE_H
#define SPW_TOOLS_ENGINE_H
/*
 * A model of one engine for the replay: one prefill server, first come first served.
 *
 * No I/O and no clock in here; whoever drives it passes the time in, does the lookups, loads and
 * stores, and tells how they ended. Times are nanoseconds of the trace. A scheduling step:
 *
 *   spw_engine_wake(e, index, now)                   a deferred request's chunks are ready
 *   spw_engine_step(e)
 *   while (spw_engine_next(e, now, &index))          oldest first, each at most once a step
 *       look the request up, then spw_engine_decided(e, index, now, &decision)
 *
 *   state      waits for                 becomes
 *   WAITING    its turn                  DEFERRED by DEFER, LOADING by LOAD, PREFILL by MISS
 *   DEFERRED   its chunks, then its turn LOADING by LOAD, PREFILL by MISS, WAITING by BUSY
 *   LOADING    its load                  LOADED, or WAITING when the load failed
 *   LOADED     a free server             PREFILL
 *   PREFILL    the server's work         DONE
 *
 * The server takes the oldest request that can go on. A deferred one gives up its turn but not its
 * place, and is asked again once it was woken. Loads don't hold the server: while one runs, younger
 * requests are looked up and prefilled. Nothing is looked up while the server works. A prefill
 * takes the tokens that are neither on the GPU nor loaded, at least one, divided by the rate; its
 * end is the first token. What the GPU holds is the caller's to know: tools/gpu_cache.h.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tools/report.h"

enum spw_engine_state {
    SPW_ENGINE_WAITING,
    SPW_ENGINE_DEFERRED,
    SPW_ENGINE_LOADING,
    SPW_ENGINE_LOADED,
    SPW_ENGINE_PREFILL,
    SPW_ENGINE_DONE,
};

enum spw_engine_answer {
    SPW_ENGINE_LOAD,  /* hit_tokens are being loaded now */
    SPW_ENGINE_MISS,  /* nothing to load: prefill what isn't on the GPU */
    SPW_ENGINE_DEFER, /* wait for what is on its way */
    SPW_ENGINE_BUSY,  /* it could be loaded, but there is no room now: ends the step */
};

struct spw_engine_decision {
    enum spw_engine_answer answer;
    uint32_t computed_tokens;  /* on the GPU at its last decision */
    uint32_t hit_tokens;       /* of a LOAD, beyond these; together at most the request's */
    uint32_t recompute_tokens; /* given up though they were on their way (LOAD, MISS) */
    bool pends;                /* DEFER: for chunks that are being stored ... */
    uint64_t eta_ns;           /* ... until all of them are, or SPW_FORECAST_UNKNOWN */
};

struct spw_engine_request {
    uint64_t tag; /* the caller's, not looked at */
    int64_t arrival_ns;
    int64_t deferred_ns; /* first deferral of the wait that runs */
    int64_t woken_ns;    /* the last time */
    uint64_t eta_ns;     /* told at that deferral, if has_eta */
    uint32_t input_tokens;
    uint32_t computed_tokens;
    uint32_t hit_tokens;
    uint32_t recompute_tokens;
    enum spw_engine_state state;
    bool was_deferred;
    bool woken;              /* DEFERRED, and to be asked again */
    bool has_eta;            /* the wait that runs began for chunks that are being stored */
    uint32_t older, younger; /* in the queue of those that aren't DONE */
};

struct spw_engine {
    struct spw_engine_request *requests; /* in order of arrival */
    uint32_t request_count;
    uint32_t request_room;
    uint64_t prefill_rate; /* tokens a second */
    uint32_t oldest;       /* queue, or SPW_ENGINE_NONE */
    uint32_t youngest;
    uint32_t queued;        /* requests that aren't DONE */
    uint32_t cursor;        /* next in this step's walk */
    uint32_t asking;        /* handed out by next, not yet decided */
    uint32_t serving;       /* in PREFILL */
    int64_t prefill_end_ns; /* of the one in PREFILL */

    struct spw_samples waits; /* one a wait: first deferral to the first answer that isn't DEFER */
    struct spw_samples ttfts; /* one a request */
    struct spw_forecasts forecasts; /* of waits for stores that ended in a load of all */
    uint64_t waits_hit;             /* that ended in a load of all */
    uint64_t waits_cut;             /* that ended by giving up what was on its way */
    uint64_t done_requests;
    uint64_t deferred_requests; /* at least once */
    uint64_t hit_tokens;        /* of LOADs that ended well */
    uint64_t recomputed_tokens;
    uint64_t prefilled_tokens;
};

#define SPW_ENGINE_NONE UINT32_MAX

/** Start an idle engine that prefills @prefill_rate tokens a second, at least 1. */
void spw_engine_init(struct spw_engine *engine, uint64_t prefill_rate);
void spw_engine_fini(struct spw_engine *engine);

/**
 * Take in a request; requests come in order of arrival. @input_tokens is at least 1.
 *
 * Returns 0 and its index in @out_index (may be NULL), or -ENOMEM.
 */
int spw_engine_arrive(struct spw_engine *engine, uint64_t tag, int64_t arrival_ns,
                      uint32_t input_tokens, uint32_t *out_index);

/** What @index waits for is there: if it is DEFERRED, it is asked again from the next step on. */
void spw_engine_wake(struct spw_engine *engine, uint32_t index, int64_t now_ns);

/** Begin a step: the walk starts at the oldest request again. */
void spw_engine_step(struct spw_engine *engine);

/**
 * The next request to look up in this step; false when the step is over: the server works, or
 * everyone with news was asked. A request whose load has ended is put on the server on the way.
 */
bool spw_engine_next(struct spw_engine *engine, int64_t now_ns, uint32_t *out_index);

/** Say how the lookup of the request handed out last went. Returns 0 or -ENOMEM. */
int spw_engine_decided(struct spw_engine *engine, uint32_t index, int64_t now_ns,
                       const struct spw_engine_decision *decision);

/** The load of @index has ended, all of it. */
void spw_engine_loaded(struct spw_engine *engine, uint32_t index);

/** The load of @index failed: the request waits in its old place to be looked up anew. */
void spw_engine_load_failed(struct spw_engine *engine, uint32_t index);

/**
 * Whether the prefill on the server has ended by @now_ns. If so the request is DONE, its index goes
 * to @out_index, and all its full chunks are on the GPU and may be stored. Returns 1, 0, or -ENOMEM.
 */
int spw_engine_prefilled(struct spw_engine *engine, int64_t now_ns, uint32_t *out_index);

/** When the prefill on the server ends; INT64_MAX if the server is free. */
int64_t spw_engine_next_end(const struct spw_engine *engine);

/** Requests that wait for the server, besides the one that is asked or served. */
uint32_t spw_engine_waiting(const struct spw_engine *engine);

/** Whether every request that arrived is DONE. */
bool spw_engine_is_idle(const struct spw_engine *engine);

const char *spw_engine_state_name(enum spw_engine_state state);

#endif
