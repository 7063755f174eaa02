/*
 * Section `kernel`: the gather kernel beside the batch call by piece size, stores and loads together, and
 * up to which size pieces should go by it: spillwayd's --gpu-kernel-below.
 */
#include <stdlib.h>
#include <string.h>

#include "bench/gpu/rate.h"

#define ROUNDS      5u
#define CHUNK_BYTES (1u << 20)
#define SMALL_CHUNK (64u << 10)
#define FIRST_PIECE (1u << 10)
#define LAST_PIECE  (256u << 10)
#define SMALL_LAST  (4u << 10)

struct match {
    struct check_way by[2];               /* batch call, kernel */
    struct spw_bench_series series[2][2]; /* likewise, by kind */
};

static int open_both(struct check_rate *rate, struct match *match)
{
    struct spw_kv_record *record = check_ground_record(&rate->ground, rate->kv);
    int status = check_way_open(rate->check, CHECK_BY_BATCH, record, &match->by[0]);
    if (status == 0)
        status = check_way_open(rate->check, CHECK_BY_KERNEL, record, &match->by[1]);
    free(record);
    return status;
}

static int measure(struct check_rate *rate, struct match *match)
{
    uint32_t rounds = (uint32_t)check_size(rate->check, ROUNDS, 2);
    int status = 0;
    for (uint32_t r = 0; r <= rounds && status == 0; r++)
        for (int kind = 0; kind < 2 && status == 0; kind++)
            for (int b = 0; b < 2 && status == 0; b++) {
                if (r == 1)
                    match->series[b][kind].count = 0;
                status = check_rate_sample(rate, &match->by[b], (enum spw_copy_kind)kind,
                                           &match->series[b][kind]);
            }
    for (int b = 0; b < 2 && status == 0; b++) {
        status = check_way_kept(&match->by[b]);
        if (status == 0)
            status = check_rate_verify_loads(rate, &match->by[b]);
    }
    return status;
}

static void tell(struct check_rate *rate, struct match *match, enum spw_copy_kind kind)
{
    struct check_line line = {
        .verdict = CHECK_FIGURE,
        .unit = "bytes/s",
        .value = spw_bench_percentile(&match->series[1][kind], 0.5),
        .beside = "batch call",
        .beside_value = spw_bench_percentile(&match->series[0][kind], 0.5),
    };
    check_cut_name(&rate->cut, kind, line.name, sizeof line.name);
    check_report_add(&rate->check->report, &line);
}

/* Time of a byte, stored and loaded. */
static double cost(struct match *match, int b)
{
    return 1 / spw_bench_percentile(&match->series[b][SPW_COPY_STORE], 0.5) +
           1 / spw_bench_percentile(&match->series[b][SPW_COPY_LOAD], 0.5);
}

static int try_piece(struct check_rate *rate, uint32_t piece_bytes, struct match *match,
                     bool *out_faster)
{
    struct check_cut cut = {(uint32_t)check_size(rate->check, CHUNK_BYTES, SMALL_CHUNK),
                            piece_bytes};
    memset(match, 0, sizeof *match);
    int status = check_rate_cut(rate, &cut);
    if (status == 0)
        status = open_both(rate, match);
    if (status == 0)
        status = measure(rate, match);
    if (status == 0) {
        tell(rate, match, SPW_COPY_STORE);
        tell(rate, match, SPW_COPY_LOAD);
        *out_faster = cost(match, 1) < cost(match, 0);
    }
    check_way_close(&match->by[0]);
    check_way_close(&match->by[1]);
    return status;
}

static void tell_threshold(struct check *check, uint64_t bytes)
{
    struct check_line line = {.name = "for --gpu-kernel-below: all pieces up to",
                              .verdict = CHECK_FIGURE,
                              .unit = "bytes",
                              .value = (double)bytes};
    check_report_add(&check->report, &line);
    pthread_mutex_lock(&check->report.lock);
    check->report.kernel_below_bytes = (int64_t)bytes;
    pthread_mutex_unlock(&check->report.lock);
}

/* The largest size up to which the kernel was faster at every size. */
static int find_threshold(struct check *check, struct check_rate *rate, struct match *match)
{
    uint32_t last = (uint32_t)check_size(check, LAST_PIECE, SMALL_LAST);
    uint64_t threshold = 0;
    bool faster = false, so_far = true;
    int status = 0;
    for (uint32_t piece = FIRST_PIECE; piece <= last && status == 0; piece *= 2) {
        status = check_time(check);
        if (status == 0)
            status = try_piece(rate, piece, match, &faster);
        so_far = so_far && faster;
        if (status == 0 && so_far)
            threshold = piece;
    }
    if (status == 0)
        tell_threshold(check, threshold);
    return status;
}

int check_kernel(struct check *check)
{
    struct check_rate rate;
    struct match *match = malloc(sizeof *match);
    if (!match)
        return spw_fail(&check->err, -ENOMEM, "no memory for samples");
    int status = check_rate_open(check, check_size(check, 64ull << 20, 256ull << 10), &rate);
    if (status == 0)
        status = find_threshold(check, &rate, match);
    if (rate.check)
        check_rate_close(&rate);
    free(match);
    if (status == -ENOTSUP) {
        check_report_say(&check->report, "the kernel beside the batch call", CHECK_NOT_RUN, "%s",
                         check->err.text);
        status = 0;
    }
    return status;
}
