/* Waits that end: limits, wake-ups, awaited stores, ETA and the priced rule, through the installed
 * API over a tiny pool on the test's own clock. */
#include "tests/support/wait_rig.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

TestSuite(waiting, .timeout = 25);

/* ---- limits ---------------------------------------------------------------------------------- */

Test(waiting, a_wait_ends_at_its_limit_for_that_request_alone) /* LK-2 */
{
    wait_open(&one_worker);
    struct spw_completion store = wait_pend(100, 1);
    struct spw_request *request = api_request(space, 100, 1), *one;
    for (int i = 0; i < 5; i++) {
        struct spw_decision decision = api_lookup(client, request);
        cr_expect_eq(decision.reason, SPW_REASON_PENDING);
        cr_expect_eq(decision.repeated, i > 0);
        cr_expect_eq(decision.waited_ns, (uint64_t)i * 100 * MS);
        cr_expect_eq(wait_woken(&one, 1), 0);
        rig_advance(&api.rig, 100 * MS);
    }
    cr_expect_eq(wait_woken(&one, 1), 1, "its limit wakes it");
    cr_expect_eq(one, request);
    struct spw_decision decision = api_lookup(client, request);
    cr_expect_eq(decision.action, SPW_ACTION_MISS);
    cr_expect_eq(decision.reason, SPW_REASON_MISS_LIMIT);
    cr_expect_eq(decision.waited_ns, 500 * MS);
    cr_expect_eq(api_counter(client, "waits_expired"), 1);
    struct spw_request *other = api_request(space, 100, 1);
    cr_expect_eq(api_lookup(client, other).reason, SPW_REASON_PENDING, "others wait on");
    wait_settle(&store);
    cr_expect_eq(api_lookup(client, other).action, SPW_ACTION_LOAD, "its data is kept");
    cr_expect_eq(api_lookup(client, request).action, SPW_ACTION_LOAD, "for whoever asks");
    wait_close();
}

Test(waiting, what_is_ready_before_an_expired_chunk_is_loaded)
{
    wait_open(&one_worker);
    api_store(&api, client, space, 1, 100, 2);
    wait_pend(102, 1);
    struct spw_request *request = api_request(space, 100, 3);
    cr_expect_eq(api_lookup(client, request).action, SPW_ACTION_DEFER);
    rig_advance(&api.rig, 500 * MS);
    struct spw_decision decision = api_lookup(client, request);
    cr_expect_eq(decision.reason, SPW_REASON_LOAD_LIMIT);
    cr_expect_eq(decision.hit_tokens, 32);
    cr_expect_eq(wait_ended(SPW_WAIT_EXPIRED).count, 1);
    wait_close();
}

Test(waiting, a_failed_and_repeated_store_does_not_begin_the_wait_anew)
{
    wait_open(&one_worker);
    struct spw_completion store = wait_pend(100, 1);
    struct spw_request *request = api_request(space, 100, 1);
    api_lookup(client, request);
    rig_advance(&api.rig, 300 * MS);
    cr_assert_eq(spw_cancel(client, &store.ticket), 0);
    rig_settle(&api.rig);
    cr_expect_eq(api_lookup(client, request).reason, SPW_REASON_GROUP_MISS);
    cr_expect_eq(wait_ended(SPW_WAIT_LOST).count, 1);
    rig_advance(&api.rig, 1000 * MS); /* time in which it did not wait */
    wait_pend(100, 1);
    cr_expect_eq(api_lookup(client, request).reason, SPW_REASON_PENDING);
    rig_advance(&api.rig, 199 * MS);
    cr_expect_eq(api_lookup(client, request).action, SPW_ACTION_DEFER);
    rig_advance(&api.rig, MS);
    cr_expect_eq(api_lookup(client, request).reason, SPW_REASON_MISS_LIMIT);
    wait_close();
}

