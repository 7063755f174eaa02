/*
 * Attach, detach, and whether the pool is still there. Written: this client's own object, by
 * shm/client.h's hand-over; nothing is created, resized or unlinked.
 *
 *   step                    if this process dies after it
 *   lock byte taken         it is free again
 *   generation stored       workers find the lock free, acknowledge, void the lanes
 *   acknowledged            same
 */
#include "sched/handle.h"
#include "sched/thread_place.h"

#include "shm/alive.h"
#include "shm/doorbell.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define TIMEOUT_NS    5000000000ull
#define POLL_NS       200000ull
#define OPEN_JOBS     1023u /* x 64 chunks: a 16-bit count of pins a slot holds them all */
#define PLACES_TRIED  5u   /* in the time that an attach has, while workers don't acknowledge one */
#define SCAN_ROUNDS   8u   /* of the views at attach; what is left is done in steps    */
#define NEAR_PERMILLE 990u /* of sampled pages of the replica, or it isn't what was asked for */
#define WATCH_CALLS   16u  /* one call in so many looks at the clock                   */
/* options of the first version end here */
#define OPTIONS_FIRST_BYTES offsetof(struct spw_attach_options, now_ns)
#define LOOK_NS             1000000000ull /* at the locks, while something is waited for */

static void nap(void)
{
    const struct timespec pause = {.tv_nsec = (long)POLL_NS};
    nanosleep(&pause, NULL);
}

/* ---- is it still there ----------------------------------------------------------------------- */

int spw_client_there(struct spw_client *client)
{
    if (client->forks != spw_forked())
        return -EOWNERDEAD;
    /* relaxed: neither comes back, and nothing else is read by it */
    if (client->loss == SPW_ATTACHED &&
        spw_load_relaxed(&client->own->head->generation) != client->generation)
        client->loss = SPW_LOST_TOLD; /* the object is somebody else's by now */
    if (client->loss == SPW_ATTACHED &&
        spw_load_relaxed(&client->pool.ctl->phase) == SPW_POOL_CLOSED)
        client->loss = SPW_LOST_UNTOLD;
    return client->loss == SPW_ATTACHED    ? 0
           : client->loss == SPW_LOST_TOLD ? -ENOTCONN
                                           : -ECONNRESET;
}

int spw_client_check(struct spw_client *client)
{
    int rc = spw_client_there(client);
    if (rc == -ECONNRESET)
        client->loss = SPW_LOST_TOLD;
    return rc;
}

/* Does this client wait for an answer, or for a command to be taken? */
static bool waits(const struct spw_client *client)
{
    if (!spw_list_empty(&client->book.busy))
        return true;
    for (uint32_t k = 0; k < client->workers; k++) {
        /* relaxed: a guess; the locks decide */
        uint64_t head = spw_load_relaxed(&client->own->head->worker_lane[k].command_head);
        if (spw_pos_before(head, client->command[k].tail))
            return true;
    }
    return false;
}

/* While the daemon lives, it says who is dead. When nobody holds its lock, another pool has the name,
 * or this one's workers are all gone too, or some are, which nobody will replace. */
static void look_for_the_dead(struct spw_client *client)
{
    const struct spw_pool *pool = &client->pool;
    uint64_t dead = 0;
    if (spw_lock_held(pool->lock_fd, SPW_LOCK_DAEMON) != 0)
        return;
    for (uint32_t k = 0; k < client->workers; k++)
        if (spw_lock_held(pool->lock_fd, SPW_LOCK_WORKER(k)) == 0)
            dead |= 1ull << k;
    if (!spw_lock_current(pool->lock_fd, &pool->path) || dead == (1ull << client->workers) - 1)
        client->loss = SPW_LOST_UNTOLD;
    else
        client->bereft = dead;
}

void spw_client_watch(struct spw_client *client)
{
    struct spw_lookout *lookout = &client->lookout;
    if (spw_client_there(client) < 0 || client->in_step || ++lookout->calls % WATCH_CALLS != 0)
        return;
    if (!waits(client)) {
        lookout->since_ns = 0;
        return;
    }
    uint64_t now = spw_monotonic_ns();
    if (lookout->since_ns == 0)
        lookout->since_ns = now;
    if (now - lookout->since_ns < LOOK_NS)
        return;
    lookout->since_ns = now;
    look_for_the_dead(client);
}

