#ifndef SPW_SCHED_AWAIT_H
#define SPW_SCHED_AWAIT_H
/*
 * Stores and promotions that this client's requests wait for: marked in client.c so that their
 * workers do them first, and when they will have ended.
 *
 *   roles     private to one handle, one thread; written: this client's awaited bits
 *   marks     a private count a slot of the pool drives the bit, as with pins. They are hints: taken
 *             back late, or set for a slot that is another chunk's by now, they change an order
 *   ready     what has become READY stays marked while its request waits on: its worker sees that
 *             what it promoted is still waited for, and keeps it. What is neither pending nor READY
 *             is taken back when the request is asked again. A bit that stays is never clear between
 *   crash     workers don't look at the bits of a client that is gone
 */
#include <stdbool.h>

#include "sched/decide.h"
#include "shm/client.h"
#include "tier/eta.h"

struct spw_request;

/* Of a client. */
struct spw_awaits {
    struct spw_client_view *own;
    uint16_t *count;  /* a slot of the pool: requests here that wait for it */
    uint64_t changed; /* bit k: worker k has still to be told               */
};

/* Of a request: what it has marked. */
struct spw_mark {
    uint32_t slot; /* shard * slots + slot           */
    uint32_t tag;  /* low half of the chunk's        */
};

struct spw_marks {
    struct spw_mark *mark;
    struct spw_mark *next; /* those of the evaluation that goes on */
    uint64_t count;
    uint64_t next_count;
    uint64_t room; /* of each */
};

/** Nothing is marked. 0 or -ENOMEM. @own is borrowed. */
int spw_awaits_init(struct spw_awaits *awaits, struct spw_client_view *own);
void spw_awaits_fini(struct spw_awaits *awaits);

/** Room for every part of @chunks chunks at @ranks ranks. 0 or -ENOMEM. */
int spw_marks_grow(struct spw_marks *marks, uint64_t chunks, uint32_t ranks);
void spw_marks_fini(struct spw_marks *marks);

/** Mark, instead of what it marked before, all that the deferral @core of @request waits for. The
 * verdicts that it read are still in the scratch. */
void spw_await(struct spw_request *request, const struct spw_decision_core *core);
/** It waits no more. Any number of times. */
void spw_await_over(struct spw_request *request);

/* The streams of all workers, stores at k and promotions at SPW_WORKERS_MAX + k, each read at most
 * once an evaluation, and what goes ahead there. */
struct spw_eta {
    uint64_t seen;                             /* a bit each                                   */
    uint64_t ahead_bytes[2 * SPW_WORKERS_MAX]; /* of chunks asked about so far                 */
    uint64_t below_bytes[SPW_WORKERS_MAX];     /* of those that aren't in the promotions yet   */
    struct spw_stream_sample stream[2 * SPW_WORKERS_MAX];
};

/** Nanoseconds until every PENDING chunk of [@first, @end) of @group is ready at all ranks, or the
 * objects of a tail at @boundary; UINT64_MAX = unknown. */
uint64_t spw_await_eta(struct spw_request *request, struct spw_eta *eta, uint32_t group,
                       uint64_t first, uint64_t end);
uint64_t spw_await_tail_eta(struct spw_request *request, struct spw_eta *eta, uint64_t boundary);

#endif
