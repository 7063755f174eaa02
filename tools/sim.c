/* A replay under a virtual clock; see sim.h. */
#include "tools/sim.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "sched/decide.h"
#include "tools/engine.h"
#include "tools/gpu_cache.h"
#include "tools/sim_pool.h"

#define SECOND_NS 1000000000u
#define LONGEST_S 1e9 /* of a run, lest its nanoseconds overflow: 31 years */

/* A load under way: chunks first..end-1 of a request. */
struct load {
    int64_t end_ns;
    uint32_t request;
    uint32_t first, end;
    uint32_t waiters; /* 1 + request, a list: of the same engine, deferred until it has ended */
};

struct sim_request {
    uint32_t engine;
    uint32_t index;       /* in that engine */
    uint32_t awaited;     /* chunks that it waits for */
    uint32_t next_waiter; /* in a load's list */
};

struct sim_engine {
    struct spw_engine model;
    struct spw_gpu_cache gpu;
    bool news; /* a step may find something to do */
};

struct sim {
    const struct spw_trace *trace;
    const struct spw_sim_config *config;
    struct spw_sim_result *result;
    struct spw_arrivals arrivals;
    struct spw_sim_pool pool;
    struct spw_groups groups;
    struct sim_engine *engine;
    struct sim_request *request; /* by place in the trace */
    struct load *load;
    uint32_t loads, load_room;
    uint8_t *verdicts; /* of the longest prompt */
    int64_t now_ns;
};

static int64_t duration_ns(uint64_t bytes, uint64_t rate)
{
    unsigned __int128 ns = rate ? (unsigned __int128)bytes * SECOND_NS / rate : 0;

    return ns < INT64_MAX / 4 ? (int64_t)ns : INT64_MAX / 4;
}

static struct sim_engine *engine_of(struct sim *sim, uint32_t request)
{
    return &sim->engine[sim->request[request].engine];
}

static const uint64_t *ids_of(const struct sim *sim, uint32_t request)
{
    return sim->trace->ids + sim->trace->requests[request].ids_off;
}

static const uint32_t *chunks_of(const struct sim *sim, uint32_t request)
{
    return spw_sim_pool_chunks(&sim->pool, &sim->trace->requests[request]);
}

static void wake(struct sim *sim, uint32_t request)
{
    struct sim_engine *engine = engine_of(sim, request);

    spw_engine_wake(&engine->model, sim->request[request].index, sim->now_ns);
    engine->news = true;
}

/* ---- lookups --------------------------------------------------------------------------------- */

struct source {
    struct spw_lookup_source base;
    struct sim *sim;
    uint32_t request;
};

static void fetch(struct spw_lookup_source *base, uint32_t group, uint64_t first, uint64_t count,
                  uint8_t *out_verdicts)
{
    const struct source *source = (const struct source *)base;
    const uint32_t *chunks = chunks_of(source->sim, source->request);

    (void)group;
    for (uint64_t i = 0; i < count; i++)
        out_verdicts[i] = source->sim->pool.chunk[chunks[first + i]].verdict;
}

/* The lowest of chunks first..end-1 that @load brings: ids are chained, so equal ones are at equal
 * places, and where one is equal all before it are. */
static uint64_t loaded_by(const struct sim *sim, const struct load *load, uint32_t request,
                          uint64_t first, uint64_t end)
{
    uint64_t lowest = first > load->first ? first : load->first;

    if (lowest >= end || lowest >= load->end ||
        chunks_of(sim, load->request)[lowest] != chunks_of(sim, request)[lowest])
        return end;
    return lowest;
}

static uint64_t loading(struct spw_lookup_source *base, uint32_t group, uint64_t first,
                        uint64_t end)
{
    const struct source *source = (const struct source *)base;
    const struct sim *sim = source->sim;
    uint64_t lowest = end;

    (void)group;
    for (uint32_t i = 0; i < sim->loads; i++)
        if (sim->request[sim->load[i].request].engine == sim->request[source->request].engine)
            lowest = loaded_by(sim, &sim->load[i], source->request, first, lowest);
    return lowest;
}

static uint64_t eta(struct spw_lookup_source *base, uint32_t group, uint64_t first, uint64_t end)
{
    const struct source *source = (const struct source *)base;

    (void)group;
    return spw_sim_pool_eta(&source->sim->pool, chunks_of(source->sim, source->request) + first,
                            (uint32_t)(end - first), source->sim->now_ns);
}

