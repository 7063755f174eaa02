/*
 * The worker's side of the tier below: opening and closing it, its events, chunks that it found for
 * spaces that open later, resets, what feed.k shows of it. Written: entries of the tier below through
 * tier/shard_cold.h; feed.tier[SPW_TIER_NVME], feed.tier_text, counters.
 *
 * A tier that can't be opened, or goes out of service, leaves a worker without one: nothing is COLD.
 *
 * What others see if the worker dies
 *   cold.reset_begun   the reset is untaken and unanswered; what of it the medium knows stands
 */
#include <stdlib.h>
#include <string.h>

#include "shm/crash_point.h"
#include "shm/doorbell.h"
#include "shm/text.h"
#include "tier/shard_cold.h"
#include "tier/space_hash.h"
#include "tier/worker_cold.h"

#define EVENTS_A_POLL 32
#define POLLS_A_PASS  4
#define CLAIM_WORDS   1024u /* of the bitmap of ids, a pass */
#define CLAIMS_A_PASS 256u

static struct spw_tier_record *shown(const struct spw_worker *worker)
{
    return &worker->feed->tier[SPW_TIER_NVME];
}

uint8_t *spw_worker_cold_payload(const struct spw_worker *worker, const struct spw_cold_job *job)
{
    const struct spw_pool *pool = worker->pool;
    return pool->data[worker->config.k] +
           spw_slot_off(&pool->geometry, job->at.slot, job->at.chunk_bytes);
}

/* ---- jobs ------------------------------------------------------------------------------------ */

struct spw_cold_job *spw_worker_cold_job(struct spw_worker_cold *cold)
{
    struct spw_cold_job *job = cold->idle;
    if (!job)
        return malloc(sizeof *job);
    cold->idle = job->after;
    return job;
}

void spw_worker_cold_job_end(struct spw_worker_cold *cold, struct spw_cold_job *job)
{
    job->after = cold->idle;
    cold->idle = job;
}

static void free_jobs(struct spw_worker *worker)
{
    struct spw_worker_cold *cold = worker->cold;
    for (uint32_t slot = 0; slot < worker->pool->geometry.slots; slot++) {
        free(cold->slot[slot].down);
        free(cold->slot[slot].up);
    }
    for (struct spw_cold_job *job = cold->idle, *next; job; job = next) {
        next = job->after;
        free(job);
    }
}

/* ---- chunks that the tier found -------------------------------------------------------------- */

static bool is_unclaimed(const struct spw_worker_cold *cold, uint32_t id)
{
    return cold->unclaimed[id / 64] >> id % 64 & 1;
}

static void set_unclaimed(struct spw_worker_cold *cold, uint32_t id, bool on)
{
    if (is_unclaimed(cold, id) == on)
        return;
    cold->unclaimed[id / 64] ^= 1ull << id % 64;
    cold->unclaimed_count += on ? 1u : -1u;
}

/* The open space of this hash, or SPW_SPACES_MAX. */
static uint32_t space_of(const struct spw_worker_cold *cold, const uint64_t hash[2])
{
    uint32_t space = 0;
    while (space < SPW_SPACES_MAX &&
           !(cold->space_known[space] &&
             memcmp(cold->space_hash[space], hash, sizeof cold->space_hash[space]) == 0))
        space++;
    return space;
}

/* The medium says so; is it a part that this pool can have? */
static bool makes_sense(const struct spw_worker *worker, uint32_t space,
                        const struct spw_cold_name *name, uint64_t bytes)
{
    const struct spw_space_record *record = spw_worker_record_of(worker, space);
    return record && name->group < record->groups && name->group < SPW_GROUP_COUNT_MAX &&
           name->rank < record->ranks && name->key_bytes >= 1 &&
           name->key_bytes <= SPW_KEY_BYTES_MAX &&
           bytes == record->group[name->group].chunk_bytes &&
           bytes <= worker->pool->geometry.slot_bytes;
}

/* Take unclaimed @id for its space, if that is open. */
static bool claim(struct spw_worker *worker, uint32_t id)
{
    struct spw_worker_cold *cold = worker->cold;
    struct spw_cold_name name;
    uint64_t bytes;
    if (cold->tier.ops->name(cold->tier.cold, id, &name, &bytes) < 0) {
        set_unclaimed(cold, id, false);
        return true;
    }
    uint32_t space = space_of(cold, name.space);
    if (space == SPW_SPACES_MAX)
        return false;
    struct spw_chunk_key key = {
        .space = space, .group = name.group, .key_bytes = name.key_bytes, .key = name.key};
    bool taken = makes_sense(worker, space, &name, bytes);
    if (taken) {
        spw_chunk_digest(space, name.group, name.key, name.key_bytes, key.digest);
        taken = spw_shard_cold_add(worker->shard, id, &key, name.rank, bytes) == 0;
    }
    set_unclaimed(cold, id, false);
    if (!taken)
        cold->tier.ops->drop(cold->tier.cold, id);
    return true;
}

