/* Attach to a pool: map what a role needs, take a client's place. Written: nothing. Shared: the names
 * in the directory, and ctl's phase. A process that dies here leaves nothing but a lock byte that is
 * free again. */
#include "shm/pool_impl.h"

#include "shm/alive.h"

#include <inttypes.h>
#include <string.h>
#include <unistd.h>

uint32_t spw_pool_objects(struct spw_pool *pool, struct spw_pool_object *out)
{
    const struct spw_geometry *geometry = &pool->geometry;
    uint64_t kv_bytes = spw_kv_size_bytes(geometry);
    uint64_t data_bytes = spw_data_size_bytes(geometry);
    uint32_t n = 0;
    for (uint32_t k = 0; k < geometry->workers; k++) {
        out[n++] = (struct spw_pool_object){SPW_REGION_FEED, k, pool->feed_map.size_bytes,
                                            &pool->region_feed[k]};
        out[n++] = (struct spw_pool_object){SPW_REGION_DATA, k, data_bytes, &pool->region_data[k]};
    }
    for (uint32_t c = 0; c < geometry->clients; c++) {
        out[n++] = (struct spw_pool_object){SPW_REGION_CLIENT, c, pool->client_map.size_bytes,
                                            &pool->region_client[c]};
        if (kv_bytes)
            out[n++] = (struct spw_pool_object){SPW_REGION_KV, c, kv_bytes, &pool->region_kv[c]};
    }
    out[n++] =
        (struct spw_pool_object){SPW_REGION_CTL, 0, sizeof(struct spw_ctl), &pool->region_ctl};
    return n;
}

void spw_pool_take_geometry(struct spw_pool *pool, const struct spw_geometry *geometry)
{
    pool->geometry = *geometry;
    spw_feed_map_init(&pool->geometry, &pool->feed_map);
    spw_client_map_init(&pool->geometry, &pool->client_map);
}

void spw_pool_set_pointers(struct spw_pool *pool)
{
    pool->ctl = (struct spw_ctl *)(void *)pool->region_ctl.header;
    for (uint32_t k = 0; k < pool->geometry.workers; k++) {
        struct spw_region_header *data = pool->region_data[k].header;
        pool->feed[k] = (struct spw_feed_head *)(void *)pool->region_feed[k].header;
        pool->data[k] = data ? (uint8_t *)data + SPW_PAYLOAD_OFF : NULL;
    }
    for (uint32_t c = 0; c < pool->geometry.clients; c++) {
        struct spw_region_header *client = pool->region_client[c].header;
        struct spw_region_header *kv = pool->region_kv[c].header;
        if (client)
            spw_client_view_init(&pool->client[c], (struct spw_client_head *)(void *)client,
                                 &pool->geometry);
        pool->kv[c] = kv ? (uint8_t *)kv + SPW_PAYLOAD_OFF : NULL;
    }
}

/* ---- attach ---------------------------------------------------------------------------------- */

/* How a role maps an object. */
enum access { NOT_MAPPED, READ_ONLY, READ_WRITE };

static enum access access_of(enum spw_pool_role role, uint32_t index, enum spw_region_kind kind,
                             uint32_t object_index)
{
    bool own = index == object_index;
    if (role == SPW_ROLE_WORKER) {
        if (kind == SPW_REGION_FEED || kind == SPW_REGION_DATA)
            return own ? READ_WRITE : READ_ONLY;
        return kind == SPW_REGION_CTL ? READ_ONLY : READ_WRITE;
    }
    if (kind == SPW_REGION_CTL || kind == SPW_REGION_FEED)
        return READ_ONLY;
    if (role == SPW_ROLE_CLIENT)
        return kind != SPW_REGION_DATA && own ? READ_WRITE : NOT_MAPPED;
    return kind == SPW_REGION_CLIENT ? READ_ONLY : NOT_MAPPED;
}

/* Map one object of the pool whose ctl is mapped already. */
static int attach_object(struct spw_pool *pool, const struct spw_pool_object *object, bool writable,
                         struct spw_error *err)
{
    int rc = spw_region_attach(&pool->path, object->kind, object->index, writable,
                               object->size_bytes, object->region, err);
    if (rc)
        return rc;
    if (memcmp(object->region->header->pool_id, pool->region_ctl.header->pool_id,
               sizeof pool->region_ctl.header->pool_id) == 0)
        return 0;
    spw_region_detach(object->region);
    return spw_fail(err, -EAGAIN, "pool \"%s\" is being replaced by a new daemon; try again",
                    pool->path.name);
}

