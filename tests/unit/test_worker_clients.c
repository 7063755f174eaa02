/* tier/worker: clients that come, go, get stuck or don't reap; workers that end and are succeeded.
 */
#include "tests/support/worker_rig.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

#include "shm/alive.h"

TestSuite(worker_clients, .timeout = 60);

static struct rig rig;
static struct rig_client one, two;

static uint64_t acked(uint32_t k, uint32_t c)
{
    return spw_load_acquire(&rig.daemon.feed[k]->acked[c]);
}

/* Locks are asked ten times a second. */
static void tick(void)
{
    rig_advance(&rig, RIG_SECOND / 10);
    rig_settle(&rig);
}

static struct spw_done reserve(struct rig_client *client, uint64_t first, uint32_t count)
{
    cr_assert(rig_reserve(&rig, client, 0, first, count));
    return rig_answer(&rig, client, 0);
}

/* ---- coming and going ----------------------------------------------------------------------- */

Test(worker_clients, a_generation_is_acknowledged_once_it_is_served)
{
    rig_open(&rig, &(struct rig_config){.workers = 2});
    cr_expect(acked(0, 0) == 0);
    rig_attach(&rig, &one);
    cr_expect(one.c == 0 && acked(0, 0) == 1 && acked(1, 0) == 1);
    rig_attach(&rig, &two);
    cr_expect(two.c == 1 && acked(0, 1) == 1);
    rig_close(&rig);
}

Test(worker_clients, a_dead_client_loses_its_jobs_and_nobody_else_does)
{
    rig_open(&rig, &(struct rig_config){.capacity = 8});
    rig_attach(&rig, &one);
    rig_attach(&rig, &two);
    rig_store(&rig, &two, 0, 50, 2);
    reserve(&one, 1, 2);
    struct spw_done other = reserve(&two, 10, 1);
    cr_assert(rig_begin(&rig, &one, 0, 0, 50, 2));
    rig_settle(&rig);
    cr_expect(rig_claims(&rig, 0) == 2);
    rig_die(&one);
    rig_settle(&rig);
    cr_expect(rig_claims(&rig, 0) == 2, "nobody has looked yet");
    tick();
    cr_expect(rig_claims(&rig, 0) == 0);
    cr_expect(rig_slots_in(&rig, 0, SPW_FILLING) == 1, "the other client's");
    cr_expect(rig_count(&rig, 0, SPW_WORKER_stores_cancelled) == 2);
    cr_expect(rig_count(&rig, 0, SPW_WORKER_loads_cancelled) == 2);
    cr_expect(rig_count(&rig, 0, SPW_WORKER_clients_gone) == 1);
    tick();
    cr_expect(rig_count(&rig, 0, SPW_WORKER_clients_gone) == 1, "counted once");
    cr_assert(rig_run(&rig, &two, 0, SPW_CMD_STORE, other.ticket, 1, 0));
    cr_expect(rig_answer(&rig, &two, 0).status == 0);
    cr_expect(rig_open_chunks(&rig, 0) == 0);
    rig_close(&rig);
}

Test(worker_clients, an_object_is_handed_over_only_when_no_copy_touches_its_blocks)
{
    struct spw_done done;
    rig_open(&rig, &(struct rig_config){.capacity = 8, .copier.rate_bytes = {1000, 1000}});
    rig_attach(&rig, &one);
    struct spw_done job = reserve(&one, 1, 1);
    cr_assert(rig_run(&rig, &one, 0, SPW_CMD_STORE, job.ticket, 1, 0));
    rig_settle(&rig);
    cr_assert(rig_reserve(&rig, &one, 0, 5, 1), "left in the lane");
    rig_die(&one);
    rig_attach(&rig, &two);
    cr_expect(two.c == 0 && two.generation == 2);
    cr_expect(acked(0, 0) == 1, "a copy still reads the old client's blocks");
    cr_assert(rig_reserve(&rig, &two, 0, 20, 1));
    rig_settle(&rig);
    cr_expect(!rig_reap(&two, 0, &done), "not served yet");
    rig_advance(&rig, RIG_SECOND);
    rig_settle(&rig);
    cr_expect(acked(0, 0) == 2);
    cr_expect(rig_state(&rig, 0, 1, NULL) == SPW_READY, "what was copied well is kept");
    done = rig_answer(&rig, &two, 0);
    cr_expect(done.kind == SPW_DONE_RESERVE && done.count == 1, "nothing of the old client came");
    cr_expect(rig_state(&rig, 0, 5, NULL) == SPW_FREE ||
              rig_count(&rig, 0, SPW_WORKER_stores_cancelled) == 1);
    rig_close(&rig);
}

