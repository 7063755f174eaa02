/* tier/nvme: media that are short, wrong, slow, gone or lie; each job ends once, and no wrong byte is
 * ever given out. */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/support/env.h"
#include "tests/support/nvme_rig.h"

TestSuite(nvme_trouble, .timeout = 60);

#define SECOND 1000000000ull

static struct nvme_rig rig;

static void rule(struct fault_io_rule it)
{
    fault_io_rule(rig.fault, it);
}

static void end(void)
{
    nvme_rig_quiet(&rig, 0);
    struct spw_cold_gauge gauge = nvme_rig_gauge(&rig);
    cr_expect(rig.wrong == 0);
    cr_expect(gauge.entries == nvme_rig_held(&rig));
    cr_expect(gauge.leased == 0);
    cr_expect(nvme_rig_close(&rig) == 0);
    nvme_rig_fini(&rig);
}

/* ---- short ----------------------------------------------------------------------------------- */

Test(nvme_trouble, IO_1_transfers_of_a_page_at_a_time_give_the_same_bytes)
{
    nvme_rig_start(&rig, &(struct nvme_rig_options){0});
    rule((struct fault_io_rule){.kind = FAULT_IO_SHORT, .op = SPW_IO_WRITE, .bytes = 4096});
    rule((struct fault_io_rule){.kind = FAULT_IO_SHORT, .op = SPW_IO_READ, .bytes = 4096});
    cr_assert(nvme_rig_put(&rig, 1, 65536) == 0);
    cr_assert(nvme_rig_put(&rig, 2, 50001) == 0);
    cr_expect(nvme_rig_get(&rig, 1, 65536) == 0);
    cr_expect(nvme_rig_get(&rig, 2, 50001) == 0);
    cr_expect(fault_io_count(rig.fault, SPW_IO_READ) >= 16 + 13);
    fault_io_clear(rig.fault);
    cr_expect(nvme_rig_get(&rig, 1, 65536) == 0);
    cr_expect(nvme_rig_get(&rig, 2, 50001) == 0);
    end();
}

/* Cut segment @nth so that all but its first @keep bytes are gone. */
static void cut(uint32_t nth, uint64_t keep)
{
    char path[256];
    cr_assert(nvme_rig_segment(&rig, nth, path));
    cr_assert(truncate(path, (off_t)keep) == 0);
}

Test(nvme_trouble, IO_1_CE_6_a_file_cut_by_hand_is_noticed_by_the_read)
{
    nvme_rig_start(&rig, &(struct nvme_rig_options){0});
    cr_assert(nvme_rig_put(&rig, 1, 65536) == 0);
    cut(0, nvme_rig_cell(&rig, 1, 65536) + 40960);
    cr_expect(nvme_rig_get(&rig, 1, 65536) == -EBADMSG);
    cr_expect(nvme_rig_id(&rig, 1) < 0);
    cr_expect(rig.gone[SPW_COLD_CORRUPT] == 1);
    cr_expect(nvme_rig_gauge(&rig).state == SPW_TIER_UP);
    end();
}

Test(nvme_trouble, CE_6_a_file_removed_by_hand_costs_its_chunks_and_nothing_else)
{
    char path[256];
    nvme_rig_start(&rig, &(struct nvme_rig_options){.cap_bytes = 1 << 20});
    for (uint64_t n = 0; n < 60; n++)
        cr_assert(nvme_rig_put(&rig, n, 8192) == 0);
    uint32_t held = nvme_rig_held(&rig);
    cr_assert(nvme_rig_segment(&rig, 1, path));
    cr_assert(unlink(path) == 0);
    for (uint32_t i = 0; i < 3; i++) {
        rig.ahead_ns += 2 * SECOND;
        nvme_rig_quiet(&rig, 20);
    }
    cr_expect(rig.gone[SPW_COLD_CORRUPT] > 0);
    cr_expect(nvme_rig_held(&rig) == held - rig.gone[SPW_COLD_CORRUPT]);
    for (uint64_t n = 0; n < 60; n++)
        cr_expect(nvme_rig_get(&rig, n, 8192) == (nvme_rig_id(&rig, n) < 0 ? -ENOENT : 0));
    for (uint64_t n = 100; n < 160; n++)
        cr_assert(nvme_rig_put(&rig, n, 8192) == 0);
    cr_expect(nvme_rig_on_disk(rig.dir) <= 1 << 20);
    end();
}

/* ---- wrong bytes ----------------------------------------------------------------------------- */

