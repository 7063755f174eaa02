/* The audit of one shard; see fsck.h. Reads a feed that its worker may be changing, or has died in. */
#include "tools/fsck.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "shm/alive.h"
#include "tier/entry_check.h"
#include "tier/shard.h"

#define SUSPECTS   512u  /* judged together                                            */
#define ROUNDS     8u    /* looks at a suspect that changes, before it is called moving */
#define LOOKS      1000u /* at the worker's progress ...                               */
#define LOOK_US    1000u /* ... this far apart: an idle one goes round ten times a second */
#define SCANS      3u    /* of a shard whose worker ends meanwhile                     */
#define PASSES     2u    /* of the worker's loop: one whole one lies between           */
#define FAULTS_MAX 4 * SPW_FSCK_FINDINGS_MAX /* then the shard is not looked at any further */

/* What can be wrong with an entry beyond what tier/entry_check.h tells. */
enum fault {
    SOUND = SPW_ENTRY_SOUND,
    TORN = 100,
    NO_ENTRY,
    UNREACHED,
    TWIN,
    COLD_BESIDE_SLOT,
    BACKED_ALONE,
};

struct suspect {
    uint32_t slot; /* or the number of an entry of the tier below */
    uint32_t twin;
    int fault;
    bool confirmed;
    uint64_t seq, version;
};

/* The worker of a shard, as far as that tells whether its changes are whole. */
struct pulse {
    bool alive, settled; /* settled: it has adopted its shard, and serves */
    uint64_t incarnation, passes;
};

struct audit {
    const struct spw_fsck_feed *what;
    struct spw_fsck_report *report;
    struct spw_table_view view;
    struct spw_feed_map map;
    struct pulse begun;
    struct suspect suspect[SUSPECTS];
    uint32_t suspects, faults;
    uint64_t entries[SPW_STATE_COUNT];
    uint64_t moving, unreached, halfway;
};

enum outcome { DONE, AGAIN, STUCK };

static struct pulse feel(const struct spw_fsck_feed *what)
{
    const struct spw_worker_state *state = &what->ctl->worker[what->k];
    struct pulse pulse = {.passes = spw_load_relaxed(&what->feed->passes)};
    /* [AD-1] acquire: the table as it was adopted */
    pulse.incarnation = spw_load_acquire(&what->feed->incarnation);
    pulse.alive = what->lock_fd >= 0 && spw_lock_held(what->lock_fd, SPW_LOCK_WORKER(what->k)) == 1;
    pulse.settled = pulse.alive && spw_load_relaxed(&state->phase) == SPW_WORKER_UP &&
                    spw_load_relaxed(&state->incarnation) == pulse.incarnation;
    return pulse;
}

/* Does the same worker, or nobody, still have the shard? */
static bool same_pulse(const struct pulse *a, const struct pulse *b)
{
    return a->alive == b->alive && a->settled == b->settled && a->incarnation == b->incarnation;
}

/* ---- entries --------------------------------------------------------------------------------- */

static bool same_key(const struct spw_entry_copy *a, const struct spw_entry_copy *b)
{
    return a->space == b->space && a->group == b->group && a->key_bytes == b->key_bytes &&
           memcmp(a->key, b->key, a->key_bytes) == 0;
}

static struct spw_chunk_key key_of(const struct spw_entry_copy *copy)
{
    return (struct spw_chunk_key){.digest = {copy->digest[0], copy->digest[1]},
                                  .space = copy->space,
                                  .group = copy->group,
                                  .key_bytes = copy->key_bytes,
                                  .key = copy->key};
}

/* Does the index lead to this live entry, and to no other one of its key? */
static int look_up(const struct audit *audit, const struct spw_entry_copy *copy, uint32_t *out_twin)
{
    const struct spw_chunk_key key = key_of(copy);
    struct spw_entry_copy found;
    if (spw_table_find(&audit->view, &key, &found) == 0 && found.state == SPW_READY) {
        *out_twin = found.slot;
        return found.slot == copy->slot ? SOUND : TWIN;
    }
    if (copy->state == SPW_READY || spw_table_find_filling(&audit->view, copy->digest, &found) ||
        spw_table_read(&audit->view, found.slot, true, &found) || !same_key(copy, &found))
        return UNREACHED;
    *out_twin = found.slot;
    return found.slot == copy->slot ? SOUND : TWIN;
}

