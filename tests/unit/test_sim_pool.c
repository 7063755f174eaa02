/* tools/sim_pool by hand: one trace whose chunks are the numbers 0, 1, 2, ... */
#include "tools/sim_pool.h"

#include <criterion/criterion.h>

TestSuite(sim_pool, .timeout = 30);

#define S        1000000000ll /* of one copy */
#define CHUNKS   8
#define TOLD_MAX 16

struct fixture {
    struct spw_trace trace;
    struct spw_sim_pool pool;
    uint32_t told[TOLD_MAX]; /* who was told, in order */
    uint32_t told_count;
};

static void open_pool(struct fixture *f, uint32_t workers, uint32_t capacity, bool awaited_first)
{
    uint64_t ids[CHUNKS];
    const struct spw_sim_pool_config config = {.workers = workers,
                                               .capacity_chunks = capacity,
                                               .chunk_bytes = 1000,
                                               .copy_ns = S,
                                               .overtake_limit_ns = 5 * S,
                                               .awaited_first = awaited_first};

    *f = (struct fixture){0};
    for (uint64_t i = 0; i < CHUNKS; i++)
        ids[i] = 70 + i;
    spw_trace_init(&f->trace, 10);
    cr_assert_eq(spw_trace_append(&f->trace, 0, CHUNKS * 10, 1, ids), 0);
    cr_assert_eq(spw_trace_append(&f->trace, 0, 35, 1, ids), 0);
    cr_assert_eq(spw_sim_pool_init(&f->pool, &f->trace, &config), 0);
}

static void close_pool(struct fixture *f)
{
    spw_sim_pool_fini(&f->pool);
    spw_trace_fini(&f->trace);
}

static void offer(struct fixture *f, uint32_t worker, uint32_t first, uint32_t count)
{
    for (uint32_t i = first; i < first + count; i++)
        cr_assert(spw_sim_pool_offer(&f->pool, worker, i, i > first ? i - 1 : SPW_SIM_NONE, 0));
}

static void tell(void *context, uint32_t who)
{
    struct fixture *f = context;

    cr_assert_lt(f->told_count, TOLD_MAX);
    f->told[f->told_count++] = who;
}

/* End the copies that are due and start the next, like the simulation does at a moment. */
static void pass(struct fixture *f, int64_t now_ns)
{
    while (spw_sim_pool_end_copy(&f->pool, now_ns, tell, f))
        ;
    spw_sim_pool_start(&f->pool, now_ns);
}

static uint8_t verdict(const struct fixture *f, uint32_t chunk)
{
    return f->pool.chunk[chunk].verdict;
}

static uint64_t eta(const struct fixture *f, uint32_t first, uint32_t count, int64_t now_ns)
{
    return spw_sim_pool_eta(&f->pool, spw_sim_pool_chunks(&f->pool, f->trace.requests) + first,
                            count, now_ns);
}

Test(sim_pool, equal_prefixes_are_equal_chunks)
{
    struct fixture f;

    open_pool(&f, 1, 8, false);
    cr_expect_eq(f.trace.requests[1].id_count, 4); /* the partial one is one of its own here */
    for (uint32_t i = 0; i < 4; i++)
        cr_expect_eq(spw_sim_pool_chunks(&f.pool, &f.trace.requests[1])[i], i);
    cr_expect_eq(f.pool.chunk_count, CHUNKS);
    close_pool(&f);
}

Test(sim_pool, a_stream_copies_one_chunk_at_a_time_in_the_order_of_offers)
{
    struct fixture f;

    open_pool(&f, 2, 8, false);
    cr_expect_eq(verdict(&f, 0), SPW_MISS);
    cr_expect_eq(spw_sim_pool_next_end(&f.pool), INT64_MAX);
    offer(&f, 0, 3, 2);
    offer(&f, 0, 0, 1);
    offer(&f, 1, 7, 1); /* a stream of its own */
    pass(&f, 0);
    cr_expect_eq(spw_sim_pool_next_end(&f.pool), S);
    cr_expect_eq(verdict(&f, 3), SPW_PENDING);
    pass(&f, S - 1);
    cr_expect_eq(verdict(&f, 3), SPW_PENDING);
    pass(&f, S);
    cr_expect(verdict(&f, 3) == SPW_HIT && verdict(&f, 7) == SPW_HIT);
    cr_expect(verdict(&f, 4) == SPW_PENDING && verdict(&f, 0) == SPW_PENDING);
    pass(&f, 2 * S);
    cr_expect(verdict(&f, 4) == SPW_HIT && verdict(&f, 0) == SPW_PENDING);
    pass(&f, 3 * S);
    cr_expect_eq(verdict(&f, 0), SPW_HIT);
    cr_expect_eq(f.pool.stream[0].copied_chunks, 3);
    cr_expect_eq(spw_sim_pool_next_end(&f.pool), INT64_MAX);
    close_pool(&f);
}

Test(sim_pool, whoever_watches_a_chunk_is_told_once)
{
    struct fixture f;

    open_pool(&f, 1, 8, false);
    offer(&f, 0, 0, 2);
    pass(&f, 0);
    for (uint32_t who = 40; who < 43; who++)
        cr_assert_eq(spw_sim_pool_watch(&f.pool, 1, who), 0);
    cr_assert_eq(spw_sim_pool_watch(&f.pool, 0, 50), 0);
    pass(&f, S);
    cr_expect_eq(f.told_count, 1);
    cr_expect_eq(f.told[0], 50);
    pass(&f, 2 * S);
    cr_expect_eq(f.told_count, 4);
    cr_expect_eq(f.told[1] + f.told[2] + f.told[3], 40 + 41 + 42);
    close_pool(&f);
}

