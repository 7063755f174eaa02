#ifndef SPW_TIER_SHARES_H
#define SPW_TIER_SHARES_H
/*
 * Who has to make room for whom where spaces have shares of a tier. A space's guaranteed share is
 * taken from it by nobody else; its largest one is what it keeps while others want room: until then
 * it may take all there is, and what it has beyond goes first. Pure; a space is called by its lane
 * (tier/order.h).
 *
 * Where chunks have several sizes, a slab of memory or a segment below changes its size by going as a
 * whole (here: a unit). So that no promised chunk keeps a unit of others' from that, a space with a
 * guarantee puts its chunks into units of its own, and its guarantee speaks of those: they go only as
 * long as it keeps what it is guaranteed. What it put elsewhere, before it had one, goes with its unit.
 */
#include <stdbool.h>
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

/** Bytes that @lane is guaranteed. */
uint64_t spw_shares_promise(const struct spw_shares *shares, uint64_t capacity_bytes,
                            uint32_t lane);
/** Lanes that keep what they are guaranteed when so many of their bytes go. */
uint64_t spw_shares_spare(const struct spw_shares *shares, uint64_t capacity_bytes, uint64_t bytes);

/* What goes as a whole. */
struct spw_share_unit {
    uint64_t lanes; /* that have chunks in it */
    uint64_t bytes; /* of chunks at most: what a space has too little for, it keeps */
    bool own;       /* of a lane with a guarantee when it was made */
};

/** Lanes for whose sake @unit stays when @victims, who shall make room for @lane, lose it; 0: it may
 * go. */
uint64_t spw_shares_keep(const struct spw_shares *shares, uint64_t capacity_bytes, uint64_t victims,
                         uint32_t lane, const struct spw_share_unit *unit);

#endif
