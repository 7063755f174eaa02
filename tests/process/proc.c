/* See proc.h. */
#include "tests/process/proc.h"

#include "shm/alive.h"
#include "tier/counters.h"
#include "tier/layout.h"

#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define ARGS_MAX    64
#define SPAWNED_MAX 128

static void need(bool holds, const char *words)
{
    if (holds)
        return;
    fprintf(stderr, "this machine doesn't let the test begin: %s\n", words);
    abort();
}

uint64_t proc_now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

bool proc_eventually(bool (*holds)(void *ctx), void *ctx, int limit_ms)
{
    uint64_t until = proc_now_ms() + (uint64_t)limit_ms;
    while (!holds(ctx)) {
        if (proc_now_ms() >= until)
            return false;
        usleep(1000);
    }
    return true;
}

/* ---- daemon ---------------------------------------------------------------------------------- */

static const char *or_text(const char *text, const char *standard)
{
    return text ? text : standard;
}

static uint32_t or_number(uint32_t number, uint32_t standard)
{
    return number ? number : standard;
}

void proc_open(struct proc_pool *pool, const struct proc_config *config)
{
    memset(pool, 0, sizeof *pool);
    pool->config = *config;
    pool->config.name = or_text(config->name, "pool");
    need(support_shm_dir(pool->dir) == 0, "no folder for shared memory");
}

/* Daemons that a failed test leaves: ended before the folder goes, or they'd make objects in it. */
static pid_t spawned[SPAWNED_MAX];
static int spawned_count;
static pid_t spawned_by;

static void end_spawned(void)
{
    siginfo_t info;
    for (int i = 0; spawned_by == getpid() && i < spawned_count; i++)
        if (waitid(P_PID, (id_t)spawned[i], &info, WEXITED | WNOHANG | WNOWAIT) == 0)
            support_kill(spawned[i]); /* still a child of ours */
}

static void remember(pid_t pid)
{
    if (spawned_by != getpid()) {
        spawned_by = getpid();
        spawned_count = 0;
        atexit(end_spawned); /* behind support_shm_dir's, so it runs before that */
    }
    if (spawned_count < SPAWNED_MAX)
        spawned[spawned_count++] = pid;
}

static void stop_listening(struct proc_pool *pool)
{
    if (pool->words_fd)
        close(pool->words_fd);
    pool->words_fd = 0;
    pool->words[0] = 0;
}

/* Read once what is said until then: false if that is nothing. */
static bool hear_more(struct proc_pool *pool, uint64_t until_ms)
{
    struct pollfd look = {.fd = pool->words_fd, .events = POLLIN};
    size_t length = strlen(pool->words);
    uint64_t now = proc_now_ms();
    need(pool->words_fd != 0, "nobody listens");
    need(length + 1 < sizeof pool->words, "more is said than there is room for");
    if (poll(&look, 1, now < until_ms ? (int)(until_ms - now) : 0) <= 0)
        return false;
    ssize_t got = read(look.fd, pool->words + length, sizeof pool->words - 1 - length);
    if (got <= 0)
        return false;
    pool->words[length + (size_t)got] = 0;
    return true;
}

bool proc_said(struct proc_pool *pool, const char *words)
{
    uint64_t until = proc_now_ms() + 1000;
    while (!strstr(pool->words, words))
        if (!hear_more(pool, until))
            return false;
    return true;
}

uint32_t proc_said_count(struct proc_pool *pool, const char *words)
{
    uint32_t count = 0;
    while (hear_more(pool, 0))
        ;
    for (const char *at = pool->words; (at = strstr(at, words)); at++)
        count++;
    return count;
}

/* The last of its processes closes its end. */
static void hear_the_rest(struct proc_pool *pool)
{
    uint64_t until = proc_now_ms() + 1000;
    while (pool->words_fd && hear_more(pool, until))
        ;
}