Test(nvme_trouble, IO_8_any_flipped_byte_is_a_miss_and_counted)
{
    static const uint64_t at[] = {8, 4999, 2500};
    nvme_rig_start(&rig, &(struct nvme_rig_options){0});
    for (uint64_t i = 0; i < 3; i++) {
        cr_assert(nvme_rig_put(&rig, i, 5000) == 0);
        cr_assert(nvme_rig_spoil(&rig, i, 5000, at[i]) == 0);
        cr_expect(nvme_rig_get(&rig, i, 5000) == -EBADMSG);
        cr_expect(rig.gone[SPW_COLD_CORRUPT] == i + 1);
        cr_expect(nvme_rig_id(&rig, i) < 0);
    }
    end();
}

Test(nvme_trouble, IO_8_contents_that_changed_places_are_misses)
{
    nvme_rig_start(&rig, &(struct nvme_rig_options){0});
    cr_assert(nvme_rig_put(&rig, 1, 8192) == 0);
    cr_assert(nvme_rig_put(&rig, 2, 8192) == 0);
    cr_assert(nvme_rig_swap(&rig, 1, 2, 8192) == 0);
    cr_expect(nvme_rig_get(&rig, 1, 8192) == -EBADMSG);
    cr_expect(nvme_rig_get(&rig, 2, 8192) == -EBADMSG);
    cr_expect(rig.gone[SPW_COLD_CORRUPT] == 2);
    end();
}

Test(nvme_trouble, IO_8_without_checking_bytes_are_given_as_they_are)
{
    nvme_rig_start(&rig, &(struct nvme_rig_options){.no_checksum = true});
    cr_assert(nvme_rig_put(&rig, 1, 5000) == 0);
    cr_assert(nvme_rig_spoil(&rig, 1, 5000, 100) == 0);
    cr_expect(nvme_rig_get(&rig, 1, 5000) == -EILSEQ);
    end();
}

/* ---- one job of a hundred -------------------------------------------------------------------- */

struct fault {
    int op;
    int error; /* 0: short, then nothing more moves */
    bool get;
};

static struct fault faults[] = {
    {SPW_IO_WRITE, -EIO, false},  {SPW_IO_WRITE, -EACCES, false}, {SPW_IO_WRITE, -ENOENT, false},
    {SPW_IO_SYNC, -EIO, false},   {SPW_IO_READ, -EIO, true},      {SPW_IO_READ, -EACCES, true},
    {SPW_IO_READ, -ENOENT, true}, {SPW_IO_WRITE, 0, false},       {SPW_IO_READ, 0, true}};

static int one(const struct fault *fault, uint64_t n)
{
    return fault->get ? nvme_rig_get(&rig, n, 5000) : nvme_rig_put(&rig, n, 5000);
}

/* The @nth from now on. */
static void spoil(const struct fault *fault, uint64_t nth)
{
    if (fault->error == 0)
        rule((struct fault_io_rule){
            .kind = FAULT_IO_SHORT, .op = fault->op, .first = nth++, .count = 1, .bytes = 512});
    rule((struct fault_io_rule){
        .kind = FAULT_IO_ERROR, .op = fault->op, .first = nth, .count = 1, .error = fault->error});
}

ParameterizedTestParameters(nvme_trouble, IO_9_one_that_fails_at_any_step_fails_alone)
{
    return cr_make_param_array(struct fault, faults, sizeof faults / sizeof faults[0]);
}

/* Steps of a put: payload, block; with syncing each followed by one. Of a get: one read. */
ParameterizedTest(const struct fault *fault, nvme_trouble,
                  IO_9_one_that_fails_at_any_step_fails_alone)
{
    uint32_t steps = fault->get ? 1 : 2;
    nvme_rig_start(&rig, &(struct nvme_rig_options){.sync = fault->op == SPW_IO_SYNC});
    cr_assert(nvme_rig_put(&rig, 0, 5000) == 0);
    for (uint64_t n = 1; fault->get && n <= 200; n++)
        cr_assert(nvme_rig_put(&rig, n, 5000) == 0);
    for (uint64_t step = 1; step <= steps; step++) {
        uint32_t good = 0;
        spoil(fault, 20 * steps + step);
        for (uint64_t n = 1; n <= 100; n++)
            good += one(fault, step * 1000 * !fault->get + n) == 0;
        cr_expect(good == 99, "%u good at step %lu", good, (unsigned long)step);
        fault_io_clear(rig.fault);
        for (uint64_t n = 101; n <= 200; n++)
            cr_assert(one(fault, step * 1000 * !fault->get + n) == 0);
    }
    cr_expect(nvme_rig_gauge(&rig).state == SPW_TIER_UP);
    end();
}

