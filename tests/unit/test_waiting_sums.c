/* The sums of a client's counters and histograms, whatever is asked, stored, cancelled and waited
 * for; through the installed API, on the test's own clock. OB-2, OB-5. */
#include "tests/support/wait_rig.h"

#include <criterion/criterion.h>

TestSuite(waiting_sums, .timeout = 25);

#define REQUESTS 8u
#define TICKETS  6u

struct tally {
    uint64_t lookups, decided, repeated, hit_tokens, recomputed_tokens;
    uint64_t reasons[SPW_REASON_COUNT];
    uint64_t begun, ended, waited_ns; /* waits; those that decisions ended */
};

static struct tally tally;
static struct spw_request *open_request[REQUESTS];
static bool waiting[REQUESTS];
static struct spw_ticket open_ticket[TICKETS];
static uint64_t dice = 88172645463325252ull;

static uint32_t roll(uint32_t sides)
{
    dice ^= dice << 13;
    dice ^= dice >> 7;
    dice ^= dice << 17;
    return (uint32_t)(dice >> 20) % sides;
}

/* Reserves that were accepted lie open until a later turn runs or cancels them. */
static void take_answers(void)
{
    struct spw_completion end;
    rig_settle(&api.rig);
    while (spw_completions(client, &end, 1) == 1) {
        struct spw_ticket *place = &open_ticket[roll(TICKETS)];
        if (end.kind != SPW_COMPLETION_RESERVED || end.ticket.id == 0)
            continue;
        if (place->id != 0)
            spw_cancel(client, &end.ticket);
        else
            *place = end.ticket;
    }
}

static void look_up(uint32_t i)
{
    struct spw_decision decision = api_lookup(client, open_request[i]);
    struct spw_explained last = wait_explained();
    bool deferred = decision.action == SPW_ACTION_DEFER;
    if (!decision.repeated) {
        cr_assert_eq(last.reason, decision.reason);
        cr_assert_eq(last.chunk, decision.deciding_chunk);
        cr_assert_eq(last.group, decision.deciding_group);
        cr_assert_eq(last.recomputed_tokens, decision.recomputed_tokens);
        cr_assert_eq(last.waited_ns, decision.waited_ns);
    }
    tally.lookups++;
    tally.decided += !deferred;
    tally.repeated += decision.repeated;
    tally.reasons[decision.reason]++;
    tally.hit_tokens += decision.hit_tokens;
    tally.recomputed_tokens += decision.recomputed_tokens;
    if (deferred && decision.reason != SPW_REASON_TRANSFER && !waiting[i]) {
        cr_assert_eq(decision.waited_ns, 0);
        tally.begun++;
        waiting[i] = true;
    } else if (!deferred && waiting[i]) {
        tally.ended++;
        tally.waited_ns += decision.waited_ns;
        waiting[i] = false;
    }
}

static void turn(struct spw_space *const spaces[2])
{
    uint32_t i = roll(REQUESTS), t = roll(TICKETS);
    const struct spw_chunk_ref ref[3] = {{.index = 0}, {.index = 1}, {.index = 2}};
    switch (roll(8)) {
    case 0:
        spw_request_finish(open_request[i]);
        open_request[i] = api_request(spaces[roll(2)], 100 + 10 * roll(8), 3);
        waiting[i] = false;
        break;
    case 1:
        if (roll(2))
            break;
        cr_assert_eq(spw_request_cancel(open_request[i]), 0);
        waiting[i] = false;
        break;
    case 2:
        spw_store_reserve(open_request[i], 0, ref, 1 + roll(3), 7);
        break;
    case 3:
        if (open_ticket[t].id == 0 || roll(2))
            break;
        if (roll(3))
            api_run(client, &open_ticket[t], 0, 8);
        else
            spw_cancel(client, &open_ticket[t]);
        open_ticket[t].id = 0;
        break;
    case 4:
        rig_advance(&api.rig, roll(300) * MS);
        break;
    default:
        look_up(i);
    }
    if (roll(2))
        take_answers();
}

static void expect_sums(void)
{
    uint64_t sum = 0, waited_ns = 0;
    for (uint32_t r = 0; r < SPW_REASON_COUNT; r++) {
        sum += api_counter(client, spw_counter_name(r));
        cr_expect_eq(api_counter(client, spw_counter_name(r)), tally.reasons[r], "%s",
                     spw_counter_name(r));
    }
    cr_expect_eq(sum, tally.lookups);
    cr_expect_eq(api_counter(client, "lookups"), tally.lookups);
    cr_expect_eq(api_counter(client, "decided"), tally.decided);
    cr_expect_eq(api_counter(client, "repeated"), tally.repeated);
    cr_expect_eq(api_counter(client, "hit_tokens"), tally.hit_tokens);
    cr_expect_eq(api_counter(client, "recomputed_tokens"), tally.recomputed_tokens);
    cr_expect_eq(wait_ended_all(), tally.begun, "each wait is one sample");
    cr_expect_eq(wait_ended(SPW_WAIT_CANCELLED).count, tally.begun - tally.ended);
    for (uint32_t o = 0; o < SPW_WAIT_OUTCOMES; o++)
        waited_ns += o == SPW_WAIT_CANCELLED ? 0 : wait_ended((enum spw_wait_outcome)o).sum_ns;
    cr_expect_eq(waited_ns, tally.waited_ns);
    cr_expect_eq(api_counter(client, "waits_expired"), wait_ended(SPW_WAIT_EXPIRED).count);
    cr_expect_eq(wait_awaited(client, 0), 0);
    cr_expect_eq(rig_open_chunks(&api.rig, 0), 0, "offered = what became of it");
}

/* OB-2, OB-5: whatever is asked, stored, cancelled and waited for. */
Test(waiting_sums, the_sums_hold_whatever_happens)
{
    struct spw_space *spaces[2];
    wait_open(&one_worker);
    spaces[0] = space;
    space_config.max_recompute_pending_tokens = 16;
    spaces[1] = api_space(&api, client, &space_config);
    for (uint32_t i = 0; i < REQUESTS; i++)
        open_request[i] = api_request(spaces[i % 2], 100, 3);
    for (uint32_t i = 0; i < 6000; i++)
        turn(spaces);
    for (uint32_t i = 0; i < REQUESTS; i++)
        spw_request_finish(open_request[i]);
    for (int pass = 0; pass < 2; pass++) {
        take_answers();
        for (uint32_t t = 0; t < TICKETS; t++)
            if (open_ticket[t].id != 0)
                spw_cancel(client, &open_ticket[t]);
    }
    rig_settle(&api.rig);
    expect_sums();
    static const enum spw_reason met[] = {
        SPW_REASON_COMPLETE, SPW_REASON_CUT,      SPW_REASON_GROUP_MISS, SPW_REASON_LEADING_PENDING,
        SPW_REASON_PENDING,  SPW_REASON_TRANSFER, SPW_REASON_LOAD_LIMIT, SPW_REASON_MISS_LIMIT};
    for (uint32_t i = 0; i < sizeof(met) / sizeof(met[0]); i++)
        cr_expect_gt(tally.reasons[met[i]], 5, "%s: %lu", spw_counter_name(met[i]),
                     (unsigned long)tally.reasons[met[i]]);
    wait_close();
}
