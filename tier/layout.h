#ifndef SPW_TIER_LAYOUT_H
#define SPW_TIER_LAYOUT_H
/*
 * Chunks in shared memory: the state table of a shard, its index, the update record, and the
 * commands and completions that travel through the lanes.
 *
 * Table and index: written by the shard's worker alone, read by every process. Commands are
 * written by a client, completions by a worker. Whoever reads checks each value before use.
 */
#include "shm/layout.h"

/* States of an entry. Entries of slots are FREE to RETIRED; those behind them, of the tier below,
 * FREE, COLD or BACKED (tier/shard_cold.h). */
enum spw_chunk_state {
    SPW_FREE = 0,
    SPW_FILLING = 1,
    SPW_READY = 2,
    SPW_RETIRED = 3,
    SPW_COLD = 4,   /* the tier below holds it, no slot does: PENDING to whoever looks it up    */
    SPW_BACKED = 5, /* the tier below holds what a FILLING or READY slot holds, too: no news    */
};

/** Where the payload of @slot lies in data.k behind SPW_PAYLOAD_OFF. All chunks that share
 * slot_bytes of payload have the same size, up to a line. */
static inline uint64_t spw_slot_off(const struct spw_geometry *geometry, uint32_t slot,
                                    uint64_t chunk_bytes)
{
    uint32_t cell = slot & ((1u << geometry->cell_shift) - 1);
    return (uint64_t)(slot >> geometry->cell_shift) * geometry->slot_bytes +
           cell * spw_align_up(chunk_bytes, SPW_LINE_BYTES);
}

/** Does a chunk of so many bytes in @slot lie within its slot_bytes? */
static inline bool spw_slot_fits(const struct spw_geometry *geometry, uint32_t slot,
                                 uint64_t chunk_bytes)
{
    uint32_t cell = slot & ((1u << geometry->cell_shift) - 1);
    return chunk_bytes <= geometry->slot_bytes &&
           (cell + 1) * spw_align_up(chunk_bytes, SPW_LINE_BYTES) <= geometry->slot_bytes;
}

/* One entry a slot, entry i speaks of slot i, and behind them one a chunk of the tier below.
 * Sequence-locked: `seq` is odd while it changes.
 *
 *      0 +--------------------------------------------------------+
 *        | seq  version  fill  digest[2]                          |
 *     40 | state group key_bytes rank | space | place_bytes       |
 *     56 | chunk_bytes  reserved                                  |
 *     64 +--------------------------------------------------------+ */
struct spw_entry {
    alignas(64) spw_atomic64 seq;
    spw_atomic64 version;     /* ring position of its last change; freeing is none         */
    spw_atomic64 fill;        /* version at which it became READY, 0 before; never reused  */
    spw_atomic64 digest[2];   /* 128-bit digest over (space, group, engine key)            */
    spw_atomic64 packed;      /* state 8 | group 8 | key_bytes 8 | rank 8 | space 32       */
    spw_atomic64 place_bytes; /* bytes of its stream up to and with this chunk; with
                                 SPW_PLACE_PROMOTION: of the promotions, else of the stores */
    spw_atomic64 chunk_bytes; /* payload of this part                                      */
};
SPW_LAYOUT_SIZE(struct spw_entry, 64);

#define SPW_PLACE_PROMOTION (1ull << 63)

/* The engine's own key, kept whole; guarded by the entry's seq. */
struct spw_entry_key {
    alignas(64) spw_atomic64 word[SPW_KEY_BYTES_MAX / 8];
};
SPW_LAYOUT_SIZE(struct spw_entry_key, 64);

static inline uint64_t spw_entry_pack(uint32_t state, uint32_t group, uint32_t key_bytes,
                                      uint32_t rank, uint32_t space)
{
    return (uint64_t)state | (uint64_t)group << 8 | (uint64_t)key_bytes << 16 |
           (uint64_t)rank << 24 | (uint64_t)space << 32;
}

