/* See slab.h. */
#include "tier/slab.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tier/shard_impl.h"

#define CLASSES (2 * SPW_SPACES_MAX * SPW_GROUP_COUNT_MAX) /* a group: its own, and all's */

static uint32_t shift_of(const struct spw_shard *shard)
{
    return shard->pool->geometry.cell_shift;
}

static uint32_t slots_a_slab(const struct spw_shard *shard)
{
    return 1u << shift_of(shard);
}

/* Cells of a class that a slab has. */
static uint32_t cells_of(const struct spw_shard *shard, const struct spw_slab_class *class)
{
    uint32_t fit = shard->pool->geometry.slot_bytes / class->bytes;
    return fit < slots_a_slab(shard) ? fit : slots_a_slab(shard);
}

static bool is_free(const struct spw_shard *shard, uint32_t slot)
{
    /* relaxed: only this worker writes it */
    uint64_t packed = spw_load_relaxed(&shard->table.entry[slot].packed);
    return SPW_PACKED_STATE(packed) == SPW_FREE;
}

static uint64_t bytes_at(const struct spw_shard *shard, uint32_t slot)
{
    return spw_load_relaxed(&shard->table.entry[slot].chunk_bytes); /* likewise */
}

static uint32_t space_at(const struct spw_shard *shard, uint32_t slot)
{
    return SPW_PACKED_SPACE(spw_load_relaxed(&shard->table.entry[slot].packed)); /* likewise */
}

int spw_slabs_init(struct spw_shard *shard)
{
    struct spw_slabs *slabs = &shard->slabs;
    slabs->slabs = shard->slots >> shift_of(shard);
    slabs->class_of = malloc(slabs->slabs * sizeof *slabs->class_of);
    slabs->used = calloc(slabs->slabs, sizeof *slabs->used);
    slabs->leaves = calloc(slabs->slabs, sizeof *slabs->leaves);
    slabs->class = calloc(CLASSES, sizeof *slabs->class);
    if (!slabs->class_of || !slabs->used || !slabs->leaves || !slabs->class)
        return -ENOMEM;
    memset(slabs->class_of, 0xff, slabs->slabs * sizeof *slabs->class_of); /* SPW_NO_SLOT_ID */
    for (uint32_t i = 0; i < CLASSES; i++) {
        spw_slot_list_init(&slabs->class[i].free, &shard->links);
        slabs->class[i].asked = SPW_NO_SLOT_ID;
    }
    return 0;
}

void spw_slabs_fini(struct spw_shard *shard)
{
    free(shard->slabs.class_of);
    free(shard->slabs.used);
    free(shard->slabs.leaves);
    free(shard->slabs.class);
}

uint32_t spw_slab_first(const struct spw_shard *shard, uint32_t slot)
{
    return slot >> shift_of(shard) << shift_of(shard);
}

uint32_t spw_slab_end(const struct spw_shard *shard, uint32_t slot)
{
    return spw_slab_first(shard, slot) + slots_a_slab(shard);
}

/* ---- classes --------------------------------------------------------------------------------- */

uint64_t spw_slab_charge(const struct spw_shard *shard, uint64_t chunk_bytes)
{
    return shift_of(shard) == 0 ? shard->pool->geometry.slot_bytes
                                : spw_align_up(chunk_bytes, SPW_LINE_BYTES);
}

/* Where a slab is a slot, it is whoever's. */
static uint32_t owner_of(const struct spw_shard *shard, uint32_t space)
{
    uint32_t lane = spw_shard_lane(space);
    uint64_t shares = spw_load_relaxed(&shard->pool->ctl->space[lane].shares);
    return shift_of(shard) != 0 && SPW_SHARES_GUARANTEED(shares) != 0 ? 1 + lane : 0;
}

