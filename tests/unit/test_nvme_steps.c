/* tier/nvme: a put or a get, and a segment that leaves, at each step at which something else happens. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "tests/support/nvme_rig.h"

TestSuite(nvme_steps, .timeout = 60);

#define SECOND 1000000000ull
#define POLLS  100000u

static struct nvme_rig rig;

static void rule(struct fault_io_rule it)
{
    fault_io_rule(rig.fault, it);
}

static void hang_one(int op)
{
    rule((struct fault_io_rule){.kind = FAULT_IO_HANG, .op = op, .first = 1, .count = 1});
}

static void let_go(void)
{
    fault_io_clear(rig.fault);
    fault_io_release(rig.fault);
}

static void end(void)
{
    nvme_rig_quiet(&rig, 0);
    struct spw_cold_gauge gauge = nvme_rig_gauge(&rig);
    cr_expect_eq(rig.wrong, 0);
    cr_expect_eq(gauge.entries, nvme_rig_held(&rig));
    cr_expect_eq(gauge.leased, 0);
    cr_expect_eq(nvme_rig_close(&rig), 0);
    nvme_rig_fini(&rig);
}

static void puts_of(uint64_t first, uint64_t beyond)
{
    for (uint64_t n = first; n < beyond; n++)
        cr_assert_eq(nvme_rig_put(&rig, n, 5000), 0);
    nvme_rig_quiet(&rig, 0);
}

/* ---- order ----------------------------------------------------------------------------------- */

Test(nvme_steps, with_sync_payload_and_record_are_each_on_the_medium_before_the_next_step)
{
    static const enum spw_io_op steps[] = {SPW_IO_WRITE, SPW_IO_SYNC, SPW_IO_WRITE, SPW_IO_SYNC};
    const struct fault_io_asked *asked;
    uint32_t step = 0;
    nvme_rig_start(&rig, &(struct nvme_rig_options){.sync = true});
    puts_of(0, 1);
    uint32_t before = fault_io_log(rig.fault, &asked);
    puts_of(1, 2);
    uint32_t after = fault_io_log(rig.fault, &asked);
    for (uint32_t i = before; i < after; i++) {
        if (asked[i].op != SPW_IO_WRITE && asked[i].op != SPW_IO_SYNC)
            continue;
        cr_assert_lt(step, 4, "another %d", asked[i].op);
        cr_expect_eq(asked[i].op, steps[step], "%u: %d", step, asked[i].op);
        if (asked[i].op == SPW_IO_WRITE)
            cr_expect_eq(asked[i].bytes == 4096, step == 2, "payload, then record");
        step++;
    }
    cr_expect_eq(step, 4);
    end();
}

Test(nvme_steps, a_transfer_that_was_interrupted_or_found_no_room_is_asked_for_again)
{
    static const enum spw_io_op ops[] = {SPW_IO_WRITE, SPW_IO_READ};
    nvme_rig_start(&rig, &(struct nvme_rig_options){0});
    puts_of(0, 1);
    for (uint32_t i = 0; i < 2; i++) {
        rule((struct fault_io_rule){
            .kind = FAULT_IO_ERROR, .op = (int)ops[i], .first = 1, .count = 1, .error = -EINTR});
        rule((struct fault_io_rule){
            .kind = FAULT_IO_ERROR, .op = (int)ops[i], .first = 2, .count = 1, .error = -EAGAIN});
        uint64_t before = fault_io_count(rig.fault, (int)ops[i]);
        cr_expect_eq(i ? nvme_rig_get(&rig, 1, 5000) : nvme_rig_put(&rig, 1, 5000), 0);
        cr_expect_eq(fault_io_count(rig.fault, (int)ops[i]), before + (i ? 3 : 4));
        fault_io_clear(rig.fault);
    }
    end();
}

/* Payloads that don't lie as direct I/O has it go through a buffer that others went through before. */
Test(nvme_steps, nothing_of_another_chunk_is_written_behind_one)
{
    enum { LONGER = 8000, BYTES = 5000, CELL = 8192 };
    static uint8_t cell[CELL];
    char path[256];
    nvme_rig_start(&rig, &(struct nvme_rig_options){.skew = 8});
    cr_assert_eq(nvme_rig_put(&rig, 0, LONGER), 0);
    puts_of(1, 2);
    uint64_t at = nvme_rig_cell(&rig, 1, BYTES);
    cr_assert(at != 0 && nvme_rig_segment(&rig, 0, path));
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    cr_assert_eq(pread(fd, cell, CELL, (off_t)at), CELL);
    close(fd);
    for (uint32_t i = BYTES; i < CELL; i++)
        cr_assert_eq(cell[i], 0, "byte %u", i);
    end();
}

