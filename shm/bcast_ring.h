#ifndef SPW_SHM_BCAST_RING_H
#define SPW_SHM_BCAST_RING_H
/*
 * Update ring: one worker writes, every attached process reads all of it.
 *
 *   roles     writer: the owning worker only; readers: any process, mapped read-only
 *   progress  publish and drain are wait-free; no system calls; readers are never waited for
 *   order     records arrive in publish order, or the reader is told it was lapped
 *   position  of a record: from 1 up, never reused, also the sequence in its slot; position p
 *             lies in slot (p - 1) mod N. tail = highest position published. The ring compares
 *             by signed difference alone, so it wraps; layers above use 0 for "none", and no
 *             ring that starts at 1 lives long enough to come back to it
 *   gate      positions up to it may have been overwritten; moved G at a time, stored with a
 *             release fence before the first payload word of a batch. A copy of position p is
 *             whole iff p + N > gate, read after the copy
 *   crash     a writer dead in a batch leaves nothing that is trusted, but its cells are
 *             spoilt: a successor resumes after the highest sequence found and never lowers
 *             the gate. A dead reader leaves nothing
 *   pairs     [UR-1] record before its seq -> drain   [UR-2] gate before payload -> lap check
 *             [UR-3] tail -> spw_bcast_tail()
 */
#include "shm/layout.h"

/** A record's payload: three words (24 bytes), laid out by tier/layout.h. */
struct spw_record {
    uint64_t word[3];
};

/** Writer's end. Process-local, caller's memory; one thread. */
struct spw_bcast_writer {
    struct spw_ring_slot *slot;
    spw_atomic64 *gate_at;
    spw_atomic64 *tail_at;
    uint64_t tail; /* highest position published */
    uint64_t gate;
    uint32_t mask;
    uint32_t gate_records;
};

/** Reader's end. Process-local, caller's memory; one thread. Shared memory is only read. */
struct spw_bcast_reader {
    const struct spw_ring_slot *slot;
    const spw_atomic64 *gate_at;
    const spw_atomic64 *tail_at;
    uint64_t cursor; /* position last drained, 0 = none */
    uint32_t mask;
};

/**
 * Make a writer of the ring in feed @head / @slot. It resumes after whatever is there: an empty
 * (zeroed) ring starts at position 1; after a crash the highest sequence in the slots or tail
 * counts, the gate is taken over as it is. Also stores the tail found. @records and @gate_records
 * are powers of two, gate_records < records (1-record rings are refused with -EINVAL).
 * -EBADMSG: a sequence that can't be in its slot, isn't of the last lap or lies beyond the gate, or a
 * gate further ahead than a batch moves it: no writer left that.
 */
int spw_bcast_writer_init(struct spw_bcast_writer *writer, struct spw_feed_head *head,
                          struct spw_ring_slot *slot, uint32_t records, uint32_t gate_records);

/**
 * Begin to make a ring afresh that spw_bcast_writer_init() refused: choose a tail beyond every
 * position found in it and beyond @found, which its caller has seen elsewhere, and store the gate
 * that says so: who reads the ring now is lapped. Numbers that no ring lives long enough to reach
 * are taken for damage. Returns the tail. The ring stays refused until the other half is done.
 */
uint64_t spw_bcast_afresh_begin(struct spw_feed_head *head, const struct spw_ring_slot *slot,
                                uint32_t records, uint64_t found);
/** The other half: sequences and tail as if positions up to @tail had been published. */
void spw_bcast_afresh_end(struct spw_feed_head *head, struct spw_ring_slot *slot, uint32_t records,
                          uint64_t tail);
/** The later of two positions, one that can only be damage not counting. */
uint64_t spw_bcast_later(uint64_t found, uint64_t position);

/** Set an unused ring's start, so that tests begin near a wrap: next position is @tail + 1. */
void spw_bcast_start_at(struct spw_feed_head *head, struct spw_ring_slot *slot, uint32_t records,
                        uint64_t tail);

/**
 * Publish @count records (0 = no-op; batches longer than what one gate move may cover are split
 * inside, tail included). Returns the position of the first. Never blocks, no system call.
 */
uint64_t spw_bcast_publish(struct spw_bcast_writer *writer, const struct spw_record *records,
                           uint32_t count);

/** Make a reader with cursor 0; an attacher then sets the cursor to a tail it has noted. -EINVAL:
 * @records is no power of two from 2 up. */
int spw_bcast_reader_init(struct spw_bcast_reader *reader, const struct spw_feed_head *head,
                          const struct spw_ring_slot *slot, uint32_t records);

/** Highest position published. [UR-3] acquire. */
uint64_t spw_bcast_tail(const struct spw_bcast_reader *reader);

/**
 * Copy the next records out of the ring.
 *
 * @out_records  caller's array of @max records; the i-th has position old cursor + 1 + i
 *
 * Polls the slots, not the tail. Never blocks, never allocates, no system call. Returns the number
 * copied, 0 if there is no news; -EOVERFLOW when the writer lapped this reader (cursor is left
 * where it was): empty the view, resync from the state table, then drain again.
 */
int spw_bcast_drain(struct spw_bcast_reader *reader, struct spw_record *out_records, uint32_t max);

#endif
