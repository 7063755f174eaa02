/* tier/nvme_medium: what is made is recognised where it belongs, and nothing else is. */
#include "tier/nvme_medium.h"

#include <criterion/criterion.h>
#include <string.h>

#include "tier/nvme.h"

TestSuite(nvme_medium, .timeout = 30);

static const uint64_t id[2] = {0x1234, 0x5678};

static struct spw_nvme_head a_head(void)
{
    struct spw_nvme_head head = {.cell_bytes = 8192, .owner = {9, 10}, .cells = 40};
    spw_nvme_head_make(&head, 7, id);
    return head;
}

static struct spw_nvme_record a_record(const struct spw_nvme_head *head, uint32_t cell)
{
    struct spw_nvme_record record = {.space = {1, 2},
                                     .generation = 3,
                                     .sum = 4,
                                     .sequence = 5,
                                     .bytes = 5000,
                                     .group = 2,
                                     .rank = 1,
                                     .key_bytes = 11,
                                     .summed = 1};
    memcpy(record.key, "hello world", 11);
    spw_nvme_record_seal(&record, head, cell);
    return record;
}

Test(nvme_medium, a_record_is_good_in_its_own_cell_of_its_own_segment_alone)
{
    struct spw_nvme_head head = a_head(), other = a_head();
    struct spw_nvme_record record = a_record(&head, 3);
    cr_expect(spw_nvme_record_good(&record, &head, 3));
    cr_expect(!spw_nvme_record_good(&record, &head, 4));
    other.number = 8;
    cr_expect(!spw_nvme_record_good(&record, &other, 3));
    other = head;
    other.id[1]++;
    cr_expect(!spw_nvme_record_good(&record, &other, 3));
}

Test(nvme_medium, any_bit_of_a_record_that_changed_makes_it_none)
{
    struct spw_nvme_head head = a_head();
    struct spw_nvme_record record = a_record(&head, 3);
    for (uint32_t bit = 0; bit < 8 * sizeof record; bit++) {
        struct spw_nvme_record bad = record;
        ((uint8_t *)&bad)[bit / 8] ^= (uint8_t)(1 << bit % 8);
        cr_assert(!spw_nvme_record_good(&bad, &head, 3), "bit %u", bit);
    }
}

Test(nvme_medium, a_record_of_zeros_is_none)
{
    struct spw_nvme_head head = a_head();
    struct spw_nvme_record record = {0};
    cr_expect(!spw_nvme_record_good(&record, &head, 0));
}

/* Sealed all the same: by a program with a mistake, or by somebody who means harm. */
Test(nvme_medium, a_record_whose_numbers_make_no_sense_is_none)
{
    struct spw_nvme_head head = a_head();
    struct spw_nvme_record bad[6];
    for (uint32_t i = 0; i < 6; i++)
        bad[i] = a_record(&head, 0);
    bad[0].bytes = 0;
    bad[1].bytes = 8193;
    bad[2].key_bytes = 0;
    bad[3].key_bytes = SPW_KEY_BYTES_MAX + 1;
    bad[4].group = SPW_GROUP_COUNT_MAX;
    bad[5].rank = SPW_RANKS_MAX;
    for (uint32_t i = 0; i < 6; i++) {
        spw_nvme_record_seal(&bad[i], &head, 0);
        cr_expect(!spw_nvme_record_good(&bad[i], &head, 0), "number %u", i);
    }
}

Test(nvme_medium, a_record_gives_its_name_back)
{
    struct spw_nvme_head head = a_head();
    struct spw_nvme_record record = a_record(&head, 3);
    struct spw_cold_name name;
    spw_nvme_record_name(&record, &name);
    cr_expect(name.space[0] == 1 && name.space[1] == 2 && name.group == 2 && name.rank == 1);
    cr_expect(name.key_bytes == 11 && memcmp(name.key, "hello world", 11) == 0);
    for (uint32_t i = 11; i < SPW_KEY_BYTES_MAX; i++)
        cr_expect(name.key[i] == 0);
}

Test(nvme_medium, a_head_goes_with_its_number_and_a_file_that_is_large_enough)
{
    struct spw_nvme_head head = a_head();
    uint64_t bytes = spw_nvme_segment_bytes(8192, 40);
    cr_expect(spw_nvme_head_check(&head, 7, bytes) == 0);
    cr_expect(spw_nvme_head_check(&head, 8, bytes) == -EBADMSG);
    cr_expect(spw_nvme_head_check(&head, 7, bytes - 1) == -EBADMSG);
    cr_expect(spw_nvme_head_check(&head, 7, 0) == -EBADMSG);
    for (uint32_t bit = 0; bit < 8 * 72; bit++) {
        struct spw_nvme_head bad = head;
        ((uint8_t *)&bad)[bit / 8] ^= (uint8_t)(1 << bit % 8);
        cr_assert(spw_nvme_head_check(&bad, 7, bytes) == -EBADMSG, "bit %u", bit);
    }
}

Test(nvme_medium, sizes_that_overflow_or_are_none_are_refused)
{
    const struct {
        uint64_t cell_bytes;
        uint32_t cells;
    } bad[] = {{0, 1},
               {4096, 0},
               {100, 1},
               {1ull << 63, 2},
               {UINT64_MAX - 4095, 1},
               {4096, SPW_NVME_CELLS_MAX + 1},
               {4096, UINT32_MAX}};
    for (uint32_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct spw_nvme_head head = {.cell_bytes = bad[i].cell_bytes, .cells = bad[i].cells};
        spw_nvme_head_make(&head, 7, id);
        cr_expect(spw_nvme_head_check(&head, 7, 1ull << 40) == -EBADMSG, "%u", i);
    }
}

Test(nvme_medium, segments_fit_their_share_of_the_cap_or_hold_one_cell)
{
    for (uint64_t cap = SPW_NVME_CAP_MIN; cap <= 1ull << 40; cap *= 4)
        for (uint64_t cell = 4096; cell <= 16u << 20; cell *= 2) {
            uint32_t cells = spw_nvme_cells(cell, cap);
            uint64_t bytes = spw_nvme_segment_bytes(cell, cells);
            cr_assert(cells >= 1 && cells <= SPW_NVME_CELLS_MAX);
            cr_assert(cells == 1 || (bytes <= cap / 16 && bytes <= SPW_NVME_SEGMENT_MAX));
        }
}

Test(nvme_medium, of_two_copies_of_resets_the_later_good_one_counts)
{
    struct spw_nvme_spaces copy[2] = {{.sequence = 4, .count = 1}, {.sequence = 5, .count = 2}};
    cr_expect(spw_nvme_spaces_choose(copy) == NULL);
    spw_nvme_spaces_seal(&copy[0]);
    cr_expect(spw_nvme_spaces_choose(copy) == &copy[0]);
    spw_nvme_spaces_seal(&copy[1]);
    cr_expect(spw_nvme_spaces_choose(copy) == &copy[1]);
    copy[0].sequence = 6;
    spw_nvme_spaces_seal(&copy[0]);
    cr_expect(spw_nvme_spaces_choose(copy) == &copy[0]);
    copy[0].space[3].generation++; /* half written */
    cr_expect(spw_nvme_spaces_choose(copy) == &copy[1]);
    copy[1].count = SPW_NVME_SPACES + 1;
    spw_nvme_spaces_seal(&copy[1]);
    cr_expect(spw_nvme_spaces_choose(copy) == NULL);
}
