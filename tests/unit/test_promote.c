/* Chunks that only the tier below has: what a lookup makes of them, what is asked for, and what comes
 * of the answers; the tier and its worker's part in it are played by the test. */
#include "tests/support/wait_rig.h"

#include <criterion/criterion.h>
#include <errno.h>

TestSuite(promote, .timeout = 25);

static const struct rig_config below = {.workers = 1, .capacity = 16, .cold_chunks = 128};
static const struct rig_config two_below = {.workers = 2, .capacity = 16, .cold_chunks = 8};
static struct api_promote got;

/* Keys first .. first + count - 1 are below worker 0, under the ids from @id on. */
static void lay_below(uint32_t id, uint64_t first, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        api_cold_add(&api, space, 0, id + i, 0, first + i);
}

static bool asked(void)
{
    return api_take_promote(&api, client, 0, &got);
}

static void answer(uint64_t mask)
{
    struct spw_completion out;
    api_answer_promote(&api, client, 0, &got, mask);
    cr_assert_eq(spw_completions(client, &out, 1), 0, "no completion of the caller's");
}

/* ---- what it is ------------------------------------------------------------------------------ */

Test(promote, a_chunk_below_is_pending_and_at_a_worker_that_is_down_a_miss)
{
    uint8_t verdict = 9;
    wait_open(&below);
    lay_below(0, 100, 1);
    struct spw_request *request = api_request(space, 100, 1);
    cr_assert_geq(spw_step_begin(client), 0);
    cr_assert_eq(spw_request_probe(request, 0, 0, 1, &verdict), 0);
    cr_expect_eq(verdict, SPW_PENDING);
    cr_assert_eq(spw_step_end(client), 0);
    cr_expect_eq(api_lookup(client, request).reason, SPW_REASON_PENDING);
    api_say(&api, 0, SPW_WORKER_DOWN);
    cr_expect_eq(api_lookup(client, request).action, SPW_ACTION_MISS);
    wait_close();
}

Test(promote, a_copy_below_never_hides_one_that_is_ready_or_filling)
{
    const uint64_t ready = 2, filling = 1, cold = 3;
    struct spw_judge judge = {
        .live = UINT64_MAX, .up = 5, .ranks = 1, .mask = {5, 0}}; /* workers 0 and 1 */
    for (int form = 0; form < 2; form++) {
        uint64_t word[] = {ready << 2 | cold,  cold << 2 | ready, filling << 2 | cold, cold, 0,
                           cold << 2 | filling};
        const uint8_t verdict[] = {SPW_HIT,     SPW_HIT,  SPW_PENDING,
                                   SPW_PENDING, SPW_MISS, SPW_PENDING};
        uint8_t said[6];
        spw_judge_words(&judge, word, 6, said);
        for (int i = 0; i < 6; i++) {
            cr_expect_eq(said[i], verdict[i]);
            cr_expect_eq(spw_judge_word(&judge, word[i]), verdict[i]);
        }
        judge.up = 4; /* worker 0 is down: what it has ready is there still, what is below isn't */
        uint64_t lost = cold, kept = ready, other = cold << 2;
        cr_expect_eq(spw_judge_word(&judge, lost), SPW_MISS);
        cr_expect_eq(spw_judge_word(&judge, kept), SPW_HIT);
        cr_expect_eq(spw_judge_word(&judge, other), SPW_PENDING);
        judge.up = 5;
        judge.ranks = 1 + (uint32_t)form; /* the general form too */
        judge.mask[1] = 5;
    }
}

/* ---- asking ---------------------------------------------------------------------------------- */

