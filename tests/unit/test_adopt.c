/* A successor takes over what a dead worker left: news never published, torn and damaged entries.
 * Where the worker died is made by hand here; tests/crash kills it at each step. */
#include <criterion/criterion.h>
#include <string.h>

#include "tests/support/tiny_pool.h"
#include "tier/adopt.h"
#include "tier/counters.h"

#define CAPACITY 8u
#define SLOTS    10u

static struct tiny_pool tiny;
static struct spw_shard *shard;

static void start_at(uint64_t tail)
{
    struct spw_geometry geometry = tiny_geometry(1, 2, CAPACITY, SLOTS);
    cr_assert_eq(tiny_pool_make(&tiny, &geometry), 0);
    if (tail != 0)
        spw_bcast_start_at(tiny.pool.feed[0],
                           spw_pool_feed_at(&tiny.pool, 0, tiny.pool.feed_map.ring_off),
                           geometry.update_records, tail);
    shard = tiny_shard_open(&tiny, 0);
    cr_assert_not_null(shard);
}

static void start(void)
{
    start_at(0);
}

static void stop(void)
{
    spw_shard_close(shard);
    tiny_pool_free(&tiny);
}

/* The worker is gone, with whatever it had not published. */
static void succeed(void)
{
    spw_shard_close(shard);
    shard = tiny_shard_open(&tiny, 0);
    cr_assert_not_null(shard);
}

static struct spw_entry *entry_at(uint32_t slot)
{
    return (struct spw_entry *)spw_pool_feed_at(&tiny.pool, 0, tiny.pool.feed_map.entry_off) + slot;
}

static struct spw_entry_copy entry_of(uint32_t slot)
{
    struct spw_entry_copy entry;
    cr_assert_eq(spw_shard_entry(shard, slot, &entry), 0);
    return entry;
}

static struct tiny_view view_now(void)
{
    struct tiny_view view;
    cr_assert_eq(tiny_view_init(&view, &tiny.pool, 0), 0);
    tiny_view_update(&view);
    cr_assert(view.valid);
    return view;
}

static uint64_t tail_now(void)
{
    return spw_load_acquire(&tiny.pool.feed[0]->tail); /* [UR-3] */
}

Test(adopt, keeps_ready_chunks_and_retires_unfinished_ones)
{
    start();
    struct tiny_view view = view_now();
    uint32_t filling, ready = tiny_store(shard, 1);
    cr_assert_eq(tiny_reserve(shard, 2, NULL, &filling), SPW_RESERVED);
    spw_shard_flush(shard);
    tiny_view_update(&view);
    struct spw_entry_copy before = entry_of(ready);
    succeed();
    struct spw_entry_copy after = entry_of(ready);
    cr_assert(after.state == SPW_READY && after.version == before.version &&
              after.fill == before.fill && tiny_resident(&tiny, 0, 1));
    cr_assert(entry_of(filling).state == SPW_RETIRED && entry_of(filling).fill == 0);
    cr_assert_eq(spw_shard_incarnation(shard), 2);
    cr_assert_eq(spw_feed_incarnation(tiny.pool.feed[0]), 2);
    tiny_view_update(&view);
    cr_assert(tiny_view_matches(&view) && view.state[1] == SPW_READY && view.state[2] == SPW_FREE);
    cr_assert_eq(spw_shard_reclaim(shard, 0), 1);
    stop();
}

/* rings 5: the table was changed, its news never came. */
Test(adopt, what_the_table_says_wins_over_news_never_published)
{
    start();
    uint32_t gone = tiny_store(shard, 1);
    spw_shard_flush(shard);
    struct tiny_view view = view_now();
    uint64_t tail = tail_now();
    cr_assert_neq(tiny_store(shard, 2), UINT32_MAX);
    spw_shard_retire(shard, gone);
    succeed();
    cr_assert_eq(tail_now(), tail + 3 + 1, "three positions given, one retired anew");
    cr_assert_eq(entry_of(gone).version, tail_now());
    tiny_view_update(&view);
    cr_assert(tiny_view_matches(&view) && view.state[1] == SPW_FREE && view.state[2] == SPW_READY);
    stop();
}

/* A reader that has not noticed the new incarnation, and only drains, never sees a HIT beyond what
 * holds its slot: the record that retires it anew comes before its word passes that. */
Test(adopt, a_reader_still_in_the_old_incarnation_is_told_by_records)
{
    start();
    uint32_t gone = tiny_store(shard, 1);
    spw_shard_flush(shard);
    struct tiny_view view = view_now();
    tiny_step_begin(&tiny, 0);
    spw_shard_retire(shard, gone);
    succeed();
    cr_assert_eq(spw_shard_reclaim(shard, 0), 0, "the step began before the slot was retired");
    view.incarnation = spw_feed_incarnation(tiny.pool.feed[0]);
    tiny_view_update(&view);
    cr_assert_eq(view.state[1], SPW_FREE);
    spw_client_step_end(&tiny.pool.client[0]);
    cr_assert_eq(spw_shard_reclaim(shard, 0), 1);
    stop();
}

