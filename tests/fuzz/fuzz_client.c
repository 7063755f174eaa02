/*
 * ctl, feeds and a client's own object with any bytes in them, and workers that answer anything, as
 * an engine's process sees them through the installed API. No worker runs: what they write is what
 * the input says. Whatever is handed to the engine lies in its documented range, and each call
 * comes back.
 */
#include "sched/handle.h"
#include "tests/fuzz/fuzz.h"
#include "tests/support/api_rig.h"

#define CHUNKS     6u
#define CALLS_MAX  64u
#define TIMEOUT_NS 1000000u
#define OBJECTS    4u

struct object {
    void *at;
    void *saved;
    uint64_t bytes;
};

static struct api api;
static struct object object[OBJECTS]; /* ctl, feed 0, feed 1, client 0 */

/* ---- the pool -------------------------------------------------------------------------------- */

static void save(struct object *o, const struct spw_region *region)
{
    *o = (struct object){region->header, malloc(region->size_bytes), region->size_bytes};
    fuzz_expect(o->saved != NULL, "memory for a copy");
    memcpy(o->saved, o->at, o->bytes);
}

/* Both workers have acknowledged the next holder of client 0, and its first mail is answered. */
static void answer_ahead(const struct spw_pool *pool)
{
    struct spw_client_head *head = pool->client[0].head;
    struct spw_reply *reply = &pool->ctl->reply[0];
    uint64_t generation = spw_load_relaxed(&head->generation) + 1;
    for (uint32_t k = 0; k < pool->geometry.workers; k++)
        spw_store_relaxed(&pool->feed[k]->acked[0], generation);
    spw_store_relaxed(&reply->seq, spw_load_relaxed(&head->mailbox.seq) + 1);
    spw_store_relaxed(&reply->generation, generation);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    const struct spw_space_config config = api_space_config(1);
    api_open(&api, &(struct rig_config){.workers = 2, .command_slots = 32, .completion_slots = 16});
    struct spw_client *client = api_attach(&api, 0);
    struct spw_space *space = api_space(&api, client, &config);
    api_store(&api, client, space, 1, 0, CHUNKS);
    spw_detach(client);
    answer_ahead(&api.rig.daemon);
    spw_store_relaxed(&api.rig.daemon.feed[0]->gpu.kind, SPW_COPIER_CUDA); /* UUID 0 */
    save(&object[0], &api.rig.daemon.region_ctl);
    save(&object[1], &api.rig.daemon.region_feed[0]);
    save(&object[2], &api.rig.daemon.region_feed[1]);
    save(&object[3], &api.rig.daemon.region_client[0]);
    return 0;
}

/* Anything but geometry and headers, which a client has copied and checked when it attached. */
static void damage(struct fuzz_input *in)
{
    const struct spw_pool *pool = &api.rig.daemon;
    const struct spw_feed_map *map = &pool->feed_map;
    uint8_t *feed = (uint8_t *)pool->feed[0];
    struct spw_client_head *head = pool->client[0].head;
    const struct fuzz_window window[] = {
        {(void *)&pool->ctl->phase, 64},
        {pool->ctl->worker, 2 * sizeof pool->ctl->worker[0]},
        {&pool->ctl->reply[0], sizeof pool->ctl->reply[0]},
        {&pool->ctl->space[0], sizeof pool->ctl->space[0]},
        {(void *)&pool->feed[0]->incarnation, 384},
        {(void *)&pool->feed[0]->acked[0], 8},
        {(void *)&pool->feed[0]->fenced[0], 8},
        {(void *)&pool->feed[0]->space_generation[0], 8},
        {feed + map->ring_off, (uint32_t)(map->entry_off - map->ring_off)},
        {feed + map->entry_off, (uint32_t)(map->key_off - map->entry_off)},
        {feed + map->key_off, (uint32_t)(map->copying_off - map->key_off)}, /* and the index */
        {(void *)&pool->feed[1]->incarnation, 384},
        {(void *)&head->generation, 192},
        {head->lane, 2 * sizeof head->lane[0]},
        {head->worker_lane, 2 * sizeof head->worker_lane[0]},
        {(void *)&head->decisions, 64},
        {&pool->feed[0]->gpu, sizeof pool->feed[0]->gpu},
        {head->kv_words, 2 * sizeof head->kv_words[0]},
        {pool->client[0].completion, (uint32_t)(2 * pool->geometry.completion_slots * 64)},
    };
    fuzz_damage(in, window, sizeof window / sizeof window[0]);
}

/* ---- workers --------------------------------------------------------------------------------- */

