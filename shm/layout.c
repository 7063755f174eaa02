/* Sizes and places of all shared objects, from one geometry. Pure. */
#include "shm/layout.h"

#include <inttypes.h>
#include <string.h>

#define COUNT_MAX      (1u << 30) /* keeps every product of two sizes below 2^62 */
#define LANE_SLOTS_MAX (1u << 20)

enum field_rule { ANY, POWER_OF_TWO, MULTIPLE_OF_LINE };

/* What each field may be; relations between fields come after. */
struct field {
    const char *name;
    size_t offset;
    uint32_t least;
    uint32_t most;
    enum field_rule rule;
};

#define FIELD(name, least, most, rule)                                                             \
    {                                                                                              \
#name, offsetof(struct spw_geometry, name), least, most, rule                              \
    }

static const struct field fields[] = {
    FIELD(workers, 1, SPW_WORKERS_MAX, ANY),
    FIELD(clients, 1, SPW_CLIENTS_MAX, ANY),
    FIELD(capacity_chunks, 1, COUNT_MAX - 1, ANY),
    FIELD(slots, 2, COUNT_MAX, ANY),
    FIELD(slot_bytes, 64, UINT32_MAX, MULTIPLE_OF_LINE),
    FIELD(update_records, 2, COUNT_MAX, POWER_OF_TWO),
    FIELD(gate_records, 1, COUNT_MAX / 2, POWER_OF_TWO),
    FIELD(command_slots, 2, LANE_SLOTS_MAX, POWER_OF_TWO),
    FIELD(completion_slots, 2, LANE_SLOTS_MAX, POWER_OF_TWO),
    FIELD(index_buckets, 1, COUNT_MAX, ANY),
    FIELD(kv_blocks, 0, COUNT_MAX, ANY),
    FIELD(kv_block_bytes, 0, UINT32_MAX, MULTIPLE_OF_LINE),
    FIELD(cold_chunks, 0, SPW_COLD_CHUNKS_MAX, ANY),
    FIELD(cell_shift, 0, SPW_CELL_SHIFT_MAX, ANY),
};

static int check_field(const struct field *field, uint32_t value, struct spw_error *err)
{
    if (value < field->least || value > field->most)
        return spw_fail(err, -EBADMSG, "geometry: %s is %" PRIu32 ", not %" PRIu32 "..%" PRIu32,
                        field->name, value, field->least, field->most);
    if (field->rule == POWER_OF_TWO && (value & (value - 1)))
        return spw_fail(err, -EBADMSG, "geometry: %s is %" PRIu32 ", no power of two", field->name,
                        value);
    if (field->rule == MULTIPLE_OF_LINE && value % SPW_LINE_BYTES)
        return spw_fail(err, -EBADMSG, "geometry: %s is %" PRIu32 ", no multiple of %u",
                        field->name, value, SPW_LINE_BYTES);
    return 0;
}

int spw_geometry_check(const struct spw_geometry *geometry, struct spw_error *err)
{
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        uint32_t value;
        memcpy(&value, (const char *)geometry + fields[i].offset, sizeof value);
        int rc = check_field(&fields[i], value, err);
        if (rc)
            return rc;
    }
    uint32_t cells = 1u << geometry->cell_shift;
    if (geometry->slots % cells != 0 || geometry->slots / cells <= geometry->capacity_chunks)
        return spw_fail(err, -EBADMSG,
                        "geometry: slots is %" PRIu32 ", no multiple of %" PRIu32
                        " above capacity_chunks, %" PRIu32 " times that",
                        geometry->slots, cells, geometry->capacity_chunks);
    if (geometry->gate_records >= geometry->update_records)
        return spw_fail(err, -EBADMSG,
                        "geometry: gate_records is %" PRIu32 ", not below update_records, %" PRIu32,
                        geometry->gate_records, geometry->update_records);
    if (geometry->kv_blocks && !geometry->kv_block_bytes)
        return spw_fail(err, -EBADMSG, "geometry: kv_block_bytes is 0 with %" PRIu32 " kv_blocks",
                        geometry->kv_blocks);
    for (size_t i = 0; i < sizeof geometry->reserved; i++) {
        if (geometry->reserved[i])
            return spw_fail(err, -EBADMSG, "geometry: reserved byte %zu is not 0", i);
    }
    return 0;
}

