/*
 * See gen_lookup.h. What matters is met often: chunk sizes that don't divide each other, computed
 * tokens inside a chunk, budgets at the edge of a chunk, long ready stretches with a few others.
 */
#include "tests/fuzz/gen_lookup.h"
#include <string.h>

#define MAX_TOKENS_UNITS 120

uint64_t gen_below(uint64_t *state, uint64_t below)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (z ^ (z >> 31)) % below;
}

static int64_t below(uint64_t *rng, int64_t limit)
{
    return (int64_t)gen_below(rng, (uint64_t)limit);
}

static bool chance(uint64_t *rng, int percent)
{
    return below(rng, 100) < percent;
}

static int64_t chunk_of(const struct naive_case *c, int g)
{
    return c->group[g].block * c->blocks_per_chunk;
}

static void make_groups(uint64_t *rng, struct naive_case *c)
{
    static const int64_t sizes[] = {1, 2, 3, 4, 4, 4, 6, 8, 12};
    const bool same_blocks = chance(rng, 40), tail_kinds = chance(rng, 35);
    int64_t state_block = 0;

    c->hash_unit = 1 + below(rng, 4);
    c->blocks_per_chunk = chance(rng, 70) ? 1 : 1 + below(rng, 4);
    c->groups = 1 + (int)below(rng, NAIVE_GROUPS);
    for (int g = 0; g < c->groups; g++) {
        struct naive_group *group = &c->group[g];
        group->kind = chance(rng, 40) ? NAIVE_FULL : (enum naive_kind)below(rng, 4);
        if (tail_kinds && group->kind != NAIVE_FULL)
            group->kind = NAIVE_STATE;
        group->block = c->hash_unit * sizes[below(rng, 9)];
        if (same_blocks && g > 0)
            group->block = c->group[0].block;
        if (group->kind == NAIVE_STATE) {
            state_block = state_block ? state_block : group->block;
            group->block = state_block;
        }
        if (group->kind == NAIVE_SLIDING || group->kind == NAIVE_CHUNKED)
            group->window_tokens = 1 + below(rng, 4 * chunk_of(c, g));
    }
}

static int64_t chunk_multiple(uint64_t *rng, const struct naive_case *c, int64_t limit)
{
    const int64_t chunk = chunk_of(c, (int)below(rng, c->groups));
    return limit / chunk > 0 ? (1 + below(rng, limit / chunk)) * chunk : 0;
}

static void make_counts(uint64_t *rng, struct naive_case *c)
{
    int64_t limit = MAX_TOKENS_UNITS * c->hash_unit;

    for (int g = 0; g < c->groups; g++)
        if (limit > chunk_of(c, g) * (NAIVE_CHUNKS - 1))
            limit = chunk_of(c, g) * (NAIVE_CHUNKS - 1);
    c->tokens = chance(rng, 40) ? chunk_multiple(rng, c, limit) : below(rng, limit + 1);
    c->prompt = chance(rng, 80) ? c->tokens : below(rng, c->tokens + 1);
    if (chance(rng, 25))
        c->computed = chunk_multiple(rng, c, c->tokens);
    else if (chance(rng, 25))
        c->computed = below(rng, c->tokens + 1);
    c->budget = chance(rng, 20) ? 0 : below(rng, c->tokens + 2);
    if (chance(rng, 40))
        c->budget = below(rng, 6) * chunk_of(c, (int)below(rng, c->groups)) - chance(rng, 30);
    if (chance(rng, 6))
        c->budget = INT64_MAX - below(rng, 2);
    c->budget = c->budget < 0 ? 0 : c->budget;
    c->inflight = chance(rng, 1);
    c->skip = chance(rng, 1);
}

/* Letters with H in @ready percent; the rest as @others says, one letter of it each. */
static void fill_states(uint64_t *rng, char *states, int64_t count, int ready, const char *others)
{
    for (int64_t i = 0; i < count; i++)
        states[i] = chance(rng, ready) ? 'H' : others[below(rng, (int64_t)strlen(others))];
    states[count] = '\0';
}

