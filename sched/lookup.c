/*
 * The search over complete chunks: scans of single groups, and the passes that make the groups
 * agree. Letters and digits in brackets are the rules of docs/lookup.md.
 *
 * Everything lives on the caller's stack and in its verdict bytes; no one else sees them.
 */
#include "sched/lookup.h"
#include <assert.h>
#include <errno.h>
#include <string.h>

#define NOWHERE UINT64_MAX

enum {
    FULL_BATCH_FIRST = 64, /* chunks asked for at once: a miss at the start costs little ... */
    WINDOW_BATCH_MIN = 16,
    BATCH_MAX = 1024, /* ... and a long prefix few calls */
};

/* One evaluation of the complete chunks on its way. */
struct search {
    const struct spw_lookup_input *in;
    struct spw_lookup_source *source;
    struct spw_lookup_result *result;
    bool pending_as_hit;
    uint64_t bound;    /* largest token position still considered; only falls */
    uint64_t hit_prev; /* what the group before left, NOWHERE before the first */
    bool any_wait;
};

/* What the scan of one group found. */
struct scan {
    bool waits;
    bool cut;
    uint64_t end; /* first chunk that isn't used, if it doesn't wait */
    struct spw_lookup_wait wait;
};

int spw_lookup_check(const struct spw_lookup_input *in)
{
    if (in->num_tokens > SPW_TOKENS_MAX || in->num_prompt_tokens > in->num_tokens ||
        in->num_computed_tokens > in->num_tokens || in->budget_tokens > SPW_TOKENS_MAX)
        return -EINVAL;
    for (uint32_t g = 0; g < in->groups->count; g++)
        if (in->chunks[g].count > in->num_tokens / in->groups->group[g].chunk_tokens)
            return -EINVAL;
    return 0;
}

void spw_lookup_begin(const struct spw_lookup_input *in)
{
    for (uint32_t g = 0; g < in->groups->count; g++)
        if (in->chunks[g].count != 0)
            memset(in->chunks[g].verdicts, SPW_NOT_READ, in->chunks[g].count);
}

static uint64_t min_u64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* First chunk in [chunk, end) that isn't HIT, else end; eight at a time. */
static uint64_t skip_hits(const uint8_t *verdicts, uint64_t chunk, uint64_t end)
{
    const uint64_t eight_hits = 0x0101010101010101u * SPW_HIT;
    uint64_t eight;

    for (; end - chunk >= sizeof(eight); chunk += sizeof(eight)) {
        memcpy(&eight, verdicts + chunk, sizeof(eight));
        if (eight != eight_hits)
            break;
    }
    while (chunk < end && verdicts[chunk] == SPW_HIT)
        chunk++;
    return chunk;
}

/* Read [first, end), none of which has been read before. */
static void read_chunks(const struct search *s, uint32_t g, uint64_t first, uint64_t end)
{
    s->source->fetch(s->source, g, first, end - first, s->in->chunks[g].verdicts + first);
}

/* Read @chunk and at most @batch - 1 chunks left of it, down to @first or what is known. */
static void read_leftwards(const struct search *s, uint32_t g, uint64_t first, uint64_t chunk,
                           uint64_t batch)
{
    const uint8_t *verdicts = s->in->chunks[g].verdicts;
    uint64_t from = chunk;

    while (from > first && chunk + 1 - from < batch && verdicts[from - 1] == SPW_NOT_READ)
        from--;
    read_chunks(s, g, from, chunk + 1);
}

/* First pending run from @pending to @end: worth a wait, or cut away? [B1, B2, B3] */
static void judge_pending_run(const struct search *s, uint64_t chunk_tokens, uint64_t pending,
                              uint64_t end, struct scan *out)
{
    out->cut = end - pending <= s->in->budget_tokens / chunk_tokens;
    out->waits = !out->cut;
    out->end = out->cut ? pending : end;
}

/* From the left up to the first MISS [P1, P2, P4]; RETRY before it always waits [P3]. */
static void scan_full(const struct search *s, uint32_t g, struct spw_chunk_range range,
                      struct scan *out)
{
    const uint8_t *verdicts = s->in->chunks[g].verdicts;
    uint64_t pending = NOWHERE, batch = FULL_BATCH_FIRST, i = range.first;
    bool retry = false;

