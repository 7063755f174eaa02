/* The replay's command line, and the trace it names. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tools/replay.h"
#include "tools/units.h"
#include "tools/workload.h"

#define USUAL_SPAN_S 60
#define SECOND_NS    1000000000ull
#define CAPACITY_MAX (1u << 24)

const char *const spw_replay_evictions[] = {"lru", "fifo", NULL};
static const char *const routes[] = {"round-robin", "random", NULL};
static const char *const scopes[] = {"request", "group", NULL};

#define AT(field) offsetof(struct spw_replay_options, field)
static const struct spw_option table[] = {
    {"generate", NULL, SPW_OPTION_SWITCH, AT(generate), 0, 0, NULL, "no",
     "replay a generated workload of several turns instead of a trace"},
    {"seed", NULL, SPW_OPTION_COUNT, AT(seed), 0, UINT64_MAX, NULL, "1",
     "of the generated workload, and of --route random"},
    {"simulate", NULL, SPW_OPTION_SWITCH, AT(simulate), 0, 0, NULL, "no",
     "a virtual clock and no pool: the same engines, decisions and store order, without bytes"},
    {"compare", NULL, SPW_OPTION_SWITCH, AT(compare), 0, 0, NULL, "no",
     "one policy after the other: always-wait, budgets of 1, 4, 16 and 64 chunks, awaited, "
     "awaited with a budget of 4 chunks, awaited with auto"},
    {"cache-only", NULL, SPW_OPTION_SWITCH, AT(cache_only), 0, 0, NULL, "no",
     "no clock: one scheduler, one worker, file order; counts what an eviction policy keeps"},
    {"policy", NULL, SPW_OPTION_CHOICE, AT(eviction), 0, 0, spw_replay_evictions, "lru",
     "which chunk goes to make room: the least recently used, or the one that came first"},
    {"capacity-chunks", NULL, SPW_OPTION_COUNT, AT(capacity_chunks), 1, CAPACITY_MAX, NULL, "4000",
     "resident chunks a worker; with --simulate as many as there are, unless given"},
    {"nvme-dir", NULL, SPW_OPTION_TEXT, AT(nvme_dir), 0,
     sizeof((struct spw_replay_options *)0)->nvme_dir, NULL, NULL,
     "directory for chunks that leave memory, empty for figures to mean anything: what the pool "
     "puts "
     "there stays"},
    {"nvme-chunks", NULL, SPW_OPTION_COUNT, AT(nvme_chunks), 1, CAPACITY_MAX, NULL, "50000",
     "chunks that each worker may have there"},
    {"workers", NULL, SPW_OPTION_COUNT, AT(workers), 1, 32, NULL, "4", "worker processes"},
    {"schedulers", NULL, SPW_OPTION_COUNT, AT(schedulers), 1, 126, NULL, "4",
     "engines, each with one scheduler process; engine e stores by worker e modulo workers"},
    {"route", NULL, SPW_OPTION_CHOICE, AT(route), 0, 0, routes, "round-robin",
     "which engine gets a request; random goes by --seed"},
    {"speed", NULL, SPW_OPTION_DECIMAL, AT(speed), 1, 1000000, NULL, NULL,
     "how many seconds of trace pass in one second; by default its arrivals take a minute"},
    {"store-rate", NULL, SPW_OPTION_RATE, AT(store_rate), 0, 1ull << 50, NULL, "2GB/s",
     "bytes a second that each worker stores, in trace time; 0 for no limit"},
    {"load-rate", NULL, SPW_OPTION_RATE, AT(load_rate), 0, 1ull << 50, NULL, "25GB/s",
     "bytes a second that each worker loads, in trace time; 0 for no limit"},
    {"prefill-rate", NULL, SPW_OPTION_COUNT, AT(prefill_rate), 1, 1ull << 40, NULL, "8000",
     "tokens a second that an engine computes"},
    {"kv-bytes-per-token", NULL, SPW_OPTION_BYTES, AT(kv_bytes_per_token), 1, 1ull << 40, NULL,
     "327680", "KV bytes of a token, all layers"},
    {"gpu-cache-tokens", NULL, SPW_OPTION_COUNT, AT(gpu_cache_tokens), 0, 1ull << 32, NULL,
     "400000", "tokens that the prefix cache on an engine's GPU holds; 0 for none"},
    {"overtake-limit", NULL, SPW_OPTION_DURATION, AT(overtake_limit_ns), 1000000, 3600 * SECOND_NS,
     NULL, "5s", "how long a worker's oldest store may be passed over for awaited ones"},
    {"recompute-budget", NULL, SPW_OPTION_TEXT, AT(recompute_budget), 0, SPW_REPLAY_NUMBER_BYTES,
     NULL, "0",
     "max_recompute_pending_tokens: recompute at most so many rather than wait; 0 always waits, "
     "auto goes by what the wait costs"},
    {"recompute-price", NULL, SPW_OPTION_TEXT, AT(recompute_price), 0, SPW_REPLAY_NUMBER_BYTES,
     NULL, "4",
     "of auto: a second of prefill is worth so many of waiting; queue: 1 + the engine's queue"},
    {"awaited", NULL, SPW_OPTION_SWITCH, AT(awaited), 0, 0, NULL, "no",
     "stores that a deferred request waits for go first"},
    {"recompute-scope", NULL, SPW_OPTION_CHOICE, AT(recompute_scope), 0, 0, scopes, "request",
     "whose loss the budget bounds"},
    {"payload-bytes", NULL, SPW_OPTION_BYTES, AT(payload_bytes), 64, 1u << 30, NULL, "1024",
     "bytes that stand in for a chunk; pacing counts its true size"},
    {"max-requests", NULL, SPW_OPTION_COUNT, AT(max_requests), 0, UINT64_MAX, NULL, "0",
     "stop after so many requests of the trace, 0 for all"},
    {"conversations", NULL, SPW_OPTION_COUNT, AT(conversations), 1, 1u << 20, NULL, "64",
     "of a trace of conversations: so many at a time; as one ends, the next starts"},
    {"decode-rate", NULL, SPW_OPTION_COUNT, AT(decode_rate), 1, 1000000, NULL, "50",
     "of a trace of conversations: tokens a second of an answer, after its first"},
    {"shm-dir", NULL, SPW_OPTION_TEXT, AT(shm_dir), 0,
     sizeof((struct spw_replay_options *)0)->shm_dir, NULL, "/dev/shm",
     "where the pool's objects are made"},
    {"json", NULL, SPW_OPTION_SWITCH, AT(json), 0, 0, NULL, "no", "print one JSON object, last"},
    {"help", NULL, SPW_OPTION_SWITCH, AT(help), 0, 0, NULL, "no", "print this"},
};
#define OPTIONS (sizeof table / sizeof table[0])

static bool given(const struct spw_options *options, const char *name)
{
    return spw_options_origin(options, name) != SPW_ORIGIN_DEFAULT;
}

/* The first of @names, closed by NULL, that was given, or NULL. */
static const char *first_given(const struct spw_options *options, const char *const *names)
{
    while (*names && !given(options, *names))
        names++;
    return *names;
}

