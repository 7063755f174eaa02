/* Client objects that were cut, removed or replaced, made anew by the daemon. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "shm/alive.h"
#include "shm/guard.h"
#include "shm/pool.h"
#include "tests/support/deny.h"
#include "tests/support/small_pool.h"

TestSuite(pool_mend, .timeout = 60);

static struct spw_pool_config config;
static struct spw_pool pool, other; /* large: not on the stack */
static struct spw_error err;

static void start(void)
{
    cr_assert_eq(small_pool_config(&small_pool_two, &config), 0);
    config.geometry.clients = 4;
    config.geometry.kv_blocks = 64;
    config.mode = 0640;
    config.gid = geteuid() == 0 ? 4242 : getegid();
    cr_assert_eq(spw_guard_install(), 0);
    cr_assert_eq(spw_pool_create(&config, &pool, &err), 0, "%s", err.text);
    spw_store_relaxed(&pool.ctl->phase, SPW_POOL_SERVING);
}

static const char *name_of(enum spw_region_kind kind, uint32_t c)
{
    static char name[SPW_PATH_BYTES];
    spw_region_name(&config.path, kind, c, name);
    return name;
}

enum harm { CUT_TO_NOTHING, CUT, GROWN, REMOVED, REPLACED, HARMS };

static void do_harm(enum harm harm, const char *name)
{
    char elsewhere[SPW_PATH_BYTES + 8];
    snprintf(elsewhere, sizeof elsewhere, "%s.old", name);
    bool done = harm == CUT_TO_NOTHING ? truncate(name, 0) == 0
                : harm == CUT          ? truncate(name, 4096) == 0
                : harm == GROWN        ? truncate(name, 1 << 20) == 0
                : harm == REMOVED      ? unlink(name) == 0
                                       : rename(name, elsewhere) == 0;
    if (harm == REPLACED)
        done = done && close(open(name, O_CREAT | O_WRONLY, 0600)) == 0;
    cr_assert(done);
    unlink(elsewhere);
}

static uint64_t number(uint32_t c)
{
    return spw_load_relaxed(&pool.ctl->client_object[c]);
}

static int renew(void)
{
    return spw_pool_renew(&pool, &config, &err);
}

static bool as_made(enum spw_region_kind kind, uint32_t c)
{
    struct stat st;
    struct spw_region seen = {0};
    bool good = stat(name_of(kind, c), &st) == 0 && (st.st_mode & 07777) == 0640 &&
                st.st_gid == (gid_t)config.gid &&
                spw_region_attach(&config.path, kind, c, false, 0, &seen, &err) == 0 &&
                memcmp(seen.header->pool_id, pool.ctl->header.pool_id, 16) == 0;
    spw_region_detach(&seen);
    return good;
}

Test(pool_mend, what_a_client_did_to_its_objects_is_made_good_once_it_is_gone, .init = start)
{
    for (int harm = 0; harm < 2 * HARMS; harm++) {
        enum spw_region_kind kind = harm % 2 ? SPW_REGION_KV : SPW_REGION_CLIENT;
        cr_assert_eq(renew(), 0, "nothing is wrong: %s", err.text);
        cr_assert_eq(spw_pool_attach(&config.path, SPW_ROLE_CLIENT, SPW_CLIENTS_MAX, &other, &err),
                     0);
        cr_assert_eq(spw_pool_take_client(&other, false, &err), 0, "%s", err.text);
        spw_client_take_over(&other.client[0]);
        do_harm((enum harm)(harm / 2), name_of(kind, 0));
        uint64_t before = number(0);
        cr_expect_eq(renew(), 0, "its holder lives: %s", err.text);
        cr_expect_eq(number(0), before);
        spw_pool_detach(&other);
        cr_expect_eq(renew(), 1, "harm %d: %s", harm, err.text);
        cr_expect_eq(number(0), before + 1);
        cr_expect_eq(spw_lock_held(pool.lock_fd, SPW_LOCK_CLIENT(0)), 0);
        cr_expect(as_made(SPW_REGION_CLIENT, 0) && as_made(SPW_REGION_KV, 0), "%s", err.text);
        cr_expect(!spw_region_lost(&pool.region_client[0]) && !spw_region_lost(&pool.region_kv[0]));
        cr_expect_eq(number(1), 0);
    }
    cr_expect_eq(spw_pool_unlink(&pool, &err), 0, "%s", err.text);
    spw_pool_detach(&pool);
}

