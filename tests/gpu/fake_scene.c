/* See fake_scene.h. */
#include "tests/gpu/fake_scene.h"

#include <criterion/criterion.h>
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

struct fake_scene scene;

void fake_scene_open_bare(void)
{
    struct spw_error err = {0};
    struct spw_gpu_config config = {.driver = FAKE_CUDA, .which = "0"};
    cr_assert_eq(spw_gpu_open(&config, &scene.gpu, &err), 0, "%s", err.text);
    scene.driver = &scene.gpu->driver;
    struct fake_cuda *(*control)(void) =
        (struct fake_cuda * (*)(void)) dlsym(scene.driver->loaded, "fake_cuda_control");
    cr_assert(control != NULL);
    scene.fake = control();
}

void fake_scene_open(void)
{
    fake_scene_open_bare();
    scene.host = aligned_alloc(4096, SCENE_BYTES);
    cr_assert(scene.host != NULL);
    memset(scene.host, 0, SCENE_BYTES);
    cr_assert_eq(scene.driver->StreamCreateWithPriority(&scene.stream, CU_STREAM_NON_BLOCKING, 0),
                 0);
    cr_assert_eq(scene.driver->MemHostRegister(scene.host, SCENE_BYTES, 0), 0);
    cr_assert_eq(scene.driver->MemAlloc(&scene.memory, SCENE_BYTES), 0);
}

void fake_scene_close(void)
{
    cr_expect_eq(scene.driver->StreamDestroy(scene.stream), 0);
    cr_expect_eq(scene.driver->MemFree(scene.memory), 0);
    cr_expect_eq(scene.driver->MemHostUnregister(scene.host), 0);
    cr_expect_eq(spw_load_relaxed(&scene.fake->allocated), 0);
    cr_expect_eq(spw_load_relaxed(&scene.fake->registered), 0);
    cr_expect_eq(spw_load_relaxed(&scene.fake->events), 0);
    free(scene.host);
    spw_gpu_close(scene.gpu);
}

void fake_scene_rate(uint64_t rate_bytes)
{
    spw_store_relaxed(&scene.fake->rate_bytes, rate_bytes);
}

CUresult fake_scene_out(CUstream stream)
{
    return scene.driver->MemcpyDtoHAsync(scene.host, scene.memory, SCENE_BYTES, stream);
}

CUresult fake_scene_in(CUstream stream)
{
    return scene.driver->MemcpyHtoDAsync(scene.memory, scene.host, SCENE_BYTES, stream);
}
