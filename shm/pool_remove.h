#ifndef SPW_SHM_POOL_REMOVE_H
#define SPW_SHM_POOL_REMOVE_H
/*
 * Remove the objects of a pool that nobody holds any more.
 *
 *   roles     a tool; it holds the daemon's lock byte while it works, so that no daemon starts in
 *             between and none is running
 *   decided   by locks: a pool whose daemon, a worker or a client holds its byte is left alone
 *   unlinked  only what was opened and looked at: a regular file of the pool's user (or root's)
 *             under one of the pool's names, with the header of that object, or not published yet
 *   crash     after any step: fewer objects; the lock object goes last, so the next start or
 *             removal finds what is left
 */
#include "shm/region.h"

struct spw_pool_removed {
    uint32_t objects; /* unlinked, the lock object too                 */
    uint32_t strange; /* left alone: not what the pool would have made */
    uint64_t bytes;   /* of those unlinked                             */
};

/**
 * Remove the pool at @path. 0; -ENOENT there is nothing of it; -EBUSY somebody holds it, named in
 * @err; -EBADMSG something under its names is none of its objects and was left, the first one is
 * named; -EACCES and the like as the kernel says. @out_removed is set in each case.
 */
int spw_pool_remove(const struct spw_pool_path *path, struct spw_pool_removed *out_removed,
                    struct spw_error *err);

/** Bytes of all that lies under the names of the pool at @path, whole or not, held or not. */
uint64_t spw_pool_left_bytes(const struct spw_pool_path *path);

#endif
