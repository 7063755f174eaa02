/*
 * spillway stat: what a pool is and does, read from its objects alone, also when everybody is dead.
 * Maps read-only, takes no lock, never waits longer than one look at the workers' progress.
 */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "sched/counters.h"
#include "shm/alive.h"
#include "tier/counters.h"
#include "tier/layout.h"
#include "tools/command.h"

struct worker_view {
    uint32_t phase;
    uint64_t incarnation, pid, restarts, tail;
    uint64_t bytes_done, bytes_queued;
    uint32_t filling, ready, retired;
    bool alive, moves;
    uint64_t counter[SPW_WORKER_COUNTER_COUNT];
};

struct client_view {
    uint32_t c;
    uint64_t generation, pid, step;
    bool in_step;
    char label[48];
    uint64_t counter[SPW_CLIENT_COUNTER_COUNT];
};

struct pool_view {
    bool daemon_alive;
    uint32_t phase;
    uint64_t daemon_pid;
    uint32_t clients, spaces;
    struct worker_view worker[SPW_WORKERS_MAX];
    struct client_view client[SPW_CLIENTS_MAX];
};

static const char *phase_name(uint32_t phase)
{
    static const char *const names[] = {"starting", "serving", "closed"};
    return phase < 3 ? names[phase] : "?";
}

static const char *worker_word(const struct worker_view *worker)
{
    if (!worker->alive)
        return worker->phase == SPW_WORKER_UP ? "dead" : "down";
    return worker->moves ? "up" : "stuck";
}

static void gather_states(const struct spw_pool *pool, uint32_t k, struct worker_view *out)
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

static void gather_workers(const struct spw_pool *pool, struct pool_view *out)
{
    uint64_t passes[SPW_WORKERS_MAX];
    for (uint32_t k = 0; k < pool->geometry.workers; k++)
        passes[k] = spw_load_relaxed(&pool->feed[k]->passes);
    usleep(300000); /* an idle worker goes round its loop at least ten times a second */
    for (uint32_t k = 0; k < pool->geometry.workers; k++) {
        struct worker_view *worker = &out->worker[k];
        const struct spw_feed_head *feed = pool->feed[k];
        const struct spw_worker_state *state = &pool->ctl->worker[k];
        worker->phase = spw_load_relaxed(&state->phase);
        worker->pid = spw_load_relaxed(&state->pid);
        worker->restarts = spw_load_relaxed(&state->restarts);
        worker->incarnation = spw_load_relaxed(&feed->incarnation);
        worker->tail = spw_load_relaxed(&feed->tail);
        worker->bytes_done = spw_load_relaxed(&feed->stream.bytes_done);
        worker->bytes_queued = spw_load_relaxed(&feed->stream.bytes_queued);
        worker->alive = spw_lock_held(pool->lock_fd, SPW_LOCK_WORKER(k)) == 1;
        worker->moves = spw_load_relaxed(&feed->passes) != passes[k];
        for (uint32_t i = 0; i < SPW_WORKER_COUNTER_COUNT; i++)
            worker->counter[i] = spw_load_relaxed(&feed->counter[i]);
        gather_states(pool, k, worker);
    }
}

static void gather_clients(const struct spw_pool *pool, struct pool_view *out)
{
    for (uint32_t c = 0; c < pool->geometry.clients; c++) {
        const struct spw_client_head *head = pool->client[c].head;
        if (!head || spw_lock_held(pool->lock_fd, SPW_LOCK_CLIENT(c)) != 1)
            continue;
        struct client_view *client = &out->client[out->clients++];
        client->c = c;
        client->generation = spw_load_relaxed(&head->generation);
        client->pid = spw_load_relaxed(&head->pid);
        client->step = spw_load_relaxed(&head->step);
        for (uint32_t k = 0; k < pool->geometry.workers; k++)
            client->in_step |= spw_load_relaxed(&head->applied[k]) != 0;
        for (uint32_t i = 0; i < SPW_CLIENT_COUNTER_COUNT; i++)
            client->counter[i] = spw_load_relaxed(&head->counter[i]);
        for (size_t i = 0; i + 1 < sizeof client->label; i++) {
            char letter =
                head->label[i]; /* another process may write it: copied, closed, cleaned */
            client->label[i] = letter == 0 || (letter >= ' ' && letter < 127) ? letter : '?';
        }
    }
}

