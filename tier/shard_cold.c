/*
 * Entries of the tier below, and slots that are held for promotions; see shard_cold.h. Written: the
 * entries behind the slots with their cells of the index, and their news; by the shard's worker
 * alone. What links a slot to its entry is private memory, made anew with the shard.
 *
 * What others see if the worker dies
 *   cold.added         an entry without a cell, or its news not out: the successor frees it
 *   cold.covered       a BACKED entry whose slot isn't FILLING: the successor frees it; until then
 *                      views go on with COLD, scans read MISS
 *   cold.bared         COLD beside a slot that is still live: the successor frees the entry
 *   cold.cell_dropped  an entry that nobody finds: likewise
 *   cold.freed         a key less; its news is owed and comes with the next incarnation
 */
#include "tier/shard_cold.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "shm/crash_point.h"
#include "tier/orphans.h"
#include "tier/quarantine.h"
#include "tier/shard_impl.h"
#include "tier/state.h"

/* ---- memory ---------------------------------------------------------------------------------- */

static uint32_t *all_none(uint32_t count)
{
    uint32_t *at = malloc(count * sizeof *at);
    if (at)
        memset(at, 0xff, count * sizeof *at); /* SPW_NO_SLOT_ID */
    return at;
}

int spw_below_init(struct spw_shard *shard)
{
    struct spw_below *below = &shard->below;
    uint32_t ids = shard->pool->geometry.cold_chunks;
    spw_slot_list_init(&below->held, &shard->links);
    if (ids == 0)
        return 0;
    below->id_of = all_none(shard->slots);
    below->slot_of = all_none(ids);
    below->is_held = calloc((shard->slots + 63) / 64, sizeof *below->is_held);
    return below->id_of && below->slot_of && below->is_held ? 0 : -ENOMEM;
}

void spw_below_fini(struct spw_shard *shard)
{
    free(shard->below.id_of);
    free(shard->below.slot_of);
    free(shard->below.is_held);
}

/* ---- entries --------------------------------------------------------------------------------- */

/* Number of @id's entry. */
static uint32_t entry_of(const struct spw_shard *shard, uint32_t id)
{
    assert(id < shard->pool->geometry.cold_chunks);
    return shard->slots + id;
}

static void read_own(const struct spw_shard *shard, uint32_t id, bool with_key,
                     struct spw_entry_copy *out)
{
    int rc = spw_table_read(&shard->table.view, entry_of(shard, id), with_key, out);
    assert(rc == 0); /* nobody else writes it */
    (void)rc;
}

static struct spw_chunk_key key_of(const struct spw_entry_copy *entry)
{
    return (struct spw_chunk_key){.digest = {entry->digest[0], entry->digest[1]},
                                  .space = entry->space,
                                  .group = entry->group,
                                  .key_bytes = entry->key_bytes,
                                  .key = entry->key};
}

static void write_entry(struct spw_shard *shard, struct spw_entry_copy *entry, uint32_t to,
                        const void *key)
{
    assert(spw_state_may(entry->state, to));
    entry->state = to;
    spw_table_write(&shard->table, entry->slot, entry, key);
}

static struct spw_update update_of(const struct spw_entry_copy *entry, uint32_t state)
{
    return (struct spw_update){
        .digest = {entry->digest[0], entry->digest[1]},
        .packed = spw_update_pack(entry->slot, state, entry->group, entry->space),
    };
}

/* The record whose position the entry was given as its version. */
static void tell(struct spw_shard *shard, const struct spw_entry_copy *entry, uint32_t state)
{
    struct spw_update update = update_of(entry, state);
    spw_news_add(shard, &update);
}

static void link_slot(struct spw_shard *shard, uint32_t id, uint32_t slot)
{
    shard->below.id_of[slot] = id;
    shard->below.slot_of[id] = slot;
}

static void unlink_slot(struct spw_shard *shard, uint32_t id, uint32_t slot)
{
    shard->below.id_of[slot] = SPW_NO_SLOT_ID;
    shard->below.slot_of[id] = SPW_NO_SLOT_ID;
}

