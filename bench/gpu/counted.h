#ifndef SPW_BENCH_GPU_COUNTED_H
#define SPW_BENCH_GPU_COUNTED_H
/*
 * Calls of the driver that move bytes, counted, so that a case that is said to go by the kernel or by
 * the batch call is known to. Of the process; the functions are put into the driver's table.
 */
#include "gpu/gpu_impl.h"

struct check_calls {
    uint64_t batches, launches, copies;
};

/** Count from now on. Once a process. */
void check_calls_count(struct spw_gpu *gpu);
struct check_calls check_calls_so_far(void);

#endif
