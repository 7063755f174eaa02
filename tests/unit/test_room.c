/* Room in a shard: policies of eviction, and what is told before a chunk goes. */
#include <criterion/criterion.h>
#include <string.h>

#include "tests/support/tiny_pool.h"

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
