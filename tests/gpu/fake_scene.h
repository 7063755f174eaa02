#ifndef SPW_TESTS_GPU_FAKE_SCENE_H
#define SPW_TESTS_GPU_FAKE_SCENE_H
/* The stand-in driver as its own tests use it: opened, with a stream, and registered host memory. */
#include "gpu/gpu_impl.h"
#include "tests/fake_cuda/fake_cuda.h"

#define SCENE_BYTES 65536u

struct fake_scene {
    struct spw_gpu *gpu;
    const struct spw_driver *driver;
    struct fake_cuda *fake;
    CUstream stream;
    uint8_t *host;      /* SCENE_BYTES, registered, zeros */
    CUdeviceptr memory; /* as many, zeros                 */
};

extern struct fake_scene scene;

/** Open the driver, and the GPU of ordinal 0; no more. */
void fake_scene_open_bare(void);
/** And make the rest. */
void fake_scene_open(void);
/** Give back what fake_scene_open() made, and see that nothing is left. */
void fake_scene_close(void);
/** Bytes a second that streams copy from now on; 0 = not limited. */
void fake_scene_rate(uint64_t rate_bytes);
/** Copy all bytes of the device memory to the host memory, or back. */
CUresult fake_scene_out(CUstream stream);
CUresult fake_scene_in(CUstream stream);

#endif
