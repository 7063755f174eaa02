/*
 * The state table: scanning it (a resync), attaching to a million chunks, taking them over from a
 * dead worker, changing it.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "bench/bench.h"
#include "bench/million.h"
#include "bench/pair.h"
#include "sched/handle.h"
#include "tier/counters.h"

#define NS(begin) (double)(spw_bench_now_ns() - (begin))

/* ---- a scan ---------------------------------------------------------------------------------- */

/* A writer on the other CPU: a change of some entry every microsecond. */
struct writer {
    struct spw_table table;
    spw_atomic32 started;
    spw_atomic32 stop;
};

static void write_entries(void *ctx)
{
    struct writer *writer = ctx;
    uint64_t random = 1357911;
    uint64_t pause = (uint64_t)(1000 * spw_bench_ticks_per_ns()), next = spw_bench_ticks();
    while (!spw_load_relaxed(&writer->stop)) {
        struct spw_entry_copy entry;
        uint32_t slot = (uint32_t)(spw_bench_random(&random) % writer->table.view.slots);
        if (spw_table_read(&writer->table.view, slot, false, &entry) == 0)
            spw_table_write(&writer->table, slot, &entry, NULL);
        spw_store_relaxed(&writer->started, 1);
        for (next += pause; spw_bench_ticks() < next;)
            ;
    }
}

/* ns; negative: an entry could not be read. */
static double time_scan(const struct spw_table_view *table, uint64_t chunks)
{
    uint64_t ready = 0, sum = 0;
    uint64_t begin = spw_bench_now_ns();
    for (uint32_t slot = 0; slot < table->slots; slot++) {
        uint32_t state;
        uint64_t tag;
        if (spw_table_state(table, slot, &state, &tag) < 0)
            return -EAGAIN;
        ready += state == SPW_READY;
        sum += tag;
    }
    spw_bench_use(sum);
    return ready >= chunks ? NS(begin) : -EBADMSG;
}

static int scan_rounds(struct spw_bench_run *run, const char *name, const struct spw_million *m,
                       void *copy)
{
    static struct spw_bench_series ours, theirs;
    const struct spw_table_view *table = &m->client->views.view[0].table;
    size_t bytes = (size_t)table->slots * sizeof *table->entry;
    ours.count = theirs.count = 0;
    for (uint64_t i = 0; i < spw_bench_size(run, 31, 3); i++) {
        double ns = time_scan(table, m->chunks);
        if (ns < 0)
            return (int)ns;
        spw_bench_add(&ours, ns);
        uint64_t begin = spw_bench_now_ns();
        memcpy(copy, (const void *)table->entry, bytes);
        spw_bench_use(*(const uint64_t *)copy);
        spw_bench_add(&theirs, NS(begin));
    }
    spw_bench_report(
        run, &(struct spw_bench_line){"resync", name, "ns", &ours, "memcpy of the table", &theirs});
    return 0;
}

static int scan_written(struct spw_bench_run *run, const char *name, const struct spw_million *m,
                        void *copy)
{
    static struct writer writer;
    struct spw_bench_partner partner;
    const struct spw_pool *pool = spw_bench_pool_objects(m->pool);
    memset(&writer, 0, sizeof writer);
    spw_table_init(&writer.table, pool->feed[0], &pool->feed_map, &pool->geometry);
    spw_bench_ticks_per_ns(); /* measured before the writer needs it */
    int rc = spw_bench_partner_start(&partner, write_entries, &writer);
    if (rc == -ENODEV)
        return 0;
    if (rc < 0)
        return rc;
    while (!spw_load_relaxed(&writer.started))
        ;
    rc = scan_rounds(run, name, m, copy);
    spw_store_relaxed(&writer.stop, 1);
    spw_bench_partner_join(&partner);
    return rc;
}

/* All of a resync: bits swept away, table scanned, replica filled anew, ring drained. */
static int resync_rounds(struct spw_bench_run *run, const char *name, struct spw_million *m,
                         void *copy)
{
    static struct spw_bench_series ours, theirs;
    struct spw_views *views = &m->client->views;
    struct spw_view *view = &views->view[0];
    ours.count = theirs.count = 0;
    for (uint64_t i = 0; i < spw_bench_size(run, 11, 3); i++) {
        uint64_t budget = UINT64_MAX;
        view->incarnation--; /* as if the worker were another one */
        uint64_t begin = spw_bench_now_ns();
        spw_views_update(views, 0, &budget);
        spw_bench_add(&ours, NS(begin));
        if (!spw_view_live(views, 0) || view->held < m->chunks)
            return -EBADMSG;
        begin = spw_bench_now_ns();
        memcpy(copy, (const void *)view->table.entry,
               (size_t)view->table.slots * sizeof *view->table.entry);
        spw_bench_use(*(const uint64_t *)copy);
        spw_bench_add(&theirs, NS(begin));
    }
    spw_bench_report(
        run, &(struct spw_bench_line){"resync", name, "ns", &ours, "memcpy of the table", &theirs});
    return 0;
}

