/* See way.h. */
#include "bench/gpu/way.h"

#include <string.h>

#define IN_FLIGHT 8u /* as a worker has it */
#define ENDS      16
#define STUCK_NS  20000000000ull /* nothing has ended for so long */

static const char *const names[CHECK_WAYS] = {"a call a piece", "batch call", "kernel"};

const char *check_by_name(enum check_by by)
{
    return names[by];
}

static bool is_pinned(void *ctx, const void *start, uint64_t bytes)
{
    const struct check_way *way = ctx;
    return way->by != CHECK_BY_PIECE;
}

static int require(struct check_way *way)
{
    uint64_t flags = spw_load_relaxed(&way->record.flags);
    struct spw_error *err = &way->check->err;
    if (way->by == CHECK_BY_BATCH && !(flags & SPW_GPU_BATCH))
        return spw_fail(err, -ENOTSUP, "the driver has no batch call; 12.8 and later have");
    if (way->by == CHECK_BY_KERNEL && !(flags & SPW_GPU_KERNEL))
        return spw_fail(err, -ENOTSUP,
                        "no kernel: built without nvcc, or the driver doesn't load it");
    return 0;
}

int check_way_open(struct check *check, enum check_by by, const struct spw_kv_record *record,
                   struct check_way *out)
{
    *out = (struct check_way){.check = check, .by = by};
    struct spw_cuda_copier_config config = {
        .gpu = check->gpu,
        .in_flight = {IN_FLIGHT, IN_FLIGHT},
        .kernel_below_bytes = by == CHECK_BY_KERNEL ? UINT32_MAX : 0,
        .record = &out->record,
        .is_pinned = is_pinned,
        .ctx = out,
    };
    if (!record)
        return spw_fail(&check->err, -ENOMEM, "no memory for a registration");
    int status = spw_cuda_copier_open(&config, &out->copier, &check->err);
    if (status == 0 && (status = require(out)) == 0)
        do
            status =
                out->copier.ops->kv_open(out->copier.copier, 0, record, &out->shape, &check->err);
        while (status == -EAGAIN);
    if (status < 0)
        check_way_close(out);
    out->before = check_calls_so_far();
    return status;
}

void check_way_close(struct check_way *way)
{
    if (way->copier.ops)
        way->copier.ops->close(way->copier.copier);
    way->copier.ops = NULL;
}

int check_way_kept(struct check_way *way)
{
    struct check_calls now = check_calls_so_far();
    bool kept = now.launches == way->before.launches && now.batches == way->before.batches;
    if (way->by == CHECK_BY_BATCH)
        kept = now.batches != way->before.batches;
    else if (way->by == CHECK_BY_KERNEL)
        kept = now.launches != way->before.launches;
    way->before = now;
    return kept
               ? 0
               : spw_fail(
                     &way->check->err, -EIO,
                     "copies went another way: tried at the registration, this one failed or moved "
                     "other bytes");
}

int check_way_submit(struct check_way *way, enum spw_copy_kind kind, uint8_t *slot,
                     const uint32_t *blocks, uint32_t count, void *tag)
{
    struct spw_copy copy = {
        .kind = kind,
        .pieces = count,
        .piece_bytes = (uint32_t)way->shape.block_bytes[0],
        .blocks = blocks,
        .slot = slot,
        .tag = tag,
    };
    int status = way->copier.ops->submit(way->copier.copier, &copy);
    return status == -EAGAIN || status == 0
               ? status
               : spw_fail(&way->check->err, status, "a copy is not taken: %s", strerror(-status));
}

int check_way_poll(struct check_way *way, struct spw_copy_end *out, int max)
{
    int ended = way->copier.ops->poll(way->copier.copier, spw_monotonic_ns(), out, max);
    for (int i = 0; i < ended; i++)
        if (out[i].status < 0)
            return spw_fail(&way->check->err, out[i].status, "a copy ended with an error: %s",
                            strerror(-out[i].status));
    return ended;
}

static int submit_next(struct check_way *way, const struct check_run *run, uint32_t next)
{
    return check_way_submit(way, run->kind,
                            run->slots + next * run->count * way->shape.block_bytes[0],
                            run->blocks + (uint64_t)next * run->count, run->count, NULL);
}

int check_way_run(struct check_way *way, const struct check_run *run, uint64_t *out_ns)
{
    struct spw_copy_end end[ENDS];
    uint64_t begin = spw_monotonic_ns(), progress = begin;
    uint32_t next = 0, done = 0;
    while (done < run->chunks) {
        int status = 0;
        while (next < run->chunks && (status = submit_next(way, run, next)) == 0)
            next++;
        if (status < 0 && status != -EAGAIN)
            return status;
        status = check_way_poll(way, end, ENDS);
        if (status < 0)
            return status;
        if (status > 0)
            progress = spw_monotonic_ns();
        else if (spw_monotonic_ns() - progress > STUCK_NS)
            return spw_fail(&way->check->err, -ETIMEDOUT, "no copy has ended for %u s",
                            (unsigned)(STUCK_NS / 1000000000u));
        done += (uint32_t)status;
    }
    *out_ns = spw_monotonic_ns() - begin;
    return 0;
}
