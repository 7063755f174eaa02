/* Clients that spoil their own objects: cut, removed, overwritten. They lose themselves; daemon,
 * workers, tools and all other clients go on, and the places are used again. */
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

TestSuite(process_client_harm, .timeout = 100);

#define LINE_BYTES 256
#define SETTLE_MS  10000
#define PEERS      8

static struct proc_pool pool;
static struct actor actor;
static char words[200], out[65536];

static void start(const struct proc_config *config)
{
    cr_assert(proc_start(&pool, config));
    cr_assert_eq(actor_open(&actor, &(struct actor_config){.dir = pool.dir, .name = "pool"}), 0);
}

static void end(void)
{
    actor_close(&actor);
    cr_expect(account_settles(pool.seen, ACCOUNT_IDLE, SETTLE_MS, words, sizeof words), "%s",
              words);
    cr_expect_eq(proc_stop(&pool, SIGTERM), 0);
    cr_expect_eq(proc_files(&pool), 0);
    proc_close(&pool);
}

/* A peer that says "ready C" first: C. */
static uint32_t ready(pid_t *out_pid, const char *const args[])
{
    char line[LINE_BYTES] = "";
    unsigned c = UINT32_MAX;
    int fd;
    *out_pid = proc_peer(&pool, &fd, args);
    int n = support_read_line(fd, line, sizeof line, PROC_LIMIT_MS);
    cr_assert(n > 0 && sscanf(line, "ready %u", &c) == 1, "%d \"%s\"", n, line);
    close(fd);
    return c;
}

static void cut(enum spw_region_kind kind, uint32_t c, int64_t bytes)
{
    char name[SPW_PATH_BYTES];
    spw_region_name(&pool.seen->path, kind, c, name);
    cr_assert_eq(bytes < 0 ? unlink(name) : truncate(name, bytes), 0, "%s", name);
}

static uint64_t restarts(void)
{
    uint64_t sum = 0;
    for (uint32_t k = 0; k < pool.seen->geometry.workers; k++)
        sum += spw_load_relaxed(&pool.seen->ctl->worker[k].restarts);
    return sum;
}

static bool stores_and_loads(void *ctx)
{
    uint64_t *key = ctx;
    *key += 8;
    return actor_store(&actor, *key, 4) == 4 && actor_load(&actor, *key, 4) == 4;
}

static void expect_others_go_on(const char *when)
{
    static uint64_t key = 1000;
    cr_expect(proc_eventually(stores_and_loads, &key, 5000), "%s", when);
    cr_expect_eq(actor_load(&actor, 1, 4), 4, "%s", when);
    cr_expect_eq(proc_spillway(&pool, "stat", false, out, sizeof out), 0, "%s: %s", when, out);
}

/* All places but the actor's are given out, and serve. */
static bool places_serve(void *ctx)
{
    uint32_t clients = *(uint32_t *)ctx;
    struct actor next[PEERS + 1];
    uint32_t good = 0;
    for (; good < clients; good++)
        if (actor_attach(&next[good], &(struct actor_config){.dir = pool.dir, .name = "pool"}))
            break;
    bool all = good == clients;
    for (uint32_t i = 0; i < good; i++) {
        all = all && actor_space(&next[i]) == 0 && actor_store(&next[i], 5000 + i, 1) == 1 &&
              actor_load(&next[i], 5000 + i, 1) == 1;
        actor_close(&next[i]);
    }
    return all;
}

