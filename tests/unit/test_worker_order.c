/* Stores that a client waits for: which goes next, where each one stands, when it will be there. */
#include "tests/support/worker_rig.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#include "tier/eta.h"

TestSuite(worker_order, .timeout = 30);

#define KEYS 40u
#define PACE                                                                                       \
    .rate_bytes = {1000, 0}, .in_flight = {1, 1} /* a chunk of group 0 a second, one at a time */

static struct rig rig;
static struct rig_client one, two;

/* Reserve and run keys first .. first + count - 1 at worker @k. */
static void store(struct rig_client *client, uint32_t k, uint64_t first, uint32_t count)
{
    struct spw_done done;
    while (rig_reap(client, k, &done))
        ; /* of earlier stores */
    cr_assert(rig_reserve(&rig, client, k, first, count));
    done = rig_answer(&rig, client, k);
    cr_assert(done.status == 0 && done.count == count);
    cr_assert(rig_run(&rig, client, k, SPW_CMD_STORE, done.ticket, count, 0));
    rig_settle(&rig);
}

static void await_all(struct rig_client *client, uint32_t k, uint64_t first, uint32_t count,
                      bool awaited)
{
    for (uint64_t i = first; i < first + count; i++)
        rig_await(&rig, client, k, i, awaited);
    spw_client_await_changed(client->view, k);
}

static const struct spw_stream *stream(uint32_t k)
{
    return &rig.daemon.feed[k]->stream;
}

/* The next key of 0 .. KEYS - 1 at worker @k that becomes READY, within @limit_s seconds. */
static uint64_t next_ready(uint32_t k, uint32_t limit_s)
{
    bool before[KEYS];
    for (uint64_t i = 0; i < KEYS; i++)
        before[i] = rig_state(&rig, k, i, NULL) == SPW_READY;
    for (uint32_t t = 0; t < 10 * limit_s; t++) {
        rig_advance(&rig, RIG_SECOND / 10);
        rig_settle(&rig);
        for (uint64_t i = 0; i < KEYS; i++)
            if (!before[i] && rig_state(&rig, k, i, NULL) == SPW_READY)
                return i;
    }
    return UINT64_MAX;
}

/* Keys in the order in which they become READY, as text: 'a' is key 0. */
static void expect_order(uint32_t k, const char *order)
{
    for (; *order; order++) {
        uint64_t key = next_ready(k, 2);
        cr_expect(key == (uint64_t)(*order - 'a'), "key %c for %c", (int)('a' + key), *order);
    }
}

static uint64_t place_of(uint32_t k, uint64_t key)
{
    struct spw_entry_copy entry = {0};
    cr_assert(rig_state(&rig, k, key, &entry) == SPW_FILLING);
    return entry.place_bytes;
}

static void begin(uint32_t workers)
{
    rig_open(&rig, &(struct rig_config){.workers = workers, .capacity = KEYS, .copier = {PACE}});
    rig_attach(&rig, &one);
    rig_attach(&rig, &two);
}

static void end(void)
{
    for (int i = 0; i < 100; i++) {
        rig_advance(&rig, RIG_SECOND);
        rig_settle(&rig);
    }
    for (uint32_t k = 0; k < rig.config.workers; k++) {
        cr_expect(rig_open_chunks(&rig, k) == 0);
        cr_expect(rig_slots_in(&rig, k, SPW_FILLING) == 0);
        cr_expect(spw_load_relaxed(&stream(k)->bytes_done) ==
                  spw_load_relaxed(&stream(k)->bytes_queued));
        cr_expect(spw_load_relaxed(&stream(k)->bytes_awaited) ==
                  spw_load_relaxed(&stream(k)->bytes_done));
    }
    rig_close(&rig);
}

