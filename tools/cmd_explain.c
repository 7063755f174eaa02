/*
 * spillway explain: a client's last decisions and why, read from its object alone, also when it, or
 * everybody, is dead. Maps read-only, takes no lock, waits for nothing.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "shm/alive.h"
#include "tools/explain.h"
#include "tools/look.h"
#include "tools/units.h"

#define ROUNDS_MAX 3 /* the object may change hands while it is read */

struct explain_args {
    struct spw_pool_args pool;
    uint64_t last;
};

static const struct spw_option options[] = {
    {"last", NULL, SPW_OPTION_COUNT, offsetof(struct explain_args, last), 1, SPW_DECISION_RECORDS,
     NULL, "20", "how many decisions to show"},
};

static const struct spw_command_form form = {
    .about = "why a client's last requests were loaded, computed or deferred",
    .word = "CLIENT",
    .more = options,
    .more_count = sizeof options / sizeof options[0],
};

static void gather_records(const struct spw_client_head *head, uint64_t last,
                           struct spw_explain_view *out)
{
    uint64_t first, end;
    spw_explain_range(head, &first, &end);
    out->made = end - spw_load_relaxed(&head->decision_base);
    out->count = out->passed = out->damaged = 0;
    for (uint64_t n = end - first > last ? end - last : first; n != end; n++) {
        struct spw_explain_line *line = &out->line[out->count];
        int rc = spw_explain_read(head, n, &line->explained);
        line->n = n;
        out->count += rc == 0;
        out->damaged += rc == -EBADMSG;
        out->passed += rc == -EAGAIN || rc == -ENOENT;
    }
}

static void gather(const struct spw_pool *pool, uint32_t c, uint64_t last,
                   struct spw_explain_view *out)
{
    const struct spw_client_head *head = pool->client[c].head;
    out->pool = pool->path.name;
    out->client = c;
    out->daemon_alive = spw_lock_held(pool->lock_fd, SPW_LOCK_DAEMON) == 1;
    for (int round = 0; round < ROUNDS_MAX; round++) {
        out->generation = spw_load_relaxed(&head->generation);
        out->attached = spw_lock_held(pool->lock_fd, SPW_LOCK_CLIENT(c)) == 1;
        out->pid = spw_load_relaxed(&head->pid);
        spw_look_label(head, out->label);
        gather_records(head, last, out);
        if (spw_load_relaxed(&head->generation) == out->generation)
            break;
    }
    out->now_ns = spw_monotonic_ns();
}

/* Which client is meant, or an exit status as a negative number. */
static int client_of(const struct spw_pool *pool, const char *word)
{
    char err[256];
    uint64_t c;
    const struct spw_range range = {SPW_UNIT_COUNT, 0, pool->geometry.clients - 1};
    if (spw_units_parse_in("CLIENT", word, &range, &c, err, sizeof err) == 0 &&
        c < pool->geometry.clients)
        return (int)c;
    fprintf(stderr,
            "spillway explain: there is no client \"%s\": pool %s has clients 0 to %" PRIu32
            "; spillway stat lists those attached\n",
            word, pool->path.name, pool->geometry.clients - 1);
    return -SPW_EXIT_USAGE;
}

static int status_of(const struct spw_explain_view *view)
{
    if (view->passed)
        fprintf(stderr,
                "spillway explain: %" PRIu32 " were overwritten meanwhile, or aren't whole\n",
                view->passed);
    if (view->damaged) {
        fprintf(stderr, "spillway explain: %" PRIu32 " make no sense and are left out\n",
                view->damaged);
        return SPW_EXIT_DAMAGED;
    }
    if (view->daemon_alive && view->attached)
        return SPW_EXIT_OK;
    if (!view->daemon_alive)
        fprintf(stderr,
                "spillway explain: the daemon of pool %s is gone; what is shown is what it left\n",
                view->pool);
    else
        fprintf(stderr,
                "spillway explain: client %" PRIu32 " is gone; what is shown is what it left\n",
                view->client);
    return SPW_EXIT_STALE;
}

static int explain(const struct spw_pool *pool, const char *word, const struct explain_args *args,
                   struct spw_explain_view *view)
{
    int c = client_of(pool, word);
    if (c < 0)
        return -c;
    gather(pool, (uint32_t)c, args->last, view);
    if (!view->attached && view->made == 0) {
        fprintf(
            stderr,
            "spillway explain: nobody is attached as client %d of pool %s, and the last one left "
            "no decisions; spillway stat lists those attached\n",
            c, view->pool);
        return SPW_EXIT_FAILED;
    }
    if (!args->pool.json)
        spw_explain_print_text(view);
    else if (spw_explain_print_json(view) < 0) {
        fprintf(stderr, "spillway explain: out of memory\n");
        return SPW_EXIT_FAILED;
    }
    return status_of(view);
}

int spw_cmd_explain(int argc, char *const *argv)
{
    struct explain_args args;
    struct spw_pool *pool;
    const char *word = NULL;
    int status = spw_command_args_read(argc, argv, &form, &args.pool, &word);
    if (status >= 0)
        return status;
    status = spw_look_open("explain", &args.pool, &pool);
    if (status)
        return status;
    struct spw_explain_view *view = calloc(1, sizeof *view);
    if (view) {
        status = explain(pool, word, &args, view);
    } else {
        fprintf(stderr, "spillway explain: out of memory\n");
        status = SPW_EXIT_FAILED;
    }
    free(view);
    spw_look_close(pool);
    return status;
}
