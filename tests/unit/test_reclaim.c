/* A HIT stays true until it is loaded: when a retired slot may be given out again. Client 0 and 1
 * are clients, shard 0 is the owner, worker 1 may copy out of it. */
#include <criterion/criterion.h>
#include <string.h>

#include "tests/support/tiny_pool.h"
#include "tier/reclaim.h"

static struct tiny_pool tiny;
static struct spw_shard *owner, *peer;

static void start(uint32_t capacity, uint32_t slots)
{
    struct spw_geometry geometry = tiny_geometry(2, 5, capacity, slots);
    cr_assert_eq(tiny_pool_make(&tiny, &geometry), 0);
    owner = tiny_shard_open(&tiny, 0);
    peer = tiny_shard_open(&tiny, 1);
    cr_assert(owner && peer);
    for (uint32_t c = 0; c < 5; c++)
        cr_assert_eq(spw_client_take_over(&tiny.pool.client[c]), 1);
}

static void stop(void)
{
    spw_shard_close(owner);
    spw_shard_close(peer);
    tiny_pool_free(&tiny);
}

static struct spw_client_view *client(uint32_t c)
{
    return &tiny.pool.client[c];
}

/* A command of client @c waits in its lane to worker @k, or is taken. */
static void send(uint32_t c, uint32_t k)
{
    spw_add_own(&client(c)->head->lane[k].command_tail, 1);
}

static void take(uint32_t c, uint32_t k)
{
    spw_add_own(&client(c)->head->worker_lane[k].command_head, 1);
}

static uint64_t fill_of(uint32_t slot)
{
    struct spw_entry_copy entry;
    cr_assert_eq(spw_shard_entry(owner, slot, &entry), 0);
    return entry.fill;
}

static uint32_t state_of(uint32_t slot)
{
    struct spw_entry_copy entry;
    cr_assert_eq(spw_shard_entry(owner, slot, &entry), 0);
    return entry.state;
}

/* ---- words ----------------------------------------------------------------------------------- */

Test(reclaim, a_step_that_began_before_the_record_holds_its_slot)
{
    start(2, 3);
    uint32_t slot = tiny_store(owner, 1);
    spw_shard_flush(owner);
    tiny_step_begin(&tiny, 0);
    spw_shard_retire(owner, slot);
    cr_assert_eq(spw_shard_reclaim(owner, 0), 0);
    spw_client_step_end(client(0));
    cr_assert_eq(spw_shard_reclaim(owner, 0), 1);
    cr_assert_eq(state_of(slot), SPW_FREE);
    stop();
}

/* The word is 1 + position: a view drained to the record just before it doesn't contain it. */
Test(reclaim, a_view_that_contains_the_record_releases_its_slot_inside_the_step)
{
    start(2, 3);
    uint32_t slot = tiny_store(owner, 1);
    spw_shard_retire(owner, slot);
    spw_shard_flush(owner);
    uint64_t position = spw_load_relaxed(&tiny.pool.feed[0]->tail);
    tiny_step_begin(&tiny, 0);
    spw_client_step_applied(client(0), 0, position - 1);
    cr_assert_eq(spw_shard_reclaim(owner, 0), 0);
    spw_client_step_applied(client(0), 0, position);
    cr_assert_eq(spw_shard_reclaim(owner, 0), 1);
    stop();
}

Test(reclaim, older_slots_come_back_while_younger_ones_are_held)
{
    start(4, 5);
    uint32_t first = tiny_store(owner, 1), second = tiny_store(owner, 2);
    spw_shard_retire(owner, first);
    spw_shard_flush(owner);
    tiny_step_begin(&tiny, 1);
    spw_shard_retire(owner, second);
    cr_assert_eq(spw_shard_reclaim(owner, 0), 1);
    cr_assert(state_of(first) == SPW_FREE && state_of(second) == SPW_RETIRED);
    stop();
}

