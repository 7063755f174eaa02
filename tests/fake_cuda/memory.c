/* Device memory: addresses that nothing may touch, bytes in a file that is mapped elsewhere. IPC handles
 * name the file: another process opens it by /proc. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/fake_cuda/fake.h"

#define MEMORIES_MAX 512
#define DEVICE_BYTES (64ull << 30)

struct memory {
    CUdeviceptr base; /* 0: none */
    char *bytes_at;
    size_t bytes;
    int fd;
    uint64_t file; /* its number, which no other one in use has */
    int opened;    /* imported: how often, else 0               */
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

static uint64_t number_of(int fd)
{
    struct stat state;
    return fstat(fd, &state) == 0 ? state.st_ino : 0;
}

/* Takes @fd, even where it fails. */
static CUresult add(CUdeviceptr *out, int fd, size_t bytes, int opened)
{
    void *here = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    void *there = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    for (int i = 0; i < MEMORIES_MAX && here != MAP_FAILED && there != MAP_FAILED; i++) {
        if (memory[i].base)
            continue;
        memory[i] = (struct memory){.base = (CUdeviceptr)(uintptr_t)there,
                                    .bytes_at = here,
                                    .bytes = bytes,
                                    .fd = fd,
                                    .file = number_of(fd),
                                    .opened = opened};
        *out = memory[i].base;
        return CUDA_SUCCESS;
    }
    if (here != MAP_FAILED)
        munmap(here, bytes);
    if (there != MAP_FAILED)
        munmap(there, bytes);
    close(fd);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

/* Work for it that isn't done yet is waited for, as the driver does. */
static void wait_unused(CUdeviceptr base)
{
    pthread_mutex_lock(&lock);
    const struct memory *found = find(base, 1);
    struct memory seen = found ? *found : (struct memory){.base = 0};
    pthread_mutex_unlock(&lock);
    if (seen.base)
        fake_wait_unused(seen.bytes_at, seen.bytes);
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
    int device = fake_device_current();
    if (code != CUDA_SUCCESS)
        return code;
    if (bytes == 0)
        return CUDA_ERROR_INVALID_VALUE;
    uint64_t used = fake_state_used(device);
    int fd = used <= DEVICE_BYTES && bytes <= DEVICE_BYTES - used ? fake_state_create(device, bytes)
                                                                  : -1;
    if (fd < 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    pthread_mutex_lock(&lock);
    code = add(out, fd, bytes, 0);
    pthread_mutex_unlock(&lock);
    if (code == CUDA_SUCCESS)
        fake_count(&fake.allocated, bytes);
    return code;
}

FAKE(MemFree)(CUdeviceptr base)
{
    CUresult code = fake_enter("MemFree", true);
    if (code == CUDA_SUCCESS)
        wait_unused(base);
    pthread_mutex_lock(&lock);
    struct memory *found = find(base, 1);
    if (code == CUDA_SUCCESS && (!found || found->base != base || found->opened))
        code = CUDA_ERROR_INVALID_VALUE;
    if (code == CUDA_SUCCESS) {
        fake_uncount(&fake.allocated, found->bytes);
        drop(found);
    }
    pthread_mutex_unlock(&lock);
    return code;
}

FAKE(MemGetInfo)(size_t *out_free, size_t *out_total)
{
    CUresult code = fake_enter("MemGetInfo", true);
    if (code != CUDA_SUCCESS)
        return code;
    *out_total = DEVICE_BYTES;
    *out_free = DEVICE_BYTES - fake_state_used(fake_device_current());
    return CUDA_SUCCESS;
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
    bool is_device = fake_bytes_of(at, 1) != NULL;
    if (attribute != CU_POINTER_ATTRIBUTE_MEMORY_TYPE ||
        (!is_device && fake_is_pinned((const void *)(uintptr_t)at, 1) != FAKE_PINNED))
        return CUDA_ERROR_INVALID_VALUE;
    *(unsigned *)out = is_device ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
    return CUDA_SUCCESS;
}

/* ---- between processes ----------------------------------------------------------------------- */

struct handle {
    int pid, fd;
    uint64_t file; /* so that another one behind that number isn't taken for it */
    size_t bytes;
};
_Static_assert(sizeof(struct handle) <= sizeof(CUipcMemHandle), "fits");

FAKE(IpcGetMemHandle)(CUipcMemHandle *out, CUdeviceptr at)
{
    CUresult code = fake_enter("IpcGetMemHandle", true);
    pthread_mutex_lock(&lock);
    const struct memory *found = find(at, 1);
    if (code == CUDA_SUCCESS && (!found || found->opened))
        code = CUDA_ERROR_INVALID_VALUE;
    if (code == CUDA_SUCCESS) {
        struct handle handle = {getpid(), found->fd, found->file, found->bytes};
        memset(out, 0, sizeof *out);
        memcpy(out, &handle, sizeof handle);
    }
    pthread_mutex_unlock(&lock);
    return code;
}

/* The second time, what is there already. */
static CUresult import(CUdeviceptr *out, const struct handle *handle)
{
    char path[64];
    for (int i = 0; i < MEMORIES_MAX; i++) {
        if (memory[i].opened && memory[i].file == handle->file) {
            memory[i].opened++;
            *out = memory[i].base;
            return CUDA_SUCCESS;
        }
    }
    snprintf(path, sizeof path, "/proc/%d/fd/%d", handle->pid, handle->fd);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0 || number_of(fd) != handle->file) {
        if (fd >= 0)
            close(fd);
        return CUDA_ERROR_MAP_FAILED; /* the exporter has freed it, or is dead */
    }
    fake_state_hold(fd);
    return add(out, fd, handle->bytes, 1);
}

FAKE(IpcOpenMemHandle)(CUdeviceptr *out, CUipcMemHandle from, unsigned flags)
{
    struct handle handle;
    CUresult code = fake_enter("IpcOpenMemHandle", true);
    memcpy(&handle, &from, sizeof handle);
    if (code == CUDA_SUCCESS &&
        (handle.pid <= 0 || handle.bytes == 0 || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS))
        code = CUDA_ERROR_INVALID_VALUE;
    if (code == CUDA_SUCCESS && handle.pid == getpid())
        code = CUDA_ERROR_INVALID_CONTEXT; /* not where it was exported */
    pthread_mutex_lock(&lock);
    if (code == CUDA_SUCCESS)
        code = import(out, &handle);
    pthread_mutex_unlock(&lock);
    if (code == CUDA_SUCCESS)
        fake_count(&fake.open_handles, 1);
    return code;
}

FAKE(IpcCloseMemHandle)(CUdeviceptr base)
{
    CUresult code = fake_enter("IpcCloseMemHandle", true);
    if (code == CUDA_SUCCESS)
        wait_unused(base);
    pthread_mutex_lock(&lock);
    struct memory *found = find(base, 1);
    if (code == CUDA_SUCCESS && (!found || found->base != base || !found->opened))
        code = CUDA_ERROR_INVALID_VALUE;
    if (code == CUDA_SUCCESS) {
        fake_uncount(&fake.open_handles, 1);
        if (--found->opened == 0)
            drop(found);
    }
    pthread_mutex_unlock(&lock);
    return code;
}
