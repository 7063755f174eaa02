#ifndef SPW_BENCH_POOL_H
#define SPW_BENCH_POOL_H
/*
 * A pool of one worker inside this process, for cases that need a large or a hand-driven one. All
 * its objects are real, each role on a mapping of its own; the worker runs when the bench says so,
 * pass by pass or by a thread on the second CPU.
 */
#include "sched/spillway.h"
#include "shm/pool.h"
#include "tier/shard.h"

struct spw_bench_pool; /* opaque */

struct spw_bench_pool_config {
    const char *name;
    uint32_t capacity_chunks;
    uint32_t reserve_chunks;
    uint32_t slot_bytes;
    uint32_t kv_blocks; /* of slot_bytes each */
};

/** 0, or -errno with words on stderr. */
int spw_bench_pool_open(const struct spw_bench_pool_config *config,
                        struct spw_bench_pool **out_pool);
void spw_bench_pool_close(struct spw_bench_pool *pool);

/** Between two workers: @fill gets the shard. What is READY afterwards, and of a space that is open,
 * the next worker adopts. Not while being served. */
int spw_bench_pool_fill(struct spw_bench_pool *pool,
                        int (*fill)(struct spw_shard *shard, void *ctx), void *ctx);

/** Another worker in the place of the one that is there: ns in which it takes the shard over, or
 * -errno. Not while being served. */
double spw_bench_pool_adopt(struct spw_bench_pool *pool);

/** All objects, writable: the daemon's mapping. */
const struct spw_pool *spw_bench_pool_objects(const struct spw_bench_pool *pool);
/** The same as the worker maps them: payload included. */
const struct spw_pool *spw_bench_pool_payload(const struct spw_bench_pool *pool);

/** One pass of the worker; returns the number of things done. */
uint32_t spw_bench_pool_pass(struct spw_bench_pool *pool);
/** Passes until nothing is done any more. */
void spw_bench_pool_settle(struct spw_bench_pool *pool);
/** Daemon and worker by a thread, in between: for calls that wait for them. */
void spw_bench_pool_serve(struct spw_bench_pool *pool);
void spw_bench_pool_serve_end(struct spw_bench_pool *pool);

/** Attach a client while being served. */
int spw_bench_pool_attach(struct spw_bench_pool *pool, struct spw_client **out_client);
/** Open a space, size_bytes and rank 0 on worker 0 filled in; -EINVAL: it is not number @number.
 * Equal ones are the same space. */
int spw_bench_pool_space(struct spw_bench_pool *pool, struct spw_client *client, uint32_t number,
                         struct spw_space_config *config, struct spw_space **out_space);

#endif
