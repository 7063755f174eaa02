/* See pin_pieces.h. */
#include "gpu/pin_pieces.h"

#include "shm/base.h"

/* Slots from one place where a slot begins with a page to the next. */
static uint64_t slots_to_page(uint64_t slot_bytes)
{
    uint64_t slots = SPW_PIN_PAGE_BYTES;
    while (slots > 1 && slot_bytes % 2 == 0) {
        slots /= 2;
        slot_bytes /= 2;
    }
    return slots;
}

void spw_pin_pieces_init(struct spw_pin_pieces *pieces, uint64_t bytes, uint64_t slot_bytes,
                         uint64_t most_bytes)
{
    uint64_t slots = most_bytes / slot_bytes, apart = slots_to_page(slot_bytes);
    if (slots >= apart)
        slots -= slots % apart;
    else if (slots == 0)
        slots = 1;
    *pieces = (struct spw_pin_pieces){.bytes = bytes, .piece_bytes = slots * slot_bytes};
    pieces->count = (uint32_t)((bytes + pieces->piece_bytes - 1) / pieces->piece_bytes);
}

uint64_t spw_pin_piece_end(const struct spw_pin_pieces *pieces, uint32_t piece)
{
    uint64_t end = (piece + 1) * pieces->piece_bytes;
    return end < pieces->bytes ? end : pieces->bytes;
}

void spw_pin_piece_pages(const struct spw_pin_pieces *pieces, uint32_t piece, uint64_t *out_off,
                         uint64_t *out_end)
{
    uint64_t end = spw_pin_piece_end(pieces, piece);
    *out_off = spw_align_up(piece * pieces->piece_bytes, SPW_PIN_PAGE_BYTES);
    *out_end = end < pieces->bytes ? end / SPW_PIN_PAGE_BYTES * SPW_PIN_PAGE_BYTES
                                   : spw_align_up(end, SPW_PIN_PAGE_BYTES);
    if (*out_end < *out_off)
        *out_end = *out_off;
}

bool spw_pin_pieces_find(const struct spw_pin_pieces *pieces, uint64_t off, uint64_t bytes,
                         uint32_t *out_piece)
{
    uint64_t from, to;
    if (off >= pieces->bytes)
        return false;
    *out_piece = spw_pin_piece_at(pieces, off);
    spw_pin_piece_pages(pieces, *out_piece, &from, &to);
    return off >= from && off <= to && bytes <= to - off;
}
