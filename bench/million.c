/* See million.h. */
#include "bench/million.h"

#include <stdio.h>
#include <string.h>

#include "bench/bench.h"

#define SPARE_CHUNKS 4096u /* so that what a case stores evicts nothing */

static struct spw_million the_one;

uint64_t spw_million_chunks(const struct spw_million *million, uint32_t space, uint32_t group)
{
    uint64_t sliding = million->chunks / 32, full = million->chunks / 2;
    if (space == 0)
        return million->chunks - full - 2 * sliding;
    return group == 0 ? full : sliding;
}

void spw_million_key(uint32_t space, uint32_t group, uint64_t number,
                     uint8_t out[SPW_MILLION_KEY_BYTES])
{
    const uint64_t word[4] = {number, ~number, (uint64_t)space << 32 | group,
                              number * 0x9e3779b97f4a7c15u};
    memcpy(out, word, sizeof word);
}

/* ---- filling it ------------------------------------------------------------------------------ */

static int fill_group(struct spw_shard *shard, struct spw_million *million, uint32_t space,
                      uint32_t group)
{
    for (uint64_t i = 0; i < spw_million_chunks(million, space, group); i++) {
        uint8_t bytes[SPW_MILLION_KEY_BYTES];
        uint32_t slot;
        struct spw_chunk_key key = {
            .space = space, .group = group, .key_bytes = sizeof bytes, .key = bytes};
        spw_million_key(space, group, i, bytes);
        spw_chunk_digest(space, group, bytes, sizeof bytes, key.digest);
        if (spw_shard_reserve(shard, &key, 0, 64, NULL, &slot) != SPW_RESERVED)
            return -ENOSPC;
        spw_shard_ready(shard, slot);
        spw_bare_table_put(&million->bare, key.digest[0], SPW_READY);
    }
    return 0;
}

static int fill(struct spw_shard *shard, void *ctx)
{
    struct spw_million *million = ctx;
    int rc = fill_group(shard, million, 0, 0);
    for (uint32_t g = 0; rc == 0 && g < 3; g++)
        rc = fill_group(shard, million, 1, g);
    spw_shard_flush(shard);
    return rc;
}

static int open_spaces(struct spw_million *million)
{
    const struct spw_group_config group[3] = {
        {.kind = SPW_GROUP_FULL, .block_tokens = SPW_MILLION_CHUNK_TOKENS, .chunk_bytes = 64},
        {.kind = SPW_GROUP_SLIDING,
         .block_tokens = SPW_MILLION_CHUNK_TOKENS,
         .window_tokens = SPW_MILLION_WINDOW_SMALL * SPW_MILLION_CHUNK_TOKENS,
         .chunk_bytes = 64},
        {.kind = SPW_GROUP_SLIDING,
         .block_tokens = SPW_MILLION_CHUNK_TOKENS,
         .window_tokens = SPW_MILLION_WINDOW_LARGE * SPW_MILLION_CHUNK_TOKENS,
         .chunk_bytes = 64},
    };
    struct spw_space_config config = {
        .blocks_per_chunk = 1, .hash_unit_tokens = SPW_MILLION_CHUNK_TOKENS, .group = group};
    for (uint32_t s = 0; s < 2; s++) {
        config.groups = s == 0 ? 1 : 3;
        config.fingerprint = s == 0 ? "bench, one group" : "bench, three groups";
        int rc =
            spw_bench_pool_space(million->pool, million->client, s, &config, &million->space[s]);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static int attach(struct spw_million *million)
{
    spw_bench_pool_serve(million->pool);
    int rc = spw_bench_pool_attach(million->pool, &million->client);
    spw_bench_pool_serve_end(million->pool);
    return rc < 0 ? rc : open_spaces(million);
}

static int open_all(struct spw_million *million, const struct spw_bench_run *run)
{
    million->random = 88172645463325252u;
    million->chunks = spw_bench_size(run, 1u << 20, 1u << 13);
    struct spw_bench_pool_config config = {
        .name = "million",
        .capacity_chunks = (uint32_t)million->chunks + SPARE_CHUNKS,
        .reserve_chunks = 64,
        .slot_bytes = 64,
        .kv_blocks = 64,
    };
    int rc = spw_bare_table_open(&million->bare, config.capacity_chunks);
    if (rc == 0)
        rc = spw_bench_pool_open(&config, &million->pool);
    if (rc == 0)
        rc = attach(million);
    spw_detach(million->client); /* the spaces stay open: only their chunks are adopted */
    million->client = NULL;
    if (rc == 0)
        rc = spw_bench_pool_fill(million->pool, fill, million);
    return rc < 0 ? rc : attach(million);
}

int spw_million_get(const struct spw_bench_run *run, struct spw_million **out_million)
{
    if (!the_one.client) {
        int rc = open_all(&the_one, run);
        if (rc < 0) {
            spw_million_close();
            return rc;
        }
    }
    *out_million = &the_one;
    return 0;
}

void spw_million_close(void)
{
    spw_detach(the_one.client);
    spw_bench_pool_close(the_one.pool);
    spw_bare_table_close(&the_one.bare);
    the_one = (struct spw_million){0};
}

/* ---- requests -------------------------------------------------------------------------------- */

int spw_million_request(struct spw_million *million, uint32_t space, uint64_t tokens,
                        struct spw_request **out_request)
{
    const struct spw_request_config config = {.size_bytes = sizeof config, .prompt_tokens = tokens};
    return spw_request_open(million->space[space], &config, out_request);
}

int spw_million_extend(struct spw_million *million, struct spw_request *request, uint32_t space,
                       uint32_t group, uint64_t count, bool absent)
{
    uint64_t chunks = spw_million_chunks(million, space, group);
    for (uint64_t i = 0; i < count; i++) {
        uint8_t key[SPW_MILLION_KEY_BYTES];
        uint64_t number = spw_bench_random(&million->random);
        spw_million_key(space, group, absent ? number | 1ull << 63 : number % chunks, key);
        int rc = spw_request_extend(request, group, key, sizeof key, 1);
        if (rc < 0)
            return rc;
    }
    return 0;
}
