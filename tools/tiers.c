/* See tiers.h. */
#include "tools/tiers.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "shm/alive.h"
#include "shm/text.h"

static const char *const tier_names[SPW_TIERS] = {"host", "nvme"};

static const char *state_name(uint32_t state)
{
    static const char *const names[] = {"none", "up", "scanning", "full", "down"};
    return state < sizeof names / sizeof names[0] ? names[state] : "?";
}

void spw_tiers_text(const struct spw_feed_head *feed, char out[SPW_TIERS_TEXT_BYTES])
{
    spw_text_load(feed->tier_text, SPW_TIER_TEXT_WORDS, out);
    for (char *letter = out; *letter; letter++)
        if (*letter < ' ' || *letter > '~')
            *letter = '?';
}

void spw_tiers_read(const struct spw_pool *pool, struct spw_tiers_view *out)
{
    memset(out, 0, sizeof *out);
    out->workers = pool->geometry.workers;
    for (uint32_t k = 0; k < out->workers; k++) {
        const struct spw_feed_head *feed = pool->feed[k];
        out->gone[k] = spw_lock_held(pool->lock_fd, SPW_LOCK_WORKER(k)) == 0;
        for (uint32_t t = 0; t < SPW_TIERS; t++) {
            const struct spw_tier_record *record = &feed->tier[t];
            out->line[k][t] = (struct spw_tiers_line){
                .capacity_bytes = spw_load_relaxed(&record->capacity_bytes),
                .used_bytes = spw_load_relaxed(&record->used_bytes),
                .entries = spw_load_relaxed(&record->entries),
                .leased = spw_load_relaxed(&record->leased),
                .evictable = spw_load_relaxed(&record->evictable),
                .state = (uint32_t)spw_load_relaxed(&record->state),
                .mode = (uint32_t)spw_load_relaxed(&record->mode),
            };
        }
        spw_tiers_text(feed, out->text[k]);
    }
}

static const char *state_of(const struct spw_tiers_view *view, uint32_t k, uint32_t t)
{
    return view->gone[k] ? "gone" : state_name(view->line[k][t].state);
}

/* Nothing is measured of memory, nor of a tier that isn't in service. */
static bool has_mode(const struct spw_tiers_view *view, uint32_t k, uint32_t t)
{
    return t == SPW_TIER_NVME && !view->gone[k] && view->line[k][t].state != SPW_TIER_DOWN;
}

/* How it reads and writes files. */
static const char *mode_words(bool measured, uint32_t mode, char out[48])
{
    if (!measured)
        snprintf(out, 48, "-");
    else
        snprintf(out, 48, "%s, %s, %s", mode & SPW_TIER_DIRECT ? "direct" : "buffered",
                 mode & SPW_TIER_URING ? "uring" : "threads",
                 mode & SPW_TIER_REGISTERED ? "registered" : "not registered");
    return out;
}

void spw_tiers_print(const struct spw_tiers_view *view)
{
    printf("%6s %-5s %-9s %12s %12s %10s %8s %10s  %s\n", "worker", "tier", "state", "capacity",
           "used", "entries", "leased", "evictable", "files");
    for (uint32_t k = 0; k < view->workers; k++) {
        for (uint32_t t = 0; t < SPW_TIERS; t++) {
            const struct spw_tiers_line *line = &view->line[k][t];
            char mode[48], leased[24] = "-";
            if (line->state == SPW_TIER_NONE)
                continue;
            if (!view->gone[k]) /* what a process that is gone did is over */
                snprintf(leased, sizeof leased, "%" PRIu64, line->leased);
            printf("%6u %-5s %-9s %10.1fMB %10.1fMB %10" PRIu64 " %8s %10" PRIu64 "  %s\n", k,
                   tier_names[t], state_of(view, k, t), (double)line->capacity_bytes / 1e6,
                   (double)line->used_bytes / 1e6, line->entries, leased, line->evictable,
                   mode_words(has_mode(view, k, t), line->mode, mode));
        }
        if (view->text[k][0])
            printf("%6s %s\n", "", view->text[k]);
    }
}

static json_t *line_json(const struct spw_tiers_view *view, uint32_t k, uint32_t t)
{
    const struct spw_tiers_line *line = &view->line[k][t];
    json_t *json = json_pack(
        "{s:i, s:s, s:s, s:I, s:I, s:I, s:I, s:I}", "worker", (int)k, "tier", tier_names[t],
        "state", state_of(view, k, t), "capacity_bytes", (json_int_t)line->capacity_bytes,
        "used_bytes", (json_int_t)line->used_bytes, "entries", (json_int_t)line->entries, "leased",
        view->gone[k] ? 0 : (json_int_t)line->leased, "evictable", (json_int_t)line->evictable);
    if (json && t == SPW_TIER_NVME)
        json_object_set_new(json, "text", json_string(view->text[k]));
    if (json && has_mode(view, k, t))
        json_object_update_new(
            json, json_pack("{s:s, s:s, s:b}", "io_mode",
                            line->mode & SPW_TIER_DIRECT ? "direct" : "buffered", "io_engine",
                            line->mode & SPW_TIER_URING ? "uring" : "threads", "registered",
                            (line->mode & SPW_TIER_REGISTERED) != 0));
    return json;
}

json_t *spw_tiers_json(const struct spw_tiers_view *view)
{
    json_t *tiers = json_array();
    for (uint32_t k = 0; k < view->workers; k++)
        for (uint32_t t = 0; t < SPW_TIERS; t++)
            if (view->line[k][t].state != SPW_TIER_NONE)
                json_array_append_new(tiers, line_json(view, k, t));
    return tiers;
}
