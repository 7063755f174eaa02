/*
 * A HIT stays true until it is loaded: a worker that stores into a shard of one to three chunks and
 * frees what it may, clients that take real steps and ask for loads of what their view shows, and a
 * second worker that copies. Payload is plain memory, so ThreadSanitizer sees each byte that is
 * written while a copy may still read it. Clients dawdle in steps now and then, and are fenced.
 *
 * Shared: one pool in plain memory; findings are each thread's own.
 */
#include "tests/stress/stress.h"

#include "shm/lane.h"
#include "tests/stress/tier_mutants.h"
#include "tests/support/tiny_pool.h"
#include "tier/reclaim.h"

#include <pthread.h>
#include <sched.h>

#define CLIENTS    2u
#define KEYS       6u
#define WORDS      8u
#define COPY_STEPS 4u
#define FENCE_NS   2000000ull
#define ROUND_NS   150000000ull

#ifdef SPW_MUTANTS
static const char *const mutants[] = {RECLAIM_MUTANTS, NULL};
#else
static const char *const mutants[] = {NULL};
#endif

static struct tiny_pool tiny;
static struct spw_shard *owner_shard, *copier_shard;
static uint64_t round_end_ns;
static spw_atomic32 clients_left;

struct report {
    uint64_t seed;
    uint64_t loads, fenced;
    uint64_t lost;  /* the view said HIT, no load of it can be had, and the step isn't fenced */
    uint64_t wrong; /* bytes of another chunk */
};

static bool is_over(void)
{
    return stress_now_ns() >= round_end_ns;
}

/* Now and then for a moment, seldom for so long that a fence comes. */
static void dawdle(uint64_t *state)
{
    uint64_t dice = stress_random(state) >> 32;
    if ((dice & 2047) == 0) {
        uint64_t until = stress_now_ns() + 2 * FENCE_NS;
        while (stress_now_ns() < until)
            sched_yield();
    } else if ((dice & 31) == 0) {
        sched_yield();
    }
}

/* ---- the owner ------------------------------------------------------------------------------- */

static uint64_t *payload_of(uint32_t slot)
{
    return (uint64_t *)(void *)(tiny.pool.data[0] + (uint64_t)slot * tiny.pool.geometry.slot_bytes);
}

static void store_one(uint64_t n, uint64_t serial, bool fails)
{
    uint32_t slot;
    if (tiny_reserve(owner_shard, n, NULL, &slot) != SPW_RESERVED)
        return;
    for (uint32_t w = 0; w < WORDS; w++)
        payload_of(slot)[w] = serial * KEYS + n;
    if (fails)
        spw_shard_retire(owner_shard, slot);
    else
        spw_shard_ready(owner_shard, slot);
}

static void retire_one(uint32_t slot)
{
    struct spw_entry_copy entry;
    if (spw_shard_entry(owner_shard, slot, &entry) == 0 && entry.state == SPW_READY)
        spw_shard_retire(owner_shard, slot);
}

static void *own(void *arg)
{
    uint64_t state = *(uint64_t *)arg;
    for (uint64_t serial = 1; spw_load_acquire(&clients_left) != 0; serial++) {
        uint64_t dice = stress_random(&state) >> 20;
        store_one(dice % KEYS, serial, (dice >> 8 & 15) == 0);
        if ((dice >> 12 & 15) == 0)
            retire_one((uint32_t)(dice >> 16) % tiny.pool.geometry.slots);
        spw_shard_flush(owner_shard);
        if ((dice >> 24 & 3) != 0)
            spw_shard_reclaim(owner_shard, stress_now_ns());
        if ((dice >> 28 & 15) == 0)
            sched_yield();
    }
    return NULL;
}

/* ---- the copying worker ---------------------------------------------------------------------- */

struct copier_lane {
    struct spw_lane_consumer commands;
    struct spw_lane_producer completions;
    struct spw_command copying; /* .op 0: none */
    uint32_t steps;             /* of the copy */
    uint64_t first;             /* word read   */
    bool mixed;
};

static void answer(struct copier_lane *lane, const struct spw_command *command, int32_t status)
{
    struct spw_done done = {.kind = SPW_DONE_LOAD, .status = status, .ticket = lane->first};
    done.cookie = command->cookie;
    if (spw_lane_room(&lane->completions, 1) < 1)
        abort(); /* a client has one load at a time */
    spw_lane_write(&lane->completions, 0, &done, sizeof done);
    spw_lane_send(&lane->completions, 1);
}

