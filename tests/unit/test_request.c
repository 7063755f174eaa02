/* Requests: keys handed in once, what a deferred one waits for, partial tails, and what is touched
 * in which order. */
#include "sched/handle.h"
#include "tests/support/api_rig.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <malloc.h>
#include <string.h>

TestSuite(request, .timeout = 25);

static struct api api;
static struct spw_client *client;
static struct spw_space *space;
static struct spw_space_config space_config;

static void open_pool(const struct rig_config *config)
{
    api_open(&api, config);
    client = api_attach(&api, 0);
    space_config = api_space_config(1);
    space = api_space(&api, client, &space_config);
}

static void close_pool(void)
{
    spw_detach(client);
    api_close(&api);
}

static const struct rig_config one_worker = {.workers = 1, .capacity = 16};

/* ---- keys ------------------------------------------------------------------------------------ */

Test(request, keys_handed_in_piece_by_piece_are_the_same_keys)
{
    uint8_t key[4 * API_KEY_BYTES], at_once[4], in_pieces[4];
    open_pool(&one_worker);
    api_store(&api, client, space, 1, 100, 3);
    for (uint32_t i = 0; i < 4; i++)
        rig_key(0, 100 + i, key + i * API_KEY_BYTES);
    struct spw_request *pieces = api_request(space, 100, 0);
    cr_assert_eq(spw_request_tokens(pieces, 64), 0);
    for (uint32_t i = 0; i < 4; i++)
        cr_assert_eq(spw_request_extend(pieces, 0, key + i * API_KEY_BYTES, API_KEY_BYTES, 1), 0);
    struct spw_request *whole = api_request(space, 100, 4);
    cr_assert_geq(spw_step_begin(client), 0);
    cr_assert_eq(spw_request_probe(whole, 0, 0, 4, at_once), 0);
    cr_assert_eq(spw_request_probe(pieces, 0, 0, 4, in_pieces), 0);
    cr_expect_eq(memcmp(at_once, in_pieces, 4), 0);
    cr_assert_eq(spw_probe(space, 0, key, API_KEY_BYTES, 4, in_pieces), 0);
    cr_expect_eq(memcmp(at_once, in_pieces, 4), 0);
    cr_expect_eq(at_once[2], SPW_HIT);
    cr_expect_eq(at_once[3], SPW_MISS);
    cr_assert_eq(spw_step_end(client), 0);
    cr_expect_eq(api_lookup(client, pieces).hit_tokens, api_lookup(client, whole).hit_tokens);
    close_pool();
}

Test(request, keys_that_make_no_sense_are_refused)
{
    uint8_t key[65] = {0};
    struct spw_request *request;
    open_pool(&one_worker);
    struct spw_request_config config = {.size_bytes = sizeof(config), .flags = 8};
    cr_expect_eq(spw_request_open(space, &config, &request), -EINVAL, "an unknown flag");
    config.flags = 0;
    config.prompt_tokens = 1ull << 63;
    cr_expect_eq(spw_request_open(space, &config, &request), -EINVAL);
    config.prompt_tokens = 1ull << 62; /* room is made for what is likely, not for that */
    cr_assert_eq(spw_request_open(space, &config, &request), 0);
    cr_expect_eq(spw_request_extend(request, 0, key, 0, 1), -EINVAL);
    cr_expect_eq(spw_request_extend(request, 0, key, 65, 1), -EINVAL);
    cr_expect_eq(spw_request_extend(request, 1, key, 8, 1), -EINVAL);
    cr_expect_eq(spw_request_extend(request, 0, key, 8, UINT64_MAX / 4), -ENOMEM);
    cr_expect_eq(spw_request_extend(request, 0, NULL, 8, 1), -EINVAL);
    cr_expect_eq(spw_request_extend(request, 0, NULL, 8, 0), 0, "nothing is added");
    cr_expect_eq(spw_request_extend(request, 0, key, 64, 1), 0);
    cr_expect_eq(spw_request_extend(request, 0, key, 32, 1), -EINVAL, "another length");
    cr_expect_eq(spw_request_tokens(request, 5), -EINVAL, "tokens only grow");
    close_pool();
}

