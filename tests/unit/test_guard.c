/* shm/guard and the regions it watches: objects cut, removed and made anew under a mapping. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shm/guard.h"
#include "shm/region.h"
#include "tests/support/env.h"

TestSuite(guard, .timeout = 30);

#define PAGE  4096u
#define PAGES 8u

static struct spw_pool_path path;
static struct spw_region_config config;

static void start(void)
{
    char dir[SUPPORT_PATH_BYTES];
    cr_assert_eq(support_shm_dir(dir), 0);
    cr_assert_eq(spw_pool_path_init(&path, dir, "test", (uint32_t)geteuid(), NULL), 0);
    cr_assert_eq(spw_guard_install(), 0);
    config = (struct spw_region_config){.path = &path,
                                        .kind = SPW_REGION_CLIENT,
                                        .index = 3,
                                        .size_bytes = PAGES * PAGE,
                                        .mode = 0600,
                                        .gid = -1,
                                        .pool_id = {11, 22}};
}

static struct spw_region make(uint8_t fill)
{
    struct spw_region region;
    struct spw_error err = {0};
    cr_assert_eq(spw_region_create(&config, &region, &err), 0, "%s", err.text);
    memset((uint8_t *)region.header + sizeof *region.header, fill,
           PAGES * PAGE - sizeof *region.header);
    spw_region_publish(&region);
    return region;
}

static void cut(uint64_t bytes)
{
    char name[SPW_PATH_BYTES];
    spw_region_name(&path, config.kind, config.index, name);
    cr_assert_eq(truncate(name, (off_t)bytes), 0);
}

static uint8_t at(const struct spw_region *region, uint64_t off)
{
    return ((volatile uint8_t *)region->header)[off];
}

static bool all_zero(const struct spw_region *region)
{
    for (uint64_t i = 0; i < region->size_bytes; i++)
        if (at(region, i) != 0)
            return false;
    return true;
}

Test(guard, a_touch_behind_a_cut_finds_zero_pages_everywhere_and_the_region_lost)
{
    static const uint64_t sizes[] = {0, 1, PAGE, 5 * PAGE + 100};
    start();
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        struct spw_region region = make(7), neighbour = {0};
        cr_assert_eq(spw_region_attach(&path, config.kind, 3, true, 0, &neighbour, NULL), 0);
        cr_expect(!spw_region_lost(&region) && at(&region, 6 * PAGE) == 7);
        cut(sizes[i]);
        cr_expect(!spw_region_lost(&region), "nobody has touched it");
        errno = 4711;
        cr_expect_eq(at(&region, 6 * PAGE), 0);
        cr_expect_eq(errno, 4711);
        cr_expect(spw_region_lost(&region) && all_zero(&region));
        memset(region.header, 9, region.size_bytes);
        cr_expect_eq(at(&region, 7 * PAGE), 9);
        cr_expect(!spw_region_lost(&neighbour), "each mapping by itself");
        memset((uint8_t *)neighbour.header + 6 * PAGE, 1, 1); /* a write finds them as well */
        cr_expect(spw_region_lost(&neighbour) && at(&neighbour, 6 * PAGE) == 1);
        spw_region_detach(&region);
        spw_region_detach(&neighbour);
        spw_region_unlink(&path, config.kind, 3, NULL, NULL);
    }
}

/* What a program does whose SIGBUS is none of the guard's. */
static int touch_elsewhere(void *arg)
{
    int how = *(int *)arg;
    int fd = memfd_create("elsewhere", 0);
    if (ftruncate(fd, PAGE))
        return 1;
    volatile uint8_t *byte = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    int area = how == 1 ? spw_guard_add((void *)(uintptr_t)byte, PAGE, true) : 0;
    if (ftruncate(fd, 0))
        return 1;
    if (how == 2)
        return raise(SIGBUS); /* nothing is touched afterwards */
    spw_guard_drop(area);
    byte[0] = 1;
    return 0;
}

Test(guard, any_other_bus_error_still_kills)
{
    start();
    struct spw_region region = make(1);
    for (int how = 0; how < 3; how++)
        cr_expect_eq(support_wait(support_fork(touch_elsewhere, &how), 10000),
                     SUPPORT_SIGNALLED + SIGBUS, "case %d", how);
    spw_region_detach(&region);
}

