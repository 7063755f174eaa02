/*
 * The worker's loop: a pass does all that can be done now; between passes it spins for a few
 * microseconds where there was work, then sleeps on the doorbell until something is due.
 *
 * Writes feed.k (asleep, passes, counters); everything else through its modules. Dead in the middle
 * of a pass: see worker_commands.c, worker_jobs.c, worker_clients.c for what is left.
 */
#include "shm/doorbell.h"
#include "tier/shard_cold.h"
#include "tier/worker_impl.h"

#include <stdlib.h>
#include <string.h>

#define TICK_NS         100000000ull /* locks are asked, and no sleep is longer */
#define SPIN_NS         5000ull
#define RECLAIM_WAIT_NS 1000000ull /* first wait for slots that somebody still needs; doubles */

static int check_config(const struct spw_worker_config *config, struct spw_error *err)
{
    const struct spw_geometry *geometry = &config->pool->geometry;
    if (config->k >= geometry->workers)
        return spw_fail(err, -EINVAL, "worker %u of a pool of %u", config->k, geometry->workers);
    if (config->queue_chunks == 0 || config->client_jobs_max == 0)
        return spw_fail(err, -EINVAL, "store queue and jobs of a client need room for at least 1");
    if (config->open_cold && geometry->clients + 2 > SPW_DOORBELL_WORDS_MAX)
        return spw_fail(err, -EINVAL, "%u clients, and a tier below: %u at most, then",
                        geometry->clients, SPW_DOORBELL_WORDS_MAX - 2);
    if (config->open_cold && (geometry->cold_chunks == 0 || config->cold_policy.queue_chunks == 0))
        return spw_fail(err, -EINVAL, "a tier below needs entries and a queue");
    if (!config->copier.ops || !config->now_ns)
        return spw_fail(err, -EINVAL, "a worker needs a copier and a clock");
    return 0;
}

static int open_parts(struct spw_worker *worker, struct spw_error *err)
{
    const struct spw_worker_config *config = &worker->config;
    const struct spw_geometry *geometry = &worker->pool->geometry;
    struct spw_shard_config shard = {
        .pool = worker->pool,
        .k = config->k,
        .fence_limit_ns = config->fence_limit_ns,
        .client_dead = spw_worker_client_dead,
        .ctx = worker,
        .now_ns = worker->now_ns,
        .io_quarantine_ns = config->io_quarantine_ns,
        .transfers_linger = config->transfers_linger,
        .evicting = config->open_cold ? spw_worker_down_evicting : NULL,
        .evict = config->evict,
        .usable_slots = config->usable_slots,
        .usable_ctx = config->usable_ctx,
        .elsewhere = spw_worker_has_elsewhere,
        .demote_below = config->open_cold ? spw_worker_cold_demote : NULL};
    uint64_t jobs = (uint64_t)geometry->clients * config->client_jobs_max;
    if (jobs > UINT32_MAX || spw_jobs_init(&worker->jobs, (uint32_t)jobs) < 0)
        return spw_fail(err, -ENOMEM, "no room for %llu jobs (clients x jobs of a client)",
                        (unsigned long long)jobs);
    worker->protect = calloc((geometry->slots + 63u) / 64u, sizeof(*worker->protect));
    if (!worker->protect)
        return spw_fail(err, -ENOMEM, "no memory for %u slots", geometry->slots);
    spw_queue_init(&worker->queue, config->queue_chunks, config->overtake_limit_ns);
    for (uint32_t s = 0; s < geometry->workers; s++)
        spw_table_view_init(&worker->source[s], worker->pool->feed[s], &worker->pool->feed_map,
                            geometry);
    spw_worker_open_clients(worker);
    spw_worker_open_peers(worker);
    int status = spw_shard_open(&shard, &worker->shard, err);
    return status < 0 ? status : spw_worker_cold_open(worker, err);
}

int spw_worker_open(const struct spw_worker_config *config, struct spw_worker **out_worker,
                    struct spw_error *err)
{
    int status = check_config(config, err);
    if (status < 0)
        return status;
    struct spw_worker *worker = calloc(1, sizeof(*worker));
    if (!worker)
        return spw_fail(err, -ENOMEM, "no memory for worker %u", config->k);
    worker->config = *config;
    worker->pool = config->pool;
    worker->feed = config->pool->feed[config->k];
    worker->clients = config->pool->geometry.clients;
    worker->now_ns = config->now_ns(config->clock_ctx);
    worker->alone_since_ns = worker->now_ns;
    worker->tick_ns = worker->now_ns;
    worker->retry_ns = UINT64_MAX;
    worker->reclaim_wait_ns = RECLAIM_WAIT_NS;
    worker->reclaim_ns = worker->now_ns;
    status = open_parts(worker, err);
    if (status < 0) {
        spw_worker_close(worker);
        return status;
    }
    *out_worker = worker;
    return 0;
}

