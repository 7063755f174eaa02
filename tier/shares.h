#ifndef SPW_TIER_SHARES_H
#define SPW_TIER_SHARES_H
/*
 * Who has to make room for whom where spaces have shares of a tier. A space's guaranteed share is
 * taken from it by nobody else; its largest one is what it keeps while others want room: until then
 * it may take all there is, and what it has beyond goes first. To within a chunk, or a slab or segment
 * where these go as a whole. Pure; a space is called by its lane (tier/order.h).
 */
#include <stdint.h>

#include "tier/order.h"

/** Of a tier's bytes, in 1/1000. */
struct spw_share {
    uint32_t guaranteed_permille;
    uint32_t largest_permille; /* 0 = all */
};

struct spw_shares {
    struct spw_share of[SPW_LANES];
    uint64_t used_bytes[SPW_LANES];
};

/* Whose oldest chunk makes room: of the first step in which there is one that can go. */
enum spw_share_step {
    SPW_SHARE_BEYOND_LARGEST,
    SPW_SHARE_BEYOND_GUARANTEED, /* where no share is set: all */
    SPW_SHARE_OWN,               /* of who asks, though it has no more than its guarantee */
    SPW_SHARE_STEPS
};

/** The lanes of @step when so many bytes more are wanted for @lane of a tier of @capacity_bytes. */
uint64_t spw_shares_victims(const struct spw_shares *shares, uint64_t capacity_bytes, uint32_t lane,
                            uint64_t bytes, enum spw_share_step step);

#endif
