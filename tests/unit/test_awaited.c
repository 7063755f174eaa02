/* Stores that somebody waits for: which are marked, that they go first, when they end, and the price
 * of waiting for them; through the installed API, on the test's own clock. */
#include "tests/support/wait_rig.h"

#include <criterion/criterion.h>

TestSuite(awaited, .timeout = 25);

/* ---- awaited stores -------------------------------------------------------------------------- */

Test(awaited, pending_chunks_are_marked_at_every_rank_until_nobody_waits)
{
    const struct rig_config two_workers = {.workers = 2, .capacity = 16};
    wait_open(&two_workers);
    struct spw_request *stores = api_request(space, 100, 12);
    struct spw_completion zero = api_reserve(&api, stores, client, 0, 0, 12);
    api_reserve(&api, stores, client, 1, 0, 12);
    struct spw_request *first = api_request(space, 100, 12), *second = api_request(space, 100, 2);
    uint64_t changes = spw_client_awaited_changes(client->own, 1);
    cr_expect_eq(api_lookup(client, first).action, SPW_ACTION_DEFER);
    cr_expect_neq(spw_client_awaited_changes(client->own, 1), changes);
    cr_expect_eq(wait_awaited(client, 0), 12, "more than it watches");
    cr_expect_eq(wait_awaited(client, 1), 12);
    cr_expect_eq(api_lookup(client, second).action, SPW_ACTION_DEFER);
    changes = spw_client_awaited_changes(client->own, 1);
    cr_assert_eq(spw_request_cancel(first), 0);
    cr_expect_neq(spw_client_awaited_changes(client->own, 1), changes, "workers are told");
    cr_expect_eq(wait_awaited(client, 0), 2, "another one still waits for these");
    wait_settle(&zero);
    cr_expect_eq(api_lookup(client, second).action, SPW_ACTION_DEFER);
    cr_expect_eq(wait_awaited(client, 0), 2, "rank 0 has its part, and is still waited for");
    cr_expect_eq(wait_awaited(client, 1), 2);
    spw_request_finish(second);
    cr_expect_eq(wait_awaited(client, 0), 0);
    cr_expect_eq(wait_awaited(client, 1), 0);
    wait_close();
}

Test(awaited, nothing_is_marked_without_a_wish_for_it)
{
    wait_open(&one_worker);
    space_config.no_await = 1;
    struct spw_space *plain = api_space(&api, client, &space_config);
    wait_pend(100, 1);
    cr_expect_eq(api_lookup(client, api_request(plain, 100, 1)).action, SPW_ACTION_DEFER);
    cr_expect_eq(wait_awaited(client, 0), 0);
    wait_close();
}

/* A byte of payload a millisecond: a chunk of two blocks takes 128 ms. */
static const struct rig_config paced = {
    .workers = 1, .capacity = 16, .copier = {.rate_bytes = {1000, 0}, .in_flight = {1, 1}}};

Test(awaited, awaited_stores_go_first_and_the_eta_says_when)
{
    struct spw_completion end[8];
    uint64_t eta_ns = 0, cookie = 0;
    wait_open(&paced);
    struct spw_completion first = wait_pend(100, 4), second = wait_pend(200, 2);
    cr_assert_eq(api_run(client, &first.ticket, 0, 1), 0);
    cr_assert_eq(api_run(client, &second.ticket, 8, 2), 0);
    rig_settle(&api.rig);
    struct spw_request *request = api_request(space, 200, 2);
    struct spw_decision decision = api_lookup(client, request);
    cr_expect_eq(decision.reason, SPW_REASON_PENDING);
    cr_expect_eq(decision.eta_ns, UINT64_MAX, "no copy has ended: no rate");
    for (uint64_t ms = 0; ms < 400 && cookie == 0; ms += 4) {
        rig_advance(&api.rig, 4 * MS);
        rig_settle(&api.rig);
        if (ms == 140) {
            struct spw_chunk_ref ref = {.index = 1};
            cr_assert_geq(spw_step_begin(client), 0);
            cr_assert_eq(spw_request_eta(request, &ref, &eta_ns), 0);
            cr_assert_eq(spw_step_end(client), 0);
            eta_ns += 144 * MS;
        }
        if (spw_completions(client, end, 8) == 1) {
            cookie = end[0].cookie;
            cr_expect_leq(eta_ns, (ms + 4) * MS + 16 * MS, "ETA %lu, ended %lu ms",
                          (unsigned long)(eta_ns / MS), (unsigned long)ms + 4);
            cr_expect_geq(eta_ns, (ms + 4) * MS - 16 * MS);
        }
    }
    cr_expect_eq(cookie, 2, "the job that was waited for, after the chunk in copy");
    cr_expect_eq(rig_count(&api.rig, 0, SPW_WORKER_chunks_stored), 3, "100, 200, 201");
    wait_close();
}

