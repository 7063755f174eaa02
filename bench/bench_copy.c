/*
 * The host copier's streams through the worker's whole path: one job of chunks after the other,
 * beside memcpy over the same buffers. The worker's passes are made here, on one CPU.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/bench.h"
#include "bench/pool.h"

#define JOB_CHUNKS   32u
#define CHUNK_TOKENS 16u
#define KEY_BYTES    16u

struct copies {
    struct spw_bench_pool *pool;
    struct spw_client *client;
    struct spw_space *space;
    uint8_t *kv;        /* the client's blocks, as the worker maps them */
    uint8_t *slots;     /* of the shard, likewise                       */
    uint8_t *client_kv; /* the same blocks as the client maps them      */
    uint32_t chunk_bytes;
    uint64_t next; /* first key of the next job */
    struct spw_bench_series store, store_memcpy, load, load_memcpy;
};

static double rate(const struct copies *copies, uint64_t begin)
{
    return (double)JOB_CHUNKS * copies->chunk_bytes * 1e9 / (double)(spw_bench_now_ns() - begin);
}

/* Passes until the next completion. */
static int await(struct copies *copies, uint32_t kind, struct spw_completion *out)
{
    for (uint64_t start = spw_bench_now_ns(); spw_bench_now_ns() - start < 10000000000u;) {
        spw_bench_pool_pass(copies->pool);
        int n = spw_completions(copies->client, out, 1);
        if (n < 0)
            return n;
        if (n == 1)
            return out->kind == kind && out->status == 0 &&
                           (kind <= 1 || out->ticket.id == 0 || out->ticket.chunks == JOB_CHUNKS)
                       ? 0
                       : -EBADMSG;
    }
    return -ETIMEDOUT;
}

/* Run @ticket with blocks [first, first + JOB_CHUNKS); bytes a second from run to completion. */
static double time_run(struct copies *copies, const struct spw_ticket *ticket, uint32_t first,
                       uint32_t kind)
{
    uint32_t blocks[JOB_CHUNKS];
    struct spw_completion done;
    for (uint32_t i = 0; i < JOB_CHUNKS; i++)
        blocks[i] = first + i;
    uint64_t begin = spw_bench_now_ns();
    int rc = spw_run(copies->client, ticket, blocks, JOB_CHUNKS, 2);
    if (rc == 0)
        rc = await(copies, kind, &done);
    double bytes_a_second = rate(copies, begin);
    return rc < 0 ? rc : done.mask ? -EIO : bytes_a_second;
}

static double store(struct copies *copies, struct spw_request *request)
{
    struct spw_chunk_ref ref[JOB_CHUNKS] = {0};
    struct spw_completion done;
    for (uint32_t i = 0; i < JOB_CHUNKS; i++)
        ref[i].index = i;
    int rc = spw_store_reserve(request, 0, ref, JOB_CHUNKS, 1);
    if (rc >= 0)
        rc = await(copies, SPW_COMPLETION_RESERVED, &done);
    if (rc < 0 || done.ticket.chunks != JOB_CHUNKS)
        return rc < 0 ? rc : -ENOSPC;
    return time_run(copies, &done.ticket, 0, SPW_COMPLETION_STORED);
}

static double load(struct copies *copies, struct spw_request *request)
{
    struct spw_decision decision = {.size_bytes = sizeof decision};
    struct spw_chunk_ref ref[JOB_CHUNKS];
    struct spw_completion done;
    int rc = spw_step_begin(copies->client);
    if (rc >= 0)
        rc = spw_lookup(request, 0, 0, &decision);
    if (rc == 0 && spw_decision_chunks(&decision, 0, ref, JOB_CHUNKS) != JOB_CHUNKS)
        rc = -EBADMSG;
    if (rc == 0)
        rc = spw_load_begin(request, &decision, 0, ref, JOB_CHUNKS, 1);
    spw_step_end(copies->client);
    if (rc >= 0)
        rc = await(copies, SPW_COMPLETION_BEGUN, &done);
    return rc < 0 ? rc : time_run(copies, &done.ticket, JOB_CHUNKS, SPW_COMPLETION_LOADED);
}

/* The bare copy, between the same buffers. */
static double time_memcpy(const struct copies *copies, bool to_slots)
{
    uint64_t begin = spw_bench_now_ns();
    for (uint32_t i = 0; i < JOB_CHUNKS; i++) {
        uint64_t at = (uint64_t)i * copies->chunk_bytes;
        uint64_t far = (uint64_t)(JOB_CHUNKS + i) * copies->chunk_bytes;
        if (to_slots)
            memcpy(copies->slots + far, copies->kv + at, copies->chunk_bytes);
        else
            memcpy(copies->kv + far, copies->slots + at, copies->chunk_bytes);
        spw_bench_use(i);
    }
    return rate(copies, begin);
}

