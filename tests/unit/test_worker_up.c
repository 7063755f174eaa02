/* Promotions at the worker: what is read, once, in which order, and for how long it is held; with a
 * tier in memory on the test's clock. */
#include <criterion/criterion.h>
#include <string.h>

#include "tests/support/stub_cold.h"
#include "tests/support/worker_rig.h"

TestSuite(worker_up, .timeout = 30);

#define HOLD_NS RIG_SECOND

static struct rig rig;
static struct rig_client one;
static struct spw_cold stub;

static void start(uint32_t capacity, uint32_t percent)
{
    struct rig_config config = {
        .capacity = capacity,
        .cold_chunks = STUB_CHUNKS,
        .below = &stub,
        .cold_policy = {.queue_chunks = 64, .promote_percent = percent, .hold_ns = HOLD_NS}};
    rig_open(&rig, &config);
    rig_attach(&rig, &one);
}

static uint64_t count(enum spw_worker_counter counter)
{
    return rig_count(&rig, 0, counter);
}

/* Store keys with bytes of their own, one by one: the first are below alone in the end. */
static void store(uint64_t first, uint32_t chunks)
{
    for (uint64_t key = first; key < first + chunks; key++) {
        memset(rig.pool[0].kv[one.c], (int)(key & 0xff), 2 * RIG_BLOCK_BYTES);
        rig_store(&rig, &one, 0, key, 1);
    }
}

static struct spw_done promote(uint64_t first, uint32_t chunks)
{
    uint64_t body[70] = {0};
    struct spw_command head = rig_head(&rig, &one, 0, SPW_CMD_PROMOTE);
    for (uint32_t i = 0; i < chunks; i++) {
        uint8_t key[RIG_KEY_BYTES];
        uint64_t digest[2];
        rig_key(0, first + i, key);
        spw_chunk_digest(RIG_SPACE, 0, key, RIG_KEY_BYTES, digest);
        body[i] = digest[0];
    }
    head.count = (uint16_t)chunks;
    head.body_slots = (uint8_t)((chunks + 6) / 7);
    cr_assert(rig_send(&one, 0, &head, body));
    return rig_answer(&rig, &one, 0);
}

#define host_tier(gauge) spw_load_relaxed(&rig.daemon.feed[0]->tier[SPW_TIER_HOST].gauge)

static uint32_t state(uint64_t key)
{
    return rig_state(&rig, 0, key, NULL);
}

/* Load READY @key; true if its bytes are right. */
static bool load(uint64_t key)
{
    uint8_t want[2 * RIG_BLOCK_BYTES];
    const uint8_t *kv = rig.pool[0].kv[one.c];
    memset(want, (int)(key & 0xff), sizeof want);
    rig_begin(&rig, &one, 0, 0, key, 1);
    struct spw_done done = rig_answer(&rig, &one, 0);
    rig_run(&rig, &one, 0, SPW_CMD_LOAD, done.ticket, 1, 4);
    return rig_answer(&rig, &one, 0).status == 0 &&
           memcmp(kv + 4 * RIG_BLOCK_BYTES, want, sizeof want) == 0;
}

Test(worker_up, CE_1_a_batch_of_six_for_four_slots_is_four_with_their_bytes_a_thousand_times)
{
    start(4, 100);
    store(1, 12);
    for (int round = 0; round < 1000; round++) {
        uint64_t first = round % 2 ? 1 : 7;
        struct spw_done done = promote(first, 6);
        uint32_t there = 0;
        for (uint64_t i = 0; i < 6; i++)
            there += state(first + i) == SPW_READY;
        cr_assert_eq(there, 4, "round %d: %u", round, there);
        cr_assert_eq(done.mask, 0x30, "the last two");
        for (uint64_t i = 0; i < 6; i++)
            cr_assert((done.mask >> i & 1) || load(first + i));
        cr_assert_eq(rig_claims(&rig, 0), 0);
        cr_assert_eq(host_tier(evictable), 4, "all is free for others again");
    }
    cr_expect_eq(count(SPW_WORKER_promote_failed) + count(SPW_WORKER_promote_unread), 0);
    rig_close(&rig);
}

Test(worker_up, CE_3_fifty_that_want_four_each_read_each_chunk_once_and_stores_go_on)
{
    uint64_t left[50];
    uint32_t open = 50, rounds = 0;
    start(8, 50);
    store(1, 208); /* the first 200 are below alone */
    uint32_t puts = stub.puts;
    for (int r = 0; r < 50; r++)
        left[r] = 15;
    for (; open != 0 && rounds < 400; rounds++) {
        for (uint64_t r = 0; r < 50; r++)
            for (uint64_t i = 0; i < 4; i++)
                if (left[r] >> i & 1) {
                    promote(1 + 4 * r + i, 1);
                    cr_assert_leq(host_tier(leased), 4, "half of 8");
                }
        store(1000 + rounds, 1); /* asserts that it finds a slot */
        open = 0;
        for (uint64_t r = 0; r < 50; r++) {
            for (uint64_t i = 0; i < 4; i++)
                if ((left[r] >> i & 1) && state(1 + 4 * r + i) == SPW_READY) {
                    cr_assert(load(1 + 4 * r + i));
                    left[r] &= ~(1ull << i);
                }
            open += left[r] != 0;
        }
    }
    cr_expect_eq(open, 0);
    cr_expect_eq(stub.gets, 200, "each once");
    cr_expect_eq(count(SPW_WORKER_promoted), 200);
    cr_expect_eq(stub.puts - puts, rounds);
    rig_close(&rig);
}

