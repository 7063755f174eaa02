/*
 * Clients that come and go, as one worker sees them (shm/client.h tells the client's half).
 *
 * Writes acked[c] of its own feed and its side of each client's lanes; reads generations, bases
 * and lock bytes. A client's words are not touched between the acknowledgement of its end and the
 * arrival of the next generation.
 *
 *   worker does                  others see if it dies right after
 *   jobs of the generation end   its successor knows none of them
 *   head = base, none fenced     the next worker does it again: acked[c] is still the old one
 *   acked[c] = generation        the client may send; the next worker goes on at head
 */
#include "shm/alive.h"
#include "shm/crash_point.h"
#include "tier/worker_impl.h"

#define MAP_RETRY_NS 1000000000ull /* of objects that can't be mapped yet */

static uint64_t generation_of(const struct spw_worker *worker, uint32_t c)
{
    /* [CL-1] acquire: the new holder's words before its generation */
    return spw_load_acquire(&worker->pool->client[c].head->generation);
}

static bool holder_lives(const struct spw_worker *worker, uint32_t c)
{
    return spw_lock_held(worker->pool->lock_fd, SPW_LOCK_CLIENT(c)) == 1;
}

bool spw_worker_serves(const struct spw_worker *worker, struct spw_job_party party)
{
    return party.client < worker->clients &&
           worker->client[party.client].phase == SPW_CLIENT_SERVED &&
           worker->client[party.client].generation == party.generation;
}

bool spw_worker_client_dead(void *ctx, uint32_t c, uint64_t generation)
{
    const struct spw_worker *worker = ctx;
    return c < worker->clients && worker->client[c].phase != SPW_CLIENT_SERVED &&
           worker->client[c].generation == generation;
}

/* Its lanes go on where this worker (or the one before) left its own side. A predecessor that died
 * between a completion's sequence and the tail has sent it: the tail must lie beyond. */
static void take_up_lanes(struct spw_worker *worker, uint32_t c)
{
    struct spw_worker_client *client = &worker->client[c];
    struct spw_client_view *view = &worker->pool->client[c];
    uint32_t k = worker->config.k;
    struct spw_lane_worker *ours = &view->head->worker_lane[k];
    struct spw_lane_client *theirs = &view->head->lane[k];
    struct spw_lane_slot *completion = view->completion + (uint64_t)k * view->completion_slots;

    spw_lane_consumer_init(&client->commands, view->command + (uint64_t)k * view->command_slots,
                           view->command_slots, &ours->command_head);
    uint64_t tail = spw_load_relaxed(&ours->completion_tail); /* only this worker writes it */
    spw_store_relaxed(&ours->completion_tail,
                      spw_lane_sent(completion, view->completion_slots, tail));
    spw_lane_producer_init(&client->completions, completion, view->completion_slots,
                           &ours->completion_tail, &theirs->completion_head);
}

static void serve(struct spw_worker *worker, uint32_t c, uint64_t generation)
{
    struct spw_worker_client *client = &worker->client[c];
    client->phase = SPW_CLIENT_SERVED;
    client->generation = generation;
    client->owed = 0;
    client->open_jobs = 0;
    client->claim_tries = 0;
    spw_worker_stream_stale(worker); /* its bits count from now on */
    client->waits_for_room = false;
    client->promoting = (struct spw_worker_promoting){0};
    client->below_reset = 0;
    client->below_over = false;
}

/* The new holder takes answers from where it found our tail. That lies in its object: whatever an
 * earlier holder wrote over it, both sides go on behind what the new one finds there. */
static void meet_completions(struct spw_worker_client *client, const struct spw_lane_client *theirs)
{
    struct spw_lane_producer *lane = &client->completions;
    lane->head_cached = spw_load_relaxed(&theirs->completion_head);
    lane->tail = spw_lane_sent(lane->slot, lane->mask + 1, lane->head_cached);
    spw_store_relaxed(lane->tail_at, lane->tail);
}

/* A new holder: what lies before its base is void. */
static void welcome(struct spw_worker *worker, uint32_t c, uint64_t generation)
{
    struct spw_worker_client *client = &worker->client[c];
    const struct spw_lane_client *theirs = &worker->pool->client[c].head->lane[worker->config.k];
    /* relaxed: stored before the generation, which was read with acquire */
    client->commands.head = spw_load_relaxed(&theirs->command_base);
    spw_lane_release(&client->commands, 0);
    meet_completions(client, theirs);
    SPW_CRASH_POINT("worker.client_base_taken");
    serve(worker, c, generation);
    /* steps of the earlier holder say nothing of this one's, should it have written nonsense there */
    spw_store_relaxed(&worker->feed->fenced[c], 0);
    /* [CL-2] release: lanes as they go on and no step fenced, before the acknowledgement */
    spw_store_release(&worker->feed->acked[c], generation);
    SPW_CRASH_POINT("worker.client_acknowledged");
}

static void leave(struct spw_worker *worker, uint32_t c)
{
    spw_worker_count(worker, SPW_WORKER_clients_gone, 1);
    worker->client[c].phase = SPW_CLIENT_LEAVING;
    spw_worker_stream_stale(worker); /* its bits no longer count */
    spw_worker_end_jobs_of(worker, c);
    SPW_CRASH_POINT("worker.client_jobs_ended");
}

