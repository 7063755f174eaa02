/*
 * Lanes: a producer and a consumer over lanes of 2, 4 and 8 slots, messages of 1 to all slots;
 * every message must arrive once, in order and whole. Shared: one lane.
 */
#include "tests/stress/stress.h"

#include "shm/lane.h"
#include "tests/stress/mutants.h"

#include <pthread.h>
#include <sched.h>

#ifdef SPW_MUTANTS
/* no_room: the producer doesn't ask for room; head_first: the consumer gives slots back before it
 * has read them; the other: lane_mutants.c */
static const char *const mutants[] = {"no_room", "head_first", "seq_first", NULL};
#else
static const char *const mutants[] = {NULL};
#endif

#define SLOTS_MAX 8
#define ROUND_NS  60000000ull
#define STALL_NS  20000000000ull

static struct stress run; /* fixed before the threads start */
static struct spw_lane_slot slot[SLOTS_MAX];
static spw_atomic64 tail_word, head_word;
static uint32_t slots;
static uint64_t round_end_ns, sent_total;
static spw_atomic32 producer_done;
static bool no_room, head_first;

struct consumer_report {
    uint64_t messages, wrong;
};

/* Message number @number has this many slots. */
static uint32_t size_of(uint64_t number)
{
    return 1 + (uint32_t)(number * 0x9e3779b97f4a7c15ull >> 40) % slots;
}

static uint64_t stamp(uint64_t number, uint32_t index, uint32_t word)
{
    return (number * 16 + index) * 0x9e3779b97f4a7c15ull + word;
}

static void *produce(void *arg)
{
    uint64_t state = *(uint64_t *)arg, number = 0;
    struct spw_lane_producer lane;
    stress_pin(&run, 0);
#ifdef SPW_MUTANTS
    lane_mutant_is_producer();
#endif
    spw_lane_producer_init(&lane, slot, slots, &tail_word, &head_word);
    while (number % 256 || stress_now_ns() < round_end_ns) {
        uint32_t size = size_of(number);
        if (spw_lane_room(&lane, size) < size && !no_room) {
            sched_yield();
            if (stress_now_ns() > round_end_ns + STALL_NS)
                break;
            continue;
        }
        for (uint32_t i = 0; i < size; i++) {
            uint64_t word[7];
            for (uint32_t w = 0; w < 7; w++)
                word[w] = stamp(number, i, w);
            spw_lane_write(&lane, i, word, sizeof word);
        }
        spw_lane_send(&lane, size);
        number++;
        if ((stress_random(&state) & 63) == 0)
            sched_yield();
    }
    sent_total = number;
    spw_store_release(&producer_done, 1);
    return NULL;
}

static bool is_whole(const uint64_t *word, uint64_t number, uint32_t index)
{
    for (uint32_t w = 0; w < 7; w++) {
        if (word[w] != stamp(number, index, w))
            return false;
    }
    return true;
}

/* Take one message, which must be number @number. */
static bool take(struct spw_lane_consumer *lane, uint64_t number)
{
    struct spw_lane_consumer before = *lane;
    uint32_t size = size_of(number);
    uint64_t word[7];
    bool right = true;
    if (head_first)
        spw_lane_release(lane, size);
    for (uint32_t i = 0; i < size; i++) {
        int rc = spw_lane_read(&before, i, word, sizeof word);
        right = right && rc == 0 && is_whole(word, number, i);
    }
    if (!head_first)
        spw_lane_release(lane, size);
    return right;
}

static void *consume(void *arg)
{
    struct consumer_report *report = arg;
    struct spw_lane_consumer lane;
    uint64_t word[7];
    stress_pin(&run, 1);
    spw_lane_consumer_init(&lane, slot, slots, &head_word);
    for (bool last = false; report->wrong == 0;) {
        if (spw_lane_peek(&lane, word)) {
            report->wrong += !take(&lane, report->messages);
            report->messages++;
        } else if (last) {
            break;
        } else {
            last = spw_load_acquire(&producer_done);
            sched_yield();
        }
    }
    return NULL;
}

static void one_round(uint64_t *state, struct consumer_report *total)
{
    struct consumer_report report = {0};
    uint64_t seed = stress_random(state) | 1;
    pthread_t producer, consumer;
    slots = 2u << stress_random(state) % 3;
    memset(slot, 0, sizeof slot);
    spw_store_relaxed(&tail_word, 0);
    spw_store_relaxed(&head_word, 0);
    spw_store_relaxed(&producer_done, 0);
    round_end_ns = stress_now_ns() + ROUND_NS;
    pthread_create(&consumer, NULL, consume, &report);
    pthread_create(&producer, NULL, produce, &seed);
    pthread_join(consumer, NULL);
    if (report.wrong) /* nobody makes room any more */
        no_room = true;
    pthread_join(producer, NULL);
    total->wrong += report.wrong + (report.messages != sent_total);
    total->messages += report.messages;
}

int main(int argc, char **argv)
{
    run = stress_arguments(argc, argv, mutants);
    stress_pin(&run, 0);
    struct consumer_report total = {0};
    uint64_t state = run.seed * 2654435761u | 1;
    uint64_t end_ns = stress_now_ns() + (uint64_t)(run.seconds * 1e9);
    char counts[64];
#ifdef SPW_MUTANTS
    lane_mutant_set_up(run.mutate);
    no_room = strcmp(run.mutate, "no_room") == 0;
    head_first = strcmp(run.mutate, "head_first") == 0;
#endif
    do
        one_round(&state, &total);
    while (stress_now_ns() < end_ns && total.wrong == 0);
    snprintf(counts, sizeof counts, "%" PRIu64 " messages", total.messages);
    return stress_end(&run, total.wrong + (total.messages == 0), counts);
}
