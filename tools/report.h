#ifndef SPW_TOOLS_REPORT_H
#define SPW_TOOLS_REPORT_H
/*
 * What a replay found, for people (a table, a column a policy) and for scripts (a JSON object a
 * line, whose keys and their order are stable).
 *
 * Samples are kept whole and percentiles are exact: nearest rank, so always one of the samples.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define SPW_REPORT_SCHEMA       1
#define SPW_REPORT_REASON_BYTES 160

/* Offered and achieved store rate may differ by this share of the offered one. */
#define SPW_REPORT_RATE_TOLERANCE 0.02

/** Durations, in the order they came until a percentile is asked for. All zero is empty. */
struct spw_samples {
    int64_t *values_ns;
    size_t count;
    size_t room;
};

/** Returns 0 or -ENOMEM. */
int spw_samples_add(struct spw_samples *samples, int64_t value_ns);

/** Add all of @from to @samples. Returns 0 or -ENOMEM. */
int spw_samples_merge(struct spw_samples *samples, const struct spw_samples *from);

/** Mean in seconds; 0 without samples. */
double spw_samples_mean_s(const struct spw_samples *samples);

/**
 * The smallest sample that at least @percent percent of all are not above, in seconds; 0 without
 * samples. Sorts them.
 */
double spw_samples_percentile_s(struct spw_samples *samples, double percent);

void spw_samples_fini(struct spw_samples *samples);

/** ETAs told to requests as they began to wait, against what came. All zero is empty. */
struct spw_forecasts {
    struct spw_samples errors; /* how far off each was, absolute                */
    uint64_t waited_ns;        /* sum of the waits that these are about         */
    uint64_t unknown;          /* waits whose ETA was not known as they began   */
};

#define SPW_FORECAST_UNKNOWN UINT64_MAX

/** A wait of @took_ns was told @eta_ns, or SPW_FORECAST_UNKNOWN. Returns 0 or -ENOMEM. */
int spw_forecasts_add(struct spw_forecasts *forecasts, uint64_t eta_ns, uint64_t took_ns);

/** Add all of @from to @forecasts. Returns 0 or -ENOMEM. */
int spw_forecasts_merge(struct spw_forecasts *forecasts, const struct spw_forecasts *from);

void spw_forecasts_fini(struct spw_forecasts *forecasts);

/** What one policy did on one trace. Times are seconds of the trace, not of the clock on the wall.
 */
struct spw_report {
    const char *policy; /* borrowed */
    uint64_t requests;
    uint64_t blocks;          /* of all prompts */
    uint64_t hit_blocks;      /* in leading resident runs */
    uint64_t resident_blocks; /* anywhere */
    uint64_t below_blocks;    /* of hit_blocks: only the tier below had them */
    uint64_t deferred_requests;
    double wait_mean_s, wait_p50_s, wait_p99_s; /* of one deferral from first to last */
    uint64_t recomputed_tokens; /* that a pending chunk would have saved, had one waited */
    double ttft_mean_s, ttft_p50_s, ttft_p99_s;
    uint64_t waits, waits_hit,
        waits_cut;        /* in all; that ended in a load of all, or were given up */
    uint64_t eta_waits;   /* that ended in a load of all, with an ETA when they began */
    uint64_t eta_unknown; /* likewise, without one */
    double eta_error_mean_s, eta_error_p50_s, eta_error_p90_s; /* absolute */
    double eta_error_share;                                    /* of the time waited */
    uint64_t awaited_stores;    /* chunks stored that somebody waited for when their copy began */
    uint64_t overtaking_stores; /* copies that began before that of an older one */
    uint64_t verified_chunks;
    uint64_t wrong_bytes;
    uint64_t bytes_stored; /* nominal, as all bytes and rates here */
    uint64_t bytes_loaded;
    double store_rate_offered; /* bytes a second of the trace */
    double store_rate_achieved;
    bool is_void;
    char reason[SPW_REPORT_REASON_BYTES]; /* why it is void, "" if it is not */
};

/** Take the mean and the percentiles of waits and times to first token into @report, and how many
 * waits there were. */
void spw_report_take_samples(struct spw_report *report, struct spw_samples *waits,
                             struct spw_samples *ttfts);

/** Take what the ETAs were worth. */
void spw_report_take_forecasts(struct spw_report *report, struct spw_forecasts *forecasts);

/** Say whether the run counts: it is void if what was offered could not be stored. */
void spw_report_judge(struct spw_report *report);

/** Print a table with a column a report, and a line for each that is void or read wrong bytes. */
void spw_report_print_text(const struct spw_report *reports, size_t count, FILE *out);

/** Print one JSON object a line, in the order given. Returns 0 or -ENOMEM. */
int spw_report_print_json(const struct spw_report *reports, size_t count, FILE *out);

#endif