Test(request, room_left_by_a_call_without_memory_is_not_taken_for_room_for_longer_keys)
{
    static uint8_t key[64 * 64];
    open_pool(&one_worker);
    struct spw_request *request = api_request(space, 100, 0);
    cr_assert_eq(spw_request_extend(request, 0, key, 1, 64), 0);
    request->keys[0].count = 0; /* as if what comes after the keys' own room had failed */
    cr_assert_eq(spw_request_extend(request, 0, key, 64, 64), 0);
    cr_expect_geq(malloc_usable_size(request->keys[0].key), sizeof(key));
    close_pool();
}

Test(request, keys_beyond_the_tokens_do_not_count_yet)
{
    open_pool(&one_worker);
    api_store(&api, client, space, 1, 100, 3);
    struct spw_request *request = api_request(space, 100, 3), *early;
    uint8_t key[3 * API_KEY_BYTES];
    struct spw_request_config config = {.size_bytes = sizeof(config), .prompt_tokens = 40};
    cr_assert_eq(spw_request_open(space, &config, &early), 0);
    for (uint32_t i = 0; i < 3; i++)
        rig_key(0, 100 + i, key + i * API_KEY_BYTES);
    cr_assert_eq(spw_request_extend(early, 0, key, API_KEY_BYTES, 3), 0);
    cr_expect_eq(api_lookup(client, request).hit_tokens, 48);
    cr_expect_eq(api_lookup(client, early).hit_tokens, 32);
    cr_assert_eq(spw_request_tokens(early, 48), 0);
    cr_expect_eq(api_lookup(client, early).hit_tokens, 48);
    close_pool();
}

Test(request, boundaries_are_kept_highest_first_and_replaced)
{
    uint8_t key[API_KEY_BYTES];
    open_pool(&one_worker);
    struct spw_request *request = api_request(space, 100, 1);
    rig_key(0, 1, key);
    cr_expect_eq(spw_request_boundary(request, 0, key, API_KEY_BYTES), -EINVAL);
    cr_expect_eq(spw_request_boundary(request, 12, key, API_KEY_BYTES), -EINVAL);
    for (uint64_t i = 0; i < SPW_BOUNDARIES_MAX; i++) /* 8, 264, 16, 272 ... in no order */
        cr_assert_eq(spw_request_boundary(request, 8 + i / 2 * 8 + i % 2 * 256, key, 8), 0);
    cr_expect_eq(spw_request_boundary(request, 8 * 1000, key, 8), -EINVAL, "one too many");
    cr_expect_eq(spw_request_boundary(request, 8, key, 16), 0, "replaced");
    cr_expect_eq(request->boundaries, SPW_BOUNDARIES_MAX);
    for (uint32_t i = 1; i < SPW_BOUNDARIES_MAX; i++)
        cr_expect_lt(request->boundary[i]->at, request->boundary[i - 1]->at);
    cr_expect_eq(spw_request_find_boundary(request, 8)->key_bytes, 16);
    cr_expect_eq(spw_request_find_boundary(request, 9), NULL);
    close_pool();
}

/* ---- deferred requests ----------------------------------------------------------------------- */

/* Keys from @first on: two ready, @pending being stored. */
static struct spw_request *waiting(uint64_t first, uint32_t pending)
{
    api_store(&api, client, space, 1, first, 2);
    struct spw_request *stores = api_request(space, first, 2 + pending);
    struct spw_completion done = api_reserve(&api, stores, client, 0, 2, pending);
    cr_assert_eq(done.status, 0);
    return api_request(space, first, 2 + pending);
}

/* Store chunk @index of the keys of @request through another one. */
static void settle_chunk(struct spw_request *stores, const struct spw_ticket *ticket)
{
    cr_assert_eq(api_run(client, ticket, 0, 1), 0);
    cr_assert_eq(api_complete(&api, client).status, 0);
    (void)stores;
}

