/*
 * Segments: files of equal cells, each with its table, as memory has them. Made while the cap allows
 * it, emptied, and removed once nothing touches them. See nvme_impl.h.
 *
 *   dies after              the next open finds
 *   a file half made        no segment: its head is written last, and what has none is removed
 *   emptied, not removed    its chunks, as far as their records were not yet erased
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tier/nvme_impl.h"

static const uint64_t nobody[2];

int spw_nvme_class_of(struct spw_cold *nvme, uint64_t cell_bytes, const uint64_t owner[2])
{
    for (uint32_t i = 0; i < nvme->classes; i++) {
        const struct spw_nvme_class *class = &nvme->class[i];
        if (class->cell_bytes == cell_bytes && class->owner[0] == owner[0] &&
            class->owner[1] == owner[1])
            return (int)i;
    }
    if (nvme->classes == SPW_NVME_CLASSES)
        return (owner[0] | owner[1]) != 0 ? spw_nvme_class_of(nvme, cell_bytes, nobody) : -EFBIG;
    struct spw_nvme_class *class = &nvme->class[nvme->classes];
    *class = (struct spw_nvme_class){.cell_bytes = cell_bytes, .owner = {owner[0], owner[1]}};
    spw_order_init(&class->order, &nvme->ages);
    return (int)nvme->classes++;
}

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
    int class = spw_nvme_class_of(nvme, file->head.cell_bytes, file->head.owner);
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

/* ---- made ------------------------------------------------------------------------------------ */

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

int spw_nvme_segment_create(struct spw_cold *nvme, uint32_t class)
{
    if (nvme->create)
        return 0;
    if (nvme->now_ns < nvme->full_ns)
        return -ENOSPC;
    const struct spw_nvme_class *of = &nvme->class[class];
    struct spw_nvme_head head = {.cell_bytes = of->cell_bytes,
                                 .owner = {of->owner[0], of->owner[1]}};
    uint64_t used = SPW_NVME_OVERHEAD + nvme->file_bytes, cap = nvme->config.cap_bytes;
    uint64_t left = used < cap ? cap - used : 0;
    head.cells = spw_nvme_cells_of(nvme, of);
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

/* ---- who goes -------------------------------------------------------------------------------- */

struct spw_nvme_segment *spw_nvme_oldest_segment(const struct spw_cold *nvme, uint32_t class,
                                                 uint64_t victims, uint32_t lane)
{
    struct spw_nvme_segment *oldest = NULL;
    for (uint32_t i = 0; i < nvme->segments; i++) {
        struct spw_nvme_segment *segment = nvme->segment[i];
        if (segment->class == class || segment->leaving || segment->busy != 0 ||
            spw_nvme_keep(nvme, segment, victims, lane) != 0)
            continue;
        uint64_t used = segment->used ? segment->last_used : 0;
        if (!oldest || used < (oldest->used ? oldest->last_used : 0))
            oldest = segment;
    }
    return oldest;
}

bool spw_nvme_segment_leaves(const struct spw_cold *nvme)
{
    if (nvme->removals != 0)
        return true;
    for (uint32_t i = 0; i < nvme->segments; i++)
        if (nvme->segment[i]->leaving)
            return true;
    return false;
}

/* ---- leaving --------------------------------------------------------------------------------- */

struct spw_nvme_removal {
    struct spw_nvme_op op;
    struct spw_nvme_removal *next; /* of those that failed */
    struct spw_nvme_remove remove;
    uint64_t bytes; /* that the disk has once more when it is done */
};

/* Its bytes stay charged. As long as it is there nothing more is emptied: that would make no room,
 * either. The next mount finds it as a segment without chunks. */
static void removal_failed(struct spw_cold *nvme, struct spw_nvme_removal *removal, int status)
{
    char name[32];
    spw_nvme_segment_name(removal->remove.number, name);
    snprintf(nvme->removal_text, sizeof nvme->removal_text,
             "%.16s in %.50s can't be removed: %.40s; its room is missed", name, nvme->dir,
             strerror(-status));
    removal->next = nvme->failed_removals;
    nvme->failed_removals = removal;
    nvme->removal_ns = nvme->now_ns + nvme->config.retry_ns;
    spw_nvme_result(nvme, status, nvme->removal_text);
}

static void removed(struct spw_cold *nvme, struct spw_nvme_op *op, const struct spw_io_end *end)
{
    struct spw_nvme_removal *removal = (struct spw_nvme_removal *)op;
    bool gone = end->result == 0 || end->result == -ENOENT;
    nvme->removals--;
    if (!gone && nvme->phase == SPW_NVME_SERVES && !nvme->closing) {
        removal_failed(nvme, removal, (int)end->result);
        return;
    }
    if (gone)
        nvme->file_bytes -= removal->bytes;
    if (!nvme->failed_removals)
        nvme->removal_text[0] = '\0';
    free(removal);
}

static int submit_removal(struct spw_cold *nvme, struct spw_nvme_removal *removal)
{
    struct spw_io io = {.op = SPW_IO_CALL, .call = spw_nvme_remove, .arg = &removal->remove};
    int rc = spw_nvme_submit(nvme, &removal->op, &io);
    nvme->removals += rc == 0;
    return rc;
}

static int segment_remove(struct spw_cold *nvme, const struct spw_nvme_segment *segment)
{
    struct spw_nvme_removal *removal = calloc(1, sizeof *removal);
    if (!removal)
        return -ENOMEM;
    removal->op.ended = removed;
    removal->remove = (struct spw_nvme_remove){
        .shard_fd = nvme->mount->shard_fd, .fd = segment->file.fd, .number = segment->file.number};
    removal->bytes = charge(&segment->file.head);
    int rc = submit_removal(nvme, removal);
    if (rc < 0)
        free(removal);
    return rc;
}

static void remove_failed_again(struct spw_cold *nvme)
{
    struct spw_nvme_removal *removal;
    while ((removal = nvme->failed_removals) && nvme->now_ns >= nvme->removal_ns &&
           submit_removal(nvme, removal) == 0)
        nvme->failed_removals = removal->next;
}

static void forget_failed(struct spw_cold *nvme)
{
    for (struct spw_nvme_removal *removal = nvme->failed_removals, *next; removal; removal = next) {
        next = removal->next;
        if (removal->remove.fd >= 0)
            close(removal->remove.fd);
        free(removal);
    }
    nvme->failed_removals = NULL;
    nvme->removal_text[0] = '\0';
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
    remove_failed_again(nvme);
    for (uint32_t i = 0; i < nvme->segments; i++) {
        struct spw_nvme_segment *segment = nvme->segment[i];
        if (!segment->leaving || segment->busy != 0 || waits_to_be_written(segment) ||
            segment_remove(nvme, segment) < 0)
            continue;
        nvme->class[segment->class].free_cells -= segment->file.head.cells - segment->used;
        nvme->unlisted -= segment->unlisted;
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
    forget_failed(nvme);
    for (uint32_t i = 0; i < nvme->segments; i++)
        segment_free(nvme->segment[i]);
    nvme->segments = nvme->classes = 0;
    nvme->file_bytes = 0;
    nvme->unlisted = 0;
    nvme->dirty_first = nvme->dirty_last = NULL;
    memset(nvme->class, 0, sizeof nvme->class);
}
