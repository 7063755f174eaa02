/* Pools in plain shared memory, and a reader of one shard. */
#include "tests/support/tiny_pool.h"

#include <string.h>
#include <sys/mman.h>

#include "tier/adopt.h"
#include "tier/shard_cold.h"

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

struct spw_geometry tiny_geometry_cold(struct spw_geometry geometry, uint32_t chunks)
{
    geometry.cold_chunks = chunks;
    geometry.index_buckets = spw_table_buckets(spw_geometry_entries(&geometry));
    return geometry;
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

/* All spaces are open, all groups the same. */
static void open_spaces(struct spw_ctl *ctl, uint32_t chunk_bytes)
{
    for (uint32_t s = 0; s < SPW_SPACES_MAX; s++) {
        struct spw_space_record *record = &ctl->space[s].record;
        *record = (struct spw_space_record){.groups = 2, .ranks = 2};
        for (uint32_t g = 0; g < record->groups; g++)
            record->group[g].chunk_bytes = chunk_bytes;
        spw_store_release(&ctl->space[s].ready, 1); /* [SP-1] */
    }
}

int tiny_pool_make(struct tiny_pool *tiny, const struct spw_geometry *geometry)
{
    *tiny = (struct tiny_pool){.fence_ns = TINY_FENCE_NS, .pool.geometry = *geometry};
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
    open_spaces(pool->ctl, geometry->slot_bytes);
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

/* ---- shards ---------------------------------------------------------------------------------- */

static bool is_dead(void *ctx, uint32_t c, uint64_t generation)
{
    const struct tiny_pool *tiny = ctx;
    (void)generation;
    return tiny->dead[c];
}

struct spw_shard *tiny_shard_open(struct tiny_pool *tiny, uint32_t k)
{
    struct spw_shard_config config = {.pool = &tiny->pool,
                                      .k = k,
                                      .fence_limit_ns = tiny->fence_ns,
                                      .client_dead = is_dead,
                                      .ctx = tiny,
                                      .now_ns = tiny->now_ns,
                                      .io_quarantine_ns = tiny->io_quarantine_ns,
                                      .transfers_linger = tiny->transfers_linger,
                                      .evict = tiny->evict,
                                      .usable_slots = tiny->usable_slots,
                                      .usable_ctx = tiny,
                                      .evicting = tiny->evicting};
    struct spw_shard *shard = NULL;
    return spw_shard_open(&config, &shard, NULL) == 0 ? shard : NULL;
}

enum spw_reserve_result tiny_reserve(struct spw_shard *shard, uint64_t n, uint64_t *protect,
                                     uint32_t *out_slot)
{
    struct tiny_key key;
    uint32_t slot = 0;
    enum spw_reserve_result result =
        spw_shard_reserve(shard, tiny_key(&key, 0, n), 0, 256, protect, &slot);
    if (result == SPW_NO_SLOT)
        return result;
    if (protect)
        protect[slot / 64] |= 1ull << slot % 64;
    *out_slot = slot;
    return result;
}

uint32_t tiny_store(struct spw_shard *shard, uint64_t n)
{
    uint32_t slot;
    if (tiny_reserve(shard, n, NULL, &slot) != SPW_RESERVED)
        return UINT32_MAX;
    spw_shard_ready(shard, slot);
    return slot;
}

int tiny_cold_add(struct spw_shard *shard, uint32_t id, uint64_t n)
{
    struct tiny_key key;
    return spw_shard_cold_add(shard, id, tiny_key(&key, 0, n), 0, 256);
}

bool tiny_resident(const struct tiny_pool *tiny, uint32_t k, uint64_t n)
{
    struct spw_table_view view;
    struct spw_entry_copy entry;
    struct tiny_key key;
    spw_table_view_init(&view, tiny->pool.feed[k], &tiny->pool.feed_map, &tiny->pool.geometry);
    return spw_table_find(&view, tiny_key(&key, 0, n), &entry) == 0 && entry.state == SPW_READY;
}

struct spw_shard_stats tiny_stats(const struct spw_shard *shard)
{
    struct spw_shard_stats stats;
    spw_shard_stats(shard, &stats);
    return stats;
}

uint64_t tiny_step_begin(struct tiny_pool *tiny, uint32_t c)
{
    uint64_t positions[SPW_WORKERS_MAX] = {0};
    uint64_t step = spw_client_step_begin(&tiny->pool.client[c], positions);
    for (uint32_t k = 0; k < tiny->pool.geometry.workers; k++)
        spw_client_step_applied(&tiny->pool.client[c], k,
                                spw_load_acquire(&tiny->pool.feed[k]->tail)); /* [UR-3] */
    return step;
}

void tiny_pin(struct tiny_pool *tiny, uint32_t c, uint32_t shard, uint32_t slot, bool pinned)
{
    const struct spw_client_view *view = &tiny->pool.client[c];
    uint64_t bit = spw_claim_bit(view->claim_words, shard, slot);
    if (pinned)
        spw_bit_set(view->pin, bit);
    else
        spw_bit_clear(view->pin, bit);
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

/* Does an entry in this state speak of its key? */
static bool is_news(uint32_t state)
{
    return spw_entry_live(state) || state == SPW_COLD;
}

static void learn(struct tiny_view *view, const uint64_t digest[2], uint32_t state)
{
    for (uint32_t n = 0; n < TINY_KEYS; n++)
        if (view->digest[n][0] == digest[0] && view->digest[n][1] == digest[1])
            view->state[n] = is_news(state) ? (uint8_t)state : SPW_FREE;
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

static void pause_between(const struct tiny_view *view)
{
    if (view->between)
        view->between(view->ctx);
}

static void resync(struct tiny_view *view, uint64_t incarnation)
{
    empty(view);
    pause_between(view);
    view->reader.cursor = spw_bcast_tail(&view->reader);
    for (uint32_t slot = 0; slot < view->table.entries; slot++) {
        struct spw_entry_copy entry;
        pause_between(view);
        if (spw_table_read(&view->table, slot, false, &entry) == 0 && is_news(entry.state))
            learn(view, entry.digest, entry.state);
    }
    pause_between(view);
    uint64_t tail = spw_bcast_tail(&view->reader);
    pause_between(view);
    bool drained = drain_to(view, tail);
    pause_between(view);
    view->valid = drained && spw_feed_incarnation(view->feed) == incarnation;
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
    for (uint32_t slot = 0; slot < view->table.entries; slot++) {
        struct spw_entry_copy entry;
        if (spw_table_read(&view->table, slot, false, &entry) < 0)
            return false;
        if (!is_news(entry.state))
            continue;
        for (uint32_t n = 0; n < TINY_KEYS; n++)
            if (view->digest[n][0] == entry.digest[0] && view->digest[n][1] == entry.digest[1])
                state[n] = (uint8_t)entry.state;
    }
    return view->valid && memcmp(state, view->state, sizeof state) == 0;
}