Test(request, a_deferred_one_is_deferred_again_until_its_chunk_changes)
{
    open_pool(&one_worker);
    api_store(&api, client, space, 1, 100, 1);
    struct spw_request *stores = api_request(space, 101, 1);
    struct spw_completion done = api_reserve(&api, stores, client, 0, 0, 1);
    struct spw_request *request = api_request(space, 100, 2);
    struct spw_decision decision = api_lookup(client, request);
    cr_expect_eq(decision.reason, SPW_REASON_PENDING);
    cr_expect_eq(decision.repeated, 0);
    for (uint64_t n = 0; n < 5; n++) {
        api_store(&api, client, space, 1, 500 + n, 1); /* news about others */
        struct spw_decision again = api_lookup(client, request);
        cr_expect_eq(again.repeated, 1);
        cr_expect_eq(again.step, client->step);
        cr_expect_eq(again.deciding_chunk, 1);
    }
    settle_chunk(stores, &done.ticket);
    decision = api_lookup(client, request);
    cr_expect_eq(decision.action, SPW_ACTION_LOAD);
    cr_expect_eq(decision.hit_tokens, 32);
    close_pool();
}

Test(request, a_deferred_one_is_looked_at_anew_when_anything_else_counts)
{
    uint8_t key[API_KEY_BYTES];
    open_pool(&one_worker);
    struct spw_request *request = waiting(100, 1);
    struct spw_decision decision = {.size_bytes = sizeof(decision)};
    api_lookup(client, request);
    cr_expect_eq(api_lookup(client, request).repeated, 1);
    rig_key(0, 900, key);
    cr_assert_eq(spw_request_extend(request, 0, key, API_KEY_BYTES, 1), 0);
    cr_expect_eq(api_lookup(client, request).repeated, 0, "keys");
    cr_assert_eq(spw_request_tokens(request, 64), 0);
    cr_expect_eq(api_lookup(client, request).repeated, 0, "tokens");
    cr_assert_geq(spw_step_begin(client), 0);
    cr_assert_eq(spw_lookup(request, 16, 0, &decision), 0);
    cr_expect_eq(decision.repeated, 0, "computed tokens");
    cr_assert_eq(spw_step_end(client), 0);
    api_lookup(client, request);
    cr_expect_eq(api_lookup(client, request).repeated, 1);
    api_say(&api, 0, SPW_WORKER_DOWN);
    decision = api_lookup(client, request);
    cr_expect(decision.repeated == 0 && decision.action == SPW_ACTION_MISS, "worker states");
    close_pool();
}

Test(request, a_deferral_is_not_looked_at_anew_without_news)
{
    open_pool(&one_worker);
    struct spw_request *request = waiting(100, 1);
    uint32_t anew = 0;
    for (uint32_t i = 0; i < 200; i++)
        anew += !api_lookup(client, request).repeated;
    cr_expect_eq(anew, 1, "%u of 200", anew);
    close_pool();
}

Test(request, a_deferral_of_more_chunks_than_it_can_watch_ends_all_the_same)
{
    open_pool(&one_worker);
    struct spw_request *stores = api_request(space, 100, 12);
    struct spw_completion done[12];
    for (uint32_t i = 0; i < 12; i++)
        done[i] = api_reserve(&api, stores, client, 0, i, 1);
    struct spw_request *request = api_request(space, 100, 12);
    cr_expect_eq(api_lookup(client, request).action, SPW_ACTION_DEFER);
    cr_expect_eq(request->waiter.count, SPW_DECIDE_WAITS_MAX);
    for (uint32_t i = 0; i < 12; i++) {
        settle_chunk(stores, &done[i].ticket);
        struct spw_decision decision = api_lookup(client, request);
        cr_expect_eq(decision.action, i < 11 ? SPW_ACTION_DEFER : SPW_ACTION_LOAD);
    }
    close_pool();
}

/* ---- decisions as references ----------------------------------------------------------------- */

