#ifndef SPW_TOOLS_TRACE_IMPL_H
#define SPW_TOOLS_TRACE_IMPL_H
/* Between the files that read traces: lines, and what turns one into a request. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <zlib.h>

#include "tools/trace.h"

#define SPW_TRACE_VALUE_SHOWN 60 /* bytes of a bad value in a message */

/* A file's bytes, a line at a time. */
struct spw_trace_lines {
    const char *path;
    gzFile file;
    char *bytes;
    size_t room, begin, end; /* what was read and not yet taken: bytes[begin..end) */
    bool at_end;
    uint64_t line; /* number of the line last taken, from 1 */
    char *err;
    size_t err_bytes;
};

int spw_trace_lines_open(struct spw_trace_lines *lines, const char *path, char *err,
                         size_t err_bytes);
void spw_trace_lines_close(struct spw_trace_lines *lines);

/** The next line without its newline, good until the next call: 1, or 0 at the end of the file. */
int spw_trace_next_line(struct spw_trace_lines *lines, const char **out_line, size_t *out_len);

/** Write file, line and words to err; returns @rc. */
__attribute__((format(printf, 3, 4))) int spw_trace_refuse(struct spw_trace_lines *lines, int rc,
                                                           const char *format, ...);

/** Grow @array of @room items to @need at least. 0 or -ENOMEM; on failure it stays as it was. */
int spw_trace_make_room(void **array, uint64_t *room, uint64_t need, size_t item_bytes);

/* ---- formats -------------------------------------------------------------------------------- */

/** Add the request of one line; @first_ms: the timestamp of the first one, kept by the caller. */
int spw_trace_take_json(struct spw_trace_lines *lines, const char *line, size_t len,
                        int64_t *first_ms, struct spw_trace *trace);

/* The requests of one agent, of which each follows the one before. */
struct spw_trace_chain {
    uint32_t last; /* 1 + index of its last request; 0: none */
    int64_t sent_ns;
    int64_t answered_ns;
};

/* Where in a table of conversations the reading is: what the row before was. */
struct spw_trace_place {
    char name[64]; /* "" before the first row */
    uint32_t req;
    struct spw_trace_chain main_agent;
    struct spw_trace_chain nested; /* last 0 after a row of the main agent */
    uint64_t *ids;                 /* of one row; the caller frees it */
    uint64_t ids_room;
};

/** Whether a file that begins with this line is a table of conversations. */
bool spw_trace_is_table(const char *line, size_t len);

/** Check the columns' names, and the block size. */
int spw_trace_begin_table(struct spw_trace_lines *lines, const char *line, size_t len,
                          const struct spw_trace *trace);

/** Add the request of one row. */
int spw_trace_take_row(struct spw_trace_lines *lines, const char *line, size_t len,
                       struct spw_trace_place *place, struct spw_trace *trace);

#endif