/* The child's mapping at an address that the parent has watched is its own affair. */
static int touch_at(void *arg)
{
    int fd = memfd_create("a child's", 0);
    if (ftruncate(fd, PAGE) ||
        mmap(arg, PAGE, PROT_READ, MAP_SHARED | MAP_FIXED_NOREPLACE, fd, 0) != arg ||
        ftruncate(fd, 0))
        return 1;
    return *(volatile uint8_t *)arg;
}

Test(guard, a_forked_child_is_not_guarded_by_what_its_parent_mapped)
{
    start();
    struct spw_region region = make(1);
    cr_expect_eq(support_wait(support_fork(touch_at, region.header), 10000),
                 SUPPORT_SIGNALLED + SIGBUS);
    spw_region_detach(&region);
}

static int write_after_a_cut(void *arg)
{
    char name[SPW_PATH_BYTES];
    struct spw_region mine;
    (void)arg;
    spw_region_name(&path, config.kind, 3, name);
    if (spw_region_attach(&path, config.kind, 3, false, 0, &mine, NULL))
        return 1;
    if (truncate(name, 0) || at(&mine, PAGE) != 0 || !spw_region_lost(&mine))
        return 2;
    ((volatile uint8_t *)mine.header)[0] = 1;
    return 3;
}

Test(guard, what_was_mapped_read_only_stays_so)
{
    start();
    struct spw_region region = make(1);
    int status = support_wait(support_fork(write_after_a_cut, NULL), 10000);
    cr_expect_eq(status, SUPPORT_SIGNALLED + SIGSEGV, "%d", status);
    spw_region_detach(&region);
}

static int read_byte(void *arg)
{
    return *(volatile uint8_t *)arg;
}

Test(guard, zero_pages_are_no_childs_like_the_object_before)
{
    start();
    struct spw_region region = make(1);
    cut(0);
    at(&region, PAGE);
    int status = support_wait(support_fork(read_byte, region.header), 10000);
    cr_expect_eq(status, SUPPORT_SIGNALLED + SIGSEGV, "%d", status);
    spw_region_detach(&region);
}

static void *touch_pages(void *arg)
{
    const struct spw_region *region = arg;
    for (int round = 0; round < 200; round++)
        for (uint64_t off = 0; off < region->size_bytes; off += PAGE)
            if (at(region, off + 512) == 0 && !spw_region_lost(region))
                return arg; /* zero pages that weren't told of */
    return NULL;
}

Test(guard, threads_that_touch_it_at_once_all_go_on)
{
    start();
    for (int round = 0; round < 20; round++) {
        pthread_t thread[4];
        struct spw_region region = make(7);
        for (int i = 0; i < 4; i++)
            cr_assert_eq(pthread_create(&thread[i], NULL, touch_pages, &region), 0);
        cut(PAGE);
        for (int i = 0; i < 4; i++) {
            void *wrong = NULL;
            cr_assert_eq(pthread_join(thread[i], &wrong), 0);
            cr_expect_null(wrong);
        }
        at(&region, 2 * PAGE);
        cr_expect(spw_region_lost(&region));
        spw_region_detach(&region);
        spw_region_unlink(&path, config.kind, 3, NULL, NULL);
    }
}

Test(guard, an_object_made_anew_comes_to_the_same_address)
{
    struct spw_error err = {0};
    start();
    struct spw_region seen, old = make(1);
    cr_assert_eq(spw_region_attach(&path, config.kind, 3, true, 0, &seen, NULL), 0);
    void *start_at = seen.header;
    cr_expect(spw_region_intact(&seen, &path, config.kind, 3));
    cut(0);
    cr_expect(!spw_region_intact(&seen, &path, config.kind, 3));
    cr_expect_eq(spw_region_renew(&seen, &path, config.kind, 3, &err), -EAGAIN, "%s", err.text);
    cr_expect_eq(at(&seen, PAGE), 0);
    cr_expect_eq(spw_region_unlink(&path, config.kind, 3, NULL, NULL), 0);
    cr_expect_eq(spw_region_renew(&seen, &path, config.kind, 3, &err), -ENOENT, "%s", err.text);
    struct spw_region now = make(5);
    cr_expect(!spw_region_intact(&seen, &path, config.kind, 3), "another one has the name");
    cr_assert_eq(spw_region_renew(&seen, &path, config.kind, 3, &err), 0, "%s", err.text);
    cr_expect(seen.header == start_at && !spw_region_lost(&seen) && at(&seen, PAGE) == 5);
    cr_expect(spw_region_intact(&seen, &path, config.kind, 3));
    memset((uint8_t *)seen.header + PAGE, 6, 1);
    cr_expect_eq(at(&now, PAGE), 6, "it is the same object");
    cut(0); /* and it is watched like the first */
    cr_expect_eq(at(&seen, PAGE), 0);
    cr_expect(spw_region_lost(&seen));
    spw_region_detach(&seen);
    spw_region_detach(&old);
    spw_region_detach(&now);
}

