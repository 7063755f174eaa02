/* All objects of a pool, made and removed by the daemon. Shared: the names in the directory, and
 * ctl's phase.
 *
 *   step of create             if the daemon dies after it
 *   lock taken                 an empty lock object; the next start takes it
 *   left-overs removed         same
 *   objects made, version 0    attachers find no ctl; the next start removes all of them
 *   objects published          same, ctl being last
 *   ctl published              a whole pool without daemon: attachers see that the lock is free
 */
#include "shm/pool_impl.h"

#include "shm/alive.h"
#include "shm/crash_point.h"
#include "shm/object.h"

#include <inttypes.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#define START_TRIES 100

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

/* Does a worker or client of a dead daemon still hold its byte? */
static bool has_survivors(int fd)
{
    for (uint32_t byte = SPW_LOCK_DAEMON + 1; byte < SPW_LOCK_CLIENT(SPW_CLIENTS_MAX); byte++) {
        if (spw_lock_held(fd, byte))
            return true;
    }
    return false;
}

/* Take the pool's name: the descriptor of a lock object that the name means and whose daemon's
 * byte is ours. Survivors of a dead daemon keep their old lock object, without a name. */
static int take_name(const struct spw_pool_config *config, struct spw_error *err)
{
    const struct spw_pool_path *path = &config->path;
    char name[SPW_PATH_BYTES];
    spw_lock_name(path, name);
    for (int i = 0; i < START_TRIES; i++) {
        int fd = spw_lock_open(path, true, config->mode, config->gid, err);
        if (fd == -EAGAIN)
            continue;
        if (fd < 0)
            return fd;
        int rc = spw_lock_take(fd, SPW_LOCK_DAEMON);
        if (rc == -EBUSY)
            rc = refuse_busy(path, err);
        else if (rc)
            spw_fail(err, rc, "%s: can't lock it: %s", name, strerror(-rc));
        else if (!spw_lock_current(fd, path))
            rc = -EAGAIN;
        else if (has_survivors(fd) && !(rc = spw_object_unlink(fd, name, err)))
            rc = -EAGAIN;
        else if (!rc)
            rc = spw_object_set_rights(fd, name, config->mode, config->gid, err);
        if (!rc)
            return fd;
        spw_lock_close(fd);
        if (rc != -EAGAIN)
            return rc;
    }
    return spw_fail(err, -EBUSY,
                    "%s: can't be made, or others keep starting and stopping this pool", name);
}

/* Whoever is attached to a dead daemon's pool learns from its ctl that this one is over. */
static void close_old(const struct spw_pool_path *path)
{
    struct spw_region region = {0};
    if (spw_region_attach(path, SPW_REGION_CTL, 0, true, sizeof(struct spw_ctl), &region, NULL))
        return;
    /* relaxed: it announces nothing but itself */
    spw_store_relaxed(&((struct spw_ctl *)(void *)region.header)->phase, SPW_POOL_CLOSED);
    spw_region_detach(&region);
    SPW_CRASH_POINT("pool.old_closed");
}

/* Whatever stands under this pool's names, half-made objects too; ctl first. */
static int remove_old(const struct spw_pool_path *path, struct spw_error *err)
{
    static const struct {
        enum spw_region_kind kind;
        uint32_t count;
    } kinds[] = {{SPW_REGION_CTL, 1},
                 {SPW_REGION_FEED, SPW_WORKERS_MAX},
                 {SPW_REGION_DATA, SPW_WORKERS_MAX},
                 {SPW_REGION_CLIENT, SPW_CLIENTS_MAX},
                 {SPW_REGION_KV, SPW_CLIENTS_MAX}};
    close_old(path);
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        for (uint32_t index = 0; index < kinds[i].count; index++) {
            int rc = spw_region_unlink(path, kinds[i].kind, index, NULL, err);
            if (rc)
                return rc;
        }
        SPW_CRASH_POINT("pool.old_removed");
    }
    return 0;
}

static int create_objects(const struct spw_pool_config *config,
                          const struct spw_pool_object *object, uint32_t count,
                          const uint64_t *pool_id, struct spw_error *err)
{
    uint64_t all_bytes = 0;
    for (uint32_t i = 0; i < count; i++)
        all_bytes += spw_align_up(object[i].size_bytes, (uint64_t)sysconf(_SC_PAGESIZE));
    int rc = spw_object_room(&config->path, all_bytes, err);
    for (uint32_t i = 0; i < count && !rc; i++) {
        struct spw_region_config region = {.path = &config->path,
                                           .kind = object[i].kind,
                                           .index = object[i].index,
                                           .size_bytes = object[i].size_bytes,
                                           .mode = config->mode,
                                           .gid = config->gid,
                                           .pool_id = {pool_id[0], pool_id[1]}};
        rc = spw_region_create(&region, object[i].region, err);
        SPW_CRASH_POINT("pool.object_created");
    }
    return rc;
}

static void fill_ctl(struct spw_pool *pool)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    pool->ctl->geometry = pool->geometry;
    /* relaxed: published with ctl's version */
    spw_store_relaxed(&pool->ctl->phase, SPW_POOL_STARTING);
    spw_store_relaxed(&pool->ctl->daemon_pid, (uint64_t)getpid());
    spw_store_relaxed(&pool->ctl->started_ns,
                      (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec);
}

/* Memory of shard k lies on its node where that is wanted and allowed; a refusal costs speed. */
static void bind_shards(const struct spw_pool_config *config, struct spw_pool *pool)
{
    for (uint32_t k = 0; k < pool->geometry.workers; k++)
        spw_region_bind_node(pool->region_data[k].header, pool->region_data[k].size_bytes,
                             config->shard_node[k]);
}

int spw_pool_create(const struct spw_pool_config *config, struct spw_pool *out_pool,
                    struct spw_error *err)
{
    struct spw_pool_object object[SPW_POOL_OBJECTS_MAX];
    uint64_t pool_id[2];
    int rc = spw_geometry_check(&config->geometry, err);
    if (rc)
        return rc;
    if (getrandom(pool_id, sizeof pool_id, 0) != (ssize_t)sizeof pool_id)
        return spw_fail(err, -EIO, "no random bytes for the pool's id");
    int fd = take_name(config, err);
    if (fd < 0)
        return fd;
    SPW_CRASH_POINT("pool.name_taken");
    memset(out_pool, 0, sizeof *out_pool);
    out_pool->path = config->path;
    out_pool->lock_fd = fd;
    spw_pool_take_geometry(out_pool, &config->geometry);
    uint32_t count = spw_pool_objects(out_pool, object);
    rc = remove_old(&config->path, err);
    if (!rc)
        rc = create_objects(config, object, count, pool_id, err);
    if (rc) {
        spw_pool_unlink(out_pool, NULL);
        spw_pool_detach(out_pool);
        return rc;
    }
    spw_pool_set_pointers(out_pool);
    bind_shards(config, out_pool);
    fill_ctl(out_pool);
    for (uint32_t i = 0; i < count; i++)
        spw_region_publish(object[i].region);
    SPW_CRASH_POINT("pool.published");
    return 0;
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
                                   object[i].region->header->pool_id, first_rc ? NULL : err);
        if (!first_rc)
            first_rc = rc;
        SPW_CRASH_POINT("pool.object_unlinked");
    }
    if (first_rc)
        return first_rc;
    spw_lock_name(&pool->path, name);
    return spw_object_unlink(pool->lock_fd, name, err);
}
