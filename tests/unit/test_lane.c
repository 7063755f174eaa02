/* Lanes against a queue model, near every wrap, and with numbers that make no sense. */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <stdlib.h>
#include <string.h>

#include "shm/lane.h"

#define SLOTS_MAX 64

TestSuite(lane, .timeout = 30);

static struct spw_lane_slot slot[SLOTS_MAX];
static spw_atomic64 tail_word, head_word;
static struct spw_lane_producer producer;
static struct spw_lane_consumer consumer;

/* A lane in which @pos slots have been produced and consumed. */
static void start(uint32_t slots, uint64_t pos)
{
    memset(slot, 0, sizeof slot);
    for (uint32_t back = 1; back <= slots && pos; back++)
        spw_store_relaxed(&slot[(pos - back) & (slots - 1)].seq, pos - back + 1);
    spw_store_relaxed(&tail_word, pos);
    spw_store_relaxed(&head_word, pos);
    spw_lane_producer_init(&producer, slot, slots, &tail_word, &head_word);
    spw_lane_consumer_init(&consumer, slot, slots, &head_word);
}

static uint64_t made, taken; /* messages, numbered; the queue model is these two numbers */

/* Send message number @made of @size slots: number, size and place in each slot. */
static void send(uint32_t size)
{
    cr_assert_geq(spw_lane_room(&producer, size), size);
    for (uint32_t i = 0; i < size; i++) {
        uint64_t word[7] = {made, size, i, ~made, made * 3, i * 5, 77};
        spw_lane_write(&producer, i, word, sizeof word);
    }
    spw_lane_send(&producer, size);
    made++;
}

/* Take one message; its size, 0 if there is none. Content must be the model's. */
static uint32_t take(void)
{
    uint64_t word[7];
    if (!spw_lane_peek(&consumer, word))
        return 0;
    uint32_t size = (uint32_t)word[1];
    cr_assert_eq(word[0], taken);
    cr_assert_eq(word[2], 0);
    for (uint32_t i = 0; i < size; i++) {
        cr_assert_eq(spw_lane_read(&consumer, i, word, sizeof word), 0);
        cr_assert(word[0] == taken && word[2] == i && word[3] == ~taken && word[6] == 77);
    }
    spw_lane_release(&consumer, size);
    taken++;
    return size;
}

/* ---- SM-3
 * ----------------------------------------------------------------------------------------- */

static const uint64_t starts[] = {0,
                                  8,
                                  (1ull << 32) - 8,
                                  (1ull << 32) - 3,
                                  (1ull << 63) - 8,
                                  (1ull << 63) - 3,
                                  UINT64_MAX - 15,
                                  UINT64_MAX - 7,
                                  UINT64_MAX - 2,
                                  UINT64_MAX};

ParameterizedTestParameters(lane, sm3_every_head_tail_and_size_like_a_queue)
{
    return cr_make_param_array(const uint64_t, starts, sizeof starts / sizeof starts[0]);
}

ParameterizedTest(const uint64_t *pos, lane, sm3_every_head_tail_and_size_like_a_queue)
{
    const uint32_t slots = 8;
    for (uint32_t head = 0; head < slots; head++) {
        for (uint32_t used = 0; used <= slots; used++) {
            for (uint32_t size = 1; size <= slots; size++) {
                start(slots, *pos);
                made = taken = 0;
                for (uint32_t i = 0; i < head; i++) {
                    send(1);
                    cr_assert_eq(take(), 1);
                }
                for (uint32_t i = 0; i < used; i++)
                    send(1);
                bool fits = used + size <= slots;
                cr_assert_eq(spw_lane_room(&producer, size) >= size, fits,
                             "head %u, used %u, size %u", head, used, size);
                cr_assert_eq(spw_lane_room(&producer, slots + 1), slots - used);
                if (fits)
                    send(size);
                for (uint32_t i = 0; i < used; i++)
                    cr_assert_eq(take(), 1);
                cr_assert_eq(take(), fits ? size : 0);
                cr_assert_eq(take(), 0);
                cr_assert_eq(made, taken);
                cr_assert_eq(spw_load_relaxed(&tail_word), *pos + head + used + (fits ? size : 0));
                cr_assert_eq(spw_load_relaxed(&head_word), spw_load_relaxed(&tail_word));
            }
        }
    }
}

