/*
 * Decisions on small layouts, states written as letters. The rules are compared whole by the
 * vectors and the fuzzer; here stand the failure cases by name and what those don't look at:
 * what is read, which group decided, what is waited for, what is refused.
 */
#include "tests/unit/lookup_scene.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

TestSuite(lookup, .timeout = 10);

/* ---- failure cases by name ---- */

Test(lookup, LK_1_a_run_within_the_budget_is_cut_away)
{
    struct spw_decision_core got = decide_full("HPH", 32);

    expect_outcome(&got, SPW_REASON_CUT, 16);
    cr_expect(eq(u64, got.tokens_recomputed, 32));
    cr_expect(eq(u32, got.wait_count, 0));
    expect_decider(&got, 0, 1);
}

Test(lookup, LK_1_a_budget_below_the_run_waits)
{
    const uint64_t budgets[] = {31, 16, 0};

    for (int i = 0; i < 3; i++) {
        struct spw_decision_core got = decide_full("HPH", budgets[i]);
        expect_outcome(&got, SPW_REASON_PENDING, 0);
        cr_expect(eq(int, got.action, SPW_ACTION_DEFER));
        cr_expect(eq(u64, got.need[0].end, 0));
        cr_expect(eq(u32, got.wait_count, 1));
        expect_wait(&got, 0, 0, 1, 0);
    }
}

Test(lookup, LK_1_a_leading_pending_chunk_within_the_budget_is_a_miss)
{
    struct spw_decision_core got = decide_full("P", 16);

    expect_outcome(&got, SPW_REASON_LEADING_PENDING, 0);
    cr_expect(eq(int, got.action, SPW_ACTION_MISS));
    cr_expect(eq(u64, got.tokens_recomputed, 16));
}

Test(lookup, LK_1_no_budget_covers_a_retry)
{
    struct spw_decision_core got = decide_full("HPHR", 1000000);

    expect_outcome(&got, SPW_REASON_RETRY, 0);
    expect_wait(&got, 0, 0, 3, 0);
    expect_wait(&got, 1, 0, 1, 0);
}

Test(lookup, LK_1_chunks_behind_a_miss_count_for_nothing)
{
    struct spw_decision_core got = decide_full("HPMH", 16);

    expect_outcome(&got, SPW_REASON_CUT, 16);
    cr_expect(eq(u64, got.tokens_recomputed, 16));
}

Test(lookup, LK_1_the_largest_budget_never_waits_for_pending)
{
    struct spw_decision_core got = decide_full("HPPPPPPP", SPW_TOKENS_MAX);
    struct scene scene = prompt_of(SPW_TOKENS_MAX, SPW_TOKENS_MAX);

    expect_outcome(&got, SPW_REASON_CUT, 16);
    add_group(&scene, SPW_GROUP_FULL, 1ull << 60, 0, "HHHHHHP");
    add_group(&scene, SPW_GROUP_SLIDING, 1ull << 58, SPW_TOKENS_MAX,
              "HHHHHHHHHHHHHHHHHHHHHHHHHHHHHHH");
    got = decide(&scene);
    expect_outcome(&got, SPW_REASON_CUT, 6ull << 60);
    cr_expect(eq(u64, got.tokens_recomputed, 1ull << 60));
}

/* A window of 32 with 3 tokens retained beyond it; 65 tokens, so that the hit can end at 64. */
static struct spw_decision_core decide_window(const char *states)
{
    struct scene scene = prompt_of(65, SPW_TOKENS_MAX);

    add_group(&scene, SPW_GROUP_SLIDING, 16, 35, states);
    return decide(&scene);
}

Test(lookup, LK_4_retained_tokens_need_their_chunk)
{
    struct spw_decision_core got = decide_window("MHHH");

    expect_outcome(&got, SPW_REASON_COMPLETE, 64);
    cr_expect(eq(u64, got.need[0].first, 1));
    cr_expect(eq(u64, got.need[0].end, 4));
}

Test(lookup, LK_4_a_hole_in_the_window_takes_the_next_lower_end)
{
    struct spw_decision_core got = decide_window("HMHH");

    expect_outcome(&got, SPW_REASON_COMPLETE, 16);
    cr_expect(eq(u64, got.need[0].first, 0));
    cr_expect(eq(u64, got.need[0].end, 1));
    got = decide_window("MMHH");
    expect_outcome(&got, SPW_REASON_GROUP_MISS, 0);
    expect_decider(&got, 0, 0);
}

