#ifndef SPW_GPU_DRIVER_H
#define SPW_GPU_DRIVER_H
/*
 * The CUDA driver as a table of functions, found at run time in libcuda.so.1: nothing here links it,
 * so one build runs on hosts with and without a driver, and a test hands in a driver of its own.
 *
 *   roles     filled once by spw_driver_open(), read-only then; every thread may call through it
 *   versions  each function is asked for by the version whose type it has here: the driver never
 *             gives another one's (of cuMemcpyBatchAsync there are two with different arguments)
 *   crash     nothing is left: the driver ends what it holds with the process
 */
#include <cuda.h>
#include <cudaTypedefs.h>
#include <stdbool.h>

#include "shm/base.h"

#if CUDA_VERSION < 12080
#error "the headers of CUDA 12.8 or later are needed"
#endif

/* Name without "cu", and the version asked for. */
#define SPW_DRIVER_REQUIRED(X)                                                                     \
    X(DriverGetVersion, 2020)                                                                      \
    X(GetErrorName, 6000)                                                                          \
    X(DeviceGetCount, 2000)                                                                        \
    X(DeviceGet, 2000)                                                                             \
    X(DeviceGetName, 2000)                                                                         \
    X(DeviceGetUuid, 11040)                                                                        \
    X(DeviceGetPCIBusId, 4010)                                                                     \
    X(DeviceGetAttribute, 2000)                                                                    \
    X(DevicePrimaryCtxRetain, 7000)                                                                \
    X(DevicePrimaryCtxRelease, 11000)                                                              \
    X(CtxSetCurrent, 4000)                                                                         \
    X(CtxGetStreamPriorityRange, 5050)                                                             \
    X(MemAlloc, 3020)                                                                              \
    X(MemFree, 3020)                                                                               \
    X(MemGetInfo, 3020)                                                                            \
    X(MemGetAddressRange, 3020)                                                                    \
    X(PointerGetAttribute, 4000)                                                                   \
    X(MemHostRegister, 6050)                                                                       \
    X(MemHostUnregister, 4000)                                                                     \
    X(MemHostGetDevicePointer, 3020)                                                               \
    X(StreamCreateWithPriority, 5050)                                                              \
    X(StreamDestroy, 4000)                                                                         \
    X(StreamQuery, 2000)                                                                           \
    X(StreamSynchronize, 2000)                                                                     \
    X(StreamWaitEvent, 3020)                                                                       \
    X(EventCreate, 2000)                                                                           \
    X(EventDestroy, 4000)                                                                          \
    X(EventRecord, 2000)                                                                           \
    X(EventQuery, 2000)                                                                            \
    X(EventSynchronize, 2000)                                                                      \
    X(MemcpyDtoHAsync, 3020)                                                                       \
    X(MemcpyHtoDAsync, 3020)                                                                       \
    X(MemsetD8Async, 3020)                                                                         \
    X(IpcGetMemHandle, 4010)                                                                       \
    X(IpcOpenMemHandle, 11000)                                                                     \
    X(IpcCloseMemHandle, 4010)                                                                     \
    X(IpcGetEventHandle, 4010)                                                                     \
    X(IpcOpenEventHandle, 4010)

/* A driver may lack these; they are NULL then, and their use is done without. */
#define SPW_DRIVER_OPTIONAL(X)                                                                     \
    X(ModuleLoadData, 2000)                                                                        \
    X(ModuleUnload, 2000)                                                                          \
    X(ModuleGetFunction, 2000)                                                                     \
    X(LaunchKernel, 4000)

/** cuMemcpyBatchAsync as of 13.0, and as of 12.8: with an index of the copy that failed. */
typedef CUresult (*spw_driver_batch)(CUdeviceptr *to, CUdeviceptr *from, size_t *bytes,
                                     size_t count, CUmemcpyAttributes *attributes,
                                     size_t *attribute_of, size_t attributes_count,
                                     CUstream stream);
typedef CUresult (*spw_driver_batch_12)(CUdeviceptr *to, CUdeviceptr *from, size_t *bytes,
                                        size_t count, CUmemcpyAttributes *attributes,
                                        size_t *attribute_of, size_t attributes_count,
                                        size_t *failed, CUstream stream);

struct spw_driver {
#define SPW_DRIVER_FIELD(name, version) PFN_cu##name##_v##version name;
    SPW_DRIVER_REQUIRED(SPW_DRIVER_FIELD)
    SPW_DRIVER_OPTIONAL(SPW_DRIVER_FIELD)
#undef SPW_DRIVER_FIELD
    spw_driver_batch MemcpyBatchAsync; /* at most one of the two is there */
    spw_driver_batch_12 MemcpyBatchAsync_12;
    int version; /* of the driver: 13000 is 13.0 */
    void *loaded;
};

/**
 * Load @library (NULL: libcuda.so.1, wherever the loader finds it), start it and find its functions.
 * Once a process for each library; never before a fork. May take seconds.
 *
 * -ENOENT there is no such library; -ENODEV it has no device, or is a stub that only links; -ENOSYS
 * it is too old. @err names library and reason.
 */
int spw_driver_open(const char *library, struct spw_driver *out_driver, struct spw_error *err);

/** The driver's name of @result, static: "CUDA_ERROR_ILLEGAL_ADDRESS". */
const char *spw_driver_word(const struct spw_driver *driver, CUresult result);

/** A negative errno for @result, 0 for CUDA_SUCCESS: -ENODEV where the context is of no use any more
 * (see spw_driver_is_sticky()), -ENOMEM, -EINVAL, -EPERM, -ENOSYS, else -EIO. */
int spw_driver_errno(CUresult result);

/** Every later call of this process will fail, too: only a new process helps. */
bool spw_driver_is_sticky(CUresult result);

/** Run all of cuMemcpyBatchAsync that this driver has: copies [0, count) on @stream, sources read in
 * the order of the stream. CUDA_ERROR_NOT_SUPPORTED where it has none. */
CUresult spw_driver_copy_batch(const struct spw_driver *driver, CUdeviceptr *to, CUdeviceptr *from,
                               size_t *bytes, size_t count, CUstream stream);

#endif