Test(promote, a_deferral_asks_once_for_what_it_needs_first_needed_first)
{
    wait_open(&below);
    api_store(&api, client, space, 1, 100, 1);
    lay_below(0, 101, 9);
    lay_below(20, 111, 1); /* behind a hole: nobody needs it */
    struct spw_request *request = api_request(space, 100, 12);
    cr_expect_eq(api_lookup(client, request).action, SPW_ACTION_DEFER);
    cr_assert(asked());
    cr_expect_eq(got.command.count, 9);
    cr_expect_eq(got.command.body_slots, 2, "seven a slot");
    cr_expect_eq(got.command.space, spw_space_number(space));
    for (uint32_t i = 0; i < 9; i++)
        cr_expect_eq(got.tag[i], api_tag(space, 0, 101 + i));
    cr_expect(!asked());
    lay_below(30, 300, 1); /* news of something else */
    spw_wakeup_one(&client->wakeup, &request->waiter);
    cr_expect_eq(api_lookup(client, request).action, SPW_ACTION_DEFER);
    cr_expect(!asked(), "once a wait");
    answer(0);
    cr_expect_eq(api_counter(client, "promotes"), 9);
    wait_close();
}

Test(promote, more_than_a_command_takes_are_asked_for_in_several)
{
    wait_open(&below);
    lay_below(0, 100, 100);
    api_lookup(client, api_request(space, 100, 100));
    cr_assert(asked());
    cr_expect_eq(got.command.count, 64);
    cr_expect_eq(got.command.body_slots, 10);
    cr_assert(asked());
    cr_expect_eq(got.command.count, 36);
    cr_expect_eq(got.tag[35], api_tag(space, 0, 199));
    cr_expect(!asked());
    wait_close();
}

Test(promote, who_does_not_wait_asks_for_nothing) /* LK-10 */
{
    struct spw_request_config config = {
        .size_bytes = sizeof(config), .flags = SPW_REQUEST_NO_READ, .prompt_tokens = 16};
    struct spw_request *blind;
    uint8_t key[RIG_KEY_BYTES];
    wait_open(&below);
    lay_below(0, 101, 2);
    cr_expect_eq(api_lookup(client, api_request(space, 100, 3)).action, SPW_ACTION_MISS);
    space_config.max_recompute_pending_tokens = 32;
    struct spw_space *hurried = api_space(&api, client, &space_config);
    cr_expect_eq(api_lookup(client, api_request(hurried, 101, 2)).reason,
                 SPW_REASON_LEADING_PENDING);
    api_store(&api, client, space, 1, 100, 1);
    cr_expect_eq(api_lookup(client, api_request(hurried, 100, 3)).reason, SPW_REASON_CUT);
    cr_assert_eq(spw_request_open(space, &config, &blind), 0);
    rig_key(0, 101, key);
    cr_assert_eq(spw_request_extend(blind, 0, key, API_KEY_BYTES, 1), 0);
    cr_expect_eq(api_lookup(client, blind).reason, SPW_REASON_SKIP);
    cr_expect(!asked());
    cr_expect_eq(api_counter(client, "promotes"), 0);
    wait_close();
}

Test(promote, each_rank_is_asked_at_its_own_worker_for_what_it_lacks)
{
    wait_open(&two_below);
    api_cold_add(&api, space, 0, 0, 0, 100);
    api_cold_add(&api, space, 1, 0, 0, 100);
    struct spw_request *request = api_request(space, 100, 1);
    cr_expect_eq(api_lookup(client, request).action, SPW_ACTION_DEFER);
    for (uint32_t k = 0; k < 2; k++) {
        cr_assert(api_take_promote(&api, client, k, &got));
        cr_expect_eq(got.command.count, 1);
        cr_expect_eq(got.tag[0], api_tag(space, 0, 100));
    }
    api_promote_end(&api, 0, api_promote_begin(&api, 0, 0, 1), true);
    cr_expect_eq(api_lookup(client, request).action, SPW_ACTION_DEFER, "the other part");
    api_promote_end(&api, 1, api_promote_begin(&api, 1, 0, 1), true);
    cr_expect_eq(api_lookup(client, request).action, SPW_ACTION_LOAD);
    wait_close();
}

/* ---- it comes -------------------------------------------------------------------------------- */

