#ifndef SPW_TIER_IO_CORE_H
#define SPW_TIER_IO_CORE_H
/*
 * What the I/O engines share: transfers that wait, those that have ended, and threads that carry
 * transfers out one by one by plain system calls.
 *
 *   roles     the worker submits and polls; threads of the engine take and end. All under one lock,
 *             but for the look whether anything has ended
 *   order     urgent ones first, then by age
 *   crash     private to the process; what the kernel holds goes on (tier/quarantine.h)
 *   pairs     [EN-1] end in the list before its count -> poll's look at the count
 */
#include <pthread.h>

#include "shm/atomic.h"
#include "tier/io.h"

#define SPW_IO_BYTES_MAX (1u << 30) /* of one system call; more is a short transfer */

/* A transfer from its submit to its poll. */
struct spw_io_slot {
    struct spw_io io;
    struct spw_io_end end;
    struct spw_io_slot *next;
};

struct spw_io_list {
    struct spw_io_slot *first, *last;
};

#define SPW_IO_POOL_MAX    32u /* threads that carry out transfers */
#define SPW_IO_THREADS_MAX (SPW_IO_POOL_MAX + 2u)

struct spw_io_core {
    pthread_mutex_t lock;
    pthread_cond_t more; /* something waits, or threads are to end or to take more */
    struct spw_io_slot *slot;
    struct spw_io_list free;
    struct spw_io_list wait[2]; /* reads and writes: [1] urgent; calls go between the two */
    struct spw_io_list calls;   /* CALL and SYNC                                         */
    struct spw_io_list done;
    spw_atomic32 done_count;
    uint32_t depth;  /* with the kernel at once                            */
    bool ring_takes; /* reads and writes go by a ring; threads only do calls */
    bool stopping;
    pthread_t thread[SPW_IO_THREADS_MAX];
    uint32_t threads, running;
    pthread_cond_t left; /* a thread has ended */
    void (*wake)(void *ctx);
    void *wake_ctx;
    struct spw_io_mode mode;
};

/** 0, -EINVAL (depth), -ENOMEM. */
int spw_io_core_init(struct spw_io_core *core, const struct spw_io_config *config);
void spw_io_core_fini(struct spw_io_core *core);

/** A thread of the engine, in which signals of the process are not handled. It calls
 * spw_io_core_leave() last. 0 or a negative errno. Takes the lock. */
int spw_io_core_run(struct spw_io_core *core, void *(*run)(void *arg), void *arg);
void spw_io_core_leave(struct spw_io_core *core);
/** @count threads more that carry out what waits. 0 or a negative errno: fewer may run. */
int spw_io_core_start(struct spw_io_core *core, uint32_t count);
/** From now on nothing more is begun. */
void spw_io_core_end_soon(struct spw_io_core *core);
/** Ends all threads until @until_ns (CLOCK_MONOTONIC). -ETIMEDOUT: one hangs in a call; it lives on
 * with what it needs, which is all of the engine. */
int spw_io_core_stop(struct spw_io_core *core, uint64_t until_ns);

/** Put @io where it waits. 0 or -EAGAIN. The lock is held. */
int spw_io_core_push(struct spw_io_core *core, const struct spw_io *io);
/** The read or write to do next, or NULL. The lock is held. */
struct spw_io_slot *spw_io_core_take(struct spw_io_core *core);
/** It has ended with @result; makes a read's checksum. Takes the lock, wakes the worker. */
void spw_io_core_end(struct spw_io_core *core, struct spw_io_slot *slot, int64_t result);
/** Its checksum, if one is wanted: until a write ends, and after a whole read. */
void spw_io_core_sum(struct spw_io_slot *slot);
/** Carry it out by plain system calls. What they say. */
int64_t spw_io_core_perform(const struct spw_io *io);
int spw_io_core_poll(struct spw_io_core *core, struct spw_io_end *out, int max);
void spw_io_core_mode(struct spw_io_core *core, struct spw_io_mode *out);

#endif
