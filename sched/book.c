/* See book.h. */
#include "sched/book.h"

#include "sched/handle.h"

#include <stdlib.h>

/* ---- the book -------------------------------------------------------------------------------- */

int spw_book_init(struct spw_book *book, struct spw_client_view *own, uint32_t jobs, int32_t node,
                  uint64_t *loading_epoch)
{
    *book = (struct spw_book){
        .jobs = jobs, .slots = own->slots, .own = own, .loading_epoch = loading_epoch};
    book->slots_all = (uint64_t)own->workers * own->slots;
    spw_link_init(&book->free);
    spw_link_init(&book->busy);
    spw_link_init(&book->handed);
    book->job = calloc(jobs, sizeof(*book->job));
    book->pin_count = calloc(book->slots_all, sizeof(*book->pin_count));
    if (!book->job || !book->pin_count)
        return -ENOMEM;
    for (uint32_t i = 0; i < jobs; i++) {
        book->job[i].number = i;
        spw_link_init(&book->job[i].of_request);
        spw_link_init(&book->job[i].link);
        spw_list_append(&book->free, &book->job[i].link);
    }
    return spw_replica_init(&book->loading, (uint64_t)jobs * SPW_JOB_CHUNKS_MAX, node);
}

void spw_book_forget(struct spw_book *book)
{
    free(book->job);
    free(book->pin_count);
    *book = (struct spw_book){0};
}

void spw_book_fini(struct spw_book *book)
{
    spw_replica_fini(&book->loading);
    spw_book_forget(book);
}

bool spw_book_has_room(const struct spw_book *book)
{
    return !spw_list_empty(&book->free) || !spw_list_empty(&book->handed);
}

struct spw_open_job *spw_book_open(struct spw_book *book, enum spw_open_kind kind)
{
    if (spw_list_empty(&book->free)) {
        if (spw_list_empty(&book->handed))
            return NULL;
        spw_book_end(book, SPW_LINKED(book->handed.after, struct spw_open_job, link));
    }
    struct spw_open_job *job = SPW_LINKED(book->free.after, struct spw_open_job, link);
    spw_list_remove(&job->link);
    spw_list_append(&book->busy, &job->link);
    job->state = SPW_OPEN_ASKED;
    job->kind = kind;
    job->nonce++;
    return job;
}

/* Asked and run jobs keep their request waiting; handed ones leave that to the caller. */
static void count_running(struct spw_open_job *job, int change)
{
    if (!job->request || job->kind == SPW_OPEN_PROMOTE ||
        (job->state != SPW_OPEN_ASKED && job->state != SPW_OPEN_RUN))
        return;
    job->request->running += (uint32_t)change;
    if (job->request->running == 0)
        spw_defer_transfer_ended(job->request);
}

void spw_book_assign(struct spw_open_job *job, struct spw_request *request)
{
    job->request = request;
    spw_list_append(&request->jobs, &job->of_request);
    count_running(job, 1);
}

void spw_book_leave_request(struct spw_open_job *job)
{
    if (!job->request)
        return;
    count_running(job, -1);
    spw_list_remove(&job->of_request);
    job->request = NULL;
}

static void move(struct spw_open_job *job, enum spw_open_state to, struct spw_link *list)
{
    count_running(job, -1);
    job->state = to;
    count_running(job, 1);
    spw_list_remove(&job->link);
    spw_list_append(list, &job->link);
}

void spw_book_hand(struct spw_book *book, struct spw_open_job *job)
{
    move(job, SPW_OPEN_HANDED, &book->handed);
}

void spw_book_run(struct spw_book *book, struct spw_open_job *job)
{
    move(job, SPW_OPEN_RUN, &book->busy);
}

void spw_book_end(struct spw_book *book, struct spw_open_job *job)
{
    spw_book_unpin(book, job);
    spw_book_unload(book, job, 0);
    spw_book_leave_request(job);
    move(job, SPW_OPEN_FREE, &book->free);
    job->doomed = false;
    job->ticket = 0;
    job->waits_for = 0;
    job->missed = 0;
    if (job->fence_uses)
        --*job->fence_uses;
    job->fence_uses = NULL;
}

uint64_t spw_book_cookie(const struct spw_open_job *job)
{
    return (uint64_t)job->nonce << 32 | job->number;
}

struct spw_open_job *spw_book_by_cookie(const struct spw_book *book, uint64_t cookie)
{
    uint32_t number = (uint32_t)cookie;
    if (number >= book->jobs)
        return NULL;
    struct spw_open_job *job = &book->job[number];
    return job->state != SPW_OPEN_FREE && spw_book_cookie(job) == cookie ? job : NULL;
}

static struct spw_open_job *find_in(const struct spw_link *list, uint32_t worker,
                                    uint64_t incarnation, uint64_t ticket)
{
    for (struct spw_link *at = list->after; at != list; at = at->after) {
        struct spw_open_job *job = SPW_LINKED(at, struct spw_open_job, link);
        if (job->ticket == ticket && job->worker == worker && job->incarnation == incarnation)
            return job;
    }
    return NULL;
}

struct spw_open_job *spw_book_by_ticket(const struct spw_book *book, uint32_t worker,
                                        uint64_t incarnation, uint64_t ticket)
{
    struct spw_open_job *job = ticket ? find_in(&book->handed, worker, incarnation, ticket) : NULL;
    return job || !ticket ? job : find_in(&book->busy, worker, incarnation, ticket);
}

/* ---- pins ------------------------------------------------------------------------------------ */

static uint64_t bit_of(const struct spw_book *book, uint64_t pool_slot)
{
    return spw_claim_bit(book->own->claim_words, (uint32_t)(pool_slot / book->slots),
                         (uint32_t)(pool_slot % book->slots));
}

void spw_book_pin(struct spw_book *book, struct spw_open_job *job, uint32_t shard, uint32_t slot)
{
    uint64_t pool_slot = (uint64_t)shard * book->slots + slot;
    if (job->pins == 0)
        book->pinned_jobs++;
    job->pin[job->pins++] = pool_slot;
    /* relaxed: the release of the command's slot orders it */
    if (book->pin_count[pool_slot]++ == 0)
        spw_bit_set(book->own->pin, bit_of(book, pool_slot));
}

void spw_book_unpin(struct spw_book *book, struct spw_open_job *job)
{
    if (job->pins == 0)
        return;
    book->pinned_jobs--;
    for (; job->pins > 0; job->pins--) {
        uint64_t pool_slot = job->pin[job->pins - 1];
        /* relaxed: seen late it protects for longer */
        if (--book->pin_count[pool_slot] == 0)
            spw_bit_clear(book->own->pin, bit_of(book, pool_slot));
    }
}

/* ---- chunks being loaded --------------------------------------------------------------------- */

void spw_book_load(struct spw_book *book, struct spw_open_job *job, uint64_t tag)
{
    uint64_t loads = spw_replica_get(&book->loading, tag);
    if (spw_replica_put(&book->loading, tag, loads + 1) < 0)
        return; /* nobody waits for it then */
    job->tag[job->loads++] = tag;
    ++*book->loading_epoch;
}

void spw_book_unload(struct spw_book *book, struct spw_open_job *job, uint32_t keep)
{
    for (; job->loads > keep; job->loads--) {
        uint64_t tag = job->tag[job->loads - 1];
        spw_replica_put(&book->loading, tag, spw_replica_get(&book->loading, tag) - 1);
        ++*book->loading_epoch;
    }
}
