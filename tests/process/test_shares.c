/* Shares of spaces with real processes: what one model is promised outlives another one's flood. */
#include "tests/process/actor.h"
#include "tests/process/proc.h"

#include <criterion/criterion.h>
#include <jansson.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "tier/counters.h"
#include "tier/layout.h"

TestSuite(process_shares, .timeout = 60);

#define CAPACITY 40u
#define CHUNK    4096u

static struct proc_pool pool;
static struct actor chat, batch;
static char out[8192];

static void start(void)
{
    const struct proc_config config = {
        .capacity = CAPACITY, .chunk_bytes = CHUNK, .on_stop = "keep", .listen = true};
    cr_assert(proc_start(&pool, &config));
}

static void meet(struct actor *actor, const char *fingerprint, uint32_t guaranteed,
                 uint32_t largest)
{
    struct actor_config who = {.name = "pool",
                               .dir = pool.dir,
                               .fingerprint = fingerprint,
                               .guaranteed_permille = guaranteed,
                               .largest_permille = largest};
    cr_assert_eq(actor_open(actor, &who), 0, "%s", actor->text);
}

static void store(struct actor *actor, uint64_t first, uint64_t count)
{
    for (uint64_t key = first; key < first + count; key++)
        cr_assert_eq(actor_store(actor, key, 1), 1, "key %lu", (unsigned long)key);
}

static uint32_t hits(struct actor *actor, uint64_t first, uint64_t count)
{
    uint32_t found = 0;
    for (uint64_t key = first; key < first + count; key++) {
        int got = actor_load(actor, key, 1);
        cr_assert_geq(got, 0, "key %lu: %d", (unsigned long)key, got);
        found += (uint32_t)got;
    }
    return found;
}

/* Lines of `spillway ls`, by fingerprint. */
static json_t *line_of(json_t *root, const char *fingerprint)
{
    json_t *line;
    size_t i;
    json_array_foreach(json_object_get(root, "spaces"), i,
                       line) if (strcmp(json_string_value(json_object_get(line, "fingerprint")),
                                        fingerprint) == 0) return line;
    return NULL;
}

static json_int_t number(const json_t *line, const char *key)
{
    return json_integer_value(json_object_get(line, key));
}

static json_t *list(void)
{
    const char *ls[] = {SPW_PROC_SPILLWAY, "ls",     "--pool", "pool",
                        "--shm-dir",       pool.dir, "--json", NULL};
    cr_assert_eq(proc_run(ls, out, sizeof out, PROC_LIMIT_MS), 0, "%s", out);
    json_t *root = json_loads(out, 0, NULL);
    cr_assert_not_null(root, "%s", out);
    return root;
}

/* The same for people. */
static void expect_listed(const char *line_end)
{
    const char *ls[] = {SPW_PROC_SPILLWAY, "ls", "--pool", "pool", "--shm-dir", pool.dir, NULL};
    cr_assert_eq(proc_run(ls, out, sizeof out, PROC_LIMIT_MS), 0, "%s", out);
    cr_expect_not_null(strstr(out, line_end), "\"%s\" isn't in: %s", line_end, out);
}

Test(process_shares, a_batch_job_cant_wipe_the_chat_model)
{
    start();
    meet(&chat, "chat", 500, 0);
    meet(&batch, "batch", 0, 0);
    store(&chat, 1, 20);
    store(&batch, 1000, 400);
    cr_expect_eq(hits(&chat, 1, 20), 20);
    cr_expect_eq(hits(&batch, 1380, 20), 20);
    json_t *root = list(), *line = line_of(root, "chat");
    cr_expect_eq(number(line, "host_bytes"), 20 * CHUNK);
    cr_expect_eq(number(line, "guaranteed_permille"), 500);
    cr_expect_eq(number(line, "largest_permille"), 0);
    cr_expect_eq(number(line_of(root, "batch"), "host_bytes"), 20 * CHUNK);
    json_decref(root);
    expect_listed(" guaranteed    largest  fingerprint\n");
    expect_listed("     50.0 %        all  chat\n");
    expect_listed("          -        all  batch\n");
    actor_close(&chat);
    actor_close(&batch);
    cr_expect_eq(proc_stop(&pool, SIGTERM), 0);
    proc_close(&pool);
}

