/*
 * Cache-only replay: what does an eviction policy of N chunks keep? One engine, one worker, file
 * order, no clock. Every id of a line is a chunk, the partial last one too.
 *
 * For each request: look it up (leading run = hit, all resident ones counted), load and verify the
 * hit, then let the policy see every chunk once, last chunk first. Recency is a stack: what N
 * chunks stay depends only on the order of the last uses, so the same end is reached by touching
 * what is there, storing what is not, and touching all once more; lanes keep that order. Of a
 * request longer than N only its first N chunks can stay, so only those are stored. Under FIFO, too,
 * the head comes last of its request.
 *
 * Over a tier below each request is played when what came before it has gone down.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/replay.h"
#include "tools/replay_below.h"
#include "tools/replay_kv.h"

#define DEFERRALS_MAX 3000000u /* some 30 s of asking: what is below comes sooner, or not at all */
#define LOADS_MAX     128u     /* jobs of one hit; a longer one is loaded and checked up to there */

/* One job of a load, begun in a step and run after it. */
struct load {
    uint32_t count;
    struct spw_chunk_ref ref[SPW_MAX_JOB_CHUNKS];
    uint32_t block[SPW_MAX_JOB_CHUNKS];
};

struct cache_replay {
    const struct spw_replay_seat *seat;
    struct spw_replay_kv kv;
    struct spw_pool *below; /* NULL without a tier below */
    struct spw_replay_sums *sums;
    uint8_t *verdicts;
    uint64_t room;
    struct load load[LOADS_MAX];
    uint32_t loads;
};

/* The next completion, of @kind unless that is 0. */
static int await(struct cache_replay *replay, uint32_t kind, struct spw_completion *out)
{
    for (uint64_t tries = 0; tries < 2000000; tries++) { /* some 30 s: a lost answer is a failure */
        int n = spw_completions(replay->seat->client, out, 1);
        if (n < 0)
            return n;
        if (n == 1)
            return !kind || out->kind == kind ? 0 : -EPROTO;
        if (tries > 200)
            usleep(10);
    }
    return -ETIMEDOUT;
}

/* Begin the loads of the hit; a step's commands reach a sleeping worker when the step ends. */
static int begin_loads(struct cache_replay *replay, struct spw_request *request,
                       const struct spw_decision *decision)
{
    uint64_t from = 0;
    for (;;) {
        struct load *load = &replay->load[replay->loads];
        int count = spw_decision_chunks(decision, from, load->ref, SPW_MAX_JOB_CHUNKS);
        if (count <= 0 || replay->loads == LOADS_MAX)
            return count < 0 ? count : 0;
        int taken = spw_load_begin(request, decision, 0, load->ref, (uint32_t)count, replay->loads);
        if (taken <= 0)
            return taken == -EAGAIN ? 0 : taken;
        load->count = (uint32_t)taken;
        from += (uint64_t)taken;
        replay->loads++;
    }
}

static int run_load(struct cache_replay *replay, const struct spw_completion *begun)
{
    struct load *load = begun->cookie < replay->loads ? &replay->load[begun->cookie] : NULL;
    if (!load || begun->ticket.chunks != load->count)
        return begun->status ? begun->status : -EPROTO;
    int status = spw_replay_kv_take(&replay->kv, load->count, load->block);
    if (status)
        return status;
    for (uint32_t i = 0; i < load->count; i++)
        spw_replay_kv_spoil(&replay->kv, load->block[i]);
    return spw_run(replay->seat->client, &begun->ticket, load->block, load->count, begun->cookie);
}

static int check_load(struct cache_replay *replay, const uint64_t *ids,
                      const struct spw_completion *loaded)
{
    struct load *load = loaded->cookie < replay->loads ? &replay->load[loaded->cookie] : NULL;
    if (!load || loaded->status)
        return loaded->status ? loaded->status : -EPROTO;
    for (uint32_t i = 0; i < load->count; i++) {
        replay->sums->wrong_bytes +=
            spw_replay_kv_wrong(&replay->kv, load->block[i], ids[load->ref[i].index]);
        replay->sums->verified_chunks++;
        replay->sums->loaded_chunks++;
    }
    spw_replay_kv_give(&replay->kv, load->count, load->block);
    return 0;
}

