/*
 * The priced rule at its edges, and what a deferral waits for. In these scenes a token is worth a
 * wait of 4000 ns. The rule as a whole is compared by the fuzzer.
 */
#include "tests/unit/lookup_scene.h"
#include <errno.h>
#include <string.h>

#define TOKEN_NS 4000u
#define UNKNOWN  UINT64_MAX

TestSuite(lookup_auto, .timeout = 10);

static void expect_await(const struct spw_decision_core *got, uint32_t g, uint64_t first,
                         uint64_t end)
{
    cr_expect(eq(u64, got->await[g].first, first), "group %u", g);
    cr_expect(eq(u64, got->await[g].end, end), "group %u", g);
}

static void expect_given_up(const struct spw_decision_core *got, uint64_t tokens, uint64_t eta_ns)
{
    cr_expect(eq(u64, got->tokens_recomputed, tokens));
    cr_expect(eq(u64, got->eta_ns, eta_ns));
}

static struct scene priced_full(const char *states, uint64_t eta_ns)
{
    struct scene scene = priced_prompt_of(16 * strlen(states));

    add_group(&scene, SPW_GROUP_FULL, 16, 0, states);
    scene.eta_ns[0] = eta_ns;
    return scene;
}

/* ---- complete chunks ---- */

Test(lookup_auto, a_wait_that_costs_what_computing_does_is_taken)
{
    struct scene scene = priced_full("HPH", 32 * TOKEN_NS);
    struct spw_decision_core got = decide(&scene);

    expect_outcome(&got, SPW_REASON_PENDING, 0);
    cr_expect(eq(int, got.action, SPW_ACTION_DEFER));
    expect_given_up(&got, 0, 32 * TOKEN_NS);
    cr_expect(eq(u32, got.wait_count, 1));
    expect_wait(&got, 0, 0, 1, 0);
    expect_await(&got, 0, 1, 2);
    cr_expect(eq(u64, scene.eta_of[0].first, 1));
    cr_expect(eq(u64, scene.eta_of[0].end, 2));
}

Test(lookup_auto, a_wait_that_costs_a_nanosecond_more_is_not)
{
    struct scene scene = priced_full("HPH", 32 * TOKEN_NS + 1);
    struct spw_decision_core got = decide(&scene);

    expect_outcome(&got, SPW_REASON_CUT, 16);
    expect_decider(&got, 0, 1);
    expect_given_up(&got, 32, 32 * TOKEN_NS + 1);
    cr_expect(eq(u32, got.wait_count, 0));
    expect_await(&got, 0, 0, 0);
}

Test(lookup_auto, a_leading_run_is_priced_likewise)
{
    struct scene scene = priced_full("PH", 32 * TOKEN_NS);
    struct spw_decision_core got = decide(&scene);

    expect_outcome(&got, SPW_REASON_PENDING, 0);
    scene.eta_ns[0]++;
    got = decide(&scene);
    expect_outcome(&got, SPW_REASON_LEADING_PENDING, 0);
    expect_given_up(&got, 32, 32 * TOKEN_NS + 1);
}

Test(lookup_auto, an_unknown_end_is_not_waited_for)
{
    struct scene scene = priced_full("HPH", UNKNOWN);
    struct spw_decision_core got = decide(&scene);

    expect_outcome(&got, SPW_REASON_CUT, 16);
    expect_given_up(&got, 32, UNKNOWN);
    scene.eta_ns[0] = 0;
    scene.source.eta = NULL;
    got = decide(&scene);
    expect_outcome(&got, SPW_REASON_CUT, 16);
    expect_given_up(&got, 32, UNKNOWN);
}

Test(lookup_auto, the_budget_is_not_used)
{
    const uint64_t budgets[] = {0, 32, SPW_TOKENS_MAX, UINT64_MAX};

    for (int i = 0; i < 4; i++) {
        struct scene scene = priced_full("HPH", 1);
        scene.in.lookup.budget_tokens = budgets[i];
        struct spw_decision_core got = decide(&scene);
        expect_outcome(&got, SPW_REASON_PENDING, 0);
        scene.eta_ns[0] = UNKNOWN;
        got = decide(&scene);
        expect_outcome(&got, SPW_REASON_CUT, 16);
    }
}

