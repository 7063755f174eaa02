/*
 * spillway reset: empty spaces of a living pool. Takes the client place kept for tools and sends each
 * worker one command for a space, or for all, as a client would; written: that client object. A death
 * in between leaves a space that some workers have emptied and others not: run it again.
 */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shm/alive.h"
#include "shm/doorbell.h"
#include "shm/lane.h"
#include "tier/adopt.h"
#include "tools/command.h"
#include "tools/look.h"

#define LIMIT_NS 10000000000ull /* for one worker: it may be coming up */
#define NAP_US   500u

struct reset_args {
    struct spw_pool_args pool;
    char space[256];
    bool all;
};

static const struct spw_option options[] = {
    {"space", NULL, SPW_OPTION_TEXT, offsetof(struct reset_args, space), 0,
     sizeof((struct reset_args *)0)->space, NULL, NULL, "its number, or its fingerprint"},
    {"all", NULL, SPW_OPTION_SWITCH, offsetof(struct reset_args, all), 0, 0, NULL, "no",
     "every space, and what lies below for spaces that are not open"},
};

static const struct spw_command_form form = {
    .about = "empty spaces of a living pool: none of their chunks is found any more",
    .more = options,
    .more_count = sizeof options / sizeof options[0],
};

/* The place that we have taken, and our lanes to the workers. */
struct talk {
    struct spw_pool *pool;
    struct spw_client_view *view;
    uint32_t c;
    uint64_t generation, cookie;
    struct spw_lane_producer command[SPW_WORKERS_MAX];
    struct spw_lane_consumer completion[SPW_WORKERS_MAX];
};

static int talk_begin(struct talk *talk, struct spw_pool *pool, struct spw_error *err)
{
    int c = spw_pool_take_client(pool, true, err);
    if (c < 0)
        return c;
    *talk = (struct talk){.pool = pool, .view = &pool->client[c], .c = (uint32_t)c};
    talk->generation = spw_client_take_over(talk->view);
    for (uint32_t k = 0; k < pool->geometry.workers; k++) {
        struct spw_lane_client *mine = &talk->view->head->lane[k];
        struct spw_lane_worker *theirs = &talk->view->head->worker_lane[k];
        spw_lane_producer_init(
            &talk->command[k], talk->view->command + k * talk->view->command_slots,
            talk->view->command_slots, &mine->command_tail, &theirs->command_head);
        spw_lane_consumer_init(&talk->completion[k],
                               talk->view->completion + k * talk->view->completion_slots,
                               talk->view->completion_slots, &mine->completion_head);
    }
    return 0;
}

/* Worker @k serves us: its incarnation, else 0. */
static uint64_t serving(const struct talk *talk, uint32_t k)
{
    const struct spw_worker_state *state = &talk->pool->ctl->worker[k];
    const struct spw_feed_head *feed = talk->pool->feed[k];
    /* [WS-1] acquire: phase before the incarnation it speaks of */
    bool up = spw_load_acquire(&state->phase) == SPW_WORKER_UP;
    uint64_t incarnation = spw_feed_incarnation(feed);
    /* [CL-2] acquire: acknowledged before the lanes are used */
    bool acked = spw_load_acquire(&feed->acked[talk->c]) == talk->generation;
    return up && acked && spw_load_relaxed(&state->incarnation) == incarnation ? incarnation : 0;
}

static void ring(const struct talk *talk, uint32_t k)
{
    spw_doorbell_ring(spw_doorbell_low_half(&talk->view->head->lane[k].command_tail),
                      &talk->pool->feed[k]->asleep);
}

static void send_reset(struct talk *talk, uint32_t k, uint32_t space, uint64_t incarnation)
{
    const struct spw_command head = {.op = SPW_CMD_RESET,
                                     .generation = (uint32_t)talk->generation,
                                     .incarnation = (uint32_t)incarnation,
                                     .space = space,
                                     .cookie = ++talk->cookie};
    spw_lane_write(&talk->command[k], 0, &head, sizeof head);
    spw_lane_send(&talk->command[k], 1);
}

/* The answer to what was sent last is there. */
static bool answered(struct talk *talk, uint32_t k, struct spw_done *out_done)
{
    struct spw_done done;
    while (spw_lane_peek(&talk->completion[k], &done) == 1) {
        spw_lane_release(&talk->completion[k], 1);
        if (done.kind == SPW_DONE_RESET && done.cookie == talk->cookie &&
            done.generation == (uint32_t)talk->generation) {
            *out_done = done;
            return true;
        }
    }
    return false;
}

static int give_up(const struct talk *talk, uint32_t k, struct spw_error *err)
{
    return spw_fail(err, -ETIMEDOUT,
                    "worker %" PRIu32 " of pool %s has not reset it within %u s; is it stuck?", k,
                    talk->pool->path.name, (unsigned)(LIMIT_NS / 1000000000));
}

/* Have worker @k reset @space; one that dies over it is followed by another, which is told anew.
 * Chunks of spaces that are not open are added to *@unopened. */
