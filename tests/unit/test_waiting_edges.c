/* Waits at their edges: clocks that go back, queues of any length, chunks whose writer tells no
 * time; through the installed API over a tiny pool on the test's own clock. */
#include "tests/support/wait_rig.h"

#include <criterion/criterion.h>

TestSuite(waiting_edges, .timeout = 25);

/* ---- time ------------------------------------------------------------------------------------ */

Test(waiting_edges, a_clock_that_goes_back_makes_no_wait_longer)
{
    wait_open(&one_worker);
    space = api_space(&api, client, &space_config);
    wait_pend(100, 1);
    struct spw_request *request = api_request(space, 100, 1);
    api_lookup(client, request);
    api.rig.now_ns -= 100 * MS;
    struct spw_decision decision = api_lookup(client, request);
    cr_expect_eq(decision.repeated, 1);
    cr_expect_eq(decision.waited_ns, 0);
    cr_assert_eq(spw_request_tokens(request, 17), 0);
    decision = api_lookup(client, request);
    cr_expect_eq(decision.repeated, 0);
    cr_expect_eq(decision.waited_ns, 0);
    wait_close();
}

Test(waiting_edges, any_queue_length_is_a_price)
{
    wait_open(&one_worker);
    space_config.max_recompute_pending_tokens = SPW_RECOMPUTE_AUTO;
    space_config.prefill_tokens_per_s = 1000;
    space_config.recompute_price = SPW_PRICE_QUEUE;
    space = api_space(&api, client, &space_config);
    wait_pend(100, 1);
    struct spw_request *request = api_request(space, 100, 1);
    struct spw_decision decision = {.size_bytes = sizeof(decision)};
    cr_assert_eq(spw_space_queue(space, UINT64_MAX), 0);
    cr_assert_geq(spw_step_begin(client), 0);
    cr_expect_eq(spw_lookup(request, 0, 0, &decision), 0);
    cr_assert_eq(spw_step_end(client), 0);
    wait_close();
}

static uint8_t brings(void *ctx, uint64_t tag)
{
    (void)ctx;
    (void)tag;
    return SPW_PENDING;
}

Test(waiting_edges, what_nobody_tells_the_time_of_is_unknown_and_not_worth_a_wait)
{
    const struct spw_beyond beyond = {.ask = brings};
    wait_open(&one_worker);
    space = api_space(&api, client, &space_config);
    client->beyond = &beyond;
    struct spw_decision decision = api_lookup(client, api_request(space, 100, 1));
    cr_expect_eq(decision.reason, SPW_REASON_PENDING);
    cr_expect_eq(decision.eta_ns, UINT64_MAX);
    space_config.max_recompute_pending_tokens = SPW_RECOMPUTE_AUTO;
    space_config.prefill_tokens_per_s = 1;
    space = api_space(&api, client, &space_config);
    decision = api_lookup(client, api_request(space, 100, 1));
    cr_expect_eq(decision.reason, SPW_REASON_LEADING_PENDING);
    wait_close();
}
