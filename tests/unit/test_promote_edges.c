/* The same at the edges: full lanes, workers that die, requests that are gone, tails, how long it
 * will take, and what else sees a chunk that only the tier below has. */
#include "tests/support/wait_rig.h"

#include <criterion/criterion.h>
#include <errno.h>

TestSuite(promote_edges, .timeout = 25);

static const struct rig_config below = {.workers = 1, .capacity = 16, .cold_chunks = 128};
static struct api_promote got;

static void lay_below(uint32_t id, uint64_t first, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        api_cold_add(&api, space, 0, id + i, 0, first + i);
}

static bool asked(void)
{
    return api_take_promote(&api, client, 0, &got);
}

Test(promote_edges, what_finds_no_room_in_the_lane_is_asked_for_at_the_next_step)
{
    const struct rig_config narrow = {
        .workers = 1, .capacity = 16, .cold_chunks = 64, .command_slots = 4};
    struct spw_request *one;
    wait_open(&narrow);
    lay_below(0, 100, 40);
    struct spw_request *request = api_request(space, 100, 40);
    cr_expect_eq(api_lookup(client, request).action, SPW_ACTION_DEFER);
    uint32_t asked_for = 0, most = 0;
    for (int step = 0; step < 12; step++) {
        while (asked()) {
            for (uint32_t i = 0; i < got.command.count; i++)
                cr_expect_eq(got.tag[i], api_tag(space, 0, 100 + asked_for + i), "in order, once");
            asked_for += got.command.count;
            most = got.command.count > most ? got.command.count : most;
        }
        if (asked_for < 40)
            cr_expect_eq(wait_woken(&one, 1), 1, "at each step");
        cr_expect_eq(api_lookup(client, request).action, SPW_ACTION_DEFER);
    }
    cr_expect_eq(asked_for, 40);
    cr_expect_leq(most, 21, "three slots of a lane of four");
    cr_expect_gt(api_counter(client, "lanes_full"), 0);
    wait_close();
}

Test(promote_edges, a_worker_that_dies_before_it_answers_is_asked_again_when_it_is_back)
{
    struct spw_completion out;
    wait_open(&below);
    lay_below(0, 100, 1);
    struct spw_request *request = api_request(space, 100, 1);
    api_lookup(client, request);
    api_kill_worker(&api, 0);
    cr_expect_eq(spw_completions(client, &out, 1), 0);
    cr_expect_eq(api_counter(client, "owner_dead"), 1);
    cr_expect_eq(api_lookup(client, request).reason, SPW_REASON_GROUP_MISS);
    api_restart_worker(&api, 0);
    api_lookup(client, request); /* sees the new incarnation */
    lay_below(0, 100, 1);        /* found again */
    cr_expect_eq(api_lookup(client, request).action, SPW_ACTION_DEFER);
    cr_expect(asked());
    wait_close();
}

Test(promote_edges, an_answer_for_a_request_that_is_gone_is_dropped)
{
    struct spw_completion out;
    wait_open(&below);
    lay_below(0, 100, 2);
    struct spw_request *request = api_request(space, 100, 1), *kept = api_request(space, 101, 1);
    api_lookup(client, request);
    cr_assert(asked());
    spw_request_finish(request);
    api_answer_promote(&api, client, 0, &got, 1);
    cr_expect_eq(spw_completions(client, &out, 1), 0);
    cr_expect_eq(api_counter(client, "late_completions"), 1);
    api_lookup(client, kept);
    cr_assert(asked());
    cr_assert_eq(spw_request_cancel(kept), 0); /* this wait is over ... */
    cr_expect_eq(api_lookup(client, kept).action, SPW_ACTION_DEFER);
    api_answer_promote(&api, client, 0, &got, 1);
    cr_expect_eq(spw_completions(client, &out, 1), 0);
    cr_expect_eq(api_lookup(client, kept).action, SPW_ACTION_DEFER, "... and not that one");
    cr_expect_eq(api_counter(client, "late_completions"), 2);
    cr_assert(asked());
    api_answer_promote(&api, client, 0, &got, 0);
    api_answer_promote(&api, client, 0, &got, 1); /* twice */
    cr_expect_eq(spw_completions(client, &out, 1), 0);
    cr_expect_eq(api_counter(client, "late_completions"), 3);
    wait_close();
}

