/*
 * spillway replay, the parent: starts a pool and engines, gives them one start, gathers what they
 * send, prints the report. It never touches the pool's data path; its death ends its children.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shm/alive.h"
#include "tier/counters.h"
#include "tools/below_dir.h"
#include "tools/command.h"
#include "tools/replay.h"
#include "tools/replay_report.h"

extern char **environ;

#define CONTROL_FD     3
#define RESULT_FD      4
#define START_DELAY_NS 50000000u
#define READY_POLL_MS  100

#define OVERTAKE_LIMIT_MIN_NS 1e6
#define QUEUE_CHUNKS          "1048576"
#define KV_BLOCKS             "16384"
#define RING_SLOTS            "4096" /* more than an engine has jobs: its store backlog stops nothing */

struct engine_process {
    pid_t pid;
    int control_fd; /* ours, write end */
    int result_fd;  /* ours, read end  */
};

struct replay {
    const struct spw_replay_options *options;
    uint32_t policy; /* the one that is run */
    bool failed;
    int argc;
    char *const *argv;
    char pool[SPW_POOL_NAME_BYTES + 1];
    pid_t daemon;
    struct engine_process engine[SPW_CLIENTS_MAX];
    uint32_t engines;
};

/* ---- processes ------------------------------------------------------------------------------ */

/* Internal command: become argv[1..], and die with the parent. */
int spw_cmd_replay_exec(int argc, char *const *argv)
{
    (void)argc;
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    execv(argv[1], argv + 1);
    fprintf(stderr, "spillway replay: %s cannot be started: %s\n", argv[1], strerror(errno));
    return SPW_EXIT_FAILED;
}

/* Internal command: engine argv[1] of pool argv[2] under policy argv[3], options from there on. */
int spw_cmd_replay_engine(int argc, char *const *argv)
{
    struct spw_replay_options options;
    char words[512];
    if (argc < 5 || spw_replay_options_read(argc - 3, argv + 3, &options, words, sizeof words) < 0)
        return SPW_EXIT_USAGE;
    uint32_t e = (uint32_t)strtoul(argv[1], NULL, 10);
    uint32_t policy = (uint32_t)strtoul(argv[3], NULL, 10);
    if (policy >= options.policy_count)
        return SPW_EXIT_USAGE;
    return spw_replay_engine(&options, &options.policies[policy], e, argv[2], CONTROL_FD,
                             RESULT_FD);
}

static void program_beside(char *out, size_t bytes, const char *name)
{
    ssize_t n = readlink("/proc/self/exe", out, bytes - 1);
    out[n > 0 ? n : 0] = 0;
    char *slash = strrchr(out, '/');
    size_t at = slash ? (size_t)(slash + 1 - out) : 0;
    snprintf(out + at, bytes - at, "%s", name);
}

/* In clock time, as far as a pool can be told. */
static double overtake_limit_ns(const struct spw_replay_options *options)
{
    double ns = (double)options->overtake_limit_ns / options->speed;
    return ns > OVERTAKE_LIMIT_MIN_NS ? ns : OVERTAKE_LIMIT_MIN_NS;
}

/* On disk each worker may take what its chunks need, and as much again for what is half full. */
static uint64_t nvme_bytes(const struct spw_replay_options *options)
{
    uint64_t cell = spw_align_up(options->payload_bytes, 4096) + 4096;
    return options->workers * (2 * options->nvme_chunks * cell + (64ull << 20));
}