static int bench_resync(struct spw_bench_run *run)
{
    struct spw_million *m = NULL;
    bool idle = spw_bench_wants(run, "resync", "scan_1M");
    bool written = spw_bench_wants(run, "resync", "scan_1M_written");
    bool whole = spw_bench_wants(run, "resync", "replica_1M");
    if (!idle && !written && !whole)
        return 0;
    int rc = spw_million_get(run, &m);
    if (rc < 0)
        return rc;
    size_t bytes = (size_t)m->client->views.view[0].table.slots * sizeof(struct spw_entry);
    void *copy = malloc(bytes);
    if (!copy)
        return -ENOMEM;
    memset(copy, 1, bytes);
    if (idle)
        rc = scan_rounds(run, "scan_1M", m, copy);
    if (rc == 0 && written)
        rc = scan_written(run, "scan_1M_written", m, copy);
    if (rc == 0 && whole)
        rc = resync_rounds(run, "replica_1M", m, copy);
    free(copy);
    return rc;
}

/* ---- attach ---------------------------------------------------------------------------------- */

/* What an attach can't do without: a fresh mapping of the table read once, and as much private
 * memory as the replica has touched once. ns, or -errno. */
static double time_first_touch(const struct spw_million *m)
{
    const struct spw_pool *pool = spw_bench_pool_objects(m->pool);
    char path[SPW_PATH_BYTES];
    uint64_t bytes = pool->feed_map.entry_off + pool->geometry.slots * sizeof(struct spw_entry);
    uint64_t replica_bytes = m->client->views.replica.bytes, sum = 0;
    spw_region_name(&pool->path, SPW_REGION_FEED, 0, path);
    uint64_t begin = spw_bench_now_ns();
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    const uint8_t *feed = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);
    uint8_t *replica = spw_bare_map(replica_bytes);
    if (fd < 0 || feed == MAP_FAILED || !replica)
        return -ENOMEM;
    for (uint64_t at = pool->feed_map.entry_off; at < bytes; at += sizeof sum) {
        uint64_t word;
        memcpy(&word, feed + at, sizeof word);
        sum += word;
    }
    for (uint64_t at = 0; at < replica_bytes; at += 4096)
        replica[at] = 1;
    spw_bench_use(sum);
    double ns = NS(begin);
    munmap((void *)(uintptr_t)feed, bytes);
    munmap(replica, replica_bytes);
    close(fd);
    return ns;
}

static double time_attach(const struct spw_million *m)
{
    struct spw_client *client = NULL;
    uint64_t begin = spw_bench_now_ns();
    int rc = spw_bench_pool_attach(m->pool, &client);
    double ns = NS(begin);
    if (rc == 0 && client->views.view[0].held < m->chunks)
        rc = -EBADMSG;
    spw_detach(client);
    return rc < 0 ? rc : ns;
}

static int bench_attach(struct spw_bench_run *run)
{
    static struct spw_bench_series ours, theirs;
    struct spw_million *m = NULL;
    if (!spw_bench_wants(run, "attach", "1M_chunks"))
        return 0;
    int rc = spw_million_get(run, &m);
    if (rc < 0)
        return rc;
    ours.count = theirs.count = 0;
    spw_bench_pool_serve(m->pool); /* a worker has to acknowledge */
    for (uint64_t i = 0; rc == 0 && i < spw_bench_size(run, 11, 2); i++) {
        double attach_ns = time_attach(m), touch_ns = time_first_touch(m);
        rc = attach_ns < 0 ? (int)attach_ns : touch_ns < 0 ? (int)touch_ns : 0;
        spw_bench_add(&ours, attach_ns);
        spw_bench_add(&theirs, touch_ns);
    }
    spw_bench_pool_serve_end(m->pool);
    if (rc == 0)
        spw_bench_report(run, &(struct spw_bench_line){"attach", "1M_chunks", "ns", &ours,
                                                       "first touch and one read", &theirs});
    return rc;
}

/* ---- adoption -------------------------------------------------------------------------------- */

/* Entries and keys, copied: what an adopter has to look at. */
static double time_read(const struct spw_pool *pool, void *copy)
{
    const uint8_t *entry = spw_pool_feed_at(pool, 0, pool->feed_map.entry_off);
    uint64_t begin = spw_bench_now_ns();
    memcpy(copy, entry, pool->feed_map.index_off - pool->feed_map.entry_off);
    spw_bench_use(*(const uint64_t *)copy);
    return NS(begin);
}