static void gather(const struct spw_pool *pool, struct pool_view *out)
{
    out->daemon_alive = spw_lock_held(pool->lock_fd, SPW_LOCK_DAEMON) == 1;
    out->phase = spw_load_relaxed(&pool->ctl->phase);
    out->daemon_pid = spw_load_relaxed(&pool->ctl->daemon_pid);
    for (uint32_t s = 0; s < SPW_SPACES_MAX; s++)
        out->spaces += spw_load_relaxed(&pool->ctl->space[s].ready) == 1;
    gather_workers(pool, out);
    gather_clients(pool, out);
}

static int status_of(const struct spw_pool *pool, const struct pool_view *view)
{
    if (!view->daemon_alive)
        return SPW_EXIT_STALE;
    for (uint32_t k = 0; k < pool->geometry.workers; k++)
        if (view->worker[k].alive && !view->worker[k].moves)
            return SPW_EXIT_STUCK;
    return SPW_EXIT_OK;
}

static void print_counter(const char *name, uint64_t sum, const char *text)
{
    printf("  %-22s %14" PRIu64 "  %s\n", name, sum, text);
}

static void print_worker_counters(uint32_t workers, const struct pool_view *view)
{
    printf("\ncounters, all workers together\n");
    for (uint32_t i = 0; i < SPW_WORKER_COUNTER_COUNT; i++) {
        uint64_t sum = 0;
        for (uint32_t k = 0; k < workers; k++)
            sum += view->worker[k].counter[i];
        print_counter(spw_worker_counter_name(i), sum, spw_worker_counter_text(i));
    }
}

static void print_client_counters(const struct pool_view *view)
{
    printf("\ncounters, all clients that are attached together\n");
    for (uint32_t i = 0; i < SPW_CLIENT_COUNTER_COUNT; i++) {
        uint64_t sum = 0;
        for (uint32_t c = 0; c < view->clients; c++)
            sum += view->client[c].counter[i];
        print_counter(spw_client_counter_name(i), sum, spw_client_counter_text(i));
    }
}

static void print_text(const struct spw_pool *pool, const struct pool_view *view)
{
    const struct spw_geometry *geometry = &pool->geometry;
    printf("pool %s: %s, daemon %s (pid %" PRIu64 ")\n", pool->path.name, phase_name(view->phase),
           view->daemon_alive ? "alive" : "gone", view->daemon_pid);
    printf("%u workers, %u chunks of %u bytes each; %u spaces, %u of %u clients\n",
           geometry->workers, geometry->capacity_chunks, geometry->slot_bytes, view->spaces,
           view->clients, geometry->clients);
    printf("\n%6s %6s %8s %8s %8s %9s %10s %10s %10s %8s\n", "worker", "state", "ready", "filling",
           "retired", "restarts", "stored", "loaded", "evicted", "queued");
    for (uint32_t k = 0; k < geometry->workers; k++) {
        const struct worker_view *worker = &view->worker[k];
        printf("%6u %6s %8u %8u %8u %9" PRIu64 " %10" PRIu64 " %10" PRIu64 " %10" PRIu64
               " %7.1fM\n",
               k, worker_word(worker), worker->ready, worker->filling, worker->retired,
               worker->restarts, worker->counter[SPW_WORKER_chunks_stored],
               worker->counter[SPW_WORKER_chunks_loaded], worker->counter[SPW_WORKER_evicted],
               (double)(worker->bytes_queued - worker->bytes_done) / 1e6);
    }
    if (view->clients)
        printf("\n%6s %10s %12s %8s  %s\n", "client", "pid", "step", "in step", "label");
    for (uint32_t i = 0; i < view->clients; i++) {
        const struct client_view *client = &view->client[i];
        printf("%6u %10" PRIu64 " %12" PRIu64 " %8s  %s\n", client->c, client->pid, client->step,
               client->in_step ? "yes" : "no", client->label);
    }
    print_worker_counters(geometry->workers, view);
    if (view->clients)
        print_client_counters(view);
}

