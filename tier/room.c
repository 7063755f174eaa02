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
 * when copies out of retired slots hold the whole reserve does a reserve evict one more.
 *
 * Slabs. Where slots share slot_bytes of payload (tier/slab.h), chunks are charged at their true
 * size, and those of one size lie side by side. A chunk whose class has no cell left and finds no
 * slab that is FREE as a whole evicts the oldest chunk, with all of its slab if its class is another.
 *
 * Shares. Where spaces have shares of a tier, whose chunk is the victim goes by tier/shares.h; the
 * oldest there is where none has any.
 *
 * Recency. FILLING and READY chunks stand in order of age, those of each space in a lane of their own
 * (tier/order.h); victims are READY ones. A chunk gets its place when it is reserved, touched or asked
 * for again, and keeps it when it becomes READY. Chunks of one call are a chain offered head first:
 * each is placed right behind the one before, so the deepest is evicted first.
 *
 * What others see if the worker dies
 *   victim retired, slot not yet  a chunk less
 *   cell dropped, still RETIRED   the successor indexes it again
 *   FREE                          the slot is handed out by the successor
 */
#include <assert.h>

#include "shm/crash_point.h"
#include "tier/frontier.h"
#include "tier/quarantine.h"
#include "tier/shard_impl.h"
#include "tier/state.h"

#define RECLAIM_BATCHES 16u
#define SLABS_LOOKED_AT 256u

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
    spw_slab_give(shard, slot);
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
    spw_frontier_look(shard);
    return free_some(shard);
}

/* ---- victims --------------------------------------------------------------------------------- */

static uint32_t state_of(const struct spw_shard *shard, uint32_t slot)
{
    /* relaxed: only this worker writes it */
    return SPW_PACKED_STATE(spw_load_relaxed(&shard->table.entry[slot].packed));
}

/* Payload that resident chunks may take: what lies in quarantine is not there for them, nor is what
 * lies beyond the frontier. */
static uint64_t room_bytes(const struct spw_shard *shard)
{
    const struct spw_geometry *geometry = &shard->pool->geometry;
    uint64_t all = (uint64_t)shard->capacity * geometry->slot_bytes;
    uint64_t aside =
        (uint64_t)shard->quarantine.slots.count * (geometry->slot_bytes >> geometry->cell_shift);
    return spw_frontier_room(shard, aside < all ? all - aside : geometry->slot_bytes);
}

/* Shares as they are now, for those lanes that have chunks, and for who wants room. */
static void look_at_shares(struct spw_shard *shard, uint32_t lane)
{
    for (uint32_t i = 0; i < SPW_LANES; i++) {
        if (shard->shares.used_bytes[i] == 0 && i != lane)
            continue;
        uint64_t shares = spw_load_relaxed(&shard->pool->ctl->space[i].shares);
        shard->shares.of[i] =
            (struct spw_share){SPW_SHARES_GUARANTEED(shares), SPW_SHARES_LARGEST(shares)};
    }
}

/* Who wants room for how many bytes more, and what it offered along with that. */
struct want {
    uint32_t lane;
    uint64_t bytes;
    uint64_t room_bytes; /* as it was found */
    const uint64_t *protect;
    struct spw_slab_class *class; /* a cell of which is wanted */
};

static bool may_go(const struct spw_shard *shard, uint32_t slot, const struct want *want)
{
    uint32_t state = state_of(shard, slot);
    return state == SPW_FREE || state == SPW_RETIRED ||
           (state == SPW_READY && !spw_shard_is_held(shard, slot) &&
            !(want->protect && spw_bitmap_has(want->protect, slot)));
}

/* The oldest READY slot of some lanes that is not protected, or SPW_NO_SLOT_ID. One that is copied from
 * would be of no use to anybody for now, so it goes only where there is no other. */
static uint32_t oldest_of(const struct spw_shard *shard, const struct want *want, uint64_t lanes)
{
    struct spw_order_walk walk;
    uint32_t slot, copied = SPW_NO_SLOT_ID;
    spw_order_walk(&shard->recency, lanes, &walk);
    while ((slot = spw_order_next(&walk)) != SPW_NO_SLOT_ID) {
        if (state_of(shard, slot) != SPW_READY || !may_go(shard, slot, want))
            continue;
        if (!spw_claims_cover(&shard->claims, shard->k, slot))
            return slot;
        if (copied == SPW_NO_SLOT_ID)
            copied = slot;
    }
    return copied;
}

/* Some chunk could go, but for what is promised to spaces. */
static void count_refusal(struct spw_shard *shard, const struct want *want)
{
    if (oldest_of(shard, want, SPW_ALL_LANES) != SPW_NO_SLOT_ID)
        spw_shard_count(shard, SPW_WORKER_share_refused, 1);
}

