#ifndef SPW_TESTS_SUPPORT_WORKER_RIG_H
#define SPW_TESTS_SUPPORT_WORKER_RIG_H
/*
 * A tiny pool in a folder of its own, with one or two workers that are driven pass by pass in this
 * process on a clock of the test's, and clients that write commands through their lanes by hand.
 *
 *   roles     one thread plays daemon, workers and clients, each on mappings of its own
 *   errors    what a test can't go on without is checked by assert
 */
#include "shm/lane.h"
#include "shm/pool.h"
#include "tests/support/env.h"
#include "tier/counters.h"
#include "tier/host_copier.h"
#include "tier/layout.h"
#include "tier/table.h"
#include "tier/worker.h"

#define RIG_WORKERS     2u
#define RIG_CLIENTS     8u
#define RIG_SPACE       3u /* two groups: 128 B chunks and 64 B chunks, two blocks each */
#define RIG_BLOCK_BYTES 64u
#define RIG_BLOCKS      256u
#define RIG_KEY_BYTES   40u /* two lane slots a key */
#define RIG_SECOND      1000000000ull

/** Plain data; zero means the default. */
struct rig_config {
    uint32_t workers;
    uint32_t capacity;
    uint32_t reserve;       /* slots beside capacity and one */
    uint32_t cold_chunks;   /* entries for a tier below */
    struct spw_cold *below; /* one in memory, of worker 0; NULL: none (tests/support/stub_cold.h) */
    struct spw_cold_policy cold_policy;
    uint32_t command_slots;
    uint32_t completion_slots;
    uint32_t queue_chunks;
    uint32_t client_jobs_max;
    uint64_t overtake_limit_ns;           /* 5 s */
    struct spw_host_copier_config copier; /* in_flight 0 = 2 */
    /* around the host copier, which the test's own hands things on to; NULL: none is */
    struct spw_copier_handle (*wrap)(struct spw_copier_handle host);
    uint64_t event_limit_ns;
    uint64_t io_quarantine_ns;
    bool transfers_linger;
    bool real_clock;
    void (*worker_attached)(void); /* called before the worker looks at what it has mapped */
};

struct rig_client {
    struct spw_pool pool;
    struct spw_client_view *view;
    uint32_t c;
    uint64_t generation;
    struct spw_lane_producer command[RIG_WORKERS];
    struct spw_lane_consumer completion[RIG_WORKERS];
    uint64_t cookie; /* of the last command sent */
};

struct rig {
    struct rig_config config;
    char dir[SUPPORT_PATH_BYTES]; /* of the pool; made once a process */
    struct spw_pool daemon;
    struct spw_pool pool[RIG_WORKERS];
    struct spw_copier_handle copier[RIG_WORKERS];
    struct spw_worker *worker[RIG_WORKERS];
    uint64_t now_ns;
    uint64_t fence; /* that runs name: 1 + its number, 0 = none */
};

void rig_open(struct rig *rig, const struct rig_config *config);
void rig_close(struct rig *rig);
/** End a worker as its death would: nothing is drained. Then start its successor. */
void rig_end_worker(struct rig *rig, uint32_t k);
void rig_start_worker(struct rig *rig, uint32_t k);

/** One pass of each worker. Returns the number of things done. */
uint32_t rig_pass(struct rig *rig);
/** Passes until nothing is done any more. */
void rig_settle(struct rig *rig);
void rig_advance(struct rig *rig, uint64_t ns);
/** The clock of workers and clients; @ctx is the rig. */
uint64_t rig_now(void *ctx);

uint64_t rig_count(const struct rig *rig, uint32_t k, enum spw_worker_counter counter);
/** Chunks offered minus all that became of them: those still open. */
uint64_t rig_open_chunks(const struct rig *rig, uint32_t k);
uint32_t rig_slots_in(const struct rig *rig, uint32_t k, uint32_t state);
/** Copying bits that worker @k holds. */
uint32_t rig_claims(const struct rig *rig, uint32_t k);

/** Take a client object and wait for the workers' acknowledgement. */
void rig_attach(struct rig *rig, struct rig_client *client);
/** The process is gone: lock and mappings, nothing tidied up. */
void rig_die(struct rig_client *client);

/** Send a head and its body as they are; false: the lane is full. */
bool rig_send(struct rig_client *client, uint32_t k, struct spw_command *head, const void *body);
/** A head with generation, incarnation, space and a new cookie filled in. */
struct spw_command rig_head(struct rig *rig, struct rig_client *client, uint32_t k, uint8_t op);

/** Key number @number of @group. */
void rig_key(uint32_t group, uint64_t number, uint8_t out[RIG_KEY_BYTES]);
/** Reserve keys first .. first + count - 1 of group 0. */
bool rig_reserve(struct rig *rig, struct rig_client *client, uint32_t k, uint64_t first,
                 uint32_t count);
/** Run a store or load: chunk i uses blocks first_block + 2 i and the next one. */
bool rig_run(struct rig *rig, struct rig_client *client, uint32_t k, uint8_t op, uint64_t ticket,
             uint32_t count, uint32_t first_block);
/** Begin loads on worker @k of keys of group 0 that lie in shard @shard. */
bool rig_begin(struct rig *rig, struct rig_client *client, uint32_t k, uint32_t shard,
               uint64_t first, uint32_t count);
bool rig_cancel(struct rig *rig, struct rig_client *client, uint32_t k, uint64_t ticket);

/** Reap the next completion; false if there is none. */
bool rig_reap(struct rig_client *client, uint32_t k, struct spw_done *out);
/** Settle, then reap exactly one completion, which must answer the last command. */
struct spw_done rig_answer(struct rig *rig, struct rig_client *client, uint32_t k);

/** Reserve, run and settle, so that the keys are READY. */
void rig_store(struct rig *rig, struct rig_client *client, uint32_t k, uint64_t first,
               uint32_t count);
/** @client waits for key @number of group 0 in shard @k, or doesn't any more. Tells nobody. */
void rig_await(struct rig *rig, struct rig_client *client, uint32_t k, uint64_t number,
               bool awaited);
/** State of key @number of group 0 in shard @k: SPW_FREE if it isn't there. */
uint32_t rig_state(const struct rig *rig, uint32_t k, uint64_t number, struct spw_entry_copy *out);

#endif