/* Place @bytes at the next line boundary and move the end past them. */
static uint64_t place(uint64_t *end, uint64_t bytes)
{
    uint64_t at = spw_align_up(*end, SPW_LINE_BYTES);
    *end = at + bytes;
    return at;
}

static uint64_t claim_bytes(const struct spw_geometry *geometry)
{
    return geometry->workers * spw_claim_words(geometry) * 8;
}

void spw_feed_map_init(const struct spw_geometry *geometry, struct spw_feed_map *out_map)
{
    uint64_t end = sizeof(struct spw_feed_head);
    struct spw_feed_map map;
    map.ring_off = place(&end, geometry->update_records * sizeof(struct spw_ring_slot));
    map.entry_off = place(&end, spw_geometry_entries(geometry) * (uint64_t)SPW_LINE_BYTES);
    map.key_off = place(&end, spw_geometry_entries(geometry) * (uint64_t)SPW_LINE_BYTES);
    map.index_off = place(&end, geometry->index_buckets * (uint64_t)SPW_LINE_BYTES);
    map.copying_off = place(&end, claim_bytes(geometry));
    map.size_bytes = spw_align_up(end, SPW_LINE_BYTES);
    *out_map = map;
}

void spw_client_map_init(const struct spw_geometry *geometry, struct spw_client_map *out_map)
{
    uint64_t end = sizeof(struct spw_client_head);
    uint64_t lane_bytes = geometry->workers * sizeof(struct spw_lane_slot);
    struct spw_client_map map;
    map.pin_off = place(&end, claim_bytes(geometry));
    map.awaited_off = place(&end, claim_bytes(geometry));
    map.command_off = place(&end, geometry->command_slots * lane_bytes);
    map.completion_off = place(&end, geometry->completion_slots * lane_bytes);
    map.size_bytes = spw_align_up(end, SPW_LINE_BYTES);
    *out_map = map;
}

uint64_t spw_kv_size_bytes(const struct spw_geometry *geometry)
{
    if (!geometry->kv_blocks)
        return 0;
    return SPW_PAYLOAD_OFF + (uint64_t)geometry->kv_blocks * geometry->kv_block_bytes;
}

uint64_t spw_data_size_bytes(const struct spw_geometry *geometry)
{
    return SPW_PAYLOAD_OFF +
           (uint64_t)(geometry->slots >> geometry->cell_shift) * geometry->slot_bytes;
}

#define SIZE(type)      sizeof(struct type)
#define AT(type, field) offsetof(struct type, field), sizeof(((struct type *)0)->field)

