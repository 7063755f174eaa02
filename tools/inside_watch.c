/* See inside_watch.h. */
#include "tools/inside_watch.h"

#include <unistd.h>

#include "shm/alive.h"
#include "shm/process.h"

/* Relaxed, here and below: whoever decides by these words holds the lock that their writer held, or has
 * seen it free. */
bool spw_inside_lingers(const struct spw_feed_head *feed)
{
    pid_t pid = (pid_t)spw_load_relaxed(&feed->inside_pid);
    if (pid == 0 || spw_process_start_ticks(pid) != spw_load_relaxed(&feed->inside_ticks))
        return false;
    uint64_t then = spw_load_relaxed(&feed->inside_image), now = spw_process_image(pid);
    return then == 0 || now == 0 || then == now;
}

void spw_inside_enter(struct spw_feed_head *feed, bool inside)
{
    spw_store_relaxed(&feed->inside_left, 0);
    spw_store_relaxed(&feed->inside_ticks, inside ? spw_process_start_ticks(getpid()) : 0);
    spw_store_relaxed(&feed->inside_image, inside ? spw_process_image(getpid()) : 0);
    /* release: the rest before the pid that it belongs to, if this process dies in between */
    spw_store_release(&feed->inside_pid, inside ? (uint64_t)getpid() : 0);
}

void spw_inside_leave(struct spw_feed_head *feed)
{
    spw_store_relaxed(&feed->inside_pid, 0);
}

void spw_inside_remain(struct spw_feed_head *feed)
{
    spw_store_relaxed(&feed->inside_left, 1);
}

void spw_inside_watch_start(struct spw_inside_watch *watch, const struct spw_feed_head *feed)
{
    *watch = (struct spw_inside_watch){
        .incarnation = spw_load_acquire(&feed->incarnation),
        .passes = spw_load_relaxed(&feed->passes),
    };
}

static bool has_gone(const struct spw_inside_watch *watch, const struct spw_feed_head *feed,
                     bool held)
{
    if (spw_load_acquire(&feed->incarnation) != watch->incarnation)
        return true; /* its successor has looked whether it lingers */
    return !held && !spw_inside_lingers(feed);
}

enum spw_inside_news spw_inside_watch_look(struct spw_inside_watch *watch,
                                           const struct spw_pool *pool, uint32_t k)
{
    const struct spw_feed_head *feed = pool->feed[k];
    bool held = spw_lock_held(pool->lock_fd, SPW_LOCK_WORKER(k)) == 1;
    uint64_t incarnation = spw_load_acquire(&feed->incarnation);
    if (watch->up && has_gone(watch, feed, held)) {
        watch->up = watch->remains = false;
        watch->passes = spw_load_relaxed(&feed->passes);
        return SPW_INSIDE_WENT;
    }
    if (watch->up && !watch->remains && spw_load_relaxed(&feed->inside_left)) {
        watch->remains = true;
        return SPW_INSIDE_REMAINS;
    }
    if (watch->up || !held || incarnation == watch->incarnation ||
        spw_load_relaxed(&feed->passes) == watch->passes)
        return SPW_INSIDE_SAME;
    watch->up = true;
    watch->incarnation = incarnation;
    watch->pid = spw_load_relaxed(&feed->inside_pid);
    return SPW_INSIDE_CAME;
}