Test(lookup, LK_4_pending_in_the_window_waits_at_any_budget)
{
    struct spw_decision_core got = decide_window("HPHH");

    expect_outcome(&got, SPW_REASON_PENDING, 0);
    cr_expect(eq(u32, got.wait_count, 1));
    expect_wait(&got, 0, 0, 1, 0);
}

Test(lookup, LK_9_nothing_behind_a_hole_is_a_prefix)
{
    struct spw_decision_core got = decide_full("MHH", 0);

    expect_outcome(&got, SPW_REASON_GROUP_MISS, 0);
    cr_expect(eq(int, got.action, SPW_ACTION_MISS));
    got = decide_full("HMH", 0);
    expect_outcome(&got, SPW_REASON_COMPLETE, 16);
    cr_expect(eq(u64, got.need[0].end, 1));
    expect_decider(&got, 0, 1);
}

/* ---- which chunks are asked for ---- */

static char *many(uint64_t count, char letter)
{
    static char states[4][SCENE_CHUNKS_MAX + 1];
    static int next;
    char *s = states[next++ % 4];

    memset(s, letter, count);
    s[count] = '\0';
    return s;
}

Test(lookup, a_miss_at_the_start_asks_for_one_batch_and_no_other_group)
{
    struct scene scene = prompt_of(16 * SCENE_CHUNKS_MAX, 0);
    char *states = many(SCENE_CHUNKS_MAX, 'H');

    states[0] = 'M';
    add_group(&scene, SPW_GROUP_SLIDING, 16, 64, many(SCENE_CHUNKS_MAX, 'H'));
    add_group(&scene, SPW_GROUP_FULL, 16, 0, states);
    struct spw_decision_core got = decide(&scene);
    expect_outcome(&got, SPW_REASON_GROUP_MISS, 0);
    expect_decider(&got, 1, 0);
    cr_expect(eq(u64, scene.asked[1], 64));
    cr_expect(eq(u64, scene.asked[0], 0));
}

Test(lookup, a_long_prefix_takes_few_calls_and_each_chunk_once)
{
    struct scene scene = prompt_of(16 * SCENE_CHUNKS_MAX, 0);

    add_group(&scene, SPW_GROUP_FULL, 16, 0, many(SCENE_CHUNKS_MAX, 'H'));
    struct spw_decision_core got = decide(&scene);
    expect_outcome(&got, SPW_REASON_COMPLETE, 16 * SCENE_CHUNKS_MAX);
    expect_decider(&got, -1, 0);
    cr_expect(eq(u64, scene.asked[0], SCENE_CHUNKS_MAX));
    cr_expect(lt(u64, scene.calls, 14));
}

Test(lookup, a_window_is_asked_for_from_the_right)
{
    struct scene scene = prompt_of(16 * SCENE_CHUNKS_MAX, 0);

    add_group(&scene, SPW_GROUP_SLIDING, 16, 16 * 100, many(SCENE_CHUNKS_MAX, 'H'));
    add_group(&scene, SPW_GROUP_STATE, 16, 0, many(SCENE_CHUNKS_MAX, 'H'));
    struct spw_decision_core got = decide(&scene);
    expect_outcome(&got, SPW_REASON_COMPLETE, 16 * (SCENE_CHUNKS_MAX - 1));
    cr_expect(eq(u64, scene.asked[0], 100));
    cr_expect(eq(u64, scene.asked[1], 16));
    cr_expect(eq(u64, got.need[0].first, SCENE_CHUNKS_MAX - 1 - 100));
}

Test(lookup, flags_are_answered_without_a_question)
{
    struct scene scene = prompt_of(32, 0);

    add_group(&scene, SPW_GROUP_FULL, 16, 0, "HH");
    scene.in.skip = true;
    struct spw_decision_core got = decide(&scene);
    expect_outcome(&got, SPW_REASON_SKIP, 0);
    cr_expect(eq(int, got.action, SPW_ACTION_MISS));
    scene.in.inflight = true;
    got = decide(&scene);
    expect_outcome(&got, SPW_REASON_TRANSFER, 0);
    cr_expect(eq(int, got.action, SPW_ACTION_DEFER));
    expect_decider(&got, -1, 0);
    cr_expect(eq(u64, scene.calls, 0));
}

