/* The shard: capacity, exact LRU, reclamation by words, pins and copying bits, adoption. */
#include <criterion/criterion.h>
#include <string.h>

#include "tests/support/tiny_pool.h"
#include "tier/counters.h"
#include "tier/shard.h"

#define LIMIT_NS 1000000000ull

static struct tiny_pool tiny;
static bool dead[SPW_CLIENTS_MAX];

static bool is_dead(void *ctx, uint32_t c, uint64_t generation)
{
    return dead[c];
}

static struct spw_shard *open_shard(uint32_t k)
{
    struct spw_shard_config config = {
        .pool = &tiny.pool, .k = k, .fence_limit_ns = LIMIT_NS, .client_dead = is_dead};
    struct spw_shard *shard = NULL;
    struct spw_error err = {0};
    cr_assert_eq(spw_shard_open(&config, &shard, &err), 0, "%s", err.text);
    return shard;
}

static struct spw_shard *fresh(uint32_t workers, uint32_t capacity, uint32_t slots)
{
    struct spw_geometry geometry = tiny_geometry(workers, 3, capacity, slots);
    cr_assert_eq(tiny_pool_make(&tiny, &geometry), 0);
    return open_shard(0);
}

static enum spw_reserve_result reserve(struct spw_shard *shard, uint64_t n, uint64_t *protect,
                                       uint32_t *slot)
{
    struct tiny_key key;
    enum spw_reserve_result result =
        spw_shard_reserve(shard, tiny_key(&key, 0, n), 0, 256, protect, slot);
    if (protect && result != SPW_NO_SLOT)
        protect[*slot / 64] |= 1ull << *slot % 64;
    return result;
}

static uint32_t store(struct spw_shard *shard, uint64_t n)
{
    uint32_t slot = 0;
    cr_assert_eq(reserve(shard, n, NULL, &slot), SPW_RESERVED, "key %lu", (unsigned long)n);
    spw_shard_ready(shard, slot);
    return slot;
}

static bool resident(const struct spw_shard *shard, uint64_t n)
{
    struct spw_table_view view;
    struct spw_entry_copy entry;
    struct tiny_key key;
    (void)shard;
    spw_table_view_init(&view, tiny.pool.feed[0], &tiny.pool.feed_map, &tiny.pool.geometry);
    return spw_table_find(&view, tiny_key(&key, 0, n), &entry) == 0 && entry.state == SPW_READY;
}

static struct spw_shard_stats stats(const struct spw_shard *shard)
{
    struct spw_shard_stats out;
    spw_shard_stats(shard, &out);
    return out;
}

static uint64_t tag_of(uint64_t n)
{
    struct tiny_key key;
    return tiny_key(&key, 0, n)->digest[0];
}

/* ---- capacity and age ------------------------------------------------------------------------ */

Test(shard, a_stored_chunk_is_found_and_published)
{
    struct spw_shard *shard = fresh(1, 4, 5);
    struct tiny_view view;
    cr_assert_eq(tiny_view_init(&view, &tiny.pool, 0), 0);
    tiny_view_update(&view);
    uint32_t slot = 99;
    cr_assert_eq(reserve(shard, 7, NULL, &slot), SPW_RESERVED);
    spw_shard_flush(shard);
    tiny_view_update(&view);
    cr_assert_eq(view.state[7], SPW_FILLING);
    spw_shard_ready(shard, slot);
    tiny_view_update(&view);
    cr_assert_eq(view.state[7], SPW_FILLING);
    spw_shard_flush(shard);
    tiny_view_update(&view);
    cr_assert_eq(view.state[7], SPW_READY);
    cr_assert_eq(view.gaps, 0);
    cr_assert(tiny_view_matches(&view));
    spw_shard_close(shard);
}

Test(shard, evicts_the_least_recently_used_exactly_at_capacity)
{
    struct spw_shard *shard = fresh(1, 3, 4);
    store(shard, 1);
    store(shard, 2);
    store(shard, 3);
    cr_assert_eq(stats(shard).evicted, 0);
    spw_shard_touch(shard, tag_of(1));
    store(shard, 4);
    cr_assert(resident(shard, 1) && !resident(shard, 2) && resident(shard, 3));
    cr_assert_eq(stats(shard).ready, 3);
    cr_assert_eq(stats(shard).retired, 1);
    store(shard, 5);
    cr_assert(resident(shard, 1) && !resident(shard, 3) && resident(shard, 4));
    cr_assert_eq(stats(shard).evicted, 2);
    spw_shard_close(shard);
}
