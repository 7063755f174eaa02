/*
 * A shard: the API of tier/shard.h over table, lists, claims and ring. Written: everything in this
 * worker's feed but its acknowledgements and most counters.
 *
 * Room. The shard has capacity + reserve slots. FILLING and READY chunks never exceed the capacity,
 * so at least `reserve` slots are always FREE or RETIRED on their way to it. A reserve of a chunk
 * at full capacity takes a FREE slot at once and retires exactly one victim for it: residency stays
 * at the capacity, the cache is an exact LRU of that many chunks, and what is done ahead is the
 * waiting until nobody can ask for a retired slot any more. A burst longer than the reserve, while
 * clients stand in steps that began before it, finds no slot; then nothing is evicted either. Only
 * when copies out of retired slots hold the whole reserve does a refused reserve evict one more.
 *
 * Recency. FILLING and READY chunks stand in one list, oldest first; victims are READY ones. A
 * chunk gets its place when it is reserved, touched or asked for again, and keeps it when it
 * becomes READY. Chunks of one call are a chain offered head first: each is placed right behind the
 * one before, so the deepest is evicted first.
 *
 * News. A change writes the entry with the position its record is going to get, then gathers the
 * record; spw_shard_flush() publishes what was gathered in one batch. The ring gives positions in
 * order, so the i-th record gathered gets tail + 1 + i.
 *
 * What others see if the worker dies
 *   entry written, news not out   its successor's incarnation makes all read the table again
 *   victim retired, slot not yet  a chunk less
 *   FILLING                       the successor retires it
 *   cell dropped, still RETIRED   the successor indexes it again
 *   FREE                          the slot is handed out by the successor
 */
#include "tier/shard_impl.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "shm/crash_point.h"
#include "tier/adopt.h"
#include "tier/afresh.h"
#include "tier/counters.h"
#include "tier/quarantine.h"
#include "tier/state.h"

#define RECLAIM_BATCHES 16u

static void count(struct spw_shard *shard, enum spw_worker_counter counter, uint64_t amount)
{
    spw_add_own(&shard->feed->counter[counter], amount);
}

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

void spw_shard_flush(struct spw_shard *shard)
{
    struct spw_news *news = &shard->news;
    if (news->count == 0)
        return;
    uint64_t first = news->writer.tail + 1;
    uint64_t given = spw_bcast_publish(&news->writer, news->record, news->count);
    assert(given == first); /* the versions in the table say so */
    (void)given;
    (void)first;
    count(shard, SPW_WORKER_updates, news->count);
    news->count = 0;
    SPW_CRASH_POINT("shard.news_published");
}

/* ---- one change ------------------------------------------------------------------------------ */

static void own_entry(const struct spw_shard *shard, uint32_t slot, struct spw_entry_copy *copy)
{
    int rc = spw_table_read(&shard->table.view, slot, false, copy);
    assert(rc == 0); /* nobody else writes it */
    (void)rc;
}

/* Write @copy in its new state @to, whose version is the next record's position; gather that. */
static void change(struct spw_shard *shard, struct spw_entry_copy *copy, uint32_t to,
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
    if (to == SPW_RETIRED)
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
    own_entry(shard, slot, &copy);
    change(shard, &copy, SPW_READY, NULL);
    shard->filling--;
    shard->stored++;
}

void spw_shard_retire(struct spw_shard *shard, uint32_t slot)
{
    struct spw_entry_copy copy;
    own_entry(shard, slot, &copy);
    shard->filling -= copy.state == SPW_FILLING;
    change(shard, &copy, SPW_RETIRED, NULL);
    spw_shard_unlist(shard, slot);
    spw_slot_list_add(&shard->retired, slot);
    if (shard->chain == slot)
        shard->chain = SPW_NO_SLOT_ID;
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
        own_entry(shard, slot, &copy);
        if (copy.space != space || !spw_entry_live(copy.state) ||
            spw_bitmap_has(shard->filling_copy, slot))
            continue;
        spw_shard_retire(shard, slot);
        retired++;
    }
    return retired;
}

/* ---- reserve --------------------------------------------------------------------------------- */

/* Oldest READY slot that is not protected, or SPW_NO_SLOT_ID. */
static uint32_t find_victim(const struct spw_shard *shard, const uint64_t *protect)
{
    if (spw_shard_resident(shard) == shard->filling)
        return SPW_NO_SLOT_ID;
    uint32_t slot = shard->recency.oldest;
    for (; slot != SPW_NO_SLOT_ID; slot = spw_slot_list_newer(&shard->recency, slot)) {
        uint64_t packed = spw_load_relaxed(&shard->table.entry[slot].packed);
        if (SPW_PACKED_STATE(packed) == SPW_READY && !(protect && spw_bitmap_has(protect, slot)))
            break;
    }
    return slot;
}