static void make_states(uint64_t *rng, struct naive_case *c)
{
    static const char *const others[] = {"P",       "PPM",  "MMP", "M",
                                         "PPPPPPR", "MMPR", "PR",  "MMMMMPPPR"};
    const bool some_loading = chance(rng, 15);

    for (int g = 0; g < c->groups; g++) {
        struct naive_group *group = &c->group[g];
        int64_t count = c->tokens / chunk_of(c, g);
        if (chance(rng, 8))
            count = below(rng, count + 1);
        fill_states(rng, group->states, count, (int)below(rng, 101), others[below(rng, 8)]);
        if (chance(rng, 40)) /* ready up to some chunk */
            memset(group->states, 'H', (size_t)below(rng, count + 1));
        for (int64_t i = 0; i < count && some_loading; i++)
            group->loading[i] = group->states[i] == 'H' && chance(rng, 10);
    }
}

static void make_tails(uint64_t *rng, struct naive_case *c)
{
    const int64_t chunk = chunk_of(c, 0), dense = below(rng, 101);
    static const char *const others[] = {"P", "PPM", "PR", "PPMR"};
    const char *other = others[below(rng, 4)];

    c->computed = chance(rng, 90) ? c->computed / chunk * chunk : c->computed;
    int64_t from = c->computed / c->hash_unit * c->hash_unit;
    if (chance(rng, 60)) /* where the complete part may well end */
        from += below(rng, 3) * chunk;
    for (int64_t b = from; b < c->tokens && c->tails < NAIVE_TAILS; b += c->hash_unit) {
        if (b == 0 || b % chunk == 0 || !chance(rng, (int)dense))
            continue;
        c->tail_boundary[c->tails] = b;
        fill_states(rng, c->tail_states[c->tails++], c->groups, 50, other);
    }
}

/* All sizes times the largest number that fits; then some tokens more, up to 2^63 - 1. */
static void blow_up(uint64_t *rng, struct naive_case *c)
{
    int64_t largest = c->tokens + 1, times;

    for (int g = 0; g < c->groups; g++) {
        largest = largest > chunk_of(c, g) ? largest : chunk_of(c, g);
        largest = largest > c->group[g].window_tokens ? largest : c->group[g].window_tokens;
    }
    times = INT64_MAX / largest;
    c->hash_unit *= times;
    c->tokens = c->tokens * times + (chance(rng, 50) ? below(rng, times) : times - 1);
    c->prompt *= times;
    c->computed *= times;
    c->budget = c->budget > INT64_MAX / times ? INT64_MAX : c->budget * times - chance(rng, 30);
    c->budget = c->budget < 0 ? 0 : c->budget;
    for (int g = 0; g < c->groups; g++) {
        c->group[g].block *= times;
        if (c->group[g].window_tokens > 0)
            c->group[g].window_tokens = c->group[g].window_tokens * times - below(rng, 3);
    }
    for (int i = 0; i < c->tails; i++)
        c->tail_boundary[i] *= times;
}

/* Price and rate, and ETAs around what some number of tokens is worth at them. */
static void make_etas(uint64_t *rng, struct naive_case *c)
{
    static const int64_t rates[] = {1, 3, 8000, 1000000000};
    __int128 worth;
    int64_t eta;

    c->price = chance(rng, 50) ? 1 + below(rng, 8) : 1 + below(rng, 1000000);
    c->rate = rates[below(rng, 4)];
    worth = (__int128)below(rng, c->tokens - c->computed + 1);
    if (chance(rng, 80)) /* whole chunks are what is lost most often */
        worth = (__int128)(1 + below(rng, 4)) * chunk_of(c, (int)below(rng, c->groups));
    worth = worth * c->price * 1000000000 / c->rate + below(rng, 3) - 1;
    eta = worth > INT64_MAX ? INT64_MAX : worth < 0 ? 0 : (int64_t)worth;
    const int known = chance(rng, 50) ? 100 : (int)below(rng, 101), at_once = (int)below(rng, 101);
    for (int g = 0; g < c->groups; g++)
        for (int i = 0; i < NAIVE_CHUNKS; i++)
            c->group[g].eta_ns[i] = !chance(rng, known) ? -1 : chance(rng, at_once) ? 0 : eta;
    for (int i = 0; i < c->tails; i++)
        c->tail_eta_ns[i] = !chance(rng, known) ? -1 : chance(rng, at_once) ? 0 : eta;
}

void gen_lookup(uint64_t seed, struct naive_case *out_case)
{
    uint64_t rng = seed * 0x2545f4914f6cdd1du + 1;

    memset(out_case, 0, sizeof(*out_case));
    make_groups(&rng, out_case);
    make_counts(&rng, out_case);
    make_tails(&rng, out_case);
    make_states(&rng, out_case);
    if (chance(&rng, 15))
        blow_up(&rng, out_case);
    make_etas(&rng, out_case);
}
