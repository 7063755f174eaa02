/* tools/config_place: lists with an entry a worker, and values that are longer than a line of inih. */
#include "tools/config_place.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/config_line.h"

TestSuite(config_place, .timeout = 20);

#define GPU_A "GPU-aaaaaaaa-0000-0000-0000-000000000001"

Test(config_place, CU_7_gpus_are_named_by_uuid_address_or_ordinal_one_a_worker)
{
    struct spw_config config;
    char err[512], which[48];

    cr_assert_eq(
        config_line("--workers 3 --gpu " GPU_A ",0000:3b:00.0,2", &config, err, sizeof err), 0,
        "%s", err);
    cr_expect_str_eq(spw_config_gpu(&config, 0, which), GPU_A);
    cr_expect_str_eq(spw_config_gpu(&config, 1, which), "0000:3b:00.0");
    cr_expect_str_eq(spw_config_gpu(&config, 2, which), "2");
    cr_assert_eq(config_line("--workers 3", &config, err, sizeof err), 0);
    cr_expect_str_eq(spw_config_gpu(&config, 2, which), "2");
}

/* What is refused, and what the words must hold. */
Test(config_place, CU_7_lists_of_workers_are_checked_as_a_whole)
{
    static const char *const cases[][3] = {
        {"--workers 2 --gpu 0", "--gpu: \"0\" names 1", "--workers (2)"},
        {"--gpu 0,1", "names 2", "--workers (1)"},
        {"--gpu nvidia0", "--gpu: \"nvidia0\"", "UUID"},
        {"--workers 2 --gpu 0,", "--gpu: \"\"", "ordinal"},
        {"--workers 2 --gpu 1,1", "--gpu: \"1\"", "two workers"},
        {"--gpu 0 --copier host", "--gpu (0, flag)", "--copier (host"},
        {"--gpu-node -1", "--gpu-node: \"-1\"", "auto"},
        {"--gpu-node 0-1", "--gpu-node: \"0-1\"", "NUMA node"},
        {"--workers 2 --gpu-node 0", "names 1", "--workers (2)"},
        {"--worker-cpus 0-", "--worker-cpus: \"0-\"", "0-3,8"},
        {"--worker-cpus 0/1", "names 2", "--workers (1)"},
        {"--workers 2 --worker-cpus 0/", "--worker-cpus: \"\"", "auto"},
        {"--exclude-cpus 5x", "--exclude-cpus: \"5x\"", "0-3,8"},
        {"--placement tight", "--placement", "relaxed, strict"},
    };
    struct spw_config config;
    char err[512];

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        cr_expect_eq(config_line(cases[i][0], &config, err, sizeof err), -EINVAL, "%s",
                     cases[i][0]);
        cr_expect(strstr(err, cases[i][1]) && strstr(err, cases[i][2]), "%s: %s", cases[i][0], err);
    }
}

Test(config_place, places_are_read_worker_by_worker)
{
    struct spw_config config;
    struct spw_set set;
    char err[512];
    uint32_t node;

    cr_assert_eq(
        config_line("--workers 3 --gpu-node 1,auto,12 --worker-cpus 0-3,8/auto/5 --exclude-cpus "
                    "7,9 --placement strict",
                    &config, err, sizeof err),
        0, "%s", err);
    cr_expect(spw_config_gpu_node(&config, 0, &node) && node == 1);
    cr_expect(!spw_config_gpu_node(&config, 1, &node));
    cr_expect(spw_config_gpu_node(&config, 2, &node) && node == 12);
    cr_expect(spw_config_worker_cpus(&config, 0, &set) && set.word[0] == 0x10f);
    cr_expect(!spw_config_worker_cpus(&config, 1, &set));
    cr_expect(spw_config_worker_cpus(&config, 2, &set) && set.word[0] == 0x20);
    set = spw_config_exclude_cpus(&config);
    cr_expect_eq(set.word[0], 0x280);
    cr_expect_eq(config.placement, SPW_PLACEMENT_STRICT);
    cr_assert_eq(config_line("", &config, err, sizeof err), 0);
    cr_expect(!spw_config_gpu_node(&config, 0, &node) && !spw_config_worker_cpus(&config, 0, &set));
}

/* As a worker reads the values that its daemon printed. */
Test(config_place, CU_7_thirty_two_uuids_go_through_a_file)
{
    struct spw_config config, again;
    char err[512], list[1400] = "", text[16384], path[32], flag[64];
    char *argv[] = {(char *)"spillwayd", (char *)"--workers", (char *)"32", (char *)"--gpu", list};

    for (unsigned k = 0; k < 32; k++)
        snprintf(list + strlen(list), sizeof list - strlen(list),
                 "%sGPU-aaaaaaaa-0000-0000-0000-%012x", k ? "," : "", k);
    cr_assert_eq(spw_config_parse(5, argv, &config, err, sizeof err), 0, "%s", err);
    FILE *out = fmemopen(text, sizeof text, "w");
    spw_config_print(&config, out);
    fclose(out);
    config_write(path, text);
    snprintf(flag, sizeof flag, "--config %s", path);
    cr_assert_eq(config_line(flag, &again, err, sizeof err), 0, "%s", err);
    unlink(path);
    cr_expect_str_eq(again.gpu, list);
    cr_expect_eq(again.workers, 32);
}

Test(config_place, long_values_in_a_file_lose_their_blanks_and_comments)
{
    struct spw_config config;
    char err[512], text[1024] = "[placement]\n  exclude_cpus   =   0";

    for (unsigned n = 2; n < 140; n += 2)
        snprintf(text + strlen(text), sizeof text - strlen(text), ",%u", n);
    cr_expect_eq(
        config_file(strcat(text, "  ; none of these\n# and a comment that is longer than "
                                 "any buffer, which says = nothing at all, and goes on and "
                                 "on and on and on and on and on and on and on and on and "
                                 "on and on and on and on and on and on and on\n"
                                 "placement = strict\n"),
                    "", &config, err, sizeof err),
        0, "%s", err);
    cr_expect_eq(config.exclude_cpus[strlen(config.exclude_cpus) - 1], '8');
    cr_expect_eq(config.placement, SPW_PLACEMENT_STRICT);
}

Test(config_place, workers_inside_engines_are_some_of_the_workers)
{
    struct spw_config config;
    char err[512];
    cr_assert_eq(config_line("--workers 4 --inside 0,2-3", &config, err, sizeof err), 0, "%s", err);
    struct spw_set set = spw_config_inside(&config);
    cr_expect(spw_set_has(&set, 0) && !spw_set_has(&set, 1) && spw_set_has(&set, 3));
    cr_assert_eq(config_line("--workers 4", &config, err, sizeof err), 0);
    set = spw_config_inside(&config);
    cr_expect(spw_set_is_empty(&set));
    cr_expect_eq(config_line("--workers 4 --inside 4", &config, err, sizeof err), -EINVAL);
    cr_expect(strstr(err, "names worker 4, --workers (4) has 0 to 3"), "%s", err);
    cr_expect_eq(config_line("--inside all", &config, err, sizeof err), -EINVAL);
    cr_expect(strstr(err, "\"all\" is not workers like 0-1,3"), "%s", err);
}
