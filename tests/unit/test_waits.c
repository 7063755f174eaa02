/* Limits, samples and histograms of waits, on a clock of the test's own; LK-2, LK-5, OB-5. */
#include "sched/waits.h"

#include <criterion/criterion.h>
#include <string.h>

TestSuite(waits, .timeout = 10);

#define MS 1000000ull
#define S  (1000 * MS)

static const struct spw_wait_limits limits = {.ns = {5 * S, 50 * MS}};

/* A chunk of 16 tokens that reads PENDING (or RETRY): what an evaluation at @now makes of it. */
static bool asked(struct spw_wait_clock *clock, enum spw_wait_kind kind, uint64_t chunk,
                  uint64_t now)
{
    spw_wait_pause(clock, now);
    if (16 * chunk + 16 <= spw_wait_expired_tokens(clock, kind, &limits))
        return false;
    spw_wait_begin(clock, kind, 16 * chunk, 16 * chunk + 16, now);
    return true;
}

Test(waits, a_wait_ends_at_its_limit_for_this_request_alone) /* LK-2 */
{
    struct spw_wait_clock clock = {0}, other = {0};
    for (uint64_t t = 0; t < 5; t++)
        cr_assert(asked(&clock, SPW_WAIT_FOR_PENDING, 0, 100 * S + t * S), "%lu s",
                  (unsigned long)t);
    cr_assert(asked(&clock, SPW_WAIT_FOR_PENDING, 0, 105 * S - 1));
    cr_assert_eq(spw_wait_deadline(&clock, &limits), 105 * S);
    cr_assert(!asked(&clock, SPW_WAIT_FOR_PENDING, 0, 105 * S));
    cr_assert(!asked(&clock, SPW_WAIT_FOR_PENDING, 0, 200 * S));
    cr_assert(asked(&other, SPW_WAIT_FOR_PENDING, 0, 105 * S));
}

Test(waits, time_between_waits_is_not_charged)
{
    struct spw_wait_clock clock = {0};
    spw_wait_begin(&clock, SPW_WAIT_FOR_PENDING, 0, 16, 0);
    spw_wait_pause(&clock, 2 * S);
    spw_wait_pause(&clock, 50 * S);
    cr_assert_eq(clock.waited_ns[SPW_WAIT_FOR_PENDING], 2 * S);
    cr_assert_eq(spw_wait_deadline(&clock, &limits), UINT64_MAX);
    spw_wait_begin(&clock, SPW_WAIT_FOR_PENDING, 0, 16, 60 * S);
    cr_assert_eq(spw_wait_deadline(&clock, &limits), 63 * S);
    spw_wait_pause(&clock, 63 * S);
    cr_assert_eq(spw_wait_expired_tokens(&clock, SPW_WAIT_FOR_PENDING, &limits), 16);
}

Test(waits, progress_within_the_run_goes_on_with_the_clock)
{
    struct spw_wait_clock clock = {0};
    spw_wait_begin(&clock, SPW_WAIT_FOR_PENDING, 0, 64, 0);
    spw_wait_begin(&clock, SPW_WAIT_FOR_PENDING, 16, 64, 1 * S);  /* one became a hit */
    spw_wait_begin(&clock, SPW_WAIT_FOR_PENDING, 48, 128, 3 * S); /* and more is written */
    cr_assert_eq(spw_wait_deadline(&clock, &limits), 5 * S);
    spw_wait_pause(&clock, 5 * S);
    cr_assert_eq(spw_wait_expired_tokens(&clock, SPW_WAIT_FOR_PENDING, &limits), 128);
}

Test(waits, a_write_that_fails_and_is_tried_again_does_not_restart_the_clock)
{
    struct spw_wait_clock clock = {0};
    spw_wait_begin(&clock, SPW_WAIT_FOR_PENDING, 0, 64, 0);
    spw_wait_pause(&clock, 4 * S); /* failed: a miss, the request runs */
    spw_wait_begin(&clock, SPW_WAIT_FOR_PENDING, 0, 32, 10 * S);
    cr_assert_eq(spw_wait_deadline(&clock, &limits), 11 * S);
    spw_wait_pause(&clock, 11 * S);
    cr_assert_eq(spw_wait_expired_tokens(&clock, SPW_WAIT_FOR_PENDING, &limits), 64);
}

