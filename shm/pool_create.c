/* All objects of a pool, made and removed by the daemon. Shared: the names in the directory, and
 * ctl's phase. What a daemon before left is seen to in pool_before.c and pool_adopt.c.
 *
 *   step of create             if the daemon dies after it
 *   lock taken                 an empty lock object, or what was there; the next start takes it
 *   left-overs removed         same, fewer of them
 *   objects made, version 0    attachers find no ctl; the next start removes all of them
 *   objects published          same, ctl being last
 *   ctl published              a whole pool without daemon: attachers see that the lock is free
 */
#include "shm/pool_impl.h"

#include "shm/alive.h"
#include "shm/crash_point.h"
#include "shm/object.h"
#include "shm/process.h"

#include <inttypes.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#define START_TRIES   100
#define LOCK_PAUSE_US 10000

/* ---- create ---------------------------------------------------------------------------------- */

/* Who holds the pool, for the words of a refusal. */
static int refuse_busy(const struct spw_pool_path *path, struct spw_error *err)
{
    struct spw_region region = {0};
    uint64_t pid = 0;
    if (spw_region_attach(path, SPW_REGION_CTL, 0, false, sizeof(struct spw_ctl), &region, NULL) ==
        0)
        pid = spw_load_relaxed(&((struct spw_ctl *)(void *)region.header)->daemon_pid);
    spw_region_detach(&region);
    if (pid)
        return spw_fail(err, -EBUSY,
                        "pool \"%s\" of uid %" PRIu32 " in %s is in use by a daemon, pid %" PRIu64,
                        path->name, path->uid, path->shm_dir, pid);
    return spw_fail(err, -EBUSY,
                    "pool \"%s\" of uid %" PRIu32 " in %s is in use by a daemon that is starting",
                    path->name, path->uid, path->shm_dir);
}

/* Does a client of a dead daemon still hold its byte, or a worker that can't be told? */
static bool has_survivors(int fd)
{
    for (uint32_t byte = SPW_LOCK_DAEMON + 1; byte < SPW_LOCK_CLIENT(SPW_CLIENTS_MAX); byte++) {
        if (spw_lock_held(fd, byte))
            return true;
    }
    return false;
}

static int take_daemon_byte(int fd, uint64_t patience_ns)
{
    uint64_t until_ns = spw_monotonic_ns() + patience_ns;
    int rc;
    while ((rc = spw_lock_take(fd, SPW_LOCK_DAEMON)) == -EBUSY && spw_monotonic_ns() < until_ns)
        usleep(LOCK_PAUSE_US);
    return rc;
}

/* The daemon's byte of the lock object @fd is taken: is it the one to keep? -EAGAIN: another. */
static int settle(const struct spw_pool_config *config, int fd, const char *name, bool anew,
                  struct spw_error *err)
{
    if (!spw_lock_current(fd, &config->path))
        return -EAGAIN;
    int rc = spw_pool_end_before(&config->path, fd, anew, err);
    if (!rc && has_survivors(fd)) {
        rc = spw_object_unlink(fd, name, err);
        return rc ? rc : -EAGAIN;
    }
    return rc ? rc : spw_object_set_rights(fd, name, config->mode, config->gid, err);
}

/* Take the pool's name: the descriptor of a lock object that the name means and whose daemon's
 * byte is ours. The pool of a dead daemon is over then, and its workers are gone; clients that hold
 * on to it keep the old lock object, without a name. */
