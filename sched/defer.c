/*
 * Requests that were told to wait: what they wait for, how long they may and did, which of them may
 * have changed. Private memory; written in shared memory: awaited bits (await.h), commands to bring chunks up
 * (promote.c), the waits' records.
 *
 * A deferral watches up to eight chunks that it waits for; each record drained for one of them wakes
 * it, and so do workers that come and go, and its limit. Asked again before that, it is deferred
 * again at once.
 */
#include "sched/handle.h"

/* A priced wait is weighed again at its ETA, at the latest after a second, at the earliest after: */
#define PRICED_AGAIN_NS 10000000ull

uint64_t spw_client_now(const struct spw_client *client)
{
    return client->clock ? client->clock(client->clock_ctx) : spw_monotonic_ns();
}

/* ---- asked again ----------------------------------------------------------------------------- */

bool spw_defer_stands(const struct spw_request *request, uint64_t computed_tokens)
{
    const struct spw_deferral *deferral = &request->deferral;
    return deferral->stands && !spw_waiter_woken(&request->waiter) &&
           deferral->computed_tokens == computed_tokens &&
           deferral->keys_version == request->keys_version &&
           (deferral->on_chunks || deferral->loading_epoch == request->client->loading_epoch);
}

void spw_defer_pause(struct spw_request *request, uint64_t out_expired[SPW_WAIT_KINDS])
{
    spw_wait_pause(&request->clock, request->client->now_ns);
    for (uint32_t kind = 0; kind < SPW_WAIT_KINDS; kind++)
        out_expired[kind] = spw_wait_expired_tokens(&request->clock, (enum spw_wait_kind)kind,
                                                    &request->space->limits);
}

/* ---- a wait's beginning and end -------------------------------------------------------------- */

/* The part of the prompt that is waited for, in tokens. */
struct stretch {
    uint64_t first;
    uint64_t end;
};

static void stretch_over(struct stretch *stretch, uint64_t first, uint64_t end)
{
    stretch->first = first < stretch->first ? first : stretch->first;
    stretch->end = end > stretch->end ? end : stretch->end;
}

static struct stretch waited_for(const struct spw_request *request,
                                 const struct spw_decision_core *core)
{
    const struct spw_groups *groups = &request->space->groups;
    struct stretch stretch = {.first = UINT64_MAX, .end = 0};
    for (uint32_t i = 0; i < core->wait_count; i++) {
        uint64_t tokens = groups->group[core->wait[i].group].chunk_tokens;
        uint64_t end = (core->wait[i].chunk + 1) * tokens;
        stretch_over(&stretch, core->wait[i].chunk * tokens,
                     core->wait[i].boundary ? core->wait[i].boundary : end);
    }
    for (uint32_t g = 0; g < groups->count; g++) {
        uint64_t tokens = groups->group[g].chunk_tokens;
        if (core->await[g].end != 0)
            stretch_over(&stretch, core->await[g].first * tokens, core->await[g].end * tokens);
    }
    if (core->wait_more && core->reason != SPW_REASON_PENDING) /* where the others are isn't told */
        stretch_over(&stretch, request->tokens, request->tokens);
    if (stretch.end == 0 && core->group >= 0) { /* being loaded for another request */
        uint64_t tokens = groups->group[core->group].chunk_tokens;
        stretch_over(&stretch, core->chunk * tokens, (core->chunk + 1) * tokens);
    }
    return stretch;
}

static enum spw_wait_kind kind_of(uint8_t reason)
{
    return reason == SPW_REASON_RETRY || reason == SPW_REASON_TAIL_RETRY ? SPW_WAIT_FOR_RETRY
                                                                         : SPW_WAIT_FOR_PENDING;
}

/* When it is to be asked again though nothing has happened. */
static uint64_t deadline(const struct spw_request *request, const struct spw_decision_core *core)
{
    uint64_t now_ns = request->client->now_ns, again_ns = core->eta_ns;
    uint64_t limit_ns = spw_wait_deadline(&request->clock, &request->space->limits);
    if (!request->space->priced || kind_of(core->reason) != SPW_WAIT_FOR_PENDING)
        return limit_ns;
    again_ns = again_ns < SPW_STALL_NS ? again_ns : SPW_STALL_NS;
    again_ns = now_ns + (again_ns > PRICED_AGAIN_NS ? again_ns : PRICED_AGAIN_NS);
    return again_ns < limit_ns ? again_ns : limit_ns;
}

