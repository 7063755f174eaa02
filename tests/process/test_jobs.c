/* Stores, loads, cancels and lookups through a real pool. */
#include "tests/process/actor.h"
#include "tests/process/proc.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tier/counters.h"
#include "tier/layout.h"

TestSuite(process_jobs, .timeout = 60);

static struct proc_pool pool;
static struct actor actor;

static void start_with(const struct proc_config *config, const struct actor_config *who)
{
    struct actor_config mine = *who;
    cr_assert(proc_start(&pool, config));
    mine.dir = pool.dir;
    mine.name = "pool";
    cr_assert_eq(actor_open(&actor, &mine), 0);
}

static void end(void)
{
    actor_close(&actor);
    cr_expect_eq(proc_stop(&pool, SIGTERM), 0);
    cr_expect_eq(proc_files(&pool), 0);
    proc_close(&pool);
}

static void open_second(struct actor *other, uint32_t ranks, const char *fingerprint,
                        uint32_t worker)
{
    struct actor_config config = {.dir = pool.dir,
                                  .name = "pool",
                                  .ranks = ranks,
                                  .worker = {worker, worker + 1},
                                  .fingerprint = fingerprint};
    cr_assert_eq(actor_open(other, &config), 0);
}

/* ---- cancel ---------------------------------------------------------------------------------- */

static void cancel_twice(struct spw_request *request)
{
    cr_expect_eq(spw_request_cancel(request), 0);
    cr_expect_eq(spw_request_cancel(request), 0);
}

static bool is_quiet(void *ctx)
{
    struct spw_completion done;
    (void)ctx;
    while (spw_completions(actor.client, &done, 1) == 1)
        ;
    return proc_claims(&pool) == 0 && proc_entries(&pool, 0, SPW_FILLING) == 0 &&
           proc_entries(&pool, 0, SPW_RETIRED) == 0;
}

/* Chunks 1..4 of another request are what they were; nothing is held any more. */
static void nothing_is_left(const char *state)
{
    cr_expect(proc_eventually(is_quiet, NULL, 5000), "%s: %u claims, %u filling, %u retired", state,
              proc_claims(&pool), proc_entries(&pool, 0, SPW_FILLING),
              proc_entries(&pool, 0, SPW_RETIRED));
    cr_expect_eq(actor_load(&actor, 1, 4), 4, "%s", state);
}

Test(process_jobs, LC_5_a_cancel_is_legal_in_every_state_and_twice)
{
    /* 20 ms for each chunk in both directions, so that jobs are caught in flight */
    const struct proc_config config = {.store_rate = "50000", .load_rate = "50000"};
    struct spw_decision decision;
    struct spw_completion done;
    struct actor other;
    start_with(&config, &(struct actor_config){0});
    open_second(&other, 1, "a model", 0);
    cr_assert_eq(actor_store(&actor, 1, 4), 4);

    struct spw_request *request = actor_request(&actor, 1, 4, 0);
    cancel_twice(request);
    spw_request_finish(request);
    nothing_is_left("never started");

    struct spw_request *pending = actor_request(&other, 101, 4, 0);
    cr_assert_eq(actor_reserve(&other, pending, 0, 0, 4, &done), 0);
    struct spw_ticket ticket = done.ticket;
    request = actor_request(&actor, 101, 4, 0);
    cr_assert_eq(actor_decide(&actor, request, &decision), 0);
    cr_expect_eq(decision.action, SPW_ACTION_DEFER);
    cancel_twice(request);
    cr_expect_eq(actor_decide(&actor, request, &decision), 0);
    cr_expect_eq(decision.action, SPW_ACTION_DEFER, "what is stored for others goes on");
    spw_request_finish(request);
    for (int twice = 0; twice < 2; twice++)
        cr_expect_eq(spw_cancel(other.client, &ticket), 0);
    cr_expect_eq(actor_counter(&other, "double_releases"), 1);
    spw_request_finish(pending);
    nothing_is_left("waiting for a pending chunk; reserved");

    request = actor_request(&actor, 1, 4, 0);
    cr_assert_eq(actor_begin(&actor, request, 0, false), 1);
    cr_assert_eq(actor_next(&actor, &done, 5000), 0);
    cancel_twice(request);
    spw_request_finish(request);
    nothing_is_left("load begun");

    request = actor_request(&actor, 1, 4, 0);
    cr_assert_eq(actor_begin(&actor, request, 0, false), 1);
    cr_assert_eq(actor_next(&actor, &done, 5000), 0);
    cr_assert_eq(actor_run(&actor, &done.ticket, 0, 77), 0);
    usleep(10000);
    cancel_twice(request);
    cr_assert_eq(actor_next(&actor, &done, 5000), 0);
    cr_expect(done.kind == SPW_COMPLETION_LOADED && done.cookie == 77);
    spw_request_finish(request);
    nothing_is_left("load in flight");

    request = actor_request(&actor, 201, 4, 0);
    cr_assert_eq(actor_reserve(&actor, request, 0, 0, 4, &done), 0);
    cr_assert_eq(actor_run(&actor, &done.ticket, 0, 78), 0);
    usleep(10000);
    cancel_twice(request);
    cr_assert_eq(actor_next(&actor, &done, 5000), 0);
    cr_expect(done.kind == SPW_COMPLETION_STORED && done.cookie == 78);
    cr_expect(done.status == 0 || done.status == -ECANCELED, "%d", done.status);
    ticket = done.ticket;
    ticket.kind = SPW_JOB_STORE;
    cr_expect_eq(spw_cancel(actor.client, &ticket), 0);
    spw_request_finish(request);
    nothing_is_left("store in flight; finished");

    cr_expect_eq(actor_next(&actor, &done, 50), -ETIMEDOUT);
    actor_close(&other);
    end();
}

