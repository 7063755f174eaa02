/*
 * State table and index. Written by the shard's worker alone, read by every process.
 *
 * What others see if the worker dies
 *   inside an entry's change     seq stays odd: readers give up after a few tries, the successor
 *                                makes the entry RETIRED
 *   between `passed` and cell    a probe goes on one bucket further than it needs to
 *   between cell and `passed`    the same; the successor rebuilds the index
 */
#include "tier/table.h"

#include <assert.h>
#include <string.h>

#include "shm/crash_point.h"

#define READ_TRIES   64u
#define BUCKET_CELLS 7u
#define KEY_WORDS    (SPW_KEY_BYTES_MAX / 8)

/* ---- both sides ------------------------------------------------------------------------------ */

uint32_t spw_table_buckets(uint32_t entries)
{
    return (uint32_t)((2 * (uint64_t)entries + BUCKET_CELLS - 1) / BUCKET_CELLS);
}

void spw_table_view_init(struct spw_table_view *view, const struct spw_feed_head *feed,
                         const struct spw_feed_map *map, const struct spw_geometry *geometry)
{
    const uint8_t *base = (const uint8_t *)feed;
    *view = (struct spw_table_view){
        .entry = (const struct spw_entry *)(const void *)(base + map->entry_off),
        .key = (const struct spw_entry_key *)(const void *)(base + map->key_off),
        .index = (const struct spw_index_bucket *)(const void *)(base + map->index_off),
        .slots = geometry->slots,
        .entries = spw_geometry_entries(geometry),
        .buckets = geometry->index_buckets,
    };
}

void spw_table_init(struct spw_table *table, struct spw_feed_head *feed,
                    const struct spw_feed_map *map, const struct spw_geometry *geometry)
{
    uint8_t *base = (uint8_t *)feed;
    spw_table_view_init(&table->view, feed, map, geometry);
    table->entry = (struct spw_entry *)(void *)(base + map->entry_off);
    table->key = (struct spw_entry_key *)(void *)(base + map->key_off);
    table->index = (struct spw_index_bucket *)(void *)(base + map->index_off);
}

bool spw_entry_live(uint32_t state)
{
    return state == SPW_FILLING || state == SPW_READY;
}

/* The home bucket takes the high bits of digest[0], the cell its low ones. */
static uint32_t home_bucket(const struct spw_table_view *view, uint64_t tag)
{
    return (uint32_t)((unsigned __int128)tag * view->buckets >> 64);
}

static uint32_t next_bucket(const struct spw_table_view *view, uint32_t bucket)
{
    return bucket + 1 == view->buckets ? 0 : bucket + 1;
}

static uint64_t cell_of(uint64_t tag, uint32_t slot)
{
    return tag << 32 | ((uint64_t)slot + 1);
}

static bool cell_tag_is(uint64_t cell, uint64_t tag)
{
    return (uint32_t)(cell >> 32) == (uint32_t)tag && (uint32_t)cell != 0;
}

/* ---- readers --------------------------------------------------------------------------------- */

static void copy_fields(const struct spw_entry *entry, struct spw_entry_copy *out)
{
    out->version = spw_load_relaxed(&entry->version);
    out->fill = spw_load_relaxed(&entry->fill);
    out->digest[0] = spw_load_relaxed(&entry->digest[0]);
    out->digest[1] = spw_load_relaxed(&entry->digest[1]);
    out->place_bytes = spw_load_relaxed(&entry->place_bytes);
    out->chunk_bytes = spw_load_relaxed(&entry->chunk_bytes);
    uint64_t packed = spw_load_relaxed(&entry->packed);
    out->state = SPW_PACKED_STATE(packed);
    out->group = SPW_PACKED_GROUP(packed);
    out->key_bytes = SPW_PACKED_KEY_BYTES(packed);
    out->rank = SPW_PACKED_RANK(packed);
    out->space = SPW_PACKED_SPACE(packed);
}

static void copy_key(const struct spw_entry_key *key, uint8_t out[SPW_KEY_BYTES_MAX])
{
    for (uint32_t i = 0; i < KEY_WORDS; i++) {
        uint64_t word = spw_load_relaxed(&key->word[i]);
        memcpy(out + 8 * i, &word, sizeof word);
    }
}

/* May entry @slot be in this state, with a key of such a length? */
static inline bool entry_sane(const struct spw_table_view *view, uint32_t slot, uint32_t state,
                              uint32_t key_bytes)
{
    if (key_bytes > SPW_KEY_BYTES_MAX)
        return false;
    if (slot < view->slots)
        return state <= SPW_RETIRED && (key_bytes > 0 || !spw_entry_live(state));
    return state == SPW_FREE || ((state == SPW_COLD || state == SPW_BACKED) && key_bytes > 0);
}

