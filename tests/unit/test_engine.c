/* tools/engine under a clock of the test's own; then with modelled stores under a whole workload.
 */
#include "tools/engine.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "tools/workload.h"

TestSuite(engine, .timeout = 60);

#define MS 1000000ll

static const struct spw_engine_decision miss = {.answer = SPW_ENGINE_MISS};
static const struct spw_engine_decision defer = {.answer = SPW_ENGINE_DEFER};
static const struct spw_engine_decision busy = {.answer = SPW_ENGINE_BUSY};

static struct spw_engine_decision load(uint32_t hit_tokens)
{
    return (struct spw_engine_decision){.answer = SPW_ENGINE_LOAD, .hit_tokens = hit_tokens};
}

/* 1,000 tokens a second: a token a millisecond. */
static struct spw_engine engine_with(const uint32_t *tokens, size_t count)
{
    struct spw_engine engine;

    spw_engine_init(&engine, 1000);
    for (size_t i = 0; i < count; i++)
        cr_assert_eq(spw_engine_arrive(&engine, 100 + i, 0, tokens[i], NULL), 0);
    return engine;
}

static void step_with_news(struct spw_engine *engine)
{
    for (uint32_t i = engine->oldest; i != SPW_ENGINE_NONE; i = engine->requests[i].younger)
        spw_engine_wake(engine, i, engine->requests[i].woken_ns);
    spw_engine_step(engine);
}

static void expect_next(struct spw_engine *engine, int64_t now_ns, uint32_t want)
{
    uint32_t index = 12345;

    cr_assert(spw_engine_next(engine, now_ns, &index));
    cr_assert_eq(index, want, "got %u, want %u", index, want);
}

static void expect_no_next(struct spw_engine *engine, int64_t now_ns)
{
    uint32_t index;

    cr_assert_not(spw_engine_next(engine, now_ns, &index));
}

static void decide(struct spw_engine *engine, uint32_t index, int64_t now_ns,
                   struct spw_engine_decision decision)
{
    cr_assert_eq(spw_engine_decided(engine, index, now_ns, &decision), 0);
}

static void expect_done(struct spw_engine *engine, int64_t now_ns, uint32_t want)
{
    uint32_t index = 12345;

    cr_assert_eq(spw_engine_prefilled(engine, now_ns, &index), 1);
    cr_assert_eq(index, want);
}

Test(engine, requests_are_served_one_at_a_time_in_order)
{
    struct spw_engine e = engine_with((const uint32_t[]){10, 20}, 2);
    uint32_t index;

    step_with_news(&e);
    expect_next(&e, 0, 0);
    decide(&e, 0, 0, miss);
    cr_expect_eq(spw_engine_next_end(&e), 10 * MS);
    expect_no_next(&e, 0);
    step_with_news(&e);
    expect_no_next(&e, 5 * MS);
    cr_expect_eq(spw_engine_prefilled(&e, 10 * MS - 1, &index), 0);
    expect_done(&e, 10 * MS, 0);
    cr_expect_eq(spw_engine_next_end(&e), INT64_MAX);
    step_with_news(&e);
    expect_next(&e, 12 * MS, 1);
    decide(&e, 1, 12 * MS, miss);
    cr_expect_not(spw_engine_is_idle(&e));
    expect_done(&e, 40 * MS, 1); /* told late: the sample has the real end */
    cr_expect(spw_engine_is_idle(&e));
    cr_expect_eq(e.done_requests, 2);
    cr_expect_eq(e.prefilled_tokens, 30);
    cr_expect_eq(e.ttfts.values_ns[0], 10 * MS);
    cr_expect_eq(e.ttfts.values_ns[1], 32 * MS);
    cr_expect_eq(e.waits.count, 0);
    cr_expect_eq(e.requests[1].tag, 101);
    spw_engine_fini(&e);
}