/* An answer to one of the open jobs, in the lane of the worker that was asked, or of another. */
static void send_answer(struct spw_client *client, struct fuzz_input *in)
{
    const struct spw_client_view *view = &api.rig.daemon.client[0];
    struct spw_done done = {.kind = 1 + fuzz_u8(in) % 6, .ticket = 1 + fuzz_u8(in)};
    const struct spw_link *at = client->book.busy.after;
    uint64_t words[7] = {0};
    const struct fuzz_window window[] = {{words, sizeof words}};
    uint32_t k = fuzz_u8(in) % client->workers;
    uint8_t pieces = fuzz_u8(in), count = pieces >> 2;
    pieces %= 4;
    if (at != &client->book.busy) {
        const struct spw_open_job *job = SPW_LINKED(at, struct spw_open_job, link);
        done.cookie = spw_book_cookie(job);
        done.incarnation = (uint32_t)job->incarnation;
        done.count = (uint16_t)(count < 32 ? job->chunks : 2u * count); /* or more than asked for */
    }
    done.generation = (uint32_t)client->generation;
    memcpy(words, &done, sizeof done);
    while (pieces--)
        fuzz_damage(in, window, 1);
    uint64_t head = client->completion[k].head;
    struct spw_lane_slot *slot =
        &view->completion[k * view->completion_slots + head % view->completion_slots];
    for (uint32_t w = 0; w < 7; w++)
        spw_store_relaxed(&slot->word[w], words[w]);
    spw_store_relaxed(&slot->seq, head + 1);
}

/* ---- an engine ------------------------------------------------------------------------------- */

struct engine {
    struct spw_client *client;
    struct spw_space *space;
    struct spw_request *request;
    struct spw_decision decision;
    struct spw_ticket ticket;
};

/* What any call may answer. */
static int answered(int rc)
{
    fuzz_expect(rc >= -4095, "a count or an errno");
    return rc;
}

static void check_decision(const struct spw_decision *decision)
{
    fuzz_expect(decision->action <= SPW_ACTION_DEFER && decision->reason < SPW_REASON_COUNT &&
                    decision->groups == 1,
                "a decision out of range");
    fuzz_expect(decision->hit_tokens <= CHUNKS * API_CHUNK_TOKENS &&
                    decision->recomputed_tokens <= CHUNKS * API_CHUNK_TOKENS,
                "more tokens than the request has");
    fuzz_expect(decision->need[0].first <= decision->need[0].end && decision->need[0].end <= CHUNKS,
                "chunks that the request hasn't");
}

static void lookup(struct engine *engine)
{
    struct spw_decision decision = {.size_bytes = sizeof decision};
    if (answered(spw_lookup(engine->request, 0, 0, &decision)) < 0)
        return;
    check_decision(&decision);
    engine->decision = decision;
}

static void load(struct engine *engine, uint8_t from)
{
    struct spw_chunk_ref ref[CHUNKS];
    int count = spw_decision_chunks(&engine->decision, from % CHUNKS, ref, CHUNKS);
    if (count > 0)
        answered(spw_load_begin(engine->request, &engine->decision, 0, ref, (uint32_t)count, 5));
}

static void store(struct engine *engine, uint8_t first)
{
    struct spw_chunk_ref ref[2] = {{.index = first % CHUNKS}, {.index = first % CHUNKS + 1u}};
    answered(spw_store_reserve(engine->request, 0, ref, 2, 6));
}

static void run(struct engine *engine)
{
    uint32_t block[2 * SPW_MAX_JOB_CHUNKS] = {0};
    fuzz_expect(engine->ticket.chunks <= SPW_MAX_JOB_CHUNKS, "a ticket for more than a job");
    answered(spw_run(engine->client, &engine->ticket, block, 2 * engine->ticket.chunks, 9));
}

static void check_completion(const struct spw_completion *done)
{
    fuzz_expect(done->kind >= SPW_COMPLETION_RESERVED && done->kind <= SPW_COMPLETION_RESET,
                "a completion of no kind");
    fuzz_expect(done->status <= 0 && done->status >= -4095, "0 or an errno");
    fuzz_expect(done->ticket.chunks <= SPW_MAX_JOB_CHUNKS && done->ticket.worker < RIG_WORKERS,
                "a ticket out of range");
    if (done->kind == SPW_COMPLETION_RESERVED && done->ticket.chunks < 64)
        fuzz_expect(done->mask >> done->ticket.chunks == 0,
                    "more chunks to run than were accepted");
}

static void reap(struct engine *engine)
{
    struct spw_completion done[4];
    int count = answered(spw_completions(engine->client, done, 4));
    fuzz_expect(count <= 4, "more completions than were asked for");
    for (int i = 0; i < count; i++) {
        check_completion(&done[i]);
        if (done[i].kind == SPW_COMPLETION_RESERVED || done[i].kind == SPW_COMPLETION_BEGUN)
            engine->ticket = done[i].ticket;
    }
}

