/* See replay_below.h. */
#include "tools/replay_below.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "tier/counters.h"

#define SETTLE_TRIES    300000u /* some 30 s, longer than a write's deadline */
#define SETTLE_PAUSE_US 100u

int spw_replay_below_open(const struct spw_replay_options *options, const char *name,
                          struct spw_pool **out_pool)
{
    struct spw_pool_path path;
    struct spw_error err = {0};
    struct spw_pool *pool = calloc(1, sizeof *pool);
    if (!pool)
        return -ENOMEM;
    int status = spw_pool_path_init(&path, options->shm_dir, name, (uint32_t)geteuid(), &err);
    if (!status)
        status = spw_pool_attach(&path, SPW_ROLE_TOOL, 0, pool, &err);
    if (status) {
        fprintf(stderr, "spillway replay: %s\n", err.text);
        free(pool);
        return status;
    }
    *out_pool = pool;
    return 0;
}

void spw_replay_below_close(struct spw_pool *pool)
{
    if (pool)
        spw_pool_detach(pool);
    free(pool);
}

/* Each chunk that is wanted below ends in one of these. */
static bool has_settled(const struct spw_feed_head *feed)
{
    static const enum spw_worker_counter ends[] = {
        SPW_WORKER_cold_written,      SPW_WORKER_cold_dropped_queue, SPW_WORKER_cold_dropped_budget,
        SPW_WORKER_cold_dropped_full, SPW_WORKER_cold_dropped_share, SPW_WORKER_cold_dropped_down,
        SPW_WORKER_cold_dropped_gone, SPW_WORKER_cold_write_failed};
    uint64_t ended = 0;
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++)
        ended += spw_load_relaxed(&feed->counter[ends[i]]);
    return ended >= spw_load_relaxed(&feed->counter[SPW_WORKER_cold_wanted]);
}

int spw_replay_below_settle(const struct spw_pool *pool)
{
    for (uint32_t tries = 0; tries < SETTLE_TRIES; tries++) {
        uint32_t settled = 0;
        while (settled < pool->geometry.workers && has_settled(pool->feed[settled]))
            settled++;
        if (settled == pool->geometry.workers)
            return 0;
        usleep(SETTLE_PAUSE_US);
    }
    return -ETIMEDOUT;
}
