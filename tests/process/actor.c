/* See actor.h. */
#include "tests/process/actor.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LIMIT_MS 10000u
#define JOB      SPW_MAX_JOB_CHUNKS

uint64_t actor_now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* ---- life ------------------------------------------------------------------------------------ */

int actor_attach(struct actor *actor, const struct actor_config *config)
{
    struct spw_attach_options options = {.size_bytes = sizeof options,
                                         .numa_node = -1,
                                         .pool = config->name,
                                         .shm_dir = config->dir,
                                         .label = config->label,
                                         .changes = config->changes,
                                         .uid = -1};
    uint64_t until = actor_now_ms() + LIMIT_MS;
    int rc;
    memset(actor, 0, sizeof *actor);
    actor->config = *config;
    if (!actor->config.ranks)
        actor->config.ranks = 1;
    if (!actor->config.fingerprint)
        actor->config.fingerprint = "a model";
    while ((rc = spw_attach(&options, &actor->client, actor->text, sizeof actor->text)) ==
               -EAGAIN &&
           actor_now_ms() < until)
        usleep(1000);
    if (rc < 0)
        return rc;
    void *start;
    rc = spw_kv_blocks(actor->client, &start, &actor->blocks, &actor->block_bytes);
    actor->kv = start;
    return rc;
}

int actor_space(struct actor *actor)
{
    const struct actor_config *config = &actor->config;
    struct spw_group_config group = {
        .kind = SPW_GROUP_FULL,
        .block_tokens = ACTOR_TOKENS,
        .chunk_bytes = config->chunk_bytes ? config->chunk_bytes : (uint32_t)actor->block_bytes,
        .nominal_bytes = config->nominal_bytes,
    };
    struct spw_space_config space = {
        .size_bytes = sizeof space,
        .blocks_per_chunk = 1,
        .hash_unit_tokens = ACTOR_TOKENS,
        .groups = 1,
        .group = &group,
        .ranks = config->ranks,
        .rank_worker = config->worker,
        .fingerprint = config->fingerprint,
        .max_recompute_pending_tokens = config->budget,
        .guaranteed_permille = config->guaranteed_permille,
        .largest_permille = config->largest_permille,
    };
    return spw_space_open(actor->client, &space, &actor->space, actor->text, sizeof actor->text);
}

int actor_open(struct actor *actor, const struct actor_config *config)
{
    int rc = actor_attach(actor, config);
    if (rc == 0)
        rc = actor_space(actor);
    if (rc < 0) {
        fprintf(stderr, "client: %d %s\n", rc, actor->text);
        actor_close(actor);
    }
    return rc;
}

void actor_close(struct actor *actor)
{
    spw_detach(actor->client);
    actor->client = NULL;
}

struct spw_request *actor_request(struct actor *actor, uint64_t first, uint32_t chunks,
                                  uint32_t flags)
{
    struct spw_request_config config = {.size_bytes = sizeof config,
                                        .flags = flags,
                                        .prompt_tokens = (uint64_t)chunks * ACTOR_TOKENS};
    struct spw_request *request = NULL;
    int rc = spw_request_open(actor->space, &config, &request);
    for (uint32_t i = 0; rc == 0 && i < chunks; i++) {
        uint64_t key[ACTOR_KEY_BYTES / 8] = {first + i, ~(first + i), 1, 2, 3};
        rc = spw_request_extend(request, 0, key, sizeof key, 1);
    }
    if (rc < 0) {
        spw_request_finish(request);
        return NULL;
    }
    return request;
}

/* ---- bytes ----------------------------------------------------------------------------------- */

static uint64_t word_of(uint64_t number, uint32_t rank, uint64_t at)
{
    uint64_t x = (number << 20 ^ (uint64_t)rank << 16 ^ at) * 0x9e3779b97f4a7c15ull;
    return x ^ x >> 29;
}

static uint64_t *words_of(const struct actor *actor, uint32_t block)
{
    return (uint64_t *)(void *)(actor->kv + block * actor->block_bytes);
}

static uint64_t chunk_words(const struct actor *actor)
{
    return (actor->config.chunk_bytes ? actor->config.chunk_bytes : actor->block_bytes) / 8;
}

void actor_fill(struct actor *actor, uint32_t block, uint64_t number, uint32_t rank)
{
    for (uint64_t i = 0; i < chunk_words(actor); i++)
        words_of(actor, block)[i] = word_of(number, rank, i);
}

uint64_t actor_wrong(const struct actor *actor, uint32_t block, uint64_t number, uint32_t rank)
{
    uint64_t wrong = 0;
    for (uint64_t i = 0; i < chunk_words(actor); i++)
        wrong += words_of(actor, block)[i] == word_of(number, rank, i) ? 0 : 8;
    return wrong;
}