bool spw_worker_left_io(const struct spw_worker *worker)
{
    return worker->left_io;
}

void spw_worker_close(struct spw_worker *worker)
{
    if (!worker)
        return;
    for (uint32_t c = 0; c < worker->clients; c++)
        spw_worker_kv_leave(worker, c);
    spw_worker_cold_close(worker);
    spw_shard_close(worker->shard);
    spw_jobs_fini(&worker->jobs);
    free(worker->protect);
    free(worker);
}

/* ---- a pass --------------------------------------------------------------------------------- */

/* RETIRED slots may wait for clients inside a step: if nothing else wakes the worker it looks again
 * after a wait that doubles up to a tick. The shard also learns the time here, before any reserve.
 */
static uint32_t reclaim(struct spw_worker *worker)
{
    struct spw_shard_stats stats;
    uint32_t freed = spw_shard_reclaim(worker->shard, worker->now_ns);
    spw_shard_stats(worker->shard, &stats);
    if (freed != 0 || stats.retired == 0)
        worker->reclaim_wait_ns = RECLAIM_WAIT_NS;
    else if (worker->reclaim_wait_ns < TICK_NS)
        worker->reclaim_wait_ns *= 2;
    worker->reclaim_ns = stats.retired != 0 ? worker->now_ns + worker->reclaim_wait_ns : UINT64_MAX;
    return freed;
}

