#ifndef SPW_TOOLS_TRACE_H
#define SPW_TOOLS_TRACE_H
/*
 * A trace of requests to replay: when each comes, how long its prompt is, which blocks it has.
 *
 * Two formats are read, plain or gzip, told apart by their first line. Both come down to the same
 * structure; in the memory of this program ids are *chained*: the id of block i stands for the raw
 * ids 0 to i of its line, so equal ids mean equal prefixes in every trace, whatever its raw ids
 * mean.
 *
 * An **open loop** is JSON lines, an object a line, with one id for each block of the prompt, the
 * last and usually partial one included. Requests come at their time, whatever the engines do:
 *
 *   {"timestamp": ms, "input_length": tokens, "output_length": tokens, "hash_ids": [id, ...]}
 *
 * A **closed loop** is a table of conversations, its columns parted by tabs, under the line
 *
 *   #session  req  depth  t_s  think_s  api_s  in_tokens  out_tokens  ranges
 *
 * The rows of a conversation lie together, req counting from 0. A request comes think_s after the
 * answer to the one that it follows; tools/arrivals tells when. ranges ("1-1112,1120") holds an id
 * for each 64 whole tokens of the prompt, known within its conversation only: no block is shared by
 * two conversations. What the columns leave open:
 *
 *   depth 0    the main agent: follows its request before; its first starts the conversation
 *   depth 1    a nested agent, in the main agent's name space: follows its own request before; its
 *              first follows the main agent's last one above it. t_s counts from its own start, so
 *              a row of 0, or below the row before, begins another one; neighbours run side by side
 *   think_s    empty: t_s less t_s and api_s of the request that it follows, at least 0; 0 for a
 *              nested agent's first. The main agent's contains the time that the nested agents took
 *              that it waits for, so it follows none of them
 *   api_s      empty: 0. Used for nothing else: the replay has engines of its own
 *   ranges     tokens behind the last whole 64 have no id. They are told apart by their number, so
 *              the partial last block of a prompt sent twice is the same one
 */
#include <stddef.h>
#include <stdint.h>

#define SPW_TRACE_BLOCK_TOKENS 512
#define SPW_TRACE_TABLE_TOKENS 64         /* of an id in a table of conversations */
#define SPW_TRACE_TOKENS_MAX   (1u << 24) /* of one prompt or answer */

struct spw_trace_request {
    int64_t arrival_ns; /* since the first request; never falls from one request to the next. 0 in
                           a closed loop */
    int64_t think_ns;   /* from the end of the answer to @follows to this request */
    uint32_t follows;   /* 1 + index of the request to be answered first, an earlier one of the
                           same conversation; 0: none */
    uint32_t conversation; /* from 0 in the order of the file; always 0 in an open loop */
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
    uint32_t conversation_count; /* 0: an open loop */
    uint64_t request_room;       /* allocated */
    uint64_t id_room;
};

struct spw_trace_options {
    /* tokens of a block, 0: SPW_TRACE_BLOCK_TOKENS. Of an id in JSON lines; for a table of
     * conversations a multiple of SPW_TRACE_TABLE_TOKENS */
    uint32_t block_tokens;
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
 * them. It must not arrive before the last one. It follows none; who reads conversations says so
 * afterwards. Returns 0, or -ENOMEM, also for more than UINT32_MAX - 1 requests.
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