Test(waiting, progress_inside_the_run_does_not_but_a_longer_prefix_does)
{
    wait_open(&one_worker);
    struct spw_completion first = wait_pend(100, 1), second = wait_pend(101, 1);
    struct spw_request *request = api_request(space, 100, 2);
    api_lookup(client, request);
    rig_advance(&api.rig, 400 * MS);
    wait_settle(&first);
    cr_expect_eq(api_lookup(client, request).action, SPW_ACTION_DEFER);
    rig_advance(&api.rig, 100 * MS);
    struct spw_decision decision = api_lookup(client, request);
    cr_expect_eq(decision.reason, SPW_REASON_LOAD_LIMIT);
    cr_expect_eq(decision.hit_tokens, 16);
    wait_settle(&second);
    struct spw_request *longer = api_request(space, 100, 3);
    wait_pend(102, 1);
    api_lookup(client, longer);
    rig_advance(&api.rig, 499 * MS);
    cr_expect_eq(api_lookup(client, longer).action, SPW_ACTION_DEFER);
    wait_close();
}

/* ---- what has to be asked -------------------------------------------------------------------- */

static uint8_t beyond_answer;
static uint32_t beyond_asked;

static uint8_t ask(void *ctx, uint64_t tag)
{
    (void)ctx;
    (void)tag;
    beyond_asked++;
    return beyond_answer;
}

static const struct spw_beyond beyond = {.ask = ask};

Test(waiting, unknown_ends_at_a_limit_of_its_own_and_a_late_answer_wakes_nobody) /* LK-5 */
{
    struct spw_request *one;
    wait_open(&one_worker);
    struct spw_request *request = api_request(space, 100, 1);
    cr_expect_eq(api_lookup(client, request).action, SPW_ACTION_MISS, "nobody has to be asked");
    client->beyond = &beyond;
    beyond_answer = SPW_RETRY;
    request = api_request(space, 100, 1);
    cr_expect_eq(api_lookup(client, request).reason, SPW_REASON_RETRY);
    rig_advance(&api.rig, 49 * MS);
    cr_expect_eq(api_lookup(client, request).repeated, 1);
    cr_expect_eq(beyond_asked, 1, "asked once");
    rig_advance(&api.rig, MS);
    cr_expect_eq(wait_woken(&one, 1), 1);
    cr_expect_eq(api_lookup(client, request).reason, SPW_REASON_MISS_LIMIT);
    beyond_answer = SPW_HIT;
    spw_wakeup_record(&client->wakeup, request->keys[0].tag[0]);
    cr_expect_eq(wait_woken(&one, 1), 0);
    cr_expect_eq(api_lookup(client, api_request(space, 100, 1)).action, SPW_ACTION_LOAD);
    wait_close();
}

Test(waiting, what_is_on_its_way_is_pending_at_the_first_lookup) /* LK-12 */
{
    wait_open(&one_worker);
    client->beyond = &beyond;
    beyond_answer = SPW_PENDING; /* it began to bring the chunk */
    struct spw_request *request = api_request(space, 100, 1);
    cr_expect_eq(api_lookup(client, request).reason, SPW_REASON_PENDING);
    beyond_answer = SPW_RETRY;
    cr_expect_eq(api_lookup(client, api_request(space, 200, 1)).reason, SPW_REASON_RETRY);
    beyond_answer = SPW_MISS;
    cr_expect_eq(api_lookup(client, api_request(space, 300, 1)).action, SPW_ACTION_MISS);
    wait_close();
}

Test(waiting, an_answer_that_comes_in_time_wakes_and_ends_the_wait)
{
    struct spw_request *one = NULL;
    wait_open(&one_worker);
    client->beyond = &beyond;
    beyond_answer = SPW_RETRY;
    struct spw_request *request = api_request(space, 100, 1);
    api_lookup(client, request);
    beyond_answer = SPW_MISS;
    spw_wakeup_record(&client->wakeup, request->keys[0].tag[0]);
    cr_expect_eq(wait_woken(&one, 1), 1);
    cr_expect_eq(one, request);
    cr_expect_eq(api_lookup(client, request).reason, SPW_REASON_GROUP_MISS);
    cr_expect_eq(wait_ended(SPW_WAIT_RETRY).count, 1);
    wait_close();
}

/* ---- one store, many waiters ----------------------------------------------------------------- */

