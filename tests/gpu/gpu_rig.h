#ifndef SPW_TESTS_GPU_GPU_RIG_H
#define SPW_TESTS_GPU_GPU_RIG_H
/*
 * A CUDA copier over the stand-in driver, and an engine's KV in the same process, registered by
 * address: what is copied where, without a pool. One thread. What it can't make fails the test.
 */
#include "gpu/cuda_copier.h"
#include "gpu/gpu_impl.h"
#include "tests/fake_cuda/fake_cuda.h"

#define RIG_BLOCKS     24u
#define RIG_SLOTS      16u
#define RIG_SLOT_BYTES (64u << 10)
#define RIG_TENSORS    8u
#define RIG_FENCES     2u

/** What the engine has; set before gpu_rig_register(). */
struct rig_kv {
    struct spw_kv_record record;
    struct spw_kv_memory_record memory[RIG_TENSORS];
    struct spw_kv_tensor_record tensor[RIG_TENSORS];
    uint8_t fence[RIG_FENCES][SPW_IPC_BYTES];
};

struct gpu_rig {
    struct spw_gpu *gpu;
    const struct spw_driver *driver;
    struct fake_cuda *fake;
    struct spw_copier_handle copier;
    struct spw_gpu_record record;
    spw_atomic64 unpinned;
    uint8_t *slots; /* RIG_SLOTS of them, registered */
    bool pinned;    /* what is_pinned says */
    struct rig_kv kv;
    CUdeviceptr memory[RIG_TENSORS];
    uint64_t memory_bytes[RIG_TENSORS];
    CUevent event[RIG_FENCES];
    CUstream engine; /* the engine's own stream */
    struct spw_kv_shape shape;
};

extern struct gpu_rig rig;

/** @kernel_below as of the copier. */
void gpu_rig_open(uint32_t kernel_below);
/** With so many chunks in flight on each stream. */
void gpu_rig_open_with(uint32_t kernel_below, uint32_t in_flight);
/** Closes everything, and checks that nothing is left in the driver. */
void gpu_rig_close(void);
/** Another tensor of the engine's, with memory of its own. */
void gpu_rig_tensor(uint32_t group, uint32_t parts, uint32_t part_bytes, bool parts_apart);
/** The record as it would come through the mailbox; freed by the caller. */
struct spw_kv_record *gpu_rig_record(void);
/** Register as client @client until that is over: 0 or the refusal, words in @err. */
int gpu_rig_register(uint32_t client, struct spw_error *err);
/** Bytes of the engine's tensor @t; both wait for the end. */
void gpu_rig_read(uint32_t t, uint8_t *out);
void gpu_rig_write(uint32_t t, const uint8_t *bytes);
/** Submit; 0 or its refusal. @tag comes back. */
int gpu_rig_submit(enum spw_copy_kind kind, uint32_t client, uint32_t group, uint32_t slot,
                   const uint32_t *blocks, uint32_t count, void *tag);
/** Wait for the next end, at most 5 s; false: none came. */
bool gpu_rig_end(struct spw_copy_end *out);
uint8_t *gpu_rig_slot(uint32_t slot);

#endif
