#ifndef SPW_GPU_TOUCH_H
#define SPW_GPU_TOUCH_H
/*
 * First touch: pages of a mapping are faulted in by several threads, so that a registration finds them
 * there. Contents never change.
 *
 *   threads   live for one call, on the caller's CPUs; each has one contiguous share of the range
 *   steps     the caller is asked between steps whether to go on, so a long call ends soon
 *   crash     nothing is left
 */
#include <stdbool.h>
#include <stdint.h>

#define SPW_TOUCH_THREADS_MAX 64u
#define SPW_TOUCH_STEP_BYTES  (1ull << 20)

struct spw_touch_config {
    uint32_t threads; /* 1..SPW_TOUCH_THREADS_MAX                           */
    bool writable;    /* the mapping is: pages are made ready to be written */
    /* Asked by the calling thread every few ms, with the bytes touched so far; false: stop. NULL: on
     * to the end */
    bool (*go_on)(void *ctx, uint64_t touched_bytes);
    /* What touching is, by each of the threads: 0 or a negative errno. NULL: the pages are faulted in */
    int (*touch)(void *ctx, uint8_t *start, uint64_t bytes);
    void *ctx;
};

/**
 * Touch the pages of [@start, @start + @bytes), @start on a page. Blocks. Threads that can't be had
 * are done without. 0; -ECANCELED go_on said so; else what the first touch that failed gave: a page
 * that can't be had.
 */
int spw_touch_pages(const struct spw_touch_config *config, uint8_t *start, uint64_t bytes);

#endif
