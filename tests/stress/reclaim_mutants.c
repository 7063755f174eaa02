/*
 * Who may still ask for a retired slot, with a mistake.
 *
 *   no_words     clients' words are not looked at
 *   off_by_one   a view drained to the record before the RETIRED one counts as containing it
 *   no_pins      pins are not looked at
 *   step_only    a pin counts inside a step only, not until its command is taken
 */
#include "tests/stress/tier_mutants.h"

#include <string.h>

#include "tier/reclaim.h"

static bool no_words, off_by_one, no_pins, step_only;

void reclaim_mutant_set_up(const char *name)
{
    no_words = strcmp(name, "no_words") == 0;
    off_by_one = strcmp(name, "off_by_one") == 0;
    no_pins = strcmp(name, "no_pins") == 0;
    step_only = strcmp(name, "step_only") == 0;
}

static bool mutant_pos_before(uint64_t version, uint64_t word)
{
    return no_words || spw_pos_before(off_by_one ? version - 1 : version, word);
}

static uint64_t mutant_bit_test(const spw_atomic64 *words, uint64_t bit)
{
    return no_pins ? 0 : spw_bit_test(words, bit);
}

static bool mutant_has_untaken(const struct spw_client_view *view)
{
    return !step_only && spw_client_has_untaken(view);
}

#define spw_pos_before(version, word) mutant_pos_before(version, word)
#define spw_bit_test(words, bit)      mutant_bit_test(words, bit)
#define spw_client_has_untaken(view)  mutant_has_untaken(view)

#include "tier/reclaim.c"
