/* What a worker sends to the tier below, when, and what it drops: a tier in memory on the test's
 * clock. */
#include <criterion/criterion.h>
#include <string.h>

#include "tests/support/stub_cold.h"
#include "tests/support/worker_rig.h"
#include "tier/nvme.h"

TestSuite(worker_down, .timeout = 30);

static struct rig rig;
static struct rig_client one, two;
static struct spw_cold stub;

static void start(uint32_t capacity, struct spw_cold_policy policy)
{
    policy.queue_chunks = policy.queue_chunks ? policy.queue_chunks : 16;
    policy.promote_percent = 100;
    policy.hold_ns = RIG_SECOND;
    struct rig_config config = {
        .capacity = capacity, .cold_chunks = STUB_CHUNKS, .below = &stub, .cold_policy = policy};
    rig_open(&rig, &config);
    rig_attach(&rig, &one);
}

static uint64_t count(enum spw_worker_counter counter)
{
    return rig_count(&rig, 0, counter);
}

/* Wanted, and nothing has become of them yet. */
static uint64_t still_open(void)
{
    return count(SPW_WORKER_cold_wanted) - count(SPW_WORKER_cold_written) -
           count(SPW_WORKER_cold_write_failed) - count(SPW_WORKER_cold_dropped_queue) -
           count(SPW_WORKER_cold_dropped_budget) - count(SPW_WORKER_cold_dropped_full) -
           count(SPW_WORKER_cold_dropped_share) - count(SPW_WORKER_cold_dropped_down) -
           count(SPW_WORKER_cold_dropped_gone);
}

static void end(void)
{
    cr_expect_eq(still_open(), 0, "%lu", (unsigned long)still_open());
    rig_close(&rig);
}

static uint64_t tag_of(uint64_t number)
{
    uint8_t key[RIG_KEY_BYTES];
    uint64_t digest[2];
    rig_key(0, number, key);
    spw_chunk_digest(RIG_SPACE, 0, key, RIG_KEY_BYTES, digest);
    return digest[0];
}

static void send_tag(uint8_t op, uint64_t number)
{
    uint64_t body[7] = {tag_of(number)};
    struct spw_command head = rig_head(&rig, &one, 0, op);
    head.count = 1;
    head.body_slots = 1;
    cr_assert(rig_send(&one, 0, &head, body));
    rig_settle(&rig);
}

Test(worker_down, what_is_ready_goes_down_once)
{
    start(8, (struct spw_cold_policy){0});
    rig_store(&rig, &one, 0, 1, 4);
    cr_expect_eq(stub.held, 4);
    cr_expect_eq(count(SPW_WORKER_cold_written), 4);
    cr_expect_eq(count(SPW_WORKER_cold_bytes_written), 4 * 128);
    send_tag(SPW_CMD_TOUCH, 1);
    cr_expect_eq(stub.puts, 4, "it is there");
    cr_expect_eq(spw_load_relaxed(&rig.daemon.feed[0]->tier[SPW_TIER_NVME].entries), 4);
    end();
}

Test(worker_down, CE_4_a_slow_tier_drops_what_its_queue_cannot_hold_and_reads_on)
{
    stub.put_ns = RIG_SECOND / 10;
    stub.puts_max = 1;
    start(64, (struct spw_cold_policy){0});
    for (uint64_t key = 1; key <= 1000; key++) {
        rig_store(&rig, &one, 0, key, 1);
        rig_advance(&rig, RIG_SECOND / 1000);
        rig_settle(&rig);
        cr_assert_leq(still_open(), 16 + 1, "16 wait, 1 is written");
    }
    cr_expect_gt(count(SPW_WORKER_cold_dropped_queue), 0);
    cr_expect_eq(count(SPW_WORKER_cold_wanted), 1000);
    cr_assert_gt(still_open(), 1, "writes wait");
    send_tag(SPW_CMD_PROMOTE, 1);
    cr_expect_eq(stub.gets, 1, "the read is next");
    for (int i = 0; i < 40; i++) {
        rig_advance(&rig, RIG_SECOND / 10);
        rig_settle(&rig);
    }
    end();
}

