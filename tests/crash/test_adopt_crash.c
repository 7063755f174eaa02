/*
 * A successor dies at each step of what adoption does beyond a dead worker's own steps (those are in
 * test_shard_crash): making a shard afresh whose ring makes no sense, and keeping in quarantine what
 * the transfers of the dead may still write. The next successor must do it as if it were the first.
 */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "shm/crash_point.h"
#include "tests/support/env.h"
#include "tests/support/tiny_pool.h"
#include "tier/adopt.h"
#include "tier/counters.h"
#include "tier/shard_cold.h"

TestSuite(adopt_crash, .timeout = 120);

#define CAPACITY 8u
#define SLOTS    11u
#define IDS      4u
#define READY    4u /* keys 0..3 are READY when the first worker dies, 10..12 are FILLING */
#define FILLING  3u
#define TIME_NS  60000000000ull

static struct tiny_pool tiny;

/* What children tell; shared with them. */
static struct told {
    uint64_t aside;  /* bits of slots that the adopter may not hand out in its time */
    uint64_t handed; /* bits of slots that it did hand out in it                    */
    bool over;       /* its time is over                                            */
} * told;

struct life {
    const char *point;
    uint32_t nth;
    bool lingers;
};

static uint64_t *payload_of(uint32_t slot)
{
    return (uint64_t *)(void *)(tiny.pool.data[0] + (uint64_t)slot * tiny.pool.geometry.slot_bytes);
}

static uint32_t store(struct spw_shard *shard, uint64_t n)
{
    uint32_t slot;
    if (tiny_reserve(shard, n, NULL, &slot) != SPW_RESERVED)
        return UINT32_MAX;
    told->handed |= told->over ? 0 : 1ull << slot;
    payload_of(slot)[0] = ~n;
    spw_shard_ready(shard, slot);
    return slot;
}