static void take(struct copier_lane *lane)
{
    struct spw_command command;
    if (!spw_lane_peek(&lane->commands, &command))
        return;
    int rc = spw_shard_claim(copier_shard, 0, (uint32_t)command.arg, command.ticket);
    if (rc == -EAGAIN)
        return;
    spw_lane_release(&lane->commands, 1);
    if (rc < 0) {
        answer(lane, &command, rc);
        return;
    }
    lane->copying = command;
    lane->steps = 0;
    lane->mixed = false;
}

static void copy_on(struct copier_lane *lane)
{
    const uint64_t *payload = payload_of((uint32_t)lane->copying.arg);
    if (lane->steps == 0)
        lane->first = payload[0];
    for (uint32_t w = 0; w < WORDS; w++)
        lane->mixed |= payload[w] != lane->first;
    if (++lane->steps < COPY_STEPS)
        return;
    spw_shard_unclaim(copier_shard, 0, (uint32_t)lane->copying.arg);
    answer(lane, &lane->copying, lane->mixed ? -EIO : 0);
    lane->copying.op = 0;
}

static void open_lane(struct copier_lane *lane, uint32_t c)
{
    struct spw_client_view *view = &tiny.pool.client[c];
    struct spw_lane_worker *ours = &view->head->worker_lane[1];
    struct spw_lane_client *theirs = &view->head->lane[1];
    spw_lane_consumer_init(&lane->commands, view->command + view->command_slots,
                           view->command_slots, &ours->command_head);
    spw_lane_producer_init(&lane->completions, view->completion + view->completion_slots,
                           view->completion_slots, &ours->completion_tail,
                           &theirs->completion_head);
    lane->copying.op = 0;
}

static void *copy_all(void *arg)
{
    uint64_t state = *(uint64_t *)arg ^ 0x5555;
    struct copier_lane lane[CLIENTS];
    for (uint32_t c = 0; c < CLIENTS; c++)
        open_lane(&lane[c], c);
    while (spw_load_acquire(&clients_left) != 0) {
        for (uint32_t c = 0; c < CLIENTS; c++) {
            if (lane[c].copying.op != 0)
                copy_on(&lane[c]);
            else
                take(&lane[c]);
        }
        if ((stress_random(&state) >> 32 & 7) == 0)
            sched_yield();
    }
    return NULL;
}

/* ---- clients --------------------------------------------------------------------------------- */

struct load {
    bool open;
    uint32_t slot;
    uint64_t n, step;
};

struct client {
    struct report *report;
    struct tiny_view view;
    struct spw_lane_producer commands;
    struct spw_lane_consumer completions;
    struct load load;
    uint64_t step;
    uint32_t c;
};

static void open_client(struct client *client)
{
    struct spw_client_view *view = &tiny.pool.client[client->c];
    struct spw_lane_worker *theirs = &view->head->worker_lane[1];
    struct spw_lane_client *ours = &view->head->lane[1];
    if (tiny_view_init(&client->view, &tiny.pool, 0) < 0)
        abort();
    spw_lane_producer_init(&client->commands, view->command + view->command_slots,
                           view->command_slots, &ours->command_tail, &theirs->command_head);
    spw_lane_consumer_init(&client->completions, view->completion + view->completion_slots,
                           view->completion_slots, &ours->completion_head);
}

static bool is_fenced(struct client *client, uint64_t step)
{
    bool fenced = spw_step_fenced(tiny.pool.feed[0], client->c, step);
    client->report->fenced += fenced;
    return fenced;
}

/* The view says HIT: pin what the table has, ask for it. */
static void begin_load(struct client *client, uint64_t n, uint64_t *state)
{
    struct tiny_key key;
    struct spw_entry_copy entry;
    int rc = spw_table_find(&client->view.table, tiny_key(&key, 0, n), &entry);
    if (rc < 0) {
        client->report->lost += rc == -ENOENT && !is_fenced(client, client->step);
        return;
    }
    dawdle(state);
    tiny_pin(&tiny, client->c, 0, entry.slot, true);
    struct spw_command command = {.op = SPW_CMD_LOAD,
                                  .step = client->step,
                                  .ticket = entry.fill,
                                  .arg = entry.slot,
                                  .cookie = n};
    if (spw_lane_room(&client->commands, 1) < 1)
        abort();
    spw_lane_write(&client->commands, 0, &command, sizeof command);
    spw_lane_send(&client->commands, 1);
    client->load = (struct load){true, entry.slot, n, client->step};
}

