/* tools/sim to the nanosecond on traces of a few requests, then whole workloads. */
#include "tools/sim.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>

#include "tools/workload.h"

TestSuite(sim, .timeout = 60);

#define MS 1000000ll

/* Blocks of 10 tokens, a token a millisecond; a copy takes a second, a load 100 ms a chunk. */
static struct spw_sim_config slow_pool(uint32_t engines)
{
    return (struct spw_sim_config){.route = {.engines = engines},
                                   .workers = 1,
                                   .chunk_tokens = 10,
                                   .chunk_bytes = 1000,
                                   .prefill_rate = 1000,
                                   .store_rate = 1000,
                                   .load_rate = 10000,
                                   .capacity_chunks = 1000,
                                   .overtake_limit_ns = 5000 * MS,
                                   .scope = SPW_SCOPE_REQUEST,
                                   .policy = {.price = SPW_POLICY_PRICE}};
}

/* A prompt of @tokens whose raw ids are @base, @base + 1, ... */
static void add(struct spw_trace *trace, int64_t arrival_ms, uint32_t tokens, uint64_t base)
{
    uint64_t ids[64];

    for (uint64_t i = 0; i < 64; i++)
        ids[i] = base + i;
    cr_assert_eq(spw_trace_append(trace, arrival_ms * MS, tokens, 1, ids), 0);
}

static struct spw_sim_result run(const struct spw_trace *trace, const struct spw_sim_config *config)
{
    struct spw_sim_result result;

    cr_assert_eq(spw_sim_run(trace, config, &result), 0);
    cr_assert_eq(result.requests, trace->request_count);
    cr_assert_eq(result.ttfts.count, trace->request_count);
    return result;
}

/* One engine serves a prompt, then one that goes on from its two chunks. */
static struct spw_trace follow_up(void)
{
    struct spw_trace trace;

    spw_trace_init(&trace, 10);
    add(&trace, 0, 20, 100);
    add(&trace, 1, 25, 100);
    return trace;
}

Test(sim, a_request_waits_for_stores_then_loads_then_computes_the_rest)
{
    struct spw_trace trace = follow_up();
    struct spw_sim_config config = slow_pool(1);
    struct spw_sim_result r = run(&trace, &config);

    cr_expect_eq(r.ttfts.values_ns[0], 20 * MS);
    /* stored at 1,020 and 2,020 ms, loaded in 200 ms, then 5 tokens; it came at 1 ms */
    cr_expect_eq(r.ttfts.values_ns[1], (2020 + 200 + 5 - 1) * MS);
    cr_assert_eq(r.waits.count, 1);
    cr_expect_eq(r.waits.values_ns[0], 2000 * MS);
    cr_expect(r.waits_hit == 1 && r.waits_cut == 0);
    cr_assert_eq(r.forecasts.errors.count, 1);
    cr_expect_eq(r.forecasts.errors.values_ns[0], 0, "nothing came between");
    cr_expect_eq(r.forecasts.waited_ns, (uint64_t)(2000 * MS));
    cr_expect_eq(r.deferred_requests, 1);
    cr_expect(r.blocks == 4 && r.hit_blocks == 2 && r.resident_blocks == 2 && r.gpu_blocks == 0);
    cr_expect(r.stored_chunks == 2 && r.loaded_chunks == 2 && r.recomputed_tokens == 0);
    cr_expect_eq(r.decisions, 3, "asked when all was ready, not before");
    cr_expect_eq(r.store_busy_ns, 2000 * MS);
    cr_expect_eq(r.end_ns, 2225 * MS);
    spw_sim_result_fini(&r);
    spw_trace_fini(&trace);
}

Test(sim, what_the_gpu_holds_is_neither_waited_for_nor_loaded)
{
    struct spw_trace trace = follow_up();
    struct spw_sim_config config = slow_pool(1);

    config.gpu_cache_tokens = 20;
    struct spw_sim_result r = run(&trace, &config);
    cr_expect_eq(r.ttfts.values_ns[1], (20 + 5 - 1) * MS);
    cr_expect(r.hit_blocks == 2 && r.gpu_blocks == 2 && r.loaded_chunks == 0);
    spw_sim_result_fini(&r);
    config.gpu_cache_tokens = 19; /* room for one chunk */
    r = run(&trace, &config);
    /* its other chunk is pending: stored at 2,020 ms, loaded in 100 */
    cr_expect_eq(r.ttfts.values_ns[1], (2020 + 100 + 5 - 1) * MS);
    cr_expect(r.hit_blocks == 2 && r.gpu_blocks == 1 && r.loaded_chunks == 1);
    spw_sim_result_fini(&r);
    spw_trace_fini(&trace);
}