Test(promote_edges, a_request_waits_for_its_answer_no_longer_than_its_limit)
{
    wait_open(&below);
    lay_below(0, 100, 1);
    struct spw_request *request = api_request(space, 100, 1);
    api_lookup(client, request);
    cr_assert(asked());
    rig_advance(&api.rig, 500 * MS);
    cr_expect_eq(api_lookup(client, request).reason, SPW_REASON_MISS_LIMIT);
    wait_close();
}

Test(promote_edges, the_objects_of_a_tail_are_asked_for_and_may_be_refused)
{
    static const struct spw_group_config group[] = {
        {.kind = SPW_GROUP_FULL, .block_tokens = 32, .chunk_bytes = RIG_BLOCK_BYTES},
        {.kind = SPW_GROUP_STATE, .block_tokens = 32, .chunk_bytes = RIG_BLOCK_BYTES}};
    struct spw_request_config config = {.size_bytes = sizeof(config), .prompt_tokens = 30};
    uint8_t both[2 * API_KEY_BYTES];
    struct spw_completion out;
    struct spw_request *request;
    wait_open(&below);
    space_config.groups = 2;
    space_config.group = group;
    space_config.blocks_per_chunk = 1;
    space = api_space(&api, client, &space_config);
    for (uint32_t g = 0; g < 2; g++) {
        rig_key(0, 100, both + g * API_KEY_BYTES);
        api_cold_add(&api, space, 0, g, g, 100);
    }
    cr_assert_eq(spw_request_open(space, &config, &request), 0);
    cr_assert_eq(spw_request_boundary(request, 16, both, API_KEY_BYTES), 0);
    cr_expect_eq(api_lookup(client, request).reason, SPW_REASON_TAIL_PENDING);
    cr_assert(asked());
    cr_expect_eq(got.command.count, 2);
    cr_expect_eq(got.tag[1], api_tag(space, 1, 100));
    uint32_t slot = api_promote_begin(&api, 0, 0, 1);
    api_answer_promote(&api, client, 0, &got, 2);
    cr_expect_eq(spw_completions(client, &out, 1), 0);
    cr_expect_eq(api_lookup(client, request).action, SPW_ACTION_MISS);
    cr_expect_eq(api_lookup(client, request).reason, SPW_REASON_TAIL_PENDING);
    cr_expect_eq(wait_awaited(client, 0), 1);
    cr_assert(asked());
    cr_expect_eq(got.tag[0], api_tag(space, 1, 100), "the one that isn't on its way");
    api_promote_end(&api, 0, slot, true);
    api_promote_end(&api, 0, api_promote_begin(&api, 0, 1, 1), true);
    cr_expect_eq(api_lookup(client, request).reason, SPW_REASON_TAIL);
    wait_close();
}

/* ---- how long -------------------------------------------------------------------------------- */

static uint64_t eta_of(struct spw_request *request)
{
    struct spw_chunk_ref ref = {0};
    uint64_t eta_ns = 0;
    cr_assert_geq(spw_step_begin(client), 0);
    cr_assert_eq(spw_request_eta(request, &ref, &eta_ns), 0);
    cr_assert_eq(spw_step_end(client), 0);
    return eta_ns;
}

/* A chunk of 128 bytes takes 128 ms. */
static void promotions_run(uint64_t queued_bytes, uint64_t awaited_bytes)
{
    struct spw_stream *stream = &api.rig.pool[0].feed[0]->promotions;
    spw_store_relaxed(&stream->bytes_queued, queued_bytes);
    spw_store_relaxed(&stream->bytes_awaited, awaited_bytes);
    spw_store_relaxed(&stream->rate_bytes_per_s, 1000);
    spw_store_relaxed(&stream->progress_ns, api.rig.now_ns);
}

