/* tier/worker: runs that wait for a fence beside others: their order, what they cost, how they end; and
 * runs for a registration that the worker doesn't know. */
#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

#include "tests/support/stub_kv.h"
#include "tier/worker_impl.h"

TestSuite(worker_fence, .timeout = 30);

#define LIMIT_NS (2 * RIG_SECOND)
#define LOOK_NS  50000u

static struct rig rig;
static struct rig_client one, two;

static void register_it(struct rig_client *client, uint32_t fences)
{
    struct spw_kv_record *record = (struct spw_kv_record *)client->view->head->mailbox.bytes;
    struct spw_command head = rig_head(&rig, client, 0, SPW_CMD_REGISTER);
    *record = (struct spw_kv_record){.fences = fences};
    head.arg = spw_kv_record_bytes(0, 0, fences);
    cr_assert(rig_send(client, 0, &head, NULL));
    rig_settle(&rig);
    const struct spw_kv_words *words = &client->view->head->kv_words[0];
    cr_assert_eq(spw_load_acquire(&words->answered), client->cookie);
    cr_assert_eq(spw_load_relaxed(&words->status), 0);
}

static void start_with(struct rig_config config)
{
    stub_kv_reset();
    config.wrap = stub_kv_wrap;
    config.event_limit_ns = LIMIT_NS;
    config.capacity = 16;
    rig_open(&rig, &config);
    rig_attach(&rig, &one);
    rig_attach(&rig, &two);
    register_it(&one, 4);
    register_it(&two, 4);
}

static void start(void)
{
    start_with((struct rig_config){.workers = 1});
}

static uint64_t reserve(struct rig_client *client, uint64_t key)
{
    cr_assert(rig_reserve(&rig, client, 0, key, 1));
    struct spw_done done = rig_answer(&rig, client, 0);
    cr_assert_eq(done.status, 0);
    return done.ticket;
}

/* Its first block is @key. @fence: 1 + its number, 0 = none. */
static void send_run(struct rig_client *client, uint64_t key, uint64_t ticket, uint64_t fence)
{
    rig.fence = fence;
    cr_assert(rig_run(&rig, client, 0, SPW_CMD_STORE, ticket, 1, (uint32_t)key));
    rig.fence = 0;
}

static void store(struct rig_client *client, uint64_t key, uint64_t fence)
{
    send_run(client, key, reserve(client, key), fence);
}

/* A pass, some time later. */
static void later(void)
{
    rig_advance(&rig, LOOK_NS);
    rig_settle(&rig);
}

static int ends_with(struct rig_client *client)
{
    struct spw_done done;
    cr_assert(rig_reap(client, 0, &done), "it hasn't ended");
    return done.status;
}

static void assert_nothing_left(void)
{
    cr_expect_eq(rig_open_chunks(&rig, 0), 0);
    cr_expect_eq(rig_claims(&rig, 0), 0);
    cr_expect_eq(rig_slots_in(&rig, 0, SPW_FILLING), 0);
}

/* ---- order ----------------------------------------------------------------------------------- */

Test(worker_fence, all_runs_of_one_fence_go_in_their_order_when_it_has_fired)
{
    start();
    uint64_t ticket[6];
    for (uint64_t i = 0; i < 6; i++)
        ticket[i] = reserve(&one, 2 * i);
    for (uint64_t i = 0; i < 6; i++)
        send_run(&one, 2 * i, ticket[i], 1);
    rig_settle(&rig);
    cr_expect_eq(stub_kv.copies, 0);
    cr_expect_eq(rig_count(&rig, 0, SPW_WORKER_fences_waited), 6);
    stub_kv.fired[one.c][0] = 1;
    later();
    cr_assert_eq(stub_kv.copies, 6);
    for (uint32_t i = 0; i < 6; i++)
        cr_expect_eq(stub_kv.order[i], 2 * i);
    rig_close(&rig);
}

