/* The shard as its worker drives it: capacity, order of age, news; readers that attach and lag. */
#include <criterion/criterion.h>
#include <string.h>

#include "tests/support/tiny_pool.h"
#include "tier/counters.h"

static struct tiny_pool tiny;
static struct spw_shard *shard;

static void start(uint32_t capacity, uint32_t slots)
{
    struct spw_geometry geometry = tiny_geometry(1, 3, capacity, slots);
    cr_assert_eq(tiny_pool_make(&tiny, &geometry), 0);
    shard = tiny_shard_open(&tiny, 0);
    cr_assert_not_null(shard);
}

static void stop(void)
{
    spw_shard_close(shard);
    tiny_pool_free(&tiny);
}

static void store(uint64_t n)
{
    uint32_t slot = tiny_store(shard, n);
    cr_assert_neq(slot, UINT32_MAX, "key %lu", (unsigned long)n);
    spw_shard_reclaim(shard, 0);
}

static void touch(uint64_t n)
{
    struct tiny_key key;
    spw_shard_touch(shard, tiny_key(&key, 0, n)->digest[0]);
}

/* Exactly these keys of 0..63 are READY; ends with TINY_KEYS. */
static void expect_resident(const uint64_t *keys)
{
    bool want[TINY_KEYS] = {false};
    for (; *keys < TINY_KEYS; keys++)
        want[*keys] = true;
    for (uint64_t n = 0; n < TINY_KEYS; n++)
        cr_assert_eq(tiny_resident(&tiny, 0, n), want[n], "key %lu", (unsigned long)n);
}

#define RESIDENT(...) expect_resident((const uint64_t[]){__VA_ARGS__ __VA_OPT__(, ) TINY_KEYS})

/* ---- capacity -------------------------------------------------------------------------------- */

Test(shard, a_stored_chunk_is_found_and_published)
{
    start(4, 5);
    struct tiny_view view;
    uint32_t slot;
    cr_assert_eq(tiny_view_init(&view, &tiny.pool, 0), 0);
    tiny_view_update(&view);
    cr_assert_eq(tiny_reserve(shard, 7, NULL, &slot), SPW_RESERVED);
    spw_shard_flush(shard);
    tiny_view_update(&view);
    cr_assert_eq(view.state[7], SPW_FILLING);
    spw_shard_ready(shard, slot);
    tiny_view_update(&view);
    cr_assert_eq(view.state[7], SPW_FILLING, "not before the flush");
    spw_shard_flush(shard);
    tiny_view_update(&view);
    cr_assert_eq(view.state[7], SPW_READY);
    cr_assert(view.gaps == 0 && tiny_view_matches(&view));
    stop();
}

Test(shard, an_entry_s_version_is_its_record_s_position)
{
    start(4, 5);
    struct spw_entry_copy entry;
    uint64_t tail = spw_load_relaxed(&tiny.pool.feed[0]->tail);
    uint32_t slot = tiny_store(shard, 1);
    cr_assert_eq(spw_shard_entry(shard, slot, &entry), 0);
    cr_assert(entry.version == tail + 2 && entry.fill == tail + 2);
    spw_shard_place(shard, slot, 4711);
    spw_shard_retire(shard, slot);
    cr_assert_eq(spw_shard_entry(shard, slot, &entry), 0);
    cr_assert(entry.version == tail + 3 && entry.fill == tail + 2 && entry.place_bytes == 4711);
    spw_shard_reclaim(shard, 0);
    cr_assert_eq(spw_shard_entry(shard, slot, &entry), 0);
    cr_assert(entry.state == SPW_FREE && entry.version == tail + 3);
    cr_assert_eq(spw_load_relaxed(&tiny.pool.feed[0]->tail), tail + 3, "freeing publishes nothing");
    cr_assert_eq(spw_shard_entry(shard, 5, &entry), -EINVAL);
    stop();
}

