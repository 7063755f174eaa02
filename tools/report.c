/* What a replay found, as numbers, table and JSON. */
#include "tools/report.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define CELL_BYTES  40
#define LABEL_WIDTH 26
#define CELL_WIDTH  17 /* at least */

static int reserve_samples(struct spw_samples *samples, size_t more)
{
    size_t room = samples->room ? samples->room : 256;
    int64_t *moved;

    if (samples->count + more <= samples->room)
        return 0;
    while (room < samples->count + more)
        room *= 2;
    moved = realloc(samples->values_ns, room * sizeof(*moved));
    if (!moved)
        return -ENOMEM;
    samples->values_ns = moved;
    samples->room = room;
    return 0;
}

int spw_samples_add(struct spw_samples *samples, int64_t value_ns)
{
    int rc = reserve_samples(samples, 1);

    if (rc == 0)
        samples->values_ns[samples->count++] = value_ns;
    return rc;
}

int spw_samples_merge(struct spw_samples *samples, const struct spw_samples *from)
{
    int rc = reserve_samples(samples, from->count);

    if (rc == 0 && from->count > 0) {
        memcpy(samples->values_ns + samples->count, from->values_ns,
               from->count * sizeof(*from->values_ns));
        samples->count += from->count;
    }
    return rc;
}

double spw_samples_mean_s(const struct spw_samples *samples)
{
    double sum = 0;

    for (size_t i = 0; i < samples->count; i++)
        sum += (double)samples->values_ns[i];
    return samples->count ? sum / (double)samples->count / 1e9 : 0;
}

static int by_value(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return (x > y) - (x < y);
}

double spw_samples_percentile_s(struct spw_samples *samples, double percent)
{
    double rank = ceil(percent * (double)samples->count / 100);
    size_t at = rank >= 1 ? (size_t)rank - 1 : 0;

    if (samples->count == 0)
        return 0;
    qsort(samples->values_ns, samples->count, sizeof(*samples->values_ns), by_value);
    if (at >= samples->count)
        at = samples->count - 1;
    return (double)samples->values_ns[at] / 1e9;
}

void spw_samples_fini(struct spw_samples *samples)
{
    if (!samples)
        return;
    free(samples->values_ns);
    *samples = (struct spw_samples){0};
}

int spw_forecasts_add(struct spw_forecasts *forecasts, uint64_t eta_ns, uint64_t took_ns)
{
    int rc;

    if (eta_ns == SPW_FORECAST_UNKNOWN) {
        forecasts->unknown++;
        return 0;
    }
    rc = spw_samples_add(&forecasts->errors,
                         (int64_t)(eta_ns > took_ns ? eta_ns - took_ns : took_ns - eta_ns));
    if (rc == 0)
        forecasts->waited_ns += took_ns;
    return rc;
}

int spw_forecasts_merge(struct spw_forecasts *forecasts, const struct spw_forecasts *from)
{
    int rc = spw_samples_merge(&forecasts->errors, &from->errors);

    if (rc == 0) {
        forecasts->waited_ns += from->waited_ns;
        forecasts->unknown += from->unknown;
    }
    return rc;
}

void spw_forecasts_fini(struct spw_forecasts *forecasts)
{
    if (!forecasts)
        return;
    spw_samples_fini(&forecasts->errors);
    *forecasts = (struct spw_forecasts){0};
}

void spw_report_take_samples(struct spw_report *report, struct spw_samples *waits,
                             struct spw_samples *ttfts)
{
    report->waits = waits->count;
    report->wait_mean_s = spw_samples_mean_s(waits);
    report->wait_p50_s = spw_samples_percentile_s(waits, 50);
    report->wait_p99_s = spw_samples_percentile_s(waits, 99);
    report->ttft_mean_s = spw_samples_mean_s(ttfts);
    report->ttft_p50_s = spw_samples_percentile_s(ttfts, 50);
    report->ttft_p99_s = spw_samples_percentile_s(ttfts, 99);
}

static double share(uint64_t part, uint64_t whole)
{
    return whole ? (double)part / (double)whole : 0;
}

void spw_report_take_forecasts(struct spw_report *report, struct spw_forecasts *forecasts)
{
    double mean_s = spw_samples_mean_s(&forecasts->errors);
    double waited_s = (double)forecasts->waited_ns / 1e9;

    report->eta_waits = forecasts->errors.count;
    report->eta_unknown = forecasts->unknown;
    report->eta_error_mean_s = mean_s;
    report->eta_error_p50_s = spw_samples_percentile_s(&forecasts->errors, 50);
    report->eta_error_p90_s = spw_samples_percentile_s(&forecasts->errors, 90);
    report->eta_error_share = waited_s > 0 ? mean_s * (double)report->eta_waits / waited_s : 0;
}

