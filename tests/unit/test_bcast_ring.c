/* The update ring as one thread sees it: order, laps, wraps, successors, hostile bytes. */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/ring_fixture.h"

TestSuite(bcast_ring, .timeout = 30);

static struct ring_fixture ring;
static struct spw_bcast_writer writer;
static struct spw_bcast_reader reader;

static void start(uint32_t records, uint32_t gate_records, uint64_t tail)
{
    memset(&ring, 0, sizeof ring);
    if (tail)
        spw_bcast_start_at(&ring.head, ring.slot, records, tail);
    cr_assert_eq(spw_bcast_writer_init(&writer, &ring.head, ring.slot, records, gate_records), 0);
    cr_assert_eq(writer.tail, tail);
    cr_assert_eq(spw_bcast_reader_init(&reader, &ring.head, ring.slot, records), 0);
    reader.cursor = tail;
}

/* Drain everything in pieces of @max; the count, or -EOVERFLOW. Each record must be whole. */
static int64_t drain_all(uint32_t max, uint64_t author)
{
    struct spw_record out[64];
    int64_t all = 0;
    int n;
    while ((n = spw_bcast_drain(&reader, out, max)) > 0) {
        for (int i = 0; i < n; i++)
            cr_assert(
                stamp_is(&out[i], reader.cursor - (uint64_t)n + 1 + (uint64_t)i, author, author));
        all += n;
    }
    return n < 0 ? n : all;
}

/* ---- positions near every place where something could wrap (case 16) ------------------------- */

static const uint64_t starts[] = {
    0,
    1,
    (1ull << 32) - 5,
    (1ull << 32) - 1,
    (1ull << 32),
    (1ull << 63) - 9,
    (1ull << 63) - 1,
    (1ull << 63),
    UINT64_MAX - 1024,
    UINT64_MAX - 9,
    UINT64_MAX - 1,
    UINT64_MAX,
};

ParameterizedTestParameters(bcast_ring, case16_records_arrive_in_order_near_every_wrap)
{
    return cr_make_param_array(const uint64_t, starts, sizeof starts / sizeof starts[0]);
}

ParameterizedTest(const uint64_t *tail, bcast_ring, case16_records_arrive_in_order_near_every_wrap)
{
    const uint32_t sizes[][2] = {{2, 1}, {4, 1}, {8, 2}, {64, 8}};
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        for (uint32_t batch = 1; batch <= 40; batch++) {
            start(sizes[s][0], sizes[s][1], *tail);
            for (int round = 0; round < 20; round++) {
                /* what fits in a ring less its gate is always intact */
                uint32_t n = batch % (sizes[s][0] - sizes[s][1] + 1);
                publish_stamped(&writer, n, 1);
                cr_assert_eq(spw_bcast_tail(&reader), writer.tail);
                cr_assert_eq(drain_all(1 + batch % 7, 1), n);
            }
        }
    }
}

/* ---- case 10: a reader stopped for exactly m records ----------------------------------------- */

static bool must_be_intact(uint64_t tail, uint64_t m, uint32_t records, uint32_t gate_records)
{
    /* the gate after m single publishes, from the rule in the header; no wrap at these starts */
    uint64_t gate = (tail + m + gate_records - 1) / gate_records * gate_records;
    return m == 0 || tail + 1 + records > gate;
}

Test(bcast_ring, case10_reader_stopped_for_exactly_some_laps)
{
    const uint32_t records = 8;
    for (uint32_t gate_records = 1; gate_records <= 4; gate_records *= 2) {
        for (uint64_t tail = 100; tail < 108; tail++) {
            for (uint64_t m = 0; m <= 8 * records + 1; m++) {
                start(records, gate_records, tail);
                for (uint64_t i = 0; i < m; i++)
                    publish_stamped(&writer, 1, 1);
                int64_t want =
                    must_be_intact(tail, m, records, gate_records) ? (int64_t)m : -EOVERFLOW;
                cr_assert_eq(drain_all(64, 1), want, "N 8, G %u, tail %lu, m %lu", gate_records,
                             tail, m);
                if (want < 0)
                    cr_assert_eq(reader.cursor, tail, "the cursor stays");
                /* history is never shorter than N - G, never longer than N */
                if (m <= records - gate_records)
                    cr_assert_geq(want, 0);
                if (m > records)
                    cr_assert_lt(want, 0);
            }
        }
    }
}

