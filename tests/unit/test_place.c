/* tools/place: where workers go on hosts that aren't here. */
#include "tools/place.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

TestSuite(place, .timeout = 30);

#define A "GPU-aaaaaaaa-0000-0000-0000-000000000001"
#define B "GPU-bbbbbbbb-0000-0000-0000-000000000002"

static struct spw_topology topology;
static struct spw_config config;
static struct spw_place place;

static void set(struct spw_set *out, const char *text)
{
    cr_assert(spw_set_parse(text, strlen(text), out));
}

static void add_gpu(uint64_t bus, uint8_t last, enum spw_topology_source source, uint32_t node)
{
    topology.gpu[topology.gpu_count++] = (struct spw_topology_gpu){
        .bus = bus, .has_uuid = last != 0, .source = source, .node = node};
    uint8_t *uuid = topology.gpu[topology.gpu_count - 1].uuid;
    memset(uuid, last == 1 ? 0xaa : 0xbb, 4);
    uuid[15] = last;
}

/* Two nodes of 8 CPUs, a GPU on each. */
static void two_nodes(void)
{
    topology = (struct spw_topology){.here = true, .node_count = 2, .gpus_listed = true};
    set(&topology.cpus, "0-15");
    set(&topology.nodes, "0-1");
    for (uint32_t n = 0; n < 2; n++) {
        topology.node[n] = (struct spw_topology_node){
            .number = n, .normal = true, .available_bytes = SPW_TOPOLOGY_UNKNOWN};
        set(&topology.node[n].cpus, n ? "8-15" : "0-7");
    }
    add_gpu(0x1000, 1, SPW_TOPOLOGY_HWLOC, 0);
    add_gpu(0x9000, 2, SPW_TOPOLOGY_HWLOC, 1);
}

/* Options, with blanks between them. */
static int decide_visible(const char *line, const char *visible)
{
    char words[512], err[512];
    char *argv[24] = {(char *)"spillwayd", (char *)"--workers", (char *)"2"};
    int argc = 3;
    snprintf(words, sizeof words, "%s", line);
    for (char *word = strtok(words, " "); word; word = strtok(NULL, " "))
        argv[argc++] = word;
    cr_assert_eq(spw_config_parse(argc, argv, &config, err, sizeof err), 0, "%s", err);
    return spw_place_decide(&topology, &config, visible, &place);
}

static int decide(const char *line)
{
    return decide_visible(line, NULL);
}

static const char *cpus(uint32_t k)
{
    static char text[2][64];
    return spw_set_print(&place.worker[k].cpus, text[k % 2], sizeof text[0]);
}

static bool memory_is(uint32_t k, uint32_t kind, const char *nodes)
{
    char text[64];
    struct spw_set have = spw_place_memory_nodes(&place.worker[k].memory);
    return place.worker[k].memory.kind == kind &&
           strcmp(spw_set_print(&have, text, sizeof text), nodes) == 0;
}

/* Is @words in exactly one note, and that of @severity? */
static bool noted(enum spw_place_severity severity, const char *words)
{
    uint32_t found = 0;
    for (uint32_t i = 0; i < place.notes; i++)
        if (strstr(place.note[i].words, words))
            found += place.note[i].severity == severity ? 1 : 100;
    return found == 1;
}

static bool is_quiet(void)
{
    for (uint32_t i = 0; i < place.notes; i++)
        if (place.note[i].severity != SPW_PLACE_INFO)
            return false;
    return true;
}

Test(place, TP_1_each_worker_and_its_shard_go_to_the_node_of_its_gpu, .init = two_nodes)
{
    char line[SPW_PLACE_LINE_BYTES];
    cr_assert_eq(decide(""), 0);
    for (uint32_t k = 0; k < 2; k++) {
        cr_expect_eq(place.worker[k].source, SPW_PLACE_DETECTED);
        cr_expect_eq(place.worker[k].node, k);
        cr_expect(memory_is(k, SPW_MEMORY_BIND, k ? "1" : "0"));
    }
    cr_expect_eq(place.notes, 0);
    cr_expect_str_eq(spw_place_line(&place, 1, line),
                     "worker 1: " B " at 0000:90:00.0, node 1 (detected), CPUs 8-15 (of its node), "
                     "memory on node 1");
}

