/*
 * Lookup and probes: the pure code of sched/decide.h over the replica, and what a deferred request
 * waits for. Private memory is read and written, counters in client.c; no system call, nothing is
 * allocated.
 *
 * A deferred request remembers up to eight chunks that it waits for and what the replica said of
 * them. Asked again, it is deferred again at once while none of them has changed, and nothing else
 * that counts has (keys, tokens, workers, resyncs, loads). A chunk that was a HIT and goes away in
 * the meantime is noticed when what is waited for settles, or after REFRESH_STEPS.
 */
#include "sched/handle.h"

#include <string.h>

#define REFRESH_STEPS 64u /* a deferral is looked at anew after so many steps */
#define PROBE_BATCH   64u

/* ---- what the decision asks ------------------------------------------------------------------ */

struct asker {
    struct spw_lookup_source source;
    struct spw_request *request;
};

static struct spw_request *asked_for(struct spw_lookup_source *source)
{
    return ((struct asker *)(void *)source)->request;
}

static void fetch(struct spw_lookup_source *source, uint32_t group, uint64_t first, uint64_t count,
                  uint8_t *out_verdicts)
{
    struct spw_request *request = asked_for(source);
    struct spw_client *client = request->client;
    uint64_t *word = client->scratch[group].word + first;
    spw_replica_probe(&client->views.replica, request->keys[group].tag + first, count, word);
    spw_judge_words(&request->space->judge, word, count, out_verdicts);
}

/* A request with loads of its own in flight is not looked up: what is found is another's. */
static uint64_t loading(struct spw_lookup_source *source, uint32_t group, uint64_t first,
                        uint64_t end)
{
    struct spw_request *request = asked_for(source);
    const struct spw_replica *set = &request->client->book.loading;
    if (set->tags == 0)
        return end;
    while (first < end && spw_replica_get(set, request->keys[group].tag[first]) == 0)
        first++;
    return first;
}

static bool tail(struct spw_lookup_source *source, uint64_t above, uint64_t at_most,
                 uint64_t *out_boundary, uint8_t *out_verdicts)
{
    struct spw_request *request = asked_for(source);
    const struct spw_replica *replica = &request->client->views.replica;
    uint32_t groups = request->space->groups.count;
    for (uint32_t i = 0; i < request->boundaries && request->boundary[i]->at > above; i++) {
        const struct spw_boundary *boundary = request->boundary[i];
        bool any = false;
        if (boundary->at > at_most)
            continue;
        for (uint32_t g = 0; g < groups; g++) {
            uint64_t word = spw_replica_get(replica, boundary->group[g].digest[0]);
            out_verdicts[g] = spw_judge_word(&request->space->judge, word);
            any = any || out_verdicts[g] != SPW_MISS;
        }
        *out_boundary = boundary->at;
        if (any)
            return true;
    }
    return false;
}

static int tail_loading(struct spw_lookup_source *source, uint64_t boundary)
{
    struct spw_request *request = asked_for(source);
    const struct spw_boundary *keys = spw_request_find_boundary(request, boundary);
    for (uint32_t g = 0; keys && g < request->space->groups.count; g++)
        if (spw_replica_get(&request->client->book.loading, keys->group[g].digest[0]) != 0)
            return (int)g;
    return -1;
}

/* ---- deferred requests ----------------------------------------------------------------------- */

static bool same_words(const struct spw_client *client, const struct spw_deferral *deferral)
{
    uint64_t word[SPW_DECIDE_WAITS_MAX];
    if (deferral->records == client->views.counts.records)
        return true;
    spw_replica_probe(&client->views.replica, deferral->tag, deferral->count, word);
    return memcmp(word, deferral->word, deferral->count * sizeof(word[0])) == 0;
}

static bool no_news(const struct spw_request *request, uint64_t computed_tokens)
{
    const struct spw_client *client = request->client;
    const struct spw_deferral *deferral = &request->deferral;
    return deferral->stands && deferral->computed_tokens == computed_tokens &&
           deferral->keys_version == request->keys_version && deferral->epoch == client->epoch &&
           client->step - deferral->step < REFRESH_STEPS &&
           (deferral->count != 0 ? same_words(client, deferral)
                                 : deferral->loading_epoch == client->loading_epoch);
}

static void watch(struct spw_request *request, const struct spw_decide_wait *wait)
{
    struct spw_deferral *deferral = &request->deferral;
    const struct spw_chunk_ref ref = {
        .group = wait->group,
        .index = wait->boundary ? SPW_CHUNK_TAIL : wait->chunk,
        .boundary = wait->boundary,
    };
    struct spw_chunk_key key;
    if (spw_request_key(request, &ref, &key) < 0)
        return;
    deferral->tag[deferral->count] = key.digest[0];
    deferral->word[deferral->count++] =
        spw_replica_get(&request->client->views.replica, key.digest[0]);
}

/* A transfer of its own is asked about each time anew: that costs nothing. */
static void remember(struct spw_request *request, const struct spw_decision_core *core,
                     const struct spw_decision *decision)
{
    struct spw_client *client = request->client;
    struct spw_deferral *deferral = &request->deferral;
    deferral->stands = core->action == SPW_ACTION_DEFER && core->reason != SPW_REASON_TRANSFER;
    if (!deferral->stands)
        return;
    deferral->step = client->step;
    deferral->epoch = client->epoch;
    deferral->loading_epoch = client->loading_epoch;
    deferral->records = client->views.counts.records;
    deferral->computed_tokens = decision->computed_tokens;
    deferral->keys_version = request->keys_version;
    deferral->decision = *decision;
    deferral->count = 0;
    for (uint32_t i = 0; i < core->wait_count; i++)
        watch(request, &core->wait[i]);
}

