#ifndef SPW_TESTS_SUPPORT_ACCOUNT_H
#define SPW_TESTS_SUPPORT_ACCOUNT_H
/*
 * Is everything that a pool holds accounted for? Seen from outside, in a pool mapped like a tool's.
 *
 *   roles     reads shared memory and asks locks; writes nothing
 *   answers   the first thing that doesn't add up, in words
 */
#include "shm/pool.h"

/** Nobody has a job or a step open, and what was left by the dead has had its time: no chunk is
 * FILLING, no slot RETIRED (a worker whose transfers may outlive it keeps some), no copying bit set,
 * the store streams are done, living clients pin and await nothing and have no command untaken. */
#define ACCOUNT_IDLE 1u
/** No worker died with chunks open: all chunks offered are stored, present, refused or ended. Only
 * together with ACCOUNT_IDLE. */
#define ACCOUNT_COUNTERS 2u

/**
 * At any time: states are states, each READY chunk is found by its key, in its slot.
 * Returns true, or false with @out_words filled.
 */
bool account_fine(const struct spw_pool *pool, uint32_t flags, char *out_words, size_t bytes);

/** The same, asked again until it is true or @limit_ms are over. */
bool account_settles(const struct spw_pool *pool, uint32_t flags, uint32_t limit_ms,
                     char *out_words, size_t bytes);

#endif
