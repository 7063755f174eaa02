/*
 * Which chunks there are, in which cells, and who goes to make room. See nvme_impl.h.
 *
 * A class is a size of cells, for a space with a guarantee or for all others; each segment belongs to
 * one. A put takes a free cell of its class, else a new segment while the cap allows one, else the place
 * of the chunk of its class that goes next. A class that has nothing to give, or whose next one was used
 * later than anything in some segment of another class, takes that segment: it is emptied, removed, and
 * its bytes are the next one's.
 *
 * Where spaces have shares, first only what is beyond a largest share may go, then what is beyond a
 * guarantee, then what the space that puts has itself. What is left then is promised to others: -EDQUOT.
 * See nvme_shares.c.
 */
#include <stdlib.h>
#include <string.h>

#include "tier/nvme_impl.h"

static enum spw_evict_policy policy(const struct spw_cold *nvme)
{
    return nvme->config.fifo ? SPW_EVICT_BY_AGE : SPW_EVICT_BY_USE;
}

static struct spw_nvme_class *class_of(struct spw_cold *nvme, const struct spw_nvme_chunk *chunk)
{
    return &nvme->class[chunk->segment->class];
}

static struct spw_nvme_record *record_of(const struct spw_nvme_chunk *chunk)
{
    return &chunk->segment->table[chunk->cell];
}

/* ---- cells ----------------------------------------------------------------------------------- */

/* Free at once; whoever takes it next writes no payload before the medium has the empty record. */
static void cell_free(struct spw_cold *nvme, const struct spw_nvme_chunk *chunk)
{
    struct spw_nvme_segment *segment = chunk->segment;
    segment->id[chunk->cell] = 0;
    segment->used--;
    nvme->class[segment->class].free_cells++;
    if (chunk->cell < segment->free_from)
        segment->free_from = chunk->cell;
    memset(record_of(chunk), 0, sizeof(struct spw_nvme_record));
    spw_nvme_block_changed(nvme, segment, chunk->cell);
}

/* What lies in a free cell is erased like what was dropped from one, before it is written again. */
static void forget_unlisted(struct spw_cold *nvme, struct spw_nvme_segment *segment, uint32_t cell)
{
    static const struct spw_nvme_record none;
    if (segment->unlisted == 0 || memcmp(&segment->table[cell], &none, sizeof none) == 0)
        return;
    segment->table[cell] = none;
    spw_nvme_block_changed(nvme, segment, cell);
    segment->unlisted--;
    nvme->unlisted--;
}

/* A free cell of @segment, or -ENOENT. */
static int64_t cell_take(struct spw_cold *nvme, struct spw_nvme_segment *segment)
{
    for (uint32_t cell = segment->free_from; cell < segment->file.head.cells; cell++) {
        if (segment->id[cell] != 0)
            continue;
        segment->free_from = cell + 1;
        segment->used++;
        nvme->class[segment->class].free_cells--;
        forget_unlisted(nvme, segment, (uint32_t)cell);
        return cell;
    }
    segment->free_from = segment->file.head.cells;
    return -ENOENT;
}

/* ---- chunks ---------------------------------------------------------------------------------- */

/* Its id may name another one from now on, unless it is being read. */
static void chunk_free(struct spw_cold *nvme, uint32_t id)
{
    struct spw_nvme_chunk *chunk = &nvme->chunk[id];
    if (chunk->reads != 0) {
        chunk->state = SPW_CHUNK_DROPPED;
        return;
    }
    cell_free(nvme, chunk);
    *chunk = (struct spw_nvme_chunk){0};
    spw_slot_list_add(&nvme->free_ids, id);
}

void spw_nvme_forget(struct spw_cold *nvme, uint32_t id)
{
    struct spw_nvme_chunk *chunk = &nvme->chunk[id];
    spw_order_remove(&class_of(nvme, chunk)->order, id);
    spw_nvme_share_give(nvme, chunk);
    nvme->held--;
    chunk_free(nvme, id);
}

void spw_nvme_dropped(struct spw_cold *nvme, uint32_t id)
{
    if (nvme->chunk[id].reads == 0)
        chunk_free(nvme, id);
}

