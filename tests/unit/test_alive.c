/* Locks: who is alive is what the kernel says. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shm/alive.h"
#include "tests/support/env.h"

TestSuite(alive, .timeout = 30);

static struct spw_pool_path path;

static int make_lock(void)
{
    char dir[SUPPORT_PATH_BYTES];
    cr_assert_eq(support_shm_dir(dir), 0);
    cr_assert_eq(spw_pool_path_init(&path, dir, "test", (uint32_t)geteuid(), NULL), 0);
    int fd = spw_lock_open(&path, true, 0600, -1, NULL);
    cr_assert_gt(fd, 0);
    return fd;
}

static int open_lock(void)
{
    return spw_lock_open(&path, false, 0, -1, NULL);
}

/* Wait, for at most two seconds, until @byte is held (or not). */
static bool becomes(int fd, uint32_t byte, int held)
{
    for (int i = 0; i < 2000; i++) {
        if (spw_lock_held(fd, byte) == held)
            return true;
        usleep(1000);
    }
    return false;
}

static int hold_byte_5(void *arg)
{
    int fd = open_lock();
    if (fd < 0 || spw_lock_take(fd, 5))
        return 1;
    for (;;)
        pause();
}

static pid_t start_holder(int fd)
{
    pid_t pid = support_fork(hold_byte_5, NULL);
    cr_assert_gt(pid, 0);
    cr_assert(becomes(fd, 5, 1));
    return pid;
}

Test(alive, no_lock_object_is_no_pool)
{
    struct spw_error err = {0};
    spw_lock_close(make_lock());
    char name[SPW_PATH_BYTES];
    spw_lock_name(&path, name);
    cr_assert_eq(unlink(name), 0);
    cr_assert_eq(spw_lock_open(&path, false, 0, -1, &err), -ENOENT);
    cr_assert_not_null(strstr(err.text, "test"));
}

Test(alive, a_byte_has_one_holder_and_bytes_are_independent)
{
    int fd = make_lock(), other = open_lock();
    cr_assert_eq(spw_lock_held(fd, 1), 0);
    cr_assert_eq(spw_lock_take(fd, 1), 0);
    cr_assert_eq(spw_lock_held(fd, 1), 0, "what is held through fd itself is not somebody else's");
    cr_assert_eq(spw_lock_held(other, 1), 1);
    cr_assert_eq(spw_lock_held(other, 0), 0);
    cr_assert_eq(spw_lock_held(other, 2), 0);
    cr_assert_eq(spw_lock_take(other, 1), -EBUSY);
    cr_assert_eq(spw_lock_take(other, 2), 0);
    spw_lock_drop(fd, 1);
    cr_assert_eq(spw_lock_held(other, 1), 0);
    cr_assert_eq(spw_lock_held(fd, 2), 1);
    spw_lock_close(other);
    cr_assert_eq(spw_lock_held(fd, 2), 0);
    spw_lock_close(fd);
    spw_lock_close(-1);
}

Test(alive, killed_holder_is_dead_at_once)
{
    int fd = make_lock();
    pid_t pid = start_holder(fd);
    cr_assert_eq(spw_lock_take(fd, 5), -EBUSY);
    support_kill(pid);
    cr_assert_eq(spw_lock_held(fd, 5), 0);
    cr_assert_eq(spw_lock_take(fd, 5), 0);
    spw_lock_close(fd);
}

Test(alive, case18_second_worker_is_refused_while_the_first_lives_even_stopped)
{
    int fd = make_lock();
    pid_t pid = start_holder(fd);
    cr_assert_eq(kill(pid, SIGSTOP), 0);
    usleep(50000);
    cr_assert_eq(spw_lock_held(fd, 5), 1);
    cr_assert_eq(spw_lock_take(fd, 5), -EBUSY);
    cr_assert_eq(kill(pid, SIGCONT), 0);
    cr_assert_eq(spw_lock_held(fd, 5), 1);
    support_kill(pid);
    cr_assert_eq(spw_lock_take(fd, 5), 0);
    spw_lock_close(fd);
}