Test(worker_order, awaited_stores_overtake_from_the_next_copy_on_at_each_rank)
{
    begin(2);
    for (uint32_t k = 0; k < 2; k++) {
        store(&one, k, 0, 4);
        store(&two, k, 4, 3);
        await_all(&one, k, 4, 3, true); /* one waits for what two stores */
    }
    expect_order(0, "aefgbcd"); /* a was with the copier already */
    cr_expect(rig_count(&rig, 0, SPW_WORKER_overtaken) == 3);
    cr_expect(rig_count(&rig, 0, SPW_WORKER_awaited_stored) == 3);
    cr_expect(rig_count(&rig, 0, SPW_WORKER_overtake_limit_hits) == 0);
    rig_close(&rig);

    begin(2);
    for (uint32_t k = 0; k < 2; k++) {
        store(&one, k, 0, 4);
        store(&two, k, 4, 3);
        await_all(&one, k, 4, 3, true);
    }
    expect_order(1, "aefgbcd");
    end();
}

Test(worker_order, a_bit_alone_changes_nothing_before_its_count_does)
{
    begin(1);
    store(&one, 0, 0, 6);
    rig_await(&rig, &one, 0, 5, true);
    expect_order(0, "ab"); /* b was chosen when a had ended */
    spw_client_await_changed(one.view, 0);
    expect_order(0, "cfde");
    end();
}

Test(worker_order, what_is_taken_back_goes_by_age_again)
{
    begin(1);
    store(&one, 0, 0, 8);
    await_all(&one, 0, 4, 4, true);
    expect_order(0, "ae");
    await_all(&one, 0, 4, 4, false);
    expect_order(0, "fbcdgh");
    end();
}

Test(worker_order, a_store_queued_later_is_marked_by_a_bit_set_before)
{
    begin(1);
    store(&one, 0, 0, 4);
    cr_assert(rig_reserve(&rig, &two, 0, 4, 2));
    struct spw_done done = rig_answer(&rig, &two, 0);
    await_all(&one, 0, 4, 2, true);
    rig_settle(&rig);
    cr_assert(rig_run(&rig, &two, 0, SPW_CMD_STORE, done.ticket, 2, 0));
    rig_settle(&rig);
    expect_order(0, "aefbcd");
    end();
}

Test(worker_order, two_that_wait_for_the_same_count_until_both_have_taken_back)
{
    begin(1);
    store(&one, 0, 0, 8);
    await_all(&one, 0, 4, 4, true);
    await_all(&two, 0, 4, 4, true);
    expect_order(0, "ae");
    await_all(&one, 0, 4, 4, false);
    expect_order(0, "fg");
    await_all(&two, 0, 4, 4, false);
    expect_order(0, "hbcd");
    end();
}

Test(worker_order, a_client_that_dies_stops_counting)
{
    begin(1);
    store(&one, 0, 0, 8);
    await_all(&two, 0, 4, 4, true);
    expect_order(0, "ae");
    rig_die(&two); /* noticed within a tick; its bits are left set */
    expect_order(0, "fbcdgh");
    end();
}

Test(worker_order, a_client_that_was_handed_over_stops_counting)
{
    struct rig_client next;
    begin(1);
    store(&one, 0, 0, 8);
    await_all(&two, 0, 4, 4, true);
    expect_order(0, "ae");
    uint32_t c = two.c;
    rig_die(&two);
    rig_attach(&rig, &next);
    cr_assert(next.c == c);
    expect_order(0, "fbcdgh");
    await_all(&next, 0, 0, 0, true); /* its own bits count */
    end();
}

Test(worker_order, a_successor_counts_bits_that_it_finds)
{
    begin(1);
    struct spw_entry_copy entry;
    for (uint32_t slot = 0; slot < KEYS; slot++)
        spw_client_await(two.view, 0, slot, slot % 2 == 0);
    rig_end_worker(&rig, 0);
    rig_start_worker(&rig, 0);
    store(&one, 0, 10, 6);
    for (uint32_t i = 0; i < 6; i++) {
        cr_assert(rig_state(&rig, 0, next_ready(0, 2), &entry) == SPW_READY);
        cr_expect(entry.slot % 2 == i / 3, "slot %u as number %u", entry.slot, i);
    }
    rig_close(&rig);
}

