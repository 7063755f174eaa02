/*
 * Bad trace files through spw_trace_read(): fuzz_trace [CASES [SEED]]. Files of both formats are
 * written, spoilt and read. An unspoilt one must be read as it was written; of a spoilt one, a
 * refusal must say where, and what is read must hold together: it is then driven through
 * spw_arrivals to its end. Exits 1 at the first case that is otherwise, and prints it.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <zlib.h>

#include "tools/arrivals.h"

#define TEXT_BYTES   4096
#define REQUESTS_MAX 12
#define HEADER       "#session\treq\tdepth\tt_s\tthink_s\tapi_s\tin_tokens\tout_tokens\tranges\n"

static uint64_t rng, current;
static char text[TEXT_BYTES + 1];
static size_t text_len;
static uint32_t requests, conversations; /* written */
static uint64_t read_whole, refused;

static uint64_t below(uint64_t limit)
{
    rng = rng * 6364136223846793005ull + 1442695040888963407ull;
    return (rng >> 33) % limit;
}

__attribute__((format(printf, 1, 2), noreturn)) static void fail(const char *format, ...)
{
    va_list args;

    printf("case %" PRIu64 ": ", current);
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    printf("\n%.*s\n", (int)text_len, text);
    exit(1);
}

__attribute__((format(printf, 1, 2))) static void put(const char *format, ...)
{
    va_list args;
    int n;

    va_start(args, format);
    n = vsnprintf(text + text_len, TEXT_BYTES - text_len, format, args);
    va_end(args);
    if (n < 0 || (size_t)n >= TEXT_BYTES - text_len)
        fail("TEXT_BYTES is too small");
    text_len += (size_t)n;
}

/* ---- good files ----------------------------------------------------------------------------- */

static void put_json(void)
{
    uint64_t at_ms = below(5);

    for (uint32_t i = 0; i < requests; i++) {
        const uint64_t blocks = 1 + below(4);

        put("{\"timestamp\":%" PRIu64 ",\"input_length\":%" PRIu64 ",\"output_length\":%" PRIu64
            ",\"hash_ids\":[",
            at_ms, blocks * 512 - below(512), below(99));
        for (uint64_t k = 0; k < blocks; k++)
            put(k ? ",%" PRIu64 : "%" PRIu64, below(9));
        put("]}\n");
        at_ms += below(3000);
    }
}

static void put_seconds(uint64_t tenths, bool may_be_missing)
{
    if (!may_be_missing || below(4))
        put("%" PRIu64 ".%" PRIu64, tenths / 10, tenths % 10);
    put("\t");
}

static void put_ranges(uint64_t count)
{
    uint64_t id = 1 + below(3);

    while (count > 0) {
        const uint64_t span = 1 + below(count);

        put(span > 1 ? "%" PRIu64 "-%" PRIu64 : "%" PRIu64, id, id + span - 1);
        id += span + below(3);
        count -= span;
        put(count ? "," : "");
    }
    put("\n");
}

static void put_table(void)
{
    uint64_t main_tenths = 0, tenths = 0;
    uint32_t req = 0;

    put(HEADER);
    for (uint32_t i = 0; i < requests; i++, req++) {
        const bool begins = i == 0 || below(5) == 0;
        const bool nested = !begins && below(3) == 0;
        const uint64_t tokens = 1 + below(1500);

        if (begins) {
            conversations++;
            req = 0;
            main_tenths = 0;
        }
        tenths = nested ? below(300) : main_tenths + below(300);
        if (!nested)
            main_tenths = tenths;
        put("c%u\t%u\t%d\t", conversations, req, nested);
        put_seconds(tenths, false);
        put_seconds(below(900), true);
        put_seconds(below(90), true);
        put("%" PRIu64 "\t%" PRIu64 "\t", tokens, below(99));
        put_ranges(tokens / 64);
    }
}

/* ---- spoiling ------------------------------------------------------------------------------- */

static void insert(size_t at, const char *what)
{
    const size_t len = strlen(what);

    if (text_len + len > TEXT_BYTES)
        return;
    memmove(text + at + len, text + at, text_len - at);
    memcpy(text + at, what, len);
    text_len += len;
}

static void cut(size_t at, size_t len)
{
    len = len < text_len - at ? len : text_len - at;
    memmove(text + at, text + at + len, text_len - at - len);
    text_len -= len;
}

static void spoil(void)
{
    static const char *const words[] = {"\t",   "\n", "-", ",",    ".",     "9223372036854775807",
                                        "-1",   "0",  "{", "]",    "1e9",   "18446744073709551616",
                                        "null", "\"", "9", "1-99", "00000", "\t\t"};
    const size_t at = below(text_len);

    switch (below(8)) {
    case 0:
        text[at] ^= (char)(1 << below(8));
        break;
    case 1:
        text[at] = (char)below(256);
        break;
    case 2:
        insert(at, words[below(sizeof(words) / sizeof(words[0]))]);
        break;
    case 3:
        cut(at, 1 + below(20));
        break;
    case 4:
        cut(at, text_len);
        break;
    default: /* a number becomes another one */
        if (text[at] >= '0' && text[at] <= '9')
            text[at] = (char)('0' + below(10));
    }
}