Test(shard, evicts_the_oldest_exactly_when_one_more_would_exceed_the_capacity)
{
    start(3, 4);
    store(1);
    store(2);
    store(3);
    cr_assert_eq(tiny_stats(shard).evicted, 0);
    RESIDENT(1, 2, 3);
    touch(1);
    store(4);
    RESIDENT(1, 3, 4);
    touch(3);
    touch(99);
    store(5);
    RESIDENT(3, 4, 5);
    cr_assert_eq(tiny_stats(shard).evicted, 2);
    cr_assert_eq(spw_load_relaxed(&tiny.pool.feed[0]->counter[SPW_WORKER_evicted]), 2);
    cr_assert_eq(spw_load_relaxed(&tiny.pool.feed[0]->counter[SPW_WORKER_touches]), 2);
    stop();
}

Test(shard, a_chunk_touched_while_filling_keeps_that_place_when_ready)
{
    start(3, 4);
    uint32_t slot[3];
    for (uint64_t n = 0; n < 3; n++)
        cr_assert_eq(tiny_reserve(shard, n, NULL, &slot[n]), SPW_RESERVED);
    touch(0);
    for (uint64_t n = 0; n < 3; n++)
        spw_shard_ready(shard, slot[n]);
    store(10);
    RESIDENT(0, 2, 10);
    stop();
}

Test(shard, a_key_that_is_here_is_present_and_most_recent)
{
    start(3, 4);
    uint32_t slot, again;
    cr_assert_eq(tiny_reserve(shard, 1, NULL, &slot), SPW_RESERVED);
    cr_assert_eq(tiny_reserve(shard, 1, NULL, &again), SPW_PRESENT);
    cr_assert_eq(slot, again);
    spw_shard_ready(shard, slot);
    store(2);
    store(3);
    cr_assert_eq(tiny_reserve(shard, 1, NULL, &again), SPW_PRESENT);
    cr_assert_eq(slot, again);
    store(4);
    RESIDENT(1, 3, 4);
    stop();
}

Test(shard, nothing_is_evicted_when_nothing_can_be_had)
{
    start(3, 4);
    uint64_t protect[1] = {0};
    uint32_t slot;
    store(1);
    cr_assert_eq(tiny_reserve(shard, 2, protect, &slot), SPW_RESERVED);
    cr_assert_eq(tiny_reserve(shard, 3, protect, &slot), SPW_RESERVED);
    cr_assert_eq(tiny_reserve(shard, 1, protect, &slot), SPW_PRESENT);
    cr_assert_eq(tiny_reserve(shard, 4, protect, &slot), SPW_NO_SLOT, "all filling or protected");
    RESIDENT(1);
    cr_assert_eq(tiny_stats(shard).evicted, 0);
    tiny_step_begin(&tiny, 0);
    cr_assert_eq(tiny_reserve(shard, 4, NULL, &slot), SPW_RESERVED);
    RESIDENT();
    spw_shard_ready(shard, slot);
    cr_assert_eq(tiny_reserve(shard, 5, NULL, &slot), SPW_NO_SLOT, "the retired one is in a step");
    RESIDENT(4);
    cr_assert_eq(tiny_stats(shard).evicted, 1);
    stop();
}

/* CE-9: within one chain the deepest chunk goes first. */
Test(shard, a_chain_is_evicted_deepest_first)
{
    for (uint32_t run = 0; run < 200; run++) {
        start(3, 4);
        uint64_t protect[1] = {0};
        uint32_t slot[3];
        for (uint64_t n = 0; n < 3; n++)
            cr_assert_eq(tiny_reserve(shard, n + 1, protect, &slot[n]), SPW_RESERVED);
        for (uint32_t i = 0; i < 3; i++)
            spw_shard_ready(shard, slot[(run + i * (1 + run % 2)) % 3]);
        store(9);
        RESIDENT(1, 2, 9);
        store(10);
        RESIDENT(1, 9, 10);
        stop();
    }
}

static void follow(uint64_t before, uint64_t n)
{
    struct tiny_key a, b;
    spw_shard_follow(shard, tiny_key(&a, 0, before)->digest[0], tiny_key(&b, 0, n)->digest[0]);
}

static uint64_t orphaned(void)
{
    return spw_load_relaxed(&tiny.pool.feed[0]->counter[SPW_WORKER_orphaned]);
}

