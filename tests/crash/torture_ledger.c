/*
 * What the shards hold, and whether it is what they must hold: torture.h says what lost means.
 * Reads feeds and client objects as a tool does.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "shm/alive.h"
#include "tests/crash/torture.h"
#include "tests/support/account.h"
#include "tier/counters.h"
#include "tier/layout.h"

#define LOOKS       200 /* until a table holds still for one */
#define SETTLE_MS   8000
#define PAUSE_MS    15000
#define SWEEP_MS    30000
#define COUNTING_MS 1000 /* for a worker that is off its CPU between a retirement and its count */

/* ---- tables ---------------------------------------------------------------------------------- */

static const struct spw_entry *entries_of(const struct torture *torture, uint32_t k)
{
    const struct spw_pool *seen = torture->pool.seen;
    return spw_pool_feed_at(seen, k, seen->feed_map.entry_off);
}

static uint64_t number_of(const struct torture *torture, uint32_t k, uint32_t slot)
{
    const struct spw_pool *seen = torture->pool.seen;
    const struct spw_entry_key *key = spw_pool_feed_at(seen, k, seen->feed_map.key_off);
    return spw_load_relaxed(&key[slot].word[0]);
}

static void read_part(const struct torture *torture, uint32_t k, uint32_t slot,
                      struct torture_shard *out)
{
    const struct spw_entry *entry = &entries_of(torture, k)[slot];
    uint64_t packed = spw_load_relaxed(&entry->packed);
    if (SPW_PACKED_STATE(packed) != SPW_READY)
        return;
    out->part[out->count++] = (struct torture_part){
        .digest = {spw_load_relaxed(&entry->digest[0]), spw_load_relaxed(&entry->digest[1])},
        .number = number_of(torture, k, slot),
        .fill = spw_load_relaxed(&entry->fill),
        .space = SPW_PACKED_SPACE(packed),
        .rank = SPW_PACKED_RANK(packed),
        .slot = slot,
    };
}

/* One look at all entries: false if any changed meanwhile. One that stays odd is nobody's. */
static bool look_once(const struct torture *torture, uint32_t k, struct torture_shard *out)
{
    uint64_t seq[TORTURE_SLOTS_MAX];
    const struct spw_entry *entry = entries_of(torture, k);
    const struct spw_feed_head *feed = torture->pool.seen->feed[k];
    uint32_t slots = torture->pool.seen->geometry.slots;
    out->count = 0;
    out->begun = 0;
    for (uint32_t s = 0; s < SPW_SPACES_MAX; s++) {
        out->generation[s] = spw_load_relaxed(&feed->space_generation[s]);
        out->begun += out->generation[s];
    }
    out->ended = spw_load_relaxed(&feed->counter[SPW_WORKER_resets]);
    for (uint32_t slot = 0; slot < slots; slot++)
        seq[slot] = spw_load_acquire(&entry[slot].seq);
    for (uint32_t slot = 0; slot < slots; slot++)
        if (seq[slot] % 2 == 0)
            read_part(torture, k, slot, out);
    spw_fence_acquire();
    out->evicted = spw_load_relaxed(&feed->counter[SPW_WORKER_evicted]);
    for (uint32_t slot = 0; slot < slots; slot++)
        if (spw_load_relaxed(&entry[slot].seq) != seq[slot])
            return false;
    for (uint32_t s = 0; s < SPW_SPACES_MAX; s++) /* raised before what it retires */
        if (spw_load_relaxed(&feed->space_generation[s]) != out->generation[s])
            return false;
    return spw_load_relaxed(&feed->counter[SPW_WORKER_resets]) == out->ended;
}

static bool look(const struct torture *torture, uint32_t k, struct torture_shard *out)
{
    for (int i = 0; i < LOOKS; i++)
        if (look_once(torture, k, out))
            return true;
    return false;
}

void torture_look(struct torture *torture, uint32_t k)
{
    static struct torture_shard now;
    if (!look(torture, k, &now))
        return;
    now.torn = now.begun - now.ended;
    torture->shard[k] = now;
}

static bool holds(const struct torture_shard *shard, const struct torture_part *part)
{
    for (uint32_t i = 0; i < shard->count; i++)
        if (shard->part[i].digest[0] == part->digest[0] &&
            shard->part[i].digest[1] == part->digest[1])
            return true;
    return false;
}

/* Some of it is retired, the rest will be. */
static bool is_in_a_reset(const struct torture_shard *shard)
{
    return shard->begun != shard->ended + shard->torn;
}

static bool was_reset(const struct torture_shard *before, const struct torture_shard *now,
                      const struct torture_part *part)
{
    return part->space >= SPW_SPACES_MAX ||
           before->generation[part->space] != now->generation[part->space];
}

