/* Resets through the installed API: of everything there is, and of workers that miss it. */
#include "tests/support/api_rig.h"

#include <criterion/criterion.h>
#include <errno.h>

TestSuite(api_reset, .timeout = 25);

static struct api api;
static struct spw_client *client;
static struct spw_space *space;

static void open_pool(void)
{
    const struct rig_config config = {.workers = 2, .capacity = 8};
    api_open(&api, &config);
    client = api_attach(&api, 64);
    struct spw_space_config space_config = api_space_config(2);
    space = api_space(&api, client, &space_config);
}

static void close_pool(void)
{
    spw_detach(client);
    api_close(&api);
}

Test(api_reset, a_reset_forgets_the_space_everywhere)
{
    struct spw_completion done;
    open_pool();
    api_store(&api, client, space, 2, 100, 3);
    struct spw_request *request = api_request(space, 100, 3);
    cr_expect_eq(api_lookup(client, request).hit_tokens, 48);
    rig_settle(&api.rig);
    cr_assert_eq(spw_space_reset(space), 0);
    struct spw_chunk_ref ref = {.index = 0};
    cr_assert_eq(spw_store_reserve(request, 0, &ref, 1, 1), 1);
    rig_settle(&api.rig);
    struct spw_completion both[3];
    cr_assert_eq(spw_completions(client, both, 3), 2);
    for (uint32_t i = 0; i < 2; i++) {
        bool reset = both[i].kind == SPW_COMPLETION_RESET;
        cr_expect_eq(both[i].status, reset ? 0 : -ESTALE, "computed before the reset");
        cr_expect(!reset || both[i].cookie == spw_space_number(space));
    }
    cr_expect_eq(api_lookup(client, request).action, SPW_ACTION_MISS);
    done = api_reserve(&api, request, client, 0, 0, 1);
    cr_expect_eq(done.status, 0, "the step has seen the reset");
    spw_request_finish(request);
    close_pool();
}

/* A shard that is down, or whose worker dies before it answers, keeps what it has: the caller is told, and
 * resets again. */
Test(api_reset, a_reset_that_a_worker_missed_says_so)
{
    for (int dies = 0; dies < 2; dies++) {
        open_pool();
        api_store(&api, client, space, 2, 100, 3);
        struct spw_request *request = api_request(space, 100, 3);
        if (!dies)
            api_kill_worker(&api, 1);
        cr_assert_eq(spw_space_reset(space), 0);
        if (dies)
            api_kill_worker(&api, 1);
        struct spw_completion done = api_complete(&api, client);
        cr_expect_eq(done.kind, SPW_COMPLETION_RESET);
        cr_expect_eq(done.status, -EOWNERDEAD);
        api_restart_worker(&api, 1);
        cr_assert_eq(spw_space_reset(space), 0);
        done = api_complete(&api, client);
        cr_expect_eq(done.kind, SPW_COMPLETION_RESET);
        cr_expect_eq(done.status, 0);
        cr_expect_eq(api_lookup(client, request).action, SPW_ACTION_MISS);
        close_pool();
    }
}