int spw_shard_cold_add(struct spw_shard *shard, uint32_t id, const struct spw_chunk_key *key,
                       uint32_t rank, uint64_t chunk_bytes)
{
    struct spw_entry_copy entry;
    if (spw_table_find_below(&shard->table.view, key, &entry) == 0)
        return -EEXIST;
    int64_t slot = spw_table_live(&shard->table, key);
    uint32_t state = slot < 0 ? SPW_COLD : SPW_BACKED;
    read_own(shard, id, false, &entry); /* FREE: its version stands until the next news */
    entry = (struct spw_entry_copy){
        .version = state == SPW_COLD ? spw_news_position(shard) : entry.version,
        .digest = {key->digest[0], key->digest[1]},
        .chunk_bytes = chunk_bytes,
        .state = entry.state,
        .group = key->group,
        .key_bytes = key->key_bytes,
        .rank = rank,
        .space = key->space,
        .slot = entry.slot,
    };
    write_entry(shard, &entry, state, key->key);
    SPW_CRASH_POINT("cold.added");
    spw_shard_index_put(shard, entry.digest, entry.slot);
    if (state == SPW_COLD)
        tell(shard, &entry, SPW_COLD);
    else
        link_slot(shard, id, (uint32_t)slot);
    return 0;
}

void spw_shard_cold_remove(struct spw_shard *shard, uint32_t id)
{
    struct spw_entry_copy entry;
    read_own(shard, id, true, &entry);
    if (entry.state == SPW_FREE)
        return;
    bool news = entry.state == SPW_COLD;
    if (!news)
        unlink_slot(shard, id, shard->below.slot_of[id]);
    spw_table_index_drop(&shard->table, entry.digest, entry.slot);
    SPW_CRASH_POINT("cold.cell_dropped");
    struct spw_entry_copy empty = {.version = news ? spw_news_position(shard) : entry.version,
                                   .state = entry.state,
                                   .slot = entry.slot};
    write_entry(shard, &empty, SPW_FREE, NULL);
    SPW_CRASH_POINT("cold.freed");
    if (news) {
        tell(shard, &entry, SPW_RETIRED);
        spw_orphans_lost(shard, &entry);
    }
}

void spw_below_slot_comes(struct spw_shard *shard, uint32_t slot, const struct spw_chunk_key *key)
{
    struct spw_entry_copy entry;
    if (spw_table_find_below(&shard->table.view, key, &entry) < 0)
        return;
    write_entry(shard, &entry, SPW_BACKED, NULL);
    link_slot(shard, entry.slot - shard->slots, slot);
    SPW_CRASH_POINT("cold.covered");
}

void spw_below_slot_goes(struct spw_shard *shard, uint32_t slot, struct spw_update *update)
{
    struct spw_entry_copy entry;
    uint32_t id = shard->below.id_of[slot];
    if (id == SPW_NO_SLOT_ID)
        return;
    read_own(shard, id, false, &entry);
    write_entry(shard, &entry, SPW_COLD, NULL);
    SPW_CRASH_POINT("cold.bared");
    unlink_slot(shard, id, slot);
    *update = update_of(&entry, SPW_COLD);
}

int spw_shard_cold_entry(const struct spw_shard *shard, uint32_t id, struct spw_entry_copy *out)
{
    struct spw_entry_copy entry;
    if (id >= shard->pool->geometry.cold_chunks)
        return -ENOENT;
    read_own(shard, id, true, &entry);
    if (entry.state == SPW_FREE)
        return -ENOENT;
    *out = entry;
    return 0;
}

int64_t spw_shard_cold_of(const struct spw_shard *shard, uint32_t slot)
{
    uint32_t id =
        shard->below.id_of && slot < shard->slots ? shard->below.id_of[slot] : SPW_NO_SLOT_ID;
    return id == SPW_NO_SLOT_ID ? -ENOENT : (int64_t)id;
}

int64_t spw_shard_cold_slot(const struct spw_shard *shard, uint32_t id)
{
    uint32_t slot =
        id < shard->pool->geometry.cold_chunks ? shard->below.slot_of[id] : SPW_NO_SLOT_ID;
    return slot == SPW_NO_SLOT_ID ? -ENOENT : (int64_t)slot;
}

