/*
 * The state table with a mistake. What x86 can't show is left to tests/model: a missing release or
 * acquire fence (its stores and its loads keep their order anyway).
 *
 *   no_recheck      the reader doesn't look at the sequence again behind the fields
 *   odd_taken       it doesn't mind an odd one
 *   never_odd       the writer doesn't make it odd
 *   no_count        a bucket that was passed over isn't counted
 *   counts_cleared  a removal ends all counts of the buckets it passes
 *   ends_at_hole    the reader ends its probe at a bucket with an empty cell
 */
#include "tests/stress/tier_mutants.h"

#include <string.h>

static bool no_recheck, odd_taken, never_odd, no_count, counts_cleared, ends_at_hole;
static const struct spw_table *mutated;

static _Thread_local bool is_reader;
static _Thread_local const spw_atomic64 *seq_at;
static _Thread_local uint64_t seq_seen;

void table_mutant_set_up(const char *name, const struct spw_table *table)
{
    mutated = table;
    no_recheck = strcmp(name, "no_recheck") == 0;
    odd_taken = strcmp(name, "odd_taken") == 0;
    never_odd = strcmp(name, "never_odd") == 0;
    no_count = strcmp(name, "no_count") == 0;
    counts_cleared = strcmp(name, "counts_cleared") == 0;
    ends_at_hole = strcmp(name, "ends_at_hole") == 0;
}

void table_mutant_is_reader(void)
{
    is_reader = true;
}

static bool is_seq(const spw_atomic64 *at)
{
    const struct spw_entry *entry = mutated->entry, *end = entry + mutated->view.slots;
    const char *byte = (const char *)at;
    return byte >= (const char *)entry && byte < (const char *)end &&
           (size_t)(byte - (const char *)entry) % sizeof *entry == 0;
}

static const struct spw_index_bucket *passed_of(const spw_atomic64 *at)
{
    const struct spw_index_bucket *first = mutated->index, *end = first + mutated->view.buckets;
    const char *byte = (const char *)at;
    if (byte < (const char *)first || byte >= (const char *)end ||
        (size_t)(byte - (const char *)first) % sizeof *first != 0)
        return NULL;
    return (const struct spw_index_bucket *)(const void *)at;
}

static uint64_t mutant_load_acquire(const spw_atomic64 *at)
{
    uint64_t value = spw_load_acquire(at);
    const struct spw_index_bucket *bucket = passed_of(at);
    if (bucket && ends_at_hole)
        for (uint32_t c = 0; c < 7; c++)
            if (spw_load_acquire(&bucket->cell[c]) == 0)
                return 0;
    if (is_seq(at)) {
        seq_at = at;
        seq_seen = odd_taken ? value & ~1ull : value;
        return seq_seen;
    }
    return value;
}

static uint64_t mutant_load(const spw_atomic64 *at)
{
    if (is_reader && no_recheck && at == seq_at)
        return seq_seen;
    uint64_t value = spw_load_relaxed(at);
    return is_reader && odd_taken && at == seq_at ? value & ~1ull : value;
}

static void mutant_store(spw_atomic64 *at, uint64_t value)
{
    if (!(never_odd && is_seq(at)))
        spw_store_relaxed(at, value);
}

static void mutant_store_release(spw_atomic64 *at, uint64_t value)
{
    spw_store_release(at, counts_cleared && passed_of(at) ? 0 : value);
}

static void mutant_add(spw_atomic64 *at, uint64_t amount)
{
    if (!no_count)
        spw_add_own(at, amount);
}

#undef spw_load_relaxed
#undef spw_load_acquire
#undef spw_store_relaxed
#undef spw_store_release
#define spw_load_relaxed(at)         mutant_load(at)
#define spw_load_acquire(at)         mutant_load_acquire(at)
#define spw_store_relaxed(at, value) mutant_store(at, value)
#define spw_store_release(at, value) mutant_store_release(at, value)
#define spw_add_own(at, amount)      mutant_add(at, amount)

#include "tier/table.c"
