/* See worker_copier.h. */
#include "tools/worker_copier.h"

#include <stdio.h>

#include "gpu/cuda_copier.h"
#include "shm/crash_point.h"
#include "shm/text.h"
#include "tier/counters.h"
#include "tier/host_copier.h"
#include "tools/config_place.h"
#include "tools/placing.h"

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

static bool is_pinned(void *ctx, const void *start, uint64_t bytes)
{
    return spw_pin_use(ctx, start, bytes);
}

static void pinned_ended(void *ctx)
{
    spw_pin_done(ctx);
}

static int memory_health(void *ctx)
{
    return spw_pin_health(ctx);
}

static void say(void *ctx, const char *words)
{
    const struct spw_worker_copier *copier = ctx;
    spw_text_store(copier->pool->feed[copier->k]->gpu_text, SPW_GPU_TEXT_WORDS, words);
}

static void pinned(void *ctx)
{
    const struct spw_worker_copier *copier = ctx;
    spw_placing_look(copier->pool, copier->k);
}

/* Begin to pin this worker's shard, and what it copies of others'. */
static int open_pin(const struct spw_config *config, struct spw_worker_copier *copier,
                    struct spw_error *err)
{
    const struct spw_pool *pool = copier->pool;
    const uint32_t k = copier->k;
    const struct spw_geometry *geometry = &pool->geometry;
    struct spw_feed_head *feed = pool->feed[k];
    struct spw_pin_config pin = {
        .backend = spw_pin_driver(copier->gpu),
        .shards = geometry->workers,
        .k = k,
        .slot_bytes = geometry->slot_bytes,
        .cell_shift = geometry->cell_shift,
        .piece_bytes = config->pin_piece,
        .limit_ns = config->pin_limit_ns,
        .lock_fd = pool->lock_fd,
        .host_dir = config->shm_dir,
        .pinning = &pool->ctl->pinning,
        .record = &feed->gpu,
        .touched = &feed->counter[SPW_WORKER_touched_bytes],
        .say = say,
        .done = pinned,
        .ctx = copier,
    };
    for (uint32_t s = 0; s < geometry->workers; s++)
        pin.memory[s] = (struct spw_pin_memory){
            pool->data[s],
            (uint64_t)(geometry->slots >> geometry->cell_shift) * geometry->slot_bytes};
    return spw_pin_open(&pin, &copier->pin, err);
}

/* A copy on its way is not overtaken any more: few at a time, and enough to keep the engine busy. */
static int open_gpu(const struct spw_config *config, const struct spw_pool *pool, uint32_t k,
                    const struct spw_worker_copier *copier, struct spw_copier_handle *out,
                    struct spw_error *err)
{
    struct spw_feed_head *feed = pool->feed[k];
    struct spw_cuda_copier_config cuda = {
        .gpu = copier->gpu,
        .in_flight = {IN_FLIGHT, IN_FLIGHT},
        .kernel_below_bytes = (uint32_t)config->gpu_kernel_below,
        .slot_bytes = pool->geometry.slot_bytes,
        .record = &feed->gpu,
        .is_pinned = is_pinned,
        .pinned_ended = pinned_ended,
        .memory_health = memory_health,
        .ctx = copier->pin,
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
    struct spw_worker_copier *copier = out_copier;
    struct spw_feed_head *feed = pool->feed[k];
    char which[48];
    int status = 0;
    *copier = (struct spw_worker_copier){.pool = pool, .k = k};
    spw_text_store(feed->gpu_text, SPW_GPU_TEXT_WORDS, "");
    if (config->copier != SPW_CONFIG_COPIER_HOST) {
        struct spw_gpu_config gpu = {.driver =
                                         config->cuda_library[0] ? config->cuda_library : NULL,
                                     .which = spw_config_gpu(config, k, which)};
        status = spw_gpu_open(&gpu, &copier->gpu, err);
        if (status < 0 && config->copier == SPW_CONFIG_COPIER_AUTO && is_without(status)) {
            spw_text_store(feed->gpu_text, SPW_GPU_TEXT_WORDS, err->text);
            status = 0;
        }
    }
    spw_store_relaxed(&feed->gpu.pin_state, SPW_PIN_NONE); /* a predecessor's */
    if (status == 0 && copier->gpu)
        status = open_pin(config, copier, err);
    if (status == 0)
        status = copier->gpu ? open_gpu(config, pool, k, copier, &copier->handle, err)
                             : open_host(config, &copier->handle, err);
    if (status < 0) {
        spw_worker_copier_close(copier);
        return status;
    }
    publish(feed, copier);
    return 0;
}

void spw_worker_copier_close(struct spw_worker_copier *copier)
{
    if (copier->handle.ops)
        copier->handle.ops->close(copier->handle.copier);
    spw_pin_close(copier->pin);
    spw_gpu_close(copier->gpu);
    *copier = (struct spw_worker_copier){.pool = NULL};
}
