#ifndef SPW_SCHED_HANDLE_H
#define SPW_SCHED_HANDLE_H
/*
 * What libspillway's files share: the handle of an attached client, its spaces and requests.
 *
 *   attach.c    attach, detach, is the pool still there      space.c     spaces, mailbox
 *   step.c      steps: views, who is up, what a judge sees   request.c   keys and digests
 *   evaluate.c  lookups                                      defer.c     deferred requests
 *   probe.c     verdicts without a decision                  touch.c     recency
 *   await.c     marks of awaited stores, ETA                 wakeup.c    which may have changed
 *   promote.c   chunks that the tier below is asked for
 *   book.c      open jobs, pins, chunks being loaded         store.c, load.c, run.c  commands
 *   reap.c      completions                                  news.c      changes, counters, info
 *   kv.c        registered GPU memory, fences
 *
 *   roles     all of it is private to one handle, used by one thread at a time. Shared memory is
 *             written through shm/client.h (steps, pins), shm/lane.h and the mailbox alone
 *   crash     what a client leaves is told in shm/client.h
 *   fork      a child has none of the shared mappings; its calls answer before they look at one
 */
#include "sched/await.h"
#include "sched/book.h"
#include "sched/counters.h"
#include "sched/decide.h"
#include "sched/explain.h"
#include "sched/judge.h"
#include "sched/list.h"
#include "sched/spillway.h"
#include "sched/view.h"
#include "sched/waits.h"
#include "sched/wakeup.h"
#include "shm/lane.h"
#include "shm/pool.h"

#include <string.h>

#define SPW_CANCELLED_KEPT 64u

enum spw_client_loss { SPW_ATTACHED, SPW_LOST_UNTOLD, SPW_LOST_TOLD };

/* Working memory of an evaluation, shared by all requests; grows with the longest of them. */
struct spw_scratch {
    uint64_t *word;
    uint8_t *verdict;
    uint64_t room;
};

/* Notices that nobody is there who could answer. */
struct spw_lookout {
    uint32_t calls;
    uint64_t since_ns; /* something has been waited for since then or the last look, 0 = nothing */
};

/* A tier that has to be asked what it has: it may answer RETRY, or PENDING for what it has begun to
 * bring. Asked about chunks that no shard has; told by spw_wakeup_record() of answers that come. */
struct spw_beyond {
    uint8_t (*ask)(void *ctx, uint64_t tag); /* enum spw_verdict */
    void *ctx;
};

struct spw_client {
    struct spw_pool pool;
    struct spw_client_view *own;
    uint32_t number;
    uint32_t workers;
    uint32_t forks; /* spw_forked() when it attached */
    enum spw_client_loss loss;
    bool in_step;
    uint64_t generation;
    uint64_t step;
    uint64_t timeout_ns;
    uint64_t up;     /* bit k: worker k is up, as of the last step */
    uint64_t bereft; /* bit k: worker k is dead and so is the daemon: nobody will ever say so */
    uint64_t loading_epoch;       /* raised when the set of chunks being loaded changes  */
    uint64_t loading_told;        /* as of the last step, to those that wait for it      */
    uint64_t (*clock)(void *ctx); /* CLOCK_MONOTONIC, or the caller's              */
    void *clock_ctx;
    uint64_t now_ns; /* of this step */
    uint64_t requests_opened;
    uint32_t requests_open;
    struct spw_awaits awaits;
    struct spw_wakeup wakeup;
    const struct spw_beyond *beyond; /* NULL: there is no such tier */
    uint64_t to_ring;                /* bit k: commands sent in this step */
    struct spw_change_log changes;
    struct spw_views views;
    struct spw_view_counts counted; /* of the views, as already added to the counters */
    struct spw_lane_producer command[SPW_WORKERS_MAX];
    struct spw_lane_consumer completion[SPW_WORKERS_MAX];
    struct spw_book book;
    struct spw_scratch scratch[SPW_MAX_GROUPS];
    struct spw_lookout lookout;
    struct spw_ticket cancelled[SPW_CANCELLED_KEPT]; /* the last ones */
    uint64_t cancels;
    struct spw_link spaces;
    struct spw_link requests;
    struct spw_fences *fences[SPW_WORKERS_MAX]; /* of the registrations, NULL = none ever */
    uint32_t registrations;                     /* asked for, ever                        */
    int thread_refused;     /* 0, or why the thread that attached isn't bound            */
    uint32_t near_permille; /* of the replica, on the node asked for; UINT32_MAX: unknown */
    uint64_t mail_given_up; /* seq of the last mail not answered in time, 0 = none */
};

/* Of one worker's registration: which fences may be recorded anew. */
struct spw_fences {
    uint64_t incarnation; /* of the worker that registered it */
    uint32_t count;
    bool taken[SPW_KV_FENCES_MAX];    /* by the engine, that may still name it */
    uint32_t uses[SPW_KV_FENCES_MAX]; /* unfinished runs that name it          */
};

