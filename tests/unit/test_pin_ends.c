/* Pinning on a driver of the test's own: letting go of what was pinned, and other workers' shards. */
#include "tests/unit/pin_rig.h"

#include <sys/mman.h>

#include "gpu/pin_impl.h"

TestSuite(pin_ends, .timeout = 30);

/* ---- letting go ------------------------------------------------------------------------------- */

Test(pin_ends, switched_off_from_the_start_nothing_is_touched)
{
    struct pin_rig rig;
    int lock = pin_rig_lock();
    pin_rig_prepare(&rig, lock, 10, PIN_MIB);
    spw_store_relaxed(&rig.pinning, SPW_PINNING_OFF);
    pin_rig_start(&rig);
    cr_expect_eq(pin_rig_state(&rig), SPW_PIN_NONE);
    cr_expect_eq(spw_pin_usable_slots(rig.pin), UINT32_MAX);
    cr_expect(!spw_pin_use(rig.pin, pin_rig_slot(&rig, 0, 0), PIN_MIB));
    pin_rig_finish(&rig);
    cr_expect_eq(rig.driver.adds, 0);
    cr_expect_eq(spw_load_relaxed(&rig.touches), 0);
    close(lock);
}

Test(pin_ends, switched_off_what_a_copy_uses_stays_until_it_has_ended)
{
    struct pin_rig rig;
    int lock = pin_rig_lock();
    pin_rig_prepare(&rig, lock, 10, PIN_MIB);
    pin_rig_start(&rig);
    cr_assert(pin_rig_wait(&rig, SPW_PIN_DONE));
    cr_assert(spw_pin_use(rig.pin, pin_rig_slot(&rig, 0, 0), PIN_MIB));
    cr_assert(spw_pin_use(rig.pin, pin_rig_slot(&rig, 0, 9), PIN_MIB));
    spw_store_relaxed(&rig.pinning, SPW_PINNING_OFF);
    cr_assert(pin_rig_wait_for_end(&rig, 1));
    cr_expect(!spw_pin_use(rig.pin, pin_rig_slot(&rig, 0, 1), PIN_MIB), "no new one");
    spw_pin_done(rig.pin);
    usleep(20000);
    cr_expect_eq(pin_rig_held(&rig.driver), 3, "one copy is left");
    spw_pin_done(rig.pin);
    cr_expect(pin_rig_wait(&rig, SPW_PIN_NONE));
    cr_expect_eq(pin_rig_held(&rig.driver), 0);
    cr_expect_eq(spw_load_relaxed(&rig.record.pinned_bytes), 0);
    pin_rig_finish(&rig);
    close(lock);
}

Test(pin_ends, a_refusal_waits_for_copies_from_what_was_pinned)
{
    struct pin_rig rig;
    int lock = pin_rig_lock();
    pin_rig_prepare(&rig, lock, 8, PIN_MIB);
    rig.driver.fail_at = 2;
    spw_store_relaxed(&rig.may_touch, 4);
    pin_rig_start(&rig);
    cr_assert(pin_rig_wait_for_piece(&rig));
    cr_assert(spw_pin_use(rig.pin, pin_rig_slot(&rig, 0, 0), PIN_MIB));
    spw_store_release(&rig.may_touch, UINT64_MAX);
    cr_assert(pin_rig_wait_for_end(&rig, 0));
    usleep(10000);
    cr_expect_eq(pin_rig_held(&rig.driver), 1);
    cr_expect_eq(pin_rig_state(&rig), SPW_PIN_RUNNING);
    spw_pin_done(rig.pin);
    cr_expect(pin_rig_wait(&rig, SPW_PIN_REFUSED));
    cr_expect_eq(pin_rig_held(&rig.driver), 0);
    pin_rig_finish(&rig);
    close(lock);
}

Test(pin_ends, whenever_it_is_closed_nothing_is_left)
{
    int lock = pin_rig_lock();
    for (uint32_t i = 0; i < 60; i++) {
        struct pin_rig rig;
        pin_rig_prepare(&rig, lock, 10, PIN_MIB);
        rig.touch_us = 100;
        rig.driver.add_us = 200;
        pin_rig_start(&rig);
        usleep(i * 250);
        if (i % 3 == 0)
            spw_store_relaxed(&rig.pinning, SPW_PINNING_OFF);
        pin_rig_finish(&rig);
    }
    close(lock);
}

