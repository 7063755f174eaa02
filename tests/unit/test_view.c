/* Views of a real shard: they equal its table at rest, whatever happened on the way. */
#include "sched/view.h"

#include "tests/support/tiny_pool.h"
#include "tier/shard.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

TestSuite(view, .timeout = 20);

static struct tiny_pool tiny;
static struct spw_shard *shard[2];
static struct spw_views views;
static struct spw_change_log change_log;

static struct spw_shard *open_shard(uint32_t k)
{
    struct spw_shard_config config = {.pool = &tiny.pool, .k = k, .fence_limit_ns = 1000000000};
    struct spw_shard *opened = NULL;
    struct spw_error err = {0};
    cr_assert_eq(spw_shard_open(&config, &opened, &err), 0, "%s", err.text);
    return opened;
}

static void fresh(uint32_t workers, uint32_t capacity)
{
    struct spw_geometry geometry = tiny_geometry(workers, 3, capacity, capacity + 2);
    cr_assert_eq(tiny_pool_make(&tiny, &geometry), 0);
    for (uint32_t k = 0; k < workers; k++)
        shard[k] = open_shard(k);
    cr_assert_eq(spw_change_log_init(&change_log, 256), 0);
    cr_assert_eq(spw_views_init(&views, &tiny.pool, -1, &change_log), 0);
}

static void over(void)
{
    for (uint32_t k = 0; k < views.workers; k++)
        spw_shard_close(shard[k]);
    spw_views_fini(&views);
    spw_change_log_fini(&change_log);
    tiny_pool_free(&tiny);
}

static uint64_t tag_of(uint64_t n)
{
    struct tiny_key key;
    return tiny_key(&key, 0, n)->digest[0];
}

/* Store key @n in shard @k up to @state; evicts what is oldest. */
static void store(uint32_t k, uint64_t n, uint32_t state)
{
    struct tiny_key key;
    uint32_t slot;
    enum spw_reserve_result result =
        spw_shard_reserve(shard[k], tiny_key(&key, 0, n), 0, 256, NULL, &slot);
    if (result == SPW_RESERVED && state == SPW_READY)
        spw_shard_ready(shard[k], slot);
    spw_shard_flush(shard[k]);
    spw_shard_reclaim(shard[k], 0);
}

static void update(uint32_t k, uint64_t budget)
{
    spw_views_update(&views, k, &budget);
}

static uint32_t bits_of(uint64_t word, uint32_t k)
{
    return (uint32_t)(word >> 2 * k & 3);
}

static uint32_t said(uint64_t n, uint32_t k)
{
    return bits_of(spw_replica_get(&views.replica, tag_of(n)) & views.live, k);
}

/* Everything the table has is in the view, and the view has nothing else. */
static void assert_equals_table(uint32_t k)
{
    struct spw_entry_copy entry;
    uint64_t live = 0, in_view = 0;
    cr_assert(spw_view_live(&views, k));
    for (uint32_t slot = 0; slot < tiny.pool.geometry.slots; slot++) {
        if (spw_table_read(&views.view[k].table, slot, false, &entry) < 0 ||
            (entry.state != SPW_FILLING && entry.state != SPW_READY))
            continue;
        live++;
        uint64_t word = spw_replica_get(&views.replica, entry.digest[0]);
        cr_assert_eq(bits_of(word, k),
                     entry.state == SPW_READY ? SPW_REPLICA_READY : SPW_REPLICA_PENDING);
    }
    for (uint64_t b = 0; b < views.replica.buckets; b++)
        for (uint32_t i = 0; i < SPW_REPLICA_CELLS; i++)
            in_view += bits_of(views.replica.bucket[b].word[i], k) != 0;
    cr_assert_eq(in_view, live);
    cr_assert_eq(views.view[k].held, live);
}

Test(view, of_a_fresh_shard_is_live_and_empty)
{
    fresh(1, 4);
    update(0, UINT64_MAX);
    assert_equals_table(0);
    cr_expect_eq(views.view[0].position, spw_bcast_tail(&views.view[0].reader));
    over();
}

Test(view, says_what_a_chunk_is_from_pending_to_gone)
{
    fresh(1, 2);
    update(0, UINT64_MAX);
    store(0, 1, SPW_FILLING);
    update(0, 0);
    cr_expect_eq(said(1, 0), SPW_REPLICA_PENDING);
    store(0, 2, SPW_READY);
    update(0, 0);
    cr_expect_eq(said(2, 0), SPW_REPLICA_READY);
    store(0, 3, SPW_READY);
    update(0, 0);
    cr_expect_eq(said(2, 0), SPW_REPLICA_ABSENT);
    cr_expect_eq(said(3, 0), SPW_REPLICA_READY);
    assert_equals_table(0);
    over();
}