Test(place, TP_2_unknown_locality_is_spread_over_the_nodes_and_said_once, .init = two_nodes)
{
    topology.gpu[0].source = topology.gpu[1].source = SPW_TOPOLOGY_NOBODY;
    topology.gpu[0].node = topology.gpu[1].node = UINT32_MAX; /* never looked at */
    cr_assert_eq(decide(""), 0);
    for (uint32_t k = 0; k < 2; k++) {
        cr_expect(!place.worker[k].node_known);
        cr_expect_eq(place.worker[k].source, SPW_PLACE_UNKNOWN);
        cr_expect(memory_is(k, SPW_MEMORY_INTERLEAVE, "0-1"));
        cr_expect_eq(place.worker[k].cpus_why, SPW_PLACE_ANYWHERE);
    }
    cr_expect(noted(SPW_PLACE_WARNING, "workers 0-1 is unknown"));
}

Test(place, TP_2_a_configured_node_is_used, .init = two_nodes)
{
    topology.gpu[0].source = topology.gpu[1].source = SPW_TOPOLOGY_NOBODY;
    cr_assert_eq(decide("--gpu-node 1,auto"), 0);
    cr_expect_eq(place.worker[0].source, SPW_PLACE_CONFIGURED);
    cr_expect(memory_is(0, SPW_MEMORY_BIND, "1"));
    cr_expect_str_eq(cpus(0), "8-15");
    cr_expect(memory_is(1, SPW_MEMORY_INTERLEAVE, "0-1"));
    cr_expect(noted(SPW_PLACE_WARNING, "worker 1 is unknown"));
}

Test(place, a_configured_node_beats_what_the_host_says, .init = two_nodes)
{
    cr_assert_eq(decide("--gpu-node 1,0"), 0);
    cr_expect(memory_is(0, SPW_MEMORY_BIND, "1") && memory_is(1, SPW_MEMORY_BIND, "0"));
}

Test(place, a_configured_node_that_there_is_not_is_refused_with_those_that_there_are,
     .init = two_nodes)
{
    cr_expect_eq(decide("--gpu-node 0,7"), -EINVAL);
    cr_expect(noted(SPW_PLACE_ERROR, "no node 7 for worker 1, there are 0-1"));
}

Test(place, TP_2_the_only_node_is_no_riddle, .init = two_nodes)
{
    topology.node_count = 1;
    topology.gpu[0].source = topology.gpu[1].source = SPW_TOPOLOGY_NOBODY;
    cr_assert_eq(decide(""), 0);
    cr_expect_eq(place.worker[1].source, SPW_PLACE_ONLY);
    cr_expect_eq(place.worker[1].node, 0);
    cr_expect_eq(place.worker[1].memory.kind, SPW_MEMORY_ANY, "it can be nowhere else");
    cr_expect_eq(place.notes, 0);
}

Test(place, TP_4_a_node_without_allowed_cpus_is_left_for_those_that_are, .init = two_nodes)
{
    set(&topology.cpus, "0-7");
    cr_assert_eq(decide(""), 0);
    cr_expect_str_eq(cpus(1), "0-7");
    cr_expect_eq(place.worker[1].cpus_why, SPW_PLACE_CPUS_ALLOWED);
    cr_expect(noted(SPW_PLACE_INFO, "worker 1: none of its node's CPUs"));
    cr_expect(memory_is(1, SPW_MEMORY_BIND, "1"), "its memory may be used all the same");
    cr_expect(is_quiet());
}

Test(place, TP_4_nor_may_its_memory_then_others_have_it_and_that_is_a_warning, .init = two_nodes)
{
    set(&topology.cpus, "0-7");
    set(&topology.nodes, "0");
    cr_assert_eq(decide(""), 0);
    cr_expect(memory_is(1, SPW_MEMORY_INTERLEAVE, "0"));
    cr_expect(place.worker[1].elsewhere && !place.worker[0].elsewhere);
    cr_expect(noted(SPW_PLACE_WARNING, "worker 1: the memory of its node may not be used"));
}

