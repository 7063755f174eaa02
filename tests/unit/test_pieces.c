/* Block ids to pieces, against an expansion byte by byte. */
#include "gpu/pieces.h"

#include <criterion/criterion.h>
#include <stdlib.h>

TestSuite(pieces, .timeout = 20);

#define PLANES 3u
#define COUNT  8u

/* The KV byte that belongs at @slot_off, said by the header. */
static uint64_t kv_of(const struct spw_plane *plane, const uint32_t *blocks, uint32_t count,
                      uint64_t slot_off)
{
    uint32_t p = 0;
    while (p + 1 < PLANES && slot_off >= plane[p + 1].before_bytes * count)
        p++;
    uint64_t in = slot_off - plane[p].before_bytes * count;
    return plane[p].base + blocks[in / plane[p].bytes] * plane[p].block_stride +
           in % plane[p].bytes;
}

Test(pieces, each_byte_of_the_slot_comes_from_its_block_once)
{
    for (uint32_t round = 0; round < 2000; round++) {
        struct spw_plane plane[PLANES];
        struct spw_piece piece[PLANES * COUNT];
        uint32_t blocks[COUNT], count = 1 + (uint32_t)rand() % COUNT;
        uint64_t before = 0, at = 0;
        for (uint32_t p = 0; p < PLANES; p++) {
            uint64_t bytes = 1 + (uint64_t)rand() % 16;
            plane[p] = (struct spw_plane){.base = 100000 * (p + 1),
                                          .block_stride = bytes + (uint64_t)(rand() % 2) * 5,
                                          .before_bytes = before,
                                          .bytes = bytes};
            before += bytes;
        }
        for (uint32_t i = 0; i < count; i++)
            blocks[i] = (uint32_t)rand() % 12;
        uint32_t pieces = spw_pieces_expand(plane, PLANES, blocks, count, piece);
        for (uint32_t i = 0; i < pieces; i++) {
            cr_assert_eq(piece[i].slot_off, at, "in the order of the slot, without a gap");
            for (uint64_t b = 0; b < piece[i].bytes; b++)
                cr_assert_eq(piece[i].kv + b, kv_of(plane, blocks, count, at + b));
            at += piece[i].bytes;
            if (i > 0)
                cr_assert(piece[i - 1].kv + piece[i - 1].bytes != piece[i].kv,
                          "these two could be one");
        }
        cr_assert_eq(at, before * count);
    }
}

Test(pieces, a_whole_chunk_of_neighbours_is_one_piece)
{
    struct spw_plane plane = {.base = 4096, .block_stride = 512, .before_bytes = 0, .bytes = 512};
    struct spw_piece piece[4];
    cr_assert_eq(spw_pieces_expand(&plane, 1, (const uint32_t[]){3, 4, 5, 6}, 4, piece), 1);
    cr_expect_eq(piece[0].kv, 4096 + 3 * 512);
    cr_expect_eq(piece[0].slot_off, 0);
    cr_expect_eq(piece[0].bytes, 2048);
}
