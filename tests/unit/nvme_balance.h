#ifndef SPW_TESTS_UNIT_NVME_BALANCE_H
#define SPW_TESTS_UNIT_NVME_BALANCE_H
/*
 * What the NVMe tier says that each lane has, against its chunks counted again: in bytes, in each
 * segment, and in which lane each stands.
 */
#include <criterion/criterion.h>
#include <string.h>

#include "tests/support/nvme_rig.h"
#include "tier/nvme_impl.h"

static inline void nvme_balance(const struct nvme_rig *rig)
{
    static uint32_t in_segment[SPW_LANES];
    const struct spw_cold *nvme = rig->cold.cold;
    uint64_t used[SPW_LANES] = {0};
    for (uint32_t id = 0; id < nvme->config.ids; id++) {
        const struct spw_nvme_chunk *at = &nvme->chunk[id];
        if (at->state != SPW_CHUNK_PUT && at->state != SPW_CHUNK_HELD)
            continue;
        used[at->lane] += at->segment->file.head.cell_bytes;
        if (at->state != SPW_CHUNK_HELD)
            continue;
        cr_assert_eq(at->lane, spw_nvme_lane(nvme, at->segment->table[at->cell].space));
        cr_assert_eq(at->lane, nvme->ages.lane[id]);
    }
    for (uint32_t lane = 0; lane < SPW_LANES; lane++)
        cr_assert_eq(used[lane], nvme->shares.used_bytes[lane], "lane %u", lane);
    for (uint32_t i = 0; nvme->phase == SPW_NVME_SERVES && i < nvme->segments; i++) {
        const struct spw_nvme_segment *segment = nvme->segment[i];
        memset(in_segment, 0, sizeof in_segment);
        for (uint32_t cell = 0; cell < segment->file.head.cells; cell++) {
            const struct spw_nvme_chunk *at =
                segment->id[cell] ? &nvme->chunk[segment->id[cell] - 1] : NULL;
            if (at && at->state != SPW_CHUNK_DROPPED)
                in_segment[at->lane]++;
        }
        for (uint32_t lane = 0; lane < SPW_LANES; lane++) {
            cr_assert_eq(in_segment[lane], segment->lane_chunks[lane]);
            cr_assert_eq(in_segment[lane] != 0, segment->lanes >> lane & 1);
        }
    }
    for (uint32_t i = 0; i < nvme->jobs; i++)
        if (nvme->job[i].put && nvme->job[i].state != SPW_NVME_IDLE &&
            nvme->job[i].state != SPW_NVME_LATE)
            cr_assert_eq(nvme->chunk[nvme->job[i].id].lane,
                         spw_nvme_lane(nvme, nvme->job[i].record.space));
}

#endif
