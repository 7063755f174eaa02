/* The stand-in driver itself: streams, events, copies, kernels, and errors that come later. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gpu/gather.h"
#include "shm/process.h"
#include "tests/gpu/fake_scene.h"

TestSuite(fake_streams, .timeout = 20);

#define SLOW 1000000u /* bytes a second: the scene's memory takes 66 ms */

static CUevent event(unsigned flags)
{
    CUevent made;
    cr_assert_eq(scene.driver->EventCreate(&made, flags), 0);
    return made;
}

static CUstream stream(void)
{
    CUstream made;
    cr_assert_eq(scene.driver->StreamCreateWithPriority(&made, CU_STREAM_NON_BLOCKING, 0), 0);
    return made;
}

/* ---- order ----------------------------------------------------------------------------------- */

Test(fake_streams, work_runs_in_order_and_an_event_fires_between)
{
    fake_scene_open();
    CUevent filled = event(CU_EVENT_DISABLE_TIMING), copied = event(CU_EVENT_DISABLE_TIMING);
    fake_scene_rate(SLOW);
    cr_assert_eq(scene.driver->MemsetD8Async(scene.memory, 7, SCENE_BYTES, scene.stream), 0);
    cr_assert_eq(scene.driver->EventRecord(filled, scene.stream), 0);
    cr_assert_eq(fake_scene_out(scene.stream), 0);
    cr_assert_eq(scene.driver->EventRecord(copied, scene.stream), 0);
    cr_expect_eq(scene.driver->EventSynchronize(filled), 0);
    cr_expect_eq(scene.driver->EventQuery(copied), CUDA_ERROR_NOT_READY);
    cr_expect_eq(scene.driver->StreamQuery(scene.stream), CUDA_ERROR_NOT_READY);
    cr_expect_eq(scene.driver->EventSynchronize(copied), 0);
    cr_expect_eq(scene.driver->EventQuery(copied), 0);
    cr_expect(scene.host[0] == 7 && scene.host[SCENE_BYTES - 1] == 7);
    scene.driver->EventDestroy(filled);
    scene.driver->EventDestroy(copied);
    fake_scene_close();
}

Test(fake_streams, a_copy_takes_the_time_that_the_rate_gives_it)
{
    fake_scene_open();
    fake_scene_rate(SLOW);
    uint64_t begin = spw_monotonic_ns();
    for (int i = 0; i < 3; i++)
        cr_assert_eq(fake_scene_out(scene.stream), 0);
    cr_expect_lt(spw_monotonic_ns() - begin, 60000000u, "asynchronous");
    cr_expect_eq(scene.driver->StreamSynchronize(scene.stream), 0);
    cr_expect_geq(spw_monotonic_ns() - begin, 3 * 65000000u);
    cr_expect_eq(spw_load_relaxed(&scene.fake->copied_bytes), 3 * SCENE_BYTES);
    fake_scene_close();
}

Test(fake_streams, the_source_is_read_when_the_copy_runs)
{
    fake_scene_open();
    fake_scene_rate(SLOW);
    cr_assert_eq(fake_scene_in(scene.stream), 0);
    memset(scene.host, 5, SCENE_BYTES);
    cr_assert_eq(scene.driver->StreamSynchronize(scene.stream), 0);
    memset(scene.host, 0, SCENE_BYTES);
    fake_scene_rate(0);
    cr_assert_eq(fake_scene_out(scene.stream), 0);
    cr_assert_eq(scene.driver->StreamSynchronize(scene.stream), 0);
    cr_expect_eq(scene.host[0], 5, "what was there later");
    fake_scene_close();
}

Test(fake_streams, a_stream_waits_for_the_record_that_was_last_when_it_was_told)
{
    fake_scene_open();
    CUstream other = stream();
    CUevent done = event(CU_EVENT_DISABLE_TIMING);
    cr_expect_eq(scene.driver->EventQuery(done), 0, "never recorded");
    cr_assert_eq(scene.driver->StreamWaitEvent(other, done, 0), 0);
    cr_expect_eq(scene.driver->StreamSynchronize(other), 0, "nor waited for");
    fake_scene_rate(SLOW);
    cr_assert_eq(fake_scene_in(scene.stream), 0);
    cr_assert_eq(scene.driver->EventRecord(done, scene.stream), 0);
    cr_assert_eq(scene.driver->StreamWaitEvent(other, done, 0), 0);
    cr_assert_eq(fake_scene_in(scene.stream), 0);
    cr_assert_eq(scene.driver->EventRecord(done, scene.stream), 0);
    cr_expect_eq(scene.driver->StreamQuery(other), CUDA_ERROR_NOT_READY);
    cr_expect_eq(scene.driver->StreamSynchronize(other), 0);
    cr_expect_eq(scene.driver->EventQuery(done), CUDA_ERROR_NOT_READY, "the later record");
    cr_expect_eq(scene.driver->EventSynchronize(done), 0);
    scene.driver->EventDestroy(done);
    scene.driver->StreamDestroy(other);
    fake_scene_close();
}

