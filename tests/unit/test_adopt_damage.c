/* A successor takes over bytes that no worker left: entries that don't go with ctl, rings that make
 * no sense, copying bits of the dead. Nothing of it stops a shard from serving, and what is dropped
 * is counted. */
#include <criterion/criterion.h>
#include <string.h>

#include "tests/support/tiny_pool.h"
#include "tier/adopt.h"
#include "tier/counters.h"
#include "tier/shard_cold.h"

#define CAPACITY 8u
#define SLOTS    10u
#define IDS      6u

static struct tiny_pool tiny;
static struct spw_shard *shard;

static void start(uint32_t workers)
{
    struct spw_geometry geometry =
        tiny_geometry_cold(tiny_geometry(workers, 2, CAPACITY, SLOTS), IDS);
    cr_assert_eq(tiny_pool_make(&tiny, &geometry), 0);
    shard = tiny_shard_open(&tiny, 0);
    cr_assert_not_null(shard);
    cr_assert(tiny_cold_add(shard, 0, 50) == 0 && tiny_cold_add(shard, 4, 1) == 0);
}

static void stop(void)
{
    spw_shard_close(shard);
    tiny_pool_free(&tiny);
}

static void succeed(void)
{
    spw_shard_close(shard);
    shard = tiny_shard_open(&tiny, 0);
    cr_assert_not_null(shard);
}

static struct spw_feed_head *feed(void)
{
    return tiny.pool.feed[0];
}

static uint64_t counted(enum spw_worker_counter counter)
{
    return spw_load_relaxed(&feed()->counter[counter]);
}

static struct spw_entry_copy entry_of(uint32_t slot)
{
    struct spw_entry_copy entry;
    cr_assert_eq(spw_shard_entry(shard, slot, &entry), 0);
    return entry;
}

/* As a worker would write it, only wrong. */
static void write_entry(uint32_t slot, const struct spw_entry_copy *entry)
{
    struct spw_table table;
    spw_table_init(&table, feed(), &tiny.pool.feed_map, &tiny.pool.geometry);
    spw_table_write(&table, slot, entry, entry->key);
}

/* Every slot serves, and a reader that looks at it anew sees what the table says. */
static void check_use(void)
{
    struct tiny_view view;
    for (uint64_t n = 20; n < 20 + 2 * SLOTS; n++) {
        spw_shard_reclaim(shard, 0);
        cr_assert_neq(tiny_store(shard, n), UINT32_MAX);
    }
    spw_shard_reclaim(shard, 0);
    struct spw_shard_stats stats = tiny_stats(shard);
    cr_assert(stats.ready == CAPACITY && stats.free == SLOTS - CAPACITY);
    for (uint32_t id = 0; id < IDS; id++)
        cr_assert_eq(tiny_cold_add(shard, id, 40 + id), 0);
    spw_shard_flush(shard);
    cr_assert_eq(tiny_view_init(&view, &tiny.pool, 0), 0);
    tiny_view_update(&view);
    cr_assert(tiny_view_matches(&view));
    for (uint32_t id = 0; id < IDS; id++)
        spw_shard_cold_remove(shard, id);
}

/* ---- entries and ctl ------------------------------------------------------------------------- */

static void close_space(struct spw_entry_copy *entry)
{
    spw_store_relaxed(&tiny.pool.ctl->space[entry->space].ready, 0);
}

static void other_bytes_in_ctl(struct spw_entry_copy *entry)
{
    tiny.pool.ctl->space[entry->space].record.group[entry->group].chunk_bytes -= 64;
}

static void fewer_groups_in_ctl(struct spw_entry_copy *entry)
{
    tiny.pool.ctl->space[entry->space].record.groups = entry->group;
}

static void other_bytes(struct spw_entry_copy *entry)
{
    entry->chunk_bytes -= 64;
}

static void other_rank(struct spw_entry_copy *entry)
{
    entry->rank = 7;
}

static void other_space(struct spw_entry_copy *entry)
{
    entry->space = SPW_SPACES_MAX;
}

static void other_key(struct spw_entry_copy *entry)
{
    entry->key[3] ^= 1;
}

static void later_version(struct spw_entry_copy *entry)
{
    entry->version = entry->fill += 1000;
}

Test(adopt_damage, what_does_not_go_with_ctl_or_itself_is_dropped_and_counted)
{
    static void (*const damage[])(struct spw_entry_copy *) = {
        close_space, other_bytes_in_ctl, fewer_groups_in_ctl, other_bytes,
        other_rank,  other_space,        other_key,           later_version};
    for (uint32_t i = 0; i < sizeof damage / sizeof damage[0]; i++) {
        start(1);
        struct tiny_key key;
        uint32_t other, slot = tiny_store(shard, 1);
        cr_assert_eq(spw_shard_reserve(shard, tiny_key(&key, 3, 2), 0, 256, NULL, &other),
                     SPW_RESERVED);
        spw_shard_ready(shard, other);
        spw_shard_flush(shard);
        struct spw_entry_copy entry = entry_of(slot);
        damage[i](&entry);
        write_entry(slot, &entry);
        succeed();
        cr_assert(entry_of(slot).state == SPW_RETIRED && entry_of(slot).fill == 0, "case %u", i);
        cr_assert_eq(entry_of(other).state, SPW_READY, "another space's stays");
        cr_assert(counted(SPW_WORKER_dropped) == 1 && counted(SPW_WORKER_adopted) == 1);
        succeed();
        cr_assert(counted(SPW_WORKER_dropped) == 1 && counted(SPW_WORKER_adopted) == 2);
        check_use();
        stop();
    }
}

