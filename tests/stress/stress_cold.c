/*
 * Entries of the tier below: a worker that takes keys up and down, stores and evicts them, with rings
 * so small that readers are lapped at once, and clients that see them through their views alone. In
 * a step each HIT can be loaded; at each quiet point each view says of each key what the table says.
 * Shared: the shard and the clients' steps; each view is its reader's own.
 */
#include "tests/stress/stress.h"

#include "sched/view.h"
#include "tests/stress/tier_mutants.h"
#include "tests/support/tiny_pool.h"
#include "tier/shard_cold.h"

#include <pthread.h>

#define READERS  2u
#define CAPACITY 3u
#define SLOTS    5u
#define IDS      4u
#define KEYS     8u
#define BURST    200u /* changes between two quiet points */

#ifdef SPW_MUTANTS
static const char *const mutants[] = {COLD_MUTANTS, NULL};
#else
static const char *const mutants[] = {NULL};
#endif

static struct tiny_pool tiny;
static struct spw_shard *shard;
static struct spw_table_view table;
static struct tiny_key keys[KEYS];
static uint64_t end_ns;
static spw_atomic32 is_wrong;
static spw_atomic64 quiet; /* odd: nothing changes until both readers have said so, too */
static spw_atomic64 seen[READERS];

static bool is_over(void)
{
    return spw_load_relaxed(&is_wrong) || stress_now_ns() >= end_ns;
}

/* ---- the worker ------------------------------------------------------------------------------ */

/* A chunk more or less below, or one that is read up. */
static void meddle_below(uint64_t dice)
{
    struct spw_entry_copy entry;
    uint32_t id = (uint32_t)(dice % IDS), slot;
    if (spw_shard_cold_entry(shard, id, &entry) < 0)
        spw_shard_cold_add(shard, id, &keys[dice / IDS % KEYS].key, 0, 256);
    else if (dice & 1024 || entry.state != SPW_COLD)
        spw_shard_cold_remove(shard, id);
    else if (spw_shard_promote(shard, id, 2, &slot) == SPW_RESERVED && dice & 2048)
        spw_shard_release(shard, slot);
}

/* READY or gone, whatever is in the slot. */
static void meddle(uint64_t dice)
{
    struct spw_entry_copy entry;
    uint32_t slot = (uint32_t)(dice % SLOTS);
    if (spw_shard_entry(shard, slot, &entry) < 0 || !spw_entry_live(entry.state))
        return;
    if (entry.state == SPW_FILLING && dice & 1024)
        spw_shard_ready(shard, slot);
    else
        spw_shard_retire(shard, slot);
}

static void work(uint64_t dice)
{
    uint32_t slot;
    if (dice & 1)
        meddle(dice >> 8);
    else if (dice & 2)
        meddle_below(dice >> 8);
    else
        spw_shard_reserve(shard, &keys[(dice >> 8) % KEYS].key, 0, 256, NULL, &slot);
    if (dice & 4)
        spw_shard_flush(shard);
    if (dice & 8)
        spw_shard_reclaim(shard, 1);
}

static void stand_still(void)
{
    spw_shard_flush(shard);
    uint64_t turn = spw_load_relaxed(&quiet) + 1;
    spw_store_release(&quiet, turn);
    for (uint32_t i = 0; i < READERS; i++)
        while (spw_load_acquire(&seen[i]) != turn && !is_over())
            sched_yield();
    spw_store_release(&quiet, turn + 1);
}

static void *work_all(void *arg)
{
    uint64_t state = *(uint64_t *)arg;
    while (!is_over()) {
        for (uint32_t i = 0; i < BURST; i++)
            work(stress_random(&state) >> 8);
        stand_still();
    }
    return NULL;
}

/* ---- readers --------------------------------------------------------------------------------- */

struct reader {
    uint32_t c;
    struct spw_views views;
    struct spw_change_log log;
    uint64_t hits, lost, quiets, untrue;
};

static uint32_t says(const struct reader *reader, uint32_t n)
{
    return (uint32_t)spw_replica_get(&reader->views.replica, keys[n].key.digest[0]) & 3;
}

static uint32_t truth(uint32_t n)
{
    struct spw_entry_copy entry;
    if (spw_table_find(&table, &keys[n].key, &entry) == 0 && entry.state == SPW_READY)
        return SPW_REPLICA_READY;
    if (spw_table_find_filling(&table, keys[n].key.digest, &entry) == 0)
        return SPW_REPLICA_PENDING;
    if (spw_table_find_below(&table, &keys[n].key, &entry) == 0 && entry.state == SPW_COLD)
        return SPW_REPLICA_COLD;
    return SPW_REPLICA_ABSENT;
}

