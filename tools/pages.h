#ifndef SPW_TOOLS_PAGES_H
#define SPW_TOOLS_PAGES_H
/*
 * Huge pages as configured: tried when the pool is made, measured, and said.
 */
#include "shm/pool.h"
#include "tools/config.h"

/** Daemon, before its workers start: huge pages under all payload, if wanted. 0, or -ENOMEM: they
 * are to be had always, and aren't; words are said. */
int spw_pages_make(const struct spw_config *config, const struct spw_pool *pool);

/** Worker @k, before it serves: use those of its shard, and count the bytes in its feed. */
void spw_pages_use(const struct spw_config *config, const struct spw_pool *pool, uint32_t k);

#endif
