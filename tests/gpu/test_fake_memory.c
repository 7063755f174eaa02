/* The stand-in driver itself: GPUs, device memory, registered host memory, other processes. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <unistd.h>

#include "shm/process.h"
#include "tests/gpu/fake_scene.h"
#include "tests/gpu/gpu_peer.h"

TestSuite(fake_memory, .timeout = 20);

#define A "GPU-aaaaaaaa-0000-0000-0000-000000000001"
#define B "GPU-bbbbbbbb-0000-0000-0000-000000000002"
#define C "GPU-cccccccc-0000-0000-0000-000000000003"

/* ---- GPUs ------------------------------------------------------------------------------------ */

static void sees(const char *visible, const char *first, int count)
{
    char uuid[SPW_GPU_UUID_TEXT];
    struct gpu_peer peer;
    setenv("CUDA_VISIBLE_DEVICES", visible, 1);
    gpu_peer_spawn(&peer, 0, 16);
    spw_gpu_uuid_print(peer.uuid, uuid);
    cr_expect_str_eq(uuid, first, "%s", visible);
    cr_expect_eq(gpu_peer_ask(&peer, 'n'), '0' + count, "%s", visible);
    gpu_peer_end(&peer, false);
}

Test(fake_memory, CU_7_a_process_sees_the_gpus_that_its_environment_names)
{
    setenv("FAKE_CUDA_DEVICES", A "@0000:10:00.0," B "@0000:20:00.0," C "@0000:30:00.0", 1);
    sees("0,1,2", A, 3);
    sees("1,0", B, 2);
    sees(C "," A, C, 2);
    sees("2,7,0", C, 1); /* the first that isn't there ends the list */
}

Test(fake_memory, a_gpu_that_is_not_there_is_refused)
{
    char text[32];
    CUuuid uuid;
    CUcontext context;
    CUdevice device;
    fake_scene_open();
    for (int i = -1; i < 2; i += 2) {
        cr_expect_eq(scene.driver->DeviceGet(&device, i), CUDA_ERROR_INVALID_DEVICE);
        cr_expect_eq(scene.driver->DeviceGetUuid(&uuid, i), CUDA_ERROR_INVALID_DEVICE);
        cr_expect_eq(scene.driver->DeviceGetPCIBusId(text, 32, i), CUDA_ERROR_INVALID_DEVICE);
        cr_expect_eq(scene.driver->DevicePrimaryCtxRetain(&context, i), CUDA_ERROR_INVALID_DEVICE);
    }
    cr_expect_eq(scene.driver->DevicePrimaryCtxRelease(0), 0);
    cr_expect_eq(scene.driver->DevicePrimaryCtxRelease(0), CUDA_ERROR_INVALID_CONTEXT);
    cr_expect_eq(scene.driver->DevicePrimaryCtxRetain(&context, 0), 0);
    fake_scene_close();
}

/* ---- device memory --------------------------------------------------------------------------- */

Test(fake_memory, the_host_cannot_touch_device_memory, .signal = SIGSEGV)
{
    fake_scene_open();
    *(volatile uint8_t *)(uintptr_t)scene.memory = 1;
}

Test(fake_memory, an_address_tells_its_allocation)
{
    CUdeviceptr base;
    size_t bytes, total, before, after;
    unsigned type;
    fake_scene_open();
    cr_expect_eq(scene.driver->MemGetAddressRange(&base, &bytes, scene.memory + 4000), 0);
    cr_expect(base == scene.memory && bytes == SCENE_BYTES);
    cr_expect_eq(scene.driver->MemGetAddressRange(&base, &bytes, scene.memory + SCENE_BYTES),
                 CUDA_ERROR_NOT_FOUND);
    cr_expect_eq(scene.driver->PointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                                   scene.memory + 1),
                 0);
    cr_expect_eq(type, CU_MEMORYTYPE_DEVICE);
    cr_expect_eq(scene.driver->PointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                                   (CUdeviceptr)(uintptr_t)scene.host),
                 0);
    cr_expect_eq(type, CU_MEMORYTYPE_HOST);
    cr_expect_eq(scene.driver->MemGetInfo(&before, &total), 0);
    cr_assert_eq(scene.driver->MemAlloc(&base, 1 << 20), 0);
    cr_expect_eq(scene.driver->MemGetInfo(&after, &total), 0);
    cr_expect_eq(before - after, 1 << 20);
    cr_expect_eq(scene.driver->MemFree(base + 1), CUDA_ERROR_INVALID_VALUE);
    cr_expect_eq(scene.driver->MemFree(base), 0);
    cr_expect_eq(scene.driver->MemAlloc(&base, after + (1 << 21)), CUDA_ERROR_OUT_OF_MEMORY);
    cr_expect_eq(scene.driver->MemAlloc(&base, 0), CUDA_ERROR_INVALID_VALUE);
    fake_scene_close();
}

