#ifndef SPW_GPU_PIN_IMPL_H
#define SPW_GPU_PIN_IMPL_H
/*
 * Insides of a pinning, for its two halves: pin.c, what the worker calls, and pin_thread.c, which pins.
 * Process-local; each field names who writes it once the thread runs.
 */
#include <pthread.h>

#include "gpu/pin.h"
#include "gpu/pin_pieces.h"

#define SPW_PIN_USABLE_ALL  UINT64_MAX
#define SPW_PIN_BITS(count) (((count) + 63u) / 64u) /* words of a bit a piece */

struct spw_pin_shard {
    struct spw_pin_memory memory;
    struct spw_pin_pieces pieces;
    spw_atomic64 *is_pinned; /* a bit a piece; written by the pin thread           */
    spw_atomic64 *is_wanted; /* likewise, of others' shards; written by the worker */
    uint64_t *is_held;       /* registered; the pin thread's own                   */
    uint64_t *is_refused;    /* likewise                                           */
};

struct spw_pin {
    struct spw_pin_config config;
    struct spw_pin_shard shard[SPW_WORKERS_MAX];
    spw_atomic64 usable_bytes; /* of the own shard, or USABLE_ALL; by the pin thread        */
    spw_atomic64 used, ended;  /* copies begun and ended on pinned memory; by the worker     */
    spw_atomic64 lost;         /* by the pin thread                                          */
    spw_atomic32 stop;         /* by the worker                                              */
    uint64_t until_ns;         /* the limit, for the own shard                               */
    uint64_t touched_before;   /* of the pieces before                                       */
    int host_fd;               /* of config.host_dir, -1 = none                              */
    bool runs;                 /* the thread does                                            */
    bool dropped;              /* for good                                                   */
    pthread_t thread;
    pthread_mutex_t lock; /* of the bell alone */
    pthread_cond_t bell;  /* something is wanted, or stop */
};

/* relaxed, both: they only have to be seen some time */
static inline bool spw_pin_is_stopped(const struct spw_pin *pin)
{
    return spw_load_relaxed(&pin->stop) != 0;
}

static inline bool spw_pin_is_off(const struct spw_pin *pin)
{
    return spw_load_relaxed(pin->config.pinning) == SPW_PINNING_OFF;
}

static inline void spw_pin_show_state(struct spw_pin *pin, enum spw_pin_state state)
{
    /* [PN-4] release: words and numbers before the state */
    spw_store_release(&pin->config.record->pin_state, state);
}

/* relaxed, both: numbers to look at */
static inline void spw_pin_show_bytes(struct spw_pin *pin, uint64_t bytes)
{
    spw_store_relaxed(&pin->config.record->pinned_bytes, bytes);
}

static inline void spw_pin_show_touched(struct spw_pin *pin, uint64_t bytes)
{
    if (pin->config.touched)
        spw_store_relaxed(pin->config.touched, bytes);
}

/** The thread: @arg is a struct spw_pin. It ends at the stop, with nothing registered. */
void *spw_pin_main(void *arg);

#endif
