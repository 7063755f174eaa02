#ifndef SPW_TOOLS_WORKERS_H
#define SPW_TOOLS_WORKERS_H
/*
 * The daemon's workers: started, restarted and ended as processes, or watched as threads of engines.
 *
 *   roles     the daemon's one thread; writes ctl's worker states, its phase and bell at the end, and
 *             whether memory is pinned
 *   crash     workers go on without it; a worker is UP only with the incarnation that was stored before
 *   pairs     those of tools/daemon.h
 */
#include <sys/types.h>

#include "shm/pool.h"
#include "tools/below_watch.h"
#include "tools/config.h"
#include "tools/gpu_faults.h"
#include "tools/inside_watch.h"
#include "tools/pin_watch.h"
#include "tools/place_watch.h"

struct spw_worker_process {
    bool inside; /* an engine's thread: neither started nor ended from here */
    struct spw_inside_watch watch;
    pid_t pid; /* 0 = none */
    uint64_t passes_before;
    uint64_t incarnation_before;
    uint64_t started_ns;
    uint64_t restart_ns; /* when to start it again */
    uint64_t backoff_ns;
    bool up;
    bool given_up; /* its GPU failed too often */
    bool told_failed; /* that a way to copy failed its trial */
    struct spw_gpu_faults faults;
    struct spw_below_watch below;
    struct spw_pin_watch pin;
};

struct spw_workers {
    const struct spw_config *config; /* this one and those up to pool are set before the start */
    char *const *argv;               /* its first word is their name, too       */
    int values_fd;                   /* the effective values                    */
    int place_fd;                    /* where each is                           */
    const spw_atomic32 *stop;        /* signals that asked for an end           */
    const struct spw_place *place;
    struct spw_pool *pool;
    struct spw_worker_process worker[SPW_WORKERS_MAX];
    struct spw_place_watch place_watch;
    bool denied;      /* one could not have what all must, pinned memory, or on its node: the
                         pool can't go on                                        */
    bool told_copier; /* who copies, as far as it is the same for all            */
};

/** Start those that are processes. One that can't be started is tried again by spw_workers_tend(). */
void spw_workers_start(struct spw_workers *workers);
/** See who is up. */
void spw_workers_notice(struct spw_workers *workers);
/** Every worker that is started from here is up, or given up. */
bool spw_workers_up(const struct spw_workers *workers);
/** Each is given up. */
bool spw_workers_none_left(const struct spw_workers *workers);
/** Reap and restart them, and tell what they are at. True: one that is up still reads its directory. */
bool spw_workers_tend(struct spw_workers *workers);
/** Close the pool and end them. 0; 1: one had to be killed, ended badly, or is an engine's and hasn't
 * left. */
int spw_workers_stop(struct spw_workers *workers);

#endif