Test(worker_down, CE_4_dropping_ends_at_the_low_mark_and_does_not_flap)
{
    stub.put_ns = RIG_SECOND / 10;
    stub.puts_max = 1;
    start(64, (struct spw_cold_policy){0});
    rig_store(&rig, &one, 0, 1, 20); /* 1 goes, 16 wait, 3 are dropped */
    cr_expect_eq(count(SPW_WORKER_cold_dropped_queue), 3);
    for (int i = 0; i < 7; i++) {
        rig_advance(&rig, RIG_SECOND / 10);
        rig_settle(&rig);
    }
    rig_store(&rig, &one, 0, 30, 1); /* 9 wait */
    cr_expect_eq(count(SPW_WORKER_cold_dropped_queue), 4, "above the low mark still");
    rig_advance(&rig, RIG_SECOND / 10);
    rig_settle(&rig);
    rig_store(&rig, &one, 0, 31, 8); /* 8 wait: takes up to 16 again */
    cr_expect_eq(count(SPW_WORKER_cold_dropped_queue), 4);
    stub.put_ns = 0; /* back to normal */
    rig_advance(&rig, RIG_SECOND * 3);
    rig_settle(&rig);
    for (uint64_t key = 100; key < 200; key++)
        rig_store(&rig, &one, 0, key, 1);
    cr_expect_eq(count(SPW_WORKER_cold_dropped_queue), 4);
    end();
}

Test(worker_down, a_chunk_goes_once_it_was_seen_often_enough)
{
    start(8, (struct spw_cold_policy){.admit_sightings = 3});
    rig_store(&rig, &one, 0, 1, 2);
    cr_expect_eq(count(SPW_WORKER_cold_not_admitted), 2);
    send_tag(SPW_CMD_TOUCH, 1);
    cr_expect_eq(stub.puts, 0);
    send_tag(SPW_CMD_TOUCH, 1);
    cr_expect_eq(stub.puts, 1);
    end();
}

Test(worker_down, wanted_while_it_is_stored_it_is_parked_until_ready)
{
    start(8, (struct spw_cold_policy){.admit_sightings = 2});
    rig_attach(&rig, &two);
    cr_assert(rig_reserve(&rig, &one, 0, 1, 1));
    struct spw_done done = rig_answer(&rig, &one, 0);
    cr_assert(rig_reserve(&rig, &two, 0, 1, 1));
    rig_answer(&rig, &two, 0);
    cr_expect_eq(stub.puts, 0);
    cr_assert(rig_run(&rig, &one, 0, SPW_CMD_STORE, done.ticket, 1, 0));
    rig_settle(&rig);
    cr_expect_eq(count(SPW_WORKER_cold_parked), 1);
    cr_expect_eq(stub.held, 1);
    end();
}

Test(worker_down, write_back_sends_the_oldest_ahead_of_eviction)
{
    start(32, (struct spw_cold_policy){.write_back = true});
    rig_store(&rig, &one, 0, 1, 20);
    cr_expect_eq(stub.puts, 0);
    rig_store(&rig, &one, 0, 21, 12);
    cr_expect_eq(stub.puts, 8, "a few of the oldest");
    for (uint64_t key = 40; key < 60; key++)
        rig_store(&rig, &one, 0, key, 1);
    cr_expect_eq(count(SPW_WORKER_evicted), 20);
    cr_expect_eq(count(SPW_WORKER_cold_dropped_gone), 0);
    cr_expect_geq(stub.held, 20, "all that was evicted is below");
    end();
}

static bool is_below(uint64_t number)
{
    uint8_t key[RIG_KEY_BYTES];
    bool held = false;
    rig_key(0, number, key);
    for (uint32_t id = 0; id < STUB_CHUNKS; id++)
        held |= stub.chunk[id].held && memcmp(stub.chunk[id].name.key, key, RIG_KEY_BYTES) == 0;
    return held;
}

/* Of 32 slots and all that there is below, 1 is held above by now and nowhere else. */
static void lose_the_copy_of_1(void)
{
    start(32, (struct spw_cold_policy){.write_back = true});
    for (uint64_t key = 1; key <= 32; key++)
        rig_store(&rig, &one, 0, key, 1);
    for (uint64_t key = 1; key <= 8; key++)
        send_tag(SPW_CMD_TOUCH, key);
    cr_assert(is_below(1));
    stub.capacity = 1; /* what comes next takes the place of what came first */
    rig_store(&rig, &one, 0, 33, 1);
    stub.capacity = 0;
    cr_assert_not(is_below(1));
    cr_assert_eq(rig_state(&rig, 0, 1, NULL), SPW_READY);
}