/* Is there something to load? An entry that keeps changing is asked again. */
static bool loadable(uint32_t n)
{
    struct spw_entry_copy entry;
    int rc;
    while ((rc = spw_table_find(&table, &keys[n].key, &entry)) == -EAGAIN)
        sched_yield();
    return rc == 0;
}

/* A step, with a piece of a resync at most. */
static void step(struct reader *reader, bool whole)
{
    struct spw_client_view *client = &tiny.pool.client[reader->c];
    uint64_t position[1] = {reader->views.view[0].position};
    uint64_t budget = whole ? UINT64_MAX : 1;
    spw_client_step_begin(client, position);
    spw_views_update(&reader->views, 0, &budget);
    spw_client_step_applied(client, 0, reader->views.view[0].position);
    for (uint32_t n = 0; n < KEYS && spw_view_live(&reader->views, 0); n++) {
        if (says(reader, n) != SPW_REPLICA_READY)
            continue;
        reader->hits++;
        reader->lost += !loadable(n);
    }
    spw_client_step_end(client);
}

static void check_quiet(struct reader *reader, uint64_t turn)
{
    step(reader, true);
    for (uint32_t n = 0; n < KEYS; n++)
        reader->untrue += says(reader, n) != truth(n);
    reader->quiets++;
    spw_store_release(&seen[reader->c], turn);
}

static void *read_all(void *arg)
{
    struct reader *reader = arg;
    while (!is_over()) {
        uint64_t turn = spw_load_acquire(&quiet);
        if (turn & 1 && spw_load_relaxed(&seen[reader->c]) != turn)
            check_quiet(reader, turn);
        else
            step(reader, false);
        if (reader->lost + reader->untrue != 0)
            spw_store_relaxed(&is_wrong, 1);
    }
    return NULL;
}

/* ---- a run ----------------------------------------------------------------------------------- */

static bool set_up(void)
{
    struct spw_geometry geometry =
        tiny_geometry_cold(tiny_geometry(1, READERS, CAPACITY, SLOTS), IDS);
    geometry.update_records = 8;
    geometry.gate_records = 2;
    for (uint32_t n = 0; n < KEYS; n++)
        tiny_key(&keys[n], 0, n);
    if (tiny_pool_make(&tiny, &geometry) < 0)
        return false;
    shard = tiny_shard_open(&tiny, 0);
    spw_table_view_init(&table, tiny.pool.feed[0], &tiny.pool.feed_map, &geometry);
    return shard != NULL;
}

int main(int argc, char **argv)
{
    struct stress run = stress_arguments(argc, argv, mutants);
    static struct reader reader[READERS];
    pthread_t worker, thread[READERS];
    uint64_t seed = run.seed * 77 + 1, hits = 0, lost = 0, untrue = 0, gaps = 0;
    uint64_t quiets = UINT64_MAX;
    char counts[200];
#ifdef SPW_MUTANTS
    cold_mutant_set_up(run.mutate);
#endif
    if (!set_up())
        return 1;
    end_ns = stress_now_ns() + (uint64_t)(run.seconds * 1e9);
    for (uint32_t i = 0; i < READERS; i++) {
        reader[i].c = i;
        if (spw_change_log_init(&reader[i].log, 0) < 0 ||
            spw_views_init(&reader[i].views, &tiny.pool, -1, &reader[i].log) < 0)
            return 1;
        pthread_create(&thread[i], NULL, read_all, &reader[i]);
    }
    pthread_create(&worker, NULL, work_all, &seed);
    for (uint32_t i = 0; i < READERS; i++) {
        pthread_join(thread[i], NULL);
        hits += reader[i].hits;
        lost += reader[i].lost;
        untrue += reader[i].untrue;
        gaps += reader[i].views.counts.gaps;
        quiets = reader[i].quiets < quiets ? reader[i].quiets : quiets;
    }
    pthread_join(worker, NULL);
    for (uint32_t i = 0; i < READERS; i++)
        spw_views_fini(&reader[i].views);
    spw_shard_close(shard);
    snprintf(counts, sizeof counts,
             "%" PRIu64 " hits, %" PRIu64 " lost, %" PRIu64 " quiet points, %" PRIu64
             " untrue, %" PRIu64 " times lapped",
             hits, lost, quiets, untrue, gaps);
    return stress_end(&run, lost + untrue + (!run.mutate && (hits == 0 || quiets == 0)), counts);
}
