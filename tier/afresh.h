#ifndef SPW_TIER_AFRESH_H
#define SPW_TIER_AFRESH_H
/*
 * A shard whose update ring makes no sense is made afresh where it lies. Tail and gate are what
 * says which versions can be; without them no entry can be trusted either.
 *
 *   order     a gate beyond every position found, all entries RETIRED and not loadable, sequences,
 *             tail; the adoption that follows stores the next incarnation. RETIRED, not FREE: who
 *             is inside a step may hold a slot, and a quarantine may be due (tier/quarantine.h)
 *   readers   are lapped, find nothing in the table, and resync at the new incarnation. A load of
 *             what they had seen is refused: positions, and with them fills, are new
 *
 * Steps, and what is left if the adopter dies after each:
 *   gate stored           a ring that still makes no sense: the next adopter begins beyond it
 *   entry emptied         the same, with fewer entries
 *   sequence stored       the same, and it begins further on
 *   tail stored           an empty shard, which is adopted like any
 */
#include "tier/shard_impl.h"

/** Table and ring, in place. spw_bcast_writer_init() accepts the ring afterwards. */
void spw_shard_make_afresh(struct spw_shard *shard);

#endif