Test(nvme_trouble, IO_9_with_trouble_at_random_each_job_ends_once_and_no_wrong_byte_is_given)
{
    nvme_rig_start(&rig, &(struct nvme_rig_options){.cap_bytes = 1 << 20});
    fault_io_shuffle(rig.fault);
    rule((struct fault_io_rule){
        .kind = FAULT_IO_ERROR, .op = SPW_IO_WRITE, .one_in = 17, .error = -EIO});
    rule((struct fault_io_rule){
        .kind = FAULT_IO_ERROR, .op = SPW_IO_READ, .one_in = 13, .error = -EIO});
    rule((struct fault_io_rule){
        .kind = FAULT_IO_SHORT, .op = FAULT_IO_ANY, .one_in = 3, .bytes = 4096});
    struct nvme_job *job[8] = {0};
    uint32_t good = 0;
    for (uint64_t n = 0; n < 1500; n++) {
        struct nvme_job **mine = &job[n % 8];
        int rc;
        if (*mine) {
            rc = nvme_rig_end(&rig, *mine);
            cr_assert(rc != -EILSEQ);
            good += rc == 0;
        }
        for (uint32_t tries = 0; tries < 2000; tries++) { /* a segment is being made, or leaves */
            *mine = n % 3 == 2 ? nvme_rig_get_begin(&rig, n - n % 20, 4096 + n % 20 * 100, &rc)
                               : nvme_rig_put_begin(&rig, n, 4096 + n % 20 * 100, &rc);
            nvme_rig_poll(&rig);
            if (*mine || rc != -EAGAIN)
                break;
            usleep(50);
        }
    }
    for (uint32_t i = 0; i < 8; i++)
        if (job[i])
            cr_assert(nvme_rig_end(&rig, job[i]) != -EILSEQ);
    cr_expect(good > 200, "%u; %s", good, nvme_rig_gauge(&rig).text);
    fault_io_clear(rig.fault);
    for (uint32_t i = 0; i < 3; i++, rig.ahead_ns += 100 * SECOND)
        nvme_rig_quiet(&rig, 20);
    nvme_rig_until(&rig, SPW_TIER_UP);
    for (uint32_t id = 0; id < rig.options.ids; id++) {
        uint64_t n = rig.holds[id] - 1;
        if (rig.holds[id])
            cr_expect(nvme_rig_get(&rig, n, 4096 + n % 20 * 100) == 0);
    }
    end();
}

/* ---- segments that can't be removed ---------------------------------------------------------- */

/* A full tier of small chunks in which a large one makes a segment go, and that one stays. */
static void fail_a_removal(void)
{
    nvme_rig_start(&rig, &(struct nvme_rig_options){.cap_bytes = 1 << 20});
    for (uint64_t n = 0; n < 200; n++)
        cr_assert(nvme_rig_put(&rig, n, 8192) == 0);
    rule((struct fault_io_rule){
        .kind = FAULT_IO_ERROR, .op = SPW_IO_CALL, .count = 1, .error = -EPERM});
    cr_assert(nvme_rig_put(&rig, 1000, 30000) == -ENOSPC);
}

Test(nvme_trouble, a_segment_that_can_not_be_removed_costs_itself_and_is_tried_again)
{
    fail_a_removal();
    uint32_t held = nvme_rig_held(&rig), evicted = rig.gone[SPW_COLD_EVICTED];
    uint64_t used = nvme_rig_gauge(&rig).used_bytes;
    for (uint64_t n = 1001; n < 1020; n++)
        cr_expect(nvme_rig_put(&rig, n, 30000) == -ENOSPC);
    cr_expect(rig.gone[SPW_COLD_EVICTED] == evicted, "%u went in vain",
              rig.gone[SPW_COLD_EVICTED] - evicted);
    cr_expect(held > 0 && nvme_rig_gauge(&rig).used_bytes == used && used <= 1 << 20);
    cr_expect(nvme_rig_put(&rig, 200, 8192) == 0, "small ones still take each other's place");
    cr_expect(nvme_rig_held(&rig) == held);
    cr_expect(strstr(nvme_rig_gauge(&rig).text, "can't be removed") != NULL, "%s",
              nvme_rig_gauge(&rig).text);
    cr_expect(nvme_rig_gauge(&rig).state == SPW_TIER_UP);
    rig.ahead_ns += 2 * SECOND;
    nvme_rig_quiet(&rig, 20);
    cr_expect(nvme_rig_gauge(&rig).text[0] == 0, "%s", nvme_rig_gauge(&rig).text);
    cr_expect(nvme_rig_gauge(&rig).used_bytes < used);
    cr_expect(nvme_rig_put(&rig, 1000, 30000) == 0);
    cr_expect(nvme_rig_on_disk(rig.dir) <= 1 << 20);
    end();
}

