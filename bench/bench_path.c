/*
 * End to end: a real daemon with its worker processes, and this process as a client. From a reserve
 * to the HIT, from a HIT to loaded bytes, and what a pool that has nothing to do costs.
 */
#include <fcntl.h>
#include <linux/futex.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "bench/bench.h"
#include "bench/keeper.h"
#include "bench/pair.h"
#include "sched/spillway.h"
#include "shm/pool.h"

#define CHUNK_BYTES 4096u
#define LIMIT_NS    10000000000u

extern char **environ;

struct path {
    pid_t daemon;
    struct spw_client *client;
    struct spw_space *space;
    uint8_t *kv;
    uint64_t next;
};

/* ---- the pool -------------------------------------------------------------------------------- */

/* Next to this program in the build's folder: ../tools/spillwayd. */
static int daemon_path(char *out, size_t bytes)
{
    ssize_t n = readlink("/proc/self/exe", out, bytes - 1);
    if (n <= 0)
        return -ENOENT;
    out[n] = '\0';
    for (int up = 0; up < 2; up++) {
        char *slash = strrchr(out, '/');
        if (!slash)
            return -ENOENT;
        *slash = '\0';
    }
    size_t at = strlen(out);
    int want = snprintf(out + at, bytes - at, "/tools/spillwayd");
    return (size_t)want < bytes - at && access(out, X_OK) == 0 ? 0 : -ENOENT;
}

/* On the second CPU where there is one, so that it does not share the client's. */
static int start_daemon(struct path *path)
{
    char exe[4096];
    int rc = daemon_path(exe, sizeof exe);
    if (rc < 0) {
        fprintf(stderr, "spw-bench: path: tools/spillwayd is not built beside this program\n");
        return rc;
    }
    char *argv[] = {exe,
                    (char *)"--name=bench",
                    (char *)"--shm-dir",
                    (char *)(uintptr_t)spw_keeper_dir(),
                    (char *)"--workers=2",
                    (char *)"--capacity-chunks=1024",
                    (char *)"--chunk-bytes=4KiB",
                    (char *)"--kv-blocks=16",
                    (char *)"--max-clients=4",
                    (char *)"--on-stop=remove",
                    (char *)"--quiet",
                    NULL};
    bool two = spw_bench_pin(1);
    rc = -posix_spawn(&path->daemon, exe, NULL, NULL, argv, environ);
    if (two)
        spw_bench_pin(0);
    return rc;
}

static int attach(struct path *path)
{
    struct spw_attach_options options = {.size_bytes = sizeof options,
                                         .numa_node = -1,
                                         .pool = "bench",
                                         .shm_dir = spw_keeper_dir(),
                                         .label = "spw-bench",
                                         .uid = -1};
    char text[256] = "";
    int rc;
    uint64_t start = spw_bench_now_ns();
    do {
        rc = spw_attach(&options, &path->client, text, sizeof text);
        if (rc < 0)
            usleep(2000);
    } while ((rc == -ENOENT || rc == -EAGAIN || rc == -EOWNERDEAD) &&
             spw_bench_now_ns() - start < LIMIT_NS);
    if (rc < 0)
        fprintf(stderr, "spw-bench: path: %s (%d)\n", text, rc);
    return rc;
}

static int open_path(struct path *path)
{
    static const uint32_t worker = 0;
    const struct spw_group_config group = {
        .kind = SPW_GROUP_FULL, .block_tokens = 16, .chunk_bytes = CHUNK_BYTES};
    const struct spw_space_config space = {.size_bytes = sizeof space,
                                           .blocks_per_chunk = 1,
                                           .hash_unit_tokens = 16,
                                           .groups = 1,
                                           .group = &group,
                                           .ranks = 1,
                                           .rank_worker = &worker,
                                           .fingerprint = "bench, path"};
    void *start = NULL;
    int rc = start_daemon(path);
    if (rc == 0)
        rc = attach(path);
    if (rc == 0)
        rc = spw_space_open(path->client, &space, &path->space, NULL, 0);
    if (rc == 0)
        rc = spw_kv_blocks(path->client, &start, NULL, NULL);
    path->kv = start;
    return rc;
}

static int close_path(struct path *path)
{
    int status = 0;
    spw_detach(path->client);
    if (path->daemon <= 0)
        return 0;
    kill(path->daemon, SIGTERM);
    waitpid(path->daemon, &status, 0);
    return status == 0 ? 0 : -ECHILD;
}

/* ---- store and load -------------------------------------------------------------------------- */

static int await(struct path *path, uint32_t kind, struct spw_completion *out)
{
    uint64_t start = spw_bench_now_ns();
    do {
        int n = spw_completions(path->client, out, 1);
        if (n != 0)
            return n < 0 ? n : out->kind == kind && out->status == 0 ? 0 : -EBADMSG;
    } while (spw_bench_now_ns() - start < LIMIT_NS);
    return -ETIMEDOUT;
}