Test(worker_order, the_oldest_goes_when_the_limit_is_over)
{
    begin(1);
    store(&one, 0, 0, 3);
    store(&two, 0, 3, 14);
    await_all(&two, 0, 3, 14, true);
    /* b is passed over from the next pass on, though the copier still holds a; c from 6 s on */
    expect_order(0, "adefgh");
    cr_expect(place_of(0, 8) == 8000, "i moved behind b: %d", (int)place_of(0, 8));
    expect_order(0, "bijklcmnopq");
    cr_expect(rig_count(&rig, 0, SPW_WORKER_overtake_limit_hits) == 2);
    cr_expect(rig_count(&rig, 0, SPW_WORKER_awaited_stored) == 14);
    end();
}

/* ---- places --------------------------------------------------------------------------------- */

Test(worker_order, places_tell_the_order_and_follow_it)
{
    begin(1);
    store(&one, 0, 0, 3);
    store(&two, 0, 3, 3);
    for (uint64_t i = 0; i < 6; i++)
        cr_expect(place_of(0, i) == 1000 * (i + 1));
    cr_expect(spw_load_relaxed(&stream(0)->bytes_awaited) == 1000, "what is with the copier");
    await_all(&one, 0, 4, 2, true);
    rig_settle(&rig);
    const uint64_t want[] = {1000, 4000, 5000, 6000, 2000, 3000};
    for (uint64_t i = 0; i < 6; i++)
        cr_expect(place_of(0, i) == want[i], "%d", (int)place_of(0, i));
    cr_expect(spw_load_relaxed(&stream(0)->bytes_awaited) == 3000);
    cr_expect(spw_load_relaxed(&stream(0)->bytes_queued) == 6000);
    next_ready(0, 2);
    cr_expect(place_of(0, 4) == 2000 && place_of(0, 2) == 5000, "places stay as it goes on");
    cr_expect(spw_load_relaxed(&stream(0)->bytes_done) == 1000);
    next_ready(0, 2);
    next_ready(0, 2);
    cr_expect(spw_load_relaxed(&stream(0)->bytes_awaited) == 4000, "nobody waits any more");
    end();
}

Test(worker_order, a_cancelled_store_counts_as_done_and_the_others_move)
{
    begin(1);
    store(&one, 0, 0, 2);
    cr_assert(rig_reserve(&rig, &two, 0, 2, 2));
    struct spw_done done = rig_answer(&rig, &two, 0);
    cr_assert(rig_run(&rig, &two, 0, SPW_CMD_STORE, done.ticket, 2, 0));
    rig_settle(&rig);
    store(&one, 0, 4, 1);
    await_all(&two, 0, 2, 2, true);
    rig_settle(&rig);
    cr_expect(place_of(0, 1) == 4000 && place_of(0, 4) == 5000);
    rig_cancel(&rig, &two, 0, done.ticket);
    rig_settle(&rig);
    cr_expect(spw_load_relaxed(&stream(0)->bytes_done) == 2000);
    cr_expect(spw_load_relaxed(&stream(0)->bytes_awaited) == 3000, "with the one that is copied");
    cr_expect(place_of(0, 1) == 4000 && place_of(0, 4) == 5000);
    cr_expect(place_of(0, 0) == 3000, "it is still on its way");
    end();
}

/* Random waiting, taking back and cancelling: done, queued and the places of what is left never go
 * beyond each other, done never goes back, and no two chunks stand at one place. */
