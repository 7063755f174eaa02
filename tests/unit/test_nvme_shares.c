/* tier/nvme: what a space is promised stays, what it has beyond its largest share goes first. */
#include <criterion/criterion.h>
#include <stdio.h>

#include "tests/support/env.h"
#include "tests/support/nvme_rig.h"
#include "tests/unit/nvme_balance.h"

TestSuite(nvme_shares, .timeout = 120);

#define CAP   (1u << 20)
#define SMALL 4096u
#define BIG   60000u
#define BATCH 9u /* a space that puts without end */

static struct nvme_rig rig;

static void share(uint32_t space, uint32_t guaranteed, uint32_t largest)
{
    const uint64_t name[2] = {0x5057, space};
    const struct spw_share told = {guaranteed, largest};
    rig.cold.ops->share(rig.cold.cold, name, &told);
}

static uint64_t chunk(uint32_t space, uint32_t i)
{
    return (uint64_t)space << 32 | i;
}

static void put(uint32_t space, uint32_t from, uint32_t count, uint64_t bytes)
{
    for (uint32_t i = from; i < from + count; i++)
        cr_assert_eq(nvme_rig_put(&rig, chunk(space, i), bytes), 0, "space %u, %u", space, i);
}

/* So many of @space's chunks are there. */
static uint32_t have(uint32_t space)
{
    uint32_t count = 0;
    for (uint32_t id = 0; id < rig.options.ids; id++)
        count += rig.holds[id] != 0 && (rig.holds[id] - 1) >> 32 == space;
    return count;
}

static void whole(uint32_t space, uint32_t from, uint32_t count, uint64_t bytes)
{
    for (uint32_t i = from; i < from + count; i++)
        cr_assert_eq(nvme_rig_get(&rig, chunk(space, i), bytes), 0, "space %u, %u", space, i);
}

/* What is guaranteed in so many cells is there, and at most a segment more. */
static bool keeps(uint32_t space, uint32_t cells)
{
    uint32_t count = have(space);
    return cells <= count && count < cells + cells / 8 + 1;
}

static void end(void)
{
    nvme_rig_quiet(&rig, 0);
    nvme_balance(&rig);
    cr_expect(rig.wrong == 0);
    cr_expect(nvme_rig_gauge(&rig).entries == nvme_rig_held(&rig));
    cr_expect(nvme_rig_close(&rig) == 0);
    nvme_rig_fini(&rig);
}

static void start(void)
{
    nvme_rig_start(&rig, &(struct nvme_rig_options){.cap_bytes = CAP});
}

/* ---- one size -------------------------------------------------------------------------------- */

Test(nvme_shares, what_is_guaranteed_outlasts_a_space_that_puts_without_end)
{
    start();
    share(1, 300, 0); /* 72 cells of what the cap leaves */
    put(1, 0, 72, SMALL);
    put(BATCH, 0, 1000, SMALL);
    whole(1, 0, 72, SMALL);
    cr_expect(have(BATCH) > 100);
    end();
}

Test(nvme_shares, what_is_beyond_a_guarantee_goes_by_age)
{
    start();
    share(1, 300, 0);
    put(1, 0, 100, SMALL);
    put(BATCH, 0, 600, SMALL);
    cr_expect(keeps(1, 72), "%u", have(1));
    whole(1, 28, 72, SMALL);
    end();
}

Test(nvme_shares, all_may_be_taken_while_nobody_else_wants_it)
{
    start();
    share(1, 0, 200);
    put(1, 0, 500, SMALL);
    cr_expect(have(1) >= 180, "%u", have(1));
    whole(1, 500 - have(1), have(1), SMALL);
    end();
}

