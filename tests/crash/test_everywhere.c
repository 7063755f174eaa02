/*
 * Processes of a busy pool die at every named crash point in turn (points.txt); afterwards all that
 * was READY is a HIT with its bytes, nothing is held for nobody, and all go on. What is compared is
 * in torture.h.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/crash/torture.h"

TestSuite(everywhere, .timeout = 240);

#define POINTS_MAX  160u
#define WORKERS     8u
#define CLIENTS     8u
#define DEATH_MS    20000u /* a point that isn't passed within this is none of this scene's */
#define CLIENT_MS   250u   /* between two deaths of clients */
#define ANSWER_MS   2000u  /* longest wait for an answer while others die: they stop nobody */
#define CLIENT_EACH 5u     /* deaths of clients between two sweeps */
#define KEYS        120u   /* some evictions, and time to compare tables */

struct point {
    char name[64];
    uint32_t nth;
};

static struct torture torture;
static struct point points[POINTS_MAX];

/* The points of points.txt at which @role dies. */
static uint32_t read_points(const char *role)
{
    FILE *file = fopen(SPW_CRASH_LIST, "r");
    char line[256], name[64], who[16];
    uint32_t count = 0, nth;
    cr_assert(file, "%s can't be read", SPW_CRASH_LIST);
    while (count < POINTS_MAX && fgets(line, sizeof line, file)) {
        if (line[0] == '#' || sscanf(line, "%63s %15s %u", name, who, &nth) != 3 ||
            strcmp(who, role))
            continue;
        snprintf(points[count].name, sizeof points[count].name, "%s", name);
        points[count++].nth = nth;
    }
    fclose(file);
    cr_assert_gt(count, 0);
    return count;
}

static void start(uint32_t workers)
{
    const struct torture_options options = {
        .seed = 7, .workers = workers, .clients = CLIENTS, .slots = 48};
    cr_assert(torture_open(&torture, &options));
    spw_store_relaxed(&torture.board->keys, KEYS);
}

static void end(void)
{
    torture_quiet(&torture);
    torture_close(&torture);
    bool well = torture_sum_up(&torture);
    cr_expect(well,
              "wrong %" PRIu64 ", lost %" PRIu64 ", leaked %" PRIu64 ", stuck %" PRIu64
              ", answers lost %" PRIu64 ", unexpected %" PRIu64 ", uneven %" PRIu64
              ", slow %" PRIu64,
              torture.found.wrong, torture.found.lost, torture.found.leaked_pins,
              torture.found.stuck, torture.found.lost_answers, torture.found.unexpected,
              torture.found.uneven, torture.found.slow);
    cr_expect_gt(torture.found.checked, 0);
}

/* ---- workers --------------------------------------------------------------------------------- */

struct order {
    const struct point *point;
    uint64_t restarts;
    bool dead; /* at the point */
    bool over;
};
static struct order order[WORKERS];

static uint64_t restarts_of(uint32_t k)
{
    return spw_load_relaxed(&torture.pool.seen->ctl->worker[k].restarts);
}

/* The successor of worker @k is told where to die. */
static void send(uint32_t k, const struct point *point)
{
    char path[SUPPORT_PATH_BYTES + 24];
    snprintf(path, sizeof path, "%s/.crash.%u", torture.pool.dir, k);
    FILE *file = fopen(path, "w");
    cr_assert(file && fprintf(file, "%.63s:%u", point->name, point->nth) > 0 && fclose(file) == 0);
    order[k] = (struct order){.point = point, .restarts = restarts_of(k)};
    torture_kill_worker(&torture, k);
    torture.worker[k].dies = true;
}

/* It lies dead until its successor is started: what it left, then what the successor made of it. */
static void watch(uint32_t k)
{
    struct torture_worker *worker = &torture.worker[k];
    const struct spw_worker_state *state = &torture.pool.seen->ctl->worker[k];
    if (!order[k].dead && restarts_of(k) >= order[k].restarts + 2) {
        order[k].dead = true;
        worker->incarnation = proc_incarnation(&torture.pool, k);
        torture_compare(&torture, k, 1);
    } else if (order[k].dead && !order[k].over &&
               spw_load_acquire(&state->phase) == SPW_WORKER_UP) {
        torture_compare(&torture, k, 0);
        worker->killed_ms = 0;
        worker->dies = false;
        order[k].over = true;
    }
}