Test(waiting, a_failed_store_is_a_miss_for_all_at_once_and_can_be_repeated) /* LK-3 */
{
    const struct rig_config failing = {
        .workers = 1,
        .capacity = 16,
        .copier = {.in_flight = {1, 1}, .faults = {.fail_every = {2, 0}, .fail_status = -EIO}}};
    wait_open(&failing);
    struct spw_client *second = api_attach(&api, 0);
    struct spw_space *theirs = api_space(&api, second, &space_config);
    struct spw_completion store = wait_pend(100, 3); /* the second of the three fails */
    struct spw_request *ours = api_request(space, 100, 3), *other = api_request(theirs, 100, 3);
    cr_expect_eq(api_lookup(client, ours).action, SPW_ACTION_DEFER);
    cr_expect_eq(api_lookup(second, other).action, SPW_ACTION_DEFER);
    cr_assert_eq(api_run(client, &store.ticket, 0, 1), 0);
    cr_expect_eq(api_complete(&api, client).mask, 2);
    for (int i = 0; i < 3; i++) {
        struct spw_decision decision = api_lookup(client, ours);
        cr_expect_eq(decision.action, SPW_ACTION_LOAD);
        cr_expect_eq(decision.hit_tokens, 16);
        cr_expect_eq(api_lookup(second, other).hit_tokens, 16);
    }
    cr_expect_eq(rig_count(&api.rig, 0, SPW_WORKER_stores_failed), 1, "tried once");
    store = wait_pend(500, 1); /* the fourth copy fails, too */
    cr_assert_eq(api_run(client, &store.ticket, 0, 1), 0);
    cr_expect_eq(api_complete(&api, client).status, -EIO);
    api_store(&api, client, space, 1, 101, 1);
    cr_expect_eq(api_lookup(client, ours).hit_tokens, 48);
    cr_expect_eq(api_lookup(second, other).hit_tokens, 48);
    spw_detach(second);
    wait_close();
}

Test(waiting, fifty_wait_for_one_store_each_by_its_own_budget) /* LK-6 */
{
    struct spw_request *request[50], *list[64];
    wait_open(&one_worker);
    space_config.max_recompute_pending_tokens = 16;
    struct spw_space *covered = api_space(&api, client, &space_config);
    cr_expect_eq(spw_space_number(covered), spw_space_number(space), "a budget shares chunks");
    struct spw_completion store = wait_pend(100, 1);
    for (uint32_t i = 0; i < 50; i++) {
        request[i] = api_request(i % 2 ? covered : space, 100, 1);
        cr_expect_eq(api_lookup(client, request[i]).reason,
                     i % 2 ? SPW_REASON_LEADING_PENDING : SPW_REASON_PENDING);
    }
    wait_settle(&store);
    cr_expect_eq(rig_count(&api.rig, 0, SPW_WORKER_chunks_stored), 1);
    cr_expect_eq(wait_woken(list, 64), 25, "all that wait, at once");
    for (uint32_t i = 0; i < 50; i++)
        cr_expect_eq(api_lookup(client, request[i]).action, SPW_ACTION_LOAD);
    cr_expect_eq(wait_ended(SPW_WAIT_HIT).count, 25);
    wait_close();
}

/* ---- samples and counts ---------------------------------------------------------------------- */

