#ifndef SPW_TESTS_PROCESS_ACTOR_H
#define SPW_TESTS_PROCESS_ACTOR_H
/*
 * A client of the installed API that stores and loads chunks whose bytes tell their key and rank.
 * Chunks are of one full group, 16 tokens, one block.
 *
 *   roles     one thread; the test's own process or tests/process/peer.c
 *   waits     bounded; -ETIMEDOUT means that something was lost
 */
#include "sched/spillway.h"

#include <stdbool.h>

#define ACTOR_TOKENS    16u
#define ACTOR_KEY_BYTES 40u
#define ACTOR_RANKS_MAX 4u
#define ACTOR_JOBS_MAX  16u

/** Zero means the default: one rank on worker 0, chunks as large as blocks. */
struct actor_config {
    const char *dir;
    const char *name;
    const char *label;
    const char *fingerprint;
    uint32_t ranks;
    uint32_t worker[ACTOR_RANKS_MAX];
    uint32_t chunk_bytes;
    uint64_t nominal_bytes;
    int64_t budget;
    uint32_t changes;
    uint32_t guaranteed_permille, largest_permille;
};

struct actor {
    struct actor_config config;
    struct spw_client *client;
    struct spw_space *space;
    uint8_t *kv;
    uint64_t blocks, block_bytes;
    uint64_t cookie;
    char text[256]; /* of the last refusal */
};

/** Attach (waiting for a pool that is starting) and open the space. 0 or a negative errno. */
int actor_open(struct actor *actor, const struct actor_config *config);
int actor_attach(struct actor *actor, const struct actor_config *config);
int actor_space(struct actor *actor);
void actor_close(struct actor *actor);

/** A request of chunks with keys first, first + 1, ...; NULL: refused. */
struct spw_request *actor_request(struct actor *actor, uint64_t first, uint32_t chunks,
                                  uint32_t flags);

void actor_fill(struct actor *actor, uint32_t block, uint64_t number, uint32_t rank);
/** Bytes of a block that aren't those of the key. */
uint64_t actor_wrong(const struct actor *actor, uint32_t block, uint64_t number, uint32_t rank);

/** The next completion, whatever it is. 0, -ETIMEDOUT or what spw_completions() answers. */
int actor_next(struct actor *actor, struct spw_completion *out, uint32_t limit_ms);

/** Reserve chunks [at, at + count) of @request; the answer in @out. */
int actor_reserve(struct actor *actor, struct spw_request *request, uint32_t rank, uint64_t at,
                  uint32_t count, struct spw_completion *out);
/** Run a ticket with blocks from @block on. */
int actor_run(struct actor *actor, const struct spw_ticket *ticket, uint32_t block,
              uint64_t cookie);
/** Store keys from @first on for every rank: how many are there in the end (a prefix), or a
 * negative errno. */
int actor_store(struct actor *actor, uint64_t first, uint32_t chunks);
int actor_store_rank(struct actor *actor, uint32_t rank, uint64_t first, uint32_t chunks);

/** Decide in a step of its own. */
int actor_decide(struct actor *actor, struct spw_request *request, struct spw_decision *out);
/** Chunks that a lookup of keys from @first on would load; -EAGAIN: deferred. */
int actor_hits(struct actor *actor, uint64_t first, uint32_t chunks);
/** Look up, load all that is a hit, compare: chunks loaded, or a negative errno; -EAGAIN: deferred,
 * -EBADMSG: wrong bytes. */
int actor_load(struct actor *actor, uint64_t first, uint32_t chunks);
/** A step with a lookup, its begins sent; the step is left open with @leave_open. Begins that
 * were sent, or a negative errno. */
int actor_begin(struct actor *actor, struct spw_request *request, uint32_t rank, bool leave_open);

uint64_t actor_now_ms(void);
uint64_t actor_counter(struct actor *actor, const char *name);

#endif