static int await_hit(struct path *path, struct spw_request *request)
{
    uint64_t start = spw_bench_now_ns();
    do {
        uint8_t verdict = SPW_MISS;
        int rc = spw_step_begin(path->client);
        if (rc >= 0)
            rc = spw_request_probe(request, 0, 0, 1, &verdict);
        if (rc >= 0)
            rc = spw_step_end(path->client);
        if (rc < 0 || verdict == SPW_HIT)
            return rc;
    } while (spw_bench_now_ns() - start < LIMIT_NS);
    return -ETIMEDOUT;
}

/* Reserve, run, completed, seen as HIT by the next step. */
static int store(struct path *path, struct spw_request *request)
{
    const struct spw_chunk_ref ref = {0};
    const uint32_t block = 0;
    struct spw_completion done;
    int rc = spw_store_reserve(request, 0, &ref, 1, 1);
    if (rc >= 0)
        rc = await(path, SPW_COMPLETION_RESERVED, &done);
    if (rc == 0)
        rc = spw_run(path->client, &done.ticket, &block, 1, 2);
    if (rc == 0)
        rc = await(path, SPW_COMPLETION_STORED, &done);
    return rc < 0 ? rc : await_hit(path, request);
}

/* A step with its decision, begin, run, completed. */
static int load(struct path *path, struct spw_request *request)
{
    struct spw_decision decision = {.size_bytes = sizeof decision};
    const struct spw_chunk_ref ref = {0};
    const uint32_t block = 1;
    struct spw_completion done;
    int rc = spw_step_begin(path->client);
    if (rc >= 0)
        rc = spw_lookup(request, 0, 0, &decision);
    if (rc >= 0)
        rc = spw_load_begin(request, &decision, 0, &ref, 1, 3);
    spw_step_end(path->client);
    if (rc >= 0)
        rc = await(path, SPW_COMPLETION_BEGUN, &done);
    if (rc == 0)
        rc = spw_run(path->client, &done.ticket, &block, 1, 4);
    return rc < 0 ? rc : await(path, SPW_COMPLETION_LOADED, &done);
}

static int sample_path(struct path *path, struct spw_bench_series *stored,
                       struct spw_bench_series *loaded)
{
    const struct spw_request_config config = {.size_bytes = sizeof config, .prompt_tokens = 16};
    const struct timespec pause = {.tv_nsec = 1000000}; /* the worker is asleep by then */
    struct spw_request *request = NULL;
    uint64_t key = ++path->next;
    memset(path->kv, (int)(key & 0xff), CHUNK_BYTES);
    memset(path->kv + CHUNK_BYTES, 0, CHUNK_BYTES);
    int rc = spw_request_open(path->space, &config, &request);
    if (rc == 0)
        rc = spw_request_extend(request, 0, &key, sizeof key, 1);
    nanosleep(&pause, NULL);
    uint64_t begin = spw_bench_now_ns();
    if (rc == 0)
        rc = store(path, request);
    spw_bench_add(stored, (double)(spw_bench_now_ns() - begin));
    nanosleep(&pause, NULL);
    begin = spw_bench_now_ns();
    if (rc == 0)
        rc = load(path, request);
    spw_bench_add(loaded, (double)(spw_bench_now_ns() - begin));
    spw_request_finish(request);
    if (rc == 0 && memcmp(path->kv, path->kv + CHUNK_BYTES, CHUNK_BYTES) != 0)
        rc = -EBADMSG;
    return rc;
}

/* ---- a bare wake-up -------------------------------------------------------------------------- */

struct waker {
    spw_atomic32 asked;
    spw_atomic32 answered;
    uint32_t rounds;
};

static void futex(spw_atomic32 *word, int op, uint32_t value)
{
    syscall(SYS_futex, word, op, value, NULL, NULL, 0);
}

static void answer_wakes(void *ctx)
{
    struct waker *waker = ctx;
    for (uint32_t i = 1; i <= waker->rounds; i++) {
        while (spw_load_acquire(&waker->asked) != i)
            futex(&waker->asked, FUTEX_WAIT_PRIVATE, i - 1);
        spw_store_release(&waker->answered, i);
    }
}

