/* A promotion for which there is room, but whose slots wait for a step that began before: the command
 * stays in its lane for a bounded time; with a tier in memory on the test's clock. The rig's shards
 * have one slot more than their capacity. */
#include <criterion/criterion.h>
#include <string.h>

#include "tests/support/stub_cold.h"
#include "tests/support/worker_rig.h"

TestSuite(promote_wait, .timeout = 30);

#define MS       (RIG_SECOND / 1000)
#define WAIT_NS  (5 * MS)   /* of worker_up.c */
#define AGAIN_NS (100 * MS) /* likewise */

static struct rig rig;
static struct rig_client one, two, stander;
static struct spw_cold stub;

/* Keys 1 .. capacity are below alone, the next ones in memory. */
static void start(uint32_t capacity)
{
    struct rig_config config = {
        .capacity = capacity,
        .cold_chunks = STUB_CHUNKS,
        .below = &stub,
        .cold_policy = {.queue_chunks = 64, .promote_percent = 100, .hold_ns = RIG_SECOND}};
    rig_open(&rig, &config);
    rig_attach(&rig, &one);
    rig_attach(&rig, &two);
    rig_attach(&rig, &stander);
    for (uint64_t key = 1; key <= 2 * capacity; key++)
        rig_store(&rig, &one, 0, key, 1);
}

static uint64_t count(enum spw_worker_counter counter)
{
    return rig_count(&rig, 0, counter);
}

static void stand(void)
{
    uint64_t nothing[RIG_WORKERS] = {0};
    spw_client_step_begin(stander.view, nothing);
}

/* From one step to the next, which knows what has gone so far. */
static void step_on(void)
{
    uint64_t all[RIG_WORKERS] = {spw_load_acquire(&rig.daemon.feed[0]->tail)};
    spw_client_step_end(stander.view);
    spw_client_step_begin(stander.view, all);
}

static void send_promote(struct rig_client *client, uint64_t first, uint32_t chunks)
{
    uint64_t body[70] = {0};
    struct spw_command head = rig_head(&rig, client, 0, SPW_CMD_PROMOTE);
    for (uint32_t i = 0; i < chunks; i++) {
        uint8_t key[RIG_KEY_BYTES];
        uint64_t digest[2];
        rig_key(0, first + i, key);
        spw_chunk_digest(RIG_SPACE, 0, key, RIG_KEY_BYTES, digest);
        body[i] = digest[0];
    }
    head.count = (uint16_t)chunks;
    head.body_slots = (uint8_t)((chunks + 6) / 7);
    cr_assert(rig_send(client, 0, &head, body));
    rig_settle(&rig);
}

static bool answered(struct rig_client *client, struct spw_done *out)
{
    rig_settle(&rig);
    return rig_reap(client, 0, out);
}

static void wait_in_vain(void)
{
    struct spw_done done;
    send_promote(&one, 1, 3);
    cr_assert(!answered(&one, &done));
    rig_advance(&rig, WAIT_NS);
    cr_assert(answered(&one, &done));
}

Test(promote_wait, all_come_at_once_where_nobody_is_in_a_step)
{
    struct spw_done done;
    start(64);
    send_promote(&one, 1, 64);
    cr_assert(answered(&one, &done));
    cr_expect(done.mask == 0 && done.count == 64 && done.status == 0);
    cr_expect_eq(count(SPW_WORKER_promoted), 64);
    rig_close(&rig);
}

Test(promote_wait, while_a_client_is_in_a_step_it_is_deferred_and_all_come_when_that_ends)
{
    struct spw_done done;
    start(64);
    stand();
    send_promote(&one, 1, 64);
    rig_advance(&rig, 4 * MS);
    cr_expect(!answered(&one, &done));
    cr_expect_eq(rig_state(&rig, 0, 1, NULL), SPW_READY, "for which there was a slot");
    cr_expect_eq(rig_slots_in(&rig, 0, SPW_READY), 64, "one went for it");
    spw_client_step_end(stander.view);
    cr_assert(answered(&one, &done));
    cr_expect(done.mask == 0 && done.count == 64 && done.cookie == one.cookie);
    cr_expect_eq(count(SPW_WORKER_promote_asked), 64, "each once");
    cr_expect_eq(count(SPW_WORKER_promoted), 64);
    cr_expect_eq(stub.gets, 64);
    rig_close(&rig);
}