/* 1: a slot has the key of @copy live, 0: none has, -EAGAIN: one that may have it is changing. */
static int lives(const struct audit *audit, const struct spw_entry_copy *copy)
{
    const struct spw_chunk_key key = key_of(copy);
    struct spw_entry_copy found;
    int ready = spw_table_find(&audit->view, &key, &found);
    if (ready == 0 && found.state == SPW_READY)
        return 1;
    int filling = spw_table_find_filling(&audit->view, copy->digest, &found);
    if (filling == 0)
        return 1;
    return ready == -EAGAIN || filling == -EAGAIN ? -EAGAIN : 0;
}

/* The same of an entry of the tier below; and does it say rightly who speaks for the key? */
static int look_below(const struct audit *audit, const struct spw_entry_copy *copy,
                      uint32_t *out_twin)
{
    const struct spw_chunk_key key = key_of(copy);
    struct spw_entry_copy found;
    if (spw_table_find_below(&audit->view, &key, &found) < 0)
        return UNREACHED;
    *out_twin = found.slot;
    if (found.slot != copy->slot)
        return TWIN;
    int live = lives(audit, copy);
    if (copy->state == SPW_COLD && live == 1)
        return COLD_BESIDE_SLOT;
    return copy->state == SPW_BACKED && live == 0 ? BACKED_ALONE : SOUND;
}

/* Look at an entry once. */
static struct suspect judge(const struct audit *audit, uint32_t slot, uint32_t *out_state)
{
    const struct spw_fsck_feed *what = audit->what;
    const struct spw_entry *entry = &audit->view.entry[slot];
    struct suspect suspect = {.slot = slot, .seq = spw_load_relaxed(&entry->seq)};
    struct spw_entry_copy copy;
    int rc = spw_table_read(&audit->view, slot, true, &copy);
    if (rc) {
        suspect.version = spw_load_relaxed(&entry->version);
        suspect.fault = rc == -EAGAIN ? TORN : NO_ENTRY;
        return suspect;
    }
    suspect.version = copy.version;
    struct spw_entry_rules rules = {
        .space = what->ctl->space,
        .slot_bytes = what->geometry->slot_bytes,
        /* [UR-3] acquire: no older than the entry */
        .version_max = spw_load_acquire(&what->feed->tail) + SPW_NEWS_MAX,
    };
    suspect.fault = (int)spw_entry_check(&copy, &rules);
    if (suspect.fault == SOUND && spw_entry_live(copy.state))
        suspect.fault = look_up(audit, &copy, &suspect.twin);
    else if (suspect.fault == SOUND && copy.state >= SPW_COLD)
        suspect.fault = look_below(audit, &copy, &suspect.twin);
    *out_state = copy.state;
    return suspect;
}

static void tell(struct audit *audit, const struct suspect *suspect)
{
    char where[40];
    bool dead = !audit->begun.alive;
    bool below = suspect->slot >= audit->view.slots;
    snprintf(where, sizeof where, "feed.%u %s %u", audit->what->k, below ? "below" : "slot",
             below ? suspect->slot - audit->view.slots : suspect->slot);
    if (suspect->fault == UNREACHED && dead) {
        audit->unreached++; /* an adopter makes the index anew, and may die over it */
        return;
    }
    if (suspect->fault >= COLD_BESIDE_SLOT && dead && audit->halfway++ == 0) {
        spw_fsck_say(audit->report, SPW_FSCK_NOTE, where,
                     "its worker died between the two entries of a change: the next one frees it");
        return;
    }
    audit->faults++;
    if (suspect->fault == TORN)
        spw_fsck_say(audit->report, dead ? SPW_FSCK_NOTE : SPW_FSCK_DAMAGE, where,
                     dead ? "was being changed when its worker died: the next one drops it"
                          : "its sequence says for ever that it is being changed");
    else if (suspect->fault == NO_ENTRY)
        spw_fsck_say(audit->report, SPW_FSCK_DAMAGE, where,
                     "state or length of the key is none that there is");
    else if (suspect->fault == UNREACHED)
        spw_fsck_say(audit->report, SPW_FSCK_DAMAGE, where, "the index doesn't lead to it");
    else if (suspect->fault == TWIN)
        spw_fsck_say(audit->report, SPW_FSCK_DAMAGE, where, "%s %u has the same key",
                     below ? "entry" : "slot", suspect->twin - (below ? audit->view.slots : 0));
    else if (suspect->fault == COLD_BESIDE_SLOT)
        spw_fsck_say(audit->report, SPW_FSCK_DAMAGE, where,
                     "it says that only the tier below has its chunk, but a slot has it, too");
    else if (suspect->fault == BACKED_ALONE)
        spw_fsck_say(audit->report, SPW_FSCK_DAMAGE, where,
                     "it says that a slot has its chunk, too, but none has");
    else
        spw_fsck_say(audit->report, SPW_FSCK_DAMAGE, where, "%s",
                     spw_entry_fault_text((enum spw_entry_fault)suspect->fault));
}

