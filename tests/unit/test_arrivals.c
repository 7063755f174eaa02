/* tools/arrivals: who comes when, in open and closed loops, and when it is over. */
#include "tools/arrivals.h"

#include <criterion/criterion.h>

TestSuite(arrivals, .timeout = 30);

#define SECOND 1000000000ll
#define NEVER  SPW_ARRIVALS_NONE

/* A request of one block that follows request @follows - 1; 50 tokens, a second, to answer. */
static void add(struct spw_trace *trace, uint32_t conversation, uint32_t follows, int64_t think_s)
{
    const uint64_t id = trace->request_count;
    struct spw_trace_request *request;

    cr_assert_eq(spw_trace_append(trace, 0, 512, 50, &id), 0);
    request = &trace->requests[trace->request_count - 1];
    request->conversation = conversation;
    request->follows = follows;
    request->think_ns = think_s * SECOND;
    trace->conversation_count = conversation + 1;
}

static void start(struct spw_arrivals *arrivals, const struct spw_trace *trace,
                  uint64_t conversations)
{
    const struct spw_arrivals_options options = {.conversations = conversations, .decode_rate = 50};

    cr_assert_eq(spw_arrivals_init(arrivals, trace, &options), 0);
}

static void expect_next(struct spw_arrivals *arrivals, int64_t at_ns, uint32_t request)
{
    struct spw_arrival got = {.request = UINT32_MAX};

    cr_assert_eq(spw_arrivals_next_ns(arrivals), at_ns, "%ld", spw_arrivals_next_ns(arrivals));
    cr_assert_not(spw_arrivals_take(arrivals, at_ns - 1, &got), "too early");
    cr_assert(spw_arrivals_take(arrivals, at_ns, &got));
    cr_assert_eq(got.at_ns, at_ns);
    cr_assert_eq(got.request, request, "%u", got.request);
}

static void expect_none(struct spw_arrivals *arrivals, bool at_end)
{
    struct spw_arrival got;

    cr_assert_eq(spw_arrivals_next_ns(arrivals), NEVER);
    cr_assert_not(spw_arrivals_take(arrivals, NEVER, &got));
    cr_assert_eq(spw_arrivals_at_end(arrivals), at_end);
}

Test(arrivals, an_open_loop_comes_at_its_times_whatever_is_answered)
{
    static const int64_t at_ns[] = {0, 0, 5 * SECOND};
    struct spw_arrivals arrivals;
    struct spw_trace trace;

    spw_trace_init(&trace, 512);
    for (uint64_t i = 0; i < 3; i++)
        cr_assert_eq(spw_trace_append(&trace, at_ns[i], 512, 50, &i), 0);
    cr_assert_eq(spw_arrivals_init(&arrivals, &trace, NULL), 0);
    expect_next(&arrivals, 0, 0);
    expect_next(&arrivals, 0, 1);
    spw_arrivals_answered(&arrivals, 0, 9 * SECOND);
    cr_expect_not(spw_arrivals_at_end(&arrivals));
    expect_next(&arrivals, 5 * SECOND, 2);
    expect_none(&arrivals, true);
    spw_arrivals_fini(&arrivals);
    spw_trace_fini(&trace);
}

Test(arrivals, a_request_comes_a_thought_after_the_end_of_the_answer_before)
{
    struct spw_arrivals arrivals;
    struct spw_trace trace;

    spw_trace_init(&trace, 512);
    add(&trace, 0, 0, 0);
    add(&trace, 0, 1, 7);
    start(&arrivals, &trace, 1);
    expect_next(&arrivals, 0, 0);
    expect_none(&arrivals, false);
    spw_arrivals_answered(&arrivals, 0, 3 * SECOND);
    expect_next(&arrivals, (3 + 1 + 7) * SECOND, 1); /* first token, 50 tokens, thought */
    expect_none(&arrivals, true);
    spw_arrivals_answered(&arrivals, 1, 12 * SECOND);
    expect_none(&arrivals, true);
    spw_arrivals_fini(&arrivals);
    spw_trace_fini(&trace);
}

Test(arrivals, several_may_follow_one_and_come_by_time_then_by_order)
{
    struct spw_arrivals arrivals;
    struct spw_trace trace;

    spw_trace_init(&trace, 512);
    add(&trace, 0, 0, 0);
    add(&trace, 0, 1, 4); /* 1 and 2: nested agents */
    add(&trace, 0, 1, 4);
    add(&trace, 0, 1, 2); /* 3: the main agent's */
    add(&trace, 0, 2, 0); /* 4: the first nested agent's second */
    start(&arrivals, &trace, 1);
    expect_next(&arrivals, 0, 0);
    spw_arrivals_answered(&arrivals, 0, 0);
    expect_next(&arrivals, 3 * SECOND, 3);
    expect_next(&arrivals, 5 * SECOND, 1);
    expect_next(&arrivals, 5 * SECOND, 2);
    spw_arrivals_answered(&arrivals, 2, 6 * SECOND);
    expect_none(&arrivals, false);
    spw_arrivals_answered(&arrivals, 1, 6 * SECOND);
    expect_next(&arrivals, 7 * SECOND, 4);
    expect_none(&arrivals, true);
    spw_arrivals_fini(&arrivals);
    spw_trace_fini(&trace);
}

