/*
 * Whole decisions on long requests: all chunks there, the worst case, asked again without news.
 */
#include <stdio.h>
#include <stdlib.h>

#include "bench/bench.h"
#include "bench/million.h"
#include "sched/handle.h"

#define CHUNK_TOKENS SPW_MILLION_CHUNK_TOKENS
#define GROUPS       3u
#define ASKERS       64u
#define SMOKE_CHUNKS 512u

static const uint32_t window[GROUPS] = {0, SPW_MILLION_WINDOW_SMALL, SPW_MILLION_WINDOW_LARGE};

/* A prompt that ends inside a chunk: windows may then end at its last whole one. */
static int open_request(struct spw_million *million, uint64_t chunks, struct spw_request **out)
{
    return spw_million_request(million, 1, chunks * CHUNK_TOKENS + 1, out);
}

static int decide_in_step(struct spw_million *million, struct spw_request *request,
                          struct spw_decision *decision, double *out_ns)
{
    *decision = (struct spw_decision){.size_bytes = sizeof *decision};
    int rc = spw_step_begin(million->client);
    if (rc < 0)
        return rc;
    uint64_t begin = spw_bench_now_ns();
    rc = spw_lookup(request, 0, 0, decision);
    *out_ns = (double)(spw_bench_now_ns() - begin);
    spw_step_end(million->client);
    spw_bench_pool_settle(million->pool);
    return rc;
}

/* The same keys that the decision reads, in a bare table: @first chunk of each group on. */
static double time_bare(const struct spw_million *million, const struct spw_request *request,
                        const uint64_t *first, uint64_t chunks, uint64_t *word)
{
    uint64_t begin = spw_bench_now_ns();
    for (uint32_t g = 0; g < GROUPS; g++)
        spw_bare_table_probe(&million->bare, request->keys[g].tag + first[g], chunks - first[g],
                             word);
    spw_bench_use(word[0]);
    return (double)(spw_bench_now_ns() - begin);
}

/* ---- all there ------------------------------------------------------------------------------- */

static int sample_all_hit(struct spw_million *million, uint64_t chunks, uint64_t *word,
                          struct spw_bench_series *ours, struct spw_bench_series *theirs)
{
    struct spw_request *request = NULL;
    struct spw_decision decision;
    uint64_t first[GROUPS] = {0, chunks - window[1], chunks - window[2]};
    double ns = 0;
    int rc = open_request(million, chunks, &request);
    for (uint32_t g = 0; rc == 0 && g < GROUPS; g++)
        rc = spw_million_extend(million, request, 1, g, chunks, false);
    if (rc == 0)
        rc = decide_in_step(million, request, &decision, &ns);
    if (rc == 0 && decision.hit_tokens != chunks * CHUNK_TOKENS)
        rc = -EBADMSG;
    if (rc == 0) {
        spw_bench_add(ours, ns);
        spw_bench_add(theirs, time_bare(million, request, first, chunks, word));
    }
    spw_request_finish(request);
    return rc;
}

static int bench_all_hit(struct spw_bench_run *run)
{
    static struct spw_bench_series ours, theirs;
    const char *name = "8192_full_2_sliding_all_hit";
    struct spw_million *million;
    uint64_t chunks = spw_bench_size(run, 8192, SMOKE_CHUNKS);
    if (!spw_bench_wants(run, "decision", name))
        return 0;
    int rc = spw_million_get(run, &million);
    uint64_t *word = calloc(chunks, sizeof *word);
    ours.count = theirs.count = 0;
    if (rc == 0 && !word)
        rc = -ENOMEM;
    for (uint64_t i = 0; rc == 0 && i < spw_bench_size(run, 200, 10); i++)
        rc = sample_all_hit(million, chunks, word, &ours, &theirs);
    free(word);
    if (rc == 0)
        spw_bench_report(run, &(struct spw_bench_line){"decision", name, "ns", &ours,
                                                       "a bare batched probe", &theirs});
    return rc;
}

/* ---- the worst ------------------------------------------------------------------------------- */

/* Chunks of the sliding groups that are being stored for ever: the first window of each. */
static int reserve_windows(struct spw_million *million, uint64_t chunks,
                           struct spw_request **out_request)
{
    struct spw_completion done;
    int rc = open_request(million, chunks, out_request);
    for (uint32_t g = 1; rc == 0 && g < GROUPS; g++)
        rc = spw_million_extend(million, *out_request, 1, g, window[g], true);
    for (uint32_t g = 1; rc == 0 && g < GROUPS; g++)
        for (uint32_t at = 0; rc == 0 && at < window[g];) {
            struct spw_chunk_ref ref[SPW_MAX_JOB_CHUNKS] = {0};
            for (uint32_t i = 0; i < SPW_MAX_JOB_CHUNKS; i++)
                ref[i] = (struct spw_chunk_ref){.group = g, .index = at + i};
            int sent = spw_store_reserve(*out_request, 0, ref, SPW_MAX_JOB_CHUNKS, 1);
            spw_bench_pool_settle(million->pool);
            rc = sent > 0 && spw_completions(million->client, &done, 1) == 1 ? 0 : -EBADMSG;
            at += (uint32_t)(sent > 0 ? sent : 0);
        }
    return rc;
}

/* The full group is all there, so the whole range of both sliding groups is searched for a window
 * that is not missing; each has one, at the very start, and must wait for it. */
