/* What the kernels of gpu/gather.cu do, by the processor. Host memory that isn't registered is an
 * illegal address there. */
#include "tests/fake_cuda/fake.h"

#include <string.h>

#include "gpu/gather.h"

struct CUmod_st {
    int loaded;
};
struct CUfunc_st {
    bool gather;
};

static struct CUmod_st module;
static struct CUfunc_st gather = {true}, scatter = {false};
_Static_assert(sizeof(struct spw_gather_args) <= sizeof(((struct fake_op *)0)->args), "fits");

FAKE(ModuleLoadData)(CUmodule *out, const void *image)
{
    CUresult code = fake_enter("ModuleLoadData", true);
    *out = &module;
    return code;
}

FAKE(ModuleUnload)(CUmodule which)
{
    return fake_enter("ModuleUnload", true);
}

FAKE(ModuleGetFunction)(CUfunction *out, CUmodule which, const char *name)
{
    CUresult code = fake_enter("ModuleGetFunction", true);
    if (code != CUDA_SUCCESS)
        return code;
    if (strcmp(name, "spw_gather") != 0 && strcmp(name, "spw_scatter") != 0)
        return CUDA_ERROR_NOT_FOUND;
    *out = strcmp(name, "spw_gather") == 0 ? &gather : &scatter;
    return CUDA_SUCCESS;
}

FAKE(LaunchKernel)
(CUfunction function, unsigned x, unsigned y, unsigned z, unsigned threads, unsigned threads_y,
 unsigned threads_z, unsigned shared, CUstream stream, void **parameters, void **extra)
{
    CUresult code = fake_enter("LaunchKernel", true);
    if (code != CUDA_SUCCESS)
        return code;
    struct spw_gather_args args;
    memcpy(&args, parameters[0], sizeof args);
    if (x != args.block_count || y != args.plane_count || z != 1 || threads == 0 || threads > 1024)
        return CUDA_ERROR_INVALID_VALUE;
    struct fake_op op = {.kind = FAKE_KERNEL, .gather = function->gather};
    memcpy(op.args, &args, sizeof args);
    atomic_fetch_add(&fake.launches, 1);
    return fake_push(stream, &op);
}

static bool is_aligned(uint64_t value, uint32_t to)
{
    return value % to == 0;
}

static CUresult move_piece(const struct spw_gather_args *args, const struct spw_plane *plane,
                           const uint32_t *blocks, uint32_t i, bool gathers)
{
    uint64_t kv_at = plane->base + blocks[i] * plane->block_stride;
    uint64_t slot_at = args->slot + plane->before_bytes * args->block_count + i * plane->bytes;
    void *kv = fake_bytes_of(kv_at, plane->bytes), *part = (void *)(uintptr_t)slot_at;
    if (!kv || fake_is_pinned(part, plane->bytes) != FAKE_PINNED ||
        !is_aligned(kv_at, args->vector_bytes) || !is_aligned(slot_at, args->vector_bytes) ||
        !is_aligned(plane->bytes, args->vector_bytes))
        return CUDA_ERROR_ILLEGAL_ADDRESS;
    if (gathers)
        memcpy(part, kv, plane->bytes);
    else
        memcpy(kv, part, plane->bytes);
    return CUDA_SUCCESS;
}

CUresult fake_run_kernel(const struct fake_op *op)
{
    struct spw_gather_args args;
    memcpy(&args, op->args, sizeof args);
    const struct spw_plane *planes =
        fake_bytes_of(args.planes, args.plane_count * sizeof(struct spw_plane));
    const uint32_t *blocks = (const uint32_t *)(uintptr_t)args.blocks;
    if (!planes || fake_is_pinned(blocks, args.block_count * sizeof *blocks) != FAKE_PINNED)
        return CUDA_ERROR_ILLEGAL_ADDRESS;
    for (uint32_t p = 0; p < args.plane_count; p++)
        for (uint32_t i = 0; i < args.block_count; i++)
            if (move_piece(&args, &planes[p], blocks, i, op->gather) != CUDA_SUCCESS)
                return CUDA_ERROR_ILLEGAL_ADDRESS;
    return CUDA_SUCCESS;
}
