/* SM-10: a daemon dies at every step of making, adopting or removing its pool; the next start
 * succeeds, and goes on with the shards where there were any. */
#include <criterion/criterion.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "shm/crash_point.h"
#include "shm/pool.h"
#include "shm/pool_remove.h"
#include "tests/support/small_pool.h"

TestSuite(pool_crash, .timeout = 120);

#define OBJECTS 6 /* lock, ctl, feed, data, client, kv */

#define MARK 0x5eedu /* what the test writes into a shard */

#define COMMON_POINTS                                                                              \
    "pool.name_taken", "pool.old_closed", "pool.workers_gone", "pool.old_removed",                 \
        "region.created", "region.allocated", "region.filled", "pool.object_created",              \
        "region.published", "pool.published"

static const char *const create_points[] = {COMMON_POINTS};
static const char *const adopt_points[] = {COMMON_POINTS, "pool.clients_removed",
                                           "pool.shard_relabelled", "pool.ctl_filled",
                                           "pool.ctl_renamed"};

static struct spw_pool_config config;
static struct spw_pool pool;
static struct spw_error err;

static void start(void)
{
    cr_assert_eq(small_pool_config(&small_pool_one, &config), 0);
}

static int entries(void)
{
    return support_count_names(config.path.shm_dir);
}

struct life {
    const char *point;
    uint32_t nth;
    bool removes;
};

static int make_and_die(void *arg)
{
    struct life *life = arg;
    spw_crash_arm(life->point, life->nth);
    if (spw_pool_create(&config, &pool, NULL))
        return 1;
    if (life->removes && spw_pool_unlink(&pool, NULL))
        return 2;
    return 0;
}

/* A client is told something definite, and never gets a pool whose daemon is dead. */
static void check_client(const struct life *life)
{
    static struct spw_pool client;
    int rc = spw_pool_attach(&config.path, SPW_ROLE_CLIENT, 0, &client, &err);
    cr_assert(rc == -ENOENT || rc == -EOWNERDEAD, "%s %u: %d %s", life->point, life->nth, rc,
              err.text);
}

/* Marks of a shard, in its feed and in its payload. */
static void mark_shard(void)
{
    spw_store_relaxed(&pool.feed[0]->gate, MARK);
    memset(pool.data[0], 0x5a, 64);
}

static bool shard_is_marked(void)
{
    uint8_t want[64];
    memset(want, 0x5a, sizeof want);
    return spw_load_relaxed(&pool.feed[0]->gate) == MARK && !memcmp(pool.data[0], want, 64);
}

static void check_next_start(const struct life *life)
{
    cr_assert_eq(spw_pool_create(&config, &pool, &err), 0, "%s %u: %s", life->point, life->nth,
                 err.text);
    cr_assert_eq(entries(), OBJECTS, "%s %u", life->point, life->nth);
    cr_assert_eq(spw_load_relaxed(&pool.region_client[0].header->version), SPW_LAYOUT_VERSION);
}

/* Die at the nth passing of each point, for every n; in between, the next start. @clean: it ends
 * by removing its pool, so that the next death does not meet left-overs. */
static unsigned die_everywhere(const char *const *points, size_t count, bool removes, bool clean)
{
    unsigned deaths = 0;
    for (size_t p = 0; p < count; p++) {
        bool died = true;
        for (uint32_t nth = 1; died; nth++) {
            struct life life = {points[p], nth, removes};
            int status = support_wait(support_fork(make_and_die, &life), 10000);
            cr_assert(status == 0 || status == SUPPORT_SIGNALLED + SIGKILL, "%s %u: %d", points[p],
                      nth, status);
            died = status != 0;
            deaths += died;
            check_client(&life);
            check_next_start(&life);
            if (clean)
                cr_assert_eq(spw_pool_unlink(&pool, &err), 0);
            if (clean)
                cr_assert_eq(entries(), 0);
            spw_pool_detach(&pool);
        }
    }
    return deaths;
}

#define COUNT(points) (sizeof(points) / sizeof *(points))