struct spw_space {
    struct spw_link link;
    struct spw_client *client;
    uint32_t number;
    uint32_t ranks;
    uint32_t blocks_per_chunk;
    uint32_t scope;
    bool gpu_prefix_cache;
    bool no_await;
    bool priced; /* instead of a budget */
    uint64_t budget_tokens;
    uint64_t price; /* 0: 1 + queue */
    uint64_t queue; /* requests that wait for the engine, as it says */
    uint64_t prefill_tokens_per_s;
    struct spw_wait_limits limits;
    uint64_t nominal_bytes[SPW_MAX_GROUPS]; /* of a part */
    struct spw_groups groups;
    uint32_t rank_worker[SPW_MAX_RANKS];
    uint64_t own_workers;                 /* bit k: copies for a rank of this client */
    uint64_t rank_mask[SPW_MAX_RANKS];    /* bit k: worker k keeps parts of the rank */
    uint64_t generation[SPW_WORKERS_MAX]; /* of the space, as of the last step */
    struct spw_judge judge;
};

/* What became of a chunk in the wait that goes on; bit r: for rank r. */
struct spw_ask {
    uint32_t asked;   /* its worker was asked to bring it              */
    uint32_t settled; /* and has answered                              */
    uint32_t refused; /* that it won't come                            */
};

/* Chunk keys of one group, in order. Tags lie together: they are what a probe reads. */
struct spw_keys {
    uint64_t *tag;       /* digest[0] */
    uint64_t *second;    /* digest[1] */
    uint8_t *key;        /* the engine's own, key_bytes each */
    struct spw_ask *ask; /* NULL: the pool has no tier below */
    uint32_t key_bytes;
    uint64_t count;
    uint64_t room;
};

struct spw_boundary_key {
    uint64_t digest[2];
    uint8_t key[SPW_MAX_KEY_BYTES];
    struct spw_ask ask;
};

/* Keys of the objects that end at a boundary inside a chunk, one a group. */
struct spw_boundary {
    uint64_t at;
    uint32_t key_bytes;
    struct spw_boundary_key group[];
};

#define SPW_BOUNDARIES_MAX 64u

/* What a request has asked the tier below for, in the wait that goes on. */
struct spw_asks {
    bool any;
    uint64_t wait;                                /* its number                      */
    uint64_t settled_step;                        /* in which the last answer came   */
    struct spw_chunk_range range[SPW_MAX_GROUPS]; /* no others were */
};

/* A request that was told to wait. */
struct spw_deferral {
    bool stands;
    bool on_chunks; /* waits for chunks, else for the set of those being loaded */
    uint64_t loading_epoch;
    uint64_t computed_tokens;
    uint64_t keys_version;
    struct spw_decision decision;
};

struct spw_request {
    struct spw_link link;
    struct spw_client *client;
    struct spw_space *space;
    uint64_t number; /* in this client, from 1 */
    uint64_t tag;    /* the engine's own       */
    uint32_t flags;
    uint64_t prompt_tokens;
    uint64_t tokens;
    uint64_t expect_tokens; /* room for keys is made for so many at once */
    uint64_t keys_version;  /* raised when keys or tokens are added */
    struct spw_keys keys[SPW_MAX_GROUPS];
    uint32_t boundaries;
    struct spw_boundary *boundary[SPW_BOUNDARIES_MAX]; /* highest first */
    struct spw_link jobs;
    uint32_t running; /* of these: asked and not answered, or run and not completed */
    struct spw_deferral deferral;
    struct spw_wait_clock clock;
    struct spw_wait_sample sample;
    struct spw_waiter waiter;
    struct spw_marks marks;
    struct spw_asks asks;
};

/* Options and results that may grow later: those of a caller built with an earlier header end
 * sooner, and what they lack is 0. True if @theirs_bytes is at least the first version's. */
static inline bool spw_take_options(void *mine, uint64_t mine_bytes, const void *theirs,
                                    uint32_t theirs_bytes, uint64_t first_bytes)
{
    if (theirs_bytes < first_bytes)
        return false;
    memset(mine, 0, mine_bytes);
    memcpy(mine, theirs, theirs_bytes < mine_bytes ? theirs_bytes : mine_bytes);
    return true;
}

static inline void spw_count(struct spw_client *client, enum spw_client_counter counter,
                             uint64_t amount)
{
    spw_add_own(&client->own->head->counter[counter], amount);
}

/* ---- attach.c -------------------------------------------------------------------------------- */

/** 0, -EOWNERDEAD in a forked child, -ECONNRESET once after the pool went, then -ENOTCONN. */
int spw_client_check(struct spw_client *client);
/** The same, but leaves -ECONNRESET to be told by another call. */
int spw_client_there(struct spw_client *client);
/** Now and then, outside a step: is what this client waits for still anybody's? */
void spw_client_watch(struct spw_client *client);

