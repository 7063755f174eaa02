#ifndef SPW_GPU_GPU_H
#define SPW_GPU_GPU_H
/*
 * One GPU of this host, opened: its driver, its primary context, its name. No CUDA type shows here,
 * so that everybody can be built without the headers; then spw_gpu_open() says so.
 *
 *   roles     worker processes alone, and engines that run a worker inside. The daemon opens none
 *   threads   the opener's has the context current; another one calls spw_gpu_enter() first
 */
#include "shm/base.h"
#include "tier/gpu_identity.h"

struct spw_gpu; /* opaque; gpu/gpu_impl.h for the files of this folder */

struct spw_gpu_config {
    const char *driver; /* its file; NULL = libcuda.so.1 */
    const char *which;  /* UUID, PCI address or ordinal, as spw_gpu_matches() reads it */
};

/**
 * Open a GPU. May take seconds.
 * -ENOENT no driver on this host; -ENOSYS built without CUDA, or the driver is too old; -ENODEV it
 * can't be used, or has no GPU at all; -ENXIO it has none of that name (the known ones are named);
 * -EIO the GPU can't be opened.
 */
int spw_gpu_open(const struct spw_gpu_config *config, struct spw_gpu **out_gpu,
                 struct spw_error *err);
/** NULL is fine. Nothing of it may be in use any more. */
void spw_gpu_close(struct spw_gpu *gpu);
const struct spw_gpu_identity *spw_gpu_identity(const struct spw_gpu *gpu);
/** Make its context the calling thread's. 0 or a negative errno. */
int spw_gpu_enter(struct spw_gpu *gpu);

#endif
