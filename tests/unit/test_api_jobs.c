/* Jobs through the installed API: two halves, cancelling in every state, late answers, workers
 * that die, pins, and chunks being loaded for somebody else. */
#include "sched/handle.h"
#include "tests/support/api_rig.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

TestSuite(api_jobs, .timeout = 25);

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
/* copies take a tenth of a second each */
static const struct rig_config slow_worker = {
    .workers = 1,
    .capacity = 8,
    .copier = {.rate_bytes = {20 * RIG_BLOCK_BYTES, 20 * RIG_BLOCK_BYTES}, .in_flight = {1, 1}}};

static void wait_for_copies(void)
{
    for (uint32_t i = 0; i < 10; i++) {
        rig_advance(&api.rig, RIG_SECOND / 10);
        rig_settle(&api.rig);
    }
}

/* Begin loading chunks [0, count) of the request in a step of its own; the answer isn't reaped. */
static void begin_of(struct spw_client *by, struct spw_request *request, uint32_t count)
{
    struct spw_decision decision = {.size_bytes = sizeof(decision)};
    struct spw_chunk_ref ref[8];
    cr_assert_geq(spw_step_begin(by), 0);
    cr_assert_eq(spw_lookup(request, 0, 0, &decision), 0);
    cr_assert_eq(decision.action, SPW_ACTION_LOAD, "reason %u", decision.reason);
    cr_assert_geq(spw_decision_chunks(&decision, 0, ref, 8), (int)count);
    cr_assert_eq(spw_load_begin(request, &decision, 0, ref, count, 31), (int)count);
    cr_assert_eq(spw_step_end(by), 0);
}

static uint32_t pins_of(const struct spw_client *of)
{
    uint32_t pins = 0;
    for (uint64_t w = 0; w < of->workers * of->own->claim_words; w++)
        pins += (uint32_t)__builtin_popcountll(spw_load_relaxed(&of->own->pin[w]));
    return pins;
}

/* Nothing is held for anybody: what this client's book, the workers and the table have open. */
static void assert_nothing_open(void)
{
    struct spw_completion done[8];
    wait_for_copies();
    while (spw_completions(client, done, 8) > 0)
        ;
    rig_settle(&api.rig);
    cr_expect(spw_list_empty(&client->book.busy) && spw_list_empty(&client->book.handed));
    cr_expect_eq(client->book.loading.tags, 0);
    cr_expect_eq(pins_of(client), 0);
    cr_expect_eq(rig_claims(&api.rig, 0), 0);
    cr_expect_eq(rig_open_chunks(&api.rig, 0), 0);
    cr_expect_eq(rig_slots_in(&api.rig, 0, SPW_FILLING), 0);
}

/* ---- two halves ------------------------------------------------------------------------------ */

Test(api_jobs, halves_may_be_sent_by_two_clients)
{
    struct spw_completion done;
    open_pool(&one_worker, 1);
    struct spw_client *rank = api_attach(&api, 0); /* has no space and makes no step */
    struct spw_request *request = api_request(space, 100, 2);
    done = api_reserve(&api, request, client, 0, 0, 2);
    for (uint32_t i = 0; i < 4; i++)
        api_fill(rank, i, 100 + i / 2, 0);
    cr_assert_eq(api_run(rank, &done.ticket, 0, 77), 0);
    done = api_complete(&api, rank);
    cr_expect_eq(done.kind, SPW_COMPLETION_STORED);
    cr_expect_eq(done.cookie, 77);
    cr_expect_eq(done.status, 0);
    begin_of(client, request, 2);
    done = api_complete(&api, client);
    cr_assert_eq(done.kind, SPW_COMPLETION_BEGUN);
    cr_assert_eq(api_run(rank, &done.ticket, 20, 78), 0);
    done = api_complete(&api, rank);
    cr_expect_eq(done.kind, SPW_COMPLETION_LOADED);
    for (uint32_t i = 0; i < 4; i++)
        cr_expect(api_filled(rank, 20 + i, 100 + i / 2, 0));
    cr_expect_eq(spw_completions(client, &done, 1), 0, "its end is told to who ran it");
    cr_expect_eq(api_lookup(client, request).action, SPW_ACTION_LOAD, "no transfer is running");
    spw_detach(rank);
    spw_request_finish(request);
    assert_nothing_open();
    close_pool();
}