Test(lane, sm3_random_sizes_against_the_model)
{
    unsigned seed = 3;
    for (uint32_t slots = 2; slots <= SLOTS_MAX; slots *= 2) {
        uint32_t queue[SLOTS_MAX], used = 0;
        start(slots, 0);
        made = taken = 0;
        for (int i = 0; i < 20000; i++) {
            uint32_t size = 1 + (uint32_t)rand_r(&seed) % slots;
            if (rand_r(&seed) % 2) {
                bool fits = spw_lane_room(&producer, size) >= size;
                cr_assert_eq(fits, used + size <= slots);
                if (fits) {
                    queue[made % SLOTS_MAX] = size;
                    send(size);
                    used += size;
                }
            } else {
                uint32_t got = take();
                cr_assert_eq(got == 0, used == 0);
                if (got)
                    cr_assert_eq(got, queue[(taken - 1) % SLOTS_MAX]);
                used -= got;
            }
        }
    }
}

/* ---- case 33: the consumer stands still
 * -------------------------------------------------------------- */

Test(lane, case33_full_lane_is_told_at_once_and_nothing_is_lost)
{
    start(8, 0);
    made = taken = 0;
    while (spw_lane_room(&producer, 1))
        send(1);
    cr_assert_eq(made, 8);
    for (int i = 0; i < 1000; i++)
        cr_assert_eq(spw_lane_room(&producer, 1), 0);
    for (int i = 0; i < 8; i++)
        cr_assert_eq(take(), 1);
    cr_assert_eq(spw_lane_room(&producer, 8), 8);
}

/* ---- a message is seen whole or not at all
 * ------------------------------------------------------------ */

Test(lane, nothing_is_seen_before_the_first_slots_sequence)
{
    uint64_t word[7] = {1, 2, 3};
    start(8, 0);
    for (uint32_t i = 0; i < 3; i++)
        spw_lane_write(&producer, i, word, sizeof word);
    cr_assert_eq(spw_lane_peek(&consumer, word), 0);
    /* what a producer leaves that dies after its body's sequences */
    spw_store_relaxed(&slot[1].seq, 2);
    spw_store_relaxed(&slot[2].seq, 3);
    cr_assert_eq(spw_lane_peek(&consumer, word), 0);
    cr_assert_eq(spw_lane_highest(slot, 8, 0), 3, "where its successor must not begin before");
}

Test(lane, case31_successor_beyond_the_half_sent_message_is_read_right)
{
    uint64_t word[7] = {0};
    start(8, 0);
    made = taken = 0;
    send(2);
    spw_store_relaxed(&slot[3].seq, 4); /* half of a message at 2..3 */
    uint64_t base = spw_lane_highest(slot, 8, spw_load_relaxed(&tail_word));
    cr_assert_eq(base, 4);
    spw_store_relaxed(&tail_word, base);
    spw_store_relaxed(&head_word, base); /* as the worker does when it acknowledges */
    spw_lane_producer_init(&producer, slot, 8, &tail_word, &head_word);
    spw_lane_consumer_init(&consumer, slot, 8, &head_word);
    made = taken = 10;
    cr_assert_eq(spw_lane_peek(&consumer, word), 0);
    for (int i = 0; i < 30; i++) {
        send(1 + (uint32_t)i % 3);
        cr_assert_eq(take(), 1 + (uint32_t)i % 3);
    }
}

