/* Entries of the tier below: which key they speak of, who speaks for it, and what views are told. */
#include <criterion/criterion.h>
#include <string.h>

#include "sched/view.h"
#include "tests/support/tiny_pool.h"
#include "tier/counters.h"
#include "tier/shard_cold.h"

TestSuite(shard_cold, .timeout = 60);

#define CAPACITY 4u
#define SLOTS    6u
#define IDS      8u

static struct tiny_pool tiny;
static struct spw_shard *shard;
static struct spw_views views;
static struct spw_change_log change_log;

static void start(void)
{
    struct spw_geometry geometry = tiny_geometry_cold(tiny_geometry(1, 1, CAPACITY, SLOTS), IDS);
    cr_assert_eq(tiny_pool_make(&tiny, &geometry), 0);
    shard = tiny_shard_open(&tiny, 0);
    cr_assert_not_null(shard);
    cr_assert_eq(spw_change_log_init(&change_log, 0), 0);
    cr_assert_eq(spw_views_init(&views, &tiny.pool, -1, &change_log), 0);
}

static void stop(void)
{
    spw_views_fini(&views);
    spw_shard_close(shard);
    tiny_pool_free(&tiny);
}

static uint64_t tag_of(uint64_t n)
{
    struct tiny_key key;
    return tiny_key(&key, 0, n)->digest[0];
}

static uint32_t seen_now(uint64_t n)
{
    return (uint32_t)spw_replica_get(&views.replica, tag_of(n)) & 3;
}

/* What a view that drains, and one that scans, says of key @n: it must be the same. */
static uint32_t seen(uint64_t n)
{
    uint64_t budget = UINT64_MAX;
    struct spw_views fresh;
    spw_shard_flush(shard);
    spw_views_update(&views, 0, &budget);
    cr_assert(spw_view_live(&views, 0));
    cr_assert_eq(spw_views_init(&fresh, &tiny.pool, -1, &change_log), 0);
    spw_views_update(&fresh, 0, &budget);
    uint32_t scanned = (uint32_t)spw_replica_get(&fresh.replica, tag_of(n)) & 3;
    spw_views_fini(&fresh);
    cr_assert_eq(scanned, seen_now(n), "key %d", (int)n);
    return scanned;
}

static uint32_t state_of(uint32_t entry)
{
    const struct spw_entry *at = spw_pool_feed_at(&tiny.pool, 0, tiny.pool.feed_map.entry_off);
    return SPW_PACKED_STATE(spw_load_relaxed(&at[entry].packed));
}

static uint32_t below(uint32_t id)
{
    return state_of(SLOTS + id);
}

static uint32_t promote(uint32_t id)
{
    uint32_t slot = UINT32_MAX;
    cr_assert_eq(spw_shard_promote(shard, id, SLOTS, &slot), SPW_RESERVED);
    return slot;
}

Test(shard_cold, a_chunk_that_only_the_tier_below_holds_is_seen_as_cold)
{
    start();
    cr_assert_eq(seen(1), SPW_REPLICA_ABSENT);
    cr_assert_eq(tiny_cold_add(shard, 3, 1), 0);
    cr_assert_eq(seen(1), SPW_REPLICA_COLD);
    struct spw_entry_copy entry;
    struct tiny_key key;
    cr_assert_eq(spw_shard_cold_entry(shard, 3, &entry), 0);
    tiny_key(&key, 0, 1);
    cr_assert(entry.state == SPW_COLD && entry.chunk_bytes == 256 && entry.key_bytes == 32 &&
              entry.group == 1 && memcmp(entry.key, key.word, 32) == 0);
    cr_assert_eq(spw_shard_cold_find(shard, tag_of(1)), 3);
    cr_assert_eq(spw_shard_cold_find(shard, tag_of(2)), -ENOENT);
    cr_assert_eq(spw_shard_cold_slot(shard, 3), -ENOENT);
    cr_assert_eq(spw_shard_cold_entry(shard, 4, &entry), -ENOENT);
    cr_assert_eq(spw_shard_cold_entry(shard, IDS, &entry), -ENOENT);
    struct spw_shard_stats stats = tiny_stats(shard);
    cr_assert(stats.ready == 0 && stats.free == SLOTS);
    stop();
}

