/* Both proofs of no system call, with the controls that they must catch. */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "tests/support/nosys.h"

static volatile unsigned long sum;
static void *volatile block;

static int count_up(void *arg)
{
    for (unsigned i = 0; i < 100000; i++)
        sum += i;
    return 0;
}

static int ask_pid(void *arg)
{
    count_up(arg);
    sum += (unsigned long)syscall(SYS_getppid);
    return 0;
}

static int read_nothing(void *arg)
{
    char byte;
    return read(-1, &byte, 1) == 1; /* system call 0: must not look like "none" */
}

static int allocate_much(void *arg)
{
    block = malloc(64u << 20);
    return 0;
}

static int ask_time(void *arg)
{
    struct timespec t;
    for (unsigned i = 0; i < 1000; i++)
        clock_gettime(CLOCK_MONOTONIC, &t);
    return 0;
}

static int say_wrong(void *arg)
{
    return 3;
}

static int crash(void *arg)
{
    abort();
}

Test(nosys, plain_work_is_clean)
{
    long number = -1;
    cr_assert_eq(spw_nosys_run(NULL, count_up, NULL, &number), 0);
    cr_assert_eq(number, -1, "untouched when there is none");
}

Test(nosys, clock_of_the_vdso_is_clean)
{
    long number = -1;
    cr_assert_eq(spw_nosys_run(NULL, ask_time, NULL, &number), 0, "call %ld", number);
}

Test(nosys, system_call_is_caught_with_its_number)
{
    long number = -1;
    cr_assert_eq(spw_nosys_run(NULL, ask_pid, NULL, &number), 1);
    cr_assert_eq(number, SYS_getppid);
    cr_assert_eq(spw_nosys_run(NULL, read_nothing, NULL, &number), 1);
    cr_assert_eq(number, SYS_read);
}

Test(nosys, allocation_from_the_kernel_is_caught)
{
    long number = -1;
    cr_assert_eq(spw_nosys_run(NULL, allocate_much, NULL, &number), 1);
}

Test(nosys, preparation_may_call_and_its_failure_shows)
{
    long number = -1;
    cr_assert_eq(spw_nosys_run(ask_pid, count_up, NULL, &number), 0);
    cr_assert_eq(spw_nosys_run(say_wrong, count_up, NULL, &number), -ECANCELED);
}

Test(nosys, wrong_result_and_crash_are_not_clean)
{
    long number = -1;
    cr_assert_eq(spw_nosys_run(NULL, say_wrong, NULL, &number), -ECANCELED);
    cr_assert_eq(spw_nosys_run(crash, count_up, NULL, &number), -ECHILD);
}

static void begin_or_skip(void)
{
    int r = spw_nosys_watch_begin();
    if (r == -EINVAL || r == -ENOTSUP)
        cr_skip_test("no syscall user dispatch here");
    cr_assert_eq(r, 0);
}

Test(nosys, watch_sees_nothing_in_plain_work)
{
    long number = -1;
    begin_or_skip();
    count_up(NULL);
    cr_assert_eq(spw_nosys_watch_end(&number), 0);
}

Test(nosys, watched_call_is_caught_and_carried_out)
{
    long number = -1;
    begin_or_skip();
    long parent = syscall(SYS_getppid);
    long self = syscall(SYS_getpid);
    cr_assert_eq(spw_nosys_watch_end(&number), 1);
    cr_assert_eq(number, SYS_getppid, "the first one counts");
    cr_assert_eq(parent, getppid());
    cr_assert_eq(self, getpid());
}

Test(nosys, watch_can_be_taken_up_again)
{
    long number = -1;
    begin_or_skip();
    ask_pid(NULL);
    cr_assert_eq(spw_nosys_watch_end(&number), 1);
    begin_or_skip();
    count_up(NULL);
    cr_assert_eq(spw_nosys_watch_end(&number), 0);
}
