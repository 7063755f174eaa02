/* State table and index: what readers get of whole, torn and hostile bytes, and that an index
 * never loses a key that is in it. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/tiny_pool.h"
#include "tier/table.h"

#define SLOTS 100u

/* Each array has its own allocation, so that ASan sees a step beyond any of them. */
static struct spw_table table;

static void start(uint32_t slots)
{
    uint32_t buckets = spw_table_buckets(slots);
    table.entry = aligned_alloc(64, slots * sizeof *table.entry);
    table.key = aligned_alloc(64, slots * sizeof *table.key);
    table.index = aligned_alloc(64, buckets * sizeof *table.index);
    cr_assert(table.entry && table.key && table.index);
    memset(table.entry, 0, slots * sizeof *table.entry);
    memset(table.key, 0, slots * sizeof *table.key);
    memset(table.index, 0, buckets * sizeof *table.index);
    table.view =
        (struct spw_table_view){table.entry, table.key, table.index, slots, slots, buckets};
}

static void stop(void)
{
    free(table.entry);
    free(table.key);
    free(table.index);
}

static uint64_t random_word(uint64_t *seed)
{
    *seed += 0x9e3779b97f4a7c15ull;
    uint64_t x = *seed;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ x >> 27) * 0x94d049bb133111ebull;
    return x ^ x >> 31;
}

static void put(uint32_t slot, const struct spw_chunk_key *key, uint32_t state, uint64_t version,
                uint64_t fill)
{
    struct spw_entry_copy entry = {.version = version,
                                   .fill = fill,
                                   .digest = {key->digest[0], key->digest[1]},
                                   .chunk_bytes = 4096,
                                   .place_bytes = 12345,
                                   .state = state,
                                   .group = key->group,
                                   .key_bytes = key->key_bytes,
                                   .rank = 3,
                                   .space = key->space};
    spw_table_write(&table, slot, &entry, key->key);
    spw_table_index_put(&table, key->digest, slot);
}

/* ---- digest ---------------------------------------------------------------------------------- */

Test(table, digest_tells_space_group_length_and_every_key_byte)
{
    uint8_t key[SPW_KEY_BYTES_MAX] = {0};
    uint64_t seen[400][2];
    uint32_t count = 0;
    for (uint32_t bytes = 1; bytes <= SPW_KEY_BYTES_MAX; bytes++)
        spw_chunk_digest(1, 1, key, bytes, seen[count++]);
    for (uint32_t i = 0; i < SPW_KEY_BYTES_MAX; i++) {
        key[i] ^= 0x80;
        spw_chunk_digest(1, 1, key, sizeof key, seen[count++]);
        key[i] ^= 0x80;
    }
    for (uint32_t space = 2; space < 66; space++)
        spw_chunk_digest(space, 1, key, 32, seen[count++]);
    for (uint32_t group = 2; group < 18; group++)
        spw_chunk_digest(1, group, key, 32, seen[count++]);
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t j = 0; j < i; j++)
            cr_assert(seen[i][0] != seen[j][0] && seen[i][1] != seen[j][1], "%u and %u", i, j);
}

Test(table, digest_doesn_t_depend_on_where_the_key_lies)
{
    uint8_t bytes[SPW_KEY_BYTES_MAX + 8];
    for (uint32_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)(i * 37);
    uint64_t first[2], second[2];
    spw_chunk_digest(5, 2, bytes + 1, 33, first);
    memmove(bytes, bytes + 1, 33);
    spw_chunk_digest(5, 2, bytes, 33, second);
    cr_assert_eq(first[0], second[0]);
    cr_assert_eq(first[1], second[1]);
}

/* ---- entries --------------------------------------------------------------------------------- */

Test(table, an_entry_comes_back_as_it_was_written)
{
    start(SLOTS);
    struct tiny_key key;
    struct spw_entry_copy entry;
    put(4, tiny_key(&key, 9, 77), SPW_READY, 1ull << 40, (1ull << 40) - 1);
    cr_assert_eq(spw_table_read(&table.view, 4, true, &entry), 0);
    cr_assert_eq(entry.version, 1ull << 40);
    cr_assert_eq(entry.fill, (1ull << 40) - 1);
    cr_assert(entry.digest[0] == key.key.digest[0] && entry.digest[1] == key.key.digest[1]);
    cr_assert(entry.state == SPW_READY && entry.group == 1 && entry.rank == 3 && entry.space == 9);
    cr_assert(entry.key_bytes == 32 && entry.chunk_bytes == 4096 && entry.place_bytes == 12345);
    cr_assert_eq(entry.slot, 4);
    cr_assert_eq(memcmp(entry.key, key.word, 32), 0);
    entry.state = SPW_RETIRED;
    spw_table_write(&table, 4, &entry, NULL);
    cr_assert_eq(spw_table_read(&table.view, 4, true, &entry), 0);
    cr_assert_eq(entry.state, SPW_RETIRED);
    uint64_t tag = 0;
    uint32_t state = 0;
    cr_assert_eq(spw_table_state(&table.view, 4, &state, &tag), 0);
    cr_assert(state == SPW_RETIRED && tag == key.key.digest[0]);
    cr_assert_eq(memcmp(entry.key, key.word, 32), 0, "a NULL key leaves the old one");
    stop();
}

