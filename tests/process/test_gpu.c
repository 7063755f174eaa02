/* Daemon, workers and engines on the stand-in driver: chunks of GPU memory go through a pool and come back,
 * whoever dies. */
#include "tests/process/gpu_pool.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tier/counters.h"
#include "tier/table.h"

TestSuite(process_gpu, .timeout = 60);

/* An engine's exit status, see gpu_engine.c. */
enum { FAILED = 1, REFUSED = 3 };

static uint64_t handles(uint32_t k)
{
    return spw_load_relaxed(&gpu_pool.seen->feed[k]->gpu.handles_open);
}

Test(process_gpu, chunks_of_gpu_memory_go_through_the_pool_and_come_back)
{
    char out[512];
    gpu_pool_start(1, NULL, NULL);
    cr_expect_eq(gpu_pool_engine("0", "rounds", "200", out, sizeof out), 0, "%s", out);
    cr_expect(strstr(out, "rounds 200"), "%s", out);
    cr_expect_eq(proc_count(&gpu_pool, 0, SPW_WORKER_chunks_loaded), 200);
    cr_expect_eq(proc_count(&gpu_pool, 0, SPW_WORKER_kv_registered), 1);
    cr_expect(proc_said(&gpu_pool, "worker 0's GPU (" GPU_A ", 0000:10:00.0) copies"));
    gpu_pool_stop();
}

/* The write of a block takes 40 ms on the engine's stream, the run is asked for at its begin. */
Test(process_gpu, a_store_behind_a_fence_copies_what_the_work_before_it_wrote)
{
    gpu_pool_start(1, NULL, NULL);
    setenv("FAKE_CUDA_RATE", "25600",
           1); /* the engine's alone: the worker copies as fast as it can */
    gpu_pool_expect_rounds("0", "5");
    unsetenv("FAKE_CUDA_RATE");
    gpu_pool_stop();
}

static uint64_t unpinned(uint32_t k)
{
    return proc_count(&gpu_pool, k, SPW_WORKER_copies_unpinned);
}

/* Loaded on the second GPU: 1, or 0 if that memory was pinned there. */
static uint64_t load_from_the_other(void)
{
    char out[512];
    uint64_t before = unpinned(1);
    cr_assert_eq(gpu_pool_engine(GPU_B, "load", "7", out, sizeof out), 0, "%s", out);
    cr_assert(strstr(out, "worker 1"), "%s", out);
    return unpinned(1) - before;
}

static bool is_pinned_there(void *ctx)
{
    (void)ctx;
    return load_from_the_other() == 0;
}

Test(process_gpu,
     what_an_engine_on_one_gpu_stored_is_loaded_on_the_other_and_pinned_there_on_first_need)
{
    char out[512];
    gpu_pool_start(2, NULL, NULL);
    cr_assert_eq(gpu_pool_engine(GPU_A, "store", "7", out, sizeof out), 0, "%s", out);
    cr_expect(strstr(out, "worker 0"), "%s", out);
    cr_expect_eq(load_from_the_other(), 1, "nobody needed it there before");
    cr_expect(proc_eventually(is_pinned_there, NULL, 5000));
    for (int i = 0; i < 3; i++)
        cr_expect_eq(load_from_the_other(), 0);
    cr_expect_eq(proc_entries(&gpu_pool, 1, SPW_READY), 0, "there is no second one");
    gpu_pool_stop();
}

Test(process_gpu, CU_7_a_client_meets_the_worker_of_its_gpu_whatever_its_ordinals)
{
    char out[512];
    gpu_pool_start(2, NULL, NULL);
    setenv("CUDA_VISIBLE_DEVICES", "1,0", 1);
    cr_expect_eq(gpu_pool_engine("0", "rounds", "3", out, sizeof out), 0, "%s", out);
    cr_expect(strstr(out, "worker 1"), "its device 0 is the pool's second: %s", out);
    gpu_pool_stop();
}

Test(process_gpu, CU_7_workers_take_the_gpus_that_the_configuration_names)
{
    char out[512];
    gpu_pool_start(2, "--gpu", GPU_B ",10:00.0");
    cr_expect(proc_said(&gpu_pool, "worker 0's GPU (" GPU_B ", 0000:90:00.0) copies"));
    cr_expect(proc_said(&gpu_pool, "worker 1's GPU (" GPU_A ", 0000:10:00.0) copies"));
    cr_expect_eq(gpu_pool_engine(GPU_B, "rounds", "3", out, sizeof out), 0, "%s", out);
    cr_expect(strstr(out, "worker 0"), "%s", out);
    gpu_pool_stop();
}

Test(process_gpu, CU_7_a_gpu_that_no_worker_has_is_refused_with_those_that_there_are)
{
    char out[512];
    gpu_pool_start(1, NULL, NULL);
    cr_expect_eq(gpu_pool_engine(GPU_B, "rounds", "1", out, sizeof out), REFUSED);
    cr_expect(strstr(out, "refused -19") && strstr(out, GPU_B) && strstr(out, GPU_A), "%s", out);
    gpu_pool_stop();
}

