/* Where a scheduler's replica lies and its thread runs, as it asks for when it attaches. */
#include "sched/handle.h"
#include "tests/support/api_rig.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <sched.h>
#include <stddef.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/support/cover.h"
#include "tests/support/deny.h"
#include "tests/support/env.h"

TestSuite(api_place, .timeout = 25);

static struct api api;
static struct spw_client *client; /* the one that attach_at() left */
static char text[256];

static const struct rig_config one_worker = {.workers = 1, .capacity = 8};

static int cpus(void)
{
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) ? -errno : CPU_COUNT(&set);
}

static struct spw_attach_options at(int32_t node, uint32_t bind, uint32_t cpu)
{
    return (struct spw_attach_options){.size_bytes = sizeof(struct spw_attach_options),
                                       .numa_node = node,
                                       .pool = "rig",
                                       .shm_dir = api.rig.dir,
                                       .uid = -1,
                                       .bind_thread = bind,
                                       .cpu = cpu};
}

static int attach_with(const struct spw_attach_options *options)
{
    spw_detach(client);
    client = NULL;
    memset(text, 'x', sizeof text - 1);
    api_pump(&api);
    int rc = spw_attach(options, &client, text, sizeof text);
    api_pump_end(&api);
    return rc;
}

/* Attach as a scheduler that wants to be there. */
static int attach_at(int32_t node, uint32_t bind, uint32_t cpu)
{
    const struct spw_attach_options options = at(node, bind, cpu);
    return attach_with(&options);
}

static void open_pool(void)
{
    api_open(&api, &one_worker);
}

static void close_pool(void)
{
    spw_detach(client);
    client = NULL;
    api_close(&api);
}

static bool get_info(struct spw_info *out)
{
    *out = (struct spw_info){.size_bytes = sizeof *out};
    return spw_get_info(client, out) == 0;
}

static struct spw_info info(void)
{
    struct spw_info got;
    cr_assert(get_info(&got));
    return got;
}

/* Where memory policies are, of everything. */
static bool is_denied(void)
{
    struct spw_info seen;
    return get_info(&seen) && (seen.replica_refused == -EPERM || seen.replica_refused == -ENOSYS);
}

static bool no_numa(void)
{
    return access("/sys/devices/system/node/node0", F_OK) != 0;
}

/* Of the replica's pages. */
static int replica_policy(void)
{
    int mode;
    return syscall(SYS_get_mempolicy, &mode, NULL, 0ul, client->views.replica.bucket,
                   2ul /* MPOL_F_ADDR */)
               ? -errno
               : mode;
}

Test(api_place, TP_1_the_replica_has_its_node_before_its_first_page_and_is_seen_there)
{
    if (no_numa())
        cr_skip("no NUMA here");
    open_pool();
    cr_assert_eq(attach_at(0, SPW_THREAD_ANYWHERE, 0), 0, "%s", text);
    if (is_denied())
        cr_skip("memory policies are denied here");
    cr_expect_eq(info().replica_refused, 0);
    cr_expect_eq(replica_policy(), 1 /* MPOL_PREFERRED */);
    cr_expect_eq(info().replica_near_permille, 1000);
    cr_expect_str_eq(text, "", "nothing to speak of");
    cr_assert_eq(attach_at(-1, SPW_THREAD_ANYWHERE, 0), 0, "%s", text);
    cr_expect_eq(replica_policy(), 0 /* MPOL_DEFAULT */);
    cr_expect_eq(info().replica_near_permille, UINT32_MAX);
    close_pool();
}

Test(api_place, a_thread_is_bound_to_one_cpu_or_to_those_of_its_node)
{
    open_pool();
    int before = cpus();
    cr_assert_eq(attach_at(-1, SPW_THREAD_ANYWHERE, 0), 0, "%s", text);
    cr_expect_eq(cpus(), before);
    int rc = attach_at(0, SPW_THREAD_ON_NODE, 0);
    if (rc == -EINVAL && no_numa())
        cr_skip("no NUMA here");
    cr_assert_eq(rc, 0, "%s", text);
    cr_expect(cpus() > 0 && cpus() <= before);
    cr_assert_eq(attach_at(0, SPW_THREAD_ON_CPU, (uint32_t)sched_getcpu()), 0, "%s", text);
    cr_expect_eq(cpus(), 1, "and it stays there");
    close_pool();
}

Test(api_place, places_that_there_are_not_are_refused_with_words_and_bind_nothing)
{
    static const struct {
        int32_t node;
        uint32_t bind, cpu;
        const char *words;
    } cases[] = {
        {-1, SPW_THREAD_ON_NODE, 0, "numa_node is -1"},
        {999, SPW_THREAD_ON_NODE, 0, "no NUMA node 999"},
        {999, SPW_THREAD_ANYWHERE, 0, "node 999"},
        {-1, SPW_THREAD_ON_CPU, 1023, "CPU 1023"},
        {-1, SPW_THREAD_ON_CPU, UINT32_MAX, "CPU"},
        {-1, 3, 0, "bind_thread 3"},
    };
    open_pool();
    int before = cpus();
    if (no_numa())
        cr_skip("no NUMA here");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        cr_expect_eq(attach_at(cases[i].node, cases[i].bind, cases[i].cpu), -EINVAL);
        cr_expect(strstr(text, cases[i].words), "%s", text);
    }
    cr_expect_eq(cpus(), before);
    close_pool();
}

Test(api_place, an_attach_that_fails_leaves_the_thread_where_it_was)
{
    open_pool();
    struct spw_attach_options options = at(-1, SPW_THREAD_ON_CPU, (uint32_t)sched_getcpu());
    int before = cpus();
    options.pool = "nothing";
    cr_expect_eq(attach_with(&options), -ENOENT);
    cr_expect_eq(cpus(), before);
    close_pool();
}