/* CE-10: header says 100 slots. */
Test(table, a_slot_number_from_outside_is_checked)
{
    start(SLOTS);
    struct spw_entry_copy entry = {.slot = 55};
    cr_assert_eq(spw_table_read(&table.view, SLOTS, true, &entry), -EINVAL);
    cr_assert_eq(spw_table_read(&table.view, UINT32_MAX, true, &entry), -EINVAL);
    cr_assert_eq(entry.slot, 55, "untouched on failure");
    uint64_t tag = 55;
    uint32_t state = 55;
    cr_assert_eq(spw_table_state(&table.view, SLOTS, &state, &tag), -EINVAL);
    cr_assert(state == 55 && tag == 55);
    stop();
}

/* rings 6: a writer died inside a change. */
Test(table, a_reader_gives_up_on_an_odd_sequence)
{
    start(SLOTS);
    struct tiny_key key;
    struct spw_entry_copy entry;
    put(4, tiny_key(&key, 0, 1), SPW_READY, 8, 8);
    spw_store_relaxed(&table.entry[4].seq, spw_load_relaxed(&table.entry[4].seq) + 1);
    uint64_t tag;
    uint32_t state;
    cr_assert_eq(spw_table_read(&table.view, 4, false, &entry), -EAGAIN);
    cr_assert_eq(spw_table_state(&table.view, 4, &state, &tag), -EAGAIN);
    cr_assert_eq(spw_table_find(&table.view, &key.key, &entry), -EAGAIN);
    struct spw_entry_copy repaired = {.version = 9, .state = SPW_RETIRED};
    spw_table_write(&table, 4, &repaired, NULL);
    cr_assert_eq(spw_load_relaxed(&table.entry[4].seq) & 1, 0);
    cr_assert_eq(spw_table_read(&table.view, 4, false, &entry), 0);
    stop();
}

/* rings 26: bytes that no writer left. */
Test(table, an_entry_that_makes_no_sense_is_refused)
{
    start(SLOTS);
    struct spw_entry_copy entry;
    uint64_t tag;
    uint32_t state;
    static const uint64_t packed[] = {4, 0xff, SPW_READY, SPW_FILLING | 65 << 16,
                                      SPW_FREE | 255 << 16};
    for (uint32_t i = 0; i < sizeof packed / sizeof packed[0]; i++) {
        spw_store_relaxed(&table.entry[2].packed, packed[i]);
        cr_assert_eq(spw_table_read(&table.view, 2, true, &entry), -EBADMSG, "%u", i);
        cr_assert_eq(spw_table_state(&table.view, 2, &state, &tag), -EBADMSG, "%u", i);
    }
    stop();
}

/* ---- find ------------------------------------------------------------------------------------ */

Test(table, find_prefers_ready_then_the_last_retired)
{
    start(SLOTS);
    struct tiny_key key;
    struct spw_entry_copy entry;
    tiny_key(&key, 0, 5);
    cr_assert_eq(spw_table_find(&table.view, &key.key, &entry), -ENOENT);
    put(1, &key.key, SPW_RETIRED, 50, 0);
    cr_assert_eq(spw_table_find(&table.view, &key.key, &entry), -ENOENT, "never was READY");
    put(2, &key.key, SPW_RETIRED, 20, 19);
    put(3, &key.key, SPW_RETIRED, 30, 29);
    put(4, &key.key, SPW_RETIRED, 25, 24);
    put(5, &key.key, SPW_FILLING, 60, 0);
    cr_assert_eq(spw_table_find(&table.view, &key.key, &entry), 0);
    cr_assert(entry.slot == 3 && entry.fill == 29);
    put(6, &key.key, SPW_READY, 10, 10);
    cr_assert_eq(spw_table_find(&table.view, &key.key, &entry), 0);
    cr_assert(entry.slot == 6 && entry.state == SPW_READY);
    stop();
}