Test(shard_cold, a_load_never_finds_an_entry_below)
{
    start();
    struct spw_table_view table;
    struct spw_entry_copy entry;
    struct tiny_key key;
    spw_table_view_init(&table, tiny.pool.feed[0], &tiny.pool.feed_map, &tiny.pool.geometry);
    cr_assert_eq(tiny_cold_add(shard, 0, 1), 0);
    cr_assert_eq(spw_table_find(&table, tiny_key(&key, 0, 1), &entry), -ENOENT);
    cr_assert_eq(spw_table_find_filling(&table, key.key.digest, &entry), -ENOENT);
    cr_assert_eq(spw_table_read(&table, SLOTS, true, &entry), 0);
    cr_assert_eq(entry.state, SPW_COLD);
    cr_assert_eq(spw_table_read(&table, SLOTS + IDS, true, &entry), -EINVAL);
    cr_assert_eq(spw_shard_claim(shard, 0, SLOTS, 1), -EINVAL);
    stop();
}

Test(shard_cold, removing_a_cold_chunk_makes_it_a_miss_and_frees_the_id_at_once)
{
    start();
    cr_assert_eq(tiny_cold_add(shard, 3, 1), 0);
    cr_assert_eq(seen(1), SPW_REPLICA_COLD);
    spw_shard_cold_remove(shard, 3);
    cr_assert_eq(seen(1), SPW_REPLICA_ABSENT);
    spw_shard_cold_remove(shard, 3); /* gone already */
    cr_assert_eq(tiny_cold_add(shard, 3, 2), 0);
    cr_assert_eq(seen(2), SPW_REPLICA_COLD);
    cr_assert_eq(seen(1), SPW_REPLICA_ABSENT);
    stop();
}

Test(shard_cold, a_key_has_one_id)
{
    start();
    cr_assert_eq(tiny_cold_add(shard, 3, 1), 0);
    cr_assert_eq(tiny_cold_add(shard, 4, 1), -EEXIST);
    cr_assert_eq(below(4), SPW_FREE);
    cr_assert_neq(tiny_store(shard, 1), UINT32_MAX);
    cr_assert_eq(tiny_cold_add(shard, 4, 1), -EEXIST);
    stop();
}

Test(shard_cold, while_a_slot_has_the_key_the_entry_below_is_no_news)
{
    start();
    uint32_t slot = tiny_store(shard, 1);
    cr_assert_eq(seen(1), SPW_REPLICA_READY);
    cr_assert_eq(tiny_cold_add(shard, 5, 1), 0);
    cr_assert_eq(below(5), SPW_BACKED);
    cr_assert_eq(seen(1), SPW_REPLICA_READY);
    cr_assert_eq(spw_shard_cold_of(shard, slot), 5);
    cr_assert_eq(spw_shard_cold_slot(shard, 5), slot);
    cr_assert_eq(spw_shard_cold_find(shard, tag_of(1)), -ENOENT, "BACKED is not COLD");
    spw_shard_cold_remove(shard, 5);
    cr_assert_eq(seen(1), SPW_REPLICA_READY);
    cr_assert_eq(spw_shard_cold_of(shard, slot), -ENOENT);
    spw_shard_retire(shard, slot);
    cr_assert_eq(seen(1), SPW_REPLICA_ABSENT);
    stop();
}