Test(nvme_shares, what_is_beyond_the_largest_goes_first_for_another_one)
{
    start();
    share(1, 0, 200); /* 48 cells */
    put(BATCH, 0, 40, SMALL);
    put(1, 0, 500, SMALL);
    cr_expect_eq(have(BATCH), 40, "its own went, though the others are older");
    uint32_t had = have(1);
    put(2, 0, had - 48, SMALL);
    cr_expect_eq(have(1), 48);
    cr_expect_eq(have(BATCH), 40);
    whole(1, 452, 48, SMALL);
    put(1, 500, 10, SMALL);
    cr_expect_eq(have(1), 48, "beyond it, its own make room");
    put(2, 1000, 10, SMALL);
    cr_expect_eq(have(BATCH), 30, "what nobody has too much of goes by age");
    end();
}

Test(nvme_shares, who_grows_into_a_guarantee_takes_from_others)
{
    start();
    put(1, 0, 10, SMALL);
    put(BATCH, 0, 500, SMALL);
    cr_expect_eq(have(1), 0, "nothing was promised");
    share(1, 300, 0);
    put(1, 0, 10, SMALL);
    put(BATCH, 1000, have(BATCH), SMALL); /* now those of 1 are the oldest */
    put(1, 10, 62, SMALL);
    cr_expect_eq(have(1), 72, "none of its own went");
    cr_expect(have(BATCH) > 80);
    put(1, 72, 300, SMALL);
    cr_expect(have(1) > 72, "beyond it age decides");
    end();
}

Test(nvme_shares, others_get_a_definite_no_where_all_is_promised)
{
    int rc;
    start();
    share(1, 1000, 0);
    put(1, 0, 500, SMALL);
    uint32_t all = have(1);
    cr_assert(all > 150);
    nvme_rig_quiet(&rig, 0);
    cr_expect(!nvme_rig_put_begin(&rig, chunk(BATCH, 0), SMALL, &rc));
    cr_expect_eq(rc, -EDQUOT);
    cr_expect_eq(nvme_rig_put(&rig, chunk(BATCH, 0), BIG), -EDQUOT, "nor a segment's room");
    cr_expect_eq(have(1), all);
    put(1, 500, 50, SMALL);
    cr_expect_eq(have(1), all);
    for (uint32_t i = 0; i < 50; i++) /* a segment, at least, that is used for nothing */
        nvme_rig_drop(&rig, chunk(1, 500 + i));
    nvme_rig_quiet(&rig, 0);
    put(BATCH, 0, 1, SMALL);
    cr_expect_eq(nvme_rig_put(&rig, chunk(BATCH, 1), SMALL), 0, "it has one of its own");
    cr_expect(have(BATCH) > 0);
    end();
}

Test(nvme_shares, ids_are_shared_as_cells_are)
{
    int rc;
    nvme_rig_start(&rig, &(struct nvme_rig_options){.ids = 50});
    share(1, 900, 0);
    put(1, 0, 60, SMALL);
    nvme_rig_quiet(&rig, 0);
    cr_expect_eq(nvme_rig_put(&rig, chunk(BATCH, 0), SMALL), -EDQUOT);
    cr_expect_eq(nvme_rig_put(&rig, chunk(BATCH, 0), BIG), -EDQUOT);
    put(1, 60, 10, SMALL);
    nvme_rig_drop(&rig, chunk(1, 60));
    nvme_rig_quiet(&rig, 0);
    put(BATCH, 0, 1, BIG);
    put(BATCH, 1, 1, SMALL);
    cr_expect_eq(have(1), 49);
    cr_expect_eq(have(BATCH), 1, "of another size, but its own");
    fault_io_rule(rig.fault, (struct fault_io_rule){.kind = FAULT_IO_HANG, .op = SPW_IO_READ});
    struct nvme_job *job = nvme_rig_get_begin(&rig, chunk(BATCH, 1), SMALL, &rc);
    cr_assert(job);
    cr_expect(!nvme_rig_put_begin(&rig, chunk(BATCH, 2), SMALL, &rc));
    cr_expect_eq(rc, -EAGAIN, "%d: it may go once it is read", rc);
    fault_io_clear(rig.fault);
    fault_io_release(rig.fault);
    cr_expect_eq(nvme_rig_end(&rig, job), 0);
    end();
}

