/* A simulated replay: from the replay's options to tools/sim.h, and from its result to a report. */
#include <errno.h>

#include "tools/replay.h"
#include "tools/sim.h"

static void fill_report(const struct spw_replay_options *options, const char *policy,
                        struct spw_sim_result *result, struct spw_report *out_report)
{
    const uint64_t chunk_bytes = options->chunk_tokens * options->kv_bytes_per_token;
    struct spw_report report = {
        .policy = policy,
        .requests = result->requests,
        .blocks = result->blocks,
        .hit_blocks = result->hit_blocks,
        .resident_blocks = result->resident_blocks,
        .deferred_requests = result->deferred_requests,
        .recomputed_tokens = result->recomputed_tokens,
        .waits_hit = result->waits_hit,
        .waits_cut = result->waits_cut,
        .awaited_stores = result->awaited_stores,
        .overtaking_stores = result->overtaking_stores,
        .bytes_stored = result->stored_chunks * chunk_bytes,
        .bytes_loaded = result->loaded_chunks * chunk_bytes,
    };
    spw_report_take_samples(&report, &result->waits, &result->ttfts);
    spw_report_take_forecasts(&report, &result->forecasts);
    if (result->store_busy_ns > 0) {
        report.store_rate_offered = (double)options->store_rate;
        report.store_rate_achieved =
            (double)report.bytes_stored * 1e9 / (double)result->store_busy_ns;
    }
    spw_report_judge(&report);
    *out_report = report;
}

int spw_replay_simulate(const struct spw_replay_options *options, const struct spw_policy *policy,
                        const struct spw_trace *trace, struct spw_report *out_report)
{
    const struct spw_sim_config config = {
        .route = spw_replay_route(options),
        .workers = (uint32_t)options->workers,
        .chunk_tokens = (uint32_t)options->chunk_tokens,
        .chunk_bytes = options->chunk_tokens * options->kv_bytes_per_token,
        .prefill_rate = options->prefill_rate,
        .store_rate = options->store_rate,
        .load_rate = options->load_rate,
        .capacity_chunks = (uint32_t)options->capacity_chunks,
        .gpu_cache_tokens = options->gpu_cache_tokens,
        .overtake_limit_ns = options->overtake_limit_ns,
        .scope = (uint8_t)options->recompute_scope,
        .policy = *policy,
        .arrivals = {.conversations = options->conversations, .decode_rate = options->decode_rate},
    };
    struct spw_sim_result result = {0};
    int status = spw_sim_run(trace, &config, &result);
    if (status == -ERANGE)
        fprintf(stderr, "spillway replay: at these rates the trace would take over 31 years: raise "
                        "--store-rate, --load-rate or --prefill-rate\n");
    if (!status)
        fill_report(options, policy->name, &result, out_report);
    spw_sim_result_fini(&result);
    return status;
}