static int sample(struct copies *copies, bool with_memcpy)
{
    struct spw_request_config config = {.size_bytes = sizeof config,
                                        .prompt_tokens = JOB_CHUNKS * CHUNK_TOKENS};
    struct spw_request *request = NULL;
    uint64_t key[JOB_CHUNKS][KEY_BYTES / 8], bytes = JOB_CHUNKS * (uint64_t)copies->chunk_bytes;
    for (uint32_t i = 0; i < JOB_CHUNKS; i++)
        key[i][0] = copies->next++, key[i][1] = 77;
    if (with_memcpy) { /* before: they overwrite slots and blocks */
        spw_bench_add(&copies->store_memcpy, time_memcpy(copies, true));
        spw_bench_add(&copies->load_memcpy, time_memcpy(copies, false));
    }
    for (uint64_t at = 0; at < bytes; at += 64)
        memcpy(copies->client_kv + at, &copies->next, sizeof copies->next);
    int rc = spw_request_open(copies->space, &config, &request);
    if (rc == 0)
        rc = spw_request_extend(request, 0, key, KEY_BYTES, JOB_CHUNKS);
    double stored = rc < 0 ? rc : store(copies, request);
    double loaded = stored < 0 ? stored : load(copies, request);
    spw_request_finish(request);
    spw_bench_pool_settle(copies->pool);
    if (loaded < 0)
        return (int)loaded;
    spw_bench_add(&copies->store, stored);
    spw_bench_add(&copies->load, loaded);
    return memcmp(copies->client_kv, copies->client_kv + bytes, bytes) ? -EBADMSG : 0;
}

static int open_copies(struct spw_bench_run *run, struct copies *copies)
{
    copies->chunk_bytes = (uint32_t)spw_bench_size(run, 1u << 20, 1u << 16);
    struct spw_bench_pool_config config = {
        .name = "copies",
        .capacity_chunks = JOB_CHUNKS,
        .reserve_chunks = JOB_CHUNKS,
        .slot_bytes = copies->chunk_bytes,
        .kv_blocks = 2 * JOB_CHUNKS, /* stored from the first half, loaded to the second */
    };
    const struct spw_group_config group = {
        .kind = SPW_GROUP_FULL, .block_tokens = CHUNK_TOKENS, .chunk_bytes = copies->chunk_bytes};
    struct spw_space_config space = {.blocks_per_chunk = 1,
                                     .hash_unit_tokens = CHUNK_TOKENS,
                                     .groups = 1,
                                     .group = &group,
                                     .fingerprint = "bench, copies"};
    struct spw_info info = {.size_bytes = sizeof info};
    void *start = NULL;
    int rc = spw_bench_pool_open(&config, &copies->pool);
    if (rc < 0)
        return rc;
    spw_bench_pool_serve(copies->pool);
    rc = spw_bench_pool_attach(copies->pool, &copies->client);
    spw_bench_pool_serve_end(copies->pool);
    if (rc == 0)
        rc = spw_bench_pool_space(copies->pool, copies->client, 0, &space, &copies->space);
    if (rc == 0)
        rc = spw_get_info(copies->client, &info);
    if (rc == 0)
        rc = spw_kv_blocks(copies->client, &start, NULL, NULL);
    if (rc < 0)
        return rc;
    copies->client_kv = start;
    copies->kv = spw_bench_pool_payload(copies->pool)->kv[info.client];
    copies->slots = spw_bench_pool_payload(copies->pool)->data[0];
    memset(copies->kv, 1, 2ull * JOB_CHUNKS * copies->chunk_bytes); /* every page is touched */
    memset(copies->slots, 1, 2ull * JOB_CHUNKS * copies->chunk_bytes);
    return 0;
}

int spw_bench_copy(struct spw_bench_run *run)
{
    static struct copies copies;
    if (!spw_bench_wants(run, "copy", "host_store") && !spw_bench_wants(run, "copy", "host_load"))
        return 0;
    memset(&copies, 0, sizeof copies);
    int rc = open_copies(run, &copies);
    for (uint32_t warm = 0; rc == 0 && warm < 3; warm++)
        rc = sample(&copies, false);
    copies.store.count = copies.load.count = 0;
    for (uint64_t i = 0; rc == 0 && i < spw_bench_size(run, 101, 3); i++)
        rc = sample(&copies, true);
    if (rc == 0) {
        spw_bench_report(run,
                         &(struct spw_bench_line){"copy", "host_store", "bytes/s", &copies.store,
                                                  "memcpy", &copies.store_memcpy});
        spw_bench_report(run, &(struct spw_bench_line){"copy", "host_load", "bytes/s", &copies.load,
                                                       "memcpy", &copies.load_memcpy});
    }
    spw_detach(copies.client);
    spw_bench_pool_close(copies.pool);
    if (rc < 0)
        fprintf(stderr, "spw-bench: copy: failed (%d)\n", rc);
    return rc;
}
