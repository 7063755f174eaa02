/* The state of a pool as text, and as JSON. */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>

#include "tools/look.h"
#include "tools/plan.h"
#include "tools/show.h"
#include "tools/show_gpu.h"
#include "tools/show_place.h"

static const char *phase_name(uint32_t phase)
{
    static const char *const names[] = {"starting", "serving", "closed"};
    return phase < 3 ? names[phase] : "?";
}

static const char *daemon_word(const struct spw_show_view *view)
{
    if (!view->daemon_alive)
        return "gone";
    return view->daemon_moves ? "alive" : "not responding";
}

static const char *worker_word(const struct spw_show_worker *worker)
{
    if (!worker->alive)
        return worker->phase == SPW_WORKER_UP ? "dead" : "down";
    return worker->moves ? "up" : "stuck";
}

static void print_counter(const char *name, uint64_t sum, const char *text)
{
    printf("  %-24s %14" PRIu64 "  %s\n", name, sum, text);
}

static void print_worker_counters(uint32_t workers, const struct spw_show_view *view)
{
    printf("\ncounters, all workers together\n");
    for (uint32_t i = 0; i < SPW_WORKER_COUNTER_COUNT; i++) {
        uint64_t sum = 0;
        for (uint32_t k = 0; k < workers; k++)
            sum += view->worker[k].counter[i];
        print_counter(spw_worker_counter_name(i), sum, spw_worker_counter_text(i));
    }
}

static void print_client_counters(const struct spw_show_view *view)
{
    printf("\ncounters, all clients that are attached together\n");
    for (uint32_t i = 0; i < SPW_CLIENT_COUNTER_COUNT; i++) {
        uint64_t sum = 0;
        for (uint32_t c = 0; c < view->clients; c++)
            sum += view->client[c].counter[i];
        print_counter(spw_client_counter_name(i), sum, spw_client_counter_text(i));
    }
}

static void print_streams(uint32_t workers, const struct spw_show_view *view)
{
    char text[SPW_LOOK_DURATION_BYTES];
    printf("\n%6s %12s %12s %12s  %s\n", "worker", "to store", "awaited", "rate",
           "a new store ends in");
    for (uint32_t k = 0; k < workers; k++) {
        const struct spw_show_worker *worker = &view->worker[k];
        char rate[24] = "-";
        if (worker->alive)
            snprintf(rate, sizeof rate, "%.1fMB/s", (double)worker->stream.rate_bytes_per_s / 1e6);
        printf("%6u %10.1fMB %10.1fMB %12s  %s\n", k, (double)worker->backlog_bytes / 1e6,
               (double)worker->awaited_bytes / 1e6, rate,
               !worker->alive                      ? "worker gone"
               : worker->stalled                   ? "stalled"
               : worker->eta_ns == SPW_ETA_UNKNOWN ? "not known"
                                                   : spw_look_duration(worker->eta_ns, text));
    }
}

static uint64_t mean_ns(const struct spw_wait_histogram *wait)
{
    return wait->count ? wait->sum_ns / wait->count : 0;
}

static void print_waits(const struct spw_show_view *view)
{
    char mean[SPW_LOOK_DURATION_BYTES], p50[SPW_LOOK_DURATION_BYTES], p99[SPW_LOOK_DURATION_BYTES];
    bool any = false;
    for (uint32_t i = 0; i < view->clients; i++) {
        for (uint32_t o = 0; o < SPW_WAIT_OUTCOMES; o++) {
            const struct spw_wait_histogram *wait = &view->client[i].wait[o];
            if (wait->count == 0)
                continue;
            if (!any)
                printf("\n%6s %12s %10s %8s %8s %8s\n", "client", "waits ended", "count", "mean",
                       "p50", "p99");
            any = true;
            printf("%6u %12s %10" PRIu64 " %8s %8s %8s\n", view->client[i].c,
                   spw_wait_outcome_name(o), wait->count, spw_look_duration(mean_ns(wait), mean),
                   spw_look_duration(spw_wait_percentile_ns(wait, 0.5), p50),
                   spw_look_duration(spw_wait_percentile_ns(wait, 0.99), p99));
        }
    }
}

