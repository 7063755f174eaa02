#ifndef SPW_TESTS_SUPPORT_API_RIG_H
#define SPW_TESTS_SUPPORT_API_RIG_H
/*
 * A tiny pool (worker_rig.h) with clients that use the installed API. Workers are driven pass by
 * pass by the test; only while a call of the API waits for them does a thread drive them.
 *
 *   roles     one thread plays daemon, workers and clients, each on mappings of its own
 *   errors    what a test can't go on without is checked by assert
 */
#include "sched/spillway.h"
#include "tests/support/worker_rig.h"

#include <pthread.h>

#define API_CHUNK_TOKENS 16u
#define API_KEY_BYTES    40u

struct api {
    struct rig rig;
    uint64_t answered[SPW_CLIENTS_MAX];
    pthread_t thread;
    spw_atomic32 stop;
    bool mute; /* the daemon answers no mail */
};

void api_open(struct api *api, const struct rig_config *config);
void api_close(struct api *api);
/** What the daemon says of a worker: its phase, and the incarnation it has now. */
void api_say(struct api *api, uint32_t k, enum spw_worker_phase phase);
/** A worker dies, is reaped, and (a second call) its successor adopts the shard. */
void api_kill_worker(struct api *api, uint32_t k);
void api_restart_worker(struct api *api, uint32_t k);

/** Drive daemon and workers by a thread, while a call waits for them. */
void api_pump(struct api *api);
void api_pump_end(struct api *api);

/** Attach with options of the pool's (@changes events of room). */
struct spw_client *api_attach(struct api *api, uint32_t changes);
/** A space with one full group of 16-token chunks of two blocks, rank r on worker r. */
struct spw_space_config api_space_config(uint32_t ranks);
struct spw_space *api_space(struct api *api, struct spw_client *client,
                            const struct spw_space_config *config);
/** A request of @chunks chunks with keys first, first + 1, ... in every group. */
struct spw_request *api_request(struct spw_space *space, uint64_t first, uint32_t chunks);

/** Block of chunk key @number in the KV of @client: filled with bytes of that key, or compared. */
void api_fill(struct spw_client *client, uint32_t block, uint64_t number, uint32_t rank);
bool api_filled(struct spw_client *client, uint32_t block, uint64_t number, uint32_t rank);

/** Settle the workers, then reap exactly one completion. */
struct spw_completion api_complete(struct api *api, struct spw_client *client);
/** Reserve on @rank chunks [first, first + count) of the request; its answer. */
struct spw_completion api_reserve(struct api *api, struct spw_request *request,
                                  struct spw_client *client, uint32_t rank, uint64_t first,
                                  uint32_t count);
/** Run with blocks from @block on; not completed yet. */
int api_run(struct spw_client *client, const struct spw_ticket *ticket, uint32_t block,
            uint64_t cookie);
/** Reserve, run and settle on every rank: chunks [0, chunks) of keys from @first on are READY. */
void api_store(struct api *api, struct spw_client *client, struct spw_space *space, uint32_t ranks,
               uint64_t first, uint32_t chunks);

/* ---- a tier below, played by the test: the workers' passes know nothing of it ---------------- */

/** A command that asks worker @k for chunks, taken from its lane. */
struct api_promote {
    struct spw_command command;
    uint64_t tag[SPW_JOB_CHUNKS_MAX];
};

/** Key @number of @group is below worker @k under @id, a part of rank @k. */
void api_cold_add(struct api *api, struct spw_space *space, uint32_t k, uint32_t id, uint32_t group,
                  uint64_t number);
uint64_t api_tag(struct spw_space *space, uint32_t group, uint64_t number);
/** Take the next such command of @client; others on the way are dropped. False: there is none. */
bool api_take_promote(struct api *api, struct spw_client *client, uint32_t k,
                      struct api_promote *out);
/** Answer it: the chunks of @mask will not come. */
void api_answer_promote(struct api *api, struct spw_client *client, uint32_t k,
                        const struct api_promote *promote, uint64_t mask);
/** @id gets a slot, @place_bytes into the promotions; then its read ends, well or not. */
uint32_t api_promote_begin(struct api *api, uint32_t k, uint32_t id, uint64_t place_bytes);
void api_promote_end(struct api *api, uint32_t k, uint32_t slot, bool well);

/** A lookup in a step of its own. */
struct spw_decision api_lookup(struct spw_client *client, struct spw_request *request);
/** Value of a counter by its name. */
uint64_t api_counter(struct spw_client *client, const char *name);

#endif
