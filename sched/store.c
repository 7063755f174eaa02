/*
 * First half of a store, and the reset of a space. Written: command lanes, through send.c.
 *
 *   step                    if this client dies after it
 *   command not sent        nothing
 *   command sent            the worker sees the client gone: reserved slots go to RETIRED
 */
#include "sched/handle.h"

#include <string.h>

#define KEY_HEAD_BYTES ((uint32_t)sizeof(((struct spw_reserve_key *)0)->key))

static uint32_t key_slots(const struct spw_chunk_key *key)
{
    return key->key_bytes > KEY_HEAD_BYTES ? 2 : 1;
}

/* Write @key at lane slot @at of the message; returns the next one. */
static uint32_t write_key(struct spw_client *client, uint32_t k, uint32_t at,
                          const struct spw_chunk_key *key, bool follows)
{
    struct spw_reserve_key body = {
        .digest = {key->digest[0], key->digest[1]},
        .group = key->group | (follows ? SPW_RESERVE_FOLLOWS : 0),
        .key_bytes = key->key_bytes,
    };
    uint32_t head = key->key_bytes < KEY_HEAD_BYTES ? key->key_bytes : KEY_HEAD_BYTES;
    memcpy(body.key, key->key, head);
    spw_lane_write(&client->command[k], at, &body, sizeof(body));
    if (key_slots(key) == 2)
        spw_lane_write(&client->command[k], at + 1, (const uint8_t *)key->key + head,
                       key->key_bytes - head);
    return at + key_slots(key);
}

/* How many of @chunks fit into one message now, and into its run later; -EINVAL a bad reference. */
static int how_many(struct spw_request *request, uint32_t k, const struct spw_chunk_ref *chunks,
                    uint32_t count)
{
    struct spw_client *client = request->client;
    uint32_t limit = spw_command_run_limit(client, request->space->blocks_per_chunk);
    uint32_t want = 1 + 2 * count, fit = 0, slots = 1;
    uint32_t all = client->own->command_slots;
    uint32_t room = spw_command_room(client, k, want < all ? want : all);
    struct spw_chunk_key key;
    for (uint32_t i = 0; i < count; i++)
        if (spw_request_key(request, &chunks[i], &key) < 0)
            return -EINVAL;
    if (limit == 0)
        return -EMSGSIZE;
    for (; fit < count && fit < limit; fit++) {
        spw_request_key(request, &chunks[fit], &key);
        slots += key_slots(&key);
        if (slots > room || slots > 1 + UINT8_MAX)
            break;
    }
    if (fit == 0 && 1 + key_slots(&key) > all)
        return -EMSGSIZE;
    return fit > 0 ? (int)fit : -EAGAIN;
}

/* The chunk that stands right before @chunk in its prefix, 0 for none. */
static uint64_t tag_before(const struct spw_request *request, const struct spw_chunk_ref *chunk)
{
    bool has = chunk->index != SPW_CHUNK_TAIL && chunk->index != 0;
    return has ? request->keys[chunk->group].tag[chunk->index - 1] : 0;
}

static bool follows(const struct spw_chunk_ref *chunk, const struct spw_chunk_ref *before)
{
    return chunk->index != SPW_CHUNK_TAIL && chunk->group == before->group &&
           chunk->index == before->index + 1;
}

static void send_reserve(struct spw_request *request, uint32_t rank, uint32_t k,
                         uint64_t incarnation, const struct spw_chunk_ref *chunks, uint32_t count,
                         const struct spw_open_job *job)
{
    struct spw_client *client = request->client;
    struct spw_space *space = request->space;
    struct spw_command command = spw_command_make(client, SPW_CMD_RESERVE, incarnation);
    uint32_t at = 1;
    for (uint32_t i = 0; i < count; i++) {
        struct spw_chunk_key key;
        spw_request_key(request, &chunks[i], &key);
        at = write_key(client, k, at, &key, i > 0 && follows(&chunks[i], &chunks[i - 1]));
    }
    command.space = space->number;
    command.body_slots = (uint8_t)(at - 1);
    command.count = (uint16_t)count;
    command.cookie = spw_book_cookie(job);
    command.ticket = tag_before(request, &chunks[0]);
    command.arg = space->generation[k] << 8 | rank;
    spw_command_send(client, k, &command);
}

int spw_store_reserve(struct spw_request *request, uint32_t rank,
                      const struct spw_chunk_ref *chunks, uint32_t count, uint64_t cookie)
{
    if (!request || rank >= request->space->ranks || !chunks || count == 0)
        return -EINVAL;
    struct spw_client *client = request->client;
    int rc = spw_client_check(client);
    if (rc < 0)
        return rc;
    uint32_t k = request->space->rank_worker[rank];
    uint64_t incarnation;
    if (!spw_worker_up(client, k, &incarnation))
        return -EOWNERDEAD;
    rc = how_many(request, k, chunks, count < SPW_MAX_JOB_CHUNKS ? count : SPW_MAX_JOB_CHUNKS);
    if (rc < 0) {
        spw_count(client, SPW_CLIENT_lanes_full, rc == -EAGAIN);
        return rc;
    }
    struct spw_open_job *job = spw_book_open(&client->book, SPW_OPEN_STORE);
    if (!job) {
        spw_count(client, SPW_CLIENT_jobs_full, 1);
        return -EBUSY;
    }
    job->worker = k;
    job->incarnation = incarnation;
    job->chunks = (uint32_t)rc;
    job->cookie = cookie;
    spw_book_assign(job, request);
    send_reserve(request, rank, k, incarnation, chunks, (uint32_t)rc, job);
    spw_count(client, SPW_CLIENT_reserves, 1);
    return rc;
}

/* ---- reset ----------------------------------------------------------------------------------- */

int spw_space_reset(struct spw_space *space)
{
    if (!space)
        return -EINVAL;
    struct spw_client *client = space->client;
    int rc = spw_client_check(client);
    if (rc < 0)
        return rc;
    uint64_t incarnation, workers = 0, down = 0;
    for (uint32_t k = 0; k < client->workers; k++) {
        if (!spw_worker_up(client, k, &incarnation)) {
            down |= 1ull << k;
            continue;
        }
        workers |= 1ull << k;
        if (spw_command_room(client, k, 1) < 1) {
            spw_count(client, SPW_CLIENT_lanes_full, 1);
            return -EAGAIN;
        }
    }
    if (workers == 0)
        return -EOWNERDEAD;
    struct spw_open_job *job = spw_book_open(&client->book, SPW_OPEN_RESET);
    if (!job) {
        spw_count(client, SPW_CLIENT_jobs_full, 1);
        return -EBUSY;
    }
    job->cookie = space->number;
    job->waits_for = workers;
    job->missed = down;
    for (; workers != 0; workers &= workers - 1) {
        uint32_t k = (uint32_t)__builtin_ctzll(workers);
        spw_worker_up(client, k, &job->incarnations[k]);
        struct spw_command command = spw_command_make(client, SPW_CMD_RESET, job->incarnations[k]);
        command.space = space->number;
        command.cookie = spw_book_cookie(job);
        spw_command_send(client, k, &command);
    }
    spw_count(client, SPW_CLIENT_resets, 1);
    return 0;
}
