#ifndef SPW_TIER_WORKER_IMPL_H
#define SPW_TIER_WORKER_IMPL_H
/*
 * What the worker's files share: worker.c (loop, doorbell, timers), worker_commands.c (taking and
 * checking commands), worker_halves.c (reserve, begin and their runs), worker_jobs.c (jobs from run
 * to completion), worker_kv.c (registered memory, and fences), worker_stream.c (order and places of
 * stores), worker_clients.c (clients that come and go), worker_peers.c (other workers' news); and
 * where there is a tier below worker_cold.c, worker_down.c, worker_up.c.
 *
 *   roles     private to the worker's one thread. What lies in shared memory is written through
 *             the modules that own it: shard, lanes, feed
 *   clients   of each client object one generation is served at a time, or none:
 *
 *                    lock held, new generation          gone, or handed over
 *             ABSENT ------------------------> SERVED ------------------------> LEAVING
 *                ^                                                                 |
 *                `----------- no copy touches its blocks any more -----------------'
 *
 *             A client whose objects are lost (shm/guard.h) leaves at once and comes no more until
 *             they have been made anew; they are mapped anew while it is ABSENT
 *
 *   room      a command is taken only if its answer surely fits: completions sent and not reaped,
 *             and those owed for runs, never exceed the lane
 */
#include "tier/counters.h"
#include "tier/job.h"
#include "tier/layout.h"
#include "tier/shard.h"
#include "tier/worker.h"

/* Two streams look at what clients have marked as awaited. */
enum spw_worker_marks { SPW_MARKS_STORES, SPW_MARKS_PROMOTIONS, SPW_MARKS };

enum spw_worker_client_phase { SPW_CLIENT_ABSENT, SPW_CLIENT_SERVED, SPW_CLIENT_LEAVING };

/* A PROMOTE that stays at the head of its lane until slots come (worker_up.c). */
struct spw_worker_promoting {
    uint64_t until_ns; /* 0: none does                            */
    uint64_t refused;  /* of the chunks before .next, as answered */
    uint32_t next;     /* chunk                                   */
};

struct spw_worker_client {
    enum spw_worker_client_phase phase;
    uint64_t generation; /* served, or known to be gone; 0 before the first */
    struct spw_lane_consumer commands;
    struct spw_lane_producer completions;
    uint32_t owed;                    /* completions that runs of this generation still get    */
    uint32_t open_jobs;               /* opened by this generation                             */
    uint32_t in_copy;                 /* copies that touch this object's KV blocks             */
    uint32_t claim_tries;             /* of the command at the head                            */
    uint64_t awaited_seen[SPW_MARKS]; /* its change count at the last look at its bits         */
    uint64_t object;                  /* its number in ctl when its objects were mapped        */
    uint64_t map_ns;                  /* lost objects are tried again                          */
    bool waits_for_room;              /* its next command stays until completions were reaped  */
    struct spw_worker_promoting promoting; /* its next command, in parts */
    uint64_t below_reset; /* its next command is a reset that the tier below must know: the tag */
    bool below_over;      /* it does, or never will: below_status                  */
    int below_status;
    uint32_t below_unopened;           /* chunks that it had of spaces that are not open */
    struct spw_kv_record *registering; /* its next command, in steps: our copy; NULL: none is */
    bool kv_open;                      /* it has registered memory: kv says what             */
    struct spw_kv_shape kv;
};

/* What the store stream does beside what lies in the feed. */
struct spw_worker_stream {
    struct spw_queue_item *copying; /* with the copier, oldest first */
    uint64_t copy_bytes;            /* of those, nominal             */
    uint64_t since_ns;              /* of the copy that runs: the later of last end and begin  */
    double recent_bytes;            /* of copies that ended well, older ones counting less     */
    double recent_ns;               /* and their time                                          */
    bool order_stale;               /* marks or places may differ from what the queue now says */
};

struct spw_worker_cold;

