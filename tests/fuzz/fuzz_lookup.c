/*
 * Random lookups through spw_decide(): fuzz_lookup [CASES [SEED]]. Each is compared with the
 * rules written a second time (naive_lookup), with the request guard, without, and priced, and with
 * what holds for every lookup. Prints a case that differs; exits 1 if there was one.
 */
#include "sched/decide.h"
#include "tests/fuzz/gen_lookup.h"
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A case as spw_decide() asks for it; counts what is asked. */
struct asked {
    struct spw_lookup_source source;
    const struct naive_case *c;
    uint8_t reads[NAIVE_GROUPS][NAIVE_CHUNKS];
    uint64_t lowest_tail; /* asked so far */
    bool out_of_order;
    bool eta_of_nothing; /* asked for an ETA where no P was read, or not at both ends */
};

static const struct naive_case *current;
static unsigned failures;
static uint64_t reasons[SPW_REASON_COUNT];

static void print_case(const struct naive_case *c)
{
    static const char *const kinds[] = {"full", "sliding", "chunked", "state"};

    printf("  unit %" PRId64 " x%" PRId64 " tokens %" PRId64 " prompt %" PRId64 " computed %" PRId64
           " budget %" PRId64 "%s%s scope %s\n",
           c->hash_unit, c->blocks_per_chunk, c->tokens, c->prompt, c->computed, c->budget,
           c->skip ? " skip" : "", c->inflight ? " inflight" : "", c->guard ? "request" : "group");
    if (c->priced)
        printf("  auto: price %" PRId64 " rate %" PRId64 "\n", c->price, c->rate);
    for (int g = 0; g < c->groups; g++) {
        printf("  %d %s block %" PRId64 " window %" PRId64 " %s loading", g,
               kinds[c->group[g].kind], c->group[g].block, c->group[g].window_tokens,
               c->group[g].states);
        for (int i = 0; i < NAIVE_CHUNKS; i++)
            if (c->group[g].loading[i])
                printf(" %d", i);
        printf(" eta");
        for (int i = 0; c->group[g].states[i] != '\0'; i++)
            if (c->group[g].states[i] == 'P')
                printf(" %" PRId64, c->group[g].eta_ns[i]);
        printf("\n");
    }
    for (int i = 0; i < c->tails; i++)
        printf("  tail %" PRId64 " %s eta %" PRId64 "\n", c->tail_boundary[i], c->tail_states[i],
               c->tail_eta_ns[i]);
}

__attribute__((format(printf, 2, 3))) static void expect(bool holds, const char *format, ...)
{
    va_list args;

    if (holds)
        return;
    failures++;
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    printf("\n");
    print_case(current);
}

static uint8_t verdict_of(char letter)
{
    return letter == 'H'   ? SPW_HIT
           : letter == 'P' ? SPW_PENDING
           : letter == 'R' ? SPW_RETRY
                           : SPW_MISS;
}

static void fetch(struct spw_lookup_source *source, uint32_t group, uint64_t first, uint64_t count,
                  uint8_t *out_verdicts)
{
    struct asked *asked = (struct asked *)source;

    for (uint64_t i = 0; i < count; i++) {
        out_verdicts[i] = verdict_of(asked->c->group[group].states[first + i]);
        asked->reads[group][first + i]++;
    }
}

static uint64_t loading(struct spw_lookup_source *source, uint32_t group, uint64_t first,
                        uint64_t end)
{
    struct asked *asked = (struct asked *)source;

    while (first < end && !asked->c->group[group].loading[first])
        first++;
    return first;
}

static bool tail(struct spw_lookup_source *source, uint64_t above, uint64_t at_most,
                 uint64_t *out_boundary, uint8_t *out_verdicts)
{
    struct asked *asked = (struct asked *)source;
    const struct naive_case *c = asked->c;

    asked->out_of_order |= at_most >= asked->lowest_tail;
    for (int i = c->tails - 1; i >= 0; i--) {
        uint64_t boundary = (uint64_t)c->tail_boundary[i];
        if (boundary <= above || boundary > at_most)
            continue;
        *out_boundary = asked->lowest_tail = boundary;
        for (int g = 0; g < c->groups; g++)
            out_verdicts[g] = verdict_of(c->tail_states[i][g]);
        return true;
    }
    return false;
}