Test(worker_fence, one_that_fires_between_two_looks_lets_no_later_run_by)
{
    start();
    uint64_t second = reserve(&one, 2), third = reserve(&one, 4);
    store(&one, 0, 1);
    rig_settle(&rig);
    send_run(&one, 2, second, 1);
    send_run(&one, 4, third, 1);
    stub_kv.fires_at = stub_kv.asked + 2; /* not at the next question, at the one behind it */
    stub_kv.fires_next = 1;
    later();
    later();
    cr_assert_eq(stub_kv.copies, 3);
    for (uint32_t i = 0; i < 3; i++)
        cr_expect_eq(stub_kv.order[i], 2 * i);
    rig_close(&rig);
}

Test(worker_fence, many_runs_of_one_fence_cost_one_question_a_pass)
{
    uint64_t due_ns;
    start();
    for (uint64_t i = 0; i < 8; i++)
        store(&one, 2 * i, 1);
    store(&two, 20, 1);
    rig_settle(&rig);
    uint32_t asked = stub_kv.asked;
    spw_worker_pass(rig.worker[0], &due_ns);
    cr_expect_eq(stub_kv.asked, asked + 2, "once for each client's");
    rig_close(&rig);
}

Test(worker_fence, a_fence_is_that_of_its_client)
{
    start();
    store(&one, 0, 2);
    store(&two, 2, 2);
    stub_kv.fired[two.c][1] = 1;
    later();
    cr_expect_eq(ends_with(&two), 0);
    struct spw_done done;
    cr_expect(!rig_reap(&one, 0, &done));
    cr_expect_eq(stub_kv.copies, 1);
    rig_close(&rig);
}

Test(worker_fence, the_worker_looks_again_soon_while_one_waits_and_sleeps_when_none_does)
{
    uint64_t due_ns;
    start();
    store(&one, 0, 1);
    rig_settle(&rig);
    cr_expect_eq(spw_worker_pass(rig.worker[0], &due_ns), 0, "nothing was done");
    cr_expect_gt(due_ns, rig.now_ns, "it doesn't spin");
    cr_expect_leq(due_ns, rig.now_ns + LOOK_NS);
    stub_kv.fired[one.c][0] = 1;
    later();
    cr_expect_eq(ends_with(&one), 0);
    rig_settle(&rig);
    spw_worker_pass(rig.worker[0], &due_ns);
    cr_expect_gt(due_ns, rig.now_ns + 10 * LOOK_NS);
    rig_close(&rig);
}

/* ---- ends ------------------------------------------------------------------------------------ */

Test(worker_fence, what_its_fence_says_is_what_a_run_ends_with)
{
    start();
    store(&one, 0, 1);
    store(&one, 2, 2);
    rig_settle(&rig);
    stub_kv.fired[one.c][0] = -EREMOTEIO;
    later();
    cr_expect_eq(ends_with(&one), -EREMOTEIO);
    stub_kv.fired[one.c][1] = -ENODEV;
    later();
    cr_expect_eq(ends_with(&one), -EIO, "a lost GPU is an error of the copy");
    cr_expect_eq(rig_count(&rig, 0, SPW_WORKER_stores_failed), 2);
    cr_expect_eq(rig_count(&rig, 0, SPW_WORKER_stores_cancelled), 0);
    assert_nothing_left();
    rig_close(&rig);
}

Test(worker_fence, one_that_is_late_ends_with_a_time_out_and_holds_up_no_other)
{
    start();
    store(&one, 0, 1);
    rig_settle(&rig);
    rig_advance(&rig, LIMIT_NS / 2);
    store(&one, 2, 2);
    rig_settle(&rig);
    rig_advance(&rig, LIMIT_NS / 2);
    rig_settle(&rig);
    cr_expect_eq(ends_with(&one), -ETIMEDOUT);
    stub_kv.fired[one.c][1] = 1;
    later();
    cr_expect_eq(ends_with(&one), 0);
    cr_expect_eq(rig_count(&rig, 0, SPW_WORKER_fences_late), 1);
    cr_expect_eq(rig_count(&rig, 0, SPW_WORKER_stores_failed), 1);
    rig_advance(&rig, RIG_SECOND);
    rig_settle(&rig);
    assert_nothing_left();
    rig_close(&rig);
}

