/* spillway replay --simulate as scripts use it, and what it shows on an hour of chat traffic. */
#include "tests/process/proc.h"

#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TestSuite(process_simulate, .timeout = 300);

#define OUT_BYTES 16384
#define POLICIES  8

static const char *const names[POLICIES] = {"always-wait",         "budget:512",   "budget:2048",
                                            "budget:8192",         "budget:32768", "awaited",
                                            "awaited+budget:2048", "awaited+auto"};
enum { ALWAYS_WAIT, BUDGET_FIRST, BUDGET_LAST = 4, AWAITED, AWAITED_LAST = 7 };

static char out[OUT_BYTES];

static int simulate(const char *const args[])
{
    const char *argv[24] = {SPW_PROC_SPILLWAY, "replay", "--simulate"};
    size_t n = 3;

    while (*args)
        argv[n++] = *args++;
    return proc_run(argv, out, sizeof out, 250000);
}

/* Take the objects of --json, a line each, from `out`. */
static size_t objects(json_t *root[POLICIES])
{
    size_t count = 0;

    for (char *line = strtok(out, "\n"); line; line = strtok(NULL, "\n")) {
        cr_assert_lt(count, POLICIES);
        root[count] = json_loads(line, 0, NULL);
        cr_assert_not_null(root[count], "%s", line);
        count++;
    }
    return count;
}

static double value(json_t *root, const char *name)
{
    json_t *number = json_object_get(root, name);

    cr_assert(json_is_number(number), "%s", name);
    return json_number_value(number);
}

static void compare(const char *const args[], double out_ttft[POLICIES])
{
    json_t *root[POLICIES];
    int status = simulate(args);
    double requests;

    cr_assert_eq(status, 0, "%d: %s", status, out);
    cr_assert_eq(objects(root), POLICIES);
    requests = value(root[0], "requests");
    for (size_t i = 0; i < POLICIES; i++) {
        cr_expect_str_eq(json_string_value(json_object_get(root[i], "policy")), names[i]);
        cr_expect(json_is_false(json_object_get(root[i], "void")));
        cr_expect_eq(value(root[i], "requests"), requests);
        out_ttft[i] = value(root[i], "ttft_mean_s");
        json_decref(root[i]);
    }
}

Test(process_simulate, the_policies_are_compared_in_one_order_and_the_same_each_time)
{
    static const char *const args[] = {"--generate", "--max-requests", "400",
                                       "--compare",  "--json",         NULL};
    static char before[OUT_BYTES];
    double ttft[POLICIES];

    cr_assert_eq(simulate(args), 0, "%s", out);
    memcpy(before, out, sizeof before);
    cr_assert_eq(simulate(args), 0, "%s", out);
    cr_expect_str_eq(before, out);
    compare(args, ttft);
}

Test(process_simulate, one_policy_is_made_of_options)
{
    static const char *const args[][8] = {
        {"--awaited", NULL},
        {"--awaited", "--recompute-budget", "512", NULL},
        {"--recompute-budget", "auto", "--recompute-price", "queue", NULL},
        {"--awaited", "--recompute-budget", "auto", "--route", "random", "--seed", "7", NULL},
    };
    static const char *const want[] = {"awaited", "awaited+budget:512", "auto", "awaited+auto"};

    for (size_t i = 0; i < sizeof want / sizeof want[0]; i++) {
        const char *all[16] = {"--generate", "--max-requests", "50", "--json"};
        json_t *root[POLICIES];

        for (size_t n = 0; args[i][n]; n++)
            all[4 + n] = args[i][n];
        cr_assert_eq(simulate(all), 0, "%s", out);
        cr_assert_eq(objects(root), 1);
        cr_expect_str_eq(json_string_value(json_object_get(root[0], "policy")), want[i]);
        json_decref(root[0]);
    }
}

Test(process_simulate, the_table_lines_up_whatever_the_policies_are_called)
{
    static const char *const args[] = {"--generate", "--max-requests", "50", "--compare", NULL};
    size_t width = 0;

    cr_assert_eq(simulate(args), 0, "%s", out);
    for (char *line = strtok(out, "\n"); line; line = strtok(NULL, "\n")) {
        if (width)
            cr_expect_eq(strlen(line), width, "%s", line);
        width = strlen(line);
    }
    cr_expect_gt(width, 0);
}

/* ---- usage ----------------------------------------------------------------------------------- */

static void refused(const char *const args[], const char *words)
{
    const char *argv[16] = {SPW_PROC_SPILLWAY, "replay", "--generate"};
    size_t n = 3;

    for (size_t i = 0; args[i]; i++)
        argv[n++] = args[i];
    cr_expect_eq(proc_run(argv, out, sizeof out, 20000), 2, "%s: %s", args[0], out);
    cr_expect(strstr(out, words), "%s is not in: %s", words, out);
}

#define REFUSED(words, ...) refused((const char *const[]){__VA_ARGS__, NULL}, words)

