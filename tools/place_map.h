#ifndef SPW_TOOLS_PLACE_MAP_H
#define SPW_TOOLS_PLACE_MAP_H
/*
 * Which worker goes where, as `spillway check` prints it: a table, or JSON.
 */
#include <jansson.h>

#include "tools/place.h"

/** A row a worker, on standard output. */
void spw_place_map_print(const struct spw_place *place);
/** An array of an object a worker. */
json_t *spw_place_map_json(const struct spw_place *place);

#endif