static int reset_on(struct talk *talk, uint32_t k, uint32_t space, uint64_t *unopened,
                    struct spw_error *err)
{
    uint64_t until = spw_monotonic_ns() + LIMIT_NS, told = 0;
    struct spw_done done = {0};
    while (!told || !answered(talk, k, &done)) {
        uint64_t incarnation = serving(talk, k);
        if (incarnation && incarnation != told && spw_lane_room(&talk->command[k], 1)) {
            send_reset(talk, k, space, incarnation);
            told = incarnation;
        }
        /* relaxed: closed for good */
        if (spw_load_relaxed(&talk->pool->ctl->phase) == SPW_POOL_CLOSED)
            return spw_fail(err, -EOWNERDEAD, "pool %s was stopped meanwhile",
                            talk->pool->path.name);
        if (spw_monotonic_ns() >= until)
            return give_up(talk, k, err);
        ring(talk, k);
        usleep(NAP_US);
    }
    if (done.status)
        return spw_fail(err, done.status, "worker %" PRIu32 ": %s", k, strerror(-done.status));
    *unopened += done.mask;
    return 0;
}

static int reset_everywhere(struct talk *talk, uint32_t space, uint64_t *unopened,
                            struct spw_error *err)
{
    int rc = 0;
    for (uint32_t k = 0; k < talk->pool->geometry.workers && rc == 0; k++)
        rc = reset_on(talk, k, space, unopened, err);
    return rc;
}

/* ---- which ----------------------------------------------------------------------------------- */

static bool is_ready(const struct spw_pool *pool, uint32_t s)
{
    /* [SP-1] acquire: ready before the record */
    return spw_load_acquire(&pool->ctl->space[s].ready) == 1;
}

static bool is_wanted(const struct spw_pool *pool, uint32_t s, const struct reset_args *args)
{
    char number[16];
    snprintf(number, sizeof number, "%" PRIu32, s);
    return is_ready(pool, s) && (args->all || strcmp(args->space, number) == 0 ||
                                 strncmp(args->space, pool->ctl->space[s].record.fingerprint,
                                         sizeof pool->ctl->space[s].record.fingerprint) == 0);
}

/* What was emptied. */
struct emptied {
    bool space[SPW_SPACES_MAX];
    bool below;        /* what lies there for spaces that are not open, too: */
    uint64_t unopened; /* chunks of it that were known                       */
};

static void print_text(const struct spw_pool *pool, const struct emptied *emptied)
{
    uint32_t workers = pool->geometry.workers;
    const char *unit = workers == 1 ? "worker" : "workers";
    char name[257];
    for (uint32_t s = 0; s < SPW_SPACES_MAX; s++) {
        if (!emptied->space[s])
            continue;
        spw_look_fingerprint(pool, s, name);
        printf("space %" PRIu32 " (%s): reset on %" PRIu32 " %s\n", s, name, workers, unit);
    }
    if (emptied->below)
        printf("spaces that are not open: reset on %" PRIu32 " %s, %" PRIu64 " %s below\n", workers,
               unit, emptied->unopened, emptied->unopened == 1 ? "chunk" : "chunks");
}

static void print_json(const struct spw_pool *pool, const struct emptied *emptied)
{
    json_t *spaces = json_array();
    char name[257];
    for (uint32_t s = 0; s < SPW_SPACES_MAX; s++) {
        if (!emptied->space[s])
            continue;
        spw_look_fingerprint(pool, s, name);
        json_array_append_new(spaces,
                              json_pack("{s:i, s:s}", "space", (int)s, "fingerprint", name));
    }
    json_t *root = json_pack("{s:i, s:s, s:o, s:I}", "schema", 1, "pool", pool->path.name, "spaces",
                             spaces, "unopened_chunks_below", (json_int_t)emptied->unopened);
    json_dumpf(root, stdout, JSON_INDENT(1));
    putchar('\n');
    json_decref(root);
}

static int reset_wanted(struct talk *talk, const bool *wanted, struct emptied *out,
                        struct spw_error *err)
{
    int rc = 0;
    for (uint32_t s = 0; s < SPW_SPACES_MAX && rc == 0; s++) {
        if (!wanted[s])
            continue;
        rc = reset_everywhere(talk, s, &out->unopened, err);
        out->space[s] = rc == 0;
    }
    return rc;
}

static int reset_all(struct talk *talk, const bool *wanted, struct emptied *out,
                     struct spw_error *err)
{
    int rc = reset_everywhere(talk, SPW_ALL_SPACES, &out->unopened, err);
    for (uint32_t s = 0; s < SPW_SPACES_MAX && rc == 0; s++)
        out->space[s] = wanted[s];
    out->below = rc == 0 && talk->pool->geometry.cold_chunks != 0;
    return rc;
}

static int reset(struct spw_pool *pool, void *ctx, struct spw_error *err)
{
    const struct reset_args *args = ctx;
    bool wanted[SPW_SPACES_MAX], any = false;
    struct emptied emptied = {0};
    struct talk talk;
    for (uint32_t s = 0; s < SPW_SPACES_MAX; s++)
        any |= wanted[s] = is_wanted(pool, s, args);
    if (!any && !args->all)
        return spw_fail(err, -ESRCH, "pool %s has no space \"%s\"", pool->path.name, args->space);
    int rc = talk_begin(&talk, pool, err);
    if (rc == 0)
        rc = (args->all ? reset_all : reset_wanted)(&talk, wanted, &emptied, err);
    (args->pool.json ? print_json : print_text)(pool, &emptied);
    return rc;
}

int spw_cmd_reset(int argc, char *const *argv)
{
    struct reset_args args;
    int status = spw_command_args_read(argc, argv, &form, &args.pool, NULL);
    if (status >= 0)
        return status;
    if (args.all == (args.space[0] != 0)) {
        fprintf(stderr, "spillway reset: say --space N, --space FINGERPRINT or --all\n");
        return SPW_EXIT_USAGE;
    }
    return spw_command_on_pool("reset", &args.pool, reset, &args);
}