Test(promote_wait, after_the_bound_what_has_no_slot_is_refused)
{
    struct spw_done done;
    start(8);
    stand();
    send_promote(&one, 1, 3);
    rig_advance(&rig, WAIT_NS - 1);
    cr_expect(!answered(&one, &done));
    rig_advance(&rig, 1);
    cr_assert(answered(&one, &done));
    cr_expect_eq(done.mask, 6);
    cr_expect_eq(count(SPW_WORKER_promote_asked), 3);
    cr_expect_eq(count(SPW_WORKER_promote_refused_no_slot), 2);
    spw_client_step_end(stander.view);
    send_promote(&one, 2, 2);
    cr_assert(answered(&one, &done));
    cr_expect_eq(done.mask, 0);
    rig_close(&rig);
}

Test(promote_wait, a_long_step_costs_one_wait_whoever_asks_and_how_often)
{
    struct spw_done done;
    start(16);
    stand();
    wait_in_vain();
    for (uint64_t i = 0; i < 6; i++) {
        struct rig_client *client = i % 2 ? &one : &two;
        send_promote(client, 4 + i, 1);
        cr_assert(answered(client, &done), "at once");
        cr_expect_eq(done.mask, 1);
    }
    rig_advance(&rig, AGAIN_NS);
    send_promote(&one, 2, 1);
    cr_expect(!answered(&one, &done), "it may be another step by now");
    rig_advance(&rig, WAIT_NS);
    cr_expect(answered(&one, &done));
    rig_close(&rig);
}

Test(promote_wait, once_a_slot_has_come_the_next_wait_is_a_new_one)
{
    struct spw_done done;
    start(16);
    stand();
    wait_in_vain();
    step_on();
    send_promote(&one, 4, 2);
    cr_expect(!answered(&one, &done));
    step_on();
    cr_assert(answered(&one, &done));
    cr_expect_eq(done.mask, 0);
    rig_close(&rig);
}

Test(promote_wait, slots_that_come_one_by_one_make_it_no_longer)
{
    struct spw_done done;
    start(16);
    stand();
    send_promote(&one, 1, 8);
    for (int i = 0; i < 2; i++) {
        rig_advance(&rig, 2 * MS);
        step_on();
        cr_expect(!answered(&one, &done));
    }
    rig_advance(&rig, WAIT_NS - 4 * MS);
    cr_assert(answered(&one, &done));
    cr_expect_eq(done.mask, 0xf8, "one at first, and two");
    rig_close(&rig);
}

Test(promote_wait, two_wait_side_by_side)
{
    struct spw_done done;
    start(8);
    stand();
    send_promote(&one, 1, 3);
    rig_advance(&rig, 2 * MS);
    send_promote(&two, 3, 3); /* one of them they share */
    rig_advance(&rig, 2 * MS);
    cr_expect(!answered(&one, &done) && !answered(&two, &done));
    spw_client_step_end(stander.view);
    cr_expect(answered(&one, &done) && done.mask == 0);
    cr_expect(answered(&two, &done) && done.mask == 0);
    cr_expect_eq(stub.gets, 5);
    rig_close(&rig);
}

Test(promote_wait, commands_of_the_same_client_follow_it_in_order)
{
    struct spw_done done;
    start(8);
    stand();
    send_promote(&one, 1, 2);
    send_promote(&one, 3, 2);
    cr_assert(rig_reserve(&rig, &one, 0, 16, 1)); /* is there */
    cr_expect(!answered(&one, &done));
    rig_advance(&rig, WAIT_NS);
    cr_assert(answered(&one, &done));
    cr_expect(done.kind == SPW_DONE_PROMOTE && done.mask == 2);
    cr_assert(answered(&one, &done));
    cr_expect(done.kind == SPW_DONE_PROMOTE && done.mask == 3, "does not wait again");
    cr_assert(answered(&one, &done));
    cr_expect(done.kind == SPW_DONE_RESERVE && done.count == 1);
    rig_close(&rig);
}

