/* tier/nvme: what the next one to open a directory finds, whoever left it and how. */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "shm/alive.h"
#include "tests/support/env.h"
#include "tests/support/nvme_rig.h"

TestSuite(nvme_restart, .timeout = 60);

static struct nvme_rig rig;

static void again(void)
{
    cr_assert(nvme_rig_close(&rig) == 0);
    rig.found = 0;
    nvme_rig_again(&rig);
    nvme_rig_until(&rig, SPW_TIER_UP);
}

static void end(void)
{
    nvme_rig_quiet(&rig, 0);
    struct spw_cold_gauge gauge = nvme_rig_gauge(&rig);
    cr_expect(rig.wrong == 0);
    cr_expect(gauge.entries == nvme_rig_held(&rig));
    cr_expect(gauge.used_bytes >= nvme_rig_on_disk(rig.dir));
    cr_expect(nvme_rig_close(&rig) == 0);
    nvme_rig_fini(&rig);
}

/* ---- what stays ------------------------------------------------------------------------------ */

static char dir[SUPPORT_PATH_BYTES];

/* 1000 that are whole; three whose payloads hang, and its end by SIGKILL. */
static int write_and_die(void *arg)
{
    int rc;
    (void)arg;
    nvme_rig_start(&rig, &(struct nvme_rig_options){.dir = dir});
    for (uint64_t n = 0; n < 1000; n++)
        if (nvme_rig_put(&rig, n, 4096) != 0)
            return 1;
    fault_io_rule(rig.fault, (struct fault_io_rule){.kind = FAULT_IO_HANG, .op = SPW_IO_WRITE});
    for (uint64_t n = 1000; n < 1003;) {
        n += nvme_rig_put_begin(&rig, n, 4096, &rc) != NULL;
        nvme_rig_poll(&rig);
    }
    kill(getpid(), SIGKILL);
    return 2;
}

Test(nvme_restart, IO_11_after_a_kill_all_that_was_whole_is_found_and_nothing_else)
{
    cr_assert(support_shm_dir(dir) == 0);
    pid_t pid = support_fork(write_and_die, NULL);
    cr_assert(support_wait(pid, 20000) == SUPPORT_SIGNALLED + SIGKILL);
    nvme_rig_start(&rig, &(struct nvme_rig_options){.dir = dir});
    cr_expect(rig.found == 1000);
    for (uint64_t n = 0; n < 1003; n++)
        cr_expect(nvme_rig_get(&rig, n, 4096) == (n < 1000 ? 0 : -ENOENT));
    end();
    support_remove_dir(dir);
}

Test(nvme_restart, IO_11_nothing_is_written_while_a_dead_processs_writes_may_come)
{
    int rc;
    cr_assert(support_shm_dir(dir) == 0);
    pid_t pid = support_fork(write_and_die, NULL);
    cr_assert(support_wait(pid, 20000) == SUPPORT_SIGNALLED + SIGKILL);
    nvme_rig_open(&rig, &(struct nvme_rig_options){.dir = dir, .quarantine_ns = 60000000000ull});
    while (rig.found < 1000)
        nvme_rig_poll(&rig);
    for (uint32_t i = 0; i < 100; i++)
        nvme_rig_poll(&rig);
    cr_expect(nvme_rig_gauge(&rig).state == SPW_TIER_SCANNING);
    cr_expect(nvme_rig_get(&rig, 7, 4096) == 0);
    cr_expect(!nvme_rig_put_begin(&rig, 2000, 4096, &rc) && rc == -EAGAIN);
    cr_expect(fault_io_count(rig.fault, SPW_IO_WRITE) == 0);
    rig.ahead_ns += 61000000000ull;
    nvme_rig_until(&rig, SPW_TIER_UP);
    cr_expect(nvme_rig_gauge(&rig).text[0] == 0, "%s", nvme_rig_gauge(&rig).text);
    cr_expect(nvme_rig_put(&rig, 2000, 4096) == 0);
    again(); /* after a clean end there is nothing to wait for */
    end();
    support_remove_dir(dir);
}

