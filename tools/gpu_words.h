#ifndef SPW_TOOLS_GPU_WORDS_H
#define SPW_TOOLS_GPU_WORDS_H
/*
 * What a worker's feed says of its GPU, in words, for the daemon and the tools. Reads only.
 */
#include "shm/layout.h"

#define SPW_GPU_NAME_BYTES  96u
#define SPW_GPU_WORDS_BYTES (SPW_GPU_TEXT_WORDS * 8u)

/** "worker 0's GPU (GPU-..., 0000:3b:00.0)", without the brackets as long as it hasn't said which; returns
 * @out. */
const char *spw_gpu_words_name(const struct spw_feed_head *feed, uint32_t k,
                               char out[SPW_GPU_NAME_BYTES]);
/** Which ways to copy failed a registration's trial, "" for none; returns @out. */
const char *spw_gpu_words_failed(const struct spw_feed_head *feed, char out[SPW_GPU_WORDS_BYTES]);
/** Why it works otherwise than asked for, "" for no reason; returns @out. */
const char *spw_gpu_words_text(const struct spw_feed_head *feed, char out[SPW_GPU_WORDS_BYTES]);

#endif