Test(worker_order, numbers_stay_in_their_bounds)
{
    uint64_t done = 0, queued = 0;
    begin(1);
    srand(3);
    for (int round = 0; round < 400; round++) {
        uint64_t key = (uint64_t)rand() % KEYS;
        if (rand() % 4 == 0 && key + 3 < KEYS && rig_state(&rig, 0, key, NULL) == SPW_FREE) {
            struct rig_client *client = rand() % 2 ? &one : &two;
            struct spw_done answer;
            uint64_t ticket = 0;
            cr_assert(rig_reserve(&rig, client, 0, key, 3));
            rig_settle(&rig);
            while (rig_reap(client, 0, &answer))
                if (answer.kind == SPW_DONE_RESERVE)
                    ticket = answer.ticket;
            rig_run(&rig, client, 0, SPW_CMD_STORE, ticket, 3, 0);
            if (rand() % 3 == 0) {
                rig_pass(&rig);
                rig_cancel(&rig, client, 0, ticket);
            }
        }
        if (rig_state(&rig, 0, key, NULL) == SPW_FILLING)
            await_all(rand() % 2 ? &one : &two, 0, key, 1, rand() % 2);
        rig_advance(&rig, RIG_SECOND / 4);
        rig_settle(&rig);
        cr_assert(spw_load_relaxed(&stream(0)->bytes_done) >= done);
        cr_assert(spw_load_relaxed(&stream(0)->bytes_queued) >= queued);
        done = spw_load_relaxed(&stream(0)->bytes_done);
        queued = spw_load_relaxed(&stream(0)->bytes_queued);
        uint64_t awaited = spw_load_relaxed(&stream(0)->bytes_awaited), seen = 0;
        cr_assert(awaited >= done && awaited <= queued);
        for (uint64_t i = 0; i < KEYS; i++) {
            struct spw_entry_copy entry;
            if (rig_state(&rig, 0, i, &entry) != SPW_FILLING || entry.place_bytes == 0)
                continue;
            cr_assert(entry.place_bytes > done && entry.place_bytes <= queued);
            uint64_t bit = 1ull << (entry.place_bytes - done) / 1000;
            cr_assert(entry.place_bytes % 1000 == 0 && !(seen & bit));
            seen |= bit;
        }
    }
    cr_expect(done > 20000 && rig_count(&rig, 0, SPW_WORKER_stores_cancelled) > 2, "%d, %d",
              (int)done, (int)rig_count(&rig, 0, SPW_WORKER_stores_cancelled));
    end();
}

/* ---- rate and ETA --------------------------------------------------------------------------- */

static uint64_t eta_of(uint32_t k, uint64_t key)
{
    struct spw_stream_sample sample;
    spw_stream_read(stream(k), &sample);
    return spw_stream_eta(&sample, place_of(k, key), 1000, rig.now_ns);
}

Test(worker_order, the_eta_of_each_store_is_when_it_ends)
{
    uint64_t ready_ns[KEYS], told_ns[KEYS] = {0};
    int64_t worst_ns = 0;
    begin(1);
    store(&one, 0, 30, 1);
    cr_expect(eta_of(0, 30) == SPW_ETA_UNKNOWN, "no copy has ended");
    store(&one, 0, 0, 12);
    expect_order(0, "\x7f"); /* '\x7f' - 'a' = 30 */
    store(&two, 0, 12, 8);
    await_all(&two, 0, 12, 4, true);
    rig_settle(&rig);
    for (uint64_t i = 0; i < 20; i++) {
        uint64_t eta_ns = eta_of(0, i);
        cr_assert(eta_ns != SPW_ETA_UNKNOWN);
        told_ns[i] = rig.now_ns + eta_ns;
    }
    for (uint32_t n = 0; n < 20; n++) {
        uint64_t key = next_ready(0, 3);
        cr_assert(key < 20);
        ready_ns[key] = rig.now_ns;
    }
    for (uint64_t i = 0; i < 20; i++) {
        int64_t off_ns = (int64_t)(ready_ns[i] - told_ns[i]);
        worst_ns = llabs(off_ns) > llabs(worst_ns) ? off_ns : worst_ns;
    }
    fprintf(stderr, "# ETA of 20 stores: worst error %.3f copies\n", (double)worst_ns / RIG_SECOND);
    cr_expect(llabs(worst_ns) < (int64_t)RIG_SECOND);
    end();
}

