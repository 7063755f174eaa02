#ifndef SPW_TIER_URING_IO_H
#define SPW_TIER_URING_IO_H
/*
 * I/O engine of one io_uring ring, owned by one thread: the only one that submits to it and reaps
 * it. A second thread makes the calls that a ring doesn't.
 *
 *   order     urgent transfers are handed to the kernel before others; never more than the depth
 *             are with it, so its completion queue can't run over
 *   buffers   memory given at open is registered, in pieces of at most 1 GiB that end at multiples
 *             of a part. A transfer that lies in one piece uses it. Registering is a gain in speed
 *             only: without it all goes on
 *   refusal   where the kernel refuses what it took at first (a filter, an old kernel), the transfer
 *             is done by a plain call; if that works, so is everything from then on, by threads
 *   crash     what the kernel holds goes on after the process (tier/quarantine.h)
 */
#include <liburing.h>

#include "tier/io.h"

#define SPW_URING_PIECE_BYTES_MAX (1ull << 30) /* the kernel's limits of registered buffers */
#define SPW_URING_PIECES_MAX      16384u

/** The calls that enter the kernel; a test's own stand for them. */
struct spw_uring_calls {
    int (*init)(unsigned entries, struct io_uring *ring, struct io_uring_params *params);
    int (*submit_and_wait)(struct io_uring *ring, unsigned wait);
    int (*register_buffers)(struct io_uring *ring, const struct iovec *pieces, unsigned count);
};

/** liburing's. */
extern const struct spw_uring_calls spw_uring_calls;

/** 0, or a negative errno with words: no ring can be had here. Blocks until memory is registered:
 * about 40 ms a GiB that was touched before. */
int spw_uring_io_open(const struct spw_io_config *config, const struct spw_uring_calls *calls,
                      struct spw_io_handle *out_io, struct spw_error *err);

/**
 * Split @memory into pieces to register. Pure.
 * @out  room for @max pieces
 * Their number, or -E2BIG: more than @max would be needed.
 */
int spw_uring_split(const struct iovec *memory, uint32_t count, uint64_t part_bytes,
                    struct iovec *out, uint32_t max);

#endif
