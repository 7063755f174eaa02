/*
 * Timed replay: one engine of tools/engine.h played by the clock against the real pool, with a GPU
 * prefix cache as in a simulation (tools/sim.h).
 *
 * Each round is a scheduling step: completions are reaped, requests that arrived are taken in, a
 * prefill that ended is seen, deferred requests whose chunks are ready are woken, the server takes
 * the oldest request that can go on, finished prompts are offered for store.
 *
 * Which deferred requests to look at is told by spw_woken() alone. One that it named is asked again
 * once nothing that it waits for pends any more; up to then the wait goes on, marks and all. Over a
 * tier below it is asked at once: a chunk that won't come up pends for everybody but this request.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shm/base.h"
#include "tools/replay_timed.h"

/* Between two steps while something is under way: so much of the trace, and of the clock. */
#define STEP_TRACE_NS 5000000.0
#define STEP_MIN_NS   100000.0
#define STEP_MAX_NS   2000000.0 /* also the longest sleep */

static int64_t trace_now_ns(const struct spw_timed *timed)
{
    int64_t real = (int64_t)(spw_monotonic_ns() - timed->seat->start_ns);
    return (int64_t)((double)real * timed->seat->options->speed);
}

static uint64_t trace_ns(const struct spw_timed *timed, uint64_t clock_ns)
{
    double ns = (double)clock_ns * timed->seat->options->speed;
    return clock_ns == UINT64_MAX || ns >= 0x1p63 ? SPW_FORECAST_UNKNOWN : (uint64_t)ns;
}

/* ---- lookups --------------------------------------------------------------------------------- */

static int open_request(struct spw_timed *timed, uint32_t index)
{
    struct spw_timed_request *request = &timed->request[index];
    struct spw_request_config config = {
        .size_bytes = sizeof config, .prompt_tokens = request->traced->input_tokens, .tag = index};
    if (request->request)
        return 0;
    int status = spw_request_open(timed->seat->space, &config, &request->request);
    if (!status)
        status = spw_request_extend(request->request, 0, spw_timed_ids(timed, request),
                                    sizeof(uint64_t), request->traced->full_count);
    return status;
}

/* The verdicts of all chunks of a request, in timed->verdicts. */
static int probe(struct spw_timed *timed, struct spw_timed_request *request)
{
    return spw_request_probe(request->request, 0, 0, request->traced->full_count, timed->verdicts);
}

static int count_resident(struct spw_timed *timed, struct spw_timed_request *request,
                          uint64_t computed)
{
    int status = probe(timed, request);
    for (uint64_t i = computed; status >= 0 && i < request->traced->full_count; i++)
        timed->sums->resident_blocks += timed->verdicts[i] == SPW_HIT;
    timed->sums->resident_blocks += computed;
    return status < 0 ? status : 0;
}

static int defer(struct spw_timed *timed, struct spw_timed_request *request, uint64_t computed,
                 const struct spw_decision *decision, struct spw_engine_decision *out)
{
    int status = probe(timed, request);
    out->answer = SPW_ENGINE_DEFER;
    out->pends = decision->reason == SPW_REASON_PENDING;
    out->eta_ns = trace_ns(timed, decision->eta_ns);
    request->named = false;
    request->pends = request->pends_end = computed;
    while (status >= 0 && request->pends_end < request->traced->full_count &&
           timed->verdicts[request->pends_end] != SPW_MISS)
        request->pends_end++;
    return status < 0 ? status : 0;
}

/* Begin the loads of a decision, in its step: chunks begun, or -errno. */
static int64_t load(struct spw_timed *timed, uint32_t index, const struct spw_decision *decision)
{
    uint64_t from = 0;
    int taken;
    while ((taken = spw_timed_load(timed, index, decision, from)) > 0)
        from += (uint64_t)taken;
    return taken < 0 ? taken : (int64_t)from;
}

/* Turn a decision into the engine's answer. */
static int answer(struct spw_timed *timed, uint32_t index, uint64_t computed,
                  const struct spw_decision *decision, struct spw_engine_decision *out)
{
    struct spw_timed_request *request = &timed->request[index];
    uint64_t chunk_tokens = timed->seat->options->chunk_tokens;
    int64_t hit = 0;
    out->computed_tokens = (uint32_t)(computed * chunk_tokens);
    if (decision->action == SPW_ACTION_DEFER)
        return defer(timed, request, computed, decision, out);
    if (decision->action == SPW_ACTION_LOAD)
        hit = load(timed, index, decision);
    if (hit < 0)
        return (int)hit;
    out->hit_tokens = (uint32_t)((uint64_t)hit * chunk_tokens);
    out->recompute_tokens = (uint32_t)decision->recomputed_tokens;
    out->answer = hit ? SPW_ENGINE_LOAD : SPW_ENGINE_MISS;
    if (!hit && decision->action == SPW_ACTION_LOAD) {
        out->answer = SPW_ENGINE_BUSY;
        return 0;
    }
    request->load_end = computed + (uint64_t)hit;
    timed->sums->hit_blocks += request->load_end;
    spw_gpu_cache_use(&timed->gpu, spw_timed_ids(timed, request), (uint32_t)computed);
    return count_resident(timed, request, computed);
}

