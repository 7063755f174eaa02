/* Attaching, spaces, steps at the wrong time, and what becomes of a client whose pool, place or
 * parent is gone. */
#include "sched/explain.h"
#include "sched/handle.h"
#include "tests/support/api_rig.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

TestSuite(api_attach, .timeout = 25);

static struct api api;
static struct spw_client *client;
static struct spw_space *space;
static struct spw_space_config space_config;

static void open_pool(const struct rig_config *config, uint32_t ranks)
{
    api_open(&api, config);
    client = api_attach(&api, 64);
    space_config = api_space_config(ranks);
    space = api_space(&api, client, &space_config);
}

static void close_pool(void)
{
    spw_detach(client);
    api_close(&api);
}

static const struct rig_config one_worker = {.workers = 1, .capacity = 8};

/* ---- steps, clients, pools that go ----------------------------------------------------------- */

Test(api_attach, calls_at_the_wrong_time_are_refused)
{
    struct spw_decision decision = {.size_bytes = sizeof(decision)};
    struct spw_space *second;
    uint8_t verdict;
    open_pool(&one_worker, 1);
    struct spw_request *request = api_request(space, 1, 1);
    cr_expect_eq(spw_step_end(client), -EINVAL);
    cr_expect_eq(spw_lookup(request, 0, 0, &decision), -EINVAL);
    cr_expect_eq(spw_request_probe(request, 0, 0, 1, &verdict), -EINVAL);
    cr_expect_eq(spw_touch(request), -EINVAL);
    cr_assert_geq(spw_step_begin(client), 0);
    cr_expect_eq(spw_step_begin(client), -EALREADY);
    cr_expect_eq(spw_lookup(request, 17, 0, &decision), -EINVAL, "more computed than there is");
    cr_expect_eq(spw_request_probe(request, 0, 1, 1, &verdict), -EINVAL);
    cr_expect_eq(spw_space_open(client, &space_config, &second, NULL, 0), -EINVAL);
    decision.size_bytes = 8;
    cr_expect_eq(spw_lookup(request, 0, 0, &decision), -EINVAL);
    cr_assert_eq(spw_step_end(client), 0);
    close_pool();
}

Test(api_attach, a_step_says_how_far_each_view_was_brought_and_never_further)
{
    const struct rig_config large = {.workers = 1,
                                     .capacity = 40000}; /* more than a step resyncs */
    open_pool(&large, 1);
    struct spw_client_head *head = client->own->head;
    spw_atomic64 *tail = &api.rig.daemon.feed[0]->tail;
    cr_expect_eq(spw_load_relaxed(&head->applied[0]), 0);
    api_store(&api, client, space, 1, 100, 2);
    cr_assert_eq(spw_step_begin(client), 4);
    uint64_t end = spw_load_relaxed(tail);
    cr_expect_eq(spw_load_relaxed(&head->applied[0]), end + 1);
    cr_assert_eq(spw_step_end(client), 0);
    cr_expect_eq(spw_load_relaxed(&head->applied[0]), 0);
    api_kill_worker(&api, 0);
    api_restart_worker(&api, 0);
    api_store(&api, client, space, 1, 200, 2);
    uint32_t steps = 0;
    cr_assert_geq(spw_step_begin(client), 0);
    for (; client->views.live == 0 && steps < 10; steps++) {
        cr_expect_eq(spw_load_relaxed(&head->applied[0]), end + 1, "it stays where it was");
        cr_assert_eq(spw_step_end(client), 0);
        cr_assert_geq(spw_step_begin(client), 0);
    }
    cr_expect(steps > 0 && steps < 10);
    cr_expect_eq(spw_load_relaxed(&head->applied[0]), spw_load_relaxed(tail) + 1);
    cr_assert_eq(spw_step_end(client), 0);
    close_pool();
}

/* A client's own counters begin with it; what the pool's sums are made of does not shrink. */
Test(api_attach, counters_begin_with_a_client_and_the_objects_go_on)
{
    const struct rig_config config = {.workers = 1, .capacity = 8};
    open_pool(&config, 1);
    uint64_t before = 0;
    for (uint64_t round = 1; round < 4; round++) {
        struct spw_request *request = api_request(space, 100, 2);
        api_lookup(client, request);
        cr_expect_eq(api_counter(client, "lookups"), 1);
        uint64_t lookups = spw_load_relaxed(&client->own->head->counter[SPW_CLIENT_lookups]);
        cr_expect_eq(lookups, before + 1);
        before = lookups;
        spw_detach(client);
        client = api_attach(&api, 0);
        cr_expect_eq(api_counter(client, "lookups"), 0);
        struct spw_space_config again = api_space_config(1);
        space = api_space(&api, client, &again);
    }
    close_pool();
}

