#ifndef SPW_TIER_ORDER_H
#define SPW_TIER_ORDER_H
/*
 * Who goes next in a tier: its chunks by age, those of each space in a lane of their own, so that the
 * oldest of some spaces is found without looking at the others'. Slots of a shard and ids of the tier
 * below are ordered alike. A policy says what coming, being used and being scorned does to an age.
 *
 *   age    a slot's never falls from the old end of a lane to the new one; lanes are merged by it
 *   cost   O(1), a step of a walk O(lanes in use), of spw_order_pass() both orders
 *
 * Process-local, one thread.
 */
#include <stdbool.h>
#include <stdint.h>

#include "shm/base.h"
#include "tier/lru.h"

enum spw_evict_policy {
    SPW_EVICT_BY_USE = 0, /* LRU: the one whose last use is longest ago */
    SPW_EVICT_BY_AGE = 1, /* FIFO: the one that came first              */
};

#define SPW_LANES     SPW_SPACES_MAX
#define SPW_ALL_LANES UINT64_MAX

/** Of all slots, whichever order of a set they stand in. */
struct spw_ages {
    struct spw_slot_links *links; /* borrowed */
    uint64_t *age;
    uint8_t *lane;
    uint64_t newest;
};

struct spw_order {
    struct spw_ages *ages; /* borrowed */
    struct spw_slot_list lane[SPW_LANES];
    uint32_t lanes; /* those behind were never used */
    uint32_t count;
};

/** 0 or -ENOMEM. @links stay the caller's. */
int spw_ages_init(struct spw_ages *ages, struct spw_slot_links *links);
void spw_ages_fini(struct spw_ages *ages);

void spw_order_init(struct spw_order *order, struct spw_ages *ages);
/** @slot, which is in no list, came, or was used; @lane below SPW_LANES. */
void spw_order_add(struct spw_order *order, uint32_t slot, uint32_t lane);
/** @slot, which is in no list, is just older than @newer, and of its lane. */
void spw_order_add_behind(struct spw_order *order, uint32_t slot, uint32_t newer);
/** The same where @newer stands in another order of these ages. A step for each that is as young. */
void spw_order_add_behind_other(struct spw_order *order, uint32_t slot, uint32_t newer);
/** @slot was used. */
void spw_order_use(struct spw_order *order, enum spw_evict_policy policy, uint32_t slot);
/** @slot is worth less than its age says: it goes next. */
void spw_order_scorn(struct spw_order *order, uint32_t slot);
void spw_order_remove(struct spw_order *order, uint32_t slot);
/** @slot goes to @lane, in which none is younger, and keeps its age. */
void spw_order_move(struct spw_order *order, uint32_t slot, uint32_t lane);

/** Slots below @end go from @order to @other, which is of the same ages, and keep theirs. */
void spw_order_pass(struct spw_order *order, struct spw_order *other, uint32_t end);

static inline uint32_t spw_order_lane(const struct spw_order *order, uint32_t slot)
{
    return order->ages->lane[slot];
}

/** From the oldest on through some lanes; nothing may come meanwhile, and only what was given may go. */
struct spw_order_walk {
    const struct spw_order *order;
    uint32_t lanes;
    uint32_t at[SPW_LANES];
};

/** @lanes: a bit for each that is walked through. */
void spw_order_walk(const struct spw_order *order, uint64_t lanes, struct spw_order_walk *out);
/** The next one, or SPW_NO_SLOT_ID. */
uint32_t spw_order_next(struct spw_order_walk *walk);

#endif