Test(request, the_chunks_of_a_decision_can_be_asked_for_in_pieces)
{
    struct spw_decision decision = {.size_bytes = sizeof(decision),
                                    .groups = 3,
                                    .tail_boundary = 40,
                                    .need = {{1, 4}, {7, 7}, {2, 4}}};
    struct spw_chunk_ref all[8], piece[2];
    cr_assert_eq(spw_decision_chunks(&decision, 0, all, 8), 5);
    cr_expect(all[0].group == 0 && all[0].index == 1);
    cr_expect(all[2].group == 0 && all[2].index == SPW_CHUNK_TAIL && all[2].boundary == 40);
    cr_expect(all[3].group == 2 && all[3].index == 2 && all[3].boundary == 0);
    cr_expect(all[4].group == 2 && all[4].index == SPW_CHUNK_TAIL);
    for (uint64_t from = 0; from < 5; from += 2) {
        int n = spw_decision_chunks(&decision, from, piece, 2);
        cr_expect_eq(n, from < 4 ? 2 : 1);
        cr_expect_eq(memcmp(piece, all + from, (uint32_t)n * sizeof(piece[0])), 0);
    }
    cr_expect_eq(spw_decision_chunks(&decision, 5, piece, 2), 0);
}

Test(request, a_hit_whose_entry_is_being_written_stands_and_is_begun_again)
{
    struct spw_decision decision = {.size_bytes = sizeof(decision)};
    struct spw_chunk_ref ref = {.index = 0};
    struct spw_table table;
    open_pool(&one_worker);
    api_store(&api, client, space, 1, 100, 1);
    spw_table_init(&table, api.rig.daemon.feed[0], &api.rig.daemon.feed_map,
                   &api.rig.daemon.geometry);
    struct spw_request *request = api_request(space, 100, 1);
    int64_t slot = spw_table_by_tag(&table, request->keys[0].tag[0], UINT32_MAX);
    cr_assert_geq(slot, 0);
    spw_atomic64 *seq = &table.entry[slot].seq;
    uint64_t even = spw_load_relaxed(seq);
    cr_assert_geq(spw_step_begin(client), 0);
    cr_assert_eq(spw_lookup(request, 0, 0, &decision), 0);
    cr_assert_eq(decision.action, SPW_ACTION_LOAD);
    spw_store_relaxed(seq, even + 1); /* its worker is stopped in the middle of a change */
    cr_expect_eq(spw_load_begin(request, &decision, 0, &ref, 1, 3), -EAGAIN);
    cr_expect_eq(api_counter(client, "sources_unclear"), 1);
    cr_expect_eq(api_counter(client, "sources_gone"), 0);
    spw_store_relaxed(seq, even + 2);
    cr_expect_eq(spw_load_begin(request, &decision, 0, &ref, 1, 3), 1, "in the same step");
    cr_assert_eq(spw_step_end(client), 0);
    cr_expect_eq(api_complete(&api, client).status, 0);
    close_pool();
}

/* ---- partial tails --------------------------------------------------------------------------- */

static void extend_both(struct spw_request *request, uint32_t chunks)
{
    uint8_t key[API_KEY_BYTES];
    for (uint32_t g = 0; g < 2; g++)
        for (uint32_t i = 0; i < chunks; i++) {
            rig_key(0, 100 + i, key);
            cr_assert_eq(spw_request_extend(request, g, key, API_KEY_BYTES, 1), 0);
        }
    uint8_t both[2 * API_KEY_BYTES];
    for (uint64_t at = 8; at <= 56; at += 8) {
        if (at == 32)
            continue;
        rig_key(0, 5000 + at, both);
        rig_key(0, 5000 + at, both + API_KEY_BYTES);
        cr_assert_eq(spw_request_boundary(request, at, both, API_KEY_BYTES), 0);
    }
}

