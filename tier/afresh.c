/* See afresh.h. Written: gate, all entries, the ring's sequences, tail; one counter. */
#include "tier/afresh.h"

#include "shm/crash_point.h"
#include "tier/counters.h"

/* Highest position that an entry speaks of. */
static uint64_t highest_in_table(const struct spw_shard *shard)
{
    uint64_t highest = 0;
    for (uint32_t at = 0; at < shard->table.view.entries; at++) {
        const struct spw_entry *entry = &shard->table.entry[at];
        /* relaxed: their writer is dead and gone */
        highest = spw_bcast_later(highest, spw_load_relaxed(&entry->version));
        highest = spw_bcast_later(highest, spw_load_relaxed(&entry->fill));
    }
    return highest;
}

void spw_shard_make_afresh(struct spw_shard *shard)
{
    const struct spw_pool *pool = shard->pool;
    struct spw_ring_slot *ring = spw_pool_feed_at(pool, shard->k, pool->feed_map.ring_off);
    uint32_t records = pool->geometry.update_records;
    uint64_t tail = spw_bcast_afresh_begin(shard->feed, ring, records, highest_in_table(shard));
    for (uint32_t at = 0; at < shard->table.view.entries; at++) {
        const struct spw_entry_copy nothing = {.state = at < shard->slots ? SPW_RETIRED : SPW_FREE};
        spw_table_write(&shard->table, at, &nothing, NULL);
        SPW_CRASH_POINT("afresh.entry_emptied");
    }
    spw_bcast_afresh_end(shard->feed, ring, records, tail);
    SPW_CRASH_POINT("afresh.tail_stored");
    spw_add_own(&shard->feed->counter[SPW_WORKER_afresh], 1);
}