/* A negative one is unknown, that is UINT64_MAX: the latest of all. */
static uint64_t eta(struct spw_lookup_source *source, uint32_t group, uint64_t first, uint64_t end)
{
    struct asked *asked = (struct asked *)source;
    const struct naive_group *g = &asked->c->group[group];
    uint64_t latest = 0;

    if (first >= end || end > strlen(g->states) || g->states[first] != 'P' ||
        g->states[end - 1] != 'P' || !asked->reads[group][first] || !asked->reads[group][end - 1]) {
        asked->eta_of_nothing = true;
        return 0;
    }
    for (uint64_t i = first; i < end; i++)
        if (g->states[i] == 'P' && asked->reads[group][i] && (uint64_t)g->eta_ns[i] > latest)
            latest = g->eta_ns[i] < 0 ? UINT64_MAX : (uint64_t)g->eta_ns[i];
    return latest;
}

static uint64_t tail_eta(struct spw_lookup_source *source, uint64_t boundary)
{
    struct asked *asked = (struct asked *)source;
    const struct naive_case *c = asked->c;

    for (int i = 0; i < c->tails; i++)
        if ((uint64_t)c->tail_boundary[i] == boundary && strchr(c->tail_states[i], 'P') != NULL)
            return c->tail_eta_ns[i] < 0 ? UINT64_MAX : (uint64_t)c->tail_eta_ns[i];
    asked->eta_of_nothing = true;
    return 0;
}

static void init_groups(const struct naive_case *c, struct spw_groups *out_groups)
{
    struct spw_group_shape shapes[NAIVE_GROUPS];

    for (int g = 0; g < c->groups; g++)
        shapes[g] = (struct spw_group_shape){.kind = (uint8_t)c->group[g].kind,
                                             .block_tokens = (uint64_t)c->group[g].block,
                                             .window_tokens = (uint64_t)c->group[g].window_tokens};
    expect(spw_groups_init(out_groups, (uint64_t)c->hash_unit, (uint32_t)c->blocks_per_chunk,
                           shapes, (uint32_t)c->groups) == 0,
           "groups refused");
}

/* Decide @c; nothing is read twice, whatever comes out. */
static struct spw_decision_core decide(const struct naive_case *c)
{
    struct asked asked = {.source = {.fetch = fetch,
                                     .loading = loading,
                                     .tail = tail,
                                     .eta = eta,
                                     .tail_eta = tail_eta},
                          .c = c,
                          .lowest_tail = UINT64_MAX};
    struct spw_groups groups;
    uint8_t verdicts[NAIVE_GROUPS][NAIVE_CHUNKS];
    struct spw_decide_input in = {.lookup = {.groups = &groups,
                                             .num_tokens = (uint64_t)c->tokens,
                                             .num_prompt_tokens = (uint64_t)c->prompt,
                                             .num_computed_tokens = (uint64_t)c->computed,
                                             .budget_tokens = (uint64_t)c->budget},
                                  .scope = c->guard ? SPW_SCOPE_REQUEST : SPW_SCOPE_GROUP,
                                  .skip = c->skip,
                                  .inflight = c->inflight,
                                  .priced = c->priced,
                                  .price = (uint64_t)c->price,
                                  .prefill_tokens_per_s = (uint64_t)c->rate};
    struct spw_decision_core got = {.action = SPW_ACTION_MISS};

    init_groups(c, &groups);
    for (int g = 0; g < c->groups; g++) {
        in.lookup.chunks[g].count = strlen(c->group[g].states);
        in.lookup.chunks[g].verdicts = verdicts[g];
    }
    current = c;
    expect(spw_decide(&in, &asked.source, &got) == 0, "refused");
    for (int g = 0; g < c->groups; g++)
        for (int i = 0; i < NAIVE_CHUNKS; i++)
            expect(asked.reads[g][i] <= 1, "chunk %d of group %d read %d times", i, g,
                   asked.reads[g][i]);
    expect(!asked.out_of_order, "a tail asked for again or not from the top");
    expect(!asked.eta_of_nothing, "an ETA asked for where nothing pends");
    return got;
}

/* Ranges that begin and end at what is waited for, and hold no other P. */
static void compare_await(const struct naive_case *c, const struct spw_decision_core *got,
                          const struct naive_answer *want)
{
    uint64_t ranges = 0;

    for (int g = 0; g < c->groups; g++) {
        const struct spw_chunk_range await = got->await[g];
        const char *states = c->group[g].states;
        ranges += await.end != 0;
        expect(await.end <= strlen(states) &&
                   (await.end == 0 ? await.first == 0
                                   : await.first < await.end && states[await.first] == 'P' &&
                                         states[await.end - 1] == 'P'),
               "group %d awaits [%" PRIu64 ",%" PRIu64 ")", g, await.first, await.end);
        for (uint64_t i = 0; i < strlen(states) && !want->await_any; i++)
            expect(want->await[g][i] == (states[i] == 'P' && i >= await.first && i < await.end),
                   "chunk %" PRIu64 " of group %d: naive %d", i, g, want->await[g][i]);
    }
    expect(!want->await_any || ranges != 0, "nothing awaited");
    expect(got->await_boundary == (uint64_t)want->await_boundary,
           "awaits tail %" PRIu64 ", naive %" PRId64, got->await_boundary, want->await_boundary);
    expect(want->await_any ||
               got->eta_ns == (want->eta_ns < 0 ? UINT64_MAX : (uint64_t)want->eta_ns),
           "eta %" PRIu64 ", naive %" PRId64, got->eta_ns, want->eta_ns);
}

