/* See touch.h. Written: page tables of this process. */
#include "gpu/touch.h"

#include <pthread.h>
#include <sys/mman.h>
#include <time.h>

#include "shm/atomic.h"
#include "shm/base.h"

#define PAGE_BYTES 4096u
#define LOOK_NS    10000000u /* between two questions whether to go on */

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

static bool create(struct share *share, const pthread_attr_t *attributes)
{
    return pthread_create(&share->thread, attributes, run_share, share) == 0;
}

static void start_share(struct share *share)
{
    const cpu_set_t *cpus = share->config->cpus;
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    if (cpus)
        pthread_attr_setaffinity_np(&attributes, sizeof *cpus, cpus);
    share->runs = create(share, &attributes);
    if (!share->runs && cpus) /* none of them may be used here */
        share->runs = create(share, NULL);
    pthread_attr_destroy(&attributes);
}

static uint64_t sum_up(struct share *share, uint32_t count)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < count; i++)
        sum += spw_load_relaxed(&share[i].touched);
    return sum;
}

/* True: it has ended. */
static bool join_soon(struct share *share)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += LOOK_NS;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    return pthread_timedjoin_np(share->thread, NULL, &until) == 0;
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
        start_share(&share[i]);
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
