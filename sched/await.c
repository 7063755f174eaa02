/* See await.h. Every mark and every ETA begins with a look at the worker's table: where the chunk's
 * store or promotion goes. What is not found there has ended, or its worker is dead: nothing to wait for. So has
 * what is being written: an entry that is FILLING is next written when it no longer is. */
#include "sched/handle.h"

#include <stdlib.h>

/* ---- life ------------------------------------------------------------------------------------ */

int spw_awaits_init(struct spw_awaits *awaits, struct spw_client_view *own)
{
    uint64_t slots_all = (uint64_t)own->workers * own->slots;
    *awaits = (struct spw_awaits){.own = own};
    if (slots_all > UINT32_MAX) /* a mark is a 32-bit number */
        return -ENOMEM;
    awaits->count = calloc(slots_all, sizeof(*awaits->count));
    return awaits->count ? 0 : -ENOMEM;
}

void spw_awaits_fini(struct spw_awaits *awaits)
{
    free(awaits->count);
    *awaits = (struct spw_awaits){0};
}

static int grow(struct spw_mark **marks, uint64_t room)
{
    struct spw_mark *now = realloc(*marks, room * sizeof(*now));
    if (!now)
        return -ENOMEM;
    *marks = now;
    return 0;
}

int spw_marks_grow(struct spw_marks *marks, uint64_t chunks, uint32_t ranks)
{
    if (chunks > UINT32_MAX)
        return -ENOMEM;
    uint64_t room = chunks * ranks;
    if (room <= marks->room)
        return 0;
    if (grow(&marks->mark, room) < 0 || grow(&marks->next, room) < 0)
        return -ENOMEM;
    marks->room = room;
    return 0;
}

void spw_marks_fini(struct spw_marks *marks)
{
    free(marks->mark);
    free(marks->next);
    *marks = (struct spw_marks){0};
}

/* ---- where a chunk's stores are -------------------------------------------------------------- */

static bool has_part(const struct spw_space *space, uint32_t rank, uint64_t word)
{
    const struct spw_judge *judge = &space->judge;
    return (spw_replica_ready(word & judge->live) & judge->mask[rank]) != 0;
}

static uint64_t workers_of(uint64_t pairs)
{
    uint64_t workers = 0;
    for (; pairs != 0; pairs &= pairs - 1)
        workers |= 1ull << (uint32_t)__builtin_ctzll(pairs) / 2;
    return workers;
}

/* Workers that have a part of @rank in work, or below; none if the rank has its part already. */
static uint64_t workers_at(const struct spw_space *space, uint32_t rank, uint64_t word)
{
    const struct spw_judge *judge = &space->judge;
    if (has_part(space, rank, word))
        return 0;
    return workers_of(word & judge->live & judge->up & judge->mask[rank]);
}

static bool find_store(const struct spw_space *space, uint32_t k, const uint64_t digest[2],
                       struct spw_entry_copy *out_entry)
{
    return spw_table_find_filling(&space->client->views.view[k].table, digest, out_entry) == 0;
}

static const uint64_t *digest_of(const struct spw_request *request, uint32_t group, uint64_t chunk,
                                 uint64_t digest[2])
{
    digest[0] = request->keys[group].tag[chunk];
    digest[1] = request->keys[group].second[chunk];
    return digest;
}

/* ---- marks ----------------------------------------------------------------------------------- */

static void mark(struct spw_request *request, uint32_t slot, uint64_t tag)
{
    struct spw_awaits *awaits = &request->client->awaits;
    struct spw_marks *marks = &request->marks;
    uint32_t slots = awaits->own->slots;
    if (marks->next_count == marks->room || awaits->count[slot] == UINT16_MAX)
        return; /* more parts than ranks, or more requests than are counted: some stay unmarked */
    marks->next[marks->next_count++] = (struct spw_mark){slot, (uint32_t)tag};
    if (awaits->count[slot]++ != 0)
        return;
    spw_client_await(awaits->own, slot / slots, slot % slots, true);
    awaits->changed |= 1ull << slot / slots;
    spw_count(request->client, SPW_CLIENT_awaited, 1);
}

/* Take back what was marked before; what is marked again by now keeps its bit. */
static void unmark_before(struct spw_request *request)
{
    struct spw_awaits *awaits = &request->client->awaits;
    struct spw_marks *marks = &request->marks;
    struct spw_mark *before = marks->mark;
    uint32_t slots = awaits->own->slots;
    for (; marks->count != 0; marks->count--) {
        uint32_t slot = before[marks->count - 1].slot;
        if (--awaits->count[slot] != 0)
            continue;
        spw_client_await(awaits->own, slot / slots, slot % slots, false);
        awaits->changed |= 1ull << slot / slots;
    }
    marks->mark = marks->next;
    marks->count = marks->next_count;
    marks->next = before;
    marks->next_count = 0;
}

