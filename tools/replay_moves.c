/*
 * Timed replay, what moves: loads into KV blocks that were spoilt before, every byte compared with
 * what its chunk must hold; stores of finished prompts, head first. A job is up to 64 chunks.
 */
#include <errno.h>
#include <string.h>

#include "tools/replay_timed.h"

#define LOAD_JOBS_KEPT 64u  /* of the jobs, only loads may take these          */
#define OFFER_TRIES    200u /* steps in which a refused chunk is offered again */

/* ---- jobs ------------------------------------------------------------------------------------ */

static struct spw_timed_job *job_new(struct spw_timed *timed, bool is_load, uint32_t request)
{
    uint32_t limit = is_load ? SPW_TIMED_JOBS : SPW_TIMED_JOBS - LOAD_JOBS_KEPT;
    for (uint32_t i = 0; timed->jobs < limit && i < SPW_TIMED_JOBS; i++) {
        if (timed->job[i].used)
            continue;
        timed->job[i] =
            (struct spw_timed_job){.used = true, .is_load = is_load, .request = request};
        timed->jobs++;
        return &timed->job[i];
    }
    return NULL;
}

static void job_end(struct spw_timed *timed, struct spw_timed_job *job)
{
    spw_replay_kv_give(&timed->kv, job->count, job->block);
    job->used = false;
    timed->jobs--;
}

static uint64_t cookie_of(const struct spw_timed *timed, const struct spw_timed_job *job)
{
    return (uint64_t)(job - timed->job);
}

static void request_settle(struct spw_timed_request *request)
{
    if (!request->offers && !request->loads && !request->stores && request->request &&
        request->next == request->traced->full_count) {
        spw_request_finish(request->request);
        request->request = NULL;
    }
}

/* ---- loads ----------------------------------------------------------------------------------- */

static void load_ended(struct spw_timed *timed, struct spw_timed_job *job, int status,
                       uint64_t failed)
{
    struct spw_timed_request *request = &timed->request[job->request];
    const uint64_t *ids = spw_timed_ids(timed, request);
    if (status) {
        request->load_failed = true; /* asked again; -EBUSY is the worker's "not now" */
        timed->sums->failed_loads += status != -EBUSY;
    }
    for (uint32_t i = 0; !status && i < job->count; i++) {
        if (failed >> i & 1)
            continue;
        timed->sums->wrong_bytes +=
            spw_replay_kv_wrong(&timed->kv, job->block[i], ids[job->chunk[i]]);
        timed->sums->verified_chunks++;
        timed->sums->loaded_chunks++;
    }
    request->loads--;
    uint32_t index = job->request;
    job_end(timed, job);
    if (request->loads)
        return;
    if (request->load_failed) {
        spw_engine_load_failed(&timed->engine, index);
    } else {
        spw_engine_loaded(&timed->engine, index);
        spw_gpu_cache_use(&timed->gpu, ids, (uint32_t)request->load_end);
    }
    request->load_failed = false;
}

int spw_timed_load(struct spw_timed *timed, uint32_t index, const struct spw_decision *decision,
                   uint64_t from)
{
    struct spw_timed_request *request = &timed->request[index];
    struct spw_chunk_ref refs[SPW_MAX_JOB_CHUNKS];
    int count = spw_decision_chunks(decision, from, refs, SPW_MAX_JOB_CHUNKS);
    if (count <= 0)
        return count;
    struct spw_timed_job *job = job_new(timed, true, index);
    if (!job)
        return 0;
    if (spw_replay_kv_take(&timed->kv, (uint32_t)count, job->block)) {
        job_end(timed, job);
        return 0;
    }
    job->count = (uint32_t)count;
    int taken =
        spw_load_begin(request->request, decision, 0, refs, (uint32_t)count, cookie_of(timed, job));
    if (taken <= 0) {
        job_end(timed, job);
        return taken == -EAGAIN || taken == -EBUSY ? 0 : taken;
    }
    spw_replay_kv_give(&timed->kv, job->count - (uint32_t)taken, job->block + taken);
    job->count = (uint32_t)taken;
    for (int i = 0; i < taken; i++) {
        job->chunk[i] = refs[i].index;
        spw_replay_kv_spoil(&timed->kv, job->block[i]);
    }
    request->loads++;
    return taken;
}

/* ---- stores ---------------------------------------------------------------------------------- */

/* The next chunks of a request that nobody has: at most a job's worth, and the index behind them.
 */
static int missing(struct spw_timed *timed, struct spw_timed_request *request,
                   struct spw_chunk_ref *out, uint64_t *out_next)
{
    uint64_t count = request->traced->full_count - request->next;
    int n = 0;
    uint64_t i = 0;
    int status = spw_request_probe(request->request, 0, request->next, count, timed->verdicts);
    if (status < 0)
        return status;
    for (; i < count && n < (int)SPW_MAX_JOB_CHUNKS; i++) {
        if (timed->verdicts[i] == SPW_MISS)
            out[n++] = (struct spw_chunk_ref){.index = request->next + i};
        else
            timed->sums->present_chunks++;
    }
    *out_next = request->next + i;
    return n;
}