Test(promote, what_comes_is_marked_until_the_wait_ends_ready_or_not)
{
    struct spw_request *one;
    wait_open(&below);
    lay_below(0, 100, 2);
    struct spw_request *request = api_request(space, 100, 2);
    api_lookup(client, request);
    cr_assert(asked());
    uint32_t first = api_promote_begin(&api, 0, 0, 1000);
    uint32_t second = api_promote_begin(&api, 0, 1, 2000);
    answer(0);
    cr_expect_eq(wait_woken(&one, 1), 1);
    cr_expect_eq(api_lookup(client, request).action, SPW_ACTION_DEFER);
    cr_expect_eq(wait_awaited(client, 0), 2);
    uint64_t changes = spw_client_awaited_changes(client->own, 0);
    api_promote_end(&api, 0, first, true);
    cr_expect_eq(api_lookup(client, request).action, SPW_ACTION_DEFER);
    cr_expect_eq(wait_awaited(client, 0), 2, "the worker sees that it is still waited for");
    cr_expect_eq(spw_client_awaited_changes(client->own, 0), changes, "and no bit was ever clear");
    api_promote_end(&api, 0, second, true);
    cr_expect_eq(wait_woken(&one, 1), 1);
    cr_expect_eq(api_lookup(client, request).action, SPW_ACTION_LOAD);
    cr_expect_eq(wait_awaited(client, 0), 0);
    cr_expect_eq(wait_ended(SPW_WAIT_HIT).count, 1);
    wait_close();
}

Test(promote, a_space_that_marks_no_stores_marks_promotions)
{
    wait_open(&below);
    space_config.no_await = 1;
    space = api_space(&api, client, &space_config);
    wait_pend(101, 1);
    lay_below(0, 100, 1);
    struct spw_request *request = api_request(space, 100, 2);
    api_lookup(client, request);
    cr_assert(asked());
    api_promote_begin(&api, 0, 0, 1000);
    cr_expect_eq(api_lookup(client, request).action, SPW_ACTION_DEFER);
    cr_expect_eq(wait_awaited(client, 0), 1);
    wait_close();
}

Test(promote, fifty_wait_for_one_chunk_and_see_it_at_the_poll_after_it_came) /* LK-6 */
{
    struct spw_request *request[50], *woken[64];
    uint32_t commands = 0;
    wait_open(&below);
    lay_below(0, 100, 1);
    for (int i = 0; i < 50; i++) {
        request[i] = api_request(space, 100, 1);
        cr_expect_eq(api_lookup(client, request[i]).action, SPW_ACTION_DEFER);
    }
    uint32_t slot = api_promote_begin(&api, 0, 0, 1000);
    for (; asked(); commands++)
        answer(0); /* the first is brought, the others join it */
    cr_expect_leq(commands, 50);
    for (int i = 0; i < 50; i++)
        api_lookup(client, request[i]);
    cr_expect(!asked(), "it is on its way: nobody asks");
    api_promote_end(&api, 0, slot, true);
    cr_expect_eq(wait_woken(woken, 64), 50);
    for (int i = 0; i < 50; i++)
        cr_expect_eq(api_lookup(client, request[i]).action, SPW_ACTION_LOAD);
    wait_close();
}

/* ---- it does not come ------------------------------------------------------------------------ */

Test(promote, fifty_want_what_is_on_its_way_each_by_its_own_budget) /* LK-6 */
{
    struct spw_request *request[50], *woken[64];
    wait_open(&below);
    space_config.max_recompute_pending_tokens = 16;
    struct spw_space *covered = api_space(&api, client, &space_config);
    lay_below(0, 100, 1);
    uint32_t slot = api_promote_begin(&api, 0, 0, 1000);
    for (int i = 0; i < 50; i++) {
        request[i] = api_request(i % 2 ? covered : space, 100, 1);
        struct spw_decision decision = api_lookup(client, request[i]);
        cr_expect_eq(decision.action, i % 2 ? SPW_ACTION_MISS : SPW_ACTION_DEFER);
        cr_expect_eq(decision.reason, i % 2 ? SPW_REASON_LEADING_PENDING : SPW_REASON_PENDING);
    }
    cr_expect(!asked(), "it is on its way");
    api_promote_end(&api, 0, slot, true);
    cr_expect_eq(wait_woken(woken, 64), 25, "all that wait, at once");
    for (int i = 0; i < 50; i++)
        cr_expect_eq(api_lookup(client, request[i]).action, SPW_ACTION_LOAD);
    wait_close();
}

