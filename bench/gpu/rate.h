#ifndef SPW_BENCH_GPU_RATE_H
#define SPW_BENCH_GPU_RATE_H
/*
 * What sections that measure have in common: much KV in random blocks, slots for a sample of chunks of
 * it, and the bytes of each sample verified.
 */
#include "bench/bench.h"
#include "bench/gpu/ground.h"
#include "bench/gpu/way.h"

/** Chunks of @chunk_bytes that are made of pieces of @piece_bytes; both powers of two. */
struct check_cut {
    uint32_t chunk_bytes;
    uint32_t piece_bytes;
};

struct check_rate {
    struct check *check;
    struct check_ground ground;
    struct check_cut cut;
    struct check_kv *kv;
    uint32_t *blocks; /* of a sample: chunks * count, each of them once */
    uint32_t chunks, count;
    uint8_t *model;        /* what the KV holds, sample_bytes * 2 at most       */
    uint64_t sample_bytes; /* and as much of slots                              */
    CUdeviceptr other;     /* sample_bytes of device memory, for one big copy   */
};

/** Memory for samples of @sample_bytes. 0, or a negative errno with words. */
int check_rate_open(struct check *check, uint64_t sample_bytes, struct check_rate *out);
void check_rate_close(struct check_rate *rate);
/** From now on cut so: the KV is laid and filled anew. */
int check_rate_cut(struct check_rate *rate, const struct check_cut *cut);
/** A sample by @way: bytes a second into @series. */
int check_rate_sample(struct check_rate *rate, struct check_way *way, enum spw_copy_kind kind,
                      struct spw_bench_series *series);
/** The same bytes in one big copy. */
int check_rate_big(struct check_rate *rate, enum spw_copy_kind kind,
                   struct spw_bench_series *series);
/** After a store: do the slots hold what they must? -EBADMSG with words. */
int check_rate_verify(struct check_rate *rate, const char *what);
/** Fill the KV with other bytes, load, store, and verify that. */
int check_rate_verify_loads(struct check_rate *rate, struct check_way *way);

/** "store, chunks of 1 MiB in pieces of 64 KiB" */
void check_cut_name(const struct check_cut *cut, enum spw_copy_kind kind, char *out, size_t bytes);

#endif