int spw_table_read(const struct spw_table_view *view, uint32_t slot, bool with_key,
                   struct spw_entry_copy *out_entry)
{
    if (slot >= view->entries)
        return -EINVAL;
    const struct spw_entry *entry = &view->entry[slot];
    struct spw_entry_copy copy;
    for (uint32_t i = 0; i < READ_TRIES; i++) {
        /* [TB-1] acquire: the fields are no older than this seq */
        uint64_t seq = spw_load_acquire(&entry->seq);
        if (seq & 1) {
            spw_cpu_relax();
            continue;
        }
        copy_fields(entry, &copy);
        if (with_key)
            copy_key(&view->key[slot], copy.key);
        spw_fence_acquire();
        /* relaxed: the fence orders it behind the fields */
        if (spw_load_relaxed(&entry->seq) != seq)
            continue;
        if (!entry_sane(view, slot, copy.state, copy.key_bytes))
            return -EBADMSG;
        copy.slot = slot;
        memcpy(out_entry, &copy, with_key ? sizeof copy : offsetof(struct spw_entry_copy, key));
        return 0;
    }
    return -EAGAIN;
}

int spw_table_state(const struct spw_table_view *view, uint32_t slot, uint32_t *out_state,
                    uint64_t *out_tag)
{
    if (slot >= view->entries)
        return -EINVAL;
    const struct spw_entry *entry = &view->entry[slot];
    for (uint32_t i = 0; i < READ_TRIES; i++) {
        /* [TB-1] acquire: the fields are no older than this seq */
        uint64_t seq = spw_load_acquire(&entry->seq);
        uint64_t packed = spw_load_relaxed(&entry->packed);
        uint64_t tag = spw_load_relaxed(&entry->digest[0]);
        spw_fence_acquire();
        /* relaxed: the fence orders it behind the fields */
        if (seq & 1 || spw_load_relaxed(&entry->seq) != seq) {
            spw_cpu_relax();
            continue;
        }
        if (!entry_sane(view, slot, SPW_PACKED_STATE(packed), SPW_PACKED_KEY_BYTES(packed)))
            return -EBADMSG;
        *out_state = SPW_PACKED_STATE(packed);
        *out_tag = tag;
        return 0;
    }
    return -EAGAIN;
}

static bool same_chunk(const struct spw_entry_copy *entry, const struct spw_chunk_key *key)
{
    return entry->digest[0] == key->digest[0] && entry->digest[1] == key->digest[1] &&
           entry->space == key->space && entry->group == key->group &&
           entry->key_bytes == key->key_bytes && !memcmp(entry->key, key->key, key->key_bytes);
}

/* Cells of @tag in probe order. */
struct probe {
    uint32_t bucket;
    uint32_t cell;
    uint32_t passed;
};

/* Next entry among [first, first + count) whose cell has @tag, from @at on; false at the end of the
 * probe. */
static inline bool probe_next(const struct spw_table_view *view, uint64_t tag, struct probe *at,
                              uint32_t first, uint32_t count, uint32_t *out_number)
{
    while (at->passed < view->buckets) {
        const struct spw_index_bucket *line = &view->index[at->bucket];
        while (at->cell < BUCKET_CELLS) {
            /* [TB-2] acquire: the entry is whole */
            uint64_t cell = spw_load_acquire(&line->cell[at->cell++]);
            if (cell_tag_is(cell, tag) && (uint32_t)cell - 1 - first < count) {
                *out_number = (uint32_t)cell - 1;
                return true;
            }
        }
        /* [TB-3] acquire: who has seen a cell further on sees that this bucket was passed */
        if (spw_load_acquire(&line->passed) == 0)
            return false;
        at->bucket = next_bucket(view, at->bucket);
        at->cell = 0;
        at->passed++;
    }
    return false;
}

static bool next_slot(const struct spw_table_view *view, uint64_t tag, struct probe *at,
                      uint32_t *out_slot)
{
    return probe_next(view, tag, at, 0, view->slots, out_slot);
}

static bool next_below(const struct spw_table_view *view, uint64_t tag, struct probe *at,
                       uint32_t *out_number)
{
    return probe_next(view, tag, at, view->slots, view->entries - view->slots, out_number);
}

/* What a probe has come across so far. */
struct finding {
    const struct spw_chunk_key *key;
    struct spw_entry_copy *best; /* the caller's; of the highest version when `retired` */
    bool ready;
    bool retired;
    bool unclear; /* an entry that may be it kept changing */
};

