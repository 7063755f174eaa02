/* A GPU prefix cache as a list by age and a hash table over it. */
#include "tools/gpu_cache.h"

#include <errno.h>
#include <stdlib.h>

int spw_gpu_cache_init(struct spw_gpu_cache *cache, uint32_t chunks)
{
    uint32_t places = 2;

    while (places < 2 * chunks)
        places *= 2;
    *cache = (struct spw_gpu_cache){.chunks = chunks, .table_mask = places - 1};
    cache->table = calloc(places, sizeof(*cache->table));
    cache->ids = calloc(chunks + 1, sizeof(*cache->ids));
    if (!cache->table || !cache->ids || spw_slot_links_init(&cache->links, chunks + 1)) {
        spw_gpu_cache_fini(cache);
        return -ENOMEM;
    }
    spw_slot_list_init(&cache->used, &cache->links);
    return 0;
}

void spw_gpu_cache_fini(struct spw_gpu_cache *cache)
{
    if (!cache)
        return;
    spw_slot_links_fini(&cache->links);
    free(cache->table);
    free(cache->ids);
    *cache = (struct spw_gpu_cache){0};
}

static uint32_t home_of(const struct spw_gpu_cache *cache, uint64_t id)
{
    return (uint32_t)(id * 0x9e3779b97f4a7c15u >> 32) & cache->table_mask;
}

/* Where @id stands in the table, else the empty place where it would. */
static uint32_t place_of(const struct spw_gpu_cache *cache, uint64_t id)
{
    uint32_t place = home_of(cache, id);

    while (cache->table[place] != 0 && cache->ids[cache->table[place] - 1] != id)
        place = (place + 1) & cache->table_mask;
    return place;
}

uint32_t spw_gpu_cache_match(const struct spw_gpu_cache *cache, const uint64_t *ids, uint32_t count)
{
    uint32_t held = 0;

    while (held < count && cache->table[place_of(cache, ids[held])] != 0)
        held++;
    return held;
}

/* Empty @place and move up what had been pushed on by it. */
static void forget(struct spw_gpu_cache *cache, uint32_t place)
{
    uint32_t mask = cache->table_mask, next = place;

    cache->table[place] = 0;
    while (cache->table[next = (next + 1) & mask] != 0) {
        uint32_t home = home_of(cache, cache->ids[cache->table[next] - 1]);

        if (((next - home) & mask) < ((next - place) & mask))
            continue;
        cache->table[place] = cache->table[next];
        cache->table[next] = 0;
        place = next;
    }
}

/* A slot that holds nothing: a fresh one, or that of the oldest chunk. */
static uint32_t take_slot(struct spw_gpu_cache *cache)
{
    uint32_t slot = cache->used.count;

    if (slot < cache->chunks)
        return slot;
    slot = cache->used.oldest;
    forget(cache, place_of(cache, cache->ids[slot]));
    spw_slot_list_remove(&cache->used, slot);
    return slot;
}

static void use(struct spw_gpu_cache *cache, uint64_t id)
{
    uint32_t place = place_of(cache, id);
    uint32_t slot;

    if (cache->table[place] != 0) {
        slot = cache->table[place] - 1;
        spw_slot_list_remove(&cache->used, slot);
    } else {
        slot = take_slot(cache);
        cache->ids[slot] = id;
        cache->table[place_of(cache, id)] = slot + 1;
    }
    spw_slot_list_add(&cache->used, slot);
}

void spw_gpu_cache_use(struct spw_gpu_cache *cache, const uint64_t *ids, uint32_t count)
{
    if (count > cache->chunks)
        count = cache->chunks;
    while (count > 0)
        use(cache, ids[--count]);
}
