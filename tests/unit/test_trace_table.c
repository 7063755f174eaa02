/* tools/trace: a table of conversations, what follows what in it, and what a bad one is told. */
#include "tools/trace.h"

#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

TestSuite(trace_table, .timeout = 60);

#define SECOND 1000000000ll
#define HEADER "#session\treq\tdepth\tt_s\tthink_s\tapi_s\tin_tokens\tout_tokens\tranges\n"

static int read_text(const char *text, uint32_t block_tokens, struct spw_trace *out_trace,
                     char err[512])
{
    const struct spw_trace_options options = {.block_tokens = block_tokens};
    int fd = memfd_create("conversations", MFD_CLOEXEC), rc;
    char path[32];

    cr_assert(fd >= 0);
    cr_assert_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    rc = spw_trace_read(path, &options, out_trace, err, 512);
    close(fd);
    return rc;
}

static struct spw_trace good_text(const char *text, uint32_t block_tokens)
{
    struct spw_trace trace;
    char err[512] = "";

    cr_assert_eq(read_text(text, block_tokens, &trace, err), 0, "%s", err);
    return trace;
}

static void expect_request(const struct spw_trace *trace, uint64_t i, uint32_t conversation,
                           uint32_t follows, int64_t think_ns)
{
    const struct spw_trace_request *request = &trace->requests[i];

    cr_expect_eq(request->conversation, conversation, "%lu: conversation %u", i,
                 request->conversation);
    cr_expect_eq(request->follows, follows, "%lu: follows %u", i, request->follows);
    cr_expect_eq(request->think_ns, think_ns, "%lu: thinks %ld", i, request->think_ns);
    cr_expect_eq(request->arrival_ns, 0);
}

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

/* Different ids of whole blocks, or of partial last ones. */
static uint64_t distinct(const struct spw_trace *trace, bool whole)
{
    uint64_t *ids = malloc(trace->id_count * sizeof(*ids)), n = 0, count = 0;

    for (uint64_t i = 0; i < trace->request_count; i++) {
        const struct spw_trace_request *request = &trace->requests[i];

        for (uint32_t k = 0; k < request->id_count; k++)
            if ((k < request->full_count) == whole)
                ids[n++] = trace->ids[request->ids_off + k];
    }
    qsort(ids, n, sizeof(*ids), by_value);
    for (uint64_t i = 0; i < n; i++)
        count += i == 0 || ids[i] != ids[i - 1];
    free(ids);
    return count;
}

/* What is expected was counted in the file by another program. */
Test(trace_table, a_real_slice_is_read)
{
    uint64_t full = 0, follows = 0, roots = 0, conversation = 0;
    int64_t think_ns = 0;
    struct spw_trace trace;
    char path[512], err[512] = "";

    snprintf(path, sizeof(path), "%s/claude_code_slice.tsv.gz", getenv("SPW_TEST_DATA"));
    cr_assert_eq(spw_trace_read(path, NULL, &trace, err, sizeof(err)), 0, "%s", err);
    cr_expect_eq(trace.request_count, 113);
    cr_expect_eq(trace.conversation_count, 5);
    for (uint64_t i = 0; i < trace.request_count; i++) {
        const struct spw_trace_request *request = &trace.requests[i];

        cr_assert(request->follows <= i && request->conversation >= conversation);
        cr_assert_eq(request->full_count, request->input_tokens / 512);
        conversation = request->conversation;
        full += request->full_count;
        follows += request->follows;
        roots += request->follows == 0;
        think_ns += request->think_ns;
    }
    cr_expect_eq(roots, 5);
    cr_expect_eq(follows, 6110, "%lu", follows);
    cr_expect_eq(think_ns, 3134 * SECOND, "%ld", think_ns);
    cr_expect_eq(full, 14416);
    cr_expect_eq(trace.id_count, 14416 + 113);
    cr_expect_eq(distinct(&trace, true), 1828, "%lu", distinct(&trace, true));
    cr_expect_eq(distinct(&trace, false), 113);
    expect_request(&trace, 2, 0, 2, 5 * SECOND);  /* neither think_s nor api_s there */
    expect_request(&trace, 5, 1, 5, 18 * SECOND); /* 18.0 - 0.0, api_s missing */
    expect_request(&trace, 45, 3, 28 + 1, 0);     /* the third of three nested agents in a row */
    expect_request(&trace, 102, 4, 96 + 1, 0);
    spw_trace_fini(&trace);
}

