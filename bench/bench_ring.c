/*
 * Update ring and lanes: publish, drain, throughput, one-way latency; beside the cache-line round
 * trip of the same minute, beside a writer without readers, and beside ck_ring.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/bench.h"
#include "bench/pair.h"
#include "shm/bcast_ring.h"
#include "shm/lane.h"

#ifdef SPW_HAVE_CK
#include <ck_ring.h>
#endif

#define RECORDS 65536u
#define GATE    (RECORDS / 8)
#define ROUNDS  9u

struct ring {
    struct spw_feed_head *head;
    struct spw_ring_slot *slot;
    struct spw_bcast_writer writer;
};

static int ring_open(struct ring *ring)
{
    ring->head = aligned_alloc(4096, spw_align_up(sizeof *ring->head, 4096));
    ring->slot = aligned_alloc(4096, RECORDS * sizeof *ring->slot);
    if (!ring->head || !ring->slot)
        return -ENOMEM;
    memset(ring->head, 0, sizeof *ring->head);
    memset(ring->slot, 0, RECORDS * sizeof *ring->slot);
    return spw_bcast_writer_init(&ring->writer, ring->head, ring->slot, RECORDS, GATE);
}

static void ring_close(struct ring *ring)
{
    free(ring->head);
    free(ring->slot);
}

/* ---- a reader on the other CPU --------------------------------------------------------------- */

struct reader {
    struct ring *ring;
    uint64_t last; /* stop at this position                     */
    bool polls;    /* false: looks once and stops, never again  */
    uint64_t lapped;
    uint64_t wrong;
    alignas(64) spw_atomic64 ack; /* position drained, moved every 4,096 records */
    alignas(64) spw_atomic32 ready;
};

static void read_all(void *ctx)
{
    struct reader *reader = ctx;
    struct spw_bcast_reader end;
    struct spw_record records[64];
    spw_bcast_reader_init(&end, reader->ring->head, reader->ring->slot, RECORDS);
    uint64_t acked = end.cursor = reader->ring->writer.tail;
    spw_store_release(&reader->ready, 1);
    while (spw_pos_before(end.cursor, reader->last)) {
        int n = spw_bcast_drain(&end, records, 64);
        if (n == -EOVERFLOW) {
            reader->lapped++;
            end.cursor = spw_bcast_tail(&end);
        }
        for (int i = 0; i < n; i++)
            reader->wrong += records[i].word[0] != end.cursor - (uint64_t)(n - i) + 1;
        if (end.cursor - acked >= 4096 || end.cursor == reader->last) {
            acked = end.cursor;
            spw_store_release(&reader->ack, acked);
        }
    }
    spw_store_release(&reader->ack, reader->last);
}

static void publish(struct ring *ring, uint32_t batch)
{
    struct spw_record records[64];
    for (uint32_t i = 0; i < batch; i++)
        records[i].word[0] = records[i].word[1] = records[i].word[2] = ring->writer.tail + 1 + i;
    spw_bcast_publish(&ring->writer, records, batch);
}

/* Records a second through the ring to one reader; with @throttle the writer minds the reader's ack
 * so that nothing is lost, else it runs free. Negative: a check failed. */
static double pass_records(struct ring *ring, uint32_t batch, uint64_t count, bool throttle)
{
    static struct reader reader;
    struct spw_bench_partner partner;
    memset(&reader, 0, sizeof reader);
    reader.ring = ring;
    uint64_t first = ring->writer.tail;
    reader.last = first + count;
    spw_store_relaxed(&reader.ack, first); /* before the partner starts */
    int status = spw_bench_partner_start(&partner, read_all, &reader);
    if (status)
        return status;
    while (!spw_load_acquire(&reader.ready))
        ;
    uint64_t begin = spw_bench_now_ns();
    while (ring->writer.tail != reader.last) {
        if (throttle)
            while (ring->writer.tail - spw_load_acquire(&reader.ack) > RECORDS / 2)
                ;
        publish(ring, batch);
    }
    uint64_t written = spw_bench_now_ns();
    if (throttle)
        while (spw_load_acquire(&reader.ack) != reader.last)
            ;
    uint64_t end = spw_bench_now_ns();
    spw_bench_partner_join(&partner);
    if (reader.wrong || (throttle && reader.lapped)) {
        fprintf(stderr, "spw-bench: ring: %llu wrong records, %llu laps\n",
                (unsigned long long)reader.wrong, (unsigned long long)reader.lapped);
        return -EBADMSG;
    }
    return (double)count * 1e9 / (double)(throttle ? end - begin : written - begin);
}

#ifdef SPW_HAVE_CK
CK_RING_PROTOTYPE(record, spw_record)

struct ck_pair {
    ck_ring_t ring CK_CC_CACHELINE;
    struct spw_record *buffer;
    uint64_t count;
    uint64_t wrong;
    spw_atomic32 done;
};

static void ck_read(void *ctx)
{
    struct ck_pair *pair = ctx;
    struct spw_record record;
    for (uint64_t i = 1; i <= pair->count; i++) {
        while (!CK_RING_DEQUEUE_SPSC(record, &pair->ring, pair->buffer, &record))
            ;
        pair->wrong += record.word[0] != i;
    }
    spw_store_release(&pair->done, 1);
}