static void set_policy(const struct sim *sim, const struct spw_engine *engine,
                       struct spw_decide_input *in)
{
    const struct spw_policy *policy = &sim->config->policy;

    in->scope = sim->config->scope;
    if (policy->budget_tokens != SPW_RECOMPUTE_AUTO) {
        in->lookup.budget_tokens = (uint64_t)policy->budget_tokens;
        return;
    }
    in->priced = true;
    in->price = policy->price == SPW_PRICE_QUEUE ? 1 + spw_engine_waiting(engine) : policy->price;
    in->prefill_tokens_per_s = sim->config->prefill_rate;
}

static int look_up(struct sim *sim, uint32_t request, uint32_t computed_chunks,
                   struct spw_decision_core *out)
{
    const struct spw_engine *engine = &engine_of(sim, request)->model;
    const struct spw_trace_request *traced = &sim->trace->requests[request];
    uint32_t tokens = engine->requests[sim->request[request].index].input_tokens;
    struct source source = {.base = {.fetch = fetch, .eta = eta}, .sim = sim, .request = request};
    struct spw_decide_input in = {
        .lookup = {.groups = &sim->groups,
                   .num_tokens = tokens,
                   .num_prompt_tokens = tokens,
                   .num_computed_tokens = (uint64_t)computed_chunks * sim->config->chunk_tokens,
                   .chunks[0] = {.count = traced->full_count, .verdicts = sim->verdicts}}};

    if (sim->config->gpu_cache_tokens)
        source.base.loading = loading;
    set_policy(sim, engine, &in);
    sim->result->decisions++;
    return spw_decide(&in, &source.base, out);
}

/* ---- what follows from a decision ------------------------------------------------------------ */

/* Be woken by the end of the load that brings @chunk. */
static void wait_for_load(struct sim *sim, uint32_t request, uint64_t chunk)
{
    for (uint32_t i = 0; i < sim->loads; i++) {
        struct load *load = &sim->load[i];

        if (engine_of(sim, load->request) != engine_of(sim, request) ||
            loaded_by(sim, load, request, chunk, chunk + 1) != chunk)
            continue;
        sim->request[request].next_waiter = load->waiters;
        load->waiters = 1 + request;
        return;
    }
    assert(!"a load that was found is under way");
}

static int wait_for_stores(struct sim *sim, uint32_t request, struct spw_chunk_range range)
{
    const uint32_t *chunks = chunks_of(sim, request);

    for (uint64_t i = range.first; i < range.end; i++) {
        if (sim->pool.chunk[chunks[i]].verdict != SPW_PENDING)
            continue;
        if (spw_sim_pool_watch(&sim->pool, chunks[i], request) < 0)
            return -ENOMEM;
        sim->request[request].awaited++;
    }
    assert(sim->request[request].awaited > 0);
    return 0;
}

static int begin_load(struct sim *sim, uint32_t request, uint32_t first, uint32_t end)
{
    uint64_t bytes = (uint64_t)(end - first) * sim->config->chunk_bytes;

    if (sim->loads == sim->load_room) {
        uint32_t room = sim->load_room ? 2 * sim->load_room : 64;
        struct load *moved = realloc(sim->load, room * sizeof(*moved));

        if (!moved)
            return -ENOMEM;
        sim->load = moved;
        sim->load_room = room;
    }
    sim->load[sim->loads++] =
        (struct load){.end_ns = sim->now_ns + duration_ns(bytes, sim->config->load_rate),
                      .request = request,
                      .first = first,
                      .end = end};
    spw_sim_pool_pin(&sim->pool, chunks_of(sim, request) + first, end - first);
    return 0;
}

/* A request goes on: count what it found, and let the pool know what was used. */
static void settle(struct sim *sim, uint32_t request, uint32_t computed, uint32_t hit)
{
    const struct spw_trace_request *traced = &sim->trace->requests[request];
    const uint32_t *chunks = chunks_of(sim, request);

    sim->result->hit_blocks += computed + hit;
    sim->result->gpu_blocks += computed;
    sim->result->resident_blocks += computed;
    for (uint32_t i = computed; i < traced->full_count; i++)
        sim->result->resident_blocks += sim->pool.chunk[chunks[i]].verdict == SPW_HIT;
    spw_sim_pool_touch(&sim->pool, chunks, traced->full_count);
}

