/* See plan.h. */
#include "tools/plan.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tier/table.h"

#define NAME_PATIENCE_NS 150000000ull

/* Slots of slot_bytes that chunks of the smallest size share. */
static uint32_t cell_shift(const struct spw_config *config)
{
    uint64_t smallest = config->smallest_chunk_bytes;
    uint32_t shift = 0;
    while (smallest != 0 && shift < SPW_CELL_SHIFT_MAX && smallest << shift < config->chunk_bytes)
        shift++;
    return shift;
}

/* What a worker can list of the tier below. */
static uint32_t cold_chunks(const struct spw_config *config)
{
    if (config->nvme_dir[0] == '\0')
        return 0;
    uint64_t fit = config->nvme_bytes / config->workers / config->chunk_bytes;
    uint64_t chunks = config->nvme_chunks ? config->nvme_chunks : fit ? fit : 1;
    return (uint32_t)(chunks < SPW_COLD_CHUNKS_MAX ? chunks : SPW_COLD_CHUNKS_MAX);
}

void spw_plan_pool(const struct spw_config *config, struct spw_pool_config *out)
{
    uint32_t reserve = (uint32_t)(config->capacity_chunks / 100);
    struct spw_geometry *geometry = &out->geometry;
    geometry->workers = (uint32_t)config->workers;
    geometry->clients = (uint32_t)config->max_clients;
    geometry->capacity_chunks = (uint32_t)config->capacity_chunks;
    geometry->cell_shift = cell_shift(config);
    geometry->slots = (geometry->capacity_chunks + (reserve ? reserve : 1)) << geometry->cell_shift;
    geometry->cold_chunks = cold_chunks(config);
    geometry->slot_bytes = (uint32_t)config->chunk_bytes;
    geometry->update_records = (uint32_t)config->update_records;
    geometry->gate_records = geometry->update_records / 8 ? geometry->update_records / 8 : 1;
    geometry->command_slots = (uint32_t)config->command_slots;
    geometry->completion_slots = (uint32_t)config->completion_slots;
    geometry->index_buckets = spw_table_buckets(spw_geometry_entries(geometry));
    geometry->kv_blocks = (uint32_t)config->kv_blocks;
    geometry->kv_block_bytes = geometry->slot_bytes;
    out->mode = (uint32_t)config->mode;
    out->gid = config->gid;
    out->cold = config->cold;
    out->patience_ns = NAME_PATIENCE_NS;
}

void spw_plan_bytes(const struct spw_geometry *geometry, struct spw_plan *out_plan)
{
    uint64_t page_bytes = (uint64_t)sysconf(_SC_PAGESIZE);
    struct spw_feed_map feed;
    struct spw_client_map client;
    spw_feed_map_init(geometry, &feed);
    spw_client_map_init(geometry, &client);
    struct spw_plan plan = {
        .payload_bytes =
            geometry->workers * spw_align_up(spw_data_size_bytes(geometry), page_bytes),
        .kv_bytes = geometry->clients * spw_align_up(spw_kv_size_bytes(geometry), page_bytes),
        .control_bytes = spw_align_up(sizeof(struct spw_ctl), page_bytes) +
                         geometry->workers * spw_align_up(feed.size_bytes, page_bytes) +
                         geometry->clients * spw_align_up(client.size_bytes, page_bytes)};
    plan.total_bytes = plan.payload_bytes + plan.kv_bytes + plan.control_bytes;
    *out_plan = plan;
}

/* ---- the way back ---------------------------------------------------------------------------- */

/* The option that a number of the geometry comes from as it is, or NULL. */
static const char *option_of(const char *field)
{
    static const char *const names[][2] = {{"workers", "--workers"},
                                           {"capacity_chunks", "--capacity-chunks"},
                                           {"slot_bytes", "--chunk-bytes"},
                                           {"update_records", "--update-ring-records"}};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(names[i][0], field) == 0)
            return names[i][1];
    return NULL;
}

static void list_words(const struct spw_pool_change *change, char *out, size_t bytes)
{
    if (change->was == 0 || change->is == 0)
        snprintf(out, bytes, "it was made with%s --nvme-dir, this start has %s",
                 change->was ? "" : "out", change->is ? "one" : "none");
    else
        snprintf(out, bytes,
                 "each worker listed %" PRIu32 " chunks below (--nvme-chunks, by default from "
                 "--nvme-bytes and --chunk-bytes), now %" PRIu32
                 "; another --nvme-bytes goes on with what is in memory if --nvme-chunks stays",
                 change->was, change->is);
}

void spw_plan_cold_words(const struct spw_pool *pool, char *out, size_t bytes)
{
    const struct spw_pool_change *change = &pool->cold_change;
    const char *option = change->name ? option_of(change->name) : NULL;
    if (option)
        snprintf(out, bytes,
                 "it was made with %s %" PRIu32 ", this start has %" PRIu32
                 "; what is in memory is kept if that stays",
                 option, change->was, change->is);
    else if (change->name && strcmp(change->name, "cold_chunks") == 0)
        list_words(change, out, bytes);
    else if (change->name && strcmp(change->name, "slots") == 0)
        snprintf(out, bytes,
                 "it was made with another --smallest-chunk-bytes; what is in memory is kept if "
                 "that stays");
    else
        snprintf(out, bytes, "%s", pool->cold_text);
}
