/*
 * A worker dies at every step of a shard's changes, its successor at every step of the adoption, and
 * the next successor must find a shard in order: every READY chunk with its bytes, nothing FILLING,
 * nothing FREE that wasn't, no number lower than before, a reader's view that says what the table
 * says, and every slot usable again. rings 5, 6, 7. A tier below comes and goes meanwhile: nothing of
 * it is left to the successor.
 *
 * Compiled with -DSPW_MUTANTS and adopt_mutants.c the same check must find each seeded mistake.
 */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "shm/crash_point.h"
#include "tests/support/env.h"
#include "tests/support/tiny_pool.h"
#include "tier/adopt.h"
#include "tier/shard_cold.h"

#ifdef SPW_MUTANTS
#include "tests/crash/adopt_mutants.h"
#endif

TestSuite(shard_crash, .timeout = 120);

#define CAPACITY 8u
#define SLOTS    11u
#define IDS      5u
#define ENTRIES  (SLOTS + IDS)
#define KEYS     12u
#define OPS      90u

static const char *const changes[] = {
    "table.seq_odd",      "table.half_stored",   "table.fields_stored",  "table.passed_counted",
    "table.cell_cleared", "shard.table_written", "shard.news_published", "shard.victim_retired",
    "shard.cell_dropped", "shard.slot_freed",    "reclaim.fence_stored", "claims.bit_set",
    "bcast.gate_stored",  "bcast.word_stored",   "bcast.seq_stored",     "bcast.tail_stored",
    "cold.added",         "cold.covered",        "cold.bared",           "cold.cell_dropped",
    "cold.freed",
};
static const char *const adoptions[] = {
    "adopt.entry_repaired",   "adopt.below_freed",      "adopt.repaired",
    "adopt.index_cleared",    "adopt.index_rebuilt",    "adopt.incarnation_stored",
    "adopt.positions_filled", "adopt.retired_in_table", "adopt.retired_anew",
    "bcast.tail_repaired",    "bcast.seq_stored",       "table.seq_odd",
    "table.fields_stored",    "table.passed_counted",
};
#define COUNT(list) (sizeof(list) / sizeof(list)[0])

static struct tiny_pool tiny;
static struct tiny_view view;
static uint64_t keys[KEYS]; /* of one home bucket, so that they spill over */

/* What was seen that must not be; the text says the first. */
static char wrong[160];

#define EXPECT(what, ...)                                                                          \
    do {                                                                                           \
        if (!(what) && !wrong[0])                                                                  \
            snprintf(wrong, sizeof wrong, __VA_ARGS__);                                            \
    } while (0)

/* ---- what a worker does until it dies -------------------------------------------------------- */

struct life {
    const char *point;
    uint32_t nth;
    uint64_t seed;
};

static uint64_t roll(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state >> 16;
}

static uint64_t *payload_of(uint32_t slot)
{
    return (uint64_t *)(void *)(tiny.pool.data[0] + (uint64_t)slot * tiny.pool.geometry.slot_bytes);
}

static void store(struct spw_shard *shard, uint64_t n, bool ends)
{
    uint32_t slot;
    if (tiny_reserve(shard, n, NULL, &slot) != SPW_RESERVED)
        return;
    payload_of(slot)[0] = ~n;
    payload_of(slot)[1] = n;
    if (ends)
        spw_shard_ready(shard, slot);
}

/* Make READY, retire, or claim for a copy that never ends, whatever is in the slot. */
static void meddle(struct spw_shard *shard, uint32_t slot, uint64_t dice)
{
    struct spw_entry_copy entry;
    if (spw_shard_entry(shard, slot, &entry) < 0 || !spw_entry_live(entry.state))
        return;
    if (dice % 8 == 0)
        spw_shard_claim(shard, 0, slot, entry.fill);
    else if (entry.state == SPW_FILLING && dice % 2)
        spw_shard_ready(shard, slot);
    else
        spw_shard_retire(shard, slot);
}

