#ifndef SPW_TOOLS_PLAN_H
#define SPW_TOOLS_PLAN_H
/*
 * What a configuration comes to in shared memory. Pure.
 */
#include "shm/pool.h"
#include "tools/config.h"

/** Bytes of a pool's objects, page by page as they are reserved. */
struct spw_plan {
    uint64_t payload_bytes; /* data.*: chunks                                       */
    uint64_t kv_bytes;      /* kv.*: clients' host KV, for the host copier          */
    uint64_t control_bytes; /* all else                                             */
    uint64_t total_bytes;
};

/** Fill in all but path and place of a pool's configuration. */
void spw_plan_pool(const struct spw_config *config, struct spw_pool_config *out);

/** Sum up the objects of a pool of this geometry, which has passed its check. */
void spw_plan_bytes(const struct spw_geometry *geometry, struct spw_plan *out_plan);

/** Why @pool was made anew though one was there, in words that name the option and its old value;
 * "" if none was there. */
void spw_plan_cold_words(const struct spw_pool *pool, char *out, size_t bytes);

#endif
