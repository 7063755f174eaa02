/*
 * Which chunks there are, in which cells, and who goes to make room. See nvme_impl.h.
 *
 * A class is a size of cells; each segment belongs to one. A put takes a free cell of its class, else
 * a new segment while the cap allows one, else the place of the chunk of its class that goes next. A
 * class that has nothing to give, or whose next one was used later than anything in some segment of
 * another class, takes that segment: it is emptied, removed, and its bytes are the next one's.
 */
#include <stdio.h>
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

int spw_nvme_class_of(struct spw_cold *nvme, uint64_t cell_bytes)
{
    for (uint32_t i = 0; i < nvme->classes; i++)
        if (nvme->class[i].cell_bytes == cell_bytes)
            return (int)i;
    if (nvme->classes == SPW_NVME_CLASSES)
        return -EFBIG;
    struct spw_nvme_class *class = &nvme->class[nvme->classes];
    *class = (struct spw_nvme_class){.cell_bytes = cell_bytes};
    spw_order_init(&class->order, &nvme->ages);
    return (int)nvme->classes++;
}

/* ---- segments -------------------------------------------------------------------------------- */

static void segment_free(struct spw_nvme_segment *segment)
{
    if (!segment)
        return;
    free(segment->table);
    free(segment->block);
    free(segment->id);
    free(segment);
}

static uint64_t charge(const struct spw_nvme_head *head)
{
    return spw_nvme_segment_bytes(head->cell_bytes, head->cells) + SPW_NVME_SEGMENT_MORE;
}

static int segment_memory(struct spw_nvme_segment *segment)
{
    uint32_t cells = segment->file.head.cells;
    segment->blocks = (cells + SPW_NVME_RECORDS - 1) / SPW_NVME_RECORDS;
    size_t table_bytes = (size_t)segment->blocks * SPW_NVME_BLOCK;
    if (posix_memalign((void **)&segment->table, SPW_NVME_BLOCK, table_bytes) != 0)
        return -ENOMEM;
    memset(segment->table, 0, table_bytes);
    segment->block = calloc(segment->blocks, sizeof *segment->block);
    segment->id = calloc(cells, sizeof *segment->id);
    if (!segment->block || !segment->id)
        return -ENOMEM;
    for (uint32_t b = 0; b < segment->blocks; b++)
        segment->block[b] = (struct spw_nvme_block){.segment = segment, .index = b};
    return 0;
}

static int segments_grow(struct spw_cold *nvme)
{
    if (nvme->segments < nvme->segments_room)
        return 0;
    uint32_t room = nvme->segments_room ? 2 * nvme->segments_room : 64;
    struct spw_nvme_segment **more = realloc(nvme->segment, room * sizeof *more);
    if (!more)
        return -ENOMEM;
    nvme->segment = more;
    nvme->segments_room = room;
    return 0;
}

struct spw_nvme_segment *spw_nvme_segment_add(struct spw_cold *nvme,
                                              const struct spw_nvme_file *file)
{
    int class = spw_nvme_class_of(nvme, file->head.cell_bytes);
    struct spw_nvme_segment *segment = calloc(1, sizeof *segment);
    if (!segment || class < 0 || segments_grow(nvme) < 0)
        goto fail;
    segment->file = *file;
    segment->class = (uint32_t) class;
    if (segment_memory(segment) < 0)
        goto fail;
    nvme->segment[nvme->segments++] = segment;
    nvme->class[class].free_cells += file->head.cells;
    nvme->file_bytes += charge(&file->head);
    if (file->number >= nvme->next_number)
        nvme->next_number = file->number + 1;
    return segment;

fail:
    segment_free(segment);
    return NULL;
}

struct removal {
    struct spw_nvme_op op;
    struct spw_nvme_remove remove;
    uint64_t bytes; /* that the disk has once more when it is done */
};

/* One that can't be removed is charged until the next mount, which finds it. */
static void removed(struct spw_cold *nvme, struct spw_nvme_op *op, const struct spw_io_end *end)
{
    struct removal *removal = (struct removal *)op;
    nvme->removals--;
    if (end->result == 0 || end->result == -ENOENT)
        nvme->file_bytes -= removal->bytes;
    free(removal);
}