/* Copies that have not begun would be from and into the blocks of whoever has the place next. */
Test(worker_clients, copies_of_a_dead_client_that_wait_in_the_queue_never_begin)
{
    rig_open(&rig, &(struct rig_config){.capacity = 16, .copier.rate_bytes = {1000, 1000}});
    rig_attach(&rig, &two);
    rig_store(&rig, &two, 0, 50, 6);
    rig_attach(&rig, &one);
    struct spw_done job = reserve(&one, 1, 6);
    cr_assert(rig_run(&rig, &one, 0, SPW_CMD_STORE, job.ticket, 6, 0));
    cr_assert(rig_begin(&rig, &one, 0, 0, 50, 6));
    job = rig_answer(&rig, &one, 0);
    cr_assert(rig_run(&rig, &one, 0, SPW_CMD_LOAD, job.ticket, 6, 12));
    rig_settle(&rig);
    rig_die(&one);
    tick();
    uint64_t stores = rig_count(&rig, 0, SPW_WORKER_stores_cancelled);
    uint64_t loads = rig_count(&rig, 0, SPW_WORKER_loads_cancelled);
    cr_expect(stores >= 4 && loads >= 4, "all but two of each, which the copier has");
    rig_advance(&rig, 10 * RIG_SECOND);
    rig_settle(&rig);
    cr_expect(rig_slots_in(&rig, 0, SPW_READY) == 6 + 6 - stores);
    cr_expect(rig_state(&rig, 0, 6, NULL) != SPW_READY);
    cr_expect(rig_count(&rig, 0, SPW_WORKER_chunks_loaded) == 6 - loads);
    cr_expect(rig_open_chunks(&rig, 0) == 0);
    rig_close(&rig);
}

Test(worker_clients, commands_left_in_a_lane_are_void_for_the_next_holder)
{
    struct spw_done done;
    rig_open(&rig, &(struct rig_config){.capacity = 8, .command_slots = 16});
    rig_attach(&rig, &one);
    for (int i = 0; i < 5; i++)
        cr_assert(rig_reserve(&rig, &one, 0, (uint64_t)i, 1));
    rig_die(&one);
    rig_attach(&rig, &two);
    cr_expect(!rig_reap(&two, 0, &done));
    cr_expect(rig_slots_in(&rig, 0, SPW_FILLING) == 0);
    cr_expect(!spw_client_has_untaken(two.view));
    for (int i = 0; i < 40; i++) { /* several times around the lane */
        cr_assert(rig_reserve(&rig, &two, 0, 100 + (uint64_t)i, 1));
        done = rig_answer(&rig, &two, 0);
        rig_cancel(&rig, &two, 0, done.ticket);
        rig_settle(&rig);
    }
    rig_close(&rig);
}