/* CE-9: a chunk without its ancestors goes before any that can be reached. */
Test(shard, ce9_what_needs_a_lost_chunk_goes_before_all_others)
{
    start(5, 6);
    for (uint64_t n = 1; n <= 4; n++)
        store(n);
    store(9);
    for (uint64_t n = 1; n < 4; n++)
        follow(n, n + 1);
    touch(1);
    touch(3);
    touch(4); /* 2 is the oldest now, and 9 older than 3 and 4 */
    store(10);
    RESIDENT(1, 3, 4, 9, 10);
    cr_expect_eq(orphaned(), 2);
    store(11);
    store(12);
    RESIDENT(1, 9, 10, 11, 12);
    stop();
}

Test(shard, ce9_what_comes_back_or_is_used_is_worth_its_age_again)
{
    start(3, 4);
    for (uint64_t n = 1; n <= 3; n++)
        store(n);
    follow(1, 2);
    follow(2, 3);
    touch(2);
    touch(3);
    store(4); /* 1 goes: 2 and 3 are next */
    touch(3);
    store(5);
    RESIDENT(3, 4, 5);
    store(6);
    RESIDENT(3, 5, 6);
    stop();
}

Test(shard, a_call_without_protection_starts_a_new_chain)
{
    start(3, 4);
    uint64_t first[1] = {0}, second[1] = {0};
    uint32_t slot[3];
    cr_assert_eq(tiny_reserve(shard, 1, first, &slot[0]), SPW_RESERVED);
    cr_assert_eq(tiny_reserve(shard, 2, first, &slot[1]), SPW_RESERVED);
    cr_assert_eq(tiny_reserve(shard, 3, second, &slot[2]), SPW_RESERVED);
    for (uint32_t i = 0; i < 3; i++)
        spw_shard_ready(shard, slot[i]);
    store(4);
    RESIDENT(1, 3, 4);
    store(5);
    RESIDENT(3, 4, 5);
    stop();
}

/* CE-11: a primary of one slot, 10,000 requests of 8 chunks. */
Test(shard, a_pool_of_one_chunk_refuses_and_runs_on)
{
    start(1, 2);
    uint64_t refused = 0, stored = 0;
    for (uint64_t i = 0; i < 10000; i++) {
        uint64_t protect[1] = {0};
        for (uint64_t n = 0; n < 8; n++) {
            uint32_t slot;
            if (tiny_reserve(shard, i * 3 + n, protect, &slot) == SPW_NO_SLOT) {
                refused++;
                continue;
            }
            struct spw_entry_copy entry;
            cr_assert_eq(spw_shard_entry(shard, slot, &entry), 0);
            if (entry.state == SPW_FILLING)
                spw_shard_ready(shard, slot);
            stored++;
        }
        if (i % 3 == 0)
            spw_shard_reclaim(shard, i);
        struct spw_shard_stats stats = tiny_stats(shard);
        cr_assert_eq(stats.filling + stats.ready + stats.retired + stats.free, 2);
        cr_assert_eq(stats.ready, 1);
    }
    cr_assert_eq(refused + stored, 80000);
    cr_assert_geq(stored, 10000);
    stop();
}

/* The cache against a list that is searched: same hits, same residents, at every step. */
Test(shard, is_an_exact_lru_of_its_capacity)
{
    enum { CAPACITY = 20, KEYS = 60 };
    start(CAPACITY, CAPACITY + 1);
    uint64_t age[KEYS] = {0}, now = 0, seed = 9;
    for (uint32_t i = 0; i < 5000; i++) {
        seed = seed * 6364136223846793005ull + 1442695040888963407ull;
        uint64_t n = (seed >> 40) % KEYS;
        uint32_t newer = 0;
        for (uint64_t other = 0; other < KEYS; other++)
            newer += age[other] > age[n];
        bool want = age[n] != 0 && newer < CAPACITY;
        cr_assert_eq(tiny_resident(&tiny, 0, n), want, "step %u", i);
        if (want)
            touch(n);
        else
            store(n);
        age[n] = ++now;
    }
    stop();
}

