#ifndef SPW_BENCH_GPU_CHECK_H
#define SPW_BENCH_GPU_CHECK_H
/*
 * spw-gpu-check: are copies by this GPU right, in order and fast? All by the product's own code in gpu/;
 * what must come out is said anew in model.h. One thread, and a watchdog.
 *
 * A section adds lines to the report as it goes. It returns 0; -ETIME: there is no time left for the
 * rest; else a call that it can't do without was refused, with words in check->err.
 */
#include "bench/gpu/report.h"
#include "gpu/gpu_impl.h"

struct check {
    struct check_report report;
    struct spw_gpu *gpu;
    const char *driver; /* its file, or NULL     */
    bool small;         /* tiny sizes            */
    uint64_t until_ns;  /* no case begins later  */
    uint64_t random;    /* state                 */
    struct spw_error err;
};

int check_layouts(struct check *check);
int check_ipc(struct check *check);
int check_fences(struct check *check);
int check_pinning(struct check *check);
/** Copies beside the seams of four registrations of @bytes each; told as a line of its own. */
void check_seams(struct check *check, uint64_t bytes);
int check_bandwidth(struct check *check);
int check_kernel(struct check *check);
int check_beside(struct check *check);

/** What this program does as the engine's process (peer.h), which is its first argument then; returns
 * its exit status. */
#define CHECK_PEER_WORD "--as-engine"
int check_peer_main(int argc, char **argv);

/** 0 for CUDA_SUCCESS; else a negative errno, and words of @what in check->err. */
int check_driver(struct check *check, CUresult result, const char *what);
/** 0, or -ETIME. */
int check_time(const struct check *check);
/** @full, or @small in a short run. */
static inline uint64_t check_size(const struct check *check, uint64_t full, uint64_t small)
{
    return check->small ? small : full;
}
/** Bytes that look random; the same for the same @seed. */
void check_fill(uint8_t *bytes, uint64_t count, uint64_t seed);
/** @count distinct ids below @of, in random order. -ENOMEM. */
int check_choose(struct check *check, uint32_t *ids, uint32_t count, uint32_t of);

#endif
