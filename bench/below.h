#ifndef SPW_BENCH_BELOW_H
#define SPW_BENCH_BELOW_H
/*
 * The tier below as a worker uses it, for benchmarks: a full store of chunks of one size in a folder,
 * that many puts of new chunks and gets of random ones under way all the time.
 */
#include <stdbool.h>
#include <stdint.h>

#include "bench/bench.h"

struct spw_bench_below; /* a store that is open */

struct spw_bench_below_config {
    const char *folder; /* absolute; whatever an earlier store of the same sizes left is used */
    uint64_t store_bytes, chunk_bytes;
    uint32_t depth;   /* of the I/O engine, and payloads written at once */
    uint32_t places;  /* puts and gets under way at once, at most */
    bool checksum;    /* made at a put, checked at a get         */
    bool reads_queue; /* reads don't overtake what waits         */
};

/** Open it and put chunks until it is full. NULL: words are on stderr. */
struct spw_bench_below *spw_bench_below_open(const struct spw_bench_below_config *config);
/** Ends everything; the folder stays. 0 or a negative errno. */
int spw_bench_below_close(struct spw_bench_below *below);
/** Are buffers registered with the kernel? */
bool spw_bench_below_registered(const struct spw_bench_below *below);
/** The memory that all payload lies in, a memfd: what a disk gives depends on how the pages lie. */
int spw_bench_below_memory(const struct spw_bench_below *below);

/**
 * @puts and @gets under way for @ns, then until all have ended; each get's bytes are checked. What
 * each get took is added to @get_ns, unless NULL. 0 with the bytes moved, or a negative errno.
 */
int spw_bench_below_run(struct spw_bench_below *below, uint32_t puts, uint32_t gets, uint64_t ns,
                        uint64_t *out_bytes, struct spw_bench_series *get_ns);

#endif
