/*
 * A client dies at every step of taking its object over, of a scheduling step and of sending a
 * command. The worker then sees a whole command or none, and the next holder starts clean.
 */
#include <criterion/criterion.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>

#include "shm/client.h"
#include "shm/crash_point.h"
#include "tests/support/env.h"

TestSuite(client_crash, .timeout = 60);

static const struct spw_geometry geometry = {
    .workers = 2,
    .clients = 2,
    .capacity_chunks = 70,
    .slots = 80,
    .slot_bytes = 64,
    .update_records = 8,
    .gate_records = 2,
    .command_slots = 8,
    .completion_slots = 8,
    .index_buckets = 8,
};

static const char *const points[] = {
    "client.words_cleared",   "client.pins_cleared", "client.awaited_cleared",
    "client.base_stored",     "client.tail_stored",  "client.generation_stored",
    "client.step_stored",     "client.step_ended",   "client.old_position_stored",
    "client.position_stored", "lane.payload_stored", "lane.body_seq_stored",
    "lane.seq_stored",        "lane.tail_stored",    "client.awaited_stored",
    "client.awaited_told"};

static struct spw_client_view view;
static struct spw_lane_producer producer;
static struct spw_lane_consumer consumer;

static void start(void)
{
    struct spw_client_map map;
    spw_client_map_init(&geometry, &map);
    void *bytes =
        mmap(NULL, map.size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    spw_client_view_init(&view, bytes, &geometry);
}

static void open_producer(void)
{
    spw_lane_producer_init(&producer, view.command, geometry.command_slots,
                           &view.head->lane[0].command_tail,
                           &view.head->worker_lane[0].command_head);
}

/* As worker 0 does when it acknowledges a generation. */
static void acknowledge(void)
{
    uint64_t base = spw_load_relaxed(&view.head->lane[0].command_base);
    spw_store_relaxed(&view.head->worker_lane[0].command_head, base);
    spw_lane_consumer_init(&consumer, view.command, geometry.command_slots,
                           &view.head->worker_lane[0].command_head);
}

/* Send a command of three slots that tells @tag in each; 0 or -1 if there is no room. */
static int send(uint64_t tag)
{
    if (spw_lane_room(&producer, 3) < 3)
        return -1;
    for (uint32_t i = 0; i < 3; i++)
        spw_lane_write(&producer, i, (uint64_t[]){tag, i}, 16);
    spw_lane_send(&producer, 3);
    return 0;
}

/* Take a command: its tag, 0 if there is none, ~0 if it isn't whole. */
static uint64_t take(void)
{
    uint64_t head[7], body[2];
    if (!spw_lane_peek(&consumer, head))
        return 0;
    for (uint32_t i = 1; i < 3; i++) {
        if (spw_lane_read(&consumer, i, body, 16) || body[0] != head[0] || body[1] != i)
            return ~0ull;
    }
    spw_lane_release(&consumer, 3);
    return head[0];
}

struct life {
    const char *point;
    uint32_t nth;
};

/* A client's life: hand-over, and two steps with a pin, a change of marks and a command each. */
static int live_and_die(void *arg)
{
    struct life *life = arg;
    const uint64_t old[2] = {3, 4};
    spw_crash_arm(life->point, life->nth);
    spw_client_take_over(&view);
    acknowledge(); /* the worker's part, done here so that there is no waiting */
    open_producer();
    for (uint64_t step = 1; step <= 2; step++) {
        spw_client_step_begin(&view, old);
        spw_client_step_applied(&view, 0, 10);
        spw_bit_set(view.pin, spw_claim_bit(view.claim_words, 1, 5));
        spw_client_await(&view, 1, 5, step == 1);
        spw_client_await_changed(&view, 1);
        if (send(step))
            return 1;
        spw_client_step_end(&view);
    }
    return 0;
}

/* What the next holder and the worker must find, whatever the last holder left. */
static void check_successor(const char *point, uint32_t nth)
{
    struct spw_client_claim claim;
    uint64_t seen = spw_client_awaited_changes(&view, 1); /* by a worker, before the death */
    uint64_t generation = spw_client_take_over(&view);
    cr_assert_neq(spw_client_awaited_changes(&view, 1), seen, "%s %u: it looks again", point, nth);
    cr_assert(!spw_client_has_untaken(&view), "%s %u", point, nth);
    spw_client_claim_read(&view, 0, &claim);
    cr_assert_eq(claim.generation, generation);
    cr_assert_eq(claim.applied, 0);
    for (uint64_t w = 0; w < geometry.workers * view.claim_words; w++)
        cr_assert_eq(spw_load_relaxed(&view.pin[w]) | spw_load_relaxed(&view.awaited[w]), 0);
    acknowledge();
    open_producer();
    cr_assert_eq(take(), 0, "%s %u: an old command at the new base", point, nth);
    for (uint64_t tag = 100; tag < 110; tag++) {
        cr_assert_eq(send(tag), 0);
        cr_assert_eq(take(), tag, "%s %u", point, nth);
        cr_assert_eq(take(), 0, "%s %u", point, nth);
    }
}

Test(client_crash, case31_and_lc7_any_death_leaves_whole_commands_and_a_clean_start)
{
    unsigned deaths = 0;
    start();
    for (size_t p = 0; p < sizeof points / sizeof points[0]; p++) {
        bool died = true;
        for (uint32_t nth = 1; died; nth++) {
            struct life life = {points[p], nth};
            uint64_t generation = spw_load_relaxed(&view.head->generation), last = 0, tag;
            int status = support_wait(support_fork(live_and_die, &life), 10000);
            cr_assert(status == 0 || status == SUPPORT_SIGNALLED + SIGKILL, "%s %u: %d", points[p],
                      nth, status);
            died = status != 0;
            deaths += died;
            cr_assert(died || nth > 1, "%s was never passed", points[p]);
            if (spw_load_relaxed(&view.head->generation) != generation) {
                acknowledge();
                while ((tag = take())) {
                    cr_assert_eq(tag, last + 1, "%s %u", points[p], nth);
                    last = tag;
                }
            }
            check_successor(points[p], nth);
        }
    }
    cr_assert_gt(deaths, 30);
}

static int take_one_and_die(void *arg)
{
    spw_crash_arm("lane.head_stored", 1);
    acknowledge();
    return take() == 1 ? 0 : 1;
}

Test(client_crash, dead_consumers_head_says_what_it_took)
{
    start();
    acknowledge();
    open_producer();
    cr_assert_eq(send(1), 0);
    cr_assert_eq(send(2), 0);
    cr_assert_eq(support_wait(support_fork(take_one_and_die, NULL), 10000),
                 SUPPORT_SIGNALLED + SIGKILL);
    spw_lane_consumer_init(&consumer, view.command, geometry.command_slots,
                           &view.head->worker_lane[0].command_head);
    cr_assert_eq(take(), 2, "the first one was taken, the second one is there");
    cr_assert_eq(take(), 0);
}
