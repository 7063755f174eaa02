#ifndef SPW_TESTS_UNIT_IO_RIG_H
#define SPW_TESTS_UNIT_IO_RIG_H
/*
 * An I/O engine, a file that has no name and some memory. Nothing of Criterion: forked children use
 * it too.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/fault_io.h"
#include "tier/uring_io.h"

#define SECOND 1000000000ull
#define PART   65536u
#define PARTS  16u

struct io_rig {
    struct spw_io_handle io;
    struct fault_io *fault; /* NULL: bare  */
    uint8_t *memory;        /* PARTS of PART bytes */
    int fd;
};

/** The file and the memory, no engine. Ends the program when there is none to be had. */
static inline struct io_rig io_rig_without(void)
{
    char path[256];
    const char *folder = getenv("TMPDIR");
    snprintf(path, sizeof path, "%s/spw-io-XXXXXX", folder ? folder : "/tmp");
    struct io_rig rig = {.fd = mkostemp(path, O_CLOEXEC),
                         .memory = aligned_alloc(4096, PARTS * PART)};
    if (rig.fd < 0 || !rig.memory)
        abort();
    unlink(path);
    return rig;
}

static inline int io_rig_submit(struct io_rig *rig, const struct spw_io *io)
{
    return rig->io.ops->submit(rig->io.engine, io);
}

/** The next end; -ETIME as its result when none comes in ten seconds. */
static inline struct spw_io_end io_rig_take(struct io_rig *rig)
{
    struct spw_io_end end = {.result = -ETIME};
    uint64_t until = spw_monotonic_ns() + 10 * SECOND;
    while (rig->io.ops->poll(rig->io.engine, &end, 1) == 0 && spw_monotonic_ns() < until)
        usleep(50);
    return end;
}

static inline int64_t io_rig_run(struct io_rig *rig, struct spw_io io)
{
    int rc = io_rig_submit(rig, &io);
    return rc < 0 ? rc : io_rig_take(rig).result;
}

/** Bytes that are different in each part and for each seed. */
static inline void io_rig_fill(uint8_t *at, uint64_t bytes, uint64_t seed)
{
    for (uint64_t i = 0; i < bytes; i++)
        at[i] = (uint8_t)((seed = seed * 6364136223846793005ull + 1442695040888963407ull) >> 56);
}

/** Part @part of the memory from or to part @at of the file, with its checksum. */
static inline struct spw_io io_rig_part(const struct io_rig *rig, enum spw_io_op op, uint32_t part,
                                        uint64_t at)
{
    uint8_t *buffer = rig->memory + (size_t)part * PART;
    return (struct spw_io){.op = op,
                           .fd = rig->fd,
                           .offset = at * PART,
                           .buffer = buffer,
                           .bytes = PART,
                           .sum_base = buffer,
                           .sum_bytes = PART};
}

/** Write and read back @count parts of other bytes. True if all came back. */
static inline bool io_rig_round_trip(struct io_rig *rig, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        io_rig_fill(rig->memory, PART, i + 1);
        memset(rig->memory + PART, 0, PART);
        if (io_rig_run(rig, io_rig_part(rig, SPW_IO_WRITE, 0, i)) != PART ||
            io_rig_run(rig, io_rig_part(rig, SPW_IO_READ, 1, i)) != PART ||
            memcmp(rig->memory, rig->memory + PART, PART) != 0)
            return false;
    }
    return true;
}

static inline struct spw_io_mode io_rig_mode(struct io_rig *rig)
{
    struct spw_io_mode mode;
    rig->io.ops->mode(rig->io.engine, &mode);
    return mode;
}

/** 0, or what closing said. */
static inline int io_rig_close(struct io_rig *rig)
{
    int rc = rig->io.ops->close(rig->io.engine, 10 * SECOND);
    close(rig->fd);
    free(rig->memory);
    return rc;
}

#endif
