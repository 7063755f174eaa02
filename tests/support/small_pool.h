#ifndef SPW_TESTS_SUPPORT_SMALL_POOL_H
#define SPW_TESTS_SUPPORT_SMALL_POOL_H
/*
 * The smallest pools that tests of whole pools make, each in a folder of its own.
 *
 *   roles     one thread of the test; the config is the caller's to change before a pool is made
 */
#include <string.h>
#include <unistd.h>

#include "shm/pool.h"
#include "tests/support/env.h"

/** Two workers, three clients, four chunks a shard. */
static const struct spw_geometry small_pool_two = {.workers = 2,
                                                   .clients = 3,
                                                   .capacity_chunks = 4,
                                                   .slots = 5,
                                                   .cold_chunks = 2,
                                                   .slot_bytes = 256,
                                                   .update_records = 8,
                                                   .gate_records = 2,
                                                   .command_slots = 4,
                                                   .completion_slots = 4,
                                                   .index_buckets = 2,
                                                   .kv_blocks = 2,
                                                   .kv_block_bytes = 128};

/** The least of everything. */
static const struct spw_geometry small_pool_one = {.workers = 1,
                                                   .clients = 1,
                                                   .capacity_chunks = 1,
                                                   .slots = 2,
                                                   .cold_chunks = 1,
                                                   .slot_bytes = 64,
                                                   .update_records = 2,
                                                   .gate_records = 1,
                                                   .command_slots = 2,
                                                   .completion_slots = 2,
                                                   .index_buckets = 1,
                                                   .kv_blocks = 1,
                                                   .kv_block_bytes = 64};

/** A pool "a" of this user in a new folder, mode 0600, on no node in particular. 0 or -errno. */
static inline int small_pool_config(const struct spw_geometry *geometry,
                                    struct spw_pool_config *out)
{
    char dir[SUPPORT_PATH_BYTES];
    int rc = support_shm_dir(dir);
    *out = (struct spw_pool_config){.geometry = *geometry, .mode = 0600, .gid = -1};
    return rc ? rc : spw_pool_path_init(&out->path, dir, "a", (uint32_t)geteuid(), NULL);
}

#endif