/* Offer one job's worth of a finished prompt: 1 done something, 0 no room now, or -errno. */
static int offer(struct spw_timed *timed, uint32_t index)
{
    struct spw_timed_request *request = &timed->request[index];
    struct spw_chunk_ref refs[SPW_MAX_JOB_CHUNKS];
    uint64_t next = request->next;
    struct spw_timed_job *job = job_new(timed, false, index);
    if (!job)
        return 0;
    uint64_t present = timed->sums->present_chunks;
    int count = missing(timed, request, refs, &next);
    if (count > 0 && spw_replay_kv_take(&timed->kv, (uint32_t)count, job->block) == 0)
        job->count = (uint32_t)count;
    else if (count > 0)
        count = -EAGAIN;
    int asked =
        count > 0 ? spw_store_reserve(request->request, 0, refs, job->count, cookie_of(timed, job))
                  : count;
    if (count > 0 && asked >= 0 && asked < count)
        next = asked ? refs[asked].index : request->next; /* the rest is offered again */
    if (asked <= 0) {
        job_end(timed, job);
        if (asked == 0) {
            request->next = next; /* nothing is missing up to here */
            return 1;
        }
        timed->sums->present_chunks = present;
        return asked == -EAGAIN || asked == -EBUSY ? 0 : asked;
    }
    spw_replay_kv_give(&timed->kv, job->count - (uint32_t)asked, job->block + asked);
    job->count = (uint32_t)asked;
    for (int i = 0; i < asked; i++)
        job->chunk[i] = refs[i].index;
    request->next = next;
    request->stores++;
    return 1;
}

int spw_timed_offer(struct spw_timed *timed)
{
    for (uint32_t i = timed->offer_first; i < timed->arrived; i++) {
        struct spw_timed_request *request = &timed->request[i];
        while (request->offers && request->next < request->traced->full_count) {
            int status = offer(timed, i);
            if (status <= 0)
                return status;
        }
        request->offers = request->offers && request->next < request->traced->full_count;
        request_settle(request);
    }
    while (timed->offer_first < timed->arrived && !timed->request[timed->offer_first].request &&
           timed->engine.requests[timed->offer_first].state == SPW_ENGINE_DONE)
        timed->offer_first++;
    return 0;
}

/* The worker's answer: run what is new; what it had no room for is offered again, head first. */
static int reserved(struct spw_timed *timed, struct spw_timed_job *job,
                    const struct spw_completion *answer)
{
    struct spw_timed_request *request = &timed->request[job->request];
    uint32_t accepted = answer->ticket.chunks;
    if (accepted < job->count && request->tries++ < OFFER_TRIES) {
        if (job->chunk[accepted] < request->next)
            request->next = job->chunk[accepted];
        request->offers = true;
    } else {
        timed->sums->skipped_chunks += job->count - accepted;
    }
    job->mask = answer->mask;
    timed->sums->present_chunks += accepted - (uint32_t)__builtin_popcountll(job->mask);
    if (answer->ticket.id && accepted) {
        for (uint32_t i = 0; i < accepted; i++)
            if (job->mask >> i & 1)
                spw_replay_kv_fill(&timed->kv, job->block[i],
                                   spw_timed_ids(timed, request)[job->chunk[i]]);
        int status = spw_run(timed->seat->client, &answer->ticket, job->block, accepted,
                             cookie_of(timed, job));
        if (!status)
            return 0;
        timed->sums->skipped_chunks += (uint32_t)__builtin_popcountll(job->mask);
        spw_cancel(timed->seat->client, &answer->ticket);
    }
    request->stores--;
    job_end(timed, job);
    request_settle(request);
    return 0;
}

static void stored(struct spw_timed *timed, struct spw_timed_job *job,
                   const struct spw_completion *end)
{
    struct spw_timed_request *request = &timed->request[job->request];
    uint64_t well = job->mask & ~end->mask;
    timed->sums->stored_chunks += (uint32_t)__builtin_popcountll(well);
    timed->sums->skipped_chunks += (uint32_t)__builtin_popcountll(job->mask & end->mask);
    request->stores--;
    job_end(timed, job);
    request_settle(request);
}

static int begun(struct spw_timed *timed, struct spw_timed_job *job,
                 const struct spw_completion *answer)
{
    int status = answer->status;
    if (answer->ticket.chunks == job->count && answer->ticket.id)
        status = spw_run(timed->seat->client, &answer->ticket, job->block, job->count,
                         cookie_of(timed, job));
    else if (!status)
        status = -EPROTO;
    if (status) {
        spw_cancel(timed->seat->client, &answer->ticket);
        load_ended(timed, job, status, 0);
    }
    return 0;
}

int spw_timed_reap(struct spw_timed *timed)
{
    struct spw_completion end[64];
    int count, status = 0;
    while (!status && (count = spw_completions(timed->seat->client, end, 64)) != 0) {
        if (count < 0)
            return count;
        for (int i = 0; !status && i < count; i++) {
            struct spw_timed_job *job =
                end[i].cookie < SPW_TIMED_JOBS ? &timed->job[end[i].cookie] : NULL;
            if (!job || !job->used)
                return -EPROTO;
            if (end[i].kind == SPW_COMPLETION_RESERVED)
                status = reserved(timed, job, &end[i]);
            else if (end[i].kind == SPW_COMPLETION_BEGUN)
                status = begun(timed, job, &end[i]);
            else if (end[i].kind == SPW_COMPLETION_STORED)
                stored(timed, job, &end[i]);
            else if (end[i].kind == SPW_COMPLETION_LOADED)
                load_ended(timed, job, end[i].status, end[i].mask);
        }
    }
    return status;
}
