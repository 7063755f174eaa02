/*
 * Second half of a job, and its end before its time. Written: command lanes, through send.c.
 */
#include "sched/handle.h"

#include <string.h>

/* ---- run ------------------------------------------------------------------------------------- */

static void send_run(struct spw_client *client, const struct spw_ticket *ticket,
                     const uint32_t *blocks, uint32_t block_count, uint32_t fence,
                     struct spw_open_job *job)
{
    struct spw_lane_producer *lane = &client->command[ticket->worker];
    uint8_t op = ticket->kind == SPW_JOB_STORE ? SPW_CMD_STORE : SPW_CMD_LOAD;
    struct spw_command command = spw_command_make(client, op, ticket->incarnation);
    uint32_t slots = 0;
    for (uint32_t at = 0; at < block_count; at += SPW_BLOCKS_PER_SLOT) {
        uint32_t n =
            block_count - at < SPW_BLOCKS_PER_SLOT ? block_count - at : SPW_BLOCKS_PER_SLOT;
        spw_lane_write(lane, ++slots, &blocks[at], n * (uint32_t)sizeof(*blocks));
    }
    command.body_slots = (uint8_t)slots;
    command.count = (uint16_t)block_count;
    command.ticket = ticket->id;
    command.cookie = spw_book_cookie(job);
    command.arg = fence | (spw_kv_registered(client, ticket->worker) ? SPW_RUN_REGISTERED : 0);
    spw_command_send(client, ticket->worker, &command);
}

static bool ticket_sane(const struct spw_client *client, const struct spw_ticket *ticket)
{
    return ticket && ticket->id != 0 && ticket->worker < client->workers &&
           (ticket->kind == SPW_JOB_STORE || ticket->kind == SPW_JOB_LOAD) && ticket->chunks > 0 &&
           ticket->chunks <= SPW_MAX_JOB_CHUNKS;
}

/* The job that this client knows under the ticket, if it waits for its run; else a new one. */
static struct spw_open_job *job_to_run(struct spw_client *client, const struct spw_ticket *ticket)
{
    struct spw_open_job *job =
        spw_book_by_ticket(&client->book, ticket->worker, ticket->incarnation, ticket->id);
    if (job && job->state == SPW_OPEN_HANDED)
        return job;
    job = spw_book_open(&client->book,
                        ticket->kind == SPW_JOB_STORE ? SPW_OPEN_STORE : SPW_OPEN_LOAD);
    if (!job)
        return NULL;
    job->worker = ticket->worker;
    job->incarnation = ticket->incarnation;
    job->ticket = ticket->id;
    return job;
}

/* @fence 1 + its number, 0 = none. */
static int run(struct spw_client *client, const struct spw_ticket *ticket, const uint32_t *blocks,
               uint32_t block_count, uint64_t cookie, uint32_t fence)
{
    if (!ticket_sane(client, ticket) || !blocks || block_count == 0 ||
        block_count % ticket->chunks != 0 || block_count / ticket->chunks > SPW_CHUNK_BLOCKS_MAX)
        return -EINVAL;
    uint64_t incarnation;
    if (!spw_worker_up(client, ticket->worker, &incarnation) || incarnation != ticket->incarnation)
        return -EOWNERDEAD;
    uint32_t slots = 1 + (block_count + SPW_BLOCKS_PER_SLOT - 1) / SPW_BLOCKS_PER_SLOT;
    if (slots > client->own->command_slots)
        return -EMSGSIZE;
    if (spw_command_room(client, ticket->worker, slots) < slots) {
        spw_count(client, SPW_CLIENT_lanes_full, 1);
        return -EAGAIN;
    }
    struct spw_open_job *job = job_to_run(client, ticket);
    if (!job) {
        spw_count(client, SPW_CLIENT_jobs_full, 1);
        return -EBUSY;
    }
    job->cookie = cookie;
    spw_book_run(&client->book, job);
    if (fence != 0)
        spw_fence_use(client, job, fence - 1);
    send_run(client, ticket, blocks, block_count, fence, job);
    spw_count(client, SPW_CLIENT_runs, 1);
    return 0;
}

