#ifndef SPW_TIER_NVME_IMPL_H
#define SPW_TIER_NVME_IMPL_H
/*
 * Insides of the NVMe tier, for its own parts: nvme.c (interface, loop), nvme_index.c (chunks, cells,
 * who goes), nvme_shares.c, nvme_segments.c, nvme_jobs.c (one put or get, a step at a time), nvme_blocks.c (tables on the
 * medium), nvme_mount.c (opening, reading tables, looking after the directory, going down),
 * nvme_resets.c. Private to the worker's thread.
 */
#include "tier/nvme.h"
#include "tier/nvme_files.h"
#include "tier/order.h"
#include "tier/transfer.h"

#define SPW_NVME_CLASSES      256u
#define SPW_NVME_OVERHEAD     (64u << 10) /* directories and small files                    */
#define SPW_NVME_SEGMENT_MORE 4096u       /* a segment's inode, name and extents            */
#define SPW_NVME_BLOCK_IOS    8u          /* blocks of tables being written at once         */
#define SPW_NVME_SCANS        4u          /* tables being read at once                      */
#define SPW_NVME_ERRORS_MAX   8u          /* failures in a row, then the tier is down       */
#define SPW_NVME_NO_ID        UINT32_MAX

struct spw_cold;
struct spw_nvme_segment;
struct spw_nvme_removal;

/* What an end of the engine belongs to: first member of whatever is submitted. */
struct spw_nvme_op {
    void (*ended)(struct spw_cold *nvme, struct spw_nvme_op *op, const struct spw_io_end *end);
};

/* A 4096-byte block of a segment's table. `version` counts its changes in memory, `written` is the
 * last one that the medium has. */
struct spw_nvme_block {
    struct spw_nvme_block *next; /* among those to be written */
    struct spw_nvme_segment *segment;
    uint32_t index;
    uint32_t version, written;
    bool queued, writing;
};

struct spw_nvme_block_io {
    struct spw_nvme_op op;
    struct spw_transfer transfer;
    struct spw_nvme_block *block;
    uint32_t version;
    uint8_t *copy; /* of the block as it is written */
    bool busy;
};

struct spw_nvme_segment {
    struct spw_nvme_op op; /* of its table's read, its creation or removal */
    struct spw_nvme_file file;
    struct spw_nvme_record *table; /* as memory has it: what is being published is there already */
    struct spw_nvme_block *block;
    uint32_t *id;                       /* a cell: id + 1 of the chunk in it, 0 = free */
    uint32_t blocks, class, used, busy; /* busy: transfers and jobs that touch it */
    uint32_t free_from;                 /* no cell below it is free */
    uint32_t parsed;                    /* cells looked at by the scan */
    uint32_t unlisted;               /* free cells whose record is of a good chunk all the same */
    uint64_t last_used;              /* largest sequence of its chunks */
    uint64_t lanes;                  /* that have chunks in it, PUT or HELD */
    uint32_t lane_chunks[SPW_LANES]; /* so many of them */
    struct spw_transfer read;        /* of its table */
    bool leaving;                    /* emptied; removed once nothing touches it */
};

enum spw_nvme_chunk_state {
    SPW_CHUNK_FREE = 0,
    SPW_CHUNK_PUT,     /* being written: nobody was told of it */
    SPW_CHUNK_HELD,    /* there                                */
    SPW_CHUNK_DROPPED, /* forgotten while it is being read     */
};

struct spw_nvme_chunk {
    struct spw_nvme_segment *segment;
    uint32_t cell;
    uint16_t reads; /* under way */
    uint8_t state;
    uint8_t lane; /* its space's */
    bool found;   /* by a scan, and nobody was told yet */
};

/* Chunks of one cell size, of one space with a guarantee or of all others, in order of who goes next. */
struct spw_nvme_class {
    uint64_t cell_bytes;
    uint64_t owner[2]; /* as the heads of its segments have it */
    struct spw_order order;
    uint32_t free_cells;
};

/*             put                                                get
 *      FREE ------> ERASE -> WRITE [-> SYNC] -> PUBLISH      FREE ----> READ
 *                                                  |                      |
 *      FREE <------------- event [<- SYNC_RECORD] -'       FREE <- event -'
 *
 * From any of them: FAILED if a transfer is under way when the tier goes down or the deadline passes:
 * event -ETIMEDOUT, RELEASED once it has ended. */
enum spw_nvme_job_state {
    SPW_NVME_IDLE,
    SPW_NVME_ERASE,
    SPW_NVME_WRITE,
    SPW_NVME_SYNC,
    SPW_NVME_PUBLISH,
    SPW_NVME_SYNC_RECORD,
    SPW_NVME_READ,
    SPW_NVME_LATE,
};

