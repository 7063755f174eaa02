/* spillway replay, as scripts use it. */
#include "tests/process/proc.h"

#include <criterion/criterion.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/prefix_oracle.h"

TestSuite(process_replay, .timeout = 100);

#define OUT_BYTES 16384
#define CHUNK     512 /* tokens of a chunk of the traces */

static char out[OUT_BYTES];
static char dir[SUPPORT_PATH_BYTES];

/* Exit status of spillway replay @args, with a folder of its own that is empty afterwards. */
static int replay(const char *const args[])
{
    const char *argv[40] = {SPW_PROC_SPILLWAY, "replay"};
    struct proc_pool none = {0};
    size_t n = 2;
    if (!dir[0])
        cr_assert_eq(support_shm_dir(dir), 0);
    for (; *args; args++)
        argv[n++] = *args;
    argv[n++] = "--shm-dir";
    argv[n++] = dir;
    int status = proc_run(argv, out, sizeof out, 80000);
    snprintf(none.dir, sizeof none.dir, "%s", dir);
    cr_expect_eq(proc_files(&none), 0, "the pool's objects are still there");
    return status;
}

/* The last line as an object. */
static json_t *last_object(void)
{
    size_t length = strlen(out);
    while (length && out[length - 1] == '\n')
        out[--length] = 0;
    char *line = strrchr(out, '\n');
    json_t *root = json_loads(line ? line + 1 : out, 0, NULL);
    cr_assert_not_null(root, "%s", out);
    return root;
}

static double value(json_t *root, const char *name)
{
    json_t *number = json_object_get(root, name);
    cr_assert(json_is_number(number), "%s in %s", name, out);
    return json_number_value(number);
}

static void data_path(const char *file, char *path, size_t bytes)
{
    const char *data = getenv("SPW_TEST_DATA");
    cr_assert_not_null(data);
    snprintf(path, bytes, "%s/%s", data, file);
}

/* ---- cache only ------------------------------------------------------------------------------ */

static void cache_only(const char *trace, uint64_t capacity, const char *policy,
                       struct spw_oracle_result *result)
{
    char number[24];
    snprintf(number, sizeof number, "%llu", (unsigned long long)capacity);
    const char *const args[] = {
        "--cache-only", "--capacity-chunks", number, "--policy", policy, "--json", trace, NULL};
    cr_assert_eq(replay(args), 0, "%s", out);
    json_t *root = last_object();
    *result = (struct spw_oracle_result){
        (uint64_t)value(root, "requests"), (uint64_t)value(root, "blocks"),
        (uint64_t)value(root, "hit_blocks"), (uint64_t)value(root, "resident_blocks")};
    cr_expect_str_eq(json_string_value(json_object_get(root, "policy")), policy);
    cr_expect_eq(value(root, "wrong_bytes"), 0);
    cr_expect_geq(value(root, "verified_chunks"), (double)result->hit_blocks * 0.9);
    json_decref(root);
}

Test(process_replay, cache_only_equals_the_oracle_at_every_capacity)
{
    static const uint64_t capacity[] = {1, 2, 7, 50, 200, 1000};
    char path[1024], words[256];
    struct spw_trace trace;
    struct spw_trace_options options = {0};
    data_path("mooncake_slice.jsonl.gz", path, sizeof path);
    cr_assert_eq(spw_trace_read(path, &options, &trace, words, sizeof words), 0, "%s", words);
    for (size_t i = 0; i < sizeof capacity / sizeof capacity[0]; i++) {
        for (int fifo = 0; fifo < 2; fifo++) {
            struct spw_oracle_result want, got;
            cr_assert_eq(spw_oracle_run(&trace, capacity[i], fifo, &want), 0);
            cache_only(path, capacity[i], fifo ? "fifo" : "lru", &got);
            cr_expect_eq(got.requests, want.requests);
            cr_expect_eq(got.blocks, want.blocks);
            cr_expect_eq(got.hit_blocks, want.hit_blocks, "fifo %d, capacity %d: hit %d, not %d",
                         fifo, (int)capacity[i], (int)got.hit_blocks, (int)want.hit_blocks);
            cr_expect_eq(got.resident_blocks, want.resident_blocks, "fifo %d, capacity %d", fifo,
                         (int)capacity[i]);
        }
    }
    spw_trace_fini(&trace);
}

Test(process_replay, cache_only_counts_of_an_hour_of_chat_are_known)
{
    static const uint64_t known[][2] = {{1000, 12847}, {50000, 102290}};
    char path[1024];
    data_path("mooncake_conversation.jsonl.gz", path, sizeof path);
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        struct spw_oracle_result got;
        cache_only(path, known[i][0], "lru", &got);
        cr_expect_eq(got.hit_blocks, known[i][1], "capacity %d: %d", (int)known[i][0],
                     (int)got.hit_blocks);
    }
}