/* ---- attach ---------------------------------------------------------------------------------- */

static int read_options(const struct spw_attach_options *options, struct spw_attach_options *out,
                        struct spw_pool_path *out_path, struct spw_error *err)
{
    if (!options ||
        !spw_take_options(out, sizeof(*out), options, options->size_bytes, OPTIONS_FIRST_BYTES))
        return spw_fail(err, -EINVAL, "attach: no options, or their size_bytes is not set");
    if (!out->pool)
        return spw_fail(err, -EINVAL, "attach: the options name no pool");
    if (out->timeout_ns == 0)
        out->timeout_ns = TIMEOUT_NS;
    if (out->uid > UINT32_MAX || out->uid < -1)
        return spw_fail(err, -EINVAL, "attach: %" PRId64 " is no user id", out->uid);
    return spw_pool_path_init(out_path, out->shm_dir, out->pool,
                              out->uid < 0 ? (uint32_t)geteuid() : (uint32_t)out->uid, err);
}

static void make_lanes(struct spw_client *client)
{
    struct spw_client_view *own = client->own;
    for (uint32_t k = 0; k < client->workers; k++) {
        struct spw_lane_client *ours = &own->head->lane[k];
        struct spw_lane_worker *theirs = &own->head->worker_lane[k];
        spw_lane_producer_init(&client->command[k], &own->command[(uint64_t)k * own->command_slots],
                               own->command_slots, &ours->command_tail, &theirs->command_head);
        spw_lane_consumer_init(&client->completion[k],
                               &own->completion[(uint64_t)k * own->completion_slots],
                               own->completion_slots, &ours->completion_head);
    }
}

static void wake(const struct spw_client *client, uint32_t k)
{
    spw_doorbell_ring(spw_doorbell_low_half(&client->own->head->lane[k].command_tail),
                      &client->pool.feed[k]->asleep);
}

/* What is shown of a client begins with it; counters go on, so that the pool's sums never shrink. */
static void begin_counts(struct spw_client_head *head)
{
    for (uint32_t i = 0; i < SPW_COUNTERS_MAX; i++)
        spw_store_relaxed(&head->counter_base[i], spw_load_relaxed(&head->counter[i]));
    for (uint32_t i = 0; i < SPW_WAIT_OUTCOMES_MAX; i++) {
        spw_store_relaxed(&head->wait[i].sum_ns, 0);
        for (uint32_t b = 0; b < SPW_WAIT_BUCKETS; b++)
            spw_store_relaxed(&head->wait[i].bucket[b], 0);
    }
}

static void take_object(struct spw_client *client, uint32_t c, const char *label)
{
    client->number = c;
    client->own = &client->pool.client[c];
    struct spw_client_head *head = client->own->head;
    memset(head->label, 0, sizeof(head->label));
    if (label)
        memcpy(head->label, label, strnlen(label, sizeof(head->label) - 1));
    begin_counts(head);
    spw_store_relaxed(&head->wait_limit_ns, 0);
    spw_store_relaxed(&head->retry_limit_ns, 0);
    spw_store_relaxed(&head->budget_tokens, 0);
    client->generation = spw_client_take_over(client->own);
    make_lanes(client);
    for (uint32_t k = 0; k < client->workers; k++)
        wake(client, k);
}

/* A worker that is up, but doesn't serve this generation yet; -1 if there is none. */
static int unacknowledged(const struct spw_client *client)
{
    for (uint32_t k = 0; k < client->workers; k++) {
        const struct spw_worker_state *state = &client->pool.ctl->worker[k];
        const struct spw_feed_head *feed = client->pool.feed[k];
        /* [WS-1] acquire: phase before the incarnation it speaks of */
        if (spw_load_acquire(&state->phase) == SPW_WORKER_UP &&
            spw_load_relaxed(&state->incarnation) == spw_load_relaxed(&feed->incarnation) &&
            /* [CL-2] acquire: acknowledged before lanes and fences are used */
            spw_load_acquire(&feed->acked[client->number]) != client->generation)
            return (int)k;
    }
    return -1;
}