Test(shard_cold, a_slot_that_goes_leaves_the_chunk_cold)
{
    start();
    uint32_t slot = tiny_store(shard, 1);
    cr_assert_eq(tiny_cold_add(shard, 0, 1), 0);
    spw_shard_retire(shard, slot);
    cr_assert_eq(seen(1), SPW_REPLICA_COLD);
    cr_assert_eq(spw_shard_cold_of(shard, slot), -ENOENT);
    spw_shard_reclaim(shard, 1);
    cr_assert_eq(state_of(slot), SPW_FREE);
    cr_assert_eq(seen(1), SPW_REPLICA_COLD);
    stop();
}

Test(shard_cold, a_cold_key_is_stored_again_like_a_new_one_and_falls_back_when_that_fails)
{
    start();
    uint32_t slot;
    cr_assert_eq(tiny_cold_add(shard, 7, 1), 0);
    cr_assert_eq(tiny_reserve(shard, 1, NULL, &slot), SPW_RESERVED);
    cr_assert_eq(seen(1), SPW_REPLICA_PENDING);
    cr_assert_eq(below(7), SPW_BACKED);
    spw_shard_retire(shard, slot);
    cr_assert_eq(seen(1), SPW_REPLICA_COLD);
    cr_assert_eq(tiny_reserve(shard, 1, NULL, &slot), SPW_RESERVED);
    spw_shard_ready(shard, slot);
    cr_assert_eq(seen(1), SPW_REPLICA_READY);
    cr_assert_eq(spw_shard_cold_slot(shard, 7), slot);
    stop();
}

/* Wherever a batch of news ends. */
Test(shard_cold, views_are_right_wherever_the_news_is_flushed_between)
{
    start();
    for (uint32_t before = SPW_NEWS_MAX - 3; before <= SPW_NEWS_MAX; before++) {
        uint32_t slot = tiny_store(shard, 1);
        cr_assert_eq(tiny_cold_add(shard, 0, 1), 0);
        cr_assert_eq(seen(1), SPW_REPLICA_READY);
        for (uint32_t i = 0; i < before / 2; i++) {
            cr_assert_eq(tiny_cold_add(shard, 1, 2), 0);
            spw_shard_cold_remove(shard, 1);
        }
        if (before % 2)
            cr_assert_eq(tiny_cold_add(shard, 1, 2), 0);
        spw_shard_retire(shard, slot);
        cr_assert_eq(seen(1), SPW_REPLICA_COLD);
        cr_assert_eq(tiny_reserve(shard, 1, NULL, &slot), SPW_RESERVED);
        cr_assert_eq(seen(1), SPW_REPLICA_PENDING);
        spw_shard_cold_remove(shard, 0);
        spw_shard_cold_remove(shard, 1);
        spw_shard_retire(shard, slot);
        cr_assert_eq(seen(1), SPW_REPLICA_ABSENT);
        spw_shard_reclaim(shard, 1);
    }
    stop();
}

static void note_id(void *ctx, uint32_t id)
{
    *(uint32_t *)ctx |= 1u << id;
}

Test(shard_cold, the_ids_of_a_space_are_removed_together)
{
    start();
    struct tiny_key key;
    uint32_t ids = 0;
    cr_assert_eq(tiny_cold_add(shard, 0, 1), 0);
    cr_assert_eq(spw_shard_cold_add(shard, 1, tiny_key(&key, 1, 2), 0, 256), 0);
    cr_assert_neq(tiny_store(shard, 3), UINT32_MAX);
    cr_assert_eq(tiny_cold_add(shard, 6, 3), 0);
    spw_shard_cold_each_of_space(shard, 0, note_id, &ids);
    cr_assert_eq(ids, 1u << 0 | 1u << 6);
    cr_assert(below(0) == SPW_FREE && below(1) == SPW_COLD && below(6) == SPW_FREE);
    cr_assert_eq(seen(1), SPW_REPLICA_ABSENT);
    cr_assert_eq(seen(3), SPW_REPLICA_READY);
    stop();
}

