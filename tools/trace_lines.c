/* The lines of a trace's file, plain or gzip. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/trace_impl.h"

#define LINE_BYTES_MAX (64u << 20)
#define READ_BYTES     (64u << 10)

int spw_trace_lines_open(struct spw_trace_lines *r, const char *path, char *err, size_t err_bytes)
{
    *r = (struct spw_trace_lines){
        .path = path, .room = 2 * READ_BYTES, .err = err, .err_bytes = err_bytes};
    errno = 0;
    r->file = gzopen(path, "rbe");
    if (!r->file)
        return spw_trace_refuse(r, errno ? -errno : -ENOMEM, "can't be opened: %s",
                                errno ? strerror(errno) : "out of memory");
    r->bytes = malloc(r->room);
    return r->bytes ? 0 : spw_trace_refuse(r, -ENOMEM, "out of memory");
}

void spw_trace_lines_close(struct spw_trace_lines *r)
{
    if (r->file)
        gzclose(r->file);
    free(r->bytes);
}

int spw_trace_refuse(struct spw_trace_lines *r, int rc, const char *format, ...)
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
static int refuse_damage(struct spw_trace_lines *r)
{
    int code, saved_errno = errno;
    const char *text = gzerror(r->file, &code);

    if (code == Z_OK || code == Z_STREAM_END)
        return 0;
    if (code == Z_ERRNO)
        return spw_trace_refuse(r, saved_errno ? -saved_errno : -EIO, "can't be read: %s",
                                strerror(saved_errno));
    if (code == Z_MEM_ERROR)
        return spw_trace_refuse(r, -ENOMEM, "out of memory");
    if (code == Z_BUF_ERROR)
        return spw_trace_refuse(r, -EIO,
                                "the gzip file ends too early after this line; fetch it again");
    return spw_trace_refuse(r, -EIO,
                            "the gzip file is damaged after this line (%s); fetch it again", text);
}

static int read_more(struct spw_trace_lines *r)
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
            return spw_trace_refuse(r, -ENOMEM,
                                    "the next line is longer than %u bytes, or out of memory",
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

int spw_trace_next_line(struct spw_trace_lines *r, const char **out_line, size_t *out_len)
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
