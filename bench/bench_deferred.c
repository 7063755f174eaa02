/*
 * What ten thousand deferred requests cost a scheduling step: the same news, with and without them.
 * A step is spw_step_begin(), spw_woken() until it is empty, spw_step_end().
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/bench.h"
#include "bench/pool.h"
#include "sched/handle.h"

#define JOBS  64u /* of 64 chunks each, which stay reserved; one more brings the news */
#define NEWS  SPW_MAX_JOB_CHUNKS
#define STEPS 400u

struct deferred {
    struct spw_bench_pool *pool;
    struct spw_client *client;
    struct spw_space *space;
    struct spw_request *stores[JOBS];
    struct spw_ticket news; /* being reserved */
    struct spw_request **waiting;
    uint32_t requests;
};

static int open_request(struct deferred *deferred, uint64_t first, uint32_t chunks,
                        struct spw_request **out)
{
    struct spw_request_config config = {.size_bytes = sizeof config,
                                        .prompt_tokens = chunks * 16ull};
    int rc = spw_request_open(deferred->space, &config, out);
    for (uint64_t i = first; rc == 0 && i < first + chunks; i++)
        rc = spw_request_extend(*out, 0, &i, sizeof i, 1);
    return rc;
}

static int open_pool(struct deferred *deferred)
{
    struct spw_bench_pool_config config = {.name = "deferred",
                                           .capacity_chunks = 8192,
                                           .reserve_chunks = 128,
                                           .slot_bytes = 64,
                                           .kv_blocks = 64};
    struct spw_group_config group = {.kind = SPW_GROUP_FULL, .block_tokens = 16, .chunk_bytes = 64};
    struct spw_space_config space = {.blocks_per_chunk = 1,
                                     .hash_unit_tokens = 16,
                                     .groups = 1,
                                     .group = &group,
                                     .ranks = 1,
                                     .fingerprint = "deferred"};
    int rc = spw_bench_pool_open(&config, &deferred->pool);
    if (rc < 0)
        return rc;
    spw_bench_pool_serve(deferred->pool);
    rc = spw_bench_pool_attach(deferred->pool, &deferred->client);
    spw_bench_pool_serve_end(deferred->pool);
    if (rc == 0)
        rc = spw_bench_pool_space(deferred->pool, deferred->client, 0, &space, &deferred->space);
    return rc;
}

/* Reserve job @j; its ticket. The answer is awaited. */
static int reserve(struct deferred *deferred, uint32_t j, struct spw_ticket *out)
{
    struct spw_chunk_ref ref[NEWS] = {0};
    struct spw_completion end;
    for (uint32_t i = 0; i < NEWS; i++)
        ref[i].index = i;
    int rc = spw_store_reserve(deferred->stores[j], 0, ref, NEWS, j);
    spw_bench_pool_settle(deferred->pool);
    if (rc == (int)NEWS)
        rc = spw_completions(deferred->client, &end, 1);
    if (rc != 1 || end.ticket.chunks != NEWS)
        return rc < 0 ? rc : -EBADMSG;
    *out = end.ticket;
    return 0;
}

static int reserve_all(struct deferred *deferred)
{
    struct spw_ticket ticket;
    int rc = 0;
    for (uint32_t j = 0; rc == 0 && j < JOBS; j++) {
        rc = open_request(deferred, j * NEWS, NEWS, &deferred->stores[j]);
        if (rc == 0 && j > 0)
            rc = reserve(deferred, j, &ticket);
    }
    return rc;
}

/* A step; the number handed out, or -errno. *out_ns: what it took. */
static int step(struct deferred *deferred, double *out_ns)
{
    struct spw_request *out[256];
    int handed = 0, n = 0;
    uint64_t begin = spw_bench_now_ns();
    int rc = spw_step_begin(deferred->client);
    while (rc >= 0 && (n = spw_woken(deferred->client, out, 256)) > 0)
        handed += n;
    spw_step_end(deferred->client);
    *out_ns = (double)(spw_bench_now_ns() - begin);
    return rc < 0 ? rc : n < 0 ? n : handed;
}

/* Steps with 64 records of news each: a job reserved, or cancelled. @wanted are to be handed out
 * by each of the latter. */
