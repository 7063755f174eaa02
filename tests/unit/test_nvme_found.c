/* tier/nvme: what a directory says, to whom opens it and while it is open. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/support/env.h"
#include "tests/support/nvme_rig.h"
#include "tier/nvme_medium.h"

TestSuite(nvme_found, .timeout = 60);

#define SECOND 1000000000ull

static struct nvme_rig rig;
static char dir[SUPPORT_PATH_BYTES];

static void make(void)
{
    cr_assert_eq(support_shm_dir(dir), 0);
    nvme_rig_start(&rig, &(struct nvme_rig_options){.dir = dir, .cap_bytes = 32 << 20});
}

static void close_it(void)
{
    nvme_rig_quiet(&rig, 0);
    cr_assert_eq(nvme_rig_close(&rig), 0);
    rig.found = 0;
}

static void again(void)
{
    close_it();
    nvme_rig_again(&rig);
    nvme_rig_until(&rig, SPW_TIER_UP);
}

static void end(void)
{
    nvme_rig_quiet(&rig, 0);
    cr_expect_eq(rig.wrong, 0);
    cr_expect_eq(nvme_rig_gauge(&rig).entries, nvme_rig_held(&rig));
    cr_expect_eq(nvme_rig_close(&rig), 0);
    nvme_rig_fini(&rig);
    support_remove_dir(dir);
}

static void puts_of(uint64_t first, uint64_t beyond)
{
    for (uint64_t n = first; n < beyond; n++)
        cr_assert_eq(nvme_rig_put(&rig, n, 4096), 0);
}

static void path_of(const char *name, char out[256])
{
    snprintf(out, 256, "%s/shard-3/%s", dir, name);
}

/* ---- a scan ---------------------------------------------------------------------------------- */

/* More records than one poll looks at. */
Test(nvme_found, a_scan_goes_on_where_the_last_poll_left_it, .init = make)
{
    enum { CHUNKS = 3000, AT_ONCE = 20 };
    for (uint64_t n = 0; n < CHUNKS; n += AT_ONCE) {
        struct nvme_job *job[AT_ONCE];
        for (uint64_t i = 0; i < AT_ONCE; i++) {
            int rc;
            while (!(job[i] = nvme_rig_put_begin(&rig, n + i, 512, &rc))) {
                cr_assert_eq(rc, -EAGAIN);
                nvme_rig_poll(&rig);
            }
        }
        for (uint32_t i = 0; i < AT_ONCE; i++)
            cr_assert_eq(nvme_rig_end(&rig, job[i]), 0);
    }
    again();
    cr_expect_eq(rig.found, CHUNKS, "%u", rig.found);
    cr_expect_eq(nvme_rig_held(&rig), CHUNKS);
    for (uint64_t n = 0; n < CHUNKS; n += 99)
        cr_expect_eq(nvme_rig_get(&rig, n, 512), 0);
    end();
}

Test(nvme_found, ages_go_on_from_those_that_were_found, .init = make)
{
    enum { CHUNKS = 60, MORE = 1000 };
    rig.options.cap_bytes = 512 << 10;
    again();
    puts_of(0, 50);
    again();
    puts_of(50, CHUNKS);
    again();
    cr_assert_eq(rig.found, CHUNKS);
    for (uint64_t n = MORE; rig.went_count < CHUNKS; n++)
        cr_assert_eq(nvme_rig_put(&rig, n, 4096), 0);
    for (uint32_t i = 0; i < CHUNKS; i++)
        cr_expect_eq(rig.went[i], i, "%u: %lu", i, (unsigned long)rig.went[i]);
    end();
}

Test(nvme_found, with_fifo_a_use_is_none_after_a_start_either, .init = make)
{
    rig.options.fifo = true;
    rig.options.cap_bytes = 512 << 10;
    again();
    puts_of(0, 3);
    rig.cold.ops->touch(rig.cold.cold, (uint32_t)nvme_rig_id(&rig, 0));
    puts_of(3, 20); /* its record is written again with theirs */
    again();
    for (uint64_t n = 1000; rig.went_count < 20; n++)
        cr_assert_eq(nvme_rig_put(&rig, n, 4096), 0);
    for (uint32_t i = 0; i < 20; i++)
        cr_expect_eq(rig.went[i], i, "%u: %lu", i, (unsigned long)rig.went[i]);
    end();
}