static void promote(struct spw_shard *shard, uint32_t id, uint64_t n, uint64_t dice)
{
    uint32_t slot;
    if (spw_shard_promote(shard, id, 2, &slot) != SPW_RESERVED)
        return;
    payload_of(slot)[0] = ~n;
    payload_of(slot)[1] = n;
    if (dice & 1)
        spw_shard_ready(shard, slot);
    if (dice & 2)
        spw_shard_release(shard, slot);
}

/* Whatever the tier below has to say of @id: a chunk more or less, or one that is read up. */
static void meddle_below(struct spw_shard *shard, uint32_t id, uint64_t dice)
{
    struct spw_entry_copy entry;
    uint64_t n;
    if (spw_shard_cold_entry(shard, id, &entry) < 0) {
        tiny_cold_add(shard, id, keys[dice % KEYS]);
        return;
    }
    memcpy(&n, entry.key, sizeof n);
    if (entry.state == SPW_COLD && dice % 2)
        promote(shard, id, n, dice >> 4);
    else
        spw_shard_cold_remove(shard, id);
}

static int work(void *arg)
{
    struct life *life = arg;
    uint64_t state = life->seed;
    if (life->point)
        spw_crash_arm(life->point, life->nth);
    struct spw_shard *shard = tiny_shard_open(&tiny, 0);
    if (!shard)
        return 1;
    for (uint32_t i = 0; i < OPS; i++) {
        uint64_t dice = roll(&state);
        if (i % 20 == 5)
            tiny_step_begin(&tiny, 0);
        if (i % 40 == 15)
            spw_client_step_end(&tiny.pool.client[0]);
        if (dice % 3)
            store(shard, keys[(dice >> 8) % KEYS], dice >> 16 & 3);
        else
            meddle(shard, (uint32_t)(dice >> 8) % SLOTS, dice >> 20);
        if (dice >> 32 & 1)
            meddle_below(shard, (uint32_t)(dice >> 33) % IDS, dice >> 36);
        if (i % 3 == 0)
            spw_shard_flush(shard);
        if (i % 4 == 0)
            spw_shard_reclaim(shard, i * TINY_FENCE_NS / 8);
    }
    spw_shard_close(shard);
    return 0;
}

static int adopt(void *arg)
{
    struct life *life = arg;
    spw_crash_arm(life->point, life->nth);
    struct spw_shard *shard = tiny_shard_open(&tiny, 0);
    spw_shard_close(shard);
    return shard ? 0 : 1;
}

/* True if the child died where it should have. */
static bool dies(int (*body)(void *), struct life *life)
{
    int status = support_wait(support_fork(body, life), 20000);
    EXPECT(status == 0 || status == SUPPORT_SIGNALLED + SIGKILL, "%s %u: child ended with %d",
           life->point, life->nth, status);
    return status != 0;
}

/* ---- what is left ---------------------------------------------------------------------------- */

struct remains {
    uint64_t incarnation, tail, gate;
    struct spw_entry_copy entry[ENTRIES];
    bool whole[ENTRIES];
};

static void take_stock(struct remains *remains)
{
    struct spw_feed_head *feed = tiny.pool.feed[0];
    *remains = (struct remains){.incarnation = spw_load_relaxed(&feed->incarnation),
                                .tail = spw_load_relaxed(&feed->tail),
                                .gate = spw_load_relaxed(&feed->gate)};
    for (uint32_t slot = 0; slot < ENTRIES; slot++)
        remains->whole[slot] = spw_table_read(&view.table, slot, true, &remains->entry[slot]) == 0;
}

static void check_numbers(const struct remains *was, const struct remains *is)
{
    EXPECT(is->incarnation > was->incarnation, "the incarnation did not grow");
    EXPECT(is->tail >= was->tail && is->gate >= was->gate, "the ring went back");
    for (uint32_t slot = 0; slot < SLOTS; slot++) {
        const struct spw_entry_copy *old = &was->entry[slot], *now = &is->entry[slot];
        EXPECT(is->whole[slot], "slot %u is still torn", slot);
        if (!was->whole[slot]) {
            EXPECT(now->state == SPW_RETIRED, "slot %u was torn and is %u", slot, now->state);
            continue;
        }
        EXPECT(now->version >= old->version, "slot %u: its version went back", slot);
        EXPECT((now->state == SPW_FREE) == (old->state == SPW_FREE), "slot %u became %u from %u",
               slot, now->state, old->state);
        EXPECT((now->state == SPW_READY) == (old->state == SPW_READY) &&
                   (now->state != SPW_READY || now->fill == old->fill),
               "slot %u was READY and is not, or the other way round", slot);
    }
}