Test(view, equals_both_tables_after_any_number_of_changes)
{
    fresh(2, 6);
    for (uint32_t round = 0; round < 3000; round++) {
        uint32_t k = (uint32_t)rand() % 2;
        store(k, (uint64_t)rand() % 20, rand() % 4 ? SPW_READY : SPW_FILLING);
        if (rand() % 8 == 0) {
            update(0, UINT64_MAX);
            update(1, UINT64_MAX);
            assert_equals_table(0);
            assert_equals_table(1);
        }
    }
    over();
}

/* Bring the view of shard 0 to @phase, content of the table known or not. */
static void bring_to(enum spw_view_phase phase)
{
    update(0, UINT64_MAX);
    if (phase == SPW_VIEW_LIVE)
        return;
    for (uint64_t n = 0; n < 200; n++) /* lapped */
        store(0, n % 7, SPW_READY);
    update(0, 0);
    while (views.view[0].phase != phase)
        update(0, 1);
}

static const char *const phase_name[] = {"sweep", "note", "scan", "drain", "live"};

Test(view, is_emptied_and_read_anew_when_lapped_in_any_phase)
{
    for (int phase = SPW_VIEW_SWEEP; phase <= SPW_VIEW_LIVE; phase++) {
        fresh(1, 6);
        store(0, 3, SPW_READY);
        bring_to((enum spw_view_phase)phase);
        uint64_t gaps = views.counts.gaps, position = views.view[0].position;
        for (uint64_t n = 0; n < 200; n++)
            store(0, n % 11, n % 50 ? SPW_READY : SPW_FILLING);
        update(0, 0);
        cr_expect_not(spw_view_live(&views, 0), "%s", phase_name[phase]);
        cr_expect_eq(views.live, 0);
        cr_expect_eq(views.view[0].position, position, "%s: moved on an empty view",
                     phase_name[phase]);
        update(0, UINT64_MAX);
        /* the note comes after the lap in the first two */
        cr_expect_eq(views.counts.gaps - gaps, phase >= SPW_VIEW_SCAN, "%s", phase_name[phase]);
        assert_equals_table(0);
        over();
    }
}

Test(view, starts_over_for_a_successor_in_any_phase)
{
    for (int phase = SPW_VIEW_SWEEP; phase <= SPW_VIEW_LIVE; phase++) {
        fresh(1, 6);
        store(0, 3, SPW_READY);
        store(0, 4, SPW_FILLING);
        bring_to((enum spw_view_phase)phase);
        spw_shard_close(shard[0]);
        shard[0] = open_shard(0);
        uint64_t position = views.view[0].position;
        update(0, 0);
        cr_expect_eq(views.live, 0, "%s", phase_name[phase]);
        cr_expect_eq(views.view[0].position, position, "%s", phase_name[phase]);
        update(0, UINT64_MAX);
        assert_equals_table(0);
        cr_expect_eq(views.view[0].incarnation, spw_shard_incarnation(shard[0]));
        cr_expect_neq(said(4, 0), SPW_REPLICA_PENDING, "what was being filled is lost");
        over();
    }
}

Test(view, goes_on_piece_by_piece_while_the_shard_changes)
{
    fresh(1, 1500);
    for (uint64_t n = 0; n < 1500; n++)
        store(0, n, SPW_READY);
    uint32_t updates = 0;
    for (; !spw_view_live(&views, 0) && updates < 100; updates++) {
        update(0, 1);
        store(0, 5000 + updates, SPW_READY);
        cr_assert(spw_view_live(&views, 0) || views.live == 0, "used before it is through");
    }
    cr_expect(updates >= 5, "in %u pieces", updates);
    update(0, 0);
    assert_equals_table(0);
    over();
}

Test(view, takes_an_entry_whose_writer_died_in_it_as_absent)
{
    fresh(1, 4);
    store(0, 1, SPW_READY);
    struct spw_entry *entry = spw_pool_feed_at(&tiny.pool, 0, tiny.pool.feed_map.entry_off);
    for (uint32_t slot = 0; slot < tiny.pool.geometry.slots; slot++)
        spw_store_relaxed(&entry[slot].seq, spw_load_relaxed(&entry[slot].seq) | 1);
    update(0, UINT64_MAX);
    cr_assert(spw_view_live(&views, 0), "it waits for nobody");
    cr_expect_eq(said(1, 0), SPW_REPLICA_ABSENT);
    spw_shard_close(shard[0]);
    shard[0] = open_shard(0);
    update(0, UINT64_MAX);
    assert_equals_table(0);
    over();
}

Test(view, learns_from_the_successor_what_died_between_table_and_ring)
{
    struct tiny_key key;
    uint32_t slot;
    fresh(1, 4);
    store(0, 1, SPW_READY);
    update(0, UINT64_MAX);
    spw_shard_reserve(shard[0], tiny_key(&key, 0, 2), 0, 256, NULL, &slot);
    spw_shard_ready(shard[0], slot); /* in the table; its record is never published */
    update(0, UINT64_MAX);
    cr_expect_eq(said(2, 0), SPW_REPLICA_ABSENT);
    spw_shard_close(shard[0]); /* as good as dead: nothing is published by it */
    shard[0] = open_shard(0);
    update(0, UINT64_MAX);
    assert_equals_table(0);
    cr_expect_eq(said(2, 0), SPW_REPLICA_READY);
    over();
}

