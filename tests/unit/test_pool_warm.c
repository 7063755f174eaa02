/* What a new daemon does with the pool of a dead one: gone on with, or not, and its workers. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shm/alive.h"
#include "shm/pool.h"
#include "shm/process.h"
#include "tests/support/small_pool.h"

TestSuite(pool_warm, .timeout = 60);

#define MARK 0x5eedu

static struct spw_pool_config config;
static struct spw_pool pool, old, other; /* large: not on the stack */
static struct spw_error err;

static void start(void)
{
    cr_assert_eq(small_pool_config(&small_pool_two, &config), 0);
    config.geometry.capacity_chunks = 40;
    config.geometry.slots = 41;
    config.geometry.slot_bytes = 4096;
    config.geometry.index_buckets = 12;
}

/* A pool with marks in its shards, whose daemon is dead. */
static void leave_a_pool(void)
{
    cr_assert_eq(spw_pool_create(&config, &pool, &err), 0, "%s", err.text);
    spw_store_relaxed(&pool.ctl->phase, SPW_POOL_SERVING);
    for (uint32_t k = 0; k < 2; k++) {
        spw_store_relaxed(&pool.feed[k]->gate, MARK + k);
        spw_store_relaxed(&pool.feed[k]->acked[1], 7);
        spw_store_relaxed(&pool.feed[k]->fenced[2], 8);
        memset(pool.data[k], 0x5a + (int)k, config.geometry.slot_bytes);
    }
    spw_pool_detach(&pool);
}

static void create(void)
{
    cr_assert_eq(spw_pool_create(&config, &pool, &err), 0, "%s", err.text);
}

static bool is_marked(uint32_t k)
{
    const uint8_t *bytes = pool.data[k];
    return spw_load_relaxed(&pool.feed[k]->gate) == MARK + k && bytes[0] == 0x5a + k &&
           memcmp(bytes, bytes + 1, config.geometry.slot_bytes - 1) == 0;
}

static int names(void)
{
    return support_count_names(config.path.shm_dir);
}

/* ---- gone on with ---------------------------------------------------------------------------- */

Test(pool_warm, shards_stay_and_all_else_is_new, .init = start)
{
    leave_a_pool();
    cr_assert_eq(spw_pool_attach(&config.path, SPW_ROLE_TOOL, 0, &old, &err), 0, "%s", err.text);
    config.geometry.clients = 2; /* nothing of a shard depends on these */
    config.geometry.command_slots = 8;
    config.geometry.kv_blocks = config.geometry.kv_block_bytes = 0;
    create();
    cr_assert(pool.warm, "%s", pool.cold_text);
    cr_expect(is_marked(0) && is_marked(1));
    cr_expect_eq(spw_load_relaxed(&pool.feed[0]->acked[1]), 0, "of a client that is gone");
    cr_expect_eq(spw_load_relaxed(&pool.feed[1]->fenced[2]), 0);
    cr_expect_eq(spw_load_relaxed(&pool.ctl->phase), SPW_POOL_STARTING);
    cr_expect_eq(spw_load_relaxed(&pool.ctl->daemon_pid), (uint64_t)getpid());
    cr_expect_eq(spw_load_relaxed(&pool.ctl->pid_namespace), spw_process_namespace());
    cr_expect_eq(spw_load_relaxed(&old.ctl->phase), SPW_POOL_CLOSED, "its clients are told");
    const uint64_t *was = old.ctl->header.pool_id, *is = pool.ctl->header.pool_id;
    cr_expect_neq(was[0], is[0]);
    cr_expect_eq(was[1], is[1]);
    cr_expect_eq(names(), 1 + 1 + 2 + 2 + 2, "lock, ctl, two shards, two clients");
    spw_store_relaxed(&pool.ctl->phase, SPW_POOL_SERVING);
    cr_expect_eq(spw_pool_attach(&config.path, SPW_ROLE_WORKER, 1, &other, &err), 0, "%s",
                 err.text);
    spw_pool_detach(&other);
    cr_expect_eq(spw_pool_attach(&config.path, SPW_ROLE_CLIENT, 0, &other, &err), 0, "%s",
                 err.text);
    spw_pool_detach(&other);
    spw_pool_detach(&old);
    cr_expect_eq(spw_pool_unlink(&pool, &err), 0);
    cr_expect_eq(names(), 0);
    spw_pool_detach(&pool);
}

