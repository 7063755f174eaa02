/* Values as people write them. Pure: text in, number or message out. */
#include "tools/units.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct suffix {
    const char *text;
    uint64_t factor;
};

/* by descending factor: the first one that divides a value is the one to print it with */
static const struct suffix byte_suffixes[] = {
    {"TiB", 1ull << 40},
    {"TB", 1000000000000ull},
    {"GiB", 1ull << 30},
    {"GB", 1000000000},
    {"MiB", 1ull << 20},
    {"MB", 1000000},
    {"KiB", 1ull << 10},
    {"KB", 1000},
    {"B", 1},
    {NULL, 0},
};

static const struct suffix duration_suffixes[] = {
    {"h", 3600000000000ull},
    {"min", 60000000000ull},
    {"s", 1000000000},
    {"ms", 1000000},
    {"us", 1000},
    {"ns", 1},
    {NULL, 0},
};

static const struct suffix no_suffixes[] = {{NULL, 0}};

static const struct suffix *suffixes_of(enum spw_unit unit)
{
    switch (unit) {
    case SPW_UNIT_BYTES:
    case SPW_UNIT_RATE:
        return byte_suffixes;
    case SPW_UNIT_DURATION:
        return duration_suffixes;
    case SPW_UNIT_COUNT:
        break;
    }
    return no_suffixes;
}

