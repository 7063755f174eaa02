/* See write_budget.h. Private memory of the worker. */
#include "tier/write_budget.h"

#include <string.h>

#define QUARTER_NS (900ull * 1000000000ull)

void spw_write_budget_init(struct spw_write_budget *budget, uint64_t bytes, uint64_t now_ns)
{
    memset(budget, 0, sizeof(*budget));
    budget->bytes = bytes;
    budget->now = now_ns / QUARTER_NS;
}

static void pass_time(struct spw_write_budget *budget, uint64_t now_ns)
{
    uint64_t quarter = now_ns / QUARTER_NS;
    if (quarter - budget->now >= SPW_BUDGET_QUARTERS) {
        spw_write_budget_init(budget, budget->bytes, now_ns);
        return;
    }
    while (budget->now < quarter) {
        uint64_t *oldest = &budget->quarter[++budget->now % SPW_BUDGET_QUARTERS];
        budget->spent -= *oldest;
        *oldest = 0;
    }
}

bool spw_write_budget_allows(struct spw_write_budget *budget, uint64_t bytes, uint64_t now_ns)
{
    if (budget->bytes == 0)
        return true;
    pass_time(budget, now_ns);
    return budget->spent <= budget->bytes && bytes <= budget->bytes - budget->spent;
}

void spw_write_budget_spend(struct spw_write_budget *budget, uint64_t bytes, uint64_t now_ns)
{
    pass_time(budget, now_ns);
    budget->spent += bytes;
    budget->quarter[budget->now % SPW_BUDGET_QUARTERS] += bytes;
}
