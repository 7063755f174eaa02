#ifndef SPW_TOOLS_PLACE_WATCH_H
#define SPW_TOOLS_PLACE_WATCH_H
/*
 * What the daemon says of the places of workers that are up: what became of them, where that isn't what
 * was decided. Each thing once, however often a worker is started.
 *
 *   roles     the daemon's; reads the workers' feeds, writes the log
 */
#include "shm/layout.h"
#include "tools/place.h"

/** All zero before the first worker. */
struct spw_place_watch {
    bool told_unbound;         /* that threads can't be bound                   */
    struct spw_set told_moved; /* workers of which it was said: another GPU ... */
    struct spw_set told_far;   /* ... pages elsewhere                           */
};

/** Worker @k is up: it is bound, and has opened its GPU. */
void spw_place_watch_up(struct spw_place_watch *watch, const struct spw_place *place, uint32_t k,
                        const struct spw_feed_head *feed);
/** Worker @k is up: once its memory is touched and pinned, do sampled pages still lie where they were
 * bound to? 0; strict: -EREMOTE, they don't. */
int spw_place_watch_look(struct spw_place_watch *watch, const struct spw_config *config,
                         const struct spw_place *place, uint32_t k,
                         const struct spw_feed_head *feed);

#endif