/* ---- step.c ---------------------------------------------------------------------------------- */

/** Is worker @k up and serving this client? Its incarnation too. Reads shared memory. */
bool spw_worker_up(const struct spw_client *client, uint32_t k, uint64_t *out_incarnation);
/** What the judge of @space sees, from the views, ctl and who is up. */
void spw_space_refresh(struct spw_space *space);
/** Wake worker @k: at once, or when the step ends. */
void spw_client_ring(struct spw_client *client, uint32_t k);

/* ---- defer.c --------------------------------------------------------------------------------- */

/** The clock that waits are measured by, now. */
uint64_t spw_client_now(const struct spw_client *client);
/** Nothing has happened that can change what this deferred request was told. O(1). */
bool spw_defer_stands(const struct spw_request *request, uint64_t computed_tokens);
/** An evaluation begins: how far it has waited long enough, by kind of wait, in tokens. */
void spw_defer_pause(struct spw_request *request, uint64_t out_expired[SPW_WAIT_KINDS]);
/** It ended: remember what it waits for, or end its wait. Fills @decision->waited_ns. */
void spw_defer_settle(struct spw_request *request, const struct spw_decision_core *core,
                      struct spw_decision *decision);
/** The request is given up while it may wait. Any number of times. */
void spw_defer_cancel(struct spw_request *request);
/** A transfer of this request has ended. */
void spw_defer_transfer_ended(struct spw_request *request);

/* ---- promote.c ------------------------------------------------------------------------------- */

/** Ask for what the deferral @core waits for that is only below, as far as the lanes have room; its
 * verdicts and words are still in the scratch. False: look again at the next step. */
bool spw_promote(struct spw_request *request, const struct spw_decision_core *core);
/** Is a chunk whose word is @word not to be waited for: it is only below, and its worker said it
 * won't come, or it did and is gone again? @ask of a request that has asked for any. */
bool spw_promote_lost(const struct spw_request *request, const struct spw_ask *ask, uint64_t word);
/** The wait is over: what was asked for in it counts no more. Any number of times. */
void spw_promote_over(struct spw_request *request);
/** An answer, or NULL: its worker is dead. Ends @job and wakes its request. */
void spw_promote_settle(struct spw_client *client, struct spw_open_job *job,
                        const struct spw_done *done);

/* ---- space.c, request.c ---------------------------------------------------------------------- */

void spw_space_free(struct spw_space *space);
void spw_request_free(struct spw_request *request);
/** The key of a chunk or a tail's object; borrowed from the request. 0 or -EINVAL. */
int spw_request_key(const struct spw_request *request, const struct spw_chunk_ref *ref,
                    struct spw_chunk_key *out_key);
/** Keys of boundary @at, or NULL. */
const struct spw_boundary *spw_request_find_boundary(const struct spw_request *request,
                                                     uint64_t at);
/** Chunks of @group that have a key and lie within the request's tokens. */
uint64_t spw_request_chunks(const struct spw_request *request, uint32_t group);

/* ---- touch.c --------------------------------------------------------------------------------- */

/** Chunks [first, end) of a group whose words are in the scratch. */
struct spw_touch_range {
    uint64_t first;
    uint64_t end;
};
/** Send the ready ones among them to their workers, deepest first; the objects of the tail at
 * @boundary (0 = none) before them. */
void spw_touch_ranges(struct spw_request *request, const struct spw_touch_range *range,
                      uint64_t boundary);

/* ---- commands (send.c) ----------------------------------------------------------------------- */

/** A command with what every command of this client has in it. */
struct spw_command spw_command_make(const struct spw_client *client, uint8_t op,
                                    uint64_t incarnation);
/** Slots that the lane to worker @k takes now, at least @want if possible. */
uint32_t spw_command_room(struct spw_client *client, uint32_t k, uint32_t want);
/** Send @command, its body (@command->body_slots) being written already, and ring. */
void spw_command_send(struct spw_client *client, uint32_t k, const struct spw_command *command);
/** Tell worker @k to end @ticket. 0 or -EAGAIN. */
int spw_command_cancel(struct spw_client *client, uint32_t k, uint64_t incarnation,
                       uint64_t ticket);
/** Chunks whose run of @blocks_per_chunk ids each fits the lane as one message. */
uint32_t spw_command_run_limit(const struct spw_client *client, uint32_t blocks_per_chunk);

/* ---- kv.c ------------------------------------------------------------------------------------ */

/** Has this client ever registered memory at worker @k? Block ids of its runs there mean that. */
bool spw_kv_registered(const struct spw_client *client, uint32_t k);
/** Is @fence one of those registered at worker @k, and taken? */
bool spw_fence_taken(const struct spw_client *client, uint32_t k, uint32_t fence);
/** A run of @job, which is about to be sent, names it. */
void spw_fence_use(struct spw_client *client, struct spw_open_job *job, uint32_t fence);

#endif
