/* Making a pool, ending it, and what is left when either goes wrong. */
#include "tests/process/actor.h"
#include "tests/process/proc.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shm/alive.h"
#include "tests/support/deny.h"

TestSuite(process_start, .timeout = 60);

#define MIB          (1ull << 20)
#define INSIDE_BYTES 1024

/* Status of spillwayd with @bytes of payload in a file system of 4 MiB; words in @out. */
static int start_in_4_mib(const char *dir, const char *capacity, char *out, size_t bytes)
{
    const char *argv[] = {SPW_PROC_SPILLWAYD,
                          "--shm-dir",
                          dir,
                          "--capacity-chunks",
                          capacity,
                          "--chunk-bytes",
                          "64KiB",
                          "--kv-blocks",
                          "1",
                          "--max-clients",
                          "2",
                          "--update-ring-records",
                          "64",
                          "--quiet",
                          NULL};
    return proc_run(argv, out, bytes, PROC_LIMIT_MS);
}

static int has_files(const char *dir)
{
    DIR *list = opendir(dir);
    int count = 0;
    for (struct dirent *entry; list && (entry = readdir(list));)
        count += entry->d_name[0] != '.';
    if (list)
        closedir(list);
    return list ? count : -1;
}

/* In a child with a mount of its own: 0 all as it must be, else which check failed. */
static int sm1_in_private_mount(void *arg)
{
    const char *dir = arg;
    char out[INSIDE_BYTES];
    int rc = support_private_tmpfs(dir, 4 * MIB);
    if (rc < 0)
        return SUPPORT_SKIP;
    if (start_in_4_mib(dir, "256", out, sizeof out) != 1)
        return 10;
    fputs(out, stderr);
    /* wanted (more than 16 MiB), available, path and remedy; nothing left behind */
    if (!strstr(out, "wanted") || !strstr(out, "(4.0 MiB)") || !strstr(out, dir) ||
        !strstr(out, "remount,size="))
        return 11;
    double wanted = 0;
    const char *words = strchr(strstr(out, "wanted"), '(');
    if (!words || sscanf(words, "(%lf MiB)", &wanted) != 1 || wanted < 16 || wanted > 20)
        return 12;
    return has_files(dir) == 0 ? 0 : 13;
}

Test(process_start, SM_1_a_pool_larger_than_its_mount_is_refused_with_numbers_and_remedy)
{
    char dir[SUPPORT_PATH_BYTES];
    cr_assert_eq(support_shm_dir(dir), 0);
    int status = support_wait(support_fork(sm1_in_private_mount, dir), 30000);
    if (status == SUPPORT_SKIP)
        cr_skip("no private mount here");
    cr_expect_eq(status, 0, "check %d failed", status);
}

/* Room as of statvfs that is gone when the bytes are reserved, as when somebody else was quicker. */
static int sm1_filled_between(void *arg)
{
    const char *dir = arg;
    char out[INSIDE_BYTES];
    if (support_private_tmpfs(dir, 4 * MIB) < 0)
        return SUPPORT_SKIP;
    /* fallocate answers as it does on a full file system, whatever statvfs said before */
    if (support_deny(SYS_fallocate, ENOSPC) < 0)
        return SUPPORT_SKIP;
    if (start_in_4_mib(dir, "16", out, sizeof out) != 1)
        return 10;
    fputs(out, stderr);
    if (!strstr(out, "wanted") || !strstr(out, "the kernel gave 0") || !strstr(out, dir) ||
        !strstr(out, "smaller"))
        return 11;
    return has_files(dir) == 0 ? 0 : 12;
}

Test(process_start, SM_1_room_that_goes_between_check_and_allocation_ends_as_cleanly)
{
    char dir[SUPPORT_PATH_BYTES];
    cr_assert_eq(support_shm_dir(dir), 0);
    int status = support_wait(support_fork(sm1_filled_between, dir), 30000);
    if (status == SUPPORT_SKIP)
        cr_skip("no private mount or filter here");
    cr_expect_eq(status, 0, "check %d failed", status);
}

/* ---- rights ---------------------------------------------------------------------------------- */

