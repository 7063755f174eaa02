#ifndef SPW_TOOLS_UNITS_H
#define SPW_TOOLS_UNITS_H
/*
 * Values as people write them: "1GiB", "2GB/s", "250ms", "4096".
 *
 * Parsing is exact: what doesn't come out as a whole number of bytes or nanoseconds, has a unit
 * that isn't listed, or doesn't fit its range is an error, never a rounded or truncated value.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum spw_unit {
    SPW_UNIT_COUNT,    /* plain integer, no unit                                         */
    SPW_UNIT_BYTES,    /* plain or with B, KB MB GB TB (powers of 1000), KiB MiB GiB TiB */
    SPW_UNIT_RATE,     /* as bytes, a second; "/s" may follow                            */
    SPW_UNIT_DURATION, /* ns us ms s min h; a unit is needed, except for 0; nanoseconds  */
};

/** What a numeric option accepts, both ends included. */
struct spw_range {
    enum spw_unit unit;
    uint64_t min;
    uint64_t max;
};

#define SPW_UNITS_TEXT_BYTES 32

/**
 * Parse @text as one value of @unit.
 *
 * Accepts a decimal number, with a fraction where a unit follows it ("1.5GiB"), and at most one
 * space before the unit. Returns 0; -EINVAL for anything else, -ERANGE for what needs over 64 bits.
 */
int spw_units_parse(enum spw_unit unit, const char *text, uint64_t *out_value);

/**
 * Parse @text and check it against @range. @option is how the user knows the option ("--workers",
 * "[pool] workers") and goes into the message with the value given and the range allowed.
 *
 * Returns 0, or -EINVAL with a message in @err.
 */
int spw_units_parse_in(const char *option, const char *text, const struct spw_range *range,
                       uint64_t *out_value, char *err, size_t err_bytes);

/**
 * Parse @text as a plain decimal number between @min and @max ("0.5", "20"), no unit, no exponent.
 *
 * Returns 0, or -EINVAL with a message in @err.
 */
int spw_units_parse_decimal(const char *option, const char *text, double min, double max,
                            double *out_value, char *err, size_t err_bytes);

/** Write @value with the largest unit that shows it exactly; returns @out_text. */
char *spw_units_format(enum spw_unit unit, uint64_t value, char out_text[SPW_UNITS_TEXT_BYTES]);

/**
 * The one of @names that @word was probably meant to be (by edit distance), or NULL if none is
 * near.
 */
const char *spw_units_nearest(const char *word, const char *const *names, size_t count);

#endif