static int take_name(const struct spw_pool_config *config, struct spw_error *err)
{
    const struct spw_pool_path *path = &config->path;
    char name[SPW_PATH_BYTES];
    spw_lock_name(path, name);
    for (int i = 0; i < START_TRIES; i++) {
        bool anew = access(name, F_OK) != 0;
        int fd = spw_lock_open(path, true, config->mode, config->gid, err);
        if (fd == -EAGAIN)
            continue;
        if (fd < 0)
            return fd;
        int rc = take_daemon_byte(fd, config->patience_ns);
        if (rc == -EBUSY)
            rc = refuse_busy(path, err);
        else if (rc)
            spw_fail(err, rc, "%s: can't lock it: %s", name, strerror(-rc));
        else
            rc = settle(config, fd, name, anew, err);
        if (!rc)
            return fd;
        spw_lock_close(fd);
        if (rc != -EAGAIN)
            return rc;
    }
    return spw_fail(err, -EBUSY,
                    "%s: can't be made, or others keep starting and stopping this pool", name);
}

int spw_pool_remove_objects(const struct spw_pool *pool, bool keep_shards, struct spw_error *err)
{
    const struct spw_pool_path *path = &pool->path;
    const uint32_t kept = keep_shards ? pool->geometry.workers : 0;
    const struct {
        enum spw_region_kind kind;
        uint32_t first, count;
    } kinds[] = {{SPW_REGION_CTL, keep_shards, 1},
                 {SPW_REGION_FEED, kept, SPW_WORKERS_MAX},
                 {SPW_REGION_DATA, kept, SPW_WORKERS_MAX},
                 {SPW_REGION_CLIENT, 0, SPW_CLIENTS_MAX},
                 {SPW_REGION_KV, 0, SPW_CLIENTS_MAX}};
    int rc = spw_region_unlink_beside(path, SPW_REGION_CTL, err);
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        for (uint32_t index = kinds[i].first; !rc && index < kinds[i].count; index++)
            rc = spw_region_unlink(path, kinds[i].kind, index, NULL, err);
        SPW_CRASH_POINT("pool.old_removed");
    }
    return rc;
}

int spw_pool_make_objects(const struct spw_pool_config *config,
                          const struct spw_pool_object *object, uint32_t count,
                          const uint64_t *pool_id, struct spw_error *err)
{
    uint64_t all_bytes = 0;
    for (uint32_t i = 0; i < count; i++)
        if (!object[i].region->header)
            all_bytes += spw_align_up(object[i].size_bytes, (uint64_t)sysconf(_SC_PAGESIZE));
    int rc = spw_object_room(&config->path, all_bytes, err);
    for (uint32_t i = 0; i < count && !rc; i++) {
        if (object[i].region->header)
            continue;
        struct spw_region_config region = {.path = &config->path,
                                           .kind = object[i].kind,
                                           .index = object[i].index,
                                           .size_bytes = object[i].size_bytes,
                                           .mode = config->mode,
                                           .gid = config->gid,
                                           .pool_id = {pool_id[0], pool_id[1]}};
        if (object[i].kind == SPW_REGION_DATA || object[i].kind == SPW_REGION_FEED)
            region.memory = &config->shard_memory[object[i].index];
        rc = spw_region_create(&region, object[i].region, err);
        SPW_CRASH_POINT("pool.object_created");
    }
    return rc;
}

void spw_pool_fill_ctl(struct spw_pool *pool)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    pool->ctl->geometry = pool->geometry;
    /* relaxed: published with ctl's version */
    spw_store_relaxed(&pool->ctl->phase, SPW_POOL_STARTING);
    spw_store_relaxed(&pool->ctl->daemon_pid, (uint64_t)getpid());
    spw_store_relaxed(&pool->ctl->started_ns,
                      (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec);
    spw_store_relaxed(&pool->ctl->pid_namespace, spw_process_namespace());
}

/* Shards that were gone on with: their pages are there, and stay; what they lose comes back as is
 * wanted now. */
static void place_shards(const struct spw_pool_config *config, struct spw_pool *pool)
{
    for (uint32_t k = 0; k < pool->geometry.workers; k++) {
        struct spw_region *both[] = {&pool->region_data[k], &pool->region_feed[k]};
        if (config->shard_memory[k].kind == SPW_MEMORY_ANY)
            continue;
        for (size_t i = 0; i < 2; i++)
            both[i]->memory_rc =
                spw_region_place(both[i]->header, both[i]->size_bytes, &config->shard_memory[k]);
    }
}

