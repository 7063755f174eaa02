/* Daemon, workers and engines on the stand-in driver: chunks of GPU memory go through a pool and come
 * back, whoever dies. */
#include "tests/process/proc.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tier/counters.h"

TestSuite(process_gpu, .timeout = 60);

#define A "GPU-aaaaaaaa-0000-0000-0000-000000000001"
#define B "GPU-bbbbbbbb-0000-0000-0000-000000000002"

static struct proc_pool pool;

static struct proc_config configured(uint32_t workers, const char *more, const char *value)
{
    struct proc_config config = {.workers = workers, .chunk_bytes = 4096, .listen = true};
    const char *args[] = {"--copier", "cuda", "--cuda-library", FAKE_CUDA, more, value};
    memcpy(config.more, args, sizeof args);
    setenv("FAKE_CUDA_DEVICES", A "@0000:10:00.0," B "@0000:90:00.0", 1);
    return config;
}

static void start(uint32_t workers, const char *more, const char *value)
{
    struct proc_config config = configured(workers, more, value);
    cr_assert(proc_start(&pool, &config));
}

static void finish(void)
{
    cr_expect_eq(proc_stop(&pool, SIGTERM), 0);
    proc_close(&pool);
}

static int engine(const char *gpu, const char *command, const char *count, char *out, size_t bytes)
{
    const char *argv[] = {GPU_ENGINE, pool.dir, "pool", FAKE_CUDA, gpu, command, count, NULL};
    return proc_run(argv, out, bytes, 30000);
}