static bool is_up(void *ctx)
{
    (void)ctx;
    return spw_load_relaxed(&pool.seen->feed[0]->tier[SPW_TIER_NVME].state) == SPW_TIER_UP;
}

static void store_slowly(struct actor *actor, uint64_t first, uint64_t count)
{
    for (uint64_t key = first; key < first + count; key++) {
        store(actor, key, 1);
        cr_assert(proc_eventually(proc_settled_below, &pool, 10000));
    }
}

/* However long they take to come up. */
static uint32_t fetch(struct actor *actor, uint64_t first, uint64_t count)
{
    uint32_t found = 0;
    for (uint64_t key = first; key < first + count; key++) {
        uint64_t until = proc_now_ms() + 10000;
        int got;
        while ((got = actor_load(actor, key, 1)) == -EAGAIN && proc_now_ms() < until)
            usleep(500);
        cr_assert_geq(got, 0, "key %lu: %d", (unsigned long)key, got);
        found += (uint32_t)got;
    }
    return found;
}

/* Memory has room for 8, files for 60 or so: a tenth of either is the chat's and gone otherwise. */
Test(process_shares, shares_hold_below_too_and_over_a_restart)
{
    char below[SUPPORT_PATH_BYTES];
    cr_assert_eq(support_shm_dir(below), 0);
    struct proc_config config = {
        .capacity = 8, .chunk_bytes = 16384, .on_stop = "keep", .listen = true};
    const char *more[] = {"--nvme-dir",           below, "--nvme-bytes",    "1MiB",
                          "--nvme-promote-share", "100", "--io-quarantine", "100ms"};
    memcpy(config.more, more, sizeof more);
    cr_assert(proc_start(&pool, &config));
    cr_assert(proc_eventually(is_up, NULL, 10000));
    meet(&chat, "chat", 500, 0);
    meet(&batch, "batch", 0, 0);
    store_slowly(&chat, 1, 12);
    store_slowly(&batch, 1000, 120);
    cr_expect_gt(proc_count(&pool, 0, SPW_WORKER_cold_evicted), 0);
    cr_expect_eq(fetch(&chat, 1, 12), 12);
    actor_close(&chat);
    actor_close(&batch);
    cr_assert_eq(proc_stop(&pool, SIGTERM), 0);
    proc_spawn(&pool);
    cr_assert_eq(proc_await(&pool), 0);
    cr_assert(proc_eventually(is_up, NULL, 10000));
    meet(&batch, "batch", 0, 0);
    store_slowly(&batch, 2000, 120);
    meet(&chat, "chat", 0, 0);
    cr_expect_eq(fetch(&chat, 1, 12), 12);
    actor_close(&chat);
    actor_close(&batch);
    cr_expect_eq(proc_stop(&pool, SIGTERM), 0);
    proc_close(&pool);
}

Test(process_shares, shares_outlive_their_client_a_worker_and_a_warm_start)
{
    start();
    meet(&chat, "chat", 500, 0);
    store(&chat, 1, 20);
    actor_close(&chat);
    uint64_t before = proc_incarnation(&pool, 0);
    proc_signal_worker(&pool, 0, SIGKILL);
    cr_assert(proc_await_successor(&pool, 0, before));
    meet(&batch, "batch", 0, 0);
    store(&batch, 1000, 100);
    actor_close(&batch);
    cr_assert_eq(proc_stop(&pool, SIGTERM), 0);
    proc_spawn(&pool);
    cr_assert_eq(proc_await(&pool), 0);
    meet(&batch, "batch", 0, 0);
    store(&batch, 2000, 100);
    meet(&chat, "chat", 0, 0);
    cr_expect_eq(hits(&chat, 1, 20), 20);
    actor_close(&chat);
    actor_close(&batch);
    cr_expect_eq(proc_stop(&pool, SIGTERM), 0);
    proc_close(&pool);
}

