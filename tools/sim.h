#ifndef SPW_TOOLS_SIM_H
#define SPW_TOOLS_SIM_H
/*
 * A replay under a virtual clock, in one process: the engines of tools/engine.h, each with a GPU
 * prefix cache, over the pool of tools/sim_pool.h. What a request does is decided by spw_decide()
 * and stores are ordered by tier/queue, the code of the real pool; bytes don't exist.
 *
 * Time moves from event to event, in whole nanoseconds: a request comes, a prefill, a copy or a
 * load ends. All that is due at a moment is done first; then every engine with news takes a step;
 * then the idle store streams start on what is next. The same trace and configuration give the same
 * result on every machine.
 *
 *   lookup    when the server takes the request, with what the GPU holds as computed tokens
 *   deferral  until all chunks that it waits for are ready, or the load that it waits for has ended
 *   load      of all chunks of the hit, at the load rate, beside everything else
 *   store     after prefill every full chunk that nobody has, head first, to the engine's worker;
 *             where its shard has no room the rest of the prompt is skipped
 *   GPU       holds a prompt's full chunks from the end of its prefill on, a load's from its end on.
 *             Those that a request counts on may be given up before its prefill ends; the model
 *             doesn't mind
 */
#include "tools/arrivals.h"
#include "tools/policy.h"
#include "tools/report.h"
#include "tools/route.h"
#include "tools/trace.h"

struct spw_sim_config {
    struct spw_route route;    /* and how many engines */
    uint32_t workers;          /* 1..32; engine e stores by worker e modulo workers */
    uint32_t chunk_tokens;     /* the trace's block_tokens */
    uint64_t chunk_bytes;      /* nominal */
    uint64_t prefill_rate;     /* tokens a second of an engine, at least 1 */
    uint64_t store_rate;       /* bytes a second of a worker; 0: no limit */
    uint64_t load_rate;        /* of each load; 0: no limit */
    uint32_t capacity_chunks;  /* of a worker's shard */
    uint64_t gpu_cache_tokens; /* of an engine; 0: no prefix cache */
    uint64_t overtake_limit_ns;
    uint8_t scope; /* enum spw_recompute_scope */
    struct spw_policy policy;
    struct spw_arrivals_options arrivals;
};

/** Sums over all engines. */
struct spw_sim_result {
    uint64_t requests;
    uint64_t blocks;          /* of all prompts */
    uint64_t hit_blocks;      /* not computed: loaded, or on the GPU */
    uint64_t gpu_blocks;      /* of them, on the GPU */
    uint64_t resident_blocks; /* anywhere in the pool as their request was decided, or hit */
    uint64_t deferred_requests;
    uint64_t recomputed_tokens;
    uint64_t stored_chunks;
    uint64_t loaded_chunks;
    uint64_t skipped_chunks; /* offered without room */
    uint64_t evicted_chunks;
    uint64_t awaited_stores;    /* chunks copied that somebody awaited */
    uint64_t overtaking_stores; /* chunks copied before an older one */
    uint64_t waits_hit;         /* ended in a load of all that they were for */
    uint64_t waits_cut;         /* ended by giving up what was on its way */
    uint64_t decisions;
    int64_t store_busy_ns; /* of all streams */
    int64_t end_ns;        /* the last first token */
    struct spw_samples waits;
    struct spw_samples ttfts;
    struct spw_forecasts forecasts;
};

/**
 * Replay @trace, all of it.
 *
 * @out_result  filled by success only; end it with spw_sim_result_fini()
 *
 * Any thread. Returns 0, -ENOMEM, -EINVAL if the configuration's numbers are out of
 * range, -ERANGE if its rates make the trace too long for the clock.
 */
int spw_sim_run(const struct spw_trace *trace, const struct spw_sim_config *config,
                struct spw_sim_result *out_result);
void spw_sim_result_fini(struct spw_sim_result *result);

#endif
