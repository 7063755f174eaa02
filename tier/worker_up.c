/*
 * Promotions: chunks that come up from the tier below because a lookup needs them. Written: slots of
 * the shard, through tier/shard_cold.h; feed.promotions and the places of what waits in it; counters
 * promote_*.
 *
 *   one read  a chunk on its way is FILLING: whoever asks again joins. A read that fails removes the
 *             chunk, so that nobody asks a second time
 *   order     awaited first, then age; what waits and isn't awaited goes next after the limit that
 *             stores have (tier/queue.h)
 *   no slot   where chunks may go and their slots only wait for steps that began before, the command
 *             stays in its lane and is taken from there on, for SLOT_WAIT_NS at most; then, and where
 *             nothing may go, the chunk is refused: MISS. Other lanes go on; this client's commands
 *             wait behind it, as any behind one that stays. After a wait in which no promotion got a
 *             slot nobody waits until one has, or for DRY_NS
 *   held      until it was loaded once, or nobody has marked it for hold_ns since it was asked for,
 *             came, or was last seen marked
 *
 * What others see if the worker dies
 *   up.slot_given    a FILLING slot: the successor retires it, and puts it aside while transfers of
 *                    this process may go on (tier/quarantine.h). The command is untaken, as is one that
 *                    waits for slots, having got some: the successor drops it, the client asks anew
 *   up.read_begun    the same
 *   up.read_ended    the same
 *   up.ready         READY; the successor has it among the others
 */
#include "shm/crash_point.h"
#include "tier/shard_cold.h"
#include "tier/worker_cold.h"

#include <string.h>

#define RATE_GUESSED  1000000000u /* until a first read has ended */
#define EXPIRE_BUDGET 64u
#define PROMOTE_MAX   64u /* chunks a command: its answer has a bit for each */
/* Some times what a scheduler is inside a step for; less than what computing a chunk takes. */
#define SLOT_WAIT_NS 5000000u
/* After a wait in vain: a client that stands in a step costs its lane a twentieth of the time. */
#define DRY_NS (20u * SLOT_WAIT_NS)

/* ---- the stream ------------------------------------------------------------------------------ */

static struct spw_stream *stream_of(const struct spw_worker *worker)
{
    return &worker->feed->promotions;
}

static uint64_t bytes_done(const struct spw_worker *worker)
{
    return spw_load_relaxed(&stream_of(worker)->bytes_done); /* only this worker writes it */
}

void spw_worker_up_init(struct spw_worker *worker)
{
    struct spw_stream *stream = stream_of(worker);
    spw_queue_init(&worker->cold->up.queue, UINT32_MAX, worker->config.overtake_limit_ns);
    /* what a predecessor had begun is over; its rate is a better guess than none, and any is better than
     * that nobody begins to wait for lack of one */
    spw_store_relaxed(&stream->bytes_done, spw_load_relaxed(&stream->bytes_queued));
    if (spw_load_relaxed(&stream->rate_bytes_per_s) == 0)
        spw_store_relaxed(&stream->rate_bytes_per_s, RATE_GUESSED);
}

/* What a part counts in a stream: ETAs are made with it. */
static uint64_t nominal_bytes(const struct spw_worker *worker, const struct spw_entry_copy *at)
{
    const struct spw_space_record *record = spw_worker_record_of(worker, at->space);
    uint64_t nominal =
        record && at->group < SPW_GROUP_COUNT_MAX ? record->group[at->group].nominal_bytes : 0;
    return nominal ? nominal : at->chunk_bytes;
}

static void stream_push(struct spw_worker *worker, struct spw_cold_job *job)
{
    struct spw_stream *stream = stream_of(worker);
    struct spw_worker_up *up = &worker->cold->up;
    if (spw_load_relaxed(&stream->bytes_queued) == bytes_done(worker)) {
        up->stream.since_ns = worker->now_ns;
        spw_store_relaxed(&stream->progress_ns, worker->now_ns);
    }
    spw_add_own(&stream->bytes_queued, job->item.nominal_bytes);
    spw_shard_place(worker->shard, job->at.slot,
                    SPW_PLACE_PROMOTION | spw_load_relaxed(&stream->bytes_queued));
    spw_queue_push(&up->queue, SPW_COPY_STORE, &job->item, worker->now_ns);
    up->stream.order_stale = true;
}