static void spoil(struct actor *actor, uint32_t block)
{
    memset(words_of(actor, block), 0xee, chunk_words(actor) * 8);
}

/* ---- jobs ------------------------------------------------------------------------------------ */

int actor_next(struct actor *actor, struct spw_completion *out, uint32_t limit_ms)
{
    uint64_t until = actor_now_ms() + limit_ms;
    for (;;) {
        int n = spw_completions(actor->client, out, 1);
        if (n != 0)
            return n < 0 ? n : 0;
        if (actor_now_ms() >= until)
            return -ETIMEDOUT;
        usleep(50);
    }
}

static int expect(struct actor *actor, uint32_t kind, uint64_t cookie, struct spw_completion *out)
{
    int rc = actor_next(actor, out, LIMIT_MS);
    if (rc == 0 && (out->kind != kind || out->cookie != cookie)) {
        fprintf(stderr, "completion of kind %u (status %d), cookie %llu; wanted %u, %llu\n",
                out->kind, out->status, (unsigned long long)out->cookie, kind,
                (unsigned long long)cookie);
        return -EPROTO;
    }
    return rc;
}

int actor_reserve(struct actor *actor, struct spw_request *request, uint32_t rank, uint64_t at,
                  uint32_t count, struct spw_completion *out)
{
    struct spw_chunk_ref ref[JOB];
    uint64_t until = actor_now_ms() + LIMIT_MS;
    int rc;
    memset(ref, 0, sizeof ref);
    for (uint32_t i = 0; i < count; i++)
        ref[i].index = at + i;
    uint64_t cookie = ++actor->cookie;
    while ((rc = spw_store_reserve(request, rank, ref, count, cookie)) == -EAGAIN &&
           actor_now_ms() < until)
        usleep(50);
    return rc < 0 ? rc : expect(actor, SPW_COMPLETION_RESERVED, cookie, out);
}

int actor_run(struct actor *actor, const struct spw_ticket *ticket, uint32_t block, uint64_t cookie)
{
    uint32_t blocks[JOB];
    uint64_t until = actor_now_ms() + LIMIT_MS;
    int rc;
    for (uint32_t i = 0; i < ticket->chunks; i++)
        blocks[i] = block + i;
    while ((rc = spw_run(actor->client, ticket, blocks, ticket->chunks, cookie)) == -EAGAIN &&
           actor_now_ms() < until)
        usleep(50);
    return rc;
}

/* One job: how many of the @count chunks are there or on their way now. */
static int store_job(struct actor *actor, struct spw_request *request, uint32_t rank,
                     uint64_t first, uint64_t at, uint32_t count)
{
    struct spw_completion done;
    int rc = actor_reserve(actor, request, rank, at, count, &done);
    if (rc < 0)
        return rc;
    uint32_t accepted = done.ticket.chunks;
    if (!done.ticket.id)
        return done.status < 0 && accepted == 0 && done.status != -ENOSPC && done.status != -EBUSY
                   ? done.status
                   : (int)accepted;
    for (uint32_t i = 0; i < accepted; i++)
        actor_fill(actor, i, first + at + i, rank);
    uint64_t cookie = ++actor->cookie;
    rc = actor_run(actor, &done.ticket, 0, cookie);
    if (rc == 0)
        rc = expect(actor, SPW_COMPLETION_STORED, cookie, &done);
    if (rc == 0 && (done.status || done.mask))
        rc = done.status ? done.status : -EIO;
    return rc < 0 ? rc : (int)accepted;
}

int actor_store_rank(struct actor *actor, uint32_t rank, uint64_t first, uint32_t chunks)
{
    struct spw_request *request = actor_request(actor, first, chunks, 0);
    uint32_t most = actor->blocks < JOB ? (uint32_t)actor->blocks : JOB;
    uint32_t at = 0;
    int rc = request ? 0 : -ENOMEM;
    while (rc >= 0 && at < chunks) {
        rc = store_job(actor, request, rank, first, at, chunks - at < most ? chunks - at : most);
        if (rc <= 0)
            break;
        at += (uint32_t)rc;
    }
    spw_request_finish(request);
    return rc < 0 ? rc : (int)at;
}

int actor_store(struct actor *actor, uint64_t first, uint32_t chunks)
{
    int least = (int)chunks;
    for (uint32_t rank = 0; rank < actor->config.ranks; rank++) {
        int stored = actor_store_rank(actor, rank, first, chunks);
        if (stored < 0)
            return stored;
        least = stored < least ? stored : least;
    }
    return least;
}

/* ---- lookups --------------------------------------------------------------------------------- */

int actor_decide(struct actor *actor, struct spw_request *request, struct spw_decision *out)
{
    *out = (struct spw_decision){.size_bytes = sizeof *out};
    int rc = spw_step_begin(actor->client);
    if (rc < 0)
        return rc;
    rc = spw_lookup(request, 0, 0, out);
    int ended = spw_step_end(actor->client);
    return rc < 0 ? rc : ended;
}