Test(nvme_trouble, a_segment_that_could_not_be_removed_is_used_by_the_next_open)
{
    fail_a_removal();
    uint32_t held = nvme_rig_held(&rig);
    cr_assert(nvme_rig_close(&rig) == 0);
    nvme_rig_again(&rig);
    nvme_rig_until(&rig, SPW_TIER_UP);
    cr_expect(nvme_rig_held(&rig) == held);
    cr_expect(nvme_rig_put(&rig, 1000, 30000) == 0);
    end();
}

static uint64_t calls(void)
{
    return fault_io_count(rig.fault, SPW_IO_CALL);
}

/* Looks at the directory are calls, too, and end well: each second a look, then the removal. */
Test(nvme_trouble, a_segment_that_can_not_be_removed_again_and_again_takes_it_down_with_words)
{
    fail_a_removal();
    for (uint32_t i = 0; i < 20 && nvme_rig_gauge(&rig).state == SPW_TIER_UP; i++) {
        uint64_t before = calls();
        fault_io_clear(rig.fault);
        rule((struct fault_io_rule){
            .kind = FAULT_IO_ERROR, .op = SPW_IO_CALL, .first = 2, .count = 1, .error = -EPERM});
        rig.ahead_ns += 2 * SECOND;
        nvme_rig_quiet(&rig, 5);
        cr_assert(calls() <= before + 2);
    }
    cr_expect(nvme_rig_gauge(&rig).state == SPW_TIER_DOWN);
    cr_expect(strstr(nvme_rig_gauge(&rig).text, "can't be removed") != NULL, "%s",
              nvme_rig_gauge(&rig).text);
    fault_io_clear(rig.fault);
    rig.ahead_ns += 100 * SECOND;
    nvme_rig_until(&rig, SPW_TIER_UP);
    cr_expect(nvme_rig_gauge(&rig).text[0] == 0, "%s", nvme_rig_gauge(&rig).text);
    cr_expect(nvme_rig_put(&rig, 1000, 30000) == 0);
    end();
}

/* ---- slow, and gone -------------------------------------------------------------------------- */

Test(nvme_trouble, IO_12_one_that_never_ends_takes_it_down_and_it_comes_back_once_that_has_ended)
{
    int rc;
    nvme_rig_start(&rig, &(struct nvme_rig_options){0});
    for (uint64_t n = 0; n < 10; n++)
        cr_assert(nvme_rig_put(&rig, n, 5000) == 0);
    rule((struct fault_io_rule){.kind = FAULT_IO_HANG, .op = SPW_IO_READ, .first = 1, .count = 1});
    rule((struct fault_io_rule){.kind = FAULT_IO_HANG, .op = SPW_IO_WRITE, .first = 1, .count = 1});
    struct nvme_job *get = nvme_rig_get_begin(&rig, 1, 5000, &rc);
    struct nvme_job *put = nvme_rig_put_begin(&rig, 100, 5000, &rc);
    cr_assert(get && put);
    nvme_rig_poll(&rig);
    rig.ahead_ns += 6 * SECOND;
    nvme_rig_until(&rig, SPW_TIER_DOWN);
    cr_expect(nvme_rig_gauge(&rig).text[0] != 0);
    cr_expect(nvme_rig_end(&rig, get) == -ETIMEDOUT);
    cr_expect(nvme_rig_end(&rig, put) == -ETIMEDOUT);
    cr_expect(rig.gone[SPW_COLD_AWAY] == 10);
    cr_expect(rig.cold.ops->in_flight(rig.cold.cold) == 2);
    cr_expect(!nvme_rig_put_begin(&rig, 101, 5000, &rc) && rc == -EIO);
    for (uint32_t i = 0; i < 5; i++, rig.ahead_ns += 10 * SECOND)
        nvme_rig_poll(&rig);
    cr_expect(nvme_rig_gauge(&rig).state == SPW_TIER_DOWN);
    cr_expect(!get->released && !put->released);
    fault_io_release(rig.fault);
    nvme_rig_until(&rig, SPW_TIER_UP);
    cr_expect(get->released && put->released);
    cr_expect(rig.cold.ops->in_flight(rig.cold.cold) == 0);
    cr_expect(rig.found == 10);
    for (uint64_t n = 0; n < 10; n++)
        cr_expect(nvme_rig_get(&rig, n, 5000) == 0);
    cr_expect(nvme_rig_put(&rig, 101, 5000) == 0);
    end();
}

