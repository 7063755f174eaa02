/* tools/options and tools/config: nothing is taken silently, and messages help. */
#include "tools/config.h"
#include "tools/config_impl.h"

#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/config_line.h"
#include "tools/units.h"

TestSuite(config, .timeout = 20);

/* One option with a value that may be empty or have spaces. */
static int parse_value(const char *flag, const char *value, struct spw_config *config, char *err,
                       size_t err_bytes)
{
    char flag_copy[64], value_copy[300];
    char *argv[] = {(char *)"spillwayd", flag_copy, value_copy, NULL};

    snprintf(flag_copy, sizeof(flag_copy), "%s", flag);
    snprintf(value_copy, sizeof(value_copy), "%s", value);
    return spw_config_parse(3, argv, config, err, err_bytes);
}

Test(config, defaults_hold_without_any_option)
{
    struct spw_config config;
    char err[512];

    cr_assert_eq(config_line("", &config, err, sizeof(err)), 0, "%s", err);
    cr_expect_eq(config.action, SPW_CONFIG_RUN);
    cr_expect_str_eq(config.name, "spillway");
    cr_expect_str_eq(config.shm_dir, "/dev/shm");
    cr_expect_eq(config.mode, 0600);
    cr_expect_eq(config.gid, -1);
    cr_expect_eq(config.workers, 1);
    cr_expect_eq(config.max_clients, 16);
    cr_expect_eq(config.chunk_bytes, 65536);
    cr_expect_eq(config.store_rate, 0);
    cr_expect_eq(config.overtake_limit_ns, 5000000000);
    cr_expect_eq(config.fence_limit_ns, 1000000000);
    cr_expect_eq(config.orphan_ns, 60000000000);
    cr_expect_eq(config.on_stop, SPW_ON_STOP_KEEP);
    cr_expect(!config.cold);
    cr_expect_eq(spw_options_origin(&config.options, "workers"), SPW_ORIGIN_DEFAULT);
}

Test(config, every_option_is_taken_from_flags)
{
    struct spw_config config;
    char err[512];

    cr_assert_eq(config_line("--name a.b-c_1 --workers=4 --capacity-chunks 10 --chunk-bytes 4KiB "
                             "--store-rate 2GB/s --queue-chunks=7",
                             &config, err, sizeof(err)),
                 0, "%s", err);
    cr_expect_str_eq(config.name, "a.b-c_1");
    cr_expect_eq(config.workers, 4);
    cr_expect_eq(config.capacity_chunks, 10);
    cr_expect_eq(config.chunk_bytes, 4096);
    cr_expect_eq(config.store_rate, 2000000000);
    cr_expect_eq(config.queue_chunks, 7);
    cr_assert_eq(
        config_line(
            "--load-rate 1MiB --max-clients 127 --update-ring-records 2 --on-stop remove --cold "
            "--drain-limit=250ms --quiet",
            &config, err, sizeof(err)),
        0, "%s", err);
    cr_expect_eq(config.load_rate, 1048576);
    cr_expect_eq(config.max_clients, 127);
    cr_expect_eq(config.update_records, 2);
    cr_expect_eq(config.on_stop, SPW_ON_STOP_REMOVE);
    cr_expect(config.cold);
    cr_expect_eq(config.drain_limit_ns, 250000000);
    cr_expect(config.quiet);
    cr_assert_eq(config_line("--kv-blocks 9 --command-ring-slots 8 "
                             "--completion-ring-slots 16 --run-limit 3s --io-quarantine 7s --check",
                             &config, err, sizeof(err)),
                 0, "%s", err);
    cr_expect_eq(config.kv_blocks, 9);
    cr_expect_eq(config.command_slots, 8);
    cr_expect_eq(config.completion_slots, 16);
    cr_expect_eq(config.run_limit_ns, 3000000000);
    cr_expect_eq(config.io_quarantine_ns, 7000000000);
    cr_expect_eq(config.action, SPW_CONFIG_CHECK);
}

struct bad_numbers {
    char flag[32];
    char also_bad[24]; /* 0 where it means nothing, else a value out of range */
};