Test(reclaim, words_of_the_dead_don_t_count)
{
    start(2, 3);
    uint32_t slot = tiny_store(owner, 1);
    spw_shard_flush(owner);
    tiny_step_begin(&tiny, 0);
    tiny_pin(&tiny, 0, 0, slot, true);
    send(0, 1);
    spw_shard_retire(owner, slot);
    cr_assert_eq(spw_shard_reclaim(owner, 0), 0);
    tiny.dead[0] = true;
    cr_assert_eq(spw_shard_reclaim(owner, 0), 1);
    stop();
}

/* ---- pins ------------------------------------------------------------------------------------ */

Test(reclaim, a_pin_counts_inside_a_step_and_while_a_command_is_untaken)
{
    start(2, 3);
    uint32_t slot = tiny_store(owner, 1);
    spw_shard_flush(owner);
    tiny_step_begin(&tiny, 0);
    tiny_pin(&tiny, 0, 0, slot, true);
    spw_shard_retire(owner, slot);
    spw_shard_flush(owner);
    spw_client_step_applied(client(0), 0, spw_load_relaxed(&tiny.pool.feed[0]->tail));
    cr_assert_eq(spw_shard_reclaim(owner, 0), 0, "inside its step");
    send(0, 1);
    spw_client_step_end(client(0));
    cr_assert_eq(spw_shard_reclaim(owner, 0), 0, "command to a peer untaken");
    take(0, 1);
    cr_assert_eq(spw_shard_reclaim(owner, 0), 1);
    stop();
}

/* CE-2: looked up and never loaded, a thousand times. */
Test(reclaim, a_pin_that_nobody_follows_up_holds_nothing_after_its_step)
{
    start(8, 9);
    for (uint64_t n = 0; n < 1000; n++) {
        tiny_step_begin(&tiny, n % 2);
        uint32_t slot = tiny_store(owner, n);
        cr_assert_neq(slot, UINT32_MAX, "store %lu", (unsigned long)n);
        tiny_pin(&tiny, n % 2, 0, slot, true);
        spw_client_step_end(client(n % 2));
        spw_shard_reclaim(owner, n);
    }
    for (uint32_t slot = 0; slot < 9; slot++)
        if (state_of(slot) == SPW_READY)
            spw_shard_retire(owner, slot);
    spw_shard_reclaim(owner, 0);
    cr_assert_eq(tiny_stats(owner).free, 9);
    stop();
}

/* CE-2: one client's release, even twice, is not another's. */
Test(reclaim, one_client_s_release_leaves_the_other_s_pin)
{
    start(2, 3);
    uint32_t slot = tiny_store(owner, 1);
    spw_shard_flush(owner);
    for (uint32_t c = 0; c < 2; c++) {
        tiny_step_begin(&tiny, c);
        tiny_pin(&tiny, c, 0, slot, true);
        send(c, 0);
        spw_client_step_end(client(c));
    }
    spw_shard_retire(owner, slot);
    tiny_pin(&tiny, 0, 0, slot, false);
    tiny_pin(&tiny, 0, 0, slot, false);
    cr_assert_eq(spw_shard_reclaim(owner, 0), 0);
    take(1, 0);
    cr_assert_eq(spw_shard_reclaim(owner, 0), 1);
    stop();
}

Test(reclaim, a_pin_of_another_shard_s_slot_holds_nothing_here)
{
    start(2, 3);
    uint32_t slot = tiny_store(owner, 1);
    spw_shard_flush(owner);
    tiny_pin(&tiny, 0, 1, slot, true);
    send(0, 0);
    spw_shard_retire(owner, slot);
    cr_assert_eq(spw_shard_reclaim(owner, 0), 1);
    stop();
}

/* ---- fence ----------------------------------------------------------------------------------- */