/* Parts that were there and aren't; @say: in words. */
static uint64_t missing(const struct torture_shard *before, const struct torture_shard *now,
                        uint32_t k, bool say)
{
    uint64_t count = 0;
    for (uint32_t i = 0; i < before->count; i++) {
        const struct torture_part *part = &before->part[i];
        if (holds(now, part) || was_reset(before, now, part))
            continue;
        count++;
        if (say)
            fprintf(stderr,
                    "torture: shard %u no longer holds key %" PRIu64
                    " of space %u, rank %u (slot %u, fill %" PRIu64 ")\n",
                    k, part->number, part->space, part->rank, part->slot, part->fill);
    }
    return count;
}

/* What shard @k has evicted since @before; one that was retired just now is counted by the end of the
 * pass. */
static uint64_t evicted_since(const struct torture *torture, uint32_t k,
                              const struct torture_shard *before, uint64_t wanted)
{
    const struct spw_feed_head *feed = torture->pool.seen->feed[k];
    uint64_t until = proc_now_ms() + COUNTING_MS, first = spw_load_relaxed(&feed->passes), evicted;
    bool goes_on = true;
    do {
        goes_on = spw_load_relaxed(&feed->passes) - first < 2 && torture_worker_pid(torture, k) &&
                  proc_now_ms() < until;
        evicted = spw_load_relaxed(&feed->counter[SPW_WORKER_evicted]) - before->evicted;
        usleep(200);
    } while (evicted < wanted && goes_on);
    return evicted;
}

void torture_compare(struct torture *torture, uint32_t k, uint32_t uncounted)
{
    static struct torture_shard now;
    struct torture_shard *before = &torture->shard[k];
    if (!look(torture, k, &now))
        return; /* too much goes on there; the next look covers this one */
    now.torn = uncounted ? now.begun - now.ended : before->torn;
    uint64_t gone = is_in_a_reset(before) ? 0 : missing(before, &now, k, false);
    uint64_t allowed = now.evicted - before->evicted + uncounted;
    if (gone > allowed)
        allowed = evicted_since(torture, k, before, gone - uncounted) + uncounted;
    if (gone > allowed) {
        missing(before, &now, k, true);
        fprintf(stderr, "torture: LOST: shard %u: %" PRIu64 " gone, %" PRIu64 " explained\n", k,
                gone, allowed);
        torture->found.lost += gone - allowed;
    }
    *before = now;
}

/* ---- at rest --------------------------------------------------------------------------------- */

static uint32_t pins(const struct torture *torture)
{
    const struct spw_pool *seen = torture->pool.seen;
    uint64_t words = spw_claim_words(&seen->geometry) * seen->geometry.workers;
    uint32_t count = 0;
    for (uint32_t c = 0; c < seen->geometry.clients; c++)
        for (uint64_t w = 0; w < words && spw_lock_held(seen->lock_fd, SPW_LOCK_CLIENT(c)) == 1;
             w++)
            count += (uint32_t)__builtin_popcountll(spw_load_relaxed(&seen->client[c].pin[w]));
    return count;
}

static uint32_t unsettled(const struct torture *torture)
{
    uint32_t count = 0;
    for (uint32_t k = 0; k < torture->options.workers; k++)
        count += proc_entries(&torture->pool, k, SPW_FILLING) +
                 proc_entries(&torture->pool, k, SPW_RETIRED);
    return count;
}

/* Chunks that were open when their worker died ended uncounted. */
static uint32_t account_flags(const struct torture_findings *found)
{
    bool whole = found->deaths[TORTURE_WORKER] + found->deaths[TORTURE_DAEMON] +
                     found->deaths[TORTURE_EVERYTHING] ==
                 0;
    return ACCOUNT_IDLE | (whole ? ACCOUNT_COUNTERS : 0);
}

static void settle(struct torture *torture)
{
    char words[256] = "";
    if (account_settles(torture->pool.seen, account_flags(&torture->found), SETTLE_MS, words,
                        sizeof words))
        return;
    fprintf(stderr, "torture: UNEVEN at rest: %s\n", words);
    torture->found.uneven++;
    torture->found.stuck += unsettled(torture);
    torture->found.leaked_pins += proc_claims(&torture->pool) + pins(torture);
}

static bool all_are_back(void *ctx)
{
    struct torture *torture = ctx;
    torture_tick(torture);
    for (uint32_t k = 0; k < torture->options.workers; k++)
        if (torture->worker[k].killed_ms)
            return false;
    for (uint32_t i = 0; i < torture->options.clients; i++)
        if (torture->client[i].pid && torture->client[i].killed_ms)
            return false;
    return true;
}

