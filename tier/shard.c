/*
 * A shard: the API of tier/shard.h over table, lists, claims and ring. Written: everything in this
 * worker's feed but its acknowledgements and most counters.
 *
 * News. A change writes the entry with the position its record is going to get, then gathers the
 * record; spw_shard_flush() publishes what was gathered in one batch. The ring gives positions in
 * order, so the i-th record gathered gets tail + 1 + i.
 *
 * What others see if the worker dies
 *   entry written, news not out   its successor's incarnation makes all read the table again
 *   FILLING                       the successor retires it
 */
#include "tier/shard_impl.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "shm/crash_point.h"
#include "tier/adopt.h"
#include "tier/afresh.h"
#include "tier/frontier.h"
#include "tier/orphans.h"
#include "tier/quarantine.h"
#include "tier/shard_cold.h"
#include "tier/state.h"

/* ---- news ------------------------------------------------------------------------------------ */

uint64_t spw_news_position(struct spw_shard *shard)
{
    if (shard->news.count == SPW_NEWS_MAX)
        spw_shard_flush(shard);
    return shard->news.writer.tail + 1 + shard->news.count;
}

void spw_news_add(struct spw_shard *shard, const struct spw_update *update)
{
    assert(shard->news.count < SPW_NEWS_MAX);
    memcpy(shard->news.record[shard->news.count++].word, update, sizeof *update);
}

/* Relaxed: numbers to look at. */
static void show_room(struct spw_shard *shard)
{
    struct spw_tier_record *tier = &shard->feed->tier[SPW_TIER_HOST];
    uint32_t entries = spw_shard_resident(shard);
    uint64_t beyond = shard->frontier.beyond_bytes;
    uint64_t capacity = (uint64_t)shard->capacity * shard->pool->geometry.slot_bytes;
    if (shard->frontier.slots < shard->slots)
        capacity = spw_frontier_room(shard, capacity) + beyond;
    spw_store_relaxed(&tier->capacity_bytes, capacity);
    spw_store_relaxed(&tier->used_bytes, shard->slabs.charged_bytes + beyond);
    spw_store_relaxed(&tier->entries, entries);
    spw_store_relaxed(&tier->leased, entries - shard->evictable - shard->frontier.beyond.count);
    spw_store_relaxed(&tier->evictable, shard->evictable);
}

void spw_shard_flush(struct spw_shard *shard)
{
    struct spw_news *news = &shard->news;
    show_room(shard);
    if (news->count == 0)
        return;
    uint64_t first = news->writer.tail + 1;
    uint64_t given = spw_bcast_publish(&news->writer, news->record, news->count);
    assert(given == first); /* the versions in the table say so */
    (void)given;
    (void)first;
    spw_shard_count(shard, SPW_WORKER_updates, news->count);
    news->count = 0;
    SPW_CRASH_POINT("shard.news_published");
}

/* ---- one change ------------------------------------------------------------------------------ */

void spw_shard_read_own(const struct spw_shard *shard, uint32_t slot, struct spw_entry_copy *out)
{
    int rc = spw_table_read(&shard->table.view, slot, false, out);
    assert(rc == 0); /* nobody else writes it */
    (void)rc;
}

void spw_shard_change(struct spw_shard *shard, struct spw_entry_copy *copy, uint32_t to,
                      const void *key)
{
    struct spw_update update = {
        .digest = {copy->digest[0], copy->digest[1]},
        .packed = spw_update_pack(copy->slot, to, copy->group, copy->space),
    };
    assert(spw_state_may(copy->state, to));
    copy->state = to;
    copy->version = spw_news_position(shard);
    if (to == SPW_READY)
        copy->fill = copy->version;
    if (to == SPW_RETIRED && shard->below.id_of)
        spw_below_slot_goes(shard, copy->slot, &update);
    spw_table_write(&shard->table, copy->slot, copy, key);
    SPW_CRASH_POINT("shard.table_written");
    if (to == SPW_FILLING)
        spw_shard_index_put(shard, copy->digest, copy->slot);
    spw_news_add(shard, &update);
}

void spw_shard_ready(struct spw_shard *shard, uint32_t slot)
{
    struct spw_entry_copy copy;
    spw_shard_read_own(shard, slot, &copy);
    spw_shard_change(shard, &copy, SPW_READY, NULL);
    shard->filling--;
    if (!spw_shard_is_held(shard, slot))
        spw_shard_evictable(shard, slot, copy.chunk_bytes, true);
    shard->stored++;
}