Test(shard, a_reset_retires_one_space_but_no_chunk_in_copy)
{
    start(6, 7);
    struct tiny_key key;
    uint32_t slot, copying, other;
    store(1);
    store(2);
    cr_assert_eq(tiny_reserve(shard, 3, NULL, &slot), SPW_RESERVED);
    cr_assert_eq(tiny_reserve(shard, 4, NULL, &copying), SPW_RESERVED);
    spw_shard_copy_begin(shard, copying);
    cr_assert_eq(spw_shard_reserve(shard, tiny_key(&key, 1, 1), 0, 256, NULL, &other),
                 SPW_RESERVED);
    spw_shard_ready(shard, other);
    cr_assert_eq(spw_shard_retire_space(shard, 0), 3);
    struct spw_shard_stats stats = tiny_stats(shard);
    cr_assert(stats.filling == 1 && stats.ready == 1 && stats.retired == 3);
    stop();
}

/* ---- readers --------------------------------------------------------------------------------- */

/* A key is stored again while its old slot is still RETIRED; freeing that says nothing of it. */
Test(shard, a_key_stored_again_is_not_lost_when_its_old_slot_is_freed)
{
    start(3, 5);
    struct tiny_view view;
    cr_assert_eq(tiny_view_init(&view, &tiny.pool, 0), 0);
    tiny_view_update(&view);
    uint32_t old = tiny_store(shard, 1);
    tiny_step_begin(&tiny, 0);
    spw_shard_retire(shard, old);
    uint32_t again = tiny_store(shard, 1);
    cr_assert_neq(again, UINT32_MAX);
    cr_assert_neq(again, old);
    spw_shard_flush(shard);
    tiny_view_update(&view);
    cr_assert_eq(view.state[1], SPW_READY);
    spw_client_step_end(&tiny.pool.client[0]);
    cr_assert_eq(spw_shard_reclaim(shard, 0), 1);
    tiny_view_update(&view);
    cr_assert_eq(view.state[1], SPW_READY);
    cr_assert(tiny_view_matches(&view) && tiny_resident(&tiny, 0, 1));
    stop();
}

/* CE-12: a claim on the only slot of the reserve may last; stores don't wait for its end */
Test(shard, a_reserve_that_lies_with_a_copy_is_replaced)
{
    start(2, 3);
    struct spw_entry_copy copied;
    uint32_t first = tiny_store(shard, 1), second = tiny_store(shard, 2), slot;
    cr_assert_eq(spw_shard_entry(shard, first, &copied), 0);
    cr_assert_eq(spw_shard_claim(shard, 0, first, copied.fill), 0);
    cr_assert_eq(spw_shard_entry(shard, second, &copied), 0);
    cr_assert_eq(spw_shard_claim(shard, 0, second, copied.fill), 0);
    store(3); /* 1 goes, its slot lies with the copy */
    RESIDENT(2, 3);
    cr_assert_eq(tiny_reserve(shard, 4, NULL, &slot), SPW_RESERVED);
    RESIDENT(2); /* one more went for it, and no second one */
    cr_assert_neq(slot, first);
    spw_shard_ready(shard, slot);
    spw_shard_flush(shard);
    RESIDENT(2, 4);
    spw_shard_unclaim(shard, 0, first);
    spw_shard_unclaim(shard, 0, second);
    store(5);
    RESIDENT(4, 5);
    stop();
}

Test(shard, a_reader_that_was_lapped_resyncs_once)
{
    start(8, 10);
    struct tiny_view view;
    cr_assert_eq(tiny_view_init(&view, &tiny.pool, 0), 0);
    tiny_view_update(&view);
    for (uint64_t n = 0; n < 60; n++) /* 172 records in a ring of 64 */
        store(n);
    tiny_view_update(&view);
    cr_assert(view.gaps == 1 && tiny_view_matches(&view));
    store(60);
    tiny_view_update(&view);
    cr_assert(view.gaps == 1 && tiny_view_matches(&view));
    stop();
}

struct meddling {
    uint32_t at;    /* call at which to change the table, or EVERY_CALL */
    uint32_t calls; /* so far */
    uint64_t n;     /* next key to store */
    uint32_t stores;
};
#define EVERY_CALL UINT32_MAX