Test(reclaim, a_client_stuck_in_a_step_is_fenced_by_its_number)
{
    start(2, 3);
    uint32_t slot = tiny_store(owner, 1);
    spw_shard_flush(owner);
    uint64_t step = tiny_step_begin(&tiny, 0);
    tiny_pin(&tiny, 0, 0, slot, true);
    send(0, 0);
    spw_shard_retire(owner, slot);
    cr_assert_eq(spw_shard_reclaim(owner, 5), 0);
    cr_assert_eq(spw_shard_reclaim(owner, 5 + TINY_FENCE_NS - 1), 0);
    cr_assert(!spw_step_fenced(tiny.pool.feed[0], 0, step));
    cr_assert_eq(spw_shard_reclaim(owner, 5 + TINY_FENCE_NS), 1);
    cr_assert_eq(tiny_stats(owner).fenced, 1);
    cr_assert(spw_step_fenced(tiny.pool.feed[0], 0, step));
    cr_assert(!spw_step_fenced(tiny.pool.feed[0], 0, step + 1), "the next step is a new one");
    cr_assert(!spw_step_fenced(tiny.pool.feed[0], 1, step), "nor any other client's");
    cr_assert(!spw_step_fenced(tiny.pool.feed[0], 0, 0), "a command outside a step is never void");
    stop();
}

/* A client that leaves a step with commands that aren't taken, because it takes no answers or its
 * worker is stuck, doesn't hold slots for ever either. */
Test(reclaim, a_client_whose_commands_stay_untaken_after_its_step_is_fenced_too)
{
    start(2, 3);
    uint32_t slot = tiny_store(owner, 1);
    spw_shard_flush(owner);
    uint64_t step = tiny_step_begin(&tiny, 0);
    tiny_pin(&tiny, 0, 0, slot, true);
    send(0, 1);
    spw_shard_retire(owner, slot);
    cr_assert_eq(spw_shard_reclaim(owner, 5), 0);
    spw_client_step_end(client(0));
    const uint64_t ended = 5 + TINY_FENCE_NS;
    cr_assert_eq(spw_shard_reclaim(owner, ended), 0, "its time starts anew behind the step");
    cr_assert_eq(spw_shard_reclaim(owner, ended + TINY_FENCE_NS - 1), 0);
    cr_assert(!spw_step_fenced(tiny.pool.feed[0], 0, step));
    uint64_t fill = fill_of(slot);
    cr_assert_eq(spw_shard_reclaim(owner, ended + TINY_FENCE_NS), 1);
    cr_assert(spw_step_fenced(tiny.pool.feed[0], 0, step));
    cr_assert_eq(spw_shard_claim(peer, 0, slot, fill), -ESTALE, "whoever takes it later");
    stop();
}

Test(reclaim, a_fence_stands_for_later_slots_until_the_client_moves_on)
{
    start(3, 5);
    uint32_t slot[3];
    for (uint64_t n = 0; n < 3; n++)
        slot[n] = tiny_store(owner, n);
    spw_shard_flush(owner);
    tiny_step_begin(&tiny, 0);
    spw_shard_retire(owner, slot[0]);
    spw_shard_reclaim(owner, 0);
    cr_assert_eq(spw_shard_reclaim(owner, TINY_FENCE_NS), 1);
    spw_shard_retire(owner, slot[1]);
    cr_assert_eq(spw_shard_reclaim(owner, TINY_FENCE_NS + 1), 1, "still in the fenced step");
    tiny_step_begin(&tiny, 0);
    spw_shard_retire(owner, slot[2]);
    cr_assert_eq(spw_shard_reclaim(owner, TINY_FENCE_NS + 2), 0, "its new step counts");
    cr_assert_eq(tiny_stats(owner).fenced, 1);
    stop();
}

Test(reclaim, a_client_that_goes_from_step_to_step_is_not_fenced_for_what_is_young)
{
    start(2, 3);
    uint32_t slot = tiny_store(owner, 1);
    spw_shard_flush(owner);
    uint64_t position = spw_load_relaxed(&tiny.pool.feed[0]->tail);
    spw_shard_retire(owner, slot);
    uint64_t from = 100 * TINY_FENCE_NS, now = from;
    for (; now < from + SPW_RECLAIM_KEPT_LIMITS * TINY_FENCE_NS; now += TINY_FENCE_NS / 2) {
        uint64_t positions[2] = {position, 0}; /* it never drains: the worst that is honest */
        spw_client_step_begin(client(0), positions);
        cr_assert_eq(spw_shard_reclaim(owner, now), 0);
    }
    cr_assert_eq(tiny_stats(owner).fenced, 0);
    stop();
}

