/* spillway explain: sentences and JSON of what clients wrote, of the living and the dead. */
#include "sched/explain.h"
#include "sched/handle.h"
#include "tests/process/actor.h"
#include "tests/process/proc.h"

#include <criterion/criterion.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

TestSuite(process_explain, .timeout = 60);

#define OUT_BYTES 262144

static struct proc_pool pool;
static struct actor actor;
static char out[OUT_BYTES];

static void open_all(void)
{
    struct actor_config who = {.name = "pool", .label = "engine\t0"};
    cr_assert(proc_start(&pool, &(struct proc_config){0}));
    who.dir = pool.dir;
    cr_assert_eq(actor_open(&actor, &who), 0, "%s", actor.text);
}

static void close_all(void)
{
    actor_close(&actor);
    proc_stop(&pool, SIGTERM);
    proc_close(&pool);
}

static int explain(const char *client, const char *more, const char *value)
{
    const char *argv[] = {SPW_PROC_SPILLWAY, "explain", client, "--pool", pool.config.name,
                          "--shm-dir",       pool.dir,  more,   value,    NULL};
    return proc_run(argv, out, sizeof out, PROC_LIMIT_MS);
}

static json_t *explain_json(const char *client, int status)
{
    cr_assert_eq(explain(client, "--json", NULL), status, "%s", out);
    const char *start = strchr(out, '{');
    json_t *root = start ? json_loads(start, JSON_DISABLE_EOF_CHECK, NULL) : NULL;
    cr_assert_not_null(root, "%s", out);
    return root;
}

static json_int_t number(json_t *root, const char *name)
{
    json_t *value = json_object_get(root, name);
    cr_assert(json_is_integer(value), "%s", name);
    return json_integer_value(value);
}

static void tell(uint8_t action, uint8_t reason, struct spw_explained explained)
{
    explained.action = action;
    explained.reason = reason;
    explained.time_ns = actor_now_ms() * 1000000;
    spw_explain_write(actor.client->own->head, &explained);
}

static void tell_some(void)
{
    tell(SPW_ACTION_DEFER, SPW_REASON_PENDING,
         (struct spw_explained){.request = 17,
                                .tag = UINT64_MAX,
                                .computed_tokens = 512,
                                .chunk = 12,
                                .eta_ns = 1300000000,
                                .waited_ns = 400000000,
                                .flags = SPW_EXPLAINED_AWAITED});
    tell(SPW_ACTION_DEFER, SPW_REASON_PENDING,
         (struct spw_explained){
             .request = 18, .group = 3, .chunk = 1, .eta_ns = SPW_EXPLAINED_NO_ETA});
    tell(SPW_ACTION_LOAD, SPW_REASON_CUT,
         (struct spw_explained){.request = 17,
                                .hit_tokens = 4096,
                                .recomputed_tokens = 1024,
                                .group = 1,
                                .chunk = 8,
                                .eta_ns = 2500000,
                                .waited_ns = 2100000000,
                                .budget_tokens = SPW_EXPLAINED_AUTO});
    tell(SPW_ACTION_MISS, SPW_REASON_SHORT,
         (struct spw_explained){.request = 19, .group = SPW_EXPLAINED_NO_GROUP});
}

Test(process_explain, each_decision_is_a_sentence_and_json_adds_up)
{
    open_all();
    tell_some();
    cr_expect_eq(explain("0", NULL, NULL), 0, "%s", out);
    const char *const sentences[] = {
        "client 0 \"engine?0\"",
        "request 17 (tag 18446744073709551615): deferred, group 0 chunk 12 is pending, all ready "
        "in 1.3 s; waited 400 ms so far\n",
        "request 18 (tag 0): deferred, group 3 chunk 1 is pending, nobody knows when "
        "all is ready\n",
        "4096       1024  request 17 (tag 0): load, cut before group 1 chunk 8, which is pending "
        "and not worth the wait, all ready in 2 ms; waited 2.1 s\n",
        "request 19 (tag 0): compute, less than one chunk was left\n",
    };
    const char *at = out;
    for (size_t i = 0; i < sizeof sentences / sizeof sentences[0]; i++) {
        at = strstr(at, sentences[i]);
        cr_assert_not_null(at, "%zu, newest last: %s", i, out);
    }
    json_t *root = explain_json("0", 0), *totals = json_object_get(root, "totals");
    json_t *first = json_array_get(json_object_get(root, "decisions"), 0);
    json_t *third = json_array_get(json_object_get(root, "decisions"), 2);
    cr_expect_eq(number(root, "schema"), 1);
    cr_expect_eq(number(root, "made"), 4);
    cr_expect_eq(number(totals, "shown"), 4);
    cr_expect_eq(
        number(totals, "load") + number(totals, "miss") * 10 + number(totals, "defer") * 100, 211);
    cr_expect_eq(number(totals, "hit_tokens"), 4096);
    cr_expect_eq(number(totals, "recomputed_tokens"), 1024);
    cr_expect_str_eq(json_string_value(json_object_get(first, "tag")), "18446744073709551615");
    cr_expect_str_eq(json_string_value(json_object_get(first, "reason")), "pending");
    cr_expect_eq(number(first, "eta_ns"), 1300000000);
    cr_expect_eq(number(first, "chunk"), 12);
    cr_expect(json_is_true(json_object_get(first, "awaited")));
    cr_expect(json_is_true(json_object_get(third, "priced")));
    cr_expect(json_is_null(json_object_get(third, "budget_tokens")));
    json_decref(root);
    close_all();
}

