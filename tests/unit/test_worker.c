/* tier/worker: stores and loads in two halves, driven pass by pass on a clock of the test's. */
#include "tests/support/worker_rig.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

TestSuite(worker, .timeout = 30);

static struct rig rig;
static struct rig_client one, two;

static void fill_blocks(struct rig_client *client, uint32_t first, uint32_t count, int byte)
{
    memset(client->pool.kv[client->c] + first * RIG_BLOCK_BYTES, byte, count * RIG_BLOCK_BYTES);
}

static int block_byte(const struct rig_client *client, uint32_t block, uint32_t at)
{
    return client->pool.kv[client->c][block * RIG_BLOCK_BYTES + at];
}

/* What a quiet worker must not have kept. */
static void expect_quiet(uint32_t k)
{
    rig_settle(&rig);
    cr_expect(rig_open_chunks(&rig, k) == 0, "%d chunks open", (int)rig_open_chunks(&rig, k));
    cr_expect(rig_slots_in(&rig, k, SPW_FILLING) == 0);
    cr_expect(rig_claims(&rig, k) == 0);
    cr_expect(spw_load_relaxed(&rig.daemon.feed[k]->stream.bytes_done) ==
              spw_load_relaxed(&rig.daemon.feed[k]->stream.bytes_queued));
}

static struct spw_done reserve(struct rig_client *client, uint64_t first, uint32_t count)
{
    cr_assert(rig_reserve(&rig, client, 0, first, count));
    return rig_answer(&rig, client, 0);
}

static struct spw_done run_store(struct rig_client *client, uint64_t ticket, uint32_t count)
{
    cr_assert(rig_run(&rig, client, 0, SPW_CMD_STORE, ticket, count, 0));
    return rig_answer(&rig, client, 0);
}

static struct spw_done begin(struct rig_client *client, uint64_t first, uint32_t count)
{
    cr_assert(rig_begin(&rig, client, 0, 0, first, count));
    return rig_answer(&rig, client, 0);
}

/* ---- both ways ------------------------------------------------------------------------------ */

Test(worker, a_store_and_a_load_carry_the_bytes)
{
    rig_open(&rig, &(struct rig_config){.capacity = 8});
    rig_attach(&rig, &one);
    for (uint32_t i = 0; i < 6; i++)
        fill_blocks(&one, i, 1, 'a' + (int)i);
    struct spw_done done = reserve(&one, 10, 3);
    cr_expect(done.kind == SPW_DONE_RESERVE && done.count == 3 && done.mask == 7);
    cr_expect(done.status == 0 && done.ticket != 0);
    for (uint64_t i = 10; i < 13; i++)
        cr_expect(rig_state(&rig, 0, i, NULL) == SPW_FILLING, "pending from the reserve on");

    done = run_store(&one, done.ticket, 3);
    cr_expect(done.kind == SPW_DONE_STORE && done.status == 0 && done.mask == 0);
    for (uint64_t i = 10; i < 13; i++)
        cr_expect(rig_state(&rig, 0, i, NULL) == SPW_READY);

    done = begin(&one, 10, 3);
    cr_expect(done.kind == SPW_DONE_BEGIN && done.count == 3 && done.status == 0);
    cr_expect(rig_claims(&rig, 0) == 3);
    cr_assert(rig_run(&rig, &one, 0, SPW_CMD_LOAD, done.ticket, 3, 20));
    done = rig_answer(&rig, &one, 0);
    cr_expect(done.kind == SPW_DONE_LOAD && done.status == 0 && done.mask == 0);
    for (uint32_t i = 0; i < 6; i++)
        cr_expect(block_byte(&one, 20 + i, 0) == 'a' + (int)i &&
                  block_byte(&one, 20 + i, 63) == 'a' + (int)i);
    expect_quiet(0);
    cr_expect(rig_count(&rig, 0, SPW_WORKER_chunks_stored) == 3);
    cr_expect(rig_count(&rig, 0, SPW_WORKER_bytes_stored) == 3 * 128);
    cr_expect(rig_count(&rig, 0, SPW_WORKER_chunks_loaded) == 3);
    cr_expect(rig_count(&rig, 0, SPW_WORKER_bytes_loaded) == 3 * 128);
    rig_close(&rig);
}