static void check_below(const struct remains *was, const struct remains *is)
{
    for (uint32_t at = SLOTS; at < ENTRIES; at++) {
        EXPECT(is->whole[at] && is->entry[at].state == SPW_FREE, "entry %u is left", at);
        EXPECT(!was->whole[at] || is->entry[at].version >= was->entry[at].version,
               "entry %u: its version went back", at);
    }
}

static void check_chunks(const struct remains *is)
{
    for (uint32_t slot = 0; slot < SLOTS; slot++) {
        uint64_t n;
        if (is->entry[slot].state != SPW_READY)
            continue;
        memcpy(&n, is->entry[slot].key, sizeof n);
        EXPECT(payload_of(slot)[0] == ~n && payload_of(slot)[1] == n, "slot %u: wrong bytes", slot);
        EXPECT(tiny_resident(&tiny, 0, n), "slot %u: its key can't be found", slot);
    }
}

/* Nothing of the dead copies any more, and the successor doesn't yet. */
static void check_claims(void)
{
    const spw_atomic64 *bits = spw_pool_feed_at(&tiny.pool, 0, tiny.pool.feed_map.copying_off);
    uint64_t words = spw_claim_words(&tiny.pool.geometry);
    for (uint64_t w = 0; w < words; w++)
        EXPECT(spw_load_relaxed(&bits[w]) == 0, "a copying bit of the dead is left");
}

/* All clients are out of their steps: every slot must serve again. */
static void check_use(struct spw_shard *shard)
{
    spw_client_step_end(&tiny.pool.client[0]);
    for (uint64_t n = 100; n < 100 + 3 * SLOTS; n++) {
        spw_shard_reclaim(shard, 0);
        EXPECT(tiny_store(shard, n) != UINT32_MAX, "no slot for key %u", (unsigned)n);
    }
    spw_shard_reclaim(shard, 0);
    struct spw_shard_stats stats = tiny_stats(shard);
    EXPECT(stats.ready == CAPACITY && stats.free == SLOTS - CAPACITY,
           "%u READY and %u FREE in the end", stats.ready, stats.free);
}

#ifdef SPW_MUTANTS
static const char *mutant; /* mistake of the successor that is checked */

static struct spw_shard *succeed(void)
{
    adopt_mutant_set_up(mutant);
    struct spw_shard *shard = tiny_shard_open(&tiny, 0);
    adopt_mutant_set_up(NULL);
    return shard;
}
#else
static struct spw_shard *succeed(void)
{
    return tiny_shard_open(&tiny, 0);
}
#endif

static void check_successor(const struct remains *was)
{
    struct remains is;
    struct spw_shard *shard = succeed();
    EXPECT(shard, "the shard is not adopted");
    if (!shard)
        return;
    take_stock(&is);
    check_numbers(was, &is);
    check_below(was, &is);
    check_chunks(&is);
    check_claims();
    EXPECT(tiny_stats(shard).filling == 0, "FILLING without an owner");
    tiny_view_update(&view);
    EXPECT(tiny_view_matches(&view), "the view is not what the table says");
    check_use(shard);
    tiny_view_update(&view);
    EXPECT(tiny_view_matches(&view), "the view is not what the table says later");
    spw_shard_close(shard);
}

static void choose_keys(void)
{
    uint32_t found = 0;
    for (uint64_t n = 0; n < TINY_KEYS && found < KEYS; n++)
        if (view.digest[n][0] >> 62 == 1)
            keys[found++] = n;
    EXPECT(found == KEYS, "too few keys of one bucket");
}