Test(view, treats_a_tail_without_its_record_as_a_gap)
{
    fresh(1, 4);
    store(0, 1, SPW_READY);
    update(0, UINT64_MAX);
    spw_atomic64 *tail = &tiny.pool.feed[0]->tail;
    spw_store_relaxed(tail, spw_load_relaxed(tail) + 3);
    update(0, 0);
    cr_expect_eq(views.counts.gaps, 1);
    cr_expect_eq(said(1, 0), SPW_REPLICA_ABSENT);
    cr_expect_not(spw_view_live(&views, 0));
    over();
}

Test(view, survives_records_of_more_chunks_than_there_are_slots)
{
    struct spw_bcast_writer writer;
    fresh(1, 4);
    store(0, 1, SPW_READY);
    update(0, UINT64_MAX);
    cr_assert_eq(spw_bcast_writer_init(&writer, tiny.pool.feed[0],
                                       spw_pool_feed_at(&tiny.pool, 0, tiny.pool.feed_map.ring_off),
                                       64, 8),
                 0);
    for (uint64_t n = 0; n < 400; n++) {
        struct spw_record record = {{tag_of(100000 + n), 1, spw_update_pack(0, SPW_READY, 0, 0)}};
        spw_bcast_publish(&writer, &record, 1);
        if (n % 16 == 0)
            update(0, 0);
    }
    cr_expect_geq(views.counts.full, 1);
    update(0, UINT64_MAX);
    cr_assert(spw_view_live(&views, 0));
    cr_expect_eq(said(1, 0), SPW_REPLICA_READY, "read anew from the table");
    over();
}

/* ---- change events --------------------------------------------------------------------------- */

static int changes(struct spw_change *out)
{
    return spw_change_log_get(&change_log, out, 64);
}

Test(view, tells_changes_with_the_engines_key)
{
    struct spw_change event[64];
    struct tiny_key key;
    fresh(1, 2);
    update(0, UINT64_MAX);
    change_log.lost = false;
    store(0, 1, SPW_READY);
    store(0, 2, SPW_READY);
    update(0, 0);
    cr_assert_eq(changes(event), 2);
    for (uint64_t n = 1; n <= 2; n++) {
        const struct spw_chunk_key *wanted = tiny_key(&key, 0, n);
        cr_expect_eq(event[n - 1].kind, SPW_CHANGE_STORED);
        cr_expect_eq(event[n - 1].digest[1], wanted->digest[1]);
        cr_assert_eq(event[n - 1].key_bytes, wanted->key_bytes);
        cr_expect_eq(memcmp(event[n - 1].key, wanted->key, wanted->key_bytes), 0);
    }
    store(0, 3, SPW_READY); /* 1 goes */
    update(0, 0);
    cr_assert_eq(changes(event), 2);
    cr_expect_eq(event[0].kind, SPW_CHANGE_REMOVED);
    cr_expect_eq(event[0].digest[0], tag_of(1));
    cr_expect_eq(event[1].kind, SPW_CHANGE_STORED);
    over();
}

Test(view, a_store_that_fails_was_never_stored_and_is_not_removed)
{
    struct spw_change event[64];
    struct tiny_key key;
    uint32_t slot;
    fresh(1, 2);
    update(0, UINT64_MAX);
    change_log.lost = false;
    spw_shard_reserve(shard[0], tiny_key(&key, 0, 1), 0, 256, NULL, &slot);
    spw_shard_retire(shard[0], slot);
    spw_shard_flush(shard[0]);
    update(0, 0);
    cr_expect_eq(changes(event), 0);
    over();
}

Test(view, a_gap_is_told_once_when_the_new_picture_can_be_taken)
{
    struct spw_change event[64];
    fresh(1, 4);
    update(0, UINT64_MAX);
    change_log.lost = false;
    for (uint64_t n = 0; n < 200; n++)
        store(0, n % 9, SPW_READY);
    update(0, 0);
    cr_expect_eq(changes(event), 0, "the view is empty: nothing to take a picture of");
    update(0, UINT64_MAX);
    cr_expect_eq(changes(event), -EOVERFLOW);
    cr_expect_eq(changes(event), 0);
    store(0, 77, SPW_READY);
    update(0, 0);
    cr_expect_geq(changes(event), 1);
    over();
}

Test(view, too_many_changes_between_two_reads_are_told_as_lost)
{
    struct spw_change event[64];
    fresh(1, 4);
    update(0, UINT64_MAX);
    change_log.lost = false;
    for (uint64_t n = 0; n < 400; n++) {
        store(0, n % 9, SPW_READY);
        update(0, 0);
    }
    cr_expect_eq(views.counts.gaps, 0);
    cr_expect_eq(changes(event), -EOVERFLOW);
    cr_expect_eq(changes(event), 0);
    over();
}
