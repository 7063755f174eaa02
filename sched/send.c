/*
 * Commands to workers: what each has in it, and the lane. Written: this client's command lanes,
 * through shm/lane.h. A client that dies between body and head leaves nothing that is seen.
 */
#include "sched/handle.h"

struct spw_command spw_command_make(const struct spw_client *client, uint8_t op,
                                    uint64_t incarnation)
{
    return (struct spw_command){
        .op = op,
        .generation = (uint32_t)client->generation,
        .incarnation = (uint32_t)incarnation,
        .step = client->in_step ? client->step : 0,
    };
}

uint32_t spw_command_room(struct spw_client *client, uint32_t k, uint32_t want)
{
    return spw_lane_room(&client->command[k], want);
}

void spw_command_send(struct spw_client *client, uint32_t k, const struct spw_command *command)
{
    spw_lane_write(&client->command[k], 0, command, sizeof(*command));
    spw_lane_send(&client->command[k], 1u + command->body_slots);
    spw_client_ring(client, k);
}

int spw_command_cancel(struct spw_client *client, uint32_t k, uint64_t incarnation, uint64_t ticket)
{
    struct spw_command command = spw_command_make(client, SPW_CMD_CANCEL, incarnation);
    command.ticket = ticket;
    if (spw_command_room(client, k, 1) < 1) {
        spw_count(client, SPW_CLIENT_lanes_full, 1);
        return -EAGAIN;
    }
    spw_command_send(client, k, &command);
    spw_count(client, SPW_CLIENT_cancels, 1);
    return 0;
}

uint32_t spw_command_run_limit(const struct spw_client *client, uint32_t blocks_per_chunk)
{
    uint32_t body = client->own->command_slots - 1;
    body = body < UINT8_MAX ? body : UINT8_MAX;
    uint32_t chunks = body * SPW_BLOCKS_PER_SLOT / blocks_per_chunk;
    return chunks < SPW_JOB_CHUNKS_MAX ? chunks : SPW_JOB_CHUNKS_MAX;
}