/* A thread woken from its futex, and its answer seen: what any sleeping worker costs. */
static int bare_wakes(struct spw_bench_series *series, uint32_t rounds)
{
    static struct waker waker;
    struct spw_bench_partner partner;
    const struct timespec pause = {.tv_nsec = 1000000};
    waker.rounds = rounds;
    spw_store_relaxed(&waker.asked, 0); /* both before the partner starts */
    spw_store_relaxed(&waker.answered, 0);
    int rc = spw_bench_partner_start(&partner, answer_wakes, &waker);
    if (rc < 0)
        return rc == -ENODEV ? 0 : rc;
    for (uint32_t i = 1; i <= rounds; i++) {
        nanosleep(&pause, NULL);
        uint64_t begin = spw_bench_now_ns();
        spw_store_release(&waker.asked, i);
        futex(&waker.asked, FUTEX_WAKE_PRIVATE, 1);
        while (spw_load_acquire(&waker.answered) != i)
            ;
        spw_bench_add(series, (double)(spw_bench_now_ns() - begin));
    }
    spw_bench_partner_join(&partner);
    return 0;
}

static int bench_jobs(struct spw_bench_run *run, struct path *path)
{
    static struct spw_bench_series stored, loaded, wakes;
    uint32_t rounds = (uint32_t)spw_bench_size(run, 500, 5);
    stored.count = loaded.count = wakes.count = 0;
    int rc = 0;
    for (uint32_t warm = 0; rc == 0 && warm < 3; warm++)
        rc = sample_path(path, &stored, &loaded);
    stored.count = loaded.count = 0;
    for (uint32_t i = 0; rc == 0 && i < rounds; i++)
        rc = sample_path(path, &stored, &loaded);
    if (rc == 0)
        rc = bare_wakes(&wakes, rounds);
    if (rc < 0)
        return rc;
    struct spw_bench_line line = {"path", "store_to_hit", "ns", &stored, NULL, NULL};
    if (wakes.count) {
        line.against = "a bare futex wake, answered";
        line.theirs = &wakes;
    }
    spw_bench_report(run, &line);
    line.name = "hit_to_loaded";
    line.ours = &loaded;
    spw_bench_report(run, &line);
    return 0;
}

/* ---- idle ------------------------------------------------------------------------------------ */

/* Nanoseconds that a process has run; 0 where the kernel does not tell. */
static uint64_t cpu_ns_of(uint64_t pid)
{
    char name[64], text[128] = "";
    snprintf(name, sizeof name, "/proc/%llu/schedstat", (unsigned long long)pid);
    int fd = open(name, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    return n > 0 ? strtoull(text, NULL, 10) : 0;
}

/* Daemon, workers and this client together. */
static uint64_t cpu_ns_of_all(const struct spw_pool *pool)
{
    uint64_t ns =
        cpu_ns_of((uint64_t)getpid()) + cpu_ns_of(spw_load_relaxed(&pool->ctl->daemon_pid));
    for (uint32_t k = 0; k < pool->geometry.workers; k++)
        ns += cpu_ns_of(spw_load_relaxed(&pool->ctl->worker[k].pid));
    return ns;
}

static int bench_idle(struct spw_bench_run *run)
{
    static struct spw_bench_series share;
    static struct spw_pool pool;
    struct spw_pool_path path;
    uint64_t sample_ns = spw_bench_size(run, 1000000000u, 100000000u);
    const struct timespec pause = {.tv_sec = (time_t)(sample_ns / 1000000000u),
                                   .tv_nsec = (long)(sample_ns % 1000000000u)};
    int rc = spw_pool_path_init(&path, spw_keeper_dir(), "bench", (uint32_t)geteuid(), NULL);
    if (rc == 0)
        rc = spw_pool_attach(&path, SPW_ROLE_TOOL, 0, &pool, NULL);
    if (rc < 0)
        return rc;
    share.count = 0;
    nanosleep(&pause, NULL);
    for (uint64_t i = 0; i < spw_bench_size(run, 5, 2); i++) {
        uint64_t ran = cpu_ns_of_all(&pool), begin = spw_bench_now_ns();
        nanosleep(&pause, NULL);
        ran = cpu_ns_of_all(&pool) - ran;
        spw_bench_add(&share, 100.0 * (double)ran / (double)(spw_bench_now_ns() - begin));
    }
    spw_pool_detach(&pool);
    spw_bench_report(
        run, &(struct spw_bench_line){"idle", "pool_2_workers", "percent", &share, NULL, NULL});
    return 0;
}

int spw_bench_path(struct spw_bench_run *run)
{
    struct path path = {0};
    bool jobs = spw_bench_wants(run, "path", "store_to_hit") ||
                spw_bench_wants(run, "path", "hit_to_loaded");
    bool idle = spw_bench_wants(run, "idle", "pool_2_workers");
    if (!jobs && !idle)
        return 0;
    int rc = open_path(&path);
    if (rc == 0 && jobs)
        rc = bench_jobs(run, &path);
    if (rc == 0 && idle)
        rc = bench_idle(run);
    int closed = close_path(&path);
    rc = rc < 0 ? rc : closed;
    if (rc < 0)
        fprintf(stderr, "spw-bench: path: failed (%d)\n", rc);
    return rc;
}
