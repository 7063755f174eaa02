/* tier/worker and clients that cut or remove their own objects: nothing of it is ever READY, nobody
 * else notices, and their places are served again once they have been made anew. */
#include "tests/support/account.h"
#include "tests/support/worker_rig.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "shm/alive.h"
#include "shm/guard.h"

TestSuite(worker_harm, .timeout = 60);

static struct rig rig;
static struct rig_client one, two;
static char words[200];

static const struct spw_pool_config rights = {.mode = 0600, .gid = -1};

static void start(const struct rig_config *config)
{
    cr_assert_eq(spw_guard_install(), 0);
    rig_open(&rig, config);
    rig_attach(&rig, &one);
    rig_attach(&rig, &two);
    rig_store(&rig, &two, 0, 50, 2);
}

/* Locks are asked ten times a second. */
static void tick(void)
{
    rig_advance(&rig, RIG_SECOND / 10);
    rig_settle(&rig);
}

static void cut(enum spw_region_kind kind, uint32_t c, uint64_t bytes)
{
    char name[SPW_PATH_BYTES];
    spw_region_name(&rig.daemon.path, kind, c, name);
    cr_assert_eq(truncate(name, (off_t)bytes), 0);
}

static void drop(enum spw_region_kind kind, uint32_t c)
{
    char name[SPW_PATH_BYTES];
    spw_region_name(&rig.daemon.path, kind, c, name);
    cr_assert_eq(unlink(name), 0);
}

static int renew(void)
{
    struct spw_error err;
    return spw_pool_renew(&rig.daemon, &rights, &err);
}

static void expect_others_fine(void)
{
    cr_assert(rig_begin(&rig, &two, 0, 0, 50, 2));
    struct spw_done done = rig_answer(&rig, &two, 0);
    cr_expect(done.status == 0 && done.count == 2);
    cr_assert(rig_run(&rig, &two, 0, SPW_CMD_LOAD, done.ticket, 2, 8));
    done = rig_answer(&rig, &two, 0);
    cr_expect(done.status == 0 && done.mask == 0);
}

/* Its place is given to a new client, who stores and loads there, from and into its own blocks. */
static void expect_place_works(uint32_t c)
{
    static struct rig_client next;
    rig_attach(&rig, &next);
    cr_assert_eq(next.c, c);
    uint8_t *blocks = next.pool.kv[c];
    memset(blocks, 0xa5, 2 * RIG_BLOCK_BYTES); /* where rig_store() takes a chunk from */
    rig_store(&rig, &next, 0, 70 + c, 1);
    cr_assert(rig_begin(&rig, &next, 0, 0, 70 + c, 1));
    struct spw_done done = rig_answer(&rig, &next, 0);
    cr_assert(done.status == 0 && done.count == 1);
    cr_assert(rig_run(&rig, &next, 0, SPW_CMD_LOAD, done.ticket, 1, 8));
    done = rig_answer(&rig, &next, 0);
    cr_expect(done.status == 0 && done.mask == 0);
    cr_expect_eq(memcmp(blocks, blocks + 8 * RIG_BLOCK_BYTES, 2 * RIG_BLOCK_BYTES), 0);
    cr_assert(rig_begin(&rig, &next, 0, 0, 50, 2));
    done = rig_answer(&rig, &next, 0);
    cr_expect(done.status == 0 && done.count == 2);
    rig_cancel(&rig, &next, 0, done.ticket);
    rig_settle(&rig);
    rig_die(&next);
    tick();
}

static void end(void)
{
    cr_expect(account_settles(&rig.daemon, ACCOUNT_IDLE | ACCOUNT_COUNTERS, 0, words, sizeof words),
              "%s", words);
    rig_close(&rig);
}

/* One store on its way when its blocks are cut off. */
static struct spw_done store_then_cut(uint64_t bytes)
{
    cr_assert(rig_reserve(&rig, &one, 0, 1, 2));
    struct spw_done job = rig_answer(&rig, &one, 0);
    cr_assert_eq(job.count, 2);
    cr_assert(rig_run(&rig, &one, 0, SPW_CMD_STORE, job.ticket, 2, RIG_BLOCKS - 4));
    rig_pass(&rig);
    cut(SPW_REGION_KV, one.c, bytes);
    return job;
}

