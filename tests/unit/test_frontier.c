/* A shard of which only a part may be handed out yet: what is given, what goes, and the sums. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/tiny_pool.h"
#include "tier/counters.h"

TestSuite(frontier, .timeout = 20);

#define KIB 1024u

static struct tiny_pool tiny;
static struct spw_shard *shard;
static uint32_t frontier;
static struct spw_entry_copy entry;

static uint32_t usable(void *ctx)
{
    return frontier;
}

static void start(uint32_t capacity, uint32_t slots)
{
    struct spw_geometry geometry = tiny_geometry(1, 1, capacity, slots);
    cr_assert_eq(tiny_pool_make(&tiny, &geometry), 0);
    tiny.usable_slots = usable;
    shard = tiny_shard_open(&tiny, 0);
    cr_assert_not_null(shard);
}

static void reopen(uint32_t slots)
{
    frontier = slots;
    spw_shard_close(shard);
    shard = tiny_shard_open(&tiny, 0);
    cr_assert_not_null(shard);
}

static void move_to(uint32_t slots)
{
    frontier = slots;
    spw_shard_reclaim(shard, 0);
}

static void stop(void)
{
    spw_shard_close(shard);
    tiny_pool_free(&tiny);
}

/* UINT32_MAX: refused. */
static uint32_t store(uint64_t n)
{
    uint32_t slot = tiny_store(shard, n);
    spw_shard_reclaim(shard, 0);
    return slot;
}

static uint32_t resident(void)
{
    struct spw_shard_stats stats = tiny_stats(shard);
    return stats.ready + stats.filling;
}

static uint64_t evicted(void)
{
    return tiny_stats(shard).evicted;
}

static uint64_t shown(const spw_atomic64 *at)
{
    spw_shard_flush(shard);
    return spw_load_relaxed(at);
}

static const struct spw_tier_record *tier(void)
{
    return &tiny.pool.feed[0]->tier[SPW_TIER_HOST];
}

Test(frontier, nothing_is_given_from_a_shard_that_is_all_beyond)
{
    frontier = 0;
    start(8, 10);
    cr_expect_eq(store(1), UINT32_MAX);
    cr_expect_eq(shown(&tier()->capacity_bytes), 0);
    move_to(1); /* a slot of ten is less than one of eight chunks */
    cr_expect_eq(store(1), UINT32_MAX);
    move_to(2);
    cr_expect_leq(store(1), 1);
    cr_expect_eq(shown(&tier()->capacity_bytes), tiny.pool.geometry.slot_bytes);
    stop();
}

Test(frontier, the_capacity_grows_with_it_and_is_an_exact_lru_at_each_place)
{
    uint64_t n = 0, gone = 0;
    frontier = 0;
    start(8, 10);
    for (uint32_t at = 0; at <= 10; at++) {
        uint32_t most = at * 8 / 10, before = resident();
        move_to(at);
        cr_expect_eq(shown(&tier()->capacity_bytes), most * tiny.pool.geometry.slot_bytes);
        for (uint32_t i = 0; i < 20 && most != 0; i++, n++) {
            uint32_t slot = store(n);
            cr_assert_lt(slot, at, "place %u", at);
            gone += before == most;
            before += before < most;
            cr_expect_eq(resident(), before);
            cr_expect_eq(evicted(), gone);
            cr_expect(tiny_resident(&tiny, 0, n % TINY_KEYS) || n >= TINY_KEYS);
            cr_expect(before < most || n < most || n - most >= TINY_KEYS ||
                      !tiny_resident(&tiny, 0, n - most));
        }
    }
    stop();
}

Test(frontier, chunks_of_a_warm_start_beyond_it_are_there_and_loaded_and_stay)
{
    uint32_t slot[8];
    frontier = 10;
    start(8, 10);
    for (uint32_t i = 0; i < 8; i++)
        slot[i] = store(i);
    reopen(0);
    cr_expect_eq(resident(), 8);
    cr_expect_eq(store(20), UINT32_MAX);
    cr_expect_eq(evicted(), 0);
    for (uint32_t i = 0; i < 8; i++) {
        cr_expect(tiny_resident(&tiny, 0, i));
        cr_assert_eq(spw_shard_entry(shard, slot[i], &entry), 0);
        cr_expect_eq(spw_shard_claim(shard, 0, slot[i], entry.fill), 0);
        spw_shard_unclaim(shard, 0, slot[i]);
    }
    cr_expect_eq(shown(&tier()->used_bytes), 8 * tiny.pool.geometry.slot_bytes);
    cr_expect_eq(shown(&tier()->capacity_bytes), 8 * tiny.pool.geometry.slot_bytes);
    cr_expect_eq(shown(&tier()->leased), 0);
    cr_expect_eq(shown(&tier()->evictable), 0);
    move_to(10);
    cr_expect_eq(shown(&tier()->evictable), 8);
    cr_expect_neq(store(20), UINT32_MAX);
    cr_expect_eq(evicted(), 1);
    cr_expect(!tiny_resident(&tiny, 0, 0) || !tiny_resident(&tiny, 0, 7), "one of them went");
    cr_expect_eq(resident(), 8);
    stop();
}

