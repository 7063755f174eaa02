#ifndef SPW_TOOLS_SHOW_PLACE_H
#define SPW_TOOLS_SHOW_PLACE_H
/*
 * Where the workers of a pool are, as they said themselves: read from their feeds, printed as text or
 * JSON.
 */
#include <jansson.h>

#include "shm/pool.h"

/** A row a worker, on standard output; nothing where none is placed. */
void spw_show_place_print(const struct spw_pool *pool);
/** An object of worker @k. */
json_t *spw_show_place_json(const struct spw_pool *pool, uint32_t k);
/** The same of all, an array. */
json_t *spw_show_place_list_json(const struct spw_pool *pool);

#endif
