/* Ways to copy that a GPU refuses, and copies that don't end. */
#include "tests/process/gpu_pool.h"
#include "tests/process/proc.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tier/counters.h"

TestSuite(process_ways, .timeout = 60);

static bool has_stored(void *ctx)
{
    (void)ctx;
    return proc_count(&gpu_pool, 0, SPW_WORKER_chunks_stored) >= 5;
}

Test(process_ways, LC_9_a_worker_whose_copies_dont_end_says_so_at_the_limit_and_leaves)
{
    int out, status;
    setenv("FAKE_CUDA_FAULTS", "stall-kernel:20-:1", 1); /* behind the trial of its registration */
    gpu_pool_start(1, "--drain-limit", "200ms");
    unsetenv("FAKE_CUDA_FAULTS");
    pid_t pid = gpu_pool_spawn_engine("until-lost", &out);
    cr_assert(proc_reads_line(out, "ready"));
    cr_assert(proc_eventually(has_stored, NULL, 5000));
    usleep(300000); /* some ten rounds more: one doesn't end */
    uint64_t begin = proc_now_ms();
    cr_expect_eq(proc_stop(&gpu_pool, SIGTERM), 1);
    cr_expect_lt(proc_now_ms() - begin, 5000);
    cr_expect(proc_said(&gpu_pool, "copies were still running at the limit"));
    kill(pid, SIGKILL);
    waitpid(pid, &status, 0);
    close(out);
    proc_close(&gpu_pool);
}

static uint32_t phase(void)
{
    return spw_load_acquire(&gpu_pool.seen->ctl->worker[0].phase);
}

static bool is_down(void *ctx)
{
    (void)ctx;
    return phase() == SPW_WORKER_DOWN;
}

static bool is_reaped(void *ctx)
{
    (void)ctx;
    return phase() == SPW_WORKER_REAPED;
}

Test(process_ways, LC_9_an_engine_whose_copies_dont_end_keeps_its_shard_from_others_until_it_ends)
{
    char out[512];
    int fd, status;
    gpu_pool_start(1, "--inside", "0");
    setenv("GPU_ENGINE_INSIDE", "0", 1);
    setenv("FAKE_CUDA_FAULTS", "stall-kernel:3-:1", 1); /* two are the trial's */
    uint64_t begin = proc_now_ms();
    pid_t pid = gpu_pool_spawn_engine("stuck", &fd);
    unsetenv("FAKE_CUDA_FAULTS");
    cr_assert(proc_reads_line(fd, "stopped -16"));
    cr_expect_lt(proc_now_ms() - begin, 9000, "the drain limit is 5 s");
    cr_expect(proc_eventually(is_down, NULL, 2000), "and not REAPED: %u", phase());
    cr_expect(proc_said(&gpu_pool, "its shard is down until that process ends"));
    cr_expect_neq(gpu_pool_engine("0", "rounds", "1", out, sizeof out), 0);
    cr_expect(strstr(out, "is not gone yet"), "%s", out);
    kill(pid, SIGKILL);
    waitpid(pid, &status, 0);
    cr_expect(proc_eventually(is_reaped, NULL, 2000));
    cr_expect_eq(gpu_pool_engine("0", "rounds", "3", out, sizeof out), 0, "%s", out);
    close(fd);
    gpu_pool_stop();
}

/* Ways to copy that don't work here, and memory that can't be registered at all: the engine's chunks come back
 * all the same, and it is said. */
static void expect_rounds_despite(const char *faults, const char *warning)
{
    char out[512];
    static char stat[65536];
    setenv("FAKE_CUDA_FAULTS", faults, 1);
    gpu_pool_start(1, NULL, NULL);
    unsetenv("FAKE_CUDA_FAULTS");
    cr_expect_eq(gpu_pool_engine("0", "rounds", "20", out, sizeof out), 0, "%s: %s", faults, out);
    cr_expect(proc_said(&gpu_pool, warning), "%s: %s", faults, gpu_pool.words);
    cr_expect_eq(proc_spillway(&gpu_pool, "stat", true, stat, sizeof stat), 0);
    cr_expect(strstr(stat, warning), "%s: %s", faults, stat);
    gpu_pool_stop();
}

Test(process_ways, CU_8_a_way_that_fails_its_trial_is_left_out_with_one_warning)
{
    expect_rounds_despite("MemcpyBatchAsync:1-:801,LaunchKernel:1-:801",
                          "copies by one call and by the kernel failed the trial of a registration "
                          "(CUDA error 801): they go by a call a piece");
    expect_rounds_despite("LaunchKernel:1-:801", "copies by the kernel failed the trial of a "
                                                 "registration (CUDA error 801): they go by one "
                                                 "call");
}

Test(process_ways, CU_8_where_no_memory_can_be_registered_copies_go_by_a_call_a_piece)
{
    expect_rounds_despite("MemHostRegister:1-:801",
                          "copies by one call failed the trial of a registration (CUDA error 801)");
}
