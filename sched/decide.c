/*
 * Puts one evaluation together: flags, complete chunks, chunks being loaded, the request guard,
 * the partial tail. Letters and digits in brackets are the rules of docs/lookup.md.
 */
#include "sched/decide.h"
#include "sched/recompute.h"
#include "sched/tail.h"
#include <errno.h>
#include <string.h>

static const char *const action_names[] = {
    [SPW_ACTION_LOAD] = "load",
    [SPW_ACTION_MISS] = "miss",
    [SPW_ACTION_DEFER] = "defer",
};

static const char *const reason_names[SPW_REASON_COUNT] = {
    [SPW_REASON_COMPLETE] = "complete",
    [SPW_REASON_CUT] = "cut",
    [SPW_REASON_TAIL] = "tail",
    [SPW_REASON_SHORT] = "short",
    [SPW_REASON_GROUP_MISS] = "group_miss",
    [SPW_REASON_LEADING_PENDING] = "leading_pending",
    [SPW_REASON_SKIP] = "skip",
    [SPW_REASON_RETRY] = "retry",
    [SPW_REASON_PENDING] = "pending",
    [SPW_REASON_LOADING] = "loading",
    [SPW_REASON_TRANSFER] = "transfer",
    [SPW_REASON_TAIL_RETRY] = "tail_retry",
    [SPW_REASON_TAIL_PENDING] = "tail_pending",
    [SPW_REASON_LOAD_LIMIT] = "load_limit",
    [SPW_REASON_MISS_LIMIT] = "miss_limit",
    [SPW_REASON_LOAD_NOT_PROMOTED] = "load_not_promoted",
    [SPW_REASON_MISS_NOT_PROMOTED] = "miss_not_promoted",
};

const char *spw_action_name(uint8_t action)
{
    return action <= SPW_ACTION_DEFER ? action_names[action] : NULL;
}

const char *spw_reason_name(uint8_t reason)
{
    return reason < SPW_REASON_COUNT ? reason_names[reason] : NULL;
}

static void settle(struct spw_decision_core *out, uint8_t action, uint8_t reason)
{
    out->action = action;
    out->reason = reason;
    out->group = -1;
}

static void settle_at(struct spw_decision_core *out, uint8_t action, uint8_t reason, int group,
                      uint64_t chunk)
{
    settle(out, action, reason);
    out->group = group;
    out->chunk = chunk;
}

static void add_wait(struct spw_decision_core *out, uint32_t group, uint64_t chunk,
                     uint64_t boundary)
{
    if (out->wait_count == SPW_DECIDE_WAITS_MAX) {
        out->wait_more = true;
        return;
    }
    out->wait[out->wait_count++] = (struct spw_decide_wait){group, chunk, boundary};
}

/* Add the chunks of @range that are @verdict. */
static void add_waits(const struct spw_decide_input *in, uint32_t g, struct spw_chunk_range range,
                      enum spw_verdict verdict, struct spw_decision_core *out)
{
    const uint8_t *verdicts = in->lookup.chunks[g].verdicts;

    for (uint64_t i = range.first; i < range.end && !out->wait_more; i++)
        if (verdicts[i] == verdict)
            add_wait(out, g, i, 0);
}

static void decide_by_first_wait(struct spw_decision_core *out)
{
    out->group = (int32_t)out->wait[0].group;
    out->chunk = out->wait[0].chunk;
}

/* ---- what pends, and how long ---------------------------------------------------------------- */

/* @range without what isn't PENDING at its two ends. */
static struct spw_chunk_range pending_within(const struct spw_decide_input *in, uint32_t g,
                                             struct spw_chunk_range range)
{
    const uint8_t *verdicts = in->lookup.chunks[g].verdicts;

    while (range.first < range.end && verdicts[range.first] != SPW_PENDING)
        range.first++;
    while (range.first < range.end && verdicts[range.end - 1] != SPW_PENDING)
        range.end--;
    return range.first < range.end ? range : (struct spw_chunk_range){0, 0};
}

