#ifndef SPW_TOOLS_SPACE_LIST_H
#define SPW_TOOLS_SPACE_LIST_H
/*
 * The spaces of a pool and what they take of host memory, all workers together, from numbers that
 * workers and the daemon keep: the same time at any size, also when everybody is dead.
 */
#include <jansson.h>

#include "shm/pool.h"

/** A table with a line a space; nothing where there is none. */
void spw_space_list_print(const struct spw_pool *pool);

/** [{"space", "fingerprint", "host_bytes", "guaranteed_permille", "largest_permille"}, ...]; the
 * caller's reference. largest_permille 0: all. */
json_t *spw_space_list_json(const struct spw_pool *pool);

#endif
