/* Doorbell. Shared: words that clients raise anyway, and the sleeper's `asleep`. Futexes are
 * shared ones: the words lie in different mappings of different processes. */
#include "shm/doorbell.h"

#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define TIMEOUT_MAX_NS 60000000000ull
#define PLAIN_SLEEP_NS 1000000ull

#ifndef SYS_futex_waitv
#define SYS_futex_waitv 449
#endif

/* As <linux/futex.h> of Linux 5.16 and later has it. */
struct wait_word {
    uint64_t value;
    uint64_t address;
    uint32_t flags;
    uint32_t reserved;
};
#define WAIT_WORD_32_SHARED 2u

static struct timespec from_now(uint64_t ns)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    at.tv_sec += (time_t)(ns / 1000000000ull);
    at.tv_nsec += (long)(ns % 1000000000ull);
    if (at.tv_nsec >= 1000000000l) {
        at.tv_sec++;
        at.tv_nsec -= 1000000000l;
    }
    return at;
}

static int plain_sleep(uint64_t timeout_ns)
{
    struct timespec span = {.tv_nsec = (long)PLAIN_SLEEP_NS};
    if (timeout_ns < PLAIN_SLEEP_NS)
        span.tv_nsec = (long)timeout_ns;
    return clock_nanosleep(CLOCK_MONOTONIC, 0, &span, NULL) == EINTR ? -EINTR : 0;
}

static int wait_words(struct wait_word *wait, uint32_t count, uint64_t timeout_ns)
{
    struct timespec until = from_now(timeout_ns);
    if (count == 0)
        return plain_sleep(timeout_ns);
    if (syscall(SYS_futex_waitv, wait, count, 0, &until, CLOCK_MONOTONIC) >= 0)
        return 0;
    switch (errno) {
    case EAGAIN: /* a word had moved */
        return 0;
    case ENOSYS:
        return plain_sleep(timeout_ns);
    default:
        return -errno;
    }
}

int spw_doorbell_sleep(const struct spw_doorbell *bell, spw_atomic32 *asleep, uint64_t timeout_ns,
                       bool (*look)(void *ctx), void *ctx)
{
    struct wait_word wait[SPW_DOORBELL_WORDS_MAX];
    if (bell->count > SPW_DOORBELL_WORDS_MAX)
        return -EINVAL;
    if (asleep)
        spw_store_relaxed(asleep, 1);
    /* [DB-1] full fence: asleep before the words and the look */
    spw_fence_full();
    for (uint32_t i = 0; i < bell->count; i++) {
        wait[i] = (struct wait_word){.value = spw_load_relaxed(bell->word[i]),
                                     .address = (uint64_t)(uintptr_t)bell->word[i],
                                     .flags = WAIT_WORD_32_SHARED};
    }
    /* the words first: a record that comes after the look has moved its word by then */
    spw_fence_acquire();
    int rc = 0;
    if (!look || !look(ctx))
        rc = wait_words(wait, bell->count,
                        timeout_ns < TIMEOUT_MAX_NS ? timeout_ns : TIMEOUT_MAX_NS);
    if (asleep)
        spw_store_relaxed(asleep, 0);
    return rc;
}

int spw_doorbell_ring(const spw_atomic32 *word, const spw_atomic32 *asleep)
{
    /* [DB-1] full fence: the tail before the look at asleep */
    spw_fence_full();
    if (asleep && !spw_load_relaxed(asleep))
        return 0;
    syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
    return 1;
}
