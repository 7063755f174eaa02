/* Streams: a thread each, which does what was put on it in order, at the rate that is set. */
#include "tests/fake_cuda/fake.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define QUEUE_MAX 65536 /* then the call waits, as a full channel makes it */

struct CUstream_st {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t work, room;
    struct fake_op *first, *last;
    unsigned long queued; /* and the one that runs */
    bool stop;
    uint64_t paced_ns; /* when what it has copied was done by the rate */
};

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void pace(CUstream stream, size_t bytes)
{
    uint64_t rate = atomic_load(&fake.rate_bytes), now = now_ns();
    if (rate == 0)
        return;
    if (stream->paced_ns < now)
        stream->paced_ns = now;
    stream->paced_ns += (uint64_t)((double)bytes * 1e9 / (double)rate);
    while ((now = now_ns()) < stream->paced_ns && !stream->stop) {
        uint64_t left = stream->paced_ns - now;
        struct timespec time = {0, (long)(left < 5000000 ? left : 5000000)};
        nanosleep(&time, NULL);
    }
}

static void copy(CUstream stream, const struct fake_op *op)
{
    pace(stream, op->bytes);
    if (fake_poison() != CUDA_SUCCESS)
        return; /* nothing moves any more */
    CUresult code = fake_fault("copy");
    if (code != CUDA_SUCCESS) { /* what goes wrong later goes wrong for good */
        fake_set_poison(code);
        return;
    }
    memcpy(op->to, op->from, op->bytes); /* as it is now, not when it was asked for */
    atomic_fetch_add(&fake.copies, 1);
    atomic_fetch_add(&fake.copied_bytes, op->bytes);
}

static void carry_out(CUstream stream, const struct fake_op *op)
{
    switch (op->kind) {
    case FAKE_COPY:
        copy(stream, op);
        break;
    case FAKE_SET:
        memset(op->to, op->value, op->bytes);
        break;
    case FAKE_KERNEL:
        if (fake_poison() == CUDA_SUCCESS && fake_run_kernel(op) != CUDA_SUCCESS)
            fake_set_poison(CUDA_ERROR_ILLEGAL_ADDRESS);
        break;
    case FAKE_RECORD:
        fake_event_done(op->event, op->number);
        break;
    case FAKE_WAIT:
        while (!fake_event_is_done(op->event, op->number) && !stream->stop)
            usleep(20);
        break;
    }
}

static void *run(void *context)
{
    CUstream stream = context;
    pthread_mutex_lock(&stream->lock);
    for (;;) {
        while (!stream->first && !stream->stop)
            pthread_cond_wait(&stream->work, &stream->lock);
        struct fake_op *op = stream->first;
        if (!op)
            break;
        stream->first = op->next;
        if (!stream->first)
            stream->last = NULL;
        pthread_mutex_unlock(&stream->lock);
        carry_out(stream, op);
        free(op);
        pthread_mutex_lock(&stream->lock);
        stream->queued--;
        pthread_cond_broadcast(&stream->room);
    }
    pthread_mutex_unlock(&stream->lock);
    return NULL;
}