Test(trace_table, agents_follow_themselves_and_nesteds_their_parent)
{
    struct spw_trace trace =
        good_text(HEADER "a\t0\t0\t0.0\t0.0\t5\t1\t9\t\n"
                         "a\t1\t1\t0.0\t1.5\t2\t1\t9\t\n" /* a nested agent */
                         "a\t2\t1\t4.0\t\t2\t1\t9\t\n"
                         "a\t3\t1\t3.0\t\t\t1\t9\t\n" /* t_s falls: another one */
                         "a\t4\t1\t5.25\t\t\t1\t9\t\n"
                         "a\t5\t0\t20\t\t4\t1\t9\t\n" /* 20 - 0 - 5 */
                         "a\t6\t1\t8\t0.125\t\t1\t9\t\n"
                         "a\t7\t0\t22\t\t0\t1\t9\t\n" /* 22 - 20 - 4 < 0 */
                         "b\t0\t0\t7\t3\t5\t1\t9\t\n"
                         "b\t1\t0\t8\t0.000000001\t5\t1\t9\t\n",
                  0);

    cr_expect_eq(trace.conversation_count, 2);
    expect_request(&trace, 0, 0, 0, 0);
    expect_request(&trace, 1, 0, 1, 3 * SECOND / 2);
    expect_request(&trace, 2, 0, 2, 2 * SECOND);
    expect_request(&trace, 3, 0, 1, 0);
    expect_request(&trace, 4, 0, 4, 9 * SECOND / 4);
    expect_request(&trace, 5, 0, 1, 15 * SECOND);
    expect_request(&trace, 6, 0, 6, SECOND / 8);
    expect_request(&trace, 7, 0, 6, 0);
    expect_request(&trace, 8, 1, 0, 0);
    expect_request(&trace, 9, 1, 9, 1);
    spw_trace_fini(&trace);
}

static uint64_t id_of(const struct spw_trace *trace, uint64_t request, uint32_t block)
{
    cr_assert(block < trace->requests[request].id_count);
    return trace->ids[trace->requests[request].ids_off + block];
}

Test(trace_table, eight_ids_make_a_block_and_no_two_conversations_share_one)
{
    struct spw_trace trace =
        good_text(HEADER "a\t0\t0\t0\t0\t1\t1024\t1\t1-16\n"
                         "a\t1\t0\t1\t0\t1\t1025\t1\t1-3,4,5-16\n"
                         "a\t2\t0\t2\t0\t1\t1024\t1\t1-15,17\n" /* its last differs */
                         "a\t3\t0\t3\t0\t1\t1024\t1\t99,2-16\n" /* its first differs */
                         "a\t4\t1\t0\t0\t1\t640\t1\t1-10\n"     /* a nested agent */
                         "a\t5\t0\t4\t0\t1\t600\t1\t1-9\n"      /* 9 whole, 24 more */
                         "a\t6\t0\t4\t0\t1\t601\t1\t1-9\n"
                         "a\t7\t0\t4\t0\t1\t600\t1\t1-9\n"
                         "b\t0\t0\t0\t0\t1\t1024\t1\t1-16\n",
                  0);

    cr_expect_eq(trace.requests[0].id_count, 2);
    cr_expect_eq(trace.requests[1].id_count, 3);
    cr_expect_eq(trace.requests[1].full_count, 2);
    cr_expect_eq(id_of(&trace, 0, 0), id_of(&trace, 1, 0));
    cr_expect_eq(id_of(&trace, 0, 1), id_of(&trace, 1, 1));
    cr_expect_eq(id_of(&trace, 0, 0), id_of(&trace, 2, 0));
    cr_expect_neq(id_of(&trace, 0, 1), id_of(&trace, 2, 1));
    cr_expect_neq(id_of(&trace, 0, 0), id_of(&trace, 3, 0));
    cr_expect_neq(id_of(&trace, 0, 1), id_of(&trace, 3, 1), "chained");
    cr_expect_eq(id_of(&trace, 0, 0), id_of(&trace, 4, 0));
    cr_expect_neq(id_of(&trace, 5, 1), id_of(&trace, 6, 1));
    cr_expect_eq(id_of(&trace, 5, 1), id_of(&trace, 7, 1));
    cr_expect_neq(id_of(&trace, 0, 0), id_of(&trace, 8, 0));
    spw_trace_fini(&trace);
}