/* The tiers together keep what one cache of the size of the lower one would. How much of it so small a
 * memory has slots for when it is asked up is another matter. */
Test(process_replay, cache_only_over_a_tier_below_hits_what_one_cache_of_its_size_would)
{
    char path[1024], below[SUPPORT_PATH_BYTES], words[256];
    struct spw_oracle_result want;
    struct spw_trace trace;
    struct spw_trace_options options = {0};
    data_path("mooncake_slice.jsonl.gz", path, sizeof path);
    cr_assert_eq(spw_trace_read(path, &options, &trace, words, sizeof words), 0, "%s", words);
    cr_assert_eq(spw_oracle_run(&trace, 1000, false, &want), 0);
    spw_trace_fini(&trace);
    cr_assert_eq(support_shm_dir(below), 0);
    const char *const args[] = {
        "--cache-only", "--capacity-chunks", "200",  "--nvme-dir", below, "--nvme-chunks",
        "1000",         "--payload-bytes",   "4096", "--json",     path,  NULL};
    cr_assert_eq(replay(args), 0, "%s", out);
    json_t *root = last_object();
    cr_expect_eq(value(root, "hit_blocks"), (double)want.hit_blocks, "%s", out);
    cr_expect_eq(value(root, "resident_blocks"), (double)want.resident_blocks, "%s", out);
    cr_expect_gt(value(root, "below_blocks"), (double)want.hit_blocks / 4, "%s", out);
    cr_expect_gt(value(root, "verified_chunks"), (double)want.hit_blocks / 4, "%s", out);
    cr_expect_eq(value(root, "wrong_bytes"), 0);
    json_decref(root);
    cr_expect(!strstr(out, "isn't empty"), "%s", out);
    cr_expect_eq(replay(args), 0, "%s", out);
    cr_expect(strstr(out, "isn't empty, so what a run before left there counts as hits"), "%s",
              out);
}

Test(process_replay, policies_that_would_share_a_directory_below_are_not_compared)
{
    const char *const args[] = {"--generate", "--compare", "--nvme-dir", "/tmp", NULL};
    cr_expect_eq(replay(args), 2, "%s", out);
    cr_expect(strstr(out, "one policy at a time, each with an empty directory"), "%s", out);
}

/* ---- timed ----------------------------------------------------------------------------------- */

/* A store rate far below what the engines offer: requests find chunks that are still pending. */
static json_t *timed(const char *budget)
{
    const char *const args[] = {"--generate", "--max-requests",     "100",  "--speed",
                                "60",         "--workers",          "2",    "--schedulers",
                                "3",          "--capacity-chunks",  "400",  "--store-rate",
                                "400MB/s",    "--recompute-budget", budget, "--json",
                                NULL};
    int status = replay(args);
    cr_assert_eq(status, 0, "%d: %s", status, out);
    json_t *root = last_object();
    cr_expect_eq(value(root, "requests"), 100);
    cr_expect_eq(value(root, "wrong_bytes"), 0);
    cr_expect_gt(value(root, "verified_chunks"), 0);
    cr_expect_gt(value(root, "hit_blocks"), 0);
    cr_expect_eq(value(root, "below_blocks"), 0);
    cr_expect_gt(value(root, "ttft_mean_s"), 0);
    return root;
}

Test(process_replay, timed_verifies_every_byte_waits_and_with_a_budget_recomputes)
{
    char budget[16];
    snprintf(budget, sizeof budget, "%d", 4 * CHUNK);
    json_t *wait = timed("0"), *cut = timed(budget);
    cr_expect_gt(value(wait, "deferred_share"), 0);
    cr_expect_gt(value(wait, "wait_mean_s"), 0);
    cr_expect_eq(value(wait, "recomputed_tokens"), 0);
    cr_expect_gt(value(cut, "recomputed_tokens"), 0);
    json_decref(wait);
    json_decref(cut);
}

/* Memory has few free slots for what is asked up: many a chunk doesn't come, and nobody waits for it for
 * ever. */
