/* Room in a shard: policies of eviction, and what is told before a chunk goes. */
#include <criterion/criterion.h>
#include <string.h>

#include "tests/support/tiny_pool.h"
#include "tier/counters.h"

TestSuite(room, .timeout = 20);

static struct tiny_pool tiny;
static struct spw_shard *shard;

static void start(const struct spw_geometry *geometry)
{
    cr_assert_eq(tiny_pool_make(&tiny, geometry), 0);
}

static void open_shard(void)
{
    shard = tiny_shard_open(&tiny, 0);
    cr_assert_not_null(shard);
}

static void stop(void)
{
    spw_shard_close(shard);
    tiny_pool_free(&tiny);
}

static uint32_t store(uint64_t n)
{
    uint32_t slot = tiny_store(shard, n);
    cr_assert_neq(slot, UINT32_MAX, "key %lu", (unsigned long)n);
    spw_shard_reclaim(shard, 0);
    return slot;
}

static void touch(uint64_t n)
{
    struct tiny_key key;
    spw_shard_touch(shard, tiny_key(&key, 0, n)->digest[0]);
}

static bool here(uint64_t n)
{
    return tiny_resident(&tiny, 0, n);
}

/* ---- policies -------------------------------------------------------------------------------- */

Test(room, fifo_evicts_what_came_first_however_much_it_is_used)
{
    struct spw_geometry geometry = tiny_geometry(1, 1, 3, 4);
    uint32_t slot;
    start(&geometry);
    tiny.evict = SPW_EVICT_BY_AGE;
    open_shard();
    store(1);
    store(2);
    store(3);
    touch(1);
    cr_assert_eq(tiny_reserve(shard, 1, NULL, &slot), SPW_PRESENT);
    store(4);
    cr_expect(!here(1) && here(2) && here(3) && here(4));
    stop();
}

Test(room, what_is_copied_from_goes_last)
{
    struct spw_geometry geometry = tiny_geometry(1, 1, 3, 4);
    struct spw_entry_copy copied;
    start(&geometry);
    open_shard();
    uint32_t first = store(1);
    store(2);
    store(3);
    cr_assert_eq(spw_shard_entry(shard, first, &copied), 0);
    cr_assert_eq(spw_shard_claim(shard, 0, first, copied.fill), 0);
    store(4);
    cr_expect(here(1) && !here(2) && here(3) && here(4));
    spw_shard_unclaim(shard, 0, first);
    store(5);
    cr_expect(!here(1) && here(3) && here(4) && here(5));
    stop();
}

/* ---- the last moment ------------------------------------------------------------------------- */

static uint32_t told[8];
static uint32_t told_count;
static bool claims;

static void evicting(void *ctx, uint32_t slot)
{
    (void)ctx;
    struct spw_entry_copy entry;
    cr_assert_eq(spw_shard_entry(shard, slot, &entry), 0);
    cr_expect_eq(entry.state, SPW_READY);
    if (claims)
        cr_assert_eq(spw_shard_claim(shard, 0, slot, entry.fill), 0);
    told[told_count++] = slot;
}

Test(room, a_victim_is_told_of_while_it_is_ready_and_may_be_claimed)
{
    struct spw_geometry geometry = tiny_geometry(1, 1, 2, 3);
    start(&geometry);
    tiny.evicting = evicting;
    open_shard();
    claims = true;
    uint32_t first = store(1);
    store(2);
    cr_expect_eq(told_count, 0);
    store(3);
    cr_assert(told_count == 1 && told[0] == first);
    claims = false;
    for (uint64_t n = 4; n < 8; n++) {
        uint32_t slot;
        if (tiny_reserve(shard, n, NULL, &slot) != SPW_RESERVED)
            continue;
        cr_expect_neq(slot, first, "handed out under a claim");
        spw_shard_ready(shard, slot);
        spw_shard_reclaim(shard, 0);
    }
    spw_shard_unclaim(shard, 0, first);
    stop();
}

/* ---- shares of spaces ------------------------------------------------------------------------ */

#define CHAT  0u
#define BATCH 1u

/* 20 chunks, two spaces. */
static void start_shared(void)
{
    struct spw_geometry geometry = tiny_geometry(1, 1, 20, 24);
    start(&geometry);
    open_shard();
}

static void give(uint32_t space, uint32_t guaranteed_permille, uint32_t largest_permille)
{
    spw_store_relaxed(&tiny.pool.ctl->space[space].shares,
                      SPW_SHARES(guaranteed_permille, largest_permille));
}

