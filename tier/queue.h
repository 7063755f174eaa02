#ifndef SPW_TIER_QUEUE_H
#define SPW_TIER_QUEUE_H
/*
 * What waits for the copier: the bounded store queue of one worker, and its loads beside it.
 *
 *   roles     private to the worker's thread; nothing is shared, a crash leaves nothing
 *   order     loads overtake stores. Stores that somebody awaits go first; among those, and among
 *             the others, age decides, which inside a request is the order in which its chunks were
 *             reserved, head first. What is awaited is what the last spw_queue_mark() found; a store
 *             pushed since is not
 *   overtake  a limit on that: when the oldest store has been passed over, as the oldest, for
 *             overtake_limit_ns, it goes next, awaited or not. So of the stores that are passed over
 *             at least one goes every limit, the oldest; one with n older ones that nobody awaits
 *             goes at the latest at the first call after (n + 1) limits of being passed over. It is
 *             no bound of one limit for each: a queue that is awaited for longer than the limit
 *             would then be back at the order of age. Limit 0: the order of age
 *   bound     a store's place is promised when its slot is reserved and given back when its copy
 *             has ended, however it ended; so a run never finds the queue full
 */
#include "tier/copier.h"

#include <stdbool.h>
#include <stddef.h>

/** One chunk that waits; lies inside its job, so queueing never allocates. */
struct spw_queue_item {
    struct spw_queue_item *before, *after; /* by age                         */
    void *owner;                           /* the job                        */
    uint64_t queued_ns;                    /* its age                        */
    uint64_t passed_ns;     /* since when it is passed over as the oldest store, 0 = never  */
    uint64_t nominal_bytes; /* of the stream, what pacing counts                            */
    uint32_t chunk;         /* which chunk of the job                                       */
    uint8_t kind;           /* enum spw_copy_kind                                           */
    bool awaited;           /* goes first; once taken: went as one that was awaited         */
};

struct spw_queue {
    struct spw_queue_item *first[2], *last[2]; /* by kind, oldest first */
    uint32_t count[2];
    uint32_t awaited;                    /* stores marked              */
    struct spw_queue_item *next_awaited; /* the oldest of them         */
    uint64_t overtake_limit_ns;
    uint32_t store_limit;
    uint32_t promised; /* store chunks reserved whose copy has not ended */
};

/**
 * @store_limit        store chunks promised at once, >= 1
 * @overtake_limit_ns  how long the oldest store may be passed over
 */
void spw_queue_init(struct spw_queue *queue, uint32_t store_limit, uint64_t overtake_limit_ns);

/** Promise one store chunk a place. False: full, a definite "busy". */
bool spw_queue_promise(struct spw_queue *queue);
/** A promised chunk has ended, or was not needed. */
void spw_queue_give_back(struct spw_queue *queue);

/** Put @item (owner, chunk and bytes filled) behind those of its kind, not awaited. */
void spw_queue_push(struct spw_queue *queue, enum spw_copy_kind kind, struct spw_queue_item *item,
                    uint64_t now_ns);
/** Ask @awaited anew of every queued store. */
void spw_queue_mark(struct spw_queue *queue,
                    bool (*awaited)(void *ctx, const struct spw_queue_item *item), void *ctx);
/** The item of @kind to submit next, NULL if none; it stays queued until taken. Passing over the
 * oldest store starts its clock, whether or not the copier then accepts another one. O(1). */
struct spw_queue_item *spw_queue_next(struct spw_queue *queue, enum spw_copy_kind kind,
                                      uint64_t now_ns);
/** Take a queued item out, wherever it stands. O(1) but for the search of the next awaited one,
 * O(queue) between two marks. */
void spw_queue_take(struct spw_queue *queue, struct spw_queue_item *item);

/** True if an older store than the store @item is queued: taken now, it overtakes that. */
static inline bool spw_queue_overtakes(const struct spw_queue_item *item)
{
    return item->before != NULL;
}

/** True if spw_queue_next() gave the store @item for the limit's sake, ahead of awaited ones. */
static inline bool spw_queue_at_limit(const struct spw_queue *queue,
                                      const struct spw_queue_item *item)
{
    return !item->awaited && queue->awaited != 0;
}

/** Each store in the order in which they will be taken, if nothing changes and no limit is reached
 * before. Changes nothing of the queue. */
void spw_queue_walk(const struct spw_queue *queue, uint64_t now_ns,
                    void (*each)(void *ctx, struct spw_queue_item *item), void *ctx);

#endif
