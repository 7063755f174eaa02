/*
 * See naive_lookup.h. Wide integers, so that no sum has to be thought about.
 */
#include "tests/fuzz/naive_lookup.h"
#include <string.h>

typedef __int128 wide;

/* The complete part's outcome. */
struct part {
    char action; /* 'l', 'm', 'd' */
    const char *reason;
    wide end;
    bool cut;
    bool waits[NAIVE_GROUPS];
    wide run[NAIVE_GROUPS][2]; /* what a group that waits would use, P in there is waited for */
};

/* One group's answer: a number of chunks, or a wait. */
struct answer {
    bool wait, retry, budget_cut;
    wide chunks;
    wide run[2];
};

static wide ceil_div(wide a, wide b)
{
    return (a + b - 1) / b;
}

static wide chunk_size(const struct naive_case *c, int g)
{
    return (wide)c->group[g].block * c->blocks_per_chunk;
}

static wide window_chunks(const struct naive_case *c, int g)
{
    switch (c->group[g].kind) {
    case NAIVE_FULL:
        return 0;
    case NAIVE_STATE:
        return 1;
    default:
        return ceil_div(c->group[g].window_tokens, chunk_size(c, g));
    }
}

static wide state_chunk(const struct naive_case *c)
{
    for (int g = 0; g < c->groups; g++)
        if (c->group[g].kind == NAIVE_STATE)
            return chunk_size(c, g);
    return 0;
}

/* W7 */
static wide window_at(const struct naive_case *c, int g, wide bound)
{
    wide w = window_chunks(c, g), chunk = chunk_size(c, g);
    if (c->group[g].kind == NAIVE_SLIDING) {
        wide from = bound - c->group[g].window_tokens + 1;
        if (from < 0)
            from = 0;
        wide more = ceil_div(bound, chunk) - from / chunk;
        if (more > w)
            w = more;
    }
    return w;
}

static bool present(char state)
{
    return state == 'H' || state == 'P';
}

static struct answer scan_full(const struct naive_case *c, int g, wide first, wide last)
{
    const char *states = c->group[g].states;
    struct answer a = {0};
    wide end = first;
    while (end < last && states[end] != 'M')
        end++;
    a.chunks = end - first;
    a.run[0] = first;
    a.run[1] = end;
    for (wide i = first; i < end; i++)
        if (states[i] == 'R')
            a.wait = a.retry = true; /* P3 */
    if (a.wait)
        return a;
    for (wide i = first; i < end; i++) {
        if (states[i] != 'P')
            continue;
        if (end - i <= (wide)c->budget / chunk_size(c, g)) { /* B1, B3 */
            a.budget_cut = true;
            a.chunks = i - first;
        } else {
            a.wait = true; /* B2 */
        }
        break;
    }
    return a;
}

static struct answer scan_windowed(const struct naive_case *c, int g, wide first, wide last,
                                   wide bound)
{
    const char *states = c->group[g].states;
    struct answer a = {0};
    wide run_from = -1, run_to = -1;
    /* W1: try every end, the rightmost first */
    for (wide end = last; end > first && run_from < 0; end--) {
        wide w = end == last ? window_at(c, g, bound) : window_chunks(c, g);
        bool whole = end - w >= first;
        for (wide i = end - w; whole && i < end; i++)
            whole = present(states[i]);
        if (whole) {
            run_from = end - w;
            run_to = end;
        }
    }
    wide searched_from = run_from < 0 ? first : run_from;
    if (run_from < 0) { /* W2 */
        wide end = first;
        while (end < last && present(states[end]))
            end++;
        if (end > first) {
            run_from = first;
            run_to = end;
        }
    }
    for (wide i = searched_from; i < last; i++)
        if (states[i] == 'R')
            a.wait = a.retry = true; /* W4 */
    for (wide i = run_from; run_from >= 0 && i < run_to; i++)
        if (states[i] == 'P')
            a.wait = true; /* W3 */
    a.chunks = run_from < 0 ? 0 : run_to - first;
    a.run[0] = run_from < 0 ? 0 : run_from;
    a.run[1] = run_from < 0 ? 0 : run_to;
    return a;
}

static int sorted_groups(const struct naive_case *c, int *order)
{
    int n = 0;
    for (int g = 0; g < c->groups; g++)
        if (c->group[g].kind == NAIVE_FULL)
            order[n++] = g;
    int fulls = n;
    bool used[NAIVE_GROUPS] = {false};
    while (n < c->groups) {
        int best = -1;
        for (int g = 0; g < c->groups; g++)
            if (c->group[g].kind != NAIVE_FULL && !used[g] &&
                (best < 0 || window_chunks(c, g) > window_chunks(c, best)))
                best = g;
        used[best] = true;
        order[n++] = best;
    }
    return fulls;
}

static struct part complete_part(const struct naive_case *c)
{
    struct part p = {.reason = "complete"};
    int order[NAIVE_GROUPS];
    const int fulls = sorted_groups(c, order);
    const wide comp = c->computed, state = state_chunk(c);
    wide bound = fulls == c->groups ? c->tokens : (wide)c->tokens - 1;
    wide previous = -1;
    int waits = 0, retry_waits = 0;
    bool again_all = true, again_windowed = false;

