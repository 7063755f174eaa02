/*
 * Engine process of a replay: attach as a serving engine does, wait for the start, replay, send the
 * result. Dies with the parent.
 */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "tools/replay.h"

#define ATTACH_TRIES    3000 /* a pool of a few hundred MiB takes seconds to reserve */
#define ATTACH_PAUSE_US 10000
#define WAIT_LIMIT_NS   86400000000000ull /* no replay waits a day: policies end waits, not limits */

static int attach(const struct spw_replay_options *options, uint32_t e, const char *pool,
                  struct spw_client **out_client)
{
    char label[48], words[256] = "";
    snprintf(label, sizeof label, "replay engine %u", e);
    struct spw_attach_options attach = {.size_bytes = sizeof attach,
                                        .numa_node = -1,
                                        .pool = pool,
                                        .shm_dir = options->shm_dir,
                                        .label = label,
                                        .uid = -1};
    int status = -EAGAIN;
    for (int i = 0; i < ATTACH_TRIES && (status == -EAGAIN || status == -ENOENT); i++) {
        status = spw_attach(&attach, out_client, words, sizeof words);
        if (status == -EAGAIN || status == -ENOENT)
            usleep(ATTACH_PAUSE_US);
    }
    if (status)
        fprintf(stderr, "spillway replay: engine %u: %s\n", e, words);
    return status;
}

/* What an engine computes in a second of the clock. */
static uint64_t clock_rate(const struct spw_replay_options *options)
{
    double rate = (double)options->prefill_rate * options->speed;
    return rate < 1e15 ? (uint64_t)rate : 1000000000000000u;
}

static int open_space(const struct spw_replay_options *options, const struct spw_policy *policy,
                      uint32_t e, struct spw_client *client, struct spw_space **out_space)
{
    char words[256] = "";
    struct spw_group_config group = {
        .kind = SPW_GROUP_FULL,
        .block_tokens = (uint32_t)options->chunk_tokens,
        .chunk_bytes = (uint32_t)options->payload_bytes,
        .nominal_bytes = options->chunk_tokens * options->kv_bytes_per_token,
    };
    uint32_t worker = e % (uint32_t)options->workers;
    struct spw_space_config space = {
        .size_bytes = sizeof space,
        .blocks_per_chunk = 1,
        .hash_unit_tokens = (uint32_t)options->chunk_tokens,
        .groups = 1,
        .group = &group,
        .ranks = 1,
        .rank_worker = &worker,
        .fingerprint = "replay: one full group, a chunk a block of the trace",
        .max_recompute_pending_tokens = policy->budget_tokens,
        .recompute_scope = (uint32_t)options->recompute_scope,
        .gpu_prefix_cache = options->gpu_cache_tokens > 0,
        .recompute_price = policy->price,
        .no_await = !policy->awaited,
        .prefill_tokens_per_s = clock_rate(options),
        .wait_limit_ns = WAIT_LIMIT_NS,
    };
    int status = spw_space_open(client, &space, out_space, words, sizeof words);
    if (status)
        fprintf(stderr, "spillway replay: engine %u: %s\n", e, words);
    return status;
}

/* The parent reads the workers' counters while every client is still there, then ends the pipe. */
static void await_end(int control_fd)
{
    char none;
    while (read(control_fd, &none, 1) < 0 && errno == EINTR)
        ;
}

/* Say that we are ready, get the moment at which trace time begins. */
static int await_start(int control_fd, int result_fd, uint64_t *out_start_ns)
{
    if (write(result_fd, "r", 1) != 1)
        return -EPIPE;
    ssize_t n;
    do
        n = read(control_fd, out_start_ns, sizeof *out_start_ns);
    while (n < 0 && errno == EINTR);
    return n == (ssize_t)sizeof *out_start_ns ? 0 : -EPIPE;
}

int spw_replay_engine(struct spw_replay_options *options, const struct spw_policy *policy,
                      uint32_t e, const char *pool, int control_fd, int result_fd)
{
    struct spw_replay_seat seat = {.options = options, .pool = pool, .e = e};
    struct spw_replay_result result = {0};
    struct spw_trace trace = {0};
    char words[512];
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    prctl(PR_SET_TIMERSLACK, 1ul); /* a pause ends when it should: at 60 x, 50 us are 3 ms */
    int status = spw_replay_trace(options, &trace, words, sizeof words);
    if (status) {
        fprintf(stderr, "spillway replay: engine %u: %s\n", e, words);
        return 1;
    }
    seat.trace = &trace;
    status = attach(options, e, pool, &seat.client);
    if (!status)
        status = open_space(options, policy, e, seat.client, &seat.space);
    if (!status)
        status = await_start(control_fd, result_fd, &seat.start_ns);
    if (!status)
        status = options->cache_only ? spw_replay_cache_only(&seat, &result)
                                     : spw_replay_timed(&seat, &result);
    if (!status)
        status = spw_replay_result_send(result_fd, &result);
    if (!status)
        await_end(control_fd);
    if (status)
        fprintf(stderr, "spillway replay: engine %u: %s\n", e, strerror(-status));
    spw_replay_result_fini(&result);
    spw_detach(seat.client);
    spw_trace_fini(&trace);
    return status ? 1 : 0;
}
