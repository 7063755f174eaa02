#ifndef SPW_SCHED_TAIL_H
#define SPW_SCHED_TAIL_H
/*
 * Partial tail: going on from a boundary inside a chunk, where a recurrent state was kept and
 * the other groups have a shorter last object that ends there. Pure, as sched/lookup.h.
 */
#include "sched/lookup.h"

/** Outcome of the search for a partial tail. */
struct spw_tail_result {
    uint8_t action;    /* enum spw_action; miss: no tail decides                              */
    uint8_t reason;    /* load: TAIL; defer: TAIL_RETRY; TAIL_PENDING: the caller judges
                          whether what it gains is worth the wait                             */
    bool more;         /* defer: other boundaries than this one could decide, too             */
    uint64_t boundary; /* load: the one taken; defer: the highest one to wait for             */
    uint8_t verdicts[SPW_GROUPS_MAX]; /* of each group's object at boundary                   */
};

/**
 * Search the boundaries above @end, highest first.
 *
 * @in       checked
 * @end      where the complete part ends; num_computed_tokens if it missed
 * @has_hit  the complete part has tokens to load: then no tail is waited for
 */
void spw_tail_search(const struct spw_lookup_input *in, struct spw_lookup_source *source,
                     uint64_t end, bool has_hit, struct spw_tail_result *out_result);

#endif
