/* The daemon's list of spaces: what makes no sense is refused with words, equal ones are one. */
#include "tools/spaces.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

TestSuite(spaces, .timeout = 20);

static struct spw_ctl ctl;
static struct spw_space_record record;
static uint32_t rank_worker[SPW_RANKS_MAX];
static uint64_t shares;
static char text[96]; /* as large as a reply's */

static const struct spw_geometry geometry = {.workers = 4, .slot_bytes = 1024};

/* Two groups of 512 and 256 bytes, two ranks on workers 0 and 1. */
static void begin(void)
{
    memset(&ctl, 0, sizeof ctl);
    shares = 0;
    memset(rank_worker, 0, sizeof rank_worker);
    rank_worker[1] = 1;
    record = (struct spw_space_record){
        .fingerprint = "a model",
        .blocks_per_chunk = 2,
        .hash_unit_tokens = 16,
        .groups = 2,
        .ranks = 2,
        .group = {{.block_tokens = 16, .chunk_bytes = 512, .nominal_bytes = 512},
                  {.kind = 1, .block_tokens = 16, .window_tokens = 64, .chunk_bytes = 256}},
    };
}

static int open_space(void)
{
    text[0] = 0;
    struct spw_open_space_mail asked = {.record = record, .shares = shares};
    memcpy(asked.rank_worker, rank_worker, sizeof asked.rank_worker);
    return spw_spaces_open(&ctl, &geometry, &asked, text, sizeof text);
}

static void refused(int error, const char *words)
{
    int rc = open_space();
    cr_expect_eq(rc, error, "%d, not %d: %s", rc, error, text);
    cr_expect(strstr(text, words), "\"%s\" lacks \"%s\"", text, words);
}

static uint64_t mask(uint32_t space, uint32_t rank)
{
    return spw_load_relaxed(&ctl.space[space].rank_workers[rank]);
}

Test(spaces, values_that_make_no_sense_are_refused_by_name, .init = begin)
{
    static const struct {
        size_t at; /* of a 32-bit field of the record */
        uint32_t value;
        const char *words;
    } bad[] = {
#define FIELD(name) offsetof(struct spw_space_record, name)
        {FIELD(blocks_per_chunk), 0, "blocks_per_chunk is 0"},
        {FIELD(blocks_per_chunk), SPW_CHUNK_BLOCKS_MAX + 1, "blocks_per_chunk is 33"},
        {FIELD(hash_unit_tokens), 0, "hash_unit_tokens is 0"},
        {FIELD(groups), 0, "groups is 0"},
        {FIELD(groups), SPW_GROUP_COUNT_MAX + 1, "groups is 17"},
        {FIELD(groups), UINT32_MAX, "groups is 4294967295"},
        {FIELD(ranks), 0, "ranks is 0"},
        {FIELD(ranks), SPW_RANKS_MAX + 1, "ranks is 33"},
        {FIELD(group[1].kind), 4, "kind is 4"},
        {FIELD(group[1].block_tokens), 0, "block_tokens is 0"},
        {FIELD(group[1].chunk_bytes), 0, "chunk_bytes is 0"},
        {FIELD(group[1].chunk_bytes), 1026, "chunk_bytes is 1026"},
        {FIELD(group[1].chunk_bytes), 255, "modulo blocks_per_chunk"},
        {FIELD(group[1].nominal_bytes) + 4, 1u << 31, "nominal_bytes"},
        {FIELD(group[1].reserved), 1, "reserved"},
#undef FIELD
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        begin();
        memcpy((char *)&record + bad[i].at, &bad[i].value, sizeof bad[i].value);
        refused(-EINVAL, bad[i].words);
        cr_expect_eq(spw_load_relaxed(&ctl.space[0].ready), 0, "%s", bad[i].words);
    }
    begin();
    rank_worker[1] = 4;
    refused(-EINVAL, "rank's worker is 4");
    begin();
    record.fingerprint[0] = 0;
    refused(-EINVAL, "fingerprint");
    memset(record.fingerprint, 'x', sizeof record.fingerprint);
    refused(-EINVAL, "fingerprint");
}