Test(api_jobs, a_reserve_says_which_chunks_are_new)
{
    open_pool(&one_worker, 1);
    api_store(&api, client, space, 1, 101, 1);
    struct spw_request *request = api_request(space, 100, 3);
    struct spw_completion done = api_reserve(&api, request, client, 0, 0, 3);
    cr_expect_eq(done.mask, 5);
    cr_expect_eq(done.ticket.chunks, 3);
    cr_assert_eq(api_run(client, &done.ticket, 0, 1), 0);
    cr_expect_eq(api_complete(&api, client).mask, 0);
    done = api_reserve(&api, request, client, 0, 0, 3);
    cr_expect_eq(done.status, 0);
    cr_expect_eq(done.mask, 0);
    cr_expect_eq(done.ticket.id, 0, "all are there: nothing to run");
    assert_nothing_open();
    close_pool();
}

Test(api_jobs, a_full_shard_accepts_a_prefix)
{
    const struct rig_config config = {.workers = 1, .capacity = 2};
    open_pool(&config, 1);
    struct spw_request *request = api_request(space, 100, 4);
    struct spw_completion done = api_reserve(&api, request, client, 0, 0, 4);
    cr_expect_eq(done.status, -ENOSPC);
    cr_expect_eq(done.ticket.chunks, 2);
    cr_expect_eq(done.mask, 3);
    spw_request_finish(request);
    assert_nothing_open();
    close_pool();
}

Test(api_jobs, one_chunk_that_fails_does_not_fail_the_others)
{
    const struct rig_config config = {
        .workers = 1,
        .capacity = 8,
        .copier = {.faults = {.fail_every = {3, 0}, .fail_status = -EIO}}};
    open_pool(&config, 1);
    struct spw_request *request = api_request(space, 100, 5);
    struct spw_completion done = api_reserve(&api, request, client, 0, 0, 5);
    cr_assert_eq(api_run(client, &done.ticket, 0, 1), 0);
    done = api_complete(&api, client);
    cr_expect_eq(done.status, -EIO);
    cr_expect_eq(done.mask, 4);
    uint8_t verdict[5];
    cr_assert_geq(spw_step_begin(client), 0);
    cr_assert_eq(spw_request_probe(request, 0, 0, 5, verdict), 0);
    cr_assert_eq(spw_step_end(client), 0);
    for (uint32_t i = 0; i < 5; i++)
        cr_expect_eq(verdict[i], i == 2 ? SPW_MISS : SPW_HIT);
    assert_nothing_open();
    close_pool();
}

Test(api_jobs, a_run_that_makes_no_sense_is_refused)
{
    struct spw_completion done;
    uint32_t block[4] = {0, 1, 2, 3};
    open_pool(&one_worker, 1);
    struct spw_request *request = api_request(space, 100, 2);
    done = api_reserve(&api, request, client, 0, 0, 2);
    struct spw_ticket ticket = done.ticket;
    cr_expect_eq(spw_run(client, &ticket, block, 3, 1), -EINVAL);
    ticket.worker = 9;
    cr_expect_eq(spw_run(client, &ticket, block, 4, 1), -EINVAL);
    ticket = done.ticket;
    ticket.incarnation++;
    cr_expect_eq(spw_run(client, &ticket, block, 4, 1), -EOWNERDEAD);
    ticket = done.ticket;
    ticket.id += 1;
    cr_expect_eq(spw_run(client, &ticket, block, 4, 5), 0);
    done = api_complete(&api, client);
    cr_expect(done.status == -ENOENT && done.cookie == 5, "nobody knows this ticket");
    block[0] = RIG_BLOCKS;
    ticket.id -= 1;
    cr_expect_eq(spw_run(client, &ticket, block, 4, 6), 0);
    cr_expect_eq(api_complete(&api, client).status, -EINVAL, "no such block");
    spw_request_finish(request);
    close_pool();
}

