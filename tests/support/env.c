/*
 * Child processes, folders and mounts for tests; see env.h. A program is started by posix_spawn
 * through tests/support/trampoline.c, which asks for PR_SET_PDEATHSIG: gcc's AddressSanitizer can
 * deadlock in a child that was forked while another thread ran.
 */
#include "tests/support/env.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

#define ARGS_MAX 64
#define DIRS_MAX 16

static int64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* 0 when fd is readable, -ETIMEDOUT at the deadline */
static int wait_readable(int fd, int64_t deadline_ms)
{
    for (;;) {
        int64_t left = deadline_ms - now_ms();
        struct pollfd p = {.fd = fd, .events = POLLIN};
        int n = poll(&p, 1, left > 0 ? (int)left : 0);
        if (n > 0)
            return 0;
        if (n == 0)
            return -ETIMEDOUT;
        if (errno != EINTR)
            return -errno;
    }
}

pid_t support_spawn(const char *const argv[], int *out_stdout_fd)
{
    const char *args[ARGS_MAX + 3] = {SPW_TEST_TRAMPOLINE, NULL};
    char parent[16];
    posix_spawn_file_actions_t actions;
    int ends[2] = {-1, -1};
    pid_t pid = -1;

    snprintf(parent, sizeof parent, "%d", (int)getpid());
    args[1] = parent;
    for (int i = 0; argv[i]; i++) {
        if (i == ARGS_MAX)
            return -E2BIG;
        args[2 + i] = argv[i];
    }
    if (out_stdout_fd && pipe2(ends, O_CLOEXEC) < 0)
        return -errno;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, out_stdout_fd ? ends[1] : STDERR_FILENO,
                                     STDOUT_FILENO);
    int error = posix_spawn(&pid, args[0], &actions, NULL, (char *const *)args, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (out_stdout_fd) {
        close(ends[1]);
        if (error)
            close(ends[0]);
        else
            *out_stdout_fd = ends[0];
    }
    return error ? -error : pid;
}

pid_t support_fork(int (*body)(void *arg), void *arg)
{
    pid_t parent = getpid();
    pid_t pid = fork();
    if (pid < 0)
        return -errno;
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
            _exit(1);
        _exit(body(arg));
    }
    return pid;
}

static int reap(pid_t pid)
{
    int status;
    while (waitpid(pid, &status, 0) < 0) {
        if (errno != EINTR)
            return -errno;
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : SUPPORT_SIGNALLED + WTERMSIG(status);
}

int support_wait(pid_t pid, int timeout_ms)
{
    int fd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (fd < 0)
        return -errno;
    int r = wait_readable(fd, now_ms() + timeout_ms);
    close(fd);
    if (r == 0)
        return reap(pid);
    support_kill(pid);
    return r;
}

int support_kill(pid_t pid)
{
    if (kill(pid, SIGKILL) < 0)
        return -errno;
    return reap(pid);
}

int support_read_line(int fd, char *line, size_t bytes, int timeout_ms)
{
    int64_t deadline_ms = now_ms() + timeout_ms;
    for (size_t length = 0; length < bytes; length++) {
        int r = wait_readable(fd, deadline_ms);
        if (r < 0)
            return r;
        ssize_t n = read(fd, line + length, 1);
        if (n <= 0)
            return n < 0 ? -errno : -EPIPE;
        if (line[length] == '\n') {
            line[length] = '\0';
            return (int)length;
        }
    }
    return -EMSGSIZE;
}

int support_count_names(const char *dir)
{
    int names = -2; /* . and .. */
    DIR *open = opendir(dir);
    if (!open)
        return -errno;
    while (readdir(open))
        names++;
    closedir(open);
    return names;
}

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *where)
{
    remove(path);
    return 0;
}

void support_remove_dir(const char *path)
{
    nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
}

/* folders that this process made; a forked child leaves its parent's alone */
static char made_dirs[DIRS_MAX][SUPPORT_PATH_BYTES];
static int made_count;
static pid_t made_by;

static void remove_made_dirs(void)
{
    if (made_by != getpid())
        return;
    for (int i = 0; i < made_count; i++)
        support_remove_dir(made_dirs[i]);
}

int support_shm_dir(char *out_path)
{
    const char *parents[] = {"/dev/shm", getenv("TMPDIR"), P_tmpdir};
    char path[SUPPORT_PATH_BYTES];

    if (made_by != getpid()) {
        made_by = getpid();
        made_count = 0;
        atexit(remove_made_dirs);
    }
    if (made_count == DIRS_MAX)
        return -EMFILE;
    for (size_t i = 0; i < sizeof parents / sizeof *parents; i++) {
        if (!parents[i] ||
            snprintf(path, sizeof path, "%s/spw-test-XXXXXX", parents[i]) >= (int)sizeof path)
            continue;
        if (mkdtemp(path)) {
            strcpy(made_dirs[made_count++], path);
            strcpy(out_path, path);
            return 0;
        }
    }
    return -errno;
}

int support_private_tmpfs(const char *path, uint64_t size_bytes)
{
    char options[64];

    if (unshare(CLONE_NEWNS) < 0)
        return -errno;
    /* in a chroot whose root is no mount point (EINVAL) ours might be seen outside */
    if (mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
        return errno == EINVAL ? -EPERM : -errno;
    snprintf(options, sizeof options, "size=%llu,mode=0700", (unsigned long long)size_bytes);
    return mount("tmpfs", path, "tmpfs", MS_NOSUID | MS_NODEV, options) < 0 ? -errno : 0;
}
