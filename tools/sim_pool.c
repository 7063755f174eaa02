/* The pool of a simulated replay; see sim_pool.h. */
#include "tools/sim_pool.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- chunks and their numbers ---------------------------------------------------------------- */

/* Number the ids of the trace by their first use; returns how many there are, or -ENOMEM. */
static int64_t number_ids(const struct spw_trace *trace, uint32_t *out_number)
{
    uint64_t places = 16, count = 0;
    uint32_t *table; /* open addressing by id: 1 + a position in ids, 0 is empty */

    while (places < 2 * trace->id_count)
        places *= 2;
    table = calloc(places, sizeof(*table));
    if (!table)
        return -ENOMEM;
    for (uint64_t i = 0; i < trace->id_count; i++) {
        uint64_t id = trace->ids[i];
        uint64_t place = (id * 0x9e3779b97f4a7c15u >> 20) & (places - 1);

        while (table[place] != 0 && trace->ids[table[place] - 1] != id)
            place = (place + 1) & (places - 1);
        if (table[place] == 0) {
            table[place] = (uint32_t)i + 1;
            out_number[i] = (uint32_t)count++;
        } else {
            out_number[i] = out_number[table[place] - 1];
        }
    }
    free(table);
    return (int64_t)count;
}

static void init_streams(struct spw_sim_pool *pool)
{
    for (uint32_t k = 0; k < pool->config.workers; k++) {
        struct spw_sim_stream *stream = &pool->stream[k];

        spw_queue_init(&stream->queue, UINT32_MAX, (uint64_t)pool->config.overtake_limit_ns);
        spw_slot_list_init(&stream->held, &pool->links);
        stream->copying = SPW_SIM_NONE;
        stream->copy_end_ns = INT64_MAX;
    }
}

int spw_sim_pool_init(struct spw_sim_pool *pool, const struct spw_trace *trace,
                      const struct spw_sim_pool_config *config)
{
    int64_t count;

    assert(config->workers > 0 && trace->id_count < SPW_SIM_NONE);
    *pool = (struct spw_sim_pool){.config = *config, .trace = trace};
    pool->number = malloc((trace->id_count + 1) * sizeof(*pool->number));
    count = pool->number ? number_ids(trace, pool->number) : -ENOMEM;
    if (count < 0)
        goto fail;
    pool->chunk_count = (uint32_t)count;
    pool->chunk = calloc((size_t)count + 1, sizeof(*pool->chunk));
    pool->stream = calloc(config->workers, sizeof(*pool->stream));
    if (!pool->chunk || !pool->stream ||
        spw_slot_links_init(&pool->links, pool->chunk_count + 1) < 0)
        goto fail;
    for (uint32_t i = 0; i < pool->chunk_count; i++)
        pool->chunk[i].verdict = SPW_MISS;
    init_streams(pool);
    return 0;
fail:
    spw_sim_pool_fini(pool);
    return -ENOMEM;
}

void spw_sim_pool_fini(struct spw_sim_pool *pool)
{
    if (!pool)
        return;
    spw_slot_links_fini(&pool->links);
    free(pool->number);
    free(pool->chunk);
    free(pool->stream);
    free(pool->watch);
    *pool = (struct spw_sim_pool){0};
}

const uint32_t *spw_sim_pool_chunks(const struct spw_sim_pool *pool,
                                    const struct spw_trace_request *request)
{
    return pool->number + request->ids_off;
}

/* ---- shards ---------------------------------------------------------------------------------- */

/* Give up the least recent chunk that is ready and that no load reads. */
static bool evict(struct spw_sim_pool *pool, struct spw_sim_stream *stream)
{
    uint32_t chunk = stream->held.oldest;

    while (chunk != SPW_NO_SLOT_ID &&
           (pool->chunk[chunk].verdict != SPW_HIT || pool->chunk[chunk].readers > 0))
        chunk = spw_slot_list_newer(&stream->held, chunk);
    if (chunk == SPW_NO_SLOT_ID)
        return false;
    spw_slot_list_remove(&stream->held, chunk);
    pool->chunk[chunk].verdict = SPW_MISS;
    pool->evicted_chunks++;
    return true;
}

