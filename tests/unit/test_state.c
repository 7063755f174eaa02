/* Every pair of states, against the drawings in tier/state.h and tier/shard_cold.h. */
#include <criterion/criterion.h>

#include "tier/state.h"

Test(state, exactly_the_drawn_changes_are_allowed)
{
    static const uint32_t drawn[][2] = {
        {SPW_FREE, SPW_FILLING},  {SPW_FILLING, SPW_READY}, {SPW_FILLING, SPW_RETIRED},
        {SPW_READY, SPW_RETIRED}, {SPW_RETIRED, SPW_FREE},  {SPW_FREE, SPW_COLD},
        {SPW_FREE, SPW_BACKED},   {SPW_COLD, SPW_BACKED},   {SPW_BACKED, SPW_COLD},
        {SPW_COLD, SPW_FREE},     {SPW_BACKED, SPW_FREE}};
    for (uint32_t from = 0; from < 8; from++) {
        for (uint32_t to = 0; to < 8; to++) {
            bool want = false;
            for (size_t i = 0; i < sizeof drawn / sizeof drawn[0]; i++)
                want |= drawn[i][0] == from && drawn[i][1] == to;
            cr_assert_eq(spw_state_may(from, to), want, "%u -> %u", from, to);
        }
    }
}

Test(state, every_state_has_a_name_and_nothing_else_has)
{
    cr_assert_str_eq(spw_state_name(SPW_FREE), "FREE");
    cr_assert_str_eq(spw_state_name(SPW_FILLING), "FILLING");
    cr_assert_str_eq(spw_state_name(SPW_READY), "READY");
    cr_assert_str_eq(spw_state_name(SPW_RETIRED), "RETIRED");
    cr_assert_str_eq(spw_state_name(SPW_COLD), "COLD");
    cr_assert_str_eq(spw_state_name(SPW_BACKED), "BACKED");
    cr_assert_str_eq(spw_state_name(SPW_STATE_COUNT), "?");
    cr_assert_str_eq(spw_state_name(UINT32_MAX), "?");
}