static void compare(const struct naive_case *c, const struct spw_decision_core *got,
                    const struct naive_answer *want)
{
    const char *action = spw_action_name(got->action), *reason = spw_reason_name(got->reason);

    expect(strcmp(action, want->action) == 0, "action %s, naive %s", action, want->action);
    expect(strcmp(reason, want->reason) == 0, "reason %s, naive %s", reason, want->reason);
    expect(got->hit_tokens == (uint64_t)want->hit, "hit %" PRIu64 ", naive %" PRId64,
           got->hit_tokens, want->hit);
    expect(got->tail_boundary == (uint64_t)want->tail_boundary, "tail %" PRIu64 ", naive %" PRId64,
           got->tail_boundary, want->tail_boundary);
    expect(got->tokens_recomputed == (uint64_t)want->recomputed,
           "recomputed %" PRIu64 ", naive %" PRId64, got->tokens_recomputed, want->recomputed);
    for (int g = 0; g < c->groups; g++)
        expect(got->need[g].first == (uint64_t)want->need[g][0] &&
                   got->need[g].end == (uint64_t)want->need[g][1],
               "group %d needs [%" PRIu64 ",%" PRIu64 "], naive [%" PRId64 ",%" PRId64 "]", g,
               got->need[g].first, got->need[g].end, want->need[g][0], want->need[g][1]);
}

/* What a load brings is ready, and a state ends where the load ends. */
static void check_load(const struct naive_case *c, const struct spw_decision_core *got)
{
    const uint64_t end = (uint64_t)c->computed + got->hit_tokens;

    expect(got->hit_tokens > 0, "a load of nothing");
    for (int g = 0; g < c->groups; g++) {
        const uint64_t chunks = got->need[g].end - (got->tail_boundary != 0);
        for (uint64_t i = got->need[g].first; i < chunks; i++)
            expect(c->group[g].states[i] == 'H' && !c->group[g].loading[i],
                   "chunk %" PRIu64 " of group %d isn't ready", i, g);
        const uint64_t chunk = (uint64_t)(c->group[g].block * c->blocks_per_chunk);
        expect(c->group[g].kind != NAIVE_STATE || got->tail_boundary != 0 || end % chunk == 0,
               "the hit ends inside a state chunk");
    }
    for (int i = 0; i < c->tails; i++)
        expect((uint64_t)c->tail_boundary[i] != got->tail_boundary ||
                   strspn(c->tail_states[i], "H") == (size_t)c->groups,
               "a tail that isn't ready");
}

static char state_of_wait(const struct naive_case *c, const struct spw_decide_wait *wait)
{
    if (wait->boundary == 0)
        return c->group[wait->group].states[wait->chunk];
    for (int i = 0; i < c->tails; i++)
        if ((uint64_t)c->tail_boundary[i] == wait->boundary)
            return c->tail_states[i][wait->group];
    return '?';
}

/* What is waited for is on its way; a wait that shows no chunk would never be woken. */
static void check_waits(const struct naive_case *c, const struct spw_decision_core *got)
{
    const bool retry = got->reason == SPW_REASON_RETRY || got->reason == SPW_REASON_TAIL_RETRY;
    const bool waits =
        retry || got->reason == SPW_REASON_PENDING || got->reason == SPW_REASON_TAIL_PENDING;

    expect(waits == (got->wait_count > 0), "%u chunks are waited for", got->wait_count);
    expect(!got->wait_more || got->wait_count > 0, "more than none");
    for (uint32_t i = 0; i < got->wait_count; i++) {
        const struct spw_decide_wait *wait = &got->wait[i];
        const char state = state_of_wait(c, wait);
        expect(state == 'R' || state == 'P', "waits for a chunk in state %c", state);
        expect(i > 0 || (state == 'R') == retry, "the first of the waits doesn't give the reason");
        for (uint32_t k = 0; k < i; k++)
            expect(memcmp(wait, &got->wait[k], sizeof(*wait)) != 0, "waits twice for a chunk");
    }
    expect(!waits ||
               (got->group == (int32_t)got->wait[0].group && got->chunk == got->wait[0].chunk),
           "the first of the waits doesn't decide");
}