static void stream_drop(struct spw_worker *worker, const struct spw_cold_job *job)
{
    spw_add_own(&stream_of(worker)->bytes_done, job->item.nominal_bytes);
    worker->cold->up.stream.order_stale = true;
}

static void stream_end(struct spw_worker *worker, const struct spw_cold_job *job, int status)
{
    struct spw_worker_up *up = &worker->cold->up;
    up->run_bytes -= job->item.nominal_bytes;
    spw_worker_stream_progress(worker, &up->stream, stream_of(worker), job->item.nominal_bytes,
                               status);
}

static bool is_awaited(void *ctx, const struct spw_queue_item *item)
{
    const struct spw_cold_job *job = item->owner;
    return spw_worker_is_awaited(ctx, job->at.slot);
}

struct placing {
    struct spw_worker *worker;
    uint64_t up_to, awaited;
};

static void place_next(void *ctx, struct spw_queue_item *item)
{
    struct placing *placing = ctx;
    struct spw_cold_job *job = item->owner;
    placing->up_to += item->nominal_bytes;
    if (item->awaited)
        placing->awaited = placing->up_to;
    if (job->at.place_bytes == placing->up_to)
        return;
    job->at.place_bytes = placing->up_to;
    spw_shard_place(placing->worker->shard, job->at.slot, SPW_PLACE_PROMOTION | placing->up_to);
}

static void order(struct spw_worker *worker)
{
    struct spw_worker_up *up = &worker->cold->up;
    struct spw_worker_served served;
    if (!spw_worker_look_at_marks(worker, SPW_MARKS_PROMOTIONS, &served) && !up->stream.order_stale)
        return;
    spw_queue_mark(&up->queue, is_awaited, &served);
    struct placing placing = {.worker = worker, .up_to = bytes_done(worker) + up->run_bytes};
    placing.awaited = placing.up_to;
    spw_queue_walk(&up->queue, worker->now_ns, place_next, &placing);
    spw_store_relaxed(&stream_of(worker)->bytes_awaited, placing.awaited);
    up->stream.order_stale = false;
}

/* ---- those that somebody may wait for -------------------------------------------------------- */

static void unlist(struct spw_worker_up *up, struct spw_cold_job *job)
{
    *(job->before ? &job->before->after : &up->first) = job->after;
    *(job->after ? &job->after->before : &up->last) = job->before;
    job->before = job->after = NULL;
}

/* Holds are equally long, so the newest is due last. */
static void list(struct spw_worker *worker, struct spw_cold_job *job)
{
    struct spw_worker_up *up = &worker->cold->up;
    job->due_ns = worker->now_ns + worker->cold->policy->hold_ns;
    job->before = up->last;
    job->after = NULL;
    *(up->last ? &up->last->after : &up->first) = job;
    up->last = job;
}

static void hold_on(struct spw_worker *worker, struct spw_cold_job *job)
{
    unlist(&worker->cold->up, job);
    list(worker, job);
}

/* Its slot is no business of promotions any more. */
static void end(struct spw_worker *worker, struct spw_cold_job *job)
{
    struct spw_worker_cold *cold = worker->cold;
    unlist(&cold->up, job);
    cold->slot[job->at.slot].up = NULL;
    spw_worker_cold_job_end(cold, job);
}

/* Before its read began: COLD again, or what else there is below. */
static void give_up(struct spw_worker *worker, struct spw_cold_job *job,
                    enum spw_worker_counter why)
{
    spw_queue_take(&worker->cold->up.queue, &job->item);
    stream_drop(worker, job);
    spw_shard_retire(worker->shard, job->at.slot);
    spw_worker_count(worker, why, 1);
    end(worker, job);
}

