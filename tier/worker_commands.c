/*
 * Taking and checking commands.
 *
 * A command is input: head and body are copied out of the lane once, each value is checked there
 * and only the copy is used. What makes no sense is answered -EINVAL and counted.
 *
 *   worker does                     others see if it dies right after
 *   slots or claims are taken       see worker_halves.c; the command is untaken
 *   head moved: taken               no answer: the client library ends it by -EOWNERDEAD
 *   answer sent                     ticket of a dead incarnation: refused by generation
 */
#include "shm/crash_point.h"
#include "tier/reclaim.h"
#include "tier/worker_taking.h"

#include <string.h>

#define LANE_BUDGET    8u
#define CLAIM_RETRY_NS 100000u /* for an entry that is being changed, or slots that come */
#define ROOM_RETRY_NS  1000000u

/* The record of a space that is open, or NULL. */
const struct spw_space_record *spw_worker_record_of(const struct spw_worker *worker, uint32_t space)
{
    if (space >= SPW_SPACES_MAX)
        return NULL;
    const struct spw_space_slot *slot = &worker->pool->ctl->space[space];
    /* [SP-1] acquire: the daemon stored the record before ready */
    return spw_load_acquire(&slot->ready) == 1 ? &slot->record : NULL;
}

bool spw_worker_refuse(struct spw_worker_taking *taking, int status)
{
    taking->answer.status = status;
    return true;
}

bool spw_worker_refuse_bad(struct spw_worker *worker, struct spw_worker_taking *taking)
{
    spw_worker_count(worker, SPW_WORKER_commands_bad, 1);
    return spw_worker_refuse(taking, -EINVAL);
}

bool spw_worker_fenced(const struct spw_worker *worker, const struct spw_worker_taking *taking)
{
    return spw_step_fenced(worker->feed, taking->c, taking->head.step);
}

uint32_t spw_worker_chunks_offered(const struct spw_worker_taking *taking)
{
    uint32_t count = taking->head.count;
    return count < SPW_JOB_CHUNKS_MAX ? count : SPW_JOB_CHUNKS_MAX;
}

/* ---- cancel, touch, reset ------------------------------------------------------------------- */

static bool take_cancel(struct spw_worker *worker, struct spw_worker_taking *taking)
{
    struct spw_job *job = spw_jobs_find(&worker->jobs, taking->head.ticket);
    if (job)
        spw_worker_end_job(worker, job, SPW_WHY_CANCELLED);
    return true;
}

static bool take_touch(struct spw_worker *worker, struct spw_worker_taking *taking)
{
    uint32_t count = taking->head.count;
    if (spw_worker_fenced(worker, taking))
        return true;
    if (taking->head.body_slots != SPW_SLOTS_FOR(count, SPW_TOUCHES_PER_SLOT))
        return spw_worker_refuse_bad(worker, taking);
    for (uint32_t i = 0; i < count; i++) {
        uint64_t tag;
        memcpy(&tag, taking->body + i * sizeof(tag), sizeof(tag)); /* seven fill a slot whole */
        spw_shard_touch(worker->shard, tag);
        if (worker->cold)
            spw_worker_down_touched(worker, tag);
    }
    return true;
}

/* The open spaces among those meant are of another generation from now on. Returns how many. */
static uint32_t raise_generations(struct spw_worker *worker, uint32_t which)
{
    uint32_t raised = 0;
    for (uint32_t space = 0; space < SPW_SPACES_MAX; space++) {
        if (!spw_space_meant(which, space) || !spw_worker_record_of(worker, space))
            continue;
        /* relaxed: whoever stores with the old number is refused, whenever it reads the new one */
        spw_add_own(&worker->feed->space_generation[space], 1);
        raised++;
    }
    return raised;
}

