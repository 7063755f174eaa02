/* The tiny pool of worker_rig.h. */
#include "tests/support/worker_rig.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "shm/alive.h"
#include "tests/support/stub_cold.h"
#include "tier/state.h"

#define RUN_LIMIT_NS      (2 * RIG_SECOND)
#define FENCE_LIMIT_NS    RIG_SECOND
#define OVERTAKE_LIMIT_NS (5 * RIG_SECOND)

static char dir[SUPPORT_PATH_BYTES]; /* one for all rigs of a process, gone when it exits */

uint64_t rig_now(void *ctx)
{
    const struct rig *rig = ctx;
    struct timespec now;
    if (!rig->config.real_clock)
        return rig->now_ns;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * RIG_SECOND + (uint64_t)now.tv_nsec;
}

static void must(int status, const struct spw_error *err)
{
    if (status < 0)
        fprintf(stderr, "rig: %d %s\n", status, err->text);
    assert(status >= 0);
}

static void open_space(struct rig *rig)
{
    struct spw_space_slot *slot = &rig->daemon.ctl->space[RIG_SPACE];
    slot->record = (struct spw_space_record){.fingerprint = "rig",
                                             .blocks_per_chunk = 2,
                                             .hash_unit_tokens = 16,
                                             .groups = 2,
                                             .ranks = 2};
    slot->record.group[0] = (struct spw_group_record){
        .block_tokens = 16, .chunk_bytes = 2 * RIG_BLOCK_BYTES, .nominal_bytes = 1000};
    slot->record.group[1] = (struct spw_group_record){
        .block_tokens = 16, .chunk_bytes = RIG_BLOCK_BYTES, .nominal_bytes = 500};
    spw_store_release(&slot->ready, 1);
}

static uint32_t or_default(uint32_t value, uint32_t otherwise)
{
    return value ? value : otherwise;
}

void rig_open(struct rig *rig, const struct rig_config *config)
{
    struct spw_error err = {0};
    struct spw_pool_config pool = {.mode = 0600, .gid = -1};
    memset(rig, 0, sizeof(*rig));
    rig->config = *config;
    rig->config.workers = or_default(config->workers, 1);
    rig->config.capacity = or_default(config->capacity, 8);
    for (int kind = 0; kind < 2; kind++)
        rig->config.copier.in_flight[kind] = or_default(config->copier.in_flight[kind], 2);
    rig->now_ns = 1000 * RIG_SECOND;
    uint32_t slots = rig->config.capacity + 1 + rig->config.reserve;
    pool.geometry = (struct spw_geometry){
        .workers = rig->config.workers,
        .clients = RIG_CLIENTS,
        .capacity_chunks = rig->config.capacity,
        .slots = slots,
        .slot_bytes = 2 * RIG_BLOCK_BYTES,
        .update_records = 64,
        .gate_records = 8,
        .command_slots = or_default(config->command_slots, 256),
        .completion_slots = or_default(config->completion_slots, 64),
        .index_buckets = spw_table_buckets(slots + config->cold_chunks),
        .cold_chunks = config->cold_chunks,
        .kv_blocks = RIG_BLOCKS,
        .kv_block_bytes = RIG_BLOCK_BYTES,
    };
    pool.cold = true;
    if (dir[0] == '\0')
        must(support_shm_dir(dir), &err);
    memcpy(rig->dir, dir, sizeof(dir));
    must(spw_pool_path_init(&pool.path, dir, "rig", geteuid(), &err), &err);
    must(spw_pool_create(&pool, &rig->daemon, &err), &err);
    open_space(rig);
    spw_store_relaxed(&rig->daemon.ctl->phase, SPW_POOL_SERVING);
    for (uint32_t k = 0; k < rig->config.workers; k++)
        rig_start_worker(rig, k);
}

