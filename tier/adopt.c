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
#include "tier/by_age.h"
#include "tier/counters.h"
#include "tier/entry_check.h"
#include "tier/quarantine.h"

/* Stores of one job become READY one after the other, head of the chain first. */
#define RECENCY_RUN 64u
#define LOOK_AHEAD  16u

static void count(struct spw_shard *shard, enum spw_worker_counter counter, uint64_t amount)
{
    spw_add_own(&shard->feed->counter[counter], amount);
}

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

/* Bring one entry into a state that may be trusted. */
static void repair_entry(struct spw_shard *shard, uint32_t slot,
                         const struct spw_entry_rules *rules)
{
    struct spw_entry_copy copy;
    bool whole;
    read_raw(&shard->table, slot, &copy, &whole);
    bool sound = whole && spw_entry_check(&copy, rules) == SPW_ENTRY_SOUND;
    if (sound && copy.state != SPW_FILLING)
        return;
    if (copy.version != 0 && spw_pos_before(rules->version_max, copy.version))
        copy.version = 0;
    copy.state = SPW_RETIRED;
    copy.fill = 0; /* nobody can load it */
    spw_table_write(&shard->table, slot, &copy, NULL);
    SPW_CRASH_POINT("adopt.entry_repaired");
    if (!sound)
        count(shard, SPW_WORKER_dropped, 1);
}

static uint32_t state_of(const struct spw_shard *shard, uint32_t slot)
{
    return SPW_PACKED_STATE(spw_load_relaxed(&shard->table.entry[slot].packed));
}

static uint32_t lane_of(const struct spw_shard *shard, uint32_t slot)
{
    /* relaxed: only this worker writes it */
    return spw_shard_lane(SPW_PACKED_SPACE(spw_load_relaxed(&shard->table.entry[slot].packed)));
}

/* What the tier below holds is found by opening it: whatever is said of it here is forgotten. */
static void free_below(struct spw_shard *shard, uint32_t entry, const struct spw_entry_rules *rules)
{
    struct spw_entry_copy copy;
    bool whole;
    bool sensible = spw_table_read(&shard->table.view, entry, false, &copy) != -EBADMSG;
    read_raw(&shard->table, entry, &copy, &whole);
    bool possible = copy.version == 0 || !spw_pos_before(rules->version_max, copy.version);
    if (whole && possible && copy.state == SPW_FREE)
        return;
    copy = (struct spw_entry_copy){.version = possible ? copy.version : 0, .state = SPW_FREE};
    spw_table_write(&shard->table, entry, &copy, NULL);
    SPW_CRASH_POINT("adopt.below_freed");
    if (!sensible || (whole && !possible))
        count(shard, SPW_WORKER_dropped, 1);
}

/* Returns the highest version that is there then, or the tail. */
static uint64_t repair(struct spw_shard *shard)
{
    uint64_t highest = shard->news.writer.tail;
    const struct spw_entry_rules rules = {.space = shard->pool->ctl->space,
                                          .slot_bytes = shard->pool->geometry.slot_bytes,
                                          .version_max = shard->news.writer.tail + SPW_NEWS_MAX};
    for (uint32_t at = 0; at < shard->table.view.entries; at++) {
        if (at < shard->slots)
            repair_entry(shard, at, &rules);
        else
            free_below(shard, at, &rules);
        uint64_t version = spw_load_relaxed(&shard->table.entry[at].version);
        if (version != 0 && spw_pos_before(highest, version))
            highest = version;
    }
    return highest;
}

/* The READY entry of the same key before @copy, or -ENOENT. Keys are looked at where digests meet. */
static int64_t twin_of(const struct spw_shard *shard, struct spw_entry_copy *copy)
{
    if (copy->state != SPW_READY ||
        spw_table_by_tag(&shard->table, copy->digest[0], SPW_NO_SLOT_ID) < 0 ||
        spw_table_read(&shard->table.view, copy->slot, true, copy) < 0)
        return -ENOENT;
    struct spw_chunk_key key = {.digest = {copy->digest[0], copy->digest[1]},
                                .space = copy->space,
                                .group = copy->group,
                                .key_bytes = copy->key_bytes,
                                .key = copy->key};
    return spw_table_live(&shard->table, &key);
}

static void drop(struct spw_shard *shard, uint32_t slot)
{
    struct spw_entry_copy copy;
    int rc = spw_table_read(&shard->table.view, slot, false, &copy);
    assert(rc == 0); /* just repaired */
    (void)rc;
    copy.state = SPW_RETIRED;
    copy.fill = 0;
    spw_table_write(&shard->table, slot, &copy, NULL);
    count(shard, SPW_WORKER_dropped, 1);
}

/* Where the cell of an entry further on will go: one line at random each. */
static void look_ahead(const struct spw_shard *shard, uint32_t slot)
{
    if (slot + LOOK_AHEAD < shard->slots)
        spw_table_index_prefetch(
            &shard->table, spw_load_relaxed(&shard->table.entry[slot + LOOK_AHEAD].digest[0]));
}

/* No worker leaves two READY entries of a key. Nothing tells which of them speaks of its own slot, as
 * when a line was copied over another: none is kept. */