/* 0, or why the tier below may still have what is to go; client.below_reset: it is being told. */
static int reset(struct spw_worker *worker, uint32_t c, uint32_t which)
{
    /* a tier below that couldn't be opened may still have old chunks */
    int below = worker->config.open_cold ? -EIO : 0;
    uint32_t raised = raise_generations(worker, which);
    SPW_CRASH_POINT("worker.space_generation_raised");
    if (worker->cold)
        below = spw_worker_cold_reset(worker, c, which);
    spw_worker_reset_jobs(worker, which);
    spw_shard_retire_space(worker->shard, which);
    spw_shard_flush(worker->shard);
    spw_worker_count(worker, SPW_WORKER_resets, raised);
    return below;
}

/* Taken once the medium below knows, too; until then it is looked at in vain. */
static bool take_reset(struct spw_worker *worker, struct spw_worker_taking *taking)
{
    uint32_t space = taking->head.space;
    struct spw_worker_client *client = taking->client;
    if (client->below_reset != 0)
        return false;
    if (client->below_over) {
        client->below_over = false;
        taking->answer.mask = space == SPW_ALL_SPACES ? client->below_unopened : 0;
        return spw_worker_refuse(taking, client->below_status);
    }
    if (spw_worker_fenced(worker, taking))
        return spw_worker_refuse(taking, -ESTALE);
    if (space != SPW_ALL_SPACES && !spw_worker_record_of(worker, space))
        return spw_worker_refuse_bad(worker, taking);
    int below = reset(worker, taking->c, space);
    if (below < 0)
        return spw_worker_refuse(taking, below);
    return client->below_reset == 0;
}

/* ---- a lane --------------------------------------------------------------------------------- */

enum taken { NOTHING_THERE, TAKEN, STAYS };

static uint8_t answer_kind(uint8_t op)
{
    static const uint8_t kinds[] = {
        [SPW_CMD_RESERVE] = SPW_DONE_RESERVE, [SPW_CMD_STORE] = SPW_DONE_STORE,
        [SPW_CMD_BEGIN] = SPW_DONE_BEGIN,     [SPW_CMD_LOAD] = SPW_DONE_LOAD,
        [SPW_CMD_RESET] = SPW_DONE_RESET,     [SPW_CMD_PROMOTE] = SPW_DONE_PROMOTE,
    };
    return op < sizeof(kinds) ? kinds[op] : 0;
}

static bool has_room(struct spw_worker_client *client)
{
    return spw_lane_room(&client->completions, client->owed + 1) > client->owed;
}

/* The whole message into this process's memory; false: its envelope makes no sense. */
static bool copy_out(struct spw_worker *worker, struct spw_worker_taking *taking)
{
    const struct spw_lane_consumer *lane = &taking->client->commands;
    uint8_t *body = (uint8_t *)worker->body;
    if (taking->head.body_slots >= worker->pool->geometry.command_slots)
        return false;
    for (uint32_t i = 0; i < taking->head.body_slots; i++)
        if (spw_lane_read(lane, 1 + i, body + i * SPW_LANE_PAYLOAD_BYTES, SPW_LANE_PAYLOAD_BYTES) <
            0)
            return false;
    taking->body = body;
    return true;
}

static bool carry_out(struct spw_worker *worker, struct spw_worker_taking *taking)
{
    switch (taking->head.op) {
    case SPW_CMD_RESERVE:
        return spw_worker_take_reserve(worker, taking);
    case SPW_CMD_STORE:
        return spw_worker_take_run(worker, taking, SPW_COPY_STORE);
    case SPW_CMD_BEGIN:
        return spw_worker_take_begin(worker, taking);
    case SPW_CMD_LOAD:
        return spw_worker_take_run(worker, taking, SPW_COPY_LOAD);
    case SPW_CMD_CANCEL:
        return take_cancel(worker, taking);
    case SPW_CMD_TOUCH:
        return take_touch(worker, taking);
    case SPW_CMD_RESET:
        return take_reset(worker, taking);
    case SPW_CMD_PROMOTE:
        return spw_worker_take_promote(worker, taking);
    case SPW_CMD_REGISTER:
        return spw_worker_take_register(worker, taking);
    default:
        return spw_worker_refuse_bad(worker, taking);
    }
}