static int end_loads(struct cache_replay *replay, const uint64_t *ids)
{
    struct spw_completion end;
    for (uint32_t left = 2 * replay->loads; left; left--) { /* an answer and an end each */
        int status = await(replay, 0, &end);
        if (!status && end.kind == SPW_COMPLETION_BEGUN)
            status = run_load(replay, &end);
        else if (!status && end.kind == SPW_COMPLETION_LOADED)
            status = check_load(replay, ids, &end);
        else if (!status)
            status = -EPROTO;
        if (status)
            return status;
    }
    return 0;
}

/* Reserve refs[0..count) and run what is new; returns how many are dealt with. */
static int store_some(struct cache_replay *replay, struct spw_request *request, const uint64_t *ids,
                      const struct spw_chunk_ref *refs, uint32_t count)
{
    uint32_t blocks[SPW_MAX_JOB_CHUNKS];
    struct spw_completion reserved, stored;
    int asked = spw_store_reserve(request, 0, refs, count, 3);
    if (asked <= 0)
        return asked;
    int status = await(replay, SPW_COMPLETION_RESERVED, &reserved);
    if (status)
        return status;
    uint32_t accepted = reserved.ticket.chunks;
    if (!accepted || !reserved.ticket.id)
        return (int)accepted;
    status = spw_replay_kv_take(&replay->kv, accepted, blocks);
    if (status)
        return status;
    for (uint32_t i = 0; i < accepted; i++)
        spw_replay_kv_fill(&replay->kv, blocks[i], ids[refs[i].index]);
    status = spw_run(replay->seat->client, &reserved.ticket, blocks, accepted, 4);
    if (!status)
        status = await(replay, SPW_COMPLETION_STORED, &stored);
    if (!status && stored.status)
        status = stored.status;
    spw_replay_kv_give(&replay->kv, accepted, blocks);
    replay->sums->stored_chunks += (uint64_t)__builtin_popcountll(reserved.mask);
    return status ? status : (int)accepted;
}

/* The deepest absent chunks below *next. Under FIFO, where no touch mends the order, one at a time: of
 * a call that is accepted in parts the later part is newer. */
static uint32_t gather_absent(const struct cache_replay *replay, uint64_t *next,
                              struct spw_chunk_ref refs[SPW_MAX_JOB_CHUNKS])
{
    uint32_t n = 0, most = replay->seat->options->eviction == 0 ? SPW_MAX_JOB_CHUNKS : 1;
    while (*next != 0 && n < most)
        if (replay->verdicts[--*next] != SPW_HIT)
            refs[n++] = (struct spw_chunk_ref){.index = *next};
    return n;
}

/* Store every chunk below @count that is not resident, the deepest of them first. */
static int store_absent(struct cache_replay *replay, struct spw_request *request,
                        const uint64_t *ids, uint64_t count)
{
    struct spw_chunk_ref refs[SPW_MAX_JOB_CHUNKS];
    uint64_t next = count;
    uint32_t n;
    while ((n = gather_absent(replay, &next, refs)) != 0) {
        for (uint32_t at = 0; at < n;) {
            int done = store_some(replay, request, ids, refs + at, n - at);
            if (done < 0 && done != -EAGAIN)
                return done;
            if (done > 0)
                at += (uint32_t)done;
            else
                usleep(10); /* the worker is still making room */
        }
    }
    return 0;
}

static int touch(struct spw_client *client, struct spw_request *request)
{
    int status = spw_step_begin(client);
    if (status < 0)
        return status;
    status = spw_touch(request);
    int ended = spw_step_end(client);
    return status < 0 ? status : ended;
}

static void count_blocks(struct cache_replay *replay, uint64_t count)
{
    uint64_t run = 0, resident = 0, below = 0;
    for (uint64_t i = 0; i < count; i++)
        resident += replay->verdicts[i] == SPW_HIT || replay->verdicts[i] == SPW_PENDING;
    for (; run < count && replay->verdicts[run] != SPW_MISS; run++)
        below += replay->verdicts[run] == SPW_PENDING;
    replay->sums->requests++;
    replay->sums->blocks += count;
    replay->sums->hit_blocks += run;
    replay->sums->below_blocks += below;
    replay->sums->resident_blocks += resident;
}

