/* Pinning on a driver of the test's own: pieces, turns, the frontier, limits, undoing, letting go. */
#include "gpu/pin.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shm/alive.h"

TestSuite(pin, .timeout = 30);

#define MIB        (1ull << 20)
#define GIB        (1ull << 30)
#define RANGES_MAX 64u
#define SHARDS     2u

/* ---- a driver that has what is registered in a list ------------------------------------------- */

struct range {
    uint8_t *start;
    uint64_t bytes;
};

/* What it does is set before spw_pin_open(); the rest is the pin thread's, looked at under the lock. */
struct driver {
    pthread_mutex_t lock;
    struct range range[RANGES_MAX];
    uint32_t held, adds, removes, clashes, turns_lost, read_only;
    uint64_t cap_bytes;     /* of one call, 0 = none                     */
    uint32_t fail_at;       /* the n-th call from 1, 0 = none            */
    bool read_only_refused; /* what isn't writable                       */
    int error;              /* of a failure                              */
    uint32_t add_us;        /* that a call takes                         */
    int turn_fd;            /* two calls at a time on it: the later fails */
};

static int add(void *ctx, void *start, uint64_t bytes, bool writable, const char **out_name)
{
    struct driver *driver = ctx;
    struct range all = {start, bytes};
    int status = 0;
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", driver->turn_fd);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    bool turn = flock(fd, LOCK_EX | LOCK_NB) == 0;
    if (driver->add_us)
        usleep(driver->add_us);
    pthread_mutex_lock(&driver->lock);
    driver->adds++;
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
    return status;
}

static void remove_one(void *ctx, void *start)
{
    struct driver *driver = ctx;
    pthread_mutex_lock(&driver->lock);
    driver->removes++;
    for (uint32_t i = 0; i < driver->held; i++)
        if (driver->range[i].start == start)
            driver->range[i--] = driver->range[--driver->held];
    pthread_mutex_unlock(&driver->lock);
}

static uint32_t held(struct driver *driver)
{
    pthread_mutex_lock(&driver->lock);
    uint32_t count = driver->held;
    pthread_mutex_unlock(&driver->lock);
    return count;
}

/* ---- a worker's pinning ----------------------------------------------------------------------- */

struct rig {
    struct driver driver;
    struct spw_pin_config config;
    struct spw_gpu_record record;
    spw_atomic64 touched;
    spw_atomic32 pinning;
    spw_atomic64 may_touch; /* steps that touching waits for; UINT64_MAX: none */
    spw_atomic64 touches;
    uint32_t touch_us;
    char words[256];
    struct spw_pin *pin;
    int lock;
};

static void say(void *ctx, const char *words)
{
    struct rig *rig = ctx;
    snprintf(rig->words, sizeof rig->words, "%s", words);
}

/* Of one thread where steps are counted. */
static int touch(void *ctx, uint8_t *start, uint64_t bytes)
{
    struct rig *rig = ctx;
    if (rig->touch_us)
        usleep(rig->touch_us);
    while (spw_load_acquire(&rig->touches) >= spw_load_acquire(&rig->may_touch))
        usleep(100);
    if (rig->config.threads == 1)
        spw_add_own(&rig->touches, 1);
    return 0;
}

static uint8_t *reserve(uint64_t bytes)
{
    uint8_t *start =
        mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    cr_assert_neq(start, MAP_FAILED);
    return start;
}

static int open_again(int fd)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    return open(path, O_RDWR | O_CLOEXEC);
}

