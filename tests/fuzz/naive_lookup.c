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
};

/* One group's answer: a number of chunks, or a wait. */
struct answer {
    bool wait, retry, budget_cut;
    wide chunks;
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

/* Returns 'l' for a tail taken, 'd' for one waited for, 0 if the complete part stands. */
static char tail_part(const struct naive_case *c, wide end, bool load, struct naive_answer *out,
                      wide *given_up)
{
    bool any_retry = false;
    wide awaitable = -1;
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
            any_retry = true;
        else if (awaitable < 0)
            awaitable = b;
    }
    if (load)
        return 0; /* T7 */
    if (any_retry) {
        out->reason = "tail_retry";
        return 'd';
    }
    if (awaitable >= 0 && awaitable - end > c->budget) {
        out->reason = "tail_pending";
        return 'd';
    }
    if (awaitable >= 0)
        *given_up = awaitable;
    return 0;
}

static struct naive_answer defer(const char *reason)
{
    return (struct naive_answer){.action = "defer", .reason = reason};
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

struct naive_answer naive_lookup(const struct naive_case *c)
{
    struct naive_answer out = {0};

    if (c->inflight)
        return defer("transfer");
    if (c->skip)
        return (struct naive_answer){.action = "miss", .reason = "skip"};
    struct part p = complete_part(c);
    if (p.action == 'd')
        return defer(p.reason);
    if (p.action == 'l' && being_loaded(c, p.end))
        return defer("loading");
    wide end = p.action == 'l' ? p.end : (wide)c->computed, uncut = end;
    if (p.cut) { /* GU */
        struct naive_case all = *c;
        for (int g = 0; g < all.groups; g++)
            for (char *s = all.group[g].states; *s; s++)
                if (*s == 'P')
                    *s = 'H';
        struct part q = complete_part(&all);
        if (c->guard && q.action == 'd')
            return defer("retry");
        if (c->guard && q.action == 'l' && q.end - end > c->budget)
            return defer("pending");
        if (q.action == 'l')
            uncut = q.end;
    }
    wide given_up = end;
    char tail = tail_part(c, end, p.action == 'l', &out, &given_up);
    if (tail == 'd')
        return defer(out.reason);
    out.action = p.action == 'l' ? "load" : "miss";
    out.reason = p.reason;
    out.cut = p.cut;
    if (given_up > uncut)
        uncut = given_up;
    if (tail == 'l') {
        out.action = "load";
        out.reason = "tail";
        end = out.tail_boundary;
    }
    out.hit = (int64_t)(end - c->computed);
    out.recomputed = uncut > end ? (int64_t)(uncut - end) : 0;
    for (int g = 0; g < c->groups && out.action[0] == 'l'; g++)
        need_of(c, g, end, out.need[g]);
    return out;
}
