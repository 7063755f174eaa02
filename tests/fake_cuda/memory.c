/* Device memory: addresses that nothing may touch, bytes in a memfd that is mapped elsewhere. IPC
 * handles name the memfd: another process opens it by /proc. */
#include "tests/fake_cuda/fake.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MEMORIES_MAX 512
#define DEVICE_BYTES (64ull << 30)

struct memory {
    CUdeviceptr base; /* 0: none */
    char *bytes_at;
    size_t bytes;
    int fd;
    int opened; /* imported: how often */
    int from_pid, from_fd;
};

static struct memory memory[MEMORIES_MAX];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static struct memory *find(CUdeviceptr at, size_t bytes)
{
    for (int i = 0; i < MEMORIES_MAX; i++)
        if (memory[i].base && at >= memory[i].base && bytes <= memory[i].bytes &&
            at - memory[i].base <= memory[i].bytes - bytes)
            return &memory[i];
    return NULL;
}

void *fake_bytes_of(CUdeviceptr at, size_t bytes)
{
    pthread_mutex_lock(&lock);
    const struct memory *found = find(at, bytes);
    void *result = found ? found->bytes_at + (at - found->base) : NULL;
    pthread_mutex_unlock(&lock);
    return result;
}

static CUresult add(CUdeviceptr *out, int fd, size_t bytes, int from_pid, int from_fd)
{
    void *here = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    void *there = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (here == MAP_FAILED || there == MAP_FAILED)
        return CUDA_ERROR_OUT_OF_MEMORY;
    for (int i = 0; i < MEMORIES_MAX; i++) {
        if (memory[i].base)
            continue;
        memory[i] = (struct memory){.base = (CUdeviceptr)(uintptr_t)there,
                                    .bytes_at = here,
                                    .bytes = bytes,
                                    .fd = fd,
                                    .opened = from_pid ? 1 : 0,
                                    .from_pid = from_pid,
                                    .from_fd = from_fd};
        *out = memory[i].base;
        return CUDA_SUCCESS;
    }
    return CUDA_ERROR_OUT_OF_MEMORY;
}

static void drop(struct memory *gone)
{
    munmap(gone->bytes_at, gone->bytes);
    munmap((void *)(uintptr_t)gone->base, gone->bytes);
    close(gone->fd);
    *gone = (struct memory){.base = 0};
}

