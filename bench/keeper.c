/* See keeper.h. */
#include "bench/keeper.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static char folder[] = "/dev/shm/spw-bench-XXXXXX";
static volatile sig_atomic_t bench_pid;

const char *spw_keeper_dir(void)
{
    return folder;
}

static void pass_on(int sig)
{
    if (bench_pid > 0)
        kill((pid_t)bench_pid, sig);
}

static void remove_folder(void)
{
    DIR *dir = opendir(folder);
    if (!dir)
        return;
    for (struct dirent *entry; (entry = readdir(dir));)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            unlinkat(dirfd(dir), entry->d_name, 0);
    closedir(dir);
    rmdir(folder);
}

/* Daemons that the child started are ours now (subreaper), and their workers after them. */
static void end_orphans(void)
{
    char path[64], pids[4096];
    snprintf(path, sizeof path, "/proc/self/task/%d/children", (int)getpid());
    for (;;) {
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        ssize_t n = fd < 0 ? 0 : read(fd, pids, sizeof pids - 1);
        if (fd >= 0)
            close(fd);
        pids[n > 0 ? n : 0] = '\0';
        for (char *at = pids, *end; *at; at = end + strspn(end, " \n")) {
            long pid = strtol(at, &end, 10);
            if (end == at)
                break;
            kill((pid_t)pid, SIGKILL);
        }
        if (waitpid(-1, NULL, 0) < 0 && errno == ECHILD)
            return;
    }
}

static int await_bench(void)
{
    int status = 0;
    while (waitpid((pid_t)bench_pid, &status, 0) < 0 && errno == EINTR)
        ;
    end_orphans();
    if (WIFSIGNALED(status))
        fprintf(stderr, "spw-bench: ended by signal %d\n", WTERMSIG(status));
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

int spw_keeper_run(int (*work)(void *ctx), void *ctx)
{
    const struct sigaction forward = {.sa_handler = pass_on};
    pid_t keeper = getpid();
    if (!mkdtemp(folder)) {
        perror("spw-bench: /dev/shm");
        return 1;
    }
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    sigaction(SIGINT, &forward, NULL);
    sigaction(SIGTERM, &forward, NULL);
    sigaction(SIGHUP, &forward, NULL);
    pid_t pid = fork();
    if (pid == 0) {
        signal(SIGINT, SIG_DFL);
        signal(SIGTERM, SIG_DFL);
        signal(SIGHUP, SIG_DFL);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        exit(getppid() == keeper ? work(ctx) : 1);
    }
    bench_pid = pid;
    int status = pid > 0 ? await_bench() : 1;
    remove_folder();
    return status;
}