/* ---- what becomes of it meanwhile ------------------------------------------------------------ */

Test(nvme_steps, a_put_of_before_a_reset_is_stale)
{
    int rc;
    nvme_rig_start(&rig, &(struct nvme_rig_options){0});
    puts_of(0, 1);
    hang_one(SPW_IO_WRITE);
    struct nvme_job *job = nvme_rig_put_begin(&rig, 1, 5000, &rc);
    cr_assert(job);
    cr_assert_eq(nvme_rig_reset(&rig, 0), 0);
    cr_expect_not(job->ended);
    let_go();
    cr_expect_eq(nvme_rig_end(&rig, job), -ESTALE);
    cr_expect_eq(nvme_rig_gauge(&rig).entries, 0);
    cr_assert_eq(nvme_rig_put(&rig, 2, 5000), 0);
    end();
}

static void unlink_segments(void)
{
    char path[256];
    while (nvme_rig_segment(&rig, 0, path))
        cr_assert_eq(unlink(path), 0);
}

static void poll_until_lost(uint32_t chunks)
{
    for (uint32_t i = 0; i < POLLS && rig.gone[SPW_COLD_CORRUPT] < chunks; i++) {
        nvme_rig_poll(&rig);
        usleep(50);
    }
    cr_assert_eq(rig.gone[SPW_COLD_CORRUPT], chunks);
}

/* A look at the directory finds that the segments are gone while @op is under way: they leave when it
 * has ended and not before. */
static int lose_segments_in_mid(int op)
{
    int rc;
    nvme_rig_start(&rig, &(struct nvme_rig_options){0});
    puts_of(0, 3);
    hang_one(op);
    struct nvme_job *job = op == SPW_IO_WRITE ? nvme_rig_put_begin(&rig, 3, 5000, &rc)
                                              : nvme_rig_get_begin(&rig, 1, 5000, &rc);
    cr_assert(job);
    unlink_segments();
    uint64_t used = nvme_rig_gauge(&rig).used_bytes;
    rig.ahead_ns += 2 * SECOND;
    poll_until_lost(3);
    for (uint32_t i = 0; i < 50; i++) {
        nvme_rig_poll(&rig);
        usleep(100);
    }
    cr_expect_not(job->ended);
    cr_expect_eq(nvme_rig_gauge(&rig).used_bytes, used, "nothing is removed yet");
    let_go();
    rc = nvme_rig_end(&rig, job);
    cr_expect_eq(nvme_rig_gauge(&rig).entries, 0);
    nvme_rig_quiet(&rig, 2);
    cr_expect_lt(nvme_rig_gauge(&rig).used_bytes, used, "now they leave");
    cr_assert_eq(nvme_rig_put(&rig, 7, 5000), 0);
    end();
    return rc;
}

Test(nvme_steps, CE_6_a_put_into_a_segment_that_is_gone_fails)
{
    cr_expect_eq(lose_segments_in_mid(SPW_IO_WRITE), -EIO);
}

Test(nvme_steps, CE_6_a_segment_does_not_leave_while_it_is_read)
{
    cr_expect_eq(lose_segments_in_mid(SPW_IO_READ), -ENOENT);
}

/* ---- one chunk's trouble --------------------------------------------------------------------- */

Test(nvme_steps, IO_2_many_writes_that_find_no_room_are_a_full_disk_and_no_failing_one)
{
    enum { AT_ONCE = 10 };
    struct nvme_job *job[AT_ONCE];
    int rc;
    nvme_rig_start(&rig, &(struct nvme_rig_options){.writes = 16});
    puts_of(0, 1);
    rule((struct fault_io_rule){.kind = FAULT_IO_ERROR,
                                .op = SPW_IO_WRITE,
                                .first = 1,
                                .count = AT_ONCE,
                                .error = -ENOSPC});
    for (uint64_t i = 0; i < AT_ONCE; i++)
        cr_assert(job[i] = nvme_rig_put_begin(&rig, 1 + i, 5000, &rc), "%lu: %d", (unsigned long)i,
                  rc);
    for (uint32_t i = 0; i < AT_ONCE; i++)
        cr_expect_eq(nvme_rig_end(&rig, job[i]), -ENOSPC);
    cr_expect_eq(nvme_rig_gauge(&rig).state, SPW_TIER_FULL);
    cr_expect_eq(nvme_rig_get(&rig, 0, 5000), 0);
    end();
}