Test(sim, a_budget_computes_rather_than_waits)
{
    struct spw_trace trace = follow_up();
    struct spw_sim_config config = slow_pool(1);

    config.policy.budget_tokens = 20;
    struct spw_sim_result r = run(&trace, &config);
    cr_expect_eq(r.ttfts.values_ns[1], (20 + 25 - 1) * MS);
    cr_expect(r.recomputed_tokens == 20 && r.waits.count == 0 && r.stored_chunks == 0, "%d %d %d",
              (int)r.recomputed_tokens, (int)r.waits.count, (int)r.stored_chunks);
    spw_sim_result_fini(&r);
    config.policy.budget_tokens = 19;
    r = run(&trace, &config);
    cr_expect_eq(r.ttfts.values_ns[1], (2020 + 200 + 5 - 1) * MS);
    spw_sim_result_fini(&r);
    spw_trace_fini(&trace);
}

Test(sim, auto_waits_while_that_is_worth_its_price)
{
    struct spw_trace trace = follow_up();
    struct spw_sim_config config = slow_pool(1);

    /* 20 tokens are 20 ms of prefill; the wait is 2 s */
    config.policy.budget_tokens = SPW_RECOMPUTE_AUTO;
    config.policy.price = 99;
    struct spw_sim_result r = run(&trace, &config);
    cr_expect_eq(r.recomputed_tokens, 20);
    spw_sim_result_fini(&r);
    config.policy.price = 100;
    r = run(&trace, &config);
    cr_expect_eq(r.recomputed_tokens, 0);
    cr_expect_eq(r.waits.count, 1);
    spw_sim_result_fini(&r);
    spw_trace_fini(&trace);
}

Test(sim, auto_can_price_by_the_queue)
{
    struct spw_trace trace = follow_up();
    struct spw_sim_config config = slow_pool(1);

    for (int i = 0; i < 3; i++)
        add(&trace, 1, 5, 500);
    config.store_rate = 20000; /* two copies: 100 ms, that is five times 20 tokens */
    config.policy.budget_tokens = SPW_RECOMPUTE_AUTO;
    config.policy.price = SPW_PRICE_QUEUE;
    struct spw_sim_result r = run(&trace, &config);
    cr_expect_eq(r.recomputed_tokens, 20, "three more wait: 4");
    spw_sim_result_fini(&r);
    add(&trace, 1, 5, 500);
    r = run(&trace, &config);
    cr_expect_eq(r.recomputed_tokens, 0, "four more wait: 5");
    spw_sim_result_fini(&r);
    spw_trace_fini(&trace);
}

/* Engine 1 stores a long prompt; engine 0 waits for a short one that was computed after it. */
static struct spw_sim_result behind_a_long_one(bool awaited, int64_t overtake_ms)
{
    struct spw_sim_config config = slow_pool(2);
    struct spw_trace trace;

    spw_trace_init(&trace, 10);
    add(&trace, 0, 70, 900);
    add(&trace, 0, 60, 100); /* engine 1: six chunks from 60 ms on */
    add(&trace, 0, 20, 800);
    add(&trace, 61, 20, 200); /* engine 1: its two chunks queue at 81 ms */
    add(&trace, 0 + 90, 25, 200);
    config.route.engines = 2;
    config.policy.awaited = awaited;
    config.overtake_limit_ns = (uint64_t)(overtake_ms * MS);
    struct spw_sim_result r = run(&trace, &config);
    spw_trace_fini(&trace);
    return r;
}