Test(api_jobs, references_to_what_is_not_there_are_refused)
{
    struct spw_decision decision = {.size_bytes = sizeof(decision)};
    struct spw_chunk_ref ref = {.index = 2};
    open_pool(&one_worker, 1);
    api_store(&api, client, space, 1, 100, 1);
    struct spw_request *request = api_request(space, 100, 2);
    cr_expect_eq(spw_store_reserve(request, 0, &ref, 1, 1), -EINVAL);
    ref = (struct spw_chunk_ref){.group = 1};
    cr_expect_eq(spw_store_reserve(request, 0, &ref, 1, 1), -EINVAL);
    ref = (struct spw_chunk_ref){.index = SPW_CHUNK_TAIL, .boundary = 8};
    cr_expect_eq(spw_store_reserve(request, 0, &ref, 1, 1), -EINVAL);
    ref = (struct spw_chunk_ref){.index = 1};
    cr_expect_eq(spw_store_reserve(request, 1, &ref, 1, 1), -EINVAL, "no such rank");
    cr_assert_geq(spw_step_begin(client), 0);
    cr_assert_eq(spw_lookup(request, 0, 0, &decision), 0);
    cr_expect_eq(spw_load_begin(request, &decision, 0, &ref, 1, 1), -EINVAL, "not needed");
    decision.action = SPW_ACTION_MISS;
    ref.index = 0;
    cr_expect_eq(spw_load_begin(request, &decision, 0, &ref, 1, 1), -EINVAL);
    cr_assert_eq(spw_step_end(client), 0);
    close_pool();
}

Test(api_jobs, a_full_lane_and_a_full_book_say_so_and_lose_nothing)
{
    const struct rig_config config = {.workers = 1, .capacity = 8, .command_slots = 8};
    open_pool(&config, 1);
    struct spw_request *request = api_request(space, 100, 4);
    struct spw_chunk_ref ref[4] = {{.index = 0}, {.index = 1}, {.index = 2}, {.index = 3}};
    cr_expect_eq(spw_store_reserve(request, 0, ref, 4, 1), 3, "seven slots of key in eight");
    cr_expect_eq(spw_store_reserve(request, 0, ref, 1, 1), -EAGAIN);
    cr_expect_eq(api_counter(client, "lanes_full"), 1);
    struct spw_completion done = api_complete(&api, client);
    cr_expect_eq(done.ticket.chunks, 3);
    cr_expect_eq(spw_store_reserve(request, 0, ref + 3, 1, 1), 1);
    api_complete(&api, client);
    spw_request_finish(request);
    assert_nothing_open();
    close_pool();
}

Test(api_jobs, more_jobs_than_the_book_has_room_for_are_refused)
{
    const struct rig_config config = {.workers = 1, .capacity = 8, .command_slots = 4096};
    struct spw_completion done[64];
    open_pool(&config, 1);
    struct spw_request *request = api_request(space, 100, 1);
    struct spw_chunk_ref ref = {.index = 0};
    uint32_t asked = 0;
    int rc;
    while ((rc = spw_store_reserve(request, 0, &ref, 1, 1)) == 1)
        asked++;
    cr_expect_eq(rc, -EBUSY, "%d after %u", rc, asked);
    cr_expect_eq(asked, client->book.jobs);
    cr_expect_eq(api_counter(client, "jobs_full"), 1);
    uint32_t answered = 0;
    for (uint32_t i = 0; i < 2000 && answered < asked; i++) {
        rig_settle(&api.rig);
        answered += (uint32_t)spw_completions(client, done, 64);
    }
    cr_expect_eq(answered, asked);
    cr_expect_eq(spw_store_reserve(request, 0, &ref, 1, 1), 1);
    api_complete(&api, client);
    spw_request_finish(request);
    assert_nothing_open();
    close_pool();
}