static void copy_with_one_awaited(struct fixture *f, bool awaited_first)
{
    open_pool(f, 1, 8, awaited_first);
    offer(f, 0, 0, 4);
    pass(f, 0); /* chunk 0 is being copied */
    cr_assert_eq(spw_sim_pool_watch(&f->pool, 3, 9), 0);
    pass(f, S);
    pass(f, 2 * S);
}

Test(sim_pool, what_somebody_waits_for_goes_first_if_the_pool_goes_by_that)
{
    struct fixture f;

    copy_with_one_awaited(&f, true);
    cr_expect(verdict(&f, 3) == SPW_HIT && verdict(&f, 1) == SPW_PENDING);
    cr_expect_eq(f.told_count, 1);
    pass(&f, 3 * S);
    cr_expect_eq(verdict(&f, 1), SPW_HIT);
    close_pool(&f);
    copy_with_one_awaited(&f, false);
    cr_expect(verdict(&f, 3) == SPW_PENDING && verdict(&f, 1) == SPW_HIT);
    close_pool(&f);
}

Test(sim_pool, a_full_shard_gives_up_the_least_recent_chunk_that_no_load_reads)
{
    struct fixture f;

    open_pool(&f, 1, 3, false);
    offer(&f, 0, 0, 3);
    cr_expect_not(spw_sim_pool_offer(&f.pool, 0, 3, SPW_SIM_NONE, 0), "all of it is pending");
    for (int64_t s = 0; s <= 3; s++)
        pass(&f, s * S);
    offer(&f, 0, 3, 1); /* the tail of what was offered together goes first */
    cr_expect(verdict(&f, 2) == SPW_MISS && verdict(&f, 3) == SPW_PENDING);
    spw_sim_pool_touch(&f.pool, (const uint32_t[]){1, 2}, 2); /* 2 is absent: nothing to touch */
    spw_sim_pool_pin(&f.pool, (const uint32_t[]){0}, 1);
    offer(&f, 0, 4, 1); /* neither the pinned nor the pending one */
    cr_expect(verdict(&f, 1) == SPW_MISS && verdict(&f, 0) == SPW_HIT);
    cr_expect_not(spw_sim_pool_offer(&f.pool, 0, 5, SPW_SIM_NONE, 0));
    spw_sim_pool_unpin(&f.pool, (const uint32_t[]){0}, 1);
    offer(&f, 0, 5, 1);
    cr_expect_eq(verdict(&f, 0), SPW_MISS);
    cr_expect_eq(f.pool.evicted_chunks, 3);
    close_pool(&f);
}

Test(sim_pool, the_eta_is_the_place_in_the_stream)
{
    struct fixture f;

    open_pool(&f, 2, 8, false);
    offer(&f, 0, 0, 4);
    offer(&f, 1, 4, 1);
    pass(&f, 0);
    cr_expect_eq(eta(&f, 0, 1, S / 4), 3 * S / 4);
    cr_expect_eq(eta(&f, 0, 4, S / 4), 3 * S + 3 * S / 4);
    cr_expect_eq(eta(&f, 4, 1, 0), S);
    cr_expect_eq(eta(&f, 0, 5, 0), 4 * S, "the last of all streams");
    cr_expect_eq(eta(&f, 5, 2, 0), 0, "nothing of that is pending");
    close_pool(&f);
}

Test(sim_pool, the_eta_takes_what_nobody_awaits_yet_as_awaited)
{
    struct fixture f;

    open_pool(&f, 1, 8, true);
    offer(&f, 0, 0, 6);
    pass(&f, 0); /* 0 is being copied */
    cr_expect_eq(eta(&f, 5, 1, 0), 2 * S);
    cr_expect_eq(eta(&f, 4, 2, 0), 3 * S);
    cr_assert_eq(spw_sim_pool_watch(&f.pool, 0, 6), 0);
    cr_expect_eq(eta(&f, 5, 1, 0), 2 * S, "one that is being copied isn't ahead twice");
    cr_assert_eq(spw_sim_pool_watch(&f.pool, 4, 9), 0);
    cr_assert_eq(spw_sim_pool_watch(&f.pool, 4, 8), 0);
    cr_expect_eq(eta(&f, 4, 1, 0), 2 * S, "its place among the awaited");
    cr_expect_eq(eta(&f, 5, 1, 0), 3 * S, "behind those");
    cr_assert_eq(spw_sim_pool_watch(&f.pool, 2, 7), 0);
    cr_expect_eq(eta(&f, 2, 1, 0), 2 * S, "older than the other one");
    cr_expect_eq(eta(&f, 4, 1, 0), 3 * S);
    pass(&f, S);
    cr_expect_eq(f.pool.stream[0].copying, 2);
    cr_expect_eq(eta(&f, 4, 1, S), 2 * S);
    cr_expect_eq(eta(&f, 5, 1, S), 3 * S);
    close_pool(&f);
}
