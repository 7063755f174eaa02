/* A pool that has nothing to do costs nothing, and wakes up at once. */
#include "tests/process/actor.h"
#include "tests/process/proc.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

TestSuite(process_idle, .timeout = 60);

#define IDLE_MS      10000
#define SHARE_MAX_MS (IDLE_MS / 100) /* 1 % of a core */
#define WAKE_MS      100 /* a wake-up that is lost costs a worker's tick; usual are 0.1 ms */

Test(process_idle, SM_14_an_idle_pool_uses_less_than_one_per_cent_of_a_core_and_wakes_in_time)
{
    struct proc_pool pool;
    struct actor actor;
    const char *const hold[] = {"hold", NULL};
    char line[64];
    int fd;
    cr_assert(proc_start(&pool, &(struct proc_config){.workers = 2}));
    cr_assert_eq(actor_open(&actor, &(struct actor_config){.dir = pool.dir, .name = "pool"}), 0);
    cr_assert_eq(actor_store(&actor, 1, 8), 8);
    pid_t peer = proc_peer(&pool, &fd, hold);
    cr_assert_gt(support_read_line(fd, line, sizeof line, PROC_LIMIT_MS), 0);
    usleep(200000); /* what start and attach cost is no idling */
    pid_t pid[] = {pool.daemon, (pid_t)spw_load_relaxed(&pool.seen->ctl->worker[0].pid),
                   (pid_t)spw_load_relaxed(&pool.seen->ctl->worker[1].pid), peer};
    uint64_t before[4];
    for (int i = 0; i < 4; i++)
        before[i] = proc_cpu_ms(pid[i]);
    usleep(IDLE_MS * 1000);
    for (int i = 0; i < 4; i++) {
        uint64_t used = proc_cpu_ms(pid[i]) - before[i];
        cr_expect_leq(used, SHARE_MAX_MS, "process %d: %d ms of %d", i, (int)used, IDLE_MS);
        fprintf(stderr, "process %d: %d ms of %d\n", i, (int)used, IDLE_MS);
    }
    uint64_t start = proc_now_ms();
    cr_expect_eq(actor_hits(&actor, 1, 8), 8);
    cr_expect_leq(proc_now_ms() - start, WAKE_MS, "the lookup itself");
    start = proc_now_ms();
    cr_expect_eq(actor_load(&actor, 1, 8), 8);
    cr_expect_leq(proc_now_ms() - start, WAKE_MS, "a load by a worker that slept");
    support_kill(peer);
    close(fd);
    actor_close(&actor);
    cr_expect_eq(proc_stop(&pool, SIGTERM), 0);
    proc_close(&pool);
}
