/* The tiny pool of api_rig.h. */
#include "tests/support/api_rig.h"

#include "tier/shard_cold.h"
#include "tier/worker_impl.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* ---- the daemon's part ----------------------------------------------------------------------- */

void api_say(struct api *api, uint32_t k, enum spw_worker_phase phase)
{
    struct spw_worker_state *state = &api->rig.daemon.ctl->worker[k];
    spw_store_relaxed(&state->incarnation, spw_load_relaxed(&api->rig.daemon.feed[k]->incarnation));
    spw_store_release(&state->phase, phase);
}

static uint32_t open_space(struct spw_ctl *ctl, const struct spw_open_space_mail *mail)
{
    uint32_t s = 0;
    while (spw_load_relaxed(&ctl->space[s].ready) &&
           memcmp(&ctl->space[s].record, &mail->record, sizeof(mail->record)) != 0)
        s++;
    ctl->space[s].record = mail->record;
    for (uint32_t r = 0; r < mail->record.ranks; r++)
        spw_store_relaxed(&ctl->space[s].rank_workers[r],
                          spw_load_relaxed(&ctl->space[s].rank_workers[r]) |
                              1ull << mail->rank_worker[r]);
    spw_store_release(&ctl->space[s].ready, 1);
    return s;
}

static void answer_mail(struct api *api)
{
    struct spw_pool *pool = &api->rig.daemon;
    for (uint32_t c = 0; c < pool->geometry.clients && !api->mute; c++) {
        struct spw_mailbox *mail = &pool->client[c].head->mailbox;
        struct spw_reply *reply = &pool->ctl->reply[c];
        struct spw_open_space_mail asked;
        uint64_t seq = spw_load_acquire(&mail->seq);
        if (seq == api->answered[c])
            continue;
        memcpy(&asked, mail->bytes, sizeof(asked));
        bool refused = strcmp(asked.record.fingerprint, "refused") == 0;
        spw_store_relaxed(&reply->value, refused ? 0 : open_space(pool->ctl, &asked));
        spw_store_relaxed(&reply->status, refused ? (uint64_t)-ENOSPC : 0);
        snprintf(reply->text, sizeof(reply->text), "%s", refused ? "as the test wants it" : "");
        spw_store_relaxed(&reply->generation, spw_load_relaxed(&pool->client[c].head->generation));
        spw_store_release(&reply->seq, seq);
        api->answered[c] = seq;
    }
}

static void *drive(void *arg)
{
    struct api *api = arg;
    while (!spw_load_acquire(&api->stop)) {
        answer_mail(api);
        if (rig_pass(&api->rig) == 0)
            usleep(50);
    }
    return NULL;
}

void api_pump(struct api *api)
{
    spw_store_relaxed(&api->stop, 0);
    int rc = pthread_create(&api->thread, NULL, drive, api);
    assert(rc == 0);
    (void)rc;
}

void api_pump_end(struct api *api)
{
    spw_store_release(&api->stop, 1);
    pthread_join(api->thread, NULL);
}

void api_open(struct api *api, const struct rig_config *config)
{
    memset(api, 0, sizeof(*api));
    rig_open(&api->rig, config);
    rig_settle(&api->rig);
    for (uint32_t k = 0; k < api->rig.config.workers; k++)
        api_say(api, k, SPW_WORKER_UP);
}

void api_close(struct api *api)
{
    rig_close(&api->rig);
}

void api_kill_worker(struct api *api, uint32_t k)
{
    api_say(api, k, SPW_WORKER_DOWN);
    rig_end_worker(&api->rig, k);
    api_say(api, k, SPW_WORKER_REAPED);
}

void api_restart_worker(struct api *api, uint32_t k)
{
    rig_start_worker(&api->rig, k);
    rig_settle(&api->rig);
    api_say(api, k, SPW_WORKER_UP);
}

/* ---- clients --------------------------------------------------------------------------------- */

struct spw_client *api_attach(struct api *api, uint32_t changes)
{
    struct spw_attach_options options = {
        .size_bytes = sizeof(options),
        .numa_node = -1,
        .pool = "rig",
        .shm_dir = api->rig.dir,
        .label = "test",
        .changes = changes,
        .uid = -1,
        .now_ns = rig_now,
        .clock_ctx = &api->rig,
    };
    struct spw_client *client = NULL;
    char text[256] = "";
    api_pump(api);
    int rc = spw_attach(&options, &client, text, sizeof(text));
    api_pump_end(api);
    if (rc < 0)
        fprintf(stderr, "attach: %d %s\n", rc, text);
    assert(rc == 0);
    return client;
}

struct spw_space_config api_space_config(uint32_t ranks)
{
    static const struct spw_group_config group = {
        .kind = SPW_GROUP_FULL, .block_tokens = 8, .chunk_bytes = 2 * RIG_BLOCK_BYTES};
    static const uint32_t workers[RIG_WORKERS] = {0, 1};
    return (struct spw_space_config){
        .size_bytes = sizeof(struct spw_space_config),
        .blocks_per_chunk = 2,
        .hash_unit_tokens = 8,
        .groups = 1,
        .group = &group,
        .ranks = ranks,
        .rank_worker = workers,
        .fingerprint = "a model",
    };
}

