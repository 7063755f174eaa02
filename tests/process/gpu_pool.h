#ifndef SPW_TESTS_PROCESS_GPU_POOL_H
#define SPW_TESTS_PROCESS_GPU_POOL_H
/*
 * A real pool whose workers copy by the stand-in driver on a host of two GPUs, and engines' processes
 * (gpu_engine.c) on it. What can't be had ends the test.
 */
#include "tests/process/proc.h"

#define GPU_A "GPU-aaaaaaaa-0000-0000-0000-000000000001"
#define GPU_B "GPU-bbbbbbbb-0000-0000-0000-000000000002"

extern struct proc_pool gpu_pool;

/** Chunks of 4 KiB; an option more, or NULL. The host's GPUs are set in the environment. */
struct proc_config gpu_pool_config(uint32_t workers, const char *more, const char *value);
void gpu_pool_start(uint32_t workers, const char *more, const char *value);
/** One whose workers die where they are told to; then a daemon for what is open. */
void gpu_pool_open_mortal(const struct proc_config *config);
void gpu_pool_serve(void);
/** Kill worker 0; its successor will die at @point ("NAME:N"). */
void gpu_pool_doom(const char *point);
/** The same, to its end: true once the one after that successor is started. */
bool gpu_pool_die_at(const char *point);
/** A clean end is expected. */
void gpu_pool_stop(void);
/** An engine on @gpu to its end: its exit status, and what it said in @out. */
int gpu_pool_engine(const char *gpu, const char *command, const char *argument, char *out,
                    size_t bytes);
/** "rounds" of one, which end well. */
void gpu_pool_expect_rounds(const char *gpu, const char *count);
/** One on device 0 that runs on; its output at *out_fd. */
pid_t gpu_pool_spawn_engine(const char *command, int *out_fd);

#endif