/* Wait until the worker has been round its loop since @since: what it was changing is whole. */
static enum outcome await_pass(const struct audit *audit, const struct pulse *since)
{
    for (uint32_t i = 0; i < LOOKS; i++) {
        struct pulse now = feel(audit->what);
        if (!same_pulse(&now, &audit->begun))
            return AGAIN;
        if (now.passes - since->passes >= PASSES)
            return DONE;
        usleep(LOOK_US);
    }
    return STUCK;
}

static bool same_worker(const struct audit *audit)
{
    struct pulse now = feel(audit->what);
    return same_pulse(&now, &audit->begun);
}

/* Look at all suspects again. What is wrong in the same way as before is confirmed. */
static void judge_again(struct audit *audit)
{
    for (uint32_t i = 0; i < audit->suspects; i++) {
        uint32_t state;
        const struct suspect *was = &audit->suspect[i];
        struct suspect now = judge(audit, was->slot, &state);
        now.confirmed =
            now.fault == was->fault && now.seq == was->seq && now.version == was->version;
        audit->suspect[i] = now;
    }
}

/* Which of the suspects are still what they were after a whole pass of the worker? They are damage;
 * those that changed are looked at again, those that are sound were on their way. */
static enum outcome confirm(struct audit *audit)
{
    for (uint32_t round = 0; audit->suspects && round < ROUNDS; round++) {
        uint32_t left = 0;
        struct pulse before = feel(audit->what);
        enum outcome outcome = audit->begun.alive ? await_pass(audit, &before) : DONE;
        if (outcome != DONE)
            return outcome;
        judge_again(audit);
        if (!same_worker(audit))
            return AGAIN; /* another one may have been at it: nothing was seen for sure */
        for (uint32_t i = 0; i < audit->suspects; i++) {
            const struct suspect *suspect = &audit->suspect[i];
            if (suspect->fault != SOUND && suspect->confirmed)
                tell(audit, suspect);
            else if (suspect->fault != SOUND)
                audit->suspect[left++] = *suspect;
        }
        audit->suspects = left;
    }
    audit->moving += audit->suspects;
    audit->suspects = 0;
    return DONE;
}

static enum outcome scan(struct audit *audit)
{
    enum outcome outcome = DONE;
    for (uint32_t slot = 0; slot < audit->view.entries && outcome == DONE; slot++) {
        uint32_t state = SPW_STATE_COUNT;
        struct suspect suspect = judge(audit, slot, &state);
        if (suspect.fault != SOUND)
            audit->suspect[audit->suspects++] = suspect;
        bool unused = slot >= audit->view.slots && state == SPW_FREE;
        if (state < SPW_STATE_COUNT && !unused)
            audit->entries[state]++;
        if (audit->suspects == SUSPECTS)
            outcome = confirm(audit);
        if (audit->faults > FAULTS_MAX)
            break;
    }
    if (outcome == DONE)
        outcome = confirm(audit);
    return outcome == DONE && !same_worker(audit) ? AGAIN : outcome;
}

/* ---- ring, bits, counts ---------------------------------------------------------------------- */

/* Could a writer go on after what is in this ring (shm/bcast_ring.h)? */
static void check_ring(const struct audit *audit, const char *where)
{
    const struct spw_feed_head *feed = audit->what->feed;
    const struct spw_ring_slot *slot = (const void *)((const uint8_t *)feed + audit->map.ring_off);
    uint32_t mask = audit->what->geometry->update_records - 1;
    uint32_t misplaced = 0, beyond = 0;
    /* [UR-3] acquire: the gate is at least as new as the tail */
    uint64_t tail = spw_load_acquire(&feed->tail);
    uint64_t gate = spw_load_relaxed(&feed->gate);
    if (spw_pos_before(gate, tail))
        spw_fsck_say(audit->report, SPW_FSCK_DAMAGE, where,
                     "update ring: its tail, %" PRIu64 ", is beyond its gate, %" PRIu64, tail,
                     gate);
    for (uint32_t i = 0; i <= mask; i++) {
        /* [UR-1] acquire: the gate is at least as new as the record */
        uint64_t seq = spw_load_acquire(&slot[i].seq);
        misplaced += seq != 0 && ((seq - 1) & mask) != i;
        beyond += seq != 0 && spw_pos_before(spw_load_relaxed(&feed->gate), seq);
    }
    if (misplaced)
        spw_fsck_say(audit->report, SPW_FSCK_DAMAGE, where,
                     "update ring: %u records lie where no record of that number can", misplaced);
    if (beyond)
        spw_fsck_say(audit->report, SPW_FSCK_DAMAGE, where,
                     "update ring: %u records are beyond its gate", beyond);
}

