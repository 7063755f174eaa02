/*
 * Requests: keys are handed in once and digested once. Private memory; the calls here are the
 * ones that may allocate.
 */
#include "sched/handle.h"

#include <stdlib.h>
#include <string.h>

#define BYTES_MAX          (1ull << 40) /* of any array here                           */
#define CONFIG_FIRST_BYTES offsetof(struct spw_request_config, tag)
#define EXPECT_MAX         (1ull << 20) /* chunks that room is made for before they come */

/* Grow *@array to @room things of @bytes each. */
static int grow(void *array, uint64_t room, uint64_t bytes)
{
    void *now;
    memcpy(&now, array, sizeof(now));
    if (room > BYTES_MAX / bytes)
        return -ENOMEM;
    now = realloc(now, room * bytes);
    if (!now)
        return -ENOMEM;
    memcpy(array, &now, sizeof(now));
    return 0;
}

static int grow_scratch(struct spw_client *client, uint32_t group, uint64_t room)
{
    struct spw_scratch *scratch = &client->scratch[group];
    if (room <= scratch->room)
        return 0;
    if (grow(&scratch->word, room, sizeof(*scratch->word)) < 0 ||
        grow(&scratch->verdict, room, sizeof(*scratch->verdict)) < 0)
        return -ENOMEM;
    scratch->room = room;
    return 0;
}

static int grow_keys(struct spw_keys *keys, uint64_t room, bool below)
{
    if (room <= keys->room)
        return 0;
    if (grow(&keys->tag, room, sizeof(*keys->tag)) < 0 ||
        grow(&keys->second, room, sizeof(*keys->second)) < 0 ||
        grow(&keys->key, room, keys->key_bytes) < 0)
        return -ENOMEM;
    if (below && grow(&keys->ask, room, sizeof(*keys->ask)) < 0)
        return -ENOMEM;
    if (below)
        memset(keys->ask + keys->count, 0, (room - keys->count) * sizeof(*keys->ask));
    keys->room = room;
    return 0;
}

/* ---- life ------------------------------------------------------------------------------------ */

int spw_request_open(struct spw_space *space, const struct spw_request_config *config,
                     struct spw_request **out_request)
{
    struct spw_request_config mine;
    if (!space || !config || !out_request ||
        !spw_take_options(&mine, sizeof(mine), config, config->size_bytes, CONFIG_FIRST_BYTES) ||
        mine.flags & ~SPW_REQUEST_NO_READ || mine.prompt_tokens > SPW_TOKENS_MAX ||
        mine.expect_tokens > SPW_TOKENS_MAX)
        return -EINVAL;
    int rc = spw_client_check(space->client);
    if (rc == 0)
        rc = spw_wakeup_room(&space->client->wakeup, space->client->requests_open + 1);
    if (rc < 0)
        return rc;
    struct spw_request *request = calloc(1, sizeof(*request));
    if (!request)
        return -ENOMEM;
    request->client = space->client;
    request->space = space;
    request->number = ++space->client->requests_opened;
    request->tag = mine.tag;
    request->flags = mine.flags;
    request->prompt_tokens = mine.prompt_tokens;
    request->tokens = mine.prompt_tokens;
    request->expect_tokens = mine.expect_tokens ? mine.expect_tokens : mine.prompt_tokens;
    space->client->requests_open++;
    spw_link_init(&request->jobs);
    spw_list_append(&space->client->requests, &request->link);
    *out_request = request;
    return 0;
}

void spw_request_free(struct spw_request *request)
{
    spw_list_remove(&request->link);
    request->client->requests_open--;
    spw_wakeup_forget(&request->client->wakeup, &request->waiter);
    spw_marks_fini(&request->marks);
    for (uint32_t g = 0; g < SPW_MAX_GROUPS; g++) {
        free(request->keys[g].tag);
        free(request->keys[g].second);
        free(request->keys[g].key);
        free(request->keys[g].ask);
    }
    for (uint32_t i = 0; i < request->boundaries; i++)
        free(request->boundary[i]);
    free(request);
}

uint64_t spw_request_tag(const struct spw_request *request)
{
    return request ? request->tag : 0;
}

/* ---- keys ------------------------------------------------------------------------------------ */

/* Each chunk that has a key, and one tail, may be waited for at every rank. */
static int grow_marks(struct spw_request *request)
{
    uint64_t chunks = request->space->groups.count;
    for (uint32_t g = 0; g < request->space->groups.count; g++)
        chunks += request->keys[g].room;
    return spw_marks_grow(&request->marks, chunks, request->space->ranks);
}

static int prepare_keys(struct spw_request *request, uint32_t group, uint32_t key_bytes,
                        uint64_t count)
{
    struct spw_keys *keys = &request->keys[group];
    uint64_t expect = request->expect_tokens / request->space->groups.group[group].chunk_tokens;
    uint64_t room = keys->count + count;
    expect = expect < EXPECT_MAX ? expect : EXPECT_MAX;
    if (room < count)
        return -ENOMEM;
    if (keys->key_bytes != key_bytes) /* none is in: a call that ran out of memory made this room */
        keys->room = 0;
    keys->key_bytes = key_bytes;
    if (room > keys->room) {
        uint64_t more = keys->room + keys->room / 2;
        more = more > expect ? more : expect;
        if (grow_keys(keys, room > more ? room : more,
                      request->client->pool.geometry.cold_chunks != 0) < 0)
            return -ENOMEM;
    }
    if (grow_marks(request) < 0)
        return -ENOMEM;
    return grow_scratch(request->client, group, room);
}

