/* Promotions at the worker, at their edges: who joins, what runs and what waits, what went without a
 * word, resets. A tier in memory on the test's clock. */
#include <criterion/criterion.h>
#include <string.h>

#include "tests/support/stub_cold.h"
#include "tests/support/worker_rig.h"

TestSuite(worker_up_edges, .timeout = 30);

#define HOLD_NS RIG_SECOND

static struct rig rig;
static struct rig_client one;
static struct spw_cold stub;

static void start_with(struct rig_config config)
{
    config.cold_chunks = STUB_CHUNKS;
    config.below = &stub;
    config.cold_policy = (struct spw_cold_policy){
        .queue_chunks = 64,
        .promote_percent =
            config.cold_policy.promote_percent ? config.cold_policy.promote_percent : 100,
        .hold_ns = HOLD_NS};
    rig_open(&rig, &config);
    rig_attach(&rig, &one);
}

static void start(uint32_t capacity)
{
    start_with((struct rig_config){.capacity = capacity});
}

static uint64_t count(enum spw_worker_counter counter)
{
    return rig_count(&rig, 0, counter);
}

static void store(uint64_t first, uint32_t chunks)
{
    for (uint64_t key = first; key < first + chunks; key++)
        rig_store(&rig, &one, 0, key, 1);
}

static struct spw_done promote_in(uint64_t step, uint64_t first, uint32_t chunks)
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
    head.step = step;
    head.count = (uint16_t)chunks;
    head.body_slots = (uint8_t)((chunks + 6) / 7);
    cr_assert(rig_send(&one, 0, &head, body));
    return rig_answer(&rig, &one, 0);
}

static uint64_t promote(uint64_t first, uint32_t chunks)
{
    return promote_in(0, first, chunks).mask;
}

static void advance(uint64_t ns)
{
    rig_advance(&rig, ns);
    rig_settle(&rig);
}

static uint64_t place(uint64_t key)
{
    struct spw_entry_copy entry;
    cr_assert_eq(rig_state(&rig, 0, key, &entry), SPW_FILLING);
    cr_assert(entry.place_bytes & SPW_PLACE_PROMOTION);
    return entry.place_bytes & ~SPW_PLACE_PROMOTION;
}

static uint32_t id_of(uint64_t number)
{
    uint8_t key[RIG_KEY_BYTES];
    uint32_t id = 0;
    rig_key(0, number, key);
    while (id < STUB_CHUNKS &&
           !(stub.chunk[id].held && memcmp(stub.chunk[id].name.key, key, sizeof key) == 0))
        id++;
    cr_assert_lt(id, STUB_CHUNKS);
    return id;
}

static bool is_read(uint64_t number)
{
    uint32_t id = id_of(number);
    for (int t = 0; t < 64; t++)
        if (stub.transfer[t].open && !stub.transfer[t].put && stub.transfer[t].id == id)
            return true;
    return false;
}

/* The tier doesn't have it any more. */
static void go(uint64_t number, enum spw_cold_why why)
{
    uint32_t id = id_of(number);
    stub.chunk[id].held = false;
    stub.held--;
    stub.listener.gone(stub.listener.ctx, id, why);
}

/* ---- asking ---------------------------------------------------------------------------------- */

Test(worker_up_edges, whoever_joins_has_it_held_for_as_long_as_the_first)
{
    start(4);
    store(1, 12);
    cr_expect_eq(promote(1, 1), 0);
    advance(HOLD_NS * 6 / 10);
    cr_expect_eq(promote(1, 1), 0);
    cr_expect_eq(count(SPW_WORKER_promote_joined), 1);
    advance(HOLD_NS * 6 / 10);
    cr_expect_eq(count(SPW_WORKER_promote_unread), 0);
    advance(HOLD_NS * 5 / 10);
    cr_expect_eq(count(SPW_WORKER_promote_unread), 1);
    rig_close(&rig);
}

Test(worker_up_edges, promotions_have_their_share_and_what_comes_is_counted)
{
    start_with((struct rig_config){.capacity = 8, .cold_policy.promote_percent = 50});
    store(1, 20);
    cr_expect_eq(promote(1, 6), 0x30);
    cr_expect_eq(count(SPW_WORKER_promote_asked), 6);
    cr_expect_eq(count(SPW_WORKER_promote_refused_share), 2);
    cr_expect_eq(count(SPW_WORKER_promoted), 4);
    cr_expect_eq(count(SPW_WORKER_promoted_bytes), 4 * 128);
    rig_close(&rig);
}

Test(worker_up_edges, a_promotion_of_a_fenced_step_is_stale)
{
    start(4);
    store(1, 12);
    spw_store_relaxed(&rig.daemon.feed[0]->fenced[one.c], 7);
    struct spw_done done = promote_in(7, 1, 1);
    cr_expect(done.status == -ESTALE && done.mask == UINT64_MAX);
    cr_expect_eq(stub.gets, 0);
    cr_expect_eq(promote_in(8, 1, 1).status, 0);
    cr_expect_eq(stub.gets, 1);
    rig_close(&rig);
}