/* ---- case 38: batches ------------------------------------------------------------------------ */

Test(bcast_ring, case38_batches_of_any_size_are_whole_and_in_order)
{
    const uint32_t records = 16, gate_records = 4;
    for (uint32_t batch = 0; batch <= 3 * records; batch++) {
        for (uint64_t tail = 0; tail < records; tail++) {
            start(records, gate_records, tail + 3 * records);
            uint64_t first_want = writer.tail + 1;
            struct spw_record record[3 * 16];
            for (uint32_t i = 0; i < batch; i++)
                record[i] = stamp_of(first_want + i, 1);
            cr_assert_eq(spw_bcast_publish(&writer, record, batch), first_want);
            cr_assert_eq(spw_bcast_tail(&reader), first_want + batch - 1);
            if (batch > records) {
                cr_assert_eq(drain_all(64, 1), -EOVERFLOW);
                /* its newest records are readable all the same */
                reader.cursor = writer.tail - (records - gate_records);
                cr_assert_eq(drain_all(64, 1), records - gate_records);
            } else if (batch <= records - gate_records) {
                cr_assert_eq(drain_all(64, 1), batch);
            }
        }
    }
}

Test(bcast_ring, gate_covers_every_written_slot_and_never_runs_ahead_by_a_lap)
{
    start(16, 4, 0);
    for (uint32_t batch = 0; batch < 200; batch++) {
        publish_stamped(&writer, batch % 23, 1);
        uint64_t gate = spw_load_relaxed(&ring.head.gate);
        cr_assert_geq(gate, writer.tail);
        cr_assert_lt(gate, writer.tail + 4);
        cr_assert_eq(gate % 4, 0);
    }
}

/* ---- case 9, SM-5: a lapped reader learns it once and goes on from the table ----------------- */

Test(bcast_ring, sm5_lapped_reader_gets_one_gap_then_the_state_then_live_updates)
{
    uint64_t table[8] = {0}, view[8] = {0};
    struct spw_record out[8];
    int gaps = 0, resyncs = 0, n;
    start(8, 2, 0);
    for (uint64_t i = 1; i <= 100; i++) {
        table[i % 8] = i; /* the table first */
        spw_bcast_publish(&writer, &(struct spw_record){{i % 8, i, 0}}, 1);
    }
    for (int round = 0; round < 3; round++) {
        while ((n = spw_bcast_drain(&reader, out, 8)) != 0) {
            if (n < 0) {
                gaps++;
                resyncs++;
                reader.cursor = spw_bcast_tail(&reader);
                memcpy(view, table, sizeof view);
            }
            for (int i = 0; i < n; i++)
                view[out[i].word[0]] = out[i].word[1];
        }
        cr_assert_arr_eq(view, table, sizeof view);
        for (uint64_t i = 0; i < 5; i++) { /* live: no more than the ring holds for sure */
            table[i] += 1000;
            spw_bcast_publish(&writer, &(struct spw_record){{i, table[i], 0}}, 1);
        }
    }
    cr_assert_eq(gaps, 1);
    cr_assert_eq(resyncs, 1);
}

/* ---- cases 1 to 4 and 8: what a dead writer leaves ------------------------------------------- */

