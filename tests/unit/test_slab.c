/* Chunks of several sizes side by side: what fits, whose payload lies where, what must go. */
#include <criterion/criterion.h>
#include <string.h>

#include "tests/support/tiny_pool.h"
#include "tier/shard_cold.h"

TestSuite(slab, .timeout = 20);

#define KIB    1024u
#define SHIFT  8u
#define GROUPS 4u
#define KEYS   2000u
#define SPACES 4u
#define COLD   4u

static const uint32_t group_bytes[GROUPS] = {4 * KIB, 8 * KIB, 64 * KIB, 1024 * KIB};

static struct tiny_pool tiny;
static struct spw_shard *shard;
static struct spw_entry_copy entry;

static void start(uint32_t capacity, uint32_t slabs)
{
    struct spw_geometry geometry = tiny_geometry(1, 2, capacity, slabs << SHIFT);
    geometry.slot_bytes = 1024 * KIB;
    geometry.cell_shift = SHIFT;
    geometry = tiny_geometry_cold(geometry, COLD);
    cr_assert_eq(tiny_pool_make(&tiny, &geometry), 0);
    for (uint32_t space = 0; space < SPACES; space++) {
        struct spw_space_record *record = &tiny.pool.ctl->space[space].record;
        record->groups = GROUPS;
        for (uint32_t g = 0; g < GROUPS; g++)
            record->group[g].chunk_bytes = group_bytes[g];
    }
    shard = tiny_shard_open(&tiny, 0);
    cr_assert_not_null(shard);
}

static void stop(void)
{
    spw_shard_close(shard);
    tiny_pool_free(&tiny);
}

static void reopen(void)
{
    spw_shard_close(shard);
    shard = tiny_shard_open(&tiny, 0);
    cr_assert_not_null(shard);
}

static enum spw_reserve_result reserve_of(uint32_t space, uint32_t group, uint64_t n,
                                          uint32_t *out_slot)
{
    struct spw_chunk_key key = {.space = space, .group = group, .key_bytes = sizeof n, .key = &n};
    spw_chunk_digest(space, group, &n, sizeof n, key.digest);
    return spw_shard_reserve(shard, &key, 0, group_bytes[group], NULL, out_slot);
}

static enum spw_reserve_result reserve(uint32_t group, uint64_t n, uint32_t *out_slot)
{
    return reserve_of(0, group, n, out_slot);
}

static uint32_t store(uint32_t group, uint64_t n)
{
    uint32_t slot;
    cr_assert_eq(reserve(group, n, &slot), SPW_RESERVED, "group %u key %lu", group,
                 (unsigned long)n);
    spw_shard_ready(shard, slot);
    spw_shard_flush(shard);
    return slot;
}

static uint64_t gauge(const spw_atomic64 *value)
{
    return spw_load_relaxed(value);
}

/* Payload of no two slots that are not FREE overlaps; gauges are what the table says. */
static void check_all(void)
{
    const struct spw_geometry *geometry = &tiny.pool.geometry;
    const struct spw_tier_record *tier = &tiny.pool.feed[0]->tier[SPW_TIER_HOST];
    uint64_t used = 0, entries = 0, ready = 0, end = 0;
    for (uint32_t slot = 0; slot < geometry->slots; slot++) {
        cr_assert_eq(spw_shard_entry(shard, slot, &entry), 0);
        if (entry.state == SPW_FREE)
            continue;
        cr_assert(spw_slot_fits(geometry, slot, entry.chunk_bytes));
        uint64_t off = spw_slot_off(geometry, slot, entry.chunk_bytes);
        cr_assert_geq(off, end, "slot %u lies in the one before", slot);
        end = off + entry.chunk_bytes;
        if (!spw_entry_live(entry.state))
            continue;
        entries++;
        ready += entry.state == SPW_READY;
        used += entry.chunk_bytes;
    }
    cr_assert_leq(used, gauge(&tier->capacity_bytes));
    cr_assert_eq(gauge(&tier->used_bytes), used);
    cr_assert_eq(gauge(&tier->entries), entries);
    cr_assert_eq(gauge(&tier->evictable), ready);
    cr_assert_eq(gauge(&tier->leased), entries - ready);
}

Test(slab, small_chunks_alone_fill_the_room_of_a_large_one)
{
    start(1, 2);
    uint32_t first = store(0, 0);
    for (uint64_t n = 1; n < 256; n++)
        store(0, n);
    cr_expect_eq(tiny_stats(shard).evicted, 0, "256 of 4 KiB fit into 1 MiB");
    check_all();
    store(0, 256);
    cr_expect_eq(tiny_stats(shard).evicted, 1);
    cr_expect(spw_shard_entry(shard, first, &entry) == 0 && entry.state != SPW_READY);
    check_all();
    stop();
}

