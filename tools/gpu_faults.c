/* See gpu_faults.h. */
#include "tools/gpu_faults.h"

bool spw_gpu_faults_add(struct spw_gpu_faults *faults, uint64_t ran_ns, uint64_t restarts)
{
    if (ran_ns >= SPW_GPU_FORGET_NS)
        faults->count = 0;
    faults->count++;
    return faults->count > restarts;
}
