/* The processes of a tortured pool; see torture.h. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shm/alive.h"
#include "tests/crash/torture.h"
#include "tier/counters.h"
#include "tools/command.h"

#define NARROW_KEYS 24u
#define SWEEP_BELOW 16u /* what is below takes a read, and takes something else's slot */

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SLOWER 4u
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SLOWER 4u
#endif
#endif
#ifndef SLOWER
#define SLOWER 1u
#endif

/* ---- time ------------------------------------------------------------------------------------ */

/* Design section 11, doubled for a machine that is busy with the pool itself. A worker that died
 * again and again is started after up to a second more. */
uint64_t torture_limit_ms(enum torture_role role)
{
    static const uint64_t limit[TORTURE_ROLES] = {[TORTURE_WORKER] = 3000,
                                                  [TORTURE_CLIENT] = 2000,
                                                  [TORTURE_DAEMON] = 10000,
                                                  [TORTURE_EVERYTHING] = 10000};
    return limit[role] * SLOWER;
}

const char *torture_role_name(enum torture_role role)
{
    static const char *const name[TORTURE_ROLES] = {"worker", "client", "daemon", "everything"};
    return name[role];
}

void torture_recovered(struct torture *torture, enum torture_role role, uint64_t ms)
{
    uint32_t *samples = &torture->found.samples[role];
    if (*samples < TORTURE_SAMPLES_MAX)
        torture->found.sample_ms[role][(*samples)++] = ms;
    if (ms > torture->found.worst_ms[role])
        torture->found.worst_ms[role] = ms;
    if (ms <= torture_limit_ms(role))
        return;
    fprintf(stderr, "torture: SLOW: %s: recovery took %" PRIu64 " ms\n", torture_role_name(role),
            ms);
    torture->found.slow++;
}

/* ---- daemon ---------------------------------------------------------------------------------- */