static bool all_pause(void *ctx)
{
    struct torture *torture = ctx;
    torture_tick(torture);
    for (uint32_t i = 0; i < torture->options.clients; i++)
        if (torture->client[i].pid &&
            spw_load_relaxed(&torture->board->line[i].paused) != torture->pauses)
            return false;
    return true;
}

static uint32_t space_number(const struct torture *torture, const char *name)
{
    const struct spw_ctl *ctl = torture->pool.seen->ctl;
    for (uint32_t s = 0; s < SPW_SPACES_MAX; s++)
        if (spw_load_acquire(&ctl->space[s].ready) &&
            strncmp(ctl->space[s].record.fingerprint, name, 4) == 0)
            return s;
    return UINT32_MAX;
}

static bool part_is_ready(const struct torture *torture, uint32_t space, uint64_t key,
                          uint32_t rank)
{
    for (uint32_t k = 0; k < torture->options.workers; k++) {
        const struct torture_shard *shard = &torture->shard[k];
        for (uint32_t i = 0; i < shard->count; i++)
            if (shard->part[i].space == space && shard->part[i].number == key &&
                shard->part[i].rank == rank)
                return true;
    }
    return false;
}

/* Parts that went since the tables were looked at: over a tier below a sweep makes room for what it
 * brings up. */
static uint64_t evicted_by_sweep(const struct torture *torture)
{
    uint64_t count = 0;
    for (uint32_t k = 0; torture->options.below && k < torture->options.workers; k++)
        count += proc_count(&torture->pool, k, SPW_WORKER_evicted) - torture->shard[k].evicted;
    return count;
}

static void judge(struct torture *torture, uint32_t s, uint32_t space, uint64_t key,
                  uint64_t *evicted)
{
    uint32_t found = spw_load_relaxed(&torture->board->found[s][key]);
    bool ready = space != UINT32_MAX;
    for (uint32_t rank = 0; ready && rank < s + 1; rank++)
        ready = part_is_ready(torture, space, key, rank);
    if (found == TORTURE_WRONG || (found == TORTURE_RIGHT && !ready && !torture->options.below))
        torture->found.wrong += found != TORTURE_WRONG; /* wrong bytes are counted where seen */
    if (!ready || found == TORTURE_RIGHT || found == TORTURE_UNASKED)
        return;
    if (*evicted) {
        --*evicted;
        return;
    }
    fprintf(stderr, "torture: LOST: key %" PRIu64 " of space %u is READY; a client finds %u\n", key,
            s, found);
    torture->found.lost++;
}

/* A client of its own looks every key up. */
static void sweep(struct torture *torture)
{
    static const char *const name[TORTURE_SPACES] = {"one", "two"};
    char seed[24], workers[16];
    snprintf(seed, sizeof seed, "%" PRIu64, torture->seed);
    snprintf(workers, sizeof workers, "%u", torture->options.workers);
    const char *argv[] = {SPW_TORTURE_CLIENT,
                          torture->pool.dir,
                          torture->pool.config.name,
                          torture->board_path,
                          "sweep",
                          seed,
                          workers,
                          NULL};
    pid_t pid = support_spawn(argv, NULL);
    int status = pid > 0 ? support_wait(pid, SWEEP_MS) : pid;
    if (status != 0) {
        fprintf(stderr, "torture: the sweep ended with %d\n", status);
        torture->found.unexpected++;
        return;
    }
    torture->found.sweeps++;
    uint64_t evicted = evicted_by_sweep(torture);
    for (uint32_t s = 0; s < TORTURE_SPACES && torture->options.workers > s; s++)
        for (uint64_t key = 1; key < TORTURE_KEYS_MAX; key++)
            judge(torture, s, space_number(torture, name[s]), key, &evicted);
}

void torture_quiet(struct torture *torture)
{
    torture_continue(torture);
    if (!proc_eventually(all_are_back, torture, PAUSE_MS)) {
        fprintf(stderr, "torture: not all came back\n");
        torture->found.slow++;
    }
    spw_store_relaxed(&torture->board->pause, ++torture->pauses);
    if (!proc_eventually(all_pause, torture, PAUSE_MS)) {
        fprintf(stderr, "torture: a client is stuck in a call\n");
        torture->found.lost_answers++;
    }
    settle(torture);
    for (uint32_t k = 0; k < torture->options.workers; k++)
        torture_compare(torture, k, 0);
    for (uint32_t k = 0; k < torture->options.workers; k++)
        torture_look(torture, k); /* no reset is under way: what is torn was torn by deaths */
    sweep(torture);
    torture_start_clients(torture);
    spw_store_relaxed(&torture->board->pause, 0);
}