/* Everything that a client may write, our side of its lanes included, is noise when it dies. */
Test(worker_clients, noise_in_an_object_is_over_with_its_holder)
{
    rig_open(&rig, &(struct rig_config){.capacity = 8});
    for (uint64_t round = 0; round < 8; round++) {
        rig_attach(&rig, &one);
        cr_assert_eq(one.c, 0);
        cr_expect_eq(reserve(&one, 1 + round, 1).status, 0, "round %d", (int)round);
        if (round % 2) { /* noise that is still there must not mislead a successor either */
            rig_end_worker(&rig, 0);
            rig_start_worker(&rig, 0);
            rig_settle(&rig);
            cr_expect_eq(reserve(&one, 20 + round, 1).status, 0, "round %d", (int)round);
        }
        struct spw_client_view *view = &rig.daemon.client[0];
        uint64_t *word = (uint64_t *)(void *)view->head;
        uint64_t bytes = rig.daemon.client_map.size_bytes, x = round + 1;
        for (uint64_t i = sizeof view->head->header / 8; i < bytes / 8; i++) {
            x ^= x << 13, x ^= x >> 7, x ^= x << 17;
            word[i] = x;
        }
        rig_die(&one);
        tick();
    }
    rig_close(&rig);
}

Test(worker_clients, many_generations_leave_nothing_behind)
{
    rig_open(&rig, &(struct rig_config){.capacity = 8});
    for (uint64_t i = 1; i <= 200; i++) {
        rig_attach(&rig, &one);
        cr_assert(one.c == 0 && acked(0, 0) == i);
        cr_assert(reserve(&one, i, 3).count == 3);
        rig_die(&one);
    }
    tick();
    cr_expect(rig_open_chunks(&rig, 0) == 0);
    cr_expect(rig_count(&rig, 0, SPW_WORKER_clients_gone) == 200);
    cr_expect(rig_count(&rig, 0, SPW_WORKER_stores_cancelled) == 600);
    rig_close(&rig);
}

Test(worker_clients, a_silent_client_stays_attached)
{
    rig_open(&rig, &(struct rig_config){.capacity = 8});
    rig_attach(&rig, &one);
    for (int i = 0; i < 48; i++) {
        rig_advance(&rig, 3600 * RIG_SECOND);
        rig_settle(&rig);
    }
    cr_expect(rig_count(&rig, 0, SPW_WORKER_clients_gone) == 0);
    cr_expect(reserve(&one, 1, 1).count == 1);
    rig_close(&rig);
}

Test(worker_clients, a_half_written_message_of_the_dead_holder_does_not_stop_the_next)
{
    rig_open(&rig, &(struct rig_config){.capacity = 8, .command_slots = 16});
    rig_attach(&rig, &one);
    cr_expect(reserve(&one, 1, 1).count == 1);
    struct spw_lane_slot *slot = one.view->command;
    uint64_t tail = one.command[0].tail;
    for (uint64_t i = 1; i < 3; i++) /* its body is there, its head never came */
        spw_store_relaxed(&slot[(tail + i) % 16].seq, tail + i + 1);
    rig_die(&one);
    rig_attach(&rig, &two);
    cr_expect(two.c == 0 && two.command[0].tail == tail + 3);
    for (uint64_t i = 0; i < 20; i++)
        cr_expect(reserve(&two, 10, 1).count == 1);
    rig_close(&rig);
}

/* ---- stuck and greedy clients --------------------------------------------------------------- */

