/* The checker that tests of deaths rely on finds what it is there to find. */
#include "tests/support/account.h"
#include "tests/support/worker_rig.h"

#include <criterion/criterion.h>
#include <string.h>

TestSuite(account, .timeout = 30);

static struct rig rig;
static struct rig_client client;
static char words[200];

static void start(void)
{
    rig_open(&rig, &(struct rig_config){.capacity = 8});
    rig_attach(&rig, &client);
    rig_store(&rig, &client, 0, 1, 4);
}

static bool idle(void)
{
    return account_fine(&rig.daemon, ACCOUNT_IDLE | ACCOUNT_COUNTERS, words, sizeof words);
}

static void expect_words(const char *part)
{
    cr_expect(!idle() && strstr(words, part), "\"%s\" without \"%s\"", words, part);
}

static struct spw_entry *entry_of(uint64_t number)
{
    struct spw_entry_copy copy;
    cr_assert_eq(rig_state(&rig, 0, number, &copy), SPW_READY);
    struct spw_entry *entry = spw_pool_feed_at(&rig.daemon, 0, rig.daemon.feed_map.entry_off);
    return &entry[copy.slot];
}

static void set_state(struct spw_entry *entry, uint32_t state)
{
    spw_store_relaxed(&entry->packed, (spw_load_relaxed(&entry->packed) & ~0xffull) | state);
}

Test(account, a_quiet_pool_adds_up_and_so_do_its_refusals)
{
    start();
    cr_expect(idle(), "%s", words);
    cr_assert(rig_reserve(&rig, &client, 0, 1, 4), "present already");
    rig_answer(&rig, &client, 0);
    cr_assert(rig_reserve(&rig, &client, 0, 20, 64), "more than there is room for");
    struct spw_done done = rig_answer(&rig, &client, 0);
    expect_words("FILLING");
    cr_expect(account_fine(&rig.daemon, 0, words, sizeof words), "%s", words);
    rig_cancel(&rig, &client, 0, done.ticket);
    rig_settle(&rig);
    cr_expect(idle(), "%s", words);
    rig_close(&rig);
}

Test(account, what_is_held_by_nobody_is_told)
{
    start();
    struct spw_entry *entry = entry_of(2);
    set_state(entry, SPW_RETIRED);
    expect_words("RETIRED");
    spw_store_relaxed(&rig.daemon.feed[0]->lingering, 1);
    cr_expect(idle(), "quarantine is no leak: %s", words);
    spw_store_relaxed(&rig.daemon.feed[0]->lingering, 0);
    set_state(entry, 9);
    expect_words("makes no sense");
    set_state(entry, SPW_READY);
    spw_add_own(&entry->seq, 1);
    expect_words("torn");
    spw_add_own(&entry->seq, 1);
    spw_store_relaxed(&entry->digest[0], spw_load_relaxed(&entry->digest[0]) ^ 1);
    expect_words("not found");
    rig_close(&rig);
}

Test(account, claims_counters_and_steps_of_a_quiet_pool_are_told)
{
    start();
    spw_atomic64 *copying = spw_pool_feed_at(&rig.daemon, 0, rig.daemon.feed_map.copying_off);
    spw_bit_set(copying, 3);
    expect_words("copying bit");
    spw_bit_clear(copying, 3);
    spw_add_own(&rig.daemon.feed[0]->counter[SPW_WORKER_chunks_stored], 1);
    expect_words("offered");
    spw_add_own(&rig.daemon.feed[0]->counter[SPW_WORKER_chunks_offered], 1);
    spw_add_own(&rig.daemon.feed[0]->stream.bytes_queued, 1);
    expect_words("stream");
    spw_add_own(&rig.daemon.feed[0]->stream.bytes_done, 1);
    spw_bit_set(client.view->pin, 2);
    expect_words("pins");
    spw_bit_clear(client.view->pin, 2);
    spw_client_await(client.view, 0, 2, true);
    expect_words("awaits");
    spw_client_await(client.view, 0, 2, false);
    uint64_t nothing[RIG_WORKERS] = {0};
    spw_client_step_begin(client.view, nothing);
    expect_words("inside a step");
    spw_client_step_end(client.view);
    cr_assert(rig_reserve(&rig, &client, 0, 30, 1));
    expect_words("untaken");
    rig_close(&rig);
}