#define SPW_PACKED_STATE(packed)     ((uint32_t)((packed)&0xff))
#define SPW_PACKED_GROUP(packed)     ((uint32_t)((packed) >> 8 & 0xff))
#define SPW_PACKED_KEY_BYTES(packed) ((uint32_t)((packed) >> 16 & 0xff))
#define SPW_PACKED_RANK(packed)      ((uint32_t)((packed) >> 24 & 0xff))
#define SPW_PACKED_SPACE(packed)     ((uint32_t)((packed) >> 32))

/* A line of the index. A key's home bucket comes from its digest; a cell that finds no room
 * there goes to a later bucket, and every bucket it passed over counts it in `passed`. A probe
 * ends at the first bucket that nobody passed over. Entries never move while they live, so a
 * reader misses none that was there all along; it proves each find in the table. */
struct spw_index_bucket {
    alignas(64) spw_atomic64 passed;
    spw_atomic64 cell[7]; /* 0, or low 32 bits of digest[0] << 32 | entry + 1 */
};
SPW_LAYOUT_SIZE(struct spw_index_bucket, 64);

/* The update record: what a *key* now is in this shard. 24 bytes behind the ring slot's seq,
 * and that seq is the version. A record without key (state SPW_FREE, digest 0) only fills a
 * position. */
struct spw_update {
    uint64_t digest[2];
    uint64_t packed; /* slot 32 | state 8 | group 8 | 16 low bits of space */
};
SPW_LAYOUT_SIZE(struct spw_update, 24);

static inline uint64_t spw_update_pack(uint32_t slot, uint32_t state, uint32_t group,
                                       uint32_t space)
{
    return (uint64_t)slot | (uint64_t)state << 32 | (uint64_t)group << 40 |
           (uint64_t)(space & 0xffff) << 48;
}

#define SPW_UPDATE_SLOT(packed)  ((uint32_t)(packed))
#define SPW_UPDATE_STATE(packed) ((uint32_t)((packed) >> 32 & 0xff))
#define SPW_UPDATE_GROUP(packed) ((uint32_t)((packed) >> 40 & 0xff))
#define SPW_UPDATE_SPACE(packed) ((uint32_t)((packed) >> 48))

/* ---- commands: client c -> worker k ---------------------------------------------------------- */

enum spw_command_op {
    SPW_CMD_RESERVE = 1, /* body: keys; answered by SPW_DONE_RESERVE                       */
    SPW_CMD_STORE = 2,   /* run a reserve; body: block ids; one SPW_DONE_STORE             */
    SPW_CMD_BEGIN = 3,   /* body: sources; answered by SPW_DONE_BEGIN                      */
    SPW_CMD_LOAD = 4,    /* run a begin; body: block ids; one SPW_DONE_LOAD                */
    SPW_CMD_CANCEL = 5,  /* no answer of its own                                           */
    SPW_CMD_TOUCH = 6,   /* body: digest[0] of chunks, deepest first; no answer            */
    SPW_CMD_RESET = 7,   /* of a space or of all; answered by SPW_DONE_RESET               */
    SPW_CMD_PROMOTE = 8, /* body: digest[0] of COLD chunks, first needed first; answered by
                            SPW_DONE_PROMOTE                                               */
    /* the sender's mailbox holds a struct spw_kv_record of .arg bytes; answered in its kv_words */
    SPW_CMD_REGISTER = 9,
};

/* In .space of a RESET: all that there is, also what lies below for spaces that nobody has opened. */
#define SPW_ALL_SPACES UINT32_MAX

/* Is @space meant by @which, a space or SPW_ALL_SPACES? */
static inline bool spw_space_meant(uint32_t which, uint32_t space)
{
    return which == space || which == SPW_ALL_SPACES;
}

