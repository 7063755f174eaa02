/* A pool on this host's nodes: what is bound, what is said, and what goes on where that is denied. */
#include "tests/process/proc.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <jansson.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/support/deny.h"

TestSuite(process_place, .timeout = 60);

static struct proc_pool pool;
static char out[65536];

/* What stat says of a worker's place under @key, as text. */
static const char *placed(uint32_t k, const char *key)
{
    static char text[64];
    text[0] = '\0';
    if (proc_spillway(&pool, "stat", true, out, sizeof out) != 0)
        return text;
    json_t *root = json_loads(out, JSON_DISABLE_EOF_CHECK, NULL);
    json_t *place = json_object_get(json_array_get(json_object_get(root, "workers"), k), "place");
    json_t *value = json_object_get(place, key);
    if (json_is_string(value))
        snprintf(text, sizeof text, "%s", json_string_value(value));
    else if (json_is_integer(value))
        snprintf(text, sizeof text, "%lld", (long long)json_integer_value(value));
    else
        snprintf(text, sizeof text, "null");
    json_decref(root);
    return text;
}

static bool is(uint32_t k, const char *key, const char *want)
{
    const char *have = placed(k, key);
    if (strcmp(have, want) == 0)
        return true;
    fprintf(stderr, "worker %u: %s is %s, not %s\n", k, key, have, want);
    return false;
}

static int cpus_of(uint32_t k)
{
    cpu_set_t set;
    pid_t pid = (pid_t)spw_load_relaxed(&pool.seen->ctl->worker[k].pid);
    return sched_getaffinity(pid, sizeof set, &set) ? -errno : CPU_COUNT(&set);
}

/* The CPUs that this process may use: how many, and the number of the @nth of them. */
static int allowed_cpus(int nth, int *out_cpu)
{
    cpu_set_t set;
    cr_assert_eq(sched_getaffinity(0, sizeof set, &set), 0);
    for (int cpu = 0; out_cpu && cpu < CPU_SETSIZE && nth >= 0; cpu++)
        if (CPU_ISSET(cpu, &set) && nth-- == 0)
            *out_cpu = cpu;
    return CPU_COUNT(&set);
}

Test(process_place, TP_1_a_shard_is_on_its_node_and_the_choice_is_said)
{
    cr_assert(proc_start(
        &pool,
        &(struct proc_config){.workers = 2, .listen = true, .more = {"--gpu-node", "0,auto"}}));
    if (!is(0, "mem_bind", "bound"))
        cr_skip("memory policies are denied here");
    cr_expect(proc_said(&pool, "; place: worker 0: no GPU, node 0 (configured), CPUs "));
    cr_expect(proc_said(&pool, "; place: worker 1: no GPU, no node, CPUs any"));
    cr_expect(is(0, "node", "0") && is(0, "near_permille", "1000") && is(0, "cpu_bind", "bound"));
    cr_expect(is(1, "node", "null") && is(1, "mem_bind", "unbound"));
    cr_expect_eq(proc_spillway(&pool, "ls", false, out, sizeof out), 0);
    cr_expect(strstr(out, "100.0 %"), "%s", out);
    cr_expect_eq(proc_stop(&pool, SIGTERM), 0);
    proc_close(&pool);
}

Test(process_place, without_a_gpu_nothing_is_bound_and_nothing_is_said)
{
    cr_assert(
        proc_start(&pool, &(struct proc_config){.listen = true, .more = {"--copier", "host"}}));
    cr_expect(is(0, "node", "null") && is(0, "cpu_bind", "unbound"));
    cr_expect_eq(cpus_of(0), allowed_cpus(0, NULL));
    cr_expect_eq(proc_stop(&pool, SIGTERM), 0);
    cr_expect_eq(proc_said_count(&pool, "; place:"), 0, "%s", pool.words);
    proc_close(&pool);
}

Test(process_place, TP_5_a_worker_keeps_to_its_cpus_and_so_does_its_successor)
{
    int first, second;
    char own[16], others[24], excluded[16];
    if (allowed_cpus(0, &first) < 2)
        cr_skip("one CPU");
    int count = allowed_cpus(1, &second);
    snprintf(own, sizeof own, "%d", second);
    snprintf(others, sizeof others, "%d/auto", second);
    snprintf(excluded, sizeof excluded, "%d", first);
    cr_assert(proc_start(
        &pool, &(struct proc_config){
                   .workers = 2, .more = {"--worker-cpus", others, "--exclude-cpus", excluded}}));
    cr_expect_eq(cpus_of(0), 1);
    cr_expect_eq(cpus_of(1), count - 1);
    uint64_t before = proc_incarnation(&pool, 0);
    proc_signal_worker(&pool, 0, SIGKILL);
    cr_assert(proc_await_successor(&pool, 0, before));
    cr_expect_eq(cpus_of(0), 1);
    cr_expect(is(0, "cpus", own) && is(0, "cpu_bind", "bound"));
    cr_expect_eq(proc_stop(&pool, SIGTERM), 0);
    proc_close(&pool);
}

/* In a child: 0 all as it must be, else which check failed. */
static int under_denied_policies(void *arg)
{
    struct proc_config config = {
        .workers = 2, .listen = true, .more = {"--gpu-node", "0,0", "--worker-cpus", arg}};
    if (support_deny(SYS_mbind, EPERM) || support_deny(SYS_set_mempolicy, EPERM))
        return SUPPORT_SKIP;
    if (!proc_start(&pool, &config))
        return 10;
    if (!is(0, "mem_bind", "denied") || !is(1, "mem_bind", "denied"))
        return 11;
    if (!is(0, "cpu_bind", "bound") || cpus_of(0) != 1 || cpus_of(1) != 1)
        return 12;
    if (proc_stop(&pool, SIGTERM) != 0)
        return 13;
    if (proc_said_count(&pool, "CAP_SYS_NICE") != 1 ||
        proc_said_count(&pool, "warning: placement") != 1)
        return 14;
    proc_close(&pool);
    return 0;
}