/* The first step of @pick that has a victim; SPW_NO_SLOT_ID: none has. */
static uint32_t first_of_steps(struct spw_shard *shard, const struct want *want,
                               uint32_t (*pick)(const struct spw_shard *shard,
                                                const struct want *want, uint64_t lanes))
{
    uint64_t room = room_bytes(shard), tried = 0;
    uint32_t slot = SPW_NO_SLOT_ID;
    if (shard->evictable == 0)
        return SPW_NO_SLOT_ID;
    look_at_shares(shard, want->lane);
    for (uint32_t step = 0; step < SPW_SHARE_STEPS && slot == SPW_NO_SLOT_ID; step++) {
        uint64_t lanes =
            spw_shares_victims(&shard->shares, room, want->lane, want->bytes, step) & ~tried;
        if (lanes != 0)
            slot = pick(shard, want, lanes);
        tried |= lanes;
    }
    return slot;
}

/* Give @slot, which is in no list, its place in the order of age. */
static void place_by_age(struct spw_shard *shard, uint32_t slot, uint32_t space,
                         const uint64_t *protect)
{
    uint32_t before = shard->chain, lane = spw_shard_lane(space);
    struct spw_order *order = spw_shard_order(shard, slot);
    if (!protect || before == SPW_NO_SLOT_ID || before == slot ||
        !spw_bitmap_has(protect, before) || spw_order_lane(order, before) != lane)
        spw_order_add(order, slot, lane);
    else if (spw_shard_order(shard, before) == order)
        spw_order_add_behind(order, slot, before);
    else
        spw_order_add_behind_other(order, slot, before);
    shard->chain = slot;
}

static void fill_slot(struct spw_shard *shard, uint32_t slot, const struct spw_chunk_key *key,
                      uint32_t rank, uint64_t chunk_bytes, struct spw_slab_class *class)
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
    spw_slab_take(shard, slot, class);
    if (shard->below.id_of)
        spw_below_slot_comes(shard, slot, key);
    spw_shard_change(shard, &copy, SPW_FILLING, key->key);
    shard->filling++;
    spw_shard_charge(shard, slot, key->space, chunk_bytes, true);
}

static void evict(struct spw_shard *shard, uint32_t victim)
{
    if (shard->evicting)
        shard->evicting(shard->ctx, victim);
    spw_shard_retire(shard, victim);
    shard->evicted++;
    spw_shard_count(shard, SPW_WORKER_evicted, 1);
    SPW_CRASH_POINT("shard.victim_retired");
}

static bool evict_one(struct spw_shard *shard, const struct want *want)
{
    uint32_t victim = first_of_steps(shard, want, oldest_of);
    if (victim != SPW_NO_SLOT_ID)
        evict(shard, victim);
    return victim != SPW_NO_SLOT_ID;
}

/* Retire what must go for so many bytes more. False: too little may go, and unless much is
 * protected or promised nothing has. */
static bool make_room(struct spw_shard *shard, const struct want *want)
{
    uint64_t limit = want->room_bytes, bytes = want->bytes;
    if (shard->slabs.charged_bytes - shard->evictable_bytes + bytes > limit)
        return false;
    while (shard->slabs.charged_bytes + bytes > limit) {
        if (!evict_one(shard, want)) {
            count_refusal(shard, want);
            return false;
        }
    }
    return true;
}

/* Every FREE slot is being copied from, or in quarantine, and none is on its way: the whole reserve
 * lies with claims and the dead, which may last. Put one more behind it, so that nobody waits for a
 * slot until that ends. Likewise where chunks of a warm start take all there is below the frontier. */
static void replace_claimed(struct spw_shard *shard, const struct want *want)
{
    bool all = shard->frontier.slots == shard->slots;
    if ((shard->free.count + shard->quarantine.slots.count > 0 || !all) &&
        shard->retired.count == 0)
        evict_one(shard, want);
}

/* ---- slabs ----------------------------------------------------------------------------------- */

static bool slab_may_go(const struct spw_shard *shard, uint32_t slot, const struct want *want,
                        uint64_t victims)
{
    struct spw_share_unit unit = {.bytes = shard->pool->geometry.slot_bytes,
                                  .own = spw_slab_class_at(shard, slot)->owner != 0};
    for (uint32_t at = spw_slab_first(shard, slot); at < spw_slab_end(shard, slot); at++) {
        if (!may_go(shard, at, want))
            return false;
        if (state_of(shard, at) == SPW_READY)
            unit.lanes |= 1ull << spw_order_lane(&shard->recency, at);
    }
    return spw_shares_keep(&shard->shares, room_bytes(shard), victims, want->lane, &unit) == 0;
}

static void evict_slab(struct spw_shard *shard, uint32_t slot)
{
    for (uint32_t at = spw_slab_first(shard, slot); at < spw_slab_end(shard, slot); at++)
        if (state_of(shard, at) == SPW_READY)
            evict(shard, at);
    spw_slab_leave(shard, slot);
}

/* What was retired last for this class is not FREE yet. */
static bool on_its_way(const struct spw_shard *shard, const struct spw_slab_class *class)
{
    return class->asked != SPW_NO_SLOT_ID && state_of(shard, class->asked) == SPW_RETIRED &&
           spw_load_relaxed(&shard->table.entry[class->asked].version) == class->asked_version;
}