    if (state)
        bound = bound < 0 ? 0 : bound / state * state;
    while (again_all || again_windowed) {
        int at = again_all ? 0 : fulls;
        bool windowed_before = false;
        again_all = again_windowed = false;
        for (; at < c->groups; at++) {
            const int g = order[at];
            const bool windowed = c->group[g].kind != NAIVE_FULL;
            const wide chunk = chunk_size(c, g), keys = (wide)strlen(c->group[g].states);
            bool off_window = false;
            if (bound > keys * chunk) { /* C1, C3 */
                bound = keys * chunk;
                if (state)
                    bound = bound / state * state;
            }
            if (bound - comp < chunk) { /* C2 */
                p.action = 'm';
                p.reason = "short";
                return p;
            }
            wide first = comp / chunk, last = ceil_div(bound, chunk);
            if (last > keys)
                last = keys;
            struct answer a =
                windowed ? scan_windowed(c, g, first, last, bound) : scan_full(c, g, first, last);
            p.cut |= a.budget_cut;
            if (a.wait) {
                waits++;
                retry_waits += a.retry;
                p.waits[g] = true;
                memcpy(p.run[g], a.run, sizeof(a.run));
            } else if (a.chunks == 0) {
                p.action = 'm';
                p.reason = a.budget_cut ? "leading_pending" : "group_miss";
                return p;
            } else if ((first + a.chunks) * chunk < bound) {
                bound = (first + a.chunks) * chunk;
                if (state && bound % state) {
                    bound = bound / state * state;
                    off_window = windowed;
                }
            }
            if (bound - comp < chunk) {
                p.action = 'm';
                p.reason = "short";
                return p;
            }
            const wide hit = bound - comp;
            if (previous >= 0 && hit < previous) {
                if (waits) { /* V1 */
                    waits = retry_waits = 0;
                    memset(p.waits, 0, sizeof(p.waits));
                    again_all = true;
                } else if (windowed_before && !again_all) { /* V2 */
                    again_windowed = true;
                }
            }
            if (off_window && !again_all)
                again_windowed = true; /* C3 */
            windowed_before |= windowed;
            previous = hit;
        }
    }
    p.end = bound;
    p.action = waits ? 'd' : 'l'; /* V3 */
    if (waits)
        p.reason = retry_waits ? "retry" : "pending";
    else if (p.cut)
        p.reason = "cut";
    return p;
}

static void need_of(const struct naive_case *c, int g, wide end, int64_t *need)
{
    const wide chunk = chunk_size(c, g);
    wide first = c->computed / chunk, last = ceil_div(end, chunk);
    if (c->group[g].kind != NAIVE_FULL && last - window_at(c, g, end) > first)
        first = last - window_at(c, g, end);
    need[0] = (int64_t)first;
    need[1] = (int64_t)last;
}

static bool tails_on(const struct naive_case *c)
{
    bool deep_state = false;
    if (c->blocks_per_chunk != 1)
        return false;
    for (int g = 0; g < c->groups; g++) {
        const struct naive_group *group = &c->group[g];
        if (group->block != c->group[0].block || group->kind == NAIVE_SLIDING ||
            group->kind == NAIVE_CHUNKED)
            return false;
        deep_state |= group->kind == NAIVE_STATE && group->block > c->hash_unit;
    }
    return deep_state;
}

/*
 * Should a request that lacks @tokens wait @eta_ns for them? A budget: if they are more than it. AU: if
 * the ETA is known, and at most price times the time that computing them takes, in whole ns.
 */
static bool better_to_wait(const struct naive_case *c, wide tokens, int64_t eta_ns)
{
    if (!c->priced)
        return tokens > c->budget;
    return eta_ns >= 0 && eta_ns <= c->price * tokens * 1000000000 / c->rate;
}

static int64_t later(int64_t a, int64_t b)
{
    if (a < 0 || b < 0)
        return -1;
    return a > b ? a : b;
}

/* All P of @c in [from, to) of a group are waited for. */
static void await(const struct naive_case *c, int g, wide from, wide to, struct naive_answer *out)
{
    for (wide i = from; i < to; i++) {
        if (c->group[g].states[i] != 'P')
            continue;
        out->await[g][i] = true;
        out->eta_ns = later(out->eta_ns, c->group[g].eta_ns[i]);
    }
}

/* What is waited for, or was given up, where all groups agree as in @p; false if no P. */
static bool await_part(const struct naive_case *c, const struct part *p, struct naive_answer *out)
{
    bool any = false;
    out->eta_ns = 0;
    memset(out->await, 0, sizeof(out->await));
    for (int g = 0; g < c->groups; g++) {
        int64_t need[2];
        need_of(c, g, p->end, need);
        if (p->waits[g])
            await(c, g, p->run[g][0], p->run[g][1], out);
        else
            await(c, g, need[0], need[1], out);
        for (int i = 0; i < NAIVE_CHUNKS; i++)
            any |= out->await[g][i];
    }
    return any;
}