static pid_t spawn_engine(const char *command, int *out_fd)
{
    extern char **environ;
    int fd[2];
    pid_t pid;
    posix_spawn_file_actions_t actions;
    cr_assert_eq(pipe(fd), 0);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, fd[1], STDOUT_FILENO);
    posix_spawn_file_actions_addclose(&actions, fd[0]);
    char *argv[] = {(char *)GPU_ENGINE, pool.dir, (char *)"pool", (char *)FAKE_CUDA, (char *)"0",
                    (char *)command,    NULL};
    cr_assert_eq(posix_spawn(&pid, GPU_ENGINE, &actions, NULL, argv, environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    close(fd[1]);
    *out_fd = fd[0];
    return pid;
}

static uint64_t handles(uint32_t k)
{
    return spw_load_relaxed(&pool.seen->feed[k]->gpu.handles_open);
}

Test(process_gpu, chunks_of_gpu_memory_go_through_the_pool_and_come_back)
{
    char out[512];
    start(1, NULL, NULL);
    cr_expect_eq(engine("0", "rounds", "200", out, sizeof out), 0, "%s", out);
    cr_expect(strstr(out, "rounds 200"), "%s", out);
    cr_expect_eq(proc_count(&pool, 0, SPW_WORKER_chunks_loaded), 200);
    cr_expect_eq(proc_count(&pool, 0, SPW_WORKER_kv_registered), 1);
    cr_expect(proc_said(&pool, "worker 0 copies by gpu0 (" A ", 0000:10:00.0)"));
    finish();
}

Test(process_gpu, CU_7_a_client_meets_the_worker_of_its_gpu_whatever_its_ordinals)
{
    char out[512];
    start(2, NULL, NULL);
    setenv("CUDA_VISIBLE_DEVICES", "1,0", 1);
    cr_expect_eq(engine("0", "rounds", "3", out, sizeof out), 0, "%s", out);
    cr_expect(strstr(out, "worker 1"), "its device 0 is the pool's second: %s", out);
    finish();
}

Test(process_gpu, CU_7_workers_take_the_gpus_that_the_configuration_names)
{
    char out[512];
    start(2, "--gpu", B ",10:00.0");
    cr_expect(proc_said(&pool, "worker 0 copies by gpu0 (" B ", 0000:90:00.0)"));
    cr_expect(proc_said(&pool, "worker 1 copies by gpu1 (" A ", 0000:10:00.0)"));
    cr_expect_eq(engine(B, "rounds", "3", out, sizeof out), 0, "%s", out);
    cr_expect(strstr(out, "worker 0"), "%s", out);
    finish();
}

Test(process_gpu, CU_7_a_gpu_that_no_worker_has_is_refused_with_those_that_there_are)
{
    char out[512];
    start(1, NULL, NULL);
    cr_expect_eq(engine(B, "rounds", "1", out, sizeof out), 3);
    cr_expect(strstr(out, "refused -19") && strstr(out, B) && strstr(out, A), "%s", out);
    finish();
}

Test(process_gpu, CU_8_an_import_that_fails_is_a_refusal_with_the_drivers_word)
{
    char out[512];
    setenv("FAKE_CUDA_FAULTS", "IpcOpenMemHandle:1-:205", 1);
    start(1, NULL, NULL);
    unsetenv("FAKE_CUDA_FAULTS");
    uint64_t begin = proc_now_ms();
    cr_expect_eq(engine("0", "rounds", "1", out, sizeof out), 3);
    cr_expect(strstr(out, "CUDA_ERROR_MAP_FAILED"), "%s", out);
    cr_expect_lt(proc_now_ms() - begin, 3000);
    finish();
}

/* Memory that can't be exported: virtual memory management, containers without a common IPC namespace. */
Test(process_gpu, CU_8_memory_that_cant_be_exported_is_copied_by_a_worker_inside_its_engine)
{
    char out[512];
    start(2, "--inside", "1");
    setenv("FAKE_CUDA_FAULTS", "IpcGetMemHandle:1-:801,IpcGetEventHandle:1-:801", 1);
    setenv("GPU_ENGINE_INSIDE", "1", 1);
    cr_expect_eq(engine(B, "rounds", "50", out, sizeof out), 0, "%s", out);
    cr_expect(strstr(out, "worker 1") && strstr(out, "rounds 50"), "%s", out);
    cr_expect_eq(proc_count(&pool, 1, SPW_WORKER_chunks_loaded), 50);
    cr_expect_eq(proc_count(&pool, 1, SPW_WORKER_kv_registered), 1);
    unsetenv("GPU_ENGINE_INSIDE");
    cr_expect_neq(engine("0", "rounds", "1", out, sizeof out), 0, "it can't be exported: %s", out);
    unsetenv("FAKE_CUDA_FAULTS");
    cr_expect_eq(engine("0", "rounds", "3", out, sizeof out), 0, "others' is: %s", out);
    finish();
}

Test(process_gpu, CU_8_an_address_is_refused_by_a_worker_in_another_process)
{
    char out[512];
    start(2, "--inside", "1");
    setenv("GPU_ENGINE_INSIDE", "1", 1);
    setenv("GPU_ENGINE_OTHER", "1", 1); /* its GPU is A, whose worker is a process of its own */
    cr_expect_eq(engine(A, "rounds", "1", out, sizeof out), 3, "%s", out);
    cr_expect(strstr(out, "run the worker inside the engine"), "%s", out);
    unsetenv("GPU_ENGINE_OTHER");
    unsetenv("GPU_ENGINE_INSIDE");
    finish();
}

static bool has_none_open(void *ctx)
{
    (void)ctx;
    return handles(0) == 0;
}

Test(process_gpu, LC_4_a_killed_engine_leaves_no_memory_mapped)
{
    int out, status;
    start(1, NULL, NULL);
    pid_t pid = spawn_engine("hold", &out);
    cr_assert(proc_reads_line(out, "ready"));
    cr_expect_eq(handles(0), 2);
    kill(pid, SIGKILL);
    waitpid(pid, &status, 0);
    uint64_t begin = proc_now_ms();
    cr_expect(proc_eventually(has_none_open, NULL, 2000));
    cr_expect_leq(proc_now_ms() - begin, 2000);
    close(out);
    finish();
}

Test(process_gpu, CU_6_the_daemon_has_no_driver_mapped_and_its_worker_has)
{
    char path[64], line[512];
    uint32_t daemon_maps = 0, worker_maps = 0;
    start(1, NULL, NULL);
    for (int who = 0; who < 2; who++) {
        uint64_t pid =
            who == 0 ? (uint64_t)pool.daemon : spw_load_relaxed(&pool.seen->ctl->worker[0].pid);
        snprintf(path, sizeof path, "/proc/%lu/maps", (unsigned long)pid);
        FILE *maps = fopen(path, "r");
        cr_assert_not_null(maps);
        while (fgets(line, sizeof line, maps))
            *(who == 0 ? &daemon_maps : &worker_maps) += strstr(line, "libcuda.so.1") != NULL;
        fclose(maps);
    }
    cr_expect_eq(daemon_maps, 0);
    cr_expect_gt(worker_maps, 0);
    finish();
}

Test(process_gpu, CU_6_after_a_crash_the_next_worker_starts_its_driver_anew)
{
    int out, status;
    start(1, NULL, NULL);
    uint64_t before = proc_incarnation(&pool, 0);
    pid_t pid = spawn_engine("until-lost", &out);
    cr_assert(proc_reads_line(out, "ready"));
    usleep(100000);
    proc_signal_worker(&pool, 0, SIGKILL);
    cr_assert(proc_reads_line(out, "lost"));
    cr_assert(proc_await_successor(&pool, 0, before));
    cr_expect(proc_reads_line(out, "back"));
    waitpid(pid, &status, 0);
    bool clean = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    cr_expect(clean);
    close(out);
    finish();
}

#ifdef SPW_CRASH_POINTS
static bool has_restarted_twice(void *before)
{
    return spw_load_relaxed(&pool.seen->ctl->worker[0].restarts) >= *(uint64_t *)before + 2;
}

/* The successor of the worker that is killed here dies at @point; an engine goes on with the next. */
static void die_at(const char *point)
{
    char path[SUPPORT_PATH_BYTES + 16];
    int out, status;
    snprintf(path, sizeof path, "%s/.crash.0", pool.dir);
    pid_t pid = spawn_engine("until-lost", &out);
    cr_assert(proc_reads_line(out, "ready"), "%s", point);
    FILE *file = fopen(path, "w");
    bool written = file && fputs(point, file) >= 0 && fclose(file) == 0;
    cr_assert(written);
    uint64_t before = spw_load_relaxed(&pool.seen->ctl->worker[0].restarts);
    proc_signal_worker(&pool, 0, SIGKILL);
    cr_assert(proc_reads_line(out, "lost"), "%s", point);
    cr_expect(proc_eventually(has_restarted_twice, &before, 8000), "nobody died at %s", point);
    cr_expect(proc_reads_line(out, "back"), "%s", point);
    waitpid(pid, &status, 0);
    bool clean = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    cr_expect(clean, "%s", point);
    close(out);
}

Test(process_gpu,
     a_worker_that_dies_as_it_names_its_gpu_or_registers_memory_is_followed_by_one_that_does)
{
    struct proc_config config = configured(1, NULL, NULL);
    proc_open(&pool, &config);
    setenv("SPW_CRASH_WORKERS", pool.dir, 1);
    proc_spawn(&pool);
    cr_assert_eq(proc_await(&pool), 0);
    die_at("worker.gpu_named:1");
    die_at("worker.kv_stepped:1");
    die_at("worker.kv_stepped:4"); /* some of its memory is mapped, none of it is registered */
    die_at("worker.kv_words_stored:1");
    finish();
}
#endif

static bool is_given_up(void *ctx)
{
    (void)ctx;
    return spw_load_relaxed(&pool.seen->ctl->worker[0].out_of_service) == 1;
}

Test(process_gpu, CU_5_a_gpu_that_keeps_failing_is_given_up_and_the_other_goes_on)
{
    char out[512];
    int first, status;
    /* each worker fails after some 30 rounds; the other one gets fewer */
    setenv("FAKE_CUDA_FAULTS", "copy:400-:700", 1);
    setenv("FAKE_CUDA_HIDE", "cuLaunchKernel", 1); /* piece by piece */
    start(2, "--gpu-restarts", "2");
    unsetenv("FAKE_CUDA_HIDE");
    unsetenv("FAKE_CUDA_FAULTS");
    pid_t pid = spawn_engine("until-lost", &first);
    cr_expect(proc_reads_line(first, "ready"));
    cr_expect(proc_reads_line(first, "lost"), "its runs fail, they don't hang");
    cr_expect(proc_reads_line(first, "back"), "the next worker has it");
    waitpid(pid, &status, 0);
    for (uint64_t until = proc_now_ms() + 20000; !is_given_up(NULL) && proc_now_ms() < until;)
        if (engine("0", "rounds", "200", out, sizeof out) != 0)
            usleep(50000); /* the next worker comes after its back-off */
    cr_expect(is_given_up(NULL));
    cr_expect(proc_said(&pool, "out of service after 3 failures"));
    cr_expect_eq(engine("1", "rounds", "5", out, sizeof out), 0, "%s", out);
    static char stat[65536];
    cr_expect_eq(proc_spillway(&pool, "stat", true, stat, sizeof stat), 0);
    cr_expect(strstr(stat, "1 of 2 workers out of service, worker 0 first"), "%s", stat);
    cr_expect(strstr(stat, "\"out_of_service\": true"));
    close(first);
    finish();
}

/* ---- pinning ---------------------------------------------------------------------------------- */

static uint64_t pin_state(uint32_t k)
{
    return spw_load_acquire(&pool.seen->feed[k]->gpu.pin_state);
}

static bool await_pinning(uint32_t k, uint64_t state)
{
    for (uint64_t until = proc_now_ms() + 10000; pin_state(k) != state && proc_now_ms() < until;)
        usleep(1000);
    return pin_state(k) == state;
}

static const char *stat_words(void)
{
    static char out[16384];
    cr_expect_eq(proc_spillway(&pool, "stat", false, out, sizeof out), 0);
    return out;
}

Test(process_gpu, CU_2_two_workers_pin_one_at_a_time_and_each_piece_is_copied)
{
    char out[512], dir[SUPPORT_PATH_BYTES], turn[SUPPORT_PATH_BYTES + 8];
    cr_assert_eq(support_shm_dir(dir), 0);
    snprintf(turn, sizeof turn, "%s/turn", dir);
    setenv("FAKE_CUDA_TURN", turn, 1);
    start(2, "--pin-piece", "4KiB"); /* each chunk's slot lies between two seams */
    cr_expect(await_pinning(0, SPW_PIN_DONE));
    cr_expect(await_pinning(1, SPW_PIN_DONE));
    cr_expect(strstr(stat_words(), "pinned: 2 of 2"), "%s", stat_words());
    cr_expect_eq(engine("0", "rounds", "5", out, sizeof out), 0, "%s", out);
    cr_expect_eq(engine("1", "rounds", "5", out, sizeof out), 0, "%s", out);
    cr_expect_eq(proc_count(&pool, 0, SPW_WORKER_copies_unpinned), 0);
    cr_expect(proc_said(&pool, "MiB pinned in"));
    finish();
    support_remove_dir(dir);
}

Test(process_gpu, CU_2_relaxed_one_that_cannot_pin_leaves_all_unpinned_with_one_warning)
{
    char out[512];
    setenv("FAKE_CUDA_UNPINNABLE", "1", 1);
    start(2, "--pin", "relaxed");
    unsetenv("FAKE_CUDA_UNPINNABLE"); /* not for the engine */
    cr_expect(await_pinning(1, SPW_PIN_REFUSED));
    cr_expect(await_pinning(0, SPW_PIN_NONE));
    cr_expect_eq(spw_load_relaxed(&pool.seen->feed[0]->gpu.pinned_bytes), 0);
    cr_expect_eq(spw_load_relaxed(&pool.seen->ctl->pinning), SPW_PINNING_OFF);
    cr_expect(proc_said(&pool, "gpu1 (" B ", 0000:90:00.0): memory can't be pinned at offset 0: "
                               "CUDA_ERROR_OUT_OF_MEMORY"),
              "%s", pool.words);
    const char *first = strstr(pool.words, "can't be pinned");
    cr_expect(first && !strstr(first + 1, "can't be pinned"), "said once");
    cr_expect(strstr(stat_words(), "pinned: 0 of 2"), "%s", stat_words());
    cr_expect_eq(engine("0", "rounds", "5", out, sizeof out), 0, "%s", out);
    cr_expect_eq(engine("1", "rounds", "5", out, sizeof out), 0, "%s", out);
    cr_expect_neq(proc_count(&pool, 0, SPW_WORKER_copies_unpinned), 0);
    uint64_t before = proc_incarnation(&pool, 0);
    proc_signal_worker(&pool, 0, SIGKILL);
    cr_assert(proc_await_successor(&pool, 0, before));
    cr_expect_eq(pin_state(0), SPW_PIN_NONE, "the next worker keeps to it");
    finish();
}

Test(process_gpu, CU_2_strict_one_that_cannot_pin_ends_the_pool_and_is_named)
{
    struct proc_config config = {
        .workers = 2,
        .chunk_bytes = 4096,
        .listen = true,
        .more = {"--copier", "cuda", "--cuda-library", FAKE_CUDA, "--pin", "strict"}};
    setenv("FAKE_CUDA_DEVICES", A "@0000:10:00.0," B "@0000:90:00.0", 1);
    setenv("FAKE_CUDA_UNPINNABLE", "1", 1);
    proc_open(&pool, &config);
    proc_spawn(&pool);
    cr_expect_eq(support_wait(pool.daemon, 10000), 1);
    pool.daemon = 0;
    cr_expect(proc_said(&pool, "gpu1 (" B ", 0000:90:00.0): memory can't be pinned at offset 0: "
                               "CUDA_ERROR_OUT_OF_MEMORY; 0 of "),
              "%s", pool.words);
    proc_close(&pool);
}

Test(process_gpu, never_means_that_nothing_is_pinned_or_said)
{
    char out[512];
    start(1, "--pin", "never");
    cr_expect_eq(engine("0", "rounds", "5", out, sizeof out), 0, "%s", out);
    cr_expect_eq(pin_state(0), SPW_PIN_NONE);
    cr_expect(!strstr(pool.words, "pinned"));
    finish();
}

Test(process_gpu, without_a_driver_the_host_copies_and_it_is_said_once)
{
    struct proc_config config = {.workers = 2, .listen = true};
    unsetenv("LD_LIBRARY_PATH"); /* where this build's libraries lie, the stand-in among them */
    cr_assert(proc_start(&pool, &config));
    cr_expect(proc_said(&pool, "no CUDA driver"));
    const char *first = strstr(pool.words, "the host copies");
    cr_assert_not_null(first);
    cr_expect_null(strstr(first + 1, "the host copies"));
    cr_expect_eq(spw_load_relaxed(&pool.seen->feed[1]->gpu.kind), SPW_COPIER_HOST);
    finish();
}