void rig_start_worker(struct rig *rig, uint32_t k)
{
    struct spw_error err = {0};
    must(spw_pool_attach(&rig->daemon.path, SPW_ROLE_WORKER, k, &rig->pool[k], &err), &err);
    must(spw_lock_take(rig->pool[k].lock_fd, SPW_LOCK_WORKER(k)), &err);
    must(spw_host_copier_open(&rig->config.copier, &rig->copier[k]), &err);
    if (rig->config.wrap)
        rig->copier[k] = rig->config.wrap(rig->copier[k]);
    struct spw_worker_config config = {
        .pool = &rig->pool[k],
        .k = k,
        .copier = rig->copier[k],
        .event_limit_ns = rig->config.event_limit_ns,
        .queue_chunks = or_default(rig->config.queue_chunks, 64),
        .client_jobs_max = or_default(rig->config.client_jobs_max, 16),
        .overtake_limit_ns =
            rig->config.overtake_limit_ns ? rig->config.overtake_limit_ns : OVERTAKE_LIMIT_NS,
        .run_limit_ns = RUN_LIMIT_NS,
        .fence_limit_ns = FENCE_LIMIT_NS,
        .orphan_ns = RIG_SECOND,
        .drain_limit_ns = RIG_SECOND,
        .io_quarantine_ns = rig->config.io_quarantine_ns,
        .transfers_linger = rig->config.transfers_linger,
        .open_cold = rig->config.below && k == 0 ? stub_cold_open : NULL,
        .cold_ctx = rig->config.below,
        .cold_policy = rig->config.cold_policy,
        .now_ns = rig_now,
        .clock_ctx = rig,
    };
    if (rig->config.worker_attached)
        rig->config.worker_attached();
    must(spw_worker_open(&config, &rig->worker[k], &err), &err);
}

void rig_end_worker(struct rig *rig, uint32_t k)
{
    spw_worker_close(rig->worker[k]);
    rig->worker[k] = NULL;
    if (rig->copier[k].ops)
        rig->copier[k].ops->close(rig->copier[k].copier);
    rig->copier[k] = (struct spw_copier_handle){0};
    spw_pool_detach(&rig->pool[k]);
}

void rig_close(struct rig *rig)
{
    for (uint32_t k = 0; k < rig->config.workers; k++)
        rig_end_worker(rig, k);
    spw_pool_unlink(&rig->daemon, NULL);
    spw_pool_detach(&rig->daemon);
}

uint32_t rig_pass(struct rig *rig)
{
    uint32_t done = 0;
    uint64_t due_ns;
    for (uint32_t k = 0; k < rig->config.workers; k++)
        if (rig->worker[k])
            done += spw_worker_pass(rig->worker[k], &due_ns);
    return done;
}

void rig_settle(struct rig *rig)
{
    for (int i = 0; i < 10000 && rig_pass(rig) != 0; i++)
        ;
}

void rig_advance(struct rig *rig, uint64_t ns)
{
    rig->now_ns += ns;
}

/* ---- what can be seen ----------------------------------------------------------------------- */

uint64_t rig_count(const struct rig *rig, uint32_t k, enum spw_worker_counter counter)
{
    return spw_load_relaxed(&rig->daemon.feed[k]->counter[counter]);
}

uint64_t rig_open_chunks(const struct rig *rig, uint32_t k)
{
    static const enum spw_worker_counter ended[] = {
        SPW_WORKER_chunks_stored,      SPW_WORKER_chunks_present, SPW_WORKER_refused_no_slot,
        SPW_WORKER_refused_queue_full, SPW_WORKER_refused_stale,  SPW_WORKER_refused_bad,
        SPW_WORKER_stores_cancelled,   SPW_WORKER_stores_expired, SPW_WORKER_stores_failed,
    };
    uint64_t open = rig_count(rig, k, SPW_WORKER_chunks_offered);
    for (size_t i = 0; i < sizeof(ended) / sizeof(*ended); i++)
        open -= rig_count(rig, k, ended[i]);
    return open;
}

static void table_of(const struct rig *rig, uint32_t k, struct spw_table_view *out)
{
    spw_table_view_init(out, rig->daemon.feed[k], &rig->daemon.feed_map, &rig->daemon.geometry);
}

uint32_t rig_slots_in(const struct rig *rig, uint32_t k, uint32_t state)
{
    struct spw_table_view table;
    struct spw_entry_copy entry;
    uint32_t found = 0;
    table_of(rig, k, &table);
    for (uint32_t slot = 0; slot < rig->daemon.geometry.slots; slot++)
        found += spw_table_read(&table, slot, false, &entry) == 0 && entry.state == state;
    return found;
}

uint32_t rig_claims(const struct rig *rig, uint32_t k)
{
    const spw_atomic64 *bits = spw_pool_feed_at(&rig->daemon, k, rig->daemon.feed_map.copying_off);
    uint32_t found = 0;
    for (uint64_t w = 0; w < rig->config.workers * spw_claim_words(&rig->daemon.geometry); w++)
        found += (uint32_t)__builtin_popcountll(spw_load_relaxed(&bits[w]));
    return found;
}