Test(process_jobs, LC_6_an_answer_that_comes_after_its_cancel_is_dropped_and_counted)
{
    start_with(&(struct proc_config){0}, &(struct actor_config){0});
    cr_assert_eq(actor_store(&actor, 1, 8), 8);
    struct spw_request *request = actor_request(&actor, 1, 8, 0);
    struct spw_completion done;
    proc_signal_worker(&pool, 0, SIGSTOP);
    cr_assert_eq(actor_begin(&actor, request, 0, false), 1);
    uint64_t old = actor.cookie;
    cr_expect_eq(spw_request_cancel(request), 0);
    cr_assert_eq(actor_begin(&actor, request, 0, false), 1); /* the same request again */
    proc_signal_worker(&pool, 0, SIGCONT);
    cr_assert_eq(actor_next(&actor, &done, 5000), 0);
    cr_expect(done.kind == SPW_COMPLETION_BEGUN && done.cookie == actor.cookie &&
              old != done.cookie);
    cr_expect_eq(done.ticket.chunks, 8);
    cr_assert_eq(actor_run(&actor, &done.ticket, 20, 9), 0);
    cr_assert_eq(actor_next(&actor, &done, 5000), 0);
    cr_expect(done.kind == SPW_COMPLETION_LOADED && done.cookie == 9 && done.status == 0);
    for (uint32_t i = 0; i < 8; i++)
        cr_expect_eq(actor_wrong(&actor, 20 + i, 1 + i, 0), 0);
    cr_expect_eq(actor_counter(&actor, "late_completions"), 1);
    spw_request_finish(request);
    cr_expect(proc_eventually(is_quiet, NULL, 5000));
    end();
}

/* ---- lookups --------------------------------------------------------------------------------- */

Test(process_jobs, LK_8_the_weakest_part_of_a_chunk_decides)
{
    struct spw_completion done;
    struct actor single;
    start_with(&(struct proc_config){.workers = 2, .capacity = 4},
               &(struct actor_config){.ranks = 2, .worker = {0, 1}});
    /* A, B, C are 1, 2, 3; on rank 1 B is the oldest */
    cr_assert_eq(actor_store_rank(&actor, 0, 1, 3), 3);
    cr_expect_eq(actor_hits(&actor, 1, 3), 0, "part 1 is stored nowhere");
    cr_assert_eq(actor_store_rank(&actor, 1, 2, 1), 1);
    cr_assert_eq(actor_store_rank(&actor, 1, 1, 1), 1);
    struct spw_request *request = actor_request(&actor, 3, 1, 0);
    cr_assert_eq(actor_reserve(&actor, request, 1, 0, 1, &done), 0);
    cr_expect_eq(actor_hits(&actor, 3, 1), -EAGAIN, "part 0 HIT, part 1 PENDING");
    actor_fill(&actor, 0, 3, 1);
    cr_assert_eq(actor_run(&actor, &done.ticket, 0, 1), 0);
    cr_assert_eq(actor_next(&actor, &done, 5000), 0);
    spw_request_finish(request);
    cr_expect_eq(actor_load(&actor, 1, 3), 3);
    /* that load made chunk 3 the oldest everywhere; touch it, and part 1 of B is the next victim */
    cr_expect_eq(actor_hits(&actor, 1, 1), 1);
    cr_expect_eq(actor_hits(&actor, 3, 1), 1);
    open_second(&single, 1, "another model", 1);
    cr_assert_eq(actor_store(&single, 500, 2), 2);
    cr_expect_eq(actor_load(&actor, 1, 3), 1, "only A is a hit");
    actor_close(&single);
    end();
}