void spw_nvme_all_away(struct spw_cold *nvme)
{
    for (uint32_t id = 0; id < nvme->config.ids; id++) {
        if (nvme->chunk[id].state == SPW_CHUNK_HELD) {
            spw_order_remove(&class_of(nvme, &nvme->chunk[id])->order, id);
            if (!nvme->chunk[id].found) /* else nobody was told of it */
                nvme->config.listener.gone(nvme->config.listener.ctx, id, SPW_COLD_AWAY);
        }
        if (nvme->chunk[id].state != SPW_CHUNK_FREE)
            spw_slot_list_add(&nvme->free_ids, id);
        nvme->chunk[id] = (struct spw_nvme_chunk){0};
    }
    nvme->held = 0;
    memset(nvme->shares.used_bytes, 0, sizeof nvme->shares.used_bytes);
}

void spw_nvme_lose(struct spw_cold *nvme, uint32_t id, enum spw_cold_why why)
{
    bool told = !nvme->chunk[id].found; /* of it, as found */
    spw_nvme_forget(nvme, id);
    if (told)
        nvme->config.listener.gone(nvme->config.listener.ctx, id, why);
}

void spw_nvme_unput(struct spw_cold *nvme, uint32_t id)
{
    struct spw_nvme_chunk *chunk = &nvme->chunk[id];
    spw_nvme_share_give(nvme, chunk);
    cell_free(nvme, chunk);
    *chunk = (struct spw_nvme_chunk){0};
    spw_slot_list_add(&nvme->free_ids, id);
}

void spw_nvme_hold(struct spw_cold *nvme, uint32_t id)
{
    struct spw_nvme_chunk *chunk = &nvme->chunk[id];
    chunk->state = SPW_CHUNK_HELD;
    chunk->segment->last_used = record_of(chunk)->sequence;
    spw_order_add(&class_of(nvme, chunk)->order, id, chunk->lane);
    nvme->held++;
}

/* Who of @lanes goes next of a class: SPW_NO_SLOT_ID if all are being read. */
static uint32_t next_of(const struct spw_cold *nvme, const struct spw_nvme_class *class,
                        uint64_t lanes)
{
    struct spw_order_walk walk;
    uint32_t id;
    spw_order_walk(&class->order, lanes, &walk);
    do
        id = spw_order_next(&walk);
    while (id != SPW_NO_SLOT_ID && nvme->chunk[id].reads != 0);
    return id;
}

/* ---- room ------------------------------------------------------------------------------------ */

/* Make a cell of @class free for @lane by taking a chunk's of @victims. 0: there is one; -EAGAIN: soon;
 * -ENOENT: nothing of theirs can go now. */
static int evict_from(struct spw_cold *nvme, uint32_t class, uint64_t victims, uint32_t lane)
{
    uint32_t next = next_of(nvme, &nvme->class[class], victims);
    struct spw_nvme_segment *other =
        nvme->failed_removals ? NULL : spw_nvme_oldest_segment(nvme, class, victims, lane);
    uint64_t used = next == SPW_NO_SLOT_ID ? UINT64_MAX : record_of(&nvme->chunk[next])->sequence;
    if (other && (other->used == 0 || other->last_used < used)) {
        if (!spw_nvme_segment_leaves(nvme)) /* one at a time: the last one's bytes may do */
            spw_nvme_segment_empty(nvme, other, SPW_COLD_EVICTED);
        return -EAGAIN;
    }
    if (next == SPW_NO_SLOT_ID)
        return -ENOENT;
    spw_nvme_lose(nvme, next, SPW_COLD_EVICTED);
    return 0;
}

/* Nothing of @victims, who would have to make room, can go now: soon, or is what there is promised? */
static int why_no_room(const struct spw_cold *nvme, uint32_t class, uint64_t victims, uint32_t lane)
{
    bool promised = false, soon = false;
    for (uint32_t i = 0; i < nvme->segments; i++) {
        const struct spw_nvme_segment *segment = nvme->segment[i];
        bool kept = spw_nvme_keep(nvme, segment, victims, lane) != 0;
        promised |= kept;
        soon |= segment->leaving ||
                (segment->busy != 0 &&
                 (segment->class == class ? (segment->lanes & victims) != 0 : !kept));
    }
    if (soon || nvme->removals != 0)
        return -EAGAIN;
    if (promised)
        return -EDQUOT;
    return nvme->puts != 0 || nvme->reads != 0 ? -EAGAIN : -ENOSPC;
}

/* As evict_from(), of whoever has to make room for @lane. */
static int evict(struct spw_cold *nvme, uint32_t class, uint32_t lane)
{
    uint64_t may = 0;
    for (enum spw_share_step step = 0; step < SPW_SHARE_STEPS; step++) {
        uint64_t victims = spw_nvme_victims(nvme, lane, nvme->class[class].cell_bytes, step);
        int rc = victims != 0 ? evict_from(nvme, class, victims, lane) : -ENOENT;
        if (rc != -ENOENT)
            return rc;
        may |= victims;
    }
    return why_no_room(nvme, class, may, lane);
}

