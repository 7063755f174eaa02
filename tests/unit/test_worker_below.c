/* tools/worker_below: each option of the tier below reaches what it is meant for, and nothing else. */
#include "tools/worker_below.h"

#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

TestSuite(worker_below, .timeout = 20);

#define ARGS_MAX 24
#define VALUES   25

struct value {
    const char *name;
    uint64_t is;
};

/* All that is made of a command line, by name. */
static void wire(const char *line, struct value value[VALUES])
{
    char words[512], err[512] = "", *argv[ARGS_MAX] = {(char *)"spillwayd"};
    int argc = 1;
    snprintf(words, sizeof words, "%s", line);
    for (char *word = strtok(words, " "); word && argc < ARGS_MAX - 1; word = strtok(NULL, " "))
        argv[argc++] = word;
    static struct spw_config config;
    cr_assert_eq(spw_config_parse(argc, argv, &config, err, sizeof err), 0, "%s: %s", line, err);
    static struct spw_pool pool;
    pool.geometry = (struct spw_geometry){.slot_bytes = 8192, .cold_chunks = 77};
    struct spw_worker_below below = {.config = &config, .pool = &pool, .k = 1};
    struct spw_worker_config worker = {0};
    struct spw_io_config io;
    struct spw_nvme_config store;
    spw_worker_below_use(&below, &worker);
    spw_worker_below_io(&below, &io);
    spw_worker_below_store(&below, &store);
    const struct spw_cold_policy *policy = &worker.cold_policy;
    const struct value all[VALUES] = {
        {"open", worker.open_cold != NULL && worker.cold_ctx == &below},
        {"linger", worker.transfers_linger},
        {"back", policy->write_back},
        {"admit", policy->admit_sightings},
        {"budget", policy->write_budget_bytes},
        {"queue", policy->queue_chunks},
        {"promote", policy->promote_percent},
        {"sum_at_store", policy->sum_at_store},
        {"hold", policy->hold_ns},
        {"engine", io.choice},
        {"depth", io.depth},
        {"part", io.part_bytes},
        {"dir", strcmp(store.dir, "/tmp") == 0},
        {"shard", store.shard},
        {"cap", store.cap_bytes},
        {"ids", store.ids},
        {"most", store.chunk_bytes_max},
        {"direct", store.direct},
        {"sync", store.sync},
        {"checksum", store.checksum},
        {"fifo", store.fifo},
        {"reads", store.reads},
        {"writes", store.writes},
        {"deadline", store.deadline_ns},
        {"quarantine", store.quarantine_ns},
    };
    memcpy(value, all, sizeof all);
}

/* "NAME=VALUE ..." of those that differ from @base; of all if it is NULL. */
static const char *told(const struct value *base, const struct value *value)
{
    static char text[1024];
    size_t at = 0;
    text[0] = '\0';
    for (int i = 0; i < VALUES; i++)
        if (!base || base[i].is != value[i].is)
            at += (size_t)snprintf(text + at, sizeof text - at, "%s%s=%" PRIu64, at ? " " : "",
                                   value[i].name, value[i].is);
    return text;
}

#define DIR  "--nvme-dir /tmp "
#define BASE DIR "--nvme-bytes 64MiB "

Test(worker_below, each_option_says_one_thing)
{
    static const struct {
        const char *option, *changes;
    } expected[] = {
        {"--workers 2", "cap=33554432"},
        {"--nvme-write back", "back=1"},
        {"--nvme-admit 3", "admit=3"},
        {"--nvme-write-budget 5MiB", "budget=5242880"},
        {"--nvme-queue 17", "queue=17"},
        {"--nvme-depth 12", "depth=12 reads=12 writes=6"},
        {"--nvme-depth 1", "depth=1 reads=1 writes=1"},
        {"--nvme-promote-share 31", "promote=31"},
        {"--nvme-promote-hold 3s", "hold=3000000000"},
        {"--nvme-evict fifo", "fifo=1"},
        {"--evict fifo", ""},
        {"--nvme-engine uring", "engine=1"},
        {"--nvme-engine threads", "engine=2"},
        {"--nvme-direct never", "direct=0"},
        {"--nvme-sync data", "sync=1"},
        {"--nvme-checksum store", "sum_at_store=1"},
        {"--nvme-checksum off", "checksum=0"},
        {"--nvme-deadline 7s", "deadline=7000000000"},
        {"--io-quarantine 11s", "quarantine=11000000000"},
    };
    struct value base[VALUES], value[VALUES];
    wire(BASE, base);
    cr_expect_str_eq(told(NULL, base),
                     "open=1 linger=1 back=0 admit=1 budget=0 queue=256 promote=50 sum_at_store=0 "
                     "hold=2000000000 engine=0 depth=32 part=8192 dir=1 shard=1 cap=67108864 "
                     "ids=77 most=8192 direct=1 sync=0 checksum=1 fifo=0 reads=32 writes=16 "
                     "deadline=10000000000 quarantine=60000000000",
                     "%s", told(NULL, base));
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        char line[256];
        snprintf(line, sizeof line, "%s%s", BASE, expected[i].option);
        wire(line, value);
        cr_expect_str_eq(told(base, value), expected[i].changes, "%s: %s", expected[i].option,
                         told(base, value));
    }
    wire(DIR "--nvme-bytes 128MiB", value);
    cr_expect_str_eq(told(base, value), "cap=134217728");
}

Test(worker_below, without_a_directory_there_is_none)
{
    struct value value[VALUES];
    wire("--workers 2", value);
    cr_expect(value[0].is == 0 && value[1].is == 0, "%s", told(NULL, value));
}
