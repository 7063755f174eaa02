/* spillway reset: a space of a living pool is emptied on every worker, and only that one. */
#include "tests/process/actor.h"
#include "tests/process/proc.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "tier/layout.h"

TestSuite(process_reset, .timeout = 60);

static struct proc_pool pool;
static char out[8192];

static int reset(const char *a, const char *b)
{
    const char *argv[] = {
        SPW_PROC_SPILLWAY, "reset", "--pool", pool.config.name, "--shm-dir", pool.dir, a, b, NULL};
    return proc_run(argv, out, sizeof out, PROC_LIMIT_MS);
}

static void open_actor(struct actor *actor, const char *fingerprint)
{
    struct actor_config who = {
        .name = "pool", .dir = pool.dir, .fingerprint = fingerprint, .ranks = 2, .worker = {0, 1}};
    cr_assert_eq(actor_open(actor, &who), 0, "%s", actor->text);
}

Test(process_reset, one_space_is_emptied_on_all_workers_and_no_other)
{
    struct actor one, two;
    cr_assert(proc_start(&pool, &(struct proc_config){.workers = 2}));
    open_actor(&one, "model one");
    open_actor(&two, "model two");
    cr_assert_eq(actor_store(&one, 1, 5), 5);
    cr_assert_eq(actor_store(&two, 1, 5), 5);
    cr_expect_eq(reset("--space", "model one"), 0, "%s", out);
    cr_expect(strstr(out, "space 0 (model one): reset on 2 workers"), "%s", out);
    cr_expect_eq(actor_hits(&one, 1, 5), 0);
    cr_expect_eq(actor_hits(&two, 1, 5), 5);
    cr_expect_eq(actor_store(&one, 1, 5), 5, "stored anew");
    cr_expect_eq(actor_load(&one, 1, 5), 5);
    cr_expect_eq(reset("--space", "1"), 0, "by number: %s", out);
    cr_expect_eq(actor_hits(&one, 1, 5), 5);
    cr_expect_eq(actor_hits(&two, 1, 5), 0);
    cr_assert_eq(actor_store(&two, 1, 5), 5);
    cr_expect_eq(reset("--all", "--json"), 0, "%s", out);
    cr_expect(strstr(out, "model two"), "%s", out);
    cr_expect_eq(actor_hits(&one, 1, 5) + actor_hits(&two, 1, 5), 0);
    cr_expect_eq(proc_entries(&pool, 0, SPW_READY) + proc_entries(&pool, 1, SPW_READY), 0);
    actor_close(&one);
    actor_close(&two);
    cr_expect_eq(proc_stop(&pool, SIGTERM), 0);
    proc_close(&pool);
}

Test(process_reset, a_worker_that_is_just_coming_up_is_waited_for)
{
    struct actor actor;
    cr_assert(proc_start(&pool, &(struct proc_config){.workers = 2}));
    open_actor(&actor, "model");
    cr_assert_eq(actor_store(&actor, 1, 5), 5);
    proc_signal_worker(&pool, 1, SIGKILL);
    cr_expect_eq(reset("--all", NULL), 0, "%s", out);
    cr_expect_eq(proc_entries(&pool, 1, SPW_READY), 0);
    cr_expect_eq(actor_hits(&actor, 1, 5), 0);
    actor_close(&actor);
    cr_expect_eq(proc_stop(&pool, SIGTERM), 0);
    proc_close(&pool);
}

Test(process_reset, what_cannot_be_reset_is_told)
{
    cr_assert(proc_start(&pool, &(struct proc_config){0}));
    cr_expect_eq(reset("--space", "nobody's"), 1, "%s", out);
    cr_expect(strstr(out, "nobody's"), "%s", out);
    cr_expect_eq(reset(NULL, NULL), 2, "%s", out);
    cr_expect_eq(reset("--all", "--space=1"), 2, "%s", out);
    cr_expect_eq(reset("--all", NULL), 0, "no spaces at all: %s", out);
    proc_kill_daemon(&pool);
    cr_expect_eq(reset("--all", NULL), 3, "%s", out);
    pool.config.name = "absent";
    cr_expect_eq(reset("--all", NULL), 5, "%s", out);
    proc_close(&pool);
}
