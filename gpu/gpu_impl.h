#ifndef SPW_GPU_GPU_IMPL_H
#define SPW_GPU_GPU_IMPL_H
/* What the files of this folder know of an opened GPU. Built only where there are CUDA headers. */
#include "gpu/driver.h"
#include "gpu/gpu.h"

struct spw_gpu {
    struct spw_driver driver;
    CUdevice device;
    CUcontext context; /* primary, retained */
    struct spw_gpu_identity identity;
};

#endif
