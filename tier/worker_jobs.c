/*
 * Jobs of a worker from the run to the completion: queue, copier, states of their slots.
 *
 *   worker does                        others see if it dies right after
 *   reserve answered                   FILLING, no run will be taken: the successor retires it
 *   copy into a slot runs              FILLING: retired; the client ends its job by -EOWNERDEAD
 *   READY stored, news not yet out     READY in the table: the successor's incarnation resyncs all
 *   news out, completion not sent      HIT for everybody; the job's sender gets -EOWNERDEAD
 *   copy out of a slot runs            copying bit stays until the successor clears it
 */
#include "shm/crash_point.h"
#include "tier/worker_impl.h"

#define COPIES_A_PASS 16u
#define ENDS_A_POLL   8

static void done(struct spw_worker *worker, struct spw_job *job)
{
    if (job->state == SPW_JOB_AWAIT_FENCE)
        spw_job_list_remove(&worker->fenced, job);
    if (job->state == SPW_JOB_AWAIT_RUN)
        spw_jobs_await_over(&worker->jobs, job, SPW_JOB_DONE);
    else
        spw_job_move(job, SPW_JOB_DONE);
    spw_job_list_append(&worker->done, job);
}

void spw_worker_run_job(struct spw_worker *worker, struct spw_job *job)
{
    if (job->fence != 0) {
        spw_jobs_await_over(&worker->jobs, job, SPW_JOB_AWAIT_FENCE);
        spw_worker_fence_wait(worker, job);
        return;
    }
    spw_jobs_await_over(&worker->jobs, job, SPW_JOB_QUEUED);
    spw_worker_queue_job(worker, job);
}

void spw_worker_queue_job(struct spw_worker *worker, struct spw_job *job)
{
    for (uint64_t left = job->open; left != 0; left &= left - 1) {
        uint32_t i = (uint32_t)__builtin_ctzll(left);
        if (job->kind == SPW_COPY_STORE)
            spw_worker_stream_push(worker, job, i);
        else
            spw_queue_push(&worker->queue, SPW_COPY_LOAD, &job->chunk[i].item, worker->now_ns);
        job->queued |= 1ull << i;
    }
}

/* ---- chunks that end without a copy --------------------------------------------------------- */

static void count_unrun(struct spw_worker *worker, enum spw_copy_kind kind, enum spw_worker_why why)
{
    static const enum spw_worker_counter counter[2][SPW_WHY_COUNT] = {
        [SPW_COPY_STORE] = {SPW_WORKER_stores_cancelled, SPW_WORKER_stores_expired,
                            SPW_WORKER_stores_cancelled, SPW_WORKER_stores_failed},
        [SPW_COPY_LOAD] = {SPW_WORKER_loads_cancelled, SPW_WORKER_loads_expired,
                           SPW_WORKER_loads_cancelled, SPW_WORKER_loads_failed},
    };
    spw_worker_count(worker, counter[kind][why], 1);
}

static void end_chunk_unrun(struct spw_worker *worker, struct spw_job *job, uint32_t i,
                            enum spw_worker_why why, int status)
{
    struct spw_job_chunk *chunk = &job->chunk[i];
    bool queued = job->queued >> i & 1;
    if (queued)
        spw_queue_take(&worker->queue, &chunk->item);
    if (job->kind == SPW_COPY_STORE) {
        spw_shard_retire(worker->shard, chunk->slot);
        spw_queue_give_back(&worker->queue);
        if (queued)
            spw_worker_stream_drop(worker, &chunk->item);
    } else {
        spw_shard_unclaim(worker->shard, chunk->shard, chunk->slot);
    }
    count_unrun(worker, job->kind, why);
    spw_job_chunk_end(job, i, status);
}

