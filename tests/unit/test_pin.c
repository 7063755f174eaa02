/* Pinning on a driver of the test's own: pieces, turns, touching, the frontier. */
#include "tests/unit/pin_rig.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "tests/support/env.h"

TestSuite(pin, .timeout = 30);

/* ---- pieces ----------------------------------------------------------------------------------- */

Test(pin, a_large_shard_is_pinned_in_pieces_below_what_one_call_takes)
{
    struct pin_rig rig;
    int lock = pin_rig_lock();
    pin_rig_prepare(&rig, lock, 1280, 8 * PIN_MIB); /* 10 GiB */
    rig.config.piece_bytes = 0;
    rig.driver.cap_bytes = 2 * PIN_GIB;
    pin_rig_start(&rig);
    cr_assert(pin_rig_wait(&rig, SPW_PIN_DONE), "%s", rig.words);
    cr_expect_eq(rig.driver.adds, 10);
    for (uint32_t i = 0; i < rig.driver.held; i++)
        cr_expect_leq(rig.driver.range[i].bytes, PIN_GIB);
    for (uint32_t slot = 0; slot < 1280; slot++)
        cr_assert(pin_rig_copies(&rig, pin_rig_slot(&rig, 0, slot), 8 * PIN_MIB), "slot %u", slot);
    cr_expect(!pin_rig_copies(&rig, pin_rig_slot(&rig, 0, 127), 16 * PIN_MIB), "across a seam");
    cr_expect(!pin_rig_copies(&rig, pin_rig_slot(&rig, 0, 1279), 8 * PIN_MIB + 1));
    cr_expect_eq(spw_load_relaxed(&rig.record.pinned_bytes), 10 * PIN_GIB);
    cr_expect_eq(spw_load_relaxed(&rig.record.pin_total_bytes), 10 * PIN_GIB);
    cr_expect_eq(spw_pin_usable_slots(rig.pin), UINT32_MAX);
    pin_rig_finish(&rig);
    cr_expect_eq(rig.driver.removes, rig.driver.adds);
    cr_expect_eq(pin_rig_state(&rig), SPW_PIN_NONE);
    close(lock);
}

Test(pin, what_was_pinned_before_a_refusal_is_undone_and_words_say_where)
{
    struct pin_rig rig;
    int lock = pin_rig_lock();
    pin_rig_prepare(&rig, lock, 20, PIN_MIB);
    rig.driver.fail_at = 3;
    pin_rig_start(&rig);
    cr_assert(pin_rig_wait(&rig, SPW_PIN_REFUSED));
    cr_expect_eq(rig.driver.removes, 2);
    cr_expect_eq(pin_rig_held(&rig.driver), 0);
    cr_expect_str_eq(rig.words,
                     "memory can't be pinned at offset 8388608: CUDA_ERROR_OUT_OF_MEMORY; "
                     "8388608 of 20971520 bytes were");
    cr_expect_eq(spw_load_relaxed(&rig.record.pinned_bytes), 0);
    cr_expect(!pin_rig_copies(&rig, pin_rig_slot(&rig, 0, 0), PIN_MIB));
    cr_expect_eq(spw_pin_usable_slots(rig.pin), UINT32_MAX);
    cr_expect_eq(spw_pin_health(rig.pin), 0);
    pin_rig_finish(&rig);
    cr_expect_eq(pin_rig_state(&rig), SPW_PIN_REFUSED, "what was refused is still told");
    close(lock);
}

Test(pin, a_failure_of_any_call_undoes_exactly_those_before)
{
    int lock = pin_rig_lock();
    for (uint32_t n = 1; n <= 6; n++) {
        struct pin_rig rig;
        pin_rig_prepare(&rig, lock, 20, PIN_MIB);
        rig.driver.fail_at = n;
        pin_rig_start(&rig);
        cr_assert(pin_rig_wait(&rig, n <= 5 ? SPW_PIN_REFUSED : SPW_PIN_DONE));
        cr_expect_eq(rig.driver.adds, n <= 5 ? n : 5);
        cr_expect_eq(rig.driver.removes, n <= 5 ? n - 1 : 0, "call %u", n);
        pin_rig_finish(&rig);
    }
    close(lock);
}

Test(pin, a_lost_gpu_is_told_apart)
{
    struct pin_rig rig;
    int lock = pin_rig_lock();
    pin_rig_prepare(&rig, lock, 20, PIN_MIB);
    rig.driver.fail_at = 2;
    rig.driver.error = -ENODEV;
    pin_rig_start(&rig);
    cr_assert(pin_rig_wait(&rig, SPW_PIN_NONE), "memory as such wasn't refused");
    cr_expect_eq(spw_pin_health(rig.pin), -ENODEV);
    cr_expect(strstr(rig.words, "at offset 4194304"), "%s", rig.words);
    cr_expect_eq(pin_rig_held(&rig.driver), 0);
    pin_rig_finish(&rig);
    close(lock);
}