Test(nvme_shares, other_shares_count_at_once)
{
    start();
    share(1, 300, 0);
    put(1, 0, 72, SMALL);
    put(BATCH, 0, 500, SMALL);
    cr_expect_eq(have(1), 72);
    share(1, 100, 0); /* 24 */
    put(BATCH, 500, 300, SMALL);
    cr_expect(have(1) >= 24 && have(1) < 24 + 9, "%u: to a segment of before", have(1));
    share(BATCH, 0, 100);
    uint32_t had = have(1);
    put(2, 0, have(BATCH) - 24, SMALL);
    cr_expect_eq(have(1), had);
    cr_expect_eq(have(BATCH), 24);
    share(1, 0, 0);
    put(2, 300, 300, SMALL);
    cr_expect_eq(have(1), 0);
    end();
}

Test(nvme_shares, what_is_being_read_or_written_may_be_waited_for)
{
    int rc;
    start();
    share(1, 1000, 0);
    put(BATCH, 0, 1, BIG);
    put(1, 0, 500, SMALL);
    cr_assert_eq(have(BATCH), 0, "it isn't promised");
    for (uint32_t i = 0; i < 27; i++) /* one segment, and not a second one */
        nvme_rig_drop(&rig, chunk(1, 473 + i));
    nvme_rig_quiet(&rig, 0);
    put(BATCH, 0, 1, BIG);
    nvme_rig_drop(&rig, chunk(BATCH, 0));
    nvme_rig_quiet(&rig, 0);
    fault_io_rule(rig.fault, (struct fault_io_rule){.kind = FAULT_IO_HANG, .op = SPW_IO_WRITE});
    struct nvme_job *job = nvme_rig_put_begin(&rig, chunk(BATCH, 1), BIG, &rc);
    cr_assert(job);
    cr_expect(!nvme_rig_put_begin(&rig, chunk(BATCH, 2), BIG, &rc));
    cr_expect_eq(rc, -EAGAIN, "%d: its own is on its way", rc);
    cr_expect(!nvme_rig_put_begin(&rig, chunk(2, 2), BIG, &rc));
    cr_expect_eq(rc, -EAGAIN, "%d: so is one that isn't promised", rc);
    share(BATCH, 100, 0);
    nvme_balance(&rig);
    cr_expect(!nvme_rig_put_begin(&rig, chunk(2, 2), BIG, &rc));
    cr_expect_eq(rc, -EDQUOT, "%d: now it is", rc);
    fault_io_clear(rig.fault);
    fault_io_release(rig.fault);
    cr_expect_eq(nvme_rig_end(&rig, job), 0);
    cr_expect_eq(nvme_rig_get(&rig, chunk(BATCH, 1), BIG), 0);
    end();
}

Test(nvme_shares, who_reads_what_is_promised_makes_nobody_wait)
{
    int rc;
    nvme_rig_start(&rig, &(struct nvme_rig_options){.cap_bytes = 256 << 10, .reads = 64});
    share(1, 1000, 0);
    put(1, 0, 100, SMALL);
    nvme_rig_quiet(&rig, 0);
    fault_io_rule(rig.fault, (struct fault_io_rule){.kind = FAULT_IO_HANG, .op = SPW_IO_READ});
    struct nvme_job *job[64];
    uint32_t jobs = 0, all = have(1);
    for (; jobs < all; jobs++)
        cr_assert(job[jobs] = nvme_rig_get_begin(&rig, chunk(1, 100 - all + jobs), SMALL, &rc));
    cr_expect(!nvme_rig_put_begin(&rig, chunk(BATCH, 0), SMALL, &rc));
    cr_expect_eq(rc, -EDQUOT);
    cr_expect(!nvme_rig_put_begin(&rig, chunk(BATCH, 0), BIG, &rc));
    cr_expect_eq(rc, -EDQUOT);
    cr_expect(!nvme_rig_put_begin(&rig, chunk(1, 100), SMALL, &rc));
    cr_expect_eq(rc, -EAGAIN, "its own may go once they are read");
    fault_io_clear(rig.fault);
    fault_io_release(rig.fault);
    for (uint32_t i = 0; i < jobs; i++)
        cr_expect_eq(nvme_rig_end(&rig, job[i]), 0);
    put(1, 100, 1, SMALL);
    end();
}