static double ck_pass_records(uint64_t count)
{
    static struct ck_pair pair;
    struct spw_bench_partner partner;
    memset(&pair, 0, sizeof pair);
    pair.buffer = aligned_alloc(64, RECORDS * sizeof *pair.buffer);
    if (!pair.buffer)
        return -ENOMEM;
    memset(pair.buffer, 0, RECORDS * sizeof *pair.buffer);
    ck_ring_init(&pair.ring, RECORDS);
    pair.count = count;
    int status = spw_bench_partner_start(&partner, ck_read, &pair);
    if (status)
        return status;
    uint64_t begin = spw_bench_now_ns();
    for (uint64_t i = 1; i <= count; i++) {
        struct spw_record record = {{i, i, i}};
        while (!CK_RING_ENQUEUE_SPSC(record, &pair.ring, pair.buffer, &record))
            ;
    }
    while (!spw_load_acquire(&pair.done))
        ;
    double rate = (double)count * 1e9 / (double)(spw_bench_now_ns() - begin);
    spw_bench_partner_join(&partner);
    free(pair.buffer);
    return pair.wrong ? -EBADMSG : rate;
}
#endif

static int bench_throughput(struct spw_bench_run *run, struct ring *ring, uint32_t batch,
                            const char *name, const char *trip_name)
{
    static struct spw_bench_series ours, theirs, per_trip;
    uint64_t count = spw_bench_size(run, 4u << 20, 1u << 14);
    ours.count = theirs.count = per_trip.count = 0;
    if (!spw_bench_wants(run, "ring", name) && !spw_bench_wants(run, "ring", trip_name))
        return 0;
    for (uint32_t i = 0; i < spw_bench_size(run, ROUNDS, 2); i++) {
        double trip = spw_bench_round_trip_ns((uint32_t)spw_bench_size(run, 20000, 320));
        double rate = pass_records(ring, batch, count, true);
        if (trip < 0 || rate < 0)
            return trip == -ENODEV ? 0 : -EBADMSG;
        spw_bench_add(&ours, rate);
        spw_bench_add(&per_trip, rate * trip / 1e9);
#ifdef SPW_HAVE_CK
        double peer = ck_pass_records(count);
        if (peer < 0)
            return -EBADMSG;
        spw_bench_add(&theirs, peer);
#endif
    }
    struct spw_bench_line line = {"ring", name, "records/s", &ours, NULL, NULL};
    if (theirs.count) {
        line.against = "ck_ring SPSC, same bytes";
        line.theirs = &theirs;
    }
    spw_bench_report(run, &line);
    line = (struct spw_bench_line){"ring", trip_name, "records/RTT", &per_trip, NULL, NULL};
    spw_bench_report(run, &line);
    return 0;
}

/* The writer's cost of one record: alone, with a live reader, with readers that have stopped. */
static int bench_publish(struct spw_bench_run *run, struct ring *ring)
{
    static struct spw_bench_series alone, live, stopped;
    uint64_t count = spw_bench_size(run, 4u << 20, 1u << 14);
    alone.count = live.count = stopped.count = 0;
    if (!spw_bench_wants(run, "ring", "publish_b32_one_reader") &&
        !spw_bench_wants(run, "ring", "publish_b32_stopped_readers"))
        return 0;
    for (uint32_t i = 0; i < spw_bench_size(run, ROUNDS, 2); i++) {
        for (uint32_t readers = 0; readers <= 8; readers += 8) {
            struct spw_bcast_reader idle[8];
            struct spw_record record;
            for (uint32_t r = 0; r < readers; r++) { /* attached, read once, never again */
                spw_bcast_reader_init(&idle[r], ring->head, ring->slot, RECORDS);
                idle[r].cursor = ring->writer.tail;
                publish(ring, 1);
                spw_bcast_drain(&idle[r], &record, 1);
            }
            uint64_t begin = spw_bench_now_ns();
            for (uint64_t done = 0; done < count; done += 32)
                publish(ring, 32);
            spw_bench_add(readers ? &stopped : &alone,
                          (double)(spw_bench_now_ns() - begin) / (double)count);
        }
        double rate = pass_records(ring, 32, count, true);
        if (rate == -ENODEV)
            return 0;
        if (rate < 0)
            return -EBADMSG;
        spw_bench_add(&live, 1e9 / rate);
    }
    spw_bench_report(run, &(struct spw_bench_line){"ring", "publish_b32_one_reader", "ns", &live,
                                                   "a writer alone", &alone});
    spw_bench_report(run, &(struct spw_bench_line){"ring", "publish_b32_stopped_readers", "ns",
                                                   &stopped, "a writer alone", &alone});
    return 0;
}

