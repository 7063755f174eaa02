#ifndef SPW_TOOLS_WARM_H
#define SPW_TOOLS_WARM_H
/*
 * What a warm start found, and what is left of it: chunks and spaces of the pool before.
 *
 *   roles     the daemon, while it makes its pool and until its workers are up
 */
#include "shm/pool.h"

/** READY entries of all shards: of each space, and in all, those of no possible space too. */
struct spw_warm_count {
    uint64_t chunks;
    uint64_t of_space[SPW_SPACES_MAX];
};

/** Count them. An entry is taken at its word: workers check it when they adopt. */
void spw_warm_count(const struct spw_pool *pool, struct spw_warm_count *out_count);

/** For spw_pool_create(): of the spaces of @old, keep those that are sound and that some READY
 * entry is of or that have shares; a damaged one is named in the log. @ctx a struct spw_warm_count that is filled. */
void spw_warm_keep_spaces(void *ctx, struct spw_pool *pool, const struct spw_ctl *old);

/** Say in one line what became of @before, when all workers have adopted their shards. */
void spw_warm_report(const struct spw_pool *pool, const struct spw_warm_count *before);

#endif
