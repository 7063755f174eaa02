/*
 * Lookup: the pure code of sched/decide.h over the replica; what follows from a deferral is in
 * defer.c. Written: private memory, and in client.c counters and the decision's record
 * (sched/explain.h). No system call, nothing is allocated.
 *
 * A chunk whose wait has run into its limit reads MISS, for this request alone (defer.c); so does
 * one that the tier below was asked for and won't bring (promote.c).
 */
#include "sched/handle.h"

#define DECISION_FIRST_BYTES offsetof(struct spw_decision, eta_ns)

/* ---- what the decision asks ------------------------------------------------------------------ */

struct asker {
    struct spw_lookup_source source;
    struct spw_request *request;
    uint64_t expired[SPW_WAIT_KINDS]; /* up to which token what pends, or isn't known, reads MISS */
    int32_t given_up_group;           /* the first chunk that did, -1: none */
    uint64_t given_up_chunk;
    bool given_up_tail; /* it is a tail's */
    bool given_up_lost; /* it won't come; else it was waited for long enough */
    struct spw_eta eta;
};

static struct asker *asker_of(struct spw_lookup_source *source)
{
    return (struct asker *)(void *)source;
}

static struct spw_request *asked_for(struct spw_lookup_source *source)
{
    return asker_of(source)->request;
}

/* Has the request waited long enough for something that is @verdict and ends at token @end? */
static bool expired(const struct asker *asker, uint8_t verdict, uint64_t end)
{
    return (verdict == SPW_PENDING && end <= asker->expired[SPW_WAIT_FOR_PENDING]) ||
           (verdict == SPW_RETRY && end <= asker->expired[SPW_WAIT_FOR_RETRY]);
}

/* Has it asked for this one, which won't come? */
static bool lost(const struct asker *asker, uint8_t verdict, const struct spw_ask *ask,
                 uint64_t word)
{
    const struct spw_request *request = asker->request;
    return verdict == SPW_PENDING && request->asks.any && spw_promote_lost(request, ask, word);
}

static void note_given_up(struct asker *asker, uint32_t group, uint64_t chunk, bool is_lost)
{
    if (asker->given_up_group >= 0)
        return;
    asker->given_up_group = (int32_t)group;
    asker->given_up_chunk = chunk;
    asker->given_up_lost = is_lost;
}

/* In the order of the search: of a full group, what is behind a hole ends nothing. */
static void give_up(struct asker *asker, uint32_t g, uint64_t first, uint64_t count,
                    const uint64_t *word, uint8_t *verdicts)
{
    const struct spw_group *group = &asker->request->space->groups.group[g];
    const struct spw_ask *ask = asker->request->keys[g].ask;
    bool full = group->kind == SPW_GROUP_FULL, hole = false;
    for (uint64_t n = 0; n < count; n++) {
        uint64_t i = full ? n : count - 1 - n;
        bool late = expired(asker, verdicts[i], (first + i + 1) * group->chunk_tokens);
        if (!late && !lost(asker, verdicts[i], ask ? &ask[first + i] : NULL, word[i])) {
            hole = hole || (full && verdicts[i] == SPW_MISS);
            continue;
        }
        verdicts[i] = SPW_MISS;
        if (!hole)
            note_given_up(asker, g, first + i, !late);
    }
}

/* What the replica says, or a tier that has to be asked says of what it has not. */
static void judge(const struct spw_request *request, const uint64_t *tag, const uint64_t *word,
                  uint64_t count, uint8_t *out_verdicts)
{
    const struct spw_beyond *beyond = request->client->beyond;
    spw_judge_words(&request->space->judge, word, count, out_verdicts);
    for (uint64_t i = 0; beyond && i < count; i++)
        if (out_verdicts[i] == SPW_MISS)
            out_verdicts[i] = beyond->ask(beyond->ctx, tag[i]);
}

static void fetch(struct spw_lookup_source *source, uint32_t group, uint64_t first, uint64_t count,
                  uint8_t *out_verdicts)
{
    struct spw_request *request = asked_for(source);
    struct spw_client *client = request->client;
    uint64_t *word = client->scratch[group].word + first;
    const uint64_t *tag = request->keys[group].tag + first;
    struct asker *asker = asker_of(source);
    spw_replica_probe(&client->views.replica, tag, count, word);
    judge(request, tag, word, count, out_verdicts);
    if (asker->expired[SPW_WAIT_FOR_PENDING] != 0 || asker->expired[SPW_WAIT_FOR_RETRY] != 0 ||
        request->asks.any)
        give_up(asker, group, first, count, word, out_verdicts);
}

