#ifndef SPW_BENCH_GPU_MODEL_H
#define SPW_BENCH_GPU_MODEL_H
/*
 * An engine's KV as it registers it, and what a copy must do, said anew from the words of
 * tier/copier.h: nothing of gpu/ is used. Pure, over memory of the host.
 */
#include "shm/layout.h"

enum check_layout {
    CHECK_BLOCK_FIRST, /* [blocks, 2, part] for each layer                  */
    CHECK_KV_FIRST,    /* [2, blocks, part] for each layer: K and V apart   */
    CHECK_CROSS_LAYER, /* [blocks, layers, 2, part], one tensor for all     */
    CHECK_LAYOUTS
};

struct check_shape {
    enum check_layout layout;
    uint32_t layers;
    uint32_t blocks;
    uint32_t part_bytes; /* of K or of V, of one layer of one block */
    uint32_t gap_bytes;  /* between tensors, and before the first   */
};

struct check_kv {
    uint64_t bytes;       /* of the memory that holds it all */
    uint64_t block_bytes; /* of one block, in all tensors    */
    uint32_t blocks;
    uint32_t tensors;
    struct spw_kv_tensor_record tensor[SPW_KV_TENSORS_MAX];
};

const char *check_layout_name(enum check_layout layout);
void check_kv_lay(const struct check_shape *shape, struct check_kv *out);

/** What is in @slot after a store of @blocks from @memory. */
void check_kv_gather(const struct check_kv *kv, const uint8_t *memory, const uint32_t *blocks,
                     uint32_t count, uint8_t *slot);
/** What is in @memory after a load of @slot to @blocks. */
void check_kv_scatter(const struct check_kv *kv, uint8_t *memory, const uint32_t *blocks,
                      uint32_t count, const uint8_t *slot);

/** Where the memory is: a CUDA IPC handle, or an address of this process. */
struct check_source {
    uint8_t gpu[16];
    uint32_t pid;
    uint32_t kind; /* enum spw_kv_memory_kind */
    uint8_t memory[SPW_IPC_BYTES];
    const uint8_t *fence; /* SPW_IPC_BYTES of one, or NULL: none */
};

/** The registration, freed by the caller; NULL: no memory. */
struct spw_kv_record *check_kv_record(const struct check_kv *kv, const struct check_source *source);

#endif
