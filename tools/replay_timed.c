/*
 * Timed replay: one engine of tools/engine.h played by the clock against the real pool.
 *
 * Each round is a scheduling step: completions are reaped, requests that arrived are taken in, the
 * server takes the oldest request that can go on, finished prompts are offered for store, head
 * first. A load job moves up to 64 chunks into KV blocks that were spoilt before, and every byte
 * that arrives is compared with what the chunk must hold.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tools/engine.h"
#include "tools/replay.h"
#include "tools/replay_kv.h"

#define STEP_US        100u  /* between two steps while something is under way */
#define IDLE_US        2000u /* the longest sleep                              */
#define JOBS           1024u /* under way at once, loads and stores together   */
#define LOAD_JOBS_KEPT 64u   /* of these only loads may take                   */
#define OFFER_TRIES    200u  /* steps in which a refused chunk is offered again */

struct job {
    bool used;
    bool is_load;
    uint32_t request; /* index in timed.request */
    uint32_t count;
    uint64_t first; /* load: the first chunk */
    uint64_t chunk[SPW_MAX_JOB_CHUNKS];
    uint32_t block[SPW_MAX_JOB_CHUNKS];
    uint64_t mask; /* store: chunks that are run */
};

struct timed_request {
    const struct spw_trace_request *traced;
    struct spw_request *request;
    uint32_t loads;  /* jobs under way */
    uint32_t stores; /* likewise       */
    bool load_failed;
    bool offers; /* prompt is computed, chunks from `next` on may be offered */
    uint64_t next;
    uint32_t tries;
    uint64_t counted_resident;
};

struct timed {
    const struct spw_replay_seat *seat;
    struct spw_replay_sums *sums;
    struct spw_engine engine;
    struct spw_replay_kv kv;
    struct timed_request *request; /* by engine index */
    uint32_t requests;             /* of this engine in the trace */
    uint32_t arrived;
    uint32_t offer_first; /* requests before it have nothing to offer any more */
    struct job job[JOBS];
    uint32_t jobs;
    uint8_t *verdicts;
};

static int64_t trace_now_ns(const struct timed *timed)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    int64_t real = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec - (int64_t)timed->seat->start_ns;
    return (int64_t)((double)real * timed->seat->options->speed);
}

static const uint64_t *ids_of(const struct timed *timed, const struct timed_request *request)
{
    return timed->seat->trace->ids + request->traced->ids_off;
}

/* ---- jobs ------------------------------------------------------------------------------------ */

static struct job *job_new(struct timed *timed, bool is_load, uint32_t request)
{
    uint32_t limit = is_load ? JOBS : JOBS - LOAD_JOBS_KEPT;
    for (uint32_t i = 0; timed->jobs < limit && i < JOBS; i++) {
        if (timed->job[i].used)
            continue;
        timed->job[i] = (struct job){.used = true, .is_load = is_load, .request = request};
        timed->jobs++;
        return &timed->job[i];
    }
    return NULL;
}

static void job_end(struct timed *timed, struct job *job)
{
    spw_replay_kv_give(&timed->kv, job->count, job->block);
    job->used = false;
    timed->jobs--;
}

static uint64_t cookie_of(const struct timed *timed, const struct job *job)
{
    return (uint64_t)(job - timed->job);
}

static void request_settle(struct timed_request *request)
{
    if (!request->offers && !request->loads && !request->stores && request->request &&
        request->next == request->traced->full_count) {
        spw_request_finish(request->request);
        request->request = NULL;
    }
}

/* ---- loads ----------------------------------------------------------------------------------- */

static void load_ended(struct timed *timed, struct job *job, int status, uint64_t failed)
{
    struct timed_request *request = &timed->request[job->request];
    const uint64_t *ids = ids_of(timed, request);
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
    if (request->load_failed)
        spw_engine_load_failed(&timed->engine, index);
    else
        spw_engine_loaded(&timed->engine, index);
    request->load_failed = false;
}