/* The tier is told of a space's shares when they are not what it knows. */
static void look_at_shares(struct spw_worker *worker, uint32_t space)
{
    struct spw_worker_cold *cold = worker->cold;
    /* relaxed: they say nothing of anything else */
    uint64_t shares = spw_load_relaxed(&worker->pool->ctl->space[space].shares);
    struct spw_share share = {SPW_SHARES_GUARANTEED(shares), SPW_SHARES_LARGEST(shares)};
    if (shares == cold->space_shares[space])
        return;
    cold->space_shares[space] = shares;
    cold->tier.ops->share(cold->tier.cold, cold->space_hash[space], &share);
}

/* Spaces opened since the last look. A space that is open never changes, but for its shares. */
static void look_at_spaces(struct spw_worker *worker)
{
    struct spw_worker_cold *cold = worker->cold;
    for (uint32_t space = 0; space < SPW_SPACES_MAX; space++) {
        const struct spw_space_record *record =
            cold->space_known[space] ? NULL : spw_worker_record_of(worker, space);
        if (record) {
            spw_space_hash(record, cold->space_hash[space]);
            cold->space_known[space] = true;
            cold->claiming = true;
            cold->claim_from = 0;
        }
        if (cold->space_known[space])
            look_at_shares(worker, space);
    }
}

/* A bounded piece of the walk over all that is unclaimed. */
static uint32_t claim_some(struct spw_worker *worker)
{
    struct spw_worker_cold *cold = worker->cold;
    uint32_t words = (worker->pool->geometry.cold_chunks + 63) / 64;
    uint32_t until = cold->claim_from + CLAIM_WORDS, done = 0;
    if (cold->unclaimed_count == 0)
        cold->claiming = false;
    if (!cold->claiming)
        return 0;
    for (; cold->claim_from < words && cold->claim_from < until && done < CLAIMS_A_PASS;
         cold->claim_from++)
        for (uint64_t left = cold->unclaimed[cold->claim_from]; left != 0; left &= left - 1)
            done += claim(worker, cold->claim_from * 64 + (uint32_t)__builtin_ctzll(left));
    cold->claiming = cold->claim_from < words;
    return done + cold->claiming;
}

/* ---- events ---------------------------------------------------------------------------------- */

static void gone(void *ctx, uint32_t id, enum spw_cold_why why)
{
    struct spw_worker *worker = ctx;
    enum spw_worker_counter counter = why == SPW_COLD_EVICTED   ? SPW_WORKER_cold_evicted
                                      : why == SPW_COLD_CORRUPT ? SPW_WORKER_cold_corrupt
                                                                : SPW_WORKER_cold_lost;
    spw_worker_count(worker, counter, 1);
    if (is_unclaimed(worker->cold, id))
        set_unclaimed(worker->cold, id, false);
    else
        spw_worker_up_gone(worker, id);
}

void spw_worker_cold_demote(void *ctx, uint32_t id)
{
    const struct spw_worker *worker = ctx;
    if (worker->cold && worker->cold->tier.ops)
        worker->cold->tier.ops->demote(worker->cold->tier.cold, id);
}

/* From the tier's threads. */
static void wake(void *ctx)
{
    struct spw_worker_cold *cold = ctx;
    spw_fence_full(); /* [WT-1] full fence: what the tier has done before the word */
    spw_store_relaxed(&cold->wake, 1);
    spw_doorbell_ring(&cold->wake, cold->asleep);
}

static void found(struct spw_worker *worker, uint32_t id)
{
    spw_worker_count(worker, SPW_WORKER_cold_found, 1);
    set_unclaimed(worker->cold, id, true);
    claim(worker, id);
}

/* The tag of a reset: the client's number below how many there were. */
static void reset_ended(struct spw_worker *worker, uint64_t tag, int status)
{
    struct spw_worker_client *client = &worker->client[tag & 0xff];
    if (client->below_reset != tag)
        return; /* its client is gone */
    client->below_reset = 0;
    client->below_status = status;
    client->below_over = true;
}

