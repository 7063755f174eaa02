#ifndef SPW_TOOLS_GPU_CACHE_H
#define SPW_TOOLS_GPU_CACHE_H
/*
 * A model of an engine's GPU prefix cache for the replay: which chunks of KV the GPU still holds.
 *
 * Exact LRU over chunk ids, process-local and pure. A prompt is used deepest chunk first, so its
 * head is the most recent and the tail goes first. Nothing is held for a request that runs: a
 * prompt longer than the cache keeps its head.
 */
#include <stdint.h>

#include "tier/lru.h"

struct spw_gpu_cache {
    struct spw_slot_links links;
    struct spw_slot_list used; /* slots by age; those from used.count on were never used */
    uint64_t *ids;             /* by slot */
    uint32_t chunks;
    uint32_t *table; /* open addressing by id: slot + 1, 0 is empty */
    uint32_t table_mask;
};

/** Start an empty cache of @chunks, 0 for none at all, below 2^30. Returns 0 or -ENOMEM. */
int spw_gpu_cache_init(struct spw_gpu_cache *cache, uint32_t chunks);
void spw_gpu_cache_fini(struct spw_gpu_cache *cache);

/** How many of the first of @ids the cache holds without a gap; changes nothing. */
uint32_t spw_gpu_cache_match(const struct spw_gpu_cache *cache, const uint64_t *ids,
                             uint32_t count);

/** Use the chunks @ids, head first in the array: those that are absent are put in. */
void spw_gpu_cache_use(struct spw_gpu_cache *cache, const uint64_t *ids, uint32_t count);

#endif
