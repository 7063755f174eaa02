/* tier/queue: order, loads apart from stores, places promised and given back. */
#include "tier/queue.h"

#include <criterion/criterion.h>
#include <stdlib.h>

#define NOW   1000ull
#define LIMIT 500ull

TestSuite(queue, .timeout = 20);

Test(queue, stores_leave_in_order_of_age)
{
    struct spw_queue queue;
    struct spw_queue_item item[5] = {0};
    spw_queue_init(&queue, 8, LIMIT);
    cr_expect(spw_queue_next(&queue, SPW_COPY_STORE, NOW) == NULL);
    for (uint32_t i = 0; i < 5; i++)
        spw_queue_push(&queue, SPW_COPY_STORE, &item[i], 100 + i);
    for (uint32_t i = 0; i < 5; i++) {
        struct spw_queue_item *next = spw_queue_next(&queue, SPW_COPY_STORE, NOW);
        cr_assert(next == &item[i]);
        cr_expect(next->queued_ns == 100 + i);
        spw_queue_take(&queue, next);
    }
    cr_expect(spw_queue_next(&queue, SPW_COPY_STORE, NOW) == NULL);
}

Test(queue, loads_are_kept_apart)
{
    struct spw_queue queue;
    struct spw_queue_item store = {0}, load = {0};
    spw_queue_init(&queue, 1, LIMIT);
    spw_queue_push(&queue, SPW_COPY_STORE, &store, 0);
    spw_queue_push(&queue, SPW_COPY_LOAD, &load, 0);
    cr_expect(spw_queue_next(&queue, SPW_COPY_LOAD, NOW) == &load);
    cr_expect(spw_queue_next(&queue, SPW_COPY_STORE, NOW) == &store);
    spw_queue_take(&queue, &load);
    cr_expect(queue.count[SPW_COPY_LOAD] == 0 && queue.count[SPW_COPY_STORE] == 1);
}

Test(queue, an_item_can_be_taken_out_wherever_it_stands)
{
    for (uint32_t gone = 0; gone < 4; gone++) {
        struct spw_queue queue;
        struct spw_queue_item item[4] = {0};
        spw_queue_init(&queue, 4, LIMIT);
        for (uint32_t i = 0; i < 4; i++)
            spw_queue_push(&queue, SPW_COPY_STORE, &item[i], 0);
        spw_queue_take(&queue, &item[gone]);
        cr_expect(queue.count[SPW_COPY_STORE] == 3);
        for (uint32_t i = 0; i < 4; i++) {
            if (i == gone)
                continue;
            cr_assert(spw_queue_next(&queue, SPW_COPY_STORE, NOW) == &item[i]);
            spw_queue_take(&queue, &item[i]);
        }
        spw_queue_push(&queue, SPW_COPY_STORE, &item[gone], 0);
        cr_expect(spw_queue_next(&queue, SPW_COPY_STORE, NOW) == &item[gone]);
    }
}

Test(queue, promises_no_more_places_than_it_has)
{
    struct spw_queue queue;
    spw_queue_init(&queue, 2, LIMIT);
    cr_expect(spw_queue_promise(&queue));
    cr_expect(spw_queue_promise(&queue));
    cr_expect(!spw_queue_promise(&queue));
    spw_queue_give_back(&queue);
    cr_expect(spw_queue_promise(&queue));
    cr_expect(!spw_queue_promise(&queue));
}

/* ---- awaited first --------------------------------------------------------------------------- */

#define ITEMS 64u

/* Those whose bit is set, by chunk, are awaited. */
static bool in_mask(void *ctx, const struct spw_queue_item *item)
{
    return *(const uint64_t *)ctx >> item->chunk & 1;
}

static void fill(struct spw_queue *queue, struct spw_queue_item *item, uint32_t count)
{
    spw_queue_init(queue, count, LIMIT);
    for (uint32_t i = 0; i < count; i++) {
        item[i] = (struct spw_queue_item){.chunk = i, .nominal_bytes = 1};
        spw_queue_push(queue, SPW_COPY_STORE, &item[i], i);
    }
}

static uint32_t take_next(struct spw_queue *queue, uint64_t now_ns)
{
    struct spw_queue_item *next = spw_queue_next(queue, SPW_COPY_STORE, now_ns);
    cr_assert(next != NULL);
    spw_queue_take(queue, next);
    return next->chunk;
}

static void expect_order(struct spw_queue *queue, uint64_t now_ns, const char *order)
{
    for (; *order; order++) {
        uint32_t chunk = take_next(queue, now_ns);
        cr_expect(chunk == (uint32_t)(*order - '0'), "%u for %c", chunk, *order);
    }
    cr_expect(spw_queue_next(queue, SPW_COPY_STORE, now_ns) == NULL);
    cr_expect(queue->awaited == 0 && queue->next_awaited == NULL);
}

Test(queue, awaited_stores_go_first_by_age_then_the_others_by_age)
{
    struct spw_queue queue;
    struct spw_queue_item item[8];
    uint64_t mask = 1 << 2 | 1 << 3 | 1 << 6;
    fill(&queue, item, 8);
    spw_queue_mark(&queue, in_mask, &mask);
    expect_order(&queue, NOW, "23601457");
}

Test(queue, marks_that_are_gone_restore_the_order_of_age)
{
    struct spw_queue queue;
    struct spw_queue_item item[6];
    uint64_t mask = 1 << 3 | 1 << 4 | 1 << 5;
    fill(&queue, item, 6);
    spw_queue_mark(&queue, in_mask, &mask);
    cr_expect(take_next(&queue, NOW) == 3);
    mask = 0;
    spw_queue_mark(&queue, in_mask, &mask);
    expect_order(&queue, NOW, "01245");
}