/* ---- lookup ---------------------------------------------------------------------------------- */

static int decide(struct spw_request *request, uint64_t computed_tokens, bool running,
                  struct spw_decision_core *out_core)
{
    struct spw_space *space = request->space;
    struct asker asker = {
        .source = {.fetch = fetch, .tail = request->boundaries ? tail : NULL},
        .request = request,
    };
    struct spw_decide_input in = {
        .lookup = {.groups = &space->groups,
                   .num_tokens = request->tokens,
                   .num_prompt_tokens = request->prompt_tokens,
                   .num_computed_tokens = computed_tokens,
                   .budget_tokens = space->budget_tokens},
        .scope = (uint8_t)space->scope,
        .skip = request->flags & SPW_REQUEST_NO_READ,
        .inflight = running,
    };
    if (space->gpu_prefix_cache) {
        asker.source.loading = loading;
        asker.source.tail_loading = tail_loading;
    }
    for (uint32_t g = 0; g < space->groups.count; g++)
        in.lookup.chunks[g] = (struct spw_lookup_chunks){
            .count = spw_request_chunks(request, g),
            .verdicts = request->client->scratch[g].verdict,
        };
    return spw_decide(&in, &asker.source, out_core);
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

static void count_decision(struct spw_client *client, const struct spw_decision *decision)
{
    spw_count(client, SPW_CLIENT_lookups, 1);
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

int spw_lookup(struct spw_request *request, uint64_t computed_tokens, int in_flight,
               struct spw_decision *out_decision)
{
    struct spw_decision_core core;
    struct spw_decision decision;
    if (!request || !out_decision || out_decision->size_bytes < sizeof(decision))
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
    if (!running && no_news(request, computed_tokens)) {
        decision = request->deferral.decision;
        decision.step = client->step;
        decision.repeated = 1;
    } else {
        rc = decide(request, computed_tokens, running, &core);
        if (rc < 0)
            return rc;
        fill_decision(request, &core, computed_tokens, &decision);
        remember(request, &core, &decision);
        if (decision.action != SPW_ACTION_DEFER && decision.reason != SPW_REASON_SKIP)
            touch(request, &decision);
    }
    count_decision(client, &decision);
    memcpy(out_decision, &decision, sizeof(decision));
    return 0;
}

/* ---- probes and touches ---------------------------------------------------------------------- */

int spw_request_probe(struct spw_request *request, uint32_t group, uint64_t first, uint64_t count,
                      uint8_t *out_verdicts)
{
    if (!request || group >= request->space->groups.count || (!out_verdicts && count > 0))
        return -EINVAL;
    struct spw_client *client = request->client;
    int rc = spw_client_check(client);
    if (rc < 0)
        return rc;
    uint64_t keys = request->keys[group].count;
    if (!client->in_step || first > keys || count > keys - first)
        return -EINVAL;
    uint64_t *word = client->scratch[group].word;
    spw_replica_probe(&client->views.replica, request->keys[group].tag + first, count, word);
    spw_judge_words(&request->space->judge, word, count, out_verdicts);
    spw_count(client, SPW_CLIENT_probed, count);
    return 0;
}

int spw_probe(struct spw_space *space, uint32_t group, const void *keys, uint32_t key_bytes,
              uint64_t count, uint8_t *out_verdicts)
{
    uint64_t tag[PROBE_BATCH], word[PROBE_BATCH], digest[2];
    if (!space || group >= space->groups.count || (count > 0 && (!keys || !out_verdicts)) ||
        key_bytes == 0 || key_bytes > SPW_MAX_KEY_BYTES)
        return -EINVAL;
    struct spw_client *client = space->client;
    int rc = spw_client_check(client);
    if (rc < 0)
        return rc;
    if (!client->in_step)
        return -EINVAL;
    for (uint64_t at = 0, n; at < count; at += n) {
        n = count - at < PROBE_BATCH ? count - at : PROBE_BATCH;
        for (uint64_t i = 0; i < n; i++) {
            spw_chunk_digest(space->number, group, (const uint8_t *)keys + (at + i) * key_bytes,
                             key_bytes, digest);
            tag[i] = digest[0];
        }
        spw_replica_probe(&client->views.replica, tag, n, word);
        spw_judge_words(&space->judge, word, n, out_verdicts + at);
    }
    spw_count(client, SPW_CLIENT_probed, count);
    return 0;
}

int spw_touch(struct spw_request *request)
{
    struct spw_touch_range range[SPW_MAX_GROUPS];
    if (!request)
        return -EINVAL;
    struct spw_client *client = request->client;
    int rc = spw_client_check(client);
    if (rc < 0)
        return rc;
    if (!client->in_step)
        return -EINVAL;
    if (request->flags & SPW_REQUEST_NO_READ)
        return 0;
    for (uint32_t g = 0; g < request->space->groups.count; g++) {
        range[g] = (struct spw_touch_range){0, request->keys[g].count};
        spw_replica_probe(&client->views.replica, request->keys[g].tag, range[g].end,
                          client->scratch[g].word);
    }
    spw_touch_ranges(request, range, 0);
    return 0;
}