Test(adopt_damage, what_was_filling_is_not_damage)
{
    uint32_t slot;
    start(1);
    cr_assert_eq(tiny_reserve(shard, 1, NULL, &slot), SPW_RESERVED);
    succeed();
    cr_assert(entry_of(slot).state == SPW_RETIRED && counted(SPW_WORKER_dropped) == 0);
    stop();
}

/* What was below is found by opening the tier: nothing said of it here counts, whatever it is. */
Test(adopt_damage, any_bytes_in_the_entries_of_the_tier_below_are_forgotten)
{
    static const struct {
        uint64_t seq, version, packed;
        bool counted;
    } left[IDS] = {
        {6, 3, 0x120104, false},          /* a COLD chunk                      */
        {7, 1ull << 60, 0x120105, false}, /* torn                              */
        {6, 1ull << 60, 0x120105, true},  /* beyond what was published         */
        {6, 3, 0x120102, true},           /* READY                             */
        {6, 3, 0xff0104, true},           /* a key longer than there can be    */
        {6, 3, 0, false},
    };
    start(1);
    struct spw_entry *entry = spw_pool_feed_at(&tiny.pool, 0, tiny.pool.feed_map.entry_off);
    uint32_t slot = tiny_store(shard, 7);
    spw_shard_flush(shard);
    uint64_t tail = spw_load_relaxed(&feed()->tail);
    for (uint32_t id = 0, counted_so_far = 0; id < IDS; id++) {
        struct spw_entry *below = &entry[SLOTS + id];
        spw_store_relaxed(&below->seq, left[id].seq);
        spw_store_relaxed(&below->version, left[id].version);
        spw_store_relaxed(&below->packed, left[id].packed);
        succeed();
        counted_so_far += left[id].counted;
        cr_assert_eq(counted(SPW_WORKER_dropped), counted_so_far, "case %u", id);
        cr_assert_eq(SPW_PACKED_STATE(spw_load_relaxed(&below->packed)), SPW_FREE, "case %u", id);
        cr_assert_eq(entry_of(slot).state, SPW_READY);
    }
    cr_assert_leq(spw_load_relaxed(&feed()->tail), tail + IDS * 2);
    check_use();
    stop();
}

/* ---- numbers of the head --------------------------------------------------------------------- */

Test(adopt_damage, an_incarnation_never_goes_below_what_ctl_repeats_nor_to_none)
{
    start(1);
    spw_store_relaxed(&tiny.pool.ctl->worker[0].incarnation, 9);
    spw_store_relaxed(&feed()->incarnation, 2); /* damaged: readers know 9 */
    succeed();
    cr_assert_eq(spw_shard_incarnation(shard), 10);
    spw_store_relaxed(&tiny.pool.ctl->worker[0].incarnation, 0);
    spw_store_relaxed(&feed()->incarnation, UINT64_MAX);
    succeed();
    cr_assert_eq(spw_feed_incarnation(feed()), 1, "0 is that of no worker");
    stop();
}

Test(adopt_damage, generations_of_spaces_and_fences_that_can_be_are_kept)
{
    start(1);
    uint64_t step = tiny_step_begin(&tiny, 0);
    spw_store_relaxed(&feed()->space_generation[3], 17);
    spw_store_relaxed(&feed()->fenced[0], step);
    spw_store_relaxed(&feed()->fenced[1], step + 1000);
    succeed();
    cr_expect_eq(spw_load_relaxed(&feed()->space_generation[3]), 17);
    cr_expect_eq(spw_load_relaxed(&feed()->fenced[0]), step);
    cr_expect_eq(spw_load_relaxed(&feed()->fenced[1]), 0, "client 1 was never in that step");
    stop();
}

/* ---- a ring that makes no sense -------------------------------------------------------------- */

static struct spw_ring_slot *ring(void)
{
    return spw_pool_feed_at(&tiny.pool, 0, tiny.pool.feed_map.ring_off);
}

/* Where the damage goes: tail, gate, or a sequence. */
static spw_atomic64 *number_at(uint32_t i)
{
    return i == 0 ? &feed()->tail : i == 1 ? &feed()->gate : &ring()[3 * i].seq;
}