static bool open_board(struct torture *torture)
{
    snprintf(torture->board_path, sizeof torture->board_path, "%s/.board", torture->pool.dir);
    int fd = open(torture->board_path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    void *at = MAP_FAILED;
    if (fd >= 0 && ftruncate(fd, sizeof(struct torture_board)) == 0)
        at = mmap(NULL, sizeof(struct torture_board), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (fd >= 0)
        close(fd);
    torture->board = at == MAP_FAILED ? NULL : at;
    return torture->board != NULL;
}

int64_t torture_restart_daemon(struct torture *torture)
{
    uint64_t began = proc_now_ms();
    struct spw_pool *old = torture->pool.seen;
    torture->pool.seen = NULL;
    proc_spawn(&torture->pool);
    int rc = proc_await(&torture->pool);
    if (rc) {
        fprintf(stderr, "torture: the next daemon doesn't serve: %d\n", rc);
        torture->found.unexpected++;
        torture->pool.seen = old;
        return -ETIMEDOUT;
    }
    if (old)
        spw_pool_detach(old);
    free(old);
    for (uint32_t k = 0; k < torture->options.workers; k++) {
        torture->worker[k].killed_ms = 0;
        torture->worker[k].stopped_ms = 0;
    }
    return (int64_t)(proc_now_ms() - began);
}

/* ---- clients --------------------------------------------------------------------------------- */

void torture_start_client(struct torture *torture, uint32_t i, const char *crash_point)
{
    struct torture_client *client = &torture->client[i];
    char line[16], seed[24], workers[16];
    snprintf(line, sizeof line, "%u", i);
    snprintf(seed, sizeof seed, "%" PRIu64, torture->options.seed * 1000 + torture->spawned++);
    snprintf(workers, sizeof workers, "%u", torture->options.workers);
    const char *argv[] = {SPW_TORTURE_CLIENT,
                          torture->pool.dir,
                          torture->pool.config.name,
                          torture->board_path,
                          line,
                          seed,
                          workers,
                          crash_point,
                          NULL};
    client->attaches = spw_load_relaxed(&torture->board->line[i].attaches);
    client->stopped_ms = 0;
    client->pid = support_spawn(argv, NULL);
    if (client->pid < 0) {
        fprintf(stderr, "torture: no process: %d\n", (int)client->pid);
        exit(1);
    }
}

void torture_start_clients(struct torture *torture)
{
    for (uint32_t i = 0; i < torture->options.clients; i++)
        if (!torture->client[i].pid)
            torture_start_client(torture, i, NULL);
}

static void look_at_client(struct torture *torture, uint32_t i, uint64_t now)
{
    struct torture_client *client = &torture->client[i];
    const struct torture_line *line = &torture->board->line[i];
    int status;
    if (client->dies)
        return;
    if (client->pid && waitpid(client->pid, &status, WNOHANG) == client->pid) {
        fprintf(stderr, "torture: client %u ended by itself, status %x\n", i, (unsigned)status);
        torture->found.unexpected++;
        client->pid = 0;
        torture_start_client(torture, i, NULL);
    }
    if (client->killed_ms && spw_load_relaxed(&line->attaches) != client->attaches) {
        uint64_t attached = spw_load_relaxed(&line->attached_ns) / 1000000;
        if (attached >= client->killed_ms)
            torture_recovered(torture, TORTURE_CLIENT, attached - client->killed_ms);
        client->killed_ms = 0;
    }
    if (client->stopped_ms && now >= client->stopped_ms) {
        kill(client->pid, SIGCONT);
        client->stopped_ms = 0;
    }
}

/* ---- workers --------------------------------------------------------------------------------- */

pid_t torture_worker_pid(const struct torture *torture, uint32_t k)
{
    const struct spw_pool *seen = torture->pool.seen;
    pid_t pid = (pid_t)spw_load_relaxed(&seen->ctl->worker[k].pid);
    return spw_lock_held(seen->lock_fd, SPW_LOCK_WORKER(k)) == 1 ? pid : 0;
}

static void look_at_worker(struct torture *torture, uint32_t k, uint64_t now)
{
    struct torture_worker *worker = &torture->worker[k];
    const struct spw_worker_state *state = &torture->pool.seen->ctl->worker[k];
    if (worker->dies)
        return;
    if (worker->stopped_ms && now >= worker->stopped_ms) {
        kill((pid_t)spw_load_relaxed(&state->pid), SIGCONT);
        worker->stopped_ms = 0;
    }
    if (worker->killed_ms && spw_load_acquire(&state->phase) == SPW_WORKER_UP &&
        spw_load_relaxed(&state->incarnation) != worker->incarnation) {
        torture_recovered(torture, TORTURE_WORKER,
                          now > worker->killed_ms ? now - worker->killed_ms : 0);
        worker->killed_ms = 0;
        torture_compare(torture, k, 0);
    } else if (!worker->killed_ms && !worker->stopped_ms) {
        torture_compare(torture, k, 0);
    }
}

/* ---- everybody ------------------------------------------------------------------------------- */

/* Nobody was restarted while it was stopped. */
static void continue_daemon(struct torture *torture, uint64_t now)
{
    kill(torture->pool.daemon, SIGCONT);
    torture->daemon_stopped_ms = 0;
    for (uint32_t k = 0; k < torture->options.workers; k++)
        if (torture->worker[k].killed_ms)
            torture->worker[k].killed_ms = now;
    for (uint32_t i = 0; i < torture->options.clients; i++)
        if (torture->client[i].killed_ms)
            torture->client[i].killed_ms = now;
}

void torture_tick(struct torture *torture)
{
    uint64_t now = proc_now_ms();
    if (torture->daemon_stopped_ms && now >= torture->daemon_stopped_ms)
        continue_daemon(torture, now);
    for (uint32_t k = 0; k < torture->options.workers; k++)
        look_at_worker(torture, k, now);
    for (uint32_t i = 0; i < torture->options.clients; i++)
        look_at_client(torture, i, now);
}

void torture_continue(struct torture *torture)
{
    if (torture->daemon_stopped_ms)
        torture->daemon_stopped_ms = 1;
    for (uint32_t k = 0; k < torture->options.workers; k++)
        if (torture->worker[k].stopped_ms)
            torture->worker[k].stopped_ms = 1;
    for (uint32_t i = 0; i < torture->options.clients; i++)
        if (torture->client[i].stopped_ms)
            torture->client[i].stopped_ms = 1;
    torture_tick(torture);
}

/* Small enough that chunks go from there, too. */
static bool add_below(struct torture *torture, struct proc_config *config)
{
    if (support_shm_dir(torture->below) < 0)
        return false;
    const char *more[] = {"--nvme-dir",
                          torture->below,
                          "--nvme-bytes",
                          "8MiB",
                          "--nvme-promote-share",
                          "75",
                          "--nvme-promote-hold",
                          "200ms",
                          "--io-quarantine",
                          "500ms",
                          NULL};
    memcpy(config->more + 2, more, sizeof more);
    return true;
}

bool torture_open(struct torture *torture, const struct torture_options *options)
{
    memset(torture, 0, sizeof *torture);
    torture->options = *options;
    torture->seed = options->seed;
    struct proc_config config = {
        .workers = options->workers,
        .capacity = options->slots,
        .chunk_bytes = TORTURE_CHUNK_BYTES,
        .clients = options->clients + 3, /* a sweep, the tools, one that dies as another attaches */
        .store_rate = "1MB/s",
        .run_limit = "500ms",
        .on_stop = "keep",
        .update_records = 64,
        .lane_slots = 32,
        .more = {"--fence-limit", options->seed % 2 ? "200ms" : "1h", NULL}};
    if (options->below && !add_below(torture, &config))
        return false;
    proc_open(&torture->pool, &config);
    setenv("SPW_CRASH_WORKERS", torture->pool.dir, 1);
    proc_spawn(&torture->pool);
    if (proc_await(&torture->pool) || !open_board(torture))
        return false;
    spw_store_relaxed(&torture->board->keys, NARROW_KEYS);
    spw_store_relaxed(&torture->board->one_in, options->below ? SWEEP_BELOW : 1);
    for (uint32_t k = 0; k < options->workers; k++)
        torture_look(torture, k);
    torture_start_clients(torture);
    return true;
}

static void end_clients(struct torture *torture)
{
    spw_store_relaxed(&torture->board->quit, 1);
    for (uint32_t i = 0; i < torture->options.clients; i++) {
        int status =
            torture->client[i].pid ? support_wait(torture->client[i].pid, PROC_LIMIT_MS) : 0;
        if (status == 0)
            continue;
        fprintf(stderr, "torture: client %u ended with %d\n", i, status);
        torture->found.unexpected++;
    }
}

/* Was the tier below used, and is what was read there what was written? */
static void look_below(struct torture *torture)
{
    uint64_t corrupt = 0;
    for (uint32_t k = 0; k < torture->options.workers; k++) {
        torture->found.promoted += proc_count(&torture->pool, k, SPW_WORKER_promoted);
        corrupt += proc_count(&torture->pool, k, SPW_WORKER_cold_corrupt);
    }
    if (!torture->options.below || (torture->found.promoted && !corrupt))
        return;
    fprintf(stderr, "torture: below: %" PRIu64 " chunks came up, %" PRIu64 " were corrupt\n",
            torture->found.promoted, corrupt);
    torture->found.unexpected++;
}

void torture_stop_daemon(struct torture *torture)
{
    int status = proc_stop(&torture->pool, SIGTERM);
    if (status == 0)
        return;
    fprintf(stderr, "torture: the daemon ended with %d\n", status);
    torture->found.unexpected++;
}

/* What is kept is whole, and can be removed. */
static void remove_pool(struct torture *torture)
{
    static char out[8192];
    int whole = proc_spillway(&torture->pool, "fsck", false, out, sizeof out);
    if (whole == SPW_EXIT_DAMAGED)
        fprintf(stderr, "torture: fsck: %s\n", out);
    const char *rm[] = {SPW_PROC_SPILLWAY, "rm", torture->pool.config.name, "--shm-dir",
                        torture->pool.dir, NULL};
    int removed = proc_run(rm, out, sizeof out, PROC_LIMIT_MS);
    uint32_t files = proc_files(&torture->pool);
    if (removed != 0 || files != 0)
        fprintf(stderr, "torture: rm ended with %d and left %u files: %s\n", removed, files, out);
    torture->found.unexpected += (whole == SPW_EXIT_DAMAGED) + (removed != 0 || files != 0);
}

void torture_close(struct torture *torture)
{
    torture_continue(torture);
    end_clients(torture);
    look_below(torture);
    torture_stop_daemon(torture);
    remove_pool(torture);
    proc_close(&torture->pool);
}