struct spw_space *api_space(struct api *api, struct spw_client *client,
                            const struct spw_space_config *config)
{
    struct spw_space *space = NULL;
    char text[256] = "";
    api_pump(api);
    int rc = spw_space_open(client, config, &space, text, sizeof(text));
    api_pump_end(api);
    if (rc < 0)
        fprintf(stderr, "space: %d %s\n", rc, text);
    assert(rc == 0);
    return space;
}

static void extend(struct spw_request *request, uint32_t group, uint64_t first, uint32_t chunks)
{
    uint8_t key[64 * API_KEY_BYTES];
    for (uint32_t at = 0; at < chunks; at += 64) {
        uint32_t n = chunks - at < 64 ? chunks - at : 64;
        for (uint32_t i = 0; i < n; i++)
            rig_key(0, first + at + i, key + i * API_KEY_BYTES);
        int rc = spw_request_extend(request, group, key, API_KEY_BYTES, n);
        assert(rc == 0);
        (void)rc;
    }
}

struct spw_request *api_request(struct spw_space *space, uint64_t first, uint32_t chunks)
{
    struct spw_request_config config = {.size_bytes = sizeof(config),
                                        .prompt_tokens = (uint64_t)chunks * API_CHUNK_TOKENS};
    struct spw_request *request = NULL;
    int rc = spw_request_open(space, &config, &request);
    assert(rc == 0);
    (void)rc;
    extend(request, 0, first, chunks);
    return request;
}

static uint8_t byte_of(uint64_t number, uint32_t rank, uint32_t at)
{
    return (uint8_t)(number * 37 + rank * 101 + at * 3 + 1);
}

static uint8_t *block_at(struct spw_client *client, uint32_t block)
{
    void *start = NULL;
    int rc = spw_kv_blocks(client, &start, NULL, NULL);
    assert(rc == 0);
    (void)rc;
    return (uint8_t *)start + (uint64_t)block * RIG_BLOCK_BYTES;
}

void api_fill(struct spw_client *client, uint32_t block, uint64_t number, uint32_t rank)
{
    uint8_t *at = block_at(client, block);
    for (uint32_t i = 0; i < RIG_BLOCK_BYTES; i++)
        at[i] = byte_of(number, rank, i);
}

bool api_filled(struct spw_client *client, uint32_t block, uint64_t number, uint32_t rank)
{
    const uint8_t *at = block_at(client, block);
    for (uint32_t i = 0; i < RIG_BLOCK_BYTES; i++)
        if (at[i] != byte_of(number, rank, i))
            return false;
    return true;
}

/* ---- jobs ------------------------------------------------------------------------------------ */

struct spw_completion api_complete(struct api *api, struct spw_client *client)
{
    struct spw_completion out[2];
    rig_settle(&api->rig);
    int n = spw_completions(client, out, 2);
    if (n != 1)
        fprintf(stderr, "completions: %d\n", n);
    assert(n == 1);
    return out[0];
}

struct spw_completion api_reserve(struct api *api, struct spw_request *request,
                                  struct spw_client *client, uint32_t rank, uint64_t first,
                                  uint32_t count)
{
    struct spw_chunk_ref ref[SPW_MAX_JOB_CHUNKS] = {0};
    for (uint32_t i = 0; i < count; i++)
        ref[i].index = first + i;
    int rc = spw_store_reserve(request, rank, ref, count, 7);
    assert(rc == (int)count);
    (void)rc;
    return api_complete(api, client);
}

int api_run(struct spw_client *client, const struct spw_ticket *ticket, uint32_t block,
            uint64_t cookie)
{
    uint32_t blocks[2 * SPW_MAX_JOB_CHUNKS];
    for (uint32_t i = 0; i < 2 * ticket->chunks; i++)
        blocks[i] = block + i;
    return spw_run(client, ticket, blocks, 2 * ticket->chunks, cookie);
}

void api_store(struct api *api, struct spw_client *client, struct spw_space *space, uint32_t ranks,
               uint64_t first, uint32_t chunks)
{
    struct spw_request *request = api_request(space, first, chunks);
    for (uint32_t rank = 0; rank < ranks; rank++) {
        struct spw_completion done = api_reserve(api, request, client, rank, 0, chunks);
        assert(done.status == 0 && done.ticket.chunks == chunks);
        for (uint32_t i = 0; i < 2 * chunks; i++)
            api_fill(client, i, first + i / 2, rank);
        int rc = api_run(client, &done.ticket, 0, 8);
        assert(rc == 0);
        (void)rc;
        done = api_complete(api, client);
        assert(done.kind == SPW_COMPLETION_STORED && done.status == 0 && done.mask == 0);
    }
    spw_request_finish(request);
}

