/* See account.h. */
#include "tests/support/account.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#include "shm/alive.h"
#include "tier/counters.h"
#include "tier/state.h"
#include "tier/table.h"

struct account {
    const struct spw_pool *pool;
    char *words;
    size_t bytes;
    bool idle;
    bool counters;
};

static __attribute__((format(printf, 2, 3))) bool say(struct account *account, const char *format,
                                                      ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(account->words, account->bytes, format, args);
    va_end(args);
    return false;
}

/* ---- shards ---------------------------------------------------------------------------------- */

static bool ready_is_found(struct account *account, const struct spw_table_view *table, uint32_t k,
                           const struct spw_entry_copy *entry)
{
    const struct spw_chunk_key key = {.digest = {entry->digest[0], entry->digest[1]},
                                      .space = entry->space,
                                      .group = entry->group,
                                      .key_bytes = entry->key_bytes,
                                      .key = entry->key};
    struct spw_entry_copy found;
    int rc = spw_table_find(table, &key, &found);
    if (rc == 0 && found.slot == entry->slot)
        return true;
    /* it may have been retired meanwhile, and its key stored again */
    struct spw_entry_copy now;
    if (rc == -EAGAIN || spw_table_read(table, entry->slot, false, &now) != 0 ||
        now.version != entry->version)
        return !account->idle ||
               say(account, "shard %u, slot %u: changes in an idle pool", k, entry->slot);
    return say(account, "shard %u, slot %u: READY, but its key is %s", k, entry->slot,
               rc == 0 ? "READY in another slot too" : "not found");
}

static bool check_entry(struct account *account, const struct spw_table_view *table, uint32_t k,
                        uint32_t slot)
{
    struct spw_entry_copy entry;
    int rc = spw_table_read(table, slot, true, &entry);
    if (rc == -EAGAIN)
        return !account->idle || say(account, "shard %u, slot %u: its entry stays torn", k, slot);
    if (rc)
        return say(account, "shard %u, slot %u: its entry makes no sense (%d)", k, slot, rc);
    if (entry.state == SPW_READY && !ready_is_found(account, table, k, &entry))
        return false;
    bool kept =
        entry.state == SPW_RETIRED && spw_load_relaxed(&account->pool->feed[k]->lingering) != 0;
    if (account->idle && !kept && entry.state != SPW_FREE && entry.state != SPW_READY)
        return say(account, "shard %u, slot %u: %s with nobody to end it", k, slot,
                   spw_state_name(entry.state));
    return true;
}

/* What the tier below has: only in a quiet pool does it have to agree with the slots. */
static bool check_below(struct account *account, const struct spw_table_view *table, uint32_t k,
                        uint32_t number)
{
    struct spw_entry_copy entry, found;
    uint32_t id = number - table->slots;
    int rc = spw_table_read(table, number, true, &entry);
    if (rc == -EBADMSG)
        return say(account, "shard %u, below %u: its entry makes no sense", k, id);
    if (!account->idle || (rc == 0 && entry.state == SPW_FREE))
        return true;
    if (rc)
        return say(account, "shard %u, below %u: its entry stays torn", k, id);
    const struct spw_chunk_key key = {.digest = {entry.digest[0], entry.digest[1]},
                                      .space = entry.space,
                                      .group = entry.group,
                                      .key_bytes = entry.key_bytes,
                                      .key = entry.key};
    if (spw_table_find_below(table, &key, &found) != 0 || found.slot != number)
        return say(account, "shard %u, below %u: not found by its key", k, id);
    bool live = spw_table_find(table, &key, &found) == 0 && found.state == SPW_READY;
    if (live != (entry.state == SPW_BACKED))
        return say(account, "shard %u, below %u: %s, and %s slot has its key", k, id,
                   spw_state_name(entry.state), live ? "a" : "no");
    return true;
}

static bool check_copying(struct account *account, uint32_t k)
{
    const struct spw_pool *pool = account->pool;
    const spw_atomic64 *bits = spw_pool_feed_at(pool, k, pool->feed_map.copying_off);
    uint64_t words = spw_claim_words(&pool->geometry);
    for (uint64_t bit = 0; account->idle && bit < words * 64 * pool->geometry.workers; bit++)
        if (spw_bit_test(bits, bit))
            return say(account, "worker %u: copying bit of shard %" PRIu64 ", slot %" PRIu64, k,
                       bit / (words * 64), bit % (words * 64));
    return true;
}