int actor_hits(struct actor *actor, uint64_t first, uint32_t chunks)
{
    struct spw_decision decision;
    struct spw_request *request = actor_request(actor, first, chunks, 0);
    int rc = request ? actor_decide(actor, request, &decision) : -ENOMEM;
    spw_request_finish(request);
    if (rc < 0)
        return rc;
    if (decision.action == SPW_ACTION_DEFER)
        return -EAGAIN;
    return (int)(decision.hit_tokens / ACTOR_TOKENS);
}

/* Send the begins of a decision for one rank, cookies from @cookie on; how many. */
static int send_begins(struct actor *actor, struct spw_request *request, uint32_t rank,
                       const struct spw_decision *decision, uint64_t cookie)
{
    struct spw_chunk_ref ref[JOB];
    uint64_t from = 0;
    int jobs = 0, count;
    (void)actor;
    while (jobs < (int)ACTOR_JOBS_MAX &&
           (count = spw_decision_chunks(decision, from, ref, JOB)) > 0) {
        int rc = spw_load_begin(request, decision, rank, ref, (uint32_t)count, cookie);
        if (rc < 0)
            return rc;
        from += (uint64_t)rc;
        cookie++;
        jobs++;
    }
    return jobs;
}

static int begin_in_step(struct actor *actor, struct spw_request *request, uint32_t rank,
                         struct spw_decision *decision)
{
    *decision = (struct spw_decision){.size_bytes = sizeof *decision};
    int rc = spw_lookup(request, 0, 0, decision);
    if (rc < 0 || decision->action == SPW_ACTION_MISS)
        return rc;
    if (decision->action == SPW_ACTION_DEFER)
        return -EAGAIN;
    return send_begins(actor, request, rank, decision, actor->cookie + 1);
}

int actor_begin(struct actor *actor, struct spw_request *request, uint32_t rank, bool leave_open)
{
    struct spw_decision decision;
    int rc = spw_step_begin(actor->client);
    if (rc < 0)
        return rc;
    int begun = begin_in_step(actor, request, rank, &decision);
    rc = leave_open ? 0 : spw_step_end(actor->client);
    actor->cookie += begun > 0 ? (uint64_t)begun : 0;
    return rc < 0 ? rc : begun;
}

/* The answers to @jobs begins come in their order; each is run, waited for and compared. */
static int finish_loads(struct actor *actor, uint32_t rank, uint64_t first, int jobs)
{
    uint64_t cookie = actor->cookie - (uint64_t)jobs + 1;
    struct spw_ticket ticket[ACTOR_JOBS_MAX];
    struct spw_completion done;
    int loaded = 0;
    for (int j = 0; j < jobs; j++) {
        int rc = expect(actor, SPW_COMPLETION_BEGUN, cookie + (uint64_t)j, &done);
        if (rc < 0 || done.status || !done.ticket.id)
            return rc < 0 ? rc : done.status ? done.status : -EIO;
        ticket[j] = done.ticket;
    }
    for (int j = 0; j < jobs; j++) {
        for (uint32_t i = 0; i < ticket[j].chunks; i++)
            spoil(actor, i);
        int rc = actor_run(actor, &ticket[j], 0, cookie + (uint64_t)j);
        if (rc == 0)
            rc = expect(actor, SPW_COMPLETION_LOADED, cookie + (uint64_t)j, &done);
        if (rc < 0 || done.status || done.mask)
            return rc < 0 ? rc : done.status ? done.status : -EIO;
        for (uint32_t i = 0; i < ticket[j].chunks; i++, loaded++)
            if (actor_wrong(actor, i, first + (uint64_t)loaded, rank))
                return -EBADMSG;
    }
    return loaded;
}

int actor_load(struct actor *actor, uint64_t first, uint32_t chunks)
{
    struct spw_request *request = actor_request(actor, first, chunks, 0);
    int loaded = request ? 0 : -ENOMEM;
    for (uint32_t rank = 0; loaded >= 0 && rank < actor->config.ranks; rank++) {
        int begun = actor_begin(actor, request, rank, false);
        if (begun <= 0)
            loaded = begun;
        else
            loaded = finish_loads(actor, rank, first, begun);
        if (begun == 0)
            break;
    }
    spw_request_finish(request);
    return loaded;
}

uint64_t actor_counter(struct actor *actor, const char *name)
{
    uint64_t value[64] = {0};
    int count = spw_counters(actor->client, value, 64);
    for (int i = 0; i < count; i++)
        if (strcmp(spw_counter_name((uint32_t)i), name) == 0)
            return value[i];
    return UINT64_MAX;
}