static int bench_drain(struct spw_bench_run *run, struct ring *ring)
{
    static struct spw_bench_series ours, theirs;
    struct spw_bcast_reader reader;
    struct spw_record records[256];
    static struct spw_record flat[RECORDS / 2];
    if (!spw_bench_wants(run, "ring", "drain"))
        return 0;
    ours.count = theirs.count = 0;
    spw_bcast_reader_init(&reader, ring->head, ring->slot, RECORDS);
    for (uint32_t i = 0; i < 101; i++) {
        uint64_t sum = 0, expected = 0;
        reader.cursor = ring->writer.tail;
        for (uint32_t j = 0; j < RECORDS / 2; j += 32)
            publish(ring, 32);
        uint64_t begin = spw_bench_now_ns();
        for (int n; (n = spw_bcast_drain(&reader, records, 256)) > 0;)
            for (int j = 0; j < n; j++)
                sum += records[j].word[0];
        uint64_t end = spw_bench_now_ns();
        spw_bench_add(&ours, RECORDS / 2 * 1e9 / (double)(end - begin));
        for (uint32_t j = 0; j < RECORDS / 2; j++)
            expected += flat[j].word[0] = ring->writer.tail - RECORDS / 2 + 1 + j;
        if (sum != expected)
            return -EBADMSG;
        sum = 0;
        begin = spw_bench_now_ns();
        for (uint32_t j = 0; j < RECORDS / 2; j += 256) {
            memcpy(records, flat + j, sizeof records);
            for (uint32_t x = 0; x < 256; x++)
                sum += records[x].word[0];
            spw_bench_use(sum);
        }
        spw_bench_add(&theirs, RECORDS / 2 * 1e9 / (double)(spw_bench_now_ns() - begin));
    }
    spw_bench_report(run, &(struct spw_bench_line){"ring", "drain", "records/s", &ours,
                                                   "memcpy of the same records", &theirs});
    return 0;
}

/* ---- latency --------------------------------------------------------------------------------- */

struct latency {
    struct ring *ring;
    uint32_t messages;
    spw_atomic32 ready;
    struct spw_bench_series series;
};

static void time_messages(void *ctx)
{
    struct latency *latency = ctx;
    struct spw_bcast_reader reader;
    struct spw_record record;
    spw_bcast_reader_init(&reader, latency->ring->head, latency->ring->slot, RECORDS);
    reader.cursor = latency->ring->writer.tail;
    spw_store_release(&latency->ready, 1);
    for (uint32_t i = 0; i < latency->messages; i++) {
        while (spw_bcast_drain(&reader, &record, 1) != 1)
            ;
        double ns = (double)(spw_bench_ticks() - record.word[0]) / spw_bench_ticks_per_ns();
        if (i % (latency->messages / 400 + 1) == 0)
            spw_bench_add(&latency->series, ns);
    }
}

static int bench_latency(struct spw_bench_run *run, struct ring *ring)
{
    static struct latency latency;
    static struct spw_bench_series half_trip;
    if (!spw_bench_wants(run, "latency", "update_one_way"))
        return 0;
    memset(&latency, 0, sizeof latency);
    half_trip.count = 0;
    latency.ring = ring;
    latency.messages = (uint32_t)spw_bench_size(run, 20000, 200);
    uint64_t pause = (uint64_t)(1500 * spw_bench_ticks_per_ns());
    for (uint32_t i = 0; i < spw_bench_size(run, ROUNDS, 2); i++) {
        struct spw_bench_partner partner;
        double trip = spw_bench_round_trip_ns((uint32_t)spw_bench_size(run, 20000, 320));
        if (trip < 0)
            return 0;
        spw_bench_add(&half_trip, trip / 2);
        spw_store_relaxed(&latency.ready, 0); /* before the partner starts */
        if (spw_bench_partner_start(&partner, time_messages, &latency))
            return 0;
        while (!spw_load_acquire(&latency.ready))
            ;
        for (uint32_t m = 0; m < latency.messages; m++) {
            uint64_t next = spw_bench_ticks() + pause;
            while (spw_bench_ticks() < next)
                ;
            struct spw_record record = {{spw_bench_ticks(), 0, 0}};
            spw_bcast_publish(&ring->writer, &record, 1);
        }
        spw_bench_partner_join(&partner);
    }
    spw_bench_report(run,
                     &(struct spw_bench_line){"latency", "update_one_way", "ns", &latency.series,
                                              "half the cache-line round trip", &half_trip});
    return 0;
}

int spw_bench_ring(struct spw_bench_run *run)
{
    struct ring ring = {0};
    int status = ring_open(&ring);
    if (!status)
        status = bench_drain(run, &ring);
    if (!status)
        status = bench_publish(run, &ring);
    if (!status)
        status = bench_throughput(run, &ring, 1, "throughput_b1", "per_round_trip_b1");
    if (!status)
        status = bench_throughput(run, &ring, 8, "throughput_b8", "per_round_trip_b8");
    if (!status)
        status = bench_throughput(run, &ring, 32, "throughput_b32", "per_round_trip_b32");
    if (!status)
        status = bench_latency(run, &ring);
    if (status)
        fprintf(stderr, "spw-bench: ring: failed (%d)\n", status);
    ring_close(&ring);
    return status;
}
