#ifndef SPW_TIER_NVME_MEDIUM_H
#define SPW_TIER_NVME_MEDIUM_H
/*
 * What lies on the medium. Pure: sizes, making and checking. All bytes read are input.
 *
 *   DIR/lock             OFD locks on its bytes: 0 the daemon, 1 + k shard k's worker
 *   DIR/shard-K/busy     boot id of the process that writes here; gone after a clean end
 *   DIR/shard-K/spaces   two copies of 4096 bytes: how often each space was reset
 *   DIR/shard-K/segment-NNNNNN
 *        0 +-----------------------------+
 *          | head                        | 4096 bytes
 *     4096 +-----------------------------+
 *          | record[cells]               | 128 bytes each, in blocks of 4096
 *      ... +-----------------------------+
 *          | cell[cells]                 | cell_bytes each, a multiple of 4096
 *          +-----------------------------+
 *
 * A record that is all zero is none. Its check covers the segment's own number and id and the number
 * of the cell, so one that was copied elsewhere is none either. Numbers are little-endian.
 */
#include "tier/cold.h"

#define SPW_NVME_BLOCK          4096u
#define SPW_NVME_RECORDS        (SPW_NVME_BLOCK / 128u) /* a block */
#define SPW_NVME_SEGMENT_MAX    (256u << 20)            /* bytes, unless one cell is larger */
#define SPW_NVME_SEGMENTS_MAX   1000000u
#define SPW_NVME_CELLS_MAX      (1u << 20)
#define SPW_NVME_SPACES         120u
#define SPW_NVME_FORMAT_VERSION 2u

struct spw_nvme_head {
    uint64_t magic;
    uint32_t version;
    uint32_t number;
    uint64_t id[2]; /* random */
    uint64_t cell_bytes;
    uint64_t owner[2]; /* the space that alone puts into it, or 0 */
    uint32_t cells;
    uint32_t reserved0;
    uint64_t check; /* of all before it */
    uint8_t reserved[SPW_NVME_BLOCK - 72];
};
SPW_LAYOUT_SIZE(struct spw_nvme_head, 4096);

struct spw_nvme_record {
    uint64_t check; /* of all behind it, with segment and cell */
    uint64_t space[2];
    uint64_t generation; /* resets of the space, and of all, before it was put */
    uint64_t sum;        /* of the payload, where .summed         */
    uint64_t sequence;   /* of puts and uses: larger = later      */
    uint32_t bytes;      /* payload                               */
    uint8_t group;
    uint8_t rank;
    uint8_t key_bytes; /* 1..64 */
    uint8_t summed;
    uint64_t reserved;
    uint8_t key[SPW_KEY_BYTES_MAX];
};
SPW_LAYOUT_SIZE(struct spw_nvme_record, 128);

/* How often a space was reset. */
struct spw_nvme_reset {
    uint64_t space[2];
    uint64_t generation;
};
SPW_LAYOUT_SIZE(struct spw_nvme_reset, 24);

struct spw_nvme_spaces {
    uint64_t magic;
    uint32_t version;
    uint32_t count;
    uint64_t sequence; /* the copy of the higher one counts */
    struct spw_nvme_reset space[SPW_NVME_SPACES];
    uint64_t all; /* resets of every space, those that are not listed too */
    uint8_t reserved[SPW_NVME_BLOCK - 24 - 24 * SPW_NVME_SPACES - 16];
    uint64_t check; /* of all before it */
};
SPW_LAYOUT_SIZE(struct spw_nvme_spaces, 4096);

/** Bytes of a cell for @payload bytes. */
static inline uint64_t spw_nvme_cell_bytes(uint64_t payload)
{
    return spw_align_up(payload, SPW_NVME_BLOCK);
}

/** Bytes of head and records before the first cell. */
static inline uint64_t spw_nvme_cells_off(uint32_t cells)
{
    return SPW_NVME_BLOCK +
           spw_align_up((uint64_t)cells * sizeof(struct spw_nvme_record), SPW_NVME_BLOCK);
}

static inline uint64_t spw_nvme_segment_bytes(uint64_t cell_bytes, uint32_t cells)
{
    return spw_nvme_cells_off(cells) + cells * cell_bytes;
}

/** Cells of a new segment in a shard that may have @cap_bytes: some 16 segments fill a small cap,
 * and at least one cell is in each. */
uint32_t spw_nvme_cells(uint64_t cell_bytes, uint64_t cap_bytes);

/** Fill in the rest of @head, whose sizes and owner are there. */
void spw_nvme_head_make(struct spw_nvme_head *head, uint32_t number, const uint64_t id[2]);
/** 0 or -EBADMSG: no head, or not of segment @number in a file of @file_bytes. */
int spw_nvme_head_check(const struct spw_nvme_head *head, uint32_t number, uint64_t file_bytes);

/** Fill in the check of @record for @cell of the segment of @head. */
void spw_nvme_record_seal(struct spw_nvme_record *record, const struct spw_nvme_head *head,
                          uint32_t cell);
/** True: it is one, made for this cell, and makes sense there. */
bool spw_nvme_record_good(const struct spw_nvme_record *record, const struct spw_nvme_head *head,
                          uint32_t cell);
void spw_nvme_record_name(const struct spw_nvme_record *record, struct spw_cold_name *out);

void spw_nvme_spaces_seal(struct spw_nvme_spaces *spaces);
/** Of two copies the good one of the higher sequence, or NULL. */
const struct spw_nvme_spaces *spw_nvme_spaces_choose(const struct spw_nvme_spaces copy[2]);

#endif
