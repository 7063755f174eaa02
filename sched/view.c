/* See view.h. */
#include "sched/view.h"

#include "tier/adopt.h"

#define BATCH        64u  /* records drained, entries scanned at a time          */
#define PIECE        512u /* buckets swept or entries scanned a unit of budget   */
#define RESTARTS_MAX 4u   /* of one view in one update; then the next one tries  */

static uint64_t bits_of(uint32_t k)
{
    return 3ull << 2 * k;
}

int spw_views_init(struct spw_views *views, const struct spw_pool *pool, int32_t node,
                   struct spw_change_log *log)
{
    const struct spw_geometry *geometry = &pool->geometry;
    *views = (struct spw_views){.workers = geometry->workers, .log = log};
    for (uint32_t k = 0; k < views->workers; k++) {
        struct spw_view *view = &views->view[k];
        view->feed = pool->feed[k];
        view->worker = k;
        view->phase = SPW_VIEW_NOTE;
        spw_table_view_init(&view->table, view->feed, &pool->feed_map, geometry);
        int rc = spw_bcast_reader_init(&view->reader, view->feed,
                                       spw_pool_feed_at(pool, k, pool->feed_map.ring_off),
                                       geometry->update_records);
        if (rc < 0)
            return rc;
    }
    return spw_replica_init(&views->replica,
                            (uint64_t)geometry->workers * spw_geometry_entries(geometry), node);
}

void spw_views_fini(struct spw_views *views)
{
    spw_replica_fini(&views->replica);
}

/* Empty the view at once; its bits are swept away piece by piece. */
static void start_over(struct spw_views *views, struct spw_view *view)
{
    views->live &= ~bits_of(view->worker);
    view->phase = view->held != 0 ? SPW_VIEW_SWEEP : SPW_VIEW_NOTE;
    view->next = views->replica.buckets;
}

/* ---- what a chunk now is --------------------------------------------------------------------- */

/* BACKED says nothing of its key: a slot does. */
static enum spw_replica_state replica_state(uint32_t state)
{
    return state == SPW_READY     ? SPW_REPLICA_READY
           : state == SPW_FILLING ? SPW_REPLICA_PENDING
           : state == SPW_COLD    ? SPW_REPLICA_COLD
                                  : SPW_REPLICA_ABSENT;
}

/* Returns what the worker's bits were, or -ENOSPC. */
static int set_state(struct spw_views *views, struct spw_view *view, uint64_t tag,
                     enum spw_replica_state state)
{
    int old = spw_replica_set(&views->replica, tag, view->worker, state);
    if (old >= 0) {
        view->held += state != SPW_REPLICA_ABSENT;
        view->held -= old != SPW_REPLICA_ABSENT;
    }
    return old;
}

static int apply(struct spw_views *views, struct spw_view *view, const struct spw_update *update)
{
    uint32_t state = SPW_UPDATE_STATE(update->packed);
    if (state == SPW_FREE) /* fills a position */
        return 0;
    enum spw_replica_state now = replica_state(state);
    int old = set_state(views, view, update->digest[0], now);
    if (old < 0)
        return old;
    if (views->wakeup && old != (int)now)
        spw_wakeup_record(views->wakeup, update->digest[0]);
    if (view->phase == SPW_VIEW_LIVE && now == SPW_REPLICA_READY && old != SPW_REPLICA_READY)
        spw_change_log_put(views->log, &view->table, view->worker, SPW_CHANGE_STORED, update);
    if (view->phase == SPW_VIEW_LIVE && old == SPW_REPLICA_READY && now != SPW_REPLICA_READY)
        spw_change_log_put(views->log, &view->table, view->worker, SPW_CHANGE_REMOVED, update);
    return 0;
}

/* ---- draining -------------------------------------------------------------------------------- */

static int apply_batch(struct spw_views *views, struct spw_view *view,
                       const struct spw_record *record, int count)
{
    int rc = 0;
    for (int i = 0; i < count; i++)
        spw_replica_prefetch(&views->replica, record[i].word[0]);
    for (int i = 0; i < count && rc == 0; i++) {
        const struct spw_update update = {.digest = {record[i].word[0], record[i].word[1]},
                                          .packed = record[i].word[2]};
        rc = apply(views, view, &update);
    }
    views->counts.records += (uint64_t)count;
    return rc;
}