/* What a client has done to its own object keeps no worker and no tool out. */
static int attach_or_stand_in(struct spw_pool *pool, const struct spw_pool_object *object,
                              bool writable, struct spw_error *err)
{
    int rc = attach_object(pool, object, writable, err);
    if (rc == 0 || (object->kind != SPW_REGION_CLIENT && object->kind != SPW_REGION_KV))
        return rc;
    return spw_region_stand_in(object->kind, object->size_bytes, writable, object->region, err);
}

/* The daemon's life and ctl's state, in words that tell them apart. */
static int attach_ctl(struct spw_pool *pool, enum spw_pool_role role, struct spw_error *err)
{
    const char *name = pool->path.name;
    int alive = spw_lock_held(pool->lock_fd, SPW_LOCK_DAEMON);
    if (alive < 0)
        return spw_fail(err, alive, "pool \"%s\": can't ask for its lock: %s", name,
                        strerror(-alive));
    int rc = spw_region_attach(&pool->path, SPW_REGION_CTL, 0, false, sizeof(struct spw_ctl),
                               &pool->region_ctl, err);
    if (rc == -ENOENT && alive)
        return spw_fail(err, -EAGAIN, "pool \"%s\" is not ready: its daemon is starting", name);
    if (rc == -EAGAIN && !alive)
        return spw_fail(err, -EOWNERDEAD, "pool \"%s\": its daemon died while it was starting",
                        name);
    if (rc)
        return rc;
    pool->ctl = (struct spw_ctl *)(void *)pool->region_ctl.header;
    if (role != SPW_ROLE_CLIENT)
        return 0;
    /* [PH-1] acquire: phase before what it says is there */
    uint32_t phase = spw_load_acquire(&pool->ctl->phase);
    if (!alive)
        return spw_fail(
            err, -EOWNERDEAD,
            "pool \"%s\": its daemon is gone; start spillwayd to go on with it, or remove "
            "what it left: spillway rm %s",
            name, name);
    if (phase == SPW_POOL_CLOSED)
        return spw_fail(err, -EAGAIN, "pool \"%s\" is being replaced or stopping; try again", name);
    if (phase != SPW_POOL_SERVING)
        return spw_fail(err, -EAGAIN, "pool \"%s\" is not ready: its daemon is starting", name);
    return 0;
}

static int attach_all(struct spw_pool *pool, enum spw_pool_role role, uint32_t index,
                      struct spw_error *err)
{
    struct spw_pool_object object[SPW_POOL_OBJECTS_MAX];
    struct spw_geometry geometry;
    int rc = attach_ctl(pool, role, err);
    if (rc)
        return rc;
    geometry = pool->ctl->geometry; /* one copy is checked and used */
    rc = spw_geometry_check(&geometry, err);
    if (rc)
        return rc;
    uint32_t limit = role == SPW_ROLE_WORKER ? geometry.workers : geometry.clients;
    if (role != SPW_ROLE_TOOL && index >= limit &&
        !(role == SPW_ROLE_CLIENT && index == SPW_CLIENTS_MAX))
        return spw_fail(err, -EINVAL, "index %" PRIu32 ": pool \"%s\" has %" PRIu32, index,
                        pool->path.name, limit);
    spw_pool_take_geometry(pool, &geometry);
    uint32_t count = spw_pool_objects(pool, object);
    for (uint32_t i = 0; i < count; i++) {
        enum access access = access_of(role, index, object[i].kind, object[i].index);
        if (access == NOT_MAPPED || object[i].kind == SPW_REGION_CTL)
            continue;
        rc = role == SPW_ROLE_CLIENT
                 ? attach_object(pool, &object[i], access == READ_WRITE, err)
                 : attach_or_stand_in(pool, &object[i], access == READ_WRITE, err);
        if (rc)
            return rc;
    }
    spw_pool_set_pointers(pool);
    if (!spw_lock_current(pool->lock_fd, &pool->path))
        return spw_fail(err, -EAGAIN, "pool \"%s\" is being replaced by a new daemon; try again",
                        pool->path.name);
    return 0;
}