static struct spw_slab_class *class_of(struct spw_shard *shard, uint64_t chunk_bytes,
                                       uint32_t owner)
{
    struct spw_slab_class *vacant = NULL;
    uint64_t bytes = spw_slab_charge(shard, chunk_bytes);
    for (uint32_t i = 0; i < CLASSES; i++) {
        struct spw_slab_class *class = &shard->slabs.class[i];
        if (class->bytes == bytes && class->owner == owner)
            return class;
        if (class->slabs == 0 && !vacant)
            vacant = class;
        if (class->bytes == 0)
            break;
    }
    if (vacant) {
        vacant->bytes = (uint32_t)bytes;
        vacant->owner = owner;
        vacant->asked = SPW_NO_SLOT_ID;
    }
    return vacant;
}

struct spw_slab_class *spw_slab_class_of(struct spw_shard *shard, uint32_t space,
                                         uint64_t chunk_bytes)
{
    return class_of(shard, chunk_bytes, owner_of(shard, space));
}

struct spw_slab_class *spw_slab_class_at(const struct spw_shard *shard, uint32_t slot)
{
    return &shard->slabs.class[shard->slabs.class_of[slot >> shift_of(shard)]];
}

static void join_class(struct spw_shard *shard, uint32_t slab, struct spw_slab_class *class)
{
    shard->slabs.class_of[slab] = (uint32_t)(class - shard->slabs.class);
    class->slabs++;
}

/* List or unlist the FREE cells of a slab with a class; beyond the frontier none is listed. */
static void list_cells(struct spw_shard *shard, uint32_t slab, bool add)
{
    uint32_t first = slab << shift_of(shard);
    struct spw_slab_class *class = spw_slab_class_at(shard, first);
    for (uint32_t i = 0; spw_shard_is_usable(shard, first) && i < cells_of(shard, class); i++) {
        if (!is_free(shard, first + i))
            continue;
        if (add)
            spw_slot_list_add(&class->free, first + i);
        else
            spw_slot_list_remove(&class->free, first + i);
    }
}

/* ---- hand out, take back --------------------------------------------------------------------- */

static uint32_t find_cell(const struct spw_shard *shard, const struct spw_slab_class *class)
{
    uint32_t slot = class->free.oldest;
    while (slot != SPW_NO_SLOT_ID && spw_claims_cover(&shard->claims, shard->k, slot))
        slot = spw_slot_list_newer(&class->free, slot);
    return slot;
}

/* No cell of the slab, whatever its class was, is being copied from. */
static bool unclaimed(const struct spw_shard *shard, uint32_t first)
{
    for (uint32_t i = 0; i < slots_a_slab(shard); i++)
        if (spw_claims_cover(&shard->claims, shard->k, first + i))
            return false;
    return true;
}

uint32_t spw_slab_find(const struct spw_shard *shard, const struct spw_slab_class *class)
{
    uint32_t slot = find_cell(shard, class);
    if (slot != SPW_NO_SLOT_ID)
        return slot;
    slot = shard->free.oldest;
    while (slot != SPW_NO_SLOT_ID && !unclaimed(shard, slot))
        slot = spw_slot_list_newer(&shard->free, slot);
    return slot;
}

void spw_slab_take(struct spw_shard *shard, uint32_t slot, struct spw_slab_class *class)
{
    uint32_t slab = slot >> shift_of(shard);
    if (shard->slabs.class_of[slab] == SPW_NO_SLOT_ID) {
        spw_slot_list_remove(&shard->free, slot);
        join_class(shard, slab, class);
        list_cells(shard, slab, true);
    }
    spw_slot_list_remove(&spw_slab_class_at(shard, slot)->free, slot);
    shard->slabs.used[slab]++;
}

void spw_slab_leave(struct spw_shard *shard, uint32_t slot)
{
    uint32_t slab = slot >> shift_of(shard);
    if (shard->slabs.leaves[slab])
        return;
    list_cells(shard, slab, false);
    shard->slabs.leaves[slab] = true;
}

