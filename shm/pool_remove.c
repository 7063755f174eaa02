/* See pool_remove.h. Shared: the names in the directory, and the phase of what is removed.
 *
 *   step                   if the remover dies after it
 *   daemon's byte taken    nothing has changed
 *   ctl closed             whoever was just attaching is told that the pool is over
 *   an object unlinked     ctl went first: nobody attaches to the others; a start removes them
 *   lock object unlinked   nothing is left
 */
#include "shm/pool_remove.h"

#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shm/alive.h"
#include "shm/crash_point.h"
#include "shm/object.h"

#define TRIES 100

static const struct {
    enum spw_region_kind kind;
    uint32_t count;
} kinds[] = {{SPW_REGION_CTL, 1},
             {SPW_REGION_FEED, SPW_WORKERS_MAX},
             {SPW_REGION_DATA, SPW_WORKERS_MAX},
             {SPW_REGION_CLIENT, SPW_CLIENTS_MAX},
             {SPW_REGION_KV, SPW_CLIENTS_MAX}};
#define KINDS (sizeof kinds / sizeof kinds[0])

/* Under each name, and beside it: what a start was making to take its place. */
static const char *const endings[] = {"", ".new"};
#define ENDINGS    (sizeof endings / sizeof endings[0])
#define NAME_BYTES (SPW_PATH_BYTES + 8)

static void name_of(const struct spw_pool_path *path, enum spw_region_kind kind, uint32_t index,
                    size_t ending, char out[NAME_BYTES])
{
    spw_region_name(path, kind, index, out);
    strcat(out, endings[ending]);
}

/* ---- who holds it ---------------------------------------------------------------------------- */

/* Pids are for display; 0 where ctl or the client's object doesn't tell. */
static uint64_t pid_of(const struct spw_pool_path *path, uint32_t byte)
{
    bool is_client = byte >= SPW_LOCK_CLIENT(0);
    struct spw_region region = {0};
    uint64_t pid = 0;
    if (spw_region_attach(path, is_client ? SPW_REGION_CLIENT : SPW_REGION_CTL,
                          is_client ? byte - SPW_LOCK_CLIENT(0) : 0, false,
                          is_client ? sizeof(struct spw_client_head) : sizeof(struct spw_ctl),
                          &region, NULL))
        return 0;
    const struct spw_ctl *ctl = (const void *)region.header;
    const struct spw_client_head *client = (const void *)region.header;
    if (is_client)
        pid = spw_load_relaxed(&client->pid);
    else if (byte == SPW_LOCK_DAEMON)
        pid = spw_load_relaxed(&ctl->daemon_pid);
    else
        pid = spw_load_relaxed(&ctl->worker[byte - SPW_LOCK_WORKER(0)].pid);
    spw_region_detach(&region);
    return pid;
}

static int refuse(const struct spw_pool_path *path, uint32_t byte, struct spw_error *err)
{
    uint64_t pid = pid_of(path, byte);
    if (byte == SPW_LOCK_DAEMON)
        return spw_fail(err, -EBUSY,
                        "pool \"%s\" is held by a daemon, pid %" PRIu64
                        "; spillway stop ends a pool",
                        path->name, pid);
    if (byte < SPW_LOCK_CLIENT(0))
        return spw_fail(err, -EBUSY,
                        "pool \"%s\" is held by worker %u, pid %" PRIu64
                        ", which outlives its daemon for a while (--orphan)",
                        path->name, byte - SPW_LOCK_WORKER(0), pid);
    return spw_fail(err, -EBUSY, "pool \"%s\" is held by client %u, pid %" PRIu64, path->name,
                    byte - SPW_LOCK_CLIENT(0), pid);
}

/* Does a worker or client hold its byte? */
static int refuse_survivors(const struct spw_pool_path *path, int fd, struct spw_error *err)
{
    for (uint32_t byte = SPW_LOCK_DAEMON + 1; byte < SPW_LOCK_CLIENT(SPW_CLIENTS_MAX); byte++) {
        int held = spw_lock_held(fd, byte);
        if (held)
            return held < 0 ? spw_fail(err, held, "can't ask for the lock of pool \"%s\": %s",
                                       path->name, strerror(-held))
                            : refuse(path, byte, err);
    }
    return 0;
}

/* ---- objects --------------------------------------------------------------------------------- */

/* Is this what the pool's daemon made under that name, or was making? */
static bool is_object(int fd, enum spw_region_kind kind, uint32_t index)
{
    struct spw_region_header header = {0};
    ssize_t bytes = pread(fd, &header, sizeof header, 0);
    if (bytes < 0)
        return false;
    if (bytes < (ssize_t)sizeof header || spw_load_relaxed(&header.version) == 0)
        return header.magic == 0 || header.magic == SPW_REGION_MAGIC;
    return header.magic == SPW_REGION_MAGIC && header.kind == kind && header.index == index;
}

