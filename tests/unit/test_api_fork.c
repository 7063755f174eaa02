/* A forked child has no handle: every exported call that takes one says so, and the parent goes on.
 * The list of calls is the library's version script, so that none can be forgotten. */
#include "tests/support/api_rig.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

TestSuite(api_fork, .timeout = 25);

static struct api api;
static struct spw_client *client;
static struct spw_space *space;
static struct spw_request *request;
static struct spw_decision decision = {.size_bytes = sizeof decision};

/* ---- each call, as a child makes it ---------------------------------------------------------- */

static const struct spw_ticket ticket = {.id = 1, .kind = SPW_JOB_STORE, .chunks = 1};
static const struct spw_chunk_ref ref = {.index = 0};
static const uint8_t key[API_KEY_BYTES];

static int completions(void)
{
    struct spw_completion done;
    return spw_completions(client, &done, 1);
}

static int changes(void)
{
    struct spw_change change;
    return spw_changes(client, &change, 1);
}

static int get_info(void)
{
    struct spw_info info = {.size_bytes = sizeof info};
    return spw_get_info(client, &info);
}

static int kv_blocks(void)
{
    void *start;
    uint64_t blocks, bytes;
    return spw_kv_blocks(client, &start, &blocks, &bytes);
}

static int fence_give(void)
{
    return spw_fence_give(client, 0, 0);
}

static int fence_take(void)
{
    uint32_t fence;
    return spw_fence_take(client, 0, &fence);
}

static int kv_register(void)
{
    struct spw_kv_config config = {.size_bytes = sizeof config};
    uint32_t worker;
    return spw_kv_register(client, &config, 1, &worker, NULL, 0);
}

static int counters(void)
{
    uint64_t value;
    return spw_counters(client, &value, 1);
}

static int waits(void)
{
    struct spw_wait_histogram waited;
    return spw_waits(client, 0, &waited);
}

static int woken(void)
{
    struct spw_request *one;
    return spw_woken(client, &one, 1);
}

static int step_begin(void)
{
    return spw_step_begin(client);
}

static int step_end(void)
{
    return spw_step_end(client);
}

static int run(void)
{
    const uint32_t block = 0;
    return spw_run(client, &ticket, &block, 1, 1);
}

static int cancel(void)
{
    return spw_cancel(client, &ticket);
}

static int space_open(void)
{
    struct spw_space_config config = api_space_config(1);
    struct spw_space *second;
    return spw_space_open(client, &config, &second, NULL, 0);
}

static int space_queue(void)
{
    return spw_space_queue(space, 1);
}

static int space_reset(void)
{
    return spw_space_reset(space);
}

static int probe(void)
{
    uint8_t verdict;
    return spw_probe(space, 0, key, sizeof key, 1, &verdict);
}

static int request_open(void)
{
    struct spw_request_config config = {.size_bytes = sizeof config, .prompt_tokens = 16};
    struct spw_request *second;
    return spw_request_open(space, &config, &second);
}

static int request_extend(void)
{
    return spw_request_extend(request, 0, key, sizeof key, 1);
}

static int request_boundary(void)
{
    return spw_request_boundary(request, 8, key, sizeof key);
}

static int request_tokens(void)
{
    return spw_request_tokens(request, 32);
}

static int request_eta(void)
{
    uint64_t eta;
    return spw_request_eta(request, &ref, &eta);
}

static int request_probe(void)
{
    uint8_t verdict;
    return spw_request_probe(request, 0, 0, 1, &verdict);
}

static int request_cancel(void)
{
    return spw_request_cancel(request);
}

static int lookup(void)
{
    struct spw_decision mine = {.size_bytes = sizeof mine};
    return spw_lookup(request, 0, 0, &mine);
}

static int touch(void)
{
    return spw_touch(request);
}

static int store_reserve(void)
{
    return spw_store_reserve(request, 0, &ref, 1, 1);
}

static int load_begin(void)
{
    return spw_load_begin(request, &decision, 0, &ref, 1, 1);
}

static int run_after(void)
{
    const uint32_t block = 0;
    return spw_run_after(client, &ticket, &block, 1, 1, 0);
}

/* ---- all of them ----------------------------------------------------------------------------- */