static void check_copying(const struct audit *audit, const char *where)
{
    const struct spw_geometry *geometry = audit->what->geometry;
    const spw_atomic64 *bits =
        (const void *)((const uint8_t *)audit->what->feed + audit->map.copying_off);
    uint64_t words = spw_claim_words(geometry), stray = 0, set = 0;
    for (uint64_t word = 0; word < words * geometry->workers; word++) {
        uint64_t value = spw_load_relaxed(&bits[word]);
        uint64_t first = word % words * 64;
        uint64_t valid =
            geometry->slots - first >= 64 ? UINT64_MAX : (1ull << (geometry->slots - first)) - 1;
        stray += (uint64_t)__builtin_popcountll(value & ~valid);
        set += (uint64_t)__builtin_popcountll(value & valid);
    }
    if (stray)
        spw_fsck_say(audit->report, SPW_FSCK_DAMAGE, where,
                     "%" PRIu64 " copying bits stand for slots that there aren't", stray);
    if (set && !audit->begun.alive)
        spw_fsck_say(audit->report, SPW_FSCK_NOTE, where,
                     "its worker died over copies from %" PRIu64
                     " slots: the next one lets go of them",
                     set);
}

static void check_counts(const struct audit *audit, const char *where)
{
    uint64_t resident = audit->entries[SPW_FILLING] + audit->entries[SPW_READY];
    if (audit->begun.alive)
        return; /* counted one by one, while they changed */
    if (resident > audit->what->geometry->capacity_chunks)
        spw_fsck_say(audit->report, SPW_FSCK_DAMAGE, where,
                     "%" PRIu64 " chunks are resident, more than the capacity of %u", resident,
                     audit->what->geometry->capacity_chunks);
    if (audit->entries[SPW_FILLING])
        spw_fsck_say(audit->report, SPW_FSCK_NOTE, where,
                     "%" PRIu64 " stores were under way: the next worker retires them",
                     audit->entries[SPW_FILLING]);
    if (audit->unreached)
        spw_fsck_say(audit->report, SPW_FSCK_NOTE, where,
                     "the index doesn't lead to %" PRIu64
                     " live chunks: the next worker makes it anew",
                     audit->unreached);
}

/* Wait a while for a worker that is coming up. */
static struct pulse await_settled(const struct spw_fsck_feed *what)
{
    struct pulse pulse = feel(what);
    for (uint32_t i = 0; i < LOOKS && pulse.alive && !pulse.settled; i++) {
        usleep(LOOK_US);
        pulse = feel(what);
    }
    return pulse;
}

static void conclude(struct audit *audit, const char *where)
{
    check_ring(audit, where);
    check_copying(audit, where);
    check_counts(audit, where);
    if (audit->faults > FAULTS_MAX)
        spw_fsck_say(audit->report, SPW_FSCK_NOTE, where,
                     "the rest of its slots was not looked at");
    for (uint32_t state = 0; state < SPW_STATE_COUNT; state++)
        audit->report->entries[state] += audit->entries[state];
    audit->report->moving += audit->moving;
    audit->report->judged++;
}

void spw_fsck_feed(const struct spw_fsck_feed *what, struct spw_fsck_report *report)
{
    struct audit audit;
    char where[40];
    enum outcome outcome = AGAIN;
    snprintf(where, sizeof where, "feed.%u", what->k);
    for (uint32_t i = 0; i < SCANS && outcome == AGAIN; i++) {
        memset(&audit, 0, sizeof audit);
        audit.what = what;
        audit.report = report;
        audit.begun = await_settled(what);
        spw_feed_map_init(what->geometry, &audit.map);
        spw_table_view_init(&audit.view, what->feed, &audit.map, what->geometry);
        if (audit.begun.alive && !audit.begun.settled)
            break;
        outcome = scan(&audit);
    }
    if (outcome == DONE)
        conclude(&audit, where);
    else
        spw_fsck_say(report, SPW_FSCK_NOTE, where,
                     outcome == STUCK ? "its worker stands still: not judged"
                                      : "its worker is coming up, or comes and goes: not judged");
}