Test(worker, ready_only_after_the_copy_has_ended)
{
    rig_open(&rig, &(struct rig_config){.copier.rate_bytes = {1000, 0}});
    rig_attach(&rig, &one);
    struct spw_done done = reserve(&one, 1, 2);
    uint64_t ticket = done.ticket;
    cr_assert(rig_run(&rig, &one, 0, SPW_CMD_STORE, ticket, 2, 0));
    rig_settle(&rig);
    rig_advance(&rig, RIG_SECOND - 1);
    rig_settle(&rig);
    cr_expect(rig_state(&rig, 0, 1, NULL) == SPW_FILLING);
    rig_advance(&rig, 1);
    rig_settle(&rig);
    cr_expect(rig_state(&rig, 0, 1, NULL) == SPW_READY, "chunk by chunk");
    cr_expect(rig_state(&rig, 0, 2, NULL) == SPW_FILLING);
    cr_expect(!rig_reap(&one, 0, &done), "one completion for the whole run");
    rig_advance(&rig, RIG_SECOND);
    done = rig_answer(&rig, &one, 0);
    cr_expect(done.mask == 0 && done.ticket == ticket);
    rig_close(&rig);
}

Test(worker, the_two_halves_may_come_from_two_processes)
{
    rig_open(&rig, &(struct rig_config){.workers = 2});
    rig_attach(&rig, &one);
    rig_attach(&rig, &two);
    fill_blocks(&one, 0, 4, 'x');
    fill_blocks(&two, 0, 4, 'y');
    struct spw_done done = reserve(&one, 1, 2);
    done = run_store(&two, done.ticket, 2);
    cr_expect(done.kind == SPW_DONE_STORE && done.status == 0);
    cr_expect(!rig_reap(&one, 0, &done), "the completion goes to whoever ran it");
    cr_assert(rig_begin(&rig, &two, 1, 0, 1, 2), "worker 1 copies out of shard 0");
    done = rig_answer(&rig, &two, 1);
    cr_expect(done.count == 2);
    cr_assert(rig_run(&rig, &one, 1, SPW_CMD_LOAD, done.ticket, 2, 10));
    done = rig_answer(&rig, &one, 1);
    cr_expect(done.status == 0 && block_byte(&one, 10, 0) == 'y' &&
              block_byte(&one, 13, 63) == 'y');
    expect_quiet(0);
    expect_quiet(1);
    rig_close(&rig);
}

Test(worker, loads_overtake_stores)
{
    rig_open(&rig,
             &(struct rig_config){.copier = {.rate_bytes = {1000, 1000}, .in_flight = {1, 1}}});
    rig_attach(&rig, &one);
    rig_attach(&rig, &two);
    rig_store(&rig, &one, 0, 1, 1);
    struct spw_done done = reserve(&one, 10, 5);
    cr_assert(rig_run(&rig, &one, 0, SPW_CMD_STORE, done.ticket, 5, 0));
    rig_settle(&rig);
    done = begin(&two, 1, 1);
    cr_assert(rig_run(&rig, &two, 0, SPW_CMD_LOAD, done.ticket, 1, 0));
    rig_settle(&rig);
    rig_advance(&rig, RIG_SECOND);
    done = rig_answer(&rig, &two, 0);
    cr_expect(done.kind == SPW_DONE_LOAD && done.status == 0);
    cr_expect(rig_slots_in(&rig, 0, SPW_FILLING) == 4);
    rig_close(&rig);
}

/* ---- reserve -------------------------------------------------------------------------------- */

