/* The installed API over a tiny pool whose workers are driven pass by pass: a prompt's way from
 * store to load, verdicts, decisions, news. */
#include "tests/support/api_rig.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

TestSuite(api, .timeout = 25);

static struct api api;
static struct spw_client *client;
static struct spw_space *space;
static struct spw_space_config space_config;

static void open_pool(const struct rig_config *config, uint32_t ranks)
{
    api_open(&api, config);
    client = api_attach(&api, 64);
    space_config = api_space_config(ranks);
    space = api_space(&api, client, &space_config);
}

static void close_pool(void)
{
    spw_detach(client);
    api_close(&api);
}

static const struct rig_config one_worker = {.workers = 1, .capacity = 8};
static const struct rig_config two_workers = {.workers = 2, .capacity = 8};

/* Chunks of a request as verdicts, in a step of its own. */
static void probe(struct spw_request *request, uint32_t count, uint8_t *out)
{
    cr_assert_geq(spw_step_begin(client), 0);
    cr_assert_eq(spw_request_probe(request, 0, 0, count, out), 0);
    cr_assert_eq(spw_step_end(client), 0);
}

/* Load what @decision of the open step says, into blocks from @block on; ends the step. */
static void load_all(struct spw_request *request, const struct spw_decision *decision,
                     uint32_t block)
{
    struct spw_chunk_ref ref[SPW_MAX_JOB_CHUNKS];
    int n = spw_decision_chunks(decision, 0, ref, SPW_MAX_JOB_CHUNKS);
    cr_assert_gt(n, 0);
    cr_assert_eq(spw_load_begin(request, decision, 0, ref, (uint32_t)n, 21), n);
    cr_assert_eq(spw_step_end(client), 0);
    struct spw_completion done = api_complete(&api, client);
    cr_assert_eq(done.kind, SPW_COMPLETION_BEGUN);
    cr_assert_eq(done.status, 0);
    cr_assert_eq(done.cookie, 21);
    cr_assert_eq(done.ticket.chunks, (uint32_t)n);
    cr_assert_eq(api_run(client, &done.ticket, block, 22), 0);
    done = api_complete(&api, client);
    cr_assert_eq(done.kind, SPW_COMPLETION_LOADED);
    cr_assert_eq(done.cookie, 22);
    cr_assert_eq(done.status, 0);
}

static struct spw_decision begin_and_look_up(struct spw_request *request)
{
    struct spw_decision decision = {.size_bytes = sizeof(decision)};
    cr_assert_geq(spw_step_begin(client), 0);
    cr_assert_eq(spw_lookup(request, 0, 0, &decision), 0);
    return decision;
}

/* ---- the whole path -------------------------------------------------------------------------- */

Test(api, a_stored_prompt_is_found_and_loaded_byte_for_byte)
{
    open_pool(&one_worker, 1);
    api_store(&api, client, space, 1, 100, 3);
    struct spw_request *request = api_request(space, 100, 4);
    struct spw_decision decision = begin_and_look_up(request);
    cr_expect_eq(decision.action, SPW_ACTION_LOAD);
    cr_expect_eq(decision.reason, SPW_REASON_COMPLETE);
    cr_expect_eq(decision.hit_tokens, 48);
    load_all(request, &decision, 50);
    for (uint32_t i = 0; i < 6; i++)
        cr_expect(api_filled(client, 50 + i, 100 + i / 2, 0), "block %u", i);
    cr_expect_eq(rig_claims(&api.rig, 0), 0);
    close_pool();
}