Test(request, a_partial_tail_is_stored_found_and_loaded)
{
    static const struct spw_group_config group[] = {
        {.kind = SPW_GROUP_FULL, .block_tokens = 32, .chunk_bytes = RIG_BLOCK_BYTES},
        {.kind = SPW_GROUP_STATE, .block_tokens = 32, .chunk_bytes = RIG_BLOCK_BYTES}};
    static const uint32_t first[4] = {0, 1, 2, 3}, second[4] = {10, 11, 12, 13};
    open_pool(&one_worker);
    space_config.groups = 2;
    space_config.group = group;
    space_config.blocks_per_chunk = 1;
    space_config.fingerprint = "a hybrid model";
    struct spw_space *hybrid = api_space(&api, client, &space_config);
    struct spw_request_config config = {.size_bytes = sizeof(config), .prompt_tokens = 60};
    struct spw_request *stores, *request;
    cr_assert_eq(spw_request_open(hybrid, &config, &stores), 0);
    cr_assert_eq(spw_request_open(hybrid, &config, &request), 0);
    extend_both(stores, 1);
    extend_both(request, 1);
    struct spw_chunk_ref ref[4] = {{.group = 0, .index = 0},
                                   {.group = 1, .index = 0},
                                   {.group = 0, .index = SPW_CHUNK_TAIL, .boundary = 48},
                                   {.group = 1, .index = SPW_CHUNK_TAIL, .boundary = 48}};
    cr_assert_eq(spw_store_reserve(stores, 0, ref, 4, 1), 4);
    struct spw_completion done = api_complete(&api, client);
    for (uint32_t i = 0; i < 4; i++)
        api_fill(client, first[i], 900 + i, 0);
    struct spw_decision decision = api_lookup(client, request);
    cr_expect_eq(decision.reason, SPW_REASON_PENDING);
    cr_assert_eq(spw_run(client, &done.ticket, first, 4, 2), 0);
    cr_assert_eq(api_complete(&api, client).status, 0);

    cr_assert_geq(spw_step_begin(client), 0);
    decision.size_bytes = sizeof(decision);
    cr_assert_eq(spw_lookup(request, 0, 0, &decision), 0);
    cr_expect_eq(decision.reason, SPW_REASON_TAIL);
    cr_expect_eq(decision.tail_boundary, 48);
    cr_expect_eq(decision.hit_tokens, 48);
    struct spw_chunk_ref need[4];
    int n = spw_decision_chunks(&decision, 0, need, 4);
    cr_assert_eq(n, 3, "the full group's chunk and tail, the state's tail");
    cr_expect_eq(need[1].index, SPW_CHUNK_TAIL);
    struct spw_chunk_ref beside = {.group = 1, .index = 1};
    cr_expect_eq(spw_load_begin(request, &decision, 0, &beside, 1, 3), -EINVAL);
    cr_assert_eq(spw_load_begin(request, &decision, 0, need, 3, 3), 3);
    cr_assert_eq(spw_step_end(client), 0);
    done = api_complete(&api, client);
    cr_assert_eq(spw_run(client, &done.ticket, second, 3, 4), 0);
    cr_assert_eq(api_complete(&api, client).status, 0);
    cr_expect(api_filled(client, 10, 900, 0) && api_filled(client, 11, 902, 0) &&
              api_filled(client, 12, 903, 0));
    close_pool();
}

/* ---- recency --------------------------------------------------------------------------------- */

/* Tags of the touches that wait in the lane to worker 0, in order; takes them from nobody. */
static uint32_t touches_sent(uint64_t from, uint64_t *out, uint32_t max)
{
    const struct spw_lane_producer *lane = &client->command[0];
    uint32_t found = 0;
    while (from != lane->tail) {
        struct spw_command head;
        uint64_t word[7];
        for (uint32_t w = 0; w < 7; w++)
            word[w] = spw_load_relaxed(&lane->slot[from & lane->mask].word[w]);
        memcpy(&head, word, sizeof(head));
        for (uint32_t i = 0; head.op == SPW_CMD_TOUCH && i < head.count && found < max; i++)
            out[found++] =
                spw_load_relaxed(&lane->slot[(from + 1 + i / 7) & lane->mask].word[i % 7]);
        from += 1u + head.body_slots;
    }
    return found;
}

