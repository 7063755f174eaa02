/* Clients that hang, are stopped, come back faster than they are cleaned up, come together, come
 * into a busy pool; what they have mapped; and a reset while they store. */
#include "tests/process/actor.h"
#include "tests/process/proc.h"
#include "tests/support/account.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shm/alive.h"
#include "tier/counters.h"
#include "tier/layout.h"

TestSuite(process_client_lives, .timeout = 60);

#define LINE_BYTES 512
#define SETTLE_MS  5000

static struct proc_pool pool;
static struct actor actor;
static char words[200];

static struct actor_config who(const char *label)
{
    return (struct actor_config){.dir = pool.dir, .name = "pool", .label = label};
}

static void start(const struct proc_config *config)
{
    struct actor_config me = {.name = "pool"};
    cr_assert(proc_start(&pool, config));
    me.dir = pool.dir;
    cr_assert_eq(actor_open(&actor, &me), 0);
}

static void end(uint32_t flags)
{
    cr_expect(account_settles(pool.seen, ACCOUNT_IDLE | flags, SETTLE_MS, words, sizeof words),
              "%s", words);
    actor_close(&actor);
    cr_expect_eq(proc_stop(&pool, SIGTERM), 0);
    cr_expect_eq(proc_files(&pool), 0);
    proc_close(&pool);
}

static bool can_store(void *ctx)
{
    return actor_store(&actor, *(uint64_t *)ctx, 4) == 4;
}

/* ---- clients that don't move ----------------------------------------------------------------- */

Test(process_client_lives,
     LC_8_a_client_stopped_in_a_step_is_fenced_refused_late_and_still_attached)
{
    const char *const args[] = {"hang", "1", "4", NULL};
    char late[LINE_BYTES];
    int fd;
    uint64_t first = 101;
    start(&(struct proc_config){.capacity = 4});
    cr_assert_eq(actor_store(&actor, 1, 4), 4);
    pid_t peer = proc_peer(&pool, &fd, args);
    cr_assert(proc_reads_line(fd, "ready 1"));
    kill(peer, SIGSTOP);
    uint64_t stopped = proc_now_ms();
    cr_expect_lt(actor_store(&actor, 91, 4), 4, "what it has seen as a HIT was given away at once");
    cr_expect(proc_eventually(can_store, &first, 10000), "nobody waits for it for ever");
    cr_expect_geq(proc_now_ms() - stopped, 900, "its limit is a second");
    cr_expect_lt(proc_now_ms() - stopped, 3000);
    while (proc_now_ms() - stopped < 4000)
        usleep(10000);
    cr_expect_eq(spw_lock_held(pool.seen->lock_fd, SPW_LOCK_CLIENT(1)), 1, "stopped is not dead");
    cr_expect_eq(proc_count(&pool, 0, SPW_WORKER_clients_gone), 0);
    cr_expect_geq(proc_count(&pool, 0, SPW_WORKER_fences), 1);
    kill(peer, SIGCONT);
    kill(peer, SIGUSR1);
    snprintf(late, sizeof late, "late %d", -ESTALE);
    cr_assert(proc_reads_line(fd, late));
    cr_assert(proc_reads_line(
        fd, "loaded 0")); /* by the same handle: what is there now are other chunks */
    cr_expect_eq(support_wait(peer, PROC_LIMIT_MS), 0);
    cr_expect_eq(actor_load(&actor, 101, 4), 4);
    close(fd);
    end(ACCOUNT_COUNTERS);
}

Test(process_client_lives, LC_8_a_client_stopped_outside_a_step_is_in_nobodys_way)
{
    const char *const args[] = {"hold", NULL};
    int fd;
    start(&(struct proc_config){.capacity = 4});
    pid_t peer = proc_peer(&pool, &fd, args);
    cr_assert(proc_reads_line(fd, "ready 1"));
    kill(peer, SIGSTOP);
    for (uint64_t first = 1; first < 400; first += 4)
        cr_assert(proc_eventually(can_store, &first, 1000));
    usleep(2500000);
    cr_expect_eq(proc_count(&pool, 0, SPW_WORKER_fences), 0);
    cr_expect_eq(proc_count(&pool, 0, SPW_WORKER_clients_gone), 0);
    kill(peer, SIGCONT);
    kill(peer, SIGUSR1);
    cr_expect_eq(support_wait(peer, PROC_LIMIT_MS), 0);
    close(fd);
    end(ACCOUNT_COUNTERS);
}