static struct spw_nvme_segment *with_free_cell(const struct spw_cold *nvme, uint32_t class)
{
    for (uint32_t i = 0; i < nvme->segments; i++) {
        struct spw_nvme_segment *segment = nvme->segment[i];
        if (segment->class == class && !segment->leaving &&
            segment->used < segment->file.head.cells)
            return segment;
    }
    return NULL;
}

/* Who of @lanes goes next of @class, or else of any. */
static uint32_t next_of_any(const struct spw_cold *nvme, uint32_t class, uint64_t lanes)
{
    uint32_t next = next_of(nvme, &nvme->class[class], lanes);
    for (uint32_t i = 0; i < nvme->classes && next == SPW_NO_SLOT_ID; i++)
        next = next_of(nvme, &nvme->class[i], lanes);
    return next;
}

/* An id that is free, at the cost of whoever has to make room for @lane. */
static int find_id(struct spw_cold *nvme, uint32_t class, uint32_t lane)
{
    uint64_t may = 0, have = 0;
    if (nvme->free_ids.count != 0)
        return 0;
    for (enum spw_share_step step = 0; step < SPW_SHARE_STEPS; step++) {
        uint64_t lanes = spw_nvme_victims(nvme, lane, nvme->class[class].cell_bytes, step);
        uint32_t next = next_of_any(nvme, class, lanes);
        if (next != SPW_NO_SLOT_ID) {
            spw_nvme_lose(nvme, next, SPW_COLD_EVICTED);
            return 0;
        }
        may |= lanes;
    }
    for (uint32_t i = 0; i < SPW_LANES; i++)
        have |= (uint64_t)(nvme->shares.used_bytes[i] != 0) << i;
    /* who would have to make room has nothing, or all that it has is being read or written */
    return have != 0 && (have & may) == 0 ? -EDQUOT : -EAGAIN;
}

int spw_nvme_find_room(struct spw_cold *nvme, const uint64_t space[2], uint64_t bytes,
                       uint32_t *out_id)
{
    uint64_t cell_bytes = spw_nvme_cell_bytes(bytes);
    if (bytes == 0 || bytes > nvme->config.chunk_bytes_max ||
        spw_nvme_segment_bytes(cell_bytes, 1) + SPW_NVME_SEGMENT_MORE + SPW_NVME_OVERHEAD >
            nvme->config.cap_bytes)
        return -EFBIG;
    uint32_t lane = spw_nvme_lane(nvme, space);
    uint64_t owner[2];
    spw_nvme_owner(nvme, lane, owner);
    int class = spw_nvme_class_of(nvme, cell_bytes, owner);
    if (class < 0)
        return class;
    struct spw_nvme_segment *segment = with_free_cell(nvme, (uint32_t) class);
    if (!segment || nvme->class[class].free_cells <= SPW_NVME_PUTS(nvme)) {
        /* ahead of need where that can be */
        int rc = spw_nvme_segment_create(nvme, (uint32_t) class);
        if (!segment && rc == 0)
            return -EAGAIN;
        if (!segment && nvme->now_ns < nvme->full_ns && nvme->full && !nvme->full_again)
            return -ENOSPC; /* for once: if the disk stays full, what is there makes room */
        if (!segment)
            rc = evict(nvme, (uint32_t) class, lane);
        if (!segment && rc < 0)
            return rc;
        segment = with_free_cell(nvme, (uint32_t) class);
    }
    int rc = find_id(nvme, (uint32_t) class, lane);
    if (rc < 0 || !segment)
        return rc < 0 ? rc : -EAGAIN;
    int64_t cell = cell_take(nvme, segment);
    if (cell < 0)
        return -EAGAIN;
    uint32_t id = nvme->free_ids.oldest;
    spw_slot_list_remove(&nvme->free_ids, id);
    nvme->chunk[id] = (struct spw_nvme_chunk){
        .segment = segment, .cell = (uint32_t)cell, .state = SPW_CHUNK_PUT, .lane = (uint8_t)lane};
    spw_nvme_share_take(nvme, &nvme->chunk[id]);
    segment->id[cell] = id + 1;
    *out_id = id;
    return 0;
}

/* ---- after a scan ---------------------------------------------------------------------------- */