static void meddle(void *ctx)
{
    struct meddling *meddling = ctx;
    uint32_t call = meddling->calls++;
    if (meddling->at != EVERY_CALL && meddling->at != call)
        return;
    for (uint32_t i = 0; i < meddling->stores; i++)
        tiny_store(shard, meddling->n++ % TINY_KEYS);
    spw_shard_reclaim(shard, 0);
    spw_shard_flush(shard);
}

/* rings 14: attach while the worker publishes, at every point between two reads. */
Test(shard, attach_during_changes_loses_nothing_wherever_they_fall)
{
    bool reached = true;
    for (uint32_t at = 0; reached; at++) {
        start(4, 6);
        for (uint64_t n = 0; n < 9; n++)
            store(n);
        struct meddling meddling = {.at = at, .n = 5, .stores = 6};
        struct tiny_view view;
        cr_assert_eq(tiny_view_init(&view, &tiny.pool, 0), 0);
        view.between = meddle;
        view.ctx = &meddling;
        tiny_view_update(&view);
        cr_assert(view.valid);
        view.between = NULL;
        tiny_view_update(&view);
        cr_assert(tiny_view_matches(&view), "changed at call %u", at);
        reached = at < meddling.calls;
        stop();
    }
}

/* rings 12: lapped again in every resync. */
Test(shard, a_reader_lapped_in_every_resync_has_an_empty_view_until_it_gets_through)
{
    start(4, 6);
    struct meddling meddling = {.at = EVERY_CALL, .n = 5, .stores = 40};
    struct tiny_view view;
    cr_assert_eq(tiny_view_init(&view, &tiny.pool, 0), 0);
    view.between = meddle;
    view.ctx = &meddling;
    for (uint32_t i = 0; i < 5; i++) {
        tiny_view_update(&view);
        cr_assert(!view.valid);
        for (uint32_t n = 0; n < TINY_KEYS; n++)
            cr_assert_eq(view.state[n], SPW_FREE);
    }
    view.between = NULL;
    tiny_view_update(&view);
    cr_assert(tiny_view_matches(&view));
    stop();
}

Test(shard, more_news_than_a_batch_comes_out_in_order)
{
    struct spw_geometry geometry = tiny_geometry(1, 1, 600, 601);
    geometry.update_records = 2048;
    cr_assert_eq(tiny_pool_make(&tiny, &geometry), 0);
    shard = tiny_shard_open(&tiny, 0);
    struct tiny_view view;
    cr_assert_eq(tiny_view_init(&view, &tiny.pool, 0), 0);
    tiny_view_update(&view);
    for (uint64_t n = 0; n < 500; n++)
        cr_assert_neq(tiny_store(shard, n), UINT32_MAX);
    spw_shard_flush(shard);
    tiny_view_update(&view);
    cr_assert(view.gaps == 0 && tiny_view_matches(&view));
    cr_assert_eq(spw_load_relaxed(&tiny.pool.feed[0]->counter[SPW_WORKER_updates]), 1000);
    stop();
}

Test(shard, the_smallest_ring_will_do)
{
    struct spw_geometry geometry = tiny_geometry(1, 1, 2, 3);
    geometry.update_records = 2;
    geometry.gate_records = 1;
    cr_assert_eq(tiny_pool_make(&tiny, &geometry), 0);
    shard = tiny_shard_open(&tiny, 0);
    for (uint64_t n = 0; n < 50; n++)
        store(n);
    RESIDENT(48, 49);
    stop();
}

Test(shard, an_index_too_small_for_its_slots_is_refused_in_words)
{
    struct spw_geometry geometry = tiny_geometry(1, 1, 20, 21);
    geometry.index_buckets--;
    cr_assert_eq(tiny_pool_make(&tiny, &geometry), 0);
    struct spw_shard_config config = {.pool = &tiny.pool};
    struct spw_error err = {0};
    cr_assert_eq(spw_shard_open(&config, &shard, &err), -EINVAL);
    cr_assert_str_eq(err.text, "index_buckets is 5, 21 entries need 6");
    tiny_pool_free(&tiny);
}