/* A FREE slot that no copying worker claims, or SPW_NO_SLOT_ID. */
static uint32_t find_free(const struct spw_shard *shard)
{
    uint32_t slot = shard->free.oldest;
    while (slot != SPW_NO_SLOT_ID && spw_claims_cover(&shard->claims, shard->k, slot))
        slot = spw_slot_list_newer(&shard->free, slot);
    return slot;
}

/* Give @slot, which is in no list, its place in the order of age. */
static void place_by_age(struct spw_shard *shard, uint32_t slot, const uint64_t *protect)
{
    uint32_t before = shard->chain;
    if (protect && before != SPW_NO_SLOT_ID && before != slot && spw_bitmap_has(protect, before))
        spw_slot_list_add_behind(&shard->recency, slot, before);
    else
        spw_slot_list_add(&shard->recency, slot);
    shard->chain = slot;
}

static void fill_slot(struct spw_shard *shard, uint32_t slot, const struct spw_chunk_key *key,
                      uint32_t rank, uint64_t chunk_bytes)
{
    struct spw_entry_copy copy = {
        .digest = {key->digest[0], key->digest[1]},
        .chunk_bytes = chunk_bytes,
        .state = SPW_FREE,
        .group = key->group,
        .key_bytes = key->key_bytes,
        .rank = rank,
        .space = key->space,
        .slot = slot,
    };
    spw_slot_list_remove(&shard->free, slot);
    spw_below_slot_comes(shard, slot, key);
    change(shard, &copy, SPW_FILLING, key->key);
    shard->filling++;
}

static bool evict_one(struct spw_shard *shard, const uint64_t *protect)
{
    uint32_t victim = find_victim(shard, protect);
    if (victim == SPW_NO_SLOT_ID)
        return false;
    spw_shard_retire(shard, victim);
    shard->evicted++;
    count(shard, SPW_WORKER_evicted, 1);
    SPW_CRASH_POINT("shard.victim_retired");
    return true;
}

/* Chunks that may be resident: what lies in quarantine is not there for them. */
static uint32_t room(const struct spw_shard *shard)
{
    uint32_t aside = shard->quarantine.slots.count;
    return aside < shard->capacity ? shard->capacity - aside : 1;
}

/* Retire what must go for one more chunk; false: too little may go, nothing has. */
static bool make_room(struct spw_shard *shard, const uint64_t *protect)
{
    while (spw_shard_resident(shard) >= room(shard))
        if (!evict_one(shard, protect))
            return false;
    return true;
}

/* Every FREE slot is being copied from, or in quarantine, and none is on its way: the whole reserve
 * lies with claims and the dead, which may last. Put one more behind it, so that nobody waits for a
 * slot until that ends. */
static void replace_claimed(struct spw_shard *shard, const uint64_t *protect)
{
    if (shard->free.count + shard->quarantine.slots.count > 0 && shard->retired.count == 0)
        evict_one(shard, protect);
}

static uint32_t free_some(struct spw_shard *shard);

enum spw_reserve_result spw_shard_reserve(struct spw_shard *shard, const struct spw_chunk_key *key,
                                          uint32_t rank, uint64_t chunk_bytes,
                                          const uint64_t *protect, uint32_t *out_slot)
{
    assert(key->key_bytes >= 1 && key->key_bytes <= SPW_KEY_BYTES_MAX);
    int64_t there = spw_table_live(&shard->table, key);
    if (there >= 0) {
        *out_slot = (uint32_t)there;
        if (spw_shard_is_held(shard, *out_slot))
            return SPW_PRESENT;
        spw_slot_list_remove(&shard->recency, *out_slot);
        place_by_age(shard, *out_slot, protect);
        return SPW_PRESENT;
    }
    enum spw_reserve_result result =
        spw_shard_give_slot(shard, key, rank, chunk_bytes, protect, out_slot);
    if (result == SPW_RESERVED)
        place_by_age(shard, *out_slot, protect);
    return result;
}

enum spw_reserve_result spw_shard_give_slot(struct spw_shard *shard,
                                            const struct spw_chunk_key *key, uint32_t rank,
                                            uint64_t chunk_bytes, const uint64_t *protect,
                                            uint32_t *out_slot)
{
    uint32_t slot = find_free(shard);
    if (slot == SPW_NO_SLOT_ID && free_some(shard) != 0)
        slot = find_free(shard);
    if (slot == SPW_NO_SLOT_ID)
        replace_claimed(shard, protect);
    if (slot == SPW_NO_SLOT_ID || !make_room(shard, protect))
        return SPW_NO_SLOT;
    fill_slot(shard, slot, key, rank, chunk_bytes);
    *out_slot = slot;
    return SPW_RESERVED;
}