uint32_t rig_state(const struct rig *rig, uint32_t k, uint64_t number, struct spw_entry_copy *out)
{
    struct spw_table_view table;
    struct spw_entry_copy entry, found = {.state = SPW_FREE};
    uint8_t key[RIG_KEY_BYTES];
    uint64_t digest[2];
    rig_key(0, number, key);
    spw_chunk_digest(RIG_SPACE, 0, key, RIG_KEY_BYTES, digest);
    table_of(rig, k, &table);
    for (uint32_t slot = 0; slot < rig->daemon.geometry.slots; slot++) {
        if (spw_table_read(&table, slot, false, &entry) < 0 || entry.state == SPW_FREE ||
            memcmp(entry.digest, digest, sizeof(digest)) != 0)
            continue;
        if (found.state == SPW_FREE || entry.version > found.version)
            found = entry;
    }
    if (out)
        *out = found;
    return found.state;
}

/* ---- clients -------------------------------------------------------------------------------- */

void rig_attach(struct rig *rig, struct rig_client *client)
{
    struct spw_error err = {0};
    memset(client, 0, sizeof(*client));
    must(spw_pool_attach(&rig->daemon.path, SPW_ROLE_CLIENT, SPW_CLIENTS_MAX, &client->pool, &err),
         &err);
    int c = spw_pool_take_client(&client->pool, false, &err);
    must(c, &err);
    client->c = (uint32_t)c;
    client->view = &client->pool.client[c];
    client->generation = spw_client_take_over(client->view);
    for (uint32_t k = 0; k < rig->config.workers; k++) {
        struct spw_lane_client *ours = &client->view->head->lane[k];
        struct spw_lane_worker *theirs = &client->view->head->worker_lane[k];
        uint32_t slots = client->view->command_slots;
        spw_lane_producer_init(&client->command[k], client->view->command + k * slots, slots,
                               &ours->command_tail, &theirs->command_head);
        slots = client->view->completion_slots;
        spw_lane_consumer_init(&client->completion[k], client->view->completion + k * slots, slots,
                               &ours->completion_head);
    }
    rig_settle(rig);
}

void rig_die(struct rig_client *client)
{
    spw_pool_detach(&client->pool);
}

struct spw_command rig_head(struct rig *rig, struct rig_client *client, uint32_t k, uint8_t op)
{
    return (struct spw_command){
        .op = op,
        .generation = (uint32_t)client->generation,
        .incarnation = (uint32_t)spw_load_relaxed(&rig->daemon.feed[k]->incarnation),
        .space = RIG_SPACE,
        .cookie = ++client->cookie,
    };
}

bool rig_send(struct rig_client *client, uint32_t k, struct spw_command *head, const void *body)
{
    const uint8_t *bytes = body;
    if (spw_lane_room(&client->command[k], 1u + head->body_slots) < 1u + head->body_slots)
        return false;
    for (uint32_t i = 0; i < head->body_slots; i++)
        spw_lane_write(&client->command[k], 1 + i, bytes + i * SPW_LANE_PAYLOAD_BYTES,
                       SPW_LANE_PAYLOAD_BYTES);
    spw_lane_write(&client->command[k], 0, head, sizeof(*head));
    spw_lane_send(&client->command[k], 1u + head->body_slots);
    return true;
}

void rig_key(uint32_t group, uint64_t number, uint8_t out[RIG_KEY_BYTES])
{
    memset(out, (int)(0x40 + group), RIG_KEY_BYTES);
    memcpy(out, &number, sizeof(number));
    memcpy(out + RIG_KEY_BYTES - sizeof(number), &number, sizeof(number));
}

bool rig_reserve(struct rig *rig, struct rig_client *client, uint32_t k, uint64_t first,
                 uint32_t count)
{
    uint8_t body[128 * SPW_LANE_PAYLOAD_BYTES] = {0};
    struct spw_command head = rig_head(rig, client, k, SPW_CMD_RESERVE);
    for (uint32_t i = 0; i < count; i++) {
        struct spw_reserve_key raw = {.key_bytes = RIG_KEY_BYTES};
        uint8_t key[RIG_KEY_BYTES];
        rig_key(0, first + i, key);
        memcpy(raw.key, key, sizeof(raw.key));
        spw_chunk_digest(RIG_SPACE, 0, key, RIG_KEY_BYTES, raw.digest);
        memcpy(body + 2 * i * SPW_LANE_PAYLOAD_BYTES, &raw, sizeof(raw));
        memcpy(body + (2 * i + 1) * SPW_LANE_PAYLOAD_BYTES, key + sizeof(raw.key),
               RIG_KEY_BYTES - sizeof(raw.key));
    }
    head.count = (uint16_t)count;
    head.body_slots = (uint8_t)(2 * count);
    head.arg = spw_load_relaxed(&rig->daemon.feed[k]->space_generation[RIG_SPACE]) << 8;
    return rig_send(client, k, &head, body);
}