/* rings 16: versions are compared by signed difference. */
Test(table, the_last_retired_is_told_across_a_wrap)
{
    static const uint64_t at[] = {1ull << 32, 1ull << 63, 0};
    for (uint32_t i = 0; i < 3; i++) {
        start(SLOTS);
        struct tiny_key key;
        struct spw_entry_copy entry;
        tiny_key(&key, 0, 5);
        put(1, &key.key, SPW_RETIRED, at[i] + 3, at[i] + 2);
        put(2, &key.key, SPW_RETIRED, at[i] - 3, at[i] - 4);
        cr_assert_eq(spw_table_find(&table.view, &key.key, &entry), 0);
        cr_assert_eq(entry.slot, 1);
        stop();
    }
}

Test(table, a_digest_collision_costs_a_miss_and_never_another_chunk)
{
    start(SLOTS);
    struct tiny_key stored, asked;
    struct spw_entry_copy entry;
    put(1, tiny_key(&stored, 0, 5), SPW_READY, 8, 8);
    tiny_key(&asked, 0, 6);
    memcpy(asked.key.digest, stored.key.digest, sizeof asked.key.digest);
    cr_assert_eq(spw_table_find(&table.view, &asked.key, &entry), -ENOENT);
    struct spw_chunk_key other = stored.key;
    other.space = 1;
    cr_assert_eq(spw_table_find(&table.view, &other, &entry), -ENOENT);
    other = stored.key;
    other.group = 0;
    cr_assert_eq(spw_table_find(&table.view, &other, &entry), -ENOENT);
    other = stored.key;
    other.key_bytes = 31;
    cr_assert_eq(spw_table_find(&table.view, &other, &entry), -ENOENT);
    other.key_bytes = 65;
    cr_assert_eq(spw_table_find(&table.view, &other, &entry), -ENOENT);
    stop();
}

Test(table, a_ready_entry_is_found_though_another_of_its_key_is_torn)
{
    start(SLOTS);
    struct tiny_key key;
    struct spw_entry_copy entry;
    put(1, tiny_key(&key, 0, 5), SPW_RETIRED, 8, 7);
    put(2, &key.key, SPW_RETIRED, 9, 8);
    spw_store_relaxed(&table.entry[2].seq, spw_load_relaxed(&table.entry[2].seq) | 1);
    cr_assert_eq(spw_table_find(&table.view, &key.key, &entry), -EAGAIN, "the torn one may be it");
    put(3, &key.key, SPW_READY, 10, 10);
    cr_assert_eq(spw_table_find(&table.view, &key.key, &entry), 0);
    cr_assert_eq(entry.slot, 3);
    stop();
}

/* ---- index ----------------------------------------------------------------------------------- */

/* A key whose digest is made up: home bucket from the high bits, tag from the low ones. */
static void made_up(struct tiny_key *key, uint64_t n, uint64_t home)
{
    tiny_key(key, 0, n);
    key->key.digest[0] = home << 32 | n;
    key->key.digest[1] = n * 3;
}

static bool found(const struct tiny_key *key, uint32_t slot)
{
    struct spw_entry_copy entry;
    return spw_table_find(&table.view, &key->key, &entry) == 0 && entry.slot == slot;
}

static uint64_t cells_used(void)
{
    uint64_t used = 0;
    for (uint32_t b = 0; b < table.view.buckets; b++) {
        used += spw_load_relaxed(&table.index[b].passed);
        for (uint32_t c = 0; c < 7; c++)
            used += spw_load_relaxed(&table.index[b].cell[c]) != 0;
    }
    return used;
}

/* All keys share one home, the first time the last bucket, so that probes go round the end. */
Test(table, an_overfull_bucket_spills_and_nothing_is_lost_in_any_order_of_removal)
{
    static const uint64_t homes[] = {UINT32_MAX, 0, 1ull << 31};
    uint64_t seed = 3;
    for (uint32_t round = 0; round < 30; round++) {
        start(SLOTS);
        struct tiny_key keys[SLOTS];
        bool in[SLOTS];
        for (uint32_t i = 0; i < SLOTS; i++) {
            made_up(&keys[i], i + 1, homes[round % 3]);
            put(i, &keys[i].key, SPW_READY, i + 1, i + 1);
            in[i] = true;
        }
        for (uint32_t left = SLOTS; left > 0;) {
            uint32_t i = (uint32_t)(random_word(&seed) % SLOTS);
            left -= in[i];
            spw_table_index_drop(&table, keys[i].key.digest, i); /* again: changes nothing */
            in[i] = false;
            if (left % 9 == 0)
                for (uint32_t j = 0; j < SLOTS; j++)
                    cr_assert_eq(found(&keys[j], j), in[j], "round %u key %u", round, j);
        }
        cr_assert_eq(cells_used(), 0, "no cell and no passed count is left");
        stop();
    }
}

