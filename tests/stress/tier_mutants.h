#ifndef SPW_TESTS_STRESS_TIER_MUTANTS_H
#define SPW_TESTS_STRESS_TIER_MUTANTS_H
/*
 * Seeded mistakes of the tier: X_mutants.c is the source of tier/X with operations replaced by ones
 * that misbehave when they are told to. They stand in for tier/X in the mutants' programs, which are
 * compiled with -DSPW_MUTANTS; the plain ones link the product.
 */
#include "tier/table.h"

#define TABLE_MUTANTS                                                                              \
    "no_recheck", "odd_taken", "never_odd", "no_count", "counts_cleared", "ends_at_hole"
#define RECLAIM_MUTANTS                                                                            \
    "no_words", "off_by_one", "no_pins", "step_only", "published_late", "bits_ignored",            \
        "ready_only", "bit_late", "any_fill"

#define QUARANTINE_MUTANTS "no_aside", "bits_cleared", "no_time"

#define COLD_MUTANTS "silent", "says_retired"

#define AWAITED_MUTANTS "no_limit", "marks_kept"

void table_mutant_set_up(const char *name, const struct spw_table *table);
/** Called by each reader's thread before it reads. */
void table_mutant_is_reader(void);

void reclaim_mutant_set_up(const char *name);
void claims_mutant_set_up(const char *name);
void shard_mutant_set_up(const char *name);

void cold_mutant_set_up(const char *name);
void quarantine_mutant_set_up(const char *name);
void queue_mutant_set_up(const char *name);

#endif