Test(sim, an_awaited_store_overtakes_the_others)
{
    struct spw_sim_result plain = behind_a_long_one(false, 5000);
    struct spw_sim_result first = behind_a_long_one(true, 5000);
    struct spw_sim_result limited = behind_a_long_one(true, 1);

    cr_assert_eq(plain.waits.count, 1);
    cr_assert_eq(first.waits.count, 1);
    /* the copy that runs ends at 1,060 ms, then its own two */
    cr_expect_eq(first.waits.values_ns[0], (3060 - 90) * MS, "%f",
                 (double)first.waits.values_ns[0] / 1e6);
    cr_expect(first.awaited_stores == 2 && first.overtaking_stores == 2, "%d %d",
              (int)first.awaited_stores, (int)first.overtaking_stores);
    cr_expect(plain.awaited_stores == 0 && plain.overtaking_stores == 0);
    cr_expect_gt(plain.waits.values_ns[0], 6000 * MS);
    cr_expect_gt(limited.waits.values_ns[0], first.waits.values_ns[0]);
    cr_expect_lt(limited.waits.values_ns[0], plain.waits.values_ns[0]);
    spw_sim_result_fini(&plain);
    spw_sim_result_fini(&first);
    spw_sim_result_fini(&limited);
}

Test(sim, a_deferred_request_frees_the_server_and_keeps_its_place)
{
    struct spw_trace trace = follow_up();
    struct spw_sim_config config = slow_pool(1);

    add(&trace, 2, 30, 500);
    add(&trace, 2215, 40, 600);
    add(&trace, 2216, 10, 700);
    struct spw_sim_result r = run(&trace, &config);
    /* samples go by the end of prefill: 0, then 2 while 1 waits, then 3 as 1 is being loaded,
       and 1, loaded at 2,220 ms, goes ahead of 4 */
    cr_expect_eq(r.ttfts.values_ns[1], (20 + 30 - 2) * MS);
    cr_expect_eq(r.ttfts.values_ns[2], 40 * MS);
    cr_expect_eq(r.ttfts.values_ns[3], (2255 + 5 - 1) * MS);
    cr_expect_eq(r.ttfts.values_ns[4], (2260 + 10 - 2216) * MS);
    spw_sim_result_fini(&r);
    spw_trace_fini(&trace);
}

Test(sim, with_a_gpu_cache_a_load_serves_the_others_of_its_engine)
{
    struct spw_sim_config config = slow_pool(1);
    struct spw_trace trace;

    spw_trace_init(&trace, 10);
    add(&trace, 0, 20, 100);
    add(&trace, 10, 40, 500);   /* pushes the first prompt out of the GPU */
    add(&trace, 9000, 25, 100); /* loads until 9,200 ms */
    add(&trace, 9001, 27, 100);
    config.gpu_cache_tokens = 40;
    struct spw_sim_result r = run(&trace, &config);
    cr_expect_eq(r.loaded_chunks, 2, "once");
    cr_expect_eq(r.gpu_blocks, 2);
    cr_expect_eq(r.ttfts.values_ns[2], 205 * MS);
    cr_expect_eq(r.ttfts.values_ns[3], (205 + 7 - 1) * MS);
    spw_sim_result_fini(&r);
    config.gpu_cache_tokens = 0;
    r = run(&trace, &config);
    cr_expect_eq(r.loaded_chunks, 4, "each for itself");
    cr_expect_eq(r.waits.count, 0);
    spw_sim_result_fini(&r);
    spw_trace_fini(&trace);
}

Test(sim, what_a_load_brought_is_on_the_gpu_when_it_ends)
{
    struct spw_sim_config config = slow_pool(2);
    struct spw_trace trace;

    spw_trace_init(&trace, 10);
    add(&trace, 0, 7, 800);
    add(&trace, 0, 40, 100);    /* engine 1: stored by 1,040, 2,040, 3,040 and 4,040 ms */
    add(&trace, 3500, 45, 100); /* waits for the fourth chunk, then for the load of the others */
    add(&trace, 3500, 5, 900);
    add(&trace, 3900, 35, 100); /* loads three chunks until 4,200 ms */
    config.gpu_cache_tokens = 100;
    struct spw_sim_result r = run(&trace, &config);
    cr_expect_eq(r.loaded_chunks, 3 + 1);
    cr_expect_eq(r.end_ns, (4200 + 100 + 5) * MS);
    spw_sim_result_fini(&r);
    spw_trace_fini(&trace);
}