static void end_job(struct spw_worker *worker, struct spw_job *job, enum spw_worker_why why,
                    int status)
{
    if (job->state == SPW_JOB_DONE)
        return;
    for (uint64_t left = job->open & ~job->copying; left != 0; left &= left - 1)
        end_chunk_unrun(worker, job, (uint32_t)__builtin_ctzll(left), why, status);
    if (job->open == 0)
        done(worker, job);
}

void spw_worker_end_job(struct spw_worker *worker, struct spw_job *job, enum spw_worker_why why)
{
    end_job(worker, job, why, why == SPW_WHY_RESET ? -ESTALE : -ECANCELED);
}

/* That the GPU is lost is told once, by the end of this process; to a job it is an error of its copy. */
static int told(int status)
{
    return status == -ENODEV ? -EIO : status;
}

void spw_worker_fail_job(struct spw_worker *worker, struct spw_job *job, int status)
{
    end_job(worker, job, SPW_WHY_FAILED, told(status));
}

void spw_worker_reset_jobs(struct spw_worker *worker, uint32_t space)
{
    for (uint32_t j = 0; j < worker->jobs.used; j++) {
        struct spw_job *job = &worker->jobs.job[j];
        if (job->state < SPW_JOB_AWAIT_RUN || job->state == SPW_JOB_DONE ||
            job->kind != SPW_COPY_STORE || !spw_space_meant(space, job->space))
            continue;
        for (uint64_t left = job->copying & ~job->voided; left != 0; left &= left - 1) {
            uint32_t i = (uint32_t)__builtin_ctzll(left);
            spw_shard_retire(worker->shard, job->chunk[i].slot);
            job->voided |= 1ull << i;
        }
        spw_worker_end_job(worker, job, SPW_WHY_RESET);
    }
}

void spw_worker_end_jobs_of(struct spw_worker *worker, uint32_t c)
{
    for (uint32_t j = 0; j < worker->jobs.used; j++) {
        struct spw_job *job = &worker->jobs.job[j];
        if (job->state < SPW_JOB_AWAIT_RUN)
            continue;
        bool waits = job->state == SPW_JOB_AWAIT_RUN && job->opener.client == c;
        if (waits || job->runner.client == c)
            spw_worker_end_job(worker, job, SPW_WHY_CANCELLED);
    }
}

uint32_t spw_worker_expire_jobs(struct spw_worker *worker)
{
    uint32_t ended = 0;
    struct spw_job *job;
    while ((job = spw_jobs_first_awaiting(&worker->jobs)) && job->deadline_ns <= worker->now_ns) {
        spw_worker_end_job(worker, job, SPW_WHY_EXPIRED);
        ended++;
    }
    return ended;
}

void spw_worker_end_waiting(struct spw_worker *worker)
{
    struct spw_job *job;
    struct spw_queue_item *item;
    while ((job = spw_jobs_first_awaiting(&worker->jobs)))
        spw_worker_end_job(worker, job, SPW_WHY_CANCELLED);
    while ((job = worker->fenced.first))
        spw_worker_end_job(worker, job, SPW_WHY_CANCELLED);
    while ((item = spw_queue_next(&worker->queue, SPW_COPY_STORE, worker->now_ns)))
        spw_worker_end_job(worker, item->owner, SPW_WHY_CANCELLED);
}

void spw_worker_fail_waiting(struct spw_worker *worker, int status)
{
    for (uint32_t j = 0; j < worker->jobs.used; j++)
        if (worker->jobs.job[j].state > SPW_JOB_AWAIT_RUN)
            spw_worker_fail_job(worker, &worker->jobs.job[j], status);
}

/* ---- copies --------------------------------------------------------------------------------- */

