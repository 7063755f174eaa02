#ifndef SPW_SCHED_THREAD_PLACE_H
#define SPW_SCHED_THREAD_PLACE_H
/*
 * Where a scheduler's thread runs, as asked for when it attaches. Files of the kernel are read and
 * the calling thread's affinity is changed; nothing shared.
 */
#include <sched.h>

#include "sched/spillway.h"
#include "shm/base.h"

struct spw_thread_place {
    bool bound; /* it was changed: before is what to go back to */
    cpu_set_t before;
    int refused; /* 0, or why it wasn't, though it was asked for: -EADDRNOTAVAIL the node has no CPU
                    that this thread may use; else what the system denied it with */
};

/**
 * Bind the calling thread as @options say, where they do and it can be had; @out_place is filled for
 * spw_thread_place_undo(). -EINVAL with words: a node that isn't there, a CPU that isn't or isn't
 * allowed, or options that make no sense.
 */
int spw_thread_place(const struct spw_attach_options *options, struct spw_thread_place *out_place,
                     struct spw_error *err);
void spw_thread_place_undo(const struct spw_thread_place *place);

#endif