Test(request, a_decision_touches_the_chain_deepest_first)
{
    uint64_t tag[32], from;
    open_pool(&one_worker);
    api_store(&api, client, space, 1, 100, 10);
    struct spw_request *request = api_request(space, 100, 12);
    from = client->command[0].tail;
    cr_expect_eq(api_lookup(client, request).hit_tokens, 160);
    cr_assert_eq(touches_sent(from, tag, 32), 10);
    for (uint32_t i = 0; i < 10; i++)
        cr_expect_eq(tag[i], request->keys[0].tag[9 - i]);
    rig_settle(&api.rig);
    cr_expect_eq(rig_count(&api.rig, 0, SPW_WORKER_touches), 10);
    cr_expect_eq(rig_count(&api.rig, 0, SPW_WORKER_commands_bad), 0);
    close_pool();
}

Test(request, chunks_behind_a_hole_and_deferrals_are_not_touched)
{
    uint64_t tag[32], from;
    open_pool(&one_worker);
    api_store(&api, client, space, 1, 100, 2);
    api_store(&api, client, space, 1, 103, 2); /* 102 is a hole */
    struct spw_request *request = api_request(space, 100, 5);
    from = client->command[0].tail;
    api_lookup(client, request);
    cr_expect_eq(touches_sent(from, tag, 32), 2);
    rig_settle(&api.rig);
    struct spw_request *defers = waiting(300, 1);
    from = client->command[0].tail;
    cr_expect_eq(api_lookup(client, defers).action, SPW_ACTION_DEFER);
    cr_expect_eq(touches_sent(from, tag, 32), 0);
    cr_assert_geq(spw_step_begin(client), 0);
    cr_assert_eq(spw_touch(request), 0);
    cr_assert_eq(spw_step_end(client), 0);
    cr_expect_eq(touches_sent(from, tag, 32), 4, "asked for, whatever a lookup would say");
    close_pool();
}

Test(request, computed_chunks_are_touched_too)
{
    uint64_t tag[32], from;
    struct spw_decision decision = {.size_bytes = sizeof(decision)};
    open_pool(&one_worker);
    api_store(&api, client, space, 1, 100, 6);
    struct spw_request *request = api_request(space, 100, 6);
    from = client->command[0].tail;
    cr_assert_geq(spw_step_begin(client), 0);
    cr_assert_eq(spw_lookup(request, 48, 0, &decision), 0);
    cr_assert_eq(spw_step_end(client), 0);
    cr_expect_eq(decision.hit_tokens, 48);
    cr_assert_eq(touches_sent(from, tag, 32), 6);
    cr_expect_eq(tag[5], request->keys[0].tag[0]);
    close_pool();
}

Test(request, of_a_windowed_group_the_last_window_is_touched)
{
    static const struct spw_group_config group = {.kind = SPW_GROUP_SLIDING,
                                                  .block_tokens = 8,
                                                  .window_tokens = 32,
                                                  .chunk_bytes = 2 * RIG_BLOCK_BYTES};
    uint64_t tag[32], from;
    open_pool(&one_worker);
    space_config.group = &group;
    space_config.fingerprint = "a sliding model";
    struct spw_space *sliding = api_space(&api, client, &space_config);
    api_store(&api, client, sliding, 1, 100, 8);
    struct spw_request *request = api_request(sliding, 100, 8);
    from = client->command[0].tail;
    struct spw_decision decision = api_lookup(client, request);
    cr_expect_eq(decision.hit_tokens, 127);
    uint32_t touched = touches_sent(from, tag, 32);
    cr_assert(touched == 3, "%u", touched); /* floor(127 / 16) - 2 = 5 on */
    cr_expect_eq(tag[0], request->keys[0].tag[7]);
    cr_expect_eq(tag[2], request->keys[0].tag[5]);
    close_pool();
}

