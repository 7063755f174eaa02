#ifndef SPW_TIER_NVME_H
#define SPW_TIER_NVME_H
/*
 * The tier below on local files: preallocated segments of equal cells, each segment with a table of
 * records that say what its cells hold (tier/nvme_medium.h). The index is in memory and is made by
 * reading those tables, while what was found so far is served.
 *
 *   roles     as tier/cold.h; only the I/O engine's threads touch files
 *   cap       all bytes on disk, tables and the small files included, never exceed it
 *   states    NONE ----open----> SCANNING ----all read----> UP <----> FULL (no room on the disk)
 *                                   ^                        |  |
 *                                   |  works again           v  v  late, vanished, failing
 *                                   `----------------------- DOWN
 *   publish   payload, (sync,) then the block of the table with its record; a record is erased on the
 *             medium before its cell is written again. So a record never speaks of other bytes, and
 *             if it does, the checksum tells
 *   lock      taken before anything of the directory is used, also of one that is opened again, and
 *             looked after like it; while another one has it the tier is DOWN
 *   dead      a process that died with transfers under way leaves the mark `busy`; whoever opens the
 *             directory next within the same boot writes nothing for quarantine_ns
 *   down      what was under way is waited for before the directory is opened again
 */
#include "tier/cold.h"
#include "tier/io.h"

struct spw_nvme_config {
    const char *dir; /* the pool's directory, absolute; this shard's is shard-K in it       */
    uint32_t shard;
    uint64_t cap_bytes; /* on disk, of this shard; at least SPW_NVME_CAP_MIN                   */
    uint32_t ids;       /* chunks at most                                                      */
    uint64_t chunk_bytes_max;
    struct spw_io_handle io; /* becomes the tier's, also when opening fails                    */
    bool direct;             /* O_DIRECT where the file system does it                         */
    bool sync;               /* payload and record are on the medium before a put has ended    */
    bool checksum;           /* made and checked                                               */
    bool fifo;               /* what came first goes first; else what was used least recently  */
    uint32_t reads, writes;  /* of payloads under way at most, each >= 1                       */
    uint64_t deadline_ns;    /* of a read or a write of a chunk                                */
    uint64_t quarantine_ns;  /* how long a dead process's writes may go on                     */
    uint64_t retry_ns;       /* between two looks at a directory that is down, and at one that is
                                up; 0 = 1 s                                                     */
    uint64_t now_ns;
    struct spw_cold_listener listener;
};

/** Less can't hold a segment and the small files. */
#define SPW_NVME_CAP_MIN (256u << 10)

/**
 * Open the tier. Touches nothing itself: the directory is opened, and its tables are read, by the
 * engine from the first poll on; puts are refused until that is done, and a directory that can't be
 * used is DOWN and tried again.
 * 0, -EINVAL with words, -ENOMEM.
 */
int spw_nvme_open(const struct spw_nvme_config *config, struct spw_cold_handle *out_cold,
                  struct spw_error *err);

/** What the checksum of a payload is, for puts that are @summed. */
uint64_t spw_nvme_sum(const void *payload, uint64_t bytes);

/** Who asks for the directory. */
#define SPW_NVME_DAEMON UINT32_MAX

/**
 * Take the directory's lock for @who (SPW_NVME_DAEMON or a shard's number) and keep it in the
 * descriptor returned, by an OFD write lock on DIR/lock, which is made if it isn't there. Blocks as
 * file systems do.
 * A worker's is taken by its tier. The descriptor; -EBUSY: another process has it, -ENOENT and others:
 * @err has directory and remedy.
 */
int spw_nvme_lock(const char *dir, uint32_t who, struct spw_error *err);

/** Has anybody the directory's lock, the caller included? @workers_only: as a worker. Blocks as file
 * systems do. */
bool spw_nvme_held(const char *dir, bool workers_only);

#endif
