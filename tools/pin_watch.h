#ifndef SPW_TOOLS_PIN_WATCH_H
#define SPW_TOOLS_PIN_WATCH_H
/*
 * What the daemon says of memory that is being pinned, and what it makes of a refusal: pinned in all
 * workers or in none, never mixed unsaid.
 *
 *   roles     the daemon's, a watch a worker; reads the worker's feed, writes the log and ctl.pinning
 *   pace      a line of progress in SPW_PIN_SAY_NS as long as it goes on, one at its end
 */
#include "shm/pool.h"
#include "tools/config.h"

#define SPW_PIN_SAY_NS 5000000000ull

/** All zero before the worker's first start. */
struct spw_pin_watch {
    uint64_t start_ns;   /* of its pinning, as seen here */
    uint64_t said_ns;    /* the last line               */
    uint64_t said_bytes; /* touched then                */
    uint64_t seen;       /* enum spw_pin_state          */
};

/** The worker of @watch is about to be started. */
void spw_pin_watch_start(struct spw_pin_watch *watch);
/** Say what is new of worker @k; @mode as configured. Where it could not pin, relaxed, no worker does
 * from now on. 0, or -ENOMEM: it could not, and strict, all had to. */
int spw_pin_watch_look(struct spw_pin_watch *watch, uint32_t k, struct spw_pool *pool,
                       uint64_t mode);

#endif