Test(adopt, says_nothing_of_a_retired_slot_whose_key_lives_elsewhere)
{
    start();
    uint32_t old = tiny_store(shard, 1);
    tiny_step_begin(&tiny, 0);
    spw_shard_retire(shard, old);
    uint32_t again = tiny_store(shard, 1);
    cr_assert_neq(again, UINT32_MAX);
    spw_shard_flush(shard);
    struct tiny_view view = view_now();
    succeed();
    cr_assert_eq(entry_of(old).state, SPW_RETIRED);
    view.incarnation = spw_feed_incarnation(tiny.pool.feed[0]);
    tiny_view_update(&view);
    cr_assert_eq(view.state[1], SPW_READY);
    cr_assert(tiny_view_matches(&view));
    stop();
}

/* Else the stream would count as busy for ever, and places in it as not yet reached. */
Test(adopt, what_was_queued_went_with_its_worker)
{
    start();
    spw_store_relaxed(&tiny.pool.feed[0]->stream.bytes_queued, 7000);
    spw_store_relaxed(&tiny.pool.feed[0]->stream.bytes_done, 4000);
    succeed();
    cr_expect_eq(spw_load_relaxed(&tiny.pool.feed[0]->stream.bytes_queued), 7000, "it only grows");
    cr_expect_eq(spw_load_relaxed(&tiny.pool.feed[0]->stream.bytes_done), 7000);
    stop();
}

/* rings 7: whatever was done once is done again, and nothing goes back. */
Test(adopt, again_and_again_changes_nothing_but_grows)
{
    start();
    for (uint64_t n = 0; n < CAPACITY; n++)
        cr_assert_neq(tiny_store(shard, n), UINT32_MAX);
    uint32_t slot;
    cr_assert_eq(tiny_reserve(shard, 20, NULL, &slot), SPW_RESERVED);
    for (uint32_t i = 2; i < 9; i++) {
        uint64_t tail = tail_now(), gate = spw_load_relaxed(&tiny.pool.feed[0]->gate);
        uint64_t version[SLOTS];
        for (uint32_t s = 0; s < SLOTS; s++)
            version[s] = entry_of(s).version;
        succeed();
        cr_assert_eq(spw_shard_incarnation(shard), i);
        cr_assert(!spw_pos_before(tail_now(), tail));
        cr_assert(!spw_pos_before(spw_load_relaxed(&tiny.pool.feed[0]->gate), gate));
        for (uint32_t s = 0; s < SLOTS; s++)
            cr_assert(!spw_pos_before(entry_of(s).version, version[s]));
        struct spw_shard_stats stats = tiny_stats(shard);
        cr_assert(stats.ready == CAPACITY - 1 && stats.retired == 2 && stats.free == 1);
        struct tiny_view view = view_now();
        cr_assert(tiny_view_matches(&view));
    }
    stop();
}

/* rings 6: died with the sequence odd, in each kind of change. */
Test(adopt, a_torn_entry_becomes_retired_whatever_it_was)
{
    for (uint32_t was = 0; was < 4; was++) {
        start();
        uint32_t slot = 0, torn;
        if (was != SPW_FREE)
            cr_assert_eq(tiny_reserve(shard, 1, NULL, &slot), SPW_RESERVED);
        if (was == SPW_READY)
            spw_shard_ready(shard, slot);
        if (was == SPW_RETIRED)
            spw_shard_retire(shard, slot);
        torn = slot;
        cr_assert_neq(tiny_store(shard, 2), UINT32_MAX);
        if (was == SPW_FREE)
            torn = 5;
        spw_add_own(&entry_at(torn)->seq, 1);
        succeed();
        struct spw_entry_copy entry = entry_of(torn);
        cr_assert(entry.state == SPW_RETIRED && entry.fill == 0, "was %u", was);
        cr_assert(!tiny_resident(&tiny, 0, 1) && tiny_resident(&tiny, 0, 2));
        struct tiny_view view = view_now();
        cr_assert(tiny_view_matches(&view));
        cr_assert_eq(spw_shard_reclaim(shard, 0), 1);
        cr_assert_eq(tiny_stats(shard).free, SLOTS - 1);
        stop();
    }
}

/* Half a digest of the next key over half of the last one: it must not take away a live key. */
Test(adopt, a_torn_digest_takes_no_live_key_from_a_reader)
{
    start();
    cr_assert_neq(tiny_store(shard, 1), UINT32_MAX);
    spw_shard_flush(shard);
    struct tiny_view view = view_now();
    spw_store_relaxed(&entry_at(5)->seq, 1);
    spw_store_relaxed(&entry_at(5)->digest[0], view.digest[1][0]);
    succeed();
    struct spw_bcast_reader reader = view.reader;
    struct spw_record record[8];
    int n = spw_bcast_drain(&reader, record, 8);
    cr_assert_eq(n, 1);
    cr_assert_eq(record[0].word[0], 0, "a record without key");
    cr_assert(tiny_resident(&tiny, 0, 1));
    stop();
}

/* rings 26, the table's part: every word of an entry, damaged; nothing becomes FREE, nothing that
 * is not wholly READY stays so, and its neighbours stay. */