/* The oldest READY slot of @victims that makes a cell: alone where it is of that class itself, else with
 * all of its slab. Who can't spare a slab isn't asked for one, and no more than so many slabs are looked
 * at that can't go: a store may be refused then, but the worker is never busy with one for long. As in
 * oldest_of(), what is copied from goes last. */
static uint32_t oldest_cell(const struct spw_shard *shard, const struct want *want,
                            uint64_t victims)
{
    uint64_t spare =
        spw_shares_spare(&shard->shares, room_bytes(shard), shard->pool->geometry.slot_bytes);
    struct spw_order_walk walk;
    uint32_t slot, looks = 0, kept = SPW_NO_SLOT_ID, copied = SPW_NO_SLOT_ID;
    spw_order_walk(&shard->recency, victims & (spare | 1ull << want->lane), &walk);
    while ((slot = spw_order_next(&walk)) != SPW_NO_SLOT_ID && looks < SLABS_LOOKED_AT) {
        if (state_of(shard, slot) != SPW_READY || !may_go(shard, slot, want))
            continue;
        bool is_of_class = spw_slab_class_at(shard, slot) == want->class;
        if (!is_of_class && spw_slab_first(shard, slot) == kept)
            continue;
        if (!is_of_class && !slab_may_go(shard, slot, want, victims)) {
            kept = spw_slab_first(shard, slot);
            looks++;
            continue;
        }
        if (!spw_claims_cover(&shard->claims, shard->k, slot))
            return slot;
        if (copied == SPW_NO_SLOT_ID)
            copied = slot;
    }
    return copied;
}

/* No slab has a cell left for a chunk of this class: make one. */
static void make_cell(struct spw_shard *shard, const struct want *want)
{
    struct spw_slab_class *class = want->class;
    if (on_its_way(shard, class))
        return;
    uint32_t slot = first_of_steps(shard, want, oldest_cell);
    if (slot == SPW_NO_SLOT_ID)
        return;
    if (spw_slab_class_at(shard, slot) == class)
        evict(shard, slot);
    else
        evict_slab(shard, slot);
    class->asked = slot;
    class->asked_version = spw_load_relaxed(&shard->table.entry[slot].version);
}

/* A FREE slot of the class, or SPW_NO_SLOT_ID. */
static uint32_t find_slot(struct spw_shard *shard, const struct want *want)
{
    uint32_t slot = spw_slab_find(shard, want->class);
    if (slot == SPW_NO_SLOT_ID && free_some(shard) != 0)
        slot = spw_slab_find(shard, want->class);
    if (slot != SPW_NO_SLOT_ID)
        return slot;
    if (shard->pool->geometry.cell_shift == 0)
        replace_claimed(shard, want);
    else
        make_cell(shard, want);
    free_some(shard);
    return spw_slab_find(shard, want->class);
}

/* ---- reserve --------------------------------------------------------------------------------- */

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
            spw_order_remove(spw_shard_order(shard, *out_slot), *out_slot);
            place_by_age(shard, *out_slot, key->space, protect);
        } else {
            shard->chain = SPW_NO_SLOT_ID;
        }
        return SPW_PRESENT;
    }
    enum spw_reserve_result result =
        spw_shard_give_slot(shard, key, rank, chunk_bytes, protect, out_slot);
    if (result == SPW_RESERVED)
        place_by_age(shard, *out_slot, key->space, protect);
    return result;
}

enum spw_reserve_result spw_shard_give_slot(struct spw_shard *shard,
                                            const struct spw_chunk_key *key, uint32_t rank,
                                            uint64_t chunk_bytes, const uint64_t *protect,
                                            uint32_t *out_slot)
{
    struct want want = {spw_shard_lane(key->space), spw_slab_charge(shard, chunk_bytes),
                        room_bytes(shard), protect,
                        spw_slab_class_of(shard, key->space, chunk_bytes)};
    bool fits = want.class && want.bytes <= want.room_bytes;
    uint32_t slot = fits ? find_slot(shard, &want) : SPW_NO_SLOT_ID;
    if (slot == SPW_NO_SLOT_ID || !make_room(shard, &want))
        return SPW_NO_SLOT;
    fill_slot(shard, slot, key, rank, chunk_bytes, want.class);
    *out_slot = slot;
    return SPW_RESERVED;
}

/* Something may go for it, if anything must. */
static bool has_room(struct spw_shard *shard, const struct want *want)
{
    uint64_t limit = room_bytes(shard), charged = shard->slabs.charged_bytes;
    if (charged + want->bytes <= limit)
        return true;
    return charged - shard->evictable_bytes + want->bytes <= limit &&
           first_of_steps(shard, want, oldest_of) != SPW_NO_SLOT_ID;
}

bool spw_shard_slot_comes(struct spw_shard *shard, uint32_t space, uint64_t chunk_bytes)
{
    struct want want = {spw_shard_lane(space), spw_slab_charge(shard, chunk_bytes),
                        room_bytes(shard), NULL, spw_slab_class_of(shard, space, chunk_bytes)};
    if (!has_room(shard, &want))
        return false;
    if (shard->pool->geometry.cell_shift == 0)
        return shard->retired.count != 0;
    return want.class && on_its_way(shard, want.class);
}
