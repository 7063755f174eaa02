/* See set.h. */
#include "tools/set.h"

#include <stdio.h>

void spw_set_add(struct spw_set *set, uint32_t number)
{
    if (number < SPW_SET_MAX)
        set->word[number / 64] |= 1ull << number % 64;
}

bool spw_set_has(const struct spw_set *set, uint32_t number)
{
    return number < SPW_SET_MAX && set->word[number / 64] >> number % 64 & 1;
}

uint32_t spw_set_next(const struct spw_set *set, uint32_t from)
{
    while (from < SPW_SET_MAX && !spw_set_has(set, from))
        from++;
    return from;
}

bool spw_set_is_empty(const struct spw_set *set)
{
    return spw_set_next(set, 0) == SPW_SET_MAX;
}

bool spw_set_equal(const struct spw_set *a, const struct spw_set *b)
{
    for (uint32_t i = 0; i < SPW_SET_WORDS; i++)
        if (a->word[i] != b->word[i])
            return false;
    return true;
}

uint32_t spw_set_count(const struct spw_set *set)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < SPW_SET_WORDS; i++)
        count += (uint32_t)__builtin_popcountll(set->word[i]);
    return count;
}

struct spw_set spw_set_and(const struct spw_set *a, const struct spw_set *b)
{
    struct spw_set both;
    for (uint32_t i = 0; i < SPW_SET_WORDS; i++)
        both.word[i] = a->word[i] & b->word[i];
    return both;
}

struct spw_set spw_set_minus(const struct spw_set *a, const struct spw_set *b)
{
    struct spw_set rest;
    for (uint32_t i = 0; i < SPW_SET_WORDS; i++)
        rest.word[i] = a->word[i] & ~b->word[i];
    return rest;
}

/* A number below SPW_SET_MAX, up to @end. */
static bool parse_number(const char **at, const char *end, uint32_t *out)
{
    uint32_t value = 0, digits = 0;
    for (; *at < end && **at >= '0' && **at <= '9' && value < SPW_SET_MAX; (*at)++, digits++)
        value = value * 10 + (uint32_t)(**at - '0');
    *out = value;
    return digits > 0 && value < SPW_SET_MAX;
}

bool spw_set_parse(const char *text, size_t bytes, struct spw_set *out_set)
{
    const char *at = text, *end = text + bytes;
    struct spw_set set = {{0}};
    while (at < end) {
        uint32_t first, last;
        if (!parse_number(&at, end, &first))
            return false;
        last = first;
        if (at < end && *at == '-') {
            at++;
            if (!parse_number(&at, end, &last) || last < first)
                return false;
        }
        for (uint32_t n = first; n <= last; n++)
            spw_set_add(&set, n);
        if (at == end)
            break;
        if (*at++ != ',' || at == end)
            return false;
    }
    *out_set = set;
    return true;
}

const char *spw_set_print(const struct spw_set *set, char *out, size_t bytes)
{
    size_t used = 0;
    snprintf(out, bytes, "none");
    for (uint32_t first = spw_set_next(set, 0); first < SPW_SET_MAX && used < bytes;) {
        uint32_t last = first;
        while (spw_set_has(set, last + 1))
            last++;
        used += (size_t)snprintf(out + used, bytes - used, "%s%u", used ? "," : "", first);
        if (last > first && used < bytes)
            used += (size_t)snprintf(out + used, bytes - used, "-%u", last);
        first = spw_set_next(set, last + 1);
    }
    return out;
}
