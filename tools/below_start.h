#ifndef SPW_TOOLS_BELOW_START_H
#define SPW_TOOLS_BELOW_START_H
/*
 * The directory of the tier below as a daemon starts: whose it is, and what lies there. Each does nothing
 * where there is none, and logs what it has to say. A lock goes with the process.
 */
#include "tools/config.h"

/** The directory is one daemon's: take its lock. -EBUSY: another daemon's, and that was said. One that
 * can't be reached now is the workers' trouble: 0. */
int spw_below_lock(const struct spw_config *config);
/** Workers of a daemon of another pool that may hold its own lock elsewhere, where the directory has
 * been made anew since: those of a daemon that died just now are gone in a moment. Blocks for seconds at
 * most. 0; -EBUSY: they are still there, and that was said. */
int spw_below_await_others(const struct spw_config *config);
/** Say whether there are shards of workers that there were once: nobody reads them, nobody makes room
 * there. */
void spw_below_tell_left(const struct spw_config *config);

#endif