/* Some points are about clients that come and go. */
static void kill_clients(void)
{
    static uint64_t next_ms;
    static uint32_t i;
    if (proc_now_ms() < next_ms)
        return;
    next_ms = proc_now_ms() + CLIENT_MS;
    torture_kill_client(&torture, i++ % CLIENTS, true);
}

static bool all_over(void *ctx)
{
    uint32_t count = *(uint32_t *)ctx, over = 0;
    torture_tick(&torture);
    kill_clients();
    for (uint32_t k = 0; k < count; k++) {
        watch(k);
        over += order[k].over;
    }
    return over == count;
}

Test(everywhere, a_worker_dead_at_any_point_costs_nobody_a_chunk)
{
    uint32_t count = read_points("worker");
    start(WORKERS);
    for (uint32_t i = 0; i < count; i += WORKERS) {
        uint32_t here = count - i < WORKERS ? count - i : WORKERS;
        for (uint32_t k = 0; k < here; k++)
            send(k, &points[i + k]);
        proc_eventually(all_over, &here, DEATH_MS);
        for (uint32_t k = 0; k < here; k++)
            cr_assert(order[k].over, "%s: a worker doesn't %s", order[k].point->name,
                      order[k].dead ? "come back" : "die there");
        torture_quiet(&torture);
    }
    end();
}

/* ---- clients --------------------------------------------------------------------------------- */

static void die_as_client(uint32_t i, const struct point *point)
{
    struct torture_client *client = &torture.client[i];
    char text[80];
    int status;
    snprintf(text, sizeof text, "%.63s:%u", point->name, point->nth);
    support_kill(client->pid);
    torture_start_client(&torture, i, text);
    client->dies = true;
    client->killed_ms = 0;
    uint64_t until = proc_now_ms() + DEATH_MS;
    while (waitpid(client->pid, &status, WNOHANG) == 0) {
        torture_tick(&torture);
        cr_assert_lt(proc_now_ms(), until, "%s: a client doesn't die there", point->name);
        usleep(500);
    }
    bool killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    cr_expect(killed, "%s: status %x", point->name, (unsigned)status);
    client->dies = false;
    client->pid = 0;
    torture_start_client(&torture, i, NULL);
}

Test(everywhere, LC_7_a_client_dead_at_any_point_keeps_nobody_waiting)
{
    uint32_t count = read_points("client");
    start(2);
    for (uint32_t i = 0; i < count; i++) {
        die_as_client(i % CLIENTS, &points[i]);
        if (i % CLIENT_EACH == CLIENT_EACH - 1)
            torture_quiet(&torture);
    }
    end();
    for (uint32_t i = 0; i < CLIENTS; i++)
        cr_expect_lt(spw_load_relaxed(&torture.board->line[i].longest_ms), ANSWER_MS, "client %u",
                     i);
}

/* ---- daemon ---------------------------------------------------------------------------------- */

Test(everywhere, a_daemon_dead_at_any_point_of_its_start_costs_nobody_a_chunk)
{
    uint32_t count = read_points("daemon");
    char text[80];
    start(2);
    for (uint32_t i = 0; i < count; i++) {
        usleep(50000);
        proc_kill_daemon(&torture.pool);
        snprintf(text, sizeof text, "%.63s:%u", points[i].name, points[i].nth);
        setenv("SPW_CRASH_DAEMON", text, 1);
        proc_spawn(&torture.pool);
        unsetenv("SPW_CRASH_DAEMON");
        int status = support_wait(torture.pool.daemon, DEATH_MS);
        cr_expect_eq(status, SUPPORT_SIGNALLED + SIGKILL, "%s: a daemon doesn't die there: %d",
                     points[i].name, status);
        cr_assert_geq(torture_restart_daemon(&torture), 0, "%s: the next start", points[i].name);
        for (uint32_t k = 0; k < torture.options.workers; k++)
            torture_compare(&torture, k, 1);
        torture_quiet(&torture);
    }
    end();
}
