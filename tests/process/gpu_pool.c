/* See gpu_pool.h. */
#include "tests/process/gpu_pool.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct proc_pool gpu_pool;

struct proc_config gpu_pool_config(uint32_t workers, const char *more, const char *value)
{
    struct proc_config config = {.workers = workers, .chunk_bytes = 4096, .listen = true};
    const char *args[] = {"--copier", "cuda", "--cuda-library", FAKE_CUDA, more, value};
    memcpy(config.more, args, sizeof args);
    setenv("FAKE_CUDA_DEVICES", GPU_A "@0000:10:00.0," GPU_B "@0000:90:00.0", 1);
    return config;
}

void gpu_pool_start(uint32_t workers, const char *more, const char *value)
{
    struct proc_config config = gpu_pool_config(workers, more, value);
    cr_assert(proc_start(&gpu_pool, &config));
}

void gpu_pool_open_mortal(const struct proc_config *config)
{
    proc_open(&gpu_pool, config);
    setenv("SPW_CRASH_WORKERS", gpu_pool.dir, 1);
}

void gpu_pool_serve(void)
{
    proc_spawn(&gpu_pool);
    cr_assert_eq(proc_await(&gpu_pool), 0);
}

static bool has_restarted_twice(void *before)
{
    return spw_load_relaxed(&gpu_pool.seen->ctl->worker[0].restarts) >= *(uint64_t *)before + 2;
}

void gpu_pool_doom(const char *point)
{
    char path[SUPPORT_PATH_BYTES + 16];
    snprintf(path, sizeof path, "%s/.crash.0", gpu_pool.dir);
    FILE *file = fopen(path, "w");
    bool written = file && fputs(point, file) >= 0 && fclose(file) == 0;
    cr_assert(written);
    proc_signal_worker(&gpu_pool, 0, SIGKILL);
}

bool gpu_pool_die_at(const char *point)
{
    uint64_t before = spw_load_relaxed(&gpu_pool.seen->ctl->worker[0].restarts);
    gpu_pool_doom(point);
    return proc_eventually(has_restarted_twice, &before, 8000);
}

void gpu_pool_stop(void)
{
    cr_expect_eq(proc_stop(&gpu_pool, SIGTERM), 0);
    proc_close(&gpu_pool);
}

int gpu_pool_engine(const char *gpu, const char *command, const char *argument, char *out,
                    size_t bytes)
{
    const char *argv[] = {GPU_ENGINE, gpu_pool.dir, "pool",   FAKE_CUDA,
                          gpu,        command,      argument, NULL};
    return proc_run(argv, out, bytes, 30000);
}

void gpu_pool_expect_rounds(const char *gpu, const char *count)
{
    char out[512];
    cr_expect_eq(gpu_pool_engine(gpu, "rounds", count, out, sizeof out), 0, "%s", out);
}

pid_t gpu_pool_spawn_engine(const char *command, int *out_fd)
{
    extern char **environ;
    int fd[2];
    pid_t pid;
    posix_spawn_file_actions_t actions;
    cr_assert_eq(pipe(fd), 0);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, fd[1], STDOUT_FILENO);
    posix_spawn_file_actions_addclose(&actions, fd[0]);
    char *argv[] = {
        (char *)GPU_ENGINE, gpu_pool.dir, (char *)"pool", (char *)FAKE_CUDA, (char *)"0",
        (char *)command,    NULL};
    cr_assert_eq(posix_spawn(&pid, GPU_ENGINE, &actions, NULL, argv, environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    close(fd[1]);
    *out_fd = fd[0];
    return pid;
}
