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
/** An error that this process doesn't survive, or CUDA_SUCCESS. */
CUresult fake_poison(void);
void fake_set_poison(CUresult code);
/** The fault that is due for this call of @name, or CUDA_SUCCESS. */
CUresult fake_fault(const char *name);
bool fake_is_sticky(CUresult code);
const char *fake_env(const char *name);

/* ---- memory.c ---- */

/** Where the bytes of device memory [@at, @at + bytes) lie, NULL: it isn't all device memory. */
void *fake_bytes_of(CUdeviceptr at, size_t bytes);
/* ---- host_memory.c ---- */

enum fake_pinned { FAKE_PINNED, FAKE_PAGEABLE, FAKE_CROSSES };
/** Is [@start, @start + bytes) within one registration, in none, or across their ends? */
enum fake_pinned fake_is_pinned(const void *start, size_t bytes);

/* ---- stream.c, event.c, kernel.c ---- */

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

/** Put a copy of @op behind what is on @stream. */
CUresult fake_push(CUstream stream, const struct fake_op *op);
uint64_t fake_event_next(CUevent event);
uint64_t fake_event_recorded(CUevent event);
void fake_event_done(CUevent event, uint64_t number);
bool fake_event_is_done(CUevent event, uint64_t number);
/** Do what the kernel does. */
CUresult fake_run_kernel(const struct fake_op *op);

/* ---- table.c's functions, by the driver's names ---- */
#define FAKE(name) CUresult fake_##name

#endif