/* One look, as a scheduling step has it. What is pending here is below: no store is under way. */
static int look_up(struct cache_replay *replay, struct spw_request *request, uint64_t count,
                   bool first, uint32_t *out_action)
{
    struct spw_decision decision = {.size_bytes = sizeof decision};
    int status = spw_step_begin(replay->seat->client);
    if (status < 0)
        return status;
    if (first) {
        status = spw_request_probe(request, 0, 0, count, replay->verdicts);
        if (status >= 0)
            count_blocks(replay, count);
    }
    if (status >= 0)
        status = spw_lookup(request, 0, 0, &decision);
    if (status >= 0 && decision.action == SPW_ACTION_LOAD)
        status = begin_loads(replay, request, &decision);
    if (status >= 0 && decision.action != SPW_ACTION_DEFER)
        status = spw_touch(request);
    *out_action = decision.action;
    int ended = spw_step_end(replay->seat->client);
    return status < 0 ? status : ended;
}

/* Between two looks: what couldn't be brought up is told by completions; no job is open. */
static int pause_deferred(const struct cache_replay *replay)
{
    struct spw_completion none;
    usleep(10);
    int n = spw_completions(replay->seat->client, &none, 1);
    return n > 0 ? -EPROTO : n;
}

/* What is resident after the loads: chunks came up meanwhile, and others went for them. */
static int look_again(struct cache_replay *replay, struct spw_request *request, uint64_t count)
{
    int status = spw_step_begin(replay->seat->client);
    if (status < 0)
        return status;
    status = spw_request_probe(request, 0, 0, count, replay->verdicts);
    int ended = spw_step_end(replay->seat->client);
    return status < 0 ? status : ended;
}

static int look_up_and_load(struct cache_replay *replay, struct spw_request *request,
                            const uint64_t *ids, uint64_t count)
{
    uint32_t action = SPW_ACTION_DEFER;
    int status = 0;
    replay->loads = 0;
    for (uint32_t asked = 0; status >= 0 && action == SPW_ACTION_DEFER; asked++) {
        if (asked == DEFERRALS_MAX)
            return -ETIMEDOUT;
        if (asked > 0)
            status = pause_deferred(replay);
        if (status >= 0)
            status = look_up(replay, request, count, asked == 0, &action);
        replay->sums->deferred_requests += asked == 0 && action == SPW_ACTION_DEFER;
    }
    if (status >= 0)
        status = end_loads(replay, ids);
    return status < 0 || !replay->below ? status : look_again(replay, request, count);
}

static int replay_request(struct cache_replay *replay, const struct spw_trace_request *traced)
{
    const struct spw_replay_options *options = replay->seat->options;
    const uint64_t *ids = replay->seat->trace->ids + traced->ids_off;
    uint64_t count = traced->id_count;
    struct spw_request_config config = {.size_bytes = sizeof config,
                                        .prompt_tokens = count * options->chunk_tokens};
    struct spw_request *request = NULL;
    if (count > replay->room) {
        uint8_t *grown = realloc(replay->verdicts, count);
        if (!grown)
            return -ENOMEM;
        replay->verdicts = grown;
        replay->room = count;
    }
    int status = spw_request_open(replay->seat->space, &config, &request);
    if (!status)
        status = spw_request_extend(request, 0, ids, sizeof *ids, count);
    if (!status)
        status = look_up_and_load(replay, request, ids, count);
    uint64_t kept = count < options->capacity_chunks ? count : options->capacity_chunks;
    if (status >= 0)
        status = store_absent(replay, request, ids, kept);
    if (status >= 0)
        status = touch(replay->seat->client, request);
    spw_request_finish(request);
    if (status >= 0 && replay->below)
        status = spw_replay_below_settle(replay->below);
    return status < 0 ? status : 0;
}

int spw_replay_cache_only(const struct spw_replay_seat *seat, struct spw_replay_result *out_result)
{
    struct cache_replay *replay = calloc(1, sizeof *replay);
    if (!replay)
        return -ENOMEM;
    replay->seat = seat;
    replay->sums = &out_result->sums;
    int status = spw_replay_kv_init(&replay->kv, seat->client, seat->options->payload_bytes);
    if (!status && seat->options->nvme_dir[0])
        status = spw_replay_below_open(seat->options, seat->pool, &replay->below);
    for (uint64_t i = 0; !status && i < seat->trace->request_count; i++)
        status = replay_request(replay, &seat->trace->requests[i]);
    spw_replay_below_close(replay->below);
    spw_replay_kv_fini(&replay->kv);
    free(replay->verdicts);
    free(replay);
    return status;
}
