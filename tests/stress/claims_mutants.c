/*
 * Claims of copying workers with a mistake.
 *
 *   bits_ignored  the owner gives out a slot whatever the bits say
 *   ready_only    a chunk retired since the decision is refused
 *   bit_late      the entry is looked at before the bit is set
 *   any_fill      whatever is in the slot by now is taken
 */
#include "tests/stress/tier_mutants.h"

#include <sched.h>
#include <string.h>

#include "tier/claims.h"

static bool bits_ignored, ready_only, bit_late, any_fill;
static _Thread_local spw_atomic64 *late_words;
static _Thread_local uint64_t late_bit;

void claims_mutant_set_up(const char *name)
{
    bits_ignored = strcmp(name, "bits_ignored") == 0;
    ready_only = strcmp(name, "ready_only") == 0;
    bit_late = strcmp(name, "bit_late") == 0;
    any_fill = strcmp(name, "any_fill") == 0;
}

static uint64_t mutant_load_acquire(const spw_atomic64 *at)
{
    return bits_ignored ? 0 : spw_load_acquire(at);
}

static void mutant_bit_set(spw_atomic64 *words, uint64_t bit)
{
    late_words = words;
    late_bit = bit;
    if (!bit_late)
        spw_bit_set(words, bit);
}

static int mutant_read(const struct spw_table_view *view, uint32_t slot, uint64_t fill,
                       struct spw_entry_copy *out)
{
    int rc = spw_table_read(view, slot, false, out);
    if (ready_only && out->state == SPW_RETIRED)
        out->state = SPW_FREE;
    if (any_fill)
        out->fill = fill;
    if (bit_late) {
        sched_yield();
        spw_bit_set(late_words, late_bit);
    }
    return rc;
}

#undef spw_load_acquire
#define spw_load_acquire(at)                 mutant_load_acquire(at)
#define spw_bit_set(words, bit)              mutant_bit_set(words, bit)
#define spw_table_read(view, slot, key, out) mutant_read(view, slot, fill, out)

#include "tier/claims.c"