static int start_daemon(struct replay *replay)
{
    const struct spw_replay_options *options = replay->options;
    char program[1024], workers[24], capacity[24], bytes[24], store[32], load[32], clients[24],
        limit[32], nvme[32], nvme_chunks[32];
    program_beside(program, sizeof program, "spillwayd");
    snprintf(workers, sizeof workers, "%" PRIu64, options->workers);
    snprintf(capacity, sizeof capacity, "%" PRIu64, options->capacity_chunks);
    snprintf(bytes, sizeof bytes, "%" PRIu64, options->payload_bytes);
    snprintf(store, sizeof store, "%.0f", (double)options->store_rate * options->speed);
    snprintf(load, sizeof load, "%.0f", (double)options->load_rate * options->speed);
    snprintf(limit, sizeof limit, "%.0fns", overtake_limit_ns(options));
    snprintf(clients, sizeof clients, "%" PRIu64, options->schedulers + 1);
    snprintf(nvme, sizeof nvme, "%" PRIu64, nvme_bytes(options));
    snprintf(nvme_chunks, sizeof nvme_chunks, "%" PRIu64, options->nvme_chunks);
    char *argv[] = {
        (char *)"spillway", (char *)"replay-exec", program, (char *)"--name", replay->pool,
        (char *)"--shm-dir", (char *)options->shm_dir, (char *)"--workers", workers,
        (char *)"--capacity-chunks", capacity, (char *)"--chunk-bytes", bytes,
        (char *)"--store-rate", store, (char *)"--load-rate", load, (char *)"--overtake-limit",
        limit, (char *)"--max-clients", clients, (char *)"--kv-blocks", (char *)KV_BLOCKS,
        (char *)"--queue-chunks", (char *)QUEUE_CHUNKS, (char *)"--command-ring-slots",
        (char *)RING_SLOTS, (char *)"--completion-ring-slots", (char *)RING_SLOTS,
        (char *)"--on-stop", (char *)"remove", (char *)"--evict",
        (char *)spw_replay_evictions[options->eviction], (char *)"--quiet",
        /* left out without a directory */
        (char *)"--nvme-dir", (char *)options->nvme_dir, (char *)"--nvme-bytes", nvme,
        (char *)"--nvme-chunks", nvme_chunks, (char *)"--nvme-queue", (char *)QUEUE_CHUNKS, NULL};
    if (!options->nvme_dir[0])
        argv[sizeof argv / sizeof argv[0] - 9] = NULL;
    int status = posix_spawn(&replay->daemon, "/proc/self/exe", NULL, NULL, argv, environ);
    if (status)
        fprintf(stderr, "spillway replay: the pool cannot be started: %s\n", strerror(status));
    return -status;
}

static int start_engine(struct replay *replay, uint32_t e)
{
    struct engine_process *engine = &replay->engine[e];
    int control[2], result[2];
    char number[16], policy[16];
    if (pipe2(control, O_CLOEXEC))
        return -errno;
    if (pipe2(result, O_CLOEXEC)) {
        close(control[0]);
        close(control[1]);
        return -ENFILE;
    }
    char **argv = calloc((size_t)replay->argc + 5, sizeof *argv);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    /* high numbers first: the pipes' own may be 3 and 4 */
    posix_spawn_file_actions_adddup2(&actions, control[0], 100);
    posix_spawn_file_actions_adddup2(&actions, result[1], 101);
    posix_spawn_file_actions_adddup2(&actions, 100, CONTROL_FD);
    posix_spawn_file_actions_adddup2(&actions, 101, RESULT_FD);
    posix_spawn_file_actions_addclose(&actions, 100);
    posix_spawn_file_actions_addclose(&actions, 101);
    int status = argv ? 0 : ENOMEM;
    if (argv) {
        snprintf(number, sizeof number, "%u", e);
        argv[0] = (char *)"spillway";
        argv[1] = (char *)"replay-engine";
        argv[2] = number;
        argv[3] = replay->pool;
        snprintf(policy, sizeof policy, "%u", replay->policy);
        argv[4] = policy;
        /* behind the command's own name */
        memcpy(argv + 5, replay->argv + 1, (size_t)(replay->argc - 1) * sizeof *argv);
        status = posix_spawn(&engine->pid, "/proc/self/exe", &actions, NULL, argv, environ);
    }
    posix_spawn_file_actions_destroy(&actions);
    free(argv);
    close(control[0]);
    close(result[1]);
    engine->control_fd = control[1];
    engine->result_fd = result[0];
    replay->engines = e + 1;
    if (status)
        fprintf(stderr, "spillway replay: engine %u cannot be started: %s\n", e, strerror(status));
    return -status;
}