Test(pool_warm, again_and_again, .init = start)
{
    leave_a_pool();
    for (int round = 0; round < 20; round++) {
        create();
        cr_assert(pool.warm && is_marked(0) && is_marked(1), "round %d: %s", round, pool.cold_text);
        spw_pool_detach(&pool);
    }
    cr_expect_eq(names(), 1 + 1 + 2 + 2 + 3 + 3);
}

Test(pool_warm, sm7_kept_objects_get_the_rights_of_the_new_start, .init = start)
{
    char name[SPW_PATH_BYTES];
    struct stat st;
    leave_a_pool();
    config.mode = 0660;
    config.gid = geteuid() == 0 ? 4242 : getegid();
    umask(0077);
    create();
    cr_assert(pool.warm, "%s", pool.cold_text);
    for (enum spw_region_kind kind = SPW_REGION_CTL; kind <= SPW_REGION_DATA; kind++) {
        spw_region_name(&config.path, kind, 0, name);
        cr_assert_eq(stat(name, &st), 0);
        cr_expect_eq(st.st_mode & 07777, 0660, "%s", name);
        cr_expect_eq(st.st_gid, (gid_t)config.gid, "%s", name);
    }
    spw_pool_detach(&pool);
}

static void keep_second(void *ctx, struct spw_pool *into, const struct spw_ctl *from)
{
    *(int *)ctx += 1;
    into->ctl->space[1].record = from->space[1].record;
    spw_store_relaxed(&into->ctl->space[1].ready, spw_load_relaxed(&from->space[1].ready));
}

Test(pool_warm, spaces_are_those_that_the_caller_keeps, .init = start)
{
    int calls = 0;
    config.keep_spaces = keep_second;
    config.ctx = &calls;
    create();
    cr_expect_eq(calls, 0, "there was nothing to keep");
    for (uint32_t s = 0; s < 3; s++) {
        snprintf(pool.ctl->space[s].record.fingerprint, 16, "model %u", s);
        spw_store_relaxed(&pool.ctl->space[s].ready, 1);
    }
    spw_pool_detach(&pool);
    create();
    cr_expect_eq(calls, 1);
    cr_expect_eq(spw_load_relaxed(&pool.ctl->space[0].ready), 0);
    cr_expect_eq(spw_load_relaxed(&pool.ctl->space[1].ready), 1);
    cr_expect_str_eq(pool.ctl->space[1].record.fingerprint, "model 1");
    spw_pool_detach(&pool);
}

/* ---- not gone on with ------------------------------------------------------------------------ */

static void overwrite(enum spw_region_kind kind, uint32_t index, off_t at, uint64_t value)
{
    char name[SPW_PATH_BYTES];
    spw_region_name(&config.path, kind, index, name);
    int fd = open(name, O_RDWR);
    cr_assert_geq(fd, 0);
    cr_assert_eq(pwrite(fd, &value, sizeof value, at), (ssize_t)sizeof value);
    close(fd);
}

static void cut(enum spw_region_kind kind, uint32_t index, off_t bytes)
{
    char name[SPW_PATH_BYTES];
    spw_region_name(&config.path, kind, index, name);
    cr_assert_eq(truncate(name, bytes), 0);
}

static void punch(enum spw_region_kind kind, uint32_t index)
{
    char name[SPW_PATH_BYTES];
    spw_region_name(&config.path, kind, index, name);
    int fd = open(name, O_RDWR);
    cr_assert_eq(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 8192, 8192), 0);
    close(fd);
}

#define AT(field) offsetof(struct spw_region_header, field)

static void more_chunks(void)
{
    config.geometry.capacity_chunks = 39;
}
static void larger_slots(void)
{
    config.geometry.slot_bytes = 8192;
}
static void chunks_below(void)
{
    config.geometry.cold_chunks = 20;
}
static void fewer_workers(void)
{
    config.geometry.workers = 1;
}
static void more_slots(void)
{
    config.geometry.slots = 42;
}
static void more_records(void)
{
    config.geometry.update_records = 16;
}
static void larger_gate(void)
{
    config.geometry.gate_records = 4;
}
static void more_buckets(void)
{
    config.geometry.index_buckets = 13;
}
static void asked(void)
{
    config.cold = true;
}
static void ctl_magic(void)
{
    overwrite(SPW_REGION_CTL, 0, AT(magic), 1);
}
static void ctl_version(void)
{
    overwrite(SPW_REGION_CTL, 0, AT(version), 2);
}
static void ctl_hash(void)
{
    overwrite(SPW_REGION_CTL, 0, AT(layout_hash), 2);
}
static void ctl_geometry(void)
{
    overwrite(SPW_REGION_CTL, 0, 128, UINT64_MAX);
}
static void ctl_cut(void)
{
    cut(SPW_REGION_CTL, 0, 4096);
}
static void ctl_empty(void)
{
    cut(SPW_REGION_CTL, 0, 0);
}
static void feed_version(void)
{
    overwrite(SPW_REGION_FEED, 1, AT(version), 0);
}
static void feed_cut(void)
{
    cut(SPW_REGION_FEED, 0, 4096);
}
static void feed_longer(void)
{
    cut(SPW_REGION_FEED, 0, 1 << 20);
}
static void data_kind(void)
{
    overwrite(SPW_REGION_DATA, 0, AT(kind), SPW_REGION_FEED);
}
static void data_hole(void)
{
    punch(SPW_REGION_DATA, 1);
}
static void data_of_another_pool(void)
{
    overwrite(SPW_REGION_DATA, 1, AT(pool_id) + 8, 77);
}