static json_t *worker_json(uint32_t k, const struct worker_view *worker)
{
    json_t *counters = json_object();
    for (uint32_t i = 0; i < SPW_WORKER_COUNTER_COUNT; i++)
        json_object_set_new(counters, spw_worker_counter_name(i),
                            json_integer((json_int_t)worker->counter[i]));
    return json_pack("{s:i, s:s, s:I, s:I, s:I, s:i, s:i, s:i, s:I, s:I, s:o}", "worker", (int)k,
                     "state", worker_word(worker), "incarnation", (json_int_t)worker->incarnation,
                     "pid", (json_int_t)worker->pid, "restarts", (json_int_t)worker->restarts,
                     "ready", (int)worker->ready, "filling", (int)worker->filling, "retired",
                     (int)worker->retired, "bytes_done", (json_int_t)worker->bytes_done,
                     "bytes_queued", (json_int_t)worker->bytes_queued, "counters", counters);
}

static json_t *client_json(const struct client_view *client)
{
    json_t *counters = json_object();
    for (uint32_t i = 0; i < SPW_CLIENT_COUNTER_COUNT; i++)
        json_object_set_new(counters, spw_client_counter_name(i),
                            json_integer((json_int_t)client->counter[i]));
    return json_pack("{s:i, s:I, s:I, s:I, s:b, s:s, s:o}", "client", (int)client->c, "generation",
                     (json_int_t)client->generation, "pid", (json_int_t)client->pid, "step",
                     (json_int_t)client->step, "in_step", client->in_step, "label", client->label,
                     "counters", counters);
}

static void print_json(const struct spw_pool *pool, const struct pool_view *view)
{
    json_t *workers = json_array(), *clients = json_array();
    for (uint32_t k = 0; k < pool->geometry.workers; k++)
        json_array_append_new(workers, worker_json(k, &view->worker[k]));
    for (uint32_t i = 0; i < view->clients; i++)
        json_array_append_new(clients, client_json(&view->client[i]));
    json_t *root = json_pack(
        "{s:i, s:s, s:s, s:b, s:I, s:i, s:i, s:i, s:o, s:o}", "schema", 1, "pool", pool->path.name,
        "phase", phase_name(view->phase), "daemon_alive", view->daemon_alive, "daemon_pid",
        (json_int_t)view->daemon_pid, "capacity_chunks", (int)pool->geometry.capacity_chunks,
        "chunk_bytes", (int)pool->geometry.slot_bytes, "spaces", (int)view->spaces, "workers",
        workers, "clients", clients);
    json_dumpf(root, stdout, JSON_INDENT(1));
    putchar('\n');
    json_decref(root);
}

int spw_cmd_stat(int argc, char *const *argv)
{
    struct spw_pool_args args;
    struct spw_error err = {0};
    struct spw_pool_path path;
    int status = spw_pool_args_read(argc, argv, "what a pool holds, does and counts", &args);
    if (status >= 0)
        return status;
    struct spw_pool *pool = calloc(1, sizeof *pool);
    struct pool_view *view = calloc(1, sizeof *view);
    if (!pool || !view) {
        fprintf(stderr, "spillway stat: out of memory\n");
        status = SPW_EXIT_FAILED;
        goto out;
    }
    status = spw_pool_path_init(&path, args.shm_dir, args.pool, (uint32_t)args.uid, &err);
    if (!status)
        status = spw_pool_attach(&path, SPW_ROLE_TOOL, 0, pool, &err);
    if (status) {
        fprintf(stderr, "spillway stat: %s\n", err.text);
        status = spw_exit_of(status);
        goto out;
    }
    gather(pool, view);
    if (args.json)
        print_json(pool, view);
    else
        print_text(pool, view);
    status = status_of(pool, view);
    if (status == SPW_EXIT_STALE)
        fprintf(stderr,
                "spillway stat: the daemon of pool %s is gone; what is shown is what it left\n",
                args.pool);
    spw_pool_detach(pool);
out:
    free(view);
    free(pool);
    return status;
}
