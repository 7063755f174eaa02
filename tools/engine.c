/* A model of one engine. Pure: what happens when is the caller's. */
#include "tools/engine.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#define SECOND_NS  1000000000ull
#define BIT(state) (1u << (state))

/* What may follow each state. */
static const unsigned allowed_next[] = {
    [SPW_ENGINE_WAITING] =
        BIT(SPW_ENGINE_DEFERRED) | BIT(SPW_ENGINE_LOADING) | BIT(SPW_ENGINE_PREFILL),
    [SPW_ENGINE_DEFERRED] =
        BIT(SPW_ENGINE_WAITING) | BIT(SPW_ENGINE_LOADING) | BIT(SPW_ENGINE_PREFILL),
    [SPW_ENGINE_LOADING] = BIT(SPW_ENGINE_LOADED) | BIT(SPW_ENGINE_WAITING),
    [SPW_ENGINE_LOADED] = BIT(SPW_ENGINE_PREFILL),
    [SPW_ENGINE_PREFILL] = BIT(SPW_ENGINE_DONE),
    [SPW_ENGINE_DONE] = 0,
};

static const char *const state_names[] = {
    [SPW_ENGINE_WAITING] = "waiting", [SPW_ENGINE_DEFERRED] = "deferred",
    [SPW_ENGINE_LOADING] = "loading", [SPW_ENGINE_LOADED] = "loaded",
    [SPW_ENGINE_PREFILL] = "prefill", [SPW_ENGINE_DONE] = "done",
};

const char *spw_engine_state_name(enum spw_engine_state state)
{
    return state_names[state];
}

static void move(struct spw_engine_request *request, enum spw_engine_state next)
{
    assert(allowed_next[request->state] & BIT(next));
    request->state = next;
}

void spw_engine_init(struct spw_engine *engine, uint64_t prefill_rate)
{
    assert(prefill_rate > 0);
    *engine = (struct spw_engine){
        .prefill_rate = prefill_rate,
        .oldest = SPW_ENGINE_NONE,
        .youngest = SPW_ENGINE_NONE,
        .cursor = SPW_ENGINE_NONE,
        .asking = SPW_ENGINE_NONE,
        .serving = SPW_ENGINE_NONE,
    };
}

void spw_engine_fini(struct spw_engine *engine)
{
    if (!engine)
        return;
    free(engine->requests);
    spw_samples_fini(&engine->waits);
    spw_samples_fini(&engine->ttfts);
    spw_forecasts_fini(&engine->forecasts);
    *engine = (struct spw_engine){0};
}

int spw_engine_arrive(struct spw_engine *engine, uint64_t tag, int64_t arrival_ns,
                      uint32_t input_tokens, uint32_t *out_index)
{
    uint32_t index = engine->request_count;

    assert(input_tokens > 0);
    assert(index == 0 || arrival_ns >= engine->requests[index - 1].arrival_ns);
    if (index == engine->request_room) {
        uint32_t room = index ? index * 2 : 256;
        struct spw_engine_request *moved = realloc(engine->requests, room * sizeof(*moved));

        if (!moved)
            return -ENOMEM;
        engine->requests = moved;
        engine->request_room = room;
    }
    engine->requests[index] = (struct spw_engine_request){
        .tag = tag,
        .arrival_ns = arrival_ns,
        .input_tokens = input_tokens,
        .state = SPW_ENGINE_WAITING,
        .older = engine->youngest,
        .younger = SPW_ENGINE_NONE,
    };
    if (engine->youngest == SPW_ENGINE_NONE)
        engine->oldest = index;
    else
        engine->requests[engine->youngest].younger = index;
    engine->youngest = index;
    engine->request_count++;
    engine->queued++;
    if (out_index)
        *out_index = index;
    return 0;
}

static void leave_queue(struct spw_engine *engine, uint32_t index)
{
    const struct spw_engine_request *request = &engine->requests[index];

    if (request->older == SPW_ENGINE_NONE)
        engine->oldest = request->younger;
    else
        engine->requests[request->older].younger = request->younger;
    if (request->younger == SPW_ENGINE_NONE)
        engine->youngest = request->older;
    else
        engine->requests[request->younger].older = request->older;
    if (engine->cursor == index)
        engine->cursor = request->younger;
    engine->queued--;
}

static uint32_t tokens_to_prefill(const struct spw_engine_request *request)
{
    uint32_t have = request->computed_tokens + request->hit_tokens;

    return have < request->input_tokens ? request->input_tokens - have : 1;
}

static void start_prefill(struct spw_engine *engine, uint32_t index, int64_t now_ns)
{
    struct spw_engine_request *request = &engine->requests[index];
    uint64_t tokens = tokens_to_prefill(request);

    move(request, SPW_ENGINE_PREFILL);
    engine->serving = index;
    engine->prefill_end_ns = now_ns + (int64_t)(tokens * SECOND_NS / engine->prefill_rate);
    engine->prefilled_tokens += tokens;
    engine->recomputed_tokens += request->recompute_tokens;
}

void spw_engine_wake(struct spw_engine *engine, uint32_t index, int64_t now_ns)
{
    struct spw_engine_request *request = &engine->requests[index];

    request->woken = request->state == SPW_ENGINE_DEFERRED;
    request->woken_ns = now_ns;
}

void spw_engine_step(struct spw_engine *engine)
{
    assert(engine->asking == SPW_ENGINE_NONE);
    engine->cursor = engine->oldest;
}