Test(process_gpu, CU_8_an_import_that_fails_is_a_refusal_with_the_drivers_word)
{
    char out[512];
    setenv("FAKE_CUDA_FAULTS", "IpcOpenMemHandle:1-:205", 1);
    gpu_pool_start(1, NULL, NULL);
    unsetenv("FAKE_CUDA_FAULTS");
    uint64_t begin = proc_now_ms();
    cr_expect_eq(gpu_pool_engine("0", "rounds", "1", out, sizeof out), REFUSED);
    cr_expect(strstr(out, "CUDA_ERROR_MAP_FAILED"), "%s", out);
    cr_expect_lt(proc_now_ms() - begin, 3000);
    gpu_pool_stop();
}

/* Memory that can't be exported: virtual memory management, containers without a common IPC namespace. */
Test(process_gpu, CU_8_memory_that_cant_be_exported_is_copied_by_a_worker_inside_its_engine)
{
    char out[512];
    gpu_pool_start(2, "--inside", "1");
    setenv("FAKE_CUDA_FAULTS", "IpcGetMemHandle:1-:801,IpcGetEventHandle:1-:801", 1);
    setenv("GPU_ENGINE_INSIDE", "1", 1);
    cr_expect_eq(gpu_pool_engine(GPU_B, "rounds", "50", out, sizeof out), 0, "%s", out);
    cr_expect(strstr(out, "worker 1") && strstr(out, "rounds 50"), "%s", out);
    cr_expect_eq(proc_count(&gpu_pool, 1, SPW_WORKER_chunks_loaded), 50);
    cr_expect_eq(proc_count(&gpu_pool, 1, SPW_WORKER_kv_registered), 1);
    unsetenv("GPU_ENGINE_INSIDE");
    cr_expect_neq(gpu_pool_engine("0", "rounds", "1", out, sizeof out), 0,
                  "it can't be exported: %s", out);
    unsetenv("FAKE_CUDA_FAULTS");
    gpu_pool_expect_rounds("0", "3"); /* others' can */
    gpu_pool_stop();
}

Test(process_gpu, CU_8_an_address_is_refused_by_a_worker_in_another_process)
{
    char out[512];
    gpu_pool_start(2, "--inside", "1");
    setenv("GPU_ENGINE_INSIDE", "1", 1);
    setenv("GPU_ENGINE_OTHER", "1", 1); /* its GPU is A, whose worker is a process of its own */
    cr_expect_eq(gpu_pool_engine(GPU_A, "rounds", "1", out, sizeof out), REFUSED, "%s", out);
    cr_expect(strstr(out, "run the worker inside the engine"), "%s", out);
    unsetenv("GPU_ENGINE_OTHER");
    unsetenv("GPU_ENGINE_INSIDE");
    gpu_pool_stop();
}

static bool has_none_open(void *ctx)
{
    (void)ctx;
    return handles(0) == 0;
}

Test(process_gpu, LC_4_a_killed_engine_leaves_no_memory_mapped)
{
    int out, status;
    gpu_pool_start(1, NULL, NULL);
    pid_t pid = gpu_pool_spawn_engine("hold", &out);
    cr_assert(proc_reads_line(out, "ready"));
    cr_expect_eq(handles(0), 2);
    kill(pid, SIGKILL);
    waitpid(pid, &status, 0);
    uint64_t begin = proc_now_ms();
    cr_expect(proc_eventually(has_none_open, NULL, 2000));
    cr_expect_leq(proc_now_ms() - begin, 2000);
    close(out);
    gpu_pool_stop();
}

Test(process_gpu, CU_6_the_daemon_has_no_driver_mapped_and_its_worker_has)
{
    char path[64], line[512];
    uint32_t daemon_maps = 0, worker_maps = 0;
    gpu_pool_start(1, NULL, NULL);
    for (int who = 0; who < 2; who++) {
        uint64_t pid = who == 0 ? (uint64_t)gpu_pool.daemon
                                : spw_load_relaxed(&gpu_pool.seen->ctl->worker[0].pid);
        snprintf(path, sizeof path, "/proc/%lu/maps", (unsigned long)pid);
        FILE *maps = fopen(path, "r");
        cr_assert_not_null(maps);
        while (fgets(line, sizeof line, maps))
            *(who == 0 ? &daemon_maps : &worker_maps) += strstr(line, "libcuda.so.1") != NULL;
        fclose(maps);
    }
    cr_expect_eq(daemon_maps, 0);
    cr_expect_gt(worker_maps, 0);
    gpu_pool_stop();
}