Test(pool_mend, generations_go_on_above_all_that_were, .init = start)
{
    uint64_t highest = 0;
    for (int round = 0; round < 3; round++) {
        cr_assert_eq(spw_pool_attach(&config.path, SPW_ROLE_CLIENT, SPW_CLIENTS_MAX, &other, &err),
                     0);
        cr_assert_eq(spw_pool_take_client(&other, false, &err), 0, "%s", err.text);
        uint64_t generation = spw_client_take_over(&other.client[0]);
        cr_expect_gt(generation, highest);
        highest = generation;
        do_harm(REMOVED, name_of(SPW_REGION_CLIENT, 0));
        spw_pool_detach(&other);
        cr_expect_eq(renew(), 1, "%s", err.text);
    }
    spw_pool_detach(&pool);
}

Test(pool_mend, spoilt_places_are_passed_over_and_keep_no_worker_out, .init = start)
{
    do_harm(REMOVED, name_of(SPW_REGION_CLIENT, 0));
    do_harm(CUT_TO_NOTHING, name_of(SPW_REGION_KV, 1));
    cr_assert_eq(spw_pool_attach(&config.path, SPW_ROLE_CLIENT, SPW_CLIENTS_MAX, &other, &err), 0);
    cr_expect_eq(spw_pool_take_client(&other, false, &err), 2, "%s", err.text);
    spw_pool_detach(&other);
    cr_assert_eq(spw_pool_attach(&config.path, SPW_ROLE_WORKER, 1, &other, &err), 0, "%s",
                 err.text);
    cr_expect(spw_region_lost(&other.region_client[0]) && spw_region_lost(&other.region_kv[1]));
    cr_expect_eq(spw_load_relaxed(&other.client[0].head->generation), 0);
    cr_expect(!spw_region_lost(&other.region_client[2]));
    spw_pool_detach(&other);
    cr_assert_eq(spw_pool_attach(&config.path, SPW_ROLE_TOOL, 0, &other, &err), 0, "%s", err.text);
    cr_expect(spw_region_lost(&other.region_client[0]));
    spw_pool_detach(&other);
    cr_expect_eq(renew(), 2, "%s", err.text);
    cr_assert_eq(spw_pool_attach(&config.path, SPW_ROLE_CLIENT, SPW_CLIENTS_MAX, &other, &err), 0);
    cr_expect_eq(spw_pool_take_client(&other, false, &err), 0, "%s", err.text);
    spw_pool_detach(&other);
    spw_pool_detach(&pool);
}

/* What the file system doesn't let be made now is made later; the other places are whole. */
Test(pool_mend, an_object_that_cannot_be_made_yet_is_tried_again, .init = start)
{
    do_harm(REMOVED, name_of(SPW_REGION_CLIENT, 1));
    cr_assert_eq(mkdir(name_of(SPW_REGION_CLIENT, 1), 0700), 0);
    do_harm(REMOVED, name_of(SPW_REGION_CLIENT, 2));
    cr_expect_lt(renew(), 0);
    cr_expect(strstr(err.text, "client.1"), "%s", err.text);
    cr_expect_eq(number(1), 0);
    cr_expect(as_made(SPW_REGION_CLIENT, 2) && number(2) == 1);
    cr_expect_eq(spw_lock_held(pool.lock_fd, SPW_LOCK_CLIENT(1)), 0);
    rmdir(name_of(SPW_REGION_CLIENT, 1));
    cr_expect_eq(renew(), 1, "%s", err.text);
    cr_expect(as_made(SPW_REGION_CLIENT, 1));
    spw_pool_detach(&pool);
}

/* ---- the lock object ------------------------------------------------------------------------- */

/* 0: what can't be told is taken for nothing. */
static int renew_unseeing(void *arg)
{
    struct spw_error why = {0};
    (void)arg;
    if (spw_pool_path_init(&config.path, config.path.shm_dir, "b", (uint32_t)geteuid(), NULL) ||
        spw_pool_create(&config, &other, &why))
        return 10;
    if (support_deny(SYS_newfstatat, EACCES))
        return SUPPORT_SKIP;
    return spw_pool_renew(&other, &config, &why) == 0 ? 0 : 11;
}

Test(pool_mend, nothing_is_touched_once_the_lock_object_is_gone_for_certain, .init = start)
{
    int status = support_wait(support_fork(renew_unseeing, NULL), 10000);
    cr_expect(status == 0 || status == SUPPORT_SKIP, "check %d failed", status);
    char lock[SPW_PATH_BYTES];
    spw_lock_name(&config.path, lock);
    do_harm(REMOVED, name_of(SPW_REGION_CLIENT, 1));
    do_harm(REMOVED, lock);
    cr_expect_eq(renew(), -ESTALE);
    cr_expect(strstr(err.text, "\"a\" was removed"), "%s", err.text);
    cr_expect_eq(access(name_of(SPW_REGION_CLIENT, 1), F_OK), -1);
    spw_pool_unlink(&pool, NULL);
    spw_pool_detach(&pool);
}
