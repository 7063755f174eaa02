#ifndef SPW_TOOLS_REPLAY_REPORT_H
#define SPW_TOOLS_REPLAY_REPORT_H
/*
 * From a replay's sums to its report and its exit status.
 */
#include <stdio.h>

#include "tools/replay.h"

/** What the workers counted, all together; nominal bytes, clock time. */
struct spw_replay_workers {
    uint64_t bytes_done;
    uint64_t busy_ns; /* time in which a store was under way or waiting */
    uint64_t restarts;
    uint64_t awaited_stores;    /* chunks stored that somebody awaited when their copy began */
    uint64_t overtaking_stores; /* copies that began before that of an older store */
    uint64_t from_below;        /* chunks that came up and were not let go of unread */
};

/**
 * Make the report of a run through a real pool under the policy called @policy (borrowed by the
 * report); words on what went wrong go to standard error. Returns false for failed loads, or
 * waits that don't add up.
 */
bool spw_replay_report(const struct spw_replay_options *options, const char *policy,
                       struct spw_replay_result *result, const struct spw_replay_workers *workers,
                       struct spw_report *out_report);

/** Print them; returns 0, or SPW_EXIT_FAILED: wrong bytes, or void. */
int spw_replay_print(const struct spw_replay_options *options, const struct spw_report *reports,
                     size_t count, FILE *out);

#endif