/* ---- who decided, what is waited for, what is lost ---- */

Test(lookup, the_group_that_ends_the_hit_is_named)
{
    struct scene scene = prompt_of(16 * 6, 0);

    add_group(&scene, SPW_GROUP_FULL, 16, 0, "HHHHHM");
    add_group(&scene, SPW_GROUP_STATE, 16, 0, "MMHMMM");
    struct spw_decision_core got = decide(&scene);
    expect_outcome(&got, SPW_REASON_COMPLETE, 48);
    expect_decider(&got, 1, 3);
}

Test(lookup, a_cut_is_named_by_its_pending_chunk_even_if_another_group_ends_the_hit)
{
    struct scene scene = prompt_of(16 * 6, 64);

    scene.in.scope = SPW_SCOPE_GROUP;
    add_group(&scene, SPW_GROUP_FULL, 16, 0, "HHHHPM");
    add_group(&scene, SPW_GROUP_STATE, 16, 0, "MMHMMM");
    struct spw_decision_core got = decide(&scene);
    expect_outcome(&got, SPW_REASON_CUT, 48);
    expect_decider(&got, 0, 4);
    cr_expect(eq(u64, got.tokens_recomputed, 0));
}

Test(lookup, too_short_is_told_of_the_group_with_the_large_chunk)
{
    struct scene scene = prompt_of(40, 0);

    scene.in.lookup.num_computed_tokens = 20;
    add_group(&scene, SPW_GROUP_FULL, 16, 0, "HH");
    struct spw_decision_core got = decide(&scene);
    expect_outcome(&got, SPW_REASON_SHORT, 0);
    expect_decider(&got, 0, 1);
}

Test(lookup, a_chunk_loading_for_another_request_defers)
{
    struct scene scene = prompt_of(16 * 4, 0);

    add_group(&scene, SPW_GROUP_FULL, 16, 0, "HHHM");
    scene.loading[0] = 2;
    struct spw_decision_core got = decide(&scene);
    expect_outcome(&got, SPW_REASON_LOADING, 0);
    expect_decider(&got, 0, 2);
    cr_expect(eq(u32, got.wait_count, 0));
    scene.source.loading = NULL;
    got = decide(&scene);
    expect_outcome(&got, SPW_REASON_COMPLETE, 48);
}

Test(lookup, more_waits_than_fit_are_told)
{
    struct spw_decision_core got = decide_full("HPPPPPPPP", 0);

    cr_expect(eq(u32, got.wait_count, SPW_DECIDE_WAITS_MAX));
    cr_expect(not(got.wait_more));
    expect_wait(&got, 7, 0, 8, 0);
    got = decide_full("HPPPPPPPPP", 0);
    cr_expect(eq(u32, got.wait_count, SPW_DECIDE_WAITS_MAX));
    cr_expect(got.wait_more);
}

Test(lookup, pending_outside_the_chosen_window_is_not_waited_for)
{
    struct scene scene = prompt_of(16 * 6 + 1, 0);

    add_group(&scene, SPW_GROUP_SLIDING, 16, 32, "PPHPMP");
    struct spw_decision_core got = decide(&scene);
    expect_outcome(&got, SPW_REASON_PENDING, 0);
    cr_expect(eq(u32, got.wait_count, 1));
    expect_wait(&got, 0, 0, 3, 0);
}

/* Full HHHHHHHP, state MMMMMMMH: the cut strands the state group. */
static struct scene stranded(uint8_t scope)
{
    struct scene scene = prompt_of(16 * 8 + 1, 16);

    scene.in.scope = scope;
    add_group(&scene, SPW_GROUP_FULL, 16, 0, "HHHHHHHP");
    add_group(&scene, SPW_GROUP_STATE, 16, 0, "MMMMMMMH");
    return scene;
}

Test(lookup, the_request_scope_waits_where_a_cut_costs_more_than_the_budget)
{
    struct scene scene = stranded(SPW_SCOPE_REQUEST);
    struct spw_decision_core got = decide(&scene);

    expect_outcome(&got, SPW_REASON_PENDING, 0);
    cr_expect(eq(u32, got.wait_count, 1));
    expect_wait(&got, 0, 0, 7, 0);
    expect_decider(&got, 0, 7);
}

