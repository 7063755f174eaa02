/* shm/region: on which node an object lies, before its first page. */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "shm/crash_point.h"
#include "shm/region.h"
#include "tests/support/deny.h"
#include "tests/support/env.h"

TestSuite(region_place, .timeout = 30);

static struct spw_pool_path path;

static void make_dir(void)
{
    char dir[SUPPORT_PATH_BYTES];
    cr_assert_eq(support_shm_dir(dir), 0);
    cr_assert_eq(spw_pool_path_init(&path, dir, "test", (uint32_t)geteuid(), NULL), 0);
}

static const struct spw_memory on_node_0 = {SPW_MEMORY_BIND, {1}};

static int create_placed(const struct spw_memory *memory, struct spw_region *out)
{
    struct spw_region_config config = {.path = &path,
                                       .kind = SPW_REGION_DATA,
                                       .size_bytes = 1 << 20,
                                       .mode = 0600,
                                       .gid = -1,
                                       .memory = memory};
    return spw_region_create(&config, out, NULL);
}

/* Of the page at @at, as whoever maps it sees it; a negative errno. */
static int policy_of(void *at)
{
    int mode;
    return syscall(SYS_get_mempolicy, &mode, NULL, 0ul, at, 2ul /* MPOL_F_ADDR */) ? -errno : mode;
}

Test(region_place, the_object_keeps_its_nodes_for_whoever_maps_it)
{
    make_dir();
    struct spw_region made, mapped;
    struct spw_memory kinds[] = {{SPW_MEMORY_BIND, {1}},
                                 {SPW_MEMORY_PREFER, {1}},
                                 {SPW_MEMORY_INTERLEAVE, {1}},
                                 {SPW_MEMORY_ANY, {0}}};
    const int modes[] = {2, 1, 3, 0}; /* MPOL_BIND, MPOL_PREFERRED, MPOL_INTERLEAVE, MPOL_DEFAULT */
    for (size_t i = 0; i < 4; i++) {
        cr_assert_eq(create_placed(&kinds[i], &made), 0);
        if (made.memory_rc == -EPERM || made.memory_rc == -ENOSYS)
            cr_skip("memory policies are denied here");
        cr_expect_eq(made.memory_rc, 0);
        spw_region_publish(&made);
        cr_assert_eq(spw_region_attach(&path, SPW_REGION_DATA, 0, false, 0, &mapped, NULL), 0);
        cr_expect_eq(policy_of(mapped.header), modes[i], "kind %zu", i);
        spw_region_detach(&mapped);
        spw_region_detach(&made);
        spw_region_unlink(&path, SPW_REGION_DATA, 0, NULL, NULL);
    }
}

Test(region_place, a_node_that_there_is_not_is_told_and_the_object_is_made)
{
    make_dir();
    struct spw_region region;
    struct spw_memory nowhere = {SPW_MEMORY_BIND, {0, 0, 0, 1}};
    cr_assert_eq(create_placed(&nowhere, &region), 0);
    cr_expect_lt(region.memory_rc, 0);
    memset(region.header + 1, 1, 1 << 16);
    spw_region_detach(&region);
}

static int create_where_denied(void *arg)
{
    struct spw_region region;
    (void)arg;
    if (support_deny(SYS_mbind, EPERM))
        return SUPPORT_SKIP;
    if (create_placed(&on_node_0, &region))
        return 10;
    return region.memory_rc == -EPERM ? 0 : 11;
}

Test(region_place, where_nobody_may_choose_the_object_is_made_and_that_is_told)
{
    make_dir();
    int status = support_wait(support_fork(create_where_denied, NULL), 10000);
    if (status == SUPPORT_SKIP)
        cr_skip("no seccomp here");
    cr_expect_eq(status, 0);
}

#ifdef SPW_CRASH_POINTS
static int die_once_created(void *arg)
{
    struct spw_region region;
    (void)arg;
    spw_crash_arm("region.created", 1);
    create_placed(&on_node_0, &region);
    return 1;
}

Test(region_place, TP_1_an_object_has_its_node_before_its_first_page)
{
    make_dir();
    char name[SPW_PATH_BYTES];
    struct stat st;
    cr_assert_eq(support_wait(support_fork(die_once_created, NULL), 10000),
                 SUPPORT_SIGNALLED + SIGKILL);
    spw_region_name(&path, SPW_REGION_DATA, 0, name);
    int fd = open(name, O_RDWR);
    cr_assert(fd >= 0 && fstat(fd, &st) == 0);
    cr_expect_eq(st.st_blocks, 0, "no page is there yet");
    void *at = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
    cr_assert_neq(at, MAP_FAILED);
    int mode = policy_of(at);
    cr_expect(mode == 2 || mode == -EPERM || mode == -ENOSYS, "%d", mode);
}
#endif
