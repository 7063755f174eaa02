/* tier/worker: stores and loads in two halves, driven pass by pass on a clock of the test's. */
#include "tests/support/worker_rig.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

TestSuite(worker, .timeout = 30);

static struct rig rig;
static struct rig_client one;

static void fill_blocks(struct rig_client *client, uint32_t first, uint32_t count, int byte)
{
    memset(client->pool.kv[client->c] + first * RIG_BLOCK_BYTES, byte, count * RIG_BLOCK_BYTES);
}

static int block_byte(const struct rig_client *client, uint32_t block, uint32_t at)
{
    return client->pool.kv[client->c][block * RIG_BLOCK_BYTES + at];
}

/* What a quiet worker must not have kept. */
static void expect_quiet(uint32_t k)
{
    rig_settle(&rig);
    cr_expect(rig_open_chunks(&rig, k) == 0, "%d chunks open", (int)rig_open_chunks(&rig, k));
    cr_expect(rig_slots_in(&rig, k, SPW_FILLING) == 0);
    cr_expect(rig_claims(&rig, k) == 0);
    cr_expect(spw_load_relaxed(&rig.daemon.feed[k]->bytes_done) ==
              spw_load_relaxed(&rig.daemon.feed[k]->bytes_queued));
}

static struct spw_done reserve(struct rig_client *client, uint64_t first, uint32_t count)
{
    cr_assert(rig_reserve(&rig, client, 0, first, count));
    return rig_answer(&rig, client, 0);
}

Test(worker, a_store_and_a_load_carry_the_bytes)
{
    rig_open(&rig, &(struct rig_config){.capacity = 8});
    rig_attach(&rig, &one);
    for (uint32_t i = 0; i < 6; i++)
        fill_blocks(&one, i, 1, 'a' + (int)i);
    struct spw_done done = reserve(&one, 10, 3);
    cr_expect(done.kind == SPW_DONE_RESERVE && done.count == 3 && done.mask == 7);
    cr_expect(done.status == 0 && done.ticket != 0);
    for (uint64_t i = 10; i < 13; i++)
        cr_expect(rig_state(&rig, 0, i, NULL) == SPW_FILLING, "pending from the reserve on");

    cr_assert(rig_run(&rig, &one, 0, SPW_CMD_STORE, done.ticket, 3, 0));
    done = rig_answer(&rig, &one, 0);
    cr_expect(done.kind == SPW_DONE_STORE && done.status == 0 && done.mask == 0);
    for (uint64_t i = 10; i < 13; i++)
        cr_expect(rig_state(&rig, 0, i, NULL) == SPW_READY);

    cr_assert(rig_begin(&rig, &one, 0, 0, 10, 3));
    done = rig_answer(&rig, &one, 0);
    cr_expect(done.kind == SPW_DONE_BEGIN && done.count == 3 && done.status == 0);
    cr_expect(rig_claims(&rig, 0) == 3);
    cr_assert(rig_run(&rig, &one, 0, SPW_CMD_LOAD, done.ticket, 3, 20));
    done = rig_answer(&rig, &one, 0);
    cr_expect(done.kind == SPW_DONE_LOAD && done.status == 0 && done.mask == 0);
    for (uint32_t i = 0; i < 6; i++)
        cr_expect(block_byte(&one, 20 + i, 0) == 'a' + (int)i &&
                  block_byte(&one, 20 + i, 63) == 'a' + (int)i);
    expect_quiet(0);
    cr_expect(rig_count(&rig, 0, SPW_WORKER_chunks_stored) == 3);
    cr_expect(rig_count(&rig, 0, SPW_WORKER_bytes_stored) == 3 * 128);
    cr_expect(rig_count(&rig, 0, SPW_WORKER_chunks_loaded) == 3);
    cr_expect(rig_count(&rig, 0, SPW_WORKER_bytes_loaded) == 3 * 128);
    rig_close(&rig);
}
