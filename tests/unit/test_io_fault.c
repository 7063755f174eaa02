/* tests/support/fault_io: what it is told happens to the transfers named, and to no other. */
#include "tests/support/fault_io.h"

#include <criterion/criterion.h>
#include <errno.h>

#include "tests/unit/io_rig.h"

TestSuite(io_fault, .timeout = 30);

static struct io_rig open_rig(void)
{
    struct io_rig rig = io_rig_without();
    struct spw_io_config config = {.choice = SPW_IO_THREADS, .depth = 4};
    cr_assert(spw_io_open(&config, &rig.io, NULL) == 0);
    rig.fault = fault_io_open(rig.io, &config, 3, &rig.io);
    io_rig_fill(rig.memory, PARTS * PART, 1);
    cr_assert(io_rig_run(&rig, io_rig_part(&rig, SPW_IO_WRITE, 0, 0)) == PART);
    return rig;
}

Test(io_fault, a_short_transfer_moves_what_it_says_and_has_no_sum)
{
    struct io_rig rig = open_rig();
    fault_io_rule(
        rig.fault,
        (struct fault_io_rule){
            .kind = FAULT_IO_SHORT, .op = SPW_IO_READ, .first = 2, .count = 2, .bytes = 4096});
    memset(rig.memory + PART, 0, PART);
    cr_expect(io_rig_run(&rig, io_rig_part(&rig, SPW_IO_READ, 2, 0)) == PART);
    struct spw_io io = io_rig_part(&rig, SPW_IO_READ, 1, 0);
    cr_assert(io_rig_submit(&rig, &io) == 0);
    struct spw_io_end end = io_rig_take(&rig);
    cr_expect(end.result == 4096);
    cr_expect(end.sum == 0);
    cr_expect(memcmp(rig.memory + PART, rig.memory, 4096) == 0);
    cr_expect(rig.memory[PART + 4096] == 0);
    cr_expect(io_rig_run(&rig, io) == 4096);
    cr_expect(io_rig_run(&rig, io) == PART);
    cr_expect(fault_io_count(rig.fault, SPW_IO_READ) == 4);
    cr_expect(fault_io_count(rig.fault, FAULT_IO_ANY) == 5);
    cr_expect(io_rig_close(&rig) == 0);
}

Test(io_fault, a_transfer_that_hangs_touches_its_buffer_when_it_is_released)
{
    struct io_rig rig = open_rig();
    struct spw_io_end end;
    const struct fault_io_asked *asked;
    fault_io_rule(rig.fault, (struct fault_io_rule){.kind = FAULT_IO_HANG, .op = SPW_IO_READ});
    memset(rig.memory + PART, 0, PART);
    struct spw_io io = io_rig_part(&rig, SPW_IO_READ, 1, 0);
    cr_assert(io_rig_submit(&rig, &io) == 0);
    usleep(20000);
    cr_expect(rig.io.ops->poll(rig.io.engine, &end, 1) == 0);
    cr_expect(rig.memory[PART] == 0 && rig.memory[PART + 1] == 0);
    cr_expect(fault_io_held_count(rig.fault) == 1);
    fault_io_release(rig.fault);
    cr_expect(io_rig_take(&rig).result == PART);
    cr_expect(memcmp(rig.memory + PART, rig.memory, PART) == 0);
    cr_expect(fault_io_open_count(rig.fault) == 0);
    cr_expect(fault_io_log(rig.fault, &asked) == 2);
    cr_expect(asked[0].op == SPW_IO_WRITE && asked[1].op == SPW_IO_READ && asked[1].bytes == PART);
    cr_expect(io_rig_close(&rig) == 0);
}

Test(io_fault, a_delayed_transfer_waits_for_the_tests_clock)
{
    struct io_rig rig = open_rig();
    struct spw_io_end end;
    uint64_t now = 1000;
    fault_io_clock(rig.fault, &now);
    fault_io_rule(rig.fault, (struct fault_io_rule){
                                 .kind = FAULT_IO_DELAY, .op = FAULT_IO_ANY, .delay_ns = 500});
    struct spw_io io = io_rig_part(&rig, SPW_IO_READ, 1, 0);
    cr_assert(io_rig_submit(&rig, &io) == 0);
    now = 1499;
    usleep(5000);
    cr_expect(rig.io.ops->poll(rig.io.engine, &end, 1) == 0);
    now = 1500;
    cr_expect(io_rig_take(&rig).result == PART);
    cr_expect(io_rig_close(&rig) == 0);
}

Test(io_fault, rules_by_chance_name_some_and_not_all)
{
    struct io_rig rig = open_rig();
    int failed = 0;
    fault_io_rule(rig.fault,
                  (struct fault_io_rule){
                      .kind = FAULT_IO_ERROR, .op = SPW_IO_READ, .one_in = 4, .error = -EIO});
    for (int i = 0; i < 100; i++)
        failed += io_rig_run(&rig, io_rig_part(&rig, SPW_IO_READ, 1, 0)) == -EIO;
    cr_expect(failed > 5 && failed < 60, "%d", failed);
    cr_expect(io_rig_close(&rig) == 0);
}
