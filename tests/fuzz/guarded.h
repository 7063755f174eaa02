#ifndef SPW_TESTS_FUZZ_GUARDED_H
#define SPW_TESTS_FUZZ_GUARDED_H
/*
 * Shared objects whose neighbours are no memory: a reader that leaves one by a byte is killed, and so
 * is one that writes through the mapping that its role gets read-only. And a small pool of them.
 *
 *   roles     one thread; .pool is what writers see, .readers what those see who may only read
 *   errors    what a target can't go on without is checked by fuzz_expect()
 */
#include "shm/pool.h"
#include "tests/fuzz/fuzz.h"
#include "tier/shard.h"

struct guarded {
    uint8_t *at;            /* ends where a page without access begins           */
    const uint8_t *readers; /* the same bytes, mapped again, read-only           */
    uint8_t *saved;         /* what guarded_restore() brings back                */
    uint64_t bytes;
};

/** Zeroed object of @bytes, a multiple of 64. Lives as long as the process. */
void guarded_make(struct guarded *object, uint64_t bytes);
void guarded_save(struct guarded *object);
void guarded_restore(struct guarded *object);

#define GUARDED_WORKERS 2u
#define GUARDED_CLIENTS 2u
#define GUARDED_CHUNKS  8u
#define GUARDED_BELOW   5u

struct guarded_pool {
    struct spw_pool pool;
    struct spw_pool readers;
    struct guarded ctl;
    struct guarded feed[GUARDED_WORKERS];
    struct guarded client[GUARDED_CLIENTS];
};

/** Feeds of GUARDED_WORKERS shards of GUARDED_CHUNKS chunks (one slot more), and GUARDED_BELOW chunks
 * of a tier below, rings of 16 records,
 * lanes of 8 slots, no payload. */
void guarded_pool_make(struct guarded_pool *pool);
void guarded_pool_save(struct guarded_pool *pool);
void guarded_pool_restore(struct guarded_pool *pool);

/** Chunks in both shards, in every state, by keys guarded_key() 0 to GUARDED_KEYS - 1; then saved. */
#define GUARDED_KEYS 16u
void guarded_pool_fill(struct guarded_pool *pool);

/** Open shard @k as its worker does: 0 or what spw_shard_open() answers. */
int guarded_shard_open(struct guarded_pool *pool, uint32_t k, struct spw_shard **out_shard);

/** Key number @n; its bytes are in it. */
struct guarded_key {
    uint64_t word[3];
    struct spw_chunk_key key;
};
const struct spw_chunk_key *guarded_key(struct guarded_key *storage, uint64_t n);

/** The parts of feed @k, for fuzz_damage(): head, ring, entries, keys, index. */
#define GUARDED_FEED_WINDOWS 5u
void guarded_feed_windows(const struct guarded_pool *pool, uint32_t k,
                          struct fuzz_window out[GUARDED_FEED_WINDOWS]);

#endif