/* ---- a tier below ---------------------------------------------------------------------------- */

static struct spw_chunk_key key_of(struct spw_space *space, uint32_t group, uint64_t number,
                                   uint8_t bytes[RIG_KEY_BYTES])
{
    struct spw_chunk_key key = {
        .space = spw_space_number(space), .group = group, .key_bytes = API_KEY_BYTES, .key = bytes};
    rig_key(0, number, bytes);
    spw_chunk_digest(key.space, group, bytes, API_KEY_BYTES, key.digest);
    return key;
}

uint64_t api_tag(struct spw_space *space, uint32_t group, uint64_t number)
{
    uint8_t bytes[RIG_KEY_BYTES];
    return key_of(space, group, number, bytes).digest[0];
}

void api_cold_add(struct api *api, struct spw_space *space, uint32_t k, uint32_t id, uint32_t group,
                  uint64_t number)
{
    uint8_t bytes[RIG_KEY_BYTES];
    struct spw_chunk_key key = key_of(space, group, number, bytes);
    int rc = spw_shard_cold_add(api->rig.worker[k]->shard, id, &key, k, 2 * RIG_BLOCK_BYTES);
    assert(rc == 0);
    (void)rc;
    spw_shard_flush(api->rig.worker[k]->shard);
}

static uint32_t number_of(struct spw_client *client)
{
    struct spw_info info = {.size_bytes = sizeof(info)};
    int rc = spw_get_info(client, &info);
    assert(rc == 0);
    (void)rc;
    return info.client;
}

bool api_take_promote(struct api *api, struct spw_client *client, uint32_t k,
                      struct api_promote *out)
{
    struct spw_lane_consumer *lane = &api->rig.worker[k]->client[number_of(client)].commands;
    while (spw_lane_peek(lane, &out->command)) {
        bool found = out->command.op == SPW_CMD_PROMOTE;
        for (uint32_t i = 0; found && i < out->command.count; i += SPW_TOUCHES_PER_SLOT) {
            uint32_t left = out->command.count - i;
            uint32_t n = left < SPW_TOUCHES_PER_SLOT ? left : SPW_TOUCHES_PER_SLOT;
            int rc = spw_lane_read(lane, 1 + i / SPW_TOUCHES_PER_SLOT, &out->tag[i],
                                   n * (uint32_t)sizeof(uint64_t));
            assert(rc == 0);
            (void)rc;
        }
        spw_lane_release(lane, 1u + out->command.body_slots);
        if (found)
            return true;
    }
    return false;
}

void api_answer_promote(struct api *api, struct spw_client *client, uint32_t k,
                        const struct api_promote *promote, uint64_t mask)
{
    struct spw_lane_producer *lane = &api->rig.worker[k]->client[number_of(client)].completions;
    const struct spw_done done = {
        .kind = SPW_DONE_PROMOTE,
        .count = promote->command.count,
        .generation = promote->command.generation,
        .incarnation = promote->command.incarnation,
        .cookie = promote->command.cookie,
        .mask = mask,
    };
    uint32_t room = spw_lane_room(lane, 1);
    assert(room > 0);
    (void)room;
    spw_lane_write(lane, 0, &done, sizeof(done));
    spw_lane_send(lane, 1);
}

uint32_t api_promote_begin(struct api *api, uint32_t k, uint32_t id, uint64_t place_bytes)
{
    struct spw_shard *shard = api->rig.worker[k]->shard;
    uint32_t slot = 0;
    enum spw_reserve_result result = spw_shard_promote(shard, id, UINT32_MAX, &slot);
    assert(result == SPW_RESERVED);
    (void)result;
    spw_shard_place(shard, slot, place_bytes | SPW_PLACE_PROMOTION);
    spw_shard_flush(shard);
    return slot;
}

void api_promote_end(struct api *api, uint32_t k, uint32_t slot, bool well)
{
    struct spw_shard *shard = api->rig.worker[k]->shard;
    if (well)
        spw_shard_ready(shard, slot);
    else
        spw_shard_retire(shard, slot);
    spw_shard_flush(shard);
}

struct spw_decision api_lookup(struct spw_client *client, struct spw_request *request)
{
    struct spw_decision decision = {.size_bytes = sizeof(decision)};
    int rc = spw_step_begin(client);
    assert(rc >= 0);
    rc = spw_lookup(request, 0, 0, &decision);
    assert(rc == 0);
    rc = spw_step_end(client);
    assert(rc == 0);
    (void)rc;
    return decision;
}

uint64_t api_counter(struct spw_client *client, const char *name)
{
    uint64_t value[64] = {0};
    int count = spw_counters(client, value, 64);
    for (int i = 0; i < count; i++)
        if (strcmp(spw_counter_name((uint32_t)i), name) == 0)
            return value[i];
    assert(!"a counter of that name");
    return 0;
}