static void ask_more(struct engine *engine, uint8_t what)
{
    const struct spw_chunk_ref ref = {.index = what % CHUNKS};
    struct spw_request *woken[2];
    struct spw_change change[4];
    struct spw_info info = {.size_bytes = sizeof info};
    uint8_t verdict[CHUNKS];
    uint64_t eta_ns;
    if (spw_request_probe(engine->request, 0, 0, CHUNKS, verdict) >= 0)
        for (uint32_t i = 0; i < CHUNKS; i++)
            fuzz_expect(verdict[i] <= SPW_RETRY, "no verdict");
    answered(spw_request_eta(engine->request, &ref, &eta_ns));
    fuzz_expect(answered(spw_woken(engine->client, woken, 2)) <= 1, "one request waits at most");
    fuzz_expect(answered(spw_changes(engine->client, change, 4)) <= 4, "more changes than room");
    answered(spw_touch(engine->request));
    if (spw_get_info(engine->client, &info) == 0)
        fuzz_expect(info.workers == RIG_WORKERS && info.workers_up >> RIG_WORKERS == 0,
                    "workers that there aren't");
}

/* The worker's answer is there already, or never comes. */
static void register_kv(struct engine *engine, uint8_t how)
{
    static const uint8_t fence[4][SPW_KV_HANDLE_BYTES];
    struct spw_client *client = engine->client;
    struct spw_kv_words *words = &api.rig.daemon.client[0].head->kv_words[0];
    const struct spw_kv_memory memory = {.kind = SPW_KV_MEMORY_IPC, .bytes = 4096};
    struct spw_kv_tensor tensor;
    struct spw_kv_config config = {.size_bytes = sizeof config,
                                   .memories = 1,
                                   .memory = &memory,
                                   .tensors = 1,
                                   .tensor = &tensor,
                                   .fences = 4,
                                   .fence = fence};
    char text[256] = "";
    uint32_t worker = UINT32_MAX;
    spw_kv_tensor_whole(&tensor, 0, 0, 0, 16, 64);
    if (how & 1) {
        spw_store_relaxed(&words->status, how & 2 ? (uint64_t)(int64_t)(3 - how) : 0);
        spw_store_relaxed(&words->answered, client->generation << 32 | (client->registrations + 1));
    }
    if (answered(spw_kv_register(client, &config, TIMEOUT_NS, &worker, text, sizeof text)) == 0)
        fuzz_expect(worker < client->workers, "a worker that there isn't");
    fuzz_expect(strnlen(text, sizeof text) < sizeof text, "words that don't end");
}

static void use_fence(struct engine *engine, uint8_t which)
{
    const uint32_t block[2 * SPW_MAX_JOB_CHUNKS] = {0};
    uint32_t fence = which, worker = engine->ticket.worker;
    fuzz_expect(answered(spw_fence_take(engine->client, worker, &fence)) != 0 || fence < 4,
                "a fence that there isn't");
    answered(
        spw_run_after(engine->client, &engine->ticket, block, 2 * engine->ticket.chunks, 9, fence));
    answered(spw_fence_give(engine->client, worker, fence));
}

static void call(struct engine *engine, struct fuzz_input *in)
{
    uint8_t what = fuzz_u8(in);
    switch (what % 16) {
    case 0:
    case 1:
        answered(spw_step_begin(engine->client));
        break;
    case 2:
        answered(spw_step_end(engine->client));
        break;
    case 3:
    case 4:
        lookup(engine);
        break;
    case 5:
        load(engine, what / 16);
        break;
    case 6:
        store(engine, what / 16);
        break;
    case 7:
        run(engine);
        break;
    case 8:
        reap(engine);
        break;
    case 9:
        answered(what & 16   ? spw_cancel(engine->client, &engine->ticket)
                 : what & 32 ? spw_space_reset(engine->space)
                             : spw_request_cancel(engine->request));
        break;
    case 10:
        ask_more(engine, what / 16);
        break;
    case 11:
    case 12:
        send_answer(engine->client, in);
        break;
    default:
        if (what < 0xf0)
            damage(in);
        else if (what == 0xff)
            register_kv(engine, fuzz_u8(in) % 64);
        else
            use_fence(engine, fuzz_u8(in));
    }
}

static bool attach(struct engine *engine)
{
    const struct spw_space_config config = api_space_config(1);
    const struct spw_attach_options options = {
        .size_bytes = sizeof options,
        .numa_node = -1,
        .pool = "rig",
        .shm_dir = api.rig.dir,
        .changes = 8,
        .uid = -1,
        .timeout_ns = TIMEOUT_NS,
    };
    char text[256] = "";
    int rc = spw_attach(&options, &engine->client, text, sizeof text);
    if (rc == 0)
        rc = spw_space_open(engine->client, &config, &engine->space, text, sizeof text);
    fuzz_expect(rc == 0 || text[0], "a refusal has words");
    if (rc == 0)
        engine->request = api_request(engine->space, 0, CHUNKS);
    return rc == 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input in = {data, size};
    struct engine engine = {.decision.size_bytes = sizeof engine.decision};
    for (uint32_t i = 0; i < OBJECTS; i++)
        memcpy(object[i].at, object[i].saved, object[i].bytes);
    for (uint8_t before = fuzz_u8(&in) % 4; before != 0; before--)
        damage(&in);
    if (attach(&engine)) {
        for (uint32_t i = 0; i < CALLS_MAX && in.left; i++)
            call(&engine, &in);
        reap(&engine);
        spw_request_finish(engine.request);
    }
    spw_detach(engine.client);
    return 0;
}
