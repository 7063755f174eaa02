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
#include "tier/table.h"

struct tiny_pool {
    struct spw_pool pool;
    void *memory;
    uint64_t bytes;
};

/** A geometry of @workers shards of @capacity chunks in @slots slots, with @clients. Rings of 64.
 */
struct spw_geometry tiny_geometry(uint32_t workers, uint32_t clients, uint32_t capacity,
                                  uint32_t slots);

/** 0, or -ENOMEM, or -EBADMSG: the geometry is refused. */
int tiny_pool_make(struct tiny_pool *tiny, const struct spw_geometry *geometry);
void tiny_pool_free(struct tiny_pool *tiny);

/** Engine key number @n of @space: a chunk key whose bytes live in @storage. */
struct tiny_key {
    uint64_t word[4];
    struct spw_chunk_key key;
};
const struct spw_chunk_key *tiny_key(struct tiny_key *storage, uint32_t space, uint64_t n);

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
