/* tier/entry_check: each field that can be wrong is found, and what workers leave is sound. */
#include "tier/entry_check.h"

#include <criterion/criterion.h>
#include <string.h>

TestSuite(entry_check, .timeout = 30);

static struct spw_space_slot space[SPW_SPACES_MAX];
static const struct spw_entry_rules rules = {
    .space = space, .slot_bytes = 4096, .version_max = 1000};

/* A READY entry of space 3, group 1, rank 2. */
static struct spw_entry_copy ready_entry(void)
{
    struct spw_entry_copy copy = {.version = 900,
                                  .fill = 900,
                                  .chunk_bytes = 2048,
                                  .state = SPW_READY,
                                  .group = 1,
                                  .key_bytes = 40,
                                  .rank = 2,
                                  .space = 3};
    memset(space, 0, sizeof space);
    space[3].record.groups = 2;
    space[3].record.ranks = 3;
    space[3].record.group[0].chunk_bytes = 4096;
    space[3].record.group[1].chunk_bytes = 2048;
    spw_store_relaxed(&space[3].ready, 1);
    memset(copy.key, 7, 40);
    spw_chunk_digest(copy.space, copy.group, copy.key, copy.key_bytes, copy.digest);
    return copy;
}

Test(entry_check, what_workers_leave_is_sound)
{
    struct spw_entry_copy copy = ready_entry();
    cr_expect_eq(spw_entry_check(&copy, &rules), SPW_ENTRY_SOUND);
    copy.state = SPW_RETIRED;
    copy.version = 1000;
    cr_expect_eq(spw_entry_check(&copy, &rules), SPW_ENTRY_SOUND, "retired, may still be loaded");
    copy.state = SPW_FILLING;
    copy.fill = 0;
    cr_expect_eq(spw_entry_check(&copy, &rules), SPW_ENTRY_SOUND);
    copy.state = SPW_COLD;
    cr_expect_eq(spw_entry_check(&copy, &rules), SPW_ENTRY_SOUND);
    copy.state = SPW_BACKED;
    cr_expect_eq(spw_entry_check(&copy, &rules), SPW_ENTRY_SOUND);
    copy = (struct spw_entry_copy){.state = SPW_FREE};
    cr_expect_eq(spw_entry_check(&copy, &rules), SPW_ENTRY_SOUND, "never used");
    copy = (struct spw_entry_copy){.state = SPW_RETIRED, .space = 77, .version = 5};
    cr_expect_eq(spw_entry_check(&copy, &rules), SPW_ENTRY_SOUND, "nobody can load it");
}

Test(entry_check, each_damaged_field_is_named)
{
    struct spw_entry_copy good = ready_entry(), copy;
#define EXPECT(fault, change)                                                                      \
    do {                                                                                           \
        copy = good;                                                                               \
        change;                                                                                    \
        cr_expect_eq(spw_entry_check(&copy, &rules), (fault), #change);                            \
    } while (0)
    EXPECT(SPW_ENTRY_STATE, copy.state = 6);
    EXPECT(SPW_ENTRY_VERSION, copy.version = 1001);
    EXPECT(SPW_ENTRY_VERSION, copy.version = copy.fill = UINT64_MAX / 2);
    EXPECT(SPW_ENTRY_FILL, copy.fill = 0);
    EXPECT(SPW_ENTRY_FILL, copy.fill = 899);
    EXPECT(SPW_ENTRY_FILL, copy.state = SPW_FILLING);
    EXPECT(SPW_ENTRY_FILL, copy.state = SPW_RETIRED);
    EXPECT(SPW_ENTRY_FILL, copy.state = SPW_COLD);
    EXPECT(SPW_ENTRY_KEY_BYTES, copy.key_bytes = 0);
    EXPECT(SPW_ENTRY_KEY_BYTES, copy.key_bytes = 65);
    EXPECT(SPW_ENTRY_SPACE, copy.space = 2);
    EXPECT(SPW_ENTRY_SPACE, copy.space = SPW_SPACES_MAX);
    EXPECT(SPW_ENTRY_SPACE, copy.space = UINT32_MAX);
    EXPECT(SPW_ENTRY_GROUP, copy.group = 2);
    EXPECT(SPW_ENTRY_RANK, copy.rank = 3);
    EXPECT(SPW_ENTRY_CHUNK_BYTES, copy.chunk_bytes = 2047);
    EXPECT(SPW_ENTRY_CHUNK_BYTES, copy.group = 0);
    EXPECT(SPW_ENTRY_DIGEST, copy.digest[0] ^= 1);
    EXPECT(SPW_ENTRY_DIGEST, copy.digest[1] ^= 1ull << 63);
    EXPECT(SPW_ENTRY_DIGEST, copy.key[39] ^= 1);
#undef EXPECT
}

Test(entry_check, a_damaged_space_leads_nowhere)
{
    struct spw_entry_copy copy = ready_entry();
    space[3].record.groups = UINT32_MAX;
    copy.group = SPW_GROUP_COUNT_MAX;
    cr_expect_eq(spw_entry_check(&copy, &rules), SPW_ENTRY_GROUP);
    copy = ready_entry();
    space[3].record.group[1].chunk_bytes = 1u << 31;
    copy.chunk_bytes = 1u << 31;
    cr_expect_eq(spw_entry_check(&copy, &rules), SPW_ENTRY_CHUNK_BYTES, "more than a slot");
}

Test(entry_check, each_fault_has_words)
{
    for (uint32_t i = 0; i <= SPW_ENTRY_DIGEST; i++)
        cr_expect_neq(spw_entry_fault_text(i)[0], '?');
    cr_expect_str_eq(spw_entry_fault_text(SPW_ENTRY_DIGEST + 1), "?");
}
