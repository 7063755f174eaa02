/* See pin.h: memory registered with the driver. */
#include "gpu/gpu_impl.h"
#include "gpu/pin.h"

static int enter(void *ctx)
{
    return spw_gpu_enter(ctx);
}

/* A mapping that can't be written needs a device that says it can do with it. */
static int flags_for(const struct spw_gpu *gpu, bool writable, unsigned *out_flags)
{
    int supported = 0;
    *out_flags = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP;
    if (writable)
        return 0;
    *out_flags |= CU_MEMHOSTREGISTER_READ_ONLY;
    CUresult result = gpu->driver.DeviceGetAttribute(
        &supported, CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED, gpu->device);
    return result != CUDA_SUCCESS ? spw_driver_errno(result) : supported ? 0 : -ENOSYS;
}

static int add(void *ctx, void *start, uint64_t bytes, bool writable, const char **out_name)
{
    const struct spw_gpu *gpu = ctx;
    unsigned flags;
    int status = flags_for(gpu, writable, &flags);
    if (status < 0)
        return status;
    CUresult result = gpu->driver.MemHostRegister(start, bytes, flags);
    if (result == CUDA_SUCCESS)
        return 0;
    *out_name = spw_driver_word(&gpu->driver, result);
    return spw_driver_errno(result);
}

/* One that fails is the driver's: all goes with the process. */
static void remove_one(void *ctx, void *start)
{
    const struct spw_gpu *gpu = ctx;
    gpu->driver.MemHostUnregister(start);
}

struct spw_pin_backend spw_pin_driver(struct spw_gpu *gpu)
{
    return (struct spw_pin_backend){.enter = enter, .add = add, .remove = remove_one, .ctx = gpu};
}
