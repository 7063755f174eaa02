/*
 * What goes down to the tier below: which chunks, when, and how many may wait. Written: the shard's
 * entries of the tier below, through tier/shard_cold.h; own copying bits; counters cold_*.
 *
 *   through   a chunk goes down once it is READY and was seen often enough; whoever sees it later
 *             makes it go then
 *   back      a few of the oldest go ahead of eviction, the others when they are evicted
 *   marks     a queue that is full drops what comes, until half of it is left
 *   eviction  never waits for a write: what waits goes on from its slot, claimed, as long as the
 *             reserve bears it, else it is dropped
 *
 * Wanted = written + failed + dropped + open, in chunks, as long as no worker died with open ones.
 *
 * What others see if the worker dies
 *   down.put_begun   claims that the successor keeps or clears (tier/quarantine.h); below, what the
 *                    tier makes of a put that its process did not outlive
 *   down.put_ended   the chunk is below and the successor finds it there
 */
#include "shm/crash_point.h"
#include "tier/nvme.h"
#include "tier/shard_cold.h"
#include "tier/worker_cold.h"

#include <string.h>

#define AHEAD 8u /* of the oldest chunks go down before they are evicted */

static uint64_t generation_of(const struct spw_worker *worker, uint32_t space)
{
    return spw_load_relaxed(
        &worker->feed->space_generation[space]); /* only this worker writes it */
}

int spw_worker_down_init(struct spw_worker *worker)
{
    const struct spw_geometry *geometry = &worker->pool->geometry;
    const struct spw_cold_policy *policy = &worker->config.cold_policy;
    struct spw_worker_down *down = &worker->cold->down;
    uint32_t room = geometry->slots >> geometry->cell_shift;
    spw_queue_init(&down->queue, policy->queue_chunks, 0);
    spw_write_budget_init(&down->budget, policy->write_budget_bytes, worker->now_ns);
    down->lent_max = room > geometry->capacity_chunks ? (room - geometry->capacity_chunks) / 2 : 0;
    if (policy->admit_sightings <= 1)
        return 0;
    return spw_sightings_init(&down->sightings, geometry->slots + geometry->cold_chunks);
}

void spw_worker_down_fini(struct spw_worker *worker)
{
    spw_sightings_fini(&worker->cold->down.sightings);
}

/* ---- waiting --------------------------------------------------------------------------------- */

static uint32_t waiting(const struct spw_worker_down *down)
{
    return down->queue.count[SPW_COPY_STORE];
}

static void end(struct spw_worker *worker, struct spw_cold_job *job)
{
    struct spw_worker_cold *cold = worker->cold;
    if (job->claimed)
        spw_shard_unclaim(worker->shard, worker->config.k, job->at.slot);
    cold->down.lent -= job->lent;
    cold->slot[job->at.slot].down = NULL;
    spw_worker_cold_job_end(cold, job);
}

static void drop(struct spw_worker *worker, struct spw_cold_job *job, enum spw_worker_counter why)
{
    spw_queue_take(&worker->cold->down.queue, &job->item);
    spw_worker_count(worker, why, 1);
    end(worker, job);
}

/* Between full and half of it the queue goes on with what it did. */
static bool takes_more(struct spw_worker_down *down)
{
    if (waiting(down) >= down->queue.store_limit)
        down->dropping = true;
    else if (waiting(down) <= down->queue.store_limit / 2)
        down->dropping = false;
    return !down->dropping;
}

/* READY @slot, of which nothing is below nor on its way, is to go down. */
static struct spw_cold_job *want(struct spw_worker *worker, uint32_t slot)
{
    struct spw_worker_cold *cold = worker->cold;
    struct spw_cold_job *job = NULL;
    struct spw_entry_copy at;
    spw_worker_count(worker, SPW_WORKER_cold_wanted, 1);
    if (takes_more(&cold->down) && spw_shard_entry(worker->shard, slot, &at) == 0)
        job = spw_worker_cold_job(cold);
    if (!job) {
        spw_worker_count(worker, SPW_WORKER_cold_dropped_queue, 1);
        return NULL;
    }
    *job = (struct spw_cold_job){.at = at, .generation = generation_of(worker, at.space)};
    job->item.owner = job;
    job->item.nominal_bytes = at.chunk_bytes;
    cold->slot[slot].down = job;
    spw_queue_push(&cold->down.queue, SPW_COPY_STORE, &job->item, worker->now_ns);
    return job;
}