Test(worker, a_chunk_that_is_there_is_accepted_without_a_slot)
{
    rig_open(&rig, &(struct rig_config){.capacity = 8});
    rig_attach(&rig, &one);
    rig_store(&rig, &one, 0, 2, 1);
    struct spw_done done = reserve(&one, 1, 3);
    cr_expect(done.count == 3 && done.mask == 5);
    struct spw_done again = reserve(&one, 1, 3);
    cr_expect(again.count == 3 && again.mask == 0 && again.ticket == 0, "all pending or ready");
    cr_assert(rig_run(&rig, &one, 0, SPW_CMD_STORE, done.ticket, 3, 0));
    done = rig_answer(&rig, &one, 0);
    cr_expect(done.status == 0);
    cr_expect(rig_count(&rig, 0, SPW_WORKER_chunks_present) == 4);
    expect_quiet(0);
    rig_close(&rig);
}

Test(worker, the_accepted_prefix_ends_where_no_slot_is_to_be_had)
{
    rig_open(&rig, &(struct rig_config){.capacity = 3});
    rig_attach(&rig, &one);
    struct spw_done done = reserve(&one, 1, 5);
    cr_expect(done.count == 3 && done.mask == 7 && done.status == -ENOSPC);
    cr_expect(rig_count(&rig, 0, SPW_WORKER_refused_no_slot) == 2);
    struct spw_done none = reserve(&one, 20, 2);
    cr_expect(none.count == 0 && none.status == -ENOSPC && none.ticket == 0);
    cr_expect(run_store(&one, done.ticket, 3).status == 0);
    expect_quiet(0);
    rig_close(&rig);
}

Test(worker, chunks_of_a_call_are_not_evicted_for_its_later_ones)
{
    rig_open(&rig, &(struct rig_config){.capacity = 3});
    rig_attach(&rig, &one);
    rig_store(&rig, &one, 0, 1, 3);
    struct spw_done done = reserve(&one, 2, 4); /* 2 and 3 are there, 4 and 5 are not */
    cr_expect(done.count == 3 && done.mask == 4 && done.status == -ENOSPC);
    cr_expect(rig_state(&rig, 0, 2, NULL) == SPW_READY);
    cr_expect(rig_state(&rig, 0, 3, NULL) == SPW_READY);
    cr_expect(rig_state(&rig, 0, 1, NULL) != SPW_READY, "the one outside the call went");
    rig_close(&rig);
}

Test(worker, a_full_queue_is_a_definite_busy)
{
    rig_open(&rig, &(struct rig_config){.capacity = 8, .queue_chunks = 3});
    rig_attach(&rig, &one);
    struct spw_done done = reserve(&one, 1, 2);
    struct spw_done more = reserve(&one, 10, 3);
    cr_expect(done.count == 2 && more.count == 1 && more.status == -EBUSY);
    struct spw_done none = reserve(&one, 20, 1);
    cr_expect(none.count == 0 && none.status == -EBUSY && none.ticket == 0);
    cr_expect(rig_count(&rig, 0, SPW_WORKER_refused_queue_full) == 3);
    cr_expect(run_store(&one, done.ticket, 2).status == 0);
    cr_expect(reserve(&one, 20, 1).count == 1, "room again");
    rig_close(&rig);
}

Test(worker, open_jobs_of_a_client_are_bounded)
{
    rig_open(&rig, &(struct rig_config){.capacity = 8, .client_jobs_max = 2});
    rig_attach(&rig, &one);
    rig_attach(&rig, &two);
    struct spw_done done = reserve(&one, 1, 1);
    reserve(&one, 2, 1);
    cr_expect(reserve(&one, 3, 1).status == -EBUSY);
    cr_expect(reserve(&two, 3, 1).status == 0, "others have their own bound");
    run_store(&one, done.ticket, 1);
    cr_expect(reserve(&one, 4, 1).status == 0);
    cr_expect(begin(&one, 1, 1).status == -EBUSY);
    rig_close(&rig);
}

/* ---- limits --------------------------------------------------------------------------------- */