/* Begin one job of a load; returns the chunks taken, 0 when there is no room now, or -errno. */
static int load_begin(struct timed *timed, uint32_t index, const struct spw_decision *decision,
                      uint64_t from)
{
    struct timed_request *request = &timed->request[index];
    struct spw_chunk_ref refs[SPW_MAX_JOB_CHUNKS];
    int count = spw_decision_chunks(decision, from, refs, SPW_MAX_JOB_CHUNKS);
    if (count <= 0)
        return count;
    struct job *job = job_new(timed, true, index);
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

/* ---- lookups --------------------------------------------------------------------------------- */

static int open_request(struct timed *timed, struct timed_request *request)
{
    struct spw_request_config config = {.size_bytes = sizeof config,
                                        .prompt_tokens = request->traced->input_tokens};
    if (request->request)
        return 0;
    int status = spw_request_open(timed->seat->space, &config, &request->request);
    if (!status)
        status = spw_request_extend(request->request, 0, ids_of(timed, request), sizeof(uint64_t),
                                    request->traced->full_count);
    return status;
}

static int count_resident(struct timed *timed, struct timed_request *request)
{
    uint64_t count = request->traced->full_count;
    int status = spw_request_probe(request->request, 0, 0, count, timed->verdicts);
    for (uint64_t i = 0; status >= 0 && i < count; i++)
        timed->sums->resident_blocks += timed->verdicts[i] == SPW_HIT;
    return status < 0 ? status : 0;
}

/* Turn a decision into the engine's answer; loads begin here, in the step of the decision. */
static int answer(struct timed *timed, uint32_t index, const struct spw_decision *decision,
                  struct spw_engine_decision *out)
{
    struct timed_request *request = &timed->request[index];
    uint64_t chunk = timed->seat->options->chunk_tokens;
    uint64_t from = 0;
    out->recompute_tokens = (uint32_t)decision->recomputed_tokens;
    if (decision->action == SPW_ACTION_DEFER) {
        out->answer = SPW_ENGINE_DEFER;
        return 0;
    }
    if (decision->action == SPW_ACTION_LOAD) {
        int taken;
        while ((taken = load_begin(timed, index, decision, from)) > 0)
            from += (uint64_t)taken;
        if (taken < 0)
            return taken;
        if (!from) {
            out->answer = SPW_ENGINE_BUSY;
            return 0;
        }
    }
    out->answer = from ? SPW_ENGINE_LOAD : SPW_ENGINE_MISS;
    out->hit_tokens = (uint32_t)(from * chunk);
    timed->sums->hit_blocks += from;
    return count_resident(timed, request);
}

static int schedule(struct timed *timed, int64_t now_ns)
{
    uint32_t index;
    spw_engine_wake_all(&timed->engine);
    spw_engine_step(&timed->engine);
    while (spw_engine_next(&timed->engine, now_ns, &index)) {
        struct spw_decision decision = {.size_bytes = sizeof decision};
        struct spw_engine_decision decided = {.answer = SPW_ENGINE_MISS};
        int status = open_request(timed, &timed->request[index]);
        if (!status)
            status = spw_lookup(timed->request[index].request, 0, 0, &decision);
        if (status >= 0)
            status = answer(timed, index, &decision, &decided);
        if (status >= 0)
            status = spw_engine_decided(&timed->engine, index, now_ns, &decided);
        if (status < 0)
            return status;
    }
    return 0;
}

/* ---- stores ---------------------------------------------------------------------------------- */

/* The next chunks of a request that nobody has: at most a job's worth, and the index behind them.
 */
static int missing(struct timed *timed, struct timed_request *request, struct spw_chunk_ref *out,
                   uint64_t *out_next)
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
static int offer(struct timed *timed, uint32_t index)
{
    struct timed_request *request = &timed->request[index];
    struct spw_chunk_ref refs[SPW_MAX_JOB_CHUNKS];
    uint64_t next = request->next;
    struct job *job = job_new(timed, false, index);
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

static int offer_all(struct timed *timed)
{
    for (uint32_t i = timed->offer_first; i < timed->arrived; i++) {
        struct timed_request *request = &timed->request[i];
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
static int reserved(struct timed *timed, struct job *job, const struct spw_completion *answer)
{
    struct timed_request *request = &timed->request[job->request];
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
                                   ids_of(timed, request)[job->chunk[i]]);
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

static void stored(struct timed *timed, struct job *job, const struct spw_completion *end)
{
    struct timed_request *request = &timed->request[job->request];
    uint64_t well = job->mask & ~end->mask;
    timed->sums->stored_chunks += (uint32_t)__builtin_popcountll(well);
    timed->sums->skipped_chunks += (uint32_t)__builtin_popcountll(job->mask & end->mask);
    request->stores--;
    job_end(timed, job);
    request_settle(request);
}

static int begun(struct timed *timed, struct job *job, const struct spw_completion *answer)
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

static int reap(struct timed *timed)
{
    struct spw_completion end[64];
    int count, status = 0;
    while (!status && (count = spw_completions(timed->seat->client, end, 64)) != 0) {
        if (count < 0)
            return count;
        for (int i = 0; !status && i < count; i++) {
            struct job *job = end[i].cookie < JOBS ? &timed->job[end[i].cookie] : NULL;
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

/* ---- the loop -------------------------------------------------------------------------------- */

static int arrive(struct timed *timed, int64_t now_ns)
{
    while (timed->arrived < timed->requests) {
        const struct spw_trace_request *traced = timed->request[timed->arrived].traced;
        if (traced->arrival_ns > now_ns)
            break;
        int status = spw_engine_arrive(&timed->engine, timed->arrived, traced->arrival_ns,
                                       traced->input_tokens ? traced->input_tokens : 1, NULL);
        if (status)
            return status;
        timed->arrived++;
        timed->sums->requests++;
        timed->sums->blocks += traced->full_count;
        timed->sums->prompt_tokens += traced->input_tokens;
    }
    return 0;
}

static int end_prefills(struct timed *timed, int64_t now_ns)
{
    uint32_t index;
    int ended = spw_engine_prefilled(&timed->engine, now_ns, &index);
    if (ended != 1)
        return ended;
    struct timed_request *request = &timed->request[index];
    request->offers = true;
    request->next = timed->engine.requests[index].hit_tokens / timed->seat->options->chunk_tokens;
    return 0;
}

static int step(struct timed *timed)
{
    int64_t now_ns = trace_now_ns(timed);
    int status = arrive(timed, now_ns);
    if (!status)
        status = end_prefills(timed, now_ns);
    if (!status)
        status = reap(timed);
    if (!status)
        status = spw_step_begin(timed->seat->client);
    if (status < 0)
        return status;
    status = schedule(timed, now_ns);
    if (!status)
        status = offer_all(timed);
    int ended = spw_step_end(timed->seat->client);
    return status ? status : ended;
}

static void pause_until_due(const struct timed *timed)
{
    int64_t now_ns = trace_now_ns(timed);
    int64_t due_ns = spw_engine_next_end(&timed->engine);
    if (timed->arrived < timed->requests &&
        timed->request[timed->arrived].traced->arrival_ns < due_ns)
        due_ns = timed->request[timed->arrived].traced->arrival_ns;
    double real_us = due_ns == INT64_MAX
                         ? IDLE_US
                         : (double)(due_ns - now_ns) / timed->seat->options->speed / 1000;
    bool waits = timed->jobs || !spw_engine_is_idle(&timed->engine);
    double most = waits ? STEP_US : IDLE_US;
    if (real_us > most)
        real_us = most;
    if (real_us >= 1)
        usleep((useconds_t)real_us);
}

static int timed_open(struct timed *timed)
{
    const struct spw_trace *trace = timed->seat->trace;
    const struct spw_route route = spw_replay_route(timed->seat->options);
    uint64_t longest = 1;
    spw_engine_init(&timed->engine, timed->seat->options->prefill_rate);
    timed->request = calloc(trace->request_count, sizeof *timed->request);
    if (!timed->request)
        return -ENOMEM;
    for (uint64_t i = 0; i < trace->request_count; i++) {
        if (spw_route_engine(&route, i) != timed->seat->e)
            continue;
        timed->request[timed->requests++].traced = &trace->requests[i];
        if (trace->requests[i].full_count > longest)
            longest = trace->requests[i].full_count;
    }
    timed->verdicts = malloc(longest);
    if (!timed->verdicts)
        return -ENOMEM;
    return spw_replay_kv_init(&timed->kv, timed->seat->client, timed->seat->options->payload_bytes);
}

static void timed_close(struct timed *timed)
{
    for (uint32_t i = 0; i < timed->arrived; i++)
        spw_request_finish(timed->request[i].request);
    free(timed->request);
    free(timed->verdicts);
    spw_replay_kv_fini(&timed->kv);
    spw_engine_fini(&timed->engine);
    free(timed);
}

int spw_replay_timed(const struct spw_replay_seat *seat, struct spw_replay_result *out_result)
{
    struct timed *timed = calloc(1, sizeof *timed);
    if (!timed)
        return -ENOMEM;
    timed->seat = seat;
    timed->sums = &out_result->sums;
    int status = timed_open(timed);
    while (!status && (timed->arrived < timed->requests || !spw_engine_is_idle(&timed->engine))) {
        status = step(timed);
        if (!status)
            pause_until_due(timed);
    }
    out_result->sums.deferred_requests = timed->engine.deferred_requests;
    out_result->sums.recomputed_tokens = timed->engine.recomputed_tokens;
    int merged = spw_samples_merge(&out_result->waits, &timed->engine.waits);
    if (!merged)
        merged = spw_samples_merge(&out_result->ttfts, &timed->engine.ttfts);
    timed_close(timed);
    return status ? status : merged;
}