static int segment_remove(struct spw_cold *nvme, const struct spw_nvme_segment *segment)
{
    struct removal *removal = calloc(1, sizeof *removal);
    if (!removal)
        return -ENOMEM;
    removal->op.ended = removed;
    removal->remove = (struct spw_nvme_remove){
        .shard_fd = nvme->mount->shard_fd, .fd = segment->file.fd, .number = segment->file.number};
    struct spw_io io = {.op = SPW_IO_CALL, .call = spw_nvme_remove, .arg = &removal->remove};
    removal->bytes = charge(&segment->file.head);
    int rc = spw_nvme_submit(nvme, &removal->op, &io);
    if (rc < 0)
        free(removal);
    else
        nvme->removals++;
    return rc;
}

static bool waits_to_be_written(const struct spw_nvme_segment *segment)
{
    for (uint32_t b = 0; b < segment->blocks; b++)
        if (segment->block[b].queued || segment->block[b].writing)
            return true;
    return false;
}

void spw_nvme_segments_leave(struct spw_cold *nvme)
{
    for (uint32_t i = 0; i < nvme->segments; i++) {
        struct spw_nvme_segment *segment = nvme->segment[i];
        if (!segment->leaving || segment->busy != 0 || waits_to_be_written(segment) ||
            segment_remove(nvme, segment) < 0)
            continue;
        nvme->class[segment->class].free_cells -= segment->file.head.cells - segment->used;
        nvme->segment[i--] = nvme->segment[--nvme->segments];
        segment_free(segment);
    }
}

void spw_nvme_segment_empty(struct spw_cold *nvme, struct spw_nvme_segment *segment,
                            enum spw_cold_why why)
{
    for (uint32_t cell = 0; cell < segment->file.head.cells; cell++)
        if (segment->id[cell] != 0 && nvme->chunk[segment->id[cell] - 1].state == SPW_CHUNK_HELD)
            spw_nvme_lose(nvme, segment->id[cell] - 1, why);
    segment->leaving = true;
}

void spw_nvme_index_clear(struct spw_cold *nvme)
{
    for (uint32_t i = 0; i < nvme->segments; i++)
        segment_free(nvme->segment[i]);
    nvme->segments = nvme->classes = 0;
    nvme->file_bytes = 0;
    nvme->dirty_first = nvme->dirty_last = NULL;
    memset(nvme->class, 0, sizeof nvme->class);
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

/* A free cell of @segment, or -ENOENT. */
static int64_t cell_take(struct spw_cold *nvme, struct spw_nvme_segment *segment)
{
    for (uint32_t cell = segment->free_from; cell < segment->file.head.cells; cell++) {
        if (segment->id[cell] != 0)
            continue;
        segment->free_from = cell + 1;
        segment->used++;
        nvme->class[segment->class].free_cells--;
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
            nvme->config.listener.gone(nvme->config.listener.ctx, id, SPW_COLD_AWAY);
        }
        if (nvme->chunk[id].state != SPW_CHUNK_FREE)
            spw_slot_list_add(&nvme->free_ids, id);
        nvme->chunk[id] = (struct spw_nvme_chunk){0};
    }
    nvme->held = 0;
}

void spw_nvme_lose(struct spw_cold *nvme, uint32_t id, enum spw_cold_why why)
{
    spw_nvme_forget(nvme, id);
    nvme->config.listener.gone(nvme->config.listener.ctx, id, why);
}

void spw_nvme_unput(struct spw_cold *nvme, uint32_t id)
{
    struct spw_nvme_chunk *chunk = &nvme->chunk[id];
    cell_free(nvme, chunk);
    *chunk = (struct spw_nvme_chunk){0};
    spw_slot_list_add(&nvme->free_ids, id);
}

void spw_nvme_hold(struct spw_cold *nvme, uint32_t id)
{
    struct spw_nvme_chunk *chunk = &nvme->chunk[id];
    chunk->state = SPW_CHUNK_HELD;
    chunk->segment->last_used = record_of(chunk)->sequence;
    spw_order_add(&class_of(nvme, chunk)->order, id, 0);
    nvme->held++;
}

