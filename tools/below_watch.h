#ifndef SPW_TOOLS_BELOW_WATCH_H
#define SPW_TOOLS_BELOW_WATCH_H
/*
 * What the daemon says of the tier below: a line at each change of a worker's tier, with the reason
 * that the worker shows, what was found at its start, and chunks whose bytes were wrong.
 *
 *   roles     the daemon's, a watch a worker; reads the worker's feed, writes the log
 *   pace      of a worker's state a line in SPW_BELOW_SAY_NS, so a state that has passed by then is
 *             not told, but for trouble right after a start; of wrong bytes the first at once, then
 *             a line in SPW_BELOW_CORRUPT_NS
 */
#include <stdbool.h>

#include "shm/layout.h"

#define SPW_BELOW_SAY_NS     5000000000ull
#define SPW_BELOW_CORRUPT_NS 60000000000ull

/** All zero before the worker's first start. */
struct spw_below_watch {
    uint64_t start_ns;     /* of the worker's incarnation                           */
    uint64_t found_before; /* cold_found then, or when it went down                 */
    uint32_t seen, said;   /* enum spw_tier_state; said NONE: nothing of this start */
    uint64_t seen_ns, said_ns;
    bool found_said; /* what the start found                                  */
    uint64_t corrupt_said, corrupt_ns;
};

/** The worker of @feed is about to be started. */
void spw_below_watch_start(struct spw_below_watch *watch, const struct spw_feed_head *feed,
                           uint64_t now_ns);

/** Worker @k has gone round its loop since then: say what is new. True: it still reads its
 * directory, so look again soon. */
bool spw_below_watch_look(struct spw_below_watch *watch, uint32_t k,
                          const struct spw_feed_head *feed, uint64_t now_ns);

#endif
