/* tier/io: transfers over each engine, bare and under the seam that gives trouble. */
#include "tier/io.h"

#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "tests/support/fault_io.h"

TestSuite(io, .timeout = 30);

#define SECOND 1000000000ull
#define PART   65536u

struct over {
    enum spw_io_choice engine;
    bool seam;
};

static struct over over[] = {
    {SPW_IO_URING, false}, {SPW_IO_URING, true}, {SPW_IO_THREADS, false}, {SPW_IO_THREADS, true}};

#define EACH_ENGINE(name)                                                                          \
    ParameterizedTestParameters(io, name)                                                          \
    {                                                                                              \
        return cr_make_param_array(struct over, over, sizeof over / sizeof over[0]);               \
    }                                                                                              \
    ParameterizedTest(const struct over *o, io, name)

struct rig {
    struct spw_io_handle io;
    struct fault_io *fault; /* NULL: bare */
    uint8_t *memory;        /* 16 parts   */
    int fd;
};

static int open_file(void)
{
    char path[256];
    const char *folder = getenv("TMPDIR");
    snprintf(path, sizeof path, "%s/spw-io-XXXXXX", folder ? folder : "/tmp");
    int fd = mkostemp(path, O_CLOEXEC);
    cr_assert(fd >= 0);
    unlink(path);
    return fd;
}

static struct rig open_rig(const struct over *o, uint32_t depth)
{
    struct rig rig = {.fd = open_file(), .memory = aligned_alloc(4096, 16 * PART)};
    const struct iovec memory = {rig.memory, 16 * PART};
    struct spw_io_config config = {.choice = o->engine,
                                   .depth = depth,
                                   .memory = &memory,
                                   .memory_count = 1,
                                   .part_bytes = PART};
    struct spw_error err = {0};
    cr_assert(rig.memory);
    cr_assert(spw_io_open(&config, &rig.io, &err) == 0, "%s", err.text);
    if (o->seam) {
        rig.fault = fault_io_open(rig.io, &config, 7, &rig.io);
        fault_io_shuffle(rig.fault);
    }
    return rig;
}

static void close_rig(struct rig *rig)
{
    cr_assert(rig->io.ops->close(rig->io.engine, 10 * SECOND) == 0);
    close(rig->fd);
    free(rig->memory);
}

static int submit(struct rig *rig, const struct spw_io *io)
{
    return rig->io.ops->submit(rig->io.engine, io);
}

/* The next end; waits for it. */
static struct spw_io_end take(struct rig *rig)
{
    struct spw_io_end end;
    uint64_t until = spw_monotonic_ns() + 10 * SECOND;
    while (rig->io.ops->poll(rig->io.engine, &end, 1) == 0) {
        cr_assert(spw_monotonic_ns() < until, "no end came");
        usleep(50);
    }
    return end;
}

static int64_t run(struct rig *rig, struct spw_io io)
{
    cr_assert(submit(rig, &io) == 0);
    return take(rig).result;
}

static void fill(uint8_t *at, uint64_t bytes, uint64_t seed)
{
    for (uint64_t i = 0; i < bytes; i++)
        at[i] = (uint8_t)((seed = seed * 6364136223846793005ull + 1442695040888963407ull) >> 56);
}

static struct spw_io part_io(const struct rig *rig, enum spw_io_op op, uint32_t part, uint64_t at)
{
    return (struct spw_io){.op = op,
                           .fd = rig->fd,
                           .offset = at * PART,
                           .buffer = rig->memory + part * PART,
                           .bytes = PART,
                           .sum_base = rig->memory + part * PART,
                           .sum_bytes = PART};
}

EACH_ENGINE(bytes_come_back_with_their_sum)
{
    struct rig rig = open_rig(o, 4);
    fill(rig.memory, PART, 1);
    struct spw_io io = part_io(&rig, SPW_IO_WRITE, 0, 3);
    cr_assert(submit(&rig, &io) == 0);
    struct spw_io_end end = take(&rig);
    cr_assert(end.result == PART);
    cr_expect(end.sum == XXH3_64bits(rig.memory, PART));
    io = part_io(&rig, SPW_IO_READ, 1, 3);
    cr_assert(submit(&rig, &io) == 0);
    end = take(&rig);
    cr_assert(end.result == PART);
    cr_expect(end.sum == XXH3_64bits(rig.memory, PART));
    cr_expect(memcmp(rig.memory, rig.memory + PART, PART) == 0);
    close_rig(&rig);
}

EACH_ENGINE(a_read_past_the_end_is_short_and_has_no_sum)
{
    struct rig rig = open_rig(o, 4);
    cr_assert(ftruncate(rig.fd, 40960) == 0);
    struct spw_io io = part_io(&rig, SPW_IO_READ, 0, 0);
    cr_assert(submit(&rig, &io) == 0);
    struct spw_io_end end = take(&rig);
    cr_expect(end.result == 40960);
    cr_expect(end.sum == 0);
    io.offset = 40960;
    cr_expect(run(&rig, io) == 0);
    close_rig(&rig);
}

static int64_t call_it(void *arg)
{
    return *(int *)arg;
}

EACH_ENGINE(calls_and_syncs_end_with_what_they_return)
{
    struct rig rig = open_rig(o, 2);
    int good = 17, bad = -ENOSPC;
    cr_expect(run(&rig, (struct spw_io){.op = SPW_IO_CALL, .call = call_it, .arg = &good}) == 17);
    cr_expect(run(&rig, (struct spw_io){.op = SPW_IO_CALL, .call = call_it, .arg = &bad}) ==
              -ENOSPC);
    cr_expect(run(&rig, (struct spw_io){.op = SPW_IO_SYNC, .fd = rig.fd}) == 0);
    cr_expect(run(&rig, (struct spw_io){.op = SPW_IO_SYNC, .fd = -1}) == -EBADF);
    close_rig(&rig);
}