Test(nvme_restart, IO_11_chunks_are_given_while_the_rest_is_looked_for)
{
    int rc;
    nvme_rig_start(&rig, &(struct nvme_rig_options){.cap_bytes = 64 << 20});
    for (uint64_t n = 0; n < 400; n++)
        cr_assert(nvme_rig_put(&rig, n, n % 2 ? 4096 : 20000) == 0);
    cr_assert(nvme_rig_close(&rig) == 0);
    nvme_rig_again(&rig);
    cr_expect(nvme_rig_gauge(&rig).state != SPW_TIER_UP);
    fault_io_rule(rig.fault, (struct fault_io_rule){
                                 .kind = FAULT_IO_HANG, .op = SPW_IO_READ, .first = 2, .count = 1});
    while (rig.found == 0)
        nvme_rig_poll(&rig);
    uint64_t there = 0;
    while (nvme_rig_id(&rig, there) < 0)
        there++;
    cr_expect(nvme_rig_gauge(&rig).state == SPW_TIER_SCANNING);
    cr_expect(nvme_rig_get(&rig, there, there % 2 ? 4096 : 20000) == 0);
    cr_expect(!nvme_rig_put_begin(&rig, 1000, 4096, &rc) && rc == -EAGAIN);
    fault_io_release(rig.fault);
    nvme_rig_until(&rig, SPW_TIER_UP);
    cr_expect(nvme_rig_held(&rig) == 400);
    end();
}

Test(nvme_restart, age_outlives_it)
{
    nvme_rig_start(&rig, &(struct nvme_rig_options){.cap_bytes = 512 << 10});
    for (uint64_t n = 0; n < 50; n++)
        cr_assert(nvme_rig_put(&rig, n, 4096) == 0);
    again();
    cr_expect(rig.found == 50);
    while (rig.went_count < 40)
        cr_assert(nvme_rig_put(&rig, 1000 + rig.found++, 4096) == 0);
    for (uint32_t i = 0; i < 40; i++)
        cr_expect(rig.went[i] == i, "%u: %lu", i, (unsigned long)rig.went[i]);
    end();
}

Test(nvme_restart, what_was_dropped_or_of_before_a_reset_stays_away)
{
    const uint64_t other = 5ull << 32;
    nvme_rig_start(&rig, &(struct nvme_rig_options){0});
    for (uint64_t n = 0; n < 20; n++) {
        cr_assert(nvme_rig_put(&rig, n, 4096) == 0);
        cr_assert(nvme_rig_put(&rig, other + n, 4096) == 0);
    }
    for (uint64_t n = 0; n < 5; n++)
        nvme_rig_drop(&rig, n);
    cr_expect(nvme_rig_reset(&rig, 5) == 0);
    cr_expect(rig.gone[SPW_COLD_OLD] == 20);
    cr_assert(nvme_rig_put(&rig, other + 3, 8192) == 0);
    nvme_rig_quiet(&rig, 5);
    again();
    cr_expect(rig.found == 16);
    for (uint64_t n = 0; n < 20; n++) {
        cr_expect(nvme_rig_get(&rig, n, 4096) == (n < 5 ? -ENOENT : 0));
        cr_expect((nvme_rig_id(&rig, other + n) >= 0) == (n == 3));
    }
    cr_expect(nvme_rig_get(&rig, other + 3, 8192) == 0);
    for (uint32_t i = 0; i < 5; i++)
        cr_expect(nvme_rig_reset(&rig, 5) == 0);
    again();
    cr_expect(rig.found == 15);
    end();
}

/* ---- what doesn't belong there --------------------------------------------------------------- */

static void write_file(const char *name, uint64_t bytes)
{
    char path[256];
    snprintf(path, sizeof path, "%s/shard-3/%s", rig.dir, name);
    int fd = open(path, O_CREAT | O_WRONLY, 0600);
    cr_assert(fd >= 0 && ftruncate(fd, (off_t)bytes) == 0);
    close(fd);
}

