/* tools/units: what people write is taken exactly or refused with option, value and range. */
#include "tools/units.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

TestSuite(units, .timeout = 20);

struct good {
    enum spw_unit unit;
    const char *text;
    uint64_t value;
};

Test(units, writes_of_one_value_agree)
{
    static const struct good cases[] = {
        {SPW_UNIT_BYTES, "1GiB", 1073741824},
        {SPW_UNIT_BYTES, "1024MiB", 1073741824},
        {SPW_UNIT_BYTES, "1073741824", 1073741824},
        {SPW_UNIT_BYTES, "1 GiB", 1073741824},
        {SPW_UNIT_BYTES, "1073741824B", 1073741824},
        {SPW_UNIT_BYTES, "1GB", 1000000000},
        {SPW_UNIT_BYTES, "1KB", 1000},
        {SPW_UNIT_BYTES, "1KiB", 1024},
        {SPW_UNIT_BYTES, "2MB", 2000000},
        {SPW_UNIT_BYTES, "3TB", 3000000000000},
        {SPW_UNIT_BYTES, "1TiB", 1ull << 40},
        {SPW_UNIT_BYTES, "1.5GiB", 1610612736},
        {SPW_UNIT_BYTES, "0.25KiB", 256},
        {SPW_UNIT_BYTES, "0", 0},
        {SPW_UNIT_BYTES, "18446744073709551615", UINT64_MAX},
        {SPW_UNIT_RATE, "2GB/s", 2000000000},
        {SPW_UNIT_RATE, "2GB", 2000000000},
        {SPW_UNIT_RATE, "2 GiB/s", 2147483648},
        {SPW_UNIT_RATE, "500/s", 500},
        {SPW_UNIT_DURATION, "5s", 5000000000},
        {SPW_UNIT_DURATION, "250ms", 250000000},
        {SPW_UNIT_DURATION, "0.5s", 500000000},
        {SPW_UNIT_DURATION, "7us", 7000},
        {SPW_UNIT_DURATION, "9ns", 9},
        {SPW_UNIT_DURATION, "2min", 120000000000},
        {SPW_UNIT_DURATION, "1h", 3600000000000},
        {SPW_UNIT_DURATION, "0", 0},
        {SPW_UNIT_COUNT, "4096", 4096},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        uint64_t value = 12345;

        cr_expect_eq(spw_units_parse(cases[i].unit, cases[i].text, &value), 0, "%s", cases[i].text);
        cr_expect_eq(value, cases[i].value, "%s gave %lu", cases[i].text, value);
    }
}

Test(units, junk_is_refused_and_leaves_the_value_alone)
{
    static const struct good cases[] = {
        {SPW_UNIT_BYTES, "1 gigs", 0},
        {SPW_UNIT_BYTES, "1.5.GiB", 0},
        {SPW_UNIT_BYTES, "5x", 0},
        {SPW_UNIT_BYTES, "", 0},
        {SPW_UNIT_BYTES, "-1", 0},
        {SPW_UNIT_BYTES, "+1", 0},
        {SPW_UNIT_BYTES, "abc", 0},
        {SPW_UNIT_BYTES, " 1", 0},
        {SPW_UNIT_BYTES, "1 ", 0},
        {SPW_UNIT_BYTES, "1  GiB", 0},
        {SPW_UNIT_BYTES, "0x10", 0},
        {SPW_UNIT_BYTES, "1e3", 0},
        {SPW_UNIT_BYTES, ".5GiB", 0},
        {SPW_UNIT_BYTES, "1.GiB", 0},
        {SPW_UNIT_BYTES, "0.3B", 0},
        {SPW_UNIT_BYTES, "1.5", 0},
        {SPW_UNIT_BYTES, "1gib", 0},
        {SPW_UNIT_BYTES, "1GB/s", 0},
        {SPW_UNIT_BYTES, "GiB", 0},
        {SPW_UNIT_RATE, "/s", 0},
        {SPW_UNIT_RATE, "1GB/m", 0},
        {SPW_UNIT_RATE, "1 /s ", 0},
        {SPW_UNIT_DURATION, "5", 0},
        {SPW_UNIT_DURATION, "5x", 0},
        {SPW_UNIT_DURATION, "-5s", 0},
        {SPW_UNIT_DURATION, "1GiB", 0},
        {SPW_UNIT_DURATION, "0.1ns", 0},
        {SPW_UNIT_COUNT, "5B", 0},
        {SPW_UNIT_COUNT, "5.5", 0},
        {SPW_UNIT_COUNT, "5 ", 0},
        {SPW_UNIT_BYTES, "0.00000000000001TiB", 0},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        uint64_t value = 12345;

        cr_expect_eq(spw_units_parse(cases[i].unit, cases[i].text, &value), -EINVAL, "\"%s\"",
                     cases[i].text);
        cr_expect_eq(value, 12345);
    }
}