static void watch(struct spw_request *request, const struct spw_decision_core *core,
                  uint64_t deadline_ns)
{
    uint64_t tag[SPW_DECIDE_WAITS_MAX];
    uint32_t count = 0;
    for (uint32_t i = 0; i < core->wait_count; i++) {
        const struct spw_decide_wait *wait = &core->wait[i];
        const struct spw_chunk_ref ref = {
            .group = wait->group,
            .index = wait->boundary ? SPW_CHUNK_TAIL : wait->chunk,
            .boundary = wait->boundary,
        };
        struct spw_chunk_key key;
        if (spw_request_key(request, &ref, &key) == 0)
            tag[count++] = key.digest[0];
    }
    request->deferral.on_chunks = count != 0;
    spw_wakeup_wait(&request->client->wakeup, &request->waiter, tag, count, deadline_ns);
}

static void begin_wait(struct spw_request *request, const struct spw_decision_core *core)
{
    struct stretch stretch = waited_for(request, core);
    spw_wait_begin(&request->clock, kind_of(core->reason), stretch.first, stretch.end,
                   request->client->now_ns);
    spw_await(request, core);
    bool asked = spw_promote(request, core);
    watch(request, core, asked ? deadline(request, core) : request->client->now_ns);
}

static void count_wait(struct spw_client *client, enum spw_wait_outcome outcome, uint64_t waited_ns)
{
    spw_wait_record_add(&client->own->head->wait[outcome], waited_ns);
    spw_count(client, SPW_CLIENT_waits_expired, outcome == SPW_WAIT_EXPIRED);
}

/* What it waited for may have come to the GPU by another request: then a miss has lost nothing. */
static enum spw_wait_outcome outcome_on_gpu(const struct spw_request *request,
                                            const struct spw_decision *decision,
                                            enum spw_wait_outcome outcome)
{
    bool missed = outcome == SPW_WAIT_LOST || outcome == SPW_WAIT_RETRY;
    bool more = decision->computed_tokens > request->deferral.computed_tokens;
    return missed && more ? SPW_WAIT_HIT : outcome;
}

static void stop_waiting(struct spw_request *request)
{
    request->deferral.stands = false;
    spw_await_over(request);
    spw_promote_over(request);
    spw_wakeup_forget(&request->client->wakeup, &request->waiter);
}

void spw_defer_settle(struct spw_request *request, const struct spw_decision_core *core,
                      struct spw_decision *decision)
{
    struct spw_client *client = request->client;
    struct spw_deferral *deferral = &request->deferral;
    enum spw_wait_outcome outcome;
    if (spw_wait_evaluated(&request->sample, (enum spw_action)core->action,
                           (enum spw_reason)core->reason, client->now_ns, &decision->waited_ns,
                           &outcome))
        count_wait(client, outcome_on_gpu(request, decision, outcome), decision->waited_ns);
    else
        decision->waited_ns = spw_wait_sample_ns(&request->sample, client->now_ns);
    if (core->action != SPW_ACTION_DEFER) {
        stop_waiting(request);
        return;
    }
    /* a transfer of its own is asked about anew each time: that costs nothing */
    deferral->stands = core->reason != SPW_REASON_TRANSFER;
    if (deferral->stands)
        begin_wait(request, core);
    else
        spw_wakeup_wait(&client->wakeup, &request->waiter, NULL, 0, UINT64_MAX);
    deferral->loading_epoch = client->loading_epoch;
    deferral->computed_tokens = decision->computed_tokens;
    deferral->keys_version = request->keys_version;
    deferral->decision = *decision;
}

void spw_defer_cancel(struct spw_request *request)
{
    uint64_t now_ns = spw_client_now(request->client), waited_ns;
    stop_waiting(request);
    spw_wait_pause(&request->clock, now_ns);
    if (spw_wait_cancelled(&request->sample, now_ns, &waited_ns))
        count_wait(request->client, SPW_WAIT_CANCELLED, waited_ns);
}

void spw_defer_transfer_ended(struct spw_request *request)
{
    if (!request->deferral.stands)
        spw_wakeup_one(&request->client->wakeup, &request->waiter);
}

/* ---- which may have changed ------------------------------------------------------------------ */

int spw_woken(struct spw_client *client, struct spw_request **out_requests, uint32_t max)
{
    uint32_t count = 0;
    struct spw_waiter *waiter;
    int rc = client ? spw_client_check(client) : -EINVAL;
    if (rc < 0)
        return rc;
    if (!client->in_step || (!out_requests && max > 0))
        return -EINVAL;
    while (count < max && count < INT32_MAX && (waiter = spw_wakeup_next(&client->wakeup)))
        out_requests[count++] = SPW_LINKED(waiter, struct spw_request, waiter);
    spw_count(client, SPW_CLIENT_woken, count);
    return (int)count;
}