void spw_show_print_text(const struct spw_pool *pool, const struct spw_show_view *view)
{
    const struct spw_geometry *geometry = &pool->geometry;
    printf("pool %s: %s, daemon %s (pid %" PRIu64 ")\n", pool->path.name, phase_name(view->phase),
           daemon_word(view), view->daemon_pid);
    printf("%u %s, %u %s of %u bytes each; %u %s, %u of %u clients\n", geometry->workers,
           geometry->workers == 1 ? "worker" : "workers", geometry->capacity_chunks,
           geometry->capacity_chunks == 1 ? "chunk" : "chunks", geometry->slot_bytes, view->spaces,
           view->spaces == 1 ? "space" : "spaces", view->clients, geometry->clients);
    printf("%" PRIu64 " %s, %" PRIu64
           " of them hits; %.1f MB stored, %.1f MB loaded; %.1f MB on huge pages\n",
           view->totals.lookups, view->totals.lookups == 1 ? "lookup" : "lookups",
           view->totals.hits, (double)view->totals.bytes_stored / 1e6,
           (double)view->totals.bytes_loaded / 1e6, (double)view->totals.huge_bytes / 1e6);
    struct spw_plan plan;
    spw_plan_bytes(geometry, &plan);
    printf("memory: %.1f MB of chunks, %.1f MB of KV blocks, %.1f MB of tables and rings\n",
           (double)plan.payload_bytes / 1e6, (double)plan.kv_bytes / 1e6,
           (double)plan.control_bytes / 1e6);
    printf("\n%6s %6s %8s %8s %8s %9s %10s %10s %10s\n", "worker", "state", "ready", "filling",
           "retired", "restarts", "stored", "loaded", "evicted");
    for (uint32_t k = 0; k < geometry->workers; k++) {
        const struct spw_show_worker *worker = &view->worker[k];
        printf("%6u %6s %8u %8u %8u %9" PRIu64 " %10" PRIu64 " %10" PRIu64 " %10" PRIu64 "\n", k,
               worker_word(worker), worker->ready, worker->filling, worker->retired,
               worker->restarts, worker->counter[SPW_WORKER_chunks_stored],
               worker->counter[SPW_WORKER_chunks_loaded], worker->counter[SPW_WORKER_evicted]);
    }
    spw_show_place_print(pool);
    putchar('\n');
    spw_tiers_print(&view->tiers);
    spw_show_gpu_text(pool);
    print_streams(geometry->workers, view);
    if (view->clients)
        printf("\n%6s %10s %12s %8s %10s %10s %12s  %s\n", "client", "pid", "step", "in step",
               "max wait", "max retry", "recompute", "label");
    for (uint32_t i = 0; i < view->clients; i++) {
        const struct spw_show_client *client = &view->client[i];
        char budget[24] = "-";
        if (client->budget_tokens == UINT64_MAX)
            snprintf(budget, sizeof budget, "auto");
        else if (client->wait_limit_ns)
            snprintf(budget, sizeof budget, "%" PRIu64, client->budget_tokens);
        printf("%6u %10" PRIu64 " %12" PRIu64 " %8s %8.1f s %8.1f s %12s  %s\n", client->c,
               client->pid, client->step, client->in_step ? "yes" : "no",
               (double)client->wait_limit_ns / 1e9, (double)client->retry_limit_ns / 1e9, budget,
               client->label);
    }
    print_waits(view);
    print_worker_counters(geometry->workers, view);
    if (view->clients)
        print_client_counters(view);
}

static json_t *stream_json(const struct spw_show_worker *worker)
{
    json_t *eta =
        worker->eta_ns > INT64_MAX ? json_null() : json_integer((json_int_t)worker->eta_ns);
    return json_pack("{s:I, s:I, s:I, s:o, s:b}", "backlog_bytes",
                     (json_int_t)worker->backlog_bytes, "awaited_bytes",
                     (json_int_t)worker->awaited_bytes, "rate_bytes_per_s",
                     (json_int_t)worker->stream.rate_bytes_per_s, "new_store_eta_ns", eta,
                     "stalled", worker->stalled);
}

static json_t *worker_json(const struct spw_pool *pool, uint32_t k,
                           const struct spw_show_worker *worker)
{
    json_t *counters = json_object();
    for (uint32_t i = 0; i < SPW_WORKER_COUNTER_COUNT; i++)
        json_object_set_new(counters, spw_worker_counter_name(i),
                            json_integer((json_int_t)worker->counter[i]));
    return json_pack(
        "{s:i, s:s, s:b, s:I, s:I, s:I, s:I, s:i, s:i, s:i, s:I, s:I, s:o, s:o, s:o, s:o}",
        "worker", (int)k, "state", worker_word(worker), "out_of_service", worker->out_of_service,
        "incarnation", (json_int_t)worker->incarnation, "inside_pid",
        (json_int_t)worker->inside_pid, "pid", (json_int_t)worker->pid, "restarts",
        (json_int_t)worker->restarts, "ready", (int)worker->ready, "filling", (int)worker->filling,
        "retired", (int)worker->retired, "bytes_done", (json_int_t)worker->stream.done_bytes,
        "bytes_queued", (json_int_t)worker->stream.queued_bytes, "stream", stream_json(worker),
        "place", spw_show_place_json(pool, k), "copies", spw_show_gpu_json(pool, k), "counters",
        counters);
}

