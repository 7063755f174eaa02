/* See workers.h. */
#include "tools/workers.h"

#include <inttypes.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shm/doorbell.h"
#include "shm/process.h"
#include "tools/config_place.h"
#include "tools/gpu_words.h"
#include "tools/log.h"
#include "tools/worker_main.h"

extern char **environ;

#define BACKOFF_NS     100000000ull  /* before the first restart, doubled up to ...       */
#define BACKOFF_MAX_NS 1000000000ull /* ... this                                          */
#define HEALTHY_NS     5000000000ull /* a worker that lived this long starts anew         */
#define GRACE_NS       1000000000ull /* beyond the drain limit, before a worker is killed */
#define HURRY_NS       200000000ull  /* what is left of that after a second signal        */

/* Signals of the terminal or a container's end may come before the worker can handle them: it
 * takes them up when it does (handle_signals() in spillwayd.c). */
static int spawn_blocked(pid_t *pid, char *const argv[])
{
    posix_spawnattr_t attributes;
    sigset_t blocked;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGINT);
    sigaddset(&blocked, SIGTERM);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setsigmask(&attributes, &blocked);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
    int status = posix_spawn(pid, "/proc/self/exe", NULL, &attributes, argv, environ);
    posix_spawnattr_destroy(&attributes);
    return status;
}

/* "K:ID:FD": a worker joins the pool of this daemon, not one that took its name meanwhile. */
static int start_worker(struct spw_workers *workers, uint32_t k)
{
    struct spw_worker_process *worker = &workers->worker[k];
    char which[64], values[48];
    snprintf(which, sizeof which, "%u:%" PRIx64 ":%d", k, workers->pool->ctl->header.pool_id[0],
             workers->place_fd);
    snprintf(values, sizeof values, "/proc/self/fd/%d", workers->values_fd);
    char *argv[] = {workers->argv[0], (char *)"worker", which, (char *)"--config", values, NULL};
    worker->passes_before = spw_load_relaxed(&workers->pool->feed[k]->passes);
    worker->incarnation_before = spw_load_acquire(&workers->pool->feed[k]->incarnation);
    worker->started_ns = spw_monotonic_ns();
    spw_pin_watch_start(&worker->pin);
    spw_below_watch_start(&worker->below, workers->pool->feed[k], worker->started_ns);
    int status = spawn_blocked(&worker->pid, argv);
    if (status) {
        worker->pid = 0;
        spw_log(SPW_LOG_ERROR, "worker %u: cannot be started: %s", k, strerror(status));
        return -status;
    }
    struct spw_worker_state *state = &workers->pool->ctl->worker[k];
    /* for display, and for the next daemon (shm/pool_before.c): what is read in between fits no
       process */
    spw_store_relaxed(&state->start_ticks, 0);
    spw_store_relaxed(&state->pid, (uint64_t)worker->pid);
    spw_store_relaxed(&state->start_ticks, spw_process_start_ticks(worker->pid));
    return 0;
}

/* ---- up ----------------------------------------------------------------------------------------- */

/* What is true of all workers is said once: that there is no GPU, or that a rate is none of theirs. */
static void tell_copier(struct spw_workers *workers, uint32_t k)
{
    const struct spw_config *config = workers->config;
    const struct spw_feed_head *feed = workers->pool->feed[k];
    char name[SPW_GPU_NAME_BYTES], text[SPW_GPU_WORDS_BYTES];
    bool first = !workers->told_copier;
    workers->told_copier = true;
    /* [GR-1] acquire: the record before its kind */
    if (spw_load_acquire(&feed->gpu.kind) == SPW_COPIER_CUDA) {
        spw_log(SPW_LOG_INFO, "%s copies", spw_gpu_words_name(feed, k, name));
        if (first && (config->store_rate || config->load_rate))
            spw_log(SPW_LOG_WARNING, "--store-rate and --load-rate pace host copies alone");
    } else if (first && spw_gpu_words_text(feed, text)[0] != '\0') {
        spw_log(SPW_LOG_NOTICE, "%s: the host copies", text);
        if (config->kv_blocks == 0)
            spw_log(SPW_LOG_WARNING, "with --kv-blocks 0 it has nothing to copy from or to");
    }
}

