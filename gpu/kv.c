/* See kv.h. */
#include "gpu/kv.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gpu/trial.h"
#include "shm/process.h"

/* ---- the record's parts ---------------------------------------------------------------------- */

static const struct spw_kv_memory_record *memory_at(const struct spw_kv_record *record, uint32_t i)
{
    return (const struct spw_kv_memory_record *)(record + 1) + i;
}

static const struct spw_kv_tensor_record *tensor_at(const struct spw_kv_record *record, uint32_t i)
{
    return (const struct spw_kv_tensor_record *)memory_at(record, record->memories) + i;
}

static const uint8_t *fence_at(const struct spw_kv_record *record, uint32_t i)
{
    return (const uint8_t *)tensor_at(record, record->tensors) + (uint64_t)i * SPW_IPC_BYTES;
}

/* The sender is this very process: a worker inside an engine. */
static bool is_own(const struct spw_kv_record *record)
{
    return record->pid == (uint32_t)getpid() &&
           record->start_ticks == spw_process_start_ticks(getpid());
}

/* ---- checks ---------------------------------------------------------------------------------- */

static int check_gpu(const struct spw_mover *mover, const struct spw_kv_record *record,
                     struct spw_error *err)
{
    char ours[SPW_GPU_UUID_TEXT], theirs[SPW_GPU_UUID_TEXT];
    if (memcmp(record->gpu, mover->gpu->identity.uuid, sizeof record->gpu) == 0)
        return 0;
    spw_gpu_uuid_print(mover->gpu->identity.uuid, ours);
    spw_gpu_uuid_print(record->gpu, theirs);
    return spw_fail(err, -ENODEV, "memory of %s can't be registered at the worker of %s", theirs,
                    ours);
}

static int check_tensor(const struct spw_kv_record *record, uint32_t t, struct spw_error *err)
{
    const struct spw_kv_tensor_record *tensor = tensor_at(record, t);
    uint64_t last_block, last_part, end;
    if (tensor->group >= SPW_GROUP_COUNT_MAX)
        return spw_fail(err, -EINVAL, "tensor %u: group %u; allowed are 0 to %u", t, tensor->group,
                        SPW_GROUP_COUNT_MAX - 1);
    if (tensor->memory >= record->memories)
        return spw_fail(err, -EINVAL, "tensor %u: memory %u of %u", t, tensor->memory,
                        record->memories);
    if (tensor->blocks == 0 || tensor->part_bytes == 0 || tensor->parts == 0 || tensor->parts > 2)
        return spw_fail(
            err, -EINVAL,
            "tensor %u: %u blocks of %u parts of %u bytes; there must be blocks, 1 or 2 "
            "parts, and bytes",
            t, tensor->blocks, tensor->parts, tensor->part_bytes);
    if (tensor->blocks > 1 && tensor->block_stride < tensor->part_bytes)
        return spw_fail(err, -EINVAL, "tensor %u: blocks %lu bytes apart, but %u long", t,
                        (unsigned long)tensor->block_stride, tensor->part_bytes);
    if (__builtin_mul_overflow(tensor->block_stride, (uint64_t)tensor->blocks - 1, &last_block) ||
        __builtin_mul_overflow(tensor->part_stride, (uint64_t)tensor->parts - 1, &last_part) ||
        __builtin_add_overflow(last_block, last_part, &end) ||
        __builtin_add_overflow(end, tensor->offset, &end) ||
        __builtin_add_overflow(end, tensor->part_bytes, &end) ||
        end > memory_at(record, tensor->memory)->bytes)
        return spw_fail(err, -EINVAL,
                        "tensor %u: its last block lies beyond its memory of %lu bytes", t,
                        (unsigned long)memory_at(record, tensor->memory)->bytes);
    return 0;
}