Test(worker, a_reserve_without_its_run_expires)
{
    rig_open(&rig, &(struct rig_config){.capacity = 2});
    rig_attach(&rig, &one);
    struct spw_done done = reserve(&one, 1, 2);
    rig_advance(&rig, 2 * RIG_SECOND - 1);
    rig_settle(&rig);
    cr_expect(rig_state(&rig, 0, 1, NULL) == SPW_FILLING);
    rig_advance(&rig, 1);
    rig_settle(&rig);
    cr_expect(rig_slots_in(&rig, 0, SPW_FILLING) == 0);
    cr_expect(rig_count(&rig, 0, SPW_WORKER_stores_expired) == 2);
    struct spw_done late = run_store(&one, done.ticket, 2);
    cr_expect(late.kind == SPW_DONE_STORE && late.status == -ENOENT && late.mask == UINT64_MAX);
    cr_expect(rig_count(&rig, 0, SPW_WORKER_runs_refused) == 1);
    expect_quiet(0);
    cr_expect(reserve(&one, 5, 2).count == 2, "the slots are back");
    rig_close(&rig);
}

Test(worker, a_run_that_came_in_time_is_not_expired)
{
    rig_open(&rig, &(struct rig_config){.capacity = 2});
    rig_attach(&rig, &one);
    struct spw_done done = reserve(&one, 1, 2);
    cr_assert(rig_run(&rig, &one, 0, SPW_CMD_STORE, done.ticket, 2, 0));
    rig_advance(&rig, 10 * RIG_SECOND);
    cr_expect(rig_answer(&rig, &one, 0).status == 0);
    rig_close(&rig);
}

Test(worker, a_begin_without_its_run_expires)
{
    rig_open(&rig, &(struct rig_config){.capacity = 2});
    rig_attach(&rig, &one);
    rig_store(&rig, &one, 0, 1, 2);
    struct spw_done done = begin(&one, 1, 2);
    cr_expect(rig_claims(&rig, 0) == 2);
    rig_advance(&rig, 2 * RIG_SECOND);
    rig_settle(&rig);
    cr_expect(rig_claims(&rig, 0) == 0);
    cr_expect(rig_count(&rig, 0, SPW_WORKER_loads_expired) == 2);
    cr_assert(rig_run(&rig, &one, 0, SPW_CMD_LOAD, done.ticket, 2, 0));
    cr_expect(rig_answer(&rig, &one, 0).status == -ENOENT);
    expect_quiet(0);
    rig_close(&rig);
}

Test(worker, a_ticket_is_run_once)
{
    struct spw_done done;
    rig_open(&rig, &(struct rig_config){.capacity = 4, .copier.rate_bytes = {1000, 0}});
    rig_attach(&rig, &one);
    rig_attach(&rig, &two);
    struct spw_done job = reserve(&one, 1, 1);
    cr_assert(rig_run(&rig, &one, 0, SPW_CMD_STORE, job.ticket, 1, 0));
    rig_settle(&rig);
    cr_expect(run_store(&two, job.ticket, 1).status == -ENOENT, "it copies already");
    rig_advance(&rig, RIG_SECOND);
    done = rig_answer(&rig, &one, 0);
    cr_expect(done.status == 0 && done.ticket == job.ticket);
    cr_expect(run_store(&two, job.ticket, 1).status == -ENOENT, "it is gone");
    rig_close(&rig);
}

/* ---- failing copies ------------------------------------------------------------------------- */

Test(worker, one_bad_chunk_never_fails_the_others)
{
    rig_open(&rig,
             &(struct rig_config){.capacity = 8,
                                  .copier.faults = {.fail_every = {3, 2}, .fail_status = -EIO}});
    rig_attach(&rig, &one);
    struct spw_done done = reserve(&one, 1, 5);
    done = run_store(&one, done.ticket, 5);
    cr_expect(done.mask == 4 && done.status == -EIO);
    for (uint64_t i = 1; i <= 5; i++)
        cr_expect((rig_state(&rig, 0, i, NULL) == SPW_READY) == (i != 3));
    cr_expect(rig_count(&rig, 0, SPW_WORKER_stores_failed) == 1);
    done = begin(&one, 1, 2);
    cr_assert(rig_run(&rig, &one, 0, SPW_CMD_LOAD, done.ticket, 2, 0));
    done = rig_answer(&rig, &one, 0);
    cr_expect(done.mask == 2 && done.status == -EIO);
    cr_expect(rig_count(&rig, 0, SPW_WORKER_loads_failed) == 1);
    cr_expect(rig_count(&rig, 0, SPW_WORKER_chunks_loaded) == 1);
    expect_quiet(0);
    rig_close(&rig);
}