/* CE-9 */
Test(shard_cold, ce9_what_needs_a_chunk_that_went_below_is_the_next_victim)
{
    start();
    for (uint64_t n = 1; n <= CAPACITY; n++)
        cr_assert_neq(tiny_store(shard, n), UINT32_MAX);
    cr_assert_eq(tiny_cold_add(shard, 0, 10), 0);
    spw_shard_follow(shard, tag_of(10), tag_of(3));
    spw_shard_cold_remove(shard, 0);
    cr_expect_eq(spw_load_relaxed(&tiny.pool.feed[0]->counter[SPW_WORKER_orphaned]), 1);
    cr_assert_neq(tiny_store(shard, 20), UINT32_MAX);
    cr_expect_eq(seen(3), SPW_REPLICA_ABSENT);
    cr_expect_eq(seen(1), SPW_REPLICA_READY);
    stop();
}

/* ---- promotions ------------------------------------------------------------------------------ */

Test(shard_cold, a_promoted_slot_is_held_until_it_is_released)
{
    start();
    cr_assert_eq(tiny_cold_add(shard, 2, 50), 0);
    uint32_t slot = promote(2);
    cr_assert_eq(seen(50), SPW_REPLICA_PENDING);
    cr_assert(below(2) == SPW_BACKED && spw_shard_held(shard) == 1);
    cr_assert_eq(spw_shard_cold_of(shard, slot), 2);
    spw_shard_ready(shard, slot);
    cr_assert_eq(seen(50), SPW_REPLICA_READY);
    spw_shard_touch(shard, tag_of(50));
    spw_shard_demote(shard, slot);
    for (uint64_t n = 0; n < 20; n++) {
        spw_shard_reclaim(shard, 1);
        cr_assert_neq(tiny_store(shard, n), UINT32_MAX);
    }
    struct spw_shard_stats stats = tiny_stats(shard);
    cr_assert(stats.ready == CAPACITY && stats.filling == 0, "held slots count as resident");
    cr_assert_eq(seen(50), SPW_REPLICA_READY);
    spw_shard_release(shard, slot);
    cr_assert_eq(spw_shard_held(shard), 0);
    for (uint64_t n = 20; n < 20 + CAPACITY - 1; n++) {
        spw_shard_reclaim(shard, 1);
        cr_assert_neq(tiny_store(shard, n), UINT32_MAX);
    }
    cr_assert_eq(seen(50), SPW_REPLICA_READY, "the most recent when it was released");
    spw_shard_reclaim(shard, 1);
    cr_assert_neq(tiny_store(shard, 40), UINT32_MAX);
    cr_assert_eq(seen(50), SPW_REPLICA_COLD);
    stop();
}

Test(shard_cold, a_store_of_a_held_key_finds_it_there_and_leaves_it_held)
{
    start();
    uint64_t protect[1] = {0};
    uint32_t slot, other;
    cr_assert_eq(tiny_cold_add(shard, 2, 50), 0);
    slot = promote(2);
    cr_assert_eq(tiny_reserve(shard, 50, protect, &other), SPW_PRESENT);
    cr_assert(other == slot && spw_shard_held(shard) == 1);
    cr_assert_eq(tiny_reserve(shard, 51, protect, &other), SPW_RESERVED);
    spw_shard_ready(shard, slot);
    spw_shard_retire(shard, slot);
    cr_assert(spw_shard_held(shard) == 0 && tiny_stats(shard).filling == 1);
    cr_assert_eq(seen(50), SPW_REPLICA_COLD);
    stop();
}

Test(shard_cold, promotions_are_refused_at_their_share_and_without_a_slot)
{
    start();
    uint32_t slot = 77;
    for (uint32_t id = 0; id < IDS; id++)
        cr_assert_eq(tiny_cold_add(shard, id, id), 0);
    cr_assert_eq(spw_shard_promote(shard, 0, 0, &slot), SPW_NO_SLOT);
    cr_assert_eq(spw_shard_promote(shard, 0, 1, &slot), SPW_RESERVED);
    cr_assert_eq(spw_shard_promote(shard, 1, 1, &slot), SPW_NO_SLOT);
    for (uint32_t id = 1; id < CAPACITY; id++)
        promote(id);
    cr_assert_eq(spw_shard_promote(shard, 5, IDS, &slot), SPW_NO_SLOT, "all that is there is held");
    cr_assert_eq(below(5), SPW_COLD);
    cr_assert_eq(seen(5), SPW_REPLICA_COLD);
    stop();
}

