#ifndef SPW_TOOLS_REPLAY_KV_H
#define SPW_TOOLS_REPLAY_KV_H
/*
 * The replay engine's KV blocks: who uses which, and what bytes a chunk must have.
 *
 * A chunk's payload is a function of its id alone, so a load can be checked byte by byte by any
 * engine.
 */
#include <stdint.h>

#include "sched/spillway.h"

struct spw_replay_kv {
    uint8_t *start;
    uint64_t block_bytes;
    uint64_t payload_bytes;
    uint32_t *idle; /* a stack of block numbers */
    uint32_t idle_count;
    uint32_t count;
};

int spw_replay_kv_init(struct spw_replay_kv *kv, struct spw_client *client, uint64_t payload_bytes);
void spw_replay_kv_fini(struct spw_replay_kv *kv);

/** Take @count blocks, all or none: 0 or -EAGAIN. */
int spw_replay_kv_take(struct spw_replay_kv *kv, uint32_t count, uint32_t *out_blocks);
void spw_replay_kv_give(struct spw_replay_kv *kv, uint32_t count, const uint32_t *blocks);

/** Write the payload of chunk @id into a block; spoil one, so that a load that doesn't happen
 * shows. */
void spw_replay_kv_fill(struct spw_replay_kv *kv, uint32_t block, uint64_t id);
void spw_replay_kv_spoil(struct spw_replay_kv *kv, uint32_t block);
/** Bytes of a block that differ from the payload of chunk @id. */
uint64_t spw_replay_kv_wrong(const struct spw_replay_kv *kv, uint32_t block, uint64_t id);

#endif
