/* Lists over slots: order of age, shared links, against an array that is shifted by hand. */
#include <criterion/criterion.h>
#include <string.h>

#include "tier/lru.h"

#define SLOTS 12u

static struct spw_slot_links links;
static struct spw_slot_list list;

static void start(void)
{
    cr_assert_eq(spw_slot_links_init(&links, SLOTS), 0);
    spw_slot_list_init(&list, &links);
}

/* The list holds exactly @want, oldest first, read from both ends. */
static void expect(const struct spw_slot_list *got, const uint32_t *want, uint32_t count)
{
    cr_assert_eq(got->count, count);
    uint32_t slot = got->oldest;
    for (uint32_t i = 0; i < count; i++, slot = spw_slot_list_newer(got, slot))
        cr_assert_eq(slot, want[i], "place %u from the old end", i);
    cr_assert_eq(slot, SPW_NO_SLOT_ID);
    slot = got->newest;
    for (uint32_t i = count; i-- > 0; slot = got->links->older[slot])
        cr_assert_eq(slot, want[i], "place %u from the new end", i);
    cr_assert_eq(slot, SPW_NO_SLOT_ID);
}

Test(lru, keeps_the_order_in_which_slots_came)
{
    start();
    expect(&list, NULL, 0);
    for (uint32_t slot = 0; slot < 4; slot++)
        spw_slot_list_add(&list, slot);
    expect(&list, (uint32_t[]){0, 1, 2, 3}, 4);
    spw_slot_links_fini(&links);
}

Test(lru, takes_slots_out_of_either_end_and_the_middle)
{
    start();
    for (uint32_t slot = 0; slot < 5; slot++)
        spw_slot_list_add(&list, slot);
    spw_slot_list_remove(&list, 0);
    spw_slot_list_remove(&list, 2);
    spw_slot_list_remove(&list, 4);
    expect(&list, (uint32_t[]){1, 3}, 2);
    spw_slot_list_remove(&list, 1);
    spw_slot_list_remove(&list, 3);
    expect(&list, NULL, 0);
    spw_slot_links_fini(&links);
}

Test(lru, places_a_slot_right_behind_another)
{
    start();
    spw_slot_list_add(&list, 0);
    spw_slot_list_add_behind(&list, 1, 0);
    expect(&list, (uint32_t[]){1, 0}, 2);
    spw_slot_list_add(&list, 2);
    spw_slot_list_add_behind(&list, 3, 2);
    expect(&list, (uint32_t[]){1, 0, 3, 2}, 4);
    spw_slot_links_fini(&links);
}

Test(lru, lists_of_one_set_share_their_links)
{
    start();
    struct spw_slot_list other;
    spw_slot_list_init(&other, &links);
    for (uint32_t slot = 0; slot < 6; slot++)
        spw_slot_list_add(slot % 2 ? &list : &other, slot);
    spw_slot_list_remove(&list, 3);
    spw_slot_list_add(&other, 3);
    expect(&list, (uint32_t[]){1, 5}, 2);
    expect(&other, (uint32_t[]){0, 2, 4, 3}, 4);
    spw_slot_links_fini(&links);
}

static uint32_t random_below(uint64_t *seed, uint32_t below)
{
    *seed = *seed * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)(*seed >> 33) % below;
}

/* Index of @slot in the array, or @count. */
static uint32_t find(const uint32_t *want, uint32_t count, uint32_t slot)
{
    uint32_t i = 0;
    while (i < count && want[i] != slot)
        i++;
    return i;
}

static void take_out(uint32_t *want, uint32_t *count, uint32_t at)
{
    --*count;
    memmove(&want[at], &want[at + 1], (*count - at) * sizeof *want);
}

Test(lru, agrees_with_a_shifted_array_over_many_changes)
{
    start();
    uint32_t want[SLOTS + 1], count = 0;
    uint64_t seed = 7;
    for (int i = 0; i < 20000; i++) {
        uint32_t slot = random_below(&seed, SLOTS), at = find(want, count, slot);
        if (at < count) {
            spw_slot_list_remove(&list, slot);
            take_out(want, &count, at);
        } else if (count > 0 && random_below(&seed, 2)) {
            uint32_t before = random_below(&seed, count);
            spw_slot_list_add_behind(&list, slot, want[before]);
            memmove(&want[before + 1], &want[before], (count - before) * sizeof *want);
            want[before] = slot;
            count++;
        } else {
            spw_slot_list_add(&list, slot);
            want[count++] = slot;
        }
        if (i % 50 == 0)
            expect(&list, want, count);
    }
    expect(&list, want, count);
    spw_slot_links_fini(&links);
}

Test(lru, ending_twice_is_fine)
{
    start();
    spw_slot_links_fini(&links);
    spw_slot_links_fini(&links);
    spw_slot_links_fini(NULL);
}