Test(promote_edges, an_eta_is_read_in_the_stream_of_promotions)
{
    wait_open(&below);
    lay_below(0, 100, 3);
    struct spw_request *request = api_request(space, 100, 2);
    cr_expect_eq(eta_of(request), UINT64_MAX, "nothing was brought yet: no rate");
    promotions_run(512, 512);
    cr_expect_eq(eta_of(request), 640 * MS, "behind all that is asked for");
    cr_expect_eq(api_lookup(client, request).eta_ns, 768 * MS, "two of them");
    api_promote_begin(&api, 0, 2, 512);
    cr_expect_eq(eta_of(api_request(space, 102, 1)), 512 * MS, "where it stands");
    promotions_run(512, 256);
    api_promote_begin(&api, 0, 0, 640);
    cr_expect_eq(eta_of(request), 384 * MS, "ahead of what nobody waits for, once it is marked");
    wait_close();
}

Test(promote_edges, auto_asks_only_for_what_comes_sooner_than_it_is_worth)
{
    wait_open(&below);
    lay_below(0, 100, 1);
    promotions_run(0, 0);
    space_config.max_recompute_pending_tokens = SPW_RECOMPUTE_AUTO;
    space_config.prefill_tokens_per_s = 1000; /* a chunk of 16 tokens takes 16 ms */
    space_config.recompute_price = 7;         /* worth 112 ms: it takes 128 */
    struct spw_space *cheap = api_space(&api, client, &space_config);
    cr_expect_eq(api_lookup(client, api_request(cheap, 100, 1)).reason, SPW_REASON_LEADING_PENDING);
    cr_expect(!asked());
    space_config.recompute_price = 9;
    struct spw_space *dear = api_space(&api, client, &space_config);
    cr_expect_eq(api_lookup(client, api_request(dear, 100, 1)).reason, SPW_REASON_PENDING);
    cr_expect(asked());
    wait_close();
}

/* ---- others that see it ---------------------------------------------------------------------- */

Test(promote_edges, a_chunk_that_went_below_is_loaded_by_nobody_and_removed_in_the_log)
{
    struct spw_change change[4];
    struct spw_chunk_ref ref = {0};
    wait_open(&below);
    struct spw_client *other = api_attach(&api, 16);
    struct spw_space *theirs = api_space(&api, other, &space_config);
    api_store(&api, client, space, 1, 100, 1);
    lay_below(0, 100, 1); /* below, too: no news */
    struct spw_request *request = api_request(theirs, 100, 1);
    struct spw_decision decision = api_lookup(other, request);
    cr_expect_eq(decision.action, SPW_ACTION_LOAD);
    cr_expect_eq(spw_changes(other, change, 4), 1);
    struct spw_entry_copy entry;
    cr_assert_eq(spw_table_read(&client->views.view[0].table, 0, false, &entry), 0);
    cr_assert_eq(entry.state, SPW_READY);
    api_promote_end(&api, 0, 0, false); /* evicted */
    cr_assert_geq(spw_step_begin(other), 0);
    decision.step = other->step; /* as one of this step would be */
    cr_expect_eq(spw_load_begin(request, &decision, 0, &ref, 1, 1), -ENOENT);
    cr_assert_eq(spw_step_end(other), 0);
    cr_expect_eq(spw_changes(other, change, 4), 1);
    cr_expect_eq(change[0].kind, SPW_CHANGE_REMOVED);
    cr_expect_eq(api_lookup(other, request).action, SPW_ACTION_DEFER);
    spw_detach(other);
    wait_close();
}

Test(promote_edges, what_was_computed_again_is_stored_though_it_is_below)
{
    wait_open(&below);
    lay_below(0, 100, 1);
    api_store(&api, client, space, 1, 100, 1);
    cr_expect_eq(api_lookup(client, api_request(space, 100, 1)).action, SPW_ACTION_LOAD);
    cr_expect(!asked());
    wait_close();
}