/* ---- another open ---------------------------------------------------------------------------- */

/* Spaces 1 and 2 in turn, 1 told a share that it is beyond from its first chunk on; then the medium
 * as another process finds it. */
static void find_two_in_turn(bool told_before)
{
    start();
    for (uint32_t i = 0; i < 60; i++) {
        put(1, i, 1, SMALL);
        put(2, i, 1, SMALL);
    }
    cr_assert_eq(nvme_rig_close(&rig), 0);
    nvme_rig_again(&rig);
    if (told_before)
        share(1, 0, 1);
    nvme_rig_until(&rig, SPW_TIER_UP);
    cr_assert_eq(rig.found, 120);
    share(1, 1, 1000); /* told again, or for the first time */
    nvme_balance(&rig);
    rig.went_count = 0;
    for (uint32_t i = 0; rig.went_count < 120; i++)
        put(BATCH, i, 1, SMALL);
    for (uint32_t i = 0; i < 120; i++)
        cr_assert_eq(rig.went[i], chunk(1 + i % 2, i / 2), "place %u", i);
    end();
}

Test(nvme_shares, those_found_later_count_at_their_age)
{
    find_two_in_turn(true);
}

Test(nvme_shares, those_found_before_count_at_their_age)
{
    find_two_in_turn(false);
}

static void keep_over_an_open(bool told_before)
{
    start();
    put(1, 0, 72, SMALL);
    put(BATCH, 0, 50, SMALL);
    cr_assert_eq(nvme_rig_close(&rig), 0);
    nvme_rig_again(&rig);
    if (told_before)
        share(1, 300, 0);
    nvme_rig_until(&rig, SPW_TIER_UP);
    share(1, 300, 0);
    put(BATCH, 100, 500, SMALL);
    whole(1, 0, 72, SMALL);
    cr_assert_eq(nvme_rig_close(&rig), 0);
    nvme_rig_again(&rig);
    nvme_rig_until(&rig, SPW_TIER_UP);
    put(BATCH, 1000, 500, SMALL);
    cr_expect_eq(have(1), 0, "it has to be told again");
    end();
}

Test(nvme_shares, what_is_found_later_is_guaranteed)
{
    keep_over_an_open(true);
}

Test(nvme_shares, what_was_found_before_is_guaranteed)
{
    keep_over_an_open(false);
}

Test(nvme_shares, a_lower_cap_takes_what_is_not_promised)
{
    nvme_rig_start(&rig, &(struct nvme_rig_options){.cap_bytes = 2 * CAP});
    share(1, 350, 0);
    put(1, 0, 72, SMALL);
    put(BATCH, 0, 300, SMALL);
    cr_assert_eq(have(1), 72);
    cr_assert_eq(nvme_rig_close(&rig), 0);
    rig.options.cap_bytes = CAP;
    nvme_rig_again(&rig);
    share(1, 350, 0);
    nvme_rig_until(&rig, SPW_TIER_UP);
    nvme_rig_quiet(&rig, 20);
    cr_expect_eq(have(1), 72);
    whole(1, 0, 72, SMALL);
    cr_expect_leq(nvme_rig_on_disk(rig.dir), CAP);
    end();
}

/* ---- two sizes ------------------------------------------------------------------------------- */