static bool daemon_ended(struct replay *replay)
{
    if (replay->daemon && waitpid(replay->daemon, NULL, WNOHANG) == replay->daemon)
        replay->daemon = 0;
    return replay->daemon == 0;
}

/* Wait for an engine's "ready"; a pool that could not be made ends the wait at once. */
static int await_ready(struct replay *replay, struct engine_process *engine)
{
    struct pollfd look = {.fd = engine->result_fd, .events = POLLIN};
    char ready;
    while (poll(&look, 1, READY_POLL_MS) == 0)
        if (daemon_ended(replay))
            return -EOWNERDEAD;
    return read(engine->result_fd, &ready, 1) == 1 && ready == 'r' ? 0 : -EPIPE;
}

static int start_all(struct replay *replay)
{
    int status = start_daemon(replay);
    for (uint32_t e = 0; !status && e < replay->options->schedulers; e++)
        status = start_engine(replay, e);
    for (uint32_t e = 0; !status && e < replay->engines; e++)
        status = await_ready(replay, &replay->engine[e]);
    uint64_t start_ns = spw_monotonic_ns() + START_DELAY_NS;
    for (uint32_t e = 0; !status && e < replay->engines; e++)
        if (write(replay->engine[e].control_fd, &start_ns, sizeof start_ns) != sizeof start_ns)
            status = -EPIPE;
    return status;
}

/* ---- results -------------------------------------------------------------------------------- */

/* What the workers did, read from the pool while it still stands. */
static int read_workers(const struct replay *replay, struct spw_replay_workers *out)
{
    struct spw_pool_path path;
    struct spw_error err = {0};
    struct spw_pool *pool = calloc(1, sizeof *pool);
    if (!pool)
        return -ENOMEM;
    int status = spw_pool_path_init(&path, replay->options->shm_dir, replay->pool,
                                    (uint32_t)geteuid(), &err);
    if (!status)
        status = spw_pool_attach(&path, SPW_ROLE_TOOL, 0, pool, &err);
    for (uint32_t k = 0; !status && k < pool->geometry.workers; k++) {
        const struct spw_feed_head *feed = pool->feed[k];
        out->bytes_done += spw_load_relaxed(&feed->stream.bytes_done);
        out->busy_ns += spw_load_relaxed(&feed->counter[SPW_WORKER_store_busy_ns]);
        out->awaited_stores += spw_load_relaxed(&feed->counter[SPW_WORKER_awaited_stored]);
        out->overtaking_stores += spw_load_relaxed(&feed->counter[SPW_WORKER_overtaken]);
        out->from_below += spw_load_relaxed(&feed->counter[SPW_WORKER_promoted]) -
                           spw_load_relaxed(&feed->counter[SPW_WORKER_promote_unread]);
        out->restarts += spw_load_relaxed(&pool->ctl->worker[k].restarts);
    }
    if (status)
        fprintf(stderr, "spillway replay: %s\n", err.text);
    spw_pool_detach(pool);
    free(pool);
    return status;
}

static int gather(struct replay *replay, struct spw_replay_result *result)
{
    int status = 0;
    for (uint32_t e = 0; e < replay->engines; e++) {
        int received = spw_replay_result_receive(replay->engine[e].result_fd, result);
        if (received && !status) {
            fprintf(stderr, "spillway replay: engine %u ended without a result\n", e);
            status = received;
        }
    }
    return status;
}

static void end_all(struct replay *replay, bool failed)
{
    for (uint32_t e = 0; e < replay->engines; e++) {
        struct engine_process *engine = &replay->engine[e];
        close(engine->control_fd);
        close(engine->result_fd);
        if (failed && engine->pid)
            kill(engine->pid, SIGKILL);
        if (engine->pid)
            waitpid(engine->pid, NULL, 0);
    }
    if (!daemon_ended(replay)) {
        kill(replay->daemon, SIGTERM);
        waitpid(replay->daemon, NULL, 0);
        replay->daemon = 0;
    }
    replay->engines = 0;
}