Test(units, what_needs_more_than_64_bits_is_out_of_range)
{
    static const char *const texts[] = {"18446744073709551616", "99999999999999999999999",
                                        "16777216TiB", "18446744073709551615KB"};
    uint64_t value = 1;

    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        cr_expect_eq(spw_units_parse(SPW_UNIT_BYTES, texts[i], &value), -ERANGE, "%s", texts[i]);
    cr_expect_eq(spw_units_parse(SPW_UNIT_BYTES, "16777215TiB", &value), 0);
}

Test(units, messages_name_option_value_and_range)
{
    const struct spw_range workers = {SPW_UNIT_COUNT, 1, 32};
    static const char *const bad[] = {"0", "33", "-1", "abc", "", "5x", "18446744073709551616"};
    char err[256];
    uint64_t value = 7;

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        char quoted[64];

        snprintf(quoted, sizeof(quoted), "\"%s\"", bad[i]);
        cr_assert_eq(spw_units_parse_in("--workers", bad[i], &workers, &value, err, sizeof(err)),
                     -EINVAL, "%s", bad[i]);
        cr_expect(strncmp(err, "--workers: ", 11) == 0, "%s", err);
        cr_expect(strstr(err, quoted), "%s", err);
        cr_expect(strstr(err, "allowed are 1 to 32"), "%s", err);
        cr_expect_eq(value, 7);
    }
    cr_expect_eq(spw_units_parse_in("--workers", "1", &workers, &value, err, sizeof(err)), 0);
    cr_expect_eq(value, 1);
    cr_expect_eq(spw_units_parse_in("--workers", "32", &workers, &value, err, sizeof(err)), 0);
    cr_expect_eq(value, 32);
}

Test(units, ranges_are_shown_with_units)
{
    const struct spw_range range = {SPW_UNIT_DURATION, 1000000, 3600000000000};
    char err[256];
    uint64_t value;

    cr_assert_eq(spw_units_parse_in("--orphan", "2h", &range, &value, err, sizeof(err)), -EINVAL);
    cr_expect(strstr(err, "1ms to 1h"), "%s", err);
}

Test(units, decimals_are_plain_and_in_range)
{
    static const char *const bad[] = {"",     "-1",   "abc", "1e3", "1.2.3",
                                      "1.",   ".5",   "nan", "inf", "0",
                                      "1001", "0x10", "1 ",  "5x",  "18446744073709551616"};
    char err[256];
    double value = 7;

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        cr_expect_eq(
            spw_units_parse_decimal("--speed", bad[i], 0.001, 1000, &value, err, sizeof(err)),
            -EINVAL, "%s", bad[i]);
        cr_expect(strstr(err, "--speed") && strstr(err, "0.001 to 1000"), "%s", err);
    }
    cr_expect_eq(value, 7);
    cr_expect_eq(spw_units_parse_decimal("--speed", "12.5", 0.001, 1000, &value, err, sizeof(err)),
                 0);
    cr_expect_eq(value, 12.5);
}

Test(units, formatted_values_parse_back)
{
    static const uint64_t values[] = {0,          1,       999,           1000,
                                      1024,       1536,    1000000,       327680,
                                      2000000000, 1 << 30, 3600000000000, 18446744073709551615ull};

    for (int unit = SPW_UNIT_COUNT; unit <= SPW_UNIT_DURATION; unit++) {
        for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
            char text[SPW_UNITS_TEXT_BYTES];
            uint64_t back = 1;

            spw_units_format((enum spw_unit)unit, values[i], text);
            cr_expect_eq(spw_units_parse((enum spw_unit)unit, text, &back), 0, "%s", text);
            cr_expect_eq(back, values[i], "%s", text);
        }
    }
}

Test(units, nearest_name_is_suggested_only_when_near)
{
    static const char *const names[] = {"workers", "capacity_chunks", "chunk_bytes", "name",
                                        "primary_bytes"};

    cr_expect_str_eq(spw_units_nearest("primray_bytes", names, 5), "primary_bytes");
    cr_expect_str_eq(spw_units_nearest("worker", names, 5), "workers");
    cr_expect_str_eq(spw_units_nearest("chunk-bytes", names, 5), "chunk_bytes");
    cr_expect_null(spw_units_nearest("zzzzzz", names, 5));
    cr_expect_null(spw_units_nearest("", names, 5));
    cr_expect_null(spw_units_nearest(
        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", names, 5));
}