static int orphan_pipe[2];

/* Holds byte 5, forks a child that outlives it, and ends. */
static int leave_a_child(void *arg)
{
    int fd = open_lock();
    if (fd < 0 || spw_lock_take(fd, 5))
        return 1;
    pid_t pid = fork();
    if (pid == 0) {
        sleep(20);
        _exit(0);
    }
    return write(orphan_pipe[1], &pid, sizeof pid) == sizeof pid ? 0 : 2;
}

Test(alive, case20_forked_child_does_not_keep_its_parent_alive)
{
    int fd = make_lock();
    pid_t orphan = 0;
    cr_assert_eq(pipe(orphan_pipe), 0);
    pid_t pid = support_fork(leave_a_child, NULL);
    cr_assert_eq(read(orphan_pipe[0], &orphan, sizeof orphan), sizeof orphan);
    cr_assert_eq(support_wait(pid, 10000), 0);
    cr_assert_eq(kill(orphan, 0), 0, "the orphan must still be there for the test to mean much");
    cr_assert(becomes(fd, 5, 0));
    kill(orphan, SIGKILL);
    spw_lock_close(fd);
}

Test(alive, a_byte_is_this_processs_own_or_not_whoever_says_so)
{
    int fd = make_lock(), other = open_lock();
    cr_assert_eq(spw_lock_take(fd, 5), 0);
    cr_expect(spw_lock_is_own(fd, 5) && spw_lock_is_own(other, 5), "through any descriptor");
    cr_expect(!spw_lock_is_own(fd, 4) && !spw_lock_is_own(fd, 6));
    spw_lock_drop(fd, 5);
    cr_expect(!spw_lock_is_own(fd, 5));
    pid_t pid = start_holder(fd);
    cr_expect_eq(spw_lock_held(fd, 5), 1);
    cr_expect(!spw_lock_is_own(fd, 5), "another process holds it");
    support_kill(pid);
    spw_lock_close(other);
    spw_lock_close(fd);
}

static int tells_whether_it_has(void *arg)
{
    return fcntl(*(int *)arg, F_GETFD) >= 0 ? 1 : 0;
}