Test(fake_memory, giving_back_what_a_stream_has_work_for_waits_and_is_counted)
{
    CUdeviceptr memory;
    fake_scene_open();
    fake_scene_rate(1000000);
    cr_assert_eq(scene.driver->MemAlloc(&memory, 4096), 0);
    cr_assert_eq(scene.driver->MemcpyHtoDAsync(memory, scene.host, 4096, scene.stream), 0);
    cr_expect_eq(scene.driver->MemFree(memory), 0);
    cr_expect_eq(scene.driver->StreamQuery(scene.stream), 0, "it has waited");
    cr_expect_eq(spw_load_relaxed(&scene.fake->given_back_early), 1);
    cr_assert_eq(fake_scene_out(scene.stream), 0);
    cr_expect_eq(scene.driver->MemHostUnregister(scene.host), 0);
    cr_expect_eq(spw_load_relaxed(&scene.fake->given_back_early), 2);
    cr_assert_eq(scene.driver->MemHostRegister(scene.host, SCENE_BYTES, 0), 0);
    fake_scene_close();
    cr_expect_eq(spw_load_relaxed(&scene.fake->given_back_early), 2);
}

/* ---- registered host memory ------------------------------------------------------------------ */

static CUresult pin(uint8_t *start, size_t bytes)
{
    return scene.driver->MemHostRegister(start, bytes, CU_MEMHOSTREGISTER_PORTABLE);
}

static uint8_t *map_as(int kind, size_t bytes)
{
    uint8_t *start =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, kind | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    cr_assert(start != MAP_FAILED);
    return start;
}

static uint8_t *map(size_t bytes)
{
    return map_as(MAP_PRIVATE, bytes);
}