struct spw_nvme_job {
    struct spw_nvme_op op;
    enum spw_nvme_job_state state;
    bool put;
    bool under_way; /* a transfer of it is with the engine */
    bool writes;    /* counted among the payloads being written */
    uint32_t id;
    struct spw_nvme_segment *segment;
    uint32_t cell;
    uint32_t need; /* version of the cell's block that must be written */
    struct spw_nvme_record record;
    uint8_t *payload;
    uint8_t *bounce; /* kept from job to job */
    bool bounced;
    uint64_t bytes;
    uint64_t deadline_ns;
    struct spw_transfer transfer;
    void *tag;
};

/* A call of nvme_files.h that is with the engine, or not. */
struct spw_nvme_call {
    struct spw_nvme_op op;
    bool busy;
};

struct spw_nvme_reset_wait {
    void *tag;
    uint32_t need; /* version of the table of resets */
    uint64_t deadline_ns;
};

struct spw_cold {
    struct spw_nvme_config config;
    char dir[SPW_NVME_PATH_BYTES];
    uint64_t now_ns;
    enum { SPW_NVME_OPENING, SPW_NVME_READING, SPW_NVME_SERVES, SPW_NVME_IS_DOWN } phase;
    uint32_t open_ops;     /* with the engine: all kinds */
    bool engine_full;      /* it took no more; something of ours will end */
    uint32_t errors;       /* in a row                   */
    char text[200];        /* why it isn't as asked for, or is down */
    char engine_text[160]; /* likewise of the engine */
    bool closing;

    struct spw_nvme_chunk *chunk;
    struct spw_slot_links links;
    struct spw_ages ages;
    struct spw_slot_list free_ids;
    struct spw_nvme_class class[SPW_NVME_CLASSES];
    uint32_t classes;
    struct spw_nvme_segment **segment;
    uint32_t segments, segments_room;
    uint32_t next_number;
    uint64_t sequence;
    uint64_t file_bytes; /* of all segments, and of the one being made */
    uint32_t held, leased;
    struct spw_shares shares;        /* .used_bytes: cells of chunks PUT and HELD */
    uint64_t told[SPW_LANES - 1][2]; /* spaces that have a lane of their own: of [i], i + 1 */
    uint32_t told_count;

    struct spw_nvme_job *job;
    uint32_t jobs, reads, puts; /* of them, under way                                         */
    uint32_t writes;            /* puts whose payload is being written */
    struct spw_nvme_block_io block_io[SPW_NVME_BLOCK_IOS];
    struct spw_nvme_block *dirty_first, *dirty_last;

    struct spw_nvme_call mount_call, create_call, look_call, end_call;
    int lock_fd;                    /* the directory's lock, -1: not held; kept while it is away */
    struct spw_nvme_mount *mount;   /* what is open; its files are the segments' */
    struct spw_nvme_create *create; /* being made */
    uint32_t create_class;
    struct spw_nvme_look *look;
    uint64_t retry_ns, retry_wait_ns; /* when the directory is looked at, or tried, next */
    uint64_t write_ns;                /* no write before: a dead process's may still come */
    uint64_t full_ns;                 /* no new segment before: the disk was full */
    bool full, full_again;            /* it had no room for the last segment, for the one before */
    uint32_t removals;                /* segments being removed: their bytes are charged */
    struct spw_nvme_removal *failed_removals; /* likewise charged; tried again at removal_ns */
    uint64_t removal_ns;
    char removal_text[160];
    uint64_t create_bytes; /* charged for the one being made */
    bool mounted_before;
    uint32_t unlisted;      /* of all segments */
    uint64_t unlisted_ever; /* seen by all scans */
    uint32_t scan_next, scans;
    bool scan_more;         /* records are there to be looked at, or events to be taken first */
    uint64_t open_until_ns; /* opening has to get on by then */

    struct spw_nvme_spaces spaces;    /* in memory: what counts */
    uint32_t raised[SPW_NVME_SPACES]; /* of them, that no medium knows for sure: what one says of
                                         before is as much lower */
    uint32_t raised_all;
    uint32_t spaces_version, spaces_written;
    struct spw_nvme_op spaces_op;
    struct spw_transfer spaces_transfer;
    uint8_t *spaces_copy;
    uint32_t spaces_copy_version;
    bool spaces_writing, spaces_syncing;
    bool spaces_first; /* of two writes, as long as a dead process's may come in between */
    struct spw_nvme_reset_wait reset_wait[SPW_SPACES_MAX];
    uint32_t reset_waits;

    struct spw_cold_event *event; /* a ring */
    uint32_t events, event_first, event_room;
};

/* A put has a record erased, its payload and a record written, one after the other: so many puts keep
 * as many payloads under way as there may be. */