/* Drain to the tail as it is now. 0, -EOVERFLOW (lapped, or no record below the tail), -ENOSPC. */
static int drain(struct spw_views *views, struct spw_view *view)
{
    struct spw_record record[BATCH];
    uint64_t tail = spw_bcast_tail(&view->reader);
    while (spw_pos_before(view->reader.cursor, tail)) {
        int count = spw_bcast_drain(&view->reader, record, BATCH);
        int rc = count > 0 ? apply_batch(views, view, record, count) : -EOVERFLOW;
        if (rc < 0) {
            views->counts.gaps += rc == -EOVERFLOW;
            views->counts.full += rc == -ENOSPC;
            return rc;
        }
    }
    return 0;
}

/* ---- resync ---------------------------------------------------------------------------------- */

static void sweep(struct spw_views *views, struct spw_view *view)
{
    spw_replica_sweep(&views->replica, bits_of(view->worker), PIECE, &view->next);
    if (view->next == 0) {
        view->held = 0;
        view->phase = SPW_VIEW_NOTE;
    }
}

static void note(struct spw_view *view)
{
    view->incarnation = spw_feed_incarnation(view->feed);
    view->reader.cursor = spw_bcast_tail(&view->reader);
    view->next = 0;
    view->phase = SPW_VIEW_SCAN;
}

struct found {
    uint64_t tag;
    enum spw_replica_state state;
};

/* What is news of entries [first, first + count). */
static uint32_t read_entries(const struct spw_views *views, const struct spw_view *view,
                             uint32_t first, uint32_t count, struct found *out)
{
    uint32_t found = 0;
    for (uint32_t slot = first; slot < first + count; slot++) {
        uint32_t state;
        uint64_t tag;
        enum spw_replica_state now;
        /* a dead writer's entry, or one of no sense, is absent */
        if (spw_table_state(&view->table, slot, &state, &tag) < 0 ||
            (now = replica_state(state)) == SPW_REPLICA_ABSENT)
            continue;
        spw_replica_prefetch(&views->replica, tag);
        out[found++] = (struct found){tag, now};
    }
    return found;
}

static int scan(struct spw_views *views, struct spw_view *view)
{
    struct found entry[BATCH];
    uint64_t end =
        view->next + PIECE < view->table.entries ? view->next + PIECE : view->table.entries;
    while (view->next < end) {
        uint32_t count = end - view->next < BATCH ? (uint32_t)(end - view->next) : BATCH;
        uint32_t found = read_entries(views, view, (uint32_t)view->next, count, entry);
        for (uint32_t i = 0; i < found; i++)
            if (set_state(views, view, entry[i].tag, entry[i].state) < 0) {
                views->counts.full++;
                return -ENOSPC;
            }
        view->next += count;
    }
    if (view->next == view->table.entries)
        view->phase = SPW_VIEW_DRAIN;
    return 0;
}

/* The last part: only then is the view used, and only if it is still the same worker's. */
static int catch_up(struct spw_views *views, struct spw_view *view)
{
    int rc = drain(views, view);
    if (rc < 0)
        return rc;
    if (spw_feed_incarnation(view->feed) != view->incarnation)
        return -ESTALE;
    view->phase = SPW_VIEW_LIVE;
    view->position = view->reader.cursor;
    views->live |= bits_of(view->worker);
    views->counts.resyncs++;
    spw_change_log_lose(views->log); /* what it went through is not known */
    return 0;
}

static int resync_piece(struct spw_views *views, struct spw_view *view)
{
    switch (view->phase) {
    case SPW_VIEW_SWEEP:
        sweep(views, view);
        return 0;
    case SPW_VIEW_NOTE:
        note(view);
        return 0;
    case SPW_VIEW_SCAN:
        return scan(views, view);
    default:
        return catch_up(views, view);
    }
}

void spw_views_update(struct spw_views *views, uint32_t k, uint64_t *budget)
{
    struct spw_view *view = &views->view[k];
    uint32_t restarts = 0;
    bool other = spw_feed_incarnation(view->feed) != view->incarnation;
    if (other && view->phase > SPW_VIEW_NOTE) {
        start_over(views, view);
    } else if (view->phase == SPW_VIEW_LIVE) {
        if (drain(views, view) < 0)
            start_over(views, view);
        else
            view->position = view->reader.cursor;
    }
    while (view->phase != SPW_VIEW_LIVE && *budget > 0 && restarts < RESTARTS_MAX) {
        --*budget;
        if (resync_piece(views, view) < 0) {
            start_over(views, view);
            restarts++;
        }
    }
}