Test(worker_order, the_rate_is_that_of_the_pace_however_late_ends_are_seen)
{
    begin(1);
    store(&one, 0, 0, 20);
    srand(5);
    for (int i = 0; i < 30; i++) {
        rig_advance(&rig, (uint64_t)(rand() % 1400 + 1) * (RIG_SECOND / 1000));
        rig_settle(&rig);
    }
    uint64_t rate = spw_load_relaxed(&stream(0)->rate_bytes_per_s);
    cr_expect(rate > 800 && rate < 1250, "%d", (int)rate);
    end();
}

Test(worker_order, an_idle_time_is_no_part_of_the_rate)
{
    begin(1);
    for (uint64_t i = 0; i < 6; i++) {
        store(&one, 0, i, 1);
        cr_expect(spw_load_relaxed(&stream(0)->progress_ns) == rig.now_ns, "the stream began");
        cr_expect(next_ready(0, 2) == i);
        rig_advance(&rig, 100 * RIG_SECOND);
        rig_settle(&rig);
    }
    cr_expect(spw_load_relaxed(&stream(0)->rate_bytes_per_s) == 1000);
    end();
}

Test(worker_order, failed_copies_are_no_part_of_the_rate)
{
    rig_open(&rig, &(struct rig_config){
                       .capacity = KEYS,
                       .copier = {PACE, .faults = {.fail_every = {2, 0}, .fail_status = -5}}});
    rig_attach(&rig, &one);
    store(&one, 0, 0, 8);
    for (int i = 0; i < 20; i++) {
        rig_advance(&rig, RIG_SECOND / 2);
        rig_settle(&rig);
    }
    cr_expect(rig_count(&rig, 0, SPW_WORKER_stores_failed) == 4);
    cr_expect(spw_load_relaxed(&stream(0)->rate_bytes_per_s) == 1000);
    cr_expect(spw_load_relaxed(&stream(0)->bytes_done) == 8000);
    rig_close(&rig);
    rig_open(&rig, &(struct rig_config){
                       .capacity = KEYS,
                       .copier = {PACE, .faults = {.fail_every = {1, 0}, .fail_status = -5}}});
    rig_attach(&rig, &one);
    store(&one, 0, 0, 2);
    rig_advance(&rig, 5 * RIG_SECOND);
    rig_settle(&rig);
    rig_advance(&rig, 5 * RIG_SECOND);
    rig_settle(&rig);
    cr_expect(rig_count(&rig, 0, SPW_WORKER_stores_failed) == 2);
    cr_expect(spw_load_relaxed(&stream(0)->rate_bytes_per_s) == 0, "none has gone well");
    rig_close(&rig);
}

Test(worker_order, a_copy_that_does_not_end_makes_the_eta_unknown)
{
    rig_open(&rig, &(struct rig_config){.capacity = KEYS,
                                        .copier = {PACE, .faults.stick_every = {3, 0}}});
    rig_attach(&rig, &one);
    store(&one, 0, 0, 5);
    next_ready(0, 2);
    next_ready(0, 2);
    cr_expect(eta_of(0, 4) == 3 * RIG_SECOND);
    rig_advance(&rig, 4 * RIG_SECOND);
    rig_settle(&rig);
    cr_expect(eta_of(0, 4) != SPW_ETA_UNKNOWN, "slow, so far");
    rig_advance(&rig, 3 * RIG_SECOND / 2);
    rig_settle(&rig);
    cr_expect(eta_of(0, 4) == SPW_ETA_UNKNOWN);
    rig_close(&rig);
}

Test(worker_order, one_store_at_a_time_keeps_the_pace)
{
    begin(1);
    uint64_t from_ns = rig.now_ns;
    store(&one, 0, 0, 20);
    await_all(&one, 0, 7, 9, true);
    for (int i = 0; i < 29; i++) { /* looked at every 0.7 s only */
        rig_advance(&rig, 7 * (RIG_SECOND / 10));
        rig_settle(&rig);
    }
    cr_expect(rig.now_ns - from_ns < 21 * RIG_SECOND);
    cr_expect(rig_count(&rig, 0, SPW_WORKER_chunks_stored) == 20);
    end();
}