FAKE(StreamCreateWithPriority)(CUstream *out, unsigned flags, int priority)
{
    CUresult code = fake_enter("StreamCreateWithPriority", true);
    struct CUstream_st *stream = code == CUDA_SUCCESS ? calloc(1, sizeof *stream) : NULL;
    if (!stream)
        return code != CUDA_SUCCESS ? code : CUDA_ERROR_OUT_OF_MEMORY;
    pthread_mutex_init(&stream->lock, NULL);
    pthread_cond_init(&stream->work, NULL);
    pthread_cond_init(&stream->room, NULL);
    if (pthread_create(&stream->thread, NULL, run, stream) != 0) {
        free(stream);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *out = stream;
    return CUDA_SUCCESS;
}

FAKE(StreamDestroy)(CUstream stream)
{
    CUresult code = fake_enter("StreamDestroy", true);
    pthread_mutex_lock(&stream->lock);
    stream->stop = true;
    pthread_cond_broadcast(&stream->work);
    pthread_mutex_unlock(&stream->lock);
    pthread_join(stream->thread, NULL);
    pthread_mutex_destroy(&stream->lock);
    pthread_cond_destroy(&stream->work);
    pthread_cond_destroy(&stream->room);
    free(stream);
    return code;
}

CUresult fake_push(CUstream stream, const struct fake_op *op)
{
    struct fake_op *own = malloc(sizeof *own);
    if (!stream || !own) {
        free(own);
        return CUDA_ERROR_INVALID_HANDLE;
    }
    *own = *op;
    own->next = NULL;
    pthread_mutex_lock(&stream->lock);
    while (stream->queued >= QUEUE_MAX)
        pthread_cond_wait(&stream->room, &stream->lock);
    if (stream->last)
        stream->last->next = own;
    else
        stream->first = own;
    stream->last = own;
    stream->queued++;
    pthread_cond_signal(&stream->work);
    pthread_mutex_unlock(&stream->lock);
    return CUDA_SUCCESS;
}

FAKE(StreamQuery)(CUstream stream)
{
    CUresult code = fake_enter("StreamQuery", true);
    pthread_mutex_lock(&stream->lock);
    if (code == CUDA_SUCCESS)
        code = stream->queued != 0 ? CUDA_ERROR_NOT_READY : fake_poison();
    pthread_mutex_unlock(&stream->lock);
    return code;
}

FAKE(StreamSynchronize)(CUstream stream)
{
    CUresult code = fake_enter("StreamSynchronize", true);
    pthread_mutex_lock(&stream->lock);
    while (stream->queued != 0)
        pthread_cond_wait(&stream->room, &stream->lock);
    if (code == CUDA_SUCCESS)
        code = fake_poison();
    pthread_mutex_unlock(&stream->lock);
    return code;
}

/* ---- copies ---------------------------------------------------------------------------------- */

/* Memory that isn't registered is staged: the call waits for it. */
static CUresult queue_copy(CUstream stream, void *to, const void *from, size_t bytes,
                           const void *host)
{
    enum fake_pinned pinned = fake_is_pinned(host, bytes);
    struct fake_op op = {.kind = FAKE_COPY, .to = to, .from = from, .bytes = bytes};
    if (!to || !from || pinned == FAKE_CROSSES)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult code = fake_push(stream, &op);
    if (code != CUDA_SUCCESS || pinned == FAKE_PINNED)
        return code;
    atomic_fetch_add(&fake.unpinned, 1);
    pthread_mutex_lock(&stream->lock);
    while (stream->queued != 0)
        pthread_cond_wait(&stream->room, &stream->lock);
    pthread_mutex_unlock(&stream->lock);
    return CUDA_SUCCESS;
}

FAKE(MemcpyDtoHAsync)(void *to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    CUresult code = fake_enter("MemcpyDtoHAsync", true);
    return code != CUDA_SUCCESS ? code
                                : queue_copy(stream, to, fake_bytes_of(from, bytes), bytes, to);
}

FAKE(MemcpyHtoDAsync)(CUdeviceptr to, const void *from, size_t bytes, CUstream stream)
{
    CUresult code = fake_enter("MemcpyHtoDAsync", true);
    return code != CUDA_SUCCESS ? code
                                : queue_copy(stream, fake_bytes_of(to, bytes), from, bytes, from);
}

FAKE(MemsetD8Async)(CUdeviceptr to, unsigned char value, size_t bytes, CUstream stream)
{
    CUresult code = fake_enter("MemsetD8Async", true);
    struct fake_op op = {
        .kind = FAKE_SET, .to = fake_bytes_of(to, bytes), .bytes = bytes, .value = value};
    if (code == CUDA_SUCCESS && !op.to)
        return CUDA_ERROR_INVALID_VALUE;
    return code != CUDA_SUCCESS ? code : fake_push(stream, &op);
}

/* One of the two is device memory; either way round. */
static CUresult batch_one(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    void *device_to = fake_bytes_of(to, bytes), *device_from = fake_bytes_of(from, bytes);
    void *host = (void *)(uintptr_t)(device_to ? from : to);
    if (!device_to == !device_from)
        return CUDA_ERROR_INVALID_VALUE;
    return queue_copy(stream, device_to ? device_to : host, device_from ? device_from : host, bytes,
                      host);
}

FAKE(MemcpyBatchAsync)
(CUdeviceptr *to, CUdeviceptr *from, size_t *bytes, size_t count, CUmemcpyAttributes *attributes,
 size_t *attribute_of, size_t attributes_count, CUstream stream)
{
    CUresult code = fake_enter("MemcpyBatchAsync", true);
    if (code != CUDA_SUCCESS)
        return code;
    if (!stream || count == 0 || attributes_count == 0 || attributes_count > count ||
        attribute_of[0] != 0 || attributes[0].srcAccessOrder == CU_MEMCPY_SRC_ACCESS_ORDER_INVALID)
        return CUDA_ERROR_INVALID_VALUE;
    atomic_fetch_add(&fake.batches, 1);
    for (size_t i = 0; i < count && code == CUDA_SUCCESS; i++)
        code = batch_one(to[i], from[i], bytes[i], stream);
    return code;
}

FAKE(MemcpyBatchAsync_12)
(CUdeviceptr *to, CUdeviceptr *from, size_t *bytes, size_t count, CUmemcpyAttributes *attributes,
 size_t *attribute_of, size_t attributes_count, size_t *failed, CUstream stream)
{
    if (failed)
        *failed = SIZE_MAX;
    return fake_MemcpyBatchAsync(to, from, bytes, count, attributes, attribute_of, attributes_count,
                                 stream);
}