FAKE(MemAlloc)(CUdeviceptr *out, size_t bytes)
{
    CUresult code = fake_enter("MemAlloc", true);
    if (code != CUDA_SUCCESS)
        return code;
    int fd = bytes ? memfd_create("fake-cuda", MFD_CLOEXEC) : -1;
    if (fd < 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (ftruncate(fd, (off_t)bytes) < 0) {
        close(fd);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    pthread_mutex_lock(&lock);
    code = add(out, fd, bytes, 0, 0);
    pthread_mutex_unlock(&lock);
    if (code == CUDA_SUCCESS)
        atomic_fetch_add(&fake.allocated, bytes);
    return code;
}

FAKE(MemFree)(CUdeviceptr base)
{
    CUresult code = fake_enter("MemFree", true);
    pthread_mutex_lock(&lock);
    struct memory *found = find(base, 1);
    if (code == CUDA_SUCCESS && (!found || found->base != base || found->from_pid))
        code = CUDA_ERROR_INVALID_VALUE;
    if (code == CUDA_SUCCESS) {
        atomic_fetch_sub(&fake.allocated, found->bytes);
        drop(found);
    }
    pthread_mutex_unlock(&lock);
    return code;
}

FAKE(MemGetInfo)(size_t *out_free, size_t *out_total)
{
    CUresult code = fake_enter("MemGetInfo", true);
    *out_total = DEVICE_BYTES;
    *out_free = DEVICE_BYTES - atomic_load(&fake.allocated);
    return code;
}

FAKE(MemGetAddressRange)(CUdeviceptr *out_base, size_t *out_bytes, CUdeviceptr at)
{
    CUresult code = fake_enter("MemGetAddressRange", true);
    pthread_mutex_lock(&lock);
    const struct memory *found = find(at, 1);
    if (code == CUDA_SUCCESS && !found)
        code = CUDA_ERROR_NOT_FOUND;
    if (code == CUDA_SUCCESS && out_base)
        *out_base = found->base;
    if (code == CUDA_SUCCESS && out_bytes)
        *out_bytes = found->bytes;
    pthread_mutex_unlock(&lock);
    return code;
}

FAKE(PointerGetAttribute)(void *out, CUpointer_attribute attribute, CUdeviceptr at)
{
    CUresult code = fake_enter("PointerGetAttribute", true);
    if (code != CUDA_SUCCESS)
        return code;
    if (attribute != CU_POINTER_ATTRIBUTE_MEMORY_TYPE || !fake_bytes_of(at, 1))
        return CUDA_ERROR_INVALID_VALUE;
    *(unsigned *)out = CU_MEMORYTYPE_DEVICE;
    return CUDA_SUCCESS;
}

/* ---- between processes ----------------------------------------------------------------------- */

struct handle {
    int pid, fd;
    size_t bytes;
};
_Static_assert(sizeof(struct handle) <= sizeof(CUipcMemHandle), "fits");

FAKE(IpcGetMemHandle)(CUipcMemHandle *out, CUdeviceptr at)
{
    CUresult code = fake_enter("IpcGetMemHandle", true);
    pthread_mutex_lock(&lock);
    const struct memory *found = find(at, 1);
    if (code == CUDA_SUCCESS && (!found || found->from_pid))
        code = CUDA_ERROR_INVALID_VALUE;
    if (code == CUDA_SUCCESS) {
        struct handle handle = {getpid(), found->fd, found->bytes};
        memset(out, 0, sizeof *out);
        memcpy(out, &handle, sizeof handle);
    }
    pthread_mutex_unlock(&lock);
    return code;
}

static CUresult import(CUdeviceptr *out, const struct handle *handle)
{
    char path[64];
    for (int i = 0; i < MEMORIES_MAX; i++) {
        if (memory[i].base && memory[i].opened && memory[i].from_pid == handle->pid &&
            memory[i].from_fd == handle->fd) {
            memory[i].opened++;
            *out = memory[i].base;
            return CUDA_SUCCESS;
        }
    }
    snprintf(path, sizeof path, "/proc/%d/fd/%d", handle->pid, handle->fd);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    return fd < 0 ? CUDA_ERROR_MAP_FAILED : add(out, fd, handle->bytes, handle->pid, handle->fd);
}

FAKE(IpcOpenMemHandle)(CUdeviceptr *out, CUipcMemHandle from, unsigned flags)
{
    struct handle handle;
    CUresult code = fake_enter("IpcOpenMemHandle", true);
    memcpy(&handle, &from, sizeof handle);
    if (code == CUDA_SUCCESS && (handle.pid <= 0 || handle.bytes == 0))
        code = CUDA_ERROR_INVALID_VALUE;
    if (code == CUDA_SUCCESS && handle.pid == getpid())
        code = CUDA_ERROR_INVALID_CONTEXT; /* not where it was exported */
    pthread_mutex_lock(&lock);
    if (code == CUDA_SUCCESS)
        code = import(out, &handle);
    pthread_mutex_unlock(&lock);
    if (code == CUDA_SUCCESS)
        atomic_fetch_add(&fake.open_handles, 1);
    return code;
}

FAKE(IpcCloseMemHandle)(CUdeviceptr base)
{
    CUresult code = fake_enter("IpcCloseMemHandle", true);
    pthread_mutex_lock(&lock);
    struct memory *found = find(base, 1);
    if (code == CUDA_SUCCESS && (!found || found->base != base || !found->opened))
        code = CUDA_ERROR_INVALID_VALUE;
    if (code == CUDA_SUCCESS) {
        atomic_fetch_sub(&fake.open_handles, 1);
        if (--found->opened == 0)
            drop(found);
    }
    pthread_mutex_unlock(&lock);
    return code;
}
