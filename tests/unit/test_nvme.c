/* tier/nvme: chunks go down and come back, over both engines, with everything in order. */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <string.h>

#include "tests/support/nvme_rig.h"

TestSuite(nvme, .timeout = 30);

static struct nvme_rig rig;

static void check_idle(void)
{
    nvme_rig_quiet(&rig, 0);
    struct spw_cold_gauge gauge = nvme_rig_gauge(&rig);
    cr_expect(rig.wrong == 0);
    cr_expect(gauge.entries == nvme_rig_held(&rig), "%lu entries, told of %u",
              (unsigned long)gauge.entries, nvme_rig_held(&rig));
    cr_expect(gauge.leased == 0);
    cr_expect(gauge.evictable == gauge.entries);
    cr_expect(gauge.used_bytes >= nvme_rig_on_disk(rig.dir), "%lu used, %lu on disk",
              (unsigned long)gauge.used_bytes, (unsigned long)nvme_rig_on_disk(rig.dir));
    cr_expect(gauge.used_bytes <= gauge.capacity_bytes);
    cr_expect(rig.cold.ops->in_flight(rig.cold.cold) == 0);
}

static void end(void)
{
    check_idle();
    cr_expect(nvme_rig_close(&rig) == 0);
    nvme_rig_fini(&rig);
}

static struct nvme_rig_options kinds[] = {
    {.engine = SPW_IO_URING},
    {.engine = SPW_IO_THREADS},
    {.engine = SPW_IO_AUTO, .buffered = true},
    {.engine = SPW_IO_AUTO, .sync = true},
    {.engine = SPW_IO_AUTO, .no_checksum = true},
    {.engine = SPW_IO_AUTO, .skew = 64},
    {.engine = SPW_IO_AUTO, .skew = 8},
};

#define EACH_KIND(name)                                                                            \
    ParameterizedTestParameters(nvme, name)                                                        \
    {                                                                                              \
        return cr_make_param_array(struct nvme_rig_options, kinds,                                 \
                                   sizeof kinds / sizeof kinds[0]);                                \
    }                                                                                              \
    ParameterizedTest(const struct nvme_rig_options *kind, nvme, name)

EACH_KIND(chunks_of_any_size_come_back_as_they_were)
{
    static const uint64_t sizes[] = {1, 7, 512, 4095, 4096, 4097, 5000, 8192, 40000, 65536};
    const uint32_t n = sizeof sizes / sizeof sizes[0];
    nvme_rig_start(&rig, kind);
    for (uint32_t round = 0; round < 3; round++)
        for (uint32_t i = 0; i < n; i++)
            cr_assert(nvme_rig_put(&rig, round * n + i, sizes[i]) == 0);
    for (uint32_t i = 0; i < 3 * n; i++) {
        struct spw_cold_name name;
        uint64_t bytes = 0;
        cr_assert(
            rig.cold.ops->name(rig.cold.cold, (uint32_t)nvme_rig_id(&rig, i), &name, &bytes) == 0);
        cr_expect(nvme_rig_named(&name, i));
        cr_expect(bytes == sizes[i % n]);
        int rc = nvme_rig_get(&rig, i, sizes[i % n]);
        cr_expect(rc == 0, "%d of %lu bytes", rc, (unsigned long)sizes[i % n]);
    }
    end();
}

EACH_KIND(many_at_once_end_once_each)
{
    nvme_rig_start(&rig, kind);
    for (uint32_t round = 0; round < 4; round++) {
        struct nvme_job *job[16];
        for (uint32_t i = 0; i < 8; i++) {
            int rc;
            while (!(job[i] = nvme_rig_put_begin(&rig, round * 8 + i, 20000, &rc))) {
                cr_assert(rc == -EAGAIN);
                nvme_rig_poll(&rig);
            }
            if (round)
                cr_assert(job[8 + i] = nvme_rig_get_begin(&rig, round * 8 - 8 + i, 20000, &rc));
        }
        for (uint32_t i = 0; i < (round ? 16 : 8); i++)
            cr_expect(nvme_rig_end(&rig, job[i]) == 0);
    }
    end();
}

