/*
 * Promotions: what a deferred request waits for and only the tier below has is asked for at one
 * worker that has it, its own rank's first. Each chunk is asked for once a wait; what won't come, or
 * came and is gone again, reads MISS for that request until it is decided (evaluate.c). So a chunk
 * that can't be brought makes nobody wait for long, or ask for ever.
 *
 *            no room in a lane: at the next step
 *              .--.
 *              |  v   command             answer                 seen below at a later step
 *            WANTED ----------> ASKED ---------------> SETTLED -----------------------------> lost
 *              ^                  |'-- answer: won't come ----------------------------------> lost
 *              '-- worker dead ---'
 *
 *   roles     one thread of one client; written: its command lanes, through send.c
 *   order     a worker publishes FILLING before it answers, so what a step begun after the answer
 *             sees below has been given up there
 *   crash     a client that dies between body and head leaves nothing that is seen; what it asked
 *             for is brought or dropped by the worker as it likes
 */
#include "sched/handle.h"

#define LANE_SHARE 8u /* so much of a lane is left for what must not wait */
#define MOST_SLOTS ((SPW_JOB_CHUNKS_MAX + SPW_TOUCHES_PER_SLOT - 1) / SPW_TOUCHES_PER_SLOT)

/* ---- what a chunk is at its workers ---------------------------------------------------------- */

/* Pairs of the workers that have the part of @rank below, if nobody has it or writes it. */
static uint64_t only_below(const struct spw_space *space, uint32_t rank, uint64_t word)
{
    const struct spw_judge *judge = &space->judge;
    uint64_t up = judge->up & judge->mask[rank];
    word &= judge->live;
    if ((spw_replica_ready(word) & judge->mask[rank]) != 0 || (spw_replica_pending(word) & up) != 0)
        return 0;
    return spw_replica_cold(word) & up;
}

/* Of these pairs the one that is asked. */
static uint64_t nearest(const struct spw_space *space, uint32_t rank, uint64_t pairs)
{
    uint64_t own = 1ull << 2 * space->rank_worker[rank];
    return pairs & own ? own : pairs & -pairs;
}

/* @rank's worker has answered, and what it said was to be seen when this step began. */
static bool settled_before(const struct spw_request *request, const struct spw_ask *ask,
                           uint32_t rank)
{
    return ask->settled >> rank & 1 && request->client->step != request->asks.settled_step;
}

bool spw_promote_lost(const struct spw_request *request, const struct spw_ask *ask, uint64_t word)
{
    for (uint32_t r = 0; ask->asked != 0 && r < request->space->judge.ranks; r++)
        if ((ask->refused >> r & 1 || settled_before(request, ask, r)) &&
            only_below(request->space, r, word) != 0)
            return true;
    return false;
}

/* ---- chunks of a deferral -------------------------------------------------------------------- */

/* All that it waits for, first needed first: chunks by where they begin, then the tail's objects. */
struct cursor {
    struct spw_request *request;
    const struct spw_decision_core *core;
    uint64_t next[SPW_MAX_GROUPS];
    uint32_t next_tail; /* group */
};

struct found {
    struct spw_want want;
    uint64_t tag;
    uint64_t word;
    struct spw_ask *ask;
};

static void begin(struct cursor *cursor, struct spw_request *request,
                  const struct spw_decision_core *core)
{
    *cursor = (struct cursor){.request = request, .core = core};
    for (uint32_t g = 0; g < request->space->groups.count; g++)
        cursor->next[g] = core->await[g].first;
}

static uint32_t shallowest(const struct cursor *cursor)
{
    const struct spw_groups *groups = &cursor->request->space->groups;
    uint32_t found = SPW_MAX_GROUPS;
    uint64_t least = UINT64_MAX;
    for (uint32_t g = 0; g < groups->count; g++) {
        uint64_t at = cursor->next[g] * groups->group[g].chunk_tokens;
        if (cursor->next[g] < cursor->core->await[g].end && at < least) {
            least = at;
            found = g;
        }
    }
    return found;
}

static struct spw_boundary *boundary_at(const struct spw_request *request, uint64_t at)
{
    for (uint32_t i = 0; i < request->boundaries; i++)
        if (request->boundary[i]->at == at)
            return request->boundary[i];
    return NULL;
}