/* ---- clients that come ----------------------------------------------------------------------- */

Test(process_client_lives, a_client_that_restarts_faster_than_it_is_cleaned_up_starts_clean)
{
    const char *const args[] = {"pin", "1", "4", NULL};
    start(&(struct proc_config){.capacity = 16, .clients = 4});
    cr_assert_eq(actor_store(&actor, 1, 4), 4);
    for (uint64_t round = 0; round < 12; round++) {
        struct actor next;
        int fd;
        pid_t peer = proc_peer(&pool, &fd, args);
        cr_assert(proc_reads_line(fd, "ready 1"));
        kill(peer, SIGUSR1);
        cr_assert(proc_reads_line(fd, "pinned 1"));
        uint64_t killed = proc_now_ms();
        support_kill(peer);
        struct actor_config config = who("again");
        cr_assert_eq(actor_open(&next, &config), 0);
        struct spw_info info = {.size_bytes = sizeof info};
        cr_expect_eq(spw_get_info(next.client, &info), 0);
        cr_expect_eq(info.client, 1, "the same place, at once");
        cr_expect_lt(proc_now_ms() - killed, 1000, "LC-7: within the bound");
        cr_expect_eq(actor_load(&next, 1, 4), 4);
        cr_expect_eq(actor_store(&next, 100 + 2 * round, 2), 2);
        cr_expect_eq(actor_load(&next, 100 + 2 * round, 2), 2);
        actor_close(&next);
        close(fd);
    }
    end(ACCOUNT_COUNTERS);
}

Test(process_client_lives, two_clients_of_one_label_are_two_clients)
{
    struct actor one, two;
    struct spw_info info[2] = {{.size_bytes = sizeof *info}, {.size_bytes = sizeof *info}};
    struct actor_config config = who("scheduler");
    start(&(struct proc_config){0});
    config.dir = pool.dir;
    cr_assert_eq(actor_open(&one, &config), 0);
    cr_assert_eq(actor_open(&two, &config), 0);
    cr_expect_eq(spw_get_info(one.client, &info[0]), 0);
    cr_expect_eq(spw_get_info(two.client, &info[1]), 0);
    cr_expect_neq(info[0].client, info[1].client);
    cr_expect_eq(actor_store(&one, 1, 4), 4);
    cr_expect_eq(actor_store(&two, 11, 4), 4);
    actor_close(&one);
    cr_expect_eq(actor_load(&two, 1, 4), 4);
    cr_expect_eq(actor_load(&two, 11, 4), 4);
    actor_close(&two);
    end(ACCOUNT_COUNTERS);
}

Test(process_client_lives, R_14_clients_that_attach_under_full_load_see_all_that_was_there_before)
{
    static const char *const seeds[] = {"1", "2"};
    pid_t peer[2];
    int fd[2], late = 0;
    start(&(struct proc_config){.workers = 2, .capacity = 64});
    cr_assert_eq(actor_store(&actor, 100000, 8), 8);
    for (int i = 0; i < 2; i++) {
        const char *const args[] = {"survive", seeds[i], "500", "3000", NULL};
        peer[i] = proc_peer(&pool, &fd[i], args);
    }
    for (uint64_t until = proc_now_ms() + 2800; proc_now_ms() < until;) {
        struct actor next;
        struct actor_config config = who("late");
        bool before = actor_load(&actor, 100000, 8) == 8; /* recent: not evicted soon */
        cr_assert_eq(actor_open(&next, &config), 0);
        int hits = actor_hits(&next, 100000, 8);
        int loaded = actor_load(&next, 100000, 8);
        cr_expect(loaded >= 0, "loaded %d", loaded);
        actor_close(&next);
        if (before && actor_hits(&actor, 100000, 8) == 8) { /* there all along */
            cr_expect(hits == 8 && loaded == 8, "%d, %d", hits, loaded);
            late++;
        } else {
            actor_store(&actor, 100000, 8);
        }
    }
    for (int i = 0; i < 2; i++) {
        cr_expect_eq(support_wait(peer[i], PROC_LIMIT_MS), 0);
        close(fd[i]);
    }
    cr_expect_gt(late, 10);
    end(ACCOUNT_COUNTERS);
}

/* ---- what they have mapped ------------------------------------------------------------------- */

