#ifndef SPW_TIER_SHARD_IMPL_H
#define SPW_TIER_SHARD_IMPL_H
/*
 * Insides of a shard, for its own parts (shard.c, room.c, shard_cold.c, adopt.c, afresh.c, quarantine.c).
 * Process-local.
 */
#include "tier/chain.h"
#include "tier/claims.h"
#include "tier/counters.h"
#include "tier/lru.h"
#include "tier/reclaim.h"
#include "tier/shard.h"
#include "tier/shares.h"
#include "tier/slab.h"

/* Records gathered, not yet published: the i-th will get position writer.tail + 1 + i. */
struct spw_news {
    struct spw_bcast_writer writer;
    struct spw_record record[SPW_NEWS_MAX];
    uint32_t count;
};

/* See tier/quarantine.h. */
struct spw_quarantine {
    struct spw_slot_list slots; /* put aside, RETIRED with fill 0, in order of version */
    uint64_t now_ns;            /* of the adoption                                     */
    uint64_t time_ns;
    uint64_t until_ns;
    bool lingers; /* transfers of this worker, too, may outlive it */
    bool stands;
};

/* See tier/shard_cold.h. All but the empty list is NULL where there is no tier below. */
struct spw_below {
    uint32_t *id_of;   /* a slot: the id that is BACKED for it, or SPW_NO_SLOT_ID */
    uint32_t *slot_of; /* an id: the slot it is BACKED for, or SPW_NO_SLOT_ID     */
    uint64_t *is_held; /* bitmap over slots: stands in .held, not in recency      */
    struct spw_slot_list held;
};

/* See tier/frontier.h. */
struct spw_frontier {
    uint32_t slots;          /* below it they may be handed out           */
    struct spw_order beyond; /* READY chunks from there on, and so many bytes */
    uint64_t beyond_bytes;
    uint64_t beyond_of[SPW_LANES]; /* of those, by lane */
    uint32_t (*ask)(void *ctx);    /* or NULL */
    void *ctx;
};

struct spw_shard {
    struct spw_pool *pool;
    struct spw_feed_head *feed;
    struct spw_table table;
    struct spw_news news;
    struct spw_claims claims;
    struct spw_reclaim reclaim;
    struct spw_slot_links links;
    struct spw_ages ages;
    struct spw_order recency;     /* FILLING and READY below the frontier but the held, a lane a space */
    struct spw_slot_list retired; /* in order of version                     */
    struct spw_slot_list free;    /* a slot for each slab that is FREE as a whole */
    struct spw_slabs slabs;
    struct spw_quarantine quarantine;
    struct spw_frontier frontier;
    struct spw_below below;
    enum spw_evict_policy evict;
    void (*evicting)(void *ctx, uint32_t slot);                       /* or NULL */
    bool (*elsewhere)(void *ctx, const struct spw_entry_copy *entry); /* or NULL */
    void (*demote_below)(void *ctx, uint32_t id);                     /* or NULL */
    struct spw_chain *chains;
    void *ctx;
    uint64_t *filling_copy; /* bitmap: a copy into the slot has begun        */
    uint64_t incarnation;
    uint64_t now_ns; /* as of the last spw_shard_reclaim()               */
    uint32_t k;
    uint32_t capacity;
    uint32_t slots;
    uint32_t evictable; /* READY chunks but the held */
    uint64_t evictable_bytes;
    struct spw_shares shares; /* by lane: what each space uses, and may use */
    uint32_t filling;         /* those of the resident; the others are READY         */
    uint32_t chain;           /* slot given or named by the last reserve             */
    uint64_t evicted;
    uint64_t stored;
};

static inline void spw_shard_count(struct spw_shard *shard, enum spw_worker_counter counter,
                                   uint64_t amount)
{
    spw_add_own(&shard->feed->counter[counter], amount);
}

/** The lane of recency that chunks of @space stand in, whatever shared memory says it is. */
static inline uint32_t spw_shard_lane(uint32_t space)
{
    return space % SPW_LANES;
}

/** Entry of @slot without its key. */
void spw_shard_read_own(const struct spw_shard *shard, uint32_t slot, struct spw_entry_copy *out);
/** Write @copy in its new state @to, whose version is the next record's position; gather that. @key
 * where it becomes FILLING, else NULL. */
void spw_shard_change(struct spw_shard *shard, struct spw_entry_copy *copy, uint32_t to,
                      const void *key);

