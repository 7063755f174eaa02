#ifndef SPW_SCHED_THREAD_PLACE_H
#define SPW_SCHED_THREAD_PLACE_H
/*
 * Where a scheduler's thread runs, as asked for when it attaches. Files of the kernel are read and
 * the calling thread's affinity is changed; nothing shared.
 */
#include <sched.h>

#include "sched/spillway.h"
#include "shm/base.h"

/** What a thread was bound to before. */
struct spw_thread_place {
    bool bound; /* it was changed: before is what to go back to */
    cpu_set_t before;
};

/**
 * Bind the calling thread as @options say, where they do; @out_place is filled for spw_thread_place_undo().
 * -EINVAL: a node or CPU that isn't there or isn't allowed; another errno where the system refuses.
 * Each with words.
 */
int spw_thread_place(const struct spw_attach_options *options, struct spw_thread_place *out_place,
                     struct spw_error *err);
void spw_thread_place_undo(const struct spw_thread_place *place);

#endif
