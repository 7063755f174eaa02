/* tools/trace: what a good file gives, and what a bad one is told. */
#include "tools/trace.h"

#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <zlib.h>

TestSuite(trace, .timeout = 60);

#define SLICE_REQUESTS 64
#define SLICE_IDS      1397

/* Bytes as a file without a name; @out_path is good while the descriptor returned is open. */
static int bytes_as_file(const void *bytes, size_t len, char out_path[32])
{
    int fd = memfd_create("trace", MFD_CLOEXEC);

    cr_assert(fd >= 0);
    cr_assert_eq(write(fd, bytes, len), (ssize_t)len);
    snprintf(out_path, 32, "/proc/self/fd/%d", fd);
    return fd;
}

static int read_bytes(const void *bytes, size_t len, const struct spw_trace_options *options,
                      struct spw_trace *out_trace, char *err, size_t err_bytes)
{
    char path[32];
    int fd = bytes_as_file(bytes, len, path);
    int rc = spw_trace_read(path, options, out_trace, err, err_bytes);

    close(fd);
    return rc;
}

static int read_text(const char *text, struct spw_trace *out_trace, char *err, size_t err_bytes)
{
    return read_bytes(text, strlen(text), NULL, out_trace, err, err_bytes);
}

static const char *slice_path(void)
{
    static char path[512];
    const char *folder = getenv("SPW_TEST_DATA");

    cr_assert(folder, "SPW_TEST_DATA is set by meson");
    snprintf(path, sizeof(path), "%s/mooncake_slice.jsonl.gz", folder);
    return path;
}

/* The bytes of the slice as they are in the file, or unpacked; the caller frees them. */
static unsigned char *slice_bytes(bool unpacked, size_t *out_len)
{
    unsigned char *bytes = malloc(1 << 20);

    if (unpacked) {
        gzFile file = gzopen(slice_path(), "rb");

        *out_len = (size_t)gzread(file, bytes, 1 << 20);
        gzclose(file);
    } else {
        int fd = open(slice_path(), O_RDONLY | O_CLOEXEC);

        *out_len = (size_t)read(fd, bytes, 1 << 20);
        close(fd);
    }
    cr_assert(*out_len > 1000 && *out_len < 1 << 20);
    return bytes;
}

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

static uint64_t distinct_ids(const struct spw_trace *trace)
{
    uint64_t *ids = malloc(trace->id_count * sizeof(*ids)), count = 0;

    memcpy(ids, trace->ids, trace->id_count * sizeof(*ids));
    qsort(ids, trace->id_count, sizeof(*ids), by_value);
    for (uint64_t i = 0; i < trace->id_count; i++)
        count += i == 0 || ids[i] != ids[i - 1];
    free(ids);
    return count;
}

static void check_slice(const struct spw_trace *trace)
{
    uint64_t off = 0;

    cr_expect_eq(trace->request_count, SLICE_REQUESTS);
    cr_expect_eq(trace->id_count, SLICE_IDS);
    cr_expect_eq(distinct_ids(trace), SLICE_IDS - 207);
    cr_expect_eq(trace->requests[0].arrival_ns, 0);
    for (uint64_t i = 0; i < trace->request_count; i++) {
        const struct spw_trace_request *request = &trace->requests[i];

        cr_expect_eq(request->ids_off, off);
        cr_expect_eq(request->id_count, (request->input_tokens + 511) / 512);
        cr_expect_eq(request->full_count, request->input_tokens / 512);
        off += request->id_count;
    }
    cr_expect_eq(off, trace->id_count);
}

Test(trace, a_real_slice_is_read_from_gzip_and_plain)
{
    struct spw_trace packed, plain;
    char err[512];
    size_t len;
    unsigned char *text = slice_bytes(true, &len);

    cr_assert_eq(spw_trace_read(slice_path(), NULL, &packed, err, sizeof(err)), 0, "%s", err);
    check_slice(&packed);
    cr_assert_eq(read_bytes(text, len, NULL, &plain, err, sizeof(err)), 0, "%s", err);
    check_slice(&plain);
    cr_expect_arr_eq(packed.ids, plain.ids, packed.id_count * sizeof(*packed.ids));
    spw_trace_fini(&packed);
    spw_trace_fini(&plain);
    free(text);
}

Test(trace, reading_stops_at_the_number_asked_for)
{
    const struct spw_trace_options options = {.max_requests = 3};
    struct spw_trace trace;
    char err[512];

    cr_assert_eq(spw_trace_read(slice_path(), &options, &trace, err, sizeof(err)), 0, "%s", err);
    cr_expect_eq(trace.request_count, 3);
    spw_trace_fini(&trace);
}

