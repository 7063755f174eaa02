/* Pools in plain shared memory, and a reader of one shard. */
#include "tests/support/tiny_pool.h"

#include <string.h>
#include <sys/mman.h>

#include "tier/adopt.h"

#define DRAIN_MAX   32
#define DRAIN_LIMIT 100000

struct spw_geometry tiny_geometry(uint32_t workers, uint32_t clients, uint32_t capacity,
                                  uint32_t slots)
{
    return (struct spw_geometry){
        .workers = workers,
        .clients = clients,
        .capacity_chunks = capacity,
        .slots = slots,
        .slot_bytes = 256,
        .update_records = 64,
        .gate_records = 8,
        .command_slots = 8,
        .completion_slots = 8,
        .index_buckets = spw_table_buckets(slots),
    };
}

/* Give the next @bytes, page by page. */
static uint8_t *cut(struct tiny_pool *tiny, uint64_t *at, uint64_t bytes)
{
    uint8_t *start = (uint8_t *)tiny->memory + *at;
    *at += spw_align_up(bytes, 4096);
    return start;
}

static uint64_t object_bytes(const struct spw_pool *pool)
{
    const struct spw_geometry *geometry = &pool->geometry;
    uint64_t shard = spw_align_up(pool->feed_map.size_bytes, 4096) +
                     spw_align_up(spw_data_size_bytes(geometry), 4096);
    return spw_align_up(sizeof(struct spw_ctl), 4096) + geometry->workers * shard +
           geometry->clients * spw_align_up(pool->client_map.size_bytes, 4096);
}

int tiny_pool_make(struct tiny_pool *tiny, const struct spw_geometry *geometry)
{
    *tiny = (struct tiny_pool){.pool.geometry = *geometry};
    struct spw_pool *pool = &tiny->pool;
    if (spw_geometry_check(geometry, NULL) < 0)
        return -EBADMSG;
    spw_feed_map_init(geometry, &pool->feed_map);
    spw_client_map_init(geometry, &pool->client_map);
    tiny->bytes = object_bytes(pool);
    tiny->memory =
        mmap(NULL, tiny->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (tiny->memory == MAP_FAILED)
        return -ENOMEM;
    uint64_t at = 0;
    pool->ctl = (struct spw_ctl *)(void *)cut(tiny, &at, sizeof(struct spw_ctl));
    for (uint32_t k = 0; k < geometry->workers; k++) {
        pool->feed[k] = (struct spw_feed_head *)(void *)cut(tiny, &at, pool->feed_map.size_bytes);
        pool->data[k] = cut(tiny, &at, spw_data_size_bytes(geometry)) + SPW_PAYLOAD_OFF;
    }
    for (uint32_t c = 0; c < geometry->clients; c++)
        spw_client_view_init(
            &pool->client[c],
            (struct spw_client_head *)(void *)cut(tiny, &at, pool->client_map.size_bytes),
            geometry);
    return 0;
}

void tiny_pool_free(struct tiny_pool *tiny)
{
    munmap(tiny->memory, tiny->bytes);
}

const struct spw_chunk_key *tiny_key(struct tiny_key *storage, uint32_t space, uint64_t n)
{
    *storage = (struct tiny_key){.word = {n, ~n, n * 3, 7}};
    storage->key = (struct spw_chunk_key){
        .space = space, .group = 1, .key_bytes = sizeof storage->word, .key = storage->word};
    spw_chunk_digest(space, 1, storage->word, sizeof storage->word, storage->key.digest);
    return &storage->key;
}

/* ---- a reader -------------------------------------------------------------------------------- */

int tiny_view_init(struct tiny_view *view, const struct spw_pool *pool, uint32_t k)
{
    *view = (struct tiny_view){.feed = pool->feed[k]};
    spw_table_view_init(&view->table, pool->feed[k], &pool->feed_map, &pool->geometry);
    for (uint64_t n = 0; n < TINY_KEYS; n++) {
        struct tiny_key key;
        memcpy(view->digest[n], tiny_key(&key, 0, n)->digest, sizeof view->digest[n]);
    }
    return spw_bcast_reader_init(&view->reader, pool->feed[k],
                                 spw_pool_feed_at(pool, k, pool->feed_map.ring_off),
                                 pool->geometry.update_records);
}

static void learn(struct tiny_view *view, const uint64_t digest[2], uint32_t state)
{
    for (uint32_t n = 0; n < TINY_KEYS; n++)
        if (view->digest[n][0] == digest[0] && view->digest[n][1] == digest[1])
            view->state[n] = spw_entry_live(state) ? (uint8_t)state : SPW_FREE;
}

static void empty(struct tiny_view *view)
{
    memset(view->state, SPW_FREE, sizeof view->state);
    view->valid = false;
}

/* Drain to @tail; false on a gap. */
static bool drain_to(struct tiny_view *view, uint64_t tail)
{
    for (uint32_t i = 0; i < DRAIN_LIMIT && spw_pos_before(view->reader.cursor, tail); i++) {
        struct spw_record record[DRAIN_MAX];
        int n = spw_bcast_drain(&view->reader, record, DRAIN_MAX);
        if (n <= 0) {
            view->gaps++;
            return false;
        }
        for (int r = 0; r < n; r++) {
            struct spw_update update;
            memcpy(&update, record[r].word, sizeof update);
            if (SPW_UPDATE_STATE(update.packed) != SPW_FREE)
                learn(view, update.digest, SPW_UPDATE_STATE(update.packed));
        }
    }
    return true;
}

static void resync(struct tiny_view *view, uint64_t incarnation)
{
    empty(view);
    view->reader.cursor = spw_bcast_tail(&view->reader);
    for (uint32_t slot = 0; slot < view->table.slots; slot++) {
        struct spw_entry_copy entry;
        if (spw_table_read(&view->table, slot, false, &entry) == 0 && spw_entry_live(entry.state))
            learn(view, entry.digest, entry.state);
    }
    view->valid = drain_to(view, spw_bcast_tail(&view->reader)) &&
                  spw_feed_incarnation(view->feed) == incarnation;
    view->incarnation = incarnation;
    if (!view->valid)
        empty(view);
}

void tiny_view_update(struct tiny_view *view)
{
    uint64_t tail = spw_bcast_tail(&view->reader);
    uint64_t incarnation = spw_feed_incarnation(view->feed);
    if (view->valid && incarnation == view->incarnation && drain_to(view, tail))
        return;
    resync(view, incarnation);
}

bool tiny_view_matches(const struct tiny_view *view)
{
    uint8_t state[TINY_KEYS] = {0};
    for (uint32_t slot = 0; slot < view->table.slots; slot++) {
        struct spw_entry_copy entry;
        if (spw_table_read(&view->table, slot, false, &entry) < 0)
            return false;
        if (!spw_entry_live(entry.state))
            continue;
        for (uint32_t n = 0; n < TINY_KEYS; n++)
            if (view->digest[n][0] == entry.digest[0] && view->digest[n][1] == entry.digest[1])
                state[n] = (uint8_t)entry.state;
    }
    return view->valid && memcmp(state, view->state, sizeof state) == 0;
}
