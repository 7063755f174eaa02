/*
 * tier/layout.h is not in the hash that attachers compare (shm knows no chunk): its layout goes with
 * SPW_LAYOUT_VERSION alone. So both are recorded here, side by side.
 */
#include <criterion/criterion.h>
#include <stddef.h>

#include "tier/layout.h"

/* The last layout of chunks, and the version that it first had. */
#define RECORDED_VERSION 3u
#define RECORDED_HASH    0x18b826b633b08834ull

#define SIZE(type)      sizeof(struct type)
#define AT(type, field) offsetof(struct type, field), sizeof(((struct type *)0)->field)

static const uint64_t numbers[] = {
    SPW_FREE,
    SPW_FILLING,
    SPW_READY,
    SPW_RETIRED,
    SIZE(spw_entry),
    AT(spw_entry, seq),
    AT(spw_entry, version),
    AT(spw_entry, fill),
    AT(spw_entry, digest),
    AT(spw_entry, packed),
    AT(spw_entry, place_bytes),
    AT(spw_entry, chunk_bytes),
    SIZE(spw_entry_key),
    AT(spw_entry_key, word),
    SIZE(spw_index_bucket),
    AT(spw_index_bucket, passed),
    AT(spw_index_bucket, cell),
    SIZE(spw_update),
    AT(spw_update, digest),
    AT(spw_update, packed),
    SPW_CMD_RESERVE,
    SPW_CMD_STORE,
    SPW_CMD_BEGIN,
    SPW_CMD_LOAD,
    SPW_CMD_CANCEL,
    SPW_CMD_TOUCH,
    SPW_CMD_RESET,
    SIZE(spw_command),
    AT(spw_command, op),
    AT(spw_command, body_slots),
    AT(spw_command, count),
    AT(spw_command, generation),
    AT(spw_command, incarnation),
    AT(spw_command, space),
    AT(spw_command, step),
    AT(spw_command, ticket),
    AT(spw_command, cookie),
    AT(spw_command, arg),
    SIZE(spw_reserve_key),
    AT(spw_reserve_key, digest),
    AT(spw_reserve_key, group),
    AT(spw_reserve_key, key_bytes),
    AT(spw_reserve_key, key),
    SIZE(spw_load_source),
    AT(spw_load_source, fill),
    AT(spw_load_source, slot),
    AT(spw_load_source, shard),
    SPW_SOURCES_PER_SLOT,
    SPW_BLOCKS_PER_SLOT,
    SPW_TOUCHES_PER_SLOT,
    SPW_DONE_RESERVE,
    SPW_DONE_STORE,
    SPW_DONE_BEGIN,
    SPW_DONE_LOAD,
    SPW_DONE_RESET,
    SIZE(spw_done),
    AT(spw_done, kind),
    AT(spw_done, count),
    AT(spw_done, generation),
    AT(spw_done, incarnation),
    AT(spw_done, status),
    AT(spw_done, cookie),
    AT(spw_done, ticket),
    AT(spw_done, mask),
};

static void mix(uint64_t *hash, uint64_t number)
{
    for (uint32_t shift = 0; shift < 64; shift += 8)
        *hash = (*hash ^ (number >> shift & 0xff)) * 0x100000001b3ull; /* FNV-1a */
}

static uint64_t layout_hash(void)
{
    uint64_t hash = 0xcbf29ce484222325ull;
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        mix(&hash, numbers[i]);
    mix(&hash, spw_entry_pack(0x81, 0x82, 0x83, 0x84, 0x85868788));
    mix(&hash, spw_update_pack(0x91929394, 0x95, 0x96, 0x9798));
    return hash;
}

Test(layout_record, a_changed_layout_of_chunks_is_a_changed_version)
{
    uint64_t hash = layout_hash();
    cr_assert(hash == RECORDED_HASH || SPW_LAYOUT_VERSION > RECORDED_VERSION,
              "tier/layout.h differs from what version %u had, so processes of two builds would "
              "misread each other: raise SPW_LAYOUT_VERSION in shm/layout.h",
              RECORDED_VERSION);
    cr_assert(hash == RECORDED_HASH && SPW_LAYOUT_VERSION >= RECORDED_VERSION,
              "record here RECORDED_VERSION %u and RECORDED_HASH 0x%llxull", SPW_LAYOUT_VERSION,
              (unsigned long long)hash);
}