static int complain(char *err, size_t err_bytes, const char *words)
{
    snprintf(err, err_bytes, "%s", words);
    return -EINVAL;
}

static int complain_of(char *err, size_t err_bytes, const char *name, const char *words)
{
    snprintf(err, err_bytes, "--%s %s", name, words);
    return -EINVAL;
}

/* Which trace: a file or a made-up one, and what goes with it. */
static int check_source(const struct spw_options *given_options, const char *word,
                        struct spw_replay_options *options, char *err, size_t err_bytes)
{
    static const char *const closed_loop[] = {"conversations", "decode-rate", NULL};
    if (word && strlen(word) >= sizeof options->trace)
        return complain(err, err_bytes, "the trace's path is longer than 1023 bytes");
    if (word)
        strcpy(options->trace, word);
    if (word && options->generate)
        return complain(err, err_bytes, "give a trace or --generate, not both");
    if (!word && !options->generate)
        return complain(err, err_bytes, "which trace? give a file, or --generate");
    if (given(given_options, "seed") && !options->generate && options->route != SPW_ROUTE_RANDOM)
        return complain(
            err, err_bytes,
            "--seed is of the generated workload and of --route random: give one of them too");
    options->of_closed_loop = first_given(given_options, closed_loop);
    if (options->of_closed_loop && (options->generate || options->cache_only))
        return complain_of(err, err_bytes, options->of_closed_loop,
                           "is of a trace of conversations, played by a clock");
    return 0;
}

