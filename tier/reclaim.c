/*
 * Reads what clients hold. Written: feed.k.fenced alone.
 */
#include "tier/reclaim.h"

#include <assert.h>

#include "shm/crash_point.h"

void spw_reclaim_init(struct spw_reclaim *reclaim, const struct spw_reclaim_config *config)
{
    *reclaim = (struct spw_reclaim){.config = *config, .feed = config->pool->feed[config->k]};
}

/* A client as this pass sees it. */
struct look {
    const struct spw_client_view *view;
    struct spw_client_claim claim;
    uint32_t c;
    bool gone;      /* dead, or fenced in the step it is in             */
    bool overstays; /* what is in its way has been kept for too long */
};

/* Outside a step, or with a view that contains the record at @version. */
static bool beyond(const struct look *look, uint64_t version)
{
    return look->claim.applied == 0 || spw_pos_before(version, look->claim.applied);
}

/* A later holder of the object than the one that is dead may not begin a step before this worker,
 * in this thread, has acknowledged it: its words don't matter yet. */
static void look_at(const struct spw_reclaim *reclaim, struct look *look)
{
    const struct spw_reclaim_config *config = &reclaim->config;
    spw_client_claim_read(look->view, config->k, &look->claim);
    look->gone =
        config->client_dead && config->client_dead(config->ctx, look->c, look->claim.generation);
}

/* Has the client been in one step, or left commands of it untaken after its end, for longer than
 * the limit? */
static bool overdue(struct spw_reclaim *reclaim, const struct look *look, uint64_t now_ns)
{
    struct spw_stuck *stuck = &reclaim->stuck[look->c];
    const struct spw_client_claim *claim = &look->claim;
    bool inside = claim->applied != 0;
    if (!stuck->seen || stuck->step != claim->step || stuck->generation != claim->generation ||
        stuck->inside != inside) {
        *stuck = (struct spw_stuck){claim->generation, claim->step, now_ns, true, inside};
        return false;
    }
    return now_ns - stuck->since_ns >= reclaim->config.fence_limit_ns;
}

/* The client is in the way, inside a step or with commands of one: gone if that step is fenced, now
 * or before. Commands are sent in their step, so those of the last one have waited since its end. */
static bool fenced_away(struct spw_reclaim *reclaim, const struct look *look, uint64_t now_ns)
{
    spw_atomic64 *fenced = &reclaim->feed->fenced[look->c];
    uint64_t step = look->claim.step;
    bool stands = step != 0 && spw_load_relaxed(fenced) == step; /* only this worker writes it */
    if (!stands) {
        if (!overdue(reclaim, look, now_ns) && !look->overstays)
            return false;
        spw_store_relaxed(fenced, step);
        SPW_CRASH_POINT("reclaim.fence_stored");
        reclaim->fences++;
    }
    /* [RC-1] [ST-1]: a client that goes on to another step reads every tail behind its own fence,
     * so it sees the records and empties its view of the slots; one still in this step finds it
     * void */
    spw_fence_full();
    return spw_load_relaxed(&look->view->head->step) == step;
}

static bool pinned(const struct spw_reclaim *reclaim, const struct look *look, uint32_t slot)
{
    return spw_bit_test(look->view->pin,
                        spw_claim_bit(look->view->claim_words, reclaim->config.k, slot));
}

/* Candidates this client's pins cover; their number. */
static uint32_t read_pins(const struct spw_reclaim *reclaim, const struct look *look,
                          const struct spw_candidate *candidates, uint32_t count,
                          bool pins[SPW_RECLAIM_BATCH])
{
    uint32_t found = 0;
    for (uint32_t i = 0; i < count; i++) {
        pins[i] = !candidates[i].held && pinned(reclaim, look, candidates[i].slot);
        found += pins[i];
    }
    return found;
}

/* ---- slots that are kept for too long -------------------------------------------------------- */

/* Every two limits: what is RETIRED now, and what was two limits ago. */
static void mark(struct spw_reclaim *reclaim, uint64_t now_ns)
{
    if (reclaim->marks != 0 &&
        now_ns - reclaim->mark_ns < SPW_RECLAIM_KEPT_LIMITS * reclaim->config.fence_limit_ns)
        return;
    reclaim->kept_version = reclaim->mark_version;
    /* relaxed: only this worker writes it */
    reclaim->mark_version = spw_load_relaxed(&reclaim->feed->tail);
    reclaim->mark_ns = now_ns;
    reclaim->marks++;
}

/* The record at @version is two limits old, at least. */
static bool is_kept(const struct spw_reclaim *reclaim, uint64_t version)
{
    return reclaim->marks > 1 && !spw_pos_before(reclaim->kept_version, version);
}

static void hold_for_pins(struct spw_reclaim *reclaim, struct look *look, uint64_t now_ns,
                          struct spw_candidate *candidates, uint32_t count)
{
    bool pins[SPW_RECLAIM_BATCH];
    if (read_pins(reclaim, look, candidates, count, pins) == 0)
        return;
    if (look->claim.applied == 0 && !spw_client_has_untaken(look->view))
        return;
    for (uint32_t i = 0; i < count; i++)
        look->overstays |= pins[i] && is_kept(reclaim, candidates[i].version);
    if (fenced_away(reclaim, look, now_ns))
        return;
    for (uint32_t i = 0; i < count; i++)
        candidates[i].held |= pins[i];
}

/* Hold what this client's word doesn't release. */
static void hold_for_word(struct look *look, struct spw_reclaim *reclaim, uint64_t now_ns,
                          struct spw_candidate *candidates, uint32_t count)
{
    if (beyond(look, candidates[count - 1].version))
        return;
    for (uint32_t i = 0; i < count; i++)
        look->overstays |=
            !beyond(look, candidates[i].version) && is_kept(reclaim, candidates[i].version);
    if (fenced_away(reclaim, look, now_ns)) {
        look->gone = true;
        return;
    }
    for (uint32_t i = 0; i < count; i++)
        candidates[i].held |= !beyond(look, candidates[i].version);
}

uint32_t spw_reclaim_decide(struct spw_reclaim *reclaim, uint64_t now_ns,
                            struct spw_candidate *candidates, uint32_t count)
{
    const struct spw_pool *pool = reclaim->config.pool;
    assert(count <= SPW_RECLAIM_BATCH);
    mark(reclaim, now_ns);
    if (count == 0)
        return 0;
    for (uint32_t i = 0; i < count; i++)
        candidates[i].held = false;
    spw_fence_full(); /* [ST-1] RETIRED records before any client's word */
    for (uint32_t c = 0; c < pool->geometry.clients; c++) {
        struct look look = {.view = &pool->client[c], .c = c};
        if (!look.view->head)
            continue;
        look_at(reclaim, &look);
        if (!look.gone)
            hold_for_word(&look, reclaim, now_ns, candidates, count);
        if (!look.gone)
            hold_for_pins(reclaim, &look, now_ns, candidates, count);
    }
    uint32_t freed = 0;
    for (uint32_t i = 0; i < count; i++)
        freed += !candidates[i].held;
    return freed;
}