static int await_workers(const struct spw_client *client, uint64_t until_ns, struct spw_error *err)
{
    int k;
    while ((k = unacknowledged(client)) >= 0) {
        /* relaxed: closed for good. A new daemon holds the lock a moment before it closes what a
         * dead one left, so that this pool seemed to be served */
        if (spw_load_relaxed(&client->pool.ctl->phase) == SPW_POOL_CLOSED)
            return spw_fail(err, -EAGAIN,
                            "pool \"%s\" is being replaced by a new daemon; try again",
                            client->pool.path.name);
        if (spw_monotonic_ns() >= until_ns)
            return spw_fail(err, -ETIMEDOUT,
                            "pool \"%s\": worker %d did not acknowledge client %" PRIu32
                            " within %" PRIu64 " ms; is it stuck?",
                            client->pool.path.name, k, client->number,
                            client->timeout_ns / 1000000);
        wake(client, (uint32_t)k); /* no word that it sleeps on has moved since the generation */
        nap();
    }
    return 0;
}

/* Take a place that all workers serve. One whose last holder's copies still run is not given away
 * before they have ended, which may be never: then another place does. */
static int take_served(struct spw_client *client, const char *label, struct spw_error *err)
{
    const uint64_t until = spw_monotonic_ns() + client->timeout_ns;
    int c = spw_pool_take_client(&client->pool, false, err), rc = c;
    while (c >= 0) {
        uint64_t patience = spw_monotonic_ns() + client->timeout_ns / PLACES_TRIED;
        take_object(client, (uint32_t)c, label);
        rc = await_workers(client, patience < until ? patience : until, err);
        if (rc != -ETIMEDOUT || spw_monotonic_ns() >= until)
            return rc;
        int next = spw_pool_take_client_from(&client->pool, (uint32_t)c + 1, NULL);
        if (next < 0) /* no other: all the time that is left is for this one */
            return await_workers(client, until, err);
        spw_pool_give_client(&client->pool, (uint32_t)c);
        c = next;
    }
    return rc;
}

static int make_private(struct spw_client *client, const struct spw_attach_options *options)
{
    int rc = spw_change_log_init(&client->changes, options->changes);
    if (rc == 0)
        rc = spw_views_init(&client->views, &client->pool, options->numa_node, &client->changes);
    if (rc == 0)
        rc = spw_book_init(&client->book, client->own, OPEN_JOBS, options->numa_node,
                           &client->loading_epoch);
    if (rc == 0)
        rc = spw_awaits_init(&client->awaits, client->own);
    if (rc == 0)
        rc = spw_wakeup_init(&client->wakeup);
    client->views.wakeup = &client->wakeup;
    return rc;
}

/* Read every shard's table; a shard that changes too fast goes on being read in steps. */
static void fill_views(struct spw_client *client)
{
    for (uint32_t k = 0; k < client->workers; k++)
        for (uint32_t i = 0; i < SCAN_ROUNDS && !spw_view_live(&client->views, k); i++) {
            uint64_t budget = UINT64_MAX;
            spw_views_update(&client->views, k, &budget);
        }
    client->changes.lost = false; /* the caller's first picture is taken after this */
}

static int attach(struct spw_client *client, const struct spw_attach_options *options,
                  const struct spw_pool_path *path, struct spw_error *err)
{
    int rc = spw_pool_attach(path, SPW_ROLE_CLIENT, SPW_CLIENTS_MAX, &client->pool, err);
    if (rc < 0)
        return rc;
    client->workers = client->pool.geometry.workers;
    client->timeout_ns = options->timeout_ns;
    client->clock = options->now_ns;
    client->clock_ctx = options->clock_ctx;
    rc = take_served(client, options->label, err);
    if (rc < 0)
        return rc;
    rc = make_private(client, options);
    if (rc < 0)
        return spw_fail(err, rc, "attach: no memory for the replica of pool \"%s\"", path->name);
    fill_views(client);
    return 0;
}

