/* See order.h. */
#include "tier/order.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

int spw_ages_init(struct spw_ages *ages, struct spw_slot_links *links)
{
    *ages = (struct spw_ages){.links = links};
    ages->age = calloc(links->slots, sizeof *ages->age);
    ages->lane = calloc(links->slots, sizeof *ages->lane);
    if (ages->age && ages->lane)
        return 0;
    spw_ages_fini(ages);
    return -ENOMEM;
}

void spw_ages_fini(struct spw_ages *ages)
{
    if (!ages)
        return;
    free(ages->age);
    free(ages->lane);
    *ages = (struct spw_ages){0};
}

void spw_order_init(struct spw_order *order, struct spw_ages *ages)
{
    *order = (struct spw_order){.ages = ages};
    for (uint32_t lane = 0; lane < SPW_LANES; lane++)
        spw_slot_list_init(&order->lane[lane], ages->links);
}

/* ---- one slot -------------------------------------------------------------------------------- */

static struct spw_slot_list *lane_of(struct spw_order *order, uint32_t slot)
{
    return &order->lane[order->ages->lane[slot]];
}

/* Behind @newer, or where that is none as the youngest. */
static void put(struct spw_order *order, uint32_t slot, uint32_t lane, uint32_t newer)
{
    order->ages->lane[slot] = (uint8_t)lane;
    if (newer == SPW_NO_SLOT_ID)
        spw_slot_list_add(&order->lane[lane], slot);
    else
        spw_slot_list_add_behind(&order->lane[lane], slot, newer);
    order->count++;
    if (lane >= order->lanes)
        order->lanes = lane + 1;
}

void spw_order_add(struct spw_order *order, uint32_t slot, uint32_t lane)
{
    assert(lane < SPW_LANES);
    order->ages->age[slot] = ++order->ages->newest;
    put(order, slot, lane, SPW_NO_SLOT_ID);
}

/* The oldest of a lane that is as young as this age, or SPW_NO_SLOT_ID. */
static uint32_t oldest_as_young(const struct spw_order *order, uint32_t lane, uint64_t age)
{
    const struct spw_slot_list *list = &order->lane[lane];
    uint32_t found = SPW_NO_SLOT_ID, at = list->newest;
    while (at != SPW_NO_SLOT_ID && order->ages->age[at] >= age) {
        found = at;
        at = spw_slot_list_older(list, at);
    }
    return found;
}

void spw_order_add_behind(struct spw_order *order, uint32_t slot, uint32_t newer)
{
    order->ages->age[slot] = order->ages->age[newer];
    put(order, slot, order->ages->lane[newer], newer);
}

void spw_order_add_behind_other(struct spw_order *order, uint32_t slot, uint32_t newer)
{
    uint32_t lane = order->ages->lane[newer];
    order->ages->age[slot] = order->ages->age[newer];
    put(order, slot, lane, oldest_as_young(order, lane, order->ages->age[newer]));
}

void spw_order_remove(struct spw_order *order, uint32_t slot)
{
    spw_slot_list_remove(lane_of(order, slot), slot);
    order->count--;
}

void spw_order_move(struct spw_order *order, uint32_t slot, uint32_t lane)
{
    const struct spw_slot_list *list = &order->lane[lane];
    const uint64_t *age = order->ages->age;
    assert(lane < SPW_LANES);
    assert(list->count == 0 || age[list->newest] <= age[slot]);
    spw_order_remove(order, slot);
    put(order, slot, lane, SPW_NO_SLOT_ID);
}

void spw_order_use(struct spw_order *order, enum spw_evict_policy policy, uint32_t slot)
{
    if (policy == SPW_EVICT_BY_AGE)
        return;
    spw_order_remove(order, slot);
    spw_order_add(order, slot, order->ages->lane[slot]);
}

void spw_order_scorn(struct spw_order *order, uint32_t slot)
{
    struct spw_slot_list *lane = lane_of(order, slot);
    spw_slot_list_remove(lane, slot);
    spw_slot_list_add_oldest(lane, slot);
    order->ages->age[slot] = 0;
}

/* ---- all of them ----------------------------------------------------------------------------- */

/* Both are walked from the oldest on; of one age, who passes is the younger. */
static void pass_lane(struct spw_order *order, struct spw_order *other, uint32_t lane, uint32_t end)
{
    const uint64_t *age = order->ages->age;
    uint32_t newer = other->lane[lane].oldest, next;
    for (uint32_t at = order->lane[lane].oldest; at != SPW_NO_SLOT_ID; at = next) {
        next = spw_slot_list_newer(&order->lane[lane], at);
        if (at >= end)
            continue;
        while (newer != SPW_NO_SLOT_ID && age[newer] <= age[at])
            newer = spw_slot_list_newer(&other->lane[lane], newer);
        spw_order_remove(order, at);
        put(other, at, lane, newer);
    }
}

void spw_order_pass(struct spw_order *order, struct spw_order *other, uint32_t end)
{
    for (uint32_t lane = 0; lane < order->lanes; lane++)
        pass_lane(order, other, lane, end);
}

void spw_order_walk(const struct spw_order *order, uint64_t lanes, struct spw_order_walk *out)
{
    out->order = order;
    out->lanes = order->lanes;
    for (uint32_t lane = 0; lane < out->lanes; lane++)
        out->at[lane] = lanes >> lane & 1 ? order->lane[lane].oldest : SPW_NO_SLOT_ID;
}

uint32_t spw_order_next(struct spw_order_walk *walk)
{
    const struct spw_order *order = walk->order;
    const uint64_t *age = order->ages->age;
    uint32_t oldest = SPW_NO_SLOT_ID;
    for (uint32_t lane = 0; lane < walk->lanes; lane++) {
        uint32_t slot = walk->at[lane];
        if (slot != SPW_NO_SLOT_ID && (oldest == SPW_NO_SLOT_ID || age[slot] < age[oldest]))
            oldest = slot;
    }
    if (oldest != SPW_NO_SLOT_ID) {
        uint32_t lane = order->ages->lane[oldest];
        walk->at[lane] = spw_slot_list_newer(&order->lane[lane], oldest);
    }
    return oldest;
}