Test(spaces, equal_ones_are_one_and_others_are_not, .init = begin)
{
    cr_assert_eq(open_space(), 0);
    cr_expect_eq(spw_load_relaxed(&ctl.space[0].ready), 1);
    cr_expect_eq(memcmp(&ctl.space[0].record, &record, sizeof record), 0);
    cr_expect(mask(0, 0) == 1 && mask(0, 1) == 2);
    strcpy(record.fingerprint, "another model");
    cr_expect_eq(open_space(), 1);
    strcpy(record.fingerprint, "a model");
    cr_expect_eq(open_space(), 0);
}

Test(spaces, one_fingerprint_with_two_geometries_is_told_with_both_values, .init = begin)
{
    cr_assert_eq(open_space(), 0);
    record.group[1].chunk_bytes = 128;
    refused(-EINVAL, "chunk_bytes is 256 in this pool's space of that fingerprint, not 128");
    begin();
    cr_assert_eq(open_space(), 0);
    record.group[1].window_tokens = 65;
    refused(-EINVAL, "window_tokens is 64");
    record.ranks = 1;
    refused(-EINVAL, "ranks is 2");
    record.groups = 1;
    refused(-EINVAL, "groups is 2");
}

Test(spaces, a_worker_keeps_one_rank_and_a_rank_may_have_many_workers, .init = begin)
{
    rank_worker[1] = 0;
    refused(-EBUSY, "worker 0 keeps rank 0 of this space, not rank 1");
    cr_expect_eq(spw_load_relaxed(&ctl.space[0].ready), 0);
    rank_worker[1] = 1;
    cr_assert_eq(open_space(), 0);
    rank_worker[0] = 1;
    rank_worker[1] = 2;
    refused(-EBUSY, "worker 1 keeps rank 1 of this space, not rank 0");
    cr_expect(mask(0, 0) == 1 && mask(0, 1) == 2, "a refusal enters nothing");
    rank_worker[0] = 2;
    rank_worker[1] = 3;
    cr_assert_eq(open_space(), 0);
    cr_expect(mask(0, 0) == 5 && mask(0, 1) == 10, "another engine's workers are added");
}

Test(spaces, a_full_list_is_told_and_the_known_ones_still_open, .init = begin)
{
    for (int s = 0; s < (int)SPW_SPACES_MAX; s++) {
        snprintf(record.fingerprint, sizeof record.fingerprint, "model %d", s);
        cr_assert_eq(open_space(), s);
    }
    strcpy(record.fingerprint, "one too many");
    refused(-ENOSPC, "64 spaces");
    strcpy(record.fingerprint, "model 63");
    cr_expect_eq(open_space(), 63);
}

/* ---- those of a pool before ------------------------------------------------------------------ */

static struct spw_ctl next_ctl;

static int keep(uint32_t s)
{
    text[0] = 0;
    return spw_spaces_keep(&next_ctl, &geometry, s, &ctl.space[s], text, sizeof text);
}

/* Three spaces, the middle one with further workers. */
static void begin_with_three(void)
{
    begin();
    memset(&next_ctl, 0, sizeof next_ctl);
    for (int s = 0; s < 3; s++) {
        snprintf(record.fingerprint, sizeof record.fingerprint, "model %d", s);
        cr_assert_eq(open_space(), s);
    }
    strcpy(record.fingerprint, "model 1");
    rank_worker[0] = 2;
    rank_worker[1] = 3;
    cr_assert_eq(open_space(), 1);
}

Test(spaces, kept_ones_have_their_place_record_and_workers_again, .init = begin_with_three)
{
    cr_assert_eq(keep(1), 0, "%s", text);
    cr_expect_eq(memcmp(&next_ctl.space[1], &ctl.space[1], sizeof ctl.space[1]), 0);
    ctl = next_ctl;
    cr_expect_eq(open_space(), 1, "its fingerprint means it, although place 0 is free");
    strcpy(record.fingerprint, "model 2");
    cr_expect_eq(open_space(), 0, "a new one takes the first free place");
    strcpy(record.fingerprint, "model 1");
    cr_expect_eq(open_space(), 1);
    strcpy(record.fingerprint, "model 3");
    cr_expect_eq(open_space(), 2);
    memset(&next_ctl, 0, sizeof next_ctl);
    cr_expect_eq(keep(1), 0, "and can be kept once more");
}

