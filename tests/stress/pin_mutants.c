/*
 * Pinning with a mistake.
 *
 *   no_recheck  a copy that counts itself doesn't look at the bit again
 *   no_wait     what is let go of goes though copies use it
 *   no_turn     somebody else's registration isn't waited for
 *   early       the frontier is taken to lie a piece further on
 */
#include "tests/stress/pin_mutants.h"

#include <string.h>

#include "gpu/pin_impl.h"
#include "shm/alive.h"

static bool no_recheck, no_wait, no_turn, early;

void pin_mutant_set_up(const char *name)
{
    no_recheck = strcmp(name, "no_recheck") == 0;
    no_wait = strcmp(name, "no_wait") == 0;
    no_turn = strcmp(name, "no_turn") == 0;
    early = strcmp(name, "early") == 0;
}

uint32_t pin_mutant_usable_slots(struct spw_pin *pin)
{
    const struct spw_pin_config *config = &pin->config;
    uint32_t slots = spw_pin_usable_slots(pin);
    uint64_t piece = pin->shard[config->k].pieces.piece_bytes / config->slot_bytes;
    return early && slots != UINT32_MAX ? slots + (uint32_t)piece : slots;
}

/* Of the worker: it takes its time before it counts itself, and the bit as set from then on. */
static bool is_set_anyway;

static void mutant_fence(void)
{
    spw_fence_full();
    is_set_anyway = no_recheck;
}

static uint64_t mutant_bits(const spw_atomic64 *bits)
{
    uint64_t seen = is_set_anyway ? UINT64_MAX : spw_load_acquire(bits);
    if (no_recheck && !is_set_anyway)
        nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
    is_set_anyway = false;
    return seen;
}

static uint64_t mutant_ended(const struct spw_pin *pin)
{
    return no_wait ? spw_load_relaxed(&pin->used) : spw_load_acquire(&pin->ended);
}

static int mutant_take(int fd, uint32_t byte)
{
    return no_turn ? 0 : spw_lock_take(fd, byte);
}

#define spw_fence_full() mutant_fence()
#undef spw_load_acquire
#define spw_load_acquire(at) mutant_bits(at)
#include "gpu/pin.c"
#undef spw_fence_full
#undef spw_load_acquire
#define spw_load_acquire(at)    mutant_ended(pin)
#define spw_lock_take(fd, byte) mutant_take(fd, byte)
#include "gpu/pin_thread.c"
