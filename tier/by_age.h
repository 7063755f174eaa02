#ifndef SPW_TIER_BY_AGE_H
#define SPW_TIER_BY_AGE_H
/*
 * Sorts by age what an adopter found READY, a million in a few milliseconds. Pure: arrays of the
 * caller's alone.
 */
#include <stdint.h>

struct spw_aged {
    uint64_t age; /* the lower, the older */
    uint32_t slot;
};

/** Oldest first, equal ages in the order given. @scratch has room for @count, too; what is in it
 * afterwards means nothing. */
void spw_sort_by_age(struct spw_aged *items, struct spw_aged *scratch, uint32_t count);

#endif