/* The sliding group makes the wait of the group with chunks of 12 unnecessary, but leaves less than
 * one of those chunks when that group looks again. With all written, it need not look again. */
Test(lookup, the_request_scope_waits_for_something_even_if_all_that_is_needed_is_ready)
{
    struct scene scene = prompt_of(36, 3);

    scene.hash_unit = 1;
    add_group(&scene, SPW_GROUP_FULL, 3, 0, "HHHHHHHHHHHP");
    add_group(&scene, SPW_GROUP_FULL, 12, 0, "HPP");
    add_group(&scene, SPW_GROUP_SLIDING, 2, 4, "MHHHMHMMMMMMMMMHMM");
    struct spw_decision_core got = decide(&scene);
    expect_outcome(&got, SPW_REASON_PENDING, 0);
    cr_expect(eq(u32, got.wait_count, 3));
    expect_wait(&got, 0, 0, 11, 0);
    expect_wait(&got, 1, 1, 1, 0);
    scene.states[1] = "HHP";
    got = decide(&scene);
    expect_outcome(&got, SPW_REASON_PENDING, 0);
    scene.states[1] = "HHH";
    got = decide(&scene);
    expect_outcome(&got, SPW_REASON_CUT, 8);
}

Test(lookup, the_group_scope_tells_what_the_cut_cost)
{
    struct scene scene = stranded(SPW_SCOPE_GROUP);
    struct spw_decision_core got = decide(&scene);

    expect_outcome(&got, SPW_REASON_GROUP_MISS, 0);
    expect_decider(&got, 1, 0);
    cr_expect(eq(u64, got.tokens_recomputed, 128));
}

/* Full and state, blocks of 16, hash unit 4; nothing but a tail to go on from. */
static struct scene only_tail(const char *tail_states, uint64_t budget)
{
    struct scene scene = prompt_of(30, budget);

    add_group(&scene, SPW_GROUP_FULL, 16, 0, "M");
    add_group(&scene, SPW_GROUP_STATE, 16, 0, "M");
    scene.tail_boundary = 12;
    scene.tail_states = tail_states;
    return scene;
}

Test(lookup, a_ready_tail_is_taken_unless_it_is_loading)
{
    struct scene scene = only_tail("HH", 0);
    struct spw_decision_core got = decide(&scene);

    expect_outcome(&got, SPW_REASON_TAIL, 12);
    cr_expect(eq(u64, got.tail_boundary, 12));
    cr_expect(eq(u64, got.need[1].end, 1));
    scene.tail_loading = 1;
    got = decide(&scene);
    expect_outcome(&got, SPW_REASON_LOADING, 0);
    cr_expect(eq(u64, got.tail_boundary, 0));
    cr_expect(eq(u64, got.need[1].end, 0));
    expect_decider(&got, 1, 0);
    scene.source.tail = NULL;
    got = decide(&scene);
    expect_outcome(&got, SPW_REASON_GROUP_MISS, 0);
}

Test(lookup, a_tail_is_waited_for_by_its_boundary)
{
    struct scene scene = only_tail("PR", SPW_TOKENS_MAX);
    struct spw_decision_core got = decide(&scene);

    expect_outcome(&got, SPW_REASON_TAIL_RETRY, 0);
    expect_wait(&got, 0, 1, 0, 12);
    expect_wait(&got, 1, 0, 0, 12);
    scene = only_tail("PH", 11);
    got = decide(&scene);
    expect_outcome(&got, SPW_REASON_TAIL_PENDING, 0);
    expect_wait(&got, 0, 0, 0, 12);
    scene = only_tail("PH", 12);
    got = decide(&scene);
    expect_outcome(&got, SPW_REASON_GROUP_MISS, 0);
    cr_expect(eq(u64, got.tokens_recomputed, 12));
}

/* ---- what is refused ---- */

static int decide_changed(struct scene scene, struct spw_decision_core *out)
{
    cr_assert(eq(
        int, spw_groups_init(&scene.groups, scene.hash_unit, 1, scene.shapes, scene.groups.count),
        0));
    scene.in.lookup.groups = &scene.groups;
    return spw_decide(&scene.in, &scene.source, out);
}