static void set_up(struct spw_workers *workers, uint32_t k, uint64_t incarnation, uint64_t pid)
{
    struct spw_worker_state *state = &workers->pool->ctl->worker[k];
    spw_store_relaxed(&state->incarnation, incarnation);
    /* [WS-1] release: incarnation before UP; pairs with the client library's look at a step */
    spw_store_release(&state->phase, SPW_WORKER_UP);
    workers->worker[k].up = true;
    spw_log(SPW_LOG_NOTICE, "worker %u is up, incarnation %" PRIu64 ", pid %" PRIu64 "%s", k,
            incarnation, pid, workers->worker[k].inside ? ", inside an engine" : "");
    tell_copier(workers, k);
    spw_place_watch_up(&workers->place_watch, workers->place, k, workers->pool->feed[k]);
}

/* A worker is up once it has adopted its shard and gone round its loop. */
static void notice_up(struct spw_workers *workers, uint32_t k)
{
    struct spw_worker_process *worker = &workers->worker[k];
    struct spw_feed_head *feed = workers->pool->feed[k];
    uint64_t incarnation = spw_load_acquire(&feed->incarnation);
    if (!worker->up && worker->pid && incarnation != worker->incarnation_before &&
        spw_load_relaxed(&feed->passes) != worker->passes_before)
        set_up(workers, k, incarnation, (uint64_t)worker->pid);
}

/* A worker that is an engine's thread. Its pid is for display: nobody is signalled by it. */
static void notice_inside(struct spw_workers *workers, uint32_t k)
{
    struct spw_worker_process *worker = &workers->worker[k];
    struct spw_worker_state *state = &workers->pool->ctl->worker[k];
    switch (spw_inside_watch_look(&worker->watch, workers->pool, k)) {
    case SPW_INSIDE_CAME:
        spw_pin_watch_start(&worker->pin);
        spw_below_watch_start(&worker->below, workers->pool->feed[k], spw_monotonic_ns());
        spw_store_relaxed(&state->pid, worker->watch.pid);
        set_up(workers, k, worker->watch.incarnation, worker->watch.pid);
        break;
    case SPW_INSIDE_REMAINS:
        worker->up = false;
        /* [WS-1] release: as below; down, and not REAPED as long as its copies may run */
        spw_store_release(&state->phase, SPW_WORKER_DOWN);
        spw_log(SPW_LOG_WARNING,
                "worker %u, inside pid %" PRIu64
                ", has ended but for copies or I/O that didn't: its "
                "shard is down until that process ends",
                k, worker->watch.pid);
        break;
    case SPW_INSIDE_WENT:
        worker->up = false;
        spw_store_relaxed(&state->pid, 0);
        spw_add_own(&state->restarts, 1);
        /* [WS-1] release: whoever sees REAPED knows that no copy of it runs */
        spw_store_release(&state->phase, SPW_WORKER_REAPED);
        spw_log(SPW_LOG_NOTICE, "worker %u has gone, which was inside pid %" PRIu64, k,
                worker->watch.pid);
        break;
    case SPW_INSIDE_SAME:
        break;
    }
}

/* ---- down --------------------------------------------------------------------------------------- */

/* The worker has lost its GPU. True: too often, it isn't started any more; others go on. */
static bool give_up(struct spw_workers *workers, uint32_t k, uint64_t ran_ns)
{
    struct spw_worker_process *worker = &workers->worker[k];
    char name[SPW_GPU_NAME_BYTES];
    if (!spw_gpu_faults_add(&worker->faults, ran_ns, workers->config->gpu_restarts))
        return false;
    worker->given_up = true;
    /* relaxed: for display */
    spw_store_relaxed(&workers->pool->ctl->worker[k].out_of_service, 1);
    spw_log(SPW_LOG_ERROR, "%s: out of service after %u failures; workers that are left go on",
            spw_gpu_words_name(workers->pool->feed[k], k, name), worker->faults.count);
    return true;
}

