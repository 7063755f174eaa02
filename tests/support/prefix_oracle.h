#ifndef SPW_TESTS_SUPPORT_PREFIX_ORACLE_H
#define SPW_TESTS_SUPPORT_PREFIX_ORACLE_H
/*
 * What a cache-only replay must answer: a plain model of a prefix cache with exact LRU, or FIFO.
 *
 * The cache holds at most @capacity chunks; every id of a request is one chunk, a partial last one
 * too. Requests come in file order, each finished before the next:
 *
 *   1. Look up, which changes nothing: `hit` counts the leading run of resident ids, `resident`
 *      all resident ids of the request.
 *   2. The policy sees each id of the request once, the last (deepest) one first, the head at the
 *      end. A resident one becomes the most recent. An absent one is put in as the most recent;
 *      while more than the capacity are resident the least recent one goes.
 *
 * So after a request its head is the most recent chunk, then the second, and so on, whichever of
 * them had been there before. LRU being a stack, the cache then holds exactly the @capacity most
 * recently seen ids: it makes no difference whether eviction happens chunk by chunk or at the end
 * of the request, or whether touches come before stores, as long as the order of recency ends up
 * the same. A request with more ids than the capacity leaves its first @capacity ids, and nothing
 * else.
 *
 * With FIFO an id that the lookup found stays where it is, also if it goes while the others are put in,
 * and of a request only its first @capacity ids are put in, since no more can stay.
 */
#include <stdbool.h>
#include <stdint.h>

#include "tools/trace.h"

struct spw_oracle; /* opaque */

struct spw_oracle_result {
    uint64_t requests;
    uint64_t blocks;
    uint64_t hit_blocks;      /* sum of the leading resident runs */
    uint64_t resident_blocks; /* sum of the resident ids */
};

/** A cache of @capacity chunks, empty, for the ids of @trace (borrowed). NULL: out of memory. */
struct spw_oracle *spw_oracle_open(const struct spw_trace *trace, uint64_t capacity, bool fifo);
void spw_oracle_close(struct spw_oracle *oracle);

/** Serve request @index of the trace; tells what its lookup found. */
void spw_oracle_step(struct spw_oracle *oracle, uint64_t index, uint32_t *out_hit,
                     uint32_t *out_resident);

/** Whether @id, one of the trace's, is resident now. */
bool spw_oracle_holds(const struct spw_oracle *oracle, uint64_t id);

/** The sums so far. */
struct spw_oracle_result spw_oracle_result(const struct spw_oracle *oracle);

/** Serve the whole of @trace by a fresh cache. Returns 0 or -ENOMEM. */
int spw_oracle_run(const struct spw_trace *trace, uint64_t capacity, bool fifo,
                   struct spw_oracle_result *out_result);

#endif