Test(lookup, counts_that_contradict_each_other_are_refused_and_nothing_is_written)
{
    struct scene good = prompt_of(32, 0), bad[7];
    struct spw_decision_core got, before;

    add_group(&good, SPW_GROUP_FULL, 16, 0, "HH");
    for (int i = 0; i < 7; i++)
        bad[i] = good;
    bad[0].in.lookup.num_computed_tokens = 33;
    bad[1].in.lookup.num_prompt_tokens = 33;
    bad[2].in.lookup.num_tokens = SPW_TOKENS_MAX + 1;
    bad[3].in.lookup.budget_tokens = SPW_TOKENS_MAX + 1;
    bad[4].in.lookup.num_tokens = bad[4].in.lookup.num_prompt_tokens = 31;
    bad[5].in.scope = 2;
    bad[6].in.lookup.num_computed_tokens = 33; /* also where the answer needs no lookup */
    bad[6].in.inflight = true;
    memset(&before, 0xee, sizeof(before));
    got = before;
    for (int i = 0; i < 7; i++)
        cr_expect(eq(int, decide_changed(bad[i], &got), -EINVAL));
    cr_expect(eq(int, memcmp(&got, &before, sizeof(got)), 0));
    cr_expect(eq(int, decide_changed(good, &got), 0));
}

Test(lookup, groups_that_make_no_sense_are_refused)
{
    const struct spw_group_shape full = {SPW_GROUP_FULL, 16, 0}, state = {SPW_GROUP_STATE, 16, 0};
    const struct spw_group_shape two[] = {state, {SPW_GROUP_STATE, 32, 0}};
    const struct spw_group_shape bad[] = {{4, 16, 0},
                                          {SPW_GROUP_FULL, 0, 0},
                                          {SPW_GROUP_FULL, 18, 0},
                                          {SPW_GROUP_FULL, 16, 1},
                                          {SPW_GROUP_STATE, 16, 1},
                                          {SPW_GROUP_SLIDING, 16, 0},
                                          {SPW_GROUP_CHUNKED, 16, SPW_TOKENS_MAX + 1},
                                          {SPW_GROUP_FULL, 1ull << 63, 0}};
    struct spw_group_shape many_groups[SPW_GROUPS_MAX + 1];
    struct spw_groups groups;

    for (int i = 0; i < 8; i++)
        cr_expect(eq(int, spw_groups_init(&groups, 4, 1, &bad[i], 1), -EINVAL), "bad[%d]", i);
    for (uint32_t i = 0; i <= SPW_GROUPS_MAX; i++)
        many_groups[i] = full;
    cr_expect(eq(int, spw_groups_init(&groups, 4, 1, two, 2), -EINVAL));
    cr_expect(eq(int, spw_groups_init(&groups, 0, 1, &full, 1), -EINVAL));
    cr_expect(eq(int, spw_groups_init(&groups, 4, 0, &full, 1), -EINVAL));
    cr_expect(eq(int, spw_groups_init(&groups, 4, 1, &full, 0), -EINVAL));
    cr_expect(eq(int, spw_groups_init(&groups, 4, 1, many_groups, SPW_GROUPS_MAX + 1), -EINVAL));
    cr_expect(eq(int, spw_groups_init(&groups, 4, 1, many_groups, SPW_GROUPS_MAX), 0));
    cr_expect(eq(int, spw_groups_init(&groups, 4, UINT32_MAX, &state, 1), 0));
    cr_expect(eq(u64, groups.state_tokens, 16ull * UINT32_MAX));
}

Test(lookup, every_reason_and_action_has_a_name_of_its_own)
{
    for (uint8_t r = 0; r < SPW_REASON_COUNT; r++) {
        cr_assert(ne(ptr, (void *)spw_reason_name(r), NULL));
        for (uint8_t q = 0; q < r; q++)
            cr_expect(ne(str, (char *)spw_reason_name(q), (char *)spw_reason_name(r)));
    }
    cr_expect(eq(ptr, (void *)spw_reason_name(SPW_REASON_COUNT), NULL));
    cr_expect(eq(str, (char *)spw_action_name(SPW_ACTION_DEFER), "defer"));
    cr_expect(eq(ptr, (void *)spw_action_name(SPW_ACTION_DEFER + 1), NULL));
}
