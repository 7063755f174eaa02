/*
 * Warm start: a daemon goes on with the shards that a daemon before left. Written: the header and the
 * acknowledgements and fences of every feed, since nobody else is left to; all objects that are made anew. What
 * is found is input: a shard's contents are the worker's to check (tier/adopt.h), its spaces are
 * those that config->keep_spaces finds sound.
 *
 *   step of adopt            if the daemon dies after it
 *   clients removed          the old ctl, closed; the next start adopts the same shards
 *   client objects made      same; they are made again
 *   shard relabelled         same: the half of pool_id by which a shard is known again stays
 *   new ctl filled           same; the one beside is removed
 *   ctl renamed              a whole pool without daemon: the next start adopts from it
 */
#include "shm/pool_impl.h"

#include "shm/crash_point.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

/* ---- may it be? ------------------------------------------------------------------------------ */

static bool cold(struct spw_pool *pool, const char *words)
{
    snprintf(pool->cold_text, sizeof pool->cold_text, "%s", words);
    return false;
}

/* Whatever decides where things lie in a shard must be as it was. Of clients nothing stays. */
static bool same_geometry(struct spw_pool *pool, const struct spw_geometry *old)
{
#define FIELD(name)                                                                                \
    {                                                                                              \
#name, offsetof(struct spw_geometry, name)                                                 \
    }
    static const struct {
        const char *name;
        size_t at;
    } fields[] = {FIELD(workers),      FIELD(capacity_chunks), FIELD(slots),
                  FIELD(slot_bytes),   FIELD(cold_chunks),     FIELD(update_records),
                  FIELD(gate_records), FIELD(index_buckets)};
#undef FIELD
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        uint32_t was, is;
        memcpy(&was, (const uint8_t *)old + fields[i].at, sizeof was);
        memcpy(&is, (const uint8_t *)&pool->geometry + fields[i].at, sizeof is);
        if (was == is)
            continue;
        pool->cold_change = (struct spw_pool_change){fields[i].name, was, is};
        snprintf(pool->cold_text, sizeof pool->cold_text,
                 "%s was %" PRIu32 " and is %" PRIu32 " now", fields[i].name, was, is);
        return false;
    }
    return true;
}

/* Objects that outlive a daemon. The others are made anew at every start. */
static bool stays(const struct spw_pool_object *object)
{
    return object->kind == SPW_REGION_FEED || object->kind == SPW_REGION_DATA;
}

static bool map_shards(struct spw_pool *pool, const struct spw_pool_config *config,
                       const struct spw_region *old)
{
    struct spw_pool_object object[SPW_POOL_OBJECTS_MAX];
    struct spw_error err;
    uint32_t count = spw_pool_objects(pool, object);
    for (uint32_t i = 0; i < count; i++) {
        const struct spw_region_config region = {.path = &config->path,
                                                 .kind = object[i].kind,
                                                 .index = object[i].index,
                                                 .size_bytes = object[i].size_bytes,
                                                 .mode = config->mode,
                                                 .gid = config->gid,
                                                 .pool_id = {0, old->header->pool_id[1]}};
        if (stays(&object[i]) && spw_region_adopt(&region, object[i].region, &err))
            return cold(pool, err.text);
    }
    return true;
}

static void unmap_shards(struct spw_pool *pool)
{
    for (uint32_t k = 0; k < pool->geometry.workers; k++) {
        spw_region_detach(&pool->region_feed[k]);
        spw_region_detach(&pool->region_data[k]);
    }
}

/* A worker that nobody has seen off: it may still write. */
static bool workers_gone(struct spw_pool *pool, const struct spw_ctl *ctl)
{
    for (uint32_t k = 0; k < SPW_WORKERS_MAX; k++) {
        uint64_t pid = spw_load_relaxed(&ctl->worker[k].pid);
        if (pid == 0)
            continue;
        snprintf(pool->cold_text, sizeof pool->cold_text,
                 "its lock object was removed, so worker %" PRIu32 ", pid %" PRIu64
                 ", may still write",
                 k, pid);
        return false;
    }
    return true;
}

