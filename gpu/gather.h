#ifndef SPW_GPU_GATHER_H
#define SPW_GPU_GATHER_H
/*
 * What the kernels spw_gather (KV to slot) and spw_scatter (slot to KV) are told: their one parameter.
 * For gather.cu, who launches it, and whoever stands in for the GPU. Addresses are the device's; the
 * slot is pinned host memory.
 */
#include <stdint.h>

#include "gpu/pieces.h"

struct spw_gather_args {
    uint64_t planes; /* struct spw_plane[plane_count]                          */
    uint64_t blocks; /* uint32_t[block_count]                                  */
    uint64_t slot;
    uint32_t plane_count;
    uint32_t block_count;
    uint32_t vector_bytes; /* 16, or 1: what all addresses, strides and sizes are multiples of */
    uint32_t reserved;
};

#define SPW_GATHER_THREADS 256u /* of a block of the grid, which is block_count x plane_count */

#endif