struct spw_worker {
    struct spw_worker_config config;
    struct spw_pool *pool;
    struct spw_feed_head *feed;
    struct spw_shard *shard;
    struct spw_jobs jobs;
    struct spw_queue queue;
    struct spw_worker_stream stream;
    struct spw_job_list done;   /* completions to send at the end of the pass */
    struct spw_job_list fenced; /* AWAIT_FENCE, in the order of their runs */
    struct spw_table_view source[SPW_WORKERS_MAX];
    struct spw_worker_client client[SPW_CLIENTS_MAX];
    struct spw_bcast_reader peer[SPW_WORKERS_MAX]; /* the other workers' news */
    uint64_t *protect; /* bits of the slots of one reserve; zero in between    */
    uint64_t now_ns;   /* of this pass                                         */
    uint64_t tick_ns;  /* locks are asked next                                 */
    uint64_t retry_ns; /* something waits for another process; UINT64_MAX = no */
    uint64_t alone_since_ns;
    uint64_t reclaim_wait_ns;
    uint64_t reclaim_ns; /* reclaim is tried next, whatever else happens         */
    uint32_t clients;
    uint32_t first_client;        /* lanes are visited from here on                  */
    bool draining;                /* no new commands                                 */
    bool left_io;                 /* of the tier below, at the end of the run        */
    struct spw_worker_cold *cold; /* the tier below; NULL: there is none */
    uint64_t body[256 * SPW_LANE_PAYLOAD_BYTES / 8];
};

/** How a chunk ended before its copy began. */
enum spw_worker_why {
    SPW_WHY_CANCELLED,
    SPW_WHY_EXPIRED,
    SPW_WHY_RESET,
    SPW_WHY_FAILED, /* what it had to wait for, or the copier */
    SPW_WHY_COUNT,
};

static inline void spw_worker_count(struct spw_worker *worker, enum spw_worker_counter counter,
                                    uint64_t amount)
{
    spw_add_own(&worker->feed->counter[counter], amount);
}

/* ---- worker_commands.c ---------------------------------------------------------------------- */

/** Take what the lanes hold, round robin. Returns the number taken; *out_more: budgets ended first.
 */
uint32_t spw_worker_take_commands(struct spw_worker *worker, bool *out_more);
/** True if a served lane holds a command that could be taken now. Reads only. */
bool spw_worker_has_command(struct spw_worker *worker);

/* ---- worker_jobs.c -------------------------------------------------------------------------- */

/** The run of @job was taken: queue its open chunks. */
void spw_worker_run_job(struct spw_worker *worker, struct spw_job *job);
/** End all chunks of @job that no copy has reached; ends the job if nothing is left. */
void spw_worker_end_job(struct spw_worker *worker, struct spw_job *job, enum spw_worker_why why);
/** Likewise, by an error of its copies. */
void spw_worker_fail_job(struct spw_worker *worker, struct spw_job *job, int status);
/** The copier is lost: likewise all jobs whose runs were taken. */
void spw_worker_fail_waiting(struct spw_worker *worker, int status);
/** A space, or all, was reset: end its stores, void those in copy. */
void spw_worker_reset_jobs(struct spw_worker *worker, uint32_t space);
/** The generation of client @c is gone: end what it opened or ran, as far as no copy has begun. */
void spw_worker_end_jobs_of(struct spw_worker *worker, uint32_t c);
/** Jobs whose run didn't come in time. Returns how many ended. */
uint32_t spw_worker_expire_jobs(struct spw_worker *worker);
/** Submit and poll until nothing moves or the budget of a pass is used. Returns copies moved. */
uint32_t spw_worker_copy(struct spw_worker *worker, bool *out_more);
/** Send the completions of jobs that are done. Returns how many were. */
uint32_t spw_worker_finish_jobs(struct spw_worker *worker);
/** Before a stop: end jobs without a run, and stores that no copy has reached. */
void spw_worker_end_waiting(struct spw_worker *worker);
bool spw_worker_copies_left(const struct spw_worker *worker);

/* ---- worker_kv.c ---------------------------------------------------------------------------- */

/** Client @c is gone, none of its copies runs: let go of what it registered. */
void spw_worker_kv_leave(struct spw_worker *worker, uint32_t c);
/** @job waits for its fence from now on; queue those whose fence has fired. Returns how many moved. */
void spw_worker_fence_wait(struct spw_worker *worker, struct spw_job *job);
uint32_t spw_worker_look_at_fences(struct spw_worker *worker);
/** Queue the open chunks of @job. */
void spw_worker_queue_job(struct spw_worker *worker, struct spw_job *job);

/* ---- worker_stream.c ------------------------------------------------------------------------ */

/** Put store chunk @i of @job into the queue, behind all. */
void spw_worker_stream_push(struct spw_worker *worker, struct spw_job *job, uint32_t i);
/** A queued store was taken out and will not be copied. */
void spw_worker_stream_drop(struct spw_worker *worker, const struct spw_queue_item *item);
/** Make order and places what clients now wait for. No system call; O(1) if nothing moved. */
void spw_worker_stream_order(struct spw_worker *worker);
/** Take the next store, which the copier has accepted. */
void spw_worker_stream_take(struct spw_worker *worker, struct spw_queue_item *item);
/** Its copy has ended with @status. */
void spw_worker_stream_end(struct spw_worker *worker, const struct spw_queue_item *item,
                           int status);
