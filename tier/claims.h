#ifndef SPW_TIER_CLAIMS_H
#define SPW_TIER_CLAIMS_H
/*
 * Claims of copying workers: "a copy out of this slot may be running", one bit a slot of the whole
 * pool in each worker's feed.
 *
 *   roles     worker k writes the bits in feed.k; every worker reads those that speak of its shard
 *   order     copier: bit, full fence [CM-1], entry READY or RETIRED with the load's fill, copy,
 *             bit cleared (release) [CM-2]. Owner: entry FREE, full fence [CM-1], then, at
 *             hand-out, the bits (acquire) [CM-2]. Whoever comes second sees the other
 *             (tests/model/reclaim.pml)
 *   crash     bits of a dead worker count until its successor, started after the reaping, clears
 *             them; where transfers outlive a process, not before their quarantine is over
 *   pairs     [CM-1] bit before entry -> FREE before bits     [CM-2] end of copy -> reuse
 */
#include "shm/pool.h"
#include "tier/table.h"

/** Process-local; one thread of worker k. */
struct spw_claims {
    const struct spw_pool *pool;
    spw_atomic64 *own; /* bits in feed.k */
    uint16_t *count;   /* copies that hold a bit, a slot of the pool */
    uint64_t *kept;    /* bits that a dead worker left and that still count, or NULL */
    uint64_t claim_words;
    uint32_t workers;
    uint32_t slots;
};

/** @pool is borrowed and mapped as worker @k. 0 or -ENOMEM. Bits are left as they are. */
int spw_claims_init(struct spw_claims *claims, const struct spw_pool *pool, uint32_t k);
void spw_claims_fini(struct spw_claims *claims);

/** See spw_shard_claim(): 0, -ESTALE, -EINVAL, -EAGAIN (also: 65,535 copies out of one slot). */
int spw_claims_take(struct spw_claims *claims, uint32_t shard, uint32_t slot, uint64_t fill);
/** One copy out of the slot has really ended. */
void spw_claims_drop(struct spw_claims *claims, uint32_t shard, uint32_t slot);

/** Does any worker's bit cover the slot? Asked by its owner, after FREE and a full fence. */
bool spw_claims_cover(const struct spw_claims *claims, uint32_t shard, uint32_t slot);

/** Successor: no copy of the predecessor runs any more. */
void spw_claims_clear_own(struct spw_claims *claims);
/** Successor: they may still run. The bits found stay, as if each were held by a copy of this
 * worker, until spw_claims_end_kept(). Before the first claim. 0 or -ENOMEM. */
int spw_claims_keep_found(struct spw_claims *claims);
/** They have ended. Without kept bits nothing changes. */
void spw_claims_end_kept(struct spw_claims *claims);

#endif