Test(promote_wait, another_clients_store_goes_on_meanwhile)
{
    struct spw_done done;
    start(8);
    cr_assert(rig_reserve(&rig, &two, 0, 100, 1));
    uint64_t ticket = rig_answer(&rig, &two, 0).ticket;
    stand();
    send_promote(&one, 1, 3);
    cr_assert(rig_run(&rig, &two, 0, SPW_CMD_STORE, ticket, 1, 0));
    cr_expect_eq(rig_answer(&rig, &two, 0).status, 0);
    cr_expect_eq(rig_state(&rig, 0, 100, NULL), SPW_READY);
    cr_assert(rig_reserve(&rig, &two, 0, 101, 1));
    cr_expect_eq(rig_answer(&rig, &two, 0).status, -ENOSPC, "told at once, as ever");
    cr_assert(rig_reserve(&rig, &two, 0, 100, 1));
    cr_expect_eq(rig_answer(&rig, &two, 0).count, 1);
    cr_expect(!answered(&one, &done));
    spw_client_step_end(stander.view);
    cr_expect(answered(&one, &done) && done.mask == 0);
    rig_close(&rig);
}

Test(promote_wait, a_reset_of_the_space_ends_it)
{
    struct spw_done done;
    start(8);
    stand();
    send_promote(&one, 1, 3);
    struct spw_command head = rig_head(&rig, &two, 0, SPW_CMD_RESET);
    cr_assert(rig_send(&two, 0, &head, NULL));
    cr_expect_eq(rig_answer(&rig, &two, 0).status, 0);
    cr_assert(answered(&one, &done), "no time has passed");
    cr_expect_eq(done.mask, 6);
    cr_expect_eq(count(SPW_WORKER_promote_refused_gone), 2);
    cr_expect_eq(rig_slots_in(&rig, 0, SPW_READY) + rig_slots_in(&rig, 0, SPW_FILLING), 0);
    rig_close(&rig);
}

Test(promote_wait, of_a_client_that_is_gone_it_is_dropped)
{
    struct rig_client next;
    struct spw_done done;
    start(8);
    stand();
    send_promote(&one, 1, 3);
    rig_die(&one);
    rig_attach(&rig, &next);
    cr_assert_eq(next.c, one.c);
    cr_expect(!answered(&next, &done));
    spw_client_step_end(stander.view);
    rig_advance(&rig, WAIT_NS);
    cr_expect(!answered(&next, &done), "nobody is told");
    cr_expect_eq(count(SPW_WORKER_promote_asked), 1);
    send_promote(&next, 2, 2);
    cr_assert(answered(&next, &done));
    cr_expect(done.mask == 0 && done.count == 2, "from its first chunk on");
    cr_expect_eq(count(SPW_WORKER_promoted), 3);
    rig_close(&rig);
}

Test(promote_wait, a_worker_that_ends_meanwhile_leaves_what_had_come)
{
    struct spw_done done;
    start(8);
    stand();
    send_promote(&one, 1, 3);
    rig_end_worker(&rig, 0);
    rig_start_worker(&rig, 0);
    spw_store_release(&rig.daemon.ctl->worker[0].incarnation,
                      spw_load_relaxed(&rig.daemon.feed[0]->incarnation));
    cr_expect(!answered(&one, &done), "sent to the one before");
    cr_expect_eq(rig_state(&rig, 0, 1, NULL), SPW_READY);
    spw_client_step_end(stander.view);
    send_promote(&one, 1, 3);
    cr_assert(answered(&one, &done));
    cr_expect_eq(done.mask, 0);
    rig_close(&rig);
}

Test(promote_wait, where_nothing_may_go_it_is_refused_at_once)
{
    struct spw_done done;
    start(4);
    cr_assert(rig_reserve(&rig, &two, 0, 100, 3));
    cr_expect_eq(rig_answer(&rig, &two, 0).count, 3);
    stand();
    cr_assert(rig_reserve(&rig, &two, 0, 103, 1));
    cr_expect_eq(rig_answer(&rig, &two, 0).count, 1);
    cr_expect_eq(rig_slots_in(&rig, 0, SPW_FILLING), 4);
    cr_expect_eq(rig_slots_in(&rig, 0, SPW_RETIRED), 1, "is coming, but takes the place of none");
    send_promote(&one, 1, 2);
    cr_assert(answered(&one, &done));
    cr_expect_eq(done.mask, 3);
    cr_expect_eq(count(SPW_WORKER_promote_refused_no_slot), 2);
    rig_close(&rig);
}