ParameterizedTestParameters(config, numbers_are_checked)
{
    static struct bad_numbers params[] = {
        {"--workers", "0"},
        {"--capacity-chunks", "0"},
        {"--chunk-bytes", "4GiB"},
        {"--kv-blocks", "16777217"},
        {"--queue-chunks", "0"},
        {"--max-clients", "1"},
        {"--update-ring-records", "0"},
        {"--command-ring-slots", "0"},
        {"--completion-ring-slots", "1000"},
        {"--overtake-limit", "0.5ms"},
        {"--overtake-limit", "61min"},
        {"--run-limit", "0"},
        {"--fence-limit", "0"},
        {"--orphan", "25h"},
        {"--drain-limit", "5"},
        {"--io-quarantine", "61min"},
        {"--store-rate", "1 gigs"},
        {"--load-rate", "1.5.GiB"},
        {"--mode", "0700"},
    };

    return cr_make_param_array(struct bad_numbers, params, sizeof(params) / sizeof(params[0]));
}

Test(config, a_host_copier_needs_kv_and_no_driver)
{
    struct spw_config config;
    char err[512];
    cr_expect_eq(config_line("--kv-blocks 0 --copier host", &config, err, sizeof err), -EINVAL);
    cr_expect(strstr(err, "--kv-blocks (0") && strstr(err, "--copier (host"), "%s", err);
    cr_expect_eq(config_line("--cuda-library x.so --copier host", &config, err, sizeof err),
                 -EINVAL);
    cr_expect(strstr(err, "--cuda-library") && strstr(err, "--copier (host"), "%s", err);
    cr_expect_eq(config_line("--store-rate 1MB/s --copier cuda", &config, err, sizeof err),
                 -EINVAL);
    cr_expect(strstr(err, "--store-rate") && strstr(err, "--copier (cuda"), "%s", err);
    cr_expect_eq(config_line("--load-rate 1MB/s --copier cuda", &config, err, sizeof err), -EINVAL);
    cr_expect_eq(config_line("--kv-blocks 0", &config, err, sizeof err), 0, "%s", err);
    cr_expect_eq(config.copier, SPW_CONFIG_COPIER_AUTO);
}

ParameterizedTest(struct bad_numbers *param, config, numbers_are_checked)
{
    const char *const bad[] = {"-1", "18446744073709551616", "abc", "", "5x", param->also_bad};
    struct spw_config config;
    char err[512], quoted[64];

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        cr_expect_eq(parse_value(param->flag, bad[i], &config, err, sizeof(err)), -EINVAL, "%s %s",
                     param->flag, bad[i]);
        snprintf(quoted, sizeof(quoted), "%s: \"%s\"", param->flag, bad[i]);
        cr_expect(strstr(err, quoted), "%s", err);
        cr_expect(strstr(err, " to ") || strstr(err, " from "), "no range: %s", err);
    }
}

Test(config, names_are_checked)
{
    static const char *const bad[] = {"",
                                      ".a",
                                      "a/b",
                                      "a b",
                                      "../x",
                                      "\xc3\xa4",
                                      "1234567890123456789012345678901234567890123456789"};
    struct spw_config config;
    char err[512];

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        cr_expect_eq(parse_value("--name", bad[i], &config, err, sizeof(err)), -EINVAL, "%s",
                     bad[i]);
        cr_expect(strstr(err, "--name") && strstr(err, bad[i]) && strstr(err, "48"), "%s", err);
    }
    cr_expect_eq(parse_value("--name", "123456789012345678901234567890123456789012345678", &config,
                             err, sizeof(err)),
                 0);
}

Test(config, the_directory_must_be_one)
{
    struct spw_config config;
    char err[512];

    cr_expect_eq(config_line("--shm-dir dev/shm", &config, err, sizeof(err)), -EINVAL);
    cr_expect_eq(config_line("--shm-dir /nowhere/at/all", &config, err, sizeof(err)), -ENOENT);
    cr_expect(strstr(err, "/nowhere/at/all"), "%s", err);
    cr_expect_eq(config_line("--shm-dir /dev/null", &config, err, sizeof(err)), -ENOTDIR);
    cr_expect_eq(config_line("--shm-dir /tmp", &config, err, sizeof(err)), 0);
}

