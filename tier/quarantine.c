/* See quarantine.h. Written: the mark, own copying bits, two counters; entries by the adopter. */
#include "tier/quarantine.h"

#include "shm/crash_point.h"
#include "tier/counters.h"

static spw_atomic64 *counter(struct spw_shard *shard, enum spw_worker_counter which)
{
    return &shard->feed->counter[which];
}

int spw_quarantine_begin(struct spw_shard *shard)
{
    struct spw_quarantine *quarantine = &shard->quarantine;
    /* relaxed, here and below: whoever wrote it before is dead and gone. Not 1 is damage, or 0 */
    quarantine->stands = spw_load_relaxed(&shard->feed->lingering) != 0;
    quarantine->until_ns = quarantine->now_ns + quarantine->time_ns;
    /* what an adopter before had put aside is put aside anew, or done with */
    spw_store_relaxed(counter(shard, SPW_WORKER_quarantine_ended),
                      spw_load_relaxed(counter(shard, SPW_WORKER_quarantined)));
    return quarantine->stands ? spw_claims_keep_found(&shard->claims) : 0;
}

bool spw_quarantine_wants(const struct spw_shard *shard, uint32_t slot)
{
    return shard->quarantine.stands && spw_load_relaxed(&shard->table.entry[slot].fill) == 0;
}

void spw_quarantine_add(struct spw_shard *shard, uint32_t slot)
{
    spw_slot_list_add(&shard->quarantine.slots, slot);
    spw_add_own(counter(shard, SPW_WORKER_quarantined), 1);
    SPW_CRASH_POINT("quarantine.slot_put_aside");
}

void spw_quarantine_mark(struct spw_shard *shard)
{
    if (!shard->quarantine.lingers)
        return;
    spw_store_relaxed(&shard->feed->lingering, 1);
    SPW_CRASH_POINT("quarantine.mark_set");
}

void spw_quarantine_unmark(struct spw_shard *shard)
{
    if (!shard->quarantine.stands)
        spw_store_relaxed(&shard->feed->lingering, 0);
}

/* They were retired before all that is in the list now, so they go to its oldest end. */
static void give_back(struct spw_shard *shard)
{
    struct spw_slot_list *slots = &shard->quarantine.slots;
    spw_add_own(counter(shard, SPW_WORKER_quarantine_ended), slots->count);
    while (slots->count > 0) {
        uint32_t slot = slots->newest;
        spw_slot_list_remove(slots, slot);
        spw_slot_list_add_oldest(&shard->retired, slot);
    }
}

void spw_quarantine_check(struct spw_shard *shard, uint64_t now_ns)
{
    struct spw_quarantine *quarantine = &shard->quarantine;
    if (!quarantine->stands || now_ns < quarantine->until_ns)
        return;
    quarantine->stands = false;
    if (!quarantine->lingers)
        spw_store_relaxed(&shard->feed->lingering, 0);
    SPW_CRASH_POINT("quarantine.mark_cleared");
    spw_claims_end_kept(&shard->claims);
    give_back(shard);
}
