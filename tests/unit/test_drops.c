/* OB-3: every chunk that is offered ends under one counter, and each reason to drop one has its own.
 * Each is provoked once here; that one counts 1, no other moves. */
#include "tests/support/worker_rig.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

TestSuite(drops, .timeout = 30);

static const enum spw_worker_counter reasons[] = {
    SPW_WORKER_refused_no_slot, SPW_WORKER_refused_queue_full, SPW_WORKER_refused_stale,
    SPW_WORKER_refused_bad,     SPW_WORKER_stores_cancelled,   SPW_WORKER_stores_expired,
    SPW_WORKER_stores_failed,   SPW_WORKER_late_completions,   SPW_WORKER_loads_stale,
    SPW_WORKER_loads_failed,    SPW_WORKER_loads_cancelled,    SPW_WORKER_loads_expired,
    SPW_WORKER_runs_refused,    SPW_WORKER_commands_bad,
};
#define REASONS (sizeof reasons / sizeof reasons[0])

static struct rig rig;
static struct rig_client one;
static uint64_t before[REASONS];

static void note(void)
{
    for (size_t i = 0; i < REASONS; i++)
        before[i] = rig_count(&rig, 0, reasons[i]);
}

static void begin(const struct rig_config *config)
{
    rig_open(&rig, config);
    rig_attach(&rig, &one);
    note();
}

/* @reason counts 1 more than at note(), no other does, and the sums hold. */
static void end(enum spw_worker_counter reason, enum spw_worker_counter also)
{
    rig_settle(&rig);
    for (size_t i = 0; i < REASONS; i++) {
        uint64_t want = before[i] + (reasons[i] == reason || reasons[i] == also);
        cr_expect(rig_count(&rig, 0, reasons[i]) == want, "%s is %d, not %d",
                  spw_worker_counter_name(reasons[i]), (int)rig_count(&rig, 0, reasons[i]),
                  (int)want);
    }
    cr_expect(rig_open_chunks(&rig, 0) == 0, "accepted + dropped = offered");
    rig_close(&rig);
}

static struct spw_done reserve(uint64_t key)
{
    cr_assert(rig_reserve(&rig, &one, 0, key, 1));
    return rig_answer(&rig, &one, 0);
}

static struct spw_done run(uint8_t op, uint64_t ticket)
{
    cr_assert(rig_run(&rig, &one, 0, op, ticket, 1, 0));
    return rig_answer(&rig, &one, 0);
}

static struct spw_done begin_load(uint64_t key)
{
    cr_assert(rig_begin(&rig, &one, 0, 0, key, 1));
    return rig_answer(&rig, &one, 0);
}

Test(drops, OB_3_no_slot)
{
    begin(&(struct rig_config){.capacity = 1});
    struct spw_done held = reserve(1);
    cr_expect(reserve(2).status == -ENOSPC);
    cr_expect(run(SPW_CMD_STORE, held.ticket).status == 0);
    end(SPW_WORKER_refused_no_slot, SPW_WORKER_refused_no_slot);
}

Test(drops, OB_3_queue_full)
{
    begin(&(struct rig_config){.capacity = 8, .queue_chunks = 1});
    struct spw_done held = reserve(1);
    cr_expect(reserve(2).status == -EBUSY);
    cr_expect(run(SPW_CMD_STORE, held.ticket).status == 0);
    end(SPW_WORKER_refused_queue_full, SPW_WORKER_refused_queue_full);
}

static void reset(void)
{
    struct spw_done done = {0};
    struct spw_command head = rig_head(&rig, &one, 0, SPW_CMD_RESET);
    cr_assert(rig_send(&one, 0, &head, NULL));
    rig_settle(&rig);
    do
        cr_assert(rig_reap(&one, 0, &done));
    while (done.kind != SPW_DONE_RESET);
}

static void send_reserve(uint32_t key_bytes)
{
    struct spw_command head = rig_head(&rig, &one, 0, SPW_CMD_RESERVE);
    struct spw_reserve_key raw = {.key_bytes = key_bytes, .key = "abc"};
    uint8_t body[SPW_LANE_PAYLOAD_BYTES];
    spw_chunk_digest(RIG_SPACE, 0, "abc", 4, raw.digest);
    memcpy(body, &raw, sizeof raw);
    head.count = head.body_slots = 1;
    cr_assert(rig_send(&one, 0, &head, body));
    cr_expect(rig_answer(&rig, &one, 0).count == 0);
}

