/*
 * The store queue with a mistake.
 *
 *   no_limit    the oldest store is passed over for ever
 *   marks_kept  what was awaited once stays so
 */
#include "tests/stress/tier_mutants.h"

#include <string.h>

#include "tier/queue.h"

static bool no_limit, marks_kept;

void queue_mutant_set_up(const char *name)
{
    no_limit = strcmp(name, "no_limit") == 0;
    marks_kept = strcmp(name, "marks_kept") == 0;
}

#define spw_queue_init true_init
#define spw_queue_mark true_mark
void spw_queue_init(struct spw_queue *queue, uint32_t store_limit, uint64_t overtake_limit_ns);
void spw_queue_mark(struct spw_queue *queue,
                    bool (*awaited)(void *ctx, const struct spw_queue_item *item), void *ctx);
#include "tier/queue.c"
#undef spw_queue_init
#undef spw_queue_mark

void spw_queue_init(struct spw_queue *queue, uint32_t store_limit, uint64_t overtake_limit_ns)
{
    true_init(queue, store_limit, no_limit ? UINT64_MAX : overtake_limit_ns);
}

struct asking {
    bool (*awaited)(void *ctx, const struct spw_queue_item *item);
    void *ctx;
};

static bool awaited_or_was(void *ctx, const struct spw_queue_item *item)
{
    const struct asking *asking = ctx;
    return asking->awaited(asking->ctx, item) || (marks_kept && item->awaited);
}

void spw_queue_mark(struct spw_queue *queue,
                    bool (*awaited)(void *ctx, const struct spw_queue_item *item), void *ctx)
{
    true_mark(queue, awaited_or_was, &(struct asking){awaited, ctx});
}
