/* First touch: pages come, contents stay, threads share the work and run where they should. */
#include "gpu/touch.h"

#include <criterion/criterion.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "shm/atomic.h"
#include "shm/base.h"
#include "shm/huge.h"

TestSuite(touch, .timeout = 20);

#define MIB (1ull << 20)

static uint8_t *map(int fd, uint64_t bytes, int protection)
{
    uint8_t *start = mmap(NULL, bytes, protection, MAP_SHARED, fd, 0);
    cr_assert_neq(start, MAP_FAILED);
    return start;
}

static int make_file(uint64_t bytes)
{
    int fd = memfd_create("touch", MFD_CLOEXEC);
    cr_assert(fd >= 0 && ftruncate(fd, (off_t)bytes) == 0);
    return fd;
}

static uint64_t resident_kib(const void *start)
{
    return spw_mapping_bytes(start, "Rss") / 1024;
}

Test(touch, every_page_is_there_and_holds_what_it_held)
{
    for (uint32_t threads = 1; threads <= 5; threads += 2) {
        uint64_t bytes = 5 * MIB + 12288;
        int fd = make_file(bytes);
        uint8_t byte = 7;
        cr_assert_eq(pwrite(fd, &byte, 1, 4096 * 700 + 5), 1);
        for (int writable = 0; writable < 2; writable++) {
            uint8_t *start = map(fd, bytes, writable ? PROT_READ | PROT_WRITE : PROT_READ);
            struct spw_touch_config config = {.threads = threads, .writable = writable != 0};
            cr_expect_eq(resident_kib(start), 0);
            cr_expect_eq(spw_touch_pages(&config, start, bytes), 0);
            cr_expect_eq(resident_kib(start), bytes / 1024);
            cr_expect_eq(start[4096 * 700 + 5], 7);
            munmap(start, bytes);
        }
        close(fd);
    }
}

Test(touch, a_page_that_cannot_be_had_is_an_error)
{
    int fd = make_file(MIB);
    uint8_t *start = map(fd, 2 * MIB, PROT_READ | PROT_WRITE);
    struct spw_touch_config config = {.threads = 2, .writable = true};
    cr_expect_lt(spw_touch_pages(&config, start, 2 * MIB), 0);
    munmap(start, 2 * MIB);
    close(fd);
}

struct seen {
    spw_atomic64 step[64]; /* how often touched; each by one thread */
    uint8_t *start;
    uint64_t told;
    uint64_t stop_at;     /* bytes, then go_on() refuses and further steps wait for that */
    spw_atomic64 refused; /* how often it did */
    uint32_t us;
    int error_at;
};

static uint64_t steps(struct seen *seen)
{
    uint64_t count = 0;
    for (uint32_t i = 0; i < 64; i++)
        count += spw_load_relaxed(&seen->step[i]);
    return count;
}

/* Asked again it has carried out what it was told before. */
static bool must_wait(struct seen *seen)
{
    return seen->stop_at && steps(seen) * SPW_TOUCH_STEP_BYTES >= seen->stop_at &&
           spw_load_relaxed(&seen->refused) < 2;
}

static int touch(void *ctx, uint8_t *start, uint64_t bytes)
{
    struct seen *seen = ctx;
    uint64_t step = (uint64_t)(start - seen->start) / SPW_TOUCH_STEP_BYTES;
    if (seen->us)
        usleep(seen->us);
    while (must_wait(seen))
        usleep(100);
    spw_add_own(&seen->step[step], 1);
    return seen->error_at && step == (uint64_t)seen->error_at ? -EIO : 0;
}

static bool go_on(void *ctx, uint64_t touched_bytes)
{
    struct seen *seen = ctx;
    cr_expect_geq(touched_bytes, seen->told);
    seen->told = touched_bytes;
    if (!seen->stop_at || touched_bytes < seen->stop_at)
        return true;
    spw_add_own(&seen->refused, 1);
    return false;
}

static int run(struct seen *seen, uint32_t threads)
{
    struct spw_touch_config config = {
        .threads = threads, .go_on = go_on, .touch = touch, .ctx = seen};
    seen->start = mmap(NULL, 64 * MIB, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int status = spw_touch_pages(&config, seen->start, 64 * MIB);
    munmap(seen->start, 64 * MIB);
    return status;
}

Test(touch, each_step_is_touched_once)
{
    struct seen seen = {.us = 100};
    cr_expect_eq(run(&seen, 4), 0);
    for (uint32_t i = 0; i < 64; i++)
        cr_expect_eq(spw_load_relaxed(&seen.step[i]), 1);
}

static int look_where(void *ctx, uint8_t *start, uint64_t bytes)
{
    cpu_set_t mine;
    bool same = sched_getaffinity(0, sizeof mine, &mine) == 0 && CPU_EQUAL(&mine, (cpu_set_t *)ctx);
    return same ? 0 : -EXDEV;
}

Test(touch, threads_keep_to_the_callers_cpus)
{
    cpu_set_t one;
    uint8_t *start = mmap(NULL, 8 * MIB, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct spw_touch_config config = {.threads = 3, .touch = look_where, .ctx = &one};
    CPU_ZERO(&one);
    CPU_SET((unsigned)sched_getcpu(), &one);
    cr_assert_eq(sched_setaffinity(0, sizeof one, &one), 0);
    cr_expect_eq(spw_touch_pages(&config, start, 8 * MIB), 0);
    munmap(start, 8 * MIB);
}

/* Each thread ends with the step that it is in. */
Test(touch, it_ends_soon_when_it_should_not_go_on)
{
    struct seen seen = {.stop_at = 8 * MIB};
    cr_expect_eq(run(&seen, 2), -ECANCELED);
    cr_expect(steps(&seen) >= 8 && steps(&seen) <= 8 + 3, "%lu", steps(&seen));
}

Test(touch, the_error_of_a_step_comes_back)
{
    struct seen seen = {.error_at = 40};
    cr_expect_eq(run(&seen, 2), -EIO);
    cr_expect_eq(spw_load_relaxed(&seen.step[41]), 0, "that thread ends there");
}

Test(touch, no_threads_or_too_many_are_refused)
{
    struct spw_touch_config config = {.threads = 0};
    uint8_t byte;
    cr_expect_eq(spw_touch_pages(&config, &byte, 1), -EINVAL);
    config.threads = SPW_TOUCH_THREADS_MAX + 1;
    cr_expect_eq(spw_touch_pages(&config, &byte, 1), -EINVAL);
}
