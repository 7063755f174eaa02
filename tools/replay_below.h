#ifndef SPW_TOOLS_REPLAY_BELOW_H
#define SPW_TOOLS_REPLAY_BELOW_H
/*
 * Pace of a replay without a clock over a tier below: what was stored has gone down before the next
 * request is played, or nearly all of it would be dropped by queues that no real arrivals fill so
 * fast. Reads the workers' counters, writes nothing.
 */
#include "shm/pool.h"
#include "tools/replay.h"

/** Map @pool of @options for reading. 0 or -errno with words on stderr; @out_pool is closed with
 * spw_replay_below_close(). */
int spw_replay_below_open(const struct spw_replay_options *options, const char *pool,
                          struct spw_pool **out_pool);

/** NULL is fine. */
void spw_replay_below_close(struct spw_pool *pool);

/** Until nothing that is to go down is still on its way. 0, or -ETIMEDOUT. */
int spw_replay_below_settle(const struct spw_pool *pool);

#endif
