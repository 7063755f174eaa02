/* Pools: made whole or not at all, mapped as each role may, one daemon a name. */
#include <criterion/criterion.h>
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shm/alive.h"
#include "shm/pool.h"
#include "tests/support/small_pool.h"

TestSuite(pool, .timeout = 60);

static struct spw_pool_config config;
static struct spw_pool daemon_pool, other; /* large: not on the stack */
static struct spw_error err;

static void start(void)
{
    cr_assert_eq(small_pool_config(&small_pool_two, &config), 0);
}

static void create(void)
{
    cr_assert_eq(spw_pool_create(&config, &daemon_pool, &err), 0, "%s", err.text);
}

static void serve(void)
{
    create();
    spw_store_relaxed(&daemon_pool.ctl->phase, SPW_POOL_SERVING);
}

static int attach(enum spw_pool_role role, uint32_t index)
{
    return spw_pool_attach(&config.path, role, index, &other, &err);
}

/* Names in the pool's directory that contain @part. */
static int names_with(const char *part)
{
    int n = 0;
    struct dirent *entry;
    DIR *d = opendir(config.path.shm_dir);
    while (d && (entry = readdir(d)))
        n += entry->d_name[0] != '.' && strstr(entry->d_name, part);
    if (d)
        closedir(d);
    return n;
}

static int run_child(int (*body)(void *))
{
    pid_t pid = support_fork(body, NULL);
    cr_assert_gt(pid, 0);
    return support_wait(pid, 20000);
}

/* A daemon that has made its pool, serves, and is killed. */
static int serve_and_die(void *arg)
{
    if (spw_pool_create(&config, &daemon_pool, NULL))
        return 1;
    spw_store_relaxed(&daemon_pool.ctl->phase, SPW_POOL_SERVING);
    kill(getpid(), SIGKILL);
    return 2;
}

/* ---- life of a pool
 * --------------------------------------------------------------------------------- */

Test(pool, create_makes_all_objects_and_unlink_removes_them, .init = start)
{
    create();
    cr_assert_eq(names_with(""), 1 + 1 + 2 + 2 + 3 + 3);
    cr_assert_eq(spw_load_relaxed(&daemon_pool.ctl->phase), SPW_POOL_STARTING);
    cr_assert_eq(spw_load_relaxed(&daemon_pool.ctl->daemon_pid), (uint64_t)getpid());
    cr_assert_eq(spw_pool_unlink(&daemon_pool, &err), 0);
    cr_assert_eq(names_with(""), 0);
    spw_pool_detach(&daemon_pool);
    spw_pool_detach(&daemon_pool);
    spw_pool_detach(NULL);
}

Test(pool, no_kv_blocks_no_kv_objects, .init = start)
{
    config.geometry.kv_blocks = config.geometry.kv_block_bytes = 0;
    serve();
    cr_assert_eq(names_with(".kv."), 0);
    cr_assert_eq(attach(SPW_ROLE_CLIENT, 0), 0, "%s", err.text);
    cr_assert_null(other.kv[0]);
    spw_pool_detach(&other);
    spw_pool_detach(&daemon_pool);
}

static const char *access_in(const struct spw_region *region)
{
    return !region->header ? "-" : region->writable ? "w" : "r";
}

/* ctl, feeds, clients, kvs, datas as one string */
static const char *accesses(const struct spw_pool *pool)
{
    static char out[64];
    int n = snprintf(out, sizeof out, "%s ", access_in(&pool->region_ctl));
    for (int k = 0; k < 2; k++)
        n += snprintf(out + n, sizeof out - (size_t)n, "%s", access_in(&pool->region_feed[k]));
    n += snprintf(out + n, sizeof out - (size_t)n, " ");
    for (int c = 0; c < 3; c++)
        n += snprintf(out + n, sizeof out - (size_t)n, "%s", access_in(&pool->region_client[c]));
    n += snprintf(out + n, sizeof out - (size_t)n, " ");
    for (int c = 0; c < 3; c++)
        n += snprintf(out + n, sizeof out - (size_t)n, "%s", access_in(&pool->region_kv[c]));
    n += snprintf(out + n, sizeof out - (size_t)n, " ");
    for (int k = 0; k < 2; k++)
        n += snprintf(out + n, sizeof out - (size_t)n, "%s", access_in(&pool->region_data[k]));
    return out;
}