int spw_request_extend(struct spw_request *request, uint32_t group, const void *keys,
                       uint32_t key_bytes, uint64_t count)
{
    if (!request || group >= request->space->groups.count || (!keys && count > 0) ||
        key_bytes == 0 || key_bytes > SPW_MAX_KEY_BYTES)
        return -EINVAL;
    int rc = spw_client_check(request->client);
    if (rc < 0)
        return rc;
    struct spw_keys *mine = &request->keys[group];
    if (mine->count > 0 && mine->key_bytes != key_bytes)
        return -EINVAL;
    rc = prepare_keys(request, group, key_bytes, count);
    if (rc < 0)
        return rc;
    if (count > 0) /* else there may be no array at all */
        memcpy(mine->key + mine->count * key_bytes, keys, count * key_bytes);
    for (uint64_t i = mine->count; i < mine->count + count; i++) {
        uint64_t digest[2];
        spw_chunk_digest(request->space->number, group, mine->key + i * key_bytes, key_bytes,
                         digest);
        mine->tag[i] = digest[0];
        mine->second[i] = digest[1];
    }
    mine->count += count;
    request->keys_version++;
    return 0;
}

/* Where boundary @at is, or belongs, among the highest first. */
static uint32_t boundary_place(const struct spw_request *request, uint64_t at)
{
    uint32_t i = 0;
    while (i < request->boundaries && request->boundary[i]->at > at)
        i++;
    return i;
}

static void put_boundary(struct spw_request *request, struct spw_boundary *boundary)
{
    uint32_t i = boundary_place(request, boundary->at);
    if (i < request->boundaries && request->boundary[i]->at == boundary->at) {
        free(request->boundary[i]);
    } else {
        memmove(&request->boundary[i + 1], &request->boundary[i],
                (request->boundaries - i) * sizeof(request->boundary[0]));
        request->boundaries++;
    }
    request->boundary[i] = boundary;
    request->keys_version++;
}

int spw_request_boundary(struct spw_request *request, uint64_t boundary, const void *keys,
                         uint32_t key_bytes)
{
    if (!request || !keys || key_bytes == 0 || key_bytes > SPW_MAX_KEY_BYTES || boundary == 0 ||
        boundary > SPW_TOKENS_MAX || boundary % request->space->groups.hash_unit_tokens != 0)
        return -EINVAL;
    int rc = spw_client_check(request->client);
    if (rc == 0)
        rc = grow_marks(request);
    if (rc < 0)
        return rc;
    uint32_t groups = request->space->groups.count;
    if (request->boundaries == SPW_BOUNDARIES_MAX && !spw_request_find_boundary(request, boundary))
        return -EINVAL;
    struct spw_boundary *mine = malloc(sizeof(*mine) + groups * sizeof(mine->group[0]));
    if (!mine)
        return -ENOMEM;
    mine->at = boundary;
    mine->key_bytes = key_bytes;
    for (uint32_t g = 0; g < groups; g++) {
        mine->group[g].ask = (struct spw_ask){0};
        memcpy(mine->group[g].key, (const uint8_t *)keys + g * key_bytes, key_bytes);
        spw_chunk_digest(request->space->number, g, mine->group[g].key, key_bytes,
                         mine->group[g].digest);
    }
    put_boundary(request, mine);
    return 0;
}

int spw_request_tokens(struct spw_request *request, uint64_t tokens)
{
    if (!request || tokens < request->tokens || tokens > SPW_TOKENS_MAX)
        return -EINVAL;
    int rc = spw_client_check(request->client);
    if (rc < 0)
        return rc;
    request->keys_version += tokens != request->tokens;
    request->tokens = tokens;
    return 0;
}

/* ---- asked by the others --------------------------------------------------------------------- */

const struct spw_boundary *spw_request_find_boundary(const struct spw_request *request, uint64_t at)
{
    uint32_t i = boundary_place(request, at);
    return i < request->boundaries && request->boundary[i]->at == at ? request->boundary[i] : NULL;
}

uint64_t spw_request_chunks(const struct spw_request *request, uint32_t group)
{
    uint64_t whole = request->tokens / request->space->groups.group[group].chunk_tokens;
    uint64_t keys = request->keys[group].count;
    return keys < whole ? keys : whole;
}

int spw_request_key(const struct spw_request *request, const struct spw_chunk_ref *ref,
                    struct spw_chunk_key *out_key)
{
    if (ref->group >= request->space->groups.count)
        return -EINVAL;
    struct spw_chunk_key key = {.space = request->space->number, .group = ref->group};
    if (ref->index == SPW_CHUNK_TAIL) {
        const struct spw_boundary *boundary = spw_request_find_boundary(request, ref->boundary);
        if (!boundary)
            return -EINVAL;
        memcpy(key.digest, boundary->group[ref->group].digest, sizeof(key.digest));
        key.key_bytes = boundary->key_bytes;
        key.key = boundary->group[ref->group].key;
    } else {
        const struct spw_keys *keys = &request->keys[ref->group];
        if (ref->index >= keys->count)
            return -EINVAL;
        key.digest[0] = keys->tag[ref->index];
        key.digest[1] = keys->second[ref->index];
        key.key_bytes = keys->key_bytes;
        key.key = keys->key + ref->index * keys->key_bytes;
    }
    *out_key = key;
    return 0;
}
