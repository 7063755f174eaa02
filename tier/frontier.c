/* See frontier.h. */
#include "tier/frontier.h"

static uint32_t slots_a_slab(const struct spw_shard *shard)
{
    return 1u << shard->pool->geometry.cell_shift;
}

/* In whole slabs. */
static uint32_t asked(const struct spw_shard *shard)
{
    uint32_t slots = shard->frontier.ask ? shard->frontier.ask(shard->frontier.ctx) : UINT32_MAX;
    return slots < shard->slots ? slots & ~(slots_a_slab(shard) - 1) : shard->slots;
}

void spw_frontier_init(struct spw_shard *shard)
{
    shard->frontier.slots = asked(shard);
}

/* One slab more: what is READY there counts from now on, what is FREE may be handed out. */
static void pass_slab(struct spw_shard *shard)
{
    uint32_t first = shard->frontier.slots, end = first + slots_a_slab(shard);
    struct spw_entry_copy at;
    for (uint32_t slot = first; slot < end; slot++) {
        spw_shard_read_own(shard, slot, &at);
        if (at.state == SPW_READY)
            spw_shard_charge(shard, slot, at.space, at.chunk_bytes, false);
    }
    shard->frontier.slots = end;
    for (uint32_t slot = first; slot < end; slot++) {
        spw_shard_read_own(shard, slot, &at);
        if (at.state != SPW_READY)
            continue;
        spw_shard_charge(shard, slot, at.space, at.chunk_bytes, true);
        spw_shard_evictable(shard, slot, at.chunk_bytes, true);
    }
    spw_slab_passed(shard, first);
}

void spw_frontier_look(struct spw_shard *shard)
{
    if (shard->frontier.slots == shard->slots)
        return;
    uint32_t slots = asked(shard);
    if (shard->frontier.slots == slots)
        return;
    while (shard->frontier.slots < slots)
        pass_slab(shard);
    spw_order_pass(&shard->frontier.beyond, &shard->recency, slots);
}

uint64_t spw_frontier_room(const struct spw_shard *shard, uint64_t total_bytes)
{
    const struct spw_geometry *geometry = &shard->pool->geometry;
    uint64_t beyond = shard->frontier.beyond_bytes, charged = shard->slabs.charged_bytes;
    if (shard->frontier.slots == shard->slots)
        return total_bytes;
    uint64_t slabs = shard->slots >> geometry->cell_shift;
    uint64_t below = (uint64_t)(shard->frontier.slots >> geometry->cell_shift) * shard->capacity /
                     slabs * geometry->slot_bytes;
    uint64_t left = total_bytes > beyond ? total_bytes - beyond : 0;
    below = below > charged ? below : charged;
    return below < left ? below : left;
}
