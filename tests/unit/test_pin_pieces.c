/* Where pieces of a shard begin and end: whatever size slots have, no page lies in two of them. */
#include "gpu/pin_pieces.h"

#include <criterion/criterion.h>

#include "shm/base.h"

TestSuite(pin_pieces, .timeout = 10);

/* No page lies in two registrations, no slot in two, and what is covered is registered. */
static void check_cut(uint64_t slots, uint64_t slot_bytes, uint64_t most_bytes)
{
    struct spw_pin_pieces pieces;
    uint64_t end_before = 0, covered = 0, from, to;
    uint32_t piece;
    spw_pin_pieces_init(&pieces, slots * slot_bytes, slot_bytes, most_bytes);
    cr_expect(pieces.piece_bytes <= most_bytes || pieces.piece_bytes == slot_bytes);
    for (uint32_t i = 0; i < pieces.count; i++) {
        spw_pin_piece_pages(&pieces, i, &from, &to);
        cr_expect_eq(spw_pin_piece_end(&pieces, i) % slot_bytes, 0);
        cr_expect_geq(from, end_before);
        cr_expect(from % 4096 == 0 && to % 4096 == 0 && from <= to);
        end_before = to;
    }
    cr_expect_leq(end_before, spw_align_up(slots * slot_bytes, 4096));
    for (uint64_t slot = 0; slot < slots; slot++)
        if (spw_pin_pieces_find(&pieces, slot * slot_bytes, slot_bytes, &piece)) {
            spw_pin_piece_pages(&pieces, piece, &from, &to);
            covered++;
            cr_expect(from <= slot * slot_bytes && (slot + 1) * slot_bytes <= to);
        }
    uint64_t seams = pieces.count - 1;
    cr_expect(slots - covered <= 2 * seams * (4096 / slot_bytes + 1),
              "%llu slots of %llu bytes in pieces of %llu", (unsigned long long)slots,
              (unsigned long long)slot_bytes, (unsigned long long)most_bytes);
    if (slot_bytes % 4096 == 0 || most_bytes >= 64 * slot_bytes)
        cr_expect_eq(covered, slots);
    cr_expect(!spw_pin_pieces_find(&pieces, slots * slot_bytes, 1, &piece));
}

Test(pin_pieces, pieces_share_no_page_whatever_size_slots_have)
{
    static const uint64_t sizes[] = {64,   128,   192,   4096,  4160,
                                     6144, 12288, 65536, 65600, 1000000 / 64 * 64};
    static const uint64_t most[] = {1, 4096, 10000, 1 << 16, 1 << 20, 5 << 20};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        for (size_t j = 0; j < sizeof most / sizeof most[0]; j++)
            for (uint64_t slots = 1; slots < 200; slots = slots * 2 + 1)
                check_cut(slots, sizes[i], most[j]);
}
