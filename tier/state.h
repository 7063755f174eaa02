#ifndef SPW_TIER_STATE_H
#define SPW_TIER_STATE_H
/*
 * States of a slot: which change is allowed, and what each is called. Pure.
 *
 *                 reserve               ready                retire
 *        FREE -------------> FILLING ----------> READY -------------> RETIRED
 *          ^                    |  retire (store failed or ended early)  |
 *          |                    +----------------------------------------+
 *          +-------------------------- reclaim --------------------------+
 */
#include "tier/layout.h"

#define SPW_STATE_COUNT 4u

/** May a slot go from @from to @to? False for values that are no state. */
bool spw_state_may(uint32_t from, uint32_t to);

/** "FREE", "FILLING", ...; "?" for a value that is no state. Static strings. */
const char *spw_state_name(uint32_t state);

#endif
