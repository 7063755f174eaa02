/* What a client does to its own objects, mended by the daemon. Written: headers of client objects,
 * client objects made anew, ctl's numbers of them. Shared: the names in the directory.
 *
 *   step of making anew       if the daemon dies after it
 *   lock byte taken           it is free again
 *   old name removed          nobody gets this place; the next start makes all client objects anew
 *   new object published      a client may take it, no worker serves it; the same
 *   byte dropped              same
 *   number raised             workers map it; done
 */
#include "shm/alive.h"
#include "shm/crash_point.h"
#include "shm/object.h"
#include "shm/pool_impl.h"

#include <inttypes.h>
#include <string.h>

static struct spw_region_config config_of(const struct spw_pool *pool,
                                          const struct spw_pool_object *object)
{
    const uint64_t *pool_id = pool->region_ctl.header->pool_id;
    return (struct spw_region_config){.path = &pool->path,
                                      .kind = object->kind,
                                      .index = object->index,
                                      .size_bytes = object->size_bytes,
                                      .pool_id = {pool_id[0], pool_id[1]}};
}

static bool is_clients(const struct spw_pool_object *object)
{
    return object->kind == SPW_REGION_CLIENT || object->kind == SPW_REGION_KV;
}

uint32_t spw_pool_mend(struct spw_pool *pool)
{
    struct spw_pool_object object[SPW_POOL_OBJECTS_MAX];
    uint32_t mended = 0, count = spw_pool_objects(pool, object);
    for (uint32_t i = 0; i < count; i++) {
        const struct spw_region_config config = config_of(pool, &object[i]);
        if (is_clients(&object[i]) && !spw_region_lost(object[i].region))
            mended += spw_region_mend(object[i].region, &config);
    }
    return mended;
}

/* ---- made anew ------------------------------------------------------------------------------- */

static bool is_spoilt(const struct spw_pool *pool, const struct spw_pool_object *object)
{
    return spw_region_lost(object->region) ||
           !spw_region_intact(object->region, &pool->path, object->kind, object->index);
}

/* Nobody holds the client's byte but the daemon. Generations go on far above all that its holders
 * took in the objects before. */
static int make_anew(struct spw_pool *pool, const struct spw_pool_config *config,
                     const struct spw_pool_object *object, struct spw_error *err)
{
    struct spw_region_config region_config = config_of(pool, object);
    struct spw_region region = {0};
    region_config.mode = config->mode;
    region_config.gid = config->gid;
    int rc = spw_region_unlink(&pool->path, object->kind, object->index, NULL, err);
    SPW_CRASH_POINT("pool.spoilt_removed");
    if (!rc)
        rc = spw_region_create(&region_config, &region, err);
    if (rc)
        return rc;
    if (object->kind == SPW_REGION_CLIENT) {
        uint64_t number = spw_load_relaxed(&pool->ctl->client_object[object->index]) + 1;
        /* relaxed: published with the object's version */
        spw_store_relaxed(&((struct spw_client_head *)(void *)region.header)->generation,
                          number << 32);
    }
    spw_region_publish(&region);
    SPW_CRASH_POINT("pool.anew_published");
    rc = spw_region_take_place(object->region, &region, err);
    spw_region_detach(&region);
    return rc;
}

/* Client objects [@object, @object + @count) of one client. 1, 0 when it is in use, or -errno. */
static int renew_client(struct spw_pool *pool, const struct spw_pool_config *config,
                        const struct spw_pool_object *object, uint32_t count, struct spw_error *err)
{
    uint32_t c = object->index;
    int rc = spw_lock_take(pool->lock_fd, SPW_LOCK_CLIENT(c));
    if (rc)
        return rc == -EBUSY ? 0 : rc;
    for (uint32_t i = 0; i < count && rc == 0; i++)
        if (is_spoilt(pool, &object[i]))
            rc = make_anew(pool, config, &object[i], err);
    spw_lock_drop(pool->lock_fd, SPW_LOCK_CLIENT(c));
    if (rc)
        return rc;
    SPW_CRASH_POINT("pool.anew_unlocked");
    spw_atomic64 *number = &pool->ctl->client_object[c];
    /* [CO-1] release: the objects before the number by which workers map them again */
    spw_store_release(number, spw_load_relaxed(number) + 1);
    SPW_CRASH_POINT("pool.number_raised");
    return 1;
}

int spw_pool_renew(struct spw_pool *pool, const struct spw_pool_config *config,
                   struct spw_error *err)
{
    struct spw_pool_object object[SPW_POOL_OBJECTS_MAX];
    uint32_t count = spw_pool_objects(pool, object), each;
    int renewed = 0, failed = 0;
    char lock_name[SPW_PATH_BYTES];
    spw_lock_name(&pool->path, lock_name);
    if (spw_object_displaced(pool->lock_fd, lock_name))
        return spw_fail(err, -ESTALE,
                        "the lock object of pool \"%s\" was removed or replaced: nobody can attach "
                        "to it, and another daemon may take its name",
                        pool->path.name);
    if (!spw_lock_current(pool->lock_fd, &pool->path))
        return 0; /* a directory that can't be looked at just now */
    for (uint32_t i = 0; i < count; i += each) {
        bool spoilt = false;
        for (each = 0; i + each < count && is_clients(&object[i + each]) &&
                       object[i + each].index == object[i].index;
             each++)
            spoilt = spoilt || is_spoilt(pool, &object[i + each]);
        each = each ? each : 1;
        int rc = spoilt ? renew_client(pool, config, &object[i], each, failed ? NULL : err) : 0;
        renewed += rc > 0;
        failed = rc < 0 && !failed ? rc : failed;
    }
    return failed ? failed : renewed;
}
