#ifndef SPW_TOOLS_WORKER_MAIN_H
#define SPW_TOOLS_WORKER_MAIN_H
/*
 * The body of a worker, a process of its own or a thread of an engine.
 */
#include "shm/atomic.h"
#include "shm/base.h"
#include "tools/config.h"

/** What a worker ends with whose GPU is of no use to this process any more: a new one may help. */
#define SPW_EXIT_GPU_LOST 3

struct spw_worker_which {
    uint32_t k;
    uint64_t pool_id;        /* first word of it; 0: whatever pool has the name      */
    int place_fd;            /* the daemon's places (tools/placing.h), -1: none      */
    bool inside;             /* a thread of a process that has other things to do    */
    spw_atomic32 *is_worker; /* NULL, or 1 from when this is the pool's worker */
};

struct spw_worker_end {
    int status; /* of a worker process                                                       */
    bool left;  /* copies or I/O didn't end: what they use stays as it is, and the worker's lock
                   held, until this process has ended                                        */
    struct spw_error err; /* why, where status isn't 0 */
};

/** Be worker @which->k until *stop is raised or the pool is closed. */
void spw_worker_main(const struct spw_config *config, const struct spw_worker_which *which,
                     const spw_atomic32 *stop, struct spw_worker_end *out_end);

#endif