/* Going from step to step keeps no slot for ever: not by words, not by pins that are never reaped, and
 * not by taking turns. */
Test(reclaim, a_slot_that_is_kept_for_too_long_comes_back_whoever_steps_on)
{
    for (int by_pin = 0; by_pin < 2; by_pin++) {
        start(3, 5);
        uint32_t slot = tiny_store(owner, 1), young;
        spw_shard_flush(owner);
        uint64_t position = spw_load_relaxed(&tiny.pool.feed[0]->tail);
        uint64_t from = 100 * TINY_FENCE_NS, now = from, freed_at = 0;
        for (uint32_t c = 0; c < 2 && by_pin; c++)
            tiny_pin(&tiny, c, 0, slot, true);
        spw_shard_retire(owner, slot);
        for (uint32_t turn = 0; !freed_at && now < from + 20 * TINY_FENCE_NS; turn++) {
            uint64_t positions[2] = {by_pin ? position + 100 : position, 0};
            spw_client_step_begin(client(turn % 2), positions);
            if (spw_shard_reclaim(owner, now))
                freed_at = now;
            spw_client_step_end(client((turn + 1) % 2));
            now += TINY_FENCE_NS / 10;
        }
        cr_expect_geq(freed_at - from, SPW_RECLAIM_KEPT_LIMITS * TINY_FENCE_NS, "by pin: %d",
                      by_pin);
        cr_expect_leq(freed_at - from, (2 * SPW_RECLAIM_KEPT_LIMITS + 1) * TINY_FENCE_NS);
        cr_expect_geq(tiny_stats(owner).fenced, 1);
        /* what is retired now has its own time */
        young = tiny_store(owner, 2);
        spw_shard_flush(owner);
        uint64_t positions[2] = {spw_load_relaxed(&tiny.pool.feed[0]->tail), 0};
        spw_client_step_begin(client(0), positions);
        spw_shard_retire(owner, young);
        cr_expect_eq(spw_shard_reclaim(owner, now), 0);
        stop();
    }
}

/* A new holder of the object counts its own time, though the step number went on by one only. */
Test(reclaim, a_new_generation_is_not_fenced_for_the_old_one_s_time)
{
    start(2, 3);
    uint32_t slot = tiny_store(owner, 1);
    spw_shard_flush(owner);
    tiny_step_begin(&tiny, 0);
    spw_shard_retire(owner, slot);
    cr_assert_eq(spw_shard_reclaim(owner, 0), 0);
    cr_assert_eq(spw_client_take_over(client(0)), 2);
    uint64_t positions[2] = {spw_load_relaxed(&tiny.pool.feed[0]->tail) - 1, 0};
    spw_client_step_begin(client(0), positions);
    cr_assert_eq(spw_shard_reclaim(owner, TINY_FENCE_NS), 0);
    cr_assert_eq(tiny_stats(owner).fenced, 0);
    stop();
}

/* CE-12: everybody holds two and asks for one more; within the limit somebody proceeds. */
Test(reclaim, holders_that_all_wait_for_a_slot_don_t_wait_for_ever)
{
    for (uint64_t seed = 0; seed < 100; seed++) {
        start(8, 9);
        uint32_t slot[8], got;
        for (uint64_t n = 0; n < 8; n++)
            slot[n] = tiny_store(owner, n);
        spw_shard_flush(owner);
        for (uint32_t c = 0; c < 4; c++) {
            tiny_step_begin(&tiny, c);
            for (uint32_t i = 0; i < 2; i++)
                tiny_pin(&tiny, c, 0, slot[(2 * c + i + seed) % 8], true);
        }
        uint32_t proceeded = 0;
        for (uint64_t now = 0; now <= 2 * TINY_FENCE_NS; now += TINY_FENCE_NS / 4) {
            spw_shard_reclaim(owner, now);
            for (uint64_t c = 0; c < 4; c++) {
                uint64_t n = 20 + proceeded;
                if ((seed >> c & 1) == 0 && tiny_reserve(owner, n, NULL, &got) == SPW_RESERVED) {
                    spw_shard_ready(owner, got);
                    proceeded++;
                }
            }
        }
        cr_assert((seed & 15) == 15 || proceeded >= 4, "seed %lu", (unsigned long)seed);
        stop();
    }
}

