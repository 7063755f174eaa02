/* See daemon.h. Supervision of the pool's processes, and its mailbox. */
#include "tools/daemon.h"

#include <inttypes.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "shm/alive.h"
#include "shm/doorbell.h"
#include "shm/pool.h"
#include "shm/process.h"
#include "tier/nvme.h"
#include "tools/below_dir.h"
#include "tools/below_watch.h"
#include "tools/config_place.h"
#include "tools/gpu_faults.h"
#include "tools/gpu_words.h"
#include "tools/inside_watch.h"
#include "tools/log.h"
#include "tools/mail.h"
#include "tools/pages.h"
#include "tools/pin_watch.h"
#include "tools/placing.h"
#include "tools/plan.h"
#include "tools/warm.h"
#include "tools/worker_main.h"

extern char **environ;

#define TICK_NS        200000000ull  /* longest sleep: a missed bell or signal costs no more */
#define START_TICK_NS  2000000ull    /* while workers are coming up                          */
#define READ_TICK_NS   20000000ull   /* while one reads its directory below                  */
#define BACKOFF_NS     100000000ull  /* before the first restart, doubled up to ...          */
#define BACKOFF_MAX_NS 1000000000ull /* ... this                                             */
#define HEALTHY_NS     5000000000ull /* a worker that lived this long starts anew            */
#define LOOK_NS        2000000000ull /* at the names and sizes of clients' objects           */
#define GRACE_NS       1000000000ull /* beyond the drain limit, before a worker is killed    */
#define OTHERS_NS      2000000000ull /* for workers of before to let go of what is below     */
#define HURRY_NS       200000000ull  /* what is left of that after a second signal           */

struct worker_process {
    bool inside; /* an engine's thread: neither started nor ended from here */
    struct spw_inside_watch watch;
    pid_t pid; /* 0 = none */
    uint64_t passes_before;
    uint64_t incarnation_before;
    uint64_t started_ns;
    uint64_t restart_ns; /* when to start it again */
    uint64_t backoff_ns;
    bool up;
    bool given_up; /* its GPU failed too often */
    struct spw_gpu_faults faults;
    struct spw_below_watch below;
    struct spw_pin_watch pin;
};

struct daemon {
    const struct spw_config *config;
    char *const *argv;
    int values_fd; /* the effective values, for workers */
    int place_fd;  /* where each is, likewise           */
    struct spw_place place;
    bool told_unbound;           /* that threads can't be bound */
    volatile sig_atomic_t *stop; /* signals that asked for an end */
    struct spw_pool pool;
    struct spw_warm_count before; /* what the shards held that this start went on with */
    struct worker_process worker[SPW_WORKERS_MAX];
    uint64_t answered[SPW_CLIENTS_MAX]; /* mailbox seq answered last */
    bool stop_asked;
    bool name_lost; /* the lock object is no longer ours: the pool can't go on */
    const struct spw_pool_config *pool_config;
    uint64_t look_ns; /* at clients' objects next */
    bool unpinned;    /* a worker could not pin, and all had to */
    bool told_copier; /* who copies, as far as it is the same for all */
};

/* ---- workers -------------------------------------------------------------------------------- */

/* The effective values as a file that workers read: what they run with is what this daemon checked
 * and printed, whatever has become of the file or the folder it was started in. -1 = failed. */
static int open_values(const struct spw_config *config)
{
    int fd = memfd_create("spillwayd-config", 0); /* stays open in workers, under this number */
    FILE *out = fd >= 0 ? fdopen(dup(fd), "w") : NULL;
    if (!out)
        return -1;
    spw_config_print(config, out);
    return fclose(out) ? -1 : fd;
}