/* ---- cancel in every state (LC-5) and late ends (LC-6) --------------------------------------- */

static void cancel_twice(struct rig_client *client, uint64_t ticket)
{
    cr_assert(rig_cancel(&rig, client, 0, ticket));
    cr_assert(rig_cancel(&rig, client, 0, ticket));
    rig_settle(&rig);
}

Test(worker, cancel_before_the_run_gives_slots_and_claims_back)
{
    struct spw_done done;
    rig_open(&rig, &(struct rig_config){.capacity = 4});
    rig_attach(&rig, &one);
    rig_attach(&rig, &two);
    rig_store(&rig, &two, 0, 50, 1);
    struct spw_done other = reserve(&two, 60, 1);
    cancel_twice(&one, 0);
    cancel_twice(&one, 12345);
    cancel_twice(&one, UINT64_MAX);

    done = reserve(&one, 1, 2);
    cancel_twice(&one, done.ticket);
    cr_expect(!rig_reap(&one, 0, &done), "no run, no completion");
    cr_expect(rig_slots_in(&rig, 0, SPW_FILLING) == 1);
    cr_expect(rig_count(&rig, 0, SPW_WORKER_stores_cancelled) == 2);

    done = begin(&one, 50, 1);
    cancel_twice(&one, done.ticket);
    cr_expect(!rig_reap(&one, 0, &done));
    cr_expect(rig_claims(&rig, 0) == 0);
    cr_expect(rig_count(&rig, 0, SPW_WORKER_loads_cancelled) == 1);

    cr_expect(run_store(&two, other.ticket, 1).status == 0, "others go on");
    cancel_twice(&two, other.ticket);
    cr_expect(rig_state(&rig, 0, 60, NULL) == SPW_READY, "cancelling what is done does nothing");
    expect_quiet(0);
    rig_close(&rig);
}

Test(worker, cancel_of_a_queued_run_completes_it_once)
{
    struct spw_done done;
    rig_open(&rig, &(struct rig_config){
                       .capacity = 8, .copier = {.rate_bytes = {1000, 1000}, .in_flight = {1, 1}}});
    rig_attach(&rig, &one);
    rig_attach(&rig, &two);
    struct spw_done first = reserve(&two, 1, 1), queued = reserve(&one, 10, 2);
    rig_run(&rig, &two, 0, SPW_CMD_STORE, first.ticket, 1, 0);
    rig_settle(&rig);
    rig_run(&rig, &one, 0, SPW_CMD_STORE, queued.ticket, 2, 0);
    uint64_t cookie = one.cookie;
    rig_settle(&rig);
    cancel_twice(&one, queued.ticket);
    cr_assert(rig_reap(&one, 0, &done));
    cr_expect(done.kind == SPW_DONE_STORE && done.cookie == cookie);
    cr_expect(done.status == -ECANCELED && done.mask == 3);
    cr_expect(!rig_reap(&one, 0, &done));
    cr_expect(rig_state(&rig, 0, 10, NULL) != SPW_FILLING);
    rig_advance(&rig, RIG_SECOND);
    rig_settle(&rig);
    cr_assert(rig_reap(&two, 0, &done));
    cr_expect(done.status == 0 && done.mask == 0);
    expect_quiet(0);
    rig_close(&rig);
}

