/* Nothing is left asleep: two clients do at random what clients do, workers die, rings are lapped;
 * when all has ended nobody may still be told to wait. */
#include "tests/support/wait_rig.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

TestSuite(waiting_random, .timeout = 25);

#define CLIENTS  2u
#define SPACES   4u
#define REQUESTS 24u
#define TICKETS  64u
#define SEEDS    40u

struct mine {
    struct spw_client *client;
    struct spw_space *space[SPACES];
    struct spw_request *request[REQUESTS];
    uint64_t first[REQUESTS];
    uint32_t chunks[REQUESTS];
    uint32_t of_space[REQUESTS];
    struct spw_ticket ticket[TICKETS];
    uint32_t tickets;
};

static struct mine mine[CLIENTS];
static bool down[RIG_WORKERS];
static uint32_t groups;
static uint64_t dice_state;

static uint32_t dice(uint32_t sides)
{
    dice_state ^= dice_state << 13;
    dice_state ^= dice_state >> 7;
    dice_state ^= dice_state << 17;
    return (uint32_t)(dice_state >> 33) % sides;
}

static const struct spw_group_config two_groups[] = {
    {.kind = SPW_GROUP_FULL, .block_tokens = 8, .chunk_bytes = 2 * RIG_BLOCK_BYTES},
    {.kind = SPW_GROUP_SLIDING,
     .block_tokens = 8,
     .window_tokens = 17,
     .chunk_bytes = 2 * RIG_BLOCK_BYTES},
};

static void open_all(void)
{
    const struct rig_config pool = {
        .workers = 2,
        .capacity = 20,
        .copier = {.rate_bytes = {dice(2) ? 2000 : 0, 0}, .in_flight = {1, 1}}};
    api_open(&api, &pool);
    groups = 1 + dice(2);
    memset(mine, 0, sizeof(mine));
    memset(down, 0, sizeof(down));
    for (uint32_t c = 0; c < CLIENTS; c++) {
        mine[c].client = api_attach(&api, 0);
        for (uint32_t s = 0; s < SPACES; s++) {
            struct spw_space_config config = api_space_config(2);
            config.groups = groups;
            config.group = two_groups;
            config.wait_limit_ns = 86400 * RIG_SECOND;
            config.gpu_prefix_cache = s & 1;
            config.max_recompute_pending_tokens = s < 2 ? 0 : s == 2 ? 32 : SPW_RECOMPUTE_AUTO;
            config.prefill_tokens_per_s = 100;
            mine[c].space[s] = api_space(&api, mine[c].client, &config);
        }
    }
}

static struct spw_request *make(struct spw_space *of, uint64_t first, uint32_t chunks)
{
    struct spw_request *request = api_request(of, first, chunks);
    uint8_t key[API_KEY_BYTES];
    for (uint32_t g = 1; g < groups; g++)
        for (uint32_t i = 0; i < chunks; i++) {
            rig_key(0, first + i, key);
            cr_assert_eq(spw_request_extend(request, g, key, API_KEY_BYTES, 1), 0);
        }
    return request;
}

static void reap(struct mine *m)
{
    struct spw_completion done[16];
    int n = spw_completions(m->client, done, 16);
    cr_assert_geq(n, 0);
    for (int i = 0; i < n; i++) {
        bool first =
            done[i].kind == SPW_COMPLETION_RESERVED || done[i].kind == SPW_COMPLETION_BEGUN;
        if (first && done[i].ticket.id != 0 && m->tickets < TICKETS)
            m->ticket[m->tickets++] = done[i].ticket;
    }
}

static void do_open(struct mine *m, uint32_t i)
{
    if (m->request[i])
        return;
    m->of_space[i] = dice(SPACES);
    m->first[i] = 100 * (1 + dice(2));
    m->chunks[i] = 1 + dice(6);
    m->request[i] = make(m->space[m->of_space[i]], m->first[i], m->chunks[i]);
}

static void do_finish(struct mine *m, uint32_t i)
{
    spw_request_finish(m->request[i]);
    m->request[i] = NULL;
}