static uint64_t eta(struct spw_lookup_source *source, uint32_t group, uint64_t first, uint64_t end)
{
    return spw_await_eta(asked_for(source), &asker_of(source)->eta, group, first, end);
}

static uint64_t tail_eta(struct spw_lookup_source *source, uint64_t boundary)
{
    return spw_await_tail_eta(asked_for(source), &asker_of(source)->eta, boundary);
}

/* A request with loads of its own in flight is not looked up: what is found is another's. */
static uint64_t loading(struct spw_lookup_source *source, uint32_t group, uint64_t first,
                        uint64_t end)
{
    const struct asker *asker = asker_of(source);
    const struct spw_request *request = asker->request;
    const struct spw_replica *set = &request->client->book.loading;
    uint64_t tokens = request->space->groups.group[group].chunk_tokens;
    if (set->tags == 0)
        return end;
    if (first * tokens < asker->expired[SPW_WAIT_FOR_PENDING]) /* it loads them itself */
        first = asker->expired[SPW_WAIT_FOR_PENDING] / tokens;
    while (first < end && spw_replica_get(set, request->keys[group].tag[first]) == 0)
        first++;
    return first < end ? first : end;
}

/* The objects of a boundary; true if it isn't missing in all groups. */
static bool judge_boundary(struct asker *asker, const struct spw_boundary *boundary,
                           uint8_t *out_verdicts)
{
    const struct spw_request *request = asker->request;
    const struct spw_groups *groups = &request->space->groups;
    int32_t given_up = -1;
    bool any = false, hole = false, is_lost = false;
    for (uint32_t g = 0; g < groups->count; g++) {
        uint64_t tag = boundary->group[g].digest[0];
        uint64_t word = spw_replica_get(&request->client->views.replica, tag);
        judge(request, &tag, &word, 1, &out_verdicts[g]);
        hole = hole || out_verdicts[g] == SPW_MISS;
        bool late = expired(asker, out_verdicts[g], boundary->at);
        if (late || lost(asker, out_verdicts[g], &boundary->group[g].ask, word)) {
            out_verdicts[g] = SPW_MISS;
            given_up = (int32_t)g;
            is_lost = !late;
        }
        any = any || out_verdicts[g] != SPW_MISS;
    }
    if (given_up >= 0 && !hole && asker->given_up_group < 0) {
        note_given_up(asker, (uint32_t)given_up,
                      boundary->at / groups->group[given_up].chunk_tokens, is_lost);
        asker->given_up_tail = true;
    }
    return any;
}

static bool tail(struct spw_lookup_source *source, uint64_t above, uint64_t at_most,
                 uint64_t *out_boundary, uint8_t *out_verdicts)
{
    struct spw_request *request = asked_for(source);
    for (uint32_t i = 0; i < request->boundaries && request->boundary[i]->at > above; i++) {
        const struct spw_boundary *boundary = request->boundary[i];
        if (boundary->at > at_most)
            continue;
        *out_boundary = boundary->at;
        if (judge_boundary(asker_of(source), boundary, out_verdicts))
            return true;
    }
    return false;
}

static int tail_loading(struct spw_lookup_source *source, uint64_t boundary)
{
    struct spw_request *request = asked_for(source);
    const struct spw_boundary *keys = spw_request_find_boundary(request, boundary);
    if (boundary <= asker_of(source)->expired[SPW_WAIT_FOR_PENDING]) /* it loads them itself */
        return -1;
    for (uint32_t g = 0; keys && g < request->space->groups.count; g++)
        if (spw_replica_get(&request->client->book.loading, keys->group[g].digest[0]) != 0)
            return (int)g;
    return -1;
}

/* ---- lookup ---------------------------------------------------------------------------------- */

/* Was it a chunk given up that ended the hit, or left none? Then that one decided. */
static void name_given_up(const struct asker *asker, uint64_t computed_tokens,
                          struct spw_decision_core *core)
{
    if (asker->given_up_group < 0)
        return;
    const struct spw_group *group = &asker->request->space->groups.group[asker->given_up_group];
    if (core->reason == SPW_REASON_COMPLETE) {
        if (asker->given_up_tail || /* [T7] */
            computed_tokens + core->hit_tokens > asker->given_up_chunk * group->chunk_tokens)
            return; /* read besides, left of the window found */
        core->reason = asker->given_up_lost ? SPW_REASON_LOAD_NOT_PROMOTED : SPW_REASON_LOAD_LIMIT;
    } else if (core->reason == SPW_REASON_GROUP_MISS || core->reason == SPW_REASON_SHORT) {
        core->reason = asker->given_up_lost ? SPW_REASON_MISS_NOT_PROMOTED : SPW_REASON_MISS_LIMIT;
    } else {
        return;
    }
    core->group = asker->given_up_group;
    core->chunk = asker->given_up_chunk;
}