/* LK-11: what was drained is a hit at once; nothing of a finished request is lost. */
Test(api, all_217_chunks_of_a_finished_request_are_found_once_its_stores_have_ended)
{
    const struct rig_config config = {.workers = 1,
                                      .capacity = 256,
                                      .queue_chunks = 256,
                                      .copier.rate_bytes = {2 * RIG_BLOCK_BYTES * 100}};
    open_pool(&config, 1);
    struct spw_request *request = api_request(space, 0, 217);
    uint32_t stored = 0;
    for (uint32_t at = 0; at < 217; at += 16) {
        uint32_t n = 217 - at < 16 ? 217 - at : 16;
        struct spw_completion done = api_reserve(&api, request, client, 0, at, n);
        cr_assert_eq(done.ticket.chunks, n);
        stored += done.ticket.chunks;
        cr_assert_eq(api_run(client, &done.ticket, 0, at), 0);
    }
    cr_expect_eq(stored, 217);
    spw_request_finish(request); /* while most of them are still pending */
    struct spw_request *again = api_request(space, 0, 217);
    cr_expect_eq(api_lookup(client, again).action, SPW_ACTION_DEFER);
    for (uint32_t i = 0; i < 30; i++) {
        rig_advance(&api.rig, RIG_SECOND / 10);
        rig_settle(&api.rig);
    }
    struct spw_decision decision = api_lookup(client, again);
    cr_expect_eq(decision.hit_tokens, 217 * API_CHUNK_TOKENS, "action %u, reason %u, chunk %lu",
                 decision.action, decision.reason, (unsigned long)decision.deciding_chunk);
    struct spw_completion done[16];
    cr_expect_eq(spw_completions(client, done, 16), 14, "runs of a finished request complete");
    close_pool();
}

/* LK-7 */
Test(api, a_hit_is_loadable_in_its_step_whatever_others_store)
{
    const struct rig_config config = {.workers = 1, .capacity = 4};
    open_pool(&config, 1);
    struct spw_client *other = api_attach(&api, 0);
    struct spw_space *others = api_space(&api, other, &space_config);
    uint32_t loads = 0;
    for (uint64_t round = 0; round < 300; round++) {
        api_store(&api, other, others, 1, 1000 + round * 3, 3);
        struct spw_request *request = api_request(space, 1000 + round * 3, 3);
        struct spw_decision decision = begin_and_look_up(request);
        cr_assert_eq(decision.action, SPW_ACTION_LOAD);
        /* the whole pool is asked for while the hit is held by the step alone */
        struct spw_request *greedy = api_request(others, 500000 + round * 8, 4);
        struct spw_chunk_ref ref[4] = {{.index = 0}, {.index = 1}, {.index = 2}, {.index = 3}};
        cr_assert_eq(spw_store_reserve(greedy, 0, ref, 4, 1), 4);
        rig_settle(&api.rig);
        load_all(request, &decision, 50);
        for (uint32_t i = 0; i < 6; i++)
            cr_assert(api_filled(client, 50 + i, 1000 + round * 3 + i / 2, 0));
        loads++;
        spw_request_finish(request);
        struct spw_completion done;
        cr_assert_eq(spw_completions(other, &done, 1), 1);
        spw_request_finish(greedy);
        rig_settle(&api.rig);
    }
    cr_expect_eq(loads, 300);
    spw_detach(other);
    close_pool();
}

Test(api, a_decision_is_stale_outside_its_step)
{
    open_pool(&one_worker, 1);
    api_store(&api, client, space, 1, 100, 2);
    struct spw_request *request = api_request(space, 100, 2);
    struct spw_chunk_ref ref = {.index = 0};
    struct spw_decision decision = begin_and_look_up(request);
    cr_assert_eq(spw_step_end(client), 0);
    cr_expect_eq(spw_load_begin(request, &decision, 0, &ref, 1, 1), -ESTALE);
    cr_assert_geq(spw_step_begin(client), 0);
    cr_expect_eq(spw_load_begin(request, &decision, 0, &ref, 1, 1), -ESTALE);
    cr_assert_eq(spw_step_end(client), 0);
    close_pool();
}