/* One HIT becomes MISS, any one or one that was needed: no larger hit. */
static void check_one_miss(const struct naive_case *c, const struct spw_decision_core *got,
                           uint64_t *rng)
{
    struct naive_case worse = *c;
    const int g = (int)gen_below(rng, (uint64_t)c->groups);
    uint64_t count = strlen(c->group[g].states), from = 0;

    if (gen_below(rng, 2) && got->need[g].end <= count) {
        from = got->need[g].first;
        count = got->need[g].end;
    }
    if (count <= from)
        return;
    const uint64_t chunk = from + gen_below(rng, count - from);
    if (worse.group[g].states[chunk] != 'H')
        return;
    worse.group[g].states[chunk] = 'M';
    worse.group[g].loading[chunk] = false;
    struct spw_decision_core less = decide(&worse);
    expect(less.action != SPW_ACTION_LOAD || less.hit_tokens <= got->hit_tokens,
           "hit grew from %" PRIu64 " to %" PRIu64 " by a miss", got->hit_tokens, less.hit_tokens);
}

static void replace_pending(char *states)
{
    for (; *states; states++)
        if (*states == 'P')
            *states = 'H';
}

static void check_all_written(const struct naive_case *c, const struct spw_decision_core *got)
{
    struct naive_case written = *c;

    for (int g = 0; g < c->groups; g++)
        replace_pending(written.group[g].states);
    for (int i = 0; i < c->tails; i++)
        replace_pending(written.tail_states[i]);
    struct spw_decision_core more = decide(&written);
    expect(more.action != SPW_ACTION_LOAD || more.hit_tokens >= got->hit_tokens,
           "hit %" PRIu64 ", with all written only %" PRIu64, got->hit_tokens, more.hit_tokens);
}

static void check_larger_budget(const struct naive_case *c, uint64_t *rng)
{
    struct naive_case richer = *c;
    const uint64_t room = (uint64_t)(INT64_MAX - c->budget);

    if (room == 0)
        return;
    const uint64_t add[] = {1, gen_below(rng, (uint64_t)c->tokens + 2), room};
    const uint64_t more = add[gen_below(rng, 3)];
    richer.budget += (int64_t)(more < room ? more : room);
    struct spw_decision_core got = decide(&richer);
    expect(got.action != SPW_ACTION_DEFER, "a load became a defer (%s) by a budget of %" PRId64,
           spw_reason_name(got.reason), richer.budget);
}

/* What comes later, or is worth less, is not waited for if it wasn't before. */
static void check_later(const struct naive_case *c, uint64_t *rng)
{
    struct naive_case later = *c;
    const int64_t by = (int64_t)gen_below(rng, 1000000);

    for (int g = 0; g < c->groups; g++)
        for (int i = 0; i < NAIVE_CHUNKS; i++)
            if (later.group[g].eta_ns[i] >= 0)
                later.group[g].eta_ns[i] =
                    gen_below(rng, 10) && later.group[g].eta_ns[i] < by ? by : INT64_MAX;
    later.price = 1 + (int64_t)gen_below(rng, (uint64_t)c->price);
    struct spw_decision_core got = decide(&later);
    expect(got.action != SPW_ACTION_DEFER, "a load became a defer (%s) at a lower price",
           spw_reason_name(got.reason));
}

static void check_case(struct naive_case *c, bool guard, bool priced, uint64_t *rng)
{
    c->guard = guard;
    c->priced = priced;
    struct spw_decision_core got = decide(c);
    struct naive_answer want = naive_lookup(c);

    reasons[got.reason]++;
    compare(c, &got, &want);
    compare_await(c, &got, &want);
    check_waits(c, &got);
    if (got.action != SPW_ACTION_LOAD)
        return;
    check_load(c, &got);
    check_one_miss(c, &got, rng);
    check_all_written(c, &got);
    if (priced)
        check_later(c, rng);
    else
        check_larger_budget(c, rng);
}

int main(int argc, char **argv)
{
    const uint64_t cases = argc > 1 ? strtoull(argv[1], NULL, 10) : 200000;
    const uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    struct naive_case c;
    uint64_t i;

    for (i = 0; i < cases && failures < 5; i++) {
        uint64_t rng = seed + i;
        gen_lookup(seed + i, &c);
        check_case(&c, true, false, &rng);
        check_case(&c, false, false, &rng);
        check_case(&c, true, true, &rng);
    }
    for (int r = 0; r < SPW_REASON_LOAD_LIMIT; r++) { /* limits are the service's business */
        printf("%s %" PRIu64 "\n", spw_reason_name((uint8_t)r), reasons[r]);
        if (reasons[r] == 0 && failures == 0) { /* then the cases test less than they should */
            printf("no case with this reason\n");
            failures++;
        }
    }
    printf("%" PRIu64 " cases, %u failures\n", i, failures);
    return failures != 0;
}