Test(process_shares, a_warm_start_keeps_shares_of_a_space_that_holds_nothing)
{
    start();
    meet(&batch, "nobody's", 0, 0);
    meet(&chat, "chat", 400, 900);
    actor_close(&batch);
    actor_close(&chat);
    cr_assert_eq(proc_stop(&pool, SIGTERM), 0);
    proc_spawn(&pool);
    cr_assert_eq(proc_await(&pool), 0);
    json_t *root = list(), *line = line_of(root, "chat");
    cr_assert_not_null(line, "%s", out);
    cr_expect_eq(number(line, "guaranteed_permille"), 400);
    cr_expect_eq(number(line, "largest_permille"), 900);
    cr_expect_null(line_of(root, "nobody's"), "its place is free");
    json_decref(root);
    meet(&batch, "batch", 0, 0);
    meet(&chat, "chat", 0, 0);
    store(&chat, 1, 16);
    store(&batch, 1000, 100);
    cr_expect_eq(hits(&chat, 1, 16), 16);
    actor_close(&chat);
    actor_close(&batch);
    cr_expect_eq(proc_stop(&pool, SIGTERM), 0);
    proc_close(&pool);
}

Test(process_shares, what_cant_be_promised_is_refused_in_words)
{
    struct actor_config who = {
        .name = "pool", .dir = pool.dir, .fingerprint = "batch", .guaranteed_permille = 600};
    start();
    meet(&chat, "chat", 500, 0);
    cr_expect_eq(actor_attach(&batch, &who), 0);
    cr_expect_eq(actor_space(&batch), -ENOSPC);
    cr_expect(strstr(batch.text, "guaranteed_permille is 600"), "%s", batch.text);
    cr_expect(strstr(batch.text, "promised 500 of 1000"), "%s", batch.text);
    batch.config.guaranteed_permille = 1001;
    cr_expect_eq(actor_space(&batch), -EINVAL);
    cr_expect(strstr(batch.text, "must be 0 to 1000"), "%s", batch.text);
    batch.config.guaranteed_permille = 300;
    batch.config.largest_permille = 200;
    cr_expect_eq(actor_space(&batch), -EINVAL);
    cr_expect(strstr(batch.text, "must be 0 to 200"), "%s", batch.text);
    batch.config.largest_permille = 300;
    cr_expect_eq(actor_space(&batch), 0, "%s", batch.text);
    actor_close(&chat);
    actor_close(&batch);
    cr_expect_eq(proc_stop(&pool, SIGTERM), 0);
    proc_close(&pool);
}

static int say_shares(const char *space, const char *a, const char *b)
{
    const char *argv[] = {SPW_PROC_SPILLWAY, "shares", "--pool", "pool", "--shm-dir", pool.dir,
                          "--space",         space,    a,        b,      NULL};
    return proc_run(argv, out, sizeof out, PROC_LIMIT_MS);
}

Test(process_shares, an_operator_gives_and_takes_back_while_the_pool_runs)
{
    start();
    meet(&chat, "chat", 500, 0);
    meet(&batch, "batch", 0, 0);
    store(&chat, 1, 20);
    cr_expect_eq(say_shares("batch", "--guaranteed=600", NULL), 1, "%s", out);
    cr_expect(strstr(out, "guaranteed_permille is 600") && strstr(out, "spillway ls"), "%s", out);
    cr_expect_eq(say_shares("chat", "--guaranteed", "0"), 0, "%s", out);
    cr_expect(strstr(out, "space 0 (chat): guaranteed 0, largest 1000 of 1000"), "%s", out);
    store(&batch, 1000, 100);
    cr_expect_eq(hits(&chat, 1, 20), 0, "no longer kept from others");
    cr_expect_eq(say_shares("1", "--guaranteed=600", "--largest=700"), 0, "by number: %s", out);
    json_t *root = list(), *line = line_of(root, "batch");
    cr_expect_eq(number(line, "guaranteed_permille"), 600);
    cr_expect_eq(number(line, "largest_permille"), 700);
    json_decref(root);
    store(&chat, 2000, 100);
    cr_expect_eq(hits(&batch, 1000 + 100 - 24, 24), 24, "kept from others now");
    cr_expect_eq(say_shares("nobody's", "--guaranteed=1", NULL), 1, "%s", out);
    cr_expect(strstr(out, "nobody's"), "%s", out);
    cr_expect_eq(say_shares("chat", "--guaranteed=1001", NULL), 2, "%s", out);
    cr_expect(strstr(out, "1001"), "%s", out);
    cr_expect_eq(say_shares("chat", NULL, NULL), 2, "%s", out);
    actor_close(&chat);
    actor_close(&batch);
    cr_expect_eq(proc_stop(&pool, SIGTERM), 0);
    proc_close(&pool);
}
