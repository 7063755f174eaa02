/* Who goes next: lanes merged by age, against a plain list that is kept by hand. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "tier/order.h"

#define SLOTS 40u

TestSuite(order, .timeout = 20);

static struct spw_slot_links links;
static struct spw_ages ages;
static struct spw_order order, other;

static void start(void)
{
    cr_assert_eq(spw_slot_links_init(&links, SLOTS), 0);
    cr_assert_eq(spw_ages_init(&ages, &links), 0);
    spw_order_init(&order, &ages);
    spw_order_init(&other, &ages);
}

static void finish(void)
{
    spw_ages_fini(&ages);
    spw_slot_links_fini(&links);
}

static void expect(uint64_t lanes, const uint32_t *want, uint32_t count)
{
    struct spw_order_walk walk;
    spw_order_walk(&order, lanes, &walk);
    for (uint32_t i = 0; i < count; i++)
        cr_assert_eq(spw_order_next(&walk), want[i], "place %u", i);
    cr_assert_eq(spw_order_next(&walk), SPW_NO_SLOT_ID);
}

Test(order, merges_lanes_by_age, .init = start, .fini = finish)
{
    expect(SPW_ALL_LANES, NULL, 0);
    spw_order_add(&order, 5, 3);
    spw_order_add(&order, 1, 0);
    spw_order_add(&order, 9, 63);
    spw_order_add(&order, 2, 3);
    cr_assert_eq(order.count, 4);
    expect(SPW_ALL_LANES, (uint32_t[]){5, 1, 9, 2}, 4);
    expect(1ull << 3, (uint32_t[]){5, 2}, 2);
    expect(1ull << 63 | 1, (uint32_t[]){1, 9}, 2);
    expect(1ull << 4, NULL, 0);
}

Test(order, a_use_counts_only_where_age_goes_by_use, .init = start, .fini = finish)
{
    spw_order_add(&order, 0, 1);
    spw_order_add(&order, 1, 2);
    spw_order_add(&order, 2, 1);
    spw_order_use(&order, SPW_EVICT_BY_AGE, 0);
    expect(SPW_ALL_LANES, (uint32_t[]){0, 1, 2}, 3);
    spw_order_use(&order, SPW_EVICT_BY_USE, 0);
    expect(SPW_ALL_LANES, (uint32_t[]){1, 2, 0}, 3);
    cr_assert_eq(spw_order_lane(&order, 0), 1, "it stays in its lane");
}

Test(order, what_is_scorned_goes_first_of_all_lanes, .init = start, .fini = finish)
{
    for (uint32_t slot = 0; slot < 6; slot++)
        spw_order_add(&order, slot, slot % 2);
    spw_order_scorn(&order, 4);
    expect(SPW_ALL_LANES, (uint32_t[]){4, 0, 1, 2, 3, 5}, 6);
    spw_order_remove(&order, 4);
    spw_order_add(&order, 4, 1);
    expect(SPW_ALL_LANES, (uint32_t[]){0, 1, 2, 3, 5, 4}, 6);
}

Test(order, a_lane_is_left_for_a_new_one_at_the_same_age, .init = start, .fini = finish)
{
    for (uint32_t slot = 0; slot < 6; slot++)
        spw_order_add(&order, slot, 0);
    spw_order_scorn(&order, 3);
    spw_order_move(&order, 3, 7);
    spw_order_move(&order, 0, 7);
    spw_order_move(&order, 4, 7);
    expect(SPW_ALL_LANES, (uint32_t[]){3, 0, 1, 2, 4, 5}, 6);
    expect(1 << 7, (uint32_t[]){3, 0, 4}, 3);
    expect(1, (uint32_t[]){1, 2, 5}, 3);
    cr_assert_eq(order.count, 6);
    cr_assert_eq(spw_order_lane(&order, 4), 7);
}

Test(order, what_was_given_may_leave_during_a_walk, .init = start, .fini = finish)
{
    struct spw_order_walk walk;
    for (uint32_t slot = 0; slot < 6; slot++)
        spw_order_add(&order, slot, slot % 3);
    spw_order_walk(&order, SPW_ALL_LANES, &walk);
    for (uint32_t slot = 0; slot < 6; slot++) {
        cr_assert_eq(spw_order_next(&walk), slot);
        spw_order_remove(&order, slot);
    }
    cr_assert_eq(order.count, 0);
    expect(SPW_ALL_LANES, NULL, 0);
}

Test(order, what_passes_takes_its_place_by_age, .init = start, .fini = finish)
{
    for (uint32_t slot = 0; slot < 10; slot++)
        spw_order_add(slot % 2 ? &other : &order, slot, slot / 5);
    spw_order_scorn(&other, 9);
    spw_order_pass(&other, &order, 8);
    expect(SPW_ALL_LANES, (uint32_t[]){0, 1, 2, 3, 4, 5, 6, 7, 8}, 9);
    cr_assert_eq(other.count, 1);
    spw_order_pass(&other, &order, 10);
    expect(SPW_ALL_LANES, (uint32_t[]){9, 0, 1, 2, 3, 4, 5, 6, 7, 8}, 10);
    expect(2, (uint32_t[]){9, 5, 6, 7, 8}, 5);
    cr_assert_eq(order.count, 10);
    cr_assert_eq(other.count, 0);
}

Test(order, a_chain_may_lie_in_two_orders, .init = start, .fini = finish)
{
    spw_order_add(&order, 0, 3);
    spw_order_add(&other, 1, 3); /* its head */
    spw_order_add_behind(&other, 2, 1);
    spw_order_add_behind_other(&order, 3, 2);
    spw_order_add_behind(&order, 4, 3);
    expect(8, (uint32_t[]){0, 4, 3}, 3);
    spw_order_add_behind_other(&other, 5, 4);
    spw_order_add_behind_other(&order, 6, 5);
    expect(8, (uint32_t[]){0, 6, 4, 3}, 4);
    spw_order_add(&order, 7, 3);
    spw_order_pass(&other, &order, SLOTS);
    expect(8, (uint32_t[]){0, 6, 4, 3, 5, 2, 1, 7}, 8);
}

