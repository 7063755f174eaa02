/* spillway check on this host: what it says is what a start then does. */
#include "tests/process/proc.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/support/deny.h"

TestSuite(process_check, .timeout = 60);

#define MIB (1ull << 20)

static struct proc_pool pool;
static char out[16384];

static int check(const char *dir, const char *a, const char *b, const char *c)
{
    const char *argv[] = {
        SPW_PROC_SPILLWAY, "check", "--shm-dir", dir, "--name", "pool", a, b, c, NULL};
    return proc_run(argv, out, sizeof out, PROC_LIMIT_MS);
}

static json_t *finding_of(json_t *root, const char *what)
{
    size_t i;
    json_t *finding;
    json_array_foreach(json_object_get(root, "findings"), i,
                       finding) if (strcmp(json_string_value(json_object_get(finding, "check")),
                                           what) == 0) return finding;
    return NULL;
}

static bool is(json_t *root, const char *what, const char *severity)
{
    json_t *finding = finding_of(root, what);
    return finding &&
           strcmp(json_string_value(json_object_get(finding, "severity")), severity) == 0;
}

Test(process_check, a_host_where_a_pool_can_start_is_0_and_nothing_is_made)
{
    proc_open(&pool, &(struct proc_config){0});
    cr_expect_eq(check(pool.dir, NULL, NULL, NULL), 0, "%s", out);
    cr_expect(strstr(out, "ok       name       pool pool is free"), "%s", out);
    cr_expect_eq(proc_files(&pool), 0);
    cr_assert_eq(check(pool.dir, "--json", NULL, NULL), 0, "%s", out);
    json_t *root = json_loads(out, 0, NULL);
    cr_assert_not_null(root, "%s", out);
    cr_expect(json_is_true(json_object_get(root, "could_start")));
    cr_expect_gt(json_integer_value(json_object_get(finding_of(root, "shm"), "needed")),
                 64ll << 20);
    cr_expect(is(root, "gpus", "note"), "%s", out);
    json_decref(root);
    proc_close(&pool);
}

/* In a child with a mount of its own: 0 all as it must be, else which check failed. */
static int in_4_mib(void *arg)
{
    const char *dir = arg;
    if (support_private_tmpfs(dir, 4 * MIB) < 0)
        return SUPPORT_SKIP;
    if (check(dir, "--json", "--capacity-chunks", "256") != 1)
        return 10;
    json_t *root = json_loads(out, 0, NULL);
    if (!root || !is(root, "shm", "error") || json_is_true(json_object_get(root, "could_start")))
        return 11;
    if (json_integer_value(json_object_get(finding_of(root, "shm"), "available")) != 4ll << 20)
        return 12;
    json_decref(root);
    if (check(dir, "--chunk-bytes=64", "--kv-blocks=1", "--max-clients=2") != 0 ||
        !strstr(out, "ok       shm"))
        return 13;
    return 0;
}

Test(process_check, SM_1_too_small_a_mount_is_told_before_anything_is_made)
{
    char dir[SUPPORT_PATH_BYTES];
    cr_assert_eq(support_shm_dir(dir), 0);
    int status = support_wait(support_fork(in_4_mib, dir), 30000);
    if (status == SUPPORT_SKIP)
        cr_skip("no private mount here");
    cr_expect_eq(status, 0, "check %d failed: %s", status, out);
}

static int without_uring(void *arg)
{
    if (support_deny(SYS_io_uring_setup, EPERM) < 0)
        return SUPPORT_SKIP;
    if (check(arg, NULL, NULL, NULL) != 0)
        return 10;
    return strstr(out, "note     io_uring   not available") ? 0 : 11;
}

Test(process_check, io_uring_that_is_denied_is_told)
{
    proc_open(&pool, &(struct proc_config){0});
    int status = support_wait(support_fork(without_uring, pool.dir), 30000);
    if (status == SUPPORT_SKIP)
        cr_skip("no seccomp here");
    cr_expect_eq(status, 0, "check %d failed: %s", status, out);
    proc_close(&pool);
}

static bool has_ended(void *unused)
{
    return check(pool.dir, NULL, NULL, NULL) == 0;
}

Test(process_check, a_name_in_use_and_what_was_left_are_told)
{
    char pid[32];
    cr_assert(proc_start(&pool, &(struct proc_config){.on_stop = "keep"}));
    cr_expect_eq(check(pool.dir, NULL, NULL, NULL), 1, "%s", out);
    snprintf(pid, sizeof pid, "daemon, pid %d\n", (int)pool.daemon);
    cr_expect(strstr(out, "error    name") && strstr(out, pid), "%s", out);
    cr_expect_eq(kill(pool.daemon, SIGTERM), 0);
    cr_expect_eq(support_wait(pool.daemon, PROC_LIMIT_MS), 0);
    pool.daemon = 0;
    cr_expect(proc_eventually(has_ended, NULL, PROC_LIMIT_MS), "%s", out);
    cr_expect(strstr(out, "note     name       pool pool has left"), "%s", out);
    const char *argv[] = {SPW_PROC_SPILLWAY, "check", "--shm-dir", pool.dir, NULL};
    cr_expect_eq(proc_run(argv, out, sizeof out, PROC_LIMIT_MS), 0, "%s", out);
    cr_expect(strstr(out, "spillway rm pool removes"), "a stale one of another name: %s", out);
    proc_close(&pool);
}

Test(process_check, a_directory_below_that_cant_be_used_is_a_finding)
{
    proc_open(&pool, &(struct proc_config){0});
    cr_expect_eq(check(pool.dir, "--nvme-dir=/nowhere/at/all", "--nvme-bytes=1GiB", NULL), 1, "%s",
                 out);
    cr_expect(strstr(out, "error    nvme       /nowhere/at/all can't be used: No such file"), "%s",
              out);
    cr_expect_eq(check(pool.dir, "--nvme-dir=/dev/null", "--nvme-bytes=1GiB", "--json"), 1, "%s",
                 out);
    json_t *root = json_loads(out, 0, NULL);
    cr_assert_not_null(root, "%s", out);
    cr_expect(is(root, "nvme", "error") && json_is_false(json_object_get(root, "could_start")));
    json_decref(root);
    proc_close(&pool);
}

Test(process_check, options_are_those_of_the_daemon)
{
    proc_open(&pool, &(struct proc_config){0});
    cr_expect_eq(check(pool.dir, "--workers", "0", NULL), 2, "%s", out);
    cr_expect(strstr(out, "--workers"), "%s", out);
    cr_expect_eq(check(pool.dir, "--wrokers", NULL, NULL), 2, "%s", out);
    cr_expect_eq(check(pool.dir, "--help", NULL, NULL), 0, "%s", out);
    cr_expect(strstr(out, "--capacity-chunks"), "%s", out);
    proc_close(&pool);
}