static void begin(void)
{
    struct spw_geometry geometry = tiny_geometry_cold(tiny_geometry(1, 1, CAPACITY, SLOTS), IDS);
    told = mmap(NULL, sizeof *told, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    cr_assert_neq(told, MAP_FAILED);
    cr_assert_eq(tiny_pool_make(&tiny, &geometry), 0);
    tiny.io_quarantine_ns = TIME_NS;
    tiny.transfers_linger = true;
    struct spw_shard *shard = tiny_shard_open(&tiny, 0);
    cr_assert_not_null(shard);
    for (uint64_t n = 0; n < READY; n++)
        cr_assert_neq(store(shard, n), UINT32_MAX);
    for (uint64_t n = 10; n < 10 + FILLING; n++) {
        uint32_t slot;
        cr_assert_eq(tiny_reserve(shard, n, NULL, &slot), SPW_RESERVED);
        told->aside |= 1ull << slot;
    }
    for (uint32_t id = 0; id < IDS; id++) /* BACKED by READY, by FILLING slots, and COLD */
        cr_assert_eq(tiny_cold_add(shard, id, id * 5), 0);
    spw_shard_flush(shard);
    spw_shard_close(shard);
    told->handed = 0;
}

static void end(void)
{
    tiny_pool_free(&tiny);
    munmap(told, sizeof *told);
}

static void check_bytes(void)
{
    struct spw_table_view table;
    spw_table_view_init(&table, tiny.pool.feed[0], &tiny.pool.feed_map, &tiny.pool.geometry);
    for (uint32_t slot = 0; slot < SLOTS; slot++) {
        struct spw_entry_copy entry;
        uint64_t n;
        cr_assert_eq(spw_table_read(&table, slot, true, &entry), 0);
        memcpy(&n, entry.key, sizeof n);
        if (entry.state == SPW_READY)
            cr_assert_eq(payload_of(slot)[0], ~n);
    }
}

/* All slots but those of @aside serve. */
static void check_use(struct spw_shard *shard, uint64_t aside)
{
    for (uint64_t n = 20; n < 20 + 3 * SLOTS; n++) {
        spw_shard_reclaim(shard, tiny.now_ns);
        uint32_t slot = store(shard, n);
        cr_assert_neq(slot, UINT32_MAX);
        cr_assert_not(aside >> slot & 1);
    }
}

/* ---- quarantine ------------------------------------------------------------------------------ */

/* Adopt, work on in what is left, see the time end, use all slots. */
static int live(void *arg)
{
    const struct life *life = arg;
    spw_crash_arm(life->point, life->nth);
    tiny.transfers_linger = life->lingers;
    struct spw_shard *shard = tiny_shard_open(&tiny, 0);
    if (!shard)
        return 1;
    for (uint64_t n = 40; n < 50; n++) {
        store(shard, n);
        spw_shard_reclaim(shard, tiny.now_ns + TIME_NS - 1);
    }
    told->over = true;
    for (uint64_t n = 50; n < 60; n++) {
        spw_shard_reclaim(shard, tiny.now_ns + TIME_NS);
        store(shard, n);
    }
    spw_shard_close(shard);
    return 0;
}

static uint64_t not_loadable(void)
{
    const struct spw_entry *entry = spw_pool_feed_at(&tiny.pool, 0, tiny.pool.feed_map.entry_off);
    uint64_t bits = 0;
    for (uint32_t slot = 0; slot < SLOTS; slot++)
        if (SPW_PACKED_STATE(spw_load_relaxed(&entry[slot].packed)) == SPW_RETIRED &&
            spw_load_relaxed(&entry[slot].fill) == 0)
            bits |= 1ull << slot;
    return bits;
}

static void check_next(const struct life *life)
{
    bool marked = spw_load_relaxed(&tiny.pool.feed[0]->lingering) != 0;
    cr_assert_eq(told->handed & told->aside, 0, "handed out in its time");
    cr_assert(marked || (told->over && !life->lingers), "no mark, and the time is not over");
    tiny.transfers_linger = false;
    tiny.now_ns += 5 * TIME_NS;
    struct spw_shard *shard = tiny_shard_open(&tiny, 0);
    cr_assert_not_null(shard);
    check_bytes();
    uint64_t aside = marked ? not_loadable() : 0;
    cr_assert_eq(tiny_stats(shard).quarantined, (uint32_t)__builtin_popcountll(aside));
    cr_assert(told->over || (aside & told->aside) == told->aside);
    check_use(shard, aside);
    tiny.now_ns += TIME_NS;
    check_use(shard, 0);
    spw_shard_reclaim(shard, tiny.now_ns);
    struct spw_shard_stats stats = tiny_stats(shard);
    cr_assert(stats.ready == CAPACITY && stats.free == SLOTS - CAPACITY && stats.quarantined == 0);
    spw_shard_close(shard);
}

Test(adopt_crash, a_death_at_any_step_of_a_quarantine_begins_its_time_anew)
{
    static const char *const points[] = {
        "quarantine.slot_put_aside", "quarantine.mark_set",    "quarantine.mark_cleared",
        "adopt.entry_repaired",      "adopt.retired_in_table", "adopt.retired_anew",
        "adopt.below_freed",         "shard.table_written",    "shard.slot_freed",
        "table.fields_stored",
    };
    for (uint32_t p = 0; p < sizeof points / sizeof points[0]; p++) {
        uint32_t deaths = 0;
        for (uint32_t nth = 1; nth < 8; nth++) {
            for (int lingers = 0; lingers < 2; lingers++) {
                struct life life = {points[p], nth, lingers};
                begin();
                int status = support_wait(support_fork(live, &life), 20000);
                cr_assert(status == 0 || status == SUPPORT_SIGNALLED + SIGKILL, "%s: %d", points[p],
                          status);
                deaths += status != 0;
                check_next(&life);
                end();
            }
        }
        cr_assert_geq(deaths, 1, "%s is never passed", points[p]);
    }
}

/* ---- afresh ---------------------------------------------------------------------------------- */

static int adopt(void *arg)
{
    const struct life *life = arg;
    spw_crash_arm(life->point, life->nth);
    tiny.transfers_linger = false;
    struct spw_shard *shard = tiny_shard_open(&tiny, 0);
    spw_shard_close(shard);
    return shard ? 0 : 1;
}

static void check_afresh(uint64_t tail, bool lingered)
{
    struct tiny_view view;
    struct spw_feed_head *feed = tiny.pool.feed[0];
    uint64_t incarnation = spw_load_relaxed(&feed->incarnation);
    tiny.transfers_linger = false;
    struct spw_shard *shard = tiny_shard_open(&tiny, 0);
    cr_assert_not_null(shard);
    cr_assert_eq(spw_shard_incarnation(shard), incarnation + 1);
    cr_assert(spw_pos_before(tail, spw_load_acquire(&feed->tail)) &&
              !spw_pos_before(spw_load_relaxed(&feed->gate), spw_load_relaxed(&feed->tail)));
    struct spw_shard_stats stats = tiny_stats(shard);
    cr_assert(stats.ready == 0 && stats.quarantined == (lingered ? SLOTS : 0));
    tiny.now_ns += TIME_NS;
    check_use(shard, 0);
    check_bytes();
    cr_assert_eq(tiny_view_init(&view, &tiny.pool, 0), 0);
    tiny_view_update(&view);
    cr_assert(tiny_view_matches(&view));
    for (uint32_t id = 0; id < IDS; id++) {
        struct spw_entry_copy below;
        cr_assert_eq(spw_shard_cold_entry(shard, id, &below), -ENOENT);
        cr_assert_eq(tiny_cold_add(shard, id, id), 0);
    }
    spw_shard_flush(shard);
    tiny_view_update(&view);
    cr_assert(tiny_view_matches(&view));
    spw_shard_close(shard);
}

Test(adopt_crash, a_death_at_any_step_of_making_a_shard_afresh_changes_nothing_for_the_next)
{
    static const char *const points[] = {
        "bcast.afresh_gate_stored", "afresh.entry_emptied", "bcast.afresh_seq_stored",
        "afresh.tail_stored",       "table.seq_odd",        "adopt.positions_filled",
        "adopt.retired_in_table",   "bcast.tail_stored",
    };
    for (uint32_t p = 0; p < sizeof points / sizeof points[0]; p++) {
        for (uint32_t nth = 1; nth < 70; nth += nth < 3 ? 1 : 31) {
            for (int lingered = 0; lingered < 2; lingered++) {
                struct life life = {.point = points[p], .nth = nth};
                begin();
                struct spw_feed_head *feed = tiny.pool.feed[0];
                uint64_t tail = spw_load_relaxed(&feed->tail);
                spw_store_relaxed(&feed->gate, tail + 123456);
                spw_store_relaxed(&feed->lingering, (uint64_t)lingered);
                int status = support_wait(support_fork(adopt, &life), 20000);
                cr_assert(status == SUPPORT_SIGNALLED + SIGKILL || (status == 0 && nth > 1),
                          "%s %u: %d", points[p], nth, status);
                check_afresh(tail, lingered);
                end();
            }
        }
    }
}
