/* The replay's command line, and the trace it names. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tools/replay.h"
#include "tools/units.h"
#include "tools/workload.h"

#define USUAL_SPAN_S 60

static const char *const policies[] = {"lru", NULL};
static const char *const scopes[] = {"request", "group", NULL};

#define AT(field) offsetof(struct spw_replay_options, field)
static const struct spw_option table[] = {
    {"generate", NULL, SPW_OPTION_SWITCH, AT(generate), 0, 0, NULL, "no",
     "replay a generated workload of several turns instead of a trace"},
    {"seed", NULL, SPW_OPTION_COUNT, AT(seed), 0, UINT64_MAX, NULL, "1",
     "of the generated workload"},
    {"cache-only", NULL, SPW_OPTION_SWITCH, AT(cache_only), 0, 0, NULL, "no",
     "no clock: one scheduler, one worker, file order; counts what an eviction policy keeps"},
    {"policy", NULL, SPW_OPTION_CHOICE, AT(policy), 0, 0, policies, "lru", "eviction policy"},
    {"capacity-chunks", NULL, SPW_OPTION_COUNT, AT(capacity_chunks), 1, 1u << 24, NULL, "4000",
     "resident chunks a worker"},
    {"workers", NULL, SPW_OPTION_COUNT, AT(workers), 1, 32, NULL, "4", "worker processes"},
    {"schedulers", NULL, SPW_OPTION_COUNT, AT(schedulers), 1, 126, NULL, "4",
     "engines, each with one scheduler process; engine e stores by worker e modulo workers"},
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
    {"recompute-budget", NULL, SPW_OPTION_COUNT, AT(recompute_budget), 0, INT64_MAX, NULL, "0",
     "max_recompute_pending_tokens: recompute at most so many rather than wait; 0 always waits"},
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

/* An option of closed loops that was given, or NULL. */
static const char *given_of_closed_loop(const struct spw_options *options)
{
    if (spw_options_origin(options, "conversations") != SPW_ORIGIN_DEFAULT)
        return "--conversations";
    return spw_options_origin(options, "decode-rate") != SPW_ORIGIN_DEFAULT ? "--decode-rate"
                                                                            : NULL;
}

static int complain(char *err, size_t err_bytes, const char *words)
{
    snprintf(err, err_bytes, "%s", words);
    return -EINVAL;
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
    if (words && strlen(word) >= sizeof out_options->trace)
        return complain(err, err_bytes, "the trace's path is longer than 1023 bytes");
    if (words)
        strcpy(out_options->trace, word);
    if (words && out_options->generate)
        return complain(err, err_bytes, "give a trace or --generate, not both");
    if (!words && !out_options->generate)
        return complain(err, err_bytes, "which trace? give a file, or --generate");
    if (!out_options->generate && spw_options_origin(&options, "seed") != SPW_ORIGIN_DEFAULT)
        return complain(err, err_bytes, "--seed is of the generated workload: give --generate too");
    if (!out_options->cache_only && spw_options_origin(&options, "policy") != SPW_ORIGIN_DEFAULT)
        return complain(err, err_bytes, "--policy is compared by --cache-only: give that too");
    if (out_options->payload_bytes % 64)
        return complain(err, err_bytes, "--payload-bytes must be a multiple of 64");
    out_options->of_closed_loop = given_of_closed_loop(&options);
    if (out_options->of_closed_loop && (out_options->generate || out_options->cache_only)) {
        snprintf(err, err_bytes, "%s is of a trace of conversations, played by a clock",
                 out_options->of_closed_loop);
        return -EINVAL;
    }
    out_options->chunk_tokens = SPW_TRACE_BLOCK_TOKENS;
    if (out_options->cache_only) {
        if (spw_options_origin(&options, "workers") != SPW_ORIGIN_DEFAULT ||
            spw_options_origin(&options, "schedulers") != SPW_ORIGIN_DEFAULT)
            return complain(
                err, err_bytes,
                "--cache-only has one scheduler and one worker: leave both options out");
        out_options->workers = out_options->schedulers = 1;
        out_options->store_rate = out_options->load_rate = 0;
    }
    return words;
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
          "prints a table.\n\n",
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
                 "%s is of a trace of conversations, but the requests of %s have times of their "
                 "own: leave it out",
                 options->of_closed_loop, options->trace);
        return -ENOTSUP;
    }
    if (trace->conversation_count > 0 && !options->cache_only) {
        snprintf(err, err_bytes,
                 "%s is a trace of conversations: its requests wait for answers, which a real "
                 "pool's replay doesn't play; give --cache-only",
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