#define SPW_NVME_PUTS(nvme) (3 * (nvme)->config.writes)

/* ---- nvme.c ---------------------------------------------------------------------------------- */

/** Hand @io, which belongs to @op, to the engine. 0 or -EAGAIN. */
int spw_nvme_submit(struct spw_cold *nvme, struct spw_nvme_op *op, struct spw_io *io);
/** Let a thread call @call on @arg. 0 or -EAGAIN. */
int spw_nvme_call(struct spw_cold *nvme, struct spw_nvme_call *which, int64_t (*call)(void *arg),
                  void *arg);
void spw_nvme_event(struct spw_cold *nvme, enum spw_cold_event_kind kind, uint32_t id, int status,
                    void *tag);
/** Room for @count more events? */
bool spw_nvme_event_room(const struct spw_cold *nvme, uint32_t count);

/* ---- nvme_index.c ---------------------------------------------------------------------------- */

/** Forget @id, HELD: its record goes on the medium soon. The listener isn't told. */
void spw_nvme_forget(struct spw_cold *nvme, uint32_t id);
/** Likewise, and the listener is told. */
void spw_nvme_lose(struct spw_cold *nvme, uint32_t id, enum spw_cold_why why);
/** A PUT chunk will not be. Its cell is free again (at once, or once erased). */
void spw_nvme_unput(struct spw_cold *nvme, uint32_t id);
/** The last read of DROPPED @id may have ended. */
void spw_nvme_dropped(struct spw_cold *nvme, uint32_t id);
/** As spw_cold_ops has them. */
void spw_nvme_drop(struct spw_cold *nvme, uint32_t id);
void spw_nvme_touch(struct spw_cold *nvme, uint32_t id);
void spw_nvme_demote(struct spw_cold *nvme, uint32_t id);
int spw_nvme_name(struct spw_cold *nvme, uint32_t id, struct spw_cold_name *out_name,
                  uint64_t *out_bytes);
/** The tier goes down: every HELD chunk is told AWAY, every id is free. Segments stay as they are
 * until nothing touches them. */
void spw_nvme_all_away(struct spw_cold *nvme);
/** A FREE id and a cell for @bytes of @space, its chunk in state PUT. 0, or why not (see
 * spw_cold_ops.put). */
int spw_nvme_find_room(struct spw_cold *nvme, const uint64_t space[2], uint64_t bytes,
                       uint32_t *out_id);
/** PUT -> HELD. */
void spw_nvme_hold(struct spw_cold *nvme, uint32_t id);
/** Take the chunk of a good record found in @cell. */
void spw_nvme_take_found(struct spw_cold *nvme, struct spw_nvme_segment *segment, uint32_t cell);
/** Let the good record found in @cell be: too large, or one too many. */
void spw_nvme_leave_unlisted(struct spw_cold *nvme, struct spw_nvme_segment *segment,
                             uint32_t cell);
/** Put the order of all chunks right after a scan. 0 or -ENOMEM. */
int spw_nvme_sort(struct spw_cold *nvme);

/* ---- nvme_segments.c ------------------------------------------------------------------------- */

/** The class of these cells and @owner, made if need be. Where there are too many, that of nobody's; or
 * -EFBIG. */
int spw_nvme_class_of(struct spw_cold *nvme, uint64_t cell_bytes, const uint64_t owner[2]);
/** A segment in memory for @file, its table unread. NULL: no memory; @file stays the caller's. */
struct spw_nvme_segment *spw_nvme_segment_add(struct spw_cold *nvme,
                                              const struct spw_nvme_file *file);
/** Remove segments that are leaving and untouched. */
void spw_nvme_segments_leave(struct spw_cold *nvme);
/** All its chunks are lost; it leaves. */
void spw_nvme_segment_empty(struct spw_cold *nvme, struct spw_nvme_segment *segment,
                            enum spw_cold_why why);
/** Begin a segment of @class if the cap allows one. 0: on its way, now or already; -ENOSPC and others:
 * it isn't. */
int spw_nvme_segment_create(struct spw_cold *nvme, uint32_t class);
/** The segment not of @class (SPW_NVME_CLASSES: of any) that was used longest ago, of those that
 * nothing touches and that may go as @victims make room for @lane, or NULL. */
struct spw_nvme_segment *spw_nvme_oldest_segment(const struct spw_cold *nvme, uint32_t class,
                                                 uint64_t victims, uint32_t lane);
/** Does some segment leave, without trouble? Its bytes are free soon. */
bool spw_nvme_segment_leaves(const struct spw_cold *nvme);
/** Give back all memory of segments. Descriptors stay open. */
void spw_nvme_index_clear(struct spw_cold *nvme);

