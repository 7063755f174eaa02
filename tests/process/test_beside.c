/* Starts beside others: processes of other pid namespaces, files of other users, pools that leave no
 * room for a second one. */
#include "tests/process/again.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shm/alive.h"

TestSuite(process_beside, .timeout = 60);

static struct actor actor;

/* ---- LC-10: pids ----------------------------------------------------------------------------- */

/* In a pid namespace of its own: a pool whose daemon serves, or (@arg) is dead and whose worker is
 * stopped; says so on the pipe and stays. */
static int ready_pipe[2];

static int inside(void *arg)
{
    bool dead = arg != NULL;
    proc_spawn(&again_pool);
    if (proc_await(&again_pool))
        return 10;
    if (dead) {
        proc_signal_worker(&again_pool, 0, SIGSTOP);
        proc_kill_daemon(&again_pool);
    }
    if (write(ready_pipe[1], "r", 1) != 1)
        return 11;
    pause();
    return 0;
}

static int in_a_namespace(void *arg)
{
    if (unshare(CLONE_NEWPID) < 0)
        return SUPPORT_SKIP;
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        _exit(inside(arg));
    }
    return support_wait(pid, 60000);
}

/* False: no namespaces here. */
static bool open_in_a_namespace(bool dead, pid_t *out_pid)
{
    char byte = 0;
    proc_open(&again_pool, &(struct proc_config){.on_stop = "keep"});
    cr_assert_eq(pipe(ready_pipe), 0);
    *out_pid = support_fork(in_a_namespace, dead ? &again_pool : NULL);
    close(ready_pipe[1]);
    return read(ready_pipe[0], &byte, 1) == 1;
}

static bool is_free(void *ctx)
{
    struct spw_pool_path path;
    struct spw_error err;
    (void)ctx;
    cr_assert_eq(spw_pool_path_init(&path, again_pool.dir, "pool", (uint32_t)geteuid(), &err), 0);
    int fd = spw_lock_open(&path, false, 0, -1, &err);
    bool free =
        spw_lock_held(fd, SPW_LOCK_DAEMON) == 0 && spw_lock_held(fd, SPW_LOCK_WORKER(0)) == 0;
    spw_lock_close(fd);
    return free;
}

/* With its first process all that is inside goes. */
static void end_namespace(pid_t pid)
{
    support_kill(pid);
    cr_assert(proc_eventually(is_free, NULL, 5000));
}

static int run_another(char *out, size_t bytes)
{
    const char *argv[] = {SPW_PROC_SPILLWAYD,
                          "--name",
                          "pool",
                          "--shm-dir",
                          again_pool.dir,
                          "--quiet",
                          "--capacity-chunks",
                          "64",
                          "--chunk-bytes",
                          "1024",
                          "--update-ring-records",
                          "1024",
                          NULL};
    return proc_run(argv, out, bytes, PROC_LIMIT_MS);
}

Test(process_beside, LC_10_a_live_daemon_of_another_pid_namespace_is_seen)
{
    char out[1024];
    pid_t pid;
    if (!open_in_a_namespace(false, &pid))
        cr_skip("no pid namespace here");
    uint32_t files = proc_files(&again_pool);
    cr_expect_eq(run_another(out, sizeof out), 1);
    cr_expect(strstr(out, "in use"), "%s", out);
    cr_expect_eq(proc_files(&again_pool), files);
    again_open(&actor, "model", 1);
    cr_expect_eq(actor_store(&actor, 1, 3), 3, "it goes on");
    actor_close(&actor);
    end_namespace(pid);
    again_start_over();
    again_open(&actor, "model", 1);
    cr_expect_eq(actor_load(&actor, 1, 3), 3);
    actor_close(&actor);
    again_close();
}

Test(process_beside, LC_10_a_stuck_worker_of_another_pid_namespace_refuses_the_start)
{
    char out[1024];
    pid_t pid;
    if (!open_in_a_namespace(true, &pid))
        cr_skip("no pid namespace here");
    cr_expect_eq(run_another(out, sizeof out), 1);
    cr_expect(strstr(out, "worker 0") && strstr(out, "another pid namespace"), "%s", out);
    end_namespace(pid);
    again_start_over();
    again_close();
}

/* Numbers of a dead pool are used again by processes that have nothing to do with it. */
Test(process_beside, LC_10_pids_that_were_used_again_stop_no_start_and_are_not_signalled)
{
    const char *const argv[] = {"sleep", "60", NULL};
    again_start(&(struct proc_config){.workers = 2});
    again_kill_all();
    pid_t sleeper = support_spawn(argv, NULL);
    char path[SUPPORT_PATH_BYTES + 64];
    snprintf(path, sizeof path, "%s/spillway-%u-pool.ctl", again_pool.dir, geteuid());
    int fd = open(path, O_RDWR);
    uint64_t number = (uint64_t)sleeper;
    const size_t at[] = {offsetof(struct spw_ctl, daemon_pid),
                         offsetof(struct spw_ctl, worker[0].pid),
                         offsetof(struct spw_ctl, worker[1].pid)};
    for (size_t i = 0; i < 3; i++)
        cr_assert_eq(pwrite(fd, &number, sizeof number, (off_t)at[i]), (ssize_t)sizeof number);
    close(fd);
    again_start_over();
    cr_expect_eq(kill(sleeper, 0), 0);
    cr_expect_eq(support_kill(sleeper), SUPPORT_SIGNALLED + SIGKILL, "it was alive");
    again_close();
}

/* ---- LC-1: room for one ---------------------------------------------------------------------- */

