/* ETA of a store from its stream: arithmetic, stalls, nonsense from outside. */
#include "tier/eta.h"

#include <criterion/criterion.h>

#define MS 1000000ull
#define S  1000000000ull

/* 1000 bytes done, 5000 more to go, a byte a millisecond, the last copy ended at 10 s. */
static const struct spw_stream_sample stream = {
    .done_bytes = 1000,
    .queued_bytes = 6000,
    .awaited_bytes = 1500,
    .rate_bytes_per_s = 1000,
    .progress_ns = 10 * S,
};

Test(eta, is_what_lies_before_by_the_rate)
{
    cr_expect_eq(spw_stream_eta(&stream, 3000, 100, 10 * S), 2 * S);
    cr_expect_eq(spw_stream_eta(&stream, 3000, 100, 10 * S + 60 * MS), 1940 * MS,
                 "the copy that runs has come that far");
    cr_expect_eq(spw_stream_eta(&stream, 3000, 100, 10 * S + 500 * MS), 1900 * MS,
                 "but no further than one copy");
    cr_expect_eq(spw_stream_eta(&stream, 900, 100, 10 * S), 0, "its turn has passed");
}

Test(eta, of_a_chunk_not_queued_is_behind_all)
{
    cr_expect_eq(spw_stream_eta(&stream, 0, 100, 10 * S), 5100 * MS);
}

Test(eta, awaited_goes_behind_the_awaited_only)
{
    cr_expect_eq(spw_stream_place_awaited(&stream, 200), 1700);
    struct spw_stream_sample none = stream;
    none.awaited_bytes = 0;
    cr_expect_eq(spw_stream_place_awaited(&none, 200), 1200);
}

Test(eta, unknown_without_a_rate_and_in_a_stall)
{
    struct spw_stream_sample fresh = stream;
    fresh.rate_bytes_per_s = 0;
    cr_expect_eq(spw_stream_eta(&fresh, 3000, 100, 10 * S), SPW_ETA_UNKNOWN);
    /* a chunk takes 100 ms: a stall is more than 1.4 s */
    cr_expect_eq(spw_stream_eta(&stream, 3000, 100, 10 * S + 1400 * MS), 1900 * MS);
    cr_expect_eq(spw_stream_eta(&stream, 3000, 100, 10 * S + 1405 * MS), SPW_ETA_UNKNOWN);
    /* a slow chunk is no stall */
    cr_expect_neq(spw_stream_eta(&stream, 6000, 2000, 10 * S + 5 * S), SPW_ETA_UNKNOWN);
}

Test(eta, an_idle_stream_is_not_stalled)
{
    struct spw_stream_sample idle = stream;
    idle.done_bytes = idle.queued_bytes;
    cr_expect_eq(spw_stream_eta(&idle, 0, 100, 1000 * S), 100 * MS);
}

Test(eta, nonsense_neither_wraps_nor_divides_by_zero)
{
    const uint64_t values[] = {0, 1, 1000, UINT64_MAX / 2, UINT64_MAX - 1, UINT64_MAX};
    const unsigned n = sizeof values / sizeof values[0];
    for (unsigned i = 0; i < n * n * n * n; i++) {
        struct spw_stream_sample odd = {values[i % n], values[i / n % n], values[i / n % n],
                                        values[i / n / n % n], values[i / n / n / n]};
        uint64_t place = spw_stream_place_awaited(&odd, values[i % n]);
        cr_assert_geq(place, odd.done_bytes);
        uint64_t near = spw_stream_eta(&odd, 1000, values[i / n % n], values[i % n]);
        uint64_t far = spw_stream_eta(&odd, UINT64_MAX, values[i / n % n], values[i % n]);
        cr_assert_leq(near, far);
    }
}