/* Three puts a payload under way: each also has a record erased before and written after it. */
Test(nvme, no_more_reads_and_writes_than_allowed_are_taken)
{
    int rc;
    struct nvme_job *job[16];
    uint32_t payloads = 0;
    nvme_rig_start(&rig, &(struct nvme_rig_options){.reads = 2, .writes = 3});
    for (uint64_t n = 0; n < 4; n++)
        cr_assert(nvme_rig_put(&rig, n, 8192) == 0);
    const struct fault_io_asked *asked;
    uint32_t before = fault_io_log(rig.fault, &asked);
    fault_io_rule(rig.fault, (struct fault_io_rule){.kind = FAULT_IO_HANG, .op = FAULT_IO_ANY});
    for (uint32_t i = 0; i < 9; i++)
        cr_assert(job[i] = nvme_rig_put_begin(&rig, 10 + i, 8192, &rc));
    cr_expect(nvme_rig_put_begin(&rig, 20, 8192, &rc) == NULL && rc == -EAGAIN);
    for (uint32_t i = 9; i < 11; i++)
        cr_assert(job[i] = nvme_rig_get_begin(&rig, i - 9, 8192, &rc));
    cr_expect(nvme_rig_get_begin(&rig, 2, 8192, &rc) == NULL && rc == -EAGAIN);
    struct spw_cold_gauge gauge = nvme_rig_gauge(&rig);
    cr_expect(gauge.leased >= 2);
    cr_expect(gauge.evictable + 2 <= gauge.entries);
    nvme_rig_poll(&rig);
    cr_expect(rig.cold.ops->in_flight(rig.cold.cold) >= 2);
    uint32_t after = fault_io_log(rig.fault, &asked);
    for (uint32_t i = before; i < after; i++)
        payloads += asked[i].op == SPW_IO_WRITE && asked[i].bytes == 8192;
    cr_expect(payloads == 3, "%u payloads are being written", payloads);
    fault_io_clear(rig.fault);
    fault_io_release(rig.fault);
    for (uint32_t i = 0; i < 11; i++)
        cr_expect(nvme_rig_end(&rig, job[i]) == 0);
    cr_expect(nvme_rig_put(&rig, 20, 8192) == 0);
    end();
}

Test(nvme, reads_are_urgent_and_writes_are_not)
{
    nvme_rig_start(&rig, &(struct nvme_rig_options){0});
    const struct fault_io_asked *asked;
    uint32_t before = fault_io_log(rig.fault, &asked);
    cr_assert(nvme_rig_put(&rig, 1, 4096) == 0);
    cr_assert(nvme_rig_get(&rig, 1, 4096) == 0);
    uint32_t after = fault_io_log(rig.fault, &asked), reads = 0, writes = 0;
    for (uint32_t i = before; i < after; i++) {
        reads += asked[i].op == SPW_IO_READ;
        writes += asked[i].op == SPW_IO_WRITE;
        if (asked[i].op == SPW_IO_READ)
            cr_expect(asked[i].urgent);
        if (asked[i].op == SPW_IO_WRITE)
            cr_expect(!asked[i].urgent);
    }
    cr_expect(reads == 1);
    cr_expect(writes == 2); /* payload, record */
    end();
}

Test(nvme, a_record_is_written_after_its_payload)
{
    nvme_rig_start(&rig, &(struct nvme_rig_options){0});
    cr_assert(nvme_rig_put(&rig, 1, 4096) == 0); /* there is a segment */
    fault_io_rule(rig.fault, (struct fault_io_rule){.kind = FAULT_IO_HANG, .op = SPW_IO_WRITE});
    uint64_t before = fault_io_count(rig.fault, SPW_IO_WRITE);
    int rc;
    struct nvme_job *job = nvme_rig_put_begin(&rig, 2, 16384, &rc);
    while (!job) { /* its segment is on its way */
        cr_assert(rc == -EAGAIN);
        nvme_rig_poll(&rig);
        job = nvme_rig_put_begin(&rig, 2, 16384, &rc);
    }
    for (uint32_t i = 0; i < 100; i++)
        nvme_rig_poll(&rig);
    cr_expect(fault_io_count(rig.fault, SPW_IO_WRITE) == before + 1);
    fault_io_clear(rig.fault);
    fault_io_release(rig.fault);
    cr_expect(nvme_rig_end(&rig, job) == 0);
    cr_expect(fault_io_count(rig.fault, SPW_IO_WRITE) == before + 2);
    end();
}

