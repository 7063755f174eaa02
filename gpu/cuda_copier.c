/* See cuda_copier.h. */
#include "gpu/cuda_copier.h"

#include <stdlib.h>
#include <string.h>

#include "gpu/kv.h"
#include "tier/host_copier.h"

#define IN_FLIGHT_MAX 64u
#define POLL_NS       20000u /* between two looks at what is in flight */
#define STREAMS       2

struct flight {
    void *tag;
    CUevent event;
    uint32_t *blocks_seen; /* SPW_CHUNK_BLOCKS_MAX of them, pinned */
    int status;            /* of its end, whatever its event says  */
    bool pinned;           /* its slot was said to be              */
};

struct stream {
    CUstream stream;
    struct flight flight[IN_FLIGHT_MAX]; /* limit of them, oldest first from head */
    uint32_t limit, head, count;
};

struct spw_copier {
    struct spw_cuda_copier_config config;
    struct spw_mover mover;
    struct stream stream[STREAMS];
    CUstream trials;
    uint32_t *ids; /* of all flights, pinned where there is a kernel */
    bool ids_registered;
    bool lost;
    struct spw_kv kv[SPW_CLIENTS_MAX];
};

/* ---- errors ---------------------------------------------------------------------------------- */

/* What @result means for a chunk; a sticky one is the end of all. */
static int take_error(struct spw_copier *copier, CUresult result)
{
    if (result == CUDA_SUCCESS)
        return 0;
    if (spw_driver_is_sticky(result))
        copier->lost = true;
    return copier->lost ? -EIO : spw_driver_errno(result);
}

static int cuda_health(struct spw_copier *copier)
{
    const struct spw_cuda_copier_config *config = &copier->config;
    if (config->memory_health && config->memory_health(config->ctx) == -ENODEV)
        copier->lost = true;
    return copier->lost ? -ENODEV : 0;
}

/* ---- copies ---------------------------------------------------------------------------------- */

static struct flight *flight_at(struct stream *stream, uint32_t i)
{
    return &stream->flight[(stream->head + i) % stream->limit];
}

static CUresult move_registered(struct spw_copier *copier, const struct spw_copy *copy,
                                struct flight *flight, CUstream stream)
{
    const struct spw_cuda_copier_config *config = &copier->config;
    const struct spw_kv_group *group = &copier->kv[copy->client].group[copy->group];
    uint64_t bytes = (uint64_t)copy->pieces * copy->piece_bytes;
    struct spw_move move = {
        .kind = copy->kind,
        .plane = group->plane,
        .planes = group->planes,
        .planes_there = group->planes_there,
        .vector_bytes = group->vector_bytes,
        .blocks = copy->blocks,
        .blocks_seen = flight->blocks_seen,
        .count = copy->pieces,
        .slot = copy->slot,
        .one_by_one = group->one_by_one,
        .pinned = !config->is_pinned || config->is_pinned(config->ctx, copy->slot, bytes),
    };
    flight->pinned = move.pinned;
    if (!move.pinned && config->unpinned)
        spw_add_own(config->unpinned, 1);
    return spw_mover_queue(&copier->mover, &move, group->planes_there != 0, stream);
}

static int cuda_submit(struct spw_copier *copier, const struct spw_copy *copy)
{
    struct stream *stream = &copier->stream[copy->kind];
    if (copier->lost)
        return -ENODEV;
    if (stream->count == stream->limit)
        return -EAGAIN;
    struct flight *flight = flight_at(stream, stream->count);
    CUresult result = CUDA_SUCCESS;
    flight->pinned = false;
    if (copy->kv) /* in host memory, of tools: this thread moves it, now */
        spw_host_copy_pieces(copy);
    else
        result = move_registered(copier, copy, flight, stream->stream);
    int status = take_error(copier, result);
    /* what was queued before a refusal ends before the event, too */
    result = copier->mover.gpu->driver.EventRecord(flight->event, stream->stream);
    int recorded = take_error(copier, result);
    if (recorded < 0 && !copier->lost) {
        result = copier->mover.gpu->driver.StreamSynchronize(stream->stream);
        take_error(copier, result);
        status = status < 0 ? status : recorded;
    }
    flight->tag = copy->tag;
    flight->status = status;
    stream->count++;
    return 0;
}

/* 1 it has ended, 0 not yet. */
static int has_ended(struct spw_copier *copier, struct flight *flight)
{
    if (copier->lost)
        return 1;
    CUresult result = copier->mover.gpu->driver.EventQuery(flight->event);
    if (result == CUDA_ERROR_NOT_READY)
        return 0;
    int status = take_error(copier, result);
    if (flight->status == 0)
        flight->status = status;
    return 1;
}

