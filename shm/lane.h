#ifndef SPW_SHM_LANE_H
#define SPW_SHM_LANE_H
/*
 * Lanes: single-producer, single-consumer rings of 64-byte slots; commands one way, completions
 * the other. Slot-polled: the consumer looks at the next slot's sequence, one line moves a record.
 *
 *   roles     commands: client c produces, worker k consumes; completions: the other way round
 *   position  p = slots produced before it; it lies in slot p mod N and has seq p + 1
 *   order     payload, then the slot's seq (release), then the tail (release). A message of
 *             several slots stores its first slot's seq last, so it is seen whole or not at all
 *   room      the producer looks at the consumer's head only when its cached copy says full
 *   crash     producer dead in a message: nothing is seen (or a whole message beyond the tail,
 *             which is as good as sent). Consumer dead: its head says what it has taken
 *   pairs     [LN-1] payload before seq -> peek     [LN-2] head after the reading -> room
 *             [LN-3] tail -> doorbell, reclaim
 * The other side's numbers are input: a head or tail that makes no sense reads as "full"/-EBADMSG.
 */
#include "shm/layout.h"

#define SPW_LANE_PAYLOAD_BYTES 56u

struct spw_lane_producer {
    struct spw_lane_slot *slot;
    spw_atomic64 *tail_at;       /* ours   */
    const spw_atomic64 *head_at; /* theirs */
    uint64_t tail;
    uint64_t head_cached;
    uint32_t mask;
};

struct spw_lane_consumer {
    const struct spw_lane_slot *slot;
    spw_atomic64 *head_at; /* ours */
    uint64_t head;         /* next position to look at; head_at lags until spw_lane_release() */
    uint32_t mask;
};

/** @slots a power of two >= 2. The producer goes on at @tail (what *tail_at holds). */
void spw_lane_producer_init(struct spw_lane_producer *lane, struct spw_lane_slot *slot,
                            uint32_t slots, spw_atomic64 *tail_at, const spw_atomic64 *head_at);
void spw_lane_consumer_init(struct spw_lane_consumer *lane, const struct spw_lane_slot *slot,
                            uint32_t slots, spw_atomic64 *head_at);

/** Slots that can be produced now; looks at the other side's head only if fewer than @want seem
 * free. 0 too when the head read makes no sense. No system call. */
uint32_t spw_lane_room(struct spw_lane_producer *lane, uint32_t want);

/** Write @bytes (<= 56) of payload of the message's @index-th slot (0 = head); not yet visible.
 * The caller has asked spw_lane_room() for the whole message. */
void spw_lane_write(struct spw_lane_producer *lane, uint32_t index, const void *payload,
                    uint32_t bytes);

/** Make the message of @count slots visible: seqs of slots 1.., then slot 0's, then the tail. */
void spw_lane_send(struct spw_lane_producer *lane, uint32_t count);

/** Copy the payload (56 bytes) of the next message's head; 1 if there is one, else 0. */
int spw_lane_peek(const struct spw_lane_consumer *lane, void *out_payload);

/** Copy payload of the @index-th slot of that message (its seq is checked): 0, or -EBADMSG. */
int spw_lane_read(const struct spw_lane_consumer *lane, uint32_t index, void *out_payload,
                  uint32_t bytes);

/** Done with the message of @count slots: move on and tell the producer. [LN-2] release.
 * This is the point where a command counts as taken. */
void spw_lane_release(struct spw_lane_consumer *lane, uint32_t count);

/** Highest position any slot's seq, at most a lap beyond the tail, or the tail shows: where a successor's numbers must lie
 * beyond. Used at hand-over of a client object. Reads all slots. */
uint64_t spw_lane_highest(const struct spw_lane_slot *slot, uint32_t slots, uint64_t tail);

/** Position behind the messages of one slot that a consumer at @from finds without a break, at most a
 * lap. Used when a worker resumes a completion lane: its predecessor may have died before its tail. */
uint64_t spw_lane_sent(const struct spw_lane_slot *slot, uint32_t slots, uint64_t from);

#endif