/* Returns 'l' for a tail taken, 'd' for one waited for, 0 if the complete part stands. */
static char tail_part(const struct naive_case *c, wide end, bool load, struct naive_answer *out,
                      wide *given_up, int64_t *given_up_eta)
{
    int retry = -1, pending = -1;
    if (!tails_on(c))
        return 0;
    const wide chunk = chunk_size(c, 0);
    wide top = end / chunk * chunk + chunk - 1;
    if (top > (wide)c->prompt - 1)
        top = (wide)c->prompt - 1;
    for (int i = c->tails - 1; i >= 0; i--) {
        const wide b = c->tail_boundary[i];
        const char *states = c->tail_states[i];
        if (b > top || b <= end || strchr(states, 'M'))
            continue;
        if (strspn(states, "H") == strlen(states)) {
            out->tail_boundary = (int64_t)b;
            return 'l';
        }
        if (strchr(states, 'R'))
            retry = retry < 0 ? i : retry;
        else if (pending < 0)
            pending = i;
    }
    if (load)
        return 0; /* T7 */
    if (retry >= 0) {
        out->reason = "tail_retry";
        out->await_boundary = strchr(c->tail_states[retry], 'P') ? c->tail_boundary[retry] : 0;
        return 'd';
    }
    if (pending < 0)
        return 0;
    const wide b = c->tail_boundary[pending];
    if (better_to_wait(c, b - end, c->tail_eta_ns[pending])) {
        out->reason = "tail_pending";
        out->await_boundary = (int64_t)b;
        out->eta_ns = c->tail_eta_ns[pending];
        return 'd';
    }
    *given_up = b;
    *given_up_eta = c->tail_eta_ns[pending];
    return 0;
}

static struct naive_answer defer(const char *reason)
{
    return (struct naive_answer){.action = "defer", .reason = reason};
}

static struct naive_answer defer_for(const struct naive_case *c, const struct part *p,
                                     const char *reason)
{
    struct naive_answer out = defer(reason);
    out.await_any = !await_part(c, p, &out) && strcmp(reason, "pending") == 0;
    if (strcmp(reason, "pending") != 0)
        out.eta_ns = 0;
    return out;
}

static bool being_loaded(const struct naive_case *c, wide end)
{
    for (int g = 0; g < c->groups; g++) {
        int64_t need[2];
        need_of(c, g, end, need);
        for (int64_t i = need[0]; i < need[1]; i++)
            if (c->group[g].loading[i])
                return true;
    }
    return false;
}

/* GU. A cut was made, and the hit ends at @end: where, and when, would it have? True: wait. */
static bool guard_waits(const struct naive_case *c, wide end, wide *uncut, int64_t *uncut_eta,
                        struct naive_answer *out)
{
    struct naive_case all = *c;
    struct naive_answer lost;
    for (int g = 0; g < all.groups; g++)
        for (char *s = all.group[g].states; *s; s++)
            if (*s == 'P')
                *s = 'H';
    struct part q = complete_part(&all);
    if (c->guard && q.action == 'd') {
        *out = defer_for(c, &q, "retry");
        return true;
    }
    if (q.action != 'l' || q.end <= end)
        return false;
    *uncut = q.end;
    *uncut_eta = await_part(c, &q, &lost) ? lost.eta_ns : -1;
    if (!c->guard || !better_to_wait(c, q.end - end, *uncut_eta))
        return false;
    *out = defer_for(c, &q, "pending");
    return true;
}

struct naive_answer naive_lookup(const struct naive_case *given)
{
    struct naive_case copy = *given, *c = &copy;
    struct naive_answer out = {0};
    int64_t uncut_eta = 0, tail_eta = 0;

    if (c->priced)
        c->budget = INT64_MAX;
    if (c->inflight)
        return defer("transfer");
    if (c->skip)
        return (struct naive_answer){.action = "miss", .reason = "skip"};
    struct part p = complete_part(c);
    if (p.action == 'd')
        return defer_for(c, &p, p.reason);
    if (p.action == 'l' && being_loaded(c, p.end))
        return defer("loading");
    wide end = p.action == 'l' ? p.end : (wide)c->computed, uncut = end;
    if (p.cut && guard_waits(c, end, &uncut, &uncut_eta, &out))
        return out;
    wide given_up = end;
    char tail = tail_part(c, end, p.action == 'l', &out, &given_up, &tail_eta);
    if (tail == 'd') {
        out.action = "defer";
        return out;
    }
    out.action = p.action == 'l' ? "load" : "miss";
    out.reason = p.reason;
    out.cut = p.cut;
    if (given_up > uncut) {
        uncut = given_up;
        uncut_eta = tail_eta;
    }
    if (tail == 'l') {
        out.action = "load";
        out.reason = "tail";
        end = out.tail_boundary;
    }
    out.hit = (int64_t)(end - c->computed);
    out.recomputed = uncut > end ? (int64_t)(uncut - end) : 0;
    out.eta_ns = out.recomputed ? uncut_eta : 0;
    for (int g = 0; g < c->groups && out.action[0] == 'l'; g++)
        need_of(c, g, end, out.need[g]);
    return out;
}