Test(process_jobs, LK_10_a_request_that_does_not_read_leaves_no_trace)
{
    struct spw_decision decision;
    start_with(&(struct proc_config){.capacity = 4}, &(struct actor_config){0});
    cr_assert_eq(actor_store(&actor, 1, 1), 1); /* the oldest */
    cr_assert_eq(actor_store(&actor, 2, 3), 3);
    uint64_t touches = proc_count(&pool, 0, SPW_WORKER_touches);
    struct spw_request *request = actor_request(&actor, 1, 4, SPW_REQUEST_NO_READ);
    cr_assert_eq(actor_decide(&actor, request, &decision), 0);
    cr_expect_eq(decision.action, SPW_ACTION_MISS);
    cr_expect_eq(decision.reason, SPW_REASON_SKIP);
    cr_expect_eq(decision.hit_tokens, 0);
    spw_request_finish(request);
    /* its stores work, and chunk 1 is still the first to go */
    request = actor_request(&actor, 50, 1, SPW_REQUEST_NO_READ);
    struct spw_completion done;
    cr_assert_eq(actor_reserve(&actor, request, 0, 0, 1, &done), 0);
    cr_expect_eq(done.mask, 1);
    actor_fill(&actor, 0, 50, 0);
    cr_assert_eq(actor_run(&actor, &done.ticket, 0, 1), 0);
    cr_assert_eq(actor_next(&actor, &done, 5000), 0);
    spw_request_finish(request);
    cr_expect_eq(proc_count(&pool, 0, SPW_WORKER_touches), touches);
    cr_expect_eq(proc_claims(&pool), 0);
    cr_expect_eq(actor_hits(&actor, 1, 1), 0);
    cr_expect_eq(actor_load(&actor, 2, 3), 3);
    cr_expect_eq(actor_load(&actor, 50, 1), 1);
    end();
}

/* Reap up to the answer to a reserve, or up to the end of the last of @runs; stores that end on the
 * way are counted in *stored. */
static void reap_until(uint32_t kind, uint32_t *runs, uint32_t *stored, struct spw_completion *out)
{
    do {
        cr_assert_eq(actor_next(&actor, out, 5000), 0);
        if (out->kind != SPW_COMPLETION_STORED)
            continue;
        cr_expect_eq(out->status, 0);
        *stored += out->ticket.chunks - (uint32_t)__builtin_popcountll(out->mask);
        --*runs;
    } while (out->kind != kind || (kind == SPW_COMPLETION_STORED && *runs > 0));
}

Test(process_jobs, LK_11_a_prompt_stored_in_steps_is_whole_at_the_next_lookup)
{
    enum { CHUNKS = 217, STEP = 16 };
    struct spw_completion done;
    uint32_t stored = 0, skipped = 0, runs = 0;
    start_with(&(struct proc_config){.capacity = 256}, &(struct actor_config){0});
    struct spw_request *request = actor_request(&actor, 1, CHUNKS, 0);
    for (uint32_t at = 0; at < CHUNKS; at += STEP) {
        uint32_t count = CHUNKS - at < STEP ? CHUNKS - at : STEP;
        struct spw_chunk_ref ref[STEP] = {0};
        for (uint32_t i = 0; i < count; i++)
            ref[i].index = at + i;
        cr_assert_eq(spw_store_reserve(request, 0, ref, count, at), (int)count);
        reap_until(SPW_COMPLETION_RESERVED, &runs, &stored, &done);
        cr_assert_gt(done.ticket.id, 0);
        skipped += count - done.ticket.chunks;
        for (uint32_t i = 0; i < done.ticket.chunks; i++)
            actor_fill(&actor, at + i, 1 + at + i, 0);
        cr_assert_eq(actor_run(&actor, &done.ticket, at, at), 0);
        runs++;
    }
    spw_request_finish(request); /* the last 9 are pending */
    reap_until(SPW_COMPLETION_STORED, &runs, &stored, &done);
    cr_expect_eq(stored + skipped, CHUNKS, "%u stored, %u skipped", stored, skipped);
    /* the completion has been drained: the very next lookup is a HIT */
    cr_expect_eq(actor_hits(&actor, 1, CHUNKS), (int)stored);
    cr_expect_eq(actor_load(&actor, 1, CHUNKS), (int)stored);
    end();
}

/* ---- claims ---------------------------------------------------------------------------------- */