/* ---- reading -------------------------------------------------------------------------------- */

static int read_text(bool packed, struct spw_trace *out_trace, char *err, size_t err_bytes)
{
    const int fd = memfd_create("trace", MFD_CLOEXEC);
    char path[32];
    int rc;

    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    if (packed) {
        gzFile file = gzopen(path, "wb1");

        if (!file || gzwrite(file, text, (unsigned)text_len) != (int)text_len ||
            gzclose(file) != Z_OK)
            fail("can't be packed");
    } else if (write(fd, text, text_len) != (ssize_t)text_len) {
        fail("can't be written");
    }
    rc = spw_trace_read(path, NULL, out_trace, err, err_bytes);
    close(fd);
    return rc;
}

static void check_trace(const struct spw_trace *trace)
{
    uint64_t ids = 0;
    int64_t last_ns = 0;

    if (trace->request_count == 0)
        fail("nothing was read, and that is fine?");
    for (uint64_t i = 0; i < trace->request_count; i++) {
        const struct spw_trace_request *request = &trace->requests[i];

        if (request->ids_off != ids || request->arrival_ns < last_ns || request->think_ns < 0 ||
            request->id_count != spw_trace_blocks(request->input_tokens, 512))
            fail("request %" PRIu64 " makes no sense", i);
        if (request->follows > i ||
            (request->follows > 0 &&
             request->conversation != trace->requests[request->follows - 1].conversation) ||
            (trace->conversation_count && request->conversation >= trace->conversation_count))
            fail("request %" PRIu64 " follows what it can't", i);
        ids += request->id_count;
        last_ns = request->arrival_ns;
    }
    if (ids != trace->id_count)
        fail("ids are left over");
}

/* Every request must come once, in order of time, however late the answers are. */
static void drive(const struct spw_trace *trace)
{
    const struct spw_arrivals_options options = {.conversations = 1 + below(4),
                                                 .decode_rate = 1 + below(100)};
    struct spw_arrivals arrivals;
    struct spw_arrival arrival;
    int64_t now_ns = 0;

    if (spw_arrivals_init(&arrivals, trace, &options) < 0)
        fail("out of memory");
    for (uint64_t i = 0; i < trace->request_count; i++) {
        if (!spw_arrivals_take(&arrivals, SPW_ARRIVALS_NONE, &arrival) || arrival.at_ns < now_ns)
            fail("request %" PRIu64 " to come doesn't", i);
        now_ns = arrival.at_ns;
        spw_arrivals_answered(&arrivals, arrival.request, arrival.at_ns);
    }
    if (!spw_arrivals_at_end(&arrivals) || spw_arrivals_next_ns(&arrivals) != SPW_ARRIVALS_NONE)
        fail("more come than there are");
    spw_arrivals_fini(&arrivals);
}

static void one_case(void)
{
    const uint64_t wounds = below(4);
    const bool table = below(2), packed = below(8) == 0;
    struct spw_trace trace;
    char err[512] = "";
    int rc;

    text_len = 0;
    conversations = 0;
    requests = 1 + (uint32_t)below(REQUESTS_MAX);
    if (table)
        put_table();
    else
        put_json();
    for (uint64_t i = 0; i < wounds && text_len > 0; i++)
        spoil();
    rc = read_text(packed, &trace, err, sizeof(err));
    if (rc < 0) {
        refused++;
        if (wounds == 0 || rc != -EINVAL || !strstr(err, "/proc/self/fd/"))
            fail("%s (%s)", err, strerror(-rc));
        return;
    }
    check_trace(&trace);
    if (wounds == 0 &&
        (trace.request_count != requests || trace.conversation_count != conversations))
        fail("%" PRIu64 " requests and %u conversations are read, %u and %u are there",
             trace.request_count, trace.conversation_count, requests, conversations);
    read_whole += wounds > 0;
    drive(&trace);
    spw_trace_fini(&trace);
}

int main(int argc, char **argv)
{
    const uint64_t cases = argc > 1 ? strtoull(argv[1], NULL, 10) : 50000;
    const uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;

    for (current = seed; current < seed + cases; current++) {
        rng = current * 0x9e3779b97f4a7c15ull;
        one_case();
    }
    printf("%" PRIu64 " cases, %" PRIu64 " refused, %" PRIu64 " spoilt ones read\n", cases, refused,
           read_whole);
    if (refused < cases / 4 || read_whole < cases / 20) { /* then spoiling does not do its work */
        printf("too few of one kind\n");
        return 1;
    }
    return 0;
}