/* Sent by an earlier holder of the object or to an earlier worker: nobody waits for our answer. */
static bool outdated(struct spw_worker *worker, const struct spw_worker_taking *taking)
{
    if (taking->head.generation == (uint32_t)taking->client->generation &&
        taking->head.incarnation == (uint32_t)spw_shard_incarnation(worker->shard))
        return false;
    if (taking->head.op == SPW_CMD_RESERVE) {
        spw_worker_count(worker, SPW_WORKER_chunks_offered, spw_worker_chunks_offered(taking));
        spw_worker_count(worker, SPW_WORKER_refused_stale, spw_worker_chunks_offered(taking));
    }
    return true;
}

static void answer(struct spw_worker_taking *taking)
{
    spw_lane_write(&taking->client->completions, 0, &taking->answer, sizeof(taking->answer));
    spw_lane_send(&taking->client->completions, 1);
    SPW_CRASH_POINT("worker.answer_sent");
}

static enum taken take_next(struct spw_worker *worker, uint32_t c)
{
    struct spw_worker_client *client = &worker->client[c];
    struct spw_worker_taking taking = {.c = c, .client = client};
    if (!spw_lane_peek(&client->commands, &taking.head))
        return NOTHING_THERE;
    if (!copy_out(worker, &taking)) {
        spw_worker_count(worker, SPW_WORKER_commands_bad, 1);
        spw_lane_release(&client->commands, 1);
        return TAKEN;
    }
    uint32_t slots = 1u + taking.head.body_slots;
    if (outdated(worker, &taking)) {
        spw_lane_release(&client->commands, slots);
        return TAKEN;
    }
    taking.answer = (struct spw_done){.kind = answer_kind(taking.head.op),
                                      .generation = (uint32_t)client->generation,
                                      .incarnation = (uint32_t)spw_shard_incarnation(worker->shard),
                                      .cookie = taking.head.cookie};
    taking.answers = taking.answer.kind != 0;
    client->waits_for_room = taking.answers && !has_room(client);
    if (client->waits_for_room || !carry_out(worker, &taking))
        return STAYS;
    spw_lane_release(&client->commands, slots);
    SPW_CRASH_POINT("worker.command_taken");
    spw_worker_count(worker, SPW_WORKER_commands, 1);
    if (taking.answers)
        answer(&taking);
    return TAKEN;
}

static void retry_in(struct spw_worker *worker, uint64_t wait_ns)
{
    if (worker->now_ns + wait_ns < worker->retry_ns)
        worker->retry_ns = worker->now_ns + wait_ns;
}

uint32_t spw_worker_take_commands(struct spw_worker *worker, bool *out_more)
{
    uint32_t total = 0;
    *out_more = false;
    for (uint32_t i = 0; i < worker->clients; i++) {
        uint32_t c = (worker->first_client + i) % worker->clients;
        struct spw_worker_client *client = &worker->client[c];
        enum taken taken = NOTHING_THERE;
        uint32_t left = client->phase == SPW_CLIENT_SERVED ? LANE_BUDGET : 0;
        for (; left != 0 && (taken = take_next(worker, c)) == TAKEN; left--)
            total++;
        if (taken == TAKEN)
            *out_more = true;
        if (taken == STAYS && client->below_reset == 0)
            retry_in(worker, client->waits_for_room ? ROOM_RETRY_NS : CLAIM_RETRY_NS);
    }
    worker->first_client = (worker->first_client + 1) % worker->clients;
    return total;
}

bool spw_worker_has_command(struct spw_worker *worker)
{
    for (uint32_t c = 0; c < worker->clients; c++) {
        struct spw_worker_client *client = &worker->client[c];
        struct spw_command head;
        if (client->phase != SPW_CLIENT_SERVED || client->claim_tries != 0 ||
            client->below_reset != 0 || client->promoting.until_ns != 0 || client->registering)
            continue;
        if (spw_lane_peek(&client->commands, &head) &&
            (!client->waits_for_room || has_room(client)))
            return true;
    }
    return false;
}