int spw_pool_attach(const struct spw_pool_path *path, enum spw_pool_role role, uint32_t index,
                    struct spw_pool *out_pool, struct spw_error *err)
{
    if (role == SPW_ROLE_DAEMON)
        return spw_fail(err, -EINVAL, "a daemon creates its pool, it doesn't attach");
    int fd = spw_lock_open(path, false, 0, -1, err);
    if (fd < 0)
        return fd;
    memset(out_pool, 0, sizeof *out_pool);
    out_pool->path = *path;
    out_pool->lock_fd = fd;
    int rc = attach_all(out_pool, role, index, err);
    if (rc)
        spw_pool_detach(out_pool);
    return rc;
}

/* Client @c, whose lock byte is ours: map its object and its KV. */
static int attach_client(struct spw_pool *pool, uint32_t c, struct spw_error *err)
{
    struct spw_pool_object client = {SPW_REGION_CLIENT, c, pool->client_map.size_bytes,
                                     &pool->region_client[c]};
    struct spw_pool_object kv = {SPW_REGION_KV, c, spw_kv_size_bytes(&pool->geometry),
                                 &pool->region_kv[c]};
    int rc = attach_object(pool, &client, true, err);
    if (!rc && kv.size_bytes)
        rc = attach_object(pool, &kv, true, err);
    if (rc) {
        spw_region_detach(client.region);
        spw_region_detach(kv.region);
        return rc;
    }
    spw_pool_set_pointers(pool);
    return 0;
}

/* Take place @c: 1, or 0 when it is taken or damaged. */
static int take_place(struct spw_pool *pool, uint32_t c, struct spw_error *err)
{
    int rc = spw_lock_take(pool->lock_fd, SPW_LOCK_CLIENT(c));
    if (rc == -EBUSY)
        return 0;
    if (rc)
        return spw_fail(err, rc, "pool \"%s\": can't lock client %" PRIu32 ": %s", pool->path.name,
                        c, strerror(-rc));
    rc = attach_client(pool, c, err);
    if (!rc)
        return 1;
    spw_lock_drop(pool->lock_fd, SPW_LOCK_CLIENT(c));
    /* cut, removed or overwritten by the one who had it; the daemon makes it anew. All of a pool that
       is over are like that. */
    bool over = spw_load_relaxed(&pool->ctl->phase) == SPW_POOL_CLOSED;
    bool spoilt = rc == -EBADMSG || rc == -EPROTONOSUPPORT || rc == -ENOENT || rc == -EAGAIN;
    return spoilt && !over ? 0 : rc;
}

static int no_place(const struct spw_pool *pool, struct spw_error *err)
{
    return spw_fail(err, -EBUSY,
                    "pool \"%s\" has no free client: all %" PRIu32 " are taken (one is kept for "
                    "tools); detach one, or start spillwayd with more clients",
                    pool->path.name, pool->geometry.clients);
}

int spw_pool_take_client(struct spw_pool *pool, bool tools, struct spw_error *err)
{
    if (tools) {
        int rc = take_place(pool, pool->geometry.clients - 1, err);
        if (rc)
            return rc < 0 ? rc : (int)pool->geometry.clients - 1;
    }
    return spw_pool_take_client_from(pool, 0, err);
}

int spw_pool_take_client_from(struct spw_pool *pool, uint32_t first, struct spw_error *err)
{
    for (uint32_t c = first; c + 1 < pool->geometry.clients; c++) {
        int rc = take_place(pool, c, err);
        if (rc)
            return rc < 0 ? rc : (int)c;
    }
    return no_place(pool, err);
}

void spw_pool_give_client(struct spw_pool *pool, uint32_t c)
{
    spw_region_detach(&pool->region_client[c]);
    spw_region_detach(&pool->region_kv[c]);
    pool->client[c] = (struct spw_client_view){0};
    pool->kv[c] = NULL;
    spw_lock_drop(pool->lock_fd, SPW_LOCK_CLIENT(c));
}

void spw_pool_detach(struct spw_pool *pool)
{
    if (!pool)
        return;
    for (uint32_t k = 0; k < SPW_WORKERS_MAX; k++) {
        spw_region_detach(&pool->region_feed[k]);
        spw_region_detach(&pool->region_data[k]);
    }
    for (uint32_t c = 0; c < SPW_CLIENTS_MAX; c++) {
        spw_region_detach(&pool->region_client[c]);
        spw_region_detach(&pool->region_kv[c]);
    }
    spw_region_detach(&pool->region_ctl);
    if (pool->lock_fd > 0)
        spw_lock_close(pool->lock_fd);
    memset(pool, 0, sizeof *pool);
}