Test(waiting, each_wait_is_one_sample_of_its_outcome) /* OB-5 */
{
    wait_open(&one_worker);
    struct spw_completion store = wait_pend(100, 1);
    struct spw_request *hit = api_request(space, 100, 1);
    api_lookup(client, hit);
    rig_advance(&api.rig, 10 * MS);
    wait_settle(&store);
    api_lookup(client, hit);
    wait_pend(200, 1);
    struct spw_request *cancelled = api_request(space, 200, 1), *gone = api_request(space, 200, 1);
    struct spw_request *late = api_request(space, 200, 1);
    api_lookup(client, cancelled);
    api_lookup(client, gone);
    api_lookup(client, late);
    rig_advance(&api.rig, 20 * MS);
    cr_assert_eq(spw_request_cancel(cancelled), 0);
    cr_assert_eq(spw_request_cancel(cancelled), 0);
    spw_request_finish(gone);
    rig_advance(&api.rig, 480 * MS);
    api_lookup(client, late);
    space_config.max_recompute_pending_tokens = 16;
    struct spw_space *covered = api_space(&api, client, &space_config);
    cr_expect_eq(api_lookup(client, api_request(covered, 200, 1)).reason,
                 SPW_REASON_LEADING_PENDING);
    cr_expect_eq(wait_ended(SPW_WAIT_HIT).count, 1);
    cr_expect_eq(wait_ended(SPW_WAIT_HIT).sum_ns, 10 * MS);
    cr_expect_eq(wait_ended(SPW_WAIT_HIT).bucket[14], 1, "10,000 us are below 2^14");
    cr_expect_eq(wait_ended(SPW_WAIT_CANCELLED).count, 2);
    cr_expect_eq(wait_ended(SPW_WAIT_CANCELLED).sum_ns, 40 * MS);
    cr_expect_eq(wait_ended(SPW_WAIT_EXPIRED).count, 1);
    cr_expect_eq(wait_ended(SPW_WAIT_EXPIRED).sum_ns, 500 * MS);
    cr_expect_eq(wait_ended_all(), 4, "none for a cut that decided at once");
    struct spw_completion again = wait_pend(300, 1);
    struct spw_request *twice = api_request(space, 100, 1);
    cr_assert_eq(spw_request_tokens(twice, 32), 0);
    cr_expect_eq(api_lookup(client, twice).action, SPW_ACTION_LOAD);
    uint8_t key[API_KEY_BYTES];
    rig_key(0, 300, key);
    cr_assert_eq(spw_request_extend(twice, 0, key, API_KEY_BYTES, 1), 0);
    cr_expect_eq(api_lookup(client, twice).action, SPW_ACTION_DEFER);
    wait_settle(&again);
    cr_expect_eq(api_lookup(client, twice).action, SPW_ACTION_LOAD);
    cr_expect_eq(wait_ended(SPW_WAIT_HIT).count, 2);
    wait_close();
}

Test(waiting, what_came_to_the_gpu_meanwhile_is_not_lost)
{
    struct spw_decision decision = {.size_bytes = sizeof(decision)};
    wait_open(&one_worker);
    wait_pend(100, 2);
    struct spw_request *request = api_request(space, 100, 2), *lost = api_request(space, 100, 2);
    api_lookup(client, request);
    api_lookup(client, lost);
    cr_assert_eq(spw_space_reset(space), 0); /* what pends fails */
    rig_settle(&api.rig);
    cr_assert_geq(spw_step_begin(client), 0);
    cr_assert_eq(spw_lookup(request, 16, 0, &decision), 0);
    cr_expect_eq(decision.action, SPW_ACTION_MISS);
    cr_assert_eq(spw_lookup(lost, 0, 0, &decision), 0);
    cr_expect_eq(decision.action, SPW_ACTION_MISS);
    cr_assert_eq(spw_step_end(client), 0);
    cr_expect_eq(wait_ended(SPW_WAIT_HIT).count, 1);
    cr_expect_eq(wait_ended(SPW_WAIT_LOST).count, 1);
    wait_close();
}

Test(waiting, a_transfer_of_its_own_neither_begins_nor_ends_a_wait)
{
    wait_open(&one_worker);
    struct spw_completion store = wait_pend(100, 1);
    struct spw_request *request = api_request(space, 100, 1);
    struct spw_decision decision = {.size_bytes = sizeof(decision)};
    cr_assert_geq(spw_step_begin(client), 0);
    cr_assert_eq(spw_lookup(request, 0, 1, &decision), 0);
    cr_expect_eq(decision.reason, SPW_REASON_TRANSFER);
    cr_expect_eq(decision.waited_ns, 0);
    cr_assert_eq(spw_step_end(client), 0);
    rig_advance(&api.rig, 100 * MS);
    cr_expect_eq(api_lookup(client, request).reason, SPW_REASON_PENDING);
    rig_advance(&api.rig, 100 * MS);
    cr_assert_geq(spw_step_begin(client), 0);
    cr_assert_eq(spw_lookup(request, 0, 1, &decision), 0);
    cr_assert_eq(spw_step_end(client), 0);
    cr_expect_eq(wait_ended_all(), 0);
    rig_advance(&api.rig, 100 * MS);
    wait_settle(&store);
    decision = api_lookup(client, request);
    cr_expect_eq(decision.action, SPW_ACTION_LOAD);
    cr_expect_eq(decision.waited_ns, 200 * MS, "from the first deferral for chunks");
    cr_expect_eq(wait_ended(SPW_WAIT_HIT).sum_ns, 200 * MS);
    wait_close();
}

