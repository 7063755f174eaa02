/* Shares of spaces with real processes: what one model is promised outlives another one's flood. */
#include "tests/process/actor.h"
#include "tests/process/proc.h"

#include <criterion/criterion.h>
#include <jansson.h>
#include <signal.h>
#include <string.h>

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
    json_array_foreach(json_object_get(root, "spaces"), i, line)
        if (strcmp(json_string_value(json_object_get(line, "fingerprint")), fingerprint) == 0)
            return line;
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
