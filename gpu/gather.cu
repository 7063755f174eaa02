// Gather and scatter of small pieces: a block of threads for each KV block of each plane. See gather.h.
#include "gpu/gather.h"

template <typename word>
__device__ void move(word *to, const word *from, unsigned long long words)
{
    for (unsigned long long i = threadIdx.x; i < words; i += blockDim.x)
        to[i] = from[i];
}

__device__ void move_piece(const struct spw_gather_args &args, bool gather)
{
    const struct spw_plane plane = ((const struct spw_plane *)args.planes)[blockIdx.y];
    const unsigned block = ((const unsigned *)args.blocks)[blockIdx.x];
    char *kv = (char *)(plane.base + block * plane.block_stride);
    char *part = (char *)(args.slot + plane.before_bytes * args.block_count + blockIdx.x * plane.bytes);
    char *to = gather ? part : kv;
    const char *from = gather ? kv : part;
    if (args.vector_bytes == 16)
        move((uint4 *)to, (const uint4 *)from, plane.bytes / 16);
    else
        move(to, from, plane.bytes);
}

extern "C" __global__ void spw_gather(struct spw_gather_args args)
{
    move_piece(args, true);
}

extern "C" __global__ void spw_scatter(struct spw_gather_args args)
{
    move_piece(args, false);
}