bool spw_sim_pool_offer(struct spw_sim_pool *pool, uint32_t worker, uint32_t chunk, uint32_t behind,
                        int64_t now_ns)
{
    struct spw_sim_stream *stream = &pool->stream[worker];
    struct spw_sim_chunk *c = &pool->chunk[chunk];

    assert(c->verdict == SPW_MISS);
    if (stream->held.count == pool->config.capacity_chunks && !evict(pool, stream))
        return false;
    if (behind == SPW_SIM_NONE)
        spw_slot_list_add(&stream->held, chunk);
    else
        spw_slot_list_add_behind(&stream->held, chunk, behind);
    c->verdict = SPW_PENDING;
    c->worker = (uint8_t)worker;
    c->order = stream->queued_chunks++;
    c->item.owner = c;
    c->item.chunk = chunk;
    c->item.nominal_bytes = pool->config.chunk_bytes;
    spw_queue_push(&stream->queue, SPW_COPY_STORE, &c->item, (uint64_t)now_ns);
    return true;
}

void spw_sim_pool_touch(struct spw_sim_pool *pool, const uint32_t *chunks, uint32_t count)
{
    while (count > 0) {
        uint32_t chunk = chunks[--count];
        struct spw_slot_list *held = &pool->stream[pool->chunk[chunk].worker].held;

        if (pool->chunk[chunk].verdict == SPW_MISS)
            continue;
        spw_slot_list_remove(held, chunk);
        spw_slot_list_add(held, chunk);
    }
}

void spw_sim_pool_pin(struct spw_sim_pool *pool, const uint32_t *chunks, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        assert(pool->chunk[chunks[i]].verdict == SPW_HIT);
        pool->chunk[chunks[i]].readers++;
    }
}

void spw_sim_pool_unpin(struct spw_sim_pool *pool, const uint32_t *chunks, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        assert(pool->chunk[chunks[i]].readers > 0);
        pool->chunk[chunks[i]].readers--;
    }
}

/* ---- who waits ------------------------------------------------------------------------------- */

static int grow_watches(struct spw_sim_pool *pool)
{
    uint32_t room = pool->watch_room ? 2 * pool->watch_room : 1024;
    struct spw_sim_watch *moved = realloc(pool->watch, room * sizeof(*moved));

    if (!moved)
        return -ENOMEM;
    for (uint32_t i = pool->watch_room; i < room; i++)
        moved[i].next = i + 1 < room ? i + 2 : 0;
    pool->watch = moved;
    pool->watch_free = pool->watch_room + 1;
    pool->watch_room = room;
    return 0;
}

int spw_sim_pool_watch(struct spw_sim_pool *pool, uint32_t chunk, uint32_t who)
{
    struct spw_sim_chunk *c = &pool->chunk[chunk];
    struct spw_sim_watch *watch;
    uint32_t number;

    assert(c->verdict == SPW_PENDING);
    if (!pool->watch_free && grow_watches(pool) < 0)
        return -ENOMEM;
    number = pool->watch_free;
    watch = &pool->watch[number - 1];
    pool->watch_free = watch->next;
    *watch = (struct spw_sim_watch){.who = who, .next = c->watches};
    c->watches = number;
    if (pool->config.awaited_first && c->awaiters == 0) {
        struct spw_sim_stream *stream = &pool->stream[c->worker];

        stream->marks_moved = true;
        stream->awaited += stream->copying != chunk;
    }
    c->awaiters++;
    return 0;
}

static void tell_watchers(struct spw_sim_pool *pool, struct spw_sim_chunk *c,
                          void (*ready)(void *context, uint32_t who), void *context)
{
    uint32_t number = c->watches;

    c->watches = c->awaiters = 0;
    while (number != 0) {
        struct spw_sim_watch *watch = &pool->watch[number - 1];
        uint32_t next = watch->next;

        ready(context, watch->who);
        watch->next = pool->watch_free;
        pool->watch_free = number;
        number = next;
    }
}

/* ---- when ------------------------------------------------------------------------------------ */

/* What of a run of chunks one stream still has to do. */
struct share {
    bool copying;
    uint32_t unawaited;                   /* queued, and nobody waits for it           */
    const struct spw_sim_chunk *youngest; /* queued                                    */
    const struct spw_sim_chunk *awaited;  /* the youngest queued one that is awaited   */
};

static void add_to_share(const struct spw_sim_pool *pool, uint32_t chunk, struct share *share)
{
    const struct spw_sim_chunk *c = &pool->chunk[chunk];

    if (pool->stream[c->worker].copying == chunk) {
        share->copying = true;
        return;
    }
    share->unawaited += c->awaiters == 0;
    if (!share->youngest || share->youngest->order < c->order)
        share->youngest = c;
    if (c->awaiters > 0 && (!share->awaited || share->awaited->order < c->order))
        share->awaited = c;
}