/* Its chunk is neither below nor on its way there. */
static bool is_above_only(const struct spw_worker *worker, uint32_t slot)
{
    return !worker->cold->slot[slot].down && spw_shard_cold_of(worker->shard, slot) < 0;
}

static bool admitted(const struct spw_worker *worker, uint64_t tag)
{
    const struct spw_worker_cold *cold = worker->cold;
    return cold->policy->admit_sightings <= 1 ||
           spw_sightings_of(&cold->down.sightings, tag) >= cold->policy->admit_sightings;
}

/* ---- what wants ------------------------------------------------------------------------------ */

static bool slot_is(const struct spw_worker *worker, uint32_t slot, uint32_t state,
                    struct spw_entry_copy *at)
{
    return spw_shard_entry(worker->shard, slot, at) == 0 && at->state == state;
}

/* A request used the chunk in live @slot. */
static void used(struct spw_worker *worker, uint32_t slot, uint64_t tag)
{
    struct spw_entry_copy at;
    if (worker->cold->policy->write_back || !is_above_only(worker, slot) || !admitted(worker, tag))
        return;
    if (slot_is(worker, slot, SPW_READY, &at))
        want(worker, slot);
    else
        worker->cold->slot[slot].parked = true;
}

static void sighted(struct spw_worker *worker, uint64_t tag)
{
    if (worker->cold->policy->admit_sightings > 1)
        spw_sightings_add(&worker->cold->down.sightings, tag);
}

void spw_worker_down_offered(struct spw_worker *worker, uint32_t slot, uint64_t tag, bool fresh)
{
    struct spw_cold_slot *at = &worker->cold->slot[slot];
    sighted(worker, tag);
    if (!fresh) {
        used(worker, slot, tag);
        return;
    }
    at->parked = false;
    at->sum_fill = 0;
    if (at->down && at->down->state == SPW_COLD_WAITS)
        drop(worker, at->down, SPW_WORKER_cold_dropped_gone);
}

void spw_worker_down_touched(struct spw_worker *worker, uint64_t tag)
{
    const struct spw_cold_handle *tier = &worker->cold->tier;
    int64_t slot = spw_shard_by_tag(worker->shard, tag);
    int64_t id = slot < 0 ? spw_shard_cold_find(worker->shard, tag)
                          : spw_shard_cold_of(worker->shard, (uint32_t)slot);
    if (slot < 0 && id < 0)
        return;
    sighted(worker, tag);
    if (id >= 0)
        tier->ops->touch(tier->cold, (uint32_t)id);
    else
        used(worker, (uint32_t)slot, tag);
}

static void make_sum(struct spw_worker *worker, const struct spw_entry_copy *at)
{
    const struct spw_cold_job job = {.at = *at};
    struct spw_cold_slot *slot = &worker->cold->slot[at->slot];
    slot->sum = spw_nvme_sum(spw_worker_cold_payload(worker, &job), at->chunk_bytes);
    slot->sum_fill = at->fill;
}

void spw_worker_down_ready(struct spw_worker *worker, uint32_t slot)
{
    struct spw_worker_cold *cold = worker->cold;
    struct spw_entry_copy at;
    bool parked = cold->slot[slot].parked;
    cold->slot[slot].parked = false;
    if (!slot_is(worker, slot, SPW_READY, &at) || !is_above_only(worker, slot))
        return;
    if (cold->policy->sum_at_store)
        make_sum(worker, &at);
    if (parked)
        spw_worker_count(worker, SPW_WORKER_cold_parked, 1);
    else if (cold->policy->write_back)
        return;
    if (parked || admitted(worker, at.digest[0]))
        want(worker, slot);
    else
        spw_worker_count(worker, SPW_WORKER_cold_not_admitted, 1);
}

