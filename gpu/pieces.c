/* See pieces.h. */
#include "gpu/pieces.h"

#include <stdbool.h>

static bool extends(const struct spw_piece *piece, const struct spw_piece *next)
{
    return piece->kv + piece->bytes == next->kv && piece->slot_off + piece->bytes == next->slot_off;
}

uint32_t spw_pieces_expand(const struct spw_plane *plane, uint32_t planes, const uint32_t *blocks,
                           uint32_t count, struct spw_piece *out)
{
    uint32_t pieces = 0;
    for (uint32_t p = 0; p < planes; p++) {
        for (uint32_t i = 0; i < count; i++) {
            struct spw_piece next = {
                .kv = plane[p].base + blocks[i] * plane[p].block_stride,
                .slot_off = plane[p].before_bytes * count + i * plane[p].bytes,
                .bytes = plane[p].bytes,
            };
            if (pieces != 0 && extends(&out[pieces - 1], &next))
                out[pieces - 1].bytes += next.bytes;
            else
                out[pieces++] = next;
        }
    }
    return pieces;
}
