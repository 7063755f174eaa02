/*
 * Update ring: a writer that runs free over tiny rings, dies and is succeeded, and two readers that
 * check every record whole. Shared: one ring; each reader's findings are its own.
 */
#include "tests/stress/stress.h"

#include "tests/stress/mutants.h"
#include "tests/support/ring_fixture.h"

#include <pthread.h>

#define READERS_MAX 2
#define ROUND_NS    60000000ull

#ifdef SPW_MUTANTS
/* lower_gate: a successor moves the gate back to where it resumes; the others: ring_mutants.c */
static const char *const mutants[] = {"no_check",  "early_check", "seq_first",
                                      "gate_late", "lower_gate",  NULL};
#else
static const char *const mutants[] = {NULL};
#endif

static struct stress run; /* fixed before the threads start */
static struct ring_fixture ring;
static uint32_t records, gate_records;
static uint64_t start_tail, round_end_ns;
static spw_atomic32 writer_done;
static bool lowers_gate;

struct reader_report {
    uint64_t seed, taken, gaps, wrong;
    uint32_t cpu;
};

static void spin(uint64_t turns)
{
    while (turns-- > 0)
        spw_cpu_relax();
}

/* The writer dies with its next record half written; a successor takes over. */
static void die_and_succeed(struct spw_bcast_writer *writer, uint64_t *state)
{
    uint64_t pos = writer->tail + 1;
    struct spw_ring_slot *slot = &ring.slot[writer->tail & (records - 1)];
    if (spw_pos_before(writer->gate, pos))
        spw_store_relaxed(&ring.head.gate, spw_align_up(pos, gate_records));
    spw_fence_release();
    spw_store_relaxed(&slot->word[stress_random(state) % 3], ~pos);
    if (spw_bcast_writer_init(writer, &ring.head, ring.slot, records, gate_records))
        abort();
    if (lowers_gate) {
        writer->gate = writer->tail;
        spw_store_relaxed(&ring.head.gate, writer->gate);
    }
    spin(stress_random(state) & 63); /* taking over takes its time */
}

static void *write_all(void *arg)
{
    uint64_t state = *(uint64_t *)arg;
    struct spw_bcast_writer writer;
    stress_pin(&run, 0);
#ifdef SPW_MUTANTS
    ring_mutant_is_writer();
#endif
    if (spw_bcast_writer_init(&writer, &ring.head, ring.slot, records, gate_records))
        abort();
    while (stress_now_ns() < round_end_ns) {
        for (int i = 0; i < 64; i++) {
            uint64_t dice = stress_random(&state);
            uint32_t most = dice >> 60 ? gate_records : 2 * records; /* seldom whole laps */
            publish_stamped(&writer, 1 + (uint32_t)dice % most, 1);
            spin(dice >> 40 & (dice & 1 << 30 ? 3 : 15)); /* let readers catch up */
            if ((dice >> 32 & 15) == 0)
                die_and_succeed(&writer, &state);
        }
    }
    spw_store_release(&writer_done, 1);
    return NULL;
}

static void *read_all(void *arg)
{
    struct reader_report *report = arg;
    uint64_t state = report->seed;
    struct spw_bcast_reader reader;
    struct spw_record out[16];
    stress_pin(&run, report->cpu);
#ifdef SPW_MUTANTS
    ring_mutant_is_reader();
#endif
    spw_bcast_reader_init(&reader, &ring.head, ring.slot, records);
    reader.cursor = start_tail;
    for (bool last = false;;) {
        uint64_t dice = stress_random(&state);
        uint32_t max = 1 + (uint32_t)dice % 16;
        spin(dice >> 40 & (dice & 7 << 20 ? 0 : 15)); /* now and then fall behind */
        int n = spw_bcast_drain(&reader, out, max);
        for (int i = 0; i < n; i++)
            report->wrong +=
                !stamp_is(&out[i], reader.cursor - (uint64_t)n + 1 + (uint64_t)i, 1, 1);
        if (n < 0) {
            reader.cursor = spw_bcast_tail(&reader);
            report->gaps++;
        } else if (n > 0) {
            report->taken += (uint64_t)n;
        } else if (last) {
            break;
        } else {
            last = spw_load_acquire(&writer_done);
        }
    }
    report->wrong += reader.cursor != spw_bcast_tail(&reader);
    return NULL;
}

/* One ring, from fresh; what was wrong. */
static void one_round(uint64_t *state, struct reader_report *total)
{
    static const uint32_t sizes[][2] = {{2, 1}, {4, 1}, {4, 2}, {8, 2}, {8, 4}};
    static const uint64_t starts[] = {0, (1ull << 32) - 5, (1ull << 63) - 5, UINT64_MAX - 1000};
    struct reader_report report[READERS_MAX] = {{0}};
    uint64_t dice = stress_random(state), writer_seed = dice | 1;
    pthread_t thread[READERS_MAX + 1];
    uint32_t readers = 1 + (dice >> 16 & 1); /* with one, each has a core */
    records = sizes[dice % 5][0];
    gate_records = sizes[dice % 5][1];
    start_tail = starts[dice >> 8 & 3];
    memset(&ring, 0, sizeof ring);
    if (start_tail)
        spw_bcast_start_at(&ring.head, ring.slot, records, start_tail);
    spw_store_relaxed(&writer_done, 0);
    round_end_ns = stress_now_ns() + ROUND_NS;
    for (uint32_t i = 0; i < readers; i++) {
        report[i].seed = stress_random(state) | 1;
        report[i].cpu = i + 1;
        pthread_create(&thread[i], NULL, read_all, &report[i]);
    }
    pthread_create(&thread[readers], NULL, write_all, &writer_seed);
    for (uint32_t i = 0; i <= readers; i++)
        pthread_join(thread[i], NULL);
    for (uint32_t i = 0; i < readers; i++) {
        total->taken += report[i].taken;
        total->gaps += report[i].gaps;
        total->wrong += report[i].wrong;
    }
}

int main(int argc, char **argv)
{
    run = stress_arguments(argc, argv, mutants);
    stress_pin(&run, 0);
    struct reader_report total = {0};
    uint64_t state = run.seed * 2654435761u | 1;
    uint64_t end_ns = stress_now_ns() + (uint64_t)(run.seconds * 1e9);
    char counts[128];
#ifdef SPW_MUTANTS
    ring_mutant_set_up(run.mutate, &ring.head);
    lowers_gate = strcmp(run.mutate, "lower_gate") == 0;
#endif
    do
        one_round(&state, &total);
    while (stress_now_ns() < end_ns && total.wrong == 0);
    snprintf(counts, sizeof counts, "%" PRIu64 " records, %" PRIu64 " gaps", total.taken,
             total.gaps);
    /* on one CPU a reader is nearly always lapped before it runs */
    if (!run.mutate && (total.gaps == 0 || (total.taken == 0 && run.cpus > 1))) {
        printf("%s: readers took nothing or were never lapped\n", counts);
        return 1;
    }
    return stress_end(&run, total.wrong, counts);
}