static void fill_copy(struct spw_worker *worker, const struct spw_job *job,
                      struct spw_job_chunk *chunk, struct spw_copy *out_copy)
{
    const struct spw_pool *pool = worker->pool;
    *out_copy = (struct spw_copy){
        .kind = job->kind,
        .pieces = job->blocks_per_chunk,
        .piece_bytes = chunk->piece_bytes,
        .blocks = &job->block[chunk->item.chunk * job->blocks_per_chunk],
        .client = job->runner.client,
        .group = chunk->group,
        .kv = worker->client[job->runner.client].kv_open ? NULL : pool->kv[job->runner.client],
        .kv_block_bytes = pool->geometry.kv_block_bytes,
        .slot = pool->data[chunk->shard] +
                spw_slot_off(&pool->geometry, chunk->slot, chunk->chunk_bytes),
        .nominal_bytes = chunk->item.nominal_bytes,
        /* the stream could have run since the oldest came, whichever goes now */
        .offered_ns = worker->queue.first[job->kind]->queued_ns,
        .tag = &chunk->item,
    };
}

static void store_ended(struct spw_worker *worker, struct spw_job *job, uint32_t i, int *status)
{
    struct spw_job_chunk *chunk = &job->chunk[i];
    spw_shard_copy_end(worker->shard, chunk->slot);
    spw_worker_stream_end(worker, &chunk->item, *status);
    spw_queue_give_back(&worker->queue);
    if (job->voided >> i & 1) {
        *status = -ESTALE;
        spw_worker_count(worker, SPW_WORKER_stores_cancelled, 1);
    } else if (*status < 0) {
        spw_shard_retire(worker->shard, chunk->slot);
        spw_worker_count(worker, SPW_WORKER_stores_failed, 1);
    } else {
        SPW_CRASH_POINT("worker.store_copied");
        spw_shard_ready(worker->shard, chunk->slot);
        spw_worker_count(worker, SPW_WORKER_chunks_stored, 1);
        spw_worker_count(worker, SPW_WORKER_bytes_stored, chunk->chunk_bytes);
        spw_worker_count(worker, SPW_WORKER_awaited_stored, chunk->item.awaited);
        if (worker->cold)
            spw_worker_down_ready(worker, chunk->slot);
        SPW_CRASH_POINT("worker.store_ready");
    }
}

static void load_ended(struct spw_worker *worker, struct spw_job *job, uint32_t i, int status)
{
    struct spw_job_chunk *chunk = &job->chunk[i];
    SPW_CRASH_POINT("worker.load_copied");
    spw_shard_unclaim(worker->shard, chunk->shard, chunk->slot);
    if (status < 0) {
        spw_worker_count(worker, SPW_WORKER_loads_failed, 1);
        return;
    }
    if (worker->cold && chunk->shard == worker->config.k)
        spw_worker_up_loaded(worker, chunk->slot);
    spw_worker_count(worker, SPW_WORKER_chunks_loaded, 1);
    spw_worker_count(worker, SPW_WORKER_bytes_loaded, chunk->chunk_bytes);
}

static void copy_ended(struct spw_worker *worker, struct spw_queue_item *item, int status)
{
    struct spw_job *job = item->owner;
    if (status == 0 && !worker->client[job->runner.client].kv_open &&
        spw_region_lost(&worker->pool->region_kv[job->runner.client]))
        status = -EBADMSG; /* it may have copied zero pages, from then on or all along */
    worker->client[job->runner.client].in_copy--;
    if (!spw_worker_serves(worker, job->runner) || job->voided >> item->chunk & 1)
        spw_worker_count(worker, SPW_WORKER_late_completions, 1);
    if (job->kind == SPW_COPY_STORE)
        store_ended(worker, job, item->chunk, &status);
    else
        load_ended(worker, job, item->chunk, status);
    if (spw_job_chunk_end(job, item->chunk, status))
        done(worker, job);
}