static void worker_ended(struct spw_workers *workers, uint32_t k, int status)
{
    struct spw_worker_process *worker = &workers->worker[k];
    struct spw_worker_state *state = &workers->pool->ctl->worker[k];
    uint64_t now = spw_monotonic_ns();
    /* [WS-1] release: whoever sees REAPED knows that the process is gone */
    spw_store_release(&state->phase, SPW_WORKER_REAPED);
    spw_add_own(&state->restarts, 1);
    worker->pid = 0;
    worker->up = false;
    if (!worker->backoff_ns || now - worker->started_ns > HEALTHY_NS)
        worker->backoff_ns = BACKOFF_NS;
    else if (worker->backoff_ns <= BACKOFF_MAX_NS / 2)
        worker->backoff_ns *= 2;
    else
        worker->backoff_ns = BACKOFF_MAX_NS;
    worker->restart_ns = now + worker->backoff_ns;
    if (WIFEXITED(status) && WEXITSTATUS(status) == SPW_EXIT_GPU_LOST &&
        give_up(workers, k, now - worker->started_ns))
        return;
    if (WIFSIGNALED(status))
        spw_log(SPW_LOG_WARNING, "worker %u was killed by signal %d; next one in %" PRIu64 " ms", k,
                WTERMSIG(status), worker->backoff_ns / 1000000);
    else
        spw_log(SPW_LOG_WARNING, "worker %u ended with status %d; next one in %" PRIu64 " ms", k,
                WEXITSTATUS(status), worker->backoff_ns / 1000000);
}

static void reap(struct spw_workers *workers)
{
    for (uint32_t k = 0; k < workers->pool->geometry.workers; k++) {
        int status;
        pid_t pid = workers->worker[k].pid;
        if (pid && waitpid(pid, &status, WNOHANG) == pid)
            worker_ended(workers, k, status);
    }
}

static void restart_due(struct spw_workers *workers)
{
    for (uint32_t k = 0; k < workers->pool->geometry.workers; k++) {
        struct spw_worker_process *worker = &workers->worker[k];
        if (!worker->pid && !worker->inside && !worker->given_up &&
            spw_monotonic_ns() >= worker->restart_ns && start_worker(workers, k))
            worker->restart_ns = spw_monotonic_ns() + BACKOFF_MAX_NS;
    }
}

/* ---- what they are at --------------------------------------------------------------------------- */

/* True: a worker that is up still reads its directory. */
static bool watch_below(struct spw_workers *workers)
{
    uint64_t now = spw_monotonic_ns();
    bool reads = false;
    for (uint32_t k = 0; k < workers->pool->geometry.workers; k++)
        if (workers->worker[k].up)
            reads |=
                spw_below_watch_look(&workers->worker[k].below, k, workers->pool->feed[k], now);
    return reads;
}

static void watch_pinning(struct spw_workers *workers)
{
    for (uint32_t k = 0; k < workers->pool->geometry.workers; k++)
        if (workers->worker[k].up &&
            spw_pin_watch_look(&workers->worker[k].pin, k, workers->pool, workers->config->pin))
            workers->denied = true;
}

/* Once a worker, however often it is started. */
static void watch_trials(struct spw_workers *workers)
{
    char name[SPW_GPU_NAME_BYTES], text[SPW_GPU_WORDS_BYTES];
    for (uint32_t k = 0; k < workers->pool->geometry.workers; k++) {
        struct spw_worker_process *worker = &workers->worker[k];
        const struct spw_feed_head *feed = workers->pool->feed[k];
        if (!worker->up || worker->told_failed || spw_gpu_words_failed(feed, text)[0] == '\0')
            continue;
        worker->told_failed = true;
        spw_log(SPW_LOG_WARNING, "%s: %s", spw_gpu_words_name(feed, k, name), text);
    }
}

static void watch_places(struct spw_workers *workers)
{
    for (uint32_t k = 0; k < workers->pool->geometry.workers; k++)
        if (workers->worker[k].up &&
            spw_place_watch_look(&workers->place_watch, workers->config, workers->place, k,
                                 workers->pool->feed[k]))
            workers->denied = true;
}

bool spw_workers_up(const struct spw_workers *workers)
{
    for (uint32_t k = 0; k < workers->pool->geometry.workers; k++) {
        const struct spw_worker_process *worker = &workers->worker[k];
        if (!worker->up && !worker->given_up && !worker->inside)
            return false;
    }
    return true;
}

bool spw_workers_none_left(const struct spw_workers *workers)
{
    for (uint32_t k = 0; k < workers->pool->geometry.workers; k++)
        if (!workers->worker[k].given_up)
            return false;
    return true;
}

