/* Waits of windows, of partial tails and for loads of others, ETAs of several ranks and copies;
 * through the installed API, on the test's own clock. */
#include "tests/support/wait_rig.h"

#include <criterion/criterion.h>

TestSuite(waiting_more, .timeout = 25);

static struct spw_request *list[8]; /* those handed back last */

static void expect_limit(const struct spw_decision *decision, enum spw_reason reason,
                         uint32_t group, uint64_t chunk, uint64_t expired)
{
    cr_expect_eq(decision->reason, reason, "%u", decision->reason);
    cr_expect_eq(decision->deciding_group, group);
    cr_expect_eq(decision->deciding_chunk, chunk);
    cr_expect_eq(wait_ended(SPW_WAIT_EXPIRED).count, expired);
    cr_expect_eq(wait_ended_all(), expired);
    cr_expect_eq(api_counter(client, "waits_expired"), expired);
}

/* ---- windows --------------------------------------------------------------------------------- */

/* Chunk @chunk of the request with keys from @first on pends. */
static void pend_chunk(struct spw_request *stores, uint64_t chunk)
{
    cr_assert_eq(api_reserve(&api, stores, client, 0, chunk, 1).status, 0);
}

/* A group all of whose chunks but the last few are never stored is how windows are stored. */
Test(waiting_more, a_window_that_pends_too_long_is_counted_as_expired) /* LK-2 */
{
    static const struct spw_group_config sliding = {.kind = SPW_GROUP_SLIDING,
                                                    .block_tokens = 8,
                                                    .window_tokens = 16,
                                                    .chunk_bytes = 2 * RIG_BLOCK_BYTES};
    wait_open(&one_worker);
    space_config.group = &sliding;
    space_config.fingerprint = "a sliding window";
    space = api_space(&api, client, &space_config);
    struct spw_request *request = api_request(space, 100, 4), *head = api_request(space, 200, 4);
    struct spw_request *stores = api_request(space, 100, 4);
    struct spw_completion store = api_reserve(&api, stores, client, 0, 3, 1);
    cr_expect_eq(api_lookup(client, request).reason, SPW_REASON_PENDING);
    rig_advance(&api.rig, 500 * MS);
    struct spw_decision decision = api_lookup(client, request);
    expect_limit(&decision, SPW_REASON_MISS_LIMIT, 0, 3, 1);
    cr_assert_eq(api_run(client, &store.ticket, 0, 1), 0);
    cr_assert_eq(api_complete(&api, client).status, 0);
    pend_chunk(stores, 0);
    cr_expect_eq(api_lookup(client, request).reason, SPW_REASON_COMPLETE, "chunk 0 is of no use");
    api_store(&api, client, space, 1, 200, 1);
    pend_chunk(api_request(space, 200, 4), 3);
    cr_expect_eq(api_lookup(client, head).reason, SPW_REASON_PENDING);
    rig_advance(&api.rig, 500 * MS);
    decision = api_lookup(client, head);
    expect_limit(&decision, SPW_REASON_LOAD_LIMIT, 0, 3, 2);
    cr_expect_eq(decision.hit_tokens, 16, "the window further left");
    wait_close();
}

Test(waiting_more, what_lies_behind_a_hole_does_not_expire)
{
    wait_open(&one_worker);
    struct spw_completion store = wait_pend(100, 2);
    struct spw_request *request = api_request(space, 100, 2);
    api_lookup(client, request);
    rig_advance(&api.rig, 400 * MS);
    cr_assert_eq(spw_cancel(client, &store.ticket), 0);
    rig_settle(&api.rig);
    pend_chunk(api_request(space, 100, 2), 1);
    rig_advance(&api.rig, 100 * MS);
    cr_expect_eq(api_lookup(client, request).reason, SPW_REASON_GROUP_MISS, "for chunk 0");
    cr_expect_eq(wait_ended(SPW_WAIT_LOST).count, 1);
    wait_close();
}

Test(waiting_more, time_after_a_cancel_is_not_waited)
{
    wait_open(&one_worker);
    wait_pend(100, 1);
    struct spw_request *request = api_request(space, 100, 1);
    api_lookup(client, request);
    rig_advance(&api.rig, 300 * MS);
    cr_assert_eq(spw_request_cancel(request), 0);
    rig_advance(&api.rig, 1000 * MS);
    cr_expect_eq(api_lookup(client, request).reason, SPW_REASON_PENDING);
    rig_advance(&api.rig, 199 * MS);
    cr_expect_eq(api_lookup(client, request).repeated, 1);
    rig_advance(&api.rig, MS);
    cr_expect_eq(api_lookup(client, request).reason, SPW_REASON_MISS_LIMIT);
    wait_close();
}