    for (; (i = skip_hits(verdicts, i, range.end)) < range.end; i++) {
        if (verdicts[i] == SPW_NOT_READ) {
            read_chunks(s, g, i, min_u64(range.end, i + batch));
            batch = min_u64(2 * batch, BATCH_MAX);
        }
        if (verdicts[i] == SPW_MISS)
            break;
        assert(verdicts[i] <= SPW_RETRY);
        retry |= verdicts[i] == SPW_RETRY;
        if (verdicts[i] == SPW_PENDING && !s->pending_as_hit)
            pending = min_u64(pending, i);
    }
    *out = (struct scan){.waits = retry, .end = i};
    out->wait.searched = out->wait.run = (struct spw_chunk_range){range.first, i};
    if (!retry && pending != NOWHERE)
        judge_pending_run(s, s->in->groups->group[g].chunk_tokens, pending, i, out);
}

static bool has_pending(const uint8_t *verdicts, struct spw_chunk_range range)
{
    return range.end > range.first &&
           memchr(verdicts + range.first, SPW_PENDING, range.end - range.first) != NULL;
}

/*
 * From the right to the first run of present chunks that is a whole window [W1], else the run
 * that starts the range [W2]. The first candidate ends at the bound, maybe inside a chunk, and
 * may need one chunk more than those that end at a chunk edge [W7].
 */
static void scan_window(const struct search *s, uint32_t g, struct spw_chunk_range range,
                        struct scan *out)
{
    const struct spw_group *group = &s->in->groups->group[g];
    const uint8_t *verdicts = s->in->chunks[g].verdicts;
    struct spw_chunk_range need = spw_group_need(group, s->in->num_computed_tokens, s->bound);
    uint64_t window = need.end - need.first, i = range.end;
    uint64_t batch = window > WINDOW_BATCH_MIN ? window : WINDOW_BATCH_MIN;
    bool retry = false;

    *out = (struct scan){.end = range.end};
    while (i > range.first && out->end - i < window) {
        uint64_t next = i - 1;
        if (verdicts[next] == SPW_NOT_READ) {
            read_leftwards(s, g, range.first, next, batch);
            batch = min_u64(2 * batch, BATCH_MAX);
        }
        assert(verdicts[next] <= SPW_RETRY);
        if (verdicts[next] != SPW_HIT && verdicts[next] != SPW_PENDING) {
            retry |= verdicts[next] == SPW_RETRY;
            out->end = next;
            window = group->window_chunks;
        }
        i = next;
    }
    out->wait.searched = (struct spw_chunk_range){i, range.end};
    out->wait.run = (struct spw_chunk_range){i, out->end};
    out->waits = retry || (!s->pending_as_hit && /* [W4, W3]; [W6] elsewhere not */
                           has_pending(verdicts, out->wait.run));
}

/* Lower the bound to @position, and on to a place where a state can end [C3]. */
static bool lower_bound(struct search *s, uint64_t position, uint32_t g, uint64_t chunk)
{
    const uint64_t state_tokens = s->in->groups->state_tokens;

    if (position >= s->bound)
        return false;
    s->bound = state_tokens != 0 ? spw_round_down(position, state_tokens) : position;
    if (s->result->reason != SPW_REASON_CUT) {
        s->result->group = (int32_t)g;
        s->result->chunk = chunk;
    }
    return s->bound != position;
}

static bool less_than_a_chunk_left(const struct search *s, const struct spw_group *group)
{
    const uint64_t computed = s->in->num_computed_tokens;

    return s->bound < computed || s->bound - computed < group->chunk_tokens;
}

static bool miss(struct search *s, enum spw_reason reason, uint32_t g)
{
    const uint64_t computed = s->in->num_computed_tokens;

    s->result->action = SPW_ACTION_MISS;
    s->result->reason = (uint8_t)reason;
    s->result->end = computed;
    s->result->group = (int32_t)g;
    s->result->chunk = computed / s->in->groups->group[g].chunk_tokens;
    return false;
}

/* Keep what @g waits for, or take over how far it reaches. False: the evaluation is a miss. */
static bool take_scan(struct search *s, uint32_t g, uint64_t first, const struct scan *scan,
                      bool *out_moved)
{
    *out_moved = false;
    if (scan->waits) {
        s->result->wait[g] = scan->wait;
        s->result->wait[g].waits = s->any_wait = true;
        return true;
    }
    s->result->cut |= scan->cut;
    if (scan->end == first)
        return miss(s, scan->cut ? SPW_REASON_LEADING_PENDING : SPW_REASON_GROUP_MISS, g);
    if (scan->cut) {
        s->result->reason = SPW_REASON_CUT;
        s->result->group = (int32_t)g;
        s->result->chunk = scan->end;
    }
    *out_moved = lower_bound(s, scan->end * s->in->groups->group[g].chunk_tokens, g, scan->end);
    return true;
}

