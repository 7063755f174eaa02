/* See worker_below.h. */
#include "tools/worker_below.h"

#include "shm/process.h"
#include "tools/log.h"

void spw_worker_below_io(const struct spw_worker_below *below, struct spw_io_config *out)
{
    *out = (struct spw_io_config){.choice = (enum spw_io_choice)below->config->nvme_engine,
                                  .depth = (uint32_t)below->config->nvme_depth,
                                  .part_bytes = below->pool->geometry.slot_bytes};
}

static int open_engine(const struct spw_worker_below *below, void (*wake)(void *ctx),
                       void *wake_ctx, struct spw_io_handle *out_io, struct spw_error *err)
{
    const struct spw_pool *pool = below->pool;
    struct iovec memory = {.iov_base = pool->data[below->k],
                           .iov_len =
                               (uint64_t)(pool->geometry.slots >> pool->geometry.cell_shift) *
                               pool->geometry.slot_bytes};
    struct spw_io_config io_config;
    spw_worker_below_io(below, &io_config);
    io_config.memory = &memory;
    io_config.memory_count = 1;
    io_config.wake = wake;
    io_config.wake_ctx = wake_ctx;
    struct spw_io_mode mode;
    int status = spw_io_open(&io_config, out_io, err);
    if (status < 0)
        return status;
    out_io->ops->mode(out_io->engine, &mode);
    if (mode.why[0])
        spw_log(SPW_LOG_WARNING, "worker %u: tier below: %s", below->k, mode.why);
    return 0;
}

void spw_worker_below_store(const struct spw_worker_below *below, struct spw_nvme_config *out)
{
    const struct spw_config *config = below->config;
    uint32_t depth = (uint32_t)config->nvme_depth;
    *out = (struct spw_nvme_config){
        .dir = config->nvme_dir,
        .shard = below->k,
        .cap_bytes = config->nvme_bytes / config->workers,
        .ids = below->pool->geometry.cold_chunks,
        .chunk_bytes_max = below->pool->geometry.slot_bytes,
        .direct = config->nvme_direct == SPW_NVME_DIRECT_AUTO,
        .sync = config->nvme_sync == SPW_NVME_SYNC_DATA,
        .checksum = config->nvme_checksum != SPW_NVME_CHECKSUM_OFF,
        .fifo = config->nvme_evict == SPW_EVICT_FIFO,
        .reads = depth,
        .writes = depth > 1 ? depth / 2 : 1, /* the other half is left to reads */
        .deadline_ns = config->nvme_deadline_ns,
        .quarantine_ns = config->io_quarantine_ns,
    };
}

static int open_store(const struct spw_worker_below *below, struct spw_io_handle io,
                      const struct spw_cold_listener *listener, struct spw_cold_handle *out_cold,
                      struct spw_error *err)
{
    struct spw_nvme_config nvme;
    spw_worker_below_store(below, &nvme);
    nvme.io = io;
    nvme.listener = *listener;
    nvme.now_ns = spw_monotonic_ns();
    return spw_nvme_open(&nvme, out_cold, err);
}

static int open_below(void *ctx, const struct spw_cold_listener *listener, void (*wake)(void *ctx),
                      void *wake_ctx, struct spw_cold_handle *out_cold, struct spw_error *err)
{
    struct spw_worker_below *below = ctx;
    struct spw_io_handle io = {0};
    int status = open_engine(below, wake, wake_ctx, &io, err);
    if (status >= 0)
        status = open_store(below, io, listener, out_cold, err);
    if (status < 0)
        spw_log(SPW_LOG_WARNING, "worker %u: goes on without the tier below: %s", below->k,
                err->text);
    return status < 0 ? status : 0;
}

void spw_worker_below_use(struct spw_worker_below *below, struct spw_worker_config *worker_config)
{
    const struct spw_config *config = below->config;
    if (config->nvme_dir[0] == '\0')
        return;
    worker_config->transfers_linger = true;
    worker_config->open_cold = open_below;
    worker_config->cold_ctx = below;
    worker_config->cold_policy = (struct spw_cold_policy){
        .write_back = config->nvme_write == SPW_NVME_WRITE_BACK,
        .admit_sightings = (uint32_t)config->nvme_admit,
        .write_budget_bytes = config->nvme_write_budget,
        .queue_chunks = (uint32_t)config->nvme_queue,
        .promote_percent = (uint32_t)config->nvme_promote_share,
        .sum_at_store = config->nvme_checksum == SPW_NVME_CHECKSUM_STORE,
        .hold_ns = config->nvme_promote_hold_ns,
    };
}
