/* Children, folders and mounts for tests: what process tests rely on. */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/env.h"

static const char *const sleeper[] = {"sleep", "100", NULL};

static int run(const char *command)
{
    const char *const argv[] = {"sh", "-c", command, NULL};
    pid_t pid = support_spawn(argv, NULL);
    cr_assert_gt(pid, 0);
    return support_wait(pid, 10000);
}

Test(support_env, exit_status_comes_back)
{
    cr_assert_eq(run("exit 0"), 0);
    cr_assert_eq(run("exit 7"), 7);
    cr_assert_eq(run("kill -TERM $$"), SUPPORT_SIGNALLED + SIGTERM);
}

Test(support_env, missing_program_is_status_127)
{
    const char *const argv[] = {"/nonexistent/program", NULL};
    pid_t pid = support_spawn(argv, NULL);
    cr_assert_gt(pid, 0);
    cr_assert_eq(support_wait(pid, 10000), 127);
}

Test(support_env, hanging_child_is_killed_and_reaped)
{
    pid_t pid = support_spawn(sleeper, NULL);
    cr_assert_gt(pid, 0);
    cr_assert_eq(support_wait(pid, 50), -ETIMEDOUT);
    cr_assert_eq(kill(pid, 0), -1);
    cr_assert_eq(errno, ESRCH);
}

Test(support_env, killed_child_tells_its_signal)
{
    pid_t pid = support_spawn(sleeper, NULL);
    cr_assert_gt(pid, 0);
    cr_assert_eq(support_kill(pid), SUPPORT_SIGNALLED + SIGKILL);
}

Test(support_env, lines_are_read_one_by_one)
{
    const char *const argv[] = {"sh", "-c", "echo ready; echo; echo second; exec sleep 100", NULL};
    char line[16];
    int fd;
    pid_t pid = support_spawn(argv, &fd);
    cr_assert_gt(pid, 0);
    cr_assert_eq(support_read_line(fd, line, sizeof line, 10000), 5);
    cr_assert_str_eq(line, "ready");
    cr_assert_eq(support_read_line(fd, line, sizeof line, 10000), 0);
    cr_assert_eq(support_read_line(fd, line, 3, 10000), -EMSGSIZE);
    cr_assert_eq(support_read_line(fd, line, sizeof line, 10000), 3);
    cr_assert_str_eq(line, "ond");
    cr_assert_eq(support_read_line(fd, line, sizeof line, 50), -ETIMEDOUT);
    support_kill(pid);
    cr_assert_eq(support_read_line(fd, line, sizeof line, 10000), -EPIPE);
    close(fd);
}

/* starts a grandchild, tells its pid through the pipe, and dies at once */
static int die_with_a_child(void *arg)
{
    pid_t pid = support_spawn(sleeper, NULL);
    usleep(100000); /* the trampoline has asked for its signal by then, or it ends by itself */
    return write(*(int *)arg, &pid, sizeof pid) == sizeof pid ? 0 : 1;
}

Test(support_env, children_die_with_their_parent)
{
    int ends[2];
    pid_t grandchild = 0;
    cr_assert_eq(pipe(ends), 0);
    pid_t pid = support_fork(die_with_a_child, &ends[1]);
    cr_assert_gt(pid, 0);
    cr_assert_eq(support_wait(pid, 10000), 0);
    cr_assert_eq(read(ends[0], &grandchild, sizeof grandchild), sizeof grandchild);
    cr_assert_gt(grandchild, 0);
    char path[64], stat[512] = "";
    snprintf(path, sizeof path, "/proc/%d/stat", (int)grandchild);
    for (int tries = 0; tries < 200; tries++) {
        FILE *f = fopen(path, "r");
        if (!f)
            return;
        size_t n = fread(stat, 1, sizeof stat - 1, f);
        stat[n] = '\0';
        fclose(f);
        if (strstr(stat, ") Z "))
            return; /* dead, and left to be reaped by whoever adopted it */
        usleep(10000);
    }
    cr_assert(false, "the grandchild lives on: %s", stat);
}

static int make_dir_and_file(void *arg)
{
    char *path = arg;
    char file[SUPPORT_PATH_BYTES + 16];
    if (support_shm_dir(path) < 0)
        return 1;
    snprintf(file, sizeof file, "%s/object", path);
    int fd = open(file, O_CREAT | O_RDWR, 0600);
    return fd < 0 || close(fd) < 0;
}

Test(support_env, dirs_differ_and_are_removed_with_what_is_in_them)
{
    char one[SUPPORT_PATH_BYTES], two[SUPPORT_PATH_BYTES];
    struct stat st;
    cr_assert_eq(make_dir_and_file(one), 0);
    cr_assert_eq(make_dir_and_file(two), 0);
    cr_assert_str_neq(one, two);
    cr_assert_eq(stat(one, &st), 0);
    support_remove_dir(one);
    cr_assert_eq(stat(one, &st), -1);
    cr_assert_eq(stat(two, &st), 0);
    support_remove_dir(two);
    support_remove_dir(two);
    cr_assert_eq(stat(two, &st), -1);
}

static int mount_small(void *arg)
{
    const char *path = arg;
    struct statvfs fs;
    int r = support_private_tmpfs(path, 1u << 20);
    if (r == -EPERM)
        return SUPPORT_SKIP;
    if (r < 0 || statvfs(path, &fs) < 0)
        return 1;
    return fs.f_blocks * fs.f_frsize == 1u << 20 ? 0 : 2;
}

Test(support_env, private_tmpfs_is_small_and_unseen_outside)
{
    char path[SUPPORT_PATH_BYTES];
    struct statvfs before, after;
    cr_assert_eq(support_shm_dir(path), 0);
    cr_assert_eq(statvfs(path, &before), 0);
    pid_t pid = support_fork(mount_small, path);
    cr_assert_gt(pid, 0);
    int status = support_wait(pid, 10000);
    cr_assert_eq(statvfs(path, &after), 0);
    support_remove_dir(path);
    if (status == SUPPORT_SKIP)
        cr_skip_test("no mount namespace of one's own here");
    cr_assert_eq(status, 0);
    cr_assert_eq(before.f_blocks, after.f_blocks);
}