Test(bcast_ring, successor_resumes_under_the_same_gate_and_repairs_the_tail)
{
    start(8, 2, 0);
    publish_stamped(&writer, 5, 1);
    uint64_t gate = spw_load_relaxed(&ring.head.gate);
    spw_store_relaxed(&ring.head.tail, 3); /* died before its last two tails */
    struct spw_bcast_writer next;
    cr_assert_eq(spw_bcast_writer_init(&next, &ring.head, ring.slot, 8, 2), 0);
    cr_assert_eq(next.tail, 5);
    cr_assert_eq(spw_bcast_tail(&reader), 5);
    cr_assert_eq(spw_load_relaxed(&ring.head.gate), gate);
    writer = next;
    publish_stamped(&writer, 1, 1);
    cr_assert_eq(drain_all(8, 1), 6);
}

Test(bcast_ring, half_written_record_is_never_delivered)
{
    start(4, 1, 0);
    publish_stamped(&writer, 4, 1);
    reader.cursor = 0;
    /* position 5 was begun: its gate is up, one word of slot 0 is new */
    spw_store_relaxed(&ring.head.gate, 5);
    spw_store_relaxed(&ring.slot[0].word[1], stamp_of(5, 1).word[1]);
    cr_assert_eq(drain_all(1, 1), -EOVERFLOW, "the old record is spoilt, the gate says so");
    reader.cursor = 1;
    cr_assert_eq(drain_all(8, 1), 3, "what lies behind the gate is intact");
    struct spw_bcast_writer next;
    cr_assert_eq(spw_bcast_writer_init(&next, &ring.head, ring.slot, 4, 1), 0);
    cr_assert_eq(next.tail, 4);
    writer = next;
    publish_stamped(&writer, 1, 2); /* the successor says something else at 5 */
    cr_assert_eq(drain_all(8, 2), 1);
}

Test(bcast_ring, cursor_below_a_tail_without_a_record_shows_as_no_news)
{
    start(4, 1, 0);
    publish_stamped(&writer, 1, 1);
    spw_store_relaxed(&ring.head.tail, 2);
    cr_assert_eq(drain_all(4, 1), 1);
    cr_assert(spw_pos_before(reader.cursor, spw_bcast_tail(&reader)), "the caller's GAP");
}

/* ---- what is refused
 * ------------------------------------------------------------------------------ */

Test(bcast_ring, impossible_sizes_are_refused)
{
    const uint32_t bad[][2] = {{0, 1}, {1, 1}, {2, 2}, {3, 1}, {4, 3}, {4, 0}, {4, 8}};
    memset(&ring, 0, sizeof ring);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        cr_assert_eq(spw_bcast_writer_init(&writer, &ring.head, ring.slot, bad[i][0], bad[i][1]),
                     -EINVAL);
    cr_assert_eq(spw_bcast_reader_init(&reader, &ring.head, ring.slot, 1), -EINVAL);
    cr_assert_eq(spw_bcast_reader_init(&reader, &ring.head, ring.slot, 6), -EINVAL);
}

Test(bcast_ring, sequences_that_no_writer_left_are_refused)
{
    start(8, 2, 0);
    publish_stamped(&writer, 3, 1);
    spw_store_relaxed(&ring.slot[5].seq, 4); /* position 4 lies in slot 3 */
    cr_assert_eq(spw_bcast_writer_init(&writer, &ring.head, ring.slot, 8, 2), -EBADMSG);
    spw_store_relaxed(&ring.slot[5].seq, 6 + 80); /* beyond the gate */
    cr_assert_eq(spw_bcast_writer_init(&writer, &ring.head, ring.slot, 8, 2), -EBADMSG);
    spw_store_relaxed(&ring.slot[5].seq, 0);
    cr_assert_eq(spw_bcast_writer_init(&writer, &ring.head, ring.slot, 8, 2), 0);
    spw_store_relaxed(&ring.head.tail, 5); /* a tail beyond the gate */
    cr_assert_eq(spw_bcast_writer_init(&writer, &ring.head, ring.slot, 8, 2), -EBADMSG);
    spw_store_relaxed(&ring.head.tail, 3);
    spw_store_relaxed(&ring.head.gate, 6); /* as far ahead as a batch of two may move it */
    cr_assert_eq(spw_bcast_writer_init(&writer, &ring.head, ring.slot, 8, 2), 0);
    spw_store_relaxed(&ring.head.gate, 7);
    cr_assert_eq(spw_bcast_writer_init(&writer, &ring.head, ring.slot, 8, 2), -EBADMSG);
}