Test(waits, chunks_behind_all_those_charged_are_another_prefix)
{
    struct spw_wait_clock clock = {0};
    spw_wait_begin(&clock, SPW_WAIT_FOR_PENDING, 0, 64, 0);
    spw_wait_begin(&clock, SPW_WAIT_FOR_PENDING, 64, 80, 4 * S);
    cr_assert_eq(spw_wait_deadline(&clock, &limits), 9 * S);
    spw_wait_pause(&clock, 8 * S);
    cr_assert_eq(spw_wait_expired_tokens(&clock, SPW_WAIT_FOR_PENDING, &limits), 0);
    cr_assert(asked(&clock, SPW_WAIT_FOR_PENDING, 4, 8 * S));
    cr_assert(!asked(&clock, SPW_WAIT_FOR_PENDING, 4, 9 * S));
    cr_assert(asked(&clock, SPW_WAIT_FOR_PENDING, 5, 9 * S)); /* ends beyond what is charged */
}

Test(waits, retry_has_a_limit_of_its_own) /* LK-5 */
{
    struct spw_wait_clock clock = {0};
    spw_wait_begin(&clock, SPW_WAIT_FOR_PENDING, 0, 16, 0);
    cr_assert(asked(&clock, SPW_WAIT_FOR_RETRY, 0, 1 * S));
    cr_assert_eq(spw_wait_deadline(&clock, &limits), 1 * S + 50 * MS);
    cr_assert(asked(&clock, SPW_WAIT_FOR_RETRY, 0, 1 * S + 30 * MS));
    cr_assert(asked(&clock, SPW_WAIT_FOR_RETRY, 0, 1 * S + 50 * MS - 1));
    cr_assert(!asked(&clock, SPW_WAIT_FOR_RETRY, 0, 1 * S + 50 * MS));
    cr_assert(asked(&clock, SPW_WAIT_FOR_PENDING, 0, 2 * S));
    cr_assert_eq(spw_wait_deadline(&clock, &limits), 6 * S);
}

Test(waits, limits_of_nothing_and_of_all)
{
    const struct spw_wait_limits never = {.ns = {UINT64_MAX, 0}};
    const struct spw_wait_limits far = {.ns = {UINT64_MAX - 1, 0}};
    struct spw_wait_clock clock = {0};
    cr_assert_eq(spw_wait_expired_tokens(&clock, SPW_WAIT_FOR_RETRY, &never), UINT64_MAX);
    spw_wait_begin(&clock, SPW_WAIT_FOR_PENDING, 0, 16, 5);
    cr_assert_eq(spw_wait_deadline(&clock, &never), UINT64_MAX);
    cr_assert_eq(spw_wait_deadline(&clock, &far), UINT64_MAX);
    spw_wait_pause(&clock, UINT64_MAX - 1);
    cr_assert_eq(spw_wait_expired_tokens(&clock, SPW_WAIT_FOR_PENDING, &never), 0);
    spw_wait_begin(&clock, SPW_WAIT_FOR_PENDING, 0, 16, 7);
    spw_wait_pause(&clock, UINT64_MAX); /* more than 64 bits hold */
    cr_assert_eq(clock.waited_ns[SPW_WAIT_FOR_PENDING], UINT64_MAX);
    spw_wait_begin(&clock, SPW_WAIT_FOR_PENDING, 0, 16, 7); /* past it: the deadline is here */
    cr_assert_eq(spw_wait_deadline(&clock, &limits), 7);
}

/* ---- samples --------------------------------------------------------------------------------- */

