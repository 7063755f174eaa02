/* See transfer.h. */
#include "tier/transfer.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

void spw_transfer_ask(const struct spw_transfer *transfer, struct spw_io *out_io)
{
    *out_io = (struct spw_io){.op = transfer->op,
                              .fd = transfer->fd,
                              .offset = transfer->offset + transfer->moved,
                              .buffer = transfer->buffer + transfer->moved,
                              .bytes = transfer->bytes - transfer->moved,
                              .sum_base = transfer->sum_base,
                              .sum_bytes = transfer->sum_bytes,
                              .urgent = transfer->op == SPW_IO_READ};
}

int spw_transfer_ended(struct spw_transfer *transfer, const struct spw_io_end *end)
{
    transfer->last = end->result;
    if (end->result == -EINTR || end->result == -EAGAIN)
        return 0;
    if (end->result < 0)
        return (int)end->result;
    if (end->result == 0 || (uint64_t)end->result > transfer->bytes - transfer->moved)
        return transfer->op == SPW_IO_READ ? -EBADMSG : -EIO;
    transfer->moved += (uint64_t)end->result;
    if (transfer->moved < transfer->bytes)
        return 0;
    transfer->sum = end->sum;
    return 1;
}

void spw_transfer_say(const struct spw_transfer *transfer, const char *name, char *out, size_t room)
{
    const char *op = transfer->op == SPW_IO_READ ? "read" : "write";
    if (transfer->last < 0)
        snprintf(out, room, "%s of %" PRIu64 " bytes at %" PRIu64 " of %s: %s", op,
                 transfer->bytes - transfer->moved, transfer->offset + transfer->moved, name,
                 strerror((int)-transfer->last));
    else
        snprintf(out, room,
                 "%s of %" PRIu64 " bytes at %" PRIu64 " of %s ended after %" PRIu64 " of them", op,
                 transfer->bytes, transfer->offset, name, transfer->moved);
}