static uint64_t earlier(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t next_due(struct spw_worker *worker)
{
    const struct spw_copier_handle *copier = &worker->config.copier;
    uint64_t due = earlier(worker->tick_ns, worker->retry_ns);
    due = earlier(due, worker->reclaim_ns);
    due = earlier(due, copier->ops->due_ns(copier->copier, worker->now_ns));
    if (worker->cold)
        due = earlier(due, spw_worker_cold_due_ns(worker));
    const struct spw_job *job = spw_jobs_first_awaiting(&worker->jobs);
    return job ? earlier(due, job->deadline_ns) : due;
}

/* The store stream had work since the last pass; only this worker writes what it asks. */
static void count_busy(struct spw_worker *worker, uint64_t since_ns)
{
    if (spw_load_relaxed(&worker->feed->stream.bytes_queued) !=
        spw_load_relaxed(&worker->feed->stream.bytes_done))
        spw_worker_count(worker, SPW_WORKER_store_busy_ns, worker->now_ns - since_ns);
}

uint32_t spw_worker_pass(struct spw_worker *worker, uint64_t *out_due_ns)
{
    bool more_commands = false, more_copies, more_below = false;
    uint64_t since_ns = worker->now_ns;
    worker->now_ns = worker->config.now_ns(worker->config.clock_ctx);
    count_busy(worker, since_ns);
    worker->retry_ns = UINT64_MAX;
    bool tick = worker->now_ns >= worker->tick_ns;
    if (tick)
        worker->tick_ns = worker->now_ns + TICK_NS;

    uint32_t done = reclaim(worker);
    done += spw_worker_check_clients(worker, tick);
    done += spw_worker_hear_peers(worker);
    if (!worker->draining)
        done += spw_worker_take_commands(worker, &more_commands);
    done += spw_worker_look_at_fences(worker);
    done += spw_worker_expire_jobs(worker); /* a run that has come in time was taken above */
    done += spw_worker_copy(worker, &more_copies);
    if (worker->cold)
        done += spw_worker_cold_pass(worker, &more_below);
    done += spw_worker_finish_jobs(worker);
    if (done != 0)
        done += reclaim(worker);
    spw_shard_flush(worker->shard);
    spw_add_own(&worker->feed->passes, 1);
    *out_due_ns = more_commands || more_copies || more_below ? worker->now_ns : next_due(worker);
    return done;
}

/* ---- between passes ------------------------------------------------------------------------- */

static bool stop_wanted(const struct spw_worker *worker, const spw_atomic32 *stop)
{
    return spw_load_relaxed(stop) != 0 ||
           spw_load_relaxed(&worker->pool->ctl->phase) == SPW_POOL_CLOSED;
}

static bool copier_lost(const struct spw_worker *worker)
{
    const struct spw_copier_handle *copier = &worker->config.copier;
    return copier->ops->health && copier->ops->health(copier->copier) == -ENODEV;
}

struct sleeper {
    struct spw_worker *worker;
    const spw_atomic32 *stop;
};

/* Anything to do? Asked behind the full fence of the doorbell. */
static bool look(void *ctx)
{
    const struct sleeper *sleeper = ctx;
    struct spw_worker *worker = sleeper->worker;
    if (!worker->draining && (stop_wanted(worker, sleeper->stop) || spw_worker_has_command(worker)))
        return true;
    if (worker->cold && spw_load_relaxed(spw_worker_cold_word(worker)))
        return true;
    return spw_worker_clients_changed(worker);
}

static bool spin(struct sleeper *sleeper)
{
    struct spw_worker *worker = sleeper->worker;
    uint64_t until = worker->config.now_ns(worker->config.clock_ctx) + SPIN_NS;
    do {
        for (int i = 0; i < 32; i++)
            spw_cpu_relax();
        if (look(sleeper))
            return true;
    } while (worker->config.now_ns(worker->config.clock_ctx) < until);
    return false;
}

static void gather_words(const struct spw_worker *worker, struct spw_doorbell *bell)
{
    bell->count = 0;
    for (uint32_t c = 0; c < worker->clients; c++)
        bell->word[bell->count++] = spw_doorbell_low_half(
            &worker->pool->client[c].head->lane[worker->config.k].command_tail);
    bell->word[bell->count++] = &worker->pool->ctl->bell;
    if (worker->cold)
        bell->word[bell->count++] = spw_worker_cold_word(worker);
}

static void rest(struct sleeper *sleeper, const struct spw_doorbell *bell, uint32_t done,
                 uint64_t due_ns)
{
    struct spw_worker *worker = sleeper->worker;
    if (done != 0 && spin(sleeper))
        return;
    uint64_t now_ns = worker->config.now_ns(worker->config.clock_ctx);
    if (due_ns <= now_ns)
        return;
    spw_worker_count(worker, SPW_WORKER_sleeps, 1);
    spw_doorbell_sleep(bell, &worker->feed->asleep, due_ns - now_ns, look, sleeper);
}

/* No new commands; copies in flight and loads that wait are given time. */
static int drain(struct sleeper *sleeper, const struct spw_doorbell *bell)
{
    struct spw_worker *worker = sleeper->worker;
    uint64_t due_ns;
    uint64_t limit_ns =
        worker->config.now_ns(worker->config.clock_ctx) + worker->config.drain_limit_ns;
    worker->draining = true;
    spw_worker_end_waiting(worker);
    if (worker->cold)
        spw_worker_cold_end_waiting(worker);
    for (;;) {
        uint32_t done = spw_worker_pass(worker, &due_ns);
        if (!spw_worker_copies_left(worker) && !(worker->cold && spw_worker_cold_left(worker)))
            return 0;
        if (worker->now_ns >= limit_ns)
            return -ETIMEDOUT;
        rest(sleeper, bell, done, earlier(due_ns, limit_ns));
    }
}

int spw_worker_run(struct spw_worker *worker, const spw_atomic32 *stop)
{
    struct sleeper sleeper = {.worker = worker, .stop = stop};
    struct spw_doorbell bell;
    uint64_t due_ns, asked_ns = 0;
    bool lost = copier_lost(worker);
    gather_words(worker, &bell);
    while (!lost && !stop_wanted(worker, stop)) {
        uint32_t done = spw_worker_pass(worker, &due_ns);
        lost = copier_lost(worker);
        if (lost || (worker->tick_ns != asked_ns && spw_worker_orphaned(worker)))
            break;
        asked_ns = worker->tick_ns;
        rest(&sleeper, &bell, done, due_ns);
    }
    if (lost)
        spw_worker_fail_waiting(worker, -EIO);
    int status = drain(&sleeper, &bell);
    /* what is neither left nor late ends no later than this process */
    worker->left_io =
        worker->cold && spw_worker_cold_stop(worker, worker->config.drain_limit_ns) < 0;
    if (worker->cold && !worker->left_io && status == 0)
        spw_shard_transfers_ended(worker->shard);
    return lost || copier_lost(worker) ? -ENODEV : status;
}
