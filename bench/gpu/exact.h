#ifndef SPW_BENCH_GPU_EXACT_H
#define SPW_BENCH_GPU_EXACT_H
/*
 * One store or load between KV and a slot, and every byte looked at: those that should have moved and
 * all others. Slot and KV hold other bytes before, so nothing left out is taken for copied.
 */
#include "bench/gpu/ground.h"
#include "bench/gpu/way.h"

/** Where the engine's memory is read and written whole. */
struct check_memory {
    int (*write)(void *ctx, const uint8_t *bytes, uint64_t count);
    int (*read)(void *ctx, uint8_t *bytes, uint64_t count);
    void *ctx;
};

struct check_exact {
    struct check *check;
    const struct check_kv *kv;
    struct check_memory memory;
    uint8_t *slots; /* pinned */
    uint64_t slots_bytes;
    uint8_t *model, *got, *slots_model; /* what must be there, what is */
};

/** @ground has the slots. 0 or -ENOMEM. */
int check_exact_open(struct check *check, const struct check_kv *kv,
                     const struct check_memory *memory, const struct check_ground *ground,
                     struct check_exact *out);
void check_exact_close(struct check_exact *exact);
/** @rounds stores and loads, of changing numbers of random blocks. 0; -EBADMSG wrong bytes, with
 * words; else a call was refused. */
int check_exact_rounds(struct check_exact *exact, struct check_way *way, uint32_t rounds);

/** Bytes that slots must have for it. */
static inline uint64_t check_exact_slots(const struct check_kv *kv)
{
    return kv->block_bytes * SPW_CHUNK_BLOCKS_MAX + 2 * 4096;
}

#endif