Test(trace_table, the_block_size_can_be_another_multiple_of_64)
{
    struct spw_trace trace = good_text(HEADER "a\t0\t0\t0\t0\t1\t130\t1\t5,6\n", 64);
    char err[512] = "";

    cr_expect_eq(trace.requests[0].id_count, 3);
    cr_expect_eq(trace.requests[0].full_count, 2);
    spw_trace_fini(&trace);
    cr_expect_eq(read_text(HEADER, 96, &trace, err), -EINVAL);
    cr_expect(strstr(err, ":1: ") && strstr(err, "blocks of 96 tokens") && strstr(err, "64"), "%s",
              err);
}

Test(trace_table, reading_stops_at_the_number_asked_for)
{
    const struct spw_trace_options options = {.max_requests = 6};
    struct spw_trace trace;
    char path[512], err[512] = "";

    snprintf(path, sizeof(path), "%s/claude_code_slice.tsv.gz", getenv("SPW_TEST_DATA"));
    cr_assert_eq(spw_trace_read(path, &options, &trace, err, sizeof(err)), 0, "%s", err);
    cr_expect_eq(trace.request_count, 6);
    cr_expect_eq(trace.conversation_count, 2);
    spw_trace_fini(&trace);
}

struct bad_row {
    char text[240];
    char message[3][64];
};

#define GOOD HEADER "a\t0\t0\t6\t0\t1\t64\t1\t1\n"