/* ---- claims of copying workers --------------------------------------------------------------- */

static uint64_t all[] = {UINT64_MAX}; /* protect: no victim for one more slot */

/* The only slot beside the full capacity is under a peer's copy: it is FREE and not given out. */
static uint32_t claimed_and_freed(void)
{
    start(1, 2);
    uint32_t slot = tiny_store(owner, 1), other;
    cr_assert_eq(spw_shard_claim(peer, 0, slot, fill_of(slot)), 0);
    cr_assert_eq(tiny_reserve(owner, 2, NULL, &other), SPW_RESERVED);
    spw_shard_ready(owner, other);
    cr_assert_eq(spw_shard_reclaim(owner, 0), 1);
    cr_assert_eq(state_of(slot), SPW_FREE);
    cr_assert_eq(tiny_reserve(owner, 3, all, &other), SPW_NO_SLOT);
    cr_assert_eq(tiny_stats(owner).ready, 1, "nothing evicted for it");
    return slot;
}

Test(reclaim, a_slot_is_not_given_out_while_a_peer_copies_from_it)
{
    uint32_t slot = claimed_and_freed(), got;
    spw_shard_unclaim(peer, 0, slot);
    cr_assert_eq(tiny_reserve(owner, 3, NULL, &got), SPW_RESERVED);
    cr_assert_eq(got, slot);
    stop();
}

Test(reclaim, a_dead_worker_s_claims_count_until_its_successor_is_there)
{
    uint32_t slot = claimed_and_freed(), got;
    spw_shard_close(peer); /* as good as dead: the bit stands */
    cr_assert_eq(tiny_reserve(owner, 3, all, &got), SPW_NO_SLOT);
    spw_shard_close(owner); /* and so does the owner's successor find it */
    owner = tiny_shard_open(&tiny, 0);
    cr_assert_eq(tiny_reserve(owner, 3, all, &got), SPW_NO_SLOT);
    peer = tiny_shard_open(&tiny, 1);
    cr_assert_eq(tiny_reserve(owner, 3, NULL, &got), SPW_RESERVED);
    cr_assert_eq(got, slot);
    stop();
}

Test(reclaim, two_loads_of_a_slot_hold_it_until_both_have_ended)
{
    start(1, 2);
    uint32_t slot = tiny_store(owner, 1), got;
    for (uint32_t i = 0; i < 2; i++)
        cr_assert_eq(spw_shard_claim(owner, 0, slot, fill_of(slot)), 0);
    cr_assert_eq(tiny_reserve(owner, 2, NULL, &got), SPW_RESERVED);
    spw_shard_ready(owner, got);
    cr_assert_eq(spw_shard_reclaim(owner, 0), 1);
    spw_shard_unclaim(owner, 0, slot);
    cr_assert_eq(tiny_reserve(owner, 3, all, &got), SPW_NO_SLOT);
    spw_shard_unclaim(owner, 0, slot);
    cr_assert_eq(tiny_reserve(owner, 3, NULL, &got), SPW_RESERVED);
    stop();
}

