#ifndef SPW_TOOLS_WORKER_COPIER_H
#define SPW_TOOLS_WORKER_COPIER_H
/*
 * What copies for a worker, as configured: a GPU, or this host's processor. Written: the worker's own
 * record of it in its feed, and why it is not what was asked for; it stays there when the worker dies,
 * and its successor writes it anew.
 *
 *   pairs     [GR-1] the record of a worker's GPU before its kind -> whoever looks for a GPU
 */
#include "gpu/gpu.h"
#include "gpu/pin.h"
#include "shm/pool.h"
#include "tier/copier.h"
#include "tools/config.h"

struct spw_worker_copier {
    struct spw_pool *pool;
    uint32_t k;
    struct spw_gpu *gpu; /* NULL: the host copies */
    struct spw_pin *pin; /* likewise              */
    struct spw_copier_handle handle;
};

/** Open it for worker @k; @out_copier stays where it is until it is closed. 0; -ENODEV the GPU can't be
 * had now: a new process may have it. Words in @err. */
int spw_worker_copier_open(const struct spw_config *config, struct spw_pool *pool, uint32_t k,
                           struct spw_worker_copier *out_copier, struct spw_error *err);
/** Closed, or never opened, is fine. */
void spw_worker_copier_close(struct spw_worker_copier *copier);

#endif
