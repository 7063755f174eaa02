/*
 * An update ring with any bytes in it, as a reader drains it and as a successor takes it over. What
 * is delivered lies in its slot under its own position, the cursor moves by as much as was
 * delivered, and a successor's records arrive behind whatever it accepted.
 */
#include "tests/fuzz/guarded.h"

#include "shm/bcast_ring.h"

#define RECORDS    16u
#define GATE       4u
#define DRAIN_MAX  24u
#define PUBLISHED  9u
#define DRAINS_MAX 64u

static struct guarded object; /* head, then the ring */
static const struct spw_feed_head *head;
static const struct spw_ring_slot *slots;

static struct spw_feed_head *writer_head(void)
{
    return (struct spw_feed_head *)(void *)object.at;
}

static struct spw_ring_slot *writer_slots(void)
{
    return (struct spw_ring_slot *)(void *)(object.at + sizeof(struct spw_feed_head));
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    const struct spw_record record[RECORDS + 3] = {{{1, 2, 3}}};
    struct spw_bcast_writer writer;
    guarded_make(&object, sizeof(struct spw_feed_head) + RECORDS * sizeof(struct spw_ring_slot));
    head = (const struct spw_feed_head *)(const void *)object.readers;
    slots = (const struct spw_ring_slot *)(const void *)(object.readers + sizeof *head);
    fuzz_expect(spw_bcast_writer_init(&writer, writer_head(), writer_slots(), RECORDS, GATE) == 0,
                "a new ring has a writer");
    spw_bcast_publish(&writer, record, RECORDS + 3);
    guarded_save(&object);
    return 0;
}

static void check_record(uint64_t pos, const struct spw_record *record)
{
    const struct spw_ring_slot *slot = &slots[(pos - 1) % RECORDS];
    fuzz_expect(spw_load_relaxed(&slot->seq) == pos, "a record of another position");
    for (uint32_t w = 0; w < 3; w++)
        fuzz_expect(record->word[w] == spw_load_relaxed(&slot->word[w]), "other bytes");
}

static void drain(struct spw_bcast_reader *reader)
{
    struct spw_record record[DRAIN_MAX];
    for (uint32_t i = 0; i < DRAINS_MAX; i++) {
        uint64_t before = reader->cursor;
        int count = spw_bcast_drain(reader, record, DRAIN_MAX);
        if (count <= 0) {
            fuzz_expect(reader->cursor == before, "the cursor moved over nothing");
            return;
        }
        fuzz_expect(count <= (int)RECORDS && reader->cursor == before + (uint64_t)count,
                    "more than a lap, or a cursor that tells otherwise");
        fuzz_expect(spw_pos_before(spw_load_relaxed(&head->gate), before + 1 + RECORDS),
                    "what the gate says may be overwritten is delivered");
        for (int r = 0; r < count; r++)
            check_record(before + 1 + (uint64_t)r, &record[r]);
    }
    fuzz_expect(false, "a ring that nobody writes comes to an end");
}

/* A successor refuses, or goes on beyond everything it found and is read from there on. */
static void succeed(void)
{
    struct spw_record record[PUBLISHED], seen[PUBLISHED];
    struct spw_bcast_writer writer;
    struct spw_bcast_reader reader;
    const uint64_t gate = spw_load_relaxed(&head->gate), tail = spw_load_relaxed(&head->tail);
    int rc = spw_bcast_writer_init(&writer, writer_head(), writer_slots(), RECORDS, GATE);
    if (rc < 0) {
        fuzz_expect(rc == -EBADMSG, "no such answer");
        return;
    }
    fuzz_expect(!spw_pos_before(writer.tail, tail) && !spw_pos_before(writer.gate, gate) &&
                    !spw_pos_before(writer.gate, writer.tail),
                "tail and gate never go back");
    spw_bcast_reader_init(&reader, head, slots, RECORDS);
    reader.cursor = spw_bcast_tail(&reader);
    for (uint32_t i = 0; i < PUBLISHED; i++)
        record[i] = (struct spw_record){{i, ~(uint64_t)i, 7}};
    uint64_t first = spw_bcast_publish(&writer, record, PUBLISHED);
    fuzz_expect(first == reader.cursor + 1, "it goes on behind the tail");
    fuzz_expect(spw_bcast_drain(&reader, seen, PUBLISHED) == (int)PUBLISHED &&
                    memcmp(seen, record, sizeof seen) == 0,
                "a successor's records arrive");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input in = {data, size};
    const struct fuzz_window window[] = {
        {(void *)&writer_head()->gate, 128}, /* and the tail */
        {writer_slots(), RECORDS * sizeof(struct spw_ring_slot)},
    };
    struct spw_bcast_reader reader;
    guarded_restore(&object);
    spw_bcast_reader_init(&reader, head, slots, RECORDS);
    reader.cursor = fuzz_u8(&in) % (RECORDS + 4);
    while (in.left) {
        uint8_t what = fuzz_u8(&in);
        if (what % 8 == 0)
            drain(&reader);
        else if (what % 8 == 1)
            reader.cursor = spw_bcast_tail(&reader) - what / 8;
        else
            fuzz_damage(&in, window, 2);
    }
    drain(&reader);
    succeed();
    return 0;
}
