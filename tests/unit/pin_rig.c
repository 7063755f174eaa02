/* See pin_rig.h. */
#include "tests/unit/pin_rig.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/mman.h>

/* ---- a driver that has what is registered in a list ------------------------------------------- */

static int add(void *ctx, void *start, uint64_t bytes, bool writable, const char **out_name)
{
    struct pin_driver *driver = ctx;
    struct pin_range all = {start, bytes};
    int status = 0;
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", driver->turn_fd);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    uint64_t pause = spw_monotonic_ns() - driver->last_ns;
    if (driver->adds != 0 && pause < driver->pause_ns)
        driver->pause_ns = pause;
    bool turn = flock(fd, LOCK_EX | LOCK_NB) == 0;
    if (driver->add_us)
        usleep(driver->add_us);
    pthread_mutex_lock(&driver->lock);
    driver->adds++;
    driver->asked = start;
    driver->turns_lost += !turn;
    driver->read_only += !writable;
    if (driver->fail_at == driver->adds || (driver->cap_bytes && bytes > driver->cap_bytes) ||
        (!writable && driver->read_only_refused)) {
        *out_name = "CUDA_ERROR_OUT_OF_MEMORY";
        status = driver->error ? driver->error : -ENOMEM;
    }
    for (uint32_t i = 0; i < driver->held; i++)
        driver->clashes += all.start < driver->range[i].start + driver->range[i].bytes &&
                           driver->range[i].start < all.start + all.bytes;
    driver->clashes += (uintptr_t)start % 4096 != 0 || bytes % 4096 != 0 || bytes == 0;
    if (status == 0)
        driver->range[driver->held++] = all;
    pthread_mutex_unlock(&driver->lock);
    close(fd);
    driver->last_ns = spw_monotonic_ns();
    return status;
}

static void remove_one(void *ctx, void *start)
{
    struct pin_driver *driver = ctx;
    pthread_mutex_lock(&driver->lock);
    driver->removes++;
    for (uint32_t i = 0; i < driver->held; i++)
        if (driver->range[i].start == start)
            driver->range[i--] = driver->range[--driver->held];
    pthread_mutex_unlock(&driver->lock);
}

uint32_t pin_rig_held(struct pin_driver *driver)
{
    pthread_mutex_lock(&driver->lock);
    uint32_t count = driver->held;
    pthread_mutex_unlock(&driver->lock);
    return count;
}

bool pin_rig_wait_for_adds(struct pin_driver *driver, uint32_t wanted)
{
    uint32_t adds = 0;
    for (uint32_t i = 0; i < 50000 && adds < wanted; i++, usleep(100)) {
        pthread_mutex_lock(&driver->lock);
        adds = driver->adds;
        pthread_mutex_unlock(&driver->lock);
    }
    return adds >= wanted;
}

const uint8_t *pin_rig_asked(struct pin_driver *driver)
{
    pthread_mutex_lock(&driver->lock);
    const uint8_t *asked = driver->asked;
    pthread_mutex_unlock(&driver->lock);
    return asked;
}

/* ---- a worker's pinning ----------------------------------------------------------------------- */

static void say(void *ctx, const char *words)
{
    struct pin_rig *rig = ctx;
    snprintf(rig->words, sizeof rig->words, "%s", words);
}

static uint32_t add_inside(struct pin_rig *rig, int change)
{
    pthread_mutex_lock(&rig->driver.lock);
    rig->inside += (uint32_t)change;
    uint32_t inside = rig->inside;
    pthread_mutex_unlock(&rig->driver.lock);
    return inside;
}

/* Of one thread where steps are counted. */
static int touch(void *ctx, uint8_t *start, uint64_t bytes)
{
    struct pin_rig *rig = ctx;
    add_inside(rig, 1);
    if (rig->touch_us)
        usleep(rig->touch_us);
    while (spw_load_acquire(&rig->touches) >= spw_load_acquire(&rig->may_touch))
        usleep(100);
    if (rig->config.threads == 1)
        spw_add_own(&rig->touches, 1);
    add_inside(rig, -1);
    return 0;
}

/* NULL: there is no such address space. */
static uint8_t *reserve(uint64_t bytes)
{
    void *start = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return start == MAP_FAILED ? NULL : start;
}