Test(worker_harm, a_store_whose_blocks_were_cut_is_never_ready)
{
    static const uint64_t sizes[] = {0, 4096, 8192};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        start(&(struct rig_config){.capacity = 8, .copier.rate_bytes = {1000, 0}});
        store_then_cut(sizes[i]);
        rig_advance(&rig, 3 * RIG_SECOND);
        rig_settle(&rig);
        cr_expect_neq(rig_state(&rig, 0, 1, NULL), SPW_READY);
        cr_expect_neq(rig_state(&rig, 0, 2, NULL), SPW_READY);
        cr_expect_geq(rig_count(&rig, 0, SPW_WORKER_stores_failed), 1);
        cr_expect_eq(rig_count(&rig, 0, SPW_WORKER_clients_gone), 1, "it lost itself");
        expect_others_fine();
        rig_die(&one);
        tick();
        cr_expect_eq(renew(), 1);
        tick();
        expect_place_works(0);
        end();
    }
}

Test(worker_harm, a_load_into_blocks_that_were_cut_fails_and_the_chunk_stays)
{
    start(&(struct rig_config){.capacity = 8, .copier.rate_bytes = {0, 1000}});
    cr_assert(rig_begin(&rig, &one, 0, 0, 50, 2));
    struct spw_done job = rig_answer(&rig, &one, 0);
    cr_assert(rig_run(&rig, &one, 0, SPW_CMD_LOAD, job.ticket, 2, RIG_BLOCKS - 4));
    rig_pass(&rig);
    cut(SPW_REGION_KV, one.c, 4096);
    rig_advance(&rig, 3 * RIG_SECOND);
    rig_settle(&rig);
    cr_expect_geq(rig_count(&rig, 0, SPW_WORKER_loads_failed), 1);
    cr_expect_eq(rig_state(&rig, 0, 50, NULL), SPW_READY);
    rig_die(&one);
    tick();
    end();
}

Test(worker_harm, a_client_that_cut_its_object_is_served_no_more_and_holds_nothing)
{
    uint64_t nothing[RIG_WORKERS] = {0};
    start(&(struct rig_config){.capacity = 2, .workers = 2});
    spw_client_step_begin(one.view, nothing);
    cr_assert(rig_reserve(&rig, &two, 0, 60, 2));
    cr_expect_lt(rig_answer(&rig, &two, 0).count, 2, "a step is in the way");
    cut(SPW_REGION_CLIENT, one.c, 0);
    tick();
    cr_expect_eq(rig_count(&rig, 0, SPW_WORKER_clients_gone), 1);
    cr_expect_eq(rig_count(&rig, 1, SPW_WORKER_clients_gone), 1);
    for (int i = 0; i < 20; i++)
        tick();
    cr_expect_eq(rig_count(&rig, 0, SPW_WORKER_clients_gone), 1, "once");
    rig_store(&rig, &two, 0, 80, 2);
    cr_expect_eq(renew(), 0, "its process holds the place");
    rig_die(&one);
    cr_expect_eq(renew(), 1);
    tick();
    rig_attach(&rig, &one);
    cr_expect_eq(one.c, 0);
    cr_expect_eq(one.generation, (1ull << 32) + 1);
    rig_store(&rig, &one, 1, 90, 1);
    rig_close(&rig);
}

