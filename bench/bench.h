#ifndef SPW_BENCH_BENCH_H
#define SPW_BENCH_BENCH_H
/*
 * The bench harness: cases by name, samples, one line a case beside its floor or peer.
 *
 * A case measures ours and, interleaved in the same run, what it is held against; it checks its own
 * results. Ratios of medians are what counts: single times on a shared machine mean little.
 */
#include <stdbool.h>
#include <stdint.h>

#define SPW_BENCH_SAMPLES_MAX 4096u

struct spw_bench_series {
    double value[SPW_BENCH_SAMPLES_MAX];
    uint32_t count;
};

/** What one case found. Higher may be better (rates) or worse (times): the unit tells. */
struct spw_bench_line {
    const char *bench; /* "lookup"      */
    const char *name;  /* "256_keys_1M" */
    const char *unit;  /* "ns", "bytes/s", "records/s", ... */
    const struct spw_bench_series *ours;
    const char *against; /* NULL: nothing to hold it against */
    const struct spw_bench_series *theirs;
};

struct spw_bench_run; /* the options of this run */

/** A family of cases; it asks spw_bench_wants() before it measures one. 0, or -errno: a check of
 * results failed or something could not be set up (words on stderr). */
typedef int (*spw_bench_fn)(struct spw_bench_run *run);

int spw_bench_ring(struct spw_bench_run *run);
int spw_bench_lookup(struct spw_bench_run *run);
int spw_bench_decision(struct spw_bench_run *run);
int spw_bench_deferred(struct spw_bench_run *run);
int spw_bench_table(struct spw_bench_run *run);
int spw_bench_order(struct spw_bench_run *run);
int spw_bench_copy(struct spw_bench_run *run);
int spw_bench_lane(struct spw_bench_run *run);
int spw_bench_path(struct spw_bench_run *run);
int spw_bench_wakeup(struct spw_bench_run *run);
int spw_bench_nvme(struct spw_bench_run *run);

/** Does --filter ask for this case? */
bool spw_bench_wants(const struct spw_bench_run *run, const char *bench, const char *name);
/** True in --smoke: tiny sizes, counts checked, times meaningless. */
bool spw_bench_smoke(const struct spw_bench_run *run);
/** @full, or a small share of it in --smoke. */
uint64_t spw_bench_size(const struct spw_bench_run *run, uint64_t full, uint64_t smoke);
/** Print one case. */
void spw_bench_report(struct spw_bench_run *run, const struct spw_bench_line *line);

void spw_bench_add(struct spw_bench_series *series, double value);
/** Nearest-rank percentile, 0 < @share <= 1; sorts. */
double spw_bench_percentile(struct spw_bench_series *series, double share);

/** Nanoseconds of CLOCK_MONOTONIC; ordered against what stands before and after. */
uint64_t spw_bench_now_ns(void);
/** Bind this thread to the @i-th CPU it may use. False where there are fewer. */
bool spw_bench_pin(uint32_t i);
/** A number that the compiler can't follow. */
void spw_bench_use(uint64_t value);
/** xorshift; never 0. */
uint64_t spw_bench_random(uint64_t *state);

#endif