Test(place, TP_5_a_worker_has_all_cpus_of_its_node, .init = two_nodes)
{
    cr_assert_eq(decide(""), 0);
    cr_expect_str_eq(cpus(0), "0-7");
    cr_expect_str_eq(cpus(1), "8-15");
    set(&topology.cpus, "0-5,12");
    cr_assert_eq(decide(""), 0);
    cr_expect_str_eq(cpus(0), "0-5");
    cr_expect_str_eq(cpus(1), "12");
}

Test(place, TP_5_less_those_that_are_excluded, .init = two_nodes)
{
    cr_assert_eq(decide("--exclude-cpus 0-3"), 0);
    cr_expect_str_eq(cpus(0), "4-7");
    cr_expect_str_eq(cpus(1), "8-15");
    cr_expect_eq(decide("--exclude-cpus 0-15"), -EINVAL);
    cr_expect(noted(SPW_PLACE_ERROR, "no CPU is left"));
    topology.gpu_count = 0;
    cr_assert_eq(decide("--exclude-cpus 0-3"), 0);
    cr_expect_str_eq(cpus(0), "4-15", "without a GPU, too");
}

Test(place, TP_5_exact_ones_are_taken_as_they_are, .init = two_nodes)
{
    cr_assert_eq(decide("--worker-cpus 2,9/auto --exclude-cpus 2"), 0);
    cr_expect_str_eq(cpus(0), "2,9");
    cr_expect_str_eq(cpus(1), "8-15");
    cr_assert_eq(decide("--worker-cpus 2,99/auto"), 0);
    cr_expect_str_eq(cpus(0), "2");
    cr_expect(noted(SPW_PLACE_WARNING, "worker 0: some are not allowed"));
    cr_expect_eq(decide("--worker-cpus 99/auto"), -EINVAL);
    cr_expect(noted(SPW_PLACE_ERROR, "of 99 for worker 0 none is allowed"));
}

Test(place, TP_6_a_gpu_that_is_nowhere_to_be_seen_starts_all_the_same, .init = two_nodes)
{
    topology.gpu_count = 0;
    topology.gpus_listed = false;
    cr_assert_eq(decide("--copier cuda"), 0);
    cr_expect(place.worker[0].has_gpu && !place.worker[0].gpu_found);
    cr_expect(memory_is(0, SPW_MEMORY_INTERLEAVE, "0-1"));
    cr_expect(noted(SPW_PLACE_INFO, "workers 0-1 is not seen here"));
}

/* Two more nodes, without CPUs. */
static void memory_nodes(void)
{
    two_nodes();
    topology.node_count = 4;
    set(&topology.nodes, "0-3");
    for (uint32_t n = 2; n < 4; n++)
        topology.node[n] = (struct spw_topology_node){
            .number = n, .normal = n == 2, .available_bytes = SPW_TOPOLOGY_UNKNOWN};
}

Test(place, TP_7_nodes_without_cpus_get_no_shares, .init = memory_nodes)
{
    topology.gpu[0].source = SPW_TOPOLOGY_NOBODY;
    topology.gpu[1].node = 2;
    cr_assert_eq(decide(""), 0);
    for (uint32_t k = 0; k < 2; k++)
        cr_expect(memory_is(k, SPW_MEMORY_INTERLEAVE, "0-1"));
    cr_expect(noted(SPW_PLACE_WARNING, "worker 1 is said to be on a node without CPUs"));
}

Test(place, TP_7_unless_they_are_named_with_a_warning, .init = memory_nodes)
{
    cr_assert_eq(decide("--gpu-node 2,auto"), 0);
    cr_expect(memory_is(0, SPW_MEMORY_BIND, "2"));
    cr_expect_str_eq(cpus(0), "0-15", "it has none of its own");
    cr_expect(noted(SPW_PLACE_WARNING, "--gpu-node of worker 0 names a node without"));
}

Test(place, CU_7_gpus_are_named_by_uuid_or_address_whatever_their_order, .init = two_nodes)
{
    cr_assert_eq(decide("--gpu " B ",10:00.0"), 0);
    cr_expect_eq(place.worker[0].gpu.bus, 0x9000);
    cr_expect_eq(place.worker[0].node, 1);
    cr_expect_eq(place.worker[1].gpu.bus, 0x1000);
}