Test(engine, a_deferred_request_frees_the_server_and_keeps_its_place)
{
    struct spw_engine e = engine_with((const uint32_t[]){100, 10, 10}, 3);

    step_with_news(&e);
    expect_next(&e, 0, 0);
    decide(&e, 0, 0, defer);
    expect_next(&e, 0, 1);
    decide(&e, 1, 0, miss);
    expect_done(&e, 10 * MS, 1);
    step_with_news(&e);
    expect_next(&e, 10 * MS, 0); /* before request 2, which came later */
    decide(&e, 0, 10 * MS, defer);
    expect_next(&e, 10 * MS, 2);
    decide(&e, 2, 10 * MS, defer);
    expect_no_next(&e, 10 * MS); /* each is asked once a step */
    step_with_news(&e);
    expect_next(&e, 15 * MS, 0);
    decide(&e, 0, 15 * MS, load(90));
    expect_next(&e, 15 * MS, 2);
    decide(&e, 2, 15 * MS, miss);
    cr_expect_eq(e.deferred_requests, 2);
    cr_assert_eq(e.waits.count, 2);
    cr_expect_eq(e.waits.values_ns[0], 15 * MS); /* from the first deferral on */
    cr_expect_eq(e.waits.values_ns[1], 5 * MS);
    spw_engine_fini(&e);
}

Test(engine, a_deferred_request_without_news_is_not_asked_again)
{
    struct spw_engine e = engine_with((const uint32_t[]){100, 10, 10}, 3);

    spw_engine_step(&e);
    expect_next(&e, 0, 0);
    decide(&e, 0, 0, defer);
    expect_next(&e, 0, 1);
    spw_engine_wake(&e, 2, 0); /* not deferred: it is asked in any case, once */
    decide(&e, 1, 0, defer);
    expect_next(&e, 0, 2);
    decide(&e, 2, 0, defer);
    spw_engine_step(&e);
    expect_no_next(&e, 1 * MS);
    spw_engine_wake(&e, 1, 2 * MS);
    spw_engine_step(&e);
    expect_next(&e, 2 * MS, 1);
    decide(&e, 1, 2 * MS, defer);
    spw_engine_step(&e);
    expect_no_next(&e, 3 * MS); /* the news was used up */
    spw_engine_wake(&e, 1, 2 * MS);
    spw_engine_wake(&e, 0, 4 * MS);
    spw_engine_step(&e);
    expect_next(&e, 4 * MS, 0); /* in its old place */
    decide(&e, 0, 4 * MS, miss);
    expect_done(&e, 104 * MS, 0);
    spw_engine_step(&e);
    expect_next(&e, 104 * MS, 1);
    decide(&e, 1, 104 * MS, miss);
    spw_engine_fini(&e);
}

Test(engine, an_eta_is_compared_with_when_the_chunks_were_ready)
{
    struct spw_engine e = engine_with((const uint32_t[]){10, 10, 10, 10, 100}, 5);
    struct spw_engine_decision told = defer, cut = load(5);

    told.pends = true;
    told.eta_ns = 30 * MS;
    cut.recompute_tokens = 5;
    spw_engine_step(&e);
    for (uint32_t i = 0; i < 4; i++) {
        expect_next(&e, 0, i);
        if (i == 2)
            told.eta_ns = SPW_FORECAST_UNKNOWN;
        decide(&e, i, 0, i == 3 ? defer : told); /* the last waits for no store */
        if (i == 0)
            told.eta_ns = 50 * MS;
    }
    expect_next(&e, 0, 4);
    decide(&e, 4, 0, miss); /* holds the server for 100 ms */
    for (uint32_t i = 0; i < 4; i++)
        spw_engine_wake(&e, i, 40 * MS);
    expect_done(&e, 100 * MS, 4);
    spw_engine_step(&e);
    for (uint32_t i = 0; i < 4; i++) {
        expect_next(&e, 100 * MS, i);
        decide(&e, i, 100 * MS, i == 1 ? cut : load(10));
    }
    cr_expect_eq(e.waits.count, 4);
    cr_expect(e.waits_hit == 3 && e.waits_cut == 1);
    cr_assert_eq(e.forecasts.errors.count, 1, "of a hit that was told one");
    cr_expect_eq(e.forecasts.errors.values_ns[0], 10 * MS);
    cr_expect_eq(e.forecasts.waited_ns, (uint64_t)(40 * MS));
    cr_expect_eq(e.forecasts.unknown, 1);
    spw_engine_fini(&e);
}

