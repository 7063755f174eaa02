/*
 * Completions: what workers answer, and what the library itself answers for workers that died.
 * Written: the reaped position of each completion lane, through shm/lane.h. Each job ends once: an
 * answer to a job that is no more is counted and dropped.
 */
#include "sched/handle.h"

#define ERRNO_MAX 4095

/* ---- answers --------------------------------------------------------------------------------- */

static bool answers(const struct spw_open_job *job, const struct spw_done *done, uint32_t k)
{
    if (job->kind == SPW_OPEN_RESET)
        return done->kind == SPW_DONE_RESET && job->waits_for >> k & 1 &&
               (uint32_t)job->incarnations[k] == done->incarnation;
    if (job->kind == SPW_OPEN_PROMOTE)
        return done->kind == SPW_DONE_PROMOTE && job->worker == k &&
               (uint32_t)job->incarnation == done->incarnation;
    bool store = job->kind == SPW_OPEN_STORE;
    uint32_t most = job->state == SPW_OPEN_ASKED ? job->chunks : SPW_JOB_CHUNKS_MAX;
    uint8_t kind = job->state == SPW_OPEN_ASKED ? (store ? SPW_DONE_RESERVE : SPW_DONE_BEGIN)
                                                : (store ? SPW_DONE_STORE : SPW_DONE_LOAD);
    return done->kind == kind && job->state != SPW_OPEN_HANDED && job->worker == k &&
           (uint32_t)job->incarnation == done->incarnation && done->count <= most;
}

/* What a worker says is input: an error is an error. */
static int32_t status_of(const struct spw_done *done)
{
    return done->status <= 0 && done->status >= -ERRNO_MAX ? done->status : -EBADMSG;
}

/* New chunks are among those that were accepted. */
static uint64_t fresh_of(const struct spw_done *done)
{
    return done->count < 64 ? done->mask & ((1ull << done->count) - 1) : done->mask;
}

static struct spw_completion completion_of(const struct spw_open_job *job, int32_t status)
{
    static const uint32_t asked[] = {
        [SPW_OPEN_STORE] = SPW_COMPLETION_RESERVED,
        [SPW_OPEN_LOAD] = SPW_COMPLETION_BEGUN,
        [SPW_OPEN_RESET] = SPW_COMPLETION_RESET,
    };
    static const uint32_t run[] = {
        [SPW_OPEN_STORE] = SPW_COMPLETION_STORED,
        [SPW_OPEN_LOAD] = SPW_COMPLETION_LOADED,
    };
    return (struct spw_completion){
        .kind = job->state == SPW_OPEN_RUN ? run[job->kind] : asked[job->kind],
        .status = status,
        .cookie = job->cookie,
        .ticket = {.worker = job->worker,
                   .incarnation = job->incarnation,
                   .kind = job->kind == SPW_OPEN_LOAD ? SPW_JOB_LOAD : SPW_JOB_STORE},
    };
}

/* The ticket of a request that is gone: end it, now or when the lane has room. */
static void end_doomed(struct spw_client *client, struct spw_open_job *job)
{
    if (job->ticket == 0 ||
        spw_command_cancel(client, job->worker, job->incarnation, job->ticket) == 0)
        spw_book_end(&client->book, job);
    else
        spw_book_hand(&client->book, job);
}

/* An answer to a first half. Returns the number of completions for the caller, 0 or 1. */
static uint32_t take_first(struct spw_client *client, struct spw_open_job *job,
                           const struct spw_done *done, struct spw_completion *out)
{
    *out = completion_of(job, status_of(done));
    out->mask = fresh_of(done);
    spw_book_unpin(&client->book, job); /* taken: the copier has a claim of its own */
    spw_book_unload(&client->book, job, done->count);
    job->ticket = done->ticket;
    if (job->doomed) {
        spw_count(client, SPW_CLIENT_late_completions, 1);
        end_doomed(client, job);
        return 0;
    }
    if (done->ticket == 0 || done->count == 0) {
        spw_book_end(&client->book, job);
        out->ticket.chunks = done->count;
        return 1;
    }
    out->ticket.id = done->ticket;
    out->ticket.chunks = done->count;
    spw_book_hand(&client->book, job);
    return 1;
}

static uint32_t take_second(struct spw_client *client, struct spw_open_job *job,
                            const struct spw_done *done, struct spw_completion *out)
{
    *out = completion_of(job, status_of(done));
    out->mask = done->mask;
    out->ticket.id = done->ticket;
    out->ticket.chunks = done->count;
    spw_book_end(&client->book, job);
    return 1;
}

/* A shard whose worker didn't do it may come back with what it had. */
static uint32_t take_reset(struct spw_client *client, struct spw_open_job *job, uint32_t k,
                           bool done, struct spw_completion *out)
{
    job->waits_for &= ~(1ull << k);
    job->missed |= done ? 0 : 1ull << k;
    if (job->waits_for != 0)
        return 0;
    *out = completion_of(job, job->missed == 0 ? 0 : -EOWNERDEAD);
    spw_book_end(&client->book, job);
    return 1;
}

static uint32_t take_answer(struct spw_client *client, uint32_t k, const struct spw_done *done,
                            struct spw_completion *out)
{
    struct spw_open_job *job = done->generation == (uint32_t)client->generation
                                   ? spw_book_by_cookie(&client->book, done->cookie)
                                   : NULL;
    if (!job || !answers(job, done, k)) {
        spw_count(client, SPW_CLIENT_late_completions, 1);
        return 0;
    }
    if (job->kind == SPW_OPEN_RESET)
        return take_reset(client, job, k, done->status == 0, out);
    if (job->kind == SPW_OPEN_PROMOTE) {
        spw_promote_settle(client, job, done);
        return 0;
    }
    return job->state == SPW_OPEN_ASKED ? take_first(client, job, done, out)
                                        : take_second(client, job, done, out);
}