Test(nvme, sums_made_when_a_chunk_was_stored_are_taken_and_checked)
{
    nvme_rig_start(&rig, &(struct nvme_rig_options){0});
    static uint8_t payload[8192] __attribute__((aligned(4096)));
    struct nvme_job *job = &rig.job[5]; /* stands for a job of the rig */
    for (uint64_t n = 1; n <= 2; n++) {
        nvme_rig_fill(payload, n, sizeof payload);
        *job = (struct nvme_job){.used = true, .n = n, .bytes = sizeof payload};
        struct spw_cold_put put = {.payload = payload,
                                   .bytes = sizeof payload,
                                   .sum = spw_nvme_sum(payload, sizeof payload) + (n == 2),
                                   .summed = true,
                                   .tag = job};
        nvme_rig_name(n, &put.name);
        int rc;
        while ((rc = rig.cold.ops->put(rig.cold.cold, &put)) == -EAGAIN)
            nvme_rig_poll(&rig);
        cr_assert(rc == 0);
        cr_assert(nvme_rig_end(&rig, job) == 0);
    }
    cr_expect(nvme_rig_get(&rig, 1, sizeof payload) == 0);
    cr_expect(nvme_rig_get(&rig, 2, sizeof payload) == -EBADMSG);
    cr_expect(rig.gone[SPW_COLD_CORRUPT] == 1);
    end();
}

Test(nvme, what_is_dropped_is_gone_and_its_cell_used_again)
{
    nvme_rig_start(&rig, &(struct nvme_rig_options){.cap_bytes = 512 << 10});
    for (uint64_t n = 0; n < 20; n++)
        cr_assert(nvme_rig_put(&rig, n, 4096) == 0);
    uint64_t used = nvme_rig_gauge(&rig).used_bytes;
    for (uint32_t round = 1; round < 10; round++) {
        for (uint64_t n = 0; n < 20; n++)
            nvme_rig_drop(&rig, (round - 1) * 20 + n);
        cr_expect(nvme_rig_gauge(&rig).entries == 0);
        for (uint64_t n = 0; n < 20; n++)
            cr_assert(nvme_rig_put(&rig, round * 20 + n, 4096) == 0);
    }
    cr_expect(rig.went_count == 0); /* drops are the caller's own */
    cr_expect(nvme_rig_gauge(&rig).used_bytes <= used + (64 << 10));
    for (uint64_t n = 180; n < 200; n++)
        cr_expect(nvme_rig_get(&rig, n, 4096) == 0);
    end();
}

Test(nvme, what_is_dropped_while_it_is_read_still_ends_its_read)
{
    int rc;
    nvme_rig_start(&rig, &(struct nvme_rig_options){0});
    cr_assert(nvme_rig_put(&rig, 1, 5000) == 0);
    fault_io_rule(rig.fault, (struct fault_io_rule){.kind = FAULT_IO_HANG, .op = SPW_IO_READ});
    struct nvme_job *job = nvme_rig_get_begin(&rig, 1, 5000, &rc);
    nvme_rig_poll(&rig);
    nvme_rig_drop(&rig, 1);
    for (uint64_t n = 2; n < 30; n++) /* nobody writes over what is being read */
        cr_assert(nvme_rig_put(&rig, n, 5000) == 0);
    fault_io_release(rig.fault);
    cr_expect_eq(nvme_rig_end(&rig, job), -ENOENT);
    cr_expect_eq(nvme_rig_gauge(&rig).entries, 28);
    end();
}

