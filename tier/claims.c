/* Copying bits. Written: this worker's own in feed.k; read: those of all workers. */
#include "tier/claims.h"

#include <assert.h>
#include <stdlib.h>

#include "shm/crash_point.h"

int spw_claims_init(struct spw_claims *claims, const struct spw_pool *pool, uint32_t k)
{
    const struct spw_geometry *geometry = &pool->geometry;
    *claims = (struct spw_claims){
        .pool = pool,
        .own = spw_pool_feed_at(pool, k, pool->feed_map.copying_off),
        .claim_words = spw_claim_words(geometry),
        .workers = geometry->workers,
        .slots = geometry->slots,
    };
    claims->count = calloc((size_t)geometry->workers * geometry->slots, sizeof *claims->count);
    return claims->count ? 0 : -ENOMEM;
}

void spw_claims_fini(struct spw_claims *claims)
{
    if (!claims)
        return;
    free(claims->count);
    free(claims->kept);
    claims->count = NULL;
    claims->kept = NULL;
}

static uint16_t *count_of(struct spw_claims *claims, uint32_t shard, uint32_t slot)
{
    return &claims->count[(uint64_t)shard * claims->slots + slot];
}

static void clear_bit(struct spw_claims *claims, uint32_t shard, uint32_t slot)
{
    uint64_t bit = spw_claim_bit(claims->claim_words, shard, slot);
    spw_atomic64 *word = &claims->own[bit / 64];
    /* [CM-2] release: the copy has read all it wants before its slot may be written again */
    spw_store_release(word, spw_load_relaxed(word) & ~(1ull << bit % 64));
}

/* Is the owner's entry what the load asked for? The bit stands already. */
static int check_entry(const struct spw_claims *claims, uint32_t shard, uint32_t slot,
                       uint64_t fill)
{
    struct spw_table_view view;
    struct spw_entry_copy entry;
    spw_table_view_init(&view, claims->pool->feed[shard], &claims->pool->feed_map,
                        &claims->pool->geometry);
    int rc = spw_table_read(&view, slot, false, &entry);
    if (rc < 0)
        return rc == -EAGAIN ? -EAGAIN : -ESTALE;
    bool there = entry.state == SPW_READY || entry.state == SPW_RETIRED;
    return there && fill != 0 && entry.fill == fill ? 0 : -ESTALE;
}

int spw_claims_take(struct spw_claims *claims, uint32_t shard, uint32_t slot, uint64_t fill)
{
    if (shard >= claims->workers || slot >= claims->slots || !claims->pool->feed[shard])
        return -EINVAL;
    uint16_t *count = count_of(claims, shard, slot);
    if (*count == UINT16_MAX)
        return -EAGAIN;
    if (*count == 0)
        spw_bit_set(claims->own, spw_claim_bit(claims->claim_words, shard, slot));
    SPW_CRASH_POINT("claims.bit_set");
    spw_fence_full(); /* [CM-1] full fence: the bit before the entry is read */
    int rc = check_entry(claims, shard, slot, fill);
    if (rc == 0)
        ++*count;
    else if (*count == 0)
        clear_bit(claims, shard, slot);
    return rc;
}

void spw_claims_drop(struct spw_claims *claims, uint32_t shard, uint32_t slot)
{
    assert(shard < claims->workers && slot < claims->slots);
    uint16_t *count = count_of(claims, shard, slot);
    assert(*count > 0);
    if (--*count == 0)
        clear_bit(claims, shard, slot);
}

bool spw_claims_cover(const struct spw_claims *claims, uint32_t shard, uint32_t slot)
{
    uint64_t bit = spw_claim_bit(claims->claim_words, shard, slot);
    for (uint32_t w = 0; w < claims->workers; w++) {
        if (!claims->pool->feed[w])
            continue;
        const spw_atomic64 *words =
            spw_pool_feed_at(claims->pool, w, claims->pool->feed_map.copying_off);
        /* [CM-2] acquire: what that worker still read before it cleared the bit is read */
        if (spw_load_acquire(&words[bit / 64]) >> (bit % 64) & 1)
            return true;
    }
    return false;
}

static uint64_t own_words(const struct spw_claims *claims)
{
    return (uint64_t)claims->workers * claims->claim_words;
}

/* Slots of the pool whose kept bit stands, one after the other from *at on; false at the end. */
static bool next_kept(const struct spw_claims *claims, uint64_t *at, uint32_t *out_shard,
                      uint32_t *out_slot)
{
    for (uint64_t bits = own_words(claims) * 64; *at < bits; ++*at) {
        if (claims->kept[*at / 64] == 0) {
            *at |= 63;
            continue;
        }
        if (!(claims->kept[*at / 64] >> *at % 64 & 1))
            continue;
        *out_shard = (uint32_t)(*at / 64 / claims->claim_words);
        *out_slot = (uint32_t)(*at - *out_shard * claims->claim_words * 64);
        ++*at;
        return true;
    }
    return false;
}

int spw_claims_keep_found(struct spw_claims *claims)
{
    uint64_t at = 0, words = own_words(claims);
    uint32_t shard, slot;
    claims->kept = malloc(words * sizeof *claims->kept);
    if (!claims->kept)
        return -ENOMEM;
    for (uint64_t i = 0; i < words; i++)
        claims->kept[i] = spw_load_relaxed(&claims->own[i]); /* only worker k's writes them */
    while (next_kept(claims, &at, &shard, &slot)) {
        if (slot < claims->slots)
            ++*count_of(claims, shard, slot);
        else
            claims->kept[(at - 1) / 64] &= ~(1ull << (at - 1) % 64); /* damage: no such slot */
    }
    return 0;
}

void spw_claims_end_kept(struct spw_claims *claims)
{
    uint64_t at = 0;
    uint32_t shard, slot;
    if (!claims->kept)
        return;
    while (next_kept(claims, &at, &shard, &slot))
        spw_claims_drop(claims, shard, slot);
    free(claims->kept);
    claims->kept = NULL;
}

void spw_claims_clear_own(struct spw_claims *claims)
{
    uint64_t words = own_words(claims);
    for (uint64_t i = 0; i < words; i++)
        if (spw_load_relaxed(&claims->own[i]) != 0)
            spw_store_relaxed(&claims->own[i], 0); /* relaxed: its copies ended with its process */
}