void spw_slab_give(struct spw_shard *shard, uint32_t slot)
{
    uint32_t slab = slot >> shift_of(shard), first = slab << shift_of(shard);
    struct spw_slab_class *class = spw_slab_class_at(shard, slot);
    bool leaves = shard->slabs.leaves[slab];
    bool usable = spw_shard_is_usable(shard, slot);
    if (usable && !leaves && slot - first < cells_of(shard, class))
        spw_slot_list_add(&class->free, slot);
    assert(shard->slabs.used[slab] > 0);
    if (--shard->slabs.used[slab] != 0)
        return;
    if (!leaves)
        list_cells(shard, slab, false);
    shard->slabs.leaves[slab] = false;
    class->slabs--;
    shard->slabs.class_of[slab] = SPW_NO_SLOT_ID;
    if (usable)
        spw_slot_list_add(&shard->free, first);
}

void spw_slab_passed(struct spw_shard *shard, uint32_t first)
{
    uint32_t slab = first >> shift_of(shard);
    if (shard->slabs.used[slab] == 0)
        spw_slot_list_add(&shard->free, first);
    else
        list_cells(shard, slab, true);
}

/* ---- adoption -------------------------------------------------------------------------------- */

static bool is_ready(const struct spw_shard *shard, uint32_t slot)
{
    return SPW_PACKED_STATE(spw_load_relaxed(&shard->table.entry[slot].packed)) == SPW_READY;
}

/* All READY cells of the slab have one size and lie in it. */
static bool agree(const struct spw_shard *shard, uint32_t first)
{
    const struct spw_geometry *geometry = &shard->pool->geometry;
    uint64_t charge = 0;
    for (uint32_t slot = first; slot < first + slots_a_slab(shard); slot++) {
        if (!is_ready(shard, slot))
            continue;
        uint64_t own = spw_slab_charge(shard, bytes_at(shard, slot));
        if ((charge != 0 && own != charge) || !spw_slot_fits(geometry, slot, bytes_at(shard, slot)))
            return false;
        charge = own;
    }
    return true;
}

void spw_slabs_check(struct spw_shard *shard, void (*drop)(struct spw_shard *, uint32_t slot))
{
    if (shift_of(shard) == 0)
        return;
    for (uint32_t first = 0; first < shard->slots; first += slots_a_slab(shard)) {
        if (agree(shard, first))
            continue;
        for (uint32_t slot = first; slot < first + slots_a_slab(shard); slot++)
            if (is_ready(shard, slot))
                drop(shard, slot);
    }
}

/* The class of a slab that isn't FREE as a whole: READY cells say their size, and whose it is if that is
 * one space; else nothing is read there, and the largest size is as good as any. */
static struct spw_slab_class *class_there(struct spw_shard *shard, uint32_t first)
{
    uint64_t bytes = shard->pool->geometry.slot_bytes;
    uint32_t owner = 0, seen = 0;
    for (uint32_t slot = first; slot < first + slots_a_slab(shard); slot++) {
        if (!is_ready(shard, slot))
            continue;
        uint32_t own = owner_of(shard, space_at(shard, slot));
        owner = seen++ == 0 || own == owner ? own : 0;
        bytes = bytes_at(shard, slot);
    }
    return class_of(shard, bytes, owner);
}

void spw_slabs_adopt(struct spw_shard *shard)
{
    struct spw_slabs *slabs = &shard->slabs;
    for (uint32_t space = 0; space < SPW_SPACES_MAX; space++)
        spw_store_relaxed(&shard->feed->space_bytes[space], 0); /* a predecessor's */
    for (uint32_t slab = 0; slab < slabs->slabs; slab++) {
        uint32_t first = slab << shift_of(shard);
        for (uint32_t slot = first; slot < first + slots_a_slab(shard); slot++) {
            slabs->used[slab] += !is_free(shard, slot);
            if (!is_ready(shard, slot))
                continue;
            spw_shard_charge(shard, slot, space_at(shard, slot), bytes_at(shard, slot), true);
            spw_shard_evictable(shard, slot, bytes_at(shard, slot), true);
        }
        if (slabs->used[slab] == 0) {
            if (spw_shard_is_usable(shard, first))
                spw_slot_list_add(&shard->free, first);
            continue;
        }
        /* there is a class: each READY size is that of a group of a space */
        struct spw_slab_class *class = class_there(shard, first);
        assert(class);
        join_class(shard, slab, class);
        list_cells(shard, slab, true);
    }
}
