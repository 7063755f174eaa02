/* See pool.h. */
#include "bench/pool.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/bench.h"
#include "bench/keeper.h"
#include "shm/alive.h"
#include "tier/host_copier.h"
#include "tier/worker.h"

#define LONG_NS (3600 * 1000000000ull) /* no limit counts here */

struct spw_bench_pool {
    struct spw_pool daemon;
    struct spw_pool mapped;
    struct spw_copier_handle copier;
    struct spw_worker *worker;
    uint32_t spaces;
    uint64_t answered[SPW_CLIENTS_MAX];
    pthread_t thread;
    bool serving;
    spw_atomic32 stop;
};

static uint64_t clock_ns(void *ctx)
{
    return spw_bench_now_ns();
}

static bool nobody_died(void *ctx, uint32_t c, uint64_t generation)
{
    return false;
}

/* ---- the daemon's part ----------------------------------------------------------------------- */

/* Its number. */
static uint32_t open_space(struct spw_bench_pool *pool, const struct spw_open_space_mail *asked)
{
    struct spw_space_slot *space = pool->daemon.ctl->space;
    for (uint32_t s = 0; s < pool->spaces; s++)
        if (!memcmp(&space[s].record, &asked->record, sizeof asked->record))
            return s;
    struct spw_space_slot *slot = &space[pool->spaces];
    slot->record = asked->record;
    for (uint32_t r = 0; r < asked->record.ranks; r++)
        spw_store_relaxed(&slot->rank_workers[r], 1); /* before `ready` */
    spw_store_release(&slot->ready, 1);               /* [SP-1] */
    return pool->spaces++;
}

static void answer_mail(struct spw_bench_pool *pool)
{
    for (uint32_t c = 0; c < pool->daemon.geometry.clients; c++) {
        struct spw_client_head *client = pool->daemon.client[c].head;
        struct spw_reply *reply = &pool->daemon.ctl->reply[c];
        uint64_t seq = spw_load_acquire(&client->mailbox.seq); /* [MB-1] */
        struct spw_open_space_mail asked;
        if (seq == pool->answered[c])
            continue;
        memcpy(&asked, client->mailbox.bytes, sizeof asked);
        spw_store_relaxed(&reply->value, open_space(pool, &asked)); /* before its seq, all three */
        spw_store_relaxed(&reply->status, 0);
        spw_store_relaxed(&reply->generation, spw_load_relaxed(&client->generation));
        spw_store_release(&reply->seq, seq); /* [MB-2] */
        pool->answered[c] = seq;
    }
}

static void say_up(struct spw_bench_pool *pool)
{
    struct spw_ctl *ctl = pool->daemon.ctl;
    /* relaxed: nobody is attached yet */
    spw_store_relaxed(&ctl->worker[0].incarnation,
                      spw_load_relaxed(&pool->daemon.feed[0]->incarnation));
    spw_store_release(&ctl->worker[0].phase, SPW_WORKER_UP); /* [WS-1] */
    spw_store_release(&ctl->phase, SPW_POOL_SERVING);        /* [PH-1] */
}

/* ---- open and close -------------------------------------------------------------------------- */

static int create(struct spw_bench_pool *pool, const struct spw_bench_pool_config *config,
                  struct spw_error *err)
{
    struct spw_pool_config create = {.mode = 0600, .gid = -1};
    uint32_t slots = config->capacity_chunks + config->reserve_chunks;
    create.geometry = (struct spw_geometry){
        .workers = 1,
        .clients = 4,
        .capacity_chunks = config->capacity_chunks,
        .slots = slots,
        .slot_bytes = config->slot_bytes,
        .update_records = 65536,
        .gate_records = 8192,
        .command_slots = 2048,
        .completion_slots = 256,
        .index_buckets = spw_table_buckets(slots),
        .kv_blocks = config->kv_blocks,
        .kv_block_bytes = config->kv_blocks ? config->slot_bytes : 0,
    };
    create.cold = true;
    int rc =
        spw_pool_path_init(&create.path, spw_keeper_dir(), config->name, (uint32_t)geteuid(), err);
    if (rc == 0)
        rc = spw_pool_create(&create, &pool->daemon, err);
    if (rc == 0)
        rc = spw_pool_attach(&create.path, SPW_ROLE_WORKER, 0, &pool->mapped, err);
    if (rc == 0)
        rc = spw_lock_take(pool->mapped.lock_fd, SPW_LOCK_WORKER(0));
    return rc;
}

static int start_worker(struct spw_bench_pool *pool, struct spw_error *err)
{
    const struct spw_host_copier_config copier = {.in_flight = {8, 8}};
    int rc = spw_host_copier_open(&copier, &pool->copier);
    if (rc < 0)
        return rc;
    struct spw_worker_config config = {
        .pool = &pool->mapped,
        .copier = pool->copier,
        .queue_chunks = 4096,
        .client_jobs_max = pool->mapped.geometry.completion_slots,
        .overtake_limit_ns = LONG_NS,
        .run_limit_ns = LONG_NS,
        .fence_limit_ns = LONG_NS,
        .orphan_ns = LONG_NS,
        .now_ns = clock_ns,
    };
    return spw_worker_open(&config, &pool->worker, err);
}