Test(waits, outcomes_follow_from_the_decision_and_what_was_waited_for)
{
    static const struct {
        enum spw_action action;
        enum spw_reason reason, deferred;
        enum spw_wait_outcome outcome;
    } row[] = {
        {SPW_ACTION_LOAD, SPW_REASON_COMPLETE, SPW_REASON_PENDING, SPW_WAIT_HIT},
        {SPW_ACTION_LOAD, SPW_REASON_COMPLETE, SPW_REASON_RETRY, SPW_WAIT_HIT},
        {SPW_ACTION_LOAD, SPW_REASON_TAIL, SPW_REASON_TAIL_PENDING, SPW_WAIT_HIT},
        {SPW_ACTION_LOAD, SPW_REASON_COMPLETE, SPW_REASON_LOADING, SPW_WAIT_HIT},
        {SPW_ACTION_LOAD, SPW_REASON_CUT, SPW_REASON_PENDING, SPW_WAIT_CUT},
        {SPW_ACTION_MISS, SPW_REASON_LEADING_PENDING, SPW_REASON_RETRY, SPW_WAIT_CUT},
        {SPW_ACTION_LOAD, SPW_REASON_LOAD_LIMIT, SPW_REASON_PENDING, SPW_WAIT_EXPIRED},
        {SPW_ACTION_MISS, SPW_REASON_MISS_LIMIT, SPW_REASON_RETRY, SPW_WAIT_EXPIRED},
        {SPW_ACTION_LOAD, SPW_REASON_LOAD_NOT_PROMOTED, SPW_REASON_PENDING, SPW_WAIT_LOST},
        {SPW_ACTION_MISS, SPW_REASON_MISS_NOT_PROMOTED, SPW_REASON_TAIL_PENDING, SPW_WAIT_LOST},
        {SPW_ACTION_MISS, SPW_REASON_GROUP_MISS, SPW_REASON_RETRY, SPW_WAIT_RETRY},
        {SPW_ACTION_MISS, SPW_REASON_GROUP_MISS, SPW_REASON_TAIL_RETRY, SPW_WAIT_RETRY},
        {SPW_ACTION_MISS, SPW_REASON_GROUP_MISS, SPW_REASON_PENDING, SPW_WAIT_LOST},
        {SPW_ACTION_MISS, SPW_REASON_SHORT, SPW_REASON_TAIL_PENDING, SPW_WAIT_LOST},
        {SPW_ACTION_MISS, SPW_REASON_GROUP_MISS, SPW_REASON_LOADING, SPW_WAIT_LOST},
    };
    for (size_t i = 0; i < sizeof(row) / sizeof(row[0]); i++)
        cr_expect_eq(spw_wait_outcome_of(row[i].action, row[i].reason, row[i].deferred),
                     row[i].outcome, "row %zu", i);
    for (uint32_t i = 0; i < SPW_WAIT_OUTCOMES; i++)
        cr_assert_not_null(spw_wait_outcome_name(i));
    cr_assert_str_eq(spw_wait_outcome_name(SPW_WAIT_RETRY), "retry");
    cr_assert_null(spw_wait_outcome_name(SPW_WAIT_OUTCOMES));
}

/* A client with one request: its evaluations, and the waits as its client.c shows them. */
static struct spw_wait_record record[SPW_WAIT_OUTCOMES];
static struct spw_wait_sample sample;

static bool evaluated(enum spw_action action, enum spw_reason reason, uint64_t now)
{
    uint64_t waited = 77;
    enum spw_wait_outcome outcome = SPW_WAIT_OUTCOMES;
    bool ended = spw_wait_evaluated(&sample, action, reason, now, &waited, &outcome);
    cr_assert(ended || (waited == 77 && outcome == SPW_WAIT_OUTCOMES));
    if (ended)
        spw_wait_record_add(&record[outcome], waited);
    return ended;
}

static bool deferred(enum spw_reason reason, uint64_t now)
{
    return evaluated(SPW_ACTION_DEFER, reason, now);
}

static void check(enum spw_wait_outcome outcome, uint64_t count, uint64_t sum_ns)
{
    struct spw_wait_histogram summary;
    spw_wait_record_read(&record[outcome], &summary);
    cr_expect_eq(summary.count, count, "%s", spw_wait_outcome_name(outcome));
    cr_expect_eq(summary.sum_ns, sum_ns, "%s", spw_wait_outcome_name(outcome));
}

