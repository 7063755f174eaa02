/* See trial.h. */
#include "gpu/trial.h"

#include <stdlib.h>
#include <string.h>

#define TRIAL_BLOCKS 2u

enum way { EACH, BATCH, KERNEL };

/* Memory for the blocks three times over: what was there, what is written, what comes back. They are
 * the last one and the first: not neighbours, so that more than one piece moves. */
struct trial {
    struct spw_mover *mover;
    const struct spw_kv_group *group;
    CUstream stream;
    uint8_t *old, *pattern, *got;
    uint32_t *blocks_seen;
    uint32_t blocks[TRIAL_BLOCKS];
    uint32_t count;
    uint64_t bytes;
    void *start;
    CUresult registered; /* CUDA_SUCCESS, or why it isn't: a call a piece does without */
};

static int refuse(const struct trial *trial, CUresult result, struct spw_error *err)
{
    return spw_fail(err, spw_driver_errno(result), ": %s",
                    spw_driver_word(&trial->mover->gpu->driver, result));
}

static int trial_open(struct trial *trial, uint64_t block_bytes, uint32_t blocks)
{
    trial->count = blocks < TRIAL_BLOCKS ? blocks : TRIAL_BLOCKS;
    trial->blocks[0] = blocks - 1;
    trial->bytes = trial->count * block_bytes;
    uint64_t bytes = spw_align_up(trial->bytes, 4096);
    trial->start = aligned_alloc(4096, 4 * bytes);
    if (!trial->start)
        return -ENOMEM;
    trial->old = trial->start;
    trial->pattern = trial->old + bytes;
    trial->got = trial->pattern + bytes;
    trial->blocks_seen = (uint32_t *)(trial->got + bytes);
    /* this process's own and small: no turn (gpu/pin.h) */
    trial->registered = trial->mover->gpu->driver.MemHostRegister(trial->start, 4 * bytes, 0);
    for (uint64_t i = 0; i < trial->bytes; i++)
        trial->pattern[i] = (uint8_t)(i * 31 + i / 251 + 7);
    return 0;
}

static void trial_close(struct trial *trial)
{
    if (trial->start && trial->registered == CUDA_SUCCESS)
        trial->mover->gpu->driver.MemHostUnregister(trial->start);
    free(trial->start);
}

static CUresult run_one(const struct trial *trial, enum spw_copy_kind kind, uint8_t *slot,
                        enum way way)
{
    struct spw_move move = {
        .kind = kind,
        .plane = trial->group->plane,
        .planes = trial->group->planes,
        .planes_there = trial->group->planes_there,
        .vector_bytes = trial->group->vector_bytes,
        .blocks = trial->blocks,
        .blocks_seen = trial->blocks_seen,
        .count = trial->count,
        .slot = slot,
        .pinned = true,
        .one_by_one = way == EACH,
    };
    CUresult result = spw_mover_queue(trial->mover, &move, way == KERNEL, trial->stream);
    CUresult ended = trial->mover->gpu->driver.StreamSynchronize(trial->stream);
    return result != CUDA_SUCCESS ? result : ended;
}

/* Keep, write, read back, put back. What was there is kept and put back by a call a piece, whatever
 * happens in between: the way that is being tried may fail at any call, or move other bytes. Returns
 * what became of the plain copies; of the way: *out_way, and whether it moved the right bytes. */
static CUresult try_way(const struct trial *trial, enum way way, CUresult *out_way, bool *out_equal)
{
    memset(trial->got, 0, trial->bytes);
    CUresult kept = run_one(trial, SPW_COPY_STORE, trial->old, EACH);
    if (kept != CUDA_SUCCESS)
        return kept;
    *out_way = run_one(trial, SPW_COPY_LOAD, trial->pattern, way);
    if (*out_way == CUDA_SUCCESS)
        *out_way = run_one(trial, SPW_COPY_STORE, trial->got, way);
    *out_equal = memcmp(trial->got, trial->pattern, trial->bytes) == 0;
    return run_one(trial, SPW_COPY_LOAD, trial->old, EACH);
}

/* Must work. */
static int try_each(const struct trial *trial, struct spw_error *err)
{
    CUresult way = CUDA_SUCCESS;
    bool equal = false;
    CUresult result = try_way(trial, EACH, &way, &equal);
    if (way != CUDA_SUCCESS || result != CUDA_SUCCESS)
        return refuse(trial, way != CUDA_SUCCESS ? way : result, err);
    return equal ? 0 : spw_fail(err, -EIO, " came back with other bytes");
}

/* Work or be left out. Refused only where what was there can't be put back. */
static int try_better(const struct trial *trial, enum way way, uint32_t failed,
                      struct spw_kv_group *group, struct spw_error *err)
{
    CUresult of_way = trial->registered, result = CUDA_SUCCESS;
    bool equal = false;
    if (of_way == CUDA_SUCCESS)
        result = try_way(trial, way, &of_way, &equal);
    if (result != CUDA_SUCCESS)
        return refuse(trial, result, err);
    if (of_way == CUDA_SUCCESS && equal)
        return 0;
    group->code = group->failed ? group->code : of_way;
    group->failed |= failed;
    return 0;
}

int spw_trial(struct spw_kv_group *group, uint64_t block_bytes, uint32_t blocks,
              struct spw_mover *mover, CUstream stream, struct spw_error *err)
{
    struct trial trial = {.mover = mover, .group = group, .stream = stream};
    int status = trial_open(&trial, block_bytes, blocks);
    if (status < 0)
        return spw_fail(err, status, ": no memory");
    status = try_each(&trial, err);
    if (status == 0 && spw_mover_has_batch(mover))
        status = try_better(&trial, BATCH, SPW_GPU_BATCH_FAILED, group, err);
    if (status == 0 && group->planes_there)
        status = try_better(&trial, KERNEL, SPW_GPU_KERNEL_FAILED, group, err);
    trial_close(&trial);
    group->one_by_one = (group->failed & SPW_GPU_BATCH_FAILED) != 0;
    if (group->failed & SPW_GPU_KERNEL_FAILED) {
        mover->gpu->driver.MemFree(group->planes_there);
        group->planes_there = 0;
    }
    return status;
}
