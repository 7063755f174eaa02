#ifndef SPW_GPU_CUDA_COPIER_H
#define SPW_GPU_CUDA_COPIER_H
/*
 * Copy engine between registered GPU memory and slots (tier/copier.h), by the CUDA driver.
 *
 *   streams   one for loads, one for stores, loads with the higher priority; at most in_flight chunks
 *             on each, so that a load waits behind few stores
 *   a chunk   is one batch of copies, or one kernel, and one event behind it; it has ended when the
 *             event says so
 *   fences    are asked, never waited for on a stream: nobody's forward pass holds up other copies
 *   errors    one that leaves the context usable ends its own chunk; any other ends all, and health
 *             says so from then on
 *   crash     copies end with the process, at the latest when it was reaped; mappings of clients'
 *             memory go with it
 */
#include "gpu/gpu.h"
#include "tier/copier.h"

struct spw_cuda_copier_config {
    struct spw_gpu *gpu;           /* borrowed; its context is the worker thread's */
    uint32_t in_flight[2];         /* chunks, by enum spw_copy_kind, 1..64         */
    uint32_t kernel_below_bytes;   /* pieces up to this size go by kernel, 0 = none */
    uint64_t slot_bytes;           /* no block is larger; 0 = not limited          */
    struct spw_gpu_record *record; /* handles_open, flags and kernel_below_bytes are kept here */
    /* Is this memory pinned? NULL: all is. What isn't is copied piece by piece, which the driver
     * stages, and counted in *unpinned (may be NULL) */
    bool (*is_pinned)(void *ctx, const void *start, uint64_t bytes);
    /* A copy for which it said yes has ended; NULL: nobody wants to know */
    void (*pinned_ended)(void *ctx);
    /* NULL, or -ENODEV for good: the device was lost where the copier doesn't see it */
    int (*memory_health)(void *ctx);
    void *ctx;
    spw_atomic64 *unpinned;
};

/** 0; -ENOSYS built without CUDA; -ENOMEM; -ENODEV or -EIO the driver refused; words in @err. */
int spw_cuda_copier_open(const struct spw_cuda_copier_config *config,
                         struct spw_copier_handle *out_handle, struct spw_error *err);

#endif