uint32_t spw_worker_up_expire(struct spw_worker *worker)
{
    struct spw_worker_up *up = &worker->cold->up;
    struct spw_worker_served served;
    uint32_t done = 0, left = EXPIRE_BUDGET;
    if (!up->first || up->first->due_ns > worker->now_ns)
        return 0;
    spw_worker_gather_served(worker, &served);
    for (; left != 0 && up->first && up->first->due_ns <= worker->now_ns; left--) {
        struct spw_cold_job *job = up->first;
        if (job->state == SPW_COLD_RUNS || spw_worker_is_awaited(&served, job->at.slot)) {
            hold_on(worker, job);
            continue;
        }
        done++;
        if (job->state == SPW_COLD_WAITS) {
            give_up(worker, job, SPW_WORKER_promote_unwanted);
            continue;
        }
        spw_worker_count(worker, SPW_WORKER_promote_unread, 1);
        spw_shard_release(worker->shard, job->at.slot);
        end(worker, job);
    }
    return done;
}

void spw_worker_up_loaded(struct spw_worker *worker, uint32_t slot)
{
    struct spw_cold_job *job = worker->cold->slot[slot].up;
    if (!job || job->state != SPW_COLD_HELD)
        return;
    spw_shard_release(worker->shard, slot);
    end(worker, job);
}

/* ---- asking ---------------------------------------------------------------------------------- */

static uint32_t held_max(const struct spw_worker *worker)
{
    uint64_t share = (uint64_t)worker->pool->geometry.capacity_chunks *
                     worker->cold->policy->promote_percent / 100;
    return spw_shard_usable_part(worker->shard, share != 0 ? (uint32_t)share : 1);
}

enum promise { COMES, WONT_COME, NOT_YET };

static enum promise join(struct spw_worker *worker, uint64_t tag)
{
    int64_t slot = spw_shard_by_tag(worker->shard, tag);
    if (slot < 0) {
        spw_worker_count(worker, SPW_WORKER_promote_refused_gone, 1);
        return WONT_COME;
    }
    struct spw_cold_job *job = worker->cold->slot[slot].up;
    if (job && job->state != SPW_COLD_LATE)
        hold_on(worker, job);
    spw_worker_count(worker, SPW_WORKER_promote_joined, 1);
    return COMES;
}

static enum promise refuse(struct spw_worker *worker, enum spw_worker_counter why)
{
    spw_worker_count(worker, why, 1);
    return WONT_COME;
}

/* A command that stays for as long as the limit would have its client fenced. */
static uint64_t slot_wait_ns(const struct spw_worker *worker)
{
    uint64_t most = worker->config.fence_limit_ns / 4;
    return most < SLOT_WAIT_NS ? most : SLOT_WAIT_NS;
}

/* Slots are on their way: wait for them, unless that has lasted too long. */
static enum promise wait_for_slot(struct spw_worker *worker, struct spw_worker_promoting *promoting)
{
    struct spw_worker_up *up = &worker->cold->up;
    uint64_t until_ns = worker->now_ns + slot_wait_ns(worker);
    if (up->dry_until_ns == 0 || worker->now_ns >= up->dry_until_ns + DRY_NS)
        up->dry_until_ns = until_ns;
    if (worker->now_ns >= up->dry_until_ns ||
        (promoting->until_ns != 0 && worker->now_ns >= promoting->until_ns))
        return refuse(worker, SPW_WORKER_promote_refused_no_slot);
    if (promoting->until_ns == 0)
        promoting->until_ns = until_ns;
    return NOT_YET;
}

static void begin(struct spw_worker *worker, struct spw_cold_job *job, uint32_t id, uint32_t slot)
{
    struct spw_worker_cold *cold = worker->cold;
    *job = (struct spw_cold_job){.up = true, .item.owner = job};
    spw_shard_entry(worker->shard, slot, &job->at);
    job->item.nominal_bytes = nominal_bytes(worker, &job->at);
    cold->slot[slot].up = job;
    cold->slot[slot].parked = false;
    cold->slot[slot].sum_fill = 0;
    list(worker, job);
    stream_push(worker, job);
    cold->tier.ops->touch(cold->tier.cold, id);
}

