/*
 * Verdicts without a decision, for connectors that scan by themselves, and touches on demand.
 * Reads the replica; written: touch commands.
 */
#include "sched/handle.h"

#define PROBE_BATCH 64u

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
