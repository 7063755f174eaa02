/* tools/gpu_cache by hand, then beside a plain list. */
#include "tools/gpu_cache.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

TestSuite(gpu_cache, .timeout = 30);

#define IDS(...)                                                                                   \
    (const uint64_t[])                                                                             \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }

static uint32_t held(const struct spw_gpu_cache *cache, uint64_t id)
{
    return spw_gpu_cache_match(cache, &id, 1);
}

Test(gpu_cache, a_prompt_is_held_up_to_the_first_gap)
{
    struct spw_gpu_cache cache;

    cr_assert_eq(spw_gpu_cache_init(&cache, 4), 0);
    cr_expect_eq(spw_gpu_cache_match(&cache, IDS(1, 2, 3), 3), 0);
    spw_gpu_cache_use(&cache, IDS(1, 2, 3), 3);
    cr_expect_eq(spw_gpu_cache_match(&cache, IDS(1, 2, 3), 3), 3);
    cr_expect_eq(spw_gpu_cache_match(&cache, IDS(1, 2, 3, 4), 4), 3);
    cr_expect_eq(spw_gpu_cache_match(&cache, IDS(1, 9, 3), 3), 1);
    cr_expect_eq(spw_gpu_cache_match(&cache, IDS(9, 1), 2), 0);
    cr_expect_eq(spw_gpu_cache_match(&cache, IDS(1), 0), 0);
    spw_gpu_cache_fini(&cache);
    spw_gpu_cache_fini(NULL);
}

Test(gpu_cache, the_tail_of_the_oldest_prompt_goes_first)
{
    struct spw_gpu_cache cache;

    cr_assert_eq(spw_gpu_cache_init(&cache, 4), 0);
    spw_gpu_cache_use(&cache, IDS(1, 2), 2);
    spw_gpu_cache_use(&cache, IDS(5, 6), 2);
    cr_expect_eq(spw_gpu_cache_match(&cache, IDS(1, 2), 2), 2); /* a look changes nothing */
    spw_gpu_cache_use(&cache, IDS(7), 1);
    cr_expect(held(&cache, 1) && !held(&cache, 2));
    spw_gpu_cache_use(&cache, IDS(1), 1); /* used again: now 6 is the oldest */
    spw_gpu_cache_use(&cache, IDS(8), 1);
    cr_expect(held(&cache, 1) && held(&cache, 5) && !held(&cache, 6));
    spw_gpu_cache_fini(&cache);
}

Test(gpu_cache, a_prompt_longer_than_the_cache_leaves_its_head)
{
    struct spw_gpu_cache cache;

    cr_assert_eq(spw_gpu_cache_init(&cache, 3), 0);
    spw_gpu_cache_use(&cache, IDS(9), 1);
    spw_gpu_cache_use(&cache, IDS(1, 2, 3, 4, 5), 5);
    cr_expect_eq(spw_gpu_cache_match(&cache, IDS(1, 2, 3, 4, 5), 5), 3);
    cr_expect_not(held(&cache, 9));
    spw_gpu_cache_fini(&cache);
}

Test(gpu_cache, a_cache_of_no_chunks_holds_nothing)
{
    struct spw_gpu_cache cache;

    cr_assert_eq(spw_gpu_cache_init(&cache, 0), 0);
    spw_gpu_cache_use(&cache, IDS(1, 2), 2);
    cr_expect_not(held(&cache, 1));
    spw_gpu_cache_fini(&cache);
}

/* The same as an array, most recent first. */
static void use_plainly(uint64_t *ids, uint32_t *count, uint32_t room, uint64_t id)
{
    uint32_t at = 0;

    while (at < *count && ids[at] != id)
        at++;
    if (at == *count && *count < room)
        ++*count;
    if (at == room)
        at--;
    memmove(ids + 1, ids, at * sizeof(*ids));
    ids[0] = id;
}

Test(gpu_cache, long_use_equals_a_plain_list)
{
    enum { ROOM = 37, NAMES = 90 };
    struct spw_gpu_cache cache;
    uint64_t plain[ROOM], prompt[8];
    uint32_t count = 0;

    srand(7);
    cr_assert_eq(spw_gpu_cache_init(&cache, ROOM), 0);
    for (uint32_t round = 0; round < 20000; round++) {
        uint32_t length = 1 + (uint32_t)rand() % 8;
        bool same = true;

        for (uint32_t i = 0; i < length; i++)
            prompt[i] = (uint64_t)(rand() % NAMES) << 40; /* ids that differ in high bits alone */
        spw_gpu_cache_use(&cache, prompt, length);
        for (uint32_t i = length; i > 0; i--)
            use_plainly(plain, &count, ROOM, prompt[i - 1]);
        for (uint64_t id = 0; id < NAMES; id++) {
            bool want = false;

            for (uint32_t i = 0; i < count; i++)
                want |= plain[i] == id << 40;
            same &= held(&cache, id << 40) == want;
        }
        cr_assert(same, "round %u", round);
    }
    spw_gpu_cache_fini(&cache);
}