Test(api_attach, calls_without_a_handle_are_refused)
{
    struct spw_decision decision = {.size_bytes = sizeof(decision)};
    struct spw_info info = {.size_bytes = sizeof(info)};
    struct spw_completion done;
    struct spw_ticket ticket = {.id = 1, .kind = SPW_JOB_LOAD, .chunks = 1};
    struct spw_chunk_ref ref = {.index = 0};
    struct spw_change change;
    const uint32_t block = 0;
    uint8_t key[API_KEY_BYTES] = {0}, verdict;
    cr_expect_eq(spw_step_begin(NULL), -EINVAL);
    cr_expect_eq(spw_step_end(NULL), -EINVAL);
    cr_expect_eq(spw_space_open(NULL, NULL, NULL, NULL, 0), -EINVAL);
    cr_expect_eq(spw_space_reset(NULL), -EINVAL);
    cr_expect_eq(spw_request_open(NULL, NULL, NULL), -EINVAL);
    cr_expect_eq(spw_request_extend(NULL, 0, key, sizeof(key), 1), -EINVAL);
    cr_expect_eq(spw_request_boundary(NULL, 16, key, sizeof(key)), -EINVAL);
    cr_expect_eq(spw_request_tokens(NULL, 1), -EINVAL);
    cr_expect_eq(spw_request_cancel(NULL), -EINVAL);
    cr_expect_eq(spw_lookup(NULL, 0, 0, &decision), -EINVAL);
    cr_expect_eq(spw_probe(NULL, 0, key, sizeof(key), 1, &verdict), -EINVAL);
    cr_expect_eq(spw_request_probe(NULL, 0, 0, 1, &verdict), -EINVAL);
    cr_expect_eq(spw_touch(NULL), -EINVAL);
    cr_expect_eq(spw_store_reserve(NULL, 0, &ref, 1, 1), -EINVAL);
    cr_expect_eq(spw_load_begin(NULL, &decision, 0, &ref, 1, 1), -EINVAL);
    cr_expect_eq(spw_run(NULL, &ticket, &block, 1, 1), -EINVAL);
    cr_expect_eq(spw_cancel(NULL, &ticket), -EINVAL);
    cr_expect_eq(spw_completions(NULL, &done, 1), -EINVAL);
    cr_expect_eq(spw_changes(NULL, &change, 1), -EINVAL);
    cr_expect_eq(spw_get_info(NULL, &info), -EINVAL);
    cr_expect_eq(spw_kv_blocks(NULL, NULL, NULL, NULL), -EINVAL);
    cr_expect_eq(spw_counters(NULL, NULL, 0), -EINVAL);
    spw_request_finish(NULL);
    spw_detach(NULL);
}

/* LC-3 */
Test(api_attach, a_silent_client_stays_attached)
{
    open_pool(&one_worker, 1);
    api_store(&api, client, space, 1, 100, 1);
    struct spw_request *request = api_request(space, 100, 1);
    for (uint32_t hour = 0; hour < 48; hour++) {
        rig_advance(&api.rig, 3600 * RIG_SECOND);
        rig_settle(&api.rig);
    }
    cr_expect_eq(api_lookup(client, request).action, SPW_ACTION_LOAD);
    close_pool();
}

Test(api_attach, a_client_whose_place_was_given_away_is_told_and_may_come_back)
{
    open_pool(&one_worker, 1);
    struct spw_info info = {.size_bytes = sizeof(info)};
    cr_assert_eq(spw_get_info(client, &info), 0);
    spw_atomic64 *generation = &api.rig.daemon.client[info.client].head->generation;
    spw_store_relaxed(generation, spw_load_relaxed(generation) + 1);
    cr_expect_eq(spw_step_begin(client), -ENOTCONN);
    cr_expect_eq(spw_step_begin(client), -ENOTCONN);
    spw_detach(client);
    client = api_attach(&api, 0);
    cr_expect_geq(spw_step_begin(client), 0);
    close_pool();
}