Test(worker, cancel_of_a_copying_run_lets_it_end)
{
    struct spw_done done;
    rig_open(&rig, &(struct rig_config){
                       .capacity = 8, .copier = {.rate_bytes = {1000, 1000}, .in_flight = {1, 1}}});
    rig_attach(&rig, &one);
    struct spw_done job = reserve(&one, 1, 3);
    rig_run(&rig, &one, 0, SPW_CMD_STORE, job.ticket, 3, 0);
    rig_settle(&rig);
    cancel_twice(&one, job.ticket);
    cr_expect(!rig_reap(&one, 0, &done), "its first chunk is in copy");
    rig_advance(&rig, RIG_SECOND);
    rig_settle(&rig);
    cr_assert(rig_reap(&one, 0, &done));
    cr_expect(done.mask == 6 && done.status == -ECANCELED);
    cr_expect(rig_state(&rig, 0, 1, NULL) == SPW_READY);

    job = begin(&one, 1, 1);
    rig_run(&rig, &one, 0, SPW_CMD_LOAD, job.ticket, 1, 8);
    rig_settle(&rig);
    cancel_twice(&one, job.ticket);
    cr_expect(rig_claims(&rig, 0) == 1, "the copying claim stays until the copy has ended");
    rig_advance(&rig, RIG_SECOND);
    rig_settle(&rig);
    cr_assert(rig_reap(&one, 0, &done));
    cr_expect(done.kind == SPW_DONE_LOAD && done.mask == 0 && done.status == 0);
    expect_quiet(0);
    rig_close(&rig);
}

Test(worker, an_old_completion_does_not_touch_the_next_job)
{
    struct spw_done done;
    rig_open(&rig, &(struct rig_config){.capacity = 8, .copier.rate_bytes = {0, 1000}});
    rig_attach(&rig, &one);
    rig_store(&rig, &one, 0, 1, 2);
    struct spw_done old = begin(&one, 1, 1);
    rig_run(&rig, &one, 0, SPW_CMD_LOAD, old.ticket, 1, 0);
    uint64_t old_cookie = one.cookie;
    rig_settle(&rig);
    cancel_twice(&one, old.ticket);
    struct spw_done new = begin(&one, 2, 1);
    cr_expect(new.ticket != old.ticket);
    rig_advance(&rig, RIG_SECOND);
    rig_settle(&rig);
    cr_assert(rig_reap(&one, 0, &done));
    cr_expect(done.ticket == old.ticket && done.cookie == old_cookie);
    rig_run(&rig, &one, 0, SPW_CMD_LOAD, new.ticket, 1, 0);
    rig_settle(&rig);
    rig_advance(&rig, RIG_SECOND);
    done = rig_answer(&rig, &one, 0);
    cr_expect(done.ticket == new.ticket &&done.status == 0);
    expect_quiet(0);
    rig_close(&rig);
}

/* ---- reset ---------------------------------------------------------------------------------- */

static struct spw_done reset(struct rig_client *client)
{
    struct spw_command head = rig_head(&rig, client, 0, SPW_CMD_RESET);
    cr_assert(rig_send(client, 0, &head, NULL));
    struct spw_done done = {0};
    rig_settle(&rig);
    do
        cr_assert(rig_reap(client, 0, &done));
    while (done.kind != SPW_DONE_RESET);
    cr_expect(done.cookie == client->cookie);
    return done;
}