static struct spw_cold_job *want_at_last(struct spw_worker *worker, uint32_t slot)
{
    struct spw_entry_copy at;
    if (!worker->cold->policy->write_back || worker->draining || !is_above_only(worker, slot) ||
        !slot_is(worker, slot, SPW_READY, &at))
        return NULL;
    if (admitted(worker, at.digest[0]))
        return want(worker, slot);
    spw_worker_count(worker, SPW_WORKER_cold_not_admitted, 1);
    return NULL;
}

void spw_worker_down_evicting(void *ctx, uint32_t slot)
{
    struct spw_worker *worker = ctx;
    struct spw_worker_down *down;
    struct spw_cold_job *job;
    if (!worker->cold)
        return;
    down = &worker->cold->down;
    job = worker->cold->slot[slot].down;
    if (!job)
        job = want_at_last(worker, slot);
    if (!job || job->lent)
        return;
    if (job->state == SPW_COLD_WAITS) {
        job->claimed = down->lent < spw_shard_usable_part(worker->shard, down->lent_max) &&
                       spw_shard_claim(worker->shard, worker->config.k, slot, job->at.fill) == 0;
        if (!job->claimed) {
            drop(worker, job, SPW_WORKER_cold_dropped_gone);
            return;
        }
    }
    job->lent = true;
    down->lent++;
}

/* Write-back: some of the oldest, once the shard is about to evict. */
static void go_ahead(struct spw_worker *worker)
{
    struct spw_worker_down *down = &worker->cold->down;
    struct spw_order_walk walk;
    struct spw_entry_copy at;
    if (!spw_shard_is_full_but(worker->shard, AHEAD))
        return;
    spw_shard_walk(worker->shard, &walk);
    for (uint32_t i = 0; i < AHEAD; i++) {
        uint32_t here = spw_order_next(&walk);
        if (here == SPW_NO_SLOT_ID)
            return;
        if (!is_above_only(worker, here) || spw_shard_entry(worker->shard, here, &at) < 0 ||
            !admitted(worker, at.digest[0]))
            continue;
        if (at.state == SPW_FILLING)
            worker->cold->slot[here].parked = true;
        else if (takes_more(down))
            want(worker, here);
    }
}

/* ---- writing --------------------------------------------------------------------------------- */

/* It may have been retired by other ways than eviction. */
static bool is_there(const struct spw_worker *worker, const struct spw_cold_job *job)
{
    struct spw_entry_copy at;
    return job->claimed ||
           (slot_is(worker, job->at.slot, SPW_READY, &at) && at.fill == job->at.fill);
}

static struct spw_cold_put put_of(const struct spw_worker *worker, struct spw_cold_job *job)
{
    const struct spw_cold_slot *slot = &worker->cold->slot[job->at.slot];
    const uint64_t *hash = worker->cold->space_hash[job->at.space];
    struct spw_cold_put put = {
        .name = {.space = {hash[0], hash[1]},
                 .group = job->at.group,
                 .rank = job->at.rank,
                 .key_bytes = job->at.key_bytes},
        .payload = spw_worker_cold_payload(worker, job),
        .bytes = job->at.chunk_bytes,
        .sum = slot->sum,
        .summed = slot->sum_fill == job->at.fill,
        .tag = job,
    };
    memcpy(put.name.key, job->at.key, sizeof put.name.key);
    return put;
}

/* 0, or why the tier doesn't take it; -EAGAIN: not now. */
static int put(struct spw_worker *worker, struct spw_cold_job *job)
{
    const struct spw_cold_handle *tier = &worker->cold->tier;
    bool claimed = job->claimed;
    if (!claimed && spw_shard_claim(worker->shard, worker->config.k, job->at.slot, job->at.fill))
        return -EAGAIN;
    job->claimed = true;
    struct spw_cold_put put = put_of(worker, job);
    int status = tier->ops->put(tier->cold, &put);
    if (status < 0 && !claimed) {
        spw_shard_unclaim(worker->shard, worker->config.k, job->at.slot);
        job->claimed = false;
    }
    return status;
}

