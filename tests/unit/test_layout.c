/* Geometry as bytes from outside, and where things lie. */
#include <criterion/criterion.h>
#include <string.h>

#include "shm/layout.h"

TestSuite(layout, .timeout = 20);

static const struct spw_geometry small = {
    .workers = 2,
    .clients = 3,
    .capacity_chunks = 1,
    .slots = 2,
    .slot_bytes = 64,
    .update_records = 2,
    .gate_records = 1,
    .command_slots = 2,
    .completion_slots = 2,
    .index_buckets = 1,
};

static const struct spw_geometry large = {
    .workers = 32,
    .clients = 127,
    .capacity_chunks = (1u << 30) - 1,
    .slots = 1u << 30,
    .slot_bytes = UINT32_MAX & ~63u,
    .update_records = 1u << 30,
    .gate_records = 1u << 29,
    .command_slots = 1u << 20,
    .completion_slots = 1u << 20,
    .index_buckets = 1u << 30,
    .kv_blocks = 1u << 30,
    .kv_block_bytes = UINT32_MAX & ~63u,
};

Test(layout, smallest_and_largest_geometry_pass)
{
    struct spw_error err = {0};
    cr_assert_eq(spw_geometry_check(&small, &err), 0, "%s", err.text);
    cr_assert_eq(spw_geometry_check(&large, &err), 0, "%s", err.text);
}

#define REFUSED(field, value)                                                                      \
    do {                                                                                           \
        struct spw_geometry g = small;                                                             \
        struct spw_error err = {0};                                                                \
        g.field = (value);                                                                         \
        cr_assert_eq(spw_geometry_check(&g, &err), -EBADMSG, #field " = " #value);                 \
        cr_assert_not_null(strstr(err.text, #field), "%s", err.text);                              \
    } while (0)

Test(layout, each_field_has_its_limits_and_is_named)
{
    REFUSED(workers, 0);
    REFUSED(workers, 33);
    REFUSED(clients, 0);
    REFUSED(clients, 128);
    REFUSED(capacity_chunks, 0);
    REFUSED(slots, 1);
    REFUSED(slots, (1u << 30) + 1);
    REFUSED(capacity_chunks, 2); /* no reserve */
    REFUSED(slot_bytes, 0);
    REFUSED(slot_bytes, 65);
    REFUSED(update_records, 0);
    REFUSED(update_records, 1);
    REFUSED(update_records, 3);
    REFUSED(update_records, 1u << 31);
    REFUSED(gate_records, 0);
    REFUSED(gate_records, 2);
    REFUSED(command_slots, 1);
    REFUSED(command_slots, 6);
    REFUSED(command_slots, 1u << 21);
    REFUSED(completion_slots, 1);
    REFUSED(completion_slots, 3);
    REFUSED(index_buckets, 0);
    REFUSED(kv_blocks, (1u << 30) + 1);
    REFUSED(kv_block_bytes, 32);
    REFUSED(kv_blocks, 1); /* of no bytes */
}

Test(layout, reserved_bytes_are_zero)
{
    for (size_t i = 0; i < sizeof small.reserved; i++) {
        struct spw_geometry g = small;
        g.reserved[i] = 1;
        cr_assert_eq(spw_geometry_check(&g, NULL), -EBADMSG);
    }
}

static void check_order(const struct spw_geometry *g)
{
    struct spw_feed_map feed;
    struct spw_client_map client;
    spw_feed_map_init(g, &feed);
    spw_client_map_init(g, &client);
    cr_assert_geq(feed.ring_off, sizeof(struct spw_feed_head));
    cr_assert_geq(feed.entry_off, feed.ring_off + 32ull * g->update_records);
    cr_assert_geq(feed.key_off, feed.entry_off + 64ull * g->slots);
    cr_assert_geq(feed.index_off, feed.key_off + 64ull * g->slots);
    cr_assert_geq(feed.copying_off, feed.index_off + 64ull * g->index_buckets);
    cr_assert_geq(feed.size_bytes, feed.copying_off + 8ull * g->workers * spw_claim_words(g));
    cr_assert_geq(client.pin_off, sizeof(struct spw_client_head));
    cr_assert_geq(client.awaited_off, client.pin_off + 8ull * g->workers * spw_claim_words(g));
    cr_assert_geq(client.command_off, client.awaited_off + 8ull * g->workers * spw_claim_words(g));
    cr_assert_geq(client.completion_off,
                  client.command_off + 64ull * g->workers * g->command_slots);
    cr_assert_geq(client.size_bytes,
                  client.completion_off + 64ull * g->workers * g->completion_slots);
    cr_assert_eq((feed.ring_off | feed.entry_off | feed.key_off | feed.index_off |
                  feed.copying_off | client.pin_off | client.awaited_off | client.command_off |
                  client.completion_off) %
                     64,
                 0);
    cr_assert_eq(spw_data_size_bytes(g), 4096 + (uint64_t)g->slots * g->slot_bytes);
}

Test(layout, parts_follow_one_another_on_lines_of_their_own)
{
    check_order(&small);
    check_order(&large);
}

Test(layout, a_pool_without_kv_has_no_kv_object)
{
    cr_assert_eq(spw_kv_size_bytes(&small), 0);
    cr_assert_eq(spw_kv_size_bytes(&large), 4096 + (1ull << 30) * (UINT32_MAX & ~63u));
}

/* Every bit of a good geometry, and many random ones: an answer, and sizes without overflow. */
Test(layout, case25_any_geometry_is_refused_or_has_sane_sizes)
{
    uint64_t state = 88172645463325252ull;
    int passed = 0;
    for (int i = 0; i < 200000; i++) {
        struct spw_geometry g = i % 2 ? large : small;
        uint8_t *bytes = (uint8_t *)&g;
        for (int n = i % 3; n >= 0; n--) {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            bytes[state % sizeof g] ^= (uint8_t)(1 << (state >> 32) % 8);
        }
        if (spw_geometry_check(&g, NULL) == 0) {
            struct spw_feed_map feed;
            struct spw_client_map client;
            spw_feed_map_init(&g, &feed);
            spw_client_map_init(&g, &client);
            cr_assert_lt(feed.size_bytes, 1ull << 62);
            cr_assert_lt(client.size_bytes, 1ull << 62);
            cr_assert_lt(spw_data_size_bytes(&g), 1ull << 63);
            cr_assert_lt(spw_kv_size_bytes(&g), 1ull << 63);
            cr_assert_gt(feed.copying_off, feed.index_off);
            passed++;
        }
    }
    cr_assert_gt(passed, 100);
}

Test(layout, hash_is_stable_within_a_build_and_not_trivial)
{
    cr_assert_eq(spw_layout_hash(), spw_layout_hash());
    cr_assert_neq(spw_layout_hash(), 0);
}
