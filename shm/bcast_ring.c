/* Update ring. Shared: slots, gate and tail, all written by the owning worker alone.
 *
 *   step of publish       if the writer dies after it
 *   gate                  nothing new is seen; readers a lap behind are told so early
 *   release fence         same
 *   a payload word        the slot's old record is spoilt, and the gate says so
 *   seq                   the record is published: readers poll the slots, not the tail
 *   tail                  the batch is published
 *
 *   step of afresh        if the writer dies after it
 *   gate                  readers are lapped; the next one finds the ring as wrong, begins beyond it
 *   a sequence            same
 *   tail                  the ring is in order
 */
#include "shm/bcast_ring.h"

#include "shm/crash_point.h"

#define RECORD_WORDS 3
#define AFRESH_STEP  (1ull << 40) /* further than what was published and can't be found any more */
#define DAMAGE_FROM  (1ull << 56) /* no ring that starts at 1 lives so long */

static bool is_power_of_two(uint32_t value)
{
    return value && !(value & (value - 1));
}

/* Slot i holds positions congruent to i + 1; 0 in another slot than the last means never used. */
static bool seq_fits(uint64_t seq, uint32_t i, uint32_t mask)
{
    return ((seq - 1) & mask) == i;
}

/* Is every position that is there one of the last lap before @highest? A slot never used counts as
 * position 0. */
static bool one_lap(const struct spw_ring_slot *slot, uint32_t records, uint64_t tail,
                    uint64_t highest)
{
    for (uint32_t i = 0; i < records; i++)
        if (highest - spw_load_relaxed(&slot[i].seq) >= records)
            return false;
    return highest - tail < records;
}

int spw_bcast_writer_init(struct spw_bcast_writer *writer, struct spw_feed_head *head,
                          struct spw_ring_slot *slot, uint32_t records, uint32_t gate_records)
{
    if (!is_power_of_two(records) || !is_power_of_two(gate_records) || gate_records >= records)
        return -EINVAL;
    /* relaxed: whoever wrote them is dead and gone, or is this process */
    uint64_t tail = spw_load_relaxed(&head->tail);
    uint64_t gate = spw_load_relaxed(&head->gate);
    uint64_t highest = tail;
    for (uint32_t i = 0; i < records; i++) {
        uint64_t seq = spw_load_relaxed(&slot[i].seq);
        if (seq && !seq_fits(seq, i, records - 1))
            return -EBADMSG;
        if (seq_fits(seq, i, records - 1) && spw_pos_before(highest, seq))
            highest = seq;
    }
    /* a batch has at most gate_records, and its gate is rounded up to a multiple of them */
    if (!one_lap(slot, records, tail, highest) || spw_pos_before(gate, highest) ||
        gate - highest >= 2 * (uint64_t)gate_records)
        return -EBADMSG;
    *writer = (struct spw_bcast_writer){.slot = slot,
                                        .gate_at = &head->gate,
                                        .tail_at = &head->tail,
                                        .tail = highest,
                                        .gate = gate,
                                        .mask = records - 1,
                                        .gate_records = gate_records};
    if (highest != tail) {
        /* [UR-3] release: a dead writer's last records before the tail */
        spw_store_release(&head->tail, highest);
        SPW_CRASH_POINT("bcast.tail_repaired");
    }
    return 0;
}

uint64_t spw_bcast_later(uint64_t found, uint64_t position)
{
    return position < DAMAGE_FROM && spw_pos_before(found, position) ? position : found;
}

uint64_t spw_bcast_afresh_begin(struct spw_feed_head *head, const struct spw_ring_slot *slot,
                                uint32_t records, uint64_t found)
{
    /* relaxed: whoever wrote them is dead and gone */
    found = spw_bcast_later(found, spw_load_relaxed(&head->tail));
    found = spw_bcast_later(found, spw_load_relaxed(&head->gate));
    for (uint32_t i = 0; i < records; i++)
        found = spw_bcast_later(found, spw_load_relaxed(&slot[i].seq));
    uint64_t tail = spw_align_up(found + 1, AFRESH_STEP);
    spw_store_relaxed(&head->gate, tail);
    SPW_CRASH_POINT("bcast.afresh_gate_stored");
    /* [UR-2] release fence: gate before the cells that it speaks of are written */
    spw_fence_release();
    return tail;
}