Test(worker_clients, commands_of_a_fenced_step_are_stale)
{
    uint64_t nothing[RIG_WORKERS] = {0};
    rig_open(&rig, &(struct rig_config){.capacity = 1});
    rig_attach(&rig, &one);
    rig_attach(&rig, &two);
    rig_store(&rig, &one, 0, 1, 1);
    struct spw_done prepared = {0};
    uint64_t step = spw_client_step_begin(one.view, nothing);
    rig_store(&rig, &two, 0, 2, 1);
    cr_assert(rig_reserve(&rig, &two, 0, 3, 1), "its victim waits for client one's step");
    prepared = rig_answer(&rig, &two, 0);
    cr_expect(prepared.status == -ENOSPC || prepared.count == 1);
    for (int i = 0; i < 15; i++)
        tick();
    cr_expect(rig_count(&rig, 0, SPW_WORKER_fences) == 1);
    cr_expect(spw_load_relaxed(&rig.daemon.feed[0]->fenced[one.c]) == step);

    struct spw_command head = rig_head(&rig, &one, 0, SPW_CMD_RESET);
    head.step = step;
    cr_assert(rig_send(&one, 0, &head, NULL));
    struct spw_done done = rig_answer(&rig, &one, 0);
    cr_expect(done.status == -ESTALE && done.kind == SPW_DONE_RESET);
    const uint8_t ops[] = {SPW_CMD_RESERVE, SPW_CMD_STORE, SPW_CMD_BEGIN, SPW_CMD_LOAD};
    for (size_t i = 0; i < sizeof(ops); i++) {
        head = rig_head(&rig, &one, 0, ops[i]);
        head.step = step;
        head.count = 1;
        cr_assert(rig_send(&one, 0, &head, NULL));
        cr_expect(rig_answer(&rig, &one, 0).status == -ESTALE, "operation %d", ops[i]);
    }
    cr_expect(rig_count(&rig, 0, SPW_WORKER_resets) == 0);
    spw_client_step_end(one.view);
    head = rig_head(&rig, &one, 0, SPW_CMD_RESET);
    head.step = step + 1;
    cr_assert(rig_send(&one, 0, &head, NULL));
    cr_expect(rig_answer(&rig, &one, 0).status == 0, "the next step is a new one");
    rig_close(&rig);
}

/* A client gone mad wrote a step number from far ahead and was fenced by it; its successor in the
 * same object goes on at a low one. */
Test(worker_clients, a_fence_ends_with_the_client_that_it_was_for)
{
    rig_open(&rig, &(struct rig_config){.capacity = 8});
    rig_attach(&rig, &one);
    spw_store_relaxed(&rig.daemon.feed[0]->fenced[0], UINT64_MAX / 4);
    struct spw_command head = rig_head(&rig, &one, 0, SPW_CMD_RESET);
    head.step = 1;
    cr_assert(rig_send(&one, 0, &head, NULL));
    cr_expect_eq(rig_answer(&rig, &one, 0).status, -ESTALE);
    rig_die(&one);
    tick();
    rig_attach(&rig, &two);
    cr_assert_eq(two.c, 0);
    head = rig_head(&rig, &two, 0, SPW_CMD_RESET);
    head.step = 1;
    cr_assert(rig_send(&two, 0, &head, NULL));
    cr_expect_eq(rig_answer(&rig, &two, 0).status, 0);
    rig_close(&rig);
}

Test(worker_clients, a_client_that_does_not_reap_stops_only_itself)
{
    struct spw_done done;
    rig_open(&rig, &(struct rig_config){.capacity = 8, .completion_slots = 4});
    rig_attach(&rig, &one);
    rig_attach(&rig, &two);
    for (int i = 0; i < 10; i++) {
        struct spw_command head = rig_head(&rig, &one, 0, SPW_CMD_RESET);
        cr_assert(rig_send(&one, 0, &head, NULL));
    }
    rig_settle(&rig);
    cr_expect(rig_count(&rig, 0, SPW_WORKER_resets) == 4, "as many as its lane holds");
    cr_expect(spw_client_has_untaken(one.view));
    cr_expect(reserve(&two, 1, 1).count == 1);
    int reaped = 0;
    for (; reaped < 20 && rig_reap(&one, 0, &done); reaped++) {
        cr_expect(done.cookie == (uint64_t)reaped + 1, "none lost, in order");
        rig_settle(&rig);
    }
    cr_expect(reaped == 10);
    cr_expect(rig_count(&rig, 0, SPW_WORKER_resets) == 10);
    rig_close(&rig);
}

