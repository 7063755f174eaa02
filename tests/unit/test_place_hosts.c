/* Where every worker goes on each host that there is a topology of: loaded, decided on, and all of it compared.
 * Of no node but those of GPUs is any memory taken where these are known. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "tests/support/config_line.h"
#include "tools/place.h"

TestSuite(place_hosts, .timeout = 30);

#define WORKERS_MAX 8u
#define FLAT_NODES  "synthetic:pack:2 [numa(memory=64GB)] [numa(memory=16GB)] core:4 pu:1"

/* A worker is "NODE CPUS MEMORY NODES"; NODE "?": unknown, CPUS "any": not bound. */
struct host {
    const char *source, *options;
    const char *nodes; /* that get shares, of those that are bound to */
    const char *worker[WORKERS_MAX];
    const char *note; /* words of one of the notes, NULL: there are none */
};

static const struct host hosts[] = {
    {"two_packages",
     "--workers 8",
     "0-1",
     {"0 0-7 bind 0", "0 0-7 bind 0", "0 0-7 bind 0", "0 0-7 bind 0", "1 8-15 bind 1",
      "1 8-15 bind 1", "1 8-15 bind 1", "1 8-15 bind 1"},
     NULL},
    {"two_packages",
     "--workers 3 --gpu 0000:50:00.0,0000:10:00.0,0000:80:00.0",
     "0-1",
     {"1 8-15 bind 1", "0 0-7 bind 0", "1 8-15 bind 1"},
     NULL},
    {"node_unknown",
     "--workers 8",
     "none",
     {"? any interleave 0-1", "? any interleave 0-1", "? any interleave 0-1",
      "? any interleave 0-1", "? any interleave 0-1", "? any interleave 0-1",
      "? any interleave 0-1", "? any interleave 0-1"},
     "workers 0-7 is unknown"},
    {"node_unknown",
     "--workers 3 --gpu-node 1,auto,0",
     "0-1",
     {"1 8-15 bind 1", "? any interleave 0-1", "0 0-7 bind 0"},
     "worker 1 is unknown"},
    {"four_nodes",
     "--workers 4",
     "0-3",
     {"0 0-3 bind 0", "1 4-7 bind 1", "2 8-11 bind 2", "3 12-15 bind 3"},
     NULL},
    {"gpus_of_nodes_0_and_2",
     "--workers 4",
     "0,2",
     {"0 0-3 bind 0", "0 0-3 bind 0", "2 8-11 bind 2", "2 8-11 bind 2"},
     NULL},
    {"gpus_of_node_1", "--workers 2", "1", {"1 8-15 bind 1", "1 8-15 bind 1"}, NULL},
    {"cpus_of_node_0",
     "--workers 8",
     "0-1",
     {"0 0-7 bind 0", "0 0-7 bind 0", "0 0-7 bind 0", "0 0-7 bind 0", "1 0-7 bind 1",
      "1 0-7 bind 1", "1 0-7 bind 1", "1 0-7 bind 1"},
     "workers 4-7: none of its node's CPUs"},
    {"some_cpus",
     "--workers 8",
     "0-1",
     {"0 4-7 bind 0", "0 4-7 bind 0", "0 4-7 bind 0", "0 4-7 bind 0", "1 12 bind 1", "1 12 bind 1",
      "1 12 bind 1", "1 12 bind 1"},
     NULL},
    {"node_0_alone",
     "--workers 5",
     "0",
     {"0 0-7 bind 0", "0 0-7 bind 0", "0 0-7 bind 0", "0 0-7 bind 0", "1 0-7 interleave 0"},
     "worker 4: none of its node's CPUs"},
    {"memory_nodes", "--workers 2", "0-1", {"0 0-7 bind 0", "1 8-15 bind 1"}, NULL},
    {"memory_nodes",
     "--workers 3",
     "0-1",
     {"0 0-7 bind 0", "1 8-15 bind 1", "? any interleave 0-1"},
     "worker 2 is unknown"},
    {"no_devices", "--workers 2", "none", {"? any any none", "? any any none"}, NULL},
    {"no_devices",
     "--workers 2 --copier cuda",
     "none",
     {"? any interleave 0-1", "? any interleave 0-1"},
     "workers 0-1 is unknown"},
    {FLAT_NODES,
     "--workers 2 --copier cuda",
     "none",
     {"? any interleave 0,2", "? any interleave 0,2"},
     "workers 0-1 is unknown"},
    {FLAT_NODES,
     "--workers 3 --copier cuda --gpu-node 2,auto,0",
     "0,2",
     {"2 4-7 bind 2", "? any interleave 0,2", "0 0-3 bind 0"},
     "worker 1 is unknown"},
    {"synthetic:pack:1 [numa(memory=64GB)] core:4 pu:1",
     "--workers 2 --copier cuda",
     "none",
     {"0 0-3 any none", "0 0-3 any none"},
     "workers 0-1 is not seen here"},
};