Test(process_client_harm, R_22_clients_that_cut_or_remove_their_objects_lose_only_themselves)
{
    static const struct {
        int64_t client, kv; /* bytes left, -1 removed, INT64_MAX as it is */
    } harm[PEERS] = {{0, INT64_MAX},  {4096, INT64_MAX}, {INT64_MAX, 0}, {INT64_MAX, 8192},
                     {-1, INT64_MAX}, {INT64_MAX, -1},   {0, 0},         {-1, -1}};
    const char *const hold[] = {"hold", NULL};
    uint32_t c[PEERS], peers = PEERS;
    pid_t pid[PEERS];
    start(&(struct proc_config){.workers = 2, .capacity = 32, .clients = PEERS + 2});
    cr_assert_eq(actor_store(&actor, 1, 4), 4);
    for (int i = 0; i < PEERS; i++)
        c[i] = ready(&pid[i], hold);
    for (int i = 0; i < PEERS; i++) {
        if (harm[i].client != INT64_MAX)
            cut(SPW_REGION_CLIENT, c[i], harm[i].client);
        if (harm[i].kv != INT64_MAX)
            cut(SPW_REGION_KV, c[i], harm[i].kv);
    }
    expect_others_go_on("while they live");
    cr_expect_eq(restarts(), 0, "no process has died of it");
    for (uint32_t k = 0; k < 2; k++) {
        uint64_t before = proc_incarnation(&pool, k);
        proc_signal_worker(&pool, k, SIGKILL);
        cr_assert(proc_await_successor(&pool, k, before), "worker %u doesn't come back", k);
    }
    expect_others_go_on("served by workers that started meanwhile");
    for (int i = 0; i < PEERS; i++)
        support_kill(pid[i]);
    cr_expect(proc_eventually(places_serve, &peers, 15000));
    expect_others_go_on("when they are gone");
    cr_expect_eq(restarts(), 2);
    end();
}

Test(process_client_harm, a_client_that_cuts_its_blocks_in_a_store_shows_nobody_wrong_bytes)
{
    static const char *const first[] = {"100", "200", "300", "400", "500", "600"};
    start(&(struct proc_config){.capacity = 256, .store_rate = "200000", .clients = 12});
    cr_assert_eq(actor_store(&actor, 1, 4), 4);
    for (uint32_t round = 0; round < 6; round++) {
        const char *const args[] = {"store", first[round], "40", NULL};
        uint64_t key = strtoull(first[round], NULL, 10);
        int fd;
        pid_t peer = proc_peer(&pool, &fd, args);
        while (actor_hits(&actor, key, 1) == 0)
            usleep(1000); /* until its first chunk is there, or on its way */
        usleep(15000 * round);
        cut(SPW_REGION_KV, round + 1, round % 2 ? 0 : 4096 * (round + 1));
        int hits = 0;
        for (uint64_t i = 0; i < 40; i++) {
            int loaded = actor_load(&actor, key + i, 1);
            cr_expect(loaded >= 0 || loaded == -EAGAIN, "round %u, chunk %d: %d", round, (int)i,
                      loaded);
            hits += loaded > 0;
        }
        support_kill(peer);
        close(fd);
        cr_expect_lt(hits, 40, "round %u: all were copied before the cut", round);
    }
    cr_expect_eq(restarts(), 0);
    cr_expect_gt(proc_count(&pool, 0, SPW_WORKER_stores_failed), 0);
    end();
}

Test(process_client_harm, a_client_gone_mad_writes_noise_over_its_object_and_nobody_minds)
{
    static const char *const seeds[] = {"1", "2", "3", "4"};
    uint32_t one = 1;
    start(&(struct proc_config){
        .workers = 2, .capacity = 8, .more = {"--fence-limit", "50ms", NULL}});
    cr_assert_eq(actor_store(&actor, 1, 4), 4);
    for (int i = 0; i < 4; i++) {
        const char *const args[] = {"scribble", seeds[i], "1000", NULL};
        uint64_t key = 10000 + (uint64_t)i * 1000, stored = 0;
        pid_t peer;
        ready(&peer, args);
        for (uint64_t until = proc_now_ms() + 900; proc_now_ms() < until; key++) {
            int n = actor_store(&actor, key, 1);
            int loaded = n == 1 ? actor_load(&actor, key, 1) : 0;
            cr_assert(n >= 0 || n == -ESTALE, "seed %s: store %d", seeds[i], n);
            cr_assert(loaded >= 0 || loaded == -ESTALE, "seed %s: load %d", seeds[i], loaded);
            stored += loaded == 1;
        }
        cr_expect_gt(stored, 8, "seed %s: more than there is room for without reuse", seeds[i]);
        cr_expect_eq(proc_spillway(&pool, "stat", false, out, sizeof out), 0, "%s", out);
        cr_expect_eq(support_wait(peer, PROC_LIMIT_MS), 0);
        cr_expect(proc_eventually(places_serve, &one, 5000), "seed %s", seeds[i]);
    }
    cr_expect_eq(restarts(), 0);
    end();
}
