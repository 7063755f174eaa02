/*
 * The order of stores: marks and places of a full queue made anew, as a worker does it before a copy
 * when a client's mind has changed. The worker is a hollow one: queue, table and clients' bits.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/bench.h"
#include "tier/shard_impl.h"
#include "tier/worker_impl.h"

#define STORES  4096u
#define CLIENTS 16u
#define SLOTS   8192u
#define AWAITED 4u /* stores that each client waits for */

static struct {
    struct spw_pool pool;
    struct spw_shard shard;
    struct spw_worker worker;
    struct spw_job *job;
    uint32_t slot[SLOTS]; /* shuffled */
    uint64_t random;
} hollow;

static void *zeroed(uint64_t bytes)
{
    void *memory = aligned_alloc(64, (bytes + 63) / 64 * 64);
    return memory ? memset(memory, 0, bytes) : NULL;
}

static int make_clients(const struct spw_geometry *geometry)
{
    struct spw_client_map map;
    spw_client_map_init(geometry, &map);
    for (uint32_t c = 0; c < CLIENTS; c++) {
        struct spw_client_head *head = zeroed(map.size_bytes);
        if (!head)
            return -ENOMEM;
        spw_client_view_init(&hollow.pool.client[c], head, geometry);
        hollow.worker.client[c].phase = SPW_CLIENT_SERVED;
    }
    return 0;
}

static void shuffle(void)
{
    hollow.random = 8642;
    for (uint32_t i = 0; i < SLOTS; i++) {
        uint32_t j = (uint32_t)(spw_bench_random(&hollow.random) % (i + 1));
        hollow.slot[i] = hollow.slot[j];
        hollow.slot[j] = i;
    }
}

/* Jobs of 64 chunks, in slots as they come after much reuse. */
static void fill_queue(void)
{
    for (uint32_t i = 0; i < STORES; i++) {
        struct spw_job *job = &hollow.job[i / SPW_JOB_CHUNKS_MAX];
        uint32_t at = i % SPW_JOB_CHUNKS_MAX;
        job->chunk[at].slot = hollow.slot[i];
        job->chunk[at].item = (struct spw_queue_item){
            .owner = job, .chunk = at, .nominal_bytes = 80 << 20, .queued_ns = i};
        spw_worker_stream_push(&hollow.worker, job, at);
    }
    for (uint32_t c = 0; c < CLIENTS; c++)
        for (uint32_t i = 0; i < AWAITED; i++)
            spw_client_await(&hollow.pool.client[c], 0,
                             hollow.slot[spw_bench_random(&hollow.random) % STORES], true);
}

static int make_hollow(void)
{
    struct spw_pool *pool = &hollow.pool;
    pool->geometry = (struct spw_geometry){.workers = 1,
                                           .clients = CLIENTS,
                                           .capacity_chunks = SLOTS - 1,
                                           .slots = SLOTS,
                                           .slot_bytes = 64,
                                           .update_records = 64,
                                           .gate_records = 8,
                                           .command_slots = 64,
                                           .completion_slots = 64,
                                           .index_buckets = spw_table_buckets(SLOTS)};
    spw_feed_map_init(&pool->geometry, &pool->feed_map);
    pool->feed[0] = zeroed(pool->feed_map.size_bytes);
    hollow.job = calloc(STORES / SPW_JOB_CHUNKS_MAX, sizeof *hollow.job);
    hollow.worker.pool = pool;
    hollow.worker.feed = pool->feed[0];
    hollow.worker.shard = &hollow.shard;
    hollow.worker.clients = CLIENTS;
    if (!pool->feed[0] || !hollow.job || make_clients(&pool->geometry) < 0)
        return -ENOMEM;
    spw_table_init(&hollow.shard.table, pool->feed[0], &pool->feed_map, &pool->geometry);
    spw_queue_init(&hollow.worker.queue, STORES, UINT64_MAX);
    shuffle();
    fill_queue();
    return 0;
}

static void free_hollow(void)
{
    for (uint32_t c = 0; c < CLIENTS; c++)
        free(hollow.pool.client[c].head);
    free(hollow.job);
    free(hollow.pool.feed[0]);
}

/* What must be read and written at the least: each queued chunk, its bit of each client, its place. */
static double bare_ns(void)
{
    uint64_t sum = 0, up_to = 1;
    uint64_t begin = spw_bench_now_ns();
    for (struct spw_queue_item *item = hollow.worker.queue.first[0]; item; item = item->after) {
        struct spw_job_chunk *chunk = (struct spw_job_chunk *)item;
        uint64_t bits = 0;
        for (uint32_t c = 0; c < CLIENTS; c++)
            bits |= spw_load_relaxed(&hollow.pool.client[c].awaited[chunk->slot / 64]);
        sum += bits >> chunk->slot % 64 & 1;
        up_to += item->nominal_bytes;
        chunk->place_bytes = up_to;
        spw_store_relaxed(&hollow.shard.table.entry[chunk->slot].place_bytes, up_to);
    }
    spw_bench_use(sum);
    return (double)(spw_bench_now_ns() - begin) / STORES;
}

/* The youngest store becomes awaited, or no longer: nearly every place moves. */
static double order_ns(bool awaited)
{
    struct spw_client_view *client = &hollow.pool.client[0];
    spw_client_await(client, 0, hollow.slot[STORES - 1], awaited);
    spw_client_await_changed(client, 0);
    uint64_t begin = spw_bench_now_ns();
    spw_worker_stream_order(&hollow.worker);
    return (double)(spw_bench_now_ns() - begin) / STORES;
}

static int order_rounds(struct spw_bench_run *run)
{
    static struct spw_bench_series ours, theirs;
    ours.count = theirs.count = 0;
    for (uint64_t i = 0; i < spw_bench_size(run, 400, 4); i++) {
        spw_bench_add(&ours, order_ns(i % 2 == 0));
        uint64_t place =
            spw_load_relaxed(&hollow.shard.table.entry[hollow.slot[STORES - 1]].place_bytes);
        uint64_t queued = spw_load_relaxed(&hollow.pool.feed[0]->stream.bytes_queued);
        uint64_t awaited = spw_load_relaxed(&hollow.pool.feed[0]->stream.bytes_awaited);
        if (place != (i % 2 == 0 ? awaited : queued) || awaited > queued / 32)
            return -EBADMSG;
        spw_bench_add(&theirs, bare_ns());
    }
    spw_bench_report(run,
                     &(struct spw_bench_line){"order", "4096_stores_16_clients", "ns/store", &ours,
                                              "a bare pass over the same bytes", &theirs});
    return 0;
}

int spw_bench_order(struct spw_bench_run *run)
{
    if (!spw_bench_wants(run, "order", "4096_stores_16_clients"))
        return 0;
    int rc = make_hollow();
    if (rc == 0)
        rc = order_rounds(run);
    if (rc < 0)
        fprintf(stderr, "spw-bench: order: failed (%d)\n", rc);
    free_hollow();
    return rc;
}
