#ifndef SPW_TIER_TRANSFER_H
#define SPW_TIER_TRANSFER_H
/*
 * One read or write as a whole: what a call moved too little of is asked for again from there, with
 * offset, length and pointer moved on. Pure.
 */
#include "tier/io.h"

struct spw_transfer {
    enum spw_io_op op; /* READ or WRITE */
    int fd;
    uint64_t offset;
    uint8_t *buffer;
    uint64_t bytes;
    uint64_t moved;       /* of them, so far                     */
    const void *sum_base; /* as in struct spw_io                 */
    uint64_t sum_bytes;
    uint64_t sum; /* once all is there                           */
    int64_t last; /* what the last call said                     */
};

/** What to ask the engine for now. */
void spw_transfer_ask(const struct spw_transfer *transfer, struct spw_io *out_io);

/** The engine's answer. 1 all bytes moved, 0 ask again; -EBADMSG: the file ends before them; another
 * negative errno: it failed. */
int spw_transfer_ended(struct spw_transfer *transfer, const struct spw_io_end *end);

/** Words for one that failed: operation, @name of the file, offset, length, the true result. */
void spw_transfer_say(const struct spw_transfer *transfer, const char *name, char *out,
                      size_t room);

#endif
