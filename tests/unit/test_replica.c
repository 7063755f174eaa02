/* The replica against a plain list, at sizes where buckets overflow all the time. */
#include "sched/replica.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

TestSuite(replica, .timeout = 20);

#define TAGS_MAX 512u

/* What the replica should hold. */
static uint64_t tag[TAGS_MAX], word[TAGS_MAX];
static struct spw_replica replica;

static uint64_t random_word(void)
{
    static uint64_t x = 88172645463325252ull;
    x ^= x << 13;
    x ^= x >> 7;
    return x ^= x << 17;
}

/* Tags that share a few homes: their high bits come from a small set. */
static void make_tags(uint32_t count, uint64_t homes)
{
    for (uint32_t i = 0; i < count; i++)
        tag[i] = (random_word() % homes) << 56 | (random_word() >> 8 << 1) | 1;
}

static uint64_t held(uint32_t count)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < count; i++)
        n += word[i] != 0;
    return n;
}

static void check_all(uint32_t count)
{
    uint64_t got[TAGS_MAX];
    spw_replica_probe(&replica, tag, count, got);
    for (uint32_t i = 0; i < count; i++) {
        cr_assert_eq(got[i], word[i], "tag %u", i);
        cr_assert_eq(spw_replica_get(&replica, tag[i]), word[i]);
    }
    cr_assert_eq(replica.tags, held(count));
}

static void set_randomly(uint32_t count, uint32_t workers)
{
    uint32_t i = (uint32_t)(random_word() % count), k = (uint32_t)(random_word() % workers);
    uint64_t state = random_word() % 4;
    int rc = spw_replica_set(&replica, tag[i], k, (enum spw_replica_state)state);
    if (rc == -ENOSPC) {
        cr_assert(word[i] == 0 && state != 0);
        return;
    }
    cr_assert_eq((uint64_t)rc, word[i] >> 2 * k & 3);
    word[i] = (word[i] & ~(3ull << 2 * k)) | state << 2 * k;
}

static void run(uint32_t entries, uint32_t count, uint64_t homes, uint32_t rounds)
{
    cr_assert_eq(spw_replica_init(&replica, entries, -1), 0);
    memset(word, 0, sizeof(word));
    make_tags(count, homes);
    for (uint32_t round = 0; round < rounds; round++) {
        set_randomly(count, 3);
        if (round % 16 == 0)
            check_all(count);
    }
    check_all(count);
    spw_replica_fini(&replica);
}

Test(replica, equals_a_list_under_random_changes)
{
    run(64, 80, 256, 20000);
}

Test(replica, equals_a_list_when_all_tags_share_a_few_homes)
{
    run(100, 90, 3, 20000);
}

Test(replica, equals_a_list_when_it_is_as_full_as_it_gets)
{
    run(16, 200, 256, 20000);
}

Test(replica, works_with_room_for_one_entry)
{
    run(1, 20, 256, 5000);
}

Test(replica, holds_the_smallest_and_the_largest_tag)
{
    cr_assert_eq(spw_replica_init(&replica, 8, -1), 0);
    cr_expect_eq(spw_replica_get(&replica, 0), 0);
    cr_assert_eq(spw_replica_put(&replica, 0, 5), 0);
    cr_assert_eq(spw_replica_put(&replica, UINT64_MAX, 6), 0);
    cr_expect_eq(spw_replica_get(&replica, 0), 5);
    cr_expect_eq(spw_replica_get(&replica, UINT64_MAX), 6);
    cr_assert_eq(spw_replica_put(&replica, 0, 0), 0);
    cr_expect_eq(spw_replica_get(&replica, 0), 0);
    cr_expect_eq(replica.tags, 1);
    spw_replica_fini(&replica);
}

Test(replica, says_that_there_is_no_room_and_keeps_what_it_has)
{
    cr_assert_eq(spw_replica_init(&replica, 4, -1), 0);
    uint64_t put = 0;
    make_tags(TAGS_MAX, 256);
    while (put < TAGS_MAX && spw_replica_put(&replica, tag[put], put + 1) == 0)
        put++;
    cr_assert(put >= 4 && put < TAGS_MAX, "%lu fit", (unsigned long)put);
    for (uint64_t i = 0; i < put; i++)
        cr_expect_eq(spw_replica_get(&replica, tag[i]), i + 1);
    cr_expect_eq(spw_replica_set(&replica, tag[put], 3, SPW_REPLICA_READY), -ENOSPC);
    cr_expect_eq(spw_replica_set(&replica, tag[put], 3, SPW_REPLICA_ABSENT), 0);
    cr_assert_eq(spw_replica_put(&replica, tag[0], 0), 0);
    cr_expect_eq(spw_replica_put(&replica, tag[0], 9), 0);
    spw_replica_fini(&replica);
}

/* Sweep worker 1 in pieces, while the other workers' bits go on changing: none of its bits may
 * escape by being moved, none of the others may be lost. */
static void sweep_in_pieces(uint32_t count, uint64_t homes, uint64_t piece)
{
    uint64_t next = replica.buckets;
    memset(word, 0, sizeof(word));
    make_tags(count, homes);
    for (uint32_t i = 0; i < 4 * count; i++)
        set_randomly(count, 3);
    while (next > 0) {
        spw_replica_sweep(&replica, 3ull << 2, piece, &next);
        for (uint32_t n = 0; n < 4; n++) {
            uint32_t i = (uint32_t)(random_word() % count), k = random_word() % 2 ? 0 : 2;
            uint64_t state = random_word() % 4;
            if (spw_replica_set(&replica, tag[i], k, (enum spw_replica_state)state) >= 0)
                word[i] = (word[i] & ~(3ull << 2 * k)) | state << 2 * k;
        }
    }
    for (uint32_t i = 0; i < count; i++)
        word[i] &= ~(3ull << 2);
    check_all(count);
    for (uint32_t i = 0; i < count; i++)
        spw_replica_put(&replica, tag[i], 0);
    cr_assert_eq(replica.tags, 0);
}

Test(replica, a_sweep_in_pieces_meets_every_entry)
{
    cr_assert_eq(spw_replica_init(&replica, 120, -1), 0);
    for (uint32_t round = 0; round < 200; round++)
        sweep_in_pieces(100, round % 2 ? 256 : 3, 1 + round % 7);
    spw_replica_fini(&replica);
}

Test(replica, takes_at_most_40_bytes_an_entry)
{
    cr_assert_eq(spw_replica_init(&replica, 1u << 20, -1), 0);
    cr_expect_leq(replica.bytes, 40ull << 20);
    spw_replica_fini(&replica);
    cr_expect_eq(spw_replica_init(&replica, 1ull << 41, -1), -EINVAL);
}