/* Queued chunks up to and with @last, by age; of the awaited ones alone if @awaited. */
static uint64_t place_of(const struct spw_sim_chunk *last, bool awaited)
{
    const struct spw_queue_item *item = last ? &last->item : NULL;
    uint64_t place = 0;

    for (; item; item = item->before)
        place += !awaited || ((const struct spw_sim_chunk *)item->owner)->awaiters > 0;
    return place;
}

static uint64_t eta_of_share(const struct spw_sim_pool *pool, const struct spw_sim_stream *stream,
                             const struct share *share, int64_t now_ns)
{
    uint64_t copying_ns =
        stream->copying == SPW_SIM_NONE ? 0 : (uint64_t)(stream->copy_end_ns - now_ns);
    uint64_t place;

    if (!pool->config.awaited_first)
        place = place_of(share->youngest, false);
    else if (share->unawaited > 0)
        place = stream->awaited + share->unawaited;
    else
        place = place_of(share->awaited, true);
    return share->copying || place ? copying_ns + place * (uint64_t)pool->config.copy_ns : 0;
}

uint64_t spw_sim_pool_eta(const struct spw_sim_pool *pool, const uint32_t *chunks, uint32_t count,
                          int64_t now_ns)
{
    struct share share[SPW_SIM_WORKERS_MAX] = {{0}};
    uint64_t latest = 0;

    for (uint32_t i = 0; i < count; i++)
        if (pool->chunk[chunks[i]].verdict == SPW_PENDING)
            add_to_share(pool, chunks[i], &share[pool->chunk[chunks[i]].worker]);
    for (uint32_t k = 0; k < pool->config.workers; k++) {
        uint64_t eta = eta_of_share(pool, &pool->stream[k], &share[k], now_ns);

        latest = eta > latest ? eta : latest;
    }
    return latest;
}

static bool somebody_waits(void *context, const struct spw_queue_item *item)
{
    (void)context;
    return ((const struct spw_sim_chunk *)item->owner)->awaiters > 0;
}

static void start_stream(struct spw_sim_pool *pool, struct spw_sim_stream *stream, int64_t now_ns)
{
    struct spw_queue_item *item;
    bool is_awaited;

    if (stream->marks_moved)
        spw_queue_mark(&stream->queue, somebody_waits, NULL);
    stream->marks_moved = false;
    item = spw_queue_next(&stream->queue, SPW_COPY_STORE, (uint64_t)now_ns);
    if (!item)
        return;
    is_awaited = pool->config.awaited_first && pool->chunk[item->chunk].awaiters > 0;
    stream->overtaking_copies += spw_queue_overtakes(item);
    spw_queue_take(&stream->queue, item);
    stream->awaited -= is_awaited;
    stream->awaited_copies += is_awaited;
    stream->copying = item->chunk;
    stream->copy_end_ns = now_ns + pool->config.copy_ns;
}

void spw_sim_pool_start(struct spw_sim_pool *pool, int64_t now_ns)
{
    for (uint32_t k = 0; k < pool->config.workers; k++)
        if (pool->stream[k].copying == SPW_SIM_NONE)
            start_stream(pool, &pool->stream[k], now_ns);
}

int64_t spw_sim_pool_next_end(const struct spw_sim_pool *pool)
{
    int64_t next_ns = INT64_MAX;

    for (uint32_t k = 0; k < pool->config.workers; k++)
        if (pool->stream[k].copy_end_ns < next_ns)
            next_ns = pool->stream[k].copy_end_ns;
    return next_ns;
}

bool spw_sim_pool_end_copy(struct spw_sim_pool *pool, int64_t now_ns,
                           void (*ready)(void *context, uint32_t who), void *context)
{
    for (uint32_t k = 0; k < pool->config.workers; k++) {
        struct spw_sim_stream *stream = &pool->stream[k];
        uint32_t chunk = stream->copying;

        if (stream->copy_end_ns > now_ns || chunk == SPW_SIM_NONE)
            continue;
        stream->copying = SPW_SIM_NONE;
        stream->copy_end_ns = INT64_MAX;
        stream->copied_chunks++;
        pool->chunk[chunk].verdict = SPW_HIT;
        tell_watchers(pool, &pool->chunk[chunk], ready, context);
        return true;
    }
    return false;
}
