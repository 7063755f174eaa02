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