static bool check_counters(struct account *account, uint32_t k)
{
    static const uint32_t ended[] = {
        SPW_WORKER_chunks_stored,      SPW_WORKER_chunks_present, SPW_WORKER_refused_no_slot,
        SPW_WORKER_refused_queue_full, SPW_WORKER_refused_stale,  SPW_WORKER_refused_bad,
        SPW_WORKER_stores_cancelled,   SPW_WORKER_stores_expired, SPW_WORKER_stores_failed,
    };
    const spw_atomic64 *counter = account->pool->feed[k]->counter;
    uint64_t offered = spw_load_relaxed(&counter[SPW_WORKER_chunks_offered]), sum = 0;
    for (size_t i = 0; i < sizeof ended / sizeof ended[0]; i++)
        sum += spw_load_relaxed(&counter[ended[i]]);
    if (account->idle && account->counters && offered != sum)
        return say(account, "worker %u: %" PRIu64 " chunks offered, %" PRIu64 " ended", k, offered,
                   sum);
    return true;
}

static bool check_shard(struct account *account, uint32_t k)
{
    const struct spw_pool *pool = account->pool;
    const struct spw_stream *stream = &pool->feed[k]->stream;
    struct spw_table_view table;
    spw_table_view_init(&table, pool->feed[k], &pool->feed_map, &pool->geometry);
    for (uint32_t slot = 0; slot < pool->geometry.slots; slot++)
        if (!check_entry(account, &table, k, slot))
            return false;
    for (uint32_t at = table.slots; at < table.entries; at++)
        if (!check_below(account, &table, k, at))
            return false;
    if (account->idle &&
        spw_load_relaxed(&stream->bytes_done) != spw_load_relaxed(&stream->bytes_queued))
        return say(account, "worker %u: its store stream is not done", k);
    return check_copying(account, k) && check_counters(account, k);
}

/* ---- clients --------------------------------------------------------------------------------- */

static bool check_lanes(struct account *account, uint32_t c)
{
    const struct spw_client_head *head = account->pool->client[c].head;
    for (uint32_t k = 0; k < account->pool->geometry.workers; k++) {
        if (spw_load_relaxed(&head->applied[k]) != 0)
            return say(account, "client %u: inside a step", c);
        if (spw_load_relaxed(&head->lane[k].command_tail) !=
            spw_load_relaxed(&head->worker_lane[k].command_head))
            return say(account, "client %u: commands for worker %u are untaken", c, k);
    }
    return true;
}

/* A dead one's bits count no more: had they, slots would be RETIRED. */
static bool check_client(struct account *account, uint32_t c)
{
    const struct spw_pool *pool = account->pool;
    const struct spw_client_view *view = &pool->client[c];
    if (!view->head || spw_lock_held(pool->lock_fd, SPW_LOCK_CLIENT(c)) != 1)
        return true;
    for (uint64_t w = 0; w < view->claim_words * view->workers; w++) {
        if (spw_load_relaxed(&view->pin[w]) != 0)
            return say(account, "client %u: pins in word %" PRIu64, c, w);
        if (spw_load_relaxed(&view->awaited[w]) != 0)
            return say(account, "client %u: awaits in word %" PRIu64, c, w);
    }
    return check_lanes(account, c);
}

bool account_fine(const struct spw_pool *pool, uint32_t flags, char *out_words, size_t bytes)
{
    struct account account = {.pool = pool,
                              .words = out_words,
                              .bytes = bytes,
                              .idle = flags & ACCOUNT_IDLE,
                              .counters = flags & ACCOUNT_COUNTERS};
    out_words[0] = 0;
    for (uint32_t k = 0; k < pool->geometry.workers; k++)
        if (!check_shard(&account, k))
            return false;
    for (uint32_t c = 0; account.idle && c < pool->geometry.clients; c++)
        if (!check_client(&account, c))
            return false;
    return true;
}

bool account_settles(const struct spw_pool *pool, uint32_t flags, uint32_t limit_ms,
                     char *out_words, size_t bytes)
{
    uint64_t until = spw_monotonic_ns() + limit_ms * 1000000ull;
    bool fine;
    while (!(fine = account_fine(pool, flags, out_words, bytes)) && spw_monotonic_ns() < until)
        usleep(2000);
    return fine;
}
