/* tools/topology: hosts that aren't here, from files and strings, and what sysfs adds. */
#include "tools/topology.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "tests/support/cover.h"
#include "tests/support/env.h"

TestSuite(topology, .timeout = 30);

#define GPU(n) (0x1000ull + 0x1000ull * (n)) /* as tests/data/topology/make.py numbers them */

static struct spw_topology topology;
static char root[SUPPORT_PATH_BYTES];

static void load(const char *source, const char *with_root)
{
    struct spw_topology_config config = {.source = source, .root = with_root};
    struct spw_error err = {0};
    cr_assert_eq(spw_topology_load(&config, &topology, &err), 0, "%s", err.text);
}

static void load_file(const char *name, const char *with_root)
{
    char path[512];
    snprintf(path, sizeof path, TOPOLOGIES "/%s.xml", name);
    load(path, with_root);
}

/* A file of the made-up host. */
static void put(const char *path, const char *text)
{
    cr_assert_eq(support_put(root, path, text), 0, "%s", path);
}

static const char *text_of(const struct spw_set *set)
{
    static char text[4][64];
    static unsigned next;
    char *out = text[next++ % 4];
    return spw_set_print(set, out, sizeof text[0]);
}

Test(topology, two_packages_have_eight_gpus_four_on_each_node)
{
    load_file("two_packages", NULL);
    cr_expect(!topology.here);
    cr_expect_eq(topology.node_count, 2);
    cr_expect_str_eq(text_of(&topology.node[1].cpus), "8-15");
    cr_expect(topology.node[1].normal);
    cr_expect_str_eq(text_of(&topology.cpus), "0-15");
    cr_assert_eq(topology.gpu_count, 8);
    for (uint32_t i = 0; i < 8; i++) {
        cr_expect_eq(topology.gpu[i].bus, GPU(i));
        cr_expect_eq(topology.gpu[i].source, SPW_TOPOLOGY_HWLOC);
        cr_expect_eq(topology.gpu[i].node, i / 4);
    }
}

Test(topology, four_nodes_have_one_gpu_each)
{
    load_file("four_nodes", NULL);
    cr_assert_eq(topology.gpu_count, 4);
    for (uint32_t i = 0; i < 4; i++)
        cr_expect_eq(topology.gpu[i].node, i);
}

Test(topology, TP_2_a_gpu_below_the_whole_machine_is_on_no_node_that_is_known)
{
    load_file("node_unknown", NULL);
    cr_assert_eq(topology.gpu_count, 8);
    for (uint32_t i = 0; i < 8; i++)
        cr_expect_eq(topology.gpu[i].source, SPW_TOPOLOGY_NOBODY);
}

Test(topology, TP_2_what_hwloc_doesnt_tell_sysfs_may)
{
    cr_assert_eq(support_shm_dir(root), 0);
    put("/proc/driver/nvidia/gpus/0000:10:00.0/information",
        "Model: \t\t X\nGPU UUID: \t GPU-aaaaaaaa-0000-0000-0000-000000000001\n");
    put("/proc/driver/nvidia/gpus/0000:20:00.0/information", "Model: \t\t X\n");
    put("/sys/bus/pci/devices/0000:10:00.0/numa_node", "1\n");
    put("/proc/driver/nvidia/gpus/0000:30:00.0/information", "Model: \t\t X\n");
    put("/sys/bus/pci/devices/0000:20:00.0/numa_node", "-1\n");
    put("/sys/bus/pci/devices/0000:30:00.0/numa_node", "0\n");
    load_file("node_unknown", root);
    cr_assert_eq(topology.gpu_count, 3, "the driver's list is all there is");
    cr_expect(topology.gpus_listed);
    cr_expect(topology.gpu[0].has_uuid && topology.gpu[0].uuid[15] == 1);
    cr_expect(!topology.gpu[1].has_uuid);
    cr_expect_eq(topology.gpu[0].source, SPW_TOPOLOGY_SYSFS);
    cr_expect_eq(topology.gpu[0].node, 1);
    cr_expect_eq(topology.gpu[1].source, SPW_TOPOLOGY_NOBODY, "-1 is no number");
    cr_expect_eq(topology.gpu[2].source, SPW_TOPOLOGY_SYSFS);
    cr_expect_eq(topology.gpu[2].node, 0, "not one of those that hwloc can't decide between");
}

