/* See replay_report.h. */
#include "tools/replay_report.h"

#include <inttypes.h>
#include <stdlib.h>

#include "tools/command.h"

/* What the store streams should do, and did, while they had something to do. A rate without limit
 * offers nothing to compare with. */
static void fill_rates(const struct spw_replay_options *options,
                       const struct spw_replay_workers *workers, struct spw_report *report)
{
    if (!options->store_rate || !workers->busy_ns)
        return;
    report->store_rate_offered = (double)options->store_rate;
    report->store_rate_achieved =
        (double)workers->bytes_done * 1e9 / (double)workers->busy_ns / options->speed;
}

bool spw_replay_report(const struct spw_replay_options *options, const char *policy,
                       struct spw_replay_result *result, const struct spw_replay_workers *workers,
                       struct spw_report *out_report)
{
    const struct spw_replay_sums *sums = &result->sums;
    uint64_t chunk_bytes = options->chunk_tokens * options->kv_bytes_per_token;
    struct spw_report report = {
        .policy = policy,
        .requests = sums->requests,
        .blocks = sums->blocks,
        .hit_blocks = sums->hit_blocks,
        .resident_blocks = sums->resident_blocks,
        .below_blocks = options->cache_only ? sums->below_blocks : workers->from_below,
        .deferred_requests = sums->deferred_requests,
        .recomputed_tokens = sums->recomputed_tokens,
        .waits_hit = sums->waits_hit,
        .waits_cut = sums->waits_cut,
        .awaited_stores = workers->awaited_stores,
        .overtaking_stores = workers->overtaking_stores,
        .verified_chunks = sums->verified_chunks,
        .wrong_bytes = sums->wrong_bytes,
        .bytes_stored = sums->stored_chunks * chunk_bytes,
        .bytes_loaded = sums->loaded_chunks * chunk_bytes,
    };
    spw_report_take_samples(&report, &result->waits, &result->ttfts);
    spw_report_take_forecasts(&report, &result->forecasts);
    fill_rates(options, workers, &report);
    spw_report_judge(&report);
    if (sums->failed_loads)
        fprintf(stderr, "spillway replay: %" PRIu64 " loads failed\n", sums->failed_loads);
    if (workers->restarts)
        fprintf(stderr, "spillway replay: workers were restarted %" PRIu64 " times\n",
                workers->restarts);
    if (sums->waits_ended != report.waits)
        fprintf(stderr,
                "spillway replay: %" PRIu64 " waits were seen, %" PRIu64
                " were counted by the library\n",
                report.waits, sums->waits_ended);
    *out_report = report;
    return sums->failed_loads == 0 && sums->waits_ended == report.waits;
}

int spw_replay_print(const struct spw_replay_options *options, const struct spw_report *reports,
                     size_t count, FILE *out)
{
    bool failed = false;
    if (!options->json)
        spw_report_print_text(reports, count, out);
    else if (spw_report_print_json(reports, count, out))
        return SPW_EXIT_FAILED;
    for (size_t i = 0; i < count; i++)
        failed |= reports[i].wrong_bytes || reports[i].is_void;
    return failed ? SPW_EXIT_FAILED : SPW_EXIT_OK;
}