Test(shard_cold, a_slot_comes_where_only_a_step_is_in_the_way_of_one)
{
    start();
    uint32_t slot;
    for (uint32_t id = 0; id < IDS; id++)
        cr_assert_eq(tiny_cold_add(shard, id, id), 0);
    for (uint64_t n = 40; n < 40 + CAPACITY; n++)
        cr_assert_neq(tiny_store(shard, n), UINT32_MAX);
    spw_shard_flush(shard);
    tiny_step_begin(&tiny, 0);
    for (uint32_t id = 0; id < SLOTS - CAPACITY; id++)
        promote(id);
    cr_assert_eq(spw_shard_promote(shard, SLOTS - CAPACITY, SLOTS, &slot), SPW_SLOT_COMES);
    cr_assert_eq(tiny_stats(shard).retired, SLOTS - CAPACITY, "nothing more went for it");
    spw_client_step_end(&tiny.pool.client[0]);
    promote(SLOTS - CAPACITY);
    stop();
}

Test(shard_cold, what_is_promised_to_another_space_makes_no_slot_come)
{
    start();
    struct tiny_key key;
    uint32_t slot;
    spw_store_relaxed(&tiny.pool.ctl->space[1].shares, SPW_SHARES(1000, 0));
    cr_assert_eq(tiny_cold_add(shard, 0, 9), 0);
    for (uint64_t n = 0; n < SLOTS; n++) {
        if (n == CAPACITY)
            tiny_step_begin(&tiny, 0);
        cr_assert_eq(spw_shard_reserve(shard, tiny_key(&key, 1, n), 0, 256, NULL, &slot),
                     SPW_RESERVED);
        spw_shard_ready(shard, slot);
        spw_shard_flush(shard);
    }
    cr_assert_eq(tiny_stats(shard).retired, SLOTS - CAPACITY);
    cr_assert_eq(spw_shard_promote(shard, 0, SLOTS, &slot), SPW_NO_SLOT);
    spw_store_relaxed(&tiny.pool.ctl->space[1].shares, SPW_SHARES(0, 0));
    cr_assert_eq(spw_shard_promote(shard, 0, SLOTS, &slot), SPW_SLOT_COMES);
    stop();
}

/* The worker puts a victim down at the last moment, and that takes the place of what is read up. */
static void victim_takes_place(void *ctx, uint32_t slot)
{
    (void)slot;
    spw_shard_cold_remove(*(struct spw_shard **)ctx, 0);
}

Test(shard_cold, a_promotion_whose_chunk_goes_for_its_victim_s_sake_is_refused)
{
    start();
    struct spw_shard_config config = {.pool = &tiny.pool,
                                      .fence_limit_ns = TINY_FENCE_NS,
                                      .evicting = victim_takes_place,
                                      .ctx = &shard};
    uint32_t slot;
    spw_shard_close(shard);
    cr_assert_eq(spw_shard_open(&config, &shard, NULL), 0);
    for (uint64_t n = 0; n < CAPACITY; n++)
        cr_assert_neq(tiny_store(shard, n), UINT32_MAX);
    cr_assert_eq(tiny_cold_add(shard, 0, 50), 0);
    enum spw_reserve_result result = spw_shard_promote(shard, 0, SLOTS, &slot);
    cr_assert_eq(result, SPW_NO_SLOT);
    cr_assert_eq(seen(50), SPW_REPLICA_ABSENT);
    cr_assert_eq(spw_shard_held(shard), 0);
    stop();
}

/* ---- adoption -------------------------------------------------------------------------------- */