/* For workers that are threads of engines. */
static int publish_values(const struct daemon *daemon)
{
    struct spw_ctl *ctl = daemon->pool.ctl;
    ssize_t n = pread(daemon->values_fd, ctl->values, sizeof ctl->values, 0);
    if (n > 0 && n < (ssize_t)sizeof ctl->values)
        return 0;
    spw_log(SPW_LOG_ERROR, "the values can't be published: they take more than %u bytes",
            SPW_VALUES_BYTES);
    return -E2BIG;
}

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
static int start_worker(struct daemon *daemon, uint32_t k)
{
    struct worker_process *worker = &daemon->worker[k];
    char which[64], values[48];
    snprintf(which, sizeof which, "%u:%" PRIx64 ":%d", k, daemon->pool.ctl->header.pool_id[0],
             daemon->place_fd);
    snprintf(values, sizeof values, "/proc/self/fd/%d", daemon->values_fd);
    char *argv[] = {daemon->argv[0], (char *)"worker", which, (char *)"--config", values, NULL};
    worker->passes_before = spw_load_relaxed(&daemon->pool.feed[k]->passes);
    worker->incarnation_before = spw_load_acquire(&daemon->pool.feed[k]->incarnation);
    worker->started_ns = spw_monotonic_ns();
    spw_pin_watch_start(&worker->pin);
    spw_below_watch_start(&worker->below, daemon->pool.feed[k], worker->started_ns);
    int status = spawn_blocked(&worker->pid, argv);
    if (status) {
        worker->pid = 0;
        spw_log(SPW_LOG_ERROR, "worker %u: cannot be started: %s", k, strerror(status));
        return -status;
    }
    struct spw_worker_state *state = &daemon->pool.ctl->worker[k];
    /* for display, and for the next daemon (shm/pool_before.c): what is read in between fits no
       process */
    spw_store_relaxed(&state->start_ticks, 0);
    spw_store_relaxed(&state->pid, (uint64_t)worker->pid);
    spw_store_relaxed(&state->start_ticks, spw_process_start_ticks(worker->pid));
    return 0;
}

/* What is true of all workers is said once: that there is no GPU, or that a rate is none of theirs. */
static void tell_copier(struct daemon *daemon, uint32_t k)
{
    const struct spw_config *config = daemon->config;
    const struct spw_feed_head *feed = daemon->pool.feed[k];
    char name[SPW_GPU_NAME_BYTES], text[SPW_GPU_WORDS_BYTES];
    bool first = !daemon->told_copier;
    daemon->told_copier = true;
    /* [GR-1] acquire: the record before its kind */
    if (spw_load_acquire(&feed->gpu.kind) == SPW_COPIER_CUDA) {
        spw_log(SPW_LOG_INFO, "worker %u copies by %s", k, spw_gpu_words_name(feed, k, name));
        if (first && (config->store_rate || config->load_rate))
            spw_log(SPW_LOG_WARNING, "--store-rate and --load-rate pace host copies alone");
    } else if (first && spw_gpu_words_text(feed, text)[0] != '\0') {
        spw_log(SPW_LOG_NOTICE, "%s: the host copies", text);
        if (config->kv_blocks == 0)
            spw_log(SPW_LOG_WARNING, "with --kv-blocks 0 it has nothing to copy from or to");
    }
}

static void tell_unbound(struct daemon *daemon, uint32_t k)
{
    /* relaxed: for display; [GR-1] has been read behind it */
    uint64_t state = spw_load_relaxed(&daemon->pool.feed[k]->gpu.cpu_bind);
    if (state != SPW_BIND_DENIED || daemon->told_unbound)
        return;
    daemon->told_unbound = true;
    spw_log(SPW_LOG_WARNING,
            "placement: worker %u can't be bound to its CPUs: a seccomp profile "
            "denies sched_setaffinity, or they are no longer there; it runs "
            "anywhere",
            k);
}