/* Used and passed at random, the two together are one list by the last use. */
Test(order, two_are_one_when_all_has_passed, .init = start, .fini = finish)
{
    uint32_t by_age[SLOTS];
    srand(9);
    for (uint32_t round = 0; round < 500; round++) {
        for (uint32_t i = 0; i < SLOTS; i++)
            by_age[i] = i;
        for (uint32_t i = 0; i < SLOTS; i++)
            spw_order_add(&other, i, (uint32_t)rand() % 4);
        for (uint32_t end = 0; end < SLOTS; end += 1 + (uint32_t)rand() % 15) {
            spw_order_pass(&other, &order, end);
            cr_assert_eq(order.count, end);
            for (uint32_t uses = 0; uses < 10; uses++) {
                uint32_t place = (uint32_t)rand() % SLOTS, slot = by_age[place];
                spw_order_use(slot < end ? &order : &other, SPW_EVICT_BY_USE, slot);
                memmove(&by_age[place], &by_age[place + 1], (SLOTS - 1 - place) * sizeof *by_age);
                by_age[SLOTS - 1] = slot;
            }
        }
        spw_order_pass(&other, &order, SLOTS);
        expect(SPW_ALL_LANES, by_age, SLOTS);
        for (uint32_t slot = 0; slot < SLOTS; slot++)
            spw_order_remove(&order, slot);
    }
}

/* A list of all lanes, oldest first. */
static uint32_t plain[SLOTS], plain_count, lane_of[SLOTS];

static uint32_t place_of(uint32_t slot)
{
    uint32_t at = 0;
    while (at < plain_count && plain[at] != slot)
        at++;
    return at;
}

static void plain_remove(uint32_t slot)
{
    uint32_t at = place_of(slot);
    memmove(&plain[at], &plain[at + 1], (--plain_count - at) * sizeof *plain);
}

static void plain_insert(uint32_t at, uint32_t slot)
{
    memmove(&plain[at + 1], &plain[at], (plain_count++ - at) * sizeof *plain);
    plain[at] = slot;
}

static void expect_plain(uint64_t lanes)
{
    uint32_t want[SLOTS], count = 0;
    for (uint32_t i = 0; i < plain_count; i++)
        if (lanes >> lane_of[plain[i]] & 1)
            want[count++] = plain[i];
    expect(lanes, want, count);
}

/* All that can happen to one slot, at random. */
Test(order, does_what_a_plain_list_does, .init = start, .fini = finish)
{
    srand(7);
    for (uint32_t round = 0; round < 20000; round++) {
        uint32_t slot = (uint32_t)rand() % SLOTS, lane = (uint32_t)rand() % 4;
        uint32_t at = place_of(slot);
        if (at == plain_count && rand() % 2) {
            lane_of[slot] = lane;
            spw_order_add(&order, slot, lane);
            plain_insert(plain_count, slot);
        } else if (at == plain_count && plain_count != 0) {
            uint32_t newer = plain[(uint32_t)rand() % plain_count];
            lane_of[slot] = lane_of[newer];
            spw_order_add_behind(&order, slot, newer);
            plain_insert(place_of(newer), slot);
        } else if (at < plain_count && rand() % 3 == 0) {
            spw_order_remove(&order, slot);
            plain_remove(slot);
        } else if (at < plain_count) {
            spw_order_use(&order, SPW_EVICT_BY_USE, slot);
            plain_remove(slot);
            plain_insert(plain_count, slot);
        }
        cr_assert_eq(order.count, plain_count);
        expect_plain(SPW_ALL_LANES);
        expect_plain(1ull << lane | 1);
    }
}
