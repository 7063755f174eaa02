#ifndef SPW_SCHED_CHANGES_H
#define SPW_SCHED_CHANGES_H
/*
 * Change events: what became readable and what ceased to be, with the engine's own key, for
 * engines that tell others what they hold. Gathered while the update rings are drained, read by
 * spw_changes(). Private to one handle, one thread, fixed room.
 *
 * The key is read from the shard's table *before* applied[k] moves over the record. An entry
 * retired while this client was outside a step may be another chunk's by then; its event has the
 * digest alone.
 */
#include "sched/spillway.h"
#include "tier/table.h"

#include <stdbool.h>

struct spw_change_log {
    struct spw_change *event;
    uint32_t room; /* 0: none are wanted         */
    uint64_t put;  /* events put in, ever        */
    uint64_t got;  /* events taken out, ever     */
    bool lost;     /* since the last time it was told */
};

/** 0 or -ENOMEM. */
int spw_change_log_init(struct spw_change_log *log, uint32_t room);
void spw_change_log_fini(struct spw_change_log *log);

/** The chunk of @update became READY (@kind STORED), or was READY and is no more (REMOVED). */
void spw_change_log_put(struct spw_change_log *log, const struct spw_table_view *table,
                        uint32_t worker, uint32_t kind, const struct spw_update *update);
/** Events are missing from here on, up to the next spw_change_log_get(). */
void spw_change_log_lose(struct spw_change_log *log);
/** Oldest events first; -EOVERFLOW once after some were lost, those left are dropped too. */
int spw_change_log_get(struct spw_change_log *log, struct spw_change *out, uint32_t max);

#endif
