/* The audit of a pool's objects; see fsck.h. Maps each read-only, one after the other. */
#include "tools/fsck.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "shm/alive.h"
#include "tools/spaces.h"

#define RUNS     5u      /* of an audit, of a pool that is made anew meanwhile          */
#define PATIENCE 40u     /* looks at what may be on its way, all together ...            */
#define PAUSE_US 100000u /* ... this far apart: daemon and workers need less than two of them */

/* What of a pool is being looked at. */
struct look {
    const struct spw_pool_path *path;
    struct spw_fsck_report *report;
    int lock_fd;
    uint32_t patience;
    struct spw_geometry geometry;
    struct spw_feed_map feed_map;
    struct spw_client_map client_map;
    struct spw_region ctl_region;
    const struct spw_ctl *ctl;
};

void spw_fsck_say(struct spw_fsck_report *report, enum spw_fsck_severity severity,
                  const char *where, const char *format, ...)
{
    va_list args;
    if (severity == SPW_FSCK_DAMAGE)
        report->damages++;
    else
        report->notes++;
    if (report->findings == SPW_FSCK_FINDINGS_MAX)
        return;
    struct spw_fsck_finding *finding = &report->finding[report->findings++];
    finding->severity = severity;
    snprintf(finding->where, sizeof finding->where, "%s", where);
    va_start(args, format);
    vsnprintf(finding->text, sizeof finding->text, format, args);
    va_end(args);
}

static bool held(const struct look *look, uint32_t byte)
{
    return spw_lock_held(look->lock_fd, byte) == 1;
}

/* Is it worth to look again? */
static bool wait_more(struct look *look)
{
    if (look->patience == 0)
        return false;
    look->patience--;
    usleep(PAUSE_US);
    return true;
}

/* ---- objects --------------------------------------------------------------------------------- */

static bool of_this_pool(const struct look *look, const struct spw_region *region)
{
    return memcmp(region->header->pool_id, look->ctl->header.pool_id,
                  sizeof region->header->pool_id) == 0;
}

/* Map one object. With a living daemon, one that isn't there or isn't whole may be on its way: it
 * makes clients' objects anew. False: a finding was made. */
static bool map_object(struct look *look, enum spw_region_kind kind, uint32_t index, uint64_t bytes,
                       const char *where, struct spw_region *out_region)
{
    struct spw_error err = {0};
    do {
        int rc = spw_region_attach(look->path, kind, index, false, bytes, out_region, &err);
        if (!rc && !of_this_pool(look, out_region)) {
            spw_region_detach(out_region);
            rc = spw_fail(&err, -ESTALE, "belongs to another pool than ctl");
        }
        if (!rc)
            return true;
    } while (held(look, SPW_LOCK_DAEMON) && wait_more(look));
    spw_fsck_say(look->report, SPW_FSCK_DAMAGE, where, "%s", err.text);
    return false;
}

static void check_bits(const struct look *look, const spw_atomic64 *bits, const char *where,
                       const char *name)
{
    uint64_t words = spw_claim_words(&look->geometry), stray = 0;
    uint32_t rest = look->geometry.slots % 64;
    for (uint32_t k = 0; rest && k < look->geometry.workers; k++)
        stray += (uint64_t)__builtin_popcountll(spw_load_relaxed(&bits[k * words + words - 1]) &
                                                ~((1ull << rest) - 1));
    if (stray)
        spw_fsck_say(look->report, SPW_FSCK_DAMAGE, where,
                     "%" PRIu64 " %s bits stand for slots that there aren't", stray, name);
}

/* More sent than a lane holds, or taken before it was sent, however often one looks. */
static bool lane_fits(struct look *look, const spw_atomic64 *head_at, const spw_atomic64 *tail_at,
                      uint32_t slots)
{
    do {
        uint64_t head = spw_load_relaxed(head_at);
        if (spw_load_relaxed(tail_at) - head <= slots)
            return true;
    } while (wait_more(look));
    return false;
}