static int ask(struct spw_timed *timed, uint32_t index, int64_t now_ns)
{
    struct spw_timed_request *request = &timed->request[index];
    struct spw_decision decision = {.size_bytes = sizeof decision};
    struct spw_engine_decision decided = {.answer = SPW_ENGINE_MISS};
    uint64_t computed = spw_gpu_cache_match(&timed->gpu, spw_timed_ids(timed, request),
                                            request->traced->full_count);
    int status = open_request(timed, index);
    if (!status)
        status = spw_space_queue(timed->seat->space, spw_engine_waiting(&timed->engine));
    if (!status)
        status = spw_lookup(request->request, computed * timed->seat->options->chunk_tokens, 0,
                            &decision);
    if (status >= 0)
        status = answer(timed, index, computed, &decision, &decided);
    return status < 0 ? status : spw_engine_decided(&timed->engine, index, now_ns, &decided);
}

/* ---- wakes ----------------------------------------------------------------------------------- */

static int take_names(struct spw_timed *timed)
{
    struct spw_request *woken[64];
    int count;
    while ((count = spw_woken(timed->seat->client, woken, 64)) > 0)
        for (int i = 0; i < count; i++)
            timed->request[spw_request_tag(woken[i])].named = true;
    return count;
}

/* 1 if something that @request waits for still pends, 0 if not or if that can't be told, or -errno. */
static int still_pends(const struct spw_timed *timed, struct spw_timed_request *request)
{
    if (timed->seat->options->nvme_dir[0])
        return 0;
    for (; request->pends < request->pends_end; request->pends++) {
        uint8_t verdict;
        int status = spw_request_probe(request->request, 0, request->pends, 1, &verdict);
        if (status < 0 || verdict == SPW_PENDING)
            return status < 0 ? status : 1;
    }
    return 0;
}

static int wake(struct spw_timed *timed, int64_t now_ns)
{
    int status = take_names(timed);
    for (uint32_t i = timed->engine.oldest; status >= 0 && i != SPW_ENGINE_NONE;
         i = timed->engine.requests[i].younger) {
        if (!timed->request[i].named)
            continue;
        status = still_pends(timed, &timed->request[i]);
        if (status != 0)
            continue;
        timed->request[i].named = false;
        spw_engine_wake(&timed->engine, i, now_ns);
    }
    return status < 0 ? status : 0;
}

static int schedule(struct spw_timed *timed, int64_t now_ns)
{
    uint32_t index;
    int status = wake(timed, now_ns);
    spw_engine_step(&timed->engine);
    while (!status && spw_engine_next(&timed->engine, now_ns, &index))
        status = ask(timed, index, now_ns);
    return status;
}

/* ---- the loop -------------------------------------------------------------------------------- */

static int arrive(struct spw_timed *timed, int64_t now_ns)
{
    while (timed->arrived < timed->requests) {
        const struct spw_trace_request *traced = timed->request[timed->arrived].traced;
        if (traced->arrival_ns > now_ns)
            break;
        int status = spw_engine_arrive(&timed->engine, timed->arrived, traced->arrival_ns,
                                       traced->input_tokens ? traced->input_tokens : 1, NULL);
        if (status)
            return status;
        timed->arrived++;
        timed->sums->requests++;
        timed->sums->blocks += traced->full_count;
        timed->sums->prompt_tokens += traced->input_tokens;
    }
    return 0;
}

static int end_prefills(struct spw_timed *timed, int64_t now_ns)
{
    uint32_t index;
    int ended = spw_engine_prefilled(&timed->engine, now_ns, &index);
    if (ended != 1)
        return ended;
    struct spw_timed_request *request = &timed->request[index];
    spw_gpu_cache_use(&timed->gpu, spw_timed_ids(timed, request), request->traced->full_count);
    request->offers = true;
    request->next = 0;
    return 0;
}

static int step(struct spw_timed *timed)
{
    int64_t now_ns = trace_now_ns(timed);
    int status = arrive(timed, now_ns);
    if (!status)
        status = end_prefills(timed, now_ns);
    if (!status)
        status = spw_timed_reap(timed);
    if (!status)
        status = spw_step_begin(timed->seat->client);
    if (status < 0)
        return status;
    status = schedule(timed, now_ns);
    if (!status)
        status = spw_timed_offer(timed);
    int ended = spw_step_end(timed->seat->client);
    return status ? status : ended;
}

static double step_ns(const struct spw_timed *timed)
{
    double ns = STEP_TRACE_NS / timed->seat->options->speed;
    return ns < STEP_MIN_NS ? STEP_MIN_NS : ns < STEP_MAX_NS ? ns : STEP_MAX_NS;
}

