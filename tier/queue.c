/* Two linked lists, oldest first, and a count of promised places. Private to the worker. */
#include "tier/queue.h"

#include <assert.h>
#include <stddef.h>
#include <string.h>

void spw_queue_init(struct spw_queue *queue, uint32_t store_limit)
{
    memset(queue, 0, sizeof(*queue));
    queue->store_limit = store_limit;
}

bool spw_queue_promise(struct spw_queue *queue)
{
    if (queue->promised >= queue->store_limit)
        return false;
    queue->promised++;
    return true;
}

void spw_queue_give_back(struct spw_queue *queue)
{
    assert(queue->promised > 0);
    queue->promised--;
}

void spw_queue_push(struct spw_queue *queue, enum spw_copy_kind kind, struct spw_queue_item *item,
                    uint64_t now_ns)
{
    item->kind = kind;
    item->queued_ns = now_ns;
    item->before = queue->last[kind];
    item->after = NULL;
    if (queue->last[kind])
        queue->last[kind]->after = item;
    else
        queue->first[kind] = item;
    queue->last[kind] = item;
    queue->count[kind]++;
}

struct spw_queue_item *spw_queue_next(const struct spw_queue *queue, enum spw_copy_kind kind)
{
    return queue->first[kind];
}

void spw_queue_take(struct spw_queue *queue, struct spw_queue_item *item)
{
    assert(queue->count[item->kind] > 0);
    if (item->before)
        item->before->after = item->after;
    else
        queue->first[item->kind] = item->after;
    if (item->after)
        item->after->before = item->before;
    else
        queue->last[item->kind] = item->before;
    item->before = item->after = NULL;
    queue->count[item->kind]--;
}