/* Chunks that pend and are needed to go on from @end; by group. */
static void pending_up_to(const struct spw_decide_input *in, uint64_t end,
                          struct spw_chunk_range *out_pending)
{
    const struct spw_lookup_input *lookup = &in->lookup;

    for (uint32_t g = 0; g < lookup->groups->count; g++)
        out_pending[g] = pending_within(
            in, g, spw_group_need(&lookup->groups->group[g], lookup->num_computed_tokens, end));
}

static bool any_pends(const struct spw_decide_input *in, const struct spw_chunk_range *pending)
{
    for (uint32_t g = 0; g < in->lookup.groups->count; g++)
        if (pending[g].end != 0)
            return true;
    return false;
}

/* Until all of @pending is ready; not known if nothing pends. */
static uint64_t eta_of(const struct spw_decide_input *in, struct spw_lookup_source *source,
                       const struct spw_chunk_range *pending)
{
    uint64_t latest = 0;

    if (source->eta == NULL || !any_pends(in, pending))
        return UINT64_MAX;
    for (uint32_t g = 0; g < in->lookup.groups->count; g++) {
        if (pending[g].end == 0)
            continue;
        const uint64_t eta = source->eta(source, g, pending[g].first, pending[g].end);
        latest = eta > latest ? eta : latest;
    }
    return latest;
}

/* Is it better to wait @eta_ns than to compute @tokens? [AU] */
static bool worth_the_wait(const struct spw_decide_input *in, uint64_t tokens, uint64_t eta_ns)
{
    if (!in->priced)
        return tokens > in->lookup.budget_tokens;
    return spw_recompute_pays(eta_ns, tokens, in->price, in->prefill_tokens_per_s);
}

/* ---- waits ----------------------------------------------------------------------------------- */

/* The groups agree to wait: RETRY first, as it names the reason. A group that would not wait is
 * needed up to where they agree; in it can pend what a cut gave up, while the guard looks. */
static void defer_for_groups(const struct spw_decide_input *in, struct spw_lookup_source *source,
                             const struct spw_lookup_result *result, struct spw_decision_core *out)
{
    settle(out, SPW_ACTION_DEFER, result->reason);
    for (uint32_t g = 0; g < in->lookup.groups->count; g++)
        if (result->wait[g].waits)
            add_waits(in, g, result->wait[g].searched, SPW_RETRY, out);
    pending_up_to(in, result->end, out->await);
    for (uint32_t g = 0; g < in->lookup.groups->count; g++) {
        if (result->wait[g].waits)
            out->await[g] = pending_within(in, g, result->wait[g].run);
        add_waits(in, g, out->await[g], SPW_PENDING, out);
    }
    if (out->reason == SPW_REASON_PENDING)
        out->eta_ns = eta_of(in, source, out->await);
    decide_by_first_wait(out);
}

static void set_need(const struct spw_decide_input *in, uint64_t end, struct spw_decision_core *out)
{
    const struct spw_lookup_input *lookup = &in->lookup;

    for (uint32_t g = 0; g < lookup->groups->count; g++)
        out->need[g] = spw_group_need(&lookup->groups->group[g], lookup->num_computed_tokens, end);
}

/* What a budget or price gave up: where the hit would end, and until when what it lacks pends. */
struct loss {
    uint64_t end;
    uint64_t eta_ns;
};

/*
 * The cuts cost the request more than the budget: wait for what is pending up to there. That can
 * be nothing: a wait that a lower bound made unnecessary, and a cut, can have left less than one
 * chunk of a coarse group. Then any pending chunk that was read may change the answer; a price
 * never comes here with nothing, as its ETA isn't known.
 */
static void defer_for_guard(const struct spw_decide_input *in, struct spw_lookup_source *source,
                            const struct loss *loss, const struct spw_chunk_range *pending,
                            struct spw_decision_core *out)
{
    const uint32_t groups = in->lookup.groups->count;