static bool there(const char *name)
{
    char path[256];
    struct stat st;
    snprintf(path, sizeof path, "%s/shard-3/%s", rig.dir, name);
    return lstat(path, &st) == 0;
}

Test(nvme_restart, IO_11_unfinished_and_foreign_files_are_none_of_it)
{
    char path[256], copy[256];
    nvme_rig_start(&rig, &(struct nvme_rig_options){.cap_bytes = 1 << 20});
    for (uint64_t n = 0; n < 10; n++)
        cr_assert(nvme_rig_put(&rig, n, 4096) == 0);
    cr_assert(nvme_rig_segment(&rig, 0, path));
    write_file("segment-000077", 65536); /* no head yet */
    write_file("segment-000078", 0);
    write_file("segment-79", 4096); /* no name of ours */
    write_file("notes.txt", 4096);
    snprintf(copy, sizeof copy, "%s/shard-3/segment-000080", rig.dir);
    cr_assert(link(path, copy) == 0); /* the same under another number */
    snprintf(copy, sizeof copy, "%s/shard-3/segment-000081", rig.dir);
    cr_assert(symlink(path, copy) == 0);
    again();
    cr_expect(rig.found == 10);
    cr_expect(!there("segment-000077") && !there("segment-000078") && !there("segment-000080") &&
              !there("segment-000081"));
    cr_expect(there("segment-79") && there("notes.txt"));
    for (uint64_t n = 0; n < 10; n++)
        cr_expect(nvme_rig_get(&rig, n, 4096) == 0);
    cr_expect(nvme_rig_put(&rig, 100, 4096) == 0);
    nvme_rig_close(&rig);
    nvme_rig_fini(&rig);
}

/* Heads and records whatever they are: a start, and no wrong byte. */
Test(nvme_restart, damage_anywhere_in_a_segment_costs_chunks_and_gives_no_wrong_byte)
{
    uint64_t dice = 12345;
    nvme_rig_start(&rig, &(struct nvme_rig_options){.cap_bytes = 1 << 20});
    for (uint32_t round = 0; round < 30; round++) {
        char path[256];
        for (uint64_t n = 0; n < 40; n++)
            cr_assert(nvme_rig_put(&rig, round * 100 + n, 5000) == 0);
        cr_assert(nvme_rig_close(&rig) == 0);
        for (uint32_t i = 0; i < 3; i++) {
            uint64_t garbage[8];
            for (uint32_t k = 0; k < 8; k++)
                garbage[k] = dice = dice * 6364136223846793005ull + 1442695040888963407ull;
            if (!nvme_rig_segment(&rig, (uint32_t)(dice >> 60), path))
                continue;
            int fd = open(path, O_WRONLY);
            off_t at = (off_t)((dice >> 20) % (i ? 8192 : 60000));
            cr_assert(pwrite(fd, garbage, sizeof garbage, at) == sizeof garbage);
            close(fd);
        }
        nvme_rig_again(&rig);
        nvme_rig_until(&rig, SPW_TIER_UP);
        for (uint32_t id = 0; id < rig.options.ids; id++)
            if (rig.holds[id]) {
                int rc = nvme_rig_get(&rig, rig.holds[id] - 1, 5000);
                cr_assert(rc == 0 || rc == -EBADMSG, "%d", rc);
            }
    }
    end();
}

/* ---- how it works ---------------------------------------------------------------------------- */

static uint64_t cached(const char *path)
{
    int fd = open(path, O_RDONLY);
    struct stat st;
    cr_assert(fd >= 0 && fstat(fd, &st) == 0);
    uint64_t pages = ((uint64_t)st.st_size + 4095) / 4096, in = 0;
    uint8_t *map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
    uint8_t *vec = calloc(pages, 1);
    cr_assert(map != MAP_FAILED && vec && mincore(map, (size_t)st.st_size, vec) == 0);
    for (uint64_t i = 0; i < pages; i++)
        in += vec[i] & 1;
    munmap(map, (size_t)st.st_size);
    free(vec);
    close(fd);
    return in * 4096;
}

