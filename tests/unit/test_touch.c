/* First touch: pages come, contents stay, threads share the work and run where they should. */
#include "gpu/touch.h"

#include <criterion/criterion.h>
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
    const cpu_set_t *cpus;
    spw_atomic32 elsewhere;
    uint64_t told;
    uint64_t stop_at;
    uint32_t us;
    int error_at;
};

static int touch(void *ctx, uint8_t *start, uint64_t bytes)
{
    struct seen *seen = ctx;
    uint64_t step = (uint64_t)(start - seen->start) / SPW_TOUCH_STEP_BYTES;
    if (seen->us)
        usleep(seen->us);
    spw_add_own(&seen->step[step], 1);
    if (seen->cpus && !CPU_ISSET(sched_getcpu(), seen->cpus))
        spw_store_relaxed(&seen->elsewhere, 1);
    return seen->error_at && step == (uint64_t)seen->error_at ? -EIO : 0;
}

static bool go_on(void *ctx, uint64_t touched_bytes)
{
    struct seen *seen = ctx;
    cr_expect_geq(touched_bytes, seen->told);
    seen->told = touched_bytes;
    return !seen->stop_at || touched_bytes < seen->stop_at;
}

static int run(struct seen *seen, uint32_t threads)
{
    struct spw_touch_config config = {
        .threads = threads, .cpus = seen->cpus, .go_on = go_on, .touch = touch, .ctx = seen};
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

Test(touch, threads_run_on_the_cpus_given)
{
    cpu_set_t allowed, one;
    cr_assert_eq(sched_getaffinity(0, sizeof allowed, &allowed), 0);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        struct seen seen = {.cpus = &one};
        if (!CPU_ISSET(cpu, &allowed))
            continue;
        CPU_ZERO(&one);
        CPU_SET(cpu, &one);
        cr_expect_eq(run(&seen, 3), 0);
        cr_expect(!spw_load_relaxed(&seen.elsewhere), "cpu %d", cpu);
    }
}

Test(touch, cpus_that_may_not_be_used_are_done_without)
{
    cpu_set_t none;
    CPU_ZERO(&none);
    CPU_SET(CPU_SETSIZE - 1, &none);
    struct seen seen = {.us = 0};
    struct spw_touch_config config = {.threads = 2, .cpus = &none, .touch = touch, .ctx = &seen};
    seen.start = mmap(NULL, MIB, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    cr_expect_eq(spw_touch_pages(&config, seen.start, MIB / 2), 0);
    munmap(seen.start, MIB);
}

Test(touch, it_ends_soon_when_it_should_not_go_on)
{
    struct seen seen = {.us = 2000, .stop_at = 8 * MIB};
    uint64_t touched = 0;
    cr_expect_eq(run(&seen, 2), -ECANCELED);
    for (uint32_t i = 0; i < 64; i++)
        touched += spw_load_relaxed(&seen.step[i]);
    cr_expect(touched >= 8 && touched < 40, "%lu", touched);
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
