/* See guard.h. Process-local: a table that the handler reads while others change it; an area's start
 * is stored last and cleared first. */
#include "shm/guard.h"

#include "shm/alive.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

struct area {
    spw_atomic64 start; /* 0: free */
    spw_atomic64 bytes;
    spw_atomic32 lost;
    spw_atomic32 writable;
    spw_atomic32 forked; /* spw_forked() of the process that mapped it */
};

static struct area areas[SPW_GUARD_AREAS_MAX];
static spw_atomic32 areas_used; /* none beyond was ever used */
static pthread_mutex_t areas_mutex = PTHREAD_MUTEX_INITIALIZER;
static struct sigaction before_us; /* what SIGBUS did; written before the handler is there */

/* The area that holds @at, or NULL. Called by the handler: no lock. */
static struct area *find(uint64_t at)
{
    uint32_t used = spw_load_relaxed(&areas_used);
    for (uint32_t i = 0; i < used; i++) {
        /* [GD-2] acquire: the start before the bounds that belong to it */
        uint64_t start = spw_load_acquire(&areas[i].start);
        if (start != 0 && at >= start && at - start < spw_load_relaxed(&areas[i].bytes) &&
            spw_load_relaxed(&areas[i].forked) == spw_forked())
            return &areas[i];
    }
    return NULL;
}

static void mark_lost(struct area *area)
{
    /* [GD-1] release: lost before zero pages are there to be read */
    spw_store_release(&area->lost, 1);
}

/* Zero pages over all of it; by system call, since a sanitizer's mmap() is no business of handlers. */
static bool cover(const struct area *area)
{
    int prot = PROT_READ | (spw_load_relaxed(&area->writable) ? PROT_WRITE : 0);
    long at = syscall(SYS_mmap, spw_load_relaxed(&area->start), spw_load_relaxed(&area->bytes),
                      prot, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
    if (at == -1)
        return false;
    /* as it was mapped: no child's, and what is loaded into it is in no core dump */
    syscall(SYS_madvise, at, spw_load_relaxed(&area->bytes), MADV_DONTFORK);
    syscall(SYS_madvise, at, spw_load_relaxed(&area->bytes), MADV_DONTDUMP);
    return true;
}

/* A SIGBUS that is none of ours. */
static void hand_on(int sig, siginfo_t *info, void *context)
{
    const struct sigaction standard = {.sa_handler = SIG_DFL};
    bool sent = info->si_code <= 0; /* by somebody: nothing will be touched again */
    if (before_us.sa_flags & SA_SIGINFO) {
        before_us.sa_sigaction(sig, info, context);
    } else if (before_us.sa_handler != SIG_DFL && before_us.sa_handler != SIG_IGN) {
        before_us.sa_handler(sig);
    } else if (!sent || before_us.sa_handler == SIG_DFL) {
        sigaction(sig, &standard, NULL);
        if (sent)
            raise(sig);
    }
}

static void on_sigbus(int sig, siginfo_t *info, void *context)
{
    int before = errno;
    struct area *area =
        info->si_code == BUS_ADRERR ? find((uint64_t)(uintptr_t)info->si_addr) : NULL;
    if (area) {
        mark_lost(area);
        if (cover(area)) {
            errno = before;
            return;
        }
    }
    hand_on(sig, info, context);
    errno = before;
}

int spw_guard_install(void)
{
    struct sigaction action = {.sa_sigaction = on_sigbus, .sa_flags = SA_SIGINFO};
    struct sigaction now;
    sigemptyset(&action.sa_mask);
    pthread_mutex_lock(&areas_mutex);
    int rc = sigaction(SIGBUS, NULL, &now);
    bool there = (now.sa_flags & SA_SIGINFO) && now.sa_sigaction == on_sigbus;
    if (rc == 0 && !there) {
        before_us = now;
        rc = sigaction(SIGBUS, &action, NULL);
    }
    pthread_mutex_unlock(&areas_mutex);
    return rc ? -errno : 0;
}

int spw_guard_add(void *start, uint64_t bytes, bool writable)
{
    int number = -EMFILE;
    pthread_mutex_lock(&areas_mutex);
    for (uint32_t i = 0; i < SPW_GUARD_AREAS_MAX && number < 0; i++) {
        struct area *area = &areas[i];
        if (spw_load_relaxed(&area->start) != 0)
            continue;
        spw_store_relaxed(&area->bytes, bytes);
        spw_store_relaxed(&area->lost, 0);
        spw_store_relaxed(&area->writable, writable);
        spw_store_relaxed(&area->forked, spw_forked());
        /* [GD-2] release: the bounds before the start that makes them count */
        spw_store_release(&area->start, (uint64_t)(uintptr_t)start);
        if (i >= spw_load_relaxed(&areas_used))
            spw_store_relaxed(&areas_used, i + 1);
        number = (int)i + 1;
    }
    pthread_mutex_unlock(&areas_mutex);
    return number;
}

void spw_guard_drop(int area)
{
    if (area <= 0)
        return;
    pthread_mutex_lock(&areas_mutex);
    spw_store_relaxed(&areas[area - 1].start, 0);
    pthread_mutex_unlock(&areas_mutex);
}

bool spw_guard_lost(int area)
{
    spw_fence_acquire(); /* the caller's reading before the look */
    /* [GD-1] acquire: pairs with lost before the zero pages */
    return area > 0 && spw_load_acquire(&areas[area - 1].lost) != 0;
}

void spw_guard_set_lost(int area, bool lost)
{
    if (area <= 0)
        return;
    if (lost)
        mark_lost(&areas[area - 1]);
    else
        spw_store_relaxed(&areas[area - 1].lost, 0);
}
