/* tools/report: numbers are exact, the table can be read, the JSON keys are stable. */
#include "tools/report.h"

#include <criterion/criterion.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

TestSuite(report, .timeout = 20);

static struct spw_samples samples_of(const int64_t *seconds, size_t count)
{
    struct spw_samples samples = {0};

    for (size_t i = 0; i < count; i++)
        cr_assert_eq(spw_samples_add(&samples, seconds[i] * 1000000000), 0);
    return samples;
}

Test(report, percentiles_are_nearest_rank)
{
    static const int64_t values[] = {5, 1, 4, 2, 3};
    struct spw_samples samples = samples_of(values, 5);

    cr_expect_eq(spw_samples_percentile_s(&samples, 0), 1);
    cr_expect_eq(spw_samples_percentile_s(&samples, 20), 1);
    cr_expect_eq(spw_samples_percentile_s(&samples, 21), 2);
    cr_expect_eq(spw_samples_percentile_s(&samples, 50), 3);
    cr_expect_eq(spw_samples_percentile_s(&samples, 80), 4);
    cr_expect_eq(spw_samples_percentile_s(&samples, 81), 5);
    cr_expect_eq(spw_samples_percentile_s(&samples, 100), 5);
    cr_expect_eq(spw_samples_mean_s(&samples), 3);
    spw_samples_fini(&samples);
}

Test(report, the_99th_of_a_thousand_leaves_ten_above)
{
    struct spw_samples samples = {0};

    for (int64_t i = 1000; i >= 1; i--)
        cr_assert_eq(spw_samples_add(&samples, i * 1000000000), 0);
    cr_expect_eq(spw_samples_percentile_s(&samples, 99), 990);
    cr_expect_eq(spw_samples_percentile_s(&samples, 99.9), 999);
    spw_samples_fini(&samples);
}

Test(report, no_samples_are_zero_and_one_is_itself)
{
    struct spw_samples none = {0};
    struct spw_samples one = samples_of((const int64_t[]){7}, 1);

    cr_expect_eq(spw_samples_mean_s(&none), 0);
    cr_expect_eq(spw_samples_percentile_s(&none, 99), 0);
    cr_expect_eq(spw_samples_percentile_s(&one, 1), 7);
    cr_expect_eq(spw_samples_percentile_s(&one, 99), 7);
    cr_assert_eq(spw_samples_merge(&one, &none), 0);
    cr_expect_eq(one.count, 1);
    cr_assert_eq(spw_samples_merge(&none, &one), 0);
    cr_expect_eq(spw_samples_mean_s(&none), 7);
    spw_samples_fini(&none);
    spw_samples_fini(&one);
    spw_samples_fini(NULL);
}

Test(report, forecasts_are_judged_by_how_far_off_they_were)
{
    struct spw_forecasts all = {0}, more = {0};
    struct spw_report report = {0};

    cr_assert_eq(spw_forecasts_add(&all, 3000000000, 2000000000), 0);
    cr_assert_eq(spw_forecasts_add(&all, 0, 4000000000), 0);
    cr_assert_eq(spw_forecasts_add(&more, 2000000000, 2000000000), 0);
    cr_assert_eq(spw_forecasts_add(&more, SPW_FORECAST_UNKNOWN, 9000000000), 0);
    cr_assert_eq(spw_forecasts_merge(&all, &more), 0);
    spw_report_take_forecasts(&report, &all);
    cr_expect(report.eta_waits == 3 && report.eta_unknown == 1);
    cr_expect_float_eq(report.eta_error_mean_s, 5.0 / 3, 1e-9);
    cr_expect_eq(report.eta_error_p50_s, 1);
    cr_expect_eq(report.eta_error_p90_s, 4);
    cr_expect_float_eq(report.eta_error_share, 5.0 / 8, 1e-9);
    spw_forecasts_fini(&all);
    spw_forecasts_fini(&more);
    spw_forecasts_fini(NULL);
    spw_report_take_forecasts(&report, &all);
    cr_expect_eq(report.eta_error_share, 0, "no waits, no error");
}

static struct spw_report example(void)
{
    return (struct spw_report){
        .policy = "lru",
        .requests = 12031,
        .blocks = 288500,
        .hit_blocks = 61046,
        .resident_blocks = 61046,
        .deferred_requests = 1203,
        .wait_mean_s = 1.25,
        .wait_p50_s = 1,
        .wait_p99_s = 9.5,
        .recomputed_tokens = 1234567,
        .ttft_mean_s = 2.5,
        .ttft_p50_s = 2,
        .ttft_p99_s = 20.125,
        .verified_chunks = 61000,
        .bytes_stored = 2000000000000,
        .bytes_loaded = 999,
        .store_rate_offered = 2e9,
        .store_rate_achieved = 1.97e9,
        .waits = 77,
        .waits_hit = 60,
        .waits_cut = 16,
        .eta_waits = 58,
        .eta_unknown = 2,
        .eta_error_mean_s = 0.5,
        .eta_error_p50_s = 0.25,
        .eta_error_p90_s = 4.125,
        .eta_error_share = 0.0625,
        .awaited_stores = 654,
        .overtaking_stores = 321,
        .below_blocks = 4711,
    };
}

