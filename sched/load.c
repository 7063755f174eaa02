/*
 * First half of a load: which copy to take, read its slot and fill from the owner's table, pin it,
 * tell the copier. Inside a step only. Written: pin bits and command lanes.
 *
 *   step              if this client dies after it
 *   pin bit set       a pin of a dead client doesn't count
 *   command sent      the copier's own bit covers what it has taken, until the copy has ended
 */
#include "sched/handle.h"

#include "tier/reclaim.h"

static bool is_needed(const struct spw_decision *decision, const struct spw_chunk_ref *ref)
{
    if (ref->group >= decision->groups || ref->group >= SPW_MAX_GROUPS)
        return false;
    const struct spw_need *need = &decision->need[ref->group];
    uint64_t end = decision->tail_boundary && need->end > need->first ? need->end - 1 : need->end;
    if (ref->index == SPW_CHUNK_TAIL)
        return decision->tail_boundary != 0 && ref->boundary == decision->tail_boundary;
    return ref->index >= need->first && ref->index < end;
}

/* Workers that have a part of @rank ready, as far as the views tell. */
static uint64_t copies(const struct spw_space *space, uint32_t rank, uint64_t tag)
{
    const struct spw_client *client = space->client;
    uint64_t word = spw_replica_get(&client->views.replica, tag) & client->views.live;
    uint64_t pairs = spw_replica_ready(word) & spw_judge_pairs(space->rank_mask[rank]);
    uint64_t workers = 0;
    for (; pairs != 0; pairs &= pairs - 1)
        workers |= 1ull << (uint32_t)__builtin_ctzll(pairs) / 2;
    return workers;
}

/* Find the entry to load: our own shard's, else that of the lowest worker. 0 or a negative errno.
 */
static int find_source(const struct spw_space *space, uint32_t rank,
                       const struct spw_chunk_key *key, struct spw_load_source *out_source)
{
    const struct spw_client *client = space->client;
    uint64_t workers = copies(space, rank, key->digest[0]);
    uint64_t own = 1ull << space->rank_worker[rank];
    bool unclear = false;
    int rc;
    while (workers != 0) {
        uint64_t bit = workers & own ? own : workers & -workers;
        uint32_t shard = (uint32_t)__builtin_ctzll(bit);
        struct spw_entry_copy entry;
        workers &= ~bit;
        if (spw_step_fenced(client->pool.feed[shard], client->number, client->step))
            return -ESTALE;
        rc = spw_table_find(&client->views.view[shard].table, key, &entry);
        if (rc == 0 && entry.rank == rank) {
            *out_source =
                (struct spw_load_source){.fill = entry.fill, .slot = entry.slot, .shard = shard};
            return 0;
        }
        if (rc != 0 && spw_step_fenced(client->pool.feed[shard], client->number, client->step))
            return -ESTALE; /* fenced just now: that is why it is gone */
        unclear = unclear || rc == -EAGAIN;
    }
    return unclear ? -EAGAIN : -ENOENT;
}

/* Sources of a prefix of @chunks; their number, or why the first has none. */
static int find_sources(struct spw_request *request, uint32_t rank,
                        const struct spw_chunk_ref *chunks, uint32_t count,
                        struct spw_load_source *out_source, uint64_t *out_tag)
{
    uint32_t found = 0;
    for (; found < count; found++) {
        struct spw_chunk_key key;
        int rc = spw_request_key(request, &chunks[found], &key);
        if (rc == 0)
            rc = find_source(request->space, rank, &key, &out_source[found]);
        if (rc == -ENOENT)
            spw_count(request->client, SPW_CLIENT_sources_gone, 1);
        if (rc == -EAGAIN) /* it is there: its worker is in the middle of writing the entry */
            spw_count(request->client, SPW_CLIENT_sources_unclear, 1);
        if (rc < 0)
            return found > 0 ? (int)found : rc;
        out_tag[found] = key.digest[0];
    }
    return (int)found;
}

static void send_begin(struct spw_request *request, uint32_t rank, uint64_t incarnation,
                       const struct spw_load_source *source, uint32_t count,
                       struct spw_open_job *job)
{
    struct spw_client *client = request->client;
    struct spw_lane_producer *lane = &client->command[job->worker];
    struct spw_command command = spw_command_make(client, SPW_CMD_BEGIN, incarnation);
    uint32_t slots = 0;
    for (uint32_t at = 0; at < count; at += SPW_SOURCES_PER_SLOT) {
        uint32_t n = count - at < SPW_SOURCES_PER_SLOT ? count - at : SPW_SOURCES_PER_SLOT;
        spw_lane_write(lane, ++slots, &source[at], n * (uint32_t)sizeof(*source));
    }
    command.space = request->space->number;
    command.body_slots = (uint8_t)slots;
    command.count = (uint16_t)count;
    command.cookie = spw_book_cookie(job);
    command.arg = rank;
    job->command_pos = lane->tail;
    spw_command_send(client, job->worker, &command);
}