int spw_bench_pool_open(const struct spw_bench_pool_config *config,
                        struct spw_bench_pool **out_pool)
{
    struct spw_error err = {0};
    struct spw_bench_pool *pool = calloc(1, sizeof *pool);
    if (!pool)
        return -ENOMEM;
    int rc = create(pool, config, &err);
    if (rc == 0)
        rc = start_worker(pool, &err);
    if (rc < 0) {
        fprintf(stderr, "spw-bench: pool %s: %s (%d)\n", config->name, err.text, rc);
        spw_bench_pool_close(pool);
        return rc;
    }
    say_up(pool);
    *out_pool = pool;
    return 0;
}

static void end_worker(struct spw_bench_pool *pool)
{
    spw_worker_close(pool->worker);
    if (pool->copier.ops)
        pool->copier.ops->close(pool->copier.copier);
    pool->worker = NULL;
    pool->copier.ops = NULL;
}

int spw_bench_pool_fill(struct spw_bench_pool *pool,
                        int (*fill)(struct spw_shard *shard, void *ctx), void *ctx)
{
    struct spw_error err = {0};
    struct spw_shard_config config = {
        .pool = &pool->mapped, .fence_limit_ns = LONG_NS, .client_dead = nobody_died};
    struct spw_shard *shard = NULL;
    end_worker(pool);
    int rc = spw_shard_open(&config, &shard, &err);
    if (rc == 0)
        rc = fill(shard, ctx);
    spw_shard_close(shard);
    if (rc == 0)
        rc = start_worker(pool, &err);
    say_up(pool);
    if (rc < 0)
        fprintf(stderr, "spw-bench: filling: %s (%d)\n", err.text, rc);
    return rc;
}

double spw_bench_pool_adopt(struct spw_bench_pool *pool)
{
    struct spw_shard_config config = {
        .pool = &pool->mapped, .fence_limit_ns = LONG_NS, .client_dead = nobody_died};
    struct spw_shard *shard = NULL;
    struct spw_error err = {0};
    end_worker(pool);
    uint64_t begin = spw_bench_now_ns();
    int rc = spw_shard_open(&config, &shard, &err);
    double ns = (double)(spw_bench_now_ns() - begin);
    spw_shard_close(shard);
    if (rc == 0)
        rc = start_worker(pool, &err);
    say_up(pool);
    return rc < 0 ? rc : ns;
}

void spw_bench_pool_close(struct spw_bench_pool *pool)
{
    if (!pool)
        return;
    end_worker(pool);
    spw_pool_detach(&pool->mapped);
    if (pool->daemon.ctl)
        spw_pool_unlink(&pool->daemon, NULL);
    spw_pool_detach(&pool->daemon);
    free(pool);
}

const struct spw_pool *spw_bench_pool_objects(const struct spw_bench_pool *pool)
{
    return &pool->daemon;
}

const struct spw_pool *spw_bench_pool_payload(const struct spw_bench_pool *pool)
{
    return &pool->mapped;
}

/* ---- driving it ------------------------------------------------------------------------------ */

uint32_t spw_bench_pool_pass(struct spw_bench_pool *pool)
{
    uint64_t due_ns;
    return spw_worker_pass(pool->worker, &due_ns);
}

void spw_bench_pool_settle(struct spw_bench_pool *pool)
{
    while (spw_bench_pool_pass(pool) != 0)
        ;
}

static void *serve(void *arg)
{
    struct spw_bench_pool *pool = arg;
    spw_bench_pin(1); /* where there is one */
    while (!spw_load_acquire(&pool->stop)) {
        answer_mail(pool);
        if (spw_bench_pool_pass(pool) == 0)
            usleep(20);
    }
    return NULL;
}

void spw_bench_pool_serve(struct spw_bench_pool *pool)
{
    spw_store_relaxed(&pool->stop, 0); /* before the thread starts */
    if (pool->serving || pthread_create(&pool->thread, NULL, serve, pool))
        abort(); /* a second thread would be a second worker of the shard */
    pool->serving = true;
}

void spw_bench_pool_serve_end(struct spw_bench_pool *pool)
{
    spw_store_release(&pool->stop, 1);
    pthread_join(pool->thread, NULL);
    pool->serving = false;
}

int spw_bench_pool_attach(struct spw_bench_pool *pool, struct spw_client **out_client)
{
    struct spw_attach_options options = {
        .size_bytes = sizeof options,
        .numa_node = -1,
        .pool = pool->daemon.path.name,
        .shm_dir = pool->daemon.path.shm_dir,
        .label = "spw-bench",
        .uid = -1,
    };
    char text[256] = "";
    int rc = spw_attach(&options, out_client, text, sizeof text);
    if (rc < 0)
        fprintf(stderr, "spw-bench: attach to pool %s: %s (%d)\n", options.pool, text, rc);
    return rc;
}

int spw_bench_pool_space(struct spw_bench_pool *pool, struct spw_client *client, uint32_t number,
                         struct spw_space_config *config, struct spw_space **out_space)
{
    static const uint32_t worker = 0;
    char text[256] = "";
    config->size_bytes = sizeof *config;
    config->ranks = 1;
    config->rank_worker = &worker;
    spw_bench_pool_serve(pool);
    int rc = spw_space_open(client, config, out_space, text, sizeof text);
    spw_bench_pool_serve_end(pool);
    if (rc == 0 && spw_space_number(*out_space) != number)
        rc = -EINVAL;
    if (rc < 0)
        fprintf(stderr, "spw-bench: space %u: %s (%d)\n", number, text, rc);
    return rc;
}
