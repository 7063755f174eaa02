#ifndef SPW_TOOLS_TRACE_H
#define SPW_TOOLS_TRACE_H
/*
 * A trace of requests to replay: when each came, how long its prompt was, which blocks it had.
 *
 * Read from JSON lines, plain or gzip, an object a line:
 *
 *   {"timestamp": ms, "input_length": tokens, "output_length": tokens, "hash_ids": [id, ...]}
 *
 * with one id for each block of the prompt, the last and usually partial one included. In the
 * memory of this program ids are *chained*: the id of block i stands for the raw ids 0 to i of its
 * line, so equal ids mean equal prefixes in every trace, whatever its raw ids mean.
 */
#include <stddef.h>
#include <stdint.h>

#define SPW_TRACE_BLOCK_TOKENS 512
#define SPW_TRACE_TOKENS_MAX   (1u << 24) /* of one prompt or answer */

struct spw_trace_request {
    int64_t arrival_ns; /* since the first request; never falls from one request to the next */
    uint32_t input_tokens;
    uint32_t output_tokens;
    uint64_t ids_off;    /* of the first block's id in spw_trace.ids */
    uint32_t id_count;   /* blocks, a partial last one included */
    uint32_t full_count; /* blocks without a partial last one */
};

struct spw_trace {
    struct spw_trace_request *requests;
    uint64_t request_count;
    uint64_t *ids; /* chained, of all requests one after the other */
    uint64_t id_count;
    uint32_t block_tokens;
    uint64_t request_room; /* allocated */
    uint64_t id_room;
};

struct spw_trace_options {
    uint32_t block_tokens; /* tokens of one id; 0: SPW_TRACE_BLOCK_TOKENS */
    uint64_t max_requests; /* stop after so many; 0: read all */
};

/**
 * Read the trace in the file @path.
 *
 * @options    NULL for the defaults
 * @out_trace  filled by success only; end it with spw_trace_fini()
 *
 * Returns 0, or a negative errno with a message in @err: file and line, field, the value found and
 * what would be right. -EINVAL for what the file says, -EIO for a damaged or cut file.
 */
int spw_trace_read(const char *path, const struct spw_trace_options *options,
                   struct spw_trace *out_trace, char *err, size_t err_bytes);

/** Begin an empty trace, for spw_trace_append(). */
void spw_trace_init(struct spw_trace *trace, uint32_t block_tokens);

/**
 * Add a request with the ids of its blocks, not yet chained: ceil(input_tokens / block_tokens) of
 * them. It must not arrive before the last one. Returns 0 or -ENOMEM.
 */
int spw_trace_append(struct spw_trace *trace, int64_t arrival_ns, uint32_t input_tokens,
                     uint32_t output_tokens, const uint64_t *raw_ids);

/** Free what a trace holds; @trace may be NULL or all zero. */
void spw_trace_fini(struct spw_trace *trace);

/** Blocks of a prompt, a partial last one included. */
static inline uint32_t spw_trace_blocks(uint32_t tokens, uint32_t block_tokens)
{
    return tokens / block_tokens + (tokens % block_tokens != 0);
}

#endif
