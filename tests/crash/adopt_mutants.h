#ifndef SPW_TESTS_CRASH_ADOPT_MUTANTS_H
#define SPW_TESTS_CRASH_ADOPT_MUTANTS_H
/*
 * Successors that make a mistake: adopt_mutants.c is the source of tier/adopt.c with operations
 * replaced by ones that misbehave when they are told to.
 */
#define ADOPT_MUTANTS "no_incarnation", "frees", "no_index", "keeps_bits", "old_version"

/** NULL: no mistake from now on. */
void adopt_mutant_set_up(const char *name);

#endif
