#ifndef SPW_TIER_GPU_IDENTITY_H
#define SPW_TIER_GPU_IDENTITY_H
/*
 * What a GPU is called: its UUID and its PCI address are the same in every process, whatever
 * CUDA_VISIBLE_DEVICES says; its ordinal is not. Pure.
 */
#include <stdbool.h>
#include <stdint.h>

#define SPW_GPU_UUID_TEXT 41u /* "GPU-" and 36 characters and NUL */
#define SPW_GPU_BUS_TEXT  16u /* "0000:3b:00.0"                   */

struct spw_gpu_identity {
    uint8_t uuid[16];
    uint64_t bus; /* domain << 16 | bus << 8 | device << 3 | function; UINT64_MAX = unknown */
    int ordinal;  /* in the process that says so                                             */
    char name[64];
};

/** "GPU-8-4-4-4-12" in lower-case hexadecimal digits. */
void spw_gpu_uuid_print(const uint8_t uuid[16], char out[SPW_GPU_UUID_TEXT]);
/** The same back, in either case, with or without "GPU-". False: @text is something else. */
bool spw_gpu_uuid_parse(const char *text, uint8_t out_uuid[16]);
/** A UUID as two words of shared memory, most significant byte first, and back. */
void spw_gpu_uuid_to_words(const uint8_t uuid[16], uint64_t out[2]);
void spw_gpu_uuid_of_words(const uint64_t words[2], uint8_t out_uuid[16]);
/** "0000:3b:00.0"; "?" for an unknown one. */
void spw_gpu_bus_print(uint64_t bus, char out[SPW_GPU_BUS_TEXT]);
/** The same back, in either case, the domain may be left out or have eight digits. */
bool spw_gpu_bus_parse(const char *text, uint64_t *out_bus);
/** Is it the one that @which names: a UUID, a PCI address or an ordinal? */
bool spw_gpu_matches(const struct spw_gpu_identity *gpu, const char *which);
/** Does @which read as one of the three at all? */
bool spw_gpu_which_is_valid(const char *which);

#endif