Test(fake_streams, an_event_recorded_anew_elsewhere_stays_done_when_the_older_record_is_reached)
{
    fake_scene_open();
    CUstream other = stream();
    CUevent done = event(CU_EVENT_DISABLE_TIMING);
    fake_scene_rate(SLOW);
    cr_assert_eq(fake_scene_in(scene.stream), 0);
    cr_assert_eq(scene.driver->EventRecord(done, scene.stream), 0);
    cr_assert_eq(scene.driver->EventRecord(done, other), 0);
    cr_expect_eq(scene.driver->EventSynchronize(done), 0);
    cr_expect_eq(scene.driver->StreamQuery(scene.stream), CUDA_ERROR_NOT_READY);
    cr_expect_eq(scene.driver->StreamSynchronize(scene.stream), 0);
    cr_expect_eq(scene.driver->EventQuery(done), 0);
    scene.driver->EventDestroy(done);
    cr_expect_eq(scene.driver->StreamDestroy(other), 0);
    fake_scene_close();
}

Test(fake_streams, an_event_may_be_destroyed_before_its_record_has_run)
{
    fake_scene_open();
    CUevent done = event(CU_EVENT_DISABLE_TIMING);
    fake_scene_rate(SLOW);
    cr_assert_eq(fake_scene_in(scene.stream), 0);
    cr_assert_eq(scene.driver->EventRecord(done, scene.stream), 0);
    cr_expect_eq(scene.driver->EventDestroy(done), 0);
    cr_expect_eq(scene.driver->StreamSynchronize(scene.stream), 0);
    fake_scene_close();
}

Test(fake_streams, what_is_behind_a_wait_never_runs_before_it)
{
    const size_t half = SCENE_BYTES / 2;
    fake_scene_open();
    CUstream other = stream();
    CUevent done = event(CU_EVENT_DISABLE_TIMING);
    fake_scene_rate(SLOW);
    cr_assert_eq(scene.driver->MemcpyHtoDAsync(scene.memory, scene.host, half, scene.stream), 0);
    cr_assert_eq(scene.driver->EventRecord(done, scene.stream), 0);
    cr_assert_eq(scene.driver->StreamWaitEvent(other, done, 0), 0);
    cr_assert_eq(scene.driver->MemsetD8Async(scene.memory + half, 9, half, other), 0);
    cr_expect_eq(scene.driver->StreamDestroy(other), 0);
    fake_scene_rate(0);
    cr_assert_eq(fake_scene_out(scene.stream), 0);
    cr_assert_eq(scene.driver->StreamSynchronize(scene.stream), 0);
    cr_expect_eq(scene.host[half], 0, "its stream is gone, and it with that");
    scene.driver->EventDestroy(done);
    fake_scene_close();
}

Test(fake_streams, a_full_stream_makes_the_call_wait)
{
    fake_scene_open();
    spw_store_relaxed(&scene.fake->stream_capacity, 2);
    fake_scene_rate(SLOW);
    uint64_t begin = spw_monotonic_ns();
    cr_assert(fake_scene_in(scene.stream) == 0 && fake_scene_in(scene.stream) == 0);
    cr_expect_eq(spw_load_relaxed(&scene.fake->full_waits), 0);
    cr_assert_eq(fake_scene_in(scene.stream), 0);
    cr_expect_eq(spw_load_relaxed(&scene.fake->full_waits), 1);
    cr_expect_geq(spw_monotonic_ns() - begin, 60000000u);
    fake_scene_close();
}