/* Does a whole aligned block go past the page cache there? */
static bool direct_works(void)
{
    char path[256];
    void *block = NULL;
    snprintf(path, sizeof path, "%s/probe", rig.dir);
    int fd = open(path, O_CREAT | O_RDWR | O_CLOEXEC | O_DIRECT, 0600);
    cr_assert(posix_memalign(&block, 4096, 4096) == 0);
    memset(block, 1, 4096);
    bool works = fd >= 0 && write(fd, block, 4096) == 4096;
    if (fd >= 0)
        close(fd);
    unlink(path);
    free(block);
    return works;
}

Test(nvme_restart, IO_10_with_direct_io_the_page_cache_stays_empty)
{
    char path[256];
    uint64_t in_cache = 0;
    nvme_rig_start(&rig, &(struct nvme_rig_options){.cap_bytes = 32 << 20});
    if (!direct_works()) {
        end();
        cr_skip_test("no direct I/O on this file system");
    }
    cr_expect((nvme_rig_gauge(&rig).mode & SPW_TIER_DIRECT) != 0);
    for (uint64_t n = 0; n < 256; n++)
        cr_assert(nvme_rig_put(&rig, n, 65536) == 0);
    for (uint32_t i = 0; nvme_rig_segment(&rig, i, path); i++)
        in_cache += cached(path);
    cr_expect(in_cache < 1 << 20, "%lu", (unsigned long)in_cache);
    end();
}

/* A file system that lets itself be opened for direct I/O and then refuses each write. */
static bool refuses_direct;

ssize_t pwrite(int fd, const void *from, size_t bytes, off_t at)
{
    if (refuses_direct && (fcntl(fd, F_GETFL) & O_DIRECT)) {
        errno = EINVAL;
        return -1;
    }
    return (ssize_t)syscall(SYS_pwrite64, fd, from, bytes, at);
}

Test(nvme_restart, IO_3_direct_io_that_opens_and_does_not_write_is_not_used)
{
    refuses_direct = true;
    nvme_rig_start(&rig, &(struct nvme_rig_options){.engine = SPW_IO_THREADS});
    cr_expect((nvme_rig_gauge(&rig).mode & SPW_TIER_DIRECT) == 0);
    cr_expect(strstr(nvme_rig_gauge(&rig).text, rig.dir) != NULL);
    for (uint64_t n = 0; n < 20; n++) {
        cr_expect(nvme_rig_put(&rig, n, 5000) == 0);
        cr_expect(nvme_rig_get(&rig, n, 5000) == 0);
    }
    end();
}

Test(nvme_restart, IO_10_buffered_is_told_as_such)
{
    nvme_rig_start(&rig, &(struct nvme_rig_options){.buffered = true, .engine = SPW_IO_THREADS});
    cr_expect((nvme_rig_gauge(&rig).mode & (SPW_TIER_DIRECT | SPW_TIER_URING)) == 0);
    cr_expect(nvme_rig_put(&rig, 1, 5000) == 0);
    cr_expect(nvme_rig_get(&rig, 1, 5000) == 0);
    end();
}

/* ---- smaller limits -------------------------------------------------------------------------- */

/* Chunks 0 to 19 of 50000 bytes, 20 to 39 of 5000. */
static uint64_t bytes_of(uint64_t n)
{
    return n < 20 ? 50000 : 5000;
}

static void put_both_sizes(uint64_t cap_bytes)
{
    nvme_rig_start(&rig, &(struct nvme_rig_options){.cap_bytes = cap_bytes});
    for (uint64_t n = 0; n < 40; n++)
        cr_assert(nvme_rig_put(&rig, n, bytes_of(n)) == 0);
}

static void expect_unlisted(uint32_t listed, uint32_t unlisted)
{
    struct spw_cold_gauge gauge = nvme_rig_gauge(&rig);
    cr_expect(rig.found == listed && gauge.entries == listed, "%u found", rig.found);
    cr_expect(gauge.unlisted == unlisted, "%lu unlisted", (unsigned long)gauge.unlisted);
    cr_expect((strstr(gauge.text, "until their room is needed") != NULL) == (unlisted != 0), "%s",
              gauge.text);
}