static void consider(const struct spw_table_view *view, uint32_t slot, struct finding *found)
{
    struct spw_entry_copy entry;
    int rc = spw_table_read(view, slot, true, &entry);
    if (rc == -EAGAIN)
        found->unclear = true;
    if (rc < 0 || !same_chunk(&entry, found->key))
        return;
    if (entry.state == SPW_READY) {
        *found->best = entry;
        found->ready = true;
    } else if (entry.state == SPW_RETIRED && entry.fill != 0) {
        if (!found->retired || spw_pos_before(found->best->version, entry.version))
            *found->best = entry;
        found->retired = true;
    }
}

int spw_table_find(const struct spw_table_view *view, const struct spw_chunk_key *key,
                   struct spw_entry_copy *out_entry)
{
    if (key->key_bytes == 0 || key->key_bytes > SPW_KEY_BYTES_MAX)
        return -ENOENT;
    struct spw_entry_copy best;
    struct finding found = {.key = key, .best = &best};
    struct probe at = {.bucket = home_bucket(view, key->digest[0])};
    uint32_t slot;
    while (!found.ready && next_slot(view, key->digest[0], &at, &slot))
        consider(view, slot, &found);
    if (found.unclear && !found.ready)
        return -EAGAIN;
    if (!found.ready && !found.retired)
        return -ENOENT;
    *out_entry = best;
    return 0;
}

int spw_table_find_filling(const struct spw_table_view *view, const uint64_t digest[2],
                           struct spw_entry_copy *out_entry)
{
    struct probe at = {.bucket = home_bucket(view, digest[0])};
    bool unclear = false;
    uint32_t slot;
    while (next_slot(view, digest[0], &at, &slot)) {
        struct spw_entry_copy entry;
        int rc = spw_table_read(view, slot, false, &entry);
        unclear = unclear || rc == -EAGAIN;
        if (rc < 0 || entry.state != SPW_FILLING || entry.digest[0] != digest[0] ||
            entry.digest[1] != digest[1])
            continue;
        memcpy(out_entry, &entry, offsetof(struct spw_entry_copy, key));
        return 0;
    }
    return unclear ? -EAGAIN : -ENOENT;
}

int spw_table_find_below(const struct spw_table_view *view, const struct spw_chunk_key *key,
                         struct spw_entry_copy *out_entry)
{
    struct probe at = {.bucket = home_bucket(view, key->digest[0])};
    bool unclear = false;
    uint32_t number;
    while (next_below(view, key->digest[0], &at, &number)) {
        struct spw_entry_copy entry;
        int rc = spw_table_read(view, number, true, &entry);
        unclear = unclear || rc == -EAGAIN;
        if (rc < 0 || entry.state == SPW_FREE || !same_chunk(&entry, key))
            continue;
        *out_entry = entry;
        return 0;
    }
    return unclear ? -EAGAIN : -ENOENT;
}

/* ---- writer ---------------------------------------------------------------------------------- */

static void write_key(struct spw_entry_key *to, const void *key, uint32_t key_bytes)
{
    uint64_t word[KEY_WORDS] = {0};
    memcpy(word, key, key_bytes);
    for (uint32_t i = 0; i < KEY_WORDS; i++)
        spw_store_relaxed(&to->word[i], word[i]);
}

void spw_table_write(struct spw_table *table, uint32_t slot, const struct spw_entry_copy *copy,
                     const void *key)
{
    assert(slot < table->view.entries && copy->key_bytes <= SPW_KEY_BYTES_MAX);
    struct spw_entry *entry = &table->entry[slot];
    uint64_t odd = spw_load_relaxed(&entry->seq) | 1; /* only this worker writes it */
    spw_store_relaxed(&entry->seq, odd);
    spw_fence_release();
    SPW_CRASH_POINT("table.seq_odd");
    spw_store_relaxed(&entry->version, copy->version);
    spw_store_relaxed(&entry->fill, copy->fill);
    spw_store_relaxed(&entry->digest[0], copy->digest[0]);
    SPW_CRASH_POINT("table.half_stored");
    spw_store_relaxed(&entry->digest[1], copy->digest[1]);
    spw_store_relaxed(&entry->packed, spw_entry_pack(copy->state, copy->group, copy->key_bytes,
                                                     copy->rank, copy->space));
    spw_store_relaxed(&entry->place_bytes, copy->place_bytes);
    spw_store_relaxed(&entry->chunk_bytes, copy->chunk_bytes);
    if (key)
        write_key(&table->key[slot], key, copy->key_bytes);
    SPW_CRASH_POINT("table.fields_stored");
    /* [TB-1] release: all fields before the even seq */
    spw_store_release(&entry->seq, odd + 1);
}

void spw_table_place(struct spw_table *table, uint32_t slot, uint64_t place_bytes)
{
    assert(slot < table->view.slots);
    /* relaxed: a reader finds the old place or this one, both of this chunk */
    spw_store_relaxed(&table->entry[slot].place_bytes, place_bytes);
}