/* Who goes next of a class: SPW_NVME_NO_ID if all are being read. */
static uint32_t next_of(const struct spw_cold *nvme, const struct spw_nvme_class *class)
{
    struct spw_order_walk walk;
    uint32_t id;
    spw_order_walk(&class->order, SPW_ALL_LANES, &walk);
    do
        id = spw_order_next(&walk);
    while (id != SPW_NO_SLOT_ID && nvme->chunk[id].reads != 0);
    return id;
}

/* ---- room ------------------------------------------------------------------------------------ */

static void created(struct spw_cold *nvme, struct spw_nvme_op *op, const struct spw_io_end *end)
{
    struct spw_nvme_create *create = nvme->create;
    struct spw_nvme_call *call = (struct spw_nvme_call *)op;
    call->busy = false;
    nvme->create = NULL;
    nvme->file_bytes -= nvme->create_bytes; /* counted again as a segment */
    bool wanted = !nvme->closing && nvme->phase == SPW_NVME_SERVES;
    if (end->result == 0 && (!wanted || !spw_nvme_segment_add(nvme, &create->file))) {
        struct spw_nvme_remove remove = {nvme->mount->shard_fd, create->file.fd,
                                         create->file.number};
        spw_nvme_remove(&remove);
    } else if (end->result == -ENOSPC || end->result == -EDQUOT || end->result == -EFBIG) {
        nvme->full_ns = nvme->now_ns + 10 * nvme->config.retry_ns;
        nvme->full_again = nvme->full;
        nvme->full = true;
    } else if (end->result < 0) {
        snprintf(create->text, sizeof create->text, "making a segment in %.100s: %s", nvme->dir,
                 strerror((int)-end->result));
        spw_nvme_result(nvme, (int)end->result, create->text);
    } else {
        nvme->full = nvme->full_again = false;
    }
    free(create);
}

/* Begin a segment of @class if the cap allows one. 0: on its way, now or already. */
static int create(struct spw_cold *nvme, uint32_t class)
{
    if (nvme->create)
        return 0;
    if (nvme->now_ns < nvme->full_ns)
        return -ENOSPC;
    struct spw_nvme_head head = {.cell_bytes = nvme->class[class].cell_bytes};
    uint64_t used = SPW_NVME_OVERHEAD + nvme->file_bytes, cap = nvme->config.cap_bytes;
    uint64_t left = used < cap ? cap - used : 0;
    head.cells = spw_nvme_cells(head.cell_bytes, nvme->config.cap_bytes);
    while (head.cells > 1 && charge(&head) > left)
        head.cells /= 2;
    if (charge(&head) > left || nvme->next_number >= SPW_NVME_SEGMENTS_MAX)
        return -ENOSPC;
    nvme->create = calloc(1, sizeof *nvme->create);
    if (!nvme->create)
        return -ENOMEM;
    *nvme->create =
        (struct spw_nvme_create){.shard_fd = nvme->mount->shard_fd,
                                 .direct = nvme->mount->direct,
                                 .file = {.number = nvme->next_number, .fd = -1, .head = head}};
    nvme->create_call.op.ended = created;
    int rc = spw_nvme_call(nvme, &nvme->create_call, spw_nvme_create, nvme->create);
    if (rc < 0) {
        free(nvme->create);
        nvme->create = NULL;
        return rc;
    }
    nvme->next_number++;
    nvme->create_class = class;
    nvme->create_bytes = charge(&head);
    nvme->file_bytes += nvme->create_bytes;
    return 0;
}

/* The segment not of @class that was used longest ago, if nothing touches it. */
static struct spw_nvme_segment *oldest_other(const struct spw_cold *nvme, uint32_t class)
{
    struct spw_nvme_segment *oldest = NULL;
    for (uint32_t i = 0; i < nvme->segments; i++) {
        struct spw_nvme_segment *segment = nvme->segment[i];
        if (segment->class == class || segment->leaving || segment->busy != 0)
            continue;
        uint64_t used = segment->used ? segment->last_used : 0;
        if (!oldest || used < (oldest->used ? oldest->last_used : 0))
            oldest = segment;
    }
    return oldest;
}

struct spw_nvme_segment *spw_nvme_oldest_segment(const struct spw_cold *nvme)
{
    return oldest_other(nvme, SPW_NVME_CLASSES);
}

static bool some_leaves(const struct spw_cold *nvme)
{
    if (nvme->removals != 0)
        return true;
    for (uint32_t i = 0; i < nvme->segments; i++)
        if (nvme->segment[i]->leaving)
            return true;
    return false;
}

