/* What a worker sends to the tier below where something else happens meanwhile: reads, resets,
 * evictions, another chunk in the slot, the end. A tier in memory on the test's clock. */
#include <criterion/criterion.h>
#include <string.h>

#include "tests/support/stub_cold.h"
#include "tests/support/worker_rig.h"

TestSuite(worker_down_edges, .timeout = 30);

static struct rig rig;
static struct rig_client one, two;
static struct spw_cold stub;

static void start_with(struct rig_config config)
{
    config.cold_chunks = STUB_CHUNKS;
    config.below = &stub;
    config.cold_policy.queue_chunks = 16;
    config.cold_policy.hold_ns = RIG_SECOND;
    if (config.cold_policy.promote_percent == 0)
        config.cold_policy.promote_percent = 100;
    rig_open(&rig, &config);
    rig_attach(&rig, &one);
}

static void start(uint32_t capacity, struct spw_cold_policy policy)
{
    start_with((struct rig_config){.capacity = capacity, .cold_policy = policy});
}

static uint64_t count(enum spw_worker_counter counter)
{
    return rig_count(&rig, 0, counter);
}

static uint64_t tag_of(uint64_t number)
{
    uint8_t key[RIG_KEY_BYTES];
    uint64_t digest[2];
    rig_key(0, number, key);
    spw_chunk_digest(RIG_SPACE, 0, key, RIG_KEY_BYTES, digest);
    return digest[0];
}

/* TOUCH or PROMOTE keys from @first on; not answered yet. */
static void send_tags(uint8_t op, uint64_t first, uint32_t chunks)
{
    uint64_t body[70] = {0};
    struct spw_command head = rig_head(&rig, &one, 0, op);
    for (uint32_t i = 0; i < chunks; i++)
        body[i] = tag_of(first + i);
    head.count = (uint16_t)chunks;
    head.body_slots = (uint8_t)((chunks + 6) / 7);
    cr_assert(rig_send(&one, 0, &head, body));
}

static void touch(uint64_t number)
{
    send_tags(SPW_CMD_TOUCH, number, 1);
    rig_settle(&rig);
}

static uint64_t promote(uint64_t first, uint32_t chunks)
{
    send_tags(SPW_CMD_PROMOTE, first, chunks);
    return rig_answer(&rig, &one, 0).mask;
}

/* What the tier has of key @number, or NULL. */
static struct stub_chunk *below(uint64_t number)
{
    uint8_t key[RIG_KEY_BYTES];
    rig_key(0, number, key);
    for (uint32_t id = 0; id < STUB_CHUNKS; id++)
        if (stub.chunk[id].held && memcmp(stub.chunk[id].name.key, key, sizeof key) == 0)
            return &stub.chunk[id];
    return NULL;
}

/* It goes there by itself. */
static void lose(uint64_t number)
{
    struct stub_chunk *chunk = below(number);
    cr_assert_not_null(chunk);
    chunk->held = false;
    stub.held--;
    stub.listener.gone(stub.listener.ctx, (uint32_t)(chunk - stub.chunk), SPW_COLD_EVICTED);
}

/* ---- reads go first -------------------------------------------------------------------------- */

Test(worker_down_edges, CE_4_one_write_at_a_time_while_reads_wait)
{
    start(40, (struct spw_cold_policy){.promote_percent = 90});
    for (uint64_t key = 1; key <= 80; key++)
        rig_store(&rig, &one, 0, key, 1);
    stub.never = true;
    cr_expect_eq(promote(1, 36), 0);
    cr_expect_eq(stub.gets, 32, "as many as the tier takes: 4 wait");
    uint32_t puts = stub.puts;
    rig_store(&rig, &one, 0, 100, 3);
    cr_expect_eq(stub.puts, puts + 1);
    stub.never = false;
    rig_settle(&rig);
    cr_expect_eq(stub.puts, puts + 3);
    cr_expect_eq(stub.gets, 36);
    rig_close(&rig);
}

Test(worker_down_edges, CE_4_of_a_read_and_writes_that_may_begin_at_once_the_read_does)
{
    start(8, (struct spw_cold_policy){0});
    for (uint64_t key = 1; key <= 12; key++)
        rig_store(&rig, &one, 0, key, 1);
    stub.put_refusal = -EAGAIN;
    rig_store(&rig, &one, 0, 20, 2);
    cr_expect_eq(stub.puts, 12);
    stub.put_refusal = 0;
    send_tags(SPW_CMD_PROMOTE, 1, 1);
    rig_settle(&rig);
    cr_expect_str_eq(stub.order + 12, "gpp", "%s", stub.order + 12);
    rig_close(&rig);
}

/* ---- what goes meanwhile --------------------------------------------------------------------- */

