#ifndef SPW_TIER_CHAIN_H
#define SPW_TIER_CHAIN_H
/*
 * Which chunk stands before which in a prefix: a chunk of a full-attention group can't be used
 * without all before it. Keys are known by their tags (digest[0]); a key is in here from when it is
 * first linked until it is lost. Links are hints, from what engines offer and touch: a wrong one
 * costs an order of eviction.
 *
 *   roles     private to the shard's worker, one thread; a crash leaves nothing
 *   memory    fixed: as many keys as the shard can hold
 *   time      a link is O(1); losing a key is O(1) and what hangs on it, which then hangs no more
 */
#include <stdbool.h>
#include <stdint.h>

struct spw_chain; /* opaque */

/** NULL: no memory. @keys that may be known at once. */
struct spw_chain *spw_chain_open(uint32_t keys);
void spw_chain_close(struct spw_chain *chain);

/** The chunk @before stands right before @tag; both are here. What was said of @tag is forgotten. */
void spw_chain_link(struct spw_chain *chain, uint64_t before, uint64_t tag);

/** @tag is lost: each chunk that needs it, near or far, is told to @each, and is linked to nothing
 * before it from then on. */
void spw_chain_lose(struct spw_chain *chain, uint64_t tag, void (*each)(void *ctx, uint64_t tag),
                    void *ctx);
/** @tag is lost, but another worker has it: what needs it is not lost with it. */
void spw_chain_forget(struct spw_chain *chain, uint64_t tag);
/** True if some chunk is known to need @tag. */
bool spw_chain_needed(const struct spw_chain *chain, uint64_t tag);

#endif