Test(api, a_client_fenced_in_its_step_is_told_so)
{
    const struct rig_config config = {.workers = 1, .capacity = 2};
    open_pool(&config, 1);
    struct spw_client *other = api_attach(&api, 0);
    struct spw_space *others = api_space(&api, other, &space_config);
    api_store(&api, client, space, 1, 100, 2);
    struct spw_request *request = api_request(space, 100, 2);
    struct spw_decision decision = begin_and_look_up(request);
    cr_assert_eq(decision.action, SPW_ACTION_LOAD);
    for (uint32_t i = 0; i < 6; i++) { /* others want the room, and the step goes on and on */
        struct spw_request *greedy = api_request(others, 700 + 2 * i, 2);
        struct spw_completion done = api_reserve(&api, greedy, other, 0, 0, 2);
        if (done.ticket.id != 0)
            cr_assert_eq(api_run(other, &done.ticket, 0, 1), 0);
        rig_settle(&api.rig);
        rig_advance(&api.rig, RIG_SECOND);
        rig_settle(&api.rig);
        struct spw_completion more[4];
        spw_completions(other, more, 4);
    }
    cr_expect_eq(rig_count(&api.rig, 0, SPW_WORKER_fences), 1);
    struct spw_chunk_ref ref = {.index = 0};
    cr_expect_eq(spw_load_begin(request, &decision, 0, &ref, 1, 1), -ESTALE);
    cr_assert_eq(spw_step_end(client), 0);
    cr_expect_eq(api_lookup(client, request).action, SPW_ACTION_MISS, "the next step is as any");
    spw_detach(other);
    close_pool();
}

/* ---- verdicts -------------------------------------------------------------------------------- */

/* LK-8 */
Test(api, the_weakest_part_decides)
{
    uint8_t verdict[3];
    open_pool(&two_workers, 2);
    api_store(&api, client, space, 2, 100, 1); /* A: both parts */
    struct spw_request *b = api_request(space, 101, 1);
    struct spw_completion done = api_reserve(&api, b, client, 0, 0, 1);
    cr_assert_eq(api_run(client, &done.ticket, 0, 1), 0);
    api_complete(&api, client); /* B: part 0 alone */
    api_store(&api, client, space, 2, 102, 1);
    struct spw_request *request = api_request(space, 100, 3);
    probe(request, 3, verdict);
    cr_expect_eq(verdict[0], SPW_HIT);
    cr_expect_eq(verdict[1], SPW_MISS);
    cr_expect_eq(verdict[2], SPW_HIT);
    cr_expect_eq(api_lookup(client, request).hit_tokens, 16);
    done = api_reserve(&api, b, client, 1, 0, 1); /* part 1 is on its way */
    probe(request, 3, verdict);
    cr_expect_eq(verdict[1], SPW_PENDING);
    struct spw_decision decision = api_lookup(client, request);
    cr_expect_eq(decision.action, SPW_ACTION_DEFER);
    cr_expect_eq(decision.deciding_chunk, 1);
    close_pool();
}

static uint8_t verdict_of(uint64_t key)
{
    uint8_t verdict;
    struct spw_request *request = api_request(space, key, 1);
    probe(request, 1, &verdict);
    spw_request_finish(request);
    return verdict;
}

static void store_part(struct spw_client *by, struct spw_space *in, uint32_t rank, uint64_t key)
{
    struct spw_request *request = api_request(in, key, 1);
    struct spw_completion done = api_reserve(&api, request, by, rank, 0, 1);
    cr_assert_eq(done.mask, 1);
    cr_assert_eq(api_run(by, &done.ticket, 0, 1), 0);
    cr_assert_eq(api_complete(&api, by).status, 0);
    spw_request_finish(request);
}