static int carry_out(struct sim *sim, uint32_t request, uint32_t computed,
                     const struct spw_decision_core *decision, struct spw_engine_decision *out)
{
    uint32_t hit = (uint32_t)decision->hit_tokens / sim->config->chunk_tokens;

    out->computed_tokens = computed * sim->config->chunk_tokens;
    if (decision->action == SPW_ACTION_DEFER) {
        out->answer = SPW_ENGINE_DEFER;
        out->pends = decision->reason != SPW_REASON_LOADING;
        out->eta_ns = decision->eta_ns;
        if (out->pends)
            return wait_for_stores(sim, request, decision->await[0]);
        wait_for_load(sim, request, decision->chunk);
        return 0;
    }
    out->answer = SPW_ENGINE_MISS;
    out->recompute_tokens = (uint32_t)decision->tokens_recomputed;
    settle(sim, request, computed, hit);
    if (decision->action != SPW_ACTION_LOAD)
        return 0;
    out->answer = SPW_ENGINE_LOAD;
    out->hit_tokens = (uint32_t)decision->hit_tokens;
    return begin_load(sim, request, computed, computed + hit);
}

static int step(struct sim *sim, struct sim_engine *engine)
{
    uint32_t index;

    engine->news = false;
    spw_engine_step(&engine->model);
    while (spw_engine_next(&engine->model, sim->now_ns, &index)) {
        uint32_t request = (uint32_t)engine->model.requests[index].tag;
        uint32_t computed = spw_gpu_cache_match(&engine->gpu, ids_of(sim, request),
                                                sim->trace->requests[request].full_count);
        struct spw_engine_decision decided = {.answer = SPW_ENGINE_MISS};
        struct spw_decision_core decision;
        int status = look_up(sim, request, computed, &decision);

        if (!status)
            status = carry_out(sim, request, computed, &decision, &decided);
        if (!status)
            status = spw_engine_decided(&engine->model, index, sim->now_ns, &decided);
        if (status < 0)
            return status;
    }
    return 0;
}

/* ---- events ---------------------------------------------------------------------------------- */

static int arrive(struct sim *sim)
{
    struct spw_arrival arrival;

    while (spw_arrivals_take(&sim->arrivals, sim->now_ns, &arrival)) {
        const struct spw_trace_request *traced = &sim->trace->requests[arrival.request];
        struct sim_request *request = &sim->request[arrival.request];
        struct sim_engine *engine;
        int status;

        request->engine = spw_route_engine(&sim->config->route, arrival.request);
        engine = engine_of(sim, arrival.request);
        status =
            spw_engine_arrive(&engine->model, arrival.request, arrival.at_ns,
                              traced->input_tokens ? traced->input_tokens : 1, &request->index);
        if (status < 0)
            return status;
        engine->news = true;
        sim->result->requests++;
        sim->result->blocks += traced->full_count;
    }
    return 0;
}

/* The prompt is computed: the GPU holds it, and what nobody has is offered. */
static void offer(struct sim *sim, uint32_t request)
{
    const struct spw_trace_request *traced = &sim->trace->requests[request];
    const uint32_t *chunks = chunks_of(sim, request);
    uint32_t worker = sim->request[request].engine % sim->config->workers;
    uint32_t before = SPW_SIM_NONE;
    bool room = true;

    spw_gpu_cache_use(&engine_of(sim, request)->gpu, ids_of(sim, request), traced->full_count);
    for (uint32_t i = 0; i < traced->full_count; i++) {
        if (sim->pool.chunk[chunks[i]].verdict != SPW_MISS)
            continue;
        room = room && spw_sim_pool_offer(&sim->pool, worker, chunks[i], before, sim->now_ns);
        sim->result->skipped_chunks += !room;
        before = chunks[i];
    }
}

static int end_prefills(struct sim *sim)
{
    for (uint32_t e = 0; e < sim->config->route.engines; e++) {
        struct sim_engine *engine = &sim->engine[e];
        uint32_t index, request;
        int ended = spw_engine_prefilled(&engine->model, sim->now_ns, &index);

        if (ended < 0)
            return ended;
        if (ended == 0)
            continue;
        request = (uint32_t)engine->model.requests[index].tag;
        offer(sim, request);
        spw_arrivals_answered(&sim->arrivals, request, sim->now_ns);
        engine->news = true;
    }
    return 0;
}