/** Position the next record will get. Flushes first when the news is full. */
uint64_t spw_news_position(struct spw_shard *shard);
/** Gather the record whose position was asked just before. */
void spw_news_add(struct spw_shard *shard, const struct spw_update *update);

/**
 * A slot for @key, which isn't live: as spw_shard_reserve(), but it is in no list afterwards.
 * SPW_RESERVED or SPW_NO_SLOT.
 */
enum spw_reserve_result spw_shard_give_slot(struct spw_shard *shard,
                                            const struct spw_chunk_key *key, uint32_t rank,
                                            uint64_t chunk_bytes, const uint64_t *protect,
                                            uint32_t *out_slot);
/** It found no slot for so many bytes of @space: true if all that lacks is that RETIRED ones become
 * FREE. */
bool spw_shard_slot_comes(struct spw_shard *shard, uint32_t space, uint64_t chunk_bytes);

/** May @slot be handed out, as far as the frontier goes? */
static inline bool spw_shard_is_usable(const struct spw_shard *shard, uint32_t slot)
{
    return slot < shard->frontier.slots;
}

/** The order of age that the chunk in @slot stands in, if it isn't held. */
static inline struct spw_order *spw_shard_order(struct spw_shard *shard, uint32_t slot)
{
    return spw_shard_is_usable(shard, slot) ? &shard->recency : &shard->frontier.beyond;
}

/** The chunk in @slot came to or left the victims-to-be: READY and not held. */
static inline void spw_shard_evictable(struct spw_shard *shard, uint32_t slot, uint64_t chunk_bytes,
                                       bool came)
{
    if (!spw_shard_is_usable(shard, slot))
        return;
    uint64_t bytes = spw_slab_charge(shard, chunk_bytes);
    shard->evictable += came ? 1u : -1u;
    shard->evictable_bytes += came ? bytes : -bytes;
}

/** The chunk of @space in @slot came to or left the FILLING and READY ones. */
static inline void spw_shard_charge(struct spw_shard *shard, uint32_t slot, uint32_t space,
                                    uint64_t chunk_bytes, bool came)
{
    bool usable = spw_shard_is_usable(shard, slot);
    uint64_t bytes = spw_slab_charge(shard, chunk_bytes);
    uint64_t *used = &shard->shares.used_bytes[spw_shard_lane(space)];
    uint64_t *beyond = &shard->frontier.beyond_of[spw_shard_lane(space)];
    *(usable ? &shard->slabs.charged_bytes : &shard->frontier.beyond_bytes) +=
        came ? bytes : -bytes;
    *(usable ? used : beyond) += came ? bytes : -bytes;
    spw_store_relaxed(&shard->feed->space_bytes[spw_shard_lane(space)],
                      *used + *beyond); /* to look at */
}

/** 0 or -ENOMEM. */
int spw_below_init(struct spw_shard *shard);
void spw_below_fini(struct spw_shard *shard);
/** Where there is a tier below: @slot is about to be FILLING with @key: its entry below, if there is one, becomes BACKED. */
void spw_below_slot_comes(struct spw_shard *shard, uint32_t slot, const struct spw_chunk_key *key);
/** Likewise: live @slot is about to be RETIRED: its entry below, if there is one, becomes COLD, and that is
 * what @update, the record of the change, says of the key then. */
void spw_below_slot_goes(struct spw_shard *shard, uint32_t slot, struct spw_update *update);

/** FILLING and READY chunks. */
static inline uint32_t spw_shard_resident(const struct spw_shard *shard)
{
    return shard->recency.count + shard->frontier.beyond.count + shard->below.held.count;
}

static inline bool spw_shard_is_held(const struct spw_shard *shard, uint32_t slot)
{
    return shard->below.held.count != 0 && shard->below.is_held[slot / 64] >> (slot % 64) & 1;
}

/** Take live @slot out of the list it is in. */
void spw_shard_unlist(struct spw_shard *shard, uint32_t slot);

/** An entry torn before it was ever published may have no digest; it is never looked for. */
static inline void spw_shard_index_put(struct spw_shard *shard, const uint64_t digest[2],
                                       uint32_t slot)
{
    if (digest[0] != 0 || digest[1] != 0)
        spw_table_index_put(&shard->table, digest, slot);
}

static inline bool spw_bitmap_has(const uint64_t *bits, uint32_t bit)
{
    return bits[bit / 64] >> (bit % 64) & 1;
}

#endif
