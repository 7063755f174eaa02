/* Sightings against exact counts; old ones fade. */
#include "tier/sightings.h"

#include <criterion/criterion.h>

TestSuite(sightings, .timeout = 30);

static struct spw_sightings sketch;

static uint64_t tag_of(uint64_t n)
{
    n = (n + 1) * 0x9e3779b97f4a7c15ull;
    n = (n ^ n >> 30) * 0xbf58476d1ce4e5b9ull;
    return n ^ n >> 31;
}

Test(sightings, few_chunks_are_counted_exactly)
{
    cr_assert_eq(spw_sightings_init(&sketch, 1000), 0);
    for (uint64_t n = 0; n < 20; n++)
        for (uint64_t i = 0; i <= n % 5; i++)
            spw_sightings_add(&sketch, tag_of(n));
    for (uint64_t n = 0; n < 20; n++)
        cr_expect_eq(spw_sightings_of(&sketch, tag_of(n)), n % 5 + 1);
    cr_expect_eq(spw_sightings_of(&sketch, tag_of(99)), 0);
    spw_sightings_fini(&sketch);
}

Test(sightings, as_many_as_it_is_for_are_seldom_counted_too_high_and_hardly_too_low)
{
    uint32_t high = 0, low = 0;
    cr_assert_eq(spw_sightings_init(&sketch, 4096), 0);
    for (uint64_t n = 0; n < 4096; n++)
        for (uint64_t i = 0; i <= n % 2; i++)
            spw_sightings_add(&sketch, tag_of(n));
    for (uint64_t n = 0; n < 4096; n++) {
        high += spw_sightings_of(&sketch, tag_of(n)) > n % 2 + 1;
        low += spw_sightings_of(&sketch, tag_of(n)) < n % 2 + 1;
    }
    cr_expect_lt(high, 200, "%u of 4096", high);
    cr_expect_lt(low, 1200, "%u of 4096: some lines have aged", low);
    spw_sightings_fini(&sketch);
}

Test(sightings, what_is_not_seen_any_more_fades)
{
    cr_assert_eq(spw_sightings_init(&sketch, 1024), 0);
    for (int i = 0; i < 16; i++)
        spw_sightings_add(&sketch, tag_of(1));
    uint32_t before = spw_sightings_of(&sketch, tag_of(1));
    for (uint64_t n = 0; n < 8 * 1024; n++) /* one round of ageing, over few other cells */
        spw_sightings_add(&sketch, tag_of(1000 + n % 8));
    cr_expect(before == 16 && spw_sightings_of(&sketch, tag_of(1)) == 8);
    for (int i = 0; i < 1000; i++)
        spw_sightings_add(&sketch, tag_of(2));
    cr_expect_leq(spw_sightings_of(&sketch, tag_of(2)), 255, "no overflow");
    cr_expect_gt(spw_sightings_of(&sketch, tag_of(2)), 200);
    spw_sightings_fini(&sketch);
}