Test(lookup_auto, a_retry_waits_at_any_eta_and_all_that_pends_with_it)
{
    struct scene scene = priced_full("HPHRPH", UNKNOWN);
    struct spw_decision_core got = decide(&scene);

    expect_outcome(&got, SPW_REASON_RETRY, 0);
    expect_decider(&got, 0, 3);
    expect_await(&got, 0, 1, 5);
    expect_given_up(&got, 0, 0);
    cr_expect(eq(u64, scene.eta_calls, 0));
}

Test(lookup_auto, a_window_waits_at_any_eta)
{
    struct scene scene = priced_prompt_of(16 * 6 + 1);

    add_group(&scene, SPW_GROUP_SLIDING, 16, 32, "PPHPMP");
    scene.eta_ns[0] = UNKNOWN;
    struct spw_decision_core got = decide(&scene);
    expect_outcome(&got, SPW_REASON_PENDING, 0);
    expect_await(&got, 0, 3, 4);
    expect_given_up(&got, 0, UNKNOWN);
    scene.eta_ns[0] = UNKNOWN - 1;
    got = decide(&scene);
    expect_outcome(&got, SPW_REASON_PENDING, 0);
    expect_given_up(&got, 0, UNKNOWN - 1);
}

Test(lookup_auto, nothing_pends_nothing_is_asked)
{
    struct scene scene = priced_full("HHHM", 0);
    struct spw_decision_core got = decide(&scene);

    expect_outcome(&got, SPW_REASON_COMPLETE, 48);
    expect_given_up(&got, 0, 0);
    cr_expect(eq(u64, scene.eta_calls, 0));
}

/* ---- the request's whole loss ---- */

Test(lookup_auto, cuts_of_several_groups_add_up_and_the_latest_eta_counts)
{
    const uint64_t etas[][2] = {{32 * TOKEN_NS, 5},     {5, 32 * TOKEN_NS}, {32 * TOKEN_NS + 1, 5},
                                {5, 32 * TOKEN_NS + 1}, {5, UNKNOWN},       {UNKNOWN, 5}};
    struct scene scene = priced_prompt_of(16 * 4);

    add_group(&scene, SPW_GROUP_FULL, 16, 0, "HHHP");
    add_group(&scene, SPW_GROUP_FULL, 16, 0, "HHPH");
    for (int i = 0; i < 6; i++) {
        memcpy(scene.eta_ns, etas[i], sizeof(etas[i]));
        struct spw_decision_core got = decide(&scene);
        const uint64_t latest = etas[i][0] > etas[i][1] ? etas[i][0] : etas[i][1];
        cr_expect(eq(u64, got.eta_ns, latest));
        if (i < 2) {
            expect_outcome(&got, SPW_REASON_PENDING, 0);
            expect_await(&got, 0, 3, 4);
            expect_await(&got, 1, 2, 3);
        } else {
            expect_outcome(&got, SPW_REASON_CUT, 32);
            cr_expect(eq(u64, got.tokens_recomputed, 32));
        }
    }
}

/* Full HHHHHHHP, state MMMMMMMx: the cut strands the state group. */
static struct scene stranded(const char *state)
{
    struct scene scene = priced_prompt_of(16 * 8 + 1);

    add_group(&scene, SPW_GROUP_FULL, 16, 0, "HHHHHHHP");
    add_group(&scene, SPW_GROUP_STATE, 16, 0, state);
    return scene;
}

Test(lookup_auto, what_a_cut_strands_is_worth_a_longer_wait)
{
    struct scene scene = stranded("MMMMMMMH");

    scene.eta_ns[0] = 128 * TOKEN_NS;
    struct spw_decision_core got = decide(&scene);
    expect_outcome(&got, SPW_REASON_PENDING, 0);
    scene.eta_ns[0]++;
    got = decide(&scene);
    expect_outcome(&got, SPW_REASON_GROUP_MISS, 0);
    expect_given_up(&got, 128, 128 * TOKEN_NS + 1);
}

