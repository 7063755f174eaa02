/*
 * Adoption. Written: the whole table, index, incarnation, ring, copying bits and the progress of the
 * store stream of this worker's own feed. Everything found there is input: its author may have died
 * anywhere, so each value is checked before it counts.
 */
#include "tier/adopt.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "shm/crash_point.h"
#include "tier/shard_impl.h"

/* Stores of one job become READY one after the other, head of the chain first. */
#define RECENCY_RUN 64u

/* What the table said of a slot, as far as it can be trusted. */
static void read_raw(const struct spw_table *table, uint32_t slot, struct spw_entry_copy *copy,
                     bool *out_whole)
{
    *out_whole = spw_table_read(&table->view, slot, true, copy) == 0;
    if (*out_whole)
        return;
    const struct spw_entry *entry = &table->entry[slot];
    *copy = (struct spw_entry_copy){
        .version = spw_load_relaxed(&entry->version),
        .digest = {spw_load_relaxed(&entry->digest[0]), spw_load_relaxed(&entry->digest[1])},
        .slot = slot,
        .state = SPW_RETIRED,
    };
}

/* Could the predecessor have given this version? It gathers few records before it publishes.
 * 0 is that of a slot never used. */
static bool version_sane(const struct spw_shard *shard, uint64_t version)
{
    return version == 0 || !spw_pos_before(shard->news.writer.tail + SPW_NEWS_MAX, version);
}

/* Is this the entry of a chunk whose bytes are whole, as its author left it? */
static bool chunk_sane(const struct spw_shard *shard, const struct spw_entry_copy *copy)
{
    uint64_t digest[2];
    if (copy->key_bytes == 0 || copy->chunk_bytes > shard->pool->geometry.slot_bytes)
        return false;
    spw_chunk_digest(copy->space, copy->group, copy->key, copy->key_bytes, digest);
    bool filled = copy->state == SPW_READY ? copy->fill == copy->version
                                           : spw_pos_before(copy->fill, copy->version);
    return copy->fill != 0 && filled && digest[0] == copy->digest[0] &&
           digest[1] == copy->digest[1];
}

/* FREE, READY with all that belongs to it, or RETIRED, loadable or not. */
static bool trusted(const struct spw_shard *shard, const struct spw_entry_copy *copy)
{
    if (!version_sane(shard, copy->version))
        return false;
    if (copy->state == SPW_FREE || (copy->state == SPW_RETIRED && copy->fill == 0))
        return true;
    return copy->state != SPW_FILLING && chunk_sane(shard, copy);
}

/* Bring one entry into a state that may be trusted. */
static void repair_entry(struct spw_shard *shard, uint32_t slot)
{
    struct spw_entry_copy copy;
    bool whole;
    read_raw(&shard->table, slot, &copy, &whole);
    if (whole && trusted(shard, &copy))
        return;
    if (!version_sane(shard, copy.version))
        copy.version = 0;
    copy.state = SPW_RETIRED;
    copy.fill = 0; /* nobody can load it */
    spw_table_write(&shard->table, slot, &copy, NULL);
    SPW_CRASH_POINT("adopt.entry_repaired");
}

static uint32_t state_of(const struct spw_shard *shard, uint32_t slot)
{
    return SPW_PACKED_STATE(spw_load_relaxed(&shard->table.entry[slot].packed));
}

static uint64_t version_of(const struct spw_shard *shard, uint32_t slot)
{
    return spw_load_relaxed(&shard->table.entry[slot].version);
}

/* A second READY entry of a key can only be damage. */
static bool is_twin(const struct spw_shard *shard, const struct spw_entry_copy *copy)
{
    struct spw_chunk_key key = {.digest = {copy->digest[0], copy->digest[1]},
                                .space = copy->space,
                                .group = copy->group,
                                .key_bytes = copy->key_bytes,
                                .key = copy->key};
    return copy->state == SPW_READY && spw_table_live(&shard->table, &key) >= 0;
}

static void rebuild_index(struct spw_shard *shard)
{
    spw_table_index_clear(&shard->table);
    SPW_CRASH_POINT("adopt.index_cleared");
    for (uint32_t slot = 0; slot < shard->slots; slot++) {
        struct spw_entry_copy copy;
        if (spw_table_read(&shard->table.view, slot, true, &copy) < 0 || copy.state == SPW_FREE)
            continue;
        if (is_twin(shard, &copy)) {
            copy.state = SPW_RETIRED;
            copy.fill = 0;
            spw_table_write(&shard->table, slot, &copy, NULL);
        }
        spw_shard_index_put(shard, copy.digest, slot);
    }
}