Test(process_jobs, CE_2_a_thousand_lookups_without_a_load_hold_nothing)
{
    start_with(&(struct proc_config){.capacity = 8, .run_limit = "300ms"},
               &(struct actor_config){0});
    cr_assert_eq(actor_store(&actor, 1, 8), 8);
    for (int i = 0; i < 1000; i++)
        cr_assert_eq(actor_hits(&actor, 1, 8), 8);
    cr_expect_eq(proc_claims(&pool), 0);
    cr_expect_eq(actor_store(&actor, 101, 8), 8, "all 8 slots can be had at once");

    /* begun, but never run: for the limit, and no longer */
    struct spw_request *request = actor_request(&actor, 101, 8, 0);
    struct spw_completion done;
    cr_assert_eq(actor_begin(&actor, request, 0, false), 1);
    cr_assert_eq(actor_next(&actor, &done, 5000), 0);
    cr_expect_eq(proc_claims(&pool), 8);
    cr_expect(proc_eventually(is_quiet, NULL, 2000));
    cr_expect_eq(proc_count(&pool, 0, SPW_WORKER_loads_expired), 8);
    cr_expect_eq(actor_store(&actor, 201, 8), 8);
    cr_expect_eq(actor_load(&actor, 201, 8), 8);
    spw_request_finish(request);
    end();
}

Test(process_jobs, CE_2_one_clients_double_release_leaves_anothers_claim_alone)
{
    struct spw_completion mine, theirs;
    struct actor other;
    start_with(&(struct proc_config){.capacity = 4}, &(struct actor_config){0});
    open_second(&other, 1, "a model", 0);
    cr_assert_eq(actor_store(&actor, 1, 1), 1);
    cr_assert_eq(actor_store(&actor, 2, 3), 3);
    struct spw_request *a = actor_request(&actor, 1, 1, 0), *b = actor_request(&other, 1, 1, 0);
    cr_assert_eq(actor_begin(&actor, a, 0, false), 1);
    cr_assert_eq(actor_begin(&other, b, 0, false), 1);
    cr_assert_eq(actor_next(&actor, &mine, 5000), 0);
    cr_assert_eq(actor_next(&other, &theirs, 5000), 0);
    cr_expect_eq(spw_cancel(actor.client, &mine.ticket), 0);
    cr_expect_eq(spw_cancel(actor.client, &mine.ticket), 0);
    cr_expect_eq(actor_counter(&actor, "double_releases"), 1);
    /* all else is thrown out; chunk 1, which the other one still loads, goes last */
    int stored = 0;
    for (uint64_t first = 100; first < 120; first++)
        stored += actor_store(&actor, first, 1);
    cr_expect_geq(stored, 4);
    cr_expect_eq(actor_hits(&actor, 1, 1), 1);
    cr_expect_eq(actor_hits(&actor, 2, 3), 0);
    cr_expect_eq(proc_claims(&pool), 1);
    cr_assert_eq(actor_run(&other, &theirs.ticket, 0, 5), 0);
    cr_assert_eq(actor_next(&other, &theirs, 5000), 0);
    cr_expect(theirs.kind == SPW_COMPLETION_LOADED && theirs.status == 0);
    cr_expect_eq(actor_wrong(&other, 0, 1, 0), 0);
    spw_request_finish(a);
    spw_request_finish(b);
    cr_expect(proc_eventually(is_quiet, NULL, 5000));
    cr_expect_eq(actor_store(&actor, 200, 4), 4);
    actor_close(&other);
    end();
}

Test(process_jobs, CE_10_a_rank_with_another_chunk_size_is_refused_with_both_numbers)
{
    struct actor other;
    start_with(&(struct proc_config){.workers = 2},
               &(struct actor_config){.ranks = 2, .worker = {0, 1}, .chunk_bytes = 1024});
    struct actor_config config = {
        .dir = pool.dir, .name = "pool", .ranks = 2, .worker = {0, 1}, .chunk_bytes = 512};
    cr_assert_eq(actor_attach(&other, &config), 0);
    cr_expect_eq(actor_space(&other), -EINVAL);
    cr_expect(strstr(other.text, "1024") && strstr(other.text, "512"), "%s", other.text);
    /* larger than a slot of the pool: the client library says so by itself */
    other.config.chunk_bytes = 2048;
    cr_expect_eq(actor_space(&other), -EINVAL);
    cr_expect(strstr(other.text, "2048") && strstr(other.text, "1024"), "%s", other.text);
    other.config.chunk_bytes = 1024;
    cr_expect_eq(actor_space(&other), 0, "%s", other.text);
    actor_close(&other);
    end();
}