static const char *name_of(const struct spw_replay_options *options, uint32_t policy)
{
    return options->cache_only ? spw_replay_evictions[options->eviction]
                               : options->policies[policy].name;
}

/* One policy through a pool of its own. */
static int run_through_pool(struct replay *replay, struct spw_report *out_report)
{
    const struct spw_replay_options *options = replay->options;
    struct spw_replay_result result = {0};
    struct spw_replay_workers workers = {0};
    int status = start_all(replay);
    if (!status)
        status = gather(replay, &result);
    if (!status)
        status = read_workers(replay, &workers);
    end_all(replay, status != 0);
    if (status)
        fprintf(stderr, "spillway replay: failed: %s\n",
                status == -EOWNERDEAD ? "the pool's daemon or a worker ended" : strerror(-status));
    else if (!spw_replay_report(options, name_of(options, replay->policy), &result, &workers,
                                out_report))
        replay->failed = true;
    spw_replay_result_fini(&result);
    return status;
}

static int run_simulated(const struct spw_replay_options *options, const struct spw_trace *trace,
                         uint32_t policy, struct spw_report *out_report)
{
    int status = spw_replay_simulate(options, &options->policies[policy], trace, out_report);
    if (status && status != -ERANGE) /* that one was told */
        fprintf(stderr, "spillway replay: failed: %s\n", strerror(-status));
    return status;
}

static int run_all(struct replay *replay, const struct spw_trace *trace)
{
    const struct spw_replay_options *options = replay->options;
    struct spw_report reports[SPW_POLICIES_COMPARED];
    uint32_t count = 0;
    int status = 0;
    for (; !status && count < options->policy_count; count++) {
        replay->policy = count;
        status = options->simulate ? run_simulated(options, trace, count, &reports[count])
                                   : run_through_pool(replay, &reports[count]);
    }
    if (status)
        return SPW_EXIT_FAILED;
    int printed = spw_replay_print(options, reports, count, stdout);
    return replay->failed ? SPW_EXIT_FAILED : printed;
}

/* A tier that already holds the trace's chunks has another hit rate. */
static void warn_of_chunks_below(const struct spw_replay_options *options)
{
    uint64_t bytes;
    if (options->nvme_dir[0] && spw_below_shards(options->nvme_dir, 0, &bytes))
        fprintf(
            stderr,
            "spillway replay: warning: %s isn't empty, so what a run before left there counts as "
            "hits: remove what is in it, or name an empty directory\n",
            options->nvme_dir);
}

int spw_cmd_replay(int argc, char *const *argv)
{
    struct spw_replay_options options;
    char words[512];
    int count = spw_replay_options_read(argc, argv, &options, words, sizeof words);
    if (count < 0) {
        fprintf(stderr, "spillway replay: %s; see spillway replay --help\n", words);
        return SPW_EXIT_USAGE;
    }
    if (options.help) {
        spw_replay_options_help(stdout);
        return SPW_EXIT_OK;
    }
    /* read the trace here first: what is wrong with it is then said once, before anything starts */
    struct spw_trace trace = {0};
    int status = spw_replay_trace(&options, &trace, words, sizeof words);
    if (status) {
        fprintf(stderr, "spillway replay: %s\n", words);
        return status == -ENOTSUP ? SPW_EXIT_USAGE : SPW_EXIT_FAILED;
    }
    warn_of_chunks_below(&options);
    signal(SIGPIPE, SIG_IGN);
    struct replay *replay = calloc(1, sizeof *replay);
    int exit_status = SPW_EXIT_FAILED;
    if (replay) {
        replay->options = &options;
        replay->argc = argc;
        replay->argv = argv;
        snprintf(replay->pool, sizeof replay->pool, "replay-%d", (int)getpid());
        exit_status = run_all(replay, &trace);
    }
    free(replay);
    spw_trace_fini(&trace);
    return exit_status;
}