/* ---- workers that died ----------------------------------------------------------------------- */

/* What ctl and the locks say of worker @k; an incarnation is over when it was reaped or a later one is known. */
struct fate {
    uint64_t incarnation;
    bool reaped;
};

static struct fate fate_of(const struct spw_client *client, uint32_t k)
{
    const struct spw_worker_state *state = &client->pool.ctl->worker[k];
    /* [WS-1] acquire: REAPED before what the process still did */
    uint32_t phase = spw_load_acquire(&state->phase);
    return (struct fate){.incarnation = spw_load_relaxed(&state->incarnation),
                         .reaped = phase == SPW_WORKER_REAPED || client->bereft >> k & 1};
}

static bool is_over(const struct fate *fate, uint64_t incarnation)
{
    return spw_pos_before(incarnation, fate->incarnation) ||
           (fate->reaped && incarnation == fate->incarnation);
}

static uint32_t end_dead_reset(struct spw_client *client, struct spw_open_job *job,
                               const struct fate *fate, struct spw_completion *out)
{
    for (uint64_t left = job->waits_for; left != 0; left &= left - 1) {
        uint32_t k = (uint32_t)__builtin_ctzll(left);
        if (is_over(&fate[k], job->incarnations[k]) && take_reset(client, job, k, false, out))
            return 1;
    }
    return 0;
}

/* End @job if its worker is over. Returns the number of completions for the caller. */
static uint32_t end_if_dead(struct spw_client *client, struct spw_open_job *job,
                            const struct fate *fate, struct spw_completion *out)
{
    if (job->kind == SPW_OPEN_RESET)
        return end_dead_reset(client, job, fate, out);
    if (!is_over(&fate[job->worker], job->incarnation))
        return 0;
    if (job->kind == SPW_OPEN_PROMOTE) {
        spw_promote_settle(client, job, NULL);
        return 0;
    }
    bool told = job->state == SPW_OPEN_RUN || (job->state == SPW_OPEN_ASKED && !job->doomed);
    if (told) {
        *out = completion_of(job, -EOWNERDEAD);
        out->mask = job->state == SPW_OPEN_RUN ? UINT64_MAX : 0; /* which chunks: nobody knows */
    }
    spw_count(client, SPW_CLIENT_owner_dead, 1);
    spw_book_end(&client->book, job);
    return told;
}

static uint32_t end_dead_jobs(struct spw_client *client, const struct fate *fate,
                              struct spw_completion *out, uint32_t max)
{
    struct spw_link *busy = &client->book.busy, *handed = &client->book.handed, *at, *after;
    struct spw_completion none;
    uint32_t n = 0;
    for (at = busy->after; at != busy && n < max; at = after) {
        after = at->after;
        n += end_if_dead(client, SPW_LINKED(at, struct spw_open_job, link), fate, &out[n]);
    }
    for (at = handed->after; at != handed; at = after) {
        after = at->after;
        end_if_dead(client, SPW_LINKED(at, struct spw_open_job, link), fate, &none);
    }
    return n;
}

/* Jobs of requests that are gone, not cancelled yet for want of room in the lane. */
static void retry_doomed(struct spw_client *client)
{
    struct spw_link *busy = &client->book.busy, *handed = &client->book.handed, *at, *after;
    for (at = handed->after; at != handed; at = after) {
        struct spw_open_job *job = SPW_LINKED(at, struct spw_open_job, link);
        after = at->after;
        if (job->doomed && spw_command_room(client, job->worker, 1) > 0)
            end_doomed(client, job);
    }
    for (at = busy->after; at != busy; at = at->after) {
        struct spw_open_job *job = SPW_LINKED(at, struct spw_open_job, link);
        if (job->doomed && job->state == SPW_OPEN_RUN)
            job->doomed =
                spw_command_cancel(client, job->worker, job->incarnation, job->ticket) < 0;
    }
}

/* Pins of loads that were taken, though their answer isn't there yet. */
static void drop_taken_pins(struct spw_client *client)
{
    struct spw_book *book = &client->book;
    if (book->pinned_jobs == 0)
        return;
    for (struct spw_link *at = book->busy.after; at != &book->busy; at = at->after) {
        struct spw_open_job *job = SPW_LINKED(at, struct spw_open_job, link);
        if (job->pins == 0)
            continue;
        /* [LN-2] acquire: the copier's bit before the pin goes */
        uint64_t head = spw_load_acquire(&client->own->head->worker_lane[job->worker].command_head);
        if (spw_pos_before(job->command_pos, head))
            spw_book_unpin(book, job);
    }
}

int spw_completions(struct spw_client *client, struct spw_completion *out, uint32_t max)
{
    struct fate fate[SPW_WORKERS_MAX];
    struct spw_done done;
    uint32_t n = 0;
    if (!client || (!out && max > 0))
        return -EINVAL;
    spw_client_watch(client);
    int rc = spw_client_check(client);
    if (rc < 0)
        return rc;
    for (uint32_t k = 0; k < client->workers; k++)
        fate[k] = fate_of(client, k);
    for (uint32_t k = 0; k < client->workers && n < max; k++) {
        struct spw_lane_consumer *lane = &client->completion[k];
        while (n < max && spw_lane_peek(lane, &done)) {
            n += take_answer(client, k, &done, &out[n]);
            spw_lane_release(lane, 1);
        }
    }
    drop_taken_pins(client);
    if (n < max) /* the lanes are empty: what the dead sent has been taken */
        n += end_dead_jobs(client, fate, out + n, max - n);
    retry_doomed(client);
    spw_count(client, SPW_CLIENT_completions, n);
    return (int)n;
}