Test(worker_down, CE_6_what_is_no_longer_below_is_an_only_copy_and_goes_down_again)
{
    lose_the_copy_of_1();
    for (uint64_t key = 34; key < 70; key++)
        rig_store(&rig, &one, 0, key, 1);
    cr_expect_eq(rig_state(&rig, 0, 1, NULL), SPW_FREE, "it was evicted");
    cr_expect(is_below(1));
    cr_expect_eq(count(SPW_WORKER_cold_dropped_gone), 0);
    end();
}

Test(worker_down, a_days_budget_is_kept)
{
    start(8, (struct spw_cold_policy){.write_budget_bytes = 300});
    rig_store(&rig, &one, 0, 1, 4);
    cr_expect_eq(stub.puts, 2, "two of 128 bytes");
    cr_expect_eq(count(SPW_WORKER_cold_dropped_budget), 2);
    rig_advance(&rig, (24 * 3600 + 900) * RIG_SECOND);
    rig_settle(&rig);
    rig_store(&rig, &one, 0, 11, 2);
    cr_expect_eq(stub.puts, 4);
    end();
}

static void give(uint32_t guaranteed_permille, uint32_t largest_permille)
{
    spw_store_relaxed(&rig.daemon.ctl->space[RIG_SPACE].shares,
                      SPW_SHARES(guaranteed_permille, largest_permille));
    rig_settle(&rig);
}

Test(worker_down, the_tier_is_told_of_shares_once_whenever_they_change)
{
    start(8, (struct spw_cold_policy){0});
    rig_store(&rig, &one, 0, 1, 2);
    cr_expect_eq(stub.shares, 0, "there are none");
    give(300, 0);
    cr_expect_eq(stub.shares, 1);
    cr_expect(stub.share.guaranteed_permille == 300 && stub.share.largest_permille == 0);
    rig_store(&rig, &one, 0, 3, 2);
    cr_expect_eq(stub.shares, 1);
    give(0, 1000);
    cr_expect_eq(stub.shares, 2);
    cr_expect(stub.share.guaranteed_permille == 0 && stub.share.largest_permille == 1000);
    give(200, 500);
    rig_end_worker(&rig, 0);
    rig_start_worker(&rig, 0);
    rig_settle(&rig);
    cr_expect_eq(stub.shares, 4, "a successor tells it again");
    cr_expect(stub.share.guaranteed_permille == 200 && stub.share.largest_permille == 500);
    end();
}

Test(worker_down, a_tier_that_is_full_or_down_is_counted_and_costs_nobody_anything)
{
    start(8, (struct spw_cold_policy){0});
    stub.put_refusal = -ENOSPC;
    rig_store(&rig, &one, 0, 1, 2);
    stub.put_refusal = 0;
    stub.down = true;
    rig_store(&rig, &one, 0, 3, 1);
    stub.down = false;
    stub.put_refusal = -EDQUOT;
    rig_store(&rig, &one, 0, 5, 3);
    stub.put_refusal = 0;
    cr_expect_eq(count(SPW_WORKER_cold_dropped_share), 3);
    cr_expect_eq(count(SPW_WORKER_cold_dropped_full), 2);
    cr_expect_eq(count(SPW_WORKER_cold_dropped_down), 1);
    cr_expect_eq(count(SPW_WORKER_tier_down), 1);
    stub.put_status = -EIO;
    rig_store(&rig, &one, 0, 4, 1);
    cr_expect_eq(count(SPW_WORKER_cold_write_failed), 1);
    cr_expect_eq(count(SPW_WORKER_tier_up), 1);
    cr_expect_eq(rig_claims(&rig, 0), 0);
    end();
}

Test(worker_down, what_is_being_written_is_evicted_last_and_no_store_is_refused)
{
    stub.put_ns = 100 * RIG_SECOND;
    stub.puts_max = 24;
    start(64, (struct spw_cold_policy){0});
    rig_store(&rig, &one, 0, 1, 24);
    cr_assert_eq(stub.puts, 24);
    for (uint64_t key = 100; key < 400; key++)
        rig_store(&rig, &one, 0, key, 1);
    struct spw_entry_copy at;
    for (uint64_t key = 1; key <= 24; key++)
        cr_expect_eq(rig_state(&rig, 0, key, &at), SPW_READY, "%lu", (unsigned long)key);
    cr_expect_eq(count(SPW_WORKER_refused_no_slot), 0);
    rig_advance(&rig, 200 * RIG_SECOND);
    rig_settle(&rig);
    for (uint64_t key = 400; key < 500; key++)
        rig_store(&rig, &one, 0, key, 1);
    cr_expect_eq(rig_state(&rig, 0, 1, &at), SPW_FREE, "they go by age again");
    rig_advance(&rig, 2000 * RIG_SECOND);
    rig_settle(&rig);
    rig_advance(&rig, 2000 * RIG_SECOND);
    rig_settle(&rig);
    end();
}