static uint32_t begin_limit(struct spw_request *request, uint32_t k, uint32_t count)
{
    struct spw_client *client = request->client;
    uint32_t limit = spw_command_run_limit(client, request->space->blocks_per_chunk);
    count = count < limit ? count : limit;
    uint32_t want = 1 + (count + SPW_SOURCES_PER_SLOT - 1) / SPW_SOURCES_PER_SLOT;
    uint32_t all = client->own->command_slots;
    uint32_t room = spw_command_room(client, k, want < all ? want : all);
    uint32_t fit = room > 1 ? (room - 1) * SPW_SOURCES_PER_SLOT : 0;
    return count < fit ? count : fit;
}

static int begin(struct spw_request *request, uint32_t rank, const struct spw_chunk_ref *chunks,
                 uint32_t count, uint64_t cookie)
{
    struct spw_client *client = request->client;
    struct spw_load_source source[SPW_MAX_JOB_CHUNKS];
    uint64_t tag[SPW_MAX_JOB_CHUNKS], incarnation;
    uint32_t k = request->space->rank_worker[rank];
    if (!spw_worker_up(client, k, &incarnation))
        return -EOWNERDEAD;
    count = begin_limit(request, k, count < SPW_MAX_JOB_CHUNKS ? count : SPW_MAX_JOB_CHUNKS);
    if (count == 0) {
        spw_count(client, SPW_CLIENT_lanes_full, 1);
        return -EAGAIN;
    }
    if (!spw_book_has_room(&client->book)) {
        spw_count(client, SPW_CLIENT_jobs_full, 1);
        return -EBUSY;
    }
    int found = find_sources(request, rank, chunks, count, source, tag);
    if (found < 0)
        return found;
    struct spw_open_job *job = spw_book_open(&client->book, SPW_OPEN_LOAD);
    job->worker = k;
    job->incarnation = incarnation;
    job->chunks = (uint32_t)found;
    job->cookie = cookie;
    spw_book_assign(job, request);
    for (int i = 0; i < found; i++) {
        spw_book_pin(&client->book, job, source[i].shard, source[i].slot);
        if (request->space->gpu_prefix_cache)
            spw_book_load(&client->book, job, tag[i]);
    }
    send_begin(request, rank, incarnation, source, (uint32_t)found, job);
    spw_count(client, SPW_CLIENT_begins, 1);
    return found;
}

int spw_load_begin(struct spw_request *request, const struct spw_decision *decision, uint32_t rank,
                   const struct spw_chunk_ref *chunks, uint32_t count, uint64_t cookie)
{
    if (!request || !decision || decision->size_bytes < offsetof(struct spw_decision, eta_ns) ||
        rank >= request->space->ranks || !chunks || count == 0 ||
        decision->action != SPW_ACTION_LOAD)
        return -EINVAL;
    struct spw_client *client = request->client;
    int rc = spw_client_check(client);
    if (rc < 0)
        return rc;
    if (!client->in_step || decision->step != client->step)
        return -ESTALE;
    for (uint32_t i = 0; i < count; i++)
        if (!is_needed(decision, &chunks[i]))
            return -EINVAL;
    return begin(request, rank, chunks, count, cookie);
}

int spw_decision_chunks(const struct spw_decision *decision, uint64_t from,
                        struct spw_chunk_ref *out_chunks, uint32_t max)
{
    uint32_t written = 0;
    if (!decision || (!out_chunks && max > 0))
        return -EINVAL;
    for (uint32_t g = 0; g < decision->groups && g < SPW_MAX_GROUPS; g++) {
        const struct spw_need *need = &decision->need[g];
        uint64_t count = need->end - need->first;
        for (uint64_t i = from; i < count && written < max; i++) {
            bool tail = decision->tail_boundary != 0 && i == count - 1;
            out_chunks[written++] = (struct spw_chunk_ref){
                .group = g,
                .index = tail ? SPW_CHUNK_TAIL : need->first + i,
                .boundary = tail ? decision->tail_boundary : 0,
            };
        }
        from = from > count ? from - count : 0;
    }
    return (int)written;
}
