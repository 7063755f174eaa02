/*
 * The update ring's writer dies at every single step of a publish, its successor too; readers and
 * the next successor must see whole records only. The same check is run with successors that make
 * a mistake, and must find it.
 */
#include <criterion/criterion.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>

#include "shm/crash_point.h"
#include "tests/support/env.h"
#include "tests/support/ring_fixture.h"

TestSuite(ring_crash, .timeout = 120);

#define RECORDS       4u
#define GATE_RECORDS  2u
#define BATCH         3u
#define POSITIONS_MAX 64u
#define AUTHORS       4u

static const char *const points[] = {"bcast.gate_stored", "bcast.gate_fenced",
                                     "bcast.word_stored", "bcast.seq_stored",
                                     "bcast.tail_stored", "bcast.tail_repaired"};
#define POINTS (sizeof points / sizeof points[0])

static struct ring_fixture *ring;

/* What went wrong; each is a count. */
static struct {
    unsigned torn;    /* a record that nobody wrote                              */
    unsigned changed; /* two readers were told different things of one position */
    unsigned lost;    /* a delivered position that the successor's tail lacks   */
} wrong;
static struct spw_record told[POSITIONS_MAX];
static bool is_told[POSITIONS_MAX];

/* How a successor takes over: as the product does, or with a seeded mistake. */
enum successor { RIGHT, LOWERS_THE_GATE, RESUMES_AT_THE_TAIL };
static enum successor successor;

static void take_over(struct spw_bcast_writer *writer)
{
    uint64_t old_tail = spw_load_relaxed(&ring->head.tail);
    if (spw_bcast_writer_init(writer, &ring->head, ring->slot, RECORDS, GATE_RECORDS))
        kill(getpid(), SIGABRT);
    if (successor == LOWERS_THE_GATE) {
        writer->gate = spw_align_up(writer->tail, GATE_RECORDS);
        spw_store_relaxed(&ring->head.gate, writer->gate);
    }
    if (successor == RESUMES_AT_THE_TAIL) {
        writer->tail = old_tail;
        spw_store_relaxed(&ring->head.tail, old_tail);
    }
}

struct life {
    const char *point;
    uint32_t nth;
    uint64_t author;
};

static int publish_and_die(void *arg)
{
    struct life *life = arg;
    struct spw_bcast_writer writer;
    spw_crash_arm(life->point, life->nth);
    take_over(&writer);
    publish_stamped(&writer, BATCH, life->author);
    return 0;
}

/* One writer's life; true if it died where it should have. */
static bool live(const char *point, uint32_t nth, uint64_t author)
{
    struct life life = {point, nth, author};
    int status = support_wait(support_fork(publish_and_die, &life), 10000);
    cr_assert(status == 0 || status == SUPPORT_SIGNALLED + SIGKILL, "%s %u: %d", point, nth,
              status);
    return status != 0;
}

/* A reader at every cursor that may have stayed behind drains what there is. */
static void look(void)
{
    struct spw_record out[RECORDS * 2];
    struct spw_bcast_reader reader;
    for (uint64_t cursor = 0; cursor < POSITIONS_MAX - 2 * RECORDS; cursor++) {
        spw_bcast_reader_init(&reader, &ring->head, ring->slot, RECORDS);
        reader.cursor = cursor;
        int n = spw_bcast_drain(&reader, out, RECORDS * 2);
        for (int i = 0; i < n; i++) {
            uint64_t pos = cursor + 1 + (uint64_t)i;
            wrong.torn += !stamp_is(&out[i], pos, 1, AUTHORS);
            wrong.changed += is_told[pos] && memcmp(&told[pos], &out[i], sizeof out[i]);
            told[pos] = out[i];
            is_told[pos] = true;
        }
    }
}

static void begin(uint32_t published)
{
    struct spw_bcast_writer writer;
    memset(ring, 0, sizeof *ring);
    memset(is_told, 0, sizeof is_told);
    spw_bcast_writer_init(&writer, &ring->head, ring->slot, RECORDS, GATE_RECORDS);
    publish_stamped(&writer, published, 1);
    look();
}

/* The last writer: takes over, is looked at, publishes, is looked at; nothing told is missing. */
static void end(void)
{
    struct spw_bcast_writer writer;
    take_over(&writer);
    for (uint64_t pos = writer.tail + 1; pos < POSITIONS_MAX; pos++)
        wrong.lost += is_told[pos];
    look();
    for (int i = 0; i < 3; i++) {
        publish_stamped(&writer, 1, AUTHORS);
        look();
    }
    cr_assert_eq(spw_load_relaxed(&ring->head.tail), writer.tail);
    cr_assert(is_told[writer.tail], "the newest record is delivered");
}

static void reset(enum successor how)
{
    ring = mmap(NULL, sizeof *ring, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    memset(&wrong, 0, sizeof wrong);
    successor = how;
}

/* Every death of one writer; the number of deaths. */
static unsigned one_death_each(enum successor how)
{
    unsigned deaths = 0;
    reset(how);
    for (uint32_t published = 0; published <= 6; published++) {
        for (size_t p = 0; p < POINTS; p++) {
            bool died = true;
            for (uint32_t nth = 1; died; nth++) {
                begin(published);
                died = live(points[p], nth, 2);
                deaths += died;
                look();
                end();
            }
        }
    }
    return deaths;
}

Test(ring_crash, sm4_cases_1_to_4_no_death_shows_a_torn_record_or_loses_one)
{
    unsigned deaths = one_death_each(RIGHT);
    /* at each start: 3 records of 3 words and a seq, 2 tails, at least 1 gate and its fence */
    cr_assert_geq(deaths, 7 * (3 * 4 + 2 + 2));
    cr_assert_eq(wrong.torn, 0);
    cr_assert_eq(wrong.changed, 0);
    cr_assert_eq(wrong.lost, 0);
}

Test(ring_crash, case7_second_death_during_recovery_changes_nothing)
{
    unsigned second_deaths = 0, repairs = 0;
    reset(RIGHT);
    for (size_t p = 0; p < POINTS; p++) {
        bool died = true;
        for (uint32_t nth = 1; died; nth++) {
            for (size_t q = 0; q < POINTS && died; q++) {
                bool again = true;
                for (uint32_t mth = 1; again && mth <= 5; mth++) {
                    begin(3);
                    died = live(points[p], nth, 2);
                    look();
                    again = live(points[q], mth, 3);
                    second_deaths += again;
                    repairs += again && q == POINTS - 1;
                    look();
                    end();
                }
            }
        }
    }
    cr_assert_gt(second_deaths, 200);
    cr_assert_gt(repairs, 0);
    cr_assert_eq(wrong.torn + wrong.changed + wrong.lost, 0);
}

Test(ring_crash, case8_successor_that_lowers_the_gate_is_found_out)
{
    one_death_each(LOWERS_THE_GATE);
    cr_assert_gt(wrong.torn, 0);
}

Test(ring_crash, case8_successor_that_resumes_at_the_tail_is_found_out)
{
    one_death_each(RESUMES_AT_THE_TAIL);
    cr_assert_gt(wrong.changed + wrong.lost, 0);
}