Test(fake_streams, an_event_for_other_processes_must_not_take_times)
{
    fake_scene_open();
    CUevent made;
    CUipcEventHandle handle;
    cr_expect_eq(scene.driver->EventCreate(&made, CU_EVENT_INTERPROCESS), CUDA_ERROR_INVALID_VALUE);
    made = event(CU_EVENT_DISABLE_TIMING);
    cr_expect_eq(scene.driver->IpcGetEventHandle(&handle, made), CUDA_ERROR_INVALID_VALUE);
    scene.driver->EventDestroy(made);
    made = event(CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS);
    cr_expect_eq(scene.driver->IpcGetEventHandle(&handle, made), 0);
    CUevent again;
    cr_expect_neq(scene.driver->IpcOpenEventHandle(&again, handle), 0, "not by its own process");
    scene.driver->EventDestroy(made);
    fake_scene_close();
}

/* ---- copies ---------------------------------------------------------------------------------- */

static CUresult batch(size_t count, CUdeviceptr *to, CUdeviceptr *from, size_t *bytes,
                      CUmemcpyAttributes attributes, CUstream on)
{
    size_t first = 0;
    return scene.driver->MemcpyBatchAsync(to, from, bytes, count, &attributes, &first, 1, on);
}

Test(fake_streams, a_batch_copies_either_way_and_is_checked)
{
    fake_scene_open();
    CUdeviceptr host = (CUdeviceptr)(uintptr_t)scene.host;
    CUdeviceptr to[] = {scene.memory, host + 8}, from[] = {host, scene.memory + 4096};
    size_t bytes[] = {8, 8};
    CUmemcpyAttributes good = {.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM}, bad = {0};
    cr_assert_eq(scene.driver->MemsetD8Async(scene.memory, 3, SCENE_BYTES, scene.stream), 0);
    cr_expect_eq(batch(2, to, from, bytes, good, scene.stream), 0);
    cr_expect_eq(scene.driver->StreamSynchronize(scene.stream), 0);
    cr_expect(scene.host[7] == 0 && scene.host[8] == 3 && scene.host[15] == 3);
    cr_expect_eq(spw_load_relaxed(&scene.fake->batches), 1);
    cr_expect_eq(spw_load_relaxed(&scene.fake->copies), 2);
    cr_expect_eq(batch(2, to, from, bytes, good, NULL), CUDA_ERROR_INVALID_VALUE, "no stream");
    cr_expect_eq(batch(2, to, from, bytes, bad, scene.stream), CUDA_ERROR_INVALID_VALUE);
    cr_expect_eq(batch(0, to, from, bytes, good, scene.stream), CUDA_ERROR_INVALID_VALUE);
    to[1] = scene.memory;
    cr_expect_eq(batch(2, to, from, bytes, good, scene.stream), CUDA_ERROR_INVALID_VALUE,
                 "within the device");
    fake_scene_close();
}

Test(fake_streams, the_batch_of_12_8_says_which_copy_failed)
{
    setenv("FAKE_CUDA_VERSION", "12080", 1);
    fake_scene_open();
    CUdeviceptr host = (CUdeviceptr)(uintptr_t)scene.host;
    CUdeviceptr to[] = {host, host + 8}, from[] = {scene.memory, scene.memory + SCENE_BYTES};
    size_t bytes[] = {8, 8}, first[] = {0, 0}, failed = 77;
    CUmemcpyAttributes order[] = {{.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM},
                                  {.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_ANY}};
    cr_expect_eq(scene.driver->MemcpyBatchAsync_12(to, from, bytes, 1, order, first, 1, &failed,
                                                   scene.stream),
                 0);
    cr_expect_eq(failed, SIZE_MAX);
    cr_expect_eq(scene.driver->MemcpyBatchAsync_12(to, from, bytes, 2, order, first, 1, &failed,
                                                   scene.stream),
                 CUDA_ERROR_INVALID_VALUE);
    cr_expect_eq(failed, 1, "beyond the memory");
    cr_expect_eq(scene.driver->MemcpyBatchAsync_12(to, from, bytes, 2, order, first, 2, &failed,
                                                   scene.stream),
                 CUDA_ERROR_INVALID_VALUE);
    cr_expect_eq(failed, SIZE_MAX, "attributes for the same copies");
    fake_scene_close();
}