Test(adopt_damage, a_ring_that_makes_no_sense_costs_the_chunks_and_nothing_else)
{
    const uint64_t nonsense[] = {7777777, 1ull << 50, 1ull << 63, UINT64_MAX - 3000};
    for (uint32_t i = 0; i < 16; i++) {
        start(1);
        struct tiny_view view;
        cr_assert_eq(tiny_view_init(&view, &tiny.pool, 0), 0);
        uint32_t slot = tiny_store(shard, 1);
        spw_shard_flush(shard);
        tiny_view_update(&view);
        tiny_step_begin(&tiny, 0);
        struct spw_entry_copy before = entry_of(slot);
        spw_store_relaxed(number_at(i % 4), nonsense[i / 4]);
        succeed();
        cr_assert_eq(counted(SPW_WORKER_afresh), 1, "case %u", i);
        cr_assert_eq(spw_shard_incarnation(shard), 2);
        cr_assert(spw_pos_before(before.version, entry_of(slot).version));
        struct spw_shard_stats stats = tiny_stats(shard);
        cr_assert(stats.ready == 0 && stats.free + stats.retired == SLOTS);
        /* a client that was in a step holds its slot, a load of what it saw is refused */
        cr_assert_eq(spw_shard_reclaim(shard, 0), 0);
        cr_assert_eq(spw_shard_claim(shard, 0, slot, before.fill), -ESTALE);
        tiny_view_update(&view);
        cr_assert(tiny_view_matches(&view) && view.state[1] == SPW_FREE);
        spw_client_step_end(&tiny.pool.client[0]);
        cr_assert_neq(spw_shard_reclaim(shard, 0), 0);
        uint32_t again = tiny_store(shard, 1);
        cr_assert_neq(again, UINT32_MAX);
        cr_assert(spw_pos_before(before.fill, entry_of(again).fill), "fills are never given twice");
        check_use();
        succeed();
        cr_assert_eq(counted(SPW_WORKER_afresh), 1, "it is in order now");
        cr_assert_eq(tiny_stats(shard).ready, CAPACITY);
        stop();
    }
}

/* All of the ring is lost, and what it says instead is lower than what was published. */
static void forget_ring(void)
{
    for (uint32_t i = 0; i < tiny.pool.geometry.update_records; i++)
        spw_store_relaxed(&ring()[i].seq, 0);
    spw_store_relaxed(&feed()->gate, 5);
    spw_store_relaxed(&feed()->tail, 9);
}

/* Entries are what is left to tell how far positions had come: one of them, by version or fill. */
Test(adopt_damage, a_ring_that_was_overwritten_as_a_whole_lowers_no_version)
{
    enum { ALL, FILL_ALONE, VERSION_ALONE, CASES };
    const struct spw_entry_copy nothing = {.state = SPW_FREE};
    for (int left = ALL; left < CASES; left++) {
        start(1);
        tiny_store(shard, 1);
        forget_ring();
        succeed(); /* positions are far from where a ring begins */
        uint32_t slot = tiny_store(shard, 2);
        cr_assert_neq(slot, UINT32_MAX);
        spw_shard_flush(shard);
        struct spw_entry_copy entry = entry_of(slot);
        const uint64_t highest = entry.fill;
        for (uint32_t other = 0; left != ALL && other < SLOTS; other++)
            write_entry(other, &nothing);
        if (left == FILL_ALONE)
            entry.version = 0;
        if (left == VERSION_ALONE) {
            entry.state = SPW_RETIRED;
            entry.fill = 0;
        }
        write_entry(slot, &entry);
        forget_ring();
        succeed();
        cr_expect_eq(counted(SPW_WORKER_afresh), 2);
        uint32_t again = tiny_store(shard, 2);
        cr_assert_neq(again, UINT32_MAX);
        cr_expect(spw_pos_before(highest, entry_of(again).fill), "fills are never given twice");
        for (uint32_t other = 0; other < SLOTS; other++)
            cr_expect(entry_of(other).version == 0 ||
                      spw_pos_before(highest, entry_of(other).version));
        check_use();
        stop();
    }
}

/* ---- copying bits ---------------------------------------------------------------------------- */

/* Each worker clears its own, also those that speak of others' slots and those of no slot. */
Test(adopt_damage, bits_of_a_dead_copier_end_with_its_successor)
{
    start(2);
    struct spw_shard *peer = tiny_shard_open(&tiny, 1);
    uint32_t slot = tiny_store(shard, 1);
    spw_shard_flush(shard);
    cr_assert_eq(spw_shard_claim(peer, 0, slot, entry_of(slot).fill), 0);
    spw_atomic64 *bits = spw_pool_feed_at(&tiny.pool, 1, tiny.pool.feed_map.copying_off);
    spw_store_relaxed(&bits[0], UINT64_MAX);
    spw_store_relaxed(&bits[1], UINT64_MAX);
    spw_shard_close(peer); /* dies */
    cr_assert_eq(tiny_store(shard, 2), UINT32_MAX, "all slots look copied from");
    succeed();
    cr_assert_eq(tiny_store(shard, 2), UINT32_MAX, "they are not this worker's to clear");
    peer = tiny_shard_open(&tiny, 1);
    cr_assert_not_null(peer);
    check_use();
    spw_shard_close(peer);
    stop();
}