static int measure(struct deferred *deferred, uint64_t steps, struct spw_bench_series *out)
{
    double ns;
    out->count = 0;
    for (uint64_t i = 0; i < steps; i++) {
        int rc = reserve(deferred, 0, &deferred->news);
        if (rc == 0)
            rc = step(deferred, &ns);
        if (rc == 0)
            spw_bench_add(out, ns);
        if (rc == 0)
            rc = spw_cancel(deferred->client, &deferred->news);
        spw_bench_pool_settle(deferred->pool);
        if (rc == 0)
            rc = step(deferred, &ns);
        if (rc != 0)
            return rc < 0 ? rc : -EBADMSG; /* nobody waits for these */
        spw_bench_add(out, ns);
    }
    return 0;
}

/* As many requests, each deferred for one of the chunks that stay reserved. */
static int defer_all(struct deferred *deferred, uint32_t requests)
{
    struct spw_decision decision = {.size_bytes = sizeof decision};
    int rc = 0;
    deferred->waiting = calloc(requests, sizeof(struct spw_request *));
    if (!deferred->waiting)
        return -ENOMEM;
    for (; rc == 0 && deferred->requests < requests; deferred->requests++)
        rc = open_request(deferred, NEWS + deferred->requests % ((JOBS - 1) * NEWS), 1,
                          &deferred->waiting[deferred->requests]);
    if (rc == 0)
        rc = spw_step_begin(deferred->client);
    for (uint32_t i = 0; rc >= 0 && i < requests; i++) {
        rc = spw_lookup(deferred->waiting[i], 0, 0, &decision);
        if (rc == 0 && decision.reason != SPW_REASON_PENDING)
            rc = -EBADMSG;
    }
    spw_step_end(deferred->client);
    return rc;
}

/* Of each step, besides its news, one that hands back all that waited: time for each of them. */
static int measure_woken(struct deferred *deferred, uint64_t steps, struct spw_bench_series *out)
{
    struct spw_decision decision = {.size_bytes = sizeof decision};
    struct spw_request *waits[NEWS];
    int rc = 0;
    double ns = 0;
    out->count = 0;
    for (uint32_t i = 0; rc == 0 && i < NEWS; i++)
        rc = open_request(deferred, i, 1, &waits[i]);
    for (uint64_t s = 0; rc >= 0 && s < steps; s++) {
        rc = reserve(deferred, 0, &deferred->news);
        if (rc == 0)
            rc = spw_step_begin(deferred->client);
        for (uint32_t i = 0; rc >= 0 && i < NEWS; i++)
            rc = spw_lookup(waits[i], 0, 0, &decision);
        spw_step_end(deferred->client);
        if (rc == 0)
            rc = spw_cancel(deferred->client, &deferred->news);
        spw_bench_pool_settle(deferred->pool);
        if (rc == 0)
            rc = step(deferred, &ns) == (int)NEWS ? 0 : -EBADMSG;
        spw_bench_add(out, ns);
    }
    return rc < 0 ? rc : 0;
}

static void close_pool(struct deferred *deferred)
{
    free(deferred->waiting);
    spw_detach(deferred->client);
    spw_bench_pool_close(deferred->pool);
}

int spw_bench_deferred(struct spw_bench_run *run)
{
    static struct spw_bench_series none, many, woken;
    struct deferred deferred = {.requests = 0};
    uint64_t steps = spw_bench_size(run, STEPS, 4);
    bool wants = spw_bench_wants(run, "step", "64_news_10000_deferred");
    if (!wants && !spw_bench_wants(run, "step", "64_news_64_woken"))
        return 0;
    int rc = open_pool(&deferred);
    if (rc == 0)
        rc = reserve_all(&deferred);
    if (rc == 0)
        rc = measure(&deferred, steps, &none);
    if (rc == 0)
        rc = measure_woken(&deferred, steps, &woken);
    if (rc == 0)
        rc = defer_all(&deferred, (uint32_t)spw_bench_size(run, 10000, 100));
    if (rc == 0)
        rc = measure(&deferred, steps, &many);
    if (rc == 0) {
        spw_bench_report(run, &(struct spw_bench_line){"step", "64_news_10000_deferred", "ns",
                                                       &many, "none deferred", &none});
        spw_bench_report(run, &(struct spw_bench_line){"step", "64_news_64_woken", "ns", &woken,
                                                       "none deferred", &none});
    } else {
        fprintf(stderr, "spw-bench: step: %s\n", strerror(-rc));
    }
    close_pool(&deferred);
    return rc;
}