/* Every size and offset that both sides of a mapping must agree on. */
static const uint64_t layout_numbers[] = {
    SPW_LAYOUT_VERSION,
    SPW_PAYLOAD_OFF,
    SPW_WORKERS_MAX,
    SPW_CLIENTS_MAX,
    SPW_LOCK_DAEMON,
    SPW_LOCK_WORKER(0),
    SPW_LOCK_PINNING,
    SPW_LOCK_CLIENT(0),
    SIZE(spw_region_header),
    AT(spw_region_header, version),
    AT(spw_region_header, magic),
    AT(spw_region_header, layout_hash),
    AT(spw_region_header, size_bytes),
    AT(spw_region_header, pool_id),
    AT(spw_region_header, kind),
    AT(spw_region_header, index),
    AT(spw_region_header, page_bytes),
    AT(spw_region_header, endian),
    SIZE(spw_geometry),
    AT(spw_geometry, workers),
    AT(spw_geometry, clients),
    AT(spw_geometry, capacity_chunks),
    AT(spw_geometry, slots),
    AT(spw_geometry, slot_bytes),
    AT(spw_geometry, update_records),
    AT(spw_geometry, gate_records),
    AT(spw_geometry, command_slots),
    AT(spw_geometry, completion_slots),
    AT(spw_geometry, index_buckets),
    AT(spw_geometry, kv_blocks),
    AT(spw_geometry, kv_block_bytes),
    AT(spw_geometry, cold_chunks),
    AT(spw_geometry, cell_shift),
    SIZE(spw_worker_state),
    AT(spw_worker_state, phase),
    AT(spw_worker_state, incarnation),
    AT(spw_worker_state, pid),
    AT(spw_worker_state, start_ticks),
    AT(spw_worker_state, restarts),
    AT(spw_worker_state, out_of_service),
    SIZE(spw_reply),
    AT(spw_reply, seq),
    AT(spw_reply, value),
    AT(spw_reply, status),
    AT(spw_reply, generation),
    AT(spw_reply, text),
    SIZE(spw_group_record),
    AT(spw_group_record, kind),
    AT(spw_group_record, block_tokens),
    AT(spw_group_record, window_tokens),
    AT(spw_group_record, chunk_bytes),
    AT(spw_group_record, nominal_bytes),
    SIZE(spw_space_record),
    AT(spw_space_record, fingerprint),
    AT(spw_space_record, blocks_per_chunk),
    AT(spw_space_record, hash_unit_tokens),
    AT(spw_space_record, groups),
    AT(spw_space_record, ranks),
    AT(spw_space_record, group),
    SIZE(spw_space_slot),
    AT(spw_space_slot, ready),
    AT(spw_space_slot, shares),
    AT(spw_space_slot, rank_workers),
    AT(spw_space_slot, record),
    SIZE(spw_ctl),
    AT(spw_ctl, geometry),
    AT(spw_ctl, phase),
    AT(spw_ctl, bell),
    AT(spw_ctl, daemon_pid),
    AT(spw_ctl, started_ns),
    AT(spw_ctl, updated_ns),
    AT(spw_ctl, rounds),
    AT(spw_ctl, pid_namespace),
    AT(spw_ctl, pinning),
    AT(spw_ctl, worker),
    AT(spw_ctl, reply),
    AT(spw_ctl, space),
    AT(spw_ctl, client_object),
    AT(spw_ctl, values),
    SIZE(spw_feed_head),
    AT(spw_feed_head, incarnation),
    AT(spw_feed_head, gate),
    AT(spw_feed_head, tail),
    AT(spw_feed_head, asleep),
    SIZE(spw_stream),
    AT(spw_stream, bytes_done),
    AT(spw_stream, bytes_queued),
    AT(spw_stream, bytes_awaited),
    AT(spw_stream, rate_bytes_per_s),
    AT(spw_stream, progress_ns),
    AT(spw_feed_head, stream),
    AT(spw_feed_head, passes),
    AT(spw_feed_head, lingering),
    AT(spw_feed_head, inside_pid),
    AT(spw_feed_head, inside_ticks),
    AT(spw_feed_head, inside_image),
    AT(spw_feed_head, inside_left),
    AT(spw_feed_head, counter),
    AT(spw_feed_head, acked),
    AT(spw_feed_head, fenced),
    AT(spw_feed_head, space_generation),
    AT(spw_feed_head, space_bytes),
    AT(spw_feed_head, promotions),
    AT(spw_feed_head, tier),
    AT(spw_feed_head, tier_text),
    AT(spw_feed_head, gpu),
    AT(spw_feed_head, gpu_text),
    SIZE(spw_gpu_record),
    AT(spw_gpu_record, kind),
    AT(spw_gpu_record, uuid),
    AT(spw_gpu_record, bus),
    AT(spw_gpu_record, pin_state),
    AT(spw_gpu_record, pinned_bytes),
    AT(spw_gpu_record, pin_total_bytes),
    AT(spw_gpu_record, handles_open),
    AT(spw_gpu_record, node),
    AT(spw_gpu_record, memory_node),
    AT(spw_gpu_record, near_permille),
    AT(spw_gpu_record, cpus),
    AT(spw_gpu_record, cpu_bind),
    AT(spw_gpu_record, memory_bind),
    AT(spw_gpu_record, kernel_below_bytes),
    AT(spw_gpu_record, flags),
    SIZE(spw_kv_memory_record),
    AT(spw_kv_memory_record, handle),
    AT(spw_kv_memory_record, bytes),
    AT(spw_kv_memory_record, kind),
    SIZE(spw_kv_tensor_record),
    AT(spw_kv_tensor_record, offset),
    AT(spw_kv_tensor_record, block_stride),
    AT(spw_kv_tensor_record, part_stride),
    AT(spw_kv_tensor_record, part_bytes),
    AT(spw_kv_tensor_record, parts),
    AT(spw_kv_tensor_record, blocks),
    AT(spw_kv_tensor_record, group),
    AT(spw_kv_tensor_record, memory),
    SIZE(spw_kv_record),
    AT(spw_kv_record, gpu),
    AT(spw_kv_record, memories),
    AT(spw_kv_record, tensors),
    AT(spw_kv_record, fences),
    AT(spw_kv_record, pid),
    AT(spw_kv_record, start_ticks),
    SIZE(spw_kv_words),
    AT(spw_kv_words, answered),
    AT(spw_kv_words, status),
    AT(spw_kv_words, text),
    SIZE(spw_tier_record),
    AT(spw_tier_record, capacity_bytes),
    AT(spw_tier_record, used_bytes),
    AT(spw_tier_record, entries),
    AT(spw_tier_record, leased),
    AT(spw_tier_record, evictable),
    AT(spw_tier_record, state),
    AT(spw_tier_record, mode),
    SIZE(spw_mailbox),
    AT(spw_mailbox, bell),
    AT(spw_mailbox, kind),
    AT(spw_mailbox, seq),
    AT(spw_mailbox, length_bytes),
    AT(spw_mailbox, bytes),
    SIZE(spw_lane_client),
    AT(spw_lane_client, command_tail),
    AT(spw_lane_client, command_base),
    AT(spw_lane_client, completion_head),
    SIZE(spw_lane_worker),
    AT(spw_lane_worker, command_head),
    AT(spw_lane_worker, completion_tail),
    SIZE(spw_wait_record),
    AT(spw_wait_record, sum_ns),
    AT(spw_wait_record, bucket),
    SIZE(spw_decision_record),
    AT(spw_decision_record, seq),
    AT(spw_decision_record, word),
    SIZE(spw_client_head),
    AT(spw_client_head, generation),
    AT(spw_client_head, pid),
    AT(spw_client_head, label),
    AT(spw_client_head, step),
    AT(spw_client_head, applied),
    AT(spw_client_head, awaited_changes),
    AT(spw_client_head, counter),
    AT(spw_client_head, lane),
    AT(spw_client_head, wait),
    AT(spw_client_head, decisions),
    AT(spw_client_head, decision_base),
    AT(spw_client_head, wait_limit_ns),
    AT(spw_client_head, retry_limit_ns),
    AT(spw_client_head, budget_tokens),
    AT(spw_client_head, decision),
    AT(spw_client_head, mailbox),
    AT(spw_client_head, worker_lane),
    AT(spw_client_head, kv_words),
    AT(spw_client_head, counter_base),
    SIZE(spw_lane_slot),
    AT(spw_lane_slot, seq),
    AT(spw_lane_slot, word),
    SIZE(spw_ring_slot),
    AT(spw_ring_slot, seq),
    AT(spw_ring_slot, word),
};

/* FNV-1a over the numbers' bytes, least significant first. */
uint64_t spw_layout_hash(void)
{
    uint64_t hash = 0xcbf29ce484222325ull;
    for (size_t i = 0; i < sizeof layout_numbers / sizeof layout_numbers[0]; i++) {
        for (unsigned shift = 0; shift < 64; shift += 8) {
            hash ^= layout_numbers[i] >> shift & 0xff;
            hash *= 0x100000001b3ull;
        }
    }
    return hash;
}
