/*
 * Adoption with a mistake.
 *
 *   no_incarnation  the old one stays
 *   frees           what is not whole becomes FREE
 *   no_index        READY chunks are not indexed again
 *   keeps_bits      copying bits of the dead stay
 *   old_version     an entry is repaired with version 0, and retired anew without a record
 */
#include "tests/crash/adopt_mutants.h"

#include <string.h>

#include "tier/shard_impl.h"

static bool no_incarnation, frees, no_index, keeps_bits, old_version;

static bool is(const char *name, const char *mutant)
{
    return name && strcmp(name, mutant) == 0;
}

void adopt_mutant_set_up(const char *name)
{
    no_incarnation = is(name, "no_incarnation");
    frees = is(name, "frees");
    no_index = is(name, "no_index");
    keeps_bits = is(name, "keeps_bits");
    old_version = is(name, "old_version");
}

static void mutant_store_release(spw_atomic64 *at, uint64_t value)
{
    if (!no_incarnation)
        spw_store_release(at, value);
}

static void mutant_write(struct spw_table *table, uint32_t slot, const struct spw_entry_copy *copy,
                         const void *key)
{
    struct spw_entry_copy other = *copy;
    if (frees && copy->fill == 0)
        other.state = SPW_FREE;
    if (old_version)
        other.version = 0;
    spw_table_write(table, slot, &other, key);
}

static void mutant_index_put(struct spw_shard *shard, const uint64_t digest[2], uint32_t slot)
{
    if (!no_index)
        spw_shard_index_put(shard, digest, slot);
}

static void mutant_clear_own(struct spw_claims *claims)
{
    if (!keeps_bits)
        spw_claims_clear_own(claims);
}

#undef spw_store_release
#define spw_store_release(at, value)             mutant_store_release(at, value)
#define spw_table_write(table, slot, copy, key)  mutant_write(table, slot, copy, key)
#define spw_shard_index_put(shard, digest, slot) mutant_index_put(shard, digest, slot)
#define spw_claims_clear_own(claims)             mutant_clear_own(claims)

#include "tier/adopt.c"