Test(nvme_shares, small_ones_that_are_guaranteed_outlast_big_ones)
{
    start();
    share(1, 300, 0);
    put(2, 0, 20, SMALL);
    put(1, 0, 72, SMALL); /* some in one segment with those of 2 */
    put(2, 20, 20, SMALL);
    put(BATCH, 0, 300, BIG);
    whole(1, 0, 72, SMALL);
    cr_expect(have(BATCH) > 3);
    put(BATCH, 1000, 300, SMALL);
    put(BATCH, 2000, 50, BIG);
    whole(1, 0, 72, SMALL);
    end();
}

Test(nvme_shares, big_ones_that_are_guaranteed_outlast_small_ones)
{
    start();
    share(1, 400, 0); /* 6 */
    put(1, 0, 6, BIG);
    put(BATCH, 0, 500, SMALL);
    put(BATCH, 1000, 50, BIG);
    put(BATCH, 2000, 500, SMALL);
    whole(1, 0, 6, BIG);
    end();
}

Test(nvme_shares, who_grows_into_a_guarantee_takes_segments_of_another_size)
{
    start();
    share(1, 300, 0);
    put(BATCH, 0, 500, SMALL);
    put(1, 0, 4, BIG);
    whole(1, 0, 4, BIG);
    put(BATCH, 1000, 500, SMALL);
    whole(1, 0, 4, BIG);
    end();
}

Test(nvme_shares, a_segment_goes_first_where_it_is_beyond_the_largest)
{
    start();
    put(2, 0, 100, SMALL);
    share(1, 0, 100);
    put(1, 0, 50, BIG);
    uint32_t had = have(1);
    put(2, 100, 25, SMALL);
    cr_expect_eq(have(2), 125, "theirs are older and of the right size");
    cr_expect(have(1) < had);
    end();
}

/* Small chunks of 1 and of a batch job in turn, then 2 comes with big ones. */
static void fill_in_turn(uint32_t guaranteed)
{
    start();
    share(1, guaranteed, 0);
    for (uint32_t i = 0; i < 300; i++) {
        put(BATCH, i, 1, SMALL);
        put(1, i, 1, SMALL);
    }
}

Test(nvme_shares, one_promised_chunk_here_and_there_keeps_nobody_of_another_size_out)
{
    fill_in_turn(300);
    put(2, 0, 20, BIG);
    cr_expect(have(2) >= 4, "%u, though nothing is promised to those of the batch job", have(2));
    cr_expect(keeps(1, 72), "%u", have(1));
    put(BATCH, 1000, 300, SMALL);
    cr_expect(have(BATCH) > 14, "%u", have(BATCH));
    cr_expect(keeps(1, 72), "%u", have(1));
    end();
}

Test(nvme_shares, two_sizes_and_two_guarantees_are_both_kept)
{
    fill_in_turn(300);
    share(2, 300, 0); /* 4 */
    for (uint32_t i = 0; i < 4; i++)
        put(2, i, 1, BIG);
    whole(2, 0, 4, BIG);
    cr_expect(have(1) >= 72, "%u", have(1));
    for (uint32_t i = 0; i < 300; i++) {
        put(BATCH, 1000 + i, 1, SMALL);
        put(3, i, 1, i % 2 ? BIG : SMALL);
    }
    whole(2, 0, 4, BIG);
    cr_expect(keeps(1, 72), "%u", have(1));
    cr_expect(have(BATCH) > 0 && have(3) > 0, "%u %u", have(BATCH), have(3));
    end();
}

Test(nvme_shares, what_was_put_before_there_was_a_guarantee_goes_with_its_segment)
{
    start();
    put(1, 0, 10, SMALL);
    put(2, 0, 4, SMALL); /* 14 a segment */
    share(1, 300, 0);
    put(BATCH, 0, 300, SMALL);
    cr_expect_eq(have(1), 10, "one by one they stay");
    put(3, 0, 20, BIG);
    cr_expect(have(3) >= 6, "but keep nobody out: %u", have(3));
    end();
}

