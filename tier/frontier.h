#ifndef SPW_TIER_FRONTIER_H
#define SPW_TIER_FRONTIER_H
/*
 * How far a shard's slots may be handed out: while its memory is being pinned (gpu/pin.h), those below
 * the frontier alone, in whole slabs. The shard's worker alone; process-local.
 *
 *   below     the shard is as large as this part: its share of the capacity, or what lies there if a
 *             warm start left more, and never more than the whole shard's capacity together with what
 *             lies beyond
 *   beyond    READY chunks of a warm start are found, loaded, touched and reset like all others, but
 *             they make no room; nothing is stored there. They stand in an order of age of their own,
 *             so that no search for a victim comes by
 *   it moves  only up. What it passes is charged, and its FREE slots come into the lists; with no
 *             frontier asked for it is behind the last slot from the start
 */
#include "tier/shard_impl.h"

/** Of the adoption: where it is at the beginning. */
void spw_frontier_init(struct spw_shard *shard);
/** Ask where it is now, and take up what it has passed. O(1) if it hasn't moved, else O(resident). */
void spw_frontier_look(struct spw_shard *shard);

/** Bytes that chunks below it may take, of @total_bytes for all chunks of the shard. */
uint64_t spw_frontier_room(const struct spw_shard *shard, uint64_t total_bytes);

#endif
