#ifndef SPW_TIER_SHARD_H
#define SPW_TIER_SHARD_H
/*
 * A shard as its worker drives it: slots, their states, recency, news, reclamation. The one place
 * that changes the state table, and it always changes the table first, then publishes.
 *
 *                 reserve               ready                retire
 *        FREE -------------> FILLING ----------> READY -------------> RETIRED
 *          ^                    |  retire (store failed or ended early)  |
 *          |                    +----------------------------------------+
 *          +-------------------------- reclaim ------------------------- +
 *
 *   roles     one worker thread; everybody else reads the table, the ring and the copying bits
 *   recency   exact LRU: reserved, asked for again or touched last = evicted last; where FIFO is
 *             asked for (tier/order.h), reserved last = evicted last; chunks of one
 *             reserve call, offered head first, are evicted deepest first
 *   capacity  resident (FILLING + READY) slots never exceed capacity; the slots above it are the
 *             reserve that reclamation works with
 *   counts    evicted, touches, updates, freed and fences of tier/counters.h, and those of adoption
 *   reclaim   tests/model/reclaim.pml: RETIRED record at p, full fence, clients' words
 *             0 or > p, pins, command tails, heads; FREE, full fence; handed out only when no
 *             worker's copying bit covers it
 */
#include "shm/bcast_ring.h"
#include "shm/pool.h"
#include "tier/order.h"
#include "tier/table.h"

/* Records that a worker gathers at most before it publishes: no version in its table is further
 * beyond the tail. */
#define SPW_NEWS_MAX 256u

struct spw_shard; /* opaque, process-local */

struct spw_shard_config {
    struct spw_pool *pool; /* borrowed; mapped as worker @k */
    uint32_t k;
    uint64_t fence_limit_ns; /* a client inside a step for longer may be fenced */
    /* true if client c is known dead at this generation: its words and pins don't count */
    bool (*client_dead)(void *ctx, uint32_t c, uint64_t generation);
    void *ctx;
    uint64_t now_ns;           /* of the adoption, on the clock of spw_shard_reclaim()            */
    uint64_t io_quarantine_ns; /* how long transfers may outlive the process that began them      */
    bool transfers_linger;     /* they may, of this worker (of a dead one the feed tells)         */
    /* the READY chunk in @slot is about to be retired to make room: the last moment to claim it.
     * NULL: nobody wants to know */
    void (*evicting)(void *ctx, uint32_t slot);
    enum spw_evict_policy evict;
    /* slots below this number may be handed out, as of now; only grows (tier/frontier.h). NULL: all */
    uint32_t (*usable_slots)(void *ctx);
    void *usable_ctx;
    /* does another worker of its rank have this chunk READY, so that one lost here isn't lost? The
     * chunk below under @id is worth less than its age says. Each may be NULL */
    bool (*elsewhere)(void *ctx, const struct spw_entry_copy *entry);
    void (*demote_below)(void *ctx, uint32_t id);
};

/**
 * Adopt shard @k (a fresh one is the same with nothing in it): repair the table, take the next
 * incarnation, publish keyless records up to the highest version, retire anew what is RETIRED,
 * rebuild index and recency. Any bytes are taken: entries that make no sense are dropped and
 * counted, and where the ring makes none the shard is made afresh (tier/afresh.h). Idempotent: a
 * death inside it leaves work for the next adopter.
 */
int spw_shard_open(const struct spw_shard_config *config, struct spw_shard **out_shard,
                   struct spw_error *err);
void spw_shard_close(struct spw_shard *shard);
uint64_t spw_shard_incarnation(const struct spw_shard *shard);

/** What a reserve of one key came to. */
enum spw_reserve_result {
    SPW_RESERVED,
    SPW_PRESENT,
    SPW_NO_SLOT,
    SPW_SLOT_COMES, /* of promotions alone: none yet, see spw_shard_promote() */
};