static void tell(struct spw_awaits *awaits)
{
    for (; awaits->changed != 0; awaits->changed &= awaits->changed - 1)
        spw_client_await_changed(awaits->own, (uint32_t)__builtin_ctzll(awaits->changed));
}

/* no_await is about stores: a promotion that nobody marks would not be kept until it is loaded. */
static void mark_chunk(struct spw_request *request, const uint64_t digest[2], uint64_t word)
{
    const struct spw_space *space = request->space;
    for (uint32_t r = 0; r < space->ranks; r++)
        for (uint64_t left = workers_at(space, r, word); left != 0; left &= left - 1) {
            uint32_t k = (uint32_t)__builtin_ctzll(left);
            struct spw_entry_copy entry;
            if (find_store(space, k, digest, &entry) &&
                (!space->no_await || entry.place_bytes & SPW_PLACE_PROMOTION))
                mark(request, k * request->client->awaits.own->slots + entry.slot, digest[0]);
        }
}

static void mark_tail(struct spw_request *request, uint64_t boundary)
{
    const struct spw_boundary *keys = spw_request_find_boundary(request, boundary);
    for (uint32_t g = 0; keys && g < request->space->groups.count; g++) {
        const uint64_t *digest = keys->group[g].digest;
        mark_chunk(request, digest, spw_replica_get(&request->client->views.replica, digest[0]));
    }
}

static void keep_ready(struct spw_request *request)
{
    const struct spw_client *client = request->client;
    uint32_t slots = client->awaits.own->slots;
    for (uint64_t i = 0; i < request->marks.count; i++) {
        const struct spw_mark *before = &request->marks.mark[i];
        struct spw_entry_copy entry;
        if (spw_table_read(&client->views.view[before->slot / slots].table, before->slot % slots,
                           false, &entry) == 0 &&
            entry.state == SPW_READY && (uint32_t)entry.digest[0] == before->tag)
            mark(request, before->slot, before->tag);
    }
}

void spw_await(struct spw_request *request, const struct spw_decision_core *core)
{
    struct spw_client *client = request->client;
    bool any = !request->space->no_await || client->pool.geometry.cold_chunks != 0;
    keep_ready(request);
    for (uint32_t g = 0; any && g < request->space->groups.count; g++) {
        const struct spw_scratch *scratch = &client->scratch[g];
        uint64_t digest[2];
        for (uint64_t i = core->await[g].first; i < core->await[g].end; i++)
            if (scratch->verdict[i] == SPW_PENDING)
                mark_chunk(request, digest_of(request, g, i, digest), scratch->word[i]);
    }
    if (any && core->await_boundary != 0)
        mark_tail(request, core->await_boundary);
    unmark_before(request);
    tell(&client->awaits);
}

void spw_await_over(struct spw_request *request)
{
    if (request->marks.count == 0)
        return;
    unmark_before(request);
    tell(&request->client->awaits);
}

/* ---- ETA ------------------------------------------------------------------------------------- */

/* The stream at @i, and its number. */
static uint32_t look_at(const struct spw_request *request, struct spw_eta *eta, uint32_t k,
                        bool promotions)
{
    const struct spw_feed_head *feed = request->client->pool.feed[k];
    uint32_t i = promotions ? SPW_WORKERS_MAX + k : k;
    if (eta->seen >> i & 1)
        return i;
    spw_stream_read(promotions ? &feed->promotions : &feed->stream, &eta->stream[i]);
    eta->ahead_bytes[i] = 0;
    if (promotions)
        eta->below_bytes[k] = 0;
    eta->seen |= 1ull << i;
    return i;
}

/* Where it stands, or, if it will be marked, behind what is marked already and what was asked about
 * before it. What stands among those marked already stays there. */