bool spw_engine_next(struct spw_engine *engine, int64_t now_ns, uint32_t *out_index)
{
    assert(engine->asking == SPW_ENGINE_NONE);
    while (engine->serving == SPW_ENGINE_NONE && engine->cursor != SPW_ENGINE_NONE) {
        uint32_t index = engine->cursor;
        const struct spw_engine_request *request = &engine->requests[index];

        engine->cursor = request->younger;
        if (request->state == SPW_ENGINE_LOADED) {
            start_prefill(engine, index, now_ns);
        } else if (request->state == SPW_ENGINE_WAITING || request->woken) {
            engine->asking = index;
            *out_index = index;
            return true;
        }
    }
    return false;
}

static void begin_wait(struct spw_engine *engine, struct spw_engine_request *request,
                       int64_t now_ns, const struct spw_engine_decision *decision)
{
    if (request->state == SPW_ENGINE_DEFERRED)
        return;
    move(request, SPW_ENGINE_DEFERRED);
    request->deferred_ns = request->woken_ns = now_ns;
    request->has_eta = decision->pends;
    request->eta_ns = decision->eta_ns;
    engine->deferred_requests += !request->was_deferred;
    request->was_deferred = true;
}

/* An ETA is compared with when the chunks were ready: the server may be busy longer than that. */
static int end_wait(struct spw_engine *engine, const struct spw_engine_request *request,
                    int64_t now_ns, const struct spw_engine_decision *decision)
{
    bool cut = decision->recompute_tokens > 0;
    bool came = decision->computed_tokens > request->computed_tokens; /* by another, to the GPU */
    bool hit = !cut && (came || decision->answer != SPW_ENGINE_MISS);
    int rc;

    if (request->state != SPW_ENGINE_DEFERRED)
        return 0;
    rc = spw_samples_add(&engine->waits, now_ns - request->deferred_ns);
    if (rc == 0 && hit && !came && request->has_eta)
        rc = spw_forecasts_add(&engine->forecasts, request->eta_ns,
                               (uint64_t)(request->woken_ns - request->deferred_ns));
    engine->waits_hit += hit;
    engine->waits_cut += cut;
    return rc;
}

int spw_engine_decided(struct spw_engine *engine, uint32_t index, int64_t now_ns,
                       const struct spw_engine_decision *decision)
{
    struct spw_engine_request *request = &engine->requests[index];
    int rc;

    assert(engine->asking == index);
    engine->asking = SPW_ENGINE_NONE;
    request->woken = false;
    assert(decision->computed_tokens <= request->input_tokens);
    if (decision->answer == SPW_ENGINE_DEFER) {
        begin_wait(engine, request, now_ns, decision);
        request->computed_tokens = decision->computed_tokens;
        return 0;
    }
    rc = end_wait(engine, request, now_ns, decision);
    if (decision->answer == SPW_ENGINE_BUSY) {
        if (request->state == SPW_ENGINE_DEFERRED)
            move(request, SPW_ENGINE_WAITING);
        engine->cursor = SPW_ENGINE_NONE;
        return rc;
    }
    request->computed_tokens = decision->computed_tokens;
    request->recompute_tokens = decision->recompute_tokens;
    if (decision->answer == SPW_ENGINE_LOAD) {
        assert(decision->hit_tokens <= request->input_tokens - decision->computed_tokens);
        request->hit_tokens = decision->hit_tokens;
        move(request, SPW_ENGINE_LOADING);
    } else {
        request->hit_tokens = 0;
        start_prefill(engine, index, now_ns);
    }
    return rc;
}

void spw_engine_loaded(struct spw_engine *engine, uint32_t index)
{
    struct spw_engine_request *request = &engine->requests[index];

    move(request, SPW_ENGINE_LOADED);
    engine->hit_tokens += request->hit_tokens;
}

void spw_engine_load_failed(struct spw_engine *engine, uint32_t index)
{
    move(&engine->requests[index], SPW_ENGINE_WAITING);
    engine->requests[index].hit_tokens = 0;
    engine->requests[index].computed_tokens = 0;
}

int spw_engine_prefilled(struct spw_engine *engine, int64_t now_ns, uint32_t *out_index)
{
    uint32_t index = engine->serving;
    struct spw_engine_request *request;
    int rc;

    if (index == SPW_ENGINE_NONE || now_ns < engine->prefill_end_ns)
        return 0;
    request = &engine->requests[index];
    rc = spw_samples_add(&engine->ttfts, engine->prefill_end_ns - request->arrival_ns);
    if (rc < 0)
        return rc;
    move(request, SPW_ENGINE_DONE);
    leave_queue(engine, index);
    engine->serving = SPW_ENGINE_NONE;
    engine->done_requests++;
    *out_index = index;
    return 1;
}

int64_t spw_engine_next_end(const struct spw_engine *engine)
{
    return engine->serving == SPW_ENGINE_NONE ? INT64_MAX : engine->prefill_end_ns;
}

uint32_t spw_engine_waiting(const struct spw_engine *engine)
{
    bool one_out = engine->asking != SPW_ENGINE_NONE || engine->serving != SPW_ENGINE_NONE;

    return engine->queued - one_out;
}

bool spw_engine_is_idle(const struct spw_engine *engine)
{
    return engine->oldest == SPW_ENGINE_NONE;
}
