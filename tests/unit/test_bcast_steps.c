/*
 * The update ring stopped at every single access to shared memory: the product's own source with
 * a hook in front of each load and each store. What the hook does there is what another process
 * could have done at that moment.
 */
#include <criterion/criterion.h>
#include <string.h>

#include "shm/atomic.h"

static void before_access(void);

static uint64_t plain_load(const spw_atomic64 *at)
{
    return spw_load_relaxed(at);
}

static uint64_t plain_load_acquire(const spw_atomic64 *at)
{
    return spw_load_acquire(at);
}

static void plain_store(spw_atomic64 *at, uint64_t value)
{
    spw_store_relaxed(at, value);
}

static void plain_store_release(spw_atomic64 *at, uint64_t value)
{
    spw_store_release(at, value);
}

#undef spw_load_relaxed
#undef spw_load_acquire
#undef spw_store_relaxed
#undef spw_store_release
#define spw_load_relaxed(at)         (loads++, before_access(), plain_load(at))
#define spw_load_acquire(at)         (loads++, before_access(), plain_load_acquire(at))
#define spw_store_relaxed(at, value) (stores++, before_access(), plain_store(at, value))
#define spw_store_release(at, value) (stores++, before_access(), plain_store_release(at, value))
static uint64_t loads, stores;

#include "shm/bcast_ring.c"
#include "tests/support/ring_fixture.h"

TestSuite(bcast_steps, .timeout = 30);

static struct ring_fixture ring;
static struct spw_bcast_writer writer;
static struct spw_bcast_reader reader;
static uint64_t accesses, stop_at;
static void (*at_stop)(void);

static void before_access(void)
{
    if (at_stop && ++accesses == stop_at) {
        void (*then)(void) = at_stop;
        at_stop = NULL; /* what happens there is not stopped in turn */
        then();
    }
}

static void start(uint32_t records, uint32_t gate_records)
{
    at_stop = NULL;
    memset(&ring, 0, sizeof ring);
    cr_assert_eq(spw_bcast_writer_init(&writer, &ring.head, ring.slot, records, gate_records), 0);
    cr_assert_eq(spw_bcast_reader_init(&reader, &ring.head, ring.slot, records), 0);
}

/* Arm the hook; false once the action that follows has fewer accesses than that. */
static void arm(uint64_t at, void (*then)(void))
{
    accesses = 0;
    stop_at = at;
    at_stop = then;
}

static uint32_t meanwhile;

static void publish_meanwhile(void)
{
    publish_stamped(&writer, meanwhile, 1);
}

/* Case 11: the writer publishes any number of records while the reader stands inside a copy. */
Test(bcast_steps, case11_reader_stopped_at_each_access_while_the_writer_laps_it)
{
    int overruns = 0, intact = 0;
    for (meanwhile = 0; meanwhile <= 20; meanwhile++) {
        for (uint64_t at = 1; at <= 30; at++) {
            struct spw_record out[8];
            start(4, 2);
            publish_stamped(&writer, 2, 1);
            arm(at, publish_meanwhile);
            int n = spw_bcast_drain(&reader, out, 8);
            at_stop = NULL;
            for (int i = 0; i < n; i++)
                cr_assert(stamp_is(&out[i], (uint64_t)i + 1, 1, 1), "at %lu, %u meanwhile", at,
                          meanwhile);
            overruns += n < 0;
            intact += n > 0;
            cr_assert_eq(reader.cursor, n > 0 ? (uint64_t)n : 0);
        }
    }
    cr_assert_gt(overruns, 50);
    cr_assert_gt(intact, 50);
}

static int drained;
static struct spw_record drained_record[64];

static void drain_meanwhile(void)
{
    drained = spw_bcast_drain(&reader, drained_record, 64);
}

/* Case 14 at this layer: a reader at any cursor drains at each access of a publish. */
Test(bcast_steps, case14_reader_drains_at_each_access_of_a_publish)
{
    int seen[16] = {0};
    for (uint32_t published = 0; published <= 9; published++) {
        for (uint64_t cursor = 0; cursor <= published; cursor++) {
            for (uint64_t at = 1; at <= 24; at++) {
                struct spw_record batch[3];
                start(4, 2);
                publish_stamped(&writer, published, 1);
                reader.cursor = cursor;
                for (uint64_t i = 0; i < 3; i++)
                    batch[i] = stamp_of(published + 1 + i, 1);
                drained = 0;
                arm(at, drain_meanwhile);
                spw_bcast_publish(&writer, batch, 3);
                at_stop = NULL;
                for (int i = 0; i < drained; i++)
                    cr_assert(stamp_is(&drained_record[i], cursor + 1 + (uint64_t)i, 1, 1),
                              "published %u, cursor %lu, at %lu", published, cursor, at);
                seen[drained < 0 ? 15 : drained]++;
            }
        }
    }
    cr_assert(seen[15] && seen[0] && seen[1] && seen[2] && seen[3], "each outcome was met");
}

/* Case 13, second half of SM-5: publishing loads nothing from shared memory, so there is nothing a
 * reader could do to it, and its number of stores depends on the batch alone. */
Test(bcast_steps, case13_publish_reads_nothing_and_its_cost_is_fixed)
{
    start(8, 2);
    for (int i = 0; i < 100; i++) {
        loads = stores = 0;
        publish_stamped(&writer, 2, 1);
        cr_assert_eq(loads, 0);
        cr_assert_eq(stores, 2 * 4 + 1 + 1, "two records of four words, gate, tail");
    }
}

/* I10: readers store nothing. */
Test(bcast_steps, reader_stores_nothing)
{
    struct spw_record out[8];
    start(8, 2);
    publish_stamped(&writer, 5, 1);
    stores = 0;
    spw_bcast_tail(&reader);
    cr_assert_eq(spw_bcast_drain(&reader, out, 8), 5);
    publish_stamped(&writer, 20, 1);
    stores = 0;
    cr_assert_eq(spw_bcast_drain(&reader, out, 8), -EOVERFLOW);
    cr_assert_eq(stores, 0);
}