static json_t *waits_json(const struct spw_show_client *client)
{
    json_t *waits = json_object();
    for (uint32_t o = 0; o < SPW_WAIT_OUTCOMES; o++) {
        const struct spw_wait_histogram *wait = &client->wait[o];
        json_object_set_new(waits, spw_wait_outcome_name(o),
                            json_pack("{s:I, s:I, s:I, s:I}", "count", (json_int_t)wait->count,
                                      "mean_ns", (json_int_t)mean_ns(wait), "p50_ns",
                                      (json_int_t)spw_wait_percentile_ns(wait, 0.5), "p99_ns",
                                      (json_int_t)spw_wait_percentile_ns(wait, 0.99)));
    }
    return waits;
}

static json_t *client_json(const struct spw_show_client *client)
{
    json_t *counters = json_object();
    for (uint32_t i = 0; i < SPW_CLIENT_COUNTER_COUNT; i++)
        json_object_set_new(counters, spw_client_counter_name(i),
                            json_integer((json_int_t)client->counter[i]));
    json_t *budget = client->budget_tokens == UINT64_MAX
                         ? json_string("auto")
                         : json_integer((json_int_t)client->budget_tokens);
    return json_pack("{s:i, s:I, s:I, s:I, s:b, s:s, s:f, s:f, s:o, s:o, s:o}", "client",
                     (int)client->c, "generation", (json_int_t)client->generation, "pid",
                     (json_int_t)client->pid, "step", (json_int_t)client->step, "in_step",
                     client->in_step, "label", client->label, "wait_limit_s",
                     (double)client->wait_limit_ns / 1e9, "retry_limit_s",
                     (double)client->retry_limit_ns / 1e9, "max_recompute_pending_tokens", budget,
                     "waits", waits_json(client), "counters", counters);
}

static json_t *totals_json(const struct spw_show_totals *totals)
{
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "lookups", (json_int_t)totals->lookups,
                     "hits", (json_int_t)totals->hits, "hit_tokens", (json_int_t)totals->hit_tokens,
                     "chunks_stored", (json_int_t)totals->chunks_stored, "chunks_loaded",
                     (json_int_t)totals->chunks_loaded, "bytes_stored",
                     (json_int_t)totals->bytes_stored, "bytes_loaded",
                     (json_int_t)totals->bytes_loaded);
}

static json_t *memory_json(const struct spw_geometry *geometry)
{
    struct spw_plan plan;
    spw_plan_bytes(geometry, &plan);
    return json_pack("{s:I, s:I, s:I, s:I}", "payload_bytes", (json_int_t)plan.payload_bytes,
                     "kv_bytes", (json_int_t)plan.kv_bytes, "control_bytes",
                     (json_int_t)plan.control_bytes, "total_bytes", (json_int_t)plan.total_bytes);
}

static json_t *warnings_json(const struct spw_show_view *view)
{
    json_t *warnings = json_array();
    for (uint32_t i = 0; i < view->warnings; i++)
        json_array_append_new(warnings, json_string(view->warning[i]));
    return warnings;
}

void spw_show_print_json(const struct spw_pool *pool, const struct spw_show_view *view)
{
    json_t *workers = json_array(), *clients = json_array();
    for (uint32_t k = 0; k < pool->geometry.workers; k++)
        json_array_append_new(workers, worker_json(pool, k, &view->worker[k]));
    for (uint32_t i = 0; i < view->clients; i++)
        json_array_append_new(clients, client_json(&view->client[i]));
    json_t *root = json_pack(
        "{s:i, s:s, s:s, s:b, s:b, s:I, s:I, s:I, s:o, s:o, s:i, s:i, s:i, s:i, s:o, s:o, s:o, "
        "s:o}",
        "schema", 1, "pool", pool->path.name, "phase", phase_name(view->phase), "daemon_alive",
        view->daemon_alive, "daemon_responds", view->daemon_alive && view->daemon_moves,
        "daemon_pid", (json_int_t)view->daemon_pid, "updated_ns", (json_int_t)view->updated_ns,
        "huge_pages", (json_int_t)view->totals.huge_bytes, "totals", totals_json(&view->totals),
        "warnings", warnings_json(view), "capacity_chunks", (int)pool->geometry.capacity_chunks,
        "chunk_bytes", (int)pool->geometry.slot_bytes, "spaces", (int)view->spaces, "pinned",
        (int)spw_show_gpu_pinned(pool), "tiers", spw_tiers_json(&view->tiers), "memory",
        memory_json(&pool->geometry), "workers", workers, "clients", clients);
    json_dumpf(root, stdout, JSON_INDENT(1));
    putchar('\n');
    fflush(stdout); /* whole, before warnings that go elsewhere */
    json_decref(root);
}
