/* Reader of traces. A line is checked whole before anything of it is kept. */
#include "tools/trace.h"

#include <assert.h>
#include <errno.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>
#include <zlib.h>

#define LINE_BYTES_MAX   (64u << 20)
#define READ_BYTES       (64u << 10)
#define TIMESTAMP_MS_MAX (INT64_MAX / 1000000)
#define VALUE_SHOWN      60

/* One reading of one file: its bytes, a line at a time. */
struct reading {
    const char *path;
    gzFile file;
    char *bytes;
    size_t room, begin, end; /* what was read and not yet taken: bytes[begin..end) */
    bool at_end;
    uint64_t line;
    char *err;
    size_t err_bytes;
};

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

static int make_room(void **array, uint64_t *room, uint64_t need, size_t item_bytes)
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
    if (make_room((void **)&trace->requests, &trace->request_room, trace->request_count + 1,
                  sizeof(*trace->requests)) < 0 ||
        make_room((void **)&trace->ids, &trace->id_room, trace->id_count + count,
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

__attribute__((format(printf, 3, 4))) static int refuse(struct reading *r, int rc,
                                                        const char *format, ...)
{
    va_list args;
    int used =
        r->line ? snprintf(r->err, r->err_bytes, "%s:%llu: ", r->path, (unsigned long long)r->line)
                : snprintf(r->err, r->err_bytes, "%s: ", r->path);

    if (used >= 0 && (size_t)used < r->err_bytes) {
        va_start(args, format);
        vsnprintf(r->err + used, r->err_bytes - (size_t)used, format, args);
        va_end(args);
    }
    return rc;
}

/* What went wrong in zlib, if anything: a file that can't be read, is damaged, or was cut short. */
static int refuse_damage(struct reading *r)
{
    int code, saved_errno = errno;
    const char *text = gzerror(r->file, &code);

    if (code == Z_OK || code == Z_STREAM_END)
        return 0;
    if (code == Z_ERRNO)
        return refuse(r, saved_errno ? -saved_errno : -EIO, "can't be read: %s",
                      strerror(saved_errno));
    if (code == Z_MEM_ERROR)
        return refuse(r, -ENOMEM, "out of memory");
    if (code == Z_BUF_ERROR)
        return refuse(r, -EIO, "the gzip file ends too early after this line; fetch it again");
    return refuse(r, -EIO, "the gzip file is damaged after this line (%s); fetch it again", text);
}

static int read_more(struct reading *r)
{
    int got;

    if (r->begin > 0) {
        memmove(r->bytes, r->bytes + r->begin, r->end - r->begin);
        r->end -= r->begin;
        r->begin = 0;
    }
    if (r->room - r->end < READ_BYTES) {
        size_t room = r->room * 2;
        char *moved = r->end < LINE_BYTES_MAX ? realloc(r->bytes, room) : NULL;

        if (!moved)
            return refuse(r, -ENOMEM, "the next line is longer than %u bytes, or out of memory",
                          LINE_BYTES_MAX);
        r->bytes = moved;
        r->room = room;
    }
    got = gzread(r->file, r->bytes + r->end, READ_BYTES);
    if (got <= 0) {
        r->at_end = true;
        return refuse_damage(r);
    }
    r->end += (size_t)got;
    return 0;
}

/* The next line without its newline: 1, or 0 at the end of the file. */
static int next_line(struct reading *r, const char **out_line, size_t *out_len)
{
    size_t seen = 0; /* bytes of this line known to hold no newline */
    int rc;

    for (;;) {
        char *line = r->bytes + r->begin;
        size_t have = r->end - r->begin;
        char *newline = have > seen ? memchr(line + seen, '\n', have - seen) : NULL;

        if (newline || (r->at_end && have > 0)) {
            *out_line = line;
            *out_len = newline ? (size_t)(newline - line) : have;
            r->begin += *out_len + (newline != NULL);
            r->line++;
            return 1;
        }
        if (r->at_end)
            return 0;
        seen = have;
        rc = read_more(r);
        if (rc < 0)
            return rc;
    }
}

static int refuse_value(struct reading *r, const char *field, const json_t *value, const char *want)
{
    char *text = value ? json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT) : NULL;

    if (!value)
        refuse(r, -EINVAL, "field \"%s\" is missing; it must be %s", field, want);
    else
        refuse(r, -EINVAL, "field \"%s\" is %.*s; it must be %s", field, VALUE_SHOWN,
               text ? text : "unprintable", want);
    free(text);
    return -EINVAL;
}

static int take_number(struct reading *r, const json_t *object, const char *field, int64_t min,
                       int64_t max, int64_t *out_value)
{
    const json_t *value = json_object_get(object, field);
    char want[80];

    if (json_is_integer(value) && json_integer_value(value) >= min &&
        json_integer_value(value) <= max) {
        *out_value = json_integer_value(value);
        return 0;
    }
    snprintf(want, sizeof(want), "a whole number from %lld to %lld", (long long)min,
             (long long)max);
    return refuse_value(r, field, value, want);
}

/* Copies the raw ids of a line; the caller frees them. */
static int take_ids(struct reading *r, const json_t *object, uint32_t input_tokens,
                    uint32_t block_tokens, uint64_t **out_ids)
{
    const json_t *array = json_object_get(object, "hash_ids");
    size_t want = spw_trace_blocks(input_tokens, block_tokens);
    uint64_t *ids;

    if (!json_is_array(array))
        return refuse_value(r, "hash_ids", array, "an array of whole numbers");
    if (json_array_size(array) != want)
        return refuse(r, -EINVAL,
                      "field \"hash_ids\" has %zu ids; %zu are needed for \"input_length\" %u with "
                      "an id every %u tokens (another block size?)",
                      json_array_size(array), want, input_tokens, block_tokens);
    ids = malloc(want * sizeof(*ids));
    if (!ids)
        return refuse(r, -ENOMEM, "out of memory");
    for (size_t i = 0; i < want; i++) {
        const json_t *id = json_array_get(array, i);

        if (!json_is_integer(id) || json_integer_value(id) < 0) {
            char field[40];

            snprintf(field, sizeof(field), "hash_ids[%zu]", i);
            free(ids);
            return refuse_value(r, field, id, "a whole number from 0 to 9223372036854775807");
        }
        ids[i] = (uint64_t)json_integer_value(id);
    }
    *out_ids = ids;
    return 0;
}

static int take_request(struct reading *r, const json_t *object, int64_t *first_ms,
                        struct spw_trace *trace)
{
    int64_t at_ms, input, output, last_ns = 0;
    uint64_t *ids = NULL;
    char want[80];
    int rc;

    if (trace->request_count > 0)
        last_ns = trace->requests[trace->request_count - 1].arrival_ns;
    if ((rc = take_number(r, object, "timestamp", 0, TIMESTAMP_MS_MAX, &at_ms)) < 0 ||
        (rc = take_number(r, object, "input_length", 1, SPW_TRACE_TOKENS_MAX, &input)) < 0 ||
        (rc = take_number(r, object, "output_length", 0, SPW_TRACE_TOKENS_MAX, &output)) < 0)
        return rc;
    if (trace->request_count == 0)
        *first_ms = at_ms;
    if (at_ms < *first_ms + last_ns / 1000000) {
        snprintf(want, sizeof(want), "at least %lld as in the line before (sort the file by it)",
                 (long long)(*first_ms + last_ns / 1000000));
        return refuse_value(r, "timestamp", json_object_get(object, "timestamp"), want);
    }
    rc = take_ids(r, object, (uint32_t)input, trace->block_tokens, &ids);
    if (rc < 0)
        return rc;
    rc = spw_trace_append(trace, (at_ms - *first_ms) * 1000000, (uint32_t)input, (uint32_t)output,
                          ids);
    free(ids);
    return rc < 0 ? refuse(r, rc, "out of memory") : 0;
}

static int take_line(struct reading *r, const char *line, size_t len, int64_t *first_ms,
                     struct spw_trace *trace)
{
    json_error_t json_err;
    json_t *object = json_loadb(line, len, JSON_REJECT_DUPLICATES, &json_err);
    int rc;

    if (!object || !json_is_object(object))
        rc = refuse(r, -EINVAL, "is no JSON object (%s): \"%.*s\"; one is needed on each line",
                    object ? "an array" : json_err.text, len < VALUE_SHOWN ? (int)len : VALUE_SHOWN,
                    line);
    else
        rc = take_request(r, object, first_ms, trace);
    json_decref(object);
    return rc;
}

static int read_all(struct reading *r, uint64_t max_requests, struct spw_trace *trace)
{
    int64_t first_ms = 0;
    const char *line;
    size_t len;
    int rc = 1;

    while (max_requests == 0 || trace->request_count < max_requests) {
        rc = next_line(r, &line, &len);
        if (rc <= 0)
            break;
        rc = take_line(r, line, len, &first_ms, trace);
        if (rc < 0)
            return rc;
    }
    if (rc == 0 && trace->request_count == 0) {
        r->line = 0;
        return refuse(r, -EINVAL, "is empty; a trace has a JSON object a line");
    }
    return rc < 0 ? rc : 0;
}

int spw_trace_read(const char *path, const struct spw_trace_options *options,
                   struct spw_trace *out_trace, char *err, size_t err_bytes)
{
    struct reading r = {.path = path, .room = 2 * READ_BYTES, .err = err, .err_bytes = err_bytes};
    uint32_t block_tokens =
        options && options->block_tokens ? options->block_tokens : SPW_TRACE_BLOCK_TOKENS;
    struct spw_trace trace;
    int rc;

    errno = 0;
    r.file = gzopen(path, "rbe");
    if (!r.file)
        return refuse(&r, errno ? -errno : -ENOMEM, "can't be opened: %s",
                      errno ? strerror(errno) : "out of memory");
    spw_trace_init(&trace, block_tokens);
    r.bytes = malloc(r.room);
    rc = r.bytes ? read_all(&r, options ? options->max_requests : 0, &trace)
                 : refuse(&r, -ENOMEM, "out of memory");
    gzclose(r.file);
    free(r.bytes);
    if (rc < 0)
        spw_trace_fini(&trace);
    else
        *out_trace = trace;
    return rc;
}
