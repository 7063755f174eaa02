/* A worker whose copier's transfers may outlive it: its successor, the worker as a whole, keeps what
 * they may touch out of use for the time that it was configured with. The shard's part is in
 * test_quarantine. */
#include <criterion/criterion.h>

#include "tests/support/worker_rig.h"

TestSuite(worker_linger, .timeout = 30);

#define CAPACITY 4u
#define TIME_NS  (60 * RIG_SECOND)

static struct rig rig;
static struct rig_client one;

/* Copies of @kind never end. */
static void start(enum spw_copy_kind kind)
{
    struct rig_config config = {
        .capacity = CAPACITY, .io_quarantine_ns = TIME_NS, .transfers_linger = true};
    config.copier.faults.stick_every[kind] = 1;
    rig_open(&rig, &config);
    rig_attach(&rig, &one);
}

static void die_and_succeed(void)
{
    rig_end_worker(&rig, 0);
    rig.config.copier.faults = (struct spw_host_faults){0};
    rig_start_worker(&rig, 0);
    spw_store_release(&rig.daemon.ctl->worker[0].incarnation,
                      spw_load_relaxed(&rig.daemon.feed[0]->incarnation));
    rig_settle(&rig);
}

static uint64_t aside(void)
{
    return rig_count(&rig, 0, SPW_WORKER_quarantined) -
           rig_count(&rig, 0, SPW_WORKER_quarantine_ended);
}

Test(worker_linger, a_slot_that_was_being_stored_into_waits_for_its_time)
{
    start(SPW_COPY_STORE);
    cr_assert(rig_reserve(&rig, &one, 0, 1, 1));
    struct spw_done done = rig_answer(&rig, &one, 0);
    cr_assert(rig_run(&rig, &one, 0, SPW_CMD_STORE, done.ticket, 1, 0));
    rig_settle(&rig);
    die_and_succeed();
    cr_assert_eq(aside(), 1);
    cr_assert_eq(rig_slots_in(&rig, 0, SPW_RETIRED), 1);
    for (uint64_t n = 10; n < 30; n++)
        rig_store(&rig, &one, 0, n, 1);
    rig_advance(&rig, TIME_NS - 1);
    rig_settle(&rig);
    cr_assert(aside() == 1 && rig_slots_in(&rig, 0, SPW_READY) == CAPACITY - 1);
    rig_advance(&rig, 1);
    rig_settle(&rig);
    cr_assert(aside() == 0 && rig_slots_in(&rig, 0, SPW_RETIRED) == 0);
    rig_store(&rig, &one, 0, 50, 1);
    cr_assert_eq(rig_slots_in(&rig, 0, SPW_READY), CAPACITY);
    rig_close(&rig);
}

Test(worker_linger, a_slot_that_was_being_loaded_from_is_not_written_as_long)
{
    start(SPW_COPY_LOAD);
    rig_store(&rig, &one, 0, 1, 1);
    cr_assert(rig_begin(&rig, &one, 0, 0, 1, 1));
    struct spw_done done = rig_answer(&rig, &one, 0);
    cr_assert(rig_run(&rig, &one, 0, SPW_CMD_LOAD, done.ticket, 1, 4));
    rig_settle(&rig);
    cr_assert_eq(rig_claims(&rig, 0), 1);
    die_and_succeed();
    cr_assert_eq(rig_claims(&rig, 0), 1);
    rig_advance(&rig, TIME_NS);
    rig_settle(&rig);
    cr_assert_eq(rig_claims(&rig, 0), 0);
    rig_close(&rig);
}
