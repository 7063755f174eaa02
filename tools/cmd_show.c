/*
 * spillway stat: what a pool is and does, read from its objects alone, also when everybody is dead.
 * Maps read-only, takes no lock, never waits longer than one look at the workers' progress.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "shm/alive.h"
#include "tier/layout.h"
#include "tools/look.h"
#include "tools/show.h"

static void gather_states(const struct spw_pool *pool, uint32_t k, struct spw_show_worker *out)
{
    const struct spw_entry *entry = spw_pool_feed_at(pool, k, pool->feed_map.entry_off);
    for (uint32_t slot = 0; slot < pool->geometry.slots; slot++) {
        /* relaxed: a picture of moving things, each word whole */
        uint32_t state = SPW_PACKED_STATE(spw_load_relaxed(&entry[slot].packed));
        out->filling += state == SPW_FILLING;
        out->ready += state == SPW_READY;
        out->retired += state == SPW_RETIRED;
    }
}

/* What the largest part of any space counts in a stream. */
static uint64_t largest_part(const struct spw_pool *pool)
{
    uint64_t largest = 0;
    for (uint32_t s = 0; s < SPW_SPACES_MAX; s++) {
        const struct spw_space_slot *space = &pool->ctl->space[s];
        /* [SP-1] acquire: ready before the record */
        if (spw_load_acquire(&space->ready) != 1)
            continue;
        for (uint32_t g = 0; g < space->record.groups && g < SPW_GROUP_COUNT_MAX; g++) {
            uint64_t bytes = space->record.group[g].nominal_bytes;
            largest = bytes > largest ? bytes : largest;
        }
    }
    return largest;
}

static uint64_t beyond(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

static void gather_stream(const struct spw_stream *stream, uint64_t part_bytes,
                          struct spw_show_worker *out)
{
    struct spw_stream_sample *sample = &out->stream;
    spw_stream_read(stream, sample);
    out->backlog_bytes = beyond(sample->queued_bytes, sample->done_bytes);
    out->awaited_bytes = beyond(sample->awaited_bytes, sample->done_bytes);
    out->eta_ns = spw_stream_eta(sample, 0, part_bytes, spw_monotonic_ns());
    out->stalled = out->backlog_bytes && sample->rate_bytes_per_s && out->eta_ns == SPW_ETA_UNKNOWN;
}

static void gather_workers(const struct spw_pool *pool, struct spw_show_view *out)
{
    uint64_t passes[SPW_WORKERS_MAX];
    for (uint32_t k = 0; k < pool->geometry.workers; k++)
        passes[k] = spw_load_relaxed(&pool->feed[k]->passes);
    uint64_t part_bytes = largest_part(pool);
    usleep(300000); /* an idle worker goes round its loop at least ten times a second */
    for (uint32_t k = 0; k < pool->geometry.workers; k++) {
        struct spw_show_worker *worker = &out->worker[k];
        const struct spw_feed_head *feed = pool->feed[k];
        const struct spw_worker_state *state = &pool->ctl->worker[k];
        worker->phase = spw_load_relaxed(&state->phase);
        worker->pid = spw_load_relaxed(&state->pid);
        worker->restarts = spw_load_relaxed(&state->restarts);
        worker->incarnation = spw_load_relaxed(&feed->incarnation);
        worker->tail = spw_load_relaxed(&feed->tail);
        gather_stream(&feed->stream, part_bytes, worker);
        worker->alive = spw_lock_held(pool->lock_fd, SPW_LOCK_WORKER(k)) == 1;
        worker->moves = spw_load_relaxed(&feed->passes) != passes[k];
        for (uint32_t i = 0; i < SPW_WORKER_COUNTER_COUNT; i++)
            worker->counter[i] = spw_load_relaxed(&feed->counter[i]);
        gather_states(pool, k, worker);
    }
}

static void gather_clients(const struct spw_pool *pool, struct spw_show_view *out)
{
    for (uint32_t c = 0; c < pool->geometry.clients; c++) {
        const struct spw_client_head *head = pool->client[c].head;
        if (!head || spw_lock_held(pool->lock_fd, SPW_LOCK_CLIENT(c)) != 1)
            continue;
        struct spw_show_client *client = &out->client[out->clients++];
        client->c = c;
        client->generation = spw_load_relaxed(&head->generation);
        client->pid = spw_load_relaxed(&head->pid);
        client->step = spw_load_relaxed(&head->step);
        for (uint32_t k = 0; k < pool->geometry.workers; k++)
            client->in_step |= spw_load_relaxed(&head->applied[k]) != 0;
        client->wait_limit_ns = spw_load_relaxed(&head->wait_limit_ns);
        client->retry_limit_ns = spw_load_relaxed(&head->retry_limit_ns);
        client->budget_tokens = spw_load_relaxed(&head->budget_tokens);
        for (uint32_t i = 0; i < SPW_WAIT_OUTCOMES; i++)
            spw_wait_record_read(&head->wait[i], &client->wait[i]);
        for (uint32_t i = 0; i < SPW_CLIENT_COUNTER_COUNT; i++)
            client->counter[i] = spw_load_relaxed(&head->counter[i]);
        spw_look_label(head, client->label);
    }
}

static void gather(const struct spw_pool *pool, struct spw_show_view *out)
{
    out->daemon_alive = spw_lock_held(pool->lock_fd, SPW_LOCK_DAEMON) == 1;
    out->phase = spw_load_relaxed(&pool->ctl->phase);
    out->daemon_pid = spw_load_relaxed(&pool->ctl->daemon_pid);
    for (uint32_t s = 0; s < SPW_SPACES_MAX; s++)
        out->spaces += spw_load_relaxed(&pool->ctl->space[s].ready) == 1;
    gather_workers(pool, out);
    gather_clients(pool, out);
}

static int status_of(const struct spw_pool *pool, const struct spw_show_view *view)
{
    if (!view->daemon_alive)
        return SPW_EXIT_STALE;
    for (uint32_t k = 0; k < pool->geometry.workers; k++)
        if (view->worker[k].alive && !view->worker[k].moves)
            return SPW_EXIT_STUCK;
    return SPW_EXIT_OK;
}

int spw_cmd_stat(int argc, char *const *argv)
{
    struct spw_pool_args args;
    struct spw_pool *pool;
    int status = spw_pool_args_read(argc, argv, "what a pool holds, does and counts", &args);
    if (status >= 0)
        return status;
    status = spw_look_open("stat", &args, &pool);
    if (status)
        return status;
    struct spw_show_view *view = calloc(1, sizeof *view);
    if (!view) {
        fprintf(stderr, "spillway stat: out of memory\n");
        spw_look_close(pool);
        return SPW_EXIT_FAILED;
    }
    gather(pool, view);
    if (args.json)
        spw_show_print_json(pool, view);
    else
        spw_show_print_text(pool, view);
    status = status_of(pool, view);
    if (status == SPW_EXIT_STALE)
        fprintf(stderr,
                "spillway stat: the daemon of pool %s is gone; what is shown is what it left\n",
                args.pool);
    free(view);
    spw_look_close(pool);
    return status;
}