/* ---- nvme_shares.c --------------------------------------------------------------------------- */

/** As spw_cold_ops has it. */
void spw_nvme_share(struct spw_cold *nvme, const uint64_t space[2], const struct spw_share *share);
/** Whose chunks stand in which lane. */
uint32_t spw_nvme_lane(const struct spw_cold *nvme, const uint64_t space[2]);
/** Who alone puts into the segments that chunks of @lane go to: its space, or 0. */
void spw_nvme_owner(const struct spw_cold *nvme, uint32_t lane, uint64_t out_owner[2]);
/** Cells of a new segment of @class. */
uint32_t spw_nvme_cells_of(const struct spw_cold *nvme, const struct spw_nvme_class *class);
/** @chunk, which has its cell and lane, is PUT or HELD from now on. */
void spw_nvme_share_take(struct spw_cold *nvme, const struct spw_nvme_chunk *chunk);
/** It is neither any more. */
void spw_nvme_share_give(struct spw_cold *nvme, const struct spw_nvme_chunk *chunk);
/** Lanes that make room for @bytes more of @lane, at @step. */
uint64_t spw_nvme_victims(const struct spw_cold *nvme, uint32_t lane, uint64_t bytes,
                          enum spw_share_step step);
/** Lanes for whose sake @segment stays when @victims make room for @lane; 0: it may go. */
uint64_t spw_nvme_keep(const struct spw_cold *nvme, const struct spw_nvme_segment *segment,
                       uint64_t victims, uint32_t lane);
/** The segment whose going costs least of what is promised, or NULL: each is touched. */
struct spw_nvme_segment *spw_nvme_least_promised(const struct spw_cold *nvme);

/* ---- nvme_blocks.c --------------------------------------------------------------------------- */

static inline struct spw_nvme_block *spw_nvme_block_of(struct spw_nvme_segment *segment,
                                                       uint32_t cell)
{
    return &segment->block[cell / SPW_NVME_RECORDS];
}

/** The record of @cell has changed in memory. Returns the version that the medium will have. */
uint32_t spw_nvme_block_changed(struct spw_cold *nvme, struct spw_nvme_segment *segment,
                                uint32_t cell);
/** Write what is to be written. */
void spw_nvme_blocks_pump(struct spw_cold *nvme);
/** Is there something that could be written now? */
bool spw_nvme_blocks_wait(const struct spw_cold *nvme);

/* ---- nvme_jobs.c ----------------------------------------------------------------------------- */

int spw_nvme_put(struct spw_cold *nvme, const struct spw_cold_put *put);
int spw_nvme_get(struct spw_cold *nvme, uint32_t id, uint8_t *payload, uint64_t bytes, void *tag);
/** Go on with all jobs that can. */
void spw_nvme_jobs_pump(struct spw_cold *nvme);
/** Jobs that wait for @segment's block @index fail with @status. */
void spw_nvme_jobs_block_failed(struct spw_cold *nvme, const struct spw_nvme_block *block,
                                int status);
/** End all jobs: what is under way is LATE. */
void spw_nvme_jobs_abandon(struct spw_cold *nvme, int status);
/** True if some job is beyond its deadline. */
bool spw_nvme_jobs_late(const struct spw_cold *nvme);

/* ---- nvme_mount.c ---------------------------------------------------------------------------- */

/** Opening, reading, looking: whatever is due. */
void spw_nvme_mount_pump(struct spw_cold *nvme);
/** Nothing is under way: close all files, forget what was in them. */
void spw_nvme_unmount(struct spw_cold *nvme);
/** Out of service, for the reason in @words. */
void spw_nvme_go_down(struct spw_cold *nvme, const char *words);
/** A transfer failed, or (0) one went well: too many failures in a row take the tier down. */
void spw_nvme_result(struct spw_cold *nvme, int status, const char *words);

/* ---- nvme_resets.c --------------------------------------------------------------------------- */

/** Resets of @space so far, those of all included. */
uint64_t spw_nvme_generation(const struct spw_cold *nvme, const uint64_t space[2]);
/** As spw_cold_ops has it. */
int spw_nvme_reset(struct spw_cold *nvme, const uint64_t space[2], void *tag);
/** What the medium has, beside what memory has. */
void spw_nvme_resets_merge(struct spw_cold *nvme, const struct spw_nvme_spaces *medium);
void spw_nvme_resets_pump(struct spw_cold *nvme);
/** When the first of those that wait gives up; UINT64_MAX: none does. */
uint64_t spw_nvme_resets_due_ns(const struct spw_cold *nvme);
/** The medium can't be told now. */
void spw_nvme_resets_fail(struct spw_cold *nvme, int status);

#endif
