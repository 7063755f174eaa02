#ifndef SPW_TIER_QUEUE_H
#define SPW_TIER_QUEUE_H
/*
 * What waits for the copier: the bounded store queue of one worker, and its loads beside it.
 *
 *   roles     private to the worker's thread; nothing is shared, a crash leaves nothing
 *   order     loads overtake stores. Stores go by age, and inside a request in the order in which
 *             its chunks were reserved; whoever takes asks spw_queue_next(), so a later rule (what
 *             is awaited goes first) changes that function alone
 *   bound     a store's place is promised when its slot is reserved and given back when its copy
 *             has ended, however it ended; so a run never finds the queue full
 */
#include "tier/copier.h"

#include <stdbool.h>

/** One chunk that waits; lies inside its job, so queueing never allocates. */
struct spw_queue_item {
    struct spw_queue_item *before, *after;
    void *owner;        /* the job                                  */
    uint64_t queued_ns; /* its age, and when its copy could start   */
    uint32_t chunk;     /* which chunk of the job                   */
    uint32_t kind;      /* enum spw_copy_kind                       */
};

struct spw_queue {
    struct spw_queue_item *first[2], *last[2]; /* by kind, oldest first */
    uint32_t count[2];
    uint32_t store_limit;
    uint32_t promised; /* store chunks reserved whose copy has not ended */
};

/** @store_limit  store chunks promised at once, >= 1 */
void spw_queue_init(struct spw_queue *queue, uint32_t store_limit);

/** Promise one store chunk a place. False: full, a definite "busy". */
bool spw_queue_promise(struct spw_queue *queue);
/** A promised chunk has ended, or was not needed. */
void spw_queue_give_back(struct spw_queue *queue);

/** Put @item (owner and chunk filled) behind those of its kind. */
void spw_queue_push(struct spw_queue *queue, enum spw_copy_kind kind, struct spw_queue_item *item,
                    uint64_t now_ns);
/** The item of @kind to submit next, NULL if none; it stays queued until taken. */
struct spw_queue_item *spw_queue_next(const struct spw_queue *queue, enum spw_copy_kind kind);
/** Take a queued item out, wherever it stands. */
void spw_queue_take(struct spw_queue *queue, struct spw_queue_item *item);

#endif