static uint64_t eta_in_stream(const struct spw_request *request, struct spw_eta *eta, uint32_t k,
                              const struct spw_entry_copy *entry, uint64_t bytes)
{
    uint64_t now_ns = request->client->now_ns;
    bool promotion = entry->place_bytes & SPW_PLACE_PROMOTION;
    uint64_t place = entry->place_bytes & ~SPW_PLACE_PROMOTION;
    uint32_t i = look_at(request, eta, k, promotion);
    const struct spw_stream_sample *stream = &eta->stream[i];
    uint64_t as_it_is = spw_stream_eta(stream, place, bytes, now_ns);
    bool marked_before = place != 0 && place <= stream->awaited_bytes;
    if ((request->space->no_await && !promotion) || marked_before)
        return as_it_is;
    eta->ahead_bytes[i] += bytes;
    place = spw_stream_place_awaited(stream, eta->ahead_bytes[i]);
    uint64_t marked = spw_stream_eta(stream, place, bytes, now_ns);
    return as_it_is < marked ? as_it_is : marked;
}

/* Only below, or promoted since the step began and ready by now: behind all that is asked for. */
static uint64_t eta_below(const struct spw_request *request, struct spw_eta *eta, uint32_t k,
                          uint64_t bytes)
{
    const struct spw_stream_sample *stream = &eta->stream[look_at(request, eta, k, true)];
    uint64_t place;
    eta->below_bytes[k] += bytes;
    if (__builtin_add_overflow(stream->queued_bytes, eta->below_bytes[k], &place))
        return SPW_ETA_UNKNOWN;
    return spw_stream_eta(stream, place, bytes, request->client->now_ns);
}

static uint64_t eta_at(const struct spw_request *request, struct spw_eta *eta, uint32_t k,
                       uint32_t group, const uint64_t digest[2], uint64_t word)
{
    uint64_t bytes = request->space->nominal_bytes[group];
    struct spw_entry_copy entry;
    if (find_store(request->space, k, digest, &entry))
        return eta_in_stream(request, eta, k, &entry, bytes);
    return spw_replica_cold(word) >> 2 * k & 1 ? eta_below(request, eta, k, bytes) : 0;
}

/* A rank has its part when the first of its workers has it; the chunk, when the last rank has. What
 * pends and is at no worker is brought by a tier that tells no time. */
static uint64_t eta_of(const struct spw_request *request, struct spw_eta *eta, uint32_t group,
                       const uint64_t digest[2], uint64_t word)
{
    uint64_t last = 0;
    for (uint32_t r = 0; r < request->space->ranks; r++) {
        uint64_t workers = workers_at(request->space, r, word);
        uint64_t first = has_part(request->space, r, word) ? 0 : UINT64_MAX;
        for (; workers != 0; workers &= workers - 1) {
            uint64_t ns =
                eta_at(request, eta, (uint32_t)__builtin_ctzll(workers), group, digest, word);
            first = ns < first ? ns : first;
        }
        last = first > last ? first : last;
    }
    return last;
}

uint64_t spw_await_eta(struct spw_request *request, struct spw_eta *eta, uint32_t group,
                       uint64_t first, uint64_t end)
{
    const struct spw_scratch *scratch = &request->client->scratch[group];
    uint64_t last = 0, digest[2];
    for (uint64_t i = first; i < end; i++) {
        if (scratch->verdict[i] != SPW_PENDING)
            continue;
        uint64_t ns =
            eta_of(request, eta, group, digest_of(request, group, i, digest), scratch->word[i]);
        last = ns > last ? ns : last;
    }
    return last;
}

uint64_t spw_await_tail_eta(struct spw_request *request, struct spw_eta *eta, uint64_t boundary)
{
    const struct spw_boundary *keys = spw_request_find_boundary(request, boundary);
    uint64_t last = 0;
    for (uint32_t g = 0; keys && g < request->space->groups.count; g++) {
        const uint64_t *digest = keys->group[g].digest;
        uint64_t word = spw_replica_get(&request->client->views.replica, digest[0]);
        uint64_t ns = eta_of(request, eta, g, digest, word);
        last = ns > last ? ns : last;
    }
    return last;
}

int spw_request_eta(struct spw_request *request, const struct spw_chunk_ref *chunk,
                    uint64_t *out_eta_ns)
{
    struct spw_chunk_key key;
    struct spw_eta eta = {.seen = 0};
    if (!request || !chunk || !out_eta_ns)
        return -EINVAL;
    struct spw_client *client = request->client;
    int rc = spw_client_check(client);
    if (rc == 0)
        rc = client->in_step ? spw_request_key(request, chunk, &key) : -EINVAL;
    if (rc < 0)
        return rc;
    uint64_t word = spw_replica_get(&client->views.replica, key.digest[0]);
    if (spw_judge_word(&request->space->judge, word) != SPW_PENDING)
        return -ENOENT;
    *out_eta_ns = eta_of(request, &eta, chunk->group, key.digest, word);
    return 0;
}