Test(worker_clients, completions_owed_for_runs_are_kept_free)
{
    struct spw_done done;
    rig_open(&rig, &(struct rig_config){
                       .capacity = 8, .completion_slots = 4, .copier.rate_bytes = {1000, 0}});
    rig_attach(&rig, &one);
    for (uint64_t i = 0; i < 3; i++) {
        done = reserve(&one, i, 1);
        cr_assert(rig_run(&rig, &one, 0, SPW_CMD_STORE, done.ticket, 1, 0));
        rig_settle(&rig);
    }
    for (uint64_t i = 0; i < 3; i++)
        cr_assert(rig_reserve(&rig, &one, 0, 10 + i, 1));
    rig_settle(&rig);
    cr_assert(rig_reap(&one, 0, &done));
    cr_expect(done.kind == SPW_DONE_RESERVE);
    rig_advance(&rig, 10 * RIG_SECOND);
    rig_settle(&rig);
    int stores = 0, reserves = 1;
    for (int i = 0; i < 20; i++) {
        if (rig_reap(&one, 0, &done)) {
            stores += done.kind == SPW_DONE_STORE;
            reserves += done.kind == SPW_DONE_RESERVE;
        }
        rig_settle(&rig);
    }
    cr_expect(stores == 3 && reserves == 3);
    rig_close(&rig);
}

Test(worker_clients, lanes_share_a_pass_fairly)
{
    rig_open(&rig, &(struct rig_config){.capacity = 8});
    rig_attach(&rig, &one);
    rig_attach(&rig, &two);
    for (int i = 0; i < 60; i++) {
        struct spw_command head = rig_head(&rig, &one, 0, SPW_CMD_RESET);
        cr_assert(rig_send(&one, 0, &head, NULL));
    }
    struct spw_command head = rig_head(&rig, &two, 0, SPW_CMD_RESET);
    cr_assert(rig_send(&two, 0, &head, NULL));
    rig_pass(&rig);
    struct spw_done done;
    cr_expect(rig_reap(&two, 0, &done), "served in the first pass");
    cr_expect(rig_count(&rig, 0, SPW_WORKER_resets) < 20, "a flood has a budget");
    rig_close(&rig);
}

/* CE-11: one slot, 10,000 requests of 8 chunks from 4 clients. */
Test(worker_clients, one_slot_serves_any_load_with_counted_refusals)
{
    static struct rig_client client[4];
    struct spw_done done;
    uint64_t stored = 0;
    rig_open(&rig, &(struct rig_config){.capacity = 1, .completion_slots = 16});
    for (int i = 0; i < 4; i++)
        rig_attach(&rig, &client[i]);
    for (uint64_t i = 0; i < 10000; i++) {
        struct rig_client *who = &client[i % 4];
        cr_assert(rig_reserve(&rig, who, 0, 8 * i, 8));
        rig_pass(&rig);
        while (rig_reap(who, 0, &done)) {
            if (done.kind == SPW_DONE_STORE) {
                stored += done.status == 0;
                continue;
            }
            cr_assert(done.kind == SPW_DONE_RESERVE && done.count <= 1);
            cr_assert(done.status == -ENOSPC);
            if (done.ticket != 0 && i % 7 != 0)
                cr_assert(rig_run(&rig, who, 0, SPW_CMD_STORE, done.ticket, done.count, 0));
            else if (done.ticket != 0)
                cr_assert(rig_cancel(&rig, who, 0, done.ticket));
        }
    }
    rig_advance(&rig, 3 * RIG_SECOND);
    rig_settle(&rig);
    cr_expect(rig_count(&rig, 0, SPW_WORKER_chunks_offered) == 80000);
    cr_expect(rig_open_chunks(&rig, 0) == 0);
    cr_expect(stored > 3000, "%d stored", (int)stored);
    cr_expect(rig_count(&rig, 0, SPW_WORKER_chunks_stored) >= stored);
    cr_expect(rig_slots_in(&rig, 0, SPW_READY) <= 1);
    rig_close(&rig);
}

/* ---- workers that end ----------------------------------------------------------------------- */

