/* spillway rm: what nobody holds is removed, what somebody holds is left alone, whoever is faster. */
#include "tests/process/actor.h"
#include "tests/process/proc.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shm/alive.h"
#include "shm/pool_remove.h"
#include "tools/fsck.h"

TestSuite(process_rm, .timeout = 120);

static struct proc_pool pool;
static char out[4096];

static int rm(const char *name)
{
    const char *argv[] = {SPW_PROC_SPILLWAY, "rm", name, "--shm-dir", pool.dir, NULL};
    return proc_run(argv, out, sizeof out, PROC_LIMIT_MS);
}

static bool no_worker(void *unused)
{
    return spw_lock_held(pool.seen->lock_fd, SPW_LOCK_WORKER(0)) == 0;
}

/* A pool whose daemon and workers were killed. */
static void leave_stale(void)
{
    cr_assert(proc_start(&pool, &(struct proc_config){0}));
    proc_signal_worker(&pool, 0, SIGSTOP); /* the daemon doesn't start another one in between */
    proc_kill_daemon(&pool);
    proc_signal_worker(&pool, 0, SIGKILL);
    cr_assert(proc_eventually(no_worker, NULL, PROC_LIMIT_MS));
}

Test(process_rm, what_is_stale_is_removed_and_nothing_else)
{
    char other[SPW_PATH_BYTES];
    leave_stale();
    snprintf(other, sizeof other, "%s/spillway-%u-pool2.ctl", pool.dir, (unsigned)geteuid());
    int fd = open(other, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    cr_assert(fd >= 0);
    cr_expect_eq(rm("pool"), 0, "%s", out);
    cr_expect(strstr(out, "20 objects removed"), "%s", out);
    cr_expect_eq(proc_files(&pool), 1, "the other pool's stays");
    cr_expect_eq(rm("pool"), 5, "%s", out);
    cr_expect_eq(rm("pool2"), 0, "half-made, and no lock object: %s", out);
    cr_expect_eq(proc_files(&pool), 0);
    close(fd);
    proc_close(&pool);
}

Test(process_rm, who_holds_it_is_named_and_nothing_is_removed)
{
    struct actor actor;
    char pid[32];
    cr_assert(proc_start(&pool, &(struct proc_config){0}));
    uint32_t files = proc_files(&pool);
    cr_expect_eq(rm("pool"), 1, "%s", out);
    snprintf(pid, sizeof pid, "daemon, pid %d;", (int)pool.daemon);
    cr_expect(strstr(out, pid), "%s", out);
    struct actor_config who = {.name = "pool", .dir = pool.dir};
    cr_assert_eq(actor_open(&actor, &who), 0);
    proc_signal_worker(&pool, 0, SIGSTOP);
    proc_kill_daemon(&pool);
    cr_expect_eq(rm("pool"), 1, "%s", out);
    cr_expect(strstr(out, "worker 0, pid"), "%s", out);
    cr_expect_eq(spw_load_relaxed(&pool.seen->ctl->phase), SPW_POOL_SERVING, "nobody is told so");
    proc_signal_worker(&pool, 0, SIGKILL);
    cr_assert(proc_eventually(no_worker, NULL, PROC_LIMIT_MS));
    cr_expect_eq(rm("pool"), 1, "%s", out);
    snprintf(pid, sizeof pid, "client 0, pid %d", (int)getpid());
    cr_expect(strstr(out, pid), "%s", out);
    cr_expect_eq(proc_files(&pool), files);
    actor_close(&actor);
    cr_expect_eq(rm("pool"), 0, "%s", out);
    cr_expect_eq(proc_files(&pool), 0);
    proc_close(&pool);
}

Test(process_rm, what_is_no_object_of_the_pool_is_left_and_named)
{
    char feed[SPW_PATH_BYTES], link[SPW_PATH_BYTES];
    struct stat st;
    leave_stale();
    spw_region_name(&pool.seen->path, SPW_REGION_FEED, 0, feed);
    int fd = open(feed, O_RDWR | O_CLOEXEC);
    cr_assert(fd >= 0 && pwrite(fd, "precious", 8, offsetof(struct spw_region_header, magic)) == 8);
    cr_expect_eq(rm("pool"), 6, "%s", out);
    cr_expect(strstr(out, feed), "%s", out);
    cr_expect_eq(proc_files(&pool), 1);
    cr_expect_eq(stat(feed, &st), 0);
    unlink(feed);
    spw_region_name(&pool.seen->path, SPW_REGION_DATA, 0, link);
    cr_assert_eq(symlink("/etc/passwd", link), 0);
    cr_expect_eq(rm("pool"), 1, "%s", out);
    cr_expect(strstr(out, "symbolic link"), "%s", out);
    cr_expect_eq(lstat(link, &st), 0, "neither followed nor removed");
    close(fd);
    proc_close(&pool);
}

Test(process_rm, a_wrong_use_is_2)
{
    proc_open(&pool, &(struct proc_config){0});
    cr_expect_eq(rm(NULL), 2, "%s", out);
    cr_expect_eq(rm("../x"), 2, "%s", out);
    const char *argv[] = {SPW_PROC_SPILLWAY, "rm", "a", "--pool", "b", NULL};
    cr_expect_eq(proc_run(argv, out, sizeof out, PROC_LIMIT_MS), 2, "%s", out);
    proc_close(&pool);
}

struct remover {
    struct spw_pool_path path;
    useconds_t delay_us;
};

#define WAS_FIRST 2
#define WAS_BUSY  4

/* 1: a failure; else what came of it. */
static int remove_soon(void *arg)
{
    const struct remover *remover = arg;
    struct spw_pool_removed removed;
    struct spw_error err;
    int seen = 0;
    usleep(remover->delay_us);
    for (int i = 0; i < 20; i++) {
        int rc = spw_pool_remove(&remover->path, &removed, &err);
        if (rc != 0 && rc != -EBUSY && rc != -ENOENT)
            return 1;
        seen |= rc == 0 ? WAS_FIRST : rc == -EBUSY ? WAS_BUSY : 0;
        usleep(200);
    }
    return seen;
}

/* A daemon starts while its left-overs are removed, again and again: one of the two has the name at
 * a time, and the other one waits or is told. What serves is whole. */
Test(process_rm, a_removal_never_takes_a_starting_pools_objects_in_200_races)
{
    static struct spw_fsck_report report;
    struct remover remover = {0};
    struct spw_error err;
    uint32_t served = 0, first = 0, busy = 0, files = 0;
    proc_open(&pool, &(struct proc_config){.capacity = 4, .clients = 2});
    cr_assert_eq(spw_pool_path_init(&remover.path, pool.dir, "pool", (uint32_t)geteuid(), &err), 0);
    for (uint32_t i = 0; i < 200; i++) {
        remover.delay_us = i % 40 * 250;
        pid_t pid = support_fork(remove_soon, &remover);
        proc_spawn(&pool);
        int rc = proc_await(&pool);
        cr_assert(rc == 0 || rc == 1001, "round %u: %d", i, rc);
        int seen = support_wait(pid, PROC_LIMIT_MS);
        cr_assert(seen >= 0 && (seen & ~(WAS_FIRST | WAS_BUSY)) == 0, "round %u: %d", i, seen);
        first += (seen & WAS_FIRST) != 0;
        busy += (seen & WAS_BUSY) != 0;
        if (rc)
            continue;
        served++;
        files = files ? files : proc_files(&pool);
        cr_assert_eq(proc_files(&pool), files, "round %u", i);
        cr_assert_eq(spw_fsck_run(&remover.path, &report, &err), 0, "round %u: %s", i, err.text);
        cr_assert_eq(report.damages, 0, "round %u: %s", i, report.finding[0].text);
        proc_signal_worker(&pool, 0, SIGSTOP);
        proc_kill_daemon(&pool);
        proc_signal_worker(&pool, 0, SIGKILL);
        cr_assert(proc_eventually(no_worker, NULL, PROC_LIMIT_MS));
        spw_pool_detach(pool.seen);
        free(pool.seen);
        pool.seen = NULL;
    }
    cr_expect_gt(served, 50);
    cr_expect(first > 0 && busy > 0, "the races were none: %u and %u", first, busy);
    proc_close(&pool);
}