Test(pin, slots_of_odd_sizes_are_pinned_but_those_at_seams)
{
    struct pin_rig rig;
    int lock = pin_rig_lock();
    pin_rig_prepare(&rig, lock, 40, 4160);
    rig.config.piece_bytes = 10 * 4160;
    pin_rig_start(&rig);
    cr_assert(pin_rig_wait(&rig, SPW_PIN_DONE), "%s", rig.words);
    cr_expect_eq(rig.driver.adds, 4);
    cr_expect(pin_rig_copies(&rig, pin_rig_slot(&rig, 0, 0), 4160));
    cr_expect(pin_rig_copies(&rig, pin_rig_slot(&rig, 0, 8), 4160));
    cr_expect(!pin_rig_copies(&rig, pin_rig_slot(&rig, 0, 9), 4160));
    cr_expect(!pin_rig_copies(&rig, pin_rig_slot(&rig, 0, 10), 4160));
    cr_expect(pin_rig_copies(&rig, pin_rig_slot(&rig, 0, 39), 4160));
    pin_rig_finish(&rig);
    close(lock);
}

/* ---- turns ------------------------------------------------------------------------------------ */

Test(pin, others_are_left_time_for_a_turn_after_each_piece)
{
    struct pin_rig rig;
    int lock = pin_rig_lock();
    pin_rig_prepare(&rig, lock, 40, PIN_MIB);
    pin_rig_start(&rig);
    cr_assert(pin_rig_wait(&rig, SPW_PIN_DONE));
    pin_rig_finish(&rig);
    cr_expect_eq(rig.driver.adds, 10);
    cr_expect_geq(rig.driver.pause_ns, 3000000);
    close(lock);
}

Test(pin, two_workers_never_register_at_a_time)
{
    struct pin_rig rig[2];
    int lock = pin_rig_lock();
    for (uint32_t k = 0; k < 2; k++) {
        pin_rig_prepare(&rig[k], lock, 40, PIN_MIB);
        rig[k].driver.add_us = 1000;
        rig[k].config.k = k;
    }
    for (uint32_t k = 0; k < 2; k++)
        pin_rig_start(&rig[k]);
    for (uint32_t k = 0; k < 2; k++)
        cr_expect(pin_rig_wait(&rig[k], SPW_PIN_DONE));
    for (uint32_t k = 0; k < 2; k++)
        pin_rig_finish(&rig[k]);
    close(lock);
}

static int pin_in_child(int lock)
{
    static struct pin_rig rig;
    struct spw_error err;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (!pin_rig_try_prepare(&rig, lock, 40, PIN_MIB))
        return 1;
    rig.driver.add_us = 1000;
    if (spw_pin_open(&rig.config, &rig.pin, &err) < 0 || !pin_rig_wait(&rig, SPW_PIN_DONE))
        return 1;
    spw_pin_close(rig.pin);
    return rig.driver.turns_lost != 0 || rig.driver.held != 0 || rig.driver.adds != 10;
}

Test(pin, two_processes_never_register_at_a_time)
{
    int lock = pin_rig_lock(), status;
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
    struct pin_rig rig;
    int lock = pin_rig_lock(), other = pin_rig_open_again(lock);
    pin_rig_prepare(&rig, lock, 4, PIN_MIB);
    rig.config.limit_ns = 50000000;
    cr_assert_eq(spw_lock_take(other, SPW_LOCK_PINNING), 0);
    pin_rig_start(&rig);
    cr_expect(pin_rig_wait(&rig, SPW_PIN_REFUSED));
    cr_expect_str_eq(rig.words, "memory wasn't pinned within 0.1 s: 4194304 of 4194304 bytes "
                                "touched, 0 pinned");
    cr_expect_eq(rig.driver.adds, 0);
    pin_rig_finish(&rig);
    close(other);
    close(lock);
}

