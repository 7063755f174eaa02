/* See space_hash.h. The bytes that are hashed are on media: their order never changes. */
#include "tier/space_hash.h"

#include <string.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

struct group_bytes {
    uint32_t kind, block_tokens;
    uint64_t window_tokens;
    uint32_t chunk_bytes, zero;
};

struct space_bytes {
    char fingerprint[256];
    uint32_t blocks_per_chunk, hash_unit_tokens, groups, ranks;
    struct group_bytes group[SPW_GROUP_COUNT_MAX];
};
SPW_LAYOUT_SIZE(struct space_bytes, 256 + 16 + 24 * SPW_GROUP_COUNT_MAX);

void spw_space_hash(const struct spw_space_record *record, uint64_t out_hash[2])
{
    struct space_bytes bytes;
    memset(&bytes, 0, sizeof bytes);
    memcpy(bytes.fingerprint, record->fingerprint,
           strnlen(record->fingerprint, sizeof bytes.fingerprint));
    bytes.blocks_per_chunk = record->blocks_per_chunk;
    bytes.hash_unit_tokens = record->hash_unit_tokens;
    bytes.groups = record->groups;
    bytes.ranks = record->ranks;
    for (uint32_t g = 0; g < record->groups && g < SPW_GROUP_COUNT_MAX; g++)
        bytes.group[g] = (struct group_bytes){.kind = record->group[g].kind,
                                              .block_tokens = record->group[g].block_tokens,
                                              .window_tokens = record->group[g].window_tokens,
                                              .chunk_bytes = record->group[g].chunk_bytes};
    XXH128_hash_t hash = XXH3_128bits(&bytes, sizeof bytes);
    out_hash[0] = hash.low64;
    out_hash[1] = hash.high64;
}