Test(slab, sizes_that_come_and_go_never_overlap_and_never_wait_for_ever)
{
    uint64_t random = 4711;
    for (uint32_t capacity = 1; capacity <= 4; capacity++) {
        start(capacity, capacity + 1);
        for (uint32_t i = 0; i < KEYS; i++) {
            random = random * 6364136223846793005u + 1442695040888963407u;
            uint32_t group = (random >> 33) % 8 < 3 ? 0 : (uint32_t)(random >> 40) % GROUPS;
            uint32_t slot;
            enum spw_reserve_result result = reserve(group, random >> 50 & 0x3ff, &slot);
            cr_assert_neq(result, SPW_NO_SLOT, "all could be evicted");
            if (result == SPW_RESERVED && random >> 60 == 0)
                spw_shard_retire(shard, slot);
            else if (result == SPW_RESERVED)
                spw_shard_ready(shard, slot);
            spw_shard_flush(shard);
            if (i % 50 == 0)
                check_all();
            if (i % 500 == 499)
                reopen();
        }
        stop();
    }
}

Test(slab, a_slab_with_a_chunk_in_copy_stays_and_the_next_oldest_goes)
{
    start(2, 3);
    uint32_t filling, slot;
    cr_assert_eq(reserve(0, 0, &filling), SPW_RESERVED);
    store(0, 1);
    for (uint64_t n = 2; n < 18; n++)
        store(2, n);
    store(1, 50);
    /* three slabs have their sizes; the oldest chunk that is READY lies beside the FILLING one */
    cr_assert_eq(reserve(3, 99, &slot), SPW_RESERVED);
    spw_shard_ready(shard, slot);
    spw_shard_flush(shard);
    check_all();
    cr_expect(spw_shard_entry(shard, filling, &entry) == 0 && entry.state == SPW_FILLING);
    spw_shard_ready(shard, filling);
    stop();
}

Test(slab, payload_in_use_is_given_to_no_other_size)
{
    start(1, 2);
    uint32_t claimed = store(0, 0), slot;
    cr_assert_eq(spw_shard_entry(shard, claimed, &entry), 0);
    cr_assert_eq(spw_shard_claim(shard, 0, claimed, entry.fill), 0);
    for (uint64_t n = 1; n < 8; n++) {
        if (reserve(3, n, &slot) != SPW_RESERVED)
            continue;
        cr_expect_neq(slot >> SHIFT, claimed >> SHIFT, "a copy still reads there");
        spw_shard_ready(shard, slot);
    }
    spw_shard_unclaim(shard, 0, claimed);
    store(3, 20);
    stop();
}

Test(slab, adoption_keeps_what_is_there_and_drops_what_overlaps)
{
    start(3, 4);
    uint32_t small = store(0, 0), other = store(0, 1), large = store(2, 2);
    reopen();
    check_all();
    cr_expect_eq(tiny_stats(shard).ready, 3);
    /* an entry that makes sense, but says that a larger chunk lies beside the small ones */
    cr_assert_eq(spw_shard_entry(shard, large, &entry), 0);
    struct spw_table table;
    spw_table_init(&table, tiny.pool.feed[0], &tiny.pool.feed_map, &tiny.pool.geometry);
    struct spw_entry_copy moved = entry;
    moved.slot = small + 2;
    spw_table_write(&table, small + 2, &moved, entry.key);
    spw_shard_retire(shard, large);
    reopen();
    check_all();
    cr_expect_eq(tiny_stats(shard).ready, 0);
    cr_expect(spw_shard_entry(shard, other, &entry) == 0 && entry.state != SPW_READY);
    store(3, 4);
    stop();
}

/* ---- shares ---------------------------------------------------------------------------------- */

#define CHAT  1u
#define BATCH 2u
#define OTHER 3u

static void give(uint32_t space, uint32_t guaranteed_permille)
{
    spw_store_relaxed(&tiny.pool.ctl->space[space].shares, SPW_SHARES(guaranteed_permille, 0));
}

static bool store_of(uint32_t space, uint32_t group, uint64_t n)
{
    uint32_t slot;
    if (reserve_of(space, group, n, &slot) != SPW_RESERVED)
        return false;
    spw_shard_ready(shard, slot);
    spw_shard_reclaim(shard, 0);
    spw_shard_flush(shard);
    return true;
}

static bool is_there(uint32_t space, uint32_t group, uint64_t n)
{
    uint64_t digest[2];
    spw_chunk_digest(space, group, &n, sizeof n, digest);
    return spw_shard_find(shard, digest, &entry) == 0;
}

static uint64_t mib_of(uint32_t space)
{
    return gauge(&tiny.pool.feed[0]->space_bytes[space]) >> 20;
}

/* Small chunks of a chat model and of a batch job in turn: three times what there is room for. */
static void fill_in_turn(void)
{
    start(16, 18);
    give(CHAT, 500);
    for (uint64_t n = 0; n < 24 * 16; n++) {
        cr_assert(store_of(BATCH, 2, n));
        cr_assert(store_of(CHAT, 2, n));
    }
    check_all();
    cr_assert(mib_of(CHAT) >= 8 && mib_of(BATCH) >= 4);
}

Test(slab, one_promised_chunk_here_and_there_keeps_nobody_of_another_size_out)
{
    fill_in_turn();
    for (uint64_t n = 0; n < 100; n++)
        cr_assert(store_of(OTHER, n % 2 ? 3 : 1, n), "%lu", (unsigned long)n);
    check_all();
    cr_expect(mib_of(CHAT) >= 8, "what is guaranteed");
    cr_expect(mib_of(OTHER) >= 4);
    stop();
}