static uint32_t readable(void)
{
    uint32_t count = 0;
    for (uint64_t n = 0; n < 40; n++) {
        int rc = nvme_rig_get(&rig, n, bytes_of(n));
        cr_expect(rc == 0 || rc == -ENOENT, "chunk %lu: %d", (unsigned long)n, rc);
        count += rc == 0;
    }
    return count;
}

Test(nvme_restart, chunks_too_large_for_one_start_are_found_by_the_next_that_takes_them)
{
    put_both_sizes(0);
    rig.options.chunk_bytes_max = 8192;
    again();
    expect_unlisted(20, 20);
    cr_expect(readable() == 20);
    cr_expect(nvme_rig_put(&rig, 100, 50000) == -EFBIG);
    cr_expect(nvme_rig_put(&rig, 101, 6000) == 0);
    rig.options.chunk_bytes_max = 65536;
    again();
    expect_unlisted(41, 0);
    cr_expect(readable() == 40);
    end();
}

Test(nvme_restart, chunks_too_many_for_one_start_are_found_by_the_next_that_lists_them)
{
    put_both_sizes(0);
    rig.options.ids = 10;
    again();
    expect_unlisted(10, 30);
    cr_expect(readable() == 10);
    rig.options.ids = 4096;
    again();
    expect_unlisted(40, 0);
    cr_expect(readable() == 40);
    end();
}

Test(nvme_restart, chunks_that_are_not_listed_go_first_where_room_is_needed)
{
    put_both_sizes(2 << 20);
    rig.options.chunk_bytes_max = 8192;
    again();
    expect_unlisted(20, 20);
    for (uint64_t n = 100; n < 250; n++)
        cr_assert(nvme_rig_put(&rig, n, 8000) == 0);
    nvme_rig_quiet(&rig, 20);
    cr_expect(rig.gone[SPW_COLD_EVICTED] == 0, "%u listed ones went", rig.gone[SPW_COLD_EVICTED]);
    cr_expect(nvme_rig_gauge(&rig).unlisted == 20, "counted once");
    rig.options.chunk_bytes_max = 65536;
    again();
    cr_expect(rig.found >= 170 && rig.found < 190, "%u found", rig.found);
    cr_expect(readable() == rig.found - 150, "all but those that went");
    cr_expect(nvme_rig_gauge(&rig).text[0] == 0, "%s", nvme_rig_gauge(&rig).text);
    end();
}

/* Of writes asked for since the tier was opened, the @nth: its bytes. */
static uint64_t written(uint32_t nth)
{
    const struct fault_io_asked *asked;
    uint32_t count = fault_io_log(rig.fault, &asked);
    for (uint32_t i = 0; i < count; i++)
        if (asked[i].op == SPW_IO_WRITE && nth-- == 0)
            return asked[i].bytes;
    return 0;
}

/* 5000 and 7000 bytes have cells of one size. */
Test(nvme_restart, a_cell_of_a_chunk_that_is_not_listed_is_erased_before_it_is_written)
{
    nvme_rig_start(&rig, &(struct nvme_rig_options){0});
    for (uint64_t n = 0; n < 20; n++)
        cr_assert(nvme_rig_put(&rig, n, 7000) == 0);
    rig.options.chunk_bytes_max = 6000;
    again();
    expect_unlisted(0, 20);
    cr_assert(nvme_rig_put(&rig, 100, 5000) == 0);
    cr_expect(written(0) == 4096 && written(1) >= 5000 && written(2) == 4096,
              "table, payload, table: %lu, %lu, %lu bytes", (unsigned long)written(0),
              (unsigned long)written(1), (unsigned long)written(2));
    rig.options.chunk_bytes_max = 65536;
    again();
    expect_unlisted(20, 0);
    cr_expect(nvme_rig_get(&rig, 100, 5000) == 0);
    for (uint64_t n = 0; n < 20; n++)
        if (nvme_rig_id(&rig, n) >= 0)
            cr_expect(nvme_rig_get(&rig, n, 7000) == 0);
    end();
}