/* The first eight chunks turn out to be there, the others stay unknown. */
static const struct spw_request *answered;

static uint8_t eight_are_there(void *ctx, uint64_t tag)
{
    (void)ctx;
    for (uint32_t i = 0; answered && i < 8; i++)
        if (answered->keys[0].tag[i] == tag)
            return SPW_HIT;
    return SPW_RETRY;
}

Test(waiting_more, all_that_is_unknown_is_one_wait_however_much_it_is) /* LK-5 */
{
    static const struct spw_beyond beyond = {.ask = eight_are_there};
    wait_open(&one_worker);
    client->beyond = &beyond;
    struct spw_request *request = api_request(space, 100, 12);
    cr_expect_eq(api_lookup(client, request).reason, SPW_REASON_RETRY);
    rig_advance(&api.rig, 40 * MS);
    answered = request;
    spw_wakeup_record(&client->wakeup, request->keys[0].tag[0]);
    struct spw_decision decision = api_lookup(client, request);
    cr_expect_eq(decision.reason, SPW_REASON_RETRY);
    cr_expect_eq(decision.deciding_chunk, 8);
    rig_advance(&api.rig, 10 * MS);
    decision = api_lookup(client, request);
    expect_limit(&decision, SPW_REASON_LOAD_LIMIT, 0, 8, 1);
    wait_close();
}

/* ---- partial tails --------------------------------------------------------------------------- */

/* A full and a state group of 32-token chunks, a prompt of 30 tokens: no whole chunk. */
static void open_hybrid(const struct rig_config *config)
{
    static const struct spw_group_config group[] = {
        {.kind = SPW_GROUP_FULL, .block_tokens = 32, .chunk_bytes = RIG_BLOCK_BYTES},
        {.kind = SPW_GROUP_STATE, .block_tokens = 32, .chunk_bytes = RIG_BLOCK_BYTES}};
    wait_open(config);
    space_config.groups = 2;
    space_config.group = group;
    space_config.blocks_per_chunk = 1;
    space_config.gpu_prefix_cache = 1;
    space_config.fingerprint = "a hybrid model";
    space = api_space(&api, client, &space_config);
}

static struct spw_request *with_tail_at(uint64_t key, uint64_t prompt_tokens, uint64_t boundary)
{
    struct spw_request_config config = {.size_bytes = sizeof(config),
                                        .prompt_tokens = prompt_tokens};
    struct spw_request *request = NULL;
    uint8_t both[2 * API_KEY_BYTES];
    cr_assert_eq(spw_request_open(space, &config, &request), 0);
    rig_key(0, key, both);
    rig_key(0, key, both + API_KEY_BYTES);
    cr_assert_eq(spw_request_boundary(request, boundary, both, API_KEY_BYTES), 0);
    return request;
}

static struct spw_request *with_tail(uint64_t key)
{
    return with_tail_at(key, 30, 16);
}

static const struct spw_chunk_ref tail_ref[2] = {
    {.group = 0, .index = SPW_CHUNK_TAIL, .boundary = 16},
    {.group = 1, .index = SPW_CHUNK_TAIL, .boundary = 16}};
static const uint32_t tail_blocks[2] = {4, 5};

static struct spw_completion pend_tail(uint64_t key)
{
    cr_assert_eq(spw_store_reserve(with_tail(key), 0, tail_ref, 2, 1), 2);
    struct spw_completion done = api_complete(&api, client);
    cr_assert_eq(done.status, 0);
    return done;
}

static void run_tail(const struct spw_completion *reserved)
{
    cr_assert_eq(spw_run(client, &reserved->ticket, tail_blocks, 2, 2), 0);
}

