#ifndef SPW_SHM_BASE_H
#define SPW_SHM_BASE_H
/*
 * Sizes, limits, checks and the clock that every layer shares. No state, no side effects.
 */
#include <errno.h>
#include <stdalign.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SPW_LINE_BYTES       64u  /* cache line; each writer's fields have their own     */
#define SPW_WORKERS_MAX      32u  /* two bits a worker fit the replica's 64-bit word     */
#define SPW_CLIENTS_MAX      127u /* futex_waitv takes 128 words, one is the daemon's    */
#define SPW_SPACES_MAX       64u  /* spaces a pool can describe                          */
#define SPW_GROUP_COUNT_MAX  16u  /* KV-cache groups of a space                          */
#define SPW_RANKS_MAX        32u  /* tensor-parallel ranks of a space                    */
#define SPW_KEY_BYTES_MAX    64u  /* an engine's own key of a chunk                      */
#define SPW_JOB_CHUNKS_MAX   64u  /* chunks of a job: one bit each in a completion       */
#define SPW_CHUNK_BLOCKS_MAX 32u  /* blocks of a chunk                                  */

/* Layout checks: what crosses a process boundary is asserted, field by field. */
#define SPW_LAYOUT_SIZE(type, bytes) _Static_assert(sizeof(type) == (bytes), "size of " #type)
#define SPW_LAYOUT_FIELD(type, field, at)                                                          \
    _Static_assert(offsetof(type, field) == (at), "offset of " #type "." #field)

/** Smallest multiple of @to (a power of two) that is not below @value. */
static inline uint64_t spw_align_up(uint64_t value, uint64_t to)
{
    return (value + to - 1) & ~(to - 1);
}

/** Positions only grow and may wrap; they are compared by signed difference alone. */
static inline bool spw_pos_before(uint64_t a, uint64_t b)
{
    return (int64_t)(a - b) < 0;
}

/** CLOCK_MONOTONIC in nanoseconds. No system call that enters the kernel. */
uint64_t spw_monotonic_ns(void);

/** An error with words: @code is a negative errno, @text names value and remedy. */
struct spw_error {
    int code;
    char text[252];
};

/**
 * Fill @err (may be NULL) and return @code, so that callers can write `return spw_fail(...)`.
 * The text is cut when it doesn't fit.
 */
int spw_fail(struct spw_error *err, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