static void end_load(struct sim *sim, const struct load *load)
{
    struct sim_engine *engine = engine_of(sim, load->request);
    uint32_t waiter = load->waiters;

    spw_sim_pool_unpin(&sim->pool, chunks_of(sim, load->request) + load->first,
                       load->end - load->first);
    spw_gpu_cache_use(&engine->gpu, ids_of(sim, load->request), load->end);
    spw_engine_loaded(&engine->model, sim->request[load->request].index);
    sim->result->loaded_chunks += load->end - load->first;
    engine->news = true;
    for (; waiter != 0; waiter = sim->request[waiter - 1].next_waiter)
        wake(sim, waiter - 1);
}

static void end_loads(struct sim *sim)
{
    for (uint32_t i = 0; i < sim->loads;) {
        struct load load = sim->load[i];

        if (load.end_ns > sim->now_ns) {
            i++;
            continue;
        }
        sim->load[i] = sim->load[--sim->loads];
        end_load(sim, &load);
    }
}

static void stored(void *context, uint32_t request)
{
    struct sim *sim = context;

    if (--sim->request[request].awaited == 0)
        wake(sim, request);
}

static int handle_events(struct sim *sim)
{
    int status = arrive(sim);

    if (!status)
        status = end_prefills(sim);
    while (spw_sim_pool_end_copy(&sim->pool, sim->now_ns, stored, sim))
        ;
    end_loads(sim);
    for (uint32_t e = 0; !status && e < sim->config->route.engines; e++)
        if (sim->engine[e].news)
            status = step(sim, &sim->engine[e]);
    spw_sim_pool_start(&sim->pool, sim->now_ns);
    return status;
}