Test(waiting_more, a_tail_is_marked_wakes_and_expires_for_its_request_alone) /* LK-2 */
{
    open_hybrid(&one_worker);
    struct spw_completion store = pend_tail(700);
    struct spw_request *late = with_tail(700), *other = with_tail(700);
    cr_expect_eq(api_lookup(client, late).reason, SPW_REASON_TAIL_PENDING);
    cr_expect_eq(wait_explained().flags, SPW_EXPLAINED_AWAITED);
    cr_expect_eq(wait_awaited(client, 0), 2, "the objects of both groups");
    rig_advance(&api.rig, 499 * MS);
    cr_expect_eq(api_lookup(client, late).repeated, 1);
    cr_expect_eq(api_lookup(client, other).reason, SPW_REASON_TAIL_PENDING);
    rig_advance(&api.rig, MS);
    cr_expect_eq(wait_woken(list, 8), 1);
    struct spw_decision decision = api_lookup(client, late);
    cr_expect_eq(decision.action, SPW_ACTION_MISS);
    expect_limit(&decision, SPW_REASON_MISS_LIMIT, 1, 0, 1);
    cr_expect_eq(wait_awaited(client, 0), 2, "the other one waits on");
    run_tail(&store);
    cr_assert_eq(api_complete(&api, client).status, 0);
    cr_expect_eq(wait_woken(list, 8), 1);
    cr_expect_eq(api_lookup(client, other).reason, SPW_REASON_TAIL);
    cr_expect_eq(wait_ended(SPW_WAIT_HIT).count, 1);
    cr_expect_eq(wait_awaited(client, 0), 0);
    cr_expect_eq(api_lookup(client, late).reason, SPW_REASON_TAIL, "its data is kept");
    wait_close();
}

Test(waiting_more, a_tail_that_lost_an_object_does_not_expire)
{
    open_hybrid(&one_worker);
    struct spw_request *stores = with_tail(700), *request = with_tail(700);
    cr_assert_eq(spw_store_reserve(stores, 0, &tail_ref[0], 1, 1), 1);
    struct spw_completion store = api_complete(&api, client);
    cr_assert_eq(spw_store_reserve(stores, 0, &tail_ref[1], 1, 1), 1);
    api_complete(&api, client);
    cr_expect_eq(api_lookup(client, request).reason, SPW_REASON_TAIL_PENDING);
    rig_advance(&api.rig, 400 * MS);
    cr_assert_eq(spw_cancel(client, &store.ticket), 0);
    rig_settle(&api.rig);
    rig_advance(&api.rig, 100 * MS);
    cr_expect_eq(api_lookup(client, request).reason, SPW_REASON_SHORT);
    cr_expect_eq(wait_ended(SPW_WAIT_LOST).count, 1);
    wait_close();
}

Test(waiting_more, complete_chunks_end_at_no_tails_limit)
{
    static const struct spw_chunk_ref ref[4] = {
        {.group = 0},
        {.group = 1},
        {.group = 0, .index = SPW_CHUNK_TAIL, .boundary = 48},
        {.group = 1, .index = SPW_CHUNK_TAIL, .boundary = 48}};
    struct spw_decision decision = {.size_bytes = sizeof(decision)};
    uint8_t key[API_KEY_BYTES];
    open_hybrid(&one_worker);
    struct spw_request *request = with_tail_at(700, 60, 48);
    rig_key(0, 100, key);
    for (uint32_t g = 0; g < 2; g++)
        cr_assert_eq(spw_request_extend(request, g, key, API_KEY_BYTES, 1), 0);
    cr_assert_eq(spw_store_reserve(request, 0, ref, 2, 1), 2);
    struct spw_completion store = api_complete(&api, client);
    run_tail(&store);
    cr_assert_eq(api_complete(&api, client).status, 0);
    cr_assert_eq(spw_store_reserve(request, 0, ref + 2, 2, 1), 2);
    api_complete(&api, client);
    cr_assert_geq(spw_step_begin(client), 0);
    cr_assert_eq(spw_lookup(request, 32, 0, &decision), 0); /* the GPU has the first chunk */
    cr_assert_eq(spw_step_end(client), 0);
    cr_expect_eq(decision.reason, SPW_REASON_TAIL_PENDING);
    rig_advance(&api.rig, 500 * MS);
    decision = api_lookup(client, request); /* and now it hasn't */
    cr_expect_eq(decision.reason, SPW_REASON_COMPLETE);
    cr_expect_eq(decision.hit_tokens, 32);
    wait_close();
}

static uint8_t unknown(void *ctx, uint64_t tag)
{
    (void)ctx;
    (void)tag;
    return SPW_RETRY;
}

Test(waiting_more, an_unknown_tail_has_the_shorter_limit) /* LK-5 */
{
    static const struct spw_beyond beyond = {.ask = unknown};
    open_hybrid(&one_worker);
    client->beyond = &beyond;
    struct spw_request *request = with_tail(700);
    cr_expect_eq(api_lookup(client, request).reason, SPW_REASON_TAIL_RETRY);
    rig_advance(&api.rig, 49 * MS);
    cr_expect_eq(api_lookup(client, request).repeated, 1);
    rig_advance(&api.rig, MS);
    struct spw_decision decision = api_lookup(client, request);
    expect_limit(&decision, SPW_REASON_MISS_LIMIT, 1, 0, 1);
    wait_close();
}

