/*
 * The directory: opened, its tables read while what was found is served, looked after, given up and
 * opened again. All calls that may block are made by the engine's threads.
 *
 *   OPENING   the mount call runs; on its failure the tier is DOWN
 *   READING   tables are read, some at a time; their records are looked at in bounded pieces
 *   SERVES    looked at every retry_ns: is it still there, are its files
 *   DOWN      nothing new begins; once nothing is under way all is closed, and opened anew after a
 *             wait that doubles
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tier/nvme_impl.h"

#define RECORDS_A_PUMP  1024u
#define RETRY_TIMES_MAX 32u

/* ---- opening --------------------------------------------------------------------------------- */

static void retry_later(struct spw_cold *nvme)
{
    nvme->retry_ns = nvme->now_ns + nvme->retry_wait_ns;
    if (nvme->retry_wait_ns < RETRY_TIMES_MAX * nvme->config.retry_ns)
        nvme->retry_wait_ns *= 2;
}

static void give_mount_up(struct spw_cold *nvme)
{
    if (!nvme->mount)
        return;
    spw_nvme_mount_fini(nvme->mount);
    free(nvme->mount);
    nvme->mount = NULL;
}

/* Each segment closes its own descriptor from now on. */
static int take_files(struct spw_cold *nvme)
{
    for (uint32_t i = 0; i < nvme->mount->files; i++) {
        if (!spw_nvme_segment_add(nvme, &nvme->mount->file[i]))
            return -ENOMEM;
        nvme->mount->file[i].fd = -1;
    }
    return 0;
}

static void mounted(struct spw_cold *nvme, struct spw_nvme_op *op, const struct spw_io_end *end)
{
    ((struct spw_nvme_call *)op)->busy = false;
    nvme->lock_fd = nvme->mount->lock_fd;
    if (end->result < 0 || nvme->closing || nvme->phase == SPW_NVME_IS_DOWN) { /* too late, too */
        spw_nvme_go_down(nvme, nvme->mount->text);
        return;
    }
    snprintf(nvme->text, sizeof nvme->text, "%s", nvme->mount->text);
    if (nvme->mount->unclean && !nvme->mounted_before && nvme->config.quarantine_ns != 0)
        nvme->write_ns = nvme->now_ns + nvme->config.quarantine_ns;
    nvme->spaces_first = nvme->now_ns < nvme->write_ns;
    nvme->mounted_before = true;
    spw_nvme_resets_merge(nvme, spw_nvme_spaces_choose(nvme->mount->spaces));
    if (take_files(nvme) < 0) {
        spw_nvme_go_down(nvme, "no memory for its segments");
        return;
    }
    nvme->phase = SPW_NVME_READING;
    nvme->open_until_ns = nvme->now_ns + nvme->config.deadline_ns;
    nvme->errors = nvme->scan_next = nvme->scans = 0;
    nvme->retry_wait_ns = nvme->config.retry_ns;
}

static void begin_mount(struct spw_cold *nvme)
{
    nvme->mount = calloc(1, sizeof *nvme->mount);
    if (!nvme->mount) {
        retry_later(nvme);
        return;
    }
    snprintf(nvme->mount->dir, sizeof nvme->mount->dir, "%s", nvme->dir);
    nvme->mount->shard = nvme->config.shard;
    nvme->mount->want_direct = nvme->config.direct;
    nvme->mount->lock_fd = nvme->lock_fd;
    nvme->mount->shard_fd = nvme->mount->spaces_fd = -1;
    nvme->mount_call.op.ended = mounted;
    if (spw_nvme_call(nvme, &nvme->mount_call, spw_nvme_mount, nvme->mount) == 0) {
        nvme->phase = SPW_NVME_OPENING;
        nvme->open_until_ns = nvme->now_ns + nvme->config.deadline_ns;
    } else {
        free(nvme->mount);
        nvme->mount = NULL;
        retry_later(nvme);
    }
}

/* ---- reading tables -------------------------------------------------------------------------- */

static int submit_read(struct spw_cold *nvme, struct spw_nvme_segment *segment)
{
    struct spw_io io;
    spw_transfer_ask(&segment->read, &io);
    return spw_nvme_submit(nvme, &segment->op, &io);
}