Test(place, CU_7_an_ordinal_counts_what_the_driver_will_see, .init = two_nodes)
{
    cr_assert_eq(decide_visible("", "1,0"), 0);
    cr_expect_eq(place.worker[0].gpu.bus, 0x9000);
    cr_assert_eq(decide_visible("", "GPU-bbbb," A), 0);
    cr_expect_eq(place.worker[0].gpu.bus, 0x9000);
    cr_expect_eq(place.worker[1].gpu.bus, 0x1000);
    cr_assert_eq(decide_visible("", "1,-1,0"), 0);
    cr_expect(!place.worker[1].gpu_found, "the driver stops there");
    cr_assert_eq(decide_visible("", ""), 0);
    cr_expect(!place.worker[0].gpu_found);
}

Test(place, CU_7_a_gpu_that_the_host_hasnt_is_told, .init = two_nodes)
{
    cr_assert_eq(decide("--gpu 0,GPU-cccccccc-0000-0000-0000-000000000003"), 0);
    cr_expect(noted(SPW_PLACE_WARNING, "the GPU of worker 1 is none of the 2"));
}

Test(place, CU_7_two_names_of_one_gpu_are_refused, .init = two_nodes)
{
    cr_expect_eq(decide("--gpu " A ",0000:10:00.0"), -EINVAL);
    cr_expect(noted(SPW_PLACE_ERROR, "are one GPU"));
}

Test(place, without_a_gpu_nothing_is_bound_unless_it_is_asked_for, .init = two_nodes)
{
    topology.gpu_count = 0;
    cr_assert_eq(decide(""), 0);
    cr_expect_eq(place.worker[0].source, SPW_PLACE_NO_GPU);
    cr_expect_eq(place.worker[0].memory.kind, SPW_MEMORY_ANY);
    cr_expect_eq(place.worker[0].cpus_why, SPW_PLACE_ANYWHERE);
    cr_assert_eq(decide("--copier host --gpu-node 1,auto"), 0);
    cr_expect(memory_is(0, SPW_MEMORY_BIND, "1"));
    cr_expect_eq(place.worker[1].memory.kind, SPW_MEMORY_ANY);
    cr_expect_eq(place.notes, 0);
}

Test(place, all_shards_of_a_node_must_fit_and_may_fill_it, .init = two_nodes)
{
    const char *both = "--gpu-node 1,1 --capacity-chunks 16 --chunk-bytes 64KiB";
    topology.node[1].available_bytes = 2 << 20;
    cr_assert_eq(decide(both), 0);
    cr_expect(memory_is(0, SPW_MEMORY_BIND, "1") && memory_is(1, SPW_MEMORY_BIND, "1"));
    topology.node[1].available_bytes = (2 << 20) - 1;
    cr_assert_eq(decide(both), 0);
    cr_expect(memory_is(0, SPW_MEMORY_PREFER, "1") && memory_is(1, SPW_MEMORY_PREFER, "1"));
    cr_expect(noted(SPW_PLACE_WARNING, "the shards on it need 2.0 MiB"));
}

/* In a container there may be device files alone. */
Test(place, gpus_without_an_address_are_not_one, .init = two_nodes)
{
    topology.gpu[0].bus = topology.gpu[1].bus = SPW_TOPOLOGY_UNKNOWN;
    topology.gpus_listed = false;
    cr_assert_eq(decide("--gpu 0,1"), 0);
    cr_expect(place.worker[0].gpu_found && place.worker[1].gpu_found);
}

Test(place, a_node_with_too_little_memory_is_preferred_not_bound_to, .init = two_nodes)
{
    topology.node[1].available_bytes = 1 << 20;
    cr_assert_eq(decide(""), 0);
    cr_expect(memory_is(0, SPW_MEMORY_BIND, "0"));
    cr_expect(memory_is(1, SPW_MEMORY_PREFER, "1"));
    cr_expect(noted(SPW_PLACE_WARNING, "node 1 has 1.0 MiB available"));
}

Test(place, what_is_planned_for_another_host_is_not_carried_out, .init = two_nodes)
{
    cr_assert_eq(decide(""), 0);
    cr_expect(place.carried_out);
    cr_assert_eq(decide("--topology x.xml"), 0);
    cr_expect(!place.carried_out);
    topology.here = false;
    cr_assert_eq(decide(""), 0);
    cr_expect(!place.carried_out);
}