/* A consumer at @from goes on exactly to there, whatever lies behind. */
Test(lane, what_was_sent_without_a_break_is_told_across_every_wrap)
{
    for (size_t i = 0; i < sizeof starts / sizeof starts[0]; i++) {
        uint64_t at = starts[i];
        start(8, at);
        cr_assert_eq(spw_lane_sent(slot, 8, at), at);
        spw_store_relaxed(&slot[(at + 2) & 7].seq, at + 3); /* not ours to reach */
        cr_assert_eq(spw_lane_sent(slot, 8, at), at);
        spw_store_relaxed(&slot[at & 7].seq, at + 1);
        cr_assert_eq(spw_lane_sent(slot, 8, at), at + 1);
        for (uint64_t n = 0; n < 8; n++)
            spw_store_relaxed(&slot[(at + n) & 7].seq, at + n + 1);
        cr_assert_eq(spw_lane_sent(slot, 8, at), at + 8, "a lap at most");
    }
}

Test(lane, highest_is_told_across_every_wrap)
{
    for (size_t i = 0; i < sizeof starts / sizeof starts[0]; i++) {
        start(8, starts[i]);
        cr_assert_eq(spw_lane_highest(slot, 8, starts[i]), starts[i]);
        spw_store_relaxed(&slot[(starts[i] + 2) & 7].seq, starts[i] + 3);
        cr_assert_eq(spw_lane_highest(slot, 8, starts[i]), starts[i] + 3);
    }
}

Test(lane, short_payload_is_followed_by_zeros)
{
    uint8_t out[56];
    start(2, 0);
    memset(out, 0xff, sizeof out);
    spw_lane_write(&producer, 0, out, 56);
    spw_lane_write(&producer, 0, "abc", 3);
    spw_lane_send(&producer, 1);
    cr_assert_eq(spw_lane_peek(&consumer, out), 1);
    cr_assert_eq(memcmp(out, "abc\0\0\0\0\0", 8), 0);
    for (int i = 8; i < 56; i++)
        cr_assert_eq(out[i], 0);
    memset(out, 0xee, sizeof out);
    cr_assert_eq(spw_lane_read(&consumer, 0, out, 2), 0);
    cr_assert_eq(memcmp(out, "ab\xee", 3), 0);
}

/* ---- case 26: numbers of the other side are input
 * -------------------------------------------------------- */

Test(lane, case26_head_that_makes_no_sense_reads_as_full)
{
    start(8, 100);
    made = taken = 0;
    send(1);
    const uint64_t bad[] = {102, 92, 0, UINT64_MAX, 1ull << 63};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        spw_store_relaxed(&head_word, bad[i]);
        cr_assert_eq(spw_lane_room(&producer, 8), 0, "head %lu", bad[i]);
    }
    spw_store_relaxed(&head_word, 101);
    cr_assert_eq(spw_lane_room(&producer, 8), 8);
}

Test(lane, case26_body_that_is_not_there_is_refused)
{
    uint64_t word[7];
    start(8, 0);
    made = taken = 0;
    send(2);
    cr_assert_eq(spw_lane_read(&consumer, 1, word, sizeof word), 0);
    cr_assert_eq(spw_lane_read(&consumer, 2, word, sizeof word), -EBADMSG);
    cr_assert_eq(spw_lane_read(&consumer, 8, word, sizeof word), -EBADMSG);
    cr_assert_eq(spw_lane_read(&consumer, UINT32_MAX, word, sizeof word), -EBADMSG);
    cr_assert_eq(spw_lane_read(&consumer, 0, word, 57), -EBADMSG);
}

Test(lane, case26_random_bytes_give_an_answer_within_bounds)
{
    unsigned seed = 5;
    start(8, 0);
    for (int i = 0; i < 50000; i++) {
        uint64_t word[7], *any = (uint64_t *)slot + (unsigned)rand_r(&seed) % (8 * 8);
        *any = rand_r(&seed) % 2 ? (uint64_t)rand_r(&seed) % 32 : ~(uint64_t)rand_r(&seed);
        spw_store_relaxed(&head_word, (uint64_t)rand_r(&seed) % 32);
        cr_assert_leq(spw_lane_room(&producer, 1 + (uint32_t)rand_r(&seed) % 8), 8);
        if (spw_lane_peek(&consumer, word))
            spw_lane_release(&consumer, 1);
        spw_lane_highest(slot, 8, spw_load_relaxed(&tail_word));
    }
}