int spw_run(struct spw_client *client, const struct spw_ticket *ticket, const uint32_t *blocks,
            uint32_t block_count, uint64_t cookie)
{
    int rc = client ? spw_client_check(client) : -EINVAL;
    return rc < 0 ? rc : run(client, ticket, blocks, block_count, cookie, 0);
}

int spw_run_after(struct spw_client *client, const struct spw_ticket *ticket,
                  const uint32_t *blocks, uint32_t block_count, uint64_t cookie, uint32_t fence)
{
    int rc = client ? spw_client_check(client) : -EINVAL;
    if (rc < 0)
        return rc;
    if (!ticket || !spw_fence_taken(client, ticket->worker, fence))
        return -EINVAL;
    return run(client, ticket, blocks, block_count, cookie, fence + 1);
}

/* ---- cancel ---------------------------------------------------------------------------------- */

/* Remember what was cancelled last, to tell a second time from a ticket of another process. */
static bool cancelled_before(struct spw_client *client, const struct spw_ticket *ticket)
{
    for (uint32_t i = 0; i < SPW_CANCELLED_KEPT; i++)
        if (client->cancelled[i].id == ticket->id &&
            client->cancelled[i].worker == ticket->worker &&
            client->cancelled[i].incarnation == ticket->incarnation)
            return true;
    client->cancelled[client->cancels++ % SPW_CANCELLED_KEPT] = *ticket;
    return false;
}

int spw_cancel(struct spw_client *client, const struct spw_ticket *ticket)
{
    int rc = client ? spw_client_check(client) : -EINVAL;
    if (rc < 0)
        return rc;
    if (!ticket || ticket->worker >= client->workers)
        return -EINVAL;
    if (ticket->id == 0)
        return 0;
    struct spw_open_job *job =
        spw_book_by_ticket(&client->book, ticket->worker, ticket->incarnation, ticket->id);
    uint64_t incarnation;
    bool there =
        spw_worker_up(client, ticket->worker, &incarnation) && incarnation == ticket->incarnation;
    if (there && spw_command_room(client, ticket->worker, 1) < 1) {
        spw_count(client, SPW_CLIENT_lanes_full, 1);
        return -EAGAIN;
    }
    if (cancelled_before(client, ticket)) {
        spw_count(client, SPW_CLIENT_double_releases, 1);
        return 0;
    }
    if (job && job->state == SPW_OPEN_HANDED)
        spw_book_end(&client->book, job);
    return there ? spw_command_cancel(client, ticket->worker, incarnation, ticket->id) : 0;
}

/* The job goes on without its request: a ticket still to come is cancelled when it comes, one that
 * is there now; what is copying completes as usual. */
static void leave(struct spw_client *client, struct spw_open_job *job)
{
    spw_book_unload(&client->book, job, 0);
    spw_book_leave_request(job);
    job->doomed = true;
    if (job->state != SPW_OPEN_ASKED &&
        spw_command_cancel(client, job->worker, job->incarnation, job->ticket) < 0)
        return; /* again when completions are reaped */
    if (job->state == SPW_OPEN_HANDED)
        spw_book_end(&client->book, job);
    else if (job->state == SPW_OPEN_RUN)
        job->doomed = false;
}

static void leave_all(struct spw_request *request, bool stores_go_on)
{
    struct spw_client *client = request->client;
    for (struct spw_link *at = request->jobs.after, *after; at != &request->jobs; at = after) {
        struct spw_open_job *job = SPW_LINKED(at, struct spw_open_job, of_request);
        after = at->after;
        if (stores_go_on && job->kind == SPW_OPEN_STORE && job->state == SPW_OPEN_RUN)
            spw_book_leave_request(job);
        else
            leave(client, job);
    }
    spw_defer_cancel(request);
}

int spw_request_cancel(struct spw_request *request)
{
    int rc = request ? spw_client_check(request->client) : -EINVAL;
    if (rc < 0)
        return rc;
    leave_all(request, false);
    return 0;
}

void spw_request_finish(struct spw_request *request)
{
    if (!request)
        return;
    if (spw_client_there(request->client) == 0)
        leave_all(request, true);
    while (!spw_list_empty(&request->jobs))
        spw_book_leave_request(SPW_LINKED(request->jobs.after, struct spw_open_job, of_request));
    spw_request_free(request);
}
