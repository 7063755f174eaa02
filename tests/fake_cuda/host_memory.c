/* Registered host memory: ranges that don't overlap, with the limits of real drivers. */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "tests/fake_cuda/fake.h"

#define RANGES_MAX 256
#define NEVER      (512ull << 30) /* so much in one call always fails */
#define TURN_NS    500000u        /* that a turn takes at least, so that two meet */
#define FLAGS                                                                                      \
    (CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP | CU_MEMHOSTREGISTER_IOMEMORY |    \
     CU_MEMHOSTREGISTER_READ_ONLY)

struct range {
    const char *start;
    size_t bytes;
};

static struct range range[RANGES_MAX];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static bool is_mapped(const void *start, size_t bytes)
{
    uintptr_t page = (uintptr_t)start & ~(uintptr_t)4095;
    return msync((void *)page, (uintptr_t)start + bytes - page, MS_ASYNC) == 0;
}

/* Other processes may map it, too. */
static bool is_shared(const void *start)
{
    FILE *maps = fopen("/proc/self/maps", "re");
    uintptr_t at = (uintptr_t)start, from, to;
    char line[512], rights[5];
    bool found = false, shared = false;
    while (maps && !found && fgets(line, sizeof line, maps)) {
        found = sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %4s", &from, &to, rights) == 3 &&
                at >= from && at < to;
        shared = found && rights[3] == 's';
    }
    if (maps)
        fclose(maps);
    return shared;
}

/* Registering takes its time; where a host is said to be such, one at a time can. */
static CUresult take_time(const void *start, size_t bytes)
{
    const char *turn = fake_env("FAKE_CUDA_TURN");
    if (turn && !is_shared(start))
        turn = NULL;
    int fd = turn ? open(turn, O_RDWR | O_CREAT | O_CLOEXEC, 0600) : -1;
    if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) < 0) {
        close(fd);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    uint64_t ns = spw_load_relaxed(&fake.ns_per_mib) * (bytes >> 20) + (fd >= 0 ? TURN_NS : 0);
    struct timespec time = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
    nanosleep(&time, NULL);
    if (fd >= 0)
        close(fd);
    return CUDA_SUCCESS;
}

static CUresult add(const char *start, size_t bytes)
{
    int vacant = -1;
    for (int i = 0; i < RANGES_MAX; i++) {
        if (!range[i].start)
            vacant = vacant < 0 ? i : vacant;
        else if (start < range[i].start + range[i].bytes && range[i].start < start + bytes)
            return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    }
    if (vacant < 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    range[vacant] = (struct range){start, bytes};
    return CUDA_SUCCESS;
}

FAKE(MemHostRegister)(void *start, size_t bytes, unsigned flags)
{
    CUresult code = fake_enter("MemHostRegister", true);
    uint64_t cap = spw_load_relaxed(&fake.registration_cap);
    const char *without = fake_env("FAKE_CUDA_UNPINNABLE");
    if (code != CUDA_SUCCESS)
        return code;
    if (without && atoi(without) == fake_device_current() && is_shared(start))
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (!start || bytes == 0 || flags & ~(unsigned)FLAGS)
        return CUDA_ERROR_INVALID_VALUE;
    if (bytes >= NEVER || (cap && bytes > cap))
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (!is_mapped(start, bytes))
        return CUDA_ERROR_INVALID_VALUE;
    code = take_time(start, bytes);
    pthread_mutex_lock(&lock);
    if (code == CUDA_SUCCESS)
        code = add(start, bytes);
    pthread_mutex_unlock(&lock);
    if (code == CUDA_SUCCESS) {
        fake_count(&fake.registered, 1);
        fake_count(&fake.registrations, 1);
    }
    return code;
}

static size_t bytes_from(const void *start)
{
    size_t bytes = 0;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < RANGES_MAX; i++)
        if (range[i].start == start)
            bytes = range[i].bytes;
    pthread_mutex_unlock(&lock);
    return bytes;
}

static void forget(const void *start)
{
    pthread_mutex_lock(&lock);
    for (int i = 0; i < RANGES_MAX; i++)
        if (range[i].start == start)
            range[i] = (struct range){NULL, 0};
    pthread_mutex_unlock(&lock);
}

FAKE(MemHostUnregister)(void *start)
{
    CUresult code = fake_enter("MemHostUnregister", true);
    size_t bytes = start ? bytes_from(start) : 0;
    if (code != CUDA_SUCCESS)
        return code;
    if (bytes == 0)
        return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
    fake_wait_unused(start, bytes);
    forget(start);
    fake_uncount(&fake.registered, 1);
    fake_count(&fake.unregistrations, 1);
    return CUDA_SUCCESS;
}

enum fake_pinned fake_is_pinned(const void *start, size_t bytes)
{
    const char *from = start;
    enum fake_pinned result = FAKE_PAGEABLE;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < RANGES_MAX; i++) {
        if (!range[i].start)
            continue;
        const char *end = range[i].start + range[i].bytes;
        if (from + bytes <= range[i].start || from >= end)
            continue;
        result = from >= range[i].start && from + bytes <= end ? FAKE_PINNED : FAKE_CROSSES;
    }
    pthread_mutex_unlock(&lock);
    return result;
}

FAKE(MemHostGetDevicePointer)(CUdeviceptr *out, void *start, unsigned flags)
{
    CUresult code = fake_enter("MemHostGetDevicePointer", true);
    if (code == CUDA_SUCCESS && fake_is_pinned(start, 1) != FAKE_PINNED)
        return CUDA_ERROR_INVALID_VALUE;
    *out = (CUdeviceptr)(uintptr_t)start;
    return code;
}
