#ifndef SPW_TOOLS_TIERS_H
#define SPW_TOOLS_TIERS_H
/*
 * What a pool's tiers hold, from the lines that workers keep in their feeds: the same time at any
 * size, also when everybody is dead.
 */
#include <jansson.h>
#include <stdbool.h>

#include "shm/pool.h"

#define SPW_TIERS_TEXT_BYTES (SPW_TIER_TEXT_WORDS * 8)

/** A tier of one worker. Numbers are as they stood one by one. */
struct spw_tiers_line {
    uint64_t capacity_bytes, used_bytes;
    uint64_t entries, leased, evictable;
    uint32_t state; /* enum spw_tier_state        */
    uint32_t mode;  /* bits of enum spw_tier_mode */
};

struct spw_tiers_view {
    uint32_t workers;
    bool gone[SPW_WORKERS_MAX]; /* no process holds the worker's lock: its lines are what it left */
    struct spw_tiers_line line[SPW_WORKERS_MAX][SPW_TIERS];
    char text[SPW_WORKERS_MAX][SPW_TIERS_TEXT_BYTES]; /* of the tier below; "" = all well */
};

/** Relaxed reads; what can't be printed of the words becomes '?'. */
void spw_tiers_read(const struct spw_pool *pool, struct spw_tiers_view *out);

/** Why the tier below of this feed's worker is not as asked for, likewise; "" = all well. */
void spw_tiers_text(const struct spw_feed_head *feed, char out[SPW_TIERS_TEXT_BYTES]);

/** A table with a line a tier of each worker, and the words. */
void spw_tiers_print(const struct spw_tiers_view *view);

/** [{"worker", "tier", "state", ...}, ...]; the caller's reference. */
json_t *spw_tiers_json(const struct spw_tiers_view *view);

#endif