/* What is refused, and what the words must hold. */
Test(config, ce5_the_tier_below_has_no_size_by_default_and_its_options_go_together)
{
    static const struct {
        const char *args, *words[3];
    } cases[] = {
        {"--nvme-dir /tmp", {"--nvme-dir", "--nvme-bytes", "500GiB"}},
        {"--nvme-dir /tmp --nvme-bytes 100KiB", {"--nvme-bytes", "100KiB", "256KiB"}},
        {"--workers 2 --nvme-dir /tmp --nvme-bytes 300KiB",
         {"--nvme-bytes", "2 workers", "512KiB"}},
        {"--chunk-bytes 4MiB --nvme-dir /tmp --nvme-bytes 4MiB", {"--nvme-bytes", "4MiB", "chunk"}},
        {"--nvme-dir /tmp --nvme-bytes 1GiB --nvme-write-budget 1KiB",
         {"--nvme-write-budget (1KiB", "0 for no limit", "--chunk-bytes (64KiB"}},
        {"--nvme-bytes 1GiB", {"--nvme-bytes (1GiB", "no effect", "--nvme-dir"}},
        {"--nvme-queue 9", {"--nvme-queue (9", "no effect", "--nvme-dir"}},
        {"--nvme-dir /tmp --nvme-bytes 1GiB --max-clients 127",
         {"--max-clients (127", "126", "nvme-dir"}},
        {"--smallest-chunk-bytes 128KiB",
         {"--smallest-chunk-bytes (128KiB", "larger", "--chunk-bytes (64KiB"}},
        {"--nvme-dir /tmp --nvme-bytes 1GiB --nvme-write around",
         {"--nvme-write", "around", "through"}},
    };
    struct spw_config config;
    char err[512];

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        cr_expect_lt(config_line(cases[i].args, &config, err, sizeof err), 0, "%s", cases[i].args);
        for (size_t w = 0; w < 3; w++)
            cr_expect(strstr(err, cases[i].words[w]), "%s: \"%s\" lacks \"%s\"", cases[i].args, err,
                      cases[i].words[w]);
    }
    cr_assert_eq(config_line("--nvme-dir /tmp --nvme-bytes 1GiB --nvme-admit 2 --nvme-evict fifo",
                             &config, err, sizeof err),
                 0, "%s", err);
    cr_expect(config.nvme_bytes == 1ull << 30 && config.nvme_admit == 2 &&
              config.nvme_evict == SPW_EVICT_FIFO);
}

/* A worker may start while it is away: whether it can be used is asked apart. */
Test(config, the_directory_below_is_looked_at_apart)
{
    static const char *const cases[][3] = {
        {"--nvme-dir /dev/null --nvme-bytes 1GiB", "/dev/null", "Not a directory"},
        {"--nvme-dir /nowhere/at/all --nvme-bytes 1GiB", "/nowhere/at/all", "No such file"},
        {"--nvme-dir nowhere/at/all --nvme-bytes 1GiB", "/nowhere/at/all", "No such file"},
    };
    struct spw_config config;
    char err[512];

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        cr_assert_eq(config_line(cases[i][0], &config, err, sizeof err), 0, "%s", err);
        cr_expect_lt(spw_config_look_below(&config, err, sizeof err), 0);
        cr_expect(strstr(err, "--nvme-dir") && strstr(err, cases[i][1]) && strstr(err, cases[i][2]),
                  "%s", err);
    }
    cr_assert_eq(config_line("--nvme-dir /tmp --nvme-bytes 1GiB", &config, err, sizeof err), 0);
    cr_expect_eq(spw_config_look_below(&config, err, sizeof err), 0);
    cr_assert_eq(config_line("", &config, err, sizeof err), 0);
    cr_expect_eq(spw_config_look_below(&config, err, sizeof err), 0, "none, no trouble");
}