static void data_gone(void)
{
    char name[SPW_PATH_BYTES];
    spw_region_name(&config.path, SPW_REGION_DATA, 1, name);
    cr_assert_eq(unlink(name), 0);
}

Test(pool_warm, sm8_what_is_damaged_or_different_is_made_anew_and_the_reason_said, .init = start)
{
    static const struct {
        void (*harm)(void);
        const char *words;
    } cases[] = {
        {more_chunks, "capacity_chunks was 40 and is 39 now"},
        {larger_slots, "slot_bytes was 4096 and is 8192 now"},
        {fewer_workers, "workers was 2 and is 1 now"},
        {more_slots, "slots was 41 and is 42 now"},
        {chunks_below, "cold_chunks was 2 and is 20 now"},
        {more_records, "update_records was 8 and is 16 now"},
        {larger_gate, "gate_records was 2 and is 4 now"},
        {more_buckets, "index_buckets was 12 and is 13 now"},
        {asked, "asked for"},
        {ctl_magic, "magic"},
        {ctl_version, "layout version 2"},
        {ctl_hash, "layout hash"},
        {ctl_geometry, "workers"},
        {ctl_cut, "size in bytes"},
        {ctl_empty, "0 bytes so far"},
        {feed_version, "feed.1: not ready"},
        {feed_cut, "feed.0: has 4096 bytes, not"},
        {feed_longer, "feed.0: has 1048576 bytes, not"},
        {data_kind, "data.0: kind"},
        {data_hole, "data.1: has holes"},
        {data_of_another_pool, "data.1: belongs to another pool"},
        {data_gone, "data.1: no such object"},
    };
    const struct spw_pool_config before = config;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        config = before;
        leave_a_pool();
        cases[i].harm();
        create();
        cr_expect(!pool.warm, "case %zu", i);
        cr_expect(strstr(pool.cold_text, cases[i].words), "\"%s\" lacks \"%s\"", pool.cold_text,
                  cases[i].words);
        cr_expect_eq(spw_load_relaxed(&pool.feed[0]->gate), 0, "case %zu", i);
        cr_expect_eq(pool.data[0][0], 0, "case %zu", i);
        cr_expect_eq(spw_pool_unlink(&pool, &err), 0);
        spw_pool_detach(&pool);
        cr_assert_eq(names(), 0, "case %zu", i);
    }
}

Test(pool_warm, a_first_start_has_no_reason_to_tell, .init = start)
{
    create();
    cr_expect(!pool.warm);
    cr_expect_str_eq(pool.cold_text, "");
    spw_pool_detach(&pool);
}

/* ---- a warm start that can't be -------------------------------------------------------------- */

Test(pool_warm, sm6_a_foreign_file_refuses_the_start_and_loses_nothing, .init = start)
{
    if (geteuid() != 0)
        cr_skip("only root can make a file of somebody else");
    char name[SPW_PATH_BYTES];
    leave_a_pool();
    int before = names();
    spw_region_name(&config.path, SPW_REGION_KV, 2, name);
    cr_assert_eq(chown(name, 1001, (gid_t)-1), 0);
    cr_assert_eq(spw_pool_create(&config, &other, &err), -EACCES);
    cr_expect(strstr(err.text, "1001") && strstr(err.text, name), "%s", err.text);
    cr_expect_leq(names(), before);
    cr_assert_eq(chown(name, 0, (gid_t)-1), 0);
    create();
    cr_assert(pool.warm && is_marked(0) && is_marked(1), "%s", pool.cold_text);
    spw_pool_detach(&pool);
}