void proc_spawn(struct proc_pool *pool)
{
    const struct proc_config *config = &pool->config;
    char workers[16], capacity[16], chunk[16], clients[16], blocks[16], records[16], lane[16];
    snprintf(workers, sizeof workers, "%u", or_number(config->workers, 1));
    snprintf(capacity, sizeof capacity, "%u", or_number(config->capacity, 64));
    snprintf(chunk, sizeof chunk, "%u", or_number(config->chunk_bytes, 1024));
    snprintf(clients, sizeof clients, "%u", or_number(config->clients, 8));
    snprintf(blocks, sizeof blocks, "%u", or_number(config->kv_blocks, 256));
    snprintf(records, sizeof records, "%u", or_number(config->update_records, 1024));
    snprintf(lane, sizeof lane, "%u", or_number(config->lane_slots, 256));
    const char *argv[ARGS_MAX] = {SPW_PROC_SPILLWAYD,
                                  "--name",
                                  config->name,
                                  "--shm-dir",
                                  pool->dir,
                                  "--workers",
                                  workers,
                                  "--capacity-chunks",
                                  capacity,
                                  "--chunk-bytes",
                                  chunk,
                                  "--max-clients",
                                  clients,
                                  "--kv-blocks",
                                  blocks,
                                  "--store-rate",
                                  or_text(config->store_rate, "0"),
                                  "--load-rate",
                                  or_text(config->load_rate, "0"),
                                  "--run-limit",
                                  or_text(config->run_limit, "10s"),
                                  "--on-stop",
                                  or_text(config->on_stop, "remove"),
                                  "--update-ring-records",
                                  records,
                                  "--command-ring-slots",
                                  lane,
                                  "--completion-ring-slots",
                                  lane,
                                  "--orphan",
                                  "1s",
                                  config->listen ? NULL : "--quiet"};
    const char *whole[ARGS_MAX] = {config->group ? "setsid" : NULL};
    static const char *const joined[] = {"sh", "-c", "exec \"$0\" \"$@\" 2>&1"};
    size_t n = config->group;
    for (size_t i = 0; config->listen && i < 3; i++)
        whole[n++] = joined[i];
    for (size_t i = 0; argv[i]; i++)
        whole[n++] = argv[i];
    for (size_t i = 0; i < PROC_EXTRA && config->more[i]; i++)
        whole[n++] = config->more[i];
    stop_listening(pool);
    pool->daemon = support_spawn(whole, config->listen ? &pool->words_fd : NULL);
    need(pool->daemon > 0, "no process");
    remember(pool->daemon);
}

static bool ended(pid_t pid)
{
    siginfo_t info = {0};
    return waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) < 0 || info.si_pid == pid;
}

static struct spw_pool_path path_of(const struct proc_pool *pool)
{
    struct spw_pool_path path;
    struct spw_error err;
    need(spw_pool_path_init(&path, pool->dir, pool->config.name, (uint32_t)geteuid(), &err) == 0,
         "a pool's name");
    return path;
}

/* A new daemon holds the lock a moment before it closes what a dead one left: look whose it is. */
static int attach_new(const struct proc_pool *pool, enum spw_pool_role role, struct spw_pool *out)
{
    struct spw_pool_path path = path_of(pool);
    struct spw_error err;
    int rc = spw_pool_attach(&path, role, SPW_CLIENTS_MAX, out, &err);
    if (rc == 0 && spw_load_relaxed(&out->ctl->daemon_pid) != (uint64_t)pool->daemon) {
        spw_pool_detach(out);
        rc = -EAGAIN;
    }
    return rc;
}

static void look_away(struct proc_pool *pool)
{
    if (pool->seen)
        spw_pool_detach(pool->seen);
    free(pool->seen);
    pool->seen = NULL;
}

int proc_await(struct proc_pool *pool)
{
    uint64_t until = proc_now_ms() + PROC_LIMIT_MS;
    struct spw_pool *probe = calloc(1, sizeof *probe);
    need(probe, "no memory");
    int rc;
    while ((rc = attach_new(pool, SPW_ROLE_CLIENT, probe)) < 0) {
        if (ended(pool->daemon)) {
            rc = 1000 + support_wait(pool->daemon, PROC_LIMIT_MS);
            pool->daemon = 0;
            break;
        }
        if (proc_now_ms() >= until)
            break;
        usleep(1000);
    }
    if (rc == 0) {
        spw_pool_detach(probe);
        rc = attach_new(pool, SPW_ROLE_TOOL, probe);
    }
    if (rc == 0)
        pool->seen = probe;
    else
        free(probe);
    return rc < 0 ? -ETIMEDOUT : rc;
}

bool proc_start(struct proc_pool *pool, const struct proc_config *config)
{
    proc_open(pool, config);
    proc_spawn(pool);
    int rc = proc_await(pool);
    if (rc)
        fprintf(stderr, "the pool doesn't serve: %d\n", rc);
    return rc == 0;
}

int proc_stop(struct proc_pool *pool, int signal)
{
    kill(pool->daemon, signal);
    int status = support_wait(pool->daemon, PROC_LIMIT_MS);
    pool->daemon = 0;
    hear_the_rest(pool);
    look_away(pool);
    return status;
}