Test(engine, a_wait_for_what_came_to_the_gpu_is_a_hit)
{
    struct spw_engine e = engine_with((const uint32_t[]){100, 100}, 2);
    struct spw_engine_decision on_gpu = miss;

    spw_engine_step(&e);
    expect_next(&e, 0, 0);
    decide(&e, 0, 0, defer);
    expect_next(&e, 0, 1);
    decide(&e, 1, 0, defer);
    step_with_news(&e);
    expect_next(&e, 5 * MS, 0);
    on_gpu.computed_tokens = 60;
    decide(&e, 0, 5 * MS, on_gpu);
    cr_expect(e.waits_hit == 1 && e.waits_cut == 0);
    expect_done(&e, 45 * MS, 0);
    step_with_news(&e);
    expect_next(&e, 45 * MS, 1);
    decide(&e, 1, 45 * MS, miss);
    cr_expect(e.waits.count == 2 && e.waits_hit == 1);
    spw_engine_fini(&e);
}

Test(engine, what_is_on_the_gpu_is_not_prefilled)
{
    struct spw_engine e = engine_with((const uint32_t[]){100, 100}, 2);
    struct spw_engine_decision rest = miss, both = load(30);

    rest.computed_tokens = 60;
    both.computed_tokens = 50;
    spw_engine_step(&e);
    expect_next(&e, 0, 0);
    decide(&e, 0, 0, rest);
    cr_expect_eq(spw_engine_next_end(&e), 40 * MS);
    expect_done(&e, 40 * MS, 0);
    spw_engine_step(&e);
    expect_next(&e, 40 * MS, 1);
    decide(&e, 1, 40 * MS, both);
    spw_engine_loaded(&e, 1);
    spw_engine_step(&e);
    expect_no_next(&e, 50 * MS);
    cr_expect_eq(spw_engine_next_end(&e), 70 * MS);
    cr_expect_eq(e.hit_tokens, 30, "loaded ones alone");
    cr_expect_eq(e.prefilled_tokens, 60);
    spw_engine_fini(&e);
}

Test(engine, the_queue_is_those_who_wait_for_the_server)
{
    struct spw_engine e = engine_with((const uint32_t[]){10, 10, 10, 10}, 4);

    cr_expect_eq(spw_engine_waiting(&e), 4);
    spw_engine_step(&e);
    expect_next(&e, 0, 0);
    cr_expect_eq(spw_engine_waiting(&e), 3, "not the one that is asked");
    decide(&e, 0, 0, defer);
    expect_next(&e, 0, 1);
    cr_expect_eq(spw_engine_waiting(&e), 3);
    decide(&e, 1, 0, miss);
    cr_expect_eq(spw_engine_waiting(&e), 3, "not the one that is served");
    expect_done(&e, 10 * MS, 1);
    cr_expect_eq(spw_engine_waiting(&e), 3);
    spw_engine_fini(&e);
}

Test(engine, a_load_does_not_hold_the_server_and_then_goes_first)
{
    struct spw_engine e = engine_with((const uint32_t[]){100, 10, 10}, 3);

    step_with_news(&e);
    expect_next(&e, 0, 0);
    decide(&e, 0, 0, load(60));
    expect_next(&e, 0, 1);
    decide(&e, 1, 0, miss);
    spw_engine_loaded(&e, 0);
    expect_done(&e, 10 * MS, 1);
    step_with_news(&e);
    expect_no_next(&e, 10 * MS); /* the loaded one took the server */
    cr_expect_eq(e.requests[0].state, SPW_ENGINE_PREFILL);
    cr_expect_eq(spw_engine_next_end(&e), 50 * MS);
    cr_expect_eq(e.hit_tokens, 60);
    expect_done(&e, 50 * MS, 0);
    cr_expect_eq(e.ttfts.values_ns[1], 50 * MS);
    spw_engine_fini(&e);
}

Test(engine, the_last_token_is_always_prefilled)
{
    struct spw_engine e = engine_with((const uint32_t[]){512}, 1);

    step_with_news(&e);
    expect_next(&e, 0, 0);
    decide(&e, 0, 0, load(512));
    spw_engine_loaded(&e, 0);
    step_with_news(&e);
    expect_no_next(&e, 3 * MS);
    expect_done(&e, 4 * MS, 0);
    cr_expect_eq(e.prefilled_tokens, 1);
    spw_engine_fini(&e);
}