Test(nvme_found, what_is_larger_than_chunks_are_now_is_none, .init = make)
{
    puts_of(0, 3);
    cr_assert_eq(nvme_rig_put(&rig, 3, 8192), 0);
    close_it();
    rig.options.chunk_bytes_max = 4096;
    nvme_rig_again(&rig);
    nvme_rig_until(&rig, SPW_TIER_UP);
    cr_expect_eq(rig.found, 3);
    cr_expect_eq(nvme_rig_get(&rig, 3, 8192), -ENOENT);
    end();
}

Test(nvme_found, of_more_chunks_than_may_be_listed_some_are, .init = make)
{
    puts_of(0, 20);
    close_it();
    rig.options.ids = 7;
    nvme_rig_again(&rig);
    nvme_rig_until(&rig, SPW_TIER_UP);
    cr_expect_eq(rig.found, 7);
    cr_expect_eq(nvme_rig_held(&rig), 7);
    puts_of(30, 31);
    cr_expect_eq(nvme_rig_held(&rig), 7);
    end();
}

/* ---- resets ---------------------------------------------------------------------------------- */

Test(nvme_found, resets_are_counted_on_from_what_the_medium_says, .init = make)
{
    for (uint32_t i = 0; i < 3; i++)
        cr_assert_eq(nvme_rig_reset(&rig, 0), 0);
    again();
    puts_of(1, 2);
    cr_assert_eq(nvme_rig_reset(&rig, 0), 0);
    puts_of(2, 3);
    again();
    cr_expect_eq(rig.found, 1, "%u", rig.found);
    cr_expect_eq(nvme_rig_get(&rig, 2, 4096), 0);
    end();
}

static void move_away(char there[256], char away[256])
{
    path_of("", there);
    there[strlen(there) - 1] = '\0';
    snprintf(away, 256, "%s/elsewhere", dir);
    cr_assert_eq(rename(there, away), 0);
    rig.ahead_ns += 2 * SECOND;
    nvme_rig_until(&rig, SPW_TIER_DOWN);
}

Test(nvme_found, one_that_the_medium_has_is_not_counted_twice_when_it_comes_back, .init = make)
{
    char there[256], away[256];
    cr_assert_eq(nvme_rig_reset(&rig, 0), 0);
    cr_assert_eq(nvme_rig_reset_all(&rig), 0);
    puts_of(1, 2);
    move_away(there, away);
    cr_assert_eq(rename(away, there), 0);
    nvme_rig_quiet(&rig, 0);
    rig.ahead_ns += 100 * SECOND;
    nvme_rig_until(&rig, SPW_TIER_UP);
    cr_expect_eq(rig.found, 1);
    cr_expect_eq(nvme_rig_get(&rig, 1, 4096), 0);
    end();
}

/* ---- a dead process's writes ----------------------------------------------------------------- */

/* As a process of the boot @id that died would have left it. */
static void leave_mark(const char *id)
{
    char path[256];
    path_of("busy", path);
    int fd = open(path, O_CREAT | O_WRONLY | O_TRUNC | O_CLOEXEC, 0600);
    cr_assert_geq(fd, 0);
    size_t bytes = strlen(id) + 1;
    cr_assert_eq(write(fd, id, bytes), (ssize_t)bytes);
    close(fd);
}

static void leave_mark_of_this_boot(void)
{
    char id[64] = {0};
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    cr_assert_geq(fd, 0);
    cr_assert_gt(read(fd, id, sizeof id - 1), 36);
    close(fd);
    leave_mark(id);
}

static void open_in_quarantine(void)
{
    rig.options.quarantine_ns = 60 * SECOND;
    nvme_rig_again(&rig);
    for (uint32_t i = 0; i < 100; i++) {
        nvme_rig_poll(&rig);
        usleep(50);
    }
}