static void do_grow(struct mine *m, uint32_t i)
{
    uint8_t key[API_KEY_BYTES];
    if (!m->request[i] || m->chunks[i] >= 8)
        return;
    rig_key(0, m->first[i] + m->chunks[i], key);
    m->chunks[i]++;
    cr_assert_eq(spw_request_tokens(m->request[i], m->chunks[i] * 16), 0);
    for (uint32_t g = 0; g < groups; g++)
        cr_assert_eq(spw_request_extend(m->request[i], g, key, API_KEY_BYTES, 1), 0);
}

/* News for nobody, more than the ring holds. */
static void do_churn(struct mine *m)
{
    struct spw_request *request = make(m->space[0], 9000, 8);
    struct spw_chunk_ref ref[8] = {0};
    for (uint32_t k = 0; k < 8; k++)
        ref[k].index = k;
    for (uint32_t i = 0; i < 10; i++) {
        spw_store_reserve(request, i & 1, ref, 8, 1);
        rig_settle(&api.rig);
        reap(m);
        while (m->tickets > 0)
            spw_cancel(m->client, &m->ticket[--m->tickets]);
        rig_settle(&api.rig);
    }
    spw_request_finish(request);
}

static void do_reserve(struct mine *m, uint32_t i)
{
    struct spw_chunk_ref ref[8] = {0};
    if (!m->request[i])
        return;
    struct spw_request *stores = /* of its own, mostly: a transfer of a request defers that */
        dice(4) ? make(m->space[0], m->first[i], m->chunks[i]) : m->request[i];
    uint32_t at = dice(2) ? 0 : dice(m->chunks[i]), n = 1 + dice(m->chunks[i] - at);
    uint32_t ranks = dice(6);
    for (uint32_t g = 0; g < groups; g++) {
        for (uint32_t k = 0; k < n; k++)
            ref[k] = (struct spw_chunk_ref){.group = g, .index = at + k};
        for (uint32_t r = 0; r < 2; r++)
            if (ranks != r) /* mostly both */
                spw_store_reserve(stores, r, ref, n, 1);
    }
}

static void do_ticket(struct mine *m)
{
    uint32_t block[16] = {0};
    if (m->tickets == 0)
        return;
    uint32_t i = dice(m->tickets);
    struct spw_ticket ticket = m->ticket[i];
    m->ticket[i] = m->ticket[--m->tickets];
    struct mine *by = dice(4) ? m : &mine[dice(CLIENTS)];
    if (dice(8) == 0)
        spw_cancel(by->client, &ticket);
    else
        spw_run(by->client, &ticket, block, 2 * ticket.chunks, 2);
}

static struct spw_decision ask(struct mine *m, uint32_t i)
{
    struct spw_decision decision = {.size_bytes = sizeof(decision)};
    cr_assert_eq(spw_lookup(m->request[i], 0, 0, &decision), 0);
    return decision;
}

static void load(struct mine *m, uint32_t i, const struct spw_decision *decision)
{
    struct spw_chunk_ref ref[64];
    int n = spw_decision_chunks(decision, 0, ref, 64);
    for (uint32_t r = 0; r < 2 && n > 0; r++)
        spw_load_begin(m->request[i], decision, r, ref, (uint32_t)n, 3);
}

static uint32_t index_of(const struct mine *m, const struct spw_request *request)
{
    uint32_t i = 0;
    while (i < REQUESTS && m->request[i] != request)
        i++;
    cr_assert_lt(i, REQUESTS, "one that is gone was handed out");
    return i;
}

/* Returns how many were handed out. */
static int do_step(struct mine *m, bool quiet)
{
    struct spw_request *list[REQUESTS];
    cr_assert_geq(spw_step_begin(m->client), 0);
    int n = spw_woken(m->client, list, quiet || dice(3) ? REQUESTS : dice(3));
    for (int k = 0; k < n; k++) {
        uint32_t i = index_of(m, list[k]);
        struct spw_decision decision = ask(m, i);
        cr_assert_eq(decision.repeated, 0);
        if (decision.action == SPW_ACTION_LOAD && !quiet && dice(2))
            load(m, i, &decision);
    }
    for (uint32_t i = 0; i < REQUESTS && !quiet; i++)
        if (m->request[i] && dice(3) == 0) {
            struct spw_decision decision = ask(m, i);
            if (decision.action == SPW_ACTION_LOAD && dice(2))
                load(m, i, &decision);
        }
    cr_assert_eq(spw_step_end(m->client), 0);
    return n;
}

