/* Arrivals of an open or a closed loop. The closed loop's heap has room for every request. */
#include "tools/arrivals.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#define SECOND_NS 1000000000u

/* A sum of times that stays below SPW_ARRIVALS_NONE. */
static int64_t later(int64_t at_ns, int64_t by_ns)
{
    int64_t sum;

    return __builtin_add_overflow(at_ns, by_ns, &sum) || sum == SPW_ARRIVALS_NONE
               ? SPW_ARRIVALS_NONE - 1
               : sum;
}

/* ---- the heap, earliest first --------------------------------------------------------------- */

static bool is_before(const struct spw_arrival *a, const struct spw_arrival *b)
{
    return a->at_ns != b->at_ns ? a->at_ns < b->at_ns : a->request < b->request;
}

static void push(struct spw_arrivals *arrivals, int64_t at_ns, uint32_t request)
{
    const struct spw_arrival arrival = {.at_ns = at_ns, .request = request};
    struct spw_arrival *due = arrivals->due;
    uint32_t at = arrivals->due_count++;

    for (; at > 0 && is_before(&arrival, &due[(at - 1) / 2]); at = (at - 1) / 2)
        due[at] = due[(at - 1) / 2];
    due[at] = arrival;
}

static struct spw_arrival pop(struct spw_arrivals *arrivals)
{
    struct spw_arrival *due = arrivals->due, first = due[0];
    const struct spw_arrival last = due[--arrivals->due_count];
    const uint32_t count = arrivals->due_count;
    uint32_t at = 0, child;

    for (; (child = 2 * at + 1) < count; at = child) {
        child += child + 1 < count && is_before(&due[child + 1], &due[child]);
        if (!is_before(&due[child], &last))
            break;
        due[at] = due[child];
    }
    due[at] = last;
    return first;
}

/* ---- conversations -------------------------------------------------------------------------- */

static void start_next_conversation(struct spw_arrivals *arrivals, int64_t now_ns)
{
    const struct spw_arrivals_conversation *conversation;

    if (arrivals->next_conversation == arrivals->trace->conversation_count)
        return;
    conversation = &arrivals->conversation[arrivals->next_conversation++];
    for (uint32_t i = conversation->first; i < conversation->end; i++)
        if (arrivals->trace->requests[i].follows == 0)
            push(arrivals, now_ns, i);
}

static void link_requests(struct spw_arrivals *arrivals)
{
    const struct spw_trace *trace = arrivals->trace;

    /* from the last to the first, so that followers of one request come in the trace's order */
    for (uint32_t i = (uint32_t)trace->request_count; i-- > 0;) {
        const struct spw_trace_request *request = &trace->requests[i];
        struct spw_arrivals_conversation *conversation =
            &arrivals->conversation[request->conversation];

        assert(request->follows <= i);
        if (request->follows > 0) {
            arrivals->next_follower[i] = arrivals->first_follower[request->follows - 1];
            arrivals->first_follower[request->follows - 1] = i + 1;
        }
        if (conversation->unanswered++ == 0)
            conversation->end = i + 1;
        conversation->first = i;
    }
}

int spw_arrivals_init(struct spw_arrivals *arrivals, const struct spw_trace *trace,
                      const struct spw_arrivals_options *options)
{
    *arrivals = (struct spw_arrivals){.trace = trace};
    if (trace->conversation_count == 0)
        return 0;
    assert(options->conversations > 0 && options->decode_rate > 0);
    arrivals->decode_rate = options->decode_rate;
    arrivals->due = calloc(trace->request_count, sizeof(*arrivals->due));
    arrivals->conversation = calloc(trace->conversation_count, sizeof(*arrivals->conversation));
    arrivals->first_follower = calloc(trace->request_count, sizeof(uint32_t));
    arrivals->next_follower = calloc(trace->request_count, sizeof(uint32_t));
    if (!arrivals->due || !arrivals->conversation || !arrivals->first_follower ||
        !arrivals->next_follower) {
        spw_arrivals_fini(arrivals);
        return -ENOMEM;
    }
    link_requests(arrivals);
    for (uint64_t i = 0; i < options->conversations && i < trace->conversation_count; i++)
        start_next_conversation(arrivals, 0);
    return 0;
}

void spw_arrivals_fini(struct spw_arrivals *arrivals)
{
    if (!arrivals)
        return;
    free(arrivals->due);
    free(arrivals->conversation);
    free(arrivals->first_follower);
    free(arrivals->next_follower);
    *arrivals = (struct spw_arrivals){0};
}

/* ---- what the driver asks and tells --------------------------------------------------------- */

bool spw_arrivals_at_end(const struct spw_arrivals *arrivals)
{
    return arrivals->taken == arrivals->trace->request_count;
}

int64_t spw_arrivals_next_ns(const struct spw_arrivals *arrivals)
{
    if (spw_arrivals_at_end(arrivals))
        return SPW_ARRIVALS_NONE;
    if (arrivals->trace->conversation_count == 0)
        return arrivals->trace->requests[arrivals->taken].arrival_ns;
    return arrivals->due_count > 0 ? arrivals->due[0].at_ns : SPW_ARRIVALS_NONE;
}

bool spw_arrivals_take(struct spw_arrivals *arrivals, int64_t now_ns,
                       struct spw_arrival *out_arrival)
{
    const int64_t at_ns = spw_arrivals_next_ns(arrivals);

    if (at_ns == SPW_ARRIVALS_NONE || at_ns > now_ns)
        return false;
    if (arrivals->trace->conversation_count > 0)
        *out_arrival = pop(arrivals);
    else
        *out_arrival = (struct spw_arrival){.at_ns = at_ns, .request = (uint32_t)arrivals->taken};
    arrivals->taken++;
    return true;
}

void spw_arrivals_answered(struct spw_arrivals *arrivals, uint32_t request, int64_t first_token_ns)
{
    const struct spw_trace_request *requests = arrivals->trace->requests;
    struct spw_arrivals_conversation *conversation;
    int64_t end_ns;

    if (arrivals->trace->conversation_count == 0)
        return;
    end_ns = later(first_token_ns, (int64_t)((uint64_t)requests[request].output_tokens * SECOND_NS /
                                             arrivals->decode_rate));
    for (uint32_t i = arrivals->first_follower[request]; i > 0; i = arrivals->next_follower[i - 1])
        push(arrivals, later(end_ns, requests[i - 1].think_ns), i - 1);
    conversation = &arrivals->conversation[requests[request].conversation];
    if (end_ns > conversation->answers_end_ns)
        conversation->answers_end_ns = end_ns;
    assert(conversation->unanswered > 0);
    if (--conversation->unanswered == 0)
        start_next_conversation(arrivals, conversation->answers_end_ns);
}
