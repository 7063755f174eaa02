/*
 * A worker, a process or a thread of an engine: attach, take the worker's lock byte, open a copier, run the
 * loop. It writes only what tier/worker.h and tools/inside_watch.h say; when it dies, its daemon starts a
 * successor, or an engine does.
 */
#include "tools/worker_main.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "shm/alive.h"
#include "tier/counters.h"
#include "tier/job.h"
#include "tier/worker.h"
#include "tools/inside_watch.h"
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

/* Which place the daemon has for it, if it said so. */
static void take_place(const struct spw_worker_which *which, struct spw_pool *pool)
{
    struct spw_place_worker place;
    bool has = which->place_fd >= 0 && spw_placing_read(which->place_fd, which->k, &place);
    spw_placing_take(has ? &place : NULL, pool, which->k);
}

static int say_end(int status, uint32_t k, struct spw_error *err)
{
    if (status == -ENODEV)
        spw_fail(err, status, "worker %u: its GPU failed; its jobs have ended", k);
    else if (status)
        spw_fail(err, status, "worker %u: copies were still running at the limit", k);
    return status;
}

/* A worker at work. What copies and I/O that didn't end still use is kept, see keep(). */
struct body {
    struct body *next;
    struct spw_config config; /* outlives the caller's */
    struct spw_pool *pool;
    struct spw_worker_copier copier;
    struct spw_worker_below below;
    struct spw_worker *worker;
};

/* Serve with what the copier is. 0 or a negative errno. */
static int serve(struct body *body, uint32_t k, const spw_atomic32 *stop, struct spw_error *err)
{
    struct spw_error why = {0};
    const struct spw_config *config = &body->config;
    struct spw_pool *pool = body->pool;
    struct spw_pin *pin = body->copier.pin;
    struct spw_worker_config worker_config = {
        .pool = pool,
        .k = k,
        .copier = body->copier.handle,
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
        .usable_slots = pin ? spw_pin_usable_slots : NULL,
        .usable_ctx = pin,
        .evict = config->evict == SPW_EVICT_FIFO ? SPW_EVICT_BY_AGE : SPW_EVICT_BY_USE,
        .now_ns = now_ns,
    };
    body->below = (struct spw_worker_below){.config = config, .pool = pool, .k = k};
    spw_worker_below_use(&body->below, &worker_config);
    uint64_t afresh = counted(pool, k, SPW_WORKER_afresh);
    int status = spw_worker_open(&worker_config, &body->worker, &why);
    if (status)
        return spw_fail(err, status, "worker %u: %s", k, why.text);
    if (counted(pool, k, SPW_WORKER_afresh) != afresh)
        spw_log(SPW_LOG_WARNING,
                "worker %u: its update ring made no sense: the shard is emptied and goes on", k);
    return say_end(spw_worker_run(body->worker, stop), k, err);
}

/* Until this process ends, and reachable, for whoever looks for leaks. */
static void keep(struct body *body)
{
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    static struct body *all;
    pthread_mutex_lock(&mutex);
    body->next = all;
    all = body;
    pthread_mutex_unlock(&mutex);
}

/* Does anything go on that this worker began? Copies of the host are this thread's own. */
static bool is_left(const struct spw_worker_which *which, const struct body *body, int status)
{
    return (status == -ETIMEDOUT && body->copier.gpu) ||
           (which->inside && body->worker && spw_worker_left_io(body->worker));
}

/* With the lock held. */
static void run(const struct spw_config *config, const struct spw_worker_which *which,
                struct spw_pool *pool, const spw_atomic32 *stop, struct spw_worker_end *end)
{
    uint32_t k = which->k;
    struct spw_feed_head *feed = pool->feed[k];
    struct spw_error why = {0};
    struct body *body = calloc(1, sizeof *body);
    if (!body) {
        spw_fail(&end->err, -ENOMEM, "worker %u: out of memory", k);
        return;
    }
    body->config = *config;
    body->pool = pool;
    spw_inside_enter(feed, which->inside);
    take_place(which, pool);
    spw_pages_use(config, pool, k); /* before any of it is registered */
    int status = spw_worker_copier_open(&body->config, pool, k, &body->copier, &why);
    if (status) {
        spw_fail(&end->err, status, "worker %u: %s", k, why.text);
        end->status = config->copier == SPW_CONFIG_COPIER_HOST ? 1 : SPW_EXIT_GPU_LOST;
    } else {
        status = serve(body, k, stop, &end->err);
        end->status = status == -ENODEV ? SPW_EXIT_GPU_LOST : status ? 1 : 0;
        end->left = is_left(which, body, status);
    }
    if (end->left) {
        if (status == 0)
            spw_fail(&end->err, -ETIMEDOUT, "worker %u: I/O of the tier below didn't end", k);
        end->status = end->status ? end->status : 1;
        if (which->inside)
            spw_inside_remain(feed);
        keep(body);
        return;
    }
    spw_worker_close(body->worker);
    spw_worker_copier_close(&body->copier);
    spw_inside_leave(feed);
    free(body);
}

/* 0, the lock being taken; or why this isn't the pool's worker @which->k. */
static int become(const struct spw_worker_which *which, struct spw_pool *pool,
                  struct spw_error *err)
{
    uint32_t k = which->k;
    const struct spw_feed_head *feed = pool->feed[k];
    if (which->pool_id != 0 && pool->ctl->header.pool_id[0] != which->pool_id)
        return spw_fail(err, -ESTALE, "worker %u: the pool was made anew by another daemon", k);
    bool taken = spw_lock_take(pool->lock_fd, SPW_LOCK_WORKER(k)) == 0;
    if (!taken && !spw_load_relaxed(&feed->inside_left))
        return spw_fail(
            err, -EBUSY, "worker %u: %s process is this pool's worker %u", k,
            spw_load_relaxed(&feed->inside_pid) == (uint64_t)getpid() ? "this very" : "another", k);
    if (!taken || spw_inside_lingers(feed))
        return spw_fail(err, -EBUSY,
                        "worker %u: the engine that was this worker, pid %" PRIu64
                        ", is not gone yet: its copies may still run",
                        k, spw_load_relaxed(&feed->inside_pid));
    if (which->is_worker)
        spw_store_release(which->is_worker, 1); /* release: for whoever looks for an incarnation */
    return 0;
}

void spw_worker_main(const struct spw_config *config, const struct spw_worker_which *which,
                     const spw_atomic32 *stop, struct spw_worker_end *out_end)
{
    struct spw_pool_path path;
    struct spw_error why = {0};
    struct spw_pool *pool = calloc(1, sizeof *pool);
    *out_end = (struct spw_worker_end){.status = 1};
    if (!pool) {
        spw_fail(&out_end->err, -ENOMEM, "worker %u: out of memory", which->k);
        return;
    }
    if (spw_pool_path_init(&path, config->shm_dir, config->name, (uint32_t)geteuid(), &why) ||
        spw_pool_attach(&path, SPW_ROLE_WORKER, which->k, pool, &why))
        spw_fail(&out_end->err, -EAGAIN, "worker %u: %s", which->k, why.text);
    else if (become(which, pool, &out_end->err))
        ; /* said why */
    else if (spw_load_relaxed(&pool->ctl->phase) == SPW_POOL_CLOSED)
        out_end->status = 0; /* asked behind the lock: a new daemon looks the other way round, and
                                would take a shard without a locked worker for one that nobody writes */
    else
        run(config, which, pool, stop, out_end);
    if (out_end->left)
        return;
    spw_pool_detach(pool);
    free(pool);
}