Test(arrivals, the_next_conversation_starts_when_all_answers_of_one_have_ended)
{
    struct spw_arrivals arrivals;
    struct spw_trace trace;

    spw_trace_init(&trace, 512);
    add(&trace, 0, 0, 0);
    add(&trace, 1, 0, 0);
    add(&trace, 1, 2, 1); /* two that follow one: the conversation ends with the later answer, */
    add(&trace, 1, 2, 1); /* which need not be the one told last */
    add(&trace, 2, 0, 0);
    add(&trace, 3, 0, 0);
    start(&arrivals, &trace, 2);
    expect_next(&arrivals, 0, 0);
    expect_next(&arrivals, 0, 1);
    expect_none(&arrivals, false);
    spw_arrivals_answered(&arrivals, 1, 0);
    expect_next(&arrivals, 2 * SECOND, 2);
    expect_next(&arrivals, 2 * SECOND, 3);
    spw_arrivals_answered(&arrivals, 3, 30 * SECOND);
    expect_none(&arrivals, false);
    spw_arrivals_answered(&arrivals, 2, 20 * SECOND);
    expect_next(&arrivals, 31 * SECOND, 4);
    expect_none(&arrivals, false);
    spw_arrivals_answered(&arrivals, 0, 40 * SECOND);
    expect_next(&arrivals, 41 * SECOND, 5);
    expect_none(&arrivals, true);
    spw_arrivals_answered(&arrivals, 4, 50 * SECOND);
    spw_arrivals_answered(&arrivals, 5, 50 * SECOND);
    expect_none(&arrivals, true);
    spw_arrivals_fini(&arrivals);
    spw_trace_fini(&trace);
}

Test(arrivals, more_places_than_conversations_start_them_all)
{
    struct spw_arrivals arrivals;
    struct spw_trace trace;

    spw_trace_init(&trace, 512);
    for (uint32_t i = 0; i < 3; i++)
        add(&trace, i, 0, 0);
    start(&arrivals, &trace, 1000);
    for (uint32_t i = 0; i < 3; i++)
        expect_next(&arrivals, 0, i);
    expect_none(&arrivals, true);
    spw_arrivals_fini(&arrivals);
    spw_trace_fini(&trace);
}

Test(arrivals, times_beyond_all_clocks_stay_below_never)
{
    struct spw_arrivals arrivals;
    struct spw_trace trace;

    spw_trace_init(&trace, 512);
    add(&trace, 0, 0, 0);
    add(&trace, 0, 1, INT64_MAX / SECOND);
    add(&trace, 0, 2, INT64_MAX / SECOND);
    start(&arrivals, &trace, 1);
    expect_next(&arrivals, 0, 0);
    spw_arrivals_answered(&arrivals, 0, INT64_MAX - 1);
    expect_next(&arrivals, NEVER - 1, 1);
    spw_arrivals_answered(&arrivals, 1, NEVER - 1);
    expect_next(&arrivals, NEVER - 1, 2);
    expect_none(&arrivals, true);
    spw_arrivals_fini(&arrivals);
    spw_trace_fini(&trace);
}

#define USERS 40
#define TURNS 25

/* Conversations of @trace that run when the answers so far have ended at the times in @end_ns. */
static uint32_t running_at(const struct spw_trace *trace, const int64_t *came_ns,
                           const int64_t *end_ns, int64_t at_ns)
{
    uint32_t count = 0;

    for (uint32_t s = 0; s < USERS; s++) {
        const uint32_t first = s * TURNS, last = first + TURNS - 1;

        cr_assert_eq(trace->requests[first].conversation, s);
        count += came_ns[first] >= 0 && came_ns[first] <= at_ns &&
                 (end_ns[last] < 0 || end_ns[last] > at_ns);
    }
    return count;
}

/* Answers after times that jump about: all come once, in order, six conversations at a time. */
Test(arrivals, a_long_run_never_has_more_conversations_than_places)
{
    int64_t came_ns[USERS * TURNS], end_ns[USERS * TURNS], now_ns = 0;
    struct spw_arrivals arrivals;
    struct spw_arrival got;
    struct spw_trace trace;
    uint32_t most = 0;

    spw_trace_init(&trace, 512);
    for (uint32_t i = 0; i < USERS * TURNS; i++) {
        came_ns[i] = end_ns[i] = -1;
        add(&trace, i / TURNS, i % TURNS ? i : 0, i * 7919 % 31);
    }
    start(&arrivals, &trace, 6);
    while (!spw_arrivals_at_end(&arrivals)) {
        const int64_t at_ns = spw_arrivals_next_ns(&arrivals);
        uint32_t running;

        cr_assert(at_ns >= now_ns && at_ns != NEVER);
        now_ns = at_ns;
        cr_assert(spw_arrivals_take(&arrivals, now_ns, &got));
        cr_assert_eq(came_ns[got.request], -1, "comes twice");
        if (got.request % TURNS)
            cr_assert_eq(now_ns, end_ns[got.request - 1] + trace.requests[got.request].think_ns);
        came_ns[got.request] = now_ns;
        end_ns[got.request] = now_ns + got.request * 104729 % 17 * SECOND + SECOND;
        spw_arrivals_answered(&arrivals, got.request, end_ns[got.request] - SECOND);
        running = running_at(&trace, came_ns, end_ns, now_ns);
        most = running > most ? running : most;
    }
    cr_expect_eq(most, 6, "%u", most);
    spw_arrivals_fini(&arrivals);
    spw_trace_fini(&trace);
}