Test(sim, what_a_request_used_is_given_up_last)
{
    struct spw_sim_config config = slow_pool(1);
    struct spw_trace trace;

    spw_trace_init(&trace, 10);
    add(&trace, 0, 20, 100);
    add(&trace, 3000, 20, 200);
    add(&trace, 6000, 25, 100); /* a hit */
    add(&trace, 9000, 20, 300); /* takes the place of two */
    add(&trace, 12000, 25, 100);
    config.capacity_chunks = 4;
    struct spw_sim_result r = run(&trace, &config);
    cr_expect_eq(r.evicted_chunks, 2);
    cr_expect_eq(r.hit_blocks, 4);
    spw_sim_result_fini(&r);
    spw_trace_fini(&trace);
}

Test(sim, a_full_shard_gives_up_chunks_and_then_refuses)
{
    struct spw_sim_config config = slow_pool(1);
    struct spw_trace trace;

    spw_trace_init(&trace, 10);
    add(&trace, 0, 40, 100);    /* room for three: the fourth is skipped */
    add(&trace, 9000, 20, 500); /* two go for it */
    add(&trace, 20000, 35, 100);
    config.capacity_chunks = 3;
    struct spw_sim_result r = run(&trace, &config);
    cr_expect_eq(r.skipped_chunks, 1);
    cr_expect_eq(r.evicted_chunks, 2 + 2);
    cr_expect_eq(r.hit_blocks, 1, "the head is the last to go");
    spw_sim_result_fini(&r);
    spw_trace_fini(&trace);
}

Test(sim, numbers_out_of_range_are_refused)
{
    struct spw_trace trace = follow_up();
    struct spw_sim_config config = slow_pool(1);
    struct spw_sim_result untouched = {.requests = 77};

    config.workers = 33;
    cr_expect_eq(spw_sim_run(&trace, &config, &untouched), -EINVAL);
    config = slow_pool(1);
    config.store_rate = 1;
    config.chunk_bytes = 1ull << 40; /* a chunk takes 35,000 years */
    cr_expect_eq(spw_sim_run(&trace, &config, &untouched), -ERANGE);
    config = slow_pool(0);
    cr_expect_eq(spw_sim_run(&trace, &config, &untouched), -EINVAL);
    config = slow_pool(1);
    config.chunk_tokens = 20;
    cr_expect_eq(spw_sim_run(&trace, &config, &untouched), -EINVAL);
    cr_expect_eq(untouched.requests, 77);
    spw_trace_fini(&trace);
}

/* ---- whole workloads ------------------------------------------------------------------------- */

static struct spw_sim_config usual(void)
{
    return (struct spw_sim_config){.route = {.engines = 4},
                                   .workers = 4,
                                   .chunk_tokens = 512,
                                   .chunk_bytes = 512 * 327680,
                                   .prefill_rate = 8000,
                                   .store_rate = 2000000000,
                                   .load_rate = 25000000000,
                                   .capacity_chunks = 1u << 24,
                                   .gpu_cache_tokens = 400000,
                                   .overtake_limit_ns = 5000 * MS,
                                   .scope = SPW_SCOPE_REQUEST};
}

Test(sim, policies_differ_as_they_should_on_the_default_workload)
{
    const struct spw_workload workload = SPW_WORKLOAD_DEFAULT;
    struct spw_policy policies[SPW_POLICIES_COMPARED];
    struct spw_sim_result r[SPW_POLICIES_COMPARED];
    struct spw_sim_config config = usual();
    struct spw_trace trace;

    cr_assert_eq(spw_trace_generate(&workload, &trace), 0);
    spw_policy_list(512, policies);
    for (size_t i = 0; i < SPW_POLICIES_COMPARED; i++) {
        config.policy = policies[i];
        r[i] = run(&trace, &config);
        cr_expect_eq(r[i].blocks, r[0].blocks);
        cr_expect_leq(r[i].stored_chunks + r[i].hit_blocks, r[i].blocks);
        cr_expect_eq(r[i].waits.count >= r[i].deferred_requests, 1);
        /* a deferred request is asked again when its chunks are ready, not with every event */
        cr_expect_leq(r[i].decisions, r[i].requests + 2 * r[i].waits.count);
    }
    cr_expect(r[0].recomputed_tokens == 0 && r[5].recomputed_tokens == 0);
    for (size_t i = 1; i < 5; i++)
        cr_expect_gt(r[i].recomputed_tokens, r[i - 1].recomputed_tokens);
    cr_expect_lt(spw_samples_mean_s(&r[5].waits), spw_samples_mean_s(&r[0].waits) / 2);
    cr_expect_lt(spw_samples_mean_s(&r[5].ttfts), 0.9 * spw_samples_mean_s(&r[0].ttfts));
    for (size_t i = 0; i < SPW_POLICIES_COMPARED; i++)
        spw_sim_result_fini(&r[i]);
    spw_trace_fini(&trace);
}