static struct spw_topology topology;
static struct spw_config config;
static struct spw_place place;

static void decide(const struct host *host)
{
    char path[512], words[512];
    struct spw_error err = {0};
    bool synthetic = strncmp(host->source, "synthetic:", 10) == 0;
    snprintf(path, sizeof path, TOPOLOGIES "/%s.xml", host->source);
    struct spw_topology_config from = {.source = synthetic ? host->source : path};
    cr_assert_eq(spw_topology_load(&from, &topology, &err), 0, "%s", err.text);
    cr_assert_eq(config_line(host->options, &config, words, sizeof words), 0, "%s", words);
    cr_assert_eq(spw_place_decide(&topology, &config, NULL, &place), 0);
    cr_expect(!place.carried_out);
}

static const char *describe(const struct spw_place_worker *worker, char out[128])
{
    char node[16] = "?", cpus[SPW_PLACE_TEXT_BYTES] = "any", nodes[SPW_PLACE_TEXT_BYTES];
    struct spw_set of = spw_place_memory_nodes(&worker->memory);
    if (worker->node_known)
        snprintf(node, sizeof node, "%u", worker->node);
    if (worker->cpus_why != SPW_PLACE_ANYWHERE)
        spw_set_print(&worker->cpus, cpus, sizeof cpus);
    snprintf(out, 128, "%s %s %s %s", node, cpus, spw_place_memory_word(worker->memory.kind),
             spw_set_print(&of, nodes, sizeof nodes));
    return out;
}

/* Nodes that some worker's memory is bound to. */
static struct spw_set bound(void)
{
    struct spw_set nodes = {{0}};
    for (uint32_t k = 0; k < place.workers; k++)
        if (place.worker[k].memory.kind == SPW_MEMORY_BIND)
            spw_set_add(&nodes, place.worker[k].node);
    return nodes;
}

static bool is_noted(const char *words)
{
    for (uint32_t i = 0; words && i < place.notes; i++)
        if (strstr(place.note[i].words, words))
            return true;
    return !words && place.notes == 0;
}

static void check(const struct host *host)
{
    char have[128];
    uint32_t workers = 0;
    decide(host);
    while (workers < WORKERS_MAX && host->worker[workers])
        workers++;
    cr_expect_eq(place.workers, workers, "%s", host->source);
    for (uint32_t k = 0; k < workers; k++)
        cr_expect_str_eq(describe(&place.worker[k], have), host->worker[k], "%s %s: worker %u: %s",
                         host->source, host->options, k, have);
    const struct spw_set nodes = bound();
    cr_expect_str_eq(spw_set_print(&nodes, have, sizeof have), host->nodes, "%s %s: %s",
                     host->source, host->options, have);
    cr_expect(is_noted(host->note), "%s %s: %s", host->source, host->options,
              place.notes ? place.note[0].words : "nothing");
}

Test(place_hosts, TP_1_TP_7_every_worker_is_where_its_gpu_is_and_other_nodes_have_no_shares)
{
    for (size_t i = 0; i < sizeof hosts / sizeof hosts[0]; i++)
        check(&hosts[i]);
}