Test(awaited, auto_waits_only_for_what_comes_sooner_than_it_is_worth)
{
    struct spw_completion end[8];
    wait_open(&paced);
    struct spw_completion ready = wait_pend(100, 1);
    cr_assert_eq(api_run(client, &ready.ticket, 0, 1), 0);
    do {
        rig_advance(&api.rig, 4 * MS);
        rig_settle(&api.rig);
    } while (spw_completions(client, end, 8) == 0);
    struct spw_completion long_one = wait_pend(200, 6), one = wait_pend(101, 1);
    cr_assert_eq(api_run(client, &long_one.ticket, 0, 1), 0);
    cr_assert_eq(api_run(client, &one.ticket, 12, 2), 0);
    while (rig_count(&api.rig, 0, SPW_WORKER_chunks_stored) < 6) {
        rig_advance(&api.rig, 4 * MS);
        rig_settle(&api.rig);
    }
    space_config.max_recompute_pending_tokens = SPW_RECOMPUTE_AUTO;
    space_config.prefill_tokens_per_s = 1000; /* a chunk of 16 tokens takes 16 ms */
    space_config.recompute_price = 15;        /* worth 240 ms: two chunks take 256 */
    struct spw_space *cheap = api_space(&api, client, &space_config);
    struct spw_decision decision = api_lookup(client, api_request(cheap, 100, 2));
    cr_expect_eq(decision.reason, SPW_REASON_CUT);
    cr_expect_eq(decision.recomputed_tokens, 16);
    cr_expect(decision.eta_ns > 240 * MS && decision.eta_ns <= 256 * MS);
    space_config.recompute_price = 17;
    struct spw_space *dear = api_space(&api, client, &space_config);
    struct spw_request *request = api_request(dear, 100, 2), *list[1];
    cr_expect_eq(api_lookup(client, request).reason, SPW_REASON_PENDING);
    space_config.recompute_price = SPW_PRICE_QUEUE;
    struct spw_space *queue = api_space(&api, client, &space_config);
    cr_expect_eq(api_lookup(client, api_request(queue, 100, 2)).reason, SPW_REASON_CUT);
    cr_assert_eq(spw_space_queue(queue, 20), 0);
    cr_expect_eq(api_lookup(client, api_request(queue, 100, 2)).reason, SPW_REASON_PENDING);
    /* the stream stalls: it is woken though there is no news, and no longer waits */
    api.rig.now_ns += 10 * RIG_SECOND;
    cr_expect_eq(wait_woken(list, 1), 1);
    decision = api_lookup(client, request);
    cr_expect_eq(decision.reason == SPW_REASON_CUT || decision.reason == SPW_REASON_LOAD_LIMIT, 1);
    wait_close();
}

/* A rate is known, and chunk 101 stands behind six that nobody awaits, the first of them in copy. */
static void open_busy_stream(uint64_t wait_limit_ns)
{
    struct spw_completion end[8];
    wait_open(&paced);
    struct spw_completion ready = wait_pend(100, 1);
    cr_assert_eq(api_run(client, &ready.ticket, 0, 1), 0);
    do {
        rig_advance(&api.rig, 4 * MS);
        rig_settle(&api.rig);
    } while (spw_completions(client, end, 8) == 0);
    struct spw_completion others = wait_pend(200, 6), two = wait_pend(101, 2);
    cr_assert_eq(api_run(client, &others.ticket, 0, 1), 0);
    cr_assert_eq(api_run(client, &two.ticket, 12, 2), 0);
    rig_settle(&api.rig);
    space_config.max_recompute_pending_tokens = SPW_RECOMPUTE_AUTO;
    space_config.prefill_tokens_per_s = 1000;
    space_config.recompute_price = 1000;
    space_config.wait_limit_ns = wait_limit_ns;
    space = api_space(&api, client, &space_config);
}

