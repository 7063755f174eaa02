#ifndef SPW_TOOLS_BELOW_DIR_H
#define SPW_TOOLS_BELOW_DIR_H
/*
 * What lies in a directory of the tier below, without opening the tier: shards by name, and what they
 * take on disk. Reads names and sizes only.
 */
#include <stdint.h>

/** Shards of @dir with the number @first or a higher one that have chunks' files: how many, and in
 * @out_bytes what their files take on disk. Blocks as file systems do; 0 where nothing can be read. */
uint32_t spw_below_shards(const char *dir, uint64_t first, uint64_t *out_bytes);

#endif