/**
 * Give @key a slot: evicts the least recently used READY chunk when the shard is at capacity, but
 * none that is in @protect: a bitmap over slots, or NULL, of the chunks of the same call so far;
 * the caller adds *out_slot to it after each. A chunk whose predecessor is in it is placed right
 * behind that one in the order of age, else it becomes the most recent.
 * @key          1..64 bytes, its digest made by spw_chunk_digest()
 * @chunk_bytes  payload, at most slot_bytes
 * SPW_RESERVED: *out_slot is FILLING (table written; the news goes out with the next flush).
 * SPW_PRESENT: the key is FILLING or READY already, *out_slot tells where. SPW_NO_SLOT: nothing can
 * be had now (all filling, pinned or not yet reclaimed); nothing was evicted. No system call.
 */
enum spw_reserve_result spw_shard_reserve(struct spw_shard *shard, const struct spw_chunk_key *key,
                                          uint32_t rank, uint64_t chunk_bytes,
                                          const uint64_t *protect, uint32_t *out_slot);
/** Where the store stream has this FILLING chunk: visible in the table for ETA. One store. */
void spw_shard_place(struct spw_shard *shard, uint32_t slot, uint64_t place_bytes);
/** FILLING -> READY: the copy has ended. Keeps its place in the order of age. */
void spw_shard_ready(struct spw_shard *shard, uint32_t slot);
/** FILLING or READY -> RETIRED. */
void spw_shard_retire(struct spw_shard *shard, uint32_t slot);
/** Retire every READY and FILLING-but-not-copying chunk of a space, or of all; the caller deals with
 * its jobs.
 * Returns how many. */
uint32_t spw_shard_retire_space(struct spw_shard *shard, uint32_t space);
/** Make the FILLING or READY chunk with this digest[0] the most recent; unknown ones are ignored.
 */
void spw_shard_touch(struct spw_shard *shard, uint64_t tag);

/** The READY chunk of this digest, its key too: 0 and *out_entry, or -ENOENT. */
int spw_shard_find(const struct spw_shard *shard, const uint64_t digest[2],
                   struct spw_entry_copy *out_entry);
/** Make the READY chunk in @slot the next victim: it is worth less than its age says. */
void spw_shard_demote(struct spw_shard *shard, uint32_t slot);

/** Chunk @before stands right before @tag in a prefix of full attention, as whoever offers them says.
 * When it is lost, what needs it goes next. Chunks that aren't here are passed over. */
void spw_shard_follow(struct spw_shard *shard, uint64_t before, uint64_t tag);

/** Publish the news gathered so far, in one batch; table changes above are already stored.
 * The worker calls it at the latest before it answers a command or sleeps. */
void spw_shard_flush(struct spw_shard *shard);

/** Publish, then free RETIRED slots that nobody can ask for any more; @now_ns for fencing. Returns
 * how many became FREE. Never retires: at least the reserve is FREE or on its way there. No system
 * call. */
uint32_t spw_shard_reclaim(struct spw_shard *shard, uint64_t now_ns);

/** A copy into FILLING slot has started / ended: its slot is never reused in between, even if it
 * was retired meanwhile. */
void spw_shard_copy_begin(struct spw_shard *shard, uint32_t slot);
void spw_shard_copy_end(struct spw_shard *shard, uint32_t slot);

/** State and identity of a slot, key included, for the worker's own checks. 0 or -EINVAL. */
int spw_shard_entry(const struct spw_shard *shard, uint32_t slot, struct spw_entry_copy *out);
struct spw_shard_stats {
    uint32_t filling, ready, retired, free;
    uint32_t quarantined; /* RETIRED too, but not counted there */
    uint64_t evicted, stored, fenced;
};
void spw_shard_stats(const struct spw_shard *shard, struct spw_shard_stats *out);

/* ---- claims of a copying worker (any shard, own one included) -------------------------------- */

/**
 * Take a load's source: set this worker's copying bit for (shard, slot), full fence, check in the
 * owner's table that the entry is READY or RETIRED with this @fill. 0: claimed, copy may run.
 * -ESTALE: it is no longer that chunk (bit cleared). -EINVAL: out of range. -EAGAIN: entry kept
 * changing; try again later. Counted: two loads of a slot hold the bit until both have ended.
 */
int spw_shard_claim(struct spw_shard *shard, uint32_t source_shard, uint32_t slot, uint64_t fill);
void spw_shard_unclaim(struct spw_shard *shard, uint32_t source_shard, uint32_t slot);

#endif