/* Of @slots slots; nothing is touched but by touch(). */
static void prepare(struct rig *rig, int lock, uint32_t slots, uint32_t slot_bytes)
{
    *rig = (struct rig){.lock = open_again(lock)};
    pthread_mutex_init(&rig->driver.lock, NULL);
    rig->driver.turn_fd = lock;
    spw_store_relaxed(&rig->may_touch, UINT64_MAX);
    rig->config = (struct spw_pin_config){
        .backend = {.add = add, .remove = remove_one, .ctx = &rig->driver},
        .shards = SHARDS,
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
    for (uint32_t s = 0; s < SHARDS; s++) {
        rig->config.memory[s].bytes = (uint64_t)slots * slot_bytes;
        rig->config.memory[s].start = reserve(spw_align_up(rig->config.memory[s].bytes, 4096));
    }
}

static int make_lock(void)
{
    int fd = memfd_create("lock", MFD_CLOEXEC);
    cr_assert_geq(fd, 0);
    return fd;
}

static void start(struct rig *rig)
{
    struct spw_error err;
    cr_assert_eq(spw_pin_open(&rig->config, &rig->pin, &err), 0);
}

static uint64_t state(const struct rig *rig)
{
    return spw_load_acquire(&rig->record.pin_state);
}

static bool wait_for_state(const struct rig *rig, uint64_t wanted)
{
    for (uint32_t i = 0; i < 50000 && state(rig) != wanted; i++)
        usleep(100);
    return state(rig) == wanted;
}

static uint8_t *slot_at(const struct rig *rig, uint32_t shard, uint32_t slot)
{
    return rig->config.memory[shard].start + (uint64_t)slot * rig->config.slot_bytes;
}

/* Closes, and checks that nothing is left. */
static void finish(struct rig *rig)
{
    spw_pin_close(rig->pin);
    cr_expect_eq(rig->driver.held, 0);
    cr_expect_eq(rig->driver.clashes, 0);
    cr_expect_eq(rig->driver.turns_lost, 0);
    for (uint32_t s = 0; s < SHARDS; s++)
        munmap(rig->config.memory[s].start, spw_align_up(rig->config.memory[s].bytes, 4096));
    close(rig->lock);
}

/* ---- pieces ----------------------------------------------------------------------------------- */

Test(pin, a_large_shard_is_pinned_in_pieces_below_what_one_call_takes)
{
    struct rig rig;
    int lock = make_lock();
    prepare(&rig, lock, 1280, 8 * MIB); /* 10 GiB */
    rig.config.piece_bytes = 0;
    rig.driver.cap_bytes = 2 * GIB;
    start(&rig);
    cr_assert(wait_for_state(&rig, SPW_PIN_DONE), "%s", rig.words);
    cr_expect_geq(rig.driver.adds, 5);
    for (uint32_t slot = 0; slot < 1280; slot++)
        cr_assert(spw_pin_covers(rig.pin, slot_at(&rig, 0, slot), 8 * MIB), "slot %u", slot);
    cr_expect(!spw_pin_covers(rig.pin, slot_at(&rig, 0, 127), 16 * MIB), "across a seam");
    cr_expect(!spw_pin_covers(rig.pin, slot_at(&rig, 0, 1279), 8 * MIB + 1));
    cr_expect_eq(spw_load_relaxed(&rig.record.pinned_bytes), 10 * GIB);
    cr_expect_eq(spw_load_relaxed(&rig.record.pin_total_bytes), 10 * GIB);
    cr_expect_eq(spw_pin_usable_slots(rig.pin), UINT32_MAX);
    finish(&rig);
    cr_expect_eq(rig.driver.removes, rig.driver.adds);
    cr_expect_eq(state(&rig), SPW_PIN_NONE);
    close(lock);
}

Test(pin, what_was_pinned_before_a_refusal_is_undone_and_words_say_where)
{
    struct rig rig;
    int lock = make_lock();
    prepare(&rig, lock, 20, MIB);
    rig.driver.fail_at = 3;
    start(&rig);
    cr_assert(wait_for_state(&rig, SPW_PIN_REFUSED));
    cr_expect_eq(rig.driver.removes, 2);
    cr_expect_eq(held(&rig.driver), 0);
    cr_expect_str_eq(rig.words,
                     "memory can't be pinned at offset 8388608: CUDA_ERROR_OUT_OF_MEMORY; "
                     "8388608 of 20971520 bytes were");
    cr_expect_eq(spw_load_relaxed(&rig.record.pinned_bytes), 0);
    cr_expect(!spw_pin_covers(rig.pin, slot_at(&rig, 0, 0), MIB));
    cr_expect_eq(spw_pin_usable_slots(rig.pin), UINT32_MAX);
    cr_expect_eq(spw_pin_health(rig.pin), 0);
    finish(&rig);
    cr_expect_eq(state(&rig), SPW_PIN_REFUSED, "what was refused is still told");
    close(lock);
}

Test(pin, a_failure_of_any_call_undoes_exactly_those_before)
{
    int lock = make_lock();
    for (uint32_t n = 1; n <= 6; n++) {
        struct rig rig;
        prepare(&rig, lock, 20, MIB);
        rig.driver.fail_at = n;
        start(&rig);
        cr_assert(wait_for_state(&rig, n <= 5 ? SPW_PIN_REFUSED : SPW_PIN_DONE));
        cr_expect_eq(rig.driver.adds, n <= 5 ? n : 5);
        cr_expect_eq(rig.driver.removes, n <= 5 ? n - 1 : 0, "call %u", n);
        finish(&rig);
    }
    close(lock);
}

Test(pin, a_lost_gpu_is_told_apart)
{
    struct rig rig;
    int lock = make_lock();
    prepare(&rig, lock, 20, MIB);
    rig.driver.fail_at = 2;
    rig.driver.error = -ENODEV;
    start(&rig);
    cr_assert(wait_for_state(&rig, SPW_PIN_NONE), "memory as such wasn't refused");
    cr_expect_eq(spw_pin_health(rig.pin), -ENODEV);
    cr_expect(strstr(rig.words, "at offset 4194304"), "%s", rig.words);
    cr_expect_eq(held(&rig.driver), 0);
    finish(&rig);
    close(lock);
}

Test(pin, slots_of_odd_sizes_are_pinned_but_those_at_seams)
{
    struct rig rig;
    int lock = make_lock();
    prepare(&rig, lock, 40, 4160);
    rig.config.piece_bytes = 10 * 4160;
    start(&rig);
    cr_assert(wait_for_state(&rig, SPW_PIN_DONE), "%s", rig.words);
    cr_expect_eq(rig.driver.adds, 4);
    cr_expect(spw_pin_covers(rig.pin, slot_at(&rig, 0, 0), 4160));
    cr_expect(spw_pin_covers(rig.pin, slot_at(&rig, 0, 8), 4160));
    cr_expect(!spw_pin_covers(rig.pin, slot_at(&rig, 0, 9), 4160));
    cr_expect(!spw_pin_covers(rig.pin, slot_at(&rig, 0, 10), 4160));
    cr_expect(spw_pin_covers(rig.pin, slot_at(&rig, 0, 39), 4160));
    finish(&rig);
    close(lock);
}

/* ---- turns ------------------------------------------------------------------------------------ */

Test(pin, two_workers_never_register_at_a_time)
{
    struct rig rig[2];
    int lock = make_lock();
    for (uint32_t k = 0; k < 2; k++) {
        prepare(&rig[k], lock, 40, MIB);
        rig[k].driver.add_us = 1000;
        rig[k].config.k = k;
    }
    for (uint32_t k = 0; k < 2; k++)
        start(&rig[k]);
    for (uint32_t k = 0; k < 2; k++)
        cr_expect(wait_for_state(&rig[k], SPW_PIN_DONE));
    for (uint32_t k = 0; k < 2; k++)
        finish(&rig[k]);
    close(lock);
}

static int pin_in_child(int lock)
{
    static struct rig rig;
    struct spw_error err;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    prepare(&rig, lock, 40, MIB);
    rig.driver.add_us = 1000;
    if (spw_pin_open(&rig.config, &rig.pin, &err) < 0 || !wait_for_state(&rig, SPW_PIN_DONE))
        return 1;
    spw_pin_close(rig.pin);
    return rig.driver.turns_lost != 0 || rig.driver.held != 0 || rig.driver.adds != 10;
}

Test(pin, two_processes_never_register_at_a_time)
{
    int lock = make_lock(), status;
    pid_t child[2];
    for (uint32_t i = 0; i < 2; i++) {
        child[i] = fork();
        if (child[i] == 0)
            _exit(pin_in_child(lock));
    }
    for (uint32_t i = 0; i < 2; i++) {
        cr_assert_eq(waitpid(child[i], &status, 0), child[i]);
        bool fine = WIFEXITED(status) && WEXITSTATUS(status) == 0;
        cr_expect(fine);
    }
    close(lock);
}

Test(pin, a_turn_that_never_comes_ends_at_the_limit)
{
    struct rig rig;
    int lock = make_lock(), other = open_again(lock);
    prepare(&rig, lock, 4, MIB);
    rig.config.limit_ns = 50000000;
    cr_assert_eq(spw_lock_take(other, SPW_LOCK_PINNING), 0);
    start(&rig);
    cr_expect(wait_for_state(&rig, SPW_PIN_REFUSED));
    cr_expect_str_eq(rig.words, "memory wasn't pinned within 0.1 s: 4194304 of 4194304 bytes "
                                "touched, 0 pinned");
    cr_expect_eq(rig.driver.adds, 0);
    finish(&rig);
    close(other);
    close(lock);
}

/* ---- touching --------------------------------------------------------------------------------- */

static uint64_t time_of_pinning(uint32_t threads)
{
    struct rig rig;
    int lock = make_lock();
    prepare(&rig, lock, 64, MIB);
    rig.config.piece_bytes = 64 * MIB;
    rig.config.threads = threads;
    rig.touch_us = 1500;
    uint64_t since = spw_monotonic_ns();
    start(&rig);
    cr_assert(wait_for_state(&rig, SPW_PIN_DONE));
    uint64_t took = spw_monotonic_ns() - since;
    finish(&rig);
    close(lock);
    return took;
}

Test(pin, two_threads_touch_faster_than_one)
{
    uint64_t one = time_of_pinning(1), two = time_of_pinning(2);
    cr_expect(two * 3 <= one * 2, "%.1f ms by one, %.1f by two", (double)one / 1e6,
              (double)two / 1e6);
}

Test(pin, a_start_that_touches_too_slowly_ends_at_the_limit)
{
    struct rig rig;
    int lock = make_lock();
    prepare(&rig, lock, 64, MIB);
    rig.touch_us = 20000; /* 50 MiB/s */
    rig.config.limit_ns = 200000000;
    uint64_t since = spw_monotonic_ns();
    start(&rig);
    cr_assert(wait_for_state(&rig, SPW_PIN_REFUSED));
    uint64_t took = spw_monotonic_ns() - since, touched = 0, pinned = 0;
    cr_expect_geq(took, 200000000ull);
    cr_expect_lt(took, 400000000ull);
    cr_assert_eq(
        sscanf(rig.words,
               "memory wasn't pinned within 0.2 s: %lu of 67108864 bytes touched, %lu pinned",
               &touched, &pinned),
        2, "%s", rig.words);
    cr_expect(touched >= pinned && touched > 0 && touched <= 10 * MIB, "%lu", touched);
    cr_expect_eq(rig.driver.removes, rig.driver.adds);
    finish(&rig);
    close(lock);
}

/* ---- the frontier ----------------------------------------------------------------------------- */

Test(pin, slots_are_usable_up_to_what_is_pinned)
{
    struct rig rig;
    int lock = make_lock();
    prepare(&rig, lock, 10, MIB);
    rig.config.cell_shift = 3;
    spw_store_relaxed(&rig.may_touch, 0);
    start(&rig);
    cr_expect_eq(state(&rig), SPW_PIN_RUNNING);
    cr_expect_eq(spw_pin_usable_slots(rig.pin), 0);
    cr_expect(!spw_pin_use(rig.pin, slot_at(&rig, 0, 0), MIB));
    spw_store_release(&rig.may_touch, 4); /* a piece */
    for (uint32_t i = 0; i < 50000 && spw_pin_usable_slots(rig.pin) == 0; i++)
        usleep(100);
    cr_expect_eq(spw_pin_usable_slots(rig.pin), 4u << 3);
    cr_expect_eq(spw_load_relaxed(&rig.record.pinned_bytes), 4 * MIB);
    cr_expect(spw_pin_use(rig.pin, slot_at(&rig, 0, 3), MIB));
    spw_pin_done(rig.pin);
    cr_expect(!spw_pin_use(rig.pin, slot_at(&rig, 0, 4), MIB));
    spw_store_release(&rig.may_touch, UINT64_MAX);
    cr_expect(wait_for_state(&rig, SPW_PIN_DONE));
    cr_expect_eq(spw_load_relaxed(&rig.touched), 10 * MIB);
    cr_expect_eq(spw_pin_usable_slots(rig.pin), UINT32_MAX);
    cr_expect(!spw_pin_covers(rig.pin, &rig, 1), "memory of nobody's");
    finish(&rig);
    close(lock);
}

/* ---- letting go ------------------------------------------------------------------------------- */

Test(pin, switched_off_from_the_start_nothing_is_touched)
{
    struct rig rig;
    int lock = make_lock();
    prepare(&rig, lock, 10, MIB);
    spw_store_relaxed(&rig.pinning, SPW_PINNING_OFF);
    start(&rig);
    cr_expect_eq(state(&rig), SPW_PIN_NONE);
    cr_expect_eq(spw_pin_usable_slots(rig.pin), UINT32_MAX);
    cr_expect(!spw_pin_use(rig.pin, slot_at(&rig, 0, 0), MIB));
    finish(&rig);
    cr_expect_eq(rig.driver.adds, 0);
    cr_expect_eq(spw_load_relaxed(&rig.touches), 0);
    close(lock);
}

Test(pin, switched_off_what_a_copy_uses_stays_until_it_has_ended)
{
    struct rig rig;
    int lock = make_lock();
    prepare(&rig, lock, 10, MIB);
    start(&rig);
    cr_assert(wait_for_state(&rig, SPW_PIN_DONE));
    cr_assert(spw_pin_use(rig.pin, slot_at(&rig, 0, 0), MIB));
    cr_assert(spw_pin_use(rig.pin, slot_at(&rig, 0, 9), MIB));
    spw_store_relaxed(&rig.pinning, SPW_PINNING_OFF);
    for (uint32_t i = 0; i < 50000 && spw_pin_covers(rig.pin, slot_at(&rig, 0, 1), MIB); i++)
        usleep(100);
    cr_expect(!spw_pin_use(rig.pin, slot_at(&rig, 0, 1), MIB), "no new one");
    spw_pin_done(rig.pin);
    usleep(20000);
    cr_expect_eq(held(&rig.driver), 3, "one copy is left");
    spw_pin_done(rig.pin);
    cr_expect(wait_for_state(&rig, SPW_PIN_NONE));
    cr_expect_eq(held(&rig.driver), 0);
    cr_expect_eq(spw_load_relaxed(&rig.record.pinned_bytes), 0);
    finish(&rig);
    close(lock);
}

Test(pin, a_refusal_waits_for_copies_from_what_was_pinned)
{
    struct rig rig;
    int lock = make_lock();
    prepare(&rig, lock, 8, MIB);
    rig.driver.fail_at = 2;
    spw_store_relaxed(&rig.may_touch, 4);
    start(&rig);
    for (uint32_t i = 0; i < 50000 && spw_pin_usable_slots(rig.pin) == 0; i++)
        usleep(100);
    cr_assert(spw_pin_use(rig.pin, slot_at(&rig, 0, 0), MIB));
    spw_store_release(&rig.may_touch, UINT64_MAX);
    for (uint32_t i = 0; i < 50000 && spw_pin_covers(rig.pin, slot_at(&rig, 0, 0), MIB); i++)
        usleep(100);
    usleep(10000);
    cr_expect_eq(held(&rig.driver), 1);
    cr_expect_eq(state(&rig), SPW_PIN_RUNNING);
    spw_pin_done(rig.pin);
    cr_expect(wait_for_state(&rig, SPW_PIN_REFUSED));
    cr_expect_eq(held(&rig.driver), 0);
    finish(&rig);
    close(lock);
}

Test(pin, whenever_it_is_closed_nothing_is_left)
{
    int lock = make_lock();
    for (uint32_t i = 0; i < 60; i++) {
        struct rig rig;
        prepare(&rig, lock, 10, MIB);
        rig.touch_us = 100;
        rig.driver.add_us = 200;
        start(&rig);
        usleep(i * 250);
        if (i % 3 == 0)
            spw_store_relaxed(&rig.pinning, SPW_PINNING_OFF);
        finish(&rig);
    }
    close(lock);
}

/* ---- others' shards --------------------------------------------------------------------------- */

static bool wait_for_use(struct rig *rig, const uint8_t *at)
{
    for (uint32_t i = 0; i < 5000; i++) {
        if (spw_pin_use(rig->pin, at, MIB)) {
            spw_pin_done(rig->pin);
            return true;
        }
        usleep(1000);
    }
    return false;
}

Test(pin, a_piece_of_anothers_shard_is_pinned_once_it_was_asked_for)
{
    struct rig rig;
    int lock = make_lock();
    prepare(&rig, lock, 10, MIB);
    start(&rig);
    cr_assert(wait_for_state(&rig, SPW_PIN_DONE));
    cr_expect(!spw_pin_use(rig.pin, slot_at(&rig, 1, 5), MIB));
    cr_expect(wait_for_use(&rig, slot_at(&rig, 1, 5)));
    cr_expect(spw_pin_covers(rig.pin, slot_at(&rig, 1, 7), MIB));
    cr_expect(!spw_pin_covers(rig.pin, slot_at(&rig, 1, 0), MIB), "another piece");
    cr_expect_eq(rig.driver.read_only, 1);
    cr_expect_eq(rig.driver.adds, 4);
    cr_expect_eq(spw_load_relaxed(&rig.record.pinned_bytes), 10 * MIB, "of the own shard");
    finish(&rig);
    close(lock);
}

Test(pin, anothers_shard_that_is_refused_stays_as_it_is)
{
    struct rig rig;
    int lock = make_lock();
    prepare(&rig, lock, 10, MIB);
    rig.driver.read_only_refused = true;
    start(&rig);
    cr_assert(wait_for_state(&rig, SPW_PIN_DONE));
    for (uint32_t i = 0; i < 20; i++) {
        cr_expect(!spw_pin_use(rig.pin, slot_at(&rig, 1, 5), MIB));
        usleep(2000);
    }
    cr_expect_eq(rig.driver.adds, 4, "tried once");
    cr_expect_eq(state(&rig), SPW_PIN_DONE);
    cr_expect(spw_pin_covers(rig.pin, slot_at(&rig, 0, 0), MIB));
    finish(&rig);
    close(lock);
}