Test(drops, OB_3_an_old_generation_of_the_space)
{
    begin(&(struct rig_config){.capacity = 8});
    reset();
    send_reserve(4);
    end(SPW_WORKER_refused_stale, SPW_WORKER_refused_stale);
}

/* The command counts as bad, and so does the chunk that it offered. */
Test(drops, OB_3_values_that_make_no_sense)
{
    begin(&(struct rig_config){.capacity = 8});
    send_reserve(0);
    end(SPW_WORKER_refused_bad, SPW_WORKER_commands_bad);
}

Test(drops, OB_3_cancelled)
{
    begin(&(struct rig_config){.capacity = 8});
    cr_assert(rig_cancel(&rig, &one, 0, reserve(1).ticket));
    end(SPW_WORKER_stores_cancelled, SPW_WORKER_stores_cancelled);
}

Test(drops, OB_3_expired)
{
    begin(&(struct rig_config){.capacity = 8});
    reserve(1);
    rig_advance(&rig, 3600 * RIG_SECOND);
    end(SPW_WORKER_stores_expired, SPW_WORKER_stores_expired);
}

Test(drops, OB_3_a_failed_copy)
{
    begin(&(struct rig_config){.capacity = 8,
                               .copier.faults = {.fail_every = {1, 0}, .fail_status = -EIO}});
    cr_expect(run(SPW_CMD_STORE, reserve(1).ticket).status == -EIO);
    end(SPW_WORKER_stores_failed, SPW_WORKER_stores_failed);
}

/* The chunk was given up by a reset while it was copied; the end of the copy comes late. */
Test(drops, OB_3_late)
{
    begin(&(struct rig_config){.capacity = 8, .copier.rate_bytes = {1000, 0}});
    struct spw_done held = reserve(1);
    cr_assert(rig_run(&rig, &one, 0, SPW_CMD_STORE, held.ticket, 1, 0));
    rig_settle(&rig);
    reset();
    rig_advance(&rig, RIG_SECOND);
    end(SPW_WORKER_late_completions, SPW_WORKER_stores_cancelled);
}

Test(drops, OB_3_loads_cancelled_expired_failed_and_refused)
{
    begin(&(struct rig_config){.capacity = 8});
    rig_store(&rig, &one, 0, 1, 1);
    cr_assert(rig_cancel(&rig, &one, 0, begin_load(1).ticket));
    end(SPW_WORKER_loads_cancelled, SPW_WORKER_loads_cancelled);

    begin(&(struct rig_config){.capacity = 8});
    rig_store(&rig, &one, 0, 1, 1);
    begin_load(1);
    rig_advance(&rig, 3600 * RIG_SECOND);
    end(SPW_WORKER_loads_expired, SPW_WORKER_loads_expired);

    begin(&(struct rig_config){.capacity = 8,
                               .copier.faults = {.fail_every = {0, 1}, .fail_status = -EIO}});
    rig_store(&rig, &one, 0, 1, 1);
    cr_expect(run(SPW_CMD_LOAD, begin_load(1).ticket).status == -EIO);
    end(SPW_WORKER_loads_failed, SPW_WORKER_loads_failed);

    begin(&(struct rig_config){.capacity = 8});
    cr_expect(run(SPW_CMD_STORE, 77).status == -ENOENT);
    end(SPW_WORKER_runs_refused, SPW_WORKER_runs_refused);
}

/* What a load names isn't that chunk any more. */
Test(drops, OB_3_a_stale_source)
{
    begin(&(struct rig_config){.capacity = 8});
    struct spw_command head = rig_head(&rig, &one, 0, SPW_CMD_BEGIN);
    struct spw_load_source source[SPW_SOURCES_PER_SLOT] = {{.fill = 12345, .slot = 0, .shard = 0}};
    uint8_t body[SPW_LANE_PAYLOAD_BYTES] = {0};
    memcpy(body, source, sizeof source);
    head.count = head.body_slots = 1;
    cr_assert(rig_send(&one, 0, &head, body));
    cr_expect(rig_answer(&rig, &one, 0).status == -ESTALE);
    end(SPW_WORKER_loads_stale, SPW_WORKER_loads_stale);
}
