/* A client's object: steps, hand-over, what workers read of it. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "shm/client.h"

TestSuite(client, .timeout = 20);

static const struct spw_geometry geometry = {
    .workers = 3,
    .clients = 2,
    .capacity_chunks = 70,
    .slots = 80,
    .slot_bytes = 64,
    .update_records = 8,
    .gate_records = 2,
    .command_slots = 8,
    .completion_slots = 8,
    .index_buckets = 8,
};

static struct spw_client_view view;

static void start(void)
{
    struct spw_client_map map;
    spw_client_map_init(&geometry, &map);
    void *bytes = aligned_alloc(64, map.size_bytes);
    memset(bytes, 0, map.size_bytes);
    spw_client_view_init(&view, bytes, &geometry);
}

static void stop(void)
{
    free(view.head);
}

static struct spw_client_claim claim(uint32_t k)
{
    struct spw_client_claim c;
    spw_client_claim_read(&view, k, &c);
    return c;
}

/* Send one command of one slot to worker k, or take one. */
static void send(uint32_t k)
{
    struct spw_lane_producer lane;
    spw_lane_producer_init(&lane, &view.command[k * geometry.command_slots], geometry.command_slots,
                           &view.head->lane[k].command_tail,
                           &view.head->worker_lane[k].command_head);
    cr_assert_geq(spw_lane_room(&lane, 1), 1);
    spw_lane_write(&lane, 0, "x", 1);
    spw_lane_send(&lane, 1);
}

static int take(uint32_t k)
{
    struct spw_lane_consumer lane;
    char payload[SPW_LANE_PAYLOAD_BYTES];
    spw_lane_consumer_init(&lane, &view.command[k * geometry.command_slots], geometry.command_slots,
                           &view.head->worker_lane[k].command_head);
    int there = spw_lane_peek(&lane, payload);
    if (there)
        spw_lane_release(&lane, 1);
    return there;
}

Test(client, words_of_a_step_begin_old_move_on_and_end_at_0, .init = start, .fini = stop)
{
    const uint64_t old[3] = {0, 41, 7};
    cr_assert_eq(spw_client_step_begin(&view, old), 1);
    cr_assert_eq(claim(0).applied, 1, "drained to none is 1, not outside a step");
    cr_assert_eq(claim(1).applied, 42);
    cr_assert_eq(claim(2).applied, 8);
    cr_assert_eq(claim(2).step, 1);
    spw_client_step_applied(&view, 1, 50);
    cr_assert_eq(claim(1).applied, 51);
    cr_assert_eq(claim(0).applied, 1);
    spw_client_step_end(&view);
    for (uint32_t k = 0; k < 3; k++)
        cr_assert_eq(claim(k).applied, 0);
    cr_assert_eq(claim(0).step, 1);
    cr_assert_eq(spw_client_step_begin(&view, old), 2);
}

/* Case 16: a word is 0 only outside a step, and claims no record that was not drained. */
Test(client, case16_words_at_every_wrap, .init = start, .fini = stop)
{
    const uint64_t positions[] = {
        0,         1, UINT32_MAX - 1ull, UINT32_MAX, (1ull << 63) - 1, 1ull << 63, UINT64_MAX - 1,
        UINT64_MAX};
    for (size_t i = 0; i < sizeof positions / sizeof positions[0]; i++) {
        uint64_t pos = positions[i], word = spw_client_applied_word(pos);
        cr_assert_neq(word, 0);
        cr_assert(!spw_pos_before(pos + 1, word), "not drained, but said so");
        /* a record at or before pos - 1 may go; one behind pos may not */
        cr_assert(spw_pos_before(pos - 1, word));
        cr_assert(!spw_pos_before(pos + 1, word));
    }
}

Test(client, untaken_commands_are_seen_in_any_lane, .init = start, .fini = stop)
{
    for (uint32_t k = 0; k < 3; k++) {
        cr_assert(!spw_client_has_untaken(&view));
        send(k);
        cr_assert(spw_client_has_untaken(&view));
        send(k);
        cr_assert_eq(take(k), 1);
        cr_assert(spw_client_has_untaken(&view));
        cr_assert_eq(take(k), 1);
        cr_assert(!spw_client_has_untaken(&view));
    }
}

