#ifndef SPW_TIER_JOB_H
#define SPW_TIER_JOB_H
/*
 * Jobs: a store or a load of up to 64 chunks, in two halves, a step at a time.
 *
 *          reserve                  answered             run taken           first copy
 *     FREE --------> RESERVED -----------------> AWAIT_RUN ---------> QUEUED --------> COPYING
 *       \ begin                       /          |                    |                    |
 *        `---------> BEGUN ----------'           | cancelled, expired,| cancelled          | last
 *                                                | its client gone    |                    | copy
 *     FREE <------------------------------------ DONE <---------------+--------------------+
 *            completion sent
 *
 *   A run that names a fence goes from AWAIT_RUN to AWAIT_FENCE, and to QUEUED when that has fired; it
 *   is DONE from there as from QUEUED. Nobody else's copies wait for it meanwhile.
 *
 *   roles     private to the worker's thread; a crash leaves nothing of them: the successor knows
 *             no ticket of its predecessor, the client library ends those jobs by -EOWNERDEAD
 *   tickets   index and nonce; a nonce is never reused, so a ticket that is gone stays gone
 *   chunks    each ends by itself: a bit an open, queued, copying, voided or failed chunk
 */
#include "shm/base.h"
#include "tier/queue.h"

#define SPW_JOBS_MAX (1u << 20) /* of a worker: a ticket holds the index in 20 bits */

enum spw_job_state {
    SPW_JOB_FREE,
    SPW_JOB_RESERVED,
    SPW_JOB_BEGUN,
    SPW_JOB_AWAIT_RUN,
    SPW_JOB_AWAIT_FENCE, /* its run was taken, what that waits for has not happened */
    SPW_JOB_QUEUED,
    SPW_JOB_COPYING,
    SPW_JOB_DONE,
    SPW_JOB_STATE_COUNT
};

/** Whose process something is: client object and its generation. */
struct spw_job_party {
    uint32_t client; /* UINT32_MAX = nobody */
    uint64_t generation;
};

struct spw_job_chunk {
    struct spw_queue_item item;
    uint32_t shard; /* loads: where the source lies; stores: our own */
    uint32_t group;
    uint32_t slot;
    uint32_t chunk_bytes;
    uint32_t piece_bytes;
    uint64_t place_bytes; /* stores: as the table tells it */
};

struct spw_job {
    struct spw_job *before, *after; /* among those awaiting their run, or free, or done */
    enum spw_job_state state;
    enum spw_copy_kind kind;
    uint64_t ticket;
    uint64_t deadline_ns; /* of AWAIT_RUN, or of AWAIT_FENCE */
    struct spw_job_party opener;
    struct spw_job_party runner;
    uint64_t cookie;   /* of the run */
    uint32_t fence;    /* of the run: 1 + its number, 0 = none */
    bool fence_waited; /* it had not fired when it was looked at first */
    uint32_t space;
    uint32_t count; /* chunks accepted */
    uint32_t blocks_per_chunk;
    int status; /* of the first chunk (by index) that failed      */
    uint32_t failed_first;
    uint64_t open;    /* chunks that have still to end                  */
    uint64_t queued;  /* of those, in the queue                         */
    uint64_t copying; /* of those, with the copier                      */
    uint64_t voided;  /* stores whose slot is RETIRED before their end  */
    uint64_t failed;
    struct spw_job_chunk chunk[SPW_JOB_CHUNKS_MAX];
    uint32_t block[SPW_JOB_CHUNKS_MAX * SPW_CHUNK_BLOCKS_MAX];
};

struct spw_job_list {
    struct spw_job *first, *last;
};

/** Table of all jobs of a worker. */
struct spw_jobs {
    struct spw_job *job;
    uint32_t limit;
    uint32_t used; /* jobs [0, used) were taken at least once */
    uint64_t nonce;
    struct spw_job_list free;
    struct spw_job_list await; /* in order of their deadlines */
};

bool spw_job_may_move(enum spw_job_state from, enum spw_job_state to);
/** Move @job on; a change that the table doesn't allow is our own bug and asserts. */
void spw_job_move(struct spw_job *job, enum spw_job_state to);
/** Static string. */
const char *spw_job_state_name(enum spw_job_state state);

/** @limit  jobs that may be open at once, 1..SPW_JOBS_MAX. 0, -EINVAL, -ENOMEM. */
int spw_jobs_init(struct spw_jobs *jobs, uint32_t limit);
void spw_jobs_fini(struct spw_jobs *jobs);

/** A new job in state RESERVED (store) or BEGUN (load) with a new ticket; NULL: all in use. */
struct spw_job *spw_jobs_open(struct spw_jobs *jobs, enum spw_copy_kind kind,
                              struct spw_job_party opener);
/** The job of @ticket in whatever state, NULL if it is gone. Any 64-bit value may be asked. */
struct spw_job *spw_jobs_find(const struct spw_jobs *jobs, uint64_t ticket);
/** DONE -> FREE. The ticket is gone from now on. */
void spw_jobs_close(struct spw_jobs *jobs, struct spw_job *job);

/** -> AWAIT_RUN until @deadline_ns, which never lies before that of an earlier call. */
void spw_jobs_await(struct spw_jobs *jobs, struct spw_job *job, uint64_t deadline_ns);
/** AWAIT_RUN -> @to (QUEUED or DONE). */
void spw_jobs_await_over(struct spw_jobs *jobs, struct spw_job *job, enum spw_job_state to);
/** The awaiting job of the earliest deadline, or NULL. */
struct spw_job *spw_jobs_first_awaiting(const struct spw_jobs *jobs);

/** Add an open chunk; returns its index. At most SPW_JOB_CHUNKS_MAX. */
uint32_t spw_job_add(struct spw_job *job, const struct spw_job_chunk *chunk, bool open);
/** Chunk @i has ended with @status (0 or a negative errno). True: it was the last open one. */
bool spw_job_chunk_end(struct spw_job *job, uint32_t i, int status);

void spw_job_list_append(struct spw_job_list *list, struct spw_job *job);
void spw_job_list_remove(struct spw_job_list *list, struct spw_job *job);

#endif
