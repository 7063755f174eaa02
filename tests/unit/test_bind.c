/* tools/bind: threads bound, and that denied, or the memory beside them. */
#include "tools/bind.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "shm/region.h"
#include "tests/support/deny.h"
#include "tests/support/env.h"

TestSuite(bind, .timeout = 30);

#define PAGE 4096ull

static uint8_t *pages_of_mine(void)
{
    return mmap(NULL, 8 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
}

static int without_policies(void *arg)
{
    struct spw_memory memory = {SPW_MEMORY_BIND, {1}};
    struct spw_set first = {{0}};
    cpu_set_t before, after;
    (void)arg;
    sched_getaffinity(0, sizeof before, &before);
    for (uint32_t n = 0; n < CPU_SETSIZE && spw_set_is_empty(&first); n++)
        if (CPU_ISSET(n, &before))
            spw_set_add(&first, n);
    if (support_deny(SYS_mbind, EPERM) || support_deny(SYS_set_mempolicy, EPERM))
        return SUPPORT_SKIP;
    if (spw_region_place(pages_of_mine(), 8 * PAGE, &memory) != -EPERM)
        return 10;
    if (spw_bind_cpus(&first))
        return 11;
    sched_getaffinity(0, sizeof after, &after);
    return CPU_COUNT(&after) == 1 ? 0 : 12;
}

static int without_affinity(void *arg)
{
    struct spw_set first = {{1}};
    (void)arg;
    if (support_deny(SYS_sched_setaffinity, ENOSYS))
        return SUPPORT_SKIP;
    return spw_bind_cpus(&first) == -ENOSYS ? 0 : 10;
}

static void in_child(int (*body)(void *))
{
    int status = support_wait(support_fork(body, NULL), 10000);
    if (status == SUPPORT_SKIP)
        cr_skip("this machine doesn't allow it");
    cr_expect_eq(status, 0);
}

Test(bind, TP_3_threads_are_bound_where_memory_policies_are_denied)
{
    in_child(without_policies);
}

Test(bind, TP_3_denied_affinity_is_an_errno)
{
    in_child(without_affinity);
}

Test(bind, an_empty_set_binds_nothing)
{
    cr_expect_eq(spw_bind_cpus(&(struct spw_set){{0}}), -EINVAL);
}

Test(bind, TP_3_what_is_missing_is_named)
{
    cr_expect(strstr(spw_bind_missing(-EPERM), "CAP_SYS_NICE"));
    cr_expect(strstr(spw_bind_missing(-ENOSYS), "seccomp"));
}