Test(waits, each_wait_is_one_sample_under_its_outcome) /* OB-5 */
{
    uint64_t waited;
    deferred(SPW_REASON_PENDING, 1 * S);
    deferred(SPW_REASON_PENDING, 1 * S + 4 * MS);
    cr_assert(evaluated(SPW_ACTION_LOAD, SPW_REASON_COMPLETE, 1 * S + 10 * MS));
    cr_assert(!evaluated(SPW_ACTION_LOAD, SPW_REASON_COMPLETE, 1 * S + 15 * MS));

    deferred(SPW_REASON_PENDING, 2 * S); /* the same request once more, then its end */
    cr_assert(spw_wait_cancelled(&sample, 2 * S + 20 * MS, &waited));
    spw_wait_record_add(&record[SPW_WAIT_CANCELLED], waited);
    cr_assert(!spw_wait_cancelled(&sample, 3 * S, &waited));

    deferred(SPW_REASON_PENDING, 3 * S);
    evaluated(SPW_ACTION_MISS, SPW_REASON_MISS_LIMIT, 8 * S);

    cr_assert(!evaluated(SPW_ACTION_LOAD, SPW_REASON_CUT, 9 * S)); /* cut at once */

    check(SPW_WAIT_HIT, 1, 10 * MS);
    check(SPW_WAIT_CANCELLED, 1, 20 * MS);
    check(SPW_WAIT_EXPIRED, 1, 5 * S);
    check(SPW_WAIT_CUT, 0, 0);
    check(SPW_WAIT_RETRY, 0, 0);
    check(SPW_WAIT_LOST, 0, 0);
}

Test(waits, transfers_of_its_own_neither_start_nor_stop_a_sample)
{
    uint64_t waited;
    deferred(SPW_REASON_TRANSFER, 1 * S);
    cr_assert(!spw_wait_cancelled(&sample, 2 * S, &waited));
    cr_assert(!evaluated(SPW_ACTION_LOAD, SPW_REASON_COMPLETE, 2 * S));
    deferred(SPW_REASON_RETRY, 3 * S);
    deferred(SPW_REASON_TRANSFER, 4 * S);
    evaluated(SPW_ACTION_MISS, SPW_REASON_GROUP_MISS, 5 * S);
    check(SPW_WAIT_RETRY, 1, 2 * S); /* the last wait was for RETRY all the same */
    deferred(SPW_REASON_RETRY, 6 * S);
    deferred(SPW_REASON_LOADING, 7 * S);
    evaluated(SPW_ACTION_MISS, SPW_REASON_GROUP_MISS, 8 * S);
    check(SPW_WAIT_LOST, 1, 2 * S);
}

/* ---- histograms ------------------------------------------------------------------------------ */

Test(waits, a_bucket_counts_waits_below_its_power_of_two_microseconds)
{
    static const struct {
        uint64_t ns;
        uint32_t bucket;
    } row[] = {{0, 0},
               {999, 0},
               {1000, 1},
               {1999, 1},
               {2000, 2},
               {3999, 2},
               {4000, 3},
               {1024000, 11},
               {1023999, 10},
               {(1000ull << 30) - 1, 30},
               {1000ull << 30, 31},
               {UINT64_MAX, 31}};
    for (size_t i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
        struct spw_wait_record one = {0};
        struct spw_wait_histogram summary;
        spw_wait_record_add(&one, row[i].ns);
        spw_wait_record_read(&one, &summary);
        cr_expect_eq(summary.bucket[row[i].bucket], 1, "%lu ns", (unsigned long)row[i].ns);
        cr_expect_eq(summary.count, 1);
        cr_expect_eq(summary.sum_ns, row[i].ns);
    }
}

Test(waits, percentiles_lie_in_their_buckets)
{
    struct spw_wait_record some = {0};
    struct spw_wait_histogram summary;
    spw_wait_record_read(&some, &summary);
    cr_assert_eq(spw_wait_percentile_ns(&summary, 0.5), 0);
    for (uint32_t i = 0; i < 90; i++)
        spw_wait_record_add(&some, 3000); /* 2 to 4 us */
    for (uint32_t i = 0; i < 10; i++)
        spw_wait_record_add(&some, 100 * MS); /* 65.5 to 131 ms */
    spw_wait_record_read(&some, &summary);
    cr_assert_eq(summary.count, 100);
    cr_assert_eq(spw_wait_percentile_ns(&summary, 0.45), 3000);
    cr_assert_eq(spw_wait_percentile_ns(&summary, 0.9), 4000);
    cr_assert_eq(spw_wait_percentile_ns(&summary, 0.95), 65536000 + 32768000);
    cr_assert_eq(spw_wait_percentile_ns(&summary, 1), 131072000);
    spw_wait_record_add(&some, UINT64_MAX / 2);
    spw_wait_record_read(&some, &summary);
    cr_assert_eq(spw_wait_percentile_ns(&summary, 1), 1000ull << 30);
}