void spw_workers_start(struct spw_workers *workers)
{
    struct spw_set inside = spw_config_inside(workers->config);
    for (uint32_t k = 0; k < workers->pool->geometry.workers; k++) {
        struct spw_worker_process *worker = &workers->worker[k];
        worker->inside = spw_set_has(&inside, k);
        if (worker->inside)
            spw_inside_watch_start(&worker->watch, workers->pool->feed[k]);
        else
            start_worker(workers, k);
    }
}

void spw_workers_notice(struct spw_workers *workers)
{
    for (uint32_t k = 0; k < workers->pool->geometry.workers; k++)
        if (workers->worker[k].inside)
            notice_inside(workers, k);
        else
            notice_up(workers, k);
}

bool spw_workers_tend(struct spw_workers *workers)
{
    reap(workers);
    restart_due(workers);
    watch_pinning(workers);
    watch_places(workers);
    watch_trials(workers);
    return watch_below(workers);
}

/* ---- the end ------------------------------------------------------------------------------------ */

/* Until when workers may drain; a second signal shortens it. */
struct patience {
    uint64_t since_ns, until_ns;
    uint32_t signals; /* that were there at the beginning */
};

static bool is_over(struct patience *patience, uint32_t signals)
{
    uint64_t now = spw_monotonic_ns();
    if (signals > patience->signals && patience->until_ns > now + HURRY_NS)
        patience->until_ns = now + HURRY_NS;
    return now >= patience->until_ns;
}

/* Likewise for one that is an engine's thread: its engine lives on. */
static int await_inside(struct spw_workers *workers, uint32_t k, struct patience *patience)
{
    struct spw_inside_watch *watch = &workers->worker[k].watch;
    while (watch->up && spw_inside_watch_look(watch, workers->pool, k) != SPW_INSIDE_WENT) {
        if (is_over(patience, spw_load_relaxed(workers->stop))) {
            spw_log(SPW_LOG_ERROR,
                    "worker %u, inside pid %" PRIu64 ", didn't leave; end its engine", k,
                    watch->pid);
            return 1;
        }
        usleep(1000);
    }
    return 0;
}

/* Wait for a worker that was told to leave; one that doesn't in time is killed, and named. */
static int end_worker(struct spw_workers *workers, uint32_t k, struct patience *patience)
{
    pid_t pid = workers->worker[k].pid;
    int status = 0;
    if (!pid)
        return 0;
    while (waitpid(pid, &status, WNOHANG) == 0) {
        if (!is_over(patience, spw_load_relaxed(workers->stop))) {
            usleep(1000);
            continue;
        }
        spw_log(SPW_LOG_ERROR, "worker %u (pid %d) was stuck after %" PRIu64 " ms and is killed", k,
                pid, (spw_monotonic_ns() - patience->since_ns) / 1000000);
        kill(pid, SIGKILL);
        waitpid(pid, &status, 0);
        return 1;
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return 0;
    spw_log(SPW_LOG_ERROR, "worker %u (pid %d) ended badly: %s %d", k, pid,
            WIFSIGNALED(status) ? "signal" : "status",
            WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    return 1;
}

/* They see CLOSED, drain and leave. */
int spw_workers_stop(struct spw_workers *workers)
{
    struct spw_ctl *ctl = workers->pool->ctl;
    int result = 0;
    spw_store_release(&ctl->phase, SPW_POOL_CLOSED); /* [PH-1] release: before the bell */
    spw_store_release(&ctl->bell, spw_load_relaxed(&ctl->bell) + 1);
    spw_doorbell_ring(&ctl->bell, NULL);
    struct patience patience = {.since_ns = spw_monotonic_ns(),
                                .signals = spw_load_relaxed(workers->stop)};
    patience.until_ns = patience.since_ns + workers->config->drain_limit_ns + GRACE_NS;
    for (uint32_t k = 0; k < workers->pool->geometry.workers; k++) {
        int rc = workers->worker[k].inside ? await_inside(workers, k, &patience)
                                           : end_worker(workers, k, &patience);
        result |= rc;
        if (rc && workers->worker[k].inside)
            continue; /* it may still copy: not REAPED, and the next daemon looks for it */
        workers->worker[k].pid = 0;
        spw_store_relaxed(&ctl->worker[k].pid, 0); /* the next daemon needn't look for it */
        spw_store_release(&ctl->worker[k].phase, SPW_WORKER_REAPED); /* [WS-1] */
    }
    return result;
}
