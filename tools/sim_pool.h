#ifndef SPW_TOOLS_SIM_POOL_H
#define SPW_TOOLS_SIM_POOL_H
/*
 * The pool of a simulated replay: what each chunk of a trace is, who waits for it, and one
 * serialized store stream a worker, ordered by the workers' own queue (tier/queue.h).
 *
 * One process, no clock of its own: whoever drives it passes the time in. A chunk is absent, or in
 * one shard: queued, being copied, or ready. Everyone sees the same at once, so nothing is stored
 * twice. Chunks are numbered from 0 by their first use in the trace.
 *
 *   offer      ABSENT -> PENDING, if its shard has room or an idle ready chunk to give up; the most
 *              recent one, but for those of the same prompt before it
 *   copy ends  PENDING -> READY
 *   eviction   READY -> ABSENT, the least recent one that no load reads
 */
#include <stdbool.h>
#include <stdint.h>

#include "sched/verdict.h"
#include "tier/lru.h"
#include "tier/queue.h"
#include "tools/trace.h"

struct spw_sim_pool_config {
    uint32_t workers;
    uint32_t capacity_chunks; /* of a shard; pending ones count */
    uint64_t chunk_bytes;     /* nominal */
    int64_t copy_ns;          /* of one chunk */
    int64_t overtake_limit_ns;
    bool awaited_first;
};

struct spw_sim_chunk {
    struct spw_queue_item item; /* its owner is the chunk */
    uint8_t verdict;            /* enum spw_verdict: HIT, PENDING, MISS */
    uint8_t worker;
    uint32_t readers; /* loads under way */
    uint64_t order;   /* of its queueing, in its stream */
    uint32_t awaiters;
    uint32_t watches; /* 1 + first of a list in spw_sim_pool.watch */
};

struct spw_sim_watch {
    uint32_t who;
    uint32_t next; /* 1 + index */
};

struct spw_sim_stream {
    struct spw_queue queue;
    struct spw_slot_list held; /* pending and ready chunks by recency */
    bool marks_moved;
    uint32_t awaited;                      /* queued ones that somebody awaits */
    uint32_t copying;                      /* chunk, SPW_SIM_NONE when idle */
    int64_t copy_end_ns;                   /* INT64_MAX when idle */
    uint64_t queued_chunks, copied_chunks; /* in all */
    uint64_t awaited_copies;               /* of chunks that somebody awaited when they began */
    uint64_t overtaking_copies;            /* begun before that of an older chunk */
};

struct spw_sim_pool {
    struct spw_sim_pool_config config;
    const struct spw_trace *trace; /* borrowed */
    uint32_t *number;              /* of a chunk, by position in trace->ids */
    struct spw_sim_chunk *chunk;
    uint32_t chunk_count;
    struct spw_slot_links links;
    struct spw_sim_stream *stream;
    struct spw_sim_watch *watch;
    uint32_t watch_room, watch_free;
    uint64_t evicted_chunks;
};

#define SPW_SIM_NONE        UINT32_MAX
#define SPW_SIM_WORKERS_MAX 32

/** Returns 0 or -ENOMEM; then it is as after fini. */
int spw_sim_pool_init(struct spw_sim_pool *pool, const struct spw_trace *trace,
                      const struct spw_sim_pool_config *config);
void spw_sim_pool_fini(struct spw_sim_pool *pool);

/** The chunks of a request's prompt, head first: full_count numbers. */
const uint32_t *spw_sim_pool_chunks(const struct spw_sim_pool *pool,
                                    const struct spw_trace_request *request);

/**
 * Queue @chunk, which is absent, at @worker.
 *
 * @behind  the chunk of the same prompt that was offered to it just before, or SPW_SIM_NONE
 *
 * False: no room.
 */
bool spw_sim_pool_offer(struct spw_sim_pool *pool, uint32_t worker, uint32_t chunk, uint32_t behind,
                        int64_t now_ns);

/** Make those of @chunks that are in a shard the most recent, the first of them most of all. */
void spw_sim_pool_touch(struct spw_sim_pool *pool, const uint32_t *chunks, uint32_t count);

/** A load of @chunks, all ready, begins or ends: they stay meanwhile. */
void spw_sim_pool_pin(struct spw_sim_pool *pool, const uint32_t *chunks, uint32_t count);
void spw_sim_pool_unpin(struct spw_sim_pool *pool, const uint32_t *chunks, uint32_t count);

/** @who waits for @chunk, which is pending, and is told when it is ready. Returns 0 or -ENOMEM. */
int spw_sim_pool_watch(struct spw_sim_pool *pool, uint32_t chunk, uint32_t who);

/**
 * Nanoseconds until all pending ones of @chunks are ready: those that nobody awaits as if they were
 * awaited from now on, if the pool goes by that at all.
 */
uint64_t spw_sim_pool_eta(const struct spw_sim_pool *pool, const uint32_t *chunks, uint32_t count,
                          int64_t now_ns);

/** Start the idle streams on what their order has next. */
void spw_sim_pool_start(struct spw_sim_pool *pool, int64_t now_ns);

/** When the next copy ends; INT64_MAX if none is under way. */
int64_t spw_sim_pool_next_end(const struct spw_sim_pool *pool);

/**
 * End one copy that is due by @now_ns; its chunk is ready. Calls @ready for each who watched it.
 * Returns false if none was due.
 */
bool spw_sim_pool_end_copy(struct spw_sim_pool *pool, int64_t now_ns,
                           void (*ready)(void *context, uint32_t who), void *context);

#endif