/* LK-8: one part is lost, so the others go before anything that can be reached */
Test(api, the_other_parts_of_a_lost_one_are_the_next_victims)
{
    const struct rig_config three_chunks = {.workers = 2, .capacity = 3};
    const uint64_t a = 100, b = 101, c = 102;
    open_pool(&three_chunks, 2);
    store_part(client, space, 0, b);
    store_part(client, space, 0, c);
    store_part(client, space, 0, a); /* the most recent one of worker 0 ... */
    store_part(client, space, 1, a); /* ... and the oldest of worker 1 */
    store_part(client, space, 1, b);
    store_part(client, space, 1, c);
    cr_assert_eq(verdict_of(a), SPW_HIT);
    store_part(client, space, 1, 200); /* takes the place of a's part there */
    rig_settle(&api.rig);
    cr_expect_eq(rig_count(&api.rig, 0, SPW_WORKER_demoted), 1);
    store_part(client, space, 0, 200);
    cr_expect_eq(verdict_of(a), SPW_MISS);
    cr_expect_eq(verdict_of(b), SPW_HIT, "the oldest, but whole");
    cr_expect_eq(verdict_of(c), SPW_HIT);
    cr_expect_eq(verdict_of(200), SPW_HIT);
    close_pool();
}

/* design 3: of two copies one goes first, and it is always the same one */
Test(api, a_copy_with_a_twin_is_evicted_first)
{
    const struct rig_config three_chunks = {.workers = 2, .capacity = 3};
    const uint64_t twin = 100;
    open_pool(&three_chunks, 1);
    struct spw_client *other = api_attach(&api, 0);
    struct spw_space_config config = api_space_config(1);
    config.rank_worker = (const uint32_t[]){1};
    struct spw_space *theirs = api_space(&api, other, &config);
    store_part(other, theirs, 0, 101);
    store_part(other, theirs, 0, 102);
    store_part(other, theirs, 0, twin); /* the most recent of worker 1 */
    store_part(client, space, 0, twin);
    rig_settle(&api.rig);
    cr_expect_eq(rig_count(&api.rig, 1, SPW_WORKER_demoted), 1);
    cr_expect_eq(rig_count(&api.rig, 0, SPW_WORKER_demoted), 0);
    store_part(other, theirs, 0, 103);
    for (uint64_t key = 101; key <= 103; key++)
        cr_expect_eq(verdict_of(key), SPW_HIT);
    cr_expect_eq(verdict_of(twin), SPW_HIT, "the copy of worker 0");
    spw_detach(other);
    close_pool();
}

Test(api, each_rank_loads_its_own_part)
{
    open_pool(&two_workers, 2);
    api_store(&api, client, space, 2, 100, 2);
    struct spw_request *request = api_request(space, 100, 2);
    struct spw_chunk_ref ref[2] = {{.index = 0}, {.index = 1}};
    struct spw_decision decision = begin_and_look_up(request);
    cr_assert_eq(spw_load_begin(request, &decision, 0, ref, 2, 0), 2);
    cr_assert_eq(spw_load_begin(request, &decision, 1, ref, 2, 1), 2);
    cr_assert_eq(spw_step_end(client), 0);
    rig_settle(&api.rig);
    struct spw_completion done[3];
    cr_assert_eq(spw_completions(client, done, 3), 2);
    for (int i = 0; i < 2; i++)
        cr_assert_eq(api_run(client, &done[i].ticket, 40 + 10 * (uint32_t)done[i].cookie, 5), 0);
    rig_settle(&api.rig);
    cr_assert_eq(spw_completions(client, done, 3), 2);
    for (uint32_t rank = 0; rank < 2; rank++)
        for (uint32_t i = 0; i < 4; i++)
            cr_expect(api_filled(client, 40 + 10 * rank + i, 100 + i / 2, rank));
    close_pool();
}

/* LK-1, LK-9 */
Test(api, a_small_budget_cuts_before_a_pending_run)
{
    open_pool(&one_worker, 1);
    api_store(&api, client, space, 1, 100, 1);
    struct spw_request *p = api_request(space, 101, 1);
    api_reserve(&api, p, client, 0, 0, 1); /* 101 stays pending */
    api_store(&api, client, space, 1, 102, 1);
    space_config.max_recompute_pending_tokens = 32;
    struct spw_space *frugal = api_space(&api, client, &space_config);
    cr_expect_eq(spw_space_number(frugal), spw_space_number(space), "it shares chunks");
    struct spw_request *cut = api_request(frugal, 100, 3), *waits = api_request(space, 100, 3);
    struct spw_decision decision = api_lookup(client, cut);
    cr_expect_eq(decision.action, SPW_ACTION_LOAD);
    cr_expect_eq(decision.reason, SPW_REASON_CUT);
    cr_expect_eq(decision.hit_tokens, 16);
    cr_expect_eq(decision.recomputed_tokens, 32);
    decision = api_lookup(client, waits);
    cr_expect_eq(decision.action, SPW_ACTION_DEFER);
    cr_expect_eq(decision.reason, SPW_REASON_PENDING);
    struct spw_request *hole = api_request(space, 99, 4);
    cr_expect_eq(api_lookup(client, hole).action, SPW_ACTION_MISS);
    close_pool();
}