Test(fake_streams, memory_that_is_not_registered_makes_the_call_wait)
{
    fake_scene_open();
    uint8_t *pageable = malloc(SCENE_BYTES);
    fake_scene_rate(SLOW);
    uint64_t begin = spw_monotonic_ns();
    cr_expect_eq(scene.driver->MemcpyDtoHAsync(pageable, scene.memory, SCENE_BYTES, scene.stream),
                 0);
    cr_expect_geq(spw_monotonic_ns() - begin, 60000000u);
    cr_expect_eq(spw_load_relaxed(&scene.fake->unpinned), 1);
    free(pageable);
    fake_scene_close();
}

/* ---- kernels --------------------------------------------------------------------------------- */

static CUfunction kernel(const char *name)
{
    CUmodule module;
    CUfunction function = NULL;
    cr_assert_eq(scene.driver->ModuleLoadData(&module, "an image"), 0);
    scene.driver->ModuleGetFunction(&function, module, name);
    return function;
}

/* Blocks 2 and 0, of 16 bytes, 64 apart; the plane lies in the last bytes of the device memory. */
static struct spw_gather_args two_blocks(void)
{
    const CUdeviceptr plane_at = scene.memory + SCENE_BYTES - sizeof(struct spw_plane);
    struct spw_plane *plane = (struct spw_plane *)(scene.host + 4096);
    uint32_t *blocks = (uint32_t *)(scene.host + 8192);
    *plane = (struct spw_plane){.base = scene.memory, .block_stride = 64, .bytes = 16};
    blocks[0] = 2;
    cr_assert_eq(scene.driver->MemcpyHtoDAsync(plane_at, plane, sizeof *plane, scene.stream), 0);
    return (struct spw_gather_args){.planes = plane_at,
                                    .blocks = (uintptr_t)blocks,
                                    .slot = (uintptr_t)scene.host,
                                    .plane_count = 1,
                                    .block_count = 2,
                                    .vector_bytes = 16};
}

static CUresult launch(const char *name, struct spw_gather_args args)
{
    void *parameters[] = {&args};
    return scene.driver->LaunchKernel(kernel(name), args.block_count, args.plane_count, 1,
                                      SPW_GATHER_THREADS, 1, 1, 0, scene.stream, parameters, NULL);
}

Test(fake_streams, the_kernels_gather_and_scatter)
{
    fake_scene_open();
    cr_expect_null(kernel("spw_other"));
    struct spw_gather_args args = two_blocks();
    cr_assert_eq(scene.driver->MemsetD8Async(scene.memory + 128, 2, 16, scene.stream), 0);
    cr_expect_eq(launch("spw_gather", args), 0);
    cr_expect_eq(scene.driver->StreamSynchronize(scene.stream), 0);
    cr_expect(scene.host[0] == 2 && scene.host[15] == 2 && scene.host[16] == 0);
    memset(scene.host + 16, 6, 16);
    cr_expect_eq(launch("spw_scatter", args), 0);
    cr_assert_eq(scene.driver->MemcpyDtoHAsync(scene.host, scene.memory, 64, scene.stream), 0);
    cr_expect_eq(scene.driver->StreamSynchronize(scene.stream), 0);
    cr_expect(scene.host[0] == 6 && scene.host[15] == 6 && scene.host[16] == 0);
    cr_expect_eq(spw_load_relaxed(&scene.fake->launches), 2);
    fake_scene_close();
}

Test(fake_streams, a_kernel_that_touches_memory_that_is_not_registered_loses_the_context)
{
    static uint8_t pageable[64];
    fake_scene_open();
    struct spw_gather_args args = two_blocks();
    args.slot = (uintptr_t)pageable;
    args.vector_bytes = 1;
    cr_expect_eq(launch("spw_gather", args), 0);
    cr_expect_eq(scene.driver->StreamSynchronize(scene.stream), CUDA_ERROR_ILLEGAL_ADDRESS);
    cr_expect_eq(fake_scene_in(scene.stream), CUDA_ERROR_ILLEGAL_ADDRESS, "from then on");
}

Test(fake_streams, a_kernel_that_is_told_of_too_wide_words_loses_the_context)
{
    fake_scene_open();
    struct spw_gather_args args = two_blocks();
    args.slot += 8;
    cr_expect_eq(launch("spw_gather", args), 0);
    cr_expect_eq(scene.driver->StreamSynchronize(scene.stream), CUDA_ERROR_ILLEGAL_ADDRESS);
}

/* ---- faults ---------------------------------------------------------------------------------- */