static void say_how(const struct spw_request *request, uint64_t computed_tokens, bool running,
                    struct spw_decide_input *out)
{
    const struct spw_space *space = request->space;
    *out = (struct spw_decide_input){
        .lookup = {.groups = &space->groups,
                   .num_tokens = request->tokens,
                   .num_prompt_tokens = request->prompt_tokens,
                   .num_computed_tokens = computed_tokens,
                   .budget_tokens = space->budget_tokens},
        .scope = (uint8_t)space->scope,
        .skip = request->flags & SPW_REQUEST_NO_READ,
        .inflight = running,
        .priced = space->priced,
        .price = space->price ? space->price : 1 + space->queue,
        .prefill_tokens_per_s = space->prefill_tokens_per_s,
    };
    for (uint32_t g = 0; g < space->groups.count; g++)
        out->lookup.chunks[g] = (struct spw_lookup_chunks){
            .count = spw_request_chunks(request, g),
            .verdicts = request->client->scratch[g].verdict,
        };
}

static int decide(struct spw_request *request, uint64_t computed_tokens, bool running,
                  struct spw_decision_core *out_core)
{
    struct spw_decide_input in;
    struct asker asker; /* its streams are filled as they are asked about */
    asker.source = (struct spw_lookup_source){.fetch = fetch,
                                              .tail = request->boundaries ? tail : NULL,
                                              .eta = eta,
                                              .tail_eta = tail_eta};
    asker.request = request;
    asker.given_up_group = -1;
    asker.given_up_tail = false;
    asker.given_up_lost = false;
    asker.eta.seen = 0;
    spw_defer_pause(request, asker.expired);
    say_how(request, computed_tokens, running, &in);
    if (request->space->gpu_prefix_cache) {
        asker.source.loading = loading;
        asker.source.tail_loading = tail_loading;
    }
    int rc = spw_decide(&in, &asker.source, out_core);
    if (rc == 0)
        name_given_up(&asker, computed_tokens, out_core);
    return rc;
}

static void fill_decision(const struct spw_request *request, const struct spw_decision_core *core,
                          uint64_t computed_tokens, struct spw_decision *out)
{
    *out = (struct spw_decision){
        .size_bytes = sizeof(*out),
        .action = core->action,
        .reason = core->reason,
        .groups = request->space->groups.count,
        .step = request->client->step,
        .hit_tokens = core->hit_tokens,
        .computed_tokens = computed_tokens,
        .tail_boundary = core->tail_boundary,
        .recomputed_tokens = core->tokens_recomputed,
        .deciding_chunk = core->chunk,
        .deciding_group = (uint32_t)core->group,
        .eta_ns = core->eta_ns,
    };
    for (uint32_t g = 0; g < out->groups; g++)
        out->need[g] = (struct spw_need){core->need[g].first, core->need[g].end};
}

static uint64_t chunk_floor(const struct spw_request *request, uint32_t g, uint64_t tokens)
{
    uint64_t chunk = tokens / request->space->groups.group[g].chunk_tokens;
    uint64_t chunks = spw_request_chunks(request, g);
    return chunk < chunks ? chunk : chunks;
}

/* Chunks of a group that a decision makes recent: of a full group those up to the first hole, of
 * others the window before the resume point and what was looked at behind it. */
static struct spw_touch_range touch_range(struct spw_request *request, uint32_t g,
                                          const struct spw_decision *decision)
{
    const struct spw_group *group = &request->space->groups.group[g];
    struct spw_scratch *scratch = &request->client->scratch[g];
    uint64_t computed = chunk_floor(request, g, decision->computed_tokens);
    uint64_t resume = chunk_floor(request, g, decision->computed_tokens + decision->hit_tokens);
    struct spw_touch_range range = {0, spw_request_chunks(request, g)};
    uint64_t i = computed;
    if (group->kind != SPW_GROUP_FULL)
        range.first = resume > group->window_chunks ? resume - group->window_chunks : 0;
    if (range.first < computed) /* not asked by the decision: these are on the GPU */
        spw_replica_probe(&request->client->views.replica, request->keys[g].tag + range.first,
                          computed - range.first, scratch->word + range.first);
    for (i = range.first > computed ? range.first : computed; i < range.end; i++) {
        if (scratch->verdict[i] != SPW_NOT_READ && scratch->verdict[i] != SPW_MISS)
            continue;
        if (group->kind == SPW_GROUP_FULL)
            range.end = i;
        else
            scratch->word[i] = 0;
    }
    return range;
}