static int cuda_poll(struct spw_copier *copier, uint64_t now_ns, struct spw_copy_end *out, int max)
{
    static const enum spw_copy_kind order[STREAMS] = {SPW_COPY_LOAD, SPW_COPY_STORE};
    int ended = 0;
    for (int i = 0; i < STREAMS; i++) {
        struct stream *stream = &copier->stream[order[i]];
        while (ended < max && stream->count != 0) {
            struct flight *flight = flight_at(stream, 0);
            if (!has_ended(copier, flight))
                break;
            if (copier->lost && flight->status == 0)
                flight->status = -EIO;
            if (flight->pinned && copier->config.pinned_ended)
                copier->config.pinned_ended(copier->config.ctx);
            out[ended++] = (struct spw_copy_end){.tag = flight->tag, .status = flight->status};
            stream->head = (stream->head + 1) % stream->limit;
            stream->count--;
        }
    }
    return ended;
}

static uint64_t cuda_due_ns(struct spw_copier *copier, uint64_t now_ns)
{
    if (copier->stream[SPW_COPY_LOAD].count == 0 && copier->stream[SPW_COPY_STORE].count == 0)
        return UINT64_MAX;
    return copier->lost ? 0 : now_ns + POLL_NS;
}

/* ---- registrations --------------------------------------------------------------------------- */

static void count_handles(struct spw_copier *copier)
{
    uint64_t handles = 0;
    for (uint32_t c = 0; c < SPW_CLIENTS_MAX; c++)
        handles += spw_kv_handles(&copier->kv[c]);
    if (copier->config.record)
        spw_store_relaxed(&copier->config.record->handles_open, handles); /* for display */
}

static void cuda_kv_close(struct spw_copier *copier, uint32_t client)
{
    spw_kv_close(&copier->kv[client], &copier->mover);
    count_handles(copier);
}

/* Which ways failed the trials of what was just registered, for display. */
static void tell_failed(struct spw_copier *copier, const struct spw_kv *kv)
{
    uint32_t failed = 0;
    uint64_t code = 0;
    for (uint32_t g = 0; g < SPW_GROUP_COUNT_MAX; g++) {
        code = failed == 0 ? kv->group[g].code : code;
        failed |= kv->group[g].failed;
    }
    if (failed == 0 || !copier->config.record)
        return;
    spw_atomic64 *flags = &copier->config.record->flags;
    uint64_t before = spw_load_relaxed(flags);
    if (before >> SPW_GPU_CODE_SHIFT == 0)
        before |= code << SPW_GPU_CODE_SHIFT;
    spw_store_relaxed(flags, before | failed);
}

static int cuda_kv_open(struct spw_copier *copier, uint32_t client,
                        const struct spw_kv_record *record, struct spw_kv_shape *out_shape,
                        struct spw_error *err)
{
    struct spw_kv *kv = &copier->kv[client];
    if (copier->lost) {
        cuda_kv_close(copier, client);
        return spw_fail(err, -ENODEV, "the worker's GPU is lost");
    }
    if (kv->phase == SPW_KV_OPEN)
        spw_kv_close(kv, &copier->mover);
    int status = spw_kv_step(kv, &copier->mover, record, copier->trials, err);
    if (status == -ENODEV && kv->phase == SPW_KV_NONE &&
        copier->mover.gpu->driver.StreamQuery(copier->trials) != CUDA_SUCCESS)
        copier->lost = true;
    count_handles(copier);
    if (status == 0) {
        *out_shape = kv->shape;
        tell_failed(copier, kv);
    }
    return status;
}

static int cuda_fence_fired(struct spw_copier *copier, uint32_t client, uint32_t fence)
{
    const struct spw_kv *kv = &copier->kv[client];
    if (copier->lost)
        return -ENODEV;
    if (kv->phase != SPW_KV_OPEN || fence >= kv->fences)
        return -EINVAL;
    CUresult result = copier->mover.gpu->driver.EventQuery(kv->fence[fence]);
    if (result == CUDA_ERROR_NOT_READY)
        return 0;
    return result == CUDA_SUCCESS ? 1 : take_error(copier, result);
}

/* ---- open and close -------------------------------------------------------------------------- */

static void cuda_close(struct spw_copier *copier)
{
    if (!copier)
        return;
    const struct spw_driver *driver = &copier->mover.gpu->driver;
    for (int i = 0; i < STREAMS; i++)
        if (copier->stream[i].stream)
            driver->StreamSynchronize(copier->stream[i].stream);
    for (uint32_t c = 0; c < SPW_CLIENTS_MAX; c++)
        cuda_kv_close(copier, c);
    for (int i = 0; i < STREAMS; i++) {
        for (uint32_t f = 0; f < IN_FLIGHT_MAX; f++)
            if (copier->stream[i].flight[f].event)
                driver->EventDestroy(copier->stream[i].flight[f].event);
        if (copier->stream[i].stream)
            driver->StreamDestroy(copier->stream[i].stream);
    }
    if (copier->trials)
        driver->StreamDestroy(copier->trials);
    if (copier->ids_registered)
        driver->MemHostUnregister(copier->ids);
    free(copier->ids);
    spw_mover_fini(&copier->mover);
    free(copier);
}