Test(reclaim, a_claim_takes_a_chunk_retired_since_the_decision_but_not_another)
{
    start(2, 3);
    uint32_t slot = tiny_store(owner, 1);
    uint64_t fill = fill_of(slot);
    cr_assert_eq(spw_shard_claim(peer, 0, slot, fill + 1), -ESTALE);
    cr_assert_eq(spw_shard_claim(peer, 0, slot, 0), -ESTALE);
    spw_shard_flush(owner);
    tiny_step_begin(&tiny, 0);
    spw_shard_retire(owner, slot);
    cr_assert_eq(spw_shard_claim(peer, 0, slot, fill), 0);
    spw_shard_unclaim(peer, 0, slot);
    spw_client_step_end(client(0));
    spw_shard_reclaim(owner, 0);
    cr_assert_eq(spw_shard_claim(peer, 0, slot, fill), -ESTALE);
    uint32_t again = UINT32_MAX;
    for (uint64_t n = 1; n < 9 && again != slot; n++) {
        again = tiny_store(owner, n);
        spw_shard_reclaim(owner, 0);
    }
    cr_assert_eq(again, slot);
    cr_assert_eq(spw_shard_claim(peer, 0, slot, fill), -ESTALE,
                 "rings 17: a fill never comes back");
    stop();
}

/* CE-10: slot numbers from outside. */
Test(reclaim, a_claim_of_a_slot_that_is_none_is_refused)
{
    start(2, 3);
    cr_assert_eq(spw_shard_claim(peer, 0, 3, 1), -EINVAL);
    cr_assert_eq(spw_shard_claim(peer, 0, UINT32_MAX, 1), -EINVAL);
    cr_assert_eq(spw_shard_claim(peer, 2, 0, 1), -EINVAL);
    cr_assert_eq(spw_shard_claim(peer, UINT32_MAX, 0, 1), -EINVAL);
    stop();
}

Test(reclaim, a_refused_claim_leaves_no_bit_and_a_filling_chunk_can_t_be_claimed)
{
    start(1, 2);
    uint32_t slot, got;
    cr_assert_eq(tiny_reserve(owner, 1, NULL, &slot), SPW_RESERVED);
    cr_assert_eq(spw_shard_claim(peer, 0, slot, 0), -ESTALE);
    spw_shard_retire(owner, slot);
    cr_assert_eq(spw_shard_claim(peer, 0, slot, 0), -ESTALE);
    spw_shard_reclaim(owner, 0);
    for (uint32_t i = 0; i < 2; i++) {
        cr_assert_eq(tiny_reserve(owner, 2 + i, NULL, &got), SPW_RESERVED);
        spw_shard_ready(owner, got);
    }
    stop();
}

/* rings 6: the owner died inside a change. */
Test(reclaim, a_claim_of_a_torn_entry_is_to_be_tried_again)
{
    start(1, 2);
    uint32_t slot = tiny_store(owner, 1), got;
    uint64_t fill = fill_of(slot);
    struct spw_entry *entry =
        (struct spw_entry *)spw_pool_feed_at(&tiny.pool, 0, tiny.pool.feed_map.entry_off) + slot;
    spw_add_own(&entry->seq, 1);
    cr_assert_eq(spw_shard_claim(peer, 0, slot, fill), -EAGAIN);
    spw_add_own(&entry->seq, 1);
    cr_assert_eq(spw_shard_claim(peer, 0, slot, fill), 0);
    spw_shard_unclaim(peer, 0, slot);
    cr_assert_eq(tiny_reserve(owner, 2, NULL, &got), SPW_RESERVED);
    stop();
}

Test(reclaim, a_store_that_ended_early_holds_its_slot_until_its_copy_has_ended)
{
    start(1, 2);
    uint32_t slot, got;
    cr_assert_eq(tiny_reserve(owner, 1, NULL, &slot), SPW_RESERVED);
    spw_shard_copy_begin(owner, slot);
    spw_shard_retire(owner, slot);
    cr_assert_eq(spw_shard_reclaim(owner, 0), 0);
    cr_assert_eq(tiny_reserve(owner, 2, NULL, &got), SPW_RESERVED);
    cr_assert_neq(got, slot);
    spw_shard_copy_end(owner, slot);
    cr_assert_eq(spw_shard_reclaim(owner, 0), 1);
    stop();
}
