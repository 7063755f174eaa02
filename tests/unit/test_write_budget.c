/* Bytes in any 24 hours, against a plain sum over all that was written. */
#include "tier/write_budget.h"

#include <criterion/criterion.h>

TestSuite(write_budget, .timeout = 30);

#define MINUTE (60ull * 1000000000ull)
#define DAY    (24 * 60 * MINUTE)

static struct spw_write_budget budget;

Test(write_budget, none_is_no_limit)
{
    spw_write_budget_init(&budget, 0, 5 * DAY);
    spw_write_budget_spend(&budget, 1ull << 60, 5 * DAY);
    cr_expect(spw_write_budget_allows(&budget, UINT64_MAX, 5 * DAY));
}

Test(write_budget, what_was_spent_comes_back_after_a_day_and_a_quarter)
{
    spw_write_budget_init(&budget, 100, DAY);
    cr_expect(!spw_write_budget_allows(&budget, 101, DAY));
    cr_expect(spw_write_budget_allows(&budget, 100, DAY));
    spw_write_budget_spend(&budget, 100, DAY);
    cr_expect(!spw_write_budget_allows(&budget, 1, DAY + DAY));
    cr_expect(spw_write_budget_allows(&budget, 100, DAY + DAY + 15 * MINUTE));
    cr_expect(spw_write_budget_allows(&budget, 100, 90 * DAY));
}

Test(write_budget, no_day_has_more_than_it_wherever_it_begins)
{
    static uint64_t at[4000], bytes[4000];
    uint32_t count = 0, seed = 1;
    spw_write_budget_init(&budget, 1000, 0);
    for (uint64_t now = 0; now < 4 * DAY && count < 4000; now += 3 * MINUTE) {
        seed = seed * 1103515245u + 12345u;
        uint64_t want = seed >> 16 & 31;
        if (!spw_write_budget_allows(&budget, want, now))
            continue;
        spw_write_budget_spend(&budget, want, now);
        at[count] = now;
        bytes[count++] = want;
    }
    uint64_t sum = 0, most = 0;
    for (uint32_t first = 0, i = 0; i < count; i++) {
        for (sum += bytes[i]; at[i] - at[first] >= DAY; first++)
            sum -= bytes[first];
        most = sum > most ? sum : most;
    }
    cr_expect_leq(most, 1000);
    cr_expect_gt(most, 900, "and it is used");
}