static enum promise promote(struct spw_worker *worker, struct spw_worker_promoting *promoting,
                            uint64_t tag)
{
    struct spw_worker_cold *cold = worker->cold;
    uint32_t slot;
    int64_t id = spw_shard_cold_find(worker->shard, tag);
    if (id < 0)
        return join(worker, tag);
    if (spw_shard_held(worker->shard) >= held_max(worker))
        return refuse(worker, SPW_WORKER_promote_refused_share);
    struct spw_cold_job *job = spw_worker_cold_job(cold);
    if (!job)
        return refuse(worker, SPW_WORKER_promote_refused_no_slot);
    enum spw_reserve_result result =
        spw_shard_promote(worker->shard, (uint32_t)id, held_max(worker), &slot);
    if (result != SPW_RESERVED) {
        spw_worker_cold_job_end(cold, job);
        return result == SPW_SLOT_COMES ? wait_for_slot(worker, promoting)
                                        : refuse(worker, SPW_WORKER_promote_refused_no_slot);
    }
    SPW_CRASH_POINT("up.slot_given");
    cold->up.dry_until_ns = 0;
    begin(worker, job, (uint32_t)id, slot);
    return COMES;
}

/* From where the last pass left it. False: not all of it, yet. */
static bool promote_all(struct spw_worker *worker, const struct spw_worker_taking *taking)
{
    struct spw_worker_promoting *promoting = &taking->client->promoting;
    for (; promoting->next < taking->head.count; promoting->next++) {
        uint64_t tag; /* seven fill a slot whole */
        memcpy(&tag, taking->body + promoting->next * sizeof(tag), sizeof(tag));
        enum promise promise = worker->cold ? promote(worker, promoting, tag) : WONT_COME;
        if (promise == NOT_YET)
            return false;
        spw_worker_count(worker, SPW_WORKER_promote_asked, worker->cold != NULL);
        if (promise == WONT_COME)
            promoting->refused |= 1ull << promoting->next;
    }
    return true;
}

/* No tier: nothing is COLD, so nothing will come. */
static bool take(struct spw_worker *worker, struct spw_worker_taking *taking)
{
    uint32_t count = taking->head.count;
    taking->answer.mask = UINT64_MAX;
    if (spw_worker_fenced(worker, taking))
        return spw_worker_refuse(taking, -ESTALE);
    if (count == 0 || count > PROMOTE_MAX ||
        taking->head.body_slots != SPW_SLOTS_FOR(count, SPW_TOUCHES_PER_SLOT) ||
        !spw_worker_record_of(worker, taking->head.space))
        return spw_worker_refuse_bad(worker, taking);
    bool all = promote_all(worker, taking);
    taking->answer.mask = taking->client->promoting.refused;
    taking->answer.count = (uint16_t)count;
    spw_shard_flush(worker->shard);
    return all;
}

bool spw_worker_take_promote(struct spw_worker *worker, struct spw_worker_taking *taking)
{
    bool taken = take(worker, taking);
    if (taken)
        taking->client->promoting = (struct spw_worker_promoting){0};
    return taken;
}

/* ---- reading --------------------------------------------------------------------------------- */

/* No bytes came: MISS for all at once. */
static void fail(struct spw_worker *worker, struct spw_cold_job *job)
{
    if (!job->voided)
        spw_shard_retire(worker->shard, job->at.slot);
    spw_worker_count(worker, SPW_WORKER_promote_failed, 1);
}

/* The tier refuses: the slot goes, and the entry, too, if the tier knows no such chunk. */
static void refused(struct spw_worker *worker, struct spw_cold_job *job, int64_t id, int status)
{
    stream_drop(worker, job);
    fail(worker, job);
    if (id >= 0 && status == -ENOENT)
        spw_shard_cold_remove(worker->shard, (uint32_t)id);
    end(worker, job);
}