/* Make a cell of @class free by taking a chunk's. 0: there is one; -EAGAIN: soon; -ENOSPC. */
static int evict(struct spw_cold *nvme, uint32_t class)
{
    uint32_t next = next_of(nvme, &nvme->class[class]);
    struct spw_nvme_segment *other = oldest_other(nvme, class);
    uint64_t used = next == SPW_NO_SLOT_ID ? UINT64_MAX : record_of(&nvme->chunk[next])->sequence;
    if (other && (other->used == 0 || other->last_used < used)) {
        if (!some_leaves(nvme)) /* one at a time: the last one's bytes may do */
            spw_nvme_segment_empty(nvme, other, SPW_COLD_EVICTED);
        return -EAGAIN;
    }
    if (next == SPW_NO_SLOT_ID)
        return some_leaves(nvme) || nvme->puts != 0 || nvme->reads != 0 ? -EAGAIN : -ENOSPC;
    spw_nvme_lose(nvme, next, SPW_COLD_EVICTED);
    return 0;
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

/* An id that is free, at the cost of the chunk of @class, or else of any, that goes next. */
static int find_id(struct spw_cold *nvme, uint32_t class)
{
    if (nvme->free_ids.count != 0)
        return 0;
    uint32_t next = next_of(nvme, &nvme->class[class]);
    for (uint32_t i = 0; i < nvme->classes && next == SPW_NO_SLOT_ID; i++)
        next = next_of(nvme, &nvme->class[i]);
    if (next == SPW_NO_SLOT_ID)
        return -EAGAIN; /* all are being read or written */
    spw_nvme_lose(nvme, next, SPW_COLD_EVICTED);
    return 0;
}

int spw_nvme_find_room(struct spw_cold *nvme, uint64_t bytes, uint32_t *out_id)
{
    uint64_t cell_bytes = spw_nvme_cell_bytes(bytes);
    if (bytes == 0 || bytes > nvme->config.chunk_bytes_max ||
        spw_nvme_segment_bytes(cell_bytes, 1) + SPW_NVME_SEGMENT_MORE + SPW_NVME_OVERHEAD >
            nvme->config.cap_bytes)
        return -EFBIG;
    int class = spw_nvme_class_of(nvme, cell_bytes);
    if (class < 0)
        return class;
    struct spw_nvme_segment *segment = with_free_cell(nvme, (uint32_t) class);
    if (!segment || nvme->class[class].free_cells <= SPW_NVME_PUTS(nvme)) {
        int rc = create(nvme, (uint32_t) class); /* ahead of need where that can be */
        if (!segment && rc == 0)
            return -EAGAIN;
        if (!segment && nvme->now_ns < nvme->full_ns && nvme->full && !nvme->full_again)
            return -ENOSPC; /* for once: if the disk stays full, what is there makes room */
        if (!segment)
            rc = evict(nvme, (uint32_t) class);
        if (!segment && rc < 0)
            return rc;
        segment = with_free_cell(nvme, (uint32_t) class);
    }
    int rc = find_id(nvme, (uint32_t) class);
    if (rc < 0 || !segment)
        return rc < 0 ? rc : -EAGAIN;
    int64_t cell = cell_take(nvme, segment);
    if (cell < 0)
        return -EAGAIN;
    uint32_t id = nvme->free_ids.oldest;
    spw_slot_list_remove(&nvme->free_ids, id);
    nvme->chunk[id] =
        (struct spw_nvme_chunk){.segment = segment, .cell = (uint32_t)cell, .state = SPW_CHUNK_PUT};
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
    nvme->chunk[id] =
        (struct spw_nvme_chunk){.segment = segment, .cell = cell, .state = SPW_CHUNK_PUT};
    segment->id[cell] = id + 1;
    segment->used++;
    nvme->class[segment->class].free_cells--;
    if (record->sequence > nvme->sequence)
        nvme->sequence = record->sequence;
    uint64_t last_used = segment->last_used;
    spw_nvme_hold(nvme, id);
    if (last_used > segment->last_used)
        segment->last_used = last_used;
    spw_nvme_event(nvme, SPW_COLD_FOUND, id, 0, NULL);
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
        spw_order_add(&class->order, aged[i].id, 0);
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