/* ---- order ----------------------------------------------------------------------------------- */

Test(worker_up_edges, LK_6_a_place_counts_what_is_being_read)
{
    start(40);
    store(1, 80);
    stub.never = true;
    uint64_t done = spw_load_relaxed(&rig.daemon.feed[0]->promotions.bytes_done);
    promote(1, 40); /* 33 to 40 wait */
    cr_expect_eq(place(33), done + 33 * 1000);
    rig_await(&rig, &one, 0, 40, true);
    spw_client_await_changed(one.view, 0);
    rig_settle(&rig);
    cr_expect_eq(place(40), done + 33 * 1000, "%lu", (unsigned long)place(40));
    cr_expect_eq(place(33), done + 34 * 1000);
    cr_expect_eq(spw_load_relaxed(&rig.daemon.feed[0]->promotions.bytes_awaited), done + 33 * 1000);
    rig_close(&rig);
}

Test(worker_up_edges, what_nobody_awaits_is_passed_over_for_so_long_at_most)
{
    start_with((struct rig_config){.capacity = 40, .overtake_limit_ns = HOLD_NS / 4});
    store(1, 80);
    stub.get_ns = HOLD_NS / 2;
    promote(1, 1);
    stub.get_ns = 100 * HOLD_NS;
    promote(2, 39); /* 33 to 40 wait */
    for (uint64_t key = 34; key <= 40; key++)
        rig_await(&rig, &one, 0, key, true);
    spw_client_await_changed(one.view, 0);
    rig_settle(&rig);
    cr_assert_eq(stub.gets, 32);
    advance(HOLD_NS / 2);
    cr_expect_eq(stub.gets, 33);
    cr_expect(is_read(33) && !is_read(34));
    rig_close(&rig);
}

/* ---- what goes meanwhile --------------------------------------------------------------------- */

Test(worker_up_edges, what_the_tier_lost_without_a_word_is_asked_for_once)
{
    start(4);
    store(1, 12);
    stub.chunk[id_of(1)].held = false;
    stub.held--;
    cr_expect_eq(promote(1, 1), 0);
    cr_expect_neq(rig_state(&rig, 0, 1, NULL), SPW_READY);
    cr_expect_eq(count(SPW_WORKER_promote_failed), 1);
    cr_expect_eq(promote(1, 1), 1);
    cr_expect_eq(count(SPW_WORKER_promote_refused_gone), 1);
    cr_expect_eq(spw_load_relaxed(&rig.daemon.feed[0]->promotions.bytes_done),
                 spw_load_relaxed(&rig.daemon.feed[0]->promotions.bytes_queued));
    rig_close(&rig);
}

Test(worker_up_edges, why_it_went_below_is_counted)
{
    start(4);
    store(1, 12);
    go(1, SPW_COLD_EVICTED);
    go(2, SPW_COLD_CORRUPT);
    go(3, SPW_COLD_CORRUPT);
    go(4, SPW_COLD_FAILED);
    go(5, SPW_COLD_AWAY);
    go(6, SPW_COLD_OLD);
    cr_expect_eq(count(SPW_WORKER_cold_evicted), 1);
    cr_expect_eq(count(SPW_WORKER_cold_corrupt), 2);
    cr_expect_eq(count(SPW_WORKER_cold_lost), 3);
    cr_expect_eq(promote(1, 6), 0x3f);
    rig_close(&rig);
}

Test(worker_up_edges, IO_8_what_came_as_other_bytes_leaves_its_slot_to_others)
{
    start(4);
    store(1, 12);
    stub.get_status = -EBADMSG;
    for (uint64_t key = 1; key <= 4; key++)
        cr_expect_eq(promote(key, 1), 0);
    cr_expect_eq(count(SPW_WORKER_promote_failed), 4);
    cr_expect_eq(rig_slots_in(&rig, 0, SPW_RETIRED), 0);
    cr_expect_eq(spw_load_relaxed(&rig.daemon.feed[0]->tier[SPW_TIER_HOST].leased), 0);
    rig_store(&rig, &one, 0, 50, 4);
    stub.get_status = 0;
    cr_expect_eq(promote(5, 4), 0);
    rig_close(&rig);
}

Test(worker_up_edges, what_is_held_does_not_outlive_a_reset)
{
    start(4);
    store(1, 12);
    cr_assert_eq(promote(1, 4), 0);
    cr_assert_eq(rig_slots_in(&rig, 0, SPW_READY), 4);
    struct spw_command head = rig_head(&rig, &one, 0, SPW_CMD_RESET);
    cr_assert(rig_send(&one, 0, &head, NULL));
    cr_assert_eq(rig_answer(&rig, &one, 0).status, 0);
    cr_expect_eq(rig_slots_in(&rig, 0, SPW_READY), 0);
    rig_store(&rig, &one, 0, 50, 4);
    advance(2 * HOLD_NS);
    cr_expect_eq(count(SPW_WORKER_promote_unread), 0);
    rig_store(&rig, &one, 0, 60, 4);
    rig_close(&rig);
}
