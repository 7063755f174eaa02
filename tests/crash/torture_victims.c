/* Who dies or is stopped next, and what happens to it; see torture.h. */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include "tests/crash/torture.h"

#define GONE_MS 5000 /* a killed process to be gone */
#define STOP_MS 1600 /* longest: beyond the limits of steps and of runs */

static uint64_t below(struct torture *torture, uint64_t n)
{
    return torture_draw(&torture->seed) % n;
}

static void count_kill(struct torture *torture, enum torture_role role)
{
    torture->found.kills++;
    torture->found.deaths[role]++;
}

/* What it leaves is compared with what it had, then its successor's work with that. If the machine
 * was too busy for a look in between, both at once. */
static void autopsy(struct torture *torture, uint32_t k, pid_t pid)
{
    uint64_t until = proc_now_ms() + GONE_MS;
    while (pid && torture_worker_pid(torture, k) == pid && proc_now_ms() < until)
        usleep(200);
    torture_compare(torture, k, 1);
}

void torture_kill_worker(struct torture *torture, uint32_t k)
{
    struct torture_worker *worker = &torture->worker[k];
    pid_t pid = torture_worker_pid(torture, k);
    if (!pid)
        return;
    worker->incarnation = proc_incarnation(&torture->pool, k);
    worker->stopped_ms = 0;
    worker->killed_ms = proc_now_ms();
    kill(pid, SIGKILL);
    count_kill(torture, TORTURE_WORKER);
    autopsy(torture, k, pid);
}

void torture_kill_client(struct torture *torture, uint32_t i, bool followed)
{
    struct torture_client *client = &torture->client[i];
    if (!client->pid)
        return;
    client->killed_ms = proc_now_ms();
    support_kill(client->pid);
    client->pid = 0;
    client->stopped_ms = 0;
    count_kill(torture, TORTURE_CLIENT);
    if (followed)
        torture_start_client(torture, i, NULL);
    else
        client->killed_ms = 0; /* nothing else may clear what it left, either */
}

static void start_daemon(struct torture *torture)
{
    int64_t ms = torture_restart_daemon(torture);
    if (ms >= 0)
        torture_recovered(torture, TORTURE_DAEMON, (uint64_t)ms);
    for (uint32_t i = 0; i < torture->options.clients; i++)
        torture->client[i].killed_ms = 0; /* that clock means nothing any more */
    for (uint32_t k = 0; k < torture->options.workers; k++)
        torture_compare(torture, k, 1); /* a stopped worker is killed by the next daemon */
}

/* A stop that keeps what is there, while all are busy. */
static void restart_cleanly(struct torture *torture)
{
    torture_continue(torture);
    torture_stop_daemon(torture);
    torture->found.restarts++;
    start_daemon(torture);
}

void torture_kill_daemon(struct torture *torture)
{
    bool again = below(torture, 4) == 0;
    useconds_t pause = (useconds_t)below(torture, 300) * 1000,
               early = (useconds_t)below(torture, 30000);
    proc_kill_daemon(&torture->pool);
    torture->daemon_stopped_ms = 0;
    count_kill(torture, TORTURE_DAEMON);
    usleep(pause);
    if (again) { /* the next one dies while it starts */
        proc_spawn(&torture->pool);
        usleep(early);
        proc_kill_daemon(&torture->pool);
        count_kill(torture, TORTURE_DAEMON);
    }
    start_daemon(torture);
}

static void kill_all_of_it(struct torture *torture, pid_t worker[TORTURE_WORKERS_MAX])
{
    for (uint32_t k = 0; k < torture->options.workers; k++)
        worker[k] = torture_worker_pid(torture, k);
    bool daemon_first = below(torture, 2);
    if (daemon_first)
        proc_kill_daemon(&torture->pool);
    for (uint32_t k = 0; k < torture->options.workers; k++)
        if (worker[k])
            kill(worker[k], SIGKILL);
    if (!daemon_first)
        proc_kill_daemon(&torture->pool);
    for (uint32_t i = 0; i < torture->options.clients; i++) {
        if (torture->client[i].pid)
            support_kill(torture->client[i].pid);
        torture->client[i].pid = 0;
        torture->client[i].killed_ms = torture->client[i].stopped_ms = 0;
    }
}

void torture_kill_everything(struct torture *torture)
{
    pid_t worker[TORTURE_WORKERS_MAX];
    kill_all_of_it(torture, worker);
    torture->daemon_stopped_ms = 0;
    count_kill(torture, TORTURE_EVERYTHING);
    for (uint32_t k = 0; k < torture->options.workers; k++)
        autopsy(torture, k, worker[k]);
    int64_t ms = torture_restart_daemon(torture);
    if (ms >= 0)
        torture_recovered(torture, TORTURE_EVERYTHING, (uint64_t)ms);
    torture_quiet(torture); /* nobody evicts anything: all of it is there */
}

static void stop_somebody(struct torture *torture, enum torture_role role)
{
    uint64_t until = proc_now_ms() + below(torture, STOP_MS);
    uint32_t k = (uint32_t)below(torture, torture->options.workers);
    uint32_t i = (uint32_t)below(torture, torture->options.clients);
    pid_t pid = 0;
    if (role == TORTURE_DAEMON && !torture->daemon_stopped_ms) {
        pid = torture->pool.daemon;
        torture->daemon_stopped_ms = until;
    } else if (role == TORTURE_WORKER && !torture->worker[k].stopped_ms &&
               !torture->worker[k].killed_ms) {
        pid = torture_worker_pid(torture, k);
        torture->worker[k].stopped_ms = pid ? until : 0;
    } else if (role == TORTURE_CLIENT && !torture->client[i].stopped_ms) {
        pid = torture->client[i].pid;
        torture->client[i].stopped_ms = pid ? until : 0;
    }
    if (pid && kill(pid, SIGSTOP) == 0)
        torture->found.stops++;
}

static void kill_somebody(struct torture *torture, enum torture_role role)
{
    switch (role) {
    case TORTURE_WORKER:
        torture_kill_worker(torture, (uint32_t)below(torture, torture->options.workers));
        break;
    case TORTURE_CLIENT:
        torture_kill_client(torture, (uint32_t)below(torture, torture->options.clients),
                            below(torture, 4) != 0);
        break;
    case TORTURE_DAEMON:
        if (below(torture, 4) == 0)
            restart_cleanly(torture);
        else
            torture_kill_daemon(torture);
        break;
    default:
        torture_kill_everything(torture);
    }
}

void torture_strike(struct torture *torture)
{
    /* of a hundred strikes; the roles in their order, what is left stops somebody */
    static const uint32_t share[TORTURE_ROLES] = {36, 28, 8, 4};
    uint64_t draw = below(torture, 100), stopped = below(torture, 8);
    for (enum torture_role role = 0; role < TORTURE_ROLES; role++) {
        if (draw < share[role]) {
            if (torture->options.victims >> role & 1)
                kill_somebody(torture, role);
            return;
        }
        draw -= share[role];
    }
    enum torture_role role = stopped < 4   ? TORTURE_WORKER
                             : stopped < 7 ? TORTURE_CLIENT
                                           : TORTURE_DAEMON;
    if (torture->options.victims >> role & 1)
        stop_somebody(torture, role);
}