static int adopt_without_room(void *arg)
{
    if (support_private_tmpfs(config.path.shm_dir, 2 << 20))
        return SUPPORT_SKIP;
    if (spw_pool_create(&config, &pool, &err))
        return 1;
    spw_store_relaxed(&pool.feed[1]->gate, MARK);
    spw_pool_detach(&pool);
    const struct spw_geometry before = config.geometry;
    config.geometry.kv_blocks = 10000; /* no room for these beside the shards */
    config.geometry.kv_block_bytes = 256;
    if (spw_pool_create(&config, &pool, &err) != -ENOSPC)
        return 2;
    if (names() != 1 + 1 + 2 + 2)
        return 5; /* what could be made is left behind */
    config.geometry = before;
    if (spw_pool_create(&config, &pool, &err))
        return 3;
    return pool.warm && spw_load_relaxed(&pool.feed[1]->gate) == MARK ? 0 : 4;
}

Test(pool_warm, sm1_without_room_for_the_rest_the_shards_stay_for_a_later_start, .init = start)
{
    int status = support_wait(support_fork(adopt_without_room, NULL), 20000);
    if (status == SUPPORT_SKIP)
        cr_skip("no mount namespace here");
    cr_assert_eq(status, 0);
}

/* ---- workers of a dead daemon ---------------------------------------------------------------- */

static int ready_pipe[2];

static int take_worker(void)
{
    if (spw_pool_attach(&config.path, SPW_ROLE_WORKER, 0, &other, NULL) ||
        spw_lock_take(other.lock_fd, SPW_LOCK_WORKER(0)) || write(ready_pipe[1], "r", 1) != 1)
        return 1;
    return 0;
}

/* Leaves when the pool is closed. */
static int polite_worker(void *arg)
{
    if (take_worker())
        return 1;
    while (spw_load_relaxed(&other.ctl->phase) != SPW_POOL_CLOSED)
        usleep(1000);
    return 0;
}

/* Never leaves, and does not hear. */
static int stuck_worker(void *arg)
{
    if (take_worker())
        return 1;
    raise(SIGSTOP);
    for (;;)
        pause();
}

/* Worker 0 of a dead daemon lives, and its ctl says @pid (0: its own) began at its ticks + @off. */
static pid_t leave_a_worker(int (*body)(void *), uint64_t pid, uint64_t off, uint64_t space_off)
{
    char byte;
    leave_a_pool();
    cr_assert_eq(pipe(ready_pipe), 0);
    pid_t child = support_fork(body, NULL);
    cr_assert_eq(read(ready_pipe[0], &byte, 1), 1);
    struct spw_region region;
    cr_assert_eq(spw_region_attach(&config.path, SPW_REGION_CTL, 0, true, 0, &region, &err), 0);
    struct spw_ctl *ctl = (struct spw_ctl *)(void *)region.header;
    spw_store_relaxed(&ctl->worker[0].pid, pid ? pid : (uint64_t)child);
    spw_store_relaxed(&ctl->worker[0].start_ticks, spw_process_start_ticks(child) + off);
    spw_store_relaxed(&ctl->pid_namespace, spw_process_namespace() + space_off);
    spw_region_detach(&region);
    return child;
}

Test(pool_warm, workers_of_a_dead_daemon_leave_when_told, .init = start)
{
    pid_t child = leave_a_worker(polite_worker, 0, 0, 0);
    uint64_t before = spw_monotonic_ns();
    create();
    cr_expect_lt(spw_monotonic_ns() - before, 1000000000ull);
    cr_expect(pool.warm && is_marked(0), "%s", pool.cold_text);
    cr_expect_eq(support_wait(child, 5000), 0, "it left by itself");
    spw_pool_detach(&pool);
}

Test(pool_warm, one_that_is_stopped_is_ended, .init = start)
{
    pid_t child = leave_a_worker(stuck_worker, 0, 0, 0);
    uint64_t before = spw_monotonic_ns();
    create();
    cr_expect_lt(spw_monotonic_ns() - before, 4000000000ull);
    cr_expect(pool.warm && is_marked(0), "%s", pool.cold_text);
    cr_expect_eq(support_wait(child, 5000), SUPPORT_SIGNALLED + SIGKILL);
    spw_pool_detach(&pool);
}

static void refused(pid_t child, const char *words)
{
    cr_expect_eq(spw_pool_create(&config, &pool, &err), -EBUSY);
    cr_expect(strstr(err.text, words) && strstr(err.text, "worker 0"), "%s", err.text);
    cr_expect_eq(kill(child, 0), 0, "it was not signalled");
    cr_expect_eq(support_kill(child), SUPPORT_SIGNALLED + SIGKILL);
    create();
    cr_expect(pool.warm && is_marked(0), "nothing is lost: %s", pool.cold_text);
    spw_pool_detach(&pool);
}

