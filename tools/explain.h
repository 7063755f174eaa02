#ifndef SPW_TOOLS_EXPLAIN_H
#define SPW_TOOLS_EXPLAIN_H
/*
 * What `spillway explain` shows: gathered into plain numbers, then printed.
 */
#include <stdbool.h>

#include "sched/explain.h"

struct spw_explain_line {
    uint64_t n; /* number of the record */
    struct spw_explained explained;
};

struct spw_explain_view {
    const char *pool; /* borrowed */
    bool daemon_alive;
    bool attached; /* its holder lives */
    uint32_t client;
    uint64_t generation; /* 0: nobody ever was */
    uint64_t pid;
    char label[48];
    uint64_t now_ns; /* CLOCK_MONOTONIC */
    uint64_t made;   /* decisions of this holder, ever */
    uint32_t passed; /* overwritten, or not whole, when looked at */
    uint32_t damaged;
    uint32_t count;
    struct spw_explain_line line[SPW_DECISION_RECORDS];
};

void spw_explain_print_text(const struct spw_explain_view *view);

/** Returns 0 or -ENOMEM. */
int spw_explain_print_json(const struct spw_explain_view *view);

#endif