static int rebuild_index(struct spw_shard *shard)
{
    uint64_t *twins = calloc((shard->slots + 63u) / 64u, sizeof *twins);
    if (!twins)
        return -ENOMEM;
    spw_table_index_clear(&shard->table);
    SPW_CRASH_POINT("adopt.index_cleared");
    for (uint32_t slot = 0; slot < shard->slots; slot++) {
        struct spw_entry_copy copy;
        look_ahead(shard, slot);
        if (spw_table_read(&shard->table.view, slot, false, &copy) < 0 || copy.state == SPW_FREE)
            continue;
        int64_t twin = twin_of(shard, &copy);
        if (twin >= 0) {
            drop(shard, slot);
            twins[twin / 64] |= 1ull << twin % 64; /* stays until all like it are found */
        }
        spw_shard_index_put(shard, copy.digest, slot);
    }
    for (uint32_t slot = 0; slot < shard->slots; slot++)
        if (spw_bitmap_has(twins, slot))
            drop(shard, slot);
    free(twins);
    spw_slabs_check(shard, drop);
    return 0;
}

/* Positions up to @highest that the predecessor gave to entries, but didn't publish. */
static void fill_positions(struct spw_shard *shard, uint64_t highest)
{
    const struct spw_update keyless = {0};
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
}

/* Quarantine first, so that what leaves it later is older than all that is in the list then. */
static void retire_all_anew(struct spw_shard *shard)
{
    for (uint32_t slot = 0; shard->quarantine.stands && slot < shard->slots; slot++) {
        if (state_of(shard, slot) != SPW_RETIRED || !spw_quarantine_wants(shard, slot))
            continue;
        retire_anew(shard, slot);
        spw_quarantine_add(shard, slot);
    }
    for (uint32_t slot = 0; slot < shard->slots; slot++) {
        if (state_of(shard, slot) != SPW_RETIRED || spw_quarantine_wants(shard, slot))
            continue;
        retire_anew(shard, slot);
        spw_slot_list_add(&shard->retired, slot);
    }
    spw_shard_flush(shard);
}

/* By the run in which it was stored, later runs last; in a run the first stored last. No fill is half
 * a circle of positions before the tail. */
static uint64_t age_of(const struct spw_shard *shard, uint64_t fill)
{
    uint64_t origin = (shard->news.writer.tail - (1ull << 63)) & ~(uint64_t)(RECENCY_RUN - 1);
    return (fill - origin) ^ (RECENCY_RUN - 1);
}

/* And the FREE slots, and what the READY ones are charged. */
static int rebuild_recency(struct spw_shard *shard, struct spw_error *err)
{
    struct spw_aged *ready = malloc(2 * (uint64_t)shard->slots * sizeof *ready);
    if (!ready)
        return spw_fail(err, -ENOMEM, "no memory to sort %u slots by age", shard->slots);
    uint32_t ready_count = 0;
    for (uint32_t slot = 0; slot < shard->slots; slot++) {
        uint32_t state = state_of(shard, slot);
        if (state == SPW_READY)
            ready[ready_count++] = (struct spw_aged){
                age_of(shard, spw_load_relaxed(&shard->table.entry[slot].fill)), slot};
    }
    spw_sort_by_age(ready, ready + shard->slots, ready_count);
    for (uint32_t i = 0; i < ready_count; i++)
        spw_order_add(spw_shard_order(shard, ready[i].slot), ready[i].slot,
                      lane_of(shard, ready[i].slot));
    spw_slabs_adopt(shard);
    free(ready);
    count(shard, SPW_WORKER_adopted, ready_count);
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

/* A step that is fenced beyond the one its client is in can only be damage; it would void all that
 * the client does from now on. */
static void check_fences(struct spw_shard *shard)
{
    for (uint32_t c = 0; c < shard->pool->geometry.clients; c++) {
        const struct spw_client_head *client = shard->pool->client[c].head;
        uint64_t fenced = spw_load_relaxed(&shard->feed->fenced[c]);
        if (client && fenced != 0 && spw_pos_before(spw_load_relaxed(&client->step), fenced))
            spw_store_relaxed(&shard->feed->fenced[c], 0); /* relaxed: only this worker writes it */
    }
}

/* ctl repeats it: what of the two is later was seen by somebody. 0 is that of no worker. */
static uint64_t next_incarnation(const struct spw_shard *shard)
{
    uint64_t own = spw_load_relaxed(&shard->feed->incarnation);
    uint64_t repeated = spw_load_relaxed(&shard->pool->ctl->worker[shard->k].incarnation);
    uint64_t next = (repeated != 0 && spw_pos_before(own, repeated) ? repeated : own) + 1;
    return next != 0 ? next : 1;
}

int spw_shard_adopt(struct spw_shard *shard, struct spw_error *err)
{
    if (spw_quarantine_begin(shard) < 0)
        return spw_fail(err, -ENOMEM, "no memory for the copying bits of a dead worker");
    uint64_t highest = repair(shard);
    SPW_CRASH_POINT("adopt.repaired");
    if (rebuild_index(shard) < 0)
        return spw_fail(err, -ENOMEM, "no memory for a bit a slot");
    SPW_CRASH_POINT("adopt.index_rebuilt");
    shard->incarnation = next_incarnation(shard);
    /* [AD-1] release: the table is repaired */
    spw_store_release(&shard->feed->incarnation, shard->incarnation);
    SPW_CRASH_POINT("adopt.incarnation_stored");
    fill_positions(shard, highest);
    SPW_CRASH_POINT("adopt.positions_filled");
    retire_all_anew(shard);
    SPW_CRASH_POINT("adopt.retired_anew");
    if (!shard->quarantine.stands)
        spw_claims_clear_own(&shard->claims);
    check_fences(shard);
    end_stream(&shard->feed->stream);
    spw_quarantine_mark(shard);
    return rebuild_recency(shard, err);
}
