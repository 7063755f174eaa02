/*
 * The store stream of a worker: the order in which queued stores go, where each one stands in it,
 * and how fast it goes.
 *
 * Written: stream and counters of this worker's feed, places in its table. Read: change counts and
 * awaited bits of the clients that are served. A client that is not served never counts, so a
 * client's death, its taking back and two clients' waiting for the same need no protocol. Bits and
 * places are hints; whoever reads them late is wrong by what moved in between.
 *
 *   order     from the next copy on: looked at before each store is handed to the copier. Those it
 *             holds already can't be overtaken: in_flight of the copier says how many
 *   place     bytes done + with the copier + queued ahead + its own, in nominal bytes. What is
 *             cancelled counts as done at once, the places of others follow at the next look
 *
 * Dies: the successor's adoption ends the stream (tier/adopt.h).
 */
#include "shm/crash_point.h"
#include "tier/worker_impl.h"

#define RATE_SHARE 8.0 /* a copy counts for 1/8 of the rate, the next older one for 7/8 of that */

static uint64_t bytes_done(const struct spw_worker *worker)
{
    return spw_load_relaxed(&worker->feed->stream.bytes_done); /* only this worker writes it */
}

static struct spw_job_chunk *chunk_of(const struct spw_queue_item *item)
{
    struct spw_job *job = item->owner;
    return &job->chunk[item->chunk];
}

static void place(struct spw_worker *worker, struct spw_job_chunk *chunk, uint64_t place_bytes)
{
    if (chunk->place_bytes == place_bytes)
        return;
    chunk->place_bytes = place_bytes;
    spw_shard_place(worker->shard, chunk->slot, place_bytes);
}

/* ---- order ---------------------------------------------------------------------------------- */

void spw_worker_gather_served(const struct spw_worker *worker, struct spw_worker_served *out)
{
    out->count = 0;
    for (uint32_t c = 0; c < worker->clients; c++)
        if (worker->client[c].phase == SPW_CLIENT_SERVED)
            out->awaited[out->count++] =
                spw_client_awaited_bits(&worker->pool->client[c], worker->config.k);
}

bool spw_worker_is_awaited(const struct spw_worker_served *served, uint32_t slot)
{
    uint64_t bits = 0;
    for (uint32_t i = 0; i < served->count; i++)
        bits |= spw_load_relaxed(&served->awaited[i][slot / 64]);
    return bits >> slot % 64 & 1;
}

static bool is_awaited(void *ctx, const struct spw_queue_item *item)
{
    return spw_worker_is_awaited(ctx, chunk_of(item)->slot);
}

/* Counts first, bits later: a bit that is missed is told of by a count that has not been seen. */
bool spw_worker_look_at_marks(struct spw_worker *worker, enum spw_worker_marks which,
                              struct spw_worker_served *out_served)
{
    bool moved = false;
    for (uint32_t c = 0; c < worker->clients; c++) {
        struct spw_worker_client *client = &worker->client[c];
        if (client->phase != SPW_CLIENT_SERVED)
            continue;
        uint64_t changes = spw_client_awaited_changes(&worker->pool->client[c], worker->config.k);
        moved = moved || changes != client->awaited_seen[which];
        client->awaited_seen[which] = changes;
    }
    spw_worker_gather_served(worker, out_served);
    return moved;
}

struct placing {
    struct spw_worker *worker;
    uint64_t up_to;   /* bytes of the stream with those seen so far */
    uint64_t awaited; /* with the last awaited one                  */
};

static void place_next(void *ctx, struct spw_queue_item *item)
{
    struct placing *placing = ctx;
    placing->up_to += item->nominal_bytes;
    if (item->awaited)
        placing->awaited = placing->up_to;
    place(placing->worker, chunk_of(item), placing->up_to);
}

static void place_all(struct spw_worker *worker)
{
    struct placing placing = {.worker = worker, .up_to = bytes_done(worker)};
    for (struct spw_queue_item *item = worker->stream.copying; item; item = item->after)
        place_next(&placing, item);
    placing.awaited = placing.up_to;
    spw_queue_walk(&worker->queue, worker->now_ns, place_next, &placing);
    SPW_CRASH_POINT("worker.stream_placed");
    spw_store_relaxed(&worker->feed->stream.bytes_awaited, placing.awaited);
}

