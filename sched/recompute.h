#ifndef SPW_SCHED_RECOMPUTE_H
#define SPW_SCHED_RECOMPUTE_H
/*
 * Recompute: what a wait may cost. The price arithmetic of `auto` here; the readers of budgets and
 * prices as people write them are installed: spw_recompute_budget_parse() and _price_parse() in
 * sched/spillway.h.
 *
 * Pure: no memory, no clock, no I/O, no locale.
 */
#include <stdbool.h>
#include <stdint.h>

/**
 * Is waiting @eta_ns worth more than computing @tokens: @eta_ns <= @price x @tokens / @prefill?
 * Exact, for any numbers; UINT64_MAX ns is unknown, and never worth it.
 *
 * @price    what a nanosecond of prefill costs, in nanoseconds of waiting
 * @prefill  tokens a second
 */
bool spw_recompute_pays(uint64_t eta_ns, uint64_t tokens, uint64_t price, uint64_t prefill);

#endif