/* Decide, and begin a load that is not run. */
static struct spw_ticket begin_load(struct spw_request *request, const struct spw_chunk_ref *ref,
                                    uint32_t count)
{
    struct spw_decision decision = {.size_bytes = sizeof(decision)};
    cr_assert_geq(spw_step_begin(client), 0);
    cr_assert_eq(spw_lookup(request, 0, 0, &decision), 0);
    cr_assert_eq(decision.action, SPW_ACTION_LOAD);
    cr_assert_eq(spw_load_begin(request, &decision, 0, ref, count, 3), (int)count);
    cr_assert_eq(spw_step_end(client), 0);
    return api_complete(&api, client).ticket;
}

/* A wait for what another request loads: told of its end, and not longer than the limit. */
static void wait_for_a_load(struct spw_request *loads, struct spw_request *waits_on,
                            struct spw_request *patient, const struct spw_chunk_ref *ref,
                            uint32_t count)
{
    struct spw_ticket ticket = begin_load(loads, ref, count);
    cr_expect_eq(api_lookup(client, waits_on).reason, SPW_REASON_LOADING);
    rig_advance(&api.rig, 499 * MS);
    cr_expect_eq(api_lookup(client, waits_on).repeated, 1);
    cr_expect_eq(api_lookup(client, patient).reason, SPW_REASON_LOADING);
    rig_advance(&api.rig, MS);
    cr_expect_eq(wait_woken(list, 8), 1);
    cr_expect_eq(api_lookup(client, waits_on).action, SPW_ACTION_LOAD, "it loads for itself");
    cr_expect_eq(api_lookup(client, patient).repeated, 1);
    cr_assert_eq(spw_run(client, &ticket, tail_blocks, ticket.chunks * space->blocks_per_chunk, 4),
                 0);
    cr_assert_eq(api_complete(&api, client).status, 0);
    cr_expect_eq(wait_woken(list, 8), 1);
    struct spw_decision decision = api_lookup(client, patient);
    cr_expect_eq(decision.action, SPW_ACTION_LOAD);
    cr_expect_eq(decision.waited_ns, MS);
    cr_expect_eq(wait_ended(SPW_WAIT_HIT).count, 2);
    cr_expect_eq(api_counter(client, "defer_loading"), 4, "with those that repeat it");
}

Test(waiting_more, a_load_for_another_request_is_not_waited_for_beyond_the_limit)
{
    const struct spw_chunk_ref ref = {.index = 0};
    wait_open(&one_worker);
    space_config.gpu_prefix_cache = 1;
    space = api_space(&api, client, &space_config);
    api_store(&api, client, space, 1, 100, 1);
    wait_for_a_load(api_request(space, 100, 1), api_request(space, 100, 1),
                    api_request(space, 100, 1), &ref, 1);
    wait_close();
}

Test(waiting_more, nor_is_one_of_a_tail)
{
    open_hybrid(&one_worker);
    struct spw_completion store = pend_tail(700);
    run_tail(&store);
    cr_assert_eq(api_complete(&api, client).status, 0);
    wait_for_a_load(with_tail(700), with_tail(700), with_tail(700), tail_ref, 2);
    wait_close();
}

/* ---- ETA ------------------------------------------------------------------------------------- */

/* A byte of payload a millisecond: a chunk of two blocks takes 128 ms, a tail object 64. */
#define PACE .copier = {.rate_bytes = {1000, 0}, .in_flight = {1, 1}}

static void reap_all(struct spw_client *of)
{
    struct spw_completion end[8];
    rig_settle(&api.rig);
    while (spw_completions(of, end, 8) > 0)
        ;
}

/* Time goes on until worker @k has stored @chunks. */
static void until_stored(uint32_t k, uint64_t chunks)
{
    while (rig_count(&api.rig, k, SPW_WORKER_chunks_stored) < chunks) {
        rig_advance(&api.rig, 4 * MS);
        rig_settle(&api.rig);
    }
}

