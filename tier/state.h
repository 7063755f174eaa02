#ifndef SPW_TIER_STATE_H
#define SPW_TIER_STATE_H
/*
 * States of an entry: which change is allowed, and what each is called. Pure. An entry of a slot
 * goes round in the drawing here, one of the tier below in that of tier/shard_cold.h; FREE alone
 * belongs to both.
 *
 *                 reserve               ready                retire
 *        FREE -------------> FILLING ----------> READY -------------> RETIRED
 *          ^                    |  retire (store failed or ended early)  |
 *          |                    +----------------------------------------+
 *          +-------------------------- reclaim --------------------------+
 */
#include "tier/layout.h"

#define SPW_STATE_COUNT 6u

/** May an entry go from @from to @to? False for values that are no state. */
bool spw_state_may(uint32_t from, uint32_t to);

/** "FREE", "FILLING", ...; "?" for a value that is no state. Static strings. */
const char *spw_state_name(uint32_t state);

#endif