void proc_kill_daemon(struct proc_pool *pool)
{
    support_kill(pool->daemon);
    pool->daemon = 0;
}

void proc_kill_all(struct proc_pool *pool)
{
    uint64_t until = proc_now_ms() + PROC_LIMIT_MS;
    uint32_t workers = pool->seen->geometry.workers;
    kill(pool->daemon, SIGSTOP); /* it would start a new one for the first that is killed */
    for (uint32_t k = 0; k < workers; k++)
        proc_signal_worker(pool, k, SIGKILL);
    proc_kill_daemon(pool);
    for (uint32_t k = 0; k < workers; k++)
        while (spw_lock_held(pool->seen->lock_fd, SPW_LOCK_WORKER(k)) && proc_now_ms() < until)
            usleep(1000);
    look_away(pool);
}

void proc_close(struct proc_pool *pool)
{
    pid_t worker[SPW_WORKERS_MAX] = {0};
    for (uint32_t k = 0; pool->seen && k < pool->seen->geometry.workers; k++)
        worker[k] = (pid_t)spw_load_relaxed(&pool->seen->ctl->worker[k].pid);
    if (pool->daemon > 0)
        support_kill(pool->daemon);
    /* orphans by now, if they live: only the pool's own lock tells that a pid is still theirs */
    for (uint32_t k = 0; pool->seen && k < pool->seen->geometry.workers; k++)
        if (worker[k] > 0 && spw_lock_held(pool->seen->lock_fd, SPW_LOCK_WORKER(k)) == 1)
            kill(worker[k], SIGKILL);
    look_away(pool);
    stop_listening(pool);
    support_remove_dir(pool->dir);
}

/* ---- workers --------------------------------------------------------------------------------- */

void proc_signal_worker(const struct proc_pool *pool, uint32_t k, int signal)
{
    kill((pid_t)spw_load_relaxed(&pool->seen->ctl->worker[k].pid), signal);
}

uint64_t proc_incarnation(const struct proc_pool *pool, uint32_t k)
{
    return spw_load_relaxed(&pool->seen->ctl->worker[k].incarnation);
}

bool proc_await_successor(const struct proc_pool *pool, uint32_t k, uint64_t before)
{
    const struct spw_worker_state *state = &pool->seen->ctl->worker[k];
    for (uint64_t until = proc_now_ms() + PROC_LIMIT_MS; proc_now_ms() < until; usleep(1000))
        if (spw_load_acquire(&state->phase) == SPW_WORKER_UP &&
            spw_load_relaxed(&state->incarnation) != before)
            return true;
    return false;
}

uint32_t proc_entries(const struct proc_pool *pool, uint32_t k, uint32_t state)
{
    const struct spw_entry *entry = spw_pool_feed_at(pool->seen, k, pool->seen->feed_map.entry_off);
    uint32_t count = 0;
    for (uint32_t slot = 0; slot < pool->seen->geometry.slots; slot++)
        count += SPW_PACKED_STATE(spw_load_relaxed(&entry[slot].packed)) == state;
    return count;
}

uint32_t proc_claims(const struct proc_pool *pool)
{
    const struct spw_geometry *geometry = &pool->seen->geometry;
    uint64_t words = spw_claim_words(geometry) * geometry->workers;
    uint32_t count = 0;
    for (uint32_t k = 0; k < geometry->workers; k++) {
        const spw_atomic64 *bits =
            spw_pool_feed_at(pool->seen, k, pool->seen->feed_map.copying_off);
        for (uint64_t w = 0; w < words; w++)
            count += (uint32_t)__builtin_popcountll(spw_load_relaxed(&bits[w]));
    }
    return count;
}

uint64_t proc_count(const struct proc_pool *pool, uint32_t k, uint32_t counter)
{
    return spw_load_relaxed(&pool->seen->feed[k]->counter[counter]);
}

bool proc_settled_below(void *pool)
{
    static const enum spw_worker_counter ends[] = {
        SPW_WORKER_cold_written,      SPW_WORKER_cold_dropped_queue, SPW_WORKER_cold_dropped_budget,
        SPW_WORKER_cold_dropped_full, SPW_WORKER_cold_dropped_share, SPW_WORKER_cold_dropped_down,
        SPW_WORKER_cold_dropped_gone, SPW_WORKER_cold_write_failed};
    uint64_t ended = 0;
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++)
        ended += proc_count(pool, 0, ends[i]);
    return ended >= proc_count(pool, 0, SPW_WORKER_cold_wanted);
}

/* ---- other programs -------------------------------------------------------------------------- */