Test(process_explain, the_last_ones_are_shown_and_another_holders_are_not)
{
    open_all();
    for (uint64_t i = 0; i < SPW_DECISION_RECORDS + 44; i++)
        tell(SPW_ACTION_MISS, SPW_REASON_GROUP_MISS, (struct spw_explained){.request = i});
    cr_expect_eq(explain("0", "--last", "2"), 0, "%s", out);
    cr_expect(strstr(out, "300 decisions, the last 2\n"), "%s", out);
    cr_expect(strstr(out, "request 298 ") && strstr(out, "request 299 "), "%s", out);
    cr_expect(!strstr(out, "request 297 "), "%s", out);
    cr_expect_eq(explain("0", "--last", "256"), 0);
    cr_expect(strstr(out, "request 44 ") && !strstr(out, "request 43 "), "%s", out);
    spw_detach(actor.client);
    cr_expect_eq(explain("0", NULL, NULL), 3, "%s", out);
    cr_expect(strstr(out, "request 299 ") && strstr(out, "client 0 is gone"), "%s", out);
    struct actor_config who = actor.config;
    cr_assert_eq(actor_attach(&actor, &who), 0);
    cr_expect_eq(explain("0", NULL, NULL), 0, "%s", out);
    cr_expect(strstr(out, ": 0 decisions") && !strstr(out, "request"), "%s", out);
    close_all();
}

Test(process_explain, a_dead_pool_is_read_all_the_same)
{
    open_all();
    tell_some();
    proc_kill_daemon(&pool);
    json_t *root = explain_json("0", 3);
    cr_expect(json_is_false(json_object_get(root, "daemon_alive")));
    cr_expect_eq(json_array_size(json_object_get(root, "decisions")), 4);
    json_decref(root);
    cr_expect_eq(explain("0", NULL, NULL), 3);
    cr_expect(strstr(out, "pool pool is gone") && strstr(out, "request 19 "), "%s", out);
    actor_close(&actor);
    proc_close(&pool);
}

Test(process_explain, a_record_that_makes_no_sense_is_left_out_with_6)
{
    open_all();
    tell_some();
    spw_store_relaxed(&actor.client->own->head->decision[1].word[13], 0xff00);
    cr_expect_eq(explain("0", NULL, NULL), 6, "%s", out);
    cr_expect(strstr(out, "request 17 ") && !strstr(out, "request 18 "), "%s", out);
    spw_store_relaxed(&actor.client->own->head->decision[1].seq, 0);
    cr_expect_eq(explain("0", NULL, NULL), 0, "%s", out);
    cr_expect(strstr(out, "1 were overwritten meanwhile"), "%s", out);
    close_all();
}

Test(process_explain, a_wrong_use_names_the_value_and_what_would_be_right)
{
    open_all();
    static const struct {
        const char *client, *more, *value;
        int status;
        const char *says[2];
    } bad[] = {
        {"99", NULL, NULL, 2, {"no client \"99\"", "clients 0 to 7"}},
        {"-1", NULL, NULL, 2, {"-1", ""}},
        {"x", NULL, NULL, 2, {"no client \"x\"", "spillway stat"}},
        {"0", "--last", "0", 2, {"--last", "1 to 256"}},
        {"0", "--last", "257", 2, {"--last", "1 to 256"}},
        {"0", "--lst", "2", 2, {"--lst", "--last"}},
        {"0", "1", NULL, 2, {"\"1\"", ""}},
        {"5", NULL, NULL, 1, {"nobody is attached as client 5", "spillway stat"}},
        {"--last=3", NULL, NULL, 2, {"CLIENT is missing", "--help"}},
        {"--help", NULL, NULL, 0, {"CLIENT", "--last"}},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        cr_expect_eq(explain(bad[i].client, bad[i].more, bad[i].value), bad[i].status, "%zu: %s", i,
                     out);
        cr_expect(strstr(out, bad[i].says[0]) && strstr(out, bad[i].says[1]), "%zu: %s", i, out);
    }
    close_all();
    pool.config.name = "absent";
    cr_expect_eq(explain("0", NULL, NULL), 5, "%s", out);
    cr_expect(strstr(out, "absent"), "%s", out);
}
