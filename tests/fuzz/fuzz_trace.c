/*
 * A trace file with any bytes in it, plain, packed here, or packed already. A refusal says where, and
 * what is read holds together: it is then driven through spw_arrivals to its end, where every request
 * comes once, in order of time.
 */
#include "tests/fuzz/fuzz.h"

#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>
#include <zlib.h>

#include "tools/arrivals.h"

enum { PLAIN, PACK, PACKED, FORMS };

static int file_fd;
static char path[32];

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    file_fd = memfd_create("trace", MFD_CLOEXEC);
    fuzz_expect(file_fd >= 0, "a file in memory");
    snprintf(path, sizeof path, "/proc/self/fd/%d", file_fd);
    return 0;
}

static void fill(const uint8_t *text, size_t bytes, bool pack)
{
    fuzz_expect(ftruncate(file_fd, 0) == 0, "a file is emptied");
    if (!pack) {
        fuzz_expect(pwrite(file_fd, text, bytes, 0) == (ssize_t)bytes, "a file is written");
        return;
    }
    gzFile file = gzopen(path, "wb1");
    fuzz_expect(file && (bytes == 0 || gzwrite(file, text, (unsigned)bytes) == (int)bytes) &&
                    gzclose(file) == Z_OK,
                "a file is packed");
}

static void check_trace(const struct spw_trace *trace, uint32_t block_tokens)
{
    uint64_t ids = 0;
    int64_t last_ns = 0;
    fuzz_expect(trace->request_count > 0, "an empty trace is refused");
    for (uint64_t i = 0; i < trace->request_count; i++) {
        const struct spw_trace_request *request = &trace->requests[i];
        fuzz_expect(request->ids_off == ids && request->arrival_ns >= last_ns &&
                        request->think_ns >= 0 &&
                        request->id_count == spw_trace_blocks(request->input_tokens, block_tokens),
                    "a request without sense");
        fuzz_expect(request->follows <= i, "a request follows a later one");
        fuzz_expect(request->follows == 0 ||
                        request->conversation == trace->requests[request->follows - 1].conversation,
                    "a request follows one of another conversation");
        fuzz_expect(trace->conversation_count ? request->conversation < trace->conversation_count
                                              : request->conversation == 0,
                    "a conversation that there isn't");
        ids += request->id_count;
        last_ns = request->arrival_ns;
    }
    fuzz_expect(ids == trace->id_count, "ids are left over");
}

static void drive(const struct spw_trace *trace, uint8_t how)
{
    const struct spw_arrivals_options options = {.conversations = 1 + how % 4,
                                                 .decode_rate = 1 + how};
    struct spw_arrivals arrivals;
    struct spw_arrival arrival;
    int64_t now_ns = 0;
    fuzz_expect(spw_arrivals_init(&arrivals, trace, &options) == 0, "memory for arrivals");
    for (uint64_t i = 0; i < trace->request_count; i++) {
        bool comes = spw_arrivals_take(&arrivals, SPW_ARRIVALS_NONE, &arrival);
        fuzz_expect(comes && arrival.at_ns >= now_ns, "a request to come doesn't, or too early");
        now_ns = arrival.at_ns;
        spw_arrivals_answered(&arrivals, arrival.request, arrival.at_ns);
    }
    fuzz_expect(spw_arrivals_at_end(&arrivals) &&
                    spw_arrivals_next_ns(&arrivals) == SPW_ARRIVALS_NONE,
                "more come than there are");
    spw_arrivals_fini(&arrivals);
}

/* First the form, then options, then the file. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const uint32_t block[] = {0, 0, 64, 128, 16};
    struct fuzz_input in = {data, size};
    uint8_t form = fuzz_u8(&in) % FORMS, how = fuzz_u8(&in);
    const struct spw_trace_options options = {.block_tokens = block[how % 5],
                                              .max_requests = how / 5 % 4 * 3};
    struct spw_trace trace;
    char err[512] = "";
    fill(in.at, in.left, form == PACK);
    int rc = spw_trace_read(path, &options, &trace, err, sizeof err);
    if (rc < 0) {
        fuzz_expect((rc == -EINVAL || rc == -EIO) && strstr(err, path),
                    "a refusal says what is wrong where");
        return 0;
    }
    check_trace(&trace, trace.block_tokens);
    drive(&trace, how);
    spw_trace_fini(&trace);
    return 0;
}
