/* shm/process: which processes are gone. Whom it ends is in test_pool_warm.c. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "shm/process.h"
#include "tests/support/env.h"

TestSuite(process, .timeout = 30);

static int ends_at_once(void *arg)
{
    (void)arg;
    return 0;
}

static void *outlive_leader(void *arg)
{
    (void)arg;
    sleep(30);
    return NULL;
}

/* Its first thread ends, another one goes on. */
static int leader_ends(void *arg)
{
    pthread_t thread;
    (void)arg;
    if (pthread_create(&thread, NULL, outlive_leader, NULL))
        return 1;
    syscall(SYS_exit, 0); /* this thread alone */
    return 1;
}

static char state_letter(pid_t pid)
{
    char path[64], text[512] = "";
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *file = fopen(path, "r");
    size_t n = file ? fread(text, 1, sizeof text - 1, file) : 0;
    if (file)
        fclose(file);
    text[n] = 0;
    const char *at = strrchr(text, ')');
    return at ? at[2] : '?';
}

Test(process, a_process_has_ended_when_its_last_thread_has_though_nobody_asked_for_it)
{
    pid_t ended = support_fork(ends_at_once, NULL), goes_on = support_fork(leader_ends, NULL);
    for (int i = 0; i < 5000 && (state_letter(ended) != 'Z' || state_letter(goes_on) != 'Z'); i++)
        usleep(1000);
    cr_assert_eq(state_letter(ended), 'Z');
    cr_assert_eq(state_letter(goes_on), 'Z');
    cr_expect_eq(spw_process_start_ticks(ended), 0);
    cr_expect_neq(spw_process_start_ticks(goes_on), 0);
    support_kill(goes_on);
    support_kill(ended);
}
