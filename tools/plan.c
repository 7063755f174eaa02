/* See plan.h. */
#include "tools/plan.h"

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
    for (uint32_t k = 0; k < SPW_WORKERS_MAX; k++)
        out->shard_node[k] = -1;
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
