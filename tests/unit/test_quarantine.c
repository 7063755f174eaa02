/* What the transfers of a dead worker may still write or read is out of use until their time is over,
 * on a clock of the test's own. tests/process/test_quarantine shows such transfers. */
#include <criterion/criterion.h>
#include <string.h>

#include "tests/support/tiny_pool.h"
#include "tier/adopt.h"
#include "tier/counters.h"

#define CAPACITY 8u
#define SLOTS    10u
#define TIME_NS  60000000000ull

static struct tiny_pool tiny;
static struct spw_shard *shard;

static void start(void)
{
    struct spw_geometry geometry = tiny_geometry(1, 2, CAPACITY, SLOTS);
    cr_assert_eq(tiny_pool_make(&tiny, &geometry), 0);
    tiny.now_ns = 5000;
    tiny.io_quarantine_ns = TIME_NS;
    tiny.transfers_linger = true;
    shard = tiny_shard_open(&tiny, 0);
    cr_assert_not_null(shard);
}

static void stop(void)
{
    spw_shard_close(shard);
    tiny_pool_free(&tiny);
}

static void succeed(bool lingers)
{
    spw_shard_close(shard);
    tiny.transfers_linger = lingers;
    shard = tiny_shard_open(&tiny, 0);
    cr_assert_not_null(shard);
}

static struct spw_entry_copy entry_of(uint32_t slot)
{
    struct spw_entry_copy entry;
    cr_assert_eq(spw_shard_entry(shard, slot, &entry), 0);
    return entry;
}

static uint64_t marked(void)
{
    return spw_load_relaxed(&tiny.pool.feed[0]->lingering);
}

static uint64_t counted(enum spw_worker_counter counter)
{
    return spw_load_relaxed(&tiny.pool.feed[0]->counter[counter]);
}

static uint32_t fill_one(uint64_t n)
{
    uint32_t slot;
    cr_assert_eq(tiny_reserve(shard, n, NULL, &slot), SPW_RESERVED);
    return slot;
}

/* Store many chunks; none of them in @slot. */
static void use_all_but(uint32_t slot)
{
    for (uint64_t n = 30; n < 30 + 3 * SLOTS; n++) {
        spw_shard_reclaim(shard, tiny.now_ns);
        uint32_t taken = tiny_store(shard, n);
        cr_assert_neq(taken, UINT32_MAX, "key %u", (unsigned)n);
        cr_assert_neq(taken, slot);
    }
}

Test(quarantine, what_was_filling_is_neither_freed_nor_handed_out_until_its_time_is_over)
{
    start();
    cr_assert_eq(marked(), 1, "before the first transfer");
    uint32_t ready = tiny_store(shard, 1), filling = fill_one(2);
    tiny.now_ns += 777;
    succeed(false);
    cr_assert_eq(tiny_stats(shard).quarantined, 1);
    cr_assert(counted(SPW_WORKER_quarantined) == 1 && counted(SPW_WORKER_quarantine_ended) == 0);
    cr_assert_eq(entry_of(ready).state, SPW_READY, "no transfer writes it");
    uint64_t over_ns = tiny.now_ns + TIME_NS;
    use_all_but(filling);
    tiny.now_ns = over_ns - 1;
    use_all_but(filling);
    cr_assert(marked() == 1 && entry_of(filling).state == SPW_RETIRED &&
              entry_of(filling).fill == 0);
    spw_shard_reclaim(shard, over_ns);
    cr_assert_eq(marked(), 0);
    cr_assert_eq(tiny_stats(shard).quarantined, 0);
    cr_assert_eq(counted(SPW_WORKER_quarantine_ended), 1);
    cr_assert_eq(entry_of(filling).state, SPW_FREE);
    for (uint64_t n = 0; n < CAPACITY; n++)
        cr_assert_neq(tiny_store(shard, n), UINT32_MAX);
    spw_shard_reclaim(shard, over_ns);
    cr_assert(tiny_stats(shard).ready == CAPACITY && tiny_stats(shard).free == SLOTS - CAPACITY);
    stop();
}

/* The dying worker had given the store up, its transfer runs on. */
Test(quarantine, a_store_given_up_before_the_death_counts_too)
{
    start();
    uint32_t slot = fill_one(1), torn = fill_one(2);
    spw_shard_copy_begin(shard, slot);
    spw_shard_retire(shard, slot);
    struct spw_entry *entry = spw_pool_feed_at(&tiny.pool, 0, tiny.pool.feed_map.entry_off);
    spw_add_own(&entry[torn].seq, 1); /* and died while it changed this one */
    succeed(false);
    cr_assert_eq(tiny_stats(shard).quarantined, 2);
    use_all_but(slot);
    stop();
}

Test(quarantine, an_evicted_chunk_is_not_in_it)
{
    start();
    uint32_t slot = tiny_store(shard, 1);
    spw_shard_retire(shard, slot);
    succeed(false);
    cr_assert_eq(tiny_stats(shard).quarantined, 0);
    cr_assert_eq(spw_shard_reclaim(shard, tiny.now_ns), 1);
    stop();
}

Test(quarantine, without_a_mark_there_is_none)
{
    start();
    spw_shard_reclaim(shard, tiny.now_ns);
    tiny.transfers_linger = false;
    succeed(false);
    spw_shard_reclaim(shard, tiny.now_ns + TIME_NS);
    cr_assert_eq(marked(), 0);
    uint32_t slot = fill_one(1);
    succeed(false);
    cr_assert_eq(tiny_stats(shard).quarantined, 0);
    spw_shard_reclaim(shard, tiny.now_ns);
    cr_assert_eq(entry_of(slot).state, SPW_FREE);
    stop();
}