Test(api_attach, what_is_shown_of_a_client_begins_with_it)
{
    struct spw_explained explained = {.tag = 7};
    uint64_t first, end;
    open_pool(&one_worker, 1);
    struct spw_client_head *head = client->own->head;
    spw_explain_write(head, &explained);
    spw_add_own(&head->wait[2].sum_ns, 5);
    spw_add_own(&head->wait[2].bucket[SPW_WAIT_BUCKETS - 1], 1);
    spw_count(client, SPW_CLIENT_lookups, 3);
    uint32_t number = client->number;
    spw_detach(client);
    client = api_attach(&api, 0);
    cr_assert_eq(client->number, number);
    head = client->own->head;
    spw_explain_range(head, &first, &end);
    cr_expect_eq(first, end, "no decisions");
    cr_expect_eq(spw_load_relaxed(&head->wait[2].sum_ns), 0);
    cr_expect_eq(spw_load_relaxed(&head->wait[2].bucket[SPW_WAIT_BUCKETS - 1]), 0);
    cr_expect_eq(api_counter(client, "lookups"), 0);
    close_pool();
}

Test(api_attach, a_pool_that_was_closed_is_told_once)
{
    open_pool(&one_worker, 1);
    struct spw_request *request = api_request(space, 1, 1);
    spw_store_relaxed(&api.rig.daemon.ctl->phase, SPW_POOL_CLOSED);
    spw_request_finish(request); /* tells nobody, so it doesn't use it up */
    cr_expect_eq(spw_step_begin(client), -ECONNRESET);
    cr_expect_eq(spw_step_begin(client), -ENOTCONN);
    cr_expect_eq(spw_completions(client, NULL, 0), -ENOTCONN);
    cr_expect_eq(spw_space_reset(space), -ENOTCONN);
    close_pool();
}

Test(api_attach, commands_that_nobody_takes_show_that_the_pool_is_gone)
{
    open_pool(&one_worker, 1);
    struct spw_request *request = api_request(space, 1, 1);
    struct spw_chunk_ref ref = {.index = 0};
    cr_assert_eq(spw_store_reserve(request, 0, &ref, 1, 1), 1);
    int rc = 0;
    for (uint32_t i = 0; i < 300 && rc >= 0; i++) { /* daemon and worker only do nothing */
        rc = spw_step_begin(client);
        spw_step_end(client);
        usleep(5000);
    }
    cr_expect_geq(rc, 0, "their locks are held");
    rig_end_worker(&api.rig, 0);
    spw_pool_detach(&api.rig.daemon);
    for (uint32_t i = 0; i < 800 && rc >= 0; i++) {
        rc = spw_step_begin(client);
        spw_step_end(client);
        usleep(5000);
    }
    cr_expect_eq(rc, -ECONNRESET);
    cr_expect_eq(spw_step_begin(client), -ENOTCONN);
    spw_detach(client);
    support_remove_dir(api.rig.dir);
}

static int use_in_child(void *arg)
{
    struct spw_decision decision = {.size_bytes = sizeof(decision)};
    struct spw_completion done;
    struct spw_request *request = arg;
    if (spw_step_begin(client) != -EOWNERDEAD || spw_step_end(client) != -EOWNERDEAD ||
        spw_lookup(request, 0, 0, &decision) != -EOWNERDEAD ||
        spw_completions(client, &done, 1) != -EOWNERDEAD || spw_space_reset(space) != -EOWNERDEAD ||
        spw_request_cancel(request) != -EOWNERDEAD)
        return 1;
    spw_request_finish(request);
    spw_detach(client);
    return 0;
}

Test(api_attach, a_forked_child_is_no_client)
{
    open_pool(&one_worker, 1);
    api_store(&api, client, space, 1, 100, 1);
    struct spw_request *request = api_request(space, 100, 1);
    pid_t pid = support_fork(use_in_child, request);
    cr_assert_gt(pid, 0);
    cr_expect_eq(support_wait(pid, 10000), 0);
    cr_expect_eq(api_lookup(client, request).action, SPW_ACTION_LOAD, "the parent goes on");
    close_pool();
}

Test(api_attach, a_sleeping_worker_is_woken_once_when_the_step_ends)
{
    open_pool(&one_worker, 1);
    struct spw_request *request = api_request(space, 1, 4);
    struct spw_chunk_ref ref = {.index = 0};
    spw_store_relaxed(&api.rig.daemon.feed[0]->asleep, 1);
    uint64_t rang = api_counter(client, "doorbells");
    cr_assert_geq(spw_step_begin(client), 0);
    for (ref.index = 0; ref.index < 3; ref.index++)
        cr_assert_eq(spw_store_reserve(request, 0, &ref, 1, 1), 1);
    cr_expect_eq(api_counter(client, "doorbells"), rang);
    cr_assert_eq(spw_step_end(client), 0);
    cr_expect_eq(api_counter(client, "doorbells"), rang + 1);
    cr_assert_eq(spw_store_reserve(request, 0, &ref, 1, 1), 1);
    cr_expect_eq(api_counter(client, "doorbells"), rang + 2, "outside a step: at once");
    close_pool();
}

