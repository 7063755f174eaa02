/* Payload of real pools pinned with the stand-in driver while they serve: what is said and shown, who can't
 * pin, and who dies in the middle. */
#include "tests/process/gpu_pool.h"

#include <criterion/criterion.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shm/alive.h"
#include "tier/counters.h"
#include "tier/table.h"

TestSuite(process_pinning, .timeout = 60);

#define ROUNDS "5"

static uint64_t pin_state(uint32_t k)
{
    return spw_load_acquire(&gpu_pool.seen->feed[k]->gpu.pin_state);
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
    cr_expect_eq(proc_spillway(&gpu_pool, "stat", false, out, sizeof out), 0);
    return out;
}

/* The value of worker @k's "copies" in stat --json; NULL where it isn't there. */
static json_t *stat_of(uint32_t k)
{
    static char out[65536];
    json_error_t error;
    cr_assert_eq(proc_spillway(&gpu_pool, "stat", true, out, sizeof out), 0);
    json_t *stat = json_loads(out, 0, &error),
           *worker = json_array_get(json_object_get(stat, "workers"), k);
    json_t *gpu = json_incref(json_object_get(worker, "copies"));
    json_decref(stat);
    return gpu;
}

static int open_lock(void)
{
    struct spw_pool_path path;
    struct spw_error err;
    cr_assert_eq(spw_pool_path_init(&path, gpu_pool.dir, "pool", (uint32_t)geteuid(), &err), 0);
    return spw_lock_open(&path, false, 0, -1, NULL);
}

/* The turn to register, on a lock of the test's own: workers stand still before their next piece. */
static int take_turn(void)
{
    int fd = open_lock();
    cr_assert_geq(fd, 0);
    while (spw_lock_take(fd, SPW_LOCK_PINNING) != 0)
        usleep(50);
    return fd;
}

static bool worker_has_begun(void *ctx)
{
    int fd = open_lock();
    (void)ctx;
    bool has = fd >= 0 && spw_lock_held(fd, SPW_LOCK_WORKER(0)) == 1;
    spw_lock_close(fd);
    return has;
}

/* The daemon of an open pool, and the turn, taken before a worker can have pinned much: it has yet to
 * open its GPU. */
static int serve_in_turn(void)
{
    proc_spawn(&gpu_pool);
    cr_assert(proc_eventually(worker_has_begun, NULL, 10000));
    int turn = take_turn();
    cr_assert_eq(proc_await(&gpu_pool), 0);
    return turn;
}

static uint64_t pinned_bytes(uint32_t k)
{
    return spw_load_relaxed(&gpu_pool.seen->feed[k]->gpu.pinned_bytes);
}

/* A pool whose workers take more than a second to pin, 5 ms a piece, so that they are met in the middle.
 * The stand-in registers no more than 256 pieces. */
static struct proc_config slow_to_pin(uint32_t workers)
{
    struct proc_config config = gpu_pool_config(workers, "--pin-piece", "4KiB");
    config.capacity = 200;
    setenv("FAKE_CUDA_NS_PER_MIB", "1280000000", 1);
    return config;
}

/* The same, with worker 0 in the middle of its shard. */
static int serve_to_the_middle(void)
{
    int turn = serve_in_turn();
    const struct spw_gpu_record *gpu = &gpu_pool.seen->feed[0]->gpu;
    uint64_t part = spw_load_relaxed(&gpu->pin_total_bytes) / 8;
    spw_lock_close(turn);
    for (uint64_t until = proc_now_ms() + 10000; pinned_bytes(0) < part && proc_now_ms() < until;)
        usleep(100);
    turn = take_turn();
    usleep(20000); /* the piece before is counted */
    cr_assert_eq(pin_state(0), SPW_PIN_RUNNING);
    cr_assert_geq(pinned_bytes(0), part);
    return turn;
}

Test(process_pinning, CU_2_two_workers_pin_one_at_a_time_and_each_piece_is_copied)
{
    char dir[SUPPORT_PATH_BYTES], turn[SUPPORT_PATH_BYTES + 8];
    cr_assert_eq(support_shm_dir(dir), 0);
    snprintf(turn, sizeof turn, "%s/turn", dir);
    setenv("FAKE_CUDA_TURN", turn, 1);
    gpu_pool_start(2, "--pin-piece", "4KiB"); /* each chunk's slot lies between two seams */
    cr_expect(await_pinning(0, SPW_PIN_DONE));
    cr_expect(await_pinning(1, SPW_PIN_DONE));
    cr_expect(strstr(stat_words(), "pinned: 2 of 2"), "%s", stat_words());
    gpu_pool_expect_rounds("0", ROUNDS);
    gpu_pool_expect_rounds("1", ROUNDS);
    cr_expect_eq(proc_count(&gpu_pool, 0, SPW_WORKER_copies_unpinned), 0);
    cr_expect(proc_said(&gpu_pool, "MiB pinned in"));
    gpu_pool_stop();
    support_remove_dir(dir);
}

