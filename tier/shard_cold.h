#ifndef SPW_TIER_SHARD_COLD_H
#define SPW_TIER_SHARD_COLD_H
/*
 * The state table's entries for chunks that the tier below holds: entry slots + id speaks of what
 * the tier calls id. At most one a key.
 *
 *                 cold_add                    key gets a slot (store or promotion)
 *        FREE -------------> COLD -----------------------------------------------> BACKED
 *          ^                  | ^                                                    |
 *          |   cold_remove    | `--------------- its slot is RETIRED ----------------'
 *          `------------------+------------------------ cold_remove -----------------'
 *
 *   news      COLD is the key's news: a view shows it as PENDING. BACKED is none: the slot speaks
 *             for the key
 *   order     key gets a slot: entry BACKED, then the slot FILLING, then its record. Slot goes: entry
 *             COLD, then the slot RETIRED, then one record for both: COLD. With two records a view
 *             that scans between them may keep a HIT of a slot that is FREE by then; and whoever
 *             scans between two entries has their record still ahead (tests/model/cold.pml)
 *   version   that of an entry below is the position of its last own record; BACKED is none, nor is
 *             the record of its slot. FREE keeps it
 *   adoption  COLD and BACKED entries become FREE: what the tier below has is found by opening it
 *   crash     between the two entries of a change: the successor's adoption makes all read anew
 */
#include "tier/shard.h"

/**
 * The tier below holds @key under @id, FREE so far. COLD, or BACKED if a slot has the key live.
 * 0, or -EEXIST: another id says so already (drop this one there).
 */
int spw_shard_cold_add(struct spw_shard *shard, uint32_t id, const struct spw_chunk_key *key,
                       uint32_t rank, uint64_t chunk_bytes);
/** It doesn't any more. @id may be FREE already. */
void spw_shard_cold_remove(struct spw_shard *shard, uint32_t id);
/** What entry @id says, its key too: 0 (COLD or BACKED) or -ENOENT. */
int spw_shard_cold_entry(const struct spw_shard *shard, uint32_t id, struct spw_entry_copy *out);
/** The id under which the tier below holds what READY or FILLING @slot holds, or -ENOENT. O(1). */
int64_t spw_shard_cold_of(const struct spw_shard *shard, uint32_t slot);
/** The slot that READY or FILLING holds what @id holds, or -ENOENT. O(1). */
int64_t spw_shard_cold_slot(const struct spw_shard *shard, uint32_t id);
/** The COLD id of this digest[0], or -ENOENT: BACKED ones are not COLD. */
int64_t spw_shard_cold_find(const struct spw_shard *shard, uint64_t tag);
/** Ids of a space, or of all, COLD or BACKED: each is removed here and given to @each. */
void spw_shard_cold_each_of_space(struct spw_shard *shard, uint32_t space,
                                  void (*each)(void *ctx, uint32_t id), void *ctx);

/** The live slot of this digest[0], or -ENOENT. */
int64_t spw_shard_by_tag(const struct spw_shard *shard, uint64_t tag);
/** What of @all, an amount for the whole shard, is for the part that may be handed out now
 * (tier/frontier.h); at least 1 of something. */
uint32_t spw_shard_usable_part(const struct spw_shard *shard, uint32_t all);
/** Are there chunks evicted, or will there be once so many more come? */
bool spw_shard_is_full_but(const struct spw_shard *shard, uint32_t chunks);
/** Through the slots in the order in which they are evicted once they are READY. */
void spw_shard_walk(const struct spw_shard *shard, struct spw_order_walk *out);
/** A clean end: no transfer of this worker outlives it. */
void spw_shard_transfers_ended(struct spw_shard *shard);

/* ---- promotions: slots that are filled from below and wait for whoever asked ---------------- */

/**
 * Give COLD @id a slot to be filled: as spw_shard_reserve(), but it may not take what is promised
 * to spaces, and the slot is held: it is in no order of age and never a victim until
 * spw_shard_release(). Held slots never exceed @held_max.
 * SPW_RESERVED; SPW_SLOT_COMES: there is room, but the slots for it are RETIRED still, until nobody can
 * ask for them any more; SPW_NO_SLOT: there is nothing to wait for.
 */
enum spw_reserve_result spw_shard_promote(struct spw_shard *shard, uint32_t id, uint32_t held_max,
                                          uint32_t *out_slot);
/** A held slot, FILLING or READY, stands among the others from now on, as the most recent. */
void spw_shard_release(struct spw_shard *shard, uint32_t slot);
/** Slots held now. */
uint32_t spw_shard_held(const struct spw_shard *shard);

#endif
