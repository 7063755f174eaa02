/* What a client tells of itself and of the pool: changes, counters, geometry, host KV. Reads only.
 */
#include "sched/handle.h"

#include <string.h>

#ifndef SPW_VERSION
#define SPW_VERSION "unknown"
#endif

const char *spw_version(void)
{
    return SPW_VERSION;
}

int spw_changes(struct spw_client *client, struct spw_change *out, uint32_t max)
{
    int rc = client ? spw_client_check(client) : -EINVAL;
    if (rc < 0)
        return rc;
    if (!out && max > 0)
        return -EINVAL;
    return spw_change_log_get(&client->changes, out, max);
}

static uint64_t workers_up(const struct spw_client *client)
{
    uint64_t up = 0, incarnation;
    for (uint32_t k = 0; k < client->workers; k++)
        if (spw_worker_up(client, k, &incarnation))
            up |= 1ull << k;
    return up;
}

/* an info of the first version ends here */
#define INFO_FIRST_BYTES offsetof(struct spw_info, replica_refused)

int spw_get_info(struct spw_client *client, struct spw_info *out_info)
{
    if (!client || !out_info || out_info->size_bytes < INFO_FIRST_BYTES)
        return -EINVAL;
    int rc = spw_client_check(client);
    if (rc < 0)
        return rc;
    const struct spw_region_header *header = &client->pool.ctl->header;
    uint32_t size_bytes = out_info->size_bytes < sizeof(*out_info) ? out_info->size_bytes
                                                                   : (uint32_t)sizeof(*out_info);
    const struct spw_info info = {
        .size_bytes = size_bytes,
        .workers = client->workers,
        .workers_up = workers_up(client),
        .client = client->number,
        .capacity_chunks = client->pool.geometry.capacity_chunks,
        .pool_id = {header->pool_id[0], header->pool_id[1]},
        .replica_bytes = client->views.replica.bytes +
                         client->book.slots_all * sizeof(client->book.pin_count[0]),
        .replica_refused = client->views.replica.refused,
        .thread_refused = client->thread_refused,
        .replica_near_permille = client->near_permille,
    };
    memcpy(out_info, &info, size_bytes);
    return 0;
}

int spw_kv_blocks(struct spw_client *client, void **out_start, uint64_t *out_blocks,
                  uint64_t *out_block_bytes)
{
    int rc = client ? spw_client_check(client) : -EINVAL;
    if (rc < 0)
        return rc;
    uint8_t *start = client->pool.kv[client->number];
    if (!start)
        return -ENOENT;
    if (out_start)
        *out_start = start;
    if (out_blocks)
        *out_blocks = client->pool.geometry.kv_blocks;
    if (out_block_bytes)
        *out_block_bytes = client->pool.geometry.kv_block_bytes;
    return 0;
}

int spw_waits(struct spw_client *client, uint32_t outcome, struct spw_wait_histogram *out_histogram)
{
    int rc = client ? spw_client_check(client) : -EINVAL;
    if (rc < 0)
        return rc;
    if (outcome >= SPW_WAIT_OUTCOMES || !out_histogram)
        return -EINVAL;
    spw_wait_record_read(&client->own->head->wait[outcome], out_histogram);
    return 0;
}

int spw_counters(struct spw_client *client, uint64_t *out_values, uint32_t max)
{
    int rc = client ? spw_client_check(client) : -EINVAL;
    if (rc < 0)
        return rc;
    for (uint32_t i = 0; out_values && i < max && i < SPW_CLIENT_COUNTER_COUNT; i++)
        out_values[i] = spw_client_counted(client->own->head, i);
    return SPW_CLIENT_COUNTER_COUNT;
}

const char *spw_counter_name(uint32_t index)
{
    return spw_client_counter_name(index);
}
