/*
 * Section `bandwidth`: stores and loads by chunk and piece size, beside one big pinned copy of as many
 * bytes. Rounds of both in turn, medians. Big pieces are held to the target, small ones to none: the
 * kernel is there for them.
 */
#include <stdlib.h>
#include <string.h>

#include "bench/gpu/rate.h"

#define TARGET    0.95
#define BIG_PIECE (256u << 10)
#define ROUNDS    7u

static const struct check_cut cuts[] = {
    {1u << 20, 4u << 10}, {1u << 20, 16u << 10},  {1u << 20, 64u << 10},   {1u << 20, 256u << 10},
    {1u << 20, 1u << 20}, {4u << 20, 16u << 10},  {4u << 20, 64u << 10},   {4u << 20, 256u << 10},
    {4u << 20, 1u << 20}, {16u << 20, 64u << 10}, {16u << 20, 256u << 10}, {16u << 20, 1u << 20},
};
static const struct check_cut small_cuts[] = {
    {64u << 10, 2u << 10}, {64u << 10, 64u << 10}, {256u << 10, 1u << 10}};

struct pair {
    struct spw_bench_series ours, big;
};

static void tell(struct check_rate *rate, enum spw_copy_kind kind, struct pair *pair)
{
    struct check_line line = {
        .verdict = CHECK_FIGURE,
        .unit = "bytes/s",
        .value = spw_bench_percentile(&pair->ours, 0.5),
        .beside = "one big copy",
        .beside_value = spw_bench_percentile(&pair->big, 0.5),
        .target = rate->cut.piece_bytes >= BIG_PIECE ? TARGET : 0,
    };
    check_cut_name(&rate->cut, kind, line.name, sizeof line.name);
    check_report_add(&rate->check->report, &line);
}

/* The last copy of each round is ours, so that its bytes are there to be looked at. */
static int measure(struct check_rate *rate, struct check_way *way, enum spw_copy_kind kind,
                   struct pair *pair)
{
    uint32_t rounds = (uint32_t)check_size(rate->check, ROUNDS, 2);
    memset(pair, 0, sizeof *pair);
    int status = 0;
    for (uint32_t r = 0; r <= rounds && status == 0; r++) {
        if (r == 1) /* the first one was to warm up */
            pair->ours.count = pair->big.count = 0;
        status = check_rate_big(rate, kind, &pair->big);
        if (status == 0)
            status = check_rate_sample(rate, way, kind, &pair->ours);
    }
    return status;
}

static int try_cut(struct check_rate *rate, const struct check_cut *cut, struct pair *pair)
{
    struct check_way way = {.check = NULL};
    int status = check_rate_cut(rate, cut);
    if (status == 0) {
        struct spw_kv_record *record = check_ground_record(&rate->ground, rate->kv);
        status = check_way_open(rate->check, CHECK_BY_BATCH, record, &way);
        if (status == -ENOTSUP)
            status = check_way_open(rate->check, CHECK_BY_PIECE, record, &way);
        free(record);
    }
    if (status == 0)
        status = measure(rate, &way, SPW_COPY_STORE, pair);
    if (status == 0)
        status = check_rate_verify(rate, "stored");
    if (status == 0)
        tell(rate, SPW_COPY_STORE, pair);
    if (status == 0)
        status = measure(rate, &way, SPW_COPY_LOAD, pair);
    if (status == 0)
        tell(rate, SPW_COPY_LOAD, pair);
    if (status == 0)
        status = check_rate_sample(rate, &way, SPW_COPY_STORE, &pair->ours);
    if (status == 0)
        status = check_rate_verify_loads(rate, &way);
    check_way_close(&way);
    return status;
}

int check_bandwidth(struct check *check)
{
    const struct check_cut *cut = check->small ? small_cuts : cuts;
    size_t count = check->small ? sizeof small_cuts / sizeof *cut : sizeof cuts / sizeof *cut;
    struct check_rate rate;
    struct pair *pair = malloc(sizeof *pair);
    if (!pair)
        return spw_fail(&check->err, -ENOMEM, "no memory for samples");
    int status = check_rate_open(check, check_size(check, 256ull << 20, 1ull << 20), &rate);
    for (size_t i = 0; i < count && status == 0; i++) {
        status = check_time(check);
        if (status == 0)
            status = try_cut(&rate, &cut[i], pair);
    }
    if (rate.check)
        check_rate_close(&rate);
    free(pair);
    return status;
}
