#ifndef SPW_TOOLS_FSCK_H
#define SPW_TOOLS_FSCK_H
/*
 * An audit of a pool's objects, living or dead: read-only, takes no lock, believes nothing it reads.
 *
 *   damage   what no process of the pool can have left, wherever it was stopped
 *   note     what a death leaves and the next start puts right, or what somebody should know
 *
 * A living pool changes while it is looked at. What seems wrong there is looked at again once the
 * worker has gone round its loop: every change is whole by then. Only what is wrong the same way
 * in the same version is damage. A shard whose worker stands still, or comes and goes, is not
 * judged, and a note says so.
 */
#include "shm/pool.h"
#include "tier/state.h"

#define SPW_FSCK_FINDINGS_MAX 256u /* kept with their words; the rest is counted */

enum spw_fsck_severity { SPW_FSCK_NOTE, SPW_FSCK_DAMAGE };

struct spw_fsck_finding {
    enum spw_fsck_severity severity;
    char where[40]; /* "feed.3 slot 17" */
    char text[200];
};

struct spw_fsck_report {
    bool daemon_alive;
    uint32_t workers, clients, spaces; /* as ctl says, 0 when it makes no sense          */
    uint32_t attached;                 /* clients whose lock byte is held                */
    uint32_t judged;                   /* shards whose entries were judged               */
    uint64_t entries[SPW_STATE_COUNT]; /* of these shards; FREE is said of slots alone   */
    uint64_t moving;                   /* entries that changed whenever they were looked at */
    uint64_t damages, notes;
    uint32_t findings;
    struct spw_fsck_finding finding[SPW_FSCK_FINDINGS_MAX];
};

/** Audit the pool at @path. 0 and *out_report; -ENOENT no such pool; -EACCES and the like; words in
 * @err. Bounded: a few seconds, and what it takes to read the feeds once. */
int spw_fsck_run(const struct spw_pool_path *path, struct spw_fsck_report *out_report,
                 struct spw_error *err);

/** One shard's feed, mapped. Every byte of it, and of the spaces, is input. */
struct spw_fsck_feed {
    const struct spw_feed_head *feed;
    const struct spw_geometry *geometry; /* has passed its check; the feed has that size */
    const struct spw_ctl *ctl;
    uint32_t k;
    int lock_fd; /* to ask who lives; -1: nobody does */
};
void spw_fsck_feed(const struct spw_fsck_feed *what, struct spw_fsck_report *report);

/** Add a finding. */
__attribute__((format(printf, 4, 5))) void spw_fsck_say(struct spw_fsck_report *report,
                                                        enum spw_fsck_severity severity,
                                                        const char *where, const char *format, ...);

#endif
