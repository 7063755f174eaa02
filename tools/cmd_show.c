/*
 * spillway stat: what a pool is and does, read from its objects alone, also when everybody is dead.
 * Maps read-only, takes no lock, never waits longer than one look at the progress of daemon and
 * workers.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "shm/alive.h"
#include "tier/layout.h"
#include "tools/gpu_words.h"
#include "tools/look.h"
#include "tools/show.h"

#define LOOK_US 10000u
#define LOOK_NS                                                                                    \
    600000000ull /* a daemon goes round its loop in 0.2 s, a worker in 0.1 s at the most */

struct stat_args {
    struct spw_pool_args pool;
    uint64_t no_hit_after;
};

static const struct spw_option options[] = {
    {"no-hit-after", NULL, SPW_OPTION_COUNT, offsetof(struct stat_args, no_hit_after), 1,
     UINT64_MAX, NULL, "1000",
     "warn when so many chunks were stored and looked for, and never one was found"},
};

static const struct spw_command_form form = {
    .about = "what a pool holds, does and counts",
    .more = options,
    .more_count = sizeof options / sizeof options[0],
};

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

/* Who goes round its loop? Looks until everybody that lives has, or for so long that it must. */
static void gather_progress(const struct spw_pool *pool, struct spw_show_view *out)
{
    uint64_t passes[SPW_WORKERS_MAX], rounds = spw_load_relaxed(&pool->ctl->rounds);
    uint64_t until = spw_monotonic_ns() + LOOK_NS;
    bool waits = true;
    for (uint32_t k = 0; k < pool->geometry.workers; k++) {
        passes[k] = spw_load_relaxed(&pool->feed[k]->passes);
        out->worker[k].alive = spw_lock_held(pool->lock_fd, SPW_LOCK_WORKER(k)) == 1;
    }
    while (waits && spw_monotonic_ns() < until) {
        usleep(LOOK_US);
        out->daemon_moves = spw_load_relaxed(&pool->ctl->rounds) != rounds;
        waits = out->daemon_alive && !out->daemon_moves;
        for (uint32_t k = 0; k < pool->geometry.workers; k++) {
            out->worker[k].moves = spw_load_relaxed(&pool->feed[k]->passes) != passes[k];
            waits |= out->worker[k].alive && !out->worker[k].moves;
        }
    }
}

static void gather_workers(const struct spw_pool *pool, struct spw_show_view *out)
{
    uint64_t part_bytes = largest_part(pool);
    for (uint32_t k = 0; k < pool->geometry.workers; k++) {
        struct spw_show_worker *worker = &out->worker[k];
        const struct spw_feed_head *feed = pool->feed[k];
        const struct spw_worker_state *state = &pool->ctl->worker[k];
        worker->phase = spw_load_relaxed(&state->phase);
        worker->pid = spw_load_relaxed(&state->pid);
        worker->restarts = spw_load_relaxed(&state->restarts);
        worker->inside_pid = spw_load_relaxed(&feed->inside_pid);
        worker->out_of_service = spw_load_relaxed(&state->out_of_service) != 0;
        worker->incarnation = spw_load_relaxed(&feed->incarnation);
        worker->tail = spw_load_relaxed(&feed->tail);
        gather_stream(&feed->stream, part_bytes, worker);
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
            client->counter[i] = spw_client_counted(head, i);
        spw_look_label(head, client->label);
    }
}

static void gather_totals(const struct spw_pool *pool, struct spw_show_view *out)
{
    static const enum spw_client_counter hits[] = {SPW_CLIENT_load_complete, SPW_CLIENT_load_cut,
                                                   SPW_CLIENT_load_tail, SPW_CLIENT_load_limit,
                                                   SPW_CLIENT_load_not_promoted};
    struct spw_show_totals *totals = &out->totals;
    for (uint32_t c = 0; c < pool->geometry.clients; c++) {
        const struct spw_client_head *head = pool->client[c].head;
        if (!head)
            continue;
        totals->lookups += spw_load_relaxed(&head->counter[SPW_CLIENT_lookups]);
        totals->hit_tokens += spw_load_relaxed(&head->counter[SPW_CLIENT_hit_tokens]);
        for (size_t i = 0; i < sizeof hits / sizeof hits[0]; i++)
            totals->hits += spw_load_relaxed(&head->counter[hits[i]]);
    }
    for (uint32_t k = 0; k < pool->geometry.workers; k++) {
        const uint64_t *counter = out->worker[k].counter;
        totals->chunks_stored += counter[SPW_WORKER_chunks_stored];
        totals->chunks_loaded += counter[SPW_WORKER_chunks_loaded];
        totals->bytes_stored += counter[SPW_WORKER_bytes_stored];
        totals->bytes_loaded += counter[SPW_WORKER_bytes_loaded];
        totals->huge_bytes += counter[SPW_WORKER_huge_bytes];
    }
}

