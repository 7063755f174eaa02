#ifndef SPW_TIER_WORKER_H
#define SPW_TIER_WORKER_H
/*
 * The worker: takes commands, orders the store queue, drives the copier, publishes news, frees
 * slots, notices clients that come and go, sleeps on the doorbell. Its loop is the only loop.
 *
 *   roles     one process a GPU, one thread; writes feed.k, data.k and its side of every client.*
 *   crash     what it leaves is told in tier/shard.h (table and ring) and shm/lane.h (lanes): READY
 *             chunks stay, FILLING ones are retired by the successor, jobs end by -EOWNERDEAD in
 *             the client library
 */
#include "shm/pool.h"
#include "tier/cold.h"
#include "tier/copier.h"
#include "tier/order.h"

/** What goes down to the tier below, and what comes up (tier/worker_cold.c). */
struct spw_cold_policy {
    bool write_back;             /* chunks go down before they are evicted; else once READY    */
    uint32_t admit_sightings;    /* a chunk goes down once so many requests used it, 1..255    */
    uint64_t write_budget_bytes; /* a day, 0 = not limited                                     */
    uint32_t queue_chunks;       /* writes that wait; full = dropped until half of it is left  */
    uint32_t promote_percent;    /* of the capacity that promotions may hold, 1..100           */
    bool sum_at_store;           /* checksums are made when a chunk was stored                 */
    uint64_t hold_ns;            /* a promoted chunk that nobody awaits stays so long          */
};

struct spw_worker_config {
    struct spw_pool *pool; /* borrowed; attached as worker @k, its lock byte held */
    uint32_t k;
    struct spw_copier_handle copier; /* borrowed */
    /* The tier below; called once, when the shard is adopted. @listener is what the tier tells;
     * NULL: there is none. The handle is the worker's, which closes it */
    int (*open_cold)(void *ctx, const struct spw_cold_listener *listener, void (*wake)(void *ctx),
                     void *wake_ctx, struct spw_cold_handle *out_cold, struct spw_error *err);
    void *cold_ctx;
    struct spw_cold_policy cold_policy;
    uint32_t queue_chunks;      /* bound of the store queue               */
    uint32_t client_jobs_max;   /* open jobs of one client                */
    uint64_t overtake_limit_ns; /* the oldest store passed over; see tier/queue.h */
    uint64_t run_limit_ns;      /* a reserve or begin without its run     */
    uint64_t event_limit_ns;   /* a run whose fence doesn't fire, 0 = as long as its client lives */
    uint64_t fence_limit_ns;   /* a client stuck in a step               */
    uint64_t orphan_ns;        /* without a daemon and without clients   */
    uint64_t drain_limit_ns;   /* copies still wanted after a stop       */
    uint64_t io_quarantine_ns; /* how long a dead worker's transfers may go on */
    bool transfers_linger;     /* the copier's outlive this process; see tier/quarantine.h */
    /* Slots of the shard below this number may be handed out, as of now; only grows. NULL: all */
    uint32_t (*usable_slots)(void *ctx);
    void *usable_ctx;
    enum spw_evict_policy evict;   /* who goes to make room in the shard */
    uint64_t (*now_ns)(void *ctx); /* CLOCK_MONOTONIC, or a test's clock     */
    void *clock_ctx;
};

struct spw_worker; /* opaque */

int spw_worker_open(const struct spw_worker_config *config, struct spw_worker **out_worker,
                    struct spw_error *err);
/** One pass: everything that can be done now, nothing that waits. Returns the number of things
 * done; *out_due_ns = when the next pass is due at the latest (for tests and the loop). */
uint32_t spw_worker_pass(struct spw_worker *worker, uint64_t *out_due_ns);
/** Pass and sleep until *stop is not 0 (set by a signal handler or another thread), orphaned, or the copier is lost;
 * drains up to the limit. 0; -ETIMEDOUT: copies were still in flight at the limit; -ENODEV: the
 * copier is lost, all jobs have been answered. */
int spw_worker_run(struct spw_worker *worker, const spw_atomic32 *stop);
/** After a run: did I/O of the tier below not end? It may go on until this process ends, and needs all that it
 * had. */
bool spw_worker_left_io(const struct spw_worker *worker);
void spw_worker_close(struct spw_worker *worker);

#endif