Test(slab, who_grows_into_a_guarantee_gets_all_of_it_in_another_size)
{
    fill_in_turn();
    give(OTHER, 375);
    for (uint64_t n = 0; n < 6; n++)
        cr_assert(store_of(OTHER, 3, n), "%lu", (unsigned long)n);
    cr_expect_eq(mib_of(OTHER), 6, "none of its own went");
    for (uint64_t n = 0; n < 500; n++)
        (void)store_of(BATCH, (uint32_t)n % 4, 1000 + n);
    check_all();
    cr_expect_eq(mib_of(OTHER), 6);
    cr_expect(mib_of(CHAT) >= 8);
    stop();
}

Test(slab, slabs_of_their_own_stay_so_for_the_next_worker)
{
    fill_in_turn();
    uint64_t had = mib_of(CHAT);
    reopen();
    cr_expect_eq(mib_of(CHAT), had);
    give(CHAT, 375);
    for (uint64_t n = 0; n < 24 * 16; n += 2) { /* what goes lies everywhere among what stays */
        uint32_t slot;
        if (is_there(CHAT, 2, n))
            cr_assert_eq(reserve_of(CHAT, 2, n, &slot), SPW_PRESENT);
    }
    for (uint64_t n = 0; n < 400; n++)
        cr_assert(store_of(BATCH, 2, 1000 + n));
    for (uint64_t n = 0; n < 50; n++)
        cr_assert(store_of(OTHER, 3, n));
    check_all();
    cr_expect(mib_of(CHAT) >= 6 && mib_of(OTHER) >= 4);
    stop();
}

Test(slab, a_guarantee_taken_back_leaves_no_slab_behind)
{
    fill_in_turn();
    give(CHAT, 0);
    for (uint64_t n = 0; n < 16 * 16; n++)
        cr_assert(store_of(BATCH, 2, 1000 + n));
    check_all();
    cr_expect_eq(gauge(&tiny.pool.feed[0]->space_bytes[CHAT]), 0);
    cr_expect_eq(mib_of(BATCH), 16);
    stop();
}

/* ---- promotions ------------------------------------------------------------------------------ */

static enum spw_reserve_result promote(uint32_t id)
{
    uint32_t slot;
    return spw_shard_promote(shard, id, UINT32_MAX, &slot);
}

Test(slab, a_promotion_waits_for_a_slab_that_a_step_is_in_the_way_of)
{
    start(4, 5);
    for (uint32_t id = 0; id < 2; id++) {
        uint64_t n = 5000 + id;
        struct spw_chunk_key key = {.group = 3, .key_bytes = sizeof n, .key = &n};
        spw_chunk_digest(0, 3, &n, sizeof n, key.digest);
        cr_assert_eq(spw_shard_cold_add(shard, id, &key, 0, group_bytes[3]), 0);
    }
    for (uint64_t n = 0; n < 4u << SHIFT; n++)
        store(0, n);
    tiny_step_begin(&tiny, 0);
    cr_assert_eq(promote(0), SPW_RESERVED, "the one slab that is FREE");
    cr_assert_eq(promote(1), SPW_SLOT_COMES);
    uint32_t evicted = tiny_stats(shard).retired;
    cr_assert_eq(promote(1), SPW_SLOT_COMES);
    cr_assert_eq(tiny_stats(shard).retired, evicted, "asked for once");
    spw_client_step_end(&tiny.pool.client[0]);
    cr_assert_eq(promote(1), SPW_RESERVED);
    stop();
}

/* A held chunk is no victim, nor is what lies beside it for a slab's sake. */
Test(slab, a_slab_with_a_held_chunk_stays)
{
    uint32_t held, slot;
    uint64_t n = 5000;
    struct spw_chunk_key key = {.group = 0, .key_bytes = sizeof n, .key = &n};
    start(2, 3);
    store(0, 0); /* the oldest, in the slab of the held one */
    spw_chunk_digest(0, 0, &n, sizeof n, key.digest);
    cr_assert_eq(spw_shard_cold_add(shard, 0, &key, 0, group_bytes[0]), 0);
    cr_assert_eq(spw_shard_promote(shard, 0, UINT32_MAX, &held), SPW_RESERVED);
    spw_shard_ready(shard, held);
    for (n = 2; n < 18; n++)
        store(2, n);
    store(1, 50);
    cr_assert_eq(reserve(3, 99, &slot), SPW_RESERVED);
    spw_shard_ready(shard, slot);
    spw_shard_flush(shard);
    cr_expect(spw_shard_entry(shard, held, &entry) == 0 && entry.state == SPW_READY);
    cr_expect_neq(slot >> SHIFT, held >> SHIFT);
    spw_shard_release(shard, held);
    store(3, 100);
    store(3, 101);
    cr_expect(spw_shard_entry(shard, held, &entry) == 0 && entry.state != SPW_READY);
    stop();
}