/* What is not as it was asked for, and goes on without. */
static void tell_place(const struct spw_client *client, int32_t node, struct spw_error *err)
{
    const struct spw_replica *replica = &client->views.replica;
    char memory[140] = "", thread[100] = ""; /* together they fit */
    if (replica->refused)
        snprintf(memory, sizeof(memory),
                 "the replica can't be put on NUMA node %" PRId32 " (%s), it lies where it comes",
                 node, strerror(-replica->refused));
    else if (client->near_permille < NEAR_PERMILLE)
        snprintf(memory, sizeof(memory),
                 "%" PRIu32 " of 1000 sampled pages of the replica lie on NUMA node %" PRId32,
                 client->near_permille, node);
    if (client->thread_refused == -EADDRNOTAVAIL)
        snprintf(thread, sizeof(thread),
                 "NUMA node %" PRId32 " has no CPU that this thread may use, it isn't bound", node);
    else if (client->thread_refused)
        snprintf(thread, sizeof(thread), "this thread can't be bound (%s), it runs anywhere",
                 strerror(-client->thread_refused));
    err->text[0] = '\0';
    if (memory[0] || thread[0])
        snprintf(err->text, sizeof(err->text), "attach: %s%s%s", memory,
                 memory[0] && thread[0] ? "; " : "", thread);
}

static uint32_t near_permille(const struct spw_replica *replica)
{
    int rc = replica->refused ? replica->refused : spw_replica_near(replica);
    return rc < 0 ? UINT32_MAX : (uint32_t)rc;
}

int spw_attach(const struct spw_attach_options *options, struct spw_client **out_client,
               char *error_text, uint64_t error_bytes)
{
    struct spw_attach_options mine = {0};
    struct spw_pool_path path;
    struct spw_error err = {0};
    struct spw_client *client = NULL;
    struct spw_thread_place place = {.bound = false};
    int rc = out_client ? read_options(options, &mine, &path, &err) : -EINVAL;
    if (rc == 0) /* first: what is allocated from here on is near */
        rc = spw_thread_place(&mine, &place, &err);
    if (rc == 0 && !(client = calloc(1, sizeof(*client))))
        rc = -ENOMEM;
    if (rc == 0) {
        client->forks = spw_forked();
        spw_link_init(&client->spaces);
        spw_link_init(&client->requests);
        client->thread_refused = place.refused;
        rc = attach(client, &mine, &path, &err);
    }
    if (rc == 0) {
        client->near_permille = near_permille(&client->views.replica);
        tell_place(client, mine.numa_node, &err);
        *out_client = client;
    } else {
        spw_detach(client);
        spw_thread_place_undo(&place);
    }
    if (error_text && error_bytes > 0)
        snprintf(error_text, error_bytes, "%s", rc == 0 || err.text[0] ? err.text : strerror(-rc));
    return rc;
}

/* ---- detach ---------------------------------------------------------------------------------- */

static void free_private(struct spw_client *client)
{
    while (!spw_list_empty(&client->requests))
        spw_request_free(SPW_LINKED(client->requests.after, struct spw_request, link));
    while (!spw_list_empty(&client->spaces))
        spw_space_free(SPW_LINKED(client->spaces.after, struct spw_space, link));
    for (uint32_t g = 0; g < SPW_MAX_GROUPS; g++) {
        free(client->scratch[g].word);
        free(client->scratch[g].verdict);
    }
    spw_change_log_fini(&client->changes);
    spw_awaits_fini(&client->awaits);
    spw_wakeup_fini(&client->wakeup);
}

void spw_detach(struct spw_client *client)
{
    if (!client)
        return;
    free_private(client);
    if (client->forks == spw_forked()) {
        if (client->in_step)
            spw_client_step_end(client->own);
        spw_views_fini(&client->views);
        spw_book_fini(&client->book);
        spw_pool_detach(&client->pool);
    } else { /* a child has none of the mappings: what is there by now is something else */
        spw_book_forget(&client->book);
    }
    for (uint32_t k = 0; k < SPW_WORKERS_MAX; k++)
        free(client->fences[k]);
    free(client);
}