Test(request, a_lane_with_little_room_gets_the_start_of_the_chain)
{
    const struct rig_config config = {.workers = 1, .capacity = 64, .command_slots = 8};
    uint64_t tag[64], from;
    open_pool(&config);
    for (uint64_t n = 0; n < 60; n += 2)
        api_store(&api, client, space, 1, 100 + n, 2);
    struct spw_request *request = api_request(space, 100, 60);
    from = client->command[0].tail;
    cr_expect_eq(api_lookup(client, request).hit_tokens, 60 * 16);
    uint32_t sent = touches_sent(from, tag, 64);
    cr_assert(sent > 0 && sent < 60);
    for (uint32_t i = 0; i < sent; i++)
        cr_expect_eq(tag[i], request->keys[0].tag[sent - 1 - i]);
    cr_expect_eq(api_counter(client, "touched"), sent);
    cr_expect_eq(api_counter(client, "touches_dropped"), 60 - sent);
    rig_settle(&api.rig);
    cr_expect_eq(rig_count(&api.rig, 0, SPW_WORKER_commands_bad), 0);
    close_pool();
}

Test(request, long_chains_are_touched_by_several_commands)
{
    const struct rig_config config = {
        .workers = 1, .capacity = 2100, .command_slots = 1024, .queue_chunks = 64};
    open_pool(&config);
    for (uint64_t n = 0; n < 2048; n += 64) {
        struct spw_request *request = api_request(space, n, 64);
        struct spw_completion done = api_reserve(&api, request, client, 0, 0, 64);
        cr_assert_eq(api_run(client, &done.ticket, 0, 1), 0);
        api_complete(&api, client);
        spw_request_finish(request);
    }
    struct spw_request *request = api_request(space, 0, 2048);
    static uint64_t tag[2048];
    uint64_t from = client->command[0].tail;
    cr_expect_eq(api_lookup(client, request).hit_tokens, 2048 * 16);
    cr_assert_eq(touches_sent(from, tag, 2048), 2048);
    for (uint32_t i = 0; i < 2048; i++)
        cr_assert_eq(tag[i], request->keys[0].tag[2047 - i]);
    rig_settle(&api.rig);
    cr_expect_eq(rig_count(&api.rig, 0, SPW_WORKER_touches), 2048);
    close_pool();
}

/* CE-9, first case */
Test(request, the_deepest_chunk_of_a_chain_is_evicted_first)
{
    const struct rig_config config = {.workers = 1, .capacity = 3};
    open_pool(&config);
    for (uint64_t round = 0; round < 200; round++) {
        uint64_t first = 1000 * round;
        api_store(&api, client, space, 1, first, 3);
        struct spw_request *request = api_request(space, first, 3);
        cr_assert_eq(api_lookup(client, request).hit_tokens, 48);
        rig_settle(&api.rig);
        api_store(&api, client, space, 1, first + 500, 1);
        cr_assert_eq(api_lookup(client, request).hit_tokens, 32, "round %lu", (unsigned long)round);
        spw_request_finish(request);
    }
    close_pool();
}

static void store_part(struct spw_request *request, uint64_t from, uint32_t count)
{
    struct spw_completion done = api_reserve(&api, request, client, 0, from, count);
    cr_assert(done.status == 0 && done.ticket.chunks == count);
    cr_assert_eq(api_run(client, &done.ticket, 0, 8), 0);
    done = api_complete(&api, client);
    cr_assert(done.kind == SPW_COMPLETION_STORED && done.status == 0);
}

/* Stored in two steps, so the worker learns from the second one what stands before its first chunk. */
Test(request, ce9_what_stands_behind_a_lost_chunk_is_evicted_before_what_can_be_reached)
{
    const struct rig_config config = {.workers = 1, .capacity = 3};
    open_pool(&config);
    for (uint64_t round = 0; round < 50; round++) {
        uint64_t first = 1000 * round;
        struct spw_request *request = api_request(space, first, 3);
        store_part(request, 0, 2);
        store_part(request, 2, 1); /* the oldest is now the second chunk */
        api_store(&api, client, space, 1, first + 500, 1);
        api_store(&api, client, space, 1, first + 600, 1);
        rig_settle(&api.rig);
        cr_assert_eq(api_lookup(client, request).hit_tokens, 16, "round %lu", (unsigned long)round);
        spw_request_finish(request);
    }
    close_pool();
}