Test(engine, a_failed_load_is_looked_up_anew_in_its_place)
{
    struct spw_engine e = engine_with((const uint32_t[]){100, 10}, 2);
    struct spw_engine_decision partly = load(50);

    partly.recompute_tokens = 20;
    step_with_news(&e);
    expect_next(&e, 0, 0);
    decide(&e, 0, 0, partly);
    expect_next(&e, 0, 1);
    decide(&e, 1, 0, defer);
    spw_engine_load_failed(&e, 0);
    cr_expect_eq(e.hit_tokens, 0);
    step_with_news(&e);
    expect_next(&e, 5 * MS, 0);
    decide(&e, 0, 5 * MS, partly);
    spw_engine_loaded(&e, 0);
    expect_next(&e, 5 * MS, 1);
    decide(&e, 1, 5 * MS, defer);
    step_with_news(&e);
    expect_no_next(&e, 6 * MS);
    cr_expect_eq(e.requests[0].state, SPW_ENGINE_PREFILL);
    cr_expect_eq(e.hit_tokens, 50);
    cr_expect_eq(e.recomputed_tokens, 20, "counted once, not for the load that failed");
    spw_engine_fini(&e);
}

Test(engine, without_room_nobody_younger_overtakes)
{
    struct spw_engine e = engine_with((const uint32_t[]){10, 10}, 2);

    step_with_news(&e);
    expect_next(&e, 0, 0);
    decide(&e, 0, 0, defer);
    expect_next(&e, 0, 1);
    decide(&e, 1, 0, defer);
    step_with_news(&e);
    expect_next(&e, 3 * MS, 0);
    decide(&e, 0, 3 * MS, busy);
    expect_no_next(&e, 3 * MS);
    cr_expect_eq(e.requests[0].state, SPW_ENGINE_WAITING);
    cr_expect_eq(e.waits.count, 1); /* it no longer waits for chunks */
    step_with_news(&e);
    expect_next(&e, 4 * MS, 0);
    decide(&e, 0, 4 * MS, defer);
    cr_expect_eq(e.deferred_requests, 2); /* the same request is counted once */
    cr_expect_eq(e.requests[0].deferred_ns, 4 * MS);
    spw_engine_fini(&e);
}

Test(engine, requests_that_come_within_a_step_wait_for_the_next)
{
    struct spw_engine e = engine_with((const uint32_t[]){10}, 1);
    uint32_t index;

    step_with_news(&e);
    expect_next(&e, 0, 0);
    decide(&e, 0, 0, defer);
    cr_assert_eq(spw_engine_arrive(&e, 7, 1 * MS, 5, &index), 0);
    cr_expect_eq(index, 1);
    expect_no_next(&e, 1 * MS);
    step_with_news(&e);
    expect_next(&e, 1 * MS, 0);
    decide(&e, 0, 1 * MS, defer);
    expect_next(&e, 1 * MS, 1);
    decide(&e, 1, 1 * MS, miss);
    cr_expect_eq(spw_engine_next_end(&e), 6 * MS);
    spw_engine_fini(&e);
}

Test(engine, states_have_names)
{
    cr_expect_str_eq(spw_engine_state_name(SPW_ENGINE_WAITING), "waiting");
    cr_expect_str_eq(spw_engine_state_name(SPW_ENGINE_DONE), "done");
}

/*
 * The default workload on four engines whose chunks go to four store streams of one chunk each
 * 83.9 ms, in order: what a replay with --recompute-budget 0 is like, without a pool.
 */
#define ENGINES      4
#define PREFILL_RATE 8000
#define CHUNK_NS     (512ll * 327680 * 1000000000 / 2000000000)
#define TICK_NS      (2 * MS)
#define TABLE_SLOTS  (1u << 18)

struct model {
    struct spw_trace trace;
    struct spw_engine engines[ENGINES];
    uint32_t arrived[ENGINES]; /* requests that this engine had */
    int64_t stream_ends_ns[ENGINES];
    int64_t stream_work_ns;
    uint64_t *ids; /* open addressing: chained id -> when it is stored */
    int64_t *ready_ns;
};

static uint32_t slot_of(const struct model *m, uint64_t id)
{
    uint32_t slot = (uint32_t)(id % TABLE_SLOTS);

    while (m->ids[slot] != 0 && m->ids[slot] != id)
        slot = (slot + 1) % TABLE_SLOTS;
    return slot;
}

static void store_chunks(struct model *m, size_t k, const struct spw_trace_request *request,
                         int64_t now_ns)
{
    for (uint32_t i = 0; i < request->full_count; i++) {
        uint64_t id = m->trace.ids[request->ids_off + i];
        uint32_t slot = slot_of(m, id);

        if (m->ids[slot] == id)
            continue;
        if (m->stream_ends_ns[k] < now_ns)
            m->stream_ends_ns[k] = now_ns;
        m->stream_ends_ns[k] += CHUNK_NS;
        m->stream_work_ns += CHUNK_NS;
        m->ids[slot] = id;
        m->ready_ns[slot] = m->stream_ends_ns[k];
    }
}

