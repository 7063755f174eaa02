/*
 * spillway replay --compare by the clock: a minute of chat traffic through a real pool, once under
 * each policy. Stores are slow enough that requests wait, and that waiting is what policies differ
 * in. What a policy does to each request is the business of other tests; here it moves bytes.
 */
#include "tests/process/proc.h"

#include <criterion/criterion.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TestSuite(process_compare, .timeout = 400);

#define POLICIES 8
#define REQUESTS 217

static const struct {
    const char *name;
    bool waits; /* on this minute somebody waits under it */
    bool cuts;
    bool awaited;
} expected[POLICIES] = {
    {"always-wait", true, false, false},       {"budget:512", true, true, false},
    {"budget:2048", true, true, false},        {"budget:8192", true, true, false},
    {"budget:32768", false, true, false},      {"awaited", true, false, true},
    {"awaited+budget:2048", true, true, true}, {"awaited+auto", false, true, true},
};

static char out[16384];

static int compare(const char *dir)
{
    char path[1024];
    const char *const argv[] = {SPW_PROC_SPILLWAY, "replay",    path,     "--compare",
                                "--speed",         "40",        "--json", "--store-rate",
                                "500MB/s",         "--shm-dir", dir,      NULL};

    cr_assert_not_null(getenv("SPW_TEST_DATA"));
    snprintf(path, sizeof path, "%s/mooncake_minute.jsonl.gz", getenv("SPW_TEST_DATA"));
    return proc_run(argv, out, sizeof out, 380000);
}

static double value(json_t *root, const char *name)
{
    json_t *number = json_object_get(root, name);

    cr_assert(json_is_number(number), "%s", name);
    return json_number_value(number);
}

/* Every byte came back, everything that is counted twice is counted the same. */
static void check_sums(json_t *root, const char *name)
{
    cr_expect_eq(value(root, "wrong_bytes"), 0, "%s", name);
    cr_expect_gt(value(root, "verified_chunks"), 0, "%s", name);
    cr_expect_eq(value(root, "requests"), REQUESTS, "%s", name);
    cr_expect_leq(value(root, "hit_blocks"), value(root, "resident_blocks"), "%s", name);
    cr_expect_leq(value(root, "resident_blocks"), value(root, "blocks"), "%s", name);
    cr_expect_eq(value(root, "bytes_loaded"), value(root, "verified_chunks") * 512 * 327680, "%s",
                 name);
    cr_expect_geq(value(root, "waits"), value(root, "deferred_share") * REQUESTS - 0.5, "%s", name);
    cr_expect_leq(value(root, "waits_hit") + value(root, "waits_cut"), value(root, "waits"), "%s",
                  name);
    cr_expect_leq(value(root, "eta_waits") + value(root, "eta_unknown"), value(root, "waits_hit"),
                  "%s", name);
}

static void check_policy(json_t *root, size_t i)
{
    const char *name = expected[i].name;

    cr_expect_str_eq(json_string_value(json_object_get(root, "policy")), name);
    check_sums(root, name);
    if (expected[i].waits) {
        cr_expect_gt(value(root, "waits_hit"), 0, "%s", name);
        cr_expect_gt(value(root, "wait_mean_s"), 0, "%s", name);
        cr_expect_gt(value(root, "eta_waits"), 0, "%s", name);
    }
    if (expected[i].awaited && expected[i].waits)
        cr_expect(value(root, "overtaking_stores") > 0 && value(root, "awaited_stores") > 0, "%s",
                  name);
    if (!expected[i].awaited)
        cr_expect(value(root, "overtaking_stores") == 0 && value(root, "awaited_stores") == 0, "%s",
                  name);
    cr_expect_eq(value(root, "recomputed_tokens") > 0, expected[i].cuts, "%s", name);
}

Test(process_compare, a_minute_of_chat_goes_through_a_pool_under_every_policy)
{
    char dir[SUPPORT_PATH_BYTES];
    struct proc_pool none = {0};
    double wait_s[POLICIES];
    size_t count = 0;

    cr_assert_eq(support_shm_dir(dir), 0);
    int status = compare(dir);
    cr_expect(!strstr(out, "loads failed") && !strstr(out, "counted by the library") &&
                  !strstr(out, "were restarted"),
              "%s", out);
    for (char *line = strtok(out, "\n"); line; line = strtok(NULL, "\n")) {
        json_t *root = json_loads(line, 0, NULL);

        cr_assert(root && count < POLICIES, "%s", line);
        check_policy(root, count);
        wait_s[count++] = value(root, "wait_mean_s");
        /* a machine too busy to keep the pace is no defect */
        if (json_is_true(json_object_get(root, "void")))
            status = 0;
        json_decref(root);
    }
    cr_expect_eq(count, POLICIES);
    cr_expect_eq(status, 0);
    cr_expect_lt(wait_s[5], wait_s[0] / 2, "awaited ones went first: %f s, not %f", wait_s[5],
                 wait_s[0]);
    snprintf(none.dir, sizeof none.dir, "%s", dir);
    cr_expect_eq(proc_files(&none), 0, "the pools' objects are still there");
}
