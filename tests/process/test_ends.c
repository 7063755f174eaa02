/* LC-9: ends of a pool by signals, with workers that leave and workers that don't. */
#include "tests/process/again.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

TestSuite(process_ends, .timeout = 60);

static struct actor actor;

Test(process_ends, LC_9_sigint_to_the_whole_group_at_any_moment_ends_all_and_leaves_nothing,
     .timeout = 100)
{
    uint32_t random = 1, gone = 0;
    proc_open(&again_pool, &(struct proc_config){.workers = 2,
                                                 .group = true,
                                                 .on_stop = "remove",
                                                 .store_rate = "200KB/s",
                                                 .capacity = 128});
    for (int round = 0; round < 50; round++) {
        proc_spawn(&again_pool);
        cr_assert_eq(proc_await(&again_pool), 0, "round %d", round);
        struct spw_completion done;
        again_open(&actor, "model", 2);
        struct spw_request *request = actor_request(&actor, 1, 16, 0);
        for (uint32_t rank = 0; rank < 2; rank++) /* copies of 80 ms, not waited for */
            if (actor_reserve(&actor, request, rank, 0, 16, &done) == 0)
                cr_expect_eq(actor_run(&actor, &done.ticket, 0, 1), 0);
        random = random * 1103515245u + 12345u;
        usleep(random >> 16 & 0x7fff); /* up to 32 ms */
        pid_t worker[2];
        for (uint32_t k = 0; k < 2; k++)
            worker[k] = (pid_t)spw_load_relaxed(&again_pool.seen->ctl->worker[k].pid);
        kill(-again_pool.daemon, SIGINT);
        cr_expect_eq(support_wait(again_pool.daemon, 8000), 0, "round %d", round);
        again_pool.daemon = 0;
        for (uint32_t k = 0; k < 2; k++)
            gone += kill(worker[k], 0) < 0;
        cr_expect_eq(proc_files(&again_pool), 0, "round %d", round);
        spw_request_finish(request);
        actor_close(&actor);
        again_look_away();
    }
    cr_expect_eq(gone, 100);
    again_close();
}

Test(process_ends, LC_9_a_worker_stuck_in_a_copy_is_killed_at_the_limit_and_named)
{
    again_start(&(struct proc_config){
        .workers = 2, .on_stop = "keep", .listen = true, .more = {"--drain-limit", "300ms", NULL}});
    again_open(&actor, "model", 2);
    cr_assert_eq(actor_store(&actor, 1, 3), 3);
    actor_close(&actor);
    proc_signal_worker(&again_pool, 1, SIGSTOP);
    uint64_t before = proc_now_ms();
    cr_expect_eq(proc_stop(&again_pool, SIGTERM), 1);
    cr_expect_lt(proc_now_ms() - before, 300 + 1000 + 1000);
    cr_expect(proc_said(&again_pool, "worker 1") && proc_said(&again_pool, "was stuck after"), "%s",
              again_pool.words);
    again_start_over();
    again_open(&actor, "model", 2);
    cr_expect_eq(actor_load(&actor, 1, 3), 3);
    actor_close(&actor);
    again_close();
}

Test(process_ends, LC_9_copies_that_outlast_the_limit_end_the_pool_badly_and_name_the_worker)
{
    struct spw_completion done;
    again_start(&(struct proc_config){.on_stop = "keep",
                                      .listen = true,
                                      .store_rate = "100",
                                      .more = {"--drain-limit", "300ms", NULL}});
    again_open(&actor, "model", 1);
    struct spw_request *request = actor_request(&actor, 1, 2, 0);
    cr_assert_eq(actor_reserve(&actor, request, 0, 0, 2, &done), 0);
    cr_assert_eq(actor_run(&actor, &done.ticket, 0, 1), 0);
    usleep(100000);
    cr_expect_eq(proc_stop(&again_pool, SIGTERM), 1);
    cr_expect(proc_said(&again_pool, "worker 0"), "%s", again_pool.words);
    spw_request_finish(request);
    actor_close(&actor);
    again_close();
}

Test(process_ends, LC_9_a_second_signal_shortens_the_wait)
{
    again_start(&(struct proc_config){.on_stop = "remove", .more = {"--drain-limit", "30s", NULL}});
    proc_signal_worker(&again_pool, 0, SIGSTOP);
    uint64_t before = proc_now_ms();
    kill(again_pool.daemon, SIGTERM);
    usleep(300000);
    cr_expect_eq(kill(again_pool.daemon, 0), 0, "it waits for its worker");
    cr_expect_eq(proc_stop(&again_pool, SIGTERM), 1);
    cr_expect_lt(proc_now_ms() - before, 3000);
    cr_expect_eq(proc_files(&again_pool), 0);
    again_close();
}