Test(fake_memory, registrations_must_not_overlap)
{
    fake_scene_open();
    uint8_t *pages = map(16384);
    cr_expect_eq(pin(pages + 4096, 8192), 0);
    cr_expect_eq(pin(pages, 8192), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    cr_expect_eq(pin(pages + 8192, 8192), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    cr_expect_eq(pin(pages, 4096), 0);
    cr_expect_eq(spw_load_relaxed(&scene.fake->registered), 3);
    cr_expect_eq(scene.driver->MemHostUnregister(pages + 8192),
                 CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
    cr_expect_eq(scene.driver->MemHostUnregister(pages), 0);
    cr_expect_eq(scene.driver->MemHostUnregister(pages), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
    cr_expect_eq(scene.driver->MemHostUnregister(pages + 4096), 0);
    munmap(pages, 16384);
    fake_scene_close();
}

Test(fake_memory, CU_1_a_registration_has_limits)
{
    fake_scene_open();
    uint8_t *pages = map(600ull << 30);
    cr_expect_eq(pin(pages, 512ull << 30), CUDA_ERROR_OUT_OF_MEMORY);
    cr_expect_eq(pin(pages, 3ull << 30), 0, "no cap by default");
    cr_expect_eq(scene.driver->MemHostUnregister(pages), 0);
    spw_store_relaxed(&scene.fake->registration_cap, 2ull << 30);
    cr_expect_eq(pin(pages, 3ull << 30), CUDA_ERROR_OUT_OF_MEMORY);
    cr_expect_eq(pin(pages, 2ull << 30), 0);
    cr_expect_eq(scene.driver->MemHostUnregister(pages), 0);
    munmap(pages, 600ull << 30);
    cr_expect_eq(pin(pages, 4096), CUDA_ERROR_INVALID_VALUE, "nothing is mapped there");
    cr_expect_eq(scene.driver->MemHostRegister(scene.host, 1, 0x10), CUDA_ERROR_INVALID_VALUE);
    cr_expect_eq(pin(NULL, 4096), CUDA_ERROR_INVALID_VALUE);
    fake_scene_close();
}

Test(fake_memory, a_registration_takes_its_time)
{
    fake_scene_open();
    uint8_t *pages = map(4 << 20);
    spw_store_relaxed(&scene.fake->ns_per_mib, 5000000);
    uint64_t begin = spw_monotonic_ns();
    cr_expect_eq(pin(pages, 4 << 20), 0);
    cr_expect_geq(spw_monotonic_ns() - begin, 20000000u);
    cr_expect_eq(scene.driver->MemHostUnregister(pages), 0);
    munmap(pages, 4 << 20);
    fake_scene_close();
}

Test(fake_memory, CU_2_two_registrations_at_a_time_can_be_one_too_many)
{
    char turn[] = "/tmp/fake-turn-XXXXXX";
    int other = mkstemp(turn);
    setenv("FAKE_CUDA_TURN", turn, 1);
    fake_scene_open();
    uint8_t *pages = map_as(MAP_SHARED, 4096), *own = map(4096);
    cr_assert_eq(flock(other, LOCK_EX), 0);
    cr_expect_eq(pin(pages, 4096), CUDA_ERROR_OUT_OF_MEMORY);
    cr_expect_eq(pin(own, 4096), 0, "what nobody shares is in nobody's way");
    cr_assert_eq(flock(other, LOCK_UN), 0);
    cr_expect_eq(pin(pages, 4096), 0);
    cr_expect_eq(scene.driver->MemHostUnregister(pages), 0);
    cr_expect_eq(scene.driver->MemHostUnregister(own), 0);
    munmap(pages, 4096);
    munmap(own, 4096);
    fake_scene_close();
    unlink(turn);
    close(other);
}

Test(fake_memory, CU_1_a_copy_across_two_registrations_is_refused)
{
    fake_scene_open();
    uint8_t *pages = map(12288);
    CUdeviceptr across = (CUdeviceptr)(uintptr_t)(pages + 4000), there = scene.memory;
    CUmemcpyAttributes order = {.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM};
    size_t bytes = 200, first = 0;
    cr_assert(pin(pages, 4096) == 0 && pin(pages + 4096, 4096) == 0);
    cr_expect_eq(scene.driver->MemcpyDtoHAsync(pages + 4000, scene.memory, 200, scene.stream),
                 CUDA_ERROR_INVALID_VALUE);
    cr_expect_eq(scene.driver->MemcpyHtoDAsync(scene.memory, pages + 4000, 200, scene.stream),
                 CUDA_ERROR_INVALID_VALUE);
    cr_expect_eq(
        scene.driver->MemcpyBatchAsync(&across, &there, &bytes, 1, &order, &first, 1, scene.stream),
        CUDA_ERROR_INVALID_VALUE);
    cr_expect_eq(scene.driver->MemcpyDtoHAsync(pages + 8000, scene.memory, 400, scene.stream),
                 CUDA_ERROR_INVALID_VALUE, "its second part is not registered");
    cr_expect_eq(scene.driver->MemcpyDtoHAsync(pages + 3896, scene.memory, 200, scene.stream), 0);
    cr_expect_eq(scene.driver->MemcpyDtoHAsync(pages + 4096, scene.memory, 200, scene.stream), 0);
    cr_expect_eq(scene.driver->MemHostGetDevicePointer(&there, pages + 8192, 0),
                 CUDA_ERROR_INVALID_VALUE);
    cr_expect_eq(scene.driver->StreamSynchronize(scene.stream), 0);
    scene.driver->MemHostUnregister(pages);
    scene.driver->MemHostUnregister(pages + 4096);
    munmap(pages, 12288);
    fake_scene_close();
}

/* ---- other processes ------------------------------------------------------------------------- */

static CUresult import(CUdeviceptr *out, CUipcMemHandle handle)
{
    return scene.driver->IpcOpenMemHandle(out, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
}

static uint8_t first_byte(CUdeviceptr memory)
{
    cr_assert_eq(scene.driver->MemcpyDtoHAsync(scene.host, memory, 1, scene.stream), 0);
    cr_assert_eq(scene.driver->StreamSynchronize(scene.stream), 0);
    return scene.host[0];
}

Test(fake_memory, memory_is_not_imported_where_it_was_exported)
{
    CUipcMemHandle handle, same;
    CUdeviceptr again;
    fake_scene_open();
    cr_expect_eq(scene.driver->IpcGetMemHandle(&handle, scene.memory), 0);
    cr_expect_eq(scene.driver->IpcGetMemHandle(&same, scene.memory + 5000), 0);
    cr_expect_eq(memcmp(&handle, &same, sizeof handle), 0, "of the whole allocation");
    cr_expect_eq(import(&again, handle), CUDA_ERROR_INVALID_CONTEXT);
    cr_expect_eq(scene.driver->IpcCloseMemHandle(scene.memory), CUDA_ERROR_INVALID_VALUE);
    fake_scene_close();
}

Test(fake_memory, memory_of_a_dead_process_stays_until_it_is_closed)
{
    struct gpu_peer peer;
    CUdeviceptr memory, same, other;
    CUipcMemHandle handle;
    fake_scene_open();
    gpu_peer_spawn(&peer, 2, 4096);
    cr_assert_eq(import(&memory, peer.memory[1]), 0);
    cr_assert_eq(import(&same, peer.memory[1]), 0);
    cr_assert_eq(import(&other, peer.memory[0]), 0);
    cr_expect(memory == same && memory != other);
    cr_expect_eq(spw_load_relaxed(&scene.fake->open_handles), 3);
    cr_expect_eq(scene.driver->IpcGetMemHandle(&handle, memory), CUDA_ERROR_INVALID_VALUE);
    cr_expect_eq(scene.driver->MemFree(memory), CUDA_ERROR_INVALID_VALUE);
    gpu_peer_end(&peer, true);
    cr_expect_eq(first_byte(memory), 77);
    cr_expect_eq(scene.driver->IpcCloseMemHandle(memory), 0);
    cr_expect_eq(first_byte(memory), 77, "once more than closed");
    cr_expect_eq(scene.driver->IpcCloseMemHandle(memory), 0);
    cr_expect_eq(scene.driver->IpcCloseMemHandle(memory), CUDA_ERROR_INVALID_VALUE);
    cr_expect_eq(import(&memory, peer.memory[1]), CUDA_ERROR_MAP_FAILED, "of a dead process");
    cr_expect_eq(scene.driver->IpcCloseMemHandle(other), 0);
    cr_expect_eq(spw_load_relaxed(&scene.fake->open_handles), 0);
    fake_scene_close();
}

Test(fake_memory, the_handle_of_freed_memory_is_refused)
{
    struct gpu_peer peer;
    CUdeviceptr memory;
    fake_scene_open();
    gpu_peer_spawn(&peer, 1, 4096);
    cr_expect_eq(scene.driver->IpcOpenMemHandle(&memory, peer.memory[0], 0),
                 CUDA_ERROR_INVALID_VALUE, "flags");
    cr_assert_eq(gpu_peer_ask(&peer, 'f'), 'y');
    cr_expect_eq(import(&memory, peer.memory[0]), CUDA_ERROR_MAP_FAILED);
    gpu_peer_end(&peer, false);
    fake_scene_close();
}

Test(fake_memory, an_event_of_another_process_fires_when_its_work_is_done)
{
    struct gpu_peer peer;
    CUevent fence;
    setenv("FAKE_CUDA_RATE", "50000", 1); /* 82 ms */
    gpu_peer_spawn(&peer, 1, 4096);
    fake_scene_open();
    cr_assert_eq(scene.driver->IpcOpenEventHandle(&fence, peer.fence[0]), 0);
    cr_expect_eq(scene.driver->EventQuery(fence), 0, "never recorded");
    cr_assert_eq(gpu_peer_ask(&peer, 'r'), 'y');
    cr_expect_eq(scene.driver->EventQuery(fence), CUDA_ERROR_NOT_READY);
    cr_expect_eq(scene.driver->EventSynchronize(fence), 0);
    cr_assert_eq(gpu_peer_ask(&peer, 'w'), 'y');
    gpu_peer_end(&peer, false);
    cr_expect_eq(scene.driver->EventQuery(fence), 0, "its state outlives the process");
    cr_expect_eq(scene.driver->EventDestroy(fence), 0);
    fake_scene_close();
}

static size_t free_bytes(void)
{
    size_t left, total;
    cr_assert_eq(scene.driver->MemGetInfo(&left, &total), 0);
    return left;
}

Test(fake_memory, LC_4_what_is_free_counts_what_every_process_holds)
{
    char dir[] = "/tmp/fake-gpus-XXXXXX";
    struct gpu_peer peer;
    CUdeviceptr memory;
    cr_assert_not_null(mkdtemp(dir));
    setenv("FAKE_CUDA_STATE", dir, 1);
    fake_scene_open();
    size_t before = free_bytes();
    gpu_peer_spawn(&peer, 2, 1 << 20);
    cr_expect_eq(before - free_bytes(), 2 << 20);
    cr_assert_eq(import(&memory, peer.memory[0]), 0);
    cr_expect_eq(before - free_bytes(), 2 << 20, "the same memory");
    gpu_peer_end(&peer, true);
    cr_expect_eq(before - free_bytes(), 1 << 20, "still held here");
    cr_expect_eq(scene.driver->IpcCloseMemHandle(memory), 0);
    cr_expect_eq(free_bytes(), before);
    fake_scene_close();
    fake_scene_open_bare();
    cr_expect_eq(free_bytes() - before, SCENE_BYTES);
    spw_gpu_close(scene.gpu);
    cr_expect_eq(rmdir(dir), 0, "no file is left");
}