Test(trace, arrivals_count_from_the_first_request)
{
    struct spw_trace trace;
    char err[512];

    cr_assert_eq(
        read_text("{\"timestamp\":5000,\"input_length\":1,\"output_length\":0,\"hash_ids\":[7]}\n"
                  "{\"timestamp\":5250,\"input_length\":1024,\"output_length\":9,"
                  "\"hash_ids\":[7,8],\"more\":\"is fine\"}",
                  &trace, err, sizeof(err)),
        0, "%s", err);
    cr_expect_eq(trace.request_count, 2);
    cr_expect_eq(trace.requests[0].arrival_ns, 0);
    cr_expect_eq(trace.requests[0].full_count, 0);
    cr_expect_eq(trace.requests[1].arrival_ns, 250000000);
    cr_expect_eq(trace.requests[1].input_tokens, 1024);
    cr_expect_eq(trace.requests[1].output_tokens, 9);
    cr_expect_eq(trace.requests[1].full_count, 2);
    cr_expect_eq(trace.ids[0], trace.ids[1]);
    spw_trace_fini(&trace);
}

Test(trace, ids_are_equal_only_after_equal_prefixes)
{
    struct spw_trace trace;
    char err[512];

    /* 2 and 3 follow 1 in the first line, but not in the others */
    cr_assert_eq(
        read_text(
            "{\"timestamp\":0,\"input_length\":1536,\"output_length\":0,\"hash_ids\":[1,2,3]}\n"
            "{\"timestamp\":0,\"input_length\":1536,\"output_length\":0,\"hash_ids\":[9,2,3]}\n"
            "{\"timestamp\":0,\"input_length\":1536,\"output_length\":0,\"hash_ids\":[1,2,4]}\n"
            "{\"timestamp\":0,\"input_length\":1536,\"output_length\":0,\"hash_ids\":[3,3,3]}\n",
            &trace, err, sizeof(err)),
        0, "%s", err);
    cr_expect_eq(trace.ids[6], trace.ids[0]);
    cr_expect_eq(trace.ids[7], trace.ids[1]);
    cr_expect_eq(distinct_ids(&trace), 3 + 3 + 1 + 3);
    spw_trace_fini(&trace);
}

Test(trace, the_block_size_can_be_another)
{
    const struct spw_trace_options options = {.block_tokens = 64};
    const char *text = "{\"timestamp\":0,\"input_length\":130,\"output_length\":0,"
                       "\"hash_ids\":[1,2,3]}\n";
    struct spw_trace trace;
    char err[512];

    cr_assert_eq(read_bytes(text, strlen(text), &options, &trace, err, sizeof(err)), 0, "%s", err);
    cr_expect_eq(trace.block_tokens, 64);
    cr_expect_eq(trace.requests[0].id_count, 3);
    cr_expect_eq(trace.requests[0].full_count, 2);
    spw_trace_fini(&trace);
}

struct bad_line {
    char text[200];
    char message[3][64];
};

#define GOOD "{\"timestamp\":9,\"input_length\":1,\"output_length\":1,\"hash_ids\":[1]}\n"

ParameterizedTestParameters(trace, bad_lines_are_named)
{
    static struct bad_line params[] = {
        {GOOD "{\"timestamp\":8,\"input_length\":1,\"output_length\":1,\"hash_ids\":[1]}\n",
         {":2: ", "\"timestamp\" is 8", "at least 9"}},
        {"{\"timestamp\":-1,\"input_length\":1,\"output_length\":1,\"hash_ids\":[1]}\n",
         {":1: ", "\"timestamp\" is -1", "from 0 to"}},
        {"{\"timestamp\":9223372036854775807,\"input_length\":1,\"output_length\":1}\n",
         {":1: ", "\"timestamp\" is 9223372036854775807", "to 9223372036854"}},
        {"{\"timestamp\":99999999999999999999,\"input_length\":1,\"output_length\":1}\n",
         {":1: ", "too big", "999999"}},
        {"{\"timestamp\":1.5,\"input_length\":1,\"output_length\":1,\"hash_ids\":[1]}\n",
         {":1: ", "\"timestamp\" is 1.5", "whole number"}},
        {"{\"timestamp\":\"1\",\"input_length\":1,\"output_length\":1,\"hash_ids\":[1]}\n",
         {":1: ", "\"timestamp\" is \"1\"", "whole number"}},
        {"{\"input_length\":1,\"output_length\":1,\"hash_ids\":[1]}\n",
         {":1: ", "\"timestamp\" is missing", "whole number"}},
        {"{\"timestamp\":0,\"input_length\":0,\"output_length\":1,\"hash_ids\":[]}\n",
         {":1: ", "\"input_length\" is 0", "from 1 to"}},
        {"{\"timestamp\":0,\"input_length\":16777217,\"output_length\":1,\"hash_ids\":[]}\n",
         {":1: ", "\"input_length\" is 16777217", "to 16777216"}},
        {"{\"timestamp\":0,\"input_length\":1,\"output_length\":-2,\"hash_ids\":[1]}\n",
         {":1: ", "\"output_length\" is -2", "from 0 to"}},
        {"{\"timestamp\":0,\"input_length\":513,\"output_length\":1,\"hash_ids\":[1]}\n",
         {":1: ", "has 1 ids; 2 are needed", "513"}},
        {"{\"timestamp\":0,\"input_length\":512,\"output_length\":1,\"hash_ids\":[1,2]}\n",
         {":1: ", "has 2 ids; 1 are needed", "every 512 tokens"}},
        {"{\"timestamp\":0,\"input_length\":1,\"output_length\":1,\"hash_ids\":[-3]}\n",
         {":1: ", "\"hash_ids[0]\" is -3", "from 0 to"}},
        {"{\"timestamp\":0,\"input_length\":600,\"output_length\":1,\"hash_ids\":[1,null]}\n",
         {":1: ", "\"hash_ids[1]\" is null", "whole number"}},
        {"{\"timestamp\":0,\"input_length\":1,\"output_length\":1,\"hash_ids\":5}\n",
         {":1: ", "\"hash_ids\" is 5", "array"}},
        {"{\"timestamp\":0,\"timestamp\":1,\"input_length\":1,\"output_length\":1}\n",
         {":1: ", "no JSON object", "duplicate"}},
        {GOOD "\n" GOOD, {":2: ", "no JSON object", "one is needed on each line"}},
        {GOOD "{\"timestamp\":9,\"input_le", {":2: ", "no JSON object", "input_le"}},
        {"[1,2]\n", {":1: ", "no JSON object", "an array"}},
        {"TIMESTAMP,ContextTokens\n", {":1: ", "no JSON object", "TIMESTAMP"}},
        {"", {"/proc/self/fd/", "is empty", "JSON object a line"}},
    };

    return cr_make_param_array(struct bad_line, params, sizeof(params) / sizeof(params[0]));
}

