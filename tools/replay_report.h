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
};

/** Print it; returns 0, or SPW_EXIT_FAILED: wrong bytes, failed loads, or void. */
int spw_replay_report(const struct spw_replay_options *options, struct spw_replay_result *result,
                      const struct spw_replay_workers *workers, FILE *out);

#endif