Test(process_pinning, CU_2_relaxed_one_that_cannot_pin_leaves_all_unpinned_with_one_warning)
{
    setenv("FAKE_CUDA_UNPINNABLE", "1", 1);
    gpu_pool_start(2, "--pin", "relaxed");
    unsetenv("FAKE_CUDA_UNPINNABLE"); /* not for the engine */
    cr_expect(await_pinning(1, SPW_PIN_REFUSED));
    cr_expect(await_pinning(0, SPW_PIN_NONE));
    cr_expect_eq(spw_load_relaxed(&gpu_pool.seen->feed[0]->gpu.pinned_bytes), 0);
    cr_expect_eq(spw_load_relaxed(&gpu_pool.seen->ctl->pinning), SPW_PINNING_OFF);
    cr_expect(proc_said(&gpu_pool, "worker 1's GPU (" GPU_B
                                   ", 0000:90:00.0): memory can't be pinned at offset 0: "
                                   "CUDA_ERROR_OUT_OF_MEMORY"),
              "%s", gpu_pool.words);
    cr_expect(strstr(stat_words(), "pinned: 0 of 2"), "%s", stat_words());
    gpu_pool_expect_rounds("0", ROUNDS);
    gpu_pool_expect_rounds("1", ROUNDS);
    cr_expect_neq(proc_count(&gpu_pool, 0, SPW_WORKER_copies_unpinned), 0);
    uint64_t before = proc_incarnation(&gpu_pool, 0);
    proc_signal_worker(&gpu_pool, 0, SIGKILL);
    cr_assert(proc_await_successor(&gpu_pool, 0, before));
    cr_expect_eq(pin_state(0), SPW_PIN_NONE, "the next worker keeps to it");
    cr_expect_eq(proc_stop(&gpu_pool, SIGTERM), 0);
    cr_expect_eq(proc_said_count(&gpu_pool, "can't be pinned"), 1, "%s", gpu_pool.words);
    proc_close(&gpu_pool);
}

Test(process_pinning, CU_2_strict_one_that_cannot_pin_ends_the_pool_and_is_named)
{
    struct proc_config config = gpu_pool_config(2, "--pin", "strict");
    setenv("FAKE_CUDA_UNPINNABLE", "1", 1);
    proc_open(&gpu_pool, &config);
    proc_spawn(&gpu_pool);
    cr_expect_eq(support_wait(gpu_pool.daemon, 10000), 1);
    gpu_pool.daemon = 0;
    cr_expect(proc_said(&gpu_pool, "worker 1's GPU (" GPU_B
                                   ", 0000:90:00.0): memory can't be pinned at offset 0: "
                                   "CUDA_ERROR_OUT_OF_MEMORY; 0 of "),
              "%s", gpu_pool.words);
    proc_close(&gpu_pool);
}

Test(process_pinning, never_means_that_nothing_is_pinned_or_said)
{
    gpu_pool_start(1, "--pin", "never");
    gpu_pool_expect_rounds("0", ROUNDS);
    cr_expect_eq(pin_state(0), SPW_PIN_NONE);
    cr_expect_eq(proc_stop(&gpu_pool, SIGTERM), 0);
    cr_expect_eq(proc_said_count(&gpu_pool, "pinned"), 0, "%s", gpu_pool.words);
    proc_close(&gpu_pool);
}

/* ---- in the middle ---------------------------------------------------------------------------- */

static bool has_said_progress(void *ctx)
{
    return proc_said(&gpu_pool, " MiB touched, ");
}