Test(topology, TP_6_without_devices_in_it_gpus_are_found_by_sysfs)
{
    cr_assert_eq(support_shm_dir(root), 0);
    put("/sys/bus/pci/devices/0000:50:00.0/vendor", "0x10de\n");
    put("/sys/bus/pci/devices/0000:50:00.0/class", "0x030200\n");
    put("/sys/bus/pci/devices/0000:50:00.0/numa_node", "1\n");
    put("/sys/bus/pci/devices/0000:10:00.0/vendor", "0x10de\n");
    put("/sys/bus/pci/devices/0000:10:00.0/class", "0x030000\n");
    put("/sys/bus/pci/devices/0000:51:00.0/vendor", "0x10de\n"); /* its sound */
    put("/sys/bus/pci/devices/0000:51:00.0/class", "0x040300\n");
    put("/sys/bus/pci/devices/0000:52:00.0/vendor", "0x8086\n");
    put("/sys/bus/pci/devices/0000:52:00.0/class", "0x030000\n");
    load_file("no_devices", NULL);
    cr_expect_eq(topology.gpu_count, 0);
    load_file("no_devices", root);
    cr_assert_eq(topology.gpu_count, 2);
    cr_expect(!topology.gpus_listed);
    cr_expect_eq(topology.gpu[0].bus, GPU(0), "by address");
    cr_expect_eq(topology.gpu[0].source, SPW_TOPOLOGY_NOBODY);
    cr_expect_eq(topology.gpu[1].bus, GPU(4));
    cr_expect_eq(topology.gpu[1].node, 1);
}

Test(topology, TP_4_what_may_not_be_used_is_seen_and_not_allowed)
{
    load_file("node_0_alone", NULL);
    cr_expect_eq(topology.node_count, 2);
    cr_expect_str_eq(text_of(&topology.node[1].cpus), "8-15");
    cr_expect_str_eq(text_of(&topology.cpus), "0-7");
    cr_expect_str_eq(text_of(&topology.nodes), "0");
    cr_expect_eq(topology.gpu[7].node, 1);
}

Test(topology, TP_7_cpus_near_a_memory_node_are_not_its_own)
{
    load_file("memory_nodes", NULL);
    cr_assert_eq(topology.node_count, 4);
    cr_expect_str_eq(text_of(&topology.node[0].cpus), "0-7");
    cr_expect_str_eq(text_of(&topology.node[1].cpus), "8-15");
    cr_expect(spw_set_is_empty(&topology.node[2].cpus));
    cr_expect(spw_set_is_empty(&topology.node[3].cpus));
    cr_expect_eq(topology.gpu[0].node, 0);
    load("synthetic:pack:2 [numa(memory=64GB)] [numa(memory=16GB)] core:4 pu:1", NULL);
    cr_assert_eq(topology.node_count, 4);
    cr_expect(!spw_set_is_empty(&topology.node[0].cpus));
    cr_expect(spw_set_is_empty(&topology.node[1].cpus));
}

Test(topology, TP_7_sysfs_says_which_nodes_have_cpus_and_normal_memory)
{
    cr_assert_eq(support_shm_dir(root), 0);
    put("/sys/devices/system/node/has_cpu", "1\n");
    put("/sys/devices/system/node/has_normal_memory", "0\n");
    put("/sys/devices/system/node/node1/meminfo",
        "Node 1 MemTotal:  9999 kB\nNode 1 MemFree:  100 kB\nNode 1 Active(file):  20 kB\n"
        "Node 1 Inactive(file):  3 kB\n");
    load_file("two_packages", root);
    cr_expect(spw_set_is_empty(&topology.node[0].cpus) && topology.node[0].normal);
    cr_expect(!spw_set_is_empty(&topology.node[1].cpus) && !topology.node[1].normal);
    cr_expect_eq(topology.node[0].available_bytes, SPW_TOPOLOGY_UNKNOWN);
    cr_expect_eq(topology.node[1].available_bytes, 123 * 1024);
}

Test(topology, this_host_is_here_and_has_a_cpu_and_a_node)
{
    load("", "");
    cr_expect(topology.here);
    cr_expect(!spw_set_is_empty(&topology.cpus));
    cr_expect_geq(topology.node_count, 1);
}

Test(topology, a_synthetic_node_whose_memory_isnt_said_has_some)
{
    load("synthetic:pack:2 [numa] core:4 pu:1", NULL);
    cr_assert_eq(topology.node_count, 2);
    cr_expect(topology.node[0].normal && topology.node[1].normal);
}

Test(topology, nonsense_is_refused_with_its_name)
{
    static const char *const bad[] = {"/nowhere/host.xml", "synthetic:", "synthetic:nonsense:3",
                                      "/dev/null"};
    struct spw_error err = {0};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct spw_topology_config config = {.source = bad[i]};
        cr_expect_eq(spw_topology_load(&config, &topology, &err), -EINVAL, "%s", bad[i]);
        cr_expect(strstr(err.text, bad[i]), "%s", err.text);
    }
}

Test(topology, sets_are_written_as_the_kernel_writes_them)
{
    static const char *const good[] = {"0", "0-3", "0-3,8", "1,3,5-7,1023"};
    static const char *const bad[] = {"1024", "3-1", "-1",  "a",          "1,",
                                      ",1",   "1-",  "1 2", "99999999999"};
    struct spw_set set;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        cr_expect(spw_set_parse(good[i], strlen(good[i]), &set), "%s", good[i]);
        cr_expect_str_eq(text_of(&set), good[i]);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        cr_expect(!spw_set_parse(bad[i], strlen(bad[i]), &set), "%s", bad[i]);
    cr_expect(spw_set_parse("", 0, &set) && spw_set_is_empty(&set));
    cr_expect_str_eq(text_of(&set), "none");
}