static int check_memory(const struct spw_kv_record *record, uint32_t m, struct spw_error *err)
{
    uint32_t kind = memory_at(record, m)->kind;
    if (kind == SPW_KV_POINTER && !is_own(record))
        return spw_fail(
            err, -EINVAL,
            "memory %u: an address means nothing in the worker's process; export it, or "
            "run the worker inside the engine",
            m);
    if (kind != SPW_KV_IPC && kind != SPW_KV_POINTER)
        return spw_fail(err, -EINVAL, "memory %u: kind %u isn't known", m, kind);
    return 0;
}

/* Counts and length were checked by the worker. */
static int check(const struct spw_mover *mover, const struct spw_kv_record *record,
                 struct spw_error *err)
{
    int status = check_gpu(mover, record, err);
    if (status == 0 && (record->tensors == 0 || record->memories == 0))
        status = spw_fail(err, -EINVAL, "%u tensors in %u memories; there must be some of each",
                          record->tensors, record->memories);
    for (uint32_t m = 0; m < record->memories && status == 0; m++)
        status = check_memory(record, m, err);
    for (uint32_t t = 0; t < record->tensors && status == 0; t++)
        status = check_tensor(record, t, err);
    return status;
}

/* ---- mapping --------------------------------------------------------------------------------- */

static int refuse(const struct spw_mover *mover, CUresult result, const char *what, uint32_t number,
                  struct spw_error *err)
{
    return spw_fail(err, spw_driver_errno(result), "%s %u: %s", what, number,
                    spw_driver_word(&mover->gpu->driver, result));
}

/* The same handle twice is the same memory. */
static bool is_mapped_already(struct spw_kv *kv, const struct spw_kv_record *record, uint32_t m)
{
    const struct spw_kv_memory_record *memory = memory_at(record, m);
    for (uint32_t i = 0; i < m; i++) {
        const struct spw_kv_memory_record *earlier = memory_at(record, i);
        if (earlier->kind == memory->kind &&
            memcmp(earlier->handle, memory->handle, sizeof memory->handle) == 0) {
            kv->memory[m] = kv->memory[i];
            kv->memory_bytes[m] = kv->memory_bytes[i];
            return true;
        }
    }
    return false;
}

/* Bytes from @at on: those of its allocation, or as many as @wanted where virtual memory lies in pieces
 * one behind the other. */
static CUresult extent(const struct spw_driver *driver, CUdeviceptr at, uint64_t wanted,
                       uint64_t *out_bytes)
{
    CUdeviceptr base;
    size_t bytes;
    uint64_t have = 0;
    CUresult result;
    do {
        result = driver->MemGetAddressRange(&base, &bytes, at + have);
        if (result == CUDA_SUCCESS)
            have = base + bytes - at;
    } while (result == CUDA_SUCCESS && have < wanted);
    *out_bytes = have;
    return have != 0 ? CUDA_SUCCESS : result;
}

