#ifndef SPW_TESTS_SUPPORT_NVME_RIG_H
#define SPW_TESTS_SUPPORT_NVME_RIG_H
/*
 * The NVMe tier driven by hand over a real folder, with the seam below it and a clock that the test
 * can put ahead. Knows which chunk each id holds, from what the tier told, and what bytes it must have.
 *
 *   roles     one thread; nothing here uses Criterion. What a test can't go on after (no event within
 *             10 s, an event nobody asked for) ends the process with words
 *   chunks    number n is a name and bytes: space n >> 32, group n & 3, and a key; its bytes begin with
 *             n and follow from it
 */
#include "shm/layout.h"
#include "tests/support/fault_io.h"
#include "tier/nvme.h"

#define NVME_RIG_JOBS  128u
#define NVME_RIG_ROOM  (1u << 20) /* bytes that a job's payload may have */
#define NVME_RIG_IDS   20000u
#define NVME_RIG_GUARD 64u

struct nvme_rig_options {
    uint64_t cap_bytes;       /* 0: 16 MiB     */
    uint64_t chunk_bytes_max; /* 0: 64 KiB     */
    uint32_t ids;             /* 0: 4096       */
    uint32_t reads, writes;   /* 0: 8          */
    uint64_t deadline_ns;     /* 0: 5 s        */
    uint64_t quarantine_ns;
    enum spw_io_choice engine;
    bool buffered, sync, no_checksum, fifo;
    uint32_t skew;   /* payloads begin this far behind a multiple of 4096 */
    const char *dir; /* NULL: one of its own, gone with the rig */
};

struct nvme_job {
    bool used, get, ended, released;
    uint64_t n, bytes;
    uint32_t id;
    int status;
    uint8_t *payload;
};

struct nvme_rig {
    struct nvme_rig_options options;
    char dir[128];
    bool own_dir;
    struct spw_cold_handle cold; /* .ops NULL: closed */
    struct fault_io *fault;
    uint64_t ahead_ns;
    uint8_t *memory;
    struct nvme_job job[NVME_RIG_JOBS];
    uint64_t holds[NVME_RIG_IDS]; /* by id: the chunk's number + 1; 0 = none            */
    uint64_t went[NVME_RIG_IDS];  /* chunks in the order in which `gone` told of them    */
    uint32_t went_count;
    uint32_t gone[5]; /* by enum spw_cold_why                                */
    uint32_t found, resets;
    int reset_status;
    uint32_t wrong; /* ids told of that hold nothing, or hold a chunk that another holds */
    bool sample;    /* look at the folder at each poll                                   */
    uint64_t most_on_disk;
};

/** Open a tier and leave it to scan. */
void nvme_rig_open(struct nvme_rig *rig, const struct nvme_rig_options *options);
/** And wait until it's up or down. */
void nvme_rig_start(struct nvme_rig *rig, const struct nvme_rig_options *options);
/** Open again what was closed. */
void nvme_rig_again(struct nvme_rig *rig);
/** Close the tier; its files stay. What close said. */
int nvme_rig_close(struct nvme_rig *rig);
/** Close what is open, remove the folder and free everything. */
void nvme_rig_fini(struct nvme_rig *rig);

/** One poll, as a worker makes it. Returns how many events it took. */
int nvme_rig_poll(struct nvme_rig *rig);
/** Poll until the tier's state is @state. */
void nvme_rig_until(struct nvme_rig *rig, enum spw_tier_state state);
/** Poll until nothing is under way, as far as the rig and the seam know, and @ms longer. */
void nvme_rig_quiet(struct nvme_rig *rig, uint32_t ms);

/** Begin a put or a get; NULL: refused, *out_rc says how. The job is the caller's until
 * nvme_rig_end(). */
struct nvme_job *nvme_rig_put_begin(struct nvme_rig *rig, uint64_t n, uint64_t bytes, int *out_rc);
struct nvme_job *nvme_rig_get_begin(struct nvme_rig *rig, uint64_t n, uint64_t bytes, int *out_rc);
/** Wait for its event; gives the job back. The event's status; -EILSEQ: a get said 0 and gave other
 * bytes, or anything was written beyond them. */
int nvme_rig_end(struct nvme_rig *rig, struct nvme_job *job);

/** Put and wait, waiting out -EAGAIN. The refusal, or the event's status. */
int nvme_rig_put(struct nvme_rig *rig, uint64_t n, uint64_t bytes);
/** Get and wait; as nvme_rig_end(), -ENOENT: the rig knows no id of it. */
int nvme_rig_get(struct nvme_rig *rig, uint64_t n, uint64_t bytes);
/** Id that holds chunk @n, or -1. */
int64_t nvme_rig_id(const struct nvme_rig *rig, uint64_t n);
void nvme_rig_drop(struct nvme_rig *rig, uint64_t n);
/** Reset a space and wait for its event. */
int nvme_rig_reset(struct nvme_rig *rig, uint32_t space);
int nvme_rig_reset_all(struct nvme_rig *rig);

struct spw_cold_gauge nvme_rig_gauge(struct nvme_rig *rig);
uint32_t nvme_rig_held(const struct nvme_rig *rig); /* chunks it knows of */

/** Blocks allocated below a folder, itself included, in bytes. */
uint64_t nvme_rig_on_disk(const char *dir);
/** Byte @at of the cell of chunk @n is not what it was: finds the cell by its bytes. 0 or -ENOENT. */
int nvme_rig_spoil(struct nvme_rig *rig, uint64_t n, uint64_t bytes, uint64_t at);
/** The cells of chunks @a and @b change places on the medium. 0 or -ENOENT. */
int nvme_rig_swap(struct nvme_rig *rig, uint64_t a, uint64_t b, uint64_t bytes);
/** Where the cell of chunk @n begins in its segment; 0: nowhere. */
uint64_t nvme_rig_cell(struct nvme_rig *rig, uint64_t n, uint64_t bytes);
/** Path of the @nth segment there is, in order of numbers; false: there is none. */
bool nvme_rig_segment(const struct nvme_rig *rig, uint32_t nth, char out[256]);

void nvme_rig_name(uint64_t n, struct spw_cold_name *out);
/** Is that the name of chunk @n? */
bool nvme_rig_named(const struct spw_cold_name *name, uint64_t n);
void nvme_rig_fill(uint8_t *payload, uint64_t n, uint64_t bytes);

#endif
