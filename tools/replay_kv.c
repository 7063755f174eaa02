/* See replay_kv.h. */
#include "tools/replay_kv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int spw_replay_kv_init(struct spw_replay_kv *kv, struct spw_client *client, uint64_t payload_bytes)
{
    void *start;
    uint64_t blocks, block_bytes;
    int status = spw_kv_blocks(client, &start, &blocks, &block_bytes);
    if (status)
        return status;
    if (payload_bytes > block_bytes || payload_bytes % sizeof(uint64_t) || blocks > UINT32_MAX)
        return -EINVAL;
    *kv = (struct spw_replay_kv){.start = start,
                                 .block_bytes = block_bytes,
                                 .payload_bytes = payload_bytes,
                                 .count = (uint32_t)blocks,
                                 .idle_count = (uint32_t)blocks};
    kv->idle = malloc(blocks * sizeof *kv->idle);
    if (!kv->idle)
        return -ENOMEM;
    for (uint32_t i = 0; i < kv->count; i++)
        kv->idle[i] = kv->count - 1 - i;
    return 0;
}

void spw_replay_kv_fini(struct spw_replay_kv *kv)
{
    free(kv->idle);
    kv->idle = NULL;
}

int spw_replay_kv_take(struct spw_replay_kv *kv, uint32_t count, uint32_t *out_blocks)
{
    if (count > kv->idle_count)
        return -EAGAIN;
    kv->idle_count -= count;
    memcpy(out_blocks, kv->idle + kv->idle_count, count * sizeof *out_blocks);
    return 0;
}

void spw_replay_kv_give(struct spw_replay_kv *kv, uint32_t count, const uint32_t *blocks)
{
    memcpy(kv->idle + kv->idle_count, blocks, count * sizeof *blocks);
    kv->idle_count += count;
}

/* splitmix64: neighbouring words and ids have nothing in common */
static uint64_t word_of(uint64_t id, uint64_t i)
{
    uint64_t x = id + (i + 1) * 0x9e3779b97f4a7c15ull;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ x >> 27) * 0x94d049bb133111ebull;
    return x ^ x >> 31;
}

void spw_replay_kv_fill(struct spw_replay_kv *kv, uint32_t block, uint64_t id)
{
    uint8_t *at = kv->start + block * kv->block_bytes;
    for (uint64_t i = 0; i < kv->payload_bytes / sizeof(uint64_t); i++) {
        uint64_t word = word_of(id, i);
        memcpy(at + i * sizeof word, &word, sizeof word);
    }
}

void spw_replay_kv_spoil(struct spw_replay_kv *kv, uint32_t block)
{
    memset(kv->start + block * kv->block_bytes, 0xee, kv->payload_bytes);
}

uint64_t spw_replay_kv_wrong(const struct spw_replay_kv *kv, uint32_t block, uint64_t id)
{
    const uint8_t *at = kv->start + block * kv->block_bytes;
    uint64_t wrong = 0;
    for (uint64_t i = 0; i < kv->payload_bytes / sizeof(uint64_t); i++) {
        uint64_t found, word = word_of(id, i);
        memcpy(&found, at + i * sizeof found, sizeof found);
        for (uint64_t differ = found ^ word; differ; differ >>= 8)
            wrong += (differ & 0xff) != 0;
    }
    return wrong;
}