static struct spw_engine_decision look_up(const struct model *m,
                                          const struct spw_trace_request *request, int64_t now_ns)
{
    uint32_t hit = 0;
    bool pending = false;

    for (; hit < request->full_count; hit++) {
        uint64_t id = m->trace.ids[request->ids_off + hit];
        uint32_t slot = slot_of(m, id);

        if (m->ids[slot] != id)
            break;
        pending |= m->ready_ns[slot] > now_ns;
    }
    if (pending)
        return defer;
    return hit ? load(hit * 512) : miss;
}

static void run_engine(struct model *m, size_t k, int64_t now_ns)
{
    struct spw_engine *e = &m->engines[k];
    uint64_t at = k + (uint64_t)m->arrived[k] * ENGINES;
    uint32_t index;

    for (; at < m->trace.request_count && m->trace.requests[at].arrival_ns <= now_ns;
         at += ENGINES) {
        const struct spw_trace_request *request = &m->trace.requests[at];

        cr_assert_eq(spw_engine_arrive(e, at, request->arrival_ns, request->input_tokens, NULL), 0);
        m->arrived[k]++;
    }
    if (spw_engine_prefilled(e, now_ns, &index) == 1)
        store_chunks(m, k, &m->trace.requests[e->requests[index].tag], now_ns);
    step_with_news(e);
    while (spw_engine_next(e, now_ns, &index)) {
        struct spw_engine_decision d =
            look_up(m, &m->trace.requests[e->requests[index].tag], now_ns);

        decide(e, index, now_ns, d);
        if (d.answer == SPW_ENGINE_LOAD)
            spw_engine_loaded(e, index);
    }
}

static bool all_done(const struct model *m)
{
    uint64_t done = 0;

    for (size_t k = 0; k < ENGINES; k++)
        done += m->engines[k].done_requests;
    return done == m->trace.request_count;
}

Test(engine, the_default_workload_keeps_streams_busy_and_meets_pending_chunks)
{
    const struct spw_workload workload = SPW_WORKLOAD_DEFAULT;
    struct model m = {.ids = calloc(TABLE_SLOTS, sizeof(uint64_t)),
                      .ready_ns = calloc(TABLE_SLOTS, sizeof(int64_t))};
    struct spw_samples waits = {0}, ttfts = {0};
    uint64_t deferred = 0;
    int64_t now_ns = 0;

    cr_assert_eq(spw_trace_generate(&workload, &m.trace), 0);
    for (size_t k = 0; k < ENGINES; k++)
        spw_engine_init(&m.engines[k], PREFILL_RATE);
    for (; !all_done(&m) && now_ns < 4000 * 1000 * MS; now_ns += TICK_NS)
        for (size_t k = 0; k < ENGINES; k++)
            run_engine(&m, k, now_ns);
    cr_expect(all_done(&m));
    for (size_t k = 0; k < ENGINES; k++) {
        cr_assert_eq(spw_samples_merge(&waits, &m.engines[k].waits), 0);
        cr_assert_eq(spw_samples_merge(&ttfts, &m.engines[k].ttfts), 0);
        deferred += m.engines[k].deferred_requests;
        spw_engine_fini(&m.engines[k]);
    }
    cr_expect(now_ns < 1100000 * MS, "%f s", (double)now_ns / 1e9);
    cr_expect(m.stream_work_ns > 900000 * MS * ENGINES / 100 * 90, "streams are idle");
    cr_expect(m.stream_work_ns < 900000 * MS * ENGINES / 100 * 97, "streams can't keep up");
    cr_expect(deferred * 100 > m.trace.request_count * 8, "%lu", deferred);
    cr_expect(spw_samples_mean_s(&waits) > 5);
    cr_expect(spw_samples_mean_s(&ttfts) > 3 && spw_samples_mean_s(&ttfts) < 30, "%f",
              spw_samples_mean_s(&ttfts));
    spw_samples_fini(&waits);
    spw_samples_fini(&ttfts);
    spw_trace_fini(&m.trace);
    free(m.ids);
    free(m.ready_ns);
}