/* Nothing is gone on with. */
static int create_all(struct spw_pool *pool, const struct spw_pool_config *config,
                      struct spw_error *err)
{
    struct spw_pool_object object[SPW_POOL_OBJECTS_MAX];
    uint64_t pool_id[2];
    uint32_t count = spw_pool_objects(pool, object);
    if (getrandom(pool_id, sizeof pool_id, 0) != (ssize_t)sizeof pool_id)
        return spw_fail(err, -EIO, "no random bytes for the pool's id");
    int rc = spw_pool_remove_objects(pool, false, err);
    if (!rc)
        rc = spw_pool_make_objects(config, object, count, pool_id, err);
    if (rc) {
        spw_pool_unlink(pool, NULL);
        return rc;
    }
    spw_pool_set_pointers(pool);
    spw_pool_fill_ctl(pool);
    for (uint32_t i = 0; i < count; i++)
        spw_region_publish(object[i].region);
    return 0;
}

int spw_pool_create(const struct spw_pool_config *config, struct spw_pool *out_pool,
                    struct spw_error *err)
{
    struct spw_region old = {0};
    int rc = spw_geometry_check(&config->geometry, err);
    if (rc)
        return rc;
    int fd = take_name(config, err);
    if (fd < 0)
        return fd;
    SPW_CRASH_POINT("pool.name_taken");
    memset(out_pool, 0, sizeof *out_pool);
    out_pool->path = config->path;
    out_pool->lock_fd = fd;
    spw_pool_take_geometry(out_pool, &config->geometry);
    if (spw_pool_can_adopt(out_pool, config, &old))
        rc = spw_pool_adopt(out_pool, config, &old, err);
    else
        rc = create_all(out_pool, config, err);
    spw_region_detach(&old);
    if (rc) {
        spw_pool_detach(out_pool);
        return rc;
    }
    if (out_pool->warm)
        place_shards(config, out_pool);
    SPW_CRASH_POINT("pool.published");
    return 0;
}

/* By what an object's name is known to be ours; a shard's header may be that of a daemon that went on
 * with it since. A client may have cut or overwritten its object: whatever has the name then, as
 * long as the pool's lock is ours. */
static const uint64_t *id_of(const struct spw_pool *pool, const struct spw_pool_object *object)
{
    bool clients = object->kind == SPW_REGION_CLIENT || object->kind == SPW_REGION_KV;
    if (clients && spw_lock_current(pool->lock_fd, &pool->path))
        return NULL;
    /* no ctl: this start failed before it */
    return (pool->region_ctl.header ? &pool->region_ctl : object->region)->header->pool_id;
}

int spw_pool_unlink(struct spw_pool *pool, struct spw_error *err)
{
    struct spw_pool_object object[SPW_POOL_OBJECTS_MAX];
    char name[SPW_PATH_BYTES];
    int first_rc = 0;
    if (pool->region_ctl.header && pool->region_ctl.writable)
        /* relaxed: it announces nothing but itself */
        spw_store_relaxed(&((struct spw_ctl *)(void *)pool->region_ctl.header)->phase,
                          SPW_POOL_CLOSED);
    /* from the end: ctl first, so that nobody attaches to a part */
    for (uint32_t i = spw_pool_objects(pool, object); i-- > 0;) {
        if (!object[i].region->header)
            continue;
        int rc = spw_region_unlink(&pool->path, object[i].kind, object[i].index,
                                   id_of(pool, &object[i]), first_rc ? NULL : err);
        if (!first_rc)
            first_rc = rc;
        SPW_CRASH_POINT("pool.object_unlinked");
    }
    if (first_rc)
        return first_rc;
    spw_lock_name(&pool->path, name);
    return spw_object_unlink(pool->lock_fd, name, err);
}
