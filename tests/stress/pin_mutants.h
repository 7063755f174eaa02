#ifndef SPW_TESTS_STRESS_PIN_MUTANTS_H
#define SPW_TESTS_STRESS_PIN_MUTANTS_H
/*
 * Seeded mistakes of pinning: pin_mutants.c is the source of gpu/pin.c and gpu/pin_thread.c with operations
 * replaced by ones that misbehave when they are told to. The plain program links the product.
 */
#include "gpu/pin.h"

#define PIN_MUTANTS "no_recheck", "no_wait", "no_turn", "early"

void pin_mutant_set_up(const char *name);
/** In place of spw_pin_usable_slots(). */
uint32_t pin_mutant_usable_slots(struct spw_pin *pin);

#endif