void spw_report_judge(struct spw_report *report)
{
    double offered = report->store_rate_offered, achieved = report->store_rate_achieved;

    report->is_void = fabs(achieved - offered) > SPW_REPORT_RATE_TOLERANCE * offered;
    report->reason[0] = '\0';
    if (report->is_void)
        snprintf(report->reason, sizeof(report->reason),
                 "stores ran at %.4g GB/s where %.4g GB/s were offered: over %g %% apart; replay "
                 "at a lower speed",
                 achieved / 1e9, offered / 1e9, 100 * SPW_REPORT_RATE_TOLERANCE);
}

static void format_bytes(double bytes, const char *per, char out[CELL_BYTES])
{
    static const char *const units[] = {"B", "KB", "MB", "GB", "TB", "PB", "EB"};
    size_t unit = 0;

    while (bytes >= 1000 && unit + 1 < sizeof(units) / sizeof(units[0])) {
        bytes /= 1000;
        unit++;
    }
    snprintf(out, CELL_BYTES, "%.*f %s%s", unit ? 2 : 0, bytes, units[unit], per);
}

static void format_count(uint64_t value, char out[CELL_BYTES])
{
    char digits[CELL_BYTES];
    size_t len = (size_t)snprintf(digits, sizeof(digits), "%llu", (unsigned long long)value);
    size_t at = 0;

    for (size_t i = 0; i < len; i++) {
        if (i > 0 && (len - i) % 3 == 0)
            out[at++] = ',';
        out[at++] = digits[i];
    }
    out[at] = '\0';
}

enum cell_kind { CELL_COUNT, CELL_SHARE, CELL_RATIO, CELL_SECONDS, CELL_BYTES_MOVED, CELL_RATE };

#define FIELD(name) offsetof(struct spw_report, name)

/* The rows of the table below the policies. */
static const struct row {
    const char *label;
    enum cell_kind kind;
    size_t field;
    size_t whole; /* of a share */
} rows[] = {
    {"requests", CELL_COUNT, FIELD(requests), 0},
    {"blocks", CELL_COUNT, FIELD(blocks), 0},
    {"hit rate", CELL_SHARE, FIELD(hit_blocks), FIELD(blocks)},
    {"of it, from below", CELL_SHARE, FIELD(below_blocks), FIELD(blocks)},
    {"requests deferred", CELL_SHARE, FIELD(deferred_requests), FIELD(requests)},
    {"wait, mean", CELL_SECONDS, FIELD(wait_mean_s), 0},
    {"wait, p50", CELL_SECONDS, FIELD(wait_p50_s), 0},
    {"wait, p99", CELL_SECONDS, FIELD(wait_p99_s), 0},
    {"tokens recomputed", CELL_COUNT, FIELD(recomputed_tokens), 0},
    {"first token, mean", CELL_SECONDS, FIELD(ttft_mean_s), 0},
    {"first token, p50", CELL_SECONDS, FIELD(ttft_p50_s), 0},
    {"first token, p99", CELL_SECONDS, FIELD(ttft_p99_s), 0},
    {"waits with an ETA", CELL_COUNT, FIELD(eta_waits), 0},
    {"waits without", CELL_COUNT, FIELD(eta_unknown), 0},
    {"ETA error, mean", CELL_SECONDS, FIELD(eta_error_mean_s), 0},
    {"ETA error, p50", CELL_SECONDS, FIELD(eta_error_p50_s), 0},
    {"ETA error, p90", CELL_SECONDS, FIELD(eta_error_p90_s), 0},
    {"ETA error, of the wait", CELL_RATIO, FIELD(eta_error_share), 0},
    {"stores awaited", CELL_COUNT, FIELD(awaited_stores), 0},
    {"stores that overtook", CELL_COUNT, FIELD(overtaking_stores), 0},
    {"stored", CELL_BYTES_MOVED, FIELD(bytes_stored), 0},
    {"loaded", CELL_BYTES_MOVED, FIELD(bytes_loaded), 0},
    {"store rate, offered", CELL_RATE, FIELD(store_rate_offered), 0},
    {"store rate, achieved", CELL_RATE, FIELD(store_rate_achieved), 0},
    {"chunks verified", CELL_COUNT, FIELD(verified_chunks), 0},
    {"wrong bytes", CELL_COUNT, FIELD(wrong_bytes), 0},
};