bool spw_pool_can_adopt(struct spw_pool *pool, const struct spw_pool_config *config,
                        struct spw_region *out_old)
{
    struct spw_region old = {0};
    struct spw_error err;
    int rc = spw_region_attach(&config->path, SPW_REGION_CTL, 0, false, sizeof(struct spw_ctl),
                               &old, &err);
    if (rc)
        return cold(pool, rc == -ENOENT ? "" : err.text);
    const struct spw_geometry geometry = ((struct spw_ctl *)(void *)old.header)->geometry;
    bool good = config->cold ? cold(pool, "asked for")
                : spw_geometry_check(&geometry, &err)
                    ? cold(pool, err.text)
                    : workers_gone(pool, (const struct spw_ctl *)(void *)old.header) &&
                          same_geometry(pool, &geometry) && map_shards(pool, config, &old);
    if (good) {
        *out_old = old;
        return true;
    }
    unmap_shards(pool);
    spw_region_detach(&old);
    return false;
}

/* ---- do it ----------------------------------------------------------------------------------- */

/* Client objects begin with generation 0 again: what workers said of former ones says nothing. */
static void forget_clients(struct spw_feed_head *feed)
{
    for (uint32_t c = 0; c <= SPW_CLIENTS_MAX; c++) {
        /* relaxed: no worker is there, and clients of the old pool know that it is closed */
        spw_store_relaxed(&feed->acked[c], 0);
        spw_store_relaxed(&feed->fenced[c], 0);
    }
}

static void relabel_shards(struct spw_pool *pool, const uint64_t *pool_id)
{
    for (uint32_t k = 0; k < pool->geometry.workers; k++) {
        forget_clients(pool->feed[k]);
        pool->region_feed[k].header->pool_id[0] = pool_id[0];
        pool->region_data[k].header->pool_id[0] = pool_id[0];
        SPW_CRASH_POINT("pool.shard_relabelled");
    }
}

static struct spw_region_config new_ctl(const struct spw_pool_config *config,
                                        const uint64_t *pool_id)
{
    return (struct spw_region_config){.path = &config->path,
                                      .kind = SPW_REGION_CTL,
                                      .size_bytes = sizeof(struct spw_ctl),
                                      .mode = config->mode,
                                      .gid = config->gid,
                                      .pool_id = {pool_id[0], pool_id[1]},
                                      .beside = true};
}

/* Everything but the shards, unpublished. */
static int make_rest(struct spw_pool *pool, const struct spw_pool_config *config,
                     const struct spw_region_config *ctl, struct spw_error *err)
{
    struct spw_pool_object object[SPW_POOL_OBJECTS_MAX];
    uint32_t count = spw_pool_objects(pool, object);
    int rc = spw_pool_make_objects(config, object, count - 1, ctl->pool_id, err); /* ctl is last */
    return rc ? rc : spw_region_create(ctl, &pool->region_ctl, err);
}

static void publish_rest(struct spw_pool *pool)
{
    struct spw_pool_object object[SPW_POOL_OBJECTS_MAX];
    uint32_t count = spw_pool_objects(pool, object);
    for (uint32_t i = 0; i < count; i++)
        if (!stays(&object[i]))
            spw_region_publish(object[i].region);
}

int spw_pool_adopt(struct spw_pool *pool, const struct spw_pool_config *config,
                   const struct spw_region *old, struct spw_error *err)
{
    uint64_t pool_id[2] = {0, old->header->pool_id[1]};
    if (getrandom(pool_id, sizeof pool_id[0], 0) != (ssize_t)sizeof pool_id[0])
        return spw_fail(err, -EIO, "no random bytes for the pool's id");
    const struct spw_region_config ctl = new_ctl(config, pool_id);
    int rc = spw_pool_remove_objects(pool, true, err);
    SPW_CRASH_POINT("pool.clients_removed");
    if (!rc)
        rc = make_rest(pool, config, &ctl, err);
    if (rc) {
        spw_pool_remove_objects(pool, true, NULL);
        return rc;
    }
    spw_pool_set_pointers(pool);
    relabel_shards(pool, pool_id);
    spw_pool_fill_ctl(pool);
    if (config->keep_spaces)
        config->keep_spaces(config->ctx, pool, (const struct spw_ctl *)(const void *)old->header);
    SPW_CRASH_POINT("pool.ctl_filled");
    publish_rest(pool);
    rc = spw_region_take_name(&ctl, err);
    SPW_CRASH_POINT("pool.ctl_renamed");
    if (rc)
        spw_pool_remove_objects(pool, true, NULL);
    else
        pool->warm = true;
    return rc;
}