Test(nvme_found, a_mark_of_another_boot_holds_up_nothing, .init = make)
{
    puts_of(0, 5);
    close_it();
    leave_mark("01234567-89ab-cdef-0123-456789abcdef\n");
    open_in_quarantine();
    nvme_rig_until(&rig, SPW_TIER_UP);
    puts_of(5, 6);
    close_it();
    leave_mark_of_this_boot(); /* one of this boot does */
    open_in_quarantine();
    while (rig.found < 6)
        nvme_rig_poll(&rig);
    cr_expect_eq(nvme_rig_gauge(&rig).state, SPW_TIER_SCANNING);
    rig.ahead_ns += 61 * SECOND;
    nvme_rig_until(&rig, SPW_TIER_UP);
    end();
}

Test(nvme_found, its_own_directory_that_comes_back_is_written_at_once, .init = make)
{
    char there[256], away[256];
    rig.options.quarantine_ns = 1000 * SECOND;
    again();
    puts_of(1, 2);
    move_away(there, away);
    cr_assert_eq(rename(away, there), 0);
    nvme_rig_quiet(&rig, 0);
    rig.ahead_ns += 100 * SECOND;
    nvme_rig_until(&rig, SPW_TIER_UP);
    puts_of(2, 3);
    end();
}

Test(nvme_found, each_reset_is_written_twice_until_a_dead_processs_writes_have_come, .init = make)
{
    close_it();
    leave_mark_of_this_boot();
    open_in_quarantine();
    for (uint64_t i = 1; i <= 3; i++) {
        cr_assert_eq(nvme_rig_reset(&rig, 0), 0);
        cr_expect_eq(fault_io_count(rig.fault, SPW_IO_WRITE), 2 * i);
    }
    rig.ahead_ns += 61 * SECOND;
    nvme_rig_until(&rig, SPW_TIER_UP);
    cr_assert_eq(nvme_rig_reset(&rig, 0), 0); /* may be one of two still */
    uint64_t before = fault_io_count(rig.fault, SPW_IO_WRITE);
    cr_assert_eq(nvme_rig_reset(&rig, 0), 0);
    cr_expect_eq(fault_io_count(rig.fault, SPW_IO_WRITE), before + 1);
    end();
}

/* Where the record of chunk @n is, in the first segment. */
static off_t find_record(int fd, uint64_t n)
{
    struct spw_nvme_record record;
    off_t at = SPW_NVME_BLOCK;
    while (pread(fd, &record, sizeof record, at) == sizeof record) {
        if (record.key_bytes == 24 && memcmp(record.key, &n, sizeof n) == 0)
            return at;
        at += sizeof record;
    }
    return 0;
}

Test(nvme_found, a_spoilt_record_is_erased_and_not_before_a_dead_processs_writes_have_come,
     .init = make)
{
    static const struct spw_nvme_record none;
    struct spw_nvme_record record;
    char path[256];
    puts_of(0, 5);
    close_it();
    cr_assert(nvme_rig_segment(&rig, 0, path));
    int fd = open(path, O_RDWR | O_CLOEXEC);
    off_t at = find_record(fd, 3);
    cr_assert_gt(at, 0);
    cr_assert_eq(pread(fd, &record, sizeof record, at), sizeof record);
    record.sequence ^= 1;
    cr_assert_eq(pwrite(fd, &record, sizeof record, at), sizeof record);
    leave_mark_of_this_boot();
    open_in_quarantine();
    while (rig.found < 4)
        nvme_rig_poll(&rig);
    nvme_rig_quiet(&rig, 2);
    cr_expect_eq(fault_io_count(rig.fault, SPW_IO_WRITE), 0);
    rig.ahead_ns += 61 * SECOND;
    nvme_rig_until(&rig, SPW_TIER_UP);
    nvme_rig_quiet(&rig, 2);
    cr_expect_eq(fault_io_count(rig.fault, SPW_IO_WRITE), 1);
    cr_assert_eq(pread(fd, &record, sizeof record, at), sizeof record);
    cr_expect_eq(memcmp(&record, &none, sizeof none), 0, "it is erased");
    close(fd);
    cr_expect_eq(nvme_rig_get(&rig, 3, 4096), -ENOENT);
    end();
}

/* ---- looked after ---------------------------------------------------------------------------- */