ParameterizedTest(struct bad_line *param, trace, bad_lines_are_named)
{
    struct spw_trace trace = {.request_count = 77};
    char err[512] = "";

    cr_expect_eq(read_text(param->text, &trace, err, sizeof(err)), -EINVAL, "%s", err);
    for (int i = 0; i < 3; i++)
        cr_expect(strstr(err, param->message[i]), "got \"%s\", want \"%s\"", err,
                  param->message[i]);
    cr_expect_eq(trace.request_count, 77, "the result must be left alone");
}

Test(trace, a_zero_byte_is_an_error)
{
    static const char text[] = GOOD "\0" GOOD;
    struct spw_trace trace;
    char err[512];

    cr_expect_eq(read_bytes(text, sizeof(text) - 1, NULL, &trace, err, sizeof(err)), -EINVAL);
    cr_expect(strstr(err, ":2: "), "%s", err);
}

Test(trace, files_that_cannot_be_read_say_why)
{
    struct spw_trace trace;
    char err[512];

    cr_expect_eq(spw_trace_read("/nowhere/trace.gz", NULL, &trace, err, sizeof(err)), -ENOENT);
    cr_expect(strstr(err, "/nowhere/trace.gz") && strstr(err, "No such file"), "%s", err);
    cr_expect_eq(spw_trace_read("/tmp", NULL, &trace, err, sizeof(err)), -EISDIR, "%s", err);
}

Test(trace, a_cut_gzip_file_is_an_error_at_every_length)
{
    size_t len;
    unsigned char *bytes = slice_bytes(false, &len);
    struct spw_trace trace;
    char err[512];

    for (size_t cut = 20; cut < len; cut += 97) {
        cr_assert_eq(read_bytes(bytes, cut, NULL, &trace, err, sizeof(err)), -EIO, "at %zu: %s",
                     cut, err);
        cr_assert(strstr(err, "ends too early"), "%s", err);
    }
    cr_expect_eq(read_bytes(bytes, len - 1, NULL, &trace, err, sizeof(err)), -EIO, "%s", err);
    free(bytes);
}

/* Reads @variants copies of @bytes with one to four bits flipped; returns how many were refused. */
static int flip_and_read(unsigned char *bytes, size_t len, int variants, uint64_t seed)
{
    int refused = 0;

    for (int v = 0; v < variants; v++) {
        unsigned char saved[4];
        size_t at[4];
        struct spw_trace trace;
        char err[512] = "";
        int flips = 1 + v % 4;

        for (int i = 0; i < flips; i++) {
            seed = seed * 6364136223846793005ull + 1442695040888963407ull;
            at[i] = (seed >> 33) % len;
            saved[i] = bytes[at[i]];
            bytes[at[i]] ^= (unsigned char)(1u << (seed >> 60 & 7));
        }
        if (read_bytes(bytes, len, NULL, &trace, err, sizeof(err)) == 0) {
            cr_assert(trace.request_count > 0);
            spw_trace_fini(&trace);
        } else {
            cr_assert(err[0] != '\0');
            refused++;
        }
        for (int i = flips; i-- > 0;)
            bytes[at[i]] = saved[i];
    }
    return refused;
}

Test(trace, damaged_text_is_refused_or_read_but_never_breaks_the_reader)
{
    size_t len;
    unsigned char *bytes = slice_bytes(true, &len);
    int refused;

    while (len > 2000 || bytes[len - 1] != '\n')
        len--;
    refused = flip_and_read(bytes, len, 1500, 1);
    cr_expect(refused > 500 && refused < 1490, "%d", refused);
    free(bytes);
}

Test(trace, a_damaged_gzip_file_is_refused)
{
    size_t len;
    unsigned char *bytes = slice_bytes(false, &len);
    int refused = flip_and_read(bytes, len, 500, 2);

    cr_expect(refused > 490, "%d", refused);
    free(bytes);
}