static bool same(const struct spw_sim_result *a, const struct spw_sim_result *b)
{
    bool equal = a->ttfts.count == b->ttfts.count && a->end_ns == b->end_ns;

    for (size_t i = 0; equal && i < a->ttfts.count; i++)
        equal = a->ttfts.values_ns[i] == b->ttfts.values_ns[i];
    return equal;
}

Test(sim, the_seed_alone_decides_a_random_routing)
{
    const struct spw_workload workload = SPW_WORKLOAD_DEFAULT;
    struct spw_sim_config config = usual();
    struct spw_trace trace;

    cr_assert_eq(spw_trace_generate(&workload, &trace), 0);
    config.route.rule = SPW_ROUTE_RANDOM;
    struct spw_sim_result a = run(&trace, &config), b = run(&trace, &config);
    config.route.seed = 1;
    struct spw_sim_result c = run(&trace, &config);
    cr_expect(same(&a, &b));
    cr_expect_not(same(&a, &c));
    spw_sim_result_fini(&a);
    spw_sim_result_fini(&b);
    spw_sim_result_fini(&c);
    spw_trace_fini(&trace);
}

Test(sim, random_routes_are_even_and_differ_by_seed)
{
    uint32_t count[5] = {0}, alike = 0;
    struct spw_route route = {.engines = 5, .rule = SPW_ROUTE_RANDOM, .seed = 3};
    struct spw_route other = {.engines = 5, .rule = SPW_ROUTE_RANDOM, .seed = 4};

    for (uint64_t i = 0; i < 10000; i++) {
        uint32_t e = spw_route_engine(&route, i);

        cr_assert_lt(e, 5);
        count[e]++;
        alike += e == spw_route_engine(&other, i);
    }
    for (uint32_t e = 0; e < 5; e++)
        cr_expect(count[e] > 1880 && count[e] < 2120, "%u", count[e]); /* three deviations */
    cr_expect(alike > 1880 && alike < 2120, "%u", alike);
}

Test(sim, conversations_wait_for_answers)
{
    char path[1024], words[256];
    struct spw_sim_config config = usual();
    struct spw_trace trace;

    cr_assert_not_null(getenv("SPW_TEST_DATA"));
    snprintf(path, sizeof(path), "%s/claude_code_slice.tsv.gz", getenv("SPW_TEST_DATA"));
    cr_assert_eq(spw_trace_read(path, NULL, &trace, words, sizeof(words)), 0, "%s", words);
    config.arrivals = (struct spw_arrivals_options){.conversations = 1, .decode_rate = 50};
    struct spw_sim_result one = run(&trace, &config);
    config.arrivals.conversations = 5;
    struct spw_sim_result all = run(&trace, &config);
    config.arrivals = (struct spw_arrivals_options){.conversations = 1, .decode_rate = 5};
    struct spw_sim_result slow = run(&trace, &config);
    cr_expect_gt(one.end_ns, all.end_ns);
    cr_expect_gt(slow.end_ns, one.end_ns);
    spw_sim_result_fini(&one);
    spw_sim_result_fini(&all);
    spw_sim_result_fini(&slow);
    spw_trace_fini(&trace);
}

Test(sim, policies_are_named_as_scripts_know_them)
{
    static const char *const names[SPW_POLICIES_COMPARED] = {
        "always-wait",  "budget:512", "budget:2048",         "budget:8192",
        "budget:32768", "awaited",    "awaited+budget:2048", "awaited+auto"};
    struct spw_policy policies[SPW_POLICIES_COMPARED];
    struct spw_policy priced = {.budget_tokens = SPW_RECOMPUTE_AUTO};

    spw_policy_list(512, policies);
    for (size_t i = 0; i < SPW_POLICIES_COMPARED; i++)
        cr_expect_str_eq(policies[i].name, names[i]);
    spw_policy_name(&priced);
    cr_expect_str_eq(priced.name, "auto");
}