/* Run stores of keys first, first + 1, ... at @rank of @of. */
static void queue(struct spw_client *of, struct spw_space *at, uint32_t rank, uint64_t first,
                  uint32_t count)
{
    struct spw_completion done =
        api_reserve(&api, api_request(at, first, count), of, rank, 0, count);
    cr_assert_eq(done.status, 0);
    cr_assert_eq(api_run(of, &done.ticket, 0, 1), 0);
    rig_settle(&api.rig);
}

static struct spw_space *without_marks(uint32_t ranks, const char *fingerprint)
{
    space_config = api_space_config(ranks);
    space_config.no_await = 1;
    space_config.fingerprint = fingerprint;
    return api_space(&api, client, &space_config);
}

Test(waiting_more, a_chunk_is_there_when_its_last_rank_has_it)
{
    const struct rig_config paced = {.workers = 2, .capacity = 16, PACE};
    wait_open(&paced);
    struct spw_space *plain = without_marks(2, "a model");
    for (uint32_t r = 0; r < 2; r++)
        queue(client, plain, r, 900, 1);
    until_stored(0, 1);
    until_stored(1, 1);
    reap_all(client);
    queue(client, plain, 0, 100, 1); /* first at rank 0, fifth at rank 1 */
    queue(client, plain, 0, 200, 4); /* 203: fifth and first */
    queue(client, plain, 1, 203, 1);
    queue(client, plain, 1, 300, 3);
    queue(client, plain, 1, 100, 1);
    struct spw_decision decision = api_lookup(client, api_request(plain, 100, 1));
    cr_expect(decision.eta_ns > 600 * MS && decision.eta_ns <= 640 * MS, "%lu",
              (unsigned long)decision.eta_ns);
    decision = api_lookup(client, api_request(plain, 203, 1));
    cr_expect(decision.eta_ns > 600 * MS && decision.eta_ns <= 640 * MS, "%lu",
              (unsigned long)decision.eta_ns);
    cr_expect_eq(wait_explained().eta_ns, decision.eta_ns);
    decision = api_lookup(client, api_request(space, 203, 1)); /* goes first if awaited */
    cr_expect(decision.eta_ns > 128 * MS && decision.eta_ns <= 256 * MS, "%lu",
              (unsigned long)decision.eta_ns);
    wait_close();
}

Test(waiting_more, of_two_copies_the_first_counts)
{
    static const uint32_t other_worker[] = {1};
    const struct rig_config paced = {.workers = 2, .capacity = 16, PACE};
    wait_open(&paced);
    struct spw_space *plain = without_marks(1, "one rank");
    struct spw_client *second = api_attach(&api, 0);
    space_config.rank_worker = other_worker;
    struct spw_space *theirs = api_space(&api, second, &space_config);
    cr_assert_eq(spw_space_number(theirs), spw_space_number(plain));
    queue(client, plain, 0, 900, 1);
    queue(second, theirs, 0, 901, 1);
    until_stored(0, 1);
    until_stored(1, 1);
    reap_all(client);
    reap_all(second);
    queue(client, plain, 0, 100, 1); /* first at worker 0, third at worker 1 */
    queue(client, plain, 0, 200, 2); /* 201: third and first */
    queue(second, theirs, 0, 201, 1);
    queue(second, theirs, 0, 300, 1);
    queue(second, theirs, 0, 100, 1);
    for (uint64_t key = 100; key < 300; key += 101) {
        struct spw_decision decision = api_lookup(client, api_request(plain, key, 1));
        cr_expect_eq(decision.reason, SPW_REASON_PENDING);
        cr_expect(decision.eta_ns > 100 * MS && decision.eta_ns <= 128 * MS, "%lu: %lu",
                  (unsigned long)key, (unsigned long)decision.eta_ns);
    }
    spw_detach(second);
    wait_close();
}

Test(waiting_more, a_tail_is_there_when_the_last_of_its_objects_is)
{
    const struct rig_config paced = {.workers = 1, .capacity = 16, PACE};
    open_hybrid(&paced);
    struct spw_completion store = pend_tail(700);
    run_tail(&store);
    rig_settle(&api.rig);
    until_stored(0, 2);
    reap_all(client);
    store = pend_tail(701);
    run_tail(&store);
    rig_settle(&api.rig);
    struct spw_decision decision = api_lookup(client, with_tail(701));
    cr_expect_eq(decision.reason, SPW_REASON_TAIL_PENDING);
    cr_expect(decision.eta_ns > 100 * MS && decision.eta_ns <= 128 * MS, "%lu",
              (unsigned long)decision.eta_ns);
    wait_close();
}