/* Each number that a ring has, damaged so that it is refused: made afresh it lies beyond all that was
 * published, readers of before are lapped, and what is published then arrives. */
Test(bcast_ring, a_refused_ring_is_made_afresh_beyond_everything)
{
    const uint64_t nonsense[] = {0, 1, 200, 1ull << 40, (1ull << 56) + 3, 1ull << 63, UINT64_MAX};
    for (uint32_t i = 0; i < 10 * sizeof nonsense / sizeof nonsense[0]; i++) {
        start(8, 2, 100);
        publish_stamped(&writer, 3, 1);
        spw_atomic64 *at = i % 10 == 0   ? &ring.head.tail
                           : i % 10 == 1 ? &ring.head.gate
                                         : &ring.slot[i % 10 - 2].seq;
        spw_store_relaxed(at, nonsense[i / 10]);
        int rc = spw_bcast_writer_init(&writer, &ring.head, ring.slot, 8, 2);
        uint64_t tail = spw_bcast_afresh_begin(&ring.head, ring.slot, 8, 150);
        if (rc < 0)
            cr_assert_eq(spw_bcast_writer_init(&writer, &ring.head, ring.slot, 8, 2), -EBADMSG);
        spw_bcast_afresh_end(&ring.head, ring.slot, 8, tail);
        cr_assert_eq(spw_bcast_writer_init(&writer, &ring.head, ring.slot, 8, 2), 0);
        cr_assert(writer.tail == tail && spw_pos_before(150, tail) && tail < 1ull << 57);
        cr_assert_eq(drain_all(8, 1), -EOVERFLOW);
        reader.cursor = spw_bcast_tail(&reader);
        publish_stamped(&writer, 3, 1);
        cr_assert_eq(drain_all(8, 1), 3);
    }
}

/* ---- case 26: any bytes
 * --------------------------------------------------------------------------- */

Test(bcast_ring, case26_random_bytes_give_an_answer_within_bounds)
{
    unsigned seed = 7;
    start(16, 4, 0);
    for (int round = 0; round < 20000; round++) {
        struct spw_record out[24];
        publish_stamped(&writer, (uint32_t)rand_r(&seed) % 4, 1);
        for (int hits = rand_r(&seed) % 4; hits > 0; hits--) {
            size_t words = sizeof ring.head / 8 + 16 * sizeof ring.slot[0] / 8;
            uint64_t *word = (uint64_t *)&ring + (uint64_t)rand_r(&seed) % words;
            *word = rand_r(&seed) % 2 ? (uint64_t)rand_r(&seed) % 64
                                      : (uint64_t)rand_r(&seed) << 33 | (uint64_t)rand_r(&seed);
        }
        uint64_t cursor = reader.cursor;
        uint32_t max = (uint32_t)rand_r(&seed) % 24;
        int n = spw_bcast_drain(&reader, out, max);
        cr_assert(n == -EOVERFLOW || (n >= 0 && (uint32_t)n <= max));
        cr_assert_eq(reader.cursor, cursor + (n > 0 ? (uint64_t)n : 0));
        if (n < 0)
            reader.cursor = spw_bcast_tail(&reader);
    }
}

Test(bcast_ring, drain_of_nothing_moves_nothing)
{
    struct spw_record out[1];
    start(4, 1, 0);
    cr_assert_eq(spw_bcast_drain(&reader, out, 1), 0);
    publish_stamped(&writer, 2, 1);
    cr_assert_eq(spw_bcast_drain(&reader, out, 0), 0);
    cr_assert_eq(reader.cursor, 0);
    cr_assert_eq(spw_bcast_drain(&reader, out, 1), 1);
    cr_assert_eq(reader.cursor, 1);
}
