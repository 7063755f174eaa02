/* Files of the shared-memory directory: opened, created and removed without following what
 * somebody else may have put there. Only the object that was inspected is unlinked. */
#include "shm/object.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define OPEN_FLAGS (O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK)

/* Why @name could not be opened or created. */
static int refusal(const struct spw_pool_path *path, const char *name, int error,
                   struct spw_error *err)
{
    struct stat st;
    if (error != ENOENT && lstat(name, &st) == 0) {
        if (error == ELOOP && S_ISLNK(st.st_mode))
            return spw_fail(err, -EACCES, "%s is a symbolic link of uid %u; remove it", name,
                            st.st_uid);
        if (error == EACCES || error == EPERM)
            return spw_fail(err, -EACCES, "%s: no access: it belongs to uid %u, mode %04o", name,
                            st.st_uid, st.st_mode & 07777);
    }
    if (error == ENOENT)
        return spw_fail(err, -ENOENT, "%s: no such object in %s", name, path->shm_dir);
    if (error == ENOSPC)
        return spw_fail(err, -ENOSPC, "%s: %s has no room for another file; remove some", name,
                        path->shm_dir);
    return spw_fail(err, -error, "%s: %s", name, strerror(error));
}

/* Is the opened file one that a pool of this user would have made? */
static int check_owner(int fd, const struct spw_pool_path *path, const char *name,
                       struct spw_error *err)
{
    struct stat st;
    if (fstat(fd, &st))
        return spw_fail(err, -errno, "%s: %s", name, strerror(errno));
    if (!S_ISREG(st.st_mode))
        return spw_fail(err, -EACCES, "%s is no regular file; remove it", name);
    if (st.st_uid != path->uid && st.st_uid != 0)
        return spw_fail(err, -EACCES,
                        "%s belongs to uid %u, not to uid %" PRIu32
                        "; have its owner remove it, or take another name",
                        name, st.st_uid, path->uid);
    return 0;
}

int spw_object_open(const struct spw_pool_path *path, const char *name, bool writable,
                    struct spw_error *err)
{
    int fd = open(name, OPEN_FLAGS | (writable ? O_RDWR : O_RDONLY));
    if (fd < 0)
        return refusal(path, name, errno, err);
    int rc = check_owner(fd, path, name, err);
    if (rc) {
        close(fd);
        return rc;
    }
    return fd;
}

int spw_object_create(const struct spw_pool_path *path, const char *name, uint32_t mode,
                      int64_t gid, struct spw_error *err)
{
    int fd = open(name, OPEN_FLAGS | O_RDWR | O_CREAT | O_EXCL, 0600);
    if (fd < 0)
        return refusal(path, name, errno, err);
    int rc = spw_object_set_rights(fd, name, mode, gid, err);
    if (rc) {
        spw_object_unlink(fd, name, NULL);
        close(fd);
        return rc;
    }
    return fd;
}

/* The group first: giving a file away clears bits of its mode. */
int spw_object_set_rights(int fd, const char *name, uint32_t mode, int64_t gid,
                          struct spw_error *err)
{
    if (gid >= 0 && fchown(fd, (uid_t)-1, (gid_t)gid))
        return spw_fail(err, -errno, "%s: can't give it to group %" PRId64 ": %s", name, gid,
                        strerror(errno));
    if (fchmod(fd, mode))
        return spw_fail(err, -errno, "%s: can't set mode %04" PRIo32 ": %s", name, mode,
                        strerror(errno));
    return 0;
}

bool spw_object_current(int fd, const char *name)
{
    struct stat ours, named;
    return fstat(fd, &ours) == 0 && lstat(name, &named) == 0 && ours.st_dev == named.st_dev &&
           ours.st_ino == named.st_ino;
}

bool spw_object_displaced(int fd, const char *name)
{
    struct stat ours, named;
    if (fstat(fd, &ours))
        return false;
    if (lstat(name, &named))
        return errno == ENOENT || errno == ENOTDIR;
    return ours.st_dev != named.st_dev || ours.st_ino != named.st_ino;
}

int spw_object_unlink(int fd, const char *name, struct spw_error *err)
{
    if (!spw_object_current(fd, name))
        return 0;
    if (unlink(name) && errno != ENOENT)
        return spw_fail(err, -errno, "%s: can't remove it: %s", name, strerror(errno));
    return 0;
}

int spw_object_rename(const char *from, const char *to, struct spw_error *err)
{
    if (rename(from, to))
        return spw_fail(err, -errno, "%s: can't replace it: %s", to, strerror(errno));
    return 0;
}

int spw_object_room(const struct spw_pool_path *path, uint64_t bytes, struct spw_error *err)
{
    struct statvfs fs;
    if (statvfs(path->shm_dir, &fs))
        return spw_fail(err, -errno, "%s: %s", path->shm_dir, strerror(errno));
    uint64_t available = (uint64_t)fs.f_bavail * fs.f_frsize;
    /* a tmpfs without a limit reports no blocks at all */
    if (fs.f_blocks == 0 || bytes <= available)
        return 0;
    return spw_fail(err, -ENOSPC,
                    "%s has no room: wanted %" PRIu64 " bytes (%.1f MiB), available %" PRIu64
                    " (%.1f MiB); make it larger (mount -o remount,size=...) or the pool smaller",
                    path->shm_dir, bytes, (double)bytes / 0x1p20, available,
                    (double)available / 0x1p20);
}
