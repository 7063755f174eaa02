/* Lanes: the producer writes slots and its tail, the consumer its head; each reads the other's.
 * A producer dead in a message leaves nothing that is seen; see shm/lane.h. */
#include "shm/lane.h"

#include "shm/crash_point.h"

#include <string.h>

#define PAYLOAD_WORDS (SPW_LANE_PAYLOAD_BYTES / 8)

void spw_lane_producer_init(struct spw_lane_producer *lane, struct spw_lane_slot *slot,
                            uint32_t slots, spw_atomic64 *tail_at, const spw_atomic64 *head_at)
{
    *lane = (struct spw_lane_producer){
        .slot = slot, .tail_at = tail_at, .head_at = head_at, .mask = slots - 1};
    lane->tail = spw_load_relaxed(tail_at); /* only this side writes it */
    lane->head_cached = lane->tail - slots; /* "full": the first send looks */
}

void spw_lane_consumer_init(struct spw_lane_consumer *lane, const struct spw_lane_slot *slot,
                            uint32_t slots, spw_atomic64 *head_at)
{
    *lane = (struct spw_lane_consumer){.slot = slot, .head_at = head_at, .mask = slots - 1};
    lane->head = spw_load_relaxed(head_at); /* only this side writes it */
}

uint32_t spw_lane_room(struct spw_lane_producer *lane, uint32_t want)
{
    uint64_t slots = (uint64_t)lane->mask + 1;
    uint64_t room = slots - (lane->tail - lane->head_cached);
    if (room < want) {
        /* [LN-2] acquire: what the consumer read, before it is overwritten */
        uint64_t head = spw_load_acquire(lane->head_at);
        if (lane->tail - head > slots)
            return 0;
        lane->head_cached = head;
        room = slots - (lane->tail - head);
    }
    return (uint32_t)room;
}

void spw_lane_write(struct spw_lane_producer *lane, uint32_t index, const void *payload,
                    uint32_t bytes)
{
    struct spw_lane_slot *slot = &lane->slot[(lane->tail + index) & lane->mask];
    uint64_t word[PAYLOAD_WORDS] = {0};
    memcpy(word, payload, bytes);
    /* relaxed: seq follows with release */
    for (unsigned i = 0; i < PAYLOAD_WORDS; i++)
        spw_store_relaxed(&slot->word[i], word[i]);
    SPW_CRASH_POINT("lane.payload_stored");
}

void spw_lane_send(struct spw_lane_producer *lane, uint32_t count)
{
    uint64_t tail = lane->tail;
    /* relaxed: a slot behind the first is looked at only after the first one's seq */
    for (uint32_t i = 1; i < count; i++) {
        spw_store_relaxed(&lane->slot[(tail + i) & lane->mask].seq, tail + i + 1);
        SPW_CRASH_POINT("lane.body_seq_stored");
    }
    /* [LN-1] release: the whole message before its first slot's seq */
    spw_store_release(&lane->slot[tail & lane->mask].seq, tail + 1);
    SPW_CRASH_POINT("lane.seq_stored");
    lane->tail = tail + count;
    /* [LN-3] release: the message before the tail that announces it */
    spw_store_release(lane->tail_at, lane->tail);
    SPW_CRASH_POINT("lane.tail_stored");
}

static void copy_payload(const struct spw_lane_slot *slot, void *out, uint32_t bytes)
{
    uint64_t word[PAYLOAD_WORDS];
    for (unsigned i = 0; i < PAYLOAD_WORDS; i++)
        word[i] = spw_load_relaxed(&slot->word[i]);
    memcpy(out, word, bytes);
}

int spw_lane_peek(const struct spw_lane_consumer *lane, void *out_payload)
{
    const struct spw_lane_slot *slot = &lane->slot[lane->head & lane->mask];
    /* [LN-1] acquire: seq before the message */
    if (spw_load_acquire(&slot->seq) != lane->head + 1)
        return 0;
    copy_payload(slot, out_payload, SPW_LANE_PAYLOAD_BYTES);
    return 1;
}

int spw_lane_read(const struct spw_lane_consumer *lane, uint32_t index, void *out_payload,
                  uint32_t bytes)
{
    const struct spw_lane_slot *slot = &lane->slot[(lane->head + index) & lane->mask];
    /* relaxed: the first slot's seq was seen by spw_lane_peek() */
    if (index > lane->mask || bytes > SPW_LANE_PAYLOAD_BYTES ||
        spw_load_relaxed(&slot->seq) != lane->head + index + 1)
        return -EBADMSG;
    copy_payload(slot, out_payload, bytes);
    return 0;
}

void spw_lane_release(struct spw_lane_consumer *lane, uint32_t count)
{
    lane->head += count;
    /* [LN-2] release: the reading, and a load's claim, before the slots are given back */
    spw_store_release(lane->head_at, lane->head);
    SPW_CRASH_POINT("lane.head_stored");
}

uint64_t spw_lane_highest(const struct spw_lane_slot *slot, uint32_t slots, uint64_t tail)
{
    uint64_t highest = tail;
    for (uint32_t i = 0; i < slots; i++) {
        uint64_t seq = spw_load_relaxed(&slot[i].seq);
        if (seq - tail <= slots && spw_pos_before(highest, seq)) /* else it is old, or nonsense */
            highest = seq;
    }
    return highest;
}

uint64_t spw_lane_sent(const struct spw_lane_slot *slot, uint32_t slots, uint64_t from)
{
    uint64_t at = from;
    /* relaxed: nothing else of them is read here */
    while (at - from < slots && spw_load_relaxed(&slot[at & (slots - 1)].seq) == at + 1)
        at++;
    return at;
}