/* Whatever bit of the record, its seal or its mark was turned. */
Test(spaces, sm8_a_damaged_one_is_not_kept, .init = begin_with_three)
{
    static struct spw_space_slot whole;
    whole = ctl.space[1];
    const size_t start = offsetof(struct spw_space_slot, record);
    for (size_t bit = 0; bit < 8 * sizeof(struct spw_space_record); bit++) {
        uint8_t *byte = (uint8_t *)&ctl.space[1] + start + bit / 8;
        *byte ^= (uint8_t)(1 << bit % 8);
        cr_assert_eq(keep(1), -EBADMSG, "bit %zu", bit);
        cr_assert(text[0]);
        *byte ^= (uint8_t)(1 << bit % 8);
    }
    ctl.space[1].seal ^= 1;
    cr_expect_eq(keep(1), -EBADMSG);
    ctl.space[1] = whole;
    spw_store_relaxed(&ctl.space[1].ready, 2);
    cr_expect_eq(keep(1), -EBADMSG);
    ctl.space[1] = whole;
    for (uint32_t s = 0; s < 3; s++)
        cr_expect_eq(spw_load_relaxed(&next_ctl.space[s].ready), 0);
    cr_expect_eq(keep(1), 0);
}

Test(spaces, sm8_workers_that_cant_be_are_not_kept, .init = begin_with_three)
{
    static const uint64_t bad[][3] = {
        {1, 1, 0},        /* one worker for two ranks */
        {1, 2, 4},        /* a third rank             */
        {1, 0, 0},        /* no worker for a rank     */
        {1, 1ull << 4, 0} /* there are four workers   */
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        for (uint32_t r = 0; r < 3; r++)
            spw_store_relaxed(&ctl.space[2].rank_workers[r], bad[i][r]);
        cr_expect_eq(keep(2), -EBADMSG, "case %zu", i);
        cr_expect(strstr(text, "ranks"), "%s", text);
    }
    ctl.space[2] = ctl.space[0];
    cr_expect_eq(keep(0), 0);
    cr_expect_eq(keep(2), -EBADMSG, "the same fingerprint twice");
    cr_expect(strstr(text, "fingerprint"), "%s", text);
}

/* ---- shares ---------------------------------------------------------------------------------- */

static uint64_t shares_of(uint32_t space)
{
    return spw_load_relaxed(&ctl.space[space].shares);
}

Test(spaces, shares_out_of_range_are_refused_by_name, .init = begin)
{
    shares = SPW_SHARES(1001, 0);
    refused(-EINVAL, "guaranteed_permille is 1001, must be 0 to 1000");
    shares = SPW_SHARES(0, 1001);
    refused(-EINVAL, "largest_permille is 1001, must be 0 to 1000");
    shares = SPW_SHARES(301, 300);
    refused(-EINVAL, "guaranteed_permille is 301, must be 0 to 300");
    shares = SPW_SHARES(UINT32_MAX, UINT32_MAX);
    refused(-EINVAL, "largest_permille is 4294967295");
    cr_expect_eq(spw_load_relaxed(&ctl.space[0].ready), 0);
}

Test(spaces, who_says_shares_last_says_them_for_all, .init = begin)
{
    shares = SPW_SHARES(300, 0);
    cr_assert_eq(open_space(), 0);
    cr_expect_eq(shares_of(0), SPW_SHARES(300, 0));
    shares = 0;
    cr_assert_eq(open_space(), 0);
    cr_expect_eq(shares_of(0), SPW_SHARES(300, 0), "as they are");
    shares = SPW_SHARES(0, 1000);
    cr_assert_eq(open_space(), 0);
    cr_expect_eq(shares_of(0), SPW_SHARES(0, 1000));
}

Test(spaces, no_more_than_all_is_promised, .init = begin)
{
    shares = SPW_SHARES(600, 0);
    cr_assert_eq(open_space(), 0);
    strcpy(record.fingerprint, "another model");
    shares = SPW_SHARES(401, 0);
    refused(-ENOSPC, "guaranteed_permille is 401, but others are promised 600 of 1000");
    shares = SPW_SHARES(400, 0);
    cr_assert_eq(open_space(), 1);
    strcpy(record.fingerprint, "a model");
    shares = SPW_SHARES(601, 0);
    refused(-ENOSPC, "guaranteed_permille is 601, but others are promised 400 of 1000");
    cr_expect_eq(shares_of(0), SPW_SHARES(600, 0));
    strcpy(record.fingerprint, "a third");
    shares = SPW_SHARES(0, 100);
    cr_assert_eq(open_space(), 2, "who asks for nothing is let in");
}