/* It had jobs open, and a copy that only ends later. */
Test(worker_harm, a_removed_object_is_used_to_the_end_by_who_has_it)
{
    start(&(struct rig_config){.capacity = 8, .copier.rate_bytes = {1000, 0}});
    cr_assert(rig_reserve(&rig, &one, 0, 1, 1));
    struct spw_done job = rig_answer(&rig, &one, 0);
    cr_assert(rig_run(&rig, &one, 0, SPW_CMD_STORE, job.ticket, 1, 0));
    rig_pass(&rig);
    drop(SPW_REGION_KV, one.c);
    drop(SPW_REGION_CLIENT, one.c);
    rig_die(&one);
    cr_expect_eq(renew(), 1);
    tick();
    cr_expect_eq(rig_count(&rig, 0, SPW_WORKER_clients_gone), 1);
    struct rig_client next;
    rig_advance(&rig, 2 * RIG_SECOND);
    rig_settle(&rig);
    cr_expect_eq(rig_state(&rig, 0, 1, NULL), SPW_READY, "what was copied well is kept");
    tick();
    rig_attach(&rig, &next);
    cr_expect_eq(next.c, 0);
    rig_die(&next);
    tick();
    expect_place_works(0);
    end();
}

Test(worker_harm, a_worker_that_starts_meanwhile_serves_all_the_others)
{
    start(&(struct rig_config){.capacity = 8});
    drop(SPW_REGION_CLIENT, one.c);
    cut(SPW_REGION_KV, one.c, 0);
    rig_end_worker(&rig, 0);
    rig_start_worker(&rig, 0);
    rig_settle(&rig);
    expect_others_fine();
    for (int i = 0; i < 30; i++)
        tick();
    cr_expect_eq(rig_count(&rig, 0, SPW_WORKER_clients_gone), 0, "this one never served it");
    rig_die(&one);
    cr_expect_eq(renew(), 1);
    rig_end_worker(&rig, 0);
    rig_start_worker(&rig, 0); /* after the number was raised */
    tick();
    expect_place_works(0);
    end();
}

static void make_anew_meanwhile(void)
{
    drop(SPW_REGION_CLIENT, 0);
    cr_assert_eq(renew(), 1);
}

/* What it has mapped is no longer what has the name, though ctl's number tells of that one. */
Test(worker_harm, an_object_made_anew_while_a_worker_maps_it_is_mapped_again)
{
    start(&(struct rig_config){.capacity = 8});
    rig_die(&one);
    tick();
    rig_end_worker(&rig, 0);
    rig.config.worker_attached = make_anew_meanwhile;
    rig_start_worker(&rig, 0);
    rig.config.worker_attached = NULL;
    for (int i = 0; i < 12; i++)
        tick();
    expect_others_fine();
    expect_place_works(0);
    end();
}

/* Cut and grown again before anybody looked: same object, all zero. */
Test(worker_harm, an_object_emptied_in_place_comes_back_too)
{
    for (int touched = 0; touched < 2; touched++) {
        start(&(struct rig_config){.capacity = 8});
        uint64_t bytes = rig.daemon.region_client[one.c].size_bytes;
        cut(SPW_REGION_CLIENT, one.c, 0);
        if (touched)
            tick();
        cut(SPW_REGION_CLIENT, one.c, bytes);
        rig_die(&one);
        tick();
        renew();
        spw_pool_mend(&rig.daemon); /* its header */
        for (int i = 0; i < 12; i++)
            tick();
        expect_others_fine();
        expect_place_works(0);
        end();
    }
}

/* The daemon renewed the object, but a later one can't be mapped yet. */
Test(worker_harm, objects_that_cannot_be_mapped_yet_are_tried_again)
{
    static const enum spw_region_kind kinds[] = {SPW_REGION_CLIENT, SPW_REGION_KV};
    for (size_t i = 0; i < 2; i++) {
        start(&(struct rig_config){.capacity = 8});
        char name[SPW_PATH_BYTES], aside[SPW_PATH_BYTES + 8];
        drop(kinds[i], one.c);
        rig_die(&one);
        cr_expect_eq(renew(), 1);
        spw_region_name(&rig.daemon.path, kinds[i], 0, name);
        snprintf(aside, sizeof aside, "%s.aside", name);
        cr_assert_eq(rename(name, aside), 0);
        for (int round = 0; round < 3; round++)
            tick();
        expect_others_fine();
        cr_assert_eq(rename(aside, name), 0);
        for (int round = 0; round < 12; round++)
            tick();
        expect_place_works(0);
        end();
    }
}