/* ---- attach and spaces ----------------------------------------------------------------------- */

static int try_attach(const struct spw_attach_options *options, char *text)
{
    struct spw_client *extra = NULL;
    int rc = spw_attach(options, &extra, text, 256);
    spw_detach(extra);
    return rc;
}

Test(api_attach, attach_says_why_it_cannot)
{
    char text[256] = "";
    open_pool(&one_worker, 1);
    struct spw_attach_options options = {.size_bytes = sizeof(options),
                                         .numa_node = -1,
                                         .pool = "nothing",
                                         .shm_dir = api.rig.dir,
                                         .timeout_ns = 20000000,
                                         .uid = -1};
    cr_expect_eq(try_attach(&options, text), -ENOENT);
    cr_expect_neq(strstr(text, "nothing"), NULL, "%s", text);
    options.pool = "rig";
    cr_expect_eq(try_attach(&options, text), -ETIMEDOUT, "nobody drives the worker");
    cr_expect_neq(strstr(text, "worker 0"), NULL, "%s", text);
    options.size_bytes = 3;
    cr_expect_eq(try_attach(&options, text), -EINVAL);
    options.size_bytes = sizeof(options);
    spw_store_relaxed(&api.rig.daemon.ctl->phase, SPW_POOL_STARTING);
    cr_expect_eq(try_attach(&options, text), -EAGAIN);
    spw_store_relaxed(&api.rig.daemon.ctl->phase, SPW_POOL_SERVING);
    struct spw_client *more[RIG_CLIENTS];
    uint32_t n = 0;
    for (; n < RIG_CLIENTS - 2; n++)
        more[n] = api_attach(&api, 0);
    cr_expect_eq(try_attach(&options, text), -EBUSY, "%s", text);
    while (n > 0)
        spw_detach(more[--n]);
    close_pool();
}

static int try_space(const struct spw_space_config *config, char *text)
{
    struct spw_space *extra = NULL;
    api_pump(&api);
    int rc = spw_space_open(client, config, &extra, text, 256);
    api_pump_end(&api);
    return rc;
}

Test(api_attach, a_space_that_makes_no_sense_is_refused_with_words)
{
    char text[256] = "";
    const uint32_t no_worker[] = {7};
    open_pool(&one_worker, 1);
    struct spw_space_config good = api_space_config(1), bad = good;
    struct spw_group_config group = good.group[0];
    bad.max_recompute_pending_tokens = -1;
    cr_expect_eq(try_space(&bad, text), -EINVAL);
    cr_expect_neq(strstr(text, "-1"), NULL, "%s", text);
    bad = good;
    bad.groups = 0;
    cr_expect_eq(try_space(&bad, text), -EINVAL);
    bad = good;
    bad.rank_worker = no_worker;
    cr_expect_eq(try_space(&bad, text), -EINVAL);
    cr_expect_neq(strstr(text, "worker 7"), NULL, "%s", text);
    bad = good;
    bad.group = &group;
    group.chunk_bytes = 127;
    cr_expect_eq(try_space(&bad, text), -EINVAL, "not divisible by its blocks");
    group.chunk_bytes = 1 << 20;
    cr_expect_eq(try_space(&bad, text), -EINVAL, "larger than a slot");
    group = good.group[0];
    group.window_tokens = 5;
    cr_expect_eq(try_space(&bad, text), -EINVAL, "a full group with a window");
    bad = good;
    bad.fingerprint = "refused";
    cr_expect_eq(try_space(&bad, text), -ENOSPC);
    cr_expect_neq(strstr(text, "as the test wants it"), NULL, "%s", text);
    close_pool();
}

Test(api_attach, a_daemon_that_does_not_answer_is_waited_for_within_the_limit)
{
    struct spw_attach_options options = {
        .size_bytes = sizeof(options), .numa_node = -1, .pool = "rig", .uid = -1};
    struct spw_client *hasty = NULL;
    struct spw_space *extra = NULL;
    char text[256] = "";
    open_pool(&one_worker, 1);
    options.shm_dir = api.rig.dir;
    options.timeout_ns = 300000000;
    api.mute = true;
    api_pump(&api);
    cr_assert_eq(spw_attach(&options, &hasty, NULL, 0), 0);
    cr_expect_eq(spw_space_open(hasty, &space_config, &extra, text, sizeof(text)), -ETIMEDOUT);
    api_pump_end(&api);
    cr_expect_neq(strstr(text, "300 ms"), NULL, "%s", text);
    spw_detach(hasty);
    close_pool();
}