void spw_bcast_afresh_end(struct spw_feed_head *head, struct spw_ring_slot *slot, uint32_t records,
                          uint64_t tail)
{
    for (uint64_t back = 0; back < records; back++) {
        uint64_t pos = tail - back;
        /* relaxed: the gate covers it, nobody takes its record */
        spw_store_relaxed(&slot[(pos - 1) & (records - 1)].seq, pos);
        SPW_CRASH_POINT("bcast.afresh_seq_stored");
    }
    /* [UR-3] release: sequences before the tail */
    spw_store_release(&head->tail, tail);
}

void spw_bcast_start_at(struct spw_feed_head *head, struct spw_ring_slot *slot, uint32_t records,
                        uint64_t tail)
{
    spw_store_relaxed(&head->gate, tail);
    spw_bcast_afresh_end(head, slot, records, tail);
}

static void store_record(struct spw_ring_slot *slot, const struct spw_record *record, uint64_t pos)
{
    /* relaxed words: a reader that is lapped may read them at any time, and drops them then */
    for (unsigned w = 0; w < RECORD_WORDS; w++) {
        spw_store_relaxed(&slot->word[w], record->word[w]);
        SPW_CRASH_POINT("bcast.word_stored");
    }
    /* [UR-1] release: record before its seq */
    spw_store_release(&slot->seq, pos);
    SPW_CRASH_POINT("bcast.seq_stored");
}

/* Move the gate to cover positions up to @last; it is a multiple of gate_records afterwards. */
static void reserve(struct spw_bcast_writer *writer, uint64_t last)
{
    if (!spw_pos_before(writer->gate, last))
        return;
    writer->gate = spw_align_up(last, writer->gate_records);
    spw_store_relaxed(writer->gate_at, writer->gate);
    SPW_CRASH_POINT("bcast.gate_stored");
    /* [UR-2] release fence: gate before the payload it announces */
    spw_fence_release();
    SPW_CRASH_POINT("bcast.gate_fenced");
}

/* At most gate_records, so that the gate never runs ahead by a whole lap. */
static void publish_batch(struct spw_bcast_writer *writer, const struct spw_record *records,
                          uint32_t count)
{
    uint64_t tail = writer->tail;
    reserve(writer, tail + count);
    for (uint32_t i = 0; i < count; i++)
        store_record(&writer->slot[(tail + i) & writer->mask], &records[i], tail + i + 1);
    writer->tail = tail + count;
    /* [UR-3] release: records before the tail */
    spw_store_release(writer->tail_at, writer->tail);
    SPW_CRASH_POINT("bcast.tail_stored");
}

uint64_t spw_bcast_publish(struct spw_bcast_writer *writer, const struct spw_record *records,
                           uint32_t count)
{
    uint64_t first = writer->tail + 1;
    while (count) {
        uint32_t batch = count < writer->gate_records ? count : writer->gate_records;
        publish_batch(writer, records, batch);
        records += batch;
        count -= batch;
    }
    return first;
}

int spw_bcast_reader_init(struct spw_bcast_reader *reader, const struct spw_feed_head *head,
                          const struct spw_ring_slot *slot, uint32_t records)
{
    if (!is_power_of_two(records) || records < 2)
        return -EINVAL;
    *reader = (struct spw_bcast_reader){
        .slot = slot, .gate_at = &head->gate, .tail_at = &head->tail, .mask = records - 1};
    return 0;
}

uint64_t spw_bcast_tail(const struct spw_bcast_reader *reader)
{
    /* [UR-3] acquire: tail before the table and the records it covers */
    return spw_load_acquire(reader->tail_at);
}

int spw_bcast_drain(struct spw_bcast_reader *reader, struct spw_record *out_records, uint32_t max)
{
    const uint64_t first = reader->cursor + 1;
    const uint32_t mask = reader->mask;
    uint32_t count = 0;
    int64_t ahead = 0;
    for (; count < max; count++) {
        const struct spw_ring_slot *slot = &reader->slot[(first - 1 + count) & mask];
        /* [UR-1] acquire: seq before the record */
        ahead = (int64_t)(spw_load_acquire(&slot->seq) - (first + count));
        if (ahead)
            break;
        for (unsigned w = 0; w < RECORD_WORDS; w++)
            out_records[count].word[w] = spw_load_relaxed(&slot->word[w]);
    }
    if (count == 0)
        return ahead > 0 ? -EOVERFLOW : 0;
    /* [UR-2] acquire fence: the copies before the gate that judges them */
    spw_fence_acquire();
    uint64_t gate = spw_load_relaxed(reader->gate_at);
    if (!spw_pos_before(gate, first + mask + 1))
        return -EOVERFLOW;
    reader->cursor += count;
    return (int)count;
}
