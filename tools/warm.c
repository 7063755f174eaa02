/* See warm.h. Reads every entry's state and space once: tens of milliseconds a million. */
#include "tools/warm.h"

#include <inttypes.h>
#include <string.h>

#include "tier/layout.h"
#include "tools/log.h"
#include "tools/spaces.h"

void spw_warm_count(const struct spw_pool *pool, struct spw_warm_count *out_count)
{
    struct spw_warm_count count = {0};
    for (uint32_t k = 0; k < pool->geometry.workers; k++) {
        const struct spw_entry *entry = spw_pool_feed_at(pool, k, pool->feed_map.entry_off);
        for (uint32_t slot = 0; slot < pool->geometry.slots; slot++) {
            uint64_t packed = spw_load_relaxed(&entry[slot].packed); /* a count, nothing more */
            if (SPW_PACKED_STATE(packed) != SPW_READY)
                continue;
            count.chunks++;
            if (SPW_PACKED_SPACE(packed) < SPW_SPACES_MAX)
                count.of_space[SPW_PACKED_SPACE(packed)]++;
        }
    }
    *out_count = count;
}

/* It has chunks here, or somebody gave it shares. The others' places are free for new ones. */
static bool is_worth_keeping(const struct spw_space_slot *old, uint64_t chunks)
{
    bool has_shares = spw_load_relaxed(&old->ready) == 1 && spw_load_relaxed(&old->shares) != 0;
    return chunks != 0 || has_shares;
}

void spw_warm_keep_spaces(void *ctx, struct spw_pool *pool, const struct spw_ctl *old)
{
    struct spw_warm_count *count = ctx;
    spw_warm_count(pool, count);
    for (uint32_t s = 0; s < SPW_SPACES_MAX; s++) {
        char text[128] = "";
        if (is_worth_keeping(&old->space[s], count->of_space[s]) &&
            spw_spaces_keep(pool->ctl, &pool->geometry, s, &old->space[s], text, sizeof text))
            spw_log(SPW_LOG_WARNING,
                    "space %u is damaged and its %" PRIu64 " chunks are dropped: %s", s,
                    count->of_space[s], text);
    }
}

void spw_warm_report(const struct spw_pool *pool, const struct spw_warm_count *before)
{
    struct spw_warm_count now;
    uint32_t spaces = 0;
    spw_warm_count(pool, &now);
    for (uint32_t s = 0; s < SPW_SPACES_MAX; s++)
        spaces += spw_load_relaxed(&pool->ctl->space[s].ready) != 0; /* only the daemon stores it */
    uint64_t dropped = before->chunks > now.chunks ? before->chunks - now.chunks : 0;
    spw_log(dropped ? SPW_LOG_WARNING : SPW_LOG_NOTICE,
            "adopted %" PRIu64 " %s of %u %s, %" PRIu64 " damaged %s dropped", now.chunks,
            now.chunks == 1 ? "chunk" : "chunks", spaces, spaces == 1 ? "space" : "spaces", dropped,
            dropped == 1 ? "entry" : "entries");
}
