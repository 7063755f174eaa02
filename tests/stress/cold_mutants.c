/*
 * Entries of the tier below with a mistake.
 *
 *   silent        a COLD chunk that goes is no news
 *   says_retired  what goes down, or is found there, is told as RETIRED
 */
#include "tests/stress/tier_mutants.h"

#include <string.h>

#include "tier/shard_impl.h"

static bool silent, says_retired;

void cold_mutant_set_up(const char *name)
{
    silent = strcmp(name, "silent") == 0;
    says_retired = strcmp(name, "says_retired") == 0;
}

static uint64_t mutant_pack(uint32_t slot, uint32_t state, uint32_t group, uint32_t space)
{
    if (silent && state == SPW_RETIRED)
        state = SPW_FREE;
    if (says_retired && state == SPW_COLD)
        state = SPW_RETIRED;
    return spw_update_pack(slot, state, group, space);
}

#define spw_update_pack(slot, state, group, space) mutant_pack(slot, state, group, space)

#include "tier/shard_cold.c"