Test(spaces, what_is_promised_counts_where_it_is_kept, .init = begin)
{
    shares = SPW_SHARES(600, 0);
    cr_assert_eq(open_space(), 0);
    strcpy(record.fingerprint, "on others");
    rank_worker[0] = 2;
    rank_worker[1] = 3;
    cr_assert_eq(open_space(), 1, "%s", text);
    strcpy(record.fingerprint, "on both");
    rank_worker[0] = 1;
    rank_worker[1] = 2;
    shares = SPW_SHARES(401, 0);
    refused(-ENOSPC, "guaranteed_permille is 401, but others are promised 600 of 1000 of worker 1");
    strcpy(record.fingerprint, "on others");
    rank_worker[0] = 0;
    rank_worker[1] = 3;
    shares = 0;
    refused(-ENOSPC, "guaranteed_permille is 600, but others are promised 600 of 1000 of worker 0");
    cr_expect_eq(mask(1, 0), 1ull << 2, "it has no more workers than before");
    shares = SPW_SHARES(400, 0);
    cr_expect_eq(open_space(), 1, "%s", text);
}

static int set_shares(const char *fingerprint, uint32_t set, uint64_t to)
{
    struct spw_shares_mail asked = {.shares = to, .set = set};
    strcpy(asked.fingerprint, fingerprint);
    text[0] = 0;
    return spw_spaces_share(&ctl, &asked, text, sizeof text);
}

Test(spaces, shares_of_a_space_can_be_set_one_by_one_and_taken_back, .init = begin)
{
    const uint32_t both = SPW_SET_GUARANTEED | SPW_SET_LARGEST;
    cr_assert_eq(open_space(), 0);
    cr_expect_eq(set_shares("a model", SPW_SET_LARGEST, SPW_SHARES(900, 400)), 0);
    cr_expect_eq(shares_of(0), SPW_SHARES(0, 400));
    cr_expect_eq(set_shares("a model", SPW_SET_GUARANTEED, SPW_SHARES(300, 7)), 0);
    cr_expect_eq(shares_of(0), SPW_SHARES(300, 400));
    cr_expect_eq(set_shares("a model", SPW_SET_GUARANTEED, SPW_SHARES(401, 0)), -EINVAL);
    cr_expect(strstr(text, "guaranteed_permille is 401, must be 0 to 400"), "%s", text);
    cr_expect_eq(set_shares("another", both, SPW_SHARES(1, 1)), -ESRCH);
    cr_expect(strstr(text, "no space of that fingerprint"), "%s", text);
    strcpy(record.fingerprint, "another");
    cr_assert_eq(open_space(), 1);
    cr_expect_eq(set_shares("another", both, SPW_SHARES(701, 0)), -ENOSPC);
    cr_expect_eq(set_shares("a model", SPW_SET_GUARANTEED, 0), 0);
    cr_expect_eq(shares_of(0), SPW_SHARES(0, 400));
    cr_expect_eq(set_shares("another", both, SPW_SHARES(701, 0)), 1);
    cr_expect_eq(shares_of(1), SPW_SHARES(701, 0));
    struct spw_shares_mail endless = {.set = both};
    memset(endless.fingerprint, 'x', sizeof endless.fingerprint);
    cr_expect_eq(spw_spaces_share(&ctl, &endless, text, sizeof text), -ESRCH);
}

Test(spaces, a_warm_start_keeps_shares_that_can_be, .init = begin)
{
    struct spw_space_slot old[3];
    for (uint32_t s = 0; s < 3; s++) {
        snprintf(record.fingerprint, sizeof record.fingerprint, "model %u", s);
        cr_assert_eq(open_space(), (int)s);
        memcpy(&old[s], &ctl.space[s], sizeof old[s]);
    }
    memset(&ctl, 0, sizeof ctl);
    spw_store_relaxed(&old[0].shares, SPW_SHARES(700, 900));
    spw_store_relaxed(&old[1].shares, SPW_SHARES(2000, 0));
    spw_store_relaxed(&old[2].shares, SPW_SHARES(301, 0));
    for (uint32_t s = 0; s < 3; s++)
        cr_assert_eq(spw_spaces_keep(&ctl, &geometry, s, &old[s], text, sizeof text), 0, "%s",
                     text);
    cr_expect_eq(shares_of(0), SPW_SHARES(700, 900));
    cr_expect_eq(shares_of(1), 0, "out of range");
    cr_expect_eq(shares_of(2), 0, "promised to another one");
}
