/* See gpu.h. */
#include "gpu/gpu_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KNOWN_BYTES 160u

static CUresult identify(const struct spw_driver *driver, int ordinal, CUdevice *out_device,
                         struct spw_gpu_identity *out)
{
    struct spw_gpu_identity identity = {.ordinal = ordinal, .bus = UINT64_MAX};
    char bus_id[32];
    CUuuid uuid;
    CUresult result = driver->DeviceGet(out_device, ordinal);
    if (result == CUDA_SUCCESS)
        result = driver->DeviceGetUuid(&uuid, *out_device);
    if (result == CUDA_SUCCESS)
        result = driver->DeviceGetName(identity.name, (int)sizeof identity.name, *out_device);
    if (result != CUDA_SUCCESS)
        return result;
    memcpy(identity.uuid, uuid.bytes, sizeof identity.uuid);
    if (driver->DeviceGetPCIBusId(bus_id, (int)sizeof bus_id, *out_device) == CUDA_SUCCESS)
        spw_gpu_bus_parse(bus_id, &identity.bus);
    *out = identity;
    return CUDA_SUCCESS;
}

static int fail(const struct spw_driver *driver, CUresult result, const char *what,
                struct spw_error *err)
{
    return spw_fail(err, spw_driver_errno(result) == -ENODEV ? -ENODEV : -EIO, "%s: %s", what,
                    spw_driver_word(driver, result));
}

static void name_one(const struct spw_gpu_identity *gpu, char *known, size_t bytes)
{
    char uuid[SPW_GPU_UUID_TEXT];
    size_t length = strlen(known);
    spw_gpu_uuid_print(gpu->uuid, uuid);
    if (length + sizeof uuid + 2 < bytes)
        snprintf(known + length, bytes - length, "%s%s", length ? ", " : "", uuid);
}

/* Find the one that @which names among those that this process sees. */
static int find(struct spw_gpu *gpu, const char *which, struct spw_error *err)
{
    char known[KNOWN_BYTES] = "";
    int count = 0;
    CUresult result = gpu->driver.DeviceGetCount(&count);
    for (int i = 0; i < count && result == CUDA_SUCCESS; i++) {
        result = identify(&gpu->driver, i, &gpu->device, &gpu->identity);
        if (result == CUDA_SUCCESS && spw_gpu_matches(&gpu->identity, which))
            return 0;
        if (result == CUDA_SUCCESS)
            name_one(&gpu->identity, known, sizeof known);
    }
    if (result != CUDA_SUCCESS)
        return fail(&gpu->driver, result, "the GPUs of this host can't be listed", err);
    return spw_fail(err, count ? -ENXIO : -ENODEV, "no GPU %s here; known: %s", which,
                    count ? known : "none");
}

int spw_gpu_open(const struct spw_gpu_config *config, struct spw_gpu **out_gpu,
                 struct spw_error *err)
{
    struct spw_gpu *gpu = calloc(1, sizeof *gpu);
    if (!gpu)
        return spw_fail(err, -ENOMEM, "no memory for a GPU");
    int status = spw_driver_open(config->driver, &gpu->driver, err);
    if (status == 0)
        status = find(gpu, config->which, err);
    if (status == 0) {
        CUresult result = gpu->driver.DevicePrimaryCtxRetain(&gpu->context, gpu->device);
        if (result != CUDA_SUCCESS) {
            gpu->context = NULL;
            status = fail(&gpu->driver, result, "the GPU's context can't be made", err);
        } else if ((result = gpu->driver.CtxSetCurrent(gpu->context)) != CUDA_SUCCESS) {
            status = fail(&gpu->driver, result, "the GPU's context can't be used", err);
        }
    }
    if (status < 0) {
        spw_gpu_close(gpu);
        return status;
    }
    *out_gpu = gpu;
    return 0;
}

void spw_gpu_close(struct spw_gpu *gpu)
{
    if (!gpu)
        return;
    if (gpu->context) {
        gpu->driver.CtxSetCurrent(NULL);
        gpu->driver.DevicePrimaryCtxRelease(gpu->device);
    }
    free(gpu);
}

const struct spw_gpu_identity *spw_gpu_identity(const struct spw_gpu *gpu)
{
    return &gpu->identity;
}

int spw_gpu_enter(struct spw_gpu *gpu)
{
    return spw_driver_errno(gpu->driver.CtxSetCurrent(gpu->context));
}