/** Marks and places must be made anew before the next store. */
static inline void spw_worker_stream_stale(struct spw_worker *worker)
{
    worker->stream.order_stale = true;
}

/** The clients whose bits count. */
struct spw_worker_served {
    const spw_atomic64 *awaited[SPW_CLIENTS_MAX]; /* bits of this shard */
    uint32_t count;
};

void spw_worker_gather_served(const struct spw_worker *worker, struct spw_worker_served *out);
/** Likewise; true if any bit may have moved since the last look for this stream. */
bool spw_worker_look_at_marks(struct spw_worker *worker, enum spw_worker_marks which,
                              struct spw_worker_served *out_served);
bool spw_worker_is_awaited(const struct spw_worker_served *served, uint32_t slot);
/** So many bytes of a stream have ended with @status. */
void spw_worker_stream_progress(struct spw_worker *worker, struct spw_worker_stream *own,
                                struct spw_stream *shared, uint64_t bytes, int status);

/* ---- worker_peers.c ------------------------------------------------------------------------- */

/** Read the other workers' news from now on. */
void spw_worker_open_peers(struct spw_worker *worker);
/** For spw_shard_open(): another worker of our rank has @chunk READY. */
bool spw_worker_has_elsewhere(void *ctx, const struct spw_entry_copy *chunk);
/** Demote what their news make worth less. Returns the number of chunks demoted. */
uint32_t spw_worker_hear_peers(struct spw_worker *worker);

/* ---- worker_clients.c ----------------------------------------------------------------------- */

/** Take up the lanes where the predecessor left them. */
void spw_worker_open_clients(struct spw_worker *worker);
/** Notice changed generations and, when @ask_locks, dead holders. Returns how many changed. */
uint32_t spw_worker_check_clients(struct spw_worker *worker, bool ask_locks);
/** True if some generation differs from what is known. Reads only. */
bool spw_worker_clients_changed(const struct spw_worker *worker);
/** For spw_shard_open(): client @c is known dead at @generation. */
bool spw_worker_client_dead(void *ctx, uint32_t c, uint64_t generation);
bool spw_worker_serves(const struct spw_worker *worker, struct spw_job_party party);
/** The pool has neither daemon nor clients, for longer than the limit. Asks the daemon's lock. */
bool spw_worker_orphaned(struct spw_worker *worker);

/* ---- the tier below; all but open and evicting only where worker->cold is not NULL ------------ */

/** Open it as configured; one that can't be is none. 0 or -ENOMEM. */
int spw_worker_cold_open(struct spw_worker *worker, struct spw_error *err);
/** After a stop: 0, or -ETIMEDOUT: transfers go on. */
int spw_worker_cold_stop(struct spw_worker *worker, uint64_t limit_ns);
void spw_worker_cold_close(struct spw_worker *worker);
/** Events, reads, writes, gauges. Returns the number of things done. */
uint32_t spw_worker_cold_pass(struct spw_worker *worker, bool *out_more);
uint64_t spw_worker_cold_due_ns(struct spw_worker *worker);
/** The word that its threads raise: 1 = look. */
const spw_atomic32 *spw_worker_cold_word(const struct spw_worker *worker);
/** Before a stop: what has not begun. */
void spw_worker_cold_end_waiting(struct spw_worker *worker);
/** Transfers are under way that are worth waiting for. */
bool spw_worker_cold_left(const struct spw_worker *worker);
/** Client @c resets @space, or all. 0: the medium is being told, and client.below_over says when it knows;
 * -EIO: it can't be now. Nothing of it is there any more in either case. */
int spw_worker_cold_reset(struct spw_worker *worker, uint32_t c, uint32_t space);
/** A reserve offered @tag and got live @slot; @fresh: for a new store. */
void spw_worker_down_offered(struct spw_worker *worker, uint32_t slot, uint64_t tag, bool fresh);
void spw_worker_down_touched(struct spw_worker *worker, uint64_t tag);
/** A store made @slot READY. */
void spw_worker_down_ready(struct spw_worker *worker, uint32_t slot);
/** As spw_shard_config.evicting. */
void spw_worker_down_evicting(void *ctx, uint32_t slot);
/** For spw_shard_open(): the chunk below under @id is worth less than its age says. */
void spw_worker_cold_demote(void *ctx, uint32_t id);
/** A load of own @slot ended well. */
void spw_worker_up_loaded(struct spw_worker *worker, uint32_t slot);

#endif