Test(pool, lc2_each_role_maps_what_it_needs_and_writes_what_it_owns, .init = start)
{
    serve();
    cr_assert_str_eq(accesses(&daemon_pool), "w ww www www ww");
    cr_assert_eq(attach(SPW_ROLE_WORKER, 1), 0, "%s", err.text);
    cr_assert_str_eq(accesses(&other), "r rw www www rw");
    cr_assert_not_null(other.data[0]);
    cr_assert_not_null(other.client[2].head);
    spw_pool_detach(&other);
    cr_assert_eq(attach(SPW_ROLE_CLIENT, 2), 0, "%s", err.text);
    cr_assert_str_eq(accesses(&other), "r rr --w --w --");
    cr_assert_null(other.client[0].head);
    cr_assert_not_null(other.kv[2]);
    spw_pool_detach(&other);
    cr_assert_eq(attach(SPW_ROLE_TOOL, 0), 0, "%s", err.text);
    cr_assert_str_eq(accesses(&other), "r rr rrr --- --");
    spw_pool_detach(&other);
    cr_assert_eq(attach(SPW_ROLE_WORKER, 2), -EINVAL);
    cr_assert_eq(attach(SPW_ROLE_CLIENT, 3), -EINVAL);
    cr_assert_eq(attach(SPW_ROLE_DAEMON, 0), -EINVAL);
    spw_pool_detach(&daemon_pool);
}

static uint64_t claim_generation(const struct spw_client_view *view)
{
    struct spw_client_claim claim;
    spw_client_claim_read(view, 0, &claim);
    return claim.generation;
}

static int take_and_leave(void *arg)
{
    int way = *(int *)arg;
    if (attach(SPW_ROLE_CLIENT, SPW_CLIENTS_MAX) || spw_pool_take_client(&other, false, NULL) != 0)
        return 1;
    spw_client_take_over(&other.client[0]);
    if (way == 0)
        spw_pool_detach(&other);
    if (way == 1)
        kill(getpid(), SIGKILL);
    if (way == 2)
        exit(0); /* with exit handlers */
    return 0;
}

Test(pool, lc2_client_that_goes_in_any_way_removes_nothing, .init = start)
{
    serve();
    int before = names_with("");
    for (int way = 0; way < 3; way++) {
        pid_t pid = support_fork(take_and_leave, &way);
        cr_assert_eq(support_wait(pid, 10000), way == 1 ? SUPPORT_SIGNALLED + SIGKILL : 0);
        cr_assert_eq(names_with(""), before);
        cr_assert_eq(attach(SPW_ROLE_TOOL, 0), 0);
        cr_assert_eq(claim_generation(&other.client[0]), (uint64_t)way + 1);
        spw_pool_detach(&other);
    }
    spw_pool_detach(&daemon_pool);
}

/* ---- clients
 * ---------------------------------------------------------------------------------------- */

Test(pool, clients_are_taken_in_order_and_the_last_one_is_the_tools, .init = start)
{
    static struct spw_pool second, third, tool;
    serve();
    cr_assert_eq(attach(SPW_ROLE_CLIENT, SPW_CLIENTS_MAX), 0);
    spw_pool_attach(&config.path, SPW_ROLE_CLIENT, SPW_CLIENTS_MAX, &second, NULL);
    spw_pool_attach(&config.path, SPW_ROLE_CLIENT, SPW_CLIENTS_MAX, &third, NULL);
    spw_pool_attach(&config.path, SPW_ROLE_CLIENT, SPW_CLIENTS_MAX, &tool, NULL);
    cr_assert_eq(spw_pool_take_client(&other, false, &err), 0);
    cr_assert_str_eq(accesses(&other), "r rr w-- w-- --");
    cr_assert_eq(spw_pool_take_client(&second, false, &err), 1);
    cr_assert_eq(spw_pool_take_client(&third, false, &err), -EBUSY);
    cr_assert_not_null(strstr(err.text, "3"), "%s", err.text);
    cr_assert_eq(spw_pool_take_client(&tool, true, &err), 2);
    spw_pool_detach(&other); /* gives client 0 back */
    cr_assert_eq(spw_pool_take_client(&third, false, &err), 0);
    spw_pool_detach(&second);
    spw_pool_detach(&third);
    spw_pool_detach(&tool);
    spw_pool_detach(&daemon_pool);
}

/* ---- what attachers are told
 * -------------------------------------------------------------------------- */

