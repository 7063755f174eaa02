/* Doorbell: sleeps bounded, wakes without loss, makes no call for nobody. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "shm/doorbell.h"
#include "tests/support/deny.h"
#include "tests/support/env.h"
#include "tests/support/nosys.h"

TestSuite(doorbell, .timeout = 30);

#define MS 1000000ull

struct words {
    spw_atomic32 asleep;
    spw_atomic64 tail[SPW_DOORBELL_WORDS_MAX + 1];
};

static struct words *words;
static const struct words *read_only; /* the same page, mapped without write access */
static struct spw_doorbell bell;

static void start(void)
{
    int fd = memfd_create("doorbell", MFD_CLOEXEC);
    cr_assert_eq(ftruncate(fd, sizeof *words), 0);
    words = mmap(NULL, sizeof *words, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    read_only = mmap(NULL, sizeof *words, PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
    bell.count = 3;
    for (uint32_t i = 0; i < SPW_DOORBELL_WORDS_MAX; i++)
        bell.word[i] = spw_doorbell_low_half(&read_only->tail[i]);
}

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

static bool looked;
static bool no_work(void *ctx)
{
    looked = true;
    return false;
}

static bool some_work(void *ctx)
{
    return true;
}

static void raise_word(uint32_t i)
{
    spw_store_release(&words->tail[i], spw_load_relaxed(&words->tail[i]) + 1);
}

static bool raise_and_miss_it(void *ctx)
{
    raise_word(1);
    return false;
}

Test(doorbell, sleep_ends_at_its_time_and_clears_asleep, .init = start)
{
    uint64_t before = now_ns();
    cr_assert_eq(spw_doorbell_sleep(&bell, &words->asleep, 30 * MS, no_work, NULL), -ETIMEDOUT);
    cr_assert_geq(now_ns() - before, 30 * MS);
    cr_assert(looked);
    cr_assert_eq(spw_load_relaxed(&words->asleep), 0);
}

Test(doorbell, work_seen_by_the_look_keeps_it_awake, .init = start)
{
    uint64_t before = now_ns();
    cr_assert_eq(spw_doorbell_sleep(&bell, &words->asleep, 20000 * MS, some_work, NULL), 0);
    cr_assert_lt(now_ns() - before, 5000 * MS);
    cr_assert_eq(spw_load_relaxed(&words->asleep), 0);
}

/* Case 34: a record published after the words were read, and not seen by the look. */
Test(doorbell, case34_word_that_moved_after_it_was_read_keeps_it_awake, .init = start)
{
    uint64_t before = now_ns();
    cr_assert_eq(spw_doorbell_sleep(&bell, &words->asleep, 20000 * MS, raise_and_miss_it, NULL), 0);
    cr_assert_lt(now_ns() - before, 5000 * MS);
}

static int ring_when_asleep(void *arg)
{
    uint32_t i = *(uint32_t *)arg;
    while (!spw_load_relaxed(&words->asleep))
        usleep(1000);
    usleep(20000); /* most likely it waits in the kernel by now */
    raise_word(i);
    return spw_doorbell_ring(spw_doorbell_low_half(&words->tail[i]), &words->asleep) == 1 ? 0 : 1;
}

Test(doorbell, another_process_wakes_it_by_any_word, .init = start)
{
    bell.count = SPW_DOORBELL_WORDS_MAX;
    for (uint32_t i = 0; i < SPW_DOORBELL_WORDS_MAX; i += 42) {
        pid_t pid = support_fork(ring_when_asleep, &i);
        cr_assert_gt(pid, 0);
        uint64_t before = now_ns();
        cr_assert_eq(spw_doorbell_sleep(&bell, &words->asleep, 20000 * MS, no_work, NULL), 0);
        cr_assert_lt(now_ns() - before, 10000 * MS);
        cr_assert_eq(support_wait(pid, 10000), 0);
    }
}

Test(doorbell, case36_killed_ringer_costs_no_more_than_the_timeout, .init = start)
{
    pid_t pid = support_fork(ring_when_asleep, &(uint32_t){0});
    support_kill(pid);
    cr_assert_eq(spw_doorbell_sleep(&bell, &words->asleep, 50 * MS, no_work, NULL), -ETIMEDOUT);
}

Test(doorbell, case36_killed_sleeper_costs_its_clients_a_call_and_nothing_else, .init = start)
{
    spw_store_relaxed(&words->asleep, 1);
    raise_word(0);
    cr_assert_eq(spw_doorbell_ring(spw_doorbell_low_half(&words->tail[0]), &words->asleep), 1);
}

static int ring_nobody(void *arg)
{
    for (uint32_t i = 0; i < 1000; i++) {
        raise_word(i % 3);
        if (spw_doorbell_ring(spw_doorbell_low_half(&words->tail[i % 3]), &words->asleep))
            return 1;
    }
    return 0;
}

static int ring_somebody(void *arg)
{
    spw_store_relaxed(&words->asleep, 1);
    return !spw_doorbell_ring(spw_doorbell_low_half(&words->tail[0]), &words->asleep);
}

Test(doorbell, ringing_makes_no_system_call_when_nobody_sleeps, .init = start)
{
    long number = 0;
    cr_assert_eq(spw_nosys_run(NULL, ring_nobody, NULL, &number), 0);
    cr_assert_eq(spw_nosys_run(NULL, ring_somebody, NULL, &number), 1);
    cr_assert_eq(number, SYS_futex);
}

static void on_alarm(int number)
{
}

Test(doorbell, case35_signals_end_a_sleep_early_and_harm_nothing, .init = start)
{
    struct sigaction action = {.sa_handler = on_alarm};
    struct itimerval each_ms = {{0, 1000}, {0, 1000}};
    int interrupted = 0;
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &each_ms, NULL);
    for (int i = 0; i < 50; i++) {
        int rc = spw_doorbell_sleep(&bell, &words->asleep, 100 * MS, no_work, NULL);
        cr_assert(rc == -EINTR || rc == -ETIMEDOUT || rc == 0, "%d", rc);
        cr_assert_eq(spw_load_relaxed(&words->asleep), 0);
        interrupted += rc == -EINTR;
    }
    cr_assert_gt(interrupted, 0);
    /* and progress under the storm: a word that moves is seen */
    cr_assert_eq(spw_doorbell_sleep(&bell, &words->asleep, 100 * MS, raise_and_miss_it, NULL), 0);
}

static int sleep_on_an_old_kernel(void *arg)
{
    if (support_deny(449, ENOSYS))
        return SUPPORT_SKIP;
    uint64_t before = now_ns();
    if (spw_doorbell_sleep(&bell, &words->asleep, 10000 * MS, no_work, NULL))
        return 1;
    return now_ns() - before < 5000 * MS && spw_load_relaxed(&words->asleep) == 0 ? 0 : 2;
}

Test(doorbell, kernel_without_futex_waitv_gives_a_short_plain_sleep, .init = start)
{
    pid_t pid = support_fork(sleep_on_an_old_kernel, NULL);
    int status = support_wait(pid, 20000);
    if (status == SUPPORT_SKIP)
        cr_skip("no seccomp filter here");
    cr_assert_eq(status, 0);
}

Test(doorbell, no_words_and_too_many_words, .init = start)
{
    bell.count = 0;
    cr_assert_eq(spw_doorbell_sleep(&bell, NULL, 5 * MS, NULL, NULL), 0);
    bell.count = SPW_DOORBELL_WORDS_MAX + 1;
    cr_assert_eq(spw_doorbell_sleep(&bell, NULL, 5 * MS, NULL, NULL), -EINVAL);
}

Test(doorbell, endless_timeout_is_cut_not_overflowed, .init = start)
{
    pid_t pid = support_fork(ring_when_asleep, &(uint32_t){2});
    cr_assert_eq(spw_doorbell_sleep(&bell, &words->asleep, UINT64_MAX, no_work, NULL), 0);
    cr_assert_eq(support_wait(pid, 10000), 0);
}

Test(doorbell, sleeper_without_a_word_of_its_own_is_always_woken, .init = start)
{
    cr_assert_eq(spw_doorbell_ring(spw_doorbell_low_half(&words->tail[0]), NULL), 1);
}