Test(config, a_relative_directory_below_begins_here)
{
    struct spw_config config;
    char err[512], longer[300];

    cr_assert_eq(chdir("/dev"), 0);
    cr_assert_eq(config_line("--nvme-dir ./shm --nvme-bytes 1GiB", &config, err, sizeof err), 0,
                 "%s", err);
    cr_expect_str_eq(config.nvme_dir, "/dev/./shm");
    cr_expect_eq(spw_config_look_below(&config, err, sizeof err), 0, "%s", err);
    snprintf(longer, sizeof longer, "--nvme-bytes 1GiB --nvme-dir %0253d", 1);
    cr_expect_eq(config_line(longer, &config, err, sizeof err), -ENAMETOOLONG);
    cr_expect(strstr(err, "absolute"), "%s", err);
}

static void add_words(void *ctx, const char *words)
{
    strcat(strcat(ctx, words), "\n");
}

/* What is warned of, a line each. */
static const char *warnings(const char *args)
{
    static char words[1024];
    struct spw_config config;
    char err[512];

    words[0] = '\0';
    cr_assert_eq(config_line(args, &config, err, sizeof err), 0, "%s", err);
    spw_config_warn(&config, add_words, words);
    return words;
}

Test(config, a_tier_below_that_is_no_larger_than_memory_is_warned_of)
{
    const char *words = warnings("--capacity-chunks 16384 --nvme-dir /tmp --nvme-bytes 1GiB");

    cr_expect(strstr(words, "--nvme-bytes (1GiB)") && strstr(words, "(1GiB): hardly"), "%s", words);
    words = warnings("--nvme-dir /tmp --nvme-bytes 1GiB --nvme-chunks 1");
    cr_expect(strstr(words, "--nvme-chunks (1)") && strstr(words, "--capacity-chunks (1024)") &&
                  strstr(words, "leave it out"),
              "%s", words);
    cr_expect_str_eq(warnings("--nvme-dir /tmp --nvme-bytes 1GiB"), "");
    cr_expect_str_eq(warnings("--nvme-dir /tmp --nvme-bytes 1GiB --nvme-chunks 1025"), "");
    cr_expect_str_eq(warnings(""), "");
}

/* The values that are printed, and the plan. */
static const char *plan_text(const char *args)
{
    static char text[16384];
    struct spw_config config;
    char err[512];
    FILE *out = fmemopen(text, sizeof text, "w");

    cr_assert(out);
    cr_assert_eq(config_line(args, &config, err, sizeof err), 0, "%s", err);
    spw_config_print(&config, out);
    fclose(out);
    return text;
}

Test(config, the_plan_has_the_tables_and_the_tier_below)
{
    const char *text = plan_text("--nvme-dir /tmp --nvme-bytes 500GiB --workers 2");

    cr_expect(strstr(text, "; plan: at most 500GiB on disk in /tmp; each worker lists 4096000 "
                           "chunks of it, which takes "),
              "%s", text);
    text = plan_text("");
    cr_expect(strstr(text, "MB of tables and rings\n"), "%s", text);
    cr_expect(!strstr(text, "on disk"), "%s", text);
}

Test(config, unknown_flags_suggest_the_nearest)
{
    struct spw_config config;
    char err[512];

    cr_expect_eq(config_line("--wrokers 2", &config, err, sizeof(err)), -EINVAL);
    cr_expect(strstr(err, "--wrokers") && strstr(err, "did you mean --workers?"), "%s", err);
    cr_expect_eq(config_line("--zzzzzzzzz 2", &config, err, sizeof(err)), -EINVAL);
    cr_expect(strstr(err, "--zzzzzzzzz") && !strstr(err, "did you mean"), "%s", err);
    cr_expect_eq(config_line("-w 2", &config, err, sizeof(err)), -EINVAL);
    cr_expect_eq(config_line("pool", &config, err, sizeof(err)), -EINVAL);
    cr_expect(strstr(err, "unexpected argument \"pool\""), "%s", err);
}

Test(config, flags_are_given_once_and_with_their_value)
{
    struct spw_config config;
    char err[512];

    cr_expect_eq(config_line("--workers 2 --workers 2", &config, err, sizeof(err)), -EINVAL);
    cr_expect(strstr(err, "--workers is given twice"), "%s", err);
    cr_expect_eq(config_line("--workers", &config, err, sizeof(err)), -EINVAL);
    cr_expect_eq(config_line("--name --workers 2", &config, err, sizeof(err)), -EINVAL);
    cr_expect(strstr(err, "--name needs a value"), "%s", err);
    cr_expect_eq(config_line("--quiet=yes", &config, err, sizeof(err)), -EINVAL);
    cr_expect(strstr(err, "takes no value"), "%s", err);
}

