/*
 * Registered GPU memory of clients, and the fences that their runs wait for.
 *
 * A registration lies in the sender's mailbox: it is copied out once and checked there. Mapping and
 * trying it takes time, so the command stays at the lane's head and goes on by a step a pass; others
 * are served meanwhile. A run that names a fence waits outside the queue until the fence has fired.
 *
 *   worker does                        others see if it dies right after
 *   memory mapped, not yet answered    the mapping goes with the process; the client sees a dead worker
 *   words, then answered stored        likewise: its registration is gone, and it registers anew
 *   a run waits for its fence          FILLING or claimed, as for a queued one (worker_jobs.c)
 *
 *   pairs     [KV-1] status and words before answered -> the client that registers
 */
#include "shm/alive.h"
#include "shm/crash_point.h"
#include "shm/text.h"
#include "tier/worker_taking.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FENCE_LOOK_NS 50000u

/* ---- registering ----------------------------------------------------------------------------- */

static void answer(struct spw_worker *worker, const struct spw_worker_taking *taking, int status,
                   const struct spw_error *err)
{
    struct spw_kv_words *words = &worker->pool->client[taking->c].head->kv_words[worker->config.k];
    spw_text_store(words->text, SPW_KV_TEXT_WORDS, err->text);
    spw_store_relaxed(&words->status, (uint64_t)(int64_t)status); /* behind the cookie */
    SPW_CRASH_POINT("worker.kv_words_stored");
    /* [KV-1] release: what was answered before that it was */
    spw_store_release(&words->answered, taking->head.cookie);
    spw_worker_count(worker, status == 0 ? SPW_WORKER_kv_registered : SPW_WORKER_kv_refused, 1);
}

static bool refuse(struct spw_worker *worker, const struct spw_worker_taking *taking, int status,
                   const char *words)
{
    struct spw_error err;
    spw_fail(&err, status, "%s", words);
    answer(worker, taking, status, &err);
    return true;
}

/* The counts belong to the length, and all is within the mailbox. */
static bool is_whole(const struct spw_kv_record *record, uint64_t bytes)
{
    return record->memories <= SPW_KV_MEMORIES_MAX && record->tensors <= SPW_KV_TENSORS_MAX &&
           record->fences <= SPW_KV_FENCES_MAX &&
           bytes == spw_kv_record_bytes(record->memories, record->tensors, record->fences);
}

/* Our own copy of the record; NULL: no memory, or it makes no sense: *out_status. */
static struct spw_kv_record *copy_record(struct spw_worker *worker,
                                         const struct spw_worker_taking *taking, int *out_status)
{
    uint64_t bytes = taking->head.arg;
    *out_status = -EINVAL;
    if (bytes < sizeof(struct spw_kv_record) || bytes > SPW_MAILBOX_BYTES)
        return NULL;
    struct spw_kv_record *record = malloc(bytes);
    if (!record) {
        *out_status = -ENOMEM;
        return NULL;
    }
    memcpy(record, worker->pool->client[taking->c].head->mailbox.bytes, bytes);
    if (is_whole(record, bytes))
        return record;
    free(record);
    return NULL;
}

/* Addresses are for who is this very process, which its lock says, not what it says of itself: they'd reach
 * whatever the worker's process has. */
static bool may_name_addresses(const struct spw_worker *worker, uint32_t c,
                               const struct spw_kv_record *record)
{
    const struct spw_kv_memory_record *memory = (const struct spw_kv_memory_record *)(record + 1);
    for (uint32_t m = 0; m < record->memories; m++)
        if (memory[m].kind == SPW_KV_POINTER)
            return spw_lock_is_own(worker->pool->lock_fd, SPW_LOCK_CLIENT(c));
    return true;
}

static void close_kv(struct spw_worker *worker, uint32_t c)
{
    const struct spw_copier_handle *copier = &worker->config.copier;
    struct spw_worker_client *client = &worker->client[c];
    if (client->kv_open || client->registering)
        copier->ops->kv_close(copier->copier, c);
    client->kv_open = false;
    client->kv = (struct spw_kv_shape){.fences = 0};
    free(client->registering);
    client->registering = NULL;
}

/* True: refused, and answered. */
static bool begin(struct spw_worker *worker, struct spw_worker_taking *taking)
{
    struct spw_worker_client *client = taking->client;
    int status;
    if (spw_worker_fenced(worker, taking))
        return refuse(worker, taking, -ESTALE, "this client was fenced");
    if (!worker->config.copier.ops->kv_open)
        return refuse(worker, taking, -EOPNOTSUPP,
                      "this worker copies host memory alone: it has no GPU");
    if (client->owed != 0 || client->in_copy != 0)
        return refuse(worker, taking, -EBUSY,
                      "runs of this client are unfinished: register when they have completed");
    struct spw_kv_record *record = copy_record(worker, taking, &status);
    if (!record) {
        spw_worker_count(worker, SPW_WORKER_commands_bad, status == -EINVAL);
        return refuse(worker, taking, status, "the registration makes no sense");
    }
    if (!may_name_addresses(worker, taking->c, record)) {
        free(record);
        return refuse(worker, taking, -EINVAL,
                      "an address means nothing in the worker's process; export it, or run the "
                      "worker inside the engine");
    }
    close_kv(worker, taking->c);
    client->registering = record;
    return false;
}