Test(adopt, damage_anywhere_in_an_entry_costs_that_entry_alone)
{
    for (uint32_t word = 1; word < 16; word++) {
        for (uint32_t how = 0; how < 3; how++) {
            static const uint64_t flips[] = {1, 1ull << 63, 0x5555aaaa5555aaaaull};
            start();
            uint32_t slot = tiny_store(shard, 1);
            cr_assert_neq(tiny_store(shard, 2), UINT32_MAX);
            spw_shard_flush(shard);
            spw_atomic64 *at =
                word < 8
                    ? (spw_atomic64 *)entry_at(slot) + word
                    : (spw_atomic64 *)spw_pool_feed_at(&tiny.pool, 0, tiny.pool.feed_map.key_off) +
                          slot * 8 + word - 8;
            spw_store_relaxed(at, spw_load_relaxed(at) ^ flips[how]);
            succeed();
            /* nothing speaks of the place in the stream, or of what lies beyond the key */
            bool harmless = word == 6 || word >= 12;
            uint32_t state = entry_of(slot).state;
            cr_assert_eq(state, harmless ? SPW_READY : SPW_RETIRED, "word %u flip %u", word, how);
            cr_assert(tiny_resident(&tiny, 0, 2));
            struct tiny_view view = view_now();
            cr_assert(tiny_view_matches(&view));
            spw_shard_reclaim(shard, 0);
            cr_assert_neq(tiny_store(shard, 3), UINT32_MAX);
            stop();
        }
    }
}

/* One of them was copied over what was there: nothing tells which. */
Test(adopt, entries_of_one_key_are_all_dropped_however_many)
{
    for (uint32_t copies = 1; copies < 4; copies++) {
        start();
        uint32_t slot = tiny_store(shard, 1), other = tiny_store(shard, 2);
        struct spw_entry_copy entry = entry_of(slot);
        struct spw_table table;
        spw_table_init(&table, tiny.pool.feed[0], &tiny.pool.feed_map, &tiny.pool.geometry);
        for (uint32_t to = 0, left = copies; left > 0; to++) {
            if (to == slot || to == other)
                continue;
            spw_table_write(&table, to, &entry, entry.key);
            left--;
        }
        succeed();
        cr_assert_eq(tiny_stats(shard).ready, 1);
        cr_assert_not(tiny_resident(&tiny, 0, 1));
        cr_assert(tiny_resident(&tiny, 0, 2));
        cr_assert_eq(spw_load_relaxed(&tiny.pool.feed[0]->counter[SPW_WORKER_dropped]), copies + 1);
        cr_assert_neq(tiny_store(shard, 1), UINT32_MAX);
        stop();
    }
}

/* rings 16: positions beyond 32 bits and at the sign. */
Test(adopt, works_at_positions_near_every_wrap)
{
    static const uint64_t tails[] = {(1ull << 32) - 5, (1ull << 63) - 5, UINT64_MAX - 200};
    for (uint32_t i = 0; i < 3; i++) {
        start_at(tails[i]);
        struct tiny_view view = view_now();
        uint32_t slot = tiny_store(shard, 1);
        cr_assert_eq(entry_of(slot).fill, tails[i] + 2);
        for (uint64_t n = 2; n < 12; n++) {
            cr_assert_neq(tiny_store(shard, n), UINT32_MAX);
            spw_shard_reclaim(shard, 0);
        }
        cr_assert_eq(tiny_reserve(shard, 30, NULL, &slot), SPW_RESERVED);
        succeed();
        cr_assert_eq(tiny_stats(shard).ready, CAPACITY - 1);
        tiny_view_update(&view);
        cr_assert(tiny_view_matches(&view), "from %lx", (unsigned long)tails[i]);
        stop();
    }
}

/* Age is private and dies with its worker: what is left is the order in which chunks were stored,
 * and of those stored together the first of the chain goes last. */
Test(adopt, later_stores_outlive_earlier_ones_and_heads_outlive_tails)
{
    start();
    uint64_t protect[1] = {0};
    uint32_t slot[4];
    for (uint32_t n = 0; n < 4; n++)
        cr_assert_eq(tiny_reserve(shard, n, protect, &slot[n]), SPW_RESERVED);
    for (uint32_t n = 0; n < 4; n++)
        spw_shard_ready(shard, slot[n]);
    for (uint32_t i = 0; i < 40; i++) { /* the next run of positions */
        uint32_t passing = tiny_store(shard, 50);
        spw_shard_retire(shard, passing);
        spw_shard_reclaim(shard, 0);
    }
    for (uint64_t n = 4; n < 8; n++)
        cr_assert_neq(tiny_store(shard, n), UINT32_MAX);
    succeed();
    static const uint32_t goes[] = {3, 2, 1, 0};
    for (uint32_t i = 0; i < 4; i++) {
        cr_assert(tiny_resident(&tiny, 0, goes[i]));
        cr_assert_neq(tiny_store(shard, 20 + i), UINT32_MAX);
        spw_shard_reclaim(shard, 0);
        cr_assert(!tiny_resident(&tiny, 0, goes[i]), "%u goes as number %u", goes[i], i);
    }
    stop();
}