Test(lookup_auto, a_window_beyond_the_cut_pends_too)
{
    struct scene scene = stranded("MMMMMMMP");

    scene.eta_ns[1] = 128 * TOKEN_NS + 1;
    struct spw_decision_core got = decide(&scene);
    expect_outcome(&got, SPW_REASON_GROUP_MISS, 0);
    scene.eta_ns[1]--;
    got = decide(&scene);
    expect_outcome(&got, SPW_REASON_PENDING, 0);
    expect_await(&got, 0, 7, 8);
    expect_await(&got, 1, 7, 8);
}

Test(lookup_auto, a_retry_beyond_the_cut_waits_at_any_eta)
{
    struct scene scene = stranded("MMMMMMMR");

    scene.eta_ns[0] = UNKNOWN;
    struct spw_decision_core got = decide(&scene);
    expect_outcome(&got, SPW_REASON_RETRY, 0);
    expect_decider(&got, 1, 7);
    cr_expect(eq(u32, got.wait_count, 2));
    expect_wait(&got, 1, 0, 7, 0);
    expect_await(&got, 0, 7, 8);
    expect_await(&got, 1, 0, 0);
    cr_expect(eq(u64, scene.eta_calls, 0));
}

Test(lookup_auto, no_product_is_too_large)
{
    struct scene scene = priced_prompt_of(SPW_TOKENS_MAX);

    add_group(&scene, SPW_GROUP_FULL, 1ull << 60, 0, "HHHHHHP");
    scene.in.price = UINT64_MAX;
    scene.eta_ns[0] = UNKNOWN - 1;
    struct spw_decision_core got = decide(&scene);
    expect_outcome(&got, SPW_REASON_PENDING, 0);
    scene.in.price = 1; /* 2^60 tokens at 2^64 - 1 a second */
    scene.in.prefill_tokens_per_s = UINT64_MAX;
    scene.eta_ns[0] = 62500000;
    got = decide(&scene);
    expect_outcome(&got, SPW_REASON_PENDING, 0);
    scene.eta_ns[0]++;
    got = decide(&scene);
    expect_outcome(&got, SPW_REASON_CUT, 6ull << 60);
}

/* ---- partial tails ---- */

/* Full and state, blocks of 16, hash unit 4, a tail at 12. */
static struct scene tail_behind(const char *full, const char *state, const char *tail_states)
{
    struct scene scene = priced_prompt_of(30);

    add_group(&scene, SPW_GROUP_FULL, 16, 0, full);
    add_group(&scene, SPW_GROUP_STATE, 16, 0, state);
    scene.tail_boundary = 12;
    scene.tail_states = tail_states;
    return scene;
}

Test(lookup_auto, a_tail_is_priced_by_what_it_gains)
{
    struct scene scene = tail_behind("M", "M", "PH");

    scene.tail_eta_ns = 12 * TOKEN_NS;
    struct spw_decision_core got = decide(&scene);
    expect_outcome(&got, SPW_REASON_TAIL_PENDING, 0);
    expect_given_up(&got, 0, 12 * TOKEN_NS);
    expect_wait(&got, 0, 0, 0, 12);
    cr_expect(eq(u64, got.await_boundary, 12));
    expect_await(&got, 0, 0, 0);
    scene.tail_eta_ns++;
    got = decide(&scene);
    expect_outcome(&got, SPW_REASON_GROUP_MISS, 0);
    expect_given_up(&got, 12, 12 * TOKEN_NS + 1);
    cr_expect(eq(u64, got.await_boundary, 0));
    scene.tail_eta_ns = 0;
    scene.source.tail_eta = NULL;
    got = decide(&scene);
    expect_outcome(&got, SPW_REASON_GROUP_MISS, 0);
    expect_given_up(&got, 12, UNKNOWN);
}