Test(worker_up, LK_6_whoever_asks_for_what_is_on_its_way_joins)
{
    start(8, 100);
    store(1, 20);
    stub.get_ns = RIG_SECOND / 10;
    const struct spw_stream *stream = &rig.daemon.feed[0]->promotions;
    cr_expect_gt(spw_load_relaxed(&stream->rate_bytes_per_s), 0, "else nobody begins to wait");
    cr_expect_eq(promote(1, 1).mask, 0);
    struct spw_entry_copy entry;
    cr_expect_eq(rig_state(&rig, 0, 1, &entry), SPW_FILLING);
    cr_expect(entry.place_bytes & SPW_PLACE_PROMOTION);
    for (int i = 0; i < 50; i++)
        cr_expect_eq(promote(1, 1).mask, 0);
    cr_expect_eq(stub.gets, 1);
    rig_advance(&rig, RIG_SECOND / 10);
    rig_settle(&rig);
    cr_expect_eq(state(1), SPW_READY);
    cr_expect_eq(count(SPW_WORKER_promote_joined), 50);
    cr_expect_eq(spw_load_relaxed(&stream->bytes_done), spw_load_relaxed(&stream->bytes_queued));
    cr_expect_eq(spw_load_relaxed(&stream->rate_bytes_per_s), 10000, "1000 nominal bytes in 0.1 s");
    rig_close(&rig);
}

Test(worker_up, it_is_held_while_somebody_waits_and_a_hold_longer)
{
    start(4, 100);
    store(1, 12);
    promote(1, 4);
    rig_await(&rig, &one, 0, 1, true);
    rig_advance(&rig, HOLD_NS);
    rig_settle(&rig);
    cr_expect_eq(count(SPW_WORKER_promote_unread), 3);
    store(100, 4);
    cr_expect_eq(state(1), SPW_READY, "still waited for");
    rig_await(&rig, &one, 0, 1, false);
    rig_advance(&rig, HOLD_NS);
    rig_settle(&rig);
    cr_expect_eq(count(SPW_WORKER_promote_unread), 4);
    store(200, 4);
    cr_expect_neq(state(1), SPW_READY);
    rig_close(&rig);
}

Test(worker_up, reads_that_nobody_waits_for_any_more_never_begin)
{
    start(40, 100);
    store(1, 80);
    stub.never = true;
    cr_expect_eq(promote(1, 40).mask, 0);
    cr_expect_eq(stub.gets, 32, "as many as the tier takes");
    rig_await(&rig, &one, 0, 40, true);
    rig_advance(&rig, HOLD_NS);
    rig_settle(&rig);
    cr_expect_eq(count(SPW_WORKER_promote_unwanted), 7);
    cr_expect_eq(state(40), SPW_FILLING);
    stub.never = false;
    rig_settle(&rig);
    cr_expect_eq(state(40), SPW_READY);
    cr_expect_eq(promote(39, 1).mask, 0, "below still");
    rig_close(&rig);
}

Test(worker_up, what_is_awaited_is_read_first)
{
    start(40, 100);
    store(1, 80);
    stub.never = true;
    promote(1, 40); /* 33 to 40 wait */
    rig_await(&rig, &one, 0, 40, true);
    spw_client_await_changed(one.view, 0);
    stub.get_ns = RIG_SECOND;
    stub.never = false;
    rig_pass(&rig); /* 32 end */
    rig_settle(&rig);
    cr_expect_eq(stub.gets, 40);
    uint64_t at = UINT64_MAX, oldest = UINT64_MAX;
    struct spw_entry_copy entry;
    rig_state(&rig, 0, 40, &entry);
    at = entry.place_bytes & ~SPW_PLACE_PROMOTION;
    rig_state(&rig, 0, 33, &entry);
    oldest = entry.place_bytes & ~SPW_PLACE_PROMOTION;
    cr_expect_lt(at, oldest, "%lu, %lu", (unsigned long)at, (unsigned long)oldest);
    rig_close(&rig);
}

Test(worker_up, a_read_that_fails_is_a_miss_at_once_and_not_tried_again)
{
    start(4, 100);
    store(1, 12);
    stub.get_status = -EIO;
    cr_expect_eq(promote(1, 1).mask, 0);
    cr_expect_eq(state(1) == SPW_FILLING || state(1) == SPW_READY, false);
    cr_expect_eq(count(SPW_WORKER_promote_failed), 1);
    cr_expect_eq(promote(1, 1).mask, 1);
    cr_expect_eq(count(SPW_WORKER_promote_refused_gone), 1);
    cr_expect_eq(stub.gets, 1);
    rig_close(&rig);
}