Test(worker_fence, who_reserved_may_die_while_who_runs_waits)
{
    start();
    uint64_t ticket = reserve(&two, 0);
    send_run(&one, 0, ticket, 1);
    rig_settle(&rig);
    rig_die(&two);
    rig_advance(&rig, RIG_SECOND);
    rig_settle(&rig);
    stub_kv.fired[one.c][0] = 1;
    later();
    cr_expect_eq(ends_with(&one), 0);
    cr_expect_eq(rig_state(&rig, 0, 0, NULL), SPW_READY);
    rig_close(&rig);
}

Test(worker_fence, a_stop_ends_what_waits)
{
    spw_atomic32 stop = 1;
    start();
    store(&one, 0, 1);
    rig_settle(&rig);
    cr_expect_eq(spw_worker_run(rig.worker[0], &stop), 0, "not held up to the drain limit");
    cr_expect_eq(ends_with(&one), -ECANCELED);
    assert_nothing_left();
    rig_close(&rig);
}

Test(worker_fence, CU_5_every_run_ends_with_an_error_of_its_copy_when_the_GPU_is_lost)
{
    spw_atomic32 stop = 0;
    start_with((struct rig_config){.copier = {.rate_bytes = {1000, 1000}, .in_flight = {1, 1}}});
    uint64_t unrun = reserve(&one, 30);
    store(&one, 0, 1);
    store(&one, 2, 0);
    uint64_t queued = reserve(&one, 4);
    send_run(&one, 4, queued, 0);
    rig_settle(&rig);
    stub_kv.lost = true;
    rig_advance(&rig, 10 * RIG_SECOND); /* what is in flight has ended, whatever it copied */
    cr_expect_eq(spw_worker_run(rig.worker[0], &stop), -ENODEV);
    int failed = 0;
    struct spw_done done;
    while (rig_reap(&one, 0, &done)) {
        cr_expect(done.status == -EIO || done.status == 0, "%d", done.status);
        failed += done.status == -EIO;
    }
    cr_expect_eq(failed, 2, "what waited and what was queued");
    cr_expect_neq(unrun, 0);
    assert_nothing_left();
    rig_close(&rig);
}

/* ---- which KV -------------------------------------------------------------------------------- */

static int run_for_registration(struct rig_client *client, uint64_t key)
{
    send_run(client, key, reserve(client, key), SPW_RUN_REGISTERED);
    rig_settle(&rig);
    return ends_with(client);
}

Test(worker_fence, a_successor_refuses_runs_for_a_registration_that_it_does_not_know)
{
    start();
    cr_expect_eq(run_for_registration(&one, 0), 0);
    cr_expect_eq(stub_kv.copies, 1);
    rig_end_worker(&rig, 0);
    rig_start_worker(&rig, 0);
    rig_settle(&rig);
    cr_expect_eq(run_for_registration(&one, 2), -ENXIO, "though there is host KV, too");
    cr_expect_eq(rig_count(&rig, 0, SPW_WORKER_commands_bad), 0);
    cr_expect_eq(rig_count(&rig, 0, SPW_WORKER_runs_refused), 1);
    register_it(&one, 0);
    cr_expect_eq(run_for_registration(&one, 4), 0);
    cr_expect_eq(stub_kv.copies, 2);
    rig_close(&rig);
}

Test(worker_fence, a_worker_that_registers_is_neither_busy_nor_asleep)
{
    uint64_t due_ns;
    start();
    stub_kv.steps = 3;
    struct spw_kv_record *record = (struct spw_kv_record *)one.view->head->mailbox.bytes;
    struct spw_command head = rig_head(&rig, &one, 0, SPW_CMD_REGISTER);
    *record = (struct spw_kv_record){.fences = 1};
    head.arg = spw_kv_record_bytes(0, 0, 1);
    cr_assert(rig_send(&one, 0, &head, NULL));
    for (uint32_t steps = 3; steps > 0; steps--) {
        spw_worker_pass(rig.worker[0], &due_ns);
        cr_expect_eq(stub_kv.steps, steps - 1, "a step a pass");
        cr_expect_gt(due_ns, rig.now_ns);
        cr_expect_leq(due_ns, rig.now_ns + RIG_SECOND / 1000);
        cr_expect(!spw_worker_has_command(rig.worker[0]), "nothing that could be taken now");
        rig.now_ns = due_ns;
    }
    rig_close(&rig);
    cr_expect(!stub_kv.open[one.c] && !stub_kv.open[two.c]);
}

