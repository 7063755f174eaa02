/* See driver.h. */
#include "gpu/driver.h"

#include <dlfcn.h>
#include <string.h>

#define LIBRARY "libcuda.so.1"

typedef CUresult (*init_function)(unsigned flags);

/* A driver that is there but can't be used: why, in its own word. */
static int refused(const struct spw_driver *driver, const char *library, CUresult result,
                   struct spw_error *err)
{
    if (result == CUDA_ERROR_STUB_LIBRARY)
        return spw_fail(err, -ENODEV, "%s is a stub for linking, not a driver", library);
    return spw_fail(err, -ENODEV, "the driver in %s can't be used: %s (%d)", library,
                    driver->GetErrorName ? spw_driver_word(driver, result) : "cuInit", (int)result);
}

static void *look_up(PFN_cuGetProcAddress_v12000 find, const char *name, int version)
{
    CUdriverProcAddressQueryResult found;
    void *function = NULL;
    if (find(name, &function, version, CU_GET_PROC_ADDRESS_DEFAULT, &found) != CUDA_SUCCESS)
        return NULL;
    return function;
}

/* Asked for a version above its own, a driver gives the newest that it has, which takes other
 * arguments. */
static void find_batch(struct spw_driver *driver, PFN_cuGetProcAddress_v12000 find)
{
    if (driver->version >= 13000)
        driver->MemcpyBatchAsync = (spw_driver_batch)look_up(find, "cuMemcpyBatchAsync", 13000);
    else if (driver->version >= 12080)
        driver->MemcpyBatchAsync_12 =
            (spw_driver_batch_12)look_up(find, "cuMemcpyBatchAsync", 12080);
}

static const char *find_all(struct spw_driver *driver, PFN_cuGetProcAddress_v12000 find)
{
    const char *missing = NULL;
#define FIND(name, asked) driver->name = (PFN_cu##name##_v##asked)look_up(find, "cu" #name, asked);
#define FIND_REQUIRED(name, asked)                                                                 \
    FIND(name, asked)                                                                              \
    if (!driver->name && !missing)                                                                 \
        missing = "cu" #name;
    SPW_DRIVER_REQUIRED(FIND_REQUIRED)
    SPW_DRIVER_OPTIONAL(FIND)
#undef FIND_REQUIRED
#undef FIND
    return missing;
}

int spw_driver_open(const char *library, struct spw_driver *out_driver, struct spw_error *err)
{
    struct spw_driver driver = {0};
    const char *path = library ? library : LIBRARY;
    driver.loaded = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!driver.loaded)
        return spw_fail(err, -ENOENT, "no CUDA driver: %s", dlerror());
    init_function init = (init_function)dlsym(driver.loaded, "cuInit");
    PFN_cuGetProcAddress_v12000 find =
        (PFN_cuGetProcAddress_v12000)dlsym(driver.loaded, "cuGetProcAddress_v2");
    if (!init || !find)
        return spw_fail(err, -ENOSYS, "the driver in %s is older than 12.0", path);
    driver.GetErrorName = (PFN_cuGetErrorName_v6000)look_up(find, "cuGetErrorName", 6000);
    CUresult result = init(0);
    if (result != CUDA_SUCCESS)
        return refused(&driver, path, result, err);
    const char *missing = find_all(&driver, find);
    if (missing)
        return spw_fail(err, -ENOSYS, "the driver in %s lacks %s; install a newer one", path,
                        missing);
    result = driver.DriverGetVersion(&driver.version);
    if (result != CUDA_SUCCESS)
        return refused(&driver, path, result, err);
    find_batch(&driver, find);
    *out_driver = driver;
    return 0;
}

const char *spw_driver_word(const struct spw_driver *driver, CUresult result)
{
    const char *word = NULL;
    if (driver->GetErrorName(result, &word) != CUDA_SUCCESS || !word)
        return "an error without a name";
    return word;
}

bool spw_driver_is_sticky(CUresult result)
{
    switch (result) {
    case CUDA_ERROR_DEINITIALIZED:
    case CUDA_ERROR_DEVICE_UNAVAILABLE:
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_NVLINK_UNCORRECTABLE:
    case CUDA_ERROR_CONTAINED:
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_CONTEXT_IS_DESTROYED:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_LAUNCH_FAILED:
    case CUDA_ERROR_EXTERNAL_DEVICE:
    case CUDA_ERROR_MPS_CLIENT_TERMINATED:
    case CUDA_ERROR_UNKNOWN:
        return true;
    default:
        return false;
    }
}

int spw_driver_errno(CUresult result)
{
    if (result == CUDA_SUCCESS)
        return 0;
    if (spw_driver_is_sticky(result) || result == CUDA_ERROR_NO_DEVICE)
        return -ENODEV;
    switch (result) {
    case CUDA_ERROR_OUT_OF_MEMORY:
        return -ENOMEM;
    case CUDA_ERROR_INVALID_VALUE:
    case CUDA_ERROR_INVALID_HANDLE:
    case CUDA_ERROR_INVALID_DEVICE:
        return -EINVAL;
    case CUDA_ERROR_NOT_PERMITTED:
        return -EPERM;
    case CUDA_ERROR_NOT_SUPPORTED:
    case CUDA_ERROR_NOT_FOUND:
        return -ENOSYS;
    default:
        return -EIO;
    }
}

CUresult spw_driver_copy_batch(const struct spw_driver *driver, CUdeviceptr *to, CUdeviceptr *from,
                               size_t *bytes, size_t count, CUstream stream)
{
    CUmemcpyAttributes attributes = {.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM};
    size_t first = 0, failed = SIZE_MAX;
    if (driver->MemcpyBatchAsync)
        return driver->MemcpyBatchAsync(to, from, bytes, count, &attributes, &first, 1, stream);
    if (driver->MemcpyBatchAsync_12)
        return driver->MemcpyBatchAsync_12(to, from, bytes, count, &attributes, &first, 1, &failed,
                                           stream);
    return CUDA_ERROR_NOT_SUPPORTED;
}
