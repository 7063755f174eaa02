/* tier/nvme: resets of spaces in every state of the directory, and a directory that doesn't answer. */
#include <criterion/criterion.h>
#include <signal.h>
#include <unistd.h>

#include "tests/support/env.h"
#include "tests/support/nvme_rig.h"
#include "tier/nvme_medium.h"

TestSuite(nvme_resets, .timeout = 60);

#define SECOND 1000000000ull
#define SPACE  5u

static struct nvme_rig rig;
static char dir[SUPPORT_PATH_BYTES];

static uint64_t chunk(uint64_t n)
{
    return (uint64_t)SPACE << 32 | n;
}

static int begin_reset(void)
{
    const uint64_t name[2] = {0x5057, SPACE};
    return rig.cold.ops->reset(rig.cold.cold, name, NULL);
}

static void hang(int op)
{
    fault_io_rule(rig.fault, (struct fault_io_rule){.kind = FAULT_IO_HANG, .op = op});
}

static void let_go(void)
{
    fault_io_clear(rig.fault);
    fault_io_release(rig.fault);
}

/* Poll until the events of @count resets came. */
static void await_resets(uint32_t count)
{
    for (uint32_t i = 0; i < 100000 && rig.resets < count; i++) {
        nvme_rig_poll(&rig);
        usleep(50);
    }
    cr_assert_eq(rig.resets, count);
}

/* A directory where the space was reset once, and has chunks since. */
static void make(void)
{
    cr_assert_eq(support_shm_dir(dir), 0);
    nvme_rig_start(&rig, &(struct nvme_rig_options){.dir = dir});
    cr_assert_eq(nvme_rig_put(&rig, chunk(1), 4096), 0);
    cr_assert_eq(nvme_rig_reset(&rig, SPACE), 0);
    for (uint64_t n = 2; n < 6; n++)
        cr_assert_eq(nvme_rig_put(&rig, chunk(n), 4096), 0);
    cr_assert_eq(nvme_rig_put(&rig, 9, 4096), 0);
    cr_assert_eq(nvme_rig_close(&rig), 0);
}

static void end(void)
{
    nvme_rig_quiet(&rig, 0);
    cr_expect_eq(rig.wrong, 0);
    cr_expect_eq(nvme_rig_close(&rig), 0);
    nvme_rig_fini(&rig);
    support_remove_dir(dir);
}

static void expect_only_the_other(void)
{
    cr_expect_eq(nvme_rig_gauge(&rig).entries, 1);
    cr_expect_eq(nvme_rig_get(&rig, 9, 4096), 0);
    for (uint64_t n = 1; n < 6; n++)
        cr_expect_eq(nvme_rig_get(&rig, chunk(n), 4096), -ENOENT);
}

Test(nvme_resets, one_while_the_directory_is_being_opened_counts_from_what_that_says, .init = make)
{
    nvme_rig_again(&rig);
    hang(SPW_IO_CALL);
    nvme_rig_poll(&rig); /* begins to open it */
    uint32_t before = rig.resets;
    cr_assert_eq(begin_reset(), 0);
    let_go();
    nvme_rig_until(&rig, SPW_TIER_UP);
    await_resets(before + 1);
    cr_expect_eq(rig.reset_status, 0);
    expect_only_the_other();
    cr_assert_eq(nvme_rig_put(&rig, chunk(7), 4096), 0);
    cr_assert_eq(nvme_rig_close(&rig), 0);
    nvme_rig_start(&rig, &(struct nvme_rig_options){.dir = dir});
    cr_expect_eq(rig.found, 2, "that of after the reset is there");
    end();
}

static void expect_empty(void)
{
    cr_expect_eq(nvme_rig_gauge(&rig).entries, 0);
    cr_expect_eq(nvme_rig_get(&rig, 9, 4096), -ENOENT);
    for (uint64_t n = 1; n < 6; n++)
        cr_expect_eq(nvme_rig_get(&rig, chunk(n), 4096), -ENOENT);
}

static void reopen(void)
{
    nvme_rig_quiet(&rig, 0);
    cr_assert_eq(nvme_rig_close(&rig), 0);
    nvme_rig_start(&rig, &(struct nvme_rig_options){.dir = dir});
}

Test(nvme_resets, one_of_all_reaches_every_space_that_has_chunks, .init = make)
{
    nvme_rig_start(&rig, &(struct nvme_rig_options){.dir = dir});
    cr_assert_eq(nvme_rig_reset_all(&rig), 0);
    expect_empty();
    cr_assert_eq(nvme_rig_put(&rig, 9, 4096), 0);
    cr_assert_eq(nvme_rig_put(&rig, chunk(7), 4096), 0);
    reopen();
    cr_expect_eq(rig.found, 2,
                 "those of after the reset, of a space with a number and one without");
    cr_assert_eq(nvme_rig_reset(&rig, SPACE), 0, "both kinds of resets count");
    cr_expect_eq(nvme_rig_get(&rig, chunk(7), 4096), -ENOENT);
    cr_expect_eq(nvme_rig_get(&rig, 9, 4096), 0);
    reopen();
    cr_expect_eq(rig.found, 1);
    end();
}

Test(nvme_resets, one_of_all_needs_no_place_for_another_space, .init = make)
{
    nvme_rig_start(&rig, &(struct nvme_rig_options){.dir = dir});
    for (uint32_t space = 100; space < 100 + SPW_NVME_SPACES - 1; space++)
        cr_assert_eq(nvme_rig_reset(&rig, space), 0);
    cr_assert_eq(nvme_rig_reset(&rig, 1000), -EIO, "there is room for no other");
    cr_assert_eq(nvme_rig_reset_all(&rig), 0);
    reopen();
    expect_empty();
    end();
}

