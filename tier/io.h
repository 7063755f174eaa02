#ifndef SPW_TIER_IO_H
#define SPW_TIER_IO_H
/*
 * What an I/O engine must do: reads, writes and other calls on files that may take long, without
 * ever holding up whoever asks. Two engines (tier/uring_io.h, tier/thread_io.h) behave alike; tests
 * put a seam between them and the store (tests/support/fault_io.h).
 *
 *   roles     one thread calls everything here: the worker's. Engines have threads of their own,
 *             which alone enter the kernel for a file
 *   end       each accepted transfer gets exactly one end, in any order, however late. Until then
 *             its buffer may be read or written, also when nobody waits for it any more
 *   result    what the system call would say: fewer bytes than asked for is no error here. Whoever
 *             asks goes on from there (tier/transfer.h)
 *   wake      a callback says that poll has something to give; it comes from an engine's thread
 *   crash     transfers may outlive the process, see tier/quarantine.h
 */
#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#include "shm/base.h"

#define SPW_IO_DEPTH_MAX 4096u
#define SPW_IO_WAITING   4u /* transfers accepted are at most this many times the depth */

enum spw_io_op {
    SPW_IO_READ,
    SPW_IO_WRITE,
    SPW_IO_SYNC, /* fdatasync                                                              */
    SPW_IO_CALL, /* any other call that may block: open, fallocate, unlink, readdir        */
};

struct spw_io {
    enum spw_io_op op;
    int fd;
    uint64_t offset;
    void *buffer; /* borrowed until the end; @bytes of it */
    uint64_t bytes;
    /* READ, WRITE: make the checksum of [sum_base, sum_base + sum_bytes), after a read that moved all
     * its bytes, and at any time of a write: they don't change until its end. 0 bytes: none */
    const void *sum_base;
    uint64_t sum_bytes;
    int64_t (*call)(
        void *arg); /* CALL: 0 or more, or a negative errno; in a thread of the engine */
    void *arg;
    bool urgent; /* goes ahead of those that are not and have not been handed to the kernel */
    void *tag;   /* comes back */
};

struct spw_io_end {
    void *tag;
    int64_t result; /* bytes moved, or what CALL returned, or a negative errno */
    uint64_t sum;   /* XXH3_64bits, where it was asked for and all bytes moved */
};

/** What came of it, for status. */
struct spw_io_mode {
    bool uring;
    bool registered;
    char why[160]; /* what was asked for and can't be had, with numbers and remedy; "" = nothing */
};

struct spw_io_engine; /* the engine's own state */

struct spw_io_ops {
    /** Accept @io. 0, or -EAGAIN: SPW_IO_WAITING times the engine's depth are open, a CALL or SYNC
     * counted as one. What is more than the depth waits here, where urgent ones overtake it: whoever
     * wants reads to go first leaves them room. Never blocks. */
    int (*submit)(struct spw_io_engine *engine, const struct spw_io *io);
    /** Ends there are, at most @max. Never blocks, no system call when there are none. */
    int (*poll)(struct spw_io_engine *engine, struct spw_io_end *out, int max);
    /** How it works now: an engine that finds a kernel refusing what it promised goes on otherwise. */
    void (*mode)(struct spw_io_engine *engine, struct spw_io_mode *out);
    /** Ends the engine's threads; what was not begun never is. Transfers that don't end within
     * @limit_ns are left to the kernel with what they need: -ETIMEDOUT, then buffers must stay. */
    int (*close)(struct spw_io_engine *engine, uint64_t limit_ns);
};

struct spw_io_handle {
    const struct spw_io_ops *ops;
    struct spw_io_engine *engine;
};

enum spw_io_choice { SPW_IO_AUTO, SPW_IO_URING, SPW_IO_THREADS };

struct spw_io_config {
    enum spw_io_choice choice;
    uint32_t depth;             /* transfers with the kernel at once, 1..SPW_IO_DEPTH_MAX      */
    const struct iovec *memory; /* what buffers lie in mostly: registered where that can be    */
    uint32_t memory_count;
    uint64_t part_bytes;     /* registered pieces end at multiples of it, from each start: a chunk's
                                 bytes; 0 = anywhere                                              */
    void (*wake)(void *ctx); /* may be NULL */
    void *wake_ctx;
};

/**
 * Open the engine that @config wants, or with AUTO the best that works: io_uring where a ring can
 * be had and a first transfer works, else threads; memory is registered where it can be, in pieces of
 * at most 1 GiB. What came of it: ops->mode. Blocks shortly. 0, -EINVAL, -ENOMEM; -EOPNOTSUPP: SPW_IO_URING was asked for and
 * can't be had, @err says why.
 */
int spw_io_open(const struct spw_io_config *config, struct spw_io_handle *out_io,
                struct spw_error *err);

#endif
