#ifndef SPW_TESTS_FUZZ_GEN_LOOKUP_H
#define SPW_TESTS_FUZZ_GEN_LOOKUP_H
/*
 * Random lookups: small layouts of all kinds, some blown up to token counts near 2^63.
 */
#include "tests/fuzz/naive_lookup.h"

/** A case from @seed; the same for the same seed. */
void gen_lookup(uint64_t seed, struct naive_case *out_case);

/** A number in [0, @below) from *@state, which moves on. */
uint64_t gen_below(uint64_t *state, uint64_t below);

#endif