Test(pool, a_client_that_damages_its_headers_keeps_nobody_else_out, .init = start)
{
    serve();
    struct spw_region_header *client = daemon_pool.region_client[0].header;
    const struct spw_region_header before = *client;
    cr_expect_eq(spw_pool_mend(&daemon_pool), 0);
    memset((uint8_t *)client + 8, 0x5a, sizeof *client - 8);
    memset(daemon_pool.region_kv[0].header, 0x5a, 64);
    cr_expect_eq(attach(SPW_ROLE_WORKER, 0), 0, "%s", err.text);
    cr_expect(spw_region_lost(&other.region_client[0]) && spw_region_lost(&other.region_kv[0]));
    cr_expect(!spw_region_lost(&other.region_client[1]));
    spw_pool_detach(&other);
    cr_assert_eq(attach(SPW_ROLE_CLIENT, SPW_CLIENTS_MAX), 0, "%s", err.text);
    cr_expect_eq(spw_pool_take_client(&other, false, &err), 1, "%s", err.text);
    spw_pool_detach(&other);
    cr_expect_eq(spw_pool_mend(&daemon_pool), 2);
    cr_expect_eq(memcmp(client, &before, sizeof before), 0);
    cr_assert_eq(attach(SPW_ROLE_WORKER, 0), 0, "%s", err.text);
    cr_expect(!spw_region_lost(&other.region_client[0]));
    spw_pool_detach(&other);
    cr_expect_eq(spw_pool_mend(&daemon_pool), 0);
    spw_pool_detach(&daemon_pool);
}

Test(pool, each_state_of_a_pool_has_its_own_answer, .init = start)
{
    cr_assert_eq(attach(SPW_ROLE_CLIENT, 0), -ENOENT);
    cr_assert_not_null(strstr(err.text, "no pool"), "%s", err.text);
    create();
    cr_assert_eq(attach(SPW_ROLE_CLIENT, 0), -EAGAIN);
    cr_assert_eq(attach(SPW_ROLE_WORKER, 0), 0, "workers come before the pool serves");
    spw_pool_detach(&other);
    spw_store_relaxed(&daemon_pool.ctl->phase, SPW_POOL_SERVING);
    cr_assert_eq(attach(SPW_ROLE_CLIENT, 0), 0);
    spw_pool_detach(&other);
    spw_store_relaxed(&daemon_pool.ctl->phase, SPW_POOL_CLOSED);
    cr_assert_eq(attach(SPW_ROLE_CLIENT, 0), -EAGAIN, "a daemon stops, or one begins");
    cr_assert_not_null(strstr(err.text, "replaced"), "%s", err.text);
    spw_store_relaxed(&daemon_pool.ctl->phase, SPW_POOL_SERVING);
    spw_pool_detach(&daemon_pool); /* the daemon is gone, its objects are there */
    cr_assert_eq(attach(SPW_ROLE_CLIENT, 0), -EOWNERDEAD);
    cr_assert_not_null(strstr(err.text, "gone"), "%s", err.text);
    cr_assert_eq(attach(SPW_ROLE_TOOL, 0), 0, "%s", err.text);
    spw_pool_detach(&other);
}

Test(pool, sm10_daemon_that_died_while_starting_is_told_from_one_that_is_starting, .init = start)
{
    int fd = spw_lock_open(&config.path, true, 0600, -1, NULL);
    cr_assert_eq(spw_lock_take(fd, SPW_LOCK_DAEMON), 0);
    cr_assert_eq(attach(SPW_ROLE_CLIENT, 0), -EAGAIN);
    spw_lock_drop(fd, SPW_LOCK_DAEMON);
    cr_assert_eq(attach(SPW_ROLE_CLIENT, 0), -ENOENT);
    /* died with a ctl that was made and not published */
    struct spw_region region;
    struct spw_region_config ctl = {.path = &config.path,
                                    .kind = SPW_REGION_CTL,
                                    .size_bytes = sizeof(struct spw_ctl),
                                    .mode = 0600,
                                    .gid = -1};
    cr_assert_eq(spw_region_create(&ctl, &region, NULL), 0);
    cr_assert_eq(attach(SPW_ROLE_CLIENT, 0), -EOWNERDEAD);
    cr_assert_eq(spw_lock_take(fd, SPW_LOCK_DAEMON), 0);
    cr_assert_eq(attach(SPW_ROLE_CLIENT, 0), -EAGAIN);
    spw_region_detach(&region);
    spw_lock_close(fd);
}

