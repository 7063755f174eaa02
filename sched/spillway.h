#ifndef SPW_SCHED_SPILLWAY_H
#define SPW_SCHED_SPILLWAY_H
/*
 * libspillway: what an engine's processes use to share one KV-cache offload pool on a host.
 *
 *   who       a *scheduler* process looks prompts up, decides, reserves stores and begins loads;
 *             a *rank* process runs them, with block ids. One process may be both.
 *   handle    struct spw_client is used by one thread at a time; several handles are independent
 *   memory    what a call hands out stays valid as long as it says; what it borrows, it borrows for
 *             the call only, unless it says otherwise
 *   calls     between spw_step_begin() and spw_step_end() no call makes a system call, allocates or
 *             waits, except spw_request_open() and spw_request_extend(), which may allocate.
 *             spw_step_end() makes at most one system call a sleeping worker, none otherwise
 *   errors    0 or a count, or a negative errno. Common to all calls:
 *             -EINVAL       caller's bug; nothing was done
 *             -EOWNERDEAD   this is a forked child of the process that attached; where a worker
 *                           is needed, also: that worker is down (it comes back: try later)
 *             -ECONNRESET   the pool was restarted: detach and attach again; told once, then
 *             -ENOTCONN     not attached (any more)
 *   after a fork the child must not use the handle, except that spw_detach() frees its memory
 *
 * Units: tokens, chunks, bytes and nanoseconds as named. A *chunk* is blocks_per_chunk blocks of
 * one group; a *part* is one rank's bytes of a chunk.
 */
#include <stdint.h>

#include "sched/verdict.h"