static bool next_tail(struct cursor *cursor, struct found *out)
{
    struct spw_request *request = cursor->request;
    uint64_t at = cursor->core->await_boundary;
    struct spw_boundary *tail = at ? boundary_at(request, at) : NULL;
    if (!tail || cursor->next_tail == request->space->groups.count)
        return false;
    uint32_t g = cursor->next_tail++;
    uint64_t tag = tail->group[g].digest[0];
    *out = (struct found){
        .want = {.at = at, .group = g, .tail = true},
        .tag = tag,
        .word = spw_replica_get(&request->client->views.replica, tag),
        .ask = &tail->group[g].ask,
    };
    return true;
}

static bool next(struct cursor *cursor, struct found *out)
{
    struct spw_request *request = cursor->request;
    uint32_t g;
    while ((g = shallowest(cursor)) != SPW_MAX_GROUPS) {
        const struct spw_scratch *scratch = &request->client->scratch[g];
        uint64_t i = cursor->next[g]++;
        if (scratch->verdict[i] != SPW_PENDING)
            continue;
        *out = (struct found){
            .want = {.at = i, .group = g},
            .tag = request->keys[g].tag[i],
            .word = scratch->word[i],
            .ask = &request->keys[g].ask[i],
        };
        return true;
    }
    return next_tail(cursor, out);
}

static struct spw_ask *ask_of(const struct spw_request *request, const struct spw_want *want)
{
    if (!want->tail)
        return &request->keys[want->group].ask[want->at];
    struct spw_boundary *tail = boundary_at(request, want->at);
    return tail ? &tail->group[want->group].ask : NULL;
}

/* ---- asking ---------------------------------------------------------------------------------- */

/* Workers that are to be asked; *out_again: something has just been answered and is still below. */
static uint64_t pairs_to_ask(struct spw_request *request, const struct spw_decision_core *core,
                             bool *out_again)
{
    const struct spw_space *space = request->space;
    uint64_t pairs = 0;
    struct cursor cursor;
    struct found found;
    begin(&cursor, request, core);
    *out_again = false;
    while (next(&cursor, &found))
        for (uint32_t r = 0; r < space->judge.ranks; r++) {
            uint64_t below = only_below(space, r, found.word);
            if (below != 0 && !(found.ask->asked >> r & 1))
                pairs |= nearest(space, r, below);
            else if (below != 0 && found.ask->settled >> r & 1)
                *out_again = true;
        }
    return pairs;
}

/* The rank whose parts worker @k keeps; one at most. */
static uint32_t rank_at(const struct spw_space *space, uint32_t k)
{
    uint32_t r = 0;
    while (r + 1 < space->judge.ranks && !(space->judge.mask[r] >> 2 * k & 1))
        r++;
    return r;
}

static void note_asked(struct spw_request *request, const struct found *found, uint32_t rank)
{
    struct spw_chunk_range *range = &request->asks.range[found->want.group];
    found->ask->asked |= 1u << rank;
    request->asks.any = true;
    if (found->want.tail)
        return;
    if (range->end == 0)
        range->first = found->want.at;
    range->first = found->want.at < range->first ? found->want.at : range->first;
    range->end = found->want.at >= range->end ? found->want.at + 1 : range->end;
}

static void send(struct spw_request *request, struct spw_open_job *job, const struct found *found)
{
    struct spw_client *client = request->client;
    struct spw_lane_producer *lane = &client->command[job->worker];
    struct spw_command command = spw_command_make(client, SPW_CMD_PROMOTE, job->incarnation);
    uint64_t word[SPW_TOUCHES_PER_SLOT];
    uint32_t words = 0, slots = 0;
    for (uint32_t i = 0; i < job->chunks; i++) {
        note_asked(request, &found[i], job->rank);
        job->want[i] = found[i].want;
        word[words++] = found[i].tag;
        if (words < SPW_TOUCHES_PER_SLOT && i + 1 < job->chunks)
            continue;
        spw_lane_write(lane, ++slots, word, words * (uint32_t)sizeof(word[0]));
        words = 0;
    }
    command.space = request->space->number;
    command.body_slots = (uint8_t)slots;
    command.count = (uint16_t)job->chunks;
    command.cookie = spw_book_cookie(job);
    spw_command_send(client, job->worker, &command);
    spw_count(client, SPW_CLIENT_promotes, job->chunks);
}

/* Chunks that the lane to worker @k takes now. */
static uint32_t room_at(struct spw_client *client, uint32_t k)
{
    uint32_t all = client->own->command_slots, kept = 1 + all / LANE_SHARE;
    uint32_t want = MOST_SLOTS + kept;
    uint32_t room = spw_command_room(client, k, want < all ? want : all);
    uint32_t slots = room > kept ? room - kept : 0;
    return slots < MOST_SLOTS ? slots * SPW_TOUCHES_PER_SLOT : SPW_JOB_CHUNKS_MAX;
}

