/* Events: the number of the last record, and of the last that was reached. Those for other processes
 * have these in a memfd. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/fake_cuda/fake.h"

struct state {
    atomic_ulong recorded, done;
};

struct CUevent_st {
    struct state *state;
    int fd;          /* -1: of this process alone              */
    atomic_int held; /* by its owner, and by what's on streams */
};

static CUevent make(int fd)
{
    struct CUevent_st *event = calloc(1, sizeof *event);
    if (!event)
        return NULL;
    event->fd = fd;
    atomic_store(&event->held, 1);
    event->state =
        fd < 0 ? calloc(1, sizeof *event->state)
               : mmap(NULL, sizeof *event->state, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (!event->state || event->state == MAP_FAILED) {
        free(event);
        return NULL;
    }
    fake_count(&fake.events, 1);
    return event;
}

FAKE(EventCreate)(CUevent *out, unsigned flags)
{
    CUresult code = fake_enter("EventCreate", true);
    int fd = -1;
    if (code != CUDA_SUCCESS)
        return code;
    if (flags & CU_EVENT_INTERPROCESS) {
        if (!(flags & CU_EVENT_DISABLE_TIMING))
            return CUDA_ERROR_INVALID_VALUE;
        fd = memfd_create("fake-cuda-event", MFD_CLOEXEC);
        if (fd < 0 || ftruncate(fd, sizeof(struct state)) < 0)
            return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *out = make(fd);
    return *out ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

void fake_event_hold(CUevent event)
{
    atomic_fetch_add(&event->held, 1);
}

void fake_event_let_go(CUevent event)
{
    if (atomic_fetch_sub(&event->held, 1) > 1)
        return;
    if (event->fd < 0) {
        free(event->state);
    } else {
        munmap(event->state, sizeof *event->state);
        close(event->fd);
    }
    free(event);
}

FAKE(EventDestroy)(CUevent event)
{
    CUresult code = fake_enter("EventDestroy", true);
    fake_event_let_go(event);
    fake_uncount(&fake.events, 1);
    return code;
}

/* Of records on several streams the older one may be reached last. */
void fake_event_done(CUevent event, uint64_t number)
{
    unsigned long done = atomic_load(&event->state->done);
    while (done < number && !atomic_compare_exchange_weak(&event->state->done, &done, number))
        ;
}

bool fake_event_is_done(CUevent event, uint64_t number)
{
    return atomic_load(&event->state->done) >= number;
}

FAKE(EventRecord)(CUevent event, CUstream stream)
{
    CUresult code = fake_enter("EventRecord", true);
    if (code != CUDA_SUCCESS)
        return code;
    struct fake_op op = {.kind = FAKE_RECORD,
                         .event = event,
                         .number = atomic_fetch_add(&event->state->recorded, 1) + 1};
    if (fake_fault("early") != CUDA_SUCCESS)
        fake_event_done(event, op.number);
    return fake_push(stream, &op);
}

FAKE(EventQuery)(CUevent event)
{
    CUresult code = fake_enter("EventQuery", true);
    if (code != CUDA_SUCCESS)
        return code;
    bool done = fake_event_is_done(event, atomic_load(&event->state->recorded));
    /* what went wrong before it is told before it is */
    if (done && fake_poison() != CUDA_SUCCESS)
        return fake_poison();
    return done ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

FAKE(EventSynchronize)(CUevent event)
{
    CUresult code = fake_enter("EventSynchronize", true);
    uint64_t number = atomic_load(&event->state->recorded);
    while (code == CUDA_SUCCESS && !fake_event_is_done(event, number)) {
        usleep(20);
        code = fake_poison();
    }
    return code;
}

FAKE(StreamWaitEvent)(CUstream stream, CUevent event, unsigned flags)
{
    CUresult code = fake_enter("StreamWaitEvent", true);
    if (code != CUDA_SUCCESS)
        return code;
    struct fake_op op = {
        .kind = FAKE_WAIT, .event = event, .number = atomic_load(&event->state->recorded)};
    return fake_push(stream, &op);
}

/* ---- between processes ----------------------------------------------------------------------- */

struct handle {
    int pid, fd;
};
_Static_assert(sizeof(struct handle) <= sizeof(CUipcEventHandle), "fits");

FAKE(IpcGetEventHandle)(CUipcEventHandle *out, CUevent event)
{
    CUresult code = fake_enter("IpcGetEventHandle", true);
    if (code == CUDA_SUCCESS && event->fd < 0)
        return CUDA_ERROR_INVALID_VALUE;
    struct handle handle = {getpid(), event->fd};
    memset(out, 0, sizeof *out);
    memcpy(out, &handle, sizeof handle);
    return code;
}

FAKE(IpcOpenEventHandle)(CUevent *out, CUipcEventHandle from)
{
    CUresult code = fake_enter("IpcOpenEventHandle", true);
    struct handle handle;
    char path[64];
    memcpy(&handle, &from, sizeof handle);
    if (code != CUDA_SUCCESS)
        return code;
    if (handle.pid == getpid())
        return CUDA_ERROR_INVALID_CONTEXT;
    snprintf(path, sizeof path, "/proc/%d/fd/%d", handle.pid, handle.fd);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    *out = fd < 0 ? NULL : make(fd);
    return *out ? CUDA_SUCCESS : CUDA_ERROR_MAP_FAILED;
}