#ifdef __cplusplus
extern "C" {
#endif

#ifndef SPW_API
#define SPW_API __attribute__((visibility("default")))
#endif

#define SPW_MAX_GROUPS     16
#define SPW_MAX_RANKS      32
#define SPW_MAX_KEY_BYTES  64
#define SPW_MAX_JOB_CHUNKS 64

struct spw_client;
struct spw_space;
struct spw_request;

/* ---- attach ---------------------------------------------------------------------------------- */

/** What the thread that attaches is bound to, and stays bound to. */
enum spw_thread_bind {
    SPW_THREAD_ANYWHERE = 0,
    SPW_THREAD_ON_NODE = 1, /* CPUs of numa_node, of those that it may use */
    SPW_THREAD_ON_CPU = 2   /* the one CPU cpu                             */
};

struct spw_attach_options {
    uint32_t size_bytes; /* sizeof(struct spw_attach_options)                              */
    int32_t numa_node;   /* where the replica lies, while there is room; -1 = wherever this thread
                            runs                                                           */
    const char *pool;    /* the pool's name, as given to spillwayd                         */
    const char *shm_dir; /* NULL = /dev/shm                                                */
    const char *label;   /* shown by `spillway stat`, at most 47 bytes, may be NULL        */
    uint64_t timeout_ns; /* how long to wait for the workers' acknowledgements, 0 = 5 s    */
    uint32_t changes;    /* room for change events between two reads, 0 = none wanted      */
    int64_t uid;         /* owner of the pool, -1 = this process's effective user          */
    uint64_t (*now_ns)(void *ctx); /* clock that waits are measured by; NULL = CLOCK_MONOTONIC.
                                      ETAs compare it with the workers' clock, which is that one */
    void *clock_ctx;
    uint32_t bind_thread; /* enum spw_thread_bind                                          */
    uint32_t cpu;         /* for SPW_THREAD_ON_CPU                                              */
};

/** Version of the library, e.g. "0.1.0"; static. */
SPW_API const char *spw_version(void);

/**
 * Attach to a running pool. Allocates the replica (at most 48 bytes a chunk of the pool) and fills
 * it from the state tables.
 *
 * -ENOENT no such pool; -EAGAIN it is starting; -EOWNERDEAD its daemon is dead; -EPROTONOSUPPORT it
 * speaks another layout; -EINVAL numa_node isn't there, or cpu isn't or isn't allowed; -EACCES;
 * -EBUSY all client places are taken; -ETIMEDOUT a worker did not answer. @error_text (may be NULL,
 * @error_bytes long) gets the words.
 *
 * What the system denies of numa_node and bind_thread, or a node without a CPU that this thread may
 * use, is no failure: 0, and @error_text says what isn't as asked for; "" where all is. spw_get_info()
 * tells it later.
 */
SPW_API int spw_attach(const struct spw_attach_options *options, struct spw_client **out_client,
                       char *error_text, uint64_t error_bytes);

/** Detach and free everything made from this handle (spaces, requests). NULL is fine. */
SPW_API void spw_detach(struct spw_client *client);

/* ---- spaces ---------------------------------------------------------------------------------- */

struct spw_group_config {
    uint32_t kind; /* enum spw_group_kind                                            */
    uint32_t block_tokens;
    uint64_t window_tokens; /* sliding: window; chunked: attention chunk; else 0              */
    uint32_t chunk_bytes;   /* of one part, at most the pool's slot; divisible by blocks/chunk */
    uint64_t nominal_bytes; /* what a paced host copier counts, at most 2^50, 0 = chunk_bytes */
};

struct spw_space_config {
    uint32_t size_bytes;
    uint32_t blocks_per_chunk;
    uint32_t hash_unit_tokens; /* spacing of prefix hashes                                    */
    uint32_t groups;           /* 1..16                                                       */
    const struct spw_group_config *group;
    uint32_t ranks;              /* 1..32; replicated layouts: 1                             */
    const uint32_t *rank_worker; /* worker (GPU) that copies for each rank of this client    */
    const char *fingerprint;     /* everything that must agree for bytes to be interchangeable,
                                    at most 255 bytes, kept for people to read                */
    int64_t max_recompute_pending_tokens; /* 0 = always wait, SPW_RECOMPUTE_AUTO = by price; other
                                             negative values are refused (-EINVAL)            */
    uint32_t recompute_scope;             /* enum spw_recompute_scope, 0 = request            */
    uint32_t gpu_prefix_cache; /* 1: a chunk being loaded for one request makes others wait   */
    uint32_t recompute_price;  /* auto: a second of prefill is worth so many of waiting, 1 to
                                  SPW_PRICE_MAX; 0 = 4; SPW_PRICE_QUEUE = 1 + spw_space_queue() */
    uint32_t no_await;         /* 1: stores that its requests wait for don't go first          */
    uint64_t prefill_tokens_per_s; /* auto: how fast this engine computes; required, else ignored */
    uint64_t wait_limit_ns;  /* longest wait of a request for a prefix, 0 = 300 s, at most a day;
                                  after it what still pends reads MISS for that request        */
    uint64_t retry_limit_ns; /* the same for what nobody knows yet (RETRY), 0 = 1 s          */
    /* Shares of each tier of its workers, in 1/1000, 0 to 1000. Nobody else takes from the space what
       is guaranteed to it; beyond the largest share (0 = all) its chunks go first when any are
       wanted gone. Who opens the space last says it for all; both 0 = as they are. */
    uint32_t guaranteed_permille;
    uint32_t largest_permille;
};

#define SPW_RECOMPUTE_AUTO INT64_MIN  /* max_recompute_pending_tokens: priced, not counted    */
#define SPW_PRICE_QUEUE    UINT32_MAX /* recompute_price: 1 + the queue length the client tells */
#define SPW_PRICE_MAX      1000000u

/**
 * Read max_recompute_pending_tokens as people write it: "0" (always wait), a whole number of tokens
 * up to 2^63 - 1, or "auto" (SPW_RECOMPUTE_AUTO); digits alone, whatever the locale. Any thread, no
 * system call, needs no client. Returns 0; -EINVAL with words that name the value and the range
 * (@error_text may be NULL), @out_tokens untouched.
 */
SPW_API int spw_recompute_budget_parse(const char *text, int64_t *out_tokens, char *error_text,
                                       uint64_t error_bytes);

/** Likewise recompute_price: "1" to "1000000", or "queue" (SPW_PRICE_QUEUE). */
SPW_API int spw_recompute_price_parse(const char *text, uint32_t *out_price, char *error_text,
                                      uint64_t error_bytes);

/**
 * Open a space: configurations with equal fingerprint, sizes, groups and ranks share chunks, others
 * never meet; rank_worker and when to wait are each client's own. Makes system calls; not inside a
 * step. Freed with the client.
 * -EINVAL with words; -EBUSY a worker of @rank_worker keeps another rank of this space; -ENOSPC the
 * pool knows too many spaces; -ETIMEDOUT the daemon did not answer.
 */
SPW_API int spw_space_open(struct spw_client *client, const struct spw_space_config *config,
                           struct spw_space **out_space, char *error_text, uint64_t error_bytes);

/** Tell how many requests of this engine wait for its GPU: with SPW_PRICE_QUEUE a second of prefill
 * costs all of them one. Any time. */
SPW_API int spw_space_queue(struct spw_space *space, uint64_t requests);

/** Forget every chunk of the space, in every shard; what is being stored is not kept either, and
 * reserves are refused (-ESTALE) up to the next step. A SPW_COMPLETION_RESET follows; its status is
 * -EOWNERDEAD when a worker was down, or died before it answered: its chunks may come back with its
 * successor, so reset again until the status is 0. -EAGAIN a lane is full: nothing was done;
 * -EOWNERDEAD no worker is up. */
SPW_API int spw_space_reset(struct spw_space *space);

/* ---- steps ----------------------------------------------------------------------------------- */

/**
 * Open a scheduling step: bring the replica up to date. A HIT seen from now on stays loadable until
 * spw_step_end(). Returns the number of changes applied. -EALREADY a step is open. -ECONNRESET.
 */
SPW_API int spw_step_begin(struct spw_client *client);

/** Close the step; decisions made in it are void for spw_load_begin() from now on. */
SPW_API int spw_step_end(struct spw_client *client);

/* ---- requests and decisions ------------------------------------------------------------------ */

#define SPW_REQUEST_NO_READ 1u /* never load: no lookup, no touch; stores work */

struct spw_request_config {
    uint32_t size_bytes;
    uint32_t flags;         /* SPW_REQUEST_*                                   */
    uint64_t prompt_tokens; /* tokens of the prompt                            */
    uint64_t expect_tokens; /* room reserved for keys at once; 0 = the prompt  */
    uint64_t tag;           /* the engine's own number of it, shown by `spillway explain` */
};

SPW_API int spw_request_open(struct spw_space *space, const struct spw_request_config *config,
                             struct spw_request **out_request);

/** The tag given when it was opened. */
SPW_API uint64_t spw_request_tag(const struct spw_request *request);

/**
 * Append keys of whole chunks of @group: key i is the engine's own prefix hash over all tokens up
 * to the end of chunk i. @keys: @count keys of @key_bytes (1..64) each, packed; copied. Keys are
 * handed in once; they never change, and all of a request's group have the same length. -ENOMEM.
 */
SPW_API int spw_request_extend(struct spw_request *request, uint32_t group, const void *keys,
                               uint32_t key_bytes, uint64_t count);

/**
 * Boundary key of a partial tail: prefix hash over the first @boundary tokens, one for each group,
 * packed. Boundaries are multiples of the hash unit, at most 64 a request; equal ones replace.
 */
SPW_API int spw_request_boundary(struct spw_request *request, uint64_t boundary, const void *keys,
                                 uint32_t key_bytes);

/** Tokens the request holds now (prompt and generated); only grows. */
SPW_API int spw_request_tokens(struct spw_request *request, uint64_t tokens);

struct spw_need {
    uint64_t first; /* chunks [first, end) of the group */
    uint64_t end;
};

struct spw_decision {
    uint32_t size_bytes; /* set by the caller                                             */
    uint32_t action;     /* enum spw_action                                               */
    uint32_t reason;     /* enum spw_reason                                               */
    uint32_t groups;
    uint64_t step;              /* the step it is valid in                                */
    uint64_t hit_tokens;        /* to load beyond computed_tokens                         */
    uint64_t computed_tokens;   /* as given                                               */
    uint64_t tail_boundary;     /* chosen partial tail, 0 = none                          */
    uint64_t recomputed_tokens; /* what the budget gave up                                */
    uint64_t deciding_chunk;    /* the chunk that decided ...                             */
    uint32_t deciding_group;    /* ... and its group, UINT32_MAX = none did               */
    uint32_t repeated;          /* 1: no news since this request was deferred, O(1)       */
    struct spw_need need[SPW_MAX_GROUPS];
    uint64_t eta_ns; /* until what it waits for, or what was given up (recomputed_tokens), will be
                           stored; UINT64_MAX = not known; 0 where nothing pends. If repeated: as
                           it was then; spw_request_eta() tells what it is now                 */
    uint64_t waited_ns; /* how long this wait took so far, or took: 0 without one              */
};

/**
 * Look the request up and decide: load now, miss, or defer. @computed_tokens are on the GPU
 * already;
 * @in_flight: a transfer of this very request is still running, besides those that this client
 * asked for or ran itself and has not seen completed: say so while another process runs one of its
 * tickets. 0 also says that loads handed to others are over. Inside a step only. One decision that
 * ends (not a deferral) touches the request's chunks, deepest first.
 *
 * A deferred request is deferred again at once (repeated = 1) while nothing that it waits for has
 * changed; spw_woken() tells which have. A chunk that was a HIT and is evicted meanwhile is noticed
 * when that settles. The stores and promotions it waits for go first at their workers until it is decided,
 * cancelled or finished. Of these chunks those that only the tier below has are asked for; if they
 * can't be brought, they read MISS for this request (spw_completions() takes in the answers).
 */
SPW_API int spw_lookup(struct spw_request *request, uint64_t computed_tokens, int in_flight,
                       struct spw_decision *out_decision);

#define SPW_CHUNK_TAIL UINT64_MAX /* index of a chunk reference: the chosen tail's object */

/** One chunk of a request. */
struct spw_chunk_ref {
    uint32_t group;
    uint32_t reserved;
    uint64_t index; /* in the order of spw_request_extend(), or SPW_CHUNK_TAIL with `boundary` */
    uint64_t boundary;
};

/**
 * The deferred requests that may have changed since they were asked last: news of what they wait
 * for, a worker that came or went, a transfer that ended, a limit that was reached. Each is handed
 * out once, the longest known first; asking any other one again says "repeated". After
 * spw_step_begin(), inside the step; returns how many were written, 0 at the end. What costs time is
 * news, not the number of requests that wait. One deferred because @in_flight was said is not handed
 * out when that transfer ends: who said so knows.
 */
SPW_API int spw_woken(struct spw_client *client, struct spw_request **out_requests, uint32_t max);

/**
 * When a chunk that is pending will be readable, at all ranks: *out_eta_ns from now on, UINT64_MAX
 * if its stream has stalled or is not known well enough. -ENOENT it is not pending. Inside a step
 * only.
 */
SPW_API int spw_request_eta(struct spw_request *request, const struct spw_chunk_ref *chunk,
                            uint64_t *out_eta_ns);

/** Verdicts of arbitrary keys, for connectors that scan by themselves: out_verdicts[i] is an enum
 * spw_verdict as a byte. Inside a step only. Nothing is touched. */
SPW_API int spw_probe(struct spw_space *space, uint32_t group, const void *keys, uint32_t key_bytes,
                      uint64_t count, uint8_t *out_verdicts);
/** The same for chunks [first, first + count) of a request's group, digests at hand. */
SPW_API int spw_request_probe(struct spw_request *request, uint32_t group, uint64_t first,
                              uint64_t count, uint8_t *out_verdicts);

/** Touch all the request's chunks that are ready, deepest first, whatever a lookup would say. */
SPW_API int spw_touch(struct spw_request *request);

/* ---- jobs ------------------------------------------------------------------------------------ */

/** What a rank process needs to run a job that a scheduler prepared; plain bytes, may be sent to
 * another process of the same pool. */
struct spw_ticket {
    uint64_t id;
    uint64_t incarnation;
    uint32_t worker;
    uint32_t kind;   /* enum spw_job_kind                             */
    uint32_t chunks; /* accepted: blocks are given for each of them   */
    uint32_t reserved;
};

enum spw_job_kind { SPW_JOB_STORE = 1, SPW_JOB_LOAD = 2 };

/**
 * First half of a store: ask @rank's worker for slots for @count chunks (at most 64), in prefix
 * order. Others see them pending as soon as the worker has taken it. The answer comes as a
 * completion with @cookie: an accepted prefix, and which of them are new. Chunks that another
 * worker has are not left out: spw_request_probe() tells. Inside or outside a step. Returns the
 * number of chunks asked for: may be lower than @count. -EAGAIN the lane is full; -EBUSY too many
 * jobs are open; -EOWNERDEAD the worker is down; -EMSGSIZE not even one chunk fits the pool's
 * command lanes.
 */
SPW_API int spw_store_reserve(struct spw_request *request, uint32_t rank,
                              const struct spw_chunk_ref *chunks, uint32_t count, uint64_t cookie);

/**
 * First half of a load: pin and hand @rank's worker @count (at most 64) of the chunks a decision
 * of this step needs. The nearest copy is taken. Returns the number taken, a prefix; -ESTALE the
 * decision is of another step, or this client was fenced; -ENOENT the first chunk is not there
 * (digest collision); -EAGAIN the lane is full, or the first chunk's entry is just being written by
 * its worker: the hit stands, try again in this step, or look up again in the next; -EBUSY too many
 * jobs are open; -EOWNERDEAD the worker is down.
 */
SPW_API int spw_load_begin(struct spw_request *request, const struct spw_decision *decision,
                           uint32_t rank, const struct spw_chunk_ref *chunks, uint32_t count,
                           uint64_t cookie);

/** The chunks that @decision needs, from number @from on, as references (group by group,
 * ascending). Returns how many were written, 0 at the end. Pure. */
SPW_API int spw_decision_chunks(const struct spw_decision *decision, uint64_t from,
                                struct spw_chunk_ref *out_chunks, uint32_t max);

/**
 * Second half: @blocks holds blocks_per_chunk ids of this client's KV for each of ticket->chunks
 * chunks, in order (ids of chunks that were present already are ignored). Exactly one completion
 * with @cookie follows; a ticket that can't be run (any more) completes with -ENOENT or the like.
 * -EAGAIN the lane is full; -EBUSY too many jobs are open; -EOWNERDEAD the worker of the ticket is
 * gone; -EMSGSIZE too many blocks for one message.
 */
SPW_API int spw_run(struct spw_client *client, const struct spw_ticket *ticket,
                    const uint32_t *blocks, uint32_t block_count, uint64_t cookie);

/** End a job: before its run it simply ends; a run that is not yet copying completes with
 * -ECANCELED, one that is copying completes as usual. Any state, any number of times. -EAGAIN the
 * lane is full: nothing was done. */
SPW_API int spw_cancel(struct spw_client *client, const struct spw_ticket *ticket);

/** Cancel everything this client knows to be open for the request; it can be used again. Answers
 * to reserves and begins that are still to come are dropped; each run still completes once. */
SPW_API int spw_request_cancel(struct spw_request *request);

/** End and free a request. Stores that run go on; everything else is cancelled as by
 * spw_request_cancel(). NULL is fine. */
SPW_API void spw_request_finish(struct spw_request *request);

enum spw_completion_kind {
    SPW_COMPLETION_RESERVED = 1, /* answer to spw_store_reserve() */
    SPW_COMPLETION_STORED = 2,   /* a run store has ended         */
    SPW_COMPLETION_BEGUN = 3,    /* answer to spw_load_begin()    */
    SPW_COMPLETION_LOADED = 4,   /* a run load has ended          */
    SPW_COMPLETION_RESET = 5,    /* of spw_space_reset(); cookie: the space's number */
};

struct spw_completion {
    uint32_t kind;
    int32_t
        status; /* 0, or the first error: -ENOSPC, -EBUSY, -ESTALE, -ECANCELED, -EOWNERDEAD ... */
    uint64_t cookie;          /* as given to the call that this answers, a run's own */
    struct spw_ticket ticket; /* RESERVED, BEGUN: for the run, whatever status says of the chunks
                                 that were not accepted; id 0 = nothing to run               */
    uint64_t mask; /* RESERVED: bit i set = chunk i is new and must be run; STORED, LOADED: bit i
                      set = chunk i failed                                                     */
};

/** Reap completions, at most @max, of jobs in any order; returns how many, 0 if there are none now.
 * Never waits; inside or outside a step. Blocks named in a run may be reused once it completed. */
SPW_API int spw_completions(struct spw_client *client, struct spw_completion *out, uint32_t max);

/* ---- host KV --------------------------------------------------------------------------------- */

/** This client's KV blocks in host memory, where the pool's host copier reads and writes: block b
 * is at @out_start + b * @out_block_bytes. Any pointer may be NULL. -ENOENT the pool was made without. */
SPW_API int spw_kv_blocks(struct spw_client *client, void **out_start, uint64_t *out_blocks,
                          uint64_t *out_block_bytes);

/* ---- GPU KV ---------------------------------------------------------------------------------- */

#define SPW_MAX_KV_MEMORIES 256
#define SPW_MAX_KV_TENSORS  512
#define SPW_MAX_KV_FENCES   64
#define SPW_KV_HANDLE_BYTES 64

enum {
    SPW_KV_MEMORY_IPC = 1, /* handle: as cuIpcGetMemHandle() gives it                          */
    SPW_KV_MEMORY_ADDRESS =
        2, /* handle: the address, first 8 bytes; for a worker inside this process */
};

/** An allocation of device memory. */
struct spw_kv_memory {
    uint8_t handle[SPW_KV_HANDLE_BYTES];
    uint64_t bytes; /* from its base on, that tensors may lie in */
    uint32_t kind;  /* SPW_KV_MEMORY_*                           */
    uint32_t reserved;
};

/** One tensor of KV blocks: part p of block b is part_bytes long and lies at offset + b *
 * block_stride_bytes + p * part_stride_bytes of its memory. */
struct spw_kv_tensor {
    uint32_t group;
    uint32_t memory; /* which of the memories             */
    uint64_t offset; /* bytes from the allocation's base  */
    uint64_t block_stride_bytes;
    uint64_t part_stride_bytes;
    uint32_t part_bytes;
    uint32_t parts;  /* 1, or 2 where K and V lie apart   */
    uint32_t blocks; /* 1 + highest block id              */
    uint32_t reserved;
};

/** A tensor whose blocks lie whole, one behind the other: [blocks, 2, ...] of one layer, or of all
 * layers together [blocks, layers, 2, ...]. */
SPW_API void spw_kv_tensor_whole(struct spw_kv_tensor *tensor, uint32_t group, uint32_t memory,
                                 uint64_t offset, uint32_t blocks, uint32_t block_bytes);
/** A tensor [2, blocks, ...]: all of K, then all of V; a block has @half_bytes of each. */
SPW_API void spw_kv_tensor_split(struct spw_kv_tensor *tensor, uint32_t group, uint32_t memory,
                                 uint64_t offset, uint32_t blocks, uint32_t half_bytes);

struct spw_kv_config {
    uint32_t size_bytes;
    uint32_t memories; /* 1..256 */
    uint32_t tensors;  /* 1..512: the bytes of a block of a group are those of all its tensors, and
                          chunk_bytes / blocks_per_chunk of that group in each space              */
    uint32_t fences;   /* 0..64  */
    uint8_t gpu[16];   /* UUID of the GPU, as cuDeviceGetUuid() gives it */
    const struct spw_kv_memory *memory;
    const struct spw_kv_tensor *tensor;
    const void
        *fence; /* SPW_KV_HANDLE_BYTES each: interprocess events, as cuIpcGetEventHandle() gives
                          them; with SPW_KV_MEMORY_ADDRESS the events themselves                   */
};

/**
 * Register this client's KV in GPU memory at the worker of that GPU, whose number *out_worker gets:
 * for rank_worker of its spaces. From then on block ids of its runs there mean blocks of these tensors.
 * Each path is tried, in the first and the last block of each group, whose bytes are put back: while
 * this call runs nothing else may use these. Makes system calls and waits, @timeout_ns (0 = 10 s); not
 * inside a step. Mappings are let go within 2 s when the client detaches or dies; memory and
 * events must not be freed before. Registering anew replaces.
 *
 * -EINVAL with words; -ENODEV no worker has this GPU; -EOPNOTSUPP it copies host memory alone;
 * -EOWNERDEAD it is down, or died meanwhile; -EBUSY runs are unfinished, or the daemon has not answered
 * this client's last spw_space_open() yet; -EAGAIN its ring is full; -ETIMEDOUT; otherwise the worker's
 * refusal with the driver's word. After -ETIMEDOUT the worker may still be at it: try again.
 *
 * A worker that was restarted knows nothing of it: runs of its tickets end by -EOWNERDEAD, and those of
 * its successor's complete with -ENXIO until this client has registered anew there; fences are not
 * handed out meanwhile (-ENXIO, too). Block ids that don't lie in all tensors of their group, or chunks
 * of another size, complete with -EINVAL.
 */
SPW_API int spw_kv_register(struct spw_client *client, const struct spw_kv_config *config,
                            uint64_t timeout_ns, uint32_t *out_worker, char *error_text,
                            uint64_t error_bytes);

/**
 * A fence that may be recorded: no unfinished run names it, and nobody has taken it. Record its event on
 * the stream whose work the copies must wait for, then name it in spw_run_after(), in any number of runs,
 * then give it back: it is handed out again when all of these have completed and were taken by
 * spw_completions(). No system call; inside or outside a step. -EAGAIN none is free; -ENOENT none was
 * registered there; -ENXIO its worker was restarted: register anew.
 */
SPW_API int spw_fence_take(struct spw_client *client, uint32_t worker, uint32_t *out_fence);
SPW_API int spw_fence_give(struct spw_client *client, uint32_t worker, uint32_t fence);

/** spw_run() whose copies begin only when what was recorded into @fence before this call has happened:
 * for a store, that the KV is written; for a load, that its blocks are free. Other copies go on
 * meanwhile. -EINVAL it is no fence of the ticket's worker, or not taken. A fence that doesn't fire within the
 * pool's --event-limit ends the run with -ETIMEDOUT. */
SPW_API int spw_run_after(struct spw_client *client, const struct spw_ticket *ticket,
                          const uint32_t *blocks, uint32_t block_count, uint64_t cookie,
                          uint32_t fence);

/* ---- news, counters -------------------------------------------------------------------------- */

enum spw_change_kind { SPW_CHANGE_STORED = 1, SPW_CHANGE_REMOVED = 2 };

struct spw_change {
    uint32_t kind;
    uint32_t worker;
    uint32_t space; /* number of the space in the pool, as spw_space_number() */
    uint32_t group;
    uint32_t key_bytes; /* 0: the key could no longer be read, digest only         */
    uint32_t rank;      /* where the key could be read */
    uint64_t digest[2];
    uint8_t key[SPW_MAX_KEY_BYTES];
};

/** Changes gathered by spw_step_begin(), oldest first; what is there when the client attaches is
 * told by probes alone. They speak of host memory: a chunk that goes to the tier below is REMOVED, and
 * STORED when it has come back; a probe shows it as PENDING in between. -EOVERFLOW: some were lost (ring lapped, a worker restarted, or too many
 * between two reads): told once; take a new picture by spw_probe(). */
SPW_API int spw_changes(struct spw_client *client, struct spw_change *out, uint32_t max);
SPW_API uint32_t spw_space_number(const struct spw_space *space);

/** Geometry and health; an info of an earlier version, by its size_bytes, gets its own fields. */
struct spw_info {
    uint32_t size_bytes; /* set by the caller */
    uint32_t workers;
    uint64_t workers_up;      /* bit k */
    uint32_t client;          /* this client's number */
    uint32_t capacity_chunks; /* a worker */
    uint64_t pool_id[2];
    uint64_t replica_bytes;
    int32_t replica_refused; /* numa_node: 0, or the negative errno that it was refused with */
    int32_t thread_refused;  /* likewise bind_thread: this thread runs where it did before   */
    uint32_t replica_near_permille; /* of sampled pages of the replica that lie on numa_node, when
                                       it was attached; UINT32_MAX: not known */
    uint32_t reserved;
};
SPW_API int spw_get_info(struct spw_client *client, struct spw_info *out_info);

/** How long deferred requests waited, of one way in which waits end. */
struct spw_wait_histogram {
    uint64_t count;
    uint64_t sum_ns;
    uint64_t
        bucket[32]; /* b: waits below 2^b microseconds that no lower one counts; the last: all */
};
/** Waits of this client's requests that ended by @outcome (enum spw_wait_outcome). -EINVAL. */
SPW_API int spw_waits(struct spw_client *client, uint32_t outcome,
                      struct spw_wait_histogram *out_histogram);

/** Copy this client's counters; returns how many there are. Names by index, static, NULL beyond. */
SPW_API int spw_counters(struct spw_client *client, uint64_t *out_values, uint32_t max);
SPW_API const char *spw_counter_name(uint32_t index);

#ifdef __cplusplus
}
#endif

#endif