/* ---- cancelling ------------------------------------------------------------------------------ */

/* LC-5: twice in each state; what it held is given back, others are untouched. */
Test(api_jobs, a_request_can_be_cancelled_in_every_state)
{
    static const char *const state[] = {"never started",  "waiting",         "begun",
                                        "load in flight", "store in flight", "finished"};
    for (uint32_t s = 0; s < 6; s++) {
        open_pool(&slow_worker, 1);
        struct spw_request *stored = api_request(space, 100, 2);
        struct spw_completion done = api_reserve(&api, stored, client, 0, 0, 2);
        cr_assert_eq(api_run(client, &done.ticket, 0, 1), 0);
        wait_for_copies();
        api_complete(&api, client);
        struct spw_request *request = api_request(space, s == 4 ? 200 : 100, s == 1 ? 3 : 2);
        struct spw_request *other = api_request(space, 102, 1);
        done = api_reserve(&api, other, client, 0, 0, 1);
        struct spw_ticket others = done.ticket;
        if (s == 1)
            cr_expect_eq(api_lookup(client, request).action, SPW_ACTION_DEFER);
        if (s == 2)
            begin_of(client, request, 2); /* its answer is still to come */
        if (s == 3 || s == 5) {
            begin_of(client, request, 2);
            done = api_complete(&api, client);
            cr_assert_eq(api_run(client, &done.ticket, 50, 9), 0);
            rig_settle(&api.rig);
        }
        if (s == 4) {
            done = api_reserve(&api, request, client, 0, 0, 2);
            cr_assert_eq(api_run(client, &done.ticket, 0, 9), 0);
            rig_settle(&api.rig);
        }
        if (s == 5) {
            wait_for_copies();
            api_complete(&api, client);
        }
        cr_expect_eq(spw_request_cancel(request), 0, "%s", state[s]);
        cr_expect_eq(spw_request_cancel(request), 0, "%s", state[s]);
        cr_expect_eq(api_lookup(client, request).reason == SPW_REASON_TRANSFER, false,
                     "%s: it can be used again", state[s]);
        cr_assert_eq(api_run(client, &others, 0, 4), 0);
        wait_for_copies();
        struct spw_completion all[4];
        int n = spw_completions(client, all, 4), own = 0, ours = 0;
        for (int i = 0; i < n; i++) {
            ours += all[i].cookie == 4 && all[i].status == 0;
            own += all[i].cookie == 9;
        }
        cr_expect_eq(ours, 1, "%s: others go on", state[s]);
        cr_expect_eq(own, s == 3 || s == 4, "%s: a run completes once", state[s]);
        cr_expect_eq(n, own + ours, "%s", state[s]);
        assert_nothing_open();
        close_pool();
    }
}

/* LC-6 */
Test(api_jobs, an_answer_that_comes_late_is_counted_and_dropped)
{
    struct spw_completion done;
    open_pool(&one_worker, 1);
    api_store(&api, client, space, 1, 100, 2);
    struct spw_request *request = api_request(space, 100, 2);
    begin_of(client, request, 2);
    spw_request_finish(request);
    struct spw_request *again = api_request(space, 100, 2);
    rig_settle(&api.rig); /* the answer to the old begin is there by now */
    cr_expect_eq(spw_completions(client, &done, 1), 0);
    cr_expect_eq(api_counter(client, "late_completions"), 1);
    begin_of(client, again, 2);
    done = api_complete(&api, client);
    cr_expect_eq(done.kind, SPW_COMPLETION_BEGUN);
    cr_assert_eq(api_run(client, &done.ticket, 50, 1), 0);
    cr_expect_eq(api_complete(&api, client).status, 0);
    for (uint32_t i = 0; i < 4; i++)
        cr_expect(api_filled(client, 50 + i, 100 + i / 2, 0));
    assert_nothing_open();
    close_pool();
}