/* LK-10 */
Test(api, a_request_that_must_not_read_finds_nothing_and_leaves_no_trace)
{
    const struct rig_config config = {.workers = 1, .capacity = 3};
    open_pool(&config, 1);
    api_store(&api, client, space, 1, 100, 1);
    api_store(&api, client, space, 1, 200, 2);
    struct spw_request_config asked = {
        .size_bytes = sizeof(asked), .flags = SPW_REQUEST_NO_READ, .prompt_tokens = 16};
    struct spw_request *request;
    uint8_t key[API_KEY_BYTES];
    rig_key(0, 100, key);
    cr_assert_eq(spw_request_open(space, &asked, &request), 0);
    cr_assert_eq(spw_request_extend(request, 0, key, API_KEY_BYTES, 1), 0);
    uint64_t touches = rig_count(&api.rig, 0, SPW_WORKER_touches);
    struct spw_decision decision = api_lookup(client, request);
    cr_expect_eq(decision.action, SPW_ACTION_MISS);
    cr_expect_eq(decision.reason, SPW_REASON_SKIP);
    cr_expect_eq(decision.hit_tokens, 0);
    cr_assert_geq(spw_step_begin(client), 0);
    cr_expect_eq(spw_touch(request), 0);
    cr_assert_eq(spw_step_end(client), 0);
    rig_settle(&api.rig);
    cr_expect_eq(rig_count(&api.rig, 0, SPW_WORKER_touches), touches);
    api_store(&api, client, space, 1, 300, 1);
    cr_expect_neq(rig_state(&api.rig, 0, 100, NULL), SPW_READY, "still the oldest: evicted");
    cr_expect_eq(api_reserve(&api, request, client, 0, 0, 1).status, 0, "its stores work");
    close_pool();
}

Test(api, a_pending_chunk_of_a_worker_that_died_is_a_miss_at_once)
{
    uint8_t verdict[2];
    const uint32_t on_one[] = {1};
    open_pool(&two_workers, 1);
    space_config.rank_worker = on_one;
    struct spw_space *second = api_space(&api, client, &space_config); /* copies by worker 1 */
    api_store(&api, client, space, 1, 100, 1);                         /* in shard 0 */
    struct spw_request *request = api_request(space, 100, 2), *there = api_request(second, 100, 2);
    struct spw_chunk_ref ref = {.index = 1};
    cr_assert_eq(spw_store_reserve(request, 0, &ref, 1, 1), 1);
    api_complete(&api, client);
    probe(there, 2, verdict);
    cr_expect(verdict[0] == SPW_HIT && verdict[1] == SPW_PENDING);
    api_say(&api, 0, SPW_WORKER_DOWN);
    probe(there, 2, verdict);
    cr_expect(verdict[0] == SPW_HIT && verdict[1] == SPW_MISS, "READY stays for other copiers");
    probe(request, 2, verdict);
    cr_expect(verdict[0] == SPW_MISS && verdict[1] == SPW_MISS, "its own copier is down");
    cr_expect_eq(spw_store_reserve(request, 0, &ref, 1, 1), -EOWNERDEAD);
    struct spw_decision decision = begin_and_look_up(there);
    cr_assert_eq(decision.action, SPW_ACTION_LOAD);
    load_all(there, &decision, 50); /* worker 1 reads shard 0 */
    cr_expect(api_filled(client, 50, 100, 0));
    close_pool();
}