int64_t spw_shard_cold_find(const struct spw_shard *shard, uint64_t tag)
{
    int64_t at = spw_table_cold(&shard->table, tag);
    return at < 0 ? at : at - shard->slots;
}

int64_t spw_shard_by_tag(const struct spw_shard *shard, uint64_t tag)
{
    return spw_table_by_tag(&shard->table, tag, SPW_NO_SLOT_ID);
}

void spw_shard_walk(const struct spw_shard *shard, struct spw_order_walk *out)
{
    spw_order_walk(&shard->recency, SPW_ALL_LANES, out);
}

void spw_shard_transfers_ended(struct spw_shard *shard)
{
    spw_quarantine_unmark(shard);
}

void spw_shard_cold_each_of_space(struct spw_shard *shard, uint32_t space,
                                  void (*each)(void *ctx, uint32_t id), void *ctx)
{
    for (uint32_t id = 0; id < shard->pool->geometry.cold_chunks; id++) {
        /* relaxed: only this worker writes it */
        uint64_t packed = spw_load_relaxed(&shard->table.entry[entry_of(shard, id)].packed);
        if (SPW_PACKED_STATE(packed) == SPW_FREE ||
            !spw_space_meant(space, SPW_PACKED_SPACE(packed)))
            continue;
        spw_shard_cold_remove(shard, id);
        each(ctx, id);
    }
}

/* ---- promotions ------------------------------------------------------------------------------ */

static void hold(struct spw_shard *shard, uint32_t slot)
{
    shard->below.is_held[slot / 64] |= 1ull << slot % 64;
    spw_slot_list_add(&shard->below.held, slot);
}

void spw_shard_unlist(struct spw_shard *shard, uint32_t slot)
{
    if (!spw_shard_is_held(shard, slot)) {
        spw_order_remove(spw_shard_order(shard, slot), slot);
        return;
    }
    shard->below.is_held[slot / 64] &= ~(1ull << slot % 64);
    spw_slot_list_remove(&shard->below.held, slot);
}

enum spw_reserve_result spw_shard_promote(struct spw_shard *shard, uint32_t id, uint32_t held_max,
                                          uint32_t *out_slot)
{
    struct spw_entry_copy entry;
    uint32_t slot;
    read_own(shard, id, true, &entry);
    assert(entry.state == SPW_COLD);
    if (shard->below.held.count >= held_max)
        return SPW_NO_SLOT;
    struct spw_chunk_key key = key_of(&entry);
    if (spw_shard_give_slot(shard, &key, entry.rank, entry.chunk_bytes, NULL, &slot) !=
        SPW_RESERVED)
        return spw_shard_slot_comes(shard, entry.space, entry.chunk_bytes) ? SPW_SLOT_COMES
                                                                           : SPW_NO_SLOT;
    hold(shard, slot);
    if (shard->below.id_of[slot] != id) { /* what was evicted for it took its place below */
        spw_shard_retire(shard, slot);
        return SPW_NO_SLOT;
    }
    *out_slot = slot;
    return SPW_RESERVED;
}

void spw_shard_release(struct spw_shard *shard, uint32_t slot)
{
    assert(spw_shard_is_held(shard, slot));
    spw_shard_unlist(shard, slot);
    struct spw_entry_copy entry;
    spw_shard_read_own(shard, slot, &entry);
    spw_order_add(&shard->recency, slot, spw_shard_lane(entry.space));
    if (entry.state == SPW_READY)
        spw_shard_evictable(shard, slot, entry.chunk_bytes, true);
}

uint32_t spw_shard_usable_part(const struct spw_shard *shard, uint32_t all)
{
    uint64_t slots = shard->slots;
    return (uint32_t)((all * (uint64_t)shard->frontier.slots + slots - 1) / slots);
}

bool spw_shard_is_full_but(const struct spw_shard *shard, uint32_t chunks)
{
    uint32_t usable = spw_shard_resident(shard) - shard->frontier.beyond.count;
    return shard->evicted != 0 || usable + chunks >= spw_shard_usable_part(shard, shard->capacity);
}

uint32_t spw_shard_held(const struct spw_shard *shard)
{
    return shard->below.held.count;
}