Test(process_replay, timed_over_a_tier_below_ends_and_loads_from_there_what_memory_lost)
{
    char below[SUPPORT_PATH_BYTES];
    cr_assert_eq(support_shm_dir(below), 0);
    const char *args[] = {
        "--generate", "--max-requests",  "120",  "--speed",           "60",  "--workers",
        "2",          "--schedulers",    "3",    "--capacity-chunks", "200", "--gpu-cache-tokens",
        "0",          "--payload-bytes", "4096", "--nvme-dir",        below, "--store-rate",
        "0",          "--json",          NULL};
    int status = replay(args);
    cr_assert_eq(status, 0, "%d: %s", status, out);
    json_t *root = last_object();
    cr_expect_eq(value(root, "requests"), 120);
    cr_expect_eq(value(root, "wrong_bytes"), 0);
    cr_expect_eq(value(root, "verified_chunks"), value(root, "hit_blocks"), "%s", out);
    cr_expect_gt(value(root, "below_blocks"), 100, "%s", out);
    cr_expect_leq(value(root, "below_blocks"), value(root, "hit_blocks"), "%s", out);
    cr_expect_lt(value(root, "wait_p99_s"), 480, "8 s by the clock, %s", out);
    json_decref(root);
}

static bool is_empty(void *ctx)
{
    return proc_files(ctx) == 0;
}

Test(process_replay, a_replay_that_is_killed_leaves_no_process_and_no_object)
{
    static const int how[] = {SIGKILL, SIGTERM, SIGINT};
    struct proc_pool none = {0};
    cr_assert_eq(support_shm_dir(dir), 0);
    snprintf(none.dir, sizeof none.dir, "%s", dir);
    for (int i = 0; i < 3; i++) {
        const char *const argv[] = {SPW_PROC_SPILLWAY, "replay", "--generate",   "--shm-dir", dir,
                                    "--workers",       "2",      "--schedulers", "2",         NULL};
        pid_t pid = support_spawn(argv, NULL);
        cr_assert_gt(pid, 0);
        for (uint64_t until = proc_now_ms() + 10000; is_empty(&none) && proc_now_ms() < until;)
            usleep(1000);
        usleep(500000); /* under way */
        kill(pid, how[i]);
        cr_expect_eq(support_wait(pid, 10000), SUPPORT_SIGNALLED + how[i]);
        cr_expect(proc_eventually(is_empty, &none, 8000), "signal %d: %u objects are left", how[i],
                  proc_files(&none));
    }
}

/* ---- usage ----------------------------------------------------------------------------------- */

static void refused(const char *a, const char *b, const char *c, const char *names)
{
    const char *const args[] = {a, b, c, NULL};
    cr_expect_eq(replay(args), 2, "%s %s: %s", a, b ? b : "", out);
    cr_expect(strstr(out, names), "%s: %s", names, out);
}

Test(process_replay, a_bad_option_is_2_and_named)
{
    refused("--generate", "--speed", "0", "--speed");
    refused("--generate", "--workers", "33", "--workers");
    refused("--generate", "--recompute-budget", "-1", "--recompute-budget");
    refused("--generate", "--recompute-scope", "all", "--recompute-scope");
    refused("--generate", "--store-rate", "fast", "--store-rate");
    refused("--generate", "--payload-bytes", "100", "--payload-bytes");
    refused("--generate", "--budget", "1", "--budget");
    refused("--generate", "--capacity-chunks", "0", "--capacity-chunks");
    refused("--generate", "trace.jsonl", NULL, "--generate");
    refused("--json", NULL, NULL, "--generate");
}

Test(process_replay, open_and_closed_loops_refuse_the_options_of_the_other)
{
    char open[1024], closed[1024];
    data_path("mooncake_slice.jsonl.gz", open, sizeof open);
    snprintf(closed, sizeof closed, "%s/claude_code_slice.tsv.gz", getenv("SPW_TEST_DATA"));
    refused(open, "--conversations", "3", "leave it out");
    refused(open, "--decode-rate", "3", "--decode-rate is of a trace of conversations");
    refused("--generate", "--conversations", "3", "--conversations");
    refused("--generate", "--conversations", "0", "1");
    refused(closed, NULL, NULL, "wait for answers");
    const char *const counts[] = {
        "--cache-only", "--capacity-chunks", "100000", "--json", closed, NULL};
    cr_assert_eq(replay(counts), 0, "%s", out);
    json_t *root = last_object();
    cr_expect_eq(value(root, "blocks"), 14416 + 113);
    cr_expect_eq(value(root, "hit_blocks"), 14416 - 1828, "%s", out);
    json_decref(root);
}

Test(process_replay, a_trace_that_is_not_there_or_makes_no_sense_fails_before_anything_starts)
{
    const char *const absent[] = {"/nonexistent.jsonl", NULL};
    cr_expect_eq(replay(absent), 1);
    cr_expect(strstr(out, "/nonexistent.jsonl"), "%s", out);
    const char *const nonsense[] = {"/proc/self/status", NULL};
    cr_expect_eq(replay(nonsense), 1, "%s", out);
}
