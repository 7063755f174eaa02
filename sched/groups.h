#ifndef SPW_SCHED_GROUPS_H
#define SPW_SCHED_GROUPS_H
/*
 * KV-cache groups: how each group of a space cuts a sequence of tokens into chunks, and which of
 * its chunks a request needs in order to go on from a given token.
 *
 * Pure: no memory, no clock, no I/O. Built once a space, read by every evaluation, from any
 * thread. Chunk i of a group covers the tokens [i * chunk_tokens, (i + 1) * chunk_tokens).
 */
#include "sched/verdict.h"
#include <stdbool.h>
#include <stdint.h>

#define SPW_GROUPS_MAX 16
#define SPW_TOKENS_MAX ((uint64_t)INT64_MAX) /* largest token count and budget accepted */

/** One group as an engine states it, checked by spw_groups_init(). */
struct spw_group_shape {
    uint8_t kind;           /* enum spw_group_kind                                            */
    uint64_t block_tokens;  /* tokens in one GPU block                                        */
    uint64_t window_tokens; /* sliding: window, tokens retained beyond it included; chunked:
                               attention chunk; else 0                                        */
};

/** One group, ready for use. */
struct spw_group {
    uint8_t kind;           /* enum spw_group_kind                                       */
    uint64_t chunk_tokens;  /* tokens in one chunk                                       */
    uint64_t window_tokens; /* as configured                                             */
    uint64_t window_chunks; /* chunks needed before a chunk edge; state 1, full 0        */
};

/** All groups of a space. */
struct spw_groups {
    uint64_t hash_unit_tokens; /* spacing of partial-tail boundaries               */
    uint64_t state_tokens;     /* chunk_tokens of the state groups, 0 without one  */
    uint32_t count;
    uint32_t full_count;           /* the first full_count of order[] are full groups  */
    bool tails;                    /* partial tails are possible in this layout        */
    uint8_t order[SPW_GROUPS_MAX]; /* full groups by index, then by window, descending */
    struct spw_group group[SPW_GROUPS_MAX];
};

/** Chunks first .. end - 1 of a group. */
struct spw_chunk_range {
    uint64_t first;
    uint64_t end;
};

/**
 * Prepare the groups of a space.
 *
 * @out_groups        filled in; untouched on failure
 * @hash_unit_tokens  tokens a step of the prefix hash; divides every block
 * @blocks_per_chunk  GPU blocks in a chunk, one number for all groups
 * @shapes           @count groups, 1..SPW_GROUPS_MAX; the position is the group's index
 *
 * Returns 0; -EINVAL for sizes of 0 or beyond SPW_TOKENS_MAX, a hash unit that doesn't divide a
 * block, a window where there is none or none where there must be, or state groups that differ
 * in size.
 */
int spw_groups_init(struct spw_groups *out_groups, uint64_t hash_unit_tokens,
                    uint32_t blocks_per_chunk, const struct spw_group_shape *shapes,
                    uint32_t count);

/**
 * The chunks @group needs for a request that has @start tokens on the GPU and goes on from token
 * @end: what lookup must find, what a load brings (and pins), and, with @start 0, what must have
 * been stored for @end to be a place to go on from. Nothing else computes this range.
 *
 * Both are at most SPW_TOKENS_MAX. Empty if @end <= @start.
 */
struct spw_chunk_range spw_group_need(const struct spw_group *group, uint64_t start, uint64_t end);

static inline uint64_t spw_round_down(uint64_t value, uint64_t unit)
{
    return value - value % unit;
}

#endif
