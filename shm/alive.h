#ifndef SPW_SHM_ALIVE_H
#define SPW_SHM_ALIVE_H
/*
 * Who is alive: OFD write locks on bytes of the pool's lock object, by a descriptor of its own
 * that is never mapped. The kernel drops a lock when its holder is gone, however it went; pids
 * decide nothing.
 *
 *   roles     anyone may ask; each role takes its own byte
 *   fork      a child closes the parent's lock descriptors at once (atfork handler), so it does
 *             not keep the parent alive; spw_forked() tells a child's calls apart
 *   crash     nothing is left
 */
#include "shm/region.h"

/**
 * Open the lock object; O_CLOEXEC, registered for closing in forked children.
 * @create   the daemon creates it with @mode and @gid (umask does not matter) if it is not there;
 *           others never do
 * Returns a descriptor, or -ENOENT (no such pool), -EACCES (owner and path are named), -EAGAIN (it
 * went while @create opened it: start over), -EMFILE; words in @err. Without write access the
 * descriptor is good for asking only.
 */
int spw_lock_open(const struct spw_pool_path *path, bool create, uint32_t mode, int64_t gid,
                  struct spw_error *err);

/**
 * Take a byte. 0, or -EBUSY: somebody holds it. For the daemon's byte the caller then checks with
 * spw_lock_current() that the name still means this file, and starts over if not.
 */
int spw_lock_take(int fd, uint32_t byte);
void spw_lock_drop(int fd, uint32_t byte);

/** 1 somebody else holds the byte, 0 nobody, or a negative errno. Takes nothing. */
int spw_lock_held(int fd, uint32_t byte);

/** Have another descriptor that locks are taken through closed in forked children; from then on it is closed by
 * spw_lock_close(). 0 or -EMFILE. */
int spw_lock_adopt(int fd);

/** Is the byte of the file behind @fd held by this very process, through any of its descriptors? Asks /proc. */
bool spw_lock_is_own(int fd, uint32_t byte);

/** True if @path still names the file behind @fd. */
bool spw_lock_current(int fd, const struct spw_pool_path *path);

/** Close and unregister; drops every byte taken through @fd. -1 is fine. */
void spw_lock_close(int fd);

/**
 * Number of forks that lie between this process and the start of the program that loaded the
 * library: raised in every forked child. A handle remembers it when it is made; a call that finds
 * another value answers -EOWNERDEAD. No system call.
 */
uint32_t spw_forked(void);

#endif
