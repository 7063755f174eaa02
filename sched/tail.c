/*
 * The search for a partial tail; see tail.h. Letters and digits in brackets are the rules of
 * docs/lookup.md. No state of its own.
 */
#include "sched/tail.h"
#include <assert.h>
#include <string.h>

/* Boundaries of one kind that can't be taken now: the highest one, and are there others? */
struct candidates {
    uint64_t count;
    uint64_t boundary;
    uint8_t verdicts[SPW_GROUPS_MAX];
};

/* Weakest group decides: MISS, then RETRY, then PENDING, then HIT [T6]. */
static enum spw_verdict weakest(const uint8_t *verdicts, uint32_t count)
{
    enum spw_verdict found = SPW_HIT;

    for (uint32_t g = 0; g < count; g++) {
        assert(verdicts[g] <= SPW_RETRY);
        if (verdicts[g] == SPW_MISS)
            return SPW_MISS;
        if (verdicts[g] == SPW_RETRY || (verdicts[g] == SPW_PENDING && found == SPW_HIT))
            found = verdicts[g];
    }
    return found;
}

/* Highest boundary that may be taken, 0 if there is none: inside the chunk that holds @end, and
 * the last prompt token stays to be computed. Overflow: such a chunk reaches no further than
 * 2^63 - 1 + chunk_tokens. */
static uint64_t highest_boundary(const struct spw_lookup_input *in, uint64_t end)
{
    const uint64_t chunk = in->groups->group[0].chunk_tokens;
    uint64_t last = spw_round_down(end, chunk) + chunk - 1;

    if (!in->groups->tails || in->num_prompt_tokens == 0) /* [T0, T8] */
        return 0;
    if (last > in->num_prompt_tokens - 1) /* [T9] */
        last = in->num_prompt_tokens - 1;
    return spw_round_down(last, in->groups->hash_unit_tokens);
}

static void take(struct spw_tail_result *out, enum spw_action action, enum spw_reason reason,
                 uint64_t boundary, const uint8_t *verdicts)
{
    out->action = (uint8_t)action;
    out->reason = (uint8_t)reason;
    out->boundary = boundary;
    memcpy(out->verdicts, verdicts, sizeof(out->verdicts));
}

/* No boundary can be taken, and there are no complete chunks to load. */
static void wait(const struct candidates *retry, const struct candidates *pending,
                 struct spw_tail_result *out)
{
    out->more = retry->count + pending->count > 1;
    if (retry->count != 0) /* [T5] */
        take(out, SPW_ACTION_DEFER, SPW_REASON_TAIL_RETRY, retry->boundary, retry->verdicts);
    else if (pending->count != 0)
        take(out, SPW_ACTION_DEFER, SPW_REASON_TAIL_PENDING, pending->boundary, pending->verdicts);
}

void spw_tail_search(const struct spw_lookup_input *in, struct spw_lookup_source *source,
                     uint64_t end, bool has_hit, struct spw_tail_result *out_result)
{
    struct candidates retry = {.count = 0}, pending = {.count = 0}, *kind;
    uint64_t at_most = highest_boundary(in, end), boundary;
    uint8_t verdicts[SPW_GROUPS_MAX] = {0};

    *out_result = (struct spw_tail_result){.action = SPW_ACTION_MISS};
    if (source->tail == NULL)
        return;
    for (; at_most > end && source->tail(source, end, at_most, &boundary, verdicts);
         at_most = boundary - 1) {
        assert(boundary > end && boundary <= at_most);
        enum spw_verdict verdict = weakest(verdicts, in->groups->count);
        if (verdict == SPW_HIT) { /* [T1, T2] */
            take(out_result, SPW_ACTION_LOAD, SPW_REASON_TAIL, boundary, verdicts);
            return;
        }
        kind = verdict == SPW_RETRY ? &retry : &pending;
        if (verdict == SPW_MISS || kind->count++ != 0)
            continue;
        kind->boundary = boundary;
        memcpy(kind->verdicts, verdicts, sizeof(kind->verdicts));
    }
    if (!has_hit) /* [T7] */
        wait(&retry, &pending, out_result);
}
