/* See mover.h. */
#include "gpu/mover.h"

#include <stdlib.h>

#include "gpu/gather.h"

#ifdef SPW_HAVE_GATHER
extern const unsigned char spw_gather_image[];
static const void *image(void)
{
    return spw_gather_image;
}
#else
static const void *image(void)
{
    return NULL; /* built without nvcc */
}
#endif

static void load_kernels(struct spw_mover *mover)
{
    const struct spw_driver *driver = &mover->gpu->driver;
    if (!image() || !driver->ModuleLoadData || !driver->ModuleUnload ||
        !driver->ModuleGetFunction || !driver->LaunchKernel ||
        driver->ModuleLoadData(&mover->module, image()) != CUDA_SUCCESS) {
        mover->module = NULL;
        return;
    }
    if (driver->ModuleGetFunction(&mover->gather, mover->module, "spw_gather") == CUDA_SUCCESS &&
        driver->ModuleGetFunction(&mover->scatter, mover->module, "spw_scatter") == CUDA_SUCCESS)
        return;
    driver->ModuleUnload(mover->module);
    mover->module = NULL;
}

int spw_mover_init(struct spw_mover *mover, struct spw_gpu *gpu, uint32_t kernel_below_bytes)
{
    *mover = (struct spw_mover){.gpu = gpu, .kernel_below_bytes = kernel_below_bytes};
    if (kernel_below_bytes != 0)
        load_kernels(mover);
    if (!mover->module)
        mover->kernel_below_bytes = 0;
    return spw_mover_room(mover, 1);
}

void spw_mover_fini(struct spw_mover *mover)
{
    if (mover->module)
        mover->gpu->driver.ModuleUnload(mover->module);
    free(mover->piece);
    free(mover->to);
    free(mover->from);
    free(mover->bytes);
    *mover = (struct spw_mover){.gpu = NULL};
}

static int grow(void **list, size_t count, size_t bytes)
{
    void *more = realloc(*list, count * bytes);
    if (!more)
        return -ENOMEM;
    *list = more;
    return 0;
}

int spw_mover_room(struct spw_mover *mover, uint32_t planes)
{
    uint32_t most = planes * SPW_CHUNK_BLOCKS_MAX;
    if (most <= mover->piece_max)
        return 0;
    if (grow((void **)&mover->piece, most, sizeof *mover->piece) ||
        grow((void **)&mover->to, most, sizeof *mover->to) ||
        grow((void **)&mover->from, most, sizeof *mover->from) ||
        grow((void **)&mover->bytes, most, sizeof *mover->bytes))
        return -ENOMEM;
    mover->piece_max = most;
    return 0;
}

bool spw_mover_has_batch(const struct spw_mover *mover)
{
    const struct spw_driver *driver = &mover->gpu->driver;
    return driver->MemcpyBatchAsync || driver->MemcpyBatchAsync_12;
}

bool spw_mover_takes_kernel(const struct spw_mover *mover, const struct spw_plane *plane,
                            uint32_t planes)
{
    for (uint32_t p = 0; p < planes; p++)
        if (plane[p].bytes > mover->kernel_below_bytes)
            return false;
    return mover->module != NULL;
}

static CUresult launch(struct spw_mover *mover, const struct spw_move *move, CUstream stream)
{
    const struct spw_driver *driver = &mover->gpu->driver;
    CUdeviceptr slot, blocks;
    for (uint32_t i = 0; i < move->count; i++)
        move->blocks_seen[i] = move->blocks[i];
    CUresult result = driver->MemHostGetDevicePointer(&slot, move->slot, 0);
    if (result == CUDA_SUCCESS)
        result = driver->MemHostGetDevicePointer(&blocks, move->blocks_seen, 0);
    if (result != CUDA_SUCCESS)
        return result;
    struct spw_gather_args args = {
        .planes = move->planes_there,
        .blocks = blocks,
        .slot = slot,
        .plane_count = move->planes,
        .block_count = move->count,
        .vector_bytes = slot % 16 == 0 ? move->vector_bytes : 1,
    };
    void *parameters[] = {&args};
    return driver->LaunchKernel(move->kind == SPW_COPY_STORE ? mover->gather : mover->scatter,
                                move->count, move->planes, 1, SPW_GATHER_THREADS, 1, 1, 0, stream,
                                parameters, NULL);
}

static CUresult copy_each(struct spw_mover *mover, const struct spw_move *move, uint32_t pieces,
                          CUstream stream)
{
    const struct spw_driver *driver = &mover->gpu->driver;
    CUresult result = CUDA_SUCCESS;
    for (uint32_t i = 0; i < pieces && result == CUDA_SUCCESS; i++) {
        const struct spw_piece *piece = &mover->piece[i];
        uint8_t *part = move->slot + piece->slot_off;
        result = move->kind == SPW_COPY_STORE
                     ? driver->MemcpyDtoHAsync(part, piece->kv, piece->bytes, stream)
                     : driver->MemcpyHtoDAsync(piece->kv, part, piece->bytes, stream);
    }
    return result;
}

static CUresult copy_batch(struct spw_mover *mover, const struct spw_move *move, uint32_t pieces,
                           CUstream stream)
{
    for (uint32_t i = 0; i < pieces; i++) {
        const struct spw_piece *piece = &mover->piece[i];
        CUdeviceptr part = (CUdeviceptr)(uintptr_t)(move->slot + piece->slot_off);
        mover->to[i] = move->kind == SPW_COPY_STORE ? part : piece->kv;
        mover->from[i] = move->kind == SPW_COPY_STORE ? piece->kv : part;
        mover->bytes[i] = piece->bytes;
    }
    return spw_driver_copy_batch(&mover->gpu->driver, mover->to, mover->from, mover->bytes, pieces,
                                 stream);
}

CUresult spw_mover_queue(struct spw_mover *mover, const struct spw_move *move, bool kernel,
                         CUstream stream)
{
    if (kernel && move->pinned)
        return launch(mover, move, stream);
    uint32_t pieces =
        spw_pieces_expand(move->plane, move->planes, move->blocks, move->count, mover->piece);
    bool batch = move->pinned && !move->one_by_one && spw_mover_has_batch(mover);
    return batch && pieces > 1 ? copy_batch(mover, move, pieces, stream)
                               : copy_each(mover, move, pieces, stream);
}
