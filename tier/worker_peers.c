/*
 * Other workers' news: which of our chunks are worth less than their age says.
 *
 *   lost part   another rank's part of a chunk was retired and no worker of that rank has it any
 *               more: no engine can use our part until it is stored again
 *   twin        a worker of our own rank has the same part READY: of the two the one of the worker
 *               with the higher number goes first
 *
 *   orphan      what needs a chunk that is lost here is worth less, unless a worker of our own rank
 *               has that chunk
 *
 * All are hints: heard at the next pass, lost when a ring laps us, undone by a touch. Other feeds
 * are only read. A death here leaves nothing.
 */
#include "tier/worker_impl.h"

#define RECORDS_A_PASS 64u

void spw_worker_open_peers(struct spw_worker *worker)
{
    const struct spw_pool *pool = worker->pool;
    for (uint32_t j = 0; j < pool->geometry.workers; j++) {
        struct spw_bcast_reader *peer = &worker->peer[j];
        spw_bcast_reader_init(peer, pool->feed[j],
                              spw_pool_feed_at(pool, j, pool->feed_map.ring_off),
                              pool->geometry.update_records);
        peer->cursor = spw_bcast_tail(peer);
    }
}

/* Workers that keep parts of @rank; relaxed: masks only grow, and this is a hint. */
static uint64_t keepers(const struct spw_worker *worker, uint32_t space, uint32_t rank)
{
    return spw_load_relaxed(&worker->pool->ctl->space[space].rank_workers[rank]);
}

/* The rank that worker @j keeps of @space, or SPW_RANKS_MAX. */
static uint32_t rank_of(const struct spw_worker *worker, uint32_t space, uint32_t j)
{
    uint32_t rank = 0;
    while (rank < SPW_RANKS_MAX && !(keepers(worker, space, rank) >> j & 1))
        rank++;
    return rank;
}

static bool has_ready(const struct spw_worker *worker, uint32_t j,
                      const struct spw_entry_copy *chunk)
{
    const struct spw_chunk_key key = {.digest = {chunk->digest[0], chunk->digest[1]},
                                      .space = chunk->space,
                                      .group = chunk->group,
                                      .key_bytes = chunk->key_bytes,
                                      .key = chunk->key};
    struct spw_entry_copy found;
    return spw_table_find(&worker->source[j], &key, &found) == 0 && found.state == SPW_READY;
}

/* No worker of @rank has its part of our @chunk. */
static bool is_lost(const struct spw_worker *worker, const struct spw_entry_copy *chunk,
                    uint32_t rank)
{
    for (uint32_t j = 0; j < worker->pool->geometry.workers; j++)
        if (keepers(worker, chunk->space, rank) >> j & 1 && has_ready(worker, j, chunk))
            return false;
    return true;
}

bool spw_worker_has_elsewhere(void *ctx, const struct spw_entry_copy *chunk)
{
    const struct spw_worker *worker = ctx;
    if (chunk->space >= SPW_SPACES_MAX || chunk->rank >= SPW_RANKS_MAX)
        return false;
    for (uint32_t j = 0; j < worker->pool->geometry.workers; j++)
        if (j != worker->config.k && keepers(worker, chunk->space, chunk->rank) >> j & 1 &&
            has_ready(worker, j, chunk))
            return true;
    return false;
}

static bool worth_less(const struct spw_worker *worker, uint32_t j, uint32_t state,
                       const struct spw_entry_copy *chunk)
{
    uint32_t ours = rank_of(worker, chunk->space, worker->config.k);
    uint32_t theirs = rank_of(worker, chunk->space, j);
    if (ours == SPW_RANKS_MAX || theirs == SPW_RANKS_MAX)
        return false;
    if (state == SPW_READY)
        return ours == theirs && worker->config.k > j;
    return state == SPW_RETIRED && ours != theirs && is_lost(worker, chunk, theirs);
}

static uint32_t hear(struct spw_worker *worker, uint32_t j, const struct spw_record *record)
{
    struct spw_entry_copy chunk;
    uint32_t state = SPW_UPDATE_STATE(record->word[2]);
    if ((state != SPW_READY && state != SPW_RETIRED) ||
        spw_shard_find(worker->shard, record->word, &chunk) < 0 || chunk.space >= SPW_SPACES_MAX ||
        !worth_less(worker, j, state, &chunk))
        return 0;
    spw_shard_demote(worker->shard, chunk.slot);
    return 1;
}

uint32_t spw_worker_hear_peers(struct spw_worker *worker)
{
    struct spw_record record[RECORDS_A_PASS];
    uint32_t demoted = 0;
    for (uint32_t j = 0; j < worker->pool->geometry.workers; j++) {
        struct spw_bcast_reader *peer = &worker->peer[j];
        if (j == worker->config.k)
            continue;
        int count = spw_bcast_drain(peer, record, RECORDS_A_PASS);
        if (count < 0)
            peer->cursor = spw_bcast_tail(peer); /* what was lapped is hints lost */
        for (int i = 0; i < count; i++)
            demoted += hear(worker, j, &record[i]);
    }
    return demoted;
}