Test(worker, a_reset_ends_what_waits_and_voids_what_copies)
{
    struct spw_done done;
    rig_open(&rig, &(struct rig_config){.capacity = 8,
                                        .copier = {.rate_bytes = {1000, 0}, .in_flight = {1, 1}}});
    rig_attach(&rig, &one);
    rig_attach(&rig, &two);
    rig_store(&rig, &one, 0, 1, 1);
    struct spw_done copying = reserve(&one, 10, 2), waiting = reserve(&one, 20, 1);
    rig_run(&rig, &one, 0, SPW_CMD_STORE, copying.ticket, 2, 0);
    rig_settle(&rig);
    cr_expect(reset(&two).status == 0);
    cr_expect(rig_slots_in(&rig, 0, SPW_READY) == 0 && rig_slots_in(&rig, 0, SPW_FILLING) == 0);
    cr_expect(rig_slots_in(&rig, 0, SPW_RETIRED) == 1, "the slot in copy is not reused");
    cr_expect(run_store(&one, waiting.ticket, 1).status == -ENOENT);

    /* stored anew while the old copy still runs */
    struct spw_done again = reserve(&two, 10, 1);
    cr_expect(again.mask == 1);
    rig_advance(&rig, RIG_SECOND);
    rig_settle(&rig);
    cr_assert(rig_reap(&one, 0, &done));
    cr_expect(done.kind == SPW_DONE_STORE && done.mask == 3 && done.status == -ESTALE);
    cr_expect(rig_state(&rig, 0, 10, NULL) == SPW_FILLING, "the late end changes nothing");
    cr_expect(rig_count(&rig, 0, SPW_WORKER_late_completions) == 1);
    cr_expect(rig_count(&rig, 0, SPW_WORKER_stores_cancelled) == 3);
    rig_run(&rig, &two, 0, SPW_CMD_STORE, again.ticket, 1, 0);
    rig_settle(&rig);
    rig_advance(&rig, RIG_SECOND);
    cr_expect(rig_answer(&rig, &two, 0).status == 0);
    expect_quiet(0);
    rig_close(&rig);
}

Test(worker, a_store_with_an_old_space_generation_is_refused)
{
    uint8_t body[2 * SPW_LANE_PAYLOAD_BYTES];
    rig_open(&rig, &(struct rig_config){.capacity = 8});
    rig_attach(&rig, &one);
    reset(&one);
    struct spw_command head = rig_head(&rig, &one, 0, SPW_CMD_RESERVE);
    struct spw_reserve_key raw = {.key_bytes = 4, .key = "abc"};
    spw_chunk_digest(RIG_SPACE, 0, "abc", 4, raw.digest);
    memcpy(body, &raw, sizeof(raw));
    head.count = head.body_slots = 1;
    cr_assert(rig_send(&one, 0, &head, body));
    cr_expect(rig_answer(&rig, &one, 0).status == -ESTALE);
    cr_expect(rig_count(&rig, 0, SPW_WORKER_refused_stale) == 1);
    head.arg = 1 << 8;
    head.cookie = ++one.cookie;
    cr_assert(rig_send(&one, 0, &head, body));
    cr_expect(rig_answer(&rig, &one, 0).count == 1);
    rig_close(&rig);
}

/* ---- touch ---------------------------------------------------------------------------------- */

Test(worker, a_touch_makes_chunks_most_recent_deepest_first)
{
    uint64_t words[7] = {0};
    rig_open(&rig, &(struct rig_config){.capacity = 3});
    rig_attach(&rig, &one);
    for (uint64_t i = 1; i <= 3; i++)
        rig_store(&rig, &one, 0, i, 1);
    struct spw_command head = rig_head(&rig, &one, 0, SPW_CMD_TOUCH);
    for (uint64_t i = 0; i < 3; i++) { /* 3, 2, 1: the chain's head is most recent */
        struct spw_entry_copy entry;
        rig_state(&rig, 0, 3 - i, &entry);
        words[i] = entry.digest[0];
    }
    words[3] = 99; /* unknown: ignored */
    head.count = 4;
    head.body_slots = 1;
    cr_assert(rig_send(&one, 0, &head, words));
    rig_settle(&rig);
    cr_expect(rig_count(&rig, 0, SPW_WORKER_touches) == 3);
    rig_store(&rig, &one, 0, 10, 1);
    cr_expect(rig_state(&rig, 0, 3, NULL) != SPW_READY, "deepest went first");
    rig_store(&rig, &one, 0, 11, 1);
    cr_expect(rig_state(&rig, 0, 2, NULL) != SPW_READY);
    cr_expect(rig_state(&rig, 0, 1, NULL) == SPW_READY);
    rig_close(&rig);
}