static void format_cell(const struct spw_report *report, const struct row *row,
                        char out[CELL_BYTES])
{
    const void *field = (const char *)report + row->field;
    const void *whole = (const char *)report + row->whole;

    switch (row->kind) {
    case CELL_COUNT:
        format_count(*(const uint64_t *)field, out);
        break;
    case CELL_SHARE:
        snprintf(out, CELL_BYTES, "%.2f %%",
                 100 * share(*(const uint64_t *)field, *(const uint64_t *)whole));
        break;
    case CELL_RATIO:
        snprintf(out, CELL_BYTES, "%.2f %%", 100 * *(const double *)field);
        break;
    case CELL_SECONDS:
        snprintf(out, CELL_BYTES, "%.3f s", *(const double *)field);
        break;
    case CELL_BYTES_MOVED:
        format_bytes((double)*(const uint64_t *)field, "", out);
        break;
    case CELL_RATE:
        format_bytes(*(const double *)field, "/s", out);
        break;
    }
}

void spw_report_print_text(const struct spw_report *reports, size_t count, FILE *out)
{
    char cell[CELL_BYTES];
    int width = CELL_WIDTH;

    for (size_t i = 0; i < count; i++)
        if (strlen(reports[i].policy) > (size_t)width)
            width = (int)strlen(reports[i].policy);
    fprintf(out, "%-*s", LABEL_WIDTH, "policy");
    for (size_t i = 0; i < count; i++)
        fprintf(out, " %*s", width, reports[i].policy);
    fputc('\n', out);
    for (size_t r = 0; r < sizeof(rows) / sizeof(rows[0]); r++) {
        fprintf(out, "%-*s", LABEL_WIDTH, rows[r].label);
        for (size_t i = 0; i < count; i++) {
            format_cell(&reports[i], &rows[r], cell);
            fprintf(out, " %*s", width, cell);
        }
        fputc('\n', out);
    }
    for (size_t i = 0; i < count; i++) {
        if (reports[i].is_void)
            fprintf(out, "VOID: %s: %s\n", reports[i].policy, reports[i].reason);
        if (reports[i].wrong_bytes > 0)
            fprintf(out, "WRONG BYTES: %s: %llu\n", reports[i].policy,
                    (unsigned long long)reports[i].wrong_bytes);
    }
}

static json_t *json_of(const struct spw_report *r)
{
    return json_pack(
        "{s:i, s:s, s:I, s:I, s:I, s:I, s:f, s:f, s:f, s:I, s:f, s:f, s:I, s:I,"
        " s:f, s:f, s:I, s:I, s:f, s:f, s:b, s:s, s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:f, s:f,"
        " s:I, s:I, s:I}",
        "schema", SPW_REPORT_SCHEMA, "policy", r->policy, "requests", (json_int_t)r->requests,
        "blocks", (json_int_t)r->blocks, "hit_blocks", (json_int_t)r->hit_blocks, "resident_blocks",
        (json_int_t)r->resident_blocks, "deferred_share", share(r->deferred_requests, r->requests),
        "wait_mean_s", r->wait_mean_s, "wait_p99_s", r->wait_p99_s, "recomputed_tokens",
        (json_int_t)r->recomputed_tokens, "ttft_mean_s", r->ttft_mean_s, "ttft_p99_s",
        r->ttft_p99_s, "verified_chunks", (json_int_t)r->verified_chunks, "wrong_bytes",
        (json_int_t)r->wrong_bytes, "wait_p50_s", r->wait_p50_s, "ttft_p50_s", r->ttft_p50_s,
        "bytes_stored", (json_int_t)r->bytes_stored, "bytes_loaded", (json_int_t)r->bytes_loaded,
        "store_rate_offered", r->store_rate_offered, "store_rate_achieved", r->store_rate_achieved,
        "void", r->is_void, "reason", r->reason, "waits", (json_int_t)r->waits, "waits_hit",
        (json_int_t)r->waits_hit, "waits_cut", (json_int_t)r->waits_cut, "eta_waits",
        (json_int_t)r->eta_waits, "eta_unknown", (json_int_t)r->eta_unknown, "eta_error_mean_s",
        r->eta_error_mean_s, "eta_error_p50_s", r->eta_error_p50_s, "eta_error_p90_s",
        r->eta_error_p90_s, "eta_error_share", r->eta_error_share, "awaited_stores",
        (json_int_t)r->awaited_stores, "overtaking_stores", (json_int_t)r->overtaking_stores,
        "below_blocks", (json_int_t)r->below_blocks);
}

int spw_report_print_json(const struct spw_report *reports, size_t count, FILE *out)
{
    for (size_t i = 0; i < count; i++) {
        json_t *object = json_of(&reports[i]);
        char *text =
            object ? json_dumps(object, JSON_PRESERVE_ORDER | JSON_COMPACT | JSON_REAL_PRECISION(9))
                   : NULL;

        json_decref(object);
        if (!text)
            return -ENOMEM;
        fprintf(out, "%s\n", text);
        free(text);
    }
    return 0;
}