static void table_read(struct spw_cold *nvme, struct spw_nvme_op *op, const struct spw_io_end *end)
{
    struct spw_nvme_segment *segment = (struct spw_nvme_segment *)op;
    int status = spw_transfer_ended(&segment->read, end);
    if (nvme->phase == SPW_NVME_IS_DOWN)
        return;
    if (status == 0 && submit_read(nvme, segment) == 0)
        return;
    if (status == 1) {
        segment->read.op = SPW_IO_SYNC; /* read: its records are looked at from now on */
        nvme->open_until_ns = nvme->now_ns + nvme->config.deadline_ns;
        return;
    }
    spw_nvme_go_down(nvme, "a table of chunks can't be read");
}

static void read_next_tables(struct spw_cold *nvme)
{
    while (nvme->scans < SPW_NVME_SCANS && nvme->scan_next < nvme->segments) {
        struct spw_nvme_segment *segment = nvme->segment[nvme->scan_next];
        segment->op.ended = table_read;
        segment->read = (struct spw_transfer){.op = SPW_IO_READ,
                                              .fd = segment->file.fd,
                                              .offset = SPW_NVME_BLOCK,
                                              .buffer = (uint8_t *)segment->table,
                                              .bytes = (uint64_t)segment->blocks * SPW_NVME_BLOCK};
        if (submit_read(nvme, segment) < 0)
            return;
        nvme->scan_next++;
        nvme->scans++;
    }
}

/* One record of a table. Those that are none are erased, as are those of before a reset. A start with
 * larger limits finds what this one can't list. */
static void look_at_record(struct spw_cold *nvme, struct spw_nvme_segment *segment, uint32_t cell)
{
    static const struct spw_nvme_record none;
    struct spw_nvme_record *record = &segment->table[cell];
    if (memcmp(record, &none, sizeof none) == 0)
        return;
    bool good = spw_nvme_record_good(record, &segment->file.head, cell) &&
                record->generation == spw_nvme_generation(nvme, record->space);
    if (!good) {
        *record = none;
        spw_nvme_block_changed(nvme, segment, cell);
    } else if (record->bytes <= nvme->config.chunk_bytes_max && nvme->free_ids.count != 0) {
        spw_nvme_take_found(nvme, segment, cell);
    } else {
        spw_nvme_leave_unlisted(nvme, segment, cell);
    }
}

static bool is_read(const struct spw_nvme_segment *segment)
{
    return segment->read.op == SPW_IO_SYNC;
}

/* True: all of them are through. */
static bool look_at_records(struct spw_cold *nvme)
{
    uint32_t budget = RECORDS_A_PUMP;
    nvme->scan_more = false;
    for (uint32_t i = 0; i < nvme->scan_next && budget != 0; i++) {
        struct spw_nvme_segment *segment = nvme->segment[i];
        uint32_t cells = segment->file.head.cells;
        if (!is_read(segment) || segment->parsed == cells)
            continue;
        for (; segment->parsed < cells && budget != 0 && spw_nvme_event_room(nvme, 1); budget--)
            look_at_record(nvme, segment, segment->parsed++);
        nvme->scan_more = segment->parsed < cells;
        if (nvme->scan_more)
            return false;
        nvme->scans--;
    }
    return nvme->scans == 0 && nvme->scan_next == nvme->segments;
}

/* The cap may be lower than it was: something has to go, if need be what is promised. */
static void fit_cap(struct spw_cold *nvme)
{
    uint64_t leaving = 0;
    struct spw_nvme_segment *segment;
    while (SPW_NVME_OVERHEAD + nvme->file_bytes - leaving > nvme->config.cap_bytes &&
           (segment = spw_nvme_least_promised(nvme))) {
        leaving += spw_nvme_segment_bytes(segment->file.head.cell_bytes, segment->file.head.cells) +
                   SPW_NVME_SEGMENT_MORE;
        spw_nvme_segment_empty(nvme, segment, SPW_COLD_EVICTED);
    }
}

static void read_tables(struct spw_cold *nvme)
{
    read_next_tables(nvme);
    if (!look_at_records(nvme))
        return;
    if (spw_nvme_sort(nvme) < 0) {
        spw_nvme_go_down(nvme, "no memory to sort its chunks by age");
        return;
    }
    nvme->phase = SPW_NVME_SERVES;
    nvme->retry_ns = nvme->now_ns + nvme->config.retry_ns;
    fit_cap(nvme);
}

/* ---- looking after it ------------------------------------------------------------------------ */

static void look_free(struct spw_nvme_look *look)
{
    free(look->file);
    free(look);
}