/* A pool on which a worker has worked and lived, and a reader that knows it. */
static void begin(uint64_t seed)
{
    struct spw_geometry geometry = tiny_geometry_cold(tiny_geometry(1, 1, CAPACITY, SLOTS), IDS);
    struct life quiet = {.seed = seed * 77};
    EXPECT(tiny_pool_make(&tiny, &geometry) == 0, "no pool");
    EXPECT(tiny_view_init(&view, &tiny.pool, 0) == 0, "no view");
    choose_keys();
    EXPECT(work(&quiet) == 0, "the first worker did not come up");
    tiny_view_update(&view);
}

/* One worker dies at the @nth pass of @point; false if it never comes so far. */
static bool one_death(const char *point, uint32_t nth, uint64_t seed)
{
    struct life life = {point, nth, seed};
    struct remains was;
    begin(seed);
    bool died = dies(work, &life);
    take_stock(&was);
    tiny_view_update(&view); /* ends, and shows nothing that is not so, while nobody is there */
    if (died)
        check_successor(&was);
    tiny_pool_free(&tiny);
    return died;
}

/* A worker dies where @seed says, its successor at the @nth pass of @point. */
static bool two_deaths(const char *point, uint32_t nth, uint64_t seed)
{
    struct life first = {changes[seed % COUNT(changes)], 3, seed}, second = {point, nth, seed};
    struct remains was;
    begin(seed);
    bool died = dies(work, &first);
    take_stock(&was);
    died = dies(adopt, &second) && died;
    check_successor(&was);
    tiny_pool_free(&tiny);
    return died;
}

static uint32_t next_nth(uint32_t nth)
{
    return nth + (nth < 12 ? 1 : 9);
}

#ifndef SPW_MUTANTS

Test(shard_crash, a_worker_dead_at_any_step_leaves_a_shard_that_is_taken_over_whole)
{
    for (uint32_t p = 0; p < COUNT(changes); p++) {
        uint32_t deaths = 0;
        for (uint32_t nth = 1; one_death(changes[p], nth, 5 + p); nth = next_nth(nth)) {
            cr_assert_str_empty(wrong, "%s, time %u: %s", changes[p], nth, wrong);
            deaths++;
        }
        cr_assert_str_empty(wrong, "%s: %s", changes[p], wrong);
        cr_assert_geq(deaths, 1, "%s is never passed", changes[p]);
    }
}

Test(shard_crash, a_successor_dead_at_any_step_of_adoption_changes_nothing_for_the_next)
{
    for (uint32_t p = 0; p < COUNT(adoptions); p++) {
        uint32_t deaths = 0;
        for (uint64_t seed = 2; seed < COUNT(changes); seed += 4) {
            for (uint32_t nth = 1; nth < 5 && two_deaths(adoptions[p], nth, seed); nth++)
                deaths++;
            cr_assert_str_empty(wrong, "%s after %s: %s", adoptions[p],
                                changes[seed % COUNT(changes)], wrong);
        }
        cr_assert_geq(deaths, 1, "%s is never passed", adoptions[p]);
    }
}

#else

/* rings 8, at this layer: a check that can't fail proves nothing. */
Test(shard_crash, each_mistake_of_a_successor_is_found)
{
    static const char *const mutants[] = {ADOPT_MUTANTS};
    for (uint32_t m = 0; m < COUNT(mutants); m++) {
        mutant = mutants[m];
        wrong[0] = 0;
        for (uint32_t p = 0; p < COUNT(changes) && !wrong[0]; p++)
            for (uint32_t nth = 1; !wrong[0] && one_death(changes[p], nth, 5 + p);)
                nth = next_nth(nth);
        for (uint64_t seed = 1; seed <= COUNT(changes) && !wrong[0]; seed++)
            two_deaths(adoptions[seed % COUNT(adoptions)], 1, seed);
        cr_assert(wrong[0], "%s is not found", mutant);
        cr_log_info("%s: %s", mutant, wrong);
    }
}

#endif