/* NULL: takes no handle, or only reads what is the caller's own memory, or ends the handle. */
static const struct {
    const char *name;
    int (*call)(void);
} calls[] = {
    {"spw_attach", NULL},
    {"spw_cancel", cancel},
    {"spw_changes", changes},
    {"spw_completions", completions},
    {"spw_counter_name", NULL},
    {"spw_counters", counters},
    {"spw_decision_chunks", NULL},
    {"spw_detach", NULL},
    {"spw_fence_give", fence_give},
    {"spw_fence_take", fence_take},
    {"spw_get_info", get_info},
    {"spw_kv_blocks", kv_blocks},
    {"spw_kv_register", kv_register},
    {"spw_kv_tensor_split", NULL},
    {"spw_kv_tensor_whole", NULL},
    {"spw_load_begin", load_begin},
    {"spw_lookup", lookup},
    {"spw_probe", probe},
    {"spw_recompute_budget_parse", NULL},
    {"spw_recompute_price_parse", NULL},
    {"spw_request_boundary", request_boundary},
    {"spw_request_cancel", request_cancel},
    {"spw_request_eta", request_eta},
    {"spw_request_extend", request_extend},
    {"spw_request_finish", NULL},
    {"spw_request_open", request_open},
    {"spw_request_probe", request_probe},
    {"spw_request_tag", NULL},
    {"spw_request_tokens", request_tokens},
    {"spw_run", run},
    {"spw_run_after", run_after},
    {"spw_space_number", NULL},
    {"spw_space_open", space_open},
    {"spw_space_queue", space_queue},
    {"spw_space_reset", space_reset},
    {"spw_step_begin", step_begin},
    {"spw_step_end", step_end},
    {"spw_store_reserve", store_reserve},
    {"spw_touch", touch},
    {"spw_version", NULL},
    {"spw_waits", waits},
    {"spw_woken", woken},
};
#define CALLS (sizeof calls / sizeof calls[0])

Test(api_fork, each_exported_call_is_one_of_these)
{
    char name[100];
    FILE *script = fopen(SPW_VERSION_SCRIPT, "r");
    uint32_t found = 0, length;
    cr_assert(script, "%s can't be read", SPW_VERSION_SCRIPT);
    for (char line[200]; fgets(line, sizeof line, script);) {
        if (sscanf(line, " %99[a-z_] ;", name) != 1 || strncmp(name, "spw_", 4))
            continue;
        length = 0;
        while (length < CALLS && strcmp(calls[length].name, name))
            length++;
        cr_expect_lt(length, CALLS, "%s: what does it answer in a forked child?", name);
        found++;
    }
    fclose(script);
    cr_expect_eq(found, CALLS, "a call that isn't exported any more");
}

/* 1 + the first call that answers something else; a signal: it touched what isn't there. */
static int call_all(void *arg)
{
    (void)arg;
    for (uint32_t i = 0; i < CALLS; i++)
        if (calls[i].call && calls[i].call() != -EOWNERDEAD)
            return 1 + (int)i;
    spw_request_tag(request);
    spw_space_number(space);
    spw_request_finish(request);
    spw_detach(client);
    return 0;
}

Test(api_fork, every_call_with_a_handle_answers_owner_dead_in_a_child)
{
    for (int in_step = 0; in_step < 2; in_step++) {
        api_open(&api, &(struct rig_config){.workers = 1, .capacity = 8});
        client = api_attach(&api, 64);
        struct spw_space_config config = api_space_config(1);
        space = api_space(&api, client, &config);
        api_store(&api, client, space, 1, 100, 2);
        request = api_request(space, 100, 2);
        if (in_step)
            cr_assert_geq(spw_step_begin(client), 0);
        if (in_step)
            cr_assert_eq(spw_lookup(request, 0, 0, &decision), 0);
        int status = support_wait(support_fork(call_all, NULL), 10000);
        cr_expect_eq(status, 0, "%s: status %d",
                     status <= (int)CALLS ? calls[status - 1].name : "?", status);
        if (in_step)
            cr_expect_eq(spw_step_end(client), 0);
        cr_expect_eq(api_lookup(client, request).action, SPW_ACTION_LOAD, "the parent goes on");
        spw_request_finish(request);
        spw_detach(client);
        api_close(&api);
    }
}
