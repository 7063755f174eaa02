/*
 * Quarantine with a mistake.
 *
 *   no_aside      what a dead worker was filling is freed as anything else
 *   bits_cleared  claims of the dead worker end with it
 *   no_time       the quarantine is over at once
 */
#include "tests/stress/tier_mutants.h"

#include <string.h>

#define spw_quarantine_wants true_wants
#define spw_quarantine_check true_check
#include "tier/quarantine.h"

static bool no_aside, bits_cleared, no_time;

void quarantine_mutant_set_up(const char *name)
{
    no_aside = strcmp(name, "no_aside") == 0;
    bits_cleared = strcmp(name, "bits_cleared") == 0;
    no_time = strcmp(name, "no_time") == 0;
}

static int mutant_keep(struct spw_claims *claims)
{
    if (!bits_cleared)
        return spw_claims_keep_found(claims);
    spw_claims_clear_own(claims);
    return 0;
}

#define spw_claims_keep_found(claims) mutant_keep(claims)
#include "tier/quarantine.c"
#undef spw_quarantine_wants
#undef spw_quarantine_check

bool spw_quarantine_wants(const struct spw_shard *shard, uint32_t slot);
void spw_quarantine_check(struct spw_shard *shard, uint64_t now_ns);

bool spw_quarantine_wants(const struct spw_shard *shard, uint32_t slot)
{
    return !no_aside && true_wants(shard, slot);
}

void spw_quarantine_check(struct spw_shard *shard, uint64_t now_ns)
{
    true_check(shard, no_time ? UINT64_MAX : now_ns);
}