static void write_or_drop(struct spw_worker *worker, struct spw_cold_job *job, int status)
{
    struct spw_worker_down *down = &worker->cold->down;
    if (status < 0) {
        drop(worker, job,
             status == -EIO      ? SPW_WORKER_cold_dropped_down
             : status == -EDQUOT ? SPW_WORKER_cold_dropped_share
                                 : SPW_WORKER_cold_dropped_full);
        return;
    }
    spw_queue_take(&down->queue, &job->item);
    spw_write_budget_spend(&down->budget, job->at.chunk_bytes, worker->now_ns);
    job->state = SPW_COLD_RUNS;
    down->runs++;
    SPW_CRASH_POINT("down.put_begun");
}

/* Reads go first: while some wait, one write at a time is under way. */
static bool reads_wait(const struct spw_worker *worker)
{
    return worker->cold->up.queue.count[SPW_COPY_STORE] != 0 && worker->cold->down.runs != 0;
}

uint32_t spw_worker_down_pump(struct spw_worker *worker)
{
    struct spw_worker_down *down = &worker->cold->down;
    struct spw_queue_item *item;
    uint32_t moved = 0;
    if (worker->draining)
        return 0;
    if (worker->cold->policy->write_back)
        go_ahead(worker);
    for (; !reads_wait(worker) && (item = spw_queue_next(&down->queue, SPW_COPY_STORE, 0));
         moved++) {
        struct spw_cold_job *job = item->owner;
        if (!is_there(worker, job)) {
            drop(worker, job, SPW_WORKER_cold_dropped_gone);
        } else if (!spw_write_budget_allows(&down->budget, job->at.chunk_bytes, worker->now_ns)) {
            drop(worker, job, SPW_WORKER_cold_dropped_budget);
        } else {
            int status = put(worker, job);
            if (status == -EAGAIN)
                break;
            write_or_drop(worker, job, status);
        }
    }
    return moved;
}

/* The tier has it under @id. A space that was reset meanwhile has no such chunk. */
static void is_below(struct spw_worker *worker, const struct spw_cold_job *job, uint32_t id)
{
    const struct spw_cold_handle *tier = &worker->cold->tier;
    const struct spw_entry_copy *at = &job->at;
    struct spw_chunk_key key = {.digest = {at->digest[0], at->digest[1]},
                                .space = at->space,
                                .group = at->group,
                                .key_bytes = at->key_bytes,
                                .key = at->key};
    bool old = job->generation != generation_of(worker, at->space);
    if (old || spw_shard_cold_add(worker->shard, id, &key, at->rank, at->chunk_bytes) < 0)
        tier->ops->drop(tier->cold, id);
    spw_worker_count(worker, old ? SPW_WORKER_cold_dropped_gone : SPW_WORKER_cold_written, 1);
    if (!old)
        spw_worker_count(worker, SPW_WORKER_cold_bytes_written, at->chunk_bytes);
}

void spw_worker_down_ended(struct spw_worker *worker, struct spw_cold_job *job, uint32_t id,
                           int status)
{
    worker->cold->down.runs--;
    SPW_CRASH_POINT("down.put_ended");
    if (status == 0)
        is_below(worker, job, id);
    else if (status == -ENOSPC)
        spw_worker_count(worker, SPW_WORKER_cold_dropped_full, 1);
    else if (status == -ESTALE) /* its space was reset */
        spw_worker_count(worker, SPW_WORKER_cold_dropped_gone, 1);
    else
        spw_worker_count(worker, SPW_WORKER_cold_write_failed, 1);
    job->state = SPW_COLD_LATE;
    if (status != -ETIMEDOUT)
        end(worker, job);
}

void spw_worker_down_released(struct spw_worker *worker, struct spw_cold_job *job)
{
    end(worker, job);
}

void spw_worker_down_drop_waiting(struct spw_worker *worker, uint32_t space)
{
    struct spw_queue_item *item = worker->cold->down.queue.first[SPW_COPY_STORE], *next;
    for (; item; item = next) {
        struct spw_cold_job *job = item->owner;
        next = item->after;
        if (spw_space_meant(space, job->at.space))
            drop(worker, job, SPW_WORKER_cold_dropped_gone);
    }
}