static void set_up(struct daemon *daemon, uint32_t k, uint64_t incarnation, uint64_t pid)
{
    struct spw_worker_state *state = &daemon->pool.ctl->worker[k];
    spw_store_relaxed(&state->incarnation, incarnation);
    /* [WS-1] release: incarnation before UP; pairs with the client library's look at a step */
    spw_store_release(&state->phase, SPW_WORKER_UP);
    daemon->worker[k].up = true;
    spw_log(SPW_LOG_NOTICE, "worker %u is up, incarnation %" PRIu64 ", pid %" PRIu64 "%s", k,
            incarnation, pid, daemon->worker[k].inside ? ", inside an engine" : "");
    tell_copier(daemon, k);
    tell_unbound(daemon, k);
}

/* A worker is up once it has adopted its shard and gone round its loop. */
static void notice_up(struct daemon *daemon, uint32_t k)
{
    struct worker_process *worker = &daemon->worker[k];
    struct spw_feed_head *feed = daemon->pool.feed[k];
    uint64_t incarnation = spw_load_acquire(&feed->incarnation);
    if (!worker->up && worker->pid && incarnation != worker->incarnation_before &&
        spw_load_relaxed(&feed->passes) != worker->passes_before)
        set_up(daemon, k, incarnation, (uint64_t)worker->pid);
}