/* ---- objects that the client has spoilt ------------------------------------------------------ */

static bool objects_lost(const struct spw_worker *worker, uint32_t c)
{
    return spw_region_lost(&worker->pool->region_client[c]) ||
           spw_region_lost(&worker->pool->region_kv[c]);
}

static uint64_t number_of(const struct spw_worker *worker, uint32_t c)
{
    /* [CO-1] acquire: the number before the objects that it stands for */
    return spw_load_acquire(&worker->pool->ctl->client_object[c]);
}

/* Made anew since they were mapped; or lost, and perhaps whole again by now. */
static bool should_map(const struct spw_worker *worker, uint32_t c, bool lost)
{
    const struct spw_worker_client *client = &worker->client[c];
    return number_of(worker, c) != client->object || (lost && worker->now_ns >= client->map_ns);
}

/* Nobody is served there and no copy touches it. False: they stay lost for now. */
static bool map_anew(struct spw_worker *worker, uint32_t c)
{
    struct spw_pool *pool = worker->pool;
    struct spw_worker_client *client = &worker->client[c];
    client->object = number_of(worker, c);
    client->map_ns = worker->now_ns + MAP_RETRY_NS;
    bool mapped =
        spw_region_renew(&pool->region_client[c], &pool->path, SPW_REGION_CLIENT, c, NULL) == 0 &&
        (!pool->kv[c] ||
         spw_region_renew(&pool->region_kv[c], &pool->path, SPW_REGION_KV, c, NULL) == 0);
    if (!mapped) {
        spw_region_set_lost(&pool->region_client[c]);
        return false;
    }
    take_up_lanes(worker, c);
    return true;
}

/* One client, one look. Returns true if anything changed. */
static bool check_client(struct spw_worker *worker, uint32_t c, bool ask_locks)
{
    struct spw_worker_client *client = &worker->client[c];
    uint64_t generation = generation_of(worker, c);
    bool lost = objects_lost(worker, c), changed = false; /* asked after a look at them */
    if (client->phase == SPW_CLIENT_SERVED &&
        (lost || generation != client->generation || (ask_locks && !holder_lives(worker, c)))) {
        leave(worker, c);
        changed = true;
    }
    if (client->phase == SPW_CLIENT_LEAVING && client->in_copy == 0) {
        spw_worker_kv_leave(worker, c);
        client->phase = SPW_CLIENT_ABSENT;
        changed = true;
    }
    if (client->phase == SPW_CLIENT_ABSENT && ask_locks && should_map(worker, c, lost)) {
        lost = !map_anew(worker, c);
        generation = generation_of(worker, c);
        changed = true;
    }
    if (client->phase == SPW_CLIENT_ABSENT && lost) {
        client->generation = generation; /* zero pages: nobody */
    } else if (client->phase == SPW_CLIENT_ABSENT && generation != client->generation) {
        if (holder_lives(worker, c))
            welcome(worker, c, generation);
        else
            client->generation = generation; /* came and went unseen */
        changed = true;
    }
    return changed;
}

uint32_t spw_worker_check_clients(struct spw_worker *worker, bool ask_locks)
{
    uint32_t changed = 0;
    for (uint32_t c = 0; c < worker->clients; c++)
        changed += check_client(worker, c, ask_locks);
    return changed;
}

bool spw_worker_clients_changed(const struct spw_worker *worker)
{
    for (uint32_t c = 0; c < worker->clients; c++)
        if (worker->client[c].phase != SPW_CLIENT_LEAVING &&
            generation_of(worker, c) != worker->client[c].generation)
            return true;
    return false;
}

/* Made anew between the attach and the look at the number? */
static bool objects_current(const struct spw_worker *worker, uint32_t c)
{
    const struct spw_pool *pool = worker->pool;
    return spw_region_intact(&pool->region_client[c], &pool->path, SPW_REGION_CLIENT, c) &&
           (!pool->kv[c] || spw_region_intact(&pool->region_kv[c], &pool->path, SPW_REGION_KV, c));
}

void spw_worker_open_clients(struct spw_worker *worker)
{
    for (uint32_t c = 0; c < worker->clients; c++) {
        uint64_t acked = spw_load_relaxed(&worker->feed->acked[c]); /* only this worker writes */
        worker->client[c].generation = acked;
        worker->client[c].object = number_of(worker, c);
        if (worker->client[c].object != 0 && !objects_current(worker, c))
            spw_region_set_lost(&worker->pool->region_client[c]);
        take_up_lanes(worker, c);
        if (!objects_lost(worker, c) && acked != 0 && generation_of(worker, c) == acked &&
            holder_lives(worker, c))
            serve(worker, c, acked);
    }
}

bool spw_worker_orphaned(struct spw_worker *worker)
{
    bool alone = spw_lock_held(worker->pool->lock_fd, SPW_LOCK_DAEMON) == 0;
    for (uint32_t c = 0; alone && c < worker->clients; c++)
        alone = worker->client[c].phase == SPW_CLIENT_ABSENT;
    if (!alone)
        worker->alone_since_ns = worker->now_ns;
    return worker->now_ns - worker->alone_since_ns >= worker->config.orphan_ns && alone;
}