Test(pin_ends, switched_off_in_the_middle_no_further_piece_is_pinned)
{
    struct pin_rig rig;
    int lock = pin_rig_lock();
    pin_rig_prepare(&rig, lock, 40, PIN_MIB);
    spw_store_relaxed(&rig.may_touch, 4);
    pin_rig_start(&rig);
    cr_assert(pin_rig_wait_for_piece(&rig));
    spw_store_relaxed(&rig.pinning, SPW_PINNING_OFF);
    spw_store_release(&rig.may_touch, UINT64_MAX);
    cr_expect(pin_rig_wait(&rig, SPW_PIN_NONE));
    cr_expect_eq(rig.driver.adds, 1);
    cr_expect_eq(pin_rig_held(&rig.driver), 0);
    pin_rig_finish(&rig);
    close(lock);
}

static void *close_pin(void *pin)
{
    spw_pin_close(pin);
    return NULL;
}

Test(pin_ends, closed_in_the_middle_no_further_piece_is_pinned)
{
    struct pin_rig rig;
    int lock = pin_rig_lock();
    pthread_t closer;
    pin_rig_prepare(&rig, lock, 60, PIN_MIB);
    spw_store_relaxed(&rig.may_touch, 4);
    pin_rig_start(&rig);
    cr_assert(pin_rig_wait_for_piece(&rig));
    /* in the next piece: the pin isn't gone before that is touched */
    cr_assert(pin_rig_wait_inside(&rig, 1));
    cr_assert_eq(pthread_create(&closer, NULL, close_pin, rig.pin), 0);
    while (!spw_pin_is_stopped(rig.pin))
        usleep(100);
    spw_store_release(&rig.may_touch, UINT64_MAX);
    pthread_join(closer, NULL);
    rig.pin = NULL;
    pin_rig_finish(&rig);
    cr_expect_eq(rig.driver.adds, 1);
    close(lock);
}

Test(pin_ends, at_the_close_no_copy_is_waited_for)
{
    struct pin_rig rig;
    int lock = pin_rig_lock();
    pin_rig_prepare(&rig, lock, 10, PIN_MIB);
    pin_rig_start(&rig);
    cr_assert(pin_rig_wait(&rig, SPW_PIN_DONE));
    cr_assert(
        spw_pin_use(rig.pin, pin_rig_slot(&rig, 0, 0), PIN_MIB)); /* and its end is never seen */
    spw_store_relaxed(&rig.pinning, SPW_PINNING_OFF);
    cr_assert(pin_rig_wait_for_end(&rig, 1));
    pin_rig_finish(&rig);
    close(lock);
}

/* ---- others' shards --------------------------------------------------------------------------- */

static bool wait_for_use(struct pin_rig *rig, const uint8_t *at)
{
    for (uint32_t i = 0; i < 5000; i++, usleep(1000))
        if (pin_rig_copies(rig, at, PIN_MIB))
            return true;
    return false;
}

Test(pin_ends, a_piece_of_anothers_shard_is_pinned_once_it_was_asked_for)
{
    struct pin_rig rig;
    int lock = pin_rig_lock();
    pin_rig_prepare(&rig, lock, 10, PIN_MIB);
    pin_rig_start(&rig);
    cr_assert(pin_rig_wait(&rig, SPW_PIN_DONE));
    cr_expect(!spw_pin_use(rig.pin, pin_rig_slot(&rig, 1, 5), PIN_MIB));
    cr_expect(wait_for_use(&rig, pin_rig_slot(&rig, 1, 5)));
    cr_expect(pin_rig_copies(&rig, pin_rig_slot(&rig, 1, 7), PIN_MIB));
    cr_expect_eq(rig.driver.read_only, 1);
    cr_expect_eq(rig.driver.adds, 4);
    cr_expect(!pin_rig_copies(&rig, pin_rig_slot(&rig, 1, 0), PIN_MIB), "another piece");
    cr_expect_eq(spw_load_relaxed(&rig.record.pinned_bytes), 10 * PIN_MIB, "of the own shard");
    pin_rig_finish(&rig);
    close(lock);
}