/* The next of those that worker @k is to be asked for, at most a command's. */
static uint32_t gather(struct cursor *cursor, uint32_t k, uint32_t rank, struct found *out)
{
    const struct spw_space *space = cursor->request->space;
    uint32_t count = 0;
    while (count < SPW_JOB_CHUNKS_MAX && next(cursor, &out[count])) {
        uint64_t below = only_below(space, rank, out[count].word);
        if (below != 0 && nearest(space, rank, below) == 1ull << 2 * k &&
            !(out[count].ask->asked >> rank & 1))
            count++;
    }
    return count;
}

static bool ask_worker(struct spw_request *request, const struct spw_decision_core *core,
                       uint32_t k)
{
    struct spw_client *client = request->client;
    struct found found[SPW_JOB_CHUNKS_MAX];
    uint32_t rank = rank_at(request->space, k), count;
    struct cursor cursor;
    uint64_t incarnation;
    if (!spw_worker_up(client, k, &incarnation))
        return true; /* it went in this step: the next one wakes all */
    begin(&cursor, request, core);
    while ((count = gather(&cursor, k, rank, found)) != 0) {
        uint32_t room = room_at(client, k);
        bool no_job = spw_list_empty(&client->book.free);
        spw_count(client, SPW_CLIENT_lanes_full, room < count);
        spw_count(client, SPW_CLIENT_jobs_full, no_job);
        if (room == 0 || no_job)
            return false;
        struct spw_open_job *job = spw_book_open(&client->book, SPW_OPEN_PROMOTE);
        job->worker = k;
        job->incarnation = incarnation;
        job->rank = rank;
        job->wait = request->asks.wait;
        job->chunks = count < room ? count : room;
        spw_book_assign(job, request);
        send(request, job, found);
        if (room < count)
            return false;
    }
    return true;
}

bool spw_promote(struct spw_request *request, const struct spw_decision_core *core)
{
    bool again, all = true;
    if (request->client->pool.geometry.cold_chunks == 0)
        return true;
    uint64_t pairs = pairs_to_ask(request, core, &again);
    for (; pairs != 0; pairs &= pairs - 1)
        all = ask_worker(request, core, (uint32_t)__builtin_ctzll(pairs) / 2) && all;
    return all && !again;
}

/* ---- what became of it ----------------------------------------------------------------------- */

void spw_promote_over(struct spw_request *request)
{
    struct spw_asks *asks = &request->asks;
    if (!asks->any)
        return;
    for (uint32_t g = 0; g < request->space->groups.count; g++) {
        uint64_t count = asks->range[g].end - asks->range[g].first;
        if (count != 0)
            memset(request->keys[g].ask + asks->range[g].first, 0,
                   count * sizeof(*request->keys[g].ask));
    }
    for (uint32_t i = 0; i < request->boundaries; i++)
        for (uint32_t g = 0; g < request->space->groups.count; g++)
            request->boundary[i]->group[g].ask = (struct spw_ask){0};
    *asks = (struct spw_asks){.wait = asks->wait + 1};
}

static void settle(struct spw_request *request, const struct spw_open_job *job,
                   const struct spw_done *done)
{
    uint64_t refused = done && done->status < 0 && done->mask == 0 ? UINT64_MAX
                       : done                                      ? done->mask
                                                                   : 0;
    uint32_t bit = 1u << job->rank;
    for (uint32_t i = 0; i < job->chunks; i++) {
        struct spw_ask *ask = ask_of(request, &job->want[i]);
        if (!ask)
            continue;
        if (!done) {
            ask->asked &= ~bit;
            continue;
        }
        ask->settled |= bit;
        ask->refused |= refused >> i & 1 ? bit : 0;
        spw_count(request->client, SPW_CLIENT_promotes_refused, refused >> i & 1);
    }
    request->asks.settled_step = request->client->step;
    spw_wakeup_one(&request->client->wakeup, &request->waiter);
}

void spw_promote_settle(struct spw_client *client, struct spw_open_job *job,
                        const struct spw_done *done)
{
    struct spw_request *request = job->request;
    if (request && request->asks.wait == job->wait)
        settle(request, job, done);
    else if (done)
        spw_count(client, SPW_CLIENT_late_completions, 1);
    spw_count(client, SPW_CLIENT_owner_dead, !done);
    spw_book_end(&client->book, job);
}
