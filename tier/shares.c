/* See shares.h. */
#include "tier/shares.h"

static uint64_t part(uint64_t capacity_bytes, uint32_t permille)
{
    return capacity_bytes / 1000 * permille + capacity_bytes % 1000 * permille / 1000;
}

uint64_t spw_shares_victims(const struct spw_shares *shares, uint64_t capacity_bytes, uint32_t lane,
                            uint64_t bytes, enum spw_share_step step)
{
    uint64_t lanes = 0;
    if (step == SPW_SHARE_OWN)
        return 1ull << lane;
    for (uint32_t i = 0; i < SPW_LANES; i++) {
        const struct spw_share *share = &shares->of[i];
        uint64_t used = shares->used_bytes[i] + (i == lane ? bytes : 0);
        bool beyond = step == SPW_SHARE_BEYOND_GUARANTEED
                          ? used > part(capacity_bytes, share->guaranteed_permille)
                          : share->largest_permille != 0 &&
                                used > part(capacity_bytes, share->largest_permille);
        lanes |= (uint64_t)beyond << i;
    }
    return lanes;
}

uint64_t spw_shares_promise(const struct spw_shares *shares, uint64_t capacity_bytes, uint32_t lane)
{
    return part(capacity_bytes, shares->of[lane].guaranteed_permille);
}

static bool can_spare(const struct spw_shares *shares, uint64_t capacity_bytes, uint32_t lane,
                      uint64_t bytes)
{
    uint64_t promise = spw_shares_promise(shares, capacity_bytes, lane);
    return promise == 0 || shares->used_bytes[lane] >= promise + bytes;
}

uint64_t spw_shares_spare(const struct spw_shares *shares, uint64_t capacity_bytes, uint64_t bytes)
{
    uint64_t lanes = 0;
    for (uint32_t i = 0; i < SPW_LANES; i++)
        lanes |= (uint64_t)can_spare(shares, capacity_bytes, i, bytes) << i;
    return lanes;
}

uint64_t spw_shares_keep(const struct spw_shares *shares, uint64_t capacity_bytes, uint64_t victims,
                         uint32_t lane, const struct spw_share_unit *unit)
{
    uint64_t keep = 0;
    bool some_go = (unit->lanes & victims) != 0;
    for (uint64_t left = unit->lanes; left != 0; left &= left - 1) {
        uint32_t i = (uint32_t)__builtin_ctzll(left);
        bool goes = victims >> i & 1;
        if (unit->own)
            goes = goes && (i == lane || can_spare(shares, capacity_bytes, i, unit->bytes));
        else
            goes = goes || (some_go && shares->of[i].guaranteed_permille != 0);
        keep |= (uint64_t)!goes << i;
    }
    return keep;
}
