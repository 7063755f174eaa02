/* Locks on bytes of the pool's lock object. Shared: the kernel's lock table. Process-local: the
 * list of descriptors that a forked child must close. */
#include "shm/alive.h"

#include "shm/object.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define OPEN_MAX_FDS 256

static pthread_mutex_t registry_mutex = PTHREAD_MUTEX_INITIALIZER;
static int registry[OPEN_MAX_FDS];
static uint32_t registry_count;
static uint32_t forks;

static void before_fork(void)
{
    pthread_mutex_lock(&registry_mutex);
}

static void after_fork_parent(void)
{
    pthread_mutex_unlock(&registry_mutex);
}

/* The locks belong to the open file, not to the process: while a child holds the descriptor, its
 * dead parent would look alive. */
static void after_fork_child(void)
{
    for (uint32_t i = 0; i < registry_count; i++)
        close(registry[i]);
    registry_count = 0;
    forks++;
    pthread_mutex_unlock(&registry_mutex);
}

__attribute__((constructor)) static void watch_forks(void)
{
    pthread_atfork(before_fork, after_fork_parent, after_fork_child);
}

uint32_t spw_forked(void)
{
    return forks;
}

static int registry_add(int fd)
{
    int rc = -EMFILE;
    pthread_mutex_lock(&registry_mutex);
    if (registry_count < OPEN_MAX_FDS) {
        registry[registry_count++] = fd;
        rc = 0;
    }
    pthread_mutex_unlock(&registry_mutex);
    return rc;
}

/* False: not ours (any more), as in a forked child. */
static bool registry_drop(int fd)
{
    bool found = false;
    pthread_mutex_lock(&registry_mutex);
    for (uint32_t i = 0; i < registry_count && !found; i++) {
        if (registry[i] == fd) {
            registry[i] = registry[--registry_count];
            found = true;
        }
    }
    pthread_mutex_unlock(&registry_mutex);
    return found;
}

int spw_lock_open(const struct spw_pool_path *path, bool create, uint32_t mode, int64_t gid,
                  struct spw_error *err)
{
    char name[SPW_PATH_BYTES];
    struct spw_error why;
    spw_lock_name(path, name);
    int fd = create ? spw_object_create(path, name, mode, gid, &why) : -EEXIST;
    if (fd == -EEXIST)
        fd = spw_object_open(path, name, true, &why);
    if (fd == -EACCES && !create)
        fd = spw_object_open(path, name, false, &why); /* enough to ask who lives */
    if (fd == -ENOENT)
        return spw_fail(err, create ? -EAGAIN : -ENOENT, "no pool \"%s\" of uid %" PRIu32 " in %s",
                        path->name, path->uid, path->shm_dir);
    if (fd < 0)
        return spw_fail(err, fd, "%s", why.text);
    int rc = registry_add(fd);
    if (rc) {
        close(fd);
        return spw_fail(err, rc, "%s: %d lock objects are open here already", name, OPEN_MAX_FDS);
    }
    return fd;
}

static struct flock one_byte(uint32_t byte, short type)
{
    return (struct flock){.l_type = type, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1};
}

int spw_lock_take(int fd, uint32_t byte)
{
    struct flock lock = one_byte(byte, F_WRLCK);
    if (fcntl(fd, F_OFD_SETLK, &lock) == 0)
        return 0;
    return errno == EAGAIN || errno == EACCES ? -EBUSY : -errno;
}

void spw_lock_drop(int fd, uint32_t byte)
{
    struct flock lock = one_byte(byte, F_UNLCK);
    fcntl(fd, F_OFD_SETLK, &lock);
}

int spw_lock_held(int fd, uint32_t byte)
{
    struct flock lock = one_byte(byte, F_WRLCK);
    if (fcntl(fd, F_OFD_GETLK, &lock))
        return -errno;
    return lock.l_type != F_UNLCK;
}

int spw_lock_adopt(int fd)
{
    return registry_add(fd);
}

/* "lock:  1: OFDLCK  ADVISORY  WRITE -1 00:1b:4711 64 64": type, kind, mode, pid, file, first, last byte. */
static bool shows_lock(int fd, uint32_t byte)
{
    char path[48], line[256];
    unsigned long first, last;
    bool found = false;
    snprintf(path, sizeof path, "/proc/self/fdinfo/%d", fd);
    FILE *file = fopen(path, "re");
    while (file && !found && fgets(line, sizeof line, file))
        found = sscanf(line, "lock: %*s OFDLCK %*s WRITE %*s %*s %lu %lu", &first, &last) == 2 &&
                byte >= first && byte <= last;
    if (file)
        fclose(file);
    return found;
}

bool spw_lock_is_own(int fd, uint32_t byte)
{
    struct stat wanted, st;
    bool found = false;
    DIR *folder = fstat(fd, &wanted) == 0 ? opendir("/proc/self/fd") : NULL;
    for (struct dirent *entry; folder && !found && (entry = readdir(folder));) {
        /* by name: the descriptors are others' to close meanwhile */
        found = entry->d_name[0] != '.' && fstatat(dirfd(folder), entry->d_name, &st, 0) == 0 &&
                st.st_ino == wanted.st_ino && st.st_dev == wanted.st_dev &&
                shows_lock(atoi(entry->d_name), byte);
    }
    if (folder)
        closedir(folder);
    return found;
}

bool spw_lock_current(int fd, const struct spw_pool_path *path)
{
    char name[SPW_PATH_BYTES];
    spw_lock_name(path, name);
    return spw_object_current(fd, name);
}

void spw_lock_close(int fd)
{
    if (fd >= 0 && registry_drop(fd))
        close(fd);
}
