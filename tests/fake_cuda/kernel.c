/* What the kernels of gpu/gather.cu do, by the processor. Host memory that isn't registered is an
 * illegal address there. */
#include <string.h>

#include "gpu/gather.h"
#include "tests/fake_cuda/fake.h"

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
    if (code == CUDA_SUCCESS && !image)
        return CUDA_ERROR_INVALID_IMAGE;
    if (code == CUDA_SUCCESS)
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
    fake_count(&fake.launches, 1);
    return fake_push(stream, &op);
}

static bool is_aligned(uint64_t value, uint32_t to)
{
    return value % to == 0;
}

struct ends {
    uint64_t kv, part;
};

static struct ends ends_of(const struct spw_gather_args *args, const struct spw_plane *plane,
                           uint32_t block, uint32_t i)
{
    return (struct ends){plane->base + block * plane->block_stride,
                         args->slot + plane->before_bytes * args->block_count + i * plane->bytes};
}

static CUresult move_piece(const struct spw_gather_args *args, const struct spw_plane *plane,
                           uint32_t block, uint32_t i, bool gathers)
{
    struct ends at = ends_of(args, plane, block, i);
    void *kv = fake_bytes_of(at.kv, plane->bytes), *part = (void *)(uintptr_t)at.part;
    if (!kv || fake_is_pinned(part, plane->bytes) != FAKE_PINNED ||
        !is_aligned(at.kv, args->vector_bytes) || !is_aligned(at.part, args->vector_bytes) ||
        !is_aligned(plane->bytes, args->vector_bytes))
        return CUDA_ERROR_ILLEGAL_ADDRESS;
    if (gathers)
        memcpy(part, kv, plane->bytes);
    else
        memcpy(kv, part, plane->bytes);
    fake_spoil(gathers ? part : kv, plane->bytes);
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
            if (move_piece(&args, &planes[p], blocks[i], i, op->gather) != CUDA_SUCCESS)
                return CUDA_ERROR_ILLEGAL_ADDRESS;
    return CUDA_SUCCESS;
}

bool fake_kernel_touches(const struct fake_op *op, const void *start, size_t bytes)
{
    struct spw_gather_args args;
    memcpy(&args, op->args, sizeof args);
    const struct spw_plane *planes =
        fake_bytes_of(args.planes, args.plane_count * sizeof(struct spw_plane));
    const uint32_t *blocks = (const uint32_t *)(uintptr_t)args.blocks;
    if (!planes || fake_is_pinned(blocks, args.block_count * sizeof *blocks) != FAKE_PINNED)
        return false; /* it will fail */
    if (fake_overlap(planes, args.plane_count * sizeof *planes, start, bytes) ||
        fake_overlap(blocks, args.block_count * sizeof *blocks, start, bytes))
        return true;
    for (uint32_t p = 0; p < args.plane_count; p++)
        for (uint32_t i = 0; i < args.block_count; i++) {
            struct ends at = ends_of(&args, &planes[p], blocks[i], i);
            const void *kv = fake_bytes_of(at.kv, planes[p].bytes);
            const void *part = (const void *)(uintptr_t)at.part;
            if ((kv && fake_overlap(kv, planes[p].bytes, start, bytes)) ||
                fake_overlap(part, planes[p].bytes, start, bytes))
                return true;
        }
    return false;
}