Test(process_client_lives, LC_2_a_client_maps_all_but_its_own_objects_read_only_and_no_payload)
{
    const char *const args[] = {"hold", NULL};
    char path[64], line[LINE_BYTES];
    int fd, ctl = 0, feed = 0, own = 0;
    start(&(struct proc_config){.workers = 2});
    pid_t peer = proc_peer(&pool, &fd, args);
    cr_assert(proc_reads_line(fd, "ready 1"));
    snprintf(path, sizeof path, "/proc/%d/maps", (int)peer);
    FILE *maps = fopen(path, "r");
    cr_assert(maps);
    while (fgets(line, sizeof line, maps)) {
        if (!strstr(line, pool.dir))
            continue;
        bool writable = strstr(line, " rw-s ");
        cr_expect(writable || strstr(line, " r--s "), "%s", line);
        bool mine = strstr(line, ".client.1") || strstr(line, ".kv.1");
        cr_expect_eq(writable, mine, "%s", line);
        cr_expect(mine || strstr(line, ".ctl") || strstr(line, ".feed."), "%s", line);
        ctl += strstr(line, ".ctl") != NULL;
        feed += strstr(line, ".feed.") != NULL;
        own += mine;
    }
    fclose(maps);
    cr_expect(ctl == 1 && feed == 2 && own == 2, "%d %d %d", ctl, feed, own);
    kill(peer, SIGUSR1);
    cr_expect_eq(support_wait(peer, PROC_LIMIT_MS), 0);
    close(fd);
    end(ACCOUNT_COUNTERS);
}

/* ---- reset ----------------------------------------------------------------------------------- */

/* The next completion but those of kind @kind. */
static int await_kind(uint32_t kind, int count, int32_t *out_status)
{
    struct spw_completion done;
    while (count > 0) {
        int rc = actor_next(&actor, &done, 15000);
        if (rc < 0)
            return rc;
        count -= done.kind == kind;
        *out_status = done.kind == kind ? done.status : *out_status;
    }
    return 0;
}

Test(process_client_lives, LC_11_a_reset_with_stores_in_flight_leaves_no_old_key_and_no_wrong_byte)
{
    struct spw_request *old[4];
    struct spw_completion reserved[4];
    int32_t status = 0;
    start(&(struct proc_config){.capacity = 16, .store_rate = "4000"});
    for (uint32_t i = 0; i < 4; i++) { /* a second of copying */
        old[i] = actor_request(&actor, 10 * i, 1, 0);
        cr_assert_eq(actor_reserve(&actor, old[i], 0, 0, 1, &reserved[i]), 0);
        actor_fill(&actor, i, 10 * i, 0);
        cr_assert_eq(actor_run(&actor, &reserved[i].ticket, i, 1000 + i), 0);
    }
    cr_expect_eq(proc_entries(&pool, 0, SPW_FILLING), 4);
    cr_expect_eq(spw_space_reset(actor.space), 0);
    /* at once: the same keys again, and new ones; with other blocks, the old ones may still be read */
    cr_expect_eq(await_kind(SPW_COMPLETION_RESET, 1, &status), 0);
    for (uint64_t i = 0; i < 4; i++)
        cr_expect_eq(actor_hits(&actor, 10 * i, 1), 0, "key %d is there after the reset",
                     (int)(10 * i));
    cr_expect_eq(await_kind(SPW_COMPLETION_STORED, 4, &status), 0, "each run completes once");
    cr_expect_eq(status, -ESTALE);
    cr_expect_eq(actor_store(&actor, 500, 4), 4);
    cr_expect_eq(actor_store(&actor, 10, 1), 1);
    cr_expect_eq(actor_load(&actor, 500, 4), 4);
    cr_expect_eq(actor_load(&actor, 10, 1), 1);
    cr_expect_eq(actor_hits(&actor, 20, 1), 0);
    for (uint32_t i = 0; i < 4; i++)
        spw_request_finish(old[i]);
    cr_expect(
        account_settles(pool.seen, ACCOUNT_IDLE | ACCOUNT_COUNTERS, SETTLE_MS, words, sizeof words),
        "%s", words);
    cr_expect_eq(proc_entries(&pool, 0, SPW_FREE) + proc_entries(&pool, 0, SPW_READY), 17);
    cr_expect_eq(proc_entries(&pool, 0, SPW_READY), 5);
    end(ACCOUNT_COUNTERS);
}
