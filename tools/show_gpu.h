#ifndef SPW_TOOLS_SHOW_GPU_H
#define SPW_TOOLS_SHOW_GPU_H
/*
 * What `spillway stat` shows of the workers' GPUs: which, what of their memory is pinned, where they run.
 */
#include <jansson.h>

#include "shm/pool.h"

/** A table, where a worker of @pool copies by a GPU or wanted to; else nothing. */
void spw_show_gpu_text(const struct spw_pool *pool);
/** Of worker @k; a new reference. */
json_t *spw_show_gpu_json(const struct spw_pool *pool, uint32_t k);
/** Workers whose shard is pinned as a whole. */
uint32_t spw_show_gpu_pinned(const struct spw_pool *pool);

#endif
