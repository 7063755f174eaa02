/*
 * Two linked lists by age, a pointer to the oldest awaited store, and a count of promised places.
 * Private to the worker.
 */
#include "tier/queue.h"

#include <assert.h>
#include <stddef.h>
#include <string.h>

void spw_queue_init(struct spw_queue *queue, uint32_t store_limit, uint64_t overtake_limit_ns)
{
    memset(queue, 0, sizeof(*queue));
    queue->overtake_limit_ns = overtake_limit_ns;
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
    item->kind = (uint8_t)kind;
    item->awaited = false;
    item->passed_ns = 0;
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

/* ---- order ---------------------------------------------------------------------------------- */

static struct spw_queue_item *awaited_from(struct spw_queue_item *item)
{
    while (item && !item->awaited)
        item = item->after;
    return item;
}

void spw_queue_mark(struct spw_queue *queue,
                    bool (*awaited)(void *ctx, const struct spw_queue_item *item), void *ctx)
{
    queue->awaited = 0;
    for (struct spw_queue_item *item = queue->first[SPW_COPY_STORE]; item; item = item->after) {
        item->awaited = awaited(ctx, item);
        queue->awaited += item->awaited;
    }
    queue->next_awaited = queue->awaited ? awaited_from(queue->first[SPW_COPY_STORE]) : NULL;
}

/* What the overtake limit means: has @oldest been passed over for long enough? */
static bool limit_reached(const struct spw_queue *queue, const struct spw_queue_item *oldest,
                          uint64_t now_ns)
{
    return oldest->passed_ns != 0 && now_ns - oldest->passed_ns >= queue->overtake_limit_ns;
}

struct spw_queue_item *spw_queue_next(struct spw_queue *queue, enum spw_copy_kind kind,
                                      uint64_t now_ns)
{
    struct spw_queue_item *oldest = queue->first[kind];
    if (kind != SPW_COPY_STORE || queue->awaited == 0 || oldest->awaited)
        return oldest;
    if (oldest->passed_ns == 0)
        oldest->passed_ns = now_ns;
    return limit_reached(queue, oldest, now_ns) ? oldest : queue->next_awaited;
}

void spw_queue_walk(const struct spw_queue *queue, uint64_t now_ns,
                    void (*each)(void *ctx, struct spw_queue_item *item), void *ctx)
{
    struct spw_queue_item *oldest = queue->first[SPW_COPY_STORE], *item;
    bool ahead = queue->awaited != 0 && limit_reached(queue, oldest, now_ns);
    uint32_t left = queue->awaited;
    if (ahead && !oldest->awaited)
        each(ctx, oldest);
    for (item = queue->next_awaited; left != 0; item = awaited_from(item->after), left--)
        each(ctx, item);
    for (item = oldest; item; item = item->after)
        if (!item->awaited && !(ahead && item == oldest))
            each(ctx, item);
}

void spw_queue_take(struct spw_queue *queue, struct spw_queue_item *item)
{
    assert(queue->count[item->kind] > 0);
    if (item->awaited && --queue->awaited == 0)
        queue->next_awaited = NULL;
    else if (item == queue->next_awaited)
        queue->next_awaited = awaited_from(item->after);
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
