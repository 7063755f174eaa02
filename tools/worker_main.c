/*
 * A worker process: attach, take the worker's lock byte, open a copier, run the loop. It writes
 * only what tier/worker.h says; when it dies, the daemon reaps it and starts a successor.
 */
#include <stdlib.h>
#include <unistd.h>

#include "shm/alive.h"
#include "tier/counters.h"
#include "tier/job.h"
#include "tier/worker.h"
#include "tools/daemon.h"
#include "tools/log.h"
#include "tools/pages.h"
#include "tools/placing.h"
#include "tools/worker_below.h"
#include "tools/worker_copier.h"

static uint64_t now_ns(void *ctx)
{
    (void)ctx;
    return spw_monotonic_ns();
}

/* Each job is owed one completion at most; all clients' together fit the table. */
static uint32_t jobs_of_a_client(const struct spw_geometry *geometry)
{
    uint32_t most = SPW_JOBS_MAX / geometry->clients;
    return geometry->completion_slots < most ? geometry->completion_slots : most;
}

static uint64_t counted(const struct spw_pool *pool, uint32_t k, enum spw_worker_counter counter)
{
    return spw_load_relaxed(&pool->feed[k]->counter[counter]);
}

/* Which place the daemon has for it, from the file that it named behind the pool's id, if it did. */
static void take_place(const char *file, struct spw_pool *pool, uint32_t k)
{
    struct spw_place_worker place;
    bool has = *file == ':' && spw_placing_read((int)strtol(file + 1, NULL, 10), k, &place);
    spw_placing_take(has ? &place : NULL, pool, k);
}

static int run(const struct spw_config *config, struct spw_pool *pool, uint32_t k,
               volatile int *stop)
{
    struct spw_error err = {0};
    struct spw_worker *worker = NULL;
    struct spw_worker_copier copier;
    int status = spw_worker_copier_open(config, pool, k, &copier, &err);
    if (status) {
        spw_log(SPW_LOG_ERROR, "worker %u: %s", k, err.text);
        return config->copier == SPW_CONFIG_COPIER_HOST ? 1 : SPW_EXIT_GPU_LOST;
    }
    struct spw_worker_config worker_config = {
        .pool = pool,
        .k = k,
        .copier = copier.handle,
        .queue_chunks = (uint32_t)config->queue_chunks,
        .client_jobs_max = jobs_of_a_client(&pool->geometry),
        .overtake_limit_ns = config->overtake_limit_ns,
        .run_limit_ns = config->run_limit_ns,
        .event_limit_ns = config->event_limit_ns,
        .fence_limit_ns = config->fence_limit_ns,
        .orphan_ns = config->orphan_ns,
        .drain_limit_ns = config->drain_limit_ns,
        .io_quarantine_ns = config->io_quarantine_ns,
        .transfers_linger = false, /* a host copier's end with its process */
        .usable_slots = copier.pin ? spw_pin_usable_slots : NULL,
        .usable_ctx = copier.pin,
        .evict = config->evict == SPW_EVICT_FIFO ? SPW_EVICT_BY_AGE : SPW_EVICT_BY_USE,
        .now_ns = now_ns,
    };
    struct spw_worker_below below = {.config = config, .pool = pool, .k = k};
    spw_worker_below_use(&below, &worker_config);
    uint64_t afresh = counted(pool, k, SPW_WORKER_afresh);
    status = spw_worker_open(&worker_config, &worker, &err);
    if (status) {
        spw_log(SPW_LOG_ERROR, "worker %u: %s", k, err.text);
    } else {
        if (!worker_config.open_cold)
            spw_pages_use(config, pool, k);
        if (counted(pool, k, SPW_WORKER_afresh) != afresh)
            spw_log(SPW_LOG_WARNING,
                    "worker %u: its update ring made no sense: the shard is emptied and goes on",
                    k);
        status = spw_worker_run(worker, stop);
        if (status == -ENODEV)
            spw_log(SPW_LOG_ERROR, "worker %u: its GPU failed; its jobs have ended", k);
        else if (status)
            spw_log(SPW_LOG_ERROR, "worker %u: copies were still running at the limit", k);
        spw_worker_close(worker);
    }
    spw_worker_copier_close(&copier);
    return status == -ENODEV ? SPW_EXIT_GPU_LOST : status ? 1 : 0;
}

int spw_worker_main(const struct spw_config *config, const char *which, volatile int *stop)
{
    char *id;
    uint32_t k = (uint32_t)strtoul(which, &id, 10);
    bool any_pool = *id != ':';
    char *file = id;
    uint64_t pool_id = any_pool ? 0 : strtoull(id + 1, &file, 16);
    struct spw_error err = {0};
    struct spw_pool_path path;
    struct spw_pool *pool = calloc(1, sizeof *pool);
    int result = 1;
    if (!pool)
        return 1;
    if (spw_pool_path_init(&path, config->shm_dir, config->name, (uint32_t)geteuid(), &err) ||
        spw_pool_attach(&path, SPW_ROLE_WORKER, k, pool, &err)) {
        spw_log(SPW_LOG_ERROR, "worker %u: %s", k, err.text);
    } else if (!any_pool && pool->ctl->header.pool_id[0] != pool_id) {
        spw_log(SPW_LOG_ERROR, "worker %u: the pool was made anew by another daemon", k);
    } else if (spw_lock_take(pool->lock_fd, SPW_LOCK_WORKER(k))) {
        spw_log(SPW_LOG_ERROR, "worker %u: another process is this pool's worker %u", k, k);
    } else if (spw_load_relaxed(&pool->ctl->phase) == SPW_POOL_CLOSED) {
        result = 0; /* asked behind the lock: a new daemon looks the other way round, and would
                       take a shard without a locked worker for one that nobody writes */
    } else {
        take_place(file, pool, k);
        result = run(config, pool, k, stop);
    }
    spw_pool_detach(pool);
    free(pool);
    return result;
}
