/* See guarded.h. */
#include "tests/fuzz/guarded.h"

#include <sys/mman.h>
#include <unistd.h>

#include "tier/shard_cold.h"
#include "tier/table.h"

#define PAGE_BYTES 4096u

/* @bytes of @fd with a page without access before and behind. */
static uint8_t *map_between(int fd, uint64_t bytes, int protection)
{
    uint8_t *room = mmap(NULL, bytes + 2 * PAGE_BYTES, PROT_NONE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    fuzz_expect(room != MAP_FAILED, "room for an object");
    void *at = mmap(room + PAGE_BYTES, bytes, protection, MAP_SHARED | MAP_FIXED, fd, 0);
    fuzz_expect(at != MAP_FAILED, "an object is mapped");
    return room + PAGE_BYTES;
}

void guarded_make(struct guarded *object, uint64_t bytes)
{
    uint64_t pages = spw_align_up(bytes, PAGE_BYTES);
    int fd = memfd_create("guarded", MFD_CLOEXEC);
    fuzz_expect(bytes % SPW_LINE_BYTES == 0, "objects are whole lines");
    fuzz_expect(fd >= 0 && ftruncate(fd, (off_t)pages) == 0, "memory for an object");
    object->at = map_between(fd, pages, PROT_READ | PROT_WRITE) + (pages - bytes);
    object->readers = map_between(fd, pages, PROT_READ) + (pages - bytes);
    object->saved = calloc(1, bytes);
    object->bytes = bytes;
    fuzz_expect(object->saved != NULL, "memory for a copy");
    close(fd);
}

void guarded_save(struct guarded *object)
{
    memcpy(object->saved, object->at, object->bytes);
}

void guarded_restore(struct guarded *object)
{
    memcpy(object->at, object->saved, object->bytes);
}

/* ---- a pool ---------------------------------------------------------------------------------- */

static void set_pointers(struct spw_pool *pool, const struct guarded_pool *from, bool readers)
{
#define AT(object) (readers ? (void *)(uintptr_t)(object).readers : (void *)(object).at)
    pool->ctl = AT(from->ctl);
    for (uint32_t k = 0; k < GUARDED_WORKERS; k++)
        pool->feed[k] = AT(from->feed[k]);
    for (uint32_t c = 0; c < GUARDED_CLIENTS; c++)
        spw_client_view_init(&pool->client[c], AT(from->client[c]), &pool->geometry);
#undef AT
}

void guarded_pool_make(struct guarded_pool *pool)
{
    const struct spw_geometry geometry = {
        .workers = GUARDED_WORKERS,
        .clients = GUARDED_CLIENTS,
        .capacity_chunks = GUARDED_CHUNKS,
        .slots = GUARDED_CHUNKS + 1,
        .slot_bytes = 256,
        .update_records = 16,
        .gate_records = 4,
        .command_slots = 8,
        .completion_slots = 8,
        .index_buckets = spw_table_buckets(GUARDED_CHUNKS + 1 + GUARDED_BELOW),
        .cold_chunks = GUARDED_BELOW,
    };
    fuzz_expect(spw_geometry_check(&geometry, NULL) == 0, "the geometry is right");
    *pool = (struct guarded_pool){.pool.geometry = geometry};
    spw_feed_map_init(&geometry, &pool->pool.feed_map);
    spw_client_map_init(&geometry, &pool->pool.client_map);
    pool->readers = pool->pool;
    guarded_make(&pool->ctl, spw_align_up(sizeof(struct spw_ctl), SPW_LINE_BYTES));
    for (uint32_t k = 0; k < GUARDED_WORKERS; k++)
        guarded_make(&pool->feed[k], pool->pool.feed_map.size_bytes);
    for (uint32_t c = 0; c < GUARDED_CLIENTS; c++)
        guarded_make(&pool->client[c], pool->pool.client_map.size_bytes);
    set_pointers(&pool->pool, pool, false);
    set_pointers(&pool->readers, pool, true);
}

void guarded_pool_save(struct guarded_pool *pool)
{
    guarded_save(&pool->ctl);
    for (uint32_t k = 0; k < GUARDED_WORKERS; k++)
        guarded_save(&pool->feed[k]);
    for (uint32_t c = 0; c < GUARDED_CLIENTS; c++)
        guarded_save(&pool->client[c]);
}

void guarded_pool_restore(struct guarded_pool *pool)
{
    guarded_restore(&pool->ctl);
    for (uint32_t k = 0; k < GUARDED_WORKERS; k++)
        guarded_restore(&pool->feed[k]);
    for (uint32_t c = 0; c < GUARDED_CLIENTS; c++)
        guarded_restore(&pool->client[c]);
}

int guarded_shard_open(struct guarded_pool *pool, uint32_t k, struct spw_shard **out_shard)
{
    const struct spw_shard_config config = {
        .pool = &pool->pool, .k = k, .fence_limit_ns = 1000000000};
    return spw_shard_open(&config, out_shard, NULL);
}

const struct spw_chunk_key *guarded_key(struct guarded_key *storage, uint64_t n)
{
    *storage = (struct guarded_key){.word = {n, n * 7 + 1, ~n}};
    storage->key =
        (struct spw_chunk_key){.group = 1, .key_bytes = sizeof storage->word, .key = storage->word};
    spw_chunk_digest(0, 1, storage->word, sizeof storage->word, storage->key.digest);
    return &storage->key;
}

static void store(struct spw_shard *shard, uint64_t n, bool whole)
{
    struct guarded_key key;
    uint32_t slot;
    enum spw_reserve_result result =
        spw_shard_reserve(shard, guarded_key(&key, n), 0, 256, NULL, &slot);
    fuzz_expect(result == SPW_RESERVED, "there is a slot for a key");
    if (whole)
        spw_shard_ready(shard, slot);
}

/* Space 0: groups of 128 and of 256 bytes a chunk. */
static void open_space(struct spw_space_slot *space)
{
    space->record = (struct spw_space_record){.fingerprint = "fuzz",
                                              .blocks_per_chunk = 1,
                                              .hash_unit_tokens = 16,
                                              .groups = 2,
                                              .ranks = 1};
    for (uint32_t g = 0; g < 2; g++)
        space->record.group[g] =
            (struct spw_group_record){.block_tokens = 16, .chunk_bytes = 128u << g};
    spw_store_relaxed(&space->rank_workers[0], (1u << GUARDED_WORKERS) - 1);
    spw_store_relaxed(&space->ready, 1);
}

/* Shard 0 is full: eight live chunks, one of them filling, and one retired. Below are chunks that
 * slots have, too, and others. */
void guarded_pool_fill(struct guarded_pool *pool)
{
    struct spw_shard *shard;
    open_space(&pool->pool.ctl->space[0]);
    for (uint32_t k = 0; k < GUARDED_WORKERS; k++) {
        fuzz_expect(guarded_shard_open(pool, k, &shard) == 0, "an empty shard is opened");
        for (uint64_t n = 0; n < (k == 0 ? 9 : 4); n++) {
            store(shard, k * 10 + n, n != 2);
            spw_shard_flush(shard);
        }
        for (uint32_t id = 1; id < GUARDED_BELOW; id++) {
            struct guarded_key key;
            uint64_t n = k * 10 + 2 + 2 * id;
            fuzz_expect(spw_shard_cold_add(shard, id, guarded_key(&key, n), 0, 256) == 0,
                        "a key is added below");
        }
        spw_shard_flush(shard);
        spw_shard_close(shard);
    }
    guarded_pool_save(pool);
}

void guarded_feed_windows(const struct guarded_pool *pool, uint32_t k,
                          struct fuzz_window out[GUARDED_FEED_WINDOWS])
{
    const struct spw_feed_map *map = &pool->pool.feed_map;
    const uint64_t part[GUARDED_FEED_WINDOWS + 1] = {
        0, map->ring_off, map->entry_off, map->key_off, map->index_off, map->copying_off};
    for (uint32_t i = 0; i < GUARDED_FEED_WINDOWS; i++)
        out[i] =
            (struct fuzz_window){pool->feed[k].at + part[i], (uint32_t)(part[i + 1] - part[i])};
}