Test(config, help_and_version_ask_for_nothing_else)
{
    struct spw_config config;
    char err[512];

    cr_expect_eq(config_line("--help --shm-dir /nowhere", &config, err, sizeof(err)), 0);
    cr_expect_eq(config.action, SPW_CONFIG_HELP);
    cr_expect_eq(config_line("--version", &config, err, sizeof(err)), 0);
    cr_expect_eq(config.action, SPW_CONFIG_VERSION);
}

Test(config, a_flag_beats_the_file_and_the_file_the_default)
{
    struct spw_config config;
    char err[512];

    cr_assert_eq(config_file("# a pool\n[pool]\nworkers = 3 ; one a GPU\nchunk_bytes = 1 MiB\n"
                             "quiet = yes\n[limits]\norphan = 2s\n",
                             "--workers 5", &config, err, sizeof(err)),
                 0, "%s", err);
    cr_expect_eq(config.workers, 5);
    cr_expect_eq(config.chunk_bytes, 1048576);
    cr_expect_eq(config.orphan_ns, 2000000000);
    cr_expect(config.quiet);
    cr_expect_eq(spw_options_origin(&config.options, "workers"), SPW_ORIGIN_FLAG);
    cr_expect_eq(spw_options_origin(&config.options, "chunk-bytes"), SPW_ORIGIN_FILE);
    cr_expect_eq(spw_options_origin(&config.options, "name"), SPW_ORIGIN_DEFAULT);
}

struct bad_file {
    char text[256];
    char message[64];
};

ParameterizedTestParameters(config, mistakes_in_the_file_are_errors)
{
    static struct bad_file params[] = {
        {"[pool]\nprimray_bytes = 1\n", ":2: unknown key [pool] primray_bytes"},
        {"[pool]\n\nworker = 1\n", ":3: unknown key [pool] worker; did you mean workers?"},
        {"[pool]\nchunk-bytes = 64\n", "did you mean chunk_bytes?"},
        {"[copier]\nworkers = 1\n", ":2: [copier] workers belongs into section [pool]"},
        {"workers = 1\n", ":1: [] workers belongs into section [pool]"},
        {"[pool]\nworkers = 1\nworkers = 1\n", ":3: [pool] workers is given twice"},
        {"[pool]\nworkers = 33\n", ":2: [pool] workers: \"33\" is out of range"},
        {"[pool]\nworkers =\n", ":2: [pool] workers: \"\" is not"},
        {"[pool]\nworkers\n", ":2: is no \"[section]\""},
        {"[pool\nworkers = 1\n", ":1: is no \"[section]\""},
        {"[pool]\nquiet = maybe\n", "\"maybe\" is not one of yes, no"},
        {"[pool]\non_stop = burn\n", "\"burn\" is not one of keep, remove"},
        {"[pool]\nconfig = x\n", "unknown key [pool] config"},
        {"[pool]\n  workers = 1\n  name = a/b\n", "\"a/b\" is no pool name"},
    };

    return cr_make_param_array(struct bad_file, params, sizeof(params) / sizeof(params[0]));
}

ParameterizedTest(struct bad_file *param, config, mistakes_in_the_file_are_errors)
{
    struct spw_config config;
    char err[512] = "";

    cr_expect_eq(config_file(param->text, "", &config, err, sizeof(err)), -EINVAL, "%s",
                 param->text);
    cr_expect(strstr(err, param->message), "got \"%s\", want \"%s\"", err, param->message);
}

Test(config, a_flag_does_not_hide_a_mistake_in_the_file)
{
    struct spw_config config;
    char err[512];

    cr_expect_eq(config_file("[pool]\nworkers = 99\n", "--workers 2", &config, err, sizeof(err)),
                 -EINVAL);
}

Test(config, a_line_that_is_too_long_is_an_error_not_two_lines)
{
    char text[4000] = "[pool]\nname = ", err[512];
    struct spw_config config;

    memset(text + strlen(text), 'a', 3000);
    cr_expect_eq(config_file(text, "", &config, err, sizeof(err)), -EINVAL);
    cr_expect(strstr(err, ":2: the line is longer"), "%s", err);
}

