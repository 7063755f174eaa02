/* Hosts that aren't here, as spillwayd meets them: sysfs shows two nodes with a CPU each and a GPU on each,
 * and the driver is a stand-in. Memory of node 1 there is none; the kernel doesn't allow it. */
#include "tests/process/gpu_pool.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/cover.h"

TestSuite(place_host, .timeout = 60);

#define NODES "/sys/devices/system/node"
#define PCI   "/sys/bus/pci/devices"

static char out[65536];

/* What a test makes of the host, before it is covered. */
struct host {
    const char *numa_node[2];  /* of the GPUs, as sysfs has it */
    const char *local_cpus[2]; /* NULL: no such file           */
};

static const struct host one_each = {{"0\n", "1\n"}, {"1\n", "2\n"}};
static const struct host unknown = {{"-1\n", "-1\n"}, {NULL, NULL}};

static void put_node(const char *root, unsigned n)
{
    char path[64], text[128];
    snprintf(path, sizeof path, "/node/node%u/meminfo", n);
    snprintf(text, sizeof text, "Node %u MemTotal: 8000000 kB\nNode %u MemFree: 8000000 kB\n", n,
             n);
    support_put(root, path, text);
    snprintf(path, sizeof path, "/node/node%u/cpulist", n);
    support_put(root, path, n ? "1\n" : "0\n");
    snprintf(path, sizeof path, "/node/node%u/cpumap", n);
    support_put(root, path, n ? "2\n" : "1\n");
    snprintf(path, sizeof path, "/node/node%u/distance", n);
    support_put(root, path, n ? "20 10\n" : "10 20\n");
}

static void put_gpu(const char *root, const char *bus, const char *numa_node,
                    const char *local_cpus)
{
    char path[96];
    const char *const file[][2] = {{"vendor", "0x10de\n"},
                                   {"class", "0x030200\n"},
                                   {"numa_node", numa_node},
                                   {"local_cpus", local_cpus}};
    for (size_t i = 0; i < 4; i++) {
        snprintf(path, sizeof path, "/pci/%s/%s", bus, file[i][0]);
        if (file[i][1])
            support_put(root, path, file[i][1]);
    }
}

/* On @cpus alone, with all that is started from here; false: they may not be used. */
static bool run_on(uint64_t cpus)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    for (unsigned n = 0; n < 64; n++)
        if (cpus >> n & 1)
            CPU_SET(n, &set);
    return sched_setaffinity(0, sizeof set, &set) == 0 &&
           sched_getaffinity(0, sizeof set, &set) == 0 &&
           CPU_COUNT(&set) == __builtin_popcountll(cpus);
}

/* In a child: 0 or SUPPORT_SKIP. */
static int cover(const struct host *host)
{
    static const char *const lists[] = {"online", "possible", "has_cpu", "has_memory",
                                        "has_normal_memory"};
    char root[SUPPORT_PATH_BYTES], path[SUPPORT_PATH_BYTES + 8];
    if (access(NODES, F_OK) || access(PCI, F_OK) || !run_on(3) || support_shm_dir(root))
        return SUPPORT_SKIP;
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        snprintf(path, sizeof path, "/node/%s", lists[i]);
        support_put(root, path, "0-1\n");
    }
    put_node(root, 0);
    put_node(root, 1);
    put_gpu(root, "0000:10:00.0", host->numa_node[0], host->local_cpus[0]);
    put_gpu(root, "0000:90:00.0", host->numa_node[1], host->local_cpus[1]);
    snprintf(path, sizeof path, "%s/node", root);
    if (support_cover(NODES, path))
        return SUPPORT_SKIP;
    snprintf(path, sizeof path, "%s/pci", root);
    return support_cover(PCI, path) ? SUPPORT_SKIP : 0;
}

/* Two workers on the stand-in. */
static bool start(const char *more, const char *value)
{
    struct proc_config config = gpu_pool_config(2, more, value);
    return proc_start(&gpu_pool, &config);
}