Test(nvme, what_makes_no_sense_is_refused)
{
    int rc;
    uint8_t byte;
    nvme_rig_start(&rig, &(struct nvme_rig_options){.cap_bytes = 4 << 20});
    cr_expect(!nvme_rig_put_begin(&rig, 1, 65537, &rc) && rc == -EFBIG);
    cr_expect(rig.cold.ops->get(rig.cold.cold, 17, &byte, 1, NULL) == -ENOENT);
    cr_expect(rig.cold.ops->get(rig.cold.cold, UINT32_MAX, &byte, 1, NULL) == -ENOENT);
    rig.cold.ops->drop(rig.cold.cold, 17);
    rig.cold.ops->touch(rig.cold.cold, UINT32_MAX);
    rig.cold.ops->demote(rig.cold.cold, 5);
    struct spw_cold_name name;
    uint64_t bytes;
    cr_expect(rig.cold.ops->name(rig.cold.cold, 4000000, &name, &bytes) == -ENOENT);
    cr_assert(nvme_rig_put(&rig, 1, 5000) == 0);
    cr_expect(nvme_rig_get(&rig, 1, 5001) != 0); /* not the bytes that it has */
    end();
}

Test(nvme, a_configuration_that_makes_no_sense_is_refused_with_words)
{
    struct spw_nvme_config good = {.dir = "/tmp",
                                   .shard = 0,
                                   .cap_bytes = 1 << 20,
                                   .ids = 10,
                                   .chunk_bytes_max = 4096,
                                   .reads = 1,
                                   .writes = 1,
                                   .deadline_ns = 1000000000};
    struct spw_nvme_config bad[5] = {good, good, good, good, good};
    bad[0].cap_bytes = SPW_NVME_CAP_MIN - 1;
    bad[1].ids = 0;
    bad[2].chunk_bytes_max = 0;
    bad[3].reads = 0;
    bad[4].dir = "relative";
    for (uint32_t i = 0; i < 5; i++) {
        struct spw_io_config engine = {.depth = 4};
        struct spw_error err = {0};
        struct spw_cold_handle cold;
        cr_assert(spw_io_open(&engine, &bad[i].io, &err) == 0);
        cr_expect(spw_nvme_open(&bad[i], &cold, &err) == -EINVAL, "%u", i);
        cr_expect(err.text[0] != 0, "%u", i);
    }
}

/* ---- who goes -------------------------------------------------------------------------------- */

/* Fill it, and some more; returns how many it takes. */
static uint32_t fill_up(uint64_t first)
{
    uint64_t n = first;
    uint32_t before = rig.went_count;
    while (rig.went_count == before)
        cr_assert(nvme_rig_put(&rig, n++, 4096) == 0);
    return (uint32_t)(n - first) - 1;
}

Test(nvme, the_least_recently_used_goes_first)
{
    nvme_rig_start(&rig, &(struct nvme_rig_options){.cap_bytes = 512 << 10});
    uint32_t room = fill_up(0);
    cr_expect(rig.went[0] == 0);
    for (uint64_t n = 2; n < room; n += 2)
        rig.cold.ops->touch(rig.cold.cold, (uint32_t)nvme_rig_id(&rig, n));
    for (uint32_t i = 0; i < room / 2; i++)
        cr_assert(nvme_rig_put(&rig, 1000 + i, 4096) == 0);
    for (uint32_t i = 1; i < rig.went_count && i < room / 2; i++)
        cr_expect(rig.went[i] == 2 * i - 1, "%u: %lu", i, (unsigned long)rig.went[i]);
    end();
}

Test(nvme, a_chunk_that_was_read_was_used)
{
    nvme_rig_start(&rig, &(struct nvme_rig_options){.cap_bytes = 512 << 10});
    fill_up(0);
    cr_assert_eq(rig.went_count, 1);
    cr_assert_eq(nvme_rig_get(&rig, 1, 4096), 0);
    cr_assert_eq(nvme_rig_put(&rig, 1000, 4096), 0);
    cr_assert_eq(rig.went_count, 2);
    cr_expect_eq(rig.went[1], 2, "%lu", (unsigned long)rig.went[1]);
    end();
}

