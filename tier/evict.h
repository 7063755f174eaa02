#ifndef SPW_TIER_EVICT_H
#define SPW_TIER_EVICT_H
/*
 * Who goes next: what adding, using and scorning a chunk does to the order of a tier. A policy is
 * no more than that; where the order ends, at its oldest, the next victim stands. Slots of a shard
 * and ids of the tier below are ordered alike. Process-local, one thread; every operation O(1).
 */
#include "tier/lru.h"

enum spw_evict_policy {
    SPW_EVICT_BY_USE = 0, /* LRU: the one whose last use is longest ago */
    SPW_EVICT_BY_AGE = 1, /* FIFO: the one that came first              */
};

/** @slot, which is in no list, came. */
static inline void spw_evict_add(struct spw_slot_list *order, uint32_t slot)
{
    spw_slot_list_add(order, slot);
}

/** @slot was used. */
static inline void spw_evict_use(enum spw_evict_policy policy, struct spw_slot_list *order,
                                 uint32_t slot)
{
    if (policy == SPW_EVICT_BY_AGE)
        return;
    spw_slot_list_remove(order, slot);
    spw_slot_list_add(order, slot);
}

/** @slot is worth less than its place says: it goes next. */
static inline void spw_evict_scorn(struct spw_slot_list *order, uint32_t slot)
{
    spw_slot_list_remove(order, slot);
    spw_slot_list_add_oldest(order, slot);
}

/** Who goes next, or SPW_NO_SLOT_ID; those after it by spw_slot_list_newer(). */
static inline uint32_t spw_evict_next(const struct spw_slot_list *order)
{
    return order->oldest;
}

#endif