Test(table, churn_at_full_load_agrees_with_a_list)
{
    start(SLOTS);
    struct tiny_key keys[SLOTS];
    bool in[SLOTS] = {false};
    uint64_t seed = 11;
    for (uint32_t i = 0; i < 20000; i++) {
        uint32_t slot = (uint32_t)(random_word(&seed) % SLOTS);
        if (in[slot]) {
            spw_table_index_drop(&table, keys[slot].key.digest, slot);
            struct spw_entry_copy freed = {.state = SPW_FREE};
            spw_table_write(&table, slot, &freed, NULL);
        } else {
            made_up(&keys[slot], i + 1, random_word(&seed) % 4 << 30);
            put(slot, &keys[slot].key, SPW_READY, i + 1, i + 1);
        }
        in[slot] = !in[slot];
        if (i % 200 == 0)
            for (uint32_t j = 0; j < SLOTS; j++)
                cr_assert(!in[j] || found(&keys[j], j), "step %u slot %u", i, j);
    }
    stop();
}

Test(table, the_writer_finds_live_entries_by_key_and_by_tag)
{
    start(SLOTS);
    struct tiny_key key, other;
    put(1, tiny_key(&key, 0, 5), SPW_RETIRED, 8, 7);
    cr_assert_eq(spw_table_live(&table, &key.key), -ENOENT);
    cr_assert_eq(spw_table_by_tag(&table, key.key.digest[0], UINT32_MAX), -ENOENT);
    put(2, &key.key, SPW_FILLING, 9, 0);
    cr_assert_eq(spw_table_live(&table, &key.key), 2);
    cr_assert_eq(spw_table_by_tag(&table, key.key.digest[0], UINT32_MAX), 2);
    cr_assert_eq(spw_table_by_tag(&table, key.key.digest[0], 2), -ENOENT);
    tiny_key(&other, 1, 5);
    cr_assert_eq(spw_table_live(&table, &other.key), -ENOENT);
    spw_table_index_clear(&table);
    cr_assert_eq(spw_table_live(&table, &key.key), -ENOENT);
    stop();
}

/* rings 26: whatever lies there, a reader ends, and never leaves the table (ASan). */
Test(table, random_bytes_in_table_and_index_neither_crash_nor_trap_a_reader)
{
    uint64_t seed = 5;
    for (uint32_t round = 0; round < 60; round++) {
        start(round % 2 ? 1 : 9);
        struct tiny_key key;
        tiny_key(&key, 0, round);
        uint64_t *entry = (uint64_t *)table.entry, *cell = (uint64_t *)table.index;
        for (uint32_t i = 0; i < table.view.slots * sizeof *table.entry / 8; i++)
            entry[i] = random_word(&seed);
        for (uint32_t i = 0; i < table.view.buckets * sizeof *table.index / 8; i++)
            cell[i] = round % 3 ? key.key.digest[0] << 32 | (random_word(&seed) & 0xf)
                                : key.key.digest[0] << 32 | (uint32_t)random_word(&seed);
        for (uint32_t slot = 0; slot < table.view.slots; slot++) {
            struct spw_entry_copy copy;
            int rc = spw_table_read(&table.view, slot, true, &copy);
            cr_assert(rc == 0 || rc == -EAGAIN || rc == -EBADMSG);
        }
        struct spw_entry_copy copy;
        cr_assert(spw_table_find(&table.view, &key.key, &copy) < 0);
        (void)spw_table_live(&table, &key.key);
        (void)spw_table_by_tag(&table, key.key.digest[0], UINT32_MAX);
        stop();
    }
}

Test(table, buckets_keep_cells_at_most_half_full)
{
    static const uint32_t slots[] = {1, 2, 3, 7, 100, 1u << 20, UINT32_MAX / 2};
    for (uint32_t i = 0; i < sizeof slots / sizeof slots[0]; i++) {
        uint64_t cells = 7ull * spw_table_buckets(slots[i]);
        cr_assert(cells >= 2ull * slots[i] && cells < 2ull * slots[i] + 7, "%u", slots[i]);
    }
}
