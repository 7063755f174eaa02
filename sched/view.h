#ifndef SPW_SCHED_VIEW_H
#define SPW_SCHED_VIEW_H
/*
 * What this client knows of each worker's shard: the replica and, a worker, how far it was brought.
 * Private to one handle, one thread; shared memory is only read.
 *
 *        at another incarnation, lapped, out of room: at once, by taking the worker out of `live`
 *      .---------------------------------------------------------------------------------.
 *      v                                                                                 |
 *    SWEEP --> NOTE incarnation and tail --> SCAN the table --> DRAIN to a tail --> LIVE-'
 *    its bits                                                   read after the scan
 *
 *   order     exactly this one (tests/model/snapshot.pml). The table is the truth, so everything up
 *             to the noted tail is in it when it is scanned, and everything after is drained in
 *             order; at the end the incarnation is read again. Hence the replica needs no versions
 *   pieces    sweep and scan take bounded pieces, a few a step; until LIVE the worker's bits read
 *             as absent, and `position` (what applied[k] is made of) stays where it was
 *   crash     a worker dead inside a change: its entry counts as absent. Dead between table and
 *             ring: its successor's incarnation makes this view start over
 */
#include "sched/changes.h"
#include "sched/replica.h"
#include "sched/wakeup.h"
#include "shm/bcast_ring.h"
#include "shm/pool.h"
#include "tier/table.h"

enum spw_view_phase {
    SPW_VIEW_SWEEP,
    SPW_VIEW_NOTE,
    SPW_VIEW_SCAN,
    SPW_VIEW_DRAIN,
    SPW_VIEW_LIVE,
};

struct spw_view {
    const struct spw_feed_head *feed;
    struct spw_table_view table;
    struct spw_bcast_reader reader;
    enum spw_view_phase phase;
    uint32_t worker;
    uint64_t incarnation; /* whose content the view has, or will have                  */
    uint64_t position;    /* everything up to it is in the view; moves only when LIVE */
    uint64_t next;        /* SWEEP: buckets left; SCAN: next entry                    */
    uint64_t held;        /* tags whose bits of this worker are set                   */
};

struct spw_view_counts {
    uint64_t records; /* drained                                          */
    uint64_t gaps;    /* lapped, or a tail without its record             */
    uint64_t resyncs; /* ended well                                       */
    uint64_t full;    /* no room in the replica: more chunks than slots   */
};

struct spw_views {
    struct spw_replica replica;
    struct spw_view view[SPW_WORKERS_MAX];
    uint32_t workers;
    uint64_t live; /* both bits of each worker whose view is LIVE */
    struct spw_change_log *log;
    struct spw_wakeup *wakeup; /* told of each chunk that changed; NULL: nobody waits */
    struct spw_view_counts counts;
};

/** Views of all shards of @pool (attached as a client), all empty. System calls, allocates.
 * @log  borrowed. 0 or -ENOMEM. */
int spw_views_init(struct spw_views *views, const struct spw_pool *pool, int32_t node,
                   struct spw_change_log *log);
void spw_views_fini(struct spw_views *views);

/**
 * Bring the view of worker @k up to date. Called behind the full fence of a step, or outside one.
 *
 * @budget  pieces of a resync that may be done (UINT64_MAX: all); what was used is taken off
 *
 * No system call, no allocation. A view that is not LIVE afterwards goes on at the next call.
 */
void spw_views_update(struct spw_views *views, uint32_t k, uint64_t *budget);

static inline bool spw_view_live(const struct spw_views *views, uint32_t k)
{
    return views->view[k].phase == SPW_VIEW_LIVE;
}

#endif