/* Look at one group. False: the evaluation is a miss. */
static bool visit_group(struct search *s, uint32_t g, bool *out_moved)
{
    const struct spw_group *group = &s->in->groups->group[g];
    const uint64_t key_count = s->in->chunks[g].count;
    struct spw_chunk_range range;
    struct scan scan;

    lower_bound(s, key_count * group->chunk_tokens, g, key_count); /* [C1] */
    if (less_than_a_chunk_left(s, group))
        return miss(s, SPW_REASON_SHORT, g);                        /* [C2] */
    range.first = s->in->num_computed_tokens / group->chunk_tokens; /* [A1] */
    range.end = spw_group_need(group, s->in->num_computed_tokens, s->bound).end;
    if (group->kind == SPW_GROUP_FULL)
        scan_full(s, g, range, &scan);
    else
        scan_window(s, g, range, &scan);
    if (!take_scan(s, g, range.first, &scan, out_moved))
        return false;
    if (less_than_a_chunk_left(s, group))
        return miss(s, SPW_REASON_SHORT, g);
    return true;
}

static void forget_waits(struct search *s)
{
    memset(s->result->wait, 0, sizeof(s->result->wait));
    s->any_wait = false;
}

/*
 * Visit order[from ..] once. False: the evaluation is a miss. *out_next is where the next pass
 * begins, the group count if none is due.
 */
static bool run_pass(struct search *s, uint32_t from, uint32_t *out_next)
{
    const struct spw_groups *groups = s->in->groups;
    bool seen_windowed = false, moved = false;

    *out_next = groups->count;
    for (uint32_t at = from; at < groups->count; at++) {
        const bool windowed = at >= groups->full_count;
        if (!visit_group(s, groups->order[at], &moved))
            return false; /* [V4] */
        const uint64_t hit = s->bound - s->in->num_computed_tokens;
        if (hit < s->hit_prev && s->hit_prev != NOWHERE) {
            if (s->any_wait) { /* [V1] a lower bound may need no wait */
                forget_waits(s);
                *out_next = 0;
            } else if (seen_windowed && *out_next == groups->count) {
                *out_next = groups->full_count; /* [V2] */
            }
        }
        if (windowed && moved && *out_next == groups->count)
            *out_next = groups->full_count; /* [C3] */
        seen_windowed |= windowed;
        s->hit_prev = hit;
    }
    return true;
}

/* [E1, E2, E3] */
static uint64_t ceiling(const struct spw_lookup_input *in)
{
    const struct spw_groups *groups = in->groups;

    if (groups->full_count == groups->count || in->num_tokens == 0)
        return in->num_tokens;
    if (groups->state_tokens == 0)
        return in->num_tokens - 1;
    return spw_round_down(in->num_tokens - 1, groups->state_tokens);
}

static bool waits_for_retry(const struct search *s)
{
    for (uint32_t g = 0; g < s->in->groups->count; g++) {
        const struct spw_lookup_wait *wait = &s->result->wait[g];
        if (wait->waits && memchr(s->in->chunks[g].verdicts + wait->searched.first, SPW_RETRY,
                                  wait->searched.end - wait->searched.first))
            return true;
    }
    return false;
}

void spw_lookup_complete(const struct spw_lookup_input *in, struct spw_lookup_source *source,
                         bool pending_as_hit, struct spw_lookup_result *out_result)
{
    struct search s = {in, source, out_result, pending_as_hit, ceiling(in), NOWHERE, false};
    uint32_t next = 0;

    memset(out_result, 0, sizeof(*out_result));
    out_result->reason = SPW_REASON_COMPLETE;
    out_result->group = -1;
    while (next < in->groups->count)
        if (!run_pass(&s, next, &next))
            return;
    out_result->end = s.bound;
    out_result->action = s.any_wait ? SPW_ACTION_DEFER : SPW_ACTION_LOAD;
    if (s.any_wait) /* [V3] */
        out_result->reason = waits_for_retry(&s) ? SPW_REASON_RETRY : SPW_REASON_PENDING;
}

int spw_lookup_loading(const struct spw_lookup_input *in, struct spw_lookup_source *source,
                       uint64_t end, uint64_t *out_chunk)
{
    if (source->loading == NULL)
        return -1;
    for (uint32_t g = 0; g < in->groups->count; g++) {
        struct spw_chunk_range need =
            spw_group_need(&in->groups->group[g], in->num_computed_tokens, end);
        uint64_t chunk = source->loading(source, g, need.first, need.end);
        if (chunk < need.end) { /* [G1] */
            *out_chunk = chunk;
            return (int)g;
        }
    }
    return -1;
}