/* Files whose permission bits and group aren't these. */
static int other_rights(const char *dir, mode_t mode, gid_t gid)
{
    char path[SUPPORT_PATH_BYTES + 300];
    DIR *list = opendir(dir);
    int count = 0;
    for (struct dirent *entry; list && (entry = readdir(list));) {
        struct stat st;
        snprintf(path, sizeof path, "%s/%s", dir, entry->d_name);
        if (entry->d_name[0] == '.' || stat(path, &st))
            continue;
        if ((st.st_mode & 07777) != mode || st.st_gid != gid) {
            fprintf(stderr, "%s: mode %04o, group %u\n", path, st.st_mode & 07777, st.st_gid);
            count++;
        }
    }
    if (list)
        closedir(list);
    return list ? count : -1;
}

Test(process_start, SM_1_a_limit_of_file_sizes_is_refused_with_words)
{
    struct proc_pool pool;
    const struct proc_config config = {0};
    char out[INSIDE_BYTES];
    proc_open(&pool, &config);
    const char *argv[] = {"sh",
                          "-c",
                          "ulimit -f 8; exec \"$0\" \"$@\"",
                          SPW_PROC_SPILLWAYD,
                          "--shm-dir",
                          pool.dir,
                          "--quiet",
                          NULL};
    cr_expect_eq(proc_run(argv, out, sizeof out, PROC_LIMIT_MS), 1);
    cr_expect(strstr(out, "can't reserve") && strstr(out, "File too large"), "%s", out);
    cr_expect_eq(proc_files(&pool), 0);
    proc_close(&pool);
}

Test(process_start, SM_7_umask_takes_nothing_from_a_mode_that_was_asked_for)
{
    const gid_t group = geteuid() == 0 ? 4242 : getegid();
    char number[16];
    struct proc_pool pool;
    struct proc_config config = {.more = {"--mode", "0660", "--group", number, NULL}};
    snprintf(number, sizeof number, "%u", group);
    umask(0077);
    cr_assert(proc_start(&pool, &config));
    cr_expect_gt(proc_files(&pool), 4);
    cr_expect_eq(other_rights(pool.dir, 0660, group), 0);
    cr_expect_eq(proc_stop(&pool, SIGTERM), 0);
    proc_close(&pool);
}

Test(process_start, SM_7_an_open_umask_gives_nothing_to_others)
{
    struct proc_pool pool;
    struct proc_config config = {0};
    umask(0);
    cr_assert(proc_start(&pool, &config));
    cr_expect_eq(other_rights(pool.dir, 0600, getegid()), 0);
    cr_expect_eq(proc_stop(&pool, SIGTERM), 0);
    proc_close(&pool);
}

/* ---- names ----------------------------------------------------------------------------------- */