bool rig_run(struct rig *rig, struct rig_client *client, uint32_t k, uint8_t op, uint64_t ticket,
             uint32_t count, uint32_t first_block)
{
    uint8_t body[10 * SPW_LANE_PAYLOAD_BYTES] = {0};
    struct spw_command head = rig_head(rig, client, k, op);
    for (uint32_t i = 0; i < 2 * count; i++) {
        uint32_t id = first_block + i;
        memcpy(body + i / SPW_BLOCKS_PER_SLOT * SPW_LANE_PAYLOAD_BYTES +
                   i % SPW_BLOCKS_PER_SLOT * sizeof(id),
               &id, sizeof(id));
    }
    head.count = (uint16_t)(2 * count);
    head.body_slots = (uint8_t)((2 * count + SPW_BLOCKS_PER_SLOT - 1) / SPW_BLOCKS_PER_SLOT);
    head.ticket = ticket;
    head.arg = rig->fence;
    return rig_send(client, k, &head, body);
}

bool rig_begin(struct rig *rig, struct rig_client *client, uint32_t k, uint32_t shard,
               uint64_t first, uint32_t count)
{
    uint8_t body[22 * SPW_LANE_PAYLOAD_BYTES] = {0};
    struct spw_command head = rig_head(rig, client, k, SPW_CMD_BEGIN);
    for (uint32_t i = 0; i < count; i++) {
        struct spw_entry_copy entry;
        rig_state(rig, shard, first + i, &entry);
        struct spw_load_source source = {.fill = entry.fill, .slot = entry.slot, .shard = shard};
        memcpy(body + i / SPW_SOURCES_PER_SLOT * SPW_LANE_PAYLOAD_BYTES +
                   i % SPW_SOURCES_PER_SLOT * sizeof(source),
               &source, sizeof(source));
    }
    head.count = (uint16_t)count;
    head.body_slots = (uint8_t)((count + SPW_SOURCES_PER_SLOT - 1) / SPW_SOURCES_PER_SLOT);
    return rig_send(client, k, &head, body);
}

bool rig_cancel(struct rig *rig, struct rig_client *client, uint32_t k, uint64_t ticket)
{
    struct spw_command head = rig_head(rig, client, k, SPW_CMD_CANCEL);
    head.ticket = ticket;
    return rig_send(client, k, &head, NULL);
}

void rig_await(struct rig *rig, struct rig_client *client, uint32_t k, uint64_t number,
               bool awaited)
{
    struct spw_entry_copy entry;
    uint32_t state = rig_state(rig, k, number, &entry);
    assert(state != SPW_FREE);
    (void)state;
    spw_client_await(client->view, k, entry.slot, awaited);
}

bool rig_reap(struct rig_client *client, uint32_t k, struct spw_done *out)
{
    if (!spw_lane_peek(&client->completion[k], out))
        return false;
    spw_lane_release(&client->completion[k], 1);
    return true;
}

struct spw_done rig_answer(struct rig *rig, struct rig_client *client, uint32_t k)
{
    struct spw_done answer = {0}, extra;
    rig_settle(rig);
    bool there = rig_reap(client, k, &answer);
    assert(there);
    assert(answer.cookie == client->cookie);
    assert(answer.generation == (uint32_t)client->generation);
    assert(!rig_reap(client, k, &extra));
    (void)there;
    return answer;
}

void rig_store(struct rig *rig, struct rig_client *client, uint32_t k, uint64_t first,
               uint32_t count)
{
    rig_reserve(rig, client, k, first, count);
    struct spw_done answer = rig_answer(rig, client, k);
    assert(answer.status == 0 && answer.ticket != 0);
    rig_run(rig, client, k, SPW_CMD_STORE, answer.ticket, count, 0);
    rig_settle(rig);
    for (int i = 0; i < 1000 && !spw_lane_peek(&client->completion[k], &answer); i++) {
        rig_advance(rig, RIG_SECOND / 10);
        rig_settle(rig);
    }
    answer = rig_answer(rig, client, k);
    assert(answer.kind == SPW_DONE_STORE && answer.status == 0);
}