/* A worker that is an engine's thread. Its pid is for display: nobody is signalled by it. */
static void notice_inside(struct daemon *daemon, uint32_t k)
{
    struct worker_process *worker = &daemon->worker[k];
    struct spw_worker_state *state = &daemon->pool.ctl->worker[k];
    switch (spw_inside_watch_look(&worker->watch, &daemon->pool, k)) {
    case SPW_INSIDE_CAME:
        spw_pin_watch_start(&worker->pin);
        spw_below_watch_start(&worker->below, daemon->pool.feed[k], spw_monotonic_ns());
        spw_store_relaxed(&state->pid, worker->watch.pid);
        set_up(daemon, k, worker->watch.incarnation, worker->watch.pid);
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

/* The worker has lost its GPU. True: too often, it isn't started any more; others go on. */
static bool give_up(struct daemon *daemon, uint32_t k, uint64_t ran_ns)
{
    struct worker_process *worker = &daemon->worker[k];
    char name[SPW_GPU_NAME_BYTES];
    if (!spw_gpu_faults_add(&worker->faults, ran_ns, daemon->config->gpu_restarts))
        return false;
    worker->given_up = true;
    /* relaxed: for display */
    spw_store_relaxed(&daemon->pool.ctl->worker[k].out_of_service, 1);
    spw_log(SPW_LOG_ERROR, "%s: out of service after %u failures; the others go on",
            spw_gpu_words_name(daemon->pool.feed[k], k, name), worker->faults.count);
    return true;
}

static void worker_ended(struct daemon *daemon, uint32_t k, int status)
{
    struct worker_process *worker = &daemon->worker[k];
    struct spw_worker_state *state = &daemon->pool.ctl->worker[k];
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
        give_up(daemon, k, now - worker->started_ns))
        return;
    if (WIFSIGNALED(status))
        spw_log(SPW_LOG_WARNING, "worker %u was killed by signal %d; next one in %" PRIu64 " ms", k,
                WTERMSIG(status), worker->backoff_ns / 1000000);
    else
        spw_log(SPW_LOG_WARNING, "worker %u ended with status %d; next one in %" PRIu64 " ms", k,
                WEXITSTATUS(status), worker->backoff_ns / 1000000);
}

static void reap(struct daemon *daemon)
{
    for (uint32_t k = 0; k < daemon->pool.geometry.workers; k++) {
        int status;
        pid_t pid = daemon->worker[k].pid;
        if (pid && waitpid(pid, &status, WNOHANG) == pid)
            worker_ended(daemon, k, status);
    }
}

static void restart_due(struct daemon *daemon)
{
    for (uint32_t k = 0; k < daemon->pool.geometry.workers; k++) {
        struct worker_process *worker = &daemon->worker[k];
        if (!worker->pid && !worker->inside && !worker->given_up &&
            spw_monotonic_ns() >= worker->restart_ns && start_worker(daemon, k))
            worker->restart_ns = spw_monotonic_ns() + BACKOFF_MAX_NS;
    }
}

/* True: a worker that is up still reads its directory. */
static bool watch_below(struct daemon *daemon)
{
    uint64_t now = spw_monotonic_ns();
    bool reads = false;
    for (uint32_t k = 0; k < daemon->pool.geometry.workers; k++)
        if (daemon->worker[k].up)
            reads |= spw_below_watch_look(&daemon->worker[k].below, k, daemon->pool.feed[k], now);
    return reads;
}

/* Pinned in all workers or in none: one that could not decides for all. */
static void refused_pinning(struct daemon *daemon, uint32_t k)
{
    struct spw_ctl *ctl = daemon->pool.ctl;
    const struct spw_feed_head *feed = daemon->pool.feed[k];
    char name[SPW_GPU_NAME_BYTES], text[SPW_GPU_WORDS_BYTES];
    spw_gpu_words_name(feed, k, name);
    spw_gpu_words_text(feed, text);
    if (daemon->config->pin == SPW_CONFIG_PIN_STRICT) {
        spw_log(SPW_LOG_ERROR,
                "%s: %s; start with --pin relaxed to go on without, or a longer --pin-limit", name,
                text);
        daemon->unpinned = true;
    } else if (spw_load_relaxed(&ctl->pinning) != SPW_PINNING_OFF) {
        spw_log(SPW_LOG_WARNING, "%s: %s; all workers go on with memory that isn't pinned", name,
                text);
        spw_store_relaxed(&ctl->pinning, SPW_PINNING_OFF); /* workers look now and then */
    }
}

static void watch_pinning(struct daemon *daemon)
{
    uint64_t now = spw_monotonic_ns();
    for (uint32_t k = 0; k < daemon->pool.geometry.workers; k++)
        if (daemon->worker[k].up &&
            spw_pin_watch_look(&daemon->worker[k].pin, k, daemon->pool.feed[k], now))
            refused_pinning(daemon, k);
}

/* Every worker that is started from here is up, or given up. */
static bool all_up(const struct daemon *daemon)
{
    for (uint32_t k = 0; k < daemon->pool.geometry.workers; k++) {
        const struct worker_process *worker = &daemon->worker[k];
        if (!worker->up && !worker->given_up && !worker->inside)
            return false;
    }
    return true;
}

static bool none_left(const struct daemon *daemon)
{
    for (uint32_t k = 0; k < daemon->pool.geometry.workers; k++)
        if (!daemon->worker[k].given_up)
            return false;
    return true;
}

/* ---- mailboxes ------------------------------------------------------------------------------ */

static bool mail_waits(void *ctx)
{
    struct daemon *daemon = ctx;
    for (uint32_t c = 0; c < daemon->pool.geometry.clients; c++)
        if (spw_load_acquire(&daemon->pool.client[c].head->mailbox.seq) != daemon->answered[c])
            return true;
    return *daemon->stop != 0;
}

static void read_mail(struct daemon *daemon)
{
    for (uint32_t c = 0; c < daemon->pool.geometry.clients; c++) {
        /* [MB-1] acquire: the request before its seq */
        uint64_t seq = spw_load_acquire(&daemon->pool.client[c].head->mailbox.seq);
        if (seq == daemon->answered[c])
            continue;
        daemon->stop_asked |= spw_mail_answer(daemon->pool.ctl, &daemon->pool.geometry, c,
                                              daemon->pool.client[c].head, seq);
        daemon->answered[c] = seq;
    }
}

/* A client may write what it likes into its own objects; the others must be able to go on. */
static void mend(struct daemon *daemon)
{
    uint32_t count = spw_pool_mend(&daemon->pool);
    if (count)
        spw_log(SPW_LOG_WARNING, "headers of %u client objects were damaged and are written anew",
                count);
    uint64_t now = spw_monotonic_ns();
    if (now < daemon->look_ns)
        return;
    daemon->look_ns = now + LOOK_NS;
    struct spw_error err = {0};
    int renewed = spw_pool_renew(&daemon->pool, daemon->pool_config, &err);
    daemon->name_lost = renewed == -ESTALE;
    if (renewed > 0)
        spw_log(SPW_LOG_WARNING, "objects of %d clients were cut or removed and are made anew",
                renewed);
    else if (daemon->name_lost)
        spw_log(SPW_LOG_ERROR, "%s", err.text);
    else if (renewed < 0)
        spw_log(SPW_LOG_ERROR, "objects of a client can't be made anew yet: %s", err.text);
}

static void sleep_on_mail(struct daemon *daemon, uint64_t timeout_ns)
{
    struct spw_doorbell bell = {.count = daemon->pool.geometry.clients};
    for (uint32_t c = 0; c < bell.count; c++)
        bell.word[c] = &daemon->pool.client[c].head->mailbox.bell;
    spw_doorbell_sleep(&bell, NULL, timeout_ns, mail_waits, daemon);
}

/* ---- start and stop ------------------------------------------------------------------------- */

/* Ordinals of the workers' driver are by PCI address, as they are counted here. */
static int place_workers(struct daemon *daemon, struct spw_error *err)
{
    int rc = spw_placing_decide(daemon->config, &daemon->place, err);
    if (rc)
        return rc;
    if (!daemon->config->quiet)
        spw_placing_print(&daemon->place, stderr);
    spw_placing_tell(&daemon->place);
    daemon->place_fd = spw_placing_open(&daemon->place);
    if (daemon->place_fd < 0 || setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID", 1))
        return spw_fail(err, -ENOMEM, "no memory file for the workers' places");
    return 0;
}

static int make_pool(struct daemon *daemon, struct spw_pool_config *pool_config,
                     struct spw_error *err)
{
    const struct spw_config *config = daemon->config;
    char words[320];
    struct spw_plan plan;
    spw_plan_pool(config, pool_config);
    spw_plan_bytes(&pool_config->geometry, &plan);
    spw_log(SPW_LOG_INFO,
            "memory: %.1f MB of chunks, %.1f MB of KV blocks, %.1f MB of tables and rings",
            (double)plan.payload_bytes / 1e6, (double)plan.kv_bytes / 1e6,
            (double)plan.control_bytes / 1e6);
    spw_placing_apply(&daemon->place, pool_config);
    pool_config->keep_spaces = spw_warm_keep_spaces;
    pool_config->ctx = &daemon->before;
    int rc = spw_pool_path_init(&pool_config->path, config->shm_dir, config->name,
                                (uint32_t)geteuid(), err);
    if (!rc)
        rc = spw_pool_create(pool_config, &daemon->pool, err);
    if (!rc && daemon->pool.cold_text[0]) {
        spw_plan_cold_words(&daemon->pool, words, sizeof words);
        spw_log(config->cold ? SPW_LOG_NOTICE : SPW_LOG_WARNING,
                "cold start, what was there is not gone on with: %s", words);
    }
    return rc;
}

/* The directory below is one daemon's; the lock goes with the process. One that can't be reached now
 * is the workers' trouble. */
static int lock_below(const struct spw_config *config)
{
    struct spw_error err = {0};
    if (config->nvme_dir[0] == '\0')
        return 0;
    int fd = spw_nvme_lock(config->nvme_dir, SPW_NVME_DAEMON, &err);
    if (fd < 0)
        spw_log(fd == -EBUSY ? SPW_LOG_ERROR : SPW_LOG_WARNING, "%s", err.text);
    return fd == -EBUSY ? fd : 0;
}

/* Workers of a daemon of another pool that may hold its own lock elsewhere, where the directory has
 * been made anew since. Those of a daemon that died just now are gone in a moment. */
static int others_below(const struct spw_config *config)
{
    uint64_t until = spw_monotonic_ns() + OTHERS_NS;
    if (config->nvme_dir[0] == '\0')
        return 0;
    while (spw_nvme_held(config->nvme_dir, true)) {
        if (spw_monotonic_ns() >= until) {
            spw_log(SPW_LOG_ERROR,
                    "%s is in use by another daemon's worker; stop that one, or give each pool a "
                    "directory of its own",
                    config->nvme_dir);
            return -EBUSY;
        }
        usleep(10000);
    }
    return 0;
}

/* Shards of workers that there were once: nobody reads them, nobody makes room there. */
static void tell_of_left_shards(const struct spw_config *config)
{
    uint64_t bytes;
    uint32_t others =
        config->nvme_dir[0] ? spw_below_shards(config->nvme_dir, config->workers, &bytes) : 0;
    if (others)
        spw_log(SPW_LOG_WARNING,
                "%u %s in %s: of workers that this pool hasn't, %.1f MB beyond "
                "--nvme-bytes: remove shard-%" PRIu64
                " and up there, or start with as many --workers again",
                others, others == 1 ? "shard" : "shards", config->nvme_dir, (double)bytes / 1e6,
                config->workers);
}

static void start_workers(struct daemon *daemon)
{
    struct spw_set inside = spw_config_inside(daemon->config);
    for (uint32_t k = 0; k < daemon->pool.geometry.workers; k++) {
        struct worker_process *worker = &daemon->worker[k];
        worker->inside = spw_set_has(&inside, k);
        if (worker->inside)
            spw_inside_watch_start(&worker->watch, daemon->pool.feed[k]);
        else
            start_worker(daemon, k);
    }
}

/* Until when workers may drain; a second signal shortens it. */
struct patience {
    uint64_t since_ns, until_ns;
    sig_atomic_t signals; /* that were there at the beginning */
};

static bool is_over(struct patience *patience, sig_atomic_t signals)
{
    uint64_t now = spw_monotonic_ns();
    if (signals > patience->signals && patience->until_ns > now + HURRY_NS)
        patience->until_ns = now + HURRY_NS;
    return now >= patience->until_ns;
}

/* Likewise for one that is an engine's thread: its engine lives on. */
static int await_inside(struct daemon *daemon, uint32_t k, struct patience *patience)
{
    struct spw_inside_watch *watch = &daemon->worker[k].watch;
    while (watch->up && spw_inside_watch_look(watch, &daemon->pool, k) != SPW_INSIDE_WENT) {
        if (is_over(patience, *daemon->stop)) {
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
static int end_worker(struct daemon *daemon, uint32_t k, struct patience *patience)
{
    pid_t pid = daemon->worker[k].pid;
    int status = 0;
    if (!pid)
        return 0;
    while (waitpid(pid, &status, WNOHANG) == 0) {
        if (!is_over(patience, *daemon->stop)) {
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

/* Workers see CLOSED, drain and leave. */
static int stop_workers(struct daemon *daemon)
{
    struct spw_ctl *ctl = daemon->pool.ctl;
    int result = 0;
    spw_store_release(&ctl->phase, SPW_POOL_CLOSED); /* [PH-1] release: before the bell */
    spw_store_release(&ctl->bell, spw_load_relaxed(&ctl->bell) + 1);
    spw_doorbell_ring(&ctl->bell, NULL);
    struct patience patience = {.since_ns = spw_monotonic_ns(), .signals = *daemon->stop};
    patience.until_ns = patience.since_ns + daemon->config->drain_limit_ns + GRACE_NS;
    for (uint32_t k = 0; k < daemon->pool.geometry.workers; k++) {
        if (daemon->worker[k].inside ? await_inside(daemon, k, &patience)
                                     : end_worker(daemon, k, &patience))
            result = 1;
        daemon->worker[k].pid = 0;
        spw_store_relaxed(&ctl->worker[k].pid, 0); /* the next daemon needn't look for it */
        spw_store_release(&ctl->worker[k].phase, SPW_WORKER_REAPED); /* [WS-1] */
    }
    return result;
}

/* That this daemon lives and goes round, for display. */
static void count_round(struct spw_ctl *ctl)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    spw_store_relaxed(&ctl->updated_ns,
                      (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec);
    spw_add_own(&ctl->rounds, 1);
}

static void become_ready(struct daemon *daemon)
{
    if (daemon->pool.warm)
        spw_warm_report(&daemon->pool, &daemon->before);
    spw_store_release(&daemon->pool.ctl->phase, SPW_POOL_SERVING); /* [PH-1] */
    spw_log(SPW_LOG_NOTICE, "pool \"%s\" is ready", daemon->config->name);
}

static void serve(struct daemon *daemon)
{
    bool ready = false;
    while (!*daemon->stop && !daemon->stop_asked && !daemon->name_lost && !daemon->unpinned &&
           !none_left(daemon)) {
        for (uint32_t k = 0; k < daemon->pool.geometry.workers; k++)
            if (daemon->worker[k].inside)
                notice_inside(daemon, k);
            else
                notice_up(daemon, k);
        if (!ready && all_up(daemon)) {
            become_ready(daemon);
            ready = true;
        }
        read_mail(daemon);
        mend(daemon);
        reap(daemon);
        restart_due(daemon);
        spw_log_tick();
        count_round(daemon->pool.ctl);
        watch_pinning(daemon);
        bool reads = watch_below(daemon);
        sleep_on_mail(daemon, !all_up(daemon) ? START_TICK_NS : reads ? READ_TICK_NS : TICK_NS);
    }
}

int spw_daemon_run(const struct spw_config *config, char *const *argv, volatile sig_atomic_t *stop)
{
    struct daemon *daemon = calloc(1, sizeof *daemon);
    struct spw_pool_config *pool_config = calloc(1, sizeof *pool_config);
    struct spw_error err = {0};
    int result = 1;
    if (!daemon || !pool_config) {
        spw_log(SPW_LOG_ERROR, "out of memory");
        goto out;
    }
    daemon->config = config;
    daemon->argv = argv;
    daemon->stop = stop;
    daemon->pool_config = pool_config;
    daemon->values_fd = open_values(config);
    if (daemon->values_fd < 0) {
        spw_log(SPW_LOG_ERROR, "no memory file for the workers' values: %s", strerror(errno));
        goto out;
    }
    if (place_workers(daemon, &err)) {
        spw_log(SPW_LOG_ERROR, "%s", err.text);
        goto out;
    }
    if (lock_below(config)) /* said why */
        goto out;
    tell_of_left_shards(config);
    if (make_pool(daemon, pool_config, &err)) {
        spw_log(SPW_LOG_ERROR, "%s", err.text);
        goto out;
    }
    if (publish_values(daemon) || others_below(config) || spw_pages_make(config, &daemon->pool) ||
        spw_placing_check(&daemon->place, config, &daemon->pool, spw_bind_where_kernel, NULL)) {
        if (!daemon->pool.warm) /* what was taken over stays, for a start that asks for less */
            spw_pool_unlink(&daemon->pool, NULL);
        spw_pool_detach(&daemon->pool);
        goto out;
    }
    if (config->pin == SPW_CONFIG_PIN_NEVER)
        spw_store_relaxed(&daemon->pool.ctl->pinning, SPW_PINNING_OFF);
    start_workers(daemon);
    serve(daemon);
    spw_log(SPW_LOG_NOTICE, "stopping");
    bool useless = none_left(daemon);
    if (useless)
        spw_log(SPW_LOG_ERROR, "no worker is left");
    result = stop_workers(daemon) || daemon->name_lost || daemon->unpinned || useless;
    if (config->on_stop == SPW_ON_STOP_REMOVE && spw_pool_unlink(&daemon->pool, &err)) {
        spw_log(SPW_LOG_ERROR, "%s", err.text);
        result = 1;
    }
    spw_pool_detach(&daemon->pool);
out:
    free(pool_config);
    free(daemon);
    return result;
}