Test(config, a_missing_file_is_named)
{
    struct spw_config config;
    char err[512];

    cr_expect_eq(config_line("--config /nowhere/pool.conf", &config, err, sizeof(err)), -ENOENT);
    cr_expect(strstr(err, "/nowhere/pool.conf"), "%s", err);
    cr_expect(config_line("--config /tmp", &config, err, sizeof(err)) < 0);
}

Test(config, options_that_contradict_each_other_are_both_named)
{
    static const char *const cases[][3] = {
        {"--mode 0666", "--mode (0666, flag)", "--allow-world (no, default)"},
        {"--mode 0604", "--mode (0604, flag)", "--allow-world"},
        {"--allow-world", "--allow-world (yes, flag)", "--mode (0600, default)"},
        {"--group 0 --mode 0600", "--group (0, flag)", "--mode (0600, flag)"},
        {"--chunk-bytes 100", "--chunk-bytes", "\"100\" is no multiple of 64"},
    };
    struct spw_config config;
    char err[512];

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        cr_expect_eq(config_line(cases[i][0], &config, err, sizeof(err)), -EINVAL, "%s",
                     cases[i][0]);
        cr_expect(strstr(err, cases[i][1]) && strstr(err, cases[i][2]), "%s", err);
    }
}

Test(config, the_mode_follows_group_and_world)
{
    struct spw_config config;
    char err[512];

    cr_assert_eq(config_line("--group root", &config, err, sizeof(err)), 0, "%s", err);
    cr_expect_eq(config.gid, 0);
    cr_expect_eq(config.mode, 0660);
    cr_assert_eq(config_line("--group 12345", &config, err, sizeof(err)), 0, "%s", err);
    cr_expect_eq(config.gid, 12345);
    cr_assert_eq(config_line("--mode 0666 --allow-world", &config, err, sizeof(err)), 0, "%s", err);
    cr_expect_eq(config.mode, 0666);
    cr_expect_eq(config_line("--group no-such-group", &config, err, sizeof(err)), -EINVAL);
    cr_expect(strstr(err, "no-such-group"), "%s", err);
    cr_expect_eq(config_line("--mode 0400", &config, err, sizeof(err)), -EINVAL);
    cr_expect_eq(config_line("--mode 0662", &config, err, sizeof(err)), -EINVAL);
    cr_expect_eq(config_line("--mode 0999", &config, err, sizeof(err)), -EINVAL);
}

static char *printed(const struct spw_config *config)
{
    char *text = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);

    spw_config_print(config, out);
    fclose(out);
    return text;
}

Test(config, what_is_printed_can_be_read_back)
{
    struct spw_config config, again;
    char err[512], *text;

    cr_assert_eq(
        config_line("--workers 4 --capacity-chunks 1024 --chunk-bytes 16MiB --store-rate 2GB/s",
                    &config, err, sizeof(err)),
        0);
    text = printed(&config);
    cr_expect(strstr(text, "[pool]\n"), "%s", text);
    cr_expect(strstr(text, "; flag"), "%s", text);
    cr_expect(strstr(text, "16GiB of payload a worker, 64GiB in all on this host"), "%s", text);
    cr_assert_eq(config_file(text, "", &again, err, sizeof(err)), 0, "%s\n%s", err, text);
    cr_expect_eq(again.workers, 4);
    cr_expect_eq(again.mode, config.mode);
    cr_expect_eq(again.store_rate, 2000000000);
    cr_expect_str_eq(again.shm_dir, "/dev/shm");
    free(text);
}

Test(config, help_lists_every_option)
{
    struct spw_config config;
    char err[512], *text = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);

    cr_assert_eq(config_line("--help", &config, err, sizeof(err)), 0);
    spw_config_help(&config, out);
    fclose(out);
    for (size_t i = 0; i < config.options.count; i++) {
        char flag[64];

        snprintf(flag, sizeof(flag), "--%s ", config.options.table[i].name);
        cr_expect(strstr(text, flag), "%s", flag);
    }
    free(text);
}
