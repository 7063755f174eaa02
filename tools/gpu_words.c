/* See gpu_words.h. */
#include "tools/gpu_words.h"

#include <stdio.h>

#include "shm/text.h"
#include "tier/gpu_identity.h"

const char *spw_gpu_words_name(const struct spw_feed_head *feed, uint32_t k,
                               char out[SPW_GPU_NAME_BYTES])
{
    uint8_t uuid[16];
    char text[SPW_GPU_UUID_TEXT], bus[SPW_GPU_BUS_TEXT];
    uint64_t half[2] = {spw_load_relaxed(&feed->gpu.uuid[0]), spw_load_relaxed(&feed->gpu.uuid[1])};
    spw_gpu_uuid_of_words(half, uuid);
    spw_gpu_uuid_print(uuid, text);
    spw_gpu_bus_print(spw_load_relaxed(&feed->gpu.bus), bus);
    if (half[0] == 0 && half[1] == 0)
        snprintf(out, SPW_GPU_NAME_BYTES, "worker %u's GPU", k);
    else
        snprintf(out, SPW_GPU_NAME_BYTES, "worker %u's GPU (%s, %s)", k, text, bus);
    return out;
}

const char *spw_gpu_words_text(const struct spw_feed_head *feed, char out[SPW_GPU_WORDS_BYTES])
{
    return spw_text_load(feed->gpu_text, SPW_GPU_TEXT_WORDS, out);
}

const char *spw_gpu_words_failed(const struct spw_feed_head *feed, char out[SPW_GPU_WORDS_BYTES])
{
    uint64_t flags = spw_load_relaxed(&feed->gpu.flags); /* for display */
    bool batch = flags & SPW_GPU_BATCH_FAILED, kernel = flags & SPW_GPU_KERNEL_FAILED;
    unsigned code = (unsigned)(flags >> SPW_GPU_CODE_SHIFT);
    char why[32] = "other bytes came back";
    if (code)
        snprintf(why, sizeof why, "CUDA error %u", code);
    out[0] = '\0';
    if (batch || kernel)
        snprintf(out, SPW_GPU_WORDS_BYTES, "%s failed the trial of a registration (%s): %s",
                 !kernel ? "copies by one call"
                 : batch ? "copies by one call and by the kernel"
                         : "copies by the kernel",
                 why, batch ? "they go by a call a piece" : "they go by one call");
    return out;
}