    settle(out, SPW_ACTION_DEFER, SPW_REASON_PENDING);
    out->eta_ns = loss->eta_ns;
    memcpy(out->await, pending, groups * sizeof(*pending));
    if (!any_pends(in, out->await)) {
        for (uint32_t g = 0; g < groups; g++)
            out->await[g] =
                pending_within(in, g, (struct spw_chunk_range){0, in->lookup.chunks[g].count});
        out->eta_ns = eta_of(in, source, out->await);
    }
    for (uint32_t g = 0; g < groups; g++)
        add_waits(in, g, out->await[g], SPW_PENDING, out);
    decide_by_first_wait(out);
}

/*
 * A cut was made, and the hit ends at @end: what does that lose? True: the request waits [GU].
 */
static bool guard_defers(const struct spw_decide_input *in, struct spw_lookup_source *source,
                         uint64_t end, struct loss *out_loss, struct spw_decision_core *out)
{
    struct spw_chunk_range pending[SPW_GROUPS_MAX];
    struct spw_lookup_result uncut;

    spw_lookup_complete(&in->lookup, source, true, &uncut);
    if (in->scope == SPW_SCOPE_REQUEST && uncut.action == SPW_ACTION_DEFER) {
        defer_for_groups(in, source, &uncut, out);
        return true;
    }
    if (uncut.action != SPW_ACTION_LOAD || uncut.end <= end)
        return false;
    out_loss->end = uncut.end;
    pending_up_to(in, uncut.end, pending);
    out_loss->eta_ns = eta_of(in, source, pending);
    if (in->scope != SPW_SCOPE_REQUEST || !worth_the_wait(in, uncut.end - end, out_loss->eta_ns))
        return false;
    defer_for_guard(in, source, out_loss, pending, out);
    return true;
}

static uint64_t chunk_at(const struct spw_decide_input *in, uint32_t g, uint64_t boundary)
{
    return boundary / in->lookup.groups->group[g].chunk_tokens;
}

static void defer_for_tail(const struct spw_decide_input *in, const struct spw_tail_result *tail,
                           uint64_t eta_ns, struct spw_decision_core *out)
{
    settle(out, SPW_ACTION_DEFER, tail->reason);
    out->wait_more = tail->more;
    if (tail->reason == SPW_REASON_TAIL_PENDING)
        out->eta_ns = eta_ns;
    if (memchr(tail->verdicts, SPW_PENDING, in->lookup.groups->count) != NULL)
        out->await_boundary = tail->boundary;
    for (int pass = 0; pass < 2; pass++)
        for (uint32_t g = 0; g < in->lookup.groups->count; g++)
            if (tail->verdicts[g] == (pass == 0 ? SPW_RETRY : SPW_PENDING))
                add_wait(out, g, chunk_at(in, g, tail->boundary), tail->boundary);
    decide_by_first_wait(out);
}

/* A tail was found: take it, unless one of its objects is being loaded for another request. */
static void take_tail(const struct spw_decide_input *in, struct spw_lookup_source *source,
                      uint64_t boundary, struct spw_decision_core *out)
{
    int g = source->tail_loading != NULL ? source->tail_loading(source, boundary) : -1;

    if (g >= 0) {
        settle_at(out, SPW_ACTION_DEFER, SPW_REASON_LOADING, g,
                  chunk_at(in, (uint32_t)g, boundary));
        return;
    }
    settle(out, SPW_ACTION_LOAD, SPW_REASON_TAIL);
    out->tail_boundary = boundary;
    out->hit_tokens = boundary - in->lookup.num_computed_tokens;
    set_need(in, boundary, out);
}

/* No tail: the complete part's load or miss stands. */
static void take_complete(const struct spw_decide_input *in,
                          const struct spw_lookup_result *complete, struct spw_decision_core *out)
{
    settle_at(out, complete->action, complete->reason, complete->group, complete->chunk);
    if (complete->action != SPW_ACTION_LOAD)
        return;
    out->hit_tokens = complete->end - in->lookup.num_computed_tokens;
    set_need(in, complete->end, out);
}

