#ifndef SPW_GPU_PIN_PIECES_H
#define SPW_GPU_PIN_PIECES_H
/*
 * How a shard's payload is cut into pieces that are registered one by one. Pure.
 *
 *   seams     lie between two slots (slot_bytes each), so that no slot lies in two registrations
 *   pages     a registration pins whole pages, and two must not share one: seams lie on pages, too,
 *             wherever the least common multiple of the two sizes fits a piece. Where it doesn't, a
 *             piece's registration begins and ends with its whole pages, and the slots at the seam
 *             are in none: they are copied like memory that isn't pinned
 *   header    the object's first page is in none
 */
#include <stdbool.h>
#include <stdint.h>

#define SPW_PIN_PAGE_BYTES  4096u
#define SPW_PIN_PIECE_BYTES (1ull << 30) /* some kernels pin no more than 2 GiB in one call */

struct spw_pin_pieces {
    uint64_t bytes;       /* of payload; it begins on a page and its last page is its own */
    uint64_t piece_bytes; /* from seam to seam                                            */
    uint32_t count;
};

/** Cut @bytes of payload in slots of @slot_bytes; a piece has at most @most_bytes, but one slot at
 * least. */
void spw_pin_pieces_init(struct spw_pin_pieces *pieces, uint64_t bytes, uint64_t slot_bytes,
                         uint64_t most_bytes);
/** The piece that byte @off of the payload lies in. */
static inline uint32_t spw_pin_piece_at(const struct spw_pin_pieces *pieces, uint64_t off)
{
    return (uint32_t)(off / pieces->piece_bytes);
}
/** Where the next one begins. */
uint64_t spw_pin_piece_end(const struct spw_pin_pieces *pieces, uint32_t piece);
/** What is registered of it: whole pages from *out_off up to *out_end; none where the two are equal. */
void spw_pin_piece_pages(const struct spw_pin_pieces *pieces, uint32_t piece, uint64_t *out_off,
                         uint64_t *out_end);
/** Do so many bytes from @off on lie in what is registered of one piece? That one is *out_piece. */
bool spw_pin_pieces_find(const struct spw_pin_pieces *pieces, uint64_t off, uint64_t bytes,
                         uint32_t *out_piece);

#endif