Test(worker_down, where_all_is_being_written_some_of_it_goes)
{
    stub.put_ns = 100 * RIG_SECOND;
    stub.puts_max = 24;
    start(4, (struct spw_cold_policy){0});
    rig_store(&rig, &one, 0, 1, 4);
    cr_assert_eq(stub.puts, 4);
    rig_reserve(&rig, &one, 0, 5, 1);
    rig_answer(&rig, &one, 0);
    struct spw_entry_copy at;
    cr_expect(rig_state(&rig, 0, 4, &at) != SPW_READY, "the deepest of a chain");
    cr_expect_eq(rig_state(&rig, 0, 1, &at), SPW_READY);
    for (int i = 0; i < 4; i++) {
        rig_advance(&rig, 200 * RIG_SECOND);
        rig_settle(&rig);
    }
    end();
}

Test(worker_down, a_write_that_is_late_keeps_its_slot_until_it_has_ended)
{
    start(4, (struct spw_cold_policy){0});
    stub.put_status = -ETIMEDOUT;
    rig_store(&rig, &one, 0, 1, 1);
    stub.put_status = 0;
    cr_expect_eq(count(SPW_WORKER_cold_write_failed), 1);
    cr_expect_eq(rig_claims(&rig, 0), 1);
    for (uint64_t key = 10; key < 30; key++) {
        rig_reserve(&rig, &one, 0, key, 1); /* now and then none is free */
        struct spw_done done = rig_answer(&rig, &one, 0);
        if (done.ticket == 0)
            continue;
        rig_run(&rig, &one, 0, SPW_CMD_STORE, done.ticket, 1, 0);
        cr_assert_eq(rig_answer(&rig, &one, 0).status, 0);
    }
    cr_expect_eq(rig_claims(&rig, 0), 1);
    stub_cold_release_all(&stub);
    rig_settle(&rig);
    cr_expect_eq(rig_claims(&rig, 0), 0);
    end();
}

/* ---- checksums, and a tier that isn't there --------------------------------------------------- */

Test(worker_down, checksums_made_at_the_store_are_of_what_was_stored_then)
{
    start(8, (struct spw_cold_policy){.sum_at_store = true});
    stub.put_refusal = -EAGAIN; /* the tier is busy for now */
    rig_store(&rig, &one, 0, 1, 1);
    struct spw_entry_copy entry;
    cr_assert_eq(rig_state(&rig, 0, 1, &entry), SPW_READY);
    uint8_t *slot = rig.pool[0].data[0] + spw_slot_off(&rig.pool[0].geometry, entry.slot, 128);
    uint64_t sum = spw_nvme_sum(slot, 128);
    slot[5] ^= 1; /* memory fails before the chunk goes down */
    stub.put_refusal = 0;
    rig_settle(&rig);
    cr_assert_eq(stub.puts, 1);
    cr_expect(stub.summed && stub.sum == sum && sum != spw_nvme_sum(slot, 128));
    end();
    stub = (struct spw_cold){0};
    start(8, (struct spw_cold_policy){0});
    rig_store(&rig, &one, 0, 1, 1);
    cr_expect(stub.puts == 1 && !stub.summed);
    end();
}

Test(worker_down, what_could_not_be_opened_could_not_be_reset)
{
    stub.absent = true;
    start(8, (struct spw_cold_policy){0});
    rig_store(&rig, &one, 0, 1, 1);
    cr_expect_eq(count(SPW_WORKER_tier_down), 1);
    struct spw_command head = rig_head(&rig, &one, 0, SPW_CMD_RESET);
    cr_assert(rig_send(&one, 0, &head, NULL));
    cr_expect_eq(rig_answer(&rig, &one, 0).status, -EIO, "its chunks may come back with it");
    cr_expect_neq(rig_state(&rig, 0, 1, NULL), SPW_READY);
    rig_close(&rig);
}