Test(api_jobs, a_ticket_can_be_cancelled_any_number_of_times)
{
    open_pool(&one_worker, 1);
    struct spw_request *request = api_request(space, 100, 2);
    struct spw_completion done = api_reserve(&api, request, client, 0, 0, 2);
    cr_expect_eq(spw_cancel(client, &done.ticket), 0);
    cr_expect_eq(spw_cancel(client, &done.ticket), 0);
    cr_expect_eq(api_counter(client, "double_releases"), 1);
    cr_expect_eq(api_counter(client, "cancels"), 1);
    struct spw_ticket none = {0};
    cr_expect_eq(spw_cancel(client, &none), 0);
    assert_nothing_open();
    close_pool();
}

Test(api_jobs, a_queued_run_that_is_cancelled_completes_once_as_such)
{
    open_pool(&slow_worker, 1);
    struct spw_request *request = api_request(space, 100, 3);
    struct spw_completion done = api_reserve(&api, request, client, 0, 0, 3);
    cr_assert_eq(api_run(client, &done.ticket, 0, 6), 0);
    rig_settle(&api.rig);
    cr_expect_eq(spw_cancel(client, &done.ticket), 0);
    wait_for_copies();
    done = api_complete(&api, client);
    cr_expect_eq(done.status, -ECANCELED);
    cr_expect_eq(done.cookie, 6);
    cr_expect_eq(done.mask, 6, "the first one was copying: it ended as usual");
    assert_nothing_open();
    close_pool();
}

/* ---- pins and claims (CE-2) ------------------------------------------------------------------ */

Test(api_jobs, lookups_without_loads_hold_nothing)
{
    open_pool(&one_worker, 1);
    api_store(&api, client, space, 1, 100, 8);
    struct spw_request *request = api_request(space, 100, 8);
    for (uint32_t i = 0; i < 1000; i++)
        cr_assert_eq(api_lookup(client, request).action, SPW_ACTION_LOAD);
    rig_settle(&api.rig);
    api_store(&api, client, space, 1, 200, 8);
    cr_expect_eq(rig_slots_in(&api.rig, 0, SPW_READY), 8, "all eight could be evicted");
    close_pool();
}

Test(api_jobs, one_clients_release_leaves_the_others_claim)
{
    const struct rig_config config = {.workers = 1, .capacity = 2};
    struct spw_completion one, two;
    open_pool(&config, 1);
    struct spw_client *other = api_attach(&api, 0);
    struct spw_space *others = api_space(&api, other, &space_config);
    api_store(&api, client, space, 1, 100, 1);
    struct spw_request *mine = api_request(space, 100, 1), *theirs = api_request(others, 100, 1);
    begin_of(client, mine, 1);
    begin_of(other, theirs, 1);
    one = api_complete(&api, client);
    two = api_complete(&api, other);
    cr_expect_eq(spw_cancel(client, &one.ticket), 0);
    cr_expect_eq(spw_cancel(client, &one.ticket), 0);
    cr_expect_eq(api_counter(client, "double_releases"), 1);
    for (uint64_t n = 0; n < 6; n++) { /* others' stores push it out of the cache */
        struct spw_request *request = api_request(space, 500 + n, 1);
        struct spw_completion done = api_reserve(&api, request, client, 0, 0, 1);
        if (done.ticket.id != 0) {
            cr_assert_eq(api_run(client, &done.ticket, 9, 1), 0);
            api_complete(&api, client);
        }
    }
    cr_assert_eq(api_run(other, &two.ticket, 60, 3), 0);
    cr_expect_eq(api_complete(&api, other).status, 0);
    cr_expect(api_filled(other, 60, 100, 0), "the right bytes, whatever came in between");
    spw_detach(other);
    assert_nothing_open();
    close_pool();
}

