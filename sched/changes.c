/* See changes.h. */
#include "sched/changes.h"

#include <stdlib.h>
#include <string.h>

int spw_change_log_init(struct spw_change_log *log, uint32_t room)
{
    *log = (struct spw_change_log){.room = room};
    if (room == 0)
        return 0;
    log->event = calloc(room, sizeof(*log->event));
    return log->event ? 0 : -ENOMEM;
}

void spw_change_log_fini(struct spw_change_log *log)
{
    free(log->event);
    *log = (struct spw_change_log){0};
}

void spw_change_log_lose(struct spw_change_log *log)
{
    if (log->room != 0)
        log->lost = true;
}

/* What the entry still says of the chunk; nothing if it speaks of another one by now. */
static void add_entry(const struct spw_table_view *table, const struct spw_update *update,
                      struct spw_change *event)
{
    struct spw_entry_copy entry;
    if (spw_table_read(table, SPW_UPDATE_SLOT(update->packed), true, &entry) < 0 ||
        memcmp(entry.digest, update->digest, sizeof(entry.digest)) != 0)
        return;
    event->rank = entry.rank;
    event->key_bytes = entry.key_bytes;
    memcpy(event->key, entry.key, entry.key_bytes);
}

void spw_change_log_put(struct spw_change_log *log, const struct spw_table_view *table,
                        uint32_t worker, uint32_t kind, const struct spw_update *update)
{
    if (log->room == 0)
        return;
    if (log->put - log->got == log->room) {
        log->lost = true;
        return;
    }
    struct spw_change *event = &log->event[log->put++ % log->room];
    *event = (struct spw_change){
        .kind = kind,
        .worker = worker,
        .space = SPW_UPDATE_SPACE(update->packed),
        .group = SPW_UPDATE_GROUP(update->packed),
        .digest = {update->digest[0], update->digest[1]},
    };
    add_entry(table, update, event);
}

int spw_change_log_get(struct spw_change_log *log, struct spw_change *out, uint32_t max)
{
    uint32_t taken = 0;
    if (log->lost) {
        log->lost = false;
        log->got = log->put;
        return -EOVERFLOW;
    }
    for (; taken < max && log->got != log->put; taken++)
        out[taken] = log->event[log->got++ % log->room];
    return (int)taken;
}