Test(nvme_trouble, IO_12_a_directory_that_vanishes_takes_it_down_and_it_comes_back_with_it)
{
    char there[160], away[160];
    int rc;
    nvme_rig_start(&rig, &(struct nvme_rig_options){0});
    for (uint64_t n = 0; n < 10; n++)
        cr_assert(nvme_rig_put(&rig, n, 5000) == 0);
    snprintf(there, sizeof there, "%s/shard-3", rig.dir);
    snprintf(away, sizeof away, "%s/elsewhere", rig.dir);
    cr_assert(rename(there, away) == 0);
    rig.ahead_ns += 2 * SECOND;
    nvme_rig_until(&rig, SPW_TIER_DOWN);
    cr_expect(rig.gone[SPW_COLD_AWAY] == 10);
    cr_expect(!nvme_rig_put_begin(&rig, 100, 5000, &rc) && rc == -EIO);
    cr_assert(rename(away, there) == 0);
    nvme_rig_quiet(&rig, 5);
    rig.ahead_ns += 100 * SECOND;
    nvme_rig_until(&rig, SPW_TIER_UP);
    cr_expect(nvme_rig_gauge(&rig).text[0] == 0, "%s", nvme_rig_gauge(&rig).text);
    cr_expect(rig.found == 10);
    for (uint64_t n = 0; n < 10; n++)
        cr_expect(nvme_rig_get(&rig, n, 5000) == 0);
    end();
}

Test(nvme_trouble, IO_12_a_disk_that_fails_again_and_again_is_left_alone_for_a_while)
{
    nvme_rig_start(&rig, &(struct nvme_rig_options){0});
    for (uint64_t n = 0; n < 20; n++)
        cr_assert(nvme_rig_put(&rig, n, 5000) == 0);
    rule((struct fault_io_rule){.kind = FAULT_IO_ERROR, .op = FAULT_IO_ANY, .error = -EIO});
    for (uint64_t n = 100; n < 120; n++)
        nvme_rig_put(&rig, n, 5000);
    cr_expect(nvme_rig_gauge(&rig).state == SPW_TIER_DOWN);
    cr_expect(nvme_rig_gauge(&rig).text[0] != 0);
    rig.ahead_ns += 3 * SECOND;
    nvme_rig_quiet(&rig, 5);
    cr_expect(nvme_rig_gauge(&rig).state == SPW_TIER_DOWN);
    fault_io_clear(rig.fault);
    rig.ahead_ns += 100 * SECOND;
    nvme_rig_until(&rig, SPW_TIER_UP);
    cr_expect(rig.found == 20);
    end();
}

Test(nvme_trouble, a_directory_that_is_not_there_is_down_and_up_once_it_is)
{
    char dir[160];
    struct nvme_rig outer;
    nvme_rig_start(&outer, &(struct nvme_rig_options){0}); /* for its folder */
    snprintf(dir, sizeof dir, "%s/later", outer.dir);
    nvme_rig_open(&rig, &(struct nvme_rig_options){.dir = dir});
    nvme_rig_poll(&rig);
    nvme_rig_until(&rig, SPW_TIER_DOWN);
    nvme_rig_quiet(&rig, 0);
    cr_expect(nvme_rig_gauge(&rig).text[0] != 0);
    cr_assert(mkdir(dir, 0700) == 0);
    rig.ahead_ns += 3 * SECOND;
    nvme_rig_until(&rig, SPW_TIER_UP);
    cr_expect(nvme_rig_put(&rig, 1, 5000) == 0);
    end();
    nvme_rig_close(&outer);
    nvme_rig_fini(&outer);
}

Test(nvme_trouble, closing_with_transfers_that_never_end_says_so_within_its_limit)
{
    int rc;
    nvme_rig_start(&rig, &(struct nvme_rig_options){0});
    cr_assert(nvme_rig_put(&rig, 1, 5000) == 0);
    rule((struct fault_io_rule){.kind = FAULT_IO_HANG, .op = SPW_IO_READ});
    cr_assert(nvme_rig_get_begin(&rig, 1, 5000, &rc));
    nvme_rig_poll(&rig);
    uint64_t begin = spw_monotonic_ns();
    cr_expect(rig.cold.ops->close(rig.cold.cold, SECOND / 10) == -ETIMEDOUT);
    cr_expect(spw_monotonic_ns() - begin < 3 * SECOND);
    support_remove_dir(rig.dir);
    _exit(0); /* what is left to the kernel is no leak */
}
