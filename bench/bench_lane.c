/*
 * Command and completion lanes: throughput beside ck_ring with records of the same 64 bytes, one
 * way and there and back beside the cache line's own trips.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/bench.h"
#include "bench/pair.h"
#include "shm/lane.h"

#ifdef SPW_HAVE_CK
#include <ck_ring.h>
#endif

#define SLOTS  1024u
#define ROUNDS 9u
#define WORDS  (SPW_LANE_PAYLOAD_BYTES / 8)

/* A lane in private memory; head and tail on lines of their own, as in client.c. */
struct lane {
    struct spw_lane_slot slot[SLOTS];
    alignas(64) spw_atomic64 tail;
    alignas(64) spw_atomic64 head;
};

struct pair {
    struct lane there;
    struct lane back;
    uint64_t count;
    uint64_t wrong;
    spw_atomic32 ready;
    struct spw_bench_series series;
};

static struct pair pair;

static void reset_pair(uint64_t count)
{
    memset(&pair, 0, sizeof pair);
    pair.count = count;
}

static struct spw_lane_producer producer_of(struct lane *lane)
{
    struct spw_lane_producer producer;
    spw_lane_producer_init(&producer, lane->slot, SLOTS, &lane->tail, &lane->head);
    return producer;
}

static struct spw_lane_consumer consumer_of(struct lane *lane)
{
    struct spw_lane_consumer consumer;
    spw_lane_consumer_init(&consumer, lane->slot, SLOTS, &lane->head);
    return consumer;
}

static void send(struct spw_lane_producer *lane, uint64_t first_word)
{
    uint64_t word[WORDS] = {first_word};
    while (spw_lane_room(lane, 1) == 0)
        ;
    spw_lane_write(lane, 0, word, sizeof word);
    spw_lane_send(lane, 1);
}

static uint64_t receive(struct spw_lane_consumer *lane)
{
    uint64_t word[WORDS];
    while (!spw_lane_peek(lane, word))
        ;
    spw_lane_release(lane, 1);
    return word[0];
}

/* ---- throughput ------------------------------------------------------------------------------ */

static void take_all(void *ctx)
{
    struct spw_lane_consumer lane = consumer_of(&pair.there);
    for (uint64_t i = 1; i <= pair.count; i++)
        pair.wrong += receive(&lane) != i;
    spw_store_release(&pair.ready, 1);
}

static double pass_commands(uint64_t count)
{
    struct spw_bench_partner partner;
    reset_pair(count);
    struct spw_lane_producer lane = producer_of(&pair.there);
    int rc = spw_bench_partner_start(&partner, take_all, NULL);
    if (rc < 0)
        return rc;
    uint64_t begin = spw_bench_now_ns();
    for (uint64_t i = 1; i <= count; i++)
        send(&lane, i);
    while (!spw_load_acquire(&pair.ready))
        ;
    double rate = (double)count * 1e9 / (double)(spw_bench_now_ns() - begin);
    spw_bench_partner_join(&partner);
    return pair.wrong ? -EBADMSG : rate;
}

#ifdef SPW_HAVE_CK
struct ck_record {
    uint64_t word[8];
};
CK_RING_PROTOTYPE(command, ck_record)

static struct {
    ck_ring_t ring CK_CC_CACHELINE;
    struct ck_record buffer[SLOTS] CK_CC_CACHELINE;
} ck;

static void ck_take_all(void *ctx)
{
    struct ck_record record;
    for (uint64_t i = 1; i <= pair.count; i++) {
        while (!CK_RING_DEQUEUE_SPSC(command, &ck.ring, ck.buffer, &record))
            ;
        pair.wrong += record.word[0] != i;
    }
    spw_store_release(&pair.ready, 1);
}

static double ck_pass_commands(uint64_t count)
{
    struct spw_bench_partner partner;
    reset_pair(count);
    memset(&ck, 0, sizeof ck);
    ck_ring_init(&ck.ring, SLOTS);
    int rc = spw_bench_partner_start(&partner, ck_take_all, NULL);
    if (rc < 0)
        return rc;
    uint64_t begin = spw_bench_now_ns();
    for (uint64_t i = 1; i <= count; i++) {
        struct ck_record record = {{i}};
        while (!CK_RING_ENQUEUE_SPSC(command, &ck.ring, ck.buffer, &record))
            ;
    }
    while (!spw_load_acquire(&pair.ready))
        ;
    double rate = (double)count * 1e9 / (double)(spw_bench_now_ns() - begin);
    spw_bench_partner_join(&partner);
    return pair.wrong ? -EBADMSG : rate;
}
#endif

static int bench_throughput(struct spw_bench_run *run)
{
    static struct spw_bench_series ours, theirs, per_trip;
    uint64_t count = spw_bench_size(run, 1u << 18, 1u << 12);
    ours.count = theirs.count = per_trip.count = 0;
    if (!spw_bench_wants(run, "lane", "throughput_b1") &&
        !spw_bench_wants(run, "lane", "per_round_trip_b1"))
        return 0;
    for (uint32_t i = 0; i < spw_bench_size(run, ROUNDS, 2); i++) {
        double trip = spw_bench_round_trip_ns((uint32_t)spw_bench_size(run, 20000, 320));
        double rate = trip < 0 ? trip : pass_commands(count);
        if (rate < 0)
            return (int)rate;
        spw_bench_add(&ours, rate);
        spw_bench_add(&per_trip, rate * trip / 1e9);
#ifdef SPW_HAVE_CK
        double peer = ck_pass_commands(count);
        if (peer < 0)
            return (int)peer;
        spw_bench_add(&theirs, peer);
#endif
    }
    struct spw_bench_line line = {"lane", "throughput_b1", "records/s", &ours, NULL, NULL};
    if (theirs.count) {
        line.against = "ck_ring SPSC, 64-byte records";
        line.theirs = &theirs;
    }
    spw_bench_report(run, &line);
    spw_bench_report(run, &(struct spw_bench_line){"lane", "per_round_trip_b1", "records/RTT",
                                                   &per_trip, NULL, NULL});
    return 0;
}

