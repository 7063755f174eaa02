#ifndef SPW_SHM_POOL_IMPL_H
#define SPW_SHM_POOL_IMPL_H
/*
 * What pool.c (attach, places, mending) and pool_create.c (create, unlink) share: which objects a
 * pool has. Inside shm only; process-local.
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

#endif
