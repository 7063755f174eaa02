#ifndef SPW_TESTS_CRASH_TORTURE_BOARD_H
#define SPW_TESTS_CRASH_TORTURE_BOARD_H
/*
 * What the torture program and its clients tell each other, in a file that all of them map.
 *
 *   roles     the torturer writes the head; client i writes line i, after it its successors; a
 *             sweep writes what it found. Counts outlive the process that made them
 *   order     relaxed throughout: numbers and flags that are polled; a sweep's finds are read once
 *             its process has ended
 *   crash     a count may be one event short
 */
#include "shm/atomic.h"
#include "shm/base.h"

#define TORTURE_CLIENTS_MAX 12u
#define TORTURE_KEYS_MAX    512u
#define TORTURE_SPACES      2u /* "one": a rank, any worker; "two": two ranks, a pair of workers */
#define TORTURE_CHUNK_BYTES 1024u

/** What a sweep found of a key. */
enum torture_found {
    TORTURE_MISS = 0,
    TORTURE_RIGHT = 1,
    TORTURE_WRONG = 2,
    TORTURE_FAILED = 3, /* a HIT that couldn't be loaded */
    TORTURE_UNASKED = 4,
};

struct torture_line {
    alignas(64) spw_atomic64 attached_ns; /* CLOCK_MONOTONIC, of the last attach            */
    spw_atomic64 attaches;
    spw_atomic64 paused; /* the pause that is kept                                       */
    spw_atomic64 stored, checked, wrong, deferred;
    spw_atomic64 lost_answers; /* nothing came within the limit                                */
    spw_atomic64 unexpected;   /* errors that no death explains                                */
    spw_atomic64 resets;
    spw_atomic64 longest_ms; /* of all waits for an answer */
    spw_atomic64 failed;     /* errors that deaths and fences explain                        */
};

struct torture_board {
    alignas(64) spw_atomic64 pause; /* not 0: its number; clients rest outside steps          */
    spw_atomic64 quit;
    spw_atomic64 keys;   /* keys that clients choose from                             */
    spw_atomic64 one_in; /* sweeps ask for one key of so many                         */
    spw_atomic32 found[TORTURE_SPACES][TORTURE_KEYS_MAX];
    struct torture_line line[TORTURE_CLIENTS_MAX + 1]; /* the last one: of sweeps */
};

static inline uint64_t torture_draw(uint64_t *state) /* splitmix64 */
{
    uint64_t x = *state += 0x9e3779b97f4a7c15ull;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ x >> 27) * 0x94d049bb133111ebull;
    return x ^ x >> 31;
}

#endif