/* The lanes of an attached client to a living worker; a new holder's numbers fit once the worker
 * has acknowledged it. */
static void check_lanes(struct look *look, uint32_t c, uint32_t k,
                        const struct spw_client_view *view, const char *where)
{
    const struct spw_lane_client *mine = &view->head->lane[k];
    const struct spw_lane_worker *theirs = &view->head->worker_lane[k];
    bool sent =
        lane_fits(look, &theirs->command_head, &mine->command_tail, look->geometry.command_slots);
    bool answered = lane_fits(look, &mine->completion_head, &theirs->completion_tail,
                              look->geometry.completion_slots);
    if ((sent && answered) || !held(look, SPW_LOCK_CLIENT(c)) || !held(look, SPW_LOCK_WORKER(k)))
        return;
    spw_fsck_say(look->report, SPW_FSCK_DAMAGE, where,
                 "its %s worker %u can't be as many as is said",
                 sent ? "answers from" : "commands to", k);
}

static void check_client(struct look *look, uint32_t c)
{
    struct spw_region region = {0};
    struct spw_client_view view;
    char where[40];
    snprintf(where, sizeof where, "client.%u", c);
    if (!map_object(look, SPW_REGION_CLIENT, c, look->client_map.size_bytes, where, &region))
        return;
    spw_client_view_init(&view, (struct spw_client_head *)(void *)region.header, &look->geometry);
    check_bits(look, view.pin, where, "pin");
    check_bits(look, view.awaited, where, "awaited");
    look->report->attached += held(look, SPW_LOCK_CLIENT(c));
    for (uint32_t k = 0; k < look->geometry.workers && held(look, SPW_LOCK_CLIENT(c)); k++)
        if (held(look, SPW_LOCK_WORKER(k)))
            check_lanes(look, c, k, &view, where);
    spw_region_detach(&region);
}

static void check_payload(struct look *look, enum spw_region_kind kind, uint32_t index,
                          uint64_t bytes)
{
    struct spw_region region = {0};
    char where[40];
    snprintf(where, sizeof where, "%s.%u", kind == SPW_REGION_DATA ? "data" : "kv", index);
    if (map_object(look, kind, index, bytes, where, &region))
        spw_region_detach(&region);
}

static void check_feed(struct look *look, uint32_t k)
{
    struct spw_region region = {0};
    char where[40];
    snprintf(where, sizeof where, "feed.%u", k);
    if (!map_object(look, SPW_REGION_FEED, k, look->feed_map.size_bytes, where, &region))
        return;
    const struct spw_fsck_feed what = {
        .feed = (const struct spw_feed_head *)(const void *)region.header,
        .geometry = &look->geometry,
        .ctl = look->ctl,
        .k = k,
        .lock_fd = look->lock_fd,
    };
    spw_fsck_feed(&what, look->report);
    spw_region_detach(&region);
}

/* ---- ctl ------------------------------------------------------------------------------------- */

static void check_space(const struct look *look, uint32_t s)
{
    const struct spw_space_slot *slot = &look->ctl->space[s];
    struct spw_space_record record;
    char where[40], text[128];
    /* [SP-1] acquire: ready before the record */
    uint64_t ready = spw_load_acquire(&slot->ready);
    if (ready == 0)
        return;
    snprintf(where, sizeof where, "ctl space %u", s);
    record = slot->record; /* doesn't change once it is ready */
    look->report->spaces++;
    if (ready != 1)
        spw_fsck_say(look->report, SPW_FSCK_DAMAGE, where, "it is neither ready nor not: %" PRIu64,
                     ready);
    else if (spw_spaces_check(&look->geometry, &record, text, sizeof text))
        spw_fsck_say(look->report, SPW_FSCK_DAMAGE, where, "%s", text);
    for (uint32_t r = 0; r < SPW_RANKS_MAX; r++)
        if (spw_load_relaxed(&slot->rank_workers[r]) >> look->geometry.workers)
            spw_fsck_say(look->report, SPW_FSCK_DAMAGE, where,
                         "rank %u has workers that there aren't", r);
}

