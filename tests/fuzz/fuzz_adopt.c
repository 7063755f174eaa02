/*
 * A feed with any bytes in it, as a worker adopts it. It never refuses, and holds a shard that is
 * whole: of every slot the state makes sense, whatever is READY is a chunk by its own key, is found by
 * it and seen by clients, stores and reclaim work and their news arrives, and adopting again keeps
 * the same chunks. Nothing ever goes back.
 */
#include "sched/view.h"
#include "tests/fuzz/guarded.h"
#include "tier/shard_cold.h"

static struct guarded_pool pool;
static struct spw_change_log change_log;

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    guarded_pool_make(&pool);
    guarded_pool_fill(&pool);
    fuzz_expect(spw_change_log_init(&change_log, 0) == 0, "no log of changes");
    return 0;
}

static uint64_t incarnation(void)
{
    return spw_load_relaxed(&pool.pool.feed[0]->incarnation);
}

/* What is READY is told in @out_ready, a bit a slot. */
static void check_table(const struct spw_shard *shard, uint64_t *out_ready)
{
    struct spw_table_view table;
    spw_table_view_init(&table, pool.pool.feed[0], &pool.pool.feed_map, &pool.pool.geometry);
    *out_ready = 0;
    for (uint32_t slot = 0; slot < table.entries; slot++) {
        struct spw_entry_copy entry, found;
        uint64_t digest[2];
        fuzz_expect(spw_shard_entry(shard, slot, &entry) == 0, "an adopted entry can be read");
        fuzz_expect(slot < table.slots || entry.state == SPW_FREE, "nothing is known of below");
        fuzz_expect(entry.state != SPW_FILLING, "nobody fills what was adopted");
        if (entry.state != SPW_READY)
            continue;
        *out_ready |= 1ull << slot;
        spw_chunk_digest(entry.space, entry.group, entry.key, entry.key_bytes, digest);
        fuzz_expect(!memcmp(digest, entry.digest, sizeof digest) && entry.fill == entry.version &&
                        entry.chunk_bytes <= pool.pool.geometry.slot_bytes,
                    "a READY chunk that isn't one");
        struct spw_chunk_key key = {.digest = {digest[0], digest[1]},
                                    .space = entry.space,
                                    .group = entry.group,
                                    .key_bytes = entry.key_bytes,
                                    .key = entry.key};
        fuzz_expect(spw_table_find(&table, &key, &found) == 0 && found.state == SPW_READY &&
                        found.slot == slot,
                    "a READY chunk that isn't found");
    }
}

/* Whatever the ring was, clients see the shard as it is now. */
static void check_view(uint64_t ready)
{
    struct spw_views views;
    uint64_t budget = UINT64_MAX;
    fuzz_expect(spw_views_init(&views, &pool.readers, -1, &change_log) == 0, "a view is made");
    spw_views_update(&views, 0, &budget);
    fuzz_expect(spw_view_live(&views, 0), "an adopted shard can be seen");
    for (uint32_t slot = 0; slot < pool.pool.geometry.slots; slot++) {
        uint32_t state;
        uint64_t tag;
        int rc = spw_table_state(&views.view[0].table, slot, &state, &tag);
        fuzz_expect(rc == 0 && (!(ready >> slot & 1) ||
                                (spw_replica_get(&views.replica, tag) & 3) == SPW_REPLICA_READY),
                    "a READY chunk is seen");
    }
    spw_views_fini(&views);
}

/* The news of a store reaches who reads from the tail on. */
static void check_news(struct spw_shard *shard, struct spw_bcast_reader *reader)
{
    struct spw_record record[64];
    reader->cursor = spw_bcast_tail(reader);
    spw_shard_flush(shard);
    uint64_t wanted = spw_bcast_tail(reader) - reader->cursor;
    fuzz_expect(wanted != 0 && spw_bcast_drain(reader, record, 64) == (int)wanted, "news arrives");
}

static void use(struct spw_shard *shard)
{
    struct spw_bcast_reader reader;
    spw_bcast_reader_init(&reader, pool.pool.feed[0],
                          spw_pool_feed_at(&pool.pool, 0, pool.pool.feed_map.ring_off),
                          pool.pool.geometry.update_records);
    spw_shard_reclaim(shard, 0);
    for (uint32_t id = 0; id < GUARDED_BELOW; id++) {
        struct guarded_key key;
        uint32_t slot;
        fuzz_expect(spw_shard_cold_add(shard, id, guarded_key(&key, 30 + id), 0, 256) == 0,
                    "a chunk below");
        if (id == 2 && spw_shard_promote(shard, id, 1, &slot) == SPW_RESERVED)
            spw_shard_release(shard, slot);
    }
    for (uint64_t n = 20; n < 24; n++) {
        struct guarded_key key;
        uint32_t slot;
        spw_shard_flush(shard);
        fuzz_expect(spw_shard_reserve(shard, guarded_key(&key, n), 0, 256, NULL, &slot) ==
                            SPW_RESERVED &&
                        slot < pool.pool.geometry.slots,
                    "a slot for a new key");
        spw_shard_ready(shard, slot);
        check_news(shard, &reader);
        spw_shard_touch(shard, key.key.digest[0]);
        spw_shard_reclaim(shard, 1000000000ull * n);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input in = {data, size};
    struct fuzz_window window[GUARDED_FEED_WINDOWS];
    struct spw_shard *shard;
    uint64_t ready, again;
    guarded_pool_restore(&pool);
    guarded_feed_windows(&pool, 0, window);
    while (in.left)
        fuzz_damage(&in, window, GUARDED_FEED_WINDOWS);
    uint64_t before = incarnation();
    fuzz_expect(guarded_shard_open(&pool, 0, &shard) == 0, "any bytes are adopted");
    fuzz_expect(spw_shard_incarnation(shard) == incarnation() &&
                    spw_pos_before(before, incarnation()) && incarnation() != 0,
                "a later incarnation");
    check_table(shard, &ready);
    spw_shard_close(shard);
    fuzz_expect(guarded_shard_open(&pool, 0, &shard) == 0, "what was adopted is adopted again");
    check_table(shard, &again);
    fuzz_expect(again == ready, "the same chunks");
    check_view(again);
    use(shard);
    spw_shard_close(shard);
    return 0;
}