Test(pool_warm, lc10_a_pid_that_was_used_again_is_not_signalled, .init = start)
{
    refused(leave_a_worker(stuck_worker, 0, 1, 0), "no process here");
}

Test(pool_warm, lc10_nor_is_another_program, .init = start)
{
    const char *const argv[] = {"sleep", "30", NULL};
    pid_t sleeper = support_spawn(argv, NULL);
    pid_t child = leave_a_worker(stuck_worker, (uint64_t)sleeper, 0, 0);
    struct spw_region region;
    cr_assert_eq(spw_region_attach(&config.path, SPW_REGION_CTL, 0, true, 0, &region, &err), 0);
    /* pid and time are right, and it isn't a worker all the same */
    spw_store_relaxed(&((struct spw_ctl *)(void *)region.header)->worker[0].start_ticks,
                      spw_process_start_ticks(sleeper));
    spw_region_detach(&region);
    refused(child, "no process here");
    cr_expect_eq(kill(sleeper, 0), 0);
    support_kill(sleeper);
}

Test(pool_warm, lc10_nor_is_one_of_another_pid_namespace, .init = start)
{
    refused(leave_a_worker(stuck_worker, 0, 0, 1), "another pid namespace");
}

Test(pool_warm, process_ids_that_make_no_sense_are_no_process, .init = start)
{
    uint64_t ours = spw_process_start_ticks(getpid());
    cr_expect_neq(ours, 0);
    cr_expect_eq(spw_process_start_ticks(getpid()), ours);
    const uint64_t pids[] = {0, 1, (uint64_t)getpid(), UINT32_MAX, UINT64_MAX, 1ull << 31};
    for (size_t i = 0; i < sizeof pids / sizeof pids[0]; i++)
        cr_expect_eq(spw_process_kill(pids[i], ours), -ESRCH);
    cr_expect_eq(spw_process_start_ticks(0), 0);
}

/* Runs a copy of sleep as @name, removed from its folder once it runs. */
static pid_t sleep_as(const char *name)
{
    char path[SUPPORT_PATH_BYTES + 64], command[2 * SUPPORT_PATH_BYTES];
    snprintf(path, sizeof path, "%s/%s", config.path.shm_dir, name);
    snprintf(command, sizeof command, "cp \"$(command -v sleep)\" '%s'", path);
    cr_assert_eq(system(command), 0);
    pid_t pid = support_spawn((const char *const[]){path, "30", NULL}, NULL);
    cr_assert_gt(pid, 0);
    snprintf(command, sizeof command, "/proc/%d/exe", (int)pid);
    char seen[sizeof path] = "";
    for (int i = 0; i < 5000 && strcmp(seen, path); i++) { /* before that it is a copy of ours */
        ssize_t n = readlink(command, seen, sizeof seen - 1);
        seen[n > 0 ? n : 0] = 0;
        usleep(1000);
    }
    cr_assert_str_eq(seen, path);
    unlink(path);
    return pid;
}

Test(pool_warm, process_names_hold_anything_and_programs_are_replaced_while_they_run, .init = start)
{
    uint64_t ours = spw_process_start_ticks(getpid());
    pid_t odd = sleep_as("a) 1 (2 3");
    uint64_t ticks = spw_process_start_ticks(odd);
    cr_expect(ticks >= ours && ticks - ours < 6000, "a minute at most: %d", (int)(ticks - ours));
    support_kill(odd);
    /* what a worker looks like whose program has been installed anew */
    char exe[PATH_MAX] = "";
    cr_assert_gt(readlink("/proc/self/exe", exe, sizeof exe - 1), 0);
    pid_t same = sleep_as(strrchr(exe, '/') + 1);
    cr_expect_eq(spw_process_kill((uint64_t)same, spw_process_start_ticks(same)), 0);
    cr_expect_eq(support_wait(same, 5000), SUPPORT_SIGNALLED + SIGKILL);
}

/* With a ctl that can't be read nobody can be told, nor ended: the pool is left to them, unnamed. */
Test(pool_warm, survivors_behind_a_damaged_ctl_stop_no_start, .init = start)
{
    pid_t child = leave_a_worker(stuck_worker, 0, 0, 0);
    ctl_magic();
    create();
    cr_expect(!pool.warm);
    cr_expect_eq(kill(child, 0), 0);
    cr_expect_eq(spw_lock_held(pool.lock_fd, SPW_LOCK_WORKER(0)), 0, "a lock object of its own");
    support_kill(child);
    spw_pool_detach(&pool);
}