static void looked(struct spw_cold *nvme, struct spw_nvme_op *op, const struct spw_io_end *end)
{
    struct spw_nvme_look *look = nvme->look;
    ((struct spw_nvme_call *)op)->busy = false;
    nvme->look = NULL;
    nvme->lock_fd = look->lock_fd;
    nvme->retry_ns = nvme->now_ns + nvme->config.retry_ns;
    if (nvme->phase == SPW_NVME_SERVES && end->result < 0)
        spw_nvme_go_down(nvme, look->text);
    for (uint32_t f = 0; nvme->phase == SPW_NVME_SERVES && f < look->count; f++)
        for (uint32_t i = 0; look->file[f].gone && i < nvme->segments; i++)
            if (nvme->segment[i]->file.fd == look->file[f].fd)
                spw_nvme_segment_empty(nvme, nvme->segment[i], SPW_COLD_CORRUPT);
    look_free(look);
}

static void begin_look(struct spw_cold *nvme)
{
    struct spw_nvme_look *look = calloc(1, sizeof *look);
    nvme->retry_ns = nvme->now_ns + nvme->config.retry_ns;
    if (!look)
        return;
    look->file = calloc(nvme->segments + 1, sizeof *look->file);
    for (uint32_t i = 0; look->file && i < nvme->segments; i++) {
        if (nvme->segment[i]->leaving)
            continue;
        look->file[look->count].fd = nvme->segment[i]->file.fd;
        look->file[look->count++].bytes = nvme->segment[i]->file.bytes;
    }
    snprintf(look->dir, sizeof look->dir, "%s", nvme->dir);
    look->shard = nvme->config.shard;
    look->shard_fd = nvme->mount->shard_fd;
    look->lock_fd = nvme->lock_fd;
    nvme->look_call.op.ended = looked;
    nvme->look = look;
    if (look->file && spw_nvme_call(nvme, &nvme->look_call, spw_nvme_look, look) == 0)
        return;
    nvme->look = NULL;
    look_free(look);
}

/* ---- down ------------------------------------------------------------------------------------ */

void spw_nvme_go_down(struct spw_cold *nvme, const char *words)
{
    if (nvme->phase == SPW_NVME_IS_DOWN)
        return;
    nvme->phase = SPW_NVME_IS_DOWN;
    snprintf(nvme->text, sizeof nvme->text, "%.*s", (int)sizeof nvme->text - 1,
             words[0] ? words : "out of service");
    spw_nvme_jobs_abandon(nvme, -EIO);
    spw_nvme_all_away(nvme);
    spw_nvme_resets_fail(nvme, -EIO);
    retry_later(nvme);
}

void spw_nvme_result(struct spw_cold *nvme, int status, const char *words)
{
    if (status >= 0)
        nvme->errors = 0;
    else if (++nvme->errors >= SPW_NVME_ERRORS_MAX && nvme->phase != SPW_NVME_IS_DOWN)
        spw_nvme_go_down(nvme, words);
}

void spw_nvme_unmount(struct spw_cold *nvme)
{
    for (uint32_t i = 0; i < nvme->segments; i++)
        close(nvme->segment[i]->file.fd);
    spw_nvme_index_clear(nvme);
    give_mount_up(nvme);
}

static void be_down(struct spw_cold *nvme)
{
    if (nvme->open_ops != 0 || nvme->closing)
        return; /* what is under way is waited for */
    spw_nvme_unmount(nvme);
    nvme->spaces_writing = false;
    if (nvme->now_ns >= nvme->retry_ns)
        begin_mount(nvme);
}

void spw_nvme_mount_pump(struct spw_cold *nvme)
{
    bool opens = nvme->phase == SPW_NVME_OPENING || nvme->phase == SPW_NVME_READING;
    if (opens && !nvme->scan_more && nvme->now_ns >= nvme->open_until_ns)
        spw_nvme_go_down(nvme, "the directory doesn't answer");
    else if (spw_nvme_jobs_late(nvme))
        spw_nvme_go_down(nvme, "a transfer is beyond its deadline");
    if (nvme->phase == SPW_NVME_IS_DOWN)
        be_down(nvme);
    else if (nvme->phase == SPW_NVME_READING)
        read_tables(nvme);
    else if (nvme->phase == SPW_NVME_SERVES && !nvme->look && nvme->now_ns >= nvme->retry_ns &&
             !nvme->closing)
        begin_look(nvme);
}
