/* tier/queue: order, loads apart from stores, places promised and given back. */
#include "tier/queue.h"

#include <criterion/criterion.h>

TestSuite(queue, .timeout = 20);

Test(queue, stores_leave_in_order_of_age)
{
    struct spw_queue queue;
    struct spw_queue_item item[5] = {0};
    spw_queue_init(&queue, 8);
    cr_expect(spw_queue_next(&queue, SPW_COPY_STORE) == NULL);
    for (uint32_t i = 0; i < 5; i++)
        spw_queue_push(&queue, SPW_COPY_STORE, &item[i], 100 + i);
    for (uint32_t i = 0; i < 5; i++) {
        struct spw_queue_item *next = spw_queue_next(&queue, SPW_COPY_STORE);
        cr_assert(next == &item[i]);
        cr_expect(next->queued_ns == 100 + i);
        spw_queue_take(&queue, next);
    }
    cr_expect(spw_queue_next(&queue, SPW_COPY_STORE) == NULL);
}

Test(queue, loads_are_kept_apart)
{
    struct spw_queue queue;
    struct spw_queue_item store = {0}, load = {0};
    spw_queue_init(&queue, 1);
    spw_queue_push(&queue, SPW_COPY_STORE, &store, 0);
    spw_queue_push(&queue, SPW_COPY_LOAD, &load, 0);
    cr_expect(spw_queue_next(&queue, SPW_COPY_LOAD) == &load);
    cr_expect(spw_queue_next(&queue, SPW_COPY_STORE) == &store);
    spw_queue_take(&queue, &load);
    cr_expect(queue.count[SPW_COPY_LOAD] == 0 && queue.count[SPW_COPY_STORE] == 1);
}

Test(queue, an_item_can_be_taken_out_wherever_it_stands)
{
    for (uint32_t gone = 0; gone < 4; gone++) {
        struct spw_queue queue;
        struct spw_queue_item item[4] = {0};
        spw_queue_init(&queue, 4);
        for (uint32_t i = 0; i < 4; i++)
            spw_queue_push(&queue, SPW_COPY_STORE, &item[i], 0);
        spw_queue_take(&queue, &item[gone]);
        cr_expect(queue.count[SPW_COPY_STORE] == 3);
        for (uint32_t i = 0; i < 4; i++) {
            if (i == gone)
                continue;
            cr_assert(spw_queue_next(&queue, SPW_COPY_STORE) == &item[i]);
            spw_queue_take(&queue, &item[i]);
        }
        spw_queue_push(&queue, SPW_COPY_STORE, &item[gone], 0);
        cr_expect(spw_queue_next(&queue, SPW_COPY_STORE) == &item[gone]);
    }
}

Test(queue, promises_no_more_places_than_it_has)
{
    struct spw_queue queue;
    spw_queue_init(&queue, 2);
    cr_expect(spw_queue_promise(&queue));
    cr_expect(spw_queue_promise(&queue));
    cr_expect(!spw_queue_promise(&queue));
    spw_queue_give_back(&queue);
    cr_expect(spw_queue_promise(&queue));
    cr_expect(!spw_queue_promise(&queue));
}