/* Built before there were such options, or such answers. */
Test(api_place, shorter_options_bind_nothing_and_a_shorter_info_is_filled_as_far_as_it_goes)
{
    struct {
        struct spw_info info;
        uint8_t behind[8];
    } old;
    const uint32_t info_bytes = offsetof(struct spw_info, replica_refused);
    open_pool();
    struct spw_attach_options options = at(-1, 77, 0);
    options.size_bytes = offsetof(struct spw_attach_options, bind_thread);
    cr_assert_eq(attach_with(&options), 0, "%s", text);
    options = at(-1, 77, 0);
    options.size_bytes = offsetof(struct spw_attach_options, now_ns);
    cr_assert_eq(attach_with(&options), 0, "the first version: %s", text);
    memset(&old, 0x5a, sizeof old);
    old.info.size_bytes = info_bytes;
    cr_assert_eq(spw_get_info(client, &old.info), 0);
    cr_expect_eq(old.info.workers, 1);
    cr_expect_eq(old.info.size_bytes, info_bytes);
    for (size_t i = info_bytes; i < sizeof old.info; i++)
        cr_expect_eq(((uint8_t *)&old.info)[i], 0x5a, "byte %zu", i);
    old.info.size_bytes = info_bytes - 1;
    cr_expect_eq(spw_get_info(client, &old.info), -EINVAL);
    old.info.size_bytes = sizeof old;
    cr_assert_eq(spw_get_info(client, &old.info), 0, "a later version");
    cr_expect_eq(old.info.size_bytes, sizeof(struct spw_info));
    close_pool();
}

/* ---- denied, in a child: 0 all as it must be, else which check failed --------------------------- */

static int without_policies(void *arg)
{
    struct spw_info seen;
    (void)arg;
    api_open(&api, &one_worker);
    if (support_deny(SYS_mbind, EPERM))
        return SUPPORT_SKIP;
    if (attach_at(0, SPW_THREAD_ON_NODE, 0) != 0)
        return 10;
    if (!strstr(text, "replica can't be put on NUMA node 0 (Operation not permitted)") ||
        strstr(text, "bound"))
        return 11;
    if (!get_info(&seen) || seen.replica_refused != -EPERM || seen.thread_refused != 0 ||
        seen.replica_near_permille != UINT32_MAX)
        return 12;
    close_pool();
    return 0;
}

static int without_affinity(void *arg)
{
    struct spw_info seen;
    int before = cpus();
    (void)arg;
    api_open(&api, &one_worker);
    if (support_deny(SYS_sched_setaffinity, EPERM))
        return SUPPORT_SKIP;
    if (attach_at(0, SPW_THREAD_ON_NODE, 0) != 0)
        return 10;
    if (is_denied())
        return SUPPORT_SKIP;
    if (!strstr(text, "this thread can't be bound (Operation not permitted)") ||
        strstr(text, "replica"))
        return 11;
    if (!get_info(&seen) || seen.thread_refused != -EPERM || seen.replica_refused != 0 ||
        cpus() != before)
        return 12;
    close_pool();
    return 0;
}

static int on_a_node_without_cpus(void *arg)
{
    struct spw_info seen;
    char root[SUPPORT_PATH_BYTES];
    int before = cpus();
    (void)arg;
    api_open(&api, &one_worker);
    if (support_shm_dir(root) || support_put(root, "/node0/cpulist", "1000\n") ||
        support_cover("/sys/devices/system/node", root))
        return SUPPORT_SKIP;
    if (attach_at(0, SPW_THREAD_ON_NODE, 0) != 0)
        return 10;
    if (is_denied())
        return SUPPORT_SKIP;
    if (!strstr(text, "NUMA node 0 has no CPU that this thread may use"))
        return 11;
    if (!get_info(&seen) || seen.thread_refused != -EADDRNOTAVAIL || seen.replica_refused != 0 ||
        cpus() != before)
        return 12;
    close_pool();
    return 0;
}

static int without_looking(void *arg)
{
    struct spw_info seen;
    (void)arg;
    api_open(&api, &one_worker);
    if (support_deny(SYS_move_pages, EPERM) || support_deny(SYS_get_mempolicy, EPERM))
        return SUPPORT_SKIP;
    if (attach_at(0, SPW_THREAD_ANYWHERE, 0) != 0)
        return 10;
    if (is_denied())
        return SUPPORT_SKIP;
    if (text[0] != '\0')
        return 11;
    if (!get_info(&seen) || seen.replica_near_permille != UINT32_MAX)
        return 12;
    close_pool();
    return 0;
}

static void in_child(int (*body)(void *))
{
    if (no_numa())
        cr_skip("no NUMA here");
    int status = support_wait(support_fork(body, NULL), 15000);
    if (status == SUPPORT_SKIP)
        cr_skip("no filter here, or memory policies are denied");
    cr_expect_eq(status, 0, "check %d failed", status);
}

Test(api_place, TP_3_denied_memory_policies_are_told_and_the_thread_is_bound)
{
    in_child(without_policies);
}

Test(api_place, TP_3_denied_affinity_is_told_and_the_replica_is_on_its_node)
{
    in_child(without_affinity);
}

Test(api_place, TP_4_a_node_without_allowed_cpus_is_told_and_binds_nothing)
{
    in_child(on_a_node_without_cpus);
}

Test(api_place, what_cant_be_looked_at_is_unknown_and_nothing_to_speak_of)
{
    in_child(without_looking);
}