static int64_t earlier(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* When something is next due; INT64_MAX: never. */
static int64_t next_event(const struct sim *sim)
{
    int64_t next_ns =
        earlier(spw_arrivals_next_ns(&sim->arrivals), spw_sim_pool_next_end(&sim->pool));

    for (uint32_t e = 0; e < sim->config->route.engines; e++)
        next_ns = earlier(next_ns, spw_engine_next_end(&sim->engine[e].model));
    for (uint32_t i = 0; i < sim->loads; i++)
        next_ns = earlier(next_ns, sim->load[i].end_ns);
    return next_ns;
}

static bool all_done(const struct sim *sim)
{
    for (uint32_t e = 0; e < sim->config->route.engines; e++)
        if (!spw_engine_is_idle(&sim->engine[e].model))
            return false;
    return spw_arrivals_at_end(&sim->arrivals);
}

/* ---- begin and end --------------------------------------------------------------------------- */

static int sim_open_pool(struct sim *sim)
{
    const struct spw_sim_config *config = sim->config;
    struct spw_sim_pool_config pool = {
        .workers = config->workers,
        .capacity_chunks = config->capacity_chunks,
        .chunk_bytes = config->chunk_bytes,
        .copy_ns = duration_ns(config->chunk_bytes, config->store_rate),
        .overtake_limit_ns = config->overtake_limit_ns,
        .awaited_first = config->policy.awaited,
    };
    struct spw_group_shape shape = {.kind = SPW_GROUP_FULL, .block_tokens = config->chunk_tokens};
    int status = spw_groups_init(&sim->groups, config->chunk_tokens, 1, &shape, 1);

    return status ? status : spw_sim_pool_init(&sim->pool, sim->trace, &pool);
}

static int sim_open_engines(struct sim *sim)
{
    const struct spw_sim_config *config = sim->config;
    uint32_t gpu_chunks = (uint32_t)(config->gpu_cache_tokens / config->chunk_tokens);
    int status = 0;

    sim->engine = calloc(config->route.engines, sizeof(*sim->engine));
    for (uint32_t e = 0; sim->engine && !status && e < config->route.engines; e++) {
        spw_engine_init(&sim->engine[e].model, config->prefill_rate);
        status = spw_gpu_cache_init(&sim->engine[e].gpu, gpu_chunks);
    }
    return sim->engine ? status : -ENOMEM;
}

static int sim_open(struct sim *sim)
{
    uint32_t longest = 1;
    int status = sim_open_engines(sim);

    for (uint64_t i = 0; i < sim->trace->request_count; i++)
        if (sim->trace->requests[i].full_count > longest)
            longest = sim->trace->requests[i].full_count;
    sim->request = calloc(sim->trace->request_count + 1, sizeof(*sim->request));
    sim->verdicts = malloc(longest);
    if (!status && (!sim->request || !sim->verdicts))
        status = -ENOMEM;
    if (!status)
        status = sim_open_pool(sim);
    if (!status)
        status = spw_arrivals_init(&sim->arrivals, sim->trace, &sim->config->arrivals);
    return status;
}

static void sim_close(struct sim *sim)
{
    for (uint32_t e = 0; sim->engine && e < sim->config->route.engines; e++) {
        spw_engine_fini(&sim->engine[e].model);
        spw_gpu_cache_fini(&sim->engine[e].gpu);
    }
    free(sim->engine);
    free(sim->request);
    free(sim->load);
    free(sim->verdicts);
    spw_sim_pool_fini(&sim->pool);
    spw_arrivals_fini(&sim->arrivals);
}

static int take_results(struct sim *sim)
{
    struct spw_sim_result *result = sim->result;
    int status = 0;

    for (uint32_t e = 0; !status && e < sim->config->route.engines; e++) {
        struct spw_engine *engine = &sim->engine[e].model;

        result->deferred_requests += engine->deferred_requests;
        result->recomputed_tokens += engine->recomputed_tokens;
        result->waits_hit += engine->waits_hit;
        result->waits_cut += engine->waits_cut;
        status = spw_samples_merge(&result->waits, &engine->waits);
        if (!status)
            status = spw_forecasts_merge(&result->forecasts, &engine->forecasts);
        if (!status)
            status = spw_samples_merge(&result->ttfts, &engine->ttfts);
    }
    for (uint32_t k = 0; k < sim->config->workers; k++) {
        result->stored_chunks += sim->pool.stream[k].copied_chunks;
        result->awaited_stores += sim->pool.stream[k].awaited_copies;
        result->overtaking_stores += sim->pool.stream[k].overtaking_copies;
    }
    result->store_busy_ns = (int64_t)result->stored_chunks * sim->pool.config.copy_ns;
    result->evicted_chunks = sim->pool.evicted_chunks;
    result->end_ns = sim->now_ns;
    return status;
}

/* Seconds until the last chunk is computed, stored and loaded, one after the other, at most. */
static double longest_s(const struct spw_trace *trace, const struct spw_sim_config *config)
{
    double chunks = (double)trace->id_count, bytes = (double)config->chunk_bytes;
    double each_s = (double)config->chunk_tokens / (double)config->prefill_rate;
    each_s += config->store_rate ? bytes / (double)config->store_rate : 0;
    each_s += config->load_rate ? bytes / (double)config->load_rate : 0;
    return chunks * each_s;
}

static bool makes_sense(const struct spw_trace *trace, const struct spw_sim_config *config)
{
    return config->route.engines > 0 && config->workers > 0 &&
           config->workers <= SPW_SIM_WORKERS_MAX && config->prefill_rate > 0 &&
           config->capacity_chunks > 0 && trace->id_count < SPW_SIM_NONE &&
           config->chunk_tokens == trace->block_tokens &&
           config->gpu_cache_tokens / config->chunk_tokens < 1u << 30;
}

int spw_sim_run(const struct spw_trace *trace, const struct spw_sim_config *config,
                struct spw_sim_result *out_result)
{
    struct spw_sim_result result = {0};
    struct sim sim = {.trace = trace, .config = config, .result = &result};
    int status = makes_sense(trace, config) ? 0 : -EINVAL;
    if (!status && longest_s(trace, config) > LONGEST_S)
        status = -ERANGE;
    if (!status)
        status = sim_open(&sim);

    while (!status && !all_done(&sim)) {
        sim.now_ns = next_event(&sim);
        assert(sim.now_ns != INT64_MAX);
        status = handle_events(&sim);
    }
    if (!status)
        status = take_results(&sim);
    sim_close(&sim);
    if (status)
        spw_sim_result_fini(&result);
    else
        *out_result = result;
    return status;
}

void spw_sim_result_fini(struct spw_sim_result *result)
{
    if (!result)
        return;
    spw_samples_fini(&result->waits);
    spw_samples_fini(&result->ttfts);
    spw_forecasts_fini(&result->forecasts);
    *result = (struct spw_sim_result){0};
}
