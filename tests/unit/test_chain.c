/* Chains of chunks against a naive model, and what a loss tells of. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "tier/chain.h"

TestSuite(chain, .timeout = 20);

#define KEYS 64u

static struct spw_chain *chain;
static bool told[KEYS];
static uint32_t tellings;

/* Tags that share a home in the table, some of them. */
static uint64_t tag_of(uint32_t n)
{
    return (uint64_t)(n / 5) << 32 | (n + 1);
}

static void make(void)
{
    chain = spw_chain_open(KEYS);
    cr_assert_not_null(chain);
}

static void end(void)
{
    spw_chain_close(chain);
}

static void tell(void *ctx, uint64_t tag)
{
    (void)ctx;
    uint32_t n = (uint32_t)tag - 1;
    cr_assert(n < KEYS && !told[n], "%u is told twice, or was never there", n);
    told[n] = true;
    tellings++;
}

static uint32_t lose(uint32_t n)
{
    memset(told, 0, sizeof told);
    tellings = 0;
    spw_chain_lose(chain, tag_of(n), tell, NULL);
    return tellings;
}

static void link(uint32_t before, uint32_t n)
{
    spw_chain_link(chain, tag_of(before), tag_of(n));
}

Test(chain, ce9_what_needs_a_lost_chunk_is_told_near_and_far, .init = make, .fini = end)
{
    for (uint32_t n = 0; n < 5; n++)
        link(n, n + 1);
    link(2, 10); /* another prompt goes on elsewhere */
    link(10, 11);
    cr_expect(spw_chain_needed(chain, tag_of(2)) && !spw_chain_needed(chain, tag_of(5)));
    cr_assert_eq(lose(2), 5);
    cr_expect(told[3] && told[4] && told[5] && told[10] && told[11] && !told[1]);
    cr_expect_eq(lose(4), 0, "it hangs on nothing, and nothing on it, any more");
    cr_expect_eq(lose(0), 1, "1 is still behind 0");
    cr_expect_eq(lose(30), 0, "not known");
}

Test(chain, a_chunk_that_is_elsewhere_takes_nothing_with_it, .init = make, .fini = end)
{
    link(0, 1);
    link(1, 2);
    spw_chain_forget(chain, tag_of(1));
    cr_expect_eq(lose(0), 0);
    cr_expect_eq(lose(2), 0);
}

Test(chain, circles_end, .init = make, .fini = end)
{
    link(0, 1);
    link(1, 2);
    link(2, 0);
    link(3, 3);
    cr_expect_eq(lose(1), 2, "0 and 2");
    cr_expect_eq(lose(3), 0);
}

Test(chain, more_keys_than_there_is_room_for_are_not_known, .init = make, .fini = end)
{
    for (uint32_t n = 0; n + 1 < 2 * KEYS; n++)
        spw_chain_link(chain, n + 1, n + 2);
    uint32_t lost = 0;
    for (uint32_t n = 0; n < 2 * KEYS; n++)
        spw_chain_forget(chain, n + 1);
    for (uint32_t n = 0; n < KEYS; n++) {
        link(0, n);
        lost += n > 0;
    }
    cr_expect_eq(lose(0), lost, "all room is there again");
}

/* before[n]: UINT32_MAX = none, known[n]: has a node. */
static uint32_t before[KEYS];

static bool hangs_on(uint32_t n, uint32_t root)
{
    for (uint32_t steps = 0; n != UINT32_MAX && steps <= KEYS; steps++, n = before[n])
        if (n == root)
            return true;
    return false;
}

Test(chain, random_links_and_losses_agree_with_a_naive_model, .init = make, .fini = end)
{
    memset(before, 0xff, sizeof before);
    srandom(9);
    for (uint32_t round = 0; round < 20000; round++) {
        uint32_t a = (uint32_t)random() % KEYS, b = (uint32_t)random() % KEYS;
        if (random() % 4 != 0) {
            if (a == b || hangs_on(a, b))
                continue; /* a circle: tested by itself */
            link(a, b);
            before[b] = a;
            continue;
        }
        bool want[KEYS];
        uint32_t count = 0;
        for (uint32_t n = 0; n < KEYS; n++)
            count += want[n] = n != a && hangs_on(n, a);
        cr_assert_eq(lose(a), count, "round %u", round);
        cr_assert(memcmp(want, told, sizeof want) == 0, "round %u", round);
        for (uint32_t n = 0; n < KEYS; n++)
            if (want[n])
                before[n] = UINT32_MAX;
        before[a] = UINT32_MAX;
    }
}