ParameterizedTestParameters(trace_table, bad_rows_are_named)
{
    static struct bad_row params[] = {
        {"#session\treq\tdepth\n", {":1: ", "\"#session\treq\tdepth\"", "think_s\tapi_s"}},
        {HEADER, {"/proc/self/fd/", "has no requests", "a row for each"}},
        {GOOD "\n", {":3: ", "has 1 columns", "9 are needed"}},
        {GOOD "a\t1\t0\t6\t0\t1\t64\t1\t1\t\n", {":3: ", "has 10 columns", "\"a\t1\t0"}},
        {HEADER "\t0\t0\t0\t0\t1\t64\t1\t1\n", {":2: ", "\"#session\" is \"\"", "1 to 63 bytes"}},
        {HEADER "a\t3\t0\t0\t0\t1\t64\t1\t1\n", {":2: ", "\"req\" is \"3\"", "lie together"}},
        {GOOD "a\t2\t0\t6\t0\t1\t64\t1\t1\n", {":3: ", "\"req\" is \"2\"", "must be 1"}},
        {GOOD "a\t0\t0\t6\t0\t1\t64\t1\t1\n", {":3: ", "\"req\" is \"0\"", "is one lost?"}},
        {HEADER "a\t-1\t0\t0\t0\t1\t64\t1\t1\n", {":2: ", "\"req\" is \"-1\"", "from 0 to"}},
        {HEADER "a\t0\t1\t0\t0\t1\t64\t1\t1\n", {":2: ", "\"depth\" is \"1\"", "main agent"}},
        {GOOD "a\t1\t2\t6\t0\t1\t64\t1\t1\n", {":3: ", "\"depth\" is \"2\"", "from 0 to 1"}},
        {GOOD "a\t1\t0\t5.9\t0\t1\t64\t1\t1\n", {":3: ", "\"t_s\" is \"5.9\"", "row before"}},
        {GOOD "a\t1\t0\t\t0\t1\t64\t1\t1\n", {":3: ", "\"t_s\" is \"\"", "such as 12.5"}},
        {GOOD "a\t1\t0\t6\t-1\t1\t64\t1\t1\n", {":3: ", "\"think_s\" is \"-1\"", "empty, or"}},
        {GOOD "a\t1\t0\t6\t1.\t1\t64\t1\t1\n", {":3: ", "\"think_s\" is \"1.\"", "seconds"}},
        {GOOD "a\t1\t0\t6\t1.0x\t1\t64\t1\t1\n", {":3: ", "\"think_s\" is \"1.0x\"", "seconds"}},
        {GOOD "a\t1\t0\t6\t1.0123456789\t1\t64\t1\t1\n", {":3: ", "\"think_s\" is", "seconds"}},
        {GOOD "a\t1\t0\t6\t1000000001\t1\t64\t1\t1\n",
         {":3: ", "\"think_s\" is \"1000000001\"", "to 1000000000"}},
        {GOOD "a\t1\t0\t6\t99999999999999999999\t1\t64\t1\t1\n",
         {":3: ", "\"think_s\" is \"9999", "to 1000000000"}},
        {GOOD "a\t1\t0\t6\t0\tNaN\t64\t1\t1\n", {":3: ", "\"api_s\" is \"NaN\"", "empty, or"}},
        {GOOD "a\t1\t0\t6\t0\t1\t0\t1\t\n", {":3: ", "\"in_tokens\" is \"0\"", "from 1 to"}},
        {GOOD "a\t1\t0\t6\t0\t1\t16777217\t1\t\n",
         {":3: ", "\"in_tokens\" is \"16777217\"", "16777216"}},
        {GOOD "a\t1\t0\t6\t0\t1\t64\t\t1\n", {":3: ", "\"out_tokens\" is \"\"", "from 0 to"}},
        {GOOD "a\t1\t0\t6\t0\t1\t640\t1\t1-9\n", {":3: ", "has 9 ids; 10 are", "64 whole tokens"}},
        {GOOD "a\t1\t0\t6\t0\t1\t640\t1\t1-11\n",
         {":3: ", "more than 10 ids", "\"in_tokens\" 640"}},
        {GOOD "a\t1\t0\t6\t0\t1\t64\t1\t0-9223372036854775807\n",
         {":3: ", "more than 1 ids", "\"in_tokens\" 64"}},
        {GOOD "a\t1\t0\t6\t0\t1\t64\t1\t9223372036854775808\n",
         {":3: ", "\"ranges\" is \"9223372036854775808\"", "such as"}},
        {GOOD "a\t1\t0\t6\t0\t1\t128\t1\t2-1\n", {":3: ", "\"ranges\" is \"2-1\"", "fall"}},
        {GOOD "a\t1\t0\t6\t0\t1\t128\t1\t1-\n", {":3: ", "\"ranges\" is \"1-\"", "fall"}},
        {GOOD "a\t1\t0\t6\t0\t1\t128\t1\t1 2\n", {":3: ", "\"ranges\" is \"1 2\"", "such as"}},
        {GOOD "a\t1\t0\t6\t0\t1\t128\t1\t1,\n", {":3: ", "\"ranges\" is \"1,\"", "such as"}},
    };

    return cr_make_param_array(struct bad_row, params, sizeof(params) / sizeof(params[0]));
}

ParameterizedTest(struct bad_row *param, trace_table, bad_rows_are_named)
{
    struct spw_trace trace = {.request_count = 77};
    char err[512] = "";

    cr_expect_eq(read_text(param->text, 0, &trace, err), -EINVAL, "%s", err);
    for (int i = 0; i < 3; i++)
        cr_expect(strstr(err, param->message[i]), "got \"%s\", want \"%s\"", err,
                  param->message[i]);
    cr_expect_eq(trace.request_count, 77, "the result must be left alone");
}
