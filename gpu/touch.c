/* See touch.h. Written: page tables of this process. */
#include "gpu/touch.h"

#include <pthread.h>
#include <sys/mman.h>
#include <time.h>

#include "shm/atomic.h"
#include "shm/base.h"

#define PAGE_BYTES 4096u
#define LOOK_NS    1000000 /* between two questions whether to go on */

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ  22 /* Linux 5.14 */
#define MADV_POPULATE_WRITE 23
#endif

/* One thread's part. */
struct share {
    const struct spw_touch_config *config;
    const spw_atomic32 *stop;
    uint8_t *start;
    uint64_t bytes;
    spw_atomic64 touched; /* written by that thread */
    int status;           /* likewise, read when it has ended */
    bool runs;
    pthread_t thread;
};

/* ---- one thread ------------------------------------------------------------------------------ */

static void read_pages(const uint8_t *start, uint64_t bytes)
{
    for (uint64_t off = 0; off < bytes; off += PAGE_BYTES)
        (void)*(const volatile uint8_t *)(start + off);
}

static int fault_in(const struct spw_touch_config *config, uint8_t *start, uint64_t bytes)
{
    int advice = config->writable ? MADV_POPULATE_WRITE : MADV_POPULATE_READ;
    if (madvise(start, bytes, advice) == 0)
        return 0;
    if (errno != EINVAL) /* a kernel that doesn't know it */
        return -errno;
    read_pages(start, bytes);
    return 0;
}

static void *run_share(void *arg)
{
    struct share *share = arg;
    const struct spw_touch_config *config = share->config;
    uint64_t off = 0;
    /* relaxed: it only has to be seen some time */
    while (off < share->bytes && share->status == 0 && !spw_load_relaxed(share->stop)) {
        uint64_t left = share->bytes - off;
        uint64_t step = left < SPW_TOUCH_STEP_BYTES ? left : SPW_TOUCH_STEP_BYTES;
        share->status = config->touch ? config->touch(config->ctx, share->start + off, step)
                                      : fault_in(config, share->start + off, step);
        off += step;
        spw_store_relaxed(&share->touched, off); /* a number to look at */
    }
    return NULL;
}

/* ---- all of them ----------------------------------------------------------------------------- */

static uint64_t sum_up(struct share *share, uint32_t count)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < count; i++)
        sum += spw_load_relaxed(&share[i].touched);
    return sum;
}

/* True: it has ended. Looked at anew rather than waited for by a clock that people set. */
static bool join_soon(struct share *share)
{
    if (pthread_tryjoin_np(share->thread, NULL) == 0)
        return true;
    nanosleep(&(struct timespec){0, LOOK_NS}, NULL);
    return pthread_tryjoin_np(share->thread, NULL) == 0;
}

/* Cut into shares of whole pages; returns how many there are. */
static uint32_t cut(const struct spw_touch_config *config, uint8_t *start, uint64_t bytes,
                    const spw_atomic32 *stop, struct share *share)
{
    uint64_t each = spw_align_up((bytes + config->threads - 1) / config->threads, PAGE_BYTES);
    uint32_t count = 0;
    for (uint64_t off = 0; off < bytes; off += each)
        share[count++] = (struct share){.config = config,
                                        .stop = stop,
                                        .start = start + off,
                                        .bytes = bytes - off < each ? bytes - off : each};
    return count;
}

int spw_touch_pages(const struct spw_touch_config *config, uint8_t *start, uint64_t bytes)
{
    struct share share[SPW_TOUCH_THREADS_MAX];
    spw_atomic32 stop = 0;
    int status = 0;
    if (config->threads == 0 || config->threads > SPW_TOUCH_THREADS_MAX)
        return -EINVAL;
    uint32_t count = cut(config, start, bytes, &stop, share);
    for (uint32_t i = 0; i < count; i++)
        share[i].runs = pthread_create(&share[i].thread, NULL, run_share, &share[i]) == 0;
    for (uint32_t i = 0; i < count; i++) {
        if (!share[i].runs)
            run_share(&share[i]);
        else
            while (!join_soon(&share[i]))
                if (config->go_on && !config->go_on(config->ctx, sum_up(share, count)))
                    spw_store_relaxed(&stop, 1);
        if (status == 0)
            status = share[i].status;
    }
    if (status == 0 && sum_up(share, count) < bytes)
        return -ECANCELED;
    return status;
}
