/* Sorting by age, against the C library's sort. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "tier/by_age.h"

#define COUNT 3000u

static int older(const void *left, const void *right)
{
    const struct spw_aged *a = left, *b = right;
    if (a->age != b->age)
        return a->age < b->age ? -1 : 1;
    return a->slot < b->slot ? -1 : 1;
}

Test(by_age, is_a_stable_sort_whatever_the_ages)
{
    static struct spw_aged items[COUNT], scratch[COUNT], sorted[COUNT];
    static const uint64_t masks[] = {0, 1, 0x3ff, 0xfffff, 0xfff00000000ull, UINT64_MAX};
    static const uint32_t counts[] = {0, 1, 2, 17, COUNT};
    uint64_t random = 88172645463325252ull;
    for (uint32_t m = 0; m < sizeof masks / sizeof masks[0]; m++) {
        for (uint32_t c = 0; c < sizeof counts / sizeof counts[0]; c++) {
            for (uint32_t i = 0; i < counts[c]; i++) {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                items[i] = (struct spw_aged){.age = random & masks[m], .slot = i};
            }
            memcpy(sorted, items, sizeof sorted);
            qsort(sorted, counts[c], sizeof sorted[0], older);
            spw_sort_by_age(items, scratch, counts[c]);
            for (uint32_t i = 0; i < counts[c]; i++)
                cr_assert(items[i].age == sorted[i].age && items[i].slot == sorted[i].slot);
        }
    }
}