Test(process_start, SM_12_of_two_starts_at_the_same_moment_one_wins)
{
    struct proc_pool pool;
    struct proc_config config = {.capacity = 1, .clients = 2, .kv_blocks = 1};
    proc_open(&pool, &config);
    for (int round = 0; round < 60; round++) {
        proc_spawn(&pool);
        pid_t first = pool.daemon;
        proc_spawn(&pool);
        pid_t second = pool.daemon;
        /* the loser ends by itself, the winner serves */
        pid_t lost = 0;
        for (uint64_t until = proc_now_ms() + PROC_LIMIT_MS; !lost && proc_now_ms() < until;) {
            siginfo_t info = {0};
            if (waitid(P_PID, (id_t)first, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid)
                lost = first;
            else if (waitid(P_PID, (id_t)second, &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
                     info.si_pid)
                lost = second;
            else
                usleep(500);
        }
        cr_assert_neq(lost, 0, "round %d: both live", round);
        cr_assert_eq(support_wait(lost, 1000), 1, "round %d", round);
        pool.daemon = lost == first ? second : first;
        cr_assert_eq(proc_await(&pool), 0, "round %d: the winner doesn't serve", round);
        cr_assert_eq(proc_stop(&pool, SIGTERM), 0, "round %d", round);
        cr_assert_eq(proc_files(&pool), 0, "round %d", round);
    }
    proc_close(&pool);
}

Test(process_start, SM_12_a_second_daemon_is_told_who_holds_the_name)
{
    struct proc_pool pool;
    struct proc_config config = {0};
    char out[INSIDE_BYTES], pid[32];
    cr_assert(proc_start(&pool, &config));
    const char *argv[] = {SPW_PROC_SPILLWAYD, "--name",  "pool", "--shm-dir",
                          pool.dir,           "--quiet", NULL};
    cr_expect_eq(proc_run(argv, out, sizeof out, PROC_LIMIT_MS), 1);
    snprintf(pid, sizeof pid, "pid %d", (int)pool.daemon);
    cr_expect(strstr(out, "in use") && strstr(out, pid), "%s", out);
    cr_expect_eq(proc_stop(&pool, SIGTERM), 0);
    proc_close(&pool);
}

Test(process_start, SM_12_pools_of_two_names_share_nothing)
{
    struct proc_pool a, b;
    struct proc_config config = {.name = "a"};
    cr_assert(proc_start(&a, &config));
    b = a;
    b.config.name = "b";
    b.seen = NULL;
    proc_spawn(&b);
    cr_assert_eq(proc_await(&b), 0);
    struct actor actor;
    cr_assert_eq(actor_open(&actor, &(struct actor_config){.dir = b.dir, .name = "b"}), 0);
    cr_expect_eq(actor_store(&actor, 1, 3), 3);
    cr_expect_eq(proc_stop(&a, SIGTERM), 0);
    cr_expect_eq(actor_load(&actor, 1, 3), 3);
    actor_close(&actor);
    cr_expect_eq(proc_stop(&b, SIGTERM), 0);
    cr_expect_eq(proc_files(&b), 0);
    proc_close(&b);
}

/* ---- ends and new starts --------------------------------------------------------------------- */

Test(process_start, every_way_to_stop_ends_with_0_and_an_empty_folder)
{
    struct proc_pool pool;
    struct proc_config config = {.workers = 2};
    char out[INSIDE_BYTES];
    proc_open(&pool, &config);
    for (int way = 0; way < 3; way++) {
        proc_spawn(&pool);
        cr_assert_eq(proc_await(&pool), 0);
        struct actor actor;
        cr_assert_eq(actor_open(&actor, &(struct actor_config){.dir = pool.dir, .name = "pool"}),
                     0);
        cr_expect_eq(actor_store(&actor, 1, 3), 3);
        if (way == 0)
            cr_expect_eq(proc_spillway(&pool, "stop", false, out, sizeof out), 0, "%s", out);
        cr_expect_eq(proc_stop(&pool, way == 1 ? SIGINT : SIGTERM), 0, "way %d", way);
        cr_expect_eq(proc_files(&pool), 0, "way %d", way);
        cr_expect_eq(spw_step_begin(actor.client), -ECONNRESET);
        cr_expect_eq(spw_step_begin(actor.client), -ENOTCONN);
        actor_close(&actor);
    }
    proc_close(&pool);
}

Test(process_start, a_stop_that_keeps_leaves_the_objects_to_the_next_start)
{
    struct proc_pool pool;
    struct proc_config config = {.on_stop = "keep"};
    cr_assert(proc_start(&pool, &config));
    uint32_t files = proc_files(&pool);
    cr_expect_eq(proc_stop(&pool, SIGTERM), 0);
    cr_expect_eq(proc_files(&pool), files);
    proc_spawn(&pool);
    cr_assert_eq(proc_await(&pool), 0);
    pool.config.on_stop = NULL;
    cr_expect_eq(proc_stop(&pool, SIGTERM), 0);
    proc_close(&pool);
}

Test(process_start, a_killed_daemon_is_followed_by_a_new_start_and_clients_are_told_once)
{
    struct proc_pool pool;
    struct proc_config config = {.workers = 2};
    struct actor_config who = {.name = "pool"};
    struct actor actor;
    cr_assert(proc_start(&pool, &config));
    who.dir = pool.dir;
    cr_assert_eq(actor_open(&actor, &who), 0);
    cr_expect_eq(actor_store(&actor, 1, 3), 3);
    for (int round = 0; round < 3; round++) {
        proc_kill_daemon(&pool);
        /* nobody else notices: workers go on while clients live */
        cr_expect_eq(actor_load(&actor, 1, 3), 3, "round %d", round);
        struct spw_pool *old = pool.seen;
        proc_spawn(&pool);
        cr_assert_eq(proc_await(&pool), 0);
        int told = spw_step_begin(actor.client);
        cr_expect_eq(told, -ECONNRESET, "round %d: %d", round, told);
        told = spw_step_begin(actor.client);
        cr_expect_eq(told, -ENOTCONN, "round %d: %d", round, told);
        struct spw_completion done;
        told = spw_completions(actor.client, &done, 1);
        cr_expect_eq(told, -ENOTCONN, "round %d: %d", round, told);
        actor_close(&actor);
        cr_assert_eq(actor_open(&actor, &who), 0);
        cr_expect_eq(actor_store(&actor, 1, 3), 3);
        /* the old pool's workers have seen that it is over */
        uint64_t until = proc_now_ms() + 5000;
        while ((spw_lock_held(old->lock_fd, SPW_LOCK_WORKER(0)) ||
                spw_lock_held(old->lock_fd, SPW_LOCK_WORKER(1))) &&
               proc_now_ms() < until)
            usleep(1000);
        cr_expect_eq(spw_lock_held(old->lock_fd, SPW_LOCK_WORKER(0)), 0);
        cr_expect_eq(spw_lock_held(old->lock_fd, SPW_LOCK_WORKER(1)), 0);
        spw_pool_detach(old);
        free(old);
    }
    actor_close(&actor);
    cr_expect_eq(proc_stop(&pool, SIGTERM), 0);
    cr_expect_eq(proc_files(&pool), 0);
    proc_close(&pool);
}

Test(process_start, an_attach_between_a_new_daemons_lock_and_its_first_act_ends_at_once)
{
    struct proc_pool pool;
    struct proc_config config = {0};
    const char *const hold[] = {"hold", NULL};
    struct spw_region region = {0};
    struct spw_error err;
    int fd;
    cr_assert(proc_start(&pool, &config));
    proc_kill_daemon(&pool);
    proc_signal_worker(&pool, 0, SIGKILL);
    while (spw_lock_held(pool.seen->lock_fd, SPW_LOCK_WORKER(0)) == 1)
        usleep(1000);
    /* what a new daemon does first, and then, late, next */
    cr_assert_eq(spw_lock_take(pool.seen->lock_fd, SPW_LOCK_DAEMON), 0);
    pid_t peer = proc_peer(&pool, &fd, hold);
    usleep(300000);
    cr_expect_eq(spw_lock_held(pool.seen->lock_fd, SPW_LOCK_CLIENT(0)), 1, "it isn't attaching");
    cr_assert_eq(spw_region_attach(&pool.seen->path, SPW_REGION_CTL, 0, true, 0, &region, &err), 0);
    spw_store_relaxed(&((struct spw_ctl *)(void *)region.header)->phase, SPW_POOL_CLOSED);
    spw_region_detach(&region);
    /* from here on it asks again and again, until the daemon is gone, too */
    spw_lock_drop(pool.seen->lock_fd, SPW_LOCK_DAEMON);
    cr_expect_eq(support_wait(peer, 2000), 2, "it goes on waiting for a worker that is dead");
    close(fd);
    proc_close(&pool);
}

Test(process_start, R_18_a_second_worker_of_a_shard_refuses_even_while_the_first_is_stopped)
{
    struct proc_pool pool;
    struct proc_config config = {0};
    char out[INSIDE_BYTES];
    cr_assert(proc_start(&pool, &config));
    uint64_t incarnation = proc_incarnation(&pool, 0);
    const char *argv[] = {SPW_PROC_SPILLWAYD, "worker", "0", "--name", "pool",
                          "--shm-dir",        pool.dir, NULL};
    cr_expect_eq(proc_run(argv, out, sizeof out, PROC_LIMIT_MS), 1);
    cr_expect(strstr(out, "another process"), "%s", out);
    proc_signal_worker(&pool, 0, SIGSTOP);
    cr_expect_eq(proc_run(argv, out, sizeof out, PROC_LIMIT_MS), 1);
    proc_signal_worker(&pool, 0, SIGCONT);
    cr_expect_eq(proc_incarnation(&pool, 0), incarnation);
    cr_expect_eq(spw_load_relaxed(&pool.seen->feed[0]->incarnation), incarnation);
    cr_expect_eq(proc_stop(&pool, SIGTERM), 0);
    proc_close(&pool);
}

/* One that comes late: its daemon has been told to end, or is dead and another one has the name. */
Test(process_start, R_18_a_worker_of_a_pool_that_is_over_touches_no_shard)
{
    struct proc_pool pool;
    struct proc_config config = {.on_stop = "keep"};
    char out[INSIDE_BYTES];
    cr_assert(proc_start(&pool, &config));
    uint64_t incarnation = proc_incarnation(&pool, 0);
    kill(pool.daemon, SIGTERM);
    cr_expect_eq(support_wait(pool.daemon, PROC_LIMIT_MS), 0);
    pool.daemon = 0;
    const char *argv[] = {SPW_PROC_SPILLWAYD, "worker", "0", "--name", "pool",
                          "--shm-dir",        pool.dir, NULL};
    cr_expect_eq(proc_run(argv, out, sizeof out, PROC_LIMIT_MS), 0, "%s", out);
    argv[2] = "0:5eed";
    cr_expect_eq(proc_run(argv, out, sizeof out, PROC_LIMIT_MS), 1);
    cr_expect(strstr(out, "made anew by another daemon"), "%s", out);
    cr_expect_eq(spw_load_relaxed(&pool.seen->feed[0]->incarnation), incarnation);
    proc_close(&pool);
}

/* ---- a daemon that dies while it makes its pool ---------------------------------------------- */

static const char *const init_points[] = {
    "pool.name_taken:1",      "pool.old_closed:1",     "pool.old_removed:1",
    "pool.old_removed:5",     "region.created:1",      "region.allocated:1",
    "region.filled:1",        "region.created:3",      "region.filled:4",
    "pool.object_created:1",  "pool.object_created:5", "region.published:1",
    "region.published:3",     "pool.published:1",      "pool.object_unlinked:1",
    "pool.object_unlinked:4",
};

Test(process_start, SM_10_a_daemon_killed_at_any_step_of_its_start_or_end_stops_no_later_start)
{
#ifndef SPW_CRASH_POINTS
    cr_skip("built without crash points");
#endif
    struct proc_pool pool;
    struct proc_config config = {.on_stop = "keep"};
    struct actor_config who = {.name = "pool"};
    proc_open(&pool, &config);
    who.dir = pool.dir;
    for (size_t i = 0; i < sizeof init_points / sizeof init_points[0]; i++) {
        /* an end leaves a whole pool for the next one to clear away */
        bool at_end = strncmp(init_points[i], "pool.object_unlinked", 20) == 0;
        pool.config.on_stop = at_end ? "remove" : "keep";
        setenv("SPW_CRASH_DAEMON", init_points[i], 1);
        proc_spawn(&pool);
        unsetenv("SPW_CRASH_DAEMON");
        if (at_end) {
            cr_assert_eq(proc_await(&pool), 0);
            cr_expect_eq(proc_stop(&pool, SIGTERM), SUPPORT_SIGNALLED + SIGKILL, "%s",
                         init_points[i]);
        } else {
            cr_expect_eq(proc_await(&pool), 1000 + SUPPORT_SIGNALLED + SIGKILL, "%s",
                         init_points[i]);
        }
        /* nobody attaches to what is half there, and nobody hangs */
        struct spw_client *client = NULL;
        struct spw_attach_options options = {.size_bytes = sizeof options,
                                             .numa_node = -1,
                                             .pool = "pool",
                                             .shm_dir = pool.dir,
                                             .uid = -1};
        char words[256] = "";
        int rc = spw_attach(&options, &client, words, sizeof words);
        cr_expect(rc == -ENOENT || rc == -EOWNERDEAD, "%s: attach says %d %s", init_points[i], rc,
                  words);
        uint64_t before = proc_now_ms();
        pool.config.on_stop = "keep";
        proc_spawn(&pool);
        cr_assert_eq(proc_await(&pool), 0, "%s: the next start", init_points[i]);
        cr_expect_lt(proc_now_ms() - before, 5000);
        struct actor actor;
        cr_assert_eq(actor_open(&actor, &who), 0);
        cr_expect_eq(actor_store(&actor, 1, 3), 3);
        actor_close(&actor);
        cr_expect_eq(proc_stop(&pool, SIGTERM), 0, "%s", init_points[i]);
    }
    proc_close(&pool);
}