Test(frontier, below_it_one_goes_for_one_though_a_warm_start_left_more_than_its_share)
{
    uint32_t slot[8], below = 0;
    frontier = 10;
    start(8, 10);
    for (uint32_t i = 0; i < 8; i++)
        slot[i] = store(i);
    reopen(5);
    for (uint32_t i = 0; i < 8; i++)
        below += slot[i] < 5;
    cr_assert_eq(below, 5, "all five are taken");
    for (uint32_t i = 1; i <= 12; i++) {
        cr_expect_lt(store(20 + i), 5);
        cr_expect_eq(evicted(), i);
        cr_expect_eq(resident(), 8);
    }
    for (uint32_t i = 0; i < 8; i++)
        cr_expect_eq(tiny_resident(&tiny, 0, i), slot[i] >= 5);
    move_to(10);
    cr_expect_neq(store(40), UINT32_MAX);
    cr_expect_eq(evicted(), 13);
    cr_expect_eq(resident(), 8);
    stop();
}

Test(frontier, what_is_reset_beyond_it_is_free_when_it_comes)
{
    frontier = 10;
    start(8, 10);
    for (uint32_t i = 0; i < 8; i++)
        store(i);
    reopen(0);
    cr_expect_eq(spw_shard_retire_space(shard, 0), 8);
    move_to(0);
    cr_expect_eq(resident(), 0);
    cr_expect_eq(shown(&tier()->used_bytes), 0);
    cr_expect_eq(store(1), UINT32_MAX);
    move_to(10);
    for (uint32_t i = 0; i < 8; i++)
        cr_expect_neq(store(i), UINT32_MAX);
    cr_expect_eq(evicted(), 0);
    stop();
}

/* ---- whatever happens -------------------------------------------------------------------------- */

static const uint32_t group_bytes[] = {4 * KIB, 8 * KIB, 64 * KIB};
#define GROUPS 3u

static enum spw_reserve_result reserve(uint32_t group, uint64_t n, uint32_t *out_slot)
{
    struct spw_chunk_key key = {.group = group, .key_bytes = sizeof n, .key = &n};
    spw_chunk_digest(0, group, &n, sizeof n, key.digest);
    return spw_shard_reserve(shard, &key, 0, group_bytes[group], NULL, out_slot);
}

/* Sums, made anew from the table. */
static void check_sums(uint32_t slots, uint32_t capacity)
{
    const struct spw_geometry *geometry = &tiny.pool.geometry;
    uint64_t bytes = 0, chunks = 0, below = 0;
    uint32_t whole = frontier >> geometry->cell_shift << geometry->cell_shift;
    for (uint32_t slot = 0; slot < slots; slot++) {
        spw_shard_entry(shard, slot, &entry);
        if (entry.state != SPW_READY && entry.state != SPW_FILLING)
            continue;
        bytes += geometry->cell_shift ? entry.chunk_bytes : geometry->slot_bytes;
        chunks++;
        below += entry.state == SPW_READY && slot < whole;
    }
    cr_assert_eq(shown(&tier()->used_bytes), bytes);
    cr_assert_eq(spw_load_relaxed(&tiny.pool.feed[0]->space_bytes[0]), bytes);
    cr_assert_eq(shown(&tier()->entries), chunks);
    cr_assert_eq(shown(&tier()->evictable), below);
    cr_assert_leq(bytes, (uint64_t)capacity * geometry->slot_bytes);
    cr_assert_leq(bytes, shown(&tier()->capacity_bytes));
}

static void run_random(uint32_t capacity, uint32_t slabs, uint32_t shift, uint32_t slot_bytes)
{
    struct spw_geometry geometry = tiny_geometry(1, 1, capacity, slabs << shift);
    uint32_t slots = slabs << shift, slot, given = 0;
    geometry.cell_shift = shift;
    geometry.slot_bytes = slot_bytes;
    cr_assert_eq(tiny_pool_make(&tiny, &geometry), 0);
    tiny.pool.ctl->space[0].record.groups = GROUPS;
    for (uint32_t g = 0; g < GROUPS; g++)
        tiny.pool.ctl->space[0].record.group[g].chunk_bytes = group_bytes[g];
    tiny.usable_slots = usable;
    frontier = slots;
    shard = tiny_shard_open(&tiny, 0);
    cr_assert_not_null(shard);
    for (uint32_t round = 0; round < 12; round++) {
        for (uint32_t i = 0; i < 600; i++) {
            uint32_t kind = (uint32_t)rand() % 100;
            if (kind < 80) {
                enum spw_reserve_result result =
                    reserve((uint32_t)rand() % GROUPS, (uint32_t)rand() % 400, &slot);
                cr_assert(result != SPW_RESERVED || slot < frontier);
                given += result == SPW_RESERVED;
                if (result == SPW_RESERVED && kind < 75)
                    spw_shard_ready(shard, slot);
                else if (result == SPW_RESERVED)
                    spw_shard_retire(shard, slot);
            } else if (kind < 90 && frontier < slots) {
                frontier += (uint32_t)rand() % (slots / 8 + 2);
            } else if (kind == 99 && rand() % 4 == 0) {
                spw_shard_retire_space(shard, 0);
            }
            spw_shard_reclaim(shard, 0);
            check_sums(slots, capacity);
        }
        cr_expect(given > 50, "%u", given);
        given = 0;
        reopen((uint32_t)rand() % slots);
        check_sums(slots, capacity);
    }
    stop();
}

Test(frontier, sums_are_exact_and_nothing_is_given_beyond_it)
{
    srand(7);
    run_random(20, 24, 0, 64 * KIB);
    run_random(3, 4, 0, 64 * KIB);
}

Test(frontier, sums_are_exact_where_chunks_of_several_sizes_share_slabs)
{
    srand(8);
    run_random(12, 15, 4, 64 * KIB);
    run_random(5, 7, 6, 256 * KIB);
}
