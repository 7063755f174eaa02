/* A daemon dies at every step of making a client's objects anew; the next start has a whole pool. */
#include <criterion/criterion.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "shm/crash_point.h"
#include "shm/guard.h"
#include "shm/pool.h"
#include "tests/support/small_pool.h"

TestSuite(mend_crash, .timeout = 120);

static const char *const points[] = {"pool.spoilt_removed", "pool.anew_published",
                                     "pool.anew_unlocked", "pool.number_raised"};

static struct spw_pool_config config;
static struct spw_pool pool, other;
static struct spw_error err;

static void start(void)
{
    cr_assert_eq(spw_guard_install(), 0);
    cr_assert_eq(small_pool_config(&small_pool_one, &config), 0);
    config.geometry.clients = 3;
}

struct life {
    const char *point;
    uint32_t nth;
};

/* A daemon whose clients 0 and 1 have removed what is theirs. */
static int renew_and_die(void *arg)
{
    struct life *life = arg;
    char name[SPW_PATH_BYTES];
    if (spw_pool_create(&config, &pool, NULL))
        return 1;
    for (uint32_t c = 0; c < 2; c++) {
        spw_region_name(&config.path, SPW_REGION_CLIENT, c, name);
        unlink(name);
        spw_region_name(&config.path, SPW_REGION_KV, c, name);
        unlink(name);
    }
    spw_crash_arm(life->point, life->nth);
    return spw_pool_renew(&pool, &config, NULL) == 2 ? 0 : 2;
}

/* What a worker finds that starts after the daemon's death, and what the next daemon makes of it. */
static void check_survivors(const struct life *life)
{
    cr_assert_eq(spw_pool_attach(&config.path, SPW_ROLE_WORKER, 0, &other, &err), 0, "%s %u: %s",
                 life->point, life->nth, err.text);
    for (uint32_t c = 0; c < 3; c++)
        spw_load_relaxed(&other.client[c].head->generation);
    spw_pool_detach(&other);
    cr_assert_eq(spw_pool_create(&config, &pool, &err), 0, "%s %u: %s", life->point, life->nth,
                 err.text);
    cr_expect_eq(spw_pool_renew(&pool, &config, &err), 0, "%s %u", life->point, life->nth);
    spw_store_relaxed(&pool.ctl->phase, SPW_POOL_SERVING);
    cr_assert_eq(spw_pool_attach(&config.path, SPW_ROLE_CLIENT, SPW_CLIENTS_MAX, &other, &err), 0);
    cr_expect_eq(spw_pool_take_client(&other, false, &err), 0, "%s %u: %s", life->point, life->nth,
                 err.text);
    spw_pool_detach(&other);
    spw_pool_detach(&pool);
}

Test(mend_crash, death_at_each_step_of_making_client_objects_anew, .init = start)
{
    unsigned deaths = 0;
    for (size_t p = 0; p < sizeof points / sizeof points[0]; p++) {
        bool died = true;
        for (uint32_t nth = 1; died; nth++) {
            struct life life = {points[p], nth};
            int status = support_wait(support_fork(renew_and_die, &life), 10000);
            cr_assert(status == 0 || status == SUPPORT_SIGNALLED + SIGKILL, "%s %u: %d", points[p],
                      nth, status);
            died = status != 0;
            deaths += died;
            check_survivors(&life);
        }
    }
    cr_expect_eq(deaths, 4 + 4 + 2 + 2);
}