void spw_shard_retire(struct spw_shard *shard, uint32_t slot)
{
    struct spw_entry_copy copy;
    spw_shard_read_own(shard, slot, &copy);
    if (copy.state == SPW_FILLING)
        shard->filling--;
    else if (!spw_shard_is_held(shard, slot))
        spw_shard_evictable(shard, slot, copy.chunk_bytes, false);
    spw_shard_charge(shard, slot, copy.space, copy.chunk_bytes, false);
    bool lost = spw_shard_cold_of(shard, slot) < 0;
    spw_shard_change(shard, &copy, SPW_RETIRED, NULL);
    spw_shard_unlist(shard, slot);
    spw_slot_list_add(&shard->retired, slot);
    if (shard->chain == slot)
        shard->chain = SPW_NO_SLOT_ID;
    if (lost)
        spw_orphans_lost(shard, &copy);
}

void spw_shard_place(struct spw_shard *shard, uint32_t slot, uint64_t place_bytes)
{
    spw_table_place(&shard->table, slot, place_bytes);
}

uint32_t spw_shard_retire_space(struct spw_shard *shard, uint32_t space)
{
    uint32_t retired = 0;
    for (uint32_t slot = 0; slot < shard->slots; slot++) {
        struct spw_entry_copy copy;
        spw_shard_read_own(shard, slot, &copy);
        if (!spw_space_meant(space, copy.space) || !spw_entry_live(copy.state) ||
            spw_bitmap_has(shard->filling_copy, slot))
            continue;
        spw_shard_retire(shard, slot);
        retired++;
    }
    return retired;
}

/* ---- use ------------------------------------------------------------------------------------- */

void spw_shard_touch(struct spw_shard *shard, uint64_t tag)
{
    int64_t slot = spw_table_by_tag(&shard->table, tag, SPW_NO_SLOT_ID);
    if (slot < 0 || spw_shard_is_held(shard, (uint32_t)slot))
        return;
    spw_order_use(spw_shard_order(shard, (uint32_t)slot), shard->evict, (uint32_t)slot);
    spw_shard_count(shard, SPW_WORKER_touches, 1);
}

int spw_shard_find(const struct spw_shard *shard, const uint64_t digest[2],
                   struct spw_entry_copy *out_entry)
{
    int64_t slot = spw_table_by_tag(&shard->table, digest[0], SPW_NO_SLOT_ID);
    struct spw_entry_copy entry;
    if (slot < 0 || spw_table_read(&shard->table.view, (uint32_t)slot, true, &entry) < 0 ||
        entry.state != SPW_READY || entry.digest[1] != digest[1])
        return -ENOENT;
    *out_entry = entry;
    return 0;
}

void spw_shard_demote(struct spw_shard *shard, uint32_t slot)
{
    if (spw_shard_is_held(shard, slot))
        return;
    spw_order_scorn(spw_shard_order(shard, slot), slot);
    if (shard->chain == slot)
        shard->chain = SPW_NO_SLOT_ID;
    spw_shard_count(shard, SPW_WORKER_demoted, 1);
}

/* ---- the rest -------------------------------------------------------------------------------- */

void spw_shard_copy_begin(struct spw_shard *shard, uint32_t slot)
{
    assert(slot < shard->slots && !spw_bitmap_has(shard->filling_copy, slot));
    shard->filling_copy[slot / 64] |= 1ull << slot % 64;
}

void spw_shard_copy_end(struct spw_shard *shard, uint32_t slot)
{
    assert(slot < shard->slots && spw_bitmap_has(shard->filling_copy, slot));
    shard->filling_copy[slot / 64] &= ~(1ull << slot % 64);
}

int spw_shard_entry(const struct spw_shard *shard, uint32_t slot, struct spw_entry_copy *out)
{
    return spw_table_read(&shard->table.view, slot, true, out);
}

void spw_shard_stats(const struct spw_shard *shard, struct spw_shard_stats *out)
{
    *out = (struct spw_shard_stats){
        .filling = shard->filling,
        .ready = spw_shard_resident(shard) - shard->filling,
        .retired = shard->retired.count,
        .free = shard->slots - spw_shard_resident(shard) - shard->retired.count -
                shard->quarantine.slots.count,
        .quarantined = shard->quarantine.slots.count,
        .evicted = shard->evicted,
        .stored = shard->stored,
        .fenced = shard->reclaim.fences,
    };
}

int spw_shard_claim(struct spw_shard *shard, uint32_t source_shard, uint32_t slot, uint64_t fill)
{
    return spw_claims_take(&shard->claims, source_shard, slot, fill);
}

void spw_shard_unclaim(struct spw_shard *shard, uint32_t source_shard, uint32_t slot)
{
    spw_claims_drop(&shard->claims, source_shard, slot);
}

uint64_t spw_shard_incarnation(const struct spw_shard *shard)
{
    return shard->incarnation;
}

/* ---- open and close -------------------------------------------------------------------------- */

