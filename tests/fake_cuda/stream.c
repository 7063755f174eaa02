/* Streams: a thread each, which does what was put on it in order, at the rate that is set. */
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tests/fake_cuda/fake.h"

struct CUstream_st {
    struct CUstream_st *next; /* of the process; guarded by all_lock */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t work, room;
    struct fake_op *first, *last; /* the first one runs, and stays until it has ended */
    unsigned long queued;
    int priority;
    atomic_bool stop;
    bool dropped;      /* its thread's: it was destroyed while it waited for an event */
    uint64_t paced_ns; /* when what it has copied was done by the rate                */
};

static struct CUstream_st *all;
static pthread_mutex_t all_lock = PTHREAD_MUTEX_INITIALIZER;

/* ---- what its thread does -------------------------------------------------------------------- */

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* By an absolute schedule: what one wait sleeps too long, the next is shorter. */
static void pace(CUstream stream, size_t bytes)
{
    uint64_t rate = spw_load_relaxed(&fake.rate_bytes), now = now_ns();
    if (rate == 0)
        return;
    if (stream->paced_ns + 5000000 < now) /* it had nothing to do */
        stream->paced_ns = now;
    stream->paced_ns += (uint64_t)((double)bytes * 1e9 / (double)rate);
    while ((now = now_ns()) < stream->paced_ns && !atomic_load(&stream->stop)) {
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
    if (code != CUDA_SUCCESS)
        return;                          /* what goes wrong later goes wrong for good */
    memcpy(op->to, op->from, op->bytes); /* as it is now, not when it was asked for */
    fake_spoil(op->to, op->bytes);
    spw_store_relaxed(&fake.copied_at, (uint64_t)(int64_t)stream->priority);
    fake_count(&fake.copies, 1);
    fake_count(&fake.copied_bytes, op->bytes);
}

static void wait_for_event(CUstream stream, const struct fake_op *op)
{
    while (!fake_event_is_done(op->event, op->number)) {
        if (atomic_load(&stream->stop))
            stream->dropped = true; /* what is behind it must not happen before it */
        if (stream->dropped || fake_poison() != CUDA_SUCCESS)
            return;
        usleep(20);
    }
}

/* Until somebody destroys the stream. */
static void stall(CUstream stream)
{
    while (!atomic_load(&stream->stop))
        usleep(1000);
    stream->dropped = true;
}

static void carry_out(CUstream stream, const struct fake_op *op)
{
    if (stream->dropped || fake_poison() != CUDA_SUCCESS)
        return; /* records neither: what was before them has not happened */
    if ((op->kind == FAKE_COPY && fake_fault("stall") != CUDA_SUCCESS) ||
        (op->kind == FAKE_KERNEL && fake_fault("stall-kernel") != CUDA_SUCCESS))
        stall(stream);
    switch (op->kind) {
    case FAKE_COPY:
        copy(stream, op);
        break;
    case FAKE_SET:
        memset(op->to, op->value, op->bytes);
        break;
    case FAKE_KERNEL:
        if (fake_run_kernel(op) != CUDA_SUCCESS)
            fake_set_poison(CUDA_ERROR_ILLEGAL_ADDRESS);
        break;
    case FAKE_RECORD:
        fake_event_done(op->event, op->number);
        break;
    case FAKE_WAIT:
        wait_for_event(stream, op);
        break;
    }
}

static void remove_first(CUstream stream)
{
    struct fake_op *op = stream->first;
    stream->first = op->next;
    if (!stream->first)
        stream->last = NULL;
    stream->queued--;
    pthread_cond_broadcast(&stream->room);
    if (op->event)
        fake_event_let_go(op->event);
    free(op);
}

static void *run(void *context)
{
    CUstream stream = context;
    pthread_mutex_lock(&stream->lock);
    for (;;) {
        while (!stream->first && !atomic_load(&stream->stop))
            pthread_cond_wait(&stream->work, &stream->lock);
        if (!stream->first)
            break;
        pthread_mutex_unlock(&stream->lock);
        carry_out(stream, stream->first);
        pthread_mutex_lock(&stream->lock);
        remove_first(stream);
    }
    pthread_mutex_unlock(&stream->lock);
    return NULL;
}

/* ---- what others do -------------------------------------------------------------------------- */

static void list(CUstream stream)
{
    pthread_mutex_lock(&all_lock);
    stream->next = all;
    all = stream;
    pthread_mutex_unlock(&all_lock);
}

static void unlist(CUstream stream)
{
    pthread_mutex_lock(&all_lock);
    for (CUstream *at = &all; *at; at = &(*at)->next)
        if (*at == stream) {
            *at = stream->next;
            break;
        }
    pthread_mutex_unlock(&all_lock);
}

FAKE(StreamCreateWithPriority)(CUstream *out, unsigned flags, int priority)
{
    CUresult code = fake_enter("StreamCreateWithPriority", true);
    struct CUstream_st *stream = code == CUDA_SUCCESS ? calloc(1, sizeof *stream) : NULL;
    if (!stream)
        return code != CUDA_SUCCESS ? code : CUDA_ERROR_OUT_OF_MEMORY;
    stream->priority = priority;
    pthread_mutex_init(&stream->lock, NULL);
    pthread_cond_init(&stream->work, NULL);
    pthread_cond_init(&stream->room, NULL);
    if (pthread_create(&stream->thread, NULL, run, stream) != 0) {
        free(stream);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    list(stream);
    *out = stream;
    return CUDA_SUCCESS;
}

FAKE(StreamDestroy)(CUstream stream)
{
    CUresult code = fake_enter("StreamDestroy", true);
    if (code == CUDA_ERROR_NOT_INITIALIZED)
        return code; /* its thread is the parent's */
    unlist(stream);
    pthread_mutex_lock(&stream->lock);
    atomic_store(&stream->stop, true);
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
    if (own->event)
        fake_event_hold(own->event);
    pthread_mutex_lock(&stream->lock);
    if (stream->queued >= spw_load_relaxed(&fake.stream_capacity))
        fake_count(&fake.full_waits, 1);
    while (stream->queued >= spw_load_relaxed(&fake.stream_capacity))
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

void fake_drain(CUstream stream)
{
    pthread_mutex_lock(&stream->lock);
    while (stream->queued != 0)
        pthread_cond_wait(&stream->room, &stream->lock);
    pthread_mutex_unlock(&stream->lock);
}

static bool touches(const struct fake_op *op, const void *start, size_t bytes)
{
    if (op->kind == FAKE_KERNEL)
        return fake_kernel_touches(op, start, bytes);
    return (op->to && fake_overlap(op->to, op->bytes, start, bytes)) ||
           (op->from && fake_overlap(op->from, op->bytes, start, bytes));
}

static bool stream_touches(CUstream stream, const void *start, size_t bytes)
{
    bool found = false;
    pthread_mutex_lock(&stream->lock);
    for (const struct fake_op *op = stream->first; op && !found; op = op->next)
        found = touches(op, start, bytes);
    pthread_mutex_unlock(&stream->lock);
    return found;
}

static bool any_touches(const void *start, size_t bytes)
{
    bool found = false;
    pthread_mutex_lock(&all_lock);
    for (CUstream stream = all; stream && !found; stream = stream->next)
        found = stream_touches(stream, start, bytes);
    pthread_mutex_unlock(&all_lock);
    return found;
}

void fake_wait_unused(const void *start, size_t bytes)
{
    if (!any_touches(start, bytes))
        return;
    fake_count(&fake.given_back_early, 1);
    do
        usleep(20);
    while (any_touches(start, bytes));
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
    if (code == CUDA_SUCCESS) {
        fake_drain(stream);
        code = fake_poison();
    }
    return code;
}