static void touch(struct spw_request *request, const struct spw_decision *decision)
{
    struct spw_touch_range range[SPW_MAX_GROUPS];
    for (uint32_t g = 0; g < request->space->groups.count; g++)
        range[g] = touch_range(request, g, decision);
    spw_touch_ranges(request, range, decision->tail_boundary);
}

static void explain(const struct spw_request *request, const struct spw_decision *decision)
{
    const struct spw_space *space = request->space;
    const struct spw_explained explained = {
        .time_ns = request->client->now_ns,
        .tag = request->tag,
        .request = request->number,
        .step = decision->step,
        .computed_tokens = decision->computed_tokens,
        .hit_tokens = decision->hit_tokens,
        .recomputed_tokens = decision->recomputed_tokens,
        .chunk = decision->deciding_chunk,
        .eta_ns = decision->eta_ns,
        .waited_ns = decision->waited_ns,
        .tail_boundary = decision->tail_boundary,
        .budget_tokens = space->priced ? SPW_EXPLAINED_AUTO : space->budget_tokens,
        .group = decision->deciding_group,
        .space = space->number,
        .action = (uint8_t)decision->action,
        .reason = (uint8_t)decision->reason,
        .flags = request->marks.count ? SPW_EXPLAINED_AWAITED : 0,
    };
    spw_explain_write(request->client->own->head, &explained);
}

static void count_decision(struct spw_client *client, const struct spw_decision *decision)
{
    spw_count(client, SPW_CLIENT_lookups, 1);
    spw_count(client, SPW_CLIENT_decided, decision->action != SPW_ACTION_DEFER);
    spw_count(client, (enum spw_client_counter)decision->reason, 1);
    spw_count(client, SPW_CLIENT_repeated, decision->repeated);
    spw_count(client, SPW_CLIENT_hit_tokens, decision->hit_tokens);
    spw_count(client, SPW_CLIENT_recomputed_tokens, decision->recomputed_tokens);
}

/* The caller says that no transfer is running: loads whose tickets went elsewhere are over. */
static void forget_handed_loads(struct spw_request *request)
{
    struct spw_book *book = &request->client->book;
    for (struct spw_link *at = request->jobs.after, *after; at != &request->jobs; at = after) {
        struct spw_open_job *job = SPW_LINKED(at, struct spw_open_job, of_request);
        after = at->after;
        if (job->state == SPW_OPEN_HANDED && job->kind == SPW_OPEN_LOAD)
            spw_book_end(book, job);
    }
}

/* Nothing has changed: what was told before holds. */
static void repeat(const struct spw_request *request, struct spw_decision *out)
{
    *out = request->deferral.decision;
    out->step = request->client->step;
    out->repeated = 1;
    out->waited_ns = spw_wait_sample_ns(&request->sample, request->client->now_ns);
}

static int evaluate(struct spw_request *request, uint64_t computed_tokens, bool running,
                    struct spw_decision *out)
{
    struct spw_decision_core core;
    int rc = decide(request, computed_tokens, running, &core);
    if (rc < 0)
        return rc;
    fill_decision(request, &core, computed_tokens, out);
    spw_defer_settle(request, &core, out);
    explain(request, out);
    if (out->action != SPW_ACTION_DEFER && out->reason != SPW_REASON_SKIP)
        touch(request, out);
    return 0;
}

int spw_lookup(struct spw_request *request, uint64_t computed_tokens, int in_flight,
               struct spw_decision *out_decision)
{
    struct spw_decision decision;
    if (!request || !out_decision || out_decision->size_bytes < DECISION_FIRST_BYTES)
        return -EINVAL;
    struct spw_client *client = request->client;
    int rc = spw_client_check(client);
    if (rc < 0)
        return rc;
    if (!client->in_step || computed_tokens > request->tokens)
        return -EINVAL;
    if (!in_flight)
        forget_handed_loads(request);
    bool running = in_flight || request->running > 0;
    if (!running && spw_defer_stands(request, computed_tokens))
        repeat(request, &decision);
    else
        rc = evaluate(request, computed_tokens, running, &decision);
    if (rc < 0)
        return rc;
    count_decision(client, &decision);
    decision.size_bytes =
        out_decision->size_bytes < sizeof(decision) ? out_decision->size_bytes : sizeof(decision);
    memcpy(out_decision, &decision, decision.size_bytes);
    return 0;
}
