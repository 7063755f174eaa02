/* Memory registered with the stand-in driver: its limits, its errors, what it calls them. */
#include "gpu/pin.h"

#include <criterion/criterion.h>
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "gpu/gpu_impl.h"
#include "tests/fake_cuda/fake_cuda.h"

TestSuite(gpu_pin, .timeout = 30);

#define MIB 1048576ull
#define GIB (1ull << 30)

static struct spw_gpu_record record;
static spw_atomic32 pinning;
static char words[256];
static struct fake_cuda *fake;
static struct spw_gpu *gpu;
static struct spw_pin *pin;
static struct spw_pin_config config;

static void say(void *ctx, const char *text)
{
    snprintf(words, sizeof words, "%s", text);
}

static int touch_nothing(void *ctx, uint8_t *start, uint64_t bytes)
{
    return 0;
}

/* Two sparse shards; the other one is only read. */
static void start(uint64_t bytes, uint32_t slot_bytes)
{
    struct spw_gpu_config which = {.driver = FAKE_CUDA, .which = "0"};
    struct spw_error err = {0};
    cr_assert_eq(spw_gpu_open(&which, &gpu, &err), 0, "%s", err.text);
    fake = ((struct fake_cuda * (*)(void)) dlsym(gpu->driver.loaded, "fake_cuda_control"))();
    config = (struct spw_pin_config){.backend = spw_pin_driver(gpu),
                                     .shards = 2,
                                     .slot_bytes = slot_bytes,
                                     .lock_fd = memfd_create("lock", MFD_CLOEXEC),
                                     .pinning = &pinning,
                                     .record = &record,
                                     .say = say,
                                     .touch = touch_nothing};
    for (uint32_t s = 0; s < 2; s++) {
        int protection = s == 0 ? PROT_READ | PROT_WRITE : PROT_READ;
        uint8_t *at =
            mmap(NULL, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        cr_assert_neq(at, MAP_FAILED);
        config.memory[s] = (struct spw_pin_memory){at, bytes};
    }
}

static bool open_until(uint64_t state)
{
    struct spw_error err;
    cr_assert_eq(spw_pin_open(&config, &pin, &err), 0);
    for (uint32_t i = 0; i < 50000 && spw_load_acquire(&record.pin_state) != state; i++)
        usleep(100);
    return spw_load_acquire(&record.pin_state) == state;
}

static void stop(void)
{
    spw_pin_close(pin);
    cr_expect_eq(spw_load_relaxed(&fake->registered), 0, "nothing is left");
    spw_gpu_close(gpu);
    close(config.lock_fd);
}

/* A copy from the own shard begins and ends: was it pinned? */
static bool copies(uint64_t off, uint64_t bytes)
{
    if (!spw_pin_use(pin, config.memory[0].start + off, bytes))
        return false;
    spw_pin_done(pin);
    return true;
}

Test(gpu_pin, CU_1_ten_gib_are_pinned_where_one_call_takes_two)
{
    start(10 * GIB, 64 * MIB);
    spw_store_relaxed(&fake->registration_cap, 2 * GIB);
    cr_expect(open_until(SPW_PIN_DONE), "%s", words);
    cr_expect_eq(spw_load_relaxed(&fake->registrations), 10);
    for (uint64_t off = 0; off < 10 * GIB; off += 64 * MIB)
        cr_expect(copies(off, 64 * MIB));
    for (uint64_t off = GIB; off < 10 * GIB; off += GIB)
        cr_expect(!copies(off - 64 * MIB, 128 * MIB), "a piece is no longer than that");
    stop();
}

Test(gpu_pin, CU_1_the_third_of_five_calls_fails_and_two_are_undone)
{
    start(5 * GIB, 64 * MIB);
    fake->set_faults("MemHostRegister:3:2");
    cr_expect(open_until(SPW_PIN_REFUSED));
    cr_expect_eq(spw_load_relaxed(&fake->unregistrations), 2);
    cr_expect_eq(spw_load_relaxed(&fake->registered), 0);
    cr_expect_str_eq(words, "memory can't be pinned at offset 2147483648: "
                            "CUDA_ERROR_OUT_OF_MEMORY; 2147483648 of 5368709120 bytes were");
    stop();
}

Test(gpu_pin, an_error_that_sticks_loses_the_gpu)
{
    start(5 * GIB, 64 * MIB);
    fake->set_faults("MemHostRegister:2:700");
    cr_expect(open_until(SPW_PIN_NONE));
    cr_expect_eq(spw_pin_health(pin), -ENODEV);
    cr_expect(strstr(words, "CUDA_ERROR_ILLEGAL_ADDRESS"), "%s", words);
    spw_pin_close(pin);
}

Test(gpu_pin, anothers_shard_is_pinned_though_it_is_only_read)
{
    start(64 * MIB, MIB);
    cr_assert(open_until(SPW_PIN_DONE), "%s", words);
    bool used = false;
    for (uint32_t i = 0; i < 5000 && !used; i++, usleep(1000))
        used = spw_pin_use(pin, config.memory[1].start, MIB);
    cr_expect(used);
    spw_pin_done(pin);
    stop();
}

Test(gpu_pin, switched_off_nothing_stays_registered)
{
    start(64 * MIB, MIB);
    cr_assert(open_until(SPW_PIN_DONE), "%s", words);
    cr_expect_eq(spw_load_relaxed(&fake->registered), 1);
    spw_store_relaxed(&pinning, SPW_PINNING_OFF);
    for (uint32_t i = 0; i < 5000 && spw_load_acquire(&record.pin_state) != SPW_PIN_NONE; i++)
        usleep(1000);
    cr_expect_eq(spw_load_relaxed(&fake->registered), 0);
    stop();
}