static uint64_t bytes_in(const char *dir, const char *part)
{
    char path[SUPPORT_PATH_BYTES + 300];
    uint64_t bytes = 0;
    DIR *list = opendir(dir);
    for (struct dirent *entry; list && (entry = readdir(list));) {
        struct stat st;
        snprintf(path, sizeof path, "%s/%s", dir, entry->d_name);
        if (strstr(entry->d_name, part) && stat(path, &st) == 0 && S_ISREG(st.st_mode))
            bytes += (uint64_t)st.st_blocks * 512;
    }
    if (list)
        closedir(list);
    return bytes;
}

static uint64_t hash_of(const char *dir, const char *name)
{
    char path[SUPPORT_PATH_BYTES + 300];
    uint64_t hash = 1469598103934665603ull;
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *file = fopen(path, "r");
    for (int c; file && (c = fgetc(file)) != EOF;)
        hash = (hash ^ (uint64_t)c) * 1099511628211ull;
    if (file)
        fclose(file);
    return file ? hash : 0;
}

static const struct proc_config large = {
    .capacity = 256, .chunk_bytes = 16384, .kv_blocks = 8, .clients = 3};

/* In a child with a mount of its own, of 1.2 x the pool that @arg says, and a little for others. */
static int lc1_rounds(void *arg)
{
    const uint64_t pool_bytes = *(uint64_t *)arg;
    char path[SUPPORT_PATH_BYTES + 32];
    struct proc_pool other = {.config = {.name = "other", .clients = 2, .kv_blocks = 1}};
    uint64_t slowest = 0;
    const uint64_t others_bytes = 2 << 20;
    if (support_private_tmpfs(again_pool.dir, pool_bytes + pool_bytes / 5 + others_bytes) < 0)
        return SUPPORT_SKIP;
    snprintf(path, sizeof path, "%s/unrelated", again_pool.dir);
    FILE *file = fopen(path, "w");
    if (!file || fputs("not of a pool", file) < 0 || fclose(file))
        return 10;
    memcpy(other.dir, again_pool.dir, sizeof other.dir);
    proc_spawn(&other);
    if (proc_await(&other) || bytes_in(again_pool.dir, "other") > others_bytes)
        return 11;
    uint64_t others_kv = hash_of(again_pool.dir, "spillway-0-other.kv.0");
    for (int round = 0; round < 20; round++) {
        uint64_t before = proc_now_ms();
        again_pool.config.more[0] =
            round % 4 == 3 ? "--cold" : NULL; /* both ways have to do with it */
        proc_spawn(&again_pool);
        if (proc_await(&again_pool))
            return 20;
        uint64_t took = proc_now_ms() - before;
        slowest = took > slowest ? took : slowest;
        if (took > AGAIN_START_MS)
            return 21;
        if (proc_files(&again_pool) != 1 + 10 + 8) /* the other's clients are 2 */
            return 22;
        struct actor_config who = {.dir = again_pool.dir, .name = "pool"};
        if (actor_open(&actor, &who))
            return 23;
        if (actor_hits(&actor, 1, 3) != (round % 4 == 3 || round == 0 ? 0 : 3))
            return 24;
        if (actor_store(&actor, 1, 3) != 3 || actor_load(&actor, 1, 3) != 3)
            return 25;
        actor_close(&actor);
        proc_kill_all(&again_pool);
    }
    fprintf(stderr, "20 kills of everything: slowest start %u ms\n", (unsigned)slowest);
    char text[32] = "";
    file = fopen(path, "r");
    if (!file || !fgets(text, sizeof text, file) || strcmp(text, "not of a pool"))
        return 30;
    if (hash_of(again_pool.dir, "spillway-0-other.kv.0") != others_kv)
        return 31;
    return proc_stop(&other, SIGTERM);
}

Test(process_beside, LC_1_twenty_kills_of_everything_where_only_one_pool_has_room)
{
    again_start(&large);
    uint64_t bytes = bytes_in(again_pool.dir, "-pool.");
    cr_assert_gt(bytes, 4 << 20);
    again_stop();
    int status = support_wait(support_fork(lc1_rounds, &bytes), 50000);
    if (status == SUPPORT_SKIP)
        cr_skip("no private mount here");
    cr_expect_eq(status, 0, "check %d failed", status);
    again_close();
}

/* ---- SM-6: other users ----------------------------------------------------------------------- */

Test(process_beside, SM_6_left_overs_of_another_user_are_not_touched)
{
    if (geteuid() != 0)
        cr_skip("only root can make a file of somebody else");
    char path[SUPPORT_PATH_BYTES + 64], out[1024];
    static const char *const theirs[] = {"spillway-1001-pool.lock", "spillway-1001-pool.ctl",
                                         "spillway-1001-pool.feed.0"};
    proc_open(&again_pool, &(struct proc_config){.on_stop = "remove"});
    for (size_t i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s/%s", again_pool.dir, theirs[i]);
        int fd = open(path, O_CREAT | O_WRONLY, 0600);
        cr_assert(fd >= 0 && write(fd, "theirs", 6) == 6 && fchown(fd, 1001, 1001) == 0);
        close(fd);
    }
    again_start_over();
    again_stop();
    cr_expect_eq(proc_files(&again_pool), 3);
    cr_expect_eq(bytes_in(again_pool.dir, "-1001-"), 3 * 4096u);
    /* a name that is ours, and a file that isn't */
    snprintf(path, sizeof path, "%s/spillway-0-pool.data.0", again_pool.dir);
    int fd = open(path, O_CREAT | O_WRONLY, 0600);
    cr_assert(fd >= 0 && fchown(fd, 1001, 1001) == 0);
    close(fd);
    cr_expect_eq(run_another(out, sizeof out), 1);
    cr_expect(strstr(out, path) && strstr(out, "1001"), "%s", out);
    cr_expect_eq(proc_files(&again_pool), 4, "nothing is half created");
    again_close();
}