Test(process_pinning, CU_3_what_is_pinned_serves_and_progress_is_said_and_shown)
{
    double touched, total, pinned, rate;
    struct proc_config config = slow_to_pin(1);
    proc_open(&gpu_pool, &config);
    int turn = serve_to_the_middle();
    uint64_t part = pinned_bytes(0);
    gpu_pool_expect_rounds("0", ROUNDS);
    cr_expect_eq(proc_count(&gpu_pool, 0, SPW_WORKER_copies_unpinned), 0,
                 "it served from that part");
    cr_expect(strstr(stat_words(), "pinned: 0 of 1"), "%s", stat_words());
    cr_expect(strstr(stat_words(), "running"), "%s", stat_words());
    json_t *gpu = stat_of(0);
    cr_expect_str_eq(json_string_value(json_object_get(gpu, "pin_state")), "running");
    cr_expect_eq((uint64_t)json_integer_value(json_object_get(gpu, "pinned_bytes")), part);
    cr_expect_gt((uint64_t)json_integer_value(json_object_get(gpu, "pin_total_bytes")), part);
    json_decref(gpu);
    cr_expect(proc_eventually(has_said_progress, NULL, 7000), "%s", gpu_pool.words);
    usleep(3000000);
    cr_expect_eq(proc_said_count(&gpu_pool, " MiB touched, "), 1, "the next one comes after 5 s");
    const char *line = strstr(gpu_pool.words, GPU_A ", 0000:10:00.0): ");
    while (line &&
           sscanf(line, GPU_A ", 0000:10:00.0): %lf of %lf MiB touched, %lf pinned, %lf MiB/s",
                  &touched, &total, &pinned, &rate) != 4)
        line = strstr(line + 1, GPU_A ", 0000:10:00.0): ");
    cr_expect(line && touched > 0 && touched <= total && pinned > 0 && pinned < total, "%s",
              gpu_pool.words);
    spw_lock_close(turn);
    cr_expect(await_pinning(0, SPW_PIN_DONE));
    cr_expect(proc_said(&gpu_pool, "MiB pinned in"));
    gpu = stat_of(0);
    cr_expect_str_eq(json_string_value(json_object_get(gpu, "pin_state")), "done");
    cr_expect_eq(json_integer_value(json_object_get(gpu, "pinned_bytes")),
                 json_integer_value(json_object_get(gpu, "pin_total_bytes")));
    json_decref(gpu);
    cr_expect(strstr(stat_words(), "pinned: 1 of 1"), "%s", stat_words());
    gpu_pool_stop();
}

Test(process_pinning, CU_2_a_worker_that_dies_in_the_middle_keeps_nobody_from_pinning)
{
    struct proc_config config = slow_to_pin(2);
    proc_open(&gpu_pool, &config);
    int turn = serve_to_the_middle();
    uint64_t before = proc_incarnation(&gpu_pool, 0);
    proc_signal_worker(&gpu_pool, 0, SIGKILL);
    spw_lock_close(turn);
    cr_assert(proc_await_successor(&gpu_pool, 0, before));
    cr_expect(await_pinning(0, SPW_PIN_DONE));
    cr_expect(await_pinning(1, SPW_PIN_DONE));
    gpu_pool_expect_rounds("0", ROUNDS);
    cr_expect_eq(proc_count(&gpu_pool, 0, SPW_WORKER_copies_unpinned), 0);
    gpu_pool_stop();
}

#ifdef SPW_CRASH_POINTS
static bool is_up_no_more(void *ctx)
{
    (void)ctx;
    return spw_load_acquire(&gpu_pool.seen->ctl->worker[0].phase) != SPW_WORKER_UP;
}

Test(process_pinning, CU_2_a_worker_that_dies_in_its_turn_leaves_it_to_others)
{
    struct proc_config config = slow_to_pin(2);
    gpu_pool_open_mortal(&config);
    int turn = serve_in_turn();
    uint64_t before = proc_incarnation(&gpu_pool, 0);
    gpu_pool_doom("pin.turn_taken:3");
    cr_assert(proc_await_successor(&gpu_pool, 0, before));
    cr_expect_eq(pinned_bytes(0), 0, "it waits for its first turn");
    cr_expect_eq(pin_state(1), SPW_PIN_RUNNING, "so does the other for its next");
    before = proc_incarnation(&gpu_pool, 0);
    spw_lock_close(turn);
    cr_expect(proc_eventually(is_up_no_more, NULL, 5000), "nobody died");
    cr_expect_eq(pin_state(1), SPW_PIN_RUNNING, "it needs turns yet");
    cr_assert(proc_await_successor(&gpu_pool, 0, before));
    cr_expect(await_pinning(0, SPW_PIN_DONE));
    cr_expect(await_pinning(1, SPW_PIN_DONE));
    gpu_pool_expect_rounds("0", ROUNDS);
    gpu_pool_stop();
}
#endif

