/* See again.h. */
#include "tests/process/again.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <stdlib.h>

struct proc_pool again_pool;

void again_start(const struct proc_config *config)
{
    cr_assert(proc_start(&again_pool, config));
}

uint64_t again_start_over(void)
{
    uint64_t before = proc_now_ms();
    proc_spawn(&again_pool);
    cr_assert_eq(proc_await(&again_pool), 0);
    uint64_t took = proc_now_ms() - before;
    cr_expect_lt(took, AGAIN_START_MS);
    return took;
}

void again_close(void)
{
    again_pool.config.on_stop = "remove";
    if (again_pool.daemon)
        proc_stop(&again_pool, SIGTERM);
    proc_close(&again_pool);
}

void again_open(struct actor *actor, const char *model, uint32_t ranks)
{
    const struct actor_config config = {.dir = again_pool.dir,
                                        .name = "pool",
                                        .fingerprint = model,
                                        .ranks = ranks,
                                        .worker = {0, 1}};
    cr_assert_eq(actor_open(actor, &config), 0);
}

void again_look_away(void)
{
    spw_pool_detach(again_pool.seen);
    free(again_pool.seen);
    again_pool.seen = NULL;
}

void again_kill_daemon(void)
{
    proc_kill_daemon(&again_pool);
    again_look_away();
}

void again_kill_all(void)
{
    proc_kill_all(&again_pool);
}

void again_stop(void)
{
    cr_expect_eq(proc_stop(&again_pool, SIGTERM), 0);
}