void spw_nvme_take_found(struct spw_cold *nvme, struct spw_nvme_segment *segment, uint32_t cell)
{
    const struct spw_nvme_record *record = &segment->table[cell];
    uint32_t id = nvme->free_ids.oldest;
    spw_slot_list_remove(&nvme->free_ids, id);
    nvme->chunk[id] = (struct spw_nvme_chunk){.segment = segment,
                                              .cell = cell,
                                              .state = SPW_CHUNK_PUT,
                                              .lane = (uint8_t)spw_nvme_lane(nvme, record->space)};
    spw_nvme_share_take(nvme, &nvme->chunk[id]);
    segment->id[cell] = id + 1;
    segment->used++;
    nvme->class[segment->class].free_cells--;
    if (record->sequence > nvme->sequence)
        nvme->sequence = record->sequence;
    uint64_t last_used = segment->last_used;
    spw_nvme_hold(nvme, id);
    if (last_used > segment->last_used)
        segment->last_used = last_used;
    nvme->chunk[id].found = true;
    spw_nvme_event(nvme, SPW_COLD_FOUND, id, 0, NULL);
}

void spw_nvme_leave_unlisted(struct spw_cold *nvme, struct spw_nvme_segment *segment, uint32_t cell)
{
    uint64_t sequence = segment->table[cell].sequence;
    if (sequence > nvme->sequence)
        nvme->sequence = sequence;
    segment->unlisted++;
    nvme->unlisted++;
    nvme->unlisted_ever++;
}

struct aged {
    uint64_t sequence;
    uint32_t id;
};

static int by_sequence(const void *a, const void *b)
{
    uint64_t x = ((const struct aged *)a)->sequence, y = ((const struct aged *)b)->sequence;
    return (x > y) - (x < y);
}

static int sort_class(struct spw_cold *nvme, struct spw_nvme_class *class)
{
    uint32_t count = 0;
    struct aged *aged = malloc((class->order.count + 1) * sizeof *aged);
    if (!aged)
        return -ENOMEM;
    while (class->order.count != 0) {
        struct spw_order_walk walk;
        spw_order_walk(&class->order, SPW_ALL_LANES, &walk);
        uint32_t id = spw_order_next(&walk);
        spw_order_remove(&class->order, id);
        aged[count++] = (struct aged){record_of(&nvme->chunk[id])->sequence, id};
    }
    qsort(aged, count, sizeof *aged, by_sequence);
    for (uint32_t i = 0; i < count; i++)
        spw_order_add(&class->order, aged[i].id, nvme->chunk[aged[i].id].lane);
    free(aged);
    return 0;
}

int spw_nvme_sort(struct spw_cold *nvme)
{
    int rc = 0;
    for (uint32_t i = 0; i < nvme->classes && rc == 0; i++)
        rc = sort_class(nvme, &nvme->class[i]);
    return rc;
}

/* ---- of spw_cold_ops ------------------------------------------------------------------------- */

static struct spw_nvme_chunk *held(struct spw_cold *nvme, uint32_t id)
{
    struct spw_nvme_chunk *chunk = id < nvme->config.ids ? &nvme->chunk[id] : NULL;
    return chunk && chunk->state == SPW_CHUNK_HELD ? chunk : NULL;
}

void spw_nvme_drop(struct spw_cold *nvme, uint32_t id)
{
    if (held(nvme, id))
        spw_nvme_forget(nvme, id);
}

void spw_nvme_touch(struct spw_cold *nvme, uint32_t id)
{
    struct spw_nvme_chunk *chunk = held(nvme, id);
    if (!chunk)
        return;
    spw_order_use(&class_of(nvme, chunk)->order, policy(nvme), id);
    if (policy(nvme) == SPW_EVICT_BY_AGE)
        return;
    /* in memory: the medium learns it with the block's next change, if there is one */
    record_of(chunk)->sequence = chunk->segment->last_used = ++nvme->sequence;
    spw_nvme_record_seal(record_of(chunk), &chunk->segment->file.head, chunk->cell);
}

void spw_nvme_demote(struct spw_cold *nvme, uint32_t id)
{
    struct spw_nvme_chunk *chunk = held(nvme, id);
    if (chunk)
        spw_order_scorn(&class_of(nvme, chunk)->order, id);
}

int spw_nvme_name(struct spw_cold *nvme, uint32_t id, struct spw_cold_name *out_name,
                  uint64_t *out_bytes)
{
    const struct spw_nvme_chunk *chunk = held(nvme, id);
    if (!chunk)
        return -ENOENT;
    spw_nvme_record_name(record_of(chunk), out_name);
    *out_bytes = record_of(chunk)->bytes;
    return 0;
}