/* The same, and the driver counts from the other end. */
static bool start_reordered(const char *more, const char *value)
{
    struct proc_config config = gpu_pool_config(2, more, value);
    setenv("FAKE_CUDA_DEVICES", GPU_B "@0000:90:00.0," GPU_A "@0000:10:00.0", 1);
    return proc_start(&gpu_pool, &config);
}

/* Does every thread of worker @k run on @cpus alone? */
static bool runs_on(uint32_t k, uint64_t cpus)
{
    char path[64];
    bool all = true;
    uint32_t threads = 0;
    snprintf(path, sizeof path, "/proc/%d/task",
             (int)spw_load_relaxed(&gpu_pool.seen->ctl->worker[k].pid));
    DIR *dir = opendir(path);
    for (struct dirent *entry; dir && (entry = readdir(dir));) {
        cpu_set_t set;
        if (entry->d_name[0] == '.')
            continue;
        if (sched_getaffinity(atoi(entry->d_name), sizeof set, &set))
            continue; /* it has ended */
        threads++;
        for (unsigned n = 0; n < 64; n++)
            all &= (CPU_ISSET(n, &set) != 0) == (cpus >> n & 1);
    }
    if (dir)
        closedir(dir);
    return all && threads > 1;
}

static bool says(const char *command, const char *words)
{
    if (proc_spillway(&gpu_pool, command, false, out, sizeof out) == 0 && strstr(out, words))
        return true;
    fprintf(stderr, "%s lacks \"%s\":\n%s", command, words, out);
    return false;
}

/* To the end of it; false: it wasn't a clean one. */
static bool stopped(void)
{
    return proc_stop(&gpu_pool, SIGTERM) == 0;
}

static bool said(const char *words)
{
    return proc_said(&gpu_pool, words);
}

static uint32_t said_count(const char *words)
{
    return proc_said_count(&gpu_pool, words);
}

static int finish(void)
{
    proc_close(&gpu_pool);
    return 0;
}

static void in_child(int (*body)(void *))
{
    int status = support_wait(support_fork(body, NULL), 50000);
    if (status == SUPPORT_SKIP)
        cr_skip("folders of sysfs can't be covered here");
    cr_expect_eq(status, 0, "check %d failed", status);
}

/* ---- each with what the failure case says ------------------------------------------------------- */

static int each_on_its_node(void *arg)
{
    (void)arg;
    if (cover(&one_each))
        return SUPPORT_SKIP;
    if (!start(NULL, NULL))
        return 10;
    if (!said("GPU at 0000:10:00.0, node 0 (detected), CPUs 0 (of its node), "
              "memory on node 0") ||
        !said("GPU at 0000:90:00.0, node 1 (detected), CPUs 1 (of its node)"))
        return 11;
    if (!runs_on(0, 1) || !runs_on(1, 2))
        return 12;
    if (!says("stat", "100.0 %"))
        return 13;
    uint64_t before = proc_incarnation(&gpu_pool, 1);
    proc_signal_worker(&gpu_pool, 1, SIGKILL);
    if (!proc_await_successor(&gpu_pool, 1, before) || !runs_on(1, 2))
        return 14;
    if (!stopped() || said_count("another") || said_count("its place was chosen"))
        return 15;
    return finish();
}

Test(place_host, TP_1_each_worker_and_all_its_threads_run_on_the_node_of_its_gpu)
{
    in_child(each_on_its_node);
}

/* What worker @k was started with. */
static bool has_in_environment(uint32_t k, const char *entry)
{
    static char text[65536];
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/environ",
             (int)spw_load_relaxed(&gpu_pool.seen->ctl->worker[k].pid));
    FILE *file = fopen(path, "re");
    size_t bytes = file ? fread(text, 1, sizeof text, file) : 0;
    if (file)
        fclose(file);
    return memmem(text, bytes, entry, strlen(entry) + 1) != NULL;
}

