/* See orphans.h. Private to the worker's thread, but for the counter. */
#include "tier/orphans.h"

#include "tier/shard_cold.h"

int spw_orphans_init(struct spw_shard *shard)
{
    shard->chains = spw_chain_open(spw_geometry_entries(&shard->pool->geometry));
    return shard->chains ? 0 : -ENOMEM;
}

void spw_orphans_fini(struct spw_shard *shard)
{
    spw_chain_close(shard->chains);
}

static bool is_here(const struct spw_shard *shard, uint64_t tag)
{
    return spw_table_by_tag(&shard->table, tag, SPW_NO_SLOT_ID) >= 0 ||
           spw_shard_cold_find(shard, tag) >= 0;
}

void spw_shard_follow(struct spw_shard *shard, uint64_t before, uint64_t tag)
{
    if (shard->evict == SPW_EVICT_BY_USE && is_here(shard, before) && is_here(shard, tag))
        spw_chain_link(shard->chains, before, tag);
}

static void scorn(void *ctx, uint64_t tag)
{
    struct spw_shard *shard = ctx;
    int64_t slot = spw_table_by_tag(&shard->table, tag, SPW_NO_SLOT_ID);
    int64_t id = slot < 0 ? spw_shard_cold_find(shard, tag) : -ENOENT;
    if (slot >= 0 && spw_shard_is_held(shard, (uint32_t)slot))
        return; /* somebody waits for it */
    if (slot >= 0)
        spw_order_scorn(spw_shard_order(shard, (uint32_t)slot), (uint32_t)slot);
    else if (id >= 0 && shard->demote_below)
        shard->demote_below(shard->ctx, (uint32_t)id);
    else
        return;
    spw_shard_count(shard, SPW_WORKER_orphaned, 1);
}

/* An entry of the tier below is FREE by now, and was given with its key. */
static struct spw_entry_copy with_key(const struct spw_shard *shard,
                                      const struct spw_entry_copy *entry)
{
    struct spw_entry_copy whole = {.state = SPW_FREE};
    if (entry->slot >= shard->slots)
        return *entry;
    spw_table_read(&shard->table.view, entry->slot, true, &whole);
    return whole;
}

void spw_orphans_lost(struct spw_shard *shard, const struct spw_entry_copy *entry)
{
    uint64_t tag = entry->digest[0];
    struct spw_entry_copy whole = {.state = SPW_FREE};
    if (spw_chain_needed(shard->chains, tag) && shard->elsewhere)
        whole = with_key(shard, entry);
    if (whole.state != SPW_FREE && shard->elsewhere(shard->ctx, &whole))
        spw_chain_forget(shard->chains, tag);
    else
        spw_chain_lose(shard->chains, tag, scorn, shard);
}
