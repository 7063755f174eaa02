/* Who has to make room for whom: shares of a tier. */
#include <criterion/criterion.h>

#include "tier/shares.h"

#define CAPACITY 1000u
#define LARGEST  SPW_SHARE_BEYOND_LARGEST
#define PROMISED SPW_SHARE_BEYOND_GUARANTEED

TestSuite(shares, .timeout = 10);

static struct spw_shares shares;

static uint64_t victims(uint32_t lane, uint64_t bytes, enum spw_share_step step)
{
    return spw_shares_victims(&shares, CAPACITY, lane, bytes, step);
}

Test(shares, without_any_all_that_have_something_may_lose_it)
{
    shares = (struct spw_shares){.used_bytes = {100, 0, 50, [63] = 1}};
    cr_expect_eq(victims(1, 10, LARGEST), 0);
    cr_expect_eq(victims(1, 10, PROMISED), 1 | 1 << 1 | 1 << 2 | 1ull << 63);
    cr_expect_eq(victims(0, 0, PROMISED), 1 | 1 << 2 | 1ull << 63);
}

Test(shares, what_is_guaranteed_goes_for_nobody_else)
{
    shares = (struct spw_shares){.of = {{300, 0}, {0, 0}}, .used_bytes = {300, 700}};
    cr_expect_eq(victims(1, 10, PROMISED), 1 << 1);
    shares.used_bytes[0] = 301;
    cr_expect_eq(victims(1, 10, PROMISED), 1 << 0 | 1 << 1, "what is beyond it may go");
}

Test(shares, who_grows_into_its_guarantee_takes_from_others_first)
{
    shares = (struct spw_shares){.of = {{300, 0}, {0, 0}}, .used_bytes = {100, 900}};
    cr_expect_eq(victims(0, 10, PROMISED), 1 << 1);
    cr_expect_eq(victims(0, 10, SPW_SHARE_OWN), 1 << 0);
    cr_expect_eq(victims(0, 201, PROMISED), 1 << 0 | 1 << 1, "beyond it, age decides");
}

Test(shares, what_is_beyond_the_largest_share_goes_first)
{
    shares = (struct spw_shares){.of = {{0, 0}, {0, 200}}, .used_bytes = {500, 200}};
    cr_expect_eq(victims(0, 10, LARGEST), 0);
    cr_expect_eq(victims(1, 1, LARGEST), 1 << 1, "its own, once it would have more");
    shares.used_bytes[1] = 201;
    cr_expect_eq(victims(0, 10, LARGEST), 1 << 1);
}

Test(shares, shares_of_large_tiers_dont_wrap)
{
    shares = (struct spw_shares){.of = {{999, 1000}}, .used_bytes = {1ull << 60}};
    cr_expect_eq(spw_shares_victims(&shares, 1ull << 62, 1, 1, PROMISED), 1 << 1);
    cr_expect_eq(spw_shares_victims(&shares, 1ull << 60, 1, 1, PROMISED), 1 << 0 | 1 << 1);
    cr_expect_eq(spw_shares_victims(&shares, 1ull << 60, 0, 1, LARGEST), 1 << 0);
}

/* ---- what goes as a whole -------------------------------------------------------------------- */

static uint64_t keep(uint64_t who, uint32_t lane, uint64_t there, uint64_t bytes, bool own)
{
    const struct spw_share_unit unit = {there, bytes, own};
    return spw_shares_keep(&shares, CAPACITY, who, lane, &unit);
}

Test(shares, a_unit_of_ones_own_goes_only_while_the_guarantee_is_kept)
{
    shares = (struct spw_shares){.of = {{300, 0}, {0, 0}}, .used_bytes = {350, 650}};
    cr_expect_eq(keep(1 | 1 << 1, 1, 1, 50, true), 0);
    cr_expect_eq(keep(1 | 1 << 1, 1, 1, 51, true), 1, "a byte less than it is guaranteed");
    cr_expect_eq(keep(1 << 1, 1, 1, 50, true), 1, "it isn't to make room");
    cr_expect_eq(keep(1, 0, 1, 51, true), 0, "for its own sake");
    cr_expect_eq(keep(1, 0, 0, 51, true), 0, "nothing in it");
    shares.of[0].guaranteed_permille = 0;
    shares.used_bytes[0] = 10;
    cr_expect_eq(keep(1 | 1 << 1, 1, 1, 51, true), 0, "nothing is guaranteed any more");
}

Test(shares, a_unit_of_all_goes_with_what_was_put_before_its_space_had_a_guarantee)
{
    shares = (struct spw_shares){.of = {{300, 0}, {0, 0}, {0, 0}}, .used_bytes = {100, 650, 50}};
    cr_expect_eq(keep(1 << 1, 1, 1 | 1 << 1, 200, false), 0);
    cr_expect_eq(keep(1 << 1, 1, 1, 200, false), 1, "nothing of who is to make room");
    cr_expect_eq(keep(1 << 1, 1, 1 << 1 | 1 << 2, 200, false), 1 << 2, "another one's");
    cr_expect_eq(keep(1 << 1, 1, 0, 200, false), 0);
}

Test(shares, who_can_spare_so_much)
{
    shares = (struct spw_shares){.of = {{300, 0}, {0, 0}}, .used_bytes = {350, 0}};
    cr_expect_eq(spw_shares_spare(&shares, CAPACITY, 50), UINT64_MAX);
    cr_expect_eq(spw_shares_spare(&shares, CAPACITY, 51), UINT64_MAX - 1);
    cr_expect_eq(spw_shares_promise(&shares, CAPACITY, 0), 300);
    cr_expect_eq(spw_shares_promise(&shares, CAPACITY, 1), 0);
}