Test(worker_up, a_read_that_is_late_keeps_its_slot_out_of_use)
{
    start(4, 100);
    store(1, 12);
    stub.get_status = -ETIMEDOUT;
    promote(1, 1);
    stub.get_status = 0;
    cr_expect_eq(count(SPW_WORKER_promote_failed), 1);
    cr_expect_eq(rig_slots_in(&rig, 0, SPW_RETIRED), 1);
    rig_advance(&rig, 10 * RIG_SECOND);
    rig_settle(&rig);
    cr_expect_eq(rig_slots_in(&rig, 0, SPW_RETIRED), 1);
    stub_cold_release_all(&stub);
    rig_advance(&rig, RIG_SECOND);
    rig_settle(&rig);
    cr_expect_eq(rig_slots_in(&rig, 0, SPW_RETIRED), 0);
    rig_close(&rig);
}

Test(worker_up, a_reset_is_answered_when_the_medium_knows_and_leaves_nothing)
{
    struct spw_done done;
    start(4, 100);
    store(1, 12);
    stub.get_ns = RIG_SECOND;
    promote(1, 2);
    stub.reset_waits = true;
    struct spw_command head = rig_head(&rig, &one, 0, SPW_CMD_RESET);
    cr_assert(rig_send(&one, 0, &head, NULL));
    rig_settle(&rig);
    cr_expect(!rig_reap(&one, 0, &done), "not yet");
    cr_expect_eq(stub.held, 0);
    rig_advance(&rig, RIG_SECOND);
    rig_settle(&rig);
    cr_expect_eq(rig_slots_in(&rig, 0, SPW_READY), 0, "reads that ran are void");
    rig_close(&rig);
}

Test(worker_up, a_reset_while_the_tier_is_down_says_so)
{
    start(4, 100);
    store(1, 12);
    stub.down = true;
    struct spw_command head = rig_head(&rig, &one, 0, SPW_CMD_RESET);
    cr_assert(rig_send(&one, 0, &head, NULL));
    cr_expect_eq(rig_answer(&rig, &one, 0).status, -EIO);
    cr_expect_eq(rig_slots_in(&rig, 0, SPW_READY), 0);
    stub.down = false;
    cr_assert(rig_send(&one, 0, &head, NULL));
    cr_expect_eq(rig_answer(&rig, &one, 0).status, 0);
    rig_close(&rig);
}

Test(worker_up, a_successor_finds_what_is_below)
{
    start(4, 100);
    store(1, 12);
    rig_end_worker(&rig, 0);
    rig_start_worker(&rig, 0);
    spw_store_release(&rig.daemon.ctl->worker[0].incarnation,
                      spw_load_relaxed(&rig.daemon.feed[0]->incarnation));
    rig_settle(&rig);
    cr_expect_eq(count(SPW_WORKER_cold_found), 12);
    cr_expect_eq(promote(1, 2).mask, 0);
    cr_expect(load(1) && load(2));
    rig_close(&rig);
}

/* Passes that it takes without a rest, and whether they were all there was to do. */
static uint32_t passes_at_once(void)
{
    uint64_t due_ns;
    uint32_t passes = 0;
    do
        spw_worker_pass(rig.worker[0], &due_ns);
    while (passes++ < 1000 && due_ns <= rig.now_ns);
    return passes;
}

Test(worker_up, a_space_that_opens_later_gets_what_is_below_without_a_rest)
{
    start(4, 100);
    store(1, 1500);
    struct spw_space_slot *space = &rig.daemon.ctl->space[RIG_SPACE];
    spw_store_relaxed(&space->ready, 0);
    rig_end_worker(&rig, 0);
    rig_start_worker(&rig, 0);
    rig_settle(&rig);
    cr_assert_eq(count(SPW_WORKER_cold_found), stub.held);
    cr_assert_eq(state(1), SPW_FREE, "its space isn't open");
    spw_store_release(&space->ready, 1);
    uint32_t passes = passes_at_once();
    cr_expect(passes > 4 && passes < 100, "%u", passes);
    spw_store_release(&rig.daemon.ctl->worker[0].incarnation,
                      spw_load_relaxed(&rig.daemon.feed[0]->incarnation));
    cr_expect_eq(promote(1, 1).mask, 0);
    rig_close(&rig);
}

Test(worker_up, nonsense_is_refused)
{
    uint64_t body[7] = {0};
    start(4, 100);
    struct spw_command head = rig_head(&rig, &one, 0, SPW_CMD_PROMOTE);
    head.count = 65;
    cr_assert(rig_send(&one, 0, &head, NULL));
    struct spw_done done = rig_answer(&rig, &one, 0);
    cr_expect(done.status == -EINVAL && done.mask == UINT64_MAX);
    head = rig_head(&rig, &one, 0, SPW_CMD_PROMOTE);
    head.count = 8;
    head.body_slots = 1;
    cr_assert(rig_send(&one, 0, &head, body));
    cr_expect_eq(rig_answer(&rig, &one, 0).status, -EINVAL);
    cr_expect_eq(promote(77, 1).mask, 1);
    rig_close(&rig);
}
