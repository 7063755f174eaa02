#ifndef SPW_TIER_TABLE_H
#define SPW_TIER_TABLE_H
/*
 * State table of a shard: one sequence-locked entry a slot and, behind them, one a chunk of the tier
 * below (tier/shard_cold.h); the engine's key beside it, and an index from digest to entry that
 * readers may probe while its one writer changes it. Entries are numbered through: below `slots`
 * they speak of that slot.
 *
 *   roles     writer: the shard's worker; readers: any process, mapped read-only
 *   progress  the writer never waits; a reader gives up after a few tries (-EAGAIN): the writer
 *             may be dead in the middle of a change
 *   order     entry: seq odd, release fence, fields, seq even (release). Index: an entry is whole
 *             before its cell is stored; its cell goes before its entry turns FREE
 *   crash     an entry with odd seq is repaired by the successor (tier/adopt.h); the index is
 *             rebuilt in place by it
 *   pairs     [TB-1] fields before even seq -> read     [TB-2] cell -> find
 *             [TB-3] passed count before the cell -> end of probe
 */
#include "tier/layout.h"

/** Read side: process-local pointers into a mapped feed.k. Entries and buckets are input: no value
 * in them can lead a reader out of bounds or into a loop without end. */
struct spw_table_view {
    const struct spw_entry *entry;
    const struct spw_entry_key *key;
    const struct spw_index_bucket *index;
    uint32_t slots;
    uint32_t entries; /* slots, and the entries of the tier below behind them */
    uint32_t buckets;
};

/** A private, consistent copy of an entry. */
struct spw_entry_copy {
    uint64_t version;
    uint64_t fill;
    uint64_t digest[2];
    uint64_t place_bytes;
    uint64_t chunk_bytes;
    uint32_t state;
    uint32_t group;
    uint32_t key_bytes;
    uint32_t rank;
    uint32_t space;
    uint32_t slot;                  /* number of the entry */
    uint8_t key[SPW_KEY_BYTES_MAX]; /* filled only where asked for */
};

/** A chunk's identity. */
struct spw_chunk_key {
    uint64_t digest[2];
    uint32_t space;
    uint32_t group;
    uint32_t key_bytes; /* 1..64 */
    const void *key;    /* borrowed */
};

/** Point @view into a mapped feed. @geometry has passed its check, @map was made from it. */
void spw_table_view_init(struct spw_table_view *view, const struct spw_feed_head *feed,
                         const struct spw_feed_map *map, const struct spw_geometry *geometry);

/** The digest of (space, group, engine key). Pure; @key_bytes 1..64. */
void spw_chunk_digest(uint32_t space, uint32_t group, const void *key, uint32_t key_bytes,
                      uint64_t out_digest[2]);

/**
 * Copy entry @slot. @with_key also copies the engine's key.
 * 0; -EINVAL no such entry; -EAGAIN changing for too long; -EBADMSG its bytes make no sense, or its
 * state is none that an entry there can have.
 */
int spw_table_read(const struct spw_table_view *view, uint32_t slot, bool with_key,
                   struct spw_entry_copy *out_entry);

/** Only what a scan wants of entry @slot: state and digest[0]. Answers as spw_table_read(). */
int spw_table_state(const struct spw_table_view *view, uint32_t slot, uint32_t *out_state,
                    uint64_t *out_tag);

/**
 * Find what a load of @key should take: the READY entry, else the RETIRED one of the highest
 * version that was READY once (fill != 0). Only slots are found. Whole keys are compared. No system
 * call, bounded.
 * 0, -ENOENT none, -EAGAIN an entry that may be it kept changing.
 */
int spw_table_find(const struct spw_table_view *view, const struct spw_chunk_key *key,
                   struct spw_entry_copy *out_entry);

/**
 * Find the FILLING entry of this digest: where its store goes, and its place in the stream. Digests
 * are compared, keys are not: good for a guess. No system call, bounded. 0, -ENOENT, -EAGAIN.
 */
int spw_table_find_filling(const struct spw_table_view *view, const uint64_t digest[2],
                           struct spw_entry_copy *out_entry);

/**
 * Find the entry of the tier below, COLD or BACKED, of @key. Whole keys are compared. No system call,
 * bounded. 0, -ENOENT, -EAGAIN.
 */
int spw_table_find_below(const struct spw_table_view *view, const struct spw_chunk_key *key,
                         struct spw_entry_copy *out_entry);

/* ---- writer ---------------------------------------------------------------------------------- */

/** Write side. Process-local; one thread of the worker. */
struct spw_table {
    struct spw_table_view view;
    struct spw_entry *entry;
    struct spw_entry_key *key;
    struct spw_index_bucket *index;
};

void spw_table_init(struct spw_table *table, struct spw_feed_head *feed,
                    const struct spw_feed_map *map, const struct spw_geometry *geometry);

/** Set all of an entry (@entry->key_bytes of @key when it is not NULL) under its sequence lock; an
 * odd sequence left by a dead writer is closed. [TB-1] */
void spw_table_write(struct spw_table *table, uint32_t slot, const struct spw_entry_copy *entry,
                     const void *key);
/** Its place in the store stream alone. A number that readers take as a hint: no change of the
 * entry, `seq` stays. */
void spw_table_place(struct spw_table *table, uint32_t slot, uint64_t place_bytes);

/** Slot of the live entry (FILLING or READY) of @key, or -ENOENT. Own table: no retries. */
int64_t spw_table_live(const struct spw_table *table, const struct spw_chunk_key *key);
/** Slot of a live entry whose digest[0] is @tag, other than slot @except (UINT32_MAX: any), or
 * -ENOENT. For touches, and to ask whether a key lives in another slot. */
int64_t spw_table_by_tag(const struct spw_table *table, uint64_t tag, uint32_t except);
/** True while FILLING or READY. */
bool spw_entry_live(uint32_t state);
/** The COLD entry whose digest[0] is @tag, or -ENOENT. */
int64_t spw_table_cold(const struct spw_table *table, uint64_t tag);

/** Put an entry into / take it out of the index. Insertion can't fail: cells >= 2 x entries, each is
 * put once. Dropping what is not there changes nothing. */
void spw_table_index_put(struct spw_table *table, const uint64_t digest[2], uint32_t slot);
void spw_table_index_drop(struct spw_table *table, const uint64_t digest[2], uint32_t slot);
/** Soon digest[0] @tag will be put: its place is fetched meanwhile. A hint. */
void spw_table_index_prefetch(const struct spw_table *table, uint64_t tag);
/** Empty the index, in place; readers may miss anything until all is put again. */
void spw_table_index_clear(struct spw_table *table);
/** Buckets for @entries so that cells are at most half full. */
uint32_t spw_table_buckets(uint32_t entries);

#endif