Test(api_jobs, a_pin_stands_until_the_worker_has_taken_the_load)
{
    struct spw_completion done;
    open_pool(&one_worker, 1);
    api_store(&api, client, space, 1, 100, 2);
    struct spw_request *request = api_request(space, 100, 2);
    begin_of(client, request, 2);
    cr_expect_eq(pins_of(client), 2);
    cr_expect_eq(spw_completions(client, &done, 1), 0);
    cr_expect_eq(pins_of(client), 2, "it isn't taken yet");
    rig_settle(&api.rig);
    cr_expect_eq(rig_claims(&api.rig, 0), 2);
    cr_assert_eq(spw_completions(client, &done, 1), 1);
    cr_expect_eq(pins_of(client), 0);
    spw_request_finish(request);
    assert_nothing_open();
    close_pool();
}

/* ---- workers that die ------------------------------------------------------------------------ */

Test(api_jobs, jobs_of_a_worker_that_died_end_once_when_it_is_reaped)
{
    struct spw_completion done[8];
    open_pool(&slow_worker, 1);
    struct spw_request *request = api_request(space, 100, 4);
    struct spw_completion run = api_reserve(&api, request, client, 0, 0, 2);
    cr_assert_eq(api_run(client, &run.ticket, 0, 5), 0);
    rig_settle(&api.rig); /* in copy */
    struct spw_completion handed = api_reserve(&api, request, client, 0, 2, 1);
    struct spw_chunk_ref ref = {.index = 3};
    cr_assert_eq(spw_store_reserve(request, 0, &ref, 1, 6), 1); /* not taken */
    api_say(&api, 0, SPW_WORKER_DOWN);
    rig_end_worker(&api.rig, 0);
    cr_expect_eq(spw_completions(client, done, 8), 0, "its transfers may still run");
    api_say(&api, 0, SPW_WORKER_REAPED);
    cr_assert_eq(spw_completions(client, done, 8), 2);
    for (uint32_t i = 0; i < 2; i++) {
        bool store = done[i].kind == SPW_COMPLETION_STORED;
        cr_expect_eq(done[i].status, -EOWNERDEAD);
        cr_expect_eq(done[i].cookie, store ? 5 : 6);
        cr_expect_eq(done[i].mask, store ? UINT64_MAX : 0, "no chunk of a run is known to be well");
        cr_expect(store || (done[i].kind == SPW_COMPLETION_RESERVED && done[i].ticket.id == 0));
    }
    cr_expect_eq(spw_completions(client, done, 8), 0);
    cr_expect_eq(api_run(client, &handed.ticket, 0, 1), -EOWNERDEAD);
    api_restart_worker(&api, 0);
    cr_expect_eq(api_run(client, &handed.ticket, 0, 1), -EOWNERDEAD, "another incarnation's");
    cr_expect_eq(spw_completions(client, done, 8), 0);
    run = api_reserve(&api, request, client, 0, 0, 2);
    cr_expect(run.status == 0 && run.mask == 3, "what was being stored is gone");
    spw_request_finish(request);
    rig_settle(&api.rig);
    cr_expect(spw_list_empty(&client->book.busy) && spw_list_empty(&client->book.handed));
    cr_expect_eq(rig_slots_in(&api.rig, 0, SPW_FILLING), 0);
    close_pool();
}

Test(api_jobs, what_the_dead_had_answered_is_told_before_its_jobs_end)
{
    struct spw_completion done[2];
    open_pool(&one_worker, 1);
    struct spw_request *request = api_request(space, 100, 2);
    done[0] = api_reserve(&api, request, client, 0, 0, 2);
    cr_assert_eq(api_run(client, &done[0].ticket, 0, 5), 0);
    rig_settle(&api.rig); /* completed, not reaped */
    api_kill_worker(&api, 0);
    cr_assert_eq(spw_completions(client, done, 2), 1);
    cr_expect_eq(done[0].status, 0);
    cr_expect_eq(spw_completions(client, done, 2), 0);
    close_pool();
}

