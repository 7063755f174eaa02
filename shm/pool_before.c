/*
 * The pool that a dead daemon left under this name: closed, and left by its workers, before a new
 * daemon touches anything. Written: the old ctl's phase and bell. Shared: the lock object's bytes.
 *
 *   step                if the new daemon dies after it
 *   old closed          clients and workers of the old pool know that it is over; the next start
 *                       does the same
 *   workers gone        the same, sooner; none of them has a pid in ctl any more
 *
 * A worker takes its byte, then looks at the phase; here the phase is stored, then the bytes are
 * asked: one of the two sees the other, so no worker of the old pool goes on unseen.
 */
#include "shm/pool_impl.h"

#include "shm/alive.h"
#include "shm/crash_point.h"
#include "shm/doorbell.h"
#include "shm/process.h"

#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#define LEAVE_NS 2000000000ull /* for workers to leave by themselves, and again for a killed one */
#define LOOK_US  1000

static int held_worker(int fd)
{
    for (uint32_t k = 0; k < SPW_WORKERS_MAX; k++)
        if (spw_lock_held(fd, SPW_LOCK_WORKER(k)) == 1)
            return (int)k;
    return -1;
}

static bool await_free(int fd, uint32_t byte)
{
    for (uint64_t until = spw_monotonic_ns() + LEAVE_NS; spw_lock_held(fd, byte) == 1;) {
        if (spw_monotonic_ns() >= until)
            return false;
        usleep(LOOK_US);
    }
    return true;
}

/* Worker @k of the old pool, which holds its byte: ended, or a refusal that names it. */
static int end_worker(const struct spw_pool_path *path, int fd, const struct spw_ctl *ctl,
                      uint32_t k, struct spw_error *err)
{
    /* relaxed: whom to signal is checked against /proc, whatever is read here */
    uint64_t pid = spw_load_relaxed(&ctl->worker[k].pid);
    uint64_t ticks = spw_load_relaxed(&ctl->worker[k].start_ticks);
    uint64_t space = spw_load_relaxed(&ctl->pid_namespace);
    const char *why = "no process here is known to be that worker";
    int rc = -ESRCH;
    if (space == 0 || space != spw_process_namespace())
        why = "it is in another pid namespace";
    else
        rc = spw_process_kill(pid, ticks);
    if (rc == -EPERM)
        why = "it belongs to another user";
    if (rc == 0)
        why = "it was killed and still isn't gone";
    if ((rc == 0 || rc == -ESRCH) && spw_lock_held(fd, SPW_LOCK_WORKER(k)) == 0)
        return 0; /* gone by itself meanwhile */
    if (rc == 0 && await_free(fd, SPW_LOCK_WORKER(k)))
        return 0;
    return spw_fail(err, -EBUSY,
                    "pool \"%s\": worker %" PRIu32 " of the daemon before, pid %" PRIu64
                    ", doesn't leave, and %s; end it, then start again",
                    path->name, k, pid, why);
}

static int end_workers(const struct spw_pool_path *path, int fd, const struct spw_ctl *ctl,
                       struct spw_error *err)
{
    uint64_t until = spw_monotonic_ns() + LEAVE_NS;
    while (held_worker(fd) >= 0 && spw_monotonic_ns() < until)
        usleep(LOOK_US);
    for (int k = held_worker(fd), rc; k >= 0; k = held_worker(fd)) {
        rc = end_worker(path, fd, ctl, (uint32_t)k, err);
        if (rc)
            return rc;
    }
    return 0;
}

/* Relaxed: for the next steps of this start, or for the next one. */
static void forget_workers(struct spw_ctl *ctl)
{
    for (uint32_t k = 0; k < SPW_WORKERS_MAX; k++)
        spw_store_relaxed(&ctl->worker[k].pid, 0);
}

int spw_pool_end_before(const struct spw_pool_path *path, int fd, bool anew, struct spw_error *err)
{
    struct spw_region region = {0};
    if (spw_region_attach(path, SPW_REGION_CTL, 0, true, sizeof(struct spw_ctl), &region, NULL))
        return 0;
    struct spw_ctl *ctl = (struct spw_ctl *)(void *)region.header;
    /* relaxed: it announces nothing but itself */
    spw_store_relaxed(&ctl->phase, SPW_POOL_CLOSED);
    spw_store_release(&ctl->bell, spw_load_relaxed(&ctl->bell) + 1); /* [PH-1] release, as a stop */
    spw_doorbell_ring(&ctl->bell, NULL);
    SPW_CRASH_POINT("pool.old_closed");
    int rc = end_workers(path, fd, ctl, err);
    if (!rc && !anew) /* workers of a lock object that was removed can't be asked */
        forget_workers(ctl);
    spw_region_detach(&region);
    SPW_CRASH_POINT("pool.workers_gone");
    return rc;
}
