#ifndef SPW_TOOLS_INSIDE_WATCH_H
#define SPW_TOOLS_INSIDE_WATCH_H
/*
 * Workers that are threads of engines (tools/inside.h). The lock of such a worker may be free while its
 * engine still dies: its copies have ended for sure when it has said so, or when its process is gone.
 *
 *   roles     the worker that holds lock k writes whose thread it is; the daemon and successors read
 *   crash     what a worker wrote stays there; with its process gone it means nothing any more
 *
 * What the daemon sees of one, which it neither starts nor ends:
 *
 *   away ---- lock held, a new incarnation that goes round its loop -----> up
 *     ^                                                                    |
 *     |                                              it has left copies -> remains
 *     |                                                                    |
 *     `--- lock free and no copy can run, or a successor has begun <-------'
 *
 * A successor looks itself that no copy of its predecessor can run, before it touches the shard.
 */
#include "shm/pool.h"

/** May copies still run that an earlier worker, inside a process, began? Call with the lock held, or
 * having seen it free. A process that runs another program by now has none. */
bool spw_inside_lingers(const struct spw_feed_head *feed);
/** Worker's own, its lock held and nobody lingering: it is a thread of this process that ends with its
 * engine, or a process of its own. */
void spw_inside_enter(struct spw_feed_head *feed, bool inside);
/** Worker's own, before it lets go of its lock: none of its copies can run any more. */
void spw_inside_leave(struct spw_feed_head *feed);
/** Worker's own, instead: some may, or I/O, until its process ends; it keeps its lock. */
void spw_inside_remain(struct spw_feed_head *feed);

enum spw_inside_news { SPW_INSIDE_SAME, SPW_INSIDE_CAME, SPW_INSIDE_REMAINS, SPW_INSIDE_WENT };

struct spw_inside_watch {
    bool up;
    bool remains;         /* up, but for serving */
    uint64_t incarnation; /* of the worker that is up, or was last */
    uint64_t passes;      /* when the last one went                */
    uint64_t pid;         /* of the worker that is up              */
};

void spw_inside_watch_start(struct spw_inside_watch *watch, const struct spw_feed_head *feed);
/** Look at worker @k of @pool. */
enum spw_inside_news spw_inside_watch_look(struct spw_inside_watch *watch,
                                           const struct spw_pool *pool, uint32_t k);

#endif