/* Head of a command: payload of the first of 1 + body_slots consecutive lane slots. The head's
 * seq is stored after the whole body's, so a head that is seen has its body. */
struct spw_command {
    uint8_t op;           /* enum spw_command_op                                             */
    uint8_t body_slots;   /* lane slots behind this one                                      */
    uint16_t count;       /* things in the body                                              */
    uint32_t generation;  /* low half of the client's                                       */
    uint32_t incarnation; /* low half of the worker's, as the client knows it              */
    uint32_t space;
    uint64_t step;   /* the client's step, for fencing; 0 outside a step                   */
    uint64_t ticket; /* STORE, LOAD, CANCEL: the worker's ticket; RESERVE: digest[0] of the
                        chunk before the first one in its group, 0 = none or not known     */
    uint64_t cookie; /* the sender's own number, comes back in the answer                  */
    uint64_t arg;    /* RESERVE: space generation seen << 8 | rank; BEGIN: rank; STORE, LOAD: the
                        fence to wait for, 1 + its number in the registration, 0 = none,
                        with SPW_RUN_REGISTERED; REGISTER: bytes in the mailbox            */
    uint64_t reserved;
};
SPW_LAYOUT_SIZE(struct spw_command, 56);

/* The block ids are those of the sender's registration, whatever else it has: refused (-ENXIO) by a worker
 * that doesn't know it, such as the successor of the one where it was made. */
#define SPW_RUN_REGISTERED (1ull << 63)

#define SPW_RESERVE_FOLLOWS (1u << 31)

/* RESERVE body: one lane slot a key, and one more where the key is longer than 32 bytes. */
struct spw_reserve_key {
    uint64_t digest[2];
    uint32_t group;     /* with SPW_RESERVE_FOLLOWS: the key before it stands right before it */
    uint32_t key_bytes; /* 1..64 */
    uint8_t key[32];
};
SPW_LAYOUT_SIZE(struct spw_reserve_key, 56);

/* BEGIN body: three a lane slot. */
struct spw_load_source {
    uint64_t fill;
    uint32_t slot;
    uint32_t shard;
};
SPW_LAYOUT_SIZE(struct spw_load_source, 16);
#define SPW_SOURCES_PER_SLOT 3u

/* STORE and LOAD body: 32-bit block ids of the sender's KV, blocks_per_chunk a chunk, for every
 * chunk that the answer accepted, in its order; fourteen a lane slot. TOUCH and PROMOTE body: seven
 * 64-bit words a lane slot. */
#define SPW_BLOCKS_PER_SLOT  14u
#define SPW_TOUCHES_PER_SLOT 7u

/* ---- completions: worker k -> client c ------------------------------------------------------- */

enum spw_done_kind {
    SPW_DONE_RESERVE = 1,
    SPW_DONE_STORE = 2,
    SPW_DONE_BEGIN = 3,
    SPW_DONE_LOAD = 4,
    SPW_DONE_RESET = 5,
    SPW_DONE_PROMOTE = 6,
};

struct spw_done {
    uint8_t kind; /* enum spw_done_kind */
    uint8_t reserved0;
    uint16_t count;       /* RESERVE, BEGIN: chunks accepted, a prefix of those asked        */
    uint32_t generation;  /* of the client it is for                                         */
    uint32_t incarnation; /* of the worker                                                   */
    int32_t status;       /* 0, or why fewer were accepted / the first failed chunk's error  */
    uint64_t cookie;      /* of the command it answers                                       */
    uint64_t ticket;
    uint64_t mask; /* RESERVE: bit i = chunk i is new here and must be run (others are
                      present already); STORE, LOAD: bit i = chunk i failed; BEGIN: 0;
                      PROMOTE: bit i = chunk i will not come: MISS for who asked; RESET of all:
                      chunks below that were known, of spaces that nobody has opened          */
    uint64_t reserved[2];
};
SPW_LAYOUT_SIZE(struct spw_done, 56);

#endif