static int open_worst(struct spw_million *million, uint64_t chunks,
                      const struct spw_request *pending, struct spw_request **out_request)
{
    int rc = open_request(million, chunks, out_request);
    if (rc == 0)
        rc = spw_million_extend(million, *out_request, 1, 0, chunks, false);
    for (uint32_t g = 1; rc == 0 && g < GROUPS; g++) {
        rc = spw_request_extend(*out_request, g, pending->keys[g].key, SPW_MILLION_KEY_BYTES,
                                window[g]);
        if (rc == 0)
            rc = spw_million_extend(million, *out_request, 1, g, chunks - window[g], true);
    }
    return rc;
}

static int sample_worst(struct spw_million *million, uint64_t chunks,
                        const struct spw_request *pending, uint64_t *word,
                        struct spw_bench_series *ours, struct spw_bench_series *theirs)
{
    struct spw_request *request = NULL;
    struct spw_decision decision;
    const uint64_t first[GROUPS] = {0};
    double ns = 0;
    int rc = open_worst(million, chunks, pending, &request);
    if (rc == 0)
        rc = decide_in_step(million, request, &decision, &ns);
    if (rc == 0 && (decision.action != SPW_ACTION_DEFER || decision.reason != SPW_REASON_PENDING))
        rc = -EBADMSG;
    if (rc == 0) {
        spw_bench_add(ours, ns);
        spw_bench_add(theirs, time_bare(million, request, first, chunks, word));
    }
    spw_request_finish(request);
    return rc;
}

static int bench_worst(struct spw_bench_run *run, struct spw_million *million,
                       const struct spw_request *pending)
{
    static struct spw_bench_series ours, theirs;
    uint64_t chunks = spw_bench_size(run, 8192, SMOKE_CHUNKS);
    uint64_t *word = calloc(chunks, sizeof *word);
    int rc = word ? 0 : -ENOMEM;
    ours.count = theirs.count = 0;
    for (uint64_t i = 0; rc == 0 && i < spw_bench_size(run, 200, 10); i++)
        rc = sample_worst(million, chunks, pending, word, &ours, &theirs);
    free(word);
    if (rc == 0)
        spw_bench_report(run, &(struct spw_bench_line){"decision", "8192_worst", "ns", &ours,
                                                       "a bare batched probe", &theirs});
    return rc;
}

/* ---- asked again ----------------------------------------------------------------------------- */

/* All askers once in a step of its own; ns of each. Negative: a check failed. */
static double ask_again(struct spw_million *million, struct spw_request **asker)
{
    struct spw_decision decision = {.size_bytes = sizeof decision};
    uint32_t repeated = 0;
    int rc = spw_step_begin(million->client);
    uint64_t begin = spw_bench_now_ns();
    for (uint32_t i = 0; i < ASKERS && rc >= 0; i++) {
        rc = spw_lookup(asker[i], 0, 0, &decision);
        repeated += decision.repeated;
    }
    double ns = (double)(spw_bench_now_ns() - begin) / ASKERS;
    spw_step_end(million->client);
    return rc < 0 ? rc : repeated == ASKERS ? ns : -EBADMSG;
}

static int defer_askers(struct spw_million *million, uint64_t chunks,
                        const struct spw_request *pending, struct spw_request **asker)
{
    struct spw_decision decision = {.size_bytes = sizeof decision};
    int rc = 0;
    for (uint32_t i = 0; rc == 0 && i < ASKERS; i++)
        rc = open_worst(million, chunks, pending, &asker[i]);
    if (rc == 0)
        rc = spw_step_begin(million->client);
    for (uint32_t i = 0; rc >= 0 && i < ASKERS; i++)
        rc = spw_lookup(asker[i], 0, 0, &decision);
    spw_step_end(million->client);
    return rc;
}

static int bench_re_ask(struct spw_bench_run *run, struct spw_million *million,
                        const struct spw_request *pending)
{
    static struct spw_bench_series ours;
    struct spw_request *asker[ASKERS] = {0};
    const uint32_t steps = 32;
    int rc = 0;
    ours.count = 0;
    for (uint64_t i = 0; rc == 0 && i < spw_bench_size(run, 10, 1); i++) {
        rc = defer_askers(million, 1024, pending, asker);
        for (uint32_t step = 0; rc == 0 && step < steps; step++) {
            double ns = ask_again(million, asker);
            rc = ns < 0 ? (int)ns : 0;
            spw_bench_add(&ours, ns);
        }
        for (uint32_t a = 0; a < ASKERS; a++) {
            spw_request_finish(asker[a]);
            asker[a] = NULL;
        }
    }
    if (rc == 0)
        spw_bench_report(run,
                         &(struct spw_bench_line){"decision", "re_ask", "ns", &ours, NULL, NULL});
    return rc;
}

static int bench_deferred(struct spw_bench_run *run)
{
    struct spw_million *million;
    struct spw_request *pending = NULL;
    bool worst = spw_bench_wants(run, "decision", "8192_worst");
    bool again = spw_bench_wants(run, "decision", "re_ask");
    if (!worst && !again)
        return 0;
    int rc = spw_million_get(run, &million);
    if (rc == 0)
        rc = reserve_windows(million, SMOKE_CHUNKS, &pending);
    if (rc == 0 && worst)
        rc = bench_worst(run, million, pending);
    if (rc == 0 && again)
        rc = bench_re_ask(run, million, pending);
    spw_request_finish(pending);
    if (million)
        spw_bench_pool_settle(million->pool);
    return rc;
}

int spw_bench_decision(struct spw_bench_run *run)
{
    int rc = bench_all_hit(run);
    if (rc == 0)
        rc = bench_deferred(run);
    if (rc < 0)
        fprintf(stderr, "spw-bench: decision: failed (%d)\n", rc);
    return rc;
}