Test(waiting, every_lookup_ends_once_and_the_sums_hold) /* OB-2 */
{
    wait_open(&one_worker);
    api_store(&api, client, space, 1, 100, 1);
    for (int i = 0; i < 3; i++)
        api_lookup(client, api_request(space, 100, 1));
    struct spw_completion store = wait_pend(200, 1);
    struct spw_request *two[2] = {api_request(space, 200, 1), api_request(space, 200, 1)};
    for (int i = 0; i < 4; i++)
        api_lookup(client, two[i % 2]);
    wait_settle(&store);
    for (int i = 0; i < 2; i++)
        api_lookup(client, two[i]);
    wait_pend(300, 1);
    struct spw_request *late = api_request(space, 300, 1);
    api_lookup(client, late);
    rig_advance(&api.rig, 500 * MS);
    api_lookup(client, late);
    for (int i = 0; i < 4; i++)
        api_lookup(client, api_request(space, 400, 1));
    uint64_t hits = api_counter(client, "load_complete") + api_counter(client, "load_cut") +
                    api_counter(client, "load_tail");
    uint64_t misses = api_counter(client, "miss_short") + api_counter(client, "miss_group_miss") +
                      api_counter(client, "miss_leading_pending");
    uint64_t expired = api_counter(client, "load_limit") + api_counter(client, "miss_limit");
    cr_expect_eq(hits, 5);
    cr_expect_eq(misses, 4);
    cr_expect_eq(expired, 1);
    cr_expect_eq(api_counter(client, "decided"), 10);
    cr_expect_eq(api_counter(client, "lookups"), 10 + api_counter(client, "defer_pending"));
    struct spw_request *stores = api_request(space, 100, 5);
    struct spw_completion done = api_reserve(&api, stores, client, 0, 0, 5); /* 100 is there */
    cr_expect_eq(done.mask, 0x1e);
    uint64_t bytes = rig_count(&api.rig, 0, SPW_WORKER_bytes_stored);
    cr_assert_eq(api_run(client, &done.ticket, 0, 1), 0);
    cr_assert_eq(api_complete(&api, client).status, 0);
    cr_expect_eq(rig_count(&api.rig, 0, SPW_WORKER_bytes_stored) - bytes, 4 * 2 * RIG_BLOCK_BYTES);
    wait_close();
}

/* ---- wake-ups -------------------------------------------------------------------------------- */

Test(waiting, only_those_that_news_is_about_are_handed_back_each_once)
{
    struct spw_request *request[4], *list[4];
    struct spw_completion store[4];
    wait_open(&one_worker);
    for (uint64_t i = 0; i < 4; i++) {
        store[i] = wait_pend(100 + i, 1);
        request[i] = api_request(space, 100 + i, 1);
        api_lookup(client, request[i]);
    }
    cr_expect_eq(wait_woken(list, 4), 0);
    wait_settle(&store[2]);
    wait_settle(&store[0]);
    cr_expect_eq(wait_woken(list, 1), 1, "as many as there is room for");
    cr_expect_eq(list[0], request[2]);
    cr_expect_eq(wait_woken(list, 4), 1, "the other one later");
    cr_expect_eq(list[0], request[0]);
    cr_expect_eq(wait_woken(list, 4), 0);
    for (int i = 0; i < 4; i++)
        cr_expect_eq(api_lookup(client, request[i]).repeated, (uint32_t)i % 2);
    spw_request_finish(request[1]);
    wait_settle(&store[1]);
    cr_expect_eq(wait_woken(list, 4), 0, "finished ones are never handed back");
    api_kill_worker(&api, 0);
    cr_expect_eq(wait_woken(list, 4), 1, "a dead worker's stores are lost");
    cr_expect_eq(list[0], request[3]);
    cr_expect_eq(api_lookup(client, request[3]).action, SPW_ACTION_MISS);
    cr_expect_eq(spw_woken(client, list, 4), -EINVAL, "outside a step");
    wait_close();
}

