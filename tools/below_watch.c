/* See below_watch.h. Written: the log. */
#include "tools/below_watch.h"

#include <inttypes.h>

#include "tier/counters.h"
#include "tools/log.h"
#include "tools/tiers.h"

static uint64_t counted(const struct spw_feed_head *feed, enum spw_worker_counter counter)
{
    return spw_load_relaxed(&feed->counter[counter]); /* a count, nothing more */
}

void spw_below_watch_start(struct spw_below_watch *watch, const struct spw_feed_head *feed,
                           uint64_t now_ns)
{
    uint64_t corrupt =
        watch->start_ns ? watch->corrupt_said : counted(feed, SPW_WORKER_cold_corrupt);
    *watch = (struct spw_below_watch){.start_ns = now_ns,
                                      .found_before = counted(feed, SPW_WORKER_cold_found),
                                      .corrupt_said = corrupt,
                                      .corrupt_ns = watch->corrupt_ns};
}

/* ---- its state ------------------------------------------------------------------------------- */

static void say_up(struct spw_below_watch *watch, uint32_t k, uint64_t found, uint64_t now_ns)
{
    if (!watch->found_said)
        spw_log(SPW_LOG_NOTICE, "worker %u: %" PRIu64 " %s found below, %.2f s after its start", k,
                found, found == 1 ? "chunk" : "chunks", (double)(now_ns - watch->start_ns) / 1e9);
    else if (watch->said == SPW_TIER_FULL)
        spw_log(SPW_LOG_NOTICE, "worker %u: the tier below has room again", k);
    else
        spw_log(SPW_LOG_NOTICE, "worker %u: the tier below is up again, %" PRIu64 " %s found", k,
                found, found == 1 ? "chunk" : "chunks");
    watch->found_said = true;
}

static void say(struct spw_below_watch *watch, uint32_t k, const struct spw_feed_head *feed,
                uint64_t now_ns)
{
    char text[SPW_TIERS_TEXT_BYTES];
    bool begins =
        watch->seen == SPW_TIER_UP && !watch->found_said; /* trouble is told right after */
    uint64_t found = counted(feed, SPW_WORKER_cold_found) - watch->found_before;
    spw_tiers_text(feed, text);
    switch (watch->seen) {
    case SPW_TIER_UP:
        say_up(watch, k, found, now_ns);
        break;
    case SPW_TIER_SCANNING:
        spw_log(SPW_LOG_NOTICE,
                "worker %u: the tier below takes no chunks yet, %" PRIu64 " found so far: %s", k,
                found, text[0] ? text : "its directory is being read");
        break;
    case SPW_TIER_FULL:
        spw_log(SPW_LOG_WARNING, "worker %u: the tier below takes no more chunks: %s", k, text);
        break;
    default:
        spw_log(SPW_LOG_WARNING, "worker %u: the tier below is down, all there is a miss: %s", k,
                text);
    }
    watch->said = watch->seen;
    watch->said_ns = begins ? 0 : now_ns;
}

static void look_at_state(struct spw_below_watch *watch, uint32_t k,
                          const struct spw_feed_head *feed, uint64_t now_ns)
{
    /* relaxed: only shown; words of a moment before or after do */
    uint32_t state = (uint32_t)spw_load_relaxed(&feed->tier[SPW_TIER_NVME].state);
    if (state > SPW_TIER_DOWN)
        return;
    if (state != watch->seen) {
        watch->seen = state;
        watch->seen_ns = now_ns;
        if (state == SPW_TIER_DOWN) /* what comes back is found anew */
            watch->found_before = counted(feed, SPW_WORKER_cold_found);
    }
    bool passes = state == SPW_TIER_SCANNING && now_ns - watch->seen_ns < SPW_BELOW_SAY_NS;
    bool soon = watch->said_ns && now_ns - watch->said_ns < SPW_BELOW_SAY_NS;
    if (state != watch->said && !passes && !soon)
        say(watch, k, feed, now_ns);
}

/* ---- wrong bytes ----------------------------------------------------------------------------- */

static void look_at_corrupt(struct spw_below_watch *watch, uint32_t k,
                            const struct spw_feed_head *feed, uint64_t now_ns)
{
    uint64_t corrupt = counted(feed, SPW_WORKER_cold_corrupt);
    uint64_t more = corrupt - watch->corrupt_said;
    if (more == 0 || (watch->corrupt_ns && now_ns - watch->corrupt_ns < SPW_BELOW_CORRUPT_NS))
        return;
    spw_log(SPW_LOG_WARNING,
            "worker %u: %" PRIu64 " %s below had other bytes than were written, and %s dropped "
            "(%" PRIu64 " in all)",
            k, more, more == 1 ? "chunk" : "chunks", more == 1 ? "was" : "were", corrupt);
    watch->corrupt_said = corrupt;
    watch->corrupt_ns = now_ns;
}

bool spw_below_watch_look(struct spw_below_watch *watch, uint32_t k,
                          const struct spw_feed_head *feed, uint64_t now_ns)
{
    look_at_state(watch, k, feed, now_ns);
    look_at_corrupt(watch, k, feed, now_ns);
    return watch->seen == SPW_TIER_SCANNING;
}
