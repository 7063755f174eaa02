/* The folder's functions in a build without the CUDA headers: there is no GPU to open. */
#include "gpu/cuda_copier.h"
#include "gpu/pin.h"

#include <assert.h>

int spw_gpu_open(const struct spw_gpu_config *config, struct spw_gpu **out_gpu,
                 struct spw_error *err)
{
    return spw_fail(err, -ENOSYS, "built without CUDA");
}

void spw_gpu_close(struct spw_gpu *gpu)
{
    assert(!gpu);
}

const struct spw_gpu_identity *spw_gpu_identity(const struct spw_gpu *gpu)
{
    return NULL;
}

int spw_gpu_enter(struct spw_gpu *gpu)
{
    return -ENOSYS;
}

int spw_cuda_copier_open(const struct spw_cuda_copier_config *config,
                         struct spw_copier_handle *out_handle, struct spw_error *err)
{
    return spw_fail(err, -ENOSYS, "built without CUDA");
}

struct spw_pin_backend spw_pin_driver(struct spw_gpu *gpu)
{
    assert(!gpu);
    return (struct spw_pin_backend){.ctx = NULL};
}
