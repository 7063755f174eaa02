/* Client processes that come, go, die and have children. */
#include "tests/process/actor.h"
#include "tests/process/proc.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shm/alive.h"
#include "tier/counters.h"
#include "tier/layout.h"

TestSuite(process_clients, .timeout = 60);

#define LINE_BYTES 256

static struct proc_pool pool;
static struct actor actor;

static void start(const struct proc_config *config)
{
    cr_assert(proc_start(&pool, config));
    cr_assert_eq(actor_open(&actor, &(struct actor_config){.dir = pool.dir, .name = "pool"}), 0);
}

static void end(void)
{
    actor_close(&actor);
    cr_expect_eq(proc_stop(&pool, SIGTERM), 0);
    cr_expect_eq(proc_files(&pool), 0);
    proc_close(&pool);
}

static bool client_is_free(void *ctx)
{
    return spw_lock_held(pool.seen->lock_fd, SPW_LOCK_CLIENT(*(uint32_t *)ctx)) == 0;
}

/* Sum over names, sizes and inodes of the folder: which objects are there. */
static uint64_t objects(void)
{
    char path[SUPPORT_PATH_BYTES + 300];
    uint64_t sum = 0;
    DIR *dir = opendir(pool.dir);
    for (struct dirent *entry; dir && (entry = readdir(dir));) {
        struct stat st;
        snprintf(path, sizeof path, "%s/%s", pool.dir, entry->d_name);
        if (entry->d_name[0] != '.' && stat(path, &st) == 0)
            sum += (uint64_t)st.st_ino * 31 + (uint64_t)st.st_size + st.st_mode;
    }
    if (dir)
        closedir(dir);
    return sum;
}

Test(process_clients, LC_2_however_a_client_ends_names_and_contents_stay)
{
    static const int how[] = {SIGUSR1, SIGUSR2, SIGKILL};
    static const int status[] = {0, SUPPORT_SIGNALLED + SIGABRT, SUPPORT_SIGNALLED + SIGKILL};
    const char *const hold[] = {"hold", NULL};
    start(&(struct proc_config){.workers = 2});
    cr_expect_eq(actor_store(&actor, 1, 20), 20);
    uint64_t before = objects();
    for (int i = 0; i < 3; i++) {
        int fd;
        pid_t peer = proc_peer(&pool, &fd, hold);
        cr_assert(proc_reads_line(fd, "ready 1"));
        kill(peer, how[i]);
        cr_expect_eq(support_wait(peer, PROC_LIMIT_MS), status[i]);
        close(fd);
        cr_expect_eq(objects(), before, "end %d", i);
        cr_expect_eq(actor_load(&actor, 1, 20), 20, "end %d", i);
    }
    cr_expect_eq(proc_count(&pool, 0, SPW_WORKER_evicted), 0);
    end();
}

Test(process_clients, LC_2_R_28_a_write_into_a_read_only_mapping_faults_in_the_writer_alone)
{
    char out[LINE_BYTES];
    start(&(struct proc_config){0});
    cr_expect_eq(actor_store(&actor, 1, 3), 3);
    static const char *const what[] = {"ctl", "feed"};
    for (int i = 0; i < 2; i++) {
        const char *const args[] = {"write", what[i], NULL};
        cr_expect_eq(proc_peer_run(&pool, args, out, sizeof out), SUPPORT_SIGNALLED + SIGSEGV,
                     "%s: %s", what[i], out);
        cr_expect(strstr(out, "writing"), "%s", out);
    }
    cr_expect_eq(actor_load(&actor, 1, 3), 3);
    end();
}

Test(process_clients, LC_3_a_silent_client_stays_attached)
{
    char out[LINE_BYTES];
    const char *const args[] = {"store", "1", "3", NULL};
    start(&(struct proc_config){.more = {"--fence-limit", "100ms", NULL}});
    /* many times every limit that could take a silence for a death */
    usleep(1500000);
    cr_expect_eq(proc_peer_run(&pool, args, out, sizeof out), 0, "%s", out);
    cr_expect_eq(actor_load(&actor, 1, 3), 3);
    cr_expect_eq(proc_count(&pool, 0, SPW_WORKER_fences), 0);
    end();
}

Test(process_clients, LC_3_a_client_whose_place_was_taken_is_told_at_once_and_attaches_again)
{
    start(&(struct proc_config){0});
    cr_expect_eq(actor_store(&actor, 1, 3), 3);
    /* what a hand-over stores; the lock can't be lost by a living process */
    struct spw_region region = {0};
    struct spw_error err;
    cr_assert_eq(spw_region_attach(&pool.seen->path, SPW_REGION_CLIENT, 0, true, 0, &region, &err),
                 0);
    spw_add_own(&((struct spw_client_head *)(void *)region.header)->generation, 1);
    for (int twice = 0; twice < 2; twice++)
        cr_expect_eq(spw_step_begin(actor.client), -ENOTCONN);
    spw_region_detach(&region);
    actor_close(&actor);
    cr_assert_eq(actor_open(&actor, &(struct actor_config){.dir = pool.dir, .name = "pool"}), 0);
    cr_expect_eq(actor_load(&actor, 1, 3), 3);
    end();
}