Test(process_simulate, a_budget_that_is_none_is_refused_with_value_and_range)
{
    static const char *const bad[] = {"-1", "1.5", "x", "9223372036854775808", " 1", "0x10", "1k"};

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        REFUSED(bad[i], "--recompute-budget", bad[i]);
        REFUSED("from 0 to 9223372036854775807, or auto", "--recompute-budget", bad[i]);
    }
    REFUSED("from 1 to 1000000, or queue", "--simulate", "--recompute-budget", "auto",
            "--recompute-price", "0");
}

Test(process_simulate, options_that_contradict_each_other_or_have_no_use_are_refused)
{
    REFUSED("--recompute-budget", "--simulate", "--compare", "--recompute-budget", "0");
    REFUSED("--recompute-price", "--simulate", "--compare", "--recompute-price", "4");
    REFUSED("--awaited", "--simulate", "--compare", "--awaited");
    REFUSED("--recompute-scope", "--simulate", "--compare", "--recompute-scope", "group");
    REFUSED("--recompute-scope", "--simulate", "--recompute-budget", "auto", "--recompute-scope",
            "group");
    REFUSED("--recompute-price", "--simulate", "--recompute-price", "4");
    REFUSED("--speed", "--simulate", "--speed", "2");
    REFUSED("--shm-dir", "--simulate", "--shm-dir", "/dev/shm");
    REFUSED("--payload-bytes", "--simulate", "--payload-bytes", "1024");
    REFUSED("--cache-only", "--simulate", "--cache-only");
    REFUSED("--route", "--cache-only", "--route", "random");
    REFUSED("--compare", "--cache-only", "--compare");
    REFUSED("--awaited", "--cache-only", "--awaited");
    REFUSED("--overtake-limit", "--cache-only", "--overtake-limit", "1s");
    REFUSED("random", "--simulate", "--route", "by-name");
    REFUSED("--overtake-limit", "--simulate", "--overtake-limit", "0");
}

Test(process_simulate, a_seed_is_of_a_workload_or_of_random_routes)
{
    char path[1024];

    snprintf(path, sizeof path, "%s/mooncake_slice.jsonl.gz", getenv("SPW_TEST_DATA"));
    cr_expect_eq(simulate((const char *const[]){"--seed", "3", path, NULL}), 2);
    cr_expect(strstr(out, "--seed"), "%s", out);
    cr_expect_eq(simulate((const char *const[]){"--seed", "3", "--route", "random", path, NULL}), 0,
                 "%s", out);
}

/* ---- what it shows --------------------------------------------------------------------------- */

static const char *data(const char *file)
{
    static char path[1024];

    cr_assert_not_null(getenv("SPW_TEST_DATA"));
    snprintf(path, sizeof path, "%s/%s", getenv("SPW_TEST_DATA"), file);
    return path;
}

static double least(const double *values, size_t first, size_t last)
{
    double best = values[first];

    for (size_t i = first + 1; i <= last; i++)
        best = values[i] < best ? values[i] : best;
    return best;
}

/* Routing 0 is round robin, the others are random. */
static void compare_on(const char *path, int routing, double out_ttft[POLICIES])
{
    char seed[16];
    const char *args[8] = {"--compare", "--json", path};

    snprintf(seed, sizeof seed, "%d", routing);
    if (routing > 0) {
        args[3] = "--route";
        args[4] = "random";
        args[5] = "--seed";
        args[6] = seed;
    }
    compare(args, out_ttft);
}

ParameterizedTestParameters(process_simulate, awaited_first_pays_on_an_hour_of_chat)
{
    static int routings[] = {0, 1, 2, 3, 4, 5};

    return cr_make_param_array(int, routings, sizeof routings / sizeof routings[0]);
}

ParameterizedTest(int *routing, process_simulate, awaited_first_pays_on_an_hour_of_chat)
{
    const char *path = data("mooncake_conversation.jsonl.gz");
    double ttft[POLICIES];

    compare_on(path, *routing, ttft);
    cr_expect_leq(least(ttft, AWAITED, AWAITED_LAST), 0.65 * ttft[ALWAYS_WAIT]);
    cr_expect_leq(ttft[AWAITED], least(ttft, BUDGET_FIRST, BUDGET_LAST));
    cr_expect_lt(least(ttft, BUDGET_FIRST, BUDGET_LAST), ttft[ALWAYS_WAIT]);
}

ParameterizedTestParameters(process_simulate, awaited_first_pays_on_a_mix_of_long_documents)
{
    static int routings[] = {0, 1, 2, 3, 4, 5};

    return cr_make_param_array(int, routings, sizeof routings / sizeof routings[0]);
}

ParameterizedTest(int *routing, process_simulate, awaited_first_pays_on_a_mix_of_long_documents)
{
    const char *path = data("mooncake_synthetic.jsonl.gz");
    double ttft[POLICIES];

    compare_on(path, *routing, ttft);
    cr_expect_leq(ttft[AWAITED], 0.97 * ttft[ALWAYS_WAIT]);
}
