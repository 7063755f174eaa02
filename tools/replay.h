#ifndef SPW_TOOLS_REPLAY_H
#define SPW_TOOLS_REPLAY_H
/*
 * spillway replay: a trace through a pool of its own.
 *
 *   --simulate  none of the below: tools/sim.h plays it in this process, by a virtual clock
 *
 *   parent      reads the options, starts spillwayd, starts one process an engine (spawned, not
 *               forked), gives all the same start, gathers their results, prints the report
 *   engine e    attaches like a serving engine's scheduler, takes its requests of the trace
 *               (tools/route.h), and sends its result to the parent through a pipe
 *   crash       a dead engine is told by the end of its pipe: the run fails and says so. The pool
 *               follows its daemon, and the daemon the parent: its standard input ends
 */
#include "sched/spillway.h"
#include "tools/options.h"
#include "tools/policy.h"
#include "tools/report.h"
#include "tools/route.h"
#include "tools/trace.h"

#define SPW_REPLAY_NUMBER_BYTES 256

struct spw_replay_options {
    char trace[1024]; /* "" with generate */
    bool generate;
    uint64_t seed;
    bool cache_only;
    uint64_t eviction;        /* index into spw_replay_evictions */
    char nvme_dir[256];       /* "" = no tier below */
    uint64_t nvme_chunks;     /* a worker */
    uint64_t capacity_chunks; /* a worker; cache-only: of the pool */
    uint64_t workers;
    uint64_t schedulers;
    double speed;
    uint64_t store_rate;   /* bytes/s, in trace time, a worker */
    uint64_t load_rate;    /* likewise */
    uint64_t prefill_rate; /* tokens/s an engine */
    uint64_t kv_bytes_per_token;
    char recompute_budget[SPW_REPLAY_NUMBER_BYTES]; /* as given; read into the policies */
    char recompute_price[SPW_REPLAY_NUMBER_BYTES];
    bool awaited;
    uint64_t recompute_scope;
    bool simulate;
    bool compare;
    struct spw_policy policies[SPW_POLICIES_COMPARED]; /* one after the other */
    uint32_t policy_count;
    uint64_t route; /* enum spw_route_rule */
    uint64_t gpu_cache_tokens;
    uint64_t overtake_limit_ns;
    uint64_t chunk_tokens;
    uint64_t payload_bytes;     /* stand-in bytes of a chunk */
    uint64_t max_requests;      /* 0 = all */
    uint64_t conversations;     /* of a closed loop, at a time */
    uint64_t decode_rate;       /* of a closed loop, tokens/s of an answer */
    const char *of_closed_loop; /* name of one of these two options, if given */
    bool json;
    bool help;
    char shm_dir[128];
};

/** Read a command line into @out_options. Returns the number of plain arguments, or -EINVAL. */
int spw_replay_options_read(int argc, char *const *argv, struct spw_replay_options *out_options,
                            char *err, size_t err_bytes);
/** Which engine gets which request. */
struct spw_route spw_replay_route(const struct spw_replay_options *options);

/** Names of eviction policies, closed by NULL. */
extern const char *const spw_replay_evictions[];

/** Print the options' help. */
void spw_replay_options_help(FILE *out);

/** The trace that the options name; sets the speed if none was given. 0, or a negative errno with
 * words; -ENOTSUP if options don't fit this trace. */
int spw_replay_trace(struct spw_replay_options *options, struct spw_trace *out_trace, char *err,
                     size_t err_bytes);

/* ---- what an engine sends back, once, at its end --------------------------------------------- */

struct spw_replay_sums {
    uint64_t requests;
    uint64_t blocks;
    uint64_t hit_blocks;
    uint64_t resident_blocks;
    uint64_t below_blocks; /* cache-only: of hit_blocks, those that only the tier below had */
    uint64_t deferred_requests;
    uint64_t recomputed_tokens;
    uint64_t prompt_tokens;
    uint64_t stored_chunks;
    uint64_t present_chunks;
    uint64_t skipped_chunks;
    uint64_t loaded_chunks;
    uint64_t verified_chunks;
    uint64_t wrong_bytes;
    uint64_t failed_loads;
    uint64_t waits_ended; /* as the library counts them: in all */
    uint64_t waits_hit;
    uint64_t waits_cut;
    uint64_t eta_unknown;
    uint64_t eta_waited_ns;
    uint64_t wait_count; /* samples that follow */
    uint64_t ttft_count;
    uint64_t eta_count;
};

/** An engine's whole result; samples in trace time. */
struct spw_replay_result {
    struct spw_replay_sums sums;
    struct spw_samples waits;
    struct spw_samples ttfts;
    struct spw_forecasts forecasts;
};

int spw_replay_result_send(int fd, const struct spw_replay_result *result);
/** Append what comes from @fd to @into. 0, or -EPIPE: the engine ended without a result. */
int spw_replay_result_receive(int fd, struct spw_replay_result *into);
void spw_replay_result_fini(struct spw_replay_result *result);

/** The body of engine process @e under @policy; @start_ns = CLOCK_MONOTONIC of trace time 0, read from
 * @control_fd after "ready" was written to @result_fd. Returns an exit status. */
int spw_replay_engine(struct spw_replay_options *options, const struct spw_policy *policy,
                      uint32_t e, const char *pool, int control_fd, int result_fd);

/** Timed replay and cache-only replay of one engine; both fill @out_result. 0 or -errno. */
struct spw_replay_seat {
    const struct spw_replay_options *options;
    const struct spw_trace *trace;
    const char *pool; /* its name */
    struct spw_client *client;
    struct spw_space *space;
    uint32_t e;
    uint64_t start_ns;
};
int spw_replay_timed(const struct spw_replay_seat *seat, struct spw_replay_result *out_result);
int spw_replay_cache_only(const struct spw_replay_seat *seat, struct spw_replay_result *out_result);

/** Replay @trace under @policy by a virtual clock. 0 or -errno. */
int spw_replay_simulate(const struct spw_replay_options *options, const struct spw_policy *policy,
                        const struct spw_trace *trace, struct spw_report *out_report);

#endif