static CUresult map(struct spw_kv *kv, struct spw_mover *mover,
                    const struct spw_kv_memory_record *memory, uint32_t m)
{
    const struct spw_driver *driver = &mover->gpu->driver;
    CUresult result = CUDA_SUCCESS;
    if (memory->kind == SPW_KV_IPC) {
        CUipcMemHandle handle;
        _Static_assert(sizeof handle.reserved == SPW_IPC_BYTES, "a CUDA IPC handle");
        memcpy(handle.reserved, memory->handle, sizeof handle.reserved);
        result =
            driver->IpcOpenMemHandle(&kv->memory[m], handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
        kv->mapped[m] = result == CUDA_SUCCESS;
    } else {
        memcpy(&kv->memory[m], memory->handle, sizeof kv->memory[m]);
    }
    if (result == CUDA_SUCCESS)
        result = extent(driver, kv->memory[m], memory->kind == SPW_KV_IPC ? 0 : memory->bytes,
                        &kv->memory_bytes[m]);
    return result;
}

static int map_next(struct spw_kv *kv, struct spw_mover *mover, const struct spw_kv_record *record,
                    struct spw_error *err)
{
    uint32_t m = kv->next++;
    const struct spw_kv_memory_record *memory = memory_at(record, m);
    kv->memories = m + 1;
    if (!is_mapped_already(kv, record, m)) {
        CUresult result = map(kv, mover, memory, m);
        if (result != CUDA_SUCCESS)
            return refuse(mover, result, "memory", m, err);
    }
    if (memory->bytes > kv->memory_bytes[m])
        return spw_fail(err, -EINVAL, "memory %u: %lu bytes are said to be there, it has %lu", m,
                        (unsigned long)memory->bytes, (unsigned long)kv->memory_bytes[m]);
    return 0;
}

static int import_next(struct spw_kv *kv, struct spw_mover *mover,
                       const struct spw_kv_record *record, struct spw_error *err)
{
    uint32_t f = kv->next++;
    const uint8_t *bytes = fence_at(record, f);
    kv->imported = memory_at(record, 0)->kind == SPW_KV_IPC;
    if (kv->imported) {
        CUipcEventHandle handle;
        memcpy(handle.reserved, bytes, sizeof handle.reserved);
        CUresult result = mover->gpu->driver.IpcOpenEventHandle(&kv->fence[f], handle);
        if (result != CUDA_SUCCESS)
            return refuse(mover, result, "fence", f, err);
    } else {
        memcpy(&kv->fence[f], bytes, sizeof kv->fence[f]);
    }
    kv->fences = f + 1;
    return 0;
}

/* ---- planes ---------------------------------------------------------------------------------- */

static uint64_t common(uint64_t all, const struct spw_plane *plane)
{
    return all | plane->base | plane->block_stride | plane->bytes;
}

static void add_planes(struct spw_kv *kv, const struct spw_kv_tensor_record *tensor)
{
    struct spw_kv_group *group = &kv->group[tensor->group];
    struct spw_kv_shape *shape = &kv->shape;
    for (uint32_t p = 0; p < tensor->parts; p++) {
        group->plane[group->planes++] = (struct spw_plane){
            .base = kv->memory[tensor->memory] + tensor->offset + p * tensor->part_stride,
            .block_stride = tensor->block_stride,
            .before_bytes = shape->block_bytes[tensor->group],
            .bytes = tensor->part_bytes,
        };
        shape->block_bytes[tensor->group] += tensor->part_bytes;
    }
    if (shape->blocks[tensor->group] == 0 || tensor->blocks < shape->blocks[tensor->group])
        shape->blocks[tensor->group] = tensor->blocks;
}

static int make_planes(struct spw_kv *kv, struct spw_mover *mover,
                       const struct spw_kv_record *record, struct spw_error *err)
{
    uint32_t planes[SPW_GROUP_COUNT_MAX] = {0};
    for (uint32_t t = 0; t < record->tensors; t++)
        planes[tensor_at(record, t)->group] += tensor_at(record, t)->parts;
    for (uint32_t g = 0; g < SPW_GROUP_COUNT_MAX; g++) {
        if (planes[g] == 0)
            continue;
        kv->group[g].plane = calloc(planes[g], sizeof *kv->group[g].plane);
        if (!kv->group[g].plane || spw_mover_room(mover, planes[g]))
            return spw_fail(err, -ENOMEM, "no memory for %u planes", planes[g]);
    }
    for (uint32_t t = 0; t < record->tensors; t++)
        add_planes(kv, tensor_at(record, t));
    for (uint32_t g = 0; mover->slot_bytes != 0 && g < SPW_GROUP_COUNT_MAX; g++)
        if (kv->shape.block_bytes[g] > mover->slot_bytes)
            return spw_fail(err, -EINVAL, "a block of group %u has %lu bytes, a chunk at most %lu",
                            g, (unsigned long)kv->shape.block_bytes[g],
                            (unsigned long)mover->slot_bytes);
    return 0;
}

/* The kernel reads planes in device memory. A group that is refused room there does without. */
static void place_planes(struct spw_kv_group *group, struct spw_mover *mover, CUstream stream)
{
    const struct spw_driver *driver = &mover->gpu->driver;
    size_t bytes = group->planes * sizeof *group->plane;
    uint64_t all = 0;
    for (uint32_t p = 0; p < group->planes; p++)
        all = common(all, &group->plane[p]);
    group->vector_bytes = all % 16 == 0 ? 16 : 1;
    if (!spw_mover_takes_kernel(mover, group->plane, group->planes) ||
        driver->MemAlloc(&group->planes_there, bytes) != CUDA_SUCCESS) {
        group->planes_there = 0;
        return;
    }
    if (driver->MemcpyHtoDAsync(group->planes_there, group->plane, bytes, stream) != CUDA_SUCCESS ||
        driver->StreamSynchronize(stream) != CUDA_SUCCESS) {
        driver->MemFree(group->planes_there);
        group->planes_there = 0;
    }
}

/* ---- the trial ------------------------------------------------------------------------------- */

static int try_next(struct spw_kv *kv, struct spw_mover *mover, CUstream stream,
                    struct spw_error *err)
{
    uint32_t g = kv->next++;
    struct spw_kv_group *group = &kv->group[g];
    struct spw_error why = {0};
    if (group->planes == 0)
        return 0;
    place_planes(group, mover, stream);
    int status =
        spw_trial(group, kv->shape.block_bytes[g], kv->shape.blocks[g], mover, stream, &why);
    return status < 0 ? spw_fail(err, status, "a trial copy of group %u%s", g, why.text) : 0;
}

/* ---- steps ----------------------------------------------------------------------------------- */

static int step(struct spw_kv *kv, struct spw_mover *mover, const struct spw_kv_record *record,
                CUstream stream, struct spw_error *err)
{
    int status = 0;
    switch (kv->phase) {
    case SPW_KV_NONE:
        status = check(mover, record, err);
        break;
    case SPW_KV_MAPPING:
        status = map_next(kv, mover, record, err);
        if (status < 0 || kv->next < record->memories)
            return status < 0 ? status : -EAGAIN;
        status = make_planes(kv, mover, record, err);
        break;
    case SPW_KV_FENCES:
        if (kv->next < record->fences) {
            status = import_next(kv, mover, record, err);
            return status < 0 ? status : -EAGAIN;
        }
        break;
    case SPW_KV_TRYING:
        status = try_next(kv, mover, stream, err);
        if (status < 0 || kv->next < SPW_GROUP_COUNT_MAX)
            return status < 0 ? status : -EAGAIN;
        break;
    case SPW_KV_OPEN:
        return 0;
    }
    if (status < 0)
        return status;
    kv->phase++;
    kv->next = 0;
    kv->shape.fences = kv->fences;
    return kv->phase == SPW_KV_OPEN ? 0 : -EAGAIN;
}

int spw_kv_step(struct spw_kv *kv, struct spw_mover *mover, const struct spw_kv_record *record,
                CUstream stream, struct spw_error *err)
{
    int status = step(kv, mover, record, stream, err);
    if (status < 0 && status != -EAGAIN)
        spw_kv_close(kv, mover);
    return status;
}

void spw_kv_close(struct spw_kv *kv, struct spw_mover *mover)
{
    const struct spw_driver *driver = &mover->gpu->driver;
    for (uint32_t g = 0; g < SPW_GROUP_COUNT_MAX; g++) {
        if (kv->group[g].planes_there)
            driver->MemFree(kv->group[g].planes_there);
        free(kv->group[g].plane);
    }
    for (uint32_t f = 0; f < kv->fences && kv->imported; f++)
        driver->EventDestroy(kv->fence[f]);
    for (uint32_t m = 0; m < kv->memories; m++)
        if (kv->mapped[m])
            driver->IpcCloseMemHandle(kv->memory[m]);
    memset(kv, 0, sizeof *kv);
}

uint32_t spw_kv_handles(const struct spw_kv *kv)
{
    uint32_t handles = 0;
    for (uint32_t m = 0; m < kv->memories; m++)
        handles += kv->mapped[m];
    return handles;
}