/* Read @fd to its end; false: the limit came first. */
static bool read_all(int fd, char *out, size_t bytes, uint64_t until)
{
    size_t length = 0;
    char rest[256];
    for (;;) {
        uint64_t now = proc_now_ms();
        struct pollfd look = {.fd = fd, .events = POLLIN};
        if (now >= until || poll(&look, 1, (int)(until - now)) <= 0)
            return false;
        bool room = length + 1 < bytes;
        ssize_t n = read(fd, room ? out + length : rest, room ? bytes - 1 - length : sizeof rest);
        if (n <= 0)
            return n == 0;
        length += room ? (size_t)n : 0;
        out[length] = 0;
    }
}

int proc_run(const char *const argv[], char *out, size_t bytes, int timeout_ms)
{
    const char *args[ARGS_MAX] = {"sh", "-c", "exec \"$0\" \"$@\" 2>&1"};
    uint64_t until = proc_now_ms() + (uint64_t)timeout_ms;
    int fd = -1;
    for (size_t i = 0; argv[i] && i + 4 < ARGS_MAX; i++)
        args[i + 3] = argv[i];
    out[0] = 0;
    pid_t pid = support_spawn(args, &fd);
    if (pid < 0)
        return pid;
    bool whole = read_all(fd, out, bytes, until);
    close(fd);
    return support_wait(pid, whole ? PROC_LIMIT_MS : 0);
}

int proc_spillway(const struct proc_pool *pool, const char *command, bool json, char *out,
                  size_t bytes)
{
    const char *argv[] = {SPW_PROC_SPILLWAY,      command,     "--pool",
                          pool->config.name,      "--shm-dir", pool->dir,
                          json ? "--json" : NULL, NULL};
    return proc_run(argv, out, bytes, PROC_LIMIT_MS);
}

static void peer_args(const struct proc_pool *pool, const char *const args[], const char **argv)
{
    size_t n = 0;
    argv[n++] = SPW_PROC_PEER;
    argv[n++] = pool->dir;
    argv[n++] = pool->config.name;
    while (*args && n + 1 < ARGS_MAX)
        argv[n++] = *args++;
    argv[n] = NULL;
}

pid_t proc_peer(const struct proc_pool *pool, int *out_fd, const char *const args[])
{
    const char *argv[ARGS_MAX];
    peer_args(pool, args, argv);
    return support_spawn(argv, out_fd);
}

int proc_peer_run(const struct proc_pool *pool, const char *const args[], char *out, size_t bytes)
{
    const char *argv[ARGS_MAX];
    peer_args(pool, args, argv);
    return proc_run(argv, out, bytes, 2 * PROC_LIMIT_MS);
}

/* ---- the machine ----------------------------------------------------------------------------- */

uint32_t proc_files(const struct proc_pool *pool)
{
    uint32_t count = 0;
    DIR *dir = opendir(pool->dir);
    need(dir, "the pool's folder is gone");
    for (struct dirent *entry; (entry = readdir(dir));)
        count += entry->d_name[0] != '.';
    closedir(dir);
    return count;
}

bool proc_reads_line(int fd, const char *want)
{
    char line[256] = "";
    int n = support_read_line(fd, line, sizeof line, PROC_LIMIT_MS);
    if (n >= 0 && strcmp(line, want) == 0)
        return true;
    fprintf(stderr, "read %d \"%s\", wanted \"%s\"\n", n, line, want);
    return false;
}

static bool read_file(pid_t pid, const char *what, char *out, size_t bytes)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, what);
    FILE *file = fopen(path, "r");
    size_t n = file ? fread(out, 1, bytes - 1, file) : 0;
    if (file)
        fclose(file);
    out[n] = 0;
    return n > 0;
}

uint64_t proc_cpu_ms(pid_t pid)
{
    char text[1024];
    unsigned long user = 0, system = 0;
    need(read_file(pid, "stat", text, sizeof text), "no /proc/PID/stat");
    char *name_end = strrchr(text, ')');
    need(name_end && sscanf(name_end + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu",
                            &user, &system) == 2,
         "/proc/PID/stat reads differently");
    return (user + system) * 1000 / (unsigned long)sysconf(_SC_CLK_TCK);
}

uint64_t proc_rss_kib(pid_t pid)
{
    char text[256];
    unsigned long pages = 0;
    need(read_file(pid, "statm", text, sizeof text) && sscanf(text, "%*u %lu", &pages) == 1,
         "no /proc/PID/statm");
    return pages * (unsigned long)sysconf(_SC_PAGESIZE) / 1024;
}
