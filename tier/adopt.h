#ifndef SPW_TIER_ADOPT_H
#define SPW_TIER_ADOPT_H
/*
 * A worker takes a shard over, from a dead predecessor or for the first time.
 *
 *   order     repair the table (what isn't wholly READY or FREE becomes RETIRED, no slot becomes
 *             FREE, each entry of the tier below does), rebuild the index, store the next incarnation [AD-1], publish records without
 *             key up to the highest version in the table, retire every RETIRED entry anew, clear
 *             the copying bits (tests/model/snapshot.pml). What a dead worker's transfers may still
 *             write or read stays out of use for a time: tier/quarantine.h
 *   damage    all that is found is input. An entry that no worker leaves (tier/entry_check.h) is
 *             dropped and counted. Where the update ring makes no sense, the shard was made afresh
 *             before this begins: tier/afresh.h
 *   crash     after any step: the next adopter does the same from the start. Position, gate,
 *             version and incarnation never go back
 *   pairs     [AD-1] repaired table before incarnation -> resync
 *
 * Steps, and what others see if the adopter dies after each:
 *   entry repaired        a key less, or a load refused, under the old incarnation; its news is
 *                         owed and comes with the next adoption
 *   entry below freed     a key less, which the tier below will bring back
 *   index rebuilt         nothing new; inside the rebuild finds may fail (-ENOENT)
 *   incarnation stored    readers empty their views and read the table again
 *   positions filled      records without key
 *   retired anew          table entries whose record is missing; the next adopter fills and repeats
 */
#include "tier/shard.h"

/** Incarnation of the shard's content, 0 before the first worker. Asked behind the full fence of a
 * step; at another one than its view was made of a reader empties the view and resyncs. */
static inline uint64_t spw_feed_incarnation(const struct spw_feed_head *feed)
{
    return spw_load_acquire(&feed->incarnation); /* [AD-1] acquire: the table is repaired */
}

/** Do it all; the writer of the ring is initialised, private lists are empty. Leaves the lists
 * filled: recency in the order in which chunks became READY, save that of neighbours the first
 * comes out as the more recent, since a chain is stored head first and evicted deepest first. */
int spw_shard_adopt(struct spw_shard *shard, struct spw_error *err);

#endif