/* ---- latency --------------------------------------------------------------------------------- */

static void answer_all(void *ctx)
{
    struct spw_lane_consumer in = consumer_of(&pair.there);
    struct spw_lane_producer out = producer_of(&pair.back);
    for (uint64_t i = 0; i < pair.count; i++)
        send(&out, receive(&in));
}

/* Command there, completion back; the median of many, ns. */
static double round_trip(uint64_t count)
{
    struct spw_bench_partner partner;
    const uint32_t group = 16; /* as the cache line's round trip is measured */
    reset_pair(count / group * group);
    struct spw_lane_producer out = producer_of(&pair.there);
    struct spw_lane_consumer in = consumer_of(&pair.back);
    int rc = spw_bench_partner_start(&partner, answer_all, NULL);
    if (rc < 0)
        return rc;
    for (uint64_t i = 0; i < pair.count;) {
        uint64_t begin = spw_bench_now_ns();
        for (uint32_t j = 0; j < group; j++, i++) {
            send(&out, i);
            pair.wrong += receive(&in) != i;
        }
        spw_bench_add(&pair.series, (double)(spw_bench_now_ns() - begin) / group);
    }
    spw_bench_partner_join(&partner);
    return pair.wrong ? -EBADMSG : spw_bench_percentile(&pair.series, 0.5);
}

static int bench_round_trip(struct spw_bench_run *run)
{
    static struct spw_bench_series ours, theirs;
    ours.count = theirs.count = 0;
    if (!spw_bench_wants(run, "lane", "round_trip"))
        return 0;
    for (uint32_t i = 0; i < spw_bench_size(run, ROUNDS, 2); i++) {
        double trip = spw_bench_round_trip_ns((uint32_t)spw_bench_size(run, 20000, 320));
        double ns = trip < 0 ? trip : round_trip(spw_bench_size(run, 20000, 320));
        if (ns < 0)
            return (int)ns;
        spw_bench_add(&ours, ns);
        spw_bench_add(&theirs, trip);
    }
    spw_bench_report(run, &(struct spw_bench_line){"lane", "round_trip", "ns", &ours,
                                                   "the cache-line round trip", &theirs});
    return 0;
}

static void time_commands(void *ctx)
{
    struct spw_lane_consumer lane = consumer_of(&pair.there);
    spw_store_release(&pair.ready, 1);
    for (uint64_t i = 0; i < pair.count; i++) {
        uint64_t sent = receive(&lane);
        double ns = (double)(spw_bench_ticks() - sent) / spw_bench_ticks_per_ns();
        if (i % (pair.count / 400 + 1) == 0)
            spw_bench_add(&pair.series, ns);
    }
}

/* Paced, so that each command finds the lane empty. */
static int one_way(uint64_t count)
{
    struct spw_bench_partner partner;
    uint64_t pause = (uint64_t)(1500 * spw_bench_ticks_per_ns());
    reset_pair(count);
    struct spw_lane_producer lane = producer_of(&pair.there);
    int rc = spw_bench_partner_start(&partner, time_commands, NULL);
    if (rc < 0)
        return rc;
    while (!spw_load_acquire(&pair.ready))
        ;
    for (uint64_t i = 0; i < count; i++) {
        for (uint64_t next = spw_bench_ticks() + pause; spw_bench_ticks() < next;)
            ;
        send(&lane, spw_bench_ticks());
    }
    spw_bench_partner_join(&partner);
    return 0;
}

static int bench_one_way(struct spw_bench_run *run)
{
    static struct spw_bench_series ours, half_trip;
    ours.count = half_trip.count = 0;
    if (!spw_bench_wants(run, "latency", "command_one_way"))
        return 0;
    for (uint32_t i = 0; i < spw_bench_size(run, ROUNDS, 2); i++) {
        double trip = spw_bench_round_trip_ns((uint32_t)spw_bench_size(run, 20000, 320));
        int rc = trip < 0 ? (int)trip : one_way(spw_bench_size(run, 20000, 200));
        if (rc < 0)
            return rc;
        for (uint32_t j = 0; j < pair.series.count; j++)
            spw_bench_add(&ours, pair.series.value[j]);
        spw_bench_add(&half_trip, trip / 2);
    }
    spw_bench_report(run, &(struct spw_bench_line){"latency", "command_one_way", "ns", &ours,
                                                   "half the cache-line round trip", &half_trip});
    return 0;
}

int spw_bench_lane(struct spw_bench_run *run)
{
    int rc = bench_throughput(run);
    if (rc == 0)
        rc = bench_round_trip(run);
    if (rc == 0)
        rc = bench_one_way(run);
    if (rc == -ENODEV) /* one CPU: there is nothing to measure */
        rc = 0;
    if (rc < 0)
        fprintf(stderr, "spw-bench: lane: failed (%d)\n", rc);
    return rc;
}