static int remove_object(const struct spw_pool_path *path, enum spw_region_kind kind,
                         uint32_t index, size_t ending, struct spw_pool_removed *removed,
                         struct spw_error *err)
{
    char name[NAME_BYTES];
    struct spw_error why;
    struct stat st;
    name_of(path, kind, index, ending, name);
    int fd = spw_object_open(path, name, false, &why);
    if (fd == -ENOENT)
        return 0;
    if (fd < 0)
        return spw_fail(err, fd, "%s", why.text);
    int rc = 0;
    if (!is_object(fd, kind, index)) {
        if (removed->strange++ == 0)
            spw_fail(err, -EBADMSG, "%s is no object of a pool, and is left alone", name);
    } else if (!(rc = spw_object_unlink(fd, name, err))) {
        removed->objects++;
        removed->bytes += fstat(fd, &st) ? 0 : (uint64_t)st.st_size;
        SPW_CRASH_POINT("remove.object_unlinked");
    }
    close(fd);
    return rc;
}

/* Whoever attached while the byte was ours learns from ctl that this pool is over. */
static void close_ctl(const struct spw_pool_path *path)
{
    struct spw_region region = {0};
    if (spw_region_attach(path, SPW_REGION_CTL, 0, true, sizeof(struct spw_ctl), &region, NULL))
        return;
    /* relaxed: it announces nothing but itself */
    spw_store_relaxed(&((struct spw_ctl *)(void *)region.header)->phase, SPW_POOL_CLOSED);
    spw_region_detach(&region);
    SPW_CRASH_POINT("remove.ctl_closed");
}

static int remove_all(const struct spw_pool_path *path, int fd, struct spw_pool_removed *removed,
                      struct spw_error *err)
{
    char name[SPW_PATH_BYTES];
    SPW_CRASH_POINT("remove.name_taken");
    int rc = refuse_survivors(path, fd, err);
    if (rc)
        return rc;
    close_ctl(path);
    rc = refuse_survivors(path, fd, err); /* attached between the two */
    for (size_t i = 0; i < KINDS && !rc; i++)
        for (uint32_t index = 0; index < kinds[i].count && !rc; index++)
            for (size_t ending = 0; ending < ENDINGS && !rc; ending++)
                rc = remove_object(path, kinds[i].kind, index, ending, removed, err);
    if (rc)
        return rc;
    spw_lock_name(path, name);
    rc = spw_object_unlink(fd, name, err);
    removed->objects += rc == 0;
    SPW_CRASH_POINT("remove.lock_unlinked");
    return rc ? rc : removed->strange ? -EBADMSG : 0;
}

/* Names under which something lies, and its bytes. A lock object alone counts, and objects without. */
static uint32_t names_there(const struct spw_pool_path *path, uint64_t *out_bytes)
{
    char name[NAME_BYTES];
    struct stat st;
    uint32_t count;
    spw_lock_name(path, name);
    count = lstat(name, &st) == 0;
    *out_bytes = 0;
    for (size_t i = 0; i < KINDS; i++) {
        for (uint32_t index = 0; index < kinds[i].count; index++) {
            for (size_t ending = 0; ending < ENDINGS; ending++) {
                name_of(path, kinds[i].kind, index, ending, name);
                if (lstat(name, &st))
                    continue;
                count++;
                *out_bytes += (uint64_t)st.st_blocks * 512;
            }
        }
    }
    return count;
}

uint64_t spw_pool_left_bytes(const struct spw_pool_path *path)
{
    uint64_t bytes;
    names_there(path, &bytes);
    return bytes;
}

static int take_and_remove(const struct spw_pool_path *path, struct spw_pool_removed *removed,
                           struct spw_error *err)
{
    /* created if it went with the objects still there: no daemon may start over them meanwhile */
    int fd = spw_lock_open(path, true, 0600, -1, err);
    if (fd < 0)
        return fd;
    int rc = spw_lock_take(fd, SPW_LOCK_DAEMON);
    if (rc == -EBUSY)
        rc = refuse(path, SPW_LOCK_DAEMON, err);
    else if (rc)
        spw_fail(err, rc, "can't lock pool \"%s\": %s", path->name, strerror(-rc));
    else if (!spw_lock_current(fd, path))
        rc = -EAGAIN;
    else
        rc = remove_all(path, fd, removed, err);
    spw_lock_close(fd);
    return rc;
}

int spw_pool_remove(const struct spw_pool_path *path, struct spw_pool_removed *out_removed,
                    struct spw_error *err)
{
    uint64_t bytes;
    *out_removed = (struct spw_pool_removed){0};
    for (int i = 0; i < TRIES; i++) {
        if (names_there(path, &bytes) == 0)
            return spw_fail(err, -ENOENT, "no pool \"%s\" of uid %" PRIu32 " in %s", path->name,
                            path->uid, path->shm_dir);
        int rc = take_and_remove(path, out_removed, err);
        if (rc != -EAGAIN)
            return rc;
    }
    return spw_fail(err, -EBUSY, "pool \"%s\": others keep starting and stopping it", path->name);
}