static CUresult open_stream(struct spw_copier *copier, enum spw_copy_kind kind, int priority)
{
    const struct spw_driver *driver = &copier->mover.gpu->driver;
    struct stream *stream = &copier->stream[kind];
    CUresult result =
        driver->StreamCreateWithPriority(&stream->stream, CU_STREAM_NON_BLOCKING, priority);
    for (uint32_t f = 0; f < stream->limit && result == CUDA_SUCCESS; f++) {
        stream->flight[f].blocks_seen =
            copier->ids + (kind * IN_FLIGHT_MAX + f) * SPW_CHUNK_BLOCKS_MAX;
        result = driver->EventCreate(&stream->flight[f].event, CU_EVENT_DISABLE_TIMING);
    }
    return result;
}

/* Block ids for the kernel. Where they can't be pinned there is no kernel. A few pages of this process:
 * no turn (gpu/pin.h). */
static int open_ids(struct spw_copier *copier)
{
    size_t bytes =
        spw_align_up(STREAMS * IN_FLIGHT_MAX * SPW_CHUNK_BLOCKS_MAX * sizeof *copier->ids, 4096);
    copier->ids = aligned_alloc(4096, bytes);
    if (!copier->ids)
        return -ENOMEM;
    if (copier->mover.kernel_below_bytes != 0 &&
        copier->mover.gpu->driver.MemHostRegister(copier->ids, bytes, 0) == CUDA_SUCCESS)
        copier->ids_registered = true;
    else
        copier->mover.kernel_below_bytes = 0;
    return 0;
}

static CUresult open_streams(struct spw_copier *copier)
{
    const struct spw_driver *driver = &copier->mover.gpu->driver;
    int least, greatest;
    CUresult result = driver->CtxGetStreamPriorityRange(&least, &greatest);
    if (result == CUDA_SUCCESS)
        result = open_stream(copier, SPW_COPY_LOAD, greatest);
    if (result == CUDA_SUCCESS)
        result = open_stream(copier, SPW_COPY_STORE, least);
    if (result == CUDA_SUCCESS)
        result =
            driver->StreamCreateWithPriority(&copier->trials, CU_STREAM_NON_BLOCKING, greatest);
    return result;
}

static void tell(const struct spw_copier *copier)
{
    struct spw_gpu_record *record = copier->config.record;
    if (!record)
        return;
    bool batch = spw_mover_has_batch(&copier->mover);
    /* relaxed: for display */
    spw_store_relaxed(&record->kernel_below_bytes, copier->mover.kernel_below_bytes);
    spw_store_relaxed(&record->flags, (batch ? SPW_GPU_BATCH : 0) |
                                          (copier->mover.kernel_below_bytes ? SPW_GPU_KERNEL : 0));
    spw_store_relaxed(&record->handles_open, 0);
}

static const struct spw_copier_ops cuda_ops = {
    .submit = cuda_submit,
    .poll = cuda_poll,
    .due_ns = cuda_due_ns,
    .health = cuda_health,
    .kv_open = cuda_kv_open,
    .kv_close = cuda_kv_close,
    .fence_fired = cuda_fence_fired,
    .close = cuda_close,
};

int spw_cuda_copier_open(const struct spw_cuda_copier_config *config,
                         struct spw_copier_handle *out_handle, struct spw_error *err)
{
    for (int kind = 0; kind < STREAMS; kind++)
        if (config->in_flight[kind] == 0 || config->in_flight[kind] > IN_FLIGHT_MAX)
            return spw_fail(err, -EINVAL, "%u chunks in flight; allowed are 1 to %u",
                            config->in_flight[kind], IN_FLIGHT_MAX);
    struct spw_copier *copier = calloc(1, sizeof *copier);
    if (!copier)
        return spw_fail(err, -ENOMEM, "no memory for a CUDA copier");
    copier->config = *config;
    copier->stream[SPW_COPY_STORE].limit = config->in_flight[SPW_COPY_STORE];
    copier->stream[SPW_COPY_LOAD].limit = config->in_flight[SPW_COPY_LOAD];
    CUresult result = CUDA_SUCCESS;
    int status = spw_mover_init(&copier->mover, config->gpu, config->kernel_below_bytes);
    copier->mover.slot_bytes = config->slot_bytes;
    if (status == 0)
        status = open_ids(copier);
    if (status < 0)
        spw_fail(err, status, "no memory for a CUDA copier");
    else if ((result = open_streams(copier)) != CUDA_SUCCESS)
        status = spw_fail(err, spw_driver_errno(result), "streams and events: %s",
                          spw_driver_word(&config->gpu->driver, result));
    if (status < 0) {
        cuda_close(copier);
        return status;
    }
    tell(copier);
    *out_handle = (struct spw_copier_handle){.ops = &cuda_ops, .copier = copier};
    return 0;
}
