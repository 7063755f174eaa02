#ifndef SPW_TIER_QUARANTINE_H
#define SPW_TIER_QUARANTINE_H
/*
 * Transfers that the kernel or a device does for a worker may go on after its process is reaped.
 * What a dead worker may still be writing is out of use until that is over.
 *
 *   mark      feed.k.lingering is 1 while transfers of worker k may outlive it: from before its
 *             first one on, and after its death until its successor's quarantine is over
 *   slots     all that were FILLING when it died: after the repair they are RETIRED with fill 0.
 *             They stay so: neither freed nor handed out, never loadable
 *   claims    copying bits of the dead worker count as long: a late transfer out of a slot must
 *             not find another chunk there
 *   room      the shard's capacity is less by the slots put aside
 *
 * Steps, and what is left if the successor dies after each:
 *   slot put aside        RETIRED with fill 0 under a mark: the next one's time begins anew
 *   mark set              the next one's quarantine holds what this one was filling
 *   mark cleared          time was over; slots and bits are in use again at the next one's adoption
 */
#include "tier/shard_impl.h"

/** Adoption begins: is there a mark? Then the copying bits found stand. 0 or -ENOMEM. */
int spw_quarantine_begin(struct spw_shard *shard);
/** Must @slot, which is RETIRED, be put aside? */
bool spw_quarantine_wants(const struct spw_shard *shard, uint32_t slot);
/** Put it aside; it is in no list. Oldest versions first. */
void spw_quarantine_add(struct spw_shard *shard, uint32_t slot);
/** Adoption ends: set the mark if this worker's own transfers may linger. */
void spw_quarantine_mark(struct spw_shard *shard);
/** No transfer of this worker is left; one of an earlier one may still be. */
void spw_quarantine_unmark(struct spw_shard *shard);
/** Give back what was put aside if its time is over at @now_ns. */
void spw_quarantine_check(struct spw_shard *shard, uint64_t now_ns);

#endif
