#ifndef SPW_TESTS_UNIT_PIN_RIG_H
#define SPW_TESTS_UNIT_PIN_RIG_H
/*
 * A worker's pinning on a driver of the tests' own, which keeps a list of what is registered and sees calls
 * that overlap, in memory or in time. Touching is the test's, too: it takes time, or waits for the test.
 */
#include "gpu/pin.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <unistd.h>

#include "shm/alive.h"

#define PIN_MIB    (1ull << 20)
#define PIN_GIB    (1ull << 30)
#define PIN_RANGES 64u
#define PIN_SHARDS 2u

struct pin_range {
    uint8_t *start;
    uint64_t bytes;
};

/* What it does is set before spw_pin_open(); the rest is the pin thread's, looked at under the lock. */
struct pin_driver {
    pthread_mutex_t lock;
    struct pin_range range[PIN_RANGES];
    uint32_t held, adds, removes, clashes, turns_lost, read_only;
    uint64_t cap_bytes;     /* of one call, 0 = none                     */
    uint32_t fail_at;       /* the n-th call from 1, 0 = none            */
    bool read_only_refused; /* what isn't writable                       */
    int error;              /* of a failure                              */
    uint32_t add_us;        /* that a call takes                         */
    int turn_fd;            /* two calls at a time on it: the later is counted */
    uint64_t last_ns;       /* a call's end                              */
    uint64_t pause_ns;      /* the shortest time from one call to the next */
    const uint8_t *asked;   /* where the last call began */
};

struct pin_rig {
    struct pin_driver driver;
    struct spw_pin_config config;
    struct spw_gpu_record record;
    spw_atomic64 touched;
    spw_atomic32 pinning;
    spw_atomic64 may_touch; /* steps that touching waits for; UINT64_MAX: none */
    spw_atomic64 touches;
    uint32_t touch_us;
    uint32_t inside; /* threads in touch(), under the driver's lock */
    char words[256];
    struct spw_pin *pin;
    int lock;
};

/** Ranges registered now. */
uint32_t pin_rig_held(struct pin_driver *driver);
/** Until that many calls have registered or failed to, for 5 s at most. */
bool pin_rig_wait_for_adds(struct pin_driver *driver, uint32_t wanted);
/** Where the last of them began. */
const uint8_t *pin_rig_asked(struct pin_driver *driver);
/** The same file, as another worker opens it. */
int pin_rig_open_again(int fd);
/** Two shards of @slots slots, the own one pinned by one thread in pieces of four. Nothing is touched but by
 * the rig's own touch(). False: no address space. */
bool pin_rig_try_prepare(struct pin_rig *rig, int lock, uint32_t slots, uint32_t slot_bytes);
/** The same, or the test fails. */
void pin_rig_prepare(struct pin_rig *rig, int lock, uint32_t slots, uint32_t slot_bytes);
int pin_rig_lock(void);
void pin_rig_start(struct pin_rig *rig);
uint64_t pin_rig_state(const struct pin_rig *rig);
/** Until pin_state is that, for 5 s at most. */
bool pin_rig_wait(const struct pin_rig *rig, uint64_t wanted);
uint8_t *pin_rig_slot(const struct pin_rig *rig, uint32_t shard, uint32_t slot);
/** Closes, and checks that nothing is left. */
void pin_rig_finish(struct pin_rig *rig);
/** Until some slot is usable, likewise for 5 s at most. */
bool pin_rig_wait_for_piece(struct pin_rig *rig);
/** Until so many threads stand in touch(), likewise. */
bool pin_rig_wait_inside(struct pin_rig *rig, uint32_t threads);
/** A copy of it begins and ends: was it pinned? */
bool pin_rig_copies(struct pin_rig *rig, const uint8_t *start, uint64_t bytes);
/** Until copies of that slot of the own shard don't begin any more, likewise. */
bool pin_rig_wait_for_end(struct pin_rig *rig, uint32_t slot);

#endif
