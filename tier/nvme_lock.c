/*
 * Whose directory it is: OFD write locks on bytes of DIR/lock, byte 0 the daemon's, 1 + k worker k's.
 * The kernel's lock table alone says so; what is in the file says nothing.
 *
 *   moved     a lock is of a file, not of its name: where the name means another file by now, that
 *             one is locked before anything of the directory is used, and the old one is let go
 *   crash     nothing is left but the file
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shm/alive.h"
#include "shm/layout.h"
#include "tier/nvme.h"
#include "tier/nvme_files.h"

#define LOCK_NAME "lock"

/* @path is the directory @dir, for words. */
static int take(int dir, const char *path, uint32_t who, struct spw_error *err)
{
    int fd = openat(dir, LOCK_NAME, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return spw_fail(err, -errno, "%.150s/lock can't be opened: %s", path, strerror(errno));
    int rc = spw_lock_take(fd, who == SPW_NVME_DAEMON ? SPW_LOCK_DAEMON : SPW_LOCK_WORKER(who));
    if (rc == 0)
        rc = spw_lock_adopt(fd); /* a forked child holds no lock */
    if (rc == 0)
        return fd;
    close(fd);
    if (rc != -EBUSY)
        return spw_fail(err, rc, "%.150s/lock can't be locked: %s", path, strerror(-rc));
    return spw_fail(err, rc,
                    "%.150s is in use by another daemon's %s; stop that one, or give each pool a "
                    "directory of its own",
                    path, who == SPW_NVME_DAEMON ? "pool" : "worker");
}

int spw_nvme_lock(const char *dir, uint32_t who, struct spw_error *err)
{
    int at = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (at < 0)
        return spw_fail(err, -errno, "%.150s can't be opened: %s", dir, strerror(errno));
    int fd = take(at, dir, who, err);
    close(at);
    return fd;
}

bool spw_nvme_held(const char *dir, bool workers_only)
{
    char path[SPW_NVME_PATH_BYTES + 8];
    snprintf(path, sizeof path, "%.511s/lock", dir);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return false;
    bool held = !workers_only && spw_lock_held(fd, SPW_LOCK_DAEMON) == 1;
    for (uint32_t k = 0; k < SPW_WORKERS_MAX && !held; k++)
        held = spw_lock_held(fd, SPW_LOCK_WORKER(k)) == 1;
    close(fd);
    return held;
}

static bool is_there(int dir, int fd)
{
    struct stat ours, there;
    return fstat(fd, &ours) == 0 && fstatat(dir, LOCK_NAME, &there, AT_SYMLINK_NOFOLLOW) == 0 &&
           ours.st_ino == there.st_ino && ours.st_dev == there.st_dev;
}

int spw_nvme_lock_keep(int dir, const char *path, uint32_t shard, int *fd, char text[200])
{
    struct spw_error err;
    if (*fd >= 0 && is_there(dir, *fd))
        return 0;
    int taken = take(dir, path, shard, &err);
    if (taken >= 0 && !is_there(dir, taken)) {
        spw_lock_close(taken);
        taken = spw_fail(&err, -EAGAIN, "%.150s/lock became another file meanwhile", path);
    }
    if (taken < 0) {
        snprintf(text, 200, "%.199s", err.text);
        return taken;
    }
    if (*fd >= 0)
        spw_lock_close(*fd);
    *fd = taken;
    return 0;
}