static void do_worker(uint32_t k)
{
    if (down[k])
        api_restart_worker(&api, k);
    else
        api_kill_worker(&api, k);
    down[k] = !down[k];
}

static void pass(void)
{
    for (uint32_t n = dice(4); n > 0; n--)
        rig_pass(&api.rig);
}

static void act(void)
{
    struct mine *m = &mine[dice(CLIENTS)];
    uint32_t i = dice(REQUESTS);
    switch (dice(40)) {
    case 0 ... 5:
        do_open(m, i);
        break;
    case 6:
        do_finish(m, i);
        break;
    case 7:
        if (m->request[i])
            spw_request_cancel(m->request[i]);
        break;
    case 8:
        do_grow(m, i);
        break;
    case 9 ... 14:
        do_reserve(m, i);
        break;
    case 15 ... 20:
        do_ticket(m);
        break;
    case 21 ... 24:
        reap(m);
        break;
    case 25 ... 33:
        do_step(m, false);
        break;
    case 34 ... 36:
        rig_advance(&api.rig, dice(200) * MS);
        break;
    case 37:
        if (dice(6) == 0)
            do_worker(dice(2));
        break;
    case 38:
        if (dice(8) == 0)
            spw_space_reset(m->space[0]);
        else if (dice(4) == 0)
            do_churn(m);
        break;
    default:
        rig_settle(&api.rig);
    }
    pass();
}

static void end_all_transfers(void)
{
    for (uint32_t k = 0; k < 2; k++)
        if (down[k])
            do_worker(k);
    for (int round = 0; round < 8; round++) {
        rig_advance(&api.rig, RIG_SECOND);
        rig_settle(&api.rig);
        for (uint32_t c = 0; c < CLIENTS; c++) {
            reap(&mine[c]);
            while (mine[c].tickets > 0)
                spw_cancel(mine[c].client, &mine[c].ticket[--mine[c].tickets]);
            while (!spw_list_empty(&mine[c].client->book.handed)) {
                struct spw_open_job *job =
                    SPW_LINKED(mine[c].client->book.handed.after, struct spw_open_job, link);
                spw_book_end(&mine[c].client->book, job);
            }
        }
    }
}

static void check_nobody_sleeps(uint64_t seed)
{
    for (int step = 0; step < 6; step++)
        for (uint32_t c = 0; c < CLIENTS; c++)
            do_step(&mine[c], true);
    for (uint32_t c = 0; c < CLIENTS; c++) {
        uint64_t bits = 0;
        for (uint32_t i = 0; i < REQUESTS; i++) {
            const struct spw_request *request = mine[c].request[i];
            if (request && spw_waiter_waiting(&request->waiter))
                cr_assert_fail("seed %lu: client %u request %u sleeps, reason %u, on_chunks %d",
                               (unsigned long)seed, c, i, request->deferral.decision.reason,
                               request->deferral.on_chunks);
        }
        for (uint32_t k = 0; k < 2; k++)
            bits += wait_awaited(mine[c].client, k);
        cr_assert_eq(bits, 0, "seed %lu: marks are left", (unsigned long)seed);
    }
}

static void play(uint64_t seed, int acts)
{
    dice_state = seed * 0x9e3779b97f4a7c15ull + 1;
    open_all();
    for (int i = 0; i < acts; i++)
        act();
    end_all_transfers();
    check_nobody_sleeps(seed);
    for (uint32_t k = 0; k < 2; k++)
        cr_assert_eq(spw_load_relaxed(&api.rig.daemon.feed[k]->stream.bytes_done),
                     spw_load_relaxed(&api.rig.daemon.feed[k]->stream.bytes_queued));
    for (uint32_t c = 0; c < CLIENTS; c++)
        spw_detach(mine[c].client);
    api_close(&api);
}

Test(waiting_random, nobody_is_left_asleep)
{
    for (uint64_t seed = 1; seed <= SEEDS; seed++)
        play(seed, 400);
}
