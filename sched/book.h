#ifndef SPW_SCHED_BOOK_H
#define SPW_SCHED_BOOK_H
/*
 * The book of open jobs of one client, its pins, and the set of chunks being loaded. Private, one
 * thread, fixed room.
 *
 *            command sent            answer: ticket              run sent here
 *     FREE ---------------> ASKED ------------------> HANDED -----------------> RUN
 *      ^                      |  answer: none, dead      | run elsewhere, or      | completion,
 *      |                      |                          | never; forgotten       | worker dead
 *      `----------------------+--------------------------+------------------------'
 *
 *   HANDED   the ticket may be run by another process, whose completion never comes here: such a
 *            job is kept only for cancelling and for the loading set, and gives way when room is
 *            needed
 *   PROMOTE  is ASKED and over when it is answered. Its request isn't kept waiting by it, and it
 *            takes no HANDED one's place
 *   cookie   of a command: number of the job and a nonce, so an answer to a job that is no more is
 *            told from one that is
 *   pins     a private count a slot of the pool drives the pin bit in client.c: set inside the
 *            step, before the command is sent; cleared when the last load of the slot was taken by
 *            its worker, which then has a claim of its own, or when that worker is gone
 */
#include "sched/list.h"
#include "sched/replica.h"
#include "shm/client.h"

#include <stdbool.h>

struct spw_request;

/* A chunk of a request. */
struct spw_want {
    uint64_t at; /* its index, or a tail's boundary */
    uint32_t group;
    bool tail;
};

enum spw_open_state { SPW_OPEN_FREE, SPW_OPEN_ASKED, SPW_OPEN_HANDED, SPW_OPEN_RUN };
enum spw_open_kind {
    SPW_OPEN_STORE = 1,
    SPW_OPEN_LOAD = 2,
    SPW_OPEN_RESET = 3,
    SPW_OPEN_PROMOTE = 4
};

struct spw_open_job {
    struct spw_link link;       /* among free, asked and run, or handed ones */
    struct spw_link of_request; /* among the request's                       */
    struct spw_request *request;
    enum spw_open_state state;
    enum spw_open_kind kind;
    uint32_t number;
    uint32_t nonce;
    uint32_t worker;
    uint32_t chunks; /* ASKED: for so many; an answer speaks of no more */
    bool doomed;     /* its request is gone: end it as soon as the ticket is known */
    uint64_t incarnation;
    uint64_t ticket;
    uint64_t cookie;      /* the caller's                                        */
    uint32_t *fence_uses; /* RUN: of its fence, this one counted in; NULL = none */
    uint64_t command_pos; /* of its last command in the lane                     */
    uint64_t waits_for;   /* RESET: workers that have not answered               */
    uint64_t missed;      /* RESET: workers that were down, died or refused      */
    uint64_t incarnations[SPW_WORKERS_MAX];   /* RESET: of each that was told      */
    uint32_t rank;                            /* PROMOTE: that the chunks are for     */
    uint64_t wait;                            /* PROMOTE: number of the request's     */
    struct spw_want want[SPW_JOB_CHUNKS_MAX]; /* PROMOTE: what was asked for          */
    uint32_t pins;
    uint32_t loads;
    uint64_t pin[SPW_JOB_CHUNKS_MAX]; /* slots of the pool, shard * slots + slot */
    uint64_t tag[SPW_JOB_CHUNKS_MAX]; /* chunks in the loading set               */
};

struct spw_book {
    struct spw_open_job *job;
    uint32_t jobs;
    uint32_t slots; /* of a shard */
    struct spw_link free;
    struct spw_link busy;   /* ASKED and RUN           */
    struct spw_link handed; /* HANDED, the oldest first */
    uint32_t pinned_jobs;   /* ASKED loads that hold pins */
    struct spw_client_view *own;
    uint16_t *pin_count; /* a slot of the pool */
    uint64_t slots_all;
    struct spw_replica loading; /* tag -> loads of it; unused without GPU prefix caching */
    uint64_t *loading_epoch;    /* raised when the set changes */
};

/** Room for @jobs jobs. 0 or -ENOMEM. @own and @loading_epoch are borrowed. */
int spw_book_init(struct spw_book *book, struct spw_client_view *own, uint32_t jobs, int32_t node,
                  uint64_t *loading_epoch);
void spw_book_fini(struct spw_book *book);
/** In a forked child, which has no mappings: free what lies on the heap. */
void spw_book_forget(struct spw_book *book);

/** A new ASKED job, not of any request; NULL: all are busy. May forget the oldest HANDED one. */
struct spw_open_job *spw_book_open(struct spw_book *book, enum spw_open_kind kind);
/** True if spw_book_open() has room. */
bool spw_book_has_room(const struct spw_book *book);
/** Make it one of @request's. */
void spw_book_assign(struct spw_open_job *job, struct spw_request *request);
void spw_book_hand(struct spw_book *book, struct spw_open_job *job);
void spw_book_run(struct spw_book *book, struct spw_open_job *job);
/** The job is over: pins, loading set and request lose it. */
void spw_book_end(struct spw_book *book, struct spw_open_job *job);
/** The request loses it; it goes on by itself. */
void spw_book_leave_request(struct spw_open_job *job);

/** What goes into a command, and the job it means; NULL if that is no more. */
uint64_t spw_book_cookie(const struct spw_open_job *job);
struct spw_open_job *spw_book_by_cookie(const struct spw_book *book, uint64_t cookie);
struct spw_open_job *spw_book_by_ticket(const struct spw_book *book, uint32_t worker,
                                        uint64_t incarnation, uint64_t ticket);

/** Pin a slot for @job, before its command is sent; inside a step. */
void spw_book_pin(struct spw_book *book, struct spw_open_job *job, uint32_t shard, uint32_t slot);
void spw_book_unpin(struct spw_book *book, struct spw_open_job *job);
/** Enter a chunk into the loading set for @job. */
void spw_book_load(struct spw_book *book, struct spw_open_job *job, uint64_t tag);
/** The chunks of @job from its @keep-th on are not being loaded (any more). */
void spw_book_unload(struct spw_book *book, struct spw_open_job *job, uint32_t keep);

#endif