Test(pin_ends, anothers_shard_that_is_refused_stays_as_it_is)
{
    struct pin_rig rig;
    int lock = pin_rig_lock();
    pin_rig_prepare(&rig, lock, 10, PIN_MIB);
    rig.driver.read_only_refused = true;
    pin_rig_start(&rig);
    cr_assert(pin_rig_wait(&rig, SPW_PIN_DONE));
    cr_expect(!spw_pin_use(rig.pin, pin_rig_slot(&rig, 1, 5), PIN_MIB));
    cr_assert(pin_rig_wait_for_adds(&rig.driver, 4));
    for (uint32_t i = 0; i < 20; i++)
        cr_expect(!spw_pin_use(rig.pin, pin_rig_slot(&rig, 1, 5), PIN_MIB));
    /* of two pieces the first is tried first: it isn't any more once the second is */
    cr_expect(!spw_pin_use(rig.pin, pin_rig_slot(&rig, 1, 8), PIN_MIB));
    cr_assert(pin_rig_wait_for_adds(&rig.driver, 5));
    cr_expect_eq(pin_rig_asked(&rig.driver), pin_rig_slot(&rig, 1, 8), "tried once");
    cr_expect_eq(pin_rig_state(&rig), SPW_PIN_DONE);
    cr_expect(pin_rig_copies(&rig, pin_rig_slot(&rig, 0, 0), PIN_MIB));
    pin_rig_finish(&rig);
    close(lock);
}

Test(pin_ends, anothers_shard_is_touched_by_reading)
{
    struct pin_rig rig;
    int lock = pin_rig_lock();
    pin_rig_prepare(&rig, lock, 8, 65536);
    rig.config.touch = NULL; /* pages are faulted in */
    mprotect(rig.config.memory[0].start, rig.config.memory[0].bytes, PROT_READ | PROT_WRITE);
    mprotect(rig.config.memory[1].start, rig.config.memory[1].bytes, PROT_READ);
    pin_rig_start(&rig);
    cr_assert(pin_rig_wait(&rig, SPW_PIN_DONE), "%s", rig.words);
    bool used = false;
    for (uint32_t i = 0; i < 2000 && !used; i++, usleep(1000))
        used = spw_pin_use(rig.pin, pin_rig_slot(&rig, 1, 5), 65536);
    cr_expect(used);
    pin_rig_finish(&rig);
    close(lock);
}

Test(pin_ends, nothing_of_anothers_shard_is_pinned_before_it_is_asked_for)
{
    struct pin_rig rig;
    int lock = pin_rig_lock();
    pin_rig_prepare(&rig, lock, 10, PIN_MIB);
    pin_rig_start(&rig);
    cr_assert(pin_rig_wait(&rig, SPW_PIN_DONE));
    usleep(250000); /* it looks every 100 ms */
    cr_expect_eq(rig.driver.read_only, 0);
    pin_rig_finish(&rig);
    close(lock);
}

Test(pin_ends, switched_off_what_is_asked_for_is_not_pinned_any_more)
{
    struct pin_rig rig;
    int lock = pin_rig_lock();
    pin_rig_prepare(&rig, lock, 10, PIN_MIB);
    spw_store_relaxed(&rig.may_touch, 10); /* the own shard */
    pin_rig_start(&rig);
    cr_assert(pin_rig_wait(&rig, SPW_PIN_DONE));
    cr_expect(!spw_pin_use(rig.pin, pin_rig_slot(&rig, 1, 0), PIN_MIB));
    cr_assert(pin_rig_wait_inside(&rig, 1)); /* in the first step of that piece */
    spw_store_relaxed(&rig.pinning, SPW_PINNING_OFF);
    spw_store_release(&rig.may_touch, UINT64_MAX);
    cr_expect(pin_rig_wait(&rig, SPW_PIN_NONE));
    cr_expect_eq(rig.driver.read_only, 0);
    pin_rig_finish(&rig);
    close(lock);
}

Test(pin_ends, a_gpu_that_is_lost_over_anothers_shard_is_told)
{
    struct pin_rig rig;
    int lock = pin_rig_lock();
    pin_rig_prepare(&rig, lock, 10, PIN_MIB);
    rig.driver.read_only_refused = true;
    rig.driver.error = -ENODEV;
    pin_rig_start(&rig);
    cr_assert(pin_rig_wait(&rig, SPW_PIN_DONE));
    cr_expect_eq(spw_pin_health(rig.pin), 0);
    cr_expect(!spw_pin_use(rig.pin, pin_rig_slot(&rig, 1, 5), PIN_MIB));
    for (uint32_t i = 0; i < 5000 && spw_pin_health(rig.pin) == 0; i++)
        usleep(1000);
    cr_expect_eq(spw_pin_health(rig.pin), -ENODEV);
    pin_rig_finish(&rig);
    close(lock);
}
