#ifndef SPW_TIER_COPIER_H
#define SPW_TIER_COPIER_H
/*
 * What a copy engine must do: move parts between an engine's KV blocks and slots. A table of
 * functions, so that the worker runs with host memory, a GPU, or a test's own engine.
 *
 *   roles     one worker thread calls everything; the engine may have threads of its own
 *   order     store and load streams are separate; within a stream copies end in order of submit
 *   end       a copy counts as ended only when poll says so: until then both its slot and its
 *             blocks may still be written or read
 */
#include <stdint.h>

enum spw_copy_kind { SPW_COPY_STORE = 0, SPW_COPY_LOAD = 1 };

/** One part to move: @pieces blocks of @piece_bytes each, gathered from or scattered to. */
struct spw_copy {
    enum spw_copy_kind kind;
    uint32_t pieces;        /* blocks_per_chunk                                           */
    uint32_t piece_bytes;   /* payload bytes of one block                                 */
    const uint32_t *blocks; /* ids, borrowed until the copy has ended; already checked    */
    uint8_t *kv;            /* first block of the client's KV                             */
    uint64_t kv_block_bytes; /* distance of two blocks                                     */
    uint8_t *slot;          /* payload in the shard (read for loads, written for stores)  */
    uint64_t nominal_bytes; /* what pacing counts                                         */
    uint64_t offered_ns;    /* when it could have started: pacing never drifts            */
    void *tag;              /* the caller's, comes back in spw_copy_end                   */
};

struct spw_copy_end {
    void *tag;
    int status; /* 0 or a negative errno: then nothing of the target may be trusted */
};

struct spw_copier; /* the engine's own state */

struct spw_copier_ops {
    /** Accept a copy; -EAGAIN when the in-flight limit of its stream is reached. */
    int (*submit)(struct spw_copier *copier, const struct spw_copy *copy);
    /** Ended copies, at most @max; @now_ns = CLOCK_MONOTONIC as the worker read it. Does the
     * work that is due. Never sleeps. */
    int (*poll)(struct spw_copier *copier, uint64_t now_ns, struct spw_copy_end *out, int max);
    /** When poll should be called again: 0 = at once, UINT64_MAX = nothing in flight. */
    uint64_t (*due_ns)(struct spw_copier *copier, uint64_t now_ns);
    void (*close)(struct spw_copier *copier);
};

/** Handle: ops + state. */
struct spw_copier_handle {
    const struct spw_copier_ops *ops;
    struct spw_copier *copier;
};

#endif