Test(process_clients, R_20_a_forked_child_has_no_handle_and_keeps_nobody_alive)
{
    const char *const args[] = {"fork", NULL};
    char want[LINE_BYTES];
    uint32_t number = 1;
    int fd;
    start(&(struct proc_config){0});
    pid_t peer = proc_peer(&pool, &fd, args);
    cr_assert(proc_reads_line(fd, "ready 1"));
    snprintf(want, sizeof want, "child %d %d", -EOWNERDEAD, -EOWNERDEAD);
    cr_assert(proc_reads_line(fd, want));
    cr_expect(!client_is_free(&number));
    uint64_t before = objects();
    support_kill(peer);
    /* the child lives on; its parent's place is free all the same */
    cr_expect(proc_eventually(client_is_free, &number, 1000));
    cr_expect_eq(objects(), before);
    struct actor next;
    cr_assert_eq(actor_open(&next, &(struct actor_config){.dir = pool.dir, .name = "pool"}), 0);
    struct spw_info info = {.size_bytes = sizeof info};
    cr_expect_eq(spw_get_info(next.client, &info), 0);
    cr_expect_eq(info.client, 1);
    cr_expect_eq(actor_store(&next, 1, 3), 3);
    actor_close(&next);
    close(fd);
    end();
}

Test(process_clients, R_21_no_descriptor_leaks_into_a_program_that_a_client_starts)
{
    const char *const args[] = {"exec", NULL};
    char line[LINE_BYTES] = "";
    uint32_t number = 1;
    int fd, lines = 0;
    start(&(struct proc_config){0});
    pid_t peer = proc_peer(&pool, &fd, args);
    cr_assert(proc_reads_line(fd, "ready 1"));
    while (support_read_line(fd, line, sizeof line, PROC_LIMIT_MS) >= 0 && strcmp(line, "end")) {
        cr_expect_null(strstr(line, pool.dir), "leaked: %s", line);
        lines++;
    }
    cr_expect_str_eq(line, "end");
    cr_expect_geq(lines, 3); /* standard input and outputs, at least */
    support_kill(peer);
    cr_expect(proc_eventually(client_is_free, &number, 1000));
    close(fd);
    end();
}

/* ---- a client that dies with everything in its hands ----------------------------------------- */

static bool can_store(void *ctx)
{
    return actor_store(&actor, *(uint64_t *)ctx, 4) == 4;
}

Test(process_clients, a_client_killed_in_a_step_frees_its_slots_and_its_place_within_a_second)
{
    const char *const args[] = {"pin", "1", "4", NULL};
    uint32_t number = 1;
    int fd;
    start(&(struct proc_config){.capacity = 4, .more = {"--fence-limit", "1h", NULL}});
    cr_assert_eq(actor_store(&actor, 1, 4), 4);
    pid_t peer = proc_peer(&pool, &fd, args);
    cr_assert(proc_reads_line(fd, "ready 1"));
    kill(peer, SIGUSR1);
    cr_assert(proc_reads_line(fd, "pinned 1"));
    cr_expect_lt(actor_store(&actor, 101, 4), 4, "slots in use were given away");
    support_kill(peer);
    uint64_t killed = proc_now_ms(), first = 201;
    cr_expect(proc_eventually(can_store, &first, 5000));
    cr_expect_lt(proc_now_ms() - killed, 1000);
    cr_expect(client_is_free(&number));
    struct actor next;
    cr_assert_eq(actor_open(&next, &(struct actor_config){.dir = pool.dir, .name = "pool"}), 0);
    struct spw_info info = {.size_bytes = sizeof info};
    cr_expect_eq(spw_get_info(next.client, &info), 0);
    cr_expect_eq(info.client, 1);
    cr_expect_eq(actor_load(&next, 201, 4), 4);
    actor_close(&next);
    cr_expect_eq(proc_claims(&pool), 0);
    close(fd);
    end();
}

Test(process_clients, R_32_commands_of_a_dead_client_are_void_for_the_next_one_in_its_place)
{
    const char *const args[] = {"pin", "1", "4", NULL};
    int fd;
    start(&(struct proc_config){.capacity = 4});
    cr_assert_eq(actor_store(&actor, 1, 4), 4);
    pid_t peer = proc_peer(&pool, &fd, args);
    cr_assert(proc_reads_line(fd, "ready 1"));
    proc_signal_worker(&pool, 0, SIGSTOP);
    kill(peer, SIGUSR1);
    cr_assert(proc_reads_line(fd, "pinned 1"));
    const struct spw_client_head *head = pool.seen->client[1].head;
    cr_expect_neq(spw_load_acquire(&head->lane[0].command_tail),
                  spw_load_acquire(&head->worker_lane[0].command_head), "nothing is untaken");
    support_kill(peer);
    proc_signal_worker(&pool, 0, SIGCONT);
    struct actor next;
    cr_assert_eq(actor_open(&next, &(struct actor_config){.dir = pool.dir, .name = "pool"}), 0);
    struct spw_completion done;
    cr_expect_eq(actor_next(&next, &done, 200), -ETIMEDOUT, "an answer to somebody else");
    cr_expect_eq(actor_load(&next, 1, 4), 4);
    actor_close(&next);
    cr_expect_eq(proc_claims(&pool), 0);
    close(fd);
    end();
}

/* Its blocks are being read; nobody else may get them, and nobody else has to wait for them. */
Test(process_clients, copies_of_a_dead_client_that_do_not_end_keep_nobody_out)
{
    const char *const args[] = {"store", "1", "4", NULL};
    int fd;
    start(&(struct proc_config){.store_rate = "100"});
    pid_t peer = proc_peer(&pool, &fd, args);
    usleep(300000); /* four chunks of ten seconds each are under way */
    support_kill(peer);
    struct actor next;
    cr_assert_eq(actor_open(&next, &(struct actor_config){.dir = pool.dir, .name = "pool"}), 0);
    struct spw_info info = {.size_bytes = sizeof info};
    cr_expect_eq(spw_get_info(next.client, &info), 0);
    cr_expect_eq(info.client, 2);
    actor_close(&next);
    close(fd);
    actor_close(&actor);
    proc_close(&pool);
}
