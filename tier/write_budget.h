#ifndef SPW_TIER_WRITE_BUDGET_H
#define SPW_TIER_WRITE_BUDGET_H
/*
 * Bytes that may be written in any 24 hours: a sum over quarters of an hour, counted as a whole until
 * the last of them is a day old. Pure, one thread; time never runs backwards.
 */
#include <stdbool.h>
#include <stdint.h>

#define SPW_BUDGET_QUARTERS 97u /* a day, and the one that runs */

struct spw_write_budget {
    uint64_t bytes; /* a day, 0 = not limited  */
    uint64_t spent; /* sum over all quarters   */
    uint64_t now;   /* number of the one that runs */
    uint64_t quarter[SPW_BUDGET_QUARTERS];
};

void spw_write_budget_init(struct spw_write_budget *budget, uint64_t bytes, uint64_t now_ns);
/** May so many bytes more be written now? */
bool spw_write_budget_allows(struct spw_write_budget *budget, uint64_t bytes, uint64_t now_ns);
/** They are. */
void spw_write_budget_spend(struct spw_write_budget *budget, uint64_t bytes, uint64_t now_ns);

#endif
