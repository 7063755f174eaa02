/* See gpu_words.h. */
#include "tools/gpu_words.h"

#include <stdio.h>
#include <string.h>

#include "tier/gpu_identity.h"

const char *spw_gpu_words_name(const struct spw_feed_head *feed, uint32_t k,
                               char out[SPW_GPU_NAME_BYTES])
{
    uint8_t uuid[16];
    char text[SPW_GPU_UUID_TEXT], bus[SPW_GPU_BUS_TEXT];
    uint64_t half[2] = {spw_load_relaxed(&feed->gpu.uuid[0]), spw_load_relaxed(&feed->gpu.uuid[1])};
    for (uint32_t i = 0; i < 16; i++)
        uuid[i] = (uint8_t)(half[i / 8] >> (56 - 8 * (i % 8)));
    spw_gpu_uuid_print(uuid, text);
    spw_gpu_bus_print(spw_load_relaxed(&feed->gpu.bus), bus);
    if (half[0] == 0 && half[1] == 0)
        snprintf(out, SPW_GPU_NAME_BYTES, "gpu%u", k);
    else
        snprintf(out, SPW_GPU_NAME_BYTES, "gpu%u (%s, %s)", k, text, bus);
    return out;
}

const char *spw_gpu_words_text(const struct spw_feed_head *feed, char out[SPW_GPU_WORDS_BYTES])
{
    for (uint32_t i = 0; i < SPW_GPU_TEXT_WORDS; i++) {
        uint64_t word = spw_load_relaxed(&feed->gpu_text[i]);
        memcpy(out + i * sizeof word, &word, sizeof word);
    }
    out[SPW_GPU_WORDS_BYTES - 1] = '\0';
    return out;
}

void spw_gpu_words_set(struct spw_feed_head *feed, const char *text)
{
    char bytes[SPW_GPU_TEXT_WORDS * 8] = "";
    snprintf(bytes, sizeof bytes, "%s", text);
    for (uint32_t i = 0; i < SPW_GPU_TEXT_WORDS; i++) {
        uint64_t word;
        memcpy(&word, bytes + i * sizeof word, sizeof word);
        spw_store_relaxed(&feed->gpu_text[i], word);
    }
}