Test(nvme_found, another_directory_in_its_place_is_noticed, .init = make)
{
    char there[256], away[256];
    puts_of(0, 5);
    path_of("", there);
    there[strlen(there) - 1] = '\0';
    snprintf(away, sizeof away, "%s/elsewhere", dir);
    cr_assert_eq(rename(there, away), 0);
    cr_assert_eq(mkdir(there, 0700), 0);
    rig.ahead_ns += 2 * SECOND;
    nvme_rig_until(&rig, SPW_TIER_DOWN);
    cr_expect_eq(rig.gone[SPW_COLD_AWAY], 5);
    rig.ahead_ns += 100 * SECOND;
    nvme_rig_until(&rig, SPW_TIER_UP);
    cr_expect_eq(nvme_rig_held(&rig), 0);
    puts_of(0, 1);
    end();
}

Test(nvme_found, a_segment_that_was_cut_is_noticed_though_nobody_reads_it, .init = make)
{
    char path[256];
    struct stat st;
    puts_of(0, 5);
    nvme_rig_quiet(&rig, 0);
    cr_assert(nvme_rig_segment(&rig, 0, path));
    cr_assert_eq(stat(path, &st), 0);
    cr_assert_eq(truncate(path, st.st_size - 1), 0);
    rig.ahead_ns += 2 * SECOND;
    for (uint32_t i = 0; i < 20000 && rig.gone[SPW_COLD_CORRUPT] < 5; i++) {
        nvme_rig_poll(&rig);
        usleep(50);
    }
    cr_expect_eq(rig.gone[SPW_COLD_CORRUPT], 5);
    cr_expect_eq(nvme_rig_gauge(&rig).state, SPW_TIER_UP);
    nvme_rig_quiet(&rig, 2);
    cr_expect_neq(access(path, F_OK), 0, "it is removed");
    end();
}

/* 1, 2, 4, 8, 16, 32, 32 ... s apart. */
Test(nvme_found, a_directory_that_stays_away_is_tried_less_and_less_often, .init = make)
{
    char away[SUPPORT_PATH_BYTES + 8];
    snprintf(away, sizeof away, "%s.away", dir);
    cr_assert_eq(rename(dir, away), 0);
    rig.ahead_ns += 2 * SECOND;
    nvme_rig_until(&rig, SPW_TIER_DOWN);
    uint64_t before = fault_io_count(rig.fault, SPW_IO_CALL);
    for (uint32_t i = 0; i < 300; i++, rig.ahead_ns += SECOND)
        nvme_rig_quiet(&rig, 0);
    uint64_t tries = fault_io_count(rig.fault, SPW_IO_CALL) - before;
    cr_expect(tries >= 11 && tries <= 15, "%lu", (unsigned long)tries);
    cr_assert_eq(rename(away, dir), 0);
    rig.ahead_ns += 100 * SECOND;
    nvme_rig_until(&rig, SPW_TIER_UP);
    end();
}

/* ---- how it works ---------------------------------------------------------------------------- */

/* Does a whole aligned block go there past the page cache? */
static bool direct_works(void)
{
    char path[256];
    void *block = NULL;
    path_of("probe", path);
    int fd = open(path, O_CREAT | O_RDWR | O_CLOEXEC | O_DIRECT, 0600);
    cr_assert_eq(posix_memalign(&block, 4096, 4096), 0);
    memset(block, 1, 4096);
    bool works = fd >= 0 && pwrite(fd, block, 4096, 0) == 4096;
    if (fd >= 0)
        close(fd);
    unlink(path);
    free(block);
    return works;
}

Test(nvme_found, the_gauge_says_how_files_are_opened_and_that_no_memory_is_registered, .init = make)
{
    bool direct = direct_works();
    for (uint32_t i = 0; i < 4; i++) {
        rig.options.buffered = i % 2;
        rig.options.engine = i < 2 ? SPW_IO_AUTO : SPW_IO_THREADS;
        again();
        uint32_t mode = nvme_rig_gauge(&rig).mode;
        cr_expect_eq((mode & SPW_TIER_DIRECT) != 0, direct && !rig.options.buffered, "%u", i);
        cr_expect_eq(mode & SPW_TIER_REGISTERED, 0);
        if (i >= 2)
            cr_expect_eq(mode & SPW_TIER_URING, 0);
    }
    end();
}
