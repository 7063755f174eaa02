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
 *   layout    of a part in its slot, where the KV is registered: the group's tensors in the order of
 *             the registration, of each its parts, of each part the chunk's blocks one behind the
 *             other. Where consecutive blocks lie side by side in the tensor, so they do here
 */
#include "shm/layout.h"

enum spw_copy_kind { SPW_COPY_STORE = 0, SPW_COPY_LOAD = 1 };

/** One part to move: @pieces blocks of @piece_bytes each, gathered from or scattered to. */
struct spw_copy {
    enum spw_copy_kind kind;
    uint32_t pieces;        /* blocks_per_chunk                                           */
    uint32_t piece_bytes;   /* payload bytes of one block                                 */
    const uint32_t *blocks; /* ids, borrowed until the copy has ended; already checked    */
    uint32_t client;        /* whose KV: what it registered by kv_open, where kv is NULL  */
    uint32_t group;
    uint8_t *kv;             /* first block of the client's KV in host memory, or NULL     */
    uint64_t kv_block_bytes; /* distance of two blocks there                               */
    uint8_t *slot;           /* payload in the shard (read for loads, written for stores)  */
    uint64_t nominal_bytes;  /* what pacing counts                                         */
    uint64_t offered_ns;     /* when it could have started: pacing never drifts            */
    void *tag;               /* the caller's, comes back in spw_copy_end                   */
};

struct spw_copy_end {
    void *tag;
    int status; /* 0 or a negative errno: then nothing of the target may be trusted */
};

/** What a registration came to: what block ids of its copies are checked against. */
struct spw_kv_shape {
    uint64_t block_bytes[SPW_GROUP_COUNT_MAX]; /* of one, in all tensors of the group; 0 = none */
    uint32_t blocks[SPW_GROUP_COUNT_MAX];      /* 1 + highest id that lies in all of them       */
    uint32_t fences;
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
    /** NULL, or: 0, or -ENODEV for good: the device is lost, every copy has ended or ends with an
     * error, and the process should go. */
    int (*health)(struct spw_copier *copier);

    /* The next three together, or NULL: this engine takes no registrations. A copy with kv NULL is
     * submitted only while its client's registration is open, and with ids below shape.blocks. */

    /** Register client @client's GPU memory: map it, try it end to end. @record is this process's own
     * copy and as long as it says; its values are unchecked. Goes in steps, so that a worker serves
     * others meanwhile: -EAGAIN = call again with the same, 0 = *out_shape is filled, else refused
     * with words in @err and nothing is left. One that was open is closed first. */
    int (*kv_open)(struct spw_copier *copier, uint32_t client, const struct spw_kv_record *record,
                   struct spw_kv_shape *out_shape, struct spw_error *err);
    /** Let go of what @client registered or is registering; none of its copies is in flight. */
    void (*kv_close)(struct spw_copier *copier, uint32_t client);
    /** Has what fence @fence of @client stood for happened, as of now? 1, 0, or a negative errno. */
    int (*fence_fired)(struct spw_copier *copier, uint32_t client, uint32_t fence);

    void (*close)(struct spw_copier *copier);
};

/** Handle: ops + state. */
struct spw_copier_handle {
    const struct spw_copier_ops *ops;
    struct spw_copier *copier;
};

#endif
