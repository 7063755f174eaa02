#ifndef SPW_TESTS_SUPPORT_TINY_POOL_H
#define SPW_TESTS_SUPPORT_TINY_POOL_H
/*
 * A pool without names: all objects in one piece of shared anonymous memory, so that forked
 * children work on the same bytes and nothing is left behind. And a reader that does with one
 * shard's feed what a client does: steps, drain, resync, view.
 *
 *   roles     plain memory, no locks: who is alive is what the test says
 *   limits    a view knows keys by a small number, stored in the first word of the engine key
 */
#include "shm/bcast_ring.h"
#include "shm/pool.h"
#include "tier/shard.h"

#define TINY_FENCE_NS 1000000000ull

struct tiny_pool {
    struct spw_pool pool;
    bool dead[SPW_CLIENTS_MAX]; /* what shards are told of client c                */
    uint64_t fence_ns;          /* limit of shards opened from now on: TINY_FENCE_NS */
    uint64_t now_ns;            /* time at which they are adopted                  */
    uint64_t io_quarantine_ns;
    bool transfers_linger;
    enum spw_evict_policy evict;
    void (*evicting)(void *ctx, uint32_t slot);
    uint32_t (*usable_slots)(void *ctx); /* @ctx is this; NULL: all */
    void *memory;
    uint64_t bytes;
};

/** A geometry of @workers shards of @capacity chunks in @slots slots, with @clients. Rings of 64.
 */
struct spw_geometry tiny_geometry(uint32_t workers, uint32_t clients, uint32_t capacity,
                                  uint32_t slots);

/** The same with entries for @chunks of a tier below. */
struct spw_geometry tiny_geometry_cold(struct spw_geometry geometry, uint32_t chunks);

/** 0, or -ENOMEM, or -EBADMSG: the geometry is refused. */
int tiny_pool_make(struct tiny_pool *tiny, const struct spw_geometry *geometry);
void tiny_pool_free(struct tiny_pool *tiny);

/** Engine key number @n of @space: a chunk key whose bytes live in @storage. */
struct tiny_key {
    uint64_t word[4];
    struct spw_chunk_key key;
};
const struct spw_chunk_key *tiny_key(struct tiny_key *storage, uint32_t space, uint64_t n);

/** Adopt shard @k; NULL when it fails. */
struct spw_shard *tiny_shard_open(struct tiny_pool *tiny, uint32_t k);
/** Reserve key @n of space 0 and, with @protect, add its slot there. */
enum spw_reserve_result tiny_reserve(struct spw_shard *shard, uint64_t n, uint64_t *protect,
                                     uint32_t *out_slot);
/** Reserve key @n and make it READY; its slot, or UINT32_MAX when that was refused. */
uint32_t tiny_store(struct spw_shard *shard, uint64_t n);
/** The tier below holds key @n under @id: what spw_shard_cold_add() answers. */
int tiny_cold_add(struct spw_shard *shard, uint32_t id, uint64_t n);
/** Is key @n READY in shard @k? */
bool tiny_resident(const struct tiny_pool *tiny, uint32_t k, uint64_t n);
struct spw_shard_stats tiny_stats(const struct spw_shard *shard);

/** Client @c begins a step with views that contain all that the shards have published. */
uint64_t tiny_step_begin(struct tiny_pool *tiny, uint32_t c);
void tiny_pin(struct tiny_pool *tiny, uint32_t c, uint32_t shard, uint32_t slot, bool pinned);

#define TINY_KEYS 64

/** What a client knows of one shard: the state of keys 0..63 of space 0. Process-local. */
struct tiny_view {
    struct spw_table_view table;
    struct spw_bcast_reader reader;
    const struct spw_feed_head *feed;
    uint64_t incarnation;
    uint64_t digest[TINY_KEYS][2];
    uint8_t state[TINY_KEYS]; /* SPW_FREE: absent */
    bool valid;
    uint64_t gaps;
    void (*between)(void *ctx); /* NULL, or called between any two reads of a resync */
    void *ctx;
};

int tiny_view_init(struct tiny_view *view, const struct spw_pool *pool, uint32_t k);
/**
 * Bring the view up to date: drain, or empty it and read the table again after a gap or at another
 * incarnation, in the order that the design gives. Leaves .valid false where that failed; then no
 * key is known. Call it inside a step, after spw_client_step_begin().
 */
void tiny_view_update(struct tiny_view *view);

/** True when the view says of every key what the table says now. */
bool tiny_view_matches(const struct tiny_view *view);

#endif