static const char *unit_hint(enum spw_unit unit)
{
    switch (unit) {
    case SPW_UNIT_BYTES:
        return "a number of bytes, alone or with B, KB, MB, GB, TB, KiB, MiB, GiB or TiB";
    case SPW_UNIT_RATE:
        return "a number of bytes a second, alone or with B, KB, MB, GB, TB, KiB, MiB, GiB or TiB";
    case SPW_UNIT_DURATION:
        return "a number with ns, us, ms, s, min or h";
    case SPW_UNIT_COUNT:
        break;
    }
    return "a whole number";
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/*
 * The factor that the text after a number stands for; 0 if it is no unit. With no text at all the
 * number counts bytes or pieces, but no duration: seconds and milliseconds are mixed up too easily.
 */
static uint64_t factor_of(enum spw_unit unit, const char *text, uint64_t number)
{
    size_t len = strlen(text);

    if (unit == SPW_UNIT_RATE && len >= 2 && strcmp(text + len - 2, "/s") == 0)
        len -= 2;
    if (len == 0)
        return unit != SPW_UNIT_DURATION || number == 0 ? 1 : 0;
    if (text[0] == ' ') {
        text++;
        len--;
    }
    for (const struct suffix *s = suffixes_of(unit); s->text; s++)
        if (strlen(s->text) == len && memcmp(s->text, text, len) == 0)
            return s->factor;
    return 0;
}

int spw_units_parse(enum spw_unit unit, const char *text, uint64_t *out_value)
{
    unsigned __int128 value;
    uint64_t whole = 0, fraction = 0, scale = 1, factor;
    bool overflow = false;
    const char *p = text;

    if (!is_digit(*p))
        return -EINVAL;
    for (; is_digit(*p); p++)
        if (__builtin_mul_overflow(whole, 10, &whole) ||
            __builtin_add_overflow(whole, (uint64_t)(*p - '0'), &whole))
            overflow = true;
    if (*p == '.' && is_digit(p[1])) {
        for (p++; is_digit(*p); p++) {
            if (scale >= 1000000000000ull)
                return -EINVAL;
            scale *= 10;
            fraction = fraction * 10 + (uint64_t)(*p - '0');
        }
    }
    factor = factor_of(unit, p, overflow ? UINT64_MAX : whole + fraction);
    if (factor == 0)
        return -EINVAL;
    if (overflow)
        return -ERANGE;

    value = (unsigned __int128)fraction * factor;
    if (value % scale != 0)
        return -EINVAL;
    value = value / scale + (unsigned __int128)whole * factor;
    if (value > UINT64_MAX)
        return -ERANGE;
    *out_value = (uint64_t)value;
    return 0;
}

int spw_units_parse_in(const char *option, const char *text, const struct spw_range *range,
                       uint64_t *out_value, char *err, size_t err_bytes)
{
    char low[SPW_UNITS_TEXT_BYTES], high[SPW_UNITS_TEXT_BYTES];
    uint64_t value;
    int rc = spw_units_parse(range->unit, text, &value);

    if (rc == 0 && value >= range->min && value <= range->max) {
        *out_value = value;
        return 0;
    }
    spw_units_format(range->unit, range->min, low);
    spw_units_format(range->unit, range->max, high);
    if (rc == -EINVAL)
        snprintf(err, err_bytes, "%s: \"%s\" is not %s; allowed are %s to %s", option, text,
                 unit_hint(range->unit), low, high);
    else
        snprintf(err, err_bytes, "%s: \"%s\" is out of range; allowed are %s to %s", option, text,
                 low, high);
    return -EINVAL;
}

int spw_units_parse_decimal(const char *option, const char *text, double min, double max,
                            double *out_value, char *err, size_t err_bytes)
{
    static const char allowed[] = "0123456789.";
    bool plain = is_digit(text[0]) && text[strspn(text, allowed)] == '\0';
    char *end = NULL;
    double value = plain ? strtod(text, &end) : 0;

    if (!plain || *end != '\0' || !is_digit(end[-1])) {
        snprintf(err, err_bytes, "%s: \"%s\" is not a plain decimal number; allowed are %g to %g",
                 option, text, min, max);
        return -EINVAL;
    }
    if (!(value >= min && value <= max)) {
        snprintf(err, err_bytes, "%s: \"%s\" is out of range; allowed are %g to %g", option, text,
                 min, max);
        return -EINVAL;
    }
    *out_value = value;
    return 0;
}

char *spw_units_format(enum spw_unit unit, uint64_t value, char out_text[SPW_UNITS_TEXT_BYTES])
{
    const char *per = unit == SPW_UNIT_RATE ? "/s" : "";
    const struct suffix *s = suffixes_of(unit);

    while (s->text && (value == 0 || value % s->factor != 0))
        s++;
    if (s->text && s->factor > 1)
        snprintf(out_text, SPW_UNITS_TEXT_BYTES, "%llu%s%s",
                 (unsigned long long)(value / s->factor), s->text, per);
    else if (unit == SPW_UNIT_DURATION && value != 0)
        snprintf(out_text, SPW_UNITS_TEXT_BYTES, "%lluns", (unsigned long long)value);
    else
        snprintf(out_text, SPW_UNITS_TEXT_BYTES, "%llu%s", (unsigned long long)value,
                 value ? per : "");
    return out_text;
}

#define NEAREST_MAX 48

/* Levenshtein distance, one row at a time; words longer than the row count as far from everything
 */
static size_t edit_distance(const char *a, const char *b)
{
    size_t la = strlen(a), lb = strlen(b);
    size_t row[NEAREST_MAX + 1];

    if (la > NEAREST_MAX || lb > NEAREST_MAX)
        return NEAREST_MAX;
    for (size_t j = 0; j <= lb; j++)
        row[j] = j;
    for (size_t i = 1; i <= la; i++) {
        size_t diagonal = row[0];

        row[0] = i;
        for (size_t j = 1; j <= lb; j++) {
            size_t best = diagonal + (a[i - 1] != b[j - 1]);

            diagonal = row[j];
            if (row[j] + 1 < best)
                best = row[j] + 1;
            if (row[j - 1] + 1 < best)
                best = row[j - 1] + 1;
            row[j] = best;
        }
    }
    return row[lb];
}

const char *spw_units_nearest(const char *word, const char *const *names, size_t count)
{
    size_t limit = strlen(word) < 6 ? 2 : strlen(word) / 3;
    const char *nearest = NULL;
    size_t best = limit + 1;

    for (size_t i = 0; i < count; i++) {
        size_t distance = edit_distance(word, names[i]);

        if (distance < best && distance < strlen(names[i])) {
            best = distance;
            nearest = names[i];
        }
    }
    return nearest;
}