Test(nvme_resets, one_of_all_while_the_directory_is_being_opened_reaches_what_was_not_found_yet,
     .init = make)
{
    nvme_rig_again(&rig);
    hang(SPW_IO_CALL);
    nvme_rig_poll(&rig); /* begins to open it */
    uint32_t before = rig.resets;
    cr_assert_eq(rig.cold.ops->reset(rig.cold.cold, NULL, NULL), 0);
    let_go();
    nvme_rig_until(&rig, SPW_TIER_UP);
    await_resets(before + 1);
    cr_expect_eq(rig.reset_status, 0);
    expect_empty();
    reopen();
    expect_empty();
    end();
}

Test(nvme_resets, one_of_all_while_it_is_down_is_refused_and_still_holds, .init = make)
{
    nvme_rig_again(&rig);
    cr_assert_eq(rig.cold.ops->reset(rig.cold.cold, NULL, NULL), -EIO);
    nvme_rig_until(&rig, SPW_TIER_UP);
    expect_empty();
    reopen();
    expect_empty();
    end();
}

Test(nvme_resets, one_while_it_is_down_is_refused_and_still_holds, .init = make)
{
    nvme_rig_again(&rig);
    cr_assert_eq(begin_reset(), -EIO, "nothing was opened yet");
    nvme_rig_until(&rig, SPW_TIER_UP);
    expect_only_the_other();
    nvme_rig_quiet(&rig, 0);
    cr_assert_eq(nvme_rig_close(&rig), 0);
    nvme_rig_start(&rig, &(struct nvme_rig_options){.dir = dir});
    expect_only_the_other();
    end();
}

static int write_and_die(void *arg)
{
    (void)arg;
    static struct nvme_rig child;
    nvme_rig_start(&child, &(struct nvme_rig_options){.dir = dir});
    if (nvme_rig_put(&child, chunk(8), 4096) != 0)
        return 1;
    kill(getpid(), SIGKILL);
    return 2;
}

Test(nvme_resets, a_dead_processs_writes_hold_up_no_reset, .init = make)
{
    cr_assert_eq(support_wait(support_fork(write_and_die, NULL), 20000),
                 SUPPORT_SIGNALLED + SIGKILL);
    nvme_rig_open(&rig, &(struct nvme_rig_options){.dir = dir, .quarantine_ns = 60 * SECOND});
    while (rig.found < 6)
        nvme_rig_poll(&rig);
    cr_assert_eq(nvme_rig_reset(&rig, SPACE), 0);
    cr_expect_eq(nvme_rig_gauge(&rig).state, SPW_TIER_SCANNING);
    const struct fault_io_asked *asked;
    uint32_t count = fault_io_log(rig.fault, &asked);
    bool copy[2] = {false};
    for (uint32_t i = 0; i < count; i++)
        if (asked[i].op == SPW_IO_WRITE)
            copy[asked[i].offset / 4096 % 2] = true;
    cr_expect(copy[0] && copy[1], "both copies, since a late write may undo one");
    rig.ahead_ns += 61 * SECOND;
    nvme_rig_until(&rig, SPW_TIER_UP);
    expect_only_the_other();
    end();
}

Test(nvme_resets, one_that_the_medium_does_not_take_is_told_so_in_time, .init = make)
{
    nvme_rig_start(&rig, &(struct nvme_rig_options){.dir = dir});
    uint32_t before = rig.resets;
    hang(SPW_IO_SYNC);
    cr_assert_eq(begin_reset(), 0);
    for (uint32_t i = 0; i < 50; i++) {
        nvme_rig_poll(&rig);
        usleep(100);
    }
    cr_expect_eq(rig.resets, before);
    rig.ahead_ns += 6 * SECOND;
    await_resets(before + 1);
    cr_expect_lt(rig.reset_status, 0);
    let_go();
    expect_only_the_other();
    cr_assert_eq(nvme_rig_reset(&rig, SPACE), 0);
    end();
}

Test(nvme_resets, io12_a_directory_that_does_not_answer_is_down_in_time_and_comes_back,
     .init = make)
{
    nvme_rig_again(&rig);
    hang(SPW_IO_CALL);
    nvme_rig_poll(&rig);
    nvme_rig_poll(&rig);
    cr_expect_eq(nvme_rig_gauge(&rig).state, SPW_TIER_SCANNING);
    rig.ahead_ns += 6 * SECOND;
    nvme_rig_poll(&rig);
    cr_expect_eq(nvme_rig_gauge(&rig).state, SPW_TIER_DOWN);
    let_go();
    nvme_rig_poll(&rig);
    rig.ahead_ns += 60 * SECOND;
    nvme_rig_until(&rig, SPW_TIER_UP);
    cr_expect_eq(nvme_rig_gauge(&rig).entries, 5);
    end();
}

Test(nvme_resets, io12_tables_that_can_not_be_read_take_it_down_in_time, .init = make)
{
    nvme_rig_again(&rig);
    hang(SPW_IO_READ);
    for (uint32_t i = 0; i < 100; i++) {
        nvme_rig_poll(&rig);
        usleep(100);
    }
    cr_expect_eq(nvme_rig_gauge(&rig).state, SPW_TIER_SCANNING);
    cr_expect_gt(rig.cold.ops->due_ns(rig.cold.cold, 0), 0, "nothing to do meanwhile");
    rig.ahead_ns += 6 * SECOND;
    nvme_rig_poll(&rig);
    cr_expect_eq(nvme_rig_gauge(&rig).state, SPW_TIER_DOWN);
    let_go();
    nvme_rig_poll(&rig);
    rig.ahead_ns += 60 * SECOND;
    nvme_rig_until(&rig, SPW_TIER_UP);
    cr_expect_eq(nvme_rig_gauge(&rig).entries, 5);
    end();
}
