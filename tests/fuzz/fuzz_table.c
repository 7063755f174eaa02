/*
 * Feeds with any bytes in them, as a client sees them: table, index and ring through its views and
 * through what it asks when it submits a load. Nothing leaves the mapping or writes to it, a find is
 * of the very key that was asked for, and a view that isn't used says of no chunk that it is there.
 */
#include "sched/view.h"
#include "tests/fuzz/guarded.h"
#include "tier/eta.h"

#define UPDATES_MAX 64u

static struct guarded_pool pool;
static struct spw_change_log change_log;
static struct spw_views views;

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    guarded_pool_make(&pool);
    guarded_pool_fill(&pool);
    fuzz_expect(spw_change_log_init(&change_log, 16) == 0, "a log of changes");
    return 0;
}

static void check_found(const struct spw_entry_copy *entry, const struct spw_chunk_key *key)
{
    fuzz_expect(entry->slot < pool.pool.geometry.slots, "a slot that there isn't");
    fuzz_expect(entry->state == SPW_READY || (entry->state == SPW_RETIRED && entry->fill != 0),
                "found what can't be loaded");
    fuzz_expect(entry->key_bytes == key->key_bytes && entry->space == key->space &&
                    entry->group == key->group && !memcmp(entry->key, key->key, key->key_bytes) &&
                    !memcmp(entry->digest, key->digest, sizeof key->digest),
                "found another key");
}

static void ask(uint32_t k, uint64_t n)
{
    struct spw_stream_sample sample;
    struct guarded_key storage;
    struct spw_entry_copy entry;
    struct spw_table_view table;
    const struct spw_chunk_key *key = guarded_key(&storage, n);
    spw_table_view_init(&table, pool.readers.feed[k], &pool.readers.feed_map,
                        &pool.readers.geometry);
    if (spw_table_find(&table, key, &entry) == 0)
        check_found(&entry, key);
    if (spw_table_find_below(&table, key, &entry) == 0)
        fuzz_expect(entry.slot >= table.slots && entry.slot < table.entries &&
                        (entry.state == SPW_COLD || entry.state == SPW_BACKED) &&
                        !memcmp(entry.digest, key->digest, sizeof key->digest),
                    "found what the tier below doesn't have");
    spw_stream_read(&pool.readers.feed[k]->stream, &sample);
    if (spw_table_find_filling(&table, key->digest, &entry) == 0) {
        fuzz_expect(entry.slot < table.slots && entry.state == SPW_FILLING &&
                        !memcmp(entry.digest, key->digest, sizeof key->digest),
                    "found what isn't being filled");
        spw_stream_eta(&sample, entry.place_bytes, entry.chunk_bytes, spw_monotonic_ns());
    }
}

static void read_all(uint32_t k)
{
    struct spw_table_view table;
    spw_table_view_init(&table, pool.readers.feed[k], &pool.readers.feed_map,
                        &pool.readers.geometry);
    for (uint32_t slot = 0; slot < table.entries + 2; slot++) {
        struct spw_entry_copy entry;
        uint32_t state;
        uint64_t tag;
        int rc = spw_table_read(&table, slot, true, &entry);
        fuzz_expect((rc == -EINVAL) == (slot >= table.entries), "entries end where they end");
        fuzz_expect(rc == spw_table_state(&table, slot, &state, &tag), "two answers on one entry");
        if (rc == 0)
            fuzz_expect((slot < table.slots ? entry.state <= SPW_RETIRED
                                            : entry.state == SPW_FREE || entry.state >= SPW_COLD) &&
                            entry.state <= SPW_BACKED && entry.key_bytes <= SPW_KEY_BYTES_MAX &&
                            (!spw_entry_live(entry.state) || entry.key_bytes > 0) &&
                            entry.state == state && entry.digest[0] == tag && entry.slot == slot,
                        "an entry without sense");
    }
}

static void update(uint32_t k, uint64_t budget)
{
    const struct spw_view *view = &views.view[k];
    const uint64_t position = view->position;
    struct spw_change change[16];
    spw_views_update(&views, k, &budget);
    fuzz_expect(spw_view_live(&views, k) == ((views.live >> 2 * k & 3) == 3),
                "a view that is live and not used, or the other way round");
    fuzz_expect(spw_view_live(&views, k) ? view->position == view->reader.cursor
                                         : view->position == position,
                "a position beyond what the view has");
    fuzz_expect(view->held <= views.replica.tags && views.replica.tags <= views.replica.most,
                "more held than there is");
    if (spw_change_log_get(&change_log, change, 16) > 0)
        fuzz_expect(change[0].key_bytes <= SPW_KEY_BYTES_MAX && change[0].worker < GUARDED_WORKERS,
                    "a change without sense");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input in = {data, size};
    struct fuzz_window window[2][GUARDED_FEED_WINDOWS];
    guarded_pool_restore(&pool);
    for (uint32_t k = 0; k < GUARDED_WORKERS; k++)
        guarded_feed_windows(&pool, k, window[k]);
    fuzz_expect(spw_views_init(&views, &pool.readers, -1, &change_log) == 0, "views are made");
    for (uint32_t i = 0; i < UPDATES_MAX && in.left; i++) {
        uint8_t what = fuzz_u8(&in);
        uint32_t k = what / 8 % GUARDED_WORKERS;
        if (what % 8 == 0)
            update(k, what >> 5 ? what >> 5 : UINT64_MAX);
        else if (what % 8 == 1)
            ask(k, what >> 4);
        else
            fuzz_damage(&in, window[k], GUARDED_FEED_WINDOWS);
    }
    for (uint32_t k = 0; k < GUARDED_WORKERS; k++) {
        for (uint64_t n = 0; n < GUARDED_KEYS; n++)
            ask(k, n);
        read_all(k);
        update(k, UINT64_MAX);
    }
    spw_views_fini(&views);
    return 0;
}
