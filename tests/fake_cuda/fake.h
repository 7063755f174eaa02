#ifndef SPW_TESTS_FAKE_CUDA_FAKE_H
#define SPW_TESTS_FAKE_CUDA_FAKE_H
/* What the files of the stand-in driver share. One mutex guards its tables; each stream has its own. */
#include <cuda.h>
#include <cudaTypedefs.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

#include "tests/fake_cuda/fake_cuda.h"

#define FAKE_DEVICES_MAX 16

extern struct fake_cuda fake;

/* ---- device.c: what there is, and whether a call may be made ---- */

/** Before each call named @name: what it must answer at once, or CUDA_SUCCESS. @context: it needs one. */
CUresult fake_enter(const char *name, bool context);
/** The GPU among those of the host that the calling thread uses, or else the process: -1 = none yet. */
int fake_device_current(void);
/** NULL where it's not set, or empty. */
const char *fake_env(const char *name);

/* ---- faults.c ---- */

/** The fault that is due for this call of @name, or CUDA_SUCCESS. */
CUresult fake_fault(const char *name);
/** A piece has been copied to @to: the faults that no call tells. */
void fake_spoil(void *to, size_t bytes);
/** An error that this process doesn't survive, or CUDA_SUCCESS. */
CUresult fake_poison(void);
void fake_set_poison(CUresult code);
void fake_set_faults(const char *text);

/* ---- memory.c, host_state.c ---- */

/** Where the bytes of device memory [@at, @at + bytes) lie, NULL: it isn't all device memory. */
void *fake_bytes_of(CUdeviceptr at, size_t bytes);
/** A file for @bytes of the memory of @device, held until it is closed, or -1. */
int fake_state_create(int device, size_t bytes);
/** Hold a file that another process made, too. */
void fake_state_hold(int fd);
/** Bytes of @device that processes hold. */
uint64_t fake_state_used(int device);

/* ---- host_memory.c ---- */

enum fake_pinned { FAKE_PINNED, FAKE_PAGEABLE, FAKE_CROSSES };
/** Is [@start, @start + bytes) within one registration, in none, or across their ends? */
enum fake_pinned fake_is_pinned(const void *start, size_t bytes);

/* ---- stream.c, copy.c, event.c, kernel.c ---- */

struct fake_op {
    struct fake_op *next;
    enum { FAKE_COPY, FAKE_RECORD, FAKE_WAIT, FAKE_KERNEL, FAKE_SET } kind;
    void *to;
    const void *from;
    size_t bytes;
    struct CUevent_st *event;
    uint64_t number; /* of its record */
    bool gather;
    uint8_t value;
    unsigned char args[96];
};

/** Put a copy of @op behind what is on @stream; waits where that is full. */
CUresult fake_push(CUstream stream, const struct fake_op *op);
/** Wait until all that was put on it has ended. */
void fake_drain(CUstream stream);
/** Before [@start, @start + bytes) is given back: wait until no stream has work for it, and count if
 * one had. */
void fake_wait_unused(const void *start, size_t bytes);
/** Operations hold their event: it may be destroyed before they have run. */
void fake_event_hold(CUevent event);
void fake_event_let_go(CUevent event);
void fake_event_done(CUevent event, uint64_t number);
bool fake_event_is_done(CUevent event, uint64_t number);
/** Do what the kernel does. */
CUresult fake_run_kernel(const struct fake_op *op);
/** Does it read or write there? */
bool fake_kernel_touches(const struct fake_op *op, const void *start, size_t bytes);
static inline bool fake_overlap(const void *a, size_t a_bytes, const void *b, size_t b_bytes)
{
    return (const char *)a < (const char *)b + b_bytes &&
           (const char *)b < (const char *)a + a_bytes;
}

/* ---- counters, of every thread ---- */

static inline void fake_count(spw_atomic64 *counter, uint64_t amount)
{
    atomic_fetch_add_explicit(counter, amount, memory_order_relaxed);
}
static inline void fake_uncount(spw_atomic64 *counter, uint64_t amount)
{
    atomic_fetch_sub_explicit(counter, amount, memory_order_relaxed);
}

/* ---- table.c's functions, by the driver's names ---- */
#define FAKE(name) CUresult fake_##name

#endif