void spw_shard_touch(struct spw_shard *shard, uint64_t tag)
{
    int64_t slot = spw_table_by_tag(&shard->table, tag, SPW_NO_SLOT_ID);
    if (slot < 0 || spw_shard_is_held(shard, (uint32_t)slot))
        return;
    spw_slot_list_remove(&shard->recency, (uint32_t)slot);
    spw_slot_list_add(&shard->recency, (uint32_t)slot);
    count(shard, SPW_WORKER_touches, 1);
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
    spw_slot_list_remove(&shard->recency, slot);
    spw_slot_list_add_oldest(&shard->recency, slot);
    if (shard->chain == slot)
        shard->chain = SPW_NO_SLOT_ID;
    count(shard, SPW_WORKER_demoted, 1);
}

/* ---- reclaim --------------------------------------------------------------------------------- */

static void free_slot(struct spw_shard *shard, uint32_t slot)
{
    struct spw_entry_copy copy;
    own_entry(shard, slot, &copy);
    spw_table_index_drop(&shard->table, copy.digest, slot);
    SPW_CRASH_POINT("shard.cell_dropped");
    assert(spw_state_may(copy.state, SPW_FREE));
    struct spw_entry_copy empty = {.version = copy.version, .state = SPW_FREE};
    spw_table_write(&shard->table, slot, &empty, NULL);
    SPW_CRASH_POINT("shard.slot_freed");
    spw_slot_list_remove(&shard->retired, slot);
    spw_slot_list_add(&shard->free, slot);
}

/* Up to a batch of retired slots from *at on whose copy, if any, has ended. */
static uint32_t gather_candidates(const struct spw_shard *shard, uint32_t *at,
                                  struct spw_candidate candidates[SPW_RECLAIM_BATCH])
{
    uint32_t found = 0;
    while (*at != SPW_NO_SLOT_ID && found < SPW_RECLAIM_BATCH) {
        if (!spw_bitmap_has(shard->filling_copy, *at))
            candidates[found++] = (struct spw_candidate){
                .version = spw_load_relaxed(&shard->table.entry[*at].version), .slot = *at};
        *at = spw_slot_list_newer(&shard->retired, *at);
    }
    return found;
}

/* RETIRED -> FREE for every slot that nobody can ask for; a batch that is held as a whole ends it.
 */
static uint32_t free_some(struct spw_shard *shard)
{
    struct spw_candidate candidates[SPW_RECLAIM_BATCH];
    uint32_t freed = 0, at = shard->retired.oldest;
    uint64_t fences = shard->reclaim.fences;
    if (at == SPW_NO_SLOT_ID)
        return 0;
    spw_shard_flush(shard);
    for (uint32_t b = 0; b < RECLAIM_BATCHES && at != SPW_NO_SLOT_ID; b++) {
        uint32_t n = gather_candidates(shard, &at, candidates);
        if (spw_reclaim_decide(&shard->reclaim, shard->now_ns, candidates, n) == 0)
            break;
        for (uint32_t i = 0; i < n; i++) {
            if (candidates[i].held)
                continue;
            free_slot(shard, candidates[i].slot);
            freed++;
        }
    }
    spw_fence_full(); /* [CM-1] entries FREE before copying bits are read at hand-out */
    count(shard, SPW_WORKER_freed, freed);
    count(shard, SPW_WORKER_fences, shard->reclaim.fences - fences);
    return freed;
}

uint32_t spw_shard_reclaim(struct spw_shard *shard, uint64_t now_ns)
{
    shard->now_ns = now_ns;
    spw_quarantine_check(shard, now_ns);
    return free_some(shard);
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
        .free = shard->free.count,
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
    spw_slot_list_init(&shard->recency, &shard->links);
    spw_slot_list_init(&shard->retired, &shard->links);
    spw_slot_list_init(&shard->free, &shard->links);
    spw_slot_list_init(&shard->quarantine.slots, &shard->links);
    if (spw_below_init(shard) < 0)
        return spw_fail(err, -ENOMEM, "no memory for the entries of the tier below");
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
    shard->quarantine.now_ns = config->now_ns;
    shard->quarantine.time_ns = config->io_quarantine_ns;
    shard->quarantine.lingers = config->transfers_linger;
    int rc = init_memory(shard, err);
    if (rc == 0)
        rc = init_shared(shard, config, err);
    if (rc == 0)
        rc = spw_shard_adopt(shard, err);
    if (rc < 0) {
        spw_shard_close(shard);
        return rc;
    }
    spw_fence_full(); /* [CM-1] entries found FREE before copying bits are read at hand-out */
    *out_shard = shard;
    return 0;
}

void spw_shard_close(struct spw_shard *shard)
{
    if (!shard)
        return;
    spw_claims_fini(&shard->claims);
    spw_slot_links_fini(&shard->links);
    spw_below_fini(shard);
    free(shard->filling_copy);
    free(shard);
}