static void end_load(struct client *client)
{
    struct spw_done done;
    if (!spw_lane_peek(&client->completions, &done))
        return;
    spw_lane_release(&client->completions, 1);
    tiny_pin(&tiny, client->c, 0, client->load.slot, false);
    client->load.open = false;
    client->report->loads++;
    if (done.status == -ESTALE)
        client->report->lost += !is_fenced(client, client->load.step);
    else
        client->report->wrong += done.status != 0 || done.ticket % KEYS != client->load.n;
}

static void take_step(struct client *client, uint64_t *state)
{
    struct spw_client_view *view = &tiny.pool.client[client->c];
    uint64_t positions[SPW_WORKERS_MAX] = {client->view.reader.cursor};
    client->step = spw_client_step_begin(view, positions);
    tiny_view_update(&client->view);
    if (client->view.valid)
        spw_client_step_applied(view, 0, client->view.reader.cursor);
    dawdle(state);
    uint64_t n = (stress_random(state) >> 32) % KEYS;
    if (!client->load.open && client->view.state[n] == SPW_READY)
        begin_load(client, n, state);
    dawdle(state);
    spw_client_step_end(view);
}

static void *be_client(void *arg)
{
    struct client *client = arg;
    uint64_t state = client->report->seed;
    while (client->load.open || !is_over()) {
        if (!is_over())
            take_step(client, &state);
        if (client->load.open)
            end_load(client);
        if ((stress_random(&state) >> 32 & 7) == 0)
            sched_yield();
    }
    return NULL;
}

/* ---- rounds ---------------------------------------------------------------------------------- */

static void run_round(uint32_t capacity, uint64_t *seed, struct report *total)
{
    struct spw_geometry geometry = tiny_geometry(2, CLIENTS, capacity, capacity + 1);
    struct client clients[CLIENTS];
    struct report report[CLIENTS] = {0};
    pthread_t owner, copier, thread[CLIENTS];
    uint64_t own_seed = stress_random(seed);
    if (tiny_pool_make(&tiny, &geometry) < 0)
        abort();
    tiny.fence_ns = FENCE_NS;
    owner_shard = tiny_shard_open(&tiny, 0);
    copier_shard = tiny_shard_open(&tiny, 1);
    if (!owner_shard || !copier_shard)
        abort();
    round_end_ns = stress_now_ns() + ROUND_NS;
    spw_store_relaxed(&clients_left, CLIENTS);
    for (uint32_t c = 0; c < CLIENTS; c++) {
        report[c].seed = stress_random(seed);
        clients[c] = (struct client){.report = &report[c], .c = c};
        open_client(&clients[c]);
        pthread_create(&thread[c], NULL, be_client, &clients[c]);
    }
    pthread_create(&owner, NULL, own, &own_seed);
    pthread_create(&copier, NULL, copy_all, &own_seed);
    for (uint32_t c = 0; c < CLIENTS; c++) {
        pthread_join(thread[c], NULL);
        total->loads += report[c].loads;
        total->fenced += report[c].fenced;
        total->lost += report[c].lost;
        total->wrong += report[c].wrong;
    }
    spw_store_release(&clients_left, 0);
    pthread_join(owner, NULL);
    pthread_join(copier, NULL);
    spw_shard_close(owner_shard);
    spw_shard_close(copier_shard);
    tiny_pool_free(&tiny);
}

int main(int argc, char **argv)
{
    struct stress run = stress_arguments(argc, argv, mutants);
    struct report total = {0};
    uint64_t seed = run.seed, end_ns = stress_now_ns() + (uint64_t)(run.seconds * 1e9);
    char counts[160];
#ifdef SPW_MUTANTS
    reclaim_mutant_set_up(run.mutate);
    claims_mutant_set_up(run.mutate);
    shard_mutant_set_up(run.mutate);
#endif
    for (uint32_t round = 0; stress_now_ns() < end_ns && total.lost + total.wrong == 0; round++)
        run_round(1 + round % 3, &seed, &total);
    snprintf(counts, sizeof counts,
             "%" PRIu64 " loads, %" PRIu64 " fenced, %" PRIu64 " HITs lost, %" PRIu64
             " of wrong bytes",
             total.loads, total.fenced, total.lost, total.wrong);
    return stress_end(&run, total.lost + total.wrong + (total.loads == 0), counts);
}
