#ifndef SPW_TESTS_STRESS_MUTANTS_H
#define SPW_TESTS_STRESS_MUTANTS_H
/*
 * Seeded mistakes: X_mutants.c is the source of X.c with operations of shm/atomic.h replaced by
 * ones that misbehave when they are told to. It stands in for X.c in the mutants' programs, which
 * are compiled with -DSPW_MUTANTS; the plain ones link the product.
 */
#include "shm/layout.h"

/** A name that is none of this file's switches nothing on: it is a mistake of the program's own. */
void ring_mutant_set_up(const char *name, struct spw_feed_head *head);
/** Called by the writer's thread before it publishes, by each reader's before it drains. */
void ring_mutant_is_writer(void);
void ring_mutant_is_reader(void);

void lane_mutant_set_up(const char *name);
/** Called by the producer's thread before it sends. */
void lane_mutant_is_producer(void);

void doorbell_mutant_set_up(const char *name);

void explain_mutant_set_up(const char *name, struct spw_client_head *head);

#endif