static int the_other_first(void *arg)
{
    (void)arg;
    if (cover(&one_each))
        return SUPPORT_SKIP;
    setenv("CUDA_VISIBLE_DEVICES", "1,0", 1);
    setenv("CUDA_DEVICE_ORDER", "FASTEST_FIRST", 1);
    if (!start(NULL, NULL))
        return 10;
    if (!runs_on(0, 2) || !runs_on(1, 1))
        return 11;
    if (!has_in_environment(0, "CUDA_DEVICE_ORDER=PCI_BUS_ID"))
        return 12;
    if (!stopped() || said_count("its place was chosen"))
        return 13;
    return finish();
}

Test(place_host, CU_7_ordinals_are_those_that_the_daemon_may_see_in_the_order_of_their_addresses)
{
    in_child(the_other_first);
}

static int unknown_nodes(void *arg)
{
    (void)arg;
    if (cover(&unknown))
        return SUPPORT_SKIP;
    if (!start(NULL, NULL))
        return 10;
    if (!says("stat", "unknown (interleaved)") || !says("ls", "unknown (interleaved)"))
        return 11;
    if (!runs_on(0, 3))
        return 12;
    if (!stopped() || said_count("of workers 0-1 is unknown") != 1 ||
        said_count("is unknown") != 1 || said_count("mbind"))
        return 13;
    return finish();
}

Test(place_host, TP_2_unknown_nodes_start_are_shown_and_told_once)
{
    in_child(unknown_nodes);
}

static int unknown_but_named(void *arg)
{
    (void)arg;
    if (cover(&unknown))
        return SUPPORT_SKIP;
    if (!start("--gpu-node", "1,0"))
        return 10;
    if (!said("node 1 (configured), CPUs 1 (of its node)") || !runs_on(0, 2) || !runs_on(1, 1))
        return 11;
    if (!stopped())
        return 12;
    return finish();
}

Test(place_host, TP_2_a_node_that_is_named_is_used)
{
    in_child(unknown_but_named);
}

static int on_node_0_alone(void *arg)
{
    (void)arg;
    if (cover(&one_each) || !run_on(1))
        return SUPPORT_SKIP;
    if (!start(NULL, NULL))
        return 10;
    if (!said("info: placement: worker 1: none of its node's CPUs may be used") || !runs_on(1, 1))
        return 11;
    if (!said("warning: placement: worker 1: the memory of its node may not be used"))
        return 12;
    if (!says("stat", "elsewhere"))
        return 13;
    if (!stopped() || said_count("error"))
        return 14;
    return finish();
}

Test(place_host, TP_4_without_cpus_or_memory_of_its_node_a_worker_has_those_that_are_allowed)
{
    in_child(on_node_0_alone);
}

static int in_another_order(void *arg)
{
    (void)arg;
    if (cover(&one_each))
        return SUPPORT_SKIP;
    if (!start_reordered(NULL, NULL))
        return 10;
    if (!said("worker 0 copies by the GPU at 0000:90:00.0, but its place was chosen for "
              "the one at 0000:10:00.0; name GPUs by UUID or PCI address (--gpu)"))
        return 11;
    uint64_t before = proc_incarnation(&gpu_pool, 0);
    proc_signal_worker(&gpu_pool, 0, SIGKILL);
    if (!proc_await_successor(&gpu_pool, 0, before))
        return 12;
    if (!stopped() || said_count("worker 0 copies by the GPU at") != 1)
        return 13;
    finish();
    /* the remedy */
    if (!start_reordered("--gpu", "0000:10:00.0,0000:90:00.0"))
        return 14;
    if (!stopped() || said_count("its place was chosen"))
        return 15;
    return finish();
}

Test(place_host, CU_7_a_driver_that_counts_otherwise_is_told_with_both_addresses_and_the_remedy)
{
    in_child(in_another_order);
}