static void take_event(struct spw_worker *worker, const struct spw_cold_event *event)
{
    struct spw_cold_job *job = event->tag;
    switch (event->kind) {
    case SPW_COLD_PUT:
        spw_worker_down_ended(worker, job, event->id, event->status);
        break;
    case SPW_COLD_GET:
        spw_worker_up_ended(worker, job, event->status);
        break;
    case SPW_COLD_RELEASED:
        (job->up ? spw_worker_up_released : spw_worker_down_released)(worker, job);
        break;
    case SPW_COLD_FOUND:
        found(worker, event->id);
        break;
    case SPW_COLD_RESET:
        reset_ended(worker, (uintptr_t)event->tag, event->status);
        break;
    }
}

static uint32_t poll_events(struct spw_worker *worker, bool *out_more)
{
    const struct spw_cold_handle *tier = &worker->cold->tier;
    struct spw_cold_event event[EVENTS_A_POLL];
    uint32_t total = 0;
    int count = EVENTS_A_POLL;
    if (spw_load_relaxed(&worker->cold->wake)) {
        spw_store_relaxed(&worker->cold->wake, 0);
        spw_fence_full(); /* [WT-1] full fence: the word before what the tier has done */
    }
    for (int i = 0; i < POLLS_A_PASS && count == EVENTS_A_POLL; i++) {
        count = tier->ops->poll(tier->cold, worker->now_ns, event, EVENTS_A_POLL);
        for (int e = 0; e < count; e++)
            take_event(worker, &event[e]);
        total += (uint32_t)count;
    }
    *out_more = count == EVENTS_A_POLL;
    return total;
}

/* ---- what is shown --------------------------------------------------------------------------- */

static void count_change(struct spw_worker *worker, uint32_t state)
{
    bool was_down = worker->cold->state == SPW_TIER_DOWN;
    bool is_down = state == SPW_TIER_DOWN;
    worker->cold->state = state;
    if (was_down != is_down)
        spw_worker_count(worker, is_down ? SPW_WORKER_tier_down : SPW_WORKER_tier_up, 1);
}

static void show(struct spw_worker *worker)
{
    const struct spw_cold_handle *tier = &worker->cold->tier;
    struct spw_tier_record *record = shown(worker);
    struct spw_cold_gauge gauge;
    tier->ops->gauge(tier->cold, &gauge);
    spw_store_relaxed(&record->capacity_bytes, gauge.capacity_bytes);
    spw_store_relaxed(&record->used_bytes, gauge.used_bytes);
    spw_store_relaxed(&record->entries, gauge.entries);
    spw_store_relaxed(&record->leased, gauge.leased);
    spw_store_relaxed(&record->evictable, gauge.evictable);
    spw_store_relaxed(&record->mode, gauge.mode);
    spw_worker_count(worker, SPW_WORKER_cold_unlisted, gauge.unlisted - worker->cold->unlisted);
    worker->cold->unlisted = gauge.unlisted;
    spw_store_relaxed(&record->state, gauge.state);
    if (gauge.state != worker->cold->state || worker->tick_ns != worker->cold->shown_tick_ns)
        spw_text_store(worker->feed->tier_text, SPW_TIER_TEXT_WORDS, gauge.text);
    worker->cold->shown_tick_ns = worker->tick_ns;
    count_change(worker, gauge.state);
}

static void show_none(struct spw_worker *worker, uint32_t state, const char *text)
{
    struct spw_tier_record *record = shown(worker);
    spw_store_relaxed(&record->used_bytes, 0);
    spw_store_relaxed(&record->entries, 0);
    spw_store_relaxed(&record->leased, 0);
    spw_store_relaxed(&record->evictable, 0);
    spw_store_relaxed(&record->state, state);
    spw_text_store(worker->feed->tier_text, SPW_TIER_TEXT_WORDS, text);
}

/* ---- a pass ---------------------------------------------------------------------------------- */

uint32_t spw_worker_cold_pass(struct spw_worker *worker, bool *out_more)
{
    look_at_spaces(worker);
    uint32_t done = poll_events(worker, out_more);
    done += claim_some(worker);
    *out_more |= worker->cold->claiming;
    done += spw_worker_up_expire(worker);
    done += spw_worker_up_pump(worker);
    done += spw_worker_down_pump(worker);
    show(worker);
    return done;
}

uint64_t spw_worker_cold_due_ns(struct spw_worker *worker)
{
    const struct spw_cold_handle *tier = &worker->cold->tier;
    uint64_t due = tier->ops->due_ns(tier->cold, worker->now_ns);
    uint64_t let_go = spw_worker_up_due_ns(worker->cold);
    return let_go < due ? let_go : due;
}

