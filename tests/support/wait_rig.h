#ifndef SPW_TESTS_SUPPORT_WAIT_RIG_H
#define SPW_TESTS_SUPPORT_WAIT_RIG_H
/*
 * What tests of waiting begin with: a tiny pool (api_rig.h) on a clock of the test's own, one client
 * and one space with short limits, stores that pend, and looks at what waits came to.
 *
 *   roles     the variables are the test program's, one pool at a time
 *   errors    what a test can't go on without is checked by assert
 */
#include "sched/handle.h"
#include "tests/support/api_rig.h"

#define MS 1000000ull

extern struct api api;
extern struct spw_client *client;
extern struct spw_space *space;
extern struct spw_space_config space_config;

/** 16 chunks, one worker. */
extern const struct rig_config one_worker;

/** Rank r on worker r; waits of 500 ms at most, 50 ms for what is unknown. */
void wait_open(const struct rig_config *config);
void wait_close(void);

/** A store of @count chunks of keys from @first on at rank 0, reserved and not run: pending for
 * everybody. Its answer. */
struct spw_completion wait_pend(uint64_t first, uint32_t count);
/** Run it: ready. */
void wait_settle(const struct spw_completion *reserved);

/** In a step of its own: the requests that it hands back. */
int wait_woken(struct spw_request **out, uint32_t max);
/** Slots of a shard that @of has marked. */
uint32_t wait_awaited(const struct spw_client *of, uint32_t shard);

/** Waits that ended so; all of them. */
struct spw_wait_histogram wait_ended(enum spw_wait_outcome outcome);
uint64_t wait_ended_all(void);
/** The last decision as it is written down. */
struct spw_explained wait_explained(void);

#endif