static void adopt_again(void)
{
    spw_shard_close(shard);
    shard = tiny_shard_open(&tiny, 0);
    cr_assert_not_null(shard);
}

Test(shard_cold, a_successor_knows_nothing_of_the_tier_below_until_it_is_told)
{
    start();
    cr_assert_neq(tiny_store(shard, 1), UINT32_MAX);
    cr_assert_eq(tiny_cold_add(shard, 0, 1), 0);
    cr_assert_eq(tiny_cold_add(shard, 1, 2), 0);
    cr_assert_eq(tiny_cold_add(shard, 2, 3), 0);
    uint32_t slot = promote(2);
    spw_shard_ready(shard, slot);
    cr_assert_eq(seen(2), SPW_REPLICA_COLD);
    adopt_again();
    for (uint32_t id = 0; id < IDS; id++)
        cr_assert_eq(below(id), SPW_FREE);
    cr_assert_eq(seen(1), SPW_REPLICA_READY);
    cr_assert_eq(seen(2), SPW_REPLICA_ABSENT);
    cr_assert_eq(seen(3), SPW_REPLICA_READY);
    cr_assert(spw_shard_held(shard) == 0 && tiny_stats(shard).ready == 2);
    cr_assert_eq(spw_load_relaxed(&tiny.pool.feed[0]->counter[SPW_WORKER_dropped]), 0);
    cr_assert_eq(tiny_cold_add(shard, 5, 2), 0);
    cr_assert_eq(seen(2), SPW_REPLICA_COLD);
    stop();
}

/* A removal whose news isn't out: its position is not given twice. */
Test(shard_cold, a_successor_goes_on_beyond_the_version_of_a_freed_entry)
{
    start();
    struct spw_entry_copy entry;
    cr_assert_eq(tiny_cold_add(shard, 0, 1), 0);
    spw_shard_flush(shard);
    spw_shard_cold_remove(shard, 0);
    cr_assert_eq(spw_table_read(&views.view[0].table, SLOTS, false, &entry), 0);
    cr_assert_eq(entry.state, SPW_FREE);
    uint64_t tail = spw_load_relaxed(&tiny.pool.feed[0]->tail);
    cr_assert_eq(entry.version, tail + 1);
    adopt_again();
    cr_assert_eq(spw_load_relaxed(&tiny.pool.feed[0]->tail), tail + 1);
    cr_assert_eq(seen(1), SPW_REPLICA_ABSENT);
    stop();
}

Test(shard_cold, entries_in_a_state_that_isn_t_theirs_are_dropped_and_counted)
{
    start();
    struct spw_entry *at = spw_pool_feed_at(&tiny.pool, 0, tiny.pool.feed_map.entry_off);
    const uint64_t below_a_slot = spw_entry_pack(SPW_COLD, 1, 32, 0, 0);
    const uint64_t slot_below = spw_entry_pack(SPW_READY, 1, 32, 0, 0);
    uint32_t slot = tiny_store(shard, 1);
    cr_assert_neq(tiny_store(shard, 2), UINT32_MAX);
    cr_assert_eq(tiny_cold_add(shard, 0, 3), 0);
    spw_shard_flush(shard);
    spw_store_relaxed(&at[slot].packed, below_a_slot);
    spw_store_relaxed(&at[SLOTS].packed, slot_below);
    spw_store_relaxed(&at[SLOTS + 1].seq, 7); /* torn: noise, it is FREE anyway */
    adopt_again();
    cr_assert_eq(spw_load_relaxed(&tiny.pool.feed[0]->counter[SPW_WORKER_dropped]), 2);
    cr_assert_eq(seen(1), SPW_REPLICA_ABSENT);
    cr_assert_eq(seen(2), SPW_REPLICA_READY);
    cr_assert_eq(seen(3), SPW_REPLICA_ABSENT);
    cr_assert(below(0) == SPW_FREE && below(1) == SPW_FREE);
    stop();
}
