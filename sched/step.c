/*
 * Steps: bring the views up to date, see who is up, publish positions in the order that keeps a HIT
 * loadable (shm/client.h). Written: this client's step words, through shm/client.h. A client that
 * dies in a step leaves words that workers ignore once its lock is free.
 */
#include "sched/handle.h"

#include "shm/doorbell.h"
#include "tier/adopt.h"

#include <limits.h>

#define RESYNC_BUDGET 64u /* pieces of resync a step, all shards together */

/* ---- who is up ------------------------------------------------------------------------------- */

bool spw_worker_up(const struct spw_client *client, uint32_t k, uint64_t *out_incarnation)
{
    const struct spw_worker_state *state = &client->pool.ctl->worker[k];
    const struct spw_feed_head *feed = client->pool.feed[k];
    /* [WS-1] acquire: phase before the incarnation it speaks of */
    uint32_t phase = spw_load_acquire(&state->phase);
    uint64_t incarnation = spw_feed_incarnation(feed);
    *out_incarnation = incarnation;
    return phase == SPW_WORKER_UP && !(client->bereft >> k & 1) &&
           spw_load_relaxed(&state->incarnation) == incarnation &&
           /* [CL-2] acquire: acknowledged, by a restarted worker too, before its lanes are used */
           spw_load_acquire(&feed->acked[client->number]) == client->generation;
}

static void look_who_is_up(struct spw_client *client)
{
    uint64_t up = 0, incarnation;
    for (uint32_t k = 0; k < client->workers; k++)
        if (spw_worker_up(client, k, &incarnation))
            up |= 1ull << k;
    if (up != client->up)
        spw_wakeup_all(&client->wakeup);
    client->up = up;
}

/* ---- what a judge sees ----------------------------------------------------------------------- */

static uint64_t rank_mask(const struct spw_space *space, uint32_t rank)
{
    const struct spw_space_slot *slot = &space->client->pool.ctl->space[space->number];
    /* relaxed: an older mask shows fewer chunks */
    return spw_load_relaxed(&slot->rank_workers[rank]);
}

void spw_space_refresh(struct spw_space *space)
{
    struct spw_client *client = space->client;
    struct spw_judge *judge = &space->judge;
    bool same = true;
    judge->live = client->views.live;
    judge->up = spw_judge_pairs(client->up);
    judge->parts = 0;
    judge->ranks = space->ranks;
    for (uint32_t r = 0; r < space->ranks; r++) {
        uint64_t mask = rank_mask(space, r);
        same = same && mask == space->rank_mask[r];
        space->rank_mask[r] = mask;
        judge->mask[r] = spw_judge_pairs(mask);
        judge->parts |= judge->mask[r];
    }
    if (space->own_workers & ~client->up) { /* no copier of our own: nothing can be loaded */
        judge->ranks = 1;
        judge->mask[0] = 0;
    }
    if (!same)
        spw_wakeup_all(&client->wakeup);
    for (uint32_t k = 0; k < client->workers; k++)
        space->generation[k] =
            spw_load_relaxed(&client->pool.feed[k]->space_generation[space->number]);
}

/* ---- steps ----------------------------------------------------------------------------------- */

static void count_views(struct spw_client *client)
{
    const struct spw_view_counts *now = &client->views.counts;
    struct spw_view_counts *then = &client->counted;
    spw_count(client, SPW_CLIENT_records, now->records - then->records);
    spw_count(client, SPW_CLIENT_gaps, now->gaps - then->gaps);
    spw_count(client, SPW_CLIENT_resyncs, now->resyncs - then->resyncs);
    spw_count(client, SPW_CLIENT_replica_full, now->full - then->full);
    *then = *now;
}

static void update_views(struct spw_client *client, uint64_t budget)
{
    uint64_t live = client->views.live, resyncs = client->views.counts.resyncs;
    for (uint32_t k = 0; k < client->workers; k++) {
        spw_views_update(&client->views, k, &budget);
        if (spw_view_live(&client->views, k))
            spw_client_step_applied(client->own, k, client->views.view[k].position);
    }
    if (client->views.live != live || client->views.counts.resyncs != resyncs)
        spw_wakeup_all(&client->wakeup);
}

int spw_step_begin(struct spw_client *client)
{
    uint64_t position[SPW_WORKERS_MAX];
    if (!client)
        return -EINVAL;
    uint64_t records = client->views.counts.records;
    spw_client_watch(client);
    int rc = spw_client_check(client);
    if (rc < 0)
        return rc;
    if (client->in_step)
        return -EALREADY;
    for (uint32_t k = 0; k < client->workers; k++)
        position[k] = client->views.view[k].position;
    client->step = spw_client_step_begin(client->own, position);
    client->in_step = true;
    client->now_ns = spw_client_now(client);
    update_views(client, RESYNC_BUDGET);
    look_who_is_up(client);
    for (struct spw_link *at = client->spaces.after; at != &client->spaces; at = at->after)
        spw_space_refresh(SPW_LINKED(at, struct spw_space, link));
    if (client->loading_epoch != client->loading_told)
        spw_wakeup_loading(&client->wakeup);
    client->loading_told = client->loading_epoch;
    spw_wakeup_due(&client->wakeup, client->now_ns);
    spw_count(client, SPW_CLIENT_steps, 1);
    count_views(client);
    records = client->views.counts.records - records;
    return records < INT_MAX ? (int)records : INT_MAX;
}

static void ring_now(struct spw_client *client, uint32_t k)
{
    const spw_atomic64 *tail = &client->own->head->lane[k].command_tail;
    int rang = spw_doorbell_ring(spw_doorbell_low_half(tail), &client->pool.feed[k]->asleep);
    spw_count(client, SPW_CLIENT_doorbells, rang > 0);
}

void spw_client_ring(struct spw_client *client, uint32_t k)
{
    if (client->in_step)
        client->to_ring |= 1ull << k;
    else
        ring_now(client, k);
}

int spw_step_end(struct spw_client *client)
{
    int rc = client ? spw_client_check(client) : -EINVAL;
    if (rc < 0)
        return rc;
    if (!client->in_step)
        return -EINVAL;
    spw_client_step_end(client->own);
    client->in_step = false;
    for (; client->to_ring != 0; client->to_ring &= client->to_ring - 1)
        ring_now(client, (uint32_t)__builtin_ctzll(client->to_ring));
    return 0;
}