Test(alive, adopted_descriptors_are_closed_in_forked_children_too)
{
    char name[SUPPORT_PATH_BYTES + 16];
    cr_assert_eq(support_shm_dir(name), 0);
    strcat(name, "/lock");
    int fd = open(name, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    cr_assert(fd >= 0);
    cr_expect_eq(support_wait(support_fork(tells_whether_it_has, &fd), 5000), 1);
    cr_assert_eq(spw_lock_adopt(fd), 0);
    cr_expect_eq(support_wait(support_fork(tells_whether_it_has, &fd), 5000), 0);
    spw_lock_close(fd);
    cr_expect_eq(fcntl(fd, F_GETFD), -1);
}

/* Holds byte 5, starts a program that outlives it, and ends. */
static int leave_a_program(void *arg)
{
    int fd = open_lock();
    if (fd < 0 || spw_lock_take(fd, 5))
        return 1;
    pid_t pid = vfork();
    if (pid == 0) {
        execlp("sleep", "sleep", "20", (char *)NULL);
        _exit(127);
    }
    return write(orphan_pipe[1], &pid, sizeof pid) == sizeof pid ? 0 : 2;
}

Test(alive, case21_program_started_without_fork_handlers_does_not_keep_it_alive)
{
    int fd = make_lock();
    pid_t orphan = 0;
    cr_assert_eq(pipe(orphan_pipe), 0);
    pid_t pid = support_fork(leave_a_program, NULL);
    cr_assert_eq(read(orphan_pipe[0], &orphan, sizeof orphan), sizeof orphan);
    cr_assert_eq(support_wait(pid, 10000), 0);
    cr_assert(becomes(fd, 5, 0));
    kill(orphan, SIGKILL);
    spw_lock_close(fd);
}

static int child_fd;
static uint32_t forked_before;

/* The parent's number was closed by the fork; what has that number now is the child's own. */
static int close_in_child(void *arg)
{
    if (spw_forked() != forked_before + 1)
        return 1;
    if (fcntl(child_fd, F_GETFD) != -1)
        return 2;
    int mine = dup2(STDERR_FILENO, child_fd);
    spw_lock_close(child_fd);
    return fcntl(mine, F_GETFD) == -1 ? 3 : 0;
}

Test(alive, forked_child_is_told_apart_and_closes_nothing_of_its_own)
{
    child_fd = make_lock();
    forked_before = spw_forked();
    pid_t pid = support_fork(close_in_child, NULL);
    cr_assert_eq(support_wait(pid, 10000), 0);
    cr_assert_eq(spw_forked(), forked_before);
    cr_assert_eq(spw_lock_held(child_fd, 9), 0);
    spw_lock_close(child_fd);
}

Test(alive, lock_object_whose_name_went_is_not_current)
{
    int fd = make_lock();
    char name[SPW_PATH_BYTES];
    spw_lock_name(&path, name);
    cr_assert(spw_lock_current(fd, &path));
    cr_assert_eq(unlink(name), 0);
    cr_assert(!spw_lock_current(fd, &path));
    int second = spw_lock_open(&path, true, 0600, -1, NULL);
    cr_assert(!spw_lock_current(fd, &path));
    cr_assert(spw_lock_current(second, &path));
    spw_lock_close(second);
    spw_lock_close(fd);
}

Test(alive, sm7_lock_object_has_the_mode_asked_for)
{
    char dir[SUPPORT_PATH_BYTES], name[SPW_PATH_BYTES];
    struct stat st;
    umask(0077);
    cr_assert_eq(support_shm_dir(dir), 0);
    cr_assert_eq(spw_pool_path_init(&path, dir, "test", (uint32_t)geteuid(), NULL), 0);
    int fd = spw_lock_open(&path, true, 0660, -1, NULL);
    spw_lock_name(&path, name);
    cr_assert_eq(stat(name, &st), 0);
    cr_assert_eq(st.st_mode & 07777, 0660);
    spw_lock_close(fd);
}

Test(alive, foreign_lock_object_is_refused_with_owner_and_path)
{
    if (geteuid() != 0)
        cr_skip("only root can make a file of somebody else");
    char name[SPW_PATH_BYTES];
    struct spw_error err = {0};
    spw_lock_close(make_lock());
    spw_lock_name(&path, name);
    cr_assert_eq(chown(name, 1001, (gid_t)-1), 0);
    cr_assert_eq(spw_lock_open(&path, true, 0600, -1, &err), -EACCES);
    cr_assert(strstr(err.text, "1001") && strstr(err.text, name), "%s", err.text);
}

static int ask_as_nobody(void *arg)
{
    if (setuid(65534))
        return SUPPORT_SKIP;
    int fd = open_lock();
    if (fd < 0)
        return 1;
    if (spw_lock_held(fd, 5) != 1 || spw_lock_held(fd, 6) != 0)
        return 2;
    return spw_lock_take(fd, 6) < 0 ? 0 : 3;
}

Test(alive, read_access_is_enough_to_ask_and_not_to_take)
{
    if (geteuid() != 0)
        cr_skip("only root can become somebody else");
    char name[SPW_PATH_BYTES];
    int fd = make_lock();
    spw_lock_name(&path, name);
    cr_assert_eq(chmod(name, 0644), 0);
    cr_assert_eq(chmod(path.shm_dir, 0755), 0);
    cr_assert_eq(spw_lock_take(fd, 5), 0);
    pid_t pid = support_fork(ask_as_nobody, NULL);
    cr_assert_eq(support_wait(pid, 10000), 0);
    spw_lock_close(fd);
}
