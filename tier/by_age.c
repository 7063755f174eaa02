/* See by_age.h. By digits, lowest first, as many as the ages differ in. */
#include "tier/by_age.h"

#include <string.h>

#define DIGIT_BITS 11u
#define DIGITS     (1u << DIGIT_BITS)

static uint32_t digit_of(uint64_t age, uint32_t shift)
{
    return (uint32_t)(age >> shift) & (DIGITS - 1);
}

/* @from by one digit into @to. */
static void sort_digit(const struct spw_aged *from, struct spw_aged *to, uint32_t count,
                       uint32_t shift)
{
    uint32_t next[DIGITS] = {0}, at = 0;
    for (uint32_t i = 0; i < count; i++)
        next[digit_of(from[i].age, shift)]++;
    for (uint32_t d = 0; d < DIGITS; d++) {
        uint32_t here = next[d];
        next[d] = at;
        at += here;
    }
    for (uint32_t i = 0; i < count; i++)
        to[next[digit_of(from[i].age, shift)]++] = from[i];
}

void spw_sort_by_age(struct spw_aged *items, struct spw_aged *scratch, uint32_t count)
{
    struct spw_aged *from = items, *to = scratch;
    uint64_t differ = 0; /* bits in which ages differ */
    for (uint32_t i = 1; i < count; i++)
        differ |= items[i].age ^ items[0].age;
    for (uint32_t shift = 0; shift < 64; shift += DIGIT_BITS) {
        if (digit_of(differ, shift) == 0)
            continue;
        sort_digit(from, to, count, shift);
        struct spw_aged *other = from;
        from = to;
        to = other;
    }
    if (from != items)
        memcpy(items, from, count * sizeof *items);
}