Test(process_pinning, a_pool_that_is_started_again_pins_again_while_it_serves)
{
    struct proc_config config = slow_to_pin(1);
    config.on_stop = "keep";
    cr_assert(proc_start(&gpu_pool, &config));
    cr_expect(await_pinning(0, SPW_PIN_DONE));
    gpu_pool_expect_rounds("0", ROUNDS);
    uint32_t chunks = proc_entries(&gpu_pool, 0, SPW_READY);
    cr_expect_gt(chunks, 0);
    cr_expect_eq(proc_stop(&gpu_pool, SIGTERM), 0);
    int turn = serve_to_the_middle();
    cr_expect_eq(proc_entries(&gpu_pool, 0, SPW_READY), chunks, "it is a warm start");
    gpu_pool_expect_rounds("0", ROUNDS);
    spw_lock_close(turn);
    cr_expect(await_pinning(0, SPW_PIN_DONE));
    cr_expect_eq(pinned_bytes(0), spw_load_relaxed(&gpu_pool.seen->feed[0]->gpu.pin_total_bytes));
    gpu_pool_stop();
}

/* ---- too slow --------------------------------------------------------------------------------- */

static struct proc_config with_limit(const char *mode)
{
    struct proc_config config = gpu_pool_config(1, "--pin-piece", "4KiB");
    const char *more[] = {"--pin-limit", "100ms", "--pin", mode};
    memcpy(config.more + 6, more, sizeof more);
    return config;
}

Test(process_pinning, CU_3_strict_a_limit_that_is_too_short_ends_the_pool)
{
    struct proc_config config = with_limit("strict");
    proc_open(&gpu_pool, &config);
    proc_spawn(&gpu_pool);
    uint64_t since = proc_now_ms();
    cr_expect_eq(support_wait(gpu_pool.daemon, 10000), 1);
    cr_expect_lt(proc_now_ms() - since, 5000);
    gpu_pool.daemon = 0;
    cr_expect(proc_said(&gpu_pool, "0000:10:00.0): memory wasn't pinned within 0.1 s: "), "%s",
              gpu_pool.words);
    cr_expect(proc_said(&gpu_pool, "; a longer --pin-limit, or --pin relaxed"), "%s",
              gpu_pool.words);
    proc_close(&gpu_pool);
}

Test(process_pinning, CU_3_relaxed_a_limit_that_is_too_short_leaves_all_unpinned)
{
    struct proc_config config = with_limit("relaxed");
    cr_assert(proc_start(&gpu_pool, &config));
    cr_expect(await_pinning(0, SPW_PIN_REFUSED));
    cr_expect(proc_said(&gpu_pool, "memory wasn't pinned within 0.1 s: "), "%s", gpu_pool.words);
    cr_expect(proc_said(&gpu_pool, "all workers go on with memory that isn't pinned"));
    cr_expect_eq(pinned_bytes(0), 0);
    gpu_pool_expect_rounds("0", ROUNDS);
    cr_expect_neq(proc_count(&gpu_pool, 0, SPW_WORKER_copies_unpinned), 0);
    cr_expect(strstr(stat_words(), "memory wasn't pinned within"), "%s", stat_words());
    json_t *gpu = stat_of(0);
    cr_expect_str_eq(json_string_value(json_object_get(gpu, "pin_state")), "refused");
    json_decref(gpu);
    gpu_pool_stop();
}

/* ---- a GPU that is lost ----------------------------------------------------------------------- */

static bool is_given_up(void *ctx)
{
    return spw_load_relaxed(&gpu_pool.seen->ctl->worker[0].out_of_service) == 1;
}

Test(process_pinning, CU_5_a_gpu_that_is_lost_as_it_pins_says_nothing_of_memory)
{
    struct proc_config config = gpu_pool_config(2, "--pin", "strict");
    const char *more[] = {"--gpu-restarts", "1", "--pin-piece", "4KiB"};
    memcpy(config.more + 6, more, sizeof more);
    setenv("FAKE_CUDA_FAULTS", "MemHostRegister:20-:700@0", 1);
    cr_assert(proc_start(&gpu_pool, &config));
    unsetenv("FAKE_CUDA_FAULTS");
    cr_expect(proc_eventually(is_given_up, NULL, 15000));
    cr_expect(await_pinning(1, SPW_PIN_DONE), "the other goes on");
    gpu_pool_expect_rounds(GPU_B, ROUNDS);
    cr_expect_eq(proc_stop(&gpu_pool, SIGTERM), 0);
    cr_expect_eq(proc_said_count(&gpu_pool, "worker 0: its GPU failed"), 2, "%s", gpu_pool.words);
    cr_expect_eq(proc_said_count(&gpu_pool, "0000:10:00.0): out of service after 2 failures"), 1);
    cr_expect_eq(proc_said_count(&gpu_pool, "0000:10:00.0): "), 1, "nothing else of it");
    proc_close(&gpu_pool);
}