Test(worker_clients, a_successor_goes_on_with_living_clients_and_forgets_old_jobs)
{
    struct spw_done done;
    rig_open(&rig, &(struct rig_config){.capacity = 8});
    rig_attach(&rig, &one);
    rig_attach(&rig, &two);
    rig_store(&rig, &one, 0, 1, 2);
    struct spw_done reserved = reserve(&one, 10, 2);
    cr_assert(rig_begin(&rig, &one, 0, 0, 1, 2));
    rig_settle(&rig);
    cr_assert(rig_reap(&one, 0, &done));
    cr_assert(rig_reserve(&rig, &one, 0, 20, 1), "untaken when the worker dies");
    struct spw_command old = rig_head(&rig, &one, 0, SPW_CMD_STORE);
    rig_end_worker(&rig, 0);
    rig_start_worker(&rig, 0);
    rig_settle(&rig);
    cr_expect(!rig_reap(&one, 0, &done), "commands to the old worker are dropped silently");
    cr_expect(rig_slots_in(&rig, 0, SPW_FILLING) == 0);
    cr_expect(rig_slots_in(&rig, 0, SPW_READY) == 2, "what was READY stays");
    cr_expect(rig_claims(&rig, 0) == 0);
    cr_expect(acked(0, one.c) == one.generation);

    old.ticket = reserved.ticket;
    cr_assert(rig_send(&one, 0, &old, NULL));
    rig_settle(&rig);
    cr_expect(!rig_reap(&one, 0, &done));
    rig_store(&rig, &one, 0, 30, 1);
    rig_store(&rig, &two, 0, 31, 1);
    cr_assert(rig_begin(&rig, &two, 0, 0, 1, 2));
    done = rig_answer(&rig, &two, 0);
    cr_expect(done.count == 2);
    cr_assert(rig_run(&rig, &two, 0, SPW_CMD_LOAD, done.ticket, 2, 4));
    cr_expect(rig_answer(&rig, &two, 0).status == 0);
    rig_close(&rig);
}

Test(worker_clients, a_client_that_changed_hands_while_no_worker_looked_is_handed_over)
{
    struct spw_done done;
    rig_open(&rig, &(struct rig_config){.capacity = 8});
    rig_attach(&rig, &one);
    cr_assert(rig_reserve(&rig, &one, 0, 1, 1));
    rig_end_worker(&rig, 0);
    rig_die(&one);
    rig_attach(&rig, &two);
    cr_expect(two.c == 0 && acked(0, 0) == 1);
    rig_start_worker(&rig, 0);
    rig_settle(&rig);
    cr_expect(acked(0, 0) == 2);
    cr_expect(!rig_reap(&two, 0, &done));
    cr_expect(reserve(&two, 5, 1).count == 1);
    rig_close(&rig);
}

/* A worker dead between a completion's sequence and its tail has sent it: nothing may overwrite it.
 */
Test(worker_clients, a_successor_sends_beyond_what_the_dead_worker_sent)
{
    struct spw_done done, lost = {.kind = SPW_DONE_RESET, .cookie = 77};
    rig_open(&rig, &(struct rig_config){.capacity = 8});
    rig_attach(&rig, &one);
    rig_end_worker(&rig, 0);
    struct spw_lane_producer lane;
    spw_atomic64 tail_of_its_own = 0, head = 0;
    spw_lane_producer_init(&lane, one.view->completion, one.view->completion_slots,
                           &tail_of_its_own, &head);
    cr_assert(spw_lane_room(&lane, 1) >= 1);
    spw_lane_write(&lane, 0, &lost, sizeof(lost));
    spw_lane_send(&lane, 1);
    rig_start_worker(&rig, 0);
    rig_settle(&rig);
    cr_assert(rig_reserve(&rig, &one, 0, 1, 1));
    rig_settle(&rig);
    cr_assert(rig_reap(&one, 0, &done));
    cr_expect(done.cookie == 77);
    cr_assert(rig_reap(&one, 0, &done));
    cr_expect(done.kind == SPW_DONE_RESERVE && done.cookie == one.cookie);
    rig_close(&rig);
}