Test(client, take_over_empties_the_object_and_raises_the_generation, .init = start, .fini = stop)
{
    const uint64_t old[3] = {9, 9, 9};
    cr_assert_eq(spw_client_take_over(&view), 1);
    spw_client_step_begin(&view, old);
    spw_bit_set(view.pin, spw_claim_bit(view.claim_words, 2, 79));
    spw_bit_set(view.pin, spw_claim_bit(view.claim_words, 0, 0));
    spw_client_await(&view, 1, 79, true);
    uint64_t changes = spw_client_awaited_changes(&view, 1);
    send(1);
    send(1);
    spw_store_relaxed(&view.head->worker_lane[1].completion_tail, 5);
    /* the holder died here, inside its step */
    cr_assert_eq(spw_client_take_over(&view), 2);
    cr_assert_eq(claim(0).generation, 2);
    for (uint32_t k = 0; k < 3; k++)
        cr_assert_eq(claim(k).applied, 0);
    for (uint64_t w = 0; w < 3 * view.claim_words; w++)
        cr_assert_eq(spw_load_relaxed(&view.pin[w]) | spw_load_relaxed(&view.awaited[w]), 0);
    cr_assert_neq(spw_client_awaited_changes(&view, 1), changes, "workers look again");
    cr_assert(!spw_client_has_untaken(&view), "its predecessor's commands don't count");
    cr_assert_eq(spw_load_relaxed(&view.head->lane[1].command_base), 2);
    cr_assert_eq(spw_load_relaxed(&view.head->lane[1].completion_head), 5);
    cr_assert_eq(spw_client_step_begin(&view, old), 2, "step numbers go on");
}

Test(client, commands_after_a_hand_over_wait_for_the_acknowledgement, .init = start, .fini = stop)
{
    struct spw_lane_producer lane;
    spw_client_take_over(&view);
    for (int i = 0; i < 3; i++)
        send(0);
    spw_store_relaxed(&view.command[4].seq, 5); /* and half of a message of two slots */
    spw_client_take_over(&view);
    uint64_t base = spw_load_relaxed(&view.head->lane[0].command_base);
    cr_assert_eq(base, 5);
    spw_store_relaxed(&view.head->worker_lane[0].command_head, base);
    cr_assert_eq(take(0), 0, "nothing of the old holder is at the new base");
    spw_lane_producer_init(&lane, view.command, 8, &view.head->lane[0].command_tail,
                           &view.head->worker_lane[0].command_head);
    cr_assert_eq(spw_lane_room(&lane, 8), 8);
    send(0);
    cr_assert(spw_client_has_untaken(&view));
    cr_assert_eq(take(0), 1);
    cr_assert(!spw_client_has_untaken(&view));
}

Test(client, lane_of_a_worker_that_never_acknowledged_is_no_untaken_command, .init = start,
     .fini = stop)
{
    spw_client_take_over(&view);
    send(2); /* worker 2 is dead: nobody takes it */
    cr_assert(spw_client_has_untaken(&view));
    spw_client_take_over(&view);
    cr_assert(!spw_client_has_untaken(&view));
}

Test(client, take_over_begins_beyond_everything_seen_near_every_wrap, .init = start, .fini = stop)
{
    const uint64_t tails[] = {0, (1ull << 32) - 1, (1ull << 63) - 1, UINT64_MAX - 1, UINT64_MAX};
    for (size_t i = 0; i < sizeof tails / sizeof tails[0]; i++) {
        uint64_t tail = tails[i];
        for (uint32_t s = 0; s < geometry.command_slots; s++)
            spw_store_relaxed(&view.command[(tail - 1 - s) & 7].seq, tail - s);
        spw_store_relaxed(&view.command[(tail + 1) & 7].seq, tail + 2);
        spw_store_relaxed(&view.head->lane[0].command_tail, tail);
        spw_store_relaxed(&view.head->worker_lane[0].command_head, tail - 3);
        spw_client_take_over(&view);
        cr_assert_eq(spw_load_relaxed(&view.head->lane[0].command_base), tail + 2);
        cr_assert_eq(spw_load_relaxed(&view.head->lane[0].command_tail), tail + 2);
        cr_assert(!spw_client_has_untaken(&view));
    }
}

Test(client, claim_bits_of_shards_and_slots_don_t_meet)
{
    const uint64_t words = spw_claim_words(&geometry);
    cr_assert_eq(words, 2);
    cr_assert_eq(spw_claim_bit(words, 0, 79), 79);
    cr_assert_eq(spw_claim_bit(words, 1, 0), 128);
    cr_assert_eq(spw_claim_bit(words, 2, 5), 261);
}