static uint64_t highest_version(const struct spw_shard *shard)
{
    uint64_t highest = shard->news.writer.tail;
    for (uint32_t slot = 0; slot < shard->slots; slot++) {
        uint64_t version = version_of(shard, slot);
        if (version != 0 && spw_pos_before(highest, version))
            highest = version;
    }
    return highest;
}

/* Positions that the predecessor gave to entries, but didn't publish. */
static void fill_positions(struct spw_shard *shard)
{
    const struct spw_update keyless = {0};
    uint64_t highest = highest_version(shard);
    while (!spw_pos_before(highest, spw_news_position(shard)))
        spw_news_add(shard, &keyless);
    spw_shard_flush(shard);
}

/* Its key may have been stored again meanwhile: then there is nothing to say of it. */
static struct spw_update retired_update(const struct spw_shard *shard,
                                        const struct spw_entry_copy *copy)
{
    bool nameless = copy->digest[0] == 0 && copy->digest[1] == 0;
    if (nameless || spw_table_by_tag(&shard->table, copy->digest[0], copy->slot) >= 0)
        return (struct spw_update){0};
    return (struct spw_update){
        .digest = {copy->digest[0], copy->digest[1]},
        .packed = spw_update_pack(copy->slot, SPW_RETIRED, copy->group, copy->space),
    };
}

static void retire_anew(struct spw_shard *shard, uint32_t slot)
{
    struct spw_entry_copy copy;
    int rc = spw_table_read(&shard->table.view, slot, false, &copy);
    assert(rc == 0); /* just repaired */
    (void)rc;
    copy.version = spw_news_position(shard);
    spw_table_write(&shard->table, slot, &copy, NULL);
    SPW_CRASH_POINT("adopt.retired_in_table");
    struct spw_update update = retired_update(shard, &copy);
    spw_news_add(shard, &update);
    spw_slot_list_add(&shard->retired, slot);
}

/* READY slots by the run in which they were stored, later runs last; in a run the first stored
 * last. */
static int by_age(const void *left, const void *right)
{
    const uint64_t *a = left, *b = right; /* {fill, slot} */
    uint64_t run_a = a[0] / RECENCY_RUN, run_b = b[0] / RECENCY_RUN;
    if (run_a != run_b)
        return spw_pos_before(run_a, run_b) ? -1 : 1;
    return a[0] == b[0] ? 0 : spw_pos_before(b[0], a[0]) ? -1 : 1;
}

static int rebuild_recency(struct spw_shard *shard, struct spw_error *err)
{
    uint64_t(*ready)[2] = malloc(shard->slots * sizeof *ready);
    if (!ready)
        return spw_fail(err, -ENOMEM, "no memory to sort %u slots by age", shard->slots);
    uint32_t count = 0;
    for (uint32_t slot = 0; slot < shard->slots; slot++) {
        if (state_of(shard, slot) != SPW_READY)
            continue;
        ready[count][0] = spw_load_relaxed(&shard->table.entry[slot].fill);
        ready[count++][1] = slot;
    }
    qsort(ready, count, sizeof *ready, by_age);
    for (uint32_t i = 0; i < count; i++)
        spw_slot_list_add(&shard->recency, (uint32_t)ready[i][1]);
    free(ready);
    return 0;
}

/* What the predecessor had queued went with it, and its rate is not ours. Relaxed: numbers. */
static void end_stream(struct spw_stream *stream)
{
    uint64_t queued = spw_load_relaxed(&stream->bytes_queued);
    spw_store_relaxed(&stream->bytes_done, queued);
    spw_store_relaxed(&stream->bytes_awaited, queued);
    spw_store_relaxed(&stream->rate_bytes_per_s, 0);
}

int spw_shard_adopt(struct spw_shard *shard, struct spw_error *err)
{
    for (uint32_t slot = 0; slot < shard->slots; slot++)
        repair_entry(shard, slot);
    SPW_CRASH_POINT("adopt.repaired");
    rebuild_index(shard);
    SPW_CRASH_POINT("adopt.index_rebuilt");
    shard->incarnation = spw_load_relaxed(&shard->feed->incarnation) + 1;
    /* [AD-1] release: the table is repaired */
    spw_store_release(&shard->feed->incarnation, shard->incarnation);
    SPW_CRASH_POINT("adopt.incarnation_stored");
    fill_positions(shard);
    SPW_CRASH_POINT("adopt.positions_filled");
    for (uint32_t slot = 0; slot < shard->slots; slot++) {
        if (state_of(shard, slot) == SPW_RETIRED)
            retire_anew(shard, slot);
        else if (state_of(shard, slot) == SPW_FREE)
            spw_slot_list_add(&shard->free, slot);
    }
    spw_shard_flush(shard);
    SPW_CRASH_POINT("adopt.retired_anew");
    spw_claims_clear_own(&shard->claims);
    end_stream(&shard->feed->stream);
    return rebuild_recency(shard, err);
}