/* 1 it is being read, or will not be; 0 not now. */
static uint32_t read_next(struct spw_worker *worker, struct spw_cold_job *job)
{
    struct spw_worker_cold *cold = worker->cold;
    int64_t id = spw_shard_cold_of(worker->shard, job->at.slot);
    int status = -ENOENT;
    job->state = SPW_COLD_RUNS; /* what goes inside the call doesn't end it */
    spw_shard_copy_begin(worker->shard, job->at.slot);
    if (id >= 0)
        status =
            cold->tier.ops->get(cold->tier.cold, (uint32_t)id, spw_worker_cold_payload(worker, job),
                                job->at.chunk_bytes, job);
    if (status < 0)
        spw_shard_copy_end(worker->shard, job->at.slot);
    if (status == -EAGAIN) {
        job->state = SPW_COLD_WAITS;
        return 0;
    }
    spw_queue_take(&cold->up.queue, &job->item);
    if (status < 0) {
        refused(worker, job, id, status);
        return 1;
    }
    cold->up.runs++;
    cold->up.run_bytes += job->item.nominal_bytes;
    SPW_CRASH_POINT("up.read_begun");
    return 1;
}

uint32_t spw_worker_up_pump(struct spw_worker *worker)
{
    struct spw_worker_up *up = &worker->cold->up;
    struct spw_queue_item *item;
    uint32_t moved = 0;
    if (worker->draining || up->queue.count[SPW_COPY_STORE] == 0)
        return 0;
    order(worker);
    while ((item = spw_queue_next(&up->queue, SPW_COPY_STORE, worker->now_ns)) &&
           read_next(worker, item->owner))
        moved++;
    return moved;
}

void spw_worker_up_ended(struct spw_worker *worker, struct spw_cold_job *job, int status)
{
    struct spw_worker_cold *cold = worker->cold;
    cold->up.runs--;
    stream_end(worker, job, status);
    SPW_CRASH_POINT("up.read_ended");
    if (status == -ETIMEDOUT) { /* the read may still write there */
        fail(worker, job);
        job->state = SPW_COLD_LATE;
        unlist(&cold->up, job);
        return;
    }
    spw_shard_copy_end(worker->shard, job->at.slot);
    if (status < 0 || job->voided) {
        fail(worker, job);
        end(worker, job);
        return;
    }
    spw_shard_ready(worker->shard, job->at.slot);
    SPW_CRASH_POINT("up.ready");
    spw_worker_count(worker, SPW_WORKER_promoted, 1);
    spw_worker_count(worker, SPW_WORKER_promoted_bytes, job->at.chunk_bytes);
    job->state = SPW_COLD_HELD;
    hold_on(worker, job);
}

void spw_worker_up_released(struct spw_worker *worker, struct spw_cold_job *job)
{
    spw_shard_copy_end(worker->shard, job->at.slot);
    worker->cold->slot[job->at.slot].up = NULL;
    spw_worker_cold_job_end(worker->cold, job);
}

/* ---- what goes meanwhile --------------------------------------------------------------------- */

void spw_worker_up_gone(struct spw_worker *worker, uint32_t id)
{
    int64_t slot = spw_shard_cold_slot(worker->shard, id);
    struct spw_cold_job *job = slot < 0 ? NULL : worker->cold->slot[slot].up;
    spw_shard_cold_remove(worker->shard, id);
    if (job && job->state == SPW_COLD_WAITS)
        give_up(worker, job, SPW_WORKER_promote_failed);
}

void spw_worker_up_reset(struct spw_worker *worker, uint32_t space)
{
    struct spw_cold_job *job = worker->cold->up.first, *next;
    for (; job; job = next) {
        next = job->after;
        if (!spw_space_meant(space, job->at.space))
            continue;
        if (job->state == SPW_COLD_WAITS) {
            give_up(worker, job, SPW_WORKER_promote_failed);
        } else if (job->state == SPW_COLD_HELD) {
            end(worker, job);
        } else if (!job->voided) {
            spw_shard_retire(worker->shard, job->at.slot);
            job->voided = true;
        }
    }
}

void spw_worker_up_drop_waiting(struct spw_worker *worker)
{
    struct spw_queue_item *item;
    while ((item = spw_queue_next(&worker->cold->up.queue, SPW_COPY_STORE, worker->now_ns)))
        give_up(worker, item->owner, SPW_WORKER_promote_unwanted);
}