Test(worker_fence, LC_4_memory_stays_mapped_until_the_last_copy_of_the_dead_has_ended)
{
    start_with((struct rig_config){.copier = {.rate_bytes = {2000, 2000}, .in_flight = {1, 1}}});
    store(&one, 0, 0); /* 1000 nominal bytes: half a second */
    store(&one, 2, 1);
    rig_settle(&rig);
    cr_assert_eq(stub_kv.copies, 1);
    rig_die(&one);
    rig_advance(&rig, RIG_SECOND / 5);
    rig_settle(&rig);
    cr_expect_eq(rig_count(&rig, 0, SPW_WORKER_clients_gone), 1);
    cr_expect(stub_kv.open[one.c], "a copy still reads it");
    for (uint32_t i = 0; i < 4; i++) {
        rig_advance(&rig, RIG_SECOND / 10);
        rig_settle(&rig);
    }
    cr_expect(!stub_kv.open[one.c]);
    cr_expect_eq(stub_kv.closes, 1);
    cr_expect_eq(stub_kv.copies, 1, "what waited is not copied");
    cr_expect_eq(rig_count(&rig, 0, SPW_WORKER_late_completions), 1);
    cr_expect_eq(rig_count(&rig, 0, SPW_WORKER_stores_cancelled), 1);
    rig_close(&rig);
}

Test(worker_fence, who_takes_a_place_over_has_nothing_registered)
{
    struct rig_client next;
    start();
    uint32_t c = one.c;
    rig_die(&one);
    rig_attach(&rig, &next); /* before anybody has looked at the lock */
    cr_assert_eq(next.c, c);
    cr_expect_eq(stub_kv.closes, 1);
    cr_expect_eq(run_for_registration(&next, 0), -ENXIO);
    register_it(&next, 1);
    cr_expect_eq(run_for_registration(&next, 2), 0);
    cr_expect_eq(stub_kv.closes, 1);
    rig_close(&rig);
    cr_expect_eq(stub_kv.closes, 3);
}

/* Whatever a client's mailbox holds, what reaches the copier is whole, and the worker goes on. */
Test(worker_fence, garbage_in_the_mailbox_is_refused_or_whole)
{
    uint64_t random = 0x9e3779b97f4a7c15ull, taken = 0;
    start();
    uint8_t *mail = one.view->head->mailbox.bytes;
    struct spw_kv_words *words = &one.view->head->kv_words[0];
    for (uint32_t i = 0; i < 3000; i++) {
        struct spw_command head = rig_head(&rig, &one, 0, SPW_CMD_REGISTER);
        for (uint32_t b = 0; b < sizeof(struct spw_kv_record); b++) {
            random = random * 6364136223846793005ull + 1442695040888963407ull;
            mail[b] = (uint8_t)(random >> 56);
        }
        struct spw_kv_record *record = (struct spw_kv_record *)mail;
        uint32_t mask = i % 3 ? 0x1f : UINT32_MAX;
        record->memories &= mask;
        record->tensors &= mask;
        record->fences &= mask;
        head.arg = spw_kv_record_bytes(record->memories, record->tensors, record->fences);
        if (i % 5 == 0)
            head.arg = random;
        cr_assert(rig_send(&one, 0, &head, NULL));
        rig_pass(&rig);
        cr_assert_eq(spw_load_acquire(&words->answered), one.cookie);
        if ((int64_t)spw_load_relaxed(&words->status) < 0)
            continue;
        taken++;
        cr_assert_eq(memcmp(stub_kv.bytes, mail, head.arg), 0);
    }
    cr_expect_gt(taken, 100);
    cr_expect_lt(taken, 2900);
    store(&two, 0, 0);
    rig_settle(&rig);
    cr_expect_eq(ends_with(&two), 0);
    rig_close(&rig);
}