/* ---- news and counters ----------------------------------------------------------------------- */

Test(api, changes_come_with_keys_and_a_gap_is_told_once)
{
    struct spw_change change[64];
    uint8_t key[API_KEY_BYTES];
    open_pool(&one_worker, 1);
    struct spw_client *writer = api_attach(&api, 0);
    struct spw_space *written = api_space(&api, writer, &space_config);
    api_store(&api, writer, written, 1, 100, 2);
    cr_assert_eq(spw_step_begin(client), 4);
    cr_assert_eq(spw_step_end(client), 0);
    cr_assert_eq(spw_changes(client, change, 64), 2);
    rig_key(0, 100, key);
    cr_expect_eq(change[0].kind, SPW_CHANGE_STORED);
    cr_expect_eq(change[0].space, spw_space_number(space));
    cr_assert_eq(change[0].key_bytes, API_KEY_BYTES);
    cr_expect_eq(memcmp(change[0].key, key, API_KEY_BYTES), 0);
    for (uint64_t n = 0; n < 40; n++)
        api_store(&api, writer, written, 1, 1000 + 2 * n, 2);
    cr_assert_geq(spw_step_begin(client), 0);
    cr_assert_eq(spw_step_end(client), 0);
    cr_expect_eq(spw_changes(client, change, 64), -EOVERFLOW);
    cr_expect_eq(spw_changes(client, change, 64), 0);
    cr_expect_eq(api_counter(client, "gaps"), 1);
    cr_expect_geq(api_counter(client, "resyncs"), 1);
    spw_detach(writer);
    close_pool();
}

Test(api, every_lookup_is_counted_under_one_reason)
{
    open_pool(&one_worker, 1);
    api_store(&api, client, space, 1, 100, 2);
    struct spw_request *hit = api_request(space, 100, 2), *miss = api_request(space, 500, 2);
    struct spw_request *waits = api_request(space, 600, 1);
    for (uint32_t i = 0; i < 3; i++)
        api_lookup(client, hit);
    for (uint32_t i = 0; i < 2; i++)
        api_lookup(client, miss);
    api_reserve(&api, waits, client, 0, 0, 1);
    for (uint32_t i = 0; i < 4; i++)
        api_lookup(client, waits);
    uint64_t value[64], sum = 0;
    cr_assert_gt(spw_counters(client, value, 64), SPW_REASON_COUNT);
    for (uint32_t i = 0; i < SPW_REASON_COUNT; i++)
        sum += value[i];
    cr_expect_eq(sum, 9);
    cr_expect_eq(api_counter(client, "lookups"), 9);
    cr_expect_eq(api_counter(client, "load_complete"), 3);
    cr_expect_eq(api_counter(client, "miss_group_miss"), 2);
    cr_expect_eq(api_counter(client, "defer_pending"), 4);
    cr_expect_eq(api_counter(client, "repeated"), 3);
    cr_expect_eq(api_counter(client, "hit_tokens"), 3 * 32);
    cr_expect_eq(spw_counter_name(1000), NULL);
    close_pool();
}

Test(api, info_tells_the_pool)
{
    struct spw_info info = {.size_bytes = sizeof(info)};
    uint64_t blocks, bytes;
    open_pool(&two_workers, 1);
    cr_assert_eq(spw_get_info(client, &info), 0);
    cr_expect_eq(info.workers, 2);
    cr_expect_eq(info.workers_up, 3);
    cr_expect_eq(info.capacity_chunks, 8);
    cr_expect_eq(info.pool_id[0], api.rig.daemon.ctl->header.pool_id[0]);
    cr_assert_eq(spw_kv_blocks(client, NULL, &blocks, &bytes), 0);
    cr_expect_eq(blocks, RIG_BLOCKS);
    cr_expect_eq(bytes, RIG_BLOCK_BYTES);
    cr_expect_str_eq(spw_version(), "0.1.0");
    close_pool();
}
