#ifndef SPW_GPU_PIECES_H
#define SPW_GPU_PIECES_H
/*
 * From block ids to the pieces of memory that a copy moves. Pure.
 *
 * A *plane* is one part of one tensor: block b's bytes lie at base + b * block_stride. In a slot the
 * planes lie one behind the other, of each the chunk's blocks in order; so blocks that are neighbours
 * in the tensor are neighbours there, and move as one piece.
 */
#include <stdint.h>

struct spw_plane {
    uint64_t base; /* address of block 0's bytes                              */
    uint64_t block_stride;
    uint64_t before_bytes; /* of a block in all planes before: they begin in the slot at
                              before_bytes * blocks of the chunk                      */
    uint64_t bytes;        /* of a block in this plane                                */
};

struct spw_piece {
    uint64_t kv;       /* address        */
    uint64_t slot_off; /* from the slot  */
    uint64_t bytes;
};

/** Expand @blocks of @planes into pieces, merged where both sides lie side by side. @out has room for
 * planes * blocks. Returns how many there are. */
uint32_t spw_pieces_expand(const struct spw_plane *plane, uint32_t planes, const uint32_t *blocks,
                           uint32_t count, struct spw_piece *out);

#endif
