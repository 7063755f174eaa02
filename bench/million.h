#ifndef SPW_BENCH_MILLION_H
#define SPW_BENCH_MILLION_H
/*
 * The pool of a million READY chunks that several families measure on, with one client attached.
 * Built when first asked for: seconds. In --smoke it is 8,192 chunks.
 *
 *   space 0   one full group
 *   space 1   full group 0 with most of the chunks, sliding groups 1 (64 chunks) and 2 (256 chunks)
 * Each chunk has 16 tokens and a 32-byte key made of (space, group, number); keys whose number is
 * not below spw_million_chunks() are in no shard.
 */
#include "bench/bare.h"
#include "bench/pool.h"

#define SPW_MILLION_KEY_BYTES    32u
#define SPW_MILLION_CHUNK_TOKENS 16u
#define SPW_MILLION_WINDOW_SMALL 64u
#define SPW_MILLION_WINDOW_LARGE 256u

struct spw_bench_run;

struct spw_million {
    struct spw_bench_pool *pool;
    struct spw_client *client;
    struct spw_space *space[2];
    struct spw_bare_table bare; /* the same chunks in a bare table */
    uint64_t chunks;            /* of all */
    uint64_t random;
};

/** The one of this process. 0, or -errno with words on stderr. */
int spw_million_get(const struct spw_bench_run *run, struct spw_million **out_million);
void spw_million_close(void);

/** READY chunks of a group. */
uint64_t spw_million_chunks(const struct spw_million *million, uint32_t space, uint32_t group);
void spw_million_key(uint32_t space, uint32_t group, uint64_t number,
                     uint8_t out[SPW_MILLION_KEY_BYTES]);
/** A request of @tokens, without keys. */
int spw_million_request(struct spw_million *million, uint32_t space, uint64_t tokens,
                        struct spw_request **out_request);
/** Append @count random READY chunks to a group; with @absent, keys that are nowhere. */
int spw_million_extend(struct spw_million *million, struct spw_request *request, uint32_t space,
                       uint32_t group, uint64_t count, bool absent);

#endif
