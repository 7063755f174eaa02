/* See show_gpu.h. Reads each word of a record by itself: a picture of moving things. */
#include "tools/show_gpu.h"

#include <inttypes.h>
#include <stdio.h>

#include "tier/gpu_identity.h"
#include "tools/gpu_words.h"

static const char *word(const char *const *words, uint64_t count, uint64_t i)
{
    return i < count ? words[i] : "?";
}

static const char *kind_word(uint64_t kind)
{
    static const char *const words[] = {"unknown", "host", "cuda"};
    return word(words, 3, kind);
}

static const char *pin_word(uint64_t state)
{
    static const char *const words[] = {"none", "running", "done", "refused"};
    return word(words, 4, state);
}

static uint64_t get(const spw_atomic64 *at)
{
    return spw_load_relaxed(at);
}

static bool is_gpu(const struct spw_feed_head *feed)
{
    return get(&feed->gpu.kind) == SPW_COPIER_CUDA;
}

uint32_t spw_show_gpu_pinned(const struct spw_pool *pool)
{
    uint32_t pinned = 0;
    for (uint32_t k = 0; k < pool->geometry.workers; k++)
        pinned += get(&pool->feed[k]->gpu.pin_state) == SPW_PIN_DONE;
    return pinned;
}

static void print_one(uint32_t k, const struct spw_feed_head *feed)
{
    const struct spw_gpu_record *gpu = &feed->gpu;
    char name[SPW_GPU_NAME_BYTES], text[SPW_GPU_WORDS_BYTES], node[16] = "-";
    if (get(&gpu->node))
        snprintf(node, sizeof node, "%" PRIu64, get(&gpu->node) - 1);
    printf("%6u %8s %8s %12.1f %12.1f %5s  %s\n", k, kind_word(get(&gpu->kind)),
           pin_word(get(&gpu->pin_state)), (double)get(&gpu->pinned_bytes) / 1e6,
           (double)get(&gpu->pin_total_bytes) / 1e6, node,
           is_gpu(feed) ? spw_gpu_words_name(feed, k, name) : "-");
    if (spw_gpu_words_text(feed, text)[0])
        printf("%6s %s\n", "", text);
    if (spw_gpu_words_failed(feed, text)[0])
        printf("%6s %s\n", "", text);
}

void spw_show_gpu_text(const struct spw_pool *pool)
{
    bool any = false;
    for (uint32_t k = 0; k < pool->geometry.workers; k++)
        any = any || is_gpu(pool->feed[k]);
    if (!any)
        return;
    printf("\npinned: %u of %u\n", spw_show_gpu_pinned(pool), pool->geometry.workers);
    printf("%6s %8s %8s %12s %12s %5s  %s\n", "worker", "copier", "pinning", "pinned MB", "of MB",
           "node", "GPU");
    for (uint32_t k = 0; k < pool->geometry.workers; k++)
        print_one(k, pool->feed[k]);
}

static json_t *identity_json(const struct spw_gpu_record *gpu)
{
    uint64_t half[2] = {get(&gpu->uuid[0]), get(&gpu->uuid[1])};
    char uuid[SPW_GPU_UUID_TEXT], bus[SPW_GPU_BUS_TEXT];
    uint8_t bytes[16];
    spw_gpu_uuid_of_words(half, bytes);
    spw_gpu_uuid_print(bytes, uuid);
    spw_gpu_bus_print(get(&gpu->bus), bus);
    return json_pack("{s:s, s:s}", "uuid", uuid, "bus", bus);
}

json_t *spw_show_gpu_json(const struct spw_pool *pool, uint32_t k)
{
    const struct spw_feed_head *feed = pool->feed[k];
    const struct spw_gpu_record *gpu = &feed->gpu;
    char text[SPW_GPU_WORDS_BYTES];
    uint64_t flags = get(&gpu->flags);
    json_t *out = json_pack(
        "{s:s, s:o, s:s, s:I, s:I, s:I, s:I, s:b, s:b, s:b, s:b, s:I}", "copier",
        kind_word(get(&gpu->kind)), "gpu", is_gpu(feed) ? identity_json(gpu) : json_null(),
        "pin_state", pin_word(get(&gpu->pin_state)), "pinned_bytes",
        (json_int_t)get(&gpu->pinned_bytes), "pin_total_bytes",
        (json_int_t)get(&gpu->pin_total_bytes), "handles_open", (json_int_t)get(&gpu->handles_open),
        "kernel_below_bytes", (json_int_t)get(&gpu->kernel_below_bytes), "batched",
        (flags & SPW_GPU_BATCH) != 0, "kernel", (flags & SPW_GPU_KERNEL) != 0, "batch_failed",
        (flags & SPW_GPU_BATCH_FAILED) != 0, "kernel_failed", (flags & SPW_GPU_KERNEL_FAILED) != 0,
        "trial_error", (json_int_t)(flags >> SPW_GPU_CODE_SHIFT));
    json_t *words = json_string(spw_gpu_words_text(feed, text));
    json_object_set_new(out, "text", words ? words : json_null()); /* a worker's bytes: any */
    return out;
}
