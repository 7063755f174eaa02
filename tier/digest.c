/*
 * The digest of a chunk's identity. Pure: nothing shared, nothing kept.
 *
 * XXH3 with a seed takes up to 64 bytes of key in one short pass and mixes their number in, so
 * space and group go into the seed, spread over all of its bits first. A collision costs a miss:
 * the engine's key is kept whole in the table and compared when a load is taken.
 */
#include "tier/table.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

static uint64_t spread(uint64_t x)
{
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ x >> 27) * 0x94d049bb133111ebull;
    return x ^ x >> 31;
}

void spw_chunk_digest(uint32_t space, uint32_t group, const void *key, uint32_t key_bytes,
                      uint64_t out_digest[2])
{
    uint64_t seed = spread(((uint64_t)space << 32 | group) + 1);
    XXH128_hash_t hash = XXH3_128bits_withSeed(key, key_bytes, seed);
    out_digest[0] = hash.low64;
    out_digest[1] = hash.high64;
}