/* Hand the next chunk of a stream to the copier: 1 moved, 0 nothing waits or the stream is full. */
static uint32_t submit_next(struct spw_worker *worker, enum spw_copy_kind kind)
{
    if (kind == SPW_COPY_STORE)
        spw_worker_stream_order(worker);
    struct spw_queue_item *item = spw_queue_next(&worker->queue, kind, worker->now_ns);
    if (!item)
        return 0;
    struct spw_job *job = item->owner;
    struct spw_job_chunk *chunk = &job->chunk[item->chunk];
    struct spw_copy copy;
    fill_copy(worker, job, chunk, &copy);
    if (kind == SPW_COPY_STORE)
        spw_shard_copy_begin(worker->shard, chunk->slot);
    int status = told(worker->config.copier.ops->submit(worker->config.copier.copier, &copy));
    if (status == -EAGAIN) {
        if (kind == SPW_COPY_STORE)
            spw_shard_copy_end(worker->shard, chunk->slot);
        return 0;
    }
    if (kind == SPW_COPY_STORE)
        spw_worker_stream_take(worker, item);
    else
        spw_queue_take(&worker->queue, item);
    if (job->state == SPW_JOB_QUEUED)
        spw_job_move(job, SPW_JOB_COPYING);
    job->queued &= ~(1ull << item->chunk);
    job->copying |= 1ull << item->chunk;
    worker->client[job->runner.client].in_copy++;
    SPW_CRASH_POINT("worker.copy_submitted");
    if (status < 0)
        copy_ended(worker, item, status);
    return 1;
}

static uint32_t poll_copies(struct spw_worker *worker)
{
    struct spw_copy_end end[ENDS_A_POLL];
    const struct spw_copier_handle *copier = &worker->config.copier;
    int ended = copier->ops->poll(copier->copier, worker->now_ns, end, ENDS_A_POLL);
    for (int i = 0; i < ended; i++)
        copy_ended(worker, end[i].tag, end[i].status);
    return ended > 0 ? (uint32_t)ended : 0;
}

uint32_t spw_worker_copy(struct spw_worker *worker, bool *out_more)
{
    uint32_t total = 0, moved;
    do {
        moved = 0;
        while (submit_next(worker, SPW_COPY_LOAD))
            moved++;
        while (submit_next(worker, SPW_COPY_STORE))
            moved++;
        moved += poll_copies(worker);
        total += moved;
    } while (moved != 0 && total < 2 * COPIES_A_PASS);
    *out_more = moved != 0;
    return total;
}

bool spw_worker_copies_left(const struct spw_worker *worker)
{
    if (worker->queue.count[SPW_COPY_LOAD] != 0 || worker->queue.count[SPW_COPY_STORE] != 0)
        return true;
    for (uint32_t c = 0; c < worker->clients; c++)
        if (worker->client[c].in_copy != 0)
            return true;
    return false;
}

/* ---- completions ---------------------------------------------------------------------------- */

static void complete(struct spw_worker *worker, const struct spw_job *job)
{
    struct spw_worker_client *client = &worker->client[job->runner.client];
    struct spw_done answer = {
        .kind = job->kind == SPW_COPY_STORE ? SPW_DONE_STORE : SPW_DONE_LOAD,
        .count = (uint16_t)job->count,
        .generation = (uint32_t)client->generation,
        .incarnation = (uint32_t)spw_shard_incarnation(worker->shard),
        .status = job->status,
        .cookie = job->cookie,
        .ticket = job->ticket,
        .mask = job->failed,
    };
    client->owed--;
    spw_lane_write(&client->completions, 0, &answer, sizeof(answer));
    spw_lane_send(&client->completions, 1);
    SPW_CRASH_POINT("worker.completion_sent");
}

uint32_t spw_worker_finish_jobs(struct spw_worker *worker)
{
    uint32_t finished = 0;
    struct spw_job *job;
    if (worker->done.first) {
        spw_shard_flush(worker->shard);
        SPW_CRASH_POINT("worker.job_news_out");
    }
    while ((job = worker->done.first)) {
        spw_job_list_remove(&worker->done, job);
        if (spw_worker_serves(worker, job->runner))
            complete(worker, job);
        if (spw_worker_serves(worker, job->opener))
            worker->client[job->opener.client].open_jobs--;
        spw_jobs_close(&worker->jobs, job);
        finished++;
    }
    return finished;
}