static int init_memory(struct spw_shard *shard, struct spw_error *err)
{
    int rc = spw_slot_links_init(&shard->links, shard->slots);
    if (rc == 0)
        rc = spw_claims_init(&shard->claims, shard->pool, shard->k);
    shard->filling_copy = calloc((shard->slots + 63) / 64, sizeof *shard->filling_copy);
    if (rc < 0 || !shard->filling_copy)
        return spw_fail(err, -ENOMEM, "no memory for the lists of %u slots", shard->slots);
    if (spw_ages_init(&shard->ages, &shard->links) < 0)
        return spw_fail(err, -ENOMEM, "no memory for the ages of %u slots", shard->slots);
    spw_order_init(&shard->recency, &shard->ages);
    spw_order_init(&shard->frontier.beyond, &shard->ages);
    spw_slot_list_init(&shard->retired, &shard->links);
    spw_slot_list_init(&shard->free, &shard->links);
    spw_slot_list_init(&shard->quarantine.slots, &shard->links);
    if (spw_slabs_init(shard) < 0)
        return spw_fail(err, -ENOMEM, "no memory for the lists of free slots");
    if (spw_below_init(shard) < 0 || spw_orphans_init(shard) < 0)
        return spw_fail(err, -ENOMEM, "no memory for the entries of the tier below, or for chains");
    return 0;
}

static int init_writer(struct spw_shard *shard)
{
    const struct spw_pool *pool = shard->pool;
    return spw_bcast_writer_init(&shard->news.writer, shard->feed,
                                 spw_pool_feed_at(pool, shard->k, pool->feed_map.ring_off),
                                 pool->geometry.update_records, pool->geometry.gate_records);
}

static int init_shared(struct spw_shard *shard, const struct spw_shard_config *config,
                       struct spw_error *err)
{
    struct spw_pool *pool = shard->pool;
    const struct spw_geometry *geometry = &pool->geometry;
    struct spw_reclaim_config reclaim = {.pool = pool,
                                         .k = shard->k,
                                         .fence_limit_ns = config->fence_limit_ns,
                                         .client_dead = config->client_dead,
                                         .ctx = config->ctx};
    uint32_t entries = spw_geometry_entries(geometry);
    if (geometry->index_buckets < spw_table_buckets(entries))
        return spw_fail(err, -EINVAL, "index_buckets is %u, %u entries need %u",
                        geometry->index_buckets, entries, spw_table_buckets(entries));
    spw_table_init(&shard->table, shard->feed, &pool->feed_map, geometry);
    spw_reclaim_init(&shard->reclaim, &reclaim);
    int rc = init_writer(shard);
    if (rc == -EBADMSG) {
        spw_shard_make_afresh(shard);
        rc = init_writer(shard);
    }
    if (rc < 0)
        return spw_fail(err, rc, "update ring of shard %u: %u records, gate of %u", shard->k,
                        geometry->update_records, geometry->gate_records);
    return 0;
}

int spw_shard_open(const struct spw_shard_config *config, struct spw_shard **out_shard,
                   struct spw_error *err)
{
    struct spw_pool *pool = config->pool;
    struct spw_shard *shard = calloc(1, sizeof *shard);
    if (!shard)
        return spw_fail(err, -ENOMEM, "no memory for shard %u", config->k);
    shard->pool = pool;
    shard->k = config->k;
    shard->feed = pool->feed[config->k];
    shard->capacity = pool->geometry.capacity_chunks;
    shard->slots = pool->geometry.slots;
    shard->chain = SPW_NO_SLOT_ID;
    shard->evict = config->evict;
    shard->evicting = config->evicting;
    shard->elsewhere = config->elsewhere;
    shard->demote_below = config->demote_below;
    shard->ctx = config->ctx;
    shard->quarantine.now_ns = config->now_ns;
    shard->quarantine.time_ns = config->io_quarantine_ns;
    shard->quarantine.lingers = config->transfers_linger;
    shard->frontier.ask = config->usable_slots;
    shard->frontier.ctx = config->usable_ctx;
    spw_frontier_init(shard);
    int rc = init_memory(shard, err);
    if (rc == 0)
        rc = init_shared(shard, config, err);
    if (rc == 0)
        rc = spw_shard_adopt(shard, err);
    if (rc < 0) {
        spw_shard_close(shard);
        return rc;
    }
    struct spw_tier_record *tier = &shard->feed->tier[SPW_TIER_HOST];
    spw_store_relaxed(&tier->state, SPW_TIER_UP);
    show_room(shard);
    spw_fence_full(); /* [CM-1] entries found FREE before copying bits are read at hand-out */
    *out_shard = shard;
    return 0;
}

void spw_shard_close(struct spw_shard *shard)
{
    if (!shard)
        return;
    spw_claims_fini(&shard->claims);
    spw_ages_fini(&shard->ages);
    spw_slot_links_fini(&shard->links);
    spw_slabs_fini(shard);
    spw_below_fini(shard);
    spw_orphans_fini(shard);
    free(shard->filling_copy);
    free(shard);
}