Test(worker_down_edges, what_was_reset_while_it_was_written_is_not_below)
{
    stub.put_ns = RIG_SECOND;
    start(8, (struct spw_cold_policy){0});
    rig_store(&rig, &one, 0, 1, 1);
    cr_assert_eq(stub.in_flight, 1);
    struct spw_command head = rig_head(&rig, &one, 0, SPW_CMD_RESET);
    cr_assert(rig_send(&one, 0, &head, NULL));
    cr_expect_eq(rig_answer(&rig, &one, 0).status, 0);
    rig_advance(&rig, RIG_SECOND);
    rig_settle(&rig);
    cr_expect_eq(stub.in_flight, 0);
    cr_expect_eq(stub.held, 0);
    cr_expect_eq(count(SPW_WORKER_cold_written), 0);
    cr_expect_eq(count(SPW_WORKER_cold_bytes_written), 0);
    cr_expect_eq(count(SPW_WORKER_cold_dropped_gone), 1);
    cr_expect_eq(promote(1, 1), 1, "nor anywhere");
    rig_close(&rig);
}

Test(worker_down_edges, the_reserve_lends_slots_to_what_waits_and_is_evicted)
{
    start_with((struct rig_config){.capacity = 8, .reserve = 3}); /* two may be lent */
    for (uint64_t round = 0; round < 2; round++) {
        uint64_t first = 1 + 100 * round, dropped = count(SPW_WORKER_cold_dropped_gone);
        for (uint64_t key = first; key < first + 8; key++)
            rig_store(&rig, &one, 0, key, 1);
        rig_settle(&rig);
        cr_assert_eq(rig_claims(&rig, 0), 0);
        lose(first);
        lose(first + 1);
        lose(first + 2);
        stub.put_refusal = -EAGAIN;
        send_tags(SPW_CMD_TOUCH, first, 3); /* wanted again */
        rig_settle(&rig);
        for (uint64_t key = first + 3; key < first + 8; key++)
            touch(key);
        for (uint64_t key = first + 8; key < first + 10; key++)
            rig_store(&rig, &one, 0, key, 1);
        cr_expect_eq(rig_state(&rig, 0, first, NULL) == SPW_READY, false, "evicted");
        cr_expect_eq(rig_claims(&rig, 0), 2);
        cr_expect_eq(count(SPW_WORKER_cold_dropped_gone), dropped);
        rig_store(&rig, &one, 0, first + 10, 1);
        cr_expect_eq(rig_claims(&rig, 0), 2);
        cr_expect_eq(count(SPW_WORKER_cold_dropped_gone), dropped + 1, "no third");
        stub.put_refusal = 0;
        rig_settle(&rig);
        cr_expect_not_null(below(first));
        cr_expect_not_null(below(first + 1));
        cr_expect_null(below(first + 2));
        cr_expect_eq(rig_claims(&rig, 0), 0);
    }
    rig_close(&rig);
}

/* ---- what is parked -------------------------------------------------------------------------- */

Test(worker_down_edges, write_back_parks_what_is_among_the_oldest_and_not_there_yet)
{
    start(32, (struct spw_cold_policy){.write_back = true});
    cr_assert(rig_reserve(&rig, &one, 0, 1, 1));
    uint64_t ticket = rig_answer(&rig, &one, 0).ticket;
    for (uint64_t key = 2; key <= 30; key++)
        rig_store(&rig, &one, 0, key, 1);
    cr_expect_null(below(1));
    cr_assert(rig_run(&rig, &one, 0, SPW_CMD_STORE, ticket, 1, 0));
    rig_settle(&rig);
    cr_expect_eq(count(SPW_WORKER_cold_parked), 1);
    cr_expect_not_null(below(1));
    rig_close(&rig);
}

Test(worker_down_edges, what_was_parked_is_not_what_comes_into_its_slot)
{
    struct spw_entry_copy at;
    start(1, (struct spw_cold_policy){.admit_sightings = 2});
    rig_attach(&rig, &two);
    cr_assert(rig_reserve(&rig, &one, 0, 1, 1));
    uint64_t ticket = rig_answer(&rig, &one, 0).ticket;
    cr_assert(rig_reserve(&rig, &two, 0, 1, 1)); /* seen twice: parked */
    rig_answer(&rig, &two, 0);
    rig_state(&rig, 0, 1, &at);
    uint32_t slot = at.slot;
    cr_assert(rig_cancel(&rig, &one, 0, ticket));
    rig_settle(&rig);
    cr_assert_eq(rig_state(&rig, 0, 1, NULL) == SPW_FILLING, false);
    bool there = false;
    for (uint64_t key = 10; key < 14; key++) {
        rig_store(&rig, &one, 0, key, 1);
        rig_state(&rig, 0, key, &at);
        there = there || at.slot == slot;
    }
    cr_assert(there);
    cr_expect_eq(count(SPW_WORKER_cold_parked), 0);
    cr_expect_eq(stub.puts, 0);
    cr_expect_eq(count(SPW_WORKER_cold_not_admitted), 4);
    rig_close(&rig);
}

/* ---- what is said of it ---------------------------------------------------------------------- */