/* False: refused for lack of a slot. */
static bool store_of(uint32_t space, uint64_t n)
{
    struct tiny_key key;
    uint32_t slot;
    if (spw_shard_reserve(shard, tiny_key(&key, space, n), 0, tiny.pool.geometry.slot_bytes, NULL,
                          &slot) != SPW_RESERVED)
        return false;
    spw_shard_ready(shard, slot);
    spw_shard_reclaim(shard, 0);
    return true;
}

static void store_all(uint32_t space, uint64_t first, uint64_t count)
{
    for (uint64_t n = first; n < first + count; n++)
        cr_assert(store_of(space, n), "space %u, key %lu", space, (unsigned long)n);
}

static uint32_t count_of(uint32_t space, uint64_t first, uint64_t count)
{
    uint32_t found = 0;
    for (uint64_t n = first; n < first + count; n++) {
        struct tiny_key key;
        struct spw_entry_copy entry;
        found += spw_shard_find(shard, tiny_key(&key, space, n)->digest, &entry) == 0;
    }
    return found;
}

static uint64_t refused(void)
{
    return spw_load_relaxed(&tiny.pool.feed[0]->counter[SPW_WORKER_share_refused]);
}

Test(room, without_shares_the_oldest_goes_whose_ever_it_is)
{
    start_shared();
    store_all(CHAT, 1, 10);
    store_all(BATCH, 1, 10);
    store_all(BATCH, 11, 10);
    cr_expect_eq(count_of(CHAT, 1, 10), 0);
    cr_expect_eq(count_of(BATCH, 1, 20), 20);
    stop();
}

Test(room, a_batch_job_without_end_leaves_what_is_guaranteed_to_another)
{
    start_shared();
    give(CHAT, 500, 0);
    store_all(CHAT, 1, 12);
    store_all(BATCH, 1, 1000);
    cr_expect_eq(count_of(CHAT, 1, 12), 10, "half of all, and what came last of it");
    cr_expect_eq(count_of(CHAT, 3, 10), 10);
    cr_expect_eq(count_of(BATCH, 991, 10), 10);
    stop();
}

Test(room, what_is_guaranteed_and_not_used_is_there_for_others_until_it_is_wanted)
{
    start_shared();
    give(CHAT, 500, 0);
    store_all(BATCH, 1, 20);
    cr_expect_eq(count_of(BATCH, 1, 20), 20);
    store_all(CHAT, 1, 10);
    cr_expect_eq(count_of(CHAT, 1, 10), 10);
    store_all(CHAT, 11, 5); /* beyond it: age decides */
    cr_expect_eq(count_of(BATCH, 1, 20), 5);
    cr_expect_eq(count_of(CHAT, 1, 15), 15);
    stop();
}

Test(room, who_has_more_than_its_largest_share_makes_room_first)
{
    start_shared();
    give(BATCH, 0, 250);
    store_all(CHAT, 1, 4);
    store_all(BATCH, 1, 16); /* as long as nobody wants it */
    cr_expect_eq(count_of(BATCH, 1, 16), 16);
    store_all(CHAT, 5, 11);
    cr_expect_eq(count_of(CHAT, 1, 15), 15, "the oldest are not the first to go");
    cr_expect_eq(count_of(BATCH, 1, 16), 5);
    store_all(BATCH, 17, 100);
    cr_expect_eq(count_of(CHAT, 1, 15), 15);
    store_all(CHAT, 16, 1); /* nobody has too much: the oldest there is */
    cr_expect_eq(count_of(CHAT, 1, 16), 15);
    stop();
}

Test(room, where_all_is_promised_to_others_a_store_is_refused_and_counted)
{
    start_shared();
    give(CHAT, 1000, 0);
    store_all(CHAT, 1, 20);
    cr_expect_not(store_of(BATCH, 1));
    cr_expect_eq(refused(), 1);
    cr_expect_eq(count_of(CHAT, 1, 20), 20);
    store_all(CHAT, 21, 5); /* its own make room for it */
    cr_expect_eq(count_of(CHAT, 6, 20), 20);
    cr_expect_eq(refused(), 1);
    give(CHAT, 0, 1000);
    cr_expect(store_of(BATCH, 1), "a change counts at once");
    stop();
}

Test(room, shares_hold_for_what_was_there_before_the_worker)
{
    start_shared();
    give(CHAT, 500, 0);
    store_all(CHAT, 1, 10);
    store_all(BATCH, 1, 10);
    spw_shard_close(shard);
    open_shard();
    store_all(BATCH, 11, 100);
    cr_expect_eq(count_of(CHAT, 1, 10), 10);
    cr_expect_eq(count_of(BATCH, 101, 10), 10);
    stop();
}
