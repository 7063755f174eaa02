#ifndef SPW_SHM_POOL_IMPL_H
#define SPW_SHM_POOL_IMPL_H
/*
 * What pool.c (attach, places, mending), pool_create.c (create, unlink), pool_adopt.c (go on with a
 * dead daemon's shards) and pool_before.c (end what it left) share. Inside shm only; process-local.
 */
#include "shm/pool.h"

/* One object of a pool: where its region is kept and how large it has to be. */
struct spw_pool_object {
    enum spw_region_kind kind;
    uint32_t index;
    uint64_t size_bytes;
    struct spw_region *region;
};

#define SPW_POOL_OBJECTS_MAX (2 * SPW_WORKERS_MAX + 2 * SPW_CLIENTS_MAX + 1)

/** Every object that a pool of this geometry has, ctl last; returns how many. */
uint32_t spw_pool_objects(struct spw_pool *pool, struct spw_pool_object *out);
/** Take a checked geometry, and all sizes that follow from it. */
void spw_pool_take_geometry(struct spw_pool *pool, const struct spw_geometry *geometry);
/** Fill in the typed pointers of whatever is mapped. */
void spw_pool_set_pointers(struct spw_pool *pool);

/**
 * Close the pool that a dead daemon left under @path, if its ctl can be read, and see its workers
 * off: @fd is the lock object, whose daemon's byte is ours. Then no worker has a pid in that ctl any
 * more, unless the lock object was made @anew: its workers, if there are any, hold bytes of another.
 * -EBUSY: one stays and can't be ended; @err names it.
 */
int spw_pool_end_before(const struct spw_pool_path *path, int fd, bool anew, struct spw_error *err);

/** Remove what stands under this pool's names, half-made objects too; ctl first. Objects that stay
 * are left if @keep_shards, and ctl with them. */
int spw_pool_remove_objects(const struct spw_pool *pool, bool keep_shards, struct spw_error *err);
/** Create the @count objects of @object, unpublished. Those that are mapped already are left out. */
int spw_pool_make_objects(const struct spw_pool_config *config,
                          const struct spw_pool_object *object, uint32_t count,
                          const uint64_t *pool_id, struct spw_error *err);
/** Fill in a ctl that nobody else sees yet. */
void spw_pool_fill_ctl(struct spw_pool *pool);

/**
 * Can a start go on with the shards that a daemon before left? Then they are mapped into @pool with
 * the rights of @config, and its ctl, to be read, into @out_old; nothing of their contents is
 * changed yet. Else false, nothing is mapped, and @pool->cold_text has the reason, or is empty when
 * there was nothing.
 */
bool spw_pool_can_adopt(struct spw_pool *pool, const struct spw_pool_config *config,
                        struct spw_region *out_old);
/** Go on with them: make all else anew. On failure the old pool is as adoptable as before. */
int spw_pool_adopt(struct spw_pool *pool, const struct spw_pool_config *config,
                   const struct spw_region *old, struct spw_error *err);

#endif