Test(nvme_steps, IO_2_a_quota_that_is_used_up_is_a_full_disk)
{
    nvme_rig_start(&rig, &(struct nvme_rig_options){0});
    puts_of(0, 1);
    rule((struct fault_io_rule){
        .kind = FAULT_IO_ERROR, .op = SPW_IO_WRITE, .first = 1, .count = 1, .error = -EDQUOT});
    cr_expect_eq(nvme_rig_put(&rig, 1, 5000), -ENOSPC);
    cr_expect_eq(nvme_rig_gauge(&rig).state, SPW_TIER_FULL);
    end();
}

Test(nvme_steps, many_chunks_that_are_cut_off_are_no_failing_disk)
{
    enum { AT_ONCE = 8 };
    struct nvme_job *job[AT_ONCE];
    char path[256];
    int rc;
    nvme_rig_start(&rig, &(struct nvme_rig_options){.reads = AT_ONCE});
    puts_of(0, AT_ONCE);
    cr_assert(nvme_rig_segment(&rig, 0, path));
    uint64_t first = nvme_rig_cell(&rig, 0, 5000);
    rule((struct fault_io_rule){.kind = FAULT_IO_HANG, .op = SPW_IO_READ});
    for (uint64_t i = 0; i < AT_ONCE; i++)
        cr_assert(job[i] = nvme_rig_get_begin(&rig, i, 5000, &rc));
    cr_assert_eq(truncate(path, (off_t)first), 0);
    let_go();
    for (uint32_t i = 0; i < AT_ONCE; i++)
        cr_expect_eq(nvme_rig_end(&rig, job[i]), -EBADMSG);
    cr_expect_eq(nvme_rig_gauge(&rig).state, SPW_TIER_UP);
    cr_expect_eq(rig.gone[SPW_COLD_CORRUPT], AT_ONCE);
    cr_expect_eq(rig.gone[SPW_COLD_AWAY], 0);
    end();
}

Test(nvme_steps, a_chunk_of_another_size_than_asked_for_is_none)
{
    nvme_rig_start(&rig, &(struct nvme_rig_options){.no_checksum = true});
    puts_of(1, 2);
    cr_expect_eq(nvme_rig_get(&rig, 1, 5001), -ENOENT);
    cr_expect_eq(rig.gone[SPW_COLD_CORRUPT], 1);
    cr_expect_eq(nvme_rig_gauge(&rig).entries, 0);
    end();
}

/* ---- segments that leave --------------------------------------------------------------------- */

/* What a put of another size needs is one segment: its bytes count until it is removed, and no other
 * one goes meanwhile. */
Test(nvme_steps, one_segment_leaves_at_a_time_and_its_bytes_count_until_it_has)
{
    struct spw_cold_event event[32];
    int rc;
    nvme_rig_start(&rig, &(struct nvme_rig_options){.cap_bytes = 1 << 20});
    for (uint64_t n = 0; rig.went_count == 0; n++)
        cr_assert_eq(nvme_rig_put(&rig, n, 4096), 0);
    rig.ahead_ns += 2 * SECOND;
    nvme_rig_quiet(&rig, 0); /* it looked at the directory: no call of that meanwhile */
    uint64_t now_ns = spw_monotonic_ns() + rig.ahead_ns, used = nvme_rig_gauge(&rig).used_bytes;
    uint64_t calls = fault_io_count(rig.fault, SPW_IO_CALL);
    uint32_t held = nvme_rig_held(&rig);
    hang_one(SPW_IO_CALL);
    for (uint32_t i = 0; i < 200; i++) {
        cr_assert_null(nvme_rig_put_begin(&rig, 1000, 60000, &rc));
        cr_assert_eq(rc, -EAGAIN);
        cr_assert_eq(rig.cold.ops->poll(rig.cold.cold, now_ns, event, 32), 0);
        usleep(20);
    }
    cr_expect_eq(fault_io_count(rig.fault, SPW_IO_CALL), calls + 1, "%lu more",
                 (unsigned long)(fault_io_count(rig.fault, SPW_IO_CALL) - calls));
    cr_expect_eq(fault_io_held_count(rig.fault), 1);
    cr_expect_eq(nvme_rig_gauge(&rig).used_bytes, used);
    cr_expect_lt(held - nvme_rig_held(&rig), held / 4);
    let_go();
    cr_expect_eq(nvme_rig_put(&rig, 1000, 60000), 0);
    end();
}