static bool is_due(void)
{
    uint64_t now_ns = spw_monotonic_ns() + rig.ahead_ns;
    return rig.cold.ops->due_ns(rig.cold.cold, now_ns) <= now_ns;
}

/* Else a worker that has nothing else to do would sleep on it up to a tick. */
Test(nvme, a_put_in_anothers_place_is_due_at_once_and_not_while_it_is_written)
{
    int rc;
    nvme_rig_start(&rig, &(struct nvme_rig_options){.cap_bytes = 512 << 10});
    fill_up(0);
    nvme_rig_quiet(&rig, 0);
    cr_assert_not(is_due());
    fault_io_rule(rig.fault, (struct fault_io_rule){.kind = FAULT_IO_HANG, .op = SPW_IO_WRITE});
    struct nvme_job *job = nvme_rig_put_begin(&rig, 1000, 4096, &rc);
    cr_assert(job);
    cr_expect(is_due(), "a record is to be erased");
    nvme_rig_poll(&rig);
    cr_expect_eq(fault_io_held_count(rig.fault), 1);
    cr_expect_not(is_due(), "it is being erased");
    fault_io_clear(rig.fault);
    fault_io_release(rig.fault);
    cr_expect_eq(nvme_rig_end(&rig, job), 0);
    end();
}

Test(nvme, with_fifo_touching_changes_nothing)
{
    nvme_rig_start(&rig, &(struct nvme_rig_options){.cap_bytes = 512 << 10, .fifo = true});
    uint32_t room = fill_up(0);
    for (uint64_t n = 2; n < room; n += 2)
        rig.cold.ops->touch(rig.cold.cold, (uint32_t)nvme_rig_id(&rig, n));
    for (uint32_t i = 0; i < 20; i++)
        cr_assert(nvme_rig_put(&rig, 1000 + i, 4096) == 0);
    for (uint32_t i = 0; i < rig.went_count; i++)
        cr_expect(rig.went[i] == i);
    end();
}

Test(nvme, what_is_demoted_goes_next_and_what_is_read_does_not)
{
    int rc;
    nvme_rig_start(&rig, &(struct nvme_rig_options){.cap_bytes = 512 << 10});
    fill_up(0);
    rig.cold.ops->demote(rig.cold.cold, (uint32_t)nvme_rig_id(&rig, 30));
    fault_io_rule(rig.fault, (struct fault_io_rule){.kind = FAULT_IO_HANG, .op = SPW_IO_READ});
    struct nvme_job *job = nvme_rig_get_begin(&rig, 1, 4096, &rc);
    cr_assert(job);
    uint32_t before = rig.went_count;
    for (uint32_t i = 0; i < 5; i++)
        cr_assert(nvme_rig_put(&rig, 1000 + i, 4096) == 0);
    cr_expect(rig.went[before] == 30, "%lu", (unsigned long)rig.went[before]);
    for (uint32_t i = before + 1; i < rig.went_count; i++)
        cr_expect(rig.went[i] == i - before + 1, "%lu", (unsigned long)rig.went[i]);
    fault_io_release(rig.fault);
    cr_expect(nvme_rig_end(&rig, job) == 0);
    end();
}

Test(nvme, ids_that_run_out_are_taken_from_the_oldest)
{
    nvme_rig_start(&rig, &(struct nvme_rig_options){.ids = 10});
    for (uint64_t n = 0; n < 30; n++)
        cr_assert(nvme_rig_put(&rig, n, 4096 + n * 400) == 0);
    cr_expect(nvme_rig_held(&rig) == 10);
    cr_expect(rig.gone[SPW_COLD_EVICTED] == 20);
    cr_expect(nvme_rig_get(&rig, 29, 4096 + 29 * 400) == 0);
    end();
}
