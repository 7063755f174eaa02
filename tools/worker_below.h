#ifndef SPW_TOOLS_WORKER_BELOW_H
#define SPW_TOOLS_WORKER_BELOW_H
/*
 * A worker's tier below, as configured: I/O engine, store. Says once what isn't as it was asked
 * for; a tier that can't be had is none, and the worker goes on.
 */
#include "shm/pool.h"
#include "tier/nvme.h"
#include "tier/worker.h"
#include "tools/config.h"

struct spw_worker_below {
    const struct spw_config *config;
    const struct spw_pool *pool;
    uint32_t k;
};

/** Fill in what of @worker_config speaks of the tier below. @below stays until the worker is closed. */
void spw_worker_below_use(struct spw_worker_below *below, struct spw_worker_config *worker_config);

/** What the options say of the I/O engine; its memory and who is woken are left out. */
void spw_worker_below_io(const struct spw_worker_below *below, struct spw_io_config *out);
/** What they say of the store; its engine, its listener and the time are left out. Borrows. */
void spw_worker_below_store(const struct spw_worker_below *below, struct spw_nvme_config *out);

#endif
