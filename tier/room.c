/*
 * Room in a shard: slots handed out, victims, and RETIRED slots that become FREE again. Written:
 * entries, index and news, by the shard's worker alone.
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
 * What others see if the worker dies
 *   victim retired, slot not yet  a chunk less
 *   cell dropped, still RETIRED   the successor indexes it again
 *   FREE                          the slot is handed out by the successor
 */
#include <assert.h>

#include "shm/crash_point.h"
#include "tier/quarantine.h"
#include "tier/shard_impl.h"
#include "tier/state.h"

#define RECLAIM_BATCHES 16u

/* ---- reclaim --------------------------------------------------------------------------------- */

static void free_slot(struct spw_shard *shard, uint32_t slot)
{
    struct spw_entry_copy copy;
    spw_shard_read_own(shard, slot, &copy);
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
    spw_shard_count(shard, SPW_WORKER_freed, freed);
    spw_shard_count(shard, SPW_WORKER_fences, shard->reclaim.fences - fences);
    return freed;
}

uint32_t spw_shard_reclaim(struct spw_shard *shard, uint64_t now_ns)
{
    shard->now_ns = now_ns;
    spw_quarantine_check(shard, now_ns);
    return free_some(shard);
}

/* ---- reserve --------------------------------------------------------------------------------- */

/* Oldest READY slot that is not protected, or SPW_NO_SLOT_ID. */
static uint32_t find_victim(const struct spw_shard *shard, const uint64_t *protect)
{
    if (spw_shard_resident(shard) == shard->filling)
        return SPW_NO_SLOT_ID;
    uint32_t slot = spw_evict_next(&shard->recency);
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
    if (shard->below.id_of)
        spw_below_slot_comes(shard, slot, key);
    spw_shard_change(shard, &copy, SPW_FILLING, key->key);
    shard->filling++;
}

static bool evict_one(struct spw_shard *shard, const uint64_t *protect)
{
    uint32_t victim = find_victim(shard, protect);
    if (victim == SPW_NO_SLOT_ID)
        return false;
    if (shard->evicting)
        shard->evicting(shard->ctx, victim);
    spw_shard_retire(shard, victim);
    shard->evicted++;
    spw_shard_count(shard, SPW_WORKER_evicted, 1);
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
        if (shard->evict == SPW_EVICT_BY_USE) {
            spw_slot_list_remove(&shard->recency, *out_slot);
            place_by_age(shard, *out_slot, protect);
        } else {
            shard->chain = SPW_NO_SLOT_ID;
        }
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
