#ifndef SPW_SHM_DOORBELL_H
#define SPW_SHM_DOORBELL_H
/*
 * Doorbell: an idle worker (or the daemon) sleeps on words that its clients raise anyway.
 *
 *   sleep     asleep = 1, full fence [DB-1], read the words, *then* look for work once more, then
 *             futex_waitv on the values read; asleep = 0 (tests/model/doorbell.pml)
 *   ring      slot, tail (stored before), full fence [DB-1], wake only if asleep is set
 *   pairs     [DB-1] asleep before the look <-> tail before the look at asleep
 *   crash     sleeper dead: `asleep` stays 1 and costs its clients a needless wake. Ringer dead
 *             before the wake: the sleeper's time-out (bounded, every wait) finds the work
 */
#include "shm/layout.h"

#define SPW_DOORBELL_WORDS_MAX 128u

/** Words to sleep on; caller's memory. */
struct spw_doorbell {
    const spw_atomic32 *word[SPW_DOORBELL_WORDS_MAX];
    uint32_t count;
};

/** The low half of a 64-bit position, as a futex word (little-endian hosts only). */
static inline const spw_atomic32 *spw_doorbell_low_half(const spw_atomic64 *at)
{
    return (const spw_atomic32 *)(const void *)at;
}

/**
 * Sleep until a word moves, for at most @timeout_ns, and never for more than a minute. A kernel
 * without futex_waitv gives a plain sleep of a millisecond at most, and 0.
 * @asleep  the sleeper's own shared word, NULL if it has none (then ringers always wake)
 * @look    asked after the words were read; true = there is work, don't sleep
 * Returns 0 (woken, work, or a word had moved), -ETIMEDOUT, -EINTR, or -EINVAL: more words than
 * there may be. Callers look again in any case.
 */
int spw_doorbell_sleep(const struct spw_doorbell *bell, spw_atomic32 *asleep, uint64_t timeout_ns,
                       bool (*look)(void *ctx), void *ctx);

/** Wake whoever sleeps on @word, if @asleep (may be NULL) says somebody might. At most one system
 * call, none when nobody sleeps. Returns 1 if it made the call. */
int spw_doorbell_ring(const spw_atomic32 *word, const spw_atomic32 *asleep);

#endif