Test(worker_down_edges, a_checksum_is_of_the_chunk_that_it_was_made_of)
{
    start(1, (struct spw_cold_policy){.sum_at_store = true});
    for (uint64_t key = 1; key <= 4; key++)
        rig_store(&rig, &one, 0, key, 1);
    cr_assert(stub.puts == 4 && stub.summed);
    for (uint64_t key = 1; key <= 3; key++) { /* into either slot, behind what was stored there */
        cr_assert_eq(promote(key, 1), 0);
        lose(key);
        uint32_t puts = stub.puts;
        touch(key);
        cr_expect(stub.puts == puts + 1 && !stub.summed);
        rig_advance(&rig, 2 * RIG_SECOND);
        rig_settle(&rig);
    }
    rig_close(&rig);
}

Test(worker_down_edges, the_tier_is_told_what_is_used)
{
    start(2, (struct spw_cold_policy){0});
    for (uint64_t key = 1; key <= 4; key++)
        rig_store(&rig, &one, 0, key, 1);
    uint64_t age = stub.age;
    touch(1);
    cr_expect_eq(below(1)->age, age + 1, "it is below alone");
    touch(4);
    cr_expect_eq(below(4)->age, age + 2, "it is above, too");
    cr_expect_eq(promote(2, 1), 0);
    cr_expect_eq(below(2)->age, age + 3);
    rig_close(&rig);
}

/* Store @number, which stands right behind @before. */
static void store_behind(uint64_t before, uint64_t number)
{
    uint8_t body[2 * SPW_LANE_PAYLOAD_BYTES] = {0}, key[RIG_KEY_BYTES];
    struct spw_command head = rig_head(&rig, &one, 0, SPW_CMD_RESERVE);
    struct spw_reserve_key raw = {.key_bytes = RIG_KEY_BYTES};
    rig_key(0, number, key);
    memcpy(raw.key, key, sizeof raw.key);
    spw_chunk_digest(RIG_SPACE, 0, key, RIG_KEY_BYTES, raw.digest);
    memcpy(body, &raw, sizeof raw);
    memcpy(body + SPW_LANE_PAYLOAD_BYTES, key + sizeof raw.key, RIG_KEY_BYTES - sizeof raw.key);
    head.count = 1;
    head.body_slots = 2;
    head.ticket = tag_of(before);
    head.arg = spw_load_relaxed(&rig.daemon.feed[0]->space_generation[RIG_SPACE]) << 8;
    cr_assert(rig_send(&one, 0, &head, body));
    cr_assert(rig_run(&rig, &one, 0, SPW_CMD_STORE, rig_answer(&rig, &one, 0).ticket, 1, 0));
    cr_assert_eq(rig_answer(&rig, &one, 0).status, 0);
}

Test(worker_down_edges, CE_9_what_hangs_on_a_chunk_that_went_below_goes_next_there)
{
    start(4, (struct spw_cold_policy){0});
    rig_store(&rig, &one, 0, 1, 1);
    store_behind(1, 2);
    rig_store(&rig, &one, 0, 10, 4); /* 1 and 2 are below alone */
    cr_expect_neq(below(2)->age, 0);
    lose(1);
    cr_expect_eq(below(2)->age, 0);
    cr_expect_eq(count(SPW_WORKER_orphaned), 1);
    rig_close(&rig);
}

/* ---- the end --------------------------------------------------------------------------------- */

Test(worker_down_edges, what_comes_while_the_worker_ends_does_not_go_down)
{
    spw_atomic32 stop = 1;
    start_with((struct rig_config){
        .capacity = 4,
        .real_clock = true,
        .copier = {.rate_bytes = {1000 /* nominal */ * 50, 0}, .in_flight = {1, 1}}});
    cr_assert(rig_reserve(&rig, &one, 0, 1, 1));
    uint64_t ticket = rig_answer(&rig, &one, 0).ticket;
    cr_assert(rig_run(&rig, &one, 0, SPW_CMD_STORE, ticket, 1, 0));
    rig_pass(&rig);
    cr_assert_eq(rig_slots_in(&rig, 0, SPW_FILLING), 1, "its copy lasts");
    cr_expect_eq(spw_worker_run(rig.worker[0], &stop), 0);
    cr_expect_eq(rig_slots_in(&rig, 0, SPW_READY), 1);
    cr_expect_eq(count(SPW_WORKER_cold_wanted), 1);
    cr_expect_eq(stub.puts, 0);
    rig_close(&rig);
}

Test(worker_down_edges, transfers_that_go_on_after_the_end_are_told)
{
    spw_atomic32 stop = 1;
    start_with((struct rig_config){.capacity = 4, .real_clock = true});
    cr_expect_eq(spw_worker_run(rig.worker[0], &stop), 0);
    cr_expect(!spw_worker_left_io(rig.worker[0]));
    rig_close(&rig);
    start_with((struct rig_config){.capacity = 4, .real_clock = true});
    stub.close_status = -ETIMEDOUT;
    cr_expect_eq(spw_worker_run(rig.worker[0], &stop), 0);
    cr_expect(spw_worker_left_io(rig.worker[0]));
    stub.close_status = 0;
    rig_close(&rig);
}
