#ifndef SPW_SCHED_WAKEUP_H
#define SPW_SCHED_WAKEUP_H
/*
 * Wake-ups: which deferred requests may be decided otherwise now.
 *
 *   roles     private to one handle, one thread at a time; nothing shared, nothing to clean up
 *             after a death
 *   cost      a record that nobody watches: a bit of a map that the second cache level holds. One
 *             that is watched: what it wakes. Registering: its tags, and the logarithm of those
 *             that wait. A wait without news costs nothing
 *   memory    grows in spw_wakeup_room() alone; watches lie in the waiters
 *
 *                        a record with its tag, a deadline, all, loading
 *      IDLE --wait--> WAITING -----------------------------------------> WOKEN --next--> (handed)
 *       ^               ^  '------------------ wait, forget ----------------'               |
 *       '---------------'-------------------------------------------------------------------'
 *
 *   table     a bucket is a chain of distinct tags, each the first of a circle of watches for this
 *             tag: ten thousand waiters of one chunk are in nobody's way. Of each bucket the map has
 *             16 bits, chosen by other bits of its tags: exact when watches leave, nothing counted,
 *             and sparse even when all wait for as much as they can
 *   laziness  a waiter that wakes leaves its list, but its other watches and its place among the
 *             deadlines stay until it waits anew, is forgotten, or these turn up
 */
#include "sched/decide.h"
#include "sched/list.h"

#include <stdbool.h>
#include <stdint.h>

enum spw_waiter_state {
    SPW_WAITER_IDLE,
    SPW_WAITER_WAITING,
    SPW_WAITER_WOKEN, /* in the list of those to be handed out, or handed out */
};

struct spw_waiter;

struct spw_watch {
    struct spw_watch *next; /* of another tag in the bucket; the circle's first alone has it */
    struct spw_link same;   /* circle of watches for this tag                                */
    uint64_t tag;
    struct spw_waiter *waiter;
    bool stands; /* in the table */
};

/** Lies in what waits; all zeros is one that never waited. Must be forgotten before it is freed. */
struct spw_waiter {
    struct spw_link link; /* among the watching, the loading, the woken, or in none */
    enum spw_waiter_state state;
    uint32_t place; /* 1 + its place among the deadlines; 0: none */
    uint32_t count;
    struct spw_watch watch[SPW_DECIDE_WAITS_MAX];
};

struct spw_wakeup_deadline {
    uint64_t at_ns;
    struct spw_waiter *waiter;
};

struct spw_wakeup {
    uint16_t *map; /* of each bucket: spw_wakeup_bit() of its tags */
    uint64_t mask; /* buckets - 1 */
    struct spw_watch **bucket;
    struct spw_wakeup_deadline *deadline; /* a heap: each not before the one at (i - 1) / 2 */
    uint32_t deadlines;
    uint32_t room; /* waiters there is room for */
    struct spw_link watching;
    struct spw_link loading;
    struct spw_link woken;
};

/** Allocates. 0 or -ENOMEM, which leaves what fini accepts. */
int spw_wakeup_init(struct spw_wakeup *wakeup);
/** What still waits must not be touched through @wakeup any more. */
void spw_wakeup_fini(struct spw_wakeup *wakeup);

/** Make room for @waiters that wait at once. Allocates. 0, or -ENOMEM: nothing has changed. */
int spw_wakeup_room(struct spw_wakeup *wakeup, uint32_t waiters);

/**
 * Wait anew: what it waited for before is forgotten, and that it was woken too.
 *
 * @waiter       the caller's, at the same place until it is forgotten; one that there is room for
 * @tags         chunks that it waits for, copied; the same one more than once is fine
 * @count        0..SPW_DECIDE_WAITS_MAX; 0: for spw_wakeup_loading()
 * @deadline_ns  on the clock of spw_wakeup_due(); UINT64_MAX: none
 */
void spw_wakeup_wait(struct spw_wakeup *wakeup, struct spw_waiter *waiter, const uint64_t *tags,
                     uint32_t count, uint64_t deadline_ns);

/** It waits no more, and needn't be handed out. Fine for one that never waited. */
void spw_wakeup_forget(struct spw_wakeup *wakeup, struct spw_waiter *waiter);

/** This one may have changed; nothing happens to one that doesn't wait. */
void spw_wakeup_one(struct spw_wakeup *wakeup, struct spw_waiter *waiter);

/** Everything may have changed: wake all. */
void spw_wakeup_all(struct spw_wakeup *wakeup);

/** A chunk isn't being loaded for another request any more: wake those without tags. */
void spw_wakeup_loading(struct spw_wakeup *wakeup);

/** The oldest woken one that wasn't handed out yet, or NULL. It stays woken until it waits anew. */
struct spw_waiter *spw_wakeup_next(struct spw_wakeup *wakeup);

/** The slow parts of what follows. */
void spw_wakeup_wake_tag(struct spw_wakeup *wakeup, uint64_t tag);
void spw_wakeup_wake_due(struct spw_wakeup *wakeup, uint64_t now_ns);

static inline uint32_t spw_wakeup_bit(uint64_t tag)
{
    return 1u << (tag >> 60);
}

/** The chunk @tag has changed: wake those that watch it. */
static inline void spw_wakeup_record(struct spw_wakeup *wakeup, uint64_t tag)
{
    if (__builtin_expect(wakeup->map[tag & wakeup->mask] & spw_wakeup_bit(tag), 0))
        spw_wakeup_wake_tag(wakeup, tag);
}

/** It is @now_ns: wake those whose deadlines have come. */
static inline void spw_wakeup_due(struct spw_wakeup *wakeup, uint64_t now_ns)
{
    if (wakeup->deadlines > 0 && wakeup->deadline[0].at_ns <= now_ns)
        spw_wakeup_wake_due(wakeup, now_ns);
}

static inline bool spw_waiter_woken(const struct spw_waiter *waiter)
{
    return waiter->state == SPW_WAITER_WOKEN;
}

/** Registered, and nothing it waits for has come. */
static inline bool spw_waiter_waiting(const struct spw_waiter *waiter)
{
    return waiter->state == SPW_WAITER_WAITING;
}

#endif
