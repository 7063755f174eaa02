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

void spw_order_add(struct spw_order *order, uint32_t slot, uint32_t lane)
{
    assert(lane < SPW_LANES);
    order->ages->age[slot] = ++order->ages->newest;
    order->ages->lane[slot] = (uint8_t)lane;
    spw_slot_list_add(&order->lane[lane], slot);
    order->count++;
    if (lane >= order->lanes)
        order->lanes = lane + 1;
}

void spw_order_add_behind(struct spw_order *order, uint32_t slot, uint32_t newer)
{
    order->ages->age[slot] = order->ages->age[newer];
    order->ages->lane[slot] = order->ages->lane[newer];
    spw_slot_list_add_behind(lane_of(order, newer), slot, newer);
    order->count++;
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
    spw_slot_list_remove(lane_of(order, slot), slot);
    order->ages->lane[slot] = (uint8_t)lane;
    spw_slot_list_add(&order->lane[lane], slot);
    if (lane >= order->lanes)
        order->lanes = lane + 1;
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
