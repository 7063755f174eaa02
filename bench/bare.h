#ifndef SPW_BENCH_BARE_H
#define SPW_BENCH_BARE_H
/*
 * Floors of a lookup, as bare as can be: a hash probe that does nothing but probe, and a pointer
 * chase that does nothing but wait for memory. They lie in memory asked for as the replica's is.
 */
#include <stdint.h>

/** One-line buckets of 4 tags and 4 words at half load, next bucket when full; never grows. */
struct spw_bare_bucket;
struct spw_bare_table {
    struct spw_bare_bucket *bucket;
    uint64_t mask;
    uint64_t bytes;
};

int spw_bare_table_open(struct spw_bare_table *table, uint64_t entries);
void spw_bare_table_close(struct spw_bare_table *table);
void spw_bare_table_put(struct spw_bare_table *table, uint64_t tag, uint64_t word);
/** Words of @count tags, prefetched 32 ahead, compared by a vector instruction where there is one.
 */
void spw_bare_table_probe(const struct spw_bare_table *table, const uint64_t *tags, uint64_t count,
                          uint64_t *out_words);

/** A random cycle over all lines of @bytes. */
struct spw_bare_chase {
    uint64_t *at; /* 8 words a line, the first one says which line is next */
    uint64_t lines;
    uint64_t bytes;
};

int spw_bare_chase_open(struct spw_bare_chase *chase, uint64_t bytes, uint64_t *random);
void spw_bare_chase_close(struct spw_bare_chase *chase);
/** @hops hops along @chains (1..32) chains at a time, from random lines. Returns where it ended. */
uint64_t spw_bare_chase_walk(const struct spw_bare_chase *chase, uint32_t chains, uint64_t hops,
                             uint64_t *random);

/** Private zeroed memory on huge pages where the kernel gives them; NULL: none. */
void *spw_bare_map(uint64_t bytes);

#endif