Test(fake_streams, the_nth_call_fails_and_the_next_one_does_not)
{
    fake_scene_open();
    scene.fake->set_faults("MemcpyHtoDAsync:2:801,EventCreate:1-:2");
    cr_expect_eq(fake_scene_in(scene.stream), 0);
    cr_expect_eq(fake_scene_in(scene.stream), CUDA_ERROR_NOT_SUPPORTED);
    cr_expect_eq(fake_scene_in(scene.stream), 0);
    CUevent none;
    for (int i = 0; i < 3; i++)
        cr_expect_eq(scene.driver->EventCreate(&none, 0), CUDA_ERROR_OUT_OF_MEMORY);
    scene.fake->set_faults("");
    fake_scene_close();
}

Test(fake_streams, a_sticky_fault_is_every_later_answer)
{
    fake_scene_open();
    size_t most, left;
    scene.fake->set_faults("MemcpyHtoDAsync:1:801:sticky");
    cr_expect_eq(fake_scene_in(scene.stream), CUDA_ERROR_NOT_SUPPORTED);
    cr_expect_eq(scene.driver->MemGetInfo(&left, &most), CUDA_ERROR_NOT_SUPPORTED);
    cr_expect_eq(scene.driver->StreamQuery(scene.stream), CUDA_ERROR_NOT_SUPPORTED);
}

Test(fake_streams, a_copy_that_fails_is_told_later_and_nothing_is_copied_any_more)
{
    fake_scene_open();
    CUevent done = event(CU_EVENT_DISABLE_TIMING);
    cr_assert_eq(scene.driver->MemsetD8Async(scene.memory, 4, SCENE_BYTES, scene.stream), 0);
    scene.fake->set_faults("copy:1:700");
    fake_scene_rate(SLOW);
    cr_expect_eq(fake_scene_out(scene.stream), 0, "not yet");
    cr_expect_eq(fake_scene_out(scene.stream), 0);
    cr_expect_eq(scene.driver->EventRecord(done, scene.stream), 0);
    cr_expect_eq(scene.driver->EventSynchronize(done), CUDA_ERROR_ILLEGAL_ADDRESS);
    cr_expect_eq(scene.driver->StreamSynchronize(scene.stream), CUDA_ERROR_ILLEGAL_ADDRESS);
    scene.driver->StreamDestroy(scene.stream);
    scene.driver->EventDestroy(done); /* fails, too, and is gone */
    cr_expect_eq(scene.host[0], 0);
    cr_expect_eq(spw_load_relaxed(&scene.fake->copies), 0);
}

Test(fake_streams, a_fault_of_another_gpu_is_not_this_ones)
{
    fake_scene_open();
    scene.fake->set_faults("MemcpyHtoDAsync:1-:2@1");
    cr_expect_eq(fake_scene_in(scene.stream), 0);
    scene.fake->set_faults("MemcpyHtoDAsync:1-:2@0");
    cr_expect_eq(fake_scene_in(scene.stream), CUDA_ERROR_OUT_OF_MEMORY);
    scene.fake->set_faults("");
    fake_scene_close();
}

/* ---- who may call ---------------------------------------------------------------------------- */

static void *call_without_context(void *context)
{
    static CUresult result;
    CUdeviceptr none;
    result = scene.driver->MemAlloc(&none, 4096);
    return &result;
}

Test(fake_streams, a_thread_without_a_context_is_refused)
{
    pthread_t thread;
    void *result;
    fake_scene_open();
    cr_assert_eq(pthread_create(&thread, NULL, call_without_context, NULL), 0);
    pthread_join(thread, &result);
    cr_expect_eq(*(CUresult *)result, CUDA_ERROR_INVALID_CONTEXT);
    fake_scene_close();
}

Test(fake_streams, CU_6_a_child_by_fork_is_refused)
{
    int status, count;
    fake_scene_open();
    pid_t child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        bool refused = scene.driver->DeviceGetCount(&count) == CUDA_ERROR_NOT_INITIALIZED &&
                       fake_scene_in(scene.stream) == CUDA_ERROR_NOT_INITIALIZED &&
                       scene.driver->StreamDestroy(scene.stream) == CUDA_ERROR_NOT_INITIALIZED;
        _exit(refused ? 0 : 1);
    }
    cr_assert_eq(waitpid(child, &status, 0), child);
    bool refused = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    cr_expect(refused);
    fake_scene_close();
}
