#ifndef SPW_BENCH_GPU_GROUND_H
#define SPW_BENCH_GPU_GROUND_H
/*
 * What copies run between: device memory of this process, as of an engine that runs its worker inside,
 * and slots in pinned host memory. And the plain copies that others are held against.
 */
#include "bench/gpu/check.h"
#include "bench/gpu/model.h"

struct check_ground {
    struct check *check;
    CUdeviceptr memory;
    uint64_t memory_bytes;
    uint8_t *slots;
    uint64_t slots_bytes;
    bool pinned;
    CUstream stream; /* of its own; nothing of gpu/ runs there */
};

/** Either may be 0: none. 0, or a negative errno with words. */
int check_ground_open(struct check *check, uint64_t memory_bytes, uint64_t slots_bytes,
                      struct check_ground *out);
/** What was zeroed is fine. */
void check_ground_close(struct check_ground *ground);

/* Whole and waited for, by plain copies. */
int check_ground_write(struct check_ground *ground, const uint8_t *bytes, uint64_t count);
int check_ground_read(struct check_ground *ground, uint8_t *bytes, uint64_t count);
int check_ground_set(struct check_ground *ground, uint8_t value);

/** One plain copy of @count bytes between the slots and @at; how long it took. */
int check_ground_big(struct check_ground *ground, bool is_store, CUdeviceptr at, uint64_t count,
                     uint64_t *out_ns);

/** The registration of @kv in this memory; NULL: no memory. */
struct spw_kv_record *check_ground_record(const struct check_ground *ground,
                                          const struct check_kv *kv);

#endif
