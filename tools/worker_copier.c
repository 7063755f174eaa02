/* See worker_copier.h. */
#include "tools/worker_copier.h"

#include <stdio.h>

#include "gpu/cuda_copier.h"
#include "shm/crash_point.h"
#include "shm/text.h"
#include "tier/counters.h"
#include "tier/host_copier.h"

#define IN_FLIGHT 8u /* copies of a stream that nothing paces */

/* A store handed over is not overtaken any more. The pace is absolute, so one at a time keeps it. */
static uint32_t stores_in_flight(const struct spw_config *config)
{
    return config->store_rate != 0 ? 1 : IN_FLIGHT;
}

static int open_host(const struct spw_config *config, struct spw_copier_handle *out,
                     struct spw_error *err)
{
    struct spw_host_copier_config host = {
        .rate_bytes = {config->store_rate, config->load_rate},
        .in_flight = {stores_in_flight(config), IN_FLIGHT},
    };
    int status = spw_host_copier_open(&host, out);
    return status < 0 ? spw_fail(err, status, "the host copier can't be opened") : 0;
}

/* Payload isn't registered with the driver yet: it stages each copy. */
static bool is_pinned(void *ctx, const void *start, uint64_t bytes)
{
    return false;
}

/* A copy on its way is not overtaken any more: few at a time, and enough to keep the engine busy. */
static int open_gpu(const struct spw_config *config, struct spw_feed_head *feed,
                    struct spw_gpu *gpu, struct spw_copier_handle *out, struct spw_error *err)
{
    struct spw_cuda_copier_config cuda = {
        .gpu = gpu,
        .in_flight = {IN_FLIGHT, IN_FLIGHT},
        .kernel_below_bytes = (uint32_t)config->gpu_kernel_below,
        .record = &feed->gpu,
        .is_pinned = is_pinned,
        .unpinned = &feed->counter[SPW_WORKER_copies_unpinned],
    };
    return spw_cuda_copier_open(&cuda, out, err);
}

/* The host has no GPU that anybody could have meant. */
static bool is_without(int status)
{
    return status == -ENOENT || status == -ENOSYS || status == -ENODEV;
}

static void publish(struct spw_feed_head *feed, const struct spw_worker_copier *copier)
{
    struct spw_gpu_record *record = &feed->gpu;
    uint64_t half[2] = {0, 0};
    uint64_t bus = SPW_BUS_UNKNOWN;
    if (copier->gpu) {
        const struct spw_gpu_identity *identity = spw_gpu_identity(copier->gpu);
        spw_gpu_uuid_to_words(identity->uuid, half);
        bus = identity->bus;
    }
    /* relaxed, all but the last. Whoever reads a predecessor's kind and some of these goes to the
       worker, which knows its own GPU */
    spw_store_relaxed(&record->uuid[0], half[0]);
    spw_store_relaxed(&record->uuid[1], half[1]);
    spw_store_relaxed(&record->bus, bus);
    SPW_CRASH_POINT("worker.gpu_named");
    /* [GR-1] release: the record before its kind */
    spw_store_release(&record->kind, copier->gpu ? SPW_COPIER_CUDA : SPW_COPIER_HOST);
}

int spw_worker_copier_open(const struct spw_config *config, struct spw_pool *pool, uint32_t k,
                           struct spw_worker_copier *out_copier, struct spw_error *err)
{
    struct spw_worker_copier copier = {.gpu = NULL};
    struct spw_feed_head *feed = pool->feed[k];
    char which[8];
    int status = 0;
    spw_text_store(feed->gpu_text, SPW_GPU_TEXT_WORDS, "");
    if (config->copier != SPW_CONFIG_COPIER_HOST) {
        snprintf(which, sizeof which, "%u", k);
        struct spw_gpu_config gpu = {
            .driver = config->cuda_library[0] ? config->cuda_library : NULL, .which = which};
        status = spw_gpu_open(&gpu, &copier.gpu, err);
        if (status < 0 && config->copier == SPW_CONFIG_COPIER_AUTO && is_without(status)) {
            spw_text_store(feed->gpu_text, SPW_GPU_TEXT_WORDS, err->text);
            status = 0;
        }
    }
    if (status == 0)
        status = copier.gpu ? open_gpu(config, feed, copier.gpu, &copier.handle, err)
                            : open_host(config, &copier.handle, err);
    if (status < 0) {
        spw_worker_copier_close(&copier);
        return status;
    }
    publish(feed, &copier);
    *out_copier = copier;
    return 0;
}

void spw_worker_copier_close(struct spw_worker_copier *copier)
{
    if (copier->handle.ops)
        copier->handle.ops->close(copier->handle.copier);
    spw_gpu_close(copier->gpu);
}
