#ifndef SPW_TESTS_SUPPORT_RING_FIXTURE_H
#define SPW_TESTS_SUPPORT_RING_FIXTURE_H
/*
 * An update ring in plain memory, and records that tell their position in every word: a record put
 * together from two others is known as torn.
 */
#include "shm/bcast_ring.h"

#define FIXTURE_RECORDS_MAX 1024u

struct ring_fixture {
    struct spw_feed_head head;
    struct spw_ring_slot slot[FIXTURE_RECORDS_MAX];
};

/** The record for position @pos, as author @author writes it. */
static inline struct spw_record stamp_of(uint64_t pos, uint64_t author)
{
    uint64_t x = pos * 0x9e3779b97f4a7c15ull + author;
    return (struct spw_record){{x, x ^ 0x5555555555555555ull, x * 3 + 1}};
}

/** Is @record whole, and the one of @pos by an author from @author_least to @author_most? */
static inline bool stamp_is(const struct spw_record *record, uint64_t pos, uint64_t author_least,
                            uint64_t author_most)
{
    for (uint64_t author = author_least; author <= author_most; author++) {
        struct spw_record want = stamp_of(pos, author);
        if (record->word[0] == want.word[0] && record->word[1] == want.word[1] &&
            record->word[2] == want.word[2])
            return true;
    }
    return false;
}

/** Publish @count records with their stamps. */
static inline void publish_stamped(struct spw_bcast_writer *writer, uint32_t count, uint64_t author)
{
    struct spw_record record[64];
    while (count) {
        uint32_t n = count < 64 ? count : 64;
        for (uint32_t i = 0; i < n; i++)
            record[i] = stamp_of(writer->tail + 1 + i, author);
        spw_bcast_publish(writer, record, n);
        count -= n;
    }
}

#endif
