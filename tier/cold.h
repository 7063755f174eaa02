#ifndef SPW_TIER_COLD_H
#define SPW_TIER_COLD_H
/*
 * What a tier below host memory must do: keep chunks under their names, give them back whole or
 * not at all. A table of functions, so that the worker runs with local NVMe (tier/nvme.h), a test's
 * own tier, or one day a tier past this host.
 *
 *   roles     one worker thread calls everything, nothing here blocks or waits; the tier may have
 *             threads of its own
 *   ids       a chunk that the tier holds has an id below the limit given at open; the worker keeps
 *             what it says of it in entry slots + id of its state table. An id names one chunk until
 *             `gone` was called for it or it was dropped; then it may name another
 *   publish   a put is there when its event says so, and never before its bytes are
 *   trouble   whatever happens below, callers see a definite refusal or an event, in bounded time
 *   crash     what was published is found again by the next open, what was not is not
 */
#include <stdbool.h>
#include <stdint.h>

#include "shm/base.h"
#include "tier/shares.h"

/** What a chunk is called below: the same over restarts of everything. */
struct spw_cold_name {
    uint64_t space[2]; /* hash of the space's record: spaces have other numbers in each pool */
    uint32_t group;
    uint32_t rank;
    uint32_t key_bytes; /* 1..64 */
    uint8_t key[SPW_KEY_BYTES_MAX];
};

struct spw_cold_put {
    struct spw_cold_name name;
    const uint8_t *payload; /* borrowed and unchanged until the event, or RELEASED after it */
    uint64_t bytes;
    uint64_t sum; /* its checksum, where @summed: made when it was stored */
    bool summed;
    void *tag;
};

enum spw_cold_event_kind {
    SPW_COLD_PUT,      /* status 0: the chunk is there under .id                                */
    SPW_COLD_GET,      /* status 0: its bytes are in the payload, verified                      */
    SPW_COLD_RELEASED, /* after a PUT or GET of status -ETIMEDOUT: its payload is free now      */
    SPW_COLD_FOUND,    /* .id was found on the medium when the tier was opened or came back     */
    SPW_COLD_RESET,    /* of spw_cold_ops.reset: 0, or why the medium doesn't know yet          */
};

struct spw_cold_event {
    enum spw_cold_event_kind kind;
    uint32_t id;
    int status;
    void *tag;
};

/** Why a chunk went, for counters. */
enum spw_cold_why {
    SPW_COLD_EVICTED, /* for another one's sake                              */
    SPW_COLD_CORRUPT, /* not what its record says, or not there any more     */
    SPW_COLD_FAILED,  /* its read failed                                     */
    SPW_COLD_AWAY,    /* the tier went out of service; it may be found again */
    SPW_COLD_OLD,     /* its space was reset                                 */
};

/** Exact, O(1). */
struct spw_cold_gauge {
    uint64_t capacity_bytes;
    uint64_t used_bytes; /* on the medium, all files with their metadata */
    uint64_t entries;
    uint64_t leased; /* being read or written     */
    uint64_t evictable;
    uint64_t unlisted; /* good chunks that were found so far, but are too large for this pool or too
                          many: they are nobody's, and stay until their room is needed */
    uint32_t state;    /* enum spw_tier_state       */
    uint32_t mode;     /* bits of enum spw_tier_mode */
    const char *text;  /* borrowed: why it isn't what was asked for, or not up; "" = all well */
};

struct spw_cold; /* the tier's own state */

struct spw_cold_ops {
    /** Write a chunk. 0: exactly one PUT event will come. -EAGAIN as many writes as may be are
     * under way; -ENOSPC no room can be made now; -EDQUOT what could go is promised to other spaces;
     * -EFBIG larger than any chunk may be; -EIO out of service. Evicts, so `gone` may be called for
     * other ids. */
    int (*put)(struct spw_cold *cold, const struct spw_cold_put *put);
    /** Read chunk @id of @bytes into @payload, which has room for them. 0: exactly one GET event will
     * come. -EAGAIN as many reads as may be are under way; -ENOENT no such chunk; -EIO out of
     * service. Until its event the chunk is not evicted. */
    int (*get)(struct spw_cold *cold, uint32_t id, uint8_t *payload, uint64_t bytes, void *tag);
    /** Forget @id at once, on the medium soon. `gone` isn't called. */
    void (*drop)(struct spw_cold *cold, uint32_t id);
    /** @id was used. */
    void (*touch)(struct spw_cold *cold, uint32_t id);
    /** @id is worth less than its age says: it goes next. */
    void (*demote)(struct spw_cold *cold, uint32_t id);
    /** What @id holds: 0 and its name and payload bytes, or -ENOENT. */
    int (*name)(struct spw_cold *cold, uint32_t id, struct spw_cold_name *out_name,
                uint64_t *out_bytes);
    /** Nothing of @space, or of any if it is NULL, that was put before may ever be given back, also by
     * a later open and though it wasn't found yet: `gone` is called for each id of it, and a RESET
     * event comes once the medium knows. 0, or -EIO: out of service, what is held in memory is
     * forgotten all the same. */
    int (*reset)(struct spw_cold *cold, const uint64_t space[2], void *tag);
    /** What @space may take of this tier from now on (tier/shares.h). Until told, nothing is promised
     * to it and it may take all. Its chunks that are there already count, and those found later. To be
     * told again after each open of the process, at best before the first poll. */
    void (*share)(struct spw_cold *cold, const uint64_t space[2], const struct spw_share *share);
    /** Events there are, at most @max; does what is due. Never sleeps. */
    int (*poll)(struct spw_cold *cold, uint64_t now_ns, struct spw_cold_event *out, int max);
    /** When poll should be called again though nothing woke the worker: UINT64_MAX = never. */
    uint64_t (*due_ns)(struct spw_cold *cold, uint64_t now_ns);
    void (*gauge)(struct spw_cold *cold, struct spw_cold_gauge *out);
    /** Transfers that touch payload and have not ended, timed out ones included. */
    uint32_t (*in_flight)(struct spw_cold *cold);
    /** Ends what can be ended within @limit_ns. -ETIMEDOUT: transfers are still under way. */
    int (*close)(struct spw_cold *cold, uint64_t limit_ns);
};

/** Handle: ops + state. ops NULL: there is no tier below. */
struct spw_cold_handle {
    const struct spw_cold_ops *ops;
    struct spw_cold *cold;
};

/** What the tier tells the worker at once, inside whatever call finds it out: from now on @id may
 * name another chunk. */
struct spw_cold_listener {
    void (*gone)(void *ctx, uint32_t id, enum spw_cold_why why);
    void *ctx;
};

#endif
