#ifndef SPW_BENCH_GPU_WAY_H
#define SPW_BENCH_GPU_WAY_H
/*
 * One way to copy: a copier of gpu/ of its own, set so that it can go no other way, with one client's KV
 * registered, driven as a worker does. That it went that way is told by what was called.
 */
#include "bench/gpu/check.h"
#include "bench/gpu/counted.h"
#include "bench/gpu/model.h"
#include "gpu/cuda_copier.h"

enum check_by {
    CHECK_BY_PIECE,  /* slots that aren't pinned: a call a piece */
    CHECK_BY_BATCH,  /* pinned, no kernel                        */
    CHECK_BY_KERNEL, /* pinned, all pieces small enough          */
    CHECK_WAYS
};

struct check_way { /* does not move while it is open */
    struct check *check;
    enum check_by by;
    struct spw_copier_handle copier;
    struct spw_kv_shape shape;
    struct spw_gpu_record record;
    struct check_calls before;
};

const char *check_by_name(enum check_by by);
/** Register @record and be ready. 0; -ENOTSUP with words: this driver or build has no such way; else
 * refused, with words. */
int check_way_open(struct check *check, enum check_by by, const struct spw_kv_record *record,
                   struct check_way *out);
/** What was zeroed is fine. */
void check_way_close(struct check_way *way);
/** 0, or -EIO with words: since it was opened something else was called. */
int check_way_kept(struct check_way *way);

/** Hand one chunk over; -EAGAIN as many are on their way as may be. */
int check_way_submit(struct check_way *way, enum spw_copy_kind kind, uint8_t *slot,
                     const uint32_t *blocks, uint32_t count, void *tag);
/** Ends that are there: how many, or a negative errno with words, of the first that failed. */
int check_way_poll(struct check_way *way, struct spw_copy_end *out, int max);

/** Chunks one behind the other in @slots, of @count blocks each. */
struct check_run {
    enum spw_copy_kind kind;
    uint8_t *slots;
    const uint32_t *blocks; /* chunks * count of them */
    uint32_t chunks, count;
};
/** All of them, as many at once as may be; from the first submit to the last end. 0, or a negative
 * errno with words. */
int check_way_run(struct check_way *way, const struct check_run *run, uint64_t *out_ns);

#endif
