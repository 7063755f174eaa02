/* What a worker makes of what its tier says: chunks that were found, spaces that open, the text that
 * is shown, resets and whose they are. A tier in memory on the test's clock. */
#include <criterion/criterion.h>
#include <string.h>

#include "tests/support/stub_cold.h"
#include "tests/support/worker_rig.h"
#include "tier/space_hash.h"

TestSuite(worker_cold, .timeout = 30);

#define OTHER 5u /* a space of one group, 64 B chunks */

static struct rig rig;
static struct rig_client one;
static struct spw_cold stub;

static void start(uint32_t capacity)
{
    struct rig_config config = {
        .capacity = capacity,
        .cold_chunks = STUB_CHUNKS,
        .below = &stub,
        .cold_policy = {.queue_chunks = 64, .promote_percent = 100, .hold_ns = RIG_SECOND}};
    rig_open(&rig, &config);
    rig_attach(&rig, &one);
}

static uint64_t count(enum spw_worker_counter counter)
{
    return rig_count(&rig, 0, counter);
}

static void store(uint64_t first, uint32_t chunks)
{
    for (uint64_t key = first; key < first + chunks; key++)
        rig_store(&rig, &one, 0, key, 1);
}

static uint64_t promote_of(uint32_t space, uint64_t number)
{
    uint64_t body[7] = {0}, digest[2];
    uint8_t key[RIG_KEY_BYTES];
    struct spw_command head = rig_head(&rig, &one, 0, SPW_CMD_PROMOTE);
    rig_key(0, number, key);
    spw_chunk_digest(space, 0, key, RIG_KEY_BYTES, digest);
    body[0] = digest[0];
    head.space = (uint8_t)space;
    head.count = 1;
    head.body_slots = 1;
    cr_assert(rig_send(&one, 0, &head, body));
    return rig_answer(&rig, &one, 0).mask;
}

static uint64_t promote(uint64_t number)
{
    return promote_of(RIG_SPACE, number);
}

/* Another worker, and the clients know. */
static void restart(void)
{
    rig_end_worker(&rig, 0);
    rig_start_worker(&rig, 0);
    rig_settle(&rig);
    spw_store_release(&rig.daemon.ctl->worker[0].incarnation,
                      spw_load_relaxed(&rig.daemon.feed[0]->incarnation));
}

static const char *shown(void)
{
    static uint64_t word[SPW_TIER_TEXT_WORDS];
    for (uint32_t i = 0; i < SPW_TIER_TEXT_WORDS; i++)
        word[i] = spw_load_relaxed(&rig.daemon.feed[0]->tier_text[i]);
    return (const char *)word;
}

/* ---- what is found --------------------------------------------------------------------------- */

Test(worker_cold, what_is_found_and_cannot_be_of_its_space_is_dropped)
{
    start(4);
    store(1, 20); /* id 0 has key 1 */
    stub.chunk[0].bytes = 64;
    stub.chunk[1].name.group = 1; /* of 64 B */
    stub.chunk[2].name.group = 2;
    stub.chunk[2].bytes = 0; /* as beyond the last of its groups */
    stub.chunk[3].name.rank = 2;
    stub.chunk[4].name.key_bytes = 0;
    stub.chunk[5].name.key_bytes = 65;
    stub.chunk[6].name.group = UINT32_MAX;
    restart();
    cr_expect_eq(count(SPW_WORKER_cold_found), 20);
    cr_expect_eq(stub.held, 20 - 7);
    for (uint32_t id = 0; id < 10; id++)
        cr_expect_eq(stub.chunk[id].held, id >= 7, "%u", id);
    cr_expect_eq(promote(1), 1);
    cr_expect_eq(promote(8), 0);
    rig_close(&rig);
}

static void open_other(void)
{
    struct spw_space_slot *slot = &rig.daemon.ctl->space[OTHER];
    slot->record = (struct spw_space_record){.fingerprint = "other",
                                             .blocks_per_chunk = 2,
                                             .hash_unit_tokens = 16,
                                             .groups = 1,
                                             .ranks = 1};
    slot->record.group[0] = (struct spw_group_record){
        .block_tokens = 16, .chunk_bytes = 2 * RIG_BLOCK_BYTES, .nominal_bytes = 1000};
}