Test(process_gpu, CU_6_after_a_crash_the_next_worker_starts_its_driver_anew)
{
    int out, status;
    gpu_pool_start(1, NULL, NULL);
    uint64_t before = proc_incarnation(&gpu_pool, 0);
    pid_t pid = gpu_pool_spawn_engine("until-lost", &out);
    cr_assert(proc_reads_line(out, "ready"));
    usleep(100000);
    proc_signal_worker(&gpu_pool, 0, SIGKILL);
    cr_assert(proc_reads_line(out, "lost"));
    cr_assert(proc_await_successor(&gpu_pool, 0, before));
    cr_expect(proc_reads_line(out, "back"));
    waitpid(pid, &status, 0);
    bool clean = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    cr_expect(clean);
    close(out);
    gpu_pool_stop();
}

#ifdef SPW_CRASH_POINTS
/* The successor of the worker that is killed here dies at @point; an engine goes on with the next. */
static void die_at(const char *point)
{
    int out, status;
    pid_t pid = gpu_pool_spawn_engine("until-lost", &out);
    cr_assert(proc_reads_line(out, "ready"), "%s", point);
    cr_expect(gpu_pool_die_at(point), "nobody died at %s", point);
    cr_assert(proc_reads_line(out, "lost"), "%s", point);
    cr_expect(proc_reads_line(out, "back"), "%s", point);
    waitpid(pid, &status, 0);
    bool clean = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    cr_expect(clean, "%s", point);
    close(out);
}

Test(process_gpu,
     a_worker_that_dies_as_it_names_its_gpu_or_registers_memory_is_followed_by_one_that_does)
{
    struct proc_config config = gpu_pool_config(1, NULL, NULL);
    gpu_pool_open_mortal(&config);
    gpu_pool_serve();
    die_at("worker.gpu_named:1");
    die_at("worker.kv_stepped:1");
    die_at("worker.kv_stepped:4"); /* some of its memory is mapped, none of it is registered */
    die_at("worker.kv_words_stored:1");
    gpu_pool_stop();
}
#endif

static bool is_given_up(void *ctx)
{
    (void)ctx;
    return spw_load_relaxed(&gpu_pool.seen->ctl->worker[0].out_of_service) == 1;
}

Test(process_gpu, CU_5_a_gpu_that_keeps_failing_is_given_up_and_the_other_goes_on)
{
    char out[512];
    int first, status;
    /* each worker fails after some 30 rounds; the other one gets fewer */
    setenv("FAKE_CUDA_FAULTS", "copy:400-:700", 1);
    setenv("FAKE_CUDA_HIDE", "cuLaunchKernel", 1); /* piece by piece */
    gpu_pool_start(2, "--gpu-restarts", "2");
    unsetenv("FAKE_CUDA_HIDE");
    unsetenv("FAKE_CUDA_FAULTS");
    pid_t pid = gpu_pool_spawn_engine("until-lost", &first);
    cr_expect(proc_reads_line(first, "ready"));
    cr_expect(proc_reads_line(first, "lost"), "its runs fail, they don't hang");
    cr_expect(proc_reads_line(first, "back"), "the next worker has it");
    waitpid(pid, &status, 0);
    for (uint64_t until = proc_now_ms() + 20000; !is_given_up(NULL) && proc_now_ms() < until;) {
        status = gpu_pool_engine("0", "rounds", "200", out, sizeof out);
        cr_assert(status == 0 || status == FAILED || status == REFUSED, "%d %s", status, out);
        if (status != 0)
            usleep(50000); /* the next worker comes after its back-off */
    }
    cr_expect(is_given_up(NULL));
    cr_expect(proc_said(&gpu_pool, "out of service after 3 failures"));
    gpu_pool_expect_rounds("1", "5");
    static char stat[65536];
    cr_expect_eq(proc_spillway(&gpu_pool, "stat", true, stat, sizeof stat), 0);
    cr_expect(strstr(stat, "1 of 2 workers out of service, worker 0 first"), "%s", stat);
    cr_expect(strstr(stat, "\"out_of_service\": true"));
    close(first);
    gpu_pool_stop();
}

Test(process_gpu, without_a_driver_the_host_copies_and_it_is_said_once)
{
    struct proc_config config = {
        .workers = 2, .listen = true, .more = {"--cuda-library", "/nowhere/libcuda.so.1"}};
    cr_assert(proc_start(&gpu_pool, &config));
    cr_expect_eq(spw_load_relaxed(&gpu_pool.seen->feed[1]->gpu.kind), SPW_COPIER_HOST);
    cr_expect_eq(proc_stop(&gpu_pool, SIGTERM), 0);
    cr_expect_eq(proc_said_count(&gpu_pool, "no CUDA driver"), 1, "%s", gpu_pool.words);
    cr_expect_eq(proc_said_count(&gpu_pool, "the host copies"), 1, "%s", gpu_pool.words);
    proc_close(&gpu_pool);
}