/* From the death of a worker to its successor's readiness: its first record is behind it then. */
static int bench_adopt(struct spw_bench_run *run)
{
    static struct spw_bench_series ours, theirs;
    struct spw_million *m = NULL;
    if (!spw_bench_wants(run, "adopt", "1M_chunks"))
        return 0;
    int rc = spw_million_get(run, &m);
    if (rc < 0)
        return rc;
    const struct spw_pool *pool = spw_bench_pool_payload(m->pool);
    size_t bytes = pool->feed_map.index_off - pool->feed_map.entry_off;
    void *copy = malloc(bytes);
    if (!copy)
        return -ENOMEM;
    memset(copy, 1, bytes);
    ours.count = theirs.count = 0;
    spw_atomic64 *adopted = &pool->feed[0]->counter[SPW_WORKER_adopted];
    for (uint64_t i = 0; rc == 0 && i < spw_bench_size(run, 11, 2); i++) {
        uint64_t before = spw_load_relaxed(adopted);
        double ns = spw_bench_pool_adopt(m->pool);
        /* twice: by the shard that is timed, and by the worker that goes on */
        bool whole = spw_load_relaxed(adopted) - before == 2 * m->chunks;
        rc = ns < 0 ? (int)ns : whole ? 0 : -EBADMSG;
        spw_bench_add(&ours, ns);
        spw_bench_add(&theirs, time_read(pool, copy));
    }
    free(copy);
    if (rc == 0)
        spw_bench_report(run, &(struct spw_bench_line){"adopt", "1M_chunks", "ns", &ours,
                                                       "memcpy of entries and keys", &theirs});
    return rc;
}

/* ---- changes --------------------------------------------------------------------------------- */

struct change {
    struct spw_bench_run *run;
    struct spw_bench_series ours;
    struct spw_bench_series theirs;
    uint64_t next; /* key */
};

#define STORES       32u
#define NEWS_A_STORE 3u /* a victim retired, the new one FILLING, then READY */

static int store_batch(struct spw_shard *shard, uint64_t first)
{
    for (uint64_t i = first; i < first + STORES; i++) {
        uint8_t bytes[SPW_MILLION_KEY_BYTES];
        uint32_t slot;
        struct spw_chunk_key key = {.key_bytes = sizeof bytes, .key = bytes};
        spw_million_key(0, 0, i, bytes);
        spw_chunk_digest(0, 0, bytes, sizeof bytes, key.digest);
        if (spw_shard_reserve(shard, &key, 0, 64, NULL, &slot) != SPW_RESERVED)
            return -ENOSPC;
        spw_shard_ready(shard, slot);
    }
    spw_shard_flush(shard);
    return 0;
}

/* A ring of its own for the bare publish. */
static double time_publish(struct spw_bcast_writer *writer)
{
    struct spw_record records[STORES * NEWS_A_STORE];
    memset(records, 7, sizeof records);
    uint64_t begin = spw_bench_now_ns();
    spw_bcast_publish(writer, records, STORES * NEWS_A_STORE);
    return NS(begin) / (STORES * NEWS_A_STORE);
}

static int change_rounds(struct spw_shard *shard, void *ctx)
{
    struct change *change = ctx;
    static struct spw_feed_head head;
    static struct spw_ring_slot slot[65536];
    struct spw_bcast_writer writer;
    struct spw_shard_stats before, after;
    int rc = spw_bcast_writer_init(&writer, &head, slot, 65536, 8192);
    uint64_t warm = spw_bench_size(change->run, 1u << 17, 1u << 13);
    for (; rc == 0 && change->next < warm; change->next += STORES) /* full, and then some */
        rc = store_batch(shard, change->next);
    spw_shard_stats(shard, &before);
    uint64_t rounds = spw_bench_size(change->run, 2000, 20);
    for (uint64_t i = 0; rc == 0 && i < rounds; i++) {
        uint64_t begin = spw_bench_now_ns();
        rc = store_batch(shard, change->next);
        spw_bench_add(&change->ours, NS(begin) / (STORES * NEWS_A_STORE));
        spw_bench_add(&change->theirs, time_publish(&writer));
        change->next += STORES;
    }
    spw_shard_stats(shard, &after);
    if (rc == 0 && after.evicted - before.evicted != rounds * STORES)
        rc = -EBADMSG;
    return rc;
}

static int bench_changes(struct spw_bench_run *run)
{
    static struct change change;
    struct spw_bench_pool *pool = NULL;
    change = (struct change){.run = run};
    if (!spw_bench_wants(run, "table", "shard_change_b96"))
        return 0;
    struct spw_bench_pool_config config = {
        .name = "changes",
        .capacity_chunks = (uint32_t)spw_bench_size(run, 1u << 16, 1u << 12),
        .reserve_chunks = 1024,
        .slot_bytes = 64,
    };
    int rc = spw_bench_pool_open(&config, &pool);
    if (rc == 0)
        rc = spw_bench_pool_fill(pool, change_rounds, &change);
    if (rc == 0)
        spw_bench_report(run,
                         &(struct spw_bench_line){"table", "shard_change_b96", "ns", &change.ours,
                                                  "a bare publish", &change.theirs});
    spw_bench_pool_close(pool);
    return rc;
}

int spw_bench_table(struct spw_bench_run *run)
{
    int rc = bench_changes(run);
    if (rc == 0)
        rc = bench_resync(run);
    if (rc == 0)
        rc = bench_attach(run);
    if (rc == 0)
        rc = bench_adopt(run);
    if (rc < 0)
        fprintf(stderr, "spw-bench: table: failed (%d)\n", rc);
    return rc;
}