Test(worker_cold, each_space_that_opens_gets_what_is_below_for_it)
{
    start(4);
    store(1, 12);
    open_other();
    spw_space_hash(&rig.daemon.ctl->space[OTHER].record, stub.chunk[0].name.space); /* key 1 */
    spw_space_hash(&rig.daemon.ctl->space[OTHER].record, stub.chunk[1].name.space);
    stub.chunk[2].name.space[0] ^= 1; /* of none: the walk has something left to look at */
    spw_store_relaxed(&rig.daemon.ctl->space[RIG_SPACE].ready, 0);
    restart();
    cr_assert_eq(count(SPW_WORKER_cold_found), 12);
    spw_store_release(&rig.daemon.ctl->space[RIG_SPACE].ready, 1);
    rig_settle(&rig);
    cr_expect_eq(promote(4), 0);
    cr_expect_eq(promote(3), 1);
    cr_expect_eq(promote(1), 1, "another space's");
    spw_store_release(&rig.daemon.ctl->space[OTHER].ready, 1);
    rig_settle(&rig);
    cr_expect_eq(promote_of(OTHER, 1), 0);
    cr_expect_eq(promote_of(OTHER, 2), 0);
    cr_expect_eq(promote_of(OTHER, 3), 1);
    cr_expect_eq(stub.held, 12, "and nothing was dropped");
    rig_close(&rig);
}

/* ---- what is shown --------------------------------------------------------------------------- */

Test(worker_cold, why_it_is_down_is_shown_as_long_as_it_is)
{
    start(4);
    cr_expect_str_empty(shown());
    stub.down = true;
    rig_settle(&rig);
    cr_expect_str_eq(shown(), "told to be down");
    cr_expect_eq(spw_load_relaxed(&rig.daemon.feed[0]->tier[SPW_TIER_NVME].state), SPW_TIER_DOWN);
    stub.down = false;
    rig_settle(&rig);
    cr_expect_str_empty(shown());
    stub.absent = true;
    restart();
    cr_expect_str_eq(shown(), "somebody else has it");
    rig_close(&rig);
}

/* ---- resets ---------------------------------------------------------------------------------- */

static void send_reset(void)
{
    struct spw_command head = rig_head(&rig, &one, 0, SPW_CMD_RESET);
    cr_assert(rig_send(&one, 0, &head, NULL));
    rig_settle(&rig);
}

Test(worker_cold, the_end_of_a_reset_is_told_to_whom_it_was_for)
{
    struct spw_done done;
    start(4);
    stub.reset_waits = true;
    send_reset();
    void *first = stub.reset_tag;
    uint32_t place = one.c;
    rig_die(&one);
    for (int i = 0; i < 20; i++) {
        rig_advance(&rig, RIG_SECOND / 10);
        rig_settle(&rig);
    }
    rig_attach(&rig, &one);
    cr_assert_eq(one.c, place);
    send_reset();
    cr_assert_neq(stub.reset_tag, first);
    stub_cold_end_reset(&stub, first);
    rig_settle(&rig);
    cr_expect(!rig_reap(&one, 0, &done), "that was another client's");
    stub_cold_end_reset(&stub, stub.reset_tag);
    cr_expect_eq(rig_answer(&rig, &one, 0).status, 0);
    rig_close(&rig);
}

Test(worker_cold, a_reset_leaves_no_entry_of_what_the_tier_said_nothing_of)
{
    start(4);
    store(1, 12);
    stub.chunk[0].held = false;
    stub.held--;
    send_reset();
    cr_expect_eq(rig_answer(&rig, &one, 0).status, 0);
    cr_expect_eq(promote(1), 1);
    cr_expect_eq(count(SPW_WORKER_promote_refused_gone), 1);
    cr_expect_eq(stub.gets, 0);
    rig_close(&rig);
}