/* Cache-only, simulated, or through a real pool in real time: what each has no use for. */
static int check_kind(const struct spw_options *given_options, struct spw_replay_options *options,
                      char *err, size_t err_bytes)
{
    static const char *const of_many[] = {
        "workers",          "schedulers",     "route",   "compare",
        "gpu-cache-tokens", "overtake-limit", "awaited", NULL};
    static const char *const of_pool[] = {"cache-only", "speed",    "payload-bytes",
                                          "shm-dir",    "nvme-dir", NULL};
    const char *name;
    if (!options->cache_only && given(given_options, "policy"))
        return complain(err, err_bytes, "--policy is compared by --cache-only: give that too");
    if (!options->nvme_dir[0] && given(given_options, "nvme-chunks"))
        return complain(err, err_bytes, "--nvme-chunks has no effect without --nvme-dir");
    if (options->nvme_dir[0] && options->compare)
        return complain(err, err_bytes,
                        "--compare with --nvme-dir would let each policy find what those before it "
                        "left there: run one policy at a time, each with an empty directory");
    if (options->payload_bytes % 64)
        return complain(err, err_bytes, "--payload-bytes must be a multiple of 64");
    if (options->simulate && (name = first_given(given_options, of_pool)))
        return complain_of(err, err_bytes, name, "has no use with --simulate: leave one out");
    if (options->cache_only && (name = first_given(given_options, of_many)))
        return complain_of(err, err_bytes, name,
                           "has no use with --cache-only, which has one scheduler, one worker and "
                           "no clock: leave it out");
    if (options->cache_only) {
        options->workers = options->schedulers = 1;
        options->store_rate = options->load_rate = 0;
    }
    if (options->simulate) {
        options->speed = 1;
        if (!given(given_options, "capacity-chunks"))
            options->capacity_chunks = CAPACITY_MAX;
    }
    return 0;
}

static int read_policy(struct spw_replay_options *options, char *err, size_t err_bytes)
{
    struct spw_policy *policy = &options->policies[0];
    char words[SPW_REPLAY_NUMBER_BYTES + 128];
    policy->awaited = options->awaited;
    if (spw_recompute_budget_parse(options->recompute_budget, &policy->budget_tokens, words,
                                   sizeof words) < 0)
        return complain_of(err, err_bytes, "recompute-budget:", words);
    if (spw_recompute_price_parse(options->recompute_price, &policy->price, words, sizeof words) <
        0)
        return complain_of(err, err_bytes, "recompute-price:", words);
    spw_policy_name(policy);
    options->policy_count = 1;
    return 0;
}

/* What the requests do: one policy, or all that are compared. */
static int check_policies(const struct spw_options *given_options,
                          struct spw_replay_options *options, char *err, size_t err_bytes)
{
    static const char *const of_one[] = {"recompute-budget", "recompute-price", "awaited", NULL};
    const char *name = first_given(given_options, of_one);
    int status = read_policy(options, err, err_bytes);
    if (status)
        return status;
    bool is_auto = options->policies[0].budget_tokens == SPW_RECOMPUTE_AUTO;
    if (options->compare && name)
        return complain_of(err, err_bytes, name,
                           "is of one policy, --compare runs its own: leave "
                           "one out");
    if (options->compare) {
        spw_policy_list((uint32_t)options->chunk_tokens, options->policies);
        options->policy_count = SPW_POLICIES_COMPARED;
    } else if (!is_auto && given(given_options, "recompute-price")) {
        return complain(err, err_bytes,
                        "--recompute-price is of --recompute-budget auto: give that too");
    }
    if ((is_auto || options->compare) && options->recompute_scope != SPW_SCOPE_REQUEST)
        return complain(err, err_bytes,
                        "--recompute-budget auto, which --compare tries too, goes with "
                        "--recompute-scope request alone");
    if (given(given_options, "overtake-limit") && !options->awaited && !options->compare)
        return complain(err, err_bytes,
                        "--overtake-limit is of stores that go first: give --awaited or --compare "
                        "too");
    return 0;
}