Test(awaited, the_eta_of_a_run_counts_each_of_its_chunks)
{
    open_busy_stream(0);
    struct spw_decision decision = api_lookup(client, api_request(space, 100, 3));
    cr_expect_eq(decision.reason, SPW_REASON_PENDING);
    cr_expect(decision.eta_ns > 340 * MS && decision.eta_ns <= 384 * MS, "%lu",
              (unsigned long)decision.eta_ns);
    wait_close();
}

Test(awaited, a_priced_wait_is_weighed_again_when_its_end_was_expected)
{
    struct spw_request *list[1];
    open_busy_stream(0);
    struct spw_request *request = api_request(space, 100, 3);
    cr_expect_eq(api_lookup(client, request).reason, SPW_REASON_PENDING);
    api.rig.now_ns += 300 * MS; /* the worker stands still */
    cr_expect_eq(wait_woken(list, 1), 0);
    api.rig.now_ns += 100 * MS;
    cr_expect_eq(wait_woken(list, 1), 1);
    cr_expect_eq(api_lookup(client, request).reason, SPW_REASON_PENDING, "a slow copy is no stall");
    api.rig.now_ns += 2000 * MS;
    cr_expect_eq(wait_woken(list, 1), 1);
    struct spw_decision decision = api_lookup(client, request);
    cr_expect_eq(decision.reason, SPW_REASON_CUT);
    cr_expect_eq(decision.eta_ns, UINT64_MAX);
    cr_expect_eq(decision.recomputed_tokens, 32);
    struct spw_wait_histogram cut;
    cr_assert_eq(spw_waits(client, SPW_WAIT_CUT, &cut), 0);
    cr_expect_eq(cut.count, 1);
    cr_expect_eq(cut.sum_ns, 2400 * MS);
    wait_close();
}

Test(awaited, a_limit_ends_a_priced_wait_before_that)
{
    struct spw_request *list[1];
    open_busy_stream(50 * MS);
    struct spw_request *request = api_request(space, 100, 3);
    cr_expect_eq(api_lookup(client, request).reason, SPW_REASON_PENDING);
    api.rig.now_ns += 49 * MS;
    cr_expect_eq(wait_woken(list, 1), 0);
    api.rig.now_ns += MS;
    cr_expect_eq(wait_woken(list, 1), 1);
    cr_expect_eq(api_lookup(client, request).reason, SPW_REASON_LOAD_LIMIT);
    wait_close();
}

Test(awaited, what_is_awaited_already_is_ahead_once)
{
    struct spw_completion end[8];
    wait_open(&paced);
    struct spw_completion ready = wait_pend(100, 1);
    cr_assert_eq(api_run(client, &ready.ticket, 0, 1), 0);
    do {
        rig_advance(&api.rig, 4 * MS);
        rig_settle(&api.rig);
    } while (spw_completions(client, end, 8) == 0);
    struct spw_completion others = wait_pend(300, 6), wanted = wait_pend(200, 5);
    cr_assert_eq(api_run(client, &others.ticket, 0, 1), 0);
    cr_assert_eq(api_run(client, &wanted.ticket, 12, 2), 0);
    rig_settle(&api.rig);
    cr_expect_eq(api_lookup(client, api_request(space, 200, 4)).reason, SPW_REASON_PENDING);
    rig_settle(&api.rig); /* four go first, by now */
    struct spw_decision decision = api_lookup(client, api_request(space, 200, 5));
    cr_expect_eq(decision.reason, SPW_REASON_PENDING);
    cr_expect(decision.eta_ns > 5 * 128 * MS && decision.eta_ns <= 6 * 130 * MS,
              "the one in copy and these five: %lu ms", (unsigned long)(decision.eta_ns / MS));
    wait_close();
}
