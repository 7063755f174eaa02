/* A shard of which only a part may be handed out yet: what is given, what goes, and the sums. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/tiny_pool.h"
#include "tier/counters.h"
#include "tier/shard_cold.h"

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

/* The slot of key @n, which is READY. */
static uint32_t slot_of(uint64_t n)
{
    struct tiny_key key;
    return (uint32_t)spw_shard_by_tag(shard, tiny_key(&key, 0, n)->digest[0]);
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

Test(frontier, a_large_warm_start_beyond_it_is_in_nobodys_way)
{
    uint32_t below = 200, slots = 100 * below, capacity = slots - below;
    frontier = slots;
    start(capacity, slots);
    for (uint32_t i = 0; i < slots + below; i++) /* those below it are the youngest then */
        store(i);
    reopen(below);
    uint32_t before = resident();
    uint64_t gone = evicted();
    for (uint32_t i = 1; i <= 3 * below; i++) {
        cr_assert_lt(store(slots * 2 + i), below, "store %u", i);
        gone += resident() == before;
        before = resident();
        cr_assert_eq(evicted(), gone, "one for one at most");
    }
    cr_expect_geq(gone, 2 * below);
    move_to(slots);
    for (uint32_t i = 1; i <= below; i++)
        store(slots * 3 + i);
    cr_expect_eq(resident(), capacity);
    cr_expect(!tiny_resident(&tiny, 0, slots + below - capacity), "the oldest of all goes again");
    for (uint32_t i = 2 * below + 2; i <= 3 * below; i++)
        cr_expect(tiny_resident(&tiny, 0, slots * 2 + i), "and none that is younger");
    stop();
}

Test(frontier, what_it_passes_goes_by_its_age)
{
    struct tiny_key key;
    frontier = 10;
    start(8, 10);
    for (uint32_t i = 0; i < 8; i++)
        store(i);
    reopen(5);
    static const uint32_t used[8] = {3, 6, 1, 7, 0, 5, 2, 4};
    for (uint32_t i = 0; i < 8; i++) /* some of them lie below it, some beyond */
        spw_shard_touch(shard, tiny_key(&key, 0, used[i])->digest[0]);
    move_to(7);
    move_to(10);
    for (uint32_t i = 0; i < 8; i++) {
        cr_expect_neq(store(20 + i), UINT32_MAX);
        for (uint32_t j = 0; j < 8; j++)
            cr_expect_eq(tiny_resident(&tiny, 0, used[j]), j > i, "%u after %u", used[j], i);
    }
    stop();
}

Test(frontier, a_chain_whose_head_lies_beyond_it_loses_its_end_first)
{
    uint64_t protect[1] = {0};
    uint32_t slot;
    frontier = 10;
    start(8, 10);
    for (uint32_t i = 0; i < 8; i++)
        store(i);
    reopen(5);
    cr_assert_geq(slot_of(7), 5);
    for (uint32_t i = 1; i <= 3; i++) /* room */
        spw_shard_retire(shard, slot_of(i));
    spw_shard_reclaim(shard, 0);
    for (uint32_t i = 0; i < 3; i++) {
        bool head = i == 0; /* of the warm start, the others are new */
        cr_assert_eq(tiny_reserve(shard, head ? 7 : 20 + i, protect, &slot),
                     head ? SPW_PRESENT : SPW_RESERVED);
        if (!head)
            spw_shard_ready(shard, slot);
    }
    move_to(10);
    for (uint32_t i = 0; i < 9 && tiny_resident(&tiny, 0, 22); i++)
        store(30 + i);
    cr_expect(!tiny_resident(&tiny, 0, 22) && tiny_resident(&tiny, 0, 21));
    store(40);
    cr_expect(!tiny_resident(&tiny, 0, 21) && tiny_resident(&tiny, 0, 7));
    store(41);
    cr_expect(!tiny_resident(&tiny, 0, 7));
    stop();
}

Test(frontier, the_tier_below_goes_by_the_part_that_there_is_now)
{
    static const uint32_t part_of_20[11] = {0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20};
    frontier = 0;
    start(8, 10);
    for (uint32_t at = 0; at <= 10; at++) {
        move_to(at);
        cr_expect_eq(spw_shard_usable_part(shard, 20), part_of_20[at]);
        cr_expect_eq(spw_shard_usable_part(shard, 1), at != 0, "something where there is any");
        cr_expect_eq(spw_shard_usable_part(shard, 0), 0);
    }
    for (uint32_t i = 0; i < 8; i++) {
        cr_expect_eq(spw_shard_is_full_but(shard, 1), i == 7);
        cr_expect_eq(spw_shard_is_full_but(shard, 3), i >= 5);
        store(i);
    }
    reopen(0);
    move_to(5); /* four chunks, and all five slots have one */
    cr_expect(spw_shard_is_full_but(shard, 0));
    cr_expect_eq(spw_shard_retire_space(shard, 0), 8);
    cr_expect(!spw_shard_is_full_but(shard, 3));
    cr_expect(spw_shard_is_full_but(shard, 4));
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