Test(nvme_shares, the_medium_knows_whose_segments_they_are)
{
    start();
    share(1, 300, 0);
    put(BATCH, 0, 500, SMALL);
    put(1, 0, 71, SMALL);
    cr_assert_eq(nvme_rig_close(&rig), 0);
    nvme_rig_again(&rig);
    nvme_rig_until(&rig, SPW_TIER_UP);
    for (uint32_t i = 0; i < 70; i += 10)
        nvme_rig_drop(&rig, chunk(1, i));
    uint32_t before = have(1);
    cr_assert_eq(before, 64);
    put(BATCH, 500, 20, SMALL); /* before 1 is there: not into its free cells */
    share(1, 300, 0);
    cr_expect_eq(have(1), before, "by age");
    put(2, 0, 30, BIG);
    put(BATCH, 520, 100, SMALL);
    cr_expect_eq(have(1), before);
    end();
}

/* ---- many ------------------------------------------------------------------------------------ */

Test(nvme_shares, those_told_when_all_lanes_are_taken_share_one)
{
    nvme_rig_start(&rig, &(struct nvme_rig_options){.cap_bytes = 4 * CAP});
    for (uint32_t space = 200; space < 300; space++)
        share(space, 0, 0); /* takes none */
    for (uint32_t space = 100; space < 170; space++) {
        share(space, 0, 500);
        share(space, space < 163 ? 3 : 1, 0); /* 3 cells, 0; takes no other one */
        put(space, 0, 2, SMALL);
    }
    put(BATCH, 0, 2000, SMALL);
    for (uint32_t space = 100; space < 163; space++)
        whole(space, 0, 2, SMALL);
    for (uint32_t space = 163; space < 170; space++)
        cr_expect_eq(have(space), 0);
    end();
}

/* ---- a full disk ----------------------------------------------------------------------------- */

static char mount_point[SUPPORT_PATH_BYTES];

#define CHILD(what)                                                                                \
    do {                                                                                           \
        if (!(what))                                                                               \
            return __LINE__ % 250 + 1;                                                             \
    } while (0)

/* All that the disk has is promised to one space: the cap says that there is more. */
static int fill_a_small_disk(void *arg)
{
    (void)arg;
    int rc = support_private_tmpfs(mount_point, 1 << 20);
    if (rc < 0)
        return rc == -EPERM ? SUPPORT_SKIP : 250;
    nvme_rig_start(&rig, &(struct nvme_rig_options){.cap_bytes = 64 << 20, .dir = mount_point});
    share(1, 20, 0);
    for (uint32_t i = 0; i < 400; i++) {
        rc = nvme_rig_put(&rig, chunk(1, i), SMALL);
        CHILD(rc == 0 || rc == -ENOSPC);
    }
    uint32_t held = have(1);
    CHILD(held > 50);
    for (uint32_t i = 0; i < 200; i++) {
        rc = nvme_rig_put(&rig, chunk(BATCH, i), i % 2 ? SMALL : BIG);
        CHILD(rc == -EDQUOT || rc == -ENOSPC);
        rig.ahead_ns += 1000000000ull; /* now and then it looks whether the disk has more */
        nvme_rig_poll(&rig);
    }
    CHILD(rc == -EDQUOT);
    CHILD(have(1) == held);
    CHILD(nvme_rig_put(&rig, chunk(1, 1000), SMALL) == 0);
    CHILD(nvme_rig_get(&rig, chunk(1, 1000), SMALL) == 0);
    CHILD(nvme_rig_close(&rig) == 0);
    return 0;
}

Test(nvme_shares, a_full_disk_makes_nobody_wait_for_what_is_promised)
{
    cr_assert(support_shm_dir(mount_point) == 0);
    pid_t pid = support_fork(fill_a_small_disk, NULL);
    cr_assert(pid > 0);
    int status = support_wait(pid, 60000);
    support_remove_dir(mount_point);
    if (status == SUPPORT_SKIP)
        cr_skip_test("no mounts here");
    cr_expect(status == 0, "%d", status);
}