Test(pool_crash, sm10_death_at_each_step_of_the_first_start, .init = start)
{
    unsigned deaths = die_everywhere(create_points, COUNT(create_points), false, true);
    cr_assert_geq(deaths, 1 + 5 * 6 + 1);
}

Test(pool_crash, sm10_death_at_each_step_of_a_cold_start_over_left_overs, .init = start)
{
    config.cold = true;
    unsigned deaths = die_everywhere(create_points, COUNT(create_points), false, false);
    cr_assert_geq(deaths, 1 + 2 + 5 * 6 + 1);
}

/* Whatever step the death was at, the shard is gone on with. */
Test(pool_crash, sm10_death_at_each_step_of_a_warm_start, .init = start)
{
    unsigned deaths = 0;
    cr_assert_eq(spw_pool_create(&config, &pool, &err), 0, "%s", err.text);
    mark_shard();
    for (size_t p = 0; p < COUNT(adopt_points); p++) {
        bool died = true;
        for (uint32_t nth = 1; died; nth++) {
            spw_pool_detach(&pool);
            struct life life = {adopt_points[p], nth, false};
            int status = support_wait(support_fork(make_and_die, &life), 10000);
            cr_assert(status == 0 || status == SUPPORT_SIGNALLED + SIGKILL, "%s %u: %d", life.point,
                      nth, status);
            died = status != 0;
            deaths += died;
            check_client(&life);
            check_next_start(&life);
            cr_assert(pool.warm && shard_is_marked(), "%s %u: %s", life.point, nth, pool.cold_text);
        }
    }
    spw_pool_detach(&pool);
    cr_assert_eq(deaths, 27);
}

Test(pool_crash, death_at_each_step_of_a_removal, .init = start)
{
    const char *const points[] = {"pool.object_unlinked"};
    cr_assert_eq(die_everywhere(points, 1, true, false), 5);
}

static int remove_and_die(void *arg)
{
    const struct life *life = arg;
    struct spw_pool_removed removed;
    spw_crash_arm(life->point, life->nth);
    return spw_pool_remove(&config.path, &removed, NULL) ? 1 : 0;
}

/* The pool is stale; its removal by a tool dies at each step. What is left is no pool to anybody, a
 * start works over it, and a second removal ends what the first began. */
Test(pool_crash, death_at_each_step_of_a_tools_removal, .init = start)
{
    const char *const points[] = {"remove.name_taken", "remove.ctl_closed",
                                  "remove.object_unlinked", "remove.lock_unlinked"};
    unsigned deaths = 0;
    for (size_t p = 0; p < sizeof points / sizeof points[0]; p++) {
        bool died = true;
        for (uint32_t nth = 1; died; nth++) {
            struct life life = {points[p], nth, false};
            struct spw_pool_removed removed;
            check_next_start(&life);
            spw_pool_detach(&pool);
            int status = support_wait(support_fork(remove_and_die, &life), 10000);
            cr_assert(status == 0 || status == SUPPORT_SIGNALLED + SIGKILL, "%s: %d", points[p],
                      status);
            died = status != 0;
            deaths += died;
            check_client(&life);
            bool left = entries() > 0;
            int rc = spw_pool_remove(&config.path, &removed, &err);
            cr_assert(rc == (left ? 0 : -ENOENT), "%s %u: %d", points[p], nth, rc);
            cr_assert_eq(entries(), 0);
        }
    }
    cr_assert_eq(deaths, 1 + 1 + (OBJECTS - 1) + 1);
}

/* Many deaths in a row, no good start between them. */
Test(pool_crash, sm10_deaths_in_a_row_pile_up_nothing, .init = start)
{
    for (uint32_t round = 0; round < 30; round++) {
        struct life life = {adopt_points[round % COUNT(adopt_points)], 1 + round % 4, false};
        support_wait(support_fork(make_and_die, &life), 10000);
        cr_assert_leq(entries(), OBJECTS + 1, "one ctl beside the other");
    }
    check_next_start(&(struct life){"many", 30, false});
    spw_pool_detach(&pool);
}