Test(waiting, a_transfer_that_ends_wakes_its_request)
{
    struct spw_request *one = NULL;
    wait_open(&one_worker);
    struct spw_request *request = api_request(space, 100, 1);
    struct spw_chunk_ref ref = {.index = 0};
    cr_assert_eq(spw_store_reserve(request, 0, &ref, 1, 7), 1);
    cr_expect_eq(api_lookup(client, request).reason, SPW_REASON_TRANSFER);
    cr_expect_eq(wait_woken(&one, 1), 0);
    cr_assert_eq(api_complete(&api, client).status, 0);
    cr_expect_eq(wait_woken(&one, 1), 1);
    cr_expect_eq(one, request);
    wait_close();
}

/* ---- configuration --------------------------------------------------------------------------- */

static void refused(const char *words)
{
    struct spw_space *none = NULL;
    char text[256] = "";
    cr_expect_eq(spw_space_open(client, &space_config, &none, text, sizeof(text)), -EINVAL);
    cr_expect(strstr(text, words), "\"%s\" lacks \"%s\"", text, words);
    space_config = api_space_config(1);
}

Test(waiting, nonsense_is_refused_by_value_and_range)
{
    wait_open(&one_worker);
    space_config.max_recompute_pending_tokens = -1;
    refused("max_recompute_pending_tokens is -1, must be 0 to 9223372036854775807");
    space_config.max_recompute_pending_tokens = SPW_RECOMPUTE_AUTO;
    refused("prefill_tokens_per_s");
    space_config.max_recompute_pending_tokens = SPW_RECOMPUTE_AUTO;
    space_config.prefill_tokens_per_s = 1;
    space_config.recompute_scope = SPW_SCOPE_GROUP;
    refused("recompute_scope must be request");
    space_config.max_recompute_pending_tokens = SPW_RECOMPUTE_AUTO;
    space_config.prefill_tokens_per_s = 1;
    space_config.recompute_price = SPW_PRICE_MAX + 1;
    refused("recompute_price is 1000001");
    space_config.wait_limit_ns = 86400000000001ull;
    refused("at most a day");
    wait_close();
}

Test(waiting, a_caller_of_the_first_version_gets_what_it_knows)
{
    wait_open(&one_worker);
    struct spw_space *old = NULL;
    char text[256] = "";
    space_config.size_bytes = offsetof(struct spw_space_config, recompute_price);
    space_config.wait_limit_ns = UINT64_MAX; /* not part of what it gave */
    api_pump(&api);
    cr_assert_eq(spw_space_open(client, &space_config, &old, text, sizeof(text)), 0, "%s", text);
    api_pump_end(&api);
    struct spw_request *request = api_request(old, 100, 1);
    struct spw_decision decision = {.size_bytes = offsetof(struct spw_decision, eta_ns),
                                    .eta_ns = 77};
    cr_assert_geq(spw_step_begin(client), 0);
    cr_assert_eq(spw_lookup(request, 0, 0, &decision), 0);
    cr_expect_eq(decision.eta_ns, 77, "beyond what it has room for nothing is written");
    decision.size_bytes = 8;
    cr_expect_eq(spw_lookup(request, 0, 0, &decision), -EINVAL);
    cr_assert_eq(spw_step_end(client), 0);
    wait_close();
}

/* ---- the record ------------------------------------------------------------------------------ */

Test(waiting, each_decision_is_written_down_repeated_ones_are_not)
{
    struct spw_explained last;
    uint64_t first, end;
    wait_open(&one_worker);
    struct spw_request_config config = {
        .size_bytes = sizeof(config), .prompt_tokens = 16, .tag = 4711};
    struct spw_request *request = NULL;
    uint8_t key[API_KEY_BYTES];
    wait_pend(100, 1);
    cr_assert_eq(spw_request_open(space, &config, &request), 0);
    cr_expect_eq(spw_request_tag(request), 4711);
    rig_key(0, 100, key);
    cr_assert_eq(spw_request_extend(request, 0, key, API_KEY_BYTES, 1), 0);
    for (int i = 0; i < 3; i++)
        api_lookup(client, request);
    spw_explain_range(client->own->head, &first, &end);
    cr_assert_eq(end - first, 1);
    cr_assert_eq(spw_explain_read(client->own->head, first, &last), 0);
    cr_expect_eq(last.tag, 4711);
    cr_expect_eq(last.reason, SPW_REASON_PENDING);
    cr_expect_eq(last.group, 0);
    cr_expect_eq(last.flags, SPW_EXPLAINED_AWAITED);
    wait_close();
}
