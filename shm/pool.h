#ifndef SPW_SHM_POOL_H
#define SPW_SHM_POOL_H
/*
 * All objects of one pool, mapped as a role needs them.
 *
 *   daemon    creates everything, holds lock byte 0, writes ctl, reads mailboxes
 *   worker k  maps ctl and other feeds read-only; feed.k, all client.*, all kv.* and data.k
 *             read-write; other data.* read-only
 *   client c  maps ctl and feed.* read-only; its own client.c and kv.c read-write
 *   tool      maps ctl, feed.*, client.* read-only
 *
 * A client may spoil its own objects. Workers and tools find zero pages in the place of one that
 * can't be mapped (spw_region_lost()); clients pass its place over until the daemon has made it
 * anew.
 *
 *   pairs     [CO-1] new objects -> their client's number in ctl -> who maps them again
 */
#include "shm/client.h"
#include "shm/region.h"

enum spw_pool_role { SPW_ROLE_DAEMON, SPW_ROLE_WORKER, SPW_ROLE_CLIENT, SPW_ROLE_TOOL };

/** A number of the geometry that keeps a daemon from going on with the pool before. */
struct spw_pool_change {
    const char *name; /* a field of struct spw_geometry; static; NULL: nothing */
    uint32_t was, is;
};

/** Process-local; zeroed is valid for spw_pool_detach(). */
struct spw_pool {
    struct spw_pool_path path;
    struct spw_geometry geometry; /* private copy, checked */
    struct spw_feed_map feed_map;
    struct spw_client_map client_map;
    struct spw_ctl *ctl;
    struct spw_feed_head *feed[SPW_WORKERS_MAX];
    uint8_t *data[SPW_WORKERS_MAX];                 /* first slot's payload, or NULL */
    struct spw_client_view client[SPW_CLIENTS_MAX]; /* .head NULL where not mapped   */
    uint8_t *kv[SPW_CLIENTS_MAX];                   /* first block, or NULL          */
    struct spw_region region_ctl;
    struct spw_region region_feed[SPW_WORKERS_MAX];
    struct spw_region region_data[SPW_WORKERS_MAX];
    struct spw_region region_client[SPW_CLIENTS_MAX];
    struct spw_region region_kv[SPW_CLIENTS_MAX];
    int lock_fd;         /* opened by attach and create; 0 when zeroed, so never 0 otherwise */
    bool warm;           /* daemon: create went on with the shards of a daemon before */
    char cold_text[252]; /* daemon: why it didn't, though there was something; else empty */
    struct spw_pool_change cold_change; /* likewise, if it is a number */
};

struct spw_pool_config {
    struct spw_pool_path path;
    struct spw_geometry geometry;
    uint32_t mode;
    int64_t gid;
    struct spw_memory shard_memory[SPW_WORKERS_MAX]; /* where each shard and its feed lie; what
                                                        became of it: memory_rc of its regions */
    bool cold; /* don't go on with shards of a daemon before */
    /* how long a name in use is tried again: a daemon killed while it started a worker leaves a
       child that holds its lock until the exec a moment later */
    uint64_t patience_ns;
    /* warm start: copy the spaces of the pool before, @old, that are to be kept into @pool's ctl,
       which nobody else sees yet; @old is input. NULL: none is kept */
    void (*keep_spaces)(void *ctx, struct spw_pool *pool, const struct spw_ctl *old);
    void *ctx;
};

/**
 * Daemon: take the pool's name and create all objects; phase is STARTING, every object published.
 *
 * What a dead daemon left is closed first, and its workers are seen off: they leave within 2 s or are
 * ended; -EBUSY names one that can't be. Its shards are gone on with (out_pool->warm) where they
 * are whole and their geometry is the same, unless @config says cold; else everything is removed
 * and made anew. The pool of a living daemon is refused with -EBUSY and its pid for display, once
 * it was so for patience_ns. On failure nothing of ours is left behind, and shards that could be gone on with still can.
 */
int spw_pool_create(const struct spw_pool_config *config, struct spw_pool *out_pool,
                    struct spw_error *err);

/**
 * Map an existing pool.
 * @index  the worker's k or the client's c; ignored for tools
 * -ENOENT no such pool; -EOWNERDEAD its daemon is dead (not for tools and workers); -EAGAIN it is
 * still starting (clients only); -EPROTONOSUPPORT other layout; -EBADMSG damaged.
 */
int spw_pool_attach(const struct spw_pool_path *path, enum spw_pool_role role, uint32_t index,
                    struct spw_pool *out_pool, struct spw_error *err);

/** Client: take the first free client object (never the last one unless @tools), map it and
 * its KV; a damaged one is passed over. Returns c, or -EBUSY: all taken, the limit is named. The pool must be attached as CLIENT
 * with index SPW_CLIENTS_MAX (= none yet). */
int spw_pool_take_client(struct spw_pool *pool, bool tools, struct spw_error *err);

/** The same from client @first on; what is held already stays held. */
int spw_pool_take_client_from(struct spw_pool *pool, uint32_t first, struct spw_error *err);
/** Unmap client @c, which was taken, and give it back. */
void spw_pool_give_client(struct spw_pool *pool, uint32_t c);

/* ---- daemon: what clients do to their own objects (pool_mend.c) ------------------------------- */

/** Write the headers of client objects anew where a client damaged them: with such a one no worker
 * could attach again. Returns how many were damaged. */
uint32_t spw_pool_mend(struct spw_pool *pool);

/**
 * Make client objects anew that were cut or removed, each once nobody holds its client's lock byte,
 * and raise that client's number in ctl. @config as at creation. Some system calls a client: not
 * for every round. Returns how many clients got new objects; or the first negative errno, words in
 * @err, when some can't be made: ask again later. -ESTALE: the lock object was removed or replaced,
 * so what has the pool's names may be another daemon's; nothing is touched.
 */
int spw_pool_renew(struct spw_pool *pool, const struct spw_pool_config *config,
                   struct spw_error *err);

/** Unmap everything and close the lock descriptor. */
void spw_pool_detach(struct spw_pool *pool);

/** Daemon: unlink every object of this pool (by pool id) and the lock object. */
int spw_pool_unlink(struct spw_pool *pool, struct spw_error *err);

/** Pieces of a mapped feed.k. */
static inline void *spw_pool_feed_at(const struct spw_pool *pool, uint32_t k, uint64_t off)
{
    return (uint8_t *)pool->feed[k] + off;
}

#endif