Test(pool, case25_any_geometry_in_ctl_is_refused_or_works, .init = start)
{
    int refused = 0;
    serve();
    uint8_t *bytes = (uint8_t *)&daemon_pool.ctl->geometry;
    for (size_t bit = 0; bit < 8 * sizeof(struct spw_geometry); bit++) {
        bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
        int rc = attach(SPW_ROLE_WORKER, 0);
        cr_assert(rc == 0 || rc == -EBADMSG || rc == -ENOENT, "bit %zu: %d", bit, rc);
        refused += rc < 0;
        spw_pool_detach(&other);
        bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    cr_assert_gt(refused, 300);
    cr_assert_eq(attach(SPW_ROLE_WORKER, 0), 0);
    spw_pool_detach(&other);
    spw_pool_detach(&daemon_pool);
}

Test(pool, objects_of_two_pools_are_never_mixed, .init = start)
{
    serve();
    daemon_pool.region_feed[1].header->pool_id[0] ^= 1;
    cr_assert_eq(attach(SPW_ROLE_CLIENT, 0), -EAGAIN);
    cr_assert_not_null(strstr(err.text, "replaced"), "%s", err.text);
    spw_pool_detach(&daemon_pool);
}

/* ---- SM-12: one daemon a name
 * --------------------------------------------------------------------------- */

Test(pool, sm12_second_daemon_is_refused_with_the_holder_shown, .init = start)
{
    char pid[32];
    serve();
    cr_assert_eq(spw_pool_create(&config, &other, &err), -EBUSY);
    snprintf(pid, sizeof pid, "pid %d", (int)getpid());
    cr_assert_not_null(strstr(err.text, pid), "%s", err.text);
    cr_assert_eq(attach(SPW_ROLE_CLIENT, 0), 0, "the first one is unharmed");
    spw_pool_detach(&other);
    spw_pool_detach(&daemon_pool);
}

static int race_pipe[2], done_pipe[2];

/* Create at the starting shot; hold what was won until the other one has tried too. */
static int race(void *arg)
{
    char byte;
    if (read(race_pipe[0], &byte, 1) != 1)
        return 9;
    int rc = spw_pool_create(&config, &other, NULL);
    byte = rc == 0 ? 'w' : rc == -EBUSY ? 'b' : 'x';
    if (write(done_pipe[1], &byte, 1) != 1)
        return 9;
    pause();
    return 0;
}

Test(pool, sm12_of_two_starts_at_once_exactly_one_wins, .init = start)
{
    config.geometry.workers = 1;
    config.geometry.clients = 1;
    for (int round = 0; round < 200; round++) {
        char answer[2] = {0};
        cr_assert_eq(pipe(race_pipe) | pipe(done_pipe), 0);
        pid_t first = support_fork(race, NULL), second = support_fork(race, NULL);
        cr_assert_eq(write(race_pipe[1], "gg", 2), 2);
        for (int i = 0; i < 2; i++)
            cr_assert_eq(read(done_pipe[0], &answer[i], 1), 1);
        cr_assert(answer[0] != answer[1] && strchr("wb", answer[0]) && strchr("wb", answer[1]),
                  "round %d: %c %c", round, answer[0], answer[1]);
        support_kill(first);
        support_kill(second);
        cr_assert_eq(names_with(""), 6, "round %d", round);
        for (int i = 0; i < 2; i++) {
            close(race_pipe[i]);
            close(done_pipe[i]);
        }
        if (round % 2) { /* every second round starts on left-overs */
            support_remove_dir(config.path.shm_dir);
            cr_assert_eq(mkdir(config.path.shm_dir, 0700), 0);
        }
    }
}

Test(pool, sm12_pools_of_other_names_are_not_touched, .init = start)
{
    static struct spw_pool b;
    struct spw_pool_config config_b = config;
    strcpy(config_b.path.name, "b");
    serve();
    cr_assert_eq(spw_pool_create(&config_b, &b, &err), 0, "%s", err.text);
    int ours = names_with("-a.");
    cr_assert_eq(spw_pool_unlink(&b, &err), 0);
    spw_pool_detach(&b);
    cr_assert_eq(names_with("-b."), 0);
    cr_assert_eq(names_with("-a."), ours);
    cr_assert_eq(attach(SPW_ROLE_CLIENT, 0), 0);
    spw_pool_detach(&other);
    spw_pool_detach(&daemon_pool);
}

/* ---- left-overs
 * ------------------------------------------------------------------------------------------- */

Test(pool, killed_daemons_objects_are_replaced_and_its_clients_told, .init = start)
{
    static struct spw_pool old;
    cr_assert_eq(run_child(serve_and_die), SUPPORT_SIGNALLED + SIGKILL);
    cr_assert_eq(spw_pool_attach(&config.path, SPW_ROLE_TOOL, 0, &old, &err), 0, "%s", err.text);
    config.geometry.workers = 1; /* fewer than before: the old ones go all the same */
    serve();
    cr_assert_eq(names_with(""), 1 + 1 + 1 + 1 + 3 + 3);
    cr_assert_eq(spw_load_relaxed(&old.ctl->phase), SPW_POOL_CLOSED);
    cr_assert(!spw_lock_current(old.lock_fd, &config.path) ||
              spw_load_relaxed(&old.ctl->phase) == SPW_POOL_CLOSED);
    cr_assert_eq(attach(SPW_ROLE_CLIENT, 0), 0, "%s", err.text);
    spw_pool_detach(&other);
    spw_pool_detach(&old);
    spw_pool_detach(&daemon_pool);
}

Test(pool, clients_that_hold_on_to_a_dead_daemons_pool_don_t_block_the_next_one, .init = start)
{
    static struct spw_pool survivor;
    cr_assert_eq(run_child(serve_and_die), SUPPORT_SIGNALLED + SIGKILL);
    cr_assert_eq(spw_pool_attach(&config.path, SPW_ROLE_TOOL, 0, &survivor, &err), 0);
    cr_assert_eq(spw_lock_take(survivor.lock_fd, SPW_LOCK_CLIENT(0)), 0);
    serve();
    cr_assert(!spw_lock_current(survivor.lock_fd, &config.path));
    cr_assert_eq(spw_lock_held(survivor.lock_fd, SPW_LOCK_DAEMON), 0, "its own daemon is dead");
    cr_assert_eq(attach(SPW_ROLE_CLIENT, 0), 0);
    cr_assert_eq(spw_lock_take(other.lock_fd, SPW_LOCK_CLIENT(0)), 0, "its place is free");
    spw_pool_detach(&survivor);
    spw_pool_detach(&other);
    spw_pool_detach(&daemon_pool);
}

Test(pool, foreign_left_over_is_named_and_nothing_is_half_created, .init = start)
{
    if (geteuid() != 0)
        cr_skip("only root can make a file of somebody else");
    char name[SPW_PATH_BYTES];
    spw_region_name(&config.path, SPW_REGION_CLIENT, 2, name);
    FILE *f = fopen(name, "w");
    cr_assert_not_null(f);
    fclose(f);
    cr_assert_eq(chown(name, 1001, (gid_t)-1), 0);
    cr_assert_eq(spw_pool_create(&config, &other, &err), -EACCES);
    cr_assert(strstr(err.text, "1001") && strstr(err.text, name), "%s", err.text);
    cr_assert_eq(names_with(""), 1, "its file alone");
}

static int create_on_4_mib(void *arg)
{
    config.geometry.slot_bytes = 4 << 20;
    if (support_private_tmpfs(config.path.shm_dir, 4 << 20))
        return SUPPORT_SKIP;
    if (spw_pool_create(&config, &other, &err) != -ENOSPC)
        return 1;
    if (!strstr(err.text, config.path.shm_dir) || !strstr(err.text, "4194304"))
        return 2;
    return names_with("") == 0 ? 0 : 3;
}

Test(pool, sm1_pool_without_room_is_refused_and_leaves_nothing, .init = start)
{
    int status = run_child(create_on_4_mib);
    if (status == SUPPORT_SKIP)
        cr_skip("no mount namespace here");
    cr_assert_eq(status, 0);
}

static int detach_in_child(void *arg)
{
    spw_pool_detach(&daemon_pool);
    return 0;
}

Test(pool, case20_detach_in_a_forked_child_leaves_the_parents_pool_alone, .init = start)
{
    serve();
    cr_assert_eq(run_child(detach_in_child), 0);
    cr_assert_eq(attach(SPW_ROLE_CLIENT, 0), 0, "%s", err.text);
    spw_pool_detach(&other);
    spw_pool_detach(&daemon_pool);
}

Test(pool, sm7_every_object_has_the_mode_configured, .init = start)
{
    struct dirent *entry;
    struct stat st;
    char name[SPW_PATH_BYTES + 300];
    umask(0077);
    config.mode = 0660;
    create();
    DIR *d = opendir(config.path.shm_dir);
    while ((entry = readdir(d))) {
        snprintf(name, sizeof name, "%s/%s", config.path.shm_dir, entry->d_name);
        if (entry->d_name[0] != '.' && stat(name, &st) == 0)
            cr_assert_eq(st.st_mode & 07777, 0660, "%s", name);
    }
    closedir(d);
    spw_pool_detach(&daemon_pool);
}
