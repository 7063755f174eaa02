/* The trace in memory, and its reading: which format is it, and when is it enough? */
#include "tools/trace.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "tools/trace_impl.h"

void spw_trace_init(struct spw_trace *trace, uint32_t block_tokens)
{
    *trace = (struct spw_trace){.block_tokens = block_tokens};
}

void spw_trace_fini(struct spw_trace *trace)
{
    if (!trace)
        return;
    free(trace->requests);
    free(trace->ids);
    *trace = (struct spw_trace){0};
}

int spw_trace_make_room(void **array, uint64_t *room, uint64_t need, size_t item_bytes)
{
    uint64_t more = *room ? *room : 1024;
    void *moved;

    if (need <= *room)
        return 0;
    while (more < need)
        more *= 2;
    moved = realloc(*array, more * item_bytes);
    if (!moved)
        return -ENOMEM;
    *array = moved;
    *room = more;
    return 0;
}

int spw_trace_append(struct spw_trace *trace, int64_t arrival_ns, uint32_t input_tokens,
                     uint32_t output_tokens, const uint64_t *raw_ids)
{
    uint32_t count = spw_trace_blocks(input_tokens, trace->block_tokens);
    uint64_t link[2] = {0, 0}; /* id of the block before, raw id of this one */
    struct spw_trace_request *request;

    assert(trace->request_count == 0 ||
           arrival_ns >= trace->requests[trace->request_count - 1].arrival_ns);
    if (trace->request_count >= UINT32_MAX - 1 ||
        spw_trace_make_room((void **)&trace->requests, &trace->request_room,
                            trace->request_count + 1, sizeof(*trace->requests)) < 0 ||
        spw_trace_make_room((void **)&trace->ids, &trace->id_room, trace->id_count + count,
                            sizeof(*trace->ids)) < 0)
        return -ENOMEM;

    request = &trace->requests[trace->request_count++];
    *request = (struct spw_trace_request){
        .arrival_ns = arrival_ns,
        .input_tokens = input_tokens,
        .output_tokens = output_tokens,
        .ids_off = trace->id_count,
        .id_count = count,
        .full_count = input_tokens / trace->block_tokens,
    };
    for (uint32_t i = 0; i < count; i++) {
        link[1] = raw_ids[i];
        link[0] = XXH3_64bits(link, sizeof(link));
        trace->ids[trace->id_count++] = link[0];
    }
    return 0;
}

/* Where a reading is, of whichever format. */
struct reading {
    struct spw_trace_lines lines;
    bool is_table;
    struct spw_trace_place place;
    int64_t first_ms; /* JSON lines */
};

static int take(struct reading *r, const char *line, size_t len, struct spw_trace *trace)
{
    if (r->is_table)
        return spw_trace_take_row(&r->lines, line, len, &r->place, trace);
    if (r->lines.line > 1 || !spw_trace_is_table(line, len))
        return spw_trace_take_json(&r->lines, line, len, &r->first_ms, trace);
    r->is_table = true;
    return spw_trace_begin_table(&r->lines, line, len, trace);
}

static int read_all(struct reading *r, uint64_t max_requests, struct spw_trace *trace)
{
    const char *line;
    size_t len;
    int rc = 1;

    while (max_requests == 0 || trace->request_count < max_requests) {
        rc = spw_trace_next_line(&r->lines, &line, &len);
        if (rc <= 0)
            break;
        rc = take(r, line, len, trace);
        if (rc < 0)
            return rc;
    }
    if (rc == 0 && trace->request_count == 0) {
        r->lines.line = 0;
        return spw_trace_refuse(&r->lines, -EINVAL, "%s",
                                r->is_table
                                    ? "has no requests; a table of conversations has a row for each"
                                    : "is empty; a trace has a JSON object a line");
    }
    return rc < 0 ? rc : 0;
}

int spw_trace_read(const char *path, const struct spw_trace_options *options,
                   struct spw_trace *out_trace, char *err, size_t err_bytes)
{
    uint32_t block_tokens =
        options && options->block_tokens ? options->block_tokens : SPW_TRACE_BLOCK_TOKENS;
    struct reading r = {0};
    struct spw_trace trace;
    int rc;

    spw_trace_init(&trace, block_tokens);
    rc = spw_trace_lines_open(&r.lines, path, err, err_bytes);
    if (!rc)
        rc = read_all(&r, options ? options->max_requests : 0, &trace);
    spw_trace_lines_close(&r.lines);
    free(r.place.ids);
    if (rc < 0)
        spw_trace_fini(&trace);
    else
        *out_trace = trace;
    return rc;
}
