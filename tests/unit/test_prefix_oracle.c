/* The reference for cache-only replay against a simpler model, its own rules and known numbers. */
#include "tests/support/prefix_oracle.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/workload.h"

TestSuite(prefix_oracle, .timeout = 60);

static struct spw_trace trace_of(const uint64_t *const *lines, const uint32_t *counts, size_t count)
{
    struct spw_trace trace;

    spw_trace_init(&trace, 1);
    for (size_t i = 0; i < count; i++)
        cr_assert_eq(spw_trace_append(&trace, 0, counts[i], 0, lines[i]), 0);
    return trace;
}

Test(prefix_oracle, a_request_longer_than_the_cache_leaves_its_head)
{
    static const uint64_t line[] = {1, 2, 3, 4, 5};
    const uint64_t *const lines[] = {line, line};
    const uint32_t counts[] = {5, 5};
    struct spw_trace trace = trace_of(lines, counts, 2);
    struct spw_oracle *oracle = spw_oracle_open(&trace, 2, false);
    uint32_t hit, resident;

    spw_oracle_step(oracle, 0, &hit, &resident);
    cr_expect_eq(hit, 0);
    for (uint32_t i = 0; i < 5; i++)
        cr_expect_eq(spw_oracle_holds(oracle, trace.ids[i]), i < 2, "%u", i);
    spw_oracle_step(oracle, 1, &hit, &resident);
    cr_expect_eq(hit, 2);
    cr_expect_eq(resident, 2);
    spw_oracle_close(oracle);
    spw_trace_fini(&trace);
}

Test(prefix_oracle, the_deepest_chunk_goes_first)
{
    static const uint64_t a[] = {1, 2, 3}, b[] = {7}, c[] = {8};
    const uint64_t *const lines[] = {a, b, c, a};
    const uint32_t counts[] = {3, 1, 1, 3};
    struct spw_trace trace = trace_of(lines, counts, 4);
    struct spw_oracle *oracle = spw_oracle_open(&trace, 4, false);
    uint32_t hit, resident;

    spw_oracle_step(oracle, 0, &hit, &resident);
    spw_oracle_step(oracle, 1, &hit, &resident);
    cr_expect(spw_oracle_holds(oracle, trace.ids[2]));
    spw_oracle_step(oracle, 2, &hit, &resident);
    cr_expect_not(spw_oracle_holds(oracle, trace.ids[2]));
    spw_oracle_step(oracle, 3, &hit, &resident);
    cr_expect_eq(hit, 2);
    cr_expect_eq(spw_oracle_result(oracle).hit_blocks, 2);
    spw_oracle_close(oracle);
    spw_trace_fini(&trace);
}

/* The rules word for word, over an array in order of recency, newest first. */
static void check_against_array(const struct spw_trace *trace, size_t capacity)
{
    struct spw_oracle *oracle = spw_oracle_open(trace, capacity, false);
    uint64_t *held = calloc(capacity + 1, sizeof(*held));
    size_t count = 0;

    for (uint64_t r = 0; r < trace->request_count; r++) {
        const struct spw_trace_request *request = &trace->requests[r];
        uint32_t hit = 0, resident = 0, got_hit, got_resident;

        for (uint32_t i = 0; i < request->id_count; i++)
            for (size_t k = 0; k < count; k++)
                if (held[k] == trace->ids[request->ids_off + i]) {
                    resident++;
                    hit += hit == i;
                }
        for (uint32_t i = request->id_count; i-- > 0;) {
            uint64_t id = trace->ids[request->ids_off + i];
            size_t k = 0;

            while (k < count && held[k] != id)
                k++;
            count += k == count;
            memmove(held + 1, held, k * sizeof(*held));
            held[0] = id;
            if (count > capacity)
                count = capacity;
        }
        spw_oracle_step(oracle, r, &got_hit, &got_resident);
        cr_assert_eq(got_hit, hit, "request %lu", r);
        cr_assert_eq(got_resident, resident, "request %lu", r);
    }
    free(held);
    spw_oracle_close(oracle);
}

Test(prefix_oracle, agrees_with_an_array_in_order_of_recency)
{
    struct spw_workload workload = SPW_WORKLOAD_DEFAULT;
    struct spw_trace trace;

    workload.duration_ns = 8000000000ull;
    cr_assert_eq(spw_trace_generate(&workload, &trace), 0);
    cr_assert(trace.id_count > 300);
    for (size_t capacity = 1; capacity < 400; capacity = capacity * 3 + 1)
        check_against_array(&trace, capacity);
    spw_trace_fini(&trace);
}

static void check_numbers(const char *path, uint64_t capacity, uint64_t blocks, uint64_t hit_blocks)
{
    struct spw_oracle_result result;
    struct spw_trace trace;
    char err[512];

    cr_assert_eq(spw_trace_read(path, NULL, &trace, err, sizeof(err)), 0, "%s", err);
    cr_assert_eq(spw_oracle_run(&trace, capacity, false, &result), 0);
    cr_expect_eq(result.requests, trace.request_count);
    cr_expect_eq(result.blocks, blocks);
    cr_expect_eq(result.hit_blocks, hit_blocks, "%lu at %lu", result.hit_blocks, capacity);
    /* ids are chained and the head is the most recent: what is resident is a leading run */
    cr_expect_eq(result.resident_blocks, result.hit_blocks);
    spw_trace_fini(&trace);
}

Test(prefix_oracle, gives_the_known_numbers_of_the_slice)
{
    const char *folder = getenv("SPW_TEST_DATA");
    char path[512];

    cr_assert(folder, "SPW_TEST_DATA is set by meson");
    snprintf(path, sizeof(path), "%s/mooncake_slice.jsonl.gz", folder);
    check_numbers(path, 1, 1397, 63);
    check_numbers(path, 800, 1397, 67);
    check_numbers(path, 900, 1397, 167);
    check_numbers(path, 2000, 1397, 207);
}

Test(prefix_oracle, gives_the_known_numbers_of_the_conversation_trace)
{
    const char *folder = getenv("SPW_TEST_DATA");
    char path[512];

    cr_assert(folder, "SPW_TEST_DATA is set by meson");
    snprintf(path, sizeof(path), "%s/mooncake_conversation.jsonl.gz", folder);
    check_numbers(path, 1000, 288500, 12847);
    check_numbers(path, 2000, 288500, 15665);
    check_numbers(path, 10000, 288500, 61046);
    check_numbers(path, 50000, 288500, 102290);
}
