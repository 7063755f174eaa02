/* Workers that are threads of engines: who may be one, and what is left when one leaves or dies. */
#include "tests/process/actor.h"
#include "tests/process/proc.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shm/process.h"
#include "tier/counters.h"

TestSuite(process_inside, .timeout = 60);

extern char **environ;

static struct proc_pool pool;
static struct actor actor;

/* An engine, told by lines. */
struct engine {
    pid_t pid;
    int in, out;
};

static void start(uint32_t workers, const char *inside)
{
    struct proc_config config = {
        .workers = workers,
        .capacity = 32,
        .listen = true,
        .more = {"--copier", "host", "--inside", inside, "--drain-limit", "200ms"}};
    cr_assert(proc_start(&pool, &config));
}

static void meet(uint32_t ranks)
{
    struct actor_config who = {.dir = pool.dir, .name = "pool", .ranks = ranks, .worker = {0, 1}};
    cr_assert_eq(actor_open(&actor, &who), 0);
}

static void finish(void)
{
    cr_expect_eq(proc_stop(&pool, SIGTERM), 0);
    proc_close(&pool);
}

static struct engine spawn(const char *worker)
{
    struct engine engine;
    int in[2], out[2];
    posix_spawn_file_actions_t actions;
    cr_assert_eq(pipe2(in, O_CLOEXEC), 0);
    cr_assert_eq(pipe2(out, O_CLOEXEC), 0);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, in[0], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
    char *argv[] = {(char *)INSIDE_ENGINE, pool.dir, (char *)"pool", (char *)worker, NULL};
    cr_assert_eq(posix_spawn(&engine.pid, INSIDE_ENGINE, &actions, NULL, argv, environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    close(in[0]);
    close(out[1]);
    engine.in = in[1];
    engine.out = out[0];
    return engine;
}

static void ask(const struct engine *engine, const char *line)
{
    cr_assert_eq(write(engine->in, line, strlen(line)), (ssize_t)strlen(line));
}

#define expect_answer(engine, line, want)                                                          \
    do {                                                                                           \
        ask(engine, line);                                                                         \
        cr_assert(proc_reads_line((engine)->out, want));                                           \
    } while (0)

static void expect_refused(const struct engine *engine, int status, const char *words)
{
    char line[512] = "";
    ask(engine, "start\n");
    cr_assert_geq(support_read_line(engine->out, line, sizeof line, PROC_LIMIT_MS), 0);
    cr_expect(strncmp(line, "refused ", 8) == 0 && atoi(line + 8) == status && strstr(line, words),
              "%s", line);
}

/* The engine ends by itself: exit status. */
static int leave(struct engine *engine)
{
    int status = -1;
    close(engine->in);
    waitpid(engine->pid, &status, 0);
    close(engine->out);
    return status;
}

static void kill_engine(struct engine *engine)
{
    int status;
    kill(engine->pid, SIGKILL);
    waitpid(engine->pid, &status, 0);
    close(engine->in);
    close(engine->out);
}

static const struct spw_worker_state *state_of(uint32_t k)
{
    return &pool.seen->ctl->worker[k];
}

static bool is_reaped(void *ctx)
{
    (void)ctx;
    return spw_load_acquire(&state_of(0)->phase) == SPW_WORKER_REAPED;
}

static bool hits_three(void *ctx)
{
    (void)ctx;
    return actor_hits(&actor, 1, 3) == 3;
}

Test(process_inside, an_engines_thread_serves_everybody_and_leaves_when_it_is_told)
{
    start(1, "0");
    cr_expect_neq(spw_load_relaxed(&state_of(0)->phase), SPW_WORKER_UP);
    struct engine engine = spawn("0");
    expect_answer(&engine, "start\n", "up");
    cr_expect_eq(spw_load_relaxed(&state_of(0)->pid), (uint64_t)engine.pid);
    cr_expect(proc_said(&pool, "inside an engine"));
    static char stat[65536], pid[64];
    snprintf(pid, sizeof pid, "\"inside_pid\": %d", (int)engine.pid);
    cr_expect_eq(proc_spillway(&pool, "stat", true, stat, sizeof stat), 0);
    cr_expect(strstr(stat, pid), "%s", stat);
    meet(1);
    cr_expect_eq(actor_store(&actor, 1, 3), 3);
    cr_expect_eq(actor_load(&actor, 1, 3), 3);
    expect_answer(&engine, "runs\n", "runs");
    expect_answer(&engine, "stop\n", "stopped 0");
    cr_expect(proc_eventually(is_reaped, NULL, 2000));
    cr_expect_eq(spw_load_relaxed(&pool.seen->feed[0]->inside_pid), 0);
    /* again, in the same process */
    expect_answer(&engine, "start\n", "up");
    cr_expect(proc_eventually(hits_three, NULL, 2000), "what was ready stays");
    cr_expect_eq(actor_load(&actor, 1, 3), 3);
    cr_expect_eq(proc_incarnation(&pool, 0), 2);
    actor_close(&actor);
    cr_expect_eq(leave(&engine), 0);
    finish();
}

Test(process_inside, a_client_that_was_there_before_uses_it_when_it_comes)
{
    start(2, "0");
    meet(1);
    struct engine engine = spawn("0");
    expect_answer(&engine, "start\n", "up");
    cr_expect_eq(actor_store(&actor, 1, 3), 3);
    cr_expect_eq(actor_load(&actor, 1, 3), 3);
    actor_close(&actor);
    cr_expect_eq(leave(&engine), 0);
    finish();
}

Test(process_inside, a_killed_engine_is_noticed_and_another_one_goes_on)
{
    start(1, "0");
    struct engine first = spawn("0");
    expect_answer(&first, "start\n", "up");
    meet(1);
    struct spw_completion done;
    cr_assert_eq(actor_store(&actor, 1, 3), 3);
    struct spw_request *request = actor_request(&actor, 50, 3, 0);
    cr_assert_eq(actor_reserve(&actor, request, 0, 0, 3, &done), 0);
    uint64_t begin = proc_now_ms();
    kill_engine(&first);
    cr_expect(proc_eventually(is_reaped, NULL, 1000));
    cr_expect_leq(proc_now_ms() - begin, 1000);
    struct engine second = spawn("0");
    expect_answer(&second, "start\n", "up");
    cr_expect(proc_eventually(hits_three, NULL, 2000));
    cr_expect_eq(actor_load(&actor, 1, 3), 3);
    cr_expect_eq(actor_hits(&actor, 50, 3), 0, "pending ones read MISS");
    cr_expect_eq(actor_run(&actor, &done.ticket, 0, 1), -EOWNERDEAD);
    spw_request_finish(request);
    actor_close(&actor);
    cr_expect_eq(leave(&second), 0);
    finish();
}

/* One after the other, faster than the daemon looks. */
Test(process_inside, the_daemon_notices_each_of_many_that_follow_each_other)
{
    start(1, "0");
    struct engine engine = spawn("0");
    for (uint64_t i = 1; i <= 8; i++) {
        expect_answer(&engine, "start\n", "up");
        cr_expect_eq(proc_incarnation(&pool, 0), i);
        expect_answer(&engine, "stop\n", "stopped 0");
    }
    cr_expect(proc_eventually(is_reaped, NULL, 2000));
    cr_expect_eq(spw_load_relaxed(&state_of(0)->restarts), 8);
    cr_expect_eq(leave(&engine), 0);
    finish();
}

Test(process_inside, nobody_else_is_that_worker_meanwhile)
{
    start(2, "0");
    struct engine first = spawn("0"), second = spawn("0"), third = spawn("1"), fourth = spawn("2");
    expect_answer(&first, "start\n", "up");
    expect_refused(&second, -EBUSY, "another process is this pool's worker 0");
    expect_refused(&third, -EINVAL, "--inside 1");
    expect_refused(&fourth, -EINVAL, "worker 2");
    expect_answer(&first, "runs\n", "runs");
    cr_expect_eq(leave(&first), 0);
    expect_answer(&second, "start\n", "up");
    cr_expect_eq(leave(&second), 0);
    cr_expect_eq(leave(&third), 0);
    cr_expect_eq(leave(&fourth), 0);
    finish();
}

/* What the feed says decides, not the lock alone. The test is the process that isn't gone. */
Test(process_inside, no_successor_begins_while_copies_of_a_dead_one_may_run)
{
    start(1, "0");
    struct engine engine = spawn("0");
    expect_answer(&engine, "start\n", "up");
    expect_answer(&engine, "stop\n", "stopped 0");
    struct spw_region region = {0};
    cr_assert_eq(spw_region_attach(&pool.seen->path, SPW_REGION_FEED, 0, true,
                                   pool.seen->feed_map.size_bytes, &region, NULL),
                 0);
    struct spw_feed_head *feed = (struct spw_feed_head *)(void *)region.header;
    spw_store_relaxed(&feed->inside_ticks, spw_process_start_ticks(getpid()));
    spw_store_relaxed(&feed->inside_image, spw_process_image(getpid()));
    spw_store_relaxed(&feed->inside_pid, (uint64_t)getpid());
    expect_refused(&engine, -EBUSY, "is not gone yet");
    spw_store_relaxed(&feed->inside_image, 0); /* not known: as good as the same */
    expect_refused(&engine, -EBUSY, "is not gone yet");
    /* it runs another program by now */
    spw_store_relaxed(&feed->inside_image, spw_process_image(getpid()) + 1);
    expect_answer(&engine, "start\n", "up");
    expect_answer(&engine, "stop\n", "stopped 0");
    spw_store_relaxed(&feed->inside_image, spw_process_image(getpid()));
    spw_store_relaxed(&feed->inside_pid, (uint64_t)getpid());
    spw_store_relaxed(&feed->inside_ticks, spw_process_start_ticks(getpid()) + 1);
    expect_answer(&engine, "start\n", "up");
    spw_region_detach(&region);
    cr_expect_eq(leave(&engine), 0);
    finish();
}

Test(process_inside, a_forked_child_doesnt_keep_a_dead_engines_worker_alive)
{
    start(1, "0");
    struct engine engine = spawn("0");
    expect_answer(&engine, "start\n", "up");
    expect_answer(&engine, "fork\n", "forked");
    kill_engine(&engine);
    cr_expect(proc_eventually(is_reaped, NULL, 1500));
    finish();
}

static bool has_ended(void *engine)
{
    char line[512] = "";
    ask(engine, "runs\n");
    support_read_line(((struct engine *)engine)->out, line, sizeof line, PROC_LIMIT_MS);
    return strstr(line, "ended ") != NULL;
}

Test(process_inside, a_stop_of_the_pool_ends_the_thread_and_leaves_the_engine)
{
    start(1, "0");
    struct engine engine = spawn("0");
    expect_answer(&engine, "start\n", "up");
    cr_expect_eq(proc_stop(&pool, SIGTERM), 0);
    cr_expect(proc_eventually(has_ended, &engine, 2000));
    expect_answer(&engine, "stop\n", "stopped 0");
    expect_refused(&engine, -ENOENT, "pool");
    cr_expect_eq(leave(&engine), 0);
    proc_close(&pool);
}

Test(process_inside, an_engine_that_hangs_is_named_and_not_killed)
{
    start(1, "0");
    struct engine engine = spawn("0");
    expect_answer(&engine, "start\n", "up");
    kill(engine.pid, SIGSTOP);
    cr_expect_eq(proc_stop(&pool, SIGTERM), 1);
    cr_expect(proc_said(&pool, "didn't leave; end its engine"));
    kill(engine.pid, SIGCONT);
    cr_expect(proc_eventually(has_ended, &engine, 2000));
    cr_expect_eq(leave(&engine), 0);
    proc_close(&pool);
}

/* The host's copies are so slow that one never ends; being the thread's own, it doesn't go on either. */
Test(process_inside, LC_9_a_copy_of_the_hosts_that_doesnt_end_keeps_nobody_waiting)
{
    struct proc_config config = {
        .capacity = 32,
        .store_rate = "10",
        .more = {"--copier", "host", "--inside", "0", "--drain-limit", "200ms"}};
    struct spw_completion done;
    cr_assert(proc_start(&pool, &config));
    struct engine engine = spawn("0");
    expect_answer(&engine, "start\n", "up");
    meet(1);
    struct spw_request *request = actor_request(&actor, 1, 1, 0);
    cr_assert_eq(actor_reserve(&actor, request, 0, 0, 1, &done), 0);
    uint32_t block = 0;
    cr_assert_eq(spw_run(actor.client, &done.ticket, &block, 1, 7), 0);
    usleep(100000);
    uint64_t begin = proc_now_ms();
    expect_answer(&engine, "stop\n", "stopped 0");
    cr_expect_lt(proc_now_ms() - begin, 2000);
    expect_answer(&engine, "start\n", "up");
    spw_request_finish(request);
    actor_close(&actor);
    cr_expect_eq(leave(&engine), 0);
    finish();
}

Test(process_inside, a_new_daemon_goes_on_with_what_an_engines_thread_has_stored)
{
    start(1, "0");
    struct engine engine = spawn("0");
    expect_answer(&engine, "start\n", "up");
    meet(1);
    cr_assert_eq(actor_store(&actor, 1, 3), 3);
    actor_close(&actor);
    struct spw_pool *before = pool.seen;
    proc_kill_daemon(&pool);
    expect_answer(&engine, "runs\n", "runs");
    proc_spawn(&pool);
    cr_assert_eq(proc_await(&pool), 0);
    spw_pool_detach(before);
    free(before);
    cr_expect(has_ended(&engine));
    expect_answer(&engine, "stop\n", "stopped 0");
    expect_answer(&engine, "start\n", "up");
    meet(1);
    cr_expect_eq(actor_load(&actor, 1, 3), 3);
    actor_close(&actor);
    cr_expect_eq(leave(&engine), 0);
    finish();
}