Test(guard, a_stand_in_is_lost_until_there_is_an_object)
{
    struct spw_region region;
    struct spw_error err = {0};
    start();
    cr_assert_eq(spw_region_stand_in(config.kind, PAGES * PAGE - 5, true, &region, &err), 0);
    cr_expect(spw_region_lost(&region) && all_zero(&region));
    cr_expect(!spw_region_intact(&region, &path, config.kind, 3));
    struct spw_region object = make(3);
    cr_assert_eq(spw_region_renew(&region, &path, config.kind, 3, &err), 0, "%s", err.text);
    cr_expect(!spw_region_lost(&region) && at(&region, PAGE) == 3);
    spw_region_detach(&region);
    spw_region_detach(&object);
}

Test(guard, areas_come_back_and_too_many_are_refused)
{
    static uint8_t bytes[SPW_GUARD_AREAS_MAX];
    int first = spw_guard_add(bytes, 1, true);
    cr_assert_gt(first, 0);
    for (uint32_t i = 1; i < SPW_GUARD_AREAS_MAX; i++)
        cr_assert_gt(spw_guard_add(bytes + i, 1, true), 0);
    cr_expect_eq(spw_guard_add(bytes, 1, true), -EMFILE);
    spw_guard_set_lost(first, true);
    cr_expect(spw_guard_lost(first) && !spw_guard_lost(0));
    spw_guard_drop(first);
    cr_expect_eq(spw_guard_add(bytes, 1, true), first);
    cr_expect(!spw_guard_lost(first));
}

/* An engine's own handler of SIGBUS, of either form: 0 if it alone was called for what isn't ours. */
static volatile sig_atomic_t calls;
static volatile uint8_t *foreign;

static void mend_foreign(void)
{
    calls = calls + 1;
    if (mmap((void *)(uintptr_t)foreign, PAGE, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED)
        _exit(9);
}

static void plain_handler(int sig)
{
    (void)sig;
    mend_foreign();
}

static void telling_handler(int sig, siginfo_t *info, void *context)
{
    (void)sig;
    if (info->si_addr == (void *)(uintptr_t)foreign && context)
        mend_foreign();
    else
        _exit(8);
}

static int with_own_handler(void *arg)
{
    struct sigaction action = {.sa_handler = SIG_DFL};
    bool telling = *(int *)arg != 0;
    if (telling) {
        action.sa_flags = SA_SIGINFO;
        action.sa_sigaction = telling_handler;
    } else {
        action.sa_handler = plain_handler;
    }
    sigaction(SIGBUS, &(struct sigaction){.sa_handler = SIG_DFL}, NULL);
    sigaction(SIGBUS, &action, NULL);
    if (spw_guard_install() || spw_guard_install())
        return 1;
    int fd = memfd_create("foreign", 0);
    if (ftruncate(fd, PAGE))
        return 2;
    foreign = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    volatile uint8_t *ours = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    int area = spw_guard_add((void *)(uintptr_t)ours, PAGE, true);
    if (ftruncate(fd, 0))
        return 3;
    foreign[0] = 1;
    if (calls != 1)
        return 4;
    ours[0] = 1;
    return calls == 1 && spw_guard_lost(area) ? 0 : 5;
}

Test(guard, a_handler_that_was_there_before_gets_what_is_none_of_ours)
{
    for (int telling = 0; telling < 2; telling++)
        cr_expect_eq(support_wait(support_fork(with_own_handler, &telling), 5000), 0, "%d",
                     telling);
}

static int ignores_what_is_sent(void *arg)
{
    (void)arg;
    signal(SIGBUS, SIG_IGN);
    if (spw_guard_install())
        return 1;
    raise(SIGBUS);
    return 0;
}

Test(guard, a_signal_that_was_ignored_goes_on_being_ignored_where_somebody_sends_it)
{
    cr_expect_eq(support_wait(support_fork(ignores_what_is_sent, NULL), 5000), 0);
}