Test(queue, what_is_pushed_after_the_mark_waits_for_the_next_one)
{
    struct spw_queue queue;
    struct spw_queue_item item[4];
    uint64_t mask = 1 << 3;
    fill(&queue, item, 3);
    spw_queue_mark(&queue, in_mask, &mask);
    item[3] = (struct spw_queue_item){.chunk = 3, .awaited = true};
    spw_queue_push(&queue, SPW_COPY_STORE, &item[3], NOW);
    cr_expect(spw_queue_next(&queue, SPW_COPY_STORE, NOW) == &item[0]);
    spw_queue_mark(&queue, in_mask, &mask);
    expect_order(&queue, NOW, "3012");
}

Test(queue, awaited_ones_taken_out_elsewhere_leave_the_rest_in_order)
{
    for (uint32_t gone = 0; gone < 6; gone++) {
        struct spw_queue queue;
        struct spw_queue_item item[6];
        uint64_t mask = 1 << 1 | 1 << 3 | 1 << 5;
        const char *const orders[] = {"13524", "35024", "13504", "15024", "13502", "13024"};
        fill(&queue, item, 6);
        spw_queue_mark(&queue, in_mask, &mask);
        spw_queue_take(&queue, &item[gone]);
        expect_order(&queue, NOW, orders[gone]);
    }
}

Test(queue, the_oldest_goes_when_it_was_passed_over_for_the_limit)
{
    struct spw_queue queue;
    struct spw_queue_item item[8];
    uint64_t mask = 0xfc; /* all but 0 and 1 */
    fill(&queue, item, 8);
    spw_queue_mark(&queue, in_mask, &mask);
    cr_expect(take_next(&queue, NOW) == 2);
    cr_expect(take_next(&queue, NOW + LIMIT - 1) == 3);
    struct spw_queue_item *next = spw_queue_next(&queue, SPW_COPY_STORE, NOW + LIMIT);
    cr_expect(next == &item[0] && spw_queue_at_limit(&queue, next));
    cr_expect(take_next(&queue, NOW + LIMIT) == 0);
    cr_expect(take_next(&queue, NOW + LIMIT) == 4, "the next oldest starts its own clock");
    cr_expect(take_next(&queue, NOW + 2 * LIMIT - 1) == 5);
    cr_expect(take_next(&queue, NOW + 2 * LIMIT) == 1);
    expect_order(&queue, NOW + 9 * LIMIT, "67");
}

Test(queue, a_limit_of_nothing_is_the_order_of_age)
{
    struct spw_queue queue;
    struct spw_queue_item item[4];
    uint64_t mask = 0xc;
    fill(&queue, item, 4);
    queue.overtake_limit_ns = 0;
    spw_queue_mark(&queue, in_mask, &mask);
    expect_order(&queue, NOW, "0123");
}

/* The stated bound, from any order of events: passed over for (older ones + 1) limits at most, and
 * every step's walk begins with what goes next. */
struct walked {
    struct spw_queue_item *item[ITEMS];
    uint32_t count;
};

static void note(void *ctx, struct spw_queue_item *item)
{
    struct walked *walked = ctx;
    walked->item[walked->count++] = item;
}

Test(queue, holds_its_bound_and_walks_as_it_goes)
{
    static struct spw_queue_item item[ITEMS];
    static uint64_t late_ns[ITEMS]; /* by then it must have gone */
    struct spw_queue queue;
    uint64_t now_ns = NOW, mask = 0, hits = 0, overtakes = 0;
    srand(7);
    spw_queue_init(&queue, ITEMS, LIMIT);
    for (int round = 0; round < 20000; round++, now_ns += 20) {
        for (uint32_t tries = 0; tries < 3; tries++) {
            uint32_t i = (uint32_t)rand() % ITEMS;
            if (item[i].owner)
                continue;
            item[i] = (struct spw_queue_item){.chunk = i, .owner = &item[i]};
            late_ns[i] = now_ns + (queue.count[SPW_COPY_STORE] + 1) * (LIMIT + 20);
            spw_queue_push(&queue, SPW_COPY_STORE, &item[i], now_ns);
        }
        if (rand() % 200 == 0)
            mask = (uint64_t)rand() << 40 ^ (uint64_t)rand() << 20 ^ (uint64_t)rand();
        spw_queue_mark(&queue, in_mask, &mask);
        struct walked walked = {.count = 0};
        struct spw_queue_item *next = spw_queue_next(&queue, SPW_COPY_STORE, now_ns);
        spw_queue_walk(&queue, now_ns, note, &walked);
        cr_assert(walked.count == queue.count[SPW_COPY_STORE]);
        if (!next)
            continue;
        cr_assert(walked.item[0] == next);
        for (uint32_t w = 2; w < walked.count; w++)
            cr_assert(walked.item[w - 1]->awaited > walked.item[w]->awaited ||
                      (walked.item[w - 1]->awaited == walked.item[w]->awaited &&
                       walked.item[w - 1]->queued_ns <= walked.item[w]->queued_ns));
        hits += spw_queue_at_limit(&queue, next);
        overtakes += spw_queue_overtakes(next);
        cr_assert(now_ns <= late_ns[next->chunk]);
        spw_queue_take(&queue, next);
        next->owner = NULL;
    }
    cr_expect(overtakes > 100 && hits > 10, "%d %d", (int)overtakes, (int)hits);
}
