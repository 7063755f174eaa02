/* tools/workload: the same everywhere, and as loaded as it says. */
#include "tools/workload.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

TestSuite(workload, .timeout = 60);

static struct spw_trace generated(uint64_t seed)
{
    struct spw_workload workload = SPW_WORKLOAD_DEFAULT;
    struct spw_trace trace;

    workload.seed = seed;
    cr_assert_eq(spw_trace_generate(&workload, &trace), 0);
    return trace;
}

static uint64_t fingerprint(const struct spw_trace *trace)
{
    uint64_t sum = XXH3_64bits(trace->ids, trace->id_count * sizeof(*trace->ids));

    for (uint64_t i = 0; i < trace->request_count; i++) {
        const uint64_t fields[] = {sum, (uint64_t)trace->requests[i].arrival_ns,
                                   trace->requests[i].input_tokens,
                                   trace->requests[i].output_tokens};

        sum = XXH3_64bits(fields, sizeof(fields));
    }
    return sum;
}

Test(workload, a_seed_gives_one_trace_and_seeds_differ)
{
    struct spw_trace a = generated(1), b = generated(1), c = generated(2);

    cr_expect_eq(fingerprint(&a), fingerprint(&b));
    cr_expect_neq(fingerprint(&a), fingerprint(&c));
    cr_expect_eq(fingerprint(&a), 2748316663175898727ull, "the default workload changed: %lu",
                 fingerprint(&a));
    spw_trace_fini(&a);
    spw_trace_fini(&b);
    spw_trace_fini(&c);
}

Test(workload, requests_are_well_formed_and_in_order)
{
    struct spw_trace trace = generated(3);
    int64_t last_ns = 0;

    cr_expect_eq(trace.requests[0].arrival_ns, 0);
    for (uint64_t i = 0; i < trace.request_count; i++) {
        const struct spw_trace_request *request = &trace.requests[i];

        cr_assert(request->arrival_ns >= last_ns && request->arrival_ns < 900000000000);
        cr_assert(request->input_tokens >= 1000 && request->input_tokens <= 131072);
        cr_assert_eq(request->id_count, (request->input_tokens + 511) / 512);
        last_ns = request->arrival_ns;
    }
    cr_expect(last_ns > 880000000000);
    spw_trace_fini(&trace);
}

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

/* Tokens in full blocks that no earlier request had, a second. */
static double new_tokens_per_s(const struct spw_trace *trace)
{
    uint64_t *ids = malloc(trace->id_count * sizeof(*ids)), count = 0, new_blocks = 0;

    for (uint64_t r = 0; r < trace->request_count; r++)
        for (uint32_t i = 0; i < trace->requests[r].full_count; i++)
            ids[count++] = trace->ids[trace->requests[r].ids_off + i];
    qsort(ids, count, sizeof(*ids), by_value);
    for (uint64_t i = 0; i < count; i++)
        new_blocks += i == 0 || ids[i] != ids[i - 1];
    free(ids);
    return (double)(new_blocks * 512) / 900;
}

Test(workload, every_seed_nearly_saturates_four_store_streams)
{
    const double stream = 4 * 2e9 / 327680; /* tokens a second that can be stored */

    for (uint64_t seed = 1; seed <= 4; seed++) {
        struct spw_trace trace = generated(seed);
        double offered = new_tokens_per_s(&trace) / stream;

        cr_expect(offered > 0.90 && offered < 0.96, "seed %lu: %f", seed, offered);
        spw_trace_fini(&trace);
    }
}

Test(workload, parameters_without_sense_are_refused)
{
    struct spw_workload bad[9];
    struct spw_trace trace;

    for (int i = 0; i < 9; i++)
        bad[i] = SPW_WORKLOAD_DEFAULT;
    bad[0].block_tokens = 0;
    bad[1].assistants = 0;
    bad[2].readers_max = 0;
    bad[3].turns_max = 0;
    bad[4].document_percent = 101;
    bad[5].new_tokens_per_s = 0;
    bad[6].duration_ns = 1;
    bad[7].duration_ns = 1ull << 63;
    bad[8].new_tokens_per_s = UINT64_MAX;
    for (int i = 0; i < 9; i++)
        cr_expect_eq(spw_trace_generate(&bad[i], &trace), -EINVAL, "%d", i);
}