/* A pool that only ever takes: engines whose keys don't agree, a space apiece, a wrong route. */
static void warn_of_no_hit(uint64_t limit, struct spw_show_view *out)
{
    const struct spw_show_totals *totals = &out->totals;
    if (totals->chunks_stored < limit || totals->lookups < limit || totals->hits ||
        totals->chunks_loaded)
        return;
    snprintf(out->warning[out->warnings++], SPW_SHOW_TEXT_BYTES,
             "no hit in %" PRIu64 " lookups, after %" PRIu64
             " chunks were stored; do engines that should share agree in keys and fingerprint?",
             totals->lookups, totals->chunks_stored);
}

/* A pool that works on without one of its GPUs. */
static void warn_of_lost_gpus(uint32_t workers, struct spw_show_view *out)
{
    uint32_t lost = 0, first = 0;
    for (uint32_t k = workers; k-- > 0;) {
        lost += out->worker[k].out_of_service;
        first = out->worker[k].out_of_service ? k : first;
    }
    if (lost != 0)
        snprintf(
            out->warning[out->warnings++], SPW_SHOW_TEXT_BYTES,
            "%u of %u workers out of service, worker %u first: their GPUs failed too often; a new "
            "start of the pool tries them again",
            lost, workers, first);
}

static void warn_of_trials(const struct spw_pool *pool, struct spw_show_view *out)
{
    char text[SPW_GPU_WORDS_BYTES];
    for (uint32_t k = 0; k < pool->geometry.workers; k++) {
        if (spw_gpu_words_failed(pool->feed[k], text)[0] == '\0')
            continue;
        snprintf(out->warning[out->warnings++], SPW_SHOW_TEXT_BYTES, "worker %u: %.160s", k, text);
        return; /* others are likely of the same driver; each is shown among the workers */
    }
}

static void gather(const struct spw_pool *pool, struct spw_show_view *out)
{
    out->daemon_alive = spw_lock_held(pool->lock_fd, SPW_LOCK_DAEMON) == 1;
    out->phase = spw_load_relaxed(&pool->ctl->phase);
    out->daemon_pid = spw_load_relaxed(&pool->ctl->daemon_pid);
    for (uint32_t s = 0; s < SPW_SPACES_MAX; s++)
        out->spaces += spw_load_relaxed(&pool->ctl->space[s].ready) == 1;
    gather_progress(pool, out);
    out->updated_ns = spw_load_relaxed(&pool->ctl->updated_ns);
    gather_workers(pool, out);
    gather_clients(pool, out);
    spw_tiers_read(pool, &out->tiers);
    gather_totals(pool, out);
    warn_of_lost_gpus(pool->geometry.workers, out);
    warn_of_trials(pool, out);
}

static int status_of(const struct spw_pool *pool, const struct spw_show_view *view)
{
    if (!view->daemon_alive)
        return SPW_EXIT_STALE;
    if (!view->daemon_moves)
        return SPW_EXIT_STUCK;
    for (uint32_t k = 0; k < pool->geometry.workers; k++)
        if (view->worker[k].alive && !view->worker[k].moves)
            return SPW_EXIT_STUCK;
    return SPW_EXIT_OK;
}

/* What the exit status means, in words. */
static void tell_state(const struct spw_pool *pool, const struct spw_show_view *view)
{
    time_t updated = (time_t)(view->updated_ns / 1000000000);
    char when[40] = "never";
    struct tm local;
    if (view->updated_ns && localtime_r(&updated, &local))
        strftime(when, sizeof when, "%Y-%m-%d %H:%M:%S", &local);
    if (!view->daemon_alive)
        fprintf(stderr,
                "spillway stat: pool %s is stale, last update %s: its daemon is gone, what is "
                "shown is what it left\n",
                pool->path.name, when);
    else if (!view->daemon_moves)
        fprintf(stderr,
                "spillway stat: the daemon of pool %s, pid %" PRIu64
                ", is not responding, last update %s\n",
                pool->path.name, view->daemon_pid, when);
    for (uint32_t i = 0; i < view->warnings; i++)
        fprintf(stderr, "spillway stat: warning: %s\n", view->warning[i]);
}

int spw_cmd_stat(int argc, char *const *argv)
{
    struct stat_args args;
    struct spw_pool *pool;
    int status = spw_command_args_read(argc, argv, &form, &args.pool, NULL);
    if (status >= 0)
        return status;
    status = spw_look_open("stat", &args.pool, &pool);
    if (status)
        return status;
    struct spw_show_view *view = calloc(1, sizeof *view);
    if (!view) {
        fprintf(stderr, "spillway stat: out of memory\n");
        spw_look_close(pool);
        return SPW_EXIT_FAILED;
    }
    gather(pool, view);
    warn_of_no_hit(args.no_hit_after, view);
    if (args.pool.json)
        spw_show_print_json(pool, view);
    else
        spw_show_print_text(pool, view);
    tell_state(pool, view);
    status = status_of(pool, view);
    free(view);
    spw_look_close(pool);
    return status;
}
