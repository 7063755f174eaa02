/*
 * Puts one evaluation together: flags, complete chunks, chunks being loaded, the request guard,
 * the partial tail. Letters and digits in brackets are the rules of docs/lookup.md.
 */
#include "sched/decide.h"
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

/* The groups agree to wait: RETRY first, as it names the reason. */
static void defer_for_groups(const struct spw_decide_input *in,
                             const struct spw_lookup_result *result, struct spw_decision_core *out)
{
    settle(out, SPW_ACTION_DEFER, result->reason);
    for (uint32_t g = 0; g < in->lookup.groups->count; g++)
        if (result->wait[g].waits)
            add_waits(in, g, result->wait[g].searched, SPW_RETRY, out);
    for (uint32_t g = 0; g < in->lookup.groups->count; g++)
        if (result->wait[g].waits)
            add_waits(in, g, result->wait[g].run, SPW_PENDING, out);
    decide_by_first_wait(out);
}

static void set_need(const struct spw_decide_input *in, uint64_t end, struct spw_decision_core *out)
{
    const struct spw_lookup_input *lookup = &in->lookup;

    for (uint32_t g = 0; g < lookup->groups->count; g++)
        out->need[g] = spw_group_need(&lookup->groups->group[g], lookup->num_computed_tokens, end);
}

/*
 * The cuts cost the request more than the budget: wait for what is pending up to @end. That can
 * be nothing: a wait that a lower bound made unnecessary, and a cut, can have left less than one
 * chunk of a coarse group. Then any pending chunk that was read may change the answer.
 */
static void defer_for_guard(const struct spw_decide_input *in, uint64_t end,
                            struct spw_decision_core *out)
{
    const struct spw_lookup_input *lookup = &in->lookup;

    settle(out, SPW_ACTION_DEFER, SPW_REASON_PENDING);
    for (uint32_t g = 0; g < lookup->groups->count; g++) {
        struct spw_chunk_range need =
            spw_group_need(&lookup->groups->group[g], lookup->num_computed_tokens, end);
        add_waits(in, g, need, SPW_PENDING, out);
    }
    if (out->wait_count == 0)
        for (uint32_t g = 0; g < lookup->groups->count; g++)
            add_waits(in, g, (struct spw_chunk_range){0, lookup->chunks[g].count}, SPW_PENDING,
                      out);
    decide_by_first_wait(out);
}

static uint64_t beyond(uint64_t position, uint64_t end)
{
    return position > end ? position - end : 0;
}

/*
 * A cut was made: where would the hit end had all writes ended? Writes that to *out_uncut_end.
 * True: the request waits for it [GU].
 */
static bool guard_defers(const struct spw_decide_input *in, struct spw_lookup_source *source,
                         uint64_t end, uint64_t *out_uncut_end, struct spw_decision_core *out)
{
    struct spw_lookup_result uncut;

    spw_lookup_complete(&in->lookup, source, true, &uncut);
    *out_uncut_end = uncut.action == SPW_ACTION_LOAD ? uncut.end : end;
    if (in->scope != SPW_SCOPE_REQUEST)
        return false;
    if (uncut.action == SPW_ACTION_DEFER) {
        defer_for_groups(in, &uncut, out);
        return true;
    }
    if (beyond(*out_uncut_end, end) <= in->lookup.budget_tokens)
        return false;
    defer_for_guard(in, uncut.end, out);
    return true;
}

static uint64_t chunk_at(const struct spw_decide_input *in, uint32_t g, uint64_t boundary)
{
    return boundary / in->lookup.groups->group[g].chunk_tokens;
}

static void defer_for_tail(const struct spw_decide_input *in, const struct spw_tail_result *tail,
                           struct spw_decision_core *out)
{
    settle(out, SPW_ACTION_DEFER, tail->reason);
    out->wait_more = tail->more;
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

static void finish_with_tail(const struct spw_decide_input *in, struct spw_lookup_source *source,
                             const struct spw_lookup_result *complete, uint64_t uncut_end,
                             struct spw_decision_core *out)
{
    struct spw_tail_result tail;

    spw_tail_search(&in->lookup, source, complete->end, complete->action == SPW_ACTION_LOAD, &tail);
    if (tail.action == SPW_ACTION_DEFER) {
        defer_for_tail(in, &tail, out);
        return;
    }
    if (tail.action == SPW_ACTION_LOAD) {
        take_tail(in, source, tail.boundary, out);
    } else {
        take_complete(in, complete, out);
        uncut_end = uncut_end > tail.boundary ? uncut_end : tail.boundary;
    }
    if (out->action != SPW_ACTION_DEFER)
        out->tokens_recomputed =
            beyond(uncut_end, in->lookup.num_computed_tokens + out->hit_tokens);
}

static void evaluate(const struct spw_decide_input *in, struct spw_lookup_source *source,
                     struct spw_decision_core *out)
{
    struct spw_lookup_result complete;
    uint64_t uncut_end, chunk;
    int g;

    spw_lookup_begin(&in->lookup);
    spw_lookup_complete(&in->lookup, source, false, &complete);
    if (complete.action == SPW_ACTION_DEFER) {
        defer_for_groups(in, &complete, out);
        return;
    }
    uncut_end = complete.end;
    if (complete.action == SPW_ACTION_LOAD &&
        (g = spw_lookup_loading(&in->lookup, source, complete.end, &chunk)) >= 0)
        settle_at(out, SPW_ACTION_DEFER, SPW_REASON_LOADING, g, chunk);
    else if (!complete.cut || !guard_defers(in, source, complete.end, &uncut_end, out))
        finish_with_tail(in, source, &complete, uncut_end, out);
}

int spw_decide(const struct spw_decide_input *in, struct spw_lookup_source *source,
               struct spw_decision_core *out_decision)
{
    if (in->scope > SPW_SCOPE_GROUP || spw_lookup_check(&in->lookup) != 0)
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
