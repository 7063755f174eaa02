#ifndef SPW_SCHED_REPLICA_H
#define SPW_SCHED_REPLICA_H
/*
 * Private map from a chunk's tag (first half of its digest) to a 64-bit word: in the replica two
 * bits a worker, in the set of chunks being loaded a count. Private to one handle, one thread;
 * nothing shared, nothing to clean up after a death.
 *
 *   bucket    one cache line: 4 tags, 4 words, cells filled from the left; a word of 0 is no cell
 *
 *      0 +-----------------------------------------+
 *        | tag[0]  tag[1]  tag[2]  tag[3]          |
 *     32 | word[0] word[1] word[2] word[3]         |
 *     64 +-----------------------------------------+
 *
 *   home      of a tag: tag * homes >> 64, so any number of buckets will do. A cell that finds its
 *             home full goes to the first later bucket with room; the last buckets are no one's
 *             home and take what runs over the end, so nothing wraps around
 *   remove    shifts later cells back, so that a probe ends at the first bucket with room. Cells
 *             move towards the start only: a sweep from the end to the start meets each of them
 *   memory    fixed at init, on the node asked for: at most 40 bytes an entry of the pool
 */
#include <stdalign.h>
#include <stdint.h>

enum spw_replica_state {
    SPW_REPLICA_ABSENT = 0,
    SPW_REPLICA_PENDING = 1,
    SPW_REPLICA_READY = 2,
    SPW_REPLICA_COLD = 3, /* only the tier below holds it */
};

#define SPW_REPLICA_CELLS 4u

struct spw_replica_bucket {
    alignas(64) uint64_t tag[SPW_REPLICA_CELLS];
    uint64_t word[SPW_REPLICA_CELLS];
};

struct spw_replica {
    struct spw_replica_bucket *bucket;
    uint64_t homes;   /* buckets that are home to tags            */
    uint64_t buckets; /* homes and those behind them              */
    uint64_t tags;    /* held now                                 */
    uint64_t most;    /* that may be held: 7/8 of the cells       */
    uint64_t bytes;   /* of the mapping                           */
    int32_t node;     /* asked for, -1 = none                     */
    int refused;      /* 0, or the negative errno of that: it lies where it is touched first */
};

/**
 * Map room for @entries tags (at most 2^40) at a load of 0.42, on NUMA node @node while that has room
 * (-1: where it is touched first). System calls. 0, -ENOMEM, -EINVAL.
 */
int spw_replica_init(struct spw_replica *replica, uint64_t entries, int32_t node);
/** Of a sample of its pages, how many thousandths lie on the node asked for; a negative errno where
 * nothing is known. System calls; a page that isn't there yet is made to be. */
int spw_replica_near(const struct spw_replica *replica);
void spw_replica_fini(struct spw_replica *replica);

/** The word of @tag, 0 if it isn't held. */
uint64_t spw_replica_get(const struct spw_replica *replica, uint64_t tag);

/** Give @tag the word @word (0 removes it). 0, or -ENOSPC: no room. */
int spw_replica_put(struct spw_replica *replica, uint64_t tag, uint64_t word);

/** Set the two bits of @worker. Returns what they were, or -ENOSPC as above. */
int spw_replica_set(struct spw_replica *replica, uint64_t tag, uint32_t worker,
                    enum spw_replica_state state);

/** Words of @count tags, prefetched ahead: the fast way to ask. */
void spw_replica_probe(const struct spw_replica *replica, const uint64_t *tags, uint64_t count,
                       uint64_t *out_words);

/**
 * Clear the bits of @mask in buckets [*next - @most, *next), from the end towards the start, and
 * move *next down; a sweep begins with *next = buckets and is through at 0. In between other bits
 * may be set and cleared, those of @mask may not be set.
 */
void spw_replica_sweep(struct spw_replica *replica, uint64_t mask, uint64_t most, uint64_t *next);

static inline uint64_t spw_replica_home(const struct spw_replica *replica, uint64_t tag)
{
    return (uint64_t)((unsigned __int128)tag * replica->homes >> 64);
}

static inline void spw_replica_prefetch(const struct spw_replica *replica, uint64_t tag)
{
    __builtin_prefetch(&replica->bucket[spw_replica_home(replica, tag)]);
}

/** All workers' low bits of their pairs. */
#define SPW_REPLICA_LOW_BITS 0x5555555555555555ull

/** Low bits of the pairs that say READY, and PENDING. */
static inline uint64_t spw_replica_ready(uint64_t word)
{
    return word >> 1 & ~word & SPW_REPLICA_LOW_BITS;
}

static inline uint64_t spw_replica_pending(uint64_t word)
{
    return word & ~(word >> 1) & SPW_REPLICA_LOW_BITS;
}

/** Those that say COLD. */
static inline uint64_t spw_replica_cold(uint64_t word)
{
    return word & word >> 1 & SPW_REPLICA_LOW_BITS;
}

#endif
