#ifndef SPW_TIER_RECLAIM_H
#define SPW_TIER_RECLAIM_H
/*
 * Which RETIRED slots no client can ask for any more (design: a HIT stays true until it is
 * loaded). Decides; the shard acts.
 *
 *   roles     the shard's worker; reads every client's object, writes feed.k.fenced
 *   order     the RETIRED records are published, full fence [ST-1]; then of every client, in this
 *             order: its word (0, or beyond the record), pins, command tails, command heads.
 *             A pin counts while its client is inside a step or has an untaken command, never when
 *             the client is dead or fenced (tests/model/reclaim.pml, claims)
 *   fence     a client that stays in one step beyond the limit and is in the way, or whose commands
 *             of it stay untaken so long after its end: fenced[c] = step, full fence [RC-1]; it
 *             counts as gone only if its step is still that one
 *   kept      a slot that stays RETIRED for two to four limits is kept by somebody who goes from step
 *             to step without draining, without reaping what it pins, or by a client gone mad that
 *             writes step numbers at random: whoever holds it then is fenced in the step it is in,
 *             however young that is. An honest one loses that step: it drains, or it recomputes
 *   progress  bounded, no system call
 *   crash     fenced[c] may stand without a slot having been freed: commands of that step are void
 *   pairs     [RC-1] fenced before step is read again -> step before fenced is read
 */
#include "shm/pool.h"

#define SPW_RECLAIM_BATCH       256u
#define SPW_RECLAIM_KEPT_LIMITS 2u

struct spw_reclaim_config {
    const struct spw_pool *pool; /* borrowed; mapped as worker @k */
    uint32_t k;
    uint64_t fence_limit_ns;
    bool (*client_dead)(void *ctx, uint32_t c, uint64_t generation); /* NULL: none ever is */
    void *ctx;
};

/** Process-local; one thread of worker k. */
struct spw_reclaim {
    struct spw_reclaim_config config;
    struct spw_feed_head *feed;
    uint64_t fences;       /* clients fenced so far                                     */
    uint64_t kept_version; /* what was RETIRED by then is kept for too long             */
    uint64_t mark_version; /* the same as of mark_ns; it is kept_version two limits on  */
    uint64_t mark_ns;
    uint64_t marks; /* made so far; kept_version says something from the second on */
    struct spw_stuck {
        uint64_t generation;
        uint64_t step;
        uint64_t since_ns; /* first seen in the way in this step, or behind its end */
        bool seen;
        bool inside;
    } stuck[SPW_CLIENTS_MAX];
};

/** A slot RETIRED by the record at @version; the record is published. */
struct spw_candidate {
    uint64_t version;
    uint32_t slot;
    bool held; /* answer: somebody may still ask for it */
};

void spw_reclaim_init(struct spw_reclaim *reclaim, const struct spw_reclaim_config *config);

/** Set .held of each of @count <= SPW_RECLAIM_BATCH candidates, given in order of version.
 * Returns how many are not held. */
uint32_t spw_reclaim_decide(struct spw_reclaim *reclaim, uint64_t now_ns,
                            struct spw_candidate *candidates, uint32_t count);

/** Is @step of client @c void in the shard of @feed, because it, or a later one, is fenced there?
 * The worker asks of each command; the client asks behind the fence of its step and before it
 * trusts what its view of that shard says. */
static inline bool spw_step_fenced(const struct spw_feed_head *feed, uint32_t c, uint64_t step)
{
    /* [RC-1] acquire: in the client behind the full fence that followed its step number */
    uint64_t fenced = spw_load_acquire(&feed->fenced[c]);
    return step != 0 && fenced != 0 && !spw_pos_before(fenced, step);
}

#endif