void spw_worker_stream_order(struct spw_worker *worker)
{
    struct spw_worker_served served;
    if (worker->queue.count[SPW_COPY_STORE] == 0 && !worker->stream.order_stale)
        return;
    if (!spw_worker_look_at_marks(worker, SPW_MARKS_STORES, &served) && !worker->stream.order_stale)
        return;
    spw_queue_mark(&worker->queue, is_awaited, &served);
    place_all(worker);
    worker->stream.order_stale = false;
}

/* ---- a store's way through -------------------------------------------------------------------- */

void spw_worker_stream_push(struct spw_worker *worker, struct spw_job *job, uint32_t i)
{
    struct spw_stream *stream = &worker->feed->stream;
    struct spw_job_chunk *chunk = &job->chunk[i];
    if (spw_load_relaxed(&stream->bytes_queued) == bytes_done(worker)) {
        worker->stream.since_ns = worker->now_ns;
        spw_store_relaxed(&stream->progress_ns, worker->now_ns);
    }
    spw_add_own(&stream->bytes_queued, chunk->item.nominal_bytes);
    SPW_CRASH_POINT("worker.stream_queued");
    place(worker, chunk, spw_load_relaxed(&stream->bytes_queued));
    spw_queue_push(&worker->queue, SPW_COPY_STORE, &chunk->item, worker->now_ns);
    spw_worker_stream_stale(worker);
}

void spw_worker_stream_drop(struct spw_worker *worker, const struct spw_queue_item *item)
{
    spw_add_own(&worker->feed->stream.bytes_done, item->nominal_bytes);
    spw_worker_stream_stale(worker);
}

static void add_copying(struct spw_worker_stream *stream, struct spw_queue_item *item)
{
    struct spw_queue_item **at = &stream->copying;
    while (*at)
        at = &(*at)->after;
    *at = item;
    item->after = NULL;
    stream->copy_bytes += item->nominal_bytes;
}

static void remove_copying(struct spw_worker_stream *stream, const struct spw_queue_item *item)
{
    struct spw_queue_item **at = &stream->copying;
    while (*at != item)
        at = &(*at)->after;
    *at = item->after;
    stream->copy_bytes -= item->nominal_bytes;
}

void spw_worker_stream_take(struct spw_worker *worker, struct spw_queue_item *item)
{
    if (spw_queue_overtakes(item))
        spw_worker_count(worker, SPW_WORKER_overtaken, 1);
    if (spw_queue_at_limit(&worker->queue, item)) {
        spw_worker_count(worker, SPW_WORKER_overtake_limit_hits, 1);
        spw_worker_stream_stale(worker); /* it went ahead of what was promised */
    }
    spw_queue_take(&worker->queue, item);
    add_copying(&worker->stream, item);
    if (worker->queue.awaited == 0)
        spw_store_relaxed(&worker->feed->stream.bytes_awaited,
                          bytes_done(worker) + worker->stream.copy_bytes);
}

/* Both sums fade together, so a copy that was noticed late and the next one, noticed at the same
 * time, still make the rate at which they went. */
static void smooth_rate(struct spw_worker_stream *own, struct spw_stream *shared, uint64_t bytes,
                        uint64_t took_ns)
{
    own->recent_bytes += (double)bytes - own->recent_bytes / RATE_SHARE;
    own->recent_ns += (double)took_ns - own->recent_ns / RATE_SHARE;
    if (own->recent_ns < 1)
        return; /* no time has passed yet */
    double rate = own->recent_bytes * 1e9 / own->recent_ns;
    spw_store_relaxed(&shared->rate_bytes_per_s, rate < 1        ? 1
                                                 : rate < 0x1p62 ? (uint64_t)rate
                                                                 : 1ull << 62);
}

void spw_worker_stream_progress(struct spw_worker *worker, struct spw_worker_stream *own,
                                struct spw_stream *shared, uint64_t bytes, int status)
{
    uint64_t now_ns = worker->config.now_ns(worker->config.clock_ctx);
    spw_add_own(&shared->bytes_done, bytes);
    SPW_CRASH_POINT("worker.stream_done");
    if (status >= 0)
        smooth_rate(own, shared, bytes, now_ns - own->since_ns);
    own->since_ns = now_ns;
    spw_store_relaxed(&shared->progress_ns, now_ns);
}

void spw_worker_stream_end(struct spw_worker *worker, const struct spw_queue_item *item, int status)
{
    remove_copying(&worker->stream, item);
    spw_worker_stream_progress(worker, &worker->stream, &worker->feed->stream, item->nominal_bytes,
                               status);
}
