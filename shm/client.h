#ifndef SPW_SHM_CLIENT_H
#define SPW_SHM_CLIENT_H
/*
 * A client's object: step positions, pin bits, awaited bits, lanes, mailbox.
 *
 * Written by the client that holds lock byte SPW_LOCK_CLIENT(c), except worker_lane[k] and
 * completion lane k, which worker k writes. Workers read positions and pins to decide on reuse.
 *
 * Steps (who stores what first; tests/model/reclaim.pml)
 *   begin    step number, applied[k] = old position of every worker (relaxed), full fence [ST-1];
 *            then read each tail, drain to it, applied[k] = 1 + new position (release) [ST-2]
 *   pin      bit set while inside the step
 *   end      applied[k] = 0 (release) [ST-3]
 *   worker   RETIRED record published, full fence [ST-1]; words as 0 or > p; then pins; then
 *            command tails; then command heads; only then FREE
 *
 * Hand-over (tests/model/handover.pml): take the lock byte; words, pins zero; each command tail =
 * base = beyond everything seen; completion heads = tails; decision base = decisions; full fence;
 * generation + 1 (release) [CL-1]. Commands and steps only after every worker that is up has stored
 * acked[c] = generation.
 *
 *   pairs    [ST-1] old position before tails <-> record before words   [ST-2] position -> claim
 *            [ST-3] end of step -> claim    [ST-4] step number before words -> claim
 *            [CL-1] generation -> claim, acknowledgement
 *            [CL-2] clean-up and lanes as they go on -> acked[c] -> the new holder's first use
 *            [AW-1] awaited bits -> their change count -> a worker's look at them
 *
 * Dies at any point: the lock byte is free, workers ignore its words by generation, void its lanes
 * and acknowledge; the next holder starts over.
 */
#include "shm/lane.h"
#include "shm/region.h"

/** Pointers into a mapped client.c. Process-local, plain data. */
struct spw_client_view {
    struct spw_client_head *head;
    spw_atomic64 *pin;     /* workers x claim words */
    spw_atomic64 *awaited; /* likewise              */
    struct spw_lane_slot *command;
    struct spw_lane_slot *completion;
    uint64_t claim_words;
    uint32_t workers;
    uint32_t slots;
    uint32_t command_slots;
    uint32_t completion_slots;
};

void spw_client_view_init(struct spw_client_view *view, struct spw_client_head *head,
                          const struct spw_geometry *geometry);

/** Bit of slot @slot of shard @shard in a claim bitmap (pins, copying bits). */
static inline uint64_t spw_claim_bit(uint64_t claim_words, uint32_t shard, uint32_t slot)
{
    return (uint64_t)shard * claim_words * 64u + slot;
}

/** Client: first half of taking over an object whose lock byte is held; returns the generation
 * stored. Second half is waiting for acknowledgements, which the caller does. */
uint64_t spw_client_take_over(struct spw_client_view *view);

/** Client: open a step; @positions[k] = old position of worker k (cursor, 0 = none drained).
 * Returns the new step number. Ends with the full fence [ST-1]. */
uint64_t spw_client_step_begin(struct spw_client_view *view, const uint64_t *positions);
/** Client: worker @k's view now contains everything up to @position. [ST-2] release. */
void spw_client_step_applied(struct spw_client_view *view, uint32_t k, uint64_t position);
/** Client: close the step. [ST-3] release. */
void spw_client_step_end(struct spw_client_view *view);

/** Client: somebody here waits for the store into (@shard, @slot), or nobody does any more. */
void spw_client_await(struct spw_client_view *view, uint32_t shard, uint32_t slot, bool awaited);
/** Client: tell worker @shard that such bits of its shard have changed. [AW-1] release. */
void spw_client_await_changed(struct spw_client_view *view, uint32_t shard);

/**
 * What `applied` says of a position: 1 + position, never 0, which means outside a step. At the one
 * position where the sum wraps to 0 it is the position itself: as if one record fewer had been
 * drained, which only makes a worker wait longer. Workers compare words as positions:
 * spw_pos_before(p, word).
 */
static inline uint64_t spw_client_applied_word(uint64_t position)
{
    return position + 1 ? position + 1 : position;
}

/** What a worker needs to know of one client before it frees slots retired at positions <= p. */
struct spw_client_claim {
    uint64_t applied;    /* word of this worker as read: 0 outside a step             */
    uint64_t step;       /* read only to fence                                        */
    uint64_t generation; /* of the holder the words belong to                         */
};

/** Worker @k, after its full fence [ST-1]: read the client's words. Pins are read after them. */
void spw_client_claim_read(const struct spw_client_view *view, uint32_t k,
                           struct spw_client_claim *out_claim);

/** Worker @k: how often the client's awaited bits of its shard have changed. [AW-1] acquire: those
 * bits are at least as new as the count. */
uint64_t spw_client_awaited_changes(const struct spw_client_view *view, uint32_t k);
/** Worker: the client's awaited bits of the slots of @shard. Hints: whoever sets one for no reason
 * only changes the order of stores. */
static inline const spw_atomic64 *spw_client_awaited_bits(const struct spw_client_view *view,
                                                          uint32_t shard)
{
    return view->awaited + shard * view->claim_words;
}

/** Worker, after it has read the pins: any untaken command in any lane of this client: tails first,
 * then heads. Commands before command_base are void and don't count. */
bool spw_client_has_untaken(const struct spw_client_view *view);

#endif