static void check_ctl(const struct look *look)
{
    uint32_t phase = spw_load_relaxed(&look->ctl->phase);
    if (phase > SPW_POOL_CLOSED)
        spw_fsck_say(look->report, SPW_FSCK_DAMAGE, "ctl", "the pool's phase is %u", phase);
    for (uint32_t k = 0; k < look->geometry.workers; k++) {
        phase = spw_load_relaxed(&look->ctl->worker[k].phase);
        if (phase > SPW_WORKER_REAPED)
            spw_fsck_say(look->report, SPW_FSCK_DAMAGE, "ctl", "worker %u's phase is %u", k, phase);
    }
    for (uint32_t s = 0; s < SPW_SPACES_MAX; s++)
        check_space(look, s);
}

/* Map ctl and take its geometry. False: a finding was made, and there is nothing to go by. */
static bool open_ctl(struct look *look)
{
    struct spw_error err = {0};
    int rc;
    do {
        rc = spw_region_attach(look->path, SPW_REGION_CTL, 0, false, sizeof(struct spw_ctl),
                               &look->ctl_region, &err);
    } while (rc && held(look, SPW_LOCK_DAEMON) && wait_more(look));
    if (rc) {
        bool half = rc == -ENOENT || rc == -EAGAIN; /* as any start may leave it */
        spw_fsck_say(look->report, half ? SPW_FSCK_NOTE : SPW_FSCK_DAMAGE, "ctl", "%s%s", err.text,
                     half ? "; the next start makes all anew" : "");
        return false;
    }
    look->ctl = (const struct spw_ctl *)(const void *)look->ctl_region.header;
    look->geometry = look->ctl->geometry; /* one copy is checked and used */
    if (spw_geometry_check(&look->geometry, &err)) {
        spw_fsck_say(look->report, SPW_FSCK_DAMAGE, "ctl", "%s", err.text);
        return false;
    }
    spw_feed_map_init(&look->geometry, &look->feed_map);
    spw_client_map_init(&look->geometry, &look->client_map);
    look->report->workers = look->geometry.workers;
    look->report->clients = look->geometry.clients;
    return true;
}

static void look_at_all(struct look *look)
{
    check_ctl(look);
    for (uint32_t k = 0; k < look->geometry.workers; k++) {
        check_feed(look, k);
        check_payload(look, SPW_REGION_DATA, k, spw_data_size_bytes(&look->geometry));
    }
    for (uint32_t c = 0; c < look->geometry.clients; c++) {
        check_client(look, c);
        if (look->geometry.kv_blocks)
            check_payload(look, SPW_REGION_KV, c, spw_kv_size_bytes(&look->geometry));
    }
}

/* Is the ctl that was looked at still the pool's? Another daemon may have come meanwhile. */
static bool still_there(const struct look *look)
{
    struct spw_region now = {0};
    bool same = !spw_region_attach(look->path, SPW_REGION_CTL, 0, false, sizeof(struct spw_ctl),
                                   &now, NULL) &&
                of_this_pool(look, &now);
    spw_region_detach(&now);
    return same;
}

int spw_fsck_run(const struct spw_pool_path *path, struct spw_fsck_report *out_report,
                 struct spw_error *err)
{
    for (uint32_t i = 0; i < RUNS; i++) {
        struct look look = {.path = path, .report = out_report, .patience = PATIENCE};
        bool whole = true;
        memset(out_report, 0, sizeof *out_report);
        look.lock_fd = spw_lock_open(path, false, 0, -1, err);
        if (look.lock_fd < 0)
            return look.lock_fd;
        out_report->daemon_alive = held(&look, SPW_LOCK_DAEMON);
        if (open_ctl(&look)) {
            look_at_all(&look);
            whole = still_there(&look);
        }
        spw_region_detach(&look.ctl_region);
        spw_lock_close(look.lock_fd);
        if (whole)
            return 0;
    }
    return spw_fail(err, -EAGAIN, "pool \"%s\" was made anew again and again; try again",
                    path->name);
}