Test(lookup_auto, a_retry_for_a_tail_waits_at_any_eta)
{
    struct scene scene = tail_behind("M", "M", "PR");

    scene.tail_eta_ns = UNKNOWN;
    struct spw_decision_core got = decide(&scene);
    expect_outcome(&got, SPW_REASON_TAIL_RETRY, 0);
    cr_expect(eq(u64, got.await_boundary, 12));
    expect_given_up(&got, 0, 0);
    scene.tail_states = "HR";
    got = decide(&scene);
    expect_outcome(&got, SPW_REASON_TAIL_RETRY, 0);
    cr_expect(eq(u64, got.await_boundary, 0));
    cr_expect(eq(u64, scene.eta_calls, 0));
}

Test(lookup_auto, a_tail_is_priced_also_where_the_complete_part_was_cut_to_nothing)
{
    struct scene scene = tail_behind("P", "H", "PH");

    scene.eta_ns[0] = 16 * TOKEN_NS;
    scene.tail_eta_ns = UNKNOWN;
    struct spw_decision_core got = decide(&scene);
    expect_outcome(&got, SPW_REASON_PENDING, 0); /* the complete part comes first */
    scene.eta_ns[0]++;
    got = decide(&scene);
    expect_outcome(&got, SPW_REASON_LEADING_PENDING, 0);
    expect_given_up(&got, 16, 16 * TOKEN_NS + 1);
    scene.tail_eta_ns = 12 * TOKEN_NS;
    got = decide(&scene);
    expect_outcome(&got, SPW_REASON_TAIL_PENDING, 0);
    scene.tail_states = "HH";
    got = decide(&scene);
    expect_outcome(&got, SPW_REASON_TAIL, 12);
    expect_given_up(&got, 4, 16 * TOKEN_NS + 1);
}

Test(lookup_auto, no_tail_is_waited_for_behind_complete_chunks)
{
    struct scene scene = tail_behind("H", "H", "PH");

    scene.tail_boundary = 20;
    struct spw_decision_core got = decide(&scene);
    expect_outcome(&got, SPW_REASON_COMPLETE, 16);
    cr_expect(eq(u64, scene.eta_calls, 0));
}

/* ---- without a price, too ---- */

Test(lookup_auto, a_budget_tells_the_eta_and_all_that_is_awaited)
{
    struct scene scene = priced_full("HPHPPPPPPPPPPHMP", 77);

    scene.in.priced = false;
    struct spw_decision_core got = decide(&scene);
    expect_outcome(&got, SPW_REASON_PENDING, 0);
    expect_given_up(&got, 0, 77);
    cr_expect(got.wait_more);
    expect_await(&got, 0, 1, 13);
    scene.in.lookup.budget_tokens = 16 * 13;
    got = decide(&scene);
    expect_outcome(&got, SPW_REASON_CUT, 16);
    expect_given_up(&got, 16 * 13, 77);
}

/* ---- what is refused ---- */

Test(lookup_auto, a_price_or_rate_of_0_and_another_scope_are_refused)
{
    struct scene scene = priced_full("HPH", 0);
    const struct spw_decide_input good = scene.in;
    struct spw_decision_core got, before;

    decide(&scene); /* gives it its groups */
    struct spw_decide_input bad[3] = {good, good, good};
    bad[0].price = 0;
    bad[1].prefill_tokens_per_s = 0;
    bad[2].scope = SPW_SCOPE_GROUP;
    memset(&before, 0xee, sizeof(before));
    got = before;
    for (int i = 0; i < 3; i++) {
        bad[i].lookup.groups = &scene.groups;
        bad[i].skip = i == 0; /* also where the answer needs no lookup */
        cr_expect(eq(int, spw_decide(&bad[i], &scene.source, &got), -EINVAL), "bad[%d]", i);
        cr_expect(eq(int, memcmp(&got, &before, sizeof(got)), 0));
        bad[i].priced = false;
        cr_expect(eq(int, spw_decide(&bad[i], &scene.source, &got), 0), "bad[%d]", i);
        got = before;
    }
}