int64_t spw_table_live(const struct spw_table *table, const struct spw_chunk_key *key)
{
    struct probe at = {.bucket = home_bucket(&table->view, key->digest[0])};
    uint32_t slot;
    while (next_slot(&table->view, key->digest[0], &at, &slot)) {
        struct spw_entry_copy entry;
        copy_fields(&table->view.entry[slot], &entry);
        if (!spw_entry_live(entry.state))
            continue;
        copy_key(&table->view.key[slot], entry.key);
        if (same_chunk(&entry, key))
            return slot;
    }
    return -ENOENT;
}

int64_t spw_table_cold(const struct spw_table *table, uint64_t tag)
{
    struct probe at = {.bucket = home_bucket(&table->view, tag)};
    uint32_t slot;
    while (next_below(&table->view, tag, &at, &slot)) {
        const struct spw_entry *entry = &table->view.entry[slot];
        if (spw_load_relaxed(&entry->digest[0]) == tag &&
            SPW_PACKED_STATE(spw_load_relaxed(&entry->packed)) == SPW_COLD)
            return slot;
    }
    return -ENOENT;
}

int64_t spw_table_by_tag(const struct spw_table *table, uint64_t tag, uint32_t except)
{
    struct probe at = {.bucket = home_bucket(&table->view, tag)};
    uint32_t slot;
    while (next_slot(&table->view, tag, &at, &slot)) {
        const struct spw_entry *entry = &table->view.entry[slot];
        if (slot != except && spw_load_relaxed(&entry->digest[0]) == tag &&
            spw_entry_live(SPW_PACKED_STATE(spw_load_relaxed(&entry->packed))))
            return slot;
    }
    return -ENOENT;
}

void spw_table_index_put(struct spw_table *table, const uint64_t digest[2], uint32_t slot)
{
    const struct spw_table_view *view = &table->view;
    uint32_t bucket = home_bucket(view, digest[0]);
    for (uint32_t i = 0; i < view->buckets; i++) {
        struct spw_index_bucket *line = &table->index[bucket];
        for (uint32_t c = 0; c < BUCKET_CELLS; c++) {
            if (spw_load_relaxed(&line->cell[c]) != 0)
                continue;
            /* [TB-2] release: the entry is whole. [TB-3] release: passed counts before the cell */
            spw_store_release(&line->cell[c], cell_of(digest[0], slot));
            return;
        }
        spw_add_own(&line->passed, 1);
        SPW_CRASH_POINT("table.passed_counted");
        bucket = next_bucket(view, bucket);
    }
    assert(!"twice as many cells as entries");
}

static struct spw_index_bucket *take_cell(struct spw_table *table, uint32_t bucket, uint64_t cell)
{
    const struct spw_table_view *view = &table->view;
    for (uint32_t i = 0; i < view->buckets; i++) {
        struct spw_index_bucket *line = &table->index[bucket];
        for (uint32_t c = 0; c < BUCKET_CELLS; c++) {
            if (spw_load_relaxed(&line->cell[c]) == cell) {
                /* [TB-2] release: who misses it sees why, a fence above all; who still sees it
                 * proves its find in the table */
                spw_store_release(&line->cell[c], 0);
                return line;
            }
        }
        if (spw_load_relaxed(&line->passed) == 0)
            break;
        bucket = next_bucket(view, bucket);
    }
    return NULL;
}

void spw_table_index_drop(struct spw_table *table, const uint64_t digest[2], uint32_t slot)
{
    const struct spw_table_view *view = &table->view;
    uint32_t bucket = home_bucket(view, digest[0]);
    struct spw_index_bucket *end = take_cell(table, bucket, cell_of(digest[0], slot));
    if (!end)
        return;
    SPW_CRASH_POINT("table.cell_cleared");
    while (&table->index[bucket] != end) {
        struct spw_index_bucket *line = &table->index[bucket];
        /* [TB-3] release: the cell went before the count */
        spw_store_release(&line->passed, spw_load_relaxed(&line->passed) - 1);
        bucket = next_bucket(view, bucket);
    }
}

void spw_table_index_prefetch(const struct spw_table *table, uint64_t tag)
{
    __builtin_prefetch(&table->index[home_bucket(&table->view, tag)], 1);
}

void spw_table_index_clear(struct spw_table *table)
{
    for (uint32_t b = 0; b < table->view.buckets; b++) {
        struct spw_index_bucket *line = &table->index[b];
        for (uint32_t c = 0; c < BUCKET_CELLS; c++)
            spw_store_relaxed(&line->cell[c], 0);
        spw_store_relaxed(&line->passed, 0);
    }
}
