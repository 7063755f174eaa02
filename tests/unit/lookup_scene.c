/* See lookup_scene.h. */
#include "tests/unit/lookup_scene.h"
#include <string.h>

static uint8_t verdict_of(char letter)
{
    static const char letters[] = {
        [SPW_MISS] = 'M', [SPW_HIT] = 'H', [SPW_PENDING] = 'P', [SPW_RETRY] = 'R'};
    const char *at = memchr(letters, letter, sizeof(letters));

    return at != NULL ? (uint8_t)(at - letters) : SPW_NOT_READ;
}

static void fetch(struct spw_lookup_source *source, uint32_t group, uint64_t first, uint64_t count,
                  uint8_t *out_verdicts)
{
    struct scene *scene = (struct scene *)source;

    for (uint64_t i = 0; i < count; i++)
        out_verdicts[i] = verdict_of(scene->states[group][first + i]);
    scene->asked[group] += count;
    scene->calls++;
}

static uint64_t loading(struct spw_lookup_source *source, uint32_t group, uint64_t first,
                        uint64_t end)
{
    const uint64_t chunk = ((struct scene *)source)->loading[group];

    return chunk >= first && chunk < end ? chunk : end;
}

static bool tail(struct spw_lookup_source *source, uint64_t above, uint64_t at_most,
                 uint64_t *out_boundary, uint8_t *out_verdicts)
{
    const struct scene *scene = (const struct scene *)source;

    if (scene->tail_boundary <= above || scene->tail_boundary > at_most)
        return false;
    *out_boundary = scene->tail_boundary;
    for (uint32_t g = 0; g < scene->groups.count; g++)
        out_verdicts[g] = verdict_of(scene->tail_states[g]);
    return true;
}

static int tail_loading(struct spw_lookup_source *source, uint64_t boundary)
{
    return ((struct scene *)source)->tail_loading;
}

static uint64_t eta(struct spw_lookup_source *source, uint32_t group, uint64_t first, uint64_t end)
{
    struct scene *scene = (struct scene *)source;

    scene->eta_of[group] = (struct spw_chunk_range){first, end};
    scene->eta_calls++;
    return scene->eta_ns[group];
}

static uint64_t tail_eta(struct spw_lookup_source *source, uint64_t boundary)
{
    struct scene *scene = (struct scene *)source;

    cr_expect(eq(u64, boundary, scene->tail_boundary));
    scene->eta_calls++;
    return scene->tail_eta_ns;
}

void add_group(struct scene *scene, uint8_t kind, uint64_t block, uint64_t window,
               const char *states)
{
    static uint8_t verdicts[SPW_GROUPS_MAX][SCENE_CHUNKS_MAX];
    const uint32_t g = scene->groups.count++;

    scene->shapes[g] = (struct spw_group_shape){kind, block, window};
    scene->states[g] = states;
    scene->loading[g] = UINT64_MAX;
    scene->in.lookup.chunks[g].count = strlen(states);
    scene->in.lookup.chunks[g].verdicts = verdicts[g];
}

struct scene prompt_of(uint64_t tokens, uint64_t budget)
{
    return (struct scene){
        .source = {.fetch = fetch, .loading = loading, .tail = tail, .tail_loading = tail_loading},
        .in = {.lookup = {.num_tokens = tokens,
                          .num_prompt_tokens = tokens,
                          .budget_tokens = budget}},
        .hash_unit = 4,
        .tail_states = "",
        .tail_loading = -1};
}

struct scene priced_prompt_of(uint64_t tokens)
{
    struct scene scene = prompt_of(tokens, 0);

    scene.source.eta = eta;
    scene.source.tail_eta = tail_eta;
    scene.in.priced = true;
    scene.in.price = 4;
    scene.in.prefill_tokens_per_s = 1000000; /* a token is worth 4000 ns */
    return scene;
}

struct spw_decision_core decide(struct scene *scene)
{
    struct spw_decision_core got;

    memset(&got, 0xee, sizeof(got));
    cr_assert(
        eq(int,
           spw_groups_init(&scene->groups, scene->hash_unit, 1, scene->shapes, scene->groups.count),
           0));
    scene->in.lookup.groups = &scene->groups;
    cr_assert(eq(int, spw_decide(&scene->in, &scene->source, &got), 0));
    return got;
}

struct spw_decision_core decide_full(const char *states, uint64_t budget)
{
    struct scene scene = prompt_of(16 * strlen(states), budget);

    add_group(&scene, SPW_GROUP_FULL, 16, 0, states);
    return decide(&scene);
}

void expect_outcome(const struct spw_decision_core *got, uint8_t reason, uint64_t hit)
{
    cr_expect(eq(str, (char *)spw_reason_name(got->reason), (char *)spw_reason_name(reason)));
    cr_expect(eq(u64, got->hit_tokens, hit));
}

void expect_decider(const struct spw_decision_core *got, int group, uint64_t chunk)
{
    cr_expect(eq(int, got->group, group));
    cr_expect(eq(u64, got->chunk, chunk));
}

void expect_wait(const struct spw_decision_core *got, uint32_t i, uint32_t group, uint64_t chunk,
                 uint64_t boundary)
{
    cr_assert(lt(u32, i, got->wait_count));
    cr_expect(eq(u32, got->wait[i].group, group));
    cr_expect(eq(u64, got->wait[i].chunk, chunk));
    cr_expect(eq(u64, got->wait[i].boundary, boundary));
}