Test(quarantine, a_second_death_starts_the_time_anew)
{
    start();
    uint32_t slot = fill_one(1);
    succeed(false);
    tiny.now_ns += TIME_NS - 1;
    uint32_t second = fill_one(2);
    succeed(true);
    cr_assert_eq(tiny_stats(shard).quarantined, 2, "the mark stood when it died");
    cr_assert(counted(SPW_WORKER_quarantined) == 3 && counted(SPW_WORKER_quarantine_ended) == 1);
    tiny.now_ns += TIME_NS - 1;
    use_all_but(slot);
    use_all_but(second);
    spw_shard_reclaim(shard, tiny.now_ns + 1);
    cr_assert_eq(tiny_stats(shard).quarantined, 0);
    cr_assert_eq(marked(), 1, "its own transfers may linger, too");
    stop();
}

/* The cache is full and all of the reserve is put aside: chunks make room, nobody is refused for
 * long. */
Test(quarantine, a_full_shard_goes_on_with_what_is_left)
{
    start();
    for (uint64_t n = 0; n < CAPACITY - 1; n++)
        cr_assert_neq(tiny_store(shard, n), UINT32_MAX);
    uint32_t aside[3] = {fill_one(50)};
    for (uint32_t i = 1; i < 3; i++) { /* given up one after the other while their copies run */
        spw_shard_copy_begin(shard, aside[i - 1]);
        spw_shard_retire(shard, aside[i - 1]);
        aside[i] = fill_one(50 + i);
    }
    cr_assert_eq(tiny_stats(shard).free, 0);
    succeed(false);
    cr_assert_eq(tiny_stats(shard).quarantined, 3);
    uint32_t refused = 0;
    for (uint64_t n = 10; n < 40; n++) {
        uint32_t slot = tiny_store(shard, n);
        refused += slot == UINT32_MAX;
        for (uint32_t i = 0; i < 3; i++)
            cr_assert_neq(slot, aside[i]);
        spw_shard_reclaim(shard, tiny.now_ns);
    }
    cr_assert_leq(refused, 1);
    cr_assert_eq(tiny_stats(shard).ready, CAPACITY - 3);
    tiny.now_ns += TIME_NS;
    for (uint64_t n = 10; n < 40; n++) {
        spw_shard_reclaim(shard, tiny.now_ns);
        cr_assert_neq(tiny_store(shard, n), UINT32_MAX);
    }
    cr_assert_eq(tiny_stats(shard).ready, CAPACITY);
    stop();
}

/* Nothing but quarantine: no slot, no crash, and all is there again later. */
Test(quarantine, a_shard_that_lies_in_it_as_a_whole_refuses_until_its_time_is_over)
{
    start();
    cr_assert_neq(tiny_store(shard, 1), UINT32_MAX);
    spw_shard_flush(shard);
    spw_store_relaxed(&tiny.pool.feed[0]->tail, 1ull << 45); /* the shard will be made afresh */
    succeed(false);
    cr_assert_eq(tiny_stats(shard).quarantined, SLOTS, "any slot may be written");
    spw_shard_reclaim(shard, tiny.now_ns);
    cr_assert_eq(tiny_store(shard, 2), UINT32_MAX);
    tiny.now_ns += TIME_NS;
    use_all_but(UINT32_MAX);
    stop();
}

/* A late transfer out of a slot must not find another chunk there. */
Test(quarantine, copying_bits_of_the_dead_stand_as_long)
{
    start();
    uint32_t slot = tiny_store(shard, 1);
    spw_shard_flush(shard);
    uint64_t fill = entry_of(slot).fill;
    cr_assert_eq(spw_shard_claim(shard, 0, slot, fill), 0);
    succeed(false);
    cr_assert_eq(spw_shard_claim(shard, 0, slot, fill), 0);
    spw_shard_unclaim(shard, 0, slot); /* a copy of its own ends: the dead one's does not */
    spw_shard_retire(shard, slot);
    use_all_but(slot);
    tiny.now_ns += TIME_NS;
    spw_shard_reclaim(shard, tiny.now_ns);
    bool used = false;
    for (uint64_t n = 0; n < 3 * SLOTS; n++) {
        spw_shard_reclaim(shard, tiny.now_ns);
        used |= tiny_store(shard, n) == slot;
    }
    cr_assert(used);
    stop();
}

/* A client that stands in its step across it all: what leaves quarantine waits for it like what was
 * retired later does. */
Test(quarantine, what_leaves_it_waits_for_clients_in_their_steps)
{
    start();
    uint32_t evicted = tiny_store(shard, 1), filling = fill_one(2);
    tiny.fence_ns = UINT64_MAX;
    succeed(false);
    tiny_step_begin(&tiny, 0); /* it knows of the one, not of the other */
    spw_shard_retire(shard, evicted);
    tiny.now_ns += TIME_NS;
    cr_assert_eq(spw_shard_reclaim(shard, tiny.now_ns), 1);
    cr_assert(entry_of(filling).state == SPW_FREE && entry_of(evicted).state == SPW_RETIRED);
    tiny_step_begin(&tiny, 0);
    cr_assert_eq(spw_shard_reclaim(shard, tiny.now_ns), 1);
    stop();
}