Test(api_jobs, hits_stay_over_a_restart_of_their_worker)
{
    open_pool(&one_worker, 1);
    api_store(&api, client, space, 1, 100, 2);
    struct spw_request *request = api_request(space, 100, 2);
    cr_expect_eq(api_lookup(client, request).action, SPW_ACTION_LOAD);
    api_kill_worker(&api, 0);
    cr_expect_eq(api_lookup(client, request).action, SPW_ACTION_MISS, "no copier");
    api_restart_worker(&api, 0);
    cr_expect_eq(api_lookup(client, request).hit_tokens, 32);
    begin_of(client, request, 2);
    struct spw_completion done = api_complete(&api, client);
    cr_assert_eq(api_run(client, &done.ticket, 50, 1), 0);
    cr_expect_eq(api_complete(&api, client).status, 0);
    for (uint32_t i = 0; i < 4; i++)
        cr_expect(api_filled(client, 50 + i, 100 + i / 2, 0));
    close_pool();
}

/* ---- chunks being loaded --------------------------------------------------------------------- */

Test(api_jobs, a_chunk_being_loaded_for_another_request_makes_this_one_wait)
{
    open_pool(&slow_worker, 1);
    space_config.gpu_prefix_cache = 1;
    struct spw_space *caching = api_space(&api, client, &space_config);
    struct spw_request *stored = api_request(caching, 100, 2);
    struct spw_completion done = api_reserve(&api, stored, client, 0, 0, 2);
    cr_assert_eq(api_run(client, &done.ticket, 0, 1), 0);
    wait_for_copies();
    api_complete(&api, client);
    struct spw_request *first = api_request(caching, 100, 2);
    struct spw_request *second = api_request(caching, 100, 2);
    begin_of(client, first, 2);
    done = api_complete(&api, client);
    struct spw_decision decision = api_lookup(client, second);
    cr_expect_eq(decision.action, SPW_ACTION_DEFER);
    cr_expect_eq(decision.reason, SPW_REASON_LOADING);
    cr_expect_eq(decision.deciding_chunk, 0);
    cr_assert_eq(api_run(client, &done.ticket, 50, 1), 0);
    rig_settle(&api.rig);
    cr_expect_eq(api_lookup(client, second).repeated, 1);
    cr_expect_eq(api_lookup(client, first).reason, SPW_REASON_TRANSFER, "its own");
    wait_for_copies();
    api_complete(&api, client);
    cr_expect_eq(api_lookup(client, second).action, SPW_ACTION_LOAD);
    assert_nothing_open();
    close_pool();
}

Test(api_jobs, a_load_handed_to_another_process_is_over_when_the_caller_says_so)
{
    struct spw_decision decision = {.size_bytes = sizeof(decision)};
    open_pool(&one_worker, 1);
    space_config.gpu_prefix_cache = 1;
    struct spw_space *caching = api_space(&api, client, &space_config);
    api_store(&api, client, caching, 1, 100, 2);
    struct spw_request *first = api_request(caching, 100, 2);
    struct spw_request *second = api_request(caching, 100, 2);
    begin_of(client, first, 2);
    api_complete(&api, client);
    cr_assert_geq(spw_step_begin(client), 0);
    cr_assert_eq(spw_lookup(first, 0, 1, &decision), 0);
    cr_expect_eq(decision.reason, SPW_REASON_TRANSFER);
    cr_assert_eq(spw_lookup(second, 0, 0, &decision), 0);
    cr_expect_eq(decision.reason, SPW_REASON_LOADING);
    cr_assert_eq(spw_lookup(first, 0, 0, &decision), 0);
    cr_expect_eq(decision.action, SPW_ACTION_LOAD);
    cr_assert_eq(spw_lookup(second, 0, 0, &decision), 0);
    cr_expect_eq(decision.action, SPW_ACTION_LOAD);
    cr_assert_eq(spw_step_end(client), 0);
    close_pool();
}