Test(promote, what_will_not_come_is_a_miss_for_who_asked_at_its_next_look) /* LK-3 */
{
    struct spw_request *one;
    wait_open(&below);
    lay_below(0, 100, 1);
    struct spw_request *request = api_request(space, 100, 1);
    api_lookup(client, request);
    cr_assert(asked());
    answer(1);
    cr_expect_eq(wait_woken(&one, 1), 1);
    cr_expect_eq(one, request);
    struct spw_decision decision = api_lookup(client, request);
    cr_expect_eq(decision.action, SPW_ACTION_MISS);
    cr_expect_eq(decision.reason, SPW_REASON_MISS_NOT_PROMOTED);
    cr_expect_eq(decision.deciding_chunk, 0);
    cr_expect_eq(wait_explained().reason, SPW_REASON_MISS_NOT_PROMOTED);
    cr_expect_str_eq(spw_reason_name(wait_explained().reason), "miss_not_promoted");
    cr_expect_eq(wait_ended(SPW_WAIT_LOST).count, 1);
    cr_expect_eq(api_counter(client, "promotes_refused"), 1);
    cr_expect(!asked());
    cr_expect_eq(api_lookup(client, request).action, SPW_ACTION_DEFER, "a new wait");
    cr_expect(asked(), "asks anew");
    wait_close();
}

Test(promote, what_is_before_it_is_loaded)
{
    wait_open(&below);
    api_store(&api, client, space, 1, 100, 1);
    lay_below(0, 101, 3);
    struct spw_request *request = api_request(space, 100, 4);
    api_lookup(client, request);
    cr_assert(asked());
    uint32_t slot = api_promote_begin(&api, 0, 0, 1);
    answer(2); /* the second of them */
    cr_expect_eq(api_lookup(client, request).action, SPW_ACTION_DEFER, "for the first");
    api_promote_end(&api, 0, slot, true);
    struct spw_decision decision = api_lookup(client, request);
    cr_expect_eq(decision.reason, SPW_REASON_LOAD_NOT_PROMOTED);
    cr_expect_eq(decision.hit_tokens, 32);
    cr_expect_eq(decision.deciding_chunk, 2);
    wait_close();
}

Test(promote, what_came_and_went_is_asked_for_no_more_in_this_wait) /* LK-3 */
{
    struct spw_request *one;
    wait_open(&below);
    lay_below(0, 100, 1);
    struct spw_request *request = api_request(space, 100, 1);
    api_lookup(client, request);
    cr_assert(asked());
    uint32_t slot = api_promote_begin(&api, 0, 0, 1);
    answer(0);
    cr_expect_eq(api_lookup(client, request).action, SPW_ACTION_DEFER);
    api_promote_end(&api, 0, slot, false);
    cr_expect_eq(wait_woken(&one, 1), 1);
    cr_expect_eq(api_lookup(client, request).reason, SPW_REASON_MISS_NOT_PROMOTED);
    cr_expect_eq(wait_awaited(client, 0), 0);
    cr_expect(!asked());
    wait_close();
}

Test(promote, an_answer_in_the_middle_of_a_step_is_weighed_at_the_next)
{
    struct spw_decision decision = {.size_bytes = sizeof(decision)};
    struct spw_request *one;
    wait_open(&below);
    lay_below(0, 100, 1);
    struct spw_request *request = api_request(space, 100, 1);
    api_lookup(client, request);
    cr_assert(asked());
    cr_assert_geq(spw_step_begin(client), 0);
    uint32_t slot = api_promote_begin(&api, 0, 0, 1);
    answer(0);
    cr_assert_eq(spw_lookup(request, 0, 0, &decision), 0);
    cr_expect_eq(decision.action, SPW_ACTION_DEFER, "this step may not see that it comes");
    cr_assert_eq(spw_step_end(client), 0);
    api_promote_end(&api, 0, slot, false); /* and may never */
    cr_expect_eq(wait_woken(&one, 1), 1);
    cr_expect_eq(api_lookup(client, request).reason, SPW_REASON_MISS_NOT_PROMOTED);
    wait_close();
}
