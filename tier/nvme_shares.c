/*
 * Shares of spaces: who may be made to go for whose sake (tier/shares.h), in bytes of cells. A share is
 * one of what the cap leaves for cells: cap_bytes - SPW_NVME_OVERHEAD; heads and tables of segments are
 * taken from all alike.
 *
 *   lanes     a space that was told of a share has one of its own for as long as the process lives, all
 *             others are in lane 0; so are those told when SPW_LANES - 1 have one: their share doesn't
 *             count
 *   cost      nothing where none is told; a space's first share looks at all chunks of lane 0, once
 *   segments  one goes as a whole; it knows whose chunks are in it. Spaces with a guarantee have
 *             segments of their own, and the medium says whose they are: they stay so over an open.
 *             These are smaller where all that is guaranteed isn't much, so that it holds to an eighth
 */
#include <string.h>

#include "tier/nvme_impl.h"

static bool is_of(const uint64_t space[2], const uint64_t other[2])
{
    return space[0] == other[0] && space[1] == other[1];
}

uint32_t spw_nvme_lane(const struct spw_cold *nvme, const uint64_t space[2])
{
    for (uint32_t i = 0; i < nvme->told_count; i++)
        if (is_of(nvme->told[i], space))
            return i + 1;
    return 0;
}

/* ---- what each has --------------------------------------------------------------------------- */

void spw_nvme_share_take(struct spw_cold *nvme, const struct spw_nvme_chunk *chunk)
{
    struct spw_nvme_segment *segment = chunk->segment;
    nvme->shares.used_bytes[chunk->lane] += segment->file.head.cell_bytes;
    segment->lane_chunks[chunk->lane]++;
    segment->lanes |= 1ull << chunk->lane;
}

void spw_nvme_share_give(struct spw_cold *nvme, const struct spw_nvme_chunk *chunk)
{
    struct spw_nvme_segment *segment = chunk->segment;
    nvme->shares.used_bytes[chunk->lane] -= segment->file.head.cell_bytes;
    if (--segment->lane_chunks[chunk->lane] == 0)
        segment->lanes &= ~(1ull << chunk->lane);
}

#define SEGMENTS_OF_A_PROMISE 8u

static uint64_t capacity_bytes(const struct spw_cold *nvme)
{
    return nvme->config.cap_bytes - SPW_NVME_OVERHEAD;
}

/* ---- who lies where --------------------------------------------------------------------------- */

void spw_nvme_owner(const struct spw_cold *nvme, uint32_t lane, uint64_t out_owner[2])
{
    out_owner[0] = out_owner[1] = 0;
    if (lane != 0 && nvme->shares.of[lane].guaranteed_permille != 0)
        memcpy(out_owner, nvme->told[lane - 1], sizeof nvme->told[0]);
}

uint32_t spw_nvme_cells_of(const struct spw_cold *nvme, const struct spw_nvme_class *class)
{
    uint32_t cells = spw_nvme_cells(class->cell_bytes, nvme->config.cap_bytes);
    uint32_t lane = spw_nvme_lane(nvme, class->owner);
    uint64_t most = spw_shares_promise(&nvme->shares, capacity_bytes(nvme), lane) /
                    SEGMENTS_OF_A_PROMISE / class->cell_bytes;
    return lane == 0 || most >= cells ? cells : most != 0 ? (uint32_t)most : 1;
}

/* ---- who goes -------------------------------------------------------------------------------- */

uint64_t spw_nvme_victims(const struct spw_cold *nvme, uint32_t lane, uint64_t bytes,
                          enum spw_share_step step)
{
    return spw_shares_victims(&nvme->shares, capacity_bytes(nvme), lane, bytes, step);
}

uint64_t spw_nvme_keep(const struct spw_cold *nvme, const struct spw_nvme_segment *segment,
                       uint64_t victims, uint32_t lane)
{
    const struct spw_nvme_head *head = &segment->file.head;
    const struct spw_share_unit unit = {.lanes = segment->lanes,
                                        .bytes = head->cells * head->cell_bytes,
                                        .own = (head->owner[0] | head->owner[1]) != 0};
    return nvme->told_count == 0
               ? segment->lanes & ~victims
               : spw_shares_keep(&nvme->shares, capacity_bytes(nvme), victims, lane, &unit);
}

struct spw_nvme_segment *spw_nvme_least_promised(const struct spw_cold *nvme)
{
    for (enum spw_share_step step = 0; step < SPW_SHARE_OWN; step++) {
        uint64_t lanes = spw_nvme_victims(nvme, 0, 0, step);
        struct spw_nvme_segment *segment =
            spw_nvme_oldest_segment(nvme, SPW_NVME_CLASSES, lanes, 0);
        if (segment)
            return segment;
    }
    for (uint32_t lane = 0; lane <= nvme->told_count; lane++) {
        struct spw_nvme_segment *segment =
            spw_nvme_oldest_segment(nvme, SPW_NVME_CLASSES, SPW_ALL_LANES, lane);
        if (segment)
            return segment;
    }
    return NULL;
}

/* ---- told ------------------------------------------------------------------------------------ */

static void move(struct spw_cold *nvme, struct spw_nvme_chunk *chunk, uint32_t lane)
{
    spw_nvme_share_give(nvme, chunk);
    chunk->lane = (uint8_t)lane;
    spw_nvme_share_take(nvme, chunk);
}

/* Oldest first, so that they stand in @lane, which is empty, as they stood among all. */
static void move_held(struct spw_cold *nvme, struct spw_order *order, const uint64_t space[2],
                      uint32_t lane)
{
    uint32_t next;
    for (uint32_t id = order->lane[0].oldest; id != SPW_NO_SLOT_ID; id = next) {
        struct spw_nvme_chunk *chunk = &nvme->chunk[id];
        next = spw_slot_list_newer(&order->lane[0], id);
        if (!is_of(chunk->segment->table[chunk->cell].space, space))
            continue;
        spw_order_move(order, id, lane);
        move(nvme, chunk, lane);
    }
}

/* The table doesn't say yet whose they are. */
static void move_puts(struct spw_cold *nvme, const uint64_t space[2], uint32_t lane)
{
    for (uint32_t i = 0; nvme->puts != 0 && i < nvme->jobs; i++) {
        const struct spw_nvme_job *job = &nvme->job[i];
        if (job->put && job->state != SPW_NVME_IDLE && job->state != SPW_NVME_LATE &&
            is_of(job->record.space, space))
            move(nvme, &nvme->chunk[job->id], lane);
    }
}

void spw_nvme_share(struct spw_cold *nvme, const uint64_t space[2], const struct spw_share *share)
{
    uint32_t lane = spw_nvme_lane(nvme, space);
    bool none = share->guaranteed_permille == 0 && share->largest_permille == 0;
    if (lane == 0 && (none || nvme->told_count == SPW_LANES - 1))
        return;
    if (lane == 0) {
        memcpy(nvme->told[nvme->told_count], space, sizeof nvme->told[0]);
        lane = ++nvme->told_count;
        for (uint32_t i = 0; i < nvme->classes; i++)
            move_held(nvme, &nvme->class[i].order, space, lane);
        move_puts(nvme, space, lane);
    }
    nvme->shares.of[lane] = *share;
}