static void pause_until_due(const struct spw_timed *timed)
{
    int64_t now_ns = trace_now_ns(timed);
    int64_t due_ns = spw_engine_next_end(&timed->engine);
    if (timed->arrived < timed->requests &&
        timed->request[timed->arrived].traced->arrival_ns < due_ns)
        due_ns = timed->request[timed->arrived].traced->arrival_ns;
    double pause_ns =
        due_ns == INT64_MAX ? STEP_MAX_NS : (double)(due_ns - now_ns) / timed->seat->options->speed;
    bool waits = timed->jobs || !spw_engine_is_idle(&timed->engine);
    double most_ns = waits ? step_ns(timed) : STEP_MAX_NS;
    if (pause_ns > most_ns)
        pause_ns = most_ns;
    if (pause_ns >= 1000)
        usleep((useconds_t)(pause_ns / 1000));
}

/* A store that is reserved and never run would make others wait until that expires. */
static int end_jobs(struct spw_timed *timed)
{
    int status = 0;
    while (!status && timed->jobs) {
        status = spw_timed_reap(timed);
        if (timed->jobs)
            usleep((useconds_t)(STEP_MIN_NS / 1000));
    }
    return status;
}

/* ---- begin and end --------------------------------------------------------------------------- */

static int timed_open(struct spw_timed *timed)
{
    const struct spw_replay_options *options = timed->seat->options;
    const struct spw_trace *trace = timed->seat->trace;
    const struct spw_route route = spw_replay_route(options);
    uint64_t longest = 1;
    spw_engine_init(&timed->engine, options->prefill_rate);
    timed->request = calloc(trace->request_count, sizeof *timed->request);
    if (!timed->request)
        return -ENOMEM;
    for (uint64_t i = 0; i < trace->request_count; i++) {
        if (spw_route_engine(&route, i) != timed->seat->e)
            continue;
        timed->request[timed->requests++].traced = &trace->requests[i];
        if (trace->requests[i].full_count > longest)
            longest = trace->requests[i].full_count;
    }
    timed->verdicts = malloc(longest);
    if (!timed->verdicts)
        return -ENOMEM;
    int status = spw_gpu_cache_init(&timed->gpu,
                                    (uint32_t)(options->gpu_cache_tokens / options->chunk_tokens));
    return status ? status
                  : spw_replay_kv_init(&timed->kv, timed->seat->client, options->payload_bytes);
}

static void timed_close(struct spw_timed *timed)
{
    for (uint32_t i = 0; i < timed->arrived; i++)
        spw_request_finish(timed->request[i].request);
    free(timed->request);
    free(timed->verdicts);
    spw_gpu_cache_fini(&timed->gpu);
    spw_replay_kv_fini(&timed->kv);
    spw_engine_fini(&timed->engine);
    free(timed);
}

/* Waits are counted by the library too, by how they ended: those are told. */
static int take_waits(const struct spw_timed *timed, struct spw_replay_sums *sums)
{
    int status = 0;
    for (uint32_t outcome = 0; !status && outcome < SPW_WAIT_OUTCOMES; outcome++) {
        struct spw_wait_histogram waits;
        status = spw_waits(timed->seat->client, outcome, &waits);
        if (status)
            return status;
        sums->waits_ended += waits.count;
        sums->waits_hit += outcome == SPW_WAIT_HIT ? waits.count : 0;
        sums->waits_cut += outcome == SPW_WAIT_CUT ? waits.count : 0;
    }
    return status;
}

static int take_results(const struct spw_timed *timed, struct spw_replay_result *out_result)
{
    const struct spw_engine *engine = &timed->engine;
    int status = take_waits(timed, &out_result->sums);
    out_result->sums.deferred_requests = engine->deferred_requests;
    out_result->sums.recomputed_tokens = engine->recomputed_tokens;
    if (!status)
        status = spw_samples_merge(&out_result->waits, &engine->waits);
    if (!status)
        status = spw_samples_merge(&out_result->ttfts, &engine->ttfts);
    if (!status)
        status = spw_forecasts_merge(&out_result->forecasts, &engine->forecasts);
    return status;
}

int spw_replay_timed(const struct spw_replay_seat *seat, struct spw_replay_result *out_result)
{
    struct spw_timed *timed = calloc(1, sizeof *timed);
    if (!timed)
        return -ENOMEM;
    timed->seat = seat;
    timed->sums = &out_result->sums;
    int status = timed_open(timed);
    while (!status && (timed->arrived < timed->requests || !spw_engine_is_idle(&timed->engine))) {
        status = step(timed);
        if (!status)
            pause_until_due(timed);
    }
    if (!status)
        status = end_jobs(timed);
    if (!status)
        status = take_results(timed, out_result);
    timed_close(timed);
    return status;
}
