/* spillway fsck over entries of the tier below, in a shard whose worker is gone. */
#include <criterion/criterion.h>
#include <string.h>

#include "tests/support/tiny_pool.h"
#include "tier/shard_cold.h"
#include "tools/fsck.h"

TestSuite(fsck_below, .timeout = 60);

#define CAPACITY 4u
#define SLOTS    6u
#define IDS      6u

static struct tiny_pool tiny;
static struct spw_shard *shard;
static struct spw_fsck_report report;

static void start(void)
{
    struct spw_geometry geometry = tiny_geometry_cold(tiny_geometry(1, 1, CAPACITY, SLOTS), IDS);
    cr_assert_eq(tiny_pool_make(&tiny, &geometry), 0);
    shard = tiny_shard_open(&tiny, 0);
    cr_assert_not_null(shard);
    for (uint64_t n = 0; n < 3; n++)
        cr_assert_neq(tiny_store(shard, n), UINT32_MAX);
    for (uint32_t id = 0; id < 4; id++) /* two BACKED, two COLD */
        cr_assert_eq(tiny_cold_add(shard, id, id < 2 ? id : id + 10), 0);
    spw_shard_flush(shard);
}

static void stop(void)
{
    spw_shard_close(shard);
    tiny_pool_free(&tiny);
}

static void look(void)
{
    memset(&report, 0, sizeof report);
    spw_fsck_feed(
        &(struct spw_fsck_feed){tiny.pool.feed[0], &tiny.pool.geometry, tiny.pool.ctl, 0, -1},
        &report);
}

static bool found(enum spw_fsck_severity severity, const char *where, const char *words)
{
    for (uint32_t i = 0; i < report.findings; i++)
        if (report.finding[i].severity == severity && strcmp(report.finding[i].where, where) == 0 &&
            strstr(report.finding[i].text, words))
            return true;
    return false;
}

static const char *first_words(void)
{
    return report.findings ? report.finding[0].text : "nothing found";
}

static void set_state(uint32_t entry, uint32_t state)
{
    struct spw_entry *at = spw_pool_feed_at(&tiny.pool, 0, tiny.pool.feed_map.entry_off);
    uint64_t packed = spw_load_relaxed(&at[entry].packed);
    spw_store_relaxed(&at[entry].packed, (packed & ~0xffull) | state);
}

Test(fsck_below, what_the_tier_below_has_is_fine_and_counted)
{
    start();
    look();
    cr_assert(report.damages == 0 && report.notes == 0, "%s", first_words());
    cr_assert(report.entries[SPW_COLD] == 2 && report.entries[SPW_BACKED] == 2 &&
              report.entries[SPW_READY] == 3 && report.entries[SPW_FREE] == SLOTS - 3);
    stop();
}

/* A death between the two entries of a change leaves one; a second one can't be left. */
Test(fsck_below, an_entry_that_contradicts_the_slots_is_a_death_s_rest_and_two_are_damage)
{
    start();
    set_state(SLOTS + 0, SPW_COLD);
    look();
    cr_assert(report.damages == 0 && found(SPW_FSCK_NOTE, "feed.0 below 0", "between"), "%s",
              first_words());
    set_state(SLOTS + 3, SPW_BACKED);
    look();
    cr_assert(report.damages == 1 && found(SPW_FSCK_DAMAGE, "feed.0 below 3", "but none has"), "%s",
              first_words());
    set_state(SLOTS + 3, SPW_COLD);
    set_state(SLOTS + 1, SPW_COLD);
    look();
    cr_assert(report.damages == 1 && found(SPW_FSCK_DAMAGE, "feed.0 below 1", "a slot has it"),
              "%s", first_words());
    stop();
}

Test(fsck_below, a_key_with_two_ids_and_states_in_the_wrong_place_are_damage)
{
    start();
    struct spw_table table;
    struct spw_entry_copy entry;
    spw_table_init(&table, tiny.pool.feed[0], &tiny.pool.feed_map, &tiny.pool.geometry);
    cr_assert_eq(spw_shard_cold_entry(shard, 2, &entry), 0);
    spw_table_write(&table, SLOTS + 5, &entry, entry.key);
    look();
    cr_assert(report.damages == 1 && found(SPW_FSCK_DAMAGE, "feed.0 below 5", "entry 2 has"), "%s",
              first_words());
    set_state(SLOTS + 5, SPW_READY);
    set_state(SLOTS - 1, SPW_COLD);
    look();
    cr_assert(report.damages == 2 && found(SPW_FSCK_DAMAGE, "feed.0 below 5", "state") &&
                  found(SPW_FSCK_DAMAGE, "feed.0 slot 5", "state"),
              "%s", first_words());
    stop();
}