Test(report, json_has_the_keys_that_scripts_rely_on_in_their_order)
{
    static const char expect[] =
        "{\"schema\":1,\"policy\":\"lru\",\"requests\":12,\"blocks\":288500,"
        "\"hit_blocks\":61046,\"resident_blocks\":61046,\"deferred_share\":0.25,"
        "\"wait_mean_s\":1.25,\"wait_p99_s\":9.5,\"recomputed_tokens\":1234567,"
        "\"ttft_mean_s\":2.5,\"ttft_p99_s\":20.125,\"verified_chunks\":61000,\"wrong_bytes\":0,"
        "\"wait_p50_s\":1.0,\"ttft_p50_s\":2.0,\"bytes_stored\":2000000000000,"
        "\"bytes_loaded\":999,\"store_rate_offered\":2e9,"
        "\"store_rate_achieved\":1.97e9,\"void\":false,\"reason\":\"\","
        "\"waits\":77,\"waits_hit\":60,\"waits_cut\":16,\"eta_waits\":58,\"eta_unknown\":2,"
        "\"eta_error_mean_s\":0.5,\"eta_error_p50_s\":0.25,\"eta_error_p90_s\":4.125,"
        "\"eta_error_share\":0.0625,\"awaited_stores\":654,\"overtaking_stores\":321,"
        "\"below_blocks\":4711}\n";
    struct spw_report report = example();
    char *text = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);

    report.deferred_requests = 3;
    report.requests = 12;
    cr_assert_eq(spw_report_print_json(&report, 1, out), 0);
    fclose(out);
    cr_expect_str_eq(text, expect);
    free(text);
}

Test(report, json_is_an_object_a_line)
{
    struct spw_report reports[2] = {example(), example()};
    char *text = NULL, *second;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);
    json_t *object;

    reports[1].policy = "with \"quotes\"";
    spw_report_judge(&reports[1]);
    cr_assert_eq(spw_report_print_json(reports, 2, out), 0);
    fclose(out);
    second = strchr(text, '\n') + 1;
    object = json_loads(second, 0, NULL);
    cr_assert(object);
    cr_expect_str_eq(json_string_value(json_object_get(object, "policy")), "with \"quotes\"");
    cr_expect_eq(second[strlen(second) - 1], '\n');
    json_decref(object);
    free(text);
}

Test(report, the_table_shows_every_number_a_column_a_policy)
{
    static const char *const expect[] = {
        "12,031",    "288,500",           "21.16 %", "10.00 %", "1.250 s",   "9.500 s",
        "1,234,567", "20.125 s",          "2.00 TB", "999 B",   "2.00 GB/s", "1.97 GB/s",
        "61,000",    "requests deferred", "4.125 s", "6.25 %",  "654",       "321",
    };
    struct spw_report reports[2] = {example(), example()};
    char *text = NULL;
    size_t bytes, width;
    FILE *out = open_memstream(&text, &bytes);

    reports[1].policy = "always-wait";
    reports[1].store_rate_achieved = 1e9;
    reports[1].wrong_bytes = 3;
    spw_report_judge(&reports[1]);
    spw_report_print_text(reports, 2, out);
    fclose(out);
    for (size_t i = 0; i < sizeof(expect) / sizeof(expect[0]); i++)
        cr_expect(strstr(text, expect[i]), "%s is missing in\n%s", expect[i], text);
    cr_expect(strstr(text, "\nVOID: always-wait: "), "%s", text);
    cr_expect_null(strstr(text, "VOID: lru"), "%s", text);
    cr_expect(strstr(text, "\nWRONG BYTES: always-wait: 3\n"), "%s", text);
    width = strcspn(text, "\n");
    for (char *line = text; strncmp(line, "VOID", 4) != 0; line += width + 1)
        cr_assert_eq(strcspn(line, "\n"), width, "not aligned:\n%s", text);
    free(text);
}

Test(report, a_run_is_void_when_stores_fall_behind_by_over_two_percent)
{
    struct spw_report report = example();

    spw_report_judge(&report);
    cr_expect_not(report.is_void);
    cr_expect_str_eq(report.reason, "");
    report.store_rate_achieved = 1.95e9;
    spw_report_judge(&report);
    cr_expect(report.is_void);
    cr_expect(strstr(report.reason, "1.95 GB/s") && strstr(report.reason, "2 GB/s"), "%s",
              report.reason);
    report.store_rate_achieved = 2.05e9;
    spw_report_judge(&report);
    cr_expect(report.is_void);
    report.store_rate_offered = report.store_rate_achieved = 0;
    spw_report_judge(&report);
    cr_expect_not(report.is_void);
}