static int strict_under_denied_policies(void *arg)
{
    const char *dir = arg;
    const char *argv[] = {SPW_PROC_SPILLWAYD, "--shm-dir", dir,       "--gpu-node", "0",
                          "--placement",      "strict",    "--quiet", NULL};
    if (support_deny(SYS_mbind, EPERM))
        return SUPPORT_SKIP;
    int status = proc_run(argv, out, sizeof out, PROC_LIMIT_MS);
    fputs(out, stderr);
    if (status != 1)
        return 10;
    if (!strstr(out, "error: placement") || !strstr(out, "CAP_SYS_NICE") || !strstr(out, "seccomp"))
        return 11;
    return support_count_names(dir) == 0 ? 0 : 12;
}

static int under_denied_affinity(void *arg)
{
    struct proc_config config = {.workers = 2, .listen = true, .more = {"--worker-cpus", arg}};
    if (support_deny(SYS_sched_setaffinity, EPERM))
        return SUPPORT_SKIP;
    if (!proc_start(&pool, &config))
        return 10;
    if (!is(0, "cpu_bind", "denied"))
        return 11;
    if (proc_stop(&pool, SIGTERM) != 0)
        return 12;
    if (proc_said_count(&pool, "sched_setaffinity") != 1)
        return 13;
    proc_close(&pool);
    return 0;
}

/* One CPU for both workers, in words for --worker-cpus. */
static char *one_cpu_for_both(void)
{
    static char text[32];
    int first = 0;
    allowed_cpus(0, &first);
    snprintf(text, sizeof text, "%d/%d", first, first);
    return text;
}

static void in_child(int (*body)(void *), void *arg)
{
    int status = support_wait(support_fork(body, arg), 40000);
    if (status == SUPPORT_SKIP)
        cr_skip("no filter here");
    cr_expect_eq(status, 0, "check %d failed", status);
}

Test(process_place, TP_3_denied_policies_are_one_warning_and_threads_are_bound)
{
    in_child(under_denied_policies, one_cpu_for_both());
}

Test(process_place, TP_3_strict_ends_naming_what_is_missing_and_leaves_nothing)
{
    char dir[SUPPORT_PATH_BYTES];
    cr_assert_eq(support_shm_dir(dir), 0);
    in_child(strict_under_denied_policies, dir);
}

Test(process_place, TP_3_denied_affinity_is_one_warning)
{
    in_child(under_denied_affinity, one_cpu_for_both());
}

Test(process_place, a_plan_for_another_host_runs_and_places_nothing)
{
    cr_assert(proc_start(
        &pool, &(struct proc_config){
                   .listen = true,
                   .more = {"--topology", "synthetic:pack:2 [numa] pu:4", "--gpu-node", "1"}}));
    cr_expect(proc_said(&pool, "nothing is placed"));
    cr_expect(is(0, "node", "null") && is(0, "cpu_bind", "unbound"));
    cr_expect_eq(proc_stop(&pool, SIGTERM), 0);
    proc_close(&pool);
}

static int check(const char *topology, const char *more, const char *value)
{
    const char *argv[] = {SPW_PROC_SPILLWAY, "check",      "--copier", "cuda", "--workers", "8",
                          "--json",          "--topology", topology,   more,   value,       NULL};
    return proc_run(argv, out, sizeof out, PROC_LIMIT_MS);
}

Test(process_place, TP_1_check_prints_the_map_of_another_host)
{
    cr_assert_eq(check(TOPOLOGIES "/two_packages.xml", NULL, NULL), 0, "%s", out);
    json_t *root = json_loads(out, 0, NULL), *map = json_object_get(root, "placement");
    cr_assert_eq(json_array_size(map), 8, "%s", out);
    json_t *last = json_array_get(map, 7);
    cr_expect_str_eq(json_string_value(json_object_get(last, "address")), "0000:80:00.0");
    cr_expect_eq(json_integer_value(json_object_get(last, "node")), 1);
    cr_expect_str_eq(json_string_value(json_object_get(last, "node_from")), "detected");
    cr_expect_str_eq(json_string_value(json_object_get(last, "cpus")), "8-15");
    cr_expect_str_eq(json_string_value(json_object_get(last, "memory")), "bind");
    cr_expect_str_eq(json_string_value(json_object_get(last, "memory_nodes")), "1");
    json_decref(root);
}

Test(process_place, TP_2_check_says_once_that_nodes_are_unknown)
{
    cr_assert_eq(check(TOPOLOGIES "/node_unknown.xml", NULL, NULL), 0, "%s", out);
    const char *first = strstr(out, "of workers 0-7 is unknown");
    cr_assert(first, "%s", out);
    cr_expect(!strstr(first + strlen("of workers 0-7 is unknown"), "is unknown"));
    cr_expect(strstr(out, "\"memory\": \"interleave\""), "%s", out);
}

Test(process_place, a_topology_that_makes_no_sense_is_refused)
{
    cr_expect_eq(check("/nowhere.xml", NULL, NULL), 1);
    cr_expect(strstr(out, "/nowhere.xml"), "%s", out);
    cr_expect_eq(check(TOPOLOGIES "/two_packages.xml", "--gpu-node", "0,0,0,0,1,1,1,5"), 1);
    cr_expect(strstr(out, "no node 5"), "%s", out);
}