int pin_rig_open_again(int fd)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    return open(path, O_RDWR | O_CLOEXEC);
}

bool pin_rig_try_prepare(struct pin_rig *rig, int lock, uint32_t slots, uint32_t slot_bytes)
{
    *rig = (struct pin_rig){.lock = pin_rig_open_again(lock)};
    pthread_mutex_init(&rig->driver.lock, NULL);
    rig->driver.turn_fd = lock;
    rig->driver.pause_ns = UINT64_MAX;
    spw_store_relaxed(&rig->may_touch, UINT64_MAX);
    rig->config = (struct spw_pin_config){
        .backend = {.add = add, .remove = remove_one, .ctx = &rig->driver},
        .shards = PIN_SHARDS,
        .slot_bytes = slot_bytes,
        .piece_bytes = 4 * slot_bytes,
        .threads = 1,
        .lock_fd = rig->lock,
        .pinning = &rig->pinning,
        .record = &rig->record,
        .touched = &rig->touched,
        .say = say,
        .touch = touch,
        .ctx = rig,
    };
    for (uint32_t s = 0; s < PIN_SHARDS; s++) {
        rig->config.memory[s].bytes = (uint64_t)slots * slot_bytes;
        rig->config.memory[s].start = reserve(spw_align_up(rig->config.memory[s].bytes, 4096));
        if (!rig->config.memory[s].start)
            return false;
    }
    return true;
}

void pin_rig_prepare(struct pin_rig *rig, int lock, uint32_t slots, uint32_t slot_bytes)
{
    cr_assert(pin_rig_try_prepare(rig, lock, slots, slot_bytes));
}

int pin_rig_lock(void)
{
    int fd = memfd_create("lock", MFD_CLOEXEC);
    cr_assert_geq(fd, 0);
    return fd;
}

void pin_rig_start(struct pin_rig *rig)
{
    struct spw_error err;
    cr_assert_eq(spw_pin_open(&rig->config, &rig->pin, &err), 0);
}

uint64_t pin_rig_state(const struct pin_rig *rig)
{
    return spw_load_acquire(&rig->record.pin_state);
}

bool pin_rig_wait(const struct pin_rig *rig, uint64_t wanted)
{
    for (uint32_t i = 0; i < 50000 && pin_rig_state(rig) != wanted; i++)
        usleep(100);
    return pin_rig_state(rig) == wanted;
}

uint8_t *pin_rig_slot(const struct pin_rig *rig, uint32_t shard, uint32_t slot)
{
    return rig->config.memory[shard].start + (uint64_t)slot * rig->config.slot_bytes;
}

void pin_rig_finish(struct pin_rig *rig)
{
    spw_pin_close(rig->pin);
    cr_expect_eq(rig->driver.held, 0);
    cr_expect_eq(rig->driver.clashes, 0);
    cr_expect_eq(rig->driver.turns_lost, 0);
    for (uint32_t s = 0; s < PIN_SHARDS; s++)
        munmap(rig->config.memory[s].start, spw_align_up(rig->config.memory[s].bytes, 4096));
    close(rig->lock);
}

bool pin_rig_wait_for_piece(struct pin_rig *rig)
{
    for (uint32_t i = 0; i < 50000 && spw_pin_usable_slots(rig->pin) == 0; i++)
        usleep(100);
    return spw_pin_usable_slots(rig->pin) != 0;
}

bool pin_rig_wait_inside(struct pin_rig *rig, uint32_t threads)
{
    for (uint32_t i = 0; i < 50000 && add_inside(rig, 0) != threads; i++)
        usleep(100);
    return add_inside(rig, 0) == threads;
}

bool pin_rig_copies(struct pin_rig *rig, const uint8_t *start, uint64_t bytes)
{
    if (!spw_pin_use(rig->pin, start, bytes))
        return false;
    spw_pin_done(rig->pin);
    return true;
}

bool pin_rig_wait_for_end(struct pin_rig *rig, uint32_t slot)
{
    const uint8_t *start = pin_rig_slot(rig, 0, slot);
    for (uint32_t i = 0; i < 50000; i++, usleep(100))
        if (!pin_rig_copies(rig, start, rig->config.slot_bytes))
            return true;
    return false;
}
