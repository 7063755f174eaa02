#ifndef SPW_TOOLS_GPU_FAULTS_H
#define SPW_TOOLS_GPU_FAULTS_H
/*
 * When a GPU that keeps failing is given up: workers that ended because of it, counted. Pure; the
 * daemon has one a worker, and nothing of it outlives the daemon.
 */
#include <stdbool.h>
#include <stdint.h>

/** A worker that ran so long before it lost its GPU starts the count anew. */
#define SPW_GPU_FORGET_NS 600000000000ull

struct spw_gpu_faults {
    uint32_t count;
};

/** A worker that ran for @ran_ns has lost its GPU. True: that was once more than @restarts. */
bool spw_gpu_faults_add(struct spw_gpu_faults *faults, uint64_t ran_ns, uint64_t restarts);

#endif