bool spw_worker_take_register(struct spw_worker *worker, struct spw_worker_taking *taking)
{
    const struct spw_copier_handle *copier = &worker->config.copier;
    struct spw_worker_client *client = taking->client;
    struct spw_error err = {0};
    if (!client->registering && begin(worker, taking))
        return true;
    int status =
        copier->ops->kv_open(copier->copier, taking->c, client->registering, &client->kv, &err);
    SPW_CRASH_POINT("worker.kv_stepped");
    if (status == -EAGAIN)
        return false;
    free(client->registering);
    client->registering = NULL;
    client->kv_open = status == 0;
    answer(worker, taking, status, &err);
    return true;
}

void spw_worker_kv_leave(struct spw_worker *worker, uint32_t c)
{
    close_kv(worker, c);
}

/* Do @chunk's blocks, of @count ids, lie within what the client has? */
static bool chunk_fits(const struct spw_worker *worker, const struct spw_worker_client *client,
                       const struct spw_job_chunk *chunk, const uint32_t *block, uint32_t count)
{
    const struct spw_geometry *geometry = &worker->pool->geometry;
    uint32_t blocks = client->kv_open ? client->kv.blocks[chunk->group] : geometry->kv_blocks;
    bool shaped = client->kv_open ? client->kv.block_bytes[chunk->group] == chunk->piece_bytes
                                  : chunk->piece_bytes <= geometry->kv_block_bytes;
    for (uint32_t b = 0; shaped && b < count; b++)
        shaped = block[b] < blocks;
    return shaped;
}

int spw_worker_kv_check(const struct spw_worker *worker, uint32_t c, const struct spw_job *job,
                        bool registered)
{
    const struct spw_worker_client *client = &worker->client[c];
    uint32_t each = job->blocks_per_chunk;
    if (!client->kv_open && (registered || !worker->pool->kv[c]))
        return -ENXIO;
    if (job->fence > client->kv.fences)
        return -EINVAL;
    for (uint64_t left = job->open; left != 0; left &= left - 1) {
        uint32_t i = (uint32_t)__builtin_ctzll(left);
        if (!chunk_fits(worker, client, &job->chunk[i], &job->block[i * each], each))
            return -EINVAL;
    }
    return 0;
}

/* ---- fences ---------------------------------------------------------------------------------- */

/* What was learnt in one look: a fence that several runs name is asked once, so that it has fired for
 * all of them or for none, and they are queued in the order in which they came. */
struct look {
    uint64_t asked[SPW_CLIENTS_MAX]; /* a bit a fence */
    uint64_t fired[SPW_CLIENTS_MAX];
};
_Static_assert(SPW_KV_FENCES_MAX <= 64, "a bit a fence");

static int ask(const struct spw_worker *worker, struct look *look, const struct spw_job *job)
{
    const struct spw_copier_handle *copier = &worker->config.copier;
    uint32_t c = job->runner.client, fence = job->fence - 1;
    uint64_t bit = 1ull << fence;
    if (look->asked[c] & bit)
        return (look->fired[c] & bit) != 0;
    int status = copier->ops->fence_fired(copier->copier, c, fence);
    if (status < 0)
        return status;
    look->asked[c] |= bit;
    look->fired[c] |= status != 0 ? bit : 0;
    return status != 0;
}

/* True: it waits no longer. */
static bool look_at(struct spw_worker *worker, struct look *look, struct spw_job *job)
{
    int status = ask(worker, look, job);
    if (status > 0) {
        spw_job_list_remove(&worker->fenced, job);
        spw_job_move(job, SPW_JOB_QUEUED);
        spw_worker_queue_job(worker, job);
    } else if (status < 0) {
        spw_worker_fail_job(worker, job, status);
    } else if (job->deadline_ns <= worker->now_ns) {
        spw_worker_count(worker, SPW_WORKER_fences_late, 1);
        spw_worker_fail_job(worker, job, -ETIMEDOUT);
    } else {
        spw_worker_count(worker, SPW_WORKER_fences_waited, !job->fence_waited);
        job->fence_waited = true;
        return false;
    }
    return true;
}

void spw_worker_fence_wait(struct spw_worker *worker, struct spw_job *job)
{
    uint64_t limit = worker->config.event_limit_ns;
    job->deadline_ns = limit != 0 ? worker->now_ns + limit : UINT64_MAX;
    job->fence_waited = false;
    spw_job_list_append(&worker->fenced, job);
}

uint32_t spw_worker_look_at_fences(struct spw_worker *worker)
{
    uint32_t moved = 0;
    struct spw_job *after;
    if (!worker->fenced.first)
        return 0;
    struct look look = {.asked = {0}};
    for (struct spw_job *job = worker->fenced.first; job; job = after) {
        after = job->after;
        moved += look_at(worker, &look, job);
    }
    if (worker->fenced.first && worker->now_ns + FENCE_LOOK_NS < worker->retry_ns)
        worker->retry_ns = worker->now_ns + FENCE_LOOK_NS;
    return moved;
}