Test(nvme_restart, a_reset_reaches_chunks_that_are_not_listed)
{
    put_both_sizes(0);
    rig.options.chunk_bytes_max = 8192;
    again();
    cr_assert(nvme_rig_reset(&rig, 0) == 0);
    rig.options.chunk_bytes_max = 65536;
    again();
    expect_unlisted(0, 0);
    end();
}

/* ---- whose it is ----------------------------------------------------------------------------- */

Test(nvme_restart, a_directory_has_one_daemon_and_one_worker_a_shard)
{
    struct spw_error err = {0};
    cr_assert(support_shm_dir(dir) == 0);
    int daemon = spw_nvme_lock(dir, SPW_NVME_DAEMON, &err);
    int first = spw_nvme_lock(dir, 0, &err), second = spw_nvme_lock(dir, 1, &err);
    cr_assert(daemon >= 0 && first >= 0 && second >= 0);
    cr_expect(spw_nvme_lock(dir, SPW_NVME_DAEMON, &err) == -EBUSY);
    cr_expect(strstr(err.text, dir) != NULL, "%s", err.text);
    cr_expect(spw_nvme_lock(dir, 1, &err) == -EBUSY);
    spw_lock_close(second);
    second = spw_nvme_lock(dir, 1, &err);
    cr_expect(second >= 0);
    spw_lock_close(daemon);
    spw_lock_close(first);
    spw_lock_close(second);
    char gone[160];
    snprintf(gone, sizeof gone, "%s/not-there", dir);
    cr_expect(spw_nvme_lock(gone, SPW_NVME_DAEMON, &err) == -ENOENT);
    cr_expect(strstr(err.text, gone) != NULL);
    support_remove_dir(dir);
}

/* An id is free as soon as its chunk is gone, told of or not. */
Test(nvme_restart, nobody_is_told_of_a_find_whose_id_is_another_chunks_by_then)
{
    enum { CHUNKS = 20 };
    static _Alignas(4096) uint8_t payload[4096];
    struct spw_cold_event event[CHUNKS + 8];
    nvme_rig_start(&rig, &(struct nvme_rig_options){.ids = CHUNKS});
    for (uint64_t n = 0; n < CHUNKS; n++)
        cr_assert_eq(nvme_rig_put(&rig, n, sizeof payload), 0);
    nvme_rig_quiet(&rig, 0);
    cr_assert_eq(nvme_rig_close(&rig), 0);
    nvme_rig_again(&rig);
    struct spw_cold *cold = rig.cold.cold;
    while (nvme_rig_gauge(&rig).entries < CHUNKS || nvme_rig_gauge(&rig).state != SPW_TIER_UP)
        rig.cold.ops->poll(cold, spw_monotonic_ns(), event, 0); /* found, and nobody is told */
    rig.cold.ops->drop(cold, 7);
    struct spw_cold_put put = {.payload = payload, .bytes = sizeof payload};
    nvme_rig_name(1000, &put.name);
    cr_assert_eq(rig.cold.ops->put(cold, &put), 0, "it gets the only id that is free");
    uint32_t found = 0, ended = 0;
    for (uint64_t until = spw_monotonic_ns() + 5000000000ull;
         ended == 0 && spw_monotonic_ns() < until;) {
        int count = rig.cold.ops->poll(cold, spw_monotonic_ns(), event, CHUNKS + 8);
        for (int i = 0; i < count; i++) {
            cr_expect(event[i].kind != SPW_COLD_FOUND || event[i].id != 7, "7 is another one");
            found += event[i].kind == SPW_COLD_FOUND;
            ended += event[i].kind == SPW_COLD_PUT && event[i].id == 7;
        }
    }
    cr_expect(found == CHUNKS - 1 && ended == 1, "%u found, %u put", found, ended);
    cr_expect_eq(nvme_rig_close(&rig), 0);
    nvme_rig_fini(&rig);
}
