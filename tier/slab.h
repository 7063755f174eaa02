#ifndef SPW_TIER_SLAB_H
#define SPW_TIER_SLAB_H
/*
 * Slabs of a shard: slot_bytes of payload each, cut into cells of one size, the slots that lie side
 * by side there (spw_slot_off()). A slab has a class, the size of its cells and whose they are, from
 * when its first cell is handed out until all are FREE again. Spaces with a guarantee have slabs of their
 * own (tier/shares.h). Process-local, the shard's worker alone.
 *
 *   free      a FREE slot of a slab with a class stands in its class's list; a slab without one is
 *             stood for in the shard's list `free` by its first slot
 *   one cell  with cell_shift 0 a slab is a slot, and all of this comes down to the list `free`
 */
#include "tier/shard.h"

struct spw_slab_class {
    uint32_t bytes; /* of a cell, a multiple of 64; 0 = this place is not in use */
    uint32_t owner; /* 1 + the space that alone has cells here; 0 = those without a guarantee */
    uint32_t slabs; /* of this class */
    struct spw_slot_list free;
    uint32_t asked; /* slot retired last so that this class gets a cell, or SPW_NO_SLOT_ID */
    uint64_t asked_version;
};

struct spw_slabs {
    uint32_t *class_of; /* a slab: its class, or SPW_NO_SLOT_ID */
    uint32_t *used;     /* a slab: its slots that are not FREE   */
    bool *leaves;       /* a slab: goes as a whole, none of its slots is handed out before that */
    struct spw_slab_class *class;
    uint32_t slabs;
    uint64_t charged_bytes; /* of FILLING and READY chunks, below the frontier */
};

/** 0 or -ENOMEM. */
int spw_slabs_init(struct spw_shard *shard);
void spw_slabs_fini(struct spw_shard *shard);

/** Payload that a chunk is charged: its true size where slots share slabs. */
uint64_t spw_slab_charge(const struct spw_shard *shard, uint64_t chunk_bytes);
/** First and one behind the last slot of @slot's slab. */
uint32_t spw_slab_first(const struct spw_shard *shard, uint32_t slot);
uint32_t spw_slab_end(const struct spw_shard *shard, uint32_t slot);
/** A FREE slot of @class that no copying worker claims, ready to be filled, or SPW_NO_SLOT_ID. It stays
 * in its list until spw_slab_take(). */
uint32_t spw_slab_find(const struct spw_shard *shard, const struct spw_slab_class *class);
/** @slot, found for @class and still FREE, is about to be filled. */
void spw_slab_take(struct spw_shard *shard, uint32_t slot, struct spw_slab_class *class);
/** All of @slot's slab is RETIRED or FREE, and becomes a slab without a class. */
void spw_slab_leave(struct spw_shard *shard, uint32_t slot);
/** The frontier has passed the slab that begins with @first: what is FREE there may be handed out. */
void spw_slab_passed(struct spw_shard *shard, uint32_t first);
/** RETIRED @slot is FREE now and in no list. */
void spw_slab_give(struct spw_shard *shard, uint32_t slot);
/** The class for chunks of @space of so many bytes; NULL: there are as many as can be. */
struct spw_slab_class *spw_slab_class_of(struct spw_shard *shard, uint32_t space,
                                         uint64_t chunk_bytes);
/** The class that @slot, which isn't FREE, belongs to. */
struct spw_slab_class *spw_slab_class_at(const struct spw_shard *shard, uint32_t slot);

/** Of the adoption, when nothing is FILLING: @drop is called for each READY slot whose payload
 * can't be where another one's is. Nothing tells which of them is right. */
void spw_slabs_check(struct spw_shard *shard, void (*drop)(struct spw_shard *, uint32_t slot));
/** Of the adoption: classes, free lists and charges as the table says. */
void spw_slabs_adopt(struct spw_shard *shard);

#endif