/* A tail could be waited for: is it? [T5, T3] If not [T4], the larger loss is in *loss. */
static bool tail_defers(const struct spw_decide_input *in, struct spw_lookup_source *source,
                        const struct spw_tail_result *tail, uint64_t end, struct loss *loss,
                        struct spw_decision_core *out)
{
    uint64_t eta_ns = UINT64_MAX;

    if (tail->reason == SPW_REASON_TAIL_PENDING && source->tail_eta != NULL)
        eta_ns = source->tail_eta(source, tail->boundary);
    if (tail->reason == SPW_REASON_TAIL_RETRY || worth_the_wait(in, tail->boundary - end, eta_ns)) {
        defer_for_tail(in, tail, eta_ns, out);
        return true;
    }
    if (tail->boundary > loss->end) {
        loss->end = tail->boundary;
        loss->eta_ns = eta_ns;
    }
    return false;
}

static uint64_t beyond(uint64_t position, uint64_t end)
{
    return position > end ? position - end : 0;
}

static void finish_with_tail(const struct spw_decide_input *in, struct spw_lookup_source *source,
                             const struct spw_lookup_result *complete, struct loss *loss,
                             struct spw_decision_core *out)
{
    struct spw_tail_result tail;

    spw_tail_search(&in->lookup, source, complete->end, complete->action == SPW_ACTION_LOAD, &tail);
    if (tail.action == SPW_ACTION_DEFER && tail_defers(in, source, &tail, complete->end, loss, out))
        return;
    if (tail.action == SPW_ACTION_LOAD)
        take_tail(in, source, tail.boundary, out);
    else
        take_complete(in, complete, out);
    if (out->action == SPW_ACTION_DEFER)
        return;
    out->tokens_recomputed = beyond(loss->end, in->lookup.num_computed_tokens + out->hit_tokens);
    out->eta_ns = loss->eta_ns;
}

static void evaluate(const struct spw_decide_input *in, struct spw_lookup_source *source,
                     struct spw_decision_core *out)
{
    struct spw_lookup_result complete;
    struct loss loss = {.end = 0};
    uint64_t chunk;
    int g;

    spw_lookup_begin(&in->lookup);
    spw_lookup_complete(&in->lookup, source, false, &complete);
    if (complete.action == SPW_ACTION_DEFER) {
        defer_for_groups(in, source, &complete, out);
        return;
    }
    if (complete.action == SPW_ACTION_LOAD &&
        (g = spw_lookup_loading(&in->lookup, source, complete.end, &chunk)) >= 0)
        settle_at(out, SPW_ACTION_DEFER, SPW_REASON_LOADING, g, chunk);
    else if (!complete.cut || !guard_defers(in, source, complete.end, &loss, out))
        finish_with_tail(in, source, &complete, &loss, out);
}

int spw_decide(const struct spw_decide_input *in, struct spw_lookup_source *source,
               struct spw_decision_core *out_decision)
{
    struct spw_decide_input unlimited;

    if (in->scope > SPW_SCOPE_GROUP)
        return -EINVAL;
    if (in->priced) {
        if (in->scope != SPW_SCOPE_REQUEST || in->price == 0 || in->prefill_tokens_per_s == 0)
            return -EINVAL;
        unlimited = *in;
        unlimited.lookup.budget_tokens = SPW_TOKENS_MAX;
        in = &unlimited;
    }
    if (spw_lookup_check(&in->lookup) != 0)
        return -EINVAL;
    memset(out_decision, 0, sizeof(*out_decision));
    if (in->inflight) /* [S2] */
        settle(out_decision, SPW_ACTION_DEFER, SPW_REASON_TRANSFER);
    else if (in->skip) /* [S1] */
        settle(out_decision, SPW_ACTION_MISS, SPW_REASON_SKIP);
    else
        evaluate(in, source, out_decision);
    return 0;
}
