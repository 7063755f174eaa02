/*
 * System calls caught by a seccomp filter or by syscall user dispatch; see nosys.h. Both raise
 * SIGSYS in the thread that made the call, before the call is carried out.
 */
#include "tests/support/nosys.h"

#include "tests/support/env.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#define RUN_MAX_MS 60000

#ifndef PR_SET_SYSCALL_USER_DISPATCH
#define PR_SET_SYSCALL_USER_DISPATCH 59
#define PR_SYS_DISPATCH_OFF          0
#define PR_SYS_DISPATCH_ON           1
#endif

enum verdict { UNKNOWN, CLEAN, CAUGHT, WRONG, REFUSED };

/* how the child fared: in memory that it shares with its parent */
struct report {
    enum verdict verdict;
    int error;
    long number;
};

struct run {
    int (*prepare)(void *arg);
    int (*body)(void *arg);
    void *arg;
    volatile struct report *report;
};

static volatile struct report *child_report;

static void on_forbidden(int signal, siginfo_t *info, void *context)
{
    child_report->number = info->si_syscall;
    child_report->verdict = CAUGHT;
    syscall(SYS_exit_group, 0);
}

static int catch_sigsys(void (*handler)(int, siginfo_t *, void *))
{
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO};
    sigemptyset(&action.sa_mask);
    return sigaction(SIGSYS, &action, NULL) < 0 ? -errno : 0;
}

static int forbid_system_calls(void)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit_group, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    int r = catch_sigsys(on_forbidden);
    if (r < 0)
        return r;
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return -errno;
    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) < 0 ? -errno : 0;
}

static int run_in_child(void *arg)
{
    struct run *run = arg;
    child_report = run->report;
    if (run->prepare && run->prepare(run->arg) != 0) {
        child_report->verdict = WRONG;
        return 0;
    }
    int r = forbid_system_calls();
    if (r < 0) {
        child_report->error = r;
        child_report->verdict = REFUSED;
        return 0;
    }
    child_report->verdict = run->body(run->arg) == 0 ? CLEAN : WRONG;
    syscall(SYS_exit_group, 0);
    return 0;
}

int spw_nosys_run(int (*prepare)(void *arg), int (*body)(void *arg), void *arg, long *out_number)
{
    struct report *report =
        mmap(NULL, sizeof *report, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (report == MAP_FAILED)
        return -errno;
    struct run run = {prepare, body, arg, report};
    pid_t pid = support_fork(run_in_child, &run);
    int r = pid < 0 ? (int)pid : support_wait(pid, RUN_MAX_MS);
    if (r == 0) {
        switch (report->verdict) {
        case CLEAN:
            break;
        case CAUGHT:
            *out_number = report->number;
            r = 1;
            break;
        case WRONG:
            r = -ECANCELED;
            break;
        case REFUSED:
            r = report->error;
            break;
        case UNKNOWN:
            r = -ECHILD;
            break;
        }
    } else if (r > 0) {
        r = -ECHILD;
    }
    munmap(report, sizeof *report);
    return r;
}

/* the kernel reads the selector at each system call of the watched thread */
static volatile char selector = 0; /* SYSCALL_DISPATCH_FILTER_ALLOW */
static volatile sig_atomic_t watch_caught;
static volatile long watch_number;

static void on_watched(int signal, siginfo_t *info, void *context)
{
    selector = 0;
    watch_number = info->si_syscall;
    watch_caught = 1;
#ifdef __x86_64__
    /* the kernel has put the registers back as they were: carry the call out after all */
    ((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP] -= 2; /* bytes of `syscall` */
#endif
}

int spw_nosys_watch_begin(void)
{
#ifdef __x86_64__
    int r = catch_sigsys(on_watched);
    if (r < 0)
        return r;
    selector = 0;
    watch_caught = 0;
    if (prctl(PR_SET_SYSCALL_USER_DISPATCH, PR_SYS_DISPATCH_ON, 0, 0, &selector) < 0)
        return -errno;
    selector = 1; /* SYSCALL_DISPATCH_FILTER_BLOCK */
    return 0;
#else
    return -ENOTSUP;
#endif
}

int spw_nosys_watch_end(long *out_number)
{
    selector = 0;
    prctl(PR_SET_SYSCALL_USER_DISPATCH, PR_SYS_DISPATCH_OFF, 0, 0, 0);
    if (watch_caught)
        *out_number = watch_number;
    return watch_caught;
}
