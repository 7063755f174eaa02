#ifndef SPW_TIER_ORPHANS_H
#define SPW_TIER_ORPHANS_H
/*
 * Chunks that nobody can use any more because one before them in their prefix is lost: they go next,
 * before any that can be reached. What stands before what is told by the engines' offers; a shard that
 * was taken over knows nothing of it until then. Only where age goes by use: FIFO loses the start of a
 * prefix first by its nature, and finds the rest again once the start was stored again.
 */
#include "tier/shard_impl.h"

/** 0 or -ENOMEM. */
int spw_orphans_init(struct spw_shard *shard);
void spw_orphans_fini(struct spw_shard *shard);
/** What @entry says is neither in a slot nor below any more; one of the tier below has its key. */
void spw_orphans_lost(struct spw_shard *shard, const struct spw_entry_copy *entry);

#endif