/* Two pools: each has a lock of its own, and the folder in common. */
Test(pin, pools_of_a_host_take_turns_by_their_folder)
{
    struct pin_rig rig;
    char dir[SUPPORT_PATH_BYTES];
    int lock = pin_rig_lock();
    cr_assert_eq(support_shm_dir(dir), 0);
    int other = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    cr_assert(other >= 0 && flock(other, LOCK_EX) == 0);
    pin_rig_prepare(&rig, lock, 8, PIN_MIB);
    rig.config.host_dir = dir;
    pin_rig_start(&rig);
    usleep(100000); /* without that, all is pinned in a tenth of it */
    cr_expect_eq(rig.driver.adds, 0, "it isn't its turn");
    cr_expect_eq(flock(other, LOCK_UN), 0);
    cr_expect(pin_rig_wait(&rig, SPW_PIN_DONE));
    cr_expect_eq(rig.driver.adds, 2);
    cr_expect_eq(flock(other, LOCK_EX | LOCK_NB), 0, "it has let go of it");
    pin_rig_finish(&rig);
    close(other);
    close(lock);
}

/* ---- touching --------------------------------------------------------------------------------- */

Test(pin, a_piece_is_touched_by_several_threads_at_a_time)
{
    struct pin_rig rig;
    int lock = pin_rig_lock();
    pin_rig_prepare(&rig, lock, 64, PIN_MIB);
    rig.config.threads = 3;
    spw_store_relaxed(&rig.may_touch, 0);
    pin_rig_start(&rig);
    cr_expect(pin_rig_wait_inside(&rig, 3));
    spw_store_release(&rig.may_touch, UINT64_MAX);
    cr_expect(pin_rig_wait(&rig, SPW_PIN_DONE));
    pin_rig_finish(&rig);
    close(lock);
}

Test(pin, a_start_that_touches_too_slowly_ends_at_the_limit)
{
    struct pin_rig rig;
    int lock = pin_rig_lock();
    pin_rig_prepare(&rig, lock, 64, PIN_MIB);
    spw_store_relaxed(&rig.may_touch, 6); /* a piece, and half of the next */
    rig.config.limit_ns = 1000000000;
    pin_rig_start(&rig);
    uint64_t since = spw_monotonic_ns();
    cr_assert(pin_rig_wait_for_piece(&rig));
    while (spw_monotonic_ns() - since < rig.config.limit_ns)
        usleep(10000);
    spw_store_release(&rig.may_touch, UINT64_MAX); /* it comes too late */
    uint64_t touched = 0;
    cr_assert(pin_rig_wait(&rig, SPW_PIN_REFUSED));
    cr_assert_eq(
        sscanf(rig.words,
               "memory wasn't pinned within 1.0 s: %lu of 67108864 bytes touched, 4194304 pinned",
               &touched),
        1, "%s", rig.words);
    cr_expect(touched >= 6 * PIN_MIB && touched <= 8 * PIN_MIB, "%lu", touched);
    cr_expect_eq(rig.driver.adds, 1);
    cr_expect_eq(rig.driver.removes, 1);
    pin_rig_finish(&rig);
    close(lock);
}

/* ---- the frontier ----------------------------------------------------------------------------- */

Test(pin, slots_are_usable_up_to_what_is_pinned)
{
    struct pin_rig rig;
    int lock = pin_rig_lock();
    pin_rig_prepare(&rig, lock, 10, PIN_MIB);
    rig.config.cell_shift = 3;
    spw_store_relaxed(&rig.may_touch, 0);
    pin_rig_start(&rig);
    cr_expect_eq(pin_rig_state(&rig), SPW_PIN_RUNNING);
    cr_expect_eq(spw_pin_usable_slots(rig.pin), 0);
    cr_expect(!spw_pin_use(rig.pin, pin_rig_slot(&rig, 0, 0), PIN_MIB));
    spw_store_release(&rig.may_touch, 4); /* a piece */
    cr_assert(pin_rig_wait_for_piece(&rig));
    cr_expect_eq(spw_pin_usable_slots(rig.pin), 4u << 3);
    cr_expect(spw_pin_use(rig.pin, pin_rig_slot(&rig, 0, 3), PIN_MIB));
    spw_pin_done(rig.pin);
    cr_expect(!spw_pin_use(rig.pin, pin_rig_slot(&rig, 0, 4), PIN_MIB));
    cr_assert(pin_rig_wait_inside(&rig, 1)); /* the thread that pins has started the next piece's */
    cr_expect_eq(spw_load_relaxed(&rig.record.pinned_bytes), 4 * PIN_MIB);
    spw_store_release(&rig.may_touch, UINT64_MAX);
    cr_expect(pin_rig_wait(&rig, SPW_PIN_DONE));
    cr_expect_eq(spw_load_relaxed(&rig.touched), 10 * PIN_MIB);
    cr_expect_eq(spw_pin_usable_slots(rig.pin), UINT32_MAX);
    cr_expect(!pin_rig_copies(&rig, (const uint8_t *)&rig, 1), "memory of nobody's");
    pin_rig_finish(&rig);
    close(lock);
}