int spw_replay_options_read(int argc, char *const *argv, struct spw_replay_options *out_options,
                            char *err, size_t err_bytes)
{
    struct spw_options options;
    const char *word = NULL;
    memset(out_options, 0, sizeof *out_options);
    spw_options_init(&options, table, OPTIONS, out_options);
    int words = spw_options_read_args(&options, argc, argv, &word, 1, err, err_bytes);
    if (words < 0 || out_options->help)
        return words;
    out_options->chunk_tokens = SPW_TRACE_BLOCK_TOKENS;
    int status = check_source(&options, word, out_options, err, err_bytes);
    if (!status)
        status = check_kind(&options, out_options, err, err_bytes);
    if (!status)
        status = check_policies(&options, out_options, err, err_bytes);
    return status ? status : words;
}

struct spw_route spw_replay_route(const struct spw_replay_options *options)
{
    return (struct spw_route){.engines = (uint32_t)options->schedulers,
                              .rule = (enum spw_route_rule)options->route,
                              .seed = options->seed};
}

void spw_replay_options_help(FILE *out)
{
    struct spw_replay_options none;
    struct spw_options options;
    spw_options_init(&options, table, OPTIONS, &none);
    fputs("usage: spillway replay [options] TRACE\n"
          "       spillway replay [options] --generate\n\n"
          "Starts a pool and engines that attach to it, replays the requests of TRACE (Mooncake\n"
          "JSONL, or a table of conversations; plain or gzip), verifies every byte that is loaded, "
          "prints a table.\nWith --simulate nothing is started and no time passes but a virtual "
          "one.\n\n",
          out);
    spw_options_help(&options, out);
}

static int read_or_generate(const struct spw_replay_options *options, struct spw_trace *out_trace,
                            char *err, size_t err_bytes)
{
    if (!options->generate) {
        struct spw_trace_options read = {.max_requests = options->max_requests};
        return spw_trace_read(options->trace, &read, out_trace, err, err_bytes);
    }
    struct spw_workload workload = SPW_WORKLOAD_DEFAULT;
    workload.seed = options->seed;
    int status = spw_trace_generate(&workload, out_trace);
    if (status)
        snprintf(err, err_bytes, "the workload cannot be generated: %s", strerror(-status));
    else if (options->max_requests && out_trace->request_count > options->max_requests)
        out_trace->request_count = options->max_requests;
    return status;
}

/* Is the trace of a kind that the options can replay? */
static int check_loop(const struct spw_replay_options *options, const struct spw_trace *trace,
                      char *err, size_t err_bytes)
{
    if (trace->conversation_count == 0 && options->of_closed_loop) {
        snprintf(err, err_bytes,
                 "--%s is of a trace of conversations, but the requests of %s have times of their "
                 "own: leave it out",
                 options->of_closed_loop, options->trace);
        return -ENOTSUP;
    }
    if (trace->conversation_count > 0 && !options->cache_only && !options->simulate) {
        snprintf(err, err_bytes,
                 "%s is a trace of conversations: its requests wait for answers, which a real "
                 "pool's replay doesn't play; give --cache-only or --simulate",
                 options->trace);
        return -ENOTSUP;
    }
    return 0;
}

int spw_replay_trace(struct spw_replay_options *options, struct spw_trace *out_trace, char *err,
                     size_t err_bytes)
{
    int status = read_or_generate(options, out_trace, err, err_bytes);
    if (status)
        return status;
    status = check_loop(options, out_trace, err, err_bytes);
    if (status)
        spw_trace_fini(out_trace);
    if (status || options->speed > 0)
        return status;
    double span_s = (double)out_trace->requests[out_trace->request_count - 1].arrival_ns / 1e9;
    options->speed = span_s > USUAL_SPAN_S ? span_s / USUAL_SPAN_S : 1;
    return 0;
}
