#ifndef SPW_TIER_WORKER_COLD_H
#define SPW_TIER_WORKER_COLD_H
/*
 * What the worker does with the tier below: worker_cold.c (glue, events, spaces, gauges),
 * worker_down.c (what goes down), worker_up.c (promotions). All of it only where there is one:
 * worker->cold is NULL else.
 *
 *   roles     private to the worker's one thread, but the wake word, which the tier's threads store
 *
 *   down      READY slot --wanted--> WAITS --put--> RUNS --event--> gone
 *                                      |              `-too late--> LATE --released--> gone
 *                                      `-- dropped, counted
 *             A RUNS or LATE one claims its slot; a WAITS one does once its slot is evicted, as long
 *             as the shard's reserve bears it: it is lent
 *   up        COLD chunk --asked--> WAITS --get--> RUNS --event--> HELD --loaded, or let go--> gone
 *                                     |              |`- failed: slot RETIRED
 *                                     |              `-too late--> LATE --released--> gone
 *                                     `-- nobody waits: slot RETIRED
 *             Its slot is FILLING until HELD; RUNS and LATE have the shard's copying bit
 *   pairs     [WT-1] the tier's end before the wake word <-> the word cleared before the poll
 */
#include "tier/sightings.h"
#include "tier/worker_taking.h"
#include "tier/write_budget.h"

enum spw_cold_job_state { SPW_COLD_WAITS, SPW_COLD_RUNS, SPW_COLD_HELD, SPW_COLD_LATE };

/** A chunk on its way down or up. */
struct spw_cold_job {
    struct spw_queue_item item;          /* in its queue while it WAITS; owner: this      */
    struct spw_cold_job *before, *after; /* up: by due_ns; idle ones: .after              */
    enum spw_cold_job_state state;
    bool up;
    bool voided;              /* up: its slot was RETIRED while the read ran              */
    bool claimed, lent;       /* down: its slot; the chunk there was evicted              */
    uint64_t due_ns;          /* up: when nobody may wait any more                        */
    uint64_t generation;      /* down: of its space, when it was wanted                   */
    struct spw_entry_copy at; /* slot, identity and fill                                  */
};

/** What is known of a slot, beside the table. */
struct spw_cold_slot {
    struct spw_cold_job *down, *up;
    uint64_t sum, sum_fill; /* checksum of the chunk with this fill, where made at store  */
    bool parked;            /* wanted below, FILLING still                                */
};

struct spw_worker_down {
    struct spw_queue queue; /* oldest first; of kind store */
    struct spw_sightings sightings;
    struct spw_write_budget budget;
    uint32_t runs;     /* puts under way that are not LATE           */
    uint32_t lent;     /* slots that wait for a put after an eviction */
    uint32_t lent_max; /* what the shard's reserve bears             */
    bool dropping;     /* from full until half of it is left         */
};

struct spw_worker_up {
    struct spw_queue queue; /* awaited first, then by age; of kind store */
    struct spw_worker_stream stream;
    struct spw_cold_job *first, *last; /* WAITS, RUNS and HELD, by due_ns */
    uint64_t run_bytes;
    uint64_t dry_until_ns; /* waits for slots of which none has come; 0: one has */
    uint32_t runs;         /* gets under way that are not LATE */
};

struct spw_worker_cold {
    struct spw_cold_handle tier;
    const struct spw_cold_policy *policy;
    struct spw_cold_slot *slot; /* one a slot */
    struct spw_worker_down down;
    struct spw_worker_up up;
    struct spw_cold_job *idle;
    /* ids that the tier has, but no open space of this pool takes */
    uint64_t *unclaimed; /* bitmap over ids */
    uint32_t unclaimed_count;
    uint32_t claim_from; /* word that is looked at next                  */
    uint64_t unlisted;   /* as the tier told last                        */
    bool claiming;       /* a space was opened: look at all of them      */
    uint64_t space_hash[SPW_SPACES_MAX][2];
    bool space_known[SPW_SPACES_MAX];
    uint64_t space_shares[SPW_SPACES_MAX]; /* as the tier was told */
    uint64_t reset_nonce;
    uint32_t state; /* of the tier, as shown last */
    uint64_t shown_tick_ns;
    spw_atomic32 wake; /* 1: there may be events; writers: the tier's threads, this worker */
    const spw_atomic32 *asleep; /* of the feed */
};

/** What a job's slot holds, as bytes. */
uint8_t *spw_worker_cold_payload(const struct spw_worker *worker, const struct spw_cold_job *job);
/** A job that is in no list; NULL: no memory. */
struct spw_cold_job *spw_worker_cold_job(struct spw_worker_cold *cold);
void spw_worker_cold_job_end(struct spw_worker_cold *cold, struct spw_cold_job *job);

/* ---- worker_down.c --------------------------------------------------------------------------- */

int spw_worker_down_init(struct spw_worker *worker);
void spw_worker_down_fini(struct spw_worker *worker);
/** Write what the tier takes now, the oldest first. */
uint32_t spw_worker_down_pump(struct spw_worker *worker);
void spw_worker_down_ended(struct spw_worker *worker, struct spw_cold_job *job, uint32_t id,
                           int status);
void spw_worker_down_released(struct spw_worker *worker, struct spw_cold_job *job);
/** Waiting ones of this space, or of all. */
void spw_worker_down_drop_waiting(struct spw_worker *worker, uint32_t space);

/* ---- worker_up.c ----------------------------------------------------------------------------- */

void spw_worker_up_init(struct spw_worker *worker);
/** Let go of what nobody waits for any more. */
uint32_t spw_worker_up_expire(struct spw_worker *worker);
/** Read what the tier gives now, awaited ones first. */
uint32_t spw_worker_up_pump(struct spw_worker *worker);
void spw_worker_up_ended(struct spw_worker *worker, struct spw_cold_job *job, int status);
void spw_worker_up_released(struct spw_worker *worker, struct spw_cold_job *job);
/** The tier doesn't have @id any more. */
void spw_worker_up_gone(struct spw_worker *worker, uint32_t id);
/** A space, or all, is being reset, before its slots are retired. */
void spw_worker_up_reset(struct spw_worker *worker, uint32_t space);
/** Reads that have not begun, before a stop. */
void spw_worker_up_drop_waiting(struct spw_worker *worker);
/** When the next one is let go of. */
static inline uint64_t spw_worker_up_due_ns(const struct spw_worker_cold *cold)
{
    return cold->up.first ? cold->up.first->due_ns : UINT64_MAX;
}

#endif