const spw_atomic32 *spw_worker_cold_word(const struct spw_worker *worker)
{
    return &worker->cold->wake;
}

bool spw_worker_cold_left(const struct spw_worker *worker)
{
    return worker->cold->down.runs != 0 || worker->cold->up.runs != 0;
}

void spw_worker_cold_end_waiting(struct spw_worker *worker)
{
    spw_worker_up_drop_waiting(worker);
    spw_worker_down_drop_waiting(worker, SPW_ALL_SPACES);
}

/* ---- reset ----------------------------------------------------------------------------------- */

static void forget(void *ctx, uint32_t id)
{
    struct spw_worker_cold *cold = ctx;
    cold->tier.ops->drop(cold->tier.cold, id);
}

int spw_worker_cold_reset(struct spw_worker *worker, uint32_t c, uint32_t space)
{
    struct spw_worker_cold *cold = worker->cold;
    struct spw_worker_client *client = &worker->client[c];
    look_at_spaces(worker);
    client->below_reset = ++cold->reset_nonce << 8 | c;
    client->below_unopened = cold->unclaimed_count;
    int status = cold->tier.ops->reset(cold->tier.cold,
                                       space == SPW_ALL_SPACES ? NULL : cold->space_hash[space],
                                       (void *)(uintptr_t)client->below_reset);
    SPW_CRASH_POINT("cold.reset_begun");
    if (status < 0)
        client->below_reset = 0;
    spw_worker_down_drop_waiting(worker, space);
    spw_worker_up_reset(worker, space);
    spw_shard_cold_each_of_space(worker->shard, space, forget, cold); /* what `gone` left out */
    return status;
}

/* ---- open and close -------------------------------------------------------------------------- */

static int make_parts(struct spw_worker *worker)
{
    const struct spw_geometry *geometry = &worker->pool->geometry;
    struct spw_worker_cold *cold = calloc(1, sizeof *cold);
    if (!cold)
        return -ENOMEM;
    worker->cold = cold;
    cold->policy = &worker->config.cold_policy;
    cold->asleep = &worker->feed->asleep;
    cold->state = SPW_TIER_SCANNING;
    cold->slot = calloc(geometry->slots, sizeof *cold->slot);
    cold->unclaimed = calloc((geometry->cold_chunks + 63) / 64, sizeof *cold->unclaimed);
    if (!cold->slot || !cold->unclaimed || spw_worker_down_init(worker) < 0)
        return -ENOMEM;
    spw_worker_up_init(worker);
    return 0;
}

static void free_parts(struct spw_worker *worker)
{
    struct spw_worker_cold *cold = worker->cold;
    if (!cold)
        return;
    if (cold->slot)
        free_jobs(worker);
    spw_worker_down_fini(worker);
    free(cold->unclaimed);
    free(cold->slot);
    free(cold);
    worker->cold = NULL;
}

int spw_worker_cold_open(struct spw_worker *worker, struct spw_error *err)
{
    struct spw_worker_config *config = &worker->config;
    const struct spw_cold_listener listener = {.gone = gone, .ctx = worker};
    struct spw_error why = {0};
    if (!config->open_cold) {
        show_none(worker, SPW_TIER_NONE, "");
        return 0;
    }
    if (make_parts(worker) < 0) {
        free_parts(worker);
        return spw_fail(err, -ENOMEM, "no memory for the tier below");
    }
    int status = config->open_cold(config->cold_ctx, &listener, wake, worker->cold,
                                   &worker->cold->tier, &why);
    if (status < 0) {
        free_parts(worker);
        show_none(worker, SPW_TIER_DOWN, why.text);
        spw_worker_count(worker, SPW_WORKER_tier_down, 1);
    }
    return 0;
}

/* A tier that still has transfers keeps what they need; so does whoever wakes us for them. */
static int close_tier(struct spw_worker *worker, uint64_t limit_ns)
{
    struct spw_cold_handle *tier = &worker->cold->tier;
    int status = tier->ops ? tier->ops->close(tier->cold, limit_ns) : 0;
    tier->ops = NULL;
    return status;
}

int spw_worker_cold_stop(struct spw_worker *worker, uint64_t limit_ns)
{
    int status = close_tier(worker, limit_ns);
    if (status == 0)
        free_parts(worker);
    return status;
}

void spw_worker_cold_close(struct spw_worker *worker)
{
    if (!worker->cold)
        return;
    if (close_tier(worker, 0) == 0)
        free_parts(worker);
}
